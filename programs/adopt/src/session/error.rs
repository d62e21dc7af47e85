//! Why a session can't begin, or go on.
use crate::fast;
use std::fmt;
use std::io;

/// Why a session can't begin, or go on.
#[derive(Debug)]
pub enum Error {
    /// What was done with the kernel, and what it answered.
    Kernel(&'static str, io::Error),
    /// The programs, or their tables; with the interface, if it is about one.
    Fast(Option<String>, fast::Error),
    /// What the tables of a graph did not take.
    Graph(String),
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Error::Kernel(doing, error) if error.kind() == io::ErrorKind::PermissionDenied => {
                write!(f, "{doing}: {error}; CAP_NET_ADMIN is needed: run as root")
            }
            Error::Kernel(doing, error) => write!(f, "{doing}: {error}"),
            Error::Fast(Some(port), error) => write!(f, "{port}: {error}"),
            Error::Fast(None, error) => error.fmt(f),
            Error::Graph(error) => write!(f, "the graph's routes are not the kernel's any more: {error}"),
        }
    }
}

impl std::error::Error for Error {}

impl Error {
    /// Whether memory or descriptors were lacking, which may come back.
    pub(super) fn is_shortage(&self) -> bool {
        match self {
            Error::Kernel(_, error) => fast::is_shortage(error),
            Error::Fast(_, error) => error.is_shortage(),
            Error::Graph(_) => false,
        }
    }
}

impl From<fast::Error> for Error {
    fn from(error: fast::Error) -> Error {
        Error::Fast(None, error)
    }
}
