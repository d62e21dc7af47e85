//! The accelerator: programs at interfaces, and the tables that they read, kept in step with the mirror.
mod bridges;
mod copies;
mod established;
mod programs;
mod sink;
mod tunnels;
mod vrfs;

pub use bridges::FdbEntry;
pub use tunnels::{PppoeSession, TunnelRoute};

use super::capture::CaptureRings;
use super::decide::{ForwardDecision, ForwardingTables, VrfTables, decide_frame, decide_within};
use super::error::Error;
use super::flows::FlowTable;
use super::hops::{HopTable, NeighborKey};
use super::layout::{Flags, MOST_VRFS, PortRecord, ROUTED, Reason, Withheld, own_bit_v4, own_bit_v6};
use super::losses::LossCounter;
use super::memory::{Counters, Deliveries, Memory, PortCounters};
use super::mode::Mode;
use super::next_hop_groups::GroupTable;
use super::probe::{self, ProbePort};
use super::routes::Routes;
use crate::kernel::{Family, Link, LinkKind};
use crate::mirror::{Exclusion, FibBinding};
use artery_device::bpf::{self, Attachment, Lease, ProgramArray};
use artery_l3::router::ReversePath;
use artery_lpm::{Fib4Fast, Fib6};
use artery_rcu::{Domain, Reader};
use artery_wire::EtherAddr;
use bridges::Bridges;
use programs::refusal_error;
use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::net::IpAddr;
use std::sync::Arc;
use tunnels::Tunnels;
use vrfs::VrfFib;

/// Routes that may change before next-hop groups that they no longer use are reused. Programs run on
/// meanwhile, and waiting for their runs to end takes milliseconds.
const MOST_CHANGES: u32 = 256;

/// An interface with a program.
struct AttachedPort {
    port: u32,
    program: Attachment,
    /// The programs that the attached one leaves frames of other FIBs to.
    others: Option<ProgramArray>,
    mode: Mode,
    /// The numbers of the FIBs that all runs of its programs look into.
    fibs: BTreeSet<u32>,
}

/// An adopted interface, or a VLAN of one.
struct RoutedPort {
    port: u32,
    /// The interface that carries it, if it is a VLAN.
    carrier: Option<(u32, u16)>,
    mac: EtherAddr,
    is_up: bool,
}

impl RoutedPort {
    fn port_record(&self, index: u32, flags: Flags) -> PortRecord {
        PortRecord { mac: self.mac, device: self.carrier.map_or(index, |(carrier, _)| carrier), flags }
    }
}

/// Forwards packets by programs in the kernel's hooks.
///
/// Each change it receives changes the tables at once; what must wait for runs of programs to end waits for
/// [`complete_updates`](Accelerator::complete_updates), and goes to the kernel meanwhile.
pub struct Accelerator {
    memory: Memory,
    domain: Arc<Domain>,
    /// Stands for the programs: it never parks, and begins a turn when all runs of before have ended.
    reader: Reader,
    /// Route changes since the last wait for runs of programs.
    changes: u32,
    hops: HopTable,
    groups: GroupTable,
    ipv4: Routes<u32, Fib4Fast>,
    ipv6: Routes<u128, Fib6>,
    /// The routes of VRFs, by their tables.
    vrfs: BTreeMap<u32, VrfFib>,
    free_fibs: BTreeSet<u32>,
    /// Those that are gone, while programs may look into them.
    dropped_vrfs: Vec<VrfFib>,
    /// By which routes packets of interfaces are forwarded, where not by those of no VRF.
    bindings: BTreeMap<u32, FibBinding>,
    attached: BTreeMap<u32, AttachedPort>,
    members: BTreeMap<u32, RoutedPort>,
    free_ports: BTreeSet<u32>,
    exclusions: [Exclusion; 2],
    /// Interfaces whose packets of a family the user's policy leaves to the kernel.
    withheld: BTreeSet<(bool, u32)>,
    /// Families of which only packets of established connections are forwarded.
    established: [bool; 2],
    /// Whether those stay with the kernel for now, too.
    is_suspended: bool,
    by_ports: [bool; 2],
    /// Interfaces whose drivers transmit multi-buffer frames that XDP redirects to them.
    multi_buffer: BTreeSet<u32>,
    /// What interfaces demand of sources; IPv4 from others is left to the kernel.
    reverse_paths: BTreeMap<u32, ReversePath>,
    bridges: Bridges,
    tunnels: Tunnels,
    own: BTreeMap<IpAddr, BTreeSet<u32>>,
    /// Loads that have begun, one within another.
    loads: u32,
    /// The numbers of FIBs that others have taken the place of, and that programs may still look into.
    old_fibs: BTreeSet<u32>,
    capture: Option<CaptureRings>,
    samples: Option<CaptureRings>,
    /// Counts losses once a port is by XDP, unless the kernel does not let them be counted.
    losses: Option<io::Result<LossCounter>>,
}

impl Accelerator {
    /// Makes tables, for interfaces that are yet to be adopted.
    pub fn new() -> Result<Accelerator, Error> {
        // A kernel that answers once does so every time.
        bpf::wait_for_runs().map_err(Error::Waiting)?;
        let domain = Domain::new();
        let mut reader = domain.reader();
        let _ = reader.turn();
        Ok(Accelerator {
            memory: Memory::new()?,
            reader,
            changes: 0,
            hops: HopTable::new(),
            groups: GroupTable::new(),
            ipv4: Routes::new(&domain)?,
            ipv6: Routes::new(&domain)?,
            vrfs: BTreeMap::new(),
            free_fibs: (1..=MOST_VRFS).collect(),
            dropped_vrfs: Vec::new(),
            bindings: BTreeMap::new(),
            domain,
            attached: BTreeMap::new(),
            members: BTreeMap::new(),
            free_ports: (0..ROUTED).collect(),
            reverse_paths: BTreeMap::new(),
            bridges: Bridges::default(),
            tunnels: Tunnels::default(),
            exclusions: [Exclusion::Nothing, Exclusion::Nothing],
            withheld: BTreeSet::new(),
            established: [false; 2],
            is_suspended: false,
            by_ports: [false; 2],
            multi_buffer: BTreeSet::new(),
            own: BTreeMap::new(),
            loads: 0,
            old_fibs: BTreeSet::new(),
            capture: None,
            samples: None,
            losses: None,
        })
    }

    /// Puts a program at an interface. Nothing is forwarded before the interface is set as a link, all
    /// updates are complete, and the lease is renewed.
    pub fn adopt(&mut self, link: u32, mode: Mode) -> Result<(), Error> {
        let port = *self.free_ports.first().ok_or(Error::TooManyPorts)?;
        self.adopt_as(link, mode, port)
    }

    /// Adopts an interface that takes the place of one that is gone: it continues the counters of that port
    /// number, unless another interface uses the number now.
    pub fn adopt_again(&mut self, link: u32, mode: Mode, number: u32) -> Result<(), Error> {
        match self.free_ports.contains(&number) {
            true => self.adopt_as(link, mode, number),
            false => self.adopt(link, mode),
        }
    }

    fn adopt_as(&mut self, link: u32, mode: Mode, port: u32) -> Result<(), Error> {
        // A program left there by a killed process would count as a filter of the user's policy. A process
        // without the right to remove it can't attach a program either.
        let _ = bpf::remove_dead_filters(link);
        let fibs = self.fibs_of(link);
        let (program, others) = self.attach_programs(link, port, mode, &fibs)?;
        self.memory.set_device(port, link).map_err(|error| refusal_error(link, mode, error, Vec::new()))?;
        self.free_ports.remove(&port);
        self.attached.insert(link, AttachedPort { port, program, others, mode, fibs });
        if !mode.is_tc() && self.losses.is_none() {
            self.losses = Some(LossCounter::start(&self.memory));
        }
        Ok(())
    }

    /// Has another hook run the programs of all interfaces, which keep their tables and counts. Those at the
    /// old hook leave once all are at the new one.
    pub fn change_mode(&mut self, mode: Mode) -> Result<(), Error> {
        let attach = |(link, attached): (&u32, &AttachedPort)| {
            self.attach_programs(*link, attached.port, mode, &attached.fibs)
        };
        let programs = self.attached.iter().map(attach).collect::<Result<Vec<_>, Error>>()?;
        for (attached, (program, others)) in self.attached.values_mut().zip(programs) {
            attached.program = program;
            attached.others = others;
            attached.mode = mode;
        }
        if mode.is_tc() {
            // The kernel itself counts what is lost behind tc.
            self.losses = None;
        }
        Ok(())
    }

    /// Tests, for each pair of interfaces that are up, whether a frame that an XDP program redirects leaves.
    /// Interfaces in `unsent`, which nothing is sent to, are skipped. Returns the first pair (ingress,
    /// egress) whose driver takes no frame. A pair that can't be tested counts as working.
    pub fn find_broken_pair(&self, unsent: &BTreeSet<u32>) -> Option<(u32, u32)> {
        let Some(Ok(_)) = self.losses else { return None };
        let probe_port = |(link, attached): (&u32, &AttachedPort)| {
            let member = self.members.get(link).filter(|member| member.is_up)?;
            let is_tried = attached.mode == Mode::Native && !unsent.contains(link);
            is_tried.then_some(ProbePort { port: attached.port, link: *link, mac: member.mac })
        };
        let ports: Vec<ProbePort> = self.attached.iter().filter_map(probe_port).collect();
        probe::find_broken_pair(&self.memory, &ports)
    }

    /// Why frames are not counted that are lost after a program of XDP has redirected them, if they aren't.
    pub fn uncounted_losses(&self) -> Option<&io::Error> {
        self.losses.as_ref()?.as_ref().err()
    }

    /// What programs forward by only while it is renewed.
    pub fn lease(&self) -> &Arc<Lease> {
        &self.memory.lease
    }

    /// Who runs the program of an interface.
    pub fn mode(&self, link: u32) -> Option<Mode> {
        self.attached.get(&link).map(|attached| attached.mode)
    }

    /// Leaves packets of a family that come by an interface, or go out by it, to the kernel, or no longer.
    pub fn set_withheld(&mut self, family: Family, link: u32, from: bool, to: Option<Withheld>) {
        let key = (family == Family::V6, link);
        let has_changed = if from { self.withheld.insert(key) } else { self.withheld.remove(&key) };
        self.hops.set_withheld(&self.memory, key, to);
        if has_changed {
            self.set_flags();
        }
    }

    /// Whether ports of TCP and UDP choose among next hops (sysctl `fib_multipath_hash_policy` 1).
    pub fn balance_by_ports(&mut self, family: Family, by_ports: bool) {
        let place = &mut self.by_ports[usize::from(family == Family::V6)];
        if std::mem::replace(place, by_ports) != by_ports {
            self.set_flags();
        }
    }

    /// Lets multi-buffer frames leave by these interfaces, whose drivers transmit them, and by VLANs on them.
    /// Those that would leave by others are left to the kernel.
    pub fn set_multi_buffer(&mut self, links: BTreeSet<u32>) {
        if links != self.multi_buffer {
            self.multi_buffer = links;
            self.set_flags();
        }
    }

    /// Lets packets of IPv4 leave by an interface that they came by, where the kernel would send no redirect;
    /// otherwise they are left to it.
    pub fn set_returning(&mut self, link: u32, returns: bool) {
        self.hops.set_returning(&self.memory, link, returns);
    }

    /// Demands this of the sources of IPv4 packets that come by interfaces; those from all others are
    /// left to the kernel.
    pub fn set_reverse_paths(&mut self, reverse_paths: BTreeMap<u32, ReversePath>) {
        if reverse_paths != self.reverse_paths {
            self.reverse_paths = reverse_paths;
            self.set_flags();
        }
    }

    /// Notes which addresses are this machine's own, each with its interface: what claims to come from them
    /// is the kernel's.
    pub fn set_own(&mut self, addresses: impl Iterator<Item = (IpAddr, u32)>) {
        let mut own: BTreeMap<IpAddr, BTreeSet<u32>> = BTreeMap::new();
        for (address, link) in addresses {
            own.entry(address).or_default().insert(link);
        }
        if own != self.own {
            let bit = |address: &IpAddr| match address {
                IpAddr::V4(address) => own_bit_v4(address.to_bits()),
                IpAddr::V6(address) => own_bit_v6(address.to_bits()),
            };
            let bits: BTreeSet<usize> = own.keys().map(bit).collect();
            bits.iter().for_each(|bit| self.memory.set_own(*bit, true));
            let old: BTreeSet<usize> = self.own.keys().map(bit).collect();
            old.difference(&bits).for_each(|bit| self.memory.set_own(*bit, false));
            self.own = own;
        }
    }

    /// Completes what must wait for runs of programs to end.
    pub fn complete_updates(&mut self) -> Result<(), Error> {
        self.make_room();
        // Routes to groups that may have been reused forward nothing until the FIB is rebuilt and programs
        // that read the new one are attached. If memory is lacking for either, the next call tries again.
        self.mark_stale_fibs();
        let old = self.rebuild_stale_fibs()?;
        let replaced = self.ports_with_old_programs();
        self.replace_programs(&replaced)?;
        let has_new_programs = !replaced.is_empty() || !self.old_fibs.is_empty();
        if has_new_programs
            || self.hops.is_waiting()
            || self.groups.is_waiting()
            || self.tunnels.is_waiting()
            || self.memory.flows.as_ref().is_some_and(FlowTable::is_waiting)
            || self.changes >= MOST_CHANGES
        {
            self.wait_for_runs()?;
        }
        if has_new_programs {
            self.old_fibs.clear();
            for link in replaced {
                let fibs = self.fibs_of(link);
                if let Some(attached) = self.attached.get_mut(&link) {
                    attached.fibs = fibs;
                }
            }
            self.set_flags();
        }
        self.domain.run_deferred();
        drop(old);
        self.dropped_vrfs.clear();
        Ok(())
    }

    /// Waits until no program uses what was replaced, so that it can be reused.
    fn wait_for_runs(&mut self) -> Result<(), Error> {
        bpf::wait_for_runs().map_err(Error::Waiting)?;
        self.hops.commit_changes(&self.memory);
        self.groups.reclaim_waiting();
        self.tunnels.reclaim_waiting(&self.memory);
        self.memory.flows.iter_mut().for_each(FlowTable::reclaim_waiting);
        let _ = self.reader.turn();
        self.changes = 0;
        Ok(())
    }

    /// Makes room in FIBs that have none left for a route: what programs no longer use is room, too, and to
    /// wait for that takes a hundredth of the time that a new FIB and new programs take.
    fn make_room(&mut self) {
        if !self.may_make_room() || self.wait_for_runs().is_err() {
            return;
        }
        self.domain.run_deferred();
        self.fit_routes();
        self.set_flags();
    }

    /// Counters of all ports, read from the arrays that programs write.
    pub fn counters(&self) -> Counters {
        self.memory.counters()
    }

    /// The same of one port, by its number.
    pub fn port_counters(&self, number: u32) -> PortCounters {
        self.memory.port_counters(number)
    }

    /// What was sent to each adopted interface, by VLANs on it, too. Of a bridge it is known what was sent to
    /// all its members together.
    pub fn deliveries(&self) -> Vec<(u32, Deliveries)> {
        let deliveries = |(link, attached): (&u32, &AttachedPort)| {
            let carrier = |member: &RoutedPort| member.carrier.map(|(carrier, _)| carrier);
            let leave_by =
                |(index, member): &(&u32, &RoutedPort)| carrier(member).unwrap_or(**index) == *link;
            let by_it = self.members.iter().filter(leave_by).map(|(_, member)| member.port);
            let sent: u64 = by_it.map(|port| self.memory.sent_frames(port)).sum();
            let sent = sent + self.sent_by_tunnels(*link);
            (*link, Deliveries { sent, dropped: self.memory.dropped_frames(attached.port) })
        };
        let is_own = |(link, _): &(&u32, &AttachedPort)| self.bridges.bridge_of(**link).is_none();
        self.attached.iter().filter(is_own).map(deliveries).chain(self.bridge_deliveries()).collect()
    }

    /// Frames that went to the kernel by policy, or because the driver of the other port does not send.
    pub fn withheld_frames(&self) -> u64 {
        let at_port = |attached: &AttachedPort| {
            let frames = |withheld: Withheld| self.memory.kernel_frames(attached.port, withheld.reason());
            Withheld::ALL.into_iter().map(frames).sum::<u64>()
        };
        self.attached.values().map(at_port).sum()
    }

    /// The interfaces that have counters, adopted ones and VLANs of them, each with its number among those.
    pub fn ports(&self) -> impl Iterator<Item = (u32, u32)> {
        self.members.iter().map(|(link, member)| (*link, member.port))
    }

    /// The number of an interface among the counters.
    pub fn port(&self, link: u32) -> Option<u32> {
        self.members.get(&link).map(|member| member.port)
    }

    /// The neighbors that packets were sent to since the last call.
    pub fn drain_used(&self) -> Vec<NeighborKey> {
        self.hops.drain_used(&self.memory)
    }

    /// What becomes of a frame that comes by an adopted interface: what its program does, done here; by a
    /// bridge, as at a member where its source is known, and by a tunnel, what becomes of the packet within.
    /// None where there is no such interface.
    pub fn decide_frame(&mut self, link: u32, frame: &[u8]) -> Option<ForwardDecision> {
        let attached = self.attached.get(&link).map(|attached| attached.port);
        let port = attached.or_else(|| self.port(link))?;
        if self.is_tunnel(link) && !self.takes_off_header(link) {
            return Some(ForwardDecision::Kernel(Reason::Tunnel));
        }
        let (ipv4, ipv6) = (self.ipv4.current.fib.reader(), self.ipv6.current.fib.reader());
        let readers = |vrf: &VrfFib| VrfTables {
            number: vrf.number,
            ipv4: vrf.ipv4.current.fib.reader(),
            ipv6: vrf.ipv6.current.fib.reader(),
        };
        let vrfs: Vec<VrfTables> = self.vrfs.values().map(readers).collect();
        let tables = ForwardingTables { memory: &self.memory, ipv4: &ipv4, ipv6: &ipv6, vrfs: &vrfs };
        // Nothing changes meanwhile: a change needs a mutable borrow of all of this.
        let decide = if self.is_tunnel(link) { decide_within } else { decide_frame };
        Some(decide(&tables, &self.domain.reader().turn(), port, frame))
    }

    /// Says of each port what it may do now.
    fn set_flags(&self) {
        for (link, member) in &self.members {
            let record = member.port_record(*link, self.port_flags(*link));
            self.memory.set_port(member.port, &record);
        }
    }

    /// Stops forwarding of a family when programs no longer find its routes as the mirror has them: the group
    /// numbers that they find may soon belong to other next hops.
    fn follow_right(&mut self, were: bool, are: bool) {
        if were && !are {
            self.set_flags();
            self.make_room();
        }
    }

    /// Whether packets of a family that come by an interface, one that was adopted or a VLAN of one, are
    /// forwarded where routes lead on, if only those of established connections.
    ///
    /// Those that come by a member of a bridge are the bridge's.
    pub fn is_forwarding(&self, family: Family, link: u32) -> bool {
        if let Some(bridge) = self.bridges.bridge_of(link) {
            return self.bridges.is_receiving(link) && self.is_forwarding(family, bridge);
        }
        let flags = self.port_flags(link);
        self.members.contains_key(&link)
            && match family {
                Family::V4 => flags.ipv4 || flags.ipv4_established,
                Family::V6 => flags.ipv6 || flags.ipv6_established,
            }
    }

    fn port_flags(&self, link: u32) -> Flags {
        let may = |is_v6: bool| {
            let kept = match &self.exclusions[usize::from(is_v6)] {
                Exclusion::Nothing => false,
                Exclusion::From(links) => links.contains(&link),
                Exclusion::Everything => true,
            };
            !kept
                && self.finds_routes(is_v6, link)
                && !self.withheld.contains(&(is_v6, link))
                && self.bridges.may_forward(link, self.members.get(&link).map(|member| member.mac))
        };
        let [ipv4_ports, ipv6_ports] = self.by_ports;
        let [only4, only6] = self.established;
        let reverse_path = self.reverse_paths.get(&link).copied();
        // Connections are known by their addresses, which may be others in a VRF.
        let is_followed = self.fib_of(link) == Some(vrfs::MAIN)
            && !self.is_suspended
            && (!self.is_tunnel(link) || self.is_session(link));
        let carrier = self.members.get(&link).and_then(|member| member.carrier);
        Flags {
            ipv4: may(false) && reverse_path.is_some() && !only4,
            ipv6: may(true) && !only6,
            ipv4_established: may(false) && reverse_path.is_some() && only4 && is_followed,
            ipv6_established: may(true) && only6 && is_followed,
            ipv4_ports,
            ipv6_ports,
            reverse_path: reverse_path.unwrap_or_default(),
            multi_buffer: self.sends_multi_buffer(carrier.map_or(link, |(carrier, _)| carrier)),
            fib: self.fib_of(link).unwrap_or_default(),
        }
    }

    /// Whether the driver of an interface, or of all members of a bridge, transmits multi-buffer frames.
    fn sends_multi_buffer(&self, link: u32) -> bool {
        match self.bridges.number(link) {
            Some(_) => self.bridges.members(link).all(|member| self.multi_buffer.contains(&member)),
            None => self.multi_buffer.contains(&link),
        }
    }

    /// The port that an interface has, or gets, if it is adopted or a VLAN of one that is.
    fn join_port(&mut self, link: &Link) -> Option<(u32, Option<(u32, u16)>)> {
        if let Some(number) = self.bridges.number(link.index) {
            return Some((number, None));
        }
        if let Some(attached) = self.attached.get(&link.index) {
            return Some((attached.port, None));
        }
        // Programs put on tags with an id, and know no priority of packets.
        let LinkKind::Vlan { id, parent, tag_type: 0x8100, sets_priority: false } = link.kind else {
            return None;
        };
        if !self.attached.contains_key(&parent) {
            return None;
        }
        let known = self.members.get(&link.index).map(|member| member.port);
        Some((known.or_else(|| self.free_ports.pop_first())?, Some((parent, id))))
    }

    /// An interface is gone, and its program with it: one that comes back is another.
    fn remove_attached(&mut self, index: u32) {
        self.remove_bridge(index);
        self.remove_bridge_member(index);
        self.remove_tunnel(index);
        if let Some(attached) = self.attached.remove(&index) {
            self.memory.unset_device(attached.port);
            self.free_ports.insert(attached.port);
        }
    }

    fn remove_member(&mut self, index: u32) {
        self.hops.set_exit(&self.memory, index, None);
        let Some(member) = self.members.remove(&index) else { return };
        self.apply_sessions();
        self.groups.set_port(&self.memory, index, None);
        self.memory.set_port(member.port, &member.port_record(index, Flags::default()));
        if let Some((carrier, vlan)) = member.carrier {
            if let Some(attached) = self.attached.get(&carrier) {
                self.memory.set_vlan(attached.port, vlan, None);
            }
            self.free_ports.insert(member.port);
        }
    }
}
