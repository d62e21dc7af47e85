//! The lines of a summary: of a file, of standard input, or of a text.
use super::output_file::io_message;
use artery_device::files;
use std::io::{self, BufRead, BufReader, Cursor, Read as _};

/// Bytes of a line. The payload of the longest packet takes a quarter of it, each byte written as four.
const MAX_LINE: u64 = 1 << 20;

/// Reads lines, without their ends.
pub(crate) struct Lines {
    source: Source,
    input: Option<Box<dyn BufRead + Send>>,
    /// A line that was read and is to be returned next.
    pending: Option<String>,
    last: String,
    number: u64,
    position: u64,
}

enum Source {
    File(String),
    Text(Vec<u8>),
}

impl Lines {
    pub(super) fn of_file(path: String) -> Lines {
        Lines::from_source(Source::File(path))
    }
    pub(super) fn of_text(text: Vec<u8>) -> Lines {
        Lines::from_source(Source::Text(text))
    }
    fn from_source(source: Source) -> Lines {
        Lines { source, input: None, pending: None, last: String::new(), number: 0, position: 0 }
    }

    /// Opens the file. One that is not there has no lines, if `may_lack`.
    pub(super) fn open_source(&mut self, may_lack: bool) -> Result<(), String> {
        self.input = Some(match &self.source {
            Source::Text(text) => Box::new(Cursor::new(text.clone())),
            Source::File(path) if path == "-" => Box::new(BufReader::new(io::stdin())),
            Source::File(path) => match open_file(path) {
                Err(error) if may_lack && error.kind() == io::ErrorKind::NotFound => return Ok(()),
                Err(error) => return Err(io_message(path, &error)),
                Ok(file) => file,
            },
        });
        let is_empty = match self.peek() {
            Ok(line) => line.is_empty() && self.pending.is_none(),
            Err(error) => return Err(error),
        };
        if is_empty { Err(format!("{}: empty file", self.name())) } else { Ok(()) }
    }

    pub(super) fn close_input(&mut self) {
        (self.input, self.pending) = (None, None);
    }

    /// The next line, without consuming it; empty at the end.
    pub(super) fn peek(&mut self) -> Result<String, String> {
        if self.pending.is_none() {
            self.pending = self.read_line()?;
        }
        Ok(self.pending.clone().unwrap_or_default())
    }

    pub(super) fn next(&mut self) -> Result<Option<String>, String> {
        let line = match self.pending.take() {
            Some(line) => Some(line),
            None => self.read_line()?,
        };
        if let Some(line) = &line {
            self.number += 1;
            self.last.clone_from(line);
        }
        Ok(line)
    }

    /// Makes the next call return the last line again.
    pub(super) fn unread_line(&mut self) {
        self.number -= 1;
        self.pending = Some(std::mem::take(&mut self.last));
    }

    fn read_line(&mut self) -> Result<Option<String>, String> {
        let Some(input) = &mut self.input else { return Ok(None) };
        let mut bytes = Vec::new();
        match input.take(MAX_LINE + 1).read_until(b'\n', &mut bytes) {
            Ok(0) => {
                self.input = None;
                Ok(None)
            }
            Ok(_) if bytes.len() as u64 > MAX_LINE => {
                self.input = None;
                let line = self.number + 1;
                Err(format!(
                    "{}:{line}: the line is longer than {MAX_LINE} bytes: is this a summary?",
                    self.name()
                ))
            }
            Ok(n) => {
                self.position += n as u64;
                let line = String::from_utf8_lossy(&bytes);
                Ok(Some(line.trim_end_matches(['\r', '\n']).to_string()))
            }
            Err(error) => {
                self.input = None;
                Err(io_message(self.name(), &error))
            }
        }
    }

    /// What messages call the file.
    pub(super) fn name(&self) -> &str {
        match &self.source {
            Source::Text(_) => "<data>",
            Source::File(path) if path == "-" => "<stdin>",
            Source::File(path) => path,
        }
    }
    /// The number of the last line returned.
    pub(super) fn number(&self) -> u64 {
        self.number
    }
    pub(super) fn position(&self) -> u64 {
        self.position
    }
    /// The size of the file in bytes, if it is known.
    pub(super) fn size_text(&self) -> String {
        let Source::File(path) = &self.source else { return "-".into() };
        let file = std::fs::metadata(path).ok().filter(|file| file.is_file());
        file.map_or("-".into(), |file| file.len().to_string())
    }
}
/// Opens a file, packed by gzip or not.
fn open_file(path: &str) -> io::Result<Box<dyn BufRead + Send>> {
    Ok(match artery_feed::open_packed(path.as_ref(), |path| files::open(path))? {
        Some(unpacked) => Box::new(BufReader::new(unpacked)),
        None => Box::new(BufReader::new(files::open(path)?)),
    })
}
