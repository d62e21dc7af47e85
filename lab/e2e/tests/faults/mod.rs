//! Faults by name. Each is done to a router, a switch and adopted ports, and what was before is compared with
//! what is after. `docs/faults.md` lists these and those that are tested elsewhere.
#![allow(unreachable_pub, reason = "of a test program")]

mod bed;
mod clocks;
mod disks;
mod kills;
mod shortages;
mod stops;
mod storms;
mod unread;
