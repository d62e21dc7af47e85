//! Dead code: elements that no packet reaches or that lead nowhere.

use crate::class::ClassLookup;
use crate::flow;
use crate::ir::{Edge, Ir};

/// Drops elements from which no packet comes or to which none goes.
///
/// A packet is born at an output that no input of its element flows to, unless `empty` says that
/// the class makes no packets (Idle); it ends at an input without flow to an output. An element goes
/// if it has ports and no packet can pass any; a connection goes if no packet can come by it. What an
/// element without ports does is its own affair, so it stays. Nothing is dropped that would leave a
/// port of a remaining element unused.
pub fn dead(ir: &mut Ir, classes: &dyn ClassLookup, empty: &dyn Fn(&str) -> bool) {
    let mut alive = vec![false; ir.edges.len()];
    let mut changed = true;
    while std::mem::take(&mut changed) {
        for index in 0..ir.edges.len() {
            if !alive[index] && (is_source(ir, classes, empty, &ir.edges[index]) || is_fed(ir, classes, &alive, index)) {
                alive[index] = true;
                changed = true;
            }
        }
    }
    let keep: Vec<bool> = (0..ir.nodes.len()).map(|node| stays(ir, &alive, node)).collect();
    remove(ir, &keep);
}

/// True if the element makes packets of its own at the start of this edge.
fn is_source(ir: &Ir, classes: &dyn ClassLookup, empty: &dyn Fn(&str) -> bool, edge: &Edge) -> bool {
    let (node, output) = edge.from;
    let Some(class) = classes.class(&ir.nodes[node].class) else { return true };
    if empty(class.name) {
        return false;
    }
    let inputs = ir.edges.iter().filter(|other| other.to.0 == node).map(|other| other.to.1);
    !inputs.into_iter().any(|input| flow::travels(class.flow, input, output))
}

/// True if packets come to the start of this edge from an edge that has some.
fn is_fed(ir: &Ir, classes: &dyn ClassLookup, alive: &[bool], index: usize) -> bool {
    let (node, output) = ir.edges[index].from;
    let Some(class) = classes.class(&ir.nodes[node].class) else { return true };
    let into = ir.edges.iter().zip(alive).filter(|(edge, alive)| edge.to.0 == node && **alive);
    into.into_iter().any(|(edge, _)| flow::travels(class.flow, edge.to.1, output))
}

/// True if a packet passes the element, or it lives by itself.
fn stays(ir: &Ir, alive: &[bool], node: usize) -> bool {
    let mut own = ir.edges.iter().zip(alive).filter(|(edge, _)| edge.from.0 == node || edge.to.0 == node).peekable();
    own.peek().is_none() || own.any(|(_, alive)| *alive) || touches_living(ir, alive, node)
}

/// True if an element that stays needs this one at one of its ports.
fn touches_living(ir: &Ir, alive: &[bool], node: usize) -> bool {
    let lives = |other: usize| {
        ir.edges.iter().zip(alive).any(|(edge, alive)| *alive && (edge.from.0 == other || edge.to.0 == other))
    };
    let neighbors = ir.edges.iter().filter_map(|edge| match (edge.from.0 == node, edge.to.0 == node) {
        (true, false) => Some((edge.to, false)),
        (false, true) => Some((edge.from, true)),
        _ => None,
    });
    neighbors.into_iter().any(|(port, is_output)| lives(port.0) && !used_by_living(ir, alive, port, is_output))
}

fn used_by_living(ir: &Ir, alive: &[bool], port: (usize, usize), is_output: bool) -> bool {
    let end = |edge: &Edge| if is_output { edge.from } else { edge.to };
    ir.edges.iter().zip(alive).any(|(edge, alive)| *alive && end(edge) == port)
}

fn remove(ir: &mut Ir, keep: &[bool]) {
    let mut index = vec![usize::MAX; keep.len()];
    let mut next = 0;
    for (node, keep) in keep.iter().enumerate().filter(|(_, keep)| **keep) {
        debug_assert!(keep);
        index[node] = next;
        next += 1;
    }
    let mut flags = keep.iter();
    ir.nodes.retain(|_| flags.next().copied().unwrap_or(true));
    ir.edges.retain(|edge| keep[edge.from.0] && keep[edge.to.0]);
    for edge in &mut ir.edges {
        (edge.from.0, edge.to.0) = (index[edge.from.0], index[edge.to.0]);
    }
}

#[cfg(test)]
mod tests {
    use crate::testing::*;

    fn without_dead(text: &str) -> String {
        let mut ir = graph(text);
        super::dead(&mut ir, &Classes, &|class| class == "Idle");
        let left = crate::print_flat(&ir);
        let (_, errors) = crate::check(&ir, &Classes);
        assert!(errors.is_empty(), "{errors:?}");
        left.replace("\n\n", "\n").trim_end().replace("\n    ", " ").replace('\n', " ")
    }

    #[test]
    fn what_no_packet_reaches_is_dropped() {
        assert_eq!(
            without_dead("Idle -> Null -> Discard; s :: InfiniteSource -> d :: Discard"),
            "s :: InfiniteSource; d :: Discard; s -> d;"
        );
    }

    #[test]
    fn an_idle_that_fills_a_port_of_a_living_element_stays() {
        let text = "s :: InfiniteSource; q :: ARPQuerier(x); s -> q -> d :: Discard; i :: Idle; i -> [1] q";
        assert_eq!(
            without_dead(text),
            "s :: InfiniteSource; q :: ARPQuerier(x); d :: Discard; i :: Idle; s -> q -> d; i -> [1] q;"
        );
    }

    #[test]
    fn elements_without_ports_stay() {
        assert_eq!(without_dead("x :: Script(print)"), "x :: Script(print);");
    }
}
