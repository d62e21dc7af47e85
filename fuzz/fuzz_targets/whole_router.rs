//! Any packets through routers that are made once: what an execution leaves behind is there when the next
//! one comes. The first byte says through which, the second how much time passes afterwards, the others are
//! packets.
#![no_main]
use artery_engine::{Bench, Class, Packet};
use libfuzzer_sys::fuzz_target;
use std::cell::RefCell;
use std::time::Duration;

#[path = "../confinement.rs"]
mod confinement;

const ROUTER: &str = "PORT a 10.0.1.1/24 2001:db8:1::1/64 ETHER 2:0:0:0:0:1,
    PORT b 10.0.2.1/24 2001:db8:2::1/64 ETHER 2:0:0:0:0:2, HOST 2:0:0:0:9:9,
    NEIGHBOR a 10.0.1.9 2:0:0:0:1:9, NEIGHBOR b 10.0.2.254 2:0:0:0:2:fe, NEIGHBOR b 2001:db8:2::fe \
    2:0:0:0:2:fe,
    NEIGHBOR b 10.0.2.5 2:0:0:0:2:5,
    ROUTE 20.0.0.0/8 10.0.2.254, ROUTE 21.0.0.0/8 blackhole, ROUTE 22.0.0.0/8 unreachable, ROUTE 26.0.0.0/8 \
    10.0.2.77,
    ROUTE 2001:db8:20::/48 2001:db8:2::fe, ROUTE 2001:db8:22::/48 unreachable, DAD false";
const BALANCER: &str =
    "FRAMES true, SERVICE 20.0.0.1:80 tcp, SERVICE 20.0.0.2 udp, MEMBER a 10.0.2.5, MEMBER b 10.0.2.6";
const NAT_BALANCER: &str =
    "FRAMES true, SERVICE 20.0.0.1:80 tcp, MEMBER a 10.0.2.5, MEMBER b 10.0.2.6, FORWARD nat";
const SWITCH: &str = "PORT em0, PORT em1, PORT em2, LINK1 true, PF ";
const FILTER: &str = "PORT em0 192.0.2.1/24, PORT em1 10.0.0.1/8, FILE ";
const RULES: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/conf/pf.conf");
const SWITCH_RULES: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/conf/switch.conf");

/// Packets of one execution.
const MOST: usize = 16;
/// Bytes before each packet: the input and the length.
const PREFIX: usize = 2;

/// The switch, with the packet filter for its own.
static VEB: Class = artery_switch::class_with_rules::<artery_firewall::SwitchRules>();

/// A product's class. Those of the Click library are not linked, so there are fewer edges to look at after
/// each execution.
fn product(name: &str) -> &'static Class {
    let crates =
        [artery_forward::CLASSES, artery_router::CLASSES, artery_balancer::CLASSES, artery_firewall::CLASSES];
    let mut products = crates.into_iter().flatten().copied().chain([&VEB]);
    products.find(|class| class.name == name).expect("it is a product's class")
}

/// Elements behind one another: what leaves one by its first outputs goes to the outside, and by the last to
/// the next one.
struct Chain(Vec<Stage>);

struct Stage {
    bench: Bench,
    inputs: usize,
    outputs: usize,
    /// Of which output the next stage gets packets, if of any.
    onward: Option<usize>,
}

impl Stage {
    fn new(name: &str, config: &str, [inputs, outputs]: [usize; 2], beside: Option<&Bench>) -> Stage {
        let setup = Bench::setup(product(name), config).inputs(inputs).outputs(outputs);
        let setup = match beside {
            Some(other) => setup.sharing_with(other),
            None => setup,
        };
        let bench = setup.build().unwrap_or_else(|errors| panic!("{name}({config}): {errors:?}"));
        Stage { bench, inputs, outputs, onward: None }
    }

    fn to_next(self, output: usize) -> Stage {
        Stage { onward: Some(output), ..self }
    }

    /// Gives a batch to an input; gets what is for the next stage.
    fn push(&mut self, input: usize, packets: Vec<Packet>) -> Vec<Packet> {
        if packets.is_empty() {
            return packets;
        }
        self.bench.push_packets(input % self.inputs, packets);
        self.take_sent()
    }

    /// Runs the task, and once more after a time; gets what is for the next stage.
    fn run(&mut self, time: Duration) -> Vec<Packet> {
        self.bench.run_once();
        self.bench.skip_time(time);
        self.take_sent()
    }

    fn take_sent(&mut self) -> Vec<Packet> {
        let mut next = Vec::new();
        for output in 0..self.outputs {
            let sent = self.bench.drain_sent(output);
            if self.onward == Some(output) {
                next = sent;
            }
        }
        next
    }
}

impl Chain {
    fn all() -> Vec<Chain> {
        let filter = |class, config: &str, rules: &str, ports| {
            Chain(vec![Stage::new(class, &format!("{config}{rules}"), [ports; 2], None)])
        };
        vec![
            Chain::router(&[("IPForward", "e", 2)]),
            Chain::router(&[("IP6Forward", "e", 2)]),
            Chain::router(&[("FlowBalancer", BALANCER, 0), ("IPForward", "e", 2)]),
            Chain::router(&[("FlowBalancer", NAT_BALANCER, 0), ("IPForward", "e", 2)]),
            filter("Veb", SWITCH, SWITCH_RULES, 3),
            filter("PacketFilter", FILTER, RULES, 2),
        ]
    }

    /// Stages before a router, which gets what they leave to it.
    fn router(before: &[(&str, &str, usize)]) -> Chain {
        let mut router = Stage::new("IPRouter", ROUTER, [3, 3], None);
        router.bench.run();
        let stage = |&(name, config, onward): &(&str, &str, usize)| {
            let outputs = if onward == 0 { 2 } else { 3 };
            Stage::new(name, config, [2, outputs], Some(&router.bench)).to_next(onward)
        };
        let mut stages: Vec<Stage> = before.iter().map(stage).collect();
        stages.push(router);
        Chain(stages)
    }

    /// A packet, unless the stages hold all that there are.
    fn packet(&self, bytes: &[u8]) -> Option<Packet> {
        self.0[0].bench.try_packet(bytes)
    }

    fn push(&mut self, input: usize, packets: Vec<Packet>) {
        self.0.iter_mut().fold(packets, |packets, stage| stage.push(input, packets));
    }

    /// Runs the tasks of all stages, and lets time pass.
    fn run(&mut self, time: Duration) {
        for from in 0..self.0.len() {
            let sent = self.0[from].run(time);
            self.0[from + 1..].iter_mut().fold(sent, |packets, stage| stage.push(0, packets));
        }
    }
}

/// How long a byte means: nothing, then from a millisecond to the days after which the last states end.
fn duration(byte: u8) -> Duration {
    Duration::from_millis((1 << (byte / 8)) - 1)
}

thread_local! {
    static CHAINS: RefCell<Vec<Chain>> = RefCell::new(Chain::all());
}

fuzz_target!(init: confinement::confine(), |data: &[u8]| {
    let Some((&[which, later], mut rest)) = data.split_first_chunk() else { return };
    CHAINS.with_borrow_mut(|chains| {
        let which = usize::from(which) % chains.len();
        let chain = &mut chains[which];
        // Neighbors of one input are one batch.
        let (mut batch, mut to) = (Vec::with_capacity(MOST), 0);
        for _ in 0..MOST {
            let Some((&[input, len], after)) = rest.split_first_chunk::<PREFIX>() else { break };
            let (bytes, after) = after.split_at(after.len().min(len.into()));
            if input != to {
                chain.push(usize::from(std::mem::replace(&mut to, input)), std::mem::take(&mut batch));
            }
            batch.extend(chain.packet(bytes));
            rest = after;
        }
        chain.push(to.into(), batch);
        chain.run(duration(later));
    });
});
