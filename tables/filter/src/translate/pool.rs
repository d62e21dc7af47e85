//! Pools: which address, and which port, a packet gets.
use crate::dissect::{address_from_u128, address_to_u128};
use crate::facts::Family;
use crate::rule::{Pool, PoolChoice, PoolPorts};
use std::hash::Hasher;
use std::net::IpAddr;

/// First and last port that `nat-to` gives where it says nothing else.
pub const NAT_PORTS: (u16, u16) = (50_001, 65_535);

/// The addresses of a pool.
#[derive(Clone, Debug, Default)]
pub struct Choice {
    networks: Vec<Network>,
    /// How many addresses there are in all, at most 2¹²⁸ − 1.
    count: u128,
}

/// The position of `round-robin` in a pool, and the key of `source-hash` if none was configured.
#[derive(Clone, Copy, Debug, Default)]
pub struct Rotation {
    next: u128,
    key: [u64; 2],
}

impl Rotation {
    /// Begins at the first address, with this key for `source-hash`.
    pub fn new(key: [u64; 2]) -> Rotation {
        Rotation { next: 0, key }
    }
}

#[derive(Clone, Copy, Debug)]
struct Network {
    first: u128,
    host_bits: u32,
    count: u128,
}

/// What a choice depends on besides the pool.
pub struct ChoiceInput<'a> {
    /// Source and destination of the packet.
    pub addresses: [IpAddr; 2],
    /// The address that the pool's takes the place of: what `bitmask` keeps the host part of.
    pub old: IpAddr,
    /// A random number of 128 bits.
    pub random: u128,
    /// How many states use an address of the pool, for `least-states`.
    pub states: &'a dyn Fn(IpAddr) -> u32,
}

/// Most addresses that `least-states` looks at.
const MOST_COMPARED: u128 = 256;

impl Choice {
    /// The addresses of a family among these networks.
    pub fn new(networks: &[(IpAddr, u8)], family: Family) -> Choice {
        let bits = if family == Family::Inet { 32 } else { 128 };
        let networks: Vec<_> = networks
            .iter()
            .filter(|(address, _)| Family::of_address(*address) == family)
            .map(|(address, length)| {
                let host_bits = bits - u32::from(*length).min(bits);
                let mask = 1_u128.checked_shl(host_bits).map_or(u128::MAX, |size| size - 1);
                Network { first: address_to_u128(*address) & !mask, host_bits, count: mask.saturating_add(1) }
            })
            .collect();
        let count = networks.iter().fold(0_u128, |sum, network| sum.saturating_add(network.count));
        Choice { networks, count }
    }

    /// How many addresses there are.
    pub fn count(&self) -> u128 {
        self.count
    }

    /// An address for a packet; none if there is none.
    pub fn choose_address(
        &self,
        pool: &Pool,
        rotation: &mut Rotation,
        wish: &ChoiceInput<'_>,
    ) -> Option<IpAddr> {
        let family = Family::of_address(wish.old);
        let first = *self.networks.first()?;
        let place = match pool.choice {
            PoolChoice::Single => 0,
            PoolChoice::Bitmask | PoolChoice::Paired => {
                let mask = first.count.wrapping_sub(1);
                return Some(address_from_u128(first.first | address_to_u128(wish.old) & mask, family));
            }
            PoolChoice::Random => wish.random % self.count,
            PoolChoice::RoundRobin | PoolChoice::Usual => self.next_place(rotation),
            PoolChoice::SourceHash(key) => u128::from(rotation.hash(wish.addresses[0], key)) % self.count,
            PoolChoice::LeastStates => self.least_loaded(family, rotation, wish.states),
        };
        Some(address_from_u128(self.address_at(place), family))
    }

    fn next_place(&self, rotation: &mut Rotation) -> u128 {
        let place = rotation.next % self.count;
        rotation.next = place + 1;
        place
    }

    /// The first address, from the next one on, that has fewest states.
    fn least_loaded(&self, family: Family, rotation: &mut Rotation, states: &dyn Fn(IpAddr) -> u32) -> u128 {
        let start = self.next_place(rotation);
        let places = (0..self.count.min(MOST_COMPARED)).map(|n| (start + n) % self.count);
        places.min_by_key(|place| states(address_from_u128(self.address_at(*place), family))).unwrap_or(0)
    }

    fn address_at(&self, mut place: u128) -> u128 {
        for network in &self.networks {
            if place < network.count {
                return if network.host_bits == 0 { network.first } else { network.first | place };
            }
            place -= network.count;
        }
        self.networks.first().map_or(0, |network| network.first)
    }
}

impl Rotation {
    fn hash(&self, source: IpAddr, key: Option<[u32; 4]>) -> u64 {
        let key = key.map_or(self.key, |[a, b, c, d]| {
            [u64::from(a) << 32 | u64::from(b), u64::from(c) << 32 | u64::from(d)]
        });
        let mut hasher = std::hash::DefaultHasher::new();
        key.iter().for_each(|word| hasher.write_u64(*word));
        hasher.write_u128(address_to_u128(source));
        hasher.finish()
    }
}

/// Finds a port for `nat-to` that is not taken: the packet's own if the pool says so, otherwise one of its
/// range, looked for from a random one on.
pub fn free_port(
    pool: &Pool,
    own: u16,
    is_icmp: bool,
    random: u32,
    is_free: impl Fn(u16) -> bool,
) -> Option<u16> {
    if pool.has_static_port {
        return is_free(own).then_some(own);
    }
    let (low, high) = match pool.ports {
        _ if is_icmp => (1, u16::MAX),
        None => NAT_PORTS,
        Some(PoolPorts::One(port) | PoolPorts::Moved(port)) => (port, port),
        Some(PoolPorts::Range(one, other)) => (one.min(other), one.max(other)),
    };
    let count = u32::from(high - low) + 1;
    let start = random % count;
    (0..count).map(|n| low + ((start + n) % count) as u16).find(|port| is_free(*port))
}

/// The port that `rdr-to` gives to packets for a port, where the rule asks for ports from `first` on. Ports
/// of a range are given one for one; where the rule asks for more than there are, the range begins again.
pub fn redirected_port(pool: &Pool, own: u16, first: u16) -> u16 {
    let place = own.wrapping_sub(first);
    match pool.ports {
        None => own,
        Some(PoolPorts::One(port)) => port,
        Some(PoolPorts::Moved(port)) => port.wrapping_add(place),
        Some(PoolPorts::Range(one, other)) => {
            let (low, high) = (one.min(other), one.max(other));
            let count = u32::from(high - low) + 1;
            low + (u32::from(place) % count) as u16
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rule::{HostAddress, PoolAddress};

    fn pool(choice: PoolChoice) -> Pool {
        let address = HostAddress::Network("10.0.0.0".parse().unwrap(), 30);
        Pool {
            address: PoolAddress::Host(address, None),
            choice,
            is_sticky: false,
            has_static_port: false,
            ports: None,
        }
    }

    fn networks() -> (Choice, Rotation) {
        let networks = ["10.0.0.0/30", "10.9.9.9/32", "2001:db8::/126"].map(|text| {
            let (address, length) = text.split_once('/').unwrap();
            (address.parse().unwrap(), length.parse().unwrap())
        });
        (Choice::new(&networks, Family::Inet), Rotation::new([1, 2]))
    }

    fn choose(
        (choice, rotation): &mut (Choice, Rotation),
        kind: PoolChoice,
        source: &str,
        random: u128,
    ) -> String {
        let addresses = [source.parse().unwrap(), "8.8.8.8".parse().unwrap()];
        let busy: IpAddr = "10.0.0.2".parse().unwrap();
        let states = |address| u32::from(address != busy);
        let wish = ChoiceInput { addresses, old: addresses[0], random, states: &states };
        choice.choose_address(&pool(kind), rotation, &wish).unwrap().to_string()
    }

    #[test]
    fn round_robin_visits_each_address_in_turn() {
        let mut choice = networks();
        let visited = (0..6).map(|_| choose(&mut choice, PoolChoice::RoundRobin, "1.1.1.1", 0));
        let expected = ["10.0.0.0", "10.0.0.1", "10.0.0.2", "10.0.0.3", "10.9.9.9", "10.0.0.0"];
        assert_eq!(visited.collect::<Vec<_>>(), expected);
    }

    #[test]
    fn other_kinds_choose_as_they_say() {
        let mut choice = networks();
        assert_eq!(choose(&mut choice, PoolChoice::Bitmask, "1.1.1.7", 0), "10.0.0.3");
        assert_eq!(choose(&mut choice, PoolChoice::Random, "1.1.1.7", 14), "10.9.9.9");
        assert_eq!(choose(&mut choice, PoolChoice::LeastStates, "1.1.1.7", 0), "10.0.0.2");
        assert_eq!(choose(&mut choice, PoolChoice::Single, "1.1.1.7", 3), "10.0.0.0");
    }

    #[test]
    fn a_source_always_hashes_to_the_same_address_and_sources_spread() {
        let key = PoolChoice::SourceHash(Some([1, 2, 3, 4]));
        let hashed = |n: u8| {
            let source = format!("1.1.1.{n}");
            let [one, other] = [(); 2].map(|()| choose(&mut networks(), key, &source, n.into()));
            assert_eq!(one, other);
            one
        };
        let met: std::collections::BTreeSet<_> = (0..100).map(hashed).collect();
        assert_eq!(met.len(), 5);
    }

    #[test]
    fn every_port_of_the_range_is_given_before_none_is_left() {
        let mut pool = pool(PoolChoice::Single);
        pool.ports = Some(PoolPorts::Range(1000, 1009));
        let mut taken = std::collections::BTreeSet::new();
        while let Some(port) = free_port(&pool, 7, false, 12_345, |port| !taken.contains(&port)) {
            assert!(taken.insert(port));
        }
        assert_eq!(taken, (1000..=1009).collect());
        pool.has_static_port = true;
        assert_eq!(free_port(&pool, 7, false, 0, |_| true), Some(7));
        assert_eq!(free_port(&pool, 7, false, 0, |_| false), None);
    }

    #[test]
    fn ports_that_are_not_said_lie_where_the_manual_says() {
        let pool = pool(PoolChoice::Single);
        for random in 0..100_000 {
            assert!(free_port(&pool, 7, false, random, |_| true).unwrap() > 50_000);
        }
    }

    #[test]
    fn redirections_move_ports() {
        let mut pool = pool(PoolChoice::Single);
        assert_eq!(redirected_port(&pool, 80, 80), 80);
        pool.ports = Some(PoolPorts::One(8080));
        assert_eq!(redirected_port(&pool, 80, 80), 8080);
        pool.ports = Some(PoolPorts::Moved(9000));
        assert_eq!(redirected_port(&pool, 83, 80), 9003);
    }

    #[test]
    fn ports_of_a_range_are_given_one_for_one_and_again_where_they_end() {
        let mut pool = pool(PoolChoice::Single);
        pool.ports = Some(PoolPorts::Range(4000, 4009));
        let given = [2000, 2001, 2009, 2010, 2029].map(|own| redirected_port(&pool, own, 2000));
        assert_eq!(given, [4000, 4001, 4009, 4000, 4009]);
        pool.ports = Some(PoolPorts::Range(0, u16::MAX));
        assert_eq!(redirected_port(&pool, 7, 8), u16::MAX);
    }
}
