use super::method::{METHOD, busy_poll, read_method};
use super::monitor::{self, MONITOR, MonitorSetting};
use super::port::{Hidden, Hiding, Receiver, open_port};
use crate::network_header;
use artery_device::{Hide, LinkType, Method, PortSpec, Ports, RxSettings};
use artery_engine::{
    Arg, ArgError, Args, Batch, Class, Context, DropReason, Element, Handler, HandlerError, Packet, Phase,
    Read, Show, StartError, Write, anno, parse_value,
};
use std::any::Any;
use std::sync::Arc;

pub static CLASS: Class = Class {
    name: "FromDevice",
    aliases: &["KernelReader"],
    group: "device",
    summary: "receives frames from a network interface",
    manual: "
Sends the frames that arrive at an interface, link header and all, with the kernel's timestamps and the packet
type (for this host, for another, broadcast, multicast, outgoing). What the router itself sends by the
interface is not received.

The host's own stack sees the same frames, as with a sniffer. That is right for most routers on a host that
does not forward itself (`sysctl net.ipv4.ip_forward=0`): the host answers what is meant for it, ignores the
rest, and the router forwards the rest. With SNIFFER false a filter at the interface hides what arrives from
the host, for as long as the router holds the interface, however it ends. What the host should get then has to
be handed to it by ToHost. With SNIFFER untagged it hides the frames of VLANs only: the host goes on with what
comes without a tag, which the router receives as well. With PROMISC, frames for other MAC addresses are
received, too.

With FORCE_IP only frames with an IP packet leave by output 0, header marked; others leave by output 1 or are
dropped. SNAPLEN cuts long frames; what was cut off is counted in the extra length annotation.

Hosts leave work to network cards: the checksums of TCP and UDP, and cutting what they send into segments.
Such frames cross the router whole, up to 64 kB long, with right headers except that checksum, and leave so
by interfaces that can take them. Where they can't go on so - before elements that encapsulate or cut packets,
such as UDPIPEncap, in pcap files, with SNAPLEN - they are finished first. Hosts can keep their default
offloads.

METHOD says by which way. XDP is AF_XDP: frames lie in the router's own memory, where the driver can do that
uncopied, and what arrives is the router's alone, as with SNIFFER false. The driver runs the program that
hands frames over (XDP_NATIVE), or the kernel (XDP_GENERIC). LINUX is packet sockets, whose frames can stay
uncut. AUTO takes AF_XDP where the driver copies nothing, and SNIFFER is false and OUTBOUND too; else packet
sockets. One line at the start says which, and why.

MONITOR, and the handler `monitor` in the run, let received frames end on their way, to see what the way up to
there costs: at l0 out of the receive queue, at l1 once their EtherType was read, at l2 once CheckIPHeader has
checked them, at l3 once a route was looked up, at l4 when nothing is left but to transmit; `off` lets them go
all the way. They are counted as monitored drops where they end. The port counts all alike: `port` reads what
went through it since it was opened, all queues and graphs together.

An interface that is renamed is used on. When it vanishes, that is said once, and the element receives
nothing until there is an interface DEVNAME again, which it uses from then on. On several workers, each
receives a share of the flows. The command line can give DEVNAME another interface.

An interface has one owner: a process that receives with SNIFFER false or untagged, or by AF_XDP, or that
sends by the interface, keeps other processes of Artery from doing so. With SNIFFER true any number of
processes can receive.

Unlike in Click, an interface is read by one FromDevice and written by one ToDevice: use Tee where two parts
of a router want its frames.",
    example: "FromDevice(eth0) -> Queue -> ToDevice(eth1);",
    ports: "0/1-2",
    processing: "h/h",
    args: &[
        Arg::required("DEVNAME", "interface", "the interface"),
        Arg::optional("PROMISC", "bool", "false", "whether to receive frames for other MAC addresses"),
        Arg::optional("SNAPLEN", "bytes", "", "most bytes of a frame to keep; all if not given"),
        Arg::keyword(
            "SNIFFER",
            "true, false or untagged",
            "true",
            "whether the host sees the frames as well, or those without a tag",
        ),
        Arg::keyword("FORCE_IP", "bool", "false", "whether to send IP packets only, with marked headers"),
        Arg::keyword("OUTBOUND", "bool", "false", "whether to receive what the host sends, too"),
        Arg::keyword("TIMESTAMP", "bool", "true", "whether to set timestamps"),
        Arg::keyword(
            "BURST",
            "packets",
            "",
            "most packets in one run; the router's burst, or what a queue behind has room for, if not given",
        ),
        Arg::keyword("ACTIVE", "bool", "true", "whether to receive"),
        MONITOR,
        METHOD,
        Arg::keyword("CAPTURE", "word", "AUTO", "older name of METHOD"),
        Arg::keyword(
            "BUSY_POLL",
            "microseconds",
            "0",
            "with XDP: how long a look for frames may do the driver's work",
        ),
        Arg::keyword("HEADROOM", "bytes", "28", "accepted; there always is more"),
        Arg::keyword("BPF_FILTER", "text", "", "refused: use IPClassifier"),
    ],
    handlers: &[
        Handler::read("count", "packets received", &Show(|f: &mut FromDevice| f.count)).sum(),
        Handler::write("reset_counts", "sets count to zero", &Write(FromDevice::reset_counts)).button(),
        Handler::read(
            "kernel_drops",
            "frames the kernel dropped because the router was late",
            &Read(FromDevice::drops_text),
        )
        .sum(),
        Handler::read("encap", "link type of the interface", &Show(|f: &mut FromDevice| f.link_type())),
        Handler::read("active", "ACTIVE", &Show(|f: &mut FromDevice| f.active))
            .and_write(&Write(FromDevice::set_active)),
        Handler::read("monitor", "MONITOR, of the port", &Read(FromDevice::monitor_text))
            .and_write(&Write(FromDevice::set_monitor))
            .once(),
        Handler::read(
            "port",
            "packets, bytes and errors of the port",
            &Show(|f: &mut FromDevice| f.receiver.half.format_counts()),
        ),
    ],
    phase: Phase::Privileged,
    build: |args| Ok(Box::new(FromDevice::new(args)?)),
    ..Class::PER_WORKER
};

struct FromDevice {
    device: String,
    settings: RxSettings,
    burst: Option<usize>,
    snaplen: Option<usize>,
    force_ip: bool,
    active: bool,
    monitor: MonitorSetting,
    ports: Arc<Ports>,
    hidden: Arc<Hidden>,
    hiding: Option<Hiding>,
    receiver: Receiver,
    count: u64,
}

fn refuse_filter(args: &Args<'_>) -> Result<(), ArgError> {
    match args.read::<Option<String>>("BPF_FILTER")? {
        Some(filter) if !filter.is_empty() => {
            Err(ArgError::wrong("BPF_FILTER is not supported; put an IPClassifier behind FromDevice"))
        }
        _ => Ok(()),
    }
}

impl FromDevice {
    fn new(args: &mut Args<'_>) -> Result<FromDevice, ArgError> {
        let device: String = args.read("DEVNAME")?;
        refuse_filter(args)?;
        let burst: Option<usize> = args.read("BURST")?;
        if burst == Some(0) {
            return Err(ArgError::wrong("BURST must be at least 1"));
        }
        let (copy, copies) = args.copy_index();
        let given = if args.is_given("METHOD") { "METHOD" } else { "CAPTURE" };
        let way = read_method(args, given)?;
        let settings = RxSettings {
            method: way,
            busy_poll: busy_poll(args)?,
            promiscuous: args.read("PROMISC")?,
            hide: parse_sniffer(args, way)?,
            outbound: args.read("OUTBOUND")?,
            timestamps: args.read("TIMESTAMP")?,
            queues: copies as u16,
            ..RxSettings::default()
        };
        let device = args.names().device_name(&device).to_string();
        let ports: Arc<Ports> = args.resource();
        ports.expect(&device, settings.clone());
        Ok(FromDevice {
            device,
            settings,
            burst,
            snaplen: args.read("SNAPLEN")?,
            force_ip: args.read("FORCE_IP")?,
            active: args.read("ACTIVE")?,
            monitor: MonitorSetting { argument: Some(args.read("MONITOR")?).filter(|_| copy == 0) },
            ports,
            hidden: args.resource(),
            hiding: None,
            receiver: Receiver::new(copy as u16),
            count: 0,
        })
    }

    fn reset_counts(&mut self, _: &str, _: &mut Context<'_>) -> Result<(), HandlerError> {
        self.count = 0;
        Ok(())
    }
    fn drops_text(&mut self, _: &str, _: &mut Context<'_>) -> Result<String, HandlerError> {
        Ok(self.receiver.counters().ring_full.to_string())
    }
    fn set_active(&mut self, text: &str, cx: &mut Context<'_>) -> Result<(), HandlerError> {
        self.active = parse_value(text)?;
        if self.active {
            cx.schedule();
        }
        Ok(())
    }

    fn monitor_text(&mut self, _: &str, cx: &mut Context<'_>) -> Result<String, HandlerError> {
        Ok(self.monitor.current_monitor(self.receiver.half.port_number(), cx).to_string())
    }
    fn set_monitor(&mut self, text: &str, cx: &mut Context<'_>) -> Result<(), HandlerError> {
        self.monitor.set_monitor(self.receiver.half.port_number(), parse_value(text)?, cx);
        Ok(())
    }

    fn link_type(&self) -> LinkType {
        self.receiver.half.port().and_then(|port| port.link_type()).unwrap_or(LinkType::ETHER)
    }

    /// Cuts frames to the snap length, and sends frames without an IP packet to another output.
    fn trim_batch(&self, batch: &mut Batch, cx: &mut Context<'_>) {
        if let Some(snaplen) = self.snaplen {
            cx.apply_offloads(batch);
            batch.iter_mut().for_each(|packet| cut_packet(packet, snaplen));
        }
        if self.force_ip {
            let link = self.link_type();
            batch.filter_map(|mut packet| {
                if network_header::mark_network_header(&mut packet, link) {
                    return Some(packet);
                }
                cx.send_or_discard(1, packet, DropReason::NoOutput);
                None
            });
        }
    }
}

/// What the host does not see, by SNIFFER and the way; AF_XDP takes all from it.
fn parse_sniffer(args: &Args<'_>, way: Method) -> Result<Hide, ArgError> {
    let word: String = args.read("SNIFFER")?;
    if word != Hide::Tagged.name() {
        let sees_all: bool = args.read("SNIFFER")?;
        return Ok(if sees_all && !matches!(way, Method::Xdp(_)) { Hide::Nothing } else { Hide::All });
    }
    match way {
        Method::Xdp(_) => {
            let why =
                format!("with METHOD {} the host sees nothing; leave METHOD out, or say LINUX", way.name());
            Err(ArgError::wrong_at(format!("SNIFFER {word}"), why))
        }
        Method::Auto | Method::Packet => Ok(Hide::Tagged),
    }
}

fn cut_packet(packet: &mut Packet, snaplen: usize) {
    let beyond = packet.len().saturating_sub(snaplen);
    if beyond > 0 && packet.trim(beyond).is_ok() {
        packet.set_annotation(anno::EXTRA_LENGTH, (beyond as u32).to_ne_bytes());
    }
}

impl Element for FromDevice {
    fn run_task(&mut self, cx: &mut Context<'_>) -> bool {
        self.monitor.apply_argument(self.receiver.half.port_number(), cx);
        if !self.active {
            return false;
        }
        let mut batch = cx.scratch_batch();
        // More than a short queue behind has room for can wait in the kernel. With no room at all one frame
        // is received and dropped there, as at a burst of 1.
        let burst = self.burst.unwrap_or_else(|| cx.burst().min(cx.downstream_room(0)).max(1));
        let monitored = self.receiver.monitor_level(cx);
        self.receiver.receive(burst, &mut batch, cx);
        let received = batch.len();
        self.count += received as u64;
        if let Some(level) = monitored {
            monitor::end_at_port(level, &mut batch, cx);
        }
        if self.snaplen.is_some() || self.force_ip {
            self.trim_batch(&mut batch, cx);
        }
        cx.send_all(0, &mut batch);
        cx.recycle_batch(batch);
        received > 0
    }

    fn start(&mut self, cx: &mut Context<'_>) -> Result<(), StartError> {
        let (name, receive) = (self.device.clone(), Some(self.settings.clone()));
        let port = open_port(&self.ports, PortSpec::Interface { name, receive, transmit: None }, cx)?;
        let known = port.report();
        self.receiver.start(port.clone(), cx)?;
        // The first of all copies, and of all graphs, to receive by it says how.
        if let Some(report) = port.report().filter(|report| known.as_ref() != Some(report)) {
            cx.print_message(&format!("{}: {report}", cx.name()));
        }
        self.hiding = (self.settings.hide != Hide::Nothing).then(|| self.hidden.hide_interface(&self.device));
        Ok(())
    }

    fn stop(&mut self, cx: &mut Context<'_>) {
        self.receiver.count_losses(cx);
    }

    fn take_state(&mut self, old: &mut dyn Any, cx: &mut Context<'_>) {
        if let Some(old) = old.downcast_mut::<FromDevice>() {
            self.receiver.adopt_held(&mut old.receiver, cx);
            self.count = old.count;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use artery_device::{MemoryPort, TxQueue as _, memory_pair};
    use artery_engine::{Bench, PacketType, Pool, Resources};
    use artery_packet::{PacketOffload, SegmentKind, Segments};
    use artery_wire::build::{ether, ip4};

    /// A bench with a port in memory called `m`, and its other end.
    fn bench(config: &str, capacity: usize) -> (Bench, MemoryPort, Arc<Resources>) {
        let resources: Arc<Resources> = Arc::default();
        let (here, there) = memory_pair(capacity);
        resources.get::<Ports>().insert("m", here);
        let bench = Bench::setup(&CLASS, config).resources(resources.clone()).build().unwrap();
        (bench, there, resources)
    }

    fn send(port: &mut MemoryPort, frames: &[&[u8]]) {
        let pool = Pool::new(64, 1).unwrap();
        let mut batch = Batch::default();
        batch.extend(frames.iter().map(|frame| pool.packet_from(frame).unwrap()));
        port.tx.transmit(&mut batch).unwrap();
    }

    #[test]
    fn what_arrives_at_the_port_is_sent() {
        let (mut bench, mut port, _) = bench("m", 8);
        send(&mut port, &[b"one", b"two"]);
        bench.run_once();
        bench.expect(0, b"one");
        bench.expect(0, b"two");
        assert_eq!(bench.read("count", "").as_deref(), Ok("2"));
        bench.write("reset_counts", "").unwrap();
        assert_eq!(bench.read("count", "").as_deref(), Ok("0"));
        assert_eq!(bench.read("kernel_drops", "").as_deref(), Ok("0"));
        assert_eq!(bench.read("encap", "").as_deref(), Ok("ETHER"));
    }

    const COUNTS: &str =
        "in_packets 2\nin_bytes 160\nin_errors 0\nout_packets 0\nout_bytes 0\nout_errors 0\n";

    #[test]
    fn frames_of_a_monitored_port_end_at_once_and_are_counted_all_the_same() {
        for (level, sent) in [("l0", 0), ("l1", 0), ("l2", 2), ("l3", 2), ("l4", 2), ("off", 2)] {
            let (mut bench, mut port, _) = bench(&format!("m, MONITOR {level}"), 8);
            assert_eq!(bench.read("monitor", "").as_deref(), Ok(level));
            send(&mut port, &[&[1; 60], &[2; 100]]);
            bench.run_once();
            assert_eq!(bench.drain_sent(0).len(), sent, "{level}");
            bench.expect_dropped(DropReason::Monitored, 2 - sent as u64);
            assert_eq!(bench.read("port", "").as_deref(), Ok(COUNTS), "{level}");
            assert_eq!(bench.read("count", "").as_deref(), Ok("2"));
        }
    }

    #[test]
    fn monitor_mode_is_changed_in_the_run() {
        let (mut bench, mut port, _) = bench("m, MONITOR l1", 8);
        send(&mut port, &[b"short"]);
        bench.run_once();
        bench.expect_dropped(DropReason::Monitored, 1);
        bench.write("monitor", "OFF").unwrap();
        send(&mut port, &[b"two"]);
        bench.run_once();
        bench.expect(0, b"two");
        let refusal = bench.write("monitor", "l5").unwrap_err().to_string();
        assert_eq!(refusal, "'l5' is not 'off', 'l0', 'l1', 'l2', 'l3' or 'l4'");
        bench.write("monitor", "l0").unwrap();
        assert_eq!(bench.read("monitor", "").as_deref(), Ok("l0"));
        send(&mut port, &[b"three"]);
        bench.run_once();
        bench.expect_dropped(DropReason::Monitored, 2);
    }

    #[test]
    fn packets_have_their_type_again_once_they_are_looked_at() {
        let (mut bench, mut port, _) = bench("m, MONITOR l0", 8);
        send(&mut port, &[&[0xff; 60]]);
        bench.run_once();
        bench.write("monitor", "off").unwrap();
        send(&mut port, &[&[0xff; 60]]);
        bench.run_once();
        assert_eq!(bench.next_sent(0).unwrap().packet_type(), PacketType::Broadcast);
    }

    #[test]
    fn a_successor_sets_the_port_to_what_it_says_itself() {
        let (mut old, mut port, resources) = bench("m, MONITOR l0", 8);
        old.run_once();
        let mut new =
            Bench::setup(&CLASS, "m").resources(resources.clone()).as_replacement().build().unwrap();
        // Until it runs, the old one does.
        assert_eq!(old.read("monitor", "").as_deref(), Ok("l0"));
        new.take_state(&mut old);
        send(&mut port, &[b"one"]);
        new.run_once();
        new.expect(0, b"one");
        assert_eq!(new.read("monitor", "").as_deref(), Ok("off"));
    }

    #[test]
    fn the_router_lists_its_ports_with_counts_that_outlive_elements() {
        let (mut old, mut port, resources) = bench("m, MONITOR l2", 8);
        let list = || (monitor::PORTS.read)(&resources);
        let columns = "port\tmtu\taddress\tmonitor\tin_packets\tin_bytes\tin_errors\t\
                       out_packets\tout_bytes\tout_errors\tin_delays\tin_delay_us\tstate\tinterface\n";
        let no_delays = "0,0,0,0,0,0,0,0,0,0,0,0,0,0\t0\tup\t-\n";
        send(&mut port, &[&[1; 60], &[2; 100]]);
        old.run_once();
        assert_eq!(list(), format!("{columns}m\t-\t-\tl2\t2\t160\t0\t0\t0\t0\t{no_delays}"));
        drop(old);
        let mut new = Bench::setup(&CLASS, "m").resources(resources.clone()).build().unwrap();
        send(&mut port, &[&[3; 40]]);
        new.run_once();
        assert_eq!(list(), format!("{columns}m\t-\t-\toff\t3\t200\t0\t0\t0\t0\t{no_delays}"));
        assert_eq!((monitor::PORTS.read)(&Resources::default()), columns);
    }

    #[test]
    fn a_run_sends_a_burst_at_most() {
        let (mut bench, mut port, _) = bench("m, BURST 1", 8);
        send(&mut port, &[b"one", b"two"]);
        bench.run_once();
        assert_eq!(bench.drain_sent(0).len(), 1);
        bench.run_once();
        assert_eq!(bench.drain_sent(0).len(), 1);
    }

    #[test]
    fn an_inactive_one_leaves_frames_where_they_are() {
        let (mut bench, mut port, _) = bench("m, ACTIVE false", 8);
        send(&mut port, &[b"one"]);
        bench.run();
        assert!(bench.next_sent(0).is_none());
        bench.write("active", "true").unwrap();
        bench.run_once();
        bench.expect(0, b"one");
    }

    #[test]
    fn long_frames_are_cut_and_other_protocols_turned_aside() {
        let (mut bench, mut port, _) = bench("m, SNAPLEN 20, FORCE_IP true", 8);
        send(&mut port, &[&[7; 60]]);
        bench.run_once();
        let packet = bench.expect(1, [7; 20]);
        assert_eq!(packet.annotation(anno::EXTRA_LENGTH), 40u32.to_ne_bytes());
    }

    #[test]
    fn long_packets_come_whole_or_cut_into_segments_before_these_are_cut_short() {
        let whole = ether([1; 6], [2; 6]).ip4(ip4().tcp(1, 2).payload([7; 3000])).bytes();
        let segments = Some(Segments { network: 14, kind: SegmentKind::Tcp4, size: 1000 });
        let left = PacketOffload { transport: 34, checksum: 16, segments };
        for (config, lengths) in [("m", vec![3054]), ("m, SNAPLEN 60", vec![60; 3])] {
            let (mut bench, mut port, _) = bench(config, 8);
            let mut batch = Batch::default();
            batch.push(Pool::new(64, 1).unwrap().packet_from(&whole).unwrap());
            batch.iter_mut().for_each(|packet| packet.set_offload(left).unwrap());
            port.tx.transmit(&mut batch).unwrap();
            bench.run_once();
            let got = bench.drain_sent(0);
            assert_eq!(got.iter().map(Packet::len).collect::<Vec<_>>(), lengths);
            assert!(got.iter().all(|packet| packet.has_offload() == (packet.len() == 3054)));
        }
    }

    #[test]
    fn its_successor_receives_what_it_left() {
        let (mut old, mut port, resources) = bench("m", 8);
        send(&mut port, &[b"one"]);
        let setup = || Bench::setup(&CLASS, "m").resources(resources.clone());
        let taken = setup().build().err().unwrap()[0].to_string();
        assert!(taken.contains("in use already"), "{taken}");
        let mut new = setup().as_replacement().build().unwrap();
        new.take_state(&mut old);
        new.run_once();
        new.expect(0, b"one");
    }

    #[test]
    fn a_port_with_one_queue_does_not_serve_several_workers() {
        let resources: Arc<Resources> = Arc::default();
        resources.get::<Ports>().insert("m", memory_pair(8).0);
        let copy = |worker| Bench::setup(&CLASS, "m").resources(resources.clone()).as_copy(worker, 2).build();
        let _first = copy(0).unwrap();
        let refusal = copy(1).err().unwrap()[0].to_string();
        assert_eq!(refusal, "m has 1 queue, too few for a copy of this element on every worker");
    }

    #[test]
    fn bad_configurations_are_refused() {
        assert_eq!(Bench::config_error(&CLASS, ""), "DEVNAME: required argument missing");
        assert!(Bench::config_error(&CLASS, "nosuch0").starts_with("nosuch0: no such interface"));
        assert_eq!(Bench::config_error(&CLASS, "m, BURST 0"), "BURST must be at least 1");
        assert!(Bench::config_error(&CLASS, "m, MONITOR on").starts_with("MONITOR: parse error"));
        assert!(Bench::config_error(&CLASS, "m, SNIFFER tagged").starts_with("SNIFFER: parse error"));
        let taken = Bench::config_error(&CLASS, "m, SNIFFER untagged, METHOD XDP");
        assert!(taken.contains("leave METHOD out"), "{taken}");
        assert!(Bench::config_error(&CLASS, "m, BPF_FILTER \"udp\"").contains("IPClassifier"));
    }
}
