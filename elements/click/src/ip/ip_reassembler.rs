use artery_common::fragments::copy_annotations;
use artery_common::ip_header;
use artery_common::reassembly::{FragmentOutcome, GivenUp, Reassembly};
use artery_engine::{
    Annotation, Arg, ArgError, Args, Batch, Class, Context, DropReason, Element, Handler, Packet, Show, Time,
};
use artery_wire::Ipv4;
use std::any::Any;
use std::time::Duration;

pub static CLASS: Class = Class {
    name: "IPReassembler",
    group: "ip",
    summary: "puts IP packets together of their fragments",
    manual: "
Expects IP packets. One that is not a fragment passes unchanged. Fragments are kept until all of a packet are
there, in whatever order they come; the packet leaves by output 0, with the link header and the annotations of
its first fragment. If fragments are missing for 30 seconds, those that came are given up: the packet as far
as it is there from its beginning leaves by output 1, or ends as `incomplete` when there is none or when the
first fragment is missing.

Fragments that overlap, that are of odd length, or that disagree about the end make no packet: all of it end
as `bad-fragment`. When fragments take more than HIMEM bytes, the oldest are given up until a quarter of that
is free.",
    example: "Idle -> CheckIPHeader -> ra :: IPReassembler -> Discard;
ra[1] -> ICMPError(18.26.4.24, timeexceeded, reassembly) -> Discard;",
    ports: "1/1-2",
    processing: "a/ah",
    args: &[
        Arg::keyword("HIMEM", "bytes", "262144", "most memory for fragments"),
        Arg::keyword(
            "MAX_MTU_ANNO",
            "annotation offset",
            "",
            "two bytes of annotation for the length of a packet's longest fragment",
        ),
    ],
    handlers: &[Handler::read(
        "reassembled",
        "packets put together",
        &Show(|r: &mut IpReassembler| r.reassembled),
    )
    .sum()],
    finished: true,
    build: |args| Ok(Box::new(IpReassembler::new(args)?)),
    ..Class::DEFAULT
};

const WAIT: Duration = Duration::from_secs(30);
/// At least so many seconds pass between two searches for expired packets, which the arrival
/// of a fragment starts.
const LOOK_EVERY: u64 = 10;

/// What the fragments of a packet share (RFC 791 section 3.2).
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
struct Ipv4FragmentKey {
    ends: [u32; 2],
    id: u16,
    protocol: u8,
}

/// State of a packet besides its bytes.
struct PartialPacket {
    /// The first fragment; until it arrives, any other.
    fragment: Option<Packet>,
    is_first: bool,
    longest: u16,
}

struct IpReassembler {
    all: Reassembly<Ipv4FragmentKey, PartialPacket>,
    longest_at: Option<Annotation<2>>,
    reassembled: u64,
    /// The latest fragment's timestamp, and when it arrived. Timeouts count in packet timestamps, so
    /// fragments of a file wait as long as they did when it was written.
    latest: (Time, Time),
    /// In seconds of that time.
    next_expiry_check: u64,
}

impl IpReassembler {
    fn new(args: &Args<'_>) -> Result<IpReassembler, ArgError> {
        let longest_at = args.read("MAX_MTU_ANNO")?;
        Ok(IpReassembler {
            all: Reassembly::new(WAIT, args.read("HIMEM")?),
            longest_at,
            reassembled: 0,
            latest: (Time::ZERO, Time::ZERO),
            next_expiry_check: 0,
        })
    }

    /// The time of a fragment. Drops packets that have expired by then.
    fn time_of(&mut self, fragment: &Packet, cx: &mut Context<'_>) -> Time {
        let now = cx.now();
        let time = if fragment.timestamp() == Time::ZERO { now } else { fragment.timestamp() };
        self.latest = (time, now);
        if time.seconds() >= self.next_expiry_check {
            self.next_expiry_check = time.seconds() + LOOK_EVERY;
            let given_up = self.all.expire_packets(time.since_epoch());
            self.send_incomplete(given_up, cx);
        }
        time
    }

    fn receive_packet(&mut self, packet: Packet, cx: &mut Context<'_>) {
        let ip = match ip_header::ip(&packet) {
            Ok(ip) => ip,
            Err(malformed) => return cx.discard(packet, malformed.into()),
        };
        if !ip.is_fragment() {
            return cx.send(0, packet);
        }
        let whole = fragment_key(&ip);
        let (is_first, longest) = (ip.fragment_offset() == 0, ip.total_length());
        let bytes = ip_header::bytes(&packet).to_vec();
        let time = self.time_of(&packet, cx);
        let mut kept = Some(packet);
        if let Some(of) = self.all.context_of(&whole) {
            of.longest = of.longest.max(longest);
            if is_first && !of.is_first {
                of.is_first = true;
                std::mem::swap(&mut of.fragment, &mut kept);
            }
            discard_packet(kept.take(), DropReason::Consumed, cx);
        }
        match self.all.add_fragment(
            whole,
            &bytes,
            || PartialPacket { fragment: kept.take(), is_first, longest },
            time.since_epoch(),
        ) {
            FragmentOutcome::Whole(bytes, of) => {
                self.reassembled += 1;
                self.send_packet(0, &bytes, of, Some(time), cx);
            }
            FragmentOutcome::Waits => {}
            FragmentOutcome::Bad(of) => {
                discard_packet(of.and_then(|of| of.fragment), DropReason::BadFragment, cx)
            }
        }
    }

    /// Sends bytes as a packet with the link header and the annotations of its first fragment, and the time
    /// of the last one to arrive if it is whole.
    fn send_packet(
        &self,
        output: usize,
        bytes: &[u8],
        of: PartialPacket,
        time: Option<Time>,
        cx: &mut Context<'_>,
    ) {
        let Some(fragment) = of.fragment else { return };
        match build_packet(bytes, &fragment, cx) {
            Some(mut packet) => {
                if let Some(time) = time {
                    packet.set_timestamp(time);
                }
                if let Some(at) = &self.longest_at {
                    packet.set_annotation(at.offset, of.longest.to_be_bytes());
                }
                cx.discard(fragment, DropReason::Consumed);
                cx.send(output, packet);
            }
            None => cx.discard(fragment, DropReason::PoolEmpty),
        }
    }

    fn send_incomplete(&self, given_up: Vec<GivenUp<PartialPacket>>, cx: &mut Context<'_>) {
        for GivenUp { first, of } in given_up {
            match first.filter(|_| cx.outputs() > 1 && of.is_first) {
                Some(first) => self.send_packet(1, &first, of, None, cx),
                None => discard_packet(of.fragment, DropReason::Incomplete, cx),
            }
        }
    }

    fn schedule_wake(&self, cx: &mut Context<'_>) {
        let (latest, then) = self.latest;
        cx.wake_at(
            self.all.next_deadline().map_or(Time::NEVER, |due| then + (Time::ZERO + due).since(latest)),
        );
    }
}

fn discard_packet(packet: Option<Packet>, reason: DropReason, cx: &mut Context<'_>) {
    if let Some(packet) = packet {
        cx.discard(packet, reason);
    }
}

fn build_packet(bytes: &[u8], first: &Packet, cx: &Context<'_>) -> Option<Packet> {
    let link = first.network_offset().and_then(|offset| usize::try_from(offset).ok()).unwrap_or(0);
    let link = first.data().get(..link)?;
    let mut packet = cx.pool().alloc_packet_for(link.len() + bytes.len())?;
    let room = packet.append(link.len() + bytes.len()).ok()?;
    room[..link.len()].copy_from_slice(link);
    room[link.len()..].copy_from_slice(bytes);
    let header_len = Ipv4::new(bytes).ok()?.header_len();
    ip_header::mark_header(&mut packet, link.len(), header_len);
    copy_annotations(&mut packet, first);
    Some(packet)
}

impl Element for IpReassembler {
    fn push(&mut self, _input: usize, batch: &mut Batch, cx: &mut Context<'_>) {
        if batch.iter().all(|packet| ip_header::ip(packet).is_ok_and(|ip| !ip.is_fragment())) {
            return cx.send_all(0, batch);
        }
        batch.drain().for_each(|packet| self.receive_packet(packet, cx));
        let given_up = self.all.shrink_memory();
        self.send_incomplete(given_up, cx);
        self.schedule_wake(cx);
    }

    fn run_task(&mut self, cx: &mut Context<'_>) -> bool {
        let (latest, then) = self.latest;
        let given_up = self.all.expire_packets((latest + cx.now().since(then)).since_epoch());
        self.send_incomplete(given_up, cx);
        self.schedule_wake(cx);
        true
    }

    fn take_state(&mut self, old: &mut dyn Any, cx: &mut Context<'_>) {
        if let Some(old) = old.downcast_mut::<IpReassembler>() {
            std::mem::swap(&mut self.all, &mut old.all);
            self.reassembled += old.reassembled;
            (self.latest, self.next_expiry_check) = (old.latest, old.next_expiry_check);
            self.schedule_wake(cx);
        }
    }
}

fn fragment_key(ip: &Ipv4<&[u8]>) -> Ipv4FragmentKey {
    Ipv4FragmentKey { ends: [ip.src().to_bits(), ip.dst().to_bits()], id: ip.id(), protocol: ip.protocol().0 }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{Random, noise};
    use artery_engine::{Bench, anno};
    use artery_wire::build::{Ip4, ip4};

    fn base() -> Ip4 {
        ip4().src("1.0.0.1").dst("2.0.0.2").id(9)
    }
    fn part(payload: &[u8], from: usize, to: usize) -> Vec<u8> {
        let to = to.min(payload.len());
        base().fragment(from, to < payload.len()).raw(17, &payload[from..to]).bytes()
    }

    #[test]
    fn fragments_in_any_order_make_the_packet() {
        let seed = 0xf4a6;
        println!("seed {seed:#x}");
        let mut random = Random::new(seed);
        for _ in 0..100 {
            let (len, size) = (9 + random.index(5000), 8 * (1 + random.index(150)));
            let payload = noise(&mut random, len);
            let mut parts: Vec<_> =
                (0..len).step_by(size).map(|from| part(&payload, from, from + size)).collect();
            if parts.len() > 60 {
                continue;
            }
            (1..parts.len()).for_each(|at| parts.swap(at, random.index(at + 1)));
            let mut bench = Bench::new(&CLASS, "");
            parts.iter().for_each(|part| bench.push(0, part));
            bench.expect(0, base().raw(17, payload).bytes());
            bench.expect_nothing_more();
        }
    }

    #[test]
    fn the_packet_has_link_header_and_annotations_of_the_first_fragment() {
        let mut bench = Bench::new(&CLASS, "MAX_MTU_ANNO 4");
        for (from, to, paint) in [(800, 900, 1), (0, 800, 2)] {
            let frame = [&[paint; 14][..], &part(&[7; 900], from, to)].concat();
            let mut packet = bench.packet(frame);
            packet.set_network_header(14);
            packet.set_annotation(anno::PAINT, [paint]);
            bench.push_packets(0, [packet]);
        }
        let packet = bench.next_sent(0).unwrap();
        assert_eq!((&packet.data()[..14], packet.paint()), (&[2; 14][..], 2));
        assert_eq!(&packet.data()[14..], &base().raw(17, [7; 900]).bytes()[..]);
        assert_eq!(packet.network_offset(), Some(14));
        assert_eq!(packet.annotation(4), 820_u16.to_be_bytes());
    }

    #[test]
    fn what_is_no_fragment_passes_unchanged() {
        let mut bench = Bench::new(&CLASS, "");
        bench.push(0, base().udp(1, 2).bytes());
        bench.expect(0, base().udp(1, 2).bytes());
    }

    #[test]
    fn after_half_a_minute_what_there_is_leaves_by_output_1() {
        let mut bench = Bench::new(&CLASS, "");
        bench.push(0, part(&[7; 900], 0, 800));
        bench.advance_time(Duration::from_secs(29));
        bench.expect_nothing_more();
        bench.advance_time(Duration::from_secs(2));
        let sent = bench.next_sent(1).unwrap();
        assert_eq!(Ipv4::new(sent.data()).unwrap().payload(), [7; 800]);
        bench.push(0, part(&[7; 900], 800, 900));
        bench.advance_time(Duration::from_secs(31));
        bench.expect_dropped(DropReason::Incomplete, 1);
    }

    #[test]
    fn fragments_of_a_file_wait_in_its_time() {
        let mut bench = Bench::new(&CLASS, "");
        for (seconds, from, to) in [(100, 0, 800), (140, 800, 900), (150, 0, 800)] {
            let mut packet = bench.packet(part(&[7; 900], from, to));
            packet.set_timestamp(Time::new(seconds, 0));
            bench.push_packets(0, [packet]);
        }
        assert_eq!(Ipv4::new(bench.next_sent(1).unwrap().data()).unwrap().payload(), [7; 800]);
        let whole = bench.next_sent(0).unwrap();
        assert_eq!((whole.len(), whole.timestamp()), (920, Time::new(150, 0)));
        let mut alone = bench.packet(part(&[7; 900], 0, 800));
        alone.set_timestamp(Time::new(151, 0));
        bench.push_packets(0, [alone]);
        bench.advance_time(Duration::from_secs(29));
        bench.expect_nothing_more();
        bench.advance_time(Duration::from_secs(2));
        assert!(bench.next_sent(1).is_some());
    }

    #[test]
    fn fragments_that_contradict_each_other_end_together() {
        let mut bench = Bench::new(&CLASS, "");
        bench.push(0, part(&[7; 900], 0, 800));
        bench.push(0, part(&[8; 900], 400, 900));
        bench.expect_dropped(DropReason::BadFragment, 1);
        bench.expect_nothing_more();
    }

    #[test]
    fn a_flood_of_fragments_keeps_a_bounded_number_of_frames() {
        let mut bench = Bench::new(&CLASS, "HIMEM 20000");
        for id in 0..5000 {
            bench.push(0, base().id(id).fragment(0, true).raw(17, [7; 64]).bytes());
            bench.drain_sent(1);
        }
        assert!(bench.drops().count(DropReason::Consumed) >= 4900);
    }
}
