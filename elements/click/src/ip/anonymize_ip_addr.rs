use super::address::List;
use super::each::send_each;
use artery_common::chance;
use artery_engine::{Arg, ArgError, Args, Batch, Class, Context, DropReason, Element, Packet};
use artery_wire::{Icmp, IcmpType, IpProtocol, Ipv4, checksum};
use std::any::Any;
use std::hash::{DefaultHasher, Hash as _, Hasher as _};
use std::net::Ipv4Addr;
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

pub static CLASS: Class = Class {
    name: "AnonymizeIPAddr",
    group: "ip",
    summary: "replaces addresses so that prefixes stay together",
    manual: "
Expects marked IP packets, and replaces source and destination by other addresses: the same one for the same
address until the router stops, also after a replacement of the configuration, and such that two addresses
that agree in their first bits still agree in just as many. 0.0.0.0 and 255.255.255.255 stay. The header's
checksum is corrected; those of TCP and UDP, which tell of the old addresses, are not. In the packet that an
ICMP error quotes both addresses are replaced, too, and its header's checksum is corrected, by which that of
the message stays right.

CLASS N keeps the first N bits as far as they are ones, so that with 4 an address of class A, B, C or D stays
in its class; 99 means
32. PRESERVE_8 keeps the first byte of addresses that begin with one of these numbers. SEED is accepted and
has no effect; RandomSeed makes the mapping repeatable.

Packets that are no marked IPv4 packets leave by output 1, or are dropped when there is none. So do ICMP
errors, and fragments of ICMP messages, that may hold a part of a quoted packet's addresses and not all of
both, for those would tell.",
    example: "FromDump(trace.pcap, FORCE_IP true) -> AnonymizeIPAddr(CLASS 4) -> ToDump(anonymous.pcap);",
    ports: "1/1-2",
    processing: "a/ah",
    args: &[
        Arg::keyword("CLASS", "0 to 32", "0", "how many leading ones stay"),
        Arg::keyword("PRESERVE_8", "numbers from 0 to 255", "", "first bytes that stay"),
        Arg::keyword("SEED", "bool", "false", "without effect"),
    ],
    finished: true,
    build: |args| Ok(Box::new(AnonymizeIpAddr(Mapping::new(args)?))),
    ..Class::PER_WORKER
};

const ICMP_HEADER: usize = Icmp::<&[u8]>::LEN;
/// Where a header's checksum and addresses are (RFC 791, section 3.1).
const CHECKSUM: Range<usize> = 10..12;
const SRC: Range<usize> = 12..16;
const DST: Range<usize> = 16..20;

struct AnonymizeIpAddr(Mapping);

/// The mapping of addresses. Whether a bit is flipped depends only on the bits before it. So two addresses
/// share as long a prefix as before, and no table is needed.
struct Mapping {
    /// The secret key of the mapping. The copies share it, so that all of them follow when one
    /// restores an older key.
    key: Arc<[AtomicU64; 2]>,
    /// How many leading ones are kept.
    class: u32,
    /// First bytes that are kept.
    preserved: Vec<u8>,
}

impl Mapping {
    fn new(args: &mut Args<'_>) -> Result<Mapping, ArgError> {
        let _: bool = args.read("SEED")?;
        let class = match args.read("CLASS")? {
            99 => 32,
            class @ 0..=32 => class,
            _ => return Err(ArgError::wrong("CLASS must be between 0 and 32")),
        };
        let List(preserved) = args.read("PRESERVE_8")?;
        let mut random = chance::new_random(args);
        let key = args.shared_value(|| [random.next(), random.next()].map(AtomicU64::new));
        Ok(Mapping { key, class, preserved })
    }

    fn map_address(&self, address: Ipv4Addr) -> Ipv4Addr {
        if address.is_unspecified() || address.is_broadcast() {
            return address;
        }
        let (bits, key) = (address.to_bits(), self.load_key());
        let turned = (0..32)
            .filter(|place| self.is_bit_flipped(key, bits, *place))
            .fold(0, |turned, place| turned | bit_mask(place));
        Ipv4Addr::from_bits(bits ^ turned)
    }

    fn load_key(&self) -> [u64; 2] {
        [self.key[0].load(Relaxed), self.key[1].load(Relaxed)]
    }

    /// Whether the bit at `place`, counted from the front, is flipped.
    fn is_bit_flipped(&self, key: [u64; 2], bits: u32, place: u32) -> bool {
        let before = !(u32::MAX.checked_shr(place).unwrap_or(0));
        let prefix = bits & before;
        let is_class = place < self.class && prefix == before;
        let begins_like = |byte: &u8| place < 8 && u32::from(*byte) << 24 & before == prefix;
        if is_class || self.preserved.iter().any(begins_like) {
            return false;
        }
        let mut hasher = DefaultHasher::new();
        (key, prefix, place).hash(&mut hasher);
        hasher.finish() & 1 == 1
    }

    /// Replaces both addresses in the first bytes of a header, and corrects its checksum.
    fn replace_addresses(&self, header: &mut [u8; Ipv4::<&[u8]>::MIN_LEN]) {
        let word = |bytes: &[u8]| bytes.iter().fold(0, |word, byte| word << 8 | u32::from(*byte));
        let mut sum = word(&header[CHECKSUM]) as u16;
        for place in [SRC, DST] {
            let old = word(&header[place.clone()]);
            let new = self.map_address(Ipv4Addr::from_bits(old)).to_bits();
            header[place].copy_from_slice(&new.to_be_bytes());
            sum = checksum::update_u32(sum, old, new);
        }
        header[CHECKSUM].copy_from_slice(&sum.to_be_bytes());
    }

    fn anonymize_packet(&self, packet: &mut Packet) -> Result<(), ()> {
        let bytes = packet.network_mut().ok_or(())?;
        let header = Ipv4::new(&*bytes).map_err(drop)?;
        let (header_len, offset) = (header.header_len(), header.fragment_offset());
        if header.protocol() == IpProtocol::ICMP {
            match offset {
                0 => self.anonymize_quote(&mut bytes[header_len..])?,
                // Whether these are addresses of a quoted header the first fragment knows.
                _ if offset < ICMP_HEADER + DST.end => return Err(()),
                _ => {}
            }
        }
        self.replace_addresses(bytes.first_chunk_mut().ok_or(())?);
        Ok(())
    }

    /// Replaces the addresses in the packet that an ICMP error quotes. Other bytes of its header don't
    /// matter: a capture may have cut off its options, and the bytes where addresses are must not be
    /// disclosed. Returns an error, with nothing changed, for a quote that holds only some of the addresses.
    fn anonymize_quote(&self, message: &mut [u8]) -> Result<(), ()> {
        let Ok(icmp) = Icmp::new(&*message) else { return Ok(()) };
        if !has_quoted_packet(icmp.icmp_type()) {
            return Ok(());
        }
        let quote = &mut message[ICMP_HEADER..];
        if quote.len() <= SRC.start {
            return Ok(());
        }
        let header = quote.first_chunk_mut().filter(|header: &&mut [u8; 20]| header[0] >> 4 == 4).ok_or(())?;
        // With the quoted header's checksum corrected the sum over the message is what it was.
        self.replace_addresses(header);
        Ok(())
    }
}

fn bit_mask(place: u32) -> u32 {
    1 << (31 - place)
}

/// Whether messages of this type quote the start of a packet.
fn has_quoted_packet(kind: IcmpType) -> bool {
    kind.is_error()
}

impl Element for AnonymizeIpAddr {
    fn push(&mut self, _input: usize, batch: &mut Batch, cx: &mut Context<'_>) {
        let anonymize = |packet: &mut Packet| self.0.anonymize_packet(packet);
        send_each(batch, cx, anonymize, |(), packet, cx| {
            cx.send_or_discard(1, packet, DropReason::Malformed)
        });
    }

    fn take_state(&mut self, old: &mut dyn Any, _: &mut Context<'_>) {
        if let Some(old) = old.downcast_ref::<AnonymizeIpAddr>() {
            let both = self.0.key.iter().zip(old.0.load_key());
            both.for_each(|(key, old)| key.store(old, Relaxed));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::survives_anything;
    use artery_engine::Bench;
    use artery_wire::build::{Ip4, ip4};

    fn mapping(class: u32, preserved: &[u8]) -> Mapping {
        Mapping { key: Arc::new([7, 9].map(AtomicU64::new)), class, preserved: preserved.to_vec() }
    }
    /// How many bits from the front two addresses agree in.
    fn common(one: Ipv4Addr, other: Ipv4Addr) -> u32 {
        (one.to_bits() ^ other.to_bits()).leading_zeros()
    }
    fn addresses() -> Vec<Ipv4Addr> {
        let numbers = (1..200_u32).map(|n| n.wrapping_mul(0x9e37_79b9));
        let near = (0..32).map(|place| 0x0a01_0203 ^ 1 << place);
        numbers.chain(near).map(Ipv4Addr::from_bits).collect()
    }
    fn push(bench: &mut Bench, packet: Ip4) -> Packet {
        let mut packet = bench.packet(packet.bytes());
        packet.set_headers(0, 20);
        bench.push_packets(0, [packet]);
        bench.next_sent(0).unwrap()
    }

    #[test]
    fn addresses_agree_in_as_many_bits_as_before() {
        let mapping = mapping(0, &[]);
        let mut changed = 0;
        for one in addresses() {
            changed += usize::from(mapping.map_address(one) != one);
            for other in addresses() {
                assert_eq!(common(mapping.map_address(one), mapping.map_address(other)), common(one, other));
            }
        }
        assert!(changed > 220, "{changed}");
    }

    #[test]
    fn keys_make_different_mappings() {
        let other = Mapping { key: Arc::new([8, 9].map(AtomicU64::new)), ..mapping(0, &[]) };
        let same = addresses()
            .into_iter()
            .filter(|a| mapping(0, &[]).map_address(*a) == other.map_address(*a))
            .count();
        assert!(same < 10, "{same}");
    }

    #[test]
    fn special_addresses_stay() {
        for address in [Ipv4Addr::UNSPECIFIED, Ipv4Addr::BROADCAST] {
            assert_eq!(mapping(0, &[]).map_address(address), address);
        }
    }

    #[test]
    fn classes_and_networks_stay_when_told() {
        let (by_class, by_network) = (mapping(4, &[]), mapping(0, &[18, 200]));
        for address in addresses() {
            let ones = |address: Ipv4Addr| address.to_bits().leading_ones().min(4);
            assert_eq!(ones(by_class.map_address(address)), ones(address));
            for network in [18, 200] {
                let inside = |address: Ipv4Addr| address.octets()[0] == network;
                assert_eq!(inside(by_network.map_address(address)), inside(address));
            }
        }
    }

    #[test]
    fn headers_stay_right() {
        let mut bench = Bench::new(&CLASS, "PRESERVE_8 10");
        let first = push(&mut bench, ip4().src("10.1.2.3").dst("192.0.2.1").raw(99, "x"));
        let second = push(&mut bench, ip4().src("192.0.2.1").dst("10.1.2.3").raw(99, "x"));
        let [first, second] = [&first, &second].map(|packet| Ipv4::new(packet.data()).unwrap());
        assert!(first.checksum_is_valid() && second.checksum_is_valid());
        assert_eq!((first.src(), first.dst()), (second.dst(), second.src()));
        assert_eq!(first.src().octets()[0], 10);
        assert_ne!((first.src().octets(), first.dst().octets()), ([10, 1, 2, 3], [192, 0, 2, 1]));
    }

    #[test]
    fn the_quote_of_an_error_is_anonymized_too() {
        let mut bench = Bench::new(&CLASS, "");
        let lost = ip4().src("10.1.2.3").dst("192.0.2.1").udp(1, 2);
        let known = push(&mut bench, ip4().src("10.1.2.3").dst("192.0.2.1").raw(99, "x"));
        let error = push(&mut bench, ip4().icmp(IcmpType(3), 1, [0; 4]).payload(lost.bytes()));
        let quoted = Ipv4::new(&error.data()[28..]).unwrap();
        let known = Ipv4::new(known.data()).unwrap();
        assert_eq!((quoted.src(), quoted.dst()), (known.src(), known.dst()));
        assert!(quoted.checksum_is_valid());
        assert!(Icmp::new(&error.data()[20..]).unwrap().checksum_is_valid());
    }

    #[test]
    fn a_quote_that_was_cut_off_tells_no_address() {
        let mut bench = Bench::new(&CLASS, "");
        let lost = ip4().src("10.1.2.3").dst("192.0.2.1").udp(1, 2).bytes();
        let known = push(&mut bench, ip4().src("10.1.2.3").dst("192.0.2.1").raw(99, "x"));
        for first in [0x4f, 0x41] {
            let quote = [&[first], &lost[1..26]].concat();
            let error = push(&mut bench, ip4().icmp(IcmpType(11), 0, [0; 4]).payload(quote));
            assert_eq!(error.data()[40..48], known.data()[12..20]);
            assert!(Icmp::new(&error.data()[20..]).unwrap().checksum_is_valid());
        }
        for (length, first, output) in [(12, 0x45, 0), (13, 0x45, 1), (19, 0x45, 1), (28, 0x65, 1)] {
            let quote = [&[first], &lost[1..length]].concat();
            let error = ip4().icmp(IcmpType(3), 1, [0; 4]).payload(quote).bytes();
            bench.push_with(0, &error, |packet| packet.set_headers(0, 20));
            let left = bench.next_sent(output).unwrap();
            assert_eq!(left.data() == error, output == 1, "{length}");
        }
    }

    #[test]
    fn fragments_that_may_hold_a_quoted_address_leave_by_output_1() {
        let mut bench = Bench::new(&CLASS, "");
        for (offset, output) in [(1, 1), (3, 1), (4, 0)] {
            let mut packet = bench.packet(ip4().src("10.1.2.3").raw(1, [7; 30]).bytes());
            packet.set_headers(0, 20);
            Ipv4::new(packet.data_mut()).unwrap().set_fragment_field(offset);
            bench.push_packets(0, [packet]);
            assert!(bench.next_sent(output).is_some(), "{offset}");
        }
    }

    #[test]
    fn an_heir_has_the_same_mapping() {
        let (mut old, mut new) = (Bench::new(&CLASS, ""), Bench::new(&CLASS, ""));
        let packet = || ip4().src("10.1.2.3").dst("192.0.2.1").raw(99, "x");
        let known = push(&mut old, packet());
        assert_ne!(push(&mut new, packet()).data(), known.data());
        new.take_state(&mut old);
        assert_eq!(push(&mut new, packet()).data(), known.data());
    }

    #[test]
    fn other_packets_leave_by_output_1() {
        let mut bench = Bench::new(&CLASS, "");
        bench.push(0, ip4().udp(1, 2).bytes());
        bench.expect(1, ip4().udp(1, 2).bytes());
        survives_anything(&CLASS, "CLASS 4", 2);
    }

    #[test]
    fn refuses_what_is_no_class_and_no_network() {
        assert_eq!(Bench::config_error(&CLASS, "CLASS 33"), "CLASS must be between 0 and 32");
        assert_eq!(Bench::config_error(&CLASS, "PRESERVE_8 18 256"), "PRESERVE_8: parse error");
        Bench::new(&CLASS, "CLASS 99, SEED true");
    }
}
