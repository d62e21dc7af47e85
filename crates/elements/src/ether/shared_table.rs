//! A table of neighbors that several elements, or copies of one on several workers, use.
//!
//! Packets take no lock: neighbors are found in a published index, and a packet for one that is not known goes into a
//! ring of its worker's. The lock is for what is rare: a new neighbor, a reply, a handler, a ring that is full, packets
//! beyond the limit. Whoever takes it empties the rings first, so that the table is whole.
use super::neighbor::Neighbor;
use super::neighbors::{ArpTable, Limits, Shown, Waiting};
use artery_engine::names::Names;
use artery_engine::{Context, DropReason, HandlerError, StartError};
use artery_rcu::{Domain, Turn};
use rtrb::{Producer, PushError, RingBuffer};
use std::collections::HashMap;
use std::net::Ipv4Addr;
use std::sync::atomic::{Ordering::*, fence};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, Weak};
use std::time::Duration;

/// Packets that can be on one worker's way into the table.
const RING: usize = 128;

/// See the module.
pub(crate) struct SharedTable {
    limits: Limits,
    shown: Arc<Shown>,
    table: Mutex<ArpTable>,
    /// The table that has taken over all of this one, for users who have not heard of it.
    heir: OnceLock<Arc<SharedTable>>,
}

impl SharedTable {
    /// An empty table, read in the turns of `domain`.
    pub(crate) fn new(limits: Limits, domain: &Arc<Domain>) -> SharedTable {
        let (table, shown) = ArpTable::new(limits, domain);
        SharedTable { limits, shown, table: Mutex::new(table), heir: OnceLock::new() }
    }

    /// Changes whenever an answer given before may be wrong, and when there is an heir.
    #[inline]
    pub(crate) fn generation(&self) -> u64 {
        self.shown.generation.load(Acquire)
    }
    /// What is known of a neighbor.
    pub(crate) fn find<'t>(&'t self, ip: Ipv4Addr, turn: &'t Turn<'_>) -> Option<&'t Arc<Neighbor>> {
        self.shown.index.find(ip, turn)
    }
    /// How long an answer is good for; zero is for ever.
    pub(crate) fn timeout(&self) -> Duration {
        self.limits.timeout
    }
    /// Most packets that wait for one address; zero is no limit.
    pub(crate) fn entry_packets(&self) -> usize {
        self.limits.entry_packets
    }
    /// Counts a packet that finds no place to wait.
    pub(crate) fn count_drop(&self) {
        self.shown.drops.fetch_add(1, Relaxed);
    }
    /// Number of packets that waited in vain.
    pub(crate) fn drops(&self) -> u64 {
        self.shown.drops.load(Relaxed)
    }

    /// Does something with the table under its lock; what loses its place meanwhile is discarded.
    pub(crate) fn with<R>(&self, cx: &mut Context<'_>, action: impl FnOnce(&mut ArpTable) -> R) -> R {
        self.change(action, |table| {
            table.victims().for_each(|packet| cx.discard(packet, DropReason::NeighborUnresolved));
        })
    }
    fn change<R>(&self, action: impl FnOnce(&mut ArpTable) -> R, end: impl FnOnce(&mut ArpTable)) -> R {
        let mut table = self.lock();
        if let Some(heir) = self.heir.get() {
            drop(table);
            return heir.change(action, end);
        }
        table.drain();
        let result = action(&mut table);
        table.publish();
        end(&mut table);
        result
    }
    fn lock(&self) -> MutexGuard<'_, ArpTable> {
        // A table is whole between any two of its statements: no panic can leave it half changed.
        self.table.lock().unwrap_or_else(|poisoned| poisoned.into_inner())
    }

    /// Sets the timer of the element that looks after the table.
    pub(crate) fn start(&self, cx: &mut Context<'_>) -> Result<(), StartError> {
        if !self.timeout().is_zero() {
            let at = cx.now() + self.timeout();
            cx.wake_at(at);
        }
        Ok(())
    }
    /// Removes what has expired, when the timer of the element that looks after the table has gone off.
    pub(crate) fn run(&self, cx: &mut Context<'_>) -> bool {
        let now = cx.now();
        self.with(cx, |table| table.slim(now));
        cx.wake_at(now + self.timeout() + Duration::from_secs(1));
        true
    }
    /// When the graph is replaced: ends the packets that wait here still, unless there is an heir.
    pub(crate) fn stop(&self, cx: &mut Context<'_>) {
        if cx.is_replacing() && self.heir.get().is_none() {
            self.change(ArpTable::clear, |table| {
                table.victims().for_each(|packet| cx.discard(packet, DropReason::Replaced));
            });
        }
    }

    /// The table that is used instead of this one, if there is one.
    pub(crate) fn heir(&self) -> Option<&Arc<SharedTable>> {
        let heir = self.heir.get()?;
        Some(heir.heir().unwrap_or(heir))
    }
    /// Takes over all of another table, whose users find everything here from now on.
    pub(crate) fn adopt(self: &Arc<Self>, old: &Arc<SharedTable>) {
        let old = old.heir().unwrap_or(old);
        if Arc::ptr_eq(self, old) {
            return;
        }
        let mut from = old.lock();
        // Another worker may have been first.
        if old.heir.get().is_none() {
            from.drain();
            let mut to = self.lock();
            to.adopt(&mut from);
            to.publish();
            old.heir.get_or_init(|| self.clone());
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
        self.with(cx, |table| table.write_insert(text, names, now))
    }
    /// Writes the handler `delete`: `IP`.
    pub(crate) fn write_delete(
        &self,
        text: &str,
        names: &Names,
        cx: &mut Context<'_>,
    ) -> Result<(), HandlerError> {
        let now = cx.now();
        self.with(cx, |table| table.write_delete(text, names, now))
    }
    /// Reads the handler `table`.
    pub(crate) fn describe(&self, cx: &mut Context<'_>) -> String {
        let now = cx.now();
        self.with(cx, |table| table.describe(now))
    }
    /// Reads the handler `count`: addresses.
    pub(crate) fn count(&self, cx: &mut Context<'_>) -> String {
        self.with(cx, |table| table.count()).to_string()
    }
    /// Reads the handler `length`: packets that wait.
    pub(crate) fn length(&self, cx: &mut Context<'_>) -> String {
        self.with(cx, |table| table.len()).to_string()
    }
}

/// One worker's way into a table, for packets that are to wait there.
pub(crate) struct WaitingLine(Producer<Waiting>);

/// What became of a packet that was to wait.
pub(crate) enum Wait {
    /// It waits for an answer.
    Begun,
    /// It waits, and so do too many, or as many as was feared: whoever waits in vain is to be discarded.
    Crowded,
    /// It waits, and the answer has come meanwhile.
    Answered,
}

impl WaitingLine {
    /// A way into the table.
    pub(crate) fn new(table: &SharedTable) -> WaitingLine {
        let (producer, consumer) = RingBuffer::new(RING);
        table.change(|table| table.take_from(consumer), |_| ());
        WaitingLine(producer)
    }

    /// Lets a packet wait that has taken its place. A reply that comes at the same time either finds it, or is found.
    pub(crate) fn push(&mut self, table: &SharedTable, waiting: Waiting) -> Wait {
        let (neighbor, since) = (waiting.neighbor.clone(), waiting.since);
        let full = self.0.push(waiting).err();
        let was_full = full.is_some();
        if let Some(PushError::Full(waiting)) = full {
            table.change(|table| table.hold(waiting), |_| ());
        }
        fence(SeqCst);
        if !neighbor.is_awaited(since, table.timeout()) {
            Wait::Answered
        } else if was_full || self.is_crowded(table) {
            Wait::Crowded
        } else {
            Wait::Begun
        }
    }
    fn is_crowded(&self, table: &SharedTable) -> bool {
        let limit = table.limits.packets;
        let here = RING - self.0.slots();
        limit != 0 && table.shown.held.load(Relaxed) + here > limit
    }
}

/// The tables of ARPTable elements, by element name.
#[derive(Default)]
pub(crate) struct NamedTables(Mutex<HashMap<String, Weak<SharedTable>>>);

impl NamedTables {
    /// Makes a table known.
    pub(crate) fn put(&self, name: &str, table: &Arc<SharedTable>) {
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
    const NO_LIMITS: Limits =
        Limits { packets: 0, entries: 0, entry_packets: 0, slim_factor: 2, timeout: Duration::ZERO };

    fn address(n: u32) -> Ipv4Addr {
        Ipv4Addr::from_bits(0x0a00_0000 + n)
    }

    /// Does to a packet what a querier does, and returns how many packets that lets go.
    fn pass(
        table: &SharedTable,
        line: &mut WaitingLine,
        pool: &'static Pool,
        ip: Ipv4Addr,
        turn: &Turn<'_>,
    ) -> usize {
        let (packet, since) = (pool.packet_from(b"packet").unwrap(), Time::ZERO);
        let found = table.find(ip, turn).cloned();
        if found.as_ref().is_some_and(|neighbor| neighbor.known(since, Duration::ZERO).is_some()) {
            return 1;
        }
        let neighbor = found.unwrap_or_else(|| table.change(|table| table.ensure(ip, since), |_| ()));
        assert!(neighbor.claim_place(0));
        match line.push(table, Waiting { packet, since, neighbor }) {
            Wait::Answered => table.change(|table| table.take_held(ip).len(), |_| ()),
            Wait::Begun | Wait::Crowded => 0,
        }
    }

    /// Two workers send to neighbors that answer to a third at about the same time; the table may be replaced by
    /// another in between. At the end of each round no packet waits.
    fn nothing_is_left_waiting(pool: &'static Pool, replace: bool) {
        const ROUNDS: u32 = 500;
        const PACKETS: usize = 8;
        let domain = Domain::new();
        let first = Arc::new(SharedTable::new(NO_LIMITS, &domain));
        let (barrier, passed) = (Barrier::new(3), AtomicUsize::new(0));
        let mut left_waiting = 0;
        let worker = || {
            let (mut reader, mut table) = (domain.reader(), first.clone());
            let mut line = WaitingLine::new(&table);
            for round in 0..ROUNDS {
                barrier.wait();
                for _ in 0..PACKETS {
                    table = table.heir().unwrap_or(&table).clone();
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
                    next.adopt(&table);
                    table = next;
                }
                let answer = |table: &mut ArpTable| {
                    table.insert(address(round), ETHER, Time::ZERO);
                    table.take_held(address(round)).len()
                };
                passed.fetch_add(table.change(answer, |_| ()), SeqCst);
                barrier.wait();
                left_waiting += table.change(|table| table.take_held(address(round)).len(), |_| ());
            }
        });
        assert_eq!((left_waiting, passed.into_inner()), (0, 2 * PACKETS * ROUNDS as usize));
    }

    #[test]
    fn packets_for_a_neighbor_that_was_asked_for_wait_for_no_lock() {
        let (domain, pool) = (Domain::new(), Pool::new(256, 1).unwrap());
        let table = SharedTable::new(NO_LIMITS, &domain);
        let (mut line, mut reader) = (WaitingLine::new(&table), domain.reader());
        assert_eq!(pass(&table, &mut line, pool, address(1), &reader.turn()), 0);
        let locked = table.lock();
        for _ in 1..RING {
            assert_eq!(pass(&table, &mut line, pool, address(1), &reader.turn()), 0);
        }
        drop(locked);
        assert_eq!(table.change(|table| table.take_held(address(1)).len(), |_| ()), RING);
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
        old.change(|table| table.insert(address(1), ETHER, Time::new(5, 0)), |_| ());
        for table in [old, new] {
            let mut line = WaitingLine::new(table);
            assert_eq!(pass(table, &mut line, pool, address(2), &reader.turn()), 0);
        }
        new.change(|table| table.ensure(address(1), Time::new(7, 0)), |_| ());
        new.adopt(old);
        let now = Time::new(8, 0);
        let text = "10.0.0.2 0 FF-FF-FF-FF-FF-FF 8.000000\n10.0.0.1 1 02-00-00-00-00-09 3.000000\n";
        assert_eq!(old.change(|table| table.describe(now), |_| ()), text);
        assert_eq!(new.change(|table| table.take_held(address(2)).len(), |_| ()), 2);
        assert_eq!(new.change(|table| table.len(), |_| ()), 0);
    }
}
