//! Pending packets of one worker: held, solicited for, released, or failed.
use super::pending_queue::{EnqueueOutcome, Neighbor, NextStep, PendingPacket};
use super::slow_path::{SlowPath, SlowPathContext};
use super::verdict::{EgressPlan, IngressInfo, Origin, RouterVerdict};
use super::{classify_ipv4, classify_ipv6};
use artery_engine::{DropReason, Packet};
use artery_forward::fast_path::LINK;
use artery_forward::order::ChangeMark;
use artery_l3::neighbor::Resolution;
use artery_l3::router::Tables;
use std::net::IpAddr;
use std::time::Duration;

/// How long a packet waits for a neighbor without any result.
const MOST_WAIT: Duration = Duration::from_secs(30);
/// How often control is asked again to resolve a neighbor that packets wait for.
const ASK_AGAIN: Duration = Duration::from_secs(1);
/// How often a worker checks whether neighbors of pending packets are resolved, and how much that
/// interval grows with each.
const LOOK: Duration = Duration::from_micros(200);
const LOOK_EACH: Duration = Duration::from_micros(1);

impl SlowPath {
    /// Holds a packet until its next hop is resolved, and requests that.
    pub(super) fn hold_packet(
        &mut self,
        packet: Packet,
        leave: &EgressPlan,
        came: IngressInfo,
        job: &mut SlowPathContext<'_, '_>,
    ) {
        let neighbor = (leave.decision.port, leave.next_hop);
        if !self.pending.contains(&neighbor) {
            match self.resolve_neighbor(neighbor, job) {
                Some(Resolution::Hold(_) | Resolution::Ready(_)) => {}
                Some(Resolution::Failed) => {
                    let bytes = packet.data().get(LINK..).unwrap_or_default();
                    if let RouterVerdict::Error(reply, _) = failed_verdict(bytes) {
                        self.send_icmp_error(reply, bytes, came, job);
                    }
                    return job.cx.discard(packet, DropReason::NeighborFailed);
                }
                Some(Resolution::Refused(_)) | None => {
                    return job.cx.discard(packet, DropReason::NeighborLimit);
                }
            }
        }
        if self.pending.is_empty() {
            self.shared.failures_since(&mut self.failures_seen);
            self.next_poll = job.now + LOOK;
        }
        match self.pending.enqueue_packet(neighbor, PendingPacket { packet, ingress: came }, job.now) {
            EnqueueOutcome::All => self.counters.held += 1,
            EnqueueOutcome::Replaced(oldest) => {
                self.counters.held += 1;
                job.cx.discard(oldest.packet, DropReason::NeighborUnresolved);
            }
            EnqueueOutcome::Refused(waiting) => {
                job.cx.discard(waiting.packet, DropReason::NeighborUnresolved)
            }
        }
    }

    /// Asks control to resolve a neighbor, within the rate limit.
    fn resolve_neighbor(
        &mut self,
        (port, address): Neighbor,
        job: &mut SlowPathContext<'_, '_>,
    ) -> Option<Resolution> {
        if !self.asks.try_acquire(job.now) {
            return None;
        }
        let now = job.now;
        let resolve = |tables: &mut Tables| match address {
            IpAddr::V4(address) => tables.resolve_neighbor(port, address.to_bits(), now),
            IpAddr::V6(address) => tables.resolve_neighbor(port, address.to_bits(), now),
        };
        self.change_tables(job, |tables, _, _| resolve(tables)).ok()
    }

    /// Schedules a check soon, and makes the fast path wait for it.
    pub(super) fn reset_progress(&mut self) {
        (self.seen_changes, self.next_poll) = (ChangeMark::NOTHING, Duration::ZERO);
    }

    /// Releases packets whose wait is over, if a neighbor became known or a check is due.
    pub(super) fn poll_pending(&mut self, job: &mut SlowPathContext<'_, '_>) {
        let news = job.router.reorder_guard().up_to();
        let is_time = news != self.seen_changes || job.now >= self.next_poll;
        self.seen_changes = news;
        if self.pending.is_empty() || !is_time {
            return;
        }
        self.next_poll = job.now + LOOK + LOOK_EACH * self.pending.queue_count() as u32;
        let failed = self.shared.failures_since(&mut self.failures_seen);
        for neighbor in failed {
            if self.pending.contains(&neighbor) && !job.neighbor_link(&neighbor).is_ready() {
                self.fail_pending(&neighbor, job);
            }
        }
        let ends =
            self.pending.poll_queues(job.now, |neighbor, waited, silent| match job.neighbor_link(neighbor) {
                link if link.is_ready() => NextStep::Release,
                link if link.has_failed() || waited >= MOST_WAIT => NextStep::Fail,
                _ if silent >= ASK_AGAIN => NextStep::Request,
                _ => NextStep::Wait,
            });
        for (neighbor, next) in ends {
            match next {
                NextStep::Request => {
                    if let Some(Resolution::Failed) = self.resolve_neighbor(neighbor, job) {
                        self.fail_pending(&neighbor, job);
                    }
                }
                NextStep::Release => self.release_pending(&neighbor, job),
                NextStep::Fail => self.fail_pending(&neighbor, job),
                NextStep::Wait => {}
            }
        }
    }

    /// Releases the packets to a neighbor, in the order of their arrival.
    fn release_pending(&mut self, neighbor: &Neighbor, job: &mut SlowPathContext<'_, '_>) {
        for PendingPacket { packet, ingress: came } in self.pending.release_neighbor(neighbor) {
            self.counters.released += 1;
            match (came.from, neighbor.1) {
                (Origin::Router, IpAddr::V6(to)) if to.is_unicast_link_local() => {
                    let about = IngressInfo::by_port(neighbor.0);
                    self.send_own(packet, about, job);
                }
                _ => self.handle(packet, came, job),
            }
        }
    }

    /// Drops the packets to a neighbor, with ICMP errors to their senders.
    fn fail_pending(&mut self, neighbor: &Neighbor, job: &mut SlowPathContext<'_, '_>) {
        for PendingPacket { packet, ingress: came } in self.pending.release_neighbor(neighbor) {
            let bytes = packet.data().get(LINK..).unwrap_or_default();
            if let RouterVerdict::Error(reply, _) = failed_verdict(bytes) {
                self.send_icmp_error(reply, bytes, came, job);
            }
            job.cx.discard(packet, DropReason::NeighborFailed);
        }
    }

    /// Releases packets that wait for a neighbor, before later ones to it are sent.
    pub(super) fn release_if_ready(&mut self, neighbor: Neighbor, job: &mut SlowPathContext<'_, '_>) {
        if self.pending.contains(&neighbor) && job.neighbor_link(&neighbor).is_ready() {
            self.release_pending(&neighbor, job);
        }
    }

    /// Discards what waits, at the end.
    pub(super) fn discard_all(&mut self, reason: DropReason, job: &mut SlowPathContext<'_, '_>) {
        for (_, packets) in self.pending.drain() {
            packets.into_iter().for_each(|waiting| job.cx.discard(waiting.packet, reason));
        }
    }
}

/// The verdict on a packet, from its IP header on, whose next hop's resolution failed.
fn failed_verdict(packet: &[u8]) -> RouterVerdict {
    match packet.first().map_or(0, |first| first >> 4) {
        4 => classify_ipv4::neighbor_failed(),
        _ => classify_ipv6::neighbor_failed(),
    }
}
