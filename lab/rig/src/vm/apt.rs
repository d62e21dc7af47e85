//! apt with the machine's own package sources, or with these for another suite of the same distribution.
//!
//! No host is written down here: the sources of the machine are copied, with its suite's name replaced. Lists
//! of another suite are kept in a folder of ours, so that the machine's own stay as they are.

use super::cache;
use super::kernel::Package;
use super::tool;
use anyhow::{Context as _, bail};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

/// A set of package sources.
pub(super) struct Apt {
    /// Where sources, lists and downloads of another suite are kept; none for the machine's own.
    folder: Option<PathBuf>,
}

impl Apt {
    /// The machine's own sources, or the same for another suite, whose lists are then fetched.
    pub(super) fn open(suite: Option<&str>) -> anyhow::Result<Apt> {
        let Some(suite) = suite else {
            return Ok(Apt { folder: None });
        };
        let sources = sources_of(suite)?;
        let folder = cache::folder()?.join("apt").join(suite);
        for part in ["lists/partial", "cache/archives/partial"] {
            fs::create_dir_all(folder.join(part))?;
        }
        for (name, text) in [("suite.sources", &sources.stanzas), ("suite.list", &sources.lines)] {
            fs::create_dir_all(folder.join("parts"))?;
            fs::write(folder.join("parts").join(name), text)?;
        }
        let apt = Apt { folder: Some(folder) };
        tool::output_of(apt.command("apt-get")?.args(["update", "-q"])).context("apt-get update")?;
        Ok(apt)
    }

    /// What `apt-cache search` prints of kernels. Where the machine's own lists are empty they are fetched.
    pub(super) fn kernels(&self) -> anyhow::Result<String> {
        let search = || -> anyhow::Result<String> {
            tool::output_of(self.command("apt-cache")?.args(["search", "--names-only", "^linux-image-[0-9]"]))
        };
        let found = search()?;
        if !found.is_empty() || self.folder.is_some() {
            return Ok(found);
        }
        tool::output_of(self.command("apt-get")?.args(["update", "-q"])).context("apt-get update")?;
        search()
    }

    /// Downloads the packages of a kernel into a folder: newer ones come in parts.
    pub(super) fn download(&self, package: &Package, folder: &Path) -> anyhow::Result<Vec<PathBuf>> {
        let parts = ["base", "binary", "modules"].map(|part| format!("linux-{part}-{}", package.release));
        let mut names = vec![package.name.clone()];
        for part in parts {
            if !tool::output_of(self.command("apt-cache")?.args(["search", "--names-only", &exactly(&part)]))?
                .is_empty()
            {
                names.push(part);
            }
        }
        let download = || -> anyhow::Result<String> {
            tool::output_of(
                self.command("apt-get")?.args(["download", "-q"]).args(&names).current_dir(folder),
            )
        };
        if download().is_err() {
            // Lists that name a package of yesterday.
            tool::output_of(self.command("apt-get")?.args(["update", "-q"])).context("apt-get update")?;
            download()?;
        }
        let files = fs::read_dir(folder)?.flatten().map(|entry| entry.path());
        Ok(files.filter(|path| path.extension().is_some_and(|extension| extension == "deb")).collect())
    }

    fn command(&self, program: &str) -> anyhow::Result<Command> {
        let mut command = Command::new(tool::find(program)?);
        // As root: the user that apt would become can't write to our folders.
        command.args(["-o", "APT::Sandbox::User=root"]);
        command.args(["-o", "Acquire::IndexTargets::deb::DEP-11::DefaultEnabled=false"]);
        command.args(["-o", "Acquire::Languages=none"]);
        if let Some(folder) = &self.folder {
            let folder = folder.display();
            for option in [
                "Dir::Etc::sourcelist=/dev/null".to_owned(),
                format!("Dir::Etc::sourceparts={folder}/parts"),
                format!("Dir::State::lists={folder}/lists"),
                format!("Dir::Cache={folder}/cache"),
            ] {
                command.args(["-o", &option]);
            }
        }
        Ok(command)
    }
}

fn exactly(name: &str) -> String {
    let escaped: String =
        name.chars().flat_map(|c| ['.', '+'].contains(&c).then_some('\\').into_iter().chain([c])).collect();
    format!("^{escaped}$")
}

/// Package sources in both of apt's forms.
#[derive(Debug, Default, PartialEq, Eq)]
struct Sources {
    /// Stanzas of fields (`*.sources`).
    stanzas: String,
    /// A source a line (`*.list`).
    lines: String,
}

/// The machine's sources for another suite.
fn sources_of(suite: &str) -> anyhow::Result<Sources> {
    let own = own_suite(&fs::read_to_string("/etc/os-release").context("cannot read /etc/os-release")?)?;
    let mut sources = Sources::default();
    let parts = fs::read_dir("/etc/apt/sources.list.d").into_iter().flatten().flatten();
    let mut files: Vec<PathBuf> = parts.map(|entry| entry.path()).collect();
    files.push("/etc/apt/sources.list".into());
    files.sort();
    for file in files {
        let Ok(text) = fs::read_to_string(&file) else { continue };
        match file.extension().and_then(|extension| extension.to_str()) {
            Some("sources") => sources.stanzas += &replace_in_stanzas(&text, &own, suite),
            Some("list") => sources.lines += &replace_in_lines(&text, &own, suite),
            _ => {}
        }
    }
    if sources == Sources::default() {
        bail!("no package source of this machine is for {own}");
    }
    Ok(sources)
}

fn own_suite(os_release: &str) -> anyhow::Result<String> {
    let name = os_release.lines().find_map(|line| line.strip_prefix("VERSION_CODENAME="));
    let name = name.context("/etc/os-release has no VERSION_CODENAME: this is not a release of Debian")?;
    Ok(name.trim_matches('"').to_owned())
}

fn replace_in_stanzas(text: &str, own: &str, suite: &str) -> String {
    let without_comments = text.lines().filter(|line| !line.starts_with('#')).collect::<Vec<_>>().join("\n");
    let stanzas = without_comments.split("\n\n").filter_map(|stanza| {
        let is_suites = |line: &str| line.to_ascii_lowercase().starts_with("suites:");
        let named = stanza.lines().find(|line| is_suites(line))?.split(':').nth(1)?;
        let replaced: Vec<String> =
            named.split_whitespace().filter_map(|name| replaced(name, own, suite)).collect();
        if replaced.is_empty() {
            return None;
        }
        let line = format!("Suites: {}", replaced.join(" "));
        let lines = stanza.lines().map(|old| if is_suites(old) { line.as_str() } else { old });
        Some(lines.collect::<Vec<_>>().join("\n") + "\n\n")
    });
    stanzas.collect()
}

fn replace_in_lines(text: &str, own: &str, suite: &str) -> String {
    let lines = text.lines().filter_map(|line| {
        let words: Vec<&str> = line.split_whitespace().collect();
        if words.first() != Some(&"deb") {
            return None;
        }
        let (at, name) =
            words.iter().enumerate().find_map(|(at, word)| Some((at, replaced(word, own, suite)?)))?;
        let mut words: Vec<String> = words.into_iter().map(str::to_owned).collect();
        words[at] = name;
        Some(words.join(" ") + "\n")
    });
    lines.collect()
}

/// The other suite's name for a part of the machine's suite; unstable has no parts.
fn replaced(name: &str, own: &str, suite: &str) -> Option<String> {
    let part = name.strip_prefix(own)?;
    match part {
        "" => Some(suite.into()),
        _ if suite == "unstable" => None,
        "-updates" | "-security" => Some(format!("{suite}{part}")),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const STANZAS: &str = "\
Types: deb
# a comment
URIs: http://mirror.test/debian
Suites: bookworm bookworm-updates
Components: main

Types: deb
URIs: http://mirror.test/security
Suites: bookworm-security
Components: main

Types: deb
URIs: http://other.test/
Suites: nodistro
Components: main
";

    #[test]
    fn the_suite_is_replaced_and_other_sources_are_left_out() {
        let old = replace_in_stanzas(STANZAS, "bookworm", "bullseye");
        assert!(old.contains("Suites: bullseye bullseye-updates\n"), "{old}");
        assert!(old.contains("Suites: bullseye-security\n"), "{old}");
        assert!(!old.contains("other.test"), "{old}");
        let new = replace_in_stanzas(STANZAS, "bookworm", "unstable");
        assert_eq!(new.matches("Suites:").collect::<Vec<_>>().len(), 1, "{new}");
        assert!(new.contains("Suites: unstable\n"), "{new}");
    }

    #[test]
    fn sources_of_a_line_each_are_read_too() {
        let text = "\
# deb http://mirror.test/debian bookworm main
deb-src http://mirror.test/debian bookworm main
deb [signed-by=/a] http://mirror.test/debian bookworm main contrib
deb http://mirror.test/debian bookworm-backports main
";
        let new = replace_in_lines(text, "bookworm", "unstable");
        assert_eq!(new, "deb [signed-by=/a] http://mirror.test/debian unstable main contrib\n");
    }

    #[test]
    fn the_suite_is_what_the_system_says() {
        assert_eq!(own_suite("ID=debian\nVERSION_CODENAME=bookworm\n").unwrap(), "bookworm");
        assert!(own_suite("ID=arch\n").is_err());
    }

    #[test]
    fn a_package_is_asked_for_by_its_name_alone() {
        assert_eq!(exactly("linux-binary-7.2.13+deb14-amd64"), r"^linux-binary-7\.2\.13\+deb14-amd64$");
    }
}
