//! Balancing: which of several servers takes a flow, and keeps it while servers come and go.
//!
//! [`Members`] is the half through which they are changed: by name, with weights, draining, and health. Each
//! change publishes a [`Choice`], which never changes: what a new flow's hash leads to, and what each
//! [`MemberId`] means. Workers read it by a [`Balancer`], once a turn, and keep in [`Local`] what their own
//! packets taught them.
//!
//! ```
//! use artery_rcu::Domain;
//! use artery_flow::balance::{Flow, Local, Members, Settings};
//! use std::time::Duration;
//!
//! fn main() -> Result<(), Box<dyn std::error::Error>> {
//!     let (domain, now) = (Domain::new(), Duration::ZERO);
//!     let mut members = Members::new(&domain, Settings::default())?;
//!     members.add_member("web1 10.0.0.1:80".parse()?, now)?;
//!     members.add_member("web2 10.0.0.2:80 weight 2".parse()?, now)?;
//!
//!     // In each worker:
//!     let (balancer, mut local, mut reader) = (members.balancer(), Local::new(0), domain.reader());
//!     let turn = reader.turn();
//!     let choice = balancer.choice_at(&turn);
//!     let flow = Flow { hash: 0x9e37_79b9_7f4a_7c15, xor: 0 };
//!     let id = choice.pick_member(&mut local, flow, now).ok_or("no member takes it")?;
//!     let (action, generation) = (id.action(), choice.generation()); // what the flow table keeps
//!
//!     // A later packet of the flow. A drained member keeps its known flows and gets no new ones.
//!     let name = choice.member(action).ok_or("gone")?.name.to_string();
//!     members.set_weight(&name, 0, now)?;
//!     let turn = reader.turn();
//!     let choice = balancer.choice_at(&turn);
//!     assert_ne!(choice.generation(), generation);
//!     assert_eq!(choice.member(action).ok_or("gone")?.name.as_ref(), name);
//!     assert_ne!(choice.pick_member(&mut local, flow, now), Some(id));
//!
//!     // Removed: its flows must be assigned again.
//!     members.remove(&name, now)?;
//!     assert!(balancer.choice_at(&reader.turn()).member(action).is_none());
//!     Ok(())
//! }
//! ```
//!
//! # Which method
//!
//! | [`Method`] | two machines agree | flows moved when 1 of N goes | when it comes back | take it for |
//! |---|---|---|---|---|
//! | `maglev` | yes | 1/N and less than 1 % | the same | nearly everything |
//! | `resilient` | no: its table has a past | 1/N | none in use | flows without a flow table entry |
//! | `hash` | yes | 1/4 to 1/2 | the same | comparison |
//! | `xor` | yes | (N-1)/N | the same | comparison: FreeBSD in 2008 |
//! | `per-packet` | no | packets, not flows | | links, not servers |
//! | `flowlet` | no | 1/N, and each at its next silence | none before a silence | links of unequal load |
//! | `least-loaded` | no | 1/N, if flows are remembered | none | flows of very unequal length |
//!
//! That is without the flow table. With it, flows move whose member goes, and no others, whatever the method.
//! Two machines that agree give any flow to the same member if their members have the same names and weights,
//! and if they hash flows alike: so the seed of *this* hash is the same on both, and another one than the
//! flow table's.
//!
//! # What is not here
//!
//! Packets, sockets, clocks. A [`Health`] says when a probe is due and what its result means; the caller
//! sends it.
mod choice;
mod error;
mod health;
mod local;
mod maglev;
mod member;
mod members;
mod method;
mod other_tables;
mod places;
mod seats;
mod text;
mod turns;

pub use choice::{Balancer, Choice, Flow};
pub use error::BalanceError;
pub use health::{Check, Health, Probe, State, Step};
pub use local::Local;
pub use maglev::Slots;
pub use member::{MOST_MEMBERS, Member, MemberId};
pub use members::{MemberView, Members, Replaced};
pub use method::{Down, Method, Settings};
pub use other_tables::{OtherTable, PlannedChange};
pub use text::{Form, Problem, TextError, parse_duration};
