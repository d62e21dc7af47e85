//! Where text goes that elements print.
use std::io::Write as _;
use std::sync::{Arc, Mutex};

/// A destination for printed text.
#[derive(Clone, Debug)]
pub enum Sink {
    /// Standard error, for what packets make elements say.
    Stderr,
    /// Standard output, for what scripts print.
    Stdout,
    /// A string that a test reads.
    Buffer(Arc<Mutex<String>>),
}

impl Sink {
    /// A sink that keeps the text.
    pub fn buffer() -> Sink {
        Sink::Buffer(Arc::default())
    }
    /// Writes `text` as it is. The error is standard output's; that messages find no reader is no reason to fail.
    pub fn write(&self, text: &str) -> std::io::Result<()> {
        match self {
            Sink::Stderr => drop(std::io::stderr().write_all(text.as_bytes())),
            Sink::Stdout => {
                let mut out = std::io::stdout().lock();
                return out.write_all(text.as_bytes()).and_then(|()| out.flush());
            }
            Sink::Buffer(buffer) => buffer.lock().unwrap_or_else(|e| e.into_inner()).push_str(text),
        }
        Ok(())
    }
    /// Takes the text out of a buffer; empty for the other kinds.
    pub fn take(&self) -> String {
        match self {
            Sink::Buffer(buffer) => std::mem::take(&mut *buffer.lock().unwrap_or_else(|e| e.into_inner())),
            _ => String::new(),
        }
    }
}
