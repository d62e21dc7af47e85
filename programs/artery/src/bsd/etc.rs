//! A folder such as /etc, and those of its files that describe switches and a router.
use anyhow::anyhow;
use artery_device::system_message;
use artery_filter::syntax::file_in;
use std::path::{Path, PathBuf};

/// What a folder has.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Etc {
    pub(super) folder: PathBuf,
    /// hostname.veb* and hostname.bridge*, in this order and each by number.
    pub(super) switches: Vec<File>,
    /// The other hostname.* files, by name.
    pub(super) interfaces: Vec<File>,
    /// pf.conf, if there is one.
    pub(super) pf: Option<String>,
    /// mygate, if there is one.
    pub(super) gateways: Option<String>,
}

impl Etc {
    /// The path of a file that BSD would have in /etc.
    pub(super) fn path(&self, name: &str) -> PathBuf {
        file_in(&self.folder, name)
    }
}

/// A file such as /etc/hostname.veb0 (hostname.if(5)).
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct File {
    /// The interface; with a star at the end for all whose names begin so.
    pub(super) interface: String,
    pub(super) text: String,
}

impl File {
    /// As messages name it.
    pub(super) fn name(&self) -> String {
        format!("{PREFIX}{}", self.interface)
    }

    /// Whether it is about an interface of this name.
    pub(super) fn is_about(&self, name: &str) -> bool {
        match self.interface.strip_suffix('*') {
            Some(start) => name.starts_with(start),
            None => self.interface == name,
        }
    }
}

const PREFIX: &str = "hostname.";
/// The file of default routes (mygate(5)).
pub(super) const MYGATE: &str = "mygate";

/// What an interface is, which its name says.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Kind {
    /// A switch as in veb(4).
    Veb,
    /// A bridge as in bridge(4).
    Bridge,
    /// vport(4) or vether(4): the host port of a switch.
    HostPort,
    /// pflow(4): states go to a collector.
    Pflow,
    /// A link, by any other name.
    Link,
}

impl Kind {
    pub(super) fn of(name: &str) -> Kind {
        let class = name.trim_end_matches(|c: char| c.is_ascii_digit());
        match class {
            _ if class.len() == name.len() => Kind::Link,
            "veb" => Kind::Veb,
            "bridge" => Kind::Bridge,
            "vport" | "vether" => Kind::HostPort,
            "pflow" => Kind::Pflow,
            _ => Kind::Link,
        }
    }

    pub(super) fn is_switch(self) -> bool {
        matches!(self, Kind::Veb | Kind::Bridge)
    }
}

pub(super) fn read(folder: &Path) -> anyhow::Result<Etc> {
    let cant = |error| anyhow!("{}: {}", folder.display(), system_message(&error));
    let mut etc = Etc { folder: folder.to_path_buf(), ..Etc::default() };
    for entry in std::fs::read_dir(folder).map_err(cant)? {
        let name = entry.map_err(cant)?.file_name();
        let Some(interface) = name.to_str().and_then(|name| name.strip_prefix(PREFIX)) else { continue };
        if is_kept(interface) {
            let file = File { interface: interface.to_string(), text: text(&folder.join(&name))? };
            let files = if Kind::of(interface).is_switch() { &mut etc.switches } else { &mut etc.interfaces };
            files.push(file);
        }
    }
    let other = |name: &str| {
        let path = folder.join(name);
        path.exists().then(|| text(&path)).transpose()
    };
    (etc.pf, etc.gateways) = (other("pf.conf")?, other(MYGATE)?);
    etc.switches.sort_by_key(|file| order(&file.interface));
    etc.interfaces.sort_by_key(|file| order(&file.interface));
    Ok(etc)
}

/// Whether a file of this name is meant, and no copy that an editor has left.
fn is_kept(interface: &str) -> bool {
    let name = interface.strip_suffix('*').unwrap_or(interface);
    !name.is_empty()
        && name.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"_-.@".contains(&byte))
        && ![".orig", ".bak", ".old", ".save", ".swp"].iter().any(|end| name.ends_with(end))
}

fn text(path: &Path) -> anyhow::Result<String> {
    let bytes = artery_device::files::read(path)
        .map_err(|error| anyhow!("{}: {}", path.display(), system_message(&error)))?;
    Ok(String::from_utf8_lossy(&bytes).into_owned())
}

/// Switches of a kind together, then names with their numbers in order.
fn order(interface: &str) -> (Kind, String, u64) {
    let class = interface.trim_end_matches(|c: char| c.is_ascii_digit());
    (Kind::of(interface), class.to_string(), interface[class.len()..].parse().unwrap_or(0))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn folder(files: &[(&str, &str)]) -> tempfile::TempDir {
        let folder = tempfile::tempdir().unwrap();
        for (name, text) in files {
            std::fs::write(folder.path().join(name), text).unwrap();
        }
        folder
    }

    #[test]
    fn switches_come_in_order_and_other_files_are_left_alone() {
        let files = ["veb10", "veb2", "bridge0", "em10", "em9", "em*", "em0~", "em0.orig", "vport0"];
        let files = files.map(|name| (format!("hostname.{name}"), "up"));
        let mut files: Vec<(&str, &str)> = files.iter().map(|(name, text)| (name.as_str(), *text)).collect();
        files.extend([("pf.conf", "pass"), ("myname", "a")]);
        let folder = folder(&files);
        let etc = read(folder.path()).unwrap();
        let names = |files: &[File]| files.iter().map(|file| file.interface.clone()).collect::<Vec<_>>();
        assert_eq!(names(&etc.switches), ["veb2", "veb10", "bridge0"]);
        assert_eq!(names(&etc.interfaces), ["vport0", "em9", "em10", "em*"]);
        assert_eq!(etc.pf.as_deref(), Some("pass"));
    }

    #[test]
    fn a_folder_that_is_missing_is_named() {
        assert!(read(Path::new("/nowhere")).unwrap_err().to_string().starts_with("/nowhere: "));
    }

    #[test]
    fn a_star_stands_for_the_end_of_a_name() {
        let file = |interface: &str| File { interface: interface.into(), text: String::new() };
        assert!(file("cnmac*").is_about("cnmac3") && file("cnmac0").is_about("cnmac0"));
        assert!(!file("cnmac0").is_about("cnmac01") && !file("cnmac*").is_about("em0"));
    }

    #[test]
    fn the_name_says_what_an_interface_is() {
        let kinds = ["veb0", "bridge12", "vport3", "vether0", "em0", "veb", "vebx0"].map(Kind::of);
        use Kind::{Bridge, HostPort, Link, Veb};
        assert_eq!(kinds, [Veb, Bridge, HostPort, HostPort, Link, Link, Link]);
    }
}
