//! A table of neighbors for several elements, or copies of one on several workers.
//!
//! Packets take no lock: neighbors are found in a published index, and a packet for an unknown one goes into
//! a ring of its worker. The lock is for rare events: a new neighbor, a reply, a handler, a full ring,
//! packets beyond the limit. Whoever takes it empties the rings first, so that the table is complete.
use super::neighbor::Neighbor;
use super::neighbors::{ArpLimits, ArpTable, SharedView, WaitingPacket};
use artery_engine::names::Names;
use artery_engine::{Context, DropReason, HandlerError, StartError};
use artery_rcu::{Domain, Turn};
use rtrb::{Producer, PushError, RingBuffer};
use std::collections::HashMap;
use std::net::Ipv4Addr;
use std::sync::atomic::{Ordering::*, fence};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, Weak};
use std::time::Duration;

/// Capacity of a worker's ring, in packets.
const RING: usize = 128;

pub(crate) struct SharedTable {
    limits: ArpLimits,
    shown: Arc<SharedView>,
    table: Mutex<ArpTable>,
    /// The table that has replaced this one, for users that still hold this one.
    successor: OnceLock<Arc<SharedTable>>,
}

impl SharedTable {
    /// An empty table, read in the turns of `domain`.
    pub(crate) fn new(limits: ArpLimits, domain: &Arc<Domain>) -> SharedTable {
        let (table, shown) = ArpTable::new(limits, domain);
        SharedTable { limits, shown, table: Mutex::new(table), successor: OnceLock::new() }
    }

    /// Changes whenever an earlier answer may be wrong, and when there is a successor.
    #[inline]
    pub(crate) fn generation(&self) -> u64 {
        self.shown.generation.load(Acquire)
    }
    /// The entry of a neighbor.
    pub(crate) fn find_neighbor<'t>(&'t self, ip: Ipv4Addr, turn: &'t Turn<'_>) -> Option<&'t Arc<Neighbor>> {
        self.shown.index.find(ip, turn)
    }
    /// How long an answer is good for; zero is for ever.
    pub(crate) fn timeout(&self) -> Duration {
        self.limits.timeout
    }
    /// Most pending packets for one address; zero means unlimited.
    pub(crate) fn entry_packets(&self) -> usize {
        self.limits.entry_packets
    }
    /// Counts a packet that was dropped for lack of room.
    pub(crate) fn count_drop(&self) {
        self.shown.drops.fetch_add(1, Relaxed);
    }
    /// Number of packets dropped while pending.
    pub(crate) fn drop_count(&self) -> u64 {
        self.shown.drops.load(Relaxed)
    }

    /// Calls a function with the table under its lock, and discards the packets that are dropped meanwhile.
    pub(crate) fn with_table<R>(&self, cx: &mut Context<'_>, action: impl FnOnce(&mut ArpTable) -> R) -> R {
        self.change_table(action, |table| {
            table.drain_victims().for_each(|packet| cx.discard(packet, DropReason::NeighborUnresolved));
        })
    }
    fn change_table<R>(&self, action: impl FnOnce(&mut ArpTable) -> R, end: impl FnOnce(&mut ArpTable)) -> R {
        let mut table = self.lock();
        if let Some(successor) = self.successor.get() {
            drop(table);
            return successor.change_table(action, end);
        }
        table.drain_arrivals();
        let result = action(&mut table);
        table.publish();
        end(&mut table);
        result
    }
    fn lock(&self) -> MutexGuard<'_, ArpTable> {
        // A table is whole between any two of its statements: no panic can leave it half changed.
        self.table.lock().unwrap_or_else(|poisoned| poisoned.into_inner())
    }

    /// Sets the timer of the element that maintains the table.
    pub(crate) fn start_timer(&self, cx: &mut Context<'_>) -> Result<(), StartError> {
        if !self.timeout().is_zero() {
            let at = cx.now() + self.timeout();
            cx.wake_at(at);
        }
        Ok(())
    }
    /// Removes expired entries, when the timer of the element that maintains the table has fired.
    pub(crate) fn expire_and_rearm(&self, cx: &mut Context<'_>) -> bool {
        let now = cx.now();
        self.with_table(cx, |table| table.trim_to_limits(now));
        cx.wake_at(now + self.timeout() + Duration::from_secs(1));
        true
    }
    /// When the graph is replaced: discards the packets still pending here, unless there is a successor.
    pub(crate) fn discard_waiting(&self, cx: &mut Context<'_>) {
        if cx.is_replacing() && self.successor.get().is_none() {
            self.change_table(ArpTable::clear, |table| {
                table.drain_victims().for_each(|packet| cx.discard(packet, DropReason::Replaced));
            });
        }
    }

    /// The table that is used instead of this one, if there is one.
    pub(crate) fn successor(&self) -> Option<&Arc<SharedTable>> {
        let successor = self.successor.get()?;
        Some(successor.successor().unwrap_or(successor))
    }
    /// Moves everything from another table here, to which its users switch.
    pub(crate) fn restore_from(self: &Arc<Self>, old: &Arc<SharedTable>) {
        let old = old.successor().unwrap_or(old);
        if Arc::ptr_eq(self, old) {
            return;
        }
        let mut from = old.lock();
        // Another worker may have been first.
        if old.successor.get().is_none() {
            from.drain_arrivals();
            let mut to = self.lock();
            to.restore_from(&mut from);
            to.publish();
            old.successor.get_or_init(|| self.clone());
            old.shown.generation.fetch_add(1, Release);
        }
    }

    /// Writes the handler `insert`: `IP ETH`.
    pub(crate) fn write_insert(
        &self,
        text: &str,
        names: &Names,
        cx: &mut Context<'_>,
    ) -> Result<(), HandlerError> {
        let now = cx.now();
        self.with_table(cx, |table| table.write_insert(text, names, now))
    }
    /// Writes the handler `delete`: `IP`.
    pub(crate) fn write_delete(
        &self,
        text: &str,
        names: &Names,
        cx: &mut Context<'_>,
    ) -> Result<(), HandlerError> {
        let now = cx.now();
        self.with_table(cx, |table| table.write_delete(text, names, now))
    }
    /// Reads the handler `table`.
    pub(crate) fn describe_table(&self, cx: &mut Context<'_>) -> String {
        let now = cx.now();
        self.with_table(cx, |table| table.describe_table(now))
    }
    /// Reads the handler `count`: addresses.
    pub(crate) fn count_text(&self, cx: &mut Context<'_>) -> String {
        self.with_table(cx, |table| table.count()).to_string()
    }
    /// Reads the handler `length`: packets that wait.
    pub(crate) fn length_text(&self, cx: &mut Context<'_>) -> String {
        self.with_table(cx, |table| table.len()).to_string()
    }
}

/// One worker's ring for packets that are to wait in a table.
pub(crate) struct ArrivalQueue(Producer<WaitingPacket>);

/// The result of queueing a packet.
pub(crate) enum WaitOutcome {
    /// The packet waits for an answer.
    Begun,
    /// It waits, but the ring was full or the limit of pending packets may be exceeded: the caller takes the
    /// lock, which discards the excess.
    Crowded,
    /// The packet waits, and the answer has come meanwhile.
    Answered,
}

impl ArrivalQueue {
    /// Adds a ring to the table.
    pub(crate) fn new(table: &SharedTable) -> ArrivalQueue {
        let (producer, consumer) = RingBuffer::new(RING);
        table.change_table(|table| table.add_worker_ring(consumer), |_| ());
        ArrivalQueue(producer)
    }

    /// Queues a packet that has reserved its place. A reply that comes at the same time either finds
    /// it, or is found.
    pub(crate) fn push(&mut self, table: &SharedTable, waiting: WaitingPacket) -> WaitOutcome {
        let (neighbor, since) = (waiting.neighbor.clone(), waiting.since);
        let full = self.0.push(waiting).err();
        let was_full = full.is_some();
        if let Some(PushError::Full(waiting)) = full {
            table.change_table(|table| table.hold_packet(waiting), |_| ());
        }
        fence(SeqCst);
        if !neighbor.is_awaited(since, table.timeout()) {
            WaitOutcome::Answered
        } else if was_full || self.is_crowded(table) {
            WaitOutcome::Crowded
        } else {
            WaitOutcome::Begun
        }
    }
    fn is_crowded(&self, table: &SharedTable) -> bool {
        let limit = table.limits.packets;
        let here = RING - self.0.slots();
        limit != 0 && table.shown.pending.load(Relaxed) + here > limit
    }
}

/// The tables of ARPTable elements, by element name.
#[derive(Default)]
pub(crate) struct NamedTables(Mutex<HashMap<String, Weak<SharedTable>>>);

impl NamedTables {
    /// Registers a table by its name.
    pub(crate) fn insert(&self, name: &str, table: &Arc<SharedTable>) {
        let mut tables = self.0.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
        tables.retain(|_, table| table.strong_count() > 0);
        tables.insert(name.to_string(), Arc::downgrade(table));
    }
    /// The table of this element.
    pub(crate) fn get(&self, name: &str) -> Option<Arc<SharedTable>> {
        let tables = self.0.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
        tables.get(name).and_then(Weak::upgrade)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use artery_engine::{Pool, Time};
    use artery_wire::EtherAddr;
    use std::sync::Barrier;
    use std::sync::atomic::AtomicUsize;

    const ETHER: EtherAddr = EtherAddr([2, 0, 0, 0, 0, 9]);
    const NO_LIMITS: ArpLimits =
        ArpLimits { packets: 0, entries: 0, entry_packets: 0, slim_factor: 2, timeout: Duration::ZERO };

    fn address(n: u32) -> Ipv4Addr {
        Ipv4Addr::from_bits(0x0a00_0000 + n)
    }

    /// Processes a packet as a querier does, and returns how many packets that releases.
    fn pass(
        table: &SharedTable,
        line: &mut ArrivalQueue,
        pool: &'static Pool,
        ip: Ipv4Addr,
        turn: &Turn<'_>,
    ) -> usize {
        let (packet, since) = (pool.packet_from(b"packet").unwrap(), Time::ZERO);
        let found = table.find_neighbor(ip, turn).cloned();
        if found.as_ref().is_some_and(|neighbor| neighbor.known_address(since, Duration::ZERO).is_some()) {
            return 1;
        }
        let neighbor =
            found.unwrap_or_else(|| table.change_table(|table| table.ensure_neighbor(ip, since), |_| ()));
        assert!(neighbor.claim_place(0));
        match line.push(table, WaitingPacket { packet, since, neighbor }) {
            WaitOutcome::Answered => table.change_table(|table| table.release_packets(ip).len(), |_| ()),
            WaitOutcome::Begun | WaitOutcome::Crowded => 0,
        }
    }

    /// Two workers send to neighbors that answer to a third at about the same time; the table may be replaced
    /// by another in between. At the end of each round no packet waits.
    fn nothing_is_left_waiting(pool: &'static Pool, replace: bool) {
        const ROUNDS: u32 = 500;
        const PACKETS: usize = 8;
        let domain = Domain::new();
        let first = Arc::new(SharedTable::new(NO_LIMITS, &domain));
        let (barrier, passed) = (Barrier::new(3), AtomicUsize::new(0));
        let mut left_waiting = 0;
        let worker = || {
            let (mut reader, mut table) = (domain.reader(), first.clone());
            let mut line = ArrivalQueue::new(&table);
            for round in 0..ROUNDS {
                barrier.wait();
                for _ in 0..PACKETS {
                    table = table.successor().unwrap_or(&table).clone();
                    let sent = pass(&table, &mut line, pool, address(round), &reader.turn());
                    passed.fetch_add(sent, SeqCst);
                }
                reader.park();
                barrier.wait();
            }
        };
        std::thread::scope(|scope| {
            scope.spawn(worker);
            scope.spawn(worker);
            let mut table = first.clone();
            for round in 0..ROUNDS {
                barrier.wait();
                (0..round % 50 * 20).for_each(|_| std::hint::spin_loop());
                if replace {
                    let next = Arc::new(SharedTable::new(NO_LIMITS, &domain));
                    next.restore_from(&table);
                    table = next;
                }
                let answer = |table: &mut ArpTable| {
                    table.insert(address(round), ETHER, Time::ZERO);
                    table.release_packets(address(round)).len()
                };
                passed.fetch_add(table.change_table(answer, |_| ()), SeqCst);
                barrier.wait();
                left_waiting +=
                    table.change_table(|table| table.release_packets(address(round)).len(), |_| ());
            }
        });
        assert_eq!((left_waiting, passed.into_inner()), (0, 2 * PACKETS * ROUNDS as usize));
    }

    #[test]
    fn packets_for_a_neighbor_that_was_asked_for_wait_for_no_lock() {
        let (domain, pool) = (Domain::new(), Pool::new(256, 1).unwrap());
        let table = SharedTable::new(NO_LIMITS, &domain);
        let (mut line, mut reader) = (ArrivalQueue::new(&table), domain.reader());
        assert_eq!(pass(&table, &mut line, pool, address(1), &reader.turn()), 0);
        let locked = table.lock();
        for _ in 1..RING {
            assert_eq!(pass(&table, &mut line, pool, address(1), &reader.turn()), 0);
        }
        drop(locked);
        assert_eq!(table.change_table(|table| table.release_packets(address(1)).len(), |_| ()), RING);
    }

    #[test]
    fn an_answer_finds_the_packets_that_wait_or_is_found_by_them() {
        nothing_is_left_waiting(Pool::new(256, 1).unwrap(), false);
    }

    #[test]
    fn a_table_taken_over_in_the_midst_of_work_loses_no_packet() {
        nothing_is_left_waiting(Pool::new(256, 1).unwrap(), true);
    }

    #[test]
    fn a_table_in_use_before_it_takes_over_keeps_the_better_of_two_answers_and_all_packets() {
        let (domain, pool) = (Domain::new(), Pool::new(16, 1).unwrap());
        let tables = [(); 2].map(|()| Arc::new(SharedTable::new(NO_LIMITS, &domain)));
        let mut reader = domain.reader();
        let [old, new] = &tables;
        old.change_table(|table| table.insert(address(1), ETHER, Time::new(5, 0)), |_| ());
        for table in [old, new] {
            let mut line = ArrivalQueue::new(table);
            assert_eq!(pass(table, &mut line, pool, address(2), &reader.turn()), 0);
        }
        new.change_table(|table| table.ensure_neighbor(address(1), Time::new(7, 0)), |_| ());
        new.restore_from(old);
        let now = Time::new(8, 0);
        let text = "10.0.0.2 0 FF-FF-FF-FF-FF-FF 8.000000\n10.0.0.1 1 02-00-00-00-00-09 3.000000\n";
        assert_eq!(old.change_table(|table| table.describe_table(now), |_| ()), text);
        assert_eq!(new.change_table(|table| table.release_packets(address(2)).len(), |_| ()), 2);
        assert_eq!(new.change_table(|table| table.len(), |_| ()), 0);
    }
}
