//! What the kernel says of its links, addresses, routes, next hops, neighbors and
//! rules, by rtnetlink (rtnetlink(7)).
//!
//! Records come from sockets of `artery_device`, and nothing is concluded from them: what forwarded
//! packets are to do is the mirror's.
pub use artery_netlink::records::{ChangeMonitor, DumpProgress, ReadOutcome, RecordDump, RecordKind};
pub use artery_netlink::{
    Address, Family, IpTunnel, Link, LinkKind, Manner, Neighbor, News, NextHopObject, ObjectKind, Path,
    Record, Route, RouteHop, RouteKind, Rule, RuleAction, Selectors, Settings, TunnelOption, TunnelProtocol,
};
