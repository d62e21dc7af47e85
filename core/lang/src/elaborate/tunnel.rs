//! Tunnels: stand-ins for compounds and groups, which connections are routed through at the end.

use std::collections::{HashMap, HashSet};

use super::Elaborator;
use super::class::{ClassKind, TUNNEL};
use super::prototype::{Connection, ItemId, Port};
use crate::diagnostic::Diagnostic;
use crate::ir::{Edge, Ir, Node};
use crate::source::Span;

/// More connections than this are taken for a mistake.
const MAX_EDGES: usize = 1 << 22;

/// An item, whether its output side is meant, and a port.
type End = (ItemId, bool, usize);

#[derive(Default)]
pub(super) struct Tunnels {
    /// The other mouth of each mouth: what enters the compound leaves its `input`.
    partners: HashMap<(ItemId, bool), ItemId>,
    /// The `input` and `output` items.
    inner: HashSet<ItemId>,
    /// `input` and `output` items of which enough was said.
    pub(super) quiet: HashSet<ItemId>,
}

/// The three items of a tunnel.
#[derive(Clone, Copy)]
pub(super) struct Tunnel {
    pub(super) outer: ItemId,
    pub(super) input: ItemId,
    pub(super) output: ItemId,
}

impl Elaborator<'_, '_> {
    /// Adds a tunnel, or makes an element of that name one.
    pub(super) fn add_tunnel(&mut self, name: &str, span: Span) -> Tunnel {
        let [outer, input, output] = [name.to_string(), format!("{name}/input"), format!("{name}/output")]
            .map(|name| self.current.add_element(name, TUNNEL, (String::new(), span), span));
        if self.current.depth == 0 {
            let partners = &mut self.tunnels.partners;
            partners.extend([((outer, false), input), ((input, true), outer)]);
            partners.extend([((outer, true), output), ((output, false), outer)]);
            self.tunnels.inner.extend([input, output]);
        }
        Tunnel { outer, input, output }
    }

    /// The finished graph: connections routed through tunnels, tunnels removed.
    pub(super) fn build_graph(&mut self) -> Ir {
        let connections = std::mem::take(&mut self.current.connections);
        let mut paths = Paths::new(self, &connections);
        let mut edges = Vec::new();
        for connection in &connections {
            let from = paths.resolve_ends(self, (connection.from.0, true, connection.from.1));
            let to = paths.resolve_ends(self, (connection.to.0, false, connection.to.1));
            self.mark_doubtful(&from, &to);
            if edges.len() + from.len() * to.len() > MAX_EDGES {
                let message = format!("more than {MAX_EDGES} connections");
                self.report(Diagnostic::error(message, connection.span).help("connect fewer ports"));
                break;
            }
            let pairs = from.iter().flat_map(|&from| to.iter().map(move |&to| (from, to)));
            edges.extend(pairs.map(|(from, to)| Edge { from, to, span: connection.span }));
        }
        self.without_tunnels(edges)
    }

    /// A connection that leads nowhere leaves its other end without blame.
    fn mark_doubtful(&mut self, from: &[Port], to: &[Port]) {
        if from.is_empty() || to.is_empty() {
            for &(item, _) in from.iter().chain(to) {
                self.current.items[item].doubtful = true;
            }
        }
    }

    fn without_tunnels(&mut self, mut edges: Vec<Edge>) -> Ir {
        let mut nodes = Vec::new();
        let mut index = vec![usize::MAX; self.current.items.len()];
        for (item, index) in std::mem::take(&mut self.current.items).into_iter().zip(&mut index) {
            let class = match self.classes.kind(item.class) {
                ClassKind::Tunnel => continue,
                ClassKind::Real(name) => name.to_string(),
                ClassKind::Error(name) => name.clone(),
                ClassKind::Compound(prototype, _) => prototype.name.clone(),
            };
            *index = nodes.len();
            nodes.push(Node {
                name: item.name,
                class,
                config: item.config,
                span: item.span,
                config_span: item.config_span,
                uncertain: item.doubtful,
            });
        }
        for edge in &mut edges {
            (edge.from.0, edge.to.0) = (index[edge.from.0], index[edge.to.0]);
        }
        let mut ir = Ir { nodes, edges, requirements: std::mem::take(&mut self.requirements) };
        ir.sort_edges();
        ir
    }

    fn is_tunnel(&self, item: ItemId) -> bool {
        self.current.items[item].class == TUNNEL
    }

    /// Says that one mouth of a tunnel is connected and the other is not.
    fn report_dead_end(&mut self, (item, is_output, port): End, partner: ItemId) {
        if self.tunnels.quiet.contains(&item) || self.tunnels.quiet.contains(&partner) {
            return;
        }
        let inner = self.tunnels.inner.contains(&item);
        let outer = &self.current.items[if inner { partner } else { item }];
        let kind = if is_output == inner { "input" } else { "output" };
        let name = &outer.name;
        let error = if inner {
            let help = format!("connect {kind} {port} of `{name}`, or use no {kind} {port} inside");
            Diagnostic::error(format!("'{name}' {kind} {port} unused"), outer.span).help(help)
        } else {
            let help = format!("use `{kind} [{port}]` inside, or do not connect it");
            Diagnostic::error(format!("'{name}' has no {kind} {port}"), outer.span).help(help)
        };
        self.report(error);
    }
}

/// Where connections into tunnels come out.
struct Paths {
    /// What is connected to the far mouth.
    beyond: HashMap<End, Vec<Port>>,
    known: HashMap<End, Vec<Port>>,
}

impl Paths {
    fn new(elaborator: &Elaborator<'_, '_>, connections: &[Connection]) -> Paths {
        let mut beyond: HashMap<End, Vec<Port>> = HashMap::new();
        let partner = |item, is_output| elaborator.tunnels.partners.get(&(item, is_output)).copied();
        for &Connection { from, to, .. } in connections {
            if let Some(inner) = partner(to.0, false) {
                beyond.entry((inner, true, to.1)).or_default().push(from);
            }
            if let Some(inner) = partner(from.0, true) {
                beyond.entry((inner, false, from.1)).or_default().push(to);
            }
        }
        Paths { beyond, known: HashMap::new() }
    }

    /// The real ports an end stands for. Tunnels in a row may be many, hence no recursion.
    fn resolve_ends(&mut self, elaborator: &mut Elaborator<'_, '_>, end: End) -> Vec<Port> {
        if !elaborator.is_tunnel(end.0) {
            return vec![(end.0, end.2)];
        }
        let mut stack = vec![end];
        while let Some(&top) = stack.last() {
            let next = match self.known.get(&top) {
                None => {
                    self.known.insert(top, Vec::new());
                    self.enter_tunnel(elaborator, top)
                }
                Some(_) => {
                    stack.pop();
                    self.finish_end(elaborator, top);
                    Vec::new()
                }
            };
            stack.extend(next);
        }
        self.known[&end].clone()
    }

    /// What must be known before this end, without what is already on the way.
    fn enter_tunnel(&mut self, elaborator: &mut Elaborator<'_, '_>, end: End) -> Vec<End> {
        let Some(&partner) = elaborator.tunnels.partners.get(&(end.0, end.1)) else { return Vec::new() };
        match self.beyond.get(&end) {
            None => {
                elaborator.report_dead_end(end, partner);
                Vec::new()
            }
            Some(ports) => {
                let ends = ports.iter().map(|&(item, port)| (item, end.1, port));
                ends.filter(|end| elaborator.is_tunnel(end.0) && !self.known.contains_key(end)).collect()
            }
        }
    }

    fn finish_end(&mut self, elaborator: &Elaborator<'_, '_>, end: End) {
        let mut seen = HashSet::new();
        let mut ends = Vec::new();
        for &(item, port) in self.beyond.get(&end).into_iter().flatten() {
            if elaborator.is_tunnel(item) {
                let known = self.known.get(&(item, end.1, port)).into_iter().flatten();
                ends.extend(known.copied().filter(|port| seen.insert(*port)));
            } else if seen.insert((item, port)) {
                ends.push((item, port));
            }
        }
        self.known.insert(end, ends);
    }
}
