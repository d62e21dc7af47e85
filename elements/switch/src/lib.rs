//! The switch: Veb. Its packet filter is one that whoever lists the classes gives it.
#![forbid(unsafe_code)]

mod announce;
mod handlers;
mod host_addresses;
mod links;
mod shared;
mod speak;
mod tag;
mod veb;
mod worker;

pub use veb::class_with_rules;
