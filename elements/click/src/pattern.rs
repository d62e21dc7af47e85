//! Patterns over packet bytes: expressions, the decision programs made of them, and the languages they are
//! written in. Classifier, IPClassifier and IPFilter are thin elements over this module.
//!
//! A text becomes an [`Expr`] (by [`clauses`] or [`ip`]); a list of expressions with an output each becomes a
//! [`Program`]: a graph of steps, each of which loads one 32-bit word, masks and compares it, and goes on to
//! one of two later steps or to an output. Every test is a total function of the packet, also of one that is
//! too short, so expressions can be reordered and merged freely.

mod arguments;
pub(crate) mod clauses;
mod compile;
mod expr;
mod facts;
mod headers;
pub(crate) mod ip;
mod listing;
mod program;
mod sorter;

pub(crate) use arguments::{pattern_count_error, read_all};
pub(crate) use expr::Expr;
pub(crate) use headers::Headers;
pub(crate) use program::Program;
pub(crate) use sorter::Sorter;

#[cfg(test)]
mod tests;
