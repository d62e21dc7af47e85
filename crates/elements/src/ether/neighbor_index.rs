//! Neighbors by address: found by workers without a lock, changed under the table's lock.
//!
//! A shelf of buckets, each published for its own sake, so that a new neighbor costs a copy of one bucket. When buckets
//! grow long, a shelf with four times as many is published. Of what is known of a neighbor nothing is here: the index
//! changes only when one comes or goes.
use super::neighbor::Neighbor;
use artery_rcu::{Domain, Published, Turn};
use std::collections::BTreeSet;
use std::net::Ipv4Addr;
use std::sync::Arc;

/// Neighbors of one value of the hash, in no order.
type Bucket = Vec<(Ipv4Addr, Arc<Neighbor>)>;
type Shelf = Arc<[Published<Bucket>]>;

const FEWEST_BUCKETS: usize = 64;
const MOST_BUCKETS: usize = 65536;
/// Neighbors that a bucket holds on average before there are more buckets.
const BUCKET_LENGTH: usize = 8;

/// What readers see.
pub(crate) struct NeighborIndex(Published<Shelf>);

impl NeighborIndex {
    /// The neighbor of this address.
    pub(crate) fn find<'t>(&'t self, ip: Ipv4Addr, turn: &'t Turn<'_>) -> Option<&'t Arc<Neighbor>> {
        let shelf = self.0.read(turn);
        let bucket = shelf.get(place(ip, shelf.len()))?.read(turn);
        bucket.iter().find(|(of, _)| *of == ip).map(|(_, neighbor)| neighbor)
    }
}

fn place(ip: Ipv4Addr, buckets: usize) -> usize {
    (ip.to_bits().wrapping_mul(0x9e37_79b1) >> 16) as usize % buckets
}

/// The writer's half. What it is told becomes visible by [`IndexWriter::publish`].
pub(crate) struct IndexWriter {
    domain: Arc<Domain>,
    shelf: Shelf,
    buckets: Vec<Bucket>,
    len: usize,
    /// Buckets that differ from what is published.
    changed: BTreeSet<usize>,
}

impl IndexWriter {
    /// An empty index, to write and to read.
    pub(crate) fn new(domain: &Arc<Domain>) -> (IndexWriter, NeighborIndex) {
        let buckets = vec![Bucket::new(); FEWEST_BUCKETS];
        let shelf = shelf_of(&buckets, domain);
        let index = NeighborIndex(Published::new(domain, shelf.clone()));
        (IndexWriter { domain: domain.clone(), shelf, buckets, len: 0, changed: BTreeSet::new() }, index)
    }

    /// Adds a neighbor that is not in the index.
    pub(crate) fn add(&mut self, neighbor: &Arc<Neighbor>) {
        let at = place(neighbor.ip, self.buckets.len());
        self.buckets[at].push((neighbor.ip, neighbor.clone()));
        self.changed.insert(at);
        self.len += 1;
    }
    /// Removes a neighbor.
    pub(crate) fn remove(&mut self, ip: Ipv4Addr) {
        let at = place(ip, self.buckets.len());
        let before = self.buckets[at].len();
        self.buckets[at].retain(|(of, _)| *of != ip);
        self.len -= before - self.buckets[at].len();
        self.changed.insert(at);
    }

    /// Shows readers what was changed.
    pub(crate) fn publish(&mut self, index: &NeighborIndex) {
        if self.len > self.buckets.len() * BUCKET_LENGTH && self.buckets.len() < MOST_BUCKETS {
            self.spread();
            index.0.publish(self.shelf.clone());
        }
        for at in std::mem::take(&mut self.changed) {
            self.shelf[at].publish(self.buckets[at].clone());
        }
    }

    /// Moves all to a shelf with more buckets.
    fn spread(&mut self) {
        let mut count = self.buckets.len();
        while self.len > count * BUCKET_LENGTH && count < MOST_BUCKETS {
            count *= 4;
        }
        let old = std::mem::replace(&mut self.buckets, vec![Bucket::new(); count]);
        for (ip, neighbor) in old.into_iter().flatten() {
            self.buckets[place(ip, count)].push((ip, neighbor));
        }
        self.shelf = shelf_of(&self.buckets, &self.domain);
        self.changed.clear();
    }
}

fn shelf_of(buckets: &[Bucket], domain: &Arc<Domain>) -> Shelf {
    buckets.iter().map(|bucket| Published::new(domain, bucket.clone())).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use artery_engine::Time;
    use proptest::prelude::*;

    fn neighbor(n: u16) -> Arc<Neighbor> {
        let [a, b] = n.to_be_bytes();
        Arc::new(Neighbor::new([10, 0, a, b].into(), Time::ZERO))
    }

    proptest! {
        #[test]
        fn what_was_added_and_not_removed_is_found(changes in prop::collection::vec((any::<bool>(), 0..200u16), 1..400)) {
            let domain = Domain::new();
            let (mut writer, index) = IndexWriter::new(&domain);
            let (mut reader, mut here) = (domain.reader(), BTreeSet::new());
            for (add, n) in changes {
                if add && here.insert(n) {
                    writer.add(&neighbor(n));
                } else if !add {
                    here.remove(&n);
                    writer.remove(neighbor(n).ip);
                }
                writer.publish(&index);
            }
            let turn = reader.turn();
            for n in 0..200 {
                prop_assert_eq!(index.find(neighbor(n).ip, &turn).is_some(), here.contains(&n));
            }
            prop_assert_eq!(writer.len, here.len());
        }
    }

    #[test]
    fn buckets_stay_short_as_the_index_grows() {
        let domain = Domain::new();
        let (mut writer, index) = IndexWriter::new(&domain);
        let mut reader = domain.reader();
        for n in 0..20_000 {
            writer.add(&neighbor(n));
            writer.publish(&index);
        }
        assert!(writer.buckets.iter().all(|bucket| bucket.len() < 8 * BUCKET_LENGTH));
        let turn = reader.turn();
        assert!(
            (0..20_000)
                .all(|n| index.find(neighbor(n).ip, &turn).is_some_and(|found| found.ip == neighbor(n).ip))
        );
        assert!(index.find(neighbor(20_000).ip, &turn).is_none());
    }
}
