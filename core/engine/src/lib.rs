//! Elements, the graph they form, and the workers that run it.
//!
//! A configuration becomes an [`artery_lang::Ir`]; [`Router`] makes elements of it by their [`Class`]
//! and hands a [`graph::Graph`] to each worker. Packets move between elements in batches; see
//! [`context`] for what an element may do with one, and [`graph`] for the order in which things happen.
//! This crate names no element.
#![forbid(unsafe_code)]

mod arg;
mod arg_value;
pub mod args;
pub mod bench;
mod building;
mod call;
pub mod class;
pub mod clock;
pub mod context;
mod control;
pub mod element;
pub mod events;
pub mod graph;
pub mod handler;
mod handler_error;
mod handler_names;
mod handover;
pub mod idle_policy;
mod incoming;
mod layout;
pub mod monitor;
pub mod names;
mod plan;
pub mod reason;
mod reconfigure;
pub mod resources;
pub mod router;
mod scheduler;
pub mod sink;
mod standard;
pub mod trace;
mod wiring;
mod worker;
mod worker_threads;

pub use args::{Annotation, ArgError, ArgValue, ArgWarning, Args, Bandwidth, Limit};
pub use bench::Bench;
pub use class::{Arg, Class, Classes, Phase, SignalKinds};
pub use clock::Clock;
pub use context::Context;
pub use control::EndReason;
pub use element::{Element, Simple, StartError};
pub use events::Interest;
pub use graph::Signal;
pub use handler::{Aside, Field, Handler, HandlerError, Read, RouterHandler, Show, Write, parse_value};
pub use layout::{Home, Layout, ReadEffect};
pub use monitor::{Level, Monitor, Monitors};
pub use plan::Plan;
pub use reason::DropReason;
pub use resources::Resources;
pub use router::{BuildStage, Finished, Handle, Problem, Router, RouterSettings, Running};
pub use sink::Sink;

pub use artery_packet::{BATCH, Batch, Mark, Packet, PacketType, Pool, Time, anno};
