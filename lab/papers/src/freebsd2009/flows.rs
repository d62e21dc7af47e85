//! The flow table of 2009: chains of entries, a bitmap of the chains that have some, and a
//! cleaner that follows it.
//!
//! One for each processor, so nothing here is shared. An entry is stamped with the time whenever it is used,
//! and stays until it was not used for 30 seconds, in both modes; under pressure it is 5. A candidate that is
//! not good any more is passed over, and freed by the cleaner.

/// What a flow is recognised by.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct FlowKey {
    /// Ports, source, destination; or the destination alone.
    words: [u32; 3],
    protocol: u8,
    /// Of the words and the protocol.
    hash: u32,
}

/// Protocols that have flows by connection.
#[cfg(test)]
const WITH_PORTS: [u8; 3] = [6, 17, 132];

impl FlowKey {
    /// All packets to an address are one flow.
    #[inline]
    pub(super) fn destination(destination: u32, jitter: u32) -> FlowKey {
        FlowKey::new([0, 0, destination], 0, jitter)
    }
    /// Packets between two ports are; none where no flow is kept.
    #[cfg(test)]
    pub(super) fn connection(
        source: (u32, u16),
        destination: (u32, u16),
        protocol: u8,
        jitter: u32,
    ) -> Option<FlowKey> {
        let is_local = |address: u32| address >> 24 == 127;
        let is_odd = source.0 == destination.0 || is_local(source.0) || is_local(destination.0);
        let has_ports = WITH_PORTS.contains(&protocol) && source.1 != 0 && destination.1 != 0;
        let ports = u32::from(source.1) << 16 | u32::from(destination.1);
        (!is_odd && has_ports).then(|| FlowKey::new([ports, source.0, destination.0], protocol, jitter))
    }
    #[inline]
    fn new(words: [u32; 3], protocol: u8, jitter: u32) -> FlowKey {
        FlowKey { words, protocol, hash: jenkins(words, jitter.wrapping_add(protocol.into())) }
    }
}

/// Bob Jenkins' hash of three words, of 2006.
#[inline]
fn jenkins(words: [u32; 3], seed: u32) -> u32 {
    let start = 0xdead_beef_u32.wrapping_add(3 << 2).wrapping_add(seed);
    let [mut a, mut b, mut c] = words.map(|word| start.wrapping_add(word));
    // Each step: one word takes another one in, less that turned.
    for (turn_c, turn_a, turn_b) in [(14, 11, 25), (16, 4, 14)] {
        c = (c ^ b).wrapping_sub(b.rotate_left(turn_c));
        a = (a ^ c).wrapping_sub(c.rotate_left(turn_a));
        b = (b ^ a).wrapping_sub(a.rotate_left(turn_b));
    }
    (c ^ b).wrapping_sub(b.rotate_left(24))
}

const NIL: u32 = u32::MAX;

struct Entry<T> {
    key: FlowKey,
    /// Second of the last use.
    used: u32,
    next: u32,
    /// Its connection has ended.
    is_stale: bool,
    value: Option<T>,
}

/// Why a flow is not kept.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct TooMany;

/// The flows of one processor.
pub(super) struct Flows<T> {
    /// First entries of the chains.
    heads: Vec<u32>,
    /// A bit for each chain that has entries.
    occupied: Vec<u64>,
    entries: Vec<Entry<T>>,
    free: Vec<u32>,
    most: usize,
    is_pressed: bool,
    next_clean: u32,
}

/// Idle seconds after which a flow goes, and under pressure.
const IDLE: [u32; 2] = [30, 5];
/// Seconds between two rounds of the cleaner, and under pressure.
const ROUND: [u32; 2] = [20, 4];

impl<T> Flows<T> {
    /// With so many chains, a power of two, and at most so many flows.
    pub(super) fn new(chains: usize, most: usize) -> Flows<T> {
        Flows {
            heads: vec![NIL; chains.next_power_of_two()],
            occupied: vec![0; chains.next_power_of_two().div_ceil(64)],
            entries: Vec::with_capacity(most),
            free: Vec::new(),
            most,
            is_pressed: false,
            next_clean: 0,
        }
    }

    /// How many flows there are.
    pub(super) fn len(&self) -> usize {
        self.entries.len() - self.free.len()
    }

    fn chain(&self, key: &FlowKey) -> usize {
        key.hash as usize & (self.heads.len() - 1)
    }

    /// What was kept for a flow, if that is good.
    #[inline]
    pub(super) fn find<R>(&mut self, key: &FlowKey, now: u32, good: impl Fn(&T) -> Option<R>) -> Option<R> {
        let mut at = self.heads[self.chain(key)];
        while let Some(entry) = self.entries.get_mut(at as usize) {
            if entry.key == *key
                && let Some(found) = entry.value.as_ref().and_then(&good)
            {
                entry.used = now;
                return Some(found);
            }
            at = entry.next;
        }
        None
    }

    /// Inserts a value for a flow, at the end of its chain; returns it if the table is full.
    pub(super) fn insert(&mut self, key: FlowKey, value: T, now: u32) -> Result<(), (TooMany, T)> {
        if self.len() >= self.most {
            return Err((TooMany, value));
        }
        let entry = Entry { key, used: now, next: NIL, is_stale: false, value: Some(value) };
        let new = match self.free.pop() {
            Some(at) => {
                self.entries[at as usize] = entry;
                at
            }
            None => {
                self.entries.push(entry);
                self.entries.len() as u32 - 1
            }
        };
        let chain = self.chain(&key);
        match self.tail(chain) {
            Some(tail) => self.entries[tail].next = new,
            None => self.heads[chain] = new,
        }
        self.occupied[chain / 64] |= 1 << (chain % 64);
        if self.len() > self.most / 32 * 31 {
            self.is_pressed = true;
        }
        Ok(())
    }

    fn tail(&self, chain: usize) -> Option<usize> {
        let mut tail = None;
        let mut at = self.heads[chain];
        while at != NIL {
            tail = Some(at as usize);
            at = self.entries[at as usize].next;
        }
        tail
    }

    /// The connection of a flow has ended.
    #[cfg(test)]
    pub(super) fn end(&mut self, key: &FlowKey) {
        for entry in self.entries.iter_mut().filter(|entry| entry.key == *key) {
            entry.is_stale = true;
        }
    }

    /// Cleans if it is time for that; returns what was kept for flows that have gone.
    pub(super) fn clean(&mut self, now: u32, is_dead: impl Fn(&T) -> bool) -> Vec<T> {
        if now < self.next_clean {
            return Vec::new();
        }
        let idle = IDLE[usize::from(self.is_pressed)];
        let gone = self
            .sweep(|entry, value| entry.is_stale || now.saturating_sub(entry.used) >= idle || is_dead(value));
        if self.len() < self.most / 8 * 7 {
            self.is_pressed = false;
        }
        self.next_clean = now + ROUND[usize::from(self.is_pressed)];
        gone
    }

    /// Frees the flows whose value is dead, at once: a route of theirs has gone.
    pub(super) fn flush(&mut self, is_dead: impl Fn(&T) -> bool) -> Vec<T> {
        self.sweep(|_, value| is_dead(value))
    }

    /// Follows the bitmap and takes entries out of their chains.
    fn sweep(&mut self, goes: impl Fn(&Entry<T>, &T) -> bool) -> Vec<T> {
        let mut gone = Vec::new();
        for word in 0..self.occupied.len() {
            let mut bits = self.occupied[word];
            while bits != 0 {
                let chain = word * 64 + bits.trailing_zeros() as usize;
                bits &= bits - 1;
                self.sweep_chain(chain, &goes, &mut gone);
                if self.heads[chain] == NIL {
                    self.occupied[word] &= !(1 << (chain % 64));
                }
            }
        }
        gone
    }

    fn sweep_chain(&mut self, chain: usize, goes: &impl Fn(&Entry<T>, &T) -> bool, gone: &mut Vec<T>) {
        let (mut at, mut before) = (self.heads[chain], NIL);
        while at != NIL {
            let entry = &self.entries[at as usize];
            let next = entry.next;
            if entry.value.as_ref().is_none_or(|value| goes(entry, value)) {
                match before {
                    NIL => self.heads[chain] = next,
                    before => self.entries[before as usize].next = next,
                }
                gone.extend(self.entries[at as usize].value.take());
                self.free.push(at);
            } else {
                before = at;
            }
            at = next;
        }
    }

    /// Everything, to be given back.
    pub(super) fn drain(&mut self) -> Vec<T> {
        self.sweep(|_, _| true)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use artery_wire::Random;
    use std::collections::HashMap;

    fn to(destination: u32) -> FlowKey {
        FlowKey::destination(destination, 7)
    }
    fn good(value: &u32) -> Option<u32> {
        Some(*value)
    }

    #[test]
    fn it_agrees_with_a_map_while_flows_come_go_and_are_forgotten() {
        for seed in 0..3 {
            let mut random = Random::new(seed);
            // Few chains, so that they are long.
            let (mut flows, mut model) = (Flows::new(16, 300), HashMap::<u32, (u32, u32)>::new());
            for step in 0..5000 {
                let now = step / 40;
                let key = random.below(400) as u32;
                let found = flows.find(&to(key), now, good);
                assert_eq!(found, model.get(&key).map(|kept| kept.0), "seed {seed}, step {step}");
                if let Some(kept) = model.get_mut(&key) {
                    kept.1 = now;
                } else if flows.insert(to(key), step, now).is_ok() {
                    model.insert(key, (step, now));
                } else {
                    assert_eq!(model.len(), 300);
                }
                if step % 97 == 0 {
                    let mut gone = flows.flush(|value| value % 7 == 0);
                    let mut dead: Vec<u32> =
                        model.values().map(|kept| kept.0).filter(|v| v % 7 == 0).collect();
                    model.retain(|_, kept| kept.0 % 7 != 0);
                    gone.sort_unstable();
                    dead.sort_unstable();
                    assert_eq!(gone, dead);
                }
                assert_eq!(flows.len(), model.len());
                let occupied: u32 = flows.occupied.iter().map(|word| word.count_ones()).sum();
                assert_eq!(occupied as usize, flows.heads.iter().filter(|head| **head != NIL).count());
            }
            assert_eq!(flows.drain().len(), model.len());
            assert_eq!(flows.len(), 0);
        }
    }

    #[test]
    fn a_flow_goes_when_it_was_not_used_for_thirty_seconds() {
        let mut flows = Flows::new(64, 100);
        flows.insert(to(1), 1, 0).unwrap();
        flows.insert(to(2), 2, 0).unwrap();
        assert_eq!(flows.clean(20, |_| false), Vec::<u32>::new());
        assert_eq!(flows.find(&to(1), 25, good), Some(1));
        assert_eq!(flows.clean(39, |_| false), Vec::<u32>::new(), "it is not time for the cleaner");
        assert_eq!(flows.clean(40, |_| false), [2]);
        assert_eq!(flows.clean(60, |_| false), [1]);
    }

    #[test]
    fn under_pressure_idle_flows_go_sooner_and_no_more_come_than_there_is_room_for() {
        let mut flows = Flows::new(64, 64);
        for n in 0..64 {
            flows.insert(to(n), n, 0).unwrap();
        }
        assert_eq!(flows.insert(to(99), 99, 0), Err((TooMany, 99)));
        assert_eq!(flows.find(&to(5), 3, good), Some(5));
        assert_eq!(flows.clean(6, |_| false).len(), 63);
        assert!(!flows.is_pressed, "and there is none any more");
    }

    #[test]
    fn what_is_not_good_any_more_is_passed_over() {
        let mut flows = Flows::new(1, 10);
        flows.insert(to(1), 1, 0).unwrap();
        flows.insert(to(1), 2, 0).unwrap();
        let not_one = |value: &u32| (*value != 1).then_some(*value);
        assert_eq!(flows.find(&to(1), 0, not_one), Some(2));
        assert_eq!(flows.clean(0, |value| *value == 1), [1]);
        assert_eq!(flows.find(&to(1), 0, good), Some(2));
    }

    #[test]
    fn connections_are_told_apart_and_end() {
        let key = |from, to| FlowKey::connection((1, from), (2, to), 6, 0);
        let mut flows = Flows::new(64, 10);
        for (value, ports) in [(1, (10, 80)), (2, (11, 80)), (3, (80, 10))] {
            flows.insert(key(ports.0, ports.1).unwrap(), value, 0).unwrap();
        }
        assert_eq!(flows.find(&key(11, 80).unwrap(), 0, good), Some(2));
        let udp = FlowKey::connection((1, 10), (2, 80), 17, 0).unwrap();
        assert_eq!(flows.find(&udp, 0, good), None);
        flows.end(&key(10, 80).unwrap());
        assert_eq!(flows.clean(1, |_| false), [1]);
    }

    #[test]
    fn no_flow_is_kept_for_what_is_no_connection() {
        let none = |from, to, protocol| assert_eq!(FlowKey::connection(from, to, protocol, 0), None);
        none((1, 10), (1, 80), 6);
        none((1, 0), (2, 80), 6);
        none((1, 10), (2, 0), 17);
        none((1, 10), (2, 80), 1);
        none((0x7f00_0001, 10), (2, 80), 6);
        none((1, 10), (0x7f00_0001, 80), 6);
    }

    #[test]
    fn chains_are_of_about_the_same_length() {
        let mut lengths = vec![0u32; 256];
        for n in 0..25_600 {
            lengths[to(0x0a00_0000 + n).hash as usize & 255] += 1;
        }
        assert!(lengths.iter().all(|length| (50..160).contains(length)), "{lengths:?}");
    }
}
