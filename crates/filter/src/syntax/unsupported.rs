//! What is read and printed, and can't be done.
use crate::options::SetOption;
use crate::rule::{Action, On, Place, RouteKind, Rule, Ruleset, StateOptions};

/// All that rules and options ask for and nothing here does, with its place. Loading refuses them by these names.
pub fn unsupported(ruleset: &Ruleset) -> Vec<(Place, String)> {
    let mut found = Vec::new();
    for line in &ruleset.options {
        if let SetOption::StateDefaults(options) = &line.option {
            found.extend(of_states(options).map(|what| (line.place.clone(), what)));
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
    append_rules(ruleset, &mut found);
    found
}

fn append_rules(ruleset: &Ruleset, found: &mut Vec<(Place, String)>) {
    for rule in &ruleset.rules {
        let tell = |what: &str| (rule.place.clone(), what.to_string());
        found.extend(of_rule(rule).map(tell));
        found.extend(of_states(&rule.state.options).map(|what| tell(&what)));
        if let Action::Anchor(call) = &rule.action
            && let Some(inner) = &call.inline
        {
            append_rules(inner, found);
        }
    }
}

fn of_rule(rule: &Rule) -> impl Iterator<Item = &'static str> {
    let asked = [
        (rule.user.is_some(), "user: packets have no sockets here"),
        (rule.group.is_some(), "group: packets have no sockets here"),
        (rule.source.os.is_some(), "os: no system is told by its packets"),
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
        unsupported(&parsed.ruleset).into_iter().map(|(place, what)| (place.line, word(what))).collect()
    }

    #[test]
    fn each_thing_that_can_not_be_done_is_told_with_its_line() {
        let text = "set state-defaults pflow
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
";
        let mut told = told(text);
        told.sort();
        let expected = [
            (1, "pflow"),
            (2, "group"),
            (2, "user"),
            (3, "os"),
            (4, "on rdomain"),
            (5, "rtable"),
            (7, "af-to"),
            (8, "dup-to"),
            (10, "set queue"),
            (11, "divert"),
            (12, "weight"),
            (13, "log (user)"),
        ];
        assert_eq!(told, expected.map(|(line, what)| (line, what.to_string())));
    }

    #[test]
    fn of_rules_that_can_be_done_nothing_is_told() {
        let text =
            "set skip on lo0\npass in rtable 0 keep state (max 3)\nmatch out inet nat-to 10.0.0.0/8 random\n";
        assert_eq!(told(text), []);
    }
}
