//! The fixed IPv6 header (RFC 8200); extension headers are left to `ip6_headers.rs`.

use std::net::Ipv6Addr;

use crate::bytes::{at_least, clamped_mut, clamped_slice, clear_header, u32_at, write_u32};
use crate::fields::fields;
use crate::{IpProtocol, Malformed};

const VERSION_CLASS_LABEL: usize = 0;

const FLOW_LABEL: u32 = 0xf_ffff;

/// A packet from its IPv6 header on.
#[derive(Clone, Copy, Debug)]
pub struct Ipv6<T: AsRef<[u8]>>(T);

fields! {
    Ipv6 {
        payload_length / set_payload_length: u16 = 4, "the length of what follows, as the header says";
        next_header / set_next_header: IpProtocol = 6, "what follows the header";
        hop_limit / set_hop_limit: u8 = 7, "how many routers may yet forward the packet";
        src / set_src: Ipv6Addr = 8, "the source address";
        dst / set_dst: Ipv6Addr = 24, "the destination address";
    }
}

impl<T: AsRef<[u8]>> Ipv6<T> {
    /// Length of the fixed header.
    pub const LEN: usize = 40;

    /// Takes bytes for an IPv6 packet if they hold its fixed header.
    #[inline]
    pub fn new(bytes: T) -> Result<Self, Malformed> {
        Self::check_len(bytes.as_ref())?;
        Ok(Ipv6(bytes))
    }

    #[inline]
    fn check_len(bytes: &[u8]) -> Result<(), Malformed> {
        at_least(bytes, Self::LEN)?;
        if bytes[0] >> 4 == 6 { Ok(()) } else { Err(Malformed::Version) }
    }

    /// Takes bytes for a whole IPv6 packet: [`new`](Self::new), and the payload is all there (RFC 8200
    /// section 3). What follows the packet is allowed.
    #[inline]
    pub fn validate(bytes: T) -> Result<Self, Malformed> {
        let packet = Self::new(bytes)?;
        packet.check_payload_length()?;
        Ok(packet)
    }

    /// Checks that the payload is all there.
    #[inline]
    pub fn check_payload_length(&self) -> Result<(), Malformed> {
        let needed = Self::LEN + usize::from(self.payload_length());
        if needed <= self.0.as_ref().len() { Ok(()) } else { Err(Malformed::Length) }
    }

    /// Returns the version, which is 6.
    #[inline]
    pub fn version(&self) -> u8 {
        self.0.as_ref()[0] >> 4
    }

    /// Returns the traffic class: six bits of DSCP and two of ECN.
    #[inline]
    pub fn traffic_class(&self) -> u8 {
        (u32_at(self.0.as_ref(), VERSION_CLASS_LABEL) >> 20) as u8
    }

    /// Returns the flow label.
    #[inline]
    pub fn flow_label(&self) -> u32 {
        u32_at(self.0.as_ref(), VERSION_CLASS_LABEL) & FLOW_LABEL
    }

    /// Returns what follows the header, up to the payload length or to where the bytes end.
    #[inline]
    pub fn payload(&self) -> &[u8] {
        clamped_slice(self.0.as_ref(), Self::LEN, Self::LEN + usize::from(self.payload_length()))
    }
}

impl<T: AsRef<[u8]> + AsMut<[u8]>> Ipv6<T> {
    /// Makes a header of the first bytes: the version is set, all else is zero.
    #[inline]
    pub fn init(mut bytes: T) -> Result<Self, Malformed> {
        clear_header(bytes.as_mut(), Self::LEN)?[0] = 0x60;
        Ok(Ipv6(bytes))
    }

    /// Sets the traffic class.
    #[inline]
    pub fn set_traffic_class(&mut self, class: u8) {
        self.set_class_and_label(class, self.flow_label());
    }

    /// Sets the flow label; bits beyond its 20 are ignored.
    #[inline]
    pub fn set_flow_label(&mut self, label: u32) {
        self.set_class_and_label(self.traffic_class(), label);
    }

    /// Returns what [`payload`](Self::payload) does, to write.
    #[inline]
    pub fn payload_mut(&mut self) -> &mut [u8] {
        let to = Self::LEN + usize::from(self.payload_length());
        clamped_mut(self.0.as_mut(), Self::LEN, to)
    }

    fn set_class_and_label(&mut self, class: u8, label: u32) {
        let word = 6 << 28 | u32::from(class) << 20 | label & FLOW_LABEL;
        write_u32(self.0.as_mut(), VERSION_CLASS_LABEL, word);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::build::ip6;

    #[test]
    fn a_header_cut_short_is_refused_at_every_length() {
        let bytes = ip6().udp(1, 2).bytes();
        for len in 0..40 {
            assert_eq!(Ipv6::new(&bytes[..len]).unwrap_err(), Malformed::Truncated);
        }
        assert_eq!(Ipv6::validate(&bytes[..47]).unwrap_err(), Malformed::Length);
        assert!(Ipv6::validate(&bytes).is_ok());
    }

    #[test]
    fn another_version_is_refused() {
        let mut bytes = ip6().bytes();
        bytes[0] = 0x45;
        assert_eq!(Ipv6::new(&bytes).unwrap_err(), Malformed::Version);
    }

    #[test]
    fn every_field_is_read_as_it_was_set() {
        let (src, dst) = ("2001:db8::1".parse().unwrap(), "2001:db8::2".parse().unwrap());
        let mut view = Ipv6::init([0xaa; 45]).unwrap();
        view.set_traffic_class(0xb8);
        view.set_flow_label(0xfff1_2345);
        view.set_payload_length(3);
        view.set_next_header(IpProtocol::TCP);
        view.set_hop_limit(9);
        view.set_src(src);
        view.set_dst(dst);
        assert_eq!((view.version(), view.traffic_class(), view.flow_label()), (6, 0xb8, 0x1_2345));
        assert_eq!((view.payload_length(), view.payload().len(), view.payload_mut().len()), (3, 3, 3));
        assert_eq!((view.next_header(), view.hop_limit()), (IpProtocol::TCP, 9));
        assert_eq!((view.src(), view.dst()), (src, dst));
    }
}
