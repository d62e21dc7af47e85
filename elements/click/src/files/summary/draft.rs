//! A packet being built: headers are created when the first field needs them.
use super::{has_ports, word};
use artery_engine::{Packet, Pool, Time, anno};
use artery_wire::{IpProtocol, checksum};
use std::net::Ipv4Addr;

pub(super) const TCP: u8 = 6;
pub(super) const UDP: u8 = 17;
pub(super) const ICMP: u8 = 1;
pub(super) const UDP_LITE: u8 = 136;
const DCCP: u8 = 33;
const IP_HEADER: usize = 20;
const LINK_HEADER: usize = 14;

/// Both ends of a flow, for packets whose line has none.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::files) struct FlowEnds {
    pub(in crate::files) src: (Ipv4Addr, u16),
    pub(in crate::files) dst: (Ipv4Addr, u16),
}

/// Defaults for the fields that a line lacks.
#[derive(Clone, Copy, Default)]
pub(in crate::files) struct Defaults {
    pub(in crate::files) protocol: u8,
    pub(in crate::files) ends: Option<FlowEnds>,
    /// Whether fragment offsets are in units of eight bytes, as in files of version 1.0.
    pub(in crate::files) old_offsets: bool,
}

/// The packet, from its first byte on, and its annotations.
#[derive(Default)]
pub(in crate::files) struct PacketDraft {
    pub(super) bytes: Vec<u8>,
    /// Bytes in front of the IP header.
    pub(super) link: usize,
    /// Offset of the transport header.
    pub(super) transport: usize,
    /// Whether the link header allows for an IP header.
    pub(super) may_be_ip: bool,
    /// The requested length of the packet with all headers; zero if there is none.
    pub(super) wanted: usize,
    /// Whether a field gave the header length, so that none is derived from other lengths.
    pub(super) has_ip_options: bool,
    pub(super) has_tcp_options: bool,
    pub(super) icmp_type: Option<u8>,
    pub(super) icmp_code: Option<u8>,
    pub(super) seconds: u64,
    pub(super) nanos: u32,
    pub(super) first: Option<Time>,
    pub(super) extra_packets: u32,
    pub(super) paint: u8,
    pub(super) aggregate: u32,
    pub(super) defaults: Defaults,
}

impl PacketDraft {
    pub(in crate::files) fn new(defaults: Defaults) -> PacketDraft {
        PacketDraft { may_be_ip: true, defaults, ..PacketDraft::default() }
    }

    /// Whether there is an IP header.
    pub(super) fn is_ip(&self) -> bool {
        self.may_be_ip && self.bytes.len() >= self.link + IP_HEADER
    }
    pub(super) fn protocol(&self) -> u8 {
        self.bytes[self.link + 9]
    }
    pub(super) fn ip_header_len(&self) -> usize {
        usize::from(self.bytes[self.link] & 0xf) * 4
    }
    fn ip_len(&self) -> usize {
        word(&self.bytes, self.link + 2).into()
    }
    pub(super) fn fragment_word(&self) -> u16 {
        word(&self.bytes, self.link + 6)
    }
    pub(super) fn is_first_fragment(&self) -> bool {
        self.fragment_word() & 0x1fff == 0
    }
    pub(super) fn transport_len(&self) -> usize {
        self.bytes.len().saturating_sub(self.transport)
    }

    /// Lengthens the packet until it has `len` bytes.
    pub(super) fn grow_to(&mut self, len: usize) {
        if self.bytes.len() < len {
            self.bytes.resize(len, 0);
        }
    }

    /// Overwrites bytes, as far as the packet reaches.
    pub(super) fn write_bytes(&mut self, at: usize, bytes: &[u8]) {
        let Some(room) = self.bytes.get_mut(at..) else { return };
        let n = room.len().min(bytes.len());
        room[..n].copy_from_slice(&bytes[..n]);
    }
    pub(super) fn write_ip(&mut self, at: usize, bytes: &[u8]) {
        self.write_bytes(self.link + at, bytes);
    }
    pub(super) fn write_transport(&mut self, at: usize, bytes: &[u8]) {
        self.write_bytes(self.transport + at, bytes);
    }

    /// Adds an Ethernet header, if there is none.
    pub(super) fn make_link(&mut self) {
        if self.link == 0 {
            self.bytes.splice(0..0, [0; LINK_HEADER]);
            (self.link, self.transport) = (LINK_HEADER, self.transport + LINK_HEADER);
            self.write_bytes(12, &[8, 0]);
        }
    }

    /// Adds an IP header if there is none; returns whether there is one now, of `protocol`
    /// unless that is zero.
    pub(super) fn make_ip(&mut self, protocol: u8) -> bool {
        if !self.may_be_ip {
            return false;
        }
        if !self.is_ip() {
            self.grow_to(self.link + IP_HEADER);
            self.transport = self.link + IP_HEADER;
            self.write_ip(0, &[0x45]);
            self.write_ip(8, &[100, self.defaults.protocol]);
            if let Some(ends) = self.defaults.ends {
                self.write_ip(12, &ends.src.0.octets());
                self.write_ip(16, &ends.dst.0.octets());
            }
        }
        protocol == 0 || self.protocol() == 0 || self.protocol() == protocol
    }

    /// Adds the header of the packet's protocol after its IP header; false in later
    /// fragments, which have none.
    pub(super) fn make_transport(&mut self) -> bool {
        if !self.is_first_fragment() {
            return false;
        }
        let mut len = match self.protocol() {
            _ if self.transport_len() >= 8 => return true,
            TCP => 20,
            UDP | UDP_LITE | ICMP => 8,
            DCCP => 12,
            _ => return true,
        };
        // A packet with a smaller requested length has less of it.
        if self.wanted > 0 && self.wanted < self.transport + len {
            len = self.wanted.saturating_sub(self.transport);
        }
        if self.transport_len() < len {
            let end = self.transport + len;
            self.grow_to(self.transport + len.max(4));
            if self.protocol() == TCP && len >= 13 {
                self.write_transport(12, &[5 << 4]);
            }
            if let Some(ends) = self.defaults.ends {
                self.write_transport(0, &ends.src.1.to_be_bytes());
                self.write_transport(2, &ends.dst.1.to_be_bytes());
            }
            self.bytes.truncate(end);
        }
        true
    }

    /// Whether the packet's protocol has ports, or may yet be one that has.
    pub(super) fn may_have_ports(&self) -> bool {
        self.protocol() == 0 || has_ports(self.protocol())
    }

    /// Offset of the payload.
    pub(super) fn payload_start(&self) -> usize {
        if !self.is_ip() {
            return 0;
        }
        let header = match self.protocol() {
            _ if !self.is_first_fragment() => 0,
            TCP => self.tcp_header_len().max(20),
            UDP | UDP_LITE => 8,
            _ => 0,
        };
        self.transport + header
    }

    /// Length of the TCP header, as far as it is known.
    pub(super) fn tcp_header_len(&self) -> usize {
        self.bytes.get(self.transport + 12).map_or(0, |byte| usize::from(byte >> 4) * 4)
    }

    /// Records a payload of `len` bytes. The rest of the packet's length is assigned to headers.
    pub(super) fn account_payload(&mut self, len: usize) {
        let start = self.payload_start();
        if !self.is_ip() || self.ip_len() == 0 && self.wanted == 0 {
            self.wanted = start + len;
            return;
        }
        let end = if self.ip_len() > 0 { self.ip_len() + self.link } else { self.wanted };
        let mut rest = end.saturating_sub(start + len);
        if self.protocol() == TCP
            && self.is_first_fragment()
            && !self.has_tcp_options
            && self.tcp_header_len() == 20
        {
            let more = (rest & !3).min(40);
            let at = self.transport + 20;
            self.bytes.splice(at.min(self.bytes.len()).., vec![0; more]);
            let words = (20 + more) / 4;
            self.write_transport(12, &[(words as u8) << 4]);
            rest -= more;
        }
        if rest > 0 && !self.has_ip_options && self.ip_header_len() == IP_HEADER {
            let more = (rest & !3).min(40);
            let at = self.link + IP_HEADER;
            self.bytes.splice(at..at, vec![0; more]);
            self.transport += more;
            self.write_ip(0, &[0x40 | ((IP_HEADER + more) / 4) as u8]);
        }
    }

    /// Sets what depends on all fields; then builds the packet, if there is memory for it.
    pub(in crate::files) fn build_packet(mut self, checksums: bool, pool: &'static Pool) -> Option<Packet> {
        if self.defaults.ends.is_some() {
            self.make_ip(0);
        }
        if self.is_ip() {
            self.make_transport();
            self.set_lengths(checksums);
        }
        let mut packet = pool.packet_from(&self.bytes)?;
        if self.link > 0 {
            packet.set_mac_header(0);
        }
        if self.is_ip() {
            packet.set_headers(self.link, self.transport - self.link);
            let dst: [u8; 4] = self.bytes[self.link + 16..][..4].try_into().expect("four bytes were taken");
            packet.set_dst_ip(dst.into());
        }
        self.set_annotations(&mut packet);
        Some(packet)
    }

    fn set_lengths(&mut self, checksums: bool) {
        if self.ip_len() == 0 {
            let len = match self.wanted {
                0 => self.bytes.len() - self.link,
                wanted => wanted.saturating_sub(self.link),
            };
            let len = if len == 0 { self.bytes.len() - self.link } else { len };
            self.write_ip(2, &(len.min(0xffff) as u16).to_be_bytes());
        }
        let len = self.ip_len();
        if self.protocol() == UDP && self.is_first_fragment() && word(&self.bytes, self.transport + 4) == 0 {
            let udp = len.saturating_sub(self.ip_header_len()) as u16;
            self.write_transport(4, &udp.to_be_bytes());
        }
        if checksums {
            self.grow_to(self.link + len);
            self.set_checksums();
        }
    }

    fn set_checksums(&mut self) {
        self.write_ip(10, &[0, 0]);
        let end = (self.link + self.ip_header_len()).min(self.bytes.len());
        let header = checksum::checksum(&self.bytes[self.link..end]);
        self.write_ip(10, &header.to_be_bytes());
        let at = match self.protocol() {
            _ if self.fragment_word() & 0x3fff != 0 => return,
            TCP => 16,
            UDP => 6,
            ICMP => 2,
            _ => return,
        };
        self.write_transport(at, &[0, 0]);
        let body = &self.bytes[self.transport.min(self.bytes.len())..];
        let address = |at: usize| Ipv4Addr::from(super::long(&self.bytes, self.link + at));
        let pseudo = match self.protocol() {
            ICMP => 0,
            other => checksum::pseudo_v4(address(12), address(16), IpProtocol(other), body.len() as u16),
        };
        let total = !checksum::add(checksum::sum(body), pseudo);
        self.write_transport(at, &total.to_be_bytes());
    }

    fn set_annotations(&self, packet: &mut Packet) {
        packet.set_timestamp(Time::new(self.seconds, self.nanos));
        packet.set_annotation(anno::PAINT, [self.paint]);
        packet.set_annotation(anno::AGGREGATE, self.aggregate.to_ne_bytes());
        packet.set_annotation(anno::EXTRA_PACKETS, self.extra_packets.to_ne_bytes());
        if let Some(first) = self.first {
            packet.set_annotation(anno::FIRST_TIMESTAMP, first.0.to_ne_bytes());
        }
        let beyond = self.wanted.saturating_sub(self.bytes.len()) as u32;
        packet.set_annotation(anno::EXTRA_LENGTH, beyond.to_ne_bytes());
    }
}
