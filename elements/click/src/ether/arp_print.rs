use super::ether_text::format_dashed;
use crate::files::line_output::LineOutput;
use artery_engine::{
    Arg, ArgError, Args, Batch, Class, Context, Element, Field, Handler, Packet, StartError,
};
use artery_wire::{EtherAddr, EtherType, Ethernet};
use std::any::Any;
use std::fmt::Write as _;
use std::net::Ipv4Addr;

pub static CLASS: Class = Class {
    name: "ARPPrint",
    group: "ether",
    summary: "prints ARP messages in the manner of tcpdump",
    manual: "
Expects ARP messages whose network header an earlier element has marked, prints a line for each, with LABEL in
front, and passes it on unchanged. Packets in which no network header is marked pass in silence.",
    example: "Idle -> ARPPrint(in, ETHER true) -> Discard;",
    args: &[
        Arg::optional("LABEL", "text", "", "what lines begin with"),
        Arg::keyword("TIMESTAMP", "bool", "true", "whether to print the timestamp"),
        Arg::keyword("ETHER", "bool", "false", "whether to print the frame's addresses"),
        Arg::keyword("ACTIVE", "bool", "true", "whether to print"),
        Arg::keyword("OUTFILE", "file name", "", "where to print, instead of standard error"),
    ],
    handlers: &[Handler::field(
        "active",
        "whether messages are printed",
        &Field(|p: &mut ArpPrint| &mut p.active),
    )],
    build: |args| Ok(Box::new(ArpPrint::new(args)?)),
    ..Class::DEFAULT
};

struct ArpPrint {
    label: Option<String>,
    timestamp: bool,
    ether: bool,
    active: bool,
    output: LineOutput,
}

impl ArpPrint {
    fn new(args: &Args<'_>) -> Result<ArpPrint, ArgError> {
        Ok(ArpPrint {
            label: args.read::<Option<String>>("LABEL")?.filter(|label| !label.is_empty()),
            timestamp: args.read("TIMESTAMP")?,
            ether: args.read("ETHER")?,
            active: args.read("ACTIVE")?,
            output: LineOutput::new(CLASS.name, args.read("OUTFILE")?),
        })
    }

    /// The line for a packet; None without a network header.
    fn format_line(&self, packet: &Packet) -> Option<String> {
        let message = packet.network()?;
        let mut line = String::new();
        if let Some(label) = &self.label {
            let _ = write!(line, "{label}: ");
        }
        if self.timestamp {
            let _ = write!(line, "{}: ", packet.timestamp());
        }
        if self.ether
            && let Some(frame) = link_header(packet)
        {
            let _ = write!(line, "{} > {}: ", format_dashed(frame.src()), format_dashed(frame.dst()));
        }
        describe_message(message, &mut line);
        Some(line)
    }
}

/// The link header, if there is room for one before the network header.
fn link_header(packet: &Packet) -> Option<Ethernet<&[u8]>> {
    let start = packet.mac_offset().unwrap_or(0);
    if packet.network_offset()? < start + Ethernet::<&[u8]>::LEN as isize {
        return None;
    }
    let bytes = if packet.mac_offset().is_some() { packet.mac()? } else { packet.data() };
    Ethernet::new(bytes).ok()
}

/// An ARP message, padded to the fixed size of its fields.
struct ArpBytes<'a>(&'a [u8; 28]);

impl ArpBytes<'_> {
    fn read_u16(&self, at: usize) -> u16 {
        u16::from_be_bytes([self.0[at], self.0[at + 1]])
    }
    fn format_ether(&self, at: usize) -> String {
        let octets: [u8; 6] = std::array::from_fn(|i| self.0[at + i]);
        format_dashed(EtherAddr(octets))
    }
    fn read_ip(&self, at: usize) -> Ipv4Addr {
        let octets: [u8; 4] = std::array::from_fn(|i| self.0[at + i]);
        octets.into()
    }
}

const SENDER_ETHER: usize = 8;
const SENDER_IP: usize = 14;
const TARGET_ETHER: usize = 18;
const TARGET_IP: usize = 24;
/// Type of frames whose header was moved to their end (RFC 893); some hosts announced that by ARP.
const TRAILER: u16 = 0x1000;

fn describe_message(bytes: &[u8], line: &mut String) {
    let Some(bytes) = bytes.first_chunk() else {
        let _ = write!(line, "truncated-arp ({})", bytes.len());
        return;
    };
    let arp = ArpBytes(bytes);
    let (hardware, protocol, operation) = (arp.read_u16(0), arp.read_u16(2), arp.read_u16(6));
    let (hardware_len, protocol_len) = (bytes[4], bytes[5]);
    if ![EtherType::IPV4.0, TRAILER].contains(&protocol) || protocol_len != 4 || hardware_len == 0 {
        let _ = write!(
            line,
            "arp-#{operation} for proto #{protocol} ({protocol_len}) hardware #{hardware} ({hardware_len})"
        );
        return;
    }
    if protocol == TRAILER {
        line.push_str("trailer-");
    }
    line.push_str(&describe_operation(operation, &arp));
    if hardware != 1 {
        let _ = write!(line, "hardware #{hardware}");
    }
}

fn describe_operation(operation: u16, arp: &ArpBytes<'_>) -> String {
    let (sender, target) = (arp.format_ether(SENDER_ETHER), arp.format_ether(TARGET_ETHER));
    let (sender_ip, target_ip) = (arp.read_ip(SENDER_IP), arp.read_ip(TARGET_IP));
    match operation {
        1 if arp.0[TARGET_ETHER..TARGET_IP] == [0; 6] => format!("arp who-has {target_ip} tell {sender_ip}"),
        1 => format!("arp who-has {target_ip} ({target}) tell {sender_ip}"),
        2 => format!("arp reply {sender_ip} is-at {sender}"),
        3 => format!("rarp who-is {target} tell {sender}"),
        4 => format!("rarp reply {target} at {target_ip}"),
        8 => format!("invarp who-is {target} tell {sender}"),
        9 => format!("invarp reply {target} at {target_ip}"),
        other => format!("arp-#{other}"),
    }
}

impl Element for ArpPrint {
    fn push(&mut self, _input: usize, batch: &mut Batch, cx: &mut Context<'_>) {
        self.output.open_pending(cx);
        if self.active {
            for packet in batch.iter() {
                if let Some(line) = self.format_line(packet) {
                    self.output.print_line(&line, cx);
                }
            }
        }
        cx.send_all(0, batch);
    }

    fn start(&mut self, cx: &mut Context<'_>) -> Result<(), StartError> {
        self.output.start(cx)
    }

    fn take_state(&mut self, old: &mut dyn Any, cx: &mut Context<'_>) {
        let Some(old) = old.downcast_mut::<ArpPrint>() else { return };
        self.output.take_over(&mut old.output, cx);
    }

    fn stop(&mut self, cx: &mut Context<'_>) {
        self.output.flush(cx);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use artery_engine::{Bench, Time};
    use artery_wire::build::{arp_reply, arp_request};

    fn said(config: &str, frame: &[u8]) -> String {
        let mut bench = Bench::new(&CLASS, config);
        let mut packet = bench.packet(frame);
        packet.set_timestamp(Time::new(3, 0));
        packet.set_network_header(14);
        bench.push_packets(0, [packet]);
        bench.expect(0, frame);
        bench.stderr_text()
    }

    fn request() -> Vec<u8> {
        arp_request("2:0:0:0:0:1", "10.0.0.1", "10.0.0.2").bytes()
    }

    #[test]
    fn requests_and_replies_are_printed() {
        assert_eq!(said("in", &request()), "in: 3.000000: arp who-has 10.0.0.2 tell 10.0.0.1\n");
        let reply = arp_reply("2:0:0:0:0:1", "10.0.0.1", "2:0:0:0:0:2", "10.0.0.2").bytes();
        let line = "02-00-00-00-00-01 > 02-00-00-00-00-02: arp reply 10.0.0.1 is-at 02-00-00-00-00-01\n";
        assert_eq!(said("TIMESTAMP false, ETHER true", &reply), line);
    }

    #[test]
    fn other_messages_are_printed_as_far_as_they_can_be_read() {
        let changed = |at: usize, to: u8| {
            let mut frame = request();
            frame[at] = to;
            said("TIMESTAMP false", &frame)
        };
        assert_eq!(changed(21, 99), "arp-#99\n");
        assert_eq!(changed(16, 9), "arp-#1 for proto #2304 (4) hardware #1 (6)\n");
        assert_eq!(changed(37, 5), "arp who-has 10.0.0.2 (00-00-00-00-00-05) tell 10.0.0.1\n");
        assert_eq!(said("TIMESTAMP false", &request()[..40]), "truncated-arp (26)\n");
    }

    #[test]
    fn nothing_is_printed_when_inactive_or_without_network_header() {
        assert_eq!(said("ACTIVE false", &request()), "");
        let mut bench = Bench::new(&CLASS, "");
        bench.push(0, request());
        assert_eq!(bench.stderr_text(), "");
    }

    #[test]
    fn a_file_that_can_not_be_written_is_an_error() {
        assert!(Bench::config_error(&CLASS, "OUTFILE /nonexistent/file").starts_with("/nonexistent/file: "));
    }
}
