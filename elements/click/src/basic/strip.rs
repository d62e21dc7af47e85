use artery_engine::{Arg, Batch, Class, Context, DropReason, Element, Packet};

pub static CLASS: Class = Class {
    name: "Strip",
    group: "basic",
    summary: "removes bytes from the front of packets",
    manual: "
Removes the first LENGTH bytes of every packet, for example a link header. They stay in the frame, so that
Unstrip can bring them back. A packet that is shorter is dropped.",
    example: "Idle -> Strip(14) -> Discard;",
    args: &[Arg::required("LENGTH", "bytes", "how many bytes to remove")],
    build: |args| Ok(Box::new(Strip { length: args.read::<u32>("LENGTH")? as usize })),
    ..Class::PER_WORKER
};

/// Finishes the packets of a batch when one leaves work undone for which it needs what will
/// be stripped of it.
#[inline]
pub(crate) fn apply_offloads_before(
    batch: &mut Batch,
    cx: &mut Context<'_>,
    stripped: impl Fn(&Packet) -> usize,
) {
    if batch.iter().any(|packet| packet.has_offload() && packet.needs_front(stripped(packet))) {
        cx.apply_offloads(batch);
    }
}

struct Strip {
    length: usize,
}

impl Strip {
    /// Leaves packets in the batch from which the bytes can be removed.
    #[cold]
    fn sort_out(&self, batch: &mut Batch, cx: &mut Context<'_>) {
        apply_offloads_before(batch, cx, |_| self.length);
        batch.filter_map(|packet| {
            if packet.len() >= self.length {
                return Some(packet);
            }
            cx.discard(packet, DropReason::TooShort);
            None
        });
    }
}

impl Element for Strip {
    fn push(&mut self, _input: usize, batch: &mut Batch, cx: &mut Context<'_>) {
        if batch.iter().any(|packet| packet.len() < self.length || packet.has_offload()) {
            self.sort_out(batch, cx);
        }
        for packet in batch.iter_mut() {
            // All are long enough now.
            let _ = packet.strip(self.length);
        }
        cx.send_all(0, batch);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use artery_engine::Bench;

    #[test]
    fn removes_bytes_from_the_front() {
        let mut bench = Bench::new(&CLASS, "2");
        bench.push(0, b"abcd");
        bench.push(0, b"ab");
        bench.expect(0, b"cd");
        bench.expect(0, b"");
    }

    #[test]
    fn a_shorter_packet_is_dropped_and_its_neighbors_are_not() {
        let mut bench = Bench::new(&CLASS, "2");
        let packets = ["abc", "a", "xyz"].map(|bytes| bench.packet(bytes));
        bench.push_packets(0, packets);
        bench.expect(0, b"c");
        bench.expect(0, b"z");
        bench.expect_dropped(DropReason::TooShort, 1);
    }
}
