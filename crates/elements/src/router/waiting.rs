//! Packets that wait for a neighbor, of one worker: kept, asked for, let go, or given up.
use super::held::{Kept, Neighbor, Next};
use super::order::UpTo;
use super::slow::{Job, LINK, Slow};
use super::verdict::{Came, Leave, Origin, Verdict, View};
use super::{judge4, judge6};
use artery_engine::{DropReason, Packet};
use artery_table::neighbor::{Link, Resolution};
use artery_table::router::Tables;
use std::net::IpAddr;
use std::time::Duration;

/// How long a packet waits for a neighbor of which nothing is heard, neither good nor bad.
const MOST_WAIT: Duration = Duration::from_secs(30);
/// How often control is told that packets wait.
const ASK_AGAIN: Duration = Duration::from_secs(1);
/// How often a worker looks whether those for whom packets wait have answered, and how much longer it takes for each.
const LOOK: Duration = Duration::from_micros(200);
const LOOK_EACH: Duration = Duration::from_micros(1);

/// A packet that waits, and how it came.
pub(super) struct Waiting {
    pub(super) packet: Packet,
    pub(super) came: Came,
}

impl Slow {
    /// Lets a packet wait for its next hop, and has that asked for.
    pub(super) fn hold(&mut self, packet: Packet, leave: &Leave, came: Came, job: &mut Job<'_, '_>) {
        let neighbor = (leave.decision.port, leave.next_hop);
        if !self.held.has(&neighbor) {
            match self.resolve(neighbor, job) {
                Some(Resolution::Hold(_) | Resolution::Ready(_)) => {}
                Some(Resolution::Failed) => {
                    let bytes = packet.data().get(LINK..).unwrap_or_default();
                    if let Verdict::Error(told, _) = failed(bytes) {
                        self.tell(told, bytes, came, job);
                    }
                    return job.cx.discard(packet, DropReason::NeighborFailed);
                }
                Some(Resolution::Refused(_)) | None => {
                    return job.cx.discard(packet, DropReason::NeighborLimit);
                }
            }
        }
        if self.held.is_empty() {
            self.together.failures(&mut self.failures_seen);
            self.next_look = job.now + LOOK;
        }
        match self.held.hold(neighbor, Waiting { packet, came }, job.now) {
            Kept::All => self.counters.held += 1,
            Kept::InsteadOf(oldest) => {
                self.counters.held += 1;
                job.cx.discard(oldest.packet, DropReason::NeighborUnresolved);
            }
            Kept::Refused(waiting) => job.cx.discard(waiting.packet, DropReason::NeighborUnresolved),
        }
    }

    /// Has a neighbor asked for, unless there were too many of late.
    fn resolve(&mut self, (port, address): Neighbor, job: &mut Job<'_, '_>) -> Option<Resolution> {
        if !self.asks.take(job.now) {
            return None;
        }
        let now = job.now;
        let resolve = |tables: &mut Tables| match address {
            IpAddr::V4(address) => tables.resolve(port, address.to_bits(), now),
            IpAddr::V6(address) => tables.resolve(port, address.to_bits(), now),
        };
        self.change(job, |tables, _, _| resolve(tables)).ok()
    }

    /// Has it looked soon, and the fast path wait for that.
    pub(super) fn has_heard_nothing(&mut self) {
        (self.heard, self.next_look) = (UpTo::NOTHING, Duration::ZERO);
    }

    /// Lets packets go whose wait is over, if a neighbor became known or it is time to look.
    pub(super) fn look(&mut self, job: &mut Job<'_, '_>) {
        let news = job.router.order().up_to();
        let is_time = news != self.heard || job.now >= self.next_look;
        self.heard = news;
        if self.held.is_empty() || !is_time {
            return;
        }
        self.next_look = job.now + LOOK + LOOK_EACH * self.held.queues() as u32;
        let failed = self.together.failures(&mut self.failures_seen);
        for neighbor in failed {
            if self.held.has(&neighbor) && !job.link(&neighbor).is_ready() {
                self.fail(&neighbor, job);
            }
        }
        let ends = self.held.look(job.now, |neighbor, waited, silent| match job.link(neighbor) {
            link if link.is_ready() => Next::Go,
            link if link.has_failed() || waited >= MOST_WAIT => Next::Fail,
            _ if silent >= ASK_AGAIN => Next::Ask,
            _ => Next::Wait,
        });
        for (neighbor, next) in ends {
            match next {
                Next::Ask => {
                    if let Some(Resolution::Failed) = self.resolve(neighbor, job) {
                        self.fail(&neighbor, job);
                    }
                }
                Next::Go => self.release(&neighbor, job),
                Next::Fail => self.fail(&neighbor, job),
                Next::Wait => {}
            }
        }
    }

    /// Lets packets to a neighbor go, in the order in which they came.
    fn release(&mut self, neighbor: &Neighbor, job: &mut Job<'_, '_>) {
        for Waiting { packet, came } in self.held.release(neighbor) {
            self.counters.released += 1;
            match (came.from, neighbor.1) {
                (Origin::Router, IpAddr::V6(to)) if to.is_unicast_link_local() => {
                    let about = Came::by(neighbor.0);
                    self.send_own(packet, about, job);
                }
                _ => self.deal(packet, came, job),
            }
        }
    }

    /// Gives packets to a neighbor up, and tells their senders.
    fn fail(&mut self, neighbor: &Neighbor, job: &mut Job<'_, '_>) {
        for Waiting { packet, came } in self.held.release(neighbor) {
            let bytes = packet.data().get(LINK..).unwrap_or_default();
            if let Verdict::Error(told, _) = failed(bytes) {
                self.tell(told, bytes, came, job);
            }
            job.cx.discard(packet, DropReason::NeighborFailed);
        }
    }

    /// Lets packets go that wait for a neighbor, before others to it do.
    pub(super) fn let_go(&mut self, neighbor: Neighbor, job: &mut Job<'_, '_>) {
        if self.held.has(&neighbor) && job.link(&neighbor).is_ready() {
            self.release(&neighbor, job);
        }
    }

    /// Discards what waits, at the end.
    pub(super) fn discard_all(&mut self, reason: DropReason, job: &mut Job<'_, '_>) {
        for (_, packets) in self.held.drain() {
            packets.into_iter().for_each(|waiting| job.cx.discard(waiting.packet, reason));
        }
    }
}

/// What is known of a neighbor.
pub(super) fn link((port, address): &Neighbor, view: &View<'_>) -> Link {
    let View { v4, v6, turn, .. } = view;
    match address {
        IpAddr::V4(address) => v4.neighbor(turn, *port, address.to_bits()).map(|id| v4.link(id)),
        IpAddr::V6(address) => v6.neighbor(turn, *port, address.to_bits()).map(|id| v6.link(id)),
    }
    .unwrap_or(Link::UNKNOWN)
}

/// What becomes of a packet, from its IP header on, whose next hop was asked for in vain.
fn failed(packet: &[u8]) -> Verdict {
    match packet.first().map_or(0, |first| first >> 4) {
        4 => judge4::failed(),
        _ => judge6::failed(),
    }
}
