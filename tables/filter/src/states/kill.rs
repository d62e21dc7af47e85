//! Which states `pfctl -k` means.
use super::{Key, StateView};
use crate::dissect::address_to_u128;
use crate::facts::{Direction, Family};
use artery_wire::IpProtocol;
use std::net::IpAddr;

/// States that shall end.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum StateSelector {
    /// Those from hosts of a network, and to hosts of another if one is given.
    Hosts {
        /// Where the first packet came from.
        source: (IpAddr, u8),
        /// Where the first packet went to; anywhere if None.
        destination: Option<(IpAddr, u8)>,
    },
    /// Those of rules with a label.
    Label(String),
    /// That with an id; of that maker, 0 being this filter.
    Id {
        /// The state's id, as `pfctl -vv -s states` prints it.
        id: u64,
        /// The filter that made it; 0 is this one.
        creator: Option<u32>,
    },
    /// That with a key, as it is listed.
    Key {
        /// The protocol number of IP.
        protocol: IpProtocol,
        /// The direction of its first packet.
        direction: Direction,
        /// The first end that is listed, and the second.
        ends: [(IpAddr, u16); 2],
    },
}

impl StateSelector {
    /// Whether a state is meant.
    pub fn matches_state(&self, state: &StateView<'_>) -> bool {
        match self {
            StateSelector::Hosts { source, destination } => {
                let [from, to] = state.first_ends();
                contains(*source, from) && destination.is_none_or(|network| contains(network, to))
            }
            StateSelector::Label(label) => state.label() == label,
            StateSelector::Id { id, creator } => {
                state.id() == *id && creator.is_none_or(|creator| creator == state.creator())
            }
            StateSelector::Key { protocol, direction, ends } => {
                state.direction() == *direction
                    && state.protocol() == *protocol
                    && state.keys().iter().any(|key| has_ends(key, ends))
            }
        }
    }
}

/// Whether a key's ends are listed so: the end on this side of the interface first.
fn has_ends(key: &Key, ends: &[(IpAddr, u16); 2]) -> bool {
    let is = |end: usize, listed: (IpAddr, u16)| (key.address(end), key.ports[end]) == listed;
    is(1, ends[0]) && is(0, ends[1])
}

fn contains(network: (IpAddr, u8), address: IpAddr) -> bool {
    let family = Family::of_address(network.0);
    if family != Family::of_address(address) {
        return false;
    }
    let bits = if family == Family::Inet { 32 } else { 128 };
    let host_bits = bits - u32::from(network.1).min(bits);
    let differs = address_to_u128(network.0) ^ address_to_u128(address);
    differs.checked_shr(host_bits).unwrap_or(0) == 0
}
