use artery_common::ip_header;
use artery_engine::{Arg, ArgError, Args, Batch, Class, Context, Element, Level, Packet, anno};
use artery_forward::flow::FlowHasher;
use artery_forward::shared::{self, LINK_ADDRESS};
use artery_l3::PortId;
use artery_l3::path::{ForwardDecision, Method, Outcome};
use artery_l3::router::{PortView, Readers, ReversePath};
use artery_rcu::Turn;
use artery_wire::{EtherType, Ethernet, Ipv4, Ipv6};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

pub static CLASS: Class = Class {
    name: "LookupNextHop",
    group: "router",
    summary: "finds the port and the link address that IP packets leave by",
    manual: "
Expects IPv4 or IPv6 packets, data starting at the IP header or the header marked by an earlier element, and
decides where each goes by the routes and neighbors of ROUTER, an IPRouter. Input I takes packets that port I
of the router received. A packet that is to leave by port I leaves by output I, with the link address of its
next hop in its annotations for LinkHeader to use. All others leave by the output behind the ports', with the
number of the port that received them as paint annotation: those without route or known neighbor, for the
router itself or for groups, with a source that no host can have or that the port's reverse-path check
refuses, longer than the next hop's MTU, or due to leave by the port they came by.

IPForward and IP6Forward do this, and what usually stands before and behind it, for whole batches.",
    example: "\
ip :: IPRouter(PORT eth1 10.0.1.1/24 ETHER 2:0:0:0:0:1, PORT eth2 10.0.2.1/24 ETHER 2:0:0:0:0:2);
Idle -> ip; ip[0] -> Discard;
Idle -> Strip(14) -> CheckIPHeader -> hop :: LookupNextHop(ip);
hop[0] -> Discard;
hop[1] -> DecIPTTL -> LinkHeader(ip, eth2) -> Discard;
hop[2] -> Discard;",
    ports: "-/-",
    processing: "h/h",
    args: &[Arg::required("ROUTER", "element", "the IPRouter that has the ports, routes and neighbors")],
    build: |args| Ok(Box::new(LookupNextHop::new(args)?)),
    ..Class::PER_WORKER
};

struct LookupNextHop {
    readers: Readers,
    exception_output: usize,
    flows: FlowHasher,
}

impl LookupNextHop {
    fn new(args: &Args<'_>) -> Result<LookupNextHop, ArgError> {
        let router = shared::find_router(args)?;
        let ports = router.port_count();
        if args.inputs() > ports || args.outputs() > ports + 1 {
            let name = router.name();
            let message =
                format!("{name} has {ports} ports: LookupNextHop has as many inputs, and one output more");
            return Err(ArgError::wrong(message));
        }
        Ok(LookupNextHop {
            readers: router.readers().clone(),
            exception_output: ports,
            flows: FlowHasher::default(),
        })
    }

    /// The decision about a packet that can be forwarded.
    fn decide_forwarding(
        &mut self,
        packet: &Packet,
        came_by: PortId,
        turn: &Turn<'_>,
    ) -> Option<ForwardDecision> {
        let LookupNextHop { readers, flows, .. } = self;
        let (source, destination) = source_and_destination(ip_header::bytes(packet))?;
        let port = readers.ports.read(turn).get(usize::from(came_by.0))?;
        let mut decide = |address| {
            let flow = |method| flow_number(flows, ip_header::bytes(packet), method);
            match address {
                IpAddr::V4(address) => readers.v4.lookup_path(turn, address.to_bits(), flow),
                IpAddr::V6(address) => readers.v6.lookup_path(turn, address.to_bits(), flow),
            }
        };
        if !is_host(source, port) || !is_expected(port.settings.rpf, came_by, || decide(source)) {
            return None;
        }
        let decision = decide(destination);
        let network = packet.network_offset().map_or(Some(0), |offset| usize::try_from(offset).ok())?;
        let fits = packet.segment_len(network) <= usize::from(decision.mtu);
        (decision.outcome == Outcome::Forward && fits && decision.port != came_by).then_some(decision)
    }
}

/// Source and destination of a packet.
fn source_and_destination(packet: &[u8]) -> Option<(IpAddr, IpAddr)> {
    match packet.first()? >> 4 {
        4 => Ipv4::new(packet).ok().map(|ip| (ip.src().into(), ip.dst().into())),
        _ => Ipv6::new(packet).ok().map(|ip| (ip.src().into(), ip.dst().into())),
    }
}

/// The number of a packet's flow, as if it were in a frame.
fn flow_number(flows: &mut FlowHasher, packet: &[u8], method: Method) -> u32 {
    let mut frame = [0; 14 + 60 + 40];
    let length = packet.len().min(frame.len() - 14);
    let kind =
        if packet.first().is_some_and(|first| first >> 4 == 4) { EtherType::IPV4 } else { EtherType::IPV6 };
    frame[14..14 + length].copy_from_slice(&packet[..length]);
    if let Ok(mut ethernet) = Ethernet::new(&mut frame[..]) {
        ethernet.set_ether_type(kind);
    }
    flows.flow_number(&frame[..14 + length], method)
}

/// Whether a packet from outside can be from there.
fn is_host(source: IpAddr, port: &PortView) -> bool {
    match source {
        IpAddr::V4(source) => {
            let first = source.octets()[0];
            let is_martian = first == 0 || first >= 224 || source.is_loopback();
            let is_near = source.is_link_local() && !port.forward_ipv4_link_local;
            !is_martian && !is_near && !port.v4.iter().any(|(own, len)| is_own(source, *own, *len))
        }
        IpAddr::V6(source) => {
            let is_local = source.is_multicast() || source.is_unicast_link_local();
            !is_local && source.segments()[0] != 0 && source != Ipv6Addr::UNSPECIFIED
        }
    }
}

/// Whether an address is the port's own, or means its network or all hosts of it.
fn is_own(source: Ipv4Addr, own: u32, len: u8) -> bool {
    let hosts = u32::MAX.checked_shr(len.into()).unwrap_or(0);
    let near = (source.to_bits() ^ own) & !hosts == 0;
    let part = source.to_bits() & hosts;
    source.to_bits() == own || len < 31 && near && (part == 0 || part == hosts)
}

/// Whether the ingress port passes the reverse-path check for the source.
fn is_expected(check: ReversePath, came_by: PortId, back: impl FnOnce() -> ForwardDecision) -> bool {
    if check == ReversePath::Off {
        return true;
    }
    let way = back();
    let leads = matches!(way.outcome, Outcome::Forward | Outcome::Unresolved | Outcome::Failed);
    leads && (check == ReversePath::Loose || way.port == came_by)
}

impl Element for LookupNextHop {
    fn push(&mut self, input: usize, batch: &mut Batch, cx: &mut Context<'_>) {
        let turn = cx.turn();
        cx.drop_monitored(Level::L3, batch);
        for mut packet in batch.drain() {
            match self.decide_forwarding(&packet, PortId(input as u16), turn) {
                Some(ForwardDecision { link, port, .. }) => {
                    let [a, b, c, d, e, f, ..] = link.bits().to_le_bytes();
                    packet.set_annotation(LINK_ADDRESS, [a, b, c, d, e, f]);
                    cx.send(port.0.into(), packet);
                }
                None => {
                    packet.set_annotation(anno::PAINT, [input as u8]);
                    cx.send(self.exception_output, packet);
                }
            }
        }
    }
}
