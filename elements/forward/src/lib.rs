//! The IP forwarding step and its decision cache, and the tables that the elements of a router share: what
//! the router, the balancer and the filter stand on.
#![forbid(unsafe_code)]
#![allow(missing_docs)] // Public for the crates of elements alone.

pub mod decision_cache;
pub mod events;
pub mod fast_path;
pub mod flow;
mod forward;
// Files say `pub static CLASS`, which reads better and which the modules around them restrict.
#[allow(unreachable_pub)]
mod ip6_forward;
#[allow(unreachable_pub)]
mod ip_forward;
pub mod order;
mod samples;
pub mod shared;
pub mod shortcut;

use artery_engine::Class;

/// The classes of this crate.
pub const CLASSES: &[&Class] = &[&ip_forward::CLASS, &ip6_forward::CLASS];
