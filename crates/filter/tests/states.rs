//! The filter through its public door: rules as text, packets as bytes, time as an argument.
mod world;

#[path = "states/connections.rs"]
mod connections;
#[path = "states/control.rs"]
mod control;
#[path = "states/limits.rs"]
mod limits;
#[path = "states/lists.rs"]
mod lists;
#[path = "states/odd.rs"]
mod odd;
#[path = "states/proxy.rs"]
mod proxy;
#[path = "states/quick.rs"]
mod quick;
#[path = "states/runs.rs"]
mod runs;
#[path = "states/timeouts.rs"]
mod timeouts;
#[path = "states/translation.rs"]
mod translation;
