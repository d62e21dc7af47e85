//! What keeps packets that arrive at ports of VRFs with the kernel.
use super::Session;
use crate::blockers::{self, Blocker, BlockerKind, Port};
use crate::connections::FamilyConsent;
use crate::kernel::Family;

/// Why packets of a VRF stay that has no FIB.
const NOT_LOADED: &str = "whose routes are not loaded (limit 16 VRFs, of 24 MB at least)";

impl Session {
    pub(super) fn find_vrf_blockers(&self, ports: &[Port], consent: &[FamilyConsent; 2]) -> Vec<Blocker> {
        if self.graph.is_some() {
            return blockers::of_vrfs(ports, None, blockers::NO_VRFS);
        }
        let lacks_fib = |port: &&Port| self.accelerator.lacks_fib(port.index);
        let without: Vec<Port> = ports.iter().filter(lacks_fib).cloned().collect();
        let mut found = blockers::of_vrfs(&without, None, NOT_LOADED);
        for (family, consent) in [Family::V4, Family::V6].into_iter().zip(consent) {
            if consent.is_given {
                found.extend(blockers::of_vrfs(ports, Some(family), blockers::UNTRACKED));
            }
        }
        found
    }

    /// Whether a port has no FIB of its VRF and no line says so, or one does that has.
    pub(super) fn has_new_vrf_blockers(&self) -> bool {
        let is_told = |port: &Port| {
            let is_it = |one: &Blocker| one.kind == BlockerKind::Master && one.what.ends_with(NOT_LOADED);
            self.blockers.iter().any(|one| one.port == Some(port.index) && is_it(one))
        };
        self.named_ports.iter().any(|port| self.accelerator.lacks_fib(port.index) != is_told(port))
    }
}
