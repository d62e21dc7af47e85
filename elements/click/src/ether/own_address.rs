//! The address that an element has on its network.
use artery_engine::ArgValue;
use artery_engine::names::Names;
use artery_wire::Ipv4Prefix;
use std::net::Ipv4Addr;

/// An address, and the network it is on when that was given.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct OwnAddress {
    pub(crate) ip: Ipv4Addr,
    pub(crate) network: Ipv4Prefix,
}

impl OwnAddress {
    /// The address of all hosts on the network, where there is one.
    pub(crate) fn broadcast(self) -> Option<Ipv4Addr> {
        Some(self.network.last()).filter(|last| *last != self.ip)
    }
}

impl ArgValue for OwnAddress {
    const EXAMPLE: &'static str = "192.0.2.1/24";
    fn parse(text: &str, names: &Names) -> Result<OwnAddress, String> {
        if let Some((address, _)) = text.rsplit_once('/') {
            let network = <Ipv4Prefix as ArgValue>::parse(text, names)?;
            return Ok(OwnAddress { ip: <Ipv4Addr as ArgValue>::parse(address, names)?, network });
        }
        let ip = <Ipv4Addr as ArgValue>::parse(text, names)?;
        Ok(OwnAddress { ip, network: Ipv4Prefix::host(ip) })
    }
}
