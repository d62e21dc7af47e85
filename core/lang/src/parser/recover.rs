//! What is said about text that does not parse, and where parsing goes on.

use super::Parser;
use crate::diagnostic::Diagnostic;
use crate::lexer::{Dialect, Token, TokenKind};
use crate::tree::{Chain, What};

/// Help about an arrow at the start or end of a statement.
pub(super) const LONE_ARROW: &str = "an arrow needs an element on both sides";

impl Parser<'_> {
    pub(super) fn syntax_error(&mut self, token: Token) {
        self.report_unexpected(token, "separate statements with `;`");
    }

    /// A syntax error where something else was needed; `help` says what, unless the token itself tells more.
    pub(super) fn report_unexpected(&mut self, token: Token, help: &str) {
        if token.kind == TokenKind::End && std::mem::replace(&mut self.end_reported, true) {
            return;
        }
        let message = format!("syntax error near '{}'", self.printable_token(token));
        let mut error = Diagnostic::error(message, self.lexer.span(token));
        error.help = Some(remedy_for(token.kind).unwrap_or(help).to_string());
        self.report(error);
    }

    /// The text of a token; bytes that are no visible ASCII as `\ooo`.
    fn printable_token(&self, token: Token) -> String {
        match token.kind {
            TokenKind::Byte(byte) if !(32..127).contains(&byte) => format!("\\{byte:03o}"),
            _ => self.lexer.text(token).to_string(),
        }
    }

    /// Something is missing before the next token; `open` is what it should have closed.
    pub(super) fn report_expected(&mut self, what: &str, open: Option<Token>) {
        let message = format!("expected {what}");
        let error = match open {
            Some(open) => Diagnostic::error(message, self.lexer.span(open))
                .landmark(self.current_span())
                .label("never closed")
                .help(format!("add {what} where it ends")),
            None => Diagnostic::error(message, self.current_span()).help(format!("add {what} here")),
        };
        self.report(error);
    }

    /// The text ended inside a block; the innermost one is reported, or in dialect Click each.
    pub(super) fn report_unclosed(&mut self, what: &str, open: Token) {
        let reported = std::mem::replace(&mut self.end_reported, true);
        if !reported || self.dialect == Dialect::Click {
            self.report_expected(what, Some(open));
        }
    }

    /// Passes over what cannot start a statement, so that it is one error.
    pub(super) fn skip_junk(&mut self) {
        if self.dialect == Dialect::Click {
            return;
        }
        loop {
            let token = self.lexer.next();
            let junk = match token.kind {
                TokenKind::Byte(byte) => !b";}{()[".contains(&byte),
                TokenKind::Variable | TokenKind::DoubleColon | TokenKind::Dots | TokenKind::Provide => true,
                _ => false,
            };
            if !junk {
                return self.lexer.back_to(token);
            }
        }
    }

    /// Passes over the rest of a statement that went wrong at `token`.
    pub(super) fn skip_statement(&mut self, token: Token) {
        if self.dialect == Dialect::Click {
            return;
        }
        self.lexer.back_to(token);
        loop {
            let token = self.lexer.next();
            match token.kind {
                TokenKind::End
                | TokenKind::DoubleBar
                | TokenKind::ElementClass
                | TokenKind::Require
                | TokenKind::Define => {
                    return self.lexer.back_to(token);
                }
                TokenKind::Byte(b';' | b'}' | b')') => return self.lexer.back_to(token),
                TokenKind::Byte(b'(') => {
                    self.lexer.read_config();
                    self.lexer.accept_kind(TokenKind::Byte(b')'));
                }
                TokenKind::Byte(b'{') => self.skip_nested(),
                TokenKind::Identifier if self.skip_name(token) => return self.lexer.back_to(token),
                _ => {}
            }
        }
    }

    /// Remembers a name declared in text that is passed over; true if it starts a line and a statement.
    fn skip_name(&mut self, name: Token) -> bool {
        let next = self.lexer.next();
        self.lexer.back_to(next);
        if self.starts_line(name)
            && matches!(next.kind, TokenKind::DoubleColon | TokenKind::Arrow | TokenKind::DoubleArrow)
        {
            return true;
        }
        self.suspects.insert(self.lexer.text(name).to_string());
        false
    }

    fn starts_line(&self, token: Token) -> bool {
        let span = self.lexer.span(Token { start: 0, ..token });
        let before = self.lexer.text(Token { start: span.start as usize, end: token.start, ..token });
        before.trim_end_matches([' ', '\t']).ends_with(['\n', '\r'])
    }

    /// Passes over a compound or group from behind its opening bracket.
    pub(super) fn skip_nested(&mut self) {
        let mut depth = 1;
        while depth > 0 {
            match self.lexer.next().kind {
                TokenKind::End => return,
                TokenKind::Byte(b'{' | b'(') => depth += 1,
                TokenKind::Byte(b'}' | b')') => depth -= 1,
                _ => {}
            }
        }
    }

    /// Remembers the names of a chain that an error cut short.
    pub(super) fn suspect_names(&mut self, chain: &Chain) {
        for element in chain.links.iter().flat_map(|link| &link.elements) {
            if let What::Name(name) = &element.what {
                self.suspects.insert(name.clone());
            }
        }
    }
}

/// What is tried first with each kind of token that stands in a wrong place.
fn remedy_for(kind: TokenKind) -> Option<&'static str> {
    Some(match kind {
        TokenKind::End => "the text ends too early; an arrow needs an element on both sides",
        TokenKind::Arrow | TokenKind::DoubleArrow => LONE_ARROW,
        TokenKind::DoubleColon | TokenKind::Byte(b':') => {
            "declare an element with `name :: Class(arguments)`"
        }
        TokenKind::Byte(b'-' | b'>' | b'=') => "connect elements with `->` or `=>`",
        TokenKind::Byte(b'}' | b')' | b']') => "nothing is open here that this could close",
        TokenKind::DoubleBar | TokenKind::Byte(b'|') => {
            "`||` separates the alternatives of a compound element"
        }
        TokenKind::Dots => "`...` stands at the end of a compound element, behind `||`",
        TokenKind::Variable => "variables stand inside configuration strings only",
        TokenKind::Provide => "there is no `provide` statement; remove it",
        TokenKind::Byte(b'#') => "write comments as `// …` or `/* … */`",
        TokenKind::Byte(128..) => {
            "names are made of ASCII letters, digits, `_`, `@` and `/`; remove other characters"
        }
        _ => return None,
    })
}
