//! Skip steps: from each rule, for each of what it asks, the next rule that asks otherwise.
//!
//! They are what `pfctl -g` shows. The evaluation has better (`candidates`) and doesn't go by them.
use crate::rule::{On, Rule};
use std::fmt::Write;

/// What rules are compared by, with the letters that stand for it.
type Alike = (&'static str, fn(&Rule, &Rule) -> bool);

const ALIKE: [Alike; 9] = [
    ("i", |a, b| is_at_interface(a) == is_at_interface(b)),
    ("d", |a, b| a.direction == b.direction),
    ("r", |a, b| domain(a) == domain(b)),
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

fn is_at_interface(rule: &Rule) -> Option<(bool, Option<&str>)> {
    match &rule.on {
        Some(On::Interface(is_negated, name)) => Some((*is_negated, Some(&name.0))),
        Some(On::Any) => Some((false, None)),
        _ => None,
    }
}

fn domain(rule: &Rule) -> Option<(bool, u32)> {
    match rule.on {
        Some(On::Domain(is_negated, domain)) => Some((is_negated, domain)),
        _ => None,
    }
}

/// For each rule of a rule set the text that `pfctl -g` shows of its skip steps: those that lead beyond the next rule.
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
