//! The stub of a driver: a ring of frames that gets link headers, and work of a fixed length for each packet.
//!
//! There is one for each thread. What a real driver waits for, locks or a card, is not there;
//! the work simulates it.

use super::network::{Packet, Sent};
use std::hint::black_box;
use std::sync::OnceLock;
use std::time::Instant;

const FRAMES: usize = 256;
const FRAME: usize = 64;

pub(super) struct Driver {
    ring: Vec<[u8; FRAME]>,
    next: usize,
    /// Steps of work for a packet.
    steps: u32,
    mixed: u64,
    pub(super) out: u64,
    /// Packets that did not.
    pub(super) kept: u64,
}

impl Driver {
    /// A driver that takes so many nanoseconds for a packet beside its copying.
    pub(super) fn new(nanos: u32) -> Driver {
        let steps = if nanos == 0 { 0 } else { steps_of(nanos, nanos_of_step()) };
        Driver { ring: vec![[0; FRAME]; FRAMES], next: 0, steps, mixed: 1, out: 0, kept: 0 }
    }

    /// Takes what leaves of a batch.
    #[inline]
    pub(super) fn transmit(&mut self, packets: &[Packet], sent: &[Sent]) {
        // Counted for a batch: who traces what is stored shall see no count of each packet.
        let (mut out, mut kept) = (0, 0);
        for (packet, sent) in packets.iter().zip(sent) {
            let Sent::Out(interface, mac) = *sent else {
                kept += 1;
                continue;
            };
            let frame = &mut self.ring[self.next];
            self.next = (self.next + 1) % FRAMES;
            let header = mac.bits() << 16 | u64::from(interface);
            frame[..8].copy_from_slice(&header.to_be_bytes());
            frame[12..14].copy_from_slice(&[8, 0]);
            frame[30..34].copy_from_slice(&packet.destination.to_be_bytes());
            out += 1;
            if self.steps > 0 {
                self.mixed = work(self.mixed, self.steps);
            }
        }
        self.out += out;
        self.kept += kept;
        black_box(&mut self.ring);
    }
}

/// A chain of multiplications, each of which needs the one before.
fn work(mut state: u64, steps: u32) -> u64 {
    for _ in 0..steps {
        state = state.wrapping_mul(state | 1).wrapping_add(1);
    }
    black_box(state)
}

/// How many steps take so many nanoseconds.
fn steps_of(nanos: u32, nanos_of_step: f64) -> u32 {
    (f64::from(nanos) / nanos_of_step).round() as u32
}

/// The least of several trials, as what disturbs only adds.
fn nanos_of_step() -> f64 {
    static NANOS: OnceLock<f64> = OnceLock::new();
    *NANOS.get_or_init(|| {
        const STEPS: u32 = 100_000;
        let trial = |_| {
            let start = Instant::now();
            work(black_box(3), STEPS);
            start.elapsed().as_nanos() as f64 / f64::from(STEPS)
        };
        (0..20).map(trial).fold(f64::INFINITY, f64::min).max(0.01)
    })
}

#[cfg(test)]
mod tests {
    use super::super::network::Mac;
    use super::*;

    #[test]
    fn a_frame_has_the_link_address_of_the_packet_and_its_destination() {
        let mut driver = Driver::new(0);
        let packet = Packet { destination: 0x0102_0304, socket: 0 };
        let sent = [Sent::Held, Sent::Out(1, Mac::new(7, 9)), Sent::NoRoute];
        driver.transmit(&[packet; 3], &sent);
        assert_eq!((driver.out, driver.kept), (1, 2));
        assert_eq!(&driver.ring[0][..8], &[2, 7, 0, 0, 0, 9, 0, 1][..]);
        assert_eq!(&driver.ring[0][30..34], &[1, 2, 3, 4][..]);
    }

    #[test]
    fn work_has_steps_by_its_time_and_each_step_changes_the_state() {
        assert_eq!([steps_of(1000, 0.8), steps_of(1000, 4.0), steps_of(1, 3.0)], [1250, 250, 0]);
        let states: Vec<u64> = (0..100).map(|steps| work(3, steps)).collect();
        assert!(states.windows(2).all(|pair| pair[0] != pair[1]), "{states:?}");
        let mut driver = Driver::new(1000);
        driver.transmit(&[Packet { destination: 1, socket: 0 }], &[Sent::Out(0, Mac::new(1, 1))]);
        assert!(driver.steps > 0 && driver.mixed == work(1, driver.steps));
    }
}
