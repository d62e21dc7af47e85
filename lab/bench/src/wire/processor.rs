//! What the processors did: time of a process, and of one processor for everybody, as the kernel counts them.

use std::fs;

/// Ticks of the kernel's accounts in a second: USER_HZ, the same on every kernel.
const TICKS: f64 = 100.0;

/// The processor that frames are sent and received on.
pub(crate) const ENDS: usize = 0;
/// The processor of the forwarder.
pub(crate) const FORWARDER: usize = 1;

/// Whose time is counted.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Account {
    /// A process, its threads, and what the kernel does in their name.
    Process(u32),
    /// Everything that the forwarder's processor does: for a forwarder that isn't a process.
    Processor,
}

impl Account {
    /// Seconds of processor time up to now; 0 where unknown.
    pub(crate) fn seconds(self) -> f64 {
        let ticks = match self {
            Account::Process(id) => {
                fs::read_to_string(format!("/proc/{id}/stat")).ok().and_then(|text| process_ticks(&text))
            }
            Account::Processor => {
                fs::read_to_string("/proc/stat").ok().and_then(|text| busy_ticks(&text, FORWARDER))
            }
        };
        ticks.unwrap_or(0) as f64 / TICKS
    }
}

/// Seconds of processor time of each thread of a process that has used any, the busiest first.
pub fn threads(process: u32) -> Vec<(u32, f64)> {
    let Ok(tasks) = fs::read_dir(format!("/proc/{process}/task")) else { return Vec::new() };
    let used = |id: u32| {
        let text = fs::read_to_string(format!("/proc/{process}/task/{id}/stat")).ok()?;
        Some((id, process_ticks(&text)? as f64 / TICKS))
    };
    let ids = tasks.flatten().filter_map(|task| task.file_name().to_str()?.parse().ok());
    let mut threads: Vec<(u32, f64)> = ids.filter_map(used).collect();
    threads.sort_by(|a, b| b.1.total_cmp(&a.1));
    threads
}

/// User and system time from a process's line. Its name, in parentheses, may hold anything.
fn process_ticks(line: &str) -> Option<u64> {
    let (_, after_name) = line.rsplit_once(')')?;
    let mut fields = after_name.split_whitespace().skip(11);
    let mut next = || fields.next()?.parse::<u64>().ok();
    Some(next()? + next()?)
}

/// What a processor spent on anything but waiting: user, nice, system, interrupts, soft interrupts.
fn busy_ticks(text: &str, processor: usize) -> Option<u64> {
    let name = format!("cpu{processor}");
    let line = text.lines().find(|line| line.split_whitespace().next() == Some(&name))?;
    let figures: Vec<u64> = line.split_whitespace().skip(1).map_while(|figure| figure.parse().ok()).collect();
    let [user, nice, system, _idle, _waiting, interrupts, soft, ..] = figures[..] else { return None };
    Some(user + nice + system + interrupts + soft)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_process_is_known_by_its_last_parenthesis() {
        let line = "7 (odd) name) S 1 7 7 0 -1 4194560 100 0 0 0 250 50 0 0 20 0 1 0 12345";
        assert_eq!(process_ticks(line), Some(300));
        assert_eq!(process_ticks("7 (short) S 1"), None);
    }

    #[test]
    fn idle_and_waiting_processors_are_not_busy() {
        let text = "cpu  9 9 9 9 9 9 9\ncpu0 1 1 1 9 9 1 1 5 0 0\ncpu1 10 20 30 1000 1000 40 50 7 0 0\n";
        assert_eq!(busy_ticks(text, 1), Some(150));
        assert_eq!(busy_ticks(text, 2), None);
        assert_eq!(busy_ticks("cpu1 1 2\n", 1), None);
    }

    #[test]
    fn this_process_has_used_some_time_at_most() {
        assert!(Account::Process(std::process::id()).seconds() >= 0.0);
        assert_eq!(Account::Process(u32::MAX).seconds(), 0.0);
        assert!(threads(std::process::id()).iter().any(|(id, _)| *id == std::process::id()));
        assert_eq!(threads(u32::MAX), []);
    }
}
