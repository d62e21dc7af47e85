//! The headers of a packet, as IP patterns address them.
use super::expr::Base;
use artery_engine::Packet;

/// The bytes from each header to the end of a packet; empty where there is none.
pub(crate) struct Headers<'a> {
    packet: &'a Packet,
    network: &'a [u8],
    transport: &'a [u8],
}

impl<'a> Headers<'a> {
    /// Finds the headers: where elements have marked them, else with the IP header at the start of data.
    #[inline]
    pub(crate) fn from_packet(packet: &'a Packet) -> Headers<'a> {
        let network = match packet.network_offset() {
            Some(_) => packet.network().unwrap_or(&[]),
            None => packet.data(),
        };
        let transport = match packet.transport_offset() {
            Some(_) => packet.transport().unwrap_or(&[]),
            None => {
                let len = network.first().map_or(0, |first| usize::from(first & 15) * 4);
                network.get(len..).unwrap_or(&[])
            }
        };
        Headers { packet, network, transport }
    }

    /// The bytes from this header on.
    #[inline]
    pub(crate) fn from(&self, base: Base) -> &'a [u8] {
        match base {
            Base::Network => self.network,
            Base::Transport => self.transport,
            Base::Data => self.packet.data(),
            Base::Mac => self.packet.mac().unwrap_or(&[]),
        }
    }
}
