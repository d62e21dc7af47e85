//! What would become of a frame, in words.
use super::decide::{
    Egress, FloodKind, FrameTrace, Stop, TagRewrite, is_filtered_out, is_filtered_out_as_one, trace_frame,
};
use super::show::format_address;
use super::{FrameView, MacKey, Switch, seconds};
use artery_rcu::Turn;
use artery_wire::{EtherAddr, EtherType};
use std::fmt::Write as _;
use std::time::Duration;

/// A frame to be traced for diagnostics.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Question {
    /// The port that it comes by.
    pub port: u16,
    /// Destination address of the frame.
    pub destination: EtherAddr,
    /// Where it comes from.
    pub source: EtherAddr,
    /// The VLAN of its tag, if it has one.
    pub vlan: Option<u16>,
    /// EtherType of the payload.
    pub ether_type: EtherType,
}

impl Question {
    /// The frame; what it carries is zero.
    fn build_frame(&self) -> Vec<u8> {
        let tag =
            self.vlan.map(|vlan| [EtherType::VLAN.0.to_be_bytes(), (vlan & 0xfff).to_be_bytes()].concat());
        let addresses = [self.destination.0, self.source.0].concat();
        [addresses, tag.unwrap_or_default(), self.ether_type.0.to_be_bytes().into(), vec![0; 46]].concat()
    }
}

impl Switch {
    /// What would become of a frame, a step in each line.
    pub fn explain_frame(&self, question: &Question, now: Duration, turn: &Turn<'_>) -> String {
        let (view, table) = (self.view(turn), self.table(turn));
        let bytes = question.build_frame();
        let Some(sight) = FrameView::new(&bytes) else { return String::new() };
        let find = |key: MacKey| {
            table.find_entry(table.probe_key(key)).filter(|entry| !entry.is_old(seconds(now), view.timeout()))
        };
        let decision = trace_frame((view, self.groups(turn)), question.port, &sight, find);
        let known = |key: MacKey| find(key).map(|entry| entry.port());
        self.describe_trace(view, &decision, question, known)
    }

    fn describe_trace(
        &self,
        view: &super::View,
        decision: &FrameTrace,
        question: &Question,
        known: impl Fn(MacKey) -> Option<u16>,
    ) -> String {
        let names = self.port_names();
        let default_vlan = self.config().default_vlan();
        let name = |at: u16| names.get(usize::from(at)).map_or("?", |name| &**name);
        let mut text = String::new();
        for copy in &decision.copies {
            let _ = writeln!(text, "a copy goes to {}", name(*copy));
        }
        let entered = match &decision.ingress {
            Ok(entered) => entered,
            Err(stop) => {
                let end = if matches!(stop, Stop::Host(_)) { "left to the host" } else { "dropped" };
                let _ = writeln!(
                    text,
                    "{end} at {}: {}",
                    name(question.port),
                    lowercase_sentence(stop.cause().sentence())
                );
                return text;
            }
        };
        let _ = writeln!(text, "taken in at {}, in VLAN {}", name(entered.port), entered.place.vlan);
        if let Some(mark) = &entered.mark {
            let _ = writeln!(text, "marked {mark} by a rule");
        }
        if entered.is_filtered {
            let _ = writeln!(text, "the packet filter is asked here");
        }
        if let Some(key) = decision.learns {
            let address = format_address(key, default_vlan);
            let _ = match known(key) {
                Some(port) if port == question.port => writeln!(text, "{address} is known to be here"),
                Some(port) => writeln!(text, "{address} moves here from {}", name(port)),
                None => writeln!(text, "{address} is learned, if there is room"),
            };
        }
        if entered.is_filtered && view.has_filter() && matches!(decision.egress, Some(Ok(Egress::Flood(_)))) {
            let _ = writeln!(text, "the packet filter is asked at the switch itself");
        }
        let _ = match &decision.egress {
            Some(Ok(Egress::Unicast(port))) => writeln!(text, "its destination is at {}", name(*port)),
            Some(Ok(Egress::Flood(many))) => writeln!(text, "{}", to_many(*many)),
            Some(Err(cause)) => {
                writeln!(text, "dropped at {}: {}", name(question.port), lowercase_sentence(cause.sentence()))
            }
            None => Ok(()),
        };
        for (to, outcome) in &decision.targets {
            let _ = match outcome {
                Ok(leaving) => {
                    let (leaves, many) = (name(*to), matches!(decision.egress, Some(Ok(Egress::Flood(_)))));
                    let asks = if many { is_filtered_out_as_one } else { is_filtered_out };
                    let is_asked = asks(view, entered, *to);
                    let filter = if is_asked { ", if the packet filter lets it" } else { "" };
                    let mark = leaving
                        .mark
                        .as_ref()
                        .map(|mark| format!(", marked {mark} by a rule"))
                        .unwrap_or_default();
                    writeln!(text, "leaves by {leaves}{}{mark}{filter}", describe_rewrite(leaving.change))
                }
                Err(cause) => {
                    writeln!(text, "not by {}: {}", name(*to), lowercase_sentence(cause.sentence()))
                }
            };
        }
        text
    }
}

fn to_many(many: FloodKind) -> &'static str {
    match many {
        FloodKind::Broadcast => "goes to all ports: it is a broadcast",
        FloodKind::Multicast => {
            "goes to all ports: it is for a group; with snoop those of IP go to members where they are known"
        }
        FloodKind::Unknown => "goes to all ports that discover: where its destination is isn't known",
    }
}

fn describe_rewrite(change: TagRewrite) -> String {
    match change {
        TagRewrite::Keep => String::new(),
        TagRewrite::Untag => ", without its tag".into(),
        TagRewrite::Tag(tag) | TagRewrite::Retag(tag) => format!(", with the tag of VLAN {}", tag & 0xfff),
    }
}

/// A sentence inside another.
fn lowercase_sentence(sentence: &str) -> String {
    let sentence = sentence.trim().trim_end_matches('.');
    let mut chars = sentence.chars();
    chars.next().map_or(String::new(), |first| first.to_lowercase().chain(chars).collect())
}
