//! The common part of IPRewriter, UDPRewriter, TCPRewriter, ICMPPingRewriter, IPAddrRewriter and
//! IPAddrPairRewriter: all but which packets they accept and which ends of a flow they use.
use super::apply::{self, RewriteKind};
use super::flows::{Flow, Flows};
use super::pattern::{FlowId, Mapper, NamedPatterns, Rule, parse_outputs};
use super::shared_flows::{FlowStore, SharedFlows};
use artery_common::chance;
use artery_engine::names::Names;
use artery_engine::{
    Annotation, ArgError, ArgValue, Args, Batch, Context, DropReason, Element, HandlerError, Packet,
    StartError, Time, parse_value,
};
use artery_lang::args as text;
use artery_wire::Random;
use std::any::Any;
use std::fmt::Write as _;
use std::net::Ipv4Addr;
use std::sync::Arc;
use std::time::Duration;

/// Arguments of all rewriters, behind their own.
macro_rules! arguments {
    ($($own:expr),* $(,)?) => {
        &[
            artery_engine::Arg::rest("INPUTSPEC", "drop, pass, keep, pattern or mapper", "what to do with \
                packets of an input"),
            $($own,)*
            artery_engine::Arg::keyword("TIMEOUT", "seconds", "", "how long flows live on without packets"),
            artery_engine::Arg::keyword("GUARANTEE", "seconds", "5", "how long they live on even when there \
                are too many"),
            artery_engine::Arg::keyword("CAPACITY", "flows", "65536", "how many flows there may be; memory \
                is taken for all of them"),
            artery_engine::Arg::keyword("MAPPING_CAPACITY", "flows", "", "the same"),
            artery_engine::Arg::keyword("REAP_INTERVAL", "seconds", "900", "how often to look for flows that \
                have ended"),
            artery_engine::Arg::keyword("REAP_TIME", "seconds", "", "older name of REAP_INTERVAL"),
            artery_engine::Arg::keyword("REPLY_ANNO", "annotation", "", "an annotation that replies get from \
                the first packet"),
        ]
    };
}
pub(super) use arguments;

/// Handlers of all rewriters, behind their own.
macro_rules! handlers {
    ($($own:expr),* $(,)?) => {
        &[
            $($own,)*
            artery_engine::Handler::read(
                "nmappings",
                "how many flows there are",
                &artery_engine::Show(|r: &mut Rewriter| r.len()),
            ),
            artery_engine::Handler::read(
                "mapping_failures",
                "how many flows found no room",
                &artery_engine::Show(|r: &mut Rewriter| r.failures_text()),
            ),
            artery_engine::Handler::read(
                "patterns",
                "what is done with packets of each input",
                &artery_engine::Show(|r: &mut Rewriter| r.patterns_text()),
            ),
            artery_engine::Handler::read(
                "size",
                "how many flows there are",
                &artery_engine::Show(|r: &mut Rewriter| r.len()),
            ),
            artery_engine::Handler::read(
                "table_size",
                "how many flows there are",
                &artery_engine::Show(|r: &mut Rewriter| r.len()),
            ),
            artery_engine::Handler::read(
                "capacity",
                "CAPACITY",
                &artery_engine::Show(|r: &mut Rewriter| r.capacity_text()),
            )
            .and_write(&artery_engine::Write(Rewriter::set_capacity)),
            artery_engine::Handler::write(
                "clear",
                "forgets all flows",
                &artery_engine::Write(Rewriter::clear),
            )
            .button(),
        ]
    };
}
pub(super) use handlers;

/// The handlers `pattern0` and so on.
pub(super) static PATTERN_N: artery_engine::Handler = artery_engine::Handler::read(
    "patternN",
    "what is done with packets of input N",
    &artery_engine::Read(|r: &mut Rewriter, name, _| r.pattern_text(name)),
)
.and_write(&artery_engine::Write(|r: &mut Rewriter, name_and_text, _| r.set_pattern(name_and_text)));

/// How long flows live on without packets.
#[derive(Clone, Copy)]
pub(super) struct Timeouts {
    /// Flows that are neither busy nor done.
    pub(super) idle: Duration,
    /// Those with data in both directions.
    pub(super) busy: Duration,
    /// TCP connections that are closed.
    pub(super) done: Duration,
    pub(super) guarantee: Duration,
}

impl Timeouts {
    /// The same for all flows of a kind.
    pub(super) fn same_for_all(idle: Duration, guarantee: Duration) -> Timeouts {
        Timeouts { idle, busy: idle, done: idle, guarantee }
    }
}

/// The rule for packets of an input that belong to no flow yet.
enum InputSpec {
    Drop,
    Pass(usize),
    Keep([usize; 2]),
    Pattern(Rule),
    Mapper(Arc<Mapper>),
}

/// A rewriter of any kind.
pub(super) struct Rewriter {
    table: FlowStore,
    reap_interval: Duration,
    names: Names,
    rules: Rules,
}

/// The configuration of a rewriter, without its flows.
struct Rules {
    ends: RewriteKind,
    specs: Vec<InputSpec>,
    failures: u64,
    /// The timeouts of each table, by its number.
    timeouts: [Timeouts; 2],
    /// Whether to set the destination annotation.
    dst_annotation: bool,
    reply_annotation: Option<usize>,
    random: Random,
}

impl Rewriter {
    pub(super) fn new(
        args: &mut Args<'_>,
        ends: RewriteKind,
        timeouts: [Timeouts; 2],
        dst_annotation: bool,
    ) -> Result<Rewriter, ArgError> {
        let given = args.rest("INPUTSPEC").to_vec();
        if given.len() != args.inputs() {
            return Err(ArgError::wrong(format!("need {} arguments, one per input port", args.inputs())));
        }
        let capacity = if args.is_given("MAPPING_CAPACITY") { "MAPPING_CAPACITY" } else { "CAPACITY" };
        let capacity = u32::parse(&args.read::<String>(capacity)?, args.names())
            .map_err(|_| ArgError::wrong("bad MAPPING_CAPACITY"))?;
        let mut specs = Vec::new();
        for (n, spec) in given.iter().enumerate() {
            match parse_spec(spec, args) {
                Ok(spec) => specs.push(spec),
                Err(why) => args.record_error(ArgError::wrong_at(spec, format!("input spec {n}: {why}"))),
            }
        }
        for n in 0..given.len() {
            args.declare_handler(&format!("pattern{n}"), "rw");
        }
        let flows = Flows::new(capacity as usize).map_err(|_| ArgError::wrong(no_memory(capacity)))?;
        Ok(Rewriter {
            table: args.resource::<SharedFlows>().new_table(args.name(), ends, args.outputs(), flows),
            reap_interval: args.read(if args.is_given("REAP_TIME") {
                "REAP_TIME"
            } else {
                "REAP_INTERVAL"
            })?,
            names: args.names().clone(),
            rules: Rules {
                ends,
                specs,
                failures: 0,
                timeouts,
                dst_annotation,
                reply_annotation: args.read::<Option<Annotation<1>>>("REPLY_ANNO")?.map(|anno| anno.offset),
                random: chance::new_random(args),
            },
        })
    }
}

impl Rules {
    /// The flow of a packet that none had before; or the output that it leaves by as it is, or none.
    fn begin_flow(
        &mut self,
        flows: &mut Flows,
        input: usize,
        table: usize,
        id: FlowId,
        packet: &Packet,
        now: Time,
    ) -> Result<usize, Option<usize>> {
        let Rules { ends, specs, random, .. } = self;
        let is_taken = |id: FlowId| flows.find_flow(table, ends.complete_flow(id).reverse()).is_some();
        let begun = match &specs[input] {
            InputSpec::Drop => return Err(None),
            InputSpec::Pass(output) => return Err(Some(*output)),
            InputSpec::Keep(outputs) => Some((id, *outputs)),
            InputSpec::Pattern(rule) => {
                let rewritten = rule.pattern.rewrite_flow(id, random, is_taken);
                rewritten.map(|rewritten| (rewritten, rule.outputs))
            }
            InputSpec::Mapper(mapper) => mapper.rewrite_flow(id, random, is_taken),
        };
        // A kind that uses only some of the ends must not change the others.
        let begun = begun.map(|(rewritten, outputs)| (self.ends.complete_flow(rewritten), outputs));
        let begun = begun.filter(|(rewritten, _)| self.ends.allows_flow(*rewritten));
        let timeouts = self.timeouts[table];
        let reply_annotation = self.reply_annotation.map_or(0, |at| packet.annotation::<1>(at)[0]);
        let added = begun.and_then(|(rewritten, outputs)| {
            let ids = [id, rewritten.reverse()];
            let flow = Flow {
                table,
                ids,
                outputs,
                input,
                reply_annotation,
                state: 0,
                timeout: timeouts.idle,
                used: now,
            };
            flows.insert_flow(flow, now, timeouts.guarantee)
        });
        if added.is_none() {
            self.failures += 1;
        }
        added.ok_or(None)
    }

    fn rewrite_packet(&mut self, flows: &mut Flows, input: usize, mut packet: Packet, cx: &mut Context<'_>) {
        let Some((table, id, reverse)) = self.ends.flow_of(&packet) else {
            return self.send_stranger(input, packet, cx);
        };
        let now = cx.now();
        let known = flows.find_flow(table, id).or_else(|| flows.find_flow(table, reverse?));
        let (number, direction) = match known {
            Some(found) => found,
            None if !self.ends.begins_flow(id) => return self.send_stranger(input, packet, cx),
            None => match self.begin_flow(flows, input, table, id, &packet, now) {
                Ok(number) => (number, 0),
                Err(Some(output)) => return cx.send(output, packet),
                Err(None) => return cx.discard(packet, DropReason::NoMatch),
            },
        };
        let flow = flows.get_mut(number);
        let rewritten = flow.rewritten_id(direction);
        let dst = apply::rewrite_packet(&mut packet, self.ends, direction, rewritten);
        if let Some(dst) = dst.filter(|_| self.dst_annotation) {
            packet.set_dst_ip(dst);
        }
        if let (1, Some(at)) = (direction, self.reply_annotation) {
            packet.set_annotation(at, [flow.reply_annotation]);
        }
        flow.state = apply::next_state(&packet, flow.state, direction);
        flow.timeout = apply::flow_timeout(self.ends, flow.table, flow.state, &self.timeouts[table]);
        flow.used = now;
        let output = flow.outputs[direction];
        cx.send_or_discard(output, packet, DropReason::NoOutput);
    }

    /// Sends a packet that can be of no flow.
    fn send_stranger(&self, input: usize, packet: Packet, cx: &mut Context<'_>) {
        match &self.specs[input] {
            InputSpec::Pass(output) => cx.send(*output, packet),
            _ => cx.discard(packet, DropReason::NoMatch),
        }
    }

    fn spec_text(&self, n: usize) -> Option<String> {
        Some(match self.specs.get(n)? {
            InputSpec::Drop => "<drop>".into(),
            InputSpec::Pass(_) => "<nochange>".into(),
            InputSpec::Keep(_) => "<keep>".into(),
            InputSpec::Pattern(rule) => rule.pattern.to_string(),
            InputSpec::Mapper(_) => "<mapper>".into(),
        })
    }
}

impl Rewriter {
    pub(super) fn len(&mut self) -> String {
        self.table.lock_flows().len().to_string()
    }
    pub(super) fn failures_text(&self) -> String {
        self.rules.failures.to_string()
    }
    pub(super) fn capacity_text(&mut self) -> String {
        self.table.lock_flows().capacity().to_string()
    }
    pub(super) fn set_capacity(&mut self, text: &str, cx: &mut Context<'_>) -> Result<(), HandlerError> {
        let capacity: u32 = parse_value(text)?;
        let mut flows = self.table.lock_flows();
        let set = flows.set_capacity(capacity as usize);
        set.map_err(|_| HandlerError::refused(no_memory(capacity)))?;
        flows.expire_flows(cx.now());
        Ok(())
    }
    pub(super) fn clear(&mut self, _: &str, _: &mut Context<'_>) -> Result<(), HandlerError> {
        self.table.lock_flows().remove_if(|_| true);
        Ok(())
    }
    pub(super) fn patterns_text(&mut self) -> String {
        (0..self.rules.specs.len()).map(|n| self.describe_input(n)).collect()
    }

    fn describe_input(&mut self, n: usize) -> String {
        let spec = self.rules.spec_text(n).unwrap_or_default();
        match self.table.lock_flows().iter().filter(|flow| flow.input == n).count() {
            0 => format!("{spec}\n"),
            count => format!("{spec} [{count}]\n"),
        }
    }

    fn pattern_number(&self, name: &str) -> Result<usize, HandlerError> {
        let number = name.strip_prefix("pattern").and_then(|n| n.parse().ok());
        number
            .filter(|n| *n < self.rules.specs.len())
            .ok_or_else(|| HandlerError::NoHandler(name.to_string()))
    }
    fn pattern_text(&mut self, call: &str) -> Result<String, HandlerError> {
        let n = self.pattern_number(call.split(' ').next().unwrap_or_default())?;
        Ok(self.describe_input(n))
    }
    fn set_pattern(&mut self, call: &str) -> Result<(), HandlerError> {
        let (name, spec) = call.split_once(' ').unwrap_or((call, ""));
        let n = self.pattern_number(name)?;
        let spec = parse_words(&text::split_words(spec), &self.names);
        self.rules.specs[n] = spec.map_err(|why| HandlerError::refused(format!("input spec {n}: {why}")))?;
        self.table.lock_flows().remove_if(|flow| flow.input == n);
        Ok(())
    }

    /// The flows of a table, a line for each direction.
    pub(super) fn table_text(&mut self, table: usize, now: Time) -> String {
        let (mut lines, flows) = (String::new(), self.table.lock_flows());
        for flow in flows.iter().filter(|flow| flow.table == table) {
            for direction in [0, 1] {
                let (id, rewritten) = (flow.ids[direction], flow.rewritten_id(direction));
                let [forth, back] = flow.outputs;
                let outputs =
                    if direction == 0 { format!("*{forth} {back}") } else { format!("{forth} *{back}") };
                let left = (flow.expiry_time().since(now) + Duration::from_millis(500)).as_secs();
                // Writing to a string can't fail.
                let _ = writeln!(
                    lines,
                    "{} [{outputs}] i{} exp{left}",
                    self.rules.ends.describe_mapping(id, rewritten),
                    flow.input
                );
            }
        }
        lines
    }

    /// The rewritten ends of packets with these ends: `SADDR SPORT DADDR DPORT`.
    pub(super) fn lookup_text(&mut self, call: &str) -> Result<String, HandlerError> {
        let words = text::split_words(call);
        let wrong = || HandlerError::refused("wants SADDR SPORT DADDR DPORT");
        let [src, sport, dst, dport] = &words[..] else { return Err(wrong()) };
        let (src, dst): (Ipv4Addr, Ipv4Addr) = (parse_value(src)?, parse_value(dst)?);
        let id = FlowId { src, sport: parse_value(sport)?, dst, dport: parse_value(dport)? };
        let mut flows = self.table.lock_flows();
        let Some((number, direction)) = flows.find_flow(0, id) else { return Ok(String::new()) };
        let FlowId { src, sport, dst, dport } = flows.get_mut(number).rewritten_id(direction);
        Ok(format!("{src} {sport} {dst} {dport}"))
    }
}

fn no_memory(capacity: u32) -> String {
    format!("cannot allocate memory for {capacity} flows; lower CAPACITY")
}

/// Parses the rule for an input's packets.
fn parse_spec(spec: &str, args: &Args<'_>) -> Result<InputSpec, String> {
    let words = text::split_words(spec);
    let outputs = args.outputs();
    let in_range = |spec| match &spec {
        InputSpec::Pass(output) if *output >= outputs => Err("output port out of range".into()),
        InputSpec::Keep(used) | InputSpec::Pattern(Rule { outputs: used, .. })
            if used.iter().any(|n| *n >= outputs) =>
        {
            Err("output port out of range".into())
        }
        _ => Ok(spec),
    };
    match &words[..] {
        [] => Err("empty argument".into()),
        [word, rest @ ..] if word == "pattern" || word == "xpattern" => {
            Rule::parse_rule(rest, args).map(InputSpec::Pattern).and_then(in_range)
        }
        [name, rest @ ..] if args.find_element(name).is_some() => {
            let full = args.find_element(name).and_then(|n| args.elements().find(|(number, _)| *number == n));
            let mapper = full.and_then(|(_, name)| args.resource::<NamedPatterns>().find_mapper(name));
            match mapper {
                _ if !rest.is_empty() => Err("syntax error, expected element name".into()),
                Some(mapper) => Ok(InputSpec::Mapper(mapper)),
                None => Err("element is not an IPMapper".into()),
            }
        }
        words => parse_words(words, args.names()).and_then(in_range),
    }
}

/// The same without names of patterns and elements.
fn parse_words(words: &[String], names: &Names) -> Result<InputSpec, String> {
    let Some((word, rest)) = words.split_first() else { return Err("empty argument".into()) };
    match (word.as_str(), rest) {
        ("pass" | "passthrough" | "nochange", []) => Ok(InputSpec::Pass(0)),
        ("pass" | "passthrough" | "nochange", [output]) => output
            .parse()
            .map(InputSpec::Pass)
            .map_err(|_| "syntax error, expected 'nochange [OUTPUT]'".into()),
        ("pass" | "passthrough" | "nochange", _) => Err("syntax error, expected 'nochange [OUTPUT]'".into()),
        ("keep", outputs) => parse_outputs(outputs, names).map(InputSpec::Keep),
        ("drop" | "discard", []) => Ok(InputSpec::Drop),
        ("drop" | "discard", _) => Err(format!("syntax error, expected '{word}'")),
        ("pattern" | "xpattern", words) => {
            let Some((words, outputs)) = words.split_last_chunk::<2>() else {
                return Err("syntax error".into());
            };
            let pattern = Arc::new(super::pattern::Pattern::parse_words(words, names)?);
            Ok(InputSpec::Pattern(Rule { pattern, outputs: parse_outputs(outputs, names)? }))
        }
        _ => Err("unknown specification".into()),
    }
}

impl Element for Rewriter {
    fn push(&mut self, input: usize, batch: &mut Batch, cx: &mut Context<'_>) {
        let mut flows = self.table.lock_flows();
        for packet in batch.drain() {
            self.rules.rewrite_packet(&mut flows, input, packet, cx);
        }
    }

    fn run_task(&mut self, cx: &mut Context<'_>) -> bool {
        let now = cx.now();
        self.table.lock_flows().expire_flows(now);
        if !self.reap_interval.is_zero() {
            cx.wake_at(now + self.reap_interval);
        }
        false
    }

    /// Restores the flows of inputs whose rule is unchanged.
    fn take_state(&mut self, old: &mut dyn Any, cx: &mut Context<'_>) {
        let Some(old) = old.downcast_mut::<Rewriter>().filter(|old| old.rules.ends == self.rules.ends) else {
            return;
        };
        let rules = &self.rules;
        let stays = |n: usize| rules.spec_text(n).is_some() && rules.spec_text(n) == old.rules.spec_text(n);
        let stay: Vec<bool> = (0..old.rules.specs.len()).map(stays).collect();
        let mut flows = self.table.lock_flows();
        for flow in old.table.lock_flows().drain_flows().filter(|flow| stay[flow.input]) {
            if flow.outputs.iter().all(|output| *output < cx.outputs()) {
                let guarantee = rules.timeouts[flow.table].guarantee;
                flows.insert_flow(flow, cx.now(), guarantee);
            }
        }
    }

    fn start(&mut self, cx: &mut Context<'_>) -> Result<(), StartError> {
        if !self.reap_interval.is_zero() {
            let next = cx.now() + self.reap_interval;
            cx.wake_at(next);
        }
        Ok(())
    }
}
