use artery_engine::{Arg, Batch, Class, Context, Element, Field, Handler, Packet, anno};

pub static CLASS: Class = Class {
    name: "Truncate",
    group: "basic",
    summary: "cuts packets to a length",
    manual: "
Removes bytes from the end of every packet that is longer than LENGTH. Unless EXTRA_LENGTH is false, it adds
their number to the EXTRA_LENGTH annotation, from which tools know how long the packet was.",
    example: "Idle -> Truncate(64) -> Discard;",
    args: &[
        Arg::required("LENGTH", "bytes", "most bytes to leave"),
        Arg::keyword("EXTRA_LENGTH", "bool", "true", "whether to note how much was cut"),
    ],
    handlers: &[Handler::field("nbytes", "LENGTH", &Field(|t: &mut Truncate| &mut t.length))],
    finished: true,
    live: true,
    build: |args| Ok(Box::new(Truncate { length: args.read("LENGTH")?, note: args.read("EXTRA_LENGTH")? })),
    ..Class::PER_WORKER
};

struct Truncate {
    length: u32,
    note: bool,
}

impl Truncate {
    #[inline]
    fn truncate_packet(&self, packet: &mut Packet) {
        let excess = packet.len().saturating_sub(self.length as usize);
        if excess == 0 || packet.trim(excess).is_err() {
            return;
        }
        if self.note {
            let extra = u32::from_ne_bytes(packet.annotation(anno::EXTRA_LENGTH));
            packet.set_annotation(anno::EXTRA_LENGTH, extra.wrapping_add(excess as u32).to_ne_bytes());
        }
    }
}

impl Element for Truncate {
    fn push(&mut self, _input: usize, batch: &mut Batch, cx: &mut Context<'_>) {
        batch.iter_mut().for_each(|packet| self.truncate_packet(packet));
        cx.send_all(0, batch);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use artery_engine::Bench;

    fn extra(packet: &Packet) -> u32 {
        u32::from_ne_bytes(packet.annotation(anno::EXTRA_LENGTH))
    }

    #[test]
    fn cuts_longer_packets_and_notes_how_much() {
        let mut bench = Bench::new(&CLASS, "2");
        bench.push(0, b"abcde");
        bench.push(0, b"a");
        assert_eq!(extra(&bench.expect(0, b"ab")), 3);
        assert_eq!(extra(&bench.expect(0, b"a")), 0);
    }

    #[test]
    fn cutting_twice_adds_up() {
        let mut bench = Bench::new(&CLASS, "3");
        bench.push(0, b"abcde");
        let packet = bench.next_sent(0).unwrap();
        bench.write("nbytes", "1").unwrap();
        bench.push_packets(0, [packet]);
        assert_eq!(extra(&bench.expect(0, b"a")), 4);
    }

    #[test]
    fn notes_nothing_when_told() {
        let mut bench = Bench::new(&CLASS, "2, EXTRA_LENGTH false");
        bench.push(0, b"abcde");
        assert_eq!(extra(&bench.expect(0, b"ab")), 0);
    }

    #[test]
    fn the_length_must_be_given() {
        assert_eq!(Bench::config_error(&CLASS, ""), "LENGTH: required argument missing");
        assert!(Bench::new(&CLASS, "1").write("nbytes", "-3").is_err());
    }
}
