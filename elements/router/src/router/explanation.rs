//! An explanation as JSON: steps and a verdict.
use super::chosen::ChosenJson;
use super::json::Schema;
use super::verdict::RouterVerdict;
use artery_engine::DropReason;
use serde::Serialize;
use std::net::IpAddr;

/// The explanation of a packet.
#[derive(Serialize)]
pub(super) struct Explanation {
    #[serde(flatten)]
    pub(super) schema: Schema,
    pub(super) packet: String,
    #[serde(rename = "in")]
    pub(super) came_by: String,
    /// The frame that was asked about, in hexadecimal.
    pub(super) frame: String,
    pub(super) stages: Vec<Stage>,
    pub(super) verdict: VerdictJson,
}

/// One step in the explanation.
#[derive(Serialize)]
pub(super) struct Stage {
    pub(super) stage: &'static str,
    /// Whether the packet continues after it.
    pub(super) ok: bool,
    pub(super) text: String,
    #[serde(flatten)]
    pub(super) facts: Facts,
}

/// The values that a step depends on.
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

/// The verdict on the packet.
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
    /// The better first hop in the ICMP redirect to the sender.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) redirect: Option<IpAddr>,
}

impl RouterVerdict {
    /// The verdict's name in JSON.
    pub(super) fn kind(&self) -> &'static str {
        match self {
            RouterVerdict::Forward(_) => "forward",
            RouterVerdict::Hold(_) => "hold",
            RouterVerdict::EchoReply => "answer",
            RouterVerdict::Reassemble => "reassemble",
            RouterVerdict::Host => "host",
            RouterVerdict::Neighbor(_) => "neighbor",
            RouterVerdict::Error(..) => "error",
            RouterVerdict::Discard(_) => "discard",
        }
    }
    /// Why the packet ends, if it does.
    pub(super) fn drop_reason(&self) -> Option<DropReason> {
        match self {
            RouterVerdict::Error(_, reason) | RouterVerdict::Discard(reason) => Some(*reason),
            _ => None,
        }
    }
}
