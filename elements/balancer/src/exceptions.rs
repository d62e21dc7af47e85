//! Flows that are not where the table of members puts them, for those who mirror a balancer.
//!
//! Balancers with the same members choose the same one for a flow where the method is pure, so that only
//! those flows must be mirrored that keep a member which the table does not give them any more: after a
//! member was added or drained, or its weight or health changed. A flow whose member is gone is none of them:
//! its next packet gives it the table's, on any machine. Where other machines may choose by another table, or
//! will by a planned change, those flows count, too, that are where this one puts them and not where that
//! does.
//!
//! A flow that clients know of is marked in the flow table. What changes a single flow compares it at
//! once; after a change of members a walk compares them all, a few at a time, and waits while clients have
//! much to read. An export records no events: where it is ahead of the walk, it marks the flow, and has the
//! walk report all again. So a change that makes exceptions of all flows loses no events, whatever clients
//! export meanwhile, and takes no memory but the queue's.
use super::event_queue::{EventQueue, RecentEvents};
use super::placement::Placement;
use artery_flow::balance::Choice;
use artery_flow::stream::{AnyKey, ExceptionEnd, ExceptionKind, StreamFlow, with_key};
use artery_flow::{
    Answer, Flow4, Flow6, FlowCursor, FlowEnd, FlowId, FlowKey, FlowSnapshot, FlowTable, FlowView, Tick,
};
use std::sync::Arc;
use std::time::Duration;

/// Flows that one step of the walk compares.
pub(super) const STEP: usize = 512;
/// Unread events with which the walk waits: far fewer than the queue holds, since packets cause others.
const UNREAD: u64 = 16_384;

/// What clients read about an exception.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum ExceptionEvent {
    /// It exists, as it was at this time; its action means nothing.
    Exists { what: ExceptionKind, flow: StreamFlow, member: Arc<str>, at: Duration },
    /// It is none any more: the flow has ended for this reason, or without one it is where the table puts it,
    /// or will be with its next packet.
    Ended(ExceptionEnd),
}

#[derive(Default)]
pub(super) struct Exceptions {
    queue: EventQueue<ExceptionEvent>,
    walks: [Walk; 2],
    /// The choice that all flows were compared with, or are being.
    generation: u32,
}

/// The index of a family's walk.
fn family_of<K: FlowKey>() -> usize {
    usize::from(K::WORDS != Flow4::WORDS)
}

/// A walk over the flows of a family, round and round while members change.
#[derive(Clone, Copy, Default)]
struct Walk {
    at: u32,
    /// Where it ends, if it is under way.
    until: Option<u32>,
    has_wrapped: bool,
    /// Whether exceptions are reported again that are marked: clients may not have read of them.
    reports_again: bool,
}

impl Exceptions {
    /// Whether events are recorded.
    #[inline(always)]
    pub(super) fn is_on(&self) -> bool {
        self.queue.is_on()
    }

    /// [Reads events](EventQueue::read_events) for a client, which has them recorded from now on.
    pub(super) fn read_events(
        &mut self,
        since: Option<u64>,
        most: usize,
        now: Duration,
    ) -> RecentEvents<'_, ExceptionEvent> {
        if !self.is_on() {
            self.begin_first_walk();
        }
        self.queue.read_events(since, most, now)
    }

    /// The number of the next event.
    pub(super) fn next_number(&self) -> u64 {
        self.queue.next_number()
    }

    /// Stops recording if events have not been read for long.
    pub(super) fn stop_if_idle(&mut self, now: Duration) {
        self.queue.stop_if_idle(now);
    }

    /// Starts again with a table of flows in which none is marked.
    pub(super) fn restart(&mut self) {
        if self.is_on() {
            self.queue.lose_events();
            self.begin_first_walk();
        }
    }

    /// Whether events are recorded, and all flows were compared with the members of this generation.
    pub(super) fn has_compared_all(&self, generation: u32) -> bool {
        self.is_on() && self.generation == generation && self.walks.iter().all(|walk| walk.until.is_none())
    }

    fn begin_first_walk(&mut self) {
        self.walks = [Walk { until: Some(0), reports_again: true, ..Walk::default() }; 2];
    }

    /// Compares some flows if the members have changed; returns whether it goes on at once.
    pub(super) fn walk_flows(
        &mut self,
        v4: &Option<FlowTable<Flow4>>,
        v6: &Option<FlowTable<Flow6>>,
        placement: Placement<'_>,
        now: Duration,
    ) -> bool {
        if !self.is_on() {
            return false;
        }
        if !placement.choice.method().is_pure() {
            self.queue.stop();
            return false;
        }
        if self.generation != placement.choice.generation() {
            self.generation = placement.choice.generation();
            self.walks.iter_mut().for_each(Walk::restart_round);
        }
        if self.queue.unread_count() > UNREAD {
            return false;
        }
        let is_under_way = |walk: &Walk| walk.until.is_some();
        match self.walks.iter().position(is_under_way) {
            None => return false,
            Some(0) => self.walk_some(v4, placement, now),
            Some(_) => self.walk_some(v6, placement, now),
        }
        self.walks.iter().any(is_under_way)
    }

    fn walk_some<K: FlowKey>(
        &mut self,
        flows: &Option<FlowTable<K>>,
        placement: Placement<'_>,
        now: Duration,
    ) {
        let family = family_of::<K>();
        let mut walk = self.walks[family];
        let next = flows.as_ref().and_then(|flows| {
            flows.walk_flows(FlowCursor::from_number(walk.at), STEP, |flow| {
                self.compare(flows, &flow, walk.reports_again, placement, now);
            })
        });
        walk.advance(next);
        self.walks[family] = walk;
    }

    /// Compares a flow, and reports it if it has become an exception or ceased to be one. With
    /// `reports_again` also if it is one as before.
    fn compare<K: FlowKey>(
        &mut self,
        flows: &FlowTable<K>,
        flow: &FlowView<'_, K>,
        reports_again: bool,
        placement: Placement<'_>,
        now: Duration,
    ) {
        let (is_exception, was_reported) = (placement.is_exception(flow), flow.is_marked());
        if is_exception != was_reported {
            flows.mark_flow(flow.id(), is_exception);
        }
        if is_exception && (!was_reported || reports_again) {
            let what = if flow.is_imported() { ExceptionKind::Import } else { ExceptionKind::Insert };
            self.push_flow(flow, what, placement.choice, now);
        } else if was_reported && !is_exception {
            let (key, is_imported) = (AnyKey::from_key(&flow.key()), flow.is_imported());
            let end = ExceptionEnd { key, reason: None, is_imported, epoch: flow.epoch() };
            self.queue.push(ExceptionEvent::Ended(end));
        }
    }

    /// Whether a flow that an export has come to is an exception. One is marked, so that events of it follow.
    pub(super) fn check_exported<K: FlowKey>(
        &mut self,
        flows: &FlowTable<K>,
        flow: &FlowView<'_, K>,
        placement: Placement<'_>,
    ) -> bool {
        let is_exception = placement.is_exception(flow);
        if self.is_on() && is_exception != flow.is_marked() {
            if is_exception {
                flows.mark_flow(flow.id(), true);
            }
            // The walk has not come to this flow yet. An event for each would overflow the queue, since an
            // export does not wait for those who read.
            self.walks[family_of::<K>()].report_again();
        }
        is_exception
    }

    /// Compares a flow that has another member now, or was imported.
    #[cold]
    pub(super) fn compare_changed<K: FlowKey>(
        &mut self,
        flows: &FlowTable<K>,
        id: FlowId,
        placement: Placement<'_>,
        now: Duration,
    ) {
        if let Some(flow) = flows.get(id).filter(|_| self.is_on()) {
            self.compare(flows, &flow, true, placement, now);
        }
    }

    /// Records what a packet has changed of an exception, if anything.
    #[cold]
    pub(super) fn record_change<K: FlowKey>(
        &mut self,
        flow: Option<FlowView<'_, K>>,
        before: FlowSnapshot,
        choice: &Choice,
        now: Duration,
    ) {
        let Some(flow) = flow.filter(|flow| self.is_on() && flow.is_marked()) else { return };
        let what = if before.is_imported() && !flow.is_imported() {
            ExceptionKind::Insert
        } else if before.is_young() && !flow.is_young() {
            ExceptionKind::Proven
        } else if before.state() != flow.state() {
            ExceptionKind::State
        } else {
            return;
        };
        self.push_flow(&flow, what, choice, now);
    }

    /// Records the end of a flow.
    #[cold]
    pub(super) fn record_end<K: FlowKey>(&mut self, end: &FlowEnd<K>) {
        if self.is_on() && end.is_marked {
            let (key, is_imported, epoch) = (AnyKey::from_key(&end.key), end.is_imported, end.epoch);
            let end = ExceptionEnd { key, reason: Some(end.reason), is_imported, epoch };
            self.queue.push(ExceptionEvent::Ended(end));
        }
    }

    fn push_flow<K: FlowKey>(
        &mut self,
        flow: &FlowView<'_, K>,
        what: ExceptionKind,
        choice: &Choice,
        at: Duration,
    ) {
        // The member of a marked flow may be gone: clients read of its end when the flow is compared.
        let Some(member) = choice.member(flow.answer().action).map(|member| member.name.clone()) else {
            return;
        };
        let record = flow.full_record(Tick::from_time(at));
        let flow = with_key(record, AnyKey::from_key(&record.key), Answer::default());
        self.queue.push(ExceptionEvent::Exists { what, flow, member, at });
    }
}

impl Walk {
    /// Has all flows compared once, from where it is.
    fn restart_round(&mut self) {
        (self.until, self.has_wrapped) = (Some(self.at), false);
    }

    /// Has all flows compared once, and all exceptions reported.
    fn report_again(&mut self) {
        self.reports_again = true;
        self.restart_round();
    }

    /// Goes on at `next`, or at the beginning.
    fn advance(&mut self, next: Option<FlowCursor>) {
        self.at = next.map_or(0, FlowCursor::number);
        // A table that has become shorter may end before the round does.
        let is_second_end = self.has_wrapped && next.is_none();
        self.has_wrapped |= next.is_none();
        if is_second_end || self.has_wrapped && self.until.is_some_and(|until| self.at >= until) {
            (self.until, self.reports_again) = (None, false);
        }
    }
}

#[cfg(test)]
mod tests;
