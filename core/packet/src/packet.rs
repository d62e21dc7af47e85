//! One packet: the only owner of one descriptor and one frame.
//!
//! A descriptor is two cache lines. The hot one holds what nearly every element reads, with the first twenty
//! annotation bytes (destination address, paint) at its end; the cold one holds the other annotations and the
//! timestamp, and is cleared when first written, so that a packet which needs neither never touches it.
//! Descriptors lie side by side, away from the frames: metadata inside power-of-two frames puts a whole batch
//! into the same few cache sets.
#[forbid(unsafe_code)]
mod mark;
#[forbid(unsafe_code)]
mod metadata;
#[forbid(unsafe_code)]
mod unfinished;

pub use mark::Mark;
pub use unfinished::{InvalidOffload, PacketOffload, SegmentKind, Segments};

use crate::annotation::ANNOTATION_SIZE;
use crate::pool::{self, FrameClass};
use crate::time::Time;
use std::fmt;
use std::ptr::NonNull;

/// Annotation bytes that share the hot line.
const HOT_ANNOTATIONS: usize = 20;
/// The cold line holds values of this packet, not of the frame's last one.
const COLD: u8 = 1;
/// The cold line holds a record of what the sender left undone.
const UNFINISHED: u8 = 2;
/// The packet bears a mark, in the word that links free descriptors.
const MARKED: u8 = 4;
/// Stripped bytes that a copy has too: an Ethernet header with two tags, and the longest IPv4 header.
pub(crate) const STRIPPED: usize = 22 + 60;
/// An offset that is not set.
const UNSET: u16 = u16::MAX;

#[repr(C, align(64))]
pub(crate) struct Descriptor {
    pub(crate) frame: NonNull<u8>,
    pub(crate) class: &'static FrameClass,
    start: u32,
    len: u32,
    /// Bytes of the frame.
    pub(crate) size: u32,
    /// Link of the free list; while a packet owns the descriptor, its mark, which
    /// means nothing without `MARKED`.
    pub(crate) next: u32,
    /// Where data starts in a fresh packet: varied from frame to frame, so that headers of a batch do not
    /// compete for the same cache sets.
    pub(crate) origin: u16,
    mac: u16,
    network: u16,
    transport: u16,
    in_port: u16,
    packet_type: PacketType,
    flags: u8,
    annotations: [u8; ANNOTATION_SIZE],
    timestamp: Time,
    offload: unfinished::Record,
}
const _: () = assert!(size_of::<Descriptor>() == 128);
const _: () = assert!(std::mem::offset_of!(Descriptor, annotations) + HOT_ANNOTATIONS == 64);

impl Descriptor {
    pub(crate) fn new(frame: NonNull<u8>, shelf: &'static FrameClass, size: u32, origin: u16) -> Descriptor {
        Descriptor {
            frame,
            class: shelf,
            start: 0,
            len: 0,
            size,
            next: 0,
            origin,
            mac: UNSET,
            network: UNSET,
            transport: UNSET,
            in_port: 0,
            packet_type: PacketType::Host,
            flags: 0,
            annotations: [0; ANNOTATION_SIZE],
            timestamp: Time::ZERO,
            offload: unfinished::Record::NONE,
        }
    }

    /// Makes the hot line that of an empty packet.
    #[inline]
    pub(crate) fn reset_hot(&mut self) {
        self.start = u32::from(self.origin);
        self.len = 0;
        self.mac = UNSET;
        self.network = UNSET;
        self.transport = UNSET;
        self.in_port = 0;
        self.packet_type = PacketType::Host;
        self.flags = 0;
        self.annotations[..HOT_ANNOTATIONS].fill(0);
    }
}

/// To whom the link layer addressed a packet (Click's packet type annotation).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
#[allow(missing_docs)]
pub enum PacketType {
    Host,
    Broadcast,
    Multicast,
    OtherHost,
    Outgoing,
}

/// The packet is shorter than the operation needs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TooShort;

/// Neither this frame nor any free one is big enough.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NoRoom;

/// One packet. Not `Clone`: a copy is made openly, by [`Packet::duplicate`].
#[repr(transparent)]
pub struct Packet {
    descriptor: NonNull<Descriptor>,
}
// SAFETY: a Packet is the only owner of its descriptor and frame; the shelf it returns to is Sync.
unsafe impl Send for Packet {}

impl Packet {
    /// SAFETY: the caller hands over the only owner of a descriptor taken from a shelf.
    #[inline]
    pub(crate) unsafe fn from_descriptor(descriptor: NonNull<Descriptor>) -> Packet {
        Packet { descriptor }
    }
    #[inline]
    pub(crate) fn into_descriptor(self) -> NonNull<Descriptor> {
        std::mem::ManuallyDrop::new(self).descriptor
    }
    #[inline]
    pub(crate) fn frame_class(&self) -> &'static FrameClass {
        self.meta().class
    }
    #[inline]
    pub(crate) fn meta(&self) -> &Descriptor {
        // SAFETY: the packet owns the descriptor, which lives as long as the process.
        unsafe { self.descriptor.as_ref() }
    }
    #[inline]
    fn meta_mut(&mut self) -> &mut Descriptor {
        // SAFETY: as above, and &mut self makes the access exclusive.
        unsafe { self.descriptor.as_mut() }
    }

    /// The packet's bytes, without headroom and tailroom.
    #[inline]
    pub fn data(&self) -> &[u8] {
        let d = self.meta();
        // SAFETY: every method that sets them keeps start + len <= size; frames are initialised memory and
        // owned by the packet.
        unsafe { std::slice::from_raw_parts(d.frame.as_ptr().add(d.start as usize), d.len as usize) }
    }
    /// The bytes, to change.
    #[inline]
    pub fn data_mut(&mut self) -> &mut [u8] {
        let d = self.meta_mut();
        // SAFETY: as in data(), and exclusively.
        unsafe { std::slice::from_raw_parts_mut(d.frame.as_ptr().add(d.start as usize), d.len as usize) }
    }
    /// Length of the data in bytes.
    #[inline]
    #[allow(clippy::len_without_is_empty)]
    pub fn len(&self) -> usize {
        self.meta().len as usize
    }
    /// Bytes free before the data.
    #[inline]
    pub fn headroom(&self) -> usize {
        self.meta().start as usize
    }
    /// Bytes free after the data.
    #[inline]
    pub fn tailroom(&self) -> usize {
        let d = self.meta();
        (d.size - d.start - d.len) as usize
    }
    /// Asks the processor to bring the first line of data into its cache.
    #[inline]
    pub fn prefetch(&self) {
        #[cfg(all(target_arch = "x86_64", not(miri)))]
        {
            use std::arch::x86_64::{_MM_HINT_T0, _mm_prefetch};
            let d = self.meta();
            // SAFETY: a prefetch reads nothing the program can see; the address is inside the frame.
            unsafe { _mm_prefetch::<_MM_HINT_T0>(d.frame.as_ptr().add(d.start as usize).cast()) }
        }
    }

    /// Removes `n` bytes from the front. They stay in the frame until overwritten, for [`Packet::unstrip`].
    #[inline]
    pub fn strip(&mut self, n: usize) -> Result<(), TooShort> {
        let d = self.meta_mut();
        if n > d.len as usize {
            return Err(TooShort);
        }
        d.start += n as u32;
        d.len -= n as u32;
        Ok(())
    }
    /// Removes `n` bytes from the end.
    #[inline]
    pub fn trim(&mut self, n: usize) -> Result<(), TooShort> {
        let d = self.meta_mut();
        if n > d.len as usize {
            return Err(TooShort);
        }
        d.len -= n as u32;
        Ok(())
    }
    /// Cuts the packet to `len` bytes; does nothing when it has no more.
    #[inline]
    pub fn truncate(&mut self, len: usize) {
        let d = self.meta_mut();
        d.len = (d.len as usize).min(len) as u32;
    }
    /// Puts `n` bytes in front, with whatever the frame holds there: after
    /// [`Packet::strip`], what was stripped.
    #[inline]
    pub fn unstrip(&mut self, n: usize) -> Result<(), NoRoom> {
        if n > self.headroom() {
            self.make_room(n, 0)?;
        }
        let d = self.meta_mut();
        d.start -= n as u32;
        d.len += n as u32;
        Ok(())
    }
    /// Puts `n` bytes in front and gives them to be written.
    #[inline]
    pub fn prepend(&mut self, n: usize) -> Result<&mut [u8], NoRoom> {
        self.unstrip(n)?;
        Ok(&mut self.data_mut()[..n])
    }
    /// Adds `n` bytes at the end, with whatever the frame holds there, and gives them to be written.
    #[inline]
    pub fn append(&mut self, n: usize) -> Result<&mut [u8], NoRoom> {
        if n > self.tailroom() {
            self.make_room(0, n)?;
        }
        let d = self.meta_mut();
        let old = d.len as usize;
        d.len += n as u32;
        Ok(&mut self.data_mut()[old..])
    }
    /// Moves the data so that at least `head` bytes are free before and `tail` after it: within the frame
    /// when that suffices, else into a big frame.
    #[cold]
    pub fn make_room(&mut self, head: usize, tail: usize) -> Result<(), NoRoom> {
        let needed = self.len().checked_add(head).and_then(|n| n.checked_add(tail)).ok_or(NoRoom)?;
        if needed <= self.meta().size as usize {
            let spare = self.meta().size as usize - needed;
            self.shift_to(head + spare / 2);
            return Ok(());
        }
        let mut bigger = pool::owner_of(self.meta()).alloc_big_packet().ok_or(NoRoom)?;
        let size = bigger.meta().size as usize;
        if needed > size {
            return Err(NoRoom);
        }
        bigger.meta_mut().start = (head + (size - needed) / 2) as u32;
        bigger.copy_from(self);
        bigger.inherit_mark(self);
        *self = bigger;
        Ok(())
    }
    /// Moves the data to offset `start` of its frame, and the header offsets with it.
    fn shift_to(&mut self, start: usize) {
        let d = self.meta_mut();
        let (old, len) = (d.start as usize, d.len as usize);
        // SAFETY: the caller made sure that start + len <= size; copy() allows overlap.
        unsafe { std::ptr::copy(d.frame.as_ptr().add(old), d.frame.as_ptr().add(start), len) };
        d.start = start as u32;
        for offset in [&mut d.mac, &mut d.network, &mut d.transport] {
            *offset = moved_offset(*offset, old, start);
        }
        d.offload = d.offload.after_move(old, start);
    }
    /// Takes bytes and metadata of `from`, keeping the place where this packet's data starts.
    fn copy_from(&mut self, from: &Packet) {
        let source = from.meta();
        let len = source.len as usize;
        let d = self.meta_mut();
        assert!(d.start as usize + len <= d.size as usize, "the caller chose a frame that is big enough");
        // SAFETY: both ranges are inside their frames, which are different.
        unsafe {
            let to = d.frame.as_ptr().add(d.start as usize);
            std::ptr::copy_nonoverlapping(source.frame.as_ptr().add(source.start as usize), to, len);
        }
        d.len = source.len;
        self.copy_metadata(from);
    }
    /// Takes all metadata of `from`, header offsets counted from where each one's data starts.
    pub(crate) fn copy_metadata(&mut self, from: &Packet) {
        let (source, d) = (from.meta(), self.meta_mut());
        let (old, new) = (source.start as usize, d.start as usize);
        d.mac = moved_offset(source.mac, old, new);
        d.network = moved_offset(source.network, old, new);
        d.transport = moved_offset(source.transport, old, new);
        d.in_port = source.in_port;
        d.packet_type = source.packet_type;
        d.flags = source.flags;
        if source.flags & COLD != 0 {
            d.annotations = source.annotations;
            d.timestamp = source.timestamp;
        } else {
            d.annotations[..HOT_ANNOTATIONS].copy_from_slice(&source.annotations[..HOT_ANNOTATIONS]);
        }
        if source.flags & (UNFINISHED | MARKED) != 0 {
            self.copy_offload(source, old, new);
            self.copy_mark(from);
        }
    }
    /// A copy with the same bytes and metadata, in a frame of its own; `None` when the pool is empty.
    pub fn duplicate(&self) -> Option<Packet> {
        let d = self.meta();
        let pool = pool::owner_of(d);
        let mut copy =
            if d.len as usize + usize::from(d.origin) <= crate::FRAME { pool.alloc_packet() } else { None }
                .or_else(|| pool.alloc_big_packet())?;
        let size = copy.meta().size as usize;
        copy.meta_mut().start = (d.start as usize).min(size - self.len().min(size)) as u32;
        if self.len() > copy.tailroom() {
            return None;
        }
        copy.copy_from(self);
        copy.copy_stripped(self);
        Some(copy)
    }
    /// Takes the bytes in front of the data of `from`, for [`Packet::unstrip`] to find: as many as a link and
    /// a network header may have.
    fn copy_stripped(&mut self, from: &Packet) {
        let (source, d) = (from.meta(), self.meta());
        let count = STRIPPED.min(source.start as usize).min(d.start as usize);
        let (to, from) = (d.start as usize - count, source.start as usize - count);
        // SAFETY: both ranges end where data starts, inside their frames, which are different.
        unsafe {
            std::ptr::copy_nonoverlapping(source.frame.as_ptr().add(from), d.frame.as_ptr().add(to), count);
        }
    }
    /// Replaces the bytes, keeping annotations.
    pub fn set_data(&mut self, bytes: &[u8]) -> Result<(), NoRoom> {
        self.clear_offload();
        let have = self.len();
        if bytes.len() <= have {
            self.meta_mut().len = bytes.len() as u32;
        } else {
            self.append(bytes.len() - have)?;
        }
        self.data_mut().copy_from_slice(bytes);
        Ok(())
    }
}

/// A header offset after the data moved from `old` to `new`.
fn moved_offset(offset: u16, old: usize, new: usize) -> u16 {
    if offset == UNSET {
        return UNSET;
    }
    (usize::from(offset) + new).checked_sub(old).and_then(|n| u16::try_from(n).ok()).unwrap_or(UNSET)
}

/// Header offsets. They name places in the frame, so stripping and prepending do not move them.
impl Packet {
    /// Says that a link header starts `offset` bytes into the data.
    #[inline]
    pub fn set_mac_header(&mut self, offset: usize) {
        self.meta_mut().mac = self.frame_offset(offset);
    }
    /// Says that a network header starts `offset` bytes into the data.
    #[inline]
    pub fn set_network_header(&mut self, offset: usize) {
        self.meta_mut().network = self.frame_offset(offset);
    }
    /// Says that a transport header starts `offset` bytes into the data.
    #[inline]
    pub fn set_transport_header(&mut self, offset: usize) {
        self.meta_mut().transport = self.frame_offset(offset);
    }
    /// Says that a network header of `header_len` bytes starts `offset` bytes into the data, and a
    /// transport header behind it.
    #[inline]
    pub fn set_headers(&mut self, offset: usize, header_len: usize) {
        let network = self.meta().start as usize + offset;
        let d = self.meta_mut();
        // Headers lie within the first 64 kB of a frame, or are not remembered.
        if network + header_len < usize::from(UNSET) {
            d.network = network as u16;
            d.transport = (network + header_len) as u16;
        } else {
            (d.network, d.transport) = (UNSET, UNSET);
        }
    }
    #[inline]
    fn frame_offset(&self, offset: usize) -> u16 {
        u16::try_from(self.meta().start as usize + offset).unwrap_or(UNSET)
    }
    #[inline]
    fn offset_of(&self, place: u16) -> Option<isize> {
        (place != UNSET)
            .then(|| isize::from_ne_bytes(usize::from(place).to_ne_bytes()) - self.meta().start as isize)
    }
    /// Offset of the link header from the start of data, negative when it was stripped; `None` when not set.
    #[inline]
    pub fn mac_offset(&self) -> Option<isize> {
        self.offset_of(self.meta().mac)
    }
    /// Offset of the network header from the start of data.
    #[inline]
    pub fn network_offset(&self) -> Option<isize> {
        self.offset_of(self.meta().network)
    }
    /// Offset of the transport header from the start of data.
    #[inline]
    pub fn transport_offset(&self) -> Option<isize> {
        self.offset_of(self.meta().transport)
    }
    /// From the network header to the end of data; `None` when it is not set or lies beyond the data.
    #[inline]
    pub fn network(&self) -> Option<&[u8]> {
        self.tail_from(self.meta().network)
    }
    /// From the network header to the end of data, to change.
    #[inline]
    pub fn network_mut(&mut self) -> Option<&mut [u8]> {
        self.tail_mut(self.meta().network)
    }
    /// From the transport header to the end of data.
    #[inline]
    pub fn transport(&self) -> Option<&[u8]> {
        self.tail_from(self.meta().transport)
    }
    /// From the transport header to the end of data, to change.
    #[inline]
    pub fn transport_mut(&mut self) -> Option<&mut [u8]> {
        self.tail_mut(self.meta().transport)
    }
    /// From the link header to the end of data, also when it was stripped: its bytes are still in the frame.
    #[inline]
    pub fn mac(&self) -> Option<&[u8]> {
        self.tail_from(self.meta().mac)
    }
    #[inline]
    fn tail_from(&self, place: u16) -> Option<&[u8]> {
        let d = self.meta();
        let (place, end) = (u32::from(place), d.start + d.len);
        if place > end || place == u32::from(UNSET) {
            return None;
        }
        // SAFETY: place <= end <= size; the frame is initialised memory and owned by the packet.
        Some(unsafe {
            std::slice::from_raw_parts(d.frame.as_ptr().add(place as usize), (end - place) as usize)
        })
    }
    #[inline]
    fn tail_mut(&mut self, place: u16) -> Option<&mut [u8]> {
        let d = self.meta_mut();
        let (place, end) = (u32::from(place), d.start + d.len);
        if place > end || place == u32::from(UNSET) {
            return None;
        }
        // SAFETY: as in tail(), and exclusively.
        Some(unsafe {
            std::slice::from_raw_parts_mut(d.frame.as_ptr().add(place as usize), (end - place) as usize)
        })
    }
}

impl Drop for Packet {
    #[inline]
    fn drop(&mut self) {
        pool::free(self.descriptor);
    }
}

impl fmt::Debug for Packet {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Packet").field("len", &self.len()).field("data", &self.data()).finish()
    }
}

/// For devices that write into a frame themselves.
impl Packet {
    #[inline]
    pub(crate) fn descriptor(&self) -> NonNull<Descriptor> {
        self.descriptor
    }
    /// Says that the data is the `len` bytes from byte `start` of the frame. Forgets the header offsets.
    #[inline]
    pub fn set_place(&mut self, start: usize, len: usize) -> Result<(), NoRoom> {
        let d = self.meta_mut();
        if start > d.size as usize || len > d.size as usize - start {
            return Err(NoRoom);
        }
        (d.start, d.len) = (start as u32, len as u32);
        (d.mac, d.network, d.transport) = (UNSET, UNSET, UNSET);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use crate::{BIG_FRAME, FRAME, NoRoom, Pool};

    #[test]
    fn data_is_placed_inside_its_frame_or_not_at_all() {
        let pool = Pool::new(1, 1).unwrap();
        for (mut packet, size) in
            [(pool.alloc_packet().unwrap(), FRAME), (pool.alloc_big_packet().unwrap(), BIG_FRAME)]
        {
            packet.set_network_header(0);
            for (start, len) in [(0, size), (size, 0), (256, 60), (size - 1, 1)] {
                assert_eq!(packet.set_place(start, len), Ok(()));
                assert_eq!((packet.headroom(), packet.len(), packet.network_offset()), (start, len, None));
            }
            for (start, len) in [(0, size + 1), (size, 1), (size + 1, 0), (1, usize::MAX), (usize::MAX, 1)] {
                assert_eq!(packet.set_place(start, len), Err(NoRoom));
                assert_eq!((packet.headroom(), packet.len()), (size - 1, 1));
            }
        }
    }
}
