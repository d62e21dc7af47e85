//! Packets of the host to IPv6 link-local addresses. The host's interface to the router has the link-local
//! addresses of the ports; the source address of a packet selects its egress port.
use super::slow_path::{SlowPath, SlowPathContext};
use super::verdict::IngressInfo;
use artery_engine::Packet;
use artery_forward::fast_path::LINK;
use artery_l3::PortId;
use artery_l3::router::PortView;
use artery_wire::{IpProtocol, Ipv6};
use std::net::{IpAddr, Ipv6Addr};

impl SlowPath {
    /// Receives an IPv6 packet from the host.
    pub(super) fn receive_from_host(
        &mut self,
        packet: Packet,
        came: IngressInfo,
        job: &mut SlowPathContext<'_, '_>,
    ) {
        let ports = job.view().ports;
        let is_near = |port, to: Ipv6Addr| job.neighbor_link(&(port, to.into())).is_ready();
        match packet.data().get(LINK..).and_then(|ip| port_and_neighbor(ip, ports, is_near)) {
            Some((port, to)) => self.send_for_host(packet, port, to.into(), job),
            None => self.handle(packet, came, job),
        }
    }

    /// Sends a frame to a neighbor. Pending offloads are applied first.
    fn send_for_host(&mut self, packet: Packet, port: PortId, to: IpAddr, job: &mut SlowPathContext<'_, '_>) {
        if !packet.has_offload() || job.neighbor_link(&(port, to)).is_ready() {
            return self.send_on_link(packet, port, to, job);
        }
        let mut packets = job.cx.scratch_batch();
        packets.push(packet);
        job.cx.apply_offloads(&mut packets);
        packets.drain().for_each(|packet| self.send_on_link(packet, port, to, job));
        job.cx.recycle_batch(packets);
    }
}

/// The port by which an IPv6 packet of the host leaves to a link-local address, and this address. Ports of
/// one Ethernet address have the same link-local one: of these, the one counts where the neighbor is
/// known. None for packets to the router itself or to no port's link, and for Neighbor Discovery on the
/// host's own link (RFC 4861).
fn port_and_neighbor(
    packet: &[u8],
    ports: &[PortView],
    is_near: impl Fn(PortId, Ipv6Addr) -> bool,
) -> Option<(PortId, Ipv6Addr)> {
    let ip = Ipv6::new(packet).ok()?;
    let (from, to) = (ip.src().to_bits(), ip.dst());
    let is_own = ports.iter().any(|port| port.link_local == to.to_bits());
    let kind = packet.get(Ipv6::<&[u8]>::LEN).filter(|_| ip.next_header() == IpProtocol::ICMPV6);
    if !to.is_unicast_link_local() || is_own || kind.is_some_and(|kind| (133..=137).contains(kind)) {
        return None;
    }
    let mut own = (0..).map(PortId).zip(ports).filter(|(_, port)| port.link_local == from).map(|(id, _)| id);
    let first = own.clone().next()?;
    Some((own.find(|port| is_near(*port, to)).unwrap_or(first), to))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::router::verdict::testing::small;

    #[test]
    fn the_source_tells_the_port() {
        let ports = small().tables.ports();
        let packet = |from: u128, to: &str, next: u8, kind: u8| {
            let mut bytes = vec![0; 48];
            bytes[0] = 0x60;
            bytes[5] = 8;
            bytes[6] = next;
            bytes[7] = 64;
            bytes[8..24].copy_from_slice(&from.to_be_bytes());
            bytes[24..40].copy_from_slice(&to.parse::<Ipv6Addr>().unwrap().octets());
            bytes[40] = kind;
            bytes
        };
        let (tcp, icmp) = (6, 58);
        for (n, port) in ports.iter().enumerate() {
            let found = |to, next, kind| {
                port_and_neighbor(&packet(port.link_local, to, next, kind), &ports, |_, _| false)
                    .map(|found| found.0)
            };
            let own = Ipv6Addr::from_bits(port.link_local).to_string();
            assert_eq!(found("fe80::99", tcp, 0), Some(PortId(n as u16)));
            assert_eq!(found("fe80::99", icmp, 128), Some(PortId(n as u16)));
            assert_eq!(found("fe80::99", icmp, 135), None, "a solicitation");
            assert_eq!(found("2001:db8::99", tcp, 0), None);
            assert_eq!(found(&own, tcp, 0), None);
        }
        let strange = packet(0xfe80 << 112 | 7, "fe80::99", tcp, 0);
        assert_eq!(port_and_neighbor(&strange, &ports, |_, _| true), None);
        for len in 0..48 {
            let whole = packet(ports[0].link_local, "fe80::99", tcp, 0);
            let _ = port_and_neighbor(&whole[..len], &ports, |_, _| false);
        }
    }
}
