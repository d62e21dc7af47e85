//! Files that are named on the command line.
use anyhow::{Context as _, anyhow};
use artery_device::{files, system_message};
use std::io::stdin;

/// The name in messages, and the bytes, of a file, or of standard input as `-`.
pub(super) fn read(file: &str) -> anyhow::Result<(String, Vec<u8>)> {
    if file == "-" {
        let bytes = files::read_whole(stdin().lock()).context("can't read standard input")?;
        return Ok(("stdin".to_string(), bytes));
    }
    let bytes = files::read(file).map_err(|error| anyhow!("{file}: {}", system_message(&error)))?;
    Ok((file.to_string(), bytes))
}
