//! The router's own addresses on its links, including virtual ones: probed, announced, and defended (RFC
//! 5227, RFC 4862 section 5.4).
//!
//! Claims follow the ports as they are; a change of a port or an address needs no extra call here. The router
//! does not answer for an address that is still being probed or that another host has, and does not use it as
//! a source. The address's routes stay, so that packets of other hosts are still forwarded.
use artery_l3::PortId;
use artery_l3::neighbor::claim::{Claim, ClaimEffect, ClaimEvent, ClaimSettings, OwnAddress};
use artery_l3::router::PortView;
use artery_lpm::Prefix;
use artery_wire::EtherAddr;
use artery_wire::Random;
use std::collections::BTreeMap;
use std::net::IpAddr;
use std::time::Duration;

/// An address of a port.
pub(crate) type PortAddress = (PortId, IpAddr);

/// An action that a claim requires.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct ClaimAction {
    pub(crate) port: PortId,
    pub(crate) address: IpAddr,
    pub(crate) effect: ClaimEffect,
}

/// The state of a port that claims of its addresses depend on.
#[derive(Clone, Copy, PartialEq, Eq)]
struct KnownPort {
    is_up: bool,
    address: EtherAddr,
}

pub(crate) struct Claims {
    v4: ClaimSettings,
    v6: ClaimSettings,
    claims: BTreeMap<PortAddress, Claim>,
    ports: Vec<KnownPort>,
    /// Which version of the ports that is.
    version: Option<u64>,
    random: Random,
    effects: Vec<ClaimEffect>,
}

impl Claims {
    /// Of no address yet.
    pub(crate) fn new(v4: ClaimSettings, v6: ClaimSettings, seed: u64) -> Claims {
        let (claims, ports, version, effects) = Default::default();
        Claims { v4, v6, claims, ports, version, random: Random::new(seed), effects }
    }

    /// Whether this is another version of the ports than that of the last call.
    pub(crate) fn is_news(&mut self, version: u64) -> bool {
        self.version.replace(version) != Some(version)
    }

    /// Follows what has changed at the ports.
    pub(crate) fn sync_ports(&mut self, ports: &[PortView], now: Duration, into: &mut Vec<ClaimAction>) {
        let wanted: Vec<PortAddress> =
            (0..).map(PortId).zip(ports).flat_map(|(id, port)| port_addresses(id, port)).collect();
        self.claims.retain(|own, _| wanted.contains(own));
        let before = std::mem::take(&mut self.ports);
        self.ports =
            ports.iter().map(|port| KnownPort { is_up: port.is_up, address: port.address }).collect();
        for own in wanted {
            let place = usize::from(own.0.0);
            let is_new = !self.claims.contains_key(&own);
            self.claims.entry(own).or_default();
            let (was, is) = (before.get(place).copied(), self.ports[place]);
            let was_up = !is_new && was.is_some_and(|was| was.is_up);
            match (was_up, is.is_up) {
                (false, true) => self.step_claim(own, ClaimEvent::Up, now, into),
                (true, false) => self.step_claim(own, ClaimEvent::Down, now, into),
                (true, true) if was != Some(is) => self.step_claim(own, ClaimEvent::LinkAddress, now, into),
                _ => {}
            }
        }
    }

    /// Advances claims whose timers are due; returns the next deadline.
    pub(crate) fn poll(&mut self, now: Duration, into: &mut Vec<ClaimAction>) -> Option<Duration> {
        let is_due =
            |(own, claim): (&PortAddress, &Claim)| claim.deadline().filter(|due| *due <= now).map(|_| *own);
        let due: Vec<PortAddress> = self.claims.iter().filter_map(is_due).collect();
        due.into_iter().for_each(|own| self.step_claim(own, ClaimEvent::Timer, now, into));
        self.claims.values().filter_map(Claim::deadline).min()
    }

    /// Handles another host's use of an address of the router.
    pub(crate) fn report_conflict(
        &mut self,
        own: PortAddress,
        with: EtherAddr,
        now: Duration,
        into: &mut Vec<ClaimAction>,
    ) {
        if self.claims.contains_key(&own) {
            self.step_claim(own, ClaimEvent::Conflict(with), now, into);
        }
    }

    /// Whether an address of the router may be used.
    pub(crate) fn is_usable(&self, own: PortAddress) -> bool {
        self.claims.get(&own).is_some_and(Claim::is_usable)
    }
    /// How far the claim of an address is.
    #[cfg(test)]
    fn state(&self, own: PortAddress) -> Option<artery_l3::neighbor::claim::ClaimState> {
        self.claims.get(&own).map(Claim::state)
    }
    /// How many addresses may not be used.
    pub(crate) fn unusable_count(&self) -> usize {
        self.claims.values().filter(|claim| !claim.is_usable()).count()
    }
    /// A port's IPv4 addresses, virtual ones too.
    pub(crate) fn ipv4_addresses(&self, id: PortId, port: &PortView) -> Vec<OwnAddress<u32>> {
        let own = |(address, len): &(u32, u8)| {
            let is_tentative = !self.is_usable((id, IpAddr::V4((*address).into())));
            OwnAddress { address: *address, network: Prefix::of(*address, *len), is_tentative }
        };
        port.v4.iter().chain(&port.virtual_v4).map(own).collect()
    }
    /// A port's IPv6 addresses, virtual ones too, the link-local one last.
    pub(crate) fn ipv6_addresses(&self, id: PortId, port: &PortView) -> Vec<OwnAddress<u128>> {
        let own = |(address, len): (u128, u8)| {
            let is_tentative = !self.is_usable((id, IpAddr::V6(address.into())));
            OwnAddress { address, network: Prefix::of(address, len), is_tentative }
        };
        let own_v6 = port.v6.iter().chain(&port.virtual_v6).copied();
        own_v6.chain([(port.link_local, 64)]).map(own).collect()
    }
    /// Restores the claims of the replaced router, whose ports have these numbers here: its addresses need
    /// not be probed again.
    pub(crate) fn restore_claims(
        &mut self,
        old: &mut Claims,
        new: impl Fn(PortId) -> Option<PortId>,
        ports: usize,
    ) {
        self.version = None;
        let unknown = KnownPort { is_up: false, address: EtherAddr::ZERO };
        self.ports = vec![unknown; ports];
        for (id, known) in (0..).map(PortId).zip(std::mem::take(&mut old.ports)) {
            if let Some(place) = new(id).and_then(|id| self.ports.get_mut(usize::from(id.0))) {
                *place = known;
            }
        }
        let taken = std::mem::take(&mut old.claims).into_iter();
        self.claims =
            taken.filter_map(|((port, address), claim)| Some(((new(port)?, address), claim))).collect();
    }

    fn step_claim(
        &mut self,
        own: PortAddress,
        event: ClaimEvent,
        now: Duration,
        into: &mut Vec<ClaimAction>,
    ) {
        let Claims { v4, v6, claims, random, effects, .. } = self;
        let Some(claim) = claims.get_mut(&own) else { return };
        let settings = if own.1.is_ipv4() { v4 } else { v6 };
        claim.step(event, now, settings, random, effects);
        let (port, address) = own;
        into.extend(effects.drain(..).map(|effect| ClaimAction { port, address, effect }));
    }
}

/// All addresses of a port.
fn port_addresses(id: PortId, port: &PortView) -> impl Iterator<Item = PortAddress> + '_ {
    let v4 = port.v4.iter().chain(&port.virtual_v4).map(|(address, _)| IpAddr::V4((*address).into()));
    let v6 = port.v6.iter().chain(&port.virtual_v6).map(|(address, _)| *address).chain([port.link_local]);
    v4.chain(v6.map(|address| IpAddr::V6(address.into()))).map(move |address| (id, address))
}

#[cfg(test)]
mod tests {
    use super::super::verdict::testing::{A, B, NOW, small};
    use super::*;
    use artery_l3::neighbor::claim::ClaimState;

    fn claims() -> Claims {
        Claims::new(ClaimSettings::arp().without_probes(), ClaimSettings::nd(), 1)
    }
    fn run(claims: &mut Claims, from: Duration, to: Duration, into: &mut Vec<ClaimAction>) {
        let mut now = from;
        while let Some(due) = claims.poll(now, into).filter(|due| *due <= to) {
            now = due;
        }
    }

    #[test]
    fn addresses_are_claimed_with_their_port_and_used_when_nobody_has_them() {
        let (small, mut claims, mut actions) = (small(), claims(), Vec::new());
        let ports = small.tables.ports();
        claims.sync_ports(&ports, NOW, &mut actions);
        assert!(claims.is_usable((A, "10.0.1.1".parse().unwrap())), "without probes");
        assert_eq!(claims.unusable_count(), 4);
        run(&mut claims, NOW, NOW + Duration::from_secs(5), &mut actions);
        assert_eq!(claims.unusable_count(), 0);
        let probes = actions.iter().filter(|action| action.effect == ClaimEffect::SendProbe);
        assert_eq!(probes.count(), 4, "two addresses of each port");
        actions.clear();
        claims.sync_ports(&ports, NOW + Duration::from_secs(6), &mut actions);
        assert_eq!(actions, [], "nothing has changed");
    }

    #[test]
    fn an_address_that_another_station_has_is_not_used_until_it_is_free() {
        let (small, mut claims, mut actions) = (small(), claims(), Vec::new());
        claims.sync_ports(&small.tables.ports(), NOW, &mut actions);
        let own = (B, "2001:db8:2::1".parse().unwrap());
        claims.report_conflict(own, EtherAddr([2; 6]), NOW, &mut actions);
        run(&mut claims, NOW, NOW + Duration::from_secs(30), &mut actions);
        assert_eq!((claims.state(own), claims.unusable_count()), (Some(ClaimState::Lost), 1));
        run(&mut claims, NOW + Duration::from_secs(30), NOW + Duration::from_secs(90), &mut actions);
        assert!(claims.is_usable(own));
    }

    #[test]
    fn a_port_that_comes_back_claims_its_addresses_anew_and_another_link_address_is_told() {
        let (mut small, mut claims, mut actions) = (small(), claims(), Vec::new());
        claims.sync_ports(&small.tables.ports(), NOW, &mut actions);
        let own = (A, "10.0.1.1".parse().unwrap());
        let is_told = |action: &ClaimAction| {
            (action.port, action.address) == own && action.effect == ClaimEffect::SendAnnouncement
        };
        let told = |actions: &mut Vec<ClaimAction>| actions.drain(..).filter(is_told).count();
        assert_eq!(told(&mut actions), 1);
        small.tables.set_up(A, false, NOW).unwrap();
        claims.sync_ports(&small.tables.ports(), NOW, &mut actions);
        assert!(!claims.is_usable(own));
        small.tables.set_up(A, true, NOW).unwrap();
        claims.sync_ports(&small.tables.ports(), NOW, &mut actions);
        assert_eq!((claims.is_usable(own), told(&mut actions)), (true, 1));
        small.tables.set_link_address(A, EtherAddr([2, 9, 9, 9, 9, 9]), NOW).unwrap();
        claims.sync_ports(&small.tables.ports(), NOW, &mut actions);
        assert_eq!(told(&mut actions), 1);
    }
}
