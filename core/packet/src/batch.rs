//! Packets that travel together.
use crate::Packet;

/// Most packets that travel in one batch.
pub const BATCH: usize = 64;

/// Up to [`BATCH`] packets, in order, in storage that its owner reuses.
#[derive(Debug)]
pub struct Batch(Vec<Packet>);

impl Default for Batch {
    fn default() -> Batch {
        Batch(Vec::with_capacity(BATCH))
    }
}

impl Batch {
    /// A batch without storage: a placeholder for `mem::replace`, which costs no allocation.
    pub const fn without_storage() -> Batch {
        Batch(Vec::new())
    }
    /// Adds a packet at the end. The sender splits at [`BATCH`]; a longer batch is legal but allocates.
    #[inline]
    pub fn push(&mut self, packet: Packet) {
        self.0.push(packet)
    }
    /// Number of packets in the batch.
    #[inline]
    pub fn len(&self) -> usize {
        self.0.len()
    }
    /// Whether the batch has no packets.
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
    /// Takes every packet out, in order.
    #[inline]
    pub fn drain(&mut self) -> std::vec::Drain<'_, Packet> {
        self.0.drain(..)
    }
    /// Takes up to `n` packets out of the front, in order.
    pub fn drain_front(&mut self, n: usize) -> std::vec::Drain<'_, Packet> {
        let n = n.min(self.0.len());
        self.0.drain(..n)
    }
    /// The packets, to read.
    #[inline]
    pub fn iter(&self) -> std::slice::Iter<'_, Packet> {
        self.0.iter()
    }
    /// The packets, to change in place.
    #[inline]
    pub fn iter_mut(&mut self) -> std::slice::IterMut<'_, Packet> {
        self.0.iter_mut()
    }
    /// Moves all packets of `other` to the end of this batch.
    #[inline]
    pub fn append(&mut self, other: &mut Batch) {
        if self.0.is_empty() {
            std::mem::swap(&mut self.0, &mut other.0);
        } else {
            self.0.append(&mut other.0);
        }
    }
    /// Passes each packet through `f` and keeps, in order, those that come back. Reuses its own storage.
    #[inline]
    pub fn filter_map(&mut self, f: impl FnMut(Packet) -> Option<Packet>) {
        // The standard library collects in place here, so the storage stays (a test counts allocations).
        self.0 = std::mem::take(&mut self.0).into_iter().filter_map(f).collect();
    }
    /// Gives every packet back to its pool.
    #[inline]
    pub fn free_packets(&mut self) {
        crate::pool::free_all(&mut self.0);
    }
    /// The underlying vector, for code of this crate that fills it in bulk.
    #[inline]
    pub(crate) fn packets_mut(&mut self) -> &mut Vec<Packet> {
        &mut self.0
    }
}

impl Drop for Batch {
    fn drop(&mut self) {
        self.free_packets();
    }
}

impl Extend<Packet> for Batch {
    fn extend<I: IntoIterator<Item = Packet>>(&mut self, packets: I) {
        self.0.extend(packets)
    }
}

impl<'a> IntoIterator for &'a Batch {
    type Item = &'a Packet;
    type IntoIter = std::slice::Iter<'a, Packet>;
    fn into_iter(self) -> Self::IntoIter {
        self.0.iter()
    }
}

impl<'a> IntoIterator for &'a mut Batch {
    type Item = &'a mut Packet;
    type IntoIter = std::slice::IterMut<'a, Packet>;
    fn into_iter(self) -> Self::IntoIter {
        self.0.iter_mut()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Pool;

    #[test]
    fn filter_map_keeps_order_and_storage() {
        let pool = Pool::new(128, 1).unwrap();
        let mut batch = Batch::default();
        batch.extend((0..64u8).map(|n| pool.packet_from(&[n]).unwrap()));
        let storage = batch.0.as_ptr();
        batch.filter_map(|p| (p.data()[0] % 2 == 0).then_some(p));
        let found = batch.iter().map(|p| p.data()[0]).collect::<Vec<_>>();
        assert_eq!(found, (0..64).step_by(2).collect::<Vec<_>>());
        assert_eq!(batch.0.as_ptr(), storage);
        assert!(batch.0.capacity() >= BATCH);
    }

    #[test]
    fn append_to_an_empty_batch_swaps_storage() {
        let pool = Pool::new(128, 1).unwrap();
        let (mut a, mut b) = (Batch::default(), Batch::default());
        b.push(pool.packet_from(b"x").unwrap());
        let storage = b.0.as_ptr();
        a.append(&mut b);
        assert_eq!((a.len(), b.len(), a.0.as_ptr()), (1, 0, storage));
    }
}
