//! The status of host ports and of the host's routes, as JSON.
use crate::fpm::reason::RejectReason;
use crate::fpm::rib::RouteCounts;
use artery_common::json::{SCHEMA, Schema, to_json};
use serde::Serialize;

/// The host port of one of the router's ports.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub(super) struct InterfaceStatus {
    pub(super) port: String,
    pub(super) interface: String,
    /// The kernel's number of it; 0 while there is none.
    pub(super) ifindex: u32,
    pub(super) lladdr: String,
    pub(super) mtu: u32,
    /// Whether the host has brought it up.
    pub(super) admin_up: bool,
    /// Whether the port's link is up, and with it the interface's.
    pub(super) carrier: bool,
    /// Addresses with prefix lengths, as `10.0.1.1/24`.
    pub(super) addresses: Vec<String>,
    /// What the kernel refused last.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) error: Option<String>,
}

/// The host's routes that lead by host ports.
#[derive(Clone, Default)]
pub(super) struct RouteStatus {
    /// Whether the host's table is read.
    pub(super) is_on: bool,
    /// How often all of it was read.
    pub(super) dumps: u64,
    /// Routes of IPv4 and IPv6.
    pub(super) families: [usize; 2],
    pub(super) counts: RouteCounts,
    /// The last route that was refused for a reason.
    pub(super) refusals: Vec<(RejectReason, String)>,
}

#[derive(Serialize)]
struct StatusJson<'a> {
    #[serde(flatten)]
    schema: Schema,
    interfaces: &'a [InterfaceStatus],
    routes: Option<RoutesJson<'a>>,
}

#[derive(Serialize)]
struct RoutesJson<'a> {
    ipv4: usize,
    ipv6: usize,
    installed: usize,
    shadowed: usize,
    refused: usize,
    dumps: u64,
    refusals: Vec<RefusalJson<'a>>,
}

#[derive(Serialize)]
struct RefusalJson<'a> {
    reason: &'static str,
    text: &'static str,
    routes: usize,
    last: &'a str,
}

pub(super) fn status_json(interfaces: &[InterfaceStatus], routes: &RouteStatus) -> String {
    let refusals = routes.refusals.iter().map(|(reason, last)| RefusalJson {
        reason: reason.name(),
        text: reason.text(),
        routes: routes.counts.refused[*reason as usize],
        last,
    });
    let json = RoutesJson {
        ipv4: routes.families[0],
        ipv6: routes.families[1],
        installed: routes.counts.installed,
        shadowed: routes.counts.shadowed,
        refused: routes.counts.refused.iter().sum(),
        dumps: routes.dumps,
        refusals: refusals.filter(|refusal| refusal.routes > 0).collect(),
    };
    to_json(&StatusJson { schema: SCHEMA, interfaces, routes: routes.is_on.then_some(json) })
}
