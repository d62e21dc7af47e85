//! The tables of a router from outside.

mod neighbor;
mod router;
