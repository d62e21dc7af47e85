//! `artery run conf/balancer.click` between clients and servers that share a service, by TCP as it is: what
//! becomes of connections that are in use while servers come, go and die.

mod checks;
mod curl;
mod forward;
mod kinds;
mod load;
mod methods;
mod net;
mod plain;
mod pmtu;
mod replaced;
mod server;
mod takeover;
