//! A table of neighbors and of the packets that wait for an answer from them: what is done under its lock.
//!
//! What workers see without the lock, they see in [`Shown`].
use super::ether_text::dashed;
use super::neighbor::Neighbor;
use super::neighbor_index::{IndexWriter, NeighborIndex};
use artery_engine::names::Names;
use artery_engine::{ArgError, ArgValue, Args, HandlerError, Packet, Time};
use artery_rcu::Domain;
use artery_wire::EtherAddr;
use rtrb::Consumer;
use std::collections::{BTreeMap, HashMap, VecDeque};
use std::fmt::Write;
use std::net::Ipv4Addr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering::*, fence};
use std::time::Duration;

/// What a table may hold. Zero is no limit.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Limits {
    /// Packets that wait.
    pub(crate) packets: usize,
    /// Addresses.
    pub(crate) entries: usize,
    /// Packets that wait for one address.
    pub(crate) entry_packets: usize,
    /// When there are too many packets, so much less than all of them are kept: one part in so many goes.
    pub(crate) slim_factor: usize,
    /// How long an answer is good for.
    pub(crate) timeout: Duration,
}

impl Limits {
    /// Reads the arguments that ARPTable and ARPQuerier have in common.
    pub(crate) fn read(args: &Args<'_>) -> Result<Limits, ArgError> {
        let limits = Limits {
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

/// What everyone sees without the lock.
pub(crate) struct Shown {
    /// The neighbors.
    pub(crate) index: NeighborIndex,
    /// Grows with everything that makes an answer given before wrong.
    pub(crate) generation: AtomicU64,
    /// Packets that wait, but for those on their way into the table.
    pub(crate) held: AtomicUsize,
    /// Packets that waited in vain.
    pub(crate) drops: AtomicU64,
}

/// A packet on its way into a table, where it will wait.
pub(crate) struct Waiting {
    /// It.
    pub(crate) packet: Packet,
    /// Since when it waits.
    pub(crate) since: Time,
    /// For whom, who has counted it.
    pub(crate) neighbor: Arc<Neighbor>,
}

/// A neighbor's part of the table.
struct Entry {
    neighbor: Arc<Neighbor>,
    held: VecDeque<Packet>,
    /// Its place among the entries by age.
    sequence: u64,
}

/// Neighbors by address, and packets that wait.
pub(crate) struct ArpTable {
    limits: Limits,
    shown: Arc<Shown>,
    index: IndexWriter,
    entries: HashMap<Ipv4Addr, Entry>,
    by_age: BTreeMap<(Time, u64), Ipv4Addr>,
    sequence: u64,
    held: usize,
    /// Packets that lost their place; whoever called takes them.
    victims: Vec<Packet>,
    /// Where workers put packets that are to wait here.
    arrivals: Vec<Consumer<Waiting>>,
}

impl ArpTable {
    /// An empty table, and what everyone sees of it.
    pub(crate) fn new(limits: Limits, domain: &Arc<Domain>) -> (ArpTable, Arc<Shown>) {
        let (writer, index) = IndexWriter::new(domain);
        let shown = Arc::new(Shown {
            index,
            generation: AtomicU64::new(1),
            held: AtomicUsize::new(0),
            drops: AtomicU64::new(0),
        });
        let table = ArpTable {
            limits,
            shown: shown.clone(),
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

    /// Takes packets from one more worker.
    pub(crate) fn take_from(&mut self, arrivals: Consumer<Waiting>) {
        self.arrivals.push(arrivals);
    }

    /// Takes in the packets that workers want to wait here.
    pub(crate) fn drain(&mut self) {
        let mut arrivals = std::mem::take(&mut self.arrivals);
        for ring in &mut arrivals {
            for _ in 0..ring.slots() {
                ring.pop().into_iter().for_each(|waiting| self.hold(waiting));
            }
        }
        arrivals.retain(|ring| !ring.is_abandoned() || !ring.is_empty());
        self.arrivals = arrivals;
    }

    /// Keeps a packet until its neighbor has answered.
    pub(crate) fn hold(&mut self, Waiting { packet, since, neighbor }: Waiting) {
        let ip = neighbor.ip;
        let Some(entry) = self.entries.get(&ip) else {
            // It left the table after the packet came: the packet goes with it.
            return self.drop_packets([packet]);
        };
        if !Arc::ptr_eq(&entry.neighbor, &neighbor) {
            entry.neighbor.take_places(1);
        }
        if entry.neighbor.is_expired(since, self.limits.timeout) {
            entry.neighbor.forget();
        }
        self.keep_alive(ip, since);
        self.held += 1;
        if self.limits.packets != 0 && self.held > self.limits.packets {
            self.slim(since);
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
    pub(crate) fn ensure(&mut self, ip: Ipv4Addr, now: Time) -> Arc<Neighbor> {
        if let Some(entry) = self.entries.get(&ip) {
            return entry.neighbor.clone();
        }
        if self.limits.entries != 0 && self.entries.len() >= self.limits.entries {
            self.evict(now, self.limits.entries - 1);
        }
        let neighbor = Arc::new(Neighbor::new(ip, now));
        self.add(neighbor.clone(), VecDeque::new());
        neighbor
    }

    fn add(&mut self, neighbor: Arc<Neighbor>, held: VecDeque<Packet>) {
        let sequence = self.next_sequence();
        self.by_age.insert((neighbor.live_at(), sequence), neighbor.ip);
        self.index.add(&neighbor);
        self.entries.insert(neighbor.ip, Entry { neighbor, held, sequence });
    }

    fn next_sequence(&mut self) -> u64 {
        self.sequence += 1;
        self.sequence
    }

    /// An entry that packets are still sent to stays just this side of expiring.
    fn keep_alive(&mut self, ip: Ipv4Addr, now: Time) {
        let oldest = now - self.limits.timeout;
        let is_older = |entry: &Entry| entry.neighbor.live_at() < oldest;
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
        let neighbor = self.ensure(ip, now);
        self.set_age(ip, now);
        if neighbor.set_ether(ether) {
            self.shown.generation.fetch_add(1, Release);
        }
    }

    /// Takes the packets that wait for a neighbor, oldest first.
    ///
    /// A worker that lets a packet wait looks at the neighbor once more afterwards: either it sees the answer that was
    /// recorded before this call, or the packet is seen here.
    pub(crate) fn take_held(&mut self, ip: Ipv4Addr) -> VecDeque<Packet> {
        fence(SeqCst);
        self.drain();
        let Some(entry) = self.entries.get_mut(&ip) else { return VecDeque::new() };
        let held = std::mem::take(&mut entry.held);
        entry.neighbor.leave_places(held.len());
        self.held -= held.len();
        held
    }

    /// The address of a neighbor, if it has answered.
    pub(crate) fn known(&self, ip: Ipv4Addr, now: Time) -> Option<EtherAddr> {
        self.entries.get(&ip)?.neighbor.known(now, self.limits.timeout)
    }

    /// Removes what has expired, and packets when there are too many.
    pub(crate) fn slim(&mut self, now: Time) {
        self.evict(now, if self.limits.entries == 0 { usize::MAX } else { self.limits.entries });
        if self.limits.packets == 0 || self.held <= self.limits.packets {
            return;
        }
        let keep = (self.limits.packets - self.limits.packets / self.limits.slim_factor).max(1);
        for ip in self.by_age.values() {
            let Some(entry) = self.entries.get_mut(ip) else { continue };
            let surplus = self.held.saturating_sub(keep).min(entry.held.len());
            self.victims.extend(entry.held.drain(..surplus));
            entry.neighbor.leave_places(surplus);
            self.held -= surplus;
            self.shown.drops.fetch_add(surplus as u64, Relaxed);
        }
    }

    /// Removes expired entries, and the oldest ones while there are more than `most`.
    fn evict(&mut self, now: Time, most: usize) {
        while let Some(oldest) = self.by_age.first_entry() {
            let ip = *oldest.get();
            let is_expired = |entry: &Entry| entry.neighbor.is_expired(now, self.limits.timeout);
            if !self.entries.get(&ip).is_none_or(is_expired) && self.entries.len() <= most {
                return;
            }
            oldest.remove();
            if let Some(entry) = self.entries.remove(&ip) {
                self.drop_entry(entry);
            }
        }
    }

    fn drop_entry(&mut self, entry: Entry) {
        entry.neighbor.leave();
        self.index.remove(entry.neighbor.ip);
        self.shown.generation.fetch_add(1, Release);
        self.held -= entry.held.len();
        self.drop_packets(entry.held);
    }

    fn drop_packets(&mut self, packets: impl IntoIterator<Item = Packet>) {
        let before = self.victims.len();
        self.victims.extend(packets);
        self.shown.drops.fetch_add((self.victims.len() - before) as u64, Relaxed);
    }

    /// Forgets everything.
    pub(crate) fn clear(&mut self) {
        self.by_age.clear();
        for (_, entry) in std::mem::take(&mut self.entries) {
            self.drop_entry(entry);
        }
    }

    /// Takes over all that another table holds, and the packets that will still come to it.
    pub(crate) fn adopt(&mut self, old: &mut ArpTable) {
        self.arrivals.append(&mut old.arrivals);
        self.shown.drops.fetch_add(old.shown.drops.swap(0, Relaxed), Relaxed);
        self.held += std::mem::take(&mut old.held);
        self.victims.append(&mut old.victims);
        let mut entries = std::mem::take(&mut old.entries);
        for ip in std::mem::take(&mut old.by_age).into_values() {
            entries.remove(&ip).into_iter().for_each(|entry| self.adopt_entry(entry));
        }
        self.shown.generation.fetch_add(1, Release);
    }

    fn adopt_entry(&mut self, old: Entry) {
        let ip = old.neighbor.ip;
        let Some(entry) = self.entries.get_mut(&ip) else { return self.add(old.neighbor, old.held) };
        entry.neighbor.take_places(old.held.len());
        let later = std::mem::replace(&mut entry.held, old.held);
        entry.held.extend(later);
        old.neighbor.leave();
        let ((ether, known), (_, is_known_here)) = (old.neighbor.last_answer(), entry.neighbor.last_answer());
        if known && !is_known_here {
            entry.neighbor.set_ether(ether);
            self.set_age(ip, old.neighbor.live_at());
        }
    }

    /// Shows everyone what has changed.
    pub(crate) fn publish(&mut self) {
        self.index.publish(&self.shown.index);
        self.shown.held.store(self.held, Release);
    }

    /// Packets that lost their place since the last call.
    pub(crate) fn victims(&mut self) -> std::vec::Drain<'_, Packet> {
        self.victims.drain(..)
    }
    /// Number of addresses.
    pub(crate) fn count(&self) -> usize {
        self.entries.len()
    }
    /// Number of packets that wait.
    pub(crate) fn len(&self) -> usize {
        self.held
    }

    /// One line an entry, oldest first: address, whether it is known, Ethernet address, age in seconds.
    pub(crate) fn describe(&self, now: Time) -> String {
        let mut text = String::new();
        for ip in self.by_age.values() {
            let Some(entry) = self.entries.get(ip) else { continue };
            let (ether, known) = entry.neighbor.last_answer();
            let known = known && !entry.neighbor.is_expired(now, self.limits.timeout);
            let (ether, age) = (dashed(ether), now.since(entry.neighbor.live_at()));
            let (seconds, micros) = (age.as_secs(), age.subsec_micros());
            let _ = writeln!(text, "{ip} {} {ether} {seconds}.{micros:06}", u8::from(known));
        }
        text
    }

    /// Writes the handler `insert`: `IP ETH`.
    pub(crate) fn write_insert(&mut self, text: &str, names: &Names, now: Time) -> Result<(), HandlerError> {
        let words: Vec<&str> = text.split_ascii_whitespace().collect();
        let [ip, ether] = words[..] else { return Err(HandlerError::refused("expected 'IP ETH'")) };
        self.insert(address(ip, names)?, read("ETH", ether, names)?, now);
        Ok(())
    }
    /// Writes the handler `delete`: `IP`.
    pub(crate) fn write_delete(&mut self, text: &str, names: &Names, now: Time) -> Result<(), HandlerError> {
        self.insert(address(text.trim(), names)?, EtherAddr::BROADCAST, now);
        Ok(())
    }
}

fn address(text: &str, names: &Names) -> Result<Ipv4Addr, HandlerError> {
    read("IP", text, names)
}

fn read<T: ArgValue>(arg: &str, text: &str, names: &Names) -> Result<T, HandlerError> {
    T::parse(text, names).map_err(|wants| HandlerError::refused(format!("{arg} wants {wants}, not '{text}'")))
}
