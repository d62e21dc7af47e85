//! Matches and targets of iptables in rules of nftables, whose settings are structures of the kernel's.
use super::ruleset::{Condition, Step, Verdict};

/// `XT_CONNTRACK_STATE`: of what the match asks, the state.
const OF_STATE: u16 = 1;
/// `XT_CONNTRACK_STATE_ALIAS`: only that it was written as `-m state`.
const ALIAS: u16 = 1 << 13;
/// Where `struct xt_conntrack_mtinfo` has the flags of what it asks and what is inverted, and the states.
const CONNECTION_FLAGS: usize = 146;
/// Bits of states that only NAT or missing tracking set.
const PLAIN_STATES: u32 = 0x1f;

/// Matches that only look at a packet. What they find is not known; others count, limit, or remember.
const ONLY_LOOKING: [&str; 32] = [
    "addrtype",
    "ah",
    "bpf",
    "cgroup",
    "connlabel",
    "connmark",
    "cpu",
    "devgroup",
    "dscp",
    "ecn",
    "esp",
    "frag",
    "helper",
    "hl",
    "icmp",
    "icmp6",
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

/// What a match asks that is not understood here.
pub(super) fn unknown_match(name: &str) -> Step {
    match ONLY_LOOKING.contains(&name) {
        true => Step::Test(Condition::Unknown),
        false => Step::Effect(format!("match {name}")),
    }
}

/// What a match asks.
pub(super) fn match_step(name: &str, revision: u32, settings: &[u8]) -> Step {
    let condition = match name {
        "comment" => Some(Condition::Not(Box::new(Condition::Any(Vec::new())))),
        "conntrack" if revision >= 2 => conntrack_condition(settings),
        "state" => number32(settings, 0).map(Condition::State),
        "tcp" => transport_condition(settings, true),
        "udp" => transport_condition(settings, false),
        "multiport" if revision == 1 => multiport_condition(settings),
        _ => None,
    };
    condition.map_or_else(|| unknown_match(name), Step::Test)
}

/// What a target does.
pub(super) fn target_step(name: &str) -> Step {
    match name {
        "REJECT" | "DROP" => Step::Decide(Verdict::Drop),
        _ => Step::Effect(format!("target {name}")),
    }
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
        for name in ["conntrack", "state", "tcp", "udp", "multiport", "comment", "limit"] {
            for length in 0..200 {
                for byte in [0, 1, 0xff] {
                    match_step(name, 1, &vec![byte; length]);
                    match_step(name, 3, &vec![byte; length]);
                }
            }
        }
        assert_eq!(match_step("limit", 0, &[]), Step::Effect("match limit".into()));
        assert_eq!(match_step("length", 0, &[]), Step::Test(Condition::Unknown));
    }
}
