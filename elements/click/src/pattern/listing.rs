//! Programs as people read them.
use super::compile::{Decisions, Node, Target};
use super::expr::{Base, Relation, Test};
use std::fmt::Write;

/// One line for each step, in the order of execution: its number, `offset/value%mask` and its targets.
/// Offsets from the network header on start at 256, those from the transport header on at 512.
pub(super) fn list_program(decisions: &Decisions, start: Target) -> String {
    let reached = decisions.reachable_steps(start);
    let steps: Vec<usize> = (0..decisions.nodes.len()).rev().filter(|n| reached[*n]).collect();
    let mut numbers = vec![0; decisions.nodes.len()];
    for (number, n) in steps.iter().enumerate() {
        numbers[*n] = number;
    }
    let name = |target| match target {
        Target::Drop => "[X]".to_string(),
        Target::Output(n) => format!("[{n}]"),
        Target::Step(n) => format!("step {}", numbers[n]),
    };
    let mut text = String::new();
    for (number, n) in steps.iter().enumerate() {
        let Node { test, yes, no } = decisions.nodes[*n];
        let _ = write!(text, "{number:2} {}  yes->{}  no->{}", format_comparison(&test), name(yes), name(no));
        text.push_str(if test.short { "  short->yes\n" } else { "\n" });
    }
    if steps.is_empty() {
        let _ = writeln!(text, "all->{}", name(start));
    }
    let ends =
        steps.iter().map(|n| &decisions.nodes[*n].test).map(|test| listing_offset(test) + test.width());
    let _ = writeln!(text, "safe length {}\nalignment offset 0", ends.max().unwrap_or(0));
    text
}

fn format_comparison(test: &Test) -> String {
    let relation = if test.relation == Relation::Greater { ">" } else { "" };
    format!("{:3}/{relation}{:08x}%{:08x}", listing_offset(test), test.value, test.mask)
}

/// The offset by which a listing distinguishes the headers.
fn listing_offset(test: &Test) -> usize {
    let base = match test.base {
        Base::Data => 0,
        Base::Mac => 2,
        Base::Network => 256,
        Base::Transport => 512,
    };
    base + usize::from(test.offset)
}
