//! What can't be said of a packet at once.
use super::expand::Template;
use crate::facts::{Direction, Family};
use crate::rule::{Action, Answer, Keep, Rule, SourceTrack};
use artery_wire::IpProtocol;

/// Why flags or systems can't be asked of any of the protocols, if so.
pub(crate) fn flags_without_tcp(template: &Template) -> Option<&'static str> {
    let has_tcp = template.protocols.is_empty() || template.protocols.contains(&IpProtocol::TCP);
    if has_tcp {
        return None;
    }
    match template.options.flags {
        Some((set, of)) if set != 0 || of != 0 => Some("flags only apply to tcp"),
        _ if !template.source.systems.is_empty() => Some("OS fingerprinting only applies to tcp"),
        _ => None,
    }
}

/// All that contradicts itself in a rule.
pub(crate) fn problems(rule: &Rule) -> Vec<String> {
    let mut found = Vec::new();
    of_protocols(rule, &mut found);
    of_states(rule, &mut found);
    of_ways(rule, &mut found);
    if rule.allows_options && !matches!(rule.action, Action::Pass | Action::Match) {
        found.push("allow-opts can only be specified for pass rules".into());
    }
    if rule.is_once && rule.action == Action::Match {
        found.push("'once' cannot be given for match rules".into());
    }
    found
}

fn of_protocols(rule: &Rule, found: &mut Vec<String>) {
    let protocol = rule.protocol;
    let has_ports = matches!(protocol, Some(IpProtocol::TCP | IpProtocol::UDP));
    let asks_ports = rule.source.port.is_some() || rule.destination.port.is_some();
    if asks_ports && !has_ports {
        found.push("port only applies to tcp/udp: write 'proto tcp' or 'proto udp'".into());
    }
    if (rule.user.is_some() || rule.group.is_some()) && !has_ports {
        found.push("user/group only applies to tcp/udp".into());
    }
    if rule.icmp.is_some() && !matches!(protocol, Some(IpProtocol::ICMP | IpProtocol::ICMPV6)) {
        found.push("icmp-type/code only applies to icmp".into());
    }
    if rule.icmp.is_some() && rule.family.is_none() {
        found.push("must indicate address family with icmp-type/code: write 'inet' or 'inet6'".into());
    }
    match (protocol, rule.family) {
        (Some(IpProtocol::ICMP), Some(Family::Inet6)) => {
            found.push("proto icmp doesn't match address family inet6".into());
        }
        (Some(IpProtocol::ICMPV6), Some(Family::Inet)) => {
            found.push("proto ipv6-icmp doesn't match address family inet".into());
        }
        _ => (),
    }
    if rule.is_fragment && (asks_ports || rule.flags.of != 0 || rule.icmp.is_some()) {
        found.push("fragments can be filtered only on IP header fields".into());
    }
    if matches!(rule.action, Action::Block(Answer::Reset(_))) && protocol != Some(IpProtocol::TCP) {
        found.push("return-rst can only be applied to TCP rules: write 'proto tcp'".into());
    }
}

fn of_states(rule: &Rule, found: &mut Vec<String>) {
    let options = &rule.state.options;
    if options.overload.is_some()
        && options.max_source_connections.is_none()
        && options.max_source_rate.is_none()
    {
        found.push("'overload' requires 'max-src-conn' or 'max-src-conn-rate'".into());
    }
    if options.max_source_nodes.is_some() && options.source_track != Some(SourceTrack::Rule) {
        found.push("max-src-nodes requires 'source-track rule'".into());
    }
    if rule.action != Action::Pass && rule.state.keep != Keep::No {
        found.push("keep state is for pass rules only".into());
    }
    if options.is_sloppy && matches!(rule.state.keep, Keep::Modulate | Keep::Synproxy) {
        found.push("sloppy state matching cannot be used with synproxy state or modulate state".into());
    }
}

fn of_ways(rule: &Rule, found: &mut Vec<String>) {
    let is_match = rule.action == Action::Match;
    let is_translated = rule.nat.is_some() || rule.redirect.is_some() || rule.family_to.is_some();
    if is_translated && !is_match && rule.state.keep == Keep::No {
        found.push("nat-to and rdr-to require keep state".into());
    }
    if rule.route.is_some() && rule.direction.is_none() {
        found.push("direction must be explicit with rules that specify routing".into());
    }
    if rule.route.is_some() && is_match {
        found.push("route-to, reply-to and dup-to must not be used on match rules".into());
    }
    if rule.divert.is_some() && is_match {
        found.push("divert is not supported on match rules".into());
    }
    if rule.family_to.is_none() {
        return;
    }
    if is_match {
        found.push("af-to is not supported on match rules".into());
    }
    if rule.direction != Some(Direction::In) {
        found.push("af-to is for rules with direction 'in' only".into());
    }
    if rule.route.is_some() {
        found.push("dup-to, reply-to and route-to must not be used on af-to rules".into());
    }
    if rule.nat.is_some() || rule.redirect.is_some() {
        found.push("af-to excludes nat-to and rdr-to".into());
    }
}
