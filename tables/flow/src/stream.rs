//! The byte formats in which flows go to files, to other programs and to other machines.

mod events;
mod fields;
mod flows;
mod words;

pub use events::{EventItem, EventReader, ExceptionEnd, ExceptionKind, write_event, write_event_header};
pub use flows::{
    AnyKey, MAGIC, StreamError, StreamFlow, StreamItem, StreamReader, is_valid_state, with_key, write_header,
    write_item,
};
pub use words::{protocol_name, protocol_of, reason_name, state_name, state_of};
