//! Records of flows on their way from the workers to whoever exports them: one bounded queue of a router.
//!
//! Workers add what has ended, or goes on for long, between batches and never wait: where the queue is full,
//! or in use at that moment for too long, records are lost and counted. Nothing is recorded unless
//! flows are exported.
use artery_wire::IpProtocol;
use std::net::IpAddr;
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, SystemTime};

/// Most records that wait to be exported.
pub const CAPACITY: usize = 65_536;
/// Most records that a worker keeps while others use the queue.
const MOST_KEPT: usize = 8192;

/// Address and port.
pub type End = (IpAddr, u16);

/// A record of a flow: what packets of one direction did in some time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ExportedFlow {
    /// Source and destination as packets have them where they arrive.
    pub ends: [End; 2],
    /// The same where they leave, if they are translated.
    pub translated: Option<[End; 2]>,
    pub protocol: IpProtocol,
    /// Where packets are sent to, if that is known.
    pub next_hop: Option<IpAddr>,
    /// Numbers of the interfaces, 0 for those that are not known.
    pub ingress: u32,
    pub egress: u32,
    pub packets: u64,
    pub bytes: u64,
    /// When the first and the last packet came, since the epoch of the router's clock.
    pub start: Duration,
    pub end: Duration,
    pub reason: FlowEndReason,
}

/// Why a record was made: flowEndReason of RFC 5102.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum FlowEndReason {
    Idle = 1,
    /// The flow goes on.
    Active = 2,
    /// Its end was seen, as FIN or RST of TCP.
    EndOfFlow = 3,
    /// It was removed by a command, or with its service or rule.
    Forced = 4,
    /// Another needed its place.
    LackOfResources = 5,
}

/// What a router has to export.
#[derive(Default)]
pub struct FlowExport {
    /// After what time flows that go on are recorded, in milliseconds; 0 while flows are not exported.
    active_ms: AtomicU64,
    lost: AtomicU64,
    queue: Mutex<Vec<ExportedFlow>>,
}

impl FlowExport {
    /// Has flows recorded from now on.
    pub fn turn_on(&self, active: Duration) {
        self.active_ms.store((active.as_millis() as u64).max(1), Relaxed);
    }

    /// After what time flows that go on are recorded; None while flows are not exported.
    #[inline]
    pub fn active_timeout(&self) -> Option<Duration> {
        match self.active_ms.load(Relaxed) {
            0 => None,
            active => Some(Duration::from_millis(active)),
        }
    }

    /// Records that found no room.
    pub fn lost_records(&self) -> u64 {
        self.lost.load(Relaxed)
    }

    /// Counts records that found no room elsewhere.
    pub fn count_lost(&self, records: u64) {
        self.lost.fetch_add(records, Relaxed);
    }

    /// Takes all records, in the order in which they came from each worker.
    pub fn take_records(&self) -> Vec<ExportedFlow> {
        let mut queue = self.queue.lock().unwrap_or_else(PoisonError::into_inner);
        std::mem::take(&mut *queue)
    }
}

/// The records of a worker that are not in the queue yet.
#[derive(Default)]
pub struct FlowRecords(Vec<ExportedFlow>);

impl FlowRecords {
    #[inline]
    pub fn push(&mut self, record: ExportedFlow, export: &FlowExport) {
        match self.0.len() < MOST_KEPT {
            true => self.0.push(record),
            false => {
                export.lost.fetch_add(1, Relaxed);
            }
        }
    }

    /// Moves the records into the queue, unless it is in use. `now` is the time of the router's clock, whose
    /// epoch may be another than the machine's by now.
    pub fn flush(&mut self, export: &FlowExport, now: Duration) {
        if self.0.is_empty() {
            return;
        }
        let Ok(mut queue) = export.queue.try_lock() else { return };
        let time_of_day = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or(now);
        let time = |at: Duration| time_of_day.saturating_sub(now.saturating_sub(at));
        let room = CAPACITY.saturating_sub(queue.len());
        export.lost.fetch_add(self.0.len().saturating_sub(room) as u64, Relaxed);
        queue.extend(self.0.drain(..).take(room).map(|record| ExportedFlow {
            start: time(record.start),
            end: time(record.end),
            ..record
        }));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn flow(port: u16) -> ExportedFlow {
        ExportedFlow {
            ends: [([10, 0, 0, 1].into(), port), ([10, 0, 0, 2].into(), 80)],
            translated: None,
            protocol: IpProtocol::TCP,
            next_hop: None,
            ingress: 0,
            egress: 0,
            packets: 1,
            bytes: 40,
            start: Duration::from_secs(8),
            end: Duration::from_secs(9),
            reason: FlowEndReason::Idle,
        }
    }

    #[test]
    fn records_that_find_no_room_are_counted_and_times_become_those_of_the_machine() {
        let (export, mut records) = (FlowExport::default(), FlowRecords::default());
        assert_eq!(export.active_timeout(), None);
        export.turn_on(Duration::from_secs(60));
        assert_eq!(export.active_timeout(), Some(Duration::from_secs(60)));
        for _ in 0..CAPACITY / MOST_KEPT {
            (0..MOST_KEPT as u16).for_each(|port| records.push(flow(port), &export));
            records.flush(&export, Duration::from_secs(10));
        }
        (0..3).for_each(|port| records.push(flow(port), &export));
        records.flush(&export, Duration::from_secs(10));
        assert_eq!(export.lost_records(), 3);
        let all = export.take_records();
        assert_eq!((all.len(), export.take_records().len()), (CAPACITY, 0));
        let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap();
        assert_eq!(all[7].end - all[7].start, Duration::from_secs(1));
        assert!((1..60).contains(&(now - all[7].end).as_secs()));
    }

    #[test]
    fn a_worker_keeps_few_records_while_the_queue_is_in_use() {
        let (export, mut records) = (FlowExport::default(), FlowRecords::default());
        let held = export.queue.lock().unwrap();
        (0..=MOST_KEPT as u16).for_each(|port| records.push(flow(port), &export));
        records.flush(&export, Duration::ZERO);
        drop(held);
        assert_eq!((export.lost_records(), records.0.len()), (1, MOST_KEPT));
    }
}
