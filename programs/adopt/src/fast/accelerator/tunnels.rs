//! Adopted tunnels: interfaces without a program, whose packets leave by another port behind one more header,
//! and arrive so.
use super::super::hops::TunnelExit;
use super::super::layout::{TunnelHeader, TunnelInput, header_length};
use super::super::memory::Memory;
use super::super::tunnel_inputs::TunnelInputs;
use super::{Accelerator, Error, RoutedPort};
use crate::kernel::{IpTunnel, Link, LinkKind};
use artery_wire::EtherAddr;
use std::collections::BTreeMap;
use std::net::{IpAddr, Ipv4Addr};

/// How outer packets of a tunnel leave the machine.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TunnelRoute {
    /// The interface that they leave by, and their next hop there.
    pub neighbor: (u32, IpAddr),
    /// Their source: that of the tunnel, or the one that the kernel chooses.
    pub source: Ipv4Addr,
    /// Most bytes of an outer packet.
    pub mtu: u32,
}

/// A tunnel that packets leave and arrive by.
struct AdoptedTunnel {
    port: u32,
    mtu: u32,
    is_up: bool,
    /// What it is, unless its options leave its packets to the kernel.
    settings: Option<IpTunnel>,
    route: Option<TunnelRoute>,
    /// Whether the kernel takes packets to the outer address for its own.
    is_local: bool,
}

impl AdoptedTunnel {
    fn exit(&self) -> Option<TunnelExit> {
        let (tunnel, route) = (self.settings.as_ref()?, self.route.filter(|_| self.is_up)?);
        let header = TunnelHeader {
            source: route.source,
            destination: tunnel.remote,
            protocol: tunnel.protocol,
            ttl: tunnel.ttl,
            tos: tunnel.tos,
        };
        let mtu = self.mtu.min(route.mtu.saturating_sub(header_length(tunnel.protocol) as u32));
        Some(TunnelExit { neighbor: route.neighbor, header, mtu, port: self.port })
    }

    fn input(&self) -> Option<TunnelInput> {
        let tunnel = self.settings.as_ref().filter(|_| self.is_up && self.is_local)?;
        let (source, destination) = (tunnel.remote, tunnel.local);
        Some(TunnelInput { source, destination, protocol: tunnel.protocol, port: self.port })
    }
}

/// The adopted tunnels, by their interfaces.
#[derive(Default)]
pub(super) struct Tunnels {
    adopted: BTreeMap<u32, AdoptedTunnel>,
    inputs: TunnelInputs,
}

impl Tunnels {
    /// Whether something waits for runs of programs to end.
    pub(super) fn is_waiting(&self) -> bool {
        self.inputs.is_waiting()
    }

    /// All runs have ended that had begun before the last change.
    pub(super) fn reclaim_waiting(&mut self, memory: &Memory) {
        self.inputs.reclaim_waiting(memory);
    }
}

impl Accelerator {
    /// Has packets leave and arrive by a tunnel. None do before it is set as a link, and its route is set.
    pub fn adopt_tunnel(&mut self, link: u32) -> Result<(), Error> {
        let port = *self.free_ports.first().ok_or(Error::TooManyPorts)?;
        self.adopt_tunnel_as(link, port)
    }

    /// The same for one that takes the place of one that is gone, and continues its counters.
    pub fn adopt_tunnel_again(&mut self, link: u32, number: u32) -> Result<(), Error> {
        match self.free_ports.contains(&number) {
            true => self.adopt_tunnel_as(link, number),
            false => self.adopt_tunnel(link),
        }
    }

    fn adopt_tunnel_as(&mut self, link: u32, port: u32) -> Result<(), Error> {
        if !self.memory.has_tunnels {
            self.memory.has_tunnels = true;
            if let Err(error) = self.replace_all_programs() {
                self.memory.has_tunnels = false;
                return Err(error);
            }
        }
        self.free_ports.remove(&port);
        let tunnel =
            AdoptedTunnel { port, mtu: 0, is_up: false, settings: None, route: None, is_local: false };
        self.tunnels.adopted.insert(link, tunnel);
        Ok(())
    }

    /// Whether an interface is an adopted tunnel.
    pub fn is_tunnel(&self, link: u32) -> bool {
        self.tunnels.adopted.contains_key(&link)
    }

    /// The adopted tunnels, and what they are, if nothing leaves their packets to the kernel.
    pub fn tunnels(&self) -> impl Iterator<Item = (u32, Option<&IpTunnel>)> {
        self.tunnels.adopted.iter().map(|(link, tunnel)| (*link, tunnel.settings.as_ref()))
    }

    /// Notes how outer packets of a tunnel leave, or that the kernel is to send them, and whether packets to
    /// its outer address are for this machine.
    pub fn set_tunnel_routes(&mut self, link: u32, route: Option<TunnelRoute>, is_local: bool) {
        let Some(tunnel) = self.tunnels.adopted.get_mut(&link) else { return };
        (tunnel.route, tunnel.is_local) = (route, is_local);
        self.hops.set_tunnel(&self.memory, link, tunnel.exit());
        self.tunnels.inputs.set(&self.memory, link, tunnel.input());
    }

    /// Notes what a tunnel is now. Its route is that of before, and is asked for again.
    pub(super) fn set_tunnel_link(&mut self, link: &Link) {
        let LinkKind::Tunnel(settings) = &link.kind else { return };
        let Some(tunnel) = self.tunnels.adopted.get_mut(&link.index) else { return };
        let settings = Some(settings.clone()).filter(|settings| settings.option.is_none());
        if tunnel.settings != settings {
            (tunnel.settings, tunnel.route, tunnel.is_local) = (settings, None, false);
        }
        (tunnel.mtu, tunnel.is_up) = (link.mtu, link.is_admin_up && link.has_carrier);
        // No frame has this address. Where another tunnel gets the number of this one's port, it tells the
        // two apart, so that no run of a program goes by flags of the one for packets of the other.
        let [a, b, c, d] = link.index.to_be_bytes();
        let mac = EtherAddr([0, 0, a, b, c, d]);
        let member = RoutedPort { port: tunnel.port, carrier: None, mac, is_up: tunnel.is_up };
        self.hops.set_tunnel(&self.memory, link.index, tunnel.exit());
        self.tunnels.inputs.set(&self.memory, link.index, tunnel.input());
        self.groups.set_port(&self.memory, link.index, Some(member.port));
        self.members.insert(link.index, member);
        let member = &self.members[&link.index];
        let record = member.port_record(link.index, self.port_flags(link.index));
        self.memory.set_port(member.port, &record);
    }

    /// Forgets a tunnel that is gone.
    pub(super) fn remove_tunnel(&mut self, link: u32) {
        self.groups.remove_tunnel(link);
        self.hops.set_tunnel(&self.memory, link, None);
        self.tunnels.inputs.set(&self.memory, link, None);
        if let Some(tunnel) = self.tunnels.adopted.remove(&link) {
            self.free_ports.insert(tunnel.port);
        }
    }

    /// Frames that were sent by tunnels whose outer packets leave by an interface.
    pub(super) fn sent_by_tunnels(&self, link: u32) -> u64 {
        let leaves_by = |(tunnel, _): &(&u32, &AdoptedTunnel)| {
            let below = self.hops.link_below(**tunnel);
            let carrier = below.and_then(|below| self.members.get(&below)?.carrier);
            carrier.map_or(below, |(carrier, _)| Some(carrier)) == Some(link)
        };
        let sent = |(_, tunnel): (&u32, &AdoptedTunnel)| self.memory.sent_frames(tunnel.port);
        self.tunnels.adopted.iter().filter(leaves_by).map(sent).sum()
    }
}
