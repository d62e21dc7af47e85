//! The table of flows and the choice of members from outside.

mod balance;
mod flow;
