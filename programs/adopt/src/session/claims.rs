//! Which process has an interface: another router that forwards its frames too would double them.
use super::Session;
use crate::fast;
use artery_device::{Interface, PortClaim};
use std::collections::BTreeMap;
use std::time::{Duration, Instant};

/// How often an interface that came back and could not be claimed is tried again.
const RETRY: Duration = Duration::from_secs(1);

/// The claims of a session.
#[derive(Default)]
pub(super) struct PortClaims {
    held: Vec<PortClaim>,
    /// Interfaces that came back and could not be claimed, and when that was tried last.
    refused: BTreeMap<u32, Instant>,
}

/// Whether an interface may be adopted.
pub(super) enum Claimed {
    Yes,
    /// Not now. It is tried again, and why has been reported.
    NotYet,
    No(fast::Error),
}

impl PortClaims {
    /// Claims an interface that has come back. While that fails, as it does while another process has it, it
    /// is tried each second.
    pub(super) fn claim(&mut self, index: u32, now: Instant) -> Claimed {
        if self.held.iter().any(|claim| claim.index() == index) {
            return Claimed::Yes;
        }
        let tried = self.refused.get(&index);
        if tried.is_some_and(|tried| now.saturating_duration_since(*tried) < RETRY) {
            return Claimed::NotYet;
        }
        let claimed = match Interface::with_index(index) {
            Ok(Some(interface)) => PortClaim::shared(&interface),
            // It is gone again.
            Ok(None) => return Claimed::NotYet,
            Err(error) => Err(error),
        };
        match claimed {
            Ok(claim) => {
                self.refused.remove(&index);
                self.held.push(claim.serve());
                Claimed::Yes
            }
            Err(error) => match self.refused.insert(index, now) {
                None => Claimed::No(fast::Error::Claim(error)),
                Some(_) => Claimed::NotYet,
            },
        }
    }

    /// Forgets interfaces that there are no more.
    pub(super) fn retain(&mut self, is_there: impl Fn(u32) -> bool) {
        self.refused.retain(|index, _| is_there(*index));
    }

    /// Lets other processes have an interface.
    pub(super) fn release(&mut self, index: u32) {
        self.held.retain(|claim| claim.index() != index);
        self.refused.remove(&index);
    }

    /// Takes over the claims of a process that has ended.
    pub(super) fn renew(&mut self) {
        self.held.iter_mut().for_each(PortClaim::renew);
    }
}

impl Session {
    /// Holds claims of its interfaces, and renews them.
    pub fn hold(&mut self, claims: Vec<PortClaim>) {
        self.claims.held.extend(claims);
    }

    /// Gives up its claims, those of interfaces that came back among them; the caller holds them until
    /// its graph has ended.
    pub fn take_claims(&mut self) -> Vec<PortClaim> {
        std::mem::take(&mut self.claims.held)
    }
}
