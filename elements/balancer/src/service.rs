//! What a balancer's packets are sent to: an address, and perhaps one port and one protocol of it.
use artery_flow::{FlowKey, Pattern};
use artery_wire::IpProtocol;
use std::fmt;
use std::net::{IpAddr, SocketAddr};
use std::str::FromStr;

/// A service that members share.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Service {
    pub(super) address: IpAddr,
    /// All of the address's if there is none.
    pub(super) port: Option<u16>,
    /// All that have ports if there is none.
    pub(super) protocol: Option<IpProtocol>,
}

impl Service {
    /// The format of SERVICE, for error messages.
    pub(super) const WANTS: &str = "ADDRESS[:PORT] [tcp|udp], such as 192.0.2.1:80 tcp";

    /// Whether a packet of this protocol to this address and port is for the service.
    pub(super) fn is_at(&self, address: IpAddr, port: u16, protocol: IpProtocol) -> bool {
        self.address == address
            && self.port.is_none_or(|own| own == port)
            && self.protocol.is_none_or(|own| own == protocol)
    }
    /// What the keys of its flows have in common, if they are of its family.
    pub(super) fn key_pattern<K: FlowKey>(&self) -> Option<Pattern<K>> {
        K::destination_pattern(self.address, self.port, self.protocol)
    }
    /// Whether it serves TCP connections.
    pub(super) fn takes_tcp(&self) -> bool {
        self.protocol.is_none_or(|own| own == IpProtocol::TCP)
    }
    /// Whether a packet could match both services.
    pub(super) fn overlaps_with(&self, other: &Service) -> bool {
        fn is_alike<T: PartialEq>(one: Option<T>, other: Option<T>) -> bool {
            one.is_none() || other.is_none() || one == other
        }
        self.address == other.address
            && is_alike(self.port, other.port)
            && is_alike(self.protocol, other.protocol)
    }
}

impl FromStr for Service {
    type Err = &'static str;

    fn from_str(text: &str) -> Result<Service, &'static str> {
        let mut words = text.split_whitespace();
        let place = words.next().ok_or(Service::WANTS)?;
        let (address, port): (IpAddr, _) = match place.parse::<SocketAddr>() {
            Ok(both) if both.port() > 0 => (both.ip(), Some(both.port())),
            Ok(_) => return Err("a port from 1 to 65535"),
            Err(_) => (place.parse().map_err(|_| Service::WANTS)?, None),
        };
        if address.is_loopback() || address.is_unspecified() {
            return Err("an address that packets can be sent to from elsewhere");
        }
        let protocol = match words.next() {
            None => None,
            Some("tcp") => Some(IpProtocol::TCP),
            Some("udp") => Some(IpProtocol::UDP),
            Some(_) => return Err(Service::WANTS),
        };
        if words.next().is_none() { Ok(Service { address, port, protocol }) } else { Err(Service::WANTS) }
    }
}

impl fmt::Display for Service {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.port {
            Some(port) => SocketAddr::new(self.address, port).fmt(f)?,
            None => self.address.fmt(f)?,
        }
        match self.protocol {
            Some(IpProtocol::TCP) => f.write_str(" tcp"),
            Some(_) => f.write_str(" udp"),
            None => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn service(text: &str) -> Service {
        text.parse().unwrap_or_else(|why| panic!("{text}: {why}"))
    }

    #[test]
    fn what_is_written_is_read_again_and_nonsense_is_refused() {
        for text in ["192.0.2.1", "192.0.2.1:80", "192.0.2.1:53 udp", "2001:db8::1", "[2001:db8::1]:443 tcp"]
        {
            assert_eq!(service(text).to_string(), text);
        }
        for text in [
            "",
            "host",
            "192.0.2.1:0",
            "192.0.2.1:80 icmp",
            "192.0.2.1 tcp 80",
            "192.0.2.1:99999",
            "127.0.0.1:80",
            "[::]:80",
        ] {
            assert!(text.parse::<Service>().is_err(), "{text}");
        }
    }

    #[test]
    fn a_packet_is_for_a_service_by_what_the_service_says() {
        let (address, other) = ("192.0.2.1".parse().unwrap(), "192.0.2.2".parse().unwrap());
        let web = service("192.0.2.1:80 tcp");
        assert!(web.is_at(address, 80, IpProtocol::TCP));
        assert!(!web.is_at(address, 80, IpProtocol::UDP) && !web.is_at(address, 81, IpProtocol::TCP));
        assert!(!web.is_at(other, 80, IpProtocol::TCP));
        assert!(service("192.0.2.1").is_at(address, 7, IpProtocol::UDP));
        assert!(web.overlaps_with(&service("192.0.2.1")) && web.overlaps_with(&service("192.0.2.1:80")));
        assert!(!web.overlaps_with(&service("192.0.2.1:80 udp")));
        assert!(!web.overlaps_with(&service("192.0.2.1:81")));
    }
}
