//! Memory for tables: arrays of atomic words in regions that the caller chooses.
//!
//! A region is reserved at its full size once and never moves, so that a reader needs its address only once;
//! memory is taken from the system when a page is first written. What a table means by its words is its own
//! affair: here they are numbers, all bit patterns are legal, and a region may be shared with a reader
//! outside the process.
use rustix::mm::{Advice, MapFlags, ProtFlags, madvise, mmap, mmap_anonymous, munmap};
use std::io;
use std::marker::PhantomData;
use std::ops::{Deref, Range};
use std::os::fd::AsFd;
use std::ptr::NonNull;
use std::sync::atomic::{AtomicU8, AtomicU16, AtomicU32, AtomicU64};

/// Where a table gets memory.
pub trait Storage: Send + Sync {
    /// A region of at least `bytes` zero bytes, for the array `name` of a table.
    fn map_region(&self, name: &'static str, bytes: usize) -> io::Result<Region>;
    /// Where a table that has become big gets memory for new arrays, if that is elsewhere.
    fn for_big_tables(&self) -> Option<&dyn Storage> {
        None
    }
}

/// Memory of ordinary pages.
#[derive(Clone, Copy, Debug, Default)]
pub struct Pages;

impl Storage for Pages {
    fn map_region(&self, _: &'static str, bytes: usize) -> io::Result<Region> {
        Region::map_anonymous(bytes)
    }
}

/// Pages that the system is asked to make huge (2 MiB) where it can: fewer TLB misses in big tables.
#[derive(Clone, Copy, Debug, Default)]
pub struct HugePages;

impl Storage for HugePages {
    fn map_region(&self, _: &'static str, bytes: usize) -> io::Result<Region> {
        let region = Region::map_anonymous(bytes)?;
        region.advise_huge(0);
        Ok(region)
    }
}

/// Memory for tables that are small mostly: ordinary pages for the first 4 MiB of an array, [`HugePages`]
/// for what comes after that, and for big tables. The system clears a huge page in one go when its first
/// word is written, 2 MiB, of which most arrays of a small table need a few words.
#[derive(Clone, Copy, Debug, Default)]
pub struct GrowingPages;

impl Storage for GrowingPages {
    fn map_region(&self, _: &'static str, bytes: usize) -> io::Result<Region> {
        let region = Region::map_anonymous(bytes)?;
        region.advise_huge(2 * ALIGN);
        Ok(region)
    }
    fn for_big_tables(&self) -> Option<&dyn Storage> {
        Some(&HugePages)
    }
}

/// Asks the system to make the pages of a vector's spare room huge where it can, as of [`HugePages`].
pub fn prefer_huge_pages<T>(vector: &mut Vec<T>) {
    let room = vector.spare_capacity_mut();
    let (start, bytes) = (room.as_mut_ptr().cast::<u8>(), size_of_val(room));
    let skip = start.align_offset(ALIGN);
    let whole = bytes.saturating_sub(skip) / ALIGN * ALIGN;
    if whole > 0 {
        // SAFETY: the pages lie within the vector's own room; advice changes no content, and may be refused.
        let _ = unsafe { madvise(start.add(skip).cast(), whole, Advice::LinuxHugepage) };
    }
}

/// Alignment of regions from [`Region::map_anonymous`]: that of a huge page.
const ALIGN: usize = 2 << 20;
/// What memory is given back in: a multiple of the system's pages that divides [`ALIGN`].
const PAGE: usize = 64 << 10;

/// Memory of fixed size at a fixed place, zero at first.
pub struct Region {
    start: NonNull<u8>,
    bytes: usize,
    /// What was mapped: a little more than the region, to align it.
    mapping: (NonNull<u8>, usize),
    /// Whether the mapping is private to this process.
    is_own: bool,
}

// SAFETY: a region is plain memory that belongs to no thread; access goes through atomics.
unsafe impl Send for Region {}
// SAFETY: as above.
unsafe impl Sync for Region {}

impl Region {
    /// Memory of this process alone, taken from the system page by page when it is first written.
    pub fn map_anonymous(bytes: usize) -> io::Result<Region> {
        let room = bytes.max(1).checked_add(ALIGN).ok_or(io::ErrorKind::OutOfMemory)?;
        let (access, flags) = (ProtFlags::READ | ProtFlags::WRITE, MapFlags::PRIVATE | MapFlags::NORESERVE);
        // SAFETY: a fresh mapping at a place of the system's choice touches no other memory.
        let start = unsafe { mmap_anonymous(std::ptr::null_mut(), room, access, flags) }?;
        let start = NonNull::new(start.cast::<u8>()).ok_or(io::ErrorKind::OutOfMemory)?;
        let skip = start.as_ptr().align_offset(ALIGN);
        // SAFETY: the mapping is ALIGN bytes longer than the region.
        let aligned = unsafe { start.add(skip) };
        Ok(Region { start: aligned, bytes, mapping: (start, room), is_own: true })
    }

    /// Memory shared with whoever else maps `file`, such as a BPF array. Shortening the
    /// file kills its readers.
    pub fn map_file(file: impl AsFd, bytes: usize) -> io::Result<Region> {
        let (access, flags) = (ProtFlags::READ | ProtFlags::WRITE, MapFlags::SHARED);
        // SAFETY: a fresh mapping at a place of the system's choice touches no other memory; what others
        // write there is read through atomics whose every bit pattern is legal.
        let start = unsafe { mmap(std::ptr::null_mut(), bytes.max(1), access, flags, file, 0) }?;
        let start = NonNull::new(start.cast::<u8>()).ok_or(io::ErrorKind::OutOfMemory)?;
        Ok(Region { start, bytes, mapping: (start, bytes.max(1)), is_own: false })
    }

    /// Memory shared with whoever else maps `files`: the first `piece` bytes of each, one behind the other.
    /// `piece` must be a multiple of the system's pages.
    pub fn mapped_in_pieces(files: &[impl AsFd], piece: usize) -> io::Result<Region> {
        let bytes = files.len().checked_mul(piece).ok_or(io::ErrorKind::OutOfMemory)?;
        let mut region = Region::map_anonymous(bytes)?;
        region.is_own = false;
        let (access, flags) = (ProtFlags::READ | ProtFlags::WRITE, MapFlags::SHARED | MapFlags::FIXED);
        for (number, file) in files.iter().enumerate() {
            // SAFETY: the piece lies within the region, which no thread has seen yet: `bytes` is the sum of
            // all pieces. What others write there is read through atomics whose every bit pattern is legal.
            unsafe {
                let place = region.start.add(number * piece);
                mmap(place.as_ptr().cast(), piece, access, flags, file, 0)?;
            }
        }
        Ok(region)
    }

    /// Size of the region in bytes.
    pub fn bytes(&self) -> usize {
        self.bytes
    }

    /// Gives the whole pages of a part back to the system, if the region is this process's own;
    /// they are zero then.
    fn release_pages(&self, from: usize, to: usize) {
        let (from, to) = (from.min(self.bytes).next_multiple_of(PAGE), to.min(self.bytes) / PAGE * PAGE);
        if !self.is_own || from >= to {
            return;
        }
        // SAFETY: from..to is a part of our own private mapping, whose start is aligned to more than a page.
        // Whoever reads it meanwhile does so through atomics for which zero is a legal value.
        let _ = unsafe { madvise(self.start.add(from).as_ptr().cast(), to - from, Advice::LinuxDontNeed) };
    }

    /// Asks for huge pages from byte `from` on, which is a multiple of [`ALIGN`].
    fn advise_huge(&self, from: usize) {
        if from >= self.bytes {
            return;
        }
        // SAFETY: the part lies in our own mapping, and advice changes no content. A system without huge
        // pages refuses: then ordinary ones do.
        let _ = unsafe {
            madvise(self.start.add(from).as_ptr().cast(), self.bytes - from, Advice::LinuxHugepage)
        };
    }
    /// The same for all, and at once where something lies in ordinary pages: the system copies them while
    /// others read and write there. Before Linux 6.1 it does so by and by.
    fn collapse_pages(&self) {
        self.advise_huge(0);
        // SAFETY: our own mapping, whose contents and addresses stay; a refusal changes nothing.
        let _ = unsafe { libc::madvise(self.start.as_ptr().cast(), self.bytes, libc::MADV_COLLAPSE) };
    }
}

impl Drop for Region {
    fn drop(&mut self) {
        let (start, bytes) = self.mapping;
        // SAFETY: our own mapping; whoever reads it holds the region.
        let _ = unsafe { munmap(start.as_ptr().cast(), bytes) };
    }
}

/// What an array may consist of.
///
/// # Safety
/// The type must be an atomic integer, or consist of such without gaps: every bit pattern is legal, zero
/// among them, and it may be shared.
pub unsafe trait Word: Send + Sync + 'static {}
// SAFETY: an atomic integer.
unsafe impl Word for AtomicU8 {}
// SAFETY: as above.
unsafe impl Word for AtomicU16 {}
// SAFETY: as above.
unsafe impl Word for AtomicU32 {}
// SAFETY: as above.
unsafe impl Word for AtomicU64 {}

/// A fixed number of atomic words in a region.
pub struct Words<W> {
    region: Region,
    count: usize,
    word: PhantomData<W>,
}

impl<W: Word> Words<W> {
    /// `count` words of zero for the array `name`.
    pub fn new(storage: &dyn Storage, name: &'static str, count: usize) -> io::Result<Words<W>> {
        let bytes = count.checked_mul(size_of::<W>()).ok_or(io::ErrorKind::OutOfMemory)?;
        let region = storage.map_region(name, bytes)?;
        let is_aligned = region.start.as_ptr().cast::<W>().is_aligned();
        if region.bytes() < bytes || !is_aligned {
            return Err(io::Error::other(format!("the storage gave an unfit region for the array {name}")));
        }
        Ok(Words { region, count, word: PhantomData })
    }

    /// Asks for huge pages, also in the place of ordinary ones in which something lies.
    pub fn prefer_huge_pages(&self) {
        self.region.collapse_pages();
    }

    /// Gives memory of a range of words back to the system where it can be: what they hold is
    /// lost, zero or unchanged.
    pub fn release_range(&self, range: Range<usize>) {
        self.region.release_pages(
            range.start.saturating_mul(size_of::<W>()),
            range.end.saturating_mul(size_of::<W>()),
        );
    }
}

impl<W: Word> Deref for Words<W> {
    type Target = [W];

    #[inline]
    fn deref(&self) -> &[W] {
        // SAFETY: `new` has checked size and alignment, all bytes are initialised (zero or written), a Word
        // may have any bit pattern, and the region lives as long as self.
        unsafe { std::slice::from_raw_parts(self.region.start.as_ptr().cast(), self.count) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::Ordering::Relaxed;

    #[test]
    fn words_are_zero_aligned_and_keep_what_is_written() {
        for storage in [&Pages as &dyn Storage, &HugePages, &GrowingPages] {
            let words: Words<AtomicU64> = Words::new(storage, "test", 1000).unwrap();
            assert!(words.iter().all(|word| word.load(Relaxed) == 0));
            words[999].store(7, Relaxed);
            assert_eq!((words.len(), words[999].load(Relaxed)), (1000, 7));
            assert!(words.as_ptr().cast::<u8>().align_offset(64) == 0);
        }
    }

    #[test]
    fn pieces_of_several_files_are_one_region() {
        let file = |_| rustix::fs::memfd_create("piece", rustix::fs::MemfdFlags::CLOEXEC).unwrap();
        let files = [0, 1, 2].map(file);
        files.iter().for_each(|file| rustix::fs::ftruncate(file, 2 * PAGE as u64).unwrap());
        let region = Region::mapped_in_pieces(&files, PAGE).unwrap();
        assert_eq!(region.bytes(), 3 * PAGE);
        struct Once(std::sync::Mutex<Option<Region>>);
        impl Storage for Once {
            fn map_region(&self, _: &'static str, _: usize) -> io::Result<Region> {
                self.0.lock().unwrap().take().ok_or_else(|| io::ErrorKind::OutOfMemory.into())
            }
        }
        let once = Once(Some(region).into());
        let words: Words<AtomicU64> = Words::new(&once, "pieces", 3 * PAGE / 8).unwrap();
        [0, PAGE / 8, 3 * PAGE / 8 - 1].iter().for_each(|at| words[*at].store(7 + *at as u64, Relaxed));
        let read = |file: &std::os::fd::OwnedFd, at: u64| {
            let mut bytes = [0; 8];
            assert_eq!(rustix::io::pread(file, &mut bytes, at).unwrap(), 8);
            u64::from_ne_bytes(bytes)
        };
        assert_eq!((read(&files[0], 0), read(&files[1], 0)), (7, 7 + PAGE as u64 / 8));
        assert_eq!(read(&files[2], PAGE as u64 - 8), 7 + 3 * PAGE as u64 / 8 - 1);
        assert!(Region::mapped_in_pieces(&files, PAGE + 1).is_err(), "not a multiple of pages");
    }

    #[test]
    fn two_mappings_of_one_file_show_the_same_words() {
        struct File(std::fs::File);
        impl Storage for File {
            fn map_region(&self, _: &'static str, bytes: usize) -> io::Result<Region> {
                Region::map_file(&self.0, bytes)
            }
        }
        let file = rustix::fs::memfd_create("words", rustix::fs::MemfdFlags::CLOEXEC).unwrap();
        rustix::fs::ftruncate(&file, 4096).unwrap();
        let file = File(file.into());
        let ours: Words<AtomicU32> = Words::new(&file, "test", 1024).unwrap();
        let theirs: Words<AtomicU32> = Words::new(&file, "test", 1024).unwrap();
        ours[5].store(55, Relaxed);
        assert_eq!(theirs[5].load(Relaxed), 55);
    }

    #[test]
    fn words_stay_what_they_are_when_their_pages_become_huge() {
        let words: Words<AtomicU64> = Words::new(&GrowingPages, "test", 3 << 17).unwrap();
        let some = || (0..3 << 17).step_by(1000);
        some().for_each(|at| words[at].store(at as u64, Relaxed));
        words.prefer_huge_pages();
        assert!(some().all(|at| words[at].load(Relaxed) == at as u64));
        assert_eq!(words.iter().filter(|word| word.load(Relaxed) != 0).count(), some().count() - 1);
    }

    #[test]
    fn whole_pages_that_are_released_are_zero_and_others_keep_what_they_hold() {
        let words: Words<AtomicU64> = Words::new(&Pages, "test", 4 * PAGE / 8).unwrap();
        words.iter().for_each(|word| word.store(1, Relaxed));
        words.release_range(1..3 * PAGE / 8 - 1);
        let sums: Vec<u64> =
            words.chunks(PAGE / 8).map(|page| page.iter().map(|word| word.load(Relaxed)).sum()).collect();
        assert_eq!(sums, [PAGE as u64 / 8, 0, PAGE as u64 / 8, PAGE as u64 / 8]);
        words.release_range(usize::MAX - 1..usize::MAX);
    }

    #[test]
    fn a_region_that_is_too_small_is_refused() {
        struct Stingy;
        impl Storage for Stingy {
            fn map_region(&self, _: &'static str, _: usize) -> io::Result<Region> {
                Region::map_anonymous(8)
            }
        }
        assert!(Words::<AtomicU64>::new(&Stingy, "test", 2).is_err());
        assert!(Words::<AtomicU64>::new(&Pages, "test", usize::MAX).is_err());
    }
}
