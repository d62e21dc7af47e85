//! Changes of a routing table by handler, in Click's words, whatever the table is.
use super::route::{self, Route, RouteNextHop};
use artery_engine::names::Names;
use artery_engine::{ArgValue, HandlerError};
use artery_wire::Ipv4Prefix;
use std::net::Ipv4Addr;

/// A routing table that can be changed.
pub(crate) trait Routes {
    /// Adds a route, and returns the one that it replaced.
    fn add_route(&mut self, route: Route, replace: bool) -> Result<Option<Route>, NotAdded>;
    /// Removes the route of a prefix, only if its next hop is `next` where that is given, and returns it.
    fn remove_route(&mut self, prefix: Ipv4Prefix, next: Option<RouteNextHop>) -> Option<Route>;
    /// Where packets for an address go.
    fn lookup_route(&self, address: Ipv4Addr) -> Option<RouteNextHop>;
    /// All routes, one a line.
    fn table_text(&self) -> String;
}

/// Why a route was not added.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum NotAdded {
    /// This one has its prefix.
    Exists(Route),
    /// The table has no room for it.
    NoRoom(String),
}

/// A change of a table by a handler.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum RouteCommand {
    Add,
    Set,
    Remove,
}

/// Reads the routes of a configuration into a table; further ones for a prefix are ignored. Returns how many
/// were, and calls `wrong` with each invalid argument and its error.
pub(crate) fn configure(
    table: &mut impl Routes,
    arguments: &[String],
    outputs: usize,
    names: &Names,
    mut wrong: impl FnMut(&str, String),
) -> usize {
    let mut duplicates = 0;
    for (number, text) in arguments.iter().enumerate() {
        let mut fault = |what: &str| wrong(text, format!("argument {} {what}", number + 1));
        match route::parse(text, names) {
            Some((_, Some(next))) if next.output >= outputs => fault(&bad_output(next.output, outputs)),
            Some((prefix, Some(next))) => match table.add_route(Route { prefix, next }, false) {
                Ok(_) => {}
                Err(NotAdded::Exists(_)) => duplicates += 1,
                Err(NotAdded::NoRoom(why)) => fault(&why),
            },
            _ => fault(&with_fault("should be 'ADDR/MASK [GATEWAY] OUTPUT'", text)),
        }
    }
    duplicates
}

/// The error for an output that does not exist.
fn bad_output(output: usize, outputs: usize) -> String {
    match outputs {
        0 => format!("bad OUTPUT: {output}, and nothing is connected"),
        1 => format!("bad OUTPUT: {output}, and there is only 0"),
        _ => format!("bad OUTPUT: {output}, and there are 0 to {}", outputs - 1),
    }
}

/// The expected format of a route, and the invalid part of `text`.
fn with_fault(wanted: &str, text: &str) -> String {
    route::describe_fault(text).map_or_else(|| wanted.to_string(), |fault| format!("{wanted}: {fault}"))
}

/// Does one command, and returns what undoes it.
pub(crate) fn run_command(
    table: &mut impl Routes,
    command: RouteCommand,
    text: &str,
    outputs: usize,
) -> Result<Undo, HandlerError> {
    let wanted = if command == RouteCommand::Remove { "[GATEWAY OUTPUT]" } else { "[GATEWAY] OUTPUT" };
    let expected = || HandlerError::refused(with_fault(&format!("expected 'ADDR/MASK {wanted}'"), text));
    let (prefix, next) = route::parse(text, &Names::default()).ok_or_else(expected)?;
    if let Some(next) = next.filter(|next| next.output >= outputs) {
        return Err(HandlerError::refused(bad_output(next.output, outputs)));
    }
    if command == RouteCommand::Remove {
        let removed = table.remove_route(prefix, next).ok_or_else(|| not_found(prefix, next))?;
        return Ok(Undo::Restore(removed));
    }
    let route = Route { prefix, next: next.ok_or_else(expected)? };
    match table.add_route(route, command == RouteCommand::Set) {
        Ok(Some(replaced)) => Ok(Undo::Restore(replaced)),
        Ok(None) => Ok(Undo::Remove(prefix)),
        Err(NotAdded::Exists(with)) => {
            Err(HandlerError::refused(format!("conflict with existing route '{with}'")))
        }
        Err(NotAdded::NoRoom(why)) => Err(HandlerError::refused(why)),
    }
}

/// Does the commands of `ctrl`, one a line; when one fails, those before it are undone.
pub(crate) fn run_all(table: &mut impl Routes, text: &str, outputs: usize) -> Result<(), HandlerError> {
    let mut done = Vec::new();
    for line in text.lines().map(str::trim).filter(|line| !line.is_empty()) {
        match run_line(table, line, outputs) {
            Ok(undo) => done.push(undo),
            Err(error) => {
                done.into_iter().rev().for_each(|undo| undo.apply_undo(table));
                return Err(error);
            }
        }
    }
    Ok(())
}

fn run_line(table: &mut impl Routes, line: &str, outputs: usize) -> Result<Undo, HandlerError> {
    let (word, rest) = line.split_once(char::is_whitespace).unwrap_or((line, ""));
    let command = match word {
        "add" => RouteCommand::Add,
        "set" => RouteCommand::Set,
        "remove" => RouteCommand::Remove,
        other => return Err(HandlerError::refused(format!("bad command '{other}'"))),
    };
    run_command(table, command, rest, outputs)
}

/// How to undo a change.
pub(crate) enum Undo {
    Remove(Ipv4Prefix),
    Restore(Route),
}

impl Undo {
    fn apply_undo(self, table: &mut impl Routes) {
        match self {
            Undo::Remove(prefix) => drop(table.remove_route(prefix, None)),
            // What was there a moment ago fits again.
            Undo::Restore(route) => drop(table.add_route(route, true)),
        }
    }
}

/// A route that was given without output is shown with output -1, as Click shows it.
fn not_found(prefix: Ipv4Prefix, next: Option<RouteNextHop>) -> HandlerError {
    let route = next.map_or_else(|| format!("{prefix} - -1"), |next| Route { prefix, next }.to_string());
    HandlerError::refused(format!("route '{route}' not found"))
}

/// The answer of the `lookup` handler: output and gateway, or -1.
pub(crate) fn lookup_answer(table: &impl Routes, address: &str) -> Result<String, HandlerError> {
    let address = Ipv4Addr::parse(address.trim(), &Names::default())
        .map_err(|_| HandlerError::refused("expected IP address"))?;
    Ok(match table.lookup_route(address) {
        Some(RouteNextHop { gateway: Some(gateway), output }) => format!("{output} {gateway}"),
        Some(RouteNextHop { gateway: None, output }) => output.to_string(),
        None => "-1".to_string(),
    })
}
