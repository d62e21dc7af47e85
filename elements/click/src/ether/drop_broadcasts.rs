use artery_engine::{Class, Context, DropReason, Handler, Packet, PacketType, Show, Simple};

pub static CLASS: Class = Class {
    name: "DropBroadcasts",
    group: "ether",
    summary: "drops packets that came as link-level broadcasts or multicasts",
    manual: "
Packets whose type annotation, which FromDevice and HostEtherFilter set, says that they were broadcast or
multicast on the link leave by output 1, or are dropped when there is none: an IP router must not forward
them. All others pass. A message reports the first one.",
    example: "Idle -> DropBroadcasts -> Discard;",
    ports: "1/1-2",
    processing: "a/ah",
    handlers: &[Handler::read(
        "drops",
        "packets kept from output 0",
        &Show(|d: &mut DropBroadcasts| d.drops),
    )
    .sum()],
    build: |_| Ok(Box::new(DropBroadcasts { drops: 0 })),
    ..Class::PER_WORKER
};

struct DropBroadcasts {
    drops: u64,
}

impl Simple for DropBroadcasts {
    fn process(&mut self, packet: Packet, cx: &mut Context<'_>) -> Option<Packet> {
        if !matches!(packet.packet_type(), PacketType::Broadcast | PacketType::Multicast) {
            return Some(packet);
        }
        if self.drops == 0 {
            cx.print_message("DropBroadcasts: dropped a packet");
        }
        self.drops += 1;
        cx.send_or_discard(1, packet, DropReason::Broadcast);
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use artery_engine::Bench;

    #[test]
    fn broadcasts_and_multicasts_do_not_pass() {
        let types = [PacketType::Host, PacketType::Broadcast, PacketType::Multicast, PacketType::OtherHost];
        let mut bench = Bench::setup(&CLASS, "").outputs(1).build().unwrap();
        let packets = types.map(|packet_type| {
            let mut packet = bench.packet(b"x");
            packet.set_packet_type(packet_type);
            packet
        });
        bench.push_packets(0, packets);
        assert_eq!(bench.drain_sent(0).len(), 2);
        bench.expect_dropped(DropReason::Broadcast, 2);
        assert_eq!(bench.read("drops", "").unwrap(), "2");
        assert_eq!(bench.stderr_text(), "DropBroadcasts: dropped a packet\n");
    }

    #[test]
    fn output_1_takes_them_if_it_is_there() {
        let mut bench = Bench::new(&CLASS, "");
        bench.push_with(0, b"x", |packet| packet.set_packet_type(PacketType::Broadcast));
        bench.expect(1, b"x");
    }
}
