//! Changes of a routing table by handler, in Click's words, whatever the table is.
use super::route::{self, Next, Route};
use artery_engine::names::Names;
use artery_engine::{ArgValue, HandlerError};
use artery_wire::Ipv4Prefix;
use std::net::Ipv4Addr;

/// A routing table that can be changed.
pub(crate) trait Routes {
    /// Adds a route, and gives back the one that it replaced.
    fn add(&mut self, route: Route, replace: bool) -> Result<Option<Route>, NotAdded>;
    /// Removes the route of a prefix, if it leads to `next` where one is given, and returns it.
    fn remove(&mut self, prefix: Ipv4Prefix, next: Option<Next>) -> Option<Route>;
    /// Where packets for an address go.
    fn lookup(&self, address: Ipv4Addr) -> Option<Next>;
    /// All routes, one a line.
    fn text(&self) -> String;
}

/// Why a route was not added.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum NotAdded {
    /// This one has its prefix.
    Exists(Route),
    /// The table can't take it.
    NoRoom(String),
}

/// What is done to a table.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Command {
    Add,
    Set,
    Remove,
}

/// Reads the routes of a configuration into a table; a second one for a prefix does not count. Returns how many did
/// not, and tells `wrong` each argument that is none, with what is wrong with it.
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
            Some((prefix, Some(next))) => match table.add(Route { prefix, next }, false) {
                Ok(_) => {}
                Err(NotAdded::Exists(_)) => duplicates += 1,
                Err(NotAdded::NoRoom(why)) => fault(&why),
            },
            _ => fault(&with_fault("should be 'ADDR/MASK [GATEWAY] OUTPUT'", text)),
        }
    }
    duplicates
}

/// What is wrong with an output that there is not.
fn bad_output(output: usize, outputs: usize) -> String {
    match outputs {
        0 => format!("bad OUTPUT: {output}, and nothing is connected"),
        1 => format!("bad OUTPUT: {output}, and there is only 0"),
        _ => format!("bad OUTPUT: {output}, and there are 0 to {}", outputs - 1),
    }
}

/// What a route should look like, and what in `text` keeps it from being one.
fn with_fault(wanted: &str, text: &str) -> String {
    route::fault(text).map_or_else(|| wanted.to_string(), |fault| format!("{wanted}: {fault}"))
}

/// Does one command, and returns what undoes it.
pub(crate) fn run(
    table: &mut impl Routes,
    command: Command,
    text: &str,
    outputs: usize,
) -> Result<Undo, HandlerError> {
    let wanted = if command == Command::Remove { "[GATEWAY OUTPUT]" } else { "[GATEWAY] OUTPUT" };
    let expected = || HandlerError::refused(with_fault(&format!("expected 'ADDR/MASK {wanted}'"), text));
    let (prefix, next) = route::parse(text, &Names::default()).ok_or_else(expected)?;
    if let Some(next) = next.filter(|next| next.output >= outputs) {
        return Err(HandlerError::refused(bad_output(next.output, outputs)));
    }
    if command == Command::Remove {
        let removed = table.remove(prefix, next).ok_or_else(|| not_found(prefix, next))?;
        return Ok(Undo::Restore(removed));
    }
    let route = Route { prefix, next: next.ok_or_else(expected)? };
    match table.add(route, command == Command::Set) {
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
                done.into_iter().rev().for_each(|undo| undo.apply(table));
                return Err(error);
            }
        }
    }
    Ok(())
}

fn run_line(table: &mut impl Routes, line: &str, outputs: usize) -> Result<Undo, HandlerError> {
    let (word, rest) = line.split_once(char::is_whitespace).unwrap_or((line, ""));
    let command = match word {
        "add" => Command::Add,
        "set" => Command::Set,
        "remove" => Command::Remove,
        other => return Err(HandlerError::refused(format!("bad command '{other}'"))),
    };
    run(table, command, rest, outputs)
}

/// What takes a change back.
pub(crate) enum Undo {
    Remove(Ipv4Prefix),
    Restore(Route),
}

impl Undo {
    fn apply(self, table: &mut impl Routes) {
        match self {
            Undo::Remove(prefix) => drop(table.remove(prefix, None)),
            // What was there a moment ago fits again.
            Undo::Restore(route) => drop(table.add(route, true)),
        }
    }
}

/// A route that was given without output is shown with output -1, as Click shows it.
fn not_found(prefix: Ipv4Prefix, next: Option<Next>) -> HandlerError {
    let route = next.map_or_else(|| format!("{prefix} - -1"), |next| Route { prefix, next }.to_string());
    HandlerError::refused(format!("route '{route}' not found"))
}

/// The answer of the `lookup` handler: output and gateway, or -1.
pub(crate) fn answer(table: &impl Routes, address: &str) -> Result<String, HandlerError> {
    let address = Ipv4Addr::parse(address.trim(), &Names::default())
        .map_err(|_| HandlerError::refused("expected IP address"))?;
    Ok(match table.lookup(address) {
        Some(Next { gateway: Some(gateway), output }) => format!("{output} {gateway}"),
        Some(Next { gateway: None, output }) => output.to_string(),
        None => "-1".to_string(),
    })
}
