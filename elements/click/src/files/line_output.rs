//! Lines that elements print, on standard error or to a file.
use super::output_file::{OutputFile, io_message};
use artery_device::{check_writable, create_private};
use artery_engine::{Context, StartError};
use std::fs::File;
use std::io::{self, BufWriter, Write as _};

/// Where an element of a class prints.
pub(crate) struct LineOutput {
    class: &'static str,
    /// None for standard error.
    file: Option<OutputFile<BufWriter<File>>>,
}

impl LineOutput {
    /// Prints to a file of this name, also where that is `-`, and without one on standard error.
    pub(crate) fn new(class: &'static str, name: Option<String>) -> LineOutput {
        LineOutput { class, file: name.filter(|name| !name.is_empty()).map(OutputFile::new) }
    }

    /// Opens the file when the element starts.
    pub(crate) fn start(&mut self, cx: &mut Context<'_>) -> Result<(), StartError> {
        let Some(file) = &mut self.file else { return Ok(()) };
        let started = file.start(cx.is_replacing(), check_writable, open);
        started.map_err(|error| StartError::new(io_message(file.path(), &error)))
    }

    /// Goes on with the file of a predecessor, if it is the same.
    pub(crate) fn take_over(&mut self, old: &mut LineOutput, cx: &mut Context<'_>) {
        if let (Some(file), Some(old)) = (&mut self.file, &mut old.file) {
            file.take_over(old);
        }
        self.open_pending(cx);
    }

    /// Opens the file when the element already runs, if that is still to be done.
    pub(crate) fn open_pending(&mut self, cx: &mut Context<'_>) {
        let opened = self.file.as_mut().map_or(Ok(false), |file| file.open_pending(open));
        self.close_on_error(opened.map(drop), cx);
    }

    pub(crate) fn print_line(&mut self, line: &str, cx: &mut Context<'_>) {
        let Some(file) = &mut self.file else { return cx.print_message(line) };
        let written = file.writer().map_or(Ok(()), |file| writeln!(file, "{line}"));
        self.close_on_error(written, cx);
    }

    /// Writes what is buffered.
    pub(crate) fn flush(&mut self, cx: &mut Context<'_>) {
        let file = self.file.as_mut().and_then(OutputFile::writer);
        let flushed = file.map_or(Ok(()), BufWriter::flush);
        self.close_on_error(flushed, cx);
    }

    /// Stops writing to a file after an error, for example on a full disk. Packets still pass, and
    /// the run has failed.
    fn close_on_error(&mut self, result: io::Result<()>, cx: &mut Context<'_>) {
        if let (Err(error), Some(file)) = (result, &mut self.file) {
            let what = io_message(file.path(), &error);
            cx.report_failure(&format!("{} :: {}: {what}", cx.name(), self.class));
            file.close();
        }
    }
}

fn open(path: &str) -> io::Result<BufWriter<File>> {
    create_private(path).map(BufWriter::new)
}
