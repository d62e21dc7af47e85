use artery_engine::{Arg, ArgError, Args, Batch, Class, Context, Element, Packet};

pub static CLASS: Class = Class {
    name: "StoreData",
    group: "basic",
    summary: "writes bytes into packets",
    manual: "
Writes DATA over the bytes of every packet from OFFSET on. Packets keep their length: what would lie behind a
packet's end is not written, and one that ends before OFFSET stays as it is. No checksum is corrected.",
    example: "Idle -> StoreData(12, \\<0800>) -> Discard;",
    args: &[
        Arg::required("OFFSET", "bytes", "where to write"),
        Arg::required("DATA", "bytes", "what to write"),
    ],
    finished: true,
    build: |args| Ok(Box::new(StoreData::new(args)?)),
    ..Class::PER_WORKER
};

struct StoreData {
    offset: usize,
    data: Vec<u8>,
}

impl StoreData {
    fn new(args: &Args<'_>) -> Result<StoreData, ArgError> {
        Ok(StoreData { offset: args.read::<u32>("OFFSET")? as usize, data: args.read("DATA")? })
    }
    #[inline]
    fn store_bytes(&self, packet: &mut Packet) {
        if let Some(place) = packet.data_mut().get_mut(self.offset..) {
            let length = place.len().min(self.data.len());
            place[..length].copy_from_slice(&self.data[..length]);
        }
    }
}

impl Element for StoreData {
    fn push(&mut self, _input: usize, batch: &mut Batch, cx: &mut Context<'_>) {
        batch.iter_mut().for_each(|packet| self.store_bytes(packet));
        cx.send_all(0, batch);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use artery_engine::Bench;

    #[test]
    fn bytes_are_written_as_far_as_the_packet_goes() {
        let mut bench = Bench::new(&CLASS, "2, \\<0102>");
        for (before, after) in [
            (&b"abcdef"[..], &b"ab\x01\x02ef"[..]),
            (b"abcd", b"ab\x01\x02"),
            (b"abc", b"ab\x01"),
            (b"ab", b"ab"),
            (b"a", b"a"),
        ] {
            bench.push(0, before);
            bench.expect(0, after);
        }
    }

    #[test]
    fn an_offset_beyond_every_packet_changes_nothing() {
        let mut bench = Bench::new(&CLASS, "4294967295, x");
        bench.push(0, b"abc");
        bench.expect(0, b"abc");
    }
}
