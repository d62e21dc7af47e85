//! Whole routers, switches, filters and balancers as text: what is set up, what goes in, what comes out.
//!
//! A file `cases/*.test` sets up Artery and, if it can do the same, the kernel in a namespace of its own, and
//! has cases: packets that both get at their ports, and the packets that must come out. `docs/testing.md`
//! describes how they are written.
//!
//! Hosts have no network stack here: their ends of the links are packet sockets, so nothing is sent but what
//! a case says, and nothing that comes is answered.

mod bed;
mod compare;
mod packet;
mod run;
mod side;
mod text;
mod update;

pub use run::{Outcome, run_file};
pub use text::{CaseFile, Mistake};
