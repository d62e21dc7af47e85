//! A table of flows from outside, in time that tests set: against a slow model, against floods, and as it
//! grows and shrinks.

mod accounts;
mod copies;
mod floods;
mod keys;
mod model;
mod records;
mod rig;
mod size;
mod time;
