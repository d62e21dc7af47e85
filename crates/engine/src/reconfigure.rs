//! Other arguments for an element that runs: one that is made of them takes its place.
use crate::args::{Args, Environment};
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

    /// Makes an element of this configuration, lets it take over what the running one holds, and puts it in its place.
    /// When something is wrong with the arguments the old one stays.
    pub(crate) fn reconfigure(
        &mut self,
        node: usize,
        config: &str,
        turn: &Turn<'_>,
    ) -> Result<(), HandlerError> {
        let plan = self.plan.clone();
        let mut element = {
            // What a class says of its elements' places and handlers when it makes them has been heard.
            let mut plan = Plan::clone(&plan);
            let circumstances = self.plan.circumstances();
            let domain = circumstances.domain.as_ref().expect("a plan whose elements run has a domain");
            let environment = Environment {
                names: &mut circumstances.names.clone(),
                resources: &circumstances.resources,
                pool: self.pool,
                domain,
                plan: &mut plan,
                shared: &mut HashMap::new(),
                warnings: &mut Vec::new(),
            };
            let ports = (self.plan.inputs(node).len(), self.plan.outputs(node).len());
            let args = Args::parse(self.plan.class(node), node, config, ports, self.worker, environment);
            args.build().map_err(|errors| {
                let errors: Vec<String> = errors.iter().map(ToString::to_string).collect();
                HandlerError::refused(errors.join("\n"))
            })?
        };
        let taken = self.enter(node, turn, |old, cx| element.take_state(old, cx));
        if taken.is_none() {
            return Err(HandlerError::Busy(format!("{}.config", self.plan.name(node))));
        }
        self.slots[node] = Some(element);
        self.reconfigured.insert(node, config.trim().to_string());
        Ok(())
    }

    /// Puts the value that a handler gave an argument into the configuration string; of several, the one of that number.
    pub(crate) fn note_argument(&mut self, node: usize, argument: &str, number: usize, value: &str) {
        let class = self.plan.class(node);
        let config = with_argument(class, self.config(node), (argument, number), value.trim());
        self.reconfigured.insert(node, config);
    }
}

/// A configuration string in which an argument has this value: in its place, or by keyword where that has none.
fn with_argument(class: &Class, config: &str, (argument, number): (&str, usize), value: &str) -> String {
    let mut given = text::split(config);
    let is_keyword = |text: &String| {
        text::keyword(text).is_some_and(|(keyword, value)| class.arg(keyword).is_some() && !value.is_empty())
    };
    let before = given.len();
    given.retain(|text| text::keyword(text).is_none_or(|(keyword, _)| keyword != argument));
    let mut places = class.args.iter().filter(|arg| arg.position != Position::Keyword);
    let place = places.position(|arg| arg.name == argument).filter(|_| given.len() == before);
    let place = match class.arg(argument) {
        Some(arg) if arg.position == Position::Rest => place.map(|place| place + number),
        _ => place,
    };
    match place.and_then(|place| given.get_mut(place)).filter(|text| !is_keyword(text)) {
        Some(text) => *text = value.to_string(),
        None => given.push(format!("{argument} {value}")),
    }
    text::join(&given)
}
