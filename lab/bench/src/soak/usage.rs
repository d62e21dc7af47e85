//! What a process takes of the machine: resident memory and descriptors, and whether both stay as they are.

use std::fs;
use std::time::Duration;

/// How much resident memory may grow after the warm-up: a quarter, and this many kilobytes.
const MORE_KILOBYTES: u64 = 8 << 10;
/// How many more descriptors there may be.
const MORE_DESCRIPTORS: u64 = 4;

/// Memory and descriptors of a process and its children.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Usage {
    /// Resident memory in kilobytes.
    pub(super) resident: u64,
    pub(super) descriptors: u64,
}

/// Samples in the order of their times.
#[derive(Default)]
pub(super) struct Samples(Vec<(Duration, Usage)>);

impl Usage {
    /// What a process takes now; nothing where it has ended.
    pub(super) fn of(process: u32) -> Usage {
        let mut usage = Usage { resident: resident(process), descriptors: descriptors(process) };
        for child in children(process) {
            let of_child = Usage::of(child);
            usage.resident += of_child.resident;
            usage.descriptors += of_child.descriptors;
        }
        usage
    }

    /// Why this is too much, if `first` was taken after the warm-up.
    pub(super) fn excess(self, first: Usage) -> Option<String> {
        let most = first.resident + first.resident / 4 + MORE_KILOBYTES;
        if self.resident > most {
            let (from, to) = (first.resident, self.resident);
            return Some(format!("resident memory grew from {from} kB to {to} kB (limit {most} kB)"));
        }
        let most = first.descriptors + MORE_DESCRIPTORS;
        let (from, to) = (first.descriptors, self.descriptors);
        (to > most).then(|| format!("descriptors grew from {from} to {to} (limit {most})"))
    }
}

impl Samples {
    pub(super) fn add(&mut self, time: Duration, usage: Usage) {
        self.0.push((time, usage));
    }

    /// The medians after the warm-up (the fifth to the third tenth of the time) and at the end (the last
    /// tenth): a single sample may meet a reload, when two configurations are there.
    pub(super) fn ends(&self, whole: Duration) -> (Usage, Usage) {
        (self.median(whole / 5, whole * 3 / 10), self.median(whole * 9 / 10, Duration::MAX))
    }

    fn median(&self, from: Duration, to: Duration) -> Usage {
        let mut within: Vec<Usage> = self.between(from, to).collect();
        if within.is_empty() {
            // Samples are seldom where one event takes long.
            within = self.0.iter().rev().take(1).map(|(_, usage)| *usage).collect();
        }
        let middle = |of: fn(&Usage) -> u64| {
            let mut values: Vec<u64> = within.iter().map(of).collect();
            values.sort_unstable();
            values.get(values.len() / 2).copied().unwrap_or(0)
        };
        Usage { resident: middle(|usage| usage.resident), descriptors: middle(|usage| usage.descriptors) }
    }

    fn between(&self, from: Duration, to: Duration) -> impl Iterator<Item = Usage> {
        self.0.iter().filter(move |(time, _)| (from..=to).contains(time)).map(|(_, usage)| *usage)
    }
}

fn resident(process: u32) -> u64 {
    let status = fs::read_to_string(format!("/proc/{process}/status")).unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"));
    line.and_then(|line| line.trim().trim_end_matches(" kB").parse().ok()).unwrap_or(0)
}

fn descriptors(process: u32) -> u64 {
    fs::read_dir(format!("/proc/{process}/fd")).map_or(0, |folder| folder.count() as u64)
}

/// Children of all threads of a process, as of a kernel with `CONFIG_PROC_CHILDREN`.
fn children(process: u32) -> Vec<u32> {
    let Ok(threads) = fs::read_dir(format!("/proc/{process}/task")) else { return Vec::new() };
    let files = threads.flatten().map(|thread| thread.path().join("children"));
    let texts = files.filter_map(|file| fs::read_to_string(file).ok());
    texts
        .flat_map(|text| text.split_whitespace().filter_map(|id| id.parse().ok()).collect::<Vec<_>>())
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn usage(resident: u64, descriptors: u64) -> Usage {
        Usage { resident, descriptors }
    }

    #[test]
    fn growth_beyond_the_bounds_is_told() {
        let first = usage(100_000, 30);
        assert_eq!(usage(130_000, 34).excess(first), None);
        let told = usage(140_000, 30).excess(first).expect("too much memory");
        assert_eq!(told, "resident memory grew from 100000 kB to 140000 kB (limit 133192 kB)");
        assert!(usage(100_000, 35).excess(first).is_some_and(|told| told.contains("from 30 to 35")));
    }

    #[test]
    fn medians_after_the_warm_up_and_at_the_end_are_compared() {
        let mut samples = Samples::default();
        for second in 0..100 {
            // A reload in between needs more for a moment.
            let more = if second % 10 == 0 { 1000 } else { 0 };
            samples.add(Duration::from_secs(second), usage(second + more, 7));
        }
        assert_eq!(samples.ends(Duration::from_secs(100)), (usage(26, 7), usage(96, 7)));
    }

    #[test]
    fn this_process_has_memory_and_descriptors() {
        let here = Usage::of(std::process::id());
        assert!(here.resident > 1000 && here.descriptors >= 3, "{here:?}");
        assert_eq!(Usage::of(u32::MAX), Usage::default());
    }
}
