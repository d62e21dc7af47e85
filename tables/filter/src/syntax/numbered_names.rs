//! Names of services, protocols, users and groups.
use super::openbsd_names::{GROUPS, PROTOCOLS, SERVICES, USERS};
use artery_wire::IpProtocol;
use std::collections::HashSet;

/// Names that stand for numbers.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct NumberedNames {
    /// Names of services, further names of the same port behind its first: name, port, protocol.
    pub services: Vec<(String, u16, String)>,
    /// Names of protocols, further names of the same number behind its first.
    pub protocols: Vec<(String, u8)>,
    /// Names of users, with their numbers.
    pub users: Vec<(String, u32)>,
    /// Names of groups, with their numbers.
    pub groups: Vec<(String, u32)>,
}

impl NumberedNames {
    /// Takes names from texts in the form of /etc/services, /etc/protocols, /etc/passwd and /etc/group. Lines
    /// that aren't of that form are passed over.
    pub fn from_texts(services: &str, protocols: &str, users: &str, groups: &str) -> NumberedNames {
        let mut names = NumberedNames::default();
        for words in lines_of_words(services) {
            let Some((port, protocol)) = words.get(1).and_then(|word| word.split_once('/')) else { continue };
            let Ok(port) = port.parse() else { continue };
            let known = words.iter().enumerate().filter(|(place, _)| *place != 1);
            names.services.extend(known.map(|(_, name)| (name.to_string(), port, protocol.to_string())));
        }
        for words in lines_of_words(protocols) {
            let Some(Ok(number)) = words.get(1).map(|word| word.parse()) else { continue };
            let known = words.iter().enumerate().filter(|(place, _)| *place != 1);
            names.protocols.extend(known.map(|(_, name)| (name.to_string(), number)));
        }
        names.users = parse_accounts(users);
        names.groups = parse_accounts(groups);
        names
    }

    /// The names that OpenBSD gives to protocols and to the best known services, and its
    /// first users and groups.
    pub fn builtin() -> NumberedNames {
        NumberedNames::from_texts(SERVICES, PROTOCOLS, USERS, GROUPS)
    }

    /// The names that rule files can use on this machine, the same for every command and every filter.
    ///
    /// A service or protocol that OpenBSD names has OpenBSD's number: a pf.conf means the same ports wherever
    /// it is read (`spamd` is 8025, though Debian's /etc/services says 783). All other names are those of
    /// /etc/services and /etc/protocols. Users and groups are the machine's alone, from /etc/passwd and
    /// /etc/group: numbers of accounts mean nothing elsewhere. A file that can't be read has no names.
    pub fn of_machine() -> NumberedNames {
        let text = |file: &str| {
            std::fs::read(file).map(|text| String::from_utf8_lossy(&text).into_owned()).unwrap_or_default()
        };
        let [services, protocols, users, groups] =
            ["/etc/services", "/etc/protocols", "/etc/passwd", "/etc/group"].map(text);
        NumberedNames::builtin()
            .with_machine(NumberedNames::from_texts(&services, &protocols, &users, &groups))
    }

    /// These names of services and protocols, those of a machine that have none here,
    /// and the machine's accounts.
    fn with_machine(mut self, machine: NumberedNames) -> NumberedNames {
        let services: HashSet<String> = self.services.iter().map(|known| known.0.clone()).collect();
        let protocols: HashSet<String> = self.protocols.iter().map(|known| known.0.clone()).collect();
        self.services.extend(machine.services.into_iter().filter(|one| !services.contains(&one.0)));
        self.protocols.extend(machine.protocols.into_iter().filter(|one| !protocols.contains(&one.0)));
        NumberedNames { users: machine.users, groups: machine.groups, ..self }
    }

    /// The port of a service, that of TCP if it has several.
    pub fn port_number(&self, name: &str) -> Option<u16> {
        let of = |protocol: &str| {
            self.services.iter().find(|(known, _, by)| known == name && by == protocol).map(|known| known.1)
        };
        of("tcp").or_else(|| of("udp"))
    }

    /// The first name of a port.
    pub fn service_name(&self, port: u16, protocol: Option<IpProtocol>) -> Option<&str> {
        let by = if protocol == Some(IpProtocol::TCP) { "tcp" } else { "udp" };
        self.services
            .iter()
            .find(|(_, known, of)| *known == port && of == by)
            .map(|(name, _, _)| name.as_str())
    }

    /// The number of a protocol.
    pub fn protocol_number(&self, name: &str) -> Option<u8> {
        self.protocols.iter().find(|(known, _)| known == name).map(|known| known.1)
    }

    /// The first name of a protocol.
    pub fn protocol_name(&self, number: u8) -> Option<&str> {
        self.protocols.iter().find(|(_, known)| *known == number).map(|(name, _)| name.as_str())
    }
}

/// The words of each line, without comments.
fn lines_of_words(text: &str) -> impl Iterator<Item = Vec<&str>> {
    let lines = text.lines().map(|line| line.split('#').next().unwrap_or_default());
    lines.map(|line| line.split_whitespace().collect::<Vec<_>>()).filter(|words| !words.is_empty())
}

/// Names and numbers of lines such as `root:*:0:…`.
fn parse_accounts(text: &str) -> Vec<(String, u32)> {
    let fields = text.lines().map(|line| line.split(':').collect::<Vec<_>>());
    fields.filter_map(|fields| Some((fields.first()?.to_string(), fields.get(2)?.parse().ok()?))).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_and_their_second_names_are_found() {
        let names = NumberedNames::builtin();
        assert_eq!(names.port_number("ident"), Some(113));
        assert_eq!(names.port_number("ntp"), Some(123));
        assert_eq!(names.port_number("none"), None);
        assert_eq!(names.service_name(80, Some(IpProtocol::TCP)), Some("www"));
        assert_eq!((names.protocol_number("icmp6"), names.protocol_name(58)), (Some(58), Some("ipv6-icmp")));
        assert_eq!((names.protocol_name(103), names.protocol_name(166)), (Some("pim"), None));
        assert!(names.users.contains(&("bin".into(), 3)) && names.groups.contains(&("nobody".into(), 32767)));
    }

    #[test]
    fn openbsd_names_its_services_and_the_machine_the_others_and_its_accounts() {
        let services = "spamd 783/tcp\nsmtps 466/udp\nours 7777/tcp\nntp 124/udp";
        let machine =
            NumberedNames::from_texts(services, "tcp 7\nmine 200", "root:x:0:\n_me:x:1000:", "us:x:1000:");
        let names = NumberedNames::builtin().with_machine(machine);
        let ports = ["spamd", "smtps", "dhcpv6-client", "dhcpv6-server", "ntp", "ours", "none"];
        let expected = [Some(8025), Some(465), Some(546), Some(547), Some(123), Some(7777), None];
        assert_eq!(ports.map(|name| names.port_number(name)), expected);
        let found = ["tcp", "mine", "icmp6"].map(|name| names.protocol_number(name));
        assert_eq!(found, [Some(6), Some(200), Some(58)]);
        assert_eq!(names.users, [("root".into(), 0), ("_me".into(), 1000)]);
        assert_eq!(names.groups, [("us".into(), 1000)]);
    }

    #[test]
    fn lines_of_another_form_are_passed_over() {
        let names = NumberedNames::from_texts("a\nb 1\nc x/tcp\n\nd 9/udp e # f", "x\ny z\n", "root", ":::");
        assert_eq!(names.services.len(), 2);
        assert!(names.protocols.is_empty() && names.users.is_empty() && names.groups.is_empty());
    }
}
