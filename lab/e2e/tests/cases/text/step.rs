//! A line of a case: a packet that goes in or comes out, a command, a counter.

use super::{Line, port, usual};
use crate::cases::packet;
use std::ops::Range;

/// Packets and commands that go in together, and what comes out before the next ones go in.
#[derive(Debug, Default)]
pub(in crate::cases) struct Round {
    pub(in crate::cases) commands: Vec<Command>,
    pub(in crate::cases) inputs: Vec<Input>,
    pub(in crate::cases) outputs: Vec<Expected>,
    /// Where the lines of outputs are, counted from 0: UPDATE_EXPECT replaces them.
    pub(in crate::cases) output_lines: Range<usize>,
}

/// Who a line is about.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::cases) enum Who {
    Both,
    Artery,
    Kernel,
}

/// A frame that a host sends.
#[derive(Debug)]
pub(in crate::cases) struct Input {
    pub(in crate::cases) port: u8,
    pub(in crate::cases) frame: Vec<u8>,
}

/// A frame that a host must get.
#[derive(Debug)]
pub(in crate::cases) struct Expected {
    pub(in crate::cases) who: Who,
    pub(in crate::cases) port: u8,
    pub(in crate::cases) frame: Vec<u8>,
}

/// Something that is done to one side.
#[derive(Debug)]
pub(in crate::cases) struct Command {
    pub(in crate::cases) who: Who,
    pub(in crate::cases) line: Line,
}

/// By how much a counter of Artery grows during a case.
#[derive(Debug)]
pub(in crate::cases) struct Counter {
    pub(in crate::cases) line: usize,
    /// A handler, if it has a dot, or a reason of `artery show drops`.
    pub(in crate::cases) name: String,
    pub(in crate::cases) growth: u64,
}

/// What a command of Artery must print after a case.
#[derive(Debug)]
pub(in crate::cases) struct Show {
    pub(in crate::cases) line: usize,
    pub(in crate::cases) command: String,
    pub(in crate::cases) text: String,
}

impl Who {
    /// Whether what is said of `self` holds for a side.
    pub(in crate::cases) fn includes(self, side: Who) -> bool {
        self == Who::Both || self == side
    }

    /// How lines about it begin.
    pub(in crate::cases) fn prefix(self) -> &'static str {
        match self {
            Who::Both => "",
            Who::Artery => "artery ",
            Who::Kernel => "kernel ",
        }
    }
}

/// A step of a case or a fence.
pub(super) enum Step {
    Input(Input),
    Output(Expected),
    Command(Command),
    Counter(Counter),
    Show(Show),
    Differs(String),
    ArteryOnly(String),
    Settle(u64),
    /// What follows goes in after all that came before, also if nothing came out.
    Then,
}

const FORMS: &str = "write 'in p1: PACKET', 'out p2: PACKET', 'artery out p2: PACKET', 'kernel out p2: \
    PACKET', 'artery: COMMAND', 'kernel: COMMAND', 'counter: NAME +1', 'show: COMMAND | TEXT', 'differs: \
    REASON', 'artery only: REASON', 'then:' or 'settle: MILLISECONDS'";

/// Reads a line of a case.
pub(super) fn parse(number: usize, text: &str, ports: u8) -> Result<Step, String> {
    let (head, rest) = text.split_once(':').ok_or(FORMS)?;
    let rest = rest.trim();
    let words: Vec<&str> = head.split_whitespace().collect();
    let line = || Line { number, text: rest.to_owned() };
    match words[..] {
        ["in", word] => {
            let port = port(word, ports)?;
            Ok(Step::Input(Input { port, frame: packet::parse(rest, usual(port, true))? }))
        }
        ["out", word] => output(Who::Both, word, rest, ports),
        ["artery", "out", word] => output(Who::Artery, word, rest, ports),
        ["kernel", "out", word] => output(Who::Kernel, word, rest, ports),
        ["artery"] => Ok(Step::Command(Command { who: Who::Artery, line: line() })),
        ["kernel"] => Ok(Step::Command(Command { who: Who::Kernel, line: line() })),
        ["counter"] => counter(number, rest).map(Step::Counter),
        ["show"] => {
            let (command, text) = rest.split_once('|').ok_or("write 'show: routes 10.9/16 | blackhole'")?;
            Ok(Step::Show(Show { line: number, command: command.trim().into(), text: text.trim().into() }))
        }
        ["then"] if rest.is_empty() => Ok(Step::Then),
        ["differs"] => Ok(Step::Differs(rest.to_owned())),
        ["artery", "only"] => Ok(Step::ArteryOnly(rest.to_owned())),
        ["settle"] => rest.parse().map(Step::Settle).map_err(|_| "write 'settle: 4000', in ms".to_owned()),
        _ => Err(format!("unknown line '{head}:'; {FORMS}")),
    }
}

fn output(who: Who, word: &str, text: &str, ports: u8) -> Result<Step, String> {
    let port = port(word, ports)?;
    Ok(Step::Output(Expected { who, port, frame: packet::parse(text, usual(port, false))? }))
}

fn counter(line: usize, text: &str) -> Result<Counter, String> {
    let parts = text.rsplit_once(" +").and_then(|(name, growth)| Some((name, growth.parse().ok()?)));
    let (name, growth) = parts.ok_or("write 'counter: ttl-expired +1' or 'counter: ELEMENT.HANDLER +1'")?;
    Ok(Counter { line, name: name.trim().to_owned(), growth })
}
