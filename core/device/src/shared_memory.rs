//! Memory that the kernel and this process share.
use rustix::fd::AsFd;
use rustix::mm::{MapFlags, ProtFlags, mmap, munmap};
use std::io;
use std::ptr::NonNull;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::atomic::{AtomicU32, AtomicU64};

/// A mapping of what a descriptor stands for, for as long as it is held.
#[derive(Debug)]
pub(crate) struct SharedMemory {
    base: NonNull<u8>,
    len: usize,
    is_writable: bool,
}
// SAFETY: the mapping belongs to no thread; all access to it is atomic.
unsafe impl Send for SharedMemory {}
// SAFETY: as above.
unsafe impl Sync for SharedMemory {}

impl SharedMemory {
    /// Maps `len` bytes from an offset on, to be read and written.
    pub(crate) fn map(file: impl AsFd, offset: u64, len: usize) -> io::Result<SharedMemory> {
        SharedMemory::map_for(ProtFlags::READ | ProtFlags::WRITE, file, offset, len)
    }

    /// Maps `len` bytes from an offset on, which only the kernel writes.
    pub(crate) fn map_readable(file: impl AsFd, offset: u64, len: usize) -> io::Result<SharedMemory> {
        SharedMemory::map_for(ProtFlags::READ, file, offset, len)
    }

    fn map_for(access: ProtFlags, file: impl AsFd, offset: u64, len: usize) -> io::Result<SharedMemory> {
        let flags = MapFlags::SHARED | MapFlags::POPULATE;
        // SAFETY: a new mapping, at a place that the kernel chooses.
        let base = unsafe { mmap(std::ptr::null_mut(), len, access, flags, file, offset) }?;
        let base = NonNull::new(base.cast()).ok_or(io::ErrorKind::OutOfMemory)?;
        Ok(SharedMemory { base, len, is_writable: access.contains(ProtFlags::WRITE) })
    }

    /// Memory that the kernel knows nothing of.
    #[cfg(any(test, feature = "fuzz"))]
    pub(crate) fn anonymous(len: usize) -> SharedMemory {
        let (access, flags) = (ProtFlags::READ | ProtFlags::WRITE, MapFlags::SHARED);
        // SAFETY: a new mapping, at a place that the kernel chooses.
        let base = unsafe { rustix::mm::mmap_anonymous(std::ptr::null_mut(), len, access, flags) }.unwrap();
        SharedMemory { base: NonNull::new(base.cast()).unwrap(), len, is_writable: true }
    }

    /// Where it begins. All access must be atomic, and within [`len`](Self::len).
    pub(crate) fn base(&self) -> NonNull<u8> {
        self.base
    }

    /// Its size in bytes.
    pub(crate) fn len(&self) -> usize {
        self.len
    }

    /// The 32-bit word at an offset in bytes; none where no aligned one lies. Without order: a fence follows
    /// where other memory is read after it.
    pub(crate) fn load_32(&self, at: usize) -> Option<u32> {
        // SAFETY: the word lies in the mapping, aligned, and both sides access it atomically only. The
        // memory may be mapped for reading alone, which relaxed loads allow.
        Some(unsafe { self.place(at, 4)?.cast::<AtomicU32>().as_ref() }.load(Relaxed))
    }

    /// The same of 64 bits.
    pub(crate) fn load_64(&self, at: usize) -> Option<u64> {
        // SAFETY: as in load_32().
        Some(unsafe { self.place(at, 8)?.cast::<AtomicU64>().as_ref() }.load(Relaxed))
    }

    /// The 64-bit word at an offset in bytes, to be written, too; none where no aligned one lies, or only the
    /// kernel writes.
    pub(crate) fn word_64(&self, at: usize) -> Option<&AtomicU64> {
        // SAFETY: as in load_32(); the memory is mapped for writing.
        self.is_writable.then_some(unsafe { self.place(at, 8)?.cast::<AtomicU64>().as_ref() })
    }

    fn place(&self, at: usize, bytes: usize) -> Option<NonNull<u8>> {
        let is_inside = at.is_multiple_of(bytes) && at.checked_add(bytes)? <= self.len;
        // SAFETY: at + bytes <= len.
        is_inside.then(|| unsafe { self.base.add(at) })
    }
}

impl Drop for SharedMemory {
    fn drop(&mut self) {
        // SAFETY: the mapping was made with this length, and everything that points into it keeps it alive.
        let _ = unsafe { munmap(self.base.as_ptr().cast(), self.len) };
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::Ordering::Release;

    #[test]
    fn words_are_found_where_they_lie_whole_and_aligned() {
        let memory = SharedMemory::anonymous(4096);
        memory.word_64(8).unwrap().store(0x1_0000_0002, Release);
        assert_eq!((memory.load_64(8), memory.load_64(0)), (Some(0x1_0000_0002), Some(0)));
        assert_eq!(memory.load_32(if cfg!(target_endian = "little") { 8 } else { 12 }), Some(2));
        for at in [4, 4092, 4096, usize::MAX - 7, usize::MAX] {
            assert!(memory.load_64(at).is_none() && memory.word_64(at).is_none(), "{at}");
        }
        assert!(memory.load_32(2).is_none() && memory.load_32(4092).is_some());
    }
}
