//! Names of IP protocols, ports, and ICMP's types and codes, as configurations, patterns and printed packets
//! spell them.
use artery_engine::ArgValue;
use artery_engine::names::Names;
use artery_wire::NumberNames;

const PROTOCOLS: NumberNames = NumberNames(
    "
    icmp 1  igmp 2  ipip 4  tcp 6  egp 8  udp 17  dccp 33  ipv6 41  rsvp 46  gre 47  esp 50  ah 51
    ipv6-icmp 58  ospf 89  pim 103  vrrp 112  l2tp 115  sctp 132  udplite 136",
);

const ICMP_TYPES: NumberNames = NumberNames(
    "
    echo-reply 0  unreachable 3  sourcequench 4  redirect 5  echo 8  routeradvert 9  routersolicit 10
    timeexceeded 11  parameterproblem 12  timestamp 13  timestamp-reply 14  inforeq 15  inforeq-reply 16
    maskreq 17  maskreq-reply 18",
);

/// The codes of an ICMP type that have names.
fn icmp_codes(icmp_type: u8) -> NumberNames {
    NumberNames(match icmp_type {
        3 => {
            "
            net 0  host 1  protocol 2  port 3  needfrag 4  srcroutefail 5  netunknown 6  hostunknown 7
            isolated 8  netprohibited 9  hostprohibited 10  tosnet 11  toshost 12  filterprohibited 13
            hostprecedence 14  precedencecutoff 15"
        }
        5 => "net 0  host 1  tosnet 2  toshost 3",
        11 => "transit 0  reassembly 1",
        12 => "erroratptr 0  missingopt 1  length 2",
        _ => "",
    })
}

fn number_in(table: NumberNames, text: &str, names: &Names) -> Option<u8> {
    table.number_of(text).map(|number| number as u8).or_else(|| u8::parse(text, names).ok())
}

/// The number of an IP protocol that has this name.
pub(crate) fn protocol_number(name: &str) -> Option<u32> {
    PROTOCOLS.number_of(name)
}

/// The number of an ICMP type that has this name.
pub(crate) fn icmp_type_number(name: &str) -> Option<u32> {
    ICMP_TYPES.number_of(name)
}

/// The port that has this name in TCP and UDP.
pub(crate) fn port_number(name: &str) -> Option<u32> {
    PORTS.number_of(name)
}

/// The port that has this name in UDP.
pub(crate) fn udp_port_number(name: &str) -> Option<u32> {
    port_number(name).or_else(|| UDP_PORTS.number_of(name))
}

/// The name of an IP protocol.
pub(crate) fn protocol_name(number: u8) -> Option<&'static str> {
    PROTOCOLS.name_of(number)
}

/// The name of an ICMP type.
pub(crate) fn icmp_type(number: u8) -> Option<&'static str> {
    ICMP_TYPES.name_of(number)
}

/// The name of a code of an ICMP type.
pub(crate) fn icmp_code(icmp_type: u8, number: u8) -> Option<&'static str> {
    icmp_codes(icmp_type).name_of(number)
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

/// Ports that mean the same in TCP and UDP.
const PORTS: NumberNames = NumberNames(
    "
    auth 113  bgp 179  bootpc 68  bootps 67  chargen 19  daytime 13  discard 9  dns 53  domain 53
    echo 7  finger 79  ftp 21  ftp-data 20  http 80  https 443  imap 143  imap2 143  imap3 220
    imaps 993  irc 194  isakmp 500  kerberos 88  ldap 389  ldaps 636  mysql 3306  netbios-dgm 138
    netbios-ns 137  netbios-ssn 139  nfs 2049  nntp 119  ntp 123  pop3 110  pop3s 995  pptp 1723
    rip 520  route 520  sip 5060  smtp 25  snmp 161  snmp-trap 162  socks 1080  ssh 22  submission 587
    sunrpc 111  telnet 23  tftp 69  whois 43  www 80",
);
const UDP_PORTS: NumberNames = NumberNames("syslog 514  talk 517");

impl ArgValue for UdpPort {
    fn parse(text: &str, names: &Names) -> Result<Self, String> {
        let port = udp_port_number(text).map(|port| port as u16).or_else(|| u16::parse(text, names).ok());
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
        assert_eq!(Protocol::parse("udplite", &names), Ok(Protocol(136)));
        assert!(Protocol::parse("eigrp", &names).is_err(), "only patterns have it");
        assert_eq!(UdpPort::parse("dns", &names), Ok(UdpPort(53)));
        assert_eq!(UdpPort::parse("ssh", &names), Ok(UdpPort(22)));
        assert_eq!((read_icmp_code(11, "reassembly"), read_icmp_code(11, "port")), (Some(1), None));
        assert_eq!(protocol_name(6), Some("tcp"));
        assert_eq!(icmp_type(8), Some("echo"));
        assert_eq!(icmp_code(3, 4), Some("needfrag"));
        assert_eq!((protocol_name(200), icmp_code(8, 0)), (None, None));
    }
}
