//! The FIBs of VRFs, and which FIBs the program of a port looks into.
//!
//! A program looks into one FIB. Mostly that is the one of its port and of all VLANs on it. Where they
//! differ, the port has a program for each FIB: the attached one looks at the number of the FIB in the record
//! of the port or VLAN, and leaves frames of other FIBs to the others. What comes by a port whose programs
//! don't know its FIB yet goes to the kernel.
use super::super::program::Fibs;
use super::super::routes::{Fib, FibError, Routes};
use super::Accelerator;
use crate::kernel::Link;
use crate::mirror::FibBinding;
use artery_lpm::{Fib4Fast, Fib6};
use artery_rcu::Domain;
use std::collections::BTreeSet;
use std::sync::Arc;

/// The number of the FIB of interfaces that belong to no VRF.
pub(super) const MAIN: u32 = 0;

/// The routes of a VRF.
pub(super) struct VrfFib {
    pub(super) number: u32,
    pub(super) ipv4: Routes<u32, Fib4Fast>,
    pub(super) ipv6: Routes<u128, Fib6>,
    /// Loads that have begun, one within another.
    loads: u32,
}

/// FIBs that others have taken the place of, which programs may still read.
pub(super) type OldFibs = Vec<(Option<Fib<Fib4Fast>>, Option<Fib<Fib6>>)>;

impl VrfFib {
    fn new(domain: &Arc<Domain>, number: u32) -> Result<VrfFib, FibError> {
        Ok(VrfFib { number, ipv4: Routes::new(domain)?, ipv6: Routes::new(domain)?, loads: 0 })
    }

    fn are_right(&self, is_v6: bool) -> bool {
        let are_right = if is_v6 { self.ipv6.are_right() } else { self.ipv4.are_right() };
        are_right && self.loads == 0
    }
}

impl Accelerator {
    /// The number of the FIB that packets of an interface are looked up in, if there is one.
    pub(super) fn fib_of(&self, link: u32) -> Option<u32> {
        match self.bindings.get(&link).copied().unwrap_or_default() {
            FibBinding::Main => Some(MAIN),
            FibBinding::Vrf(table) => self.vrfs.get(&table).map(|vrf| vrf.number),
            FibBinding::Kernel => None,
        }
    }

    /// Whether an interface belongs to a VRF whose routes are not loaded.
    pub fn lacks_fib(&self, link: u32) -> bool {
        matches!(self.bindings.get(&link), Some(FibBinding::Vrf(_))) && self.fib_of(link).is_none()
    }

    /// Whether programs find the routes of a family for packets that come in by an interface as the mirror
    /// has them.
    pub(super) fn finds_routes(&self, is_v6: bool, link: u32) -> bool {
        let Some(fib) = self.fib_of(link) else { return false };
        let are_right = match self.vrfs.values().find(|vrf| vrf.number == fib) {
            Some(vrf) => vrf.are_right(is_v6),
            None if is_v6 => self.ipv6.are_right(),
            None => self.ipv4.are_right(),
        };
        // What arrives at members of a bridge, which has no program, is looked up in the main FIB.
        let is_known = match self.attached.get(&self.carrier_of(link)) {
            Some(attached) => attached.fibs.contains(&fib),
            None => fib == MAIN,
        };
        are_right && is_known && self.loads == 0 && !self.old_fibs.contains(&fib)
    }

    /// The interface whose program receives the packets of an interface.
    fn carrier_of(&self, link: u32) -> u32 {
        let carrier = self.members.get(&link).and_then(|member| member.carrier);
        carrier.map_or(link, |(carrier, _)| carrier)
    }

    /// The FIBs that the program of an interface needs.
    pub(super) fn fibs_of(&self, link: u32) -> BTreeSet<u32> {
        let by_it = self.members.keys().filter(|member| self.carrier_of(**member) == link);
        let fibs: BTreeSet<u32> = by_it.filter_map(|member| self.fib_of(*member)).collect();
        if fibs.is_empty() { [MAIN].into() } else { fibs }
    }

    /// A FIB of each family, as a program reads them; those of no VRF if the number has none.
    pub(super) fn program_fibs(&self, number: u32) -> Fibs<'_> {
        let vrf = self.vrfs.values().find(|vrf| vrf.number == number);
        let (ipv4, ipv6) = vrf.map_or((&self.ipv4, &self.ipv6), |vrf| (&vrf.ipv4, &vrf.ipv6));
        let (ipv4, ipv6) = (&ipv4.current, &ipv6.current);
        Fibs { ipv4: &ipv4.arrays, list_bytes: ipv4.room, ipv6: &ipv6.arrays, fib6_bytes: ipv6.room }
    }

    /// Marks FIBs that must be rebuilt: programs know old ones.
    pub(super) fn mark_stale_fibs(&mut self) {
        let is_stale = |vrf: &&VrfFib| vrf.ipv4.is_stale() || vrf.ipv6.is_stale();
        let of_vrfs: Vec<u32> = self.vrfs.values().filter(is_stale).map(|vrf| vrf.number).collect();
        let is_main_stale = self.ipv4.is_stale() || self.ipv6.is_stale();
        let before = self.old_fibs.len();
        self.old_fibs.extend(of_vrfs.into_iter().chain(is_main_stale.then_some(MAIN)));
        if self.old_fibs.len() != before {
            self.set_flags();
        }
    }

    /// Rebuilds the FIBs that must be.
    pub(super) fn rebuild_stale_fibs(&mut self) -> Result<OldFibs, FibError> {
        let mut old = vec![(self.ipv4.rebuild_if_stale()?, self.ipv6.rebuild_if_stale()?)];
        for vrf in self.vrfs.values_mut() {
            old.push((vrf.ipv4.rebuild_if_stale()?, vrf.ipv6.rebuild_if_stale()?));
        }
        Ok(old)
    }

    /// The interfaces whose programs look into old FIBs, or not into all that they need.
    pub(super) fn ports_with_old_programs(&self) -> Vec<u32> {
        let is_old = |(link, attached): &(&u32, &super::AttachedPort)| {
            let wanted = self.fibs_of(**link);
            attached.fibs != wanted || wanted.iter().any(|fib| self.old_fibs.contains(fib))
        };
        self.attached.iter().filter(is_old).map(|(link, _)| *link).collect()
    }

    pub(super) fn may_make_room(&self) -> bool {
        let of_vrfs = || self.vrfs.values().any(|vrf| vrf.ipv4.may_fit() || vrf.ipv6.may_fit());
        self.ipv4.may_fit() || self.ipv6.may_fit() || of_vrfs()
    }

    /// Fits in routes that did not fit, once programs no longer read what was replaced.
    pub(super) fn fit_routes(&mut self) {
        let of_vrfs = self.vrfs.values_mut().map(|vrf| (&mut vrf.ipv4, &mut vrf.ipv6));
        for (ipv4, ipv6) in std::iter::once((&mut self.ipv4, &mut self.ipv6)).chain(of_vrfs) {
            if ipv4.may_fit() {
                ipv4.fit();
            }
            if ipv6.may_fit() {
                ipv6.fit();
            }
        }
    }

    /// Whether an interface is adopted, or a VLAN of one that is.
    pub(super) fn is_port(&self, link: &Link) -> bool {
        use crate::kernel::LinkKind::Vlan;
        let is_carried = matches!(link.kind, Vlan { parent, .. } if self.attached.contains_key(&parent));
        is_carried || self.attached.contains_key(&link.index)
    }

    pub(super) fn set_binding(&mut self, link: u32, binding: FibBinding) {
        match binding {
            FibBinding::Main => drop(self.bindings.remove(&link)),
            binding => drop(self.bindings.insert(link, binding)),
        }
        self.set_flags();
    }

    /// Begins a load of the routes of a VRF. Without memory for them its packets stay with the kernel.
    pub(super) fn begin_vrf_load(&mut self, table: u32) {
        if !self.vrfs.contains_key(&table) {
            let Some(&number) = self.free_fibs.first() else { return };
            let Ok(mut vrf) = VrfFib::new(&self.domain, number) else { return };
            self.free_fibs.remove(&number);
            vrf.ipv4.copy_neighbors(&self.ipv4);
            vrf.ipv6.copy_neighbors(&self.ipv6);
            // A program may know another FIB by this number.
            self.old_fibs.insert(number);
            self.vrfs.insert(table, vrf);
        }
        if let Some(vrf) = self.vrfs.get_mut(&table) {
            vrf.loads += 1;
            vrf.ipv4.begin_load();
            vrf.ipv6.begin_load();
            self.set_flags();
        }
    }

    pub(super) fn end_vrf_load(&mut self, table: u32) {
        if let Some(vrf) = self.vrfs.get_mut(&table) {
            vrf.loads -= 1;
            if vrf.loads == 0 && self.loads == 0 {
                vrf.ipv4.end_load(&self.groups);
                vrf.ipv6.end_load(&self.groups);
            }
        }
        self.set_flags();
    }

    /// Begins a load of all FIBs.
    pub(super) fn begin_all_loads(&mut self) {
        self.ipv4.begin_load();
        self.ipv6.begin_load();
        for vrf in self.vrfs.values_mut() {
            vrf.ipv4.begin_load();
            vrf.ipv6.begin_load();
        }
    }

    /// Ends it, except of VRFs with loads of their own.
    pub(super) fn end_all_loads(&mut self) {
        self.ipv4.end_load(&self.groups);
        self.ipv6.end_load(&self.groups);
        for vrf in self.vrfs.values_mut().filter(|vrf| vrf.loads == 0) {
            vrf.ipv4.end_load(&self.groups);
            vrf.ipv6.end_load(&self.groups);
        }
    }

    /// No interface is bound to a VRF any more; its programs are replaced with the next updates.
    pub(super) fn drop_vrf(&mut self, table: u32) {
        if let Some(vrf) = self.vrfs.remove(&table) {
            self.old_fibs.remove(&vrf.number);
            self.free_fibs.insert(vrf.number);
            self.dropped_vrfs.push(vrf);
        }
        self.set_flags();
    }
}
