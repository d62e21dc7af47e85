//! Whether an address and port belong to a member: for replies, which carry no other sign of their
//! sender.
use super::Member;
use std::collections::HashSet;
use std::hash::{BuildHasherDefault, Hasher};
use std::net::IpAddr;

/// Addresses and ports of members.
#[derive(Clone, Debug, Default)]
pub(crate) struct MemberEndpoints(HashSet<Endpoint, BuildHasherDefault<Multiplied>>);

/// An address, that of IPv4 mapped to IPv6, and a port or [`ANY`].
type Endpoint = (u128, u32);

/// The port of a member that has none of its own.
const ANY: u32 = 1 << 16;

fn endpoint_of(address: IpAddr, port: Option<u16>) -> Endpoint {
    let bits = match address {
        IpAddr::V4(address) => address.to_ipv6_mapped().to_bits(),
        IpAddr::V6(address) => address.to_bits(),
    };
    (bits, port.map_or(ANY, u32::from))
}

impl MemberEndpoints {
    pub(crate) fn from_members<'a>(members: impl Iterator<Item = &'a Member>) -> MemberEndpoints {
        MemberEndpoints(members.map(|member| endpoint_of(member.address, member.port)).collect())
    }

    /// Whether a member is there; one without a port of its own is at `port`, or, if that is
    /// none, at every port.
    #[inline]
    pub(crate) fn has_member(&self, address: IpAddr, at: u16, port: Option<u16>) -> bool {
        let is_usual = port.is_none_or(|port| port == at);
        self.0.contains(&endpoint_of(address, Some(at)))
            || is_usual && self.0.contains(&endpoint_of(address, None))
    }
}

/// A hash by multiplication. It needs no secret: members alone are put in, and whoever
/// sends packets chooses none.
#[derive(Clone, Copy, Debug, Default)]
struct Multiplied(u64);

impl Hasher for Multiplied {
    #[inline]
    fn write_u128(&mut self, number: u128) {
        self.write_u64((number >> 64) as u64);
        self.write_u64(number as u64);
    }
    #[inline]
    fn write_u64(&mut self, number: u64) {
        let product = u128::from(self.0 ^ number) * 0x9e37_79b9_7f4a_7c15;
        self.0 = (product >> 64) as u64 ^ product as u64;
    }
    #[inline]
    fn write_u32(&mut self, number: u32) {
        self.write_u64(number.into());
    }
    fn write(&mut self, bytes: &[u8]) {
        bytes.iter().for_each(|byte| self.write_u64((*byte).into()));
    }
    #[inline]
    fn finish(&self) -> u64 {
        self.0
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::hash::BuildHasher;

    fn places(members: &[&str]) -> MemberEndpoints {
        let members: Vec<Member> = members.iter().map(|member| member.parse().unwrap()).collect();
        MemberEndpoints::from_members(members.iter())
    }

    #[test]
    fn a_member_is_at_its_own_port_or_else_at_the_services() {
        let places = places(&["a 10.0.0.1:8080", "b 10.0.0.1:8081", "c 10.0.0.2", "d 2001:db8::1"]);
        let has = |address: &str, at, port| places.has_member(address.parse().unwrap(), at, port);
        assert!(has("10.0.0.1", 8080, Some(80)) && has("10.0.0.1", 8081, Some(80)));
        assert!(!has("10.0.0.1", 80, Some(80)) && !has("10.0.0.1", 8082, None));
        assert!(has("10.0.0.2", 80, Some(80)) && !has("10.0.0.2", 81, Some(80)) && has("10.0.0.2", 81, None));
        assert!(has("2001:db8::1", 80, Some(80)) && !has("2001:db8::2", 80, None));
        assert!(
            !has("10.0.0.3", 80, None)
                && !MemberEndpoints::default().has_member([10, 0, 0, 2].into(), 80, None)
        );
    }

    #[test]
    fn neighboring_places_are_spread_evenly_by_both_ends_of_their_hashes() {
        let hashes: Vec<u64> = (0..4096u32)
            .map(|n| {
                let address = IpAddr::from([10, 0, (n >> 8) as u8, n as u8]);
                BuildHasherDefault::<Multiplied>::default().hash_one(endpoint_of(address, Some(80)))
            })
            .collect();
        for shift in [0, 57] {
            let mut counts = [0; 128];
            hashes.iter().for_each(|hash| counts[(hash >> shift & 127) as usize] += 1);
            assert!(counts.iter().all(|count| (8..=64).contains(count)), "{shift}: {counts:?}");
        }
    }
}
