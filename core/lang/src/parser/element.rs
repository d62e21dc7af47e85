//! Chains: `[1] a :: Class (config) [0], b -> c`.

use super::Parser;
use super::recover::LONE_ARROW;
use crate::args;
use crate::diagnostic::Diagnostic;
use crate::lexer::{Dialect, Token, TokenKind};
use crate::source::Span;
use crate::tree::*;

/// Ports beyond this are taken for a slip of the pen.
const MAX_PORT: usize = 9_999;

impl Parser<'_> {
    pub(super) fn parse_chain(&mut self, nested: bool) -> Chain {
        let mut chain = Chain::default();
        let mut arrow = None;
        loop {
            let Some(link) = self.parse_link(arrow, nested) else {
                chain.broken |= arrow.is_some();
                break;
            };
            chain.links.push(link);
            match self.parse_connector(nested) {
                Connector::Arrow(next) => arrow = Some(next),
                Connector::Done => break,
                Connector::Broken => {
                    chain.broken = true;
                    break;
                }
            }
        }
        if chain.broken {
            self.suspect_names(&chain);
        }
        chain
    }

    /// The elements up to the next arrow; `None` if there are none.
    fn parse_link(&mut self, arrow: Option<Arrow>, nested: bool) -> Option<Link> {
        let mut elements: Vec<Element> = Vec::new();
        loop {
            let inputs = self.parse_ports();
            let token = self.lexer.next();
            let what = match token.kind {
                TokenKind::Identifier => What::Name(self.lexer.text(token).to_string()),
                TokenKind::Byte(b'{') => What::Compound(self.parse_compound(token)),
                TokenKind::Byte(b'(') => What::Group(self.parse_group(token)),
                _ if nested && implies_port(token.kind, arrow.is_none(), &inputs, elements.is_empty()) => {
                    self.lexer.back_to(token);
                    What::Implied
                }
                _ => {
                    self.no_element(token, &inputs, elements.is_empty(), nested && arrow.is_none());
                    break;
                }
            };
            let span = self.lexer.span(token);
            elements.push(self.parse_element(inputs, what, span));
            if self.lexer.accept_kind(TokenKind::Byte(b',')).is_none() {
                break;
            }
        }
        (!elements.is_empty()).then(|| self.finish_link(arrow, elements))
    }

    fn no_element(&mut self, token: Token, inputs: &Ports, first: bool, silent: bool) {
        let behind_port = "write the element behind the port";
        if let (Some(span), false) = (inputs.span, inputs.is_empty()) {
            self.report(Diagnostic::error("stranded port ignored", span).help(behind_port));
        }
        if !first || silent {
            return self.lexer.back_to(token);
        }
        if inputs.is_empty() || self.dialect == Dialect::Click {
            self.report_unexpected(token, if inputs.is_empty() { LONE_ARROW } else { behind_port });
        }
        self.skip_statement(token);
    }

    fn finish_link(&mut self, arrow: Option<Arrow>, elements: Vec<Element>) -> Link {
        let next = self.lexer.next();
        self.lexer.back_to(next);
        let continues = matches!(next.kind, TokenKind::Arrow | TokenKind::DoubleArrow);
        let implied = elements.iter().find(|element| element.what == What::Implied);
        if let (Some(element), true, true) = (implied, arrow.is_some(), continues) {
            let error = Diagnostic::error("implicit ports used in the middle of a chain", element.span);
            self.report(error.help("name the element between the arrows"));
        }
        Link { arrow, elements, after: self.lexer.span(next), continues }
    }

    fn parse_element(&mut self, inputs: Ports, what: What, span: Span) -> Element {
        let mut element =
            Element { inputs, what, class: None, config: None, outputs: Ports::default(), span };
        if element.what == What::Implied {
            return element;
        }
        if self.lexer.accept_kind(TokenKind::DoubleColon).is_some() {
            element.class = Some(self.declared_class());
        }
        if let Some(open) = self.lexer.accept_kind(TokenKind::Byte(b'(')) {
            element.config = Some(self.parse_config(open));
        }
        element.outputs = self.parse_ports();
        element
    }

    fn declared_class(&mut self) -> DeclaredClass {
        let token = self.lexer.next();
        match token.kind {
            TokenKind::Identifier => {
                DeclaredClass::Name(self.lexer.text(token).to_string(), self.lexer.span(token))
            }
            TokenKind::Byte(b'{') => DeclaredClass::Compound(self.parse_compound(token)),
            _ => {
                self.lexer.back_to(token);
                let error = Diagnostic::error("missing element type in declaration", self.lexer.span(token));
                self.report(error.help("write `name :: Class`"));
                DeclaredClass::Missing
            }
        }
    }

    /// `[0-2, 5]`, or nothing.
    fn parse_ports(&mut self) -> Ports {
        let Some(open) = self.lexer.accept_kind(TokenKind::Byte(b'[')) else { return Ports::default() };
        let mut ports = Ports::default();
        let mut range_from = None;
        let end = loop {
            let token = self.lexer.next();
            match token.kind {
                TokenKind::Identifier => self.parse_port(token, &mut ports, range_from),
                TokenKind::Byte(b']') => {
                    if ports.is_empty() {
                        ports.numbers.push(0);
                    }
                    ports.expandable = true;
                    break token;
                }
                _ => {
                    self.refuse_in_ports("syntax error: expected port number", token);
                    break token;
                }
            }
            let token = self.lexer.next();
            match token.kind {
                TokenKind::Byte(b']') => break token,
                TokenKind::Byte(b'-') if range_from.is_none() => range_from = ports.numbers.last().copied(),
                TokenKind::Byte(b',') => range_from = None,
                _ => {
                    self.refuse_in_ports("syntax error: expected ','", token);
                    if self.dialect == Dialect::Artery {
                        break token;
                    }
                }
            }
        };
        ports.span = Some(self.lexer.span(open).to(self.lexer.span(end)));
        ports
    }

    /// Reports a token that can't stand in ports, and goes back to it.
    fn refuse_in_ports(&mut self, why: &str, token: Token) {
        let error = Diagnostic::error(why, self.lexer.span(token));
        self.report(error.help("ports are written `[0]`, `[0, 2]`, `[0-3]` or `[]`"));
        self.lexer.back_to(token);
    }

    fn parse_port(&mut self, token: Token, ports: &mut Ports, range_from: Option<usize>) {
        let number = match args::parse_signed(self.lexer.text(token)) {
            Ok(number) if number <= MAX_PORT as i64 => number as usize,
            Ok(_) | Err(args::ArgError::Range) => {
                let error = Diagnostic::error("port number out of range", self.lexer.span(token));
                self.report(error.help(format!("ports go from 0 to {MAX_PORT}")));
                0
            }
            Err(args::ArgError::Syntax) => {
                let message = "syntax error: port number should be integer";
                let error = Diagnostic::error(message, self.lexer.span(token));
                self.report(error.help("ports are written `[0]`, `[0, 2]`, `[0-3]` or `[]`"));
                0
            }
        };
        match range_from {
            Some(from) => ports.numbers.extend(from + 1..=number),
            None => ports.numbers.push(number),
        }
    }

    fn parse_connector(&mut self, nested: bool) -> Connector {
        loop {
            let token = self.lexer.next();
            match token.kind {
                TokenKind::Arrow | TokenKind::DoubleArrow => {
                    let double = token.kind == TokenKind::DoubleArrow;
                    return Connector::Arrow(Arrow { double, span: self.lexer.span(token) });
                }
                // Something around the chain is not closed, and who knows what else is missing.
                TokenKind::End if nested || self.end_reported => return Connector::Broken,
                TokenKind::Byte(b';') | TokenKind::End => return Connector::Done,
                TokenKind::Byte(b'{' | b'}' | b'[' | b')')
                | TokenKind::Identifier
                | TokenKind::DoubleBar
                | TokenKind::ElementClass
                | TokenKind::Require
                | TokenKind::Provide
                | TokenKind::Define => {
                    self.lexer.back_to(token);
                    return Connector::Done;
                }
                _ => {
                    self.syntax_error(token);
                    let skipped = matches!(token.kind, TokenKind::Byte(b',') | TokenKind::DoubleColon);
                    if self.dialect == Dialect::Click && skipped {
                        continue;
                    }
                    if self.dialect == Dialect::Click && !matches!(token.kind, TokenKind::Byte(_)) {
                        self.lexer.back_to(token);
                    }
                    self.skip_statement(token);
                    return Connector::Broken;
                }
            }
        }
    }
}

enum Connector {
    Arrow(Arrow),
    Done,
    Broken,
}

/// True if the missing element before `token` stands for `input` or `output`.
fn implies_port(token: TokenKind, first_link: bool, ports: &Ports, first_element: bool) -> bool {
    match token {
        TokenKind::Arrow | TokenKind::DoubleArrow => first_link && (!ports.is_empty() || first_element),
        TokenKind::Byte(b',') => !ports.is_empty(),
        TokenKind::DoubleColon => false,
        _ => !first_link && (!ports.is_empty() || first_element),
    }
}
