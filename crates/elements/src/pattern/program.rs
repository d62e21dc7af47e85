//! A compiled list of patterns and how it runs.
use super::compile::{Decisions, Node, Target, compile};
use super::expr::{Base, Expr, Relation, Test};
use artery_engine::Context;
use std::fmt::Write;

/// Values of one masked word from which on a search beats looking at one after the other.
const SEARCH_FROM: usize = 6;

/// A step's number, or with this bit an output's.
const OUTPUT: u32 = 1 << 31;
/// The packet matches nothing.
const NOWHERE: u32 = u32::MAX;

/// One look at the packet.
#[derive(Clone, Debug)]
struct Step {
    test: Test,
    yes: u32,
    no: u32,
    /// Where in the table the values of this word and their targets are, when there are many; else empty.
    table: std::ops::Range<u32>,
}

/// A list of patterns, compiled.
#[derive(Clone, Debug)]
pub(crate) struct Program {
    steps: Vec<Step>,
    start: u32,
    /// Values and targets of the steps that search, sorted within each.
    table: Vec<(u32, u32)>,
}

impl Program {
    /// A program that sends a packet by the output of the first pattern it matches; `None` is nowhere.
    pub(crate) fn new(patterns: impl IntoIterator<Item = (Expr, Option<usize>)>) -> Program {
        let target = |output: Option<usize>| output.map_or(Target::Drop, Target::Output);
        let patterns = patterns.into_iter().map(|(expr, output)| (expr, target(output))).collect();
        let (decisions, start) = compile(patterns);
        layout(&decisions, start)
    }

    /// The output for a packet: `bytes` gives what lies from each base to the packet's end.
    #[inline]
    pub(crate) fn run<'a>(&self, bytes: impl Fn(Base) -> &'a [u8]) -> Option<usize> {
        let mut at = self.start;
        while at < OUTPUT {
            let step = &self.steps[at as usize];
            at = self.next(step, bytes(step.test.base));
        }
        (at != NOWHERE).then_some((at & !OUTPUT) as usize)
    }

    #[inline]
    fn next(&self, step: &Step, bytes: &[u8]) -> u32 {
        if step.table.is_empty() {
            if step.test.holds(bytes) { step.yes } else { step.no }
        } else {
            self.search(step, bytes)
        }
    }

    fn search(&self, step: &Step, bytes: &[u8]) -> u32 {
        let table = &self.table[step.table.start as usize..step.table.end as usize];
        let mut word = [0; 4];
        let tail = bytes.get(usize::from(step.test.offset)..).unwrap_or(&[]);
        let have = tail.len().min(4);
        if have < step.test.width() {
            return step.no;
        }
        word[..have].copy_from_slice(&tail[..have]);
        let value = u32::from_be_bytes(word) & step.test.mask;
        table.binary_search_by_key(&value, |(value, _)| *value).map_or(step.no, |at| table[at].1)
    }

    /// Those of so many outputs that no packet leaves by.
    fn unused_outputs(&self, outputs: usize) -> Vec<usize> {
        let steps = self.steps.iter().flat_map(|step| [step.yes, step.no]);
        let targets: Vec<u32> =
            steps.chain(self.table.iter().map(|(_, to)| *to)).chain([self.start]).collect();
        (0..outputs).filter(|n| !targets.contains(&(OUTPUT | *n as u32))).collect()
    }

    /// Says which of the element's outputs no packet can leave by.
    pub(crate) fn warn_unused_outputs(&self, cx: &mut Context<'_>) {
        if cx.worker() == 0 {
            for output in self.unused_outputs(cx.outputs()) {
                let line = format!("{}: warning: output {output} matches no packets", cx.name());
                cx.say(&line);
            }
        }
    }

    /// Packets of this length are long enough for every step.
    fn safe_len(&self) -> usize {
        let end = |step: &Step| place(&step.test) + step.test.width();
        self.steps.iter().map(end).max().unwrap_or(0)
    }

    /// The program as people read it, one line for each comparison.
    pub(crate) fn describe(&self) -> String {
        let mut numbers = Vec::new();
        let mut lines = 0;
        for step in &self.steps {
            numbers.push(lines);
            lines += step.table.len().max(1);
        }
        let name = |to: u32| match to {
            NOWHERE => "[X]".to_string(),
            to if to >= OUTPUT => format!("[{}]", to & !OUTPUT),
            to => format!("step {}", numbers[to as usize]),
        };
        let mut text = String::new();
        for (step, number) in self.steps.iter().zip(&numbers) {
            let table = &self.table[step.table.start as usize..step.table.end as usize];
            for (i, (value, yes)) in table.iter().enumerate() {
                let next = number + i + 1;
                let no = if i + 1 < table.len() { format!("step {next}") } else { name(step.no) };
                describe_line(&mut text, number + i, &Test { value: *value, ..step.test }, &name(*yes), &no);
            }
            if table.is_empty() {
                describe_line(&mut text, *number, &step.test, &name(step.yes), &name(step.no));
            }
        }
        if self.steps.is_empty() {
            let _ = writeln!(text, "all->{}", name(self.start));
        }
        text + &format!("safe length {}\nalignment offset 0\n", self.safe_len())
    }
}

fn describe_line(text: &mut String, number: usize, test: &Test, yes: &str, no: &str) {
    let relation = if test.relation == Relation::Greater { ">" } else { "" };
    let (place, value, mask) = (place(test), test.value, test.mask);
    let _ = write!(text, "{number:2} {place:3}/{relation}{value:08x}%{mask:08x}  yes->{yes}  no->{no}");
    text.push_str(if test.short { "  short->yes\n" } else { "\n" });
}

/// The offset by which a listing tells the headers apart.
fn place(test: &Test) -> usize {
    let base = match test.base {
        Base::Data => 0,
        Base::Mac => 2,
        Base::Network => 256,
        Base::Transport => 512,
    };
    base + usize::from(test.offset)
}

/// Puts steps in the order in which a packet meets them, and rows of tests of one word into the table.
fn layout(decisions: &Decisions, start: Target) -> Program {
    let rows = Rows::find(decisions, start);
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
        if !row.is_empty() {
            table.extend(row.iter().map(|n| &decisions.nodes[*n]).map(|n| (n.test.value, number(n.yes))));
            table[from..].sort_by_key(|(value, _)| *value);
        }
        let table = from as u32..table.len() as u32;
        steps.push(Step { test: node.test, yes: number(node.yes), no: number(last.no), table });
    }
    Program { steps, start: number(start), table }
}

/// Each step to be laid out, with the row of steps that a search takes the place of, if there is one.
struct Rows(Vec<(usize, Vec<usize>)>);

impl Rows {
    fn find(decisions: &Decisions, start: Target) -> Rows {
        let nodes = &decisions.nodes;
        let mut reached = decisions.reached(start);
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

/// Steps that ask for one value after the other of the same word, if they are many.
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
    let searchable = nodes[first].test.relation == Relation::Equal && !nodes[first].test.short;
    if searchable && row.len() >= SEARCH_FROM { row } else { Vec::new() }
}
