//! What is read and printed, and can't be done.
use crate::options::{Limit, SetOption, Syncookies, Timeout};
use crate::rule::{
    Action, AddressMatch, AnchorCall, On, RouteKind, Rule, Ruleset, SourceLocation, StateKeeping,
    StateOptions,
};

/// Longest time that can be distinguished from one in the past, in seconds: ages of states have
/// 31 bits of milliseconds.
const LONGEST: u32 = i32::MAX as u32 / 1000;

/// Where a filter is, which decides what it can do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FilterSite {
    /// In a switch: it knows by which port a packet came, and neither routes it nor answers for others.
    Switch,
    /// Before or behind a router.
    Router {
        /// Whether it knows the router's routes.
        knows_routes: bool,
    },
}

/// All that rules and options ask for and nothing here does, with its place. Loading refuses
/// them by these names.
pub fn find_unsupported(ruleset: &Ruleset, site: FilterSite) -> Vec<(SourceLocation, String)> {
    let mut found = Vec::new();
    for line in &ruleset.options {
        found.extend(of_option(&line.option, site).into_iter().map(|what| (line.place.clone(), what)));
    }
    if !ruleset.queues.is_empty() {
        found.push((SourceLocation::default(), "queues: nothing is shaped".into()));
    }
    for table in &ruleset.tables {
        if table.addresses.iter().any(|address| address.weight != 0) {
            found.push((table.place.clone(), "weight: all addresses of a pool are chosen alike".into()));
        }
    }
    append_rules(ruleset, site, &mut found);
    found
}

/// Rules that are taken though they never match, with their places and why. A filter sees no packet of
/// the host's own users.
pub fn never_matching(ruleset: &Ruleset) -> Vec<(SourceLocation, String)> {
    let mut found = Vec::new();
    for rule in &ruleset.rules {
        if rule.is_of_account_only() {
            let why = "user and group: packets have no sockets here, so that this blocks nothing";
            found.push((rule.place.clone(), why.to_string()));
        }
        if let Action::Anchor(AnchorCall { inline: Some(inner), .. }) = &rule.action {
            found.extend(never_matching(inner));
        }
    }
    found
}

fn of_option(option: &SetOption, site: FilterSite) -> Vec<String> {
    let one = |what: &str| vec![what.to_string()];
    match option {
        SetOption::StateDefaults(options) => of_states(options, site),
        SetOption::Syncookies(Syncookies::Always | Syncookies::Adaptive(..)) => {
            one("syncookies: none are sent; 'synproxy state' in a rule shakes hands for servers")
        }
        SetOption::Limit(Limit::Anchors, _) => one("limit anchors: there may be any number"),
        SetOption::Limit(Limit::PacketDelays, _) => one("limit pktdelay-pkts: nothing is delayed"),
        SetOption::Timeout(timeout, seconds) => too_long(*timeout, *seconds).into_iter().collect(),
        _ => Vec::new(),
    }
}

fn append_rules(ruleset: &Ruleset, site: FilterSite, found: &mut Vec<(SourceLocation, String)>) {
    for rule in &ruleset.rules {
        let tell = |what: &str| (rule.place.clone(), what.to_string());
        found.extend(of_rule(rule, site).map(tell));
        found.extend(of_states(&rule.state.options, site).iter().map(|what| tell(what)));
        if let Action::Anchor(call) = &rule.action
            && let Some(inner) = &call.inline
        {
            append_rules(inner, site, found);
        }
    }
}

fn of_rule(rule: &Rule, site: FilterSite) -> impl Iterator<Item = &'static str> {
    let knows_routes = site == FilterSite::Router { knows_routes: true };
    let is_switch = site == FilterSite::Switch;
    let asked = [
        (rule.user.is_some() && !rule.is_of_account_only(), "user: packets have no sockets here"),
        (rule.group.is_some() && !rule.is_of_account_only(), "group: packets have no sockets here"),
        (
            rule.source.os.is_some() || rule.destination.os.is_some(),
            "os: systems are not recognized by their packets",
        ),
        (
            !knows_routes && asks_routes(rule),
            "no-route and urpf-failed: the filter knows no routes without ROUTER",
        ),
        (asks_labels(rule), "route: routes have no labels"),
        (matches!(rule.on, Some(On::Domain(..))), "on rdomain: there is one routing domain"),
        (rule.routing_table.is_some_and(|table| table != 0), "rtable: there is one routing table"),
        (rule.divert.is_some(), "divert: packets have no sockets here"),
        (rule.family_to.is_some(), "af-to: addresses keep their family"),
        (matches!(rule.route, Some((RouteKind::DupTo, _))), "dup-to: packets are not copied"),
        (
            is_switch && rule.route.as_ref().is_some_and(|(kind, _)| *kind != RouteKind::DupTo),
            "route-to and reply-to: a switch goes by Ethernet addresses",
        ),
        (
            is_switch && rule.state.keep == StateKeeping::Synproxy,
            "synproxy: a switch doesn't know yet where the server is",
        ),
        (
            !is_switch && rule.received_on.is_some(),
            "received-on: only a switch knows where packets came from",
        ),
        (is_marking_anchor(rule), "set and scrub of an anchor: give them to the rules in it"),
        (rule.set.queue.is_some(), "set queue: nothing is shaped"),
        (rule.set.delay.is_some(), "set delay: nothing is delayed"),
        (rule.set.priority.is_some(), "set prio: there are no queues for it"),
        (rule.priority.is_some(), "prio: packets come without any"),
        (rule.log.as_ref().is_some_and(|log| log.interface != 0), "log to: there is one log, pflog0"),
        (rule.log.as_ref().is_some_and(|log| log.is_user), "log (user): packets have no sockets here"),
    ];
    asked.into_iter().filter(|(is_asked, _)| *is_asked).map(|(_, what)| what)
}

/// Whether a rule tests routes: without a routing table it would never match.
fn asks_routes(rule: &Rule) -> bool {
    has_address(rule, |address| matches!(address, AddressMatch::NoRoute | AddressMatch::UrpfFailed))
}

fn is_marking_anchor(rule: &Rule) -> bool {
    let is_marking = rule.set != Default::default() || rule.scrub.is_given;
    is_marking && matches!(rule.action, Action::Anchor(_))
}

fn asks_labels(rule: &Rule) -> bool {
    has_address(rule, |address| matches!(address, AddressMatch::RouteLabel(_)))
}

fn has_address(rule: &Rule, is: impl Fn(&AddressMatch) -> bool) -> bool {
    is(&rule.source.address) || is(&rule.destination.address)
}

fn of_states(options: &StateOptions, site: FilterSite) -> Vec<String> {
    let too_long = options.timeouts.iter().filter_map(|(timeout, seconds)| too_long(*timeout, *seconds));
    (options.is_pflow && site == FilterSite::Switch)
        .then(|| "pflow: states of a switch are not exported".to_string())
        .into_iter()
        .chain(too_long)
        .collect()
}

fn too_long(timeout: Timeout, seconds: u32) -> Option<String> {
    let counts_states = matches!(timeout, Timeout::AdaptiveStart | Timeout::AdaptiveEnd);
    let is_too_long = !counts_states && seconds > LONGEST;
    is_too_long.then(|| format!("{}: it is {LONGEST} seconds at most", timeout.name()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::syntax::{Environment, ParseSettings, parse};

    fn told(text: &str) -> Vec<(u32, String)> {
        let parsed =
            parse("stdin", text.as_bytes(), &Environment::fixture(), &ParseSettings::default()).unwrap();
        let word = |text: String| text.split(':').next().unwrap_or_default().to_string();
        find_unsupported(&parsed.ruleset, FilterSite::Switch)
            .into_iter()
            .map(|(place, what)| (place.line, word(what)))
            .collect()
    }

    #[test]
    fn each_thing_that_can_not_be_done_is_told_with_its_line() {
        let text = "set state-defaults pflow
set syncookies always
set syncookies adaptive (start 20%, end 10%)
pass in proto tcp user root group wheel keep state
pass in proto tcp from any os \"OpenBSD\" to any keep state
pass on rdomain 1 keep state
pass rtable 1 keep state
anchor {
\tpass in inet af-to inet6 from ::1 keep state
\tpass in dup-to 10.0.0.1 keep state
}
anchor x set prio 1
pass divert-packet port 5 keep state
pass in rdr-to { 10.0.0.1 weight 2 10.0.0.2 } keep state
block log (user)
block from no-route
block from urpf-failed
block to route home
set limit { anchors 5 pktdelay-pkts 5 tables 5 }
set timeout { tcp.first 2147484 udp.first 2147483 adaptive.end 4000000 }
pass keep state (tcp.closed 9999999)
pass set delay 10 keep state
match set prio 5
pass prio 2 keep state
pass log (to pflog1) keep state
block log (to pflog0)
queue root on lo0 bandwidth 1M
queue a parent root bandwidth 1M default
pass set queue a keep state
";
        let mut told = told(text);
        told.sort();
        let expected = [
            (0, "queues"),
            (1, "pflow"),
            (2, "syncookies"),
            (3, "syncookies"),
            (4, "group"),
            (4, "user"),
            (5, "os"),
            (6, "on rdomain"),
            (7, "rtable"),
            (9, "af-to"),
            (10, "dup-to"),
            (12, "set and scrub of an anchor"),
            (12, "set prio"),
            (13, "divert"),
            (14, "weight"),
            (15, "log (user)"),
            (16, "no-route and urpf-failed"),
            (17, "no-route and urpf-failed"),
            (18, "route"),
            (19, "limit anchors"),
            (19, "limit pktdelay-pkts"),
            (20, "tcp.first"),
            (21, "tcp.closed"),
            (22, "set delay"),
            (23, "set prio"),
            (24, "prio"),
            (25, "log to"),
            (29, "set queue"),
        ];
        assert_eq!(told, expected.map(|(line, what)| (line, what.to_string())));
    }

    #[test]
    fn rules_that_block_what_accounts_send_are_taken_and_never_match() {
        let text = b"block return out log proto tcp user root\nblock in proto tcp user root\n\
            block out proto tcp user != root\n\
            block out proto tcp user unknown\nblock proto udp group { wheel daemon }\n\
            pass out proto tcp user root\n";
        let parsed = parse("stdin", text, &Environment::fixture(), &ParseSettings::default()).unwrap();
        let lines =
            |found: Vec<(SourceLocation, String)>| found.iter().map(|(at, _)| at.line).collect::<Vec<_>>();
        assert_eq!(lines(find_unsupported(&parsed.ruleset, FilterSite::Switch)), [2, 3, 4, 6]);
        assert_eq!(lines(never_matching(&parsed.ruleset)), [1, 5, 5]);
    }

    #[test]
    fn of_rules_that_can_be_done_nothing_is_told() {
        let text = "set skip on lo0\nset syncookies never\npass in rtable 0 keep state (max 3)\n\
            match out inet nat-to 10.0.0.0/8 random\n";
        assert_eq!(told(text), []);
    }

    #[test]
    fn rules_may_ask_for_routes_that_the_filter_knows() {
        let text = b"block from no-route\nblock in from urpf-failed\nblock to route home\n";
        let parsed = parse("stdin", text, &Environment::fixture(), &ParseSettings::default()).unwrap();
        let told = |knows_routes| {
            let found = find_unsupported(&parsed.ruleset, FilterSite::Router { knows_routes });
            found.iter().map(|(at, _)| at.line).collect::<Vec<_>>()
        };
        assert_eq!((told(false), told(true)), (vec![1, 2, 3], vec![3]));
    }

    #[test]
    fn a_switch_knows_where_packets_came_from_and_a_router_where_they_go() {
        let text = b"pass out received-on lo0\npass in route-to 10.0.0.1\npass in reply-to 10.0.0.1\n\
                     pass in proto tcp synproxy state\n";
        let parsed = parse("stdin", text, &Environment::fixture(), &ParseSettings::default()).unwrap();
        let told =
            |site| find_unsupported(&parsed.ruleset, site).iter().map(|(at, _)| at.line).collect::<Vec<_>>();
        let router = FilterSite::Router { knows_routes: false };
        assert_eq!((told(FilterSite::Switch), told(router)), (vec![2, 3, 4], vec![1]));
    }
}
