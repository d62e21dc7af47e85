//! The tables of a router, through what it says and what its workers see.
mod addresses;
mod dynamic;
mod ecmp;
mod feed;
mod model;
mod random;
mod rig;
mod routes;
