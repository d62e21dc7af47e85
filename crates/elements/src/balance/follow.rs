//! What happens to a worker's flows, for as long as somebody follows it: a bounded row of numbered events.
//!
//! Nothing is kept, and next to nothing is done, while nobody follows. Who followed and comes back within a minute
//! goes on where it was; later, or when more has happened than is kept, it hears that events are lost.
use super::flow_stream::AnyKey;
use artery_table::balance::{Choice, MemberId};
use artery_table::flow::{FlowEnd, FlowKey, FlowState, FlowView};
use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

/// Most events that are kept.
const MOST: usize = 65_536;
/// How long events are kept after the last look at them.
const HOLD: Duration = Duration::from_secs(60);
/// Numbers begin with the seconds since the epoch above so many bits, so that those of an earlier run are lower.
const RUN_BITS: u32 = 20;

/// The name of a member, unless it is gone and nobody knew it.
pub(super) type Name = Option<Arc<str>>;

/// What happened to a flow.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Event {
    pub(super) key: AnyKey,
    pub(super) member: Name,
    pub(super) state: FlowState,
    pub(super) what: What,
}

/// What can happen.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum What {
    /// Its first packet came.
    Insert,
    /// It came from elsewhere.
    Import,
    /// It is more than an attempt.
    Proven,
    /// It is in another state.
    State,
    /// It was this member's.
    Moved(Name),
    /// It is known no more.
    End { reason: artery_table::flow::EndReason, packets: u64, bytes: u64 },
}

/// Part of what happened.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Lately<'a> {
    /// The number of the first of the events.
    pub(super) first: u64,
    pub(super) events: Vec<&'a Event>,
    /// Whether something is missing before them.
    pub(super) has_lost: bool,
    /// The number to go on from.
    pub(super) next: u64,
}

/// See the module.
#[derive(Default)]
pub(super) struct Follow {
    /// Until when events are kept, if nobody looks again.
    until: Option<Duration>,
    events: VecDeque<Event>,
    /// The number of the next event.
    next: u64,
    /// By place: names of members that were met, with the numbers that flows have of them.
    names: Vec<Option<(u32, Arc<str>)>>,
}

impl Follow {
    /// Whether somebody follows.
    #[inline(always)]
    pub(super) fn is_on(&self) -> bool {
        self.until.is_some()
    }
    /// The number of the next event.
    pub(super) fn next(&self) -> u64 {
        self.next
    }

    /// Begins, or goes on for another while.
    fn hold(&mut self, now: Duration) {
        if !self.is_on() {
            // What happened before has no number: one is left out for it.
            self.next = (self.next + 1).max(now.as_secs() << RUN_BITS);
        }
        self.until = Some(now + HOLD);
    }

    /// Ends if nobody has looked for long.
    pub(super) fn rest(&mut self, now: Duration) {
        if self.until.is_some_and(|until| until < now) {
            *self = Follow { next: self.next, ..Follow::default() };
        }
    }

    /// Up to `most` events from number `since` on, or none and where they begin.
    pub(super) fn look(&mut self, since: Option<u64>, most: usize, now: Duration) -> Lately<'_> {
        self.hold(now);
        let first = self.next - self.events.len() as u64;
        let Some(since) = since else {
            return Lately { first: self.next, events: Vec::new(), has_lost: false, next: self.next };
        };
        let has_lost = !(first..=self.next).contains(&since);
        let from = if has_lost { first } else { since };
        let events: Vec<_> = self.events.iter().skip((from - first) as usize).take(most).collect();
        let next = from + events.len() as u64;
        Lately { first: from, events, has_lost, next }
    }

    fn push(&mut self, event: Event) {
        if self.events.len() >= MOST {
            self.events.pop_front();
        }
        self.events.push_back(event);
        self.next += 1;
    }

    /// The name that a flow's member has or had.
    fn name(&mut self, action: u32, choice: &Choice) -> Name {
        let place = MemberId::of(action)?.place();
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

    /// Tells of a flow as it is now.
    #[cold]
    pub(super) fn tell<K: FlowKey>(&mut self, view: Option<FlowView<'_, K>>, what: What, choice: &Choice) {
        let Some(view) = view else { return };
        let member = self.name(view.answer().action, choice);
        self.push(Event { key: AnyKey::of(&view.key()), member, state: view.state(), what });
    }

    /// Tells that a flow is another member's now.
    #[cold]
    pub(super) fn moved<K: FlowKey>(&mut self, view: Option<FlowView<'_, K>>, old: u32, choice: &Choice) {
        let from = self.name(old, choice);
        self.tell(view, What::Moved(from), choice);
    }

    /// Tells what a packet has changed, if it has.
    #[cold]
    pub(super) fn touched<K: FlowKey>(
        &mut self,
        view: Option<FlowView<'_, K>>,
        (state, was_young): (FlowState, bool),
        choice: &Choice,
    ) {
        let Some(now) = view else { return };
        if was_young && !now.is_young() {
            self.tell(view, What::Proven, choice);
        } else if now.state() != state {
            self.tell(view, What::State, choice);
        }
    }

    /// Tells of an end.
    #[cold]
    pub(super) fn ended<K: FlowKey>(&mut self, end: &FlowEnd<K>, choice: &Choice) {
        let member = self.name(end.answer.action, choice);
        let what = What::End { reason: end.reason, packets: end.packets, bytes: end.bytes };
        self.push(Event { key: AnyKey::of(&end.key), member, state: end.state, what });
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use artery_wire::IpProtocol;

    fn event(n: u32) -> Event {
        let ends = [([198, 51, 100, 7].into(), (n % 60_000 + 1) as u16), ([192, 0, 2, 1].into(), 80)];
        let key = AnyKey::new(ends, IpProtocol::TCP).unwrap();
        Event { key, member: None, state: FlowState::Opening, what: What::Insert }
    }
    fn at(seconds: u64) -> Duration {
        Duration::from_secs(seconds)
    }

    #[test]
    fn events_are_numbered_and_who_comes_back_in_time_goes_on_where_it_was() {
        let mut follow = Follow::default();
        assert!(!follow.is_on());
        let start = follow.look(None, 10, at(5)).next;
        (0..30).for_each(|n| follow.push(event(n)));
        let lately = follow.look(Some(start), 20, at(6));
        assert_eq!((lately.events.len(), lately.next, lately.has_lost), (20, start + 20, false));
        follow.rest(at(60));
        let lately = follow.look(Some(start + 20), 20, at(65));
        assert_eq!((lately.first, lately.events[0], lately.next), (start + 20, &event(20), start + 30));
        assert!(!follow.look(Some(start + 30), 20, at(66)).has_lost);
    }

    #[test]
    fn what_is_missing_is_said_whether_there_were_too_many_or_nobody_looked_or_it_was_another_run() {
        let mut follow = Follow::default();
        let start = follow.look(None, 10, at(5)).next;
        (0..MOST as u32 + 3).for_each(|n| follow.push(event(n)));
        assert_eq!(follow.events.len(), MOST);
        let lately = follow.look(Some(start), 1, at(5));
        assert_eq!((lately.has_lost, lately.first, lately.events[0]), (true, start + 3, &event(3)));
        let next = follow.next();
        follow.rest(at(66));
        assert!(!follow.is_on() && follow.events.capacity() == 0);
        assert!(follow.look(Some(next), 1, at(70)).has_lost);
        let mut later = Follow::default();
        assert!(later.look(Some(next), 1, at(1000)).has_lost);
    }
}
