//! What IPRewriter, UDPRewriter, TCPRewriter, ICMPPingRewriter, IPAddrRewriter and IPAddrPairRewriter share: all but
//! which packets they take and which ends of a flow they look at.
use super::apply::{self, Ends};
use super::flows::{Flow, Flows};
use super::pattern::{FlowId, Mapper, Named, Rule, parse_outputs};
use super::shared_flows::{SharedFlows, Table};
use crate::chance::Random;
use crate::value::value;
use artery_engine::names::Names;
use artery_engine::{
    Annotation, ArgError, ArgValue, Args, Batch, Context, DropReason, Element, HandlerError, Packet,
    StartError, Time,
};
use artery_lang::args as text;
use std::any::Any;
use std::fmt::Write as _;
use std::net::Ipv4Addr;
use std::sync::Arc;
use std::time::Duration;

/// Arguments of all rewriters, behind their own.
macro_rules! arguments {
    ($($own:expr),* $(,)?) => {
        &[
            artery_engine::Arg::rest("INPUTSPEC", "drop, pass, keep, pattern or mapper", "what to do with packets of an input"),
            $($own,)*
            artery_engine::Arg::keyword("TIMEOUT", "seconds", "", "how long flows live on without packets"),
            artery_engine::Arg::keyword("GUARANTEE", "seconds", "5", "how long they live on even when there are too many"),
            artery_engine::Arg::keyword("CAPACITY", "flows", "65536", "how many flows there may be; memory is taken for all of them"),
            artery_engine::Arg::keyword("MAPPING_CAPACITY", "flows", "", "the same"),
            artery_engine::Arg::keyword("REAP_INTERVAL", "seconds", "900", "how often to look for flows that have ended"),
            artery_engine::Arg::keyword("REAP_TIME", "seconds", "", "older name of REAP_INTERVAL"),
            artery_engine::Arg::keyword("REPLY_ANNO", "annotation", "", "an annotation that replies get from the first packet"),
        ]
    };
}
pub(super) use arguments;

/// Handlers of all rewriters, behind their own.
macro_rules! handlers {
    ($($own:expr),* $(,)?) => {
        &[
            $($own,)*
            artery_engine::Handler::read("nmappings", "how many flows there are", &artery_engine::Read(|r: &mut Rewriter, _, _| Ok(r.len()))),
            artery_engine::Handler::read("mapping_failures", "how many flows found no room", &artery_engine::Read(|r: &mut Rewriter, _, _| Ok(r.failures()))),
            artery_engine::Handler::read("patterns", "what is done with packets of each input", &artery_engine::Read(|r: &mut Rewriter, _, _| Ok(r.patterns()))),
            artery_engine::Handler::read("size", "how many flows there are", &artery_engine::Read(|r: &mut Rewriter, _, _| Ok(r.len()))),
            artery_engine::Handler::read("table_size", "how many flows there are", &artery_engine::Read(|r: &mut Rewriter, _, _| Ok(r.len()))),
            artery_engine::Handler::read("capacity", "CAPACITY", &artery_engine::Read(|r: &mut Rewriter, _, _| Ok(r.capacity())))
                .and_write(&artery_engine::Write(Rewriter::set_capacity)),
            artery_engine::Handler::write("clear", "forgets all flows", &artery_engine::Write(Rewriter::clear)).button(),
        ]
    };
}
pub(super) use handlers;

/// The handlers `pattern0` and so on.
pub(super) static PATTERN_N: artery_engine::Handler = artery_engine::Handler::read(
    "patternN",
    "what is done with packets of input N",
    &artery_engine::Read(|r: &mut Rewriter, name, _| r.pattern(name)),
)
.and_write(&artery_engine::Write(|r: &mut Rewriter, name_and_text, _| r.set_pattern(name_and_text)));

/// How long flows live on without packets.
#[derive(Clone, Copy)]
pub(super) struct Timeouts {
    /// Those that have nothing to say for themselves.
    pub(super) idle: Duration,
    /// Those with data in both directions.
    pub(super) busy: Duration,
    /// TCP connections that are closed.
    pub(super) done: Duration,
    pub(super) guarantee: Duration,
}

impl Timeouts {
    /// The same for all flows of a kind.
    pub(super) fn all(idle: Duration, guarantee: Duration) -> Timeouts {
        Timeouts { idle, busy: idle, done: idle, guarantee }
    }
}

/// What is done with packets of an input that belong to no flow yet.
enum Spec {
    Drop,
    Pass(usize),
    Keep([usize; 2]),
    Pattern(Rule),
    Mapper(Arc<Mapper>),
}

/// A rewriter of any kind.
pub(super) struct Rewriter {
    table: Table,
    reap_interval: Duration,
    names: Names,
    rules: Rules,
}

/// All that a rewriter goes by but its flows.
struct Rules {
    ends: Ends,
    specs: Vec<Spec>,
    failures: u64,
    /// By table.
    timeouts: [Timeouts; 2],
    /// Whether to set the destination annotation.
    dst_annotation: bool,
    reply_annotation: Option<usize>,
    random: Random,
}

impl Rewriter {
    pub(super) fn new(
        args: &mut Args<'_>,
        ends: Ends,
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
            match parse(spec, args) {
                Ok(spec) => specs.push(spec),
                Err(why) => args.note(ArgError::wrong_at(spec, format!("input spec {n}: {why}"))),
            }
        }
        for n in 0..given.len() {
            args.declare_handler(&format!("pattern{n}"), "rw");
        }
        let flows = Flows::new(capacity as usize).map_err(|_| ArgError::wrong(no_memory(capacity)))?;
        Ok(Rewriter {
            table: args.resource::<SharedFlows>().table(args.name(), ends, args.outputs(), flows),
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
                random: Random::new(args),
            },
        })
    }
}

impl Rules {
    /// The flow of a packet that none had before; or the output that it leaves by as it is, or none.
    fn begin(
        &mut self,
        flows: &mut Flows,
        input: usize,
        table: usize,
        id: FlowId,
        packet: &Packet,
        now: Time,
    ) -> Result<usize, Option<usize>> {
        let Rules { ends, specs, random, .. } = self;
        let is_taken = |id: FlowId| flows.find(table, ends.complete(id).reverse()).is_some();
        let begun = match &specs[input] {
            Spec::Drop => return Err(None),
            Spec::Pass(output) => return Err(Some(*output)),
            Spec::Keep(outputs) => Some((id, *outputs)),
            Spec::Pattern(rule) => {
                let rewritten = rule.pattern.rewrite(id, random, is_taken);
                rewritten.map(|rewritten| (rewritten, rule.outputs))
            }
            Spec::Mapper(mapper) => mapper.rewrite(id, random, is_taken),
        };
        // What only some of the ends are looked at must not change the others.
        let begun = begun.map(|(rewritten, outputs)| (self.ends.complete(rewritten), outputs));
        let begun = begun.filter(|(rewritten, _)| self.ends.allows(*rewritten));
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
            flows.add(flow, now, timeouts.guarantee)
        });
        if added.is_none() {
            self.failures += 1;
        }
        added.ok_or(None)
    }

    fn rewrite(&mut self, flows: &mut Flows, input: usize, mut packet: Packet, cx: &mut Context<'_>) {
        let Some((table, id, reverse)) = self.ends.of(&packet) else {
            return self.send_stranger(input, packet, cx);
        };
        let now = cx.now();
        let known = flows.find(table, id).or_else(|| flows.find(table, reverse?));
        let (number, direction) = match known {
            Some(found) => found,
            None if !self.ends.begins(id) => return self.send_stranger(input, packet, cx),
            None => match self.begin(flows, input, table, id, &packet, now) {
                Ok(number) => (number, 0),
                Err(Some(output)) => return cx.send(output, packet),
                Err(None) => return cx.discard(packet, DropReason::NoMatch),
            },
        };
        let flow = flows.get_mut(number);
        let rewritten = flow.rewritten(direction);
        let dst = apply::rewrite(&mut packet, self.ends, direction, rewritten);
        if let Some(dst) = dst.filter(|_| self.dst_annotation) {
            packet.set_dst_ip(dst);
        }
        if let (1, Some(at)) = (direction, self.reply_annotation) {
            packet.set_annotation(at, [flow.reply_annotation]);
        }
        flow.state = apply::next_state(&packet, flow.state, direction);
        flow.timeout = apply::timeout(self.ends, flow.table, flow.state, &self.timeouts[table]);
        flow.used = now;
        let output = flow.outputs[direction];
        cx.send_or_discard(output, packet, DropReason::NoOutput);
    }

    /// Sends a packet that can be of no flow.
    fn send_stranger(&self, input: usize, packet: Packet, cx: &mut Context<'_>) {
        match &self.specs[input] {
            Spec::Pass(output) => cx.send(*output, packet),
            _ => cx.discard(packet, DropReason::NoMatch),
        }
    }

    fn spec(&self, n: usize) -> Option<String> {
        Some(match self.specs.get(n)? {
            Spec::Drop => "<drop>".into(),
            Spec::Pass(_) => "<nochange>".into(),
            Spec::Keep(_) => "<keep>".into(),
            Spec::Pattern(rule) => rule.pattern.to_string(),
            Spec::Mapper(_) => "<mapper>".into(),
        })
    }
}

/// Handlers.
impl Rewriter {
    pub(super) fn len(&mut self) -> String {
        self.table.lock().len().to_string()
    }
    pub(super) fn failures(&self) -> String {
        self.rules.failures.to_string()
    }
    pub(super) fn capacity(&mut self) -> String {
        self.table.lock().capacity().to_string()
    }
    pub(super) fn set_capacity(&mut self, text: &str, cx: &mut Context<'_>) -> Result<(), HandlerError> {
        let capacity: u32 = value(text)?;
        let mut flows = self.table.lock();
        let set = flows.set_capacity(capacity as usize);
        set.map_err(|_| HandlerError::refused(no_memory(capacity)))?;
        flows.reap(cx.now());
        Ok(())
    }
    pub(super) fn clear(&mut self, _: &str, _: &mut Context<'_>) -> Result<(), HandlerError> {
        self.table.lock().remove_if(|_| true);
        Ok(())
    }
    pub(super) fn patterns(&mut self) -> String {
        (0..self.rules.specs.len()).map(|n| self.describe(n)).collect()
    }

    fn describe(&mut self, n: usize) -> String {
        let spec = self.rules.spec(n).unwrap_or_default();
        match self.table.lock().iter().filter(|flow| flow.input == n).count() {
            0 => format!("{spec}\n"),
            count => format!("{spec} [{count}]\n"),
        }
    }

    fn number(&self, name: &str) -> Result<usize, HandlerError> {
        let number = name.strip_prefix("pattern").and_then(|n| n.parse().ok());
        number
            .filter(|n| *n < self.rules.specs.len())
            .ok_or_else(|| HandlerError::NoHandler(name.to_string()))
    }
    fn pattern(&mut self, call: &str) -> Result<String, HandlerError> {
        let n = self.number(call.split(' ').next().unwrap_or_default())?;
        Ok(self.describe(n))
    }
    fn set_pattern(&mut self, call: &str) -> Result<(), HandlerError> {
        let (name, spec) = call.split_once(' ').unwrap_or((call, ""));
        let n = self.number(name)?;
        let spec = parse_words(&text::words(spec), &self.names);
        self.rules.specs[n] = spec.map_err(|why| HandlerError::refused(format!("input spec {n}: {why}")))?;
        self.table.lock().remove_if(|flow| flow.input == n);
        Ok(())
    }

    /// The flows of a table, a line for each direction.
    pub(super) fn table(&mut self, table: usize, now: Time) -> String {
        let (mut lines, flows) = (String::new(), self.table.lock());
        for flow in flows.iter().filter(|flow| flow.table == table) {
            for direction in [0, 1] {
                let (id, rewritten) = (flow.ids[direction], flow.rewritten(direction));
                let [forth, back] = flow.outputs;
                let outputs =
                    if direction == 0 { format!("*{forth} {back}") } else { format!("{forth} *{back}") };
                let left = (flow.expiry().since(now) + Duration::from_millis(500)).as_secs();
                // Writing to a string can't fail.
                let _ = writeln!(
                    lines,
                    "{} [{outputs}] i{} exp{left}",
                    self.rules.ends.describe(id, rewritten),
                    flow.input
                );
            }
        }
        lines
    }

    /// What packets with these ends become: `SADDR SPORT DADDR DPORT`.
    pub(super) fn lookup(&mut self, call: &str) -> Result<String, HandlerError> {
        let words = text::words(call);
        let wrong = || HandlerError::refused("wants SADDR SPORT DADDR DPORT");
        let [src, sport, dst, dport] = &words[..] else { return Err(wrong()) };
        let (src, dst): (Ipv4Addr, Ipv4Addr) = (value(src)?, value(dst)?);
        let id = FlowId { src, sport: value(sport)?, dst, dport: value(dport)? };
        let mut flows = self.table.lock();
        let Some((number, direction)) = flows.find(0, id) else { return Ok(String::new()) };
        let FlowId { src, sport, dst, dport } = flows.get_mut(number).rewritten(direction);
        Ok(format!("{src} {sport} {dst} {dport}"))
    }
}

fn no_memory(capacity: u32) -> String {
    format!("there is no memory for {capacity} flows; CAPACITY says how many")
}

/// Reads what is to be done with an input's packets.
fn parse(spec: &str, args: &Args<'_>) -> Result<Spec, String> {
    let words = text::words(spec);
    let outputs = args.outputs();
    let in_range = |spec| match &spec {
        Spec::Pass(output) if *output >= outputs => Err("output port out of range".into()),
        Spec::Keep(used) | Spec::Pattern(Rule { outputs: used, .. })
            if used.iter().any(|n| *n >= outputs) =>
        {
            Err("output port out of range".into())
        }
        _ => Ok(spec),
    };
    match &words[..] {
        [] => Err("empty argument".into()),
        [word, rest @ ..] if word == "pattern" || word == "xpattern" => {
            Rule::parse(rest, args).map(Spec::Pattern).and_then(in_range)
        }
        [name, rest @ ..] if args.element(name).is_some() => {
            let full = args.element(name).and_then(|n| args.elements().find(|(number, _)| *number == n));
            let mapper = full.and_then(|(_, name)| args.resource::<Named>().mapper(name));
            match mapper {
                _ if !rest.is_empty() => Err("syntax error, expected element name".into()),
                Some(mapper) => Ok(Spec::Mapper(mapper)),
                None => Err("element is not an IPMapper".into()),
            }
        }
        words => parse_words(words, args.names()).and_then(in_range),
    }
}

/// The same where no names of patterns and no elements are known.
fn parse_words(words: &[String], names: &Names) -> Result<Spec, String> {
    let Some((word, rest)) = words.split_first() else { return Err("empty argument".into()) };
    match (word.as_str(), rest) {
        ("pass" | "passthrough" | "nochange", []) => Ok(Spec::Pass(0)),
        ("pass" | "passthrough" | "nochange", [output]) => {
            output.parse().map(Spec::Pass).map_err(|_| "syntax error, expected 'nochange [OUTPUT]'".into())
        }
        ("pass" | "passthrough" | "nochange", _) => Err("syntax error, expected 'nochange [OUTPUT]'".into()),
        ("keep", outputs) => parse_outputs(outputs, names).map(Spec::Keep),
        ("drop" | "discard", []) => Ok(Spec::Drop),
        ("drop" | "discard", _) => Err(format!("syntax error, expected '{word}'")),
        ("pattern" | "xpattern", words) => {
            let Some((words, outputs)) = words.split_last_chunk::<2>() else {
                return Err("syntax error".into());
            };
            let pattern = Arc::new(super::pattern::Pattern::parse(words, names)?);
            Ok(Spec::Pattern(Rule { pattern, outputs: parse_outputs(outputs, names)? }))
        }
        _ => Err("unknown specification".into()),
    }
}

impl Element for Rewriter {
    fn push(&mut self, input: usize, batch: &mut Batch, cx: &mut Context<'_>) {
        let mut flows = self.table.lock();
        for packet in batch.drain() {
            self.rules.rewrite(&mut flows, input, packet, cx);
        }
    }

    fn run(&mut self, cx: &mut Context<'_>) -> bool {
        let now = cx.now();
        self.table.lock().reap(now);
        if !self.reap_interval.is_zero() {
            cx.wake_at(now + self.reap_interval);
        }
        false
    }

    /// Takes over the flows of inputs with which the same is done as before.
    fn take_state(&mut self, old: &mut dyn Any, cx: &mut Context<'_>) {
        let Some(old) = old.downcast_mut::<Rewriter>().filter(|old| old.rules.ends == self.rules.ends) else {
            return;
        };
        let rules = &self.rules;
        let stays = |n: usize| rules.spec(n).is_some() && rules.spec(n) == old.rules.spec(n);
        let stay: Vec<bool> = (0..old.rules.specs.len()).map(stays).collect();
        let mut flows = self.table.lock();
        for flow in old.table.lock().take().filter(|flow| stay[flow.input]) {
            if flow.outputs.iter().all(|output| *output < cx.outputs()) {
                let guarantee = rules.timeouts[flow.table].guarantee;
                flows.add(flow, cx.now(), guarantee);
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
