use artery_engine::{Arg, ArgError, Args, Batch, Class, Context, Element, Packet};

pub static CLASS: Class = Class {
    name: "HashSwitch",
    group: "basic",
    summary: "chooses the output by a hash of some of a packet's bytes",
    manual: "
Chooses a packet's output by a hash of the LENGTH bytes from OFFSET on, so that packets which agree in these
bytes leave by the same output. Packets that are too short to have them leave by output 0.

The hash is the sum of the bytes. With 2, 4 or 8 outputs its bits, shifted by four places and combined with
those not shifted by exclusive or, name the output; with another number of them the remainder of a division
does.",
    example: "Idle -> CheckIPHeader -> s :: HashSwitch(16, 4) -> Discard;\ns[1] -> Discard;",
    ports: "1/1-",
    processing: "h/h",
    args: &[
        Arg::required("OFFSET", "bytes", "where the bytes to hash start"),
        Arg::required("LENGTH", "bytes", "how many there are"),
    ],
    finished: true,
    build: |args| Ok(Box::new(HashSwitch::new(args)?)),
    ..Class::PER_WORKER
};

struct HashSwitch {
    offset: usize,
    length: usize,
}

impl HashSwitch {
    fn new(args: &Args<'_>) -> Result<HashSwitch, ArgError> {
        let (offset, length): (u32, u32) = (args.read("OFFSET")?, args.read("LENGTH")?);
        if length == 0 {
            return Err(ArgError::wrong("length must be > 0"));
        }
        Ok(HashSwitch { offset: offset as usize, length: length as usize })
    }
    #[inline]
    fn choose_output(&self, packet: &Packet, outputs: usize) -> usize {
        let bytes = packet.data().get(self.offset..).and_then(|bytes| bytes.get(..self.length));
        let Some(bytes) = bytes else { return 0 };
        let hash: usize = bytes.iter().map(|byte| usize::from(*byte)).sum();
        match outputs {
            2 | 4 | 8 => (hash ^ hash >> 4) & (outputs - 1),
            _ => hash % outputs.max(1),
        }
    }
}

impl Element for HashSwitch {
    fn push(&mut self, _input: usize, batch: &mut Batch, cx: &mut Context<'_>) {
        let outputs = cx.outputs();
        for packet in batch.drain() {
            cx.send(self.choose_output(&packet, outputs), packet);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use artery_engine::Bench;

    fn output_of(bytes: &[u8], outputs: usize) -> usize {
        let mut bench = Bench::setup(&CLASS, "1, 2").outputs(outputs).build().unwrap();
        bench.push(0, bytes);
        (0..outputs).find(|output| bench.next_sent(*output).is_some()).unwrap()
    }

    #[test]
    fn the_bytes_name_the_output() {
        assert_eq!(output_of(b"x\x01\x03", 3), 1, "4 mod 3");
        assert_eq!(output_of(b"y\x02\x02z", 3), 1, "no other byte counts");
        assert_eq!(output_of(b"x\x01\x03", 8), 4);
        assert_eq!(output_of(b"x\x10\x00", 2), 1, "bits above the fourth count, too");
        assert_eq!(output_of(b"x\xff\xff", 1), 0);
    }

    #[test]
    fn short_packets_leave_by_output_0() {
        assert_eq!(output_of(b"x\x01", 3), 0);
        assert_eq!(output_of(b"", 3), 0);
    }
}
