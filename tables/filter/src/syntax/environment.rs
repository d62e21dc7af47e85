//! What a rule file takes from the machine: interfaces, hosts, files, and names that stand for numbers.
//!
//! Nothing is looked up by itself: the program fills in what its machine has, among it
//! [`Names::of_machine`]; tests take [`Environment::fixture`].
use super::numbered_names::NumberedNames;
use crate::names::{InterfaceAddress, InterfaceRecord, Interfaces};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::path::{Path, PathBuf};

/// How the text of a file is had: by its name. The error says why it can't.
pub type ReadFile<'a> = dyn Fn(&str) -> Result<Vec<u8>, String> + 'a;

/// How the addresses of a host are had: by its name.
pub type FindHost<'a> = dyn Fn(&str) -> Vec<IpAddr> + 'a;

/// All that the words of a rule file can refer to.
pub struct Environment<'a> {
    /// The interfaces of the machine, with their addresses.
    pub interfaces: Interfaces,
    /// Names that stand for numbers.
    pub names: NumberedNames,
    /// Gives the text of included files and of tables' files.
    pub read_file: Box<ReadFile<'a>>,
    /// Gives the addresses of hosts.
    pub find_host: Box<FindHost<'a>>,
}

/// Where a file is that rules name, if `etc` is what they mean by /etc. What has no folder is there as well.
pub fn file_in(etc: &Path, name: &str) -> PathBuf {
    etc.join(name.strip_prefix("/etc/").unwrap_or(name))
}

impl Environment<'_> {
    /// A machine for tests: `lo0` with its addresses, three interfaces without any, and OpenBSD's names.
    pub fn fixture() -> Environment<'static> {
        let v6 = |address, length| InterfaceAddress { address: IpAddr::V6(address), length, peer: None };
        let loopback = IpAddr::V4(Ipv4Addr::LOCALHOST);
        let addresses = vec![
            v6(Ipv6Addr::LOCALHOST, 128),
            v6(Ipv6Addr::new(0xfe80, 0, 0, 0, 0, 0, 0, 1), 64),
            InterfaceAddress { address: loopback, length: 8, peer: None },
        ];
        let record = |name: &str, group: &str, is_loopback, addresses| InterfaceRecord {
            name: name.into(),
            groups: vec!["all".into(), group.into()],
            is_loopback,
            addresses,
            ..InterfaceRecord::default()
        };
        let interfaces = Interfaces(vec![
            record("lo0", "lo", true, addresses),
            record("lo1000000", "lo", true, Vec::new()),
            record("tun1000000", "tun", false, Vec::new()),
            record("tun1000001", "tun", false, Vec::new()),
        ]);
        Environment {
            interfaces,
            names: NumberedNames::builtin(),
            read_file: Box::new(|name| Err(format!("no file {name} here"))),
            find_host: Box::new(move |name| match name {
                "localhost" => vec![loopback, IpAddr::V6(Ipv6Addr::LOCALHOST)],
                _ => Vec::new(),
            }),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_of_etc_are_in_the_folder_that_stands_for_it() {
        let of = |name| file_in(Path::new("conf/veb2021"), name).display().to_string();
        let found = ["/etc/spam", "/etc/pf/spam", "spam", "/var/db/spam", "/etcetera"].map(of);
        let expected =
            ["conf/veb2021/spam", "conf/veb2021/pf/spam", "conf/veb2021/spam", "/var/db/spam", "/etcetera"];
        assert_eq!(found, expected);
    }
}
