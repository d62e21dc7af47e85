//! What a processor alone can do: count its own cache misses, and forget a line of memory.
//!
//! Counters are those of the calling thread, of what it does outside the kernel. Many
//! virtual machines have none.

use std::fs::File;
use std::io::{self, Read};
use std::os::fd::FromRawFd;

/// The kernel's `PERF_TYPE_HW_CACHE` of `perf_event.h`.
const HARDWARE_CACHE: u32 = 3;
/// Loads that missed the first level for data: cache 0, operation 0, result 1.
const D1_LOAD_MISSES: u64 = 1 << 16;
/// The same of the last level, which is cache 2.
const LAST_LOAD_MISSES: u64 = 2 | (1 << 16);
/// `exclude_kernel` and `exclude_hv`: what runs outside is counted alone.
const USER_ONLY: u64 = (1 << 5) | (1 << 6);
/// `PERF_FORMAT_TOTAL_TIME_ENABLED` and `…_RUNNING`: counters may have to share the processor's.
const TIMES: u64 = 3;
/// The kernel's `PERF_FLAG_FD_CLOEXEC` of `perf_event.h`.
const CLOSE_ON_EXEC: libc::c_ulong = 8;

/// `perf_event_attr` in its first version, which every kernel takes.
#[repr(C)]
#[derive(Default)]
struct Attributes {
    kind: u32,
    size: u32,
    config: u64,
    sample_period: u64,
    sample_type: u64,
    read_format: u64,
    flags: u64,
    wakeup_events: u32,
    breakpoint: u32,
    config1: u64,
}

/// Loads of one thread that missed a cache, since the counters were made.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Misses {
    /// The first-level data cache.
    pub d1: f64,
    /// The last level, where the processor counts that.
    pub last: Option<f64>,
}

/// Counters of the thread that made them.
pub struct Counters {
    d1: File,
    last: Option<File>,
}

impl Counters {
    /// Begins to count. The error says why the machine can't.
    pub fn of_this_thread() -> io::Result<Counters> {
        Ok(Counters { d1: open(D1_LOAD_MISSES)?, last: open(LAST_LOAD_MISSES).ok() })
    }

    /// Reads the counters of this thread.
    pub fn read(&mut self) -> io::Result<Misses> {
        let last = self.last.as_mut().map(value).transpose()?;
        Ok(Misses { d1: value(&mut self.d1)?, last })
    }
}

fn open(config: u64) -> io::Result<File> {
    let size = size_of::<Attributes>() as u32;
    let attributes = Attributes {
        kind: HARDWARE_CACHE,
        size,
        config,
        flags: USER_ONLY,
        read_format: TIMES,
        ..Attributes::default()
    };
    let (this_thread, any_processor, no_group): (libc::pid_t, libc::c_int, libc::c_int) = (0, -1, -1);
    // SAFETY: the kernel reads `size` bytes of the attributes, which is what they have, and keeps
    // no pointer to them.
    let number = unsafe {
        libc::syscall(
            libc::SYS_perf_event_open,
            std::ptr::from_ref(&attributes),
            this_thread,
            any_processor,
            no_group,
            CLOSE_ON_EXEC,
        )
    };
    let number =
        i32::try_from(number).ok().filter(|number| *number >= 0).ok_or_else(io::Error::last_os_error)?;
    // SAFETY: the kernel has just made this file for us; no other code knows its number.
    Ok(unsafe { File::from_raw_fd(number) })
}

/// The count of an event, scaled to all of the time where it was counted in a part of it only.
fn value(event: &mut File) -> io::Result<f64> {
    let mut bytes = [0; 24];
    event.read_exact(&mut bytes)?;
    let word = |n: usize| u64::from_ne_bytes(std::array::from_fn(|byte| bytes[8 * n + byte]));
    scaled(word(0), word(1), word(2)).ok_or_else(|| io::Error::other("the processor never counted"))
}

fn scaled(count: u64, enabled: u64, running: u64) -> Option<f64> {
    (running > 0).then(|| count as f64 * (enabled as f64 / running as f64))
}

/// Evicts from the processor's caches the line of memory in which `values` begin, as a network card's
/// write does. Takes effect with [`fence`]. On a processor without such an instruction nothing happens,
/// and the answer is false.
#[inline]
pub fn forget<T>(values: &[T]) -> bool {
    #[cfg(target_arch = "x86_64")]
    if let Some(first) = values.first() {
        // SAFETY: flushing a line changes no byte that the program can see, and the value there is
        // one of a slice.
        unsafe { std::arch::x86_64::_mm_clflush(std::ptr::from_ref(first).cast()) };
    }
    cfg!(target_arch = "x86_64") && !values.is_empty()
}

/// Waits until lines are forgotten.
#[inline]
pub fn fence() {
    #[cfg(target_arch = "x86_64")]
    // SAFETY: every processor of this kind has the instruction, and it only waits.
    unsafe {
        std::arch::x86_64::_mm_mfence();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn attributes_are_as_long_as_their_first_version() {
        assert_eq!(size_of::<Attributes>(), 64);
    }

    #[test]
    fn counts_of_a_part_of_the_time_are_scaled() {
        assert_eq!(scaled(10, 100, 100), Some(10.0));
        assert_eq!(scaled(10, 100, 50), Some(20.0));
        assert_eq!(scaled(10, 100, 0), None);
    }

    #[test]
    fn a_thread_counts_its_misses_or_learns_why_it_can_not() {
        let mut counters = match Counters::of_this_thread() {
            Ok(counters) => counters,
            Err(error) => return assert!(error.raw_os_error().is_some(), "{error}"),
        };
        let before = counters.read().unwrap();
        let lines = vec![1u64; 1 << 20];
        assert_eq!(std::hint::black_box(&lines).iter().step_by(8).sum::<u64>(), 1 << 17);
        assert!(counters.read().unwrap().d1 > before.d1);
    }

    #[test]
    fn bytes_that_were_forgotten_are_as_they_were() {
        let bytes = [7u8; 200];
        assert_eq!(forget(&bytes), cfg!(target_arch = "x86_64"));
        fence();
        assert_eq!(bytes, [7; 200]);
        assert!(!forget::<u8>(&[]), "nothing to evict");
    }
}
