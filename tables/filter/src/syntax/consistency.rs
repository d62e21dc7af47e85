//! What can't be said of a packet at once.
use super::expand::Template;
use crate::facts::{Direction, Family};
use crate::rule::{Action, BlockReturn, RouteKind, Rule, StateKeeping};
use artery_wire::IpProtocol;

/// The longest label, and the longest tag.
const LONGEST_NAME: usize = 63;

/// What is wrong with a statement as a whole, so that it becomes no rule at all: the first that is found.
pub(crate) fn find_contradiction(template: &Template) -> Option<String> {
    find_mark_error(template).or_else(|| without_tcp(template)).or_else(|| find_route_error(template))
}

fn find_mark_error(template: &Template) -> Option<String> {
    let options = &template.options;
    let is_decided = matches!(template.rule.action, Action::Pass | Action::Block(_));
    if options.is_once && !is_decided {
        return Some("'once' only applies to pass/block rules".into());
    }
    let tags = options.tag.iter().chain(options.tagged.as_ref().map(|(_, tag)| tag));
    if tags.into_iter().any(|tag| tag.len() > LONGEST_NAME) {
        return Some(format!("tag too long, max {LONGEST_NAME} chars"));
    }
    if options.label.as_ref().is_some_and(|label| label.len() > LONGEST_NAME) {
        return Some(format!("rule label too long (max {LONGEST_NAME} chars)"));
    }
    if options.family_to.is_some() && template.rule.direction != Some(Direction::In) {
        return Some("af-to can only be used with direction in".into());
    }
    if options.family_to.is_some() && options.route.is_some() {
        return Some("af-to cannot be used together with route-to, reply-to, dup-to".into());
    }
    let (set, of) = options.flags.unwrap_or_default();
    (set & of != set)
        .then(|| "flags always false\nthose that must be set are among those behind the slash".into())
}

/// Why none of the protocols can be tested for flags or systems, if so.
fn without_tcp(template: &Template) -> Option<String> {
    if template.protocols.is_empty() || template.protocols.contains(&IpProtocol::TCP) {
        return None;
    }
    match template.options.flags {
        Some((set, of)) if set != 0 || of != 0 => Some("flags only apply to tcp".into()),
        _ if !template.source.systems.is_empty() => Some("OS fingerprinting only applies to tcp".into()),
        _ => None,
    }
}

fn find_route_error(template: &Template) -> Option<String> {
    let (kind, _) = template.options.route.as_ref()?;
    let needs_direction = *kind != RouteKind::DupTo && template.rule.direction.is_none();
    needs_direction.then(|| "direction must be explicit with rules that specify routing".into())
}

/// All that contradicts itself in a rule.
pub(crate) fn find_problems(rule: &Rule) -> Vec<String> {
    let mut found = Vec::new();
    check_protocols(rule, &mut found);
    check_families(rule, &mut found);
    check_fragments(rule, &mut found);
    check_states(rule, &mut found);
    check_routes(rule, &mut found);
    found
}

fn check_protocols(rule: &Rule, found: &mut Vec<String>) {
    let has_ports = matches!(rule.protocol, Some(IpProtocol::TCP | IpProtocol::UDP));
    if rule.source.os.is_some() && rule.protocol != Some(IpProtocol::TCP) {
        found.push("os only applies to tcp\nwrite 'proto tcp'".into());
    }
    if asks_ports(rule) && !has_ports {
        found.push("port only applies to tcp/udp\nwrite 'proto tcp' or 'proto udp'".into());
    }
    if rule.user.is_some() && !has_ports {
        found.push("user only applies to tcp/udp".into());
    }
    if rule.group.is_some() && !has_ports {
        found.push("group only applies to tcp/udp".into());
    }
    if rule.icmp.is_some() && !matches!(rule.protocol, Some(IpProtocol::ICMP | IpProtocol::ICMPV6)) {
        found.push("icmp-type/code only applies to icmp".into());
    }
}

fn asks_ports(rule: &Rule) -> bool {
    rule.source.port.is_some() || rule.destination.port.is_some()
}

fn check_families(rule: &Rule, found: &mut Vec<String>) {
    if rule.icmp.is_some() && rule.family.is_none() {
        found.push("must indicate address family with icmp-type/code\nwrite 'inet' or 'inet6'".into());
    }
    let options = &rule.state.options;
    let has_limit = options.max_source_connections.is_some() || options.max_source_rate.is_some();
    if options.overload.is_some() && !has_limit {
        found.push("'overload' requires 'max-src-conn' or 'max-src-conn-rate'".into());
    }
    match (rule.protocol, rule.family) {
        (Some(IpProtocol::ICMP), Some(Family::Inet6)) => {
            found.push("proto icmp doesn't match address family inet6".into());
        }
        (Some(IpProtocol::ICMPV6), Some(Family::Inet)) => {
            found.push("proto icmp6 doesn't match address family inet".into());
        }
        _ => (),
    }
}

fn check_fragments(rule: &Rule, found: &mut Vec<String>) {
    if rule.allows_options && matches!(rule.action, Action::Block(_) | Action::Match) {
        found.push("allow-opts can only be specified for pass rules".into());
    }
    if rule.is_fragment && (asks_ports(rule) || rule.flags.of != 0 || rule.icmp.is_some()) {
        found.push("fragments can be filtered only on IP header fields".into());
    }
    if matches!(rule.action, Action::Block(BlockReturn::Reset(_))) && rule.protocol != Some(IpProtocol::TCP) {
        found.push("return-rst can only be applied to TCP rules\nwrite 'proto tcp'".into());
    }
}

fn check_states(rule: &Rule, found: &mut Vec<String>) {
    let keep = rule.state.keep;
    if rule.action != Action::Pass && keep != StateKeeping::No {
        found.push("keep state is for pass rules only".into());
    }
    if rule.route.is_some() && keep == StateKeeping::No {
        found.push("route-to, reply-to and dup-to require keep state".into());
    }
    if rule.state.options.is_sloppy && matches!(keep, StateKeeping::Modulate | StateKeeping::Synproxy) {
        found.push("sloppy state matching cannot be used with synproxy state or modulate state".into());
    }
}

fn check_routes(rule: &Rule, found: &mut Vec<String>) {
    let is_match = rule.action == Action::Match;
    let is_translated = rule.nat.is_some() || rule.redirect.is_some() || rule.family_to.is_some();
    if is_translated && !is_match && rule.state.keep == StateKeeping::No {
        found.push("nat-to and rdr-to require keep state".into());
    }
    if is_translated && rule.direction.is_none() {
        found.push("nat-to and rdr-to require a direction\nwrite 'in' or 'out'".into());
    }
    if rule.family == Some(Family::Inet6) && (rule.scrub.clears_df || rule.scrub.randomises_id) {
        found.push("address family inet6 does not support scrub options no-df, random-id".into());
    }
    if is_match && rule.divert.is_some() {
        found.push("divert is not supported on match rules".into());
    }
    if is_match && rule.route.is_some() {
        found.push("route-to, reply-to and dup-to are not supported on match rules".into());
    }
    if is_match && rule.family_to.is_some() {
        found.push("af-to is not supported on match rules".into());
    }
    if matches!(rule.action, Action::Block(_)) && rule.route.is_some() {
        found.push("route-to, reply-to and dup-to are not supported on block rules".into());
    }
}
