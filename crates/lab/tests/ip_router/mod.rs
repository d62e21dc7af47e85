//! `artery router` among Linux hosts in namespaces: what they see of it, and what it makes of what they do. Whatever it
//! sends in these tests is looked at by another parser.

mod addresses;
mod floods;
mod hosts;
mod mtu;
mod neighbors;
mod next_hops;
mod ports;
mod support;
mod wire;
