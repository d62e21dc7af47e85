//! Neighbors, by port: calls are passed on to the port's engine, and what comes of them to next hops.
use super::{Ip, PortSpec, RouterError, Tables};
use crate::PortId;
use crate::neighbor::arp::ArpProtocol;
use crate::neighbor::nd::NdProtocol;
use crate::neighbor::{
    Action, External, Happened, Key, Kind, L2Engine, NeighborCounters, NeighborEntry, NeighborIds,
    NeighborLimits, NeighborTable, NeighborUpdate, NeighborView, NudSettings, PortChange, Resolution,
};
use artery_wire::EtherAddr;
use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

/// How often gateways that don't answer are solicited again, where the protocol lets them.
const RETRY: Duration = Duration::from_secs(1);

/// Makes the neighbor engines of a port.
pub trait Engines: Send {
    /// Makes the engine of a port's IPv4 neighbors.
    fn engine_v4(&mut self, port: PortId, spec: &PortSpec) -> Box<dyn L2Engine<u32>>;
    /// Makes the engine of a port's IPv6 neighbors.
    fn engine_v6(&mut self, port: PortId, spec: &PortSpec) -> Box<dyn L2Engine<u128>>;
}

/// ARP and Neighbor Discovery of our own.
pub struct OwnEngines {
    places: Arc<NeighborIds>,
    /// What random times follow from.
    seed: u64,
    /// Of ports that are added from now on.
    pub arp: NudSettings,
    /// Of ports that are added from now on.
    pub nd: NudSettings,
    /// Of ports that are added from now on, for each family.
    pub limits: NeighborLimits,
}

impl OwnEngines {
    /// With the settings of the standards.
    pub fn new(places: &Arc<NeighborIds>, seed: u64) -> OwnEngines {
        OwnEngines {
            places: places.clone(),
            seed,
            arp: NudSettings::arp(),
            nd: NudSettings::nd(),
            limits: NeighborLimits::default(),
        }
    }
}

impl Engines for OwnEngines {
    fn engine_v4(&mut self, port: PortId, _: &PortSpec) -> Box<dyn L2Engine<u32>> {
        let protocol = ArpProtocol { settings: self.arp };
        Box::new(NeighborTable::new(&self.places, protocol, self.limits, self.seed ^ u64::from(port.0)))
    }
    fn engine_v6(&mut self, port: PortId, _: &PortSpec) -> Box<dyn L2Engine<u128>> {
        let protocol = NdProtocol { settings: self.nd };
        Box::new(NeighborTable::new(&self.places, protocol, self.limits, !self.seed ^ u64::from(port.0)))
    }
}

/// Neighbors that another program resolves: see [`External`].
pub struct ExternalEngines(Arc<NeighborIds>);

impl ExternalEngines {
    /// With as many neighbors as there is room for.
    pub fn new(places: &Arc<NeighborIds>) -> ExternalEngines {
        ExternalEngines(places.clone())
    }

    fn new_table<A: Key>(&self) -> Box<dyn L2Engine<A>> {
        Box::new(NeighborTable::new(&self.0, External, NeighborLimits::default(), 0))
    }
}

impl Engines for ExternalEngines {
    fn engine_v4(&mut self, _: PortId, _: &PortSpec) -> Box<dyn L2Engine<u32>> {
        self.new_table()
    }
    fn engine_v6(&mut self, _: PortId, _: &PortSpec) -> Box<dyn L2Engine<u128>> {
        self.new_table()
    }
}

/// What a port's engine wants done, or known.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PortAction {
    /// The one for IPv4.
    V4(Action<u32>),
    /// The one for IPv6.
    V6(Action<u128>),
}

impl Tables {
    /// What to do with a packet to a neighbor whose word is not ready.
    pub fn resolve_neighbor<A: Ip>(
        &mut self,
        port: PortId,
        address: A,
        now: Duration,
    ) -> Result<Resolution, RouterError> {
        self.on_engine(port, |engine: &mut dyn L2Engine<A>| engine.resolve(address, now))
    }

    /// Takes what a message says about a neighbor. Only one that is `for_us` may make
    /// an unknown neighbor known.
    pub fn learn_neighbor<A: Ip>(
        &mut self,
        port: PortId,
        address: A,
        heard: NeighborUpdate,
        for_us: bool,
        now: Duration,
    ) -> Result<(), RouterError> {
        self.on_engine(port, |engine: &mut dyn L2Engine<A>| {
            engine.learn_neighbor(address, heard, for_us, now)
        })
    }

    /// Takes the word of a protocol above that what was sent has arrived.
    pub fn confirm_neighbor<A: Ip>(
        &mut self,
        port: PortId,
        address: A,
        now: Duration,
    ) -> Result<(), RouterError> {
        self.on_engine(port, |engine: &mut dyn L2Engine<A>| engine.confirm_neighbor(address, now))
    }

    /// Sets a neighbor's link address, whatever was known.
    pub fn set_neighbor(
        &mut self,
        port: PortId,
        address: IpAddr,
        link: EtherAddr,
        kind: Kind,
        now: Duration,
    ) -> Result<(), RouterError> {
        let set = match address {
            IpAddr::V4(own) => {
                self.on_engine(port, |engine| engine.set_neighbor(own.to_bits(), link, kind, now))
            }
            IpAddr::V6(own) => {
                self.on_engine(port, |engine| engine.set_neighbor(own.to_bits(), link, kind, now))
            }
        };
        Ok(set??)
    }

    /// What is known of a port's neighbors that were not set by hand, for the tables of a successor.
    pub fn learned_neighbors<A: Ip>(&self, port: PortId) -> Vec<(A, NeighborEntry)> {
        let engine = A::side(self).engines.get(usize::from(port.0));
        engine.map_or(Vec::new(), |engine| engine.learned_entries())
    }

    /// Takes over what the tables of a replaced router knew of a neighbor: its state and its timers go on.
    pub fn restore_neighbor<A: Ip>(
        &mut self,
        port: PortId,
        address: A,
        entry: NeighborEntry,
        now: Duration,
    ) -> Result<(), RouterError> {
        let restore = |engine: &mut dyn L2Engine<A>| engine.restore_neighbor(address, entry, now);
        Ok(self.on_engine(port, restore)??)
    }

    /// Forgets a neighbor, static ones too, and says whether it was known.
    pub fn delete_neighbor(
        &mut self,
        port: PortId,
        address: IpAddr,
        now: Duration,
    ) -> Result<bool, RouterError> {
        match address {
            IpAddr::V4(own) => self.on_engine(port, |engine| engine.delete_neighbor(own.to_bits(), now)),
            IpAddr::V6(own) => self.on_engine(port, |engine| engine.delete_neighbor(own.to_bits(), now)),
        }
    }

    /// Forgets all neighbors of a port and a family but static ones, and says how many.
    pub fn flush_neighbors<A: Ip>(&mut self, port: PortId, now: Duration) -> Result<usize, RouterError> {
        self.on_engine(port, |engine: &mut dyn L2Engine<A>| engine.flush_neighbors(now))
    }

    /// What is known of all neighbors of a port in a family, by address.
    pub fn neighbors<A: Ip>(&self, port: PortId, now: Duration) -> Vec<NeighborView<A>> {
        let engine = A::side(self).engines.get(usize::from(port.0));
        engine.map_or(Vec::new(), |engine| engine.entries(now))
    }

    /// What is known of one neighbor.
    pub fn neighbor<A: Ip>(&self, port: PortId, address: A, now: Duration) -> Option<NeighborView<A>> {
        A::side(self).engines.get(usize::from(port.0))?.find_neighbor(address, now)
    }

    /// What the engine of a port has counted.
    pub fn neighbor_counters<A: Ip>(&self, port: PortId) -> NeighborCounters {
        let engine = A::side(self).engines.get(usize::from(port.0));
        engine.map_or(NeighborCounters::default(), |engine| engine.counters())
    }

    /// Does what is due and says when there is more to do; `now` if at once.
    pub fn poll(&mut self, now: Duration) -> Option<Duration> {
        self.retry_failed(now);
        let next = [self.poll_side::<u32>(now), self.poll_side::<u128>(now), self.hops.poll(now)];
        self.hops.publish_adjacencies();
        if self.retry.is_none() && self.hops.failed_gateways().next().is_some() {
            self.retry = Some(now + RETRY);
        }
        next.into_iter().chain([self.retry]).flatten().min()
    }

    fn poll_side<A: Ip>(&mut self, now: Duration) -> Option<Duration> {
        let ports = 0..A::side(self).engines.len() as u16;
        let mut poll = |port| self.on_engine(PortId(port), |engine: &mut dyn L2Engine<A>| engine.poll(now));
        ports.filter_map(|port| poll(port).ok().flatten()).min()
    }

    /// Retries gateways that were taken out of their groups: they get no packets, so nothing
    /// else would solicit them.
    fn retry_failed(&mut self, now: Duration) {
        if self.retry.is_none_or(|retry| now < retry) {
            return;
        }
        self.retry = None;
        let failed: Vec<(PortId, IpAddr)> = self.hops.failed_gateways().collect();
        for (port, gateway) in failed {
            // Answers are reported. A gateway that cannot be solicited now is retried next time.
            let _ = match gateway {
                IpAddr::V4(own) => self.resolve_neighbor(port, own.to_bits(), now),
                IpAddr::V6(own) => self.resolve_neighbor(port, own.to_bits(), now),
            };
        }
    }

    /// Moves what ports' engines want done, and what happened, to the end of `into`, in order.
    pub fn drain_actions(&mut self, into: &mut Vec<(PortId, PortAction)>) {
        into.append(&mut self.actions);
    }

    /// Says that a gateway is not to be used where a route has others, or that it is again, and whether a
    /// route has it. For callers that check gateways by other means.
    pub fn withdraw_gateway(&mut self, port: PortId, gateway: IpAddr, is_withdrawn: bool) -> bool {
        let is_known = self.hops.set_withdrawn((port, gateway), is_withdrawn);
        self.hops.publish_adjacencies();
        is_known
    }

    /// The path to a gateway is down, or up again, by a protocol that watches it (BFD, RFC 5882 section 5).
    /// While it is down no route uses the gateway. Packets of a route that has no other end as
    /// [`Outcome::NextHopDown`]. This holds for routes that come later, too.
    ///
    /// [`Outcome::NextHopDown`]: crate::path::Outcome::NextHopDown
    pub fn set_path_down(&mut self, port: PortId, gateway: IpAddr, is_down: bool) {
        self.hops.set_path_down((port, gateway), is_down);
        self.hops.publish_adjacencies();
    }

    /// Whether the path to a gateway is down, as set by [`set_path_down`](Self::set_path_down).
    pub fn is_path_down(&self, port: PortId, gateway: IpAddr) -> bool {
        self.hops.is_path_down((port, gateway))
    }

    /// Whether routes use a gateway now: its port and the path to it are up, and its neighbor answers as far
    /// as is known. None if no route has it.
    pub fn is_gateway_usable(&self, port: PortId, gateway: IpAddr) -> Option<bool> {
        self.hops.is_usable((port, gateway))
    }

    /// Lets gateways that came back take their whole share in resilient groups now.
    pub fn rebalance_groups(&mut self) {
        self.hops.rebalance_all();
        self.hops.publish_adjacencies();
    }

    pub(super) fn notify_engines(
        &mut self,
        port: PortId,
        change: PortChange,
        now: Duration,
    ) -> Result<(), RouterError> {
        self.on_engine(port, |engine: &mut dyn L2Engine<u32>| engine.port_changed(change, now))?;
        self.on_engine(port, |engine: &mut dyn L2Engine<u128>| engine.port_changed(change, now))
    }

    /// Does something with the engine of a port, and what comes of it.
    fn on_engine<A: Ip, T>(
        &mut self,
        port: PortId,
        act: impl FnOnce(&mut dyn L2Engine<A>) -> T,
    ) -> Result<T, RouterError> {
        let done = act(A::split_tables(self).0.engine_of(port)?);
        self.collect_actions::<A>(port);
        Ok(done)
    }

    /// Takes over what an engine wants done, and lets next hops follow what happened.
    pub(super) fn collect_actions<A: Ip>(&mut self, port: PortId) {
        let mut actions = Vec::new();
        if let Some(engine) = A::split_tables(self).0.engines.get_mut(usize::from(port.0)) {
            engine.drain_actions(&mut actions);
        }
        for action in actions {
            if let Action::Event(event) = action {
                match event.what {
                    Happened::Failed => self.hops.set_failed(event.id, true),
                    Happened::Resolved(_) | Happened::Moved { .. } => self.hops.set_failed(event.id, false),
                    _ => {}
                }
            }
            self.actions.push((port, A::port_action(action)));
        }
        self.hops.publish_adjacencies();
    }
}
