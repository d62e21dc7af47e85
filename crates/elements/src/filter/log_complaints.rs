//! What is said of a log file that takes nothing: at once, then once a minute with what was lost, and when
//! it is over.
use artery_device::system_message;
use artery_engine::Sink;
use std::io;
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

/// How often it is said at most.
const INTERVAL: Duration = Duration::from_secs(60);

/// The complaints about one file.
pub(super) struct Complaints {
    path: String,
    sink: Arc<OnceLock<Sink>>,
    /// What the system said last, while nothing can be written.
    failing: Option<String>,
    last: Option<Instant>,
    /// Records lost as of the last complaint, whatever they were lost by.
    said: u64,
}

impl Complaints {
    pub(super) fn new(path: &str, sink: Arc<OnceLock<Sink>>) -> Complaints {
        Complaints { path: path.to_string(), sink, failing: None, last: None, said: 0 }
    }

    /// Notes how the latest attempt to write went, if there was one, and says what is due; `lost` is all
    /// that was lost so far.
    pub(super) fn note(&mut self, latest: Option<io::Result<()>>, lost: u64, now: Instant) {
        let line = self.due(latest, lost, now);
        if let Some(line) = line {
            // That nobody hears it is no reason to stop.
            let _ = self.sink.get().unwrap_or(&Sink::Stderr).write(&format!("{line}\n"));
        }
    }

    fn due(&mut self, latest: Option<io::Result<()>>, lost: u64, now: Instant) -> Option<String> {
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
            // What is over is said at once: it may not happen again for long.
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
        let mut complaints = Complaints::new("f", Arc::default());
        let full = || Some(Err(io::Error::from_raw_os_error(28)));
        let start = Instant::now();
        let at = |seconds| start + Duration::from_secs(seconds);
        assert_eq!(complaints.due(Some(Ok(())), 5, at(0)), None, "lost before, by a flood");
        let said = complaints.due(full(), 6, at(1)).unwrap();
        assert_eq!(
            said,
            "f: can't write: No space left on device; 1 record was lost since this was last said"
        );
        for second in 2..61 {
            assert_eq!(complaints.due(full(), 6 + second, at(second)), None);
        }
        let said = complaints.due(None, 66, at(61)).unwrap();
        assert!(said.contains("; 60 records were lost"), "{said}");
        assert_eq!(complaints.due(None, 66, at(200)), None, "nothing more was lost");
        let said = complaints.due(Some(Ok(())), 70, at(201)).unwrap();
        assert_eq!(said, "f: packets are logged again; 4 records were lost since this was last said");
        assert_eq!(complaints.due(Some(Ok(())), 70, at(202)), None);
        // It fails again soon: that waits for its minute.
        assert_eq!(complaints.due(full(), 71, at(203)), None);
        assert!(complaints.due(full(), 72, at(261)).unwrap().contains("; 2 records"));
    }
}
