//! Keeps a fuzz target from writing files: texts that elements are made of name any.
use landlock::{ABI, AccessFs, PathBeneath, PathFd, Ruleset, RulesetAttr as _, RulesetCreatedAttr as _};

/// What is written: corpora, findings and logs, below the folder of this crate.
const WRITTEN: [&str; 5] = ["target", "corpus", "artifacts", "coverage", "/dev/null"];

/// Leaves this process nothing to write but that. Where the kernel has no Landlock (Linux 5.13), the target
/// ends, unless ARTERY_FUZZ_UNCONFINED is set.
pub fn confine() {
    let all = AccessFs::from_write(ABI::V3);
    let confined = Ruleset::default().handle_access(all).and_then(|rules| rules.create()).and_then(|rules| {
        let folders = WRITTEN.map(|name| std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join(name));
        // Some are there only after something was found.
        let opened = folders.iter().filter_map(|folder| PathFd::new(folder).ok());
        let rule = |folder| Ok::<_, landlock::RulesetError>(PathBeneath::new(folder, all));
        rules.add_rules(opened.map(rule))?.restrict_self()
    });
    let is_confined = confined.is_ok_and(|status| status.ruleset != landlock::RulesetStatus::NotEnforced);
    assert!(
        is_confined || std::env::var_os("ARTERY_FUZZ_UNCONFINED").is_some(),
        "this kernel has no Landlock, which keeps elements from writing files; ARTERY_FUZZ_UNCONFINED=1 \
         starts the target all the same"
    );
}
