use super::ether_text::format_dashed;
use crate::ip::each::send_each;
use artery_engine::{
    Annotation, Arg, ArgError, ArgValue, Args, Batch, Class, Context, DropReason, Element, Handler, Packet,
    Show, Write, parse_value,
};
use artery_wire::EtherAddr;

pub static CLASS: Class = Class {
    name: "StoreEtherAddress",
    group: "ether",
    summary: "writes an Ethernet address into packets",
    manual: "
Writes the address ADDR, or with ANNO what the six bytes of this annotation hold, into every packet, OFFSET
bytes in. OFFSET may be `dst` for 0 or `src` for 6, which is where an Ethernet header has its addresses.
Packets too short for that leave by output 1, or are dropped when there is none.",
    example: "Idle -> StoreEtherAddress(02:00:00:00:00:01, src) -> Discard;",
    ports: "1/1-2",
    processing: "a/ah",
    args: &[
        Arg::optional("ADDR", "Ethernet address", "", "what to write"),
        Arg::optional("OFFSET", "bytes, src or dst", "", "where to write; alone, it is the first argument"),
        Arg::keyword("ANNO", "annotation", "", "writes this annotation instead of an address"),
    ],
    handlers: &[Handler::read("addr", "ADDR", &Show(|s: &mut StoreEtherAddress| format_dashed(s.address)))
        .and_write(&Write(|s: &mut StoreEtherAddress, text, _| parse_value(text).map(|to| s.address = to)))],
    finished: true,
    build: |args| Ok(Box::new(StoreEtherAddress::new(args)?)),
    ..Class::PER_WORKER
};

struct StoreEtherAddress {
    address: EtherAddr,
    /// The annotation to read the address from, instead of a constant.
    annotation: Option<usize>,
    offset: usize,
}

impl StoreEtherAddress {
    fn new(args: &Args<'_>) -> Result<StoreEtherAddress, ArgError> {
        let annotation = args.read::<Option<Annotation<6>>>("ANNO")?.map(|anno| anno.offset);
        // A single positional argument is the offset, which is mandatory.
        let (address, offset): (Option<EtherAddr>, &str) =
            match (args.is_given("ADDR"), args.is_given("OFFSET")) {
                (_, true) => (args.read("ADDR")?, "OFFSET"),
                (true, false) => (None, "ADDR"),
                (false, false) => return Err(ArgError::Missing("OFFSET")),
            };
        if address.is_some() == annotation.is_some() {
            return Err(ArgError::wrong("must specify exactly one of ADDR/ANNO"));
        }
        let offset =
            parse_offset(&args.read::<String>(if offset == "ADDR" { "ADDR" } else { "OFFSET" })?, args)?;
        Ok(StoreEtherAddress { address: address.unwrap_or(EtherAddr::ZERO), annotation, offset })
    }

    #[inline]
    fn store_address(&self, packet: &mut Packet) -> Result<(), ()> {
        let address = self.annotation.map_or(self.address.octets(), |at| packet.annotation(at));
        let bytes = packet.data_mut().get_mut(self.offset..).and_then(<[u8]>::first_chunk_mut);
        *bytes.ok_or(())? = address;
        Ok(())
    }
}

fn parse_offset(text: &str, args: &Args<'_>) -> Result<usize, ArgError> {
    match text.to_ascii_lowercase().as_str() {
        "dst" => Ok(0),
        "src" => Ok(6),
        _ => u32::parse(text, args.names())
            .map(|offset| offset as usize)
            .map_err(|_| ArgError::wrong("type mismatch: bad OFFSET")),
    }
}

impl Element for StoreEtherAddress {
    fn push(&mut self, _input: usize, batch: &mut Batch, cx: &mut Context<'_>) {
        let store = |packet: &mut Packet| self.store_address(packet);
        send_each(batch, cx, store, |(), packet, cx| cx.send_or_discard(1, packet, DropReason::TooShort));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use artery_engine::Bench;

    const ADDRESS: &str = "01:02:03:04:05:06";

    #[test]
    fn the_address_is_written_where_it_is_told() {
        for (place, bytes) in [
            ("dst", "\x01\x02\x03\x04\x05\x06ghijklmn"),
            ("SRC", "abcdef\x01\x02\x03\x04\x05\x06mn"),
            ("8", "abcdefgh\x01\x02\x03\x04\x05\x06"),
        ] {
            let mut bench = Bench::new(&CLASS, &format!("{ADDRESS}, {place}"));
            bench.push(0, b"abcdefghijklmn");
            bench.expect(0, bytes);
        }
    }

    #[test]
    fn an_annotation_may_hold_it() {
        let mut bench = Bench::new(&CLASS, "1, ANNO 4");
        bench.push_with(0, b"abcdefgh", |packet| packet.set_annotation(4, *b"123456"));
        bench.expect(0, b"a123456h");
    }

    #[test]
    fn packets_that_are_too_short_leave_by_output_1() {
        let mut bench = Bench::new(&CLASS, &format!("{ADDRESS}, 2"));
        bench.push(0, b"abcdefg");
        bench.expect(1, b"abcdefg");
        let mut bench = Bench::setup(&CLASS, &format!("{ADDRESS}, 4294967295")).outputs(1).build().unwrap();
        bench.push(0, b"abcdefg");
        bench.expect_dropped(DropReason::TooShort, 1);
    }

    #[test]
    fn the_address_can_be_changed_live() {
        let mut bench = Bench::new(&CLASS, &format!("{ADDRESS}, 0"));
        bench.write("addr", "11:12:13:14:15:16").unwrap();
        assert_eq!(bench.read("addr", "").unwrap(), "11-12-13-14-15-16");
        bench.push(0, b"abcdefg");
        bench.expect(0, b"\x11\x12\x13\x14\x15\x16g");
    }

    #[test]
    fn there_is_one_address_and_an_offset() {
        let wrong = "must specify exactly one of ADDR/ANNO";
        assert_eq!(Bench::config_error(&CLASS, "src"), wrong);
        assert_eq!(Bench::config_error(&CLASS, &format!("{ADDRESS}, src, ANNO 4")), wrong);
        assert_eq!(Bench::config_error(&CLASS, &format!("{ADDRESS}, -1")), "type mismatch: bad OFFSET");
        assert_eq!(Bench::config_error(&CLASS, ""), "OFFSET: required argument missing");
    }
}
