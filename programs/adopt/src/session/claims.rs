//! Which process has an interface: another router that forwards its frames too would double them.
use super::Session;
use crate::fast;
use artery_device::{DeviceError, Interface, PortClaim};
use std::collections::BTreeMap;
use std::time::{Duration, Instant};

/// How often the owner of an interface that came back is asked for.
const RETRY: Duration = Duration::from_secs(1);

/// The claims of a session, and the interfaces that came back while another process had them.
#[derive(Default)]
pub(super) struct PortClaims {
    held: Vec<PortClaim>,
    owned: BTreeMap<u32, Instant>,
}

/// Whether an interface may be adopted.
pub(super) enum Claimed {
    Yes,
    /// Another process has it, as was reported before.
    NotYet,
    No(fast::Error),
}

impl PortClaims {
    /// Claims an interface that has come back, or tries again each second while another process has it.
    pub(super) fn claim(&mut self, index: u32, now: Instant) -> Claimed {
        if self.held.iter().any(|claim| claim.index() == index) {
            return Claimed::Yes;
        }
        let is_known = self.owned.get(&index);
        if is_known.is_some_and(|asked| now.saturating_duration_since(*asked) < RETRY) {
            return Claimed::NotYet;
        }
        let is_known = is_known.is_some();
        let claimed = match Interface::with_index(index) {
            Ok(Some(interface)) => PortClaim::shared(&interface),
            // It is gone again.
            Ok(None) => return Claimed::NotYet,
            Err(error) => Err(error),
        };
        match claimed {
            Ok(claim) => {
                self.owned.remove(&index);
                self.held.push(claim.serve());
                Claimed::Yes
            }
            Err(error @ DeviceError::OwnedByOther { .. }) => {
                self.owned.insert(index, now);
                if is_known { Claimed::NotYet } else { Claimed::No(fast::Error::Owned(error)) }
            }
            // The kernel can't be asked now, as without descriptors.
            Err(_) => Claimed::NotYet,
        }
    }

    /// Lets other processes have an interface.
    pub(super) fn release(&mut self, index: u32) {
        self.held.retain(|claim| claim.index() != index);
        self.owned.remove(&index);
    }

    /// Takes over the claims of a process that has ended.
    pub(super) fn renew(&mut self) {
        self.held.iter_mut().for_each(PortClaim::renew);
    }
}

impl Session {
    /// Holds claims of its interfaces until it ends, and renews them.
    pub fn hold(&mut self, claims: Vec<PortClaim>) {
        self.claims.held.extend(claims);
    }
}
