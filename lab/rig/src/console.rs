//! What the program says: results on standard output, how far it is on standard error.
use artery_engine::Sink;
use std::io;

/// Prints a line of results. The error of a closed pipe ends the program without a message.
pub fn print(line: &str) -> io::Result<()> {
    Sink::Stdout.write(&format!("{line}\n"))
}

/// Says how far a measurement is, if anybody listens.
pub fn progress(line: &str) {
    // Messages fail silently.
    let _ = Sink::Stderr.write(&format!("{line}\n"));
}

/// Whether an error is that of a closed standard output.
pub fn is_unread(error: &anyhow::Error) -> bool {
    error.downcast_ref::<io::Error>().is_some_and(|error| error.kind() == io::ErrorKind::BrokenPipe)
}
