//! ICMP redirects: which senders get one, and how (RFC 1812 section 5.2.7.2, RFC 4861 section 8.2).
use super::icmp::{self, IcmpSource};
use super::verdict::{EgressPlan, IcmpReply, IngressInfo};
use artery_forward::fast_path::LINK;
use artery_forward::flow;
use artery_wire::nd::{self, LinkEndpoint};
use artery_wire::{EtherAddr, Ethernet, IcmpError};
use std::net::{IpAddr, Ipv6Addr};

/// A redirect that may be sent.
pub(super) enum Redirect {
    /// An ICMP message, to be routed.
    V4(icmp::IcmpErrorMessage),
    /// A frame: from the link-local address, to the MAC address that sent the other one.
    V6(NdRedirect),
}

/// A Neighbor Discovery redirect, with its source and destination.
pub(super) struct NdRedirect {
    from: LinkEndpoint<Ipv6Addr>,
    to: LinkEndpoint<Ipv6Addr>,
    better: Ipv6Addr,
    link: Option<EtherAddr>,
}

/// The redirect for the sender of a frame, if one is due and may be sent.
pub(super) fn build_redirect(
    frame: &[u8],
    leave: &EgressPlan,
    came: IngressInfo,
    from: IcmpSource<'_>,
) -> Option<Redirect> {
    match leave.redirect? {
        IpAddr::V4(better) => {
            let reply = IcmpReply::V4(IcmpError::redirect(better));
            icmp::build_error(reply, frame.get(LINK..)?, came.to.is_many(), from).ok().map(Redirect::V4)
        }
        IpAddr::V6(better) => redirect_v6(frame, better, leave, from).map(Redirect::V6),
    }
}

fn redirect_v6(
    frame: &[u8],
    better: Ipv6Addr,
    leave: &EgressPlan,
    from: IcmpSource<'_>,
) -> Option<NdRedirect> {
    let (id, port) = from.ingress_port()?;
    let (IpAddr::V6(sender), _) = flow::source_and_destination(frame.get(LINK..)?)? else { return None };
    let own = port.link_local.into();
    (from.is_usable)(id, IpAddr::V6(own)).then_some(NdRedirect {
        from: LinkEndpoint { ether: port.address, ip: own },
        to: LinkEndpoint { ether: Ethernet::new(frame).ok()?.src(), ip: sender },
        better,
        link: leave.decision.link.address(),
    })
}

impl Redirect {
    /// The destination address of the redirect.
    pub(super) fn destination(&self) -> IpAddr {
        match self {
            Redirect::V4(error) => error.destination(),
            Redirect::V6(frame) => frame.to.ip.into(),
        }
    }
}

impl NdRedirect {
    /// Its bytes; `about` is the packet that leaves, from its IP header on.
    pub(super) fn to_bytes(&self, about: &[u8]) -> Option<Vec<u8>> {
        nd::redirect(self.from, self.to, self.better, self.link, about).ok()
    }
}
