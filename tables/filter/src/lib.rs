//! A packet filter after OpenBSD's pf (pf.conf(5), pfctl(8), pf(4)).
//!
//! Text becomes a [`Ruleset`](rule::Ruleset) of rules that say one thing each; those are compiled for
//! evaluation, and what they let pass keeps a state. Nothing here knows a packet of the engine or an
//! interface of the machine: a packet is [`Facts`](facts::Facts), an interface a name.
#![forbid(unsafe_code)]

pub mod anchors;
pub mod dissect;
pub mod engine;
pub mod evaluate;
pub mod facts;
pub mod fragments;
pub mod log;
pub mod names;
pub mod options;
pub mod rule;
pub mod scrub;
pub mod sources;
pub mod states;
mod steps;
pub mod syntax;
pub mod tables;
pub mod timeouts;
pub mod track;
pub mod translate;
