//! A graph as flat configuration text, byte for byte as Click prints it.

use std::collections::HashMap;
use std::fmt::Write;

use crate::args;
use crate::ir::Ir;

/// The graph as declarations in order, an empty line, and maximal chains of connections.
pub fn print_flat(ir: &Ir) -> String {
    let mut out = String::new();
    print_requirements(ir, &mut out);
    for node in &ir.nodes {
        let _ = write!(out, "{} :: {}", node.name, node.class);
        if !node.config.is_empty() {
            let _ = write!(out, "({})", node.config);
        }
        out.push_str(";\n");
    }
    if !ir.nodes.is_empty() {
        out.push('\n');
    }
    print_connections(ir, &mut out);
    out
}

fn print_requirements(ir: &Ir, out: &mut String) {
    if ir.requirements.is_empty() {
        return;
    }
    let packages: Vec<String> =
        ir.requirements.iter().map(|package| format!("package {}", args::quote(package))).collect();
    let _ = write!(out, "require({});\n\n", packages.join(", "));
}

fn print_connections(ir: &Ir, out: &mut String) {
    let next = edge_continuations(ir);
    let mut starts = vec![true; ir.edges.len()];
    next.iter().flatten().for_each(|&edge| starts[edge] = false);
    let mut printed = vec![false; ir.edges.len()];
    for start in 0..ir.edges.len() {
        if starts[start] && !printed[start] {
            print_chain(ir, start, &next, &mut printed, out);
        }
    }
    // What is left are cycles.
    for start in 0..ir.edges.len() {
        if !printed[start] {
            print_chain(ir, start, &next, &mut printed, out);
        }
    }
}

/// The edge each edge is continued with: from output 0 behind input 0, best into an input 0.
fn edge_continuations(ir: &Ir) -> Vec<Option<usize>> {
    let mut best: HashMap<usize, usize> = HashMap::new();
    for (index, edge) in ir.edges.iter().enumerate().filter(|(_, edge)| edge.from.1 == 0) {
        let settled = best.get(&edge.from.0).is_some_and(|&known| ir.edges[known].to.1 == 0);
        if !settled {
            best.insert(edge.from.0, index);
        }
    }
    let next_of = |(index, edge): (usize, &crate::Edge)| {
        let next = *best.get(&edge.to.0).filter(|_| edge.to.1 == 0)?;
        if next != index { Some(next) } else { alternative_edge(ir, index) }
    };
    ir.edges.iter().enumerate().map(next_of).collect()
}

/// How to go on from an edge that leads back to its own start.
fn alternative_edge(ir: &Ir, loop_edge: usize) -> Option<usize> {
    let leaves =
        |index: &usize| *index != loop_edge && ir.edges[*index].from == (ir.edges[loop_edge].to.0, 0);
    let mut others = (0..ir.edges.len()).filter(leaves);
    let last = others.clone().next_back();
    others.find(|&index| ir.edges[index].to.1 == 0).or(last)
}

fn print_chain(ir: &Ir, start: usize, next: &[Option<usize>], printed: &mut [bool], out: &mut String) {
    let (node, port) = ir.edges[start].from;
    out.push_str(&ir.nodes[node].name);
    if port != 0 {
        let _ = write!(out, " [{port}]");
    }
    let mut edge = Some(start);
    while let Some(index) = edge.filter(|&index| !printed[index]) {
        out.push_str(if index == start { " -> " } else { "\n    -> " });
        let (node, port) = ir.edges[index].to;
        if port != 0 {
            let _ = write!(out, "[{port}] ");
        }
        out.push_str(&ir.nodes[node].name);
        printed[index] = true;
        edge = next[index];
    }
    out.push_str(";\n");
}

#[cfg(test)]
mod tests {
    use crate::testing::*;

    fn printed(text: &str) -> String {
        super::print_flat(&graph(text))
    }

    #[test]
    fn declarations_come_first_and_chains_are_maximal() {
        assert_eq!(
            printed(
                "require(x); a :: Idle( 1,2 ) -> n :: Null -> d :: Discard; a [1] -> e :: Idle [2] -> [3] e"
            ),
            "require(package \"x\");\n\na :: Idle( 1,2 );\nn :: Null;\nd :: Discard;\ne :: Idle;\n\n\
             a -> n\n    -> d;\na [1] -> e;\ne [2] -> [3] e;\n"
        );
    }

    #[test]
    fn a_chain_goes_on_into_an_input_0_if_it_can() {
        assert_eq!(
            printed("a :: Idle; b :: Idle; c :: Idle; a -> b; b -> [1] c; b -> d :: Discard"),
            "a :: Idle;\nb :: Idle;\nc :: Idle;\nd :: Discard;\n\na -> b\n    -> d;\nb -> [1] c;\n"
        );
    }

    #[test]
    fn cycles_are_printed_once() {
        let found = printed("a :: Null; b :: Null; a -> b -> a");
        assert_eq!(found, "a :: Null;\nb :: Null;\n\nb -> a\n    -> b;\n");
        assert_eq!(printed("a :: Null; a -> a"), "a :: Null;\n\na -> a;\n");
        assert_eq!(printed(""), "");
    }
}
