//! Where a packet's IP header is: at its network header, or at the start of data when none is marked.
use artery_engine::{DropReason, Packet};
use artery_wire::{IpProtocol, Ipv4, Malformed, checksum};
use std::net::Ipv4Addr;

/// The bytes from the IP header on.
#[inline]
pub(crate) fn bytes(packet: &Packet) -> &[u8] {
    if packet.network_offset().is_some() { packet.network().unwrap_or(&[]) } else { packet.data() }
}

/// The bytes from the IP header on, to change.
#[inline]
pub(crate) fn bytes_mut(packet: &mut Packet) -> &mut [u8] {
    if packet.network_offset().is_some() {
        packet.network_mut().unwrap_or(&mut [])
    } else {
        packet.data_mut()
    }
}

/// The IP header and what follows.
#[inline]
pub(crate) fn ip(packet: &Packet) -> Result<Ipv4<&[u8]>, Malformed> {
    Ipv4::new(bytes(packet))
}

/// The IP header and what follows, to change.
#[inline]
pub(crate) fn ip_mut(packet: &mut Packet) -> Result<Ipv4<&mut [u8]>, Malformed> {
    Ipv4::new(bytes_mut(packet))
}

/// Whether the transport checksum behind an IP header of `header_len` bytes is still to be computed: its
/// field holds the sum of the pseudo-header.
#[inline]
pub(crate) fn needs_checksum(packet: &Packet, header_len: usize) -> bool {
    let offset = packet.network_offset().map_or(Some(0), |offset| usize::try_from(offset).ok());
    packet.has_offload() && offset.is_some_and(|offset| packet.needs_checksum_at(offset + header_len))
}

/// Why a packet without the header that should be there ends.
pub(crate) fn drop_reason(malformed: Malformed) -> DropReason {
    if malformed == Malformed::Truncated { DropReason::TooShort } else { DropReason::Malformed }
}

/// Sets where the IP header and the transport header start.
#[inline]
pub(crate) fn mark_header(packet: &mut Packet, offset: usize, header_len: usize) {
    packet.set_headers(offset, header_len);
}

/// Sets the type of service and corrects the header checksum (RFC 1624).
#[inline]
pub(crate) fn change_tos(header: &mut Ipv4<&mut [u8]>, tos: u8) {
    let first = u16::from_be_bytes([header.version() << 4 | header.ihl(), 0]);
    let sum = checksum::update(header.checksum(), first | u16::from(header.tos()), first | u16::from(tos));
    header.set_tos(tos);
    header.set_checksum(sum);
}

/// The sum of the pseudo-header of a packet whose upper layer has `length` bytes.
#[inline]
pub(crate) fn pseudo_header_sum<T: AsRef<[u8]>>(ip: &Ipv4<T>, protocol: IpProtocol, length: usize) -> u16 {
    checksum::pseudo_v4(ip.src(), ip.dst(), protocol, length as u16)
}

/// Writes an IP header without options before data: `length` counts it.
pub(crate) struct Fields {
    pub(crate) protocol: IpProtocol,
    pub(crate) src: Ipv4Addr,
    pub(crate) dst: Ipv4Addr,
    pub(crate) tos: u8,
    pub(crate) ttl: u8,
    pub(crate) dont_fragment: bool,
}

impl Fields {
    /// Adds a header before the packet's data, marks it, and sets the destination annotation.
    pub(crate) fn prepend_header(&self, packet: &mut Packet, id: u16) -> Result<(), DropReason> {
        let length = u16::try_from(packet.len() + Ipv4::<&[u8]>::MIN_LEN).map_err(|_| DropReason::TooLong)?;
        let bytes = packet.prepend(Ipv4::<&[u8]>::MIN_LEN).map_err(|_| DropReason::NoRoom)?;
        let mut header = Ipv4::init(bytes).map_err(drop_reason)?;
        header.set_tos(self.tos);
        header.set_total_length(length);
        header.set_id(id);
        header.set_fragment(self.dont_fragment, false, 0);
        header.set_ttl(self.ttl);
        header.set_protocol(self.protocol);
        header.set_src(self.src);
        header.set_dst(self.dst);
        header.fill_checksum();
        mark_header(packet, 0, Ipv4::<&[u8]>::MIN_LEN);
        packet.set_dst_ip(self.dst);
        Ok(())
    }
}

/// What every element that reads headers must survive, and what the checksums of its output must be.
#[cfg(test)]
pub(crate) mod testing {
    use super::*;
    use artery_engine::{Bench, Class};
    use artery_wire::build::{icmp_echo, ip4};

    pub(crate) use crate::random::Random;

    /// Random bytes, as payload.
    pub(crate) fn noise(random: &mut Random, length: usize) -> Vec<u8> {
        (0..length).map(|_| random.next() as u8).collect()
    }
    fn damaged(random: &mut Random, bytes: &[u8]) -> Vec<u8> {
        let mut bytes = bytes.to_vec();
        if !bytes.is_empty() {
            let at = random.below(bytes.len());
            bytes[at] ^= 1 << random.below(8);
        }
        bytes
    }

    /// Packets of several kinds, well-formed.
    pub(crate) fn samples() -> Vec<Vec<u8>> {
        vec![
            ip4().udp(1, 53).payload([7; 30]).bytes(),
            ip4().tcp(1, 80).payload([7; 31]).bytes(),
            ip4().options([7, 7, 4, 0, 0, 0, 0]).tcp(1, 80).bytes(),
            ip4().options([68, 12, 5, 0x01, 0, 0, 0, 0, 0, 0, 0, 0]).udp(1, 80).bytes(),
            ip4().options([131, 7, 8, 1, 2, 3, 4]).udp(1, 80).payload([1; 100]).bytes(),
            icmp_echo("1.0.0.1", "1.0.0.2", 5, 6).payload([9; 56]).bytes(),
            ip4().fragment(64, true).raw(17, [3; 24]).bytes(),
            ip4().raw(200, [3; 24]).bytes(),
        ]
    }

    /// Sends complete, truncated, damaged and random packets, with valid and invalid marks; none may panic,
    /// and each must leave or be counted.
    #[track_caller]
    pub(crate) fn survives_anything(class: &'static Class, config: &str, outputs: usize) {
        let seed = 0x9e37_79b9_7f4a_7c15;
        println!("seed {seed:#x}");
        let mut random = Random(seed);
        let mut bench = Bench::setup(class, config).outputs(outputs).build().unwrap();
        let (mut sent, mut left) = (0, 0);
        for sample in samples() {
            for len in 0..=sample.len() {
                for bytes in
                    [sample[..len].to_vec(), damaged(&mut random, &sample[..len]), noise(&mut random, len)]
                {
                    let packet = marked_somewhere(bench.packet(&bytes), &mut random);
                    bench.push_packets(0, [packet]);
                    sent += 1;
                    // fragments of one packet count as one
                    left +=
                        (0..outputs).filter(|output| !bench.drain_sent(*output).is_empty()).count() as u64;
                    assert_eq!(left + bench.drops().total(), sent, "{bytes:02x?}");
                }
            }
        }
    }

    fn marked_somewhere(mut packet: Packet, random: &mut Random) -> Packet {
        match random.below(4) {
            0 => {}
            1 => mark_header(&mut packet, 0, 20),
            2 => mark_header(&mut packet, random.below(80), random.below(80)),
            _ => {
                mark_header(&mut packet, 0, 20);
                let most = random.below(25).min(packet.len());
                packet.strip(most).expect("no more than there is");
            }
        }
        packet.set_annotation(0, [random.next() as u8; 4]);
        packet.set_annotation(16, random.next().to_le_bytes());
        packet
    }
}
