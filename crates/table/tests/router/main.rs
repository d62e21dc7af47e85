//! The tables of a router, through what it says and what its workers see.
mod addresses;
mod rig;
mod routes;
