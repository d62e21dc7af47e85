use super::output_file::OutputFile;
use super::transfer::{pull_and_push, send_or_end};
use artery_device::{DeviceError, LinkType, PcapOptions, PcapWriter};
use artery_engine::{
    Arg, ArgError, Args, Batch, Class, Context, Element, Handler, HandlerError, Packet, Phase, Show,
    StartError, Write, anno,
};
use artery_lang::args as text;
use std::any::Any;

pub static CLASS: Class = Class {
    name: "ToDump",
    group: "files",
    summary: "writes packets to a pcap file",
    manual: "
Writes packets to a file that tcpdump and FromDump read; `-` is standard output. At most SNAPLEN bytes of each
are written, with its timestamp, or the time if it has none. ENCAP says with what packets begin, such as ETHER
or IP; USE_ENCAP_FROM asks elements that have an `encap` handler, which must agree. With an output the packets
go on, unchanged; else they end here. When writing fails, that is said once, packets are counted and not
written from then on, and the run counts as failed: the program's exit status is 1.

A ToDump that takes the place of another of the same name and arguments goes on in its file; if that was
renamed meanwhile, as by a log rotation, it begins a new one.",
    example: "InfiniteSource(LIMIT 3, STOP true) -> ToDump(out.pcap, ENCAP IP);",
    ports: "1/0-1",
    args: &[
        Arg::required("FILENAME", "filename", "the file, `-` for standard output"),
        Arg::optional("SNAPLEN", "bytes", "2000", "most bytes of a packet to write; 0 for all"),
        Arg::optional("ENCAP", "link type", "", "what packets begin with; ETHER unless said otherwise"),
        Arg::keyword("USE_ENCAP_FROM", "elements", "", "elements whose `encap` handlers say it"),
        Arg::keyword("EXTRA_LENGTH", "bool", "true", "whether the extra length annotation counts"),
        Arg::keyword("UNBUFFERED", "bool", "false", "whether to write each batch at once"),
        Arg::keyword("NANO", "bool", "true", "whether times are in nanoseconds"),
    ],
    handlers: &[
        Handler::read("count", "packets written", &Show(|t: &mut ToDump| t.count)),
        Handler::write("reset_counts", "sets counts to zero", &Write(ToDump::reset_counts)).button(),
        Handler::read("failed", "packets that could not be written", &Show(|t: &mut ToDump| t.failed)),
        Handler::read("filename", "FILENAME", &Show(|t: &mut ToDump| t.file_name())),
    ],
    // After the elements whose `encap` handler it reads.
    phase: Phase::Last,
    build: |args| Ok(Box::new(ToDump::new(args)?)),
    finished: true,
    ..Class::DEFAULT
};

struct ToDump {
    options: PcapOptions,
    encap_from: Vec<String>,
    extra_length: bool,
    unbuffered: bool,
    file: OutputFile<PcapWriter>,
    count: u64,
    failed: u64,
}

impl ToDump {
    fn new(args: &mut Args<'_>) -> Result<ToDump, ArgError> {
        let encap: Option<String> = args.read("ENCAP")?;
        let encap_from: Option<String> = args.read("USE_ENCAP_FROM")?;
        if encap.is_some() && encap_from.is_some() {
            return Err(ArgError::wrong("specify at most one of 'ENCAP' and 'USE_ENCAP_FROM'"));
        }
        let link_type = match encap {
            Some(encap) => {
                LinkType::from_name(&encap).ok_or_else(|| ArgError::wrong("bad encapsulation type"))?
            }
            None => LinkType::ETHER,
        };
        let encap_from = encap_from.map(|names| text::split_words(&names)).unwrap_or_default();
        if let Some(name) = encap_from.iter().find(|name| args.find_element(name).is_none()) {
            return Err(ArgError::wrong(format!("no element named '{name}'")));
        }
        let options = PcapOptions { snaplen: args.read("SNAPLEN")?, nano: args.read("NANO")?, link_type };
        Ok(ToDump {
            file: OutputFile::new(args.read("FILENAME")?),
            options,
            encap_from,
            extra_length: args.read("EXTRA_LENGTH")?,
            unbuffered: args.read("UNBUFFERED")?,
            count: 0,
            failed: 0,
        })
    }

    fn reset_counts(&mut self, _: &str, _: &mut Context<'_>) -> Result<(), HandlerError> {
        (self.count, self.failed) = (0, 0);
        Ok(())
    }

    fn file_name(&self) -> String {
        if self.file.path() == "-" { "<stdout>".into() } else { self.file.path().into() }
    }

    /// Reads the link type from other elements.
    fn resolve_encap(&mut self, cx: &mut Context<'_>) -> Result<(), StartError> {
        let mut found: Option<LinkType> = None;
        for name in &self.encap_from {
            let answer = cx
                .read_handler(&format!("{name}.encap"), "")
                .map_err(|_| StartError::new(format!("'{name}' has no 'encap' read handler")))?;
            let link = LinkType::from_name(answer.trim()).ok_or_else(|| {
                StartError::new(format!("'{name}.encap' did not return a valid encapsulation type"))
            })?;
            if found.is_some_and(|other| other != link) {
                return Err(StartError::new("source encapsulation types disagree")
                    .with_help(format!("'{name}' has {link}; give each kind a ToDump of its own")));
            }
            found = Some(link);
        }
        self.options.link_type = found.unwrap_or(self.options.link_type);
        Ok(())
    }

    /// Opens the file when the element already runs, if that is still pending.
    fn open_late(&mut self, cx: &mut Context<'_>) {
        let options = self.options;
        if let Err(error) = self.file.open_pending(|path| PcapWriter::create(path, options)) {
            self.abort_with(&error, cx);
        }
    }

    fn write_batch(&mut self, packets: &Batch, cx: &mut Context<'_>) {
        if packets.is_empty() {
            return;
        }
        for (done, packet) in packets.iter().enumerate() {
            if let Err(error) = self.write_packet(packet, cx) {
                self.failed += (packets.len() - done) as u64;
                self.abort_with(&error, cx);
                return;
            }
        }
        let flushed = if self.unbuffered { self.flush_file() } else { Ok(()) };
        if let Err(error) = flushed {
            self.abort_with(&error, cx);
        }
    }

    fn write_packet(&mut self, packet: &Packet, cx: &mut Context<'_>) -> Result<(), DeviceError> {
        let Some(writer) = self.file.writer() else {
            self.failed += 1;
            return Ok(());
        };
        let time = Some(packet.timestamp()).filter(|time| time.0 != 0).unwrap_or_else(|| cx.now());
        let extra =
            if self.extra_length { u32::from_ne_bytes(packet.annotation(anno::EXTRA_LENGTH)) } else { 0 };
        writer.write(time, (packet.len() as u32).saturating_add(extra), packet.data())?;
        self.count += 1;
        Ok(())
    }

    fn flush_file(&mut self) -> Result<(), DeviceError> {
        self.file.writer().map_or(Ok(()), PcapWriter::flush)
    }

    fn abort_with(&mut self, error: &DeviceError, cx: &mut Context<'_>) {
        self.file.close();
        cx.report_failure(&format!("{} :: ToDump: {error}", cx.name()));
    }
}

impl Element for ToDump {
    fn push(&mut self, _input: usize, batch: &mut Batch, cx: &mut Context<'_>) {
        self.open_late(cx);
        self.write_batch(batch, cx);
        send_or_end(batch, cx);
    }

    fn run_task(&mut self, cx: &mut Context<'_>) -> bool {
        self.open_late(cx);
        if cx.outputs() > 0 || !cx.input_is_pull(0) {
            return true;
        }
        pull_and_push(self, cx)
    }

    fn start(&mut self, cx: &mut Context<'_>) -> Result<(), StartError> {
        self.resolve_encap(cx)?;
        let (options, is_replacing) = (self.options, cx.is_replacing());
        let open = |path: &str| PcapWriter::create(path, options);
        let started = self.file.start(is_replacing, PcapWriter::check, open);
        started.map_err(|error| StartError::new(error.to_string()))?;
        if is_replacing || cx.outputs() == 0 && cx.input_is_pull(0) {
            cx.schedule();
        }
        Ok(())
    }

    fn take_state(&mut self, old: &mut dyn Any, cx: &mut Context<'_>) {
        let Some(old) = old.downcast_mut::<ToDump>() else { return };
        if old.file.path() != self.file.path() || old.options != self.options {
            return;
        }
        (self.count, self.failed) = (old.count, old.failed);
        self.file.take_over(&mut old.file);
        self.open_late(cx);
    }

    fn stop(&mut self, cx: &mut Context<'_>) {
        if let Err(error) = self.flush_file() {
            self.abort_with(&error, cx);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use artery_device::PcapReader;
    use artery_engine::{Bench, DropReason, Time};

    /// Times, lengths on the wire and bytes of the packets in a file.
    fn contents(path: &str) -> (LinkType, Vec<(Time, u32, Vec<u8>)>) {
        let mut reader = PcapReader::open(path).unwrap();
        let mut packets = Vec::new();
        while let Some((record, bytes)) = reader.next_record().unwrap() {
            packets.push((record.time, record.wire_len, bytes.to_vec()));
        }
        (reader.link_type(), packets)
    }

    /// A path in a directory that is removed with the first value.
    fn scratch() -> (tempfile::TempDir, String) {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("t.pcap").to_str().unwrap().to_string();
        (directory, path)
    }

    #[test]
    fn writes_what_passes() {
        let (_directory, path) = scratch();
        let mut bench = Bench::new(&CLASS, &format!("{path}, SNAPLEN 4, ENCAP IP, UNBUFFERED true"));
        let mut packet = bench.packet(b"a packet");
        packet.set_timestamp(Time::new(7, 5));
        packet.set_annotation(anno::EXTRA_LENGTH, 3u32.to_ne_bytes());
        bench.push_packets(0, [packet]);
        bench.push(0, b"b");
        bench.expect(0, b"a packet");
        bench.expect(0, b"b");
        let now = bench.now();
        let packets = vec![(Time::new(7, 5), 11, b"a pa".to_vec()), (now, 1, b"b".to_vec())];
        assert_eq!(contents(&path), (LinkType::IP, packets));
        assert_eq!(bench.read("count", "").as_deref(), Ok("2"));
        bench.write("reset_counts", "").unwrap();
        assert_eq!(bench.read("count", "").as_deref(), Ok("0"));
    }

    #[test]
    fn without_an_output_it_pulls_until_there_is_nothing() {
        let (_directory, path) = scratch();
        let config = format!("{path}, NANO false, UNBUFFERED true");
        let mut bench = Bench::setup(&CLASS, &config).outputs(0).pull().build().unwrap();
        bench.offer(0, b"x");
        bench.offer(0, b"y");
        bench.run_once();
        assert_eq!(contents(&path).1.len(), 2);
        bench.expect_dropped(DropReason::Discarded, 2);
    }

    #[test]
    fn a_file_that_can_not_be_written_is_refused_at_the_start() {
        assert!(Bench::config_error(&CLASS, "/nowhere/t.pcap").contains("/nowhere/t.pcap"));
        assert_eq!(Bench::config_error(&CLASS, "x, ENCAP NONSENSE"), "bad encapsulation type");
        assert_eq!(Bench::config_error(&CLASS, "x, USE_ENCAP_FROM y"), "no element named 'y'");
        let both = Bench::config_error(&CLASS, "x, ENCAP IP, USE_ENCAP_FROM y");
        assert_eq!(both, "specify at most one of 'ENCAP' and 'USE_ENCAP_FROM'");
    }

    #[test]
    fn a_full_disk_is_said_once_and_packets_still_pass() {
        let mut bench = Bench::new(&CLASS, "/dev/full, UNBUFFERED true");
        for _ in 0..3 {
            bench.push(0, b"x");
            bench.expect(0, b"x");
        }
        let said = bench.stderr_text();
        assert_eq!(said.lines().count(), 1, "{said}");
        assert!(said.starts_with("e :: ToDump: /dev/full: "), "{said}");
        assert_eq!(bench.read("failed", "").as_deref(), Ok("2"));
    }

    #[test]
    fn its_successor_goes_on_in_the_same_file() {
        let (_directory, path) = scratch();
        let mut old = Bench::new(&CLASS, &path);
        old.push(0, b"one");
        let mut new = Bench::new(&CLASS, &format!("{path}, UNBUFFERED true"));
        new.take_state(&mut old);
        new.push(0, b"two");
        let found = contents(&path).1.into_iter().map(|(_, _, bytes)| bytes).collect::<Vec<_>>();
        assert_eq!(found, [b"one", b"two"]);
        assert_eq!(new.read("count", "").as_deref(), Ok("2"));
        let renamed = path.clone() + ".0";
        std::fs::rename(&path, &renamed).unwrap();
        let setup =
            Bench::setup(&CLASS, &format!("{path}, UNBUFFERED true")).sharing_with(&new).as_replacement();
        let mut next = setup.build().unwrap();
        next.take_state(&mut new);
        next.push(0, b"three");
        let bytes = |path: &str| contents(path).1.into_iter().map(|(_, _, bytes)| bytes).collect::<Vec<_>>();
        assert_eq!(bytes(&path), vec![b"three".to_vec()]);
        assert_eq!(bytes(&renamed), vec![b"one".to_vec(), b"two".to_vec()]);
        assert_eq!(next.read("count", "").as_deref(), Ok("3"));
        let (_elsewhere, other) = scratch();
        let mut unrelated = Bench::new(&CLASS, &other);
        unrelated.take_state(&mut new);
        assert_eq!(unrelated.read("count", "").as_deref(), Ok("0"));
    }
}
