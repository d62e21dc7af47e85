//! How messages are worded and placed: in Artery's way, with the line and a caret, or in Click's. No logging
//! crate: they have one subscriber for the whole process, and routers in one process share nothing.
use crate::timestamp::rfc3339;
use anyhow::Context as _;
use artery_engine::Sink;
use artery_lang::printable;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fd::AsFd;
use std::io::{IsTerminal as _, Write as _};
use std::sync::Mutex;
use std::time::SystemTime;

/// In which program's form messages are written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Output {
    /// Lines of text, which begin with the level.
    Artery { colour: bool },
    /// The same as a line of JSON each, for programs that keep logs.
    Json,
    /// As Click's programs write them, which scripts read.
    Click { warnings: bool },
}

/// In what form messages are written.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum LogFormat {
    /// A line of text, for people
    #[default]
    Text,
    /// A JSON object a line: time, level, event and message
    Json,
}

impl From<LogFormat> for Output {
    fn from(format: LogFormat) -> Output {
        match format {
            LogFormat::Text => Output::for_terminal(),
            LogFormat::Json => Output::Json,
        }
    }
}

/// Writes to standard output. It is not an error that the reader is gone.
pub(crate) fn print_stdout(text: &str) -> anyhow::Result<()> {
    print_on(text).map(drop)
}

/// The same for output that goes on for long; says whether it still has a reader.
pub(crate) fn print_on(text: &str) -> anyhow::Result<OutputReader> {
    match Sink::Stdout.write(text) {
        Ok(()) => Ok(OutputReader::There),
        Err(error) if error.kind() == std::io::ErrorKind::BrokenPipe => Ok(OutputReader::Gone),
        Err(error) => Err(error).context("can't write to standard output"),
    }
}

/// Whether standard output has a reader.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use]
pub(crate) enum OutputReader {
    There,
    Gone,
}

/// Writes to standard error. A failure is ignored, as it can't be reported anywhere.
pub(crate) fn print_stderr(text: &str) {
    let _ = Sink::Stderr.write(text);
}

/// Messages that standard error had no room for.
static LOST: Mutex<u64> = Mutex::new(0);
/// How long a message of a thread that handles no packets waits for room.
const LONGEST_WAIT: Timespec = Timespec { tv_sec: 0, tv_nsec: 250_000_000 };

/// Whether a descriptor takes some output within a time.
pub(crate) fn has_room(output: &impl AsFd, limit: Timespec) -> bool {
    let wait = |limit| poll(&mut [PollFd::new(output, PollFlags::OUT)], Some(&limit));
    // A signal ends the wait, and that is not begun again: there may be many.
    wait(limit).or_else(|_| wait(Timespec::default())) != Ok(0)
}

/// Whether the last message was dropped.
fn is_stalled() -> bool {
    *LOST.lock().unwrap_or_else(|e| e.into_inner()) > 0
}

/// Writes a message of a process that goes on. If standard error is not read, as on a terminal that was
/// stopped by Ctrl-S, the message is dropped, so that packets are not held up; the next message that has room
/// says how many were.
fn print_or_drop(text: &str, lost: impl Fn(u64) -> String) {
    let mut count = LOST.lock().unwrap_or_else(|e| e.into_inner());
    if !has_room(&std::io::stderr(), Timespec::default()) {
        *count += 1;
        return;
    }
    match std::mem::take(&mut *count) {
        0 => print_stderr(text),
        some => print_stderr(&(lost(some) + text)),
    }
}

/// The same for text with colours, in which all else is printable.
pub(crate) fn complain_styled(text: &str) {
    let _ = std::io::stderr().write_all(text.as_bytes());
}

impl Output {
    /// Artery's own, coloured on a terminal unless the user asks for none.
    pub(crate) fn for_terminal() -> Output {
        let wanted = std::env::var_os("NO_COLOR").is_none_or(|value| value.is_empty());
        Output::Artery { colour: wanted && std::io::stderr().is_terminal() }
    }

    /// Whether it is Artery's own, and not Click's.
    pub(crate) fn is_own(self) -> bool {
        !matches!(self, Output::Click { .. })
    }

    /// An error that has no place in a configuration.
    pub(crate) fn print_error(self, message: &str) {
        match self {
            Output::Json => print_stderr(&json_message("error", "message", message, &[])),
            _ => self.print_info(message),
        }
    }

    /// Mistakes without a place in a configuration, formatted for [`complain_of`](Self::complain_of).
    pub(crate) fn format_mistakes(self, mistakes: &[String]) -> String {
        let line_end = if self == Output::Json { "\n\n" } else { "\n" };
        let shown = |mistake: &String| printable(&without_numbers(mistake)).into_owned();
        mistakes.iter().map(|mistake| format!("error: {}{line_end}", shown(mistake))).collect()
    }

    /// A line about what happened.
    pub(crate) fn print_info(self, message: &str) {
        self.log_event("message", message, &[]);
    }

    /// A line about what happened. Only JSON has the kind of event and the fields beside the message.
    pub(crate) fn log_event(self, event: &str, message: &str, about: EventFields<'_>) {
        let text = match self {
            Output::Artery { .. } => format!("artery: {}\n", without_numbers(message)),
            Output::Json => json_message("info", event, message, about),
            Output::Click { .. } => format!("{message}\n"),
        };
        if !is_stalled() {
            // Without the lock, for which workers would wait.
            has_room(&std::io::stderr(), LONGEST_WAIT);
        }
        print_or_drop(&text, |count| self.format_lost(count));
    }

    fn format_lost(self, count: u64) -> String {
        let message = format!("{count} messages before this one were dropped: standard error was not read");
        match self {
            Output::Json => json_message("warning", "dropped", &message, &[]),
            _ => format!("artery: {message}\n"),
        }
    }

    /// A document for programs, whose keys are added to a line of JSON.
    pub(crate) fn write_document(self, event: &str, message: &str, document: serde_json::Value) {
        let mut line = json_line("info", event, message);
        if let (Some(line), serde_json::Value::Object(document)) = (line.as_object_mut(), document) {
            line.extend(document);
        }
        print_stderr(&format!("{line}\n"));
    }

    /// Where what elements of a product say goes, without waiting for who reads it.
    pub(crate) fn product_sink(self) -> Sink {
        Sink::Teller(match self {
            Output::Json => |text| {
                let lines = text.lines().map(|line| json_message("info", "element", line, &[]));
                print_or_drop(&lines.collect::<String>(), |count| Output::Json.format_lost(count));
            },
            _ => |text| print_or_drop(text, |count| Output::for_terminal().format_lost(count)),
        })
    }

    /// Where what elements of a configuration say goes: all of it, as fast as it is read.
    pub(crate) fn element_sink(self) -> Sink {
        match self {
            Output::Json => Sink::Teller(|text| {
                text.lines().for_each(|line| print_stderr(&json_message("info", "element", line, &[])))
            }),
            _ => Sink::Stderr,
        }
    }

    /// The lines that are printed at the end.
    pub(crate) fn print_report(self, text: &str) -> anyhow::Result<()> {
        match self {
            Output::Json => {
                text.lines().for_each(|line| print_stderr(&json_message("info", "report", line, &[])))
            }
            _ => print_stdout(text)?,
        }
        Ok(())
    }

    /// A warning that has no place in a configuration.
    pub(crate) fn print_warning(self, message: &str) {
        match self {
            Output::Click { warnings: false } => {}
            Output::Json => print_stderr(&json_message("warning", "message", message, &[])),
            _ => print_stderr(&format!("warning: {message}\n")),
        }
    }

    /// A warning of a control port that every user can write to. Click's form prints it even where its
    /// warnings are switched off.
    pub(crate) fn open_port(self, message: &str) {
        match self {
            Output::Click { .. } => print_stderr(&format!("warning: {message}\n")),
            _ => self.print_warning(message),
        }
    }

    /// A note about what was left out.
    pub(crate) fn print_note(self, message: &str) {
        match self {
            Output::Json => print_stderr(&json_message("info", "message", message, &[])),
            _ => print_stderr(&format!("note: {message}\n")),
        }
    }

    /// Writes what [`format_faults`](Self::format_faults) gave.
    pub(crate) fn complain_of(self, faults: &str) {
        match self {
            Output::Json => faults.split("\n\n").filter(|fault| !fault.trim().is_empty()).for_each(|fault| {
                let level = if fault.starts_with("warning") { "warning" } else { "error" };
                print_stderr(&json_message(level, "configuration", fault.trim_end(), &[]));
            }),
            // The names in them, of files and elements, are printable by now.
            Output::Artery { .. } => complain_styled(faults),
            Output::Click { .. } => print_stderr(faults),
        }
    }
}

/// Names and values that a message is about.
pub(crate) type EventFields<'a> = &'a [(&'a str, &'a str)];

/// A message as a line of JSON.
fn json_message(level: &str, event: &str, message: &str, about: EventFields<'_>) -> String {
    let mut line = json_line(level, event, message);
    about.iter().for_each(|(name, value)| line[*name] = (*value).into());
    // JSON escapes the first set of control characters.
    printable(&format!("{line}\n")).into_owned()
}

/// What each line of JSON has.
fn json_line(level: &str, event: &str, message: &str) -> serde_json::Value {
    let since_epoch = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
    serde_json::json!({
        "time": rfc3339(since_epoch.as_secs_f64()),
        "level": level,
        "event": event,
        "message": without_numbers(message),
    })
}

/// A message without the error numbers that the system adds to its texts.
pub(crate) fn without_numbers(message: &str) -> String {
    let mut parts = message.split(" (os error ");
    let first = parts.next().unwrap_or_default().to_string();
    parts.fold(first, |text, part| text + part.split_once(')').map_or(part, |(_, rest)| rest))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn errors_of_the_system_are_named_and_not_numbered() {
        let text = "a: Is a directory (os error 21); b: No such file or directory (os error 2)";
        assert_eq!(without_numbers(text), "a: Is a directory; b: No such file or directory");
        assert_eq!(without_numbers("byte 0 (of 5)"), "byte 0 (of 5)");
    }

    #[test]
    fn a_message_is_one_line_of_json() {
        let line = json_message("info", "guard", "a\n\"b\": no (os error 2)", &[("port", "eth0")]);
        assert!(line.ends_with("}\n") && line.matches('\n').count() == 1, "{line}");
        let json: serde_json::Value = serde_json::from_str(&line).unwrap();
        assert_eq!(json["level"], "info");
        assert_eq!(json["event"], "guard");
        assert_eq!(json["port"], "eth0");
        assert_eq!(json["message"], "a\n\"b\": no");
        assert!(json["time"].as_str().is_some_and(|time| time.starts_with("20") && time.ends_with('Z')));
    }
}
