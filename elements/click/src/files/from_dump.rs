use super::trace::{Bound, FILE_HEADER, RECORD_HEADER, Trace, TraceWindow};
use super::transfer::{Source, probability_text, pull_from, resume_source, run_source};
use artery_common::chance::{self, SAMPLE_BITS};
use artery_common::network_header;
use artery_device::{DeviceError, Record};
use artery_engine::{
    Arg, ArgError, Args, Batch, Class, Context, DropReason, Element, Handler, HandlerError, Limit, Packet,
    Show, SignalKinds, StartError, Time, Write, parse_value,
};
use artery_lang::args as text;
use artery_wire::Random;
use std::any::Any;
use std::time::Duration;

pub static CLASS: Class = Class {
    name: "FromDump",
    group: "files",
    summary: "sends the packets of a pcap file",
    manual: "
Reads a file as tcpdump, ToDump and others write it (classic pcap, either byte order, micro- or nanoseconds;
`-` is standard input) and sends its packets with their timestamps. With TIMING they leave in the pace in
which they were captured. The part of the file from START or START_AFTER to END, END_AFTER or INTERVAL is
sent, and of that the share SAMPLE. With STOP the router is asked to stop at the end; END_CALL is a handler to
write instead.

With FORCE_IP only IP packets leave by output 0, their header marked and their destination annotation set;
others leave by output 1 or are dropped. Bytes that were on the wire and not in the file are counted in the
extra length annotation. When a damaged file has been sent up to the damage, that is reported with its place,
and the run counts as failed: the program's exit status is 1.

LOOP plays a file several times, or -1 for ever, from memory: for benchmarks. Of a packed file or a stream at
most 4 GiB are kept. Files that gzip packed are read, too; places are those in the unpacked file. `filepos`
goes to a place far behind bit by bit, so that packets elsewhere don't wait; that no record begins there turns
out later then, and is reported as damage is.",
    example: "FromDump(trace.pcap, STOP true) -> CheckIPHeader(14) -> Discard;",
    ports: "0/1-2",
    processing: "a/ah",
    args: &[
        Arg::required("FILENAME", "filename", "the file, `-` for standard input"),
        Arg::optional("TIMING", "bool", "false", "whether to keep the pace of the file"),
        Arg::keyword("STOP", "bool", "false", "whether to stop the router at the end"),
        Arg::keyword("ACTIVE", "bool", "true", "whether to send packets"),
        Arg::keyword("SAMPLE", "probability", "1", "share of packets to send"),
        Arg::keyword("FORCE_IP", "bool", "false", "whether to send IP packets only, with marked headers"),
        Arg::keyword("START", "seconds since 1970", "", "skips packets before this time"),
        Arg::keyword("START_AFTER", "time", "", "skips so much of the beginning"),
        Arg::keyword("END", "seconds since 1970", "", "ends at this time"),
        Arg::keyword("END_AFTER", "time", "", "ends so long after the file's first packet"),
        Arg::keyword("INTERVAL", "time", "", "ends so long after the first packet sent"),
        Arg::keyword("END_CALL", "handler call", "", "handler to write at the end"),
        Arg::keyword("FILEPOS", "bytes", "0", "where in the file to begin: the place of a record"),
        Arg::keyword("LOOP", "number", "1", "how often to play the file; -1 for ever"),
        Arg::keyword("MMAP", "bool", "false", "accepted and without effect"),
    ],
    handlers: &[
        Handler::read("count", "packets sent", &Show(|f: &mut FromDump| f.count)),
        Handler::write("reset_counts", "sets count to zero", &Write(FromDump::reset_counts)).button(),
        Handler::read("active", "ACTIVE", &Show(|f: &mut FromDump| f.active))
            .and_write(&Write(|f: &mut FromDump, text, cx| f.set_handler("active", text, cx))),
        Handler::write(
            "stop",
            "stops sending, and the router",
            &Write(|f: &mut FromDump, text, cx| f.set_handler("stop", text, cx)),
        )
        .button(),
        Handler::read(
            "sampling_prob",
            "SAMPLE as it is applied",
            &Show(|f: &mut FromDump| probability_text(f.sample, SAMPLE_BITS)),
        ),
        Handler::read("encap", "the file's link type", &Show(|f: &mut FromDump| f.encap_name())),
        Handler::read("filename", "FILENAME", &Show(|f: &mut FromDump| f.file_name())),
        Handler::read(
            "filesize",
            "the file's length in bytes, `-` if unknown",
            &Show(|f: &mut FromDump| f.size_text()),
        ),
        Handler::read(
            "filepos",
            "place of the next record in the file",
            &Show(|f: &mut FromDump| f.position_text()),
        )
        .and_write(&Write(|f: &mut FromDump, text, cx| f.set_handler("filepos", text, cx))),
        Handler::read(
            "packet_filepos",
            "place of the last packet sent in the file",
            &Show(|f: &mut FromDump| f.packet_position),
        ),
        Handler::write(
            "extend_interval",
            "moves the end by so much",
            &Write(|f: &mut FromDump, text, cx| f.set_handler("extend_interval", text, cx)),
        ),
        Handler::write(
            "reset_timing",
            "starts timing again",
            &Write(|f: &mut FromDump, text, cx| f.set_handler("reset_timing", text, cx)),
        )
        .button(),
    ],
    signals: SignalKinds::NonEmpty,
    build: |args| Ok(Box::new(FromDump::new(args)?)),
    ..Class::DEFAULT
};

/// Most records scanned in one run, so that skipping many does not delay other elements.
const LOOK: usize = 512;

struct FromDump {
    path: String,
    trace: Option<Trace>,
    /// How often to play the file, when not once.
    rounds: Option<Limit>,
    timing: bool,
    active: bool,
    force_ip: bool,
    sample: u32,
    random: Random,
    window: TraceWindow,
    /// Whether the end of the window counts.
    ends: bool,
    /// Whether `window` is absolute and the time offset known.
    bounds_resolved: bool,
    /// When the trace's first record left, and its own time.
    origin: (Time, Time),
    at_end: AtEnd,
    count: u64,
    /// FILEPOS, or zero for the beginning.
    start_position: u64,
    packet_position: u64,
    /// The file position of the next packet to send, until it is reached.
    sought: Option<u64>,
    /// Whether the end of the file was reached.
    exhausted: bool,
}

/// What happens at the end.
#[derive(Clone)]
enum AtEnd {
    Nothing,
    Deactivate,
    Call(String),
}

/// The result of reading a record.
enum Step {
    Packet(Packet),
    Passed,
    /// The next packet is due later.
    Early(Time),
    /// The pool is empty.
    NoFrame,
    /// The rest of the file is not wanted.
    End,
    /// The end of the trace was reached.
    Exhausted,
}

impl FromDump {
    fn new(args: &mut Args<'_>) -> Result<FromDump, ArgError> {
        let window = read_window(args)?;
        let rounds: Limit = args.read("LOOP")?;
        args.read::<bool>("MMAP")?;
        let sample = chance::read_sample(args)?;
        Ok(FromDump {
            path: args.read("FILENAME")?,
            trace: None,
            rounds: (rounds != Limit(Some(1))).then_some(rounds),
            timing: args.read("TIMING")?,
            active: args.read("ACTIVE")?,
            force_ip: args.read("FORCE_IP")?,
            sample,
            random: chance::new_random(args),
            at_end: at_end(args, &window)?,
            ends: window.last.is_some(),
            window,
            bounds_resolved: false,
            origin: (Time::ZERO, Time::ZERO),
            count: 0,
            start_position: args.read("FILEPOS")?,
            packet_position: 0,
            sought: None,
            exhausted: false,
        })
    }

    fn reset_counts(&mut self, _: &str, _: &mut Context<'_>) -> Result<(), HandlerError> {
        self.count = 0;
        Ok(())
    }

    fn file_name(&self) -> String {
        if self.path == "-" { "<stdin>".into() } else { self.path.clone() }
    }

    /// Opens the file at the record at `position`, or at its start if that is zero.
    fn open_at(&self, position: u64) -> Result<Trace, String> {
        let mut trace = match self.rounds {
            None => Trace::open_once(&self.path).map_err(|error| error.to_string())?,
            Some(Limit(rounds)) => Trace::open_looping(&self.path, rounds)?,
        };
        if position > 0 {
            trace.go_towards(position, usize::MAX).map_err(|why| self.in_file(&why))?;
        }
        Ok(trace)
    }
    fn in_file(&self, why: &str) -> String {
        format!("{}: {why}", self.path)
    }

    /// Seeks to the record at `position` while packets move: at once in memory, else in steps of one run.
    fn go_to(&mut self, position: u64) -> Result<(), String> {
        if self.path == "-" {
            return Err("standard input has no places to go to".into());
        }
        let position = if position == 0 { FILE_HEADER } else { position };
        let Limit(rounds) = self.rounds.unwrap_or(Limit(Some(1)));
        let in_memory = self.trace.as_mut().map(|trace| trace.go_in_memory(position, rounds));
        if !in_memory.unwrap_or(Ok(false)).map_err(|why| self.in_file(&why))? {
            let mut trace = Trace::open_once(&self.path).map_err(|error| error.to_string())?;
            let is_there = trace.go_towards(position, LOOK).map_err(|why| self.in_file(&why))?;
            // It may be another file by now.
            self.check_link(&trace).map_err(|error| error.message)?;
            self.sought = (!is_there).then_some(position);
            self.trace = Some(trace);
        }
        self.exhausted = false;
        Ok(())
    }
    /// Continues a seek; returns whether the next record is the one to send.
    fn is_at_place(&mut self, cx: &mut Context<'_>) -> bool {
        let (Some(position), Some(trace)) = (self.sought, &mut self.trace) else { return true };
        match trace.go_towards(position, LOOK) {
            Ok(false) => return false,
            Ok(true) => {}
            Err(why) => {
                self.trace = None;
                cx.report_failure(&format!("{} :: FromDump: {}", cx.name(), self.in_file(&why)));
            }
        }
        self.sought = None;
        true
    }

    fn check_link(&mut self, trace: &Trace) -> Result<(), StartError> {
        self.force_ip |= trace.link_type() == artery_device::LinkType::IP;
        if self.force_ip && !network_header::is_known(trace.link_type()) {
            let link = trace.link_type();
            return Err(StartError::new(format!(
                "{}: unknown linktype {link}; can't force IP packets",
                self.path
            )));
        }
        Ok(())
    }

    /// Handles the next record.
    fn next_step(&mut self, cx: &mut Context<'_>) -> Step {
        match self.try_step(cx) {
            Ok(step) => step,
            Err(error) => {
                self.trace = None;
                cx.report_failure(&format!("{} :: FromDump: {error}", cx.name()));
                Step::Exhausted
            }
        }
    }

    fn try_step(&mut self, cx: &mut Context<'_>) -> Result<Step, DeviceError> {
        let Some(trace) = &mut self.trace else { return Ok(Step::Exhausted) };
        let Some((record, starts_over)) = trace.peek()? else { return Ok(Step::Exhausted) };
        if !self.bounds_resolved {
            self.window.resolve_bounds(record.time);
        }
        if !self.bounds_resolved || starts_over {
            self.bounds_resolved = true;
            self.origin = (cx.now(), record.time);
        }
        if self.window.is_before(record.time) || !self.is_sampled() {
            trace_of(&mut self.trace).skip_record(&record)?;
            return Ok(Step::Passed);
        }
        if self.ends && self.window.is_after(record.time) {
            return Ok(Step::End);
        }
        if let Some(time) = self.send_time(&record).filter(|time| *time > cx.now()) {
            return Ok(Step::Early(time));
        }
        let trace = trace_of(&mut self.trace);
        let position = trace.position();
        let Some(packet) = trace.read_packet(&record, cx.pool())? else { return Ok(Step::NoFrame) };
        self.packet_position = position;
        Ok(self.classify_packet(packet, cx))
    }

    fn is_sampled(&mut self) -> bool {
        self.sample == 1 << SAMPLE_BITS || self.random.next_u32() >> (32 - SAMPLE_BITS) < self.sample
    }

    /// The send time of a record, with TIMING.
    fn send_time(&self, record: &Record) -> Option<Time> {
        let (start, first) = self.origin;
        self.timing.then(|| start + record.time.since(first))
    }

    fn classify_packet(&mut self, mut packet: Packet, cx: &mut Context<'_>) -> Step {
        let link = trace_of(&mut self.trace).link_type();
        if self.force_ip && !network_header::mark_network_header(&mut packet, link) {
            cx.send_or_discard(1, packet, DropReason::NoOutput);
            return Step::Passed;
        }
        self.count += 1;
        Step::Packet(packet)
    }

    /// Whether every record is sent, at once and as it is.
    fn is_plain(&self) -> bool {
        let is_whole = self.sample == 1 << SAMPLE_BITS && self.window.first.is_none() && !self.ends;
        is_whole
            && self.active
            && self.bounds_resolved
            && !self.timing
            && !self.force_ip
            && self.trace.as_ref().is_some_and(Trace::is_file)
    }

    /// Adds up to `max` packets to `into`, with buffers allocated together, up to a record that
    /// needs the general path.
    fn fill_plain(&mut self, max: usize, into: &mut Batch, cx: &mut Context<'_>) {
        let Some(trace) = &mut self.trace else { return };
        let mut frames = cx.scratch_batch();
        cx.pool().alloc_packets(max, &mut frames);
        let before = into.len();
        let taken = trace.read_plain(frames.drain(), into);
        cx.recycle_batch(frames);
        self.count += (into.len() - before) as u64;
        if let Some(last) = into.iter().last() {
            self.packet_position = trace.position() - RECORD_HEADER - last.len() as u64;
        }
        if let Err(error) = taken {
            self.trace = None;
            cx.report_failure(&format!("{} :: FromDump: {error}", cx.name()));
        }
    }

    /// Does what shall happen at the end when the file has no more for the first time.
    fn note_exhaustion(&mut self, cx: &mut Context<'_>) {
        if !std::mem::replace(&mut self.exhausted, true) {
            self.run_end_action(cx);
        }
    }

    /// Does what shall happen at the end.
    fn run_end_action(&mut self, cx: &mut Context<'_>) {
        match self.at_end.clone() {
            AtEnd::Nothing => {}
            AtEnd::Deactivate => self.active = false,
            AtEnd::Call(call) => {
                if let Err(error) = self.call_handler(&call, cx) {
                    cx.print_message(&format!("{} :: FromDump: While calling '{call}': {error}", cx.name()));
                }
            }
        }
    }

    fn call_handler(&mut self, call: &str, cx: &mut Context<'_>) -> Result<(), HandlerError> {
        let (name, value) = text::shift_word(call);
        match name.rsplit_once('.') {
            Some((element, handler)) if cx.find_element(element) == Some(cx.number()) => {
                self.set_handler(handler, value, cx)
            }
            _ => cx.write_handler(name, value),
        }
    }

    /// The handlers that are written.
    fn set_handler(&mut self, name: &str, text: &str, cx: &mut Context<'_>) -> Result<(), HandlerError> {
        match name {
            "active" => {
                self.active = parse_value(text)?;
                resume_source(self.active, cx);
            }
            "stop" => {
                self.active = false;
                cx.request_stop();
            }
            "extend_interval" => {
                let by: Duration = parse_value(text)
                    .map_err(|_| HandlerError::refused("'extend_interval' takes a time interval"))?;
                self.window.extend_end(by);
                self.ends = self.window.last.is_some();
                self.active = true;
                resume_source(self.active, cx);
            }
            "filepos" => {
                let position =
                    parse_value(text).map_err(|_| HandlerError::refused("argument must be file offset"))?;
                self.go_to(position).map_err(HandlerError::refused)?;
            }
            "reset_timing" => self.bounds_resolved = false,
            _ => return Err(HandlerError::NotWritable(format!("{}.{name}", cx.name()))),
        }
        Ok(())
    }

    fn encap_name(&self) -> String {
        self.trace.as_ref().map(|trace| trace.link_type().to_string()).unwrap_or_default()
    }
    fn position_text(&self) -> String {
        self.sought.unwrap_or_else(|| self.trace.as_ref().map_or(0, Trace::position)).to_string()
    }
    fn size_text(&self) -> String {
        std::fs::metadata(&self.path)
            .ok()
            .filter(|file| file.is_file())
            .map_or("-".into(), |file| file.len().to_string())
    }
}

/// The trace that a step has seen to be there.
fn trace_of(trace: &mut Option<Trace>) -> &mut Trace {
    trace.as_mut().expect("only `step` closes the trace, at its end")
}

/// The part of the file that the arguments select.
fn read_window(args: &Args<'_>) -> Result<TraceWindow, ArgError> {
    let at = |name| {
        Ok::<_, ArgError>(args.read::<Option<Duration>>(name)?.map(|time| Bound::At(Time::ZERO + time)))
    };
    let after = |name| args.read::<Option<Duration>>(name);
    let starts = [at("START")?, after("START_AFTER")?.map(Bound::AfterFirstRecord)];
    let ends = [
        at("END")?,
        after("END_AFTER")?.map(Bound::AfterFirstRecord),
        after("INTERVAL")?.map(Bound::AfterStart),
    ];
    if starts.iter().flatten().count() > 1 {
        return Err(ArgError::wrong("START and START_AFTER are mutually exclusive"));
    }
    if ends.iter().flatten().count() > 1 {
        return Err(ArgError::wrong("END, END_AFTER, and INTERVAL are mutually exclusive"));
    }
    Ok(TraceWindow { first: starts.into_iter().flatten().next(), last: ends.into_iter().flatten().next() })
}

fn at_end(args: &Args<'_>, window: &TraceWindow) -> Result<AtEnd, ArgError> {
    let call: Option<String> = args.read("END_CALL")?;
    let stop: bool = args.read("STOP")?;
    match call.filter(|call| !call.is_empty()) {
        Some(_) if stop => Err(ArgError::wrong("END_CALL and STOP are mutually exclusive")),
        Some(call) => Ok(AtEnd::Call(call)),
        None if stop => Ok(AtEnd::Call(format!("{}.stop", args.name()))),
        None if window.last.is_some() => Ok(AtEnd::Deactivate),
        None => Ok(AtEnd::Nothing),
    }
}

impl Source for FromDump {
    fn fill_batch(&mut self, max: usize, into: &mut Batch, cx: &mut Context<'_>) -> bool {
        if !self.active || !self.is_at_place(cx) {
            return self.active;
        }
        if self.is_plain() {
            self.fill_plain(max, into, cx);
        }
        let mut looked = 0;
        while self.active && into.len() < max && looked < LOOK {
            looked += 1;
            match self.next_step(cx) {
                Step::Packet(packet) => into.push(packet),
                Step::Passed => {}
                Step::NoFrame => return true,
                Step::Early(time) => {
                    cx.wake_at(time);
                    return false;
                }
                Step::End => {
                    self.ends = false;
                    self.run_end_action(cx);
                }
                Step::Exhausted => {
                    self.note_exhaustion(cx);
                    return false;
                }
            }
        }
        self.active
    }
}

impl Element for FromDump {
    fn pull(&mut self, _output: usize, max: usize, into: &mut Batch, cx: &mut Context<'_>) {
        pull_from(self, max, into, cx);
    }

    fn run_task(&mut self, cx: &mut Context<'_>) -> bool {
        run_source(self, cx)
    }

    fn start(&mut self, cx: &mut Context<'_>) -> Result<(), StartError> {
        let is_in_use = self.path == "-" && cx.is_replacing();
        if !is_in_use {
            let trace = self.open_at(self.start_position).map_err(StartError::new)?;
            self.check_link(&trace)?;
            self.trace = Some(trace);
        }
        resume_source(self.active, cx);
        Ok(())
    }

    fn take_state(&mut self, old: &mut dyn Any, cx: &mut Context<'_>) {
        let Some(old) = old.downcast_mut::<FromDump>().filter(|old| old.path == self.path) else { return };
        if let Some(trace) = old.trace.take() {
            if let Err(error) = self.check_link(&trace) {
                cx.print_message(&format!("{} :: FromDump: {}", cx.name(), error.message));
            }
            self.trace = Some(trace);
            self.origin = old.origin;
            self.bounds_resolved = old.bounds_resolved;
            self.window =
                TraceWindow { first: self.window.first.or(old.window.first), last: self.window.last };
            self.packet_position = old.packet_position;
            self.sought = old.sought;
            self.count = old.count;
        }
        resume_source(self.active, cx);
    }
}

#[cfg(test)]
#[path = "from_dump_tests.rs"]
mod tests;
