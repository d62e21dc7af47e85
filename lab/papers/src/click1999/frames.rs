//! The machines of May 1999, and the packets that went between them.

use artery_wire::build::{ether, ip4};
use artery_wire::{EtherAddr, TcpFlags};
use std::net::Ipv4Addr;

/// One of the three machines.
#[derive(Clone, Copy, Debug)]
pub struct TestStation {
    /// The machine's name in results.
    pub name: &'static str,
    /// The machine's IPv4 address in 1999.
    pub ip: Ipv4Addr,
    /// The MAC address of its network card.
    pub mac: EtherAddr,
}

/// The machine that sends.
pub const ZEUS: TestStation = TestStation {
    name: "zeus",
    ip: Ipv4Addr::new(18, 26, 4, 97),
    mac: EtherAddr([0x00, 0x00, 0xc0, 0xca, 0x68, 0xef]),
};
/// The machine that receives: the-seventh-bridge.
pub const TSB: TestStation = TestStation {
    name: "tsb",
    ip: Ipv4Addr::new(18, 26, 4, 200),
    mac: EtherAddr([0x00, 0xa0, 0xc9, 0x9c, 0xfd, 0x9c]),
};
/// The machine that forwards.
pub const DARKSTAR: TestStation = TestStation {
    name: "darkstar",
    ip: Ipv4Addr::new(18, 26, 4, 60),
    mac: EtherAddr([0x00, 0x80, 0xc8, 0x4b, 0x25, 0x00]),
};

/// Bytes of each packet, from its IP header on.
pub(super) const PACKET: usize = 256;
/// Bytes of each packet that are TCP's payload, with no options.
pub const PAYLOAD: usize = PACKET - 20 - 20;
/// Bytes of each frame.
pub const FRAME: usize = 14 + PACKET;

/// A TCP segment of 256 bytes on its way to darkstar, with this time to live.
pub fn segment(from: &TestStation, to: &TestStation, ttl: u8) -> Vec<u8> {
    let payload: Vec<u8> = (0..PAYLOAD).map(|n| n as u8).collect();
    let packet = ip4().src(from.ip).dst(to.ip).ttl(ttl).tcp(1055, 9).flags(TcpFlags::ACK).payload(payload);
    ether(DARKSTAR.mac, from.mac).ip4(packet).bytes()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn packets_are_of_the_size_of_1999() {
        let frame = segment(&ZEUS, &TSB, 64);
        assert_eq!(frame.len(), FRAME);
        assert_eq!(u16::from_be_bytes([frame[16], frame[17]]), 256);
    }
}
