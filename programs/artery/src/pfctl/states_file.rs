//! States in files: `-S` and `-L`.
use super::input;
use super::live::Filters;
use crate::output::print_stderr;
use anyhow::{Context as _, anyhow, bail};
use artery_device::system_message;
use artery_filter::states::{AddError, Dump, DumpWriter};
use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use std::fs::File;
use std::io::{BufWriter, Write, stdout};
use std::path::Path;
use tempfile::Builder;

/// States that a router takes at once: packets wait for no more than these.
const CHUNK: usize = 512;

impl Filters {
    /// Stores all states in a file, which appears only when it is complete: `-S`.
    pub(super) fn store_states(&mut self, file: &str) -> anyhow::Result<()> {
        self.only("-S")?;
        if file == "-" {
            return self.write_states(stdout().lock()).context("can't write states to standard output");
        }
        let path = Path::new(file);
        refuse_link(path)?;
        let failed = |error: &std::io::Error| anyhow!("{file}: {}", system_message(error));
        let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."));
        // Of an unpredictable name and mode 0600, created with O_EXCL; it goes if what follows fails.
        let named = Builder::new().prefix(".states.").tempfile_in(folder);
        let unfinished = named.map_err(|error| failed(&error))?;
        self.write_states(BufWriter::new(unfinished.as_file()))
            .with_context(|| format!("can't write {file}"))?;
        unfinished.as_file().sync_all().map_err(|error| failed(&error))?;
        refuse_link(path)?;
        unfinished.persist(path).map_err(|error| failed(&error.error))?;
        // The name is on the disk once the folder is.
        File::open(folder).and_then(|folder| folder.sync_all()).map_err(|error| failed(&error))
    }

    fn write_states(&mut self, out: impl Write) -> anyhow::Result<()> {
        let mut writer = DumpWriter::new(out, self.checksum()?)?;
        self.parts("dump", "", |line| {
            let records =
                BASE64_STANDARD.decode(line.trim_end()).context("what the router says is not base64")?;
            writer.add_records(&records).map_err(|error| match error {
                AddError::Records(error) => anyhow!("what the router says makes no sense: {error}"),
                AddError::Write(error) => anyhow!("{}", system_message(&error)),
            })
        })?;
        writer.finish().map(drop).map_err(|error| anyhow!("{}", system_message(&error)))
    }

    /// Takes the states of a file, which is checked to its end before the first of them goes: `-L`.
    pub(super) fn load_states(&mut self, file: &str, is_quiet: bool) -> anyhow::Result<()> {
        self.only("-L")?;
        let (name, bytes) = input::read(file)?;
        let dump =
            Dump::read_checked(&bytes).map_err(|error| anyhow!("{name}: {error}; no state was loaded"))?;
        let rules = if dump.checksum == self.checksum()? { "with-rules" } else { "without-rules" };
        let mut taken = 0;
        for chunk in dump.chunks(CHUNK) {
            let question = format!("restore {rules} {}", BASE64_STANDARD.encode(chunk));
            // Each worker gets all; one that has a state already, or no room for it, is behind the others.
            let answers = self.workers(&question).with_context(|| {
                format!("{name}: {taken} of {} states were loaded, and then", dump.states)
            })?;
            taken += answers.lines().filter_map(|line| line.parse::<u64>().ok()).max().unwrap_or(0);
        }
        if !is_quiet {
            print_stderr(&told(taken, dump.states));
        }
        Ok(())
    }

    /// The checksum of the rules, by which states know whether theirs are still the same.
    fn checksum(&mut self) -> anyhow::Result<[u8; 16]> {
        let answer = self.first("checksum")?;
        let number = u128::from_str_radix(answer.trim(), 16)
            .context("what the router says of its rules' checksum makes no sense");
        number.map(u128::to_be_bytes)
    }

    /// States are those of one filter.
    fn only(&self, option: &str) -> anyhow::Result<()> {
        match &self.names[..] {
            [_] => Ok(()),
            names => bail!(
                "{option} is for the states of one filter, and there are {}; say which by --element",
                names.join(", ")
            ),
        }
    }
}

/// A link could lead to a file that another user has chosen.
fn refuse_link(path: &Path) -> anyhow::Result<()> {
    match path.symlink_metadata() {
        Ok(found) if !found.is_file() => {
            bail!("{}: it is not a regular file; name another one", path.display())
        }
        _ => Ok(()),
    }
}

fn told(taken: u64, all: u64) -> String {
    let passed_over = match all - taken.min(all) {
        0 => String::new(),
        rest => format!("; {rest} were there already, or have no room or no interface here"),
    };
    format!("{taken} of {all} states loaded{passed_over}\n")
}
