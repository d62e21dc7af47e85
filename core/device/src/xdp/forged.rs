//! The rings of a socket as a kernel would never leave them: indices that go anywhere, and descriptors of
//! frames that were not lent.
use super::checksum;
use super::rings::{BrokenRing, Consumer, Peer, Producer};
use super::socket::halves;
use super::umem::FrameLedger;
use artery_packet::{FRAME, Packet, Pool};
use std::collections::BTreeSet;

const ENTRIES: u32 = 8;
const FRAMES: usize = 16;
/// Bytes of a step: which it is, a word and a number.
pub(crate) const STEP: usize = 13;

thread_local! {
    static POOL: &'static Pool = Pool::new(FRAMES, 1).expect("there is memory for a few frames");
}

/// A receiving half without a socket, and the answers that a simulated kernel gives.
struct Half {
    pool: &'static Pool,
    fill: Producer<1>,
    rx: Consumer<2>,
    lent: FrameLedger,
    received: Vec<Packet>,
    kernel: (Peer<1>, Peer<2>),
    /// The kernel's index of each ring.
    indices: (u32, u32),
}

/// Takes steps until the bytes end, and checks after each that no frame has two owners; in the end
/// none may be missing.
pub(crate) fn survive(bytes: &[u8]) {
    let mut half = Half::new();
    let pool = half.pool;
    for step in bytes.chunks_exact(STEP) {
        half.step(step);
        half.check();
    }
    let Half { lent, received, .. } = half;
    // SAFETY: no kernel has any of these frames.
    unsafe { lent.release() };
    drop(received);
    let all: Vec<Packet> = std::iter::from_fn(|| pool.alloc_packet()).collect();
    assert_eq!(all.len(), FRAMES, "frames were lost, or found twice");
}

/// Takes any bytes for a frame of a host that left its checksum to a card; says whether it was.
pub(crate) fn finish(frame: &mut [u8]) -> bool {
    checksum::finish(frame)
}

impl Half {
    fn new() -> Half {
        let pool = POOL.with(|pool| *pool);
        let ((fills, fill), (receives, rx)) = (Peer::consuming(ENTRIES), Peer::producing(ENTRIES));
        let (kernel, received) = ((fills, receives), Vec::new());
        Half { pool, fill, rx, lent: FrameLedger::new(pool), received, kernel, indices: (0, 0) }
    }

    fn step(&mut self, bytes: &[u8]) {
        let Some((&[what], rest)) = bytes.split_first_chunk() else { return };
        let Some((word, number)) = rest.split_first_chunk() else { return };
        let Some(number) = number.first_chunk() else { return };
        let (word, number) = (u64::from_ne_bytes(*word), u32::from_ne_bytes(*number));
        match what % 9 {
            0 => self.lend(),
            1 => self.receive(),
            2 => self.received.clear(),
            // SAFETY: no kernel has any of these frames.
            3 => drop(unsafe { self.lent.reclaim(word) }),
            4 => self.show_taken(number),
            5 => self.show_taken(self.indices.0.wrapping_add(number % ENTRIES)),
            6 => self.show_filled(number),
            7 => self.describe(word, u64::from(number)),
            // Close to what would be right.
            _ => self.describe(word % ((FRAMES + 1) as u64 * FRAME as u64), u64::from(number % 3000)),
        }
    }

    fn lend(&mut self) {
        if self.fill.free().unwrap_or(0) == 0 {
            return;
        }
        let Some(packet) = self.pool.alloc_packet() else { return };
        let address = self.lent.lend(packet).unwrap_or_else(|packet| panic!("{packet:?} is not of the pool"));
        // SAFETY: no kernel knows of this ring.
        assert!(unsafe { self.fill.write([address]) }, "there was room");
        self.fill.publish();
    }

    fn receive(&mut self) {
        let Ok(available) = self.rx.available() else { return };
        assert!(available <= ENTRIES);
        for _ in 0..available {
            let Some([address, description]) = self.rx.read() else { panic!("it was available") };
            // SAFETY: as in step().
            self.received.extend(unsafe { self.lent.reclaim_filled(address, halves(description).0) });
        }
        assert_eq!(self.rx.read(), None);
        self.rx.release();
    }

    /// Says how many frames the kernel has taken to fill.
    fn show_taken(&mut self, index: u32) {
        self.indices.0 = index;
        self.kernel.0.set_consumer(index);
        match self.fill.free() {
            Ok(free) => assert!(free <= ENTRIES),
            Err(BrokenRing) => assert_eq!(self.fill.free(), Err(BrokenRing), "for good"),
        }
    }

    /// Says how many frames the kernel has filled.
    fn show_filled(&mut self, index: u32) {
        self.indices.1 = index;
        self.kernel.1.set_producer(index);
    }

    /// Describes a frame as filled.
    fn describe(&mut self, address: u64, description: u64) {
        self.kernel.1.produce(&[[address, description]]);
        self.indices.1 = self.indices.1.wrapping_add(1);
    }

    fn check(&self) {
        let frames: BTreeSet<_> = self.received.iter().map(|packet| self.pool.frame_of(packet)).collect();
        assert_eq!(frames.len(), self.received.len(), "a frame makes two packets");
        assert!(self.lent.count() as usize + frames.len() <= FRAMES);
        for packet in &self.received {
            assert!(packet.headroom() + packet.len() <= FRAME, "{packet:?} leaves its frame");
        }
    }
}
