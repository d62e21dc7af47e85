use artery_engine::{Arg, Class, Context, DropReason, Field, Handler, Packet, Simple};

pub static CLASS: Class = Class {
    name: "Resize",
    group: "basic",
    summary: "adds bytes at both ends of packets, or removes some",
    manual: "
Makes each packet HEAD bytes longer in front and TAIL bytes longer at the end; the new bytes are zero.
Negative numbers remove bytes, as far as there are any. A packet for which no frame is long enough is
dropped.",
    example: "Idle -> Resize(-14, 4) -> Discard;",
    args: &[
        Arg::optional("HEAD", "bytes", "0", "how many bytes to add in front"),
        Arg::optional("TAIL", "bytes", "0", "how many bytes to add at the end"),
    ],
    handlers: &[
        Handler::field("head", "HEAD", &Field(|r: &mut Resize| &mut r.head)),
        Handler::field("tail", "TAIL", &Field(|r: &mut Resize| &mut r.tail)),
    ],
    live: true,
    build: |args| Ok(Box::new(Resize { head: args.read("HEAD")?, tail: args.read("TAIL")? })),
    finished: true,
    ..Class::PER_WORKER
};

struct Resize {
    head: i32,
    tail: i32,
}

impl Resize {
    fn resize_packet(&self, packet: &mut Packet) -> Result<(), DropReason> {
        let amount = self.head.unsigned_abs() as usize;
        match self.head {
            0.. => packet.prepend(amount)?.fill(0),
            _ => packet.strip(amount.min(packet.len()))?,
        }
        let amount = self.tail.unsigned_abs() as usize;
        match self.tail {
            0.. => packet.append(amount)?.fill(0),
            _ => packet.trim(amount.min(packet.len()))?,
        }
        Ok(())
    }
}

impl Simple for Resize {
    fn process(&mut self, packet: Packet, cx: &mut Context<'_>) -> Option<Packet> {
        cx.edit_or_discard(packet, |packet| self.resize_packet(packet))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use artery_engine::Bench;

    #[test]
    fn bytes_are_removed_as_far_as_there_are_any() {
        let mut bench = Bench::new(&CLASS, "-1, -2");
        bench.push(0, b"abcdef");
        bench.push(0, b"ab");
        bench.expect(0, b"bcd");
        bench.expect(0, b"");
    }

    #[test]
    fn bytes_of_zero_are_added_at_both_ends() {
        let mut bench = Bench::new(&CLASS, "2, 3");
        bench.push(0, b"abc");
        bench.expect(0, b"\0\0abc\0\0\0");
    }

    #[test]
    fn numbers_can_be_changed() {
        let mut bench = Bench::new(&CLASS, "");
        bench.write("head", "-1").unwrap();
        bench.push(0, b"ab");
        bench.expect(0, b"b");
        assert_eq!(bench.read("head", "").unwrap(), "-1");
        assert_eq!(bench.read("tail", "").unwrap(), "0");
        bench.write("tail", "1000000").unwrap();
        bench.push(0, b"ab");
        bench.expect_dropped(DropReason::NoRoom, 1);
    }
}
