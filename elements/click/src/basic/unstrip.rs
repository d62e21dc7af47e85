use artery_engine::{Arg, Class, Context, Packet, Simple};

pub static CLASS: Class = Class {
    name: "Unstrip",
    group: "basic",
    summary: "puts bytes back in front of packets",
    manual: "
Adds LENGTH bytes in front of every packet: those that Strip removed, if nothing has been written there since,
and otherwise whatever the frame holds. A packet for which no frame is big enough is dropped.",
    example: "Idle -> Strip(14) -> Unstrip(14) -> Discard;",
    args: &[Arg::required("LENGTH", "bytes", "how many bytes to add")],
    build: |args| Ok(Box::new(Unstrip { length: args.read::<u32>("LENGTH")? as usize })),
    ..Class::PER_WORKER
};

struct Unstrip {
    length: usize,
}

impl Simple for Unstrip {
    #[inline]
    fn process(&mut self, packet: Packet, cx: &mut Context<'_>) -> Option<Packet> {
        cx.edit_or_discard(packet, |packet| Ok(packet.unstrip(self.length)?))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use artery_engine::{Bench, DropReason};

    #[test]
    fn brings_stripped_bytes_back() {
        let mut bench = Bench::new(&CLASS, "2");
        bench.push_with(0, b"abcd", |packet| packet.strip(2).unwrap());
        bench.expect(0, b"abcd");
    }

    #[test]
    fn makes_room_beyond_the_headroom() {
        let mut bench = Bench::new(&CLASS, "3000");
        bench.push(0, b"x");
        let packet = bench.next_sent(0).unwrap();
        assert_eq!((packet.len(), packet.data()[3000]), (3001, b'x'));
    }

    #[test]
    fn a_packet_that_fits_no_frame_is_dropped() {
        let mut bench = Bench::new(&CLASS, "4000000000");
        bench.push(0, b"x");
        bench.expect_dropped(DropReason::NoRoom, 1);
    }
}
