//! What is known of a packet beside its bytes: type, port, time, annotations.
use super::{COLD, HOT_ANNOTATIONS, MARKED, Packet, PacketType, UNFINISHED};
use crate::annotation::anno;
use crate::time::Time;
use std::net::Ipv4Addr;

impl Packet {
    /// To whom the link layer addressed the packet.
    #[inline]
    pub fn packet_type(&self) -> PacketType {
        self.meta().packet_type
    }
    /// Sets to whom the link layer addressed the packet.
    #[inline]
    pub fn set_packet_type(&mut self, to: PacketType) {
        self.meta_mut().packet_type = to;
    }
    /// Port of the machine that the packet came in by; 0 when it came from none.
    #[inline]
    pub fn in_port(&self) -> u16 {
        self.meta().in_port
    }
    /// Sets the port of the machine that the packet came in by.
    #[inline]
    pub fn set_in_port(&mut self, port: u16) {
        self.meta_mut().in_port = port;
    }
    /// When the packet arrived; [`Time::ZERO`] if no timestamp was set.
    #[inline]
    pub fn timestamp(&self) -> Time {
        if self.meta().flags & COLD != 0 { self.meta().timestamp } else { Time::ZERO }
    }
    /// Says when the packet arrived.
    #[inline]
    pub fn set_timestamp(&mut self, time: Time) {
        self.init_cold();
        self.meta_mut().timestamp = time;
    }
    /// Clears the cold line unless it already holds this packet's values.
    #[inline]
    fn init_cold(&mut self) {
        let d = self.meta_mut();
        if d.flags & COLD == 0 {
            d.annotations[HOT_ANNOTATIONS..].fill(0);
            d.timestamp = Time::ZERO;
            d.flags |= COLD;
        }
    }
    /// `N` annotation bytes at `offset`. Panics when they pass the area's end;
    /// elements check at configuration.
    #[inline]
    pub fn annotation<const N: usize>(&self, offset: usize) -> [u8; N] {
        let d = self.meta();
        if offset + N > HOT_ANNOTATIONS && d.flags & COLD == 0 {
            return self.annotation_of_cold_packet(offset);
        }
        let mut bytes = [0; N];
        bytes.copy_from_slice(&d.annotations[offset..offset + N]);
        bytes
    }
    #[cold]
    fn annotation_of_cold_packet<const N: usize>(&self, offset: usize) -> [u8; N] {
        let hot = &self.meta().annotations[..HOT_ANNOTATIONS];
        std::array::from_fn(|i| hot.get(offset + i).copied().unwrap_or(0))
    }
    /// Sets `N` annotation bytes at `offset`. Panics when they pass the area's end.
    #[inline]
    pub fn set_annotation<const N: usize>(&mut self, offset: usize, value: [u8; N]) {
        if offset + N > HOT_ANNOTATIONS {
            self.init_cold();
        }
        self.meta_mut().annotations[offset..offset + N].copy_from_slice(&value);
    }
    /// The destination IP address annotation.
    #[inline]
    pub fn dst_ip(&self) -> Ipv4Addr {
        self.annotation::<4>(anno::DST_IP).into()
    }
    /// Sets the destination address annotation.
    #[inline]
    pub fn set_dst_ip(&mut self, address: Ipv4Addr) {
        self.set_annotation(anno::DST_IP, address.octets());
    }
    /// Paint colour at the usual place.
    #[inline]
    pub fn paint(&self) -> u8 {
        self.annotation::<1>(anno::PAINT)[0]
    }
    /// Clears all annotations, the timestamp and the header offsets, as for a packet that starts a new
    /// life. A mark stays.
    pub fn clear_metadata(&mut self) {
        let d = self.meta_mut();
        let (start, len, left) = (d.start, d.len, d.flags & (UNFINISHED | MARKED));
        d.reset_hot();
        (d.start, d.len, d.flags) = (start, len, left);
    }
}
