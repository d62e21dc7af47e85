use super::average_counter::format_significant;
use super::handler_call::HandlerCall;
use artery_engine::{
    Arg, ArgError, Args, Batch, Class, Context, Element, Field, Handler, HandlerError, Packet, Show,
    StartError, Write, anno,
};
use artery_lang::args as text;
use std::collections::BTreeMap;
use std::io::Write as _;
use std::net::Ipv4Addr;

pub static CLASS: Class = Class {
    name: "AggregateCounter",
    group: "basic",
    summary: "counts packets or bytes by aggregate annotation",
    manual: "
Counts the packets of each value of the AGGREGATE annotation, or with BYTES their bytes; a packet that stands
for several counts as these, and bytes that the extra length annotation tells of count, too. Handlers write
the counts to files.

While the counter is frozen, or for packets of input 1, aggregates that have not been seen are not counted;
such packets leave by output 1, when there is one, all others by output 0.

AGGREGATE_CALL is `N HANDLER [VALUE]`: a handler to write when a packet of one more than N aggregates comes;
AGGREGATE_FREEZE and AGGREGATE_STOP freeze or stop instead. COUNT_CALL, COUNT_FREEZE and COUNT_STOP are the
same for the sum of all counts, when it reaches N.",
    example: "InfiniteSource(LIMIT 10) -> a :: AggregateCounter -> Discard;\n\
        DriverManager(wait, write a.write_text_file -);",
    ports: "1-2/1-2",
    args: &[
        Arg::keyword("BYTES", "bool", "false", "whether to count bytes"),
        Arg::keyword("IP_BYTES", "bool", "false", "whether bytes count from the network header on"),
        Arg::keyword("MULTIPACKET", "bool", "true", "whether a packet counts as those it stands for"),
        Arg::keyword("EXTRA_LENGTH", "bool", "true", "whether the extra length annotation counts"),
        Arg::keyword("AGGREGATE_FREEZE", "number", "", "freezes at so many aggregates"),
        Arg::keyword("COUNT_FREEZE", "number", "", "freezes at this count"),
        Arg::keyword("AGGREGATE_STOP", "number", "", "stops the router at so many aggregates"),
        Arg::keyword("COUNT_STOP", "number", "", "stops the router at this count"),
        Arg::keyword(
            "AGGREGATE_CALL",
            "number and handler call",
            "",
            "handler to write at so many aggregates",
        ),
        Arg::keyword("COUNT_CALL", "number and handler call", "", "handler to write at this count"),
        Arg::keyword("BANNER", "text", "", "a line in front of files"),
    ],
    handlers: &[
        Handler::write(
            "write_text_file",
            "writes a line `AGGREGATE COUNT` for each",
            &Write(|a: &mut AggregateCounter, path, cx| a.write_file(path, FileFormat::Text, cx)),
        ),
        Handler::write(
            "write_ascii_file",
            "the same",
            &Write(|a: &mut AggregateCounter, path, cx| a.write_file(path, FileFormat::Text, cx)),
        ),
        Handler::write(
            "write_file",
            "writes aggregates and counts in four bytes each",
            &Write(|a: &mut AggregateCounter, path, cx| a.write_file(path, FileFormat::Binary, cx)),
        ),
        Handler::write(
            "write_ip_file",
            "writes aggregates as IP addresses",
            &Write(|a: &mut AggregateCounter, path, cx| a.write_file(path, FileFormat::Addresses, cx)),
        ),
        Handler::write(
            "write_pdf_file",
            "writes shares instead of counts",
            &Write(|a: &mut AggregateCounter, path, cx| a.write_file(path, FileFormat::Shares, cx)),
        ),
        Handler::field("freeze", "whether it is frozen", &Field(|a: &mut AggregateCounter| &mut a.frozen)),
        Handler::field("active", "whether it counts", &Field(|a: &mut AggregateCounter| &mut a.active)),
        Handler::write("stop", "stops counting, and the router", &Write(AggregateCounter::stop_all)).button(),
        Handler::write(
            "reaggregate_counts",
            "counts the counts",
            &Write(|a: &mut AggregateCounter, _, _| {
                a.reaggregate();
                Ok(())
            }),
        ),
        Handler::write(
            "counts_pdf",
            "the same",
            &Write(|a: &mut AggregateCounter, _, _| {
                a.reaggregate();
                Ok(())
            }),
        ),
        Handler::read("banner", "BANNER", &Show(|a: &mut AggregateCounter| a.banner.clone())).and_write(
            &Write(|a: &mut AggregateCounter, text, _| {
                a.banner = text.to_string();
                Ok(())
            }),
        ),
        Handler::write(
            "clear",
            "forgets all counts",
            &Write(|a: &mut AggregateCounter, _, _| {
                (a.total, _) = (0, a.counts.clear());
                Ok(())
            }),
        ),
        Handler::read(
            "aggregate_call",
            "AGGREGATE_CALL while it is to come",
            &Show(|a: &mut AggregateCounter| a.at_aggregates.to_text()),
        )
        .and_write(&Write(|a: &mut AggregateCounter, text, cx| {
            a.at_aggregates.set_call("aggregate_call", text, cx)
        })),
        Handler::read(
            "count_call",
            "COUNT_CALL while it is to come",
            &Show(|a: &mut AggregateCounter| a.at_count.to_text()),
        )
        .and_write(&Write(|a: &mut AggregateCounter, text, cx| a.at_count.set_call("count_call", text, cx))),
        Handler::read("count", "the sum of all counts", &Show(|a: &mut AggregateCounter| a.total)),
        Handler::read(
            "nagg",
            "how many aggregates were seen",
            &Show(|a: &mut AggregateCounter| a.counts.len()),
        ),
    ],
    build: |args| Ok(Box::new(AggregateCounter::new(args)?)),
    finished: true,
    ..Class::DEFAULT
};

/// How a file is written.
#[derive(Clone, Copy, PartialEq, Eq)]
enum FileFormat {
    Text,
    Binary,
    Addresses,
    Shares,
}

/// A handler to write when a number is reached.
#[derive(Default)]
struct Trigger(Option<(u64, HandlerCall)>);

struct AggregateCounter {
    bytes: bool,
    ip_bytes: bool,
    multipacket: bool,
    extra_length: bool,
    banner: String,
    frozen: bool,
    active: bool,
    counts: BTreeMap<u32, u32>,
    total: u64,
    at_aggregates: Trigger,
    at_count: Trigger,
}

impl Trigger {
    /// Reads three arguments, of which one may be given: a number to freeze at, one to stop at, or
    /// one with a handler.
    fn new(args: &Args<'_>, [freeze, stop, call]: [&'static str; 3]) -> Result<Trigger, ArgError> {
        let [freezes, stops, calls] = [freeze, stop, call].map(|name| args.is_given(name));
        if u8::from(freezes) + u8::from(stops) + u8::from(calls) > 1 {
            return Err(ArgError::wrong(format!(
                "'{freeze}', '{stop}', and '{call}' are mutually exclusive"
            )));
        }
        let own = |handler: &str| HandlerCall::new(&format!("{}.{handler}", args.name()));
        let (number, call) = if freezes {
            (args.read::<u64>(freeze)?, own("freeze true"))
        } else if stops {
            (args.read::<u64>(stop)?, own("stop"))
        } else if calls {
            let given: String = args.read(call)?;
            let wants = if call == "COUNT_CALL" { "count" } else { "number of aggregates" };
            let wrong = || ArgError::wrong(format!("{call} first word should be unsigned ({wants})"));
            number_and_call(&given).ok_or_else(wrong)?
        } else {
            return Ok(Trigger(None));
        };
        Ok(Trigger(call.map(|call| (number, call))))
    }

    fn to_text(&self) -> String {
        let Some((number, call)) = &self.0 else { return String::new() };
        format!("{number} {} {}", call.handler, call.value).trim_end().to_string()
    }

    fn set_call(&mut self, handler: &str, text: &str, cx: &Context<'_>) -> Result<(), HandlerError> {
        if text.trim().is_empty() {
            self.0 = None;
            return Ok(());
        }
        let wrong =
            || HandlerError::refused(format!("argument to '{handler}' should be 'N HANDLER [VALUE]'"));
        let (number, call) = number_and_call(text).ok_or_else(wrong)?;
        let call = call.ok_or_else(wrong)?;
        call.check_writable(handler, cx).map_err(|error| HandlerError::refused(error.message))?;
        self.0 = Some((number, call));
        Ok(())
    }

    /// The call, once, when `number` is reached.
    fn due_call(&mut self, number: u64) -> Option<HandlerCall> {
        self.0.take_if(|(at, _)| number >= *at).map(|(_, call)| call)
    }
}

fn number_and_call(given: &str) -> Option<(u64, Option<HandlerCall>)> {
    let (number, call) = text::shift_word(given);
    Some((text::parse_unsigned(number).ok()?, HandlerCall::new(call)))
}

impl AggregateCounter {
    fn new(args: &mut Args<'_>) -> Result<AggregateCounter, ArgError> {
        Ok(AggregateCounter {
            bytes: args.read("BYTES")?,
            ip_bytes: args.read("IP_BYTES")?,
            multipacket: args.read("MULTIPACKET")?,
            extra_length: args.read("EXTRA_LENGTH")?,
            banner: args.read::<Option<String>>("BANNER")?.unwrap_or_default(),
            frozen: false,
            active: true,
            counts: BTreeMap::new(),
            total: 0,
            at_aggregates: Trigger::new(args, ["AGGREGATE_FREEZE", "AGGREGATE_STOP", "AGGREGATE_CALL"])?,
            at_count: Trigger::new(args, ["COUNT_FREEZE", "COUNT_STOP", "COUNT_CALL"])?,
        })
    }

    /// What a packet counts as.
    fn packet_weight(&self, packet: &Packet) -> u32 {
        let annotation =
            |at, counts: bool| if counts { u32::from_ne_bytes(packet.annotation(at)) } else { 0 };
        if !self.bytes {
            return annotation(anno::EXTRA_PACKETS, self.multipacket).wrapping_add(1);
        }
        let front = packet.network_offset().filter(|_| self.ip_bytes).unwrap_or(0);
        (packet.len() as u32)
            .wrapping_add(annotation(anno::EXTRA_LENGTH, self.extra_length))
            .wrapping_sub(front as u32)
    }

    /// Counts a packet, if its aggregate may be counted.
    fn count_packet(&mut self, packet: &Packet, mut frozen: bool, cx: &mut Context<'_>) -> bool {
        let aggregate = u32::from_ne_bytes(packet.annotation(anno::AGGREGATE));
        let amount = self.packet_weight(packet);
        let is_new = !self.counts.contains_key(&aggregate);
        let is_added = is_new && amount > 0 && self.active && !frozen;
        let reached = self.counts.len() as u64;
        if let Some(call) = is_added.then(|| self.at_aggregates.due_call(reached)).flatten() {
            call.run(self, &CLASS, "AGGREGATE_CALL", cx);
            frozen |= self.frozen;
        }
        if !self.active || frozen && !self.counts.contains_key(&aggregate) {
            return false;
        }
        if amount > 0 {
            let count = self.counts.entry(aggregate).or_default();
            *count = count.wrapping_add(amount);
        }
        self.total += u64::from(amount);
        if let Some(call) = self.at_count.due_call(self.total) {
            call.run(self, &CLASS, "COUNT_CALL", cx);
        }
        true
    }

    fn stop_all(&mut self, _: &str, cx: &mut Context<'_>) -> Result<(), HandlerError> {
        self.active = false;
        cx.request_stop();
        Ok(())
    }

    fn reaggregate(&mut self) {
        let counts = std::mem::take(&mut self.counts);
        self.total = counts.len() as u64;
        for count in counts.into_values() {
            *self.counts.entry(count).or_default() += 1;
        }
    }

    fn dump_file(&self, form: FileFormat) -> Vec<u8> {
        let mut head = String::from("!IPAggregate 1.0\n");
        if !self.banner.is_empty() {
            head += self.banner.trim_end_matches('\n');
            head.push('\n');
        }
        head += &format!("!num_nonzero {}\n", self.counts.len());
        head += match form {
            FileFormat::Binary => "!packed_le\n",
            FileFormat::Addresses => "!ip\n",
            FileFormat::Text | FileFormat::Shares => "",
        };
        let mut file = head.into_bytes();
        for (&aggregate, &count) in &self.counts {
            let line = match form {
                FileFormat::Binary => {
                    file.extend(aggregate.to_le_bytes());
                    file.extend(count.to_le_bytes());
                    continue;
                }
                FileFormat::Text => format!("{aggregate} {count}\n"),
                FileFormat::Addresses => format!("{} {count}\n", Ipv4Addr::from(aggregate)),
                FileFormat::Shares => {
                    format!("{aggregate} {}\n", format_significant(f64::from(count) / self.total as f64))
                }
            };
            file.extend(line.into_bytes());
        }
        file
    }

    fn write_file(&mut self, path: &str, form: FileFormat, cx: &mut Context<'_>) -> Result<(), HandlerError> {
        let path = text::unquote(path.trim());
        let file = self.dump_file(form);
        match path.as_str() {
            "" => Err(HandlerError::refused("argument should be filename")),
            "-" if form == FileFormat::Binary => Err(HandlerError::refused("'-' takes no binary file")),
            "-" => {
                cx.print(&String::from_utf8_lossy(&file));
                Ok(())
            }
            path => {
                let written = artery_device::files::create(path).and_then(|mut to| to.write_all(&file));
                written.map_err(|error| HandlerError::refused(format!("{path}: {error}")))
            }
        }
    }
}

impl Element for AggregateCounter {
    fn push(&mut self, input: usize, batch: &mut Batch, cx: &mut Context<'_>) {
        for packet in batch.drain() {
            let frozen = self.frozen || input == 1;
            let counted = self.count_packet(&packet, frozen, cx);
            cx.send(usize::from(!counted && cx.outputs() > 1), packet);
        }
    }

    fn pull(&mut self, output: usize, max: usize, into: &mut Batch, cx: &mut Context<'_>) {
        let mut batch = cx.scratch_batch();
        cx.pull(if cx.inputs() == 1 { 0 } else { output }, max, &mut batch);
        for packet in &batch {
            let frozen = self.frozen || output == 1;
            self.count_packet(packet, frozen, cx);
        }
        into.append(&mut batch);
        cx.recycle_batch(batch);
    }

    fn start(&mut self, cx: &mut Context<'_>) -> Result<(), StartError> {
        for (trigger, arg) in [(&self.at_aggregates, "AGGREGATE_CALL"), (&self.at_count, "COUNT_CALL")] {
            trigger.0.as_ref().map_or(Ok(()), |(_, call)| call.check_writable(arg, cx))?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use artery_engine::Bench;

    fn push(bench: &mut Bench, aggregates: &[u32]) {
        for aggregate in aggregates {
            let mut packet = bench.packet(b"abc");
            packet.set_annotation(anno::AGGREGATE, aggregate.to_ne_bytes());
            packet.set_annotation(anno::EXTRA_PACKETS, [0; 4]);
            bench.push_packets(0, [packet]);
        }
    }

    fn file(bench: &mut Bench, handler: &str) -> String {
        bench.write(handler, "-").unwrap();
        bench.stdout_text()
    }

    #[test]
    fn packets_are_counted_by_aggregate() {
        let mut bench = Bench::new(&CLASS, "BANNER hello");
        push(&mut bench, &[7, 1, 7, 7]);
        let found = file(&mut bench, "write_text_file");
        assert_eq!(found, "!IPAggregate 1.0\nhello\n!num_nonzero 2\n1 1\n7 3\n");
        assert_eq!(bench.read("count", "").unwrap(), "4");
        assert_eq!(bench.read("nagg", "").unwrap(), "2");
        assert_eq!(bench.drain_sent(0).len(), 4);
    }

    #[test]
    fn files_have_several_forms() {
        let mut bench = Bench::new(&CLASS, "BYTES true");
        push(&mut bench, &[1, 2, 2]);
        assert!(file(&mut bench, "write_ip_file").ends_with("!ip\n0.0.0.1 3\n0.0.0.2 6\n"));
        assert!(file(&mut bench, "write_pdf_file").ends_with("1 0.333333333333\n2 0.666666666667\n"));
        bench.write("reaggregate_counts", "").unwrap();
        assert!(file(&mut bench, "write_text_file").ends_with("!num_nonzero 2\n3 1\n6 1\n"));
        bench.write("clear", "").unwrap();
        assert!(file(&mut bench, "write_text_file").ends_with("!num_nonzero 0\n"));
    }

    #[test]
    fn while_frozen_new_aggregates_leave_by_output_1() {
        let mut bench = Bench::setup(&CLASS, "AGGREGATE_FREEZE 2").outputs(2).build().unwrap();
        push(&mut bench, &[1, 2, 3, 1]);
        assert_eq!((bench.drain_sent(0).len(), bench.drain_sent(1).len()), (3, 1));
        assert_eq!(bench.read("freeze", "").unwrap(), "true");
        assert_eq!(bench.read("nagg", "").unwrap(), "2");
    }

    #[test]
    fn the_router_can_be_stopped_at_a_count() {
        let mut bench = Bench::new(&CLASS, "COUNT_STOP 3");
        push(&mut bench, &[1, 2]);
        assert!(!bench.stop_requested());
        assert_eq!(bench.read("count_call", "").unwrap(), "3 e.stop");
        push(&mut bench, &[2, 2]);
        assert!(bench.stop_requested());
        assert_eq!(bench.read("count", "").unwrap(), "3");
        assert_eq!(bench.read("count_call", "").unwrap(), "");
    }

    #[test]
    fn limits_exclude_each_other() {
        let wrong = "'COUNT_FREEZE', 'COUNT_STOP', and 'COUNT_CALL' are mutually exclusive";
        assert_eq!(Bench::config_error(&CLASS, "COUNT_STOP 3, COUNT_FREEZE 2"), wrong);
        let wrong = "AGGREGATE_CALL first word should be unsigned (number of aggregates)";
        assert_eq!(Bench::config_error(&CLASS, "AGGREGATE_CALL x y"), wrong);
    }
}
