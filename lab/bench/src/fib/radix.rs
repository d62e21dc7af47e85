//! The radix tree of 4.4BSD, from its description: the baseline that routers of the
//! time were measured against.
//!
//! A Patricia tree over addresses: inner nodes name the one bit in which their sides differ, leaves hold an
//! address and all routes that begin there, longest first. A lookup runs down to a leaf without comparing
//! anything, and only there learns at which bit the address departs from it. If no route of the leaf is short
//! enough, it goes back up: an inner node lists the routes below it that are no longer than the bits which
//! all its leaves share, each at the highest node of which that is true. Keys are numbers in host order here,
//! where BSD compares bytes: that favours the baseline. Masks with holes, which BSD allows, are left out.
use artery_lpm::{Address, Group, NO_GROUP, Prefix};

/// A node: an index of `inner`, or of `leaves` with the highest bit set.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Node(u32);

const NONE: Node = Node(u32::MAX);
const LEAF: u32 = 1 << 31;

impl Node {
    fn leaf(self) -> Option<usize> {
        (self.0 & LEAF != 0).then_some((self.0 & !LEAF) as usize)
    }
}

struct Inner {
    /// The bit in which the sides differ, counted from the highest.
    bit: u8,
    parent: Node,
    sides: [Node; 2],
    routes: Routes,
}

struct Leaf<A> {
    key: A,
    parent: Node,
    routes: Routes,
}

/// Lengths and groups of routes, longest first.
#[derive(Default)]
struct Routes(Vec<(u8, Group)>);

impl Routes {
    /// The longest route of at most `len` bits.
    #[inline]
    fn at_most(&self, len: u8) -> Option<Group> {
        self.0.iter().find(|route| route.0 <= len).map(|route| route.1)
    }
    fn set(&mut self, len: u8, group: Group) {
        let at = self.0.partition_point(|route| route.0 > len);
        match self.0.get_mut(at) {
            Some(route) if route.0 == len => route.1 = group,
            _ => self.0.insert(at, (len, group)),
        }
    }
    fn remove(&mut self, len: u8) -> Option<Group> {
        let at = self.0.iter().position(|route| route.0 == len)?;
        Some(self.0.remove(at).1)
    }
    fn bytes(&self) -> usize {
        self.0.capacity() * size_of::<(u8, Group)>()
    }
}

/// A routing table of 4.4BSD.
pub struct Radix<A> {
    root: Node,
    inner: Vec<Inner>,
    leaves: Vec<Leaf<A>>,
    free_inner: Vec<u32>,
    free_leaves: Vec<u32>,
}

impl<A: Address> Default for Radix<A> {
    fn default() -> Radix<A> {
        let (inner, leaves) = (Vec::new(), Vec::new());
        Radix { root: NONE, inner, leaves, free_inner: Vec::new(), free_leaves: Vec::new() }
    }
}

/// Whether the bit of this number, counted from the highest, is set.
#[inline]
fn bit<A: Address>(address: A, number: u8) -> usize {
    address.field(number, 1)
}

impl<A: Address> Radix<A> {
    /// The group of the longest route that covers an address.
    #[inline]
    pub fn lookup(&self, address: A) -> Group {
        if self.root == NONE {
            return NO_GROUP;
        }
        let leaf = &self.leaves[self.descend(address)];
        let shared = (address ^ leaf.key).leading_zeros();
        if let Some(group) = leaf.routes.at_most(shared) {
            return group;
        }
        let mut node = leaf.parent;
        while node != NONE {
            let inner = &self.inner[node.0 as usize];
            if let Some(group) = inner.routes.at_most(shared) {
                return group;
            }
            node = inner.parent;
        }
        NO_GROUP
    }

    /// Adds a route, or gives it another group.
    pub fn insert(&mut self, prefix: Prefix<A>, group: Group) {
        let leaf = self.leaf_of(prefix.first());
        self.leaves[leaf].routes.set(prefix.len(), group);
        if let Some(inner) = self.lister(leaf, prefix.len()) {
            self.inner[inner].routes.set(prefix.len(), group);
        }
    }

    /// Removes a route, and says which group it had.
    pub fn remove(&mut self, prefix: Prefix<A>) -> Option<Group> {
        if self.root == NONE {
            return None;
        }
        let leaf = self.descend(prefix.first());
        if self.leaves[leaf].key != prefix.first() {
            return None;
        }
        let group = self.leaves[leaf].routes.remove(prefix.len())?;
        if let Some(inner) = self.lister(leaf, prefix.len()) {
            self.inner[inner].routes.remove(prefix.len());
        }
        if self.leaves[leaf].routes.0.is_empty() {
            self.remove_leaf(leaf);
        }
        Some(group)
    }

    /// Bytes of all nodes and routes.
    pub fn bytes(&self) -> usize {
        let lists = self.inner.iter().map(|inner| inner.routes.bytes()).sum::<usize>()
            + self.leaves.iter().map(|leaf| leaf.routes.bytes()).sum::<usize>();
        self.inner.len() * size_of::<Inner>() + self.leaves.len() * size_of::<Leaf<A>>() + lists
    }

    /// The leaf that the bits of an address lead to; there must be one.
    #[inline]
    fn descend(&self, address: A) -> usize {
        let mut node = self.root;
        loop {
            match node.leaf() {
                Some(leaf) => return leaf,
                None => {
                    let inner = &self.inner[node.0 as usize];
                    node = inner.sides[bit(address, inner.bit)];
                }
            }
        }
    }

    /// The highest inner node above a leaf whose leaves all share `len` bits: it lists routes of that length.
    fn lister(&self, leaf: usize, len: u8) -> Option<usize> {
        let mut highest = None;
        let mut node = self.leaves[leaf].parent;
        while node != NONE {
            let inner = &self.inner[node.0 as usize];
            if inner.bit < len {
                break;
            }
            highest = Some(node.0 as usize);
            node = inner.parent;
        }
        highest
    }

    /// Finds the leaf of an address, or makes it.
    fn leaf_of(&mut self, key: A) -> usize {
        if self.root == NONE {
            let leaf = self.new_leaf(key, NONE);
            self.root = Node(leaf as u32 | LEAF);
            return leaf;
        }
        let nearest = self.descend(key);
        let shared = (key ^ self.leaves[nearest].key).leading_zeros();
        if shared == A::BITS {
            return nearest;
        }
        let below = self.first_below(key, shared);
        let parent = self.parent(below);
        let inner = self.new_inner(shared, parent);
        let leaf = self.new_leaf(key, inner);
        self.replace(parent, below, inner);
        self.set_parent(below, inner);
        let side = bit(key, shared);
        self.inner[inner.0 as usize].sides[side] = Node(leaf as u32 | LEAF);
        self.inner[inner.0 as usize].sides[1 - side] = below;
        self.lift_routes(below, inner);
        leaf
    }

    /// The first node on the way of `key` that tests a bit after `shared`, or the leaf.
    fn first_below(&self, key: A, shared: u8) -> Node {
        let mut node = self.root;
        while node.leaf().is_none() && self.inner[node.0 as usize].bit < shared {
            let inner = &self.inner[node.0 as usize];
            node = inner.sides[bit(key, inner.bit)];
        }
        node
    }

    /// Lists routes of `below` at its new parent where that is now the highest node to list them.
    fn lift_routes(&mut self, below: Node, parent: Node) {
        let Inner { bit: shared, parent: above, .. } = self.inner[parent.0 as usize];
        // Shorter ones are listed further up.
        let least = if above == NONE { 0 } else { self.inner[above.0 as usize].bit + 1 };
        let is_lifted = |route: &(u8, Group)| (least..=shared).contains(&route.0);
        let lifted = match below.leaf() {
            Some(leaf) => self.leaves[leaf].routes.0.iter().copied().filter(is_lifted).collect(),
            None => self.inner[below.0 as usize].routes.0.extract_if(.., |route| is_lifted(route)).collect(),
        };
        self.inner[parent.0 as usize].routes.0 = lifted;
    }

    /// Takes out a leaf without routes, and the inner node above it.
    fn remove_leaf(&mut self, leaf: usize) {
        self.free_leaves.push(leaf as u32);
        let parent = self.leaves[leaf].parent;
        if parent == NONE {
            self.root = NONE;
            return;
        }
        let inner = &mut self.inner[parent.0 as usize];
        let sibling = inner.sides[usize::from(inner.sides[0].leaf() == Some(leaf))];
        let (listed, above) = (std::mem::take(&mut inner.routes), inner.parent);
        if sibling.leaf().is_none() {
            let routes = &mut self.inner[sibling.0 as usize].routes;
            listed.0.iter().for_each(|&(len, group)| routes.set(len, group));
        }
        self.replace(above, parent, sibling);
        self.set_parent(sibling, above);
        self.free_inner.push(parent.0);
    }

    fn parent(&self, node: Node) -> Node {
        match node.leaf() {
            Some(leaf) => self.leaves[leaf].parent,
            None => self.inner[node.0 as usize].parent,
        }
    }

    fn set_parent(&mut self, node: Node, parent: Node) {
        match node.leaf() {
            Some(leaf) => self.leaves[leaf].parent = parent,
            None => self.inner[node.0 as usize].parent = parent,
        }
    }

    fn replace(&mut self, parent: Node, old: Node, new: Node) {
        if parent == NONE {
            self.root = new;
            return;
        }
        let sides = &mut self.inner[parent.0 as usize].sides;
        sides[usize::from(sides[1] == old)] = new;
    }

    fn new_leaf(&mut self, key: A, parent: Node) -> usize {
        let leaf = Leaf { key, parent, routes: Routes::default() };
        match self.free_leaves.pop() {
            Some(at) => {
                self.leaves[at as usize] = leaf;
                at as usize
            }
            None => {
                self.leaves.push(leaf);
                self.leaves.len() - 1
            }
        }
    }

    fn new_inner(&mut self, bit: u8, parent: Node) -> Node {
        let inner = Inner { bit, parent, sides: [NONE; 2], routes: Routes::default() };
        match self.free_inner.pop() {
            Some(at) => {
                self.inner[at as usize] = inner;
                Node(at)
            }
            None => {
                self.inner.push(inner);
                Node(self.inner.len() as u32 - 1)
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use artery_lpm::synthetic::RandomAddress;
    use artery_wire::Random;
    use std::collections::BTreeMap;

    fn linear<A: Address>(model: &BTreeMap<Prefix<A>, Group>, address: A) -> Group {
        let covering = model.iter().filter(|(prefix, _)| prefix.contains(address));
        covering.max_by_key(|(prefix, _)| prefix.len()).map_or(NO_GROUP, |(_, group)| *group)
    }

    /// Prefixes that nest and neighbour one another: few values of the bits, all lengths.
    fn crowded<A: Address>(random: &mut Random) -> Prefix<A> {
        let address: A = random.address();
        let sparse = address.network(3).or(A::from_field(random.below(4) as usize, A::BITS - 2, 2));
        Prefix::of(sparse, random.below(u64::from(A::BITS) + 1) as u8)
    }

    fn agrees_with_a_linear_scan<A: Address>(seed: u64) {
        let mut random = Random::new(seed);
        let (mut radix, mut model) = (Radix::default(), BTreeMap::new());
        for step in 0..3000 {
            let prefix = match random.below(3) {
                0 => Prefix::of(random.address(), random.below(u64::from(A::BITS) + 1) as u8),
                _ => crowded::<A>(&mut random),
            };
            if random.percent(if step < 2000 { 60 } else { 20 }) {
                radix.insert(prefix, step);
                model.insert(prefix, step);
            } else {
                let prefix = model.keys().nth(random.below(model.len().max(1) as u64) as usize).copied();
                let Some(prefix) = prefix else { continue };
                assert_eq!(radix.remove(prefix), model.remove(&prefix), "seed {seed}: {prefix}");
            }
            let ends = [prefix.first(), prefix.last(), random.address(), random.address_in(prefix)];
            for address in ends {
                assert_eq!(radix.lookup(address), linear(&model, address), "seed {seed}, step {step}");
            }
        }
    }

    #[test]
    fn lookups_agree_with_a_linear_scan_while_routes_come_and_go() {
        for seed in 0..5 {
            agrees_with_a_linear_scan::<u32>(seed);
            agrees_with_a_linear_scan::<u128>(seed);
        }
    }

    #[test]
    fn an_address_off_all_long_routes_goes_back_up_to_a_short_one() {
        let mut radix = Radix::<u32>::default();
        for (prefix, group) in [("0.0.0.0/0", 9), ("10.0.0.0/8", 1), ("10.1.0.0/16", 2), ("10.1.1.0/24", 3)] {
            radix.insert(prefix.parse().unwrap(), group);
        }
        let lookup = |address: &str| radix.lookup(address.parse::<std::net::Ipv4Addr>().unwrap().to_bits());
        assert_eq!(["10.1.1.1", "10.1.2.1", "10.2.1.1", "11.1.1.1"].map(lookup), [3, 2, 1, 9]);
    }

    #[test]
    fn what_is_not_there_is_not_removed() {
        let mut radix = Radix::<u32>::default();
        assert_eq!(radix.remove(Prefix::ALL), None);
        radix.insert(Prefix::of(0, 8), 1);
        assert_eq!(radix.remove(Prefix::ALL), None);
        assert_eq!(radix.remove(Prefix::of(0, 8)), Some(1));
        assert_eq!(radix.lookup(0), NO_GROUP);
    }
}
