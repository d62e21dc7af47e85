use super::ip_text;
use crate::files::line_output::LineOutput;
use artery_common::ip_header;
use artery_engine::{
    Arg, ArgError, Args, Batch, Class, Context, Element, Field, Handler, Limit, Packet, StartError, anno,
};
use std::any::Any;
use std::fmt::Write as _;

pub static CLASS: Class = Class {
    name: "IPPrint",
    group: "ip",
    summary: "prints IP packets in the manner of tcpdump",
    manual: "
Expects marked IP packets, prints a line for each, with `LABEL` in front, and passes it on unchanged. Packets
in which no network header is marked pass in silence.

`CONTENTS` prints the packet's bytes below the line, `PAYLOAD` those after the transport header: `HEX` or
`ASCII`, up to `MAXLENGTH` bytes, or all with -1.",
    example: "Idle -> CheckIPHeader -> IPPrint(in, TTL true, CONTENTS HEX) -> Discard;",
    args: &[
        Arg::optional("LABEL", "text", "", "what lines begin with"),
        Arg::keyword("CONTENTS", "NONE, HEX or ASCII", "NONE", "how to print the packet's bytes"),
        Arg::keyword("PAYLOAD", "NONE, HEX or ASCII", "NONE", "how to print the payload's bytes"),
        Arg::keyword("MAXLENGTH", "bytes", "1500", "how many bytes to print at most; -1 for all"),
        Arg::keyword("NBYTES", "bytes", "", "the older name of MAXLENGTH"),
        Arg::keyword("ID", "bool", "false", "whether to print the IP identification"),
        Arg::keyword("TTL", "bool", "false", "whether to print the time to live"),
        Arg::keyword("TOS", "bool", "false", "whether to print the type of service"),
        Arg::keyword("LENGTH", "bool", "false", "whether to print the IP length"),
        Arg::keyword("TIMESTAMP", "bool", "true", "whether to print the timestamp"),
        Arg::keyword("AGGREGATE", "bool", "false", "whether to print the aggregate annotation"),
        Arg::keyword("PAINT", "bool", "false", "whether to print the paint annotation"),
        Arg::keyword("SWAP", "bool", "true", "whether echo numbers are in network order"),
        Arg::keyword("ACTIVE", "bool", "true", "whether to print"),
        Arg::keyword("OUTFILE", "file name", "", "where to print, instead of standard error"),
        Arg::keyword("CHANNEL", "word", "", "the name of a chatter channel; all go to standard error"),
    ],
    handlers: &[Handler::field(
        "active",
        "whether packets are printed",
        &Field(|p: &mut IpPrint| &mut p.active),
    )],
    build: |args| Ok(Box::new(IpPrint::new(args)?)),
    ..Class::DEFAULT
};

/// How bytes are printed.
#[derive(Clone, Copy, PartialEq, Eq)]
enum DumpFormat {
    None,
    Hex,
    Ascii,
}

/// Which fields are printed in front of the addresses.
struct PrintFields {
    timestamp: bool,
    aggregate: bool,
    paint: bool,
    id: bool,
    ttl: bool,
    tos: bool,
    length: bool,
}

struct IpPrint {
    label: String,
    fields: PrintFields,
    format: DumpFormat,
    /// Whether `format` is about the payload alone.
    payload: bool,
    limit: usize,
    swap: bool,
    active: bool,
    output: LineOutput,
}

impl IpPrint {
    fn new(args: &Args<'_>) -> Result<IpPrint, ArgError> {
        let (contents, payload) = (parse_format(args, "CONTENTS")?, parse_format(args, "PAYLOAD")?);
        if contents != DumpFormat::None && payload != DumpFormat::None {
            return Err(ArgError::wrong("specify at most one of PAYLOAD and CONTENTS"));
        }
        let limit = if args.is_given("NBYTES") { "NBYTES" } else { "MAXLENGTH" };
        let limit = args.read::<Limit>(limit)?.0.map_or(usize::MAX, |limit| limit as usize);
        let _: Option<String> = args.read("CHANNEL")?;
        Ok(IpPrint {
            label: args.read::<Option<String>>("LABEL")?.unwrap_or_default(),
            fields: PrintFields::new(args)?,
            format: if contents == DumpFormat::None { payload } else { contents },
            payload: payload != DumpFormat::None,
            limit,
            swap: args.read("SWAP")?,
            active: args.read("ACTIVE")?,
            output: LineOutput::new(CLASS.name, args.read("OUTFILE")?),
        })
    }

    fn packet_text(&self, packet: &Packet) -> String {
        let mut text = if self.label.is_empty() { String::new() } else { format!("{}: ", self.label) };
        self.fields.write_metadata(&mut text, packet);
        let bytes = ip_header::bytes(packet);
        let Some(header) = ip_text::Header::new(bytes) else {
            text.push_str("truncated-ip");
            return text;
        };
        self.fields.write_header(&mut text, &header);
        header.write_line(&mut text, packet.len(), self.swap);
        self.write_bytes(&mut text, if self.payload { header.payload() } else { packet.data() });
        text
    }

    fn write_bytes(&self, text: &mut String, bytes: &[u8]) {
        let bytes = &bytes[..bytes.len().min(self.limit)];
        match self.format {
            DumpFormat::None => {}
            DumpFormat::Hex => write_columns(text, bytes, 24, 4, |text, byte| {
                write!(text, "{byte:02x}").expect("writing to a string can't fail");
            }),
            DumpFormat::Ascii => write_columns(text, bytes, 48, 8, |text, byte| {
                text.push(if (32..=126).contains(&byte) { byte.into() } else { '.' });
            }),
        }
    }
}

/// Bytes in lines of `line`, with a blank between groups of `group`.
fn write_columns(
    text: &mut String,
    bytes: &[u8],
    line: usize,
    group: usize,
    mut write: impl FnMut(&mut String, u8),
) {
    for (number, byte) in bytes.iter().enumerate() {
        if number % line == 0 {
            text.push_str("\n  ");
        } else if number % group == 0 {
            text.push(' ');
        }
        write(text, *byte);
    }
}

/// `HEX`, `ASCII`, or a boolean as older configurations have it.
fn parse_format(args: &Args<'_>, name: &'static str) -> Result<DumpFormat, ArgError> {
    let given: String = args.read(name)?;
    match given.to_ascii_uppercase().as_str() {
        "NONE" | "NO" | "FALSE" | "0" => Ok(DumpFormat::None),
        "HEX" | "YES" | "TRUE" | "1" => Ok(DumpFormat::Hex),
        "ASCII" => Ok(DumpFormat::Ascii),
        _ => {
            let choice =
                if name == "CONTENTS" { "'NONE', 'HEX', or 'ASCII'" } else { "'false', 'hex', or 'ascii'" };
            let argument = name.to_ascii_lowercase();
            Err(ArgError::wrong(format!("bad {argument} value '{given}'; should be {choice}")))
        }
    }
}

impl PrintFields {
    fn new(args: &Args<'_>) -> Result<PrintFields, ArgError> {
        Ok(PrintFields {
            timestamp: args.read("TIMESTAMP")?,
            aggregate: args.read("AGGREGATE")?,
            paint: args.read("PAINT")?,
            id: args.read("ID")?,
            ttl: args.read("TTL")?,
            tos: args.read("TOS")?,
            length: args.read("LENGTH")?,
        })
    }

    fn write_metadata(&self, text: &mut String, packet: &Packet) {
        let mut add =
            |part: std::fmt::Arguments<'_>| text.write_fmt(part).expect("writing to a string can't fail");
        if self.timestamp {
            add(format_args!("{}: ", packet.timestamp()));
        }
        if self.aggregate {
            add(format_args!("#{}", u32::from_ne_bytes(packet.annotation(anno::AGGREGATE))));
        }
        if self.paint {
            add(format_args!("{}{}", if self.aggregate { "." } else { "paint " }, packet.paint()));
        }
        if self.aggregate || self.paint {
            add(format_args!(": "));
        }
    }

    fn write_header(&self, text: &mut String, header: &ip_text::Header<'_>) {
        let fields = [
            (self.id, "id", header.id()),
            (self.ttl, "ttl", header.ttl().into()),
            (self.tos, "tos", header.tos().into()),
            (self.length, "length", header.length()),
        ];
        for (_, name, value) in fields.into_iter().filter(|(print, ..)| *print) {
            write!(text, "{name} {value} ").expect("writing to a string can't fail");
        }
    }
}

impl Element for IpPrint {
    fn push(&mut self, _input: usize, batch: &mut Batch, cx: &mut Context<'_>) {
        self.output.open_pending(cx);
        if self.active {
            for packet in batch.iter().filter(|packet| packet.network_offset().is_some()) {
                self.output.print_line(&self.packet_text(packet), cx);
            }
        }
        cx.send_all(0, batch);
    }

    fn start(&mut self, cx: &mut Context<'_>) -> Result<(), StartError> {
        self.output.start(cx)
    }

    fn take_state(&mut self, old: &mut dyn Any, cx: &mut Context<'_>) {
        let Some(old) = old.downcast_mut::<IpPrint>() else { return };
        self.output.take_over(&mut old.output, cx);
    }

    fn stop(&mut self, cx: &mut Context<'_>) {
        self.output.flush(cx);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::survives_anything;
    use artery_engine::{Bench, Time};
    use artery_wire::build::{Ip4, icmp_echo, ip4};
    use artery_wire::{IcmpType, TcpFlags};

    #[track_caller]
    fn expect(config: &str, bytes: &[u8], line: &str) {
        let mut bench = Bench::new(&CLASS, &format!("{config}, TIMESTAMP false").replace("LABEL ,", ""));
        let mut packet = bench.packet(bytes);
        packet.set_network_header(0);
        packet.set_annotation(anno::PAINT, [3]);
        packet.set_annotation(anno::AGGREGATE, 9_u32.to_ne_bytes());
        bench.push_packets(0, [packet]);
        bench.expect(0, bytes);
        assert_eq!(bench.stderr_text(), format!("{line}\n"));
    }

    fn udp() -> Ip4 {
        ip4().udp(1, 53).payload("0123456789")
    }

    #[test]
    fn transport_protocols_are_printed_with_their_numbers() {
        let ends = "10.0.0.1.1 > 10.0.0.2.53:";
        expect("in", &udp().bytes(), &format!("in: {ends} udp 18"));
        let tcp = ip4().tcp(1, 53).seq(7).window(99).payload("abc");
        expect("", &tcp.bytes(), &format!("{ends} S 7:11(4,43,43) win 99"));
        let ack = tcp.flags(TcpFlags::ACK).ack(5);
        expect("", &ack.bytes(), &format!("{ends} . 7:10(3,43,43) ack 5 win 99"));
        let all = ack.flags(TcpFlags::FIN | TcpFlags::PSH | TcpFlags::RST);
        expect("", &all.bytes(), &format!("{ends} FRP 7:11(4,43,43) win 99"));
        expect("", &ip4().raw(200, [0; 4]).bytes(), "10.0.0.1 > 10.0.0.2: ip-proto-200");
    }

    #[test]
    fn icmp_is_printed_by_name() {
        let ends = "1.0.0.1 > 1.0.0.2: icmp";
        expect("", &icmp_echo("1.0.0.1", "1.0.0.2", 1, 2).bytes(), &format!("{ends} echo (1, 2)"));
        expect(
            "SWAP false",
            &icmp_echo("1.0.0.1", "1.0.0.2", 1, 2).bytes(),
            &format!("{ends} echo (256, 512)"),
        );
        let reply = ip4().src("1.0.0.1").dst("1.0.0.2").icmp_echo_reply(1, 2);
        expect("", &reply.bytes(), &format!("{ends} echo-reply (1, 2)"));
        for (icmp_type, code, text) in [
            (3, 0, "10.0.0.2 unreachable net"),
            (3, 2, "10.0.0.2 unreachable protocol udp"),
            (3, 3, "10.0.0.2 unreachable port udp/53"),
            (3, 4, "10.0.0.2 unreachable needfrag (mtu 1280)"),
            (3, 77, "10.0.0.2 unreachable code 77"),
            (11, 0, "timeexceeded transit"),
            (5, 1, "redirect host"),
            (13, 0, "timestamp"),
            (42, 3, "type 42 code 3"),
        ] {
            let error = reply.clone().icmp(IcmpType(icmp_type), code, [0, 0, 5, 0]).payload(udp().bytes());
            expect("", &error.bytes(), &format!("{ends} {text}"));
        }
    }

    #[test]
    fn fields_are_printed_when_told() {
        let bytes = udp().id(7).ttl(9).tos(4).bytes();
        let line = "10.0.0.1.1 > 10.0.0.2.53: udp 18";
        expect(
            "ID true, TTL true, TOS true, LENGTH true",
            &bytes,
            &format!("id 7 ttl 9 tos 4 length 38 {line}"),
        );
        expect("PAINT true", &bytes, &format!("paint 3: {line}"));
        expect("AGGREGATE true", &bytes, &format!("#9: {line}"));
        expect("l, AGGREGATE true, PAINT true", &bytes, &format!("l: #9.3: {line}"));
        let mut bench = Bench::new(&CLASS, "");
        let mut packet = bench.packet(&bytes);
        packet.set_network_header(0);
        packet.set_timestamp(Time::new(5, 1000));
        bench.push_packets(0, [packet]);
        assert_eq!(bench.stderr_text(), format!("5.000001: {line}\n"));
    }

    #[test]
    fn fragments_and_cut_packets_say_so() {
        let first = udp().id(7).fragment(0, true).bytes();
        expect("", &first, "10.0.0.1.1 > 10.0.0.2.53: udp 18 (frag 7:18@0+)");
        for (protocol, name) in [(6, "tcp"), (17, "udp"), (1, "icmp")] {
            let last = ip4().id(7).fragment(24, false).raw(protocol, [0; 8]).bytes();
            expect("", &last, &format!("10.0.0.1 > 10.0.0.2: {name} (frag 7:8@24)"));
            let cut = ip4().raw(protocol, [8]).bytes();
            expect("", &cut, &format!("10.0.0.1 > 10.0.0.2: truncated-{name}"));
        }
        expect("", &udp().bytes()[..26], "10.0.0.1.1 > 10.0.0.2.53: truncated-udp");
        expect("", &udp().bytes()[..19], "truncated-ip");
    }

    #[test]
    fn contents_and_payload_are_printed_in_columns() {
        let line = "10.0.0.1.1 > 10.0.0.2.53: udp 18";
        expect("PAYLOAD ASCII", &udp().bytes(), &format!("{line}\n  01234567 89"));
        expect("PAYLOAD hex, MAXLENGTH 5", &udp().bytes(), &format!("{line}\n  30313233 34"));
        let bytes = ip4().raw(200, [0x61; 30]).bytes();
        let sum = format!("{:02x}{:02x}", bytes[10], bytes[11]);
        let hex = format!(
            "10.0.0.1 > 10.0.0.2: ip-proto-200\n  45000032 00000000 40c8{sum} 0a000001 0a000002 61616161\
             \n  61616161 61616161"
        );
        expect("CONTENTS HEX, NBYTES 32", &bytes, &hex);
        expect("CONTENTS ASCII, MAXLENGTH 0", &udp().bytes(), line);
    }

    #[test]
    fn a_file_takes_the_lines_when_told() {
        let path = std::env::temp_dir().join(format!("artery-ip-print-{}", std::process::id()));
        let mut bench = Bench::new(&CLASS, &format!("x, OUTFILE {}", path.display()));
        bench.push_with(0, udp().bytes(), |packet| packet.set_network_header(0));
        assert_eq!(bench.stderr_text(), "");
        drop(bench);
        let text = std::fs::read_to_string(&path).unwrap();
        std::fs::remove_file(&path).unwrap();
        assert_eq!(text, "x: 0.000000: 10.0.0.1.1 > 10.0.0.2.53: udp 18\n");
    }

    #[test]
    fn nothing_is_printed_when_inactive_or_unmarked() {
        let mut bench = Bench::new(&CLASS, "ACTIVE false");
        let marked = |bench: &Bench| {
            let mut packet = bench.packet(udp().bytes());
            packet.set_network_header(0);
            packet
        };
        let packet = marked(&bench);
        bench.push_packets(0, [packet]);
        assert_eq!((bench.stderr_text().as_str(), bench.read("active", "").unwrap().as_str()), ("", "false"));
        bench.write("active", "true").unwrap();
        bench.push(0, udp().bytes());
        assert_eq!(bench.stderr_text(), "");
        let packet = marked(&bench);
        bench.push_packets(0, [packet]);
        assert!(bench.stderr_text().starts_with("0.000000: 10.0.0.1"));
    }

    #[test]
    fn wrong_arguments_are_refused() {
        for (config, why) in [
            ("CONTENTS x", "bad contents value 'x'; should be 'NONE', 'HEX', or 'ASCII'"),
            ("PAYLOAD x", "bad payload value 'x'; should be 'false', 'hex', or 'ascii'"),
            ("PAYLOAD HEX, CONTENTS HEX", "specify at most one of PAYLOAD and CONTENTS"),
        ] {
            assert_eq!(Bench::config_error(&CLASS, config), why);
        }
        assert!(Bench::config_error(&CLASS, "OUTFILE /nonexistent/file").starts_with("/nonexistent/file: "));
    }

    #[test]
    fn any_bytes_are_survived() {
        survives_anything(&CLASS, "x, PAYLOAD HEX, ID true", 1);
    }
}
