//! Tokens to a [`Tree`]. Parsing never fails: what is wrong becomes a diagnostic and the rest goes on.
//!
//! In dialect Click an error is skipped token by token, as Click does, so that the messages agree.
//! In ours one mistake is one message: the rest of a statement that does not parse is passed over and
//! the names in it are remembered as suspects.

mod element;
mod recover;

use crate::diagnostic::Diagnostic;
use crate::lexer::{Dialect, Lexer, RawConfig, Token, TokenKind};
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
    let (statements, end) = parser.parse_statements(Block::File);
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
    fn parse_statements(&mut self, block: Block) -> (Vec<Statement>, Token) {
        let mut statements = Vec::new();
        loop {
            let token = self.lexer.next();
            match token.kind {
                TokenKind::End => return (statements, token),
                TokenKind::Byte(b';') => {}
                TokenKind::Byte(b'}') | TokenKind::DoubleBar if block == Block::Compound => {
                    return (statements, token);
                }
                TokenKind::Byte(b')') if block == Block::Group => return (statements, token),
                TokenKind::Byte(b'}') | TokenKind::DoubleBar if block == Block::Group => {
                    self.syntax_error(token);
                    self.lexer.back_to(token);
                    return (statements, token);
                }
                _ => statements.extend(self.parse_statement(token, block)),
            }
        }
    }

    fn parse_statement(&mut self, token: Token, block: Block) -> Option<Statement> {
        match token.kind {
            TokenKind::Identifier
            | TokenKind::Arrow
            | TokenKind::DoubleArrow
            | TokenKind::Byte(b'[' | b'{' | b'(') => {
                self.lexer.back_to(token);
                Some(Statement::Chain(self.parse_chain(block != Block::File)))
            }
            TokenKind::ElementClass => Some(Statement::Class(self.element_class(token))),
            TokenKind::Require => Some(Statement::Require(self.parse_parenthesized()?)),
            TokenKind::Define => Some(Statement::Define(self.parse_parenthesized()?)),
            _ => {
                self.syntax_error(token);
                self.skip_junk();
                None
            }
        }
    }

    fn parse_parenthesized(&mut self) -> Option<RawConfig> {
        let Some(open) = self.lexer.accept_kind(TokenKind::Byte(b'(')) else {
            self.report_expected("'('", None);
            return None;
        };
        Some(self.parse_config(open))
    }

    /// The configuration string behind an opening parenthesis, and the closing one.
    fn parse_config(&mut self, open: Token) -> RawConfig {
        let config = self.lexer.read_config();
        if self.lexer.accept_kind(TokenKind::Byte(b')')).is_none() {
            self.report_expected("')'", Some(open));
            self.end_reported = true;
        }
        config
    }

    fn element_class(&mut self, keyword: Token) -> ClassDefinition {
        let (name, span) = match self.lexer.accept_kind(TokenKind::Identifier) {
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
            TokenKind::Byte(b'{') => ClassBody::Compound(self.parse_compound(token)),
            TokenKind::Identifier => {
                ClassBody::Synonym(self.lexer.text(token).to_string(), self.lexer.span(token))
            }
            _ => {
                self.report_unexpected(token, CLASS_DEFINITION);
                ClassBody::Missing
            }
        };
        ClassDefinition { name, span, body }
    }

    /// `{ … }` from behind the brace.
    fn parse_compound(&mut self, open: Token) -> Compound {
        let mut compound =
            Compound { alternatives: Vec::new(), extension: None, close: self.lexer.span(open) };
        if !self.enter_nested("compound element", open) {
            compound.alternatives.push(self.alternative_of(Vec::new(), Vec::new(), open));
            return compound;
        }
        let mut before = open;
        loop {
            if let Some(dots) = self.lexer.accept_kind(TokenKind::Dots) {
                self.parse_extension(&mut compound, dots);
                if self.lexer.accept_kind(TokenKind::Byte(b'}')).is_some() {
                    break;
                }
            }
            let formals = self.parse_formals();
            let (statements, end) = self.parse_statements(Block::Compound);
            compound.alternatives.push(self.alternative_of(formals, statements, before));
            compound.close = self.lexer.span(end);
            match end.kind {
                TokenKind::DoubleBar => before = end,
                TokenKind::End => {
                    self.report_unclosed("'}'", open);
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

    fn parse_extension(&mut self, compound: &mut Compound, dots: Token) {
        let span = self.lexer.span(dots);
        compound.extension = Some(span);
        let next = self.lexer.next();
        self.lexer.back_to(next);
        if compound.alternatives.is_empty() || next.kind != TokenKind::Byte(b'}') {
            let error = Diagnostic::error("'...' should occur last, after one or more compounds", span);
            self.report(error.help("write `{ … || ... }`"));
        }
    }

    /// `KEYWORD $a, $b |`
    fn parse_formals(&mut self) -> Vec<Formal> {
        let mut formals = Vec::new();
        loop {
            let first = self.lexer.next();
            let (keyword, variable) = match first.kind {
                TokenKind::Variable => (String::new(), first),
                TokenKind::Byte(b'|') => return formals,
                TokenKind::Identifier => match self.lexer.accept_kind(TokenKind::Variable) {
                    Some(variable) => (self.lexer.text(first).to_string(), variable),
                    None => return self.end_formals(formals, first),
                },
                _ => return self.end_formals(formals, first),
            };
            let name = self.lexer.text(variable)[1..].to_string();
            formals.push(Formal { keyword, name, span: self.lexer.span(variable) });
            let separator = self.lexer.next();
            match separator.kind {
                TokenKind::Byte(b'|') => return formals,
                TokenKind::Byte(b',') => {}
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
    fn parse_group(&mut self, open: Token) -> Group {
        if !self.enter_nested("element group", open) {
            return Group { statements: Vec::new(), close: self.lexer.span(open) };
        }
        let (statements, end) = self.parse_statements(Block::Group);
        if end.kind == TokenKind::End {
            self.report_unclosed("')'", open);
        }
        self.depth -= 1;
        Group { statements, close: self.lexer.span(end) }
    }

    /// Enters a compound or group unless it is nested too deeply; then its text is passed over.
    fn enter_nested(&mut self, what: &str, open: Token) -> bool {
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

    fn current_span(&self) -> Span {
        self.lexer.span(Token {
            kind: TokenKind::End,
            start: self.lexer.position(),
            end: self.lexer.position(),
        })
    }
}

#[cfg(test)]
mod tests;
