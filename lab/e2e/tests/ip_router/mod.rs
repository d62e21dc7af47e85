//! `artery router` among Linux hosts in namespaces: what they see of it, and what it makes of what they do.
//! Another parser checks everything that it sends in these tests.

mod addresses;
mod floods;
mod hosts;
mod mtu;
mod neighbors;
mod next_hops;
mod ports;
mod support;
mod wire;
