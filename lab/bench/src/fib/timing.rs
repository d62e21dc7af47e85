//! One trial: how long a lookup takes, from caches that hold nothing of the trial before.
use super::engine::{Mode, Reader};
use artery_lpm::Address;
use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};
use std::hint::black_box;
use std::sync::OnceLock;
use std::time::{Duration, Instant};

/// Addresses between two looks at the clock.
const SLICE: usize = 1 << 14;
/// The most time for the pass that warms the caches, in budgets.
const WARM_UP: u32 = 10;

/// Nanoseconds of a lookup in the long run: all addresses in turn, again and again, until `budget` is used
/// up. A pass before that has brought into the caches what stays there.
pub fn trial<A: Address>(reader: &mut dyn Reader<A>, mode: Mode, addresses: &[A], budget: Duration) -> f64 {
    warm_up(reader, mode, addresses, budget * WARM_UP);
    let slices = addresses.chunks(SLICE).cycle();
    let (start, busy, mut lookups) = (Instant::now(), thread_time(), 0);
    for slice in slices {
        reader.pass(mode, slice);
        lookups += slice.len();
        if start.elapsed() >= budget {
            break;
        }
    }
    let nanos = (thread_time() - busy).as_nanos() as f64;
    reader.rest();
    nanos / lookups.max(1) as f64
}

fn warm_up<A: Address>(reader: &mut dyn Reader<A>, mode: Mode, addresses: &[A], budget: Duration) {
    let start = Instant::now();
    for slice in addresses.chunks(SLICE) {
        reader.pass(mode, slice);
        if start.elapsed() > budget {
            break;
        }
    }
}

/// How long this thread has had a processor: what others do on it meanwhile does not count, as long as they
/// leave the caches alone.
pub fn thread_time() -> Duration {
    let time = rustix::time::clock_gettime(rustix::time::ClockId::ThreadCPUTime);
    Duration::new(time.tv_sec as u64, time.tv_nsec as u32)
}

/// Pushes everything else out of the caches.
pub struct Flusher(Vec<u64>);

impl Flusher {
    /// Memory of twice the last-level cache.
    pub fn new() -> Flusher {
        Flusher(vec![1; 2 * last_level_cache() / size_of::<u64>()])
    }
    /// Writes a word of every cache line.
    pub fn flush(&mut self) {
        self.0.iter_mut().step_by(8).for_each(|word| *word = word.wrapping_add(1));
        black_box(&mut self.0);
    }
}

impl Default for Flusher {
    fn default() -> Flusher {
        Flusher::new()
    }
}

/// Bytes of the last-level cache; 32 MiB where the system does not say.
pub fn last_level_cache() -> usize {
    let size = |index: u32| {
        let path = format!("/sys/devices/system/cpu/cpu0/cache/index{index}/size");
        let text = std::fs::read_to_string(path).ok()?;
        text.trim().strip_suffix('K')?.parse::<usize>().ok()
    };
    (0..5).filter_map(size).max().map_or(32 << 20, |kilobytes| kilobytes << 10)
}

/// The processors that the program may use. Asked for once, before any thread is pinned: those that a pinned
/// thread starts may use its processor only.
fn processors() -> &'static [usize] {
    static PROCESSORS: OnceLock<Vec<usize>> = OnceLock::new();
    PROCESSORS.get_or_init(|| {
        let allowed = sched_getaffinity(None);
        (0..CpuSet::MAX_CPU).filter(|&cpu| allowed.as_ref().is_ok_and(|set| set.is_set(cpu))).collect()
    })
}

/// Keeps this thread on one processor, the n-th of those that the program may use, where the system lets it.
pub fn pin(n: usize) {
    if let Some(&processor) = processors().get(n) {
        let mut one = CpuSet::new();
        one.set(processor);
        // Unpinned figures are noisier, not wrong.
        let _ = sched_setaffinity(None, &one);
    }
}

/// Lets this thread run where it could before it was pinned.
pub struct Pinned(Option<CpuSet>);

impl Pinned {
    /// Pins this thread to the n-th processor as long as this lives.
    pub fn to(n: usize) -> Pinned {
        let before = sched_getaffinity(None).ok();
        pin(n);
        Pinned(before)
    }
}

impl Drop for Pinned {
    fn drop(&mut self) {
        if let Some(before) = &self.0 {
            let _ = sched_setaffinity(None, before);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_thread_that_a_pinned_one_starts_can_be_pinned_elsewhere() {
        let _pinned = Pinned::to(0);
        let elsewhere = std::thread::spawn(|| {
            pin(1);
            sched_getaffinity(None).expect("a thread may ask for its own")
        });
        let set = elsewhere.join().expect("it does not panic");
        let wanted = processors().get(1).or(processors().first()).expect("some processor runs this");
        assert!(set.is_set(*wanted));
        assert_eq!(set.count(), 1);
    }
}
