use artery_engine::{Arg, ArgError, Args, Batch, Class, Context, Element, Packet};
use artery_lang::args as text;

pub static CLASS: Class = Class {
    name: "Clipboard",
    group: "basic",
    summary: "copies bytes from one packet to others",
    manual: "
Remembers the bytes of RANGES of the packet that last passed from input 0 to output 0, and writes them into
packets that pass from input 1 to output 1, in the same places. A range is `OFFSET/LENGTH`. Before the first
packet has passed input 0 the bytes are zero. A packet that is too short for all ranges is neither read nor
changed.",
    example: "Idle -> c :: Clipboard(12/4) -> Discard;\nIdle -> [1]c[1] -> Discard;",
    ports: "2/2",
    flow: "#/#",
    args: &[Arg::rest("RANGES", "ranges", "which bytes, as in 12/4")],
    live: true,
    build: |args| Ok(Box::new(Clipboard::new(args)?)),
    finished: true,
    ..Class::DEFAULT
};

struct Clipboard {
    /// Start and end of each range.
    ranges: Vec<(usize, usize)>,
    /// The least length of packets that have them all.
    least: usize,
    bytes: Vec<u8>,
}

impl Clipboard {
    fn new(args: &Args<'_>) -> Result<Clipboard, ArgError> {
        let mut ranges = Vec::new();
        for (number, range) in args.rest("RANGES").iter().enumerate() {
            let slash = || format!("range {number}: expected '/' between offset and length");
            let (offset, length) = range.split_once('/').ok_or_else(|| ArgError::wrong_at(range, slash()))?;
            if offset.is_empty() || length.is_empty() {
                return Err(ArgError::wrong_at(range, slash()));
            }
            let wrong = || ArgError::wrong_at(range, format!("range {number}: invalid offset or length"));
            let read =
                |text: &str| text::parse_unsigned(text.trim()).ok().and_then(|n| u32::try_from(n).ok());
            let (offset, length) = (read(offset).ok_or_else(wrong)?, read(length).ok_or_else(wrong)?);
            let end = offset.checked_add(length).filter(|end| *end <= 0xffff).ok_or_else(wrong)?;
            ranges.push((offset as usize, end as usize));
        }
        let least = ranges.iter().map(|(_, end)| *end).max().unwrap_or(0);
        let bytes = vec![0; ranges.iter().map(|(start, end)| end - start).sum()];
        Ok(Clipboard { ranges, least, bytes })
    }

    fn copy_ranges(&mut self, packet: &Packet) {
        let mut rest = &mut self.bytes[..];
        for &(start, end) in &self.ranges {
            let (room, after) = rest.split_at_mut(end - start);
            room.copy_from_slice(&packet.data()[start..end]);
            rest = after;
        }
    }

    fn paste_ranges(&self, packet: &mut Packet) {
        let mut rest = &self.bytes[..];
        for &(start, end) in &self.ranges {
            let (bytes, after) = rest.split_at(end - start);
            packet.data_mut()[start..end].copy_from_slice(bytes);
            rest = after;
        }
    }

    fn process_batch(&mut self, port: usize, batch: &mut Batch) {
        for packet in batch.iter_mut() {
            match port {
                _ if packet.len() < self.least => {}
                0 => self.copy_ranges(packet),
                _ => self.paste_ranges(packet),
            }
        }
    }
}

impl Element for Clipboard {
    fn push(&mut self, input: usize, batch: &mut Batch, cx: &mut Context<'_>) {
        self.process_batch(input, batch);
        cx.send_all(input, batch);
    }

    fn pull(&mut self, output: usize, max: usize, into: &mut Batch, cx: &mut Context<'_>) {
        let mut batch = cx.scratch_batch();
        cx.pull(output, max, &mut batch);
        self.process_batch(output, &mut batch);
        into.append(&mut batch);
        cx.recycle_batch(batch);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use artery_engine::Bench;

    fn bench(config: &str) -> Bench {
        Bench::setup(&CLASS, config).inputs(2).outputs(2).build().unwrap()
    }

    #[test]
    fn bytes_go_from_packets_of_one_input_to_those_of_the_other() {
        let mut bench = bench("0/1, 3/2");
        bench.push(0, b"abcdef");
        bench.push(1, b"uvwxyz");
        bench.push(1, b"12345");
        bench.expect(0, b"abcdef");
        bench.expect(1, b"avwdez");
        bench.expect(1, b"a23de");
    }

    #[test]
    fn packets_that_are_too_short_pass_unchanged() {
        let mut bench = bench("1/3");
        bench.push(0, b"abcd");
        bench.push(0, b"xyz");
        bench.push(1, b"123");
        bench.push(1, b"1234");
        bench.expect(1, b"123");
        bench.expect(1, b"1bcd");
    }

    #[test]
    fn ranges_are_checked() {
        let refused = |config: &str| {
            Bench::setup(&CLASS, config).inputs(2).outputs(2).build().err().unwrap()[0].to_string()
        };
        assert_eq!(refused("1/2, 3"), "range 1: expected '/' between offset and length");
        assert_eq!(refused("1/x"), "range 0: invalid offset or length");
    }
}
