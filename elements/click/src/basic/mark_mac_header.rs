use artery_engine::{Arg, Class, Context, Packet, Simple};

pub static CLASS: Class = Class {
    name: "MarkMACHeader",
    group: "basic",
    summary: "marks where the link header is",
    manual: "
Marks the link header OFFSET bytes into each packet. With LENGTH, the network header is marked that many bytes
behind.",
    example: "Idle -> MarkMACHeader(0, 14) -> Discard;",
    args: &[
        Arg::optional("OFFSET", "bytes", "0", "where the link header begins"),
        Arg::optional("LENGTH", "bytes", "0", "its length, if the network header is to be marked"),
    ],
    live: true,
    build: |args| {
        let (offset, length): (u32, u32) = (args.read("OFFSET")?, args.read("LENGTH")?);
        Ok(Box::new(MarkMacHeader { offset: offset as usize, length: length as usize }))
    },
    ..Class::PER_WORKER
};

struct MarkMacHeader {
    offset: usize,
    length: usize,
}

impl Simple for MarkMacHeader {
    fn process(&mut self, mut packet: Packet, _: &mut Context<'_>) -> Option<Packet> {
        packet.set_mac_header(self.offset);
        if self.length > 0 {
            packet.set_network_header(self.offset + self.length);
        }
        Some(packet)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use artery_engine::Bench;

    #[test]
    fn headers_are_marked() {
        let mut bench = Bench::new(&CLASS, "2");
        bench.push(0, b"abcdef");
        let packet = bench.next_sent(0).unwrap();
        assert_eq!((packet.mac_offset(), packet.network_offset()), (Some(2), None));
        let mut bench = Bench::new(&CLASS, "0, 4");
        bench.push(0, b"abcdef");
        let packet = bench.next_sent(0).unwrap();
        assert_eq!((packet.mac_offset(), packet.network_offset()), (Some(0), Some(4)));
    }
}
