//! Published values and grace periods: state with few writers and many readers that pay one load.
//!
//! The readers are workers. Once a turn of its loop a worker says that it holds no reference into published
//! state; what a writer has taken away is freed when every worker has said so since. A [`Domain`] is one such
//! group of workers and writers, a [`Reader`] one worker's standing in it, a [`Turn`] the span in which
//! references are good, a [`Published`] one replaceable value.
//!
//! ```
//! use artery_rcu::{Domain, Published};
//! let domain = Domain::new();
//! let table = Published::new(&domain, vec![1]);
//! let mut reader = domain.reader();
//! assert_eq!(table.read(&reader.turn()), &[1]);
//! table.publish(vec![1, 2]);
//! assert_eq!(table.read(&reader.turn()), &[1, 2]);
//! ```
//!
//! That no reference survives its turn is proved by the borrow checker: the next turn needs the reader back.
//!
//! ```compile_fail,E0499
//! use artery_rcu::{Domain, Published};
//! let domain = Domain::new();
//! let table = Published::new(&domain, vec![1]);
//! let mut reader = domain.reader();
//! let turn = reader.turn();
//! let kept = table.read(&turn);
//! let next = reader.turn(); // the last turn's references must be gone
//! println!("{kept:?}");
//! ```
//!
//! Nor may a worker go to sleep with one in its hand:
//!
//! ```compile_fail,E0499
//! use artery_rcu::{Domain, Published};
//! let domain = Domain::new();
//! let table = Published::new(&domain, vec![1]);
//! let mut reader = domain.reader();
//! let turn = reader.turn();
//! let kept = table.read(&turn);
//! reader.park();
//! println!("{kept:?}");
//! ```
//!
//! Nor may it outlive the published value:
//!
//! ```compile_fail,E0505
//! use artery_rcu::{Domain, Published};
//! let domain = Domain::new();
//! let table = Published::new(&domain, vec![1]);
//! let mut reader = domain.reader();
//! let turn = reader.turn();
//! let kept = table.read(&turn);
//! drop(table);
//! println!("{kept:?}");
//! ```
//!
//! And a turn stays on the thread that took it:
//!
//! ```compile_fail,E0277
//! use artery_rcu::Domain;
//! let domain = Domain::new();
//! let mut reader = domain.reader();
//! let turn = reader.turn();
//! std::thread::scope(|scope| {
//!     scope.spawn(|| drop(turn));
//! });
//! ```
#![deny(unsafe_code)]

#[forbid(unsafe_code)]
mod domain;
#[allow(unsafe_code)]
mod published;
#[forbid(unsafe_code)]
mod sync;

pub use domain::{Domain, Reader, Ticket, Turn};
pub use published::Published;
