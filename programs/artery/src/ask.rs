//! Handlers named on the command line, read when the run is over.
use crate::output::{Output, print_stdout};
use crate::spelling::nearest;
use artery_engine::{Finished, Plan};

/// Reads handlers and prints their values; gives the messages of those that failed. One handler prints its
/// value alone; several, or a pattern that may mean several elements, print their names too.
pub(crate) fn print_handlers(finished: &mut Finished, handlers: &[String], voice: Output) -> Vec<String> {
    let plan = finished.plan();
    let several = handlers.len() > 1;
    let mut errors = Vec::new();
    for wanted in handlers {
        let before = errors.len();
        match expand(&plan, wanted) {
            Ok((names, pattern)) => {
                for name in names {
                    errors.extend(print_one(finished, &plan, &name, several || pattern).err());
                }
            }
            Err(error) => errors.push(error),
        }
        if let (true, [error]) = (voice.is_own(), &mut errors[before..]) {
            *error += &suggestion(&plan, wanted);
        }
    }
    errors
}

/// What may have been meant by a handler that there is not, to follow the message.
fn suggestion(plan: &Plan, wanted: &str) -> String {
    let Some((element, handler)) = wanted.split_once('.') else { return String::new() };
    let Some(node) = plan.resolve_exact(element) else {
        let names = (0..plan.len()).map(|node| plan.name(node));
        return nearest(element, names).map_or(String::new(), |name| format!("; did you mean '{name}'?"));
    };
    if plan.has_handler(wanted, "", true) || plan.has_handler(wanted, "", false) {
        return String::new();
    }
    let readable = plan.handlers_of(node).filter(|(_, flags)| flags.contains('r')).map(|(name, _)| name);
    match nearest(handler, readable) {
        Some(name) => format!("; did you mean '{name}'?"),
        None => format!("; 'artery help {}' lists those it has", plan.class(node).name),
    }
}

/// A private handler can't be read from outside.
fn print_one(finished: &mut Finished, plan: &Plan, name: &str, with_name: bool) -> Result<(), String> {
    if plan.is_private(name) {
        return Err(format!("no '{name}' handler"));
    }
    if !plan.has_handler(name, "", false) && plan.has_handler(name, "", true) {
        return Err(format!("'{name}' is a write handler"));
    }
    let value = finished.read_handler(name, "").map_err(|error| match error {
        artery_engine::HandlerError::NoHandler(_) => format!("no '{name}' handler"),
        other => other.to_string(),
    })?;
    let end = if value.is_empty() || value.ends_with('\n') { "" } else { "\n" };
    match with_name {
        true => print_stdout(&format!("{name}:\n{value}{end}\n")),
        false => print_stdout(&format!("{value}{end}")),
    }
    .map_err(|error| format!("{error:#}"))
}

/// The handlers meant by `E.H`, where E is an element, a pattern of names or a class; and whether it was
/// not simply an element.
fn expand(plan: &Plan, wanted: &str) -> Result<(Vec<String>, bool), String> {
    let Some((element, handler)) = wanted.split_once('.') else {
        return Ok((vec![wanted.to_string()], false));
    };
    if element.is_empty() || plan.resolve_exact(element).is_some() {
        return Ok((vec![wanted.to_string()], false));
    }
    let is_pattern = element.contains(['?', '*', '[']);
    let means = |node: &usize| match is_pattern {
        true => matches(plan.name(*node).as_bytes(), element.as_bytes()),
        false => plan.class(*node).name == element || plan.class(*node).aliases.contains(&element),
    };
    let nodes: Vec<usize> = (0..plan.len()).filter(means).collect();
    if nodes.is_empty() {
        let how = if is_pattern { "matching " } else { "" };
        return Err(format!("no element {how}'{element}'"));
    }
    let names = nodes.iter().map(|&node| format!("{}.{handler}", plan.name(node)));
    Ok((names.filter(|name| plan.has_handler(name, "", false)).collect(), true))
}

/// Whether `name` fits a pattern of `?`, `*` and `[a-z]`, `[^a-z]`.
fn matches(name: &[u8], pattern: &[u8]) -> bool {
    // Where to go on when what follows the last star turns out not to fit: one byte further.
    let mut retry: Option<(usize, usize)> = None;
    let (mut at, mut in_pattern) = (0, 0);
    while at < name.len() || in_pattern < pattern.len() {
        if pattern.get(in_pattern) == Some(&b'*') {
            retry = Some((at + 1, in_pattern));
            in_pattern += 1;
            continue;
        }
        match name.get(at).and_then(|&byte| fits_one(byte, &pattern[in_pattern..])) {
            Some(used) => (at, in_pattern) = (at + 1, in_pattern + used),
            None => match retry {
                Some((next, star)) if next <= name.len() => (at, in_pattern) = (next, star),
                _ => return false,
            },
        }
    }
    true
}

/// If `byte` fits the first item of `pattern`, the length of that item.
fn fits_one(byte: u8, pattern: &[u8]) -> Option<usize> {
    match pattern.first()? {
        b'?' => Some(1),
        b'[' => {
            let close = pattern.iter().skip(2).position(|&b| b == b']').map(|at| at + 2);
            let Some(close) = close else { return (byte == b'[').then_some(1) };
            let (negated, set) = match pattern[1] {
                b'^' | b'!' => (true, &pattern[2..close]),
                _ => (false, &pattern[1..close]),
            };
            (in_set(byte, set) != negated).then_some(close + 1)
        }
        &literal => (literal == byte).then_some(1),
    }
}

fn in_set(byte: u8, mut set: &[u8]) -> bool {
    while let [first, rest @ ..] = set {
        match rest {
            [b'-', last, rest @ ..] => {
                if (*first..=*last).contains(&byte) {
                    return true;
                }
                set = rest;
            }
            _ if *first == byte => return true,
            _ => set = rest,
        }
    }
    false
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn patterns_match_as_in_a_shell() {
        let fits = |name: &str, pattern: &str| matches(name.as_bytes(), pattern.as_bytes());
        assert!(fits("counter1", "c*") && fits("counter1", "*") && fits("", "*") && fits("aXbXc", "*X*c"));
        assert!(fits("c1", "c?") && fits("c1", "c[0-9]") && fits("c1", "c[^2-9]") && fits("c[", "c["));
        assert!(fits("a/b", "a*b") && fits("abcabd", "*ab[d]"));
        assert!(!fits("c", "c?") && !fits("c1", "c[^0-9]") && !fits("c1", "d*") && !fits("ab", "a"));
    }
}
