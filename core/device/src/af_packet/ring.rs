//! The ring of slots that a packet socket receives into.
//!
//! A slot begins with its status word. While that is zero the slot is the kernel's; the kernel fills it, then
//! sets the word; from then on it is ours until we set it to zero again. Whatever a slot says of its contents
//! is checked against the slot's length before use.
use artery_packet::{PacketType, Time};
use rustix::fd::OwnedFd;
use rustix::mm::{MapFlags, ProtFlags, mmap, munmap};
use std::io;
use std::ptr::NonNull;
use std::sync::atomic::AtomicU32;
use std::sync::atomic::Ordering::{Acquire, Release};

use crate::offload::{VIRTIO_HEADER, VirtioOffload};

/// Where `struct sockaddr_ll` starts in a slot, behind `struct tpacket2_hdr`, and its packet type in that.
const PACKET_TYPE: usize = 32 + 10;

/// The slots of one socket.
#[derive(Debug)]
pub(super) struct Ring {
    memory: NonNull<u8>,
    slots: usize,
    slot_size: usize,
    /// The slot that the kernel fills next, or has filled longest ago.
    head: usize,
}
// SAFETY: the memory belongs to the ring alone (and the kernel); nothing about it is bound to a thread.
unsafe impl Send for Ring {}

impl Ring {
    /// Maps the ring that was set up on `socket`, `slots` times `slot_size` bytes.
    pub(super) fn map(socket: &OwnedFd, slots: usize, slot_size: usize) -> io::Result<Ring> {
        let bytes = slots.checked_mul(slot_size).filter(|n| *n > 0 && slot_size.is_multiple_of(16));
        let bytes = bytes.ok_or(io::ErrorKind::InvalidInput)?;
        let (access, flags) = (ProtFlags::READ | ProtFlags::WRITE, MapFlags::SHARED);
        // SAFETY: a new mapping, at a place that the kernel chooses.
        let memory = unsafe { mmap(std::ptr::null_mut(), bytes, access, flags, socket, 0) }?;
        let memory = NonNull::new(memory.cast()).ok_or(io::ErrorKind::OutOfMemory)?;
        Ok(Ring { memory, slots, slot_size, head: 0 })
    }
    fn status(&self, slot: usize) -> &AtomicU32 {
        assert!(slot < self.slots, "the head stays within the ring");
        // SAFETY: slot < slots, so its first word lies in the mapping, which lives as long as `self`; it is
        // aligned as slot sizes are multiples of 16; the kernel and we access it atomically only.
        unsafe { AtomicU32::from_ptr(self.memory.as_ptr().add(slot * self.slot_size).cast()) }
    }
    /// The oldest slot that the kernel has filled.
    #[inline]
    pub(super) fn front(&mut self) -> Option<Slot<'_>> {
        let status = self.status(self.head).load(Acquire);
        if status & libc::TP_STATUS_USER == 0 {
            return None;
        }
        Some(Slot { ring: self, status })
    }
}

impl Drop for Ring {
    fn drop(&mut self) {
        // SAFETY: the mapping was made by map() with this length, and slots borrow the ring.
        let _ = unsafe { munmap(self.memory.as_ptr().cast(), self.slots * self.slot_size) };
    }
}

/// A filled slot; dropping it gives it back to the kernel.
#[derive(Debug)]
pub(super) struct Slot<'a> {
    ring: &'a mut Ring,
    status: u32,
}

impl Slot<'_> {
    fn bytes(&self) -> &[u8] {
        let ring = &*self.ring;
        // SAFETY: head < slots, so the slot lies in the mapping. Its status said that it is ours: the kernel
        // writes nothing in it until this Slot, which the slice borrows, is dropped.
        unsafe {
            std::slice::from_raw_parts(ring.memory.as_ptr().add(ring.head * ring.slot_size), ring.slot_size)
        }
    }
    /// What the slot says about its frame; `None` when that lies outside the slot.
    #[inline]
    pub(super) fn arrival(&self) -> Option<(Arrival, &[u8])> {
        Arrival::parse(self.status, self.bytes())
    }
}

impl Drop for Slot<'_> {
    #[inline]
    fn drop(&mut self) {
        self.ring.status(self.ring.head).store(libc::TP_STATUS_KERNEL, Release);
        self.ring.head = (self.ring.head + 1) % self.ring.slots;
    }
}

/// What the kernel says about a frame.
#[derive(Clone, Copy, Debug)]
pub(super) struct Arrival {
    /// Whether the slot has only the beginning, and the whole frame waits in the socket's queue.
    pub(super) queued: bool,
    /// Whether the slot has only the beginning.
    pub(super) cut: bool,
    pub(super) time: Time,
    pub(super) packet_type: PacketType,
    /// The VLAN tag that the kernel took off: type and tag.
    pub(super) vlan: Option<[u8; 4]>,
    pub(super) offload: VirtioOffload,
}

impl Arrival {
    /// Reads a slot; also gives the frame's bytes.
    #[inline]
    pub(super) fn parse(status: u32, slot: &[u8]) -> Option<(Arrival, &[u8])> {
        let header = slot.first_chunk::<{ PACKET_TYPE + 1 }>()?;
        let half = |at: usize| u16::from_ne_bytes([header[at], header[at + 1]]);
        let word =
            |at: usize| u32::from_ne_bytes([header[at], header[at + 1], header[at + 2], header[at + 3]]);
        let (len, captured, start) = (word(4), word(8) as usize, usize::from(half(12)));
        let frame = slot.get(start..start.checked_add(captured)?)?;
        let offload = slot.get(start.checked_sub(VIRTIO_HEADER)?..start)?;
        let arrival = Arrival {
            queued: status & libc::TP_STATUS_COPY != 0,
            cut: captured < len as usize,
            time: Time::new(u64::from(word(16)), word(20)),
            packet_type: packet_type(header[PACKET_TYPE]),
            vlan: (status & libc::TP_STATUS_VLAN_VALID != 0).then(|| tag(status, half(24), half(26))),
            offload: VirtioOffload::parse(offload),
        };
        Some((arrival, frame))
    }
}

fn tag(status: u32, control: u16, protocol: u16) -> [u8; 4] {
    let protocol = if status & libc::TP_STATUS_VLAN_TPID_VALID != 0 { protocol } else { 0x8100 };
    let ([a, b], [c, d]) = (protocol.to_be_bytes(), control.to_be_bytes());
    [a, b, c, d]
}

fn packet_type(kind: u8) -> PacketType {
    match kind {
        libc::PACKET_HOST => PacketType::Host,
        libc::PACKET_BROADCAST => PacketType::Broadcast,
        libc::PACKET_MULTICAST => PacketType::Multicast,
        libc::PACKET_OTHERHOST => PacketType::OtherHost,
        _ => PacketType::Outgoing,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn offsets_and_lengths_are_checked(len in 0u32..300, captured in 0u32..300, start in 0u16..300) {
            let mut slot = [0; 256];
            slot[4..8].copy_from_slice(&len.to_ne_bytes());
            slot[8..12].copy_from_slice(&captured.to_ne_bytes());
            slot[12..14].copy_from_slice(&start.to_ne_bytes());
            let inside = start >= 10 && usize::from(start) + captured as usize <= 256;
            let parsed = Arrival::parse(1, &slot);
            prop_assert_eq!(parsed.is_some(), inside);
            if let Some((arrival, frame)) = parsed {
                prop_assert_eq!((frame.len(), arrival.cut), (captured as usize, captured < len));
            }
        }
    }
}
