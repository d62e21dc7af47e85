//! Why calls of handlers fail.
use std::fmt;
use std::time::Duration;

/// How long a call to another worker may take. A worker answers within microseconds; on a machine with more
/// to do than it has processors it may get none for more than a second.
pub(crate) const CALL_TIMEOUT: Duration = Duration::from_secs(5);

/// Why a handler call failed. The text is what a user reads.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum HandlerError {
    /// No element of that name.
    NoElement(String),
    /// The element has no such handler.
    NoHandler(String),
    /// The handler can't be read.
    NotReadable(String),
    /// The handler can't be written.
    NotWritable(String),
    /// The read handler was called with parameters, and takes none.
    NoParameters(String),
    /// The element is at work: it called itself, or another that is waiting for it.
    Busy(String),
    /// The worker that owns the element did not answer in time.
    Timeout(String),
    /// The handler refused, for this reason.
    Refused(String),
}

impl fmt::Display for HandlerError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            HandlerError::NoElement(name) => write!(f, "no element '{name}'"),
            HandlerError::NoHandler(name) => write!(f, "no '{name}' handler"),
            HandlerError::NotReadable(name) => write!(f, "'{name}' is not a read handler"),
            HandlerError::NotWritable(name) => write!(f, "'{name}' is not a write handler"),
            HandlerError::NoParameters(name) => {
                write!(f, "read handler '{name}' does not take parameters")
            }
            HandlerError::Busy(name) => write!(f, "'{name}' called itself"),
            HandlerError::Timeout(name) => {
                write!(f, "'{name}': its worker did not answer within {} s", CALL_TIMEOUT.as_secs())
            }
            HandlerError::Refused(why) => f.write_str(why),
        }
    }
}
impl std::error::Error for HandlerError {}

impl HandlerError {
    /// A refusal with this reason.
    pub fn refused(why: impl Into<String>) -> HandlerError {
        HandlerError::Refused(why.into())
    }
}
