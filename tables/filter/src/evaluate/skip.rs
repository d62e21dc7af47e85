//! Skip steps: from each rule, for each of its conditions, the next rule that has another.
//!
//! They are what `pfctl -g` shows. The evaluation has better (`candidates`) and doesn't go by them.
use crate::rule::{On, Rule};
use std::fmt::Write;

/// What rules are compared by, with the letters that stand for it.
type Alike = (&'static str, fn(&Rule, &Rule) -> bool);

const ALIKE: [Alike; 9] = [
    ("i", |a, b| rule_interface(a) == rule_interface(b)),
    ("d", |a, b| a.direction == b.direction),
    ("r", |a, b| rule_domain(a) == rule_domain(b)),
    ("f", |a, b| a.family == b.family),
    ("p", |a, b| a.protocol == b.protocol),
    ("sa", |a, b| (a.source.is_negated, &a.source.address) == (b.source.is_negated, &b.source.address)),
    ("da", |a, b| {
        (a.destination.is_negated, &a.destination.address)
            == (b.destination.is_negated, &b.destination.address)
    }),
    ("sp", |a, b| a.source.port == b.source.port),
    ("dp", |a, b| a.destination.port == b.destination.port),
];

/// The interface, and whether it is negated, which for a domain is said in the same place.
fn rule_interface(rule: &Rule) -> (bool, Option<&str>) {
    match &rule.on {
        Some(On::Interface(is_negated, name)) => (*is_negated, Some(&name.0)),
        Some(On::Any) => (false, Some("any")),
        Some(On::Domain(is_negated, _)) => (*is_negated, None),
        None => (false, None),
    }
}

fn rule_domain(rule: &Rule) -> (bool, Option<u32>) {
    let (is_negated, _) = rule_interface(rule);
    match rule.on {
        Some(On::Domain(_, domain)) => (is_negated, Some(domain)),
        _ => (is_negated, None),
    }
}

/// For each rule of a rule set the text that `pfctl -g` shows of its skip steps: those that lead
/// beyond the next rule.
pub fn skip_steps(rules: &[Rule]) -> Vec<String> {
    let mut next = [rules.len(); ALIKE.len()];
    let mut texts = vec![String::new(); rules.len()];
    for at in (0..rules.len()).rev() {
        let mut text = "  [ Skip steps: ".to_string();
        for ((name, is_alike), next) in ALIKE.iter().zip(&mut next) {
            if at + 1 < rules.len() && !is_alike(&rules[at], &rules[at + 1]) {
                *next = at + 1;
            }
            if *next == rules.len() {
                let _ = write!(text, "{name}=end ");
            } else if *next != at + 1 {
                let _ = write!(text, "{name}={next} ");
            }
        }
        texts[at] = text + "]\n";
    }
    texts
}
