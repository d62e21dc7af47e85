//! A compiled list of patterns and how it runs.
use super::compile::{Decisions, Node, Target, compile_patterns};
use super::expr::{Base, Expr, Relation, Test};
use super::listing::list_program;
use artery_engine::Args;

/// Number of values of one masked word from which on binary search beats comparing them in turn.
const SEARCH_FROM: usize = 7;

/// A step's number, or with this bit an output's.
const OUTPUT: u32 = 1 << 31;
/// The packet matches nothing.
const NOWHERE: u32 = u32::MAX;

/// One test of a packet's word.
#[derive(Clone, Debug)]
struct Step {
    test: Test,
    yes: u32,
    no: u32,
    compare: CompareKind,
    /// Where in the table the values of this word and their targets are, when there are several; else empty.
    table: std::ops::Range<u32>,
}

/// How a step compares.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum CompareKind {
    /// With one value, for equality.
    One,
    /// With some values, in order.
    Some,
    /// With many values, sorted.
    Many,
    /// With one value, for order.
    Greater,
}

/// A list of patterns, compiled.
#[derive(Clone, Debug)]
pub(crate) struct Program {
    steps: Vec<Step>,
    start: u32,
    /// Values and targets of the steps that have several.
    table: Vec<(u32, u32)>,
    listing: String,
}

/// The target of a packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct PatternVerdict(u32);

impl PatternVerdict {
    /// The output; `None` is nowhere.
    #[inline]
    pub(crate) fn output(self) -> Option<usize> {
        (self.0 != NOWHERE).then_some((self.0 & !OUTPUT) as usize)
    }
}

impl Program {
    /// A program that sends a packet by the output of the first pattern it matches; `None` is nowhere.
    pub(crate) fn new(patterns: impl IntoIterator<Item = (Expr, Option<usize>)>) -> Program {
        let target = |output: Option<usize>| output.map_or(Target::Drop, Target::Output);
        let patterns = patterns.into_iter().map(|(expr, output)| (expr, target(output))).collect();
        let (decisions, start) = compile_patterns(patterns);
        layout_program(&decisions, start)
    }

    /// Decides on a packet: `bytes` returns the bytes from each base to the packet's end.
    #[inline]
    pub(crate) fn match_packet<'a>(&self, bytes: impl Fn(Base) -> &'a [u8]) -> PatternVerdict {
        let mut at = self.start;
        while at < OUTPUT {
            let step = &self.steps[at as usize];
            let bytes = bytes(step.test.base);
            let word = bytes.get(usize::from(step.test.offset)..).and_then(|tail| tail.first_chunk::<4>());
            at = match word {
                Some(word) => self.next(step, u32::from_be_bytes(*word) & step.test.mask),
                None => self.next_at_end(step, bytes),
            };
        }
        PatternVerdict(at)
    }

    #[inline]
    fn next(&self, step: &Step, masked: u32) -> u32 {
        let holds = match step.compare {
            CompareKind::One => masked == step.test.value,
            CompareKind::Greater => masked > step.test.value,
            CompareKind::Some => return self.find_value(step, masked),
            CompareKind::Many => return self.search_value(step, masked),
        };
        if holds { step.yes } else { step.no }
    }

    /// Where the packet ends within the word.
    #[cold]
    fn next_at_end(&self, step: &Step, bytes: &[u8]) -> u32 {
        if step.table.is_empty() {
            return if step.test.holds_at_end(bytes) { step.yes } else { step.no };
        }
        let tail = bytes.get(usize::from(step.test.offset)..).unwrap_or(&[]);
        if tail.len() < step.test.width() {
            return step.no;
        }
        let mut word = [0; 4];
        word.iter_mut().zip(tail).for_each(|(to, byte)| *to = *byte);
        self.next(step, u32::from_be_bytes(word) & step.test.mask)
    }

    #[inline]
    fn step_values(&self, step: &Step) -> &[(u32, u32)] {
        &self.table[step.table.start as usize..step.table.end as usize]
    }
    #[inline]
    fn find_value(&self, step: &Step, masked: u32) -> u32 {
        self.step_values(step)
            .iter()
            .find(|(value, _)| *value == masked)
            .map_or(step.no, |(_, target)| *target)
    }
    fn search_value(&self, step: &Step, masked: u32) -> u32 {
        let values = self.step_values(step);
        values.binary_search_by_key(&masked, |(value, _)| *value).map_or(step.no, |at| values[at].1)
    }

    /// The outputs that no packet can leave by.
    fn unused_outputs(&self, outputs: usize) -> Vec<usize> {
        let steps = self.steps.iter().flat_map(|step| [step.yes, step.no]);
        let targets: Vec<u32> =
            steps.chain(self.table.iter().map(|(_, to)| *to)).chain([self.start]).collect();
        (0..outputs).filter(|n| !targets.contains(&(OUTPUT | *n as u32))).collect()
    }

    /// Warns of the element's outputs that no packet can leave by.
    pub(crate) fn warn_unused_outputs(&self, args: &mut Args<'_>) {
        for output in self.unused_outputs(args.outputs()) {
            args.warn(format!("output {output} matches no packets"), None);
        }
    }

    /// The program as people read it, one line for each comparison.
    pub(crate) fn listing(&self) -> &str {
        &self.listing
    }
}

/// Puts steps in the order of execution, and rows of tests of one word into the table.
fn layout_program(decisions: &Decisions, start: Target) -> Program {
    let rows = Rows::find_rows(decisions, start);
    let mut numbers = vec![NOWHERE; decisions.nodes.len()];
    for (number, (first, _)) in (0..).zip(&rows.0) {
        numbers[*first] = number;
    }
    let number = |target| match target {
        Target::Step(n) => numbers[n],
        Target::Output(n) => OUTPUT | n as u32,
        Target::Drop => NOWHERE,
    };
    let (mut steps, mut table) = (Vec::new(), Vec::new());
    for (first, row) in &rows.0 {
        let node = decisions.nodes[*first];
        let last = decisions.nodes[*row.last().unwrap_or(first)];
        let from = table.len();
        table.extend(row.iter().map(|n| &decisions.nodes[*n]).map(|n| (n.test.value, number(n.yes))));
        let way = match (node.test.relation, row.len()) {
            (Relation::Greater, _) => CompareKind::Greater,
            (Relation::Equal, 0) => CompareKind::One,
            (Relation::Equal, 1..SEARCH_FROM) => CompareKind::Some,
            (Relation::Equal, _) => CompareKind::Many,
        };
        if way == CompareKind::Many {
            table[from..].sort_by_key(|(value, _)| *value);
        }
        let table = from as u32..table.len() as u32;
        steps.push(Step { test: node.test, yes: number(node.yes), no: number(last.no), compare: way, table });
    }
    Program { steps, start: number(start), table, listing: list_program(decisions, start) }
}

/// Each step of the layout, with the row of steps that it replaces, itself included, if there is one.
struct Rows(Vec<(usize, Vec<usize>)>);

impl Rows {
    fn find_rows(decisions: &Decisions, start: Target) -> Rows {
        let nodes = &decisions.nodes;
        let mut reached = decisions.reachable_steps(start);
        let mut ways_in = vec![0; nodes.len()];
        for node in nodes.iter().enumerate().filter(|(n, _)| reached[*n]).map(|(_, node)| node) {
            for target in [node.yes, node.no] {
                if let Target::Step(n) = target {
                    ways_in[n] += 1;
                }
            }
        }
        let mut rows = Vec::new();
        for first in (0..nodes.len()).rev() {
            if !std::mem::replace(&mut reached[first], false) {
                continue;
            }
            let row = row_from(nodes, &ways_in, first);
            row.iter().for_each(|n| reached[*n] = false);
            rows.push((first, row));
        }
        Rows(rows)
    }
}

/// A row of steps that compare the same word with one value after another.
fn row_from(nodes: &[Node], ways_in: &[usize], first: usize) -> Vec<usize> {
    let kind = |node: &Node| Test { value: 0, ..node.test };
    let mut row = vec![first];
    let mut at = first;
    while let Target::Step(next) = nodes[at].no
        && ways_in[next] == 1
        && kind(&nodes[next]) == kind(&nodes[first])
    {
        row.push(next);
        at = next;
    }
    let joins = nodes[first].test.relation == Relation::Equal && !nodes[first].test.short;
    if joins && row.len() > 1 { row } else { Vec::new() }
}
