//! A bounded queue of numbered events that is filled only while a client reads it.
//!
//! A client that returns within a minute resumes where it was. If it returns later, or if more events
//! occurred than the queue holds, it learns that events are lost.
use std::collections::VecDeque;
use std::time::Duration;

/// Capacity of a queue, in events.
const MOST: usize = 65_536;
/// How long events are recorded after they were last read.
const HOLD: Duration = Duration::from_secs(60);
/// Event numbers begin with the seconds since the epoch above so many bits, so that those of an
/// earlier run are lower.
const RUN_BITS: u32 = 20;

/// Part of what happened.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct RecentEvents<'a, E> {
    /// The number of the first of the events.
    pub(super) first: u64,
    pub(super) events: Vec<&'a E>,
    /// Whether events before them were lost.
    pub(super) has_lost: bool,
    /// The number to go on from.
    pub(super) next: u64,
}

pub(super) struct EventQueue<E> {
    /// When recording stops, unless events are read again.
    until: Option<Duration>,
    events: VecDeque<E>,
    /// The number of the next event.
    next: u64,
    /// The number that the client who is ahead of all others goes on from.
    furthest: u64,
}

impl<E> Default for EventQueue<E> {
    fn default() -> EventQueue<E> {
        EventQueue { until: None, events: VecDeque::new(), next: 0, furthest: 0 }
    }
}

impl<E> EventQueue<E> {
    /// Whether events are recorded.
    #[inline(always)]
    pub(super) fn is_on(&self) -> bool {
        self.until.is_some()
    }
    /// The number of the next event.
    pub(super) fn next_number(&self) -> u64 {
        self.next
    }
    /// How many events no client has read.
    pub(super) fn unread_count(&self) -> u64 {
        self.next - self.furthest
    }

    /// Starts or prolongs recording of events.
    fn start(&mut self, now: Duration) {
        if !self.is_on() {
            // What happened before has no number: one is left out for it.
            self.next = (self.next + 1).max(now.as_secs() << RUN_BITS);
            self.furthest = self.next;
        }
        self.until = Some(now + HOLD);
    }

    /// Stops recording, and forgets the events.
    pub(super) fn stop(&mut self) {
        *self = EventQueue { next: self.next, furthest: self.next, ..EventQueue::default() };
    }

    /// Stops recording if events have not been read for [`HOLD`]; returns whether it does.
    pub(super) fn stop_if_idle(&mut self, now: Duration) -> bool {
        let stops = self.until.is_some_and(|until| until < now);
        if stops {
            self.stop();
        }
        stops
    }

    /// Has clients learn that events are lost.
    pub(super) fn lose_events(&mut self) {
        self.events.clear();
        self.next += 1;
        self.furthest = self.next;
    }

    /// Up to `most` events from number `since` on; without `since` only where the next one begins. Recording
    /// goes on for [`HOLD`].
    pub(super) fn read_events(
        &mut self,
        since: Option<u64>,
        most: usize,
        now: Duration,
    ) -> RecentEvents<'_, E> {
        self.start(now);
        let first = self.next - self.events.len() as u64;
        let Some(since) = since else {
            return RecentEvents { first: self.next, events: Vec::new(), has_lost: false, next: self.next };
        };
        let has_lost = !(first..=self.next).contains(&since);
        let from = if has_lost { first } else { since };
        let events: Vec<_> = self.events.iter().skip((from - first) as usize).take(most).collect();
        let next = from + events.len() as u64;
        self.furthest = self.furthest.max(next);
        RecentEvents { first: from, events, has_lost, next }
    }

    pub(super) fn push(&mut self, event: E) {
        if self.events.len() >= MOST {
            self.events.pop_front();
        }
        self.events.push_back(event);
        self.next += 1;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(seconds: u64) -> Duration {
        Duration::from_secs(seconds)
    }

    #[test]
    fn events_are_numbered_and_who_comes_back_in_time_goes_on_where_it_was() {
        let mut queue = EventQueue::default();
        assert!(!queue.is_on());
        let start = queue.read_events(None, 10, at(5)).next;
        (0..30).for_each(|n| queue.push(n));
        assert_eq!(queue.unread_count(), 30);
        let lately = queue.read_events(Some(start), 20, at(6));
        assert_eq!((lately.events.len(), lately.next, lately.has_lost), (20, start + 20, false));
        assert!(!queue.stop_if_idle(at(60)));
        let lately = queue.read_events(Some(start + 20), 20, at(65));
        assert_eq!((lately.first, lately.events[0], lately.next), (start + 20, &20, start + 30));
        assert!(!queue.read_events(Some(start), 20, at(66)).has_lost, "another client reads the same");
        assert_eq!(queue.unread_count(), 0);
    }

    #[test]
    fn what_is_missing_is_said_whether_there_were_too_many_or_nobody_looked_or_it_was_another_run() {
        let mut queue = EventQueue::default();
        let start = queue.read_events(None, 10, at(5)).next;
        (0..MOST as u32 + 3).for_each(|n| queue.push(n));
        assert_eq!(queue.events.len(), MOST);
        let lately = queue.read_events(Some(start), 1, at(5));
        assert_eq!((lately.has_lost, lately.first, lately.events[0]), (true, start + 3, &3));
        let next = queue.next_number();
        assert!(queue.stop_if_idle(at(66)));
        assert!(!queue.is_on() && queue.events.capacity() == 0);
        assert!(queue.read_events(Some(next), 1, at(70)).has_lost);
        let mut later = EventQueue::<u32>::default();
        assert!(later.read_events(Some(next), 1, at(1000)).has_lost);
        let next = later.next_number();
        later.lose_events();
        assert!(later.is_on() && later.read_events(Some(next), 1, at(1000)).has_lost);
    }
}
