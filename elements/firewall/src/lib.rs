//! The packet filter: PacketFilter around a router, and the filter of a switch, which knows it by
//! `artery_common::frame_filter` alone. Routes come from the tables that the elements of a router share.
#![forbid(unsafe_code)]

mod answers;
mod ask;
mod ask_worker;
mod carried;
mod control_tasks;
mod egress;
mod explain;
mod exports;
mod file_size;
mod frame_filter;
mod header_check;
mod interfaces;
mod log_complaints;
mod log_file;
#[allow(unreachable_pub)] // The file says `pub static CLASS`, as those of all elements do.
mod packet_filter;
mod parse_rules;
mod ports;
mod routes;
mod runs;
mod shared;
mod unfiltered;
mod worker;

pub use file_size::FileSize;
pub use frame_filter::{SwitchRules, of_file};
pub use log_file::LogFiles;

use artery_engine::Class;

/// The classes of this crate.
pub const CLASSES: &[&Class] = &[&packet_filter::CLASS];
