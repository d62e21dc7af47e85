//! An address that a fleet's machines serve, and that is announced.

use std::net::IpAddr;

/// An address, and the length of the prefix that is announced.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) struct ServiceAddress {
    pub(crate) address: IpAddr,
    pub(crate) len: u8,
}

impl ServiceAddress {
    /// Reads `ADDRESS/LENGTH`, of an address that hosts may have.
    pub(crate) fn parse(text: &str) -> Option<ServiceAddress> {
        let (address, len) = text.split_once('/')?;
        let (address, len) = (address.parse::<IpAddr>().ok()?, len.parse().ok()?);
        let bits = if address.is_ipv4() { 32 } else { 128 };
        let is_host = !address.is_unspecified() && !address.is_multicast() && !address.is_loopback();
        (is_host && (1..=bits).contains(&len)).then_some(ServiceAddress { address, len })
    }
}

impl std::fmt::Display for ServiceAddress {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}/{}", self.address, self.len)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_of_services_have_a_length() {
        for text in ["192.0.2.1/32", "192.0.2.1/24", "2001:db8::1/128"] {
            assert_eq!(ServiceAddress::parse(text).unwrap().to_string(), text);
        }
    }

    #[test]
    fn addresses_that_a_service_cannot_have_are_refused() {
        for text in [
            "192.0.2.1",
            "192.0.2.1/33",
            "192.0.2.1/0",
            "192.0.2/24",
            "2001:db8::1/129",
            "0.0.0.0/32",
            "224.0.0.1/32",
            "ff02::1/128",
            "127.0.0.2/32",
            "::1/128",
            "",
            "/",
        ] {
            assert_eq!(ServiceAddress::parse(text), None, "{text}");
        }
    }
}
