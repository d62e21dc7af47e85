use artery_engine::{Arg, Class, Context, Packet, Simple, anno};

pub static CLASS: Class = Class {
    name: "Pad",
    group: "basic",
    summary: "makes packets longer",
    manual: "
Appends zeros to each packet until it has LENGTH bytes, or without LENGTH as many as the extra length
annotation counts: what FromDump or FromIPSummaryDump know to be missing. The annotation is zero afterwards. A
packet for which no frame is long enough is dropped.",
    example: "Idle -> Pad(60) -> Discard;",
    args: &[
        Arg::optional("LENGTH", "bytes", "0", "how long packets shall be; 0 to go by the annotation"),
        Arg::keyword("ZERO", "bool", "true", "accepted and without effect: padding is zero"),
    ],
    live: true,
    build: |args| {
        args.read::<bool>("ZERO")?;
        Ok(Box::new(Pad { length: args.read::<u32>("LENGTH")? as usize }))
    },
    finished: true,
    ..Class::PER_WORKER
};

struct Pad {
    length: usize,
}

impl Simple for Pad {
    fn process(&mut self, packet: Packet, cx: &mut Context<'_>) -> Option<Packet> {
        let missing = match self.length {
            0 => u32::from_ne_bytes(packet.annotation(anno::EXTRA_LENGTH)) as usize,
            length => length.saturating_sub(packet.len()),
        };
        cx.edit_or_discard(packet, |packet| {
            if missing > 0 {
                packet.append(missing)?.fill(0);
            }
            packet.set_annotation(anno::EXTRA_LENGTH, [0; 4]);
            Ok(())
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use artery_engine::{Bench, DropReason};

    #[test]
    fn packets_are_lengthened_and_never_cut() {
        let mut bench = Bench::new(&CLASS, "4");
        bench.push(0, b"ab");
        bench.push(0, b"abcdef");
        bench.expect(0, b"ab\0\0");
        bench.expect(0, b"abcdef");
    }

    #[test]
    fn without_a_length_the_annotation_says_how_much_is_missing() {
        let mut bench = Bench::new(&CLASS, "");
        bench.push_with(0, b"ab", |packet| packet.set_annotation(anno::EXTRA_LENGTH, 3u32.to_ne_bytes()));
        let packet = bench.expect(0, b"ab\0\0\0");
        assert_eq!(packet.annotation(anno::EXTRA_LENGTH), [0; 4]);
    }

    #[test]
    fn what_no_frame_can_hold_is_dropped() {
        let mut bench = Bench::new(&CLASS, "1000000");
        bench.push(0, b"ab");
        bench.expect_dropped(DropReason::NoRoom, 1);
    }
}
