//! A packet that is judged: what its judgement goes by, and the steps that are alike in both families.
use super::verdict::{Came, FlowOf, Leave, Station, Told, Verdict, View};
use artery_engine::DropReason;
use artery_table::path::{Explained, Outcome, PathReader};
use artery_table::router::{Ip, PortView, ReversePath};
use std::net::IpAddr;

/// A packet of a family and all that it is judged by.
pub(super) struct Case<'a, A: Ip> {
    /// From its IP header on.
    pub(super) packet: &'a [u8],
    /// No link carries more of it at once.
    pub(super) longest: usize,
    pub(super) came: Came,
    pub(super) view: &'a View<'a>,
    /// Decides about its destination.
    pub(super) path: &'a PathReader<A>,
}

/// A packet that ends is the exception on each step: then this is its verdict, or only why.
pub(super) type Judged<T = Verdict> = Result<T, Verdict>;
pub(super) type Checked<T = ()> = Result<T, DropReason>;

/// It ends, and nobody is told.
pub(super) fn end<T>(reason: DropReason) -> Judged<T> {
    Err(Verdict::Discard(reason))
}
/// It ends, and its sender is told.
pub(super) fn tell<T>(told: Told, reason: DropReason) -> Judged<T> {
    Err(Verdict::Error(told, reason))
}

impl From<DropReason> for Verdict {
    fn from(reason: DropReason) -> Verdict {
        Verdict::Discard(reason)
    }
}

/// What a sender is told of a destination that no route leads to, that a route rejects, and that one forbids.
pub(super) struct Refusals {
    pub(super) no_route: Told,
    pub(super) rejected: Told,
    pub(super) prohibited: Told,
}

impl<'a, A: Ip> Case<'a, A> {
    /// What the tables say of the destination.
    pub(super) fn find(&self, destination: A, flow: FlowOf<'_>) -> Explained {
        self.path.explain(self.view.turn, destination, flow)
    }

    /// Whether it is from outside, not made or sent by ourselves.
    pub(super) fn is_from_outside(&self) -> bool {
        self.came.from.port().is_some()
    }

    /// The port that received it.
    pub(super) fn port(&self) -> Option<&'a PortView> {
        self.came.from.port().and_then(|port| self.view.port(port))
    }

    /// Refuses what another station got by the link's mistake (RFC 1812 section 5.3.4).
    pub(super) fn check_station(&self) -> Checked {
        if self.came.to == Station::Other { Err(DropReason::OtherStation) } else { Ok(()) }
    }

    /// Refuses what came in a frame for more than one: it goes no further, and is not for the router's own addresses.
    pub(super) fn check_frame(&self) -> Checked {
        if self.came.to.is_many() { Err(DropReason::Broadcast) } else { Ok(()) }
    }

    /// Refuses sources that packets by the port which received this one may not have (RFC 3704).
    pub(super) fn check_reverse_path(&self, source: A) -> Checked {
        let Some(came_by) = self.came.from.port() else { return Ok(()) };
        let port = self.port().ok_or(DropReason::PortDown)?;
        let leads = match port.settings.rpf {
            ReversePath::Off => true,
            ReversePath::Loose => self.path.leads_by(self.view.turn, source, None),
            ReversePath::Strict => self.path.leads_by(self.view.turn, source, Some(came_by)),
        };
        if leads { Ok(()) } else { Err(DropReason::ReversePath) }
    }

    /// Where the tables say that it goes no further.
    pub(super) fn refuse(&self, outcome: Outcome, told: &Refusals) -> Judged {
        self.check_frame()?;
        match outcome {
            Outcome::NoRoute => tell(told.no_route, DropReason::NoRoute),
            Outcome::Unreachable => tell(told.rejected, DropReason::Unreachable),
            Outcome::Prohibited => tell(told.prohibited, DropReason::Prohibited),
            Outcome::PortDown => tell(told.no_route, DropReason::PortDown),
            Outcome::NextHopDown => tell(told.no_route, DropReason::NextHopDown),
            Outcome::LinkLocal => end(DropReason::LinkLocal),
            Outcome::Blackhole => end(DropReason::Blackhole),
            _ => end(DropReason::Martian),
        }
    }

    /// The port that it leaves by as it came, if senders there are told of better first hops. What is led goes by other
    /// ways than its destination says, of which no sender is told.
    pub(super) fn turns_back_at(&self, found: &Explained) -> Option<&'a PortView> {
        let turns_back = self.came.from.port() == Some(found.decision.port) && self.came.towards.is_none();
        self.port().filter(|port| turns_back && port.settings.redirects)
    }

    /// It leaves as the tables say, unless its neighbor was asked for in vain, of which `failed` tells.
    pub(super) fn go(
        &self,
        found: &Explained,
        next_hop: IpAddr,
        is_cut: bool,
        redirect: Option<IpAddr>,
        failed: impl FnOnce() -> Verdict,
    ) -> Verdict {
        let (decision, is_hop) = (found.decision, self.is_from_outside());
        let leave = Leave { decision, next_hop, is_hop, is_cut, redirect };
        match decision.outcome {
            Outcome::Forward => Verdict::Forward(leave),
            Outcome::Failed => failed(),
            _ => Verdict::Hold(leave),
        }
    }
}
