use artery_engine::{
    Arg, ArgError, Args, Batch, Class, Context, DropReason, Element, Handler, Packet, Show, Signal,
    SignalKinds, StartError, Time,
};
use std::cmp::Reverse;
use std::collections::BinaryHeap;

pub static CLASS: Class = Class {
    name: "TimeSortedSched",
    group: "queue",
    summary: "pulls packets in the order of their timestamps",
    manual: "
Gives whoever pulls the packet with the earliest timestamp, out of up to BUFFER packets of each input that it
holds; of equal ones that which it held first. So streams that are sorted become one that is. With STOP it
asks the router to stop when no input has any more.",
    example: "t :: TimeSortedSched(STOP true) -> Discard;\nFromDump(a.pcap) -> t; FromDump(b.pcap) -> [1]t;",
    ports: "-/1",
    processing: "l/l",
    args: &[
        Arg::keyword("STOP", "bool", "false", "whether to stop the router at the end"),
        Arg::keyword("BUFFER", "packets", "1", "how many packets of each input to hold"),
    ],
    handlers: &[Handler::read(
        "well_ordered",
        "whether no packet came out of order",
        &Show(|t: &mut TimeSortedSched| t.well_ordered),
    )],
    signals: SignalKinds::NonEmpty,
    build: |args| Ok(Box::new(TimeSortedSched::new(args)?)),
    ..Class::DEFAULT
};

/// A held packet; the earliest compares greatest.
struct HeldPacket {
    /// Its timestamp, and the number of packets held before it.
    order: Reverse<(Time, u64)>,
    input: usize,
    packet: Packet,
}

impl PartialEq for HeldPacket {
    fn eq(&self, other: &HeldPacket) -> bool {
        self.order == other.order
    }
}
impl Eq for HeldPacket {}
impl PartialOrd for HeldPacket {
    fn partial_cmp(&self, other: &HeldPacket) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}
impl Ord for HeldPacket {
    fn cmp(&self, other: &HeldPacket) -> std::cmp::Ordering {
        self.order.cmp(&other.order)
    }
}

struct TimeSortedSched {
    stop: bool,
    /// Inputs with room for packets, the next to pull from at the end.
    ready: Vec<usize>,
    /// Room for packets of each input.
    room: Vec<usize>,
    held: BinaryHeap<HeldPacket>,
    /// Packets held so far.
    count: u64,
    last: Time,
    well_ordered: bool,
}

impl TimeSortedSched {
    fn new(args: &mut Args<'_>) -> Result<TimeSortedSched, ArgError> {
        let buffer: i32 = args.read("BUFFER")?;
        let buffer = usize::try_from(buffer).ok().filter(|n| (1..=65536).contains(n));
        let buffer = buffer.ok_or_else(|| ArgError::wrong("BUFFER must be at least 1"))?;
        Ok(TimeSortedSched {
            stop: args.read("STOP")?,
            ready: (0..args.inputs()).collect(),
            room: vec![buffer; args.inputs()],
            held: BinaryHeap::with_capacity(buffer.min(64) * args.inputs()),
            count: 0,
            last: Time::ZERO,
            well_ordered: true,
        })
    }

    /// Pulls packets up to the limit; returns whether any input may have more.
    fn fill_inputs(&mut self, cx: &mut Context<'_>) -> bool {
        let mut active = false;
        let mut batch = cx.scratch_batch();
        for at in (0..self.ready.len()).rev() {
            let input = self.ready[at];
            if cx.upstream_idle(input) {
                continue;
            }
            active = true;
            cx.pull(input, self.room[input], &mut batch);
            self.room[input] = self.room[input].saturating_sub(batch.len());
            for packet in batch.drain() {
                let order = Reverse((packet.timestamp(), self.count));
                self.count += 1;
                self.held.push(HeldPacket { order, input, packet });
            }
            if self.room[input] == 0 {
                self.ready.swap_remove(at);
            }
        }
        cx.recycle_batch(batch);
        active
    }

    /// Returns the earliest packet, and signals whether there may be more.
    fn pull_one(&mut self, cx: &mut Context<'_>) -> Option<Packet> {
        let active = self.fill_inputs(cx);
        cx.set_signal(Signal::NonEmpty, active || !self.held.is_empty());
        let Some(HeldPacket { input, packet, .. }) = self.held.pop() else {
            if self.stop && !active {
                cx.request_stop();
            }
            return None;
        };
        let time = packet.timestamp();
        if time != Time::ZERO {
            self.well_ordered &= time >= self.last;
            self.last = time;
        }
        self.room[input] += 1;
        if self.room[input] == 1 {
            self.ready.push(input);
        }
        Some(packet)
    }
}

impl Element for TimeSortedSched {
    fn pull(&mut self, _output: usize, max: usize, into: &mut Batch, cx: &mut Context<'_>) {
        for _ in 0..max {
            match self.pull_one(cx) {
                Some(packet) => into.push(packet),
                None => return,
            }
        }
    }

    /// There are packets upstream.
    fn run_task(&mut self, cx: &mut Context<'_>) -> bool {
        cx.set_signal(Signal::NonEmpty, true);
        false
    }

    fn start(&mut self, cx: &mut Context<'_>) -> Result<(), StartError> {
        cx.set_signal(Signal::NonEmpty, true);
        Ok(())
    }

    fn stop(&mut self, cx: &mut Context<'_>) {
        for held in self.held.drain() {
            cx.discard(held.packet, DropReason::LeftBehind);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use artery_engine::Bench;

    fn bench(config: &str, seconds: [&[u64]; 2]) -> Bench {
        let mut bench = Bench::setup(&CLASS, config).inputs(2).build().unwrap();
        for (input, seconds) in seconds.iter().enumerate() {
            for &second in *seconds {
                let mut packet = bench.packet([input as u8]);
                packet.set_timestamp(Time::new(second, 0));
                bench.offer_packet(input, packet);
            }
        }
        bench
    }
    fn order(bench: &mut Bench, max: usize) -> Vec<(u64, u8)> {
        bench.pull(0, max).iter().map(|p| (p.timestamp().seconds(), p.data()[0])).collect()
    }

    #[test]
    fn sorted_streams_become_one() {
        let mut bench = bench("", [&[1, 4, 5], &[2, 3, 9]]);
        assert_eq!(order(&mut bench, 8), [(1, 0), (2, 1), (3, 1), (4, 0), (5, 0), (9, 1)]);
        assert_eq!(bench.read("well_ordered", "").unwrap(), "true");
    }

    #[test]
    fn a_buffer_mends_small_disorder() {
        assert_eq!(order(&mut bench("", [&[5, 1], &[3]]), 8), [(3, 1), (5, 0), (1, 0)]);
        let mut buffered = bench("BUFFER 2", [&[5, 1], &[3]]);
        assert_eq!(order(&mut buffered, 8), [(1, 0), (3, 1), (5, 0)]);
        let mut disordered = bench("", [&[5, 1], &[]]);
        order(&mut disordered, 8);
        assert_eq!(disordered.read("well_ordered", "").unwrap(), "false");
    }
}
