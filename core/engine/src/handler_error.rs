//! Why calls of handlers fail.
use std::time::Duration;

/// How long a call to another worker may take. A worker answers within microseconds; on a machine with more
/// to do than it has processors it may get none for more than a second.
pub(crate) const CALL_TIMEOUT: Duration = Duration::from_secs(5);

/// Why a handler call failed. The text is what a user reads.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum HandlerError {
    /// No element of that name.
    #[error("no element '{0}'")]
    NoElement(String),
    /// The element has no such handler.
    #[error("no '{0}' handler")]
    NoHandler(String),
    /// The handler can't be read.
    #[error("'{0}' is not a read handler")]
    NotReadable(String),
    /// The handler can't be written.
    #[error("'{0}' is not a write handler")]
    NotWritable(String),
    /// The read handler was called with parameters, and takes none.
    #[error("read handler '{0}' does not take parameters")]
    NoParameters(String),
    /// The element is at work: it called itself, or another that is waiting for it.
    #[error("'{0}' called itself")]
    Busy(String),
    /// The worker that owns the element did not answer in time.
    #[error("'{0}': its worker did not answer within {seconds} s", seconds = CALL_TIMEOUT.as_secs())]
    Timeout(String),
    /// The handler refused, for this reason.
    #[error("{0}")]
    Refused(String),
}

impl HandlerError {
    /// A refusal with this reason.
    pub fn refused(why: impl Into<String>) -> HandlerError {
        HandlerError::Refused(why.into())
    }
}
