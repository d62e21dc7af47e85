//! Which routes packets are forwarded by: those that the kernel looks up for all, or those of the VRF that
//! their interface belongs to.
//!
//! For a port of a VRF the kernel's rule `l3mdev` leads to the VRF's table; all other rules are as for other
//! ports (Documentation/networking/vrf.rst, `l3mdev_fib_rule_match`). So each VRF has a plan of its own, and
//! a sink gets the routes of each apart.
use super::{Mirror, Sink};
use crate::kernel::{Family, Link, LinkKind};
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::fmt;

/// By which routes packets that come in by an interface are forwarded.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum FibBinding {
    /// By those for interfaces that belong to no VRF.
    #[default]
    Main,
    /// By those of the VRF that has this table.
    Vrf(u32),
    /// By none: they stay with the kernel.
    Kernel,
}

/// The interfaces that belong to VRFs, and the VRFs whose routes the sink has.
#[derive(Debug, Default)]
pub(super) struct VrfState {
    /// Those of interfaces that are not bound to [`FibBinding::Main`].
    bindings: HashMap<u32, FibBinding>,
    /// The interfaces of each VRF, by its table.
    ports: BTreeMap<u32, Vec<u32>>,
}

impl VrfState {
    /// The tables of VRFs whose routes the sink has, with the interfaces that are bound to them.
    pub(super) fn tables(&self) -> impl Iterator<Item = (u32, &[u32])> {
        self.ports.iter().map(|(table, ports)| (*table, &ports[..]))
    }
}

/// A VRF, as its interface says.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Vrf {
    /// The name of its interface.
    pub name: String,
    /// The number of its routing table.
    pub table: u32,
}

impl fmt::Display for Vrf {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "table {} of VRF {}", self.table, self.name)
    }
}

impl Mirror {
    /// The VRF that an interface belongs to.
    pub fn vrf_of(&self, link: u32) -> Option<Vrf> {
        let vrf = self.world.links.get(&self.world.links.get(&link)?.master?)?;
        let LinkKind::Vrf { table } = vrf.kind else { return None };
        Some(Vrf { name: vrf.name.clone(), table })
    }

    /// Follows again which VRFs interfaces belong to, where the sink takes others than before.
    pub fn review_vrfs(&mut self, sink: &mut dyn Sink) {
        let wanted = self.find_bindings(sink);
        self.release_bindings(&wanted, sink);
        let mut ports: BTreeMap<u32, Vec<u32>> = BTreeMap::new();
        for (link, binding) in &wanted {
            if let FibBinding::Vrf(table) = binding {
                ports.entry(*table).or_default().push(*link);
            }
        }
        ports.values_mut().for_each(|links| links.sort_unstable());
        if ports != self.vrfs.ports {
            let before: BTreeSet<u32> = self.vrfs.ports.keys().copied().collect();
            self.vrfs.ports = ports;
            [Family::V4, Family::V6].into_iter().for_each(|family| self.plan_lookups(family, sink));
            let gone = before.iter().filter(|table| !self.vrfs.ports.contains_key(*table));
            gone.for_each(|table| sink.remove_vrf(*table));
        }
        let old = std::mem::replace(&mut self.vrfs.bindings, wanted);
        for (link, binding) in &self.vrfs.bindings {
            if old.get(link) != Some(binding) {
                sink.bind_link(*link, *binding);
            }
        }
        let freed = old.keys().filter(|link| !self.vrfs.bindings.contains_key(*link));
        freed.for_each(|link| sink.bind_link(*link, FibBinding::Main));
    }

    /// Leaves what comes in by an interface to the kernel until [`review_vrfs`](Self::review_vrfs), if it
    /// belongs to another VRF than before.
    pub(super) fn release_binding(&mut self, link: &Link, sink: &mut dyn Sink) {
        let before = self.vrfs.bindings.get(&link.index).copied().unwrap_or_default();
        if before != FibBinding::Kernel && self.binding(link, sink) != before {
            self.vrfs.bindings.insert(link.index, FibBinding::Kernel);
            sink.bind_link(link.index, FibBinding::Kernel);
        }
    }

    /// Leaves to the kernel what comes in by interfaces that get another binding.
    fn release_bindings(&mut self, wanted: &HashMap<u32, FibBinding>, sink: &mut dyn Sink) {
        for (link, binding) in &mut self.vrfs.bindings {
            let is_new = wanted.get(link).copied().unwrap_or_default() != *binding;
            if is_new && *binding != FibBinding::Kernel {
                *binding = FibBinding::Kernel;
                sink.bind_link(*link, FibBinding::Kernel);
            }
        }
    }

    /// The bindings of all interfaces but those to the main routes.
    fn find_bindings(&self, sink: &dyn Sink) -> HashMap<u32, FibBinding> {
        let bindings = self.world.links.values().map(|link| (link.index, self.binding(link, sink)));
        bindings.filter(|(_, binding)| *binding != FibBinding::Main).collect()
    }

    fn binding(&self, link: &Link, sink: &dyn Sink) -> FibBinding {
        if matches!(link.kind, LinkKind::Vrf { .. }) {
            return FibBinding::Kernel;
        }
        let Some(master) = link.master else { return FibBinding::Main };
        match self.world.links.get(&master).map(|master| &master.kind) {
            // What it belongs to is not known yet.
            None | Some(LinkKind::Vrf { table: 0 }) => FibBinding::Kernel,
            Some(LinkKind::Vrf { table }) if sink.follows_vrf(link) => FibBinding::Vrf(*table),
            Some(LinkKind::Vrf { .. }) => FibBinding::Kernel,
            Some(_) => FibBinding::Main,
        }
    }
}
