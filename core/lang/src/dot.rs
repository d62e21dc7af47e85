//! A graph as a drawing for graphviz.

use std::collections::BTreeSet;
use std::fmt::Write;

use crate::check::{Mode, Processing};
use crate::ir::Ir;

/// One box per element with name, class and numbered ports; push connections solid, pull dashed.
pub fn dot(ir: &Ir, processing: &Processing) -> String {
    let mut out = String::from("digraph router {\n  node [shape=record, fontname=\"sans-serif\"];\n");
    for (index, node) in ir.nodes.iter().enumerate() {
        let ports = |input: bool| -> BTreeSet<usize> {
            let ends = ir.edges.iter().map(|edge| if input { edge.to } else { edge.from });
            ends.filter(|(node, _)| *node == index).map(|(_, port)| port).collect()
        };
        let label = [
            port_row(&ports(true), 'i'),
            format!("{}\\n{}", escape_label(&node.name), escape_label(&node.class)),
            port_row(&ports(false), 'o'),
        ];
        let label: Vec<&str> = label.iter().map(String::as_str).filter(|part| !part.is_empty()).collect();
        let _ = writeln!(out, "  n{index} [label=\"{{{}}}\"];", label.join("|"));
    }
    for edge in &ir.edges {
        let (from, output) = edge.from;
        let (to, input) = edge.to;
        let mode = processing.outputs.get(from).and_then(|modes| modes.get(output));
        let style = if mode == Some(&Mode::Pull) { "dashed" } else { "solid" };
        let _ = writeln!(out, "  n{from}:o{output}:s -> n{to}:i{input}:n [style={style}];");
    }
    out.push_str("}\n");
    out
}

/// A row of ports of a record, or nothing.
fn port_row(ports: &BTreeSet<usize>, letter: char) -> String {
    if ports.is_empty() {
        return String::new();
    }
    let cells: Vec<String> = ports.iter().map(|port| format!("<{letter}{port}> {port}")).collect();
    format!("{{{}}}", cells.join("|"))
}

/// Text for a record label.
fn escape_label(text: &str) -> String {
    let special = |c: char| matches!(c, '{' | '}' | '|' | '<' | '>' | '"' | '\\' | ' ');
    text.chars().flat_map(|c| special(c).then_some('\\').into_iter().chain([c])).collect()
}

#[cfg(test)]
mod tests {
    use crate::testing::*;

    #[test]
    fn a_drawing_has_boxes_ports_and_dashed_pull_connections() {
        let ir = graph("s :: InfiniteSource -> q :: Queue -> d :: ToDevice; q [1] -> Discard");
        let (processing, _) = crate::check(&ir, &Classes);
        let text = super::dot(&ir, &processing);
        assert!(text.contains("n1 [label=\"{{<i0> 0}|q\\nQueue|{<o0> 0|<o1> 1}}\"];"), "{text}");
        assert!(text.contains("n0:o0:s -> n1:i0:n [style=solid];"), "{text}");
        assert!(text.contains("n1:o0:s -> n2:i0:n [style=dashed];"), "{text}");
        assert!(text.contains("n1:o1:s -> n3:i0:n [style=solid];"), "{text}");
        assert!(text.starts_with("digraph") && text.ends_with("}\n"));
    }
}
