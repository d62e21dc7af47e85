//! Routing tables: the longest prefix that contains an address, found by any number of threads while one
//! changes the routes.
//!
//! A [`RouteTable`] holds prefixes of IPv4 (`u32`) or IPv6 (`u128`), each with a [`Group`]: a number that
//! says where its packets go and that means nothing here. One thread owns the table and changes it. Beside
//! the routes it keeps a compiled FIB in step, which is what forwards. Clones of its [`RouteReader`] look
//! addresses up on other threads, in turns of an [`artery_rcu::Domain`], the group of readers that memory is
//! kept for until they have let go of it.
//!
//! ```
//! use artery_rcu::Domain;
//! use artery_lpm::{HugePages, NO_GROUP, Policy, RouteTable};
//! use std::sync::Arc;
//!
//! fn main() -> Result<(), Box<dyn std::error::Error>> {
//!     let domain = Domain::new();
//!     let mut table = RouteTable::<u32>::new(&domain, Policy::default(), Arc::new(HugePages))?;
//!     table.load_routes([("10.0.0.0/8".parse()?, 1), ("10.1.0.0/16".parse()?, 2)])?;
//!
//!     // One reader for each thread; it says which turn the thread is in.
//!     let (routes, mut reader) = (table.reader(), domain.reader());
//!     let worker = std::thread::spawn(move || {
//!         let addresses = [[10, 9, 9, 9], [10, 1, 2, 3], [11, 0, 0, 1]].map(u32::from_be_bytes);
//!         let mut groups = [NO_GROUP; 3];
//!         while groups[1] != 3 {
//!             let turn = reader.turn(); // ends the last one, so that replaced memory can be freed
//!             routes.lookup_batch(&turn, &addresses, &mut groups);
//!             assert!(groups == [1, 2, NO_GROUP] || groups == [1, 3, NO_GROUP]);
//!         }
//!     });
//!
//!     // Meanwhile: seen by every lookup that begins after the call.
//!     table.insert("10.1.2.0/24".parse()?, 3)?;
//!     table.set_policy("art:16/8/8".parse()?)?;
//!     worker.join().unwrap();
//!
//!     assert_eq!(table.remove("10.1.2.0/24".parse()?), Some(3));
//!     let (prefix, group) = table.lookup(0x0a01_0203).ok_or("no route")?;
//!     assert_eq!((prefix.to_string().as_str(), group), ("10.1.0.0/16", 2));
//!     Ok(())
//! }
//! ```
//!
//! A thread that waits for something else calls [`Reader::park`](artery_rcu::Reader::park) first; one that
//! neither takes turns nor parks delays no writer, but what was replaced then stays allocated.
//!
//! # Which engine
//!
//! A [`Policy`] chooses what forwards; `auto` is right unless you know better. It takes `fast` from 65,536
//! routes on, and `small` for fewer. With a budget (`auto:32M`) it takes the first of `fast`, `small` and
//! `art:8/4/4/4/4/4/4` (for IPv6 4/4/…) that stays within it: the budget is for the compiled FIB, and what
//! ART takes, which holds the routes in any case, comes on top. A FIB's memory is counted when it is
//! compiled, and estimated by the number of routes while they come and go.
//!
//! | policy | what forwards | bytes a prefix + those of ART | lookups: uni, pfx, zipf | take it for |
//! |---|---|--:|--:|---|
//! | `fast` | a byte a /24 ([`Fib4Fast`]); 17 MB at least | 19.5 + 23 | 13, 18, 17 | most lookups a second |
//! | `small` | a word a /19 ([`Fib4Small`]); 4 MB at least | 7.2 + 23 | 10, 9, 8 | small or many tables |
//! | `art` | ART, strides 16/8/8 ([`Art`]) | 69 | 1, 1, 1 | most updates a second: 3 times those of `fast` |
//! | `art:8/4/4/4/4/4/4` | ART with strides of your choice | 23 | 0.6, 0.6, 0.6 | least memory in all |
//! | IPv6: `fast`, `small` | arrays and lists ([`Fib6`]) | 16 + 74 | 1.6, 15, 11 | nearly everything |
//! | IPv6: `art` | ART, strides 16/8/…/8 | 446 | 1, 1, 1 | most updates a second |
//!
//! Lookups are those of batches, as multiples of `art`'s of the same family: for random addresses (uni), for
//! a random address in a random prefix (pfx), and for 100,000 destinations of Zipf's law. They are ratios of
//! one run of `artery-bench fib --quick` with synthetic tables of 901,899 and 160,147 prefixes on an AMD EPYC
//! (Zen 5) with AVX-512; yours will differ, and the same command tells.
//!
//! Strides are numbers of bits from 1 to 24 ([`Strides::MOST`]) that sum up to those of an address.
//!
//! `lookup_batch` is several times as fast as `lookup` when lookups miss the caches; its vector code
//! (AVX-512, AVX2, or none) is chosen at run time. [`Art`], [`Fib4Fast`], [`Fib4Small`] and [`Fib6`] can also
//! be had alone; a FIB is built from whatever implements [`Runs`]. A group is 1 to [`Art::MAX_GROUP`].
//!
//! # What is guaranteed
//!
//! * *Every answer was right at some instant between the lookup's beginning and its end*, for its address. A
//!   change reaches one address after another: of two addresses in a prefix, one may be seen changed before
//!   the other. [`load_routes`](RouteTable::load_routes) and [`set_policy`](RouteTable::set_policy) change
//!   everything by one store.
//! * *When `insert` or `remove` returns, every lookup that begins sees it.* The answer is the same whichever
//!   engine forwards, also while one takes another's place. Where a change finds no memory for a bigger FIB,
//!   ART forwards, slower and right, until the next `load_routes` or `set_policy`.
//! * *Readers take no lock and never wait.* A lookup begins again only if the writer has changed something
//!   meanwhile, so a writer that is held up holds up no reader. Nor do readers hold up the writer: it waits
//!   for no grace period.
//! * *Loads are bounded*, whatever the routes: for IPv4 in `fast` and `small`, a lookup waits for the memory
//!   of the table at most twice in a row; for IPv6, [`Fib6::MAX_LOADS`] times; in ART, once for each level.
//! * *Readers allocate nothing.*
//!
//! A route that is not legal is an error and changes nothing; [`TableError`] and [`load::TextError`] say why.
//!
//! # Memory
//!
//! All arrays are words in regions of a [`Storage`]: [`Pages`], [`HugePages`] (for big tables),
//! [`GrowingPages`] (where most tables stay small), or your own, such as a file that another process or
//! a BPF program maps ([`Region::map_file`]); [`layout`] says what each word means. A region is address
//! space of full size, and takes memory page by page as it is first written: a table reserves gigabytes
//! and uses what [`memory`](RouteTable::memory) reports.
//!
//! # What is not here, on purpose
//!
//! In a [`RouteTable`]: next hops, gateways and interfaces (a group is a number; the crate `artery-l3` knows
//! what it stands for), and best-path choice between routes of one prefix (the last insert wins). Anywhere: a
//! second writer (put the table behind a mutex of your own; readers don't meet it), persistence, and feature
//! flags. Tables in files are read by the crate `artery-feed`, text by [`load`]; [`synthetic`] makes tables
//! of the Internet's shape for tests. C programs have `artery-table-c`.
#![deny(unsafe_code)]

#[forbid(unsafe_code)]
mod address;
#[forbid(unsafe_code)]
mod art;
#[forbid(unsafe_code)]
mod fib;
#[forbid(unsafe_code)]
pub mod layout;
#[forbid(unsafe_code)]
pub mod load;
#[forbid(unsafe_code)]
mod policy;
#[forbid(unsafe_code)]
mod runs;
#[allow(unsafe_code)]
mod simd;
#[forbid(unsafe_code)]
pub mod synthetic;
#[forbid(unsafe_code)]
mod table;

pub use address::{Address, NotAPrefix, Prefix};
pub use art::{
    Art, ArtReader, ArtView, CannotInsert, LevelReport, MemoryReport, NotStrides, Routes, Strides,
};
pub use artery_storage::{GrowingPages, HugePages, Pages, Region, Simd, Storage, Word, Words};
pub use fib::v6::{Fib6, Fib6Reader, Fib6View};
pub use fib::{ArrayBytes, BuildError, FibMemory, NeedsRebuild};
pub use fib::{
    Fib4Fast, Fib4FastReader, Fib4FastView, Fib4Options, Fib4Small, Fib4SmallReader, Fib4SmallView,
};
pub use policy::{NotAPolicy, Policy};
pub use runs::{Group, Holes, NO_GROUP, Runs};
pub use table::{Family, RouteReader, RouteTable, TableError};
