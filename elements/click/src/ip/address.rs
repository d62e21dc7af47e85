//! Addresses as arguments of IP elements: lists, interfaces, and a destination that may come from the packet.
use artery_engine::ArgValue;
use artery_engine::args::with_slash;
use artery_engine::names::Names;
use artery_wire::Ipv4Prefix;
use std::net::Ipv4Addr;

/// Values separated by spaces; none when the argument is not given.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct List<T>(pub(crate) Vec<T>);

impl<T: ArgValue> ArgValue for List<T> {
    const EXAMPLE: &'static str = T::EXAMPLE;
    fn parse(text: &str, names: &Names) -> Result<Self, String> {
        text.split_whitespace().map(|word| T::parse(word, names)).collect::<Result<_, _>>().map(List)
    }
    fn absent() -> Option<Self> {
        Some(List(Vec::new()))
    }
}

/// An address and the prefix it lies in: `10.1.2.3/24`, `10.1.2.3/255.255.255.0`, `10.1/16`, a bare
/// address or a name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Interface {
    pub(crate) address: Ipv4Addr,
    pub(crate) prefix: Ipv4Prefix,
}

impl Interface {
    fn new(address: Ipv4Addr, prefix: Ipv4Prefix) -> Interface {
        Interface { address, prefix }
    }
}

impl ArgValue for Interface {
    const EXAMPLE: &'static str = "192.0.2.1/24";
    fn parse(text: &str, names: &Names) -> Result<Self, String> {
        let slashed = with_slash(text, names).map(|(address, prefix)| Interface::new(address, prefix));
        let bare = || text.parse().ok().map(|address| Interface::new(address, Ipv4Prefix::host(address)));
        let named = || {
            let address = names.lookup_ipv4(text.strip_suffix(":ipnet").unwrap_or(text))?;
            Some(Interface::new(address, names.lookup_prefix(text).unwrap_or(Ipv4Prefix::host(address))))
        };
        slashed
            .or_else(bare)
            .or_else(named)
            .ok_or_else(|| "an address with its prefix, such as 10.0.0.1/8".into())
    }
}

/// The next hop of packets: one address, or the one in their destination annotation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Destination {
    Annotation,
    Fixed(Ipv4Addr),
}

impl ArgValue for Destination {
    const EXAMPLE: &'static str = "192.0.2.1";
    fn parse(text: &str, names: &Names) -> Result<Self, String> {
        if text == "DST_ANNO" {
            return Ok(Destination::Annotation);
        }
        Ipv4Addr::parse(text, names).map(Destination::Fixed).map_err(|_| "an IP address or DST_ANNO".into())
    }
}

impl std::fmt::Display for Destination {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Destination::Annotation => f.write_str("DST_ANNO"),
            Destination::Fixed(address) => address.fmt(f),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn interface(text: &str) -> Option<(String, String)> {
        let read = Interface::parse(text, &Names::default()).ok()?;
        Some((read.address.to_string(), read.prefix.to_string()))
    }

    #[test]
    fn an_interface_keeps_its_address_beside_its_prefix() {
        let pair = |a: &str, b: &str| Some((a.to_string(), b.to_string()));
        assert_eq!(interface("18.26.4.9/24"), pair("18.26.4.9", "18.26.4.0/24"));
        assert_eq!(interface("18.26.4.9/255.255.0.0"), pair("18.26.4.9", "18.26.0.0/16"));
        assert_eq!(interface("18.26.4.9"), pair("18.26.4.9", "18.26.4.9/32"));
        assert_eq!(interface("18.26.4/24"), pair("18.26.4.0", "18.26.4.0/24"));
        assert_eq!(interface("0/0"), pair("0.0.0.0", "0.0.0.0/0"));
    }

    #[test]
    fn what_is_no_interface_is_refused() {
        for text in [
            "",
            "18.26/24",
            "1.2.3.4.5/8",
            "1.2.3.4/33",
            "1.2.3.4/",
            "1.2.3.4/255.0.255.0",
            "x/8",
            "256/8",
            "1.2.3",
        ] {
            assert_eq!(interface(text), None, "{text:?}");
        }
    }

    #[test]
    fn a_list_is_read_word_by_word() {
        let read = |text| List::<Ipv4Addr>::parse(text, &Names::default());
        assert_eq!(read(" 1.2.3.4\t5.6.7.8 ").unwrap().0.len(), 2);
        assert!(read("1.2.3.4 x").is_err());
    }
}
