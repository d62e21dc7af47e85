//! Messages about a log file that can't be written: at once, then once a minute with the number of lost
//! records, and when writing succeeds again.
use artery_device::system_message;
use artery_engine::Sink;
use std::io;
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

/// Shortest time between two messages.
const INTERVAL: Duration = Duration::from_secs(60);

/// The complaints about one file.
pub(super) struct WriteFaults {
    path: String,
    sink: Arc<OnceLock<Sink>>,
    /// The last error of the system, while writing fails.
    failing: Option<String>,
    last: Option<Instant>,
    /// Records lost as of the last complaint, whatever they were lost by.
    said: u64,
}

impl WriteFaults {
    pub(super) fn new(path: &str, sink: Arc<OnceLock<Sink>>) -> WriteFaults {
        WriteFaults { path: path.to_string(), sink, failing: None, last: None, said: 0 }
    }

    /// Records the result of the latest attempt to write, if there was one, and writes the message that is
    /// due. `lost` is the total of lost records.
    pub(super) fn report_attempt(&mut self, latest: Option<io::Result<()>>, lost: u64, now: Instant) {
        let line = self.due_message(latest, lost, now);
        if let Some(line) = line {
            // A message that can't be written doesn't stop the log.
            let _ = self.sink.get().unwrap_or(&Sink::Stderr).write(&format!("{line}\n"));
        }
    }

    fn due_message(&mut self, latest: Option<io::Result<()>>, lost: u64, now: Instant) -> Option<String> {
        let was_failing = self.failing.is_some();
        match latest {
            Some(Ok(())) => self.failing = None,
            Some(Err(error)) => self.failing = Some(system_message(&error)),
            None => {}
        }
        if !was_failing && self.failing.is_none() {
            self.said = lost;
            return None;
        }
        let is_due = self.last.is_none_or(|last| now.duration_since(last) >= INTERVAL);
        let newly = lost - self.said.min(lost);
        let records = if newly == 1 { "record was" } else { "records were" };
        let path = &self.path;
        let line = match &self.failing {
            Some(why) if is_due && newly > 0 => {
                format!("{path}: can't write: {why}; {newly} {records} lost since this was last said")
            }
            // Recovery is reported at once: the next message may be far off.
            None => {
                format!("{path}: packets are logged again; {newly} {records} lost since this was last said")
            }
            Some(_) => return None,
        };
        (self.last, self.said) = (Some(now), lost);
        Some(line)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_full_disk_is_told_at_once_then_once_a_minute_and_when_it_is_over() {
        let mut complaints = WriteFaults::new("f", Arc::default());
        let full = || Some(Err(io::Error::from_raw_os_error(28)));
        let start = Instant::now();
        let at = |seconds| start + Duration::from_secs(seconds);
        assert_eq!(complaints.due_message(Some(Ok(())), 5, at(0)), None, "lost before, by a flood");
        let said = complaints.due_message(full(), 6, at(1)).unwrap();
        assert_eq!(
            said,
            "f: can't write: No space left on device; 1 record was lost since this was last said"
        );
        for second in 2..61 {
            assert_eq!(complaints.due_message(full(), 6 + second, at(second)), None);
        }
        let said = complaints.due_message(None, 66, at(61)).unwrap();
        assert!(said.contains("; 60 records were lost"), "{said}");
        assert_eq!(complaints.due_message(None, 66, at(200)), None, "nothing more was lost");
        let said = complaints.due_message(Some(Ok(())), 70, at(201)).unwrap();
        assert_eq!(said, "f: packets are logged again; 4 records were lost since this was last said");
        assert_eq!(complaints.due_message(Some(Ok(())), 70, at(202)), None);
        // It fails again soon after, and the message waits for its minute.
        assert_eq!(complaints.due_message(full(), 71, at(203)), None);
        assert!(complaints.due_message(full(), 72, at(261)).unwrap().contains("; 2 records"));
    }
}
