//! Reports that connections to sockets can't be accepted for want of descriptors, memory or threads.
use crate::output::Output;
use artery_device::system_message;
use std::io;
use std::time::{Duration, Instant};

/// Least time between two reports: a client that tries again and again fills no log.
const INTERVAL: Duration = Duration::from_secs(60);

/// What one listener has reported.
pub(super) struct ConnectionShortage {
    voice: Output,
    /// When a shortage was last reported.
    last: Option<Instant>,
    /// Whether its end is still to be reported.
    is_open: bool,
}

impl ConnectionShortage {
    pub(super) fn new(voice: Output) -> ConnectionShortage {
        ConnectionShortage { voice, last: None, is_open: false }
    }

    /// A connection was taken, or could not be.
    pub(super) fn record(&mut self, outcome: &io::Result<()>) {
        if let Some((event, message)) = self.report(outcome, Instant::now()) {
            self.voice.log_event(event, &message, &[]);
        }
    }

    /// The event and message that are due.
    fn report(&mut self, outcome: &io::Result<()>, now: Instant) -> Option<(&'static str, String)> {
        match outcome {
            Ok(()) => {
                let over = "connections to control and metrics sockets are accepted again".to_string();
                std::mem::take(&mut self.is_open).then_some(("shortage-over", over))
            }
            Err(error) if is_shortage(error) => {
                if self.last.is_some_and(|last| now.saturating_duration_since(last) < INTERVAL) {
                    return None;
                }
                (self.last, self.is_open) = (Some(now), true);
                let what = "can't accept connections to control and metrics sockets";
                let then = "packets are forwarded meanwhile";
                Some(("shortage", format!("{what}: {}; {then}", system_message(error))))
            }
            // The client has left before it was accepted.
            Err(_) => None,
        }
    }
}

fn is_shortage(error: &io::Error) -> bool {
    let lacking = [libc::EMFILE, libc::ENFILE, libc::ENOMEM, libc::ENOBUFS, libc::EAGAIN];
    error.raw_os_error().is_some_and(|errno| lacking.contains(&errno))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_shortage_is_reported_once_a_minute_and_its_end_once() {
        let mut shortage = ConnectionShortage::new(Output::Json);
        let begin = Instant::now();
        let mut report = |outcome: Result<(), i32>, seconds| {
            let outcome = outcome.map_err(io::Error::from_raw_os_error);
            let due = shortage.report(&outcome, begin + Duration::from_secs(seconds));
            due.map(|(event, _)| event)
        };
        assert_eq!(report(Ok(()), 0), None);
        assert_eq!(report(Err(libc::ECONNABORTED), 0), None);
        assert_eq!(report(Err(libc::EMFILE), 0), Some("shortage"));
        assert_eq!(report(Err(libc::EMFILE), 1), None);
        assert_eq!(report(Ok(()), 2), Some("shortage-over"));
        assert_eq!(report(Ok(()), 2), None);
        assert_eq!(report(Err(libc::ENFILE), 59), None);
        assert_eq!(report(Ok(()), 59), None);
        assert_eq!(report(Err(libc::ENFILE), 60), Some("shortage"));
    }
}
