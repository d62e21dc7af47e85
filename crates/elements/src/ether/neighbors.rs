//! What is known of neighbors, and the packets that wait for an answer from them.
use super::ether_text::dashed;
use artery_engine::names::Names;
use artery_engine::{ArgError, ArgValue, Args, Context, DropReason, HandlerError, Packet, Time};
use artery_wire::EtherAddr;
use std::collections::{BTreeMap, HashMap, VecDeque};
use std::fmt::Write;
use std::net::Ipv4Addr;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, Weak};
use std::time::Duration;

/// Shortest time between two queries for one address, and the same when ten have gone unanswered.
const QUERY_INTERVAL: Duration = Duration::from_millis(100);
const SLOW_QUERY_INTERVAL: Duration = Duration::from_secs(2);
const QUICK_QUERIES: u8 = 10;

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

/// What is known of one neighbor.
struct Entry {
    ether: EtherAddr,
    known: bool,
    /// When it last answered, or was first asked for.
    live_at: Time,
    polled_at: Option<Time>,
    polls_since_reply: u8,
    held: VecDeque<Packet>,
    /// Its place among the entries by age.
    sequence: u64,
}

impl Entry {
    fn is_expired(&self, now: Time, timeout: Duration) -> bool {
        !timeout.is_zero() && self.live_at + timeout < now
    }
    fn next_poll(&self) -> Time {
        let tired = self.polls_since_reply >= QUICK_QUERIES;
        let interval = if tired { SLOW_QUERY_INTERVAL } else { QUERY_INTERVAL };
        self.polled_at.map_or(Time::ZERO, |polled| polled + interval)
    }
    fn mark_poll(&mut self, now: Time) {
        self.polled_at = Some(now);
        self.polls_since_reply = self.polls_since_reply.saturating_add(1);
    }
}

/// A neighbor's address.
pub(crate) struct Known {
    /// It.
    pub(crate) ether: EtherAddr,
    /// Whether to ask again, so that it stays known.
    pub(crate) poll: bool,
    /// Until when this answer would be the same.
    pub(crate) until: Time,
}

/// What became of a packet whose neighbor is not known.
#[derive(Debug)]
pub(crate) enum Held {
    /// It waits, and a query is due.
    Query,
    /// It waits, or is among the victims.
    Waiting,
}

/// Neighbors by address, and packets that wait.
pub(crate) struct ArpTable {
    limits: Limits,
    entries: HashMap<Ipv4Addr, Entry>,
    by_age: BTreeMap<(Time, u64), Ipv4Addr>,
    sequence: u64,
    held: usize,
    drops: u64,
    /// Packets that lost their place; whoever called takes them.
    victims: Vec<Packet>,
    /// Grows with everything that makes an answer given before wrong.
    changes: u64,
}

impl ArpTable {
    fn new(limits: Limits) -> ArpTable {
        ArpTable {
            limits,
            entries: HashMap::new(),
            by_age: BTreeMap::new(),
            sequence: 0,
            held: 0,
            drops: 0,
            victims: Vec::new(),
            changes: 1,
        }
    }

    /// The address of a neighbor that has answered. It is asked again when `poll_timeout` has passed since; zero
    /// is never.
    pub(crate) fn lookup(&mut self, ip: Ipv4Addr, now: Time, poll_timeout: Duration) -> Option<Known> {
        let timeout = self.limits.timeout;
        let entry =
            self.entries.get_mut(&ip).filter(|entry| entry.known && !entry.is_expired(now, timeout))?;
        let expires = if timeout.is_zero() { Time::NEVER } else { entry.live_at + timeout };
        let mut next_poll = entry.next_poll().max(entry.live_at + poll_timeout);
        let poll = !poll_timeout.is_zero() && now >= next_poll;
        if poll {
            entry.mark_poll(now);
            next_poll = entry.next_poll();
        } else if poll_timeout.is_zero() {
            next_poll = Time::NEVER;
        }
        Some(Known { ether: entry.ether, poll, until: expires.min(next_poll) })
    }

    /// Keeps a packet until its neighbor, which [`ArpTable::lookup`] does not know, has answered.
    pub(crate) fn hold(&mut self, ip: Ipv4Addr, packet: Packet, now: Time) -> Held {
        self.ensure(ip, now);
        self.keep_alive(ip, now);
        let limit = self.limits.entry_packets;
        if limit != 0 && self.entries.get(&ip).is_some_and(|entry| entry.held.len() >= limit) {
            self.drops += 1;
            self.victims.push(packet);
            return Held::Waiting;
        }
        self.held += 1;
        if self.limits.packets != 0 && self.held > self.limits.packets {
            self.slim(now);
        }
        // The entry has just been made or made young, so slimming has spared it.
        let Some(entry) = self.entries.get_mut(&ip) else {
            self.held -= 1;
            self.victims.push(packet);
            return Held::Waiting;
        };
        // What it answered has expired.
        entry.known = false;
        entry.held.push_back(packet);
        if now < entry.next_poll() {
            return Held::Waiting;
        }
        entry.mark_poll(now);
        Held::Query
    }

    /// Makes sure that there is an entry.
    fn ensure(&mut self, ip: Ipv4Addr, now: Time) {
        if self.entries.contains_key(&ip) {
            return;
        }
        if self.limits.entries != 0 && self.entries.len() >= self.limits.entries {
            self.evict(now, self.limits.entries - 1);
        }
        let entry = Entry {
            ether: EtherAddr::BROADCAST,
            known: false,
            live_at: now,
            polled_at: None,
            polls_since_reply: 0,
            held: VecDeque::new(),
            sequence: self.sequence,
        };
        self.by_age.insert((now, self.sequence), ip);
        self.sequence += 1;
        self.entries.insert(ip, entry);
    }

    /// An entry that packets are still sent to stays just this side of expiring.
    fn keep_alive(&mut self, ip: Ipv4Addr, now: Time) {
        let oldest = now - self.limits.timeout;
        if !self.limits.timeout.is_zero() && self.entries.get(&ip).is_some_and(|entry| entry.live_at < oldest)
        {
            self.set_age(ip, oldest);
        }
    }

    fn set_age(&mut self, ip: Ipv4Addr, live_at: Time) {
        let Some(entry) = self.entries.get_mut(&ip) else { return };
        self.by_age.remove(&(entry.live_at, entry.sequence));
        (entry.live_at, entry.sequence) = (live_at, self.sequence);
        self.by_age.insert((live_at, self.sequence), ip);
        self.sequence += 1;
    }

    /// Records a neighbor's address; the broadcast address is none.
    pub(crate) fn insert(&mut self, ip: Ipv4Addr, ether: EtherAddr, now: Time) {
        self.ensure(ip, now);
        self.set_age(ip, now);
        let Some(entry) = self.entries.get_mut(&ip) else { return };
        if entry.ether != ether || !entry.known {
            self.changes += 1;
        }
        entry.ether = ether;
        entry.known = !ether.is_broadcast();
        entry.polled_at = None;
        entry.polls_since_reply = 0;
    }

    /// Takes the packets that wait for a neighbor, oldest first.
    pub(crate) fn take_held(&mut self, ip: Ipv4Addr) -> VecDeque<Packet> {
        let held = self.entries.get_mut(&ip).map(|entry| std::mem::take(&mut entry.held)).unwrap_or_default();
        self.held -= held.len();
        held
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
            self.held -= surplus;
            self.drops += surplus as u64;
        }
    }

    /// Removes expired entries, and the oldest ones while there are more than `most`.
    fn evict(&mut self, now: Time, most: usize) {
        while let Some(oldest) = self.by_age.first_entry() {
            let ip = *oldest.get();
            let expired =
                self.entries.get(&ip).is_none_or(|entry| entry.is_expired(now, self.limits.timeout));
            if !expired && self.entries.len() <= most {
                return;
            }
            oldest.remove();
            if let Some(entry) = self.entries.remove(&ip) {
                self.drop_entry(entry);
            }
        }
    }

    fn drop_entry(&mut self, entry: Entry) {
        self.changes += 1;
        self.held -= entry.held.len();
        self.drops += entry.held.len() as u64;
        self.victims.extend(entry.held);
    }

    /// Forgets everything.
    pub(crate) fn clear(&mut self) {
        self.by_age.clear();
        for (_, entry) in std::mem::take(&mut self.entries) {
            self.drop_entry(entry);
        }
    }

    /// Takes over what another table holds, if this one holds nothing yet.
    fn adopt(&mut self, old: &mut ArpTable) {
        if self.entries.is_empty() && !old.entries.is_empty() {
            self.entries = std::mem::take(&mut old.entries);
            self.by_age = std::mem::take(&mut old.by_age);
            self.sequence = old.sequence;
            self.held = std::mem::take(&mut old.held);
            self.drops = old.drops;
            self.changes += 1;
            old.changes += 1;
        }
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
    /// Number of packets that waited in vain.
    pub(crate) fn drops(&self) -> u64 {
        self.drops
    }
    /// How long an answer is good for; zero is for ever.
    pub(crate) fn timeout(&self) -> Duration {
        self.limits.timeout
    }

    /// One line an entry, oldest first: address, whether it is known, Ethernet address, age in seconds.
    pub(crate) fn describe(&self, now: Time) -> String {
        let mut text = String::new();
        for ip in self.by_age.values() {
            let Some(entry) = self.entries.get(ip) else { continue };
            let known = entry.known && !entry.is_expired(now, self.limits.timeout);
            let age = now.since(entry.live_at);
            let ether = dashed(entry.ether);
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

/// A table that several elements, or copies of one on several workers, use. The lock is for what is rare: a user
/// keeps the answers it got and only looks at `generation` while they are good.
pub(crate) struct SharedTable {
    table: Mutex<ArpTable>,
    generation: AtomicU64,
}

impl SharedTable {
    /// An empty table.
    pub(crate) fn new(limits: Limits) -> SharedTable {
        SharedTable { table: Mutex::new(ArpTable::new(limits)), generation: AtomicU64::new(1) }
    }
    /// Changes whenever an answer given before may be wrong.
    #[inline]
    pub(crate) fn generation(&self) -> u64 {
        self.generation.load(Ordering::Acquire)
    }
    /// Does something with the table.
    pub(crate) fn with<R>(&self, action: impl FnOnce(&mut ArpTable) -> R) -> R {
        let mut table = self.lock();
        let result = action(&mut table);
        self.generation.store(table.changes, Ordering::Release);
        result
    }
    fn lock(&self) -> MutexGuard<'_, ArpTable> {
        // A table is whole between any two of its statements: no panic can leave it half changed.
        self.table.lock().unwrap_or_else(|poisoned| poisoned.into_inner())
    }
    /// When the graph is replaced: ends the packets that wait here still, since no heir took them over.
    pub(crate) fn stop(&self, cx: &mut Context<'_>) {
        if cx.is_replacing() {
            self.with(|table| {
                table.clear();
                table.victims().for_each(|packet| cx.discard(packet, DropReason::Replaced));
            });
        }
    }
    /// Takes over what another table holds, if this one holds nothing yet.
    pub(crate) fn adopt(self: &Arc<Self>, old: &Arc<SharedTable>) {
        if !Arc::ptr_eq(self, old) {
            old.with(|old| self.with(|new| new.adopt(old)));
        }
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
