//! Checks of a graph against its classes: port ranges, push and pull, completeness.
//!
//! Unlike Click, all checks run although one failed. So that one mistake is one message, ports that
//! suffered from an error are left out of the later checks, and elements of unknown class of all.

use std::collections::HashSet;

use crate::class::{ClassInfo, ClassLookup};
use crate::diagnostic::Diagnostic;
use crate::flow;
use crate::ir::{Edge, Ir};

/// How packets pass a port.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Mode {
    /// The upstream element hands packets over.
    Push,
    /// The downstream element asks for packets.
    Pull,
}

/// The ports of every node, and the mode of each.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Processing {
    /// Modes of the inputs, by node and port.
    pub inputs: Vec<Vec<Mode>>,
    /// Modes of the outputs, by node and port.
    pub outputs: Vec<Vec<Mode>>,
}

/// Checks a graph; the modes mean something only if there are no errors.
pub fn check(ir: &Ir, classes: &dyn ClassLookup) -> (Processing, Vec<Diagnostic>) {
    let mut checker = Checker::new(ir, classes);
    let edges = checker.check_ranges();
    let modes = checker.spread_modes(&edges);
    checker.check_reuse(&edges, &modes);
    checker.check_unused(&edges);
    let [inputs, outputs] = modes.map(|nodes| nodes.into_iter().map(resolve_modes).collect());
    (Processing { inputs, outputs }, checker.diagnostics)
}

/// What is still undecided ends as push.
fn resolve_modes(modes: Vec<Option<Mode>>) -> Vec<Mode> {
    modes.into_iter().map(|mode| mode.unwrap_or(Mode::Push)).collect()
}

/// Modes of inputs and of outputs, by node and port; `None` is agnostic.
type Modes = [Vec<Vec<Option<Mode>>>; 2];

const KINDS: [&str; 2] = ["input", "output"];

struct Checker<'a> {
    ir: &'a Ir,
    classes: Vec<Option<ClassInfo>>,
    /// Numbers of inputs and outputs by node.
    ports: Vec<[usize; 2]>,
    /// Nodes that are not blamed for unused ports.
    excused: Vec<bool>,
    /// Nodes at whose ports push and pull clash.
    clashing: HashSet<usize>,
    diagnostics: Vec<Diagnostic>,
}

impl<'a> Checker<'a> {
    fn new(ir: &'a Ir, lookup: &dyn ClassLookup) -> Checker<'a> {
        let classes: Vec<Option<ClassInfo>> =
            ir.nodes.iter().map(|node| lookup.find_class(&node.class)).collect();
        let mut ports = vec![[0, 0]; ir.nodes.len()];
        for edge in &ir.edges {
            for (side, (node, port)) in [edge.to, edge.from].into_iter().enumerate() {
                ports[node][side] = ports[node][side].max(port + 1);
            }
        }
        for (ports, class) in ports.iter_mut().zip(&classes) {
            let counts = class.and_then(|class| flow::port_counts(class.ports, *ports));
            *ports = counts.unwrap_or(*ports);
        }
        let excused = ir.nodes.iter().zip(&classes).map(|(node, class)| node.uncertain || class.is_none());
        let excused = excused.collect();
        Checker { ir, classes, ports, excused, clashing: HashSet::new(), diagnostics: Vec::new() }
    }

    fn declaration_text(&self, node: usize) -> String {
        format!("{} :: {}", self.ir.nodes[node].name, self.ir.nodes[node].class)
    }

    /// Reports ports that an element does not have; gives the edges that are left.
    fn check_ranges(&mut self) -> Vec<Edge> {
        let mut reported = HashSet::new();
        let mut edges = Vec::new();
        for edge in &self.ir.edges {
            let mut fits = true;
            for (side, (node, port)) in [edge.to, edge.from].into_iter().enumerate() {
                let count = self.ports[node][side];
                if port >= count {
                    fits = false;
                    if reported.insert((side, node, port)) {
                        self.out_of_range(edge, side, port, node, count);
                    }
                }
            }
            if fits {
                edges.push(*edge);
            } else {
                self.excused[edge.from.0] = true;
                self.excused[edge.to.0] = true;
            }
        }
        edges
    }

    fn out_of_range(&mut self, edge: &Edge, side: usize, port: usize, node: usize, count: usize) {
        let kind = KINDS[side];
        let message = format!("'{}' has no {kind} {port}", self.declaration_text(node));
        let class = &self.ir.nodes[node].class;
        let help = match count {
            0 => format!("{class} has no {kind}s"),
            1 => format!("{class} has one {kind} here, number 0"),
            _ => format!("{class} has {count} {kind}s here, 0 to {}", count - 1),
        };
        let error = Diagnostic::error(message, edge.span).landmark(self.ir.nodes[node].span);
        self.diagnostics.push(error.help(help));
    }

    /// The modes of all ports, as the processing codes say and the connections spread them.
    fn spread_modes(&mut self, edges: &[Edge]) -> Modes {
        let mut modes = self.initial_modes();
        let mut wires: Vec<Wire> = edges.iter().copied().map(Wire::outside).collect();
        wires.retain(|wire| self.classes[wire.from.0].is_some() && self.classes[wire.to.0].is_some());
        self.add_inner_wires(&modes, &mut wires);
        loop {
            let mut changed = false;
            for wire in &mut wires {
                let from = modes[1][wire.from.0][wire.from.1];
                let to = modes[0][wire.to.0][wire.to.1];
                match (from, to) {
                    (Some(mode), None) => modes[0][wire.to.0][wire.to.1] = Some(mode),
                    (None, Some(mode)) => modes[1][wire.from.0][wire.from.1] = Some(mode),
                    (Some(from), Some(to)) if from != to && !wire.reported => {
                        wire.reported = true;
                        self.report_clash(wire, from);
                        continue;
                    }
                    _ => continue,
                }
                changed = true;
            }
            if !changed {
                return modes;
            }
        }
    }

    fn initial_modes(&self) -> Modes {
        [false, true].map(|is_output| {
            let of_node = |node: usize| {
                let code = self.classes[node].map_or("a/a", |class| class.processing);
                let port = |port| match flow::processing_letter(code, is_output, port) {
                    b'h' => Some(Mode::Push),
                    b'l' => Some(Mode::Pull),
                    _ => None,
                };
                (0..self.ports[node][usize::from(is_output)]).map(port).collect()
            };
            (0..self.ir.nodes.len()).map(of_node).collect()
        })
    }

    /// Wires inside elements, between agnostic ports that packets travel between.
    fn add_inner_wires(&self, modes: &Modes, wires: &mut Vec<Wire>) {
        for (node, class) in self.classes.iter().enumerate() {
            let Some(class) = class else { continue };
            for (input, _) in modes[0][node].iter().enumerate().filter(|(_, mode)| mode.is_none()) {
                for (output, _) in modes[1][node].iter().enumerate().filter(|(_, mode)| mode.is_none()) {
                    if flow::flows_between(class.flow, input, output) {
                        wires.push(Wire::inside(node, input, output, self.ir.nodes[node].span));
                    }
                }
            }
        }
    }

    fn report_clash(&mut self, wire: &Wire, from: Mode) {
        let (from_word, to_word) = if from == Mode::Push { ("push", "pull") } else { ("pull", "push") };
        let (from_port, to_port) = (wire.from.1, wire.to.1);
        let declaration = self.declaration_text(wire.from.0);
        let (message, help) = if wire.inside {
            let message = format!(
                "agnostic '{declaration}' in mixed context: {to_word} input {to_port}, {from_word} output \
                 {from_port}"
            );
            (message, "put a Queue before it if its output is pull, an Unqueue if its output is push")
        } else {
            let other = self.declaration_text(wire.to.0);
            let message = format!(
                "'{declaration}' {from_word} output {from_port} connected to '{other}' {to_word} input \
                 {to_port}"
            );
            let help = match from {
                Mode::Push => "put a Queue between them to turn push into pull",
                Mode::Pull => "put an Unqueue between them to turn pull into push",
            };
            (message, help)
        };
        self.clashing.extend([wire.from.0, wire.to.0]);
        self.diagnostics.push(Diagnostic::error(message, wire.span).unplaced().help(help));
    }

    /// A push output and a pull input lead to one place only.
    fn check_reuse(&mut self, edges: &[Edge], modes: &Modes) {
        for side in 0..2 {
            let (active, word) = [(Mode::Pull, "pull"), (Mode::Push, "push")][side];
            let port_of = |edge: &Edge| if side == 0 { edge.to } else { edge.from };
            let mut sorted: Vec<&Edge> = edges.iter().collect();
            sorted.sort_by_key(|edge| (port_of(edge), edge.to, edge.from));
            for pair in sorted.windows(2) {
                let (node, port) = port_of(pair[1]);
                let unclear = self.classes[node].is_none() || self.clashing.contains(&node);
                let mode = modes[side][node][port].unwrap_or(Mode::Push);
                if port_of(pair[0]) == (node, port) && mode == active && !unclear {
                    self.report_reuse(pair[1], node, format!("{word} {} {port}", KINDS[side]));
                }
            }
        }
    }

    fn report_reuse(&mut self, edge: &Edge, node: usize, port: String) {
        let message = format!("illegal reuse of '{}' {port}", self.declaration_text(node));
        let help = if port.starts_with("push") {
            "a push output has one connection; put a Tee behind it to copy packets"
        } else {
            "a pull input has one connection; put a scheduler such as RoundRobinSched before it"
        };
        let error = Diagnostic::error(message, edge.span).landmark(self.ir.nodes[node].span);
        self.diagnostics.push(error.help(help));
    }

    /// Every port has a connection.
    fn check_unused(&mut self, edges: &[Edge]) {
        let mut used: [Vec<Vec<bool>>; 2] =
            [0, 1].map(|side| self.ports.iter().map(|ports| vec![false; ports[side]]).collect());
        for edge in edges {
            used[0][edge.to.0][edge.to.1] = true;
            used[1][edge.from.0][edge.from.1] = true;
        }
        for (side, used) in used.iter().enumerate() {
            for (node, used) in used.iter().enumerate().filter(|(node, _)| !self.excused[*node]) {
                for (port, _) in used.iter().enumerate().filter(|(_, used)| !**used) {
                    let kind = KINDS[side];
                    let message = format!("'{}' {kind} {port} unused", self.declaration_text(node));
                    let help =
                        ["connect it, or `Idle -> …` if nothing shall come", "connect it, or `… -> Discard`"];
                    let error = Diagnostic::error(message, self.ir.nodes[node].span).help(help[side]);
                    self.diagnostics.push(error);
                }
            }
        }
    }
}

/// Something that gives both its ends the same mode.
#[derive(Clone, Copy)]
struct Wire {
    from: (usize, usize),
    to: (usize, usize),
    span: crate::Span,
    inside: bool,
    reported: bool,
}

impl Wire {
    fn outside(edge: Edge) -> Wire {
        Wire { from: edge.from, to: edge.to, span: edge.span, inside: false, reported: false }
    }

    fn inside(node: usize, input: usize, output: usize, span: crate::Span) -> Wire {
        Wire { from: (node, output), to: (node, input), span, inside: true, reported: false }
    }
}

#[cfg(test)]
mod tests;
