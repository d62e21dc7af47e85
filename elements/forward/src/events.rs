//! Recent events of a router, in a bounded numbered queue.
//!
//! Whoever changes the tables records the event while holding them, so events are in the order of the
//! changes. A reader asks for events from a number on, and learns how many of those were already dropped.
use crate::shared::SharedRouter;
use artery_l3::PortId;
use artery_l3::neighbor::{Action, Happened};
use artery_l3::next_hop::Hop;
use artery_l3::router::{Ip, PortAction, PortView, Tables};
use artery_lpm::Address;
use artery_lpm::load::AnyPrefix;
use artery_wire::{BfdDiagnostic, BfdState, EtherAddr};
use std::collections::{BTreeSet, HashSet, VecDeque};
use std::net::IpAddr;
use std::time::Duration;

/// Capacity of the queue, in events.
const MOST: usize = 10_000;

/// Up to this many unusable gateways are kept without a check whether routes still use them.
const MANY_DOWN: usize = 1024;

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Event {
    /// A neighbor changed its state.
    Neighbor { port: PortId, address: IpAddr, what: Happened },
    /// An address of the router changed its state.
    Address { port: PortId, address: IpAddr, what: AddressEvent },
    /// A route was added, replaced or removed.
    Route { prefix: AnyPrefix, what: RouteEvent },
    /// A port changed its state.
    Port { port: PortId, what: PortEvent },
    /// A gateway became usable for its routes, or unusable.
    NextHop { port: PortId, gateway: IpAddr, is_up: bool },
    /// A BFD session changed its state. The diagnostic says why it last went down.
    Bfd { port: PortId, peer: IpAddr, state: BfdState, diagnostic: BfdDiagnostic },
}

/// What can happen to an address of the router.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AddressEvent {
    /// Another host uses it; with that host's link address, if it is known.
    Duplicate(Option<EtherAddr>),
    /// Another host used it once, and the router defended it.
    Defended(Option<EtherAddr>),
    /// No other host uses it: the router owns it from now on.
    Claimed,
    /// The port has it now.
    Added,
    /// The address was removed from the port.
    Removed,
}

/// What can happen to a route.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RouteEvent {
    /// The prefix had no route before.
    Added,
    /// It has other next hops now.
    Replaced,
    /// The route of the prefix was removed.
    Removed,
}

/// What can happen to a port.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PortEvent {
    /// Its link came up.
    Up,
    /// Its link went down.
    Down,
    /// Packets on its link have another greatest length.
    Mtu(u16),
    /// It has another link address.
    LinkAddress(EtherAddr),
}

/// An event with its number and its time, since the epoch.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NumberedEvent {
    /// Its number; they count from 0.
    pub seq: u64,
    pub time: Duration,
    pub event: Event,
}

/// The events from some number on.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RecentEvents {
    /// The events that are still in the queue.
    pub events: Vec<NumberedEvent>,
    /// How many events were dropped before them.
    pub lost: u64,
    /// The number of the next event that will happen.
    pub next: u64,
}

/// A gateway: the port on whose link it is, and its address.
type Gateway = (PortId, IpAddr);

#[derive(Default)]
pub struct Events {
    events: VecDeque<NumberedEvent>,
    next: u64,
    /// Gateways that can't be used: no more than twice as many as routes have, and some.
    down: HashSet<Gateway>,
    /// At this number of unusable gateways, those without a route are removed.
    many_down: usize,
    /// Addresses of the router that other hosts use.
    duplicates: Vec<(PortId, IpAddr)>,
    /// The ports when their changes were last recorded.
    ports: Vec<PortView>,
}

impl Events {
    /// Of a router with these ports.
    pub fn new(ports: Vec<PortView>) -> Events {
        Events { ports, ..Events::default() }
    }

    /// Appends an event, and drops the oldest one if the queue is full.
    pub fn push(&mut self, time: Duration, event: Event) {
        self.track_duplicates(&event);
        if self.events.len() >= MOST {
            self.events.pop_front();
        }
        self.events.push_back(NumberedEvent { seq: self.next, time, event });
        self.next += 1;
    }

    /// The events from number `since` on. A number that was never given is one of an earlier run:
    /// then they are all.
    pub fn events_since(&self, since: u64) -> RecentEvents {
        let since = if since > self.next { 0 } else { since };
        let oldest = self.next - self.events.len() as u64;
        let skipped = since.saturating_sub(oldest) as usize;
        let events = self.events.iter().skip(skipped).cloned().collect();
        RecentEvents { events, lost: oldest.saturating_sub(since), next: self.next }
    }

    /// The number of the next event.
    pub fn next_number(&self) -> u64 {
        self.next
    }

    /// Addresses of a port that other hosts use.
    pub fn duplicates(&self, port: PortId) -> impl Iterator<Item = IpAddr> + '_ {
        self.duplicates.iter().filter(move |(of, _)| *of == port).map(|(_, address)| *address)
    }

    fn track_duplicates(&mut self, event: &Event) {
        let Event::Address { port, address, what } = event else { return };
        let own = (*port, *address);
        match what {
            AddressEvent::Defended(_) => {}
            AddressEvent::Duplicate(_) if self.duplicates.contains(&own) => {}
            AddressEvent::Duplicate(_) => self.duplicates.push(own),
            _ => self.duplicates.retain(|other| *other != own),
        }
    }

    /// Records that a gateway of routes became usable or unusable, if that changed.
    fn set_next_hop(&mut self, time: Duration, port: PortId, gateway: IpAddr, is_up: bool) {
        let was_up = !self.down.contains(&(port, gateway));
        if is_up == was_up {
            return;
        }
        if is_up {
            self.down.remove(&(port, gateway));
        } else {
            self.down.insert((port, gateway));
        }
        self.push(time, Event::NextHop { port, gateway, is_up });
    }

    /// Removes gateways that no route uses, if there are many unusable ones.
    fn forget_gone(&mut self, gateways: impl FnOnce() -> HashSet<Gateway>) {
        if self.down.len() >= self.many_down {
            let gateways = gateways();
            self.down.retain(|gateway| gateways.contains(gateway));
            self.many_down = MANY_DOWN.max(2 * self.down.len());
        }
    }
}

impl SharedRouter {
    /// Records an event. Call it while holding the tables, or without a change of them.
    pub fn record_event(&self, now: Duration, event: Event) {
        self.lock_events().push(now, event);
    }

    /// Records an event of a port's engine, which [`Tables::drain_actions`] returned.
    pub fn record_action(&self, now: Duration, tables: &Tables, port: PortId, action: &PortAction) {
        match action {
            PortAction::V4(Action::Event(event)) => {
                self.record_neighbor_event(now, tables, port, event.address, event.what);
            }
            PortAction::V6(Action::Event(event)) => {
                self.record_neighbor_event(now, tables, port, event.address, event.what);
            }
            _ => {}
        }
    }

    fn record_neighbor_event<A: Ip>(
        &self,
        now: Duration,
        tables: &Tables,
        port: PortId,
        address: A,
        what: Happened,
    ) {
        let to = address.to_ip();
        let is_up = match what {
            Happened::Failed => Some(false),
            Happened::Resolved(_) | Happened::Moved { .. } => Some(true),
            _ => None,
        };
        let mut events = self.lock_events();
        events.push(now, Event::Neighbor { port, address: to, what });
        let is_up = is_up.map(|is_up| is_up && !tables.is_path_down(port, to));
        let is_next_hop = || tables.neighbor(port, address, now).is_some_and(|view| view.pins > 0);
        if let Some(is_up) = is_up.filter(|_| is_next_hop()) {
            events.set_next_hop(now, port, to, is_up);
            events.forget_gone(|| route_gateways(tables).collect());
        }
    }

    /// Records the state of a BFD session and of its gateway, if they changed.
    pub fn record_bfd_event(
        &self,
        now: Duration,
        tables: &Tables,
        (port, peer): Gateway,
        news: Option<(BfdState, BfdDiagnostic)>,
    ) {
        let mut events = self.lock_events();
        if let Some((state, diagnostic)) = news {
            events.push(now, Event::Bfd { port, peer, state, diagnostic });
        }
        if let Some(is_up) = tables.is_gateway_usable(port, peer) {
            events.set_next_hop(now, port, peer, is_up);
            events.forget_gone(|| route_gateways(tables).collect());
        }
    }

    /// Records the changes of ports since the last call, and the gateways that became usable
    /// or unusable by them.
    pub fn record_port_changes(&self, now: Duration, tables: &Tables, ports: &[PortView]) {
        let mut events = self.lock_events();
        if events.ports == ports {
            return;
        }
        let before = std::mem::replace(&mut events.ports, ports.to_vec());
        for (number, (was, is)) in before.iter().zip(ports).enumerate() {
            let port = PortId(number as u16);
            port_events(port, was, is, |event| events.push(now, event));
            if was.is_up != is.is_up {
                let here: BTreeSet<Gateway> = route_gateways(tables).filter(|(at, _)| *at == port).collect();
                for (_, gateway) in here {
                    let is_up = is.is_up && !tables.is_path_down(port, gateway);
                    events.set_next_hop(now, port, gateway, is_up);
                }
            }
        }
        events.forget_gone(|| route_gateways(tables).collect());
    }
}

/// What has changed at a port.
fn port_events(port: PortId, was: &PortView, is: &PortView, mut tell: impl FnMut(Event)) {
    let mut tell_port = |what| tell(Event::Port { port, what });
    if was.is_up != is.is_up {
        tell_port(if is.is_up { PortEvent::Up } else { PortEvent::Down });
    }
    if was.mtu != is.mtu {
        tell_port(PortEvent::Mtu(is.mtu));
    }
    if was.address != is.address {
        tell_port(PortEvent::LinkAddress(is.address));
    }
    let (had, has) = (port_addresses(was), port_addresses(is));
    let mut tell = |address: &IpAddr, what| tell(Event::Address { port, address: *address, what });
    had.difference(&has).for_each(|address| tell(address, AddressEvent::Removed));
    has.difference(&had).for_each(|address| tell(address, AddressEvent::Added));
}

fn port_addresses(port: &PortView) -> BTreeSet<IpAddr> {
    let v4 = port.v4.iter().map(|(own, _)| own.to_ip());
    v4.chain(port.v6.iter().map(|(own, _)| own.to_ip())).collect()
}

/// The gateways that routes have, some of them more than once.
fn route_gateways(tables: &Tables) -> impl Iterator<Item = Gateway> {
    let hops = tables.group_views().into_iter().flat_map(|group| group.members).map(|member| member.hop);
    hops.filter_map(Hop::gateway)
}

impl AddressEvent {
    /// The event in a word, as people and documents in JSON say it.
    pub fn name(self) -> &'static str {
        match self {
            AddressEvent::Duplicate(_) => "duplicate",
            AddressEvent::Defended(_) => "defended",
            AddressEvent::Claimed => "claimed",
            AddressEvent::Added => "added",
            AddressEvent::Removed => "removed",
        }
    }
}

impl RouteEvent {
    /// The event in a word, as people and documents in JSON say it.
    pub fn name(self) -> &'static str {
        match self {
            RouteEvent::Added => "added",
            RouteEvent::Replaced => "replaced",
            RouteEvent::Removed => "removed",
        }
    }
}

impl PortEvent {
    /// The event in a word, as people and documents in JSON say it.
    pub fn name(self) -> &'static str {
        match self {
            PortEvent::Up => "up",
            PortEvent::Down => "down",
            PortEvent::Mtu(_) => "mtu",
            PortEvent::LinkAddress(_) => "lladdr",
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn port(number: u16, what: PortEvent) -> Event {
        Event::Port { port: PortId(number), what }
    }
    fn numbers(lately: &RecentEvents) -> Vec<u64> {
        lately.events.iter().map(|event| event.seq).collect()
    }

    #[test]
    fn a_reader_gets_what_happened_since_and_hears_what_is_lost() {
        let mut events = Events::default();
        assert_eq!(events.events_since(0), RecentEvents::default());
        for count in 0..MOST as u64 + 5 {
            events.push(Duration::from_secs(count), port(0, PortEvent::Up));
        }
        let all = events.events_since(0);
        assert_eq!((all.events.len(), all.lost, all.next), (MOST, 5, MOST as u64 + 5));
        assert_eq!(numbers(&all).first(), Some(&5));
        let last = events.events_since(MOST as u64 + 3);
        assert_eq!((numbers(&last), last.lost), (vec![MOST as u64 + 3, MOST as u64 + 4], 0));
        assert!(numbers(&events.events_since(all.next)).is_empty());
    }

    #[test]
    fn a_number_of_an_earlier_run_is_answered_with_all() {
        let mut events = Events::default();
        events.push(Duration::ZERO, port(1, PortEvent::Mtu(9000)));
        assert_eq!((numbers(&events.events_since(77)), events.events_since(77).lost), (vec![0], 0));
    }

    #[test]
    fn a_duplicate_address_is_known_until_it_is_ours_again() {
        let (mut events, address) = (Events::default(), "10.0.0.1".parse().unwrap());
        let event = |what| Event::Address { port: PortId(2), address, what };
        for _ in 0..2 {
            events.push(Duration::ZERO, event(AddressEvent::Duplicate(None)));
        }
        assert_eq!(events.duplicates(PortId(2)).collect::<Vec<_>>(), [address]);
        assert_eq!(events.duplicates(PortId(1)).count(), 0);
        events.push(Duration::ZERO, event(AddressEvent::Claimed));
        assert_eq!(events.duplicates(PortId(2)).count(), 0);
    }

    #[test]
    fn a_gateway_goes_down_once_and_comes_up_once() {
        let (mut events, gateway) = (Events::default(), "10.0.0.9".parse().unwrap());
        for is_up in [true, false, false, true, true] {
            events.set_next_hop(Duration::ZERO, PortId(0), gateway, is_up);
        }
        let told: Vec<bool> = (events.events_since(0).events.iter())
            .map(|event| matches!(event.event, Event::NextHop { is_up: true, .. }))
            .collect();
        assert_eq!(told, [false, true]);
    }

    #[test]
    fn gateways_that_no_route_has_any_more_are_forgotten_before_they_are_many() {
        let (mut events, port) = (Events::default(), PortId(0));
        let gateway = |n: u32| IpAddr::V4(n.into());
        for n in 0..100_000 {
            events.set_next_hop(Duration::ZERO, port, gateway(n), false);
            // Routes use the first gateway, and the last one that was added.
            events.forget_gone(|| [0, n].map(|n| (port, gateway(n))).into());
            assert!(events.down.len() <= MANY_DOWN, "{n}");
        }
        let before = events.next_number();
        events.set_next_hop(Duration::ZERO, port, gateway(0), true);
        assert_eq!(events.next_number(), before + 1, "the first one was known to be down");
    }

    #[test]
    fn as_many_gateways_are_known_to_be_down_as_routes_have() {
        let mut events = Events::default();
        let all: HashSet<Gateway> =
            (0..5 * MANY_DOWN as u32).map(|n| (PortId(1), IpAddr::V4(n.into()))).collect();
        for (port, gateway) in &all {
            events.set_next_hop(Duration::ZERO, *port, *gateway, false);
            events.forget_gone(|| all.clone());
        }
        assert_eq!(events.down, all);
    }
}
