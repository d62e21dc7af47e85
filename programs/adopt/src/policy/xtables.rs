//! Matches and targets of iptables in rules of nftables, whose settings are structures of the kernel's.
use super::ruleset::{Condition, Step, Verdict};
use crate::blockers::iptables::gives_only_a_helper;

/// `XT_CONNTRACK_STATE`: of what the match asks, the state.
const OF_STATE: u16 = 1;
/// `XT_CONNTRACK_STATE_ALIAS`: only that it was written as `-m state`.
const ALIAS: u16 = 1 << 13;
/// Where `struct xt_conntrack_mtinfo` has the flags of what it asks and what is inverted, and the states.
const CONNECTION_FLAGS: usize = 146;
/// Bits of states that only NAT or missing tracking set.
const PLAIN_STATES: u32 = 0x1f;

/// Matches that only look at a packet. What they find is not known; others count, limit, or remember.
const ONLY_LOOKING: [&str; 31] = [
    "addrtype",
    "bpf",
    "cgroup",
    "connlabel",
    "connmark",
    "cpu",
    "devgroup",
    "dscp",
    "ecn",
    "esp",
    "helper",
    "hl",
    "icmp",
    "icmp6",
    "ipv6header",
    "iprange",
    "length",
    "mac",
    "mark",
    "owner",
    "physdev",
    "pkttype",
    "policy",
    "realm",
    "rpfilter",
    "sctp",
    "socket",
    "time",
    "tos",
    "ttl",
    "u32",
];

/// Matches about headers of IPv6 that no packet here has.
const NEVER: [&str; 6] = ["ah", "dst", "frag", "hbh", "mh", "rt"];

/// What a match asks that is not understood here.
pub(super) fn unknown_match(name: &str) -> Step {
    match name {
        _ if NEVER.contains(&name) => Step::Test(Condition::never()),
        _ if ONLY_LOOKING.contains(&name) => Step::Test(Condition::Unknown),
        _ => Step::Effect(format!("match {name}")),
    }
}

/// What a match asks.
pub(super) fn match_step(name: &str, revision: u32, settings: &[u8]) -> Step {
    let condition = match name {
        "comment" => Some(Condition::never().inverted_if(true)),
        "conntrack" if revision >= 2 => conntrack_condition(settings),
        "state" => number32(settings, 0).map(Condition::State),
        "tcp" => transport_condition(settings, true),
        "udp" => transport_condition(settings, false),
        "multiport" if revision == 1 => multiport_condition(settings),
        "mark" if revision == 1 => mark_condition(settings),
        "addrtype" => addrtype_condition(settings, revision),
        "rpfilter" => settings.first().map(|flags| Condition::ReversePath.inverted_if(flags & 8 != 0)),
        _ => None,
    };
    condition.map_or_else(|| unknown_match(name), Step::Test)
}

/// What a target does.
pub(super) fn target_step(name: &str, revision: u32, settings: &[u8]) -> Step {
    match name {
        "REJECT" | "DROP" => Step::Decide(Verdict::Drop),
        // `struct xt_mark_tginfo2`: of the mark 0, what is set is left.
        "MARK" if revision == 2 && number32(settings, 0) == Some(0) => Step::Nothing,
        "CT" if gives_only_a_helper(settings) => Step::Nothing,
        _ => effect_of_target(name),
    }
}

/// What a target does that is not understood here.
pub(super) fn effect_of_target(name: &str) -> Step {
    Step::Effect(format!("target {name}"))
}

fn number32(bytes: &[u8], at: usize) -> Option<u32> {
    bytes.get(at..)?.first_chunk().map(|bytes| u32::from_ne_bytes(*bytes))
}

fn number16(bytes: &[u8], at: usize) -> Option<u16> {
    bytes.get(at..)?.first_chunk().map(|bytes| u16::from_ne_bytes(*bytes))
}

fn conntrack_condition(settings: &[u8]) -> Option<Condition> {
    let [asked, inverted, states] = [0, 2, 4].map(|at| number16(settings, CONNECTION_FLAGS + at));
    let (asked, inverted, states) = (asked?, inverted?, u32::from(states?));
    // Bits above are set beside these for translated connections.
    let state = if states & !PLAIN_STATES == 0 { Condition::State(states) } else { Condition::Unknown };
    let state = state.inverted_if(inverted & OF_STATE != 0);
    Some(match asked & !ALIAS {
        OF_STATE => state,
        asked if asked & OF_STATE != 0 => all_of([state, Condition::Unknown]),
        _ => Condition::Unknown,
    })
}

/// `struct xt_mark_mtinfo1`.
fn mark_condition(settings: &[u8]) -> Option<Condition> {
    let condition = Condition::Mark { value: number32(settings, 0)?, mask: number32(settings, 4)? };
    Some(condition.inverted_if(*settings.get(8)? != 0))
}

/// `struct xt_addrtype_info`, and `struct xt_addrtype_info_v1` whose flags may also name an interface.
fn addrtype_condition(settings: &[u8], revision: u32) -> Option<Condition> {
    let types = |at: usize| number16(settings, at);
    let is_inverted = match revision {
        0 => [4, 8].map(|at| number32(settings, at).map(|inverted| inverted != 0)),
        1 => {
            let flags = number32(settings, 4).filter(|flags| flags & !3 == 0);
            [1, 2].map(|flag| flags.map(|flags| flags & flag != 0))
        }
        _ => return None,
    };
    let of = |is_source: bool, types: u16, is_inverted: bool| {
        let condition = Condition::AddressType { is_source, types };
        (types != 0).then(|| condition.inverted_if(is_inverted))
    };
    let [source, destination] = is_inverted;
    Some(all_of(of(true, types(0)?, source?).into_iter().chain(of(false, types(2)?, destination?))))
}

/// All of some conditions.
pub(super) fn all_of(conditions: impl IntoIterator<Item = Condition>) -> Condition {
    let not = |one| Condition::Not(Box::new(one));
    not(Condition::Any(conditions.into_iter().map(not).collect()))
}

/// `struct xt_tcp`, `struct xt_udp`: ranges of ports, then what is inverted; of TCP flags between.
fn transport_condition(settings: &[u8], is_tcp: bool) -> Option<Condition> {
    let range = |at: usize| Some(vec![(number16(settings, at)?, number16(settings, at + 2)?)]);
    let byte = |at: usize| settings.get(at).copied();
    let inverted = byte(if is_tcp { 11 } else { 8 })?;
    let source = Condition::SourcePort(range(0)?).inverted_if(inverted & 1 != 0);
    let destination = Condition::DestinationPort(range(4)?).inverted_if(inverted & 2 != 0);
    let mut conditions = vec![source, destination];
    if is_tcp {
        let flags = Condition::TcpFlags { mask: byte(9)?, value: byte(10)? };
        conditions.push(flags.inverted_if(inverted & 4 != 0));
        conditions.extend((byte(8)? != 0).then_some(Condition::Unknown));
    }
    Some(all_of(conditions))
}

/// `struct xt_multiport_v1`.
fn multiport_condition(settings: &[u8]) -> Option<Condition> {
    let (which, count) = (*settings.first()?, usize::from(*settings.get(1)?));
    let mut ranges = Vec::new();
    let mut at = 0;
    while at < count.min(15) {
        let first = number16(settings, 2 + 2 * at)?;
        let is_range = *settings.get(32 + at)? != 0;
        let last = if is_range { number16(settings, 2 + 2 * (at + 1))? } else { first };
        ranges.push((first, last));
        at += if is_range { 2 } else { 1 };
    }
    let source = Condition::SourcePort(ranges.clone());
    let destination = Condition::DestinationPort(ranges);
    let condition = match which {
        0 => source,
        1 => destination,
        2 => Condition::Any(vec![source, destination]),
        _ => return None,
    };
    Some(condition.inverted_if(*settings.get(47)? != 0))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn settings_of_any_length_are_understood_or_not() {
        for name in ["conntrack", "state", "tcp", "udp", "multiport", "mark", "addrtype", "rpfilter", "limit"]
        {
            for length in 0..200 {
                for byte in [0, 1, 0xff] {
                    match_step(name, 1, &vec![byte; length]);
                    match_step(name, 3, &vec![byte; length]);
                    target_step("MARK", 2, &vec![byte; length]);
                    target_step("CT", 2, &vec![byte; length]);
                }
            }
        }
        assert_eq!(match_step("limit", 0, &[]), Step::Effect("match limit".into()));
        assert_eq!(match_step("length", 0, &[]), Step::Test(Condition::Unknown));
        assert_eq!(match_step("rt", 0, &[]), Step::Test(Condition::never()));
        assert_eq!(target_step("MARK", 2, &[0, 0, 0, 0, 0xff, 0, 0, 0]), Step::Nothing);
        assert_eq!(target_step("MARK", 2, &[1, 0, 0, 0, 0xff, 0, 0, 0]), effect_of_target("MARK"));
    }
}
