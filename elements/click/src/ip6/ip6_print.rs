use artery_common::hex::to_hex;
use artery_engine::{Arg, Batch, Class, Context, Element, Packet};
use artery_wire::Ipv6;
use std::fmt::Write as _;

pub static CLASS: Class = Class {
    name: "IP6Print",
    group: "ip6",
    summary: "prints the headers of IPv6 packets",
    manual: "
Expects marked IPv6 packets, prints a line for each on standard error, with LABEL in front, and passes it on
unchanged: addresses, payload length, next header and hop limit. With CONTENTS the packet's first NBYTES bytes
follow on lines of 24. Packets without a whole IPv6 header pass in silence.",
    example: "Idle -> CheckIP6Header -> IP6Print(in) -> Discard;",
    args: &[
        Arg::optional("LABEL", "text", "", "what lines begin with"),
        Arg::keyword("CONTENTS", "bool", "false", "whether to print the packet's bytes"),
        Arg::keyword("NBYTES", "bytes", "1500", "how many bytes to print at most"),
    ],
    finished: true,
    build: |args| {
        let label = args.read::<Option<String>>("LABEL")?.unwrap_or_default();
        let bytes = if args.read("CONTENTS")? { args.read::<u32>("NBYTES")? as usize } else { 0 };
        Ok(Box::new(Ip6Print { label, bytes }))
    },
    ..Class::DEFAULT
};

struct Ip6Print {
    label: String,
    /// How many bytes to print at most.
    bytes: usize,
}

impl Ip6Print {
    fn format_packet(&self, packet: &Packet) -> Option<String> {
        let header = Ipv6::new(packet.network()?).ok()?;
        let mut text = match self.label.as_str() {
            "" => String::new(),
            label => format!("{label}: "),
        };
        let (length, next, limit) = (header.payload_length(), header.next_header().0, header.hop_limit());
        // Writing to a string can't fail.
        let _ = write!(text, "{} -> {} plen {length}, next {next}, hlim {limit}", header.src(), header.dst());
        for line in packet.data()[..packet.len().min(self.bytes)].chunks(24) {
            let words: Vec<String> = line.chunks(4).map(to_hex).collect();
            let _ = write!(text, "\n  {}", words.join(" "));
        }
        Some(text)
    }
}

impl Element for Ip6Print {
    fn push(&mut self, _input: usize, batch: &mut Batch, cx: &mut Context<'_>) {
        for packet in batch.iter() {
            if let Some(text) = self.format_packet(packet) {
                cx.print_message(&text);
            }
        }
        cx.send_all(0, batch);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use artery_engine::Bench;
    use artery_wire::build::ip6;

    fn said(config: &str) -> String {
        let mut bench = Bench::new(&CLASS, config);
        let bytes = ip6().src("2001:db8::1").dst("2001:db8::2").hop_limit(9).udp(1, 2).payload("abc").bytes();
        bench.push_with(0, &bytes, |packet| packet.set_network_header(0));
        bench.expect(0, bytes);
        bench.stderr_text()
    }

    #[test]
    fn a_line_tells_of_the_header() {
        let line = "2001:db8::1 -> 2001:db8::2 plen 11, next 17, hlim 9\n";
        assert_eq!(said(""), line);
        assert_eq!(said("in"), format!("in: {line}"));
    }

    #[test]
    fn bytes_follow_in_words() {
        let text = said("CONTENTS true, NBYTES 26");
        let lines: Vec<&str> = text.lines().skip(1).collect();
        assert_eq!(lines.len(), 2);
        assert!(lines[0].starts_with("  6"), "{text}");
        assert!(lines[0].ends_with(" 20010db8 00000000 00000000 00000001"), "{text}");
        assert_eq!(lines[1], "  2001");
    }

    #[test]
    fn other_packets_pass_in_silence() {
        let mut bench = Bench::new(&CLASS, "");
        bench.push(0, b"abc");
        bench.expect(0, b"abc");
        assert_eq!(bench.stderr_text(), "");
    }
}
