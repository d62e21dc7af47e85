//! Events of a worker's flows, in a bounded numbered queue that is filled only while a client follows it.
//!
//! Without a follower no event is recorded, and the cost is close to none. A client that returns within a
//! minute resumes where it was. If it returns later, or if more events occurred than the queue holds, it
//! learns that events are lost.
use super::flow_stream::AnyKey;
use artery_flow::balance::{Choice, MemberId};
use artery_flow::{FlowEnd, FlowKey, FlowState, FlowView};
use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

/// Capacity of the queue, in events.
const MOST: usize = 65_536;
/// How long events are recorded after they were last read.
const HOLD: Duration = Duration::from_secs(60);
/// Event numbers begin with the seconds since the epoch above so many bits, so that those of an
/// earlier run are lower.
const RUN_BITS: u32 = 20;

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

/// Part of what happened.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct RecentFlowEvents<'a> {
    /// The number of the first of the events.
    pub(super) first: u64,
    pub(super) events: Vec<&'a FlowEvent>,
    /// Whether events before them were lost.
    pub(super) has_lost: bool,
    /// The number to go on from.
    pub(super) next: u64,
}

#[derive(Default)]
pub(super) struct FlowEvents {
    /// When recording stops, unless events are read again.
    until: Option<Duration>,
    events: VecDeque<FlowEvent>,
    /// The number of the next event.
    next: u64,
    /// By place: names of members that had events, with the numbers that flows have of them.
    names: Vec<Option<(u32, Arc<str>)>>,
}

impl FlowEvents {
    /// Whether events are recorded.
    #[inline(always)]
    pub(super) fn is_on(&self) -> bool {
        self.until.is_some()
    }
    /// The number of the next event.
    pub(super) fn next_number(&self) -> u64 {
        self.next
    }

    /// Starts or prolongs recording.
    fn start_following(&mut self, now: Duration) {
        if !self.is_on() {
            // What happened before has no number: one is left out for it.
            self.next = (self.next + 1).max(now.as_secs() << RUN_BITS);
        }
        self.until = Some(now + HOLD);
    }

    /// Stops recording if events have not been read for [`HOLD`].
    pub(super) fn stop_if_idle(&mut self, now: Duration) {
        if self.until.is_some_and(|until| until < now) {
            *self = FlowEvents { next: self.next, ..FlowEvents::default() };
        }
    }

    /// Up to `most` events from number `since` on; without `since` only where the next one begins.
    pub(super) fn read_events(
        &mut self,
        since: Option<u64>,
        most: usize,
        now: Duration,
    ) -> RecentFlowEvents<'_> {
        self.start_following(now);
        let first = self.next - self.events.len() as u64;
        let Some(since) = since else {
            return RecentFlowEvents {
                first: self.next,
                events: Vec::new(),
                has_lost: false,
                next: self.next,
            };
        };
        let has_lost = !(first..=self.next).contains(&since);
        let from = if has_lost { first } else { since };
        let events: Vec<_> = self.events.iter().skip((from - first) as usize).take(most).collect();
        let next = from + events.len() as u64;
        RecentFlowEvents { first: from, events, has_lost, next }
    }

    fn push(&mut self, event: FlowEvent) {
        if self.events.len() >= MOST {
            self.events.pop_front();
        }
        self.events.push_back(event);
        self.next += 1;
    }

    /// The name that a flow's member has or had.
    fn member_name(&mut self, action: u32, choice: &Choice) -> MemberName {
        let place = MemberId::from_action(action)?.place();
        if let Some(Some((known, name))) = self.names.get(place)
            && *known == action
        {
            return Some(name.clone());
        }
        let name = choice.member(action)?.name.clone();
        if self.names.len() <= place {
            self.names.resize(place + 1, None);
        }
        self.names[place] = Some((action, name.clone()));
        Some(name)
    }

    /// Records a flow in its present state.
    #[cold]
    pub(super) fn record_flow<K: FlowKey>(
        &mut self,
        view: Option<FlowView<'_, K>>,
        what: FlowEventKind,
        choice: &Choice,
    ) {
        let Some(view) = view else { return };
        let member = self.member_name(view.answer().action, choice);
        self.push(FlowEvent { key: AnyKey::from_key(&view.key()), member, state: view.state(), what });
    }

    /// Records that a flow moved to another member.
    #[cold]
    pub(super) fn record_move<K: FlowKey>(
        &mut self,
        view: Option<FlowView<'_, K>>,
        old: u32,
        choice: &Choice,
    ) {
        let from = self.member_name(old, choice);
        self.record_flow(view, FlowEventKind::Moved(from), choice);
    }

    /// Records what a packet has changed, if anything.
    #[cold]
    pub(super) fn record_change<K: FlowKey>(
        &mut self,
        view: Option<FlowView<'_, K>>,
        (state, was_young): (FlowState, bool),
        choice: &Choice,
    ) {
        let Some(now) = view else { return };
        if was_young && !now.is_young() {
            self.record_flow(view, FlowEventKind::Proven, choice);
        } else if now.state() != state {
            self.record_flow(view, FlowEventKind::State, choice);
        }
    }

    /// Records the end of a flow.
    #[cold]
    pub(super) fn record_end<K: FlowKey>(&mut self, end: &FlowEnd<K>, choice: &Choice) {
        let member = self.member_name(end.answer.action, choice);
        let what = FlowEventKind::End { reason: end.reason, packets: end.packets, bytes: end.bytes };
        self.push(FlowEvent { key: AnyKey::from_key(&end.key), member, state: end.state, what });
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use artery_wire::IpProtocol;

    fn event(n: u32) -> FlowEvent {
        let ends = [([198, 51, 100, 7].into(), (n % 60_000 + 1) as u16), ([192, 0, 2, 1].into(), 80)];
        let key = AnyKey::new(ends, IpProtocol::TCP).unwrap();
        FlowEvent { key, member: None, state: FlowState::Opening, what: FlowEventKind::Insert }
    }
    fn at(seconds: u64) -> Duration {
        Duration::from_secs(seconds)
    }

    #[test]
    fn events_are_numbered_and_who_comes_back_in_time_goes_on_where_it_was() {
        let mut follow = FlowEvents::default();
        assert!(!follow.is_on());
        let start = follow.read_events(None, 10, at(5)).next;
        (0..30).for_each(|n| follow.push(event(n)));
        let lately = follow.read_events(Some(start), 20, at(6));
        assert_eq!((lately.events.len(), lately.next, lately.has_lost), (20, start + 20, false));
        follow.stop_if_idle(at(60));
        let lately = follow.read_events(Some(start + 20), 20, at(65));
        assert_eq!((lately.first, lately.events[0], lately.next), (start + 20, &event(20), start + 30));
        assert!(!follow.read_events(Some(start + 30), 20, at(66)).has_lost);
    }

    #[test]
    fn what_is_missing_is_said_whether_there_were_too_many_or_nobody_looked_or_it_was_another_run() {
        let mut follow = FlowEvents::default();
        let start = follow.read_events(None, 10, at(5)).next;
        (0..MOST as u32 + 3).for_each(|n| follow.push(event(n)));
        assert_eq!(follow.events.len(), MOST);
        let lately = follow.read_events(Some(start), 1, at(5));
        assert_eq!((lately.has_lost, lately.first, lately.events[0]), (true, start + 3, &event(3)));
        let next = follow.next_number();
        follow.stop_if_idle(at(66));
        assert!(!follow.is_on() && follow.events.capacity() == 0);
        assert!(follow.read_events(Some(next), 1, at(70)).has_lost);
        let mut later = FlowEvents::default();
        assert!(later.read_events(Some(next), 1, at(1000)).has_lost);
    }
}
