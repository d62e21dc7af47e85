//! The status of an FPM server, as JSON.
use super::reason::{IgnoredMessage, RejectReason};
use super::rib::RouteCounts;
use super::session::Received;
use artery_common::json::{SCHEMA, Schema};
use serde::Serialize;
use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::time::Instant;

/// The last published status of the server's thread.
#[derive(Clone)]
pub(crate) struct Status {
    pub(crate) listen: SocketAddr,
    /// The connected peer, and since when.
    pub(crate) peer: Option<(SocketAddr, Instant)>,
    /// Connections accepted since the start.
    pub(crate) connections: u64,
    /// Those that were refused, as there was one.
    pub(crate) refused_connections: u64,
    pub(crate) last_disconnect: Option<String>,
    pub(crate) received: Received,
    /// Answers sent or to be sent, those that a sender took too slowly, and bytes that wait.
    pub(crate) answers: (u64, u64, usize),
    /// Routes of IPv4 and IPv6.
    pub(crate) families: [usize; 2],
    pub(crate) counts: RouteCounts,
    /// The last route that was refused for a reason.
    pub(crate) refusals: BTreeMap<RejectReason, String>,
    pub(crate) paths: usize,
    /// Next-hop objects, and groups of them.
    pub(crate) next_hops: (usize, usize),
    /// When stale routes are removed.
    pub(crate) sweep: Option<Instant>,
    /// Stale routes that were removed so far.
    pub(crate) swept: u64,
    /// Seconds for which stale routes are kept after a connection has begun.
    pub(crate) hold: f64,
}

#[derive(Serialize)]
struct StatusJson<'a> {
    #[serde(flatten)]
    schema: Schema,
    listen: SocketAddr,
    peer: Option<SocketAddr>,
    connected_s: Option<u64>,
    connections: u64,
    refused_connections: u64,
    last_disconnect: &'a Option<String>,
    messages: MessagesJson,
    answers: AnswersJson,
    routes: RoutesJson<'a>,
    next_hops: usize,
    next_hop_groups: usize,
    hold_s: f64,
    sweep_in_s: Option<u64>,
    swept: u64,
}

#[derive(Serialize)]
struct MessagesJson {
    frames: u64,
    routes: u64,
    deleted_routes: u64,
    next_hops: u64,
    deleted_next_hops: u64,
    ignored: BTreeMap<&'static str, u64>,
}

#[derive(Serialize)]
struct AnswersJson {
    sent: u64,
    lost: u64,
    waiting_bytes: usize,
}

#[derive(Serialize)]
struct RoutesJson<'a> {
    ipv4: usize,
    ipv6: usize,
    installed: usize,
    shadowed: usize,
    refused: usize,
    stale: usize,
    paths: usize,
    refusals: Vec<RefusalJson<'a>>,
}

#[derive(Serialize)]
struct RefusalJson<'a> {
    reason: &'static str,
    text: &'static str,
    routes: usize,
    last: &'a str,
}

impl Status {
    pub(super) fn new(listen: SocketAddr) -> Status {
        Status {
            listen,
            peer: None,
            connections: 0,
            refused_connections: 0,
            last_disconnect: None,
            received: Received::default(),
            answers: (0, 0, 0),
            families: [0, 0],
            counts: RouteCounts::default(),
            refusals: BTreeMap::new(),
            paths: 0,
            next_hops: (0, 0),
            sweep: None,
            swept: 0,
            hold: 0.0,
        }
    }

    pub(crate) fn to_json(&self) -> String {
        let now = Instant::now();
        let received = &self.received;
        let ignored = IgnoredMessage::ALL.map(|what| (what.name(), received.ignored[what as usize]));
        let refusal = |reason: &RejectReason| RefusalJson {
            reason: reason.name(),
            text: reason.text(),
            routes: self.counts.refused[*reason as usize],
            last: self.refusals.get(reason).map_or("", String::as_str),
        };
        let refusals = RejectReason::ALL.iter().map(refusal).filter(|refusal| refusal.routes > 0);
        let status = StatusJson {
            schema: SCHEMA,
            listen: self.listen,
            peer: self.peer.map(|(peer, _)| peer),
            connected_s: self.peer.map(|(_, since)| now.saturating_duration_since(since).as_secs()),
            connections: self.connections,
            refused_connections: self.refused_connections,
            last_disconnect: &self.last_disconnect,
            messages: MessagesJson {
                frames: received.frames,
                routes: received.routes,
                deleted_routes: received.deleted_routes,
                next_hops: received.next_hops,
                deleted_next_hops: received.deleted_next_hops,
                ignored: ignored.into_iter().filter(|(_, count)| *count > 0).collect(),
            },
            answers: AnswersJson {
                sent: self.answers.0,
                lost: self.answers.1,
                waiting_bytes: self.answers.2,
            },
            routes: RoutesJson {
                ipv4: self.families[0],
                ipv6: self.families[1],
                installed: self.counts.installed,
                shadowed: self.counts.shadowed,
                refused: self.counts.refused.iter().sum(),
                stale: self.counts.stale,
                paths: self.paths,
                refusals: refusals.collect(),
            },
            next_hops: self.next_hops.0,
            next_hop_groups: self.next_hops.1,
            hold_s: self.hold,
            sweep_in_s: self.sweep.map(|at| at.saturating_duration_since(now).as_secs()),
            swept: self.swept,
        };
        serde_json::to_string(&status).expect("its keys are strings, and nothing in it refuses to be written")
    }
}
