//! Feeds a mirror from the kernel.
use super::{Mirror, Sink};
use crate::kernel::{ChangeMonitor, DumpProgress, ReadOutcome, RecordDump, RecordKind};
use rustix::fd::{AsFd, BorrowedFd};
use std::collections::VecDeque;
use std::io;
use std::time::{Duration, Instant};

/// How often everything is read again without a reason.
const INTERVAL: Duration = Duration::from_secs(60);
/// How long there is no other look at everything after one, whatever the reason.
const PAUSE: Duration = Duration::from_millis(500);
/// Limit, in bytes, on changes that wait to be read.
const BACKLOG: usize = 64 << 20;
/// How often a part is dumped again that changed while it was dumped.
const TRIES: u8 = 4;
/// Datagrams of changes that are read before a datagram of a dump.
const AT_ONCE: usize = 256;
/// Such rounds in a turn, some milliseconds.
const ROUNDS: usize = 32;

/// A mirror that follows the kernel of this network namespace.
#[derive(Debug)]
pub struct MirrorDriver {
    mirror: Mirror,
    follower: ChangeMonitor,
    dump: RecordDump,
    /// The parts still to be dumped; the dump of the first is under way if `is_asked`.
    parts: VecDeque<RecordKind>,
    is_asked: bool,
    /// Whether a resync is under way.
    is_looking: bool,
    tries: u8,
    /// Whether a resync is requested.
    is_wanted: bool,
    last: Option<Instant>,
    changes: u64,
    overruns: u64,
    /// When changes were lost which no look at everything has found since, and how many overruns there were
    /// when the one that goes on began.
    lost_since: Option<Instant>,
    overruns_before: u64,
    resyncs: u64,
}

/// When the driver needs its next turn.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PollOutcome {
    /// There is more to do: take another turn.
    Again,
    /// There is nothing to do before the follower can be read, or for so long.
    Sleep(Duration),
}

impl MirrorDriver {
    /// Begins to follow; nothing is known yet.
    pub fn open() -> io::Result<MirrorDriver> {
        MirrorDriver::with_backlog(BACKLOG)
    }

    /// Opens a mirror with a limit, in bytes, on changes that wait in the socket.
    pub fn with_backlog(bytes: usize) -> io::Result<MirrorDriver> {
        Ok(MirrorDriver {
            mirror: Mirror::default(),
            follower: ChangeMonitor::open(bytes)?,
            dump: RecordDump::open()?,
            parts: VecDeque::new(),
            is_asked: false,
            is_looking: false,
            tries: 0,
            is_wanted: true,
            last: None,
            changes: 0,
            overruns: 0,
            lost_since: None,
            overruns_before: 0,
            resyncs: 0,
        })
    }

    /// Reads all that the kernel has.
    pub fn load(&mut self, now: Instant, sink: &mut dyn Sink) -> io::Result<()> {
        sink.begin_load();
        let looks = self.resyncs;
        // Without marks: nothing is forwarded yet, so that what waits until the first turn is not late.
        let done = loop {
            if let Err(error) = self.run_rounds(now, sink) {
                break Err(error);
            }
            if self.resyncs != looks {
                break Ok(());
            }
        };
        sink.end_load();
        done
    }

    /// Reads what has changed, and continues the resync if one is due.
    pub fn poll(&mut self, now: Instant, sink: &mut dyn Sink) -> io::Result<PollOutcome> {
        let changes = self.changes;
        let outcome = self.run_rounds(now, sink);
        // What comes from now on waits for the next turn. A mark is read like a change, so that without
        // changes there are to be no marks.
        if self.changes != changes {
            self.follower.mark();
        }
        outcome
    }

    fn run_rounds(&mut self, now: Instant, sink: &mut dyn Sink) -> io::Result<PollOutcome> {
        for _ in 0..ROUNDS {
            let has_more = self.apply_changes(sink)?;
            let due = self.time_to_resync(now);
            if due.is_zero() {
                self.resync_step(now, sink)?;
            } else if !has_more {
                return Ok(PollOutcome::Sleep(due));
            }
        }
        Ok(PollOutcome::Again)
    }

    /// What has been mirrored.
    pub fn mirror(&self) -> &Mirror {
        &self.mirror
    }

    /// Follows again which VRFs interfaces belong to, where the sink takes others than before.
    pub fn review_vrfs(&mut self, sink: &mut dyn Sink) {
        self.mirror.review_vrfs(sink);
    }

    /// Looks at everything again as soon as may be.
    pub fn request_resync(&mut self) {
        self.is_wanted = true;
    }

    /// Number of changes that the kernel has sent.
    pub fn changes(&self) -> u64 {
        self.changes
    }

    /// How often the kernel had more to say than could be kept for this program.
    pub fn overruns(&self) -> u64 {
        self.overruns
    }

    /// The lag of changes: how long the last ones waited, or the least time that those waiting now have
    /// waited. `None` without the right to measure it.
    pub fn lag(&self, now: Instant) -> Option<Duration> {
        let lost = self.lost_since.map(|since| now.saturating_duration_since(since));
        self.follower.lag(now).max(lost)
    }

    /// How often everything was read.
    pub fn resyncs(&self) -> u64 {
        self.resyncs
    }

    /// Reads and applies changes; returns whether there may be more.
    fn apply_changes(&mut self, sink: &mut dyn Sink) -> io::Result<bool> {
        for _ in 0..AT_ONCE {
            let heard = self.follower.read(|news| {
                self.changes += 1;
                self.mirror.apply_change(news, sink);
            });
            match heard? {
                ReadOutcome::More => {}
                ReadOutcome::Nothing => return Ok(false),
                ReadOutcome::Overrun => {
                    self.overruns += 1;
                    self.is_wanted = true;
                    self.lost_since.get_or_insert_with(Instant::now);
                }
            }
        }
        Ok(true)
    }

    /// How long until the next resync is due; zero while one is under way.
    fn time_to_resync(&mut self, now: Instant) -> Duration {
        self.is_wanted |= self.mirror.resync_requested();
        let Some(last) = self.last.filter(|_| !self.is_looking) else { return Duration::ZERO };
        let wait = if self.is_wanted { PAUSE } else { INTERVAL };
        wait.saturating_sub(now.saturating_duration_since(last))
    }

    /// Looks at some more of everything.
    fn resync_step(&mut self, now: Instant, sink: &mut dyn Sink) -> io::Result<()> {
        if !self.is_looking {
            self.parts.extend(RecordKind::ALL);
            (self.is_looking, self.is_wanted) = (true, false);
            self.overruns_before = self.overruns;
        }
        if self.mirror.sweep_routes(sink) {
            return Ok(());
        }
        let Some(part) = self.parts.front().copied() else {
            self.end_resync(now);
            return Ok(());
        };
        if !self.is_asked {
            self.dump.begin(part)?;
            self.mirror.begin_part(part);
            self.is_asked = true;
        }
        match self.dump.read(|news| self.mirror.add_found(news.record, sink)) {
            Ok(DumpProgress::Done { was_interrupted }) => self.end_part(!was_interrupted, sink),
            Ok(_) => {}
            Err(error) => {
                // Who goes on asks for the part again.
                self.is_asked = false;
                return Err(error);
            }
        }
        Ok(())
    }

    fn end_part(&mut self, is_complete: bool, sink: &mut dyn Sink) {
        self.is_asked = false;
        self.tries += 1;
        let asks_again = self.mirror.end_part(is_complete, sink);
        if asks_again && self.tries < TRIES {
            return;
        }
        self.is_wanted |= asks_again;
        self.tries = 0;
        self.parts.pop_front();
    }

    fn end_resync(&mut self, now: Instant) {
        self.is_looking = false;
        self.last = Some(now);
        self.resyncs += 1;
        if self.overruns == self.overruns_before {
            self.lost_since = None;
        }
    }
}

/// Readable when there is a change to read.
impl AsFd for MirrorDriver {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.follower.as_fd()
    }
}
