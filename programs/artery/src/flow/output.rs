//! Where an export goes: a file, or standard output, whose reader may go away.
use crate::output::OutputReader;
use anyhow::anyhow;
use artery_device::create_private;
use artery_device::system_message;
use std::io::{self, BufWriter, Write};
use std::path::Path;

/// A file or standard output.
pub(super) struct FlowOutput {
    into: Box<dyn Write>,
    name: String,
}

impl FlowOutput {
    /// That file, or standard output.
    pub(super) fn open(file: Option<&Path>) -> anyhow::Result<FlowOutput> {
        let Some(path) = file.filter(|path| path.as_os_str() != "-") else {
            return Ok(FlowOutput { into: Box::new(io::stdout()), name: "standard output".to_string() });
        };
        let name = path.display().to_string();
        let file = create_private(path)
            .map_err(|error| anyhow!("can't write {name}: {}", system_message(&error)))?;
        Ok(FlowOutput { into: Box::new(BufWriter::with_capacity(1 << 18, file)), name })
    }

    /// Writes; returns whether the output still has a reader.
    pub(super) fn write(&mut self, bytes: &[u8]) -> anyhow::Result<OutputReader> {
        let done = self.into.write_all(bytes);
        self.outcome(done)
    }

    /// Writes the remaining bytes; returns whether the output still has a reader.
    pub(super) fn flush(&mut self) -> anyhow::Result<OutputReader> {
        let done = self.into.flush();
        self.outcome(done)
    }

    fn outcome(&self, done: io::Result<()>) -> anyhow::Result<OutputReader> {
        match done {
            Ok(()) => Ok(OutputReader::There),
            Err(error) if error.kind() == io::ErrorKind::BrokenPipe => Ok(OutputReader::Gone),
            Err(error) => Err(anyhow!("can't write to {}: {}", self.name, system_message(&error))),
        }
    }
}
