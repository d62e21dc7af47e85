//! Long frames that the kernel sends from where they lie in the pool.
//!
//! A packet socket that is written to takes pages for the frame, clears them, and copies: for 64 kB that
//! costs more than all else that sending does. A transmit ring (PACKET_TX_RING; Linux,
//! Documentation/networking/packet_mmap.rst) lends its own pages instead, but sends its slots in their order,
//! and by one interface. So each frame has a socket of its own: the memory of a big frame is the only slot of
//! that socket's ring, which is mapped in the frame's place, and each call says by which interface it leaves.
//!
//! From such a call until the slot's status says that it is free, kernel and card read the frame, and its
//! packet stays in [`LentFrames`]. Where such a frame would get other readers - the receiver at the other end
//! of a veth pair, a TAP, tcpdump - the kernel copies it first (`skb_orphan_frags`). But it may let go of a
//! frame early, while that is still read (`skb_orphan`): the queueing discipline netem does so before the
//! call returns, and some drivers do. So a frame that is free as soon as the call returns is kept until
//! [`is_kept`] says later that nothing of the kind is there: then the frame was sent, or was in a netem that
//! is gone, with all that it held. docs/decisions/0043 has measurements.
use super::packet_socket;
use crate::driver::keeps_sent_frames;
use crate::offload::VIRTIO_HEADER;
use crate::privsep::Buffer;
use crate::qdisc::has_netem;
use crate::{Interface, sys};
use artery_packet::{BIG_FRAME_HEADER, BIG_FRAME_MEMORY, Batch, Packet, Pool};
use rustix::fd::{AsFd as _, OwnedFd};
use rustix::mm::{MapFlags, ProtFlags, mmap};
use rustix::process::{Resource, getrlimit};
use std::io;
use std::ptr::NonNull;
use std::sync::atomic::AtomicU32;
use std::sync::atomic::Ordering::{Acquire, Release};
use std::sync::{Mutex, OnceLock, PoisonError};

/// Bytes from which on a frame is lent: a call for each frame costs as much as copying a few kilobytes.
const LONG: usize = 8 << 10;
/// Frames that become slots for each transmit queue, and at most in all. The kernel takes 128 kB for each.
const FRAMES_PER_QUEUE: usize = 64;
const MOST_FRAMES: usize = 256;
/// Frames that are kept since they were free as soon as the call returned, until the kernel is asked.
const MOST_EARLY: usize = 32;
/// Long frames that are copied before it is asked again, where it is not to be trusted.
const PAUSE: u32 = 1000;
/// Places in `struct tpacket2_hdr`, which a slot begins with, and its length.
const LENGTH: usize = 4;
const START: usize = 12;
const SLOT_HEADER: usize = 32;
const _: () = assert!(SLOT_HEADER + VIRTIO_HEADER <= BIG_FRAME_HEADER);

/// The big frames of one pool that are slots of rings.
struct FrameSlots {
    pool: &'static Pool,
    /// By number of the frame.
    slots: Box<[OnceLock<FrameSlot>]>,
    spare: Mutex<Spare>,
    /// Packets that the kernel may have, of queues that are closed.
    left: Mutex<Vec<Packet>>,
}

/// Sockets with rings that have no frame yet.
#[derive(Default)]
struct Spare {
    sockets: Vec<OwnedFd>,
    /// Sockets that were ever made.
    made: usize,
}

/// A frame that is the slot of a ring.
struct FrameSlot {
    socket: OwnedFd,
    /// The slot's beginning, [`BIG_FRAME_HEADER`] bytes before the frame.
    memory: NonNull<u8>,
}
// SAFETY: the slot's header is reached by whoever owns the frame's packet, and its status only atomically.
unsafe impl Send for FrameSlot {}
// SAFETY: as above.
unsafe impl Sync for FrameSlot {}

impl FrameSlots {
    /// Those of `pool`, which are never freed, as pools are not.
    fn of(pool: &'static Pool) -> &'static FrameSlots {
        static ALL: Mutex<Vec<&FrameSlots>> = Mutex::new(Vec::new());
        let mut all = ALL.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(known) = all.iter().find(|slots| std::ptr::eq(slots.pool, pool)) {
            return known;
        }
        let slots = (0..pool.big_frames()).map(|_| OnceLock::new()).collect();
        let new = FrameSlots { pool, slots, spare: Mutex::default(), left: Mutex::default() };
        let new: &'static FrameSlots = Box::leak(Box::new(new));
        all.push(new);
        new
    }

    /// Makes sockets for another queue's frames, as many as the system gives, and a quarter of this process's
    /// descriptors at most: frames without one are copied.
    fn make_spare(&self, interface: &str) {
        let descriptors = getrlimit(Resource::Nofile).current.unwrap_or(u64::MAX);
        let most = MOST_FRAMES.min(usize::try_from(descriptors / 4).unwrap_or(MOST_FRAMES));
        let mut spare = self.spare.lock().unwrap_or_else(PoisonError::into_inner);
        let wanted = (spare.made + FRAMES_PER_QUEUE).min(most).min(self.slots.len());
        while spare.made < wanted {
            let Ok(socket) = packet_socket(interface, Buffer::Usual) else { return };
            if set_up(&socket).is_err() {
                return;
            }
            spare.sockets.push(socket);
            spare.made += 1;
        }
    }

    fn slot_of(&self, packet: &Packet) -> Option<&FrameSlot> {
        self.slots.get(self.pool.big_frame_of(packet)? as usize)?.get()
    }

    /// Makes the frame of a packet, whose bytes are not needed any more, the slot of a spare socket.
    #[cold]
    fn attach(&self, packet: Packet) {
        let Some(place) = self.pool.big_frame_of(&packet).and_then(|frame| self.slots.get(frame as usize))
        else {
            return;
        };
        let spare = || self.spare.lock().unwrap_or_else(PoisonError::into_inner).sockets.pop();
        if let (None, Some(memory)) = (place.get(), self.pool.big_frame_memory(&packet))
            && let Some(socket) = spare()
        {
            match map(&socket, memory) {
                // Only the owner of its packet attaches a frame.
                Ok(()) => drop(place.set(FrameSlot { socket, memory: memory.cast() })),
                // There may be no memory in its place now.
                Err(_) => std::mem::forget(packet),
            }
        }
    }
}

fn set_up(socket: &OwnedFd) -> io::Result<()> {
    let fd = socket.as_fd();
    let set = |name, value: libc::c_int| sys::set_option(fd, libc::SOL_PACKET, name, &value);
    set(libc::PACKET_VERSION, libc::tpacket_versions::TPACKET_V2 as libc::c_int)?;
    set(libc::PACKET_VNET_HDR, 1)?;
    set(libc::PACKET_TX_HAS_OFF, 1)?;
    let ring = libc::tpacket_req {
        tp_block_size: BIG_FRAME_MEMORY as u32,
        tp_block_nr: 1,
        tp_frame_size: BIG_FRAME_MEMORY as u32,
        tp_frame_nr: 1,
    };
    sys::set_option(fd, libc::SOL_PACKET, libc::PACKET_TX_RING, &ring)
}

/// Maps a socket's ring in the place of a big frame that is not in use.
fn map(socket: &OwnedFd, memory: NonNull<[u8]>) -> io::Result<()> {
    let (access, flags) = (ProtFlags::READ | ProtFlags::WRITE, MapFlags::SHARED | MapFlags::FIXED);
    // SAFETY: the memory is whole pages of a pool, which is never freed; the caller owns the packet that they
    // belong to, so nothing refers to them; what they hold is initialised before as after.
    unsafe { mmap(memory.as_ptr().cast(), memory.len(), access, flags, socket, 0) }.map(drop)?;
    Ok(())
}

impl FrameSlot {
    fn status(&self) -> &AtomicU32 {
        // SAFETY: a slot begins with its status, which is mapped as long as the process lives, and which the
        // kernel and we access atomically only.
        unsafe { AtomicU32::from_ptr(self.memory.as_ptr().cast()) }
    }
    /// Whether the kernel has the frame, or may still take it.
    fn is_lent(&self) -> bool {
        self.status().load(Acquire) & (libc::TP_STATUS_SEND_REQUEST | libc::TP_STATUS_SENDING) != 0
    }

    /// Describes the packet in the slot, which is its frame's, and has the kernel send it.
    fn send(
        &self,
        packet: &mut Packet,
        header: &[u8; VIRTIO_HEADER],
        interface: &Interface,
    ) -> io::Result<()> {
        let start = BIG_FRAME_HEADER + packet.headroom() - VIRTIO_HEADER;
        let length = VIRTIO_HEADER + packet.len();
        let (Ok(start16), Ok(length32)) = (u16::try_from(start), u32::try_from(length)) else {
            return Err(io::ErrorKind::InvalidInput.into());
        };
        // SAFETY: all are inside the slot's memory: the first two in its header, and the last, ten bytes,
        // between that and the packet, since BIG_FRAME_HEADER has room for both. They are the packet's
        // headroom or no packet's, so nothing refers to them, and the kernel has not got the slot.
        unsafe {
            self.memory.add(LENGTH).cast::<u32>().write(length32);
            self.memory.add(START).cast::<u16>().write(start16);
            self.memory.add(start).cast::<[u8; VIRTIO_HEADER]>().write_unaligned(*header);
        }
        self.status().store(libc::TP_STATUS_SEND_REQUEST, Release);
        let sent = sys::send_slot(self.socket.as_fd(), interface.index);
        if sent.is_err() && self.status().load(Acquire) & libc::TP_STATUS_SENDING == 0 {
            self.status().store(libc::TP_STATUS_AVAILABLE, Release);
            return sent;
        }
        Ok(())
    }
}

/// Whether the kernel lets go of frames that leave by an interface only when they are sent.
pub(super) fn is_kept(interface: &Interface) -> bool {
    keeps_sent_frames(interface) && has_netem().is_ok_and(|found| !found)
}

/// The frames of a transmit queue that the kernel has.
pub(super) struct LentFrames {
    slots: &'static FrameSlots,
    interface: Interface,
    lent: Vec<Packet>,
    /// Those that were free as soon as the call returned.
    early: Vec<Packet>,
    /// Long frames to copy before [`LentFrames::is_kept`] is asked again.
    pause: u32,
    is_kept: fn(&Interface) -> bool,
}

impl LentFrames {
    /// Prepares to lend frames of `pool` while `is_kept` says of the interface that it may be done.
    pub(super) fn new(
        pool: &'static Pool,
        interface: &Interface,
        is_kept: fn(&Interface) -> bool,
    ) -> LentFrames {
        let slots = FrameSlots::of(pool);
        slots.make_spare(&interface.name);
        let lent = std::mem::take(&mut *slots.left.lock().unwrap_or_else(PoisonError::into_inner));
        LentFrames { slots, interface: interface.clone(), lent, early: Vec::new(), pause: 0, is_kept }
    }
    /// Whether the kernel has none.
    pub(super) fn is_empty(&self) -> bool {
        self.lent.is_empty()
    }
    /// Whether a packet's frame can be lent, and is long enough for that to gain something.
    #[inline]
    pub(super) fn takes(&self, packet: &Packet) -> bool {
        packet.len() >= LONG && self.early.len() < MOST_EARLY && self.slots.slot_of(packet).is_some()
    }
    /// Has the kernel send the packet at the front of `batch`, which [`LentFrames::takes`], and calls
    /// `count_sent` with it. On an error it stays there.
    pub(super) fn send(
        &mut self,
        batch: &mut Batch,
        header: &[u8; VIRTIO_HEADER],
        count_sent: impl FnOnce(&Packet),
    ) -> io::Result<()> {
        let slots = self.slots;
        let Some(packet) = batch.iter_mut().next() else { return Ok(()) };
        let slot = slots.slot_of(packet).ok_or(io::ErrorKind::InvalidInput)?;
        slot.send(packet, header, &self.interface)?;
        count_sent(packet);
        let sent = batch.drain_front(1);
        if slot.is_lent() {
            self.lent.extend(sent);
        } else {
            self.early.extend(sent);
        }
        if self.early.len() == MOST_EARLY {
            self.free_early();
        }
        Ok(())
    }
    /// Takes a packet that was copied; if it is long, its frame can be lent from then on.
    #[inline]
    pub(super) fn finish_copied(&mut self, packet: Packet) {
        if packet.len() < LONG {
            return;
        }
        if self.early.len() < MOST_EARLY {
            return self.slots.attach(packet);
        }
        self.pause = self.pause.saturating_sub(1);
        if self.pause == 0 {
            self.free_early();
        }
    }
    /// Gives back to the pool what was free at once, if that can be trusted.
    #[cold]
    fn free_early(&mut self) {
        if (self.is_kept)(&self.interface) {
            self.early.clear();
        } else {
            self.pause = PAUSE;
        }
    }
    /// Gives back to the pool what the kernel has sent.
    #[inline]
    pub(super) fn reclaim(&mut self) {
        let slots = self.slots;
        self.lent.retain(|packet| slots.slot_of(packet).is_some_and(FrameSlot::is_lent));
    }
}

impl Drop for LentFrames {
    fn drop(&mut self) {
        self.reclaim();
        self.slots.left.lock().unwrap_or_else(PoisonError::into_inner).append(&mut self.lent);
        if !self.early.is_empty() {
            self.free_early();
        }
        // Whoever has these may go on reading: they are never used again.
        self.early.drain(..).for_each(std::mem::forget);
    }
}

impl std::fmt::Debug for LentFrames {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let (lent, early) = (self.lent.len(), self.early.len());
        f.debug_struct("LentFrames").field("lent", &lent).field("early", &early).finish()
    }
}

#[cfg(test)]
#[forbid(unsafe_code)]
mod tests;
