//! The verdict of an explanation, as a sentence and as JSON.
use super::classify::LocalState;
use super::explanation::VerdictJson;
use super::icmp::{self, IcmpSource, IcmpSuppressed};
use super::json::port_name;
use super::redirect::build_redirect;
use super::verdict::{EgressPlan, IcmpReply, IngressInfo, NeighborMessage, RouterVerdict, TablesView};
use artery_engine::DropReason;
use artery_forward::fast_path::LINK;
use std::net::IpAddr;

/// A frame that is explained.
#[derive(Clone, Copy)]
pub(super) struct ExplainedFrame<'a> {
    pub(super) frame: &'a [u8],
    pub(super) ingress: IngressInfo,
    pub(super) view: TablesView<'a>,
    pub(super) own: LocalState<'a>,
}

impl ExplainedFrame<'_> {
    /// The verdict, for programs and in a sentence.
    pub(super) fn verdict_json(&self, verdict: &RouterVerdict) -> VerdictJson {
        let reason = verdict.drop_reason();
        let base = VerdictJson {
            kind: verdict.kind(),
            text: self.verdict_text(verdict),
            reason: reason.map(DropReason::name),
            sentence: reason.map(|reason| reason.sentence().trim()),
            ..VerdictJson::default()
        };
        match verdict {
            RouterVerdict::Forward(leave) | RouterVerdict::Hold(leave) => VerdictJson {
                port: Some(port_name(self.view.ports, leave.decision.port)),
                next_hop: Some(leave.next_hop),
                lladdr: leave.decision.link.address().map(|link| link.to_string()),
                fragmented: Some(leave.is_cut),
                redirect: self.redirect_target(leave),
                ..base
            },
            RouterVerdict::Error(reply, _) if self.suppression_reason(*reply).is_none() => {
                let (icmp_type, icmp_code) = icmp_type_and_code(*reply);
                VerdictJson { icmp_type: Some(icmp_type), icmp_code: Some(icmp_code), ..base }
            }
            _ => base,
        }
    }

    fn verdict_text(&self, verdict: &RouterVerdict) -> String {
        match verdict {
            RouterVerdict::Forward(leave) => {
                format!("leaves by {}", port_name(self.view.ports, leave.decision.port))
            }
            RouterVerdict::Hold(leave) => {
                format!("waits until the link address of {} is known", leave.next_hop)
            }
            RouterVerdict::Error(reply, reason) => {
                format!("{} {}", reason.sentence().trim(), self.reply_text(*reply))
            }
            RouterVerdict::Discard(reason) => reason.sentence().trim().to_string(),
            other => describe_local(other).to_string(),
        }
    }

    fn reply_text(&self, reply: IcmpReply) -> String {
        match self.suppression_reason(reply) {
            None => {
                let (kind, code) = icmp_type_and_code(reply);
                format!("Its sender gets ICMP type {kind}, code {code}, unless too many were of late.")
            }
            Some(IcmpSuppressed::Forbidden(why)) => format!("Its sender gets no error: {why}."),
            Some(IcmpSuppressed::NoAddress) => {
                "Its sender gets no error: the router has no address to say it from.".to_string()
            }
        }
    }

    /// Why no ICMP error may be sent to the packet's sender; None if one may.
    fn suppression_reason(&self, reply: IcmpReply) -> Option<IcmpSuppressed> {
        let packet = self.frame.get(LINK..).unwrap_or_default();
        let from =
            IcmpSource { port: icmp::error_port(packet, self.ingress, &self.view), ..self.icmp_source() };
        icmp::build_error(reply, packet, self.ingress.to.is_many(), from).err()
    }

    /// The better first hop in the ICMP redirect to the packet's sender; rate limits are ignored.
    pub(super) fn redirect_target(&self, leave: &EgressPlan) -> Option<IpAddr> {
        build_redirect(self.frame, leave, self.ingress, self.icmp_source()).and(leave.redirect)
    }

    fn icmp_source(&self) -> IcmpSource<'_> {
        IcmpSource { ports: self.view.ports, port: self.ingress.from.port(), is_usable: self.own.is_usable }
    }
}

/// The destination of a packet for the router itself.
pub(super) fn describe_local(verdict: &RouterVerdict) -> &'static str {
    match verdict {
        RouterVerdict::EchoReply => "the router answers the echo request",
        RouterVerdict::Reassemble => "a fragment: the router waits for the others",
        RouterVerdict::Host => "the host gets it",
        RouterVerdict::Neighbor(NeighborMessage::Arp) => "a message of ARP: the router looks at it",
        RouterVerdict::Neighbor(NeighborMessage::Nd) => {
            "a message of Neighbor Discovery: the router looks at it"
        }
        _ => "it goes no further",
    }
}

/// Type and code of an ICMP error.
fn icmp_type_and_code(reply: IcmpReply) -> (u8, u8) {
    match reply {
        IcmpReply::V4(error) => (error.icmp_type.0, error.code),
        IcmpReply::V6(error) => (error.icmp_type.0, error.code),
    }
}
