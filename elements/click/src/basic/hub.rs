use artery_engine::{Batch, Class, Context, DropReason, Element, Packet};

pub static CLASS: Class = Class {
    name: "Hub",
    group: "basic",
    summary: "sends copies of packets by every output but the one they came from",
    manual: "Sends a packet that arrived on input N, or copies of it, by every output but output N.",
    example: "Idle -> h :: Hub -> Discard;\nIdle -> [1]h[1] -> Discard;",
    ports: "-/=",
    processing: "h/h",
    flow: "#/[^#]",
    build: |_| Ok(Box::new(Hub)),
    ..Class::PER_WORKER
};

struct Hub;

/// Sends a packet by all outputs but `input`.
pub(crate) fn flood_packet(input: usize, packet: Packet, cx: &mut Context<'_>) {
    let Some(last) = (0..cx.outputs()).rev().find(|output| *output != input) else {
        return cx.discard(packet, DropReason::NoOutput);
    };
    for output in (0..last).filter(|output| *output != input) {
        if let Some(copy) = cx.duplicate_packet(&packet) {
            cx.send(output, copy);
        }
    }
    cx.send(last, packet);
}

impl Element for Hub {
    fn push(&mut self, input: usize, batch: &mut Batch, cx: &mut Context<'_>) {
        batch.drain().for_each(|packet| flood_packet(input, packet, cx));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use artery_engine::Bench;

    #[test]
    fn all_but_the_output_of_arrival_get_a_copy() {
        let mut bench = Bench::setup(&CLASS, "").inputs(3).outputs(3).build().unwrap();
        bench.push(1, b"a");
        bench.push(2, b"b");
        for (output, bytes) in [(0, b"a"), (0, b"b"), (1, b"b"), (2, b"a")] {
            bench.expect(output, bytes);
        }
        bench.expect_nothing_more();
    }

    #[test]
    fn a_hub_with_one_port_discards() {
        let mut bench = Bench::setup(&CLASS, "").inputs(1).outputs(1).build().unwrap();
        bench.push(0, b"a");
        bench.expect_dropped(DropReason::NoOutput, 1);
    }
}
