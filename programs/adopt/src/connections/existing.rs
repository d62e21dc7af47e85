//! Connections whose ends the kernel sends no events of, since they began while no process listened
//! (`--established-existing`).
//!
//! Programs report a flow, and the kernel's answer does not come: the next dump of all entries shows whether
//! there is a connection, and each one after it whether it is still that one. What a dump lacks, or has with
//! another number, has ended. A dump that takes more than a second, or fails, leaves them all to the kernel.
use super::dump::{DumpRead, EntryDump};
use super::message::Event;
use super::tracker::ConnectionTracker;
use crate::fast::{Accelerator, FlowKey};
use std::collections::{HashMap, HashSet};
use std::time::{Duration, Instant};

/// Flows that wait for a dump; others come again.
const MOST_ASKED: usize = 1 << 16;

/// What is known of such connections.
#[derive(Debug)]
pub(super) struct ExistingConnections {
    dump: EntryDump,
    /// Flows that the kernel sent no answer about; those that the dump under way looks for.
    asked: HashSet<FlowKey>,
    sought: HashSet<FlowKey>,
    /// The numbers of connections that are compared, with the number of the last dump that had them.
    followed: HashMap<u32, u64>,
    dumps: u64,
    /// Whether the last dump failed, and why, until that is reported.
    has_failed: bool,
    failure: Option<String>,
}

impl ExistingConnections {
    pub(super) fn new(now: Instant) -> ExistingConnections {
        ExistingConnections {
            dump: EntryDump::new(now),
            asked: HashSet::new(),
            sought: HashSet::new(),
            followed: HashMap::new(),
            dumps: 0,
            has_failed: false,
            failure: None,
        }
    }

    /// Takes it that the kernel is asked about flows; an answer takes them back.
    pub(super) fn add_asked(&mut self, keys: &[FlowKey]) {
        let room = MOST_ASKED.saturating_sub(self.asked.len());
        self.asked.extend(keys.iter().take(room));
    }

    pub(super) fn remove_answered(&mut self, answer: &Event) {
        if let Event::There(entry) = answer {
            self.asked.remove(&entry.original);
            self.asked.remove(&entry.reply);
        }
    }

    /// Connections that each dump is compared with.
    pub(super) fn len(&self) -> usize {
        self.followed.len()
    }

    pub(super) fn forget_all(&mut self) {
        self.followed.clear();
    }

    /// How long nothing is due.
    pub(super) fn wait(&self, now: Instant) -> Duration {
        match (self.dump.is_under_way(), self.asked.is_empty() && self.followed.is_empty()) {
            (true, _) => Duration::ZERO,
            (false, true) => Duration::MAX,
            (false, false) => self.dump.time_to_next(now),
        }
    }

    fn fail(&mut self, why: String) {
        if !std::mem::replace(&mut self.has_failed, true) {
            self.failure = Some(why);
        }
    }

    /// Whether an entry of the dump is of a connection that is compared, or to be so from now on.
    fn follow(&mut self, event: &Event, is_known: bool) -> bool {
        let Event::There(entry) = event else { return false };
        let is_followed = self.followed.contains_key(&entry.id);
        let is_sought = || self.sought.contains(&entry.original) || self.sought.contains(&entry.reply);
        // Others that are known have events.
        let follows = is_followed || !is_known && is_sought();
        if follows {
            self.followed.insert(entry.id, self.dumps);
        }
        follows
    }

    /// Those that the dump lacked.
    fn end_dump(&mut self) -> Vec<u32> {
        self.has_failed = false;
        self.sought.clear();
        let dump = self.dumps;
        self.followed.extract_if(|_, last| *last != dump).map(|(id, _)| id).collect()
    }
}

impl ConnectionTracker {
    /// Compares connections without events with the kernel's entries. Returns how long nothing more is due.
    pub(super) fn compare_existing(&mut self, now: Instant, accelerator: &mut Accelerator) -> Duration {
        let Some(existing) = &mut self.existing else { return Duration::MAX };
        if !existing.wait(now).is_zero() {
            return existing.wait(now);
        }
        match existing.dump.begin_if_due(now) {
            Ok(true) => {
                existing.dumps += 1;
                existing.sought = std::mem::take(&mut existing.asked);
            }
            Ok(false) => {}
            Err(error) => {
                existing.fail(error.to_string());
                self.leave_existing(accelerator);
                return Duration::ZERO;
            }
        }
        let (events, is_last) = match existing.dump.read(now) {
            DumpRead::Some(events) => (events, false),
            DumpRead::Last(events) => (events, true),
            DumpRead::Failed(why) => {
                existing.fail(why);
                self.leave_existing(accelerator);
                return Duration::ZERO;
            }
        };
        for event in events {
            let is_known = matches!(&event, Event::There(entry) if self.known.contains_key(&entry.id));
            let follows = self.existing.as_mut().is_some_and(|existing| existing.follow(&event, is_known));
            if follows {
                self.apply(event, accelerator);
            }
        }
        if is_last {
            let gone = self.existing.as_mut().map_or(Vec::new(), ExistingConnections::end_dump);
            gone.into_iter().for_each(|id| self.apply(Event::Gone(id), accelerator));
        }
        self.existing.as_ref().map_or(Duration::MAX, |existing| existing.wait(now))
    }

    /// Leaves connections without events to the kernel. They come back by their packets.
    fn leave_existing(&mut self, accelerator: &mut Accelerator) {
        let Some(existing) = &mut self.existing else { return };
        existing.sought.clear();
        let all: Vec<u32> = existing.followed.drain().map(|(id, _)| id).collect();
        all.into_iter().for_each(|id| self.apply(Event::Gone(id), accelerator));
    }

    /// Why connections without events stay with the kernel, if that is new.
    pub(crate) fn drain_failure(&mut self) -> Option<String> {
        self.existing.as_mut()?.failure.take()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::connections::message::tests::established;

    #[test]
    fn a_connection_is_followed_once_it_was_sought_and_until_a_dump_lacks_it_or_has_another_number() {
        let there = |id| {
            let mut entry = established();
            entry.id = id;
            Event::There(Box::new(entry))
        };
        let mut existing = ExistingConnections::new(Instant::now());
        let begin = |existing: &mut ExistingConnections| {
            existing.dumps += 1;
            existing.sought = std::mem::take(&mut existing.asked);
        };
        begin(&mut existing);
        assert!(!existing.follow(&there(7), false), "nothing was reported");
        assert!(existing.end_dump().is_empty());
        existing.add_asked(&[established().reply]);
        existing.remove_answered(&there(7));
        begin(&mut existing);
        assert!(!existing.follow(&there(7), true), "it has events");
        assert!(existing.end_dump().is_empty());
        existing.add_asked(&[established().reply]);
        begin(&mut existing);
        assert!(existing.follow(&there(7), false));
        assert!(existing.end_dump().is_empty());
        begin(&mut existing);
        assert!(existing.follow(&there(7), true), "it is still there");
        assert!(existing.end_dump().is_empty());
        begin(&mut existing);
        assert!(!existing.follow(&there(8), false), "another one, which was not reported");
        assert_eq!(existing.end_dump(), [7]);
        assert_eq!(existing.len(), 0);
        let now = Instant::now();
        assert_eq!(existing.wait(now), Duration::MAX, "no dumps where nothing is compared");
    }
}
