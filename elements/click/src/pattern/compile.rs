//! Compiles expressions to a program.
//!
//! Steps are created from the last to the first: the targets of an expression exist before it does, so a
//! step's targets always have smaller numbers than the step, and equal steps are shared. Then each edge is
//! redirected past tests that are settled by the facts known on it, and tests of the same word that all
//! must hold are merged.
use super::expr::{Base, Expr, Relation, Test};
use super::facts::Facts;
use std::collections::HashMap;

/// The target of a step.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum Target {
    Step(usize),
    Output(usize),
    Drop,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) struct Node {
    pub(crate) test: Test,
    pub(crate) yes: Target,
    pub(crate) no: Target,
}

impl Node {
    fn branch_for(&self, answer: bool) -> Target {
        if answer { self.yes } else { self.no }
    }
}

/// A program's graph: steps with smaller numbers are later ones.
#[derive(Default)]
pub(super) struct Decisions {
    pub(crate) nodes: Vec<Node>,
    known: HashMap<Node, usize>,
    /// Whether to merge tests of one word that all must hold.
    merge: bool,
}

/// The graph that sends each packet to the target of the first pattern that it matches, and its first step.
pub(super) fn compile_patterns(patterns: Vec<(Expr, Target)>) -> (Decisions, Target) {
    let mut decisions = Decisions::default();
    let mut start = Target::Drop;
    for (expr, target) in patterns.into_iter().rev() {
        start = decisions.generate_steps(&sort_expr(expr), target, start);
    }
    // A second round rarely finds more; the third removes tests that merging has made redundant.
    for merge in [false, false, true] {
        (decisions, start) = decisions.prune_steps(start, merge);
    }
    decisions.prune_steps(start, true)
}

/// Sorts operands where the order is free, so that similar patterns share steps and tests of
/// one word are adjacent.
fn sort_expr(expr: Expr) -> Expr {
    let sort = |parts: Vec<Expr>| {
        let mut parts: Vec<Expr> = parts.into_iter().map(sort_expr).collect();
        parts.sort_by_key(expr_rank);
        parts
    };
    match expr {
        Expr::And(parts) => {
            Expr::And(sort(flatten_parts(parts, |e| if let Expr::And(p) = e { Ok(p) } else { Err(e) })))
        }
        Expr::Or(parts) => {
            Expr::Or(sort(flatten_parts(parts, |e| if let Expr::Or(p) = e { Ok(p) } else { Err(e) })))
        }
        Expr::Not(inner) => sort_expr(*inner).negated(),
        Expr::If(parts) => Expr::If(Box::new((*parts).map(sort_expr))),
        Expr::Const(_) | Expr::Test(_) => expr,
    }
}

/// Flattens inner lists of the same operator into the outer one.
fn flatten_parts(parts: Vec<Expr>, inner: fn(Expr) -> Result<Vec<Expr>, Expr>) -> Vec<Expr> {
    parts
        .into_iter()
        .flat_map(|part| inner(part).map_or_else(|e| vec![e], |parts| flatten_parts(parts, inner)))
        .collect()
}

/// Whether it is more than a test; else base, offset, relation, mask and value of the test.
type Rank = (bool, Option<(Base, u32, Relation, u32, u32)>);

/// Single tests first, by offset; the IP protocol, which most patterns test, before the tests
/// that depend on it.
fn expr_rank(expr: &Expr) -> Rank {
    let Expr::Test(test) = expr else { return (true, None) };
    let protocol_word = test.base == Base::Network && test.offset == 8;
    let place = if protocol_word { 3 } else { u32::from(test.offset) };
    (false, Some((test.base, place, test.relation, test.mask, test.value)))
}

impl Decisions {
    fn generate_steps(&mut self, expr: &Expr, yes: Target, no: Target) -> Target {
        match expr {
            Expr::Const(answer) => {
                if *answer {
                    yes
                } else {
                    no
                }
            }
            Expr::Test(test) => self.add_node(Node { test: *test, yes, no }),
            Expr::Not(inner) => self.generate_steps(inner, no, yes),
            Expr::And(parts) => {
                parts.iter().rev().fold(yes, |next, part| self.generate_steps(part, next, no))
            }
            Expr::Or(parts) => parts.iter().rev().fold(no, |next, part| self.generate_steps(part, yes, next)),
            Expr::If(parts) => {
                let then = self.generate_steps(&parts[1], yes, no);
                let otherwise = self.generate_steps(&parts[2], yes, no);
                self.generate_steps(&parts[0], then, otherwise)
            }
        }
    }

    /// The step that does this: an existing one if there is one, none if both answers have the same target.
    fn add_node(&mut self, node: Node) -> Target {
        if node.yes == node.no {
            return node.yes;
        }
        if let Some(node) = self.merge_nodes(node) {
            return self.add_node(node);
        }
        let number = *self.known.entry(node).or_insert_with(|| {
            self.nodes.push(node);
            self.nodes.len() - 1
        });
        Target::Step(number)
    }

    /// Merges this step and the one that follows when it holds, if both test the same word and have the
    /// same target on failure.
    fn merge_nodes(&self, node: Node) -> Option<Node> {
        let Target::Step(next) = node.yes else { return None };
        let next = self.nodes[next];
        let (a, b) = (node.test, next.test);
        let alike = |test: &Test| test.relation == Relation::Equal && !test.short;
        let same_word = (a.base, a.offset) == (b.base, b.offset);
        let agree = (a.value ^ b.value) & a.mask & b.mask == 0;
        if !self.merge || node.no != next.no || !alike(&a) || !alike(&b) || !same_word || !agree {
            return None;
        }
        let test = Test::equal(a.base, a.offset, a.value | b.value, a.mask | b.mask);
        Some(Node { test, ..next })
    }

    /// The same program without the steps that known facts make redundant.
    fn prune_steps(mut self, start: Target, merge: bool) -> (Decisions, Target) {
        let Target::Step(first) = start else { return (Decisions::default(), start) };
        let mut known: Vec<Option<Facts>> = vec![None; self.nodes.len()];
        known[first] = Some(Facts::default());
        for at in (0..=first).rev() {
            // All edges into a step come from greater numbers, so the facts known here are complete.
            let Some(facts) = known[at].take() else { continue };
            for answer in [true, false] {
                let facts = facts.with_fact(self.nodes[at].test, answer);
                let target = self.follow_facts(self.nodes[at].branch_for(answer), &facts);
                *(if answer { &mut self.nodes[at].yes } else { &mut self.nodes[at].no }) = target;
                if let Target::Step(next) = target {
                    known[next] =
                        Some(known[next].take().map_or_else(|| facts.clone(), |k| k.common_facts(&facts)));
                }
            }
        }
        self.rebuild_reachable(start, merge)
    }

    /// The target of a packet with these facts, past all steps that they settle.
    fn follow_facts(&self, mut target: Target, facts: &Facts) -> Target {
        while let Target::Step(next) = target
            && let Some(answer) = facts.decide_test(&self.nodes[next].test)
        {
            target = self.nodes[next].branch_for(answer);
        }
        target
    }

    /// The steps that can be reached, equal ones joined.
    fn rebuild_reachable(&self, start: Target, merge: bool) -> (Decisions, Target) {
        let reached = self.reachable_steps(start);
        let mut new = Decisions { merge, ..Decisions::default() };
        let mut places: Vec<Target> = Vec::with_capacity(self.nodes.len());
        let place = |places: &[Target], target| if let Target::Step(n) = target { places[n] } else { target };
        for (node, reached) in self.nodes.iter().zip(reached) {
            let (yes, no) = (place(&places, node.yes), place(&places, node.no));
            places.push(if reached { new.add_node(Node { yes, no, ..*node }) } else { Target::Drop });
        }
        let start = place(&places, start);
        (new, start)
    }

    /// The steps that a packet can reach.
    pub(crate) fn reachable_steps(&self, start: Target) -> Vec<bool> {
        let mut reached = vec![false; self.nodes.len()];
        if let Target::Step(first) = start {
            reached[first] = true;
        }
        for at in (0..self.nodes.len()).rev() {
            if !reached[at] {
                continue;
            }
            for target in [self.nodes[at].yes, self.nodes[at].no] {
                if let Target::Step(next) = target {
                    reached[next] = true;
                }
            }
        }
        reached
    }
}
