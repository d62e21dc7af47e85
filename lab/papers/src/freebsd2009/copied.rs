//! C: the split design as its authors wanted it next: a lookup copies what it finds, and counts nothing.
//!
//! A sequence counter guards each table: it is not even while a writer is at work. A reader compares it after
//! the copy and starts over if it changed. A next hop is 16 bytes. The neighbors of an interface are an
//! array, with a guard of its own.

use super::guard::SeqCounter;
use super::network::{Control, INTERFACES, Interface, MOST_HELD, Mac, Packet, Sender, Sent, one_by_one};
use super::split::Hop;
use super::tree::{Full, NONE, Tree, TreeReader};
use artery_lpm::Prefix;
use std::collections::{HashMap, VecDeque};
use std::sync::atomic::{AtomicU64, Ordering::*};
use std::sync::{Mutex, MutexGuard, PoisonError};

/// The destination itself is the next hop.
const ON_LINK: u64 = 1 << 48;
/// Bytes of a packet, which the second word of a next hop has.
const MTU: u64 = 1500;

/// A next hop: router and interface, and the MTU.
type NextHop = [AtomicU64; 2];

/// The neighbors of an interface: addresses plus one, and words as in the link table.
struct Neighbors {
    guard: SeqCounter,
    slots: Box<[[AtomicU64; 2]]>,
}

const VALID: u64 = 1 << 48;

impl Neighbors {
    fn new(most: usize) -> Neighbors {
        let slot = |_| [AtomicU64::new(0), AtomicU64::new(0)];
        Neighbors {
            guard: SeqCounter::default(),
            slots: (0..(2 * most).next_power_of_two()).map(slot).collect(),
        }
    }

    fn place(&self, address: u32) -> usize {
        (u64::from(address).wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 32) as usize & (self.slots.len() - 1)
    }

    /// Where an address is, or the first free place behind where it should be.
    #[inline]
    fn seek(&self, address: u32) -> Option<(usize, bool)> {
        let (mask, wanted) = (self.slots.len() - 1, u64::from(address) + 1);
        let first = self.place(address);
        (0..self.slots.len()).map(|step| (first + step) & mask).find_map(|at| {
            let key = self.slots[at][0].load(Relaxed);
            (key == wanted || key == 0).then_some((at, key == wanted))
        })
    }

    #[inline]
    fn find(&self, address: u32) -> Option<Mac> {
        let word = self.guard.copy(|| match self.seek(address) {
            Some((at, true)) => self.slots[at][1].load(Relaxed),
            _ => 0,
        });
        (word & VALID != 0).then(|| Mac::from_bits(word))
    }

    fn set(&self, address: u32, mac: Mac) {
        self.guard.change(|| {
            let Some((at, _)) = self.seek(address) else { return };
            self.slots[at][1].store(mac.bits() | VALID, Relaxed);
            self.slots[at][0].store(u64::from(address) + 1, Relaxed);
        });
    }

    fn remove(&self, address: u32) -> bool {
        self.guard.change(|| {
            let Some((at, true)) = self.seek(address) else { return false };
            self.close_gap(at);
            true
        })
    }

    /// Frees a place, and moves those behind it that would not be found past a free one.
    fn close_gap(&self, mut gap: usize) {
        let mask = self.slots.len() - 1;
        let mut at = gap;
        loop {
            at = (at + 1) & mask;
            let [key, word] = &self.slots[at];
            let (key, word) = (key.load(Relaxed), word.load(Relaxed));
            if key == 0 {
                break;
            }
            let wanted = self.place((key - 1) as u32);
            if at.wrapping_sub(wanted) & mask >= at.wrapping_sub(gap) & mask {
                self.slots[gap][0].store(key, Relaxed);
                self.slots[gap][1].store(word, Relaxed);
                gap = at;
            }
        }
        self.slots[gap].iter().for_each(|word| word.store(0, Relaxed));
    }

    fn addresses(&self) -> Vec<u32> {
        let keys = self.slots.iter().map(|slot| slot[0].load(Relaxed));
        keys.filter(|key| *key != 0).map(|key| (key - 1) as u32).collect()
    }
}

/// For the one who changes tables.
struct Writer {
    tree: Tree,
    free: Vec<u32>,
    /// Packets by the neighbor that they wait for, which is known to be asked for.
    held: HashMap<u32, VecDeque<Packet>>,
    neighbors: usize,
}

pub(super) struct Copied {
    guard: SeqCounter,
    tree: TreeReader,
    hops: Box<[NextHop]>,
    neighbors: [Neighbors; INTERFACES],
    most_neighbors: usize,
    writer: Mutex<Writer>,
}

impl Copied {
    /// Tables with room for so many routes, and neighbors of each interface.
    pub(super) fn new(most: usize, most_neighbors: usize) -> Copied {
        let tree = Tree::new(most);
        let hop = |_| [AtomicU64::new(0), AtomicU64::new(0)];
        let free = (0..most as u32).rev().collect();
        Copied {
            guard: SeqCounter::default(),
            tree: tree.reader(),
            hops: (0..most).map(hop).collect(),
            neighbors: std::array::from_fn(|_| Neighbors::new(most_neighbors)),
            most_neighbors,
            writer: Mutex::new(Writer { tree, free, held: HashMap::new(), neighbors: 0 }),
        }
    }

    fn writer(&self) -> MutexGuard<'_, Writer> {
        self.writer.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Copies the next hop for an address.
    #[inline]
    fn lookup(&self, address: u32) -> Option<Hop> {
        let [hop, mtu] = self.guard.copy(|| match self.hops.get(self.tree.lookup(address) as usize) {
            Some(hop) => [hop[0].load(Relaxed), hop[1].load(Relaxed)],
            None => [0; 2],
        });
        let to = if hop & ON_LINK != 0 { address } else { hop as u32 };
        (mtu != 0).then_some(Hop { interface: (hop >> 32) as Interface, address: to })
    }

    #[inline]
    fn output(&self, packet: Packet) -> Sent {
        let Some(hop) = self.lookup(packet.destination) else { return Sent::NoRoute };
        match self.neighbors[usize::from(hop.interface)].find(hop.address) {
            Some(mac) => Sent::Out(hop.interface, mac),
            None => self.hold(hop, packet),
        }
    }

    #[inline(never)]
    fn hold(&self, hop: Hop, packet: Packet) -> Sent {
        let mut writer = self.writer();
        if let Some(mac) = self.neighbors[usize::from(hop.interface)].find(hop.address) {
            return Sent::Out(hop.interface, mac);
        }
        let held = writer.held.entry(hop.address).or_default();
        if held.len() == MOST_HELD {
            held.pop_front();
        }
        held.push_back(packet);
        Sent::Held
    }

    fn insert_route(&self, prefix: Prefix<u32>, hop: u64) -> Result<(), Full> {
        let mut writer = self.writer();
        let writer = &mut *writer;
        let id = writer.free.pop().ok_or(Full)?;
        let old = self.guard.change(|| {
            let words = &self.hops[id as usize];
            words[0].store(hop, Relaxed);
            words[1].store(MTU, Relaxed);
            writer.tree.insert(prefix, id)
        });
        match old {
            Ok(old) => writer.free.extend(old),
            Err(_) => writer.free.push(id),
        }
        old.map(|_| ())
    }

    fn delete(&self, prefix: Prefix<u32>) -> bool {
        let mut writer = self.writer();
        let gone = self.guard.change(|| writer.tree.remove(prefix));
        // Every reader that copies it now starts over before it is reused.
        writer.free.extend(gone);
        gone.is_some()
    }

    fn on_link(&self, address: u32) -> Option<&Neighbors> {
        let hop = self.lookup(address).filter(|hop| hop.address == address)?;
        Some(&self.neighbors[usize::from(hop.interface)])
    }
}

impl Control for Copied {
    fn connect(&self, prefix: Prefix<u32>, interface: Interface) -> Result<(), Full> {
        self.insert_route(prefix, u64::from(interface) << 32 | ON_LINK)
    }

    fn disconnect(&self, prefix: Prefix<u32>) -> usize {
        let id = self.writer().tree.get(prefix);
        let Some(id) = id.filter(|id| *id != NONE) else { return 0 };
        let interface = (self.hops[id as usize][0].load(Relaxed) >> 32) as u16;
        self.delete(prefix);
        let neighbors = &self.neighbors[usize::from(interface)];
        let mut writer = self.writer();
        let gone = neighbors.addresses().into_iter().filter(|address| prefix.contains(*address));
        let gone = gone.filter(|address| neighbors.remove(*address)).count();
        writer.neighbors -= gone;
        writer.held.retain(|address, _| !prefix.contains(*address));
        gone
    }

    fn add_route(&self, prefix: Prefix<u32>, gateway: u32) -> Result<(), Full> {
        let interface = self.lookup(gateway).map_or(0, |hop| hop.interface);
        self.insert_route(prefix, u64::from(interface) << 32 | u64::from(gateway))
    }

    fn delete_route(&self, prefix: Prefix<u32>) -> bool {
        self.delete(prefix)
    }

    fn learn(&self, address: u32, mac: Mac) -> Vec<Packet> {
        let Some(neighbors) = self.on_link(address) else { return Vec::new() };
        let mut writer = self.writer();
        if neighbors.find(address).is_none() {
            if writer.neighbors == self.most_neighbors {
                return Vec::new();
            }
            writer.neighbors += 1;
        }
        neighbors.set(address, mac);
        writer.held.remove(&address).unwrap_or_default().into()
    }

    fn forget(&self, address: u32) -> bool {
        let Some(neighbors) = self.on_link(address) else { return false };
        let mut writer = self.writer();
        let is_gone = neighbors.remove(address);
        writer.neighbors -= usize::from(is_gone);
        is_gone
    }
}

/// A thread that sends.
pub(super) struct CopiedSender<'a>(pub(super) &'a Copied);

impl Sender for CopiedSender<'_> {
    fn send(&mut self, packets: &[Packet], sent: &mut Vec<Sent>) {
        one_by_one(packets, sent, |packet| self.0.output(packet));
    }
}

#[cfg(test)]
mod tests {
    use super::super::network::testing::*;
    use super::*;
    use artery_wire::Random;
    use std::sync::atomic::AtomicBool;

    #[test]
    fn it_follows_changes() {
        let tables = Copied::new(10, 100);
        follows_changes(&tables, &mut CopiedSender(&tables));
        assert_eq!(tables.writer().free.len(), 9);
    }

    #[test]
    fn the_latest_packets_are_held_in_order() {
        let tables = Copied::new(10, 10);
        holds_the_latest(&tables, &mut CopiedSender(&tables));
    }

    #[test]
    fn neighbors_agree_with_a_map_while_they_come_and_go() {
        for seed in 0..3 {
            let mut random = Random::new(seed);
            let (neighbors, mut model) = (Neighbors::new(64), HashMap::new());
            for step in 0..20_000 {
                let address = random.below(100) as u32;
                if random.percent(50) && model.len() < 64 {
                    neighbors.set(address, Mac::new(1, step));
                    model.insert(address, Mac::new(1, step));
                } else {
                    assert_eq!(neighbors.remove(address), model.remove(&address).is_some(), "seed {seed}");
                }
                let any = random.below(100) as u32;
                assert_eq!(neighbors.find(any), model.get(&any).copied(), "seed {seed}, step {step}");
            }
        }
    }

    #[test]
    fn a_copy_is_never_half_old_and_half_new() {
        let tables = Copied::new(100, 100);
        furnish(&tables);
        let is_over = AtomicBool::new(false);
        std::thread::scope(|scope| {
            let reader = scope.spawn(|| {
                let mut looks = 0u64;
                while !is_over.load(Relaxed) || looks < 1000 {
                    let hop = tables.lookup(ip("9.1.1.1")).map(|hop| (hop.interface, hop.address));
                    let wanted = [(0, ip("10.0.0.1")), (1, ip("10.1.0.7"))].map(Some);
                    assert!(wanted.contains(&hop), "{hop:?}");
                    looks += 1;
                }
            });
            for n in 0..20_000u32 {
                tables.add_route(prefix("9.0.0.0/8"), ip("10.1.0.7")).unwrap();
                // Its number is used for something else at once.
                tables.delete_route(prefix("9.0.0.0/8"));
                tables.add_route(Prefix::of(n << 24 | 1 << 23, 9), ip("10.0.0.1")).unwrap();
                tables.delete_route(Prefix::of(n << 24 | 1 << 23, 9));
            }
            is_over.store(true, Relaxed);
            reader.join().unwrap();
        });
    }
}
