//! Expressions to a program.
//!
//! Steps are made from the last to the first: what an expression leads to exists before it does, so a step's targets
//! always have smaller numbers than the step, and equal steps are one. Then each way into a step is followed as far as
//! what is known on that way settles the tests it meets, and tests of the same word that all must hold become one.
use super::expr::{Base, Expr, Relation, Test};
use super::facts::Facts;
use std::collections::HashMap;

/// Where a step leads.
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
    fn on(&self, answer: bool) -> Target {
        if answer { self.yes } else { self.no }
    }
}

/// A program's graph: steps with smaller numbers are later ones.
#[derive(Default)]
pub(super) struct Decisions {
    pub(crate) nodes: Vec<Node>,
    known: HashMap<Node, usize>,
    /// Whether tests of one word that all must hold are to become one.
    merge: bool,
}

/// The graph that sends each packet where the first pattern that it matches says, and its first step.
pub(super) fn compile(patterns: Vec<(Expr, Target)>) -> (Decisions, Target) {
    let mut decisions = Decisions::default();
    let mut start = Target::Drop;
    for (expr, target) in patterns.into_iter().rev() {
        start = decisions.generate(&ordered(expr), target, start);
    }
    // Rarely does a second round find more; the third is for tests that merging has made redundant.
    for merge in [false, false, true] {
        (decisions, start) = decisions.pruned(start, merge);
    }
    decisions.pruned(start, true)
}

/// Sorts what may be sorted, so that patterns which begin alike share steps and tests of one word are neighbors.
fn ordered(expr: Expr) -> Expr {
    let sort = |parts: Vec<Expr>| {
        let mut parts: Vec<Expr> = parts.into_iter().map(ordered).collect();
        parts.sort_by_key(rank);
        parts
    };
    match expr {
        Expr::And(parts) => {
            Expr::And(sort(flat(parts, |e| if let Expr::And(p) = e { Ok(p) } else { Err(e) })))
        }
        Expr::Or(parts) => Expr::Or(sort(flat(parts, |e| if let Expr::Or(p) = e { Ok(p) } else { Err(e) }))),
        Expr::Not(inner) => ordered(*inner).negated(),
        Expr::If(parts) => Expr::If(Box::new((*parts).map(ordered))),
        Expr::Const(_) | Expr::Test(_) => expr,
    }
}

/// Takes inner lists of the same operator into the outer one.
fn flat(parts: Vec<Expr>, inner: fn(Expr) -> Result<Vec<Expr>, Expr>) -> Vec<Expr> {
    parts
        .into_iter()
        .flat_map(|part| inner(part).map_or_else(|e| vec![e], |parts| flat(parts, inner)))
        .collect()
}

/// Whether it is more than a test; else base, place, relation, mask and value of the test.
type Rank = (bool, Option<(Base, u32, Relation, u32, u32)>);

/// Single tests first, by place; the IP protocol, which most patterns ask for, before what follows it.
fn rank(expr: &Expr) -> Rank {
    let Expr::Test(test) = expr else { return (true, None) };
    let protocol_word = test.base == Base::Network && test.offset == 8;
    let place = if protocol_word { 3 } else { u32::from(test.offset) };
    (false, Some((test.base, place, test.relation, test.mask, test.value)))
}

impl Decisions {
    fn generate(&mut self, expr: &Expr, yes: Target, no: Target) -> Target {
        match expr {
            Expr::Const(answer) => {
                if *answer {
                    yes
                } else {
                    no
                }
            }
            Expr::Test(test) => self.node(Node { test: *test, yes, no }),
            Expr::Not(inner) => self.generate(inner, no, yes),
            Expr::And(parts) => parts.iter().rev().fold(yes, |next, part| self.generate(part, next, no)),
            Expr::Or(parts) => parts.iter().rev().fold(no, |next, part| self.generate(part, yes, next)),
            Expr::If(parts) => {
                let then = self.generate(&parts[1], yes, no);
                let otherwise = self.generate(&parts[2], yes, no);
                self.generate(&parts[0], then, otherwise)
            }
        }
    }

    /// The step that does this: an existing one if there is one, none if both answers lead to the same place.
    fn node(&mut self, node: Node) -> Target {
        if node.yes == node.no {
            return node.yes;
        }
        if let Some(node) = self.merged(node) {
            return self.node(node);
        }
        let number = *self.known.entry(node).or_insert_with(|| {
            self.nodes.push(node);
            self.nodes.len() - 1
        });
        Target::Step(number)
    }

    /// This step and the one that follows when it holds in one, where both look at the same word and fail alike.
    fn merged(&self, node: Node) -> Option<Node> {
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

    /// The same program without the steps that what is known on the way makes needless.
    fn pruned(mut self, start: Target, merge: bool) -> (Decisions, Target) {
        let Target::Step(first) = start else { return (Decisions::default(), start) };
        let mut known: Vec<Option<Facts>> = vec![None; self.nodes.len()];
        known[first] = Some(Facts::default());
        for at in (0..=first).rev() {
            // A step's ways in all come from greater numbers: what is known here is complete.
            let Some(facts) = known[at].take() else { continue };
            for answer in [true, false] {
                let facts = facts.with(self.nodes[at].test, answer);
                let target = self.follow(self.nodes[at].on(answer), &facts);
                *(if answer { &mut self.nodes[at].yes } else { &mut self.nodes[at].no }) = target;
                if let Target::Step(next) = target {
                    known[next] =
                        Some(known[next].take().map_or_else(|| facts.clone(), |k| k.common(&facts)));
                }
            }
        }
        self.rebuilt(start, merge)
    }

    /// Where a packet of which this is known gets without another look at it.
    fn follow(&self, mut target: Target, facts: &Facts) -> Target {
        while let Target::Step(next) = target
            && let Some(answer) = facts.decide(&self.nodes[next].test)
        {
            target = self.nodes[next].on(answer);
        }
        target
    }

    /// The steps that can be reached, equal ones joined.
    fn rebuilt(&self, start: Target, merge: bool) -> (Decisions, Target) {
        let reached = self.reached(start);
        let mut new = Decisions { merge, ..Decisions::default() };
        let mut places: Vec<Target> = Vec::with_capacity(self.nodes.len());
        let place = |places: &[Target], target| if let Target::Step(n) = target { places[n] } else { target };
        for (node, reached) in self.nodes.iter().zip(reached) {
            let (yes, no) = (place(&places, node.yes), place(&places, node.no));
            places.push(if reached { new.node(Node { yes, no, ..*node }) } else { Target::Drop });
        }
        let start = place(&places, start);
        (new, start)
    }

    /// Which steps a packet can come to.
    pub(crate) fn reached(&self, start: Target) -> Vec<bool> {
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
