use artery_engine::{Arg, ArgError, ArgValue, Args, Batch, Class, Context, Element, Field, Handler, Packet};
use std::fmt::Write as _;

pub static CLASS: Class = Class {
    name: "Print",
    group: "basic",
    summary: "prints packets' contents",
    manual: "
Prints one line for each packet on standard error: LABEL, then with TIMESTAMP its timestamp, its length, with
HEADROOM the bytes free before and after it, with PRINTANNO its annotation area, and up to MAXLENGTH bytes of
data. Packets pass unchanged.",
    example: "InfiniteSource(LIMIT 3) -> Print(source, CONTENTS ASCII) -> Discard;",
    args: &[
        Arg::optional("LABEL", "text", "", "what each line starts with"),
        Arg::optional("MAXLENGTH", "bytes", "", "most bytes to print, 24 if not given; negative for all"),
        Arg::keyword("LENGTH", "bytes", "", "older name of MAXLENGTH"),
        Arg::keyword("NBYTES", "bytes", "", "older name of MAXLENGTH"),
        Arg::keyword("CONTENTS", "bool, NONE, HEX or ASCII", "HEX", "how data is printed"),
        Arg::keyword("TIMESTAMP", "bool", "false", "whether to print the timestamp"),
        Arg::keyword("PRINTANNO", "bool", "false", "whether to print the annotation area"),
        Arg::keyword("ACTIVE", "bool", "true", "whether to print at all"),
        Arg::keyword("HEADROOM", "bool", "false", "whether to print headroom and tailroom"),
        Arg::keyword("CPU", "bool", "false", "whether to print the number of the worker"),
    ],
    handlers: &[Handler::field("active", "whether to print", &Field(|p: &mut Print| &mut p.active))],
    live: true,
    build: |args| Ok(Box::new(Print::new(args)?)),
    ..Class::PER_WORKER
};

#[derive(Clone, Copy, PartialEq, Eq)]
enum Contents {
    None,
    Hex,
    Ascii,
}

impl Contents {
    fn parse_contents(args: &Args<'_>) -> Result<Contents, ArgError> {
        let text: String = args.read("CONTENTS")?;
        if let Ok(print) = bool::parse(&text, args.names()) {
            return Ok(if print { Contents::Hex } else { Contents::None });
        }
        match text.to_ascii_uppercase().as_str() {
            "NONE" => Ok(Contents::None),
            "HEX" => Ok(Contents::Hex),
            "ASCII" => Ok(Contents::Ascii),
            other => {
                let why = format!("bad contents value '{other}'; should be 'NONE', 'HEX', or 'ASCII'");
                Err(ArgError::wrong_at(format!("CONTENTS {text}"), why))
            }
        }
    }
}

struct Print {
    label: String,
    max_length: usize,
    contents: Contents,
    timestamp: bool,
    annotations: bool,
    active: bool,
    headroom: bool,
    worker: bool,
}

impl Print {
    fn new(args: &mut Args<'_>) -> Result<Print, ArgError> {
        let mut max_length: Option<i64> = None;
        for name in ["NBYTES", "LENGTH", "MAXLENGTH"] {
            max_length = args.read::<Option<i64>>(name)?.or(max_length);
        }
        Ok(Print {
            label: args.read::<Option<String>>("LABEL")?.unwrap_or_default(),
            max_length: usize::try_from(max_length.unwrap_or(24)).unwrap_or(usize::MAX),
            contents: Contents::parse_contents(args)?,
            timestamp: args.read("TIMESTAMP")?,
            annotations: args.read("PRINTANNO")?,
            active: args.read("ACTIVE")?,
            headroom: args.read("HEADROOM")?,
            worker: args.read("CPU")?,
        })
    }

    fn format_line(&self, packet: &Packet, worker: usize) -> String {
        let mut line = self.label.clone();
        let mut separator = if line.is_empty() { "" } else { ": " };
        if self.worker {
            line.push_str(&format!("({worker})"));
            separator = ": ";
        }
        if self.timestamp {
            line.push_str(&format!("{separator}{}", packet.timestamp()));
            separator = ": ";
        }
        line.push_str(&format!("{separator}{:4}", packet.len()));
        if self.headroom {
            line.push_str(&format!(" (h{} t{})", packet.headroom(), packet.tailroom()));
        }
        if self.annotations {
            line.push_str(" | ");
            packet.annotation::<48>(0).iter().for_each(|byte| push_hex(&mut line, *byte));
        }
        self.add_contents(packet.data(), &mut line);
        line
    }

    fn add_contents(&self, data: &[u8], line: &mut String) {
        let data = &data[..data.len().min(self.max_length)];
        if data.is_empty() || self.contents == Contents::None {
            return;
        }
        line.push_str(" | ");
        for (i, &byte) in data.iter().enumerate() {
            match self.contents {
                Contents::Ascii => {
                    line.push_str(if i % 8 == 0 { " " } else { "" });
                    line.push(if (32..=126).contains(&byte) { char::from(byte) } else { '.' });
                }
                _ => {
                    line.push_str(if i > 0 && i % 4 == 0 { " " } else { "" });
                    push_hex(line, byte);
                }
            }
        }
    }
}

fn push_hex(line: &mut String, byte: u8) {
    // Writing to a string can't fail.
    let _ = write!(line, "{byte:02x}");
}

impl Element for Print {
    fn push(&mut self, _input: usize, batch: &mut Batch, cx: &mut Context<'_>) {
        if self.active {
            for packet in &*batch {
                let line = self.format_line(packet, cx.worker());
                cx.print_message(&line);
            }
        }
        cx.send_all(0, batch);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use artery_engine::{Bench, Time};

    fn printed(config: &str, bytes: &[u8]) -> String {
        let mut bench = Bench::new(&CLASS, config);
        let mut packet = bench.packet(bytes);
        packet.set_timestamp(Time::new(3, 5_000));
        packet.set_annotation(16, [0xab]);
        bench.push_packets(0, [packet]);
        bench.expect(0, bytes);
        bench.stderr_text()
    }

    #[test]
    fn prints_label_length_and_24_bytes_in_groups_of_four() {
        let bytes: Vec<u8> = (0..30).collect();
        let expected = "ok:   30 | 00010203 04050607 08090a0b 0c0d0e0f 10111213 14151617\n";
        assert_eq!(printed("ok", &bytes), expected);
    }

    #[test]
    fn without_label_the_length_comes_first() {
        assert_eq!(printed("", b"\x01"), "   1 | 01\n");
        assert_eq!(printed("x", b""), "x:    0\n");
    }

    #[test]
    fn prints_as_many_bytes_as_asked_for() {
        assert_eq!(printed("x, 1", b"abc"), "x:    3 | 61\n");
        assert_eq!(printed("x, MAXLENGTH -1", &[0; 26]).len(), 10 + 26 * 2 + 6 + 1);
        assert_eq!(printed("x, NBYTES 2", b"abc"), "x:    3 | 6162\n");
    }

    #[test]
    fn contents_can_be_text_or_nothing() {
        assert_eq!(printed("CONTENTS ASCII", b"abcdefgh\x01j"), "  10 |  abcdefgh .j\n");
        assert_eq!(printed("CONTENTS none", b"abc"), "   3\n");
        assert_eq!(printed("CONTENTS false", b"abc"), "   3\n");
    }

    #[test]
    fn prints_timestamp_room_and_annotations_when_asked() {
        assert_eq!(printed("x, TIMESTAMP true, CONTENTS NONE", b"abc"), "x: 3.000005:    3\n");
        assert_eq!(printed("x, CPU true, CONTENTS NONE", b"abc"), "x(0):    3\n");
        let line = printed("PRINTANNO true, CONTENTS NONE", b"abc");
        assert_eq!(line, format!("   3 | {}ab{}\n", "00".repeat(16), "00".repeat(31)));
        assert!(printed("HEADROOM true", b"abc").starts_with("   3 (h"));
    }

    #[test]
    fn prints_nothing_while_inactive() {
        let mut bench = Bench::new(&CLASS, "ACTIVE false");
        bench.push(0, b"a");
        assert_eq!(bench.stderr_text(), "");
        bench.write("active", "true").unwrap();
        bench.push(0, b"a");
        assert_eq!(bench.stderr_text(), "   1 | 61\n");
    }

    #[test]
    fn arguments_can_change_while_it_runs() {
        let mut bench = Bench::new(&CLASS, "x, 1");
        assert_eq!(bench.read("config", "").unwrap(), "x, 1");
        assert!(bench.read("handlers", "").unwrap().contains("config\trw.\n"));
        bench.write("config", " y, CONTENTS ASCII").unwrap();
        assert_eq!(bench.read("config", "").unwrap(), "y, CONTENTS ASCII");
        let refused = bench.write("config", "z, CONTENTS octal").unwrap_err().to_string();
        assert!(refused.contains("bad contents value 'OCTAL'"), "{refused}");
        bench.push(0, b"a");
        assert_eq!(bench.stderr_text(), "y:    1 |  a\n");
        assert_eq!(bench.read("config", "").unwrap(), "y, CONTENTS ASCII");
    }

    #[test]
    fn refuses_other_contents() {
        let fault = "bad contents value 'OCTAL'; should be 'NONE', 'HEX', or 'ASCII'";
        assert_eq!(Bench::config_error(&CLASS, "CONTENTS octal"), fault);
    }
}
