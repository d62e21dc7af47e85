//! Where text goes that elements print.
use artery_lang::printable;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use std::io::{IsTerminal as _, Write as _};
use std::sync::{Arc, Mutex};

/// A destination for printed text.
#[derive(Clone, Debug)]
pub enum Sink {
    /// Standard error, for what packets make elements say.
    Stderr,
    /// Standard output, for what scripts print.
    Stdout,
    /// A function that writes it in another form, such as lines of JSON.
    Teller(fn(&str)),
    /// A string that a test reads.
    Buffer(Arc<Mutex<String>>),
}

impl Sink {
    /// A sink that keeps the text.
    pub fn buffer() -> Sink {
        Sink::Buffer(Arc::default())
    }
    /// Writes `text`: as it is, but control characters that a terminal may take for commands are written as
    /// escapes, on standard error always and on standard output where that is a terminal.
    pub fn write(&self, text: &str) -> std::io::Result<()> {
        match self {
            Sink::Stderr => return std::io::stderr().write_all(printable(text).as_bytes()),
            Sink::Stdout => {
                let mut out = std::io::stdout().lock();
                let text = if out.is_terminal() { printable(text) } else { text.into() };
                return out.write_all(text.as_bytes()).and_then(|()| out.flush());
            }
            Sink::Teller(tell) => tell(text),
            Sink::Buffer(buffer) => buffer.lock().unwrap_or_else(|e| e.into_inner()).push_str(text),
        }
        Ok(())
    }
    /// Whether the reader of standard output is gone, which shows before anything is written. False for
    /// other kinds of sinks.
    pub(crate) fn is_abandoned(&self) -> bool {
        let Sink::Stdout = self else { return false };
        let out = std::io::stdout();
        let mut watched = [PollFd::new(&out, PollFlags::empty())];
        let now = Timespec { tv_sec: 0, tv_nsec: 0 };
        poll(&mut watched, Some(&now)).is_ok()
            && watched[0].revents().intersects(PollFlags::ERR | PollFlags::HUP)
    }
    /// Takes the text out of a buffer; empty for the other kinds.
    pub fn drain_text(&self) -> String {
        match self {
            Sink::Buffer(buffer) => std::mem::take(&mut *buffer.lock().unwrap_or_else(|e| e.into_inner())),
            _ => String::new(),
        }
    }
}
