//! A table of neighbors from outside: what senders, control and a link of others make of it, in time that
//! tests set.

mod invariants;
mod limits;
mod model;
mod readers;
mod rig;
mod rules;
mod toy;
