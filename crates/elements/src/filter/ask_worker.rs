//! What `artery pfctl` asks of each worker's filter. States are gone through in parts, so that packets pass meanwhile.
use super::shared::refused;
use super::worker::WorkerFilter;
use artery_engine::{Context, HandlerError};
use artery_filter::engine::Part;
use artery_filter::facts::Direction;
use artery_filter::names::masked;
use artery_filter::states::{Kill, StateView, Verbosity};
use artery_wire::IpProtocol;
use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use std::net::IpAddr;

/// What the handler is for.
pub(crate) const WORKER: &str = "what `artery pfctl` asks of the packet filter on each worker: `count`, `sources`, `restore …`, and of states in parts, whose \
     answers begin with where the next part begins, 0 for none, and their lines: `states FROM IF [v…]`, `kill FROM IF …`, `flush-states FROM IF`, \
     `dump FROM`; IF is `-` for states of any interface";

/// Places for states that are looked at for one question: packets wait for no more than these.
const PLACES: u32 = 1024;

impl WorkerFilter {
    /// Answers what is asked of each copy.
    pub(crate) fn ask_worker(&mut self, text: &str, cx: &mut Context<'_>) -> Result<String, HandlerError> {
        self.begin(cx);
        let words: Vec<&str> = text.split_whitespace().collect();
        match words.as_slice() {
            ["count"] => {
                self.tell_counts();
                Ok(String::new())
            }
            ["states", from, interface, flags @ ..] => {
                let part = part(from)?;
                let states = self.list(part, interface, flags.len());
                Ok(self.part(part, &states))
            }
            ["kill", from, interface, rest @ ..] => {
                let kill = kill(rest)?;
                self.end(part(from)?, interface, |state| kill.means(state))
            }
            ["flush-states", from, interface] => self.end(part(from)?, interface, |_| true),
            ["dump", from] => {
                let part = part(from)?;
                let mut records = Vec::new();
                self.filter.dump(part, self.ruling(), &self.ruling().compiled, &mut records);
                Ok(self.part(part, &(BASE64_STANDARD.encode(records) + "\n")))
            }
            ["restore", rules, records] => self.restore(*rules == "with-rules", records),
            ["flush-info"] => {
                self.filter.clear_counted();
                self.shared().control().count_anew(cx.now().since_epoch());
                Ok(String::new())
            }
            ["flush-rules-info"] => {
                self.filter.counters().clear();
                Ok(String::new())
            }
            ["sources", flags @ ..] => Ok(self.sources(!flags.is_empty())),
            ["kill-sources", networks @ ..] => self.kill_sources(networks),
            _ => Err(refused(format!("'{text}' is nothing that a worker's filter can be asked"))),
        }
    }

    /// The answer about a part: where the next begins, how many lines this one has, and these.
    fn part(&self, part: Part, lines: &str) -> String {
        let next = self.filter.behind(part).unwrap_or(0);
        format!("{next} {}\n{lines}", lines.lines().count())
    }

    /// The states of a part at an interface, as they are printed.
    fn list(&self, part: Part, interface: &str, verbosity: usize) -> String {
        let verbosity = [Verbosity::Plain, Verbosity::Verbose, Verbosity::VeryVerbose][verbosity.min(2)];
        let mut text = String::new();
        let is_meant = |state: &StateView<'_>| is_at(state.interface(self.ruling()), interface);
        for state in self.filter.states_in(part).filter(is_meant) {
            // A text takes whatever is written to it.
            let _ = state.print(self.ruling(), verbosity, &mut text);
        }
        text
    }

    /// Ends states of a part at an interface; says how many.
    fn end(
        &mut self,
        part: Part,
        interface: &str,
        mut is: impl FnMut(&StateView<'_>) -> bool,
    ) -> Result<String, HandlerError> {
        let (filter, ruling) = self.filter_and_ruling();
        let killed = filter.end_in(part, |state| is_at(state.interface(ruling), interface) && is(state));
        Ok(self.part(part, &format!("{}\n", killed.0)))
    }

    /// Takes states of a dump; says how many.
    fn restore(&mut self, keeps_rules: bool, records: &str) -> Result<String, HandlerError> {
        let records =
            BASE64_STANDARD.decode(records).map_err(|_| refused("these are no states: no base64"))?;
        let (filter, ruling) = self.filter_and_ruling();
        let number = |name: &str| ruling.interfaces.number(name);
        let taken = filter.restore(&records, keeps_rules, number, &ruling.compiled);
        taken.map(|taken| format!("{taken}\n")).map_err(|error| refused(error.to_string()))
    }

    /// Sources that are tracked, a line each; with their ages and rules in another where that is wanted.
    fn sources(&self, is_verbose: bool) -> String {
        let mut text = String::new();
        for source in self.filter.sources() {
            // A text takes whatever is written to it.
            let _ = self.filter.print_source(source, is_verbose, &mut text);
        }
        text
    }

    /// Forgets sources of these networks, all without any.
    fn kill_sources(&mut self, networks: &[&str]) -> Result<String, HandlerError> {
        let networks = networks.iter().map(|word| network(word)).collect::<Result<Vec<_>, _>>()?;
        let killed = match networks.as_slice() {
            [] => self.filter.flush_sources(),
            some => self.filter.kill_sources(|address| {
                some.iter().any(|(network, length)| masked(address, *length) == masked(*network, *length))
            }),
        };
        Ok(format!("{}\n", killed.0))
    }
}

fn part(from: &str) -> Result<Part, HandlerError> {
    let from = from.parse().map_err(|_| refused(format!("'{from}' is no place to begin at")))?;
    Ok(Part { from, places: PLACES })
}

/// Whether the interface of a state, as it is listed, is one that is meant.
fn is_at(interface: &str, wanted: &str) -> bool {
    wanted == "-" || wanted == interface
}

/// `hosts NET [NET]`, `label TEXT`, `id HEX [CREATOR]`, `key PROTO A in|out B`.
fn kill(words: &[&str]) -> Result<Kill, HandlerError> {
    match words {
        ["hosts", source] => Ok(Kill::Hosts { source: network(source)?, destination: None }),
        ["hosts", source, destination] => {
            Ok(Kill::Hosts { source: network(source)?, destination: Some(network(destination)?) })
        }
        ["label", label @ ..] => Ok(Kill::Label(label.join(" "))),
        ["id", id, rest @ ..] => {
            let hex =
                |word: &str| u64::from_str_radix(word, 16).map_err(|_| refused(format!("'{word}' is no id")));
            let creator = rest.first().map(|word| hex(word)).transpose()?;
            Ok(Kill::Id { id: hex(id)?, creator: creator.map(|creator| creator as u32) })
        }
        ["key", protocol, a, way, b] => Ok(Kill::Key {
            protocol: IpProtocol(
                protocol.parse().map_err(|_| refused(format!("'{protocol}' is no protocol")))?,
            ),
            direction: if *way == "in" { Direction::In } else { Direction::Out },
            ends: [end(a)?, end(b)?],
        }),
        _ => Err(refused("which states? say hosts, label, id or key")),
    }
}

fn network(word: &str) -> Result<(IpAddr, u8), HandlerError> {
    let wrong = || refused(format!("'{word}' is no address or network"));
    let (address, length) = word.split_once('/').unwrap_or((word, ""));
    let address: IpAddr = address.parse().map_err(|_| wrong())?;
    let longest = if address.is_ipv4() { 32 } else { 128 };
    let length = if length.is_empty() { longest } else { length.parse().map_err(|_| wrong())? };
    if length > longest { Err(wrong()) } else { Ok((address, length)) }
}

/// `ADDRESS,PORT`.
fn end(word: &str) -> Result<(IpAddr, u16), HandlerError> {
    let found =
        word.rsplit_once(',').and_then(|(address, port)| Some((address.parse().ok()?, port.parse().ok()?)));
    found.ok_or_else(|| refused(format!("'{word}' is no ADDRESS,PORT")))
}
