//! Explains what the packet filter does with a frame at a port, for `artery explain`.
use super::packet_filter::drop_reason;
use super::shared::{ActiveRules, refused};
use super::unfiltered::is_unfiltered;
use super::worker::{WorkerFilter, link_header};
use artery_common::hex::{from_hex, to_hex};
use artery_engine::{Context, DropReason, HandlerError};
use artery_filter::dissect::HookContext;
use artery_filter::engine::{FilterBasis, FilterExplanation};
use artery_filter::facts::{Direction, Interface, Tag};
use artery_filter::rule::{BlockReturn, StateKeeping};
use artery_filter::syntax::print::{self, Style};
use artery_wire::describe;
use serde::Serialize;
use std::net::IpAddr;

/// What the handler is for.
pub(crate) const EXPLAIN: &str = "`in|out PORT [tag N] FRAME`, with the bytes of the frame in hexadecimal: \
    what the filter does with a frame that comes in or leaves by a port, a line of JSON for each worker, \
    since each has states of its own. It has the frame as it goes on, and the number of its tag. Nothing is \
    counted, logged or changed";

/// What a worker says of a frame. Keys don't change while the number of the schema stays.
#[derive(Default, Serialize)]
struct ExplanationJson {
    schema_version: u32,
    /// Whether the frame goes on.
    passes: bool,
    /// Whether the filter is at that port.
    is_here: bool,
    /// Whether it has a state on this worker.
    is_known: bool,
    text: String,
    /// Why it ends here, as drops are counted.
    #[serde(skip_serializing_if = "Option::is_none")]
    reason: Option<&'static str>,
    #[serde(flatten)]
    rule: Option<RuleJson>,
    /// Where `route-to` sends it.
    #[serde(skip_serializing_if = "Option::is_none")]
    gateway: Option<IpAddr>,
    tag: u16,
    /// The frame as it goes on, in hexadecimal.
    frame: String,
    /// Whether that is another than the one that was asked about.
    is_changed: bool,
}

/// A rule: its number in its rule set, and the path of that, empty for the main rule set.
#[derive(Serialize)]
struct RuleJson {
    rule: u32,
    anchor: String,
    rule_text: String,
}

/// The interface of ports that the filter is not at.
const NOWHERE: Interface = Interface(u16::MAX);

/// A question: a frame at a port.
struct Question {
    at: HookContext,
    frame: Vec<u8>,
}

impl WorkerFilter {
    /// The handler `explain_json`.
    pub(crate) fn explain_frame(&mut self, text: &str, cx: &mut Context<'_>) -> Result<String, HandlerError> {
        self.begin_batch(cx);
        let Question { at, mut frame } = parse_question(text, self.active_rules())?;
        let asked = frame.clone();
        let said = match link_header(&frame) {
            _ if self.active_rules().interfaces.get(at.interface).is_none() => {
                ExplanationJson { is_here: false, ..untouched("the filter is not at this port", at) }
            }
            None => untouched("it holds no IP, so it is not filtered", at),
            Some(_) if self.is_unfiltered(&frame, at, cx) => untouched(
                "frames for other Ethernet addresses, and Neighbor Discovery of the link, are not filtered",
                at,
            ),
            Some(header) => {
                let said = self.explain_packet(&mut frame[header..], at, cx);
                self.explanation_json(said)
            }
        };
        let is_changed = frame != asked;
        let goes_on = match is_changed {
            true => format!("{}; it goes on as {}", said.text, describe::frame(&frame)),
            false => said.text,
        };
        let said = ExplanationJson { text: goes_on, frame: to_hex(&frame), is_changed, ..said };
        serde_json::to_string(&said).map(|line| line + "\n").map_err(|error| refused(error.to_string()))
    }

    fn is_unfiltered(&self, frame: &[u8], at: HookContext, cx: &Context<'_>) -> bool {
        let port = self.routes().and_then(|routes| routes.port_view(at.interface, cx.turn()));
        port.is_some_and(|port| is_unfiltered(frame, port, at.direction))
    }

    fn explanation_json(&self, said: FilterExplanation) -> ExplanationJson {
        let rule = said.rule.map(|id| {
            let record = self.active_rules().compiled.rule(id);
            let control = self.shared().lock_control();
            let style = Style::new(&control.names);
            RuleJson {
                rule: record.number,
                anchor: record.anchor.to_string(),
                rule_text: print::rule(&record.rule, record.number as usize, &style),
            }
        });
        let is_known = matches!(said.basis, FilterBasis::State | FilterBasis::QuotedState);
        ExplanationJson {
            schema_version: 1,
            passes: said.basis.is_pass(),
            is_here: true,
            is_known,
            text: basis_text(said.basis, rule.as_ref()),
            reason: end_reason(said.basis).map(DropReason::name),
            rule,
            gateway: said.gateway,
            tag: said.tag.0,
            ..ExplanationJson::default()
        }
    }
}

/// What is said of a frame that rules are not asked about.
fn untouched(why: &str, at: HookContext) -> ExplanationJson {
    ExplanationJson {
        schema_version: 1,
        passes: true,
        is_here: true,
        text: format!("passes: {why}"),
        tag: at.tag.0,
        ..ExplanationJson::default()
    }
}

fn basis_text(basis: FilterBasis, rule: Option<&RuleJson>) -> String {
    let by = rule.map_or("no rule matches".to_string(), |rule| match rule.anchor.as_str() {
        "" => format!("rule {}, '{}'", rule.rule, rule.rule_text),
        anchor => format!("rule {} of anchor {anchor}, '{}'", rule.rule, rule.rule_text),
    });
    match basis {
        FilterBasis::Disabled => "passes: the filter is disabled".into(),
        FilterBasis::Skipped => "passes: the rules say 'set skip on' this interface".into(),
        FilterBasis::Fragment => "waits for the other fragments, with which it is filtered".into(),
        FilterBasis::State | FilterBasis::QuotedState => {
            let is_own = basis == FilterBasis::State;
            let whose = if is_own { "its state" } else { "the state of the packet it quotes" };
            let source = if rule.is_some() { format!("from {by}") } else { "whose rule is gone".into() };
            format!("passes by {whose}, {source}")
        }
        FilterBasis::Pass(keep) => format!("passes: {by}{}", state_text(keep)),
        FilterBasis::Block(reply) => format!("blocked: {by}{}", reply_text(reply)),
        FilterBasis::Drop(reason) => format!("dropped: {}", reason.name()),
    }
}

/// Why a packet ends here, if it is dropped.
fn end_reason(basis: FilterBasis) -> Option<DropReason> {
    match basis {
        FilterBasis::Block(_) => Some(DropReason::Filtered),
        FilterBasis::Drop(reason) => Some(drop_reason(reason)),
        _ => None,
    }
}

/// The state that a packet that passes gets.
fn state_text(keep: StateKeeping) -> &'static str {
    match keep {
        StateKeeping::No => "; it gets no state",
        StateKeeping::Keep | StateKeeping::Modulate => "; it gets a state, by which its answers pass",
        StateKeeping::Synproxy => "; the filter first completes the handshake with its sender",
    }
}

/// What the sender of a packet that is blocked gets.
fn reply_text(reply: BlockReturn) -> &'static str {
    match reply {
        BlockReturn::Drop => "",
        BlockReturn::Return => "; its sender gets a reset for TCP, and an error otherwise",
        BlockReturn::Reset(_) => "; its sender gets a reset",
        BlockReturn::Icmp(..) | BlockReturn::Icmp6(_) => "; its sender gets an error of ICMP",
    }
}

fn parse_question(text: &str, rules: &ActiveRules) -> Result<Question, HandlerError> {
    let words: Vec<&str> = text.split_whitespace().collect();
    let wrong =
        || refused(format!("'{text}' is no question: write 'in PORT FRAME' or 'out PORT tag 1 FRAME'"));
    let [direction, port, rest @ ..] = words.as_slice() else { return Err(wrong()) };
    let direction = match *direction {
        "in" => Direction::In,
        "out" => Direction::Out,
        _ => return Err(wrong()),
    };
    let interface = rules.interfaces.find_interface(port).unwrap_or(NOWHERE);
    let (tag, frame) = match rest {
        ["tag", tag, frame] => (Tag(tag.parse().map_err(|_| wrong())?), frame),
        [frame] => (Tag(0), frame),
        _ => return Err(wrong()),
    };
    let frame = from_hex(frame).map_err(|why| refused(format!("frame: {why}")))?;
    Ok(Question { at: HookContext { tag, ..HookContext::new(interface, direction) }, frame })
}
