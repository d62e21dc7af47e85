//! A table of neighbors and of the packets pending for them: the operations under its lock.
//!
//! Workers read the table without the lock through [`SharedView`].
use super::ether_text::format_dashed;
use super::neighbor::Neighbor;
use super::neighbor_index::{IndexWriter, NeighborIndex};
use artery_engine::names::Names;
use artery_engine::{Arg, ArgError, ArgValue, Args, HandlerError, Packet, Time};
use artery_rcu::Domain;
use artery_wire::EtherAddr;
use rtrb::Consumer;
use std::collections::{BTreeMap, HashMap, VecDeque};
use std::fmt::Write;
use std::net::Ipv4Addr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering::*, fence};
use std::time::Duration;

pub(super) const CAPACITY: Arg =
    Arg::keyword("CAPACITY", "packets", "2048", "most packets that wait; 0 means no limit");
pub(super) const ENTRY_CAPACITY: Arg =
    Arg::keyword("ENTRY_CAPACITY", "entries", "0", "most addresses; 0 means no limit");
pub(super) const ENTRY_PACKET_CAPACITY: Arg = Arg::keyword(
    "ENTRY_PACKET_CAPACITY",
    "packets",
    "0",
    "most packets that wait for one address; 0 means no limit",
);
pub(super) const CAPACITY_SLIM_FACTOR: Arg = Arg::keyword(
    "CAPACITY_SLIM_FACTOR",
    "number",
    "2",
    "one part in so many is dropped when CAPACITY is passed",
);
pub(super) const TIMEOUT: Arg =
    Arg::keyword("TIMEOUT", "time", "300", "how long an answer is good for; 0 is for ever");

/// Limits of a table; zero means unlimited.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ArpLimits {
    /// Most pending packets of all addresses.
    pub(crate) packets: usize,
    /// Most addresses in the table.
    pub(crate) entries: usize,
    /// Most pending packets for one address.
    pub(crate) entry_packets: usize,
    /// When there are too many packets, one part in so many of the limit is dropped.
    pub(crate) slim_factor: usize,
    /// How long an answer is good for.
    pub(crate) timeout: Duration,
}

impl ArpLimits {
    /// Reads the arguments that ARPTable and ARPQuerier have in common.
    pub(crate) fn from_args(args: &Args<'_>) -> Result<ArpLimits, ArgError> {
        let limits = ArpLimits {
            packets: args.read("CAPACITY")?,
            entries: args.read("ENTRY_CAPACITY")?,
            entry_packets: args.read("ENTRY_PACKET_CAPACITY")?,
            slim_factor: args.read("CAPACITY_SLIM_FACTOR")?,
            timeout: args.read("TIMEOUT")?,
        };
        if limits.slim_factor == 0 {
            return Err(ArgError::wrong("CAPACITY_SLIM_FACTOR cannot be zero"));
        }
        Ok(limits)
    }
}

/// The state that workers read without the lock.
pub(crate) struct SharedView {
    pub(crate) index: NeighborIndex,
    /// Grows with every change that may make an earlier answer wrong.
    pub(crate) generation: AtomicU64,
    /// Pending packets, without those still in a worker's ring.
    pub(crate) pending: AtomicUsize,
    /// Packets dropped because no answer came or no room was left.
    pub(crate) drops: AtomicU64,
}

/// A packet in a worker's ring, on its way into a table.
pub(crate) struct WaitingPacket {
    pub(crate) packet: Packet,
    /// Since when it waits.
    pub(crate) since: Time,
    /// The neighbor, which has counted the packet.
    pub(crate) neighbor: Arc<Neighbor>,
}

/// A neighbor's part of the table.
struct ArpEntry {
    neighbor: Arc<Neighbor>,
    held: VecDeque<Packet>,
    /// Its key among the entries by age.
    sequence: u64,
}

/// Neighbors by address, and packets that wait.
pub(crate) struct ArpTable {
    limits: ArpLimits,
    shared_view: Arc<SharedView>,
    index: IndexWriter,
    entries: HashMap<Ipv4Addr, ArpEntry>,
    by_age: BTreeMap<(Time, u64), Ipv4Addr>,
    sequence: u64,
    held: usize,
    /// Packets that were dropped; the caller discards them.
    victims: Vec<Packet>,
    /// The rings of workers, with packets that will wait here.
    arrivals: Vec<Consumer<WaitingPacket>>,
}

impl ArpTable {
    /// An empty table, and its view for readers.
    pub(crate) fn new(limits: ArpLimits, domain: &Arc<Domain>) -> (ArpTable, Arc<SharedView>) {
        let (writer, index) = IndexWriter::new(domain);
        let shown = Arc::new(SharedView {
            index,
            generation: AtomicU64::new(1),
            pending: AtomicUsize::new(0),
            drops: AtomicU64::new(0),
        });
        let table = ArpTable {
            limits,
            shared_view: shown.clone(),
            index: writer,
            entries: HashMap::new(),
            by_age: BTreeMap::new(),
            sequence: 0,
            held: 0,
            victims: Vec::new(),
            arrivals: Vec::new(),
        };
        (table, shown)
    }

    /// Adds the ring of one more worker.
    pub(crate) fn add_worker_ring(&mut self, arrivals: Consumer<WaitingPacket>) {
        self.arrivals.push(arrivals);
    }

    /// Moves packets from the workers' rings into the table.
    pub(crate) fn drain_arrivals(&mut self) {
        let mut arrivals = std::mem::take(&mut self.arrivals);
        for ring in &mut arrivals {
            for _ in 0..ring.slots() {
                ring.pop().into_iter().for_each(|waiting| self.hold_packet(waiting));
            }
        }
        arrivals.retain(|ring| !ring.is_abandoned() || !ring.is_empty());
        self.arrivals = arrivals;
    }

    /// Holds a packet until its neighbor has answered.
    pub(crate) fn hold_packet(&mut self, WaitingPacket { packet, since, neighbor }: WaitingPacket) {
        let ip = neighbor.ip;
        let Some(entry) = self.entries.get(&ip) else {
            // The neighbor was removed after the packet came: the packet is dropped.
            return self.drop_packets([packet]);
        };
        if !Arc::ptr_eq(&entry.neighbor, &neighbor) {
            entry.neighbor.reserve_places(1);
        }
        if entry.neighbor.is_expired(since, self.limits.timeout) {
            entry.neighbor.clear_address();
        }
        self.refresh_age(ip, since);
        self.held += 1;
        if self.limits.packets != 0 && self.held > self.limits.packets {
            self.trim_to_limits(since);
        }
        match self.entries.get_mut(&ip) {
            Some(entry) => entry.held.push_back(packet),
            None => {
                self.held -= 1;
                self.drop_packets([packet]);
            }
        }
    }

    /// The neighbor of this address, from now on if there was none.
    pub(crate) fn ensure_neighbor(&mut self, ip: Ipv4Addr, now: Time) -> Arc<Neighbor> {
        if let Some(entry) = self.entries.get(&ip) {
            return entry.neighbor.clone();
        }
        if self.limits.entries != 0 && self.entries.len() >= self.limits.entries {
            self.evict_entries(now, self.limits.entries - 1);
        }
        let neighbor = Arc::new(Neighbor::new(ip, now));
        self.add_entry(neighbor.clone(), VecDeque::new());
        neighbor
    }

    fn add_entry(&mut self, neighbor: Arc<Neighbor>, held: VecDeque<Packet>) {
        let sequence = self.next_sequence();
        self.by_age.insert((neighbor.live_at(), sequence), neighbor.ip);
        self.index.add(&neighbor);
        self.entries.insert(neighbor.ip, ArpEntry { neighbor, held, sequence });
    }

    fn next_sequence(&mut self) -> u64 {
        self.sequence += 1;
        self.sequence
    }

    /// Keeps an entry that is still used from expiring: its age is set to the timeout.
    fn refresh_age(&mut self, ip: Ipv4Addr, now: Time) {
        let oldest = now - self.limits.timeout;
        let is_older = |entry: &ArpEntry| entry.neighbor.live_at() < oldest;
        if !self.limits.timeout.is_zero() && self.entries.get(&ip).is_some_and(is_older) {
            self.set_age(ip, oldest);
        }
    }

    fn set_age(&mut self, ip: Ipv4Addr, live_at: Time) {
        let sequence = self.next_sequence();
        let Some(entry) = self.entries.get_mut(&ip) else { return };
        self.by_age.remove(&(entry.neighbor.live_at(), entry.sequence));
        entry.neighbor.set_live_at(live_at);
        entry.sequence = sequence;
        self.by_age.insert((live_at, sequence), ip);
    }

    /// Records a neighbor's address; the broadcast address is none.
    pub(crate) fn insert(&mut self, ip: Ipv4Addr, ether: EtherAddr, now: Time) {
        let neighbor = self.ensure_neighbor(ip, now);
        self.set_age(ip, now);
        if neighbor.set_ether(ether) {
            self.shared_view.generation.fetch_add(1, Release);
        }
    }

    /// Removes the packets pending for a neighbor, oldest first.
    ///
    /// A worker that holds a packet reads the neighbor once more afterwards: either it sees the answer that
    /// was recorded before this call, or this call sees the packet.
    pub(crate) fn release_packets(&mut self, ip: Ipv4Addr) -> VecDeque<Packet> {
        fence(SeqCst);
        self.drain_arrivals();
        let Some(entry) = self.entries.get_mut(&ip) else { return VecDeque::new() };
        let held = std::mem::take(&mut entry.held);
        entry.neighbor.release_places(held.len());
        self.held -= held.len();
        held
    }

    /// The address of a neighbor, if it has answered.
    pub(crate) fn known_address(&self, ip: Ipv4Addr, now: Time) -> Option<EtherAddr> {
        self.entries.get(&ip)?.neighbor.known_address(now, self.limits.timeout)
    }

    /// Removes what has expired, and packets when there are too many.
    pub(crate) fn trim_to_limits(&mut self, now: Time) {
        self.evict_entries(now, if self.limits.entries == 0 { usize::MAX } else { self.limits.entries });
        if self.limits.packets == 0 || self.held <= self.limits.packets {
            return;
        }
        let keep = (self.limits.packets - self.limits.packets / self.limits.slim_factor).max(1);
        for ip in self.by_age.values() {
            let Some(entry) = self.entries.get_mut(ip) else { continue };
            let surplus = self.held.saturating_sub(keep).min(entry.held.len());
            self.victims.extend(entry.held.drain(..surplus));
            entry.neighbor.release_places(surplus);
            self.held -= surplus;
            self.shared_view.drops.fetch_add(surplus as u64, Relaxed);
        }
    }

    /// Removes expired entries, and the oldest ones while there are more than `most`.
    fn evict_entries(&mut self, now: Time, most: usize) {
        while let Some(oldest) = self.by_age.first_entry() {
            let ip = *oldest.get();
            let is_expired = |entry: &ArpEntry| entry.neighbor.is_expired(now, self.limits.timeout);
            if !self.entries.get(&ip).is_none_or(is_expired) && self.entries.len() <= most {
                return;
            }
            oldest.remove();
            if let Some(entry) = self.entries.remove(&ip) {
                self.drop_entry(entry);
            }
        }
    }

    fn drop_entry(&mut self, entry: ArpEntry) {
        entry.neighbor.mark_removed();
        self.index.remove(entry.neighbor.ip);
        self.shared_view.generation.fetch_add(1, Release);
        self.held -= entry.held.len();
        self.drop_packets(entry.held);
    }

    fn drop_packets(&mut self, packets: impl IntoIterator<Item = Packet>) {
        let before = self.victims.len();
        self.victims.extend(packets);
        self.shared_view.drops.fetch_add((self.victims.len() - before) as u64, Relaxed);
    }

    /// Removes all entries and pending packets.
    pub(crate) fn clear(&mut self) {
        self.by_age.clear();
        for (_, entry) in std::mem::take(&mut self.entries) {
            self.drop_entry(entry);
        }
    }

    /// Moves everything from another table here, including packets that will still arrive there.
    pub(crate) fn restore_from(&mut self, old: &mut ArpTable) {
        self.arrivals.append(&mut old.arrivals);
        self.shared_view.drops.fetch_add(old.shared_view.drops.swap(0, Relaxed), Relaxed);
        self.held += std::mem::take(&mut old.held);
        self.victims.append(&mut old.victims);
        let mut entries = std::mem::take(&mut old.entries);
        for ip in std::mem::take(&mut old.by_age).into_values() {
            entries.remove(&ip).into_iter().for_each(|entry| self.restore_entry(entry));
        }
        self.shared_view.generation.fetch_add(1, Release);
    }

    fn restore_entry(&mut self, old: ArpEntry) {
        let ip = old.neighbor.ip;
        let Some(entry) = self.entries.get_mut(&ip) else { return self.add_entry(old.neighbor, old.held) };
        entry.neighbor.reserve_places(old.held.len());
        let later = std::mem::replace(&mut entry.held, old.held);
        entry.held.extend(later);
        old.neighbor.mark_removed();
        let ((ether, known), (_, is_known_here)) = (old.neighbor.last_answer(), entry.neighbor.last_answer());
        if known && !is_known_here {
            entry.neighbor.set_ether(ether);
            self.set_age(ip, old.neighbor.live_at());
        }
    }

    /// Publishes changes to readers.
    pub(crate) fn publish(&mut self) {
        self.index.publish(&self.shared_view.index);
        self.shared_view.pending.store(self.held, Release);
    }

    /// Packets dropped since the last call.
    pub(crate) fn drain_victims(&mut self) -> std::vec::Drain<'_, Packet> {
        self.victims.drain(..)
    }
    pub(crate) fn count(&self) -> usize {
        self.entries.len()
    }
    /// Number of packets that wait.
    pub(crate) fn len(&self) -> usize {
        self.held
    }

    /// One line an entry, oldest first: address, whether it is known, Ethernet address, age in seconds.
    pub(crate) fn describe_table(&self, now: Time) -> String {
        let mut text = String::new();
        for ip in self.by_age.values() {
            let Some(entry) = self.entries.get(ip) else { continue };
            let (ether, known) = entry.neighbor.last_answer();
            let known = known && !entry.neighbor.is_expired(now, self.limits.timeout);
            let (ether, age) = (format_dashed(ether), now.since(entry.neighbor.live_at()));
            let (seconds, micros) = (age.as_secs(), age.subsec_micros());
            let _ = writeln!(text, "{ip} {} {ether} {seconds}.{micros:06}", u8::from(known));
        }
        text
    }

    /// Writes the handler `insert`: `IP ETH`.
    pub(crate) fn write_insert(&mut self, text: &str, names: &Names, now: Time) -> Result<(), HandlerError> {
        let words: Vec<&str> = text.split_ascii_whitespace().collect();
        let [ip, ether] = words[..] else { return Err(HandlerError::refused("expected 'IP ETH'")) };
        self.insert(parse_address(ip, names)?, parse_value("ETH", ether, names)?, now);
        Ok(())
    }
    /// Writes the handler `delete`: `IP`.
    pub(crate) fn write_delete(&mut self, text: &str, names: &Names, now: Time) -> Result<(), HandlerError> {
        self.insert(parse_address(text.trim(), names)?, EtherAddr::BROADCAST, now);
        Ok(())
    }
}

fn parse_address(text: &str, names: &Names) -> Result<Ipv4Addr, HandlerError> {
    parse_value("IP", text, names)
}

fn parse_value<T: ArgValue>(arg: &str, text: &str, names: &Names) -> Result<T, HandlerError> {
    T::parse(text, names).map_err(|wants| HandlerError::refused(format!("{arg} wants {wants}, not '{text}'")))
}
