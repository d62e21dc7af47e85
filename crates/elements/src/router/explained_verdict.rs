//! What `explain` says of a verdict, in a sentence and for programs.
use super::explanation::VerdictJson;
use super::icmp::{self, Silence, Speaker};
use super::judge::Own;
use super::redirect::redirect;
use super::show_routes::name;
use super::slow::LINK;
use super::verdict::{Came, Leave, Message, Told, Verdict, View};
use artery_engine::DropReason;
use std::net::IpAddr;

/// A frame of which something is said.
#[derive(Clone, Copy)]
pub(super) struct About<'a> {
    pub(super) frame: &'a [u8],
    pub(super) came: Came,
    pub(super) view: View<'a>,
    pub(super) own: Own<'a>,
}

impl About<'_> {
    /// The verdict, for programs and in a sentence.
    pub(super) fn verdict(&self, verdict: &Verdict) -> VerdictJson {
        let reason = verdict.reason();
        let base = VerdictJson {
            kind: verdict.kind(),
            text: self.sentence(verdict),
            reason: reason.map(DropReason::name),
            sentence: reason.map(|reason| reason.sentence().trim()),
            ..VerdictJson::default()
        };
        match verdict {
            Verdict::Forward(leave) | Verdict::Hold(leave) => VerdictJson {
                port: Some(name(self.view.ports, leave.decision.port)),
                next_hop: Some(leave.next_hop),
                lladdr: leave.decision.link.address().map(|link| link.to_string()),
                fragmented: Some(leave.is_cut),
                redirect: self.redirect(leave),
                ..base
            },
            Verdict::Error(told, _) if self.silence(*told).is_none() => {
                let (icmp_type, icmp_code) = message(*told);
                VerdictJson { icmp_type: Some(icmp_type), icmp_code: Some(icmp_code), ..base }
            }
            _ => base,
        }
    }

    fn sentence(&self, verdict: &Verdict) -> String {
        match verdict {
            Verdict::Forward(leave) => format!("leaves by {}", name(self.view.ports, leave.decision.port)),
            Verdict::Hold(leave) => format!("waits until the link address of {} is known", leave.next_hop),
            Verdict::Error(told, reason) => format!("{} {}", reason.sentence().trim(), self.telling(*told)),
            Verdict::Discard(reason) => reason.sentence().trim().to_string(),
            other => local(other).to_string(),
        }
    }

    fn telling(&self, told: Told) -> String {
        match self.silence(told) {
            None => {
                let (kind, code) = message(told);
                format!("Its sender is told: ICMP type {kind}, code {code}, unless too many were of late.")
            }
            Some(Silence::Forbidden(why)) => format!("Its sender is not told: {why}."),
            Some(Silence::NoAddress) => {
                "Its sender is not told: the router has no address to say it from.".to_string()
            }
        }
    }

    /// Why the packet's sender can't be told of it, if so.
    fn silence(&self, told: Told) -> Option<Silence> {
        let packet = self.frame.get(LINK..).unwrap_or_default();
        icmp::error(told, packet, self.came.to.is_many(), self.speaker()).err()
    }

    /// The better first hop that the packet's sender is told of, unless too many were told of late.
    pub(super) fn redirect(&self, leave: &Leave) -> Option<IpAddr> {
        redirect(self.frame, leave, self.came, self.speaker()).and(leave.redirect)
    }

    fn speaker(&self) -> Speaker<'_> {
        Speaker { ports: self.view.ports, port: self.came.from.port(), is_usable: self.own.is_usable }
    }
}

/// Where a packet for the router itself goes.
pub(super) fn local(verdict: &Verdict) -> &'static str {
    match verdict {
        Verdict::Answer => "the router answers the echo request",
        Verdict::Reassemble => "a fragment: the router waits for the others",
        Verdict::Host => "the host gets it",
        Verdict::Neighbor(Message::Arp) => "a message of ARP: the router looks at it",
        Verdict::Neighbor(Message::Nd) => "a message of Neighbor Discovery: the router looks at it",
        _ => "it goes no further",
    }
}

/// Type and code of what a sender is told.
fn message(told: Told) -> (u8, u8) {
    match told {
        Told::V4(error) => (error.icmp_type.0, error.code),
        Told::V6(error) => (error.icmp_type.0, error.code),
    }
}
