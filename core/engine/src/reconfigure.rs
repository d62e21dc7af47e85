//! Other arguments for an element that runs: one that is made of them takes its place.
use crate::args::{Args, Environment, WrittenArg, split_args};
use crate::class::{Class, Position};
use crate::graph::Graph;
use crate::handler::HandlerError;
use crate::plan::Plan;
use artery_lang::args as text;
use artery_rcu::Turn;
use std::collections::HashMap;

impl Graph {
    /// An element's configuration string, as it was written last.
    pub(crate) fn config(&self, node: usize) -> &str {
        self.reconfigured.get(&node).map_or_else(|| self.plan.config(node), String::as_str)
    }
}

/// Makes an element of this configuration, lets it take over what the running one holds, and puts it in
/// its place. When something is wrong with the arguments the old one stays.
pub(crate) fn reconfigure_element(
    plan: &Plan,
    graph: &mut Graph,
    node: usize,
    config: &str,
    turn: &Turn<'_>,
) -> Result<(), HandlerError> {
    let mut element = {
        // What a class sets for its elements' places and handlers when it makes them has been applied.
        let mut changed = plan.clone();
        let circumstances = plan.circumstances();
        let domain = circumstances.domain.as_ref().expect("a plan whose elements run has a domain");
        let environment = Environment {
            names: &mut circumstances.names.clone(),
            resources: &circumstances.resources,
            pool: graph.pool,
            domain,
            plan: &mut changed,
            shared: &mut HashMap::new(),
            warnings: &mut Vec::new(),
        };
        let ports = (plan.inputs(node).len(), plan.outputs(node).len());
        let args = Args::parse(plan.class(node), node, config, ports, graph.worker, environment);
        args.build_element().map_err(|errors| {
            let errors: Vec<String> = errors.iter().map(ToString::to_string).collect();
            HandlerError::refused(errors.join("\n"))
        })?
    };
    let taken = graph.enter_element(node, turn, |old, cx| element.take_state(old, cx));
    if taken.is_none() {
        return Err(HandlerError::Busy(format!("{}.config", plan.name(node))));
    }
    graph.slots[node] = Some(element);
    graph.reconfigured.insert(node, config.trim().to_string());
    Ok(())
}

/// Puts the value that a handler gave an argument into the configuration string; of several, the
/// one of that number.
pub(crate) fn record_argument(
    plan: &Plan,
    graph: &mut Graph,
    node: usize,
    (argument, number): (&str, usize),
    value: &str,
) {
    let class = plan.class(node);
    let config = with_argument(class, graph.config(node), (argument, number), value.trim());
    graph.reconfigured.insert(node, config);
}

/// A configuration string in which an argument has this value: in its place, or by keyword where that has
/// none. With no value it is as if the argument had not been given.
fn with_argument(
    class: &'static Class,
    config: &str,
    (argument, number): (&str, usize),
    value: &str,
) -> String {
    let mut given = split_args(class.args, config);
    let Some(arg) = class.arg(argument) else { return config.to_string() };
    let is_rest = arg.position == Position::Rest;
    let before = given.len();
    given.retain(|one| !(one.is_by_keyword() && one.belongs_to(arg)));
    let place = given.iter().enumerate().filter(|(_, one)| one.belongs_to(arg));
    let place = place.map(|(place, _)| place).nth(if is_rest { number } else { 0 });
    let mut texts: Vec<String> = given.iter().map(|one| one.text.clone()).collect();
    match place {
        Some(place) if value.is_empty() && !is_rest => {
            // Those behind it belong where they do by counting it.
            match given[place + 1..].iter().all(WrittenArg::is_by_keyword) {
                true => drop(texts.remove(place)),
                false => texts[place].clear(),
            }
        }
        Some(place) if given.len() == before => texts[place] = value.to_string(),
        _ if value.is_empty() => {}
        None if is_rest => texts.push(value.to_string()),
        _ => texts.push(format!("{argument} {value}")),
    }
    text::join(&texts)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::class::Arg;

    static ENCAP: Class = Class {
        args: &[
            Arg::required("PROTO", "protocol", ""),
            Arg::optional("SRC", "address", "", ""),
            Arg::optional("DST", "address", "", ""),
            Arg::keyword("TTL", "number", "250", ""),
        ],
        ..Class::DEFAULT
    };
    static FILTER: Class = Class {
        args: &[Arg::rest("PATTERN", "pattern", ""), Arg::keyword("CALM", "bool", "false", "")],
        ..Class::DEFAULT
    };

    #[test]
    fn an_argument_is_where_its_place_among_those_without_keyword_is() {
        for (config, argument, result) in [
            ("4, 1.1, 2.2", "DST", "4, 1.1, new"),
            ("4, TTL 9, 1.1, 2.2", "DST", "4, TTL 9, 1.1, new"),
            ("TTL 9, 4, 1.1", "SRC", "TTL 9, 4, new"),
            ("DST 2.2, 4, 1.1", "SRC", "DST 2.2, 4, new"),
            ("SRC 1.1, 4", "SRC", "4, SRC new"),
            ("4, TTL 9", "DST", "4, TTL 9, DST new"),
            ("4", "TTL", "4, TTL new"),
            ("4, TTL 9, TTL 8, 1.1", "TTL", "4, 1.1, TTL new"),
            ("4, 1.1, SRC 3.3, 2.2", "SRC", "4, 1.1, 2.2, SRC new"),
        ] {
            assert_eq!(with_argument(&ENCAP, config, (argument, 0), "new"), result, "{config}");
        }
    }

    #[test]
    fn an_argument_without_value_is_not_given() {
        for (config, argument, result) in [
            ("4, 1.1, 2.2", "DST", "4, 1.1"),
            ("4, 1.1, TTL 9", "SRC", "4, TTL 9"),
            ("4, 1.1, TTL 9, 2.2", "SRC", "4, , TTL 9, 2.2"),
            ("4, SRC 1.1, TTL 9", "SRC", "4, TTL 9"),
            ("4, 1.1, SRC 3.3", "SRC", "4"),
            ("4", "SRC", "4"),
            ("4", "TTL", "4"),
        ] {
            assert_eq!(with_argument(&ENCAP, config, (argument, 0), ""), result, "{config}");
        }
    }

    #[test]
    fn of_many_the_one_of_that_number_is_replaced() {
        for (config, number, result) in [
            ("tcp, udp, -", 1, "tcp, new, -"),
            ("CALM true, tcp port 80, udp", 1, "CALM true, tcp port 80, new"),
            ("tcp, CALM true, , udp", 2, "tcp, CALM true, , new"),
        ] {
            assert_eq!(with_argument(&FILTER, config, ("PATTERN", number), "new"), result, "{config}");
        }
    }
}
