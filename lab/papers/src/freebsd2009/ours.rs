//! E: our own tables, as `IPForward` asks them: a batch at a time, in turns.

use super::guard::SeqCounter;
use super::network::{Control, INTERFACES, Interface, Mac, Packet, Sender, Sent};
use super::tree::Full;
use artery_l3::PortId;
use artery_l3::neighbor::{Kind, Link};
use artery_l3::next_hop::Hop;
use artery_l3::path::{ForwardDecision, Outcome, PathReader};
use artery_l3::router::{OwnEngines, PortSpec, RouteSpec, Settings, Tables};
use artery_lpm::Prefix;
use artery_lpm::load::AnyPrefix;
use artery_rcu::{Domain, Reader};
use artery_wire::EtherAddr;
use std::collections::BTreeSet;
use std::net::{IpAddr, Ipv4Addr};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

/// Nothing here depends on the time: neighbors are static.
const NOW: Duration = Duration::ZERO;

/// The tables of a router.
pub(super) struct Ours {
    domain: Arc<Domain>,
    tables: Mutex<Tables>,
    /// Addresses of neighbors, to know how many go with a network.
    known: Mutex<BTreeSet<u32>>,
    /// How often anything has changed.
    generation: SeqCounter,
}

fn numbered(address: u32) -> IpAddr {
    Ipv4Addr::from_bits(address).into()
}

/// The router's own address in a network: the last but one.
fn own(prefix: Prefix<u32>) -> IpAddr {
    numbered(prefix.last() - 1)
}

impl Ours {
    pub(super) fn new() -> anyhow::Result<Ours> {
        Ours::with(Settings::default())
    }

    /// The same that forward by ART: they are laid out with few stores, for those who trace each.
    pub(super) fn in_art() -> anyhow::Result<Ours> {
        let (policy_v4, policy_v6) = ("art:8/4/4/4/4/4/4".parse()?, "art".parse()?);
        Ours::with(Settings { policy_v4, policy_v6, ..Settings::default() })
    }

    fn with(settings: Settings) -> anyhow::Result<Ours> {
        let domain = Domain::new();
        let mut tables =
            Tables::new(&domain, settings, |places, seed| Box::new(OwnEngines::new(places, seed)))?;
        for port in 0..INTERFACES {
            tables.add_port(PortSpec::new(&format!("em{port}"), EtherAddr([2, 0, 0, 0, 0, port as u8])))?;
        }
        let (tables, known) = (Mutex::new(tables), Mutex::new(BTreeSet::new()));
        Ok(Ours { domain, tables, known, generation: SeqCounter::default() })
    }

    fn tables(&self) -> MutexGuard<'_, Tables> {
        self.tables.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Changes tables, and says so to who remembers what they said.
    fn change<T>(&self, change: impl FnOnce(&mut Tables) -> T) -> T {
        let mut tables = self.tables();
        self.generation.change(|| change(&mut tables))
    }

    /// How often anything has changed.
    pub(super) fn generation(&self) -> &SeqCounter {
        &self.generation
    }

    /// What a thread reads by, and its turns.
    pub(super) fn readers(&self) -> (PathReader<u32>, Reader) {
        (self.tables().readers().v4, self.domain.reader())
    }

    /// For a thread that sends.
    pub(super) fn sender(&self) -> OurSender {
        let (path, turns) = self.readers();
        OurSender { path, turns, addresses: Vec::new(), decisions: Vec::new() }
    }

    fn known(&self) -> MutexGuard<'_, BTreeSet<u32>> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// How many neighbors the tables have.
    #[cfg(test)]
    fn neighbors(&self) -> usize {
        let tables = self.tables();
        (0..INTERFACES).map(|port| tables.neighbors::<u32>(PortId(port as u16), NOW).len()).sum()
    }
}

/// The port on whose link an address is.
fn port_of(tables: &Tables, address: u32) -> Option<PortId> {
    let route = tables.lookup_route(numbered(address))?;
    match tables.group_member(route.group, 0)? {
        Hop::OnLink { port, .. } => Some(port),
        Hop::Gateway { .. } | Hop::End { .. } => None,
    }
}

impl Control for Ours {
    fn connect(&self, prefix: Prefix<u32>, interface: Interface) -> Result<(), Full> {
        self.change(|tables| tables.add_address(PortId(interface), own(prefix), prefix.len()))
            .map_err(|_| Full)
    }

    fn disconnect(&self, prefix: Prefix<u32>) -> usize {
        self.change(|tables| {
            let Some(port) = tables.address_owner(own(prefix)) else { return 0 };
            // There is nothing to be said about routes that go along: there are none.
            let _ = tables.remove_address(port, own(prefix), NOW);
            let mut known = self.known();
            let mut gone = known.split_off(&prefix.first());
            known.append(&mut gone.split_off(&prefix.last()));
            gone.len()
        })
    }

    fn add_route(&self, prefix: Prefix<u32>, gateway: u32) -> Result<(), Full> {
        let (prefix, spec) = (AnyPrefix::V4(prefix), RouteSpec::via(numbered(gateway)));
        self.change(|tables| tables.replace_route(prefix, &spec, NOW)).map_err(|_| Full)
    }

    fn delete_route(&self, prefix: Prefix<u32>) -> bool {
        self.change(|tables| tables.delete_route(AnyPrefix::V4(prefix), NOW)).is_ok()
    }

    fn learn(&self, address: u32, mac: Mac) -> Vec<Packet> {
        let [_, _, bytes @ ..] = mac.bits().to_be_bytes();
        self.change(|tables| {
            let Some(port) = port_of(tables, address) else { return };
            // If the table is full, the neighbor stays unknown, which packets then show.
            let set = tables.set_neighbor(port, numbered(address), EtherAddr(bytes), Kind::Static, NOW);
            if set.is_ok() {
                self.known().insert(address);
            }
        });
        Vec::new()
    }

    fn forget(&self, address: u32) -> bool {
        self.change(|tables| {
            let Some(port) = port_of(tables, address) else { return false };
            self.known().remove(&address);
            tables.delete_neighbor(port, numbered(address), NOW).unwrap_or(false)
        })
    }
}

/// A thread that sends. Packets that must wait are the worker's to keep, not the tables'.
pub(super) struct OurSender {
    path: PathReader<u32>,
    turns: Reader,
    addresses: Vec<u32>,
    decisions: Vec<ForwardDecision>,
}

impl Sender for OurSender {
    #[inline]
    fn send(&mut self, packets: &[Packet], sent: &mut Vec<Sent>) {
        let turn = self.turns.turn();
        self.addresses.clear();
        self.addresses.extend(packets.iter().map(|packet| packet.destination));
        self.path.lookup_path_batch(&turn, &self.addresses, |_, _| 0, &mut self.decisions);
        sent.clear();
        sent.extend(self.decisions.iter().map(sent_by));
    }
}

/// What becomes of a packet that was decided about.
#[inline]
pub(super) fn sent_by(decision: &ForwardDecision) -> Sent {
    match decision.outcome {
        Outcome::Forward => Sent::Out(decision.port.0, mac(decision.link)),
        Outcome::Unresolved => Sent::Held,
        _ => Sent::NoRoute,
    }
}

/// Bytes of a link address are the other way round in the word of a link.
#[inline]
pub(super) fn mac(link: Link) -> Mac {
    Mac::from_bits(link.bits().swap_bytes() >> 16)
}

#[cfg(test)]
mod tests {
    use super::super::network::testing::*;
    use super::*;

    #[test]
    fn it_follows_changes() {
        let tables = Ours::new().unwrap();
        follows_changes(&tables, &mut tables.sender());
    }

    #[test]
    fn all_neighbors_of_a_network_go_with_it() {
        for tables in [Ours::new().unwrap(), Ours::in_art().unwrap()] {
            furnish(&tables);
            (1..=20).for_each(|host| _ = tables.learn(ip("10.1.0.0") + host, B));
            tables.learn(ip("10.0.0.1"), A);
            assert_eq!((tables.neighbors(), tables.known().len()), (21, 21));
            assert_eq!(tables.disconnect(prefix("10.1.0.0/16")), 20);
            assert_eq!((tables.neighbors(), tables.known().len()), (1, 1));
            assert_eq!(one(&mut tables.sender(), "8.8.8.8"), Sent::Out(0, A));
        }
    }

    #[test]
    fn a_better_route_is_taken_by_the_next_packet() {
        let tables = Ours::new().unwrap();
        furnish(&tables);
        tables.learn(ip("10.0.0.1"), A);
        tables.learn(ip("10.0.0.2"), B);
        let mut sender = tables.sender();
        assert_eq!(one(&mut sender, "8.8.8.8"), Sent::Out(0, A));
        tables.add_route(prefix("8.0.0.0/8"), ip("10.0.0.2")).unwrap();
        assert_eq!(one(&mut sender, "8.8.8.8"), Sent::Out(0, B));
    }
}
