//! Next hops: the neighbors that groups lead to, and how to send to each.
use super::layout::{Hop, MOST_HOPS, MOST_TUNNELS, TunnelHeader, Withheld};
use super::memory::Memory;
use super::numbers::IndexPool;
use crate::kernel::Family;
use artery_wire::EtherAddr;
use std::collections::{HashMap, HashSet};
use std::net::IpAddr;

/// A neighbor: its interface and address.
pub(super) type NeighborKey = (u32, IpAddr);

/// What a next hop is for: packets of one family that are sent to a neighbor. Those of IPv4 may go by a
/// neighbor of IPv6 (RFC 8950).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) struct HopKey {
    is_v6: bool,
    neighbor: NeighborKey,
}

impl HopKey {
    /// For packets of this family.
    pub(super) fn new(family: Family, neighbor: NeighborKey) -> HopKey {
        HopKey { is_v6: family == Family::V6, neighbor }
    }

    /// For packets of this family that leave by a tunnel, whatever their next hop there.
    pub(super) fn by_tunnel(family: Family, link: u32) -> HopKey {
        HopKey::new(family, (link, Family::V4.unspecified()))
    }
}

/// An interface that packets leave by.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct EgressInterface {
    pub(super) mac: EtherAddr,
    pub(super) mtu: u32,
    pub(super) vlan: Option<u16>,
    /// None for a bridge, whose forwarding database says for each neighbor which member it is.
    pub(super) device: Option<u32>,
    pub(super) port: u32,
}

/// A member of a bridge that frames leave by.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct EgressMember {
    pub(super) device: u32,
    pub(super) mtu: u32,
    /// Why nothing leaves by it.
    pub(super) withheld: Option<Withheld>,
}

/// The next hop of outer packets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TunnelNextHop {
    /// A neighbor, at an interface.
    Neighbor(u32, IpAddr),
    /// The other end of a session, by its link address.
    Peer(u32, EtherAddr),
}

impl TunnelNextHop {
    /// The interface that outer packets leave by.
    fn link(&self) -> u32 {
        match self {
            TunnelNextHop::Neighbor(link, _) | TunnelNextHop::Peer(link, _) => *link,
        }
    }

    fn neighbor(&self) -> Option<NeighborKey> {
        match self {
            TunnelNextHop::Neighbor(link, address) => Some((*link, *address)),
            TunnelNextHop::Peer(..) => None,
        }
    }
}

/// How packets leave by a tunnel.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TunnelExit {
    /// Where outer packets are sent to.
    pub next_hop: TunnelNextHop,
    /// The outer header but for lengths and checksums.
    pub header: TunnelHeader,
    /// Most bytes of an inner packet.
    pub mtu: u32,
    /// The number of the tunnel's port.
    pub port: u32,
}

/// Where programs read the header of a tunnel.
#[derive(Debug)]
struct TunnelRecord {
    number: u32,
    header: TunnelHeader,
}

#[derive(Debug)]
struct HopEntry {
    at: u32,
    users: u32,
}

/// The neighbors that are in use, and the link addresses of all that are known.
#[derive(Debug, Default)]
pub(super) struct HopTable {
    entries: HashMap<HopKey, HopEntry>,
    macs: HashMap<NeighborKey, EtherAddr>,
    exits: HashMap<u32, EgressInterface>,
    /// How packets leave by each adopted tunnel, by its interface.
    tunnels: HashMap<u32, TunnelExit>,
    /// Their records: see [`replace_record`](HopTable::replace_record).
    records: HashMap<u32, TunnelRecord>,
    record_numbers: IndexPool,
    /// By the bridge and the address: the member that an address is behind.
    fdb: HashMap<(u32, EtherAddr), u32>,
    /// Members of bridges that are in state forwarding.
    members: HashMap<u32, EgressMember>,
    /// Interfaces by which packets of a family (IPv6 if true) don't leave.
    withheld: HashMap<(bool, u32), Withheld>,
    /// Interfaces by which IPv4 leaves also where it came in.
    returning: HashSet<u32>,
    numbers: IndexPool,
    /// Hops that were unset; they are written again once no run of a program sends by the old ones.
    changed: HashSet<HopKey>,
}

impl HopTable {
    pub(super) fn new() -> HopTable {
        HopTable {
            record_numbers: IndexPool::new(1, MOST_TUNNELS as u32),
            // Hop 0 is never ready: neighbors share it when the array is full.
            numbers: IndexPool::new(1, MOST_HOPS as u32),
            ..HopTable::default()
        }
    }

    /// Returns the index of a hop, for one more user. Without room it is the hop that leaves
    /// packets to the kernel.
    pub(super) fn acquire_hop(&mut self, memory: &Memory, key: HopKey) -> u32 {
        if let Some(entry) = self.entries.get_mut(&key) {
            entry.users += 1;
            return entry.at;
        }
        let Some(at) = self.numbers.allocate(1) else { return 0 };
        self.entries.insert(key, HopEntry { at, users: 1 });
        self.write_hop(memory, key);
        at
    }

    /// Takes back what [`acquire_hop`](Self::acquire_hop) gave.
    pub(super) fn release_hop(&mut self, memory: &Memory, key: HopKey) {
        let Some(entry) = self.entries.get_mut(&key) else { return };
        entry.users -= 1;
        if entry.users == 0 {
            memory.unset_hop(entry.at);
            self.numbers.free_range(entry.at, 1);
            self.entries.remove(&key);
            self.changed.remove(&key);
        }
    }

    /// Notes a neighbor's link address, or that there is none. Says whether there was one.
    pub(super) fn set_neighbor(&mut self, memory: &Memory, key: NeighborKey, mac: Option<EtherAddr>) -> bool {
        let before = match mac {
            Some(mac) => self.macs.insert(key, mac),
            None => self.macs.remove(&key),
        };
        if before != mac {
            [false, true]
                .into_iter()
                .for_each(|is_v6| self.unset_changed(memory, HopKey { is_v6, neighbor: key }));
            let over = self.tunnels.iter().filter(|(_, tunnel)| tunnel.next_hop.neighbor() == Some(key));
            let over: Vec<u32> = over.map(|(link, _)| *link).collect();
            over.into_iter().for_each(|link| self.change_tunnel(memory, link));
        }
        before.is_some()
    }

    /// Notes how packets leave by a tunnel, or that none do.
    pub(super) fn set_tunnel(&mut self, memory: &Memory, link: u32, exit: Option<TunnelExit>) {
        let before = match exit {
            Some(exit) => self.tunnels.insert(link, exit),
            None => self.tunnels.remove(&link),
        };
        if before != exit {
            self.replace_record(memory, link);
            self.change_tunnel(memory, link);
        }
    }

    /// Writes the header of a tunnel into another record than the one before, if it is another header.
    ///
    /// So no program reads a half of each: a record is written once, while no hop leads to it, and its number
    /// is used again only after all runs have ended that may have found it in a hop
    /// ([`commit_changes`](HopTable::commit_changes)). Hops are written with the new number after that, too.
    fn replace_record(&mut self, memory: &Memory, link: u32) {
        let header = self.tunnels.get(&link).map(|tunnel| tunnel.header);
        if self.records.get(&link).map(|record| record.header) == header {
            return;
        }
        if let Some(old) = self.records.remove(&link) {
            self.record_numbers.free_range(old.number, 1);
        }
        // Where all numbers are waiting, the tunnel has none until these runs have ended.
        if let Some((header, number)) = header.zip(self.record_numbers.allocate(1)) {
            memory.write_tunnel(number, &header);
            self.records.insert(link, TunnelRecord { number, header });
        }
    }

    /// Gives records to tunnels that found none.
    fn complete_records(&mut self, memory: &Memory) {
        let lacking = self.tunnels.keys().filter(|link| !self.records.contains_key(*link));
        for link in lacking.copied().collect::<Vec<_>>() {
            self.replace_record(memory, link);
            self.change_tunnel(memory, link);
        }
    }

    /// The interface that outer packets of a tunnel leave by.
    pub(super) fn link_below(&self, tunnel: u32) -> Option<u32> {
        Some(self.tunnels.get(&tunnel)?.next_hop.link())
    }

    /// Writes the hops again that lead into a tunnel.
    fn change_tunnel(&mut self, memory: &Memory, link: u32) {
        for family in [Family::V4, Family::V6] {
            self.unset_changed(memory, HopKey::by_tunnel(family, link));
        }
    }

    /// Notes how packets leave by an interface, or that none do.
    pub(super) fn set_exit(&mut self, memory: &Memory, link: u32, exit: Option<EgressInterface>) {
        let before = match exit {
            Some(exit) => self.exits.insert(link, exit),
            None => self.exits.remove(&link),
        };
        if before != exit {
            self.change_all(memory, link);
        }
    }

    /// Notes which member of a bridge an address is behind, or that it is not known.
    pub(super) fn set_fdb(&mut self, memory: &Memory, bridge: u32, mac: EtherAddr, member: Option<u32>) {
        let before = match member {
            Some(member) => self.fdb.insert((bridge, mac), member),
            None => self.fdb.remove(&(bridge, mac)),
        };
        if before != member {
            self.change_where(memory, |link, known| link == bridge && known == Some(mac));
        }
    }

    /// Notes how frames leave by a member of a bridge, or that none do.
    pub(super) fn set_member(
        &mut self,
        memory: &Memory,
        (bridge, member): (u32, u32),
        exit: Option<EgressMember>,
    ) {
        let before = match exit {
            Some(exit) => self.members.insert(member, exit),
            None => self.members.remove(&member),
        };
        if before != exit {
            self.change_all(memory, bridge);
        }
    }

    /// Leaves packets of a family (IPv6 if true) that would go out by an interface to the
    /// kernel, or no longer.
    pub(super) fn set_withheld(&mut self, memory: &Memory, key: (bool, u32), why: Option<Withheld>) {
        let before = match why {
            Some(why) => self.withheld.insert(key, why),
            None => self.withheld.remove(&key),
        };
        if before != why {
            self.change_all(memory, key.1);
        }
    }

    /// Lets IPv4 leave by an interface that it came by, or leaves that to the kernel.
    pub(super) fn set_returning(&mut self, memory: &Memory, link: u32, returns: bool) {
        let has_changed = if returns { self.returning.insert(link) } else { self.returning.remove(&link) };
        if has_changed {
            self.change_all(memory, link);
        }
    }

    fn change_all(&mut self, memory: &Memory, link: u32) {
        self.change_where(memory, |at, _| at == link);
    }

    /// Writes the hops again of neighbors for which something holds, by their interfaces and link addresses.
    fn change_where(&mut self, memory: &Memory, holds: impl Fn(u32, Option<EtherAddr>) -> bool) {
        let of_neighbor = |key: &NeighborKey| holds(key.0, self.macs.get(key).copied());
        let is_below = |tunnel: &TunnelExit| match tunnel.next_hop {
            TunnelNextHop::Neighbor(link, address) => of_neighbor(&(link, address)),
            TunnelNextHop::Peer(link, mac) => holds(link, Some(mac)),
        };
        let is_meant = |key: &&HopKey| {
            of_neighbor(&key.neighbor) || self.tunnels.get(&key.neighbor.0).is_some_and(is_below)
        };
        let there: Vec<HopKey> = self.entries.keys().filter(is_meant).copied().collect();
        there.into_iter().for_each(|key| self.unset_changed(memory, key));
    }

    /// The device that frames to a link address leave by, and the most bytes of a packet; or why none do,
    /// if that is known.
    fn find_device(
        &self,
        link: u32,
        mac: EtherAddr,
        exit: &EgressInterface,
    ) -> Result<(u32, u32), Option<Withheld>> {
        if let Some(device) = exit.device {
            return Ok((device, exit.mtu));
        }
        let known = self.fdb.get(&(link, mac)).and_then(|member| self.members.get(member));
        let member = known.ok_or(None::<Withheld>)?;
        // What is longer the bridge would drop.
        member.withheld.map_or(Ok((member.device, member.mtu.min(exit.mtu))), |why| Err(Some(why)))
    }

    /// The neighbors that packets were sent to since the last call.
    pub(super) fn drain_used(&self, memory: &Memory) -> Vec<NeighborKey> {
        let used = self.entries.iter().filter(|(_, entry)| memory.clear_used(entry.at));
        let of_hop = |key: &HopKey| match self.tunnels.get(&key.neighbor.0) {
            Some(tunnel) => tunnel.next_hop.neighbor(),
            None => Some(key.neighbor),
        };
        let mut used: Vec<NeighborKey> = used.filter_map(|(key, _)| of_hop(key)).collect();
        used.sort_unstable();
        used.dedup();
        used
    }

    fn unset_changed(&mut self, memory: &Memory, key: HopKey) {
        if let Some(entry) = self.entries.get(&key) {
            memory.unset_hop(entry.at);
            self.changed.insert(key);
        }
    }

    fn write_hop(&self, memory: &Memory, key: HopKey) {
        let Some(entry) = self.entries.get(&key) else { return };
        let found = match self.tunnels.get(&key.neighbor.0) {
            Some(tunnel) => self.find_hop_by_tunnel(key, tunnel),
            None => self.find_hop(key),
        };
        match found {
            Ok(hop) => memory.write_hop(entry.at, &hop),
            Err(Some(why)) => memory.withhold_hop(entry.at, why),
            Err(None) => {}
        }
    }

    /// How to send into a tunnel: as outer packets are sent to their next hop.
    fn find_hop_by_tunnel(&self, key: HopKey, tunnel: &TunnelExit) -> Result<Hop, Option<Withheld>> {
        if let Some(why) = self.withheld.get(&(key.is_v6, key.neighbor.0)) {
            return Err(Some(*why));
        }
        let outer = match tunnel.next_hop {
            TunnelNextHop::Neighbor(link, address) => {
                self.find_hop(HopKey::new(Family::V4, (link, address)))?
            }
            TunnelNextHop::Peer(link, mac) => self.find_hop_to_peer(key.is_v6, link, mac)?,
        };
        let record = self.records.get(&key.neighbor.0).ok_or(None::<Withheld>)?;
        let overhead = tunnel.header.length() as u32;
        Ok(Hop {
            mtu: tunnel.mtu.min(outer.mtu.saturating_sub(overhead)),
            port: tunnel.port,
            // To the kernel it is another interface than the one that they came by.
            returns: true,
            tunnel: record.number,
            ..outer
        })
    }

    /// How to send to a neighbor; or why nothing is sent, if that is known.
    fn find_hop(&self, key: HopKey) -> Result<Hop, Option<Withheld>> {
        let HopKey { is_v6, neighbor } = key;
        let link = neighbor.0;
        let exit = self.exits.get(&link).ok_or(Some(Withheld::NotAdopted))?;
        let mac = self.macs.get(&neighbor).ok_or(None::<Withheld>)?;
        if let Some(why) = self.withheld.get(&(is_v6, link)) {
            return Err(Some(*why));
        }
        let hop = self.find_hop_by_exit(link, exit, *mac)?;
        // The kernel redirects packets of IPv6 whatever is set.
        Ok(Hop { returns: !is_v6 && self.returning.contains(&link), ..hop })
    }

    /// The same to the other end of a session. What of the user's policy is about packets of a family at the
    /// interface below is not about the session's frames, and the rest is said of the session's interface.
    fn find_hop_to_peer(&self, is_v6: bool, link: u32, mac: EtherAddr) -> Result<Hop, Option<Withheld>> {
        let exit = self.exits.get(&link).ok_or(Some(Withheld::NotAdopted))?;
        match self.withheld.get(&(is_v6, link)) {
            Some(Withheld::Policy) | None => self.find_hop_by_exit(link, exit, mac),
            why => Err(why.copied()),
        }
    }

    fn find_hop_by_exit(
        &self,
        link: u32,
        exit: &EgressInterface,
        mac: EtherAddr,
    ) -> Result<Hop, Option<Withheld>> {
        let (device, mtu) = self.find_device(link, mac, exit)?;
        let EgressInterface { mac: source, vlan, port, .. } = *exit;
        Ok(Hop { destination: mac, source, vlan, mtu, device, port, returns: false, tunnel: 0 })
    }

    /// Whether something waits for runs to end.
    pub(super) fn is_waiting(&self) -> bool {
        self.numbers.is_waiting() || self.record_numbers.is_waiting() || !self.changed.is_empty()
    }

    /// All runs have ended that had begun before the last change.
    pub(super) fn commit_changes(&mut self, memory: &Memory) {
        self.numbers.reclaim_waiting();
        self.record_numbers.reclaim_waiting();
        self.complete_records(memory);
        for key in std::mem::take(&mut self.changed) {
            self.write_hop(memory, key);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::layout::{
        HOP_MTU, HOP_PORTS, HOP_READY, HOP_TUNNEL, HOP_USED, HOP_WORDS, OuterIpv4, READY, RETURNS,
        TUNNEL_WORDS,
    };
    use super::*;
    use crate::kernel::TunnelProtocol;
    use std::sync::atomic::Ordering::Relaxed;

    #[test]
    fn a_neighbor_of_ipv6_has_a_hop_for_each_family_and_one_is_withheld_without_the_other() {
        let Ok(memory) = Memory::new() else {
            return eprintln!("skipped: BPF maps need CAP_BPF");
        };
        let (mac, neighbor) = (EtherAddr([2, 0, 0, 0, 0, 1]), (7, "2001:db8::2".parse().unwrap()));
        let exit = EgressInterface { mac, mtu: 1500, vlan: None, device: Some(1), port: 1 };
        let mut hops = HopTable::new();
        hops.set_exit(&memory, 7, Some(exit));
        hops.set_neighbor(&memory, neighbor, Some(mac));
        let keys = [Family::V4, Family::V6].map(|family| HopKey::new(family, neighbor));
        let places = keys.map(|key| hops.acquire_hop(&memory, key));
        let are_ready = |hops: &mut HopTable| {
            hops.commit_changes(&memory);
            places.map(|at| memory.hops[at as usize * HOP_WORDS + HOP_READY].load(Relaxed) == READY)
        };
        assert_eq!(are_ready(&mut hops), [true, true]);
        for (is_v6, expected) in [(false, [false, true]), (true, [true, false])] {
            hops.set_withheld(&memory, (is_v6, 7), Some(Withheld::ALL[0]));
            assert_eq!(are_ready(&mut hops), expected);
            hops.set_withheld(&memory, (is_v6, 7), None);
            assert_eq!(are_ready(&mut hops), [true, true]);
        }
        hops.set_neighbor(&memory, neighbor, None);
        assert_eq!(are_ready(&mut hops), [false, false]);
        keys.into_iter().for_each(|key| hops.release_hop(&memory, key));
        assert!(hops.entries.is_empty());
    }

    #[test]
    fn a_hop_into_a_tunnel_is_that_of_its_outer_packets_behind_one_more_header() {
        let Ok(memory) = Memory::new() else {
            return eprintln!("skipped: BPF maps need CAP_BPF");
        };
        let (mac, neighbor) = (EtherAddr([2, 0, 0, 0, 0, 1]), (7, "192.0.2.2".parse().unwrap()));
        let exit = EgressInterface { mac, mtu: 1500, vlan: None, device: Some(1), port: 1 };
        let header = TunnelHeader::Ipv4(OuterIpv4 {
            source: [192, 0, 2, 1].into(),
            destination: [198, 51, 100, 1].into(),
            protocol: TunnelProtocol::Gre,
            ttl: 0,
            tos: 0,
        });
        let next_hop = TunnelNextHop::Neighbor(neighbor.0, neighbor.1);
        let tunnel = TunnelExit { next_hop, header, mtu: 1480, port: 4 };
        let mut hops = HopTable::new();
        let key = HopKey::by_tunnel(Family::V6, 9);
        let at = hops.acquire_hop(&memory, key);
        let words = |hops: &mut HopTable| {
            hops.commit_changes(&memory);
            [HOP_READY, HOP_MTU, HOP_PORTS]
                .map(|word| memory.hops[at as usize * HOP_WORDS + word].load(Relaxed))
        };
        assert_eq!(words(&mut hops)[0], Withheld::NotAdopted.to_state());
        hops.set_exit(&memory, 7, Some(exit));
        hops.set_neighbor(&memory, neighbor, Some(mac));
        hops.set_tunnel(&memory, 9, Some(tunnel));
        let ports = (4 | RETURNS) << 16 | 1 << HOP_TUNNEL | 1;
        assert_eq!(words(&mut hops), [READY, 1476, ports]);
        assert_eq!(memory.tunnels[4 + 1].load(Relaxed).to_ne_bytes(), [198, 51, 100, 1]);
        // The neighbor is used by outer packets.
        memory.hops[at as usize * HOP_WORDS + HOP_USED].store(1, Relaxed);
        assert_eq!(hops.drain_used(&memory), [neighbor]);
        // What keeps outer packets, which are of IPv4, keeps all.
        hops.set_withheld(&memory, (true, 7), Some(Withheld::Policy));
        assert_eq!(words(&mut hops)[0], READY);
        hops.set_withheld(&memory, (false, 7), Some(Withheld::Policy));
        assert_eq!(words(&mut hops)[0], Withheld::Policy.to_state());
        hops.set_withheld(&memory, (false, 7), None);
        hops.set_neighbor(&memory, neighbor, None);
        assert_eq!(words(&mut hops)[0], 0);
        hops.set_neighbor(&memory, neighbor, Some(mac));
        hops.set_exit(&memory, 7, Some(EgressInterface { mtu: 1000, ..exit }));
        assert_eq!(words(&mut hops)[..2], [READY, 976]);
        hops.set_tunnel(&memory, 9, None);
        assert_eq!(words(&mut hops)[0], Withheld::NotAdopted.to_state());
    }

    #[test]
    fn a_hop_into_a_session_is_that_to_its_peer_whatever_families_leave_by_the_interface_below() {
        let Ok(memory) = Memory::new() else {
            return eprintln!("skipped: BPF maps need CAP_BPF");
        };
        let [mac, peer] = [1, 2].map(|last| EtherAddr([2, 0, 0, 0, 0, last]));
        let exit = EgressInterface { mac, mtu: 1500, vlan: Some(7), device: Some(1), port: 2 };
        let header = TunnelHeader::Pppoe { session: 0x1234 };
        let session = TunnelExit { next_hop: TunnelNextHop::Peer(7, peer), header, mtu: 1492, port: 4 };
        let mut hops = HopTable::new();
        let at = hops.acquire_hop(&memory, HopKey::by_tunnel(Family::V6, 9));
        let words = |hops: &mut HopTable| {
            hops.commit_changes(&memory);
            let words = &memory.hops[at as usize * HOP_WORDS..];
            [0, 1, HOP_MTU, HOP_PORTS, HOP_READY].map(|word: usize| words[word].load(Relaxed))
        };
        hops.set_exit(&memory, 7, Some(exit));
        hops.set_tunnel(&memory, 9, Some(session));
        let link = [[2, 0, 0, 0], [0, 2, 2, 0]].map(u32::from_ne_bytes);
        let ready = [link[0], link[1], 1492, (4 | RETURNS) << 16 | 1 << HOP_TUNNEL | 1, READY];
        assert_eq!(words(&mut hops), ready);
        assert_eq!(memory.tunnels[4].load(Relaxed).to_ne_bytes()[..2], [0x12, 0x34]);
        // It has no neighbor whose use the kernel must know of.
        memory.hops[at as usize * HOP_WORDS + HOP_USED].store(1, Relaxed);
        assert_eq!(hops.drain_used(&memory), []);
        hops.set_withheld(&memory, (true, 7), Some(Withheld::Policy));
        assert_eq!(words(&mut hops), ready);
        hops.set_withheld(&memory, (true, 7), Some(Withheld::NoRedirect));
        assert_eq!(words(&mut hops)[4], Withheld::NoRedirect.to_state());
        hops.set_withheld(&memory, (true, 7), None);
        hops.set_exit(&memory, 7, Some(EgressInterface { mtu: 1400, ..exit }));
        assert_eq!(words(&mut hops)[2..3], [1392]);
        hops.set_withheld(&memory, (true, 9), Some(Withheld::Policy));
        assert_eq!(words(&mut hops)[4], Withheld::Policy.to_state());
        hops.set_withheld(&memory, (true, 9), None);
        hops.set_exit(&memory, 7, None);
        assert_eq!(words(&mut hops)[4], Withheld::NotAdopted.to_state());
    }

    #[test]
    fn a_header_that_changes_is_written_where_no_run_reads() {
        let Ok(memory) = Memory::new() else {
            return eprintln!("skipped: BPF maps need CAP_BPF");
        };
        let (mac, neighbor) = (EtherAddr([2, 0, 0, 0, 0, 1]), (7, "192.0.2.2".parse().unwrap()));
        let exit = |last: u8, ttl| {
            let protocol = TunnelProtocol::Gre;
            let (source, destination) = ([192, 0, 2, 1].into(), [198, 51, 100, last].into());
            let outer = OuterIpv4 { source, destination, protocol, ttl, tos: 0 };
            let next_hop = TunnelNextHop::Neighbor(neighbor.0, neighbor.1);
            TunnelExit { next_hop, header: TunnelHeader::Ipv4(outer), mtu: 1480, port: 4 }
        };
        let mut hops = HopTable::new();
        hops.set_exit(
            &memory,
            7,
            Some(EgressInterface { mac, mtu: 1500, vlan: None, device: Some(1), port: 1 }),
        );
        hops.set_neighbor(&memory, neighbor, Some(mac));
        let record = |at: u32| {
            let hop = &memory.hops[at as usize * HOP_WORDS..];
            let number = hop[HOP_PORTS].load(Relaxed) as usize >> HOP_TUNNEL & (MOST_TUNNELS - 1);
            let words: [u32; TUNNEL_WORDS] =
                std::array::from_fn(|n| memory.tunnels[number * TUNNEL_WORDS + n].load(Relaxed));
            (hop[HOP_READY].load(Relaxed) == READY, words)
        };
        hops.set_tunnel(&memory, 9, Some(exit(1, 0)));
        let ipv4 = hops.acquire_hop(&memory, HopKey::by_tunnel(Family::V4, 9));
        let (_, before) = record(ipv4);
        assert_eq!(record(ipv4), (true, exit(1, 0).header.encode_words()));
        // A run of a program may have found the hop ready and read on meanwhile, whatever comes.
        hops.set_tunnel(&memory, 9, Some(exit(2, 5)));
        let ipv6 = hops.acquire_hop(&memory, HopKey::by_tunnel(Family::V6, 9));
        assert_eq!(record(ipv4), (false, before));
        assert_eq!(record(ipv6), (true, exit(2, 5).header.encode_words()));
        hops.set_tunnel(&memory, 9, None);
        hops.set_tunnel(&memory, 10, Some(exit(3, 0)));
        let other = hops.acquire_hop(&memory, HopKey::by_tunnel(Family::V4, 10));
        assert_eq!((record(ipv4).1, record(ipv6).1), (before, exit(2, 5).header.encode_words()));
        assert_eq!(record(other), (true, exit(3, 0).header.encode_words()));
        // No number is left until runs have ended.
        (0..2 * MOST_TUNNELS).for_each(|n| hops.set_tunnel(&memory, 10, Some(exit(3, n as u8))));
        hops.set_tunnel(&memory, 9, Some(exit(2, 5)));
        assert_eq!([ipv4, ipv6, other].map(|at| record(at).0), [false; 3]);
        assert_eq!(record(ipv4).1, before);
        hops.commit_changes(&memory);
        let new = exit(2, 5).header.encode_words();
        assert_eq!((record(ipv4), record(ipv6)), ((true, new), (true, new)));
        assert!(record(other).0);
    }
}
