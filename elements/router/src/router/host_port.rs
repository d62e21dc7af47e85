//! Interfaces of the host that stand for ports: which frames cross between both, as they are.
//!
//! The router alone answers for its addresses and claims them, so that each question gets one answer.
//! The host finds its neighbors by itself: its questions leave by the port, and answers reach both.
use super::slow_path::{SlowPath, SlowPathContext};
use super::verdict::{IngressInfo, LinkDestination, NeighborMessage, Origin};
use artery_engine::{DropReason, Packet};
use artery_forward::fast_path::LINK;
use artery_l3::PortId;
use artery_l3::router::PortView;
use artery_wire::nd::NdMessage;
use artery_wire::{Arp, EtherType, Ethernet, Ipv4, Ipv6};
use std::net::IpAddr;

impl SlowPath {
    /// Whether a frame of a protocol that the router does not handle is for the host: frames sent to the port
    /// or to a group, as those of IS-IS and LLDP.
    pub(super) fn is_for_host_port(&self, came: IngressInfo) -> bool {
        let is_near = matches!(came.to, LinkDestination::Ours | LinkDestination::Group);
        self.settings.has_host_ports && is_near && matches!(came.from, Origin::Port(_))
    }

    /// Sends a frame that a port received to the host.
    pub(super) fn hand_to_host_port(&self, packet: Packet, port: PortId, job: &mut SlowPathContext<'_, '_>) {
        let output = job.router.port_count() + 1 + usize::from(port.0);
        job.cx.send_or_discard(output, packet, DropReason::Local);
    }

    /// Sends a copy of a message between neighbors to the host, if the host waits for it.
    /// Returns whether it did.
    pub(super) fn copy_to_host_port(
        &self,
        packet: &Packet,
        port: PortId,
        message: NeighborMessage,
        job: &mut SlowPathContext<'_, '_>,
    ) -> bool {
        let bytes = packet.data().get(LINK..).unwrap_or_default();
        let is_wanted = match message {
            NeighborMessage::Arp => Arp::new(bytes).is_ok_and(|arp| is_answer(&arp)),
            NeighborMessage::Nd => {
                !matches!(NdMessage::parse_packet(bytes), Ok(NdMessage::NeighborSolicitation(_)) | Err(_))
            }
        };
        if !self.settings.has_host_ports || !is_wanted {
            return false;
        }
        match job.cx.pool().packet_from(packet.data()) {
            Some(copy) => self.hand_to_host_port(copy, port, job),
            None => job.cx.count_discarded(DropReason::PoolEmpty, 1),
        }
        true
    }

    /// Sends a frame of the host by a port, as it is.
    pub(super) fn send_from_host_port(
        &self,
        packet: Packet,
        port: PortId,
        job: &mut SlowPathContext<'_, '_>,
    ) {
        let Some(view) = job.port(port).filter(|view| view.is_up) else {
            return job.cx.discard(packet, DropReason::PortDown);
        };
        if self.is_unclaimed(packet.data(), port, view) {
            return job.cx.discard(packet, DropReason::Unclaimed);
        }
        job.cx.send(port.0.into(), packet);
    }

    /// Whether a frame is sent from an address that the router has not claimed yet, or probes one of the
    /// router's addresses, which the router itself probes.
    fn is_unclaimed(&self, frame: &[u8], port: PortId, view: &PortView) -> bool {
        match sender_address(frame) {
            Some(IpAddr::V6(from)) if from.is_unspecified() => is_solicitation(frame),
            Some(IpAddr::V4(from)) if from.is_unspecified() => {
                Ethernet::new(frame).is_ok_and(|ethernet| ethernet.ether_type() == EtherType::ARP)
            }
            Some(from) => is_port_address(view, from) && !self.is_usable(port, from),
            None => false,
        }
    }
}

/// Whether an ARP message is for the host, too: replies and announcements.
fn is_answer(arp: &Arp<&[u8]>) -> bool {
    !arp.is_request() || arp.sender_ip() == arp.target_ip()
}

/// The address that a frame is sent from, if it is one of ARP or IP.
fn sender_address(frame: &[u8]) -> Option<IpAddr> {
    let bytes = frame.get(LINK..)?;
    match Ethernet::new(frame).ok()?.ether_type() {
        EtherType::ARP => Some(Arp::new(bytes).ok()?.sender_ip().into()),
        EtherType::IPV4 => Some(Ipv4::new(bytes).ok()?.src().into()),
        EtherType::IPV6 => Some(Ipv6::new(bytes).ok()?.src().into()),
        _ => None,
    }
}

fn is_solicitation(frame: &[u8]) -> bool {
    let message = frame.get(LINK..).map(NdMessage::parse_packet);
    matches!(message, Some(Ok(NdMessage::NeighborSolicitation(_))))
}

fn is_port_address(view: &PortView, address: IpAddr) -> bool {
    match address {
        IpAddr::V4(address) => view.v4.iter().any(|(own, _)| *own == address.to_bits()),
        IpAddr::V6(address) => {
            view.link_local == address.to_bits() || view.v6.iter().any(|(own, _)| *own == address.to_bits())
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use artery_common::arp_frame::arp_frame;
    use artery_engine::Bench;
    use artery_wire::nd::{self, LinkEndpoint as NdStation};
    use artery_wire::{ArpOperation, EtherAddr};
    use std::net::Ipv6Addr;
    use std::time::Duration;

    const OURS: EtherAddr = EtherAddr([2, 0, 0, 0, 0, 1]);
    const PEER: EtherAddr = EtherAddr([2, 0, 0, 0, 1, 9]);
    /// Outputs and inputs of host ports: port 0 of two.
    const TO_HOST: usize = 3;
    const FROM_HOST: usize = 4;

    fn router() -> Bench {
        let config = "PORT eth1 10.0.1.1/24 fd00:1::1/64 ETHER 2:0:0:0:0:1, \
                      PORT eth2 10.0.2.1/24 ETHER 2:0:0:0:0:2, HOST_PORTS true, DAD false";
        let setup = Bench::setup(&crate::router::ip_router::CLASS, config).inputs(6).outputs(5);
        let mut bench = setup.build().unwrap();
        bench.advance_time(Duration::from_secs(1));
        (0..5).for_each(|output| _ = bench.drain_sent(output));
        bench
    }

    fn ip4(to: EtherAddr, src: [u8; 4], dst: [u8; 4], protocol: u8) -> Vec<u8> {
        let mut packet = vec![0x45, 0, 0, 28, 0, 0, 0, 0, 1, protocol, 0, 0];
        packet.extend([src, dst].concat());
        packet.extend([0; 8]);
        Ipv4::new(&mut packet[..]).unwrap().fill_checksum();
        [&to.0[..], &PEER.0, &[8, 0], &packet].concat()
    }

    #[test]
    fn what_is_for_the_host_leaves_as_it_came_by_the_output_of_its_port() {
        let ospf = EtherAddr([1, 0, 0x5e, 0, 0, 5]);
        let is_is = [&[1, 0x80, 0xc2, 0, 0, 0x14][..], &PEER.0, &[0, 3, 0xfe, 0xfe, 3]].concat();
        let lldp = [&[1, 0x80, 0xc2, 0, 0, 0xe][..], &PEER.0, &[0x88, 0xcc, 0, 0]].concat();
        for frame in [
            ip4(ospf, [10, 0, 1, 9], [224, 0, 0, 5], 89),
            ip4(OURS, [10, 0, 1, 9], [10, 0, 1, 1], 89),
            ip4(OURS, [10, 0, 1, 9], [10, 0, 2, 1], 6),
            ip4(EtherAddr::BROADCAST, [10, 0, 1, 9], [255; 4], 17),
            is_is,
            lldp,
        ] {
            let mut bench = router();
            bench.push(0, &frame);
            bench.expect(TO_HOST, &frame);
        }
    }

    #[test]
    fn the_router_answers_for_its_addresses_and_the_host_gets_answers_alone() {
        let mut bench = router();
        let (own, peer) = ([10, 0, 1, 1].into(), [10, 0, 1, 9].into());
        let asks =
            arp_frame(EtherAddr::BROADCAST, ArpOperation::REQUEST, (PEER, peer), (EtherAddr::ZERO, own));
        bench.push(0, asks);
        assert_eq!((bench.drain_sent(0).len(), bench.drain_sent(TO_HOST).len()), (1, 0));
        let answers = arp_frame(OURS, ArpOperation::REPLY, (PEER, peer), (OURS, own));
        bench.push(0, answers);
        bench.expect(TO_HOST, answers);
        let (own, peer): (Ipv6Addr, Ipv6Addr) = ("fd00:1::1".parse().unwrap(), "fd00:1::9".parse().unwrap());
        let station = |ether, ip| NdStation { ether, ip };
        bench.push(0, nd::neighbor_solicitation(station(PEER, peer), own, None));
        assert_eq!((bench.drain_sent(0).len(), bench.drain_sent(TO_HOST).len()), (1, 0));
        let flags = nd::AdvertisementFlags { router: false, solicited: true, overrides: true };
        let (from, to) = (station(PEER, peer), station(OURS, own));
        let answers = nd::neighbor_advertisement(from, to, from, flags);
        bench.push(0, &answers);
        bench.expect(TO_HOST, &answers);
    }

    #[test]
    fn frames_of_the_host_leave_by_the_port_unless_their_source_is_not_claimed() {
        let mut bench = router();
        let frame = ip4(PEER, [10, 0, 1, 1], [10, 0, 1, 9], 89);
        bench.push(FROM_HOST, &frame);
        bench.expect(0, &frame);
        // The host does not probe its addresses on the link: the router does.
        let own: Ipv6Addr = "fd00:1::1".parse().unwrap();
        let none = NdStation { ether: OURS, ip: Ipv6Addr::UNSPECIFIED };
        bench.push(FROM_HOST, nd::neighbor_solicitation(none, own, None));
        assert_eq!(bench.drain_sent(0).len(), 0);
        bench.expect_dropped(DropReason::Unclaimed, 1);
        for len in 0..frame.len() {
            bench.push(FROM_HOST, &frame[..len]);
        }
    }
}
