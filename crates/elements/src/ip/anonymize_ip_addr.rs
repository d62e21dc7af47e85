use super::address::List;
use super::each::send_each;
use super::ip_header;
use crate::chance::Random;
use artery_engine::{Arg, ArgError, Args, Batch, Class, Context, DropReason, Element, Packet};
use artery_wire::{Icmp, IcmpType, IpProtocol, Ipv4, checksum};
use std::hash::{DefaultHasher, Hash as _, Hasher as _};
use std::net::Ipv4Addr;
use std::sync::Arc;

pub static CLASS: Class = Class {
    name: "AnonymizeIPAddr",
    group: "ip",
    summary: "replaces addresses so that prefixes stay together",
    manual: "
Expects marked IP packets, and replaces source and destination by other addresses: the same one for the same address until the
router stops, and such that two addresses that agree in their first bits still agree in just as many. 0.0.0.0 and
255.255.255.255 stay. The header's checksum is corrected; those of TCP and UDP, which tell of the old addresses, are not. In the packet that
an ICMP error quotes both addresses are replaced, too, and the ICMP checksum is corrected.

CLASS N keeps the first N bits as far as they are ones, so that with 4 an address of class A, B, C or D stays in its class; 99 means
32. PRESERVE_8 keeps the first byte of addresses that begin with one of these numbers. SEED is accepted and
has no effect; RandomSeed makes the mapping repeatable.

Packets that are no marked IPv4 packets leave by output 1, or are dropped when there is none.",
    example: "FromDump(trace.pcap, FORCE_IP true) -> AnonymizeIPAddr(CLASS 4) -> ToDump(anonymous.pcap);",
    ports: "1/1-2",
    processing: "a/ah",
    args: &[
        Arg::keyword("CLASS", "0 to 32", "0", "how many leading ones stay"),
        Arg::keyword("PRESERVE_8", "numbers from 0 to 255", "", "first bytes that stay"),
        Arg::keyword("SEED", "bool", "false", "without effect"),
    ],
    per_worker: true,
    finished: true,
    build: |args| Ok(Box::new(AnonymizeIpAddr(Mapping::new(args)?))),
    ..Class::DEFAULT
};

struct AnonymizeIpAddr(Mapping);

/// Which address stands for which: bit by bit, whether it is turned over depends on the bits before it alone. So
/// addresses differ first where they did before, and nothing need be remembered.
struct Mapping {
    /// What nobody outside knows.
    key: Arc<[u64; 2]>,
    /// How many leading ones stay.
    class: u32,
    /// First bytes that stay.
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
        let mut random = Random::new(args);
        let key = args.shared(|| [random.wide(), random.wide()]);
        Ok(Mapping { key, class, preserved })
    }

    fn map(&self, address: Ipv4Addr) -> Ipv4Addr {
        if address.is_unspecified() || address.is_broadcast() {
            return address;
        }
        let bits = address.to_bits();
        let turned =
            (0..32).filter(|place| self.turns(bits, *place)).fold(0, |turned, place| turned | bit(place));
        Ipv4Addr::from_bits(bits ^ turned)
    }

    /// Whether the bit at `place`, counted from the front, is turned over.
    fn turns(&self, bits: u32, place: u32) -> bool {
        let before = !(u32::MAX.checked_shr(place).unwrap_or(0));
        let prefix = bits & before;
        let is_class = place < self.class && prefix == before;
        let begins_like = |byte: &u8| place < 8 && u32::from(*byte) << 24 & before == prefix;
        if is_class || self.preserved.iter().any(begins_like) {
            return false;
        }
        let mut hasher = DefaultHasher::new();
        (*self.key, prefix, place).hash(&mut hasher);
        hasher.finish() & 1 == 1
    }

    /// Replaces both addresses of a header, and says by which checksums over them change.
    fn replace(&self, header: &mut Ipv4<&mut [u8]>, correct: &mut dyn FnMut(u32, u32)) {
        let (src, dst) = (header.src(), header.dst());
        let (new_src, new_dst) = (self.map(src), self.map(dst));
        header.set_src(new_src);
        header.set_dst(new_dst);
        correct(src.to_bits(), new_src.to_bits());
        correct(dst.to_bits(), new_dst.to_bits());
    }

    fn anonymize(&self, packet: &mut Packet) -> Result<(), ()> {
        let bytes = packet.network_mut().ok_or(())?;
        let mut header = Ipv4::new(bytes).map_err(drop)?;
        let mut sum = header.checksum();
        self.replace(&mut header, &mut |old, new| sum = checksum::update_u32(sum, old, new));
        header.set_checksum(sum);
        if header.protocol() == IpProtocol::ICMP && header.fragment_offset() == 0 {
            let header_len = header.header_len();
            self.anonymize_quote(ip_header::bytes_mut(packet).get_mut(header_len..).unwrap_or(&mut []));
        }
        Ok(())
    }

    /// Replaces the addresses in the packet that an ICMP error quotes.
    fn anonymize_quote(&self, message: &mut [u8]) {
        const HEADER: usize = Icmp::<&[u8]>::LEN;
        let Ok(icmp) = Icmp::new(&*message) else { return };
        let (kind, mut sum) = (icmp.icmp_type(), icmp.checksum());
        if !quotes(kind) {
            return;
        }
        let Ok(mut header) = Ipv4::new(&mut message[HEADER..]) else { return };
        self.replace(&mut header, &mut |old, new| sum = checksum::update_u32(sum, old, new));
        if let Ok(mut icmp) = Icmp::new(message) {
            icmp.set_checksum(sum);
        }
    }
}

fn bit(place: u32) -> u32 {
    1 << (31 - place)
}

/// Whether a message of this type holds the start of a packet.
fn quotes(kind: IcmpType) -> bool {
    kind.is_error()
}

impl Element for AnonymizeIpAddr {
    fn push(&mut self, _input: usize, batch: &mut Batch, cx: &mut Context<'_>) {
        let anonymize = |packet: &mut Packet| self.0.anonymize(packet);
        send_each(batch, cx, anonymize, |(), packet, cx| {
            cx.send_or_discard(1, packet, DropReason::Malformed)
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ip::ip_header::testing::survives_anything;
    use artery_engine::Bench;
    use artery_wire::build::{Ip4, ip4};

    fn mapping(class: u32, preserved: &[u8]) -> Mapping {
        Mapping { key: Arc::new([7, 9]), class, preserved: preserved.to_vec() }
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
        bench.take(0).unwrap()
    }

    #[test]
    fn addresses_agree_in_as_many_bits_as_before() {
        let mapping = mapping(0, &[]);
        let mut changed = 0;
        for one in addresses() {
            changed += usize::from(mapping.map(one) != one);
            for other in addresses() {
                assert_eq!(common(mapping.map(one), mapping.map(other)), common(one, other));
            }
        }
        assert!(changed > 220, "{changed}");
    }

    #[test]
    fn keys_make_different_mappings() {
        let other = Mapping { key: Arc::new([8, 9]), ..mapping(0, &[]) };
        let same = addresses().into_iter().filter(|a| mapping(0, &[]).map(*a) == other.map(*a)).count();
        assert!(same < 10, "{same}");
    }

    #[test]
    fn special_addresses_stay() {
        for address in [Ipv4Addr::UNSPECIFIED, Ipv4Addr::BROADCAST] {
            assert_eq!(mapping(0, &[]).map(address), address);
        }
    }

    #[test]
    fn classes_and_networks_stay_when_told() {
        let (by_class, by_network) = (mapping(4, &[]), mapping(0, &[18, 200]));
        for address in addresses() {
            let ones = |address: Ipv4Addr| address.to_bits().leading_ones().min(4);
            assert_eq!(ones(by_class.map(address)), ones(address));
            for network in [18, 200] {
                let inside = |address: Ipv4Addr| address.octets()[0] == network;
                assert_eq!(inside(by_network.map(address)), inside(address));
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
        assert!(Icmp::new(&error.data()[20..]).unwrap().checksum_is_valid());
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
        assert_eq!(Bench::refuses(&CLASS, "CLASS 33"), "CLASS must be between 0 and 32");
        assert_eq!(Bench::refuses(&CLASS, "PRESERVE_8 18 256"), "PRESERVE_8: parse error");
        Bench::new(&CLASS, "CLASS 99, SEED true");
    }
}
