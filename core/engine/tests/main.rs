//! Graphs that run: on several workers, in order, awake, traced.

mod awake;
mod order;
mod support;
mod trace;
mod workers;
