//! Dead code: elements that no packet reaches or that lead nowhere.

use std::collections::{BTreeSet, HashSet};

use crate::class::ClassLookup;
use crate::flow;
use crate::ir::Ir;

/// Drops elements that no packet passes.
///
/// A packet is born at an output that no input of its element flows to, unless `empty` says of the
/// class that it makes none (Idle). Elements that no packet can reach are removed, except those without
/// connections, which act on their own, and those that fill the ports of what stays.
pub fn remove_dead(ir: &mut Ir, classes: &dyn ClassLookup, empty: &dyn Fn(&str) -> bool) {
    let alive = living_edges(ir, classes, empty);
    let mut keep = vec![true; ir.nodes.len()];
    for edge in &ir.edges {
        (keep[edge.from.0], keep[edge.to.0]) = (false, false);
    }
    for (edge, _) in ir.edges.iter().zip(&alive).filter(|(_, alive)| **alive) {
        (keep[edge.from.0], keep[edge.to.0]) = (true, true);
    }
    retain_fillers(ir, &mut keep);
    remove(ir, &keep);
}

/// Which edges a packet can come by.
fn living_edges(ir: &Ir, classes: &dyn ClassLookup, empty: &dyn Fn(&str) -> bool) -> Vec<bool> {
    let mut inputs: Vec<BTreeSet<usize>> = vec![BTreeSet::new(); ir.nodes.len()];
    for edge in &ir.edges {
        inputs[edge.to.0].insert(edge.to.1);
    }
    let mut fed: Vec<BTreeSet<usize>> = vec![BTreeSet::new(); ir.nodes.len()];
    let mut alive = vec![false; ir.edges.len()];
    let mut changed = true;
    while std::mem::take(&mut changed) {
        for (edge, alive) in ir.edges.iter().zip(&mut alive).filter(|(_, alive)| !**alive) {
            let (node, output) = edge.from;
            let class = classes.find_class(&ir.nodes[node].class);
            let lives = class.is_none_or(|class| {
                let flows = |input: &usize| flow::flows_between(class.flow, *input, output);
                let born = !empty(class.name) && !inputs[node].iter().any(flows);
                born || fed[node].iter().any(flows)
            });
            if lives {
                *alive = true;
                changed = true;
                fed[edge.to.0].insert(edge.to.1);
            }
        }
    }
    alive
}

/// Keeps what is connected to a port that would be left unused.
fn retain_fillers(ir: &Ir, keep: &mut [bool]) {
    loop {
        let inside = |keep: &[bool], edge: &crate::Edge| keep[edge.from.0] && keep[edge.to.0];
        let used: HashSet<(bool, (usize, usize))> = ir
            .edges
            .iter()
            .filter(|edge| inside(keep, edge))
            .flat_map(|edge| [(true, edge.from), (false, edge.to)])
            .collect();
        let mut changed = false;
        for edge in &ir.edges {
            for (stays, goes, port) in [(edge.from, edge.to, true), (edge.to, edge.from, false)] {
                if keep[stays.0] && !keep[goes.0] && !used.contains(&(port, stays)) {
                    keep[goes.0] = true;
                    changed = true;
                }
            }
        }
        if !changed {
            return;
        }
    }
}

fn remove(ir: &mut Ir, keep: &[bool]) {
    let mut next = 0..;
    let index: Vec<Option<usize>> = keep.iter().map(|keep| keep.then(|| next.next()).flatten()).collect();
    let mut flags = keep.iter();
    ir.nodes.retain(|_| flags.next() == Some(&true));
    ir.edges.retain_mut(|edge| {
        let (Some(from), Some(to)) = (index[edge.from.0], index[edge.to.0]) else { return false };
        (edge.from.0, edge.to.0) = (from, to);
        true
    });
}

#[cfg(test)]
mod tests {
    use crate::testing::*;

    fn without_dead(text: &str) -> String {
        let mut ir = graph(text);
        super::remove_dead(&mut ir, &Classes, &|class| class == "Idle");
        let left = crate::print_flat(&ir);
        let (_, errors) = crate::check(&ir, &Classes);
        assert!(errors.is_empty(), "{errors:?}");
        left.replace("\n\n", "\n").trim_end().replace("\n    ", " ").replace('\n', " ")
    }

    #[test]
    fn what_no_packet_reaches_is_dropped() {
        let found = without_dead("Idle -> Null -> Discard; s :: InfiniteSource -> d :: Discard");
        assert_eq!(found, "s :: InfiniteSource; d :: Discard; s -> d;");
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
    fn whatever_fills_a_port_of_what_stays_stays_whole() {
        let text =
            "s :: InfiniteSource; q :: ARPQuerier(x); s -> q -> d :: Discard; Idle -> n :: Null; n -> [1] q";
        assert_eq!(without_dead(text).matches("::").count(), 5);
    }

    #[test]
    fn elements_without_ports_stay() {
        assert_eq!(without_dead("x :: Script(print)"), "x :: Script(print);");
    }
}
