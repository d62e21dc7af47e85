//! Adopted tunnels: interfaces without a program, whose packets leave by another port behind one more header,
//! and arrive so.
use super::super::hops::{TunnelExit, TunnelNextHop};
use super::super::layout::{OuterEnds, OuterIpv4, TunnelHeader, TunnelInput};
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

/// A session of PPPoE.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PppoeSession {
    /// The interface whose frames it is in.
    pub carrier: u32,
    /// The link address of the other end.
    pub peer: EtherAddr,
    /// The session's number, from the other end.
    pub session: u16,
}

/// What a tunnel does with packets, as far as that is known.
enum TunnelPath {
    OverIpv4 {
        /// What it is, unless its options leave its packets to the kernel.
        settings: Option<IpTunnel>,
        route: Option<TunnelRoute>,
        /// Whether the kernel takes packets to the outer address for its own.
        is_local: bool,
    },
    Pppoe(SessionState),
}

/// What is known of the session of an interface of PPP.
///
/// The interface comes when its session has begun. So one that was there without the session, or with another
/// one, may belong to something else that got the name, and its packets stay with the kernel for as long
/// as that interface is there.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum SessionState {
    New,
    Known(PppoeSession),
    Lost,
}

impl SessionState {
    fn session(&self) -> Option<PppoeSession> {
        match self {
            SessionState::Known(session) => Some(*session),
            SessionState::New | SessionState::Lost => None,
        }
    }

    /// The state after a look at the sessions that there are.
    fn after(self, found: Option<PppoeSession>) -> SessionState {
        match (self, found) {
            (SessionState::New, Some(session)) => SessionState::Known(session),
            (SessionState::Known(old), Some(session)) if old == session => self,
            _ => SessionState::Lost,
        }
    }
}

/// A tunnel that packets leave and arrive by.
struct AdoptedTunnel {
    port: u32,
    mtu: u32,
    is_up: bool,
    path: TunnelPath,
}

impl AdoptedTunnel {
    fn exit(&self) -> Option<TunnelExit> {
        if !self.is_up {
            return None;
        }
        let (next_hop, header, mtu) = match &self.path {
            TunnelPath::OverIpv4 { settings, route, .. } => {
                let (tunnel, route) = (settings.as_ref()?, route.as_ref()?);
                let header = TunnelHeader::Ipv4(OuterIpv4 {
                    source: route.source,
                    destination: tunnel.remote,
                    protocol: tunnel.protocol,
                    ttl: tunnel.ttl,
                    tos: tunnel.tos,
                });
                let (link, address) = route.neighbor;
                (TunnelNextHop::Neighbor(link, address), header, route.mtu)
            }
            TunnelPath::Pppoe(state) => {
                let PppoeSession { carrier, peer, session } = state.session()?;
                // The carrier's own MTU is minded where frames leave by it.
                (TunnelNextHop::Peer(carrier, peer), TunnelHeader::Pppoe { session }, u32::MAX)
            }
        };
        let mtu = self.mtu.min(mtu.saturating_sub(header.length() as u32));
        Some(TunnelExit { next_hop, header, mtu, port: self.port })
    }

    /// The outer header of what arrives; frames of sessions arrive at a port of this number.
    fn input(&self, port_of: impl Fn(u32) -> Option<u32>) -> Option<TunnelInput> {
        if !self.is_up {
            return None;
        }
        let outer = match &self.path {
            TunnelPath::OverIpv4 { settings, is_local, .. } => {
                let tunnel = settings.as_ref().filter(|_| *is_local)?;
                let IpTunnel { remote: source, local: destination, protocol, .. } = *tunnel;
                OuterEnds::Ipv4 { source, destination, protocol }
            }
            TunnelPath::Pppoe(state) => {
                let PppoeSession { carrier, peer, session } = state.session()?;
                OuterEnds::Pppoe { peer, session, carrier: port_of(carrier)? }
            }
        };
        Some(TunnelInput { outer, port: self.port })
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
    /// Has packets leave and arrive by a tunnel. None do before it is set as a link, and its
    /// route or session, too.
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
        let path = TunnelPath::OverIpv4 { settings: None, route: None, is_local: false };
        let tunnel = AdoptedTunnel { port, mtu: 0, is_up: false, path };
        self.tunnels.adopted.insert(link, tunnel);
        Ok(())
    }

    /// Whether an interface is an adopted tunnel.
    pub fn is_tunnel(&self, link: u32) -> bool {
        self.tunnels.adopted.contains_key(&link)
    }

    /// Whether programs take the header off what arrives by an adopted tunnel.
    pub fn takes_off_header(&self, link: u32) -> bool {
        self.tunnels.inputs.is_placed(link)
    }

    /// The adopted tunnels that have no room in the table that programs look up.
    pub fn tunnels_without_room(&self) -> impl Iterator<Item = u32> {
        self.tunnels.inputs.unplaced()
    }

    /// The adopted tunnels over IPv4, and what they are, if nothing leaves their packets to the kernel.
    pub fn tunnels(&self) -> impl Iterator<Item = (u32, Option<&IpTunnel>)> {
        self.tunnels.adopted.iter().filter_map(|(link, tunnel)| match &tunnel.path {
            TunnelPath::OverIpv4 { settings, .. } => Some((*link, settings.as_ref())),
            TunnelPath::Pppoe(_) => None,
        })
    }

    /// Notes how outer packets of a tunnel leave, or that the kernel is to send them, and whether packets to
    /// its outer address are for this machine.
    pub fn set_tunnel_routes(&mut self, link: u32, new_route: Option<TunnelRoute>, is_here: bool) {
        let Some(tunnel) = self.tunnels.adopted.get_mut(&link) else { return };
        let TunnelPath::OverIpv4 { route, is_local, .. } = &mut tunnel.path else { return };
        (*route, *is_local) = (new_route, is_here);
        self.apply_tunnel(link);
    }

    /// Notes the only session of PPPoE that there is for an adopted interface of PPP, if there is one. Once
    /// it is another one, or none, all packets are the kernel's; says whether that is so now and was not.
    pub fn set_session(&mut self, link: u32, found: Option<PppoeSession>) -> bool {
        let Some(tunnel) = self.tunnels.adopted.get_mut(&link) else { return false };
        let TunnelPath::Pppoe(state) = &mut tunnel.path else { return false };
        let before = std::mem::replace(state, state.after(found));
        let is_lost = *state == SessionState::Lost && before != SessionState::Lost;
        self.apply_tunnel(link);
        is_lost
    }

    /// Whether an adopted interface of PPP was there without the session that there is now.
    pub fn has_lost_session(&self, link: u32) -> bool {
        let tunnel = self.tunnels.adopted.get(&link);
        tunnel.is_some_and(|tunnel| matches!(tunnel.path, TunnelPath::Pppoe(SessionState::Lost)))
    }

    /// Whether an interface is an adopted session of PPPoE, whose packets pass no other rules than those for
    /// packets that are forwarded.
    pub(super) fn is_session(&self, link: u32) -> bool {
        let tunnel = self.tunnels.adopted.get(&link);
        tunnel.is_some_and(|tunnel| matches!(tunnel.path, TunnelPath::Pppoe(_)))
    }

    /// Has programs know what a tunnel is now.
    fn apply_tunnel(&mut self, link: u32) {
        let Some(tunnel) = self.tunnels.adopted.get(&link) else { return };
        let port_of = |carrier: u32| Some(self.members.get(&carrier)?.port);
        let (exit, input) = (tunnel.exit(), tunnel.input(port_of));
        self.hops.set_tunnel(&self.memory, link, exit);
        self.tunnels.inputs.set(&self.memory, link, input);
    }

    /// The same for all sessions, whose carriers may have other ports now.
    pub(super) fn apply_sessions(&mut self) {
        let sessions: Vec<u32> =
            self.tunnels.adopted.keys().copied().filter(|link| self.is_session(*link)).collect();
        sessions.into_iter().for_each(|link| self.apply_tunnel(link));
    }

    /// Notes what a tunnel is now. Its route is that of before, and is asked for again.
    pub(super) fn set_tunnel_link(&mut self, link: &Link) {
        let Some(tunnel) = self.tunnels.adopted.get_mut(&link.index) else { return };
        match (&link.kind, &mut tunnel.path) {
            (LinkKind::Tunnel(new), TunnelPath::OverIpv4 { settings, route, is_local }) => {
                let new = Some(new.clone()).filter(|new| new.option.is_none());
                if *settings != new {
                    (*settings, *route, *is_local) = (new, None, false);
                }
            }
            (LinkKind::Ppp, path @ TunnelPath::OverIpv4 { .. }) => {
                *path = TunnelPath::Pppoe(SessionState::New)
            }
            _ => {}
        }
        (tunnel.mtu, tunnel.is_up) = (link.mtu, link.is_admin_up && link.has_carrier);
        // No frame has this address. Where another tunnel gets the number of this one's port, it tells the
        // two apart, so that no run of a program goes by flags of the one for packets of the other.
        let [a, b, c, d] = link.index.to_be_bytes();
        let mac = EtherAddr([0, 0, a, b, c, d]);
        let member = RoutedPort { port: tunnel.port, carrier: None, mac, is_up: tunnel.is_up };
        self.apply_tunnel(link.index);
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_interface_that_was_there_without_its_session_never_gets_one() {
        let session = |number| PppoeSession { carrier: 7, peer: EtherAddr([2; 6]), session: number };
        let state = SessionState::New.after(Some(session(1)));
        assert_eq!(state.session(), Some(session(1)));
        assert_eq!(state.after(Some(session(1))), state);
        for found in [Some(session(2)), None] {
            assert_eq!(state.after(found).after(Some(session(1))).session(), None);
            assert_eq!(state.after(found).after(found).session(), None);
        }
        assert_eq!(SessionState::New.after(None).after(Some(session(1))).session(), None);
    }
}
