//! Any packets, with any header offsets and any work left undone, through an element of any class that needs
//! no device and no file.
#![no_main]
use artery_elements::CLASSES;
use artery_engine::{Bench, Class, Packet};
use artery_packet::{PacketOffload, SegmentKind, Segments};
use libfuzzer_sys::fuzz_target;
use std::sync::LazyLock;
use std::time::Duration;

#[path = "../confinement.rs"]
mod confinement;

#[path = "../../elements/all/tests/configurations.rs"]
mod configurations;
use configurations::{ELSEWHERE, is_pull, ports};

/// What can be put on a bench. Adding a class shifts the others, so that a corpus is good for one version.
static ELEMENTS: LazyLock<Vec<(&Class, &str)>> = LazyLock::new(|| {
    let classes = CLASSES.0.iter().copied().filter(|class| !ELSEWHERE.contains(&class.name));
    classes.flat_map(|class| configurations::of(class).iter().map(move |config| (class, *config))).collect()
});

/// Packets sent to one element: a bench's pool must hold all that a queue keeps.
const MAX_PACKETS: usize = 32;

/// Bytes before each packet: input, its length, its three headers, and what is left to be done.
const PREFIX: usize = 7;

fuzz_target!(init: confinement::confine(), |data: &[u8]| {
    let Some((&[low, high, pull], mut rest)) = data.split_first_chunk() else { return };
    let which = usize::from(u16::from_le_bytes([low, high])) % ELEMENTS.len();
    let (class, config) = ELEMENTS[which];
    let mut subject = Subject::new(class, config, pull & 1 == 1);
    for _ in 0..MAX_PACKETS {
        let Some((prefix, after)) = rest.split_first_chunk::<PREFIX>() else { break };
        let (bytes, after) = after.split_at(after.len().min(prefix[1].into()));
        subject.send(prefix, bytes);
        rest = after;
    }
    subject.turn();
});

/// An element, and which of its ports pull.
struct Subject {
    bench: Bench,
    pulls_in: Vec<bool>,
    pulls_out: Vec<bool>,
}

impl Subject {
    fn new(class: &'static Class, config: &str, pull: bool) -> Subject {
        let [inputs, outputs] = ports(class);
        let setup = Bench::setup(class, config).inputs(inputs).outputs(outputs);
        let setup = if pull { setup.pull() } else { setup };
        let bench = setup.build().unwrap_or_else(|errors| panic!("{}({config}): {errors:?}", class.name));
        let (before, after) =
            class.processing.split_once('/').unwrap_or((class.processing, class.processing));
        let pulls = |codes, ports| (0..ports).map(|port| is_pull(codes, port, pull)).collect();
        Subject { bench, pulls_in: pulls(before, inputs), pulls_out: pulls(after, outputs) }
    }

    fn send(&mut self, prefix: &[u8; PREFIX], bytes: &[u8]) {
        if !self.pulls_in.is_empty() {
            let input = usize::from(prefix[0]) % self.pulls_in.len();
            let packet = self.packet(prefix, bytes);
            if self.pulls_in[input] {
                self.bench.offer_packet(input, packet);
            } else {
                self.bench.push_packets(input, [packet]);
            }
        }
        self.turn();
    }

    /// A packet whose headers are where the prefix says, or with no header marked when the top bit
    /// of the prefix is set.
    fn packet(&self, prefix: &[u8; PREFIX], bytes: &[u8]) -> Packet {
        let mut packet = self.bench.packet(bytes);
        let at = |byte: u8| (byte < 128).then_some(usize::from(byte));
        let [_, _, mac, network, transport, left, size] = *prefix;
        at(mac).inspect(|at| packet.set_mac_header(*at));
        at(network).inspect(|at| packet.set_network_header(*at));
        at(transport).inspect(|at| packet.set_transport_header(*at));
        if left & 1 == 1 {
            // What names no place in the frame is refused, and the packet is a finished one.
            let _ = packet.set_offload(unfinished(network, transport, left, size));
        }
        packet
    }

    /// Lets task and timers run, and takes away what comes out.
    fn turn(&mut self) {
        self.bench.run_once();
        self.bench.advance_time(Duration::from_millis(1));
        for (output, pull) in self.pulls_out.iter().enumerate() {
            if *pull {
                self.bench.pull(output, 8);
            }
            self.bench.drain_sent(output);
        }
    }
}

/// A record of what is left to be done. Some would be accepted by no device: these must be survived, too.
fn unfinished(network: u8, transport: u8, left: u8, size: u8) -> PacketOffload {
    let kind = [SegmentKind::Tcp4, SegmentKind::Tcp6, SegmentKind::Udp][usize::from(left >> 1) % 3];
    let network = i8::from_ne_bytes([network]).into();
    let segments = (left & 0x80 != 0).then_some(Segments { network, kind, size: size.into() });
    let checksum = if kind == SegmentKind::Udp { 6 } else { 16 };
    PacketOffload { transport: transport.into(), checksum, segments }
}
