//! Follows the kernel's connection tracking, so that packets of connections that it has established can be
//! forwarded past the user's rules, and translated as it translates them.
//!
//! Programs report flows that they see several packets of, and the kernel is asked about their connections.
//! One that it has established is forwarded until a program sees a packet that may close it, or the kernel
//! says that its entry is gone. Entries are known by their numbers (`CTA_ID`), so that one that reuses
//! addresses and ports is never taken for the old one. Only connections that began while this listened have
//! events; others stay with the kernel, unless all entries are to be compared each second.
//! What is not here: which rules allow it (`blockers`), and how packets are found and changed
//! (`fast::flows`).
mod dump;
mod existing;
mod explain;
mod judgement;
mod keeper;
mod message;
mod sockets;
mod timeouts;
mod tracker;

pub(crate) use explain::ExplainedConnection;
pub use keeper::ConnectionKeeper;
pub(crate) use tracker::FamilyConsent;
pub use tracker::{ConnectionStatus, ConnectionTracker};
