//! Lines that a thread has an element write to the log.
use rustix::event::{EventfdFlags, eventfd};
use rustix::fd::{AsFd as _, BorrowedFd, OwnedFd};
use std::collections::VecDeque;
use std::io;
use std::sync::{Mutex, PoisonError};

/// Lines that may wait for an element; older ones are lost.
const MOST_LINES: usize = 16;

pub(crate) struct LogLines {
    lines: Mutex<VecDeque<String>>,
    news: OwnedFd,
}

impl LogLines {
    pub(crate) fn new() -> io::Result<LogLines> {
        let news = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?;
        Ok(LogLines { lines: Mutex::default(), news })
    }

    pub(crate) fn push_line(&self, line: String) {
        let mut lines = self.lines.lock().unwrap_or_else(PoisonError::into_inner);
        lines.push_back(line);
        if lines.len() > MOST_LINES {
            lines.pop_front();
        }
        drop(lines);
        // Full is as good: it is readable.
        let _ = rustix::io::write(&self.news, &1u64.to_ne_bytes());
    }

    /// Readable when there are lines.
    pub(crate) fn lines_fd(&self) -> BorrowedFd<'_> {
        self.news.as_fd()
    }

    /// The lines since the last call.
    pub(crate) fn drain_lines(&self) -> Vec<String> {
        let _ = rustix::io::read(&self.news, &mut [0; 8]);
        self.lines.lock().unwrap_or_else(PoisonError::into_inner).drain(..).collect()
    }
}
