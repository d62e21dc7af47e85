//! What a worker counts of a switch: plain stores of its own, which others read.
use super::decide::Cause;
use super::groups::Heard;
use super::learn::Learned;
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::Relaxed;

/// A number that one thread counts up.
#[derive(Debug, Default)]
pub struct Count(AtomicU64);

impl Count {
    /// Adds to the count; one thread writes.
    #[inline(always)]
    pub fn add(&self, more: u64) {
        self.0.store(self.0.load(Relaxed).wrapping_add(more), Relaxed);
    }
    /// How many there are.
    pub fn get(&self) -> u64 {
        self.0.load(Relaxed)
    }
}

/// Counts of one port, by one worker.
#[derive(Debug)]
pub struct PortCounts {
    /// Frames that came in, and their bytes.
    pub received: [Count; 2],
    /// Frames that left, and their bytes.
    pub sent: [Count; 2],
    /// Frames that went no further, or not to this port, by [`Cause`].
    pub causes: [Count; Cause::ALL.len()],
}

/// Counts of one worker, over all ports.
#[derive(Debug)]
pub struct Counts {
    /// Counts of each port, by port number.
    pub ports: Box<[PortCounts]>,
    /// What became of addresses, by [`Learned`].
    pub learned: [Count; Learned::ALL.len()],
    /// What became of messages about groups, by [`Heard`].
    pub groups: [Count; Heard::ALL.len()],
    /// Frames that went to many ports.
    pub flooded: Count,
    /// Copies for ports that get them.
    pub copied: Count,
}

impl PortCounts {
    fn new() -> PortCounts {
        PortCounts {
            received: Default::default(),
            sent: Default::default(),
            causes: std::array::from_fn(|_| Count::default()),
        }
    }
    /// Counts a frame that went no further, or not to this port.
    #[inline]
    pub fn count_drop(&self, cause: Cause) {
        self.causes[cause as usize].add(1);
    }
}

impl Counts {
    /// Counts for this many ports.
    pub fn new(ports: usize) -> Counts {
        Counts {
            ports: (0..ports).map(|_| PortCounts::new()).collect(),
            learned: Default::default(),
            groups: Default::default(),
            flooded: Count::default(),
            copied: Count::default(),
        }
    }
}
