//! Frames as text: `ip 10.0.1.2 > 10.0.2.2 ttl 9 / udp 1000 > 2000 / 20 bytes`.
//!
//! A frame is a row of layers. Fields that are not written have their usual values: lengths and checksums
//! that are right, a time to live of 64. [`describe`] is exact: its text always makes the same bytes again.

mod build;
mod dissect;
mod layer;

use artery_wire::EtherAddr;
use layer::Layer;

/// The most ports that a case has: addresses of more have no name.
pub(super) const MOST_PORTS: u8 = 8;

/// The Ethernet address of the router or switch at a port: `r1`.
pub(super) fn router_mac(port: u8) -> EtherAddr {
    EtherAddr([2, 0, 0, 0, 0, port])
}

/// The Ethernet address of the host at a port: `h1`.
pub(super) fn host_mac(port: u8) -> EtherAddr {
    EtherAddr([2, 0, 0, 0, 1, port])
}

/// Reads an Ethernet address, or the name of one: `h1`, `r1`, `*` for broadcast.
pub(super) fn mac_of(text: &str) -> Option<EtherAddr> {
    layer::mac(text)
}

/// The Ethernet header that need not be written: source and destination.
#[derive(Clone, Copy, Debug)]
pub(super) struct UsualHeader {
    pub(super) src: EtherAddr,
    pub(super) dst: EtherAddr,
}

impl UsualHeader {
    /// That of a frame from the host at a port.
    pub(super) fn from_host(port: u8) -> UsualHeader {
        UsualHeader { src: host_mac(port), dst: router_mac(port) }
    }

    /// That of a frame to the host at a port.
    pub(super) fn to_host(port: u8) -> UsualHeader {
        UsualHeader { src: router_mac(port), dst: host_mac(port) }
    }
}

/// Makes a frame of its text.
pub(super) fn parse(text: &str, usual: UsualHeader) -> Result<Vec<u8>, String> {
    let mut layers = text.split(" / ").map(Layer::parse).collect::<Result<Vec<_>, _>>()?;
    if !matches!(layers[0].name(), "eth" | "hex") {
        layers.insert(0, Layer::ethernet(usual.src, usual.dst));
    }
    build::frame(&layers)
}

/// Writes a frame as text. Of the outermost layers in `free`, given as layer and field, the value is
/// written as `*`.
pub(super) fn describe(bytes: &[u8], usual: UsualHeader, free: &[(String, String)]) -> String {
    let mut layers = exact(bytes);
    for (layer, field) in free {
        if let Some(found) = layers.iter_mut().find(|found| found.name() == layer) {
            found.set_free(field);
        }
    }
    if layers.len() > 1 && layers[0] == Layer::ethernet(usual.src, usual.dst) {
        layers.remove(0);
    }
    layers.iter().map(Layer::to_string).collect::<Vec<_>>().join(" / ")
}

/// The layers of a frame with no more fields than it takes to make it again.
fn exact(bytes: &[u8]) -> Vec<Layer> {
    for mut layers in [dissect::frame(bytes), dissect::header_only(bytes)] {
        if is_frame(&layers, bytes) {
            minimize(&mut layers, bytes);
            return layers;
        }
    }
    vec![Layer::hex(bytes)]
}

fn is_frame(layers: &[Layer], bytes: &[u8]) -> bool {
    build::frame(layers).is_ok_and(|made| made == bytes)
}

/// Takes out the fields without which the same frame is made.
fn minimize(layers: &mut [Layer], bytes: &[u8]) {
    for at in 0..layers.len() {
        for field in layers[at].field_names() {
            let value = layers[at].remove(field);
            if !is_frame(layers, bytes) {
                layers[at].restore(value);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use artery_wire::build::{arp_request, ether, ip4, ip6, neighbor_solicitation};
    use proptest::prelude::*;

    const USUAL: UsualHeader =
        UsualHeader { src: EtherAddr([2, 0, 0, 0, 1, 1]), dst: EtherAddr([2, 0, 0, 0, 0, 1]) };

    #[track_caller]
    fn expect(text: &str, frame: Vec<u8>) {
        assert_eq!(parse(text, USUAL).unwrap(), frame, "{text}");
        assert_eq!(describe(&frame, USUAL, &[]), text);
    }

    fn ethernet() -> artery_wire::build::Ether {
        ether(USUAL.dst, USUAL.src)
    }

    #[test]
    fn text_and_builders_make_the_same_frames() {
        let payload: Vec<u8> = (0..20).collect();
        let udp = ip4().udp(1000, 2000).payload(&payload);
        expect("ip 10.0.0.1 > 10.0.0.2 / udp 1000 > 2000 / 20 bytes", ethernet().ip4(udp.clone()).bytes());
        expect(
            "vlan 7 / ip 10.0.0.1 > 10.0.0.2 ttl 1 tos 16 id 9 df / tcp 1 > 2 seq 5 win 9",
            ethernet()
                .vlan(7)
                .ip4(ip4().ttl(1).tos(16).id(9).dont_fragment().tcp(1, 2).seq(5).window(9))
                .bytes(),
        );
        expect(
            "ip6 2001:db8::1 > 2001:db8::2 hlim 3 / hbh 050200000100 / icmp6 echo id 1 seq 2 / 4 zeros",
            ethernet()
                .ip6(ip6().hop_limit(3).extension(0, [5, 2, 0, 0, 1, 0]).icmp_echo(1, 2).payload([0; 4]))
                .bytes(),
        );
        expect(
            "ip6 2001:db8::1 > 2001:db8::2 / frag id 7 offset 24 next 17 / hex aa55",
            ethernet().ip6(ip6().fragment(24, false, 7).raw(17, [0xaa, 0x55])).bytes(),
        );
        expect(
            "eth h1 > * / arp request h1 10.0.0.1 > none 10.0.0.2",
            arp_request(USUAL.src, "10.0.0.1", "10.0.0.2").bytes(),
        );
        expect(
            "eth h1 > 33:33:ff:00:00:02 / ip6 fd00::1 > ff02::1:ff00:2 hlim 255 / \
             icmp6 ns target fd00::2 option 0101020000000101",
            neighbor_solicitation(USUAL.src, "fd00::1", "fd00::2").bytes(),
        );
    }

    #[test]
    fn what_is_wrong_with_a_packet_is_written() {
        let mut frame = ethernet().ip4(ip4().udp(1, 2).payload([0, 1, 2])).bytes();
        frame[24] ^= 1;
        let found = describe(&frame, USUAL, &[]);
        assert_eq!(found, "ip 10.0.0.1 > 10.0.0.2 checksum 0x67cc / udp 1 > 2 / 3 bytes");
        frame.pop();
        assert_eq!(
            describe(&frame, USUAL, &[]),
            "ip 10.0.0.1 > 10.0.0.2 length 31 checksum 0x67cc / \
             udp 1 > 2 length 11 checksum 0xe9d1 / 2 bytes"
        );
    }

    #[test]
    fn errors_quote_the_packet_that_they_are_about() {
        let about = ip4().udp(1, 2).payload((7..27).collect::<Vec<u8>>()).bytes();
        let error = ip4().icmp(artery_wire::IcmpType::UNREACHABLE, 4, [0, 0, 5, 0]);
        expect(
            "ip 10.0.0.1 > 10.0.0.2 / icmp unreachable code 4 mtu 1280 / \
             ip 10.0.0.1 > 10.0.0.2 / udp 1 > 2 / 20 bytes from 7",
            ethernet().ip4(error.payload(about)).bytes(),
        );
    }

    #[test]
    fn free_fields_are_stars() {
        let frame = ethernet().ip4(ip4().id(9).icmp_echo(1, 2)).bytes();
        let free = [("ip".to_string(), "id".to_string())];
        let text = "ip 10.0.0.1 > 10.0.0.2 id * / icmp echo id 1 seq 2";
        assert_eq!(describe(&frame, USUAL, &free), text);
        let again = parse(text, USUAL).unwrap();
        assert_eq!(describe(&again, USUAL, &free), text);
    }

    #[test]
    fn unknown_words_are_refused_with_the_form() {
        let refused = |text: &str| parse(text, USUAL).unwrap_err();
        assert!(refused("ip 10.0.0.1 > 10.0.0.2 tll 9").contains("unknown word 'tll'"));
        assert!(refused("ip 10.0.0.1 10.0.0.2").contains("write ip SOURCE > DESTINATION"));
        assert!(refused("ipx 1").contains("unknown layer 'ipx'"));
        assert!(refused("ip 10.0.0.1 > 10.0.0.2 ttl").contains("'ttl' has no value"));
        assert!(refused("ip 10.0.0.1 > 10.0.0.2 ttl 256").contains("'256' is not a valid value of ttl"));
        assert!(refused("ip 10.0.0.1 > 10.0.0.2 / 5 bytes").contains("which protocol"));
    }

    proptest! {
        #[test]
        fn every_frame_has_a_text_that_makes_it_again(
            bytes in prop::collection::vec(any::<u8>(), 1..80),
            kind in 0_usize..6,
            changed in any::<(u8, u8)>(),
        ) {
            let mut frame = match kind {
                0 => ethernet().ip4(ip4().udp(1, 2).payload(&bytes)).bytes(),
                1 => ethernet().ip6(ip6().extension(0, [5, 2, 0, 0, 1, 0]).tcp(1, 2).payload(&bytes)).bytes(),
                2 => neighbor_solicitation(USUAL.src, "fd00::1", "fd00::2").bytes(),
                3 => ethernet()
                    .ip4(ip4().icmp(artery_wire::IcmpType::UNREACHABLE, 1, [0; 4]).payload(&bytes))
                    .bytes(),
                4 => arp_request(USUAL.src, "10.0.0.1", "10.0.0.2").bytes(),
                _ => bytes,
            };
            if !frame.is_empty() {
                let at = usize::from(changed.0) % frame.len();
                frame[at] = changed.1;
            }
            let text = describe(&frame, USUAL, &[]);
            prop_assert_eq!(parse(&text, USUAL).unwrap(), frame, "{}", text);
        }
    }
}
