//! What the follower of connections asks of the accelerator, and sets in it.
use super::Accelerator;
use crate::fast::Error;
use crate::fast::flows::FlowTable;
use crate::kernel::Family;
use rustix::fd::BorrowedFd;
use std::hash::{BuildHasher as _, Hasher as _};
use std::net::IpAddr;

impl Accelerator {
    /// Makes room for flows of established connections. Programs look them up from then on; those that are
    /// attached are replaced. If the kernel refuses these, nothing has changed, and it is not to be tried
    /// again, unless it was for want of memory or descriptors.
    pub fn enable_flows(&mut self) -> Result<(), Error> {
        let seed = std::collections::hash_map::RandomState::new().build_hasher().finish();
        self.memory.enable_flows(seed as u32)?;
        let replaced = self.replace_all_programs();
        if replaced.as_ref().is_err_and(|error| !error.is_shortage()) {
            (self.memory.flows, self.memory.looks_up_flows) = (None, false);
        }
        replaced
    }

    /// Has programs look up no flows any more, of which there are none; those that are attached are replaced,
    /// unless this fails. Their room stays.
    pub fn disable_flows(&mut self) -> Result<(), Error> {
        self.memory.looks_up_flows = false;
        let replaced = self.replace_all_programs();
        self.memory.looks_up_flows = replaced.is_err();
        replaced
    }

    /// The flows of established connections, if there is room for any.
    pub fn flows_mut(&mut self) -> Option<&mut FlowTable> {
        self.memory.flows.as_mut()
    }

    /// Forwards of a family only packets of established connections, or all again.
    pub fn set_established(&mut self, family: Family, is_established: bool) {
        let place = &mut self.established[usize::from(family == Family::V6)];
        if std::mem::replace(place, is_established) != is_established {
            self.set_flags();
        }
    }

    /// Leaves packets of established connections to the kernel where others are its, too, or no longer.
    pub fn suspend_established(&mut self, is_suspended: bool) {
        if std::mem::replace(&mut self.is_suspended, is_suspended) != is_suspended {
            self.set_flags();
        }
    }

    /// Whether established connections are left to the kernel.
    pub fn suspends_established(&self) -> bool {
        self.is_suspended
    }

    /// What can be read when programs have reported flows, if they look any up.
    pub fn candidates_file(&self) -> Option<BorrowedFd<'_>> {
        let flows = self.memory.flows.as_ref().filter(|_| self.memory.looks_up_flows);
        flows.map(FlowTable::candidates_file)
    }

    /// Whether an address is this machine's own.
    pub fn is_own(&self, address: IpAddr) -> bool {
        self.own.contains_key(&address)
    }

    /// Whether an address is this machine's own, and not that of the interface that has a port's number.
    pub fn is_own_elsewhere(&self, address: IpAddr, port: u32) -> bool {
        let links = self.own.get(&address);
        links.is_some_and(|links| links.iter().all(|link| self.port(*link) != Some(port)))
    }

    /// The number of the port that packets to an address leave by, or nothing within if there are several
    /// next hops with different ports; `None` where they are the kernel's.
    pub fn egress(&self, destination: IpAddr) -> Option<Option<u32>> {
        let mut reader = self.domain.reader();
        let turn = reader.turn();
        let group = match destination {
            IpAddr::V4(address) => self.ipv4.current.fib.reader().lookup(&turn, address.to_bits()),
            IpAddr::V6(address) => self.ipv6.current.fib.reader().lookup(&turn, address.to_bits()),
        };
        self.memory.egress(group)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn suspended_connections_stay_with_the_kernel_and_a_family_without_rules_does_not() {
        let Ok(mut accelerator) = Accelerator::new() else {
            return eprintln!("skipped: BPF maps need CAP_BPF");
        };
        let may = |accelerator: &Accelerator| {
            let flags = accelerator.port_flags(1);
            (flags.ipv6, flags.ipv6_established)
        };
        accelerator.set_established(Family::V6, true);
        assert_eq!(may(&accelerator), (false, true));
        accelerator.suspend_established(true);
        assert!(accelerator.suspends_established());
        assert_eq!(may(&accelerator), (false, false));
        accelerator.set_established(Family::V6, false);
        assert_eq!(may(&accelerator), (true, false));
        accelerator.set_established(Family::V6, true);
        accelerator.suspend_established(false);
        assert_eq!(may(&accelerator), (false, true));
    }
}
