//! A fast path beside the kernel of the machine, which stays in charge: its addresses, routes and neighbors
//! are mirrored, what it must keep for itself is found out, and the rest is forwarded.
//!
//! What is not here: elements and packets of the engine. How a packet is forwarded says one function, which
//! the programs in the kernel's hooks are compared with.
#![forbid(unsafe_code)]

pub mod blockers;
mod bridges;
mod connections;
mod delivery;
mod drivers;
pub mod fast;
pub mod graph;
mod heartbeat;
mod keeper;
pub mod kernel;
pub mod mirror;
mod pace;
pub mod policy;
mod pppoe;
mod session;

pub use connections::{ConnectionKeeper, ConnectionStatus, ConnectionTracker};
pub use drivers::MOST_MTU_OF_A_BUFFER;
pub use pace::{Lag, TurnTimes};
pub use session::{
    DeadPath, Error, Established, EstablishedOptions, ExplainedStep, Explanation, Session, SessionNews,
    Shortage,
};
