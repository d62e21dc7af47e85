//! The old bridge(4), as a baseline: whatever arrives goes into one queue, which one thread serves
//! with one big lock.
//!
//! On OpenBSD 6.9 every frame of every port was put into one queue of 1,024; one soft interrupt took the
//! kernel's lock for all that it found there, compared each frame with every port's address, learned and
//! looked up under a mutex, and always asked pf, on the way in and at each port on the way out. All of that
//! is here, and nothing else of the kernel. An element runs on one worker, so the locks are uncontended, as
//! they were then: they cost what uncontended locks cost.

use super::addresses::Addresses;
use artery_common::frame_filter::{FilterContext, FilterFactories, FilterPoint, FrameFilter};
use artery_engine::{
    Arg, ArgError, Args, Batch, Class, Context, DropReason, Element, Handler, Packet, Show, StartError, Time,
};
use artery_firewall::of_file;
use artery_l2::Direction;
use artery_wire::{EtherAddr, EtherType, Ethernet};
use std::collections::VecDeque;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

/// The class; configurations of the lab only have one.
pub(crate) static BRIDGE: Class = Class {
    name: "Bridge",
    group: "lab",
    summary: "is the old bridge(4)",
    manual: "
Input I takes the frames of port I, output I leads to port I. STATION, which can be given several times, is
the address of a port, in their order; frames to one of them are the host's, and end here. LINK0 drops IP
multicast, LINK1 other multicast. LINK2 is accepted: there is no IPsec here. If the router has a packet filter
under the bridge's name, IP meets it where it comes in and wherever it goes out, whatever the links say.",
    example: "b :: Bridge; Idle -> b -> Discard; Idle -> [1] b; b[1] -> Discard;",
    ports: "-/-",
    processing: "h/h",
    args: &[
        Arg::keyword("QUEUE", "packets", "1024", "places of the one queue"),
        Arg::keyword("MAXADDR", "addresses", "100", "most addresses that are learned"),
        Arg::keyword(
            "TIMEOUT",
            "seconds",
            "240",
            "after how long an address that is not seen is forgotten; 0 is never",
        ),
        Arg::keyword("STATION", "Ethernet address", "", "the address of a port; any number of them"),
        Arg::keyword(
            "PF",
            "filename",
            "",
            "the rules of its packet filter; without it, what the router has under its name, or none",
        ),
        Arg::keyword("LINK0", "bool", "false", "whether IP multicast is dropped"),
        Arg::keyword("LINK1", "bool", "false", "whether other multicast is dropped"),
        Arg::keyword("LINK2", "bool", "false", "accepted; IPsec is not looked into"),
    ],
    handlers: &[Handler::read(
        "addresses",
        "addresses learned",
        &Show(|b: &mut Bridge| lock(&b.addresses).len()),
    )],
    build: |args| Ok(Box::new(Bridge::new(args)?)),
    ..Class::DEFAULT
};

/// A frame and the port that it came by.
type Waiting = (u16, Packet);

pub(super) struct Bridge {
    /// What every packet and timer of the kernel took.
    kernel: Mutex<()>,
    queue: Mutex<VecDeque<Waiting>>,
    places: usize,
    addresses: Mutex<Addresses>,
    stations: Vec<EtherAddr>,
    drops_ip_multicast: bool,
    drops_other_multicast: bool,
    timeout: Duration,
    /// When the hand passes next.
    ages: Option<Time>,
    name: String,
    filters: Arc<FilterFactories>,
    filter: Option<Box<dyn FrameFilter>>,
}

/// What becomes of a frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Verdict {
    To(usize),
    Flood,
    Drop(DropReason),
}

impl Bridge {
    fn new(args: &mut Args<'_>) -> Result<Bridge, ArgError> {
        let wrong = |text: &str| ArgError::wrong(format!("STATION {text} is not a valid Ethernet address"));
        let stations = args
            .rest("STATION")
            .iter()
            .map(|text| text.parse().map_err(|_| wrong(text)))
            .collect::<Result<_, _>>()?;
        args.read::<bool>("LINK2")?;
        Ok(Bridge {
            kernel: Mutex::default(),
            queue: Mutex::default(),
            places: args.read::<u32>("QUEUE")? as usize,
            addresses: Mutex::new(Addresses::new(args.read::<u32>("MAXADDR")? as usize)),
            stations,
            drops_ip_multicast: args.read("LINK0")?,
            drops_other_multicast: args.read("LINK1")?,
            timeout: Duration::from_secs(args.read::<u32>("TIMEOUT")?.into()),
            ages: None,
            name: args.name().to_string(),
            filters: args.resource(),
            filter: own_filter(args)?,
        })
    }

    /// What becomes of a frame; its source is learned.
    fn judge(&self, from: u16, frame: &[u8]) -> Verdict {
        let Ok(ethernet) = Ethernet::new(frame) else { return Verdict::Drop(DropReason::TooShort) };
        let (source, destination) = (ethernet.src(), ethernet.dst());
        // Port by port, as each of them might be the one.
        for station in &self.stations {
            if *station == destination {
                return Verdict::Drop(DropReason::Local);
            }
            if *station == source {
                return Verdict::Drop(DropReason::OwnSource);
            }
        }
        if destination.is_group() && !destination.is_broadcast() && self.drops_group(destination) {
            return Verdict::Drop(DropReason::Multicast);
        }
        if !source.is_group() {
            lock(&self.addresses).learn(source, from);
        }
        match lock(&self.addresses).find(destination) {
            Some(to) if to == from => Verdict::Drop(DropReason::OtherStation),
            Some(to) => Verdict::To(to.into()),
            None => Verdict::Flood,
        }
    }

    /// Whether frames to a group are dropped: groups of IP have addresses of their own (RFC 1112, RFC 2464).
    fn drops_group(&self, group: EtherAddr) -> bool {
        let is_ip = matches!(group.0, [0x01, 0x00, 0x5e, ..] | [0x33, 0x33, ..]);
        if is_ip { self.drops_ip_multicast } else { self.drops_other_multicast }
    }

    /// Serves all that waits, under the one lock.
    fn serve(&self, pf: &mut Pf<'_>, cx: &mut Context<'_>) -> bool {
        let _kernel = lock(&self.kernel);
        let mut served = false;
        while let Some((from, mut packet)) = next(&self.queue) {
            served = true;
            match self.judge(from, packet.data()) {
                Verdict::Drop(reason) => cx.discard(packet, reason),
                _ if !pf.passes(&mut packet, from.into(), Direction::In, cx) => {
                    cx.discard(packet, DropReason::Filtered);
                }
                Verdict::To(to) => send(packet, to, pf, cx),
                Verdict::Flood => flood(usize::from(from), packet, pf, cx),
            }
        }
        served
    }

    /// Lets the hand pass when it is time to.
    fn age(&mut self, cx: &mut Context<'_>) {
        if self.timeout.is_zero() {
            return;
        }
        let now = cx.now();
        match self.ages {
            Some(then) if now < then => return,
            Some(_) => lock(&self.addresses).age(),
            None => (),
        }
        let next = now + self.timeout;
        self.ages = Some(next);
        cx.wake_at(next);
    }
}

/// pf, if the router has it.
struct Pf<'f> {
    filter: Option<&'f mut (dyn FrameFilter + 'static)>,
    /// The port that the frame at hand came by.
    from: u16,
}

impl Pf<'_> {
    /// Whether a frame may pass; what isn't IP always may.
    fn passes(
        &mut self,
        packet: &mut Packet,
        port: usize,
        direction: Direction,
        cx: &mut Context<'_>,
    ) -> bool {
        let was_asked = direction == Direction::Out;
        if !was_asked {
            self.from = port as u16;
        }
        let Some(filter) = &mut self.filter else { return true };
        let ether_type = Ethernet::new(packet.data()).map(|ethernet| ethernet.ether_type());
        if !matches!(ether_type, Ok(EtherType::IPV4 | EtherType::IPV6)) {
            return true;
        }
        let (spot, from) = (FilterPoint::Port(port as u16), self.from);
        let passage = FilterContext { point: spot, direction, from, was_filtered_in: was_asked, mark: None };
        filter.test_frame(packet, &passage, cx)
    }
}

/// Sends a frame by a port, if pf lets it.
fn send(mut packet: Packet, to: usize, pf: &mut Pf<'_>, cx: &mut Context<'_>) {
    match pf.passes(&mut packet, to, Direction::Out, cx) {
        true => cx.send(to, packet),
        false => cx.discard(packet, DropReason::Filtered),
    }
}

/// A copy by each port but its own; pf looks at each.
fn flood(from: usize, packet: Packet, pf: &mut Pf<'_>, cx: &mut Context<'_>) {
    let ports = (0..cx.outputs()).filter(|port| *port != from);
    let Some(last) = ports.clone().next_back() else { return cx.discard(packet, DropReason::NoOutput) };
    for port in ports.filter(|port| *port != last) {
        if let Some(copy) = cx.duplicate_packet(&packet) {
            send(copy, port, pf, cx);
        }
    }
    send(packet, last, pf, cx);
}

/// The lock is released before the packet is processed.
fn next(queue: &Mutex<VecDeque<Waiting>>) -> Option<Waiting> {
    lock(queue).pop_front()
}

/// The names of so many ports.
fn ports(count: usize) -> Vec<String> {
    (0..count).map(|port| format!("p{port}")).collect()
}

/// The filter with the rules of PF.
fn own_filter(args: &Args<'_>) -> Result<Option<Box<dyn FrameFilter>>, ArgError> {
    let Some(file) = args.read::<Option<String>>("PF")? else { return Ok(None) };
    let filter = of_file(args.domain(), args.name(), &ports(args.outputs()), &file);
    filter.map(Some).map_err(|why| ArgError::wrong_at(&file, why))
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Element for Bridge {
    fn start(&mut self, cx: &mut Context<'_>) -> Result<(), StartError> {
        if let Some(filter) = self.filters.make_filter(&self.name, &ports(cx.outputs())) {
            self.filter = Some(filter);
        }
        Ok(())
    }

    fn push(&mut self, input: usize, batch: &mut Batch, cx: &mut Context<'_>) {
        for packet in batch.drain() {
            let mut queue = lock(&self.queue);
            if queue.len() < self.places {
                queue.push_back((input as u16, packet));
            } else {
                drop(queue);
                cx.discard(packet, DropReason::QueueFull);
            }
        }
        cx.schedule();
    }

    fn run_task(&mut self, cx: &mut Context<'_>) -> bool {
        self.age(cx);
        let mut filter = self.filter.take();
        if let Some(filter) = &mut filter {
            filter.begin_batch(cx);
        }
        let served = self.serve(&mut Pf { filter: filter.as_deref_mut(), from: 0 }, cx);
        self.filter = filter;
        served
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use artery_engine::{Bench, Resources};
    use artery_wire::build::{ether, ip4};

    const A: &str = "02:00:00:00:00:0a";
    const B: &str = "02:00:00:00:00:0b";
    const PORT1: &str = "02:00:00:00:00:f1";
    const ALL: &str = "ff:ff:ff:ff:ff:ff";

    fn bridge(arguments: &str) -> Bench {
        Bench::setup(&BRIDGE, arguments).inputs(3).outputs(3).build().unwrap()
    }

    fn frame(to: &str, from: &str) -> Vec<u8> {
        ether(to, from).ip4(ip4().src("10.0.0.1").dst("10.0.0.2").ttl(64).udp(1, 2)).bytes()
    }

    /// Sends a frame; says by which ports it leaves.
    fn sent(bench: &mut Bench, input: usize, frame: &[u8]) -> Vec<usize> {
        bench.push(input, frame);
        bench.run_once();
        (0..3).filter(|port| !bench.drain_sent(*port).is_empty()).collect()
    }

    #[test]
    fn what_is_known_goes_one_way_and_the_rest_everywhere_but_back() {
        let mut bench = bridge("");
        assert_eq!(sent(&mut bench, 0, &frame(B, A)), [1, 2]);
        assert_eq!(sent(&mut bench, 1, &frame(A, B)), [0]);
        assert_eq!(sent(&mut bench, 0, &frame(B, A)), [1]);
        assert_eq!(sent(&mut bench, 0, &frame(ALL, A)), [1, 2]);
        // A frame to a host at its own port, and one to a host that has moved.
        assert_eq!(sent(&mut bench, 0, &frame(A, A)), [] as [usize; 0]);
        assert_eq!(sent(&mut bench, 2, &frame(A, B)), [0]);
        assert_eq!(sent(&mut bench, 0, &frame(B, A)), [2]);
    }

    #[test]
    fn groups_are_dropped_by_flags_and_the_hosts_frames_always() {
        let (ip, other) = ("01:00:5e:00:00:05", "01:80:c2:00:00:0e");
        for (arguments, to_ip, to_other) in
            [("", 2, 2), ("LINK0 true", 0, 2), ("LINK1 true", 2, 0), ("LINK0 true, LINK1 true", 0, 0)]
        {
            let mut bench = bridge(arguments);
            assert_eq!(sent(&mut bench, 0, &frame(ip, A)).len(), to_ip, "{arguments}");
            assert_eq!(sent(&mut bench, 0, &frame(other, A)).len(), to_other, "{arguments}");
            assert_eq!(sent(&mut bench, 0, &frame(ALL, A)).len(), 2);
        }
        let mut bench = bridge(&format!("STATION {PORT1}"));
        assert_eq!(sent(&mut bench, 0, &frame(PORT1, A)).len(), 0);
        assert_eq!(sent(&mut bench, 0, &frame(A, PORT1)).len(), 0);
    }

    #[test]
    fn a_full_table_floods_and_a_full_queue_drops() {
        let mut bench = bridge("MAXADDR 1");
        sent(&mut bench, 0, &frame(B, A));
        sent(&mut bench, 1, &frame(A, B));
        assert_eq!(bench.read("addresses", "").as_deref(), Ok("1"));
        assert_eq!(sent(&mut bench, 0, &frame(B, A)), [1, 2]);
        let mut bench = bridge("QUEUE 5");
        (0..8).for_each(|_| bench.push(2, frame(A, B)));
        bench.expect_dropped(DropReason::QueueFull, 3);
    }

    #[test]
    fn addresses_are_forgotten_when_the_hand_has_passed_twice() {
        let mut bench = bridge("TIMEOUT 240");
        sent(&mut bench, 1, &frame(A, B));
        for (seconds, ports) in [(239, vec![1]), (2, vec![1]), (238, vec![1]), (2, vec![1, 2])] {
            bench.advance_time(Duration::from_secs(seconds));
            assert_eq!(sent(&mut bench, 0, &frame(B, A)), ports, "{seconds} s later");
        }
        let mut bench = bridge("TIMEOUT 0");
        sent(&mut bench, 1, &frame(A, B));
        bench.advance_time(Duration::from_secs(1_000_000));
        assert_eq!(sent(&mut bench, 0, &frame(B, A)), [1]);
    }

    type Asked = Arc<Mutex<Vec<(FilterPoint, Direction)>>>;

    /// A filter that blocks what leaves by port 2.
    struct Recorder(Asked);

    impl FrameFilter for Recorder {
        fn test_frame(
            &mut self,
            frame: &mut Packet,
            passage: &FilterContext<'_>,
            _: &mut Context<'_>,
        ) -> bool {
            assert_eq!(frame.data()[12..14], [8, 0]);
            lock(&self.0).push((passage.point, passage.direction));
            (passage.point, passage.direction) != (FilterPoint::Port(2), Direction::Out)
        }
        fn as_any(&mut self) -> &mut dyn std::any::Any {
            self
        }
    }

    #[test]
    fn pf_sees_ip_where_it_comes_in_and_at_every_port_it_leaves_by() {
        let (resources, asked): (Arc<Resources>, Asked) = Default::default();
        let kept = asked.clone();
        // A bench calls its element e.
        let make = move |_: &str, _: &[String]| -> Box<dyn FrameFilter> { Box::new(Recorder(kept.clone())) };
        resources.get::<FilterFactories>().insert("e", Box::new(make));
        let setup = Bench::setup(&BRIDGE, "LINK2 true").resources(resources).inputs(3).outputs(3);
        let mut bench = setup.build().unwrap();
        let seen = || std::mem::take(&mut *lock(&asked));
        let at = |port, direction| (FilterPoint::Port(port), direction);
        assert_eq!(sent(&mut bench, 0, &frame(ALL, A)), [1]);
        assert_eq!(seen(), [at(0, Direction::In), at(1, Direction::Out), at(2, Direction::Out)]);
        bench.expect_dropped(DropReason::Filtered, 1);
        assert_eq!(sent(&mut bench, 1, &frame(A, B)), [0]);
        assert_eq!(seen(), [at(1, Direction::In), at(0, Direction::Out)]);
        let arp = ether(ALL, B).raw(EtherType::ARP, [0; 28]).bytes();
        assert_eq!(sent(&mut bench, 1, &arp), [0, 2]);
        assert_eq!(seen(), []);
    }

    #[test]
    fn frames_cut_anywhere_are_dropped_or_sent_and_never_read_beyond() {
        let whole = frame(B, A);
        let mut bench = bridge("");
        (0..14).for_each(|length| assert_eq!(sent(&mut bench, 0, &whole[..length]).len(), 0, "{length}"));
        (14..whole.len()).for_each(|length| assert_eq!(sent(&mut bench, 0, &whole[..length]).len(), 2));
    }
}
