//! What is said about text that does not parse, and where parsing goes on.

use super::Parser;
use crate::diagnostic::Diagnostic;
use crate::lexer::{Dialect, Kind, Token};
use crate::tree::{Chain, What};

/// Help about an arrow at the start or end of a statement.
pub(super) const LONE_ARROW: &str = "an arrow needs an element on both sides";

impl Parser<'_> {
    pub(super) fn syntax_error(&mut self, token: Token) {
        self.unexpected(token, "separate statements with `;`");
    }

    /// A syntax error where something else was needed; `help` says what, unless the token itself tells more.
    pub(super) fn unexpected(&mut self, token: Token, help: &str) {
        if token.kind == Kind::End && std::mem::replace(&mut self.end_reported, true) {
            return;
        }
        let message = format!("syntax error near '{}'", self.printable(token));
        let mut error = Diagnostic::error(message, self.lexer.span(token));
        error.help = Some(remedy(token.kind).unwrap_or(help).to_string());
        self.report(error);
    }

    /// The text of a token; bytes that are no visible ASCII as `\ooo`.
    fn printable(&self, token: Token) -> String {
        match token.kind {
            Kind::Byte(byte) if !(32..127).contains(&byte) => format!("\\{byte:03o}"),
            _ => self.lexer.text(token).to_string(),
        }
    }

    /// Something is missing before the next token; `open` is what it should have closed.
    pub(super) fn expected(&mut self, what: &str, open: Option<Token>) {
        let message = format!("expected {what}");
        let error = match open {
            Some(open) => Diagnostic::error(message, self.lexer.span(open))
                .landmark(self.here())
                .label("never closed")
                .help(format!("add {what} where it ends")),
            None => Diagnostic::error(message, self.here()).help(format!("add {what} here")),
        };
        self.report(error);
    }

    /// The text ended inside a block; the innermost one is reported, or in dialect Click each.
    pub(super) fn unclosed(&mut self, what: &str, open: Token) {
        let reported = std::mem::replace(&mut self.end_reported, true);
        if !reported || self.dialect == Dialect::Click {
            self.expected(what, Some(open));
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
                Kind::Byte(byte) => !b";}{()[".contains(&byte),
                Kind::Variable | Kind::DoubleColon | Kind::Dots | Kind::Provide => true,
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
                Kind::End | Kind::DoubleBar | Kind::ElementClass | Kind::Require | Kind::Define => {
                    return self.lexer.back_to(token);
                }
                Kind::Byte(b';' | b'}' | b')') => return self.lexer.back_to(token),
                Kind::Byte(b'(') => {
                    self.lexer.config();
                    self.lexer.accept(Kind::Byte(b')'));
                }
                Kind::Byte(b'{') => self.skip_nested(),
                Kind::Identifier if self.skip_name(token) => return self.lexer.back_to(token),
                _ => {}
            }
        }
    }

    /// Remembers a name declared in text that is passed over; true if it starts a line and a statement.
    fn skip_name(&mut self, name: Token) -> bool {
        let next = self.lexer.next();
        self.lexer.back_to(next);
        if self.starts_line(name) && matches!(next.kind, Kind::DoubleColon | Kind::Arrow | Kind::DoubleArrow)
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
                Kind::End => return,
                Kind::Byte(b'{' | b'(') => depth += 1,
                Kind::Byte(b'}' | b')') => depth -= 1,
                _ => {}
            }
        }
    }

    /// Remembers the names of a chain that an error cut short.
    pub(super) fn suspect(&mut self, chain: &Chain) {
        for element in chain.links.iter().flat_map(|link| &link.elements) {
            if let What::Name(name) = &element.what {
                self.suspects.insert(name.clone());
            }
        }
    }
}

/// What is tried first with each kind of token that stands in a wrong place.
fn remedy(kind: Kind) -> Option<&'static str> {
    Some(match kind {
        Kind::End => "the text ends too early; an arrow needs an element on both sides",
        Kind::Arrow | Kind::DoubleArrow => LONE_ARROW,
        Kind::DoubleColon | Kind::Byte(b':') => "declare an element with `name :: Class(arguments)`",
        Kind::Byte(b'-' | b'>' | b'=') => "connect elements with `->` or `=>`",
        Kind::Byte(b'}' | b')' | b']') => "nothing is open here that this could close",
        Kind::DoubleBar | Kind::Byte(b'|') => "`||` separates the alternatives of a compound element",
        Kind::Dots => "`...` stands at the end of a compound element, behind `||`",
        Kind::Variable => "variables stand inside configuration strings only",
        Kind::Provide => "there is no `provide` statement; remove it",
        Kind::Byte(b'#') => "write comments as `// …` or `/* … */`",
        Kind::Byte(128..) => {
            "names are made of ASCII letters, digits, `_`, `@` and `/`; remove other characters"
        }
        _ => return None,
    })
}
