//! What a file says, before names mean anything.

use std::collections::HashSet;

use crate::lexer::RawConfig;
use crate::source::Span;

/// Syntax tree of one parsed file.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Tree {
    pub(crate) statements: Vec<Statement>,
    /// Names in text that did not parse: they are not reported as undeclared.
    pub(crate) suspects: HashSet<String>,
    /// The end of the text.
    pub(crate) end: Span,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Statement {
    Chain(Chain),
    Class(ClassDefinition),
    Require(RawConfig),
    Define(RawConfig),
}

/// `a, b -> c -> d`
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Chain {
    pub(crate) links: Vec<Link>,
    /// True if an error cut the chain short.
    pub(crate) broken: bool,
}

/// The elements between two arrows, and the arrow before them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Link {
    pub(crate) arrow: Option<Arrow>,
    pub(crate) elements: Vec<Element>,
    /// The token after the link, where Click places what is wrong with the connection.
    pub(crate) after: Span,
    /// True if an arrow follows.
    pub(crate) continues: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Arrow {
    pub(crate) double: bool,
    pub(crate) span: Span,
}

/// `[1] name :: Class (config) [2]`
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Element {
    pub(crate) inputs: Ports,
    pub(crate) what: What,
    pub(crate) class: Option<DeclaredClass>,
    pub(crate) config: Option<RawConfig>,
    pub(crate) outputs: Ports,
    /// The name, or what stands in its place.
    pub(crate) span: Span,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum What {
    Name(String),
    Compound(Compound),
    Group(Group),
    /// Nothing: `input` before the first arrow, `output` behind the last.
    Implied,
}

/// What follows `::` in a declaration.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum DeclaredClass {
    Name(String, Span),
    Compound(Compound),
    Missing,
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Ports {
    pub(crate) numbers: Vec<usize>,
    pub(crate) expandable: bool,
    pub(crate) span: Option<Span>,
}

impl Ports {
    pub(crate) fn is_empty(&self) -> bool {
        self.numbers.is_empty()
    }
}

/// A parenthesized group: `( … )`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Group {
    pub(crate) statements: Vec<Statement>,
    pub(crate) close: Span,
}

/// `{ … || … || ... }`
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Compound {
    pub(crate) alternatives: Vec<Alternative>,
    /// The `...` if there is one.
    pub(crate) extension: Option<Span>,
    pub(crate) close: Span,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Alternative {
    pub(crate) formals: Vec<Formal>,
    pub(crate) statements: Vec<Statement>,
    /// The `{` or `||` before it.
    pub(crate) open: Span,
}

/// A formal parameter: `KEYWORD $name`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Formal {
    /// Empty for a positional one.
    pub(crate) keyword: String,
    pub(crate) name: String,
    pub(crate) span: Span,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct ClassDefinition {
    pub(crate) name: String,
    pub(crate) span: Span,
    pub(crate) body: ClassBody,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum ClassBody {
    Compound(Compound),
    Synonym(String, Span),
    Missing,
}
