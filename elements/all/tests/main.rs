//! Elements in whole routers and on the bench: one program to link. What counts allocations or limits memory
//! has a process of its own (allocations.rs, memory.rs).

mod classes;
mod configurations;
mod explain;
mod forward;
mod fuzz_rules;
mod neighbors;
mod queueing;
mod random;
mod router;
mod scripts;
mod spanning;
mod switch_filter;
mod unfinished;
mod whole;
