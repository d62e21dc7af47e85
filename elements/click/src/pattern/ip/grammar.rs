//! How tests are joined.
use super::primitive::Primitive;
use super::test;
use crate::pattern::expr::Expr;
use artery_engine::names::Names;

/// Deepest nesting of parentheses, negations and ternary operators.
const DEEPEST: usize = 200;

/// Parses an expression that must consume all the words.
pub(super) fn parse_words(words: &[String], names: &Names) -> Result<Expr, String> {
    let mut parser = Parser { words, at: 0, names, previous: Primitive::default(), depth: 0 };
    let expr = parser.parse_expr()?;
    match parser.peek() {
        None => Ok(expr),
        Some(word) => Err(format!("garbage after expression at '{word}'")),
    }
}

/// Words, and how far they are read.
pub(super) struct Parser<'a> {
    words: &'a [String],
    pub(crate) at: usize,
    pub(crate) names: &'a Names,
    /// The last test, whose parts the next one may omit.
    pub(crate) previous: Primitive,
    depth: usize,
}

impl<'a> Parser<'a> {
    pub(crate) fn peek(&self) -> Option<&'a str> {
        self.peek_at(0)
    }
    /// The word so many places ahead.
    pub(crate) fn peek_at(&self, ahead: usize) -> Option<&'a str> {
        self.words.get(self.at + ahead).map(String::as_str)
    }
    pub(crate) fn is_any(&self, words: &[&str]) -> bool {
        self.peek().is_some_and(|word| words.contains(&word))
    }
    /// Consumes the next word if it is one of these.
    pub(crate) fn eat_any(&mut self, words: &[&str]) -> bool {
        let found = self.is_any(words);
        self.at += usize::from(found);
        found
    }

    fn parse_expr(&mut self) -> Result<Expr, String> {
        let condition = self.parse_or()?;
        if !self.eat_any(&["?"]) {
            return Ok(condition);
        }
        let then = self.parse_nested(Parser::parse_expr)?;
        if !self.eat_any(&[":"]) {
            return Err("missing ':' in ternary expression".into());
        }
        let otherwise = self.parse_nested(Parser::parse_expr)?;
        Ok(Expr::If(Box::new([condition, then, otherwise])))
    }

    fn parse_nested<T>(&mut self, parse: impl FnOnce(&mut Self) -> Result<T, String>) -> Result<T, String> {
        if self.depth == DEEPEST {
            return Err(format!("expression nested more than {DEEPEST} deep"));
        }
        self.depth += 1;
        let result = parse(self);
        self.depth -= 1;
        result
    }

    fn parse_or(&mut self) -> Result<Expr, String> {
        let mut parts = vec![self.parse_term()?];
        while self.eat_any(&["or", "||"]) {
            parts.push(self.parse_term()?);
        }
        Ok(one_or(parts, Expr::Or))
    }

    fn parse_term(&mut self) -> Result<Expr, String> {
        let mut parts = Vec::new();
        loop {
            let must_follow = self.eat_any(&["and", "&&"]) || parts.is_empty();
            match self.parse_factor()? {
                Some(part) => parts.push(part),
                None if must_follow => return Err(self.missing_error("missing expression")),
                None => return Ok(one_or(parts, Expr::And)),
            }
        }
    }

    /// Parses a factor; `None` where none begins.
    fn parse_factor(&mut self) -> Result<Option<Expr>, String> {
        match self.peek() {
            Some(word @ ("not" | "!")) => {
                self.at += 1;
                let inner = self.parse_nested(Parser::parse_factor)?;
                let inner = inner.ok_or_else(|| format!("missing expression after '{word}'"))?;
                Ok(Some(inner.negated()))
            }
            Some("(") => {
                self.at += 1;
                if self.peek().is_none() || self.is_any(&[")"]) {
                    return Err("missing expression after '('".into());
                }
                let inner = self.parse_nested(Parser::parse_expr)?;
                if self.eat_any(&[")"]) { Ok(Some(inner)) } else { Err(self.missing_error("missing ')'")) }
            }
            None | Some(")" | "||" | "or" | "?" | ":") => Ok(None),
            Some("true" | "false") => {
                let answer = self.is_any(&["true"]);
                self.at += 1;
                Ok(Some(Expr::Const(answer)))
            }
            Some(_) => test::parse_test(self).map(Some),
        }
    }

    fn missing_error(&self, what: &str) -> String {
        self.peek().map_or_else(|| what.to_string(), |word| format!("{what} at '{word}'"))
    }
}

fn one_or(mut parts: Vec<Expr>, join: fn(Vec<Expr>) -> Expr) -> Expr {
    if parts.len() == 1 { parts.remove(0) } else { join(parts) }
}
