//! Names of protocols, ports, flags and types that IP patterns may use.

/// Stands for TCP or UDP where a protocol is named.
pub(super) const TCP_OR_UDP: u32 = 256;
/// Stands for any transport protocol.
pub(super) const TRANSPORT: u32 = 257;
/// Other programs use this name for the data after the transport header; here it means [`TRANSPORT`].
pub(super) const PAYLOAD: u32 = 258;
pub(super) const ICMP: u32 = 1;
pub(super) const TCP: u32 = 6;
pub(super) const UDP: u32 = 17;
pub(super) const DCCP: u32 = 33;

type Names = &'static [(&'static str, u32)];

const PROTOCOLS: Names = &[
    ("ah", 51),
    ("dccp", DCCP),
    ("eigrp", 88),
    ("esp", 50),
    ("gre", 47),
    ("icmp", ICMP),
    ("igmp", 2),
    ("ipip", 4),
    ("ipv6", 41),
    ("l2tp", 115),
    ("ospf", 89),
    ("payload", PAYLOAD),
    ("pim", 103),
    ("rsvp", 46),
    ("sctp", 132),
    ("tcp", TCP),
    ("tcpudp", TCP_OR_UDP),
    ("transp", TRANSPORT),
    ("udp", UDP),
    ("vrrp", 112),
];

/// Ports that mean the same in TCP and UDP.
const PORTS: Names = &[
    ("auth", 113),
    ("bgp", 179),
    ("bootpc", 68),
    ("bootps", 67),
    ("chargen", 19),
    ("daytime", 13),
    ("discard", 9),
    ("dns", 53),
    ("domain", 53),
    ("echo", 7),
    ("finger", 79),
    ("ftp", 21),
    ("ftp-data", 20),
    ("http", 80),
    ("https", 443),
    ("imap", 143),
    ("imap2", 143),
    ("imap3", 220),
    ("imaps", 993),
    ("irc", 194),
    ("isakmp", 500),
    ("kerberos", 88),
    ("ldap", 389),
    ("ldaps", 636),
    ("mysql", 3306),
    ("netbios-dgm", 138),
    ("netbios-ns", 137),
    ("netbios-ssn", 139),
    ("nfs", 2049),
    ("nntp", 119),
    ("ntp", 123),
    ("pop3", 110),
    ("pop3s", 995),
    ("pptp", 1723),
    ("rip", 520),
    ("route", 520),
    ("sip", 5060),
    ("smtp", 25),
    ("snmp", 161),
    ("snmp-trap", 162),
    ("socks", 1080),
    ("ssh", 22),
    ("submission", 587),
    ("sunrpc", 111),
    ("telnet", 23),
    ("tftp", 69),
    ("whois", 43),
    ("www", 80),
];

const TCP_PORTS: Names = &[("login", 513), ("printer", 515), ("shell", 514)];
const UDP_PORTS: Names = &[("syslog", 514), ("talk", 517)];

const TCP_OPTIONS: Names =
    &[("ack", 0x10), ("fin", 0x01), ("psh", 0x08), ("rst", 0x04), ("syn", 0x02), ("urg", 0x20)];

const ICMP_TYPES: Names = &[
    ("echo", 8),
    ("echo-reply", 0),
    ("inforeq", 15),
    ("inforeq-reply", 16),
    ("maskreq", 17),
    ("maskreq-reply", 18),
    ("parameterproblem", 12),
    ("redirect", 5),
    ("routeradvert", 9),
    ("routersolicit", 10),
    ("sourcequench", 4),
    ("timeexceeded", 11),
    ("timestamp", 13),
    ("timestamp-reply", 14),
    ("unreachable", 3),
];

fn find_name(names: Names, name: &str) -> Option<u32> {
    names.iter().find(|(known, _)| *known == name).map(|(_, value)| *value)
}

/// Everything that a word can name, in the order in which it is tried.
pub(super) struct Meanings {
    pub(crate) protocol: Option<u32>,
    pub(crate) tcp_port: Option<u32>,
    pub(crate) udp_port: Option<u32>,
    pub(crate) tcp_option: Option<u32>,
    pub(crate) icmp_type: Option<u32>,
}

impl Meanings {
    pub(crate) fn of_word(word: &str) -> Meanings {
        Meanings {
            protocol: find_name(PROTOCOLS, word),
            tcp_port: find_name(PORTS, word).or_else(|| find_name(TCP_PORTS, word)),
            udp_port: find_name(PORTS, word).or_else(|| find_name(UDP_PORTS, word)),
            tcp_option: find_name(TCP_OPTIONS, word),
            icmp_type: find_name(ICMP_TYPES, word),
        }
    }
}

/// A protocol as patterns spell it; empty for None.
pub(super) fn protocol_name(protocol: Option<u32>) -> String {
    match protocol {
        None => String::new(),
        Some(PAYLOAD) => "payload".into(),
        Some(TRANSPORT) => "transp".into(),
        Some(TCP_OR_UDP) => "tcpudp".into(),
        Some(number @ (1 | 2 | 4 | 6 | 17)) => {
            let name = PROTOCOLS.iter().find(|(_, n)| *n == number).map_or("", |(name, _)| name);
            name.to_string()
        }
        Some(number) => format!("ip proto {number}"),
    }
}
