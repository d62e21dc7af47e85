//! An IPv6 packet in parts that fit an MTU (RFC 8200 section 4.5).
use crate::{CannotSplit, Ipv6, Malformed, naming_place};

const HEADER: usize = 40;
const FRAGMENT_HEADER: usize = 8;
/// The protocol number of the fragment header.
const FRAGMENT: u8 = 44;
/// Fragments begin at multiples of this many bytes.
const UNIT: usize = 8;

/// Goes over the fragments of a packet, in order. Each has a fragment header, also where there is but one.
#[derive(Clone, Debug)]
pub struct Ipv6Fragments<'a> {
    /// The headers that all fragments begin with, with the fragment header.
    headers: Vec<u8>,
    /// What is not in a fragment yet; `None` when the last was made.
    rest: Option<&'a [u8]>,
    offset: usize,
    /// Most payload of a fragment that is not the last, and of the last.
    room: usize,
}

/// A fragment: headers of its own, and a part of what was split.
#[derive(Clone, Debug)]
pub struct Ipv6FragmentParts<'a> {
    headers: Vec<u8>,
    payload: &'a [u8],
}

impl<'a> Ipv6Fragments<'a> {
    /// Begins to split a packet, which its payload length ends, into fragments of `mtu` bytes at most. Its
    /// first `at` bytes are the headers that every fragment repeats: the fixed one, and extension headers for
    /// nodes on the way. `id` is what fragments of a packet share.
    pub fn split_packet(
        packet: &'a [u8],
        at: usize,
        id: u32,
        mtu: usize,
    ) -> Result<Ipv6Fragments<'a>, CannotSplit> {
        let ip = Ipv6::new(packet).map_err(CannotSplit::Malformed)?;
        let total = HEADER + usize::from(ip.payload_length());
        let malformed = CannotSplit::Malformed(Malformed::Length);
        let (repeated, rest) =
            packet.get(..total).and_then(|whole| whole.split_at_checked(at)).ok_or(malformed)?;
        let mut headers = repeated.to_vec();
        let named_at = naming_place(&headers).ok_or(malformed)?;
        let next = std::mem::replace(&mut headers[named_at], FRAGMENT);
        let [i0, i1, i2, i3] = id.to_be_bytes();
        headers.extend([next, 0, 0, 0, i0, i1, i2, i3]);
        let room = mtu.min(usize::from(u16::MAX)).saturating_sub(headers.len());
        if room < UNIT {
            return Err(CannotSplit::NoRoom);
        }
        Ok(Ipv6Fragments { headers, rest: Some(rest), offset: 0, room })
    }
}

impl<'a> Iterator for Ipv6Fragments<'a> {
    type Item = Ipv6FragmentParts<'a>;

    fn next(&mut self) -> Option<Ipv6FragmentParts<'a>> {
        let rest = self.rest?;
        let fits = rest.len() <= self.room;
        let (payload, rest) = rest.split_at(if fits { rest.len() } else { self.room & !(UNIT - 1) });
        self.rest = (!fits).then_some(rest);
        let mut headers = self.headers.clone();
        let length = headers.len() - HEADER + payload.len();
        Ipv6::new(&mut headers).ok()?.set_payload_length(length as u16);
        let field = self.offset as u16 | u16::from(!fits);
        let at = headers.len() - FRAGMENT_HEADER;
        headers[at + 2..at + 4].copy_from_slice(&field.to_be_bytes());
        self.offset += payload.len();
        Some(Ipv6FragmentParts { headers, payload })
    }
}

impl Ipv6FragmentParts<'_> {
    /// Returns the headers, that of fragments the last of them.
    pub fn header(&self) -> &[u8] {
        &self.headers
    }

    /// Returns the part of what was split.
    pub fn payload(&self) -> &[u8] {
        self.payload
    }

    /// Returns the fragment as one buffer.
    pub fn to_bytes(&self) -> Vec<u8> {
        [self.header(), self.payload].concat()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Ip6Headers;
    use crate::build::ip6;
    use proptest::prelude::*;

    fn split(packet: &[u8], at: usize, mtu: usize) -> Result<Vec<Vec<u8>>, CannotSplit> {
        Ok(Ipv6Fragments::split_packet(packet, at, 0x0102_0304, mtu)?
            .map(|fragment| fragment.to_bytes())
            .collect())
    }

    #[test]
    fn what_has_no_room_or_is_no_packet_is_not_split() {
        let packet = ip6().udp(1, 2).payload([0; 100]).bytes();
        assert_eq!(split(&packet, 40, 55), Err(CannotSplit::NoRoom));
        assert_eq!(split(&packet, 40, 56).unwrap().len(), 14);
        for (bytes, at) in
            [(&packet[..120], 40), (&packet, 39), (&packet, 41), (&packet, 300), (&packet[..30], 40)]
        {
            assert!(matches!(split(bytes, at, 1280), Err(CannotSplit::Malformed(_))), "{} {at}", bytes.len());
        }
    }

    #[test]
    fn headers_for_nodes_on_the_way_are_in_every_fragment() {
        let packet = ip6().extension(0, [1, 4, 0, 0, 0, 0]).udp(1, 2).payload([7; 300]).bytes();
        let fragments = split(&packet, 48, 200).unwrap();
        assert_eq!(fragments.len(), 3);
        for fragment in &fragments {
            let headers = Ip6Headers::parse_packet(fragment).unwrap();
            assert!(headers.hop_by_hop.is_some());
            assert_eq!(headers.fragment.unwrap().at, 48);
        }
    }

    proptest! {
        #[test]
        fn fragments_in_order_make_the_packet(
            len in 0_usize..5000,
            mtu in 56_usize..2000,
            padding in 0_usize..30,
        ) {
            let payload: Vec<u8> = (0..len).map(|n| n as u8).collect();
            let packet = ip6().udp(1, 2).payload(payload).bytes();
            let fragments = split(&[&packet[..], &vec![0xee; padding]].concat(), 40, mtu).unwrap();
            let mut joined = Vec::new();
            for (n, bytes) in fragments.iter().enumerate() {
                prop_assert!(bytes.len() <= mtu);
                prop_assert_eq!(
                    usize::from(Ipv6::new(&bytes[..]).unwrap().payload_length()),
                    bytes.len() - 40
                );
                prop_assert_eq!((bytes[6], bytes[40]), (44, 17));
                let field = u16::from_be_bytes([bytes[42], bytes[43]]);
                prop_assert_eq!(usize::from(field & !7), joined.len());
                prop_assert_eq!(field & 7, u16::from(n + 1 < fragments.len()));
                prop_assert_eq!(&bytes[44..48], &[1, 2, 3, 4]);
                joined.extend_from_slice(&bytes[48..]);
            }
            prop_assert_eq!(&joined[..], &packet[40..]);
        }

        #[test]
        fn any_bytes_are_split_or_refused(
            mut bytes in prop::collection::vec(any::<u8>(), 0..200),
            at in 0_usize..210,
            mtu in 0_usize..200,
        ) {
            let len = bytes.len().saturating_sub(40) as u16;
            if let Some(fixed) = bytes.first_chunk_mut::<6>() {
                fixed[0] = 0x60;
                fixed[4..].copy_from_slice(&len.to_be_bytes());
            }
            let fragments = split(&bytes, at, mtu).unwrap_or_default();
            prop_assert!(fragments.iter().all(|fragment| fragment.len() <= mtu));
        }
    }
}
