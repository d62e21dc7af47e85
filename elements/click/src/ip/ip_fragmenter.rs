use artery_common::chance;
use artery_common::fragments::Fragmenter;
use artery_common::ip_header;
use artery_engine::{Arg, ArgError, Args, Batch, Class, Context, DropReason, Element, Handler, Packet, Show};
use artery_wire::Ipv4;
use artery_wire::Random;

pub static CLASS: Class = Class {
    name: "IPFragmenter",
    group: "ip",
    summary: "splits IP packets that are longer than the MTU",
    manual: "
Expects IP packets. One that is no longer than `MTU` passes unchanged. A longer one is split into fragments,
which leave by output 0 in order, each with all annotations. One that must not be split (DF), or whose header
leaves no room for 8 bytes, leaves by output 1, or is dropped when there is none; the first five are reported,
or with `VERBOSE` all. With `HONOR_DF` false a packet with DF is split all the same, under a new
identification.

What precedes the IP header stays with the first fragment only: strip it before. The fragments after the first
are copies.",
    example: "Idle -> CheckIPHeader -> fr :: IPFragmenter(1024) -> Discard;
fr[1] -> ICMPError(18.26.4.24, unreachable, needfrag, PMTU 1024) -> Discard;",
    ports: "1/1-2",
    processing: "h/h",
    args: &[
        Arg::required("MTU", "bytes", "longest packet to let pass"),
        Arg::optional("HONOR_DF", "bool", "true", "whether DF counts"),
        Arg::optional("VERBOSE", "bool", "false", "whether to report every packet that can't be split"),
        Arg::keyword("HEADROOM", "bytes", "28", "least room for headers in front of the fragments"),
    ],
    handlers: &[
        Handler::read("drops", "packets that could not be split", &Show(|f: &mut IpFragmenter| f.drops))
            .sum(),
        Handler::read("fragments", "fragments made", &Show(|f: &mut IpFragmenter| f.fragments)).sum(),
    ],
    build: |args| Ok(Box::new(IpFragmenter::new(args)?)),
    ..Class::PER_WORKER
};

const REPORTS: u64 = 5;
/// Bit of the fragment field (RFC 791 section 3.1).
const DONT_FRAGMENT: u16 = 0x4000;

struct IpFragmenter {
    mtu: usize,
    honor_df: bool,
    verbose: bool,
    headroom: usize,
    drops: u64,
    fragments: u64,
    random: Random,
}

/// What to do with a packet.
enum SizeCheck {
    Fits,
    /// Split into fragments, the first with this many bytes of payload.
    Split(usize),
    CannotSplit,
    Malformed(DropReason),
}

impl IpFragmenter {
    fn new(args: &Args<'_>) -> Result<IpFragmenter, ArgError> {
        let mtu = args.read::<u32>("MTU")? as usize;
        if mtu < 8 {
            return Err(ArgError::wrong("MTU must be at least 8"));
        }
        Ok(IpFragmenter {
            mtu,
            honor_df: args.read("HONOR_DF")?,
            verbose: args.read("VERBOSE")?,
            headroom: args.read::<u16>("HEADROOM")?.into(),
            drops: 0,
            fragments: 0,
            random: chance::new_random(args),
        })
    }

    #[inline]
    fn check_size(&self, packet: &Packet) -> SizeCheck {
        if ip_header::bytes(packet).len() <= self.mtu { SizeCheck::Fits } else { self.size_of_long(packet) }
    }

    fn size_of_long(&self, packet: &Packet) -> SizeCheck {
        let network = packet.network_offset().map_or(Some(0), |offset| usize::try_from(offset).ok());
        if network.is_some_and(|network| packet.segment_len(network) <= self.mtu) {
            return SizeCheck::Fits;
        }
        let ip = match ip_header::ip(packet) {
            Ok(ip) => ip,
            Err(malformed) => return SizeCheck::Malformed(malformed.into()),
        };
        if ip.check_total_length().is_err() {
            return SizeCheck::Malformed(DropReason::Malformed);
        }
        let room = self.mtu.saturating_sub(ip.header_len()) & !7;
        if ip.dont_fragment() && self.honor_df || room < 8 {
            return SizeCheck::CannotSplit;
        }
        SizeCheck::Split(room)
    }

    fn handle_packet(&mut self, packet: Packet, cx: &mut Context<'_>) {
        match self.check_size(&packet) {
            SizeCheck::Fits => cx.send(0, packet),
            SizeCheck::Split(_) if packet.has_offload() => self.handle_segments(packet, cx),
            SizeCheck::Split(first) => self.send_fragments(packet, first, cx),
            SizeCheck::CannotSplit => self.refuse_packet(packet, cx),
            SizeCheck::Malformed(reason) => cx.discard(packet, reason),
        }
    }

    /// Handles the segments of a packet: fragments have no checksum that could be left.
    #[cold]
    fn handle_segments(&mut self, packet: Packet, cx: &mut Context<'_>) {
        let mut segments = cx.scratch_batch();
        segments.push(packet);
        cx.apply_offloads(&mut segments);
        segments.drain().for_each(|segment| self.handle_packet(segment, cx));
        cx.recycle_batch(segments);
    }

    #[cold]
    fn refuse_packet(&mut self, packet: Packet, cx: &mut Context<'_>) {
        let reported = self.verbose || self.drops < REPORTS;
        if let (true, Ok(ip)) = (reported, ip_header::ip(&packet)) {
            let (mtu, src, dst, len) = (self.mtu, ip.src(), ip.dst(), packet.len());
            cx.print_message(&format!("IPFragmenter({mtu}) DF {src} {dst} len={len}"));
        }
        self.drops += 1;
        cx.send_or_discard(1, packet, DropReason::TooLong);
    }

    /// Sends a packet in fragments. The first is the packet itself, truncated after the others
    /// were copied from it.
    fn send_fragments(&mut self, mut packet: Packet, first: usize, cx: &mut Context<'_>) {
        self.allow_fragments(&mut packet);
        let (mut rest, cut) = (cx.scratch_batch(), Fragmenter { mtu: self.mtu, headroom: self.headroom });
        let Some(()) = cut.split_packet(&mut packet, first, &mut rest, cx) else {
            cx.recycle_batch(rest);
            return cx.discard(packet, DropReason::Malformed);
        };
        self.fragments += 1 + rest.len() as u64;
        cx.send(0, packet);
        rest.drain().for_each(|fragment| cx.send(0, fragment));
        cx.recycle_batch(rest);
    }

    /// Clears DF where it is ignored. A sender that sets it need not give packets
    /// identifications of their own.
    fn allow_fragments(&mut self, packet: &mut Packet) {
        if let Some(mut ip) = ip_header::ip_mut(packet).ok().filter(Ipv4::dont_fragment) {
            ip.set_id(self.random.next_u32() as u16);
            ip.set_fragment_field(ip.fragment_field() & !DONT_FRAGMENT);
        }
    }
}

impl Element for IpFragmenter {
    fn push(&mut self, _input: usize, batch: &mut Batch, cx: &mut Context<'_>) {
        if batch.iter().all(|packet| ip_header::bytes(packet).len() <= self.mtu) {
            cx.send_all(0, batch);
        } else {
            batch.drain().for_each(|packet| self.handle_packet(packet, cx));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{Random as Seeded, survives_anything};
    use artery_engine::{Bench, Time, anno};
    use artery_wire::IpProtocol;
    use artery_wire::build::{Ip4, ip4};

    fn packet(payload: usize) -> Ip4 {
        let bytes: Vec<u8> = (0..payload).map(|n| n as u8).collect();
        ip4().id(77).raw(IpProtocol::UDP.0, bytes)
    }

    /// Reassembles fragments in a simple way; returns the payload, and whether more fragments follow.
    fn reassemble(fragments: &[Packet], mtu: usize) -> (Vec<u8>, bool) {
        let (mut payload, mut more) = (Vec::new(), true);
        for fragment in fragments {
            let ip = Ipv4::new(fragment.data()).unwrap();
            assert!(ip.checksum_is_valid() && fragment.len() <= mtu && more);
            assert_eq!((usize::from(ip.total_length()), ip.id()), (fragment.len(), 77));
            assert_eq!(ip.fragment_offset(), payload.len());
            payload.extend_from_slice(ip.payload());
            more = ip.more_fragments();
        }
        (payload, more)
    }

    #[test]
    fn fragments_in_order_make_the_packet_whatever_its_length_and_the_mtu() {
        let seed = 0xfeed_5eed;
        println!("seed {seed:#x}");
        let mut random = Seeded::new(seed);
        for _ in 0..300 {
            let (len, mtu) = (random.index(4000), 28 + random.index(1600));
            let mut bench = Bench::new(&CLASS, &mtu.to_string());
            bench.push(0, packet(len).bytes());
            let sent = bench.drain_sent(0);
            let count = bench.read("fragments", "").unwrap();
            assert_eq!(count, if sent.len() > 1 { sent.len().to_string() } else { "0".into() });
            assert_eq!(reassemble(&sent, mtu), (packet(len).bytes()[20..].to_vec(), false), "{len} {mtu}");
        }
    }

    #[test]
    fn a_fragment_is_split_at_its_place() {
        let mut bench = Bench::new(&CLASS, "60");
        bench.push(0, packet(64).fragment(800, true).bytes());
        let offsets: Vec<_> = bench
            .drain_sent(0)
            .iter()
            .map(|packet| {
                Ipv4::new(packet.data()).map(|ip| (ip.fragment_offset(), ip.more_fragments())).unwrap()
            })
            .collect();
        assert_eq!(offsets, [(800, true), (840, true)]);
    }

    #[test]
    fn only_options_that_say_so_are_in_all_fragments() {
        let mut bench = Bench::new(&CLASS, "60");
        bench.push(0, packet(64).options([7, 3, 4, 1, 131, 3, 4, 0]).bytes());
        let sent = bench.drain_sent(0);
        let options = |n: usize| Ipv4::new(sent[n].data()).unwrap().options().to_vec();
        assert_eq!((options(0), options(1)), (vec![7, 3, 4, 1, 131, 3, 4, 0], vec![131, 3, 4, 0]));
        let payload: Vec<u8> =
            sent.iter().flat_map(|p| Ipv4::new(p.data()).unwrap().payload().to_vec()).collect();
        assert_eq!(payload, packet(64).bytes()[20..]);
    }

    #[test]
    fn fragments_have_all_annotations_and_the_room_asked_for() {
        let mut bench = Bench::new(&CLASS, "60, HEADROOM 900");
        let mut long = bench.packet(packet(100).bytes());
        long.set_annotation(anno::PAINT, [5]);
        long.set_annotation(anno::AGGREGATE, [1, 2, 3, 4]);
        long.set_timestamp(Time::new(7, 0));
        bench.push_packets(0, [long]);
        let sent = bench.drain_sent(0);
        assert_eq!(sent.len(), 3);
        for packet in &sent {
            assert_eq!((packet.paint(), packet.annotation(anno::AGGREGATE)), (5, [1, 2, 3, 4]));
            assert_eq!(packet.timestamp(), Time::new(7, 0));
        }
        assert!(
            sent[1..].iter().all(|packet| packet.headroom() >= 900 && packet.network_offset() == Some(0))
        );
    }

    #[test]
    fn a_packet_that_must_not_be_split_leaves_by_output_1() {
        let whole = packet(100).dont_fragment().bytes();
        let mut bench = Bench::new(&CLASS, "60");
        bench.push(0, &whole);
        bench.expect(1, &whole);
        assert_eq!(bench.stderr_text(), "IPFragmenter(60) DF 10.0.0.1 10.0.0.2 len=120\n");
        (0..9).for_each(|_| bench.push(0, &whole));
        assert_eq!((bench.stderr_text().lines().count(), bench.read("drops", "").unwrap()), (4, "10".into()));
        let mut bench = Bench::setup(&CLASS, "27, VERBOSE true").outputs(1).build().unwrap();
        bench.push(0, packet(100).bytes());
        bench.expect_dropped(DropReason::TooLong, 1);
    }

    #[test]
    fn df_is_ignored_when_told() {
        let mut bench = Bench::new(&CLASS, "60, false");
        bench.push(0, packet(100).dont_fragment().bytes());
        let sent = bench.drain_sent(0);
        let ids: Vec<_> = sent.iter().map(|packet| Ipv4::new(packet.data()).unwrap().id()).collect();
        assert!(ids.len() == 3 && ids.iter().all(|id| *id == ids[0]));
        assert!(sent.iter().all(|packet| !Ipv4::new(packet.data()).unwrap().dont_fragment()));
        assert!(sent.iter().all(|packet| Ipv4::new(packet.data()).unwrap().checksum_is_valid()));
    }

    #[test]
    fn padding_alone_does_not_split_a_packet() {
        let mut bench = Bench::new(&CLASS, "60");
        bench.push(0, [packet(30).bytes(), vec![0; 20]].concat());
        bench.expect(0, packet(30).bytes());
        bench.expect_nothing_more();
    }

    #[test]
    fn any_bytes_are_survived() {
        for config in ["28", "40, false", "8"] {
            survives_anything(&CLASS, config, 2);
        }
        assert_eq!(Bench::config_error(&CLASS, "7"), "MTU must be at least 8");
    }
}
