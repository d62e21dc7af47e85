//! A program to be run on a host: what it is given, and how long it may take.

use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::Duration;

use super::cleanup::MARK;
use super::error::{Result, RigError, Skip};
use super::host::Host;
use super::output::CommandOutput;
use super::process::Process;

/// Time limit of a program that runs to its end, unless the command sets another.
const LIMIT: Duration = Duration::from_secs(30);

/// A program and its arguments, to be run on one host.
#[must_use = "a command does nothing until run or spawned"]
pub struct Command {
    pub(super) host: Host,
    words: Vec<OsString>,
    variables: Vec<(OsString, OsString)>,
    input: Vec<u8>,
    limit: Duration,
    inside: bool,
}

impl Command {
    pub(super) fn new<W: AsRef<OsStr>>(
        host: &Host,
        words: impl IntoIterator<Item = W>,
        inside: bool,
    ) -> Command {
        let words = words.into_iter().map(|word| word.as_ref().to_owned()).collect();
        Command { host: host.clone(), words, variables: vec![], input: vec![], limit: LIMIT, inside }
    }

    /// Adds one argument to the command line.
    pub fn arg(mut self, word: impl AsRef<OsStr>) -> Command {
        self.words.push(word.as_ref().to_owned());
        self
    }

    /// Adds several arguments to the command line.
    pub fn args<W: AsRef<OsStr>>(mut self, words: impl IntoIterator<Item = W>) -> Command {
        self.words.extend(words.into_iter().map(|word| word.as_ref().to_owned()));
        self
    }

    /// Sets an environment variable.
    pub fn env(mut self, name: impl AsRef<OsStr>, value: impl AsRef<OsStr>) -> Command {
        self.variables.push((name.as_ref().to_owned(), value.as_ref().to_owned()));
        self
    }

    /// Gives the program its standard input, which is empty otherwise.
    pub fn input(mut self, bytes: impl Into<Vec<u8>>) -> Command {
        self.input = bytes.into();
        self
    }

    /// Sets how long the program may take to its end, instead of 30 seconds.
    pub fn limit(mut self, limit: Duration) -> Command {
        self.limit = limit;
        self
    }

    /// Runs the program to its end, which must be a success.
    pub fn run(self) -> Result<CommandOutput> {
        let (output, process) = self.finish()?;
        if output.succeeded() { Ok(output) } else { Err(RigError::Failed(process.failure())) }
    }

    /// Runs the program to its end, whatever its exit status.
    pub fn output(self) -> Result<CommandOutput> {
        Ok(self.finish()?.0)
    }

    /// Starts the program and leaves it running; it is killed when the [`Process`] is dropped.
    pub fn spawn(self) -> Result<Process> {
        let mut command = self.prepare()?;
        let doing = format!("{}: cannot start `{self}`", self.host.label());
        let child = command.spawn().map_err(RigError::system(doing))?;
        Process::adopt(child, self.to_string(), self.host, self.input)
    }

    pub(super) fn finish(self) -> Result<(CommandOutput, Process)> {
        let limit = self.limit;
        let mut process = self.spawn()?;
        let output = process.wait(limit)?;
        Ok((output, process))
    }

    fn prepare(&self) -> Result<std::process::Command> {
        let program = self.words.first().map(OsString::as_os_str).unwrap_or_default();
        let path = find_tool(program)?;
        let mut command = std::process::Command::new(if self.inside { Path::new("ip") } else { &path });
        if self.inside {
            command.args(["netns", "exec", self.host.namespace()]).arg(&path);
        }
        command.args(&self.words[1..]);
        // Parsed output must not depend on the language of the user who runs the test.
        command.env("LC_ALL", "C").envs(self.variables.iter().map(|(name, value)| (name, value)));
        command.env(MARK, self.host.namespace());
        command.stdin(if self.input.is_empty() { Stdio::null() } else { Stdio::piped() });
        command.stdout(Stdio::piped()).stderr(Stdio::piped());
        // A group of its own, so that its children can be killed with it.
        command.process_group(0);
        Ok(command)
    }
}

impl std::fmt::Display for Command {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let quoted = |word: &OsString| match word.to_string_lossy() {
            text if text.is_empty() || text.contains(|c: char| c.is_whitespace() || "'\"$\\".contains(c)) => {
                format!("'{}'", text.replace('\'', r"'\''"))
            }
            text => text.into_owned(),
        };
        f.write_str(&self.words.iter().map(quoted).collect::<Vec<_>>().join(" "))
    }
}

/// Finds a program: a path as it is, a name along PATH.
pub(super) fn find_tool(name: &OsStr) -> Result<PathBuf> {
    let missing = || Skip::MissingTool(name.to_string_lossy().into_owned()).into();
    if name.as_bytes().contains(&b'/') {
        let path = PathBuf::from(name);
        let found = std::path::absolute(&path).and_then(|path| path.metadata().map(|_| path));
        return found.map_err(RigError::system(format!("cannot run {}", path.display())));
    }
    let path = std::env::var_os("PATH").unwrap_or_else(|| "/usr/sbin:/usr/bin:/sbin:/bin".into());
    let mut candidates = std::env::split_paths(&path).map(|folder| folder.join(name));
    candidates.find(|candidate| !name.is_empty() && is_program(candidate)).ok_or_else(missing)
}

fn is_program(path: &Path) -> bool {
    path.metadata().is_ok_and(|found| found.is_file() && found.permissions().mode() & 0o111 != 0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_missing_tool_is_a_reason_to_skip_and_a_missing_path_is_an_error() {
        assert!(find_tool("sh".as_ref()).is_ok_and(|path| path.is_absolute()));
        let missing = find_tool("no-such-tool-anywhere".as_ref());
        assert!(
            matches!(missing, Err(RigError::Skip(Skip::MissingTool(tool))) if tool == "no-such-tool-anywhere")
        );
        assert!(matches!(find_tool("/no/such/program".as_ref()), Err(RigError::System(..))));
        assert!(matches!(find_tool("".as_ref()), Err(RigError::Skip(_))));
    }
}
