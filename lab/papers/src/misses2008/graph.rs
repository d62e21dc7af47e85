//! A short router from one port in memory to another, and the packets that cross it.

use artery_engine::Monitor;
use artery_wire::build::{ether, ip4};
use artery_wire::{EtherAddr, Ethernet, Ipv4};
use std::net::Ipv4Addr;

/// Bytes of a frame: 18 bytes of UDP's payload, the shortest of Ethernet without its check sequence.
pub(super) const FRAME: usize = 60;
/// Hops that a packet has left at first: its frame can be used as many times before it is rewritten.
pub(super) const TTL: u8 = 255;

const RIGHT_IP: Ipv4Addr = Ipv4Addr::new(10, 0, 2, 1);
const SINK: Ipv4Addr = Ipv4Addr::new(10, 0, 2, 2);
const RIGHT: EtherAddr = EtherAddr([2, 0, 0, 0, 2, 1]);
const SINK_CARD: EtherAddr = EtherAddr([2, 0, 0, 0, 2, 2]);

/// The router; what it receives ends at a level.
pub(super) fn router(monitor: Monitor) -> String {
    format!(
        "card :: Card;
receive :: FromDevice(in, MONITOR {monitor}) -> kind :: Classifier(12/0800, -) -> Strip(14) -> CheckIPHeader
    -> routes :: IPLookup(10.0.1.1/32 0, {RIGHT_IP}/32 0, 10.0.1.0/24 0, 10.0.2.0/24 1, 0.0.0.0/0 10.0.2.3 1);
routes[0] -> Discard;
routes[1] -> ttl :: DecIPTTL -> neighbors :: ARPQuerier({RIGHT_IP}, {RIGHT}) -> ToDevice(out);
kind[1] -> Discard;
Idle -> [1] neighbors;
"
    )
}

/// The neighbor that packets are sent to, as ARPQuerier learns it.
pub(super) fn neighbor() -> String {
    format!("{SINK} {SINK_CARD}")
}

pub(super) fn frame() -> [u8; FRAME] {
    let packet = ip4().src("10.0.1.2").dst(SINK).ttl(TTL).udp(1234, 4321).payload([0; 18]);
    let bytes = ether("02:00:00:00:01:01", "02:00:00:00:01:02").ip4(packet).bytes();
    std::array::from_fn(|n| bytes.get(n).copied().unwrap_or(0))
}

/// Whether a frame is as the router must send it.
pub(super) fn was_forwarded(frame: &[u8]) -> bool {
    let Ok(ethernet) = Ethernet::new(frame) else { return false };
    let is_sound =
        |header: Ipv4<&[u8]>| header.checksum_is_valid() && header.ttl() < TTL && header.dst() == SINK;
    (ethernet.dst(), ethernet.src()) == (SINK_CARD, RIGHT)
        && Ipv4::new(ethernet.payload()).is_ok_and(is_sound)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_frame_is_the_shortest_with_all_its_bytes_in_the_packet() {
        let frame = frame();
        assert_eq!(u16::from_be_bytes([frame[16], frame[17]]), 46);
        assert!(!was_forwarded(&frame), "it has not been");
    }

    #[test]
    fn a_forwarded_frame_has_other_stations_and_a_hop_less() {
        let mut sent = frame();
        sent[..6].copy_from_slice(&SINK_CARD.0);
        sent[6..12].copy_from_slice(&RIGHT.0);
        assert!(!was_forwarded(&sent), "all hops are left");
        let mut header = Ipv4::new(&mut sent[14..]).unwrap();
        header.decrement_ttl();
        assert!(was_forwarded(&sent));
        sent[24] ^= 1;
        assert!(!was_forwarded(&sent) && !was_forwarded(&sent[..20]));
    }
}
