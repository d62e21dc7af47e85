//! `artery run conf/balancer.click` between clients and servers that share a service, by TCP as it is: what becomes of
//! connections that are in use while servers come, go and die.

#[path = "../support/mod.rs"]
mod support;

mod curl;
mod forward;
mod load;
mod methods;
mod net;
mod replaced;
mod server;
