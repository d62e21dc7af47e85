//! What every port can do: receive and transmit batches without waiting.
use crate::{DeviceError, Losses};
use artery_packet::{Batch, PacketType, Pool};
use std::os::fd::BorrowedFd;
use std::sync::Arc;
use std::time::Duration;

/// What a receive queue has counted since it was opened.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RxCounters {
    /// Packets given to the router. Those that are lost later, on their way between workers, are not among them.
    pub packets: u64,
    /// Their bytes.
    pub bytes: u64,
    /// Frames that the kernel dropped because the queue was full, and packets lost on their way to a worker that did
    /// not fetch them.
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
    /// Packets handed to the device. One that goes down sends them when it is up again, unless it is closed first.
    pub packets: u64,
    /// Their bytes.
    pub bytes: u64,
    /// Packets dropped because they are longer than the link carries.
    pub too_long: u64,
    /// Packets dropped because the device refused them, such as those shorter than a link header. What a device
    /// gives back as sent without having it counts here too.
    pub refused: u64,
    /// Packets handed to the device unfinished: without checksum, or uncut.
    pub unfinished: u64,
    /// Times the device could take no more.
    pub full: u64,
}

/// A queue that packets come in by.
pub trait RxQueue: Send {
    /// Appends up to `max` packets to `into` without waiting; returns how many.
    ///
    /// Each has its packet type, timestamp and receiving port set. When it returns `max` there may be more at
    /// hand that no descriptor tells of: call it again before waiting on [`RxQueue::fd`]. That an interface went
    /// down is told once; the queue goes on when it is up again. One that is gone never comes back.
    fn receive(&mut self, pool: &'static Pool, max: usize, into: &mut Batch) -> Result<usize, DeviceError>;
    /// What becomes readable when [`RxQueue::receive`] would give something; `None` for a queue that is polled.
    fn fd(&self) -> Option<BorrowedFd<'_>>;
    /// Whether the queue still belongs to its interface. The kernel may detach it without an error or a wakeup.
    fn is_attached(&self) -> bool {
        true
    }
    /// What the queue has counted.
    fn counters(&self) -> RxCounters;
    /// The same without asking the kernel, for whoever looks often: `ring_full` is what the last
    /// [`RxQueue::counters`] found.
    fn own_counters(&self) -> RxCounters {
        self.counters()
    }
    /// Tells other threads what the kernel dropped (`ring_full`), where that can be asked for beside the queue.
    fn losses(&self) -> Option<Arc<dyn Losses>> {
        None
    }
    /// For how long the oldest of the packets that the last [`RxQueue::receive`] gave had waited in the
    /// queue. None where it gave none, or the kernel does not say when they came. A step of the machine's
    /// time of day shows in it once.
    fn waited(&self) -> Option<Duration> {
        None
    }
    /// Says whether packets are received without a look at their bytes, which takes them all for this host's. A queue
    /// that copies them does so still.
    fn set_blind(&mut self, _blind: bool) {}
}

/// A queue that packets leave by.
pub trait TxQueue: Send {
    /// Sends from the front of `batch` without waiting; what could not be sent stays in `batch`, in order.
    /// Returns how many left it, sent or dropped as [`TxCounters`] tells.
    fn transmit(&mut self, batch: &mut Batch) -> Result<usize, DeviceError>;
    /// Whether [`TxQueue::transmit`] should be called again soon, be it with an empty batch: to have what waits in the
    /// queue's ring sent, or to give back to the pool what was.
    fn unsettled(&self) -> bool {
        false
    }
    /// What becomes writable when [`TxQueue::transmit`] could go on; `None` for a queue that is polled.
    fn fd(&self) -> Option<BorrowedFd<'_>>;
    /// What the queue has counted.
    fn counters(&self) -> TxCounters;
}

/// A station's own Ethernet address, as [`destination`] gives those of frames; none has [`NOBODY`]'s.
#[derive(Clone, Copy, Debug)]
pub(crate) struct OwnAddress(u64);

/// No own address.
const NOBODY: u64 = u64::MAX;
/// Everyone's.
const BROADCAST: u64 = u64::MAX << 16;
/// Set in the addresses of groups.
const GROUP: u64 = 1 << 16;

impl OwnAddress {
    /// The station of this address.
    pub(crate) fn new(own: Option<[u8; 6]>) -> OwnAddress {
        OwnAddress(own.map_or(NOBODY, |[a, b, c, d, e, f]| destination([a, b, c, d, e, f, 0, 0])))
    }

    /// To whom an Ethernet frame is addressed, as seen from here. Without an own address every single station is taken
    /// for it.
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

/// The destination that a frame begins with, as the upper bytes of a little-endian word: one load, where comparing
/// arrays takes one for each byte.
#[inline]
fn destination(first: [u8; 8]) -> u64 {
    u64::from_le_bytes(first) << 16
}
