//! Whom the router tells of a better first hop, and how (RFC 1812 section 5.2.7.2, RFC 4861 section 8.2).
use super::icmp::{self, Speaker};
use super::slow::LINK;
use super::verdict::{Came, Leave, Told};
use artery_wire::nd::{self, Station};
use artery_wire::{EtherAddr, Ethernet, IcmpError};
use std::net::{IpAddr, Ipv6Addr};

/// A redirect that may be sent.
pub(super) enum Redirect {
    /// A packet.
    V4(icmp::Error),
    /// A frame: from the link-local address, to the station that sent the other one.
    V6(Frame),
}

/// What a redirect of Neighbor Discovery says, between whom.
pub(super) struct Frame {
    from: Station<Ipv6Addr>,
    to: Station<Ipv6Addr>,
    better: Ipv6Addr,
    link: Option<EtherAddr>,
}

/// What the sender of a frame that leaves so is told, if there is something and it may be said.
pub(super) fn redirect(frame: &[u8], leave: &Leave, came: Came, from: Speaker<'_>) -> Option<Redirect> {
    match leave.redirect? {
        IpAddr::V4(better) => {
            let told = Told::V4(IcmpError::redirect(better));
            icmp::error(told, frame.get(LINK..)?, came.to.is_many(), from).ok().map(Redirect::V4)
        }
        IpAddr::V6(better) => redirect_v6(frame, better, leave, from).map(Redirect::V6),
    }
}

fn redirect_v6(frame: &[u8], better: Ipv6Addr, leave: &Leave, from: Speaker<'_>) -> Option<Frame> {
    let (id, port) = from.port()?;
    let (IpAddr::V6(sender), _) = icmp::ends(frame.get(LINK..)?)? else { return None };
    let own = port.link_local.into();
    (from.is_usable)(id, IpAddr::V6(own)).then_some(Frame {
        from: Station { ether: port.address, ip: own },
        to: Station { ether: Ethernet::new(frame).ok()?.src(), ip: sender },
        better,
        link: leave.decision.link.address(),
    })
}

impl Redirect {
    /// To whom it goes.
    pub(super) fn to(&self) -> IpAddr {
        match self {
            Redirect::V4(error) => error.to(),
            Redirect::V6(frame) => frame.to.ip.into(),
        }
    }
}

impl Frame {
    /// Its bytes; `about` is the packet that leaves, from its IP header on.
    pub(super) fn bytes(&self, about: &[u8]) -> Option<Vec<u8>> {
        nd::redirect(self.from, self.to, self.better, self.link, about).ok()
    }
}
