//! The balancer: FlowBalancer, what is kept of its flows, and how others follow them.
#![forbid(unsafe_code)]

mod about;
mod answers;
mod arguments;
mod balancer_worker;
mod checks;
mod chooser;
mod computed;
mod event_lines;
mod event_queue;
mod event_stream;
mod exceptions;
mod exchange;
mod explain;
#[allow(unreachable_pub)] // The file says `pub static CLASS`, as those of all elements do.
mod flow_balancer;
mod flow_records;
mod flow_stream;
mod flow_words;
mod follow;
mod fragments;
mod handlers;
mod known;
mod leading;
mod look;
mod nat_flows;
mod others;
mod placement;
mod service;
mod shared;
mod tally;
mod translate;

use artery_engine::Class;

/// Export and import of the flows of a FlowBalancer.
pub mod flows {
    pub use crate::event_stream::{EventItem, EventReader, write_event, write_event_header};
    pub use crate::exceptions::ExceptionKind;
    pub use crate::flow_stream::{
        AnyKey, MAGIC, StreamError, StreamFlow, StreamItem, StreamReader, is_valid_state, write_header,
        write_item,
    };
    pub use crate::flow_words::{protocol_name, protocol_of, state_name, state_of};
}

/// The classes of this crate.
pub const CLASSES: &[&Class] = &[&flow_balancer::CLASS];
