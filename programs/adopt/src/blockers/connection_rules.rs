//! Which rules stand in the way of established connections, where rules are asked about each.
use super::tracking::{
    EstablishedPath, LIBERAL, family_name, find_accounting, is_passable, pass_tracked, tracks_by_family,
};
use super::{Blocker, BlockerKind, Family, sysctl};
use crate::policy::Policy;

/// Marks the blockers that connections are forwarded past where rules are asked about each; returns the
/// rules, too. Adds what stands in the way of some connections, and what stands in the way of all.
///
/// Where the kernel tracks no connections, rules keep all, and nothing is added.
pub fn pass_by_rules(blockers: &mut Vec<Blocker>) -> (Policy, [EstablishedPath; 2]) {
    if !blockers.iter().any(is_passable) {
        return Default::default();
    }
    let tracks = tracks_by_family();
    if !tracks.iter().any(|tracks| tracks.connections) {
        return Default::default();
    }
    let mut paths = pass_tracked(blockers, tracks);
    if !paths.iter().any(|path| path.has_rules) {
        return (Policy::default(), paths);
    }
    let (policy, accounting) = (Policy::read(), find_accounting());
    for (path, family) in paths.iter_mut().zip([Family::V4, Family::V6]).filter(|(path, _)| path.has_rules) {
        let found = match (&policy, &accounting) {
            (Ok(_), Ok(Some(blocker))) => vec![blocker.clone().for_family(family)],
            (Ok(policy), Ok(None)) => find_connection_rules(policy, family, path),
            (Err(error), _) | (_, Err(error)) => {
                vec![Blocker::unreadable("what rules say of connections", error).for_family(family)]
            }
        };
        if found.iter().any(|one| !one.is_passed) {
            path.is_open = false;
            let is_meant = |one: &&mut Blocker| is_passable(one) && one.family == Some(family);
            blockers.iter_mut().filter(is_meant).for_each(|one| one.is_passed = false);
        }
        blockers.extend(found);
    }
    (policy.unwrap_or_default(), paths)
}

/// What stands in the way of connections of a family; `is_passed` unless it does of all.
fn find_connection_rules(policy: &Policy, family: Family, path: &mut EstablishedPath) -> Vec<Blocker> {
    let name = family_name(family);
    let (found, has_flow_tables) = (policy.survey(family), policy.has_flow_tables(family));
    let is_closed = !has_flow_tables && found.iter().any(|one| one.is_sure);
    let rules = found.into_iter().filter(|one| one.is_sure || !is_closed).map(|one| {
        let whose = match (one.is_sure, has_flow_tables) {
            (true, false) => "all connections",
            (false, false) => "connections that it may be about",
            (true, true) => "connections in no flow table",
            (false, true) => "connections that it may be about and that are in no flow table",
        };
        let what = format!("{}: {whose} of {name} stay with the kernel", one.what);
        let blocker = Blocker::new(BlockerKind::ConnectionRule, what, one.remedy).for_family(family);
        Blocker { is_passed: !one.is_sure || has_flow_tables, ..blocker }
    });
    let mut rules: Vec<Blocker> = rules.collect();
    path.minds_windows = sysctl::number(LIBERAL).ok().flatten() != Some(1);
    if path.minds_windows && !is_closed {
        rules.extend(find_window_rule(policy, family, has_flow_tables));
    }
    rules
}

/// What keeps connections of TCP in the kernel, since their windows matter. Flow tables are
/// not asked: their connections pass.
fn find_window_rule(policy: &Policy, family: Family, has_flow_tables: bool) -> Option<Blocker> {
    let (name, obstacle) = (family_name(family), policy.survey_invalid(family)?);
    let where_not = if has_flow_tables { " in no flow table" } else { "" };
    let what = format!(
        "{}: connections of TCP over {name}{where_not} stay with the kernel, which finds segments out of \
         window invalid",
        obstacle.what
    );
    let remedy = "taken with: sysctl net.netfilter.nf_conntrack_tcp_be_liberal=1".to_owned();
    let blocker = Blocker::new(BlockerKind::ConnectionRule, what, remedy).for_family(family);
    Some(Blocker { is_passed: true, ..blocker })
}
