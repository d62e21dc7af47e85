//! IPRouter on the bench, under a simulated clock: the requirements of the RFCs, rule by rule.
mod errors;
mod floods;
mod forwarding;
mod fuzz;
mod led;
mod local;
mod neighbors;
mod order;
mod replacement;
mod rig;
mod shortcut;
mod unfinished;
mod workers;
