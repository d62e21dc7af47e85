//! Neighbors by address: found by workers without a lock, changed under the table's lock.
//!
//! The index is an array of buckets, each published separately, so that a new neighbor costs a copy of one
//! bucket. When buckets grow long, an array with four times as many is published. The state of a neighbor is
//! not stored here: the index changes only when a neighbor is added or removed.
use super::neighbor::Neighbor;
use artery_rcu::{Domain, Published, Turn};
use std::collections::BTreeSet;
use std::net::Ipv4Addr;
use std::sync::Arc;

/// Neighbors of one value of the hash, in no order.
type Bucket = Vec<(Ipv4Addr, Arc<Neighbor>)>;
type BucketArray = Arc<[Published<Bucket>]>;

const FEWEST_BUCKETS: usize = 64;
const MOST_BUCKETS: usize = 65536;
/// Average length at which the number of buckets grows.
const BUCKET_LENGTH: usize = 8;

/// The readers' half of the index.
pub(crate) struct NeighborIndex(Published<BucketArray>);

impl NeighborIndex {
    /// The neighbor of this address.
    pub(crate) fn find<'t>(&'t self, ip: Ipv4Addr, turn: &'t Turn<'_>) -> Option<&'t Arc<Neighbor>> {
        let shelf = self.0.read(turn);
        let bucket = shelf.get(bucket_index(ip, shelf.len()))?.read(turn);
        bucket.iter().find(|(of, _)| *of == ip).map(|(_, neighbor)| neighbor)
    }
}

fn bucket_index(ip: Ipv4Addr, buckets: usize) -> usize {
    (ip.to_bits().wrapping_mul(0x9e37_79b1) >> 16) as usize % buckets
}

/// The writer's half. Changes become visible by [`IndexWriter::publish`].
pub(crate) struct IndexWriter {
    domain: Arc<Domain>,
    buckets_published: BucketArray,
    buckets: Vec<Bucket>,
    len: usize,
    /// Buckets that differ from the published ones.
    changed: BTreeSet<usize>,
}

impl IndexWriter {
    /// An empty index, to write and to read.
    pub(crate) fn new(domain: &Arc<Domain>) -> (IndexWriter, NeighborIndex) {
        let buckets = vec![Bucket::new(); FEWEST_BUCKETS];
        let shelf = build_buckets(&buckets, domain);
        let index = NeighborIndex(Published::new(domain, shelf.clone()));
        (
            IndexWriter {
                domain: domain.clone(),
                buckets_published: shelf,
                buckets,
                len: 0,
                changed: BTreeSet::new(),
            },
            index,
        )
    }

    /// Adds a neighbor that is not in the index.
    pub(crate) fn add(&mut self, neighbor: &Arc<Neighbor>) {
        let at = bucket_index(neighbor.ip, self.buckets.len());
        self.buckets[at].push((neighbor.ip, neighbor.clone()));
        self.changed.insert(at);
        self.len += 1;
    }
    pub(crate) fn remove(&mut self, ip: Ipv4Addr) {
        let at = bucket_index(ip, self.buckets.len());
        let before = self.buckets[at].len();
        self.buckets[at].retain(|(of, _)| *of != ip);
        self.len -= before - self.buckets[at].len();
        self.changed.insert(at);
    }

    /// Shows readers what was changed.
    pub(crate) fn publish(&mut self, index: &NeighborIndex) {
        if self.len > self.buckets.len() * BUCKET_LENGTH && self.buckets.len() < MOST_BUCKETS {
            self.grow_buckets();
            index.0.publish(self.buckets_published.clone());
        }
        for at in std::mem::take(&mut self.changed) {
            self.buckets_published[at].publish(self.buckets[at].clone());
        }
    }

    /// Moves all to a shelf with more buckets.
    fn grow_buckets(&mut self) {
        let mut count = self.buckets.len();
        while self.len > count * BUCKET_LENGTH && count < MOST_BUCKETS {
            count *= 4;
        }
        let old = std::mem::replace(&mut self.buckets, vec![Bucket::new(); count]);
        for (ip, neighbor) in old.into_iter().flatten() {
            self.buckets[bucket_index(ip, count)].push((ip, neighbor));
        }
        self.buckets_published = build_buckets(&self.buckets, &self.domain);
        self.changed.clear();
    }
}

fn build_buckets(buckets: &[Bucket], domain: &Arc<Domain>) -> BucketArray {
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
        fn what_was_added_and_not_removed_is_found(
            changes in prop::collection::vec((any::<bool>(), 0..200u16), 1..400),
        ) {
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
