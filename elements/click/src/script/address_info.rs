use super::info::Info;
use artery_engine::names::NameEntry;
use artery_engine::{Arg, ArgError, Class, Phase};
use artery_lang::args;
use artery_wire::Ipv4Prefix;
use std::net::Ipv4Addr;

pub static CLASS: Class = Class {
    name: "AddressInfo",
    group: "script",
    summary: "gives names to addresses",
    manual: "
Each argument is a name and what it stands for: IP addresses, networks such as 10.0.0.1/24, Ethernet
addresses, IPv6 addresses. Wherever an address is wanted the name can be used instead. `NAME:ip`,
`NAME:ipnet`, `NAME:eth` and `NAME:ip6` say which is meant; `NAME:bcast` is the broadcast address of its
network and `NAME:gw` the network's first address. A name without a declared Ethernet address is looked up
among the devices of this machine.

Names that are given inside a compound element are known there and in compounds inside it.",
    example: "AddressInfo(here 10.0.0.1/24 00:50:ba:85:84:a9, far 10.9.0.1);\n\
        Idle -> IPEncap(udp, here, far) -> Discard;",
    ports: "0/0",
    args: &[Arg::rest("NAME", "name and addresses", "a name, and the addresses it stands for")],
    phase: Phase::Info,
    build: |arguments| {
        let texts = arguments.rest("NAME").to_vec();
        for text in &texts {
            let words = args::split_words(text);
            match words.split_first() {
                None => {}
                Some((_, [])) => return Err(ArgError::wrong("expected 'NAME [ADDRS]'")),
                Some((name, addresses)) => arguments.names_mut().define_name(name, parse_entry(addresses)?),
            }
        }
        Ok(Box::new(Info))
    },
    ..Class::DEFAULT
};

fn parse_entry(addresses: &[String]) -> Result<NameEntry, ArgError> {
    let mut entry = NameEntry::default();
    for text in addresses {
        let unreadable = || ArgError::wrong(format!("'{text}' is not a recognizable address"));
        add_address(&mut entry, text).ok_or_else(unreadable)?;
    }
    Ok(entry)
}

fn add_address(entry: &mut NameEntry, text: &str) -> Option<()> {
    if let Ok(ether) = text.parse() {
        entry.ether = Some(ether);
    } else if let Ok(address) = text.parse() {
        entry.ip = Some((address, entry.ip.and_then(|(_, len)| len)));
    } else if let Ok(prefix) = text.parse::<Ipv4Prefix>() {
        let address: Ipv4Addr = text.split('/').next()?.parse().ok()?;
        // A network without host bits does not count as an address.
        let host = (address != prefix.addr()).then_some(address).or(entry.ip.map(|(known, _)| known));
        entry.ip = Some((host.unwrap_or(address), Some(prefix.len())));
    } else {
        let (address, len) = text.split_once('/').map_or((text, None), |(a, len)| (a, Some(len)));
        let len = len.map(|len| len.parse().ok().filter(|len| *len <= 128));
        entry.ip6 = Some((address.parse().ok()?, len.map_or(Some(None), |len| len.map(Some))?));
    }
    Some(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use artery_engine::Bench;
    use artery_engine::names::Names;

    fn named(texts: &[&str]) -> Names {
        let mut names = Names::default();
        let texts: Vec<String> = texts.iter().map(|text| text.to_string()).collect();
        names.define_name("n", parse_entry(&texts).unwrap());
        names
    }

    #[test]
    fn a_name_stands_for_addresses_of_every_kind() {
        let names = named(&["10.0.0.5", "00:50:ba:85:84:a9", "10.0.0.0/24", "fe80::1/64"]);
        assert_eq!(names.lookup_ipv4("n"), Some("10.0.0.5".parse().unwrap()));
        assert_eq!(names.lookup_prefix("n:ipnet"), Some("10.0.0.0/24".parse().unwrap()));
        assert_eq!(names.lookup_ipv4("n:bcast"), Some("10.0.0.255".parse().unwrap()));
        assert_eq!(names.lookup_ether("n:eth"), Some("00:50:ba:85:84:a9".parse().unwrap()));
        assert_eq!(names.lookup_ipv6("n"), Some("fe80::1".parse().unwrap()));
    }

    #[test]
    fn one_argument_can_give_address_and_network() {
        let names = named(&["10.0.0.5/255.255.0.0"]);
        assert_eq!(names.lookup_ipv4("n"), Some("10.0.0.5".parse().unwrap()));
        assert_eq!(names.lookup_prefix("n"), Some("10.0.0.0/16".parse().unwrap()));
    }

    #[test]
    fn what_is_no_address_is_refused() {
        assert_eq!(Bench::config_error(&CLASS, "a 10.0.0"), "'10.0.0' is not a recognizable address");
        assert_eq!(Bench::config_error(&CLASS, "a fe80::/129"), "'fe80::/129' is not a recognizable address");
        assert_eq!(Bench::config_error(&CLASS, "a"), "expected 'NAME [ADDRS]'");
        Bench::new(&CLASS, "a 1.2.3.4, , b 1.2.3.4/8");
    }
}
