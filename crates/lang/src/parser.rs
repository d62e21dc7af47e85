//! Tokens to a [`Tree`]. Parsing never fails: what is wrong becomes a diagnostic and the rest goes on.
//!
//! In dialect Click an error is skipped token by token, as Click does, so that the messages agree.
//! In ours one mistake is one message: the rest of a statement that does not parse is passed over and
//! the names in it are remembered as suspects.

mod element;
mod recover;

use crate::diagnostic::Diagnostic;
use crate::lexer::{Dialect, Kind, Lexer, RawConfig, Token};
use crate::source::{FileId, LineMark, Sources, Span};
use crate::tree::*;

/// Help about a broken class definition.
const CLASS_DEFINITION: &str = "write `elementclass Name { … }` or `elementclass Name Other`";

/// Compounds and groups nest no deeper than this.
const MAX_DEPTH: usize = 50;

/// Parses a file; also tells `sources` of the preprocessor lines found.
pub fn parse(sources: &mut Sources, file: FileId, dialect: Dialect) -> (Tree, Vec<Diagnostic>) {
    let parsed = parse_text(sources.text(file), file, dialect);
    sources.set_marks(file, parsed.marks);
    (parsed.tree, parsed.diagnostics)
}

/// All there is to know of a text.
pub(crate) struct Parsed {
    pub(crate) tree: Tree,
    pub(crate) diagnostics: Vec<Diagnostic>,
    pub(crate) marks: Vec<LineMark>,
    pub(crate) comments: Vec<Span>,
}

pub(crate) fn parse_text(text: &str, file: FileId, dialect: Dialect) -> Parsed {
    let mut parser = Parser::new(Lexer::new(text, file, dialect), dialect);
    let (statements, end) = parser.statements(Block::File);
    let end = parser.lexer.span(end);
    let Parser { lexer, suspects, .. } = parser;
    let Lexer { marks, diagnostics, comments, .. } = lexer;
    Parsed { tree: Tree { statements, suspects, end }, diagnostics, marks, comments }
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Block {
    File,
    Compound,
    Group,
}

struct Parser<'a> {
    lexer: Lexer<'a>,
    dialect: Dialect,
    depth: usize,
    suspects: std::collections::HashSet<String>,
    /// Set when the end of the text was reported as unexpected.
    end_reported: bool,
}

impl<'a> Parser<'a> {
    fn new(lexer: Lexer<'a>, dialect: Dialect) -> Parser<'a> {
        Parser { lexer, dialect, depth: 0, suspects: Default::default(), end_reported: false }
    }

    /// Statements up to the end of the block; gives the token that ended it.
    fn statements(&mut self, block: Block) -> (Vec<Statement>, Token) {
        let mut statements = Vec::new();
        loop {
            let token = self.lexer.next();
            match token.kind {
                Kind::End => return (statements, token),
                Kind::Byte(b';') => {}
                Kind::Byte(b'}') | Kind::DoubleBar if block == Block::Compound => return (statements, token),
                Kind::Byte(b')') if block == Block::Group => return (statements, token),
                Kind::Byte(b'}') | Kind::DoubleBar if block == Block::Group => {
                    self.syntax_error(token);
                    self.lexer.back_to(token);
                    return (statements, token);
                }
                _ => statements.extend(self.statement(token, block)),
            }
        }
    }

    fn statement(&mut self, token: Token, block: Block) -> Option<Statement> {
        match token.kind {
            Kind::Identifier | Kind::Arrow | Kind::DoubleArrow | Kind::Byte(b'[' | b'{' | b'(') => {
                self.lexer.back_to(token);
                Some(Statement::Chain(self.chain(block != Block::File)))
            }
            Kind::ElementClass => Some(Statement::Class(self.element_class(token))),
            Kind::Require => Some(Statement::Require(self.parenthesized()?)),
            Kind::Define => Some(Statement::Define(self.parenthesized()?)),
            _ => {
                self.syntax_error(token);
                self.skip_junk();
                None
            }
        }
    }

    fn parenthesized(&mut self) -> Option<RawConfig> {
        let Some(open) = self.lexer.accept(Kind::Byte(b'(')) else {
            self.expected("'('", None);
            return None;
        };
        Some(self.config(open))
    }

    /// The configuration string behind an opening parenthesis, and the closing one.
    fn config(&mut self, open: Token) -> RawConfig {
        let config = self.lexer.config();
        if self.lexer.accept(Kind::Byte(b')')).is_none() {
            self.expected("')'", Some(open));
            self.end_reported = true;
        }
        config
    }

    fn element_class(&mut self, keyword: Token) -> ClassDefinition {
        let (name, span) = match self.lexer.accept(Kind::Identifier) {
            Some(token) => (self.lexer.text(token).to_string(), self.lexer.span(token)),
            None => {
                let span = self.lexer.span(keyword);
                let error = Diagnostic::error("expected element type name", span);
                self.report(error.help(CLASS_DEFINITION));
                (String::new(), span)
            }
        };
        let token = self.lexer.next();
        let body = match token.kind {
            Kind::Byte(b'{') => ClassBody::Compound(self.compound(token)),
            Kind::Identifier => {
                ClassBody::Synonym(self.lexer.text(token).to_string(), self.lexer.span(token))
            }
            _ => {
                self.unexpected(token, CLASS_DEFINITION);
                ClassBody::Missing
            }
        };
        ClassDefinition { name, span, body }
    }

    /// `{ … }` from behind the brace.
    fn compound(&mut self, open: Token) -> Compound {
        let mut compound =
            Compound { alternatives: Vec::new(), extension: None, close: self.lexer.span(open) };
        if !self.deeper("compound element", open) {
            compound.alternatives.push(self.alternative_of(Vec::new(), Vec::new(), open));
            return compound;
        }
        let mut before = open;
        loop {
            if let Some(dots) = self.lexer.accept(Kind::Dots) {
                self.extension(&mut compound, dots);
                if self.lexer.accept(Kind::Byte(b'}')).is_some() {
                    break;
                }
            }
            let formals = self.formals();
            let (statements, end) = self.statements(Block::Compound);
            compound.alternatives.push(self.alternative_of(formals, statements, before));
            compound.close = self.lexer.span(end);
            match end.kind {
                Kind::DoubleBar => before = end,
                Kind::End => {
                    self.unclosed("'}'", open);
                    break;
                }
                _ => break,
            }
        }
        self.depth -= 1;
        compound
    }

    fn alternative_of(&self, formals: Vec<Formal>, statements: Vec<Statement>, open: Token) -> Alternative {
        Alternative { formals, statements, open: self.lexer.span(open) }
    }

    fn extension(&mut self, compound: &mut Compound, dots: Token) {
        let span = self.lexer.span(dots);
        compound.extension = Some(span);
        let next = self.lexer.next();
        self.lexer.back_to(next);
        if compound.alternatives.is_empty() || next.kind != Kind::Byte(b'}') {
            let error = Diagnostic::error("'...' should occur last, after one or more compounds", span);
            self.report(error.help("write `{ … || ... }`"));
        }
    }

    /// `KEYWORD $a, $b |`
    fn formals(&mut self) -> Vec<Formal> {
        let mut formals = Vec::new();
        loop {
            let first = self.lexer.next();
            let (keyword, variable) = match first.kind {
                Kind::Variable => (String::new(), first),
                Kind::Byte(b'|') => return formals,
                Kind::Identifier => match self.lexer.accept(Kind::Variable) {
                    Some(variable) => (self.lexer.text(first).to_string(), variable),
                    None => return self.end_formals(formals, first),
                },
                _ => return self.end_formals(formals, first),
            };
            let name = self.lexer.text(variable)[1..].to_string();
            formals.push(Formal { keyword, name, span: self.lexer.span(variable) });
            let separator = self.lexer.next();
            match separator.kind {
                Kind::Byte(b'|') => return formals,
                Kind::Byte(b',') => {}
                _ => {
                    let error = Diagnostic::error("expected ',' or '|'", self.lexer.span(separator));
                    self.report(error.help("end the parameters with `|`, as in `{ $a, $b | … }`"));
                    self.lexer.back_to(separator);
                    return formals;
                }
            }
        }
    }

    fn end_formals(&mut self, formals: Vec<Formal>, token: Token) -> Vec<Formal> {
        if !formals.is_empty() {
            let error = Diagnostic::error("expected variable", self.lexer.span(token));
            self.report(error.help("a parameter is `$name` or `KEYWORD $name`"));
        }
        self.lexer.back_to(token);
        formals
    }

    /// `( … )` from behind the parenthesis.
    fn group(&mut self, open: Token) -> Group {
        if !self.deeper("element group", open) {
            return Group { statements: Vec::new(), close: self.lexer.span(open) };
        }
        let (statements, end) = self.statements(Block::Group);
        if end.kind == Kind::End {
            self.unclosed("')'", open);
        }
        self.depth -= 1;
        Group { statements, close: self.lexer.span(end) }
    }

    /// Enters a compound or group unless it is nested too deeply; then its text is passed over.
    fn deeper(&mut self, what: &str, open: Token) -> bool {
        if self.depth + 1 < MAX_DEPTH {
            self.depth += 1;
            return true;
        }
        let message = format!("maximum {what} nesting depth exceeded");
        let help = format!("no more than {} levels are possible", MAX_DEPTH - 1);
        self.report(Diagnostic::error(message, self.lexer.span(open)).help(help));
        self.skip_nested();
        false
    }

    fn report(&mut self, diagnostic: Diagnostic) {
        self.lexer.diagnostics.push(diagnostic);
    }

    fn here(&self) -> Span {
        self.lexer.span(Token { kind: Kind::End, start: self.lexer.position(), end: self.lexer.position() })
    }
}

#[cfg(test)]
mod tests;
