//! Any packets through routers that are made once: what a packet leaves behind is there when the next one
//! comes. The first byte says through which, the others are packets.
#![no_main]
use artery_elements::CLASSES;
use artery_engine::{Bench, Class, Packet};
use libfuzzer_sys::fuzz_target;
use std::cell::RefCell;
use std::time::Duration;

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

/// Packets of one input.
const MOST: usize = 16;
/// Bytes before each packet: the input, the length, and how many milliseconds later it comes.
const PREFIX: usize = 3;

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
        let class: &'static Class = CLASSES.find_class(name).expect("it is a class");
        let setup = Bench::setup(class, config).inputs(inputs).outputs(outputs);
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

    /// Gives packets to an input; gets those for the next stage.
    fn push(&mut self, input: usize, packets: Vec<Packet>, time: Duration) -> Vec<Packet> {
        self.bench.push_packets(input % self.inputs, packets);
        self.bench.run_once();
        self.bench.advance_time_once(time);
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

    fn push(&mut self, [input, later]: [u8; 2], bytes: &[u8]) {
        let mut packets = vec![self.0[0].bench.packet(bytes)];
        for stage in &mut self.0 {
            packets = stage.push(input.into(), packets, Duration::from_millis(later.into()));
        }
    }
}

thread_local! {
    static CHAINS: RefCell<Vec<Chain>> = RefCell::new(Chain::all());
}

fuzz_target!(|data: &[u8]| {
    let Some((which, mut rest)) = data.split_first() else { return };
    CHAINS.with_borrow_mut(|chains| {
        let which = usize::from(*which) % chains.len();
        for _ in 0..MOST {
            let Some((&[input, len, later], after)) = rest.split_first_chunk::<PREFIX>() else { break };
            let (bytes, after) = after.split_at(after.len().min(len.into()));
            chains[which].push([input, later], bytes);
            rest = after;
        }
    });
});
