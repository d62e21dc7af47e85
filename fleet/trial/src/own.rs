//! The records of a machine itself: made here, published by batches, and copied whole for others.

use std::net::Ipv4Addr;
use std::sync::{Mutex, MutexGuard, PoisonError};

use artery_fleet_record::{
    Addresses, BatchHeader, BatchWriter, Change, ExceptionRecord, FlowKey, MAX_RECORDS,
};
use bytes::Bytes;

use crate::clock::now_us;

/// So many different flows a machine makes; after that it changes the first ones again.
const FLOWS: u64 = 1_000_000;

/// The records of this machine.
pub(crate) struct Own {
    machine: u32,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    /// The record of flow n is at n.
    records: Vec<ExceptionRecord>,
    made: u64,
    sequence: u64,
}

impl Own {
    /// No records yet. Batches are numbered from `sequence` on: a machine that starts again must
    /// not use one of its numbers twice.
    pub(crate) fn new(machine: u32, sequence: u64) -> Own {
        Own { machine, state: Mutex::new(State { sequence, ..State::default() }) }
    }

    /// Makes new records and writes them as the next batch.
    pub(crate) fn next_batch(&self, records: u32, sent_us: u64) -> Bytes {
        let mut state = self.lock();
        state.sequence += 1;
        let header = BatchHeader { machine: self.machine, sequence: state.sequence, sent_us };
        let mut batch = BatchWriter::new(header, records as usize);
        for _ in 0..records {
            let record = state.make(self.machine);
            if !batch.push(&record) {
                break;
            }
        }
        batch.finish().into()
    }

    /// Makes records that no batch tells of.
    pub(crate) fn fill(&self, records: u64) {
        let mut state = self.lock();
        for _ in 0..records {
            state.make(self.machine);
        }
    }

    /// All records as batches, with an empty one as the end. Each has the sequence of the last batch
    /// that went into them.
    pub(crate) fn copy(&self) -> Vec<Bytes> {
        let state = self.lock();
        let header = BatchHeader { machine: self.machine, sequence: state.sequence, sent_us: now_us() };
        let end: &[ExceptionRecord] = &[];
        state.records.chunks(MAX_RECORDS).chain([end]).map(|part| encode(header, part)).collect()
    }

    /// How many records there are.
    pub(crate) fn len(&self) -> u64 {
        self.lock().records.len() as u64
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl State {
    fn make(&mut self, machine: u32) -> ExceptionRecord {
        let flow = self.made % FLOWS;
        let record = ExceptionRecord {
            change: Change::Set,
            key: key(machine, flow as u32),
            revision: 1,
            member: (flow % 32) as u32,
            epoch: (self.made / FLOWS) as u32 + 1,
            idle_ms: 0,
        };
        self.made += 1;
        match self.records.get_mut(flow as usize) {
            Some(place) => *place = record,
            None => self.records.push(record),
        }
        record
    }
}

fn encode(header: BatchHeader, records: &[ExceptionRecord]) -> Bytes {
    let mut batch = BatchWriter::new(header, records.len());
    for record in records {
        batch.push(record);
    }
    batch.finish().into()
}

/// A flow of a client to the service of a machine; `flow` is less than 2^24.
fn key(machine: u32, flow: u32) -> FlowKey {
    let client = Ipv4Addr::from_bits(0x0a00_0000 | flow);
    let service = Ipv4Addr::from_bits(0xc000_0200 | (machine & 0xff));
    let ports = [1024 + (flow % 60_000) as u16, 443];
    FlowKey { addresses: Addresses::V4([client, service]), ports, protocol: 6 }
}

#[cfg(test)]
mod tests {
    use artery_fleet_record::Batch;

    use super::*;

    #[test]
    fn a_copy_has_all_records_and_an_empty_end() {
        let own = Own::new(3, 0);
        own.next_batch(20, 1);
        own.fill(2_000);
        let copy = own.copy();
        let lengths: Vec<_> = copy.iter().map(|bytes| Batch::parse(bytes).unwrap().len()).collect();
        assert_eq!(lengths, [1000, 1000, 20, 0]);
        assert!(copy.iter().all(|bytes| Batch::parse(bytes).unwrap().header().sequence == 1));
        assert_eq!(own.len(), 2_020);
    }

    #[test]
    fn flows_return_with_a_higher_epoch() {
        let own = Own::new(1, 0);
        own.fill(FLOWS);
        let bytes = own.next_batch(1, 1);
        let record = Batch::parse(&bytes).unwrap().records().next().unwrap().unwrap();
        assert_eq!((record.key, record.epoch), (key(1, 0), 2));
        assert_eq!(own.len(), FLOWS);
    }
}
