//! Configuration text to intermediate representation and back, with checks and diagnostics.
//!
//! Text is lexed and parsed into a tree, which never fails; the tree is elaborated into an [`Ir`] of
//! nodes and edges; the Ir is checked and printed. What the language must know of element classes
//! comes through [`ClassLookup`]: this crate names no element and no engine.

#![forbid(unsafe_code)]

pub mod args;
mod check;
mod class;
mod diagnostic;
mod dot;
mod elaborate;
pub mod flow;
mod format;
mod ir;
mod lexer;
mod parser;
pub mod passes;
mod print;
mod printable;
mod source;
mod tree;
pub mod variables;

pub use check::{Mode, Processing, check};
pub use class::{ClassInfo, ClassLookup};
pub use diagnostic::{Diagnostic, Severity};
pub use dot::dot;
pub use elaborate::{Library, Options, compile, elaborate};
pub use format::format;
pub use ir::{Edge, Ir, Node};
pub use lexer::Dialect;
pub use parser::parse;
pub use print::print_flat;
pub use printable::printable;
pub use source::{FileId, Sources, Span};
pub use tree::Tree;

#[cfg(test)]
mod random;
#[cfg(test)]
mod testing;
