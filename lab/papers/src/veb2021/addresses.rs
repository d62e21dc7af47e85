//! The address table of the old bridge(4): 1,024 chains sorted by address, and ages that a clock hand takes.

use artery_wire::EtherAddr;
use std::hash::{BuildHasher as _, RandomState};

/// Chains of a table.
const CHAINS: usize = 1024;

/// Which port an address is at.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Entry {
    address: EtherAddr,
    port: u16,
    /// Whether it was seen since the hand passed.
    is_young: bool,
}

/// See the module. The bridge keeps it behind a mutex, so access is exclusive.
pub(super) struct Addresses {
    chains: Vec<Vec<Entry>>,
    /// SipHash, with a new key for each table.
    hasher: RandomState,
    count: usize,
    most: usize,
}

impl Addresses {
    /// A table of so many addresses at most.
    pub(super) fn new(most: usize) -> Addresses {
        Addresses { chains: vec![Vec::new(); CHAINS], hasher: RandomState::new(), count: 0, most }
    }

    /// The port of an address.
    pub(super) fn find(&self, address: EtherAddr) -> Option<u16> {
        let chain = &self.chains[self.chain(address)];
        place(chain, address).ok().map(|at| chain[at].port)
    }

    /// Learns that an address is at a port. A full table learns no new ones.
    pub(super) fn learn(&mut self, address: EtherAddr, port: u16) {
        let number = self.chain(address);
        let chain = &mut self.chains[number];
        let entry = Entry { address, port, is_young: true };
        match place(chain, address) {
            Ok(at) => chain[at] = entry,
            Err(_) if self.count == self.most => (),
            Err(at) => {
                chain.insert(at, entry);
                self.count += 1;
            }
        }
    }

    /// Passes once over all: what was not seen since the last pass goes.
    pub(super) fn age(&mut self) {
        for chain in &mut self.chains {
            let before = chain.len();
            chain.retain_mut(|entry| std::mem::take(&mut entry.is_young));
            self.count -= before - chain.len();
        }
    }

    pub(super) fn len(&self) -> usize {
        self.count
    }

    fn chain(&self, address: EtherAddr) -> usize {
        self.hasher.hash_one(address.0) as usize % CHAINS
    }
}

/// Where an address is in a sorted chain, or would be; as a list it is walked.
fn place(chain: &[Entry], address: EtherAddr) -> Result<usize, usize> {
    let at = chain.iter().take_while(|entry| entry.address.0 < address.0).count();
    if chain.get(at).is_some_and(|entry| entry.address == address) { Ok(at) } else { Err(at) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use artery_wire::Random;
    use std::collections::HashMap;

    fn address(n: u64) -> EtherAddr {
        let [_, _, bytes @ ..] = n.to_be_bytes();
        EtherAddr(bytes)
    }

    #[test]
    fn addresses_are_found_where_they_were_last_seen_until_two_hands_have_passed() {
        let (mut table, mut model, mut random) = (Addresses::new(300), HashMap::new(), Random::new(7));
        for step in 0..20_000 {
            let (who, port) = (address(random.below(500)), random.below(4) as u16);
            if model.contains_key(&who) || model.len() < 300 {
                model.insert(who, (port, 2));
            }
            table.learn(who, port);
            if step % 700 == 0 {
                table.age();
                model.retain(|_, (_, left)| {
                    *left -= 1;
                    *left > 0
                });
            }
            let other = address(random.below(500));
            assert_eq!(table.find(other), model.get(&other).map(|(port, _)| *port), "step {step}");
            assert_eq!(table.len(), model.len());
        }
    }
}
