//! The frames that a socket's kernel side holds, and the kernel's names for them.
//!
//! The memory that is registered with a socket (its UMEM) is the region of the pool's common frames, so an
//! address is a frame's number times its size, plus a place inside the frame. Whoever lends a frame gives up
//! its packet to the ledger; an address that comes back makes a packet again only if the ledger has it. So no
//! address, whoever wrote it, makes two packets of one frame or a packet of a frame that has another owner.
//!
//! What the compiler can't see is that the kernel writes to a frame, or reads it, from when its address is
//! put into a ring until it comes back by another one. So to take a packet out of the ledger is unsafe, and a
//! ledger that is dropped keeps what is lent for good: frames are lost then, and none is in two hands.
//! `socket.rs` has the rings beside their ledgers and is the only caller.
use artery_packet::{FRAME, Packet, Pool};

/// Frames that are lent to the kernel, by number.
#[derive(Debug)]
pub(super) struct FrameLedger {
    pool: Frames,
    lent: Box<[Option<Packet>]>,
    count: u32,
}

/// A pool, of which `Debug` prints only the size.
struct Frames(&'static Pool);

impl std::fmt::Debug for Frames {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} frames", self.0.frames())
    }
}

impl FrameLedger {
    /// A ledger of frames of `pool`, none of which is lent.
    pub(super) fn new(pool: &'static Pool) -> FrameLedger {
        FrameLedger { pool: Frames(pool), lent: (0..pool.frames()).map(|_| None).collect(), count: 0 }
    }
    pub(super) fn pool(&self) -> &'static Pool {
        self.pool.0
    }
    /// Number of frames that are lent.
    #[inline]
    pub(super) fn count(&self) -> u32 {
        self.count
    }
    /// Takes a packet and gives the address of its data; gives one back whose frame is not in the region.
    #[inline]
    pub(super) fn lend(&mut self, packet: Packet) -> Result<u64, Packet> {
        let Some(frame) = self.pool.0.frame_of(&packet) else { return Err(packet) };
        let address = u64::from(frame) * FRAME as u64 + packet.headroom() as u64;
        match self.lent.get_mut(frame as usize) {
            Some(place) => *place = Some(packet),
            None => return Err(packet),
        }
        self.count += 1;
        Ok(address)
    }
    /// The packet that was lent and whose frame has this address; `None` when there is none.
    ///
    /// # Safety
    /// The kernel must be done with this frame if it is lent: the address came by the ring that says so, or
    /// the kernel has never got it.
    #[inline]
    pub(super) unsafe fn reclaim(&mut self, address: u64) -> Option<Packet> {
        let frame = usize::try_from(address / FRAME as u64).ok()?;
        let packet = self.lent.get_mut(frame)?.take()?;
        self.count -= 1;
        Some(packet)
    }
    /// The same for one whose data is now the `len` bytes at `address`; it stays lent when
    /// they leave its frame.
    ///
    /// # Safety
    /// As of [`FrameLedger::reclaim`], for this frame.
    #[inline]
    pub(super) unsafe fn reclaim_filled(&mut self, address: u64, len: u32) -> Option<Packet> {
        let start = (address % FRAME as u64) as usize;
        if len as usize > FRAME - start {
            return None;
        }
        // SAFETY: the caller's promise.
        let mut packet = unsafe { self.reclaim(address) }?;
        packet.set_place(start, len as usize).ok()?;
        Some(packet)
    }
    /// Gives back to the pool all that is lent.
    ///
    /// # Safety
    /// The kernel must be done with all of these frames: the socket is closed, or never was.
    pub(super) unsafe fn release(mut self) {
        self.lent.fill_with(|| None);
        self.count = 0;
    }
}

impl Drop for FrameLedger {
    /// A drop without `release` does not know that the kernel is done, so the frames stay lent.
    fn drop(&mut self) {
        self.lent.iter_mut().filter_map(Option::take).for_each(std::mem::forget);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::BTreeMap;

    #[derive(Clone, Debug)]
    enum Step {
        Lend,
        Take(u64),
        Fill(u64, u32),
    }

    fn address() -> impl Strategy<Value = u64> {
        prop_oneof![0..20 * FRAME as u64, any::<u64>()]
    }
    fn step() -> impl Strategy<Value = Step> {
        prop_oneof![
            Just(Step::Lend),
            address().prop_map(Step::Take),
            (address(), prop_oneof![0..3000u32, any::<u32>()]).prop_map(|(at, len)| Step::Fill(at, len)),
        ]
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(64))]

        #[test]
        fn only_what_was_lent_comes_back_and_only_once(steps in proptest::collection::vec(step(), 0..100)) {
            let pool = Pool::new(16, 1).unwrap();
            let (mut ledger, mut model) = (FrameLedger::new(pool), BTreeMap::new());
            for step in steps {
                match step {
                    Step::Lend => {
                        let Some(packet) = pool.alloc_packet() else { continue };
                        let (frame, start) = (pool.frame_of(&packet).unwrap(), packet.headroom());
                        let address = ledger.lend(packet).unwrap();
                        prop_assert_eq!(address, u64::from(frame) * 2048 + start as u64);
                        model.insert(u64::from(frame), ());
                    }
                    Step::Take(address) => {
                        let expected = model.remove(&(address / 2048)).map(|()| address / 2048);
                        // SAFETY: no kernel shares these frames.
                        let got = unsafe { ledger.reclaim(address) }
                            .map(|packet| u64::from(pool.frame_of(&packet).unwrap()));
                        prop_assert_eq!(got, expected);
                    }
                    Step::Fill(address, len) => {
                        let fits = address % 2048 + u64::from(len) <= 2048;
                        let expected = fits && model.remove(&(address / 2048)).is_some();
                        // SAFETY: as above.
                        let got = unsafe { ledger.reclaim_filled(address, len) };
                        prop_assert_eq!(got.is_some(), expected);
                        if let Some(packet) = got {
                            let place = (packet.headroom() as u64, packet.len());
                            prop_assert_eq!(place, (address % 2048, len as usize));
                        }
                    }
                }
                prop_assert_eq!(ledger.count() as usize, model.len());
            }
            // SAFETY: as above.
            unsafe { ledger.release() };
            prop_assert_eq!(std::iter::from_fn(|| pool.alloc_packet()).collect::<Vec<_>>().len(), 16);
        }
    }

    #[test]
    fn a_ledger_that_is_dropped_keeps_what_is_lent() {
        let pool = Pool::new(4, 1).unwrap();
        let mut ledger = FrameLedger::new(pool);
        let frames = [pool.alloc_packet(), pool.alloc_packet()]
            .map(|packet| ledger.lend(packet.unwrap()).unwrap() / 2048);
        drop(ledger);
        let left: Vec<_> = std::iter::from_fn(|| pool.alloc_packet()).collect();
        let numbers: Vec<_> = left.iter().map(|packet| u64::from(pool.frame_of(packet).unwrap())).collect();
        assert_eq!(numbers.len(), 2);
        assert!(frames.iter().all(|lent| !numbers.contains(lent)), "{frames:?} are among {numbers:?}");
    }

    #[test]
    fn packets_of_big_frames_and_other_pools_are_not_lent() {
        let (pool, other) = (Pool::new(4, 1).unwrap(), Pool::new(4, 1).unwrap());
        let mut ledger = FrameLedger::new(pool);
        assert!(ledger.lend(pool.alloc_big_packet().unwrap()).is_err());
        assert!(ledger.lend(other.alloc_packet().unwrap()).is_err());
        assert_eq!(ledger.count(), 0);
    }
}
