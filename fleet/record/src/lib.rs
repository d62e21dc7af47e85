//! Exceptions among the flows of a fleet as bytes, for the trial of engines. Routers have a format of their
//! own (`artery flow follow --exceptions --binary`).
//!
//! Machines behind one anycast address choose the member for a flow by the same table, so most flows need no
//! word between them. A flow that is not where the present table would put it is an *exception*: its
//! [`ExceptionRecord`] goes to the other machines, so that any of them can continue the flow. Records travel
//! in batches ([`BatchWriter`], [`Batch`]); both have a fixed size, so that a batch's length says how many
//! records it has.
//!
//! Not here: how batches travel, and who may send them.

mod batch;
mod error;
mod key;
mod record;

pub use batch::{BATCH_HEADER_LEN, Batch, BatchHeader, BatchWriter, MAX_RECORDS, VERSION};
pub use error::DecodeError;
pub use key::{Addresses, FlowKey};
pub use record::{Change, ExceptionRecord, RECORD_LEN};
