use artery_engine::{Arg, ArgError, Args, Batch, Class, Context, Element, Packet, anno};

pub static CLASS: Class = Class {
    name: "AggregatePaint",
    group: "basic",
    summary: "sets the aggregate annotation to packets' paint",
    manual: "
Sets the AGGREGATE annotation of every packet to the lowest BITS bits of its PAINT annotation. With
INCREMENTAL it makes room for them by moving what the annotation holds up by BITS bits, so that several
elements together name an aggregate.",
    example: "InfiniteSource(LIMIT 10) -> Paint(3) -> AggregatePaint -> AggregateCounter -> Discard;",
    args: &[
        Arg::optional("BITS", "1 to 8", "8", "how many bits of the color count"),
        Arg::keyword("INCREMENTAL", "bool", "false", "whether to add to the aggregate that a packet has"),
    ],
    build: |args| Ok(Box::new(AggregatePaint::new(args)?)),
    ..Class::PER_WORKER
};

struct AggregatePaint {
    bits: u32,
    incremental: bool,
}

impl AggregatePaint {
    fn new(args: &Args<'_>) -> Result<AggregatePaint, ArgError> {
        let bits: i32 = args.read("BITS")?;
        match u32::try_from(bits) {
            Ok(bits @ 1..=8) => Ok(AggregatePaint { bits, incremental: args.read("INCREMENTAL")? }),
            _ => Err(ArgError::wrong("bad number of bits: it is 1 to 8")),
        }
    }
    #[inline]
    fn set_aggregate(&self, packet: &mut Packet) {
        let color = u32::from(packet.paint()) & ((1 << self.bits) - 1);
        let held = if self.incremental { u32::from_ne_bytes(packet.annotation(anno::AGGREGATE)) } else { 0 };
        packet.set_annotation(anno::AGGREGATE, (held << self.bits | color).to_ne_bytes());
    }
}

impl Element for AggregatePaint {
    fn push(&mut self, _input: usize, batch: &mut Batch, cx: &mut Context<'_>) {
        batch.iter_mut().for_each(|packet| self.set_aggregate(packet));
        cx.send_all(0, batch);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use artery_engine::Bench;

    fn aggregate(config: &str, paint: u8, before: u32) -> u32 {
        let mut bench = Bench::new(&CLASS, config);
        let mut packet = bench.packet(b"x");
        packet.set_annotation(anno::PAINT, [paint]);
        packet.set_annotation(anno::AGGREGATE, before.to_ne_bytes());
        bench.push_packets(0, [packet]);
        u32::from_ne_bytes(bench.expect(0, b"x").annotation(anno::AGGREGATE))
    }

    #[test]
    fn the_lowest_bits_of_the_color_become_the_aggregate() {
        assert_eq!(aggregate("", 0xfd, 9), 0xfd);
        assert_eq!(aggregate("3", 0xfd, 9), 5);
    }

    #[test]
    fn or_are_added_to_it() {
        assert_eq!(aggregate("3, INCREMENTAL true", 0xfd, 9), 9 << 3 | 5);
        assert_eq!(aggregate("INCREMENTAL true", 0xfd, 0xff00_0001), 0x1fd);
    }

    #[test]
    fn refuses_other_numbers_of_bits() {
        for bits in ["0", "9", "-1"] {
            assert!(Bench::config_error(&CLASS, bits).starts_with("bad number of bits"));
        }
    }
}
