//! Programs of the host that are run to their end.

use crate::{RigError, Skip};
use anyhow::{Context as _, bail};
use std::ffi::OsStr;
use std::path::PathBuf;
use std::process::Command;

/// Where tools of the administrator are, and where users other than root often don't look.
const MORE_FOLDERS: [&str; 3] = ["/usr/local/sbin", "/usr/sbin", "/sbin"];

/// Where a tool is; that it is missing is a reason to skip.
pub(super) fn find(name: &str) -> Result<PathBuf, RigError> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let folders = std::env::split_paths(&path).chain(MORE_FOLDERS.map(PathBuf::from));
    let found = folders.map(|folder| folder.join(name)).find(|path| path.is_file());
    found.ok_or_else(|| RigError::Skip(Skip::MissingTool(name.into())))
}

/// What a tool prints; a status other than 0 is an error that shows what it said.
pub(super) fn output<W: AsRef<OsStr>>(
    name: &str,
    words: impl IntoIterator<Item = W>,
) -> anyhow::Result<String> {
    output_of(Command::new(find(name)?).args(words))
}

/// The same for a command with more to it than words.
pub(super) fn output_of(command: &mut Command) -> anyhow::Result<String> {
    let name = command.get_program().to_string_lossy().into_owned();
    let done = command.env("LC_ALL", "C").output().with_context(|| format!("cannot run {name}"))?;
    if !done.status.success() {
        let said = String::from_utf8_lossy(&done.stderr);
        bail!("{name} ended with {}: {}", done.status, last_lines(&said, 3));
    }
    Ok(String::from_utf8_lossy(&done.stdout).into_owned())
}

/// The end of a text.
pub(super) fn last_lines(text: &str, count: usize) -> String {
    let lines: Vec<&str> = text.trim_end().lines().collect();
    lines[lines.len().saturating_sub(count)..].join("\n")
}
