//! Errors of a rig. The message alone explains a failed test.

use std::fmt;
use std::io;
use std::time::Duration;

use super::output::CommandOutput;

/// The result of everything a rig does.
pub type Result<T, E = RigError> = std::result::Result<T, E>;

/// A reason why a rig, or one step of it, did not come about.
#[derive(Debug)]
#[allow(missing_docs)] // the texts say what is in their fields
pub enum RigError {
    /// This machine cannot run the test; no fault of what is tested.
    Skip(Skip),
    /// A name that cannot be a host's or an interface's.
    BadName { name: String, rule: &'static str },
    /// A second host of the same name.
    NameTaken { name: String },
    /// No host of this name in the rig.
    UnknownHost { name: String, known: Vec<String> },
    /// No interface of this name on the host.
    UnknownInterface { host: String, interface: String, known: Vec<String> },
    /// Text that is not the address or prefix it should be.
    BadAddress { text: String, wanted: &'static str },
    /// A size or count outside what is possible.
    BadNumber { rule: String },
    /// A program ended with another status than 0.
    Failed(Box<Failure>),
    /// A program was still running at its time limit, and was killed.
    TimedOut(Box<Failure>, Duration),
    /// A program did not show what was waited for, in time or before its end.
    NotSeen(Box<Failure>, String),
    /// A program's output was not of the form expected.
    Unreadable(Box<Failure>, &'static str),
    /// The system refused something.
    System(String, io::Error),
}

/// A reason to skip a test on this machine.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Skip {
    /// Network namespaces need root.
    NeedsRoot,
    /// A program is not installed.
    MissingTool(String),
    /// The kernel was built without something.
    KernelLacks(String),
}

/// A program that did not do what it should: who ran what, and what it said.
#[derive(Debug)]
pub struct Failure {
    /// The rig's label and the host.
    pub place: String,
    /// The command as typed.
    pub command: String,
    /// Status and output, as far as they had come.
    pub output: CommandOutput,
}

impl From<Skip> for RigError {
    fn from(reason: Skip) -> RigError {
        RigError::Skip(reason)
    }
}

impl RigError {
    /// Wraps an error of the system with what was being done.
    pub fn system(doing: impl Into<String>) -> impl FnOnce(io::Error) -> RigError {
        |error| RigError::System(doing.into(), error)
    }
}

impl fmt::Display for RigError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            RigError::Skip(reason) => write!(f, "cannot run here: {reason}"),
            RigError::BadName { name, rule } => write!(f, "bad name {name:?}: {rule}"),
            RigError::NameTaken { name } => write!(f, "this rig already has a host {name:?}"),
            RigError::UnknownHost { name, known } => {
                write!(f, "no host {name:?} in this rig; there are: {}", list(known))
            }
            RigError::UnknownInterface { host, interface, known } => {
                write!(f, "{host}: no interface {interface:?}; there are: {}", list(known))
            }
            RigError::BadAddress { text, wanted } => write!(f, "bad address {text:?}: wanted {wanted}"),
            RigError::BadNumber { rule } => write!(f, "{rule}"),
            RigError::Failed(failure) => {
                failure.describe(f, &format!("ended with {}", failure.output.ending()))
            }
            RigError::TimedOut(failure, limit) => failure.describe(f, &format!("still ran after {limit:?}")),
            RigError::NotSeen(failure, wanted) => failure.describe(f, &format!("did not show {wanted}")),
            RigError::Unreadable(failure, what) => {
                failure.describe(f, &format!("printed something else than {what}"))
            }
            RigError::System(doing, error) => write!(f, "{doing}: {error}"),
        }
    }
}

impl std::error::Error for RigError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            RigError::System(_, error) => Some(error),
            _ => None,
        }
    }
}

impl Failure {
    pub(super) fn new(place: String, command: String, output: CommandOutput) -> Box<Failure> {
        Box::new(Failure { place, command, output })
    }

    fn describe(&self, f: &mut fmt::Formatter<'_>, what: &str) -> fmt::Result {
        write!(f, "{}: `{}` {what}", self.place, self.command)?;
        for (stream, text) in [("stdout", &self.output.stdout), ("stderr", &self.output.stderr)] {
            if !text.trim().is_empty() {
                write!(f, "\n--- {stream}\n{}", text.trim_end())?;
            }
        }
        Ok(())
    }
}

impl fmt::Display for Skip {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Skip::NeedsRoot => write!(f, "needs root (and the right to make network namespaces)"),
            Skip::MissingTool(tool) => write!(f, "needs the program {tool:?}, which is not installed"),
            Skip::KernelLacks(what) => write!(f, "needs a kernel with {what}"),
        }
    }
}

fn list(names: &[String]) -> String {
    if names.is_empty() { "none".into() } else { names.join(", ") }
}
