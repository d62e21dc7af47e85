//! A radix tree of IPv4 prefixes in a fixed array of words, as all baselines use it.
//!
//! The words are atomic so that the one tree can be read under a mutex, under a lock for readers and writers,
//! or by readers that check afterwards whether a writer came between; without a concurrent writer, that costs
//! nothing. A node represents a prefix and tests the bit after it; inner nodes that no route needs have no
//! value. A lookup runs down and remembers the last value that it passed.

use artery_lpm::Prefix;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering::Relaxed};

/// No value, and no node.
pub(super) const NONE: u32 = u32::MAX;
/// The node of the prefix that contains all.
const ROOT: u32 = 0;
/// A descent has at most one node for each length; a reader that runs beside a writer could
/// otherwise loop for longer.
const MOST_STEPS: usize = 33;

#[derive(Debug)]
struct Node {
    key: AtomicU32,
    len: AtomicU32,
    value: AtomicU32,
    sides: [AtomicU32; 2],
}

/// Looks up without write access.
#[derive(Clone, Debug)]
pub(super) struct TreeReader(Arc<[Node]>);

/// For who changes it; there is one.
#[derive(Debug)]
pub(super) struct Tree {
    reader: TreeReader,
    free: Vec<u32>,
    prefixes: usize,
}

/// The tree has no room for another prefix.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Full;

/// What a lookup has found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Found {
    /// The value of the longest prefix, or [`NONE`].
    pub(super) value: u32,
    /// Nodes on the way.
    pub(super) nodes: usize,
}

fn bit(key: u32, number: u32) -> usize {
    (key >> (31 - number) & 1) as usize
}

/// How many bits two keys begin with in common.
fn shared(a: u32, b: u32) -> u32 {
    (a ^ b).leading_zeros()
}

fn network(key: u32, len: u32) -> u32 {
    if len == 0 { 0 } else { key & (u32::MAX << (32 - len)) }
}

impl TreeReader {
    /// The value of the longest prefix that contains an address.
    #[inline]
    pub(super) fn lookup(&self, address: u32) -> u32 {
        self.find(address).value
    }

    /// The same with the way that it took.
    #[inline]
    pub(super) fn find(&self, address: u32) -> Found {
        let (mut value, mut at) = (NONE, ROOT);
        for nodes in 0..MOST_STEPS {
            let Some(node) = self.0.get(at as usize) else { return Found { value, nodes } };
            let len = node.len.load(Relaxed);
            if shared(address, node.key.load(Relaxed)) < len {
                return Found { value, nodes: nodes + 1 };
            }
            let own = node.value.load(Relaxed);
            value = if own == NONE { value } else { own };
            if len >= 32 {
                return Found { value, nodes: nodes + 1 };
            }
            at = node.sides[bit(address, len)].load(Relaxed);
        }
        Found { value, nodes: MOST_STEPS }
    }

    fn node(&self, at: u32) -> &Node {
        &self.0[at as usize]
    }
}

impl Tree {
    /// A tree with room for so many prefixes.
    pub(super) fn new(most: usize) -> Tree {
        // A prefix takes a node of its own and an inner one; one is the root.
        let count = 2 * most + 1;
        let word = || AtomicU32::new(NONE);
        let node = |_| Node { key: word(), len: word(), value: word(), sides: [word(), word()] };
        let nodes: Arc<[Node]> = (0..count).map(node).collect();
        nodes[ROOT as usize].key.store(0, Relaxed);
        nodes[ROOT as usize].len.store(0, Relaxed);
        Tree { reader: TreeReader(nodes), free: (1..count as u32).rev().collect(), prefixes: 0 }
    }

    /// A reader for lookups without a lock.
    pub(super) fn reader(&self) -> TreeReader {
        self.reader.clone()
    }
    #[inline]
    pub(super) fn lookup(&self, address: u32) -> u32 {
        self.reader.lookup(address)
    }
    pub(super) fn find(&self, address: u32) -> Found {
        self.reader.find(address)
    }
    /// How many prefixes there are.
    #[cfg(test)]
    pub(super) fn prefixes(&self) -> usize {
        self.prefixes
    }

    /// The value of exactly this prefix.
    pub(super) fn get(&self, prefix: Prefix<u32>) -> Option<u32> {
        let (at, _) = self.seek(prefix)?;
        Some(self.reader.node(at).value.load(Relaxed)).filter(|value| *value != NONE)
    }

    /// Adds a prefix, or gives it another value; returns the one it had.
    pub(super) fn insert(&mut self, prefix: Prefix<u32>, value: u32) -> Result<Option<u32>, Full> {
        let (key, len) = (prefix.first(), u32::from(prefix.len()));
        let mut at = ROOT;
        loop {
            let node = self.reader.node(at);
            if node.len.load(Relaxed) == len {
                let old = node.value.load(Relaxed);
                node.value.store(value, Relaxed);
                self.prefixes += usize::from(old == NONE);
                return Ok(Some(old).filter(|old| *old != NONE));
            }
            let side = bit(key, node.len.load(Relaxed));
            let next = node.sides[side].load(Relaxed);
            if next == NONE || !self.is_above(next, key, len) {
                let new = self.put_above(next, key, len, value)?;
                self.reader.node(at).sides[side].store(new, Relaxed);
                self.prefixes += 1;
                return Ok(None);
            }
            at = next;
        }
    }

    /// Whether a node's prefix contains one of this key and length.
    fn is_above(&self, node: u32, key: u32, len: u32) -> bool {
        let node = self.reader.node(node);
        let own = node.len.load(Relaxed);
        own <= len && shared(key, node.key.load(Relaxed)) >= own
    }

    /// Makes a node for a prefix, and if it does not contain `below`, which may be none, one above both.
    fn put_above(&mut self, below: u32, key: u32, len: u32, value: u32) -> Result<u32, Full> {
        if self.free.len() < 2 {
            return Err(Full);
        }
        let new = self.make(key, len, value)?;
        if below == NONE {
            return Ok(new);
        }
        let other = self.reader.node(below).key.load(Relaxed);
        let common = shared(key, other).min(len);
        if common == len {
            self.reader.node(new).sides[bit(other, len)].store(below, Relaxed);
            return Ok(new);
        }
        let fork = self.make(network(key, common), common, NONE)?;
        let sides = &self.reader.node(fork).sides;
        sides[bit(key, common)].store(new, Relaxed);
        sides[bit(other, common)].store(below, Relaxed);
        Ok(fork)
    }

    fn make(&mut self, key: u32, len: u32, value: u32) -> Result<u32, Full> {
        let at = self.free.pop().ok_or(Full)?;
        let node = self.reader.node(at);
        for (word, content) in [(&node.key, key), (&node.len, len), (&node.value, value)] {
            word.store(content, Relaxed);
        }
        node.sides.iter().for_each(|side| side.store(NONE, Relaxed));
        Ok(at)
    }

    /// Removes a prefix; returns the value it had.
    pub(super) fn remove(&mut self, prefix: Prefix<u32>) -> Option<u32> {
        let (at, parents) = self.seek(prefix)?;
        let value = self.reader.node(at).value.swap(NONE, Relaxed);
        if value == NONE {
            return None;
        }
        self.prefixes -= 1;
        // A node without value and with one side or none is not needed, nor may its parent be.
        self.tidy(at, parents[0]);
        if parents[0] != NONE {
            self.tidy(parents[0], parents[1]);
        }
        Some(value)
    }

    /// Takes a node out of the tree if nothing needs it.
    fn tidy(&mut self, at: u32, parent: u32) {
        let node = self.reader.node(at);
        let [left, right] = [0, 1].map(|side| node.sides[side].load(Relaxed));
        let is_needed = node.value.load(Relaxed) != NONE || (left != NONE && right != NONE);
        if at == ROOT || is_needed {
            return;
        }
        let sides = &self.reader.node(parent).sides;
        let side = usize::from(sides[1].load(Relaxed) == at);
        sides[side].store(if left == NONE { right } else { left }, Relaxed);
        self.free.push(at);
    }

    /// The node of exactly this prefix, its parent, and the parent of that.
    fn seek(&self, prefix: Prefix<u32>) -> Option<(u32, [u32; 2])> {
        let (key, len) = (prefix.first(), u32::from(prefix.len()));
        let (mut at, mut parents) = (ROOT, [NONE; 2]);
        while self.is_above(at, key, len) {
            let node = self.reader.node(at);
            if node.len.load(Relaxed) == len {
                return Some((at, parents));
            }
            parents = [at, parents[0]];
            at = node.sides[bit(key, node.len.load(Relaxed))].load(Relaxed);
            if at == NONE {
                return None;
            }
        }
        None
    }

    pub(super) fn walk(&self, mut visit: impl FnMut(Prefix<u32>, u32)) {
        let mut stack = vec![ROOT];
        while let Some(at) = stack.pop() {
            let node = self.reader.node(at);
            let value = node.value.load(Relaxed);
            if value != NONE {
                visit(Prefix::of(node.key.load(Relaxed), node.len.load(Relaxed) as u8), value);
            }
            stack.extend(node.sides.iter().map(|side| side.load(Relaxed)).filter(|side| *side != NONE));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use artery_lpm::synthetic::RandomAddress;
    use artery_wire::Random;
    use std::collections::BTreeMap;

    /// Prefixes that nest and neighbour one another: few values of the bits, all lengths.
    fn crowded(random: &mut Random) -> Prefix<u32> {
        let sparse = (random.below(8) as u32) << 29 | random.below(4) as u32;
        Prefix::of(sparse, random.below(33) as u8)
    }

    #[test]
    fn lookups_agree_with_a_linear_scan_while_prefixes_come_and_go() {
        for seed in 0..5 {
            let mut random = Random::new(seed);
            let (mut tree, mut model) = (Tree::new(400), BTreeMap::new());
            for step in 0..6000 {
                let prefix = match random.below(3) {
                    0 => Prefix::of(random.address(), random.below(33) as u8),
                    _ => crowded(&mut random),
                };
                if random.percent(if step < 3000 { 60 } else { 30 }) && model.len() < 400 {
                    assert_eq!(tree.insert(prefix, step), Ok(model.insert(prefix, step)), "seed {seed}");
                } else {
                    let known = model.keys().nth(random.below(model.len().max(1) as u64) as usize);
                    let prefix = known.copied().unwrap_or(prefix);
                    assert_eq!(tree.remove(prefix), model.remove(&prefix), "seed {seed}: {prefix}");
                }
                assert_eq!((tree.prefixes(), tree.get(prefix)), (model.len(), model.get(&prefix).copied()));
                for address in [prefix.first(), prefix.last(), random.address()] {
                    let longest = model.iter().filter(|(prefix, _)| prefix.contains(address));
                    let wanted = longest.max_by_key(|(prefix, _)| prefix.len()).map_or(NONE, |(_, v)| *v);
                    assert_eq!(tree.lookup(address), wanted, "seed {seed}, step {step}");
                }
            }
            let mut walked = BTreeMap::new();
            tree.walk(|prefix, value| _ = walked.insert(prefix, value));
            assert_eq!(walked, model);
            for prefix in walked.keys() {
                tree.remove(*prefix);
            }
            assert_eq!(tree.free.len(), 800, "seed {seed}: all nodes but the root are free again");
        }
    }

    #[test]
    fn a_full_tree_refuses_and_stays_as_it_is() {
        let mut tree = Tree::new(2);
        for (key, value) in [(1, 1), (2, 2)] {
            tree.insert(Prefix::of(key, 32), value).unwrap();
        }
        assert_eq!(tree.insert(Prefix::of(4, 32), 3), Err(Full));
        assert_eq!([1, 2, 4].map(|address| tree.lookup(address)), [1, 2, NONE]);
    }

    #[test]
    fn a_way_has_as_many_nodes_as_it_visits() {
        let mut tree = Tree::new(10);
        tree.insert(Prefix::of(0, 0), 9).unwrap();
        assert_eq!(tree.find(77), Found { value: 9, nodes: 1 });
        tree.insert(Prefix::of(0x0a00_0000, 8), 1).unwrap();
        tree.insert(Prefix::of(0x0a00_0001, 32), 2).unwrap();
        assert_eq!(tree.find(0x0a00_0001), Found { value: 2, nodes: 3 });
        assert_eq!(tree.find(0x0b00_0001), Found { value: 9, nodes: 2 });
    }
}
