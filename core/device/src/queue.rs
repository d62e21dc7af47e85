//! What every port can do: receive and transmit batches without waiting.
use crate::{DeviceError, Losses};
use artery_packet::{Batch, PacketType, Pool};
use std::os::fd::BorrowedFd;
use std::sync::Arc;
use std::time::Duration;

/// What a receive queue has counted since it was opened.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RxCounters {
    /// Packets given to the router. Those that are lost later, on their way between workers,
    /// are not among them.
    pub packets: u64,
    /// Bytes of these packets.
    pub bytes: u64,
    /// Frames that the kernel dropped because the queue was full, and packets lost because another worker did
    /// not fetch them from its ring.
    pub ring_full: u64,
    /// Frames dropped because only their beginning had room.
    pub truncated: u64,
    /// Frames dropped because the pool had no packet left.
    pub pool_empty: u64,
    /// Frames dropped because the kernel's description of them makes no sense; a ring that broke counts once.
    pub malformed: u64,
    /// Packets that their senders left unfinished: without checksum, or uncut.
    pub unfinished: u64,
}

impl RxCounters {
    /// The counts of both.
    pub fn plus(self, other: RxCounters) -> RxCounters {
        RxCounters {
            packets: self.packets + other.packets,
            bytes: self.bytes + other.bytes,
            ring_full: self.ring_full + other.ring_full,
            truncated: self.truncated + other.truncated,
            pool_empty: self.pool_empty + other.pool_empty,
            malformed: self.malformed + other.malformed,
            unfinished: self.unfinished + other.unfinished,
        }
    }
}

/// What a transmit queue has counted since it was opened.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct TxCounters {
    /// Packets handed to the device. One that goes down sends them when it is up again, unless
    /// it is closed first.
    pub packets: u64,
    /// Bytes of these packets.
    pub bytes: u64,
    /// Packets dropped because they are longer than the link carries.
    pub too_long: u64,
    /// Packets dropped because the device refused them, such as those shorter than a link header. What a
    /// device gives back as sent without having it counts here too.
    pub refused: u64,
    /// Packets handed to the device unfinished: without checksum, or uncut.
    pub unfinished: u64,
    /// Times the device's queue was full.
    pub full: u64,
}

/// A queue that packets come in by.
pub trait RxQueue: Send {
    /// Appends up to `max` packets to `into` without waiting; returns how many.
    ///
    /// Each has its packet type, timestamp and receiving port set. When it returns `max`, more may be at hand
    /// that no descriptor reports: call it again before waiting on [`RxQueue::fd`]. It reports once that an
    /// interface went down; the queue goes on when it is up again. One that is gone never comes back.
    fn receive(&mut self, pool: &'static Pool, max: usize, into: &mut Batch) -> Result<usize, DeviceError>;
    /// What becomes readable when [`RxQueue::receive`] would give something; `None` for a
    /// queue that is polled.
    fn fd(&self) -> Option<BorrowedFd<'_>>;
    /// Whether the queue still belongs to its interface. The kernel may detach it without an
    /// error or a wakeup.
    fn is_attached(&self) -> bool {
        true
    }
    /// What the queue has counted.
    fn counters(&self) -> RxCounters;
    /// The same without a system call, for callers that ask often: `ring_full` is what
    /// the last [`RxQueue::counters`] found.
    fn own_counters(&self) -> RxCounters {
        self.counters()
    }
    /// A handle for other threads to what the kernel dropped (`ring_full`), where the kernel counts that
    /// apart from the queue.
    fn losses(&self) -> Option<Arc<dyn Losses>> {
        None
    }
    /// For how long the oldest of the packets that the last [`RxQueue::receive`] gave had waited in the
    /// queue. None where it gave none, or the kernel does not say when they came. A step of the machine's
    /// time of day shows in it once.
    fn waited(&self) -> Option<Duration> {
        None
    }
    /// Sets whether packets are received without parsing: their packet type is then always this host's. A
    /// queue that copies packets still copies them.
    fn set_blind(&mut self, _blind: bool) {}
}

/// A queue that packets leave by.
pub trait TxQueue: Send {
    /// Sends from the front of `batch` without waiting; what could not be sent stays in `batch`, in order.
    /// Returns how many left it, sent or dropped as [`TxCounters`] counts them.
    fn transmit(&mut self, batch: &mut Batch) -> Result<usize, DeviceError>;
    /// Whether [`TxQueue::transmit`] should be called again soon, even with an empty batch: to send what
    /// waits in the queue's ring, or to give sent packets back to the pool.
    fn unsettled(&self) -> bool {
        false
    }
    /// What becomes writable when [`TxQueue::transmit`] could go on; `None` for a queue that is polled.
    fn fd(&self) -> Option<BorrowedFd<'_>>;
    /// What the queue has counted.
    fn counters(&self) -> TxCounters;
}

/// An interface's own Ethernet address, as [`destination`] gives those of frames. No frame has
/// [`NOBODY`] as its destination.
#[derive(Clone, Copy, Debug)]
pub(crate) struct OwnAddress(u64);

/// Means an interface without an address.
const NOBODY: u64 = u64::MAX;
/// The broadcast address, as [`destination`] gives it.
const BROADCAST: u64 = u64::MAX << 16;
/// Set in multicast addresses (IEEE 802, the group bit).
const GROUP: u64 = 1 << 16;

impl OwnAddress {
    /// Takes the interface's address; `None` where the link has none.
    pub(crate) fn new(own: Option<[u8; 6]>) -> OwnAddress {
        OwnAddress(own.map_or(NOBODY, |[a, b, c, d, e, f]| destination([a, b, c, d, e, f, 0, 0])))
    }

    /// The packet type of an Ethernet frame, as seen from this interface. Without an own address, every
    /// unicast frame is for this host.
    #[inline]
    pub(crate) fn sees(self, frame: &[u8]) -> PacketType {
        let Some(first) = frame.first_chunk() else { return PacketType::Host };
        let destination = destination(*first);
        // Most are.
        if destination == self.0 {
            PacketType::Host
        } else if destination == BROADCAST {
            PacketType::Broadcast
        } else if destination & GROUP != 0 {
            PacketType::Multicast
        } else if self.0 == NOBODY {
            PacketType::Host
        } else {
            PacketType::OtherHost
        }
    }
}

/// The destination that a frame begins with, as the upper bytes of a little-endian word: one load, where
/// comparing arrays takes one for each byte.
#[inline]
fn destination(first: [u8; 8]) -> u64 {
    u64::from_le_bytes(first) << 16
}
