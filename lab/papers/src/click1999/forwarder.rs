//! A forwarder without a graph: the work of the configuration of 1999 in one function,
//! to be measured against.

use super::frames::{DARKSTAR, TestStation};
use artery_wire::checksum;
use std::net::Ipv4Addr;

const ETHER: usize = 14;
const IP: usize = 20;

/// Neighbors, each with the Ethernet header of what is sent there.
pub struct Neighbors(Vec<(Ipv4Addr, [u8; ETHER])>);

impl Neighbors {
    /// Makes a table of these neighbors.
    pub fn of(stations: &[TestStation]) -> Neighbors {
        let entry = |station: &TestStation| {
            let mut header = [0; ETHER];
            header[0..6].copy_from_slice(&station.mac.0);
            header[6..12].copy_from_slice(&DARKSTAR.mac.0);
            header[12..14].copy_from_slice(&[0x08, 0x00]);
            (station.ip, header)
        };
        Neighbors(stations.iter().map(entry).collect())
    }
    #[inline]
    fn header(&self, address: Ipv4Addr) -> Option<&[u8; ETHER]> {
        self.0.iter().find(|(known, _)| *known == address).map(|(_, header)| header)
    }
}

/// What becomes of a frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// It was made ready to be sent.
    Send,
    /// It is the host's: not IP, or for neither neighbor.
    Host,
    /// Its IP header is broken or its time to live over.
    Drop,
}

/// Forwards one frame in place: classifies it, checks its IP header, takes one from its time to live,
/// recomputes the checksum, and writes the Ethernet header of its destination.
#[inline]
pub fn forward(frame: &mut [u8], neighbors: &Neighbors) -> Verdict {
    let Some((ethernet, packet)) = frame.split_first_chunk_mut::<ETHER>() else { return Verdict::Host };
    let length = packet.len();
    let Some(header) = packet.first_chunk_mut::<IP>() else { return Verdict::Host };
    let destination = Ipv4Addr::new(header[16], header[17], header[18], header[19]);
    let (true, Some(link)) = (ethernet[12..14] == [0x08, 0x00], neighbors.header(destination)) else {
        return Verdict::Host;
    };
    // Options are left to routers with time for them.
    let total = usize::from(u16::from_be_bytes([header[2], header[3]]));
    let is_sound = header[0] == 0x45 && (IP..=length).contains(&total);
    if !is_sound || !checksum::is_ipv4_header_valid(header) || header[8] <= 1 {
        return Verdict::Drop;
    }
    header[8] -= 1;
    header[10..12].fill(0);
    let sum = !checksum::ipv4_header_sum(header);
    header[10..12].copy_from_slice(&sum.to_be_bytes());
    *ethernet = *link;
    Verdict::Send
}

#[cfg(test)]
mod tests {
    use super::super::frames::{TSB, ZEUS, segment};
    use super::*;

    fn forwarded(mut frame: Vec<u8>) -> (Verdict, Vec<u8>) {
        let verdict = forward(&mut frame, &Neighbors::of(&[ZEUS, TSB]));
        (verdict, frame)
    }

    #[test]
    fn a_frame_is_forwarded_with_one_hop_less_and_a_right_checksum() {
        let (verdict, frame) = forwarded(segment(&ZEUS, &TSB, 64));
        let mut wanted = segment(&ZEUS, &TSB, 63);
        wanted[0..6].copy_from_slice(&TSB.mac.0);
        wanted[6..12].copy_from_slice(&DARKSTAR.mac.0);
        assert_eq!((verdict, frame), (Verdict::Send, wanted));
    }

    #[test]
    fn what_a_router_may_not_forward_is_dropped() {
        assert_eq!(forwarded(segment(&ZEUS, &TSB, 1)).0, Verdict::Drop);
        let mut broken = segment(&ZEUS, &TSB, 64);
        broken[24] ^= 1;
        assert_eq!(forwarded(broken).0, Verdict::Drop);
    }

    #[test]
    fn what_is_for_neither_neighbor_is_the_hosts_and_stays_as_it_is() {
        let frame = segment(&ZEUS, &DARKSTAR, 64);
        assert_eq!(forwarded(frame.clone()), (Verdict::Host, frame));
        let mut other = segment(&ZEUS, &TSB, 64);
        other[12] = 0x86;
        assert_eq!(forwarded(other).0, Verdict::Host);
    }

    #[test]
    fn a_frame_cut_anywhere_is_never_sent_and_never_read_beyond() {
        let whole = segment(&ZEUS, &TSB, 64);
        for length in 0..whole.len() {
            assert_ne!(forwarded(whole[..length].to_vec()).0, Verdict::Send, "{length}");
        }
    }
}
