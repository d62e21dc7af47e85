//! Privilege separation: work that needs rights which the packet-parsing process has given up.
//!
//! A router starts this program once more, as its helper, before it gives its rights up ([`start`]). Both
//! talk over a pair of SOCK_SEQPACKET sockets: one request, one answer, at most one descriptor with each
//! (`message`). The helper parses no packet. It opens sockets that need rights, makes TAP devices, changes
//! addresses and routes of these, attaches the programs of this crate, and opens files that the configuration
//! named. It refuses the rest (`policy`).
//!
//! The functions of this crate that need rights ask the helper where there is one, and do the work themselves
//! where there is none: in the helper, in `artery adopt`, in tests. So a process has one helper or none,
//! which is the process's state and not a router's.
//!
//! An attached program has a connection of its own, and is detached when that is closed (`attachments`).
//! The helper ends, and with it what it attached, when the router does.
mod attachments;
mod capabilities;
mod channel;
mod client;
mod message;
mod open;
mod policy;
mod server;
#[cfg(test)]
mod tests;

pub(crate) use attachments::{RemoteHidden, RemoteRedirect};
pub use capabilities::{drop_capabilities, limit_capabilities};
pub use client::{Helper, HelperLife, listen, start};
pub(crate) use message::{Buffer, FileMode, Request, StaticText, optional_words, words};
pub use policy::HelperLimits;
pub use server::serve;

use std::path::{Path, PathBuf};
use std::sync::{Mutex, OnceLock, PoisonError};

/// The helper of this process, once it has one.
static HELPER: OnceLock<Helper> = OnceLock::new();
/// The files that were opened while there was no helper, and whether to write.
static OPENED: Mutex<Vec<(PathBuf, bool)>> = Mutex::new(Vec::new());
/// The process that is reported as the owner of ports, where that is not this one.
static OWNER: OnceLock<u32> = OnceLock::new();

/// The helper of this process, if it has one.
pub fn helper() -> Option<&'static Helper> {
    HELPER.get()
}

/// Notes a file that a process without a helper opens: a helper that starts later will open it again.
pub(crate) fn note_opened(path: &Path, is_written: bool) {
    let mut opened = OPENED.lock().unwrap_or_else(PoisonError::into_inner);
    let noted = (path.to_owned(), is_written);
    if !opened.contains(&noted) && opened.len() < policy::MOST_FILES {
        opened.push(noted);
    }
}

/// The process that locks and filters name as their owner: a helper's is its router.
pub(crate) fn owner_id() -> u32 {
    OWNER.get().copied().unwrap_or_else(std::process::id)
}
