//! What a program left behind when it ended.

use std::os::unix::process::ExitStatusExt;
use std::process::ExitStatus;

/// What a program left behind when it ended.
#[derive(Debug, Clone, Default)]
pub struct CommandOutput {
    /// The exit status; `None` while the program still runs.
    pub status: Option<ExitStatus>,
    /// What it wrote to standard output; bytes that are not text are replaced.
    pub stdout: String,
    /// What it wrote to standard error.
    pub stderr: String,
}

impl CommandOutput {
    /// Whether the program ended with status 0.
    pub fn succeeded(&self) -> bool {
        self.status.is_some_and(|status| status.success())
    }

    /// The exit status, unless a signal ended the program.
    pub fn code(&self) -> Option<i32> {
        self.status.and_then(|status| status.code())
    }

    /// The end in words.
    pub(super) fn ending(&self) -> String {
        match self.status {
            None => "nothing yet: it still runs".into(),
            Some(status) => match status.signal() {
                Some(signal) => format!("signal {signal}"),
                None => format!("exit status {}", status.code().unwrap_or_default()),
            },
        }
    }
}
