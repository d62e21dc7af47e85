//! The commands of `artery pfctl` to the filter of each worker. States are scanned in parts, so that
//! packets pass in between.
use super::shared::refused;
use super::worker::WorkerFilter;
use artery_engine::{Context, HandlerError};
use artery_filter::engine::StateRange;
use artery_filter::facts::Direction;
use artery_filter::names::mask_address;
use artery_filter::states::{StateSelector, StateView, Verbosity};
use artery_wire::IpProtocol;
use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use std::net::IpAddr;

/// State slots that one query scans: packets are delayed by no more than these.
const PLACES: u32 = 1024;

impl WorkerFilter {
    /// Answers a query about the state of this copy.
    pub(crate) fn query_worker(&mut self, text: &str, cx: &mut Context<'_>) -> Result<String, HandlerError> {
        self.begin_batch(cx);
        let words: Vec<&str> = text.split_whitespace().collect();
        match words.as_slice() {
            ["count"] => {
                self.report_counts();
                Ok(String::new())
            }
            ["states", from, interface, flags @ ..] => {
                let part = parse_range(from)?;
                let states = self.list_states(part, interface, flags.len());
                Ok(self.format_range(part, &states))
            }
            ["kill", from, interface, rest @ ..] => {
                let kill = parse_kill(rest)?;
                self.end_states(parse_range(from)?, interface, |state| kill.matches_state(state))
            }
            ["flush-states", from, interface] => self.end_states(parse_range(from)?, interface, |_| true),
            ["dump", from] => {
                let part = parse_range(from)?;
                let mut records = Vec::new();
                self.filter.dump_states(
                    part,
                    self.active_rules(),
                    &self.active_rules().compiled,
                    &mut records,
                );
                Ok(self.format_range(part, &(BASE64_STANDARD.encode(records) + "\n")))
            }
            ["restore", rules, records] => self.restore_states(*rules == "with-rules", records),
            ["flush-info"] => {
                self.filter.clear_counted();
                self.shared().lock_control().restart_counters(cx.now().since_epoch());
                Ok(String::new())
            }
            ["flush-rules-info"] => {
                self.filter.counters().clear();
                Ok(String::new())
            }
            ["sources", flags @ ..] => Ok(self.list_sources(!flags.is_empty())),
            ["kill-sources", networks @ ..] => self.kill_sources(networks),
            _ => Err(refused(format!("'{text}' is nothing that a worker's filter can be asked"))),
        }
    }

    /// The reply for a part: where the next part begins, the number of lines, and the lines.
    fn format_range(&self, part: StateRange, lines: &str) -> String {
        let next = self.filter.next_start(part).unwrap_or(0);
        format!("{next} {}\n{lines}", lines.lines().count())
    }

    /// The states of a part at an interface, as they are printed.
    fn list_states(&self, part: StateRange, interface: &str, verbosity: usize) -> String {
        let verbosity = [Verbosity::Plain, Verbosity::Verbose, Verbosity::VeryVerbose][verbosity.min(2)];
        let mut text = String::new();
        let is_meant = |state: &StateView<'_>| is_at(state.interface(self.active_rules()), interface);
        for state in self.filter.states_in(part).filter(is_meant) {
            // Writing to a string never fails.
            let _ = state.print_state(self.active_rules(), verbosity, &mut text);
        }
        text
    }

    /// Ends the states of a part at an interface; returns how many.
    fn end_states(
        &mut self,
        part: StateRange,
        interface: &str,
        mut is: impl FnMut(&StateView<'_>) -> bool,
    ) -> Result<String, HandlerError> {
        let (filter, ruling) = self.filter_and_ruling();
        let killed = filter.end_in(part, |state| is_at(state.interface(ruling), interface) && is(state));
        Ok(self.format_range(part, &format!("{}\n", killed.0)))
    }

    /// Restores states of a dump; returns how many.
    fn restore_states(&mut self, keeps_rules: bool, records: &str) -> Result<String, HandlerError> {
        let records =
            BASE64_STANDARD.decode(records).map_err(|_| refused("these are not states: not base64"))?;
        let (filter, ruling) = self.filter_and_ruling();
        let number = |name: &str| ruling.interfaces.find_interface(name);
        let taken = filter.restore_states(&records, keeps_rules, number, &ruling.compiled);
        taken.map(|taken| format!("{taken}\n")).map_err(|error| refused(error.to_string()))
    }

    /// Sources that are tracked, a line each; with their ages and rules in another where that is wanted.
    fn list_sources(&self, is_verbose: bool) -> String {
        let mut text = String::new();
        for source in self.filter.sources() {
            // Writing to a string never fails.
            let _ = self.filter.print_source(source, is_verbose, &mut text);
        }
        text
    }

    /// Removes the source nodes of these networks, or all without any.
    fn kill_sources(&mut self, networks: &[&str]) -> Result<String, HandlerError> {
        let networks = networks.iter().map(|word| parse_network(word)).collect::<Result<Vec<_>, _>>()?;
        let killed = match networks.as_slice() {
            [] => self.filter.flush_sources(),
            some => self.filter.kill_sources(|address| {
                some.iter().any(|(network, length)| {
                    mask_address(address, *length) == mask_address(*network, *length)
                })
            }),
        };
        Ok(format!("{}\n", killed.0))
    }
}

fn parse_range(from: &str) -> Result<StateRange, HandlerError> {
    let from = from.parse().map_err(|_| refused(format!("'{from}' is not a place to begin at")))?;
    Ok(StateRange { from, places: PLACES })
}

/// Whether the interface of a state, as it is listed, is one that is meant.
fn is_at(interface: &str, wanted: &str) -> bool {
    wanted == "-" || wanted == interface
}

/// `hosts NET [NET]`, `label TEXT`, `id HEX [CREATOR]`, `key PROTO A in|out B`.
fn parse_kill(words: &[&str]) -> Result<StateSelector, HandlerError> {
    match words {
        ["hosts", source] => Ok(StateSelector::Hosts { source: parse_network(source)?, destination: None }),
        ["hosts", source, destination] => Ok(StateSelector::Hosts {
            source: parse_network(source)?,
            destination: Some(parse_network(destination)?),
        }),
        ["label", label @ ..] => Ok(StateSelector::Label(label.join(" "))),
        ["id", id, rest @ ..] => {
            let hex = |word: &str| {
                u64::from_str_radix(word, 16).map_err(|_| refused(format!("'{word}' is not an id")))
            };
            let creator = rest.first().map(|word| hex(word)).transpose()?;
            Ok(StateSelector::Id { id: hex(id)?, creator: creator.map(|creator| creator as u32) })
        }
        ["key", protocol, a, way, b] => Ok(StateSelector::Key {
            protocol: IpProtocol(
                protocol.parse().map_err(|_| refused(format!("'{protocol}' is not a protocol")))?,
            ),
            direction: if *way == "in" { Direction::In } else { Direction::Out },
            ends: [parse_endpoint(a)?, parse_endpoint(b)?],
        }),
        _ => Err(refused("which states? say hosts, label, id or key")),
    }
}

fn parse_network(word: &str) -> Result<(IpAddr, u8), HandlerError> {
    let wrong = || refused(format!("'{word}' is not a valid address or network"));
    let (address, length) = word.split_once('/').unwrap_or((word, ""));
    let address: IpAddr = address.parse().map_err(|_| wrong())?;
    let longest = if address.is_ipv4() { 32 } else { 128 };
    let length = if length.is_empty() { longest } else { length.parse().map_err(|_| wrong())? };
    if length > longest { Err(wrong()) } else { Ok((address, length)) }
}

/// Parses an endpoint, written `ADDRESS,PORT`.
fn parse_endpoint(word: &str) -> Result<(IpAddr, u16), HandlerError> {
    let found =
        word.rsplit_once(',').and_then(|(address, port)| Some((address.parse().ok()?, port.parse().ok()?)));
    found.ok_or_else(|| refused(format!("'{word}' is not a valid ADDRESS,PORT")))
}
