//! What is read and printed, and can't be done.
use crate::options::{SetOption, Syncookies};
use crate::rule::{Action, AddressMatch, On, Place, RouteKind, Rule, Ruleset, StateOptions};

/// All that rules and options ask for and nothing here does, with its place. Loading refuses them by these names. What asks for
/// routes is among them unless the filter `knows_routes`.
pub fn unsupported(ruleset: &Ruleset, knows_routes: bool) -> Vec<(Place, String)> {
    let mut found = Vec::new();
    for line in &ruleset.options {
        match &line.option {
            SetOption::StateDefaults(options) => {
                found.extend(of_states(options).map(|what| (line.place.clone(), what)));
            }
            SetOption::Syncookies(Syncookies::Always | Syncookies::Adaptive(..)) => {
                let what = "syncookies: none are sent; 'synproxy state' in a rule shakes hands for servers";
                found.push((line.place.clone(), what.into()));
            }
            _ => (),
        }
    }
    if !ruleset.queues.is_empty() {
        found.push((Place::default(), "queues: nothing is shaped".into()));
    }
    for table in &ruleset.tables {
        if table.addresses.iter().any(|address| address.weight != 0) {
            found.push((table.place.clone(), "weight: all addresses of a pool are chosen alike".into()));
        }
    }
    append_rules(ruleset, knows_routes, &mut found);
    found
}

fn append_rules(ruleset: &Ruleset, knows_routes: bool, found: &mut Vec<(Place, String)>) {
    for rule in &ruleset.rules {
        let tell = |what: &str| (rule.place.clone(), what.to_string());
        found.extend(of_rule(rule, knows_routes).map(tell));
        found.extend(of_states(&rule.state.options).map(|what| tell(&what)));
        if let Action::Anchor(call) = &rule.action
            && let Some(inner) = &call.inline
        {
            append_rules(inner, knows_routes, found);
        }
    }
}

fn of_rule(rule: &Rule, knows_routes: bool) -> impl Iterator<Item = &'static str> {
    let asked = [
        (rule.user.is_some(), "user: packets have no sockets here"),
        (rule.group.is_some(), "group: packets have no sockets here"),
        (rule.source.os.is_some(), "os: no system is told by its packets"),
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
        (rule.set.queue.is_some(), "set queue: nothing is shaped"),
        (rule.log.as_ref().is_some_and(|log| log.is_user), "log (user): packets have no sockets here"),
    ];
    asked.into_iter().filter(|(is_asked, _)| *is_asked).map(|(_, what)| what)
}

/// Whether a rule asks for routes, which without any would never match.
fn asks_routes(rule: &Rule) -> bool {
    has_address(rule, |address| matches!(address, AddressMatch::NoRoute | AddressMatch::UrpfFailed))
}

fn asks_labels(rule: &Rule) -> bool {
    has_address(rule, |address| matches!(address, AddressMatch::RouteLabel(_)))
}

fn has_address(rule: &Rule, is: impl Fn(&AddressMatch) -> bool) -> bool {
    is(&rule.source.address) || is(&rule.destination.address)
}

fn of_states(options: &StateOptions) -> impl Iterator<Item = String> {
    options.is_pflow.then(|| "pflow: states are not exported".to_string()).into_iter()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::syntax::{Environment, Settings, parse};

    fn told(text: &str) -> Vec<(u32, String)> {
        let parsed = parse("stdin", text.as_bytes(), &Environment::fixture(), &Settings::default()).unwrap();
        let word = |text: String| text.split(':').next().unwrap_or_default().to_string();
        unsupported(&parsed.ruleset, false)
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
pass set queue a keep state
pass divert-packet port 5 keep state
pass in rdr-to { 10.0.0.1 weight 2 10.0.0.2 } keep state
block log (user)
block from no-route
block from urpf-failed
block to route home
";
        let mut told = told(text);
        told.sort();
        let expected = [
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
            (12, "set queue"),
            (13, "divert"),
            (14, "weight"),
            (15, "log (user)"),
            (16, "no-route and urpf-failed"),
            (17, "no-route and urpf-failed"),
            (18, "route"),
        ];
        assert_eq!(told, expected.map(|(line, what)| (line, what.to_string())));
    }

    #[test]
    fn of_rules_that_can_be_done_nothing_is_told() {
        let text = "set skip on lo0\nset syncookies never\npass in rtable 0 keep state (max 3)\nmatch out inet nat-to 10.0.0.0/8 random\n";
        assert_eq!(told(text), []);
    }

    #[test]
    fn rules_may_ask_for_routes_that_the_filter_knows() {
        let text = b"block from no-route\nblock in from urpf-failed\nblock to route home\n";
        let parsed = parse("stdin", text, &Environment::fixture(), &Settings::default()).unwrap();
        let told =
            |knows| unsupported(&parsed.ruleset, knows).iter().map(|(at, _)| at.line).collect::<Vec<_>>();
        assert_eq!((told(false), told(true)), (vec![1, 2, 3], vec![3]));
    }
}
