//! IPsec policies: forwarded packets that one selects are protected, or must have been.
use super::{Blocker, BlockerKind, Family, count_things};
use artery_netlink::request::{self as netlink, u16_at, u32_at};
use netlink_sys::protocols::NETLINK_XFRM;
use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

const GET_POLICY: u16 = 0x15;
const GET_DEFAULT: u16 = 0x28;
/// `struct xfrm_userpolicy_id`, of which zeros ask for all policies.
const POLICY_ID: usize = 64;
/// Where `struct xfrm_userpolicy_info` has the family and the lengths of its selector, and the direction.
const SELECTOR_FAMILY: usize = 40;
const SELECTOR_LENGTHS: usize = 42;
const DIRECTION: usize = 160;
const INET: u16 = 2;
const INET6: u16 = 10;
/// Directions that forwarded packets are asked for: as they come out of the router, and as they came in; and
/// that of packets to the machine.
const IN: u8 = 0;
const OUT: u8 = 1;
const FORWARD: u8 = 2;
/// What is not selected by any policy is dropped.
const BLOCK: u8 = 1;

/// What keeps all traffic of a family. A kernel without IPsec has none.
pub(super) fn guards() -> io::Result<Vec<Blocker>> {
    let messages = netlink::dump(NETLINK_XFRM, GET_POLICY, &[0; POLICY_ID])?;
    let policies: Vec<_> =
        messages.iter().map(|message| Policy::read(&message.body)).collect::<io::Result<_>>()?;
    let mut guards = of_policies(&policies);
    guards.extend(match netlink::query_one(NETLINK_XFRM, GET_DEFAULT, &[0; 4]) {
        Ok(Some(message)) => of_default(&message.body)?,
        Ok(None) => None,
        // Kernels before 5.14 have no default but to accept.
        Err(error) if error.kind() == io::ErrorKind::InvalidInput => None,
        Err(error) => return Err(error),
    });
    Ok(guards)
}

/// What keeps packets of IPv4 to the machine.
pub(super) fn of_machine() -> io::Result<Vec<Blocker>> {
    let messages = netlink::dump(NETLINK_XFRM, GET_POLICY, &[0; POLICY_ID])?;
    for message in messages {
        let policy = Policy::read(&message.body)?;
        if policy.direction == IN && policy.family != Some(Family::V6) {
            let what = format!("IPsec: a policy: in {} -> {}", policy.from, policy.to);
            return Ok(vec![Blocker::new(BlockerKind::Ipsec, what, "shown by: ip xfrm policy".to_owned())]);
        }
    }
    let default = match netlink::query_one(NETLINK_XFRM, GET_DEFAULT, &[0; 4]) {
        Err(error) if error.kind() == io::ErrorKind::InvalidInput => return Ok(Vec::new()),
        default => default?,
    };
    let is_blocked = default.is_some_and(|default| default.body.first() == Some(&BLOCK));
    let blocked = || {
        let what = "IPsec: what no policy selects is blocked (default of in)".to_owned();
        Blocker::new(BlockerKind::Ipsec, what, "shown by: ip xfrm policy getdefault".to_owned())
    };
    Ok(is_blocked.then(blocked).into_iter().collect())
}

/// What is said of a policy.
struct Policy {
    family: Option<Family>,
    direction: u8,
    from: String,
    to: String,
}

impl Policy {
    fn read(body: &[u8]) -> io::Result<Policy> {
        let family = match u16_at(body, SELECTOR_FAMILY)? {
            INET => Some(Family::V4),
            INET6 => Some(Family::V6),
            _ => None,
        };
        let [to_len, from_len] = u16_at(body, SELECTOR_LENGTHS)?.to_ne_bytes();
        let prefix = |at, len| Ok::<_, io::Error>(format!("{}/{len}", read_address(body, at, family)?));
        let direction = *body.get(DIRECTION).ok_or_else(netlink::nonsense)?;
        Ok(Policy { family, direction, to: prefix(0, to_len)?, from: prefix(16, from_len)? })
    }
    fn is_for_forwarded(&self) -> bool {
        [OUT, FORWARD].contains(&self.direction)
    }
}

fn read_address(body: &[u8], at: usize, family: Option<Family>) -> io::Result<IpAddr> {
    let bytes = body.get(at..).and_then(|rest| rest.first_chunk::<16>()).ok_or_else(netlink::nonsense)?;
    Ok(match family {
        Some(Family::V4) => Ipv4Addr::from(u32::from_be(u32_at(body, at)?)).into(),
        _ => Ipv6Addr::from(*bytes).into(),
    })
}

/// One blocker for each family, which names the first policy.
fn of_policies(policies: &[Policy]) -> Vec<Blocker> {
    let one = |family| {
        let of_family = policies.iter().filter(|policy| policy.is_for_forwarded() && policy.family == family);
        let all: Vec<_> = of_family.collect();
        let (first, others) = all.split_first()?;
        let direction = if first.direction == OUT { "out" } else { "fwd" };
        let more = if others.is_empty() { String::new() } else { format!(" and {} more", others.len()) };
        let policies = count_things(all.len() as u32, "policy").replace("policys", "policies");
        let what = format!("IPsec: {policies}: {direction} {} -> {}{more}", first.from, first.to);
        Some(Blocker::new(BlockerKind::Ipsec, what, "shown by: ip xfrm policy".to_owned()).for_family(family))
    };
    [Some(Family::V4), Some(Family::V6), None].into_iter().filter_map(one).collect()
}

/// `struct xfrm_userpolicy_default`: in, forward, out.
fn of_default(body: &[u8]) -> io::Result<Option<Blocker>> {
    let [_, forward, out] = *body.first_chunk::<3>().ok_or_else(netlink::nonsense)?;
    if forward != BLOCK && out != BLOCK {
        return Ok(None);
    }
    let direction = if forward == BLOCK { "fwd" } else { "out" };
    let what = format!("IPsec: what no policy selects is blocked (default of {direction})");
    Ok(Some(Blocker::new(BlockerKind::Ipsec, what, "shown by: ip xfrm policy getdefault".to_owned())))
}

#[cfg(test)]
mod tests {
    use super::*;
    use artery_netlink::request::written::survive;

    fn policy(family: u16, direction: u8) -> Vec<u8> {
        let mut body = vec![0; 168];
        body[..4].copy_from_slice(&[10, 1, 0, 0]);
        body[16..20].copy_from_slice(&[10, 0, 0, 0]);
        body[SELECTOR_FAMILY..][..2].copy_from_slice(&family.to_ne_bytes());
        body[SELECTOR_LENGTHS..][..2].copy_from_slice(&[16, 8]);
        body[DIRECTION] = direction;
        body
    }

    fn guards_of(policies: &[Vec<u8>]) -> Vec<(Option<Family>, String)> {
        let policies: Vec<_> = policies.iter().map(|body| Policy::read(body).unwrap()).collect();
        of_policies(&policies).into_iter().map(|guard| (guard.family, guard.what)).collect()
    }

    #[test]
    fn policies_for_forwarded_packets_keep_their_family() {
        let in_and_socket = [policy(INET, 0), policy(INET, 4)];
        assert_eq!(guards_of(&in_and_socket), []);
        let three = [policy(INET, FORWARD), policy(INET6, OUT), policy(INET, OUT)];
        assert_eq!(
            guards_of(&three),
            [
                (Some(Family::V4), "IPsec: 2 policies: fwd 10.0.0.0/8 -> 10.1.0.0/16 and 1 more".to_owned()),
                (Some(Family::V6), "IPsec: 1 policy: out a00::/8 -> a01::/16".to_owned()),
            ]
        );
        assert_eq!(guards_of(&[policy(0, OUT)])[0].0, None);
        survive(&policy(INET, OUT), |body| Policy::read(body).is_ok());
    }

    #[test]
    fn a_default_that_blocks_keeps_everything() {
        assert_eq!(of_default(&[1, 2, 2, 0]).unwrap(), None);
        assert!(of_default(&[2, 1, 2, 0]).unwrap().unwrap().what.contains("fwd"));
        assert!(of_default(&[2, 2, 1, 0]).unwrap().unwrap().what.contains("out"));
        assert!(of_default(&[2, 2]).is_err());
    }
}
