//! Trees to an [`Ir`]: names are resolved, compounds and groups expanded, variables replaced.
//!
//! Two steps, as in Click, because they decide names and order. First the statements are walked in
//! order; each compound becomes a prototype and the file itself the outermost one. Then the elements
//! of the file are expanded in order: an element of a compound class becomes a *tunnel*, a stand-in
//! without substance whose outer ports are joined to the `input` and `output` of its contents, and
//! the contents are added behind the existing elements. Finally connections are routed through the
//! tunnels, and the tunnels vanish.

mod chain;
mod class;
mod connect;
mod expand;
mod prototype;
mod statement;
mod suggest;
mod tunnel;

use std::collections::HashSet;

use crate::class::ClassLookup;
use crate::diagnostic::Diagnostic;
use crate::ir::Ir;
use crate::lexer::Dialect;
use crate::parser::parse;
use crate::source::{FileId, Sources, Span};
use crate::tree::Tree;

use class::ClassTable;
use prototype::Prototype;
use tunnel::Tunnels;

/// Finds the file of a `require(library "name")`: given the name of the file that asks and the name it
/// asks for, gives the name of the file found and its text.
pub type Library<'a> = dyn Fn(&str, &str) -> Option<(String, String)> + 'a;

/// How a configuration is read.
#[derive(Clone, Default)]
pub struct Options<'a> {
    /// The spelling of the language.
    pub dialect: Dialect,
    /// Global variables that override what the file defines at its top level.
    pub variables: Vec<(String, String)>,
    /// Where libraries come from; `None` has no libraries.
    pub library: Option<&'a Library<'a>>,
}

/// Parses and elaborates a file.
pub fn compile(
    sources: &mut Sources,
    file: FileId,
    options: &Options<'_>,
    classes: &dyn ClassLookup,
) -> (Ir, Vec<Diagnostic>) {
    let (tree, mut diagnostics) = parse(sources, file, options.dialect);
    let (ir, more) = elaborate(&tree, sources, options, classes);
    diagnostics.extend(more);
    (ir, in_order(diagnostics))
}

/// Orders messages by place, since parsing and elaboration each find their own; same messages are one.
fn in_order(mut diagnostics: Vec<Diagnostic>) -> Vec<Diagnostic> {
    diagnostics.sort_by_key(|diagnostic| (diagnostic.span.file, diagnostic.span.start));
    diagnostics.dedup();
    diagnostics
}

/// Turns a tree into a graph; libraries it requires are added to `sources`.
pub fn elaborate(
    tree: &Tree,
    sources: &mut Sources,
    options: &Options<'_>,
    classes: &dyn ClassLookup,
) -> (Ir, Vec<Diagnostic>) {
    let mut elaborator = Elaborator {
        sources,
        options,
        classes: ClassTable::new(classes),
        lookup: classes,
        current: Prototype::file(tree.end),
        tunnels: Tunnels::default(),
        diagnostics: Vec::new(),
        suspects: tree.suspects.clone(),
        undeclared: HashSet::new(),
        libraries: Vec::new(),
        requirements: Vec::new(),
        end: tree.end,
        after_output: true,
        expanded_text: 0,
    };
    elaborator.elaborate_statements(&tree.statements);
    elaborator.expand_all();
    let ir = elaborator.build_graph();
    (ir, elaborator.diagnostics)
}

/// What is known while walking the statements and expanding.
struct Elaborator<'a, 'o> {
    sources: &'a mut Sources,
    options: &'a Options<'o>,
    classes: ClassTable<'a>,
    lookup: &'a dyn ClassLookup,
    /// The compound being read; the file itself when in none.
    current: Prototype,
    tunnels: Tunnels,
    diagnostics: Vec<Diagnostic>,
    suspects: HashSet<String>,
    /// Names reported as undeclared, so that each is reported once.
    undeclared: HashSet<String>,
    libraries: Vec<String>,
    requirements: Vec<String>,
    /// Where the main file ends, which is where Click places errors of expansion.
    end: Span,
    /// True if the last chain of this block ended at `output`, or there was none.
    after_output: bool,
    /// Bytes of configuration strings that expansion has made.
    expanded_text: usize,
}

impl Elaborator<'_, '_> {
    fn report(&mut self, diagnostic: Diagnostic) {
        self.diagnostics.push(diagnostic);
    }
}

#[cfg(test)]
mod tests;
