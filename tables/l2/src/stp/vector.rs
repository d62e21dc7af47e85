//! Priority vectors: a bridge's path to the root, and which of two is better (802.1D-2004, 17.5, 17.6).

use super::settings::Times;
use artery_wire::{BridgeId, Configuration};

/// The twelve bits of a port's identifier that number it.
const NUMBER: u16 = 0x0fff;

/// A path to the root. The lesser one is the better one, compared field by field.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Default)]
pub(super) struct Vector {
    pub(super) root: BridgeId,
    /// Cost of the path from `bridge` to the root.
    pub(super) cost: u32,
    /// The bridge that offers this path.
    pub(super) bridge: BridgeId,
    /// By which of its ports.
    pub(super) port: u16,
}

impl Vector {
    /// What a bridge says that takes itself for the root.
    pub(super) fn of_root(own: BridgeId) -> Vector {
        Vector { root: own, cost: 0, bridge: own, port: 0 }
    }

    pub(super) fn from_bpdu(told: &Configuration) -> Vector {
        Vector { root: told.root, cost: told.cost, bridge: told.bridge, port: told.port }
    }

    /// The path through a port that received this.
    pub(super) fn add_cost(self, cost: u32) -> Vector {
        Vector { cost: self.cost.saturating_add(cost), ..self }
    }

    /// Whether the same port of the same bridge said this, whatever its priorities are.
    pub(super) fn is_of_same_sender(&self, other: &Vector) -> bool {
        self.is_from(other.bridge, other.port)
    }

    /// Whether that port of that bridge said this.
    pub(super) fn is_from(&self, bridge: BridgeId, port: u16) -> bool {
        self.bridge.address == bridge.address && self.port & NUMBER == port & NUMBER
    }
}

/// What a message means to the port that received it (17.21.8).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Meaning {
    /// A better path than the known one, or a change from the bridge that sent the known one.
    Superior,
    /// The known one again.
    Repeated,
    /// A port that offers a worse path than this one.
    Inferior,
    /// The answer of a port that takes the path offered here.
    Answer,
    /// Nothing that concerns this port.
    Other,
}

impl Times {
    pub(super) fn from_bpdu(told: &Configuration) -> Times {
        Times {
            message_age: told.message_age,
            max_age: told.max_age,
            hello_time: told.hello_time,
            forward_delay: told.forward_delay,
        }
        .clamp_bounds()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use artery_wire::EtherAddr;

    fn id(last: u8) -> BridgeId {
        BridgeId { priority: 0x8000, address: EtherAddr([2, 0, 0, 0, 0, last]) }
    }

    #[test]
    fn roots_count_before_costs_and_costs_before_bridges_and_ports() {
        let vector = |root, cost, bridge, port: u16| Vector {
            root: id(root),
            cost,
            bridge: id(bridge),
            port: 0x8000 + port,
        };
        let ordered = [
            vector(1, 9, 9, 9),
            vector(2, 1, 9, 9),
            vector(2, 2, 1, 9),
            vector(2, 2, 2, 1),
            vector(2, 2, 2, 2),
            vector(2, 3, 1, 1),
        ];
        assert!(ordered.is_sorted_by(|a, b| a < b));
    }

    #[test]
    fn a_sender_is_known_by_address_and_number_and_not_by_priorities() {
        let vector = Vector { root: id(1), cost: 5, bridge: id(2), port: 0x8003 };
        let bridge = BridgeId { priority: 0, ..id(2) };
        assert!(vector.is_of_same_sender(&Vector { root: id(7), cost: 1, bridge, port: 0x1003 }));
        assert!(!vector.is_from(id(2), 0x8004) && !vector.is_from(id(3), 0x8003));
    }
}
