use super::summary::{Defaults, Field, FlowEnds, PacketDraft, VERSION, apply_column, named_protocol};
use super::summary_lines::Lines;
use super::to_ip_summary_dump::Raw;
use super::transfer::{Source, probability_text, pull_from, resume_source, run_source};
use artery_common::chance::{self, SAMPLE_BITS};
use artery_engine::names::Names;
use artery_engine::{
    Arg, ArgError, ArgValue, Args, Batch, Class, Context, Element, Handler, HandlerError, Packet, Show,
    SignalKinds, StartError, Time, Write, anno, parse_value,
};
use artery_lang::args as text;
use artery_wire::Random;
use std::net::Ipv4Addr;
use std::time::Duration;

pub static CLASS: Class = Class {
    name: "FromIPSummaryDump",
    group: "files",
    summary: "makes packets of lines of text that describe them",
    manual: "
Reads FILENAME (`-` is standard input), or the text DATA, and makes a packet of each line. A line `!data`
names the columns, as ToIPSummaryDump writes them and explains them; FIELDS names them where no such line
does. Columns that are `-` or left out at the end say nothing. Other lines that begin with `!` or `#` are
passed over, except for these: `!proto` names the IP protocol of packets whose lines don't, and
`!flowid SRC SPORT DST DPORT [PROTO]` their addresses and ports; so do PROTO and FLOWID.

Headers are made as fields need them. Bytes that nothing tells of are zero, and lengths are filled in;
checksums only with CHECKSUM, which also lengthens packets to what their IP header says. What a packet is
longer than it has bytes is in its extra length annotation. Packets with an IP header have their headers
marked and their destination annotation set.

With TIMING packets leave in the pace of their timestamps, with MULTIPACKET a line makes as many packets as
its column `count` says. SAMPLE is the share of packets to send. With STOP the router is asked to stop at the
end.",
    example: "FromIPSummaryDump(DATA \"!data src dst sport\n\
        10.0.0.1 10.0.0.2 80\", STOP true) -> IPPrint -> Discard;",
    ports: "0/1",
    args: &[
        Arg::optional("FILENAME", "filename", "", "the file, `-` for standard input"),
        Arg::keyword("STOP", "bool", "false", "whether to stop the router at the end"),
        Arg::keyword("ACTIVE", "bool", "true", "whether to send packets"),
        Arg::keyword("ZERO", "bool", "true", "accepted and without effect: what nothing tells of is zero"),
        Arg::keyword("TIMING", "bool", "false", "whether to keep the pace of the file"),
        Arg::keyword("CHECKSUM", "bool", "false", "whether to set checksums"),
        Arg::keyword("SAMPLE", "probability", "1", "share of packets to send"),
        Arg::keyword("PROTO", "IP protocol", "6", "the protocol of packets whose line does not say"),
        Arg::keyword("MULTIPACKET", "bool", "false", "whether `count` makes that many packets"),
        Arg::keyword("FIELDS", "names", "", "the columns, until a line `!data`"),
        Arg::keyword("CONTENTS", "names", "", "the same"),
        Arg::keyword("DEFAULT_FIELDS", "names", "", "the same"),
        Arg::keyword("DEFAULT_CONTENTS", "names", "", "the same"),
        Arg::keyword(
            "FLOWID",
            "addresses and ports",
            "",
            "`SRC SPORT DST DPORT [PROTO]` of packets whose line does not say",
        ),
        Arg::keyword("DEFAULT_FLOWID", "addresses and ports", "", "the same"),
        Arg::keyword(
            "ALLOW_NONEXISTENT",
            "bool",
            "false",
            "whether a file that is not there counts as empty",
        ),
        Arg::keyword("DATA", "text", "", "what to read instead of a file"),
    ],
    handlers: &[
        Handler::read(
            "sampling_prob",
            "SAMPLE as it is applied",
            &Show(|f: &mut FromIpSummaryDump| probability_text(f.sample, SAMPLE_BITS)),
        ),
        Handler::read("active", "ACTIVE", &Show(|f: &mut FromIpSummaryDump| f.active))
            .and_write(&Write(FromIpSummaryDump::set_active)),
        Handler::read("encap", "what packets begin with", &Show(|_: &mut FromIpSummaryDump| "IP")),
        Handler::write("stop", "stops sending, and the router", &Write(FromIpSummaryDump::stop_all)).button(),
        Handler::read("filename", "FILENAME", &Show(|f: &mut FromIpSummaryDump| f.lines.name().to_string())),
        Handler::read(
            "filesize",
            "the file's length in bytes, `-` if unknown",
            &Show(|f: &mut FromIpSummaryDump| f.lines.size_text()),
        ),
        Handler::read(
            "filepos",
            "place of the next line in the file",
            &Show(|f: &mut FromIpSummaryDump| f.lines.position()),
        ),
    ],
    signals: SignalKinds::NonEmpty,
    build: |args| Ok(Box::new(FromIpSummaryDump::new(args)?)),
    ..Class::DEFAULT
};

/// Most lines scanned in one run, so that skipping many does not delay other elements.
const LOOK: usize = 512;

struct FromIpSummaryDump {
    lines: Lines,
    may_lack: bool,
    columns: Vec<Field>,
    /// Indexes of columns in the order in which they are applied to a packet.
    order: Vec<usize>,
    defaults: Defaults,
    checksums: bool,
    stops: bool,
    active: bool,
    timing: bool,
    multipacket: bool,
    sample: u32,
    random: Random,
    names: Names,
    /// When the first packet left, and its own time.
    origin: Option<(Time, Time)>,
    /// A packet that is due later, or that stands for several.
    held: Option<Packet>,
    pieces: Option<Pieces>,
    /// Whether an unreadable line was already reported.
    complained: bool,
    exhausted: bool,
}

/// What the packets of one line share.
struct Pieces {
    len: u32,
    step: Duration,
    last: Time,
}

/// The result of reading a line.
enum Step {
    Packet(Packet),
    Passed,
    /// The next packet is due later.
    Early(Time),
    /// The pool is empty.
    NoFrame,
    /// The end of the file was reached.
    Exhausted,
}

impl FromIpSummaryDump {
    fn new(args: &mut Args<'_>) -> Result<FromIpSummaryDump, ArgError> {
        args.read::<bool>("ZERO")?;
        let sample = chance::read_sample(args)?;
        let protocol = args.read("PROTO")?;
        let mut from = FromIpSummaryDump {
            lines: open_lines(args)?,
            may_lack: args.read("ALLOW_NONEXISTENT")?,
            columns: Vec::new(),
            order: Vec::new(),
            defaults: Defaults { protocol, ends: None, old_offsets: false },
            checksums: args.read("CHECKSUM")?,
            stops: args.read("STOP")?,
            active: args.read("ACTIVE")?,
            timing: args.read("TIMING")?,
            multipacket: args.read("MULTIPACKET")?,
            sample,
            random: chance::new_random(args),
            names: Names::default(),
            origin: None,
            held: None,
            pieces: None,
            complained: false,
            exhausted: false,
        };
        for name in ["DEFAULT_CONTENTS", "DEFAULT_FIELDS", "CONTENTS", "FIELDS"] {
            if let Some(Raw(names)) = args.read::<Option<Raw>>(name)? {
                from.set_columns(&text::split_words(&names)).into_iter().for_each(|why| args.warn(why, None));
            }
        }
        for name in ["DEFAULT_FLOWID", "FLOWID"] {
            if let Some(Raw(ends)) = args.read::<Option<Raw>>(name)? {
                from.set_ends(&text::split_words(&ends)).map_err(ArgError::wrong)?;
            }
        }
        Ok(from)
    }

    /// Sets the columns by their names; returns warnings.
    fn set_columns(&mut self, names: &[String]) -> Vec<String> {
        let mut odd = Vec::new();
        let mut column = |name: &String| {
            let name = text::unquote(name);
            let found = Field::find_field(&name).filter(|field| field.is_read());
            if found.is_none() {
                odd.push(format!("unknown content type '{name}'"));
            }
            found.unwrap_or(Field::None)
        };
        self.columns = names.iter().map(&mut column).collect();
        self.order = (0..self.columns.len()).collect();
        self.order.sort_by_key(|column| self.columns[*column].rank());
        if self.columns.is_empty() {
            odd.push("no contents specified".into());
        }
        odd
    }

    fn set_ends(&mut self, words: &[String]) -> Result<(), &'static str> {
        self.defaults.ends = None;
        let [src, sport, dst, dport, rest @ ..] = words else { return Err("bad !flowid specification") };
        let address = |word: &String| match word.as_str() {
            "-" => Some(Ipv4Addr::UNSPECIFIED),
            word => Ipv4Addr::parse(word, &self.names).ok(),
        };
        let port = |word: &String| if word == "-" { Some(0) } else { u16::parse(word, &self.names).ok() };
        let ends =
            || Some(FlowEnds { src: (address(src)?, port(sport)?), dst: (address(dst)?, port(dport)?) });
        let ends = ends().ok_or("bad !flowid specification")?;
        self.defaults.ends = Some(ends);
        if let Some(word) = rest.first() {
            let protocol = named_protocol(word, &self.names);
            self.defaults.protocol = protocol.ok_or("bad protocol in !flowid")?;
        }
        Ok(())
    }

    /// Handles a line that begins with `!`; returns warnings.
    fn parse_directive(&mut self, line: &str) -> Vec<String> {
        let words = text::split_words(line);
        match words[0].as_str() {
            "!data" | "!contents" => {
                let unknown = self.set_columns(&words[1..]).into_iter();
                return unknown.map(|why| format!("warning: {why}")).collect();
            }
            "!flowid" => return self.set_ends(&words[1..]).err().map(str::to_string).into_iter().collect(),
            "!proto" if words.len() == 2 => match named_protocol(&words[1], &self.names) {
                Some(protocol) => self.defaults.protocol = protocol,
                None => return vec!["bad protocol in !proto".into()],
            },
            "!proto" => return vec!["bad !proto".into()],
            "!binary" => {
                self.lines.close_input();
                return vec!["binary files are not read".into()];
            }
            _ => {}
        }
        Vec::new()
    }

    fn report_line(&self, what: &str, cx: &mut Context<'_>) {
        cx.print_message(&format!("{}:{}: {what}", self.lines.name(), self.lines.number()));
    }

    /// Makes a packet from the next line that describes one.
    fn read_packet(&mut self, cx: &mut Context<'_>) -> Step {
        let line = match self.lines.next() {
            Ok(Some(line)) => line,
            Ok(None) => return Step::Exhausted,
            Err(error) => {
                cx.report_failure(&format!("{} :: FromIPSummaryDump: {error}", cx.name()));
                return Step::Exhausted;
            }
        };
        if line.starts_with('!') {
            for what in self.parse_directive(&line) {
                self.report_line(&what, cx);
            }
            return Step::Passed;
        }
        if line.starts_with('#') || line.is_empty() {
            return Step::Passed;
        }
        match self.parse_packet(&line, cx) {
            Some(step) => step,
            None => {
                self.report_unreadable(&line, cx);
                Step::Passed
            }
        }
    }

    /// The packet of a line; none if no column of it can be read.
    fn parse_packet(&self, line: &str, cx: &mut Context<'_>) -> Option<Step> {
        let columns = split_columns(line, self.columns.len());
        let mut draft = PacketDraft::new(self.defaults);
        let mut count = 0;
        for &column in &self.order {
            let Some(text) = columns.get(column).filter(|text| **text != "-" && !text.is_empty()) else {
                continue;
            };
            count += u32::from(apply_column(&mut draft, self.columns[column], text, &self.names));
        }
        if count == 0 {
            return None;
        }
        Some(draft.build_packet(self.checksums, cx.pool()).map_or(Step::NoFrame, Step::Packet))
    }

    /// Warns of the first unreadable line only.
    fn report_unreadable(&mut self, line: &str, cx: &mut Context<'_>) {
        if line.trim().is_empty() || std::mem::replace(&mut self.complained, true) {
            return;
        }
        self.report_line(
            if self.columns.is_empty() { "no '!data' provided" } else { "packet parse error" },
            cx,
        );
    }

    fn next_step(&mut self, cx: &mut Context<'_>) -> Step {
        let packet = match self.held.take() {
            Some(packet) => packet,
            None => match self.read_packet(cx) {
                Step::Packet(packet) => packet,
                Step::NoFrame => {
                    self.lines.unread_line();
                    return Step::NoFrame;
                }
                other => return other,
            },
        };
        if let Some(time) = self.send_time(&packet, cx.now()) {
            self.held = Some(packet);
            return Step::Early(time);
        }
        let packet = if self.multipacket { self.split_packet(packet, cx) } else { Some(packet) };
        match packet {
            None => Step::NoFrame,
            Some(packet) if self.is_sampled() => Step::Packet(packet),
            Some(_) => Step::Passed,
        }
    }

    fn is_sampled(&mut self) -> bool {
        self.sample == 1 << SAMPLE_BITS || self.random.next_u32() >> (32 - SAMPLE_BITS) < self.sample
    }

    /// When a packet is to leave, if that is later than now.
    fn send_time(&mut self, packet: &Packet, now: Time) -> Option<Time> {
        if !self.timing {
            return None;
        }
        let (start, first) = *self.origin.get_or_insert((now, packet.timestamp()));
        Some(start + packet.timestamp().since(first)).filter(|time| *time > now)
    }

    /// Takes one of the packets that a packet stands for, and holds the rest. None, with all of them held,
    /// when no frame can be made.
    fn split_packet(&mut self, mut packet: Packet, cx: &mut Context<'_>) -> Option<Packet> {
        let number = |packet: &Packet, at| u32::from_ne_bytes(packet.annotation(at));
        let more = number(&packet, anno::EXTRA_PACKETS);
        if more == 0 {
            self.pieces = None;
            return Some(packet);
        }
        let pieces = self.pieces.get_or_insert_with(|| Pieces::new(&mut packet, more));
        let (len, step, last) = (pieces.len, pieces.step, pieces.last);
        let Some(mut piece) = cx.duplicate_packet(&packet) else {
            self.held = Some(packet);
            return None;
        };
        piece.set_annotation(anno::EXTRA_PACKETS, [0; 4]);
        piece.set_annotation(anno::EXTRA_LENGTH, len.saturating_sub(piece.len() as u32).to_ne_bytes());
        let rest = number(&packet, anno::EXTRA_LENGTH).wrapping_sub(len);
        packet.set_annotation(anno::EXTRA_PACKETS, (more - 1).to_ne_bytes());
        packet.set_annotation(anno::EXTRA_LENGTH, rest.to_ne_bytes());
        if more == 1 {
            packet.set_timestamp(last);
            set_lengths(&mut packet, rest);
        } else {
            packet.set_timestamp(packet.timestamp() + step);
        }
        self.held = Some(packet);
        Some(piece)
    }

    fn set_active(&mut self, text: &str, cx: &mut Context<'_>) -> Result<(), HandlerError> {
        self.active = parse_value(text)?;
        resume_source(self.active, cx);
        Ok(())
    }

    fn stop_all(&mut self, _: &str, cx: &mut Context<'_>) -> Result<(), HandlerError> {
        self.active = false;
        cx.request_stop();
        Ok(())
    }
}

/// The input of lines, from the arguments.
fn open_lines(args: &mut Args<'_>) -> Result<Lines, ArgError> {
    let path: Option<String> = args.read("FILENAME")?;
    let data: Option<Vec<u8>> = args.read("DATA")?;
    match (path.filter(|path| !path.is_empty()), data.filter(|data| !data.is_empty())) {
        (Some(_), Some(_)) => Err(ArgError::wrong("FILENAME and DATA conflict")),
        (None, None) => Err(ArgError::Missing("FILENAME")),
        (Some(path), None) => Ok(Lines::of_file(path)),
        (None, Some(data)) => Ok(Lines::of_text(data)),
    }
}

/// The first `count` words of a line; what stands in double quotes is in one word.
fn split_columns(line: &str, count: usize) -> Vec<&str> {
    let mut columns = Vec::with_capacity(count);
    let mut rest = line.trim_start();
    while columns.len() < count && !rest.is_empty() {
        let (mut quoted, mut escaped) = (false, false);
        let end = rest.find(|c: char| {
            let is_quote = c == '"' && !escaped;
            quoted ^= is_quote;
            escaped = quoted && c == '\\' && !escaped;
            !quoted && c.is_ascii_whitespace()
        });
        let (column, after) = rest.split_at(end.unwrap_or(rest.len()));
        columns.push(column);
        rest = after.trim_start();
    }
    columns
}

impl Pieces {
    /// Divides the packet's length and time among itself and `more` others.
    fn new(packet: &mut Packet, more: u32) -> Pieces {
        let own = packet.len() as u32;
        let extra = u32::from_ne_bytes(packet.annotation(anno::EXTRA_LENGTH));
        let mut len = own.saturating_add(extra) / (more + 1);
        if len < own {
            len = own;
            packet.set_annotation(anno::EXTRA_LENGTH, len.saturating_mul(more).to_ne_bytes());
        }
        let first = super::summary::first_timestamp(packet);
        let last = packet.timestamp();
        let mut step = Duration::ZERO;
        if first != Time::ZERO {
            step = last.since(first) / more;
            packet.set_timestamp(first);
        }
        set_lengths(packet, len - own);
        Pieces { len, step, last }
    }
}

/// Increases the lengths in the headers by `extra` bytes.
fn set_lengths(packet: &mut Packet, extra: u32) {
    let len = (packet.len() as u32).wrapping_add(extra) as u16;
    let Some(ip) = packet.network_mut().filter(|ip| ip.len() >= 20) else { return };
    ip[2..4].copy_from_slice(&len.to_be_bytes());
    let header = usize::from(ip[0] & 0xf) * 4;
    if let (17, Some(udp)) = (ip[9], ip.get_mut(header + 4..header + 6)) {
        udp.copy_from_slice(&len.wrapping_sub(header as u16).to_be_bytes());
    }
}

impl Source for FromIpSummaryDump {
    fn fill_batch(&mut self, max: usize, into: &mut Batch, cx: &mut Context<'_>) -> bool {
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
                Step::Exhausted => {
                    if !std::mem::replace(&mut self.exhausted, true) && self.stops {
                        cx.request_stop();
                    }
                    return false;
                }
            }
        }
        self.active
    }
}

impl Element for FromIpSummaryDump {
    fn pull(&mut self, _output: usize, max: usize, into: &mut Batch, cx: &mut Context<'_>) {
        pull_from(self, max, into, cx);
    }

    fn run_task(&mut self, cx: &mut Context<'_>) -> bool {
        run_source(self, cx)
    }

    fn start(&mut self, cx: &mut Context<'_>) -> Result<(), StartError> {
        self.lines.open_source(self.may_lack).map_err(StartError::new)?;
        let first = self.lines.peek().unwrap_or_default();
        if let Some(version) = first.strip_prefix("!IPSummaryDump") {
            let numbers =
                version.trim().split_once('.').and_then(|(a, b)| Some((a.parse().ok()?, b.parse().ok()?)));
            match numbers {
                Some((major, minor)) if major != VERSION.0 || minor > VERSION.1 => {
                    self.report_line(
                        &format!("warning: unexpected IPSummaryDump version {major}.{minor}"),
                        cx,
                    );
                }
                numbers => self.defaults.old_offsets = numbers == Some((1, 0)),
            }
        } else {
            let known = ["!creator", "!data", "!contents", "!proto", "!flowid"];
            let is_dump = known.iter().any(|start| first.starts_with(start));
            if !is_dump && !first.is_empty() && self.columns.is_empty() {
                self.report_line("warning: missing banner line; is this an IP summary dump?", cx);
            }
        }
        resume_source(self.active, cx);
        Ok(())
    }
}

#[cfg(test)]
#[path = "from_ip_summary_dump_tests.rs"]
mod tests;
