//! The intermediate representation: a router as nodes and edges, without compounds and variables.

use crate::source::Span;

/// A router graph as written, with everything that is only notation expanded away.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Ir {
    /// Elements in Click's order.
    pub nodes: Vec<Node>,
    /// Connections, ordered by input and then output, each once.
    pub edges: Vec<Edge>,
    /// Names of the packages asked for with `require`.
    pub requirements: Vec<String>,
}

/// An element: a node of the graph.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Node {
    /// Flattened name, such as `outer/Null@1`.
    pub name: String,
    /// The real name of the class; unknown to the lookup in nodes that stand for an error.
    pub class: String,
    /// The configuration string, variables expanded.
    pub config: String,
    /// Where the element is declared.
    pub span: Span,
    /// Where its configuration string is, without the parentheses; the declaration if it has none.
    pub config_span: Span,
    /// True if an error elsewhere may have cost the element a connection, so that none is demanded.
    pub uncertain: bool,
}

/// A connection from an output to an input.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Edge {
    /// Index of a node and one of its outputs.
    pub from: (usize, usize),
    /// Index of a node and one of its inputs.
    pub to: (usize, usize),
    /// The text that made the connection.
    pub span: Span,
}

impl Ir {
    /// The index of the node with this name.
    pub fn find_node(&self, name: &str) -> Option<usize> {
        self.nodes.iter().position(|node| node.name == name)
    }

    /// Orders the edges and drops repeated ones, as every Ir handed out has them.
    pub fn sort_edges(&mut self) {
        self.edges.sort_by_key(|edge| (edge.to, edge.from));
        self.edges.dedup_by_key(|edge| (edge.to, edge.from));
    }
}
