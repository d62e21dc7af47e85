//! The filter through its public interface: rules as text, packets as bytes, time as an argument.

mod connections;
mod control;
mod explain;
mod exported;
mod limits;
mod lists;
mod odd;
mod proxy;
mod quick;
mod runs;
mod timeouts;
mod translation;
