//! Names of types and codes of ICMP, of types of service, and of flags of TCP.
use crate::facts::Family;

/// Types of ICMP; of several names of a number the first is printed.
const TYPES: [(&str, u8); 25] = [
    ("echoreq", 8),
    ("echorep", 0),
    ("unreach", 3),
    ("squench", 4),
    ("redir", 5),
    ("althost", 6),
    ("routeradv", 9),
    ("routersol", 10),
    ("timex", 11),
    ("paramprob", 12),
    ("timereq", 13),
    ("timerep", 14),
    ("inforeq", 15),
    ("inforep", 16),
    ("maskreq", 17),
    ("maskrep", 18),
    ("trace", 30),
    ("dataconv", 31),
    ("mobredir", 32),
    ("ipv6-where", 33),
    ("ipv6-here", 34),
    ("mobregreq", 35),
    ("mobregrep", 36),
    ("skip", 39),
    ("photuris", 40),
];

const TYPES6: [(&str, u8); 27] = [
    ("unreach", 1),
    ("toobig", 2),
    ("timex", 3),
    ("paramprob", 4),
    ("echoreq", 128),
    ("echorep", 129),
    ("groupqry", 130),
    ("listqry", 130),
    ("grouprep", 131),
    ("listenrep", 131),
    ("groupterm", 132),
    ("listendone", 132),
    ("routersol", 133),
    ("routeradv", 134),
    ("neighbrsol", 135),
    ("neighbradv", 136),
    ("redir", 137),
    ("routrrenum", 138),
    ("wrureq", 139),
    ("wrurep", 140),
    ("fqdnreq", 139),
    ("fqdnrep", 140),
    ("niqry", 139),
    ("nirep", 140),
    ("mtraceresp", 200),
    ("mtrace", 201),
    ("listenrepv2", 143),
];

/// Codes of ICMP: name, type, code.
const CODES: [(&str, u8, u8); 30] = [
    ("net-unr", 3, 0),
    ("host-unr", 3, 1),
    ("proto-unr", 3, 2),
    ("port-unr", 3, 3),
    ("needfrag", 3, 4),
    ("srcfail", 3, 5),
    ("net-unk", 3, 6),
    ("host-unk", 3, 7),
    ("isolate", 3, 8),
    ("net-prohib", 3, 9),
    ("host-prohib", 3, 10),
    ("net-tos", 3, 11),
    ("host-tos", 3, 12),
    ("filter-prohib", 3, 13),
    ("host-preced", 3, 14),
    ("cutoff-preced", 3, 15),
    ("redir-net", 5, 0),
    ("redir-host", 5, 1),
    ("redir-tos-net", 5, 2),
    ("redir-tos-host", 5, 3),
    ("normal-adv", 9, 0),
    ("common-adv", 9, 16),
    ("transit", 11, 0),
    ("reassemb", 11, 1),
    ("badhead", 12, 0),
    ("optmiss", 12, 1),
    ("badlen", 12, 2),
    ("unknown-ind", 40, 1),
    ("auth-fail", 40, 2),
    ("decrypt-fail", 40, 3),
];

const CODES6: [(&str, u8, u8); 11] = [
    ("admin-unr", 1, 1),
    ("noroute-unr", 1, 0),
    ("beyond-unr", 1, 2),
    ("addr-unr", 1, 3),
    ("port-unr", 1, 4),
    ("transit", 3, 0),
    ("reassemb", 3, 1),
    ("badhead", 4, 0),
    ("nxthdr", 4, 1),
    ("redironlink", 137, 0),
    ("redirrouter", 137, 1),
];

/// Names of types of service.
const SERVICES: [(&str, u8); 27] = [
    ("af11", 0x28),
    ("af12", 0x30),
    ("af13", 0x38),
    ("af21", 0x48),
    ("af22", 0x50),
    ("af23", 0x58),
    ("af31", 0x68),
    ("af32", 0x70),
    ("af33", 0x78),
    ("af41", 0x88),
    ("af42", 0x90),
    ("af43", 0x98),
    ("critical", 0xa0),
    ("cs0", 0x00),
    ("cs1", 0x20),
    ("cs2", 0x40),
    ("cs3", 0x60),
    ("cs4", 0x80),
    ("cs5", 0xa0),
    ("cs6", 0xc0),
    ("cs7", 0xe0),
    ("ef", 0xb8),
    ("inetcontrol", 0xc0),
    ("lowdelay", 0x10),
    ("netcontrol", 0xe0),
    ("reliability", 0x04),
    ("throughput", 0x08),
];

/// Flags of TCP, from the lowest bit on.
const FLAGS: &str = "FSRPAUEW";

fn icmp_types(family: Family) -> &'static [(&'static str, u8)] {
    if family == Family::Inet6 { &TYPES6 } else { &TYPES }
}

fn icmp_codes(family: Family) -> &'static [(&'static str, u8, u8)] {
    if family == Family::Inet6 { &CODES6 } else { &CODES }
}

/// The type of ICMP of a name.
pub(crate) fn icmp_type(name: &str, family: Family) -> Option<u8> {
    icmp_types(family).iter().find(|known| known.0 == name).map(|known| known.1)
}

/// The name of a type of ICMP.
pub(crate) fn icmp_type_name(number: u8, family: Family) -> Option<&'static str> {
    icmp_types(family).iter().find(|known| known.1 == number).map(|known| known.0)
}

/// The code of a name, in a type of ICMP.
pub(crate) fn icmp_code(of: u8, name: &str, family: Family) -> Option<u8> {
    icmp_codes(family).iter().find(|known| known.0 == name && known.1 == of).map(|known| known.2)
}

/// The name of a code in a type of ICMP.
pub(crate) fn icmp_code_name(of: u8, number: u8, family: Family) -> Option<&'static str> {
    icmp_codes(family).iter().find(|known| known.1 == of && known.2 == number).map(|known| known.0)
}

/// The type of service of a name.
pub(crate) fn type_of_service(name: &str) -> Option<u8> {
    SERVICES.iter().find(|known| known.0.eq_ignore_ascii_case(name)).map(|known| known.1)
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
