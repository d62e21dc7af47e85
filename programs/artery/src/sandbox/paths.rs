//! Files, by Landlock: what the process opens itself. What the configuration names the helper opens. And
//! signals: it sends them only to processes that it started.
use anyhow::Context as _;
use landlock::{
    ABI, Access as _, AccessFs, BitFlags, CompatLevel, Compatible as _, PathBeneath, PathFd, Ruleset,
    RulesetAttr as _, RulesetCreatedAttr as _, RulesetStatus, Scope,
};
use std::fmt;
use std::path::Path;

/// What the C library, and lookups of names, services and the machine's state read.
const READ: [&str; 18] = [
    "/proc",
    "/sys",
    "/lib",
    "/lib64",
    "/usr/lib",
    "/usr/lib64",
    "/usr/share/zoneinfo",
    "/etc/ld.so.cache",
    "/etc/localtime",
    "/etc/hosts",
    "/etc/host.conf",
    "/etc/gai.conf",
    "/etc/nsswitch.conf",
    "/etc/resolv.conf",
    "/etc/services",
    "/etc/protocols",
    "/etc/machine-id",
    "/dev/urandom",
];

/// Whether this kernel has Landlock.
pub(crate) fn has_landlock() -> bool {
    let ruleset = Ruleset::default().set_compatibility(CompatLevel::HardRequirement);
    ruleset.handle_access(AccessFs::from_all(ABI::V1)).and_then(Ruleset::create).is_ok()
}

/// What Landlock does here.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Restricted {
    Fully,
    /// The kernel knows some of the rights.
    Partly,
    /// The kernel has no Landlock.
    Not,
}

impl Restricted {
    /// The warning where the kernel has none.
    pub(super) fn lack(self) -> Option<&'static str> {
        (self == Restricted::Not).then_some(
            "this kernel has no Landlock (Linux 5.13, lsm=landlock), which keeps a router from other files \
             than its own",
        )
    }
}

impl fmt::Display for Restricted {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Restricted::Fully => "enforced",
            Restricted::Partly => "enforced in part: this kernel does not know all rights",
            Restricted::Not => "not enforced: this kernel has no Landlock",
        })
    }
}

/// From now on this thread, and those that it starts, open no other files; those in `listed`, if it is
/// given, are only listed.
pub(super) fn restrict(listed: Option<&Path>) -> anyhow::Result<Restricted> {
    let read = AccessFs::ReadFile | AccessFs::ReadDir;
    let listed = listed.map(|folder| (folder, AccessFs::ReadDir.into()));
    restrict_to(READ.iter().map(|path| (Path::new(path), read)).chain(listed))
}

/// From now on this thread, and those that it starts, use no files except these and what is in these folders,
/// each with its own rights. From Linux 6.12 on they send signals only to processes that they started.
pub(super) fn restrict_to<'p>(
    rules: impl IntoIterator<Item = (&'p Path, BitFlags<AccessFs>)>,
) -> anyhow::Result<Restricted> {
    let mut ruleset = Ruleset::default()
        .handle_access(AccessFs::from_all(ABI::V5))
        .and_then(|ruleset| ruleset.scope(Scope::Signal))
        .and_then(Ruleset::create)
        .context("can't make a Landlock ruleset")?;
    // What can be done with a file; the other rights are those to a folder.
    let of_files = AccessFs::ReadFile | AccessFs::WriteFile | AccessFs::Execute | AccessFs::IoctlDev;
    for (path, access) in rules {
        // What does not exist needs no right.
        let Ok(opened) = PathFd::new(path) else { continue };
        let access = if path.is_dir() { access } else { access & of_files };
        ruleset = ruleset.add_rule(PathBeneath::new(opened, access)).context("can't add a Landlock rule")?;
    }
    let status = ruleset.restrict_self().context("can't restrict files by Landlock")?;
    Ok(match status.ruleset {
        RulesetStatus::FullyEnforced => Restricted::Fully,
        RulesetStatus::PartiallyEnforced => Restricted::Partly,
        RulesetStatus::NotEnforced => Restricted::Not,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::ErrorKind;

    #[test]
    fn processes_of_others_get_no_signals() {
        let scoped = Ruleset::default().set_compatibility(CompatLevel::HardRequirement).scope(Scope::Signal);
        if scoped.and_then(Ruleset::create).is_err() {
            eprintln!("not tested: Landlock of this kernel does not restrict signals (Linux 6.12)");
            return;
        }
        let sleep = || std::process::Command::new("sleep").arg("60").spawn().unwrap();
        let mut other = sleep();
        let id = rustix::process::Pid::from_child(&other);
        let tried = std::thread::spawn(move || {
            rustix::thread::set_no_new_privs(true).unwrap();
            let run = (Path::new("/"), AccessFs::from_all(ABI::V5));
            assert_ne!(restrict_to([run]).unwrap(), Restricted::Not);
            let refused = rustix::process::kill_process(id, rustix::process::Signal::KILL);
            let mut own = sleep();
            (refused, own.kill().is_ok() && own.wait().is_ok())
        });
        assert_eq!(tried.join().unwrap(), (Err(rustix::io::Errno::PERM), true));
        other.kill().unwrap();
        other.wait().unwrap();
    }

    #[test]
    fn files_that_nobody_needs_are_neither_read_nor_made() {
        if !has_landlock() {
            eprintln!("not tested: this kernel has no Landlock");
            return;
        }
        let folder = tempfile::tempdir().unwrap();
        let (file, listed) = (folder.path().join("file"), folder.path().join("listed"));
        std::fs::write(&file, "text").unwrap();
        std::fs::create_dir(&listed).unwrap();
        std::fs::write(listed.join("name"), "text").unwrap();
        let new = folder.path().join("new");
        let tried = move || {
            rustix::thread::set_no_new_privs(true).unwrap();
            assert_ne!(restrict(Some(&listed)).unwrap(), Restricted::Not);
            let denied = |result: std::io::Result<()>| {
                result.is_err_and(|error| error.kind() == ErrorKind::PermissionDenied)
            };
            let made = denied(std::fs::write(&new, "x"));
            let read = denied(std::fs::read(&file).map(drop));
            let read_listed = denied(std::fs::read(listed.join("name")).map(drop));
            let names = std::fs::read_dir(&listed).map(Iterator::count).unwrap_or(0);
            let needed = std::fs::read("/proc/self/status").is_ok();
            (made, read, read_listed, names, needed)
        };
        let tried = std::thread::spawn(tried).join().unwrap();
        assert_eq!(tried, (true, true, true, 1, true));
    }
}
