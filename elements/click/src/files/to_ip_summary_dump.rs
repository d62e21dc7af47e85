use super::output_file::{OutputFile, io_message};
use super::summary::{Field, SummaryOptions, VERSION, describe_packet, first_timestamp};
use super::transfer::{pull_and_push, send_or_end};
use artery_device::{check_writable, create_private};
use artery_engine::{
    Arg, ArgError, Args, Batch, Class, Context, Element, Handler, HandlerError, Packet, Read, StartError,
    Time, Write, anno,
};
use artery_lang::args as text;
use std::any::Any;
use std::fmt::Write as _;
use std::fs::File;
use std::io::{self, BufWriter, Write as _};

pub static CLASS: Class = Class {
    name: "ToIPSummaryDump",
    group: "files",
    summary: "writes a line of text about each packet to a file",
    manual: "
Writes a line for each packet to FILENAME, or to standard output if that is `-`: the columns that FIELDS
names, with blanks between, and `-` where a column does not apply. FromIPSummaryDump reads such files. With an
output the packets go on, else they end here. The lines in front of the first packet say what the columns are;
HEADER leaves them out. Bytes that the extra length annotation counts belong to the packet. One that takes the
place of another of the same name, FILENAME and FIELDS goes on in its file; if that was renamed meanwhile, as
by a log rotation, it begins a new one.

Fields of annotations: `timestamp`, `ts_sec`, `ts_usec`, `ts_usec1` (all in microseconds), `first_timestamp`,
`count` (packets that this one stands for), `paint` or `link`, `direction` (`>` for paint 0, `<` for 1),
`aggregate`, `wire_len`. Of the Ethernet header: `eth_src`, `eth_dst`, `eth_type`.

Of the IP header, which must be marked: `ip_src`, `ip_dst`, `ip_len`, `ip_proto` (`T`, `U`, `I` or a number),
`ip_id`, `ip_tos`, `ip_dscp`, `ip_ecn` (`no`, `ect1`, `ect2`, `ce`), `ip_ttl`, `ip_hl`, `ip_sum`, `ip_frag`
(`F` first fragment, `f` later one, `!` not to be fragmented, `.` other), `ip_fragoff` (in bytes; `+` more
fragments, `!` not to be fragmented), `ip_opt`, `ip_capture_len`.

Behind it: `sport`, `dport`, `tcp_seq`, `tcp_ack`, `tcp_off`, `tcp_flags` (letters of FSRPAUECN),
`tcp_window`, `tcp_urp`, `tcp_opt`, `tcp_ntopt` (without timestamps), `tcp_sack`, `udp_len`, `icmp_type`,
`icmp_code`, `icmp_type_name`, `icmp_code_name`, `icmp_flowid`, `icmp_seq`, `icmp_nextmtu`, `payload`
(quoted), `payload_len`, `payload_md5` and `payload_md5_hex` (its digest in 22 letters, or in hexadecimal
digits). The prefix `ip_` may be left out where that is clear.

Options are written as in `rr{10.0.0.1}+5`, `ssrr{1.0.0.1^1.0.0.3}`, `ts.ip{1.0.0.1=5}+2`,
`mss1400;wscale10;sackok`, `sack95-98`, `ts66:38`; others as `98=0:5`; `?` if one of them is malformed.

With BAD_PACKETS a line `!bad`, which says what is wrong, precedes that of a packet with a bad header. With
MULTIPACKET a packet that stands for several has as many lines.",
    example: "FromIPSummaryDump(DATA \"!data src dst\n\
        10.0.0.1 10.0.0.2\", STOP true) -> ToIPSummaryDump(-, FIELDS src dst);",
    ports: "1/0-1",
    processing: "a/h",
    args: &[
        Arg::required("FILENAME", "filename", "the file, `-` for standard output"),
        Arg::keyword("FIELDS", "names", "", "the columns; `timestamp ip_src` if not given"),
        Arg::keyword("CONTENTS", "names", "", "the same"),
        Arg::keyword("DATA", "names", "", "the same"),
        Arg::keyword("VERBOSE", "bool", "false", "whether to name the machine and the time in front"),
        Arg::keyword("HEADER", "bool", "true", "whether to say in front what the columns are"),
        Arg::keyword("BANNER", "text", "", "who makes the file, to be written in front"),
        Arg::keyword(
            "MULTIPACKET",
            "bool",
            "false",
            "whether to write a line for each packet that one stands for",
        ),
        Arg::keyword("BAD_PACKETS", "bool", "false", "whether to tell what is wrong with packets"),
        Arg::keyword(
            "CAREFUL_TRUNC",
            "bool",
            "true",
            "whether an IP length beyond the packet's end is wrong",
        ),
        Arg::keyword("EXTRA_LENGTH", "bool", "true", "whether the extra length annotation counts"),
        Arg::keyword("BINARY", "bool", "false", "binary files are not written: must be false"),
    ],
    handlers: &[
        Handler::write(
            "flush",
            "writes out what is kept back",
            &Write(|t: &mut ToIpSummaryDump, _, cx| {
                t.flush_output(cx);
                Ok(())
            }),
        )
        .button(),
        Handler::read("failed", "packets that could not be written", &Read(ToIpSummaryDump::failed_text)),
    ],
    build: |args| Ok(Box::new(ToIpSummaryDump::new(args)?)),
    finished: true,
    ..Class::DEFAULT
};

struct ToIpSummaryDump {
    fields: Vec<Field>,
    manner: SummaryOptions,
    header: bool,
    verbose: bool,
    banner: String,
    multipacket: bool,
    bad_packets: bool,
    file: OutputFile<Output>,
    failed: u64,
}

enum Output {
    Printed,
    File(BufWriter<File>),
}

impl Output {
    fn open(path: &str) -> io::Result<Output> {
        match path {
            "-" => Ok(Output::Printed),
            path => Ok(Output::File(BufWriter::new(create_private(path)?))),
        }
    }

    /// Whether [`Output::open`] could open the file, without changing what it holds.
    fn check(path: &str) -> io::Result<()> {
        match path {
            "-" => Ok(()),
            path => check_writable(path),
        }
    }
}

impl ToIpSummaryDump {
    fn new(args: &mut Args<'_>) -> Result<ToIpSummaryDump, ArgError> {
        let given = ["FIELDS", "CONTENTS", "DATA"].into_iter().rfind(|name| args.is_given(name));
        let names = match given {
            Some(name) => args.read::<Raw>(name)?.0,
            None => "timestamp ip_src".into(),
        };
        if args.read("BINARY")? {
            args.record_error(ArgError::wrong("binary files are not written"));
        }
        Ok(ToIpSummaryDump {
            file: OutputFile::new(args.read("FILENAME")?),
            fields: parse_fields(&names, args)?,
            manner: SummaryOptions {
                extra_length: args.read("EXTRA_LENGTH")?,
                careful: args.read("CAREFUL_TRUNC")?,
            },
            header: args.read("HEADER")?,
            verbose: args.read("VERBOSE")?,
            banner: args.read::<Option<String>>("BANNER")?.unwrap_or_default(),
            multipacket: args.read("MULTIPACKET")?,
            bad_packets: args.read("BAD_PACKETS")?,
            failed: 0,
        })
    }

    fn failed_text(&mut self, _: &str, _: &mut Context<'_>) -> Result<String, HandlerError> {
        Ok(self.failed.to_string())
    }

    /// The lines in front of the first packet.
    fn header_lines(&self, now: Time) -> String {
        let (major, minor) = VERSION;
        let mut lines = format!("!IPSummaryDump {major}.{minor}\n");
        if !self.banner.is_empty() {
            // Writing to a string can't fail.
            let _ = writeln!(lines, "!creator {}", text::quote(&self.banner));
        }
        if self.verbose {
            if let Ok(host) = std::fs::read_to_string("/proc/sys/kernel/hostname") {
                let _ = writeln!(lines, "!host {}", host.trim());
            }
            let _ = writeln!(lines, "!runtime {now}");
        }
        let names: Vec<&str> = self.fields.iter().map(|field| field.name()).collect();
        let _ = writeln!(lines, "!data {}", names.join(" "));
        lines
    }

    fn write_header(&mut self, cx: &mut Context<'_>) {
        if self.header {
            let lines = self.header_lines(cx.now());
            self.write_lines(&lines, cx);
        }
    }

    /// Opens the file when the element already runs, if that is still pending.
    fn open_late(&mut self, cx: &mut Context<'_>) {
        match self.file.open_pending(Output::open) {
            Ok(true) => self.write_header(cx),
            Ok(false) => {}
            Err(error) => self.stop_on_error(Err(error), cx),
        }
    }

    fn write_lines(&mut self, lines: &str, cx: &mut Context<'_>) {
        let written = match self.file.writer() {
            Some(Output::Printed) => {
                cx.print(lines);
                Ok(())
            }
            Some(Output::File(file)) => file.write_all(lines.as_bytes()),
            None => {
                self.failed += 1;
                Ok(())
            }
        };
        self.stop_on_error(written, cx);
    }

    fn flush_output(&mut self, cx: &mut Context<'_>) {
        if let Some(Output::File(file)) = self.file.writer() {
            let flushed = file.flush();
            self.stop_on_error(flushed, cx);
        }
    }

    /// Stops writing after the first error, which is reported once.
    fn stop_on_error(&mut self, done: io::Result<()>, cx: &mut Context<'_>) {
        if let Err(error) = done {
            self.file.close();
            self.failed += 1;
            cx.report_failure(&format!("{} :: ToIPSummaryDump: {}: {error}", cx.name(), self.file.path()));
        }
    }

    fn write_packet(&mut self, packet: &mut Packet, cx: &mut Context<'_>) {
        let more = u32::from_ne_bytes(packet.annotation(anno::EXTRA_PACKETS));
        if !self.multipacket || more == 0 {
            return self.write_one(packet, cx);
        }
        let extra = u32::from_ne_bytes(packet.annotation(anno::EXTRA_LENGTH));
        let (count, len) = (u64::from(more) + 1, packet.len() as u64);
        let extra = if self.manner.extra_length { u64::from(extra) } else { 0 };
        let mut total = (len + extra).max(count * len);
        let (first, last) = (first_timestamp(packet), packet.timestamp());
        let step = if first == Time::ZERO { Default::default() } else { last.since(first) / more };
        let mut time = if first == Time::ZERO { last } else { first };
        packet.set_annotation(anno::EXTRA_PACKETS, [0; 4]);
        for left in (1..=count).rev() {
            let part = total / left;
            total -= part;
            packet.set_annotation(anno::EXTRA_LENGTH, ((part - len) as u32).to_ne_bytes());
            packet.set_timestamp(time);
            self.write_one(packet, cx);
            time = time + step;
        }
        packet.set_timestamp(last);
    }

    fn write_one(&mut self, packet: &mut Packet, cx: &mut Context<'_>) {
        let (mut line, fault) = describe_packet(packet, &self.fields, self.manner);
        line.push('\n');
        if let Some(fault) = fault.filter(|_| self.bad_packets) {
            line.insert_str(0, &format!("!bad {fault}\n"));
        }
        self.write_lines(&line, cx);
    }
}

/// A text as it stands, quotes and all.
pub(super) struct Raw(pub(super) String);

impl artery_engine::ArgValue for Raw {
    fn parse(text: &str, _: &artery_engine::names::Names) -> Result<Raw, String> {
        Ok(Raw(text.to_string()))
    }
}

/// The fields with these names. Each unknown name is recorded as an error.
fn parse_fields(names: &str, args: &Args<'_>) -> Result<Vec<Field>, ArgError> {
    let mut fields = Vec::new();
    for word in text::split_words(names) {
        let name = text::unquote(&word);
        match Field::find_field(&name) {
            Some(field) => fields.push(field),
            None => args.record_error(ArgError::wrong_at(word, format!("unknown content type '{name}'"))),
        }
    }
    if fields.is_empty() {
        args.record_error(ArgError::wrong("no contents specified"));
    }
    Ok(fields)
}

impl Element for ToIpSummaryDump {
    fn push(&mut self, _input: usize, batch: &mut Batch, cx: &mut Context<'_>) {
        self.open_late(cx);
        for packet in batch.iter_mut() {
            self.write_packet(packet, cx);
        }
        send_or_end(batch, cx);
    }

    fn run_task(&mut self, cx: &mut Context<'_>) -> bool {
        self.open_late(cx);
        if !cx.input_is_pull(0) {
            return true;
        }
        pull_and_push(self, cx)
    }

    fn start(&mut self, cx: &mut Context<'_>) -> Result<(), StartError> {
        let is_replacing = cx.is_replacing();
        let started = self.file.start(is_replacing, Output::check, Output::open);
        started.map_err(|error| StartError::new(io_message(self.file.path(), &error)))?;
        if !is_replacing {
            self.write_header(cx);
        }
        if is_replacing || cx.input_is_pull(0) {
            cx.schedule();
        }
        Ok(())
    }

    fn take_state(&mut self, old: &mut dyn Any, cx: &mut Context<'_>) {
        let Some(old) = old.downcast_mut::<ToIpSummaryDump>() else { return };
        if old.file.path() != self.file.path() || old.fields != self.fields {
            return;
        }
        self.failed = old.failed;
        self.file.take_over(&mut old.file);
        self.open_late(cx);
    }

    fn stop(&mut self, cx: &mut Context<'_>) {
        self.flush_output(cx);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use artery_engine::Bench;
    use artery_wire::build::ip4;

    const HEADER: &str = "!IPSummaryDump 1.3\n";

    /// The printed fields of a packet with its headers marked.
    fn printed(fields: &str, bytes: &[u8]) -> String {
        let mut bench = Bench::new(&CLASS, &format!("-, HEADER false, FIELDS {fields}"));
        let mut packet = bench.packet(bytes);
        packet.set_headers(0, 20);
        packet.set_timestamp(Time::new(5, 20_000));
        packet.set_annotation(anno::PAINT, [1]);
        bench.push_packets(0, [packet]);
        bench.stdout_text()
    }

    #[test]
    fn columns_tell_of_annotations_and_headers() {
        let tcp = ip4().src("1.2.3.4").dst("5.6.7.8").ttl(9).tcp(80, 81).payload(b"a\"b").bytes();
        let all = "timestamp ts_usec direction paint count ip_src dst proto len ip_ttl ip_hl sport dport \
            payload payload_len";
        let line = "5.000020 20 < 1 1 1.2.3.4 5.6.7.8 T 43 9 20 80 81 \"a\\\"b\" 3\n";
        assert_eq!(printed(all, &tcp), line);
        assert_eq!(printed("tcp_opt tcp_flags ip_opt ip_frag ip_fragoff", &tcp).split(' ').next(), Some("."));
        let udp = ip4().src("1.2.3.4").dst("5.6.7.8").udp(1, 2).payload(b"xyz").bytes();
        assert_eq!(printed("ip_proto udp_len tcp_seq sport icmp_type", &udp), "U 11 - 1 -\n");
        let abc = ip4().udp(1, 2).payload(b"abc").bytes();
        let digests = "qgauyYJ0pbR1w_tFOe_FYb 900150983cd24fb0d6963f7d28e17f72\n";
        assert_eq!(printed("payload_md5 payload_md5_hex", &abc), digests);
    }

    #[test]
    fn nothing_that_comes_panics() {
        let fields = Field::all().map(Field::name).collect::<Vec<_>>().join(" ");
        let config = format!("-, HEADER false, BAD_PACKETS true, MULTIPACKET true, FIELDS {fields}");
        crate::testing::survives_anything(&CLASS, &config, 1);
    }

    #[test]
    fn the_header_names_the_columns() {
        let bench = Bench::new(&CLASS, "-, FIELDS src 'ip dst' ts, BANNER \"me too\"");
        let expected = format!("{HEADER}!creator \"me too\"\n!data ip_src ip_dst timestamp\n");
        assert_eq!(bench.stdout_text(), expected);
        assert_eq!(Bench::new(&CLASS, "-").stdout_text(), format!("{HEADER}!data timestamp ip_src\n"));
        assert!(Bench::new(&CLASS, "-, VERBOSE true").stdout_text().contains("\n!runtime "));
    }

    #[test]
    fn bad_packets_are_told_where_that_is_wanted() {
        let mut bench = Bench::new(&CLASS, "-, HEADER false, FIELDS src len, BAD_PACKETS true");
        bench.push(0, b"abc");
        let mut short = bench.packet(ip4().src("1.2.3.4").udp(1, 2).payload([0; 30]).bytes());
        short.truncate(40);
        short.set_headers(0, 20);
        let mut other = bench.packet([0x60; 40]);
        other.set_headers(0, 20);
        bench.push_packets(0, [short, other]);
        let expected =
            "!bad no IP header\n- 3\n!bad truncated IP missing 18\n1.2.3.4 58\n!bad IP version 6\n- 40\n";
        assert_eq!(bench.stdout_text(), expected);
    }

    #[test]
    fn a_packet_that_stands_for_several_can_have_a_line_for_each() {
        let mut bench = Bench::new(&CLASS, "-, HEADER false, FIELDS timestamp wire_len, MULTIPACKET true");
        let mut packet = bench.packet(b"abcd");
        packet.set_annotation(anno::EXTRA_PACKETS, 2u32.to_ne_bytes());
        packet.set_annotation(anno::FIRST_TIMESTAMP, Time::new(1, 0).0.to_ne_bytes());
        packet.set_timestamp(Time::new(3, 0));
        bench.push_packets(0, [packet]);
        assert_eq!(bench.stdout_text(), "1.000000 4\n2.000000 4\n3.000000 4\n");
    }

    #[test]
    fn files_are_written_and_packets_go_on() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("dump").to_str().unwrap().to_string();
        let mut bench = Bench::new(&CLASS, &format!("{path}, FIELDS wire_len"));
        bench.push(0, b"abc");
        bench.expect(0, b"abc");
        bench.write("flush", "").unwrap();
        assert_eq!(std::fs::read_to_string(&path).unwrap(), format!("{HEADER}!data wire_len\n3\n"));
    }

    #[test]
    fn its_successor_goes_on_in_the_same_file_unless_that_was_renamed() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("t.txt").to_str().unwrap().to_string();
        let config = format!("{path}, FIELDS ip_src");
        let text = |path: &str| std::fs::read_to_string(path).unwrap();
        let mut old = Bench::new(&CLASS, &config);
        let send = |bench: &mut Bench, source: &str| {
            let mut packet = bench.packet(ip4().src(source).dst("5.6.7.8").ttl(9).udp(80, 81).bytes());
            packet.set_headers(0, 20);
            bench.push_packets(0, [packet]);
        };
        send(&mut old, "10.0.0.1");
        let mut new = Bench::setup(&CLASS, &config).sharing_with(&old).as_replacement().build().unwrap();
        new.take_state(&mut old);
        send(&mut new, "10.0.0.2");
        new.write("flush", "").unwrap();
        let head = format!("{HEADER}!data ip_src\n");
        assert_eq!(text(&path), format!("{head}10.0.0.1\n10.0.0.2\n"));
        let renamed = path.clone() + ".0";
        std::fs::rename(&path, &renamed).unwrap();
        let mut next = Bench::setup(&CLASS, &config).sharing_with(&new).as_replacement().build().unwrap();
        next.take_state(&mut new);
        send(&mut next, "10.0.0.3");
        next.write("flush", "").unwrap();
        assert_eq!(text(&renamed), format!("{head}10.0.0.1\n10.0.0.2\n"));
        assert_eq!(text(&path), format!("{head}10.0.0.3\n"));
        // With `-` a file of that name is neither checked nor created.
        let standard = Bench::setup(&CLASS, "-, FIELDS ip_src").sharing_with(&next).as_replacement();
        let mut standard = standard.build().unwrap();
        send(&mut standard, "10.0.0.5");
        assert_eq!(standard.stdout_text(), format!("{head}10.0.0.5\n"));
        assert!(!std::path::Path::new("-").exists());
        // Without a predecessor of the same name a new file is created.
        let mut other = Bench::setup(&CLASS, &config).sharing_with(&next).as_replacement().build().unwrap();
        send(&mut other, "10.0.0.4");
        other.write("flush", "").unwrap();
        assert_eq!(text(&path), format!("{head}10.0.0.4\n"));
    }
}
