//! Which rules established connections are forwarded past: all when the operator has said so, or those that
//! let them through.
//!
//! Only chains of nftables and iptables are, and only while the kernel tracks connections of the family. What
//! changes how they are tracked, or is unknown, keeps them in the kernel.
use super::{Blocker, BlockerKind, Family, hooks, iptables, nftables, sysctl};
use std::io;

/// Segments of TCP out of window are not called invalid.
pub(super) const LIBERAL: &str = "netfilter/nf_conntrack_tcp_be_liberal";
/// The kernel counts packets and bytes of each connection, of those that it sees.
pub(super) const ACCOUNTING: &str = "netfilter/nf_conntrack_acct";
const PREROUTING: u32 = 0;
const POSTROUTING: u32 = 4;

/// Whether, in a family, established connections are forwarded past rules.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct EstablishedPath {
    /// Whether nothing stands in the way, and the kernel tracks connections.
    pub is_open: bool,
    /// Whether there are rules that they are forwarded past: without, all packets are forwarded.
    pub has_rules: bool,
    /// Whether the kernel translates addresses of its connections.
    pub translates: bool,
    /// Whether the kernel minds windows of TCP, and no one has said that it need not.
    pub minds_windows: bool,
}

/// Marks the blockers that established connections are forwarded past, and adds what keeps them in the
/// kernel. The answer is by family, IPv4 first.
pub fn pass_established(blockers: &mut Vec<Blocker>) -> [EstablishedPath; 2] {
    if !blockers.iter().any(is_passable) {
        return Default::default();
    }
    pass_tracked(blockers, tracks_by_family())
}

/// The same where this is what the kernel does with connections.
pub(super) fn pass_tracked(blockers: &mut Vec<Blocker>, tracks: [Tracks; 2]) -> [EstablishedPath; 2] {
    let unpassed = find_unpassed();
    let mut paths = [(Family::V4, tracks[0]), (Family::V6, tracks[1])].map(|(family, tracks)| {
        let stands = |one: &Blocker| one.family.is_none_or(|other| other == family);
        let is_open = tracks.connections && !unpassed.iter().any(stands);
        EstablishedPath { is_open, translates: tracks.translates, ..EstablishedPath::default() }
    });
    *blockers = std::mem::take(blockers).into_iter().flat_map(by_family).collect();
    for blocker in blockers.iter_mut().filter(|blocker| is_passable(blocker)) {
        let path = &mut paths[usize::from(blocker.family == Some(Family::V6))];
        blocker.is_passed = path.is_open;
        path.has_rules |= path.is_open;
    }
    for (_, family) in paths.iter().zip([Family::V4, Family::V6]).filter(|(path, _)| !path.is_open) {
        let is_about = |one: &&Blocker| one.family.is_none_or(|other| other == family);
        let why: Vec<Blocker> = unpassed.iter().filter(is_about).cloned().collect();
        let is_kept = blockers.iter().any(|one| is_passable(one) && one.family == Some(family));
        let why = if why.is_empty() && is_kept { vec![untracked(family)] } else { why };
        blockers.extend(why.into_iter().map(|one| one.for_family(family)));
    }
    paths
}

pub(super) fn family_name(family: Family) -> &'static str {
    if family == Family::V4 { "IPv4" } else { "IPv6" }
}

pub(crate) fn is_passable(blocker: &Blocker) -> bool {
    match blocker.kind {
        BlockerKind::Nftables | BlockerKind::Iptables => blocker.port.is_none(),
        // What it forwards are connections that are established, too.
        BlockerKind::FlowTable => true,
        _ => false,
    }
}

/// One for each family, of those whose families may be treated differently.
fn by_family(blocker: Blocker) -> Vec<Blocker> {
    match blocker.family {
        None if is_passable(&blocker) => {
            [Family::V4, Family::V6].map(|family| blocker.clone().for_family(family)).to_vec()
        }
        _ => vec![blocker],
    }
}

/// What keeps established connections in the kernel.
fn find_unpassed() -> Vec<Blocker> {
    let or_unreadable = |what: &str, found: io::Result<Vec<Blocker>>| {
        found.unwrap_or_else(|error| vec![Blocker::unreadable(what, &error)])
    };
    let mut all = or_unreadable("the rules of nftables", nftables::find_unpassed());
    all.extend(iptables::find_unpassed());
    all.extend(or_unreadable("whether connections have events", find_settings()));
    all
}

/// What keeps connections in the kernel unless the operator has said that rules need not see them.
pub(super) fn find_accounting() -> io::Result<Option<Blocker>> {
    let is_on = sysctl::number(ACCOUNTING)? == Some(1);
    let what = "packets of each connection are counted";
    Ok(is_on.then(|| sysctl::guard(BlockerKind::Tracking, what, ACCOUNTING, 1, "0")))
}

fn find_settings() -> io::Result<Vec<Blocker>> {
    let name = "netfilter/nf_conntrack_events";
    let is_off = sysctl::number(name)? == Some(0);
    let what = "connections have no events";
    Ok(is_off.then(|| sysctl::guard(BlockerKind::Tracking, what, name, 0, "2")).into_iter().collect())
}

/// What is compared each second, since the kernel sends no notification of it.
pub(super) fn find_polled() -> Vec<Blocker> {
    let mut all = find_settings().unwrap_or_else(|error| vec![Blocker::unreadable("events", &error)]);
    let mut note = |what: String| all.push(Blocker::new(BlockerKind::Tracking, what, String::new()));
    for setting in [LIBERAL, ACCOUNTING] {
        note(format!("{:?}", sysctl::number(setting)));
    }
    // What keeps connections from being forwarded past such rules follows from them.
    note(iptables::legacy_rules().map_or_else(|error| error.to_string(), |rules| format!("{rules:?}")));
    for (family, tracks) in [Family::V4, Family::V6].into_iter().zip(tracks_by_family()) {
        let what = format!("{tracks:?}");
        all.push(Blocker::new(BlockerKind::Tracking, what, String::new()).for_family(family));
    }
    all
}

/// What the kernel does with connections of a family.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Tracks {
    pub(super) connections: bool,
    pub(super) translates: bool,
}

impl Tracks {
    pub(super) fn or(self, other: Tracks) -> Tracks {
        Tracks {
            connections: self.connections || other.connections,
            translates: self.translates || other.translates,
        }
    }
}

/// What the kernel does with connections of IPv4 and IPv6; nothing where that can't be read.
pub(super) fn tracks_by_family() -> [Tracks; 2] {
    [Family::V4, Family::V6].map(|family| tracks(family).unwrap_or_default())
}

/// Whether the kernel tracks connections of any family.
pub(crate) fn tracks_any() -> bool {
    tracks_by_family().iter().any(|tracks| tracks.connections)
}

/// What the kernel does at its hooks, as it lists them (since Linux 5.14, if it was built so), or as rules
/// have it do: it tracks connections while a rule asks for that, and translates while there is a chain for
/// it.
fn tracks(family: Family) -> io::Result<Tracks> {
    let (before, behind) = (hooks::functions(family, PREROUTING)?, hooks::functions(family, POSTROUTING)?);
    if before.is_empty() && behind.is_empty() {
        return Ok(nftables::tracks(family)?.or(iptables::tracks(family)));
    }
    let has = |functions: &[String], part: &str| functions.iter().any(|function| function.contains(part));
    let connections = has(&before, "_conntrack_in");
    let translates = [before, behind].iter().all(|functions| has(functions, "nf_nat_"));
    Ok(Tracks { connections, translates })
}

fn untracked(family: Family) -> Blocker {
    let what = format!("connections of {} are not tracked, since no rule asks for that", family_name(family));
    Blocker::new(BlockerKind::Tracking, what, "shown by: nft list ruleset".to_owned()).for_family(family)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn chains_of_both_families_are_split_and_what_is_at_ports_is_not_passed() {
        let blocker = Blocker::new(BlockerKind::Nftables, "chain".into(), String::new());
        let families: Vec<_> = by_family(blocker.clone()).iter().map(|one| one.family).collect();
        assert_eq!(families, [Some(Family::V4), Some(Family::V6)]);
        let at_port = blocker.at_port(3, super::super::Direction::In);
        assert_eq!(by_family(at_port.clone()), std::slice::from_ref(&at_port));
        assert!(!is_passable(&at_port));
        assert!(is_passable(&Blocker { kind: BlockerKind::FlowTable, ..at_port }));
        assert!(!is_passable(&Blocker::new(BlockerKind::Hook, String::new(), String::new())));
    }
}
