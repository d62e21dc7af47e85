//! Names of types and codes of ICMP, of types of service, and of flags of TCP.
use crate::facts::Family;
use artery_wire::NumberNames;

/// Names of types of ICMP, as pf.conf(5) has them.
const TYPES: NumberNames = NumberNames(
    "
    echoreq 8  echorep 0  unreach 3  squench 4  redir 5  althost 6  routeradv 9  routersol 10  timex 11
    paramprob 12  timereq 13  timerep 14  inforeq 15  inforep 16  maskreq 17  maskrep 18  trace 30
    dataconv 31  mobredir 32  ipv6-where 33  ipv6-here 34  mobregreq 35  mobregrep 36  skip 39
    photuris 40",
);

const TYPES6: NumberNames = NumberNames(
    "
    unreach 1  toobig 2  timex 3  paramprob 4  echoreq 128  echorep 129  groupqry 130  listqry 130
    grouprep 131  listenrep 131  groupterm 132  listendone 132  routersol 133  routeradv 134
    neighbrsol 135  neighbradv 136  redir 137  routrrenum 138  wrureq 139  wrurep 140  fqdnreq 139
    fqdnrep 140  niqry 139  nirep 140  mtraceresp 200  mtrace 201  listenrepv2 143",
);

/// Names of types of service.
const SERVICES: NumberNames = NumberNames(
    "
    af11 0x28  af12 0x30  af13 0x38  af21 0x48  af22 0x50  af23 0x58  af31 0x68  af32 0x70  af33 0x78
    af41 0x88  af42 0x90  af43 0x98  critical 0xa0  cs0 0x00  cs1 0x20  cs2 0x40  cs3 0x60  cs4 0x80
    cs5 0xa0  cs6 0xc0  cs7 0xe0  ef 0xb8  inetcontrol 0xc0  lowdelay 0x10  netcontrol 0xe0
    reliability 0x04  throughput 0x08",
);

/// Flags of TCP, from the lowest bit on.
const FLAGS: &str = "FSRPAUEW";

fn icmp_types(family: Family) -> NumberNames {
    if family == Family::Inet6 { TYPES6 } else { TYPES }
}

/// Codes in a type of ICMP.
fn icmp_codes(of: u8, family: Family) -> NumberNames {
    NumberNames(match (family, of) {
        (Family::Inet, 3) => {
            "
            net-unr 0  host-unr 1  proto-unr 2  port-unr 3  needfrag 4  srcfail 5  net-unk 6  host-unk 7
            isolate 8  net-prohib 9  host-prohib 10  net-tos 11  host-tos 12  filter-prohib 13  host-preced 14
            cutoff-preced 15"
        }
        (Family::Inet, 5) => "redir-net 0  redir-host 1  redir-tos-net 2  redir-tos-host 3",
        (Family::Inet, 9) => "normal-adv 0  common-adv 16",
        (Family::Inet, 11) => "transit 0  reassemb 1",
        (Family::Inet, 12) => "badhead 0  optmiss 1  badlen 2",
        (Family::Inet, 40) => "unknown-ind 1  auth-fail 2  decrypt-fail 3",
        (Family::Inet6, 1) => "admin-unr 1  noroute-unr 0  beyond-unr 2  addr-unr 3  port-unr 4",
        (Family::Inet6, 3) => "transit 0  reassemb 1",
        (Family::Inet6, 4) => "badhead 0  nxthdr 1",
        (Family::Inet6, 137) => "redironlink 0  redirrouter 1",
        _ => "",
    })
}

/// The type of ICMP of a name.
pub(crate) fn icmp_type(name: &str, family: Family) -> Option<u8> {
    icmp_types(family).number_of(name).map(|number| number as u8)
}

/// The name of a type of ICMP.
pub(crate) fn icmp_type_name(number: u8, family: Family) -> Option<&'static str> {
    icmp_types(family).name_of(number)
}

/// The code of a name, in a type of ICMP.
pub(crate) fn icmp_code(of: u8, name: &str, family: Family) -> Option<u8> {
    icmp_codes(of, family).number_of(name).map(|number| number as u8)
}

/// The name of a code in a type of ICMP.
pub(crate) fn icmp_code_name(of: u8, number: u8, family: Family) -> Option<&'static str> {
    icmp_codes(of, family).name_of(number)
}

/// The type of service of a name.
pub(crate) fn type_of_service(name: &str) -> Option<u8> {
    SERVICES.number_of(&name.to_ascii_lowercase()).map(|number| number as u8)
}

/// The flags of their letters.
pub(crate) fn parse_flag_letters(letters: &str) -> Option<u8> {
    letters.chars().try_fold(0, |flags, letter| Some(flags | (1 << FLAGS.find(letter)?)))
}

/// The letters of flags.
pub(crate) fn flag_letters(flags: u8) -> String {
    FLAGS.char_indices().filter(|(bit, _)| flags & (1 << bit) != 0).map(|(_, letter)| letter).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_name_has_its_number_and_the_first_name_is_told() {
        assert_eq!(icmp_type("echoreq", Family::Inet), Some(8));
        assert_eq!(icmp_type("listqry", Family::Inet6), Some(130));
        assert_eq!(icmp_type_name(130, Family::Inet6), Some("groupqry"));
        assert_eq!(icmp_code(3, "port-unr", Family::Inet), Some(3));
        assert_eq!(icmp_code(5, "port-unr", Family::Inet), None);
        assert_eq!(icmp_code_name(1, 4, Family::Inet6), Some("port-unr"));
    }

    #[test]
    fn flags_are_told_from_the_lowest_on() {
        assert_eq!(parse_flag_letters("AS"), Some(0x12));
        assert_eq!((flag_letters(0x12), flag_letters(0xff)), ("SA".into(), "FSRPAUEW".into()));
        assert_eq!(parse_flag_letters("SX"), None);
    }
}
