use artery_engine::{
    Args, Batch, Class, Context, DropReason, Element, Packet, Signal, SignalKinds, StartError,
};
use std::collections::VecDeque;

pub static CLASS: Class = Class {
    name: "DRRSched",
    group: "queue",
    summary: "pulls from its inputs so that each gets as many bytes as the others",
    manual: "
Gives whoever pulls packets of its inputs by deficit round robin (Shreedhar and Varghese, 1995): each input in
turn may send 500 bytes more than before, as long as it has packets, and sends those that it has saved enough
bytes for. So inputs with long packets get no more than those with short ones; RoundRobinSched counts packets.
It holds one packet of each input that has not saved enough.",
    example: "Idle -> Queue -> s :: DRRSched -> Unqueue -> Discard;\nIdle -> Queue -> [1]s;",
    ports: "-/1",
    processing: "l/l",
    signals: SignalKinds::NonEmpty,
    build: |args| Ok(Box::new(DrrSched::new(args))),
    ..Class::DEFAULT
};

/// Bytes that an input may send more in each round.
const QUANTUM: usize = 500;

#[derive(Default)]
struct Client {
    /// Packets that were pulled and may not be sent yet: one, or its segments.
    held: VecDeque<Packet>,
    /// Bytes that it has saved.
    deficit: usize,
}

struct DrrSched {
    clients: Vec<Client>,
    /// The input whose turn it is.
    next: usize,
}

impl DrrSched {
    fn new(args: &Args<'_>) -> DrrSched {
        DrrSched { clients: (0..args.inputs()).map(|_| Client::default()).collect(), next: 0 }
    }

    /// The next packet; none when no input has any.
    fn next(&mut self, cx: &mut Context<'_>) -> Option<Packet> {
        loop {
            let mut holds = false;
            for _ in 0..self.clients.len() {
                if let Some(packet) = self.pull_current(cx) {
                    return Some(packet);
                }
                holds |= !self.clients[self.next].held.is_empty();
                self.next = (self.next + 1) % self.clients.len();
                self.clients[self.next].deficit += QUANTUM;
            }
            // Each round adds to all deficits, so a held packet is sent eventually.
            if !holds {
                return None;
            }
        }
    }

    /// A packet of the current input, if its deficit allows it.
    fn pull_current(&mut self, cx: &mut Context<'_>) -> Option<Packet> {
        let client = &mut self.clients[self.next];
        if client.held.is_empty() && !cx.upstream_idle(self.next) {
            let mut batch = cx.scratch_batch();
            cx.pull(self.next, 1, &mut batch);
            client.held.extend(batch.drain());
            cx.recycle_batch(batch);
        }
        let Some(first) = client.held.front() else {
            client.deficit = 0;
            return None;
        };
        client.deficit = client.deficit.checked_sub(first.len())?;
        client.held.pop_front()
    }

    fn may_have_more(&self, cx: &Context<'_>) -> bool {
        let may_have =
            |(input, client): (usize, &Client)| !client.held.is_empty() || !cx.upstream_idle(input);
        self.clients.iter().enumerate().any(may_have)
    }
}

impl Element for DrrSched {
    fn pull(&mut self, _output: usize, max: usize, into: &mut Batch, cx: &mut Context<'_>) {
        for _ in 0..max {
            match self.next(cx) {
                Some(packet) => into.push(packet),
                None => break,
            }
        }
        let more = self.may_have_more(cx);
        cx.set_signal(Signal::NonEmpty, more);
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
        for packet in self.clients.iter_mut().flat_map(|client| client.held.drain(..)) {
            cx.discard(packet, DropReason::LeftBehind);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use artery_engine::Bench;

    /// Inputs with packets of these lengths.
    fn bench(inputs: &[&[usize]]) -> Bench {
        let mut bench = Bench::setup(&CLASS, "").inputs(inputs.len()).build().unwrap();
        for (input, lengths) in inputs.iter().enumerate() {
            lengths.iter().for_each(|length| bench.offer(input, vec![input as u8; *length]));
        }
        bench
    }
    fn order(bench: &mut Bench, max: usize) -> Vec<u8> {
        bench.pull(0, max).iter().map(|packet| packet.data()[0]).collect()
    }

    #[test]
    fn inputs_get_equal_shares_of_bytes() {
        let mut bench = bench(&[&[1000; 20], &[100; 200]]);
        let bytes = order(&mut bench, 110);
        let of = |input: u8| bytes.iter().filter(|byte| **byte == input).count();
        assert!((9..=11).contains(&of(0)), "{} long packets beside {} short ones", of(0), of(1));
    }

    #[test]
    fn a_long_packet_comes_at_once_when_nobody_else_has_any() {
        let mut bench = bench(&[&[], &[1500, 60]]);
        assert_eq!(order(&mut bench, 1), [1]);
        assert_eq!(order(&mut bench, 8), [1]);
        assert!(order(&mut bench, 8).is_empty());
        bench.offer(0, [0]);
        assert_eq!(order(&mut bench, 8), [0]);
    }

    #[test]
    fn an_input_without_packets_saves_nothing() {
        let mut bench = bench(&[&[], &[400; 50]]);
        assert_eq!(order(&mut bench, 40).len(), 40);
        (0..50).for_each(|_| bench.offer(0, [0; 400]));
        let bytes = order(&mut bench, 10);
        assert_eq!(bytes.iter().filter(|byte| **byte == 0).count(), 5, "{bytes:?}");
    }

    #[test]
    fn what_it_holds_at_the_end_is_counted() {
        let mut bench = bench(&[&[1500], &[100; 3]]);
        assert_eq!(order(&mut bench, 1), [1]);
        bench.stop_without_successor();
        bench.expect_dropped(DropReason::LeftBehind, 1);
        assert!(order(&mut Bench::setup(&CLASS, "").inputs(0).build().unwrap(), 4).is_empty());
    }
}
