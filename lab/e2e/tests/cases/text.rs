//! The text of a case file: its lines, what they set up, and the steps of its cases.

mod parse;
mod step;

use super::packet::UsualHeader;
use std::fmt::{self, Display, Formatter};
use std::net::SocketAddr;
use std::path::{Path, PathBuf};

use step::Input;
pub(super) use step::{Command, Counter, Round, Show, Who};

/// A file of cases that share a setup.
#[derive(Debug)]
pub(crate) struct CaseFile {
    pub(super) path: PathBuf,
    pub(super) lines: Vec<String>,
    pub(super) setup: Setup,
    pub(super) cases: Vec<Case>,
}

/// What is set up once for all cases of a file.
#[derive(Debug, Default)]
pub(super) struct Setup {
    /// The words after `artery`.
    pub(super) artery: Option<Line>,
    /// Shell commands that set up the kernel; none if it can't do the same.
    pub(super) kernel: Vec<Line>,
    /// Files by name, in the folder that both start in.
    pub(super) files: Vec<(String, String)>,
    pub(super) ports: u8,
    /// Neighbors that need not be asked for.
    pub(super) neighbors: Vec<Neighbor>,
    /// The longest packet of a port of the router, if it is not 1500.
    pub(super) mtus: Vec<(u8, u32)>,
    /// Layers and fields that may have any value in packets from the router's own addresses.
    pub(super) free: Vec<(String, String)>,
    /// Packets that pass only after all that was sent before has been dealt with.
    pub(super) fence: Round,
    /// Why the file is left to the long tests.
    pub(super) long: Option<String>,
}

/// A neighbor of the router: `neighbor: 10.0.1.2 h1 dev p1`.
#[derive(Debug)]
pub(super) struct Neighbor {
    pub(super) address: String,
    pub(super) mac: String,
    pub(super) device: String,
}

/// A line of a file that is read later.
#[derive(Clone, Debug)]
pub(super) struct Line {
    /// The number in its file, from 1.
    pub(super) number: usize,
    pub(super) text: String,
}

/// One case: what is done, and what must come of it.
#[derive(Debug, Default)]
pub(super) struct Case {
    pub(super) line: usize,
    pub(super) name: String,
    /// Why Artery does other than the kernel, where that is meant.
    pub(super) differs: Option<String>,
    /// Why the kernel is left out.
    pub(super) artery_only: Option<String>,
    /// For how long packets may still come when expectations are updated.
    pub(super) settle_ms: u64,
    pub(super) rounds: Vec<Round>,
    pub(super) counters: Vec<Counter>,
    pub(super) shows: Vec<Show>,
}

/// What is wrong with a file, and where.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Mistake {
    path: PathBuf,
    line: usize,
    message: String,
}

impl Display for Mistake {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}: {}", self.path.display(), self.line, self.message)
    }
}

impl CaseFile {
    /// Reads a file; gives all its mistakes if it has some.
    pub(crate) fn read(path: &Path) -> Result<CaseFile, Vec<Mistake>> {
        let mistake = |message| vec![Mistake { path: path.to_owned(), line: 0, message }];
        let text = std::fs::read_to_string(path).map_err(|error| mistake(error.to_string()))?;
        CaseFile::parse(path, &text)
    }

    /// The same from text.
    pub(super) fn parse(path: &Path, text: &str) -> Result<CaseFile, Vec<Mistake>> {
        parse::file(path, text).map_err(|mistakes| {
            let place = |(line, message)| Mistake { path: path.to_owned(), line, message };
            mistakes.into_iter().map(place).collect()
        })
    }

    /// Whether the file is for the long tests only.
    pub(crate) fn is_long(&self) -> bool {
        self.setup.long.is_some()
    }

    /// How many cases there are, and how many of them the kernel takes part in.
    pub(crate) fn counts(&self) -> (usize, usize) {
        let differential = self.cases.iter().filter(|case| case.has_kernel(&self.setup)).count();
        (self.cases.len(), differential)
    }

    /// The addresses of Artery's own ports and of its services, as `artery:` names them.
    pub(super) fn own_addresses(&self) -> Vec<String> {
        let words = self.setup.artery.iter().flat_map(|line| line.text.split_whitespace());
        let parts = words.flat_map(|word| word.split(['=', ',']));
        let address = |text: &str| match text.parse::<SocketAddr>() {
            Ok(service) => service.ip().to_string(),
            Err(_) => text.to_owned(),
        };
        parts.filter_map(|part| Some(address(part.split_once('/')?.0))).collect()
    }
}

impl Case {
    pub(super) fn has_kernel(&self, setup: &Setup) -> bool {
        !setup.kernel.is_empty() && self.artery_only.is_none()
    }

    /// What is wrong with the reason for a difference: it must stand where there is one, and only there.
    pub(super) fn unexplained(&self) -> Option<String> {
        let mut outputs = self.rounds.iter().flat_map(|round| &round.outputs);
        let message = match (outputs.any(|output| output.who != Who::Both), &self.differs) {
            (true, None) => {
                "Artery and the kernel do not send the same; mend what is wrong, or say why with 'differs: \
                 REASON'"
            }
            (false, Some(_)) => "'differs:' stands here, but no line 'artery out' or 'kernel out'; remove it",
            _ => return None,
        };
        Some(message.to_owned())
    }

    fn inputs(&self) -> impl Iterator<Item = &Input> {
        self.rounds.iter().flat_map(|round| &round.inputs)
    }
}

/// Reads a port such as `p3`.
fn port(word: &str, ports: u8) -> Result<u8, String> {
    let number = word.strip_prefix('p').and_then(|number| number.parse().ok());
    match number {
        Some(number) if (1..=ports).contains(&number) => Ok(number),
        _ => Err(format!("'{word}' is not a port; ports are p1 to p{ports} (line `ports:`)")),
    }
}

/// The header that a packet at a port has unless it is written.
pub(super) fn usual(port: u8, is_input: bool) -> UsualHeader {
    if is_input { UsualHeader::from_host(port) } else { UsualHeader::to_host(port) }
}
