use artery_engine::names::Names;
use artery_engine::{Arg, ArgValue, Batch, Class, Context, Element, PacketType};

pub static CLASS: Class = Class {
    name: "SetPacketType",
    group: "basic",
    summary: "sets to whom the link layer addressed packets",
    manual: "
Sets the packet type annotation of every packet to TYPE: `HOST` for packets to this host, `BROADCAST` and
`MULTICAST`, `OTHERHOST` for packets to others, `OUTGOING` for those that leave. FromDevice and
HostEtherFilter set it by the destination address; DropBroadcasts, ICMPError and others look at it.",
    example: "Idle -> SetPacketType(HOST) -> Discard;",
    args: &[Arg::required("TYPE", "HOST, BROADCAST, MULTICAST, OTHERHOST or OUTGOING", "the type")],
    build: |args| {
        let Type(to) = args.read("TYPE")?;
        Ok(Box::new(SetPacketType { to }))
    },
    ..Class::PER_WORKER
};

struct SetPacketType {
    to: PacketType,
}

/// A packet type as it is written.
struct Type(PacketType);

impl ArgValue for Type {
    fn parse(text: &str, _: &Names) -> Result<Type, String> {
        Ok(Type(match text.to_ascii_uppercase().as_str() {
            "HOST" => PacketType::Host,
            "BROADCAST" => PacketType::Broadcast,
            "MULTICAST" => PacketType::Multicast,
            "OTHERHOST" => PacketType::OtherHost,
            // A packet that a loopback device shows can't be distinguished from an outgoing
            // one of another device.
            "OUTGOING" | "LOOPBACK" => PacketType::Outgoing,
            _ => return Err("HOST, BROADCAST, MULTICAST, OTHERHOST or OUTGOING".into()),
        }))
    }
}

impl Element for SetPacketType {
    fn push(&mut self, _input: usize, batch: &mut Batch, cx: &mut Context<'_>) {
        batch.iter_mut().for_each(|packet| packet.set_packet_type(self.to));
        cx.send_all(0, batch);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use artery_engine::Bench;

    #[test]
    fn the_type_is_set() {
        for (text, to) in [
            ("HOST", PacketType::Host),
            ("broadcast", PacketType::Broadcast),
            ("MULTICAST", PacketType::Multicast),
            ("OtherHost", PacketType::OtherHost),
            ("OUTGOING", PacketType::Outgoing),
        ] {
            let mut bench = Bench::new(&CLASS, text);
            bench.push(0, b"x");
            assert_eq!(bench.expect(0, b"x").packet_type(), to);
        }
    }
}
