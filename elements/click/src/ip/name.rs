//! Names of IP protocols and of ICMP's types and codes, as configurations and printed packets spell them.
use artery_engine::ArgValue;
use artery_engine::names::Names;

type Table = &'static [(&'static str, u8)];

const PROTOCOLS: Table = &[
    ("icmp", 1),
    ("igmp", 2),
    ("ipip", 4),
    ("tcp", 6),
    ("egp", 8),
    ("udp", 17),
    ("dccp", 33),
    ("ipv6", 41),
    ("rsvp", 46),
    ("gre", 47),
    ("esp", 50),
    ("ah", 51),
    ("ipv6-icmp", 58),
    ("ospf", 89),
    ("pim", 103),
    ("vrrp", 112),
    ("l2tp", 115),
    ("sctp", 132),
    ("udplite", 136),
];

const ICMP_TYPES: Table = &[
    ("echo-reply", 0),
    ("unreachable", 3),
    ("sourcequench", 4),
    ("redirect", 5),
    ("echo", 8),
    ("routeradvert", 9),
    ("routersolicit", 10),
    ("timeexceeded", 11),
    ("parameterproblem", 12),
    ("timestamp", 13),
    ("timestamp-reply", 14),
    ("inforeq", 15),
    ("inforeq-reply", 16),
    ("maskreq", 17),
    ("maskreq-reply", 18),
];

const UNREACHABLE_CODES: Table = &[
    ("net", 0),
    ("host", 1),
    ("protocol", 2),
    ("port", 3),
    ("needfrag", 4),
    ("srcroutefail", 5),
    ("netunknown", 6),
    ("hostunknown", 7),
    ("isolated", 8),
    ("netprohibited", 9),
    ("hostprohibited", 10),
    ("tosnet", 11),
    ("toshost", 12),
    ("filterprohibited", 13),
    ("hostprecedence", 14),
    ("precedencecutoff", 15),
];
const REDIRECT_CODES: Table = &[("net", 0), ("host", 1), ("tosnet", 2), ("toshost", 3)];
const TIME_EXCEEDED_CODES: Table = &[("transit", 0), ("reassembly", 1)];
const PARAMETER_PROBLEM_CODES: Table = &[("erroratptr", 0), ("missingopt", 1), ("length", 2)];

/// The codes of an ICMP type that have names.
fn icmp_codes(icmp_type: u8) -> Table {
    match icmp_type {
        3 => UNREACHABLE_CODES,
        5 => REDIRECT_CODES,
        11 => TIME_EXCEEDED_CODES,
        12 => PARAMETER_PROBLEM_CODES,
        _ => &[],
    }
}

fn name_in(table: Table, number: u8) -> Option<&'static str> {
    table.iter().find(|(_, n)| *n == number).map(|(name, _)| *name)
}

fn number_in(table: Table, text: &str, names: &Names) -> Option<u8> {
    let named = table.iter().find(|(name, _)| *name == text).map(|(_, number)| *number);
    named.or_else(|| u8::parse(text, names).ok())
}

/// The name of an IP protocol.
pub(crate) fn protocol_name(number: u8) -> Option<&'static str> {
    name_in(PROTOCOLS, number)
}

/// The name of an ICMP type.
pub(crate) fn icmp_type(number: u8) -> Option<&'static str> {
    name_in(ICMP_TYPES, number)
}

/// The name of a code of an ICMP type.
pub(crate) fn icmp_code(icmp_type: u8, number: u8) -> Option<&'static str> {
    name_in(icmp_codes(icmp_type), number)
}

/// A code of an ICMP type, by name or number.
pub(crate) fn read_icmp_code(icmp_type: u8, text: &str) -> Option<u8> {
    number_in(icmp_codes(icmp_type), text, &Names::default())
}

/// An IP protocol as an argument, by name or number.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Protocol(pub(crate) u8);

impl ArgValue for Protocol {
    fn parse(text: &str, names: &Names) -> Result<Self, String> {
        let number = number_in(PROTOCOLS, text, names);
        number.map(Protocol).ok_or_else(|| "an IP protocol, such as udp or a number to 255".into())
    }
}

/// An ICMP type as an argument, by name or number.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct IcmpTypeName(pub(crate) u8);

impl ArgValue for IcmpTypeName {
    fn parse(text: &str, names: &Names) -> Result<Self, String> {
        let number = number_in(ICMP_TYPES, text, names);
        number.map(IcmpTypeName).ok_or_else(|| "an ICMP type, such as timeexceeded or a number to 255".into())
    }
}

/// A UDP port as an argument, by number or by one of the service names that configurations use.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct UdpPort(pub(crate) u16);

const UDP_PORTS: &[(&str, u16)] = &[
    ("echo", 7),
    ("discard", 9),
    ("daytime", 13),
    ("chargen", 19),
    ("dns", 53),
    ("domain", 53),
    ("bootps", 67),
    ("bootpc", 68),
    ("tftp", 69),
    ("sunrpc", 111),
    ("ntp", 123),
    ("netbios-ns", 137),
    ("netbios-dgm", 138),
    ("snmp", 161),
    ("snmp-trap", 162),
    ("https", 443),
    ("rip", 520),
    ("route", 520),
];

impl ArgValue for UdpPort {
    fn parse(text: &str, names: &Names) -> Result<Self, String> {
        let named = UDP_PORTS.iter().find(|(name, _)| *name == text).map(|(_, port)| *port);
        let port = named.or_else(|| u16::parse(text, names).ok());
        port.map(UdpPort).ok_or_else(|| "a UDP port, such as dns or a number to 65535".into())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_and_numbers_are_read_and_written() {
        let names = Names::default();
        assert_eq!(Protocol::parse("udp", &names), Ok(Protocol(17)));
        assert_eq!(Protocol::parse("0x11", &names), Ok(Protocol(17)));
        assert!(Protocol::parse("256", &names).is_err());
        assert_eq!(IcmpTypeName::parse("timeexceeded", &names), Ok(IcmpTypeName(11)));
        assert_eq!(UdpPort::parse("dns", &names), Ok(UdpPort(53)));
        assert_eq!((read_icmp_code(11, "reassembly"), read_icmp_code(11, "port")), (Some(1), None));
        assert_eq!(
            (protocol_name(6), icmp_type(8), icmp_code(3, 4)),
            (Some("tcp"), Some("echo"), Some("needfrag"))
        );
        assert_eq!((protocol_name(200), icmp_code(8, 0)), (None, None));
    }
}
