//! What moves through the graph: packets, the pool their frames come from, and batches of them.
//!
//! A [`Packet`] is a move-only handle of one word. Whoever holds it owns one descriptor and one frame;
//! dropping it gives both back to the [`Pool`]. Nothing here knows a device or an element.
#![deny(unsafe_code)]

#[forbid(unsafe_code)]
mod annotation;
#[forbid(unsafe_code)]
mod batch;
#[forbid(unsafe_code)]
mod fragments;
#[allow(unsafe_code)]
mod packet;
#[allow(unsafe_code)]
mod pool;
#[forbid(unsafe_code)]
mod segments;
#[forbid(unsafe_code)]
mod time;

pub use annotation::{ANNOTATION_SIZE, anno};
pub use batch::{BATCH, Batch};
pub use packet::{
    InvalidOffload, Mark, NoRoom, Packet, PacketOffload, PacketType, SegmentKind, Segments, TooShort,
};
pub use pool::{BIG_FRAME, FRAME, Pool, PoolError};
pub use segments::OffloadStats;
pub use time::Time;
