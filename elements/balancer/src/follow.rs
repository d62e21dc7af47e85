//! Events of a worker's flows for clients that follow them: all flows, or only [exceptions](Exceptions).
//!
//! Without a follower no event is recorded, and the cost is close to none.
use super::event_queue::EventQueue;
use super::exceptions::Exceptions;
use artery_flow::balance::{Choice, MemberId};
use artery_flow::stream::AnyKey;
use artery_flow::{FlowEnd, FlowKey, FlowSnapshot, FlowState, FlowView};
use std::sync::Arc;
use std::time::Duration;

/// The name of a member; None if the member was removed and its name is not known.
pub(super) type MemberName = Option<Arc<str>>;

/// What happened to a flow.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct FlowEvent {
    pub(super) key: AnyKey,
    pub(super) member: MemberName,
    pub(super) state: FlowState,
    pub(super) what: FlowEventKind,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum FlowEventKind {
    /// Its first packet came.
    Insert,
    /// It was imported from another balancer.
    Import,
    /// It is more than an attempt.
    Proven,
    /// It is in another state.
    State,
    /// It was this member's.
    Moved(MemberName),
    /// It ended, and was removed.
    End { reason: artery_flow::EndReason, packets: u64, bytes: u64 },
}

/// Which kinds of events clients follow.
#[derive(Default)]
pub(super) struct Followed {
    pub(super) all: FlowEvents,
    pub(super) exceptions: Exceptions,
}

impl Followed {
    /// Whether events are recorded.
    #[inline(always)]
    pub(super) fn is_on(&self) -> bool {
        self.all.queue.is_on() || self.exceptions.is_on()
    }
}

/// Events of all flows.
#[derive(Default)]
pub(super) struct FlowEvents {
    pub(super) queue: EventQueue<FlowEvent>,
    names: MemberNames,
}

impl FlowEvents {
    /// Stops recording if events have not been read for long.
    pub(super) fn stop_if_idle(&mut self, now: Duration) {
        if self.queue.stop_if_idle(now) {
            self.names = MemberNames::default();
        }
    }

    /// Records a flow in its present state.
    #[cold]
    pub(super) fn record_flow<K: FlowKey>(
        &mut self,
        view: Option<FlowView<'_, K>>,
        what: FlowEventKind,
        choice: &Choice,
    ) {
        let Some(view) = view.filter(|_| self.queue.is_on()) else { return };
        let member = self.names.name(view.answer().action, choice);
        self.queue.push(FlowEvent { key: AnyKey::from_key(&view.key()), member, state: view.state(), what });
    }

    /// Records that a flow moved to another member.
    #[cold]
    pub(super) fn record_move<K: FlowKey>(
        &mut self,
        view: Option<FlowView<'_, K>>,
        old: u32,
        choice: &Choice,
    ) {
        if self.queue.is_on() {
            let from = self.names.name(old, choice);
            self.record_flow(view, FlowEventKind::Moved(from), choice);
        }
    }

    /// Records what a packet has changed, if anything.
    #[cold]
    pub(super) fn record_change<K: FlowKey>(
        &mut self,
        view: Option<FlowView<'_, K>>,
        before: FlowSnapshot,
        choice: &Choice,
    ) {
        let Some(now) = view else { return };
        if before.is_young() && !now.is_young() {
            self.record_flow(view, FlowEventKind::Proven, choice);
        } else if now.state() != before.state() {
            self.record_flow(view, FlowEventKind::State, choice);
        }
    }

    /// Records the end of a flow.
    #[cold]
    pub(super) fn record_end<K: FlowKey>(&mut self, end: &FlowEnd<K>, choice: &Choice) {
        if self.queue.is_on() {
            let member = self.names.name(end.answer.action, choice);
            let what = FlowEventKind::End { reason: end.reason, packets: end.packets, bytes: end.bytes };
            self.queue.push(FlowEvent { key: AnyKey::from_key(&end.key), member, state: end.state, what });
        }
    }
}

/// Names of members that had events, with the numbers that flows have of them, by place; those of
/// members that were removed stay.
#[derive(Default)]
struct MemberNames(Vec<Option<(u32, Arc<str>)>>);

impl MemberNames {
    /// The name that a flow's member has or had.
    fn name(&mut self, action: u32, choice: &Choice) -> MemberName {
        let place = MemberId::from_action(action)?.place();
        if let Some(Some((known, name))) = self.0.get(place)
            && *known == action
        {
            return Some(name.clone());
        }
        let name = choice.member(action)?.name.clone();
        if self.0.len() <= place {
            self.0.resize(place + 1, None);
        }
        self.0[place] = Some((action, name.clone()));
        Some(name)
    }
}
