//! The context in which a packet is classified, and the steps that both families share.
use super::verdict::{
    EgressPlan, FlowOf, IcmpReply, IngressInfo, LinkDestination, RouterVerdict, TablesView,
};
use artery_engine::DropReason;
use artery_l3::path::{Explained, Outcome, PathReader};
use artery_l3::router::{Ip, PortView, ReversePath};
use std::net::IpAddr;

/// A packet of a family and everything that its verdict depends on.
pub(super) struct PacketContext<'a, A: Ip> {
    /// From its IP header on.
    pub(super) packet: &'a [u8],
    /// No link carries more of it at once.
    pub(super) longest: usize,
    pub(super) ingress: IngressInfo,
    pub(super) view: &'a TablesView<'a>,
    /// Decides about its destination.
    pub(super) path: &'a PathReader<A>,
}

/// The result of each step: a packet that ends is the error case, with its verdict or only the reason.
pub(super) type Classified<T = RouterVerdict> = Result<T, RouterVerdict>;
pub(super) type Checked<T = ()> = Result<T, DropReason>;

/// Discards the packet without an ICMP error.
pub(super) fn drop_with<T>(reason: DropReason) -> Classified<T> {
    Err(RouterVerdict::Discard(reason))
}
/// Discards the packet and sends an ICMP error to its sender.
pub(super) fn reject_with<T>(reply: IcmpReply, reason: DropReason) -> Classified<T> {
    Err(RouterVerdict::Error(reply, reason))
}

impl From<DropReason> for RouterVerdict {
    fn from(reason: DropReason) -> RouterVerdict {
        RouterVerdict::Discard(reason)
    }
}

/// The ICMP errors for destinations without a route, with a route that rejects, and with one that prohibits.
pub(super) struct RouteErrors {
    pub(super) no_route: IcmpReply,
    pub(super) rejected: IcmpReply,
    pub(super) prohibited: IcmpReply,
}

impl<'a, A: Ip> PacketContext<'a, A> {
    /// Looks up the destination in the tables.
    pub(super) fn lookup_route(&self, destination: A, flow: FlowOf<'_>) -> Explained {
        self.path.explain_path(self.view.turn, destination, flow)
    }

    /// Whether a port received it; false for packets of the host and the router itself.
    pub(super) fn is_from_outside(&self) -> bool {
        self.ingress.from.port().is_some()
    }

    /// The port that received it.
    pub(super) fn ingress_port(&self) -> Option<&'a PortView> {
        self.ingress.from.port().and_then(|port| self.view.port(port))
    }

    /// Discards frames for another MAC address, which the link delivered by mistake (RFC 1812 section 5.3.4).
    pub(super) fn check_destination_mac(&self) -> Checked {
        if self.ingress.to == LinkDestination::Other { Err(DropReason::OtherStation) } else { Ok(()) }
    }

    /// Refuses link broadcasts and multicasts: they are not forwarded, and not accepted for
    /// the router's own addresses.
    pub(super) fn check_frame(&self) -> Checked {
        if self.ingress.to.is_many() { Err(DropReason::Broadcast) } else { Ok(()) }
    }

    /// Refuses sources that packets by the port which received this one may not have (RFC 3704).
    pub(super) fn check_reverse_path(&self, source: A) -> Checked {
        let Some(came_by) = self.ingress.from.port() else { return Ok(()) };
        let port = self.ingress_port().ok_or(DropReason::PortDown)?;
        let leads = match port.settings.rpf {
            ReversePath::Off => true,
            ReversePath::Loose => self.path.leads_by(self.view.turn, source, None),
            ReversePath::Strict => self.path.leads_by(self.view.turn, source, Some(came_by)),
        };
        if leads { Ok(()) } else { Err(DropReason::ReversePath) }
    }

    /// The verdict for an outcome of the tables that does not forward.
    pub(super) fn refuse_route(&self, outcome: Outcome, errors: &RouteErrors) -> Classified {
        self.check_frame()?;
        match outcome {
            Outcome::NoRoute => reject_with(errors.no_route, DropReason::NoRoute),
            Outcome::Unreachable => reject_with(errors.rejected, DropReason::Unreachable),
            Outcome::Prohibited => reject_with(errors.prohibited, DropReason::Prohibited),
            Outcome::PortDown => reject_with(errors.no_route, DropReason::PortDown),
            Outcome::NextHopDown => reject_with(errors.no_route, DropReason::NextHopDown),
            Outcome::LinkLocal => drop_with(DropReason::LinkLocal),
            Outcome::Blackhole => drop_with(DropReason::Blackhole),
            _ => drop_with(DropReason::Martian),
        }
    }

    /// The ingress port, if the packet leaves by it again and senders there get ICMP redirects. A packet
    /// redirected by its annotation does not leave where its destination says, so its sender gets none.
    pub(super) fn redirect_port(&self, found: &Explained) -> Option<&'a PortView> {
        let turns_back =
            self.ingress.from.port() == Some(found.decision.port) && self.ingress.redirected_to.is_none();
        self.ingress_port().filter(|port| turns_back && port.settings.redirects)
    }

    /// Forwards the packet as the tables say, or holds it until its neighbor is resolved. `failed` gives the
    /// verdict if that has failed.
    pub(super) fn forward_or_hold(
        &self,
        found: &Explained,
        next_hop: IpAddr,
        is_cut: bool,
        redirect: Option<IpAddr>,
        failed: impl FnOnce() -> RouterVerdict,
    ) -> RouterVerdict {
        let (decision, is_hop) = (found.decision, self.is_from_outside());
        let leave = EgressPlan { decision, next_hop, is_hop, is_cut, redirect };
        match decision.outcome {
            Outcome::Forward => RouterVerdict::Forward(leave),
            Outcome::Failed => failed(),
            _ => RouterVerdict::Hold(leave),
        }
    }
}
