//! How the table of addresses changes: what is learned, moves, gets old, is given and taken away, within
//! limits.
//!
//! There is one [`Learner`], behind a mutex. Workers that find it taken learn with the next frame instead.
use super::mac::{MOST_PORTS, MacEntry, MacEntryKind, MacKey, MacTable, Put};
use artery_rcu::{Domain, Published};
use std::collections::VecDeque;
use std::io;
use std::sync::Arc;
use std::time::Duration;

/// Seconds in which every address has been looked at whether it is too old.
const SWEEP: u32 = 100;
/// Moves of an address that are believed in a time of damping.
const MOVES: u32 = 5;
/// Addresses of which moves are counted at a time.
const MOVERS: usize = 256;
/// Most moves kept to be reported.
const MAX_MOVES: usize = 64;
/// Buckets that an old entry is looked for in when the table is full: in this many, unless there was none,
/// and until some were compared. A table that is full has few empty buckets, except the smallest one.
const HUNT: u32 = 1024;
const COMPARED: usize = 16;
/// Seconds from which on an address was not seen lately, and beyond which a time is one to come: of two
/// workers one may be a moment ahead.
const LATELY: u32 = 10;
const OVERDUE: u32 = u32::MAX / 2;
/// Most addresses a second that a port may push others out for; this limits how long a
/// flood delays known traffic.
const MOST_EVICTED: u32 = 50_000;

/// What became of an address that was to be learned.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Learned {
    /// It is known now.
    New,
    /// It is known at its new port now.
    Moved,
    /// It was known at this port.
    Known,
    /// It is known at another port, and stays there.
    Stays,
    /// It has moved too often lately: nothing is believed for a while.
    Damped,
    /// There are as many addresses as may be, of the switch or of the port, or no room.
    Full,
    /// Too many came in a short time.
    TooFast,
    /// Another thread is changing the table.
    Busy,
}

impl Learned {
    /// All outcomes, one counter each.
    pub const ALL: [Learned; 8] = [
        Learned::New,
        Learned::Moved,
        Learned::Known,
        Learned::Stays,
        Learned::Damped,
        Learned::Full,
        Learned::TooFast,
        Learned::Busy,
    ];

    /// The name that counters have.
    pub fn name(self) -> &'static str {
        match self {
            Learned::New => "learned",
            Learned::Moved => "moved",
            Learned::Known => "known",
            Learned::Stays => "stayed",
            Learned::Damped => "damped",
            Learned::Full => "not-learned-full",
            Learned::TooFast => "not-learned-too-fast",
            Learned::Busy => "not-learned-busy",
        }
    }
}

/// Why an address can't be given or taken away.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AddressError {
    /// It is known already.
    Exists,
    /// The address is not in the MAC table.
    Unknown,
    /// There are as many as may be.
    Full,
    /// It is a group, or no address at all.
    NoStation,
}

/// An address that moved, or was not believed to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Move {
    /// Address and VLAN of the entry.
    pub key: MacKey,
    /// Port that the address was at before.
    pub from: u16,
    /// Where it was seen.
    pub to: u16,
    /// When the address moved, in seconds.
    pub at: u32,
    /// Whether it was not believed.
    pub is_damped: bool,
}

/// What bounds the table.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Most addresses that the table may have.
    pub entries: u32,
    /// Seconds after which they are too old; `u32::MAX` for never.
    pub timeout: u32,
    /// Whether an old address makes room for a new one.
    pub evicts: bool,
    /// Most new addresses and moves a second; 0 for no limit.
    pub rate: u32,
    /// In what time this many moves of an address are believed; zero for all.
    pub damping: Duration,
}

/// The moves of an address within a time.
#[derive(Clone, Copy)]
struct Mover {
    key: MacKey,
    since: u32,
    moves: u32,
}

/// What keeps something from being done too often.
#[derive(Clone, Copy, Default)]
struct Pace {
    /// Up to when permits have been handed out.
    until: Duration,
}

impl Pace {
    /// How much of a second may be used at once after a rest.
    const BURST: Duration = Duration::from_millis(100);

    /// Whether the rate, at most `rate` times a second, allows one more; 0 means unlimited.
    fn try_acquire(&mut self, rate: u32, now: Duration) -> bool {
        if rate == 0 {
            return true;
        }
        let interval = Duration::from_secs(1) / rate;
        let until = self.until.max(now) + interval;
        let is_allowed = until <= now + Pace::BURST.max(interval);
        if is_allowed {
            self.until = until;
        }
        is_allowed
    }
}

/// An address that may go when room is needed.
struct Victim {
    /// Less for those that go first: 0 where a port has more than all others, 1 for one that was not seen
    /// lately, and then by how many its port has.
    crowd: u32,
    seen: u32,
    port: u16,
    key: MacKey,
}

/// State of learning, behind the lock.
pub(super) struct Learner {
    table: Arc<MacTable>,
    shown: Arc<Published<Arc<MacTable>>>,
    limits: Limits,
    count: u32,
    of_port: Vec<u32>,
    /// Most addresses of a port, where it has a limit of its own.
    port_limits: Vec<Option<u32>>,
    movers: Box<[Option<Mover>; MOVERS]>,
    moves: VecDeque<Move>,
    /// What is learned in a second, of the switch, and what each port pushes out.
    learned: Pace,
    evicted: Vec<Pace>,
    /// The next bucket to be swept, and the one that the next old entry is looked for from.
    swept: u32,
    hunted: u32,
    /// Addresses that go when room is needed, the last one first, unless they have been seen since.
    victims: Vec<Victim>,
}

impl Learner {
    /// With an empty table.
    pub(super) fn new(domain: &Arc<Domain>, limits: Limits) -> io::Result<Learner> {
        let table = Arc::new(MacTable::new(limits.entries)?);
        Ok(Learner {
            shown: Arc::new(Published::new(domain, table.clone())),
            table,
            limits,
            count: 0,
            of_port: vec![0; MOST_PORTS],
            port_limits: vec![None; MOST_PORTS],
            movers: Box::new([None; MOVERS]),
            moves: VecDeque::new(),
            learned: Pace::default(),
            evicted: vec![Pace::default(); MOST_PORTS],
            swept: 0,
            hunted: 0,
            victims: Vec::new(),
        })
    }

    /// The table as readers see it.
    pub(super) fn published_table(&self) -> Arc<Published<Arc<MacTable>>> {
        self.shown.clone()
    }

    /// Number of addresses in the table.
    pub(super) fn count(&self) -> u32 {
        self.count
    }

    /// Whether nothing can be learned until an address goes.
    pub(super) fn is_full(&self) -> bool {
        self.count >= self.limits.entries && !self.limits.evicts
    }

    /// Sets the bounds. For more entries, or many fewer, there is another table, which has what this one has.
    pub(super) fn set_limits(&mut self, limits: Limits) -> io::Result<()> {
        let room = limits.entries.max(self.count);
        let other = MacTable::new(room)?;
        if other.bucket_count() != self.table.bucket_count() {
            self.migrate_entries(other);
        }
        self.limits = limits;
        Ok(())
    }

    fn migrate_entries(&mut self, other: MacTable) {
        for (key, entry) in self.table.entries(0..self.table.bucket_count()) {
            if other.insert_key(key, entry.port(), entry.kind(), entry.last_seen()) == Put::Crowded {
                self.count -= 1;
                self.of_port[usize::from(entry.port())] -= 1;
            }
        }
        self.table = Arc::new(other);
        (self.swept, self.hunted) = (0, 0);
        self.shown.publish(self.table.clone());
    }

    /// Sets how many addresses a port may have.
    pub(super) fn set_port_limit(&mut self, port: u16, limit: Option<u32>) {
        self.port_limits[usize::from(port)] = limit;
    }

    fn find(&self, key: MacKey) -> Option<MacEntry> {
        self.table.find_entry(self.table.probe_key(key))
    }

    /// Learns that an address was seen at a port.
    pub(super) fn learn_address(&mut self, key: MacKey, port: u16, sticks: bool, now: Duration) -> Learned {
        let kind = if sticks { MacEntryKind::Sticky } else { MacEntryKind::Dynamic };
        let seconds = seconds(now);
        match self.find(key) {
            Some(entry) if entry.port() == port => {
                self.table.refresh_entry(entry, seconds);
                Learned::Known
            }
            Some(entry) if entry.is_static() => Learned::Stays,
            Some(entry) if entry.is_pinned() && !entry.is_old(seconds, self.limits.timeout) => Learned::Stays,
            Some(entry) => self.move_to(key, entry, port, kind, now),
            None => self.add_address(key, port, kind, now),
        }
    }

    fn add_address(&mut self, key: MacKey, port: u16, kind: MacEntryKind, now: Duration) -> Learned {
        if self.port_is_full(port) || self.is_full() {
            return Learned::Full;
        }
        let has_room = self.count < self.limits.entries;
        let may_evict = has_room || self.evicted[usize::from(port)].try_acquire(MOST_EVICTED, now);
        if !may_evict || !self.learned.try_acquire(self.limits.rate, now) {
            return Learned::TooFast;
        }
        if !has_room && !self.evict_address(seconds(now)) {
            return Learned::Full;
        }
        if self.table.insert_key(key, port, kind, seconds(now)) == Put::Crowded {
            return Learned::Full;
        }
        self.count_in(port);
        Learned::New
    }

    fn move_to(
        &mut self,
        key: MacKey,
        entry: MacEntry,
        port: u16,
        kind: MacEntryKind,
        now: Duration,
    ) -> Learned {
        if self.port_is_full(port) {
            return Learned::Full;
        }
        let is_damped = self.moves_too_often(key, seconds(now));
        if !is_damped && !self.learned.try_acquire(self.limits.rate, now) {
            return Learned::TooFast;
        }
        let is_news = self.moves.back().is_none_or(|last| {
            (last.key, last.from, last.to, last.is_damped) != (key, entry.port(), port, is_damped)
                || !is_damped
        });
        if is_news {
            self.record_move(Move { key, from: entry.port(), to: port, at: seconds(now), is_damped });
        }
        if is_damped {
            return Learned::Damped;
        }
        self.count_out(entry.port());
        self.count_in(port);
        self.table.update_entry(entry, port, kind, seconds(now));
        Learned::Moved
    }

    fn record_move(&mut self, news: Move) {
        if self.moves.len() >= MAX_MOVES {
            self.moves.pop_front();
        }
        self.moves.push_back(news);
    }

    /// Counts a move. Addresses share counters here: a count that is pushed out starts from zero.
    fn moves_too_often(&mut self, key: MacKey, now: u32) -> bool {
        let damping = self.limits.damping.as_secs() as u32;
        if damping == 0 {
            return false;
        }
        let place = self.table.probe_key(key).hash() as usize % MOVERS;
        let is_current = |mover: &Mover| mover.key == key && now.wrapping_sub(mover.since) <= damping;
        let mut mover = self.movers[place].filter(is_current).unwrap_or(Mover { key, since: now, moves: 0 });
        mover.moves = mover.moves.saturating_add(1);
        if mover.moves == MOVES + 1 {
            // It is quiet for as long again from here.
            mover.since = now;
        }
        self.movers[place] = Some(mover);
        mover.moves > MOVES
    }

    fn port_is_full(&self, port: u16) -> bool {
        let port = usize::from(port);
        self.port_limits[port].is_some_and(|limit| self.of_port[port] >= limit)
    }

    /// Removes an address that was learned, and says whether there was one: at a port that has more than all
    /// others, so that a flood by one port evicts no address at others, however silent; or else an old one,
    /// or one of those that have most.
    fn evict_address(&mut self, now: u32) -> bool {
        for _ in 0..2 {
            while let Some(victim) = self.victims.pop() {
                let entry = self.find(victim.key).filter(|entry| !entry.is_static());
                if let Some(entry) =
                    entry.filter(|entry| (entry.port(), entry.last_seen()) == (victim.port, victim.seen))
                {
                    self.remove_entry(entry);
                    return true;
                }
            }
            self.find_victims(now);
        }
        false
    }

    /// Looks for addresses that may go next, more than one at a time: each look goes through lines of the
    /// table that known traffic has no use for.
    fn find_victims(&mut self, now: u32) {
        let crowd = |entry: MacEntry| {
            let of_port = self.of_port[usize::from(entry.port())];
            match now.wrapping_sub(entry.last_seen()) {
                _ if of_port > self.count / 2 => 0,
                LATELY..=OVERDUE => 1,
                _ => u32::MAX - of_port,
            }
        };
        for passed in 0..self.table.bucket_count() {
            for (key, entry) in self.table.entries(self.hunted..self.hunted + 1) {
                if !entry.is_static() {
                    let (port, seen) = (entry.port(), entry.last_seen());
                    self.victims.push(Victim { crowd: crowd(entry), seen, port, key });
                }
            }
            self.hunted = (self.hunted + 1) % self.table.bucket_count();
            let compared = self.victims.len();
            if compared >= COMPARED || (passed >= HUNT && compared > 0) {
                break;
            }
        }
        self.victims.sort_unstable_by_key(|victim| (victim.crowd, victim.seen));
        let alike = self.victims.iter().take_while(|victim| victim.crowd == self.victims[0].crowd).count();
        // Of those that are alike the older half goes, the oldest first.
        self.victims.truncate(alike.div_ceil(2));
        self.victims.reverse();
    }

    fn count_in(&mut self, port: u16) {
        self.count += 1;
        self.of_port[usize::from(port)] += 1;
    }
    fn count_out(&mut self, port: u16) {
        self.count -= 1;
        self.of_port[usize::from(port)] -= 1;
    }

    fn remove_entry(&mut self, entry: MacEntry) {
        self.table.remove(entry);
        self.count_out(entry.port());
    }

    /// Gives an address a port for good.
    pub(super) fn add_static(&mut self, key: MacKey, port: u16, now: Duration) -> Result<(), AddressError> {
        if key.address().is_group() || key.address() == artery_wire::EtherAddr::ZERO {
            return Err(AddressError::NoStation);
        }
        match self.find(key) {
            Some(entry) if entry.is_static() => return Err(AddressError::Exists),
            Some(entry) => self.remove_entry(entry),
            None => {}
        }
        if self.count >= self.limits.entries && !(self.limits.evicts && self.evict_address(seconds(now))) {
            return Err(AddressError::Full);
        }
        match self.table.insert_key(key, port, MacEntryKind::Static, seconds(now)) {
            Put::Done => {
                self.count_in(port);
                Ok(())
            }
            Put::Crowded => Err(AddressError::Full),
        }
    }

    /// Takes in what another switch knew, if there is room and nothing is known here.
    pub(super) fn import_entry(&mut self, key: MacKey, port: u16, entry: MacEntry) {
        let has_room = self.count < self.limits.entries && !self.port_is_full(port);
        let is_new = has_room && self.find(key).is_none();
        if is_new && self.table.insert_key(key, port, entry.kind(), entry.last_seen()) == Put::Done {
            self.count_in(port);
        }
    }

    /// Removes an address from the table.
    pub(super) fn delete_address(&mut self, key: MacKey) -> Result<(), AddressError> {
        self.find(key).map(|entry| self.remove_entry(entry)).ok_or(AddressError::Unknown)
    }

    /// Forgets those addresses for which `is` holds.
    pub(super) fn flush_matching(&mut self, is: impl Fn(MacKey, MacEntry) -> bool) {
        let table = self.table.clone();
        let gone = table.entries(0..table.bucket_count()).filter(|(key, entry)| is(*key, *entry));
        gone.for_each(|(_, entry)| self.remove_entry(entry));
    }

    /// Forgets old addresses of the buckets whose turn it is, when a second has passed: in the end, of all.
    /// Others that had to make room once come back, or else all that stay long would be at their second
    /// places in the end.
    pub(super) fn sweep_buckets(&mut self, now: Duration) {
        let share = self.table.bucket_count().div_ceil(SWEEP);
        let from = if self.swept < self.table.bucket_count() { self.swept } else { 0 };
        let to = (from + share).min(self.table.bucket_count());
        let (table, now, timeout) = (self.table.clone(), seconds(now), self.limits.timeout);
        for (_, entry) in table.entries(from..to) {
            if entry.is_old(now, timeout) { self.remove_entry(entry) } else { table.bring_back(entry) }
        }
        self.swept = to;
    }

    /// All addresses that are not too old, by VLAN and address.
    pub(super) fn list_addresses(&self, now: Duration) -> Vec<(MacKey, MacEntry)> {
        let (now, timeout) = (seconds(now), self.limits.timeout);
        let all = self.table.entries(0..self.table.bucket_count());
        let mut all: Vec<_> = all.filter(|(_, entry)| !entry.is_old(now, timeout)).collect();
        all.sort_by_key(|(key, _)| (key.vlan(), key.address()));
        all
    }

    /// Moves of late, the last one at the end.
    pub(super) fn moves(&self) -> impl Iterator<Item = &Move> {
        self.moves.iter()
    }
}

/// Whole seconds, as entries count them.
#[inline]
pub fn seconds(now: Duration) -> u32 {
    now.as_secs() as u32
}
