//! Frames for `artery capture`, which polls for them.
use artery_adopt::Session;
use artery_adopt::fast::{self, CaptureVerdict};
use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use rustix::time::{ClockId, clock_gettime};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::time::{Duration, Instant, SystemTime};

/// How long after the last request for frames they are still copied.
const PATIENCE: Duration = Duration::from_secs(10);

/// What a question is answered with.
#[derive(Debug, Default, Serialize, Deserialize)]
pub(crate) struct Captured {
    /// Frames that were lost since the beginning.
    pub(crate) lost: u64,
    pub(crate) frames: Vec<Frame>,
}

/// A frame, as it came.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Frame {
    /// Nanoseconds since the epoch.
    pub(crate) time: u64,
    /// The port that it came by.
    pub(crate) port: String,
    /// The port that it left by, if it was forwarded.
    pub(crate) to: Option<String>,
    /// Why it was left to the kernel, if it was.
    pub(crate) reason: Option<String>,
    /// Bytes that it had.
    pub(crate) length: u32,
    /// The first of them, in base 64.
    pub(crate) bytes: String,
}

/// Whether frames are copied now, and when they were last asked for.
#[derive(Default)]
pub(super) struct Captures(Option<Instant>);

impl Captures {
    /// Begins, or ends, as a client says.
    pub(super) fn set(&mut self, session: &mut Session, wanted: &str) -> Result<String, String> {
        let has_all = match wanted.trim() {
            "end" => return self.end(session),
            "all" => true,
            "forwarded" => false,
            _ => return Err("write 'forwarded', 'all' or 'end'".to_string()),
        };
        if self.0.is_some() {
            return Err("a capture is running already; there can be only one at a time".to_string());
        }
        session.accelerator_mut().begin_capture(has_all).map_err(|error| error.to_string())?;
        self.0 = Some(Instant::now());
        Ok(String::new())
    }

    /// The frames copied since the last request.
    pub(super) fn drain_frames(&mut self, session: &mut Session) -> Result<String, String> {
        if self.0.is_none() {
            return Err("nothing is captured; write 'forwarded' or 'all' first".to_string());
        }
        self.0 = Some(Instant::now());
        let (frames, lost) = session.accelerator_mut().drain_captured();
        let (names, epoch) = (names(session), monotonic_epoch());
        let frames = frames.into_iter().map(|frame| named(frame, &names, epoch)).collect();
        serde_json::to_string(&Captured { lost, frames }).map_err(|error| error.to_string())
    }

    /// Ends the capture if its client seems to be gone.
    pub(super) fn expire(&mut self, session: &mut Session, now: Instant) -> Result<(), String> {
        match self.0 {
            Some(asked) if now.saturating_duration_since(asked) > PATIENCE => self.end(session).map(drop),
            _ => Ok(()),
        }
    }

    fn end(&mut self, session: &mut Session) -> Result<String, String> {
        self.0 = None;
        session.accelerator_mut().end_capture().map_err(|error| error.to_string())?;
        Ok(String::new())
    }
}

/// The names of interfaces by the numbers of ports.
fn names(session: &Session) -> BTreeMap<u32, String> {
    let links: BTreeMap<u32, &str> =
        session.driver().mirror().links().map(|link| (link.index, link.name.as_str())).collect();
    let ports = session.accelerator().ports();
    ports.filter_map(|(link, port)| Some((port, links.get(&link)?.to_string()))).collect()
}

/// When the kernel's monotonic clock was zero, in nanoseconds since the epoch.
pub(super) fn monotonic_epoch() -> u64 {
    let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
    let monotonic = clock_gettime(ClockId::Monotonic);
    let monotonic = monotonic.tv_sec as u64 * 1_000_000_000 + monotonic.tv_nsec as u64;
    (now.as_nanos() as u64).saturating_sub(monotonic)
}

fn named(frame: fast::Captured, names: &BTreeMap<u32, String>, epoch: u64) -> Frame {
    let name = |port: u32| names.get(&port).cloned().unwrap_or_else(|| format!("port{port}"));
    let (to, reason) = match frame.verdict {
        CaptureVerdict::Forwarded(port) => (Some(name(port)), None),
        CaptureVerdict::Kernel(reason) => (None, Some(reason.name().to_string())),
    };
    Frame {
        time: epoch + frame.time,
        port: name(frame.port),
        to,
        reason,
        length: frame.length,
        bytes: BASE64_STANDARD.encode(&frame.bytes),
    }
}
