//! What `explain` says of a packet, for programs: steps and a verdict.
use super::chosen::ChosenJson;
use super::show_routes::Schema;
use super::verdict::Verdict;
use artery_engine::DropReason;
use serde::Serialize;
use std::net::IpAddr;

/// All that is said of a packet.
#[derive(Serialize)]
pub(super) struct Explanation {
    #[serde(flatten)]
    pub(super) schema: Schema,
    pub(super) packet: String,
    #[serde(rename = "in")]
    pub(super) came_by: String,
    pub(super) stages: Vec<Stage>,
    pub(super) verdict: VerdictJson,
}

/// A step on the packet's way.
#[derive(Serialize)]
pub(super) struct Stage {
    pub(super) stage: &'static str,
    /// Whether the packet goes on behind it.
    pub(super) ok: bool,
    pub(super) text: String,
    #[serde(flatten)]
    pub(super) facts: Facts,
}

/// What a step goes by, for programs.
#[derive(Default, Serialize)]
pub(super) struct Facts {
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) prefix: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) source: Option<&'static str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) group: Option<u32>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) method: Option<&'static str>,
    /// The flow's number, by which one of several next hops is chosen.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) flow: Option<u32>,
    /// Which of the next hops it is, from 0 on, and of how many.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) member: Option<usize>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) members: Option<usize>,
    #[serde(flatten)]
    pub(super) chosen: Option<ChosenJson>,
}

/// What becomes of the packet.
#[derive(Default, Serialize)]
pub(super) struct VerdictJson {
    pub(super) kind: &'static str,
    pub(super) text: String,
    /// The port that it leaves by, or would.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) port: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) next_hop: Option<IpAddr>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) lladdr: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) reason: Option<&'static str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) sentence: Option<&'static str>,
    /// The ICMP error that its sender gets, if it may have one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) icmp_type: Option<u8>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) icmp_code: Option<u8>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) fragmented: Option<bool>,
    /// The better first hop that its sender is told of.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) redirect: Option<IpAddr>,
}

impl Verdict {
    /// Its name.
    pub(super) fn kind(&self) -> &'static str {
        match self {
            Verdict::Forward(_) => "forward",
            Verdict::Hold(_) => "hold",
            Verdict::Answer => "answer",
            Verdict::Reassemble => "reassemble",
            Verdict::Host => "host",
            Verdict::Neighbor(_) => "neighbor",
            Verdict::Error(..) => "error",
            Verdict::Discard(_) => "discard",
        }
    }
    /// Why the packet ends, if it does.
    pub(super) fn reason(&self) -> Option<DropReason> {
        match self {
            Verdict::Error(_, reason) | Verdict::Discard(reason) => Some(*reason),
            _ => None,
        }
    }
}
