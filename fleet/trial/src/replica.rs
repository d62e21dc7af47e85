//! What a machine holds of the others: their records by flow, how far it has read each of them, and how late
//! that was.

use std::collections::HashMap;
use std::sync::{Mutex, MutexGuard, PoisonError};

use artery_fleet_record::{Batch, Change, DecodeError, ExceptionRecord, FlowKey};
use hdrhistogram::Histogram;

use crate::clock::now_us;
use crate::orders::{Lag, Presence, Report};

/// The records of other machines.
pub(crate) struct Replica {
    machine: u32,
    state: Mutex<State>,
}

struct State {
    records: HashMap<FlowKey, ExceptionRecord>,
    writers: HashMap<u32, Writer>,
    lag: Histogram<u64>,
    received: u64,
    missed: u64,
    repairs: u64,
    failed_repairs: u64,
    presence: Vec<Presence>,
}

/// How far another machine's batches have been read.
#[derive(Default)]
struct Writer {
    /// The last batch that came.
    last: u64,
    /// The last batch that was found missing and is not repaired.
    missing: Option<u64>,
}

impl Replica {
    /// An empty replica of the machine with that number.
    pub(crate) fn new(machine: u32) -> Replica {
        // Auto-resizing, of three digits: nothing that could be out of bounds.
        let lag = Histogram::new(3).expect("three digits are within what histograms can have");
        let state = State {
            records: HashMap::new(),
            writers: HashMap::new(),
            lag,
            received: 0,
            missed: 0,
            repairs: 0,
            failed_repairs: 0,
            presence: Vec::new(),
        };
        Replica { machine, state: Mutex::new(state) }
    }

    /// Takes a batch that came; answers with the writer whose whole state must be fetched since batches
    /// before this one are missing.
    pub(crate) fn receive(&self, bytes: &[u8]) -> Result<Option<u32>, DecodeError> {
        let batch = Batch::parse(bytes)?;
        let header = batch.header();
        // Some engines give a publisher its own messages.
        if header.machine == self.machine {
            return Ok(None);
        }
        let mut state = self.lock();
        state.apply(&batch)?;
        state.received += batch.len() as u64;
        let lag = now_us().saturating_sub(header.sent_us);
        // The histogram grows as needed, so every value is taken.
        let _ = state.lag.record_n(lag, batch.len() as u64);
        let is_behind = state.advance(header.machine, header.sequence);
        Ok(is_behind.then_some(header.machine))
    }

    /// Takes a part of another machine's whole state; its last part is empty, and then the answer is `true`.
    pub(crate) fn receive_copy(&self, bytes: &[u8]) -> Result<bool, DecodeError> {
        let batch = Batch::parse(bytes)?;
        let mut state = self.lock();
        state.apply(&batch)?;
        if batch.is_empty() {
            state.end_copy(batch.header().machine, batch.header().sequence);
        }
        Ok(batch.is_empty())
    }

    /// Takes note that the whole state of a machine, up to this batch, has been received.
    pub(crate) fn end_copy(&self, machine: u32, sequence: u64) {
        self.lock().end_copy(machine, sequence);
    }

    /// Whether batches of a writer are missing.
    pub(crate) fn is_behind(&self, machine: u32) -> bool {
        self.lock().writers.get(&machine).is_some_and(|writer| writer.missing.is_some())
    }

    /// How many records there are.
    pub(crate) fn len(&self) -> u64 {
        self.lock().records.len() as u64
    }

    pub(crate) fn count_failed_repair(&self) {
        self.lock().failed_repairs += 1;
    }

    pub(crate) fn note_presence(&self, machine: &str, is_there: bool) {
        let presence = Presence { machine: machine.into(), is_there, at_us: now_us() };
        self.lock().presence.push(presence);
    }

    /// What was seen; lag is counted from here on.
    pub(crate) fn report(&self, own: u64) -> Report {
        let mut state = self.lock();
        let lag = Lag {
            records: state.lag.len(),
            p50_us: state.lag.value_at_quantile(0.5),
            p99_us: state.lag.value_at_quantile(0.99),
            max_us: state.lag.max(),
        };
        state.lag.reset();
        Report {
            held: state.records.len() as u64,
            received: state.received,
            lag,
            missed: state.missed,
            repairs: state.repairs,
            failed_repairs: state.failed_repairs,
            is_behind: state.writers.values().any(|writer| writer.missing.is_some()),
            presence: state.presence.clone(),
            own,
        }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl State {
    /// A batch with a wrong record is refused from there on: its writer is broken.
    fn apply(&mut self, batch: &Batch<'_>) -> Result<(), DecodeError> {
        for record in batch.records() {
            let record = record?;
            let is_old = self.records.get(&record.key).is_some_and(|known| known.epoch > record.epoch);
            match record.change {
                _ if is_old => {}
                Change::Set => drop(self.records.insert(record.key, record)),
                Change::Removed => drop(self.records.remove(&record.key)),
            }
        }
        Ok(())
    }

    /// Reads on to a batch of a machine; whether batches before it are missing.
    fn advance(&mut self, machine: u32, sequence: u64) -> bool {
        let is_first_contact = !self.writers.contains_key(&machine);
        let writer = self.writers.entry(machine).or_default();
        let before = writer.last;
        writer.last = before.max(sequence);
        if sequence <= before + 1 {
            return false;
        }
        writer.missing = Some(sequence - 1);
        if !is_first_contact {
            self.missed += sequence - before - 1;
        }
        true
    }

    fn end_copy(&mut self, machine: u32, sequence: u64) {
        let writer = self.writers.entry(machine).or_default();
        writer.last = writer.last.max(sequence);
        // Batches may have been lost after the copy was made; those need another one.
        if writer.missing.is_some_and(|missing| missing <= sequence) {
            writer.missing = None;
            self.repairs += 1;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::own::Own;

    #[test]
    fn a_missing_batch_is_seen_and_a_copy_repairs_it() {
        let (own, replica) = (Own::new(1, 0), Replica::new(2));
        let batches: Vec<_> = (0..3).map(|_| own.next_batch(10, now_us())).collect();
        assert_eq!(replica.receive(&batches[0]), Ok(None));
        assert_eq!(replica.receive(&batches[2]), Ok(Some(1)));
        assert!(replica.is_behind(1));
        assert_eq!(replica.len(), 20);
        let ends: Vec<_> = own.copy().iter().map(|part| replica.receive_copy(part)).collect();
        assert_eq!(ends, [Ok(false), Ok(true)]);
        assert!(!replica.is_behind(1));
        assert_eq!((replica.len(), replica.report(0).missed), (30, 1));
    }

    #[test]
    fn a_copy_from_before_the_loss_repairs_nothing() {
        let (own, replica) = (Own::new(1, 0), Replica::new(2));
        assert_eq!(replica.receive(&own.next_batch(1, 0)), Ok(None));
        let early = own.copy();
        own.next_batch(1, 0);
        assert_eq!(replica.receive(&own.next_batch(1, 0)), Ok(Some(1)));
        assert!(early.iter().all(|part| replica.receive_copy(part).is_ok()));
        assert!(replica.is_behind(1));
    }

    #[test]
    fn a_batch_that_comes_again_changes_nothing() {
        let (own, replica) = (Own::new(1, 0), Replica::new(2));
        let batch = own.next_batch(5, 0);
        assert_eq!(replica.receive(&batch), Ok(None));
        assert_eq!(replica.receive(&batch), Ok(None));
        assert_eq!(replica.len(), 5);
    }

    #[test]
    fn the_first_batch_of_a_machine_that_has_run_for_long_asks_for_the_rest() {
        let (own, replica) = (Own::new(1, 1_000), Replica::new(2));
        own.fill(50);
        assert_eq!(replica.receive(&own.next_batch(5, 0)), Ok(Some(1)));
        assert!(own.copy().iter().all(|part| replica.receive_copy(part).is_ok()));
        let report = replica.report(0);
        assert_eq!((report.held, report.missed, report.is_behind), (55, 0, false));
    }

    #[test]
    fn a_machine_does_not_take_its_own_batches() {
        let (own, replica) = (Own::new(2, 0), Replica::new(2));
        assert_eq!(replica.receive(&own.next_batch(5, 0)), Ok(None));
        assert_eq!(replica.len(), 0);
    }

    #[test]
    fn bytes_of_a_stranger_are_refused() {
        assert!(Replica::new(2).receive(b"GET / HTTP/1.1").is_err());
    }
}
