//! What tells flows apart, how it is read from a packet, and its hash.
use artery_wire::{Ip6Headers, IpProtocol, Ipv4, Ipv6, Tcp, TcpFlags};
use std::fmt;
use std::hash::{BuildHasher, RandomState};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

/// Which packets are one flow.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Scope {
    /// Those of the same addresses, protocol and ports: one direction of a connection.
    #[default]
    Connection,
    /// Those to the same address.
    Destination,
}

/// What a packet shows to the flow that it belongs to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PacketInfo {
    /// The protocol; 0 where flows are destinations.
    pub protocol: IpProtocol,
    /// The control bits of a segment of TCP; none otherwise.
    pub flags: TcpFlags,
    /// The length, from the IP header on.
    pub bytes: u32,
}

impl Default for PacketInfo {
    /// A packet of no protocol and no length.
    fn default() -> PacketInfo {
        PacketInfo { protocol: IpProtocol(0), flags: TcpFlags::default(), bytes: 0 }
    }
}

/// The key of a packet's flow, and what the packet shows to it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct KeyedPacket<K> {
    /// What tells the flow from others.
    pub key: K,
    /// What the packet shows.
    pub info: PacketInfo,
}

/// Secret words on which a hash depends.
#[derive(Clone, Copy)]
pub struct Seed([u64; 7]);

impl Seed {
    /// A seed that follows from two words: anyone who knows them can make keys collide.
    pub fn new(words: [u64; 2]) -> Seed {
        let mut state = words[0];
        Seed(std::array::from_fn(|n| {
            state = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
            let word = scramble_word(state) ^ words[1].rotate_left(9 * n as u32);
            scramble_word(word) | 1
        }))
    }

    /// A seed that the system chose.
    pub fn random() -> Seed {
        Seed::new([0_u8, 1].map(|word| RandomState::new().hash_one(word)))
    }
}

impl fmt::Debug for Seed {
    /// Prints the type only, so that the secret does not reach logs.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Seed")
    }
}

/// A permutation of words that spreads every bit.
fn scramble_word(word: u64) -> u64 {
    let word = (word ^ word >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let word = (word ^ word >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
    word ^ word >> 31
}

/// Both halves of a product, one over the other.
#[inline(always)]
fn fold_product(a: u64, b: u64) -> u64 {
    let product = u128::from(a) * u128::from(b);
    product as u64 ^ (product >> 64) as u64
}

/// What tells a flow from others: addresses, ports, protocol, and the space that they mean something in.
pub trait FlowKey: Copy + Eq + Default + fmt::Debug + Send + Sync + 'static {
    /// Length in words of 64 bits: 2 or 5.
    const WORDS: usize;

    /// Word `n`, below [`WORDS`](Self::WORDS).
    fn nth_word(&self, n: usize) -> u64;

    /// The key of such words.
    fn from_words(word: impl Fn(usize) -> u64) -> Self;

    /// The key and the looks of a packet that begins with its IP header.
    ///
    /// There is none for what should not be remembered: malformed packets, those from an address to itself or
    /// with a loopback or unspecified one; and where flows are connections, fragments, which have no ports,
    /// protocols without ports, and ports of zero.
    fn parse_packet(packet: &[u8], scope: Scope, space: u8) -> Option<KeyedPacket<Self>>;

    /// The same of most packets where flows are connections, for callers that know already that the IP header
    /// is sound and, in IPv4, without options, that the packet is as long as it says, and that its addresses
    /// are valid for a host. Of others it says nothing: call [`parse_packet`](Self::parse_packet) then.
    fn of_sound(packet: &[u8], space: u8) -> Option<KeyedPacket<Self>>;

    /// The source and the destination.
    fn addresses(&self) -> [IpAddr; 2];

    /// The ports of the source and of the destination.
    fn ports(&self) -> [u16; 2];

    /// Transport protocol of the flow.
    fn protocol(&self) -> IpProtocol;

    /// The space, a number of the caller's.
    fn space(&self) -> u8;

    /// The key of the other direction.
    fn reversed(&self) -> Self;

    /// What the keys of all packets to an address have in common, or of those to a port of it or with a
    /// protocol. None if the address is of another family.
    fn destination_pattern(
        to: IpAddr,
        port: Option<u16>,
        protocol: Option<IpProtocol>,
    ) -> Option<Pattern<Self>>;

    /// A number that is spread evenly, whatever the keys, for anyone who does not know the seed.
    ///
    /// Each word is multiplied by a secret one together with what came before it, so that no word can be
    /// made to hide another.
    #[inline(always)]
    fn hash(&self, seed: &Seed) -> u64 {
        let mut state = seed.0[5];
        for n in 0..Self::WORDS {
            state = fold_product(state ^ self.nth_word(n), seed.0[n]);
        }
        fold_product(state ^ seed.0[5].rotate_left(32), seed.0[6])
    }
}

/// The key of a flow of IPv4.
#[derive(Clone, Copy, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Flow4([u64; 2]);

/// The key of a flow of IPv6.
#[derive(Clone, Copy, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Flow6([u64; 5]);

impl Flow4 {
    /// The key of such packets.
    #[inline]
    pub fn new(addresses: [Ipv4Addr; 2], ports: [u16; 2], protocol: IpProtocol, space: u8) -> Flow4 {
        let [src, dst] = addresses.map(|address| u64::from(address.to_bits()));
        Flow4([src << 32 | dst, pack_tail(ports, protocol, space)])
    }
}

impl Flow6 {
    /// The key of such packets.
    #[inline]
    pub fn new(addresses: [Ipv6Addr; 2], ports: [u16; 2], protocol: IpProtocol, space: u8) -> Flow6 {
        let [src, dst] = addresses.map(|address| address.to_bits());
        let halves = |bits: u128| [(bits >> 64) as u64, bits as u64];
        let ([a, b], [c, d]) = (halves(src), halves(dst));
        Flow6([a, b, c, d, pack_tail(ports, protocol, space)])
    }
}

/// What some keys have in common.
#[derive(Clone, Copy, Debug)]
pub struct Pattern<K> {
    mask: K,
    value: K,
}

impl<K: FlowKey> Pattern<K> {
    /// What no key is.
    pub fn match_none() -> Pattern<K> {
        Pattern { mask: K::default(), value: K::from_words(|_| 1) }
    }

    /// Whether a key is one of them.
    #[inline(always)]
    pub fn matches_key(&self, key: &K) -> bool {
        let unlike = |n| key.nth_word(n) & self.mask.nth_word(n) ^ self.value.nth_word(n);
        (0..K::WORDS).fold(0, |all, n| all | unlike(n)) == 0
    }
}

/// The last words of the mask and the value of a pattern.
fn tail_pattern(port: Option<u16>, protocol: Option<IpProtocol>) -> [u64; 2] {
    let mask = pack_tail([0, port.map_or(0, |_| u16::MAX)], IpProtocol(protocol.map_or(0, |_| u8::MAX)), 0);
    [mask, pack_tail([0, port.unwrap_or(0)], protocol.unwrap_or(IpProtocol(0)), 0)]
}

/// The last word of a key.
#[inline(always)]
fn pack_tail(ports: [u16; 2], protocol: IpProtocol, space: u8) -> u64 {
    let [src, dst] = ports.map(u64::from);
    src << 48 | dst << 32 | u64::from(protocol.0) << 8 | u64::from(space)
}

/// The ports of a last word.
fn tail_ports(tail: u64) -> [u16; 2] {
    [(tail >> 48) as u16, (tail >> 32) as u16]
}

/// A last word with its ports exchanged.
fn reverse_tail(tail: u64) -> u64 {
    let [src, dst] = tail_ports(tail);
    u64::from(dst) << 48 | u64::from(src) << 32 | tail & 0xffff_ffff
}

impl FlowKey for Flow4 {
    const WORDS: usize = 2;

    #[inline(always)]
    fn nth_word(&self, n: usize) -> u64 {
        self.0[n]
    }

    #[inline(always)]
    fn from_words(word: impl Fn(usize) -> u64) -> Flow4 {
        Flow4([word(0), word(1)])
    }

    #[inline(always)]
    fn parse_packet(packet: &[u8], scope: Scope, space: u8) -> Option<KeyedPacket<Flow4>> {
        let plain = if scope == Scope::Connection { parse_fast(packet, space) } else { None };
        plain.or_else(|| of_any(packet, scope, space))
    }

    #[inline(always)]
    fn of_sound(packet: &[u8], space: u8) -> Option<KeyedPacket<Flow4>> {
        of_sound(packet, space)
    }

    fn addresses(&self) -> [IpAddr; 2] {
        [self.0[0] >> 32, self.0[0]].map(|bits| Ipv4Addr::from_bits(bits as u32).into())
    }

    fn ports(&self) -> [u16; 2] {
        tail_ports(self.0[1])
    }

    fn protocol(&self) -> IpProtocol {
        IpProtocol((self.0[1] >> 8) as u8)
    }

    fn space(&self) -> u8 {
        self.0[1] as u8
    }

    fn reversed(&self) -> Flow4 {
        Flow4([self.0[0].rotate_left(32), reverse_tail(self.0[1])])
    }

    fn destination_pattern(
        to: IpAddr,
        port: Option<u16>,
        protocol: Option<IpProtocol>,
    ) -> Option<Pattern<Flow4>> {
        let IpAddr::V4(to) = to else { return None };
        let [mask, value] = tail_pattern(port, protocol);
        let (mask, value) = (Flow4([u32::MAX.into(), mask]), Flow4([to.to_bits().into(), value]));
        Some(Pattern { mask, value })
    }
}

/// Bytes of IPv4 and TCP headers without options.
const FAST_HEADERS_LEN: usize = 40;

/// What the first word of such a header has fixed: version, length, and that it is not a fragment.
const FIXED: u64 = u64::from_be_bytes([0xff, 0, 0, 0, 0, 0, 0x3f, 0xff]);
const WHOLE: u64 = u64::from_be_bytes([0x45, 0, 0, 0, 0, 0, 0, 0]);
/// What the word from identification on has of fragments alone.
const FRAGMENT: u64 = u64::from_le_bytes([0, 0, 0x3f, 0xff, 0, 0, 0, 0]);

/// The flow of most packets, read in few steps: of whole TCP and UDP packets without IP options, which are as
/// long as a TCP header at least. Of others it says nothing.
#[inline(always)]
fn parse_fast(packet: &[u8], space: u8) -> Option<KeyedPacket<Flow4>> {
    let head: &[u8; FAST_HEADERS_LEN] = packet.first_chunk()?;
    let word = |at: usize| head[at..].first_chunk().map_or(0, |word| u64::from_be_bytes(*word));
    let (first, ends, ports) = (word(0), word(12), word(20) >> 32);
    let length = usize::from((first >> 32) as u16);
    let (src, dst) = ((ends >> 32) as u32, ends as u32);
    let nobodys = |address: u32| address >> 24 == 127 || address == 0;
    if first & FIXED != WHOLE || length.wrapping_sub(FAST_HEADERS_LEN) > packet.len() - FAST_HEADERS_LEN {
        return None;
    }
    if ports >> 16 == 0 || ports as u16 == 0 || src == dst || nobodys(src) || nobodys(dst) {
        return None;
    }
    let protocol = IpProtocol(head[9]);
    let flags = match protocol {
        IpProtocol::UDP => TcpFlags::default(),
        IpProtocol::TCP => tcp_flags(head, length)?,
        _ => return None,
    };
    let key = Flow4([ends, ports << 32 | u64::from(protocol.0) << 8 | u64::from(space)]);
    Some(KeyedPacket { key, info: PacketInfo { protocol, flags, bytes: length as u32 } })
}

/// The same where it is known that the IP header is as it should be.
#[inline(always)]
fn of_sound(packet: &[u8], space: u8) -> Option<KeyedPacket<Flow4>> {
    let head: &[u8; FAST_HEADERS_LEN] = packet.first_chunk()?;
    let word = |at: usize| head[at..].first_chunk().map_or(0, |word| u64::from_le_bytes(*word));
    let length = u16::from_be_bytes([head[2], head[3]]);
    // The second word goes from identification to checksum.
    let (second, ends, ports) = (word(4), word(12).swap_bytes(), (word(20) as u32).swap_bytes());
    if second & FRAGMENT != 0 || usize::from(length) < FAST_HEADERS_LEN || (ends >> 32) as u32 == ends as u32
    {
        return None;
    }
    let protocol = IpProtocol((second >> 40) as u8);
    if ports >> 16 == 0 || ports as u16 == 0 || protocol != IpProtocol::UDP && protocol != IpProtocol::TCP {
        return None;
    }
    let flags = match protocol {
        IpProtocol::UDP => TcpFlags::default(),
        _ => tcp_flags(head, length.into())?,
    };
    let key = Flow4([ends, u64::from(ports) << 32 | u64::from(protocol.0) << 8 | u64::from(space)]);
    Some(KeyedPacket { key, info: PacketInfo { protocol, flags, bytes: length.into() } })
}

/// The control bits of a segment that begins a packet as long as that, if its header is whole.
#[inline(always)]
fn tcp_flags(head: &[u8; FAST_HEADERS_LEN], length: usize) -> Option<TcpFlags> {
    let offset = usize::from(head[32] >> 4) * 4;
    (offset >= 20 && 20 + offset <= length).then_some(TcpFlags(head[33]))
}

/// The flow of any packet.
fn of_any(packet: &[u8], scope: Scope, space: u8) -> Option<KeyedPacket<Flow4>> {
    let ip = Ipv4::new(packet).ok()?;
    let (src, dst, bytes) = (ip.src(), ip.dst(), u32::from(ip.total_length()));
    if src == dst || [src, dst].iter().any(|address| address.is_loopback() || address.is_unspecified()) {
        return None;
    }
    if scope == Scope::Destination {
        let key = Flow4::new([Ipv4Addr::UNSPECIFIED, dst], [0; 2], IpProtocol(0), space);
        return Some(KeyedPacket { key, info: PacketInfo { bytes, ..PacketInfo::default() } });
    }
    if ip.is_fragment() {
        return None;
    }
    let protocol = ip.protocol();
    let (ports, flags) = parse_upper(protocol, ip.payload())?;
    let key = Flow4::new([src, dst], ports, protocol, space);
    Some(KeyedPacket { key, info: PacketInfo { protocol, flags, bytes } })
}

impl FlowKey for Flow6 {
    const WORDS: usize = 5;

    #[inline(always)]
    fn nth_word(&self, n: usize) -> u64 {
        self.0[n]
    }

    #[inline(always)]
    fn from_words(word: impl Fn(usize) -> u64) -> Flow6 {
        Flow6(std::array::from_fn(word))
    }

    #[inline]
    fn of_sound(packet: &[u8], space: u8) -> Option<KeyedPacket<Flow6>> {
        Flow6::parse_packet(packet, Scope::Connection, space)
    }

    #[inline]
    fn parse_packet(packet: &[u8], scope: Scope, space: u8) -> Option<KeyedPacket<Flow6>> {
        let ip = Ipv6::new(packet).ok()?;
        let (src, dst) = (ip.src(), ip.dst());
        let bytes = u32::from(ip.payload_length()) + Ipv6::<&[u8]>::LEN as u32;
        if src == dst || [src, dst].iter().any(|address| address.is_loopback() || address.is_unspecified()) {
            return None;
        }
        if scope == Scope::Destination {
            let key = Flow6::new([Ipv6Addr::UNSPECIFIED, dst], [0; 2], IpProtocol(0), space);
            return Some(KeyedPacket { key, info: PacketInfo { bytes, ..PacketInfo::default() } });
        }
        let (protocol, payload) = match ip.next_header() {
            protocol if protocol.has_ports() => (protocol, ip.payload()),
            _ => behind_headers(packet)?,
        };
        let (ports, flags) = parse_upper(protocol, payload)?;
        let key = Flow6::new([src, dst], ports, protocol, space);
        Some(KeyedPacket { key, info: PacketInfo { protocol, flags, bytes } })
    }

    fn addresses(&self) -> [IpAddr; 2] {
        let address = |n: usize| Ipv6Addr::from_bits(u128::from(self.0[n]) << 64 | u128::from(self.0[n + 1]));
        [address(0).into(), address(2).into()]
    }

    fn ports(&self) -> [u16; 2] {
        tail_ports(self.0[4])
    }

    fn protocol(&self) -> IpProtocol {
        IpProtocol((self.0[4] >> 8) as u8)
    }

    fn space(&self) -> u8 {
        self.0[4] as u8
    }

    fn reversed(&self) -> Flow6 {
        let [a, b, c, d, tail] = self.0;
        Flow6([c, d, a, b, reverse_tail(tail)])
    }

    fn destination_pattern(
        to: IpAddr,
        port: Option<u16>,
        protocol: Option<IpProtocol>,
    ) -> Option<Pattern<Flow6>> {
        let IpAddr::V6(to) = to else { return None };
        let [mask, value] = tail_pattern(port, protocol);
        let [first, last] = [(to.to_bits() >> 64) as u64, to.to_bits() as u64];
        let (mask, value) = (Flow6([0, 0, u64::MAX, u64::MAX, mask]), Flow6([0, 0, first, last, value]));
        Some(Pattern { mask, value })
    }
}

/// The ports and the control bits that a payload begins with; none if there are no ports or one is zero.
#[inline]
fn parse_upper(protocol: IpProtocol, payload: &[u8]) -> Option<([u16; 2], TcpFlags)> {
    if protocol == IpProtocol::TCP {
        let tcp = Tcp::new(payload).ok()?;
        let ports = [tcp.src_port(), tcp.dst_port()];
        return (!ports.contains(&0)).then(|| (ports, tcp.flags()));
    }
    let [a, b, c, d] = *payload.first_chunk()?;
    let ports = [u16::from_be_bytes([a, b]), u16::from_be_bytes([c, d])];
    (protocol.has_ports() && !ports.contains(&0)).then(|| (ports, TcpFlags::default()))
}

/// The upper layer behind extension headers, if the packet is whole.
#[cold]
fn behind_headers(packet: &[u8]) -> Option<(IpProtocol, &[u8])> {
    let headers = Ip6Headers::parse_packet(packet).ok()?;
    let end = Ipv6::<&[u8]>::LEN + usize::from(Ipv6::new(packet).ok()?.payload_length());
    let payload = packet.get(headers.offset..end.min(packet.len()))?;
    headers.fragment.is_none().then_some((headers.protocol, payload))
}

/// Writes a key as `protocol source port > destination port`, with the space behind it.
fn write_key(key: &impl FlowKey, f: &mut fmt::Formatter<'_>) -> fmt::Result {
    let ([src, dst], [sport, dport]) = (key.addresses(), key.ports());
    write!(f, "{} {src} {sport} > {dst} {dport} in {}", key.protocol().0, key.space())
}

impl fmt::Debug for Flow4 {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write_key(self, f)
    }
}

impl fmt::Debug for Flow6 {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write_key(self, f)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(20_000))]
        #[test]
        fn a_plain_packet_is_read_as_any_other(
            mut packet in prop::collection::vec(any::<u8>(), 40..64),
            changes in prop::collection::vec((0usize..40, 0u8..8), 0..3),
            is_tcp: bool,
            length in 36u16..68,
        ) {
            packet[0] = 0x45;
            packet[2..4].copy_from_slice(&length.to_be_bytes());
            packet[6..8].fill(0);
            packet[9] = if is_tcp { 6 } else { 17 };
            packet[32] = 0x50;
            for (at, byte) in changes {
                packet[at] = byte;
            }
            if let Some(seen) = parse_fast(&packet, 3) {
                prop_assert_eq!(of_any(&packet, Scope::Connection, 3), Some(seen));
            }
            let length = usize::from(u16::from_be_bytes([packet[2], packet[3]]));
            let is_sound = packet[0] == 0x45 && (20..=packet.len()).contains(&length);
            if let Some(seen) = Flow4::of_sound(&packet, 3).filter(|_| is_sound) {
                let nobodys = |at: usize| packet[at] == 127 || packet[at..at + 4] == [0; 4];
                let expected = (!nobodys(12) && !nobodys(16)).then_some(seen);
                prop_assert_eq!(of_any(&packet, Scope::Connection, 3), expected);
            }
        }
    }

    #[test]
    fn a_pattern_has_what_goes_to_its_address_port_and_protocol() {
        fn check<K: FlowKey>(to: IpAddr, key: impl Fn([u16; 2], IpProtocol) -> K, elsewhere: K) {
            let has =
                |port, protocol, key| K::destination_pattern(to, port, protocol).unwrap().matches_key(&key);
            for (ports, protocol) in [([5, 80], IpProtocol::TCP), ([80, 5], IpProtocol::UDP)] {
                let key = key(ports, protocol);
                assert!(has(None, None, key) && has(Some(ports[1]), Some(protocol), key));
                assert!(!has(Some(ports[0]), None, key) && !has(None, Some(IpProtocol(1)), key));
                assert!(!has(None, None, elsewhere) && !has(None, None, key.reversed()));
                let none = Pattern::match_none();
                assert!(!none.matches_key(&key) && !none.matches_key(&K::default()));
            }
            assert!(K::destination_pattern("::".parse().unwrap(), None, None).is_some() == to.is_ipv6());
        }
        let four =
            |to: u32| move |ports, protocol| Flow4::new([[9; 4].into(), to.into()], ports, protocol, 0);
        check([192, 0, 2, 1].into(), four(0xc000_0201), four(0xc000_0200)([5, 80], IpProtocol::TCP));
        let six = |to: u128| move |ports, protocol| Flow6::new([9.into(), to.into()], ports, protocol, 0);
        check(Ipv6Addr::from_bits(1 << 64 | 7).into(), six(1 << 64 | 7), six(7)([5, 80], IpProtocol::TCP));
    }

    #[test]
    fn usual_packets_are_plain() {
        use artery_wire::build::ip4;
        let ip = || ip4().src("198.51.100.7").dst("192.0.2.1");
        for packet in [ip().tcp(5, 80).bytes(), ip().udp(5, 53).payload([0; 12]).bytes()] {
            assert!(parse_fast(&packet, 0).is_some());
            assert_eq!(parse_fast(&packet, 0), of_sound(&packet, 0));
            assert_eq!(parse_fast(&packet, 0), of_any(&packet, Scope::Connection, 0));
        }
    }
}
