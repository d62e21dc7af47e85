//! Hosts behind a switch, as an element: those on one side send data, those on the other
//! acknowledge every second frame.
//!
//! What the switch sends to hosts is sent again by those that it came from, so that frames go round. Copies
//! on two workers have a direction each, as two ports that are served by two processors; where there is
//! one, it has both.

use artery_engine::{Arg, ArgError, Args, Batch, Class, Context, Element, Handler, Packet, Show, StartError};
use artery_packet::BATCH;
use artery_wire::EtherAddr;
use artery_wire::build::{ether, ip4};
use std::collections::VecDeque;
use std::net::Ipv4Addr;

/// Directions: data, and acknowledgments.
const DATA: usize = 0;
const DIRECTIONS: usize = 2;
/// Frames that are sent at a time.
const BURSTS: [usize; DIRECTIONS] = [BATCH, BATCH / 2];
/// Bytes behind the headers of IPv4 and UDP: those of the longest frame, and of the shortest.
const PAYLOADS: [usize; DIRECTIONS] = [1472, 18];
/// Least frames of a direction, however few hosts there are.
const LEAST: u32 = 4 * BATCH as u32;

/// The class; only this experiment has it.
pub(super) static ENDS: Class = Class {
    name: "Ends",
    group: "lab",
    summary: "is the hosts behind two ports of a switch",
    manual: "
Sends data by output 0, as hosts do that are behind port 0 of a switch, and acknowledgments by output 1.
Expects on input I what the switch sends by port I.",
    example: "Idle -> e :: Ends(1) -> Discard; Idle -> [1] e; e[1] -> Discard;",
    ports: "2/2",
    processing: "h/h",
    args: &[Arg::required("HOSTS", "number", "behind each port")],
    handlers: &[Handler::read(
        "data",
        "frames of data that have arrived",
        &Show(|e: &mut Ends| e.arrived[DATA]),
    )],
    build: |args| Ok(Box::new(Ends::new(args)?)),
    ..Class::PER_WORKER
};

struct Ends {
    hosts: u32,
    /// The directions that this copy has.
    directions: Vec<usize>,
    waiting: [VecDeque<Packet>; DIRECTIONS],
    arrived: [u64; DIRECTIONS],
    batch: Batch,
}

impl Ends {
    fn new(args: &mut Args<'_>) -> Result<Ends, ArgError> {
        let (copy, copies) = args.copy_index();
        Ok(Ends {
            hosts: args.read::<u32>("HOSTS")?.max(1),
            directions: (0..DIRECTIONS).filter(|direction| direction % copies == copy).collect(),
            waiting: Default::default(),
            arrived: [0; DIRECTIONS],
            batch: Batch::default(),
        })
    }
}

/// A frame from a host to that of the same number on the other side. It is one of UDP,
/// which needs no handshake.
fn frame(direction: usize, number: u32) -> Vec<u8> {
    let station = |side: usize| {
        let [a, b, c, d] = number.to_be_bytes();
        EtherAddr([2, side as u8, a, b, c, d])
    };
    let address = |side: usize| Ipv4Addr::from_bits(0x0a00_0000 | (side as u32) << 20 | number);
    let (from, to) = (direction, 1 - direction);
    let packet = ip4().src(address(from)).dst(address(to)).ttl(64);
    let port = |side: usize| 5001 + side as u16;
    ether(station(to), station(from))
        .ip4(packet.udp(port(from), port(to)).payload(vec![0; PAYLOADS[direction]]))
        .bytes()
}

impl Element for Ends {
    fn start(&mut self, cx: &mut Context<'_>) -> Result<(), StartError> {
        for direction in &self.directions {
            let count = self.hosts.max(LEAST);
            let made = (0..count).filter_map(|n| cx.pool().packet_from(&frame(*direction, n % self.hosts)));
            self.waiting[*direction].extend(made);
            if self.waiting[*direction].len() < count as usize {
                return Err(StartError::new("there are not enough frames for so many hosts"));
            }
        }
        cx.schedule();
        Ok(())
    }

    fn push(&mut self, input: usize, batch: &mut Batch, _: &mut Context<'_>) {
        let direction = 1 - input;
        self.arrived[direction] += batch.len() as u64;
        self.waiting[direction].extend(batch.drain());
    }

    fn run_task(&mut self, cx: &mut Context<'_>) -> bool {
        for direction in &self.directions {
            let waiting = &mut self.waiting[*direction];
            self.batch.extend(waiting.drain(..waiting.len().min(BURSTS[*direction])));
            cx.send_all(*direction, &mut self.batch);
        }
        cx.schedule();
        true
    }
}
