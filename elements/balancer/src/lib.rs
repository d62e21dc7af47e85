//! The balancer: FlowBalancer, what is kept of its flows, and how others follow them.
#![forbid(unsafe_code)]

mod about;
mod answers;
mod arguments;
mod balancer_worker;
mod by_hand;
mod checks;
mod chooser;
mod computed;
mod event_lines;
mod event_queue;
mod exceptions;
mod exchange;
mod explain;
mod fleet;
#[allow(unreachable_pub)] // The file says `pub static CLASS`, as those of all elements do.
mod flow_balancer;
mod flow_records;
mod follow;
mod fragments;
mod handlers;
mod known;
mod leading;
mod look;
mod nat_flows;
mod others;
mod owners;
mod placement;
mod service;
mod shared;
mod tally;
mod translate;

use artery_engine::Class;

/// The classes of this crate.
pub const CLASSES: &[&Class] = &[&flow_balancer::CLASS];
