//! IPRouter on the bench, under a simulated clock: the requirements of the RFCs, rule by rule.
mod errors;
mod floods;
mod forwarding;
mod fuzz;
mod local;
mod neighbors;
mod order;
mod redirected;
mod replacement;
mod rig;
mod shortcut;
mod unfinished;
mod workers;
