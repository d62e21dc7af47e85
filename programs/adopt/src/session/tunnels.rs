//! Adopted tunnels: how their outer packets leave, and whether they arrive here, which the kernel is asked;
//! and which sessions of PPPoE there are.
//!
//! The kernel alone knows what becomes of a packet of its own: rules for it, and the path MTU that routers
//! have told it. It is asked after each change, and each second, since it notifies of no path MTU.
use super::routes::{RouteAnswer, RouteQuestion};
use super::{Error, Session};
use crate::blockers::{self, Blocker, Port, PortTunnel};
use crate::fast::{self, PppoeSession, TunnelRoute, Withheld};
use crate::kernel::{Family, IpTunnel, Link, Rule, Selectors};
use crate::mirror::RouteCondition;
use crate::pppoe;
use std::collections::BTreeSet;
use std::io;

/// The bits of a type of service that routes may be chosen by: all but ECN. Older kernels take fewer.
const ROUTED_TOS: u8 = 0xfc;

impl Session {
    /// Asks the kernel again how outer packets of tunnels leave, and which addresses are its own.
    pub(super) fn follow_tunnels(&mut self) -> Result<(), Error> {
        self.follow_sessions();
        let known: Vec<(u32, Option<IpTunnel>)> =
            self.accelerator.tunnels().map(|(link, tunnel)| (link, tunnel.cloned())).collect();
        let failed = |error| Error::Kernel("asking for routes", error);
        for (link, tunnel) in known {
            let route = match tunnel.as_ref().filter(|tunnel| self.is_route_known(tunnel)) {
                Some(tunnel) => find_route(tunnel).map_err(failed)?,
                None => None,
            };
            let is_local = match tunnel.filter(|_| self.is_delivery_known()) {
                Some(tunnel) => is_local(&tunnel).map_err(failed)?,
                None => false,
            };
            let route = route.map(|route| self.with_mtu(route));
            self.accelerator.set_tunnel_routes(link, route, is_local);
        }
        let unplaced: BTreeSet<u32> = self.accelerator.tunnels_without_room().collect();
        self.needs_resync |= unplaced != self.unplaced_tunnels;
        self.unplaced_tunnels = unplaced;
        Ok(())
    }

    /// Reads again which sessions of PPPoE there are, where that can be read.
    fn follow_sessions(&mut self) {
        for port in &self.ports {
            let Some(PortTunnel::Ppp(Some(carrier))) = &port.tunnel else { continue };
            let Ok(listed) = pppoe::find_only(carrier) else { continue };
            let session = match listed {
                Ok(listed) => {
                    let link = self.driver.mirror().links().find(|link| link.name == *carrier);
                    let Some(carrier) = link.map(|link| link.index) else { continue };
                    Some(PppoeSession { carrier, peer: listed.peer, session: listed.number })
                }
                Err(_) => None,
            };
            // A line says so.
            self.needs_resync |= self.accelerator.set_session(port.index, session);
        }
    }

    /// The interfaces of PPP among these ports that were there without the session that there is now, and the
    /// tunnels without room in the programs' table.
    pub(super) fn find_tunnel_blockers(&self, ports: &[Port]) -> Vec<Blocker> {
        let is_lost = |port: &&Port| self.accelerator.has_lost_session(port.index);
        let lost = ports.iter().filter(is_lost).filter_map(blockers::lost_session);
        let is_unplaced = |port: &&Port| self.unplaced_tunnels.contains(&port.index);
        lost.chain(ports.iter().filter(is_unplaced).map(blockers::tunnel_without_room)).collect()
    }

    /// Whether the kernel's answer about a packet of its own holds for those that arrive: no rule chooses by
    /// more than destinations, or for one of them alone.
    fn is_delivery_known(&self) -> bool {
        let inherits = fast::INHERITED_TOS;
        self.driver.mirror().ipv4_rules().iter().all(|rule| can_be_asked(&rule.selectors, inherits))
    }

    /// Whether all packets of a tunnel leave by the same route, and the kernel answers with that. It takes no
    /// protocol but TCP, UDP and ICMP in a question, so rules that choose by protocol, port or user would
    /// answer for other packets, as those that choose by what each packet within has.
    fn is_route_known(&self, tunnel: &IpTunnel) -> bool {
        let mirror = self.driver.mirror();
        let inherits = tunnel.tos & fast::INHERITED_TOS != 0;
        let is_by_tos = |condition: &RouteCondition| *condition == RouteCondition::TypeOfService;
        let mut prefixes = mirror.excluded_prefixes();
        let has_routes = prefixes.any(|one| one.family == Family::V4 && is_by_tos(&one.condition));
        let is_certain = |rule: &Rule| can_be_asked(&rule.selectors, tunnel.tos);
        mirror.ipv4_rules().iter().all(is_certain) && !(inherits && has_routes)
    }

    /// The MTU of a route is that of its interface where the kernel says none.
    fn with_mtu(&self, route: TunnelRoute) -> TunnelRoute {
        let below = |link: &&Link| link.index == route.neighbor.0;
        let mtu = self.driver.mirror().links().find(below).map_or(0, |link| link.mtu);
        TunnelRoute { mtu: route.mtu.min(mtu), ..route }
    }

    /// Leaves to the kernel what would leave or arrive by a tunnel where anything keeps it, or keeps
    /// the frames that it would be in.
    pub(super) fn withhold_tunnels(&mut self, ports: &[Port], guards: &[Blocker]) {
        for port in ports.iter().filter(|port| port.is_tunnel()) {
            for family in [Family::V4, Family::V6] {
                let is_kept = |blocks: Blocks| {
                    guards.iter().any(|guard| keeps_tunnel(guard, port, ports, family, blocks))
                };
                let from = is_kept(Blocker::blocks_from);
                let to = is_kept(Blocker::blocks_to).then_some(Withheld::Policy);
                self.accelerator.set_withheld(family, port.index, from, to);
            }
        }
    }
}

/// What a blocker says of packets of a family that come by a port, or leave by it.
pub(super) type Blocks = fn(&Blocker, &Port, Family) -> bool;

/// Whether something keeps what leaves or arrives by a tunnel, or the frames that it would be in; those of a
/// session are at one of these ports.
pub(super) fn keeps_tunnel(
    guard: &Blocker,
    port: &Port,
    ports: &[Port],
    family: Family,
    blocks: Blocks,
) -> bool {
    match &port.tunnel {
        Some(PortTunnel::Ppp(carrier)) => {
            let carrier = ports.iter().find(|other| Some(&other.name) == carrier.as_ref());
            !guard.is_passed && blocks(guard, port, family)
                || carrier.is_some_and(|carrier| keeps_frames(guard, carrier, blocks))
        }
        // Outer packets are of IPv4, and of no connection that goes past rules.
        _ => blocks(guard, port, family) || guard.port.is_none() && blocks(guard, port, Family::V4),
    }
}

/// Whether something is about all frames of the interface that carries a session, not about a family.
fn keeps_frames(guard: &Blocker, carrier: &Port, blocks: Blocks) -> bool {
    guard.port.is_some() && guard.family.is_none() && blocks(guard, carrier, Family::V4)
}

/// Whether a question for a route can have all that a rule chooses outer packets by, of a tunnel with this
/// type of service. A tunnel that inherits it may also be sent by tables that only rules for the machine
/// lead to.
fn can_be_asked(rule: &Selectors, tos: u8) -> bool {
    let Selectors { protocol, source_ports, destination_ports, users, others, .. } = rule;
    let is_by_more = protocol.is_some()
        || source_ports.is_some()
        || destination_ports.is_some()
        || users.is_some()
        || !others.is_empty();
    let is_by_tos = rule.tos.is_some() && tos != 0;
    let is_of_machine = rule.input.as_deref() == Some("lo") && tos & fast::INHERITED_TOS != 0;
    !(is_by_more || is_by_tos || is_of_machine)
}

/// Asks the kernel for the route of outer packets of a tunnel; none where it has none, or where a packet
/// needs more than a next hop.
fn find_route(tunnel: &IpTunnel) -> io::Result<Option<TunnelRoute>> {
    let question = RouteQuestion {
        source: (!tunnel.local.is_unspecified()).then_some(tunnel.local.into()),
        tos: if tunnel.tos & fast::INHERITED_TOS == 0 { tunnel.tos & ROUTED_TOS } else { 0 },
        output: tunnel.lower,
        ..RouteQuestion::to(tunnel.remote.into())
    };
    match question.ask_kernel() {
        Ok(answer) => Ok(read_route(tunnel, &answer)),
        // No route, or the machine does not have the source address: the kernel sends nothing either.
        Err(error) if fast::is_shortage(&error) => Err(error),
        Err(_) => Ok(None),
    }
}

/// Whether the outer address of a tunnel is one of the machine.
fn is_local(tunnel: &IpTunnel) -> io::Result<bool> {
    // What comes for 127.0.0.0/8 the kernel drops, unless route_localnet is set.
    if tunnel.local.is_unspecified() || tunnel.local.is_loopback() {
        return Ok(false);
    }
    match RouteQuestion::to(tunnel.local.into()).ask_kernel() {
        Ok(answer) => Ok(answer.kind == RouteAnswer::LOCAL),
        Err(error) if fast::is_shortage(&error) => Err(error),
        Err(_) => Ok(false),
    }
}

fn read_route(tunnel: &IpTunnel, answer: &RouteAnswer) -> Option<TunnelRoute> {
    // Outer packets of a route with a locked MTU may be cut into fragments.
    if answer.kind != RouteAnswer::UNICAST || answer.is_mtu_locked || answer.encapsulates {
        return None;
    }
    let source = answer.source.unwrap_or(tunnel.local);
    let link = answer.output.filter(|_| !source.is_unspecified())?;
    Some(TunnelRoute {
        neighbor: (link, answer.gateway.unwrap_or(tunnel.remote.into())),
        source,
        mtu: answer.mtu.unwrap_or(u32::MAX),
    })
}

#[cfg(test)]
mod tests {
    use super::super::routes::tests::{answer, mtu};
    use super::*;
    use crate::kernel::TunnelProtocol;
    use std::net::Ipv4Addr;

    const TUNNEL: IpTunnel = IpTunnel {
        protocol: TunnelProtocol::Gre,
        local: Ipv4Addr::new(192, 0, 2, 1),
        remote: Ipv4Addr::new(198, 51, 100, 1),
        ttl: 0,
        tos: 0,
        lower: None,
        option: None,
    };

    #[test]
    fn an_answer_says_how_outer_packets_leave() {
        let route = |kind, more: &[Vec<u8>]| {
            read_route(&TUNNEL, &RouteAnswer::parse(&answer(kind, more)).expect("it is an answer"))
        };
        let direct = TunnelRoute { neighbor: (7, TUNNEL.remote.into()), source: TUNNEL.local, mtu: u32::MAX };
        assert_eq!(route(RouteAnswer::UNICAST, &[]), Some(direct));
        assert_eq!(route(RouteAnswer::LOCAL, &[]), None, "it is for the machine");
        let expected = TunnelRoute { mtu: 1400, ..direct };
        assert_eq!(route(RouteAnswer::UNICAST, &[mtu(1400, false)]), Some(expected));
        assert_eq!(route(RouteAnswer::UNICAST, &[mtu(500, true)]), None);
    }

    #[test]
    fn rules_that_a_question_can_not_have_leave_the_route_unknown() {
        let plain = Selectors { to: Some((TUNNEL.remote.into(), 32)), ..Selectors::default() };
        assert!([0, 0x48, fast::INHERITED_TOS].iter().all(|tos| can_be_asked(&plain, *tos)));
        let gre = Selectors { protocol: Some(47), input: Some("lo".to_string()), ..plain.clone() };
        let dscp = Selectors { others: vec![(25, vec![18])], ..plain.clone() };
        assert!(!can_be_asked(&gre, 0) && !can_be_asked(&dscp, 0));
        let tos = Selectors { tos: Some(0x10), ..plain.clone() };
        assert_eq!([0, 0x48, fast::INHERITED_TOS].map(|of| can_be_asked(&tos, of)), [true, false, false]);
        let machine = Selectors { input: Some("lo".to_string()), ..plain };
        assert_eq!([0, fast::INHERITED_TOS].map(|of| can_be_asked(&machine, of)), [true, false]);
    }
}
