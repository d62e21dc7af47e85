//! Engines to compare with that are written in Rust: the radix tree of 4.4BSD, and
//! crates that others publish.
use super::engine::{Engine, Reader, chain, each};
use super::radix::Radix;
use artery_lpm::{Address, Group, NO_GROUP, Prefix};
use ip_network_table_deps_treebitmap::IpLookupTable;
use prefix_trie::PrefixMap;
use std::net::{Ipv4Addr, Ipv6Addr};

/// Makes a reader of what has one function to look an address up.
macro_rules! reader {
    () => {
        fn batch(&mut self, addresses: &[A], groups: &mut [Group]) {
            self.each(addresses, groups);
        }
        fn each(&mut self, addresses: &[A], groups: &mut [Group]) {
            each(addresses, groups, |address| self.lookup(address));
        }
        fn chain(&mut self, addresses: &[A], last: Group, mask: Group) -> Group {
            chain(addresses, last, mask, |address| self.lookup(address))
        }
    };
}

impl<A: Address> Reader<A> for Radix<A> {
    reader!();
}

impl<A: Address> Engine<A> for Radix<A> {
    fn name(&self) -> String {
        "bsd-radix".into()
    }
    fn reader(&mut self) -> &mut dyn Reader<A> {
        self
    }
    fn announce(&mut self, prefix: Prefix<A>, group: Group) {
        self.insert(prefix, group);
    }
    fn withdraw(&mut self, prefix: Prefix<A>) {
        self.remove(prefix);
    }
    fn bytes(&self) -> u64 {
        Radix::bytes(self) as u64
    }
}

/// An address that the crates can take.
pub(super) trait Foreign: Address {
    /// The same address as treebitmap knows it.
    type Ip: ip_network_table_deps_treebitmap::address::Address + Send;
    /// A table of the crate prefix-trie.
    type Trie: Trie<Self> + Default;

    /// The same address as treebitmap knows it.
    fn ip(self) -> Self::Ip;
}

/// What the crate prefix-trie does for one family.
pub(super) trait Trie<A>: Send {
    /// The group of the longest route that covers an address.
    fn lookup(&self, address: A) -> Group;
    fn insert(&mut self, prefix: Prefix<A>, group: Group);
    fn remove(&mut self, prefix: Prefix<A>);
    /// Bytes of all nodes.
    fn bytes(&self) -> usize;
}

macro_rules! foreign {
    ($number:ty, $ip:ty) => {
        impl Foreign for $number {
            type Ip = $ip;
            type Trie = PrefixMap<($number, u8), Group>;

            #[inline]
            fn ip(self) -> $ip {
                <$ip>::from_bits(self)
            }
        }

        impl Trie<$number> for PrefixMap<($number, u8), Group> {
            #[inline]
            fn lookup(&self, address: $number) -> Group {
                self.get_lpm(&(address, <$number as Address>::BITS)).map_or(NO_GROUP, |(_, group)| *group)
            }
            fn insert(&mut self, prefix: Prefix<$number>, group: Group) {
                PrefixMap::insert(self, (prefix.first(), prefix.len()), group);
            }
            fn remove(&mut self, prefix: Prefix<$number>) {
                PrefixMap::remove(self, &(prefix.first(), prefix.len()));
            }
            fn bytes(&self) -> usize {
                self.mem_size()
            }
        }
    };
}
foreign!(u32, Ipv4Addr);
foreign!(u128, Ipv6Addr);

pub(super) struct PrefixTrie<A: Foreign>(A::Trie);

impl<A: Foreign> Default for PrefixTrie<A> {
    fn default() -> PrefixTrie<A> {
        PrefixTrie(A::Trie::default())
    }
}

impl<A: Foreign> PrefixTrie<A> {
    #[inline]
    fn lookup(&self, address: A) -> Group {
        self.0.lookup(address)
    }
}

impl<A: Foreign> Reader<A> for PrefixTrie<A> {
    reader!();
}

impl<A: Foreign> Engine<A> for PrefixTrie<A> {
    fn name(&self) -> String {
        "prefix-trie".into()
    }
    fn reader(&mut self) -> &mut dyn Reader<A> {
        self
    }
    fn announce(&mut self, prefix: Prefix<A>, group: Group) {
        self.0.insert(prefix, group);
    }
    fn withdraw(&mut self, prefix: Prefix<A>) {
        self.0.remove(prefix);
    }
    fn bytes(&self) -> u64 {
        self.0.bytes() as u64
    }
}

/// The crate treebitmap, as its present maintainer publishes it.
pub(super) struct TreeBitmap<A: Foreign>(IpLookupTable<A::Ip, Group>);

impl<A: Foreign> Default for TreeBitmap<A> {
    fn default() -> TreeBitmap<A> {
        TreeBitmap(IpLookupTable::new())
    }
}

impl<A: Foreign> TreeBitmap<A> {
    #[inline]
    fn lookup(&self, address: A) -> Group {
        self.0.longest_match(address.ip()).map_or(NO_GROUP, |(_, _, group)| *group)
    }
}

impl<A: Foreign> Reader<A> for TreeBitmap<A> {
    reader!();
}

impl<A: Foreign> Engine<A> for TreeBitmap<A> {
    fn name(&self) -> String {
        "treebitmap".into()
    }
    fn reader(&mut self) -> &mut dyn Reader<A> {
        self
    }
    fn announce(&mut self, prefix: Prefix<A>, group: Group) {
        self.0.insert(prefix.first().ip(), prefix.len().into(), group);
    }
    fn withdraw(&mut self, prefix: Prefix<A>) {
        self.0.remove(prefix.first().ip(), prefix.len().into());
    }
    fn bytes(&self) -> u64 {
        let (nodes, values) = self.0.mem_usage();
        (nodes + values) as u64
    }
}
