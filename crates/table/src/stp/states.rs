//! What ports do, for those who forward: one byte a port, written by control and read by workers without a lock.

use super::Action;
use std::fmt;
use std::sync::atomic::{AtomicU8, Ordering::Relaxed};

/// What a port does with frames of hosts.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum PortState {
    /// Drops them.
    Discarding = 0,
    /// Learns where they come from, and drops them.
    Learning = 1,
    /// Learns, takes and sends.
    Forwarding = 2,
}

impl PortState {
    /// Whether source addresses are learned.
    pub fn learns(self) -> bool {
        self >= PortState::Learning
    }

    /// Whether frames may come in and go out.
    pub fn forwards(self) -> bool {
        self == PortState::Forwarding
    }
}

/// What a port is for its bridge.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Role {
    /// Nothing.
    Disabled,
    /// The way to the root.
    Root,
    /// The way to the root for who is behind it.
    Designated,
    /// Another way to the root, in case the first one fails.
    Alternate,
    /// A second port to a link that this bridge leads to the root.
    Backup,
}

impl fmt::Display for Role {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Role::Disabled => "disabled",
            Role::Root => "root",
            Role::Designated => "designated",
            Role::Alternate => "alternate",
            Role::Backup => "backup",
        })
    }
}

/// The states of a bridge's ports by their numbers; ports outside the spanning tree forward.
///
/// Frames that a worker took before a store may still leave by the old state: a turn's worth, as with a card's own queue.
#[derive(Debug)]
pub struct States(Box<[AtomicU8]>);

impl States {
    /// For ports below that number, all of them outside the spanning tree.
    pub fn new(ports: usize) -> States {
        States((0..ports).map(|_| AtomicU8::new(PortState::Forwarding as u8)).collect())
    }

    /// What a port does.
    #[inline]
    pub fn state(&self, port: u16) -> PortState {
        match self.0.get(usize::from(port)).map(|state| state.load(Relaxed)) {
            Some(0) => PortState::Discarding,
            Some(1) => PortState::Learning,
            _ => PortState::Forwarding,
        }
    }

    /// Has a port do this: for one that joins the spanning tree (discarding) or leaves it (forwarding).
    pub fn set(&self, port: u16, state: PortState) {
        if let Some(slot) = self.0.get(usize::from(port)) {
            slot.store(state as u8, Relaxed);
        }
    }

    /// Carries out what concerns states.
    pub fn apply(&self, action: &Action) {
        if let Action::State { port, state } = action {
            self.set(*port, *state);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ports_forward_until_they_are_told_otherwise() {
        let states = States::new(4);
        states.apply(&Action::State { port: 2, state: PortState::Learning });
        states.apply(&Action::State { port: 3, state: PortState::Discarding });
        states.apply(&Action::State { port: 9, state: PortState::Discarding });
        let all: Vec<_> =
            (1..4).map(|port| states.state(port)).map(|it| (it.learns(), it.forwards())).collect();
        assert_eq!(all, [(true, true), (true, false), (false, false)]);
    }
}
