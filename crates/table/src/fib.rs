//! Compiled FIBs: what forwards. Made from [`Runs`](crate::Runs) in one pass, then kept in step prefix by prefix.
mod v4;
mod v6;
