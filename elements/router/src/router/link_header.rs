use artery_engine::{Arg, ArgError, Args, Class, Context, DropReason, Packet, Simple};
use artery_forward::shared::{self, LINK_ADDRESS, SharedRouter};
use artery_l3::PortId;
use artery_wire::{EtherAddr, EtherType, Ethernet};
use std::sync::Arc;

pub static CLASS: Class = Class {
    name: "LinkHeader",
    group: "router",
    summary: "puts a link header in front of IP packets that leave by a port",
    manual: "
Expects IPv4 or IPv6 packets that LookupNextHop has found a next hop for, data starting at the IP header. Puts
an Ethernet header in front: to the next hop's link address, from the address of PORT, a port of ROUTER, an
IPRouter.",
    example: "\
ip :: IPRouter(PORT eth1 10.0.1.1/24 ETHER 2:0:0:0:0:1, PORT eth2 10.0.2.1/24 ETHER 2:0:0:0:0:2);
Idle -> ip; ip[0] -> Discard;
Idle -> hop :: LookupNextHop(ip);
hop[0] -> Discard;
hop[1] -> LinkHeader(ip, eth2) -> Discard;
hop[2] -> Discard;",
    args: &[
        Arg::required("ROUTER", "element", "the IPRouter that has the port"),
        Arg::required("PORT", "name", "the port"),
    ],
    build: |args| Ok(Box::new(LinkHeader::new(args)?)),
    ..Class::PER_WORKER
};

struct LinkHeader {
    router: Arc<SharedRouter>,
    port: PortId,
}

impl LinkHeader {
    fn new(args: &Args<'_>) -> Result<LinkHeader, ArgError> {
        let router = shared::find_router(args)?;
        let name: String = args.read("PORT")?;
        let port = router.lock_tables().find_port(&name);
        let unknown = || ArgError::wrong_at(&name, format!("{} has no port called '{name}'", router.name()));
        let port = port.ok_or_else(unknown)?;
        Ok(LinkHeader { router, port })
    }

    fn prepend_header(&self, packet: &mut Packet, source: EtherAddr) -> Result<(), DropReason> {
        let kind = match packet.data().first().map(|first| first >> 4) {
            Some(4) => EtherType::IPV4,
            Some(6) => EtherType::IPV6,
            _ => return Err(DropReason::Malformed),
        };
        let to = EtherAddr(packet.annotation(LINK_ADDRESS));
        let header = packet.prepend(Ethernet::<&[u8]>::LEN)?;
        // What was there before may have a tag in its type.
        header.fill(0);
        let mut header = Ethernet::new(header)?;
        header.set_dst(to);
        header.set_src(source);
        header.set_ether_type(kind);
        Ok(())
    }
}

impl Simple for LinkHeader {
    fn process(&mut self, packet: Packet, cx: &mut Context<'_>) -> Option<Packet> {
        let ports = self.router.readers().ports.read(cx.turn());
        let source = ports.get(usize::from(self.port.0)).map_or(EtherAddr::ZERO, |port| port.address);
        cx.edit_or_discard(packet, |packet| self.prepend_header(packet, source))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use artery_engine::Bench;

    #[test]
    fn without_a_router_of_that_name_there_is_no_element() {
        assert!(Bench::config_error(&CLASS, "ip, eth1").contains("does not name an element"));
    }
}
