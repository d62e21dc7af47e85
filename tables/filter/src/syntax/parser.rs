//! The parser of statements: one token of lookahead, errors, and recovery.
//!
//! A mistake ends its statement. Parsing goes on after the end of its line, or after the line where its
//! braces close (see `recover`), so that each line with a mistake is reported.
use super::environment::Environment;
use super::lexer::{Lexer, Token};
use super::older::written_now;
use super::queues::Queue;
use super::{BrokenLines, ParseSettings, SyntaxError};
use crate::options::OptionLine;
use crate::rule::{Rule, Ruleset, SourceLocation, StateOptions, TableAddress, TableDefinition};
use std::collections::HashSet;

/// How deep braces may stand in braces.
const MOST_BRACES: usize = 64;

/// A statement can't be parsed further; the reason was reported.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Stop;

/// Something read, unless the statement ended by a mistake.
pub(crate) type Step<T> = Result<T, Stop>;

/// Where a statement begins, and what it is in.
struct Begun {
    place: SourceLocation,
    /// Braces that are open there.
    depth: usize,
    /// Anchors that are being read there.
    anchors: usize,
    is_anchor: bool,
}

/// What options said that matters for the rules behind them.
#[derive(Default)]
pub(crate) struct Defaults {
    /// Whether `block` alone sends a reply to the sender.
    pub(crate) block_returns: bool,
    /// Whether states are bound to interfaces.
    pub(crate) is_bound: bool,
    /// Whether fragments are not put together.
    pub(crate) leaves_fragments: bool,
    /// Whether it was said at which shares cookies begin and end.
    pub(crate) has_cookie_shares: bool,
    /// The options of states of rules that say nothing of states.
    pub(crate) state: Option<StateOptions>,
}

pub(crate) struct Parser<'e> {
    lexer: Lexer,
    ahead: Option<Token>,
    depth: usize,
    /// Where names come from.
    pub(crate) environment: &'e Environment<'e>,
    /// Everything wrong so far.
    pub(crate) faults: Vec<SyntaxError>,
    /// Warnings about what is unusual and yet accepted.
    pub(crate) warnings: Vec<SyntaxError>,
    /// Statements that make no rule.
    pub(crate) ineffective: Vec<SyntaxError>,
    /// The lines of statements with mistakes.
    pub(crate) broken: Vec<BrokenLines>,
    /// Whether the current rule may name users and groups that don't exist.
    pub(crate) takes_unknown_accounts: bool,
    /// The lines that pfctl echoes as it reads.
    pub(crate) echoed: Vec<String>,
    pub(crate) defaults: Defaults,
    /// The main rule set.
    pub(crate) ruleset: Ruleset,
    /// The rules and tables of anchors that are being read, the innermost last.
    pub(crate) anchors: Vec<Ruleset>,
    /// Queues, the roots first.
    pub(crate) queues: Vec<Queue>,
    /// How many rules there are.
    pub(crate) rule_count: usize,
    automatic: usize,
    deferred: Option<String>,
    /// The names of anchors in braces that have rules: of the main rule set, then of each of `anchors`.
    pub(crate) inline_names: Vec<HashSet<String>>,
}

impl<'e> Parser<'e> {
    /// A reader of `text`.
    pub(crate) fn new(
        name: &str,
        text: &[u8],
        environment: &'e Environment<'e>,
        settings: &ParseSettings,
    ) -> Self {
        let mut lexer = Lexer::new(name, text);
        settings.macros.iter().for_each(|(name, value)| lexer.define_macro(name, value, true));
        Parser {
            lexer,
            ahead: None,
            depth: 0,
            environment,
            faults: Vec::new(),
            warnings: Vec::new(),
            ineffective: Vec::new(),
            broken: Vec::new(),
            takes_unknown_accounts: false,
            echoed: Vec::new(),
            defaults: Defaults::default(),
            ruleset: Ruleset::default(),
            anchors: Vec::new(),
            queues: Vec::new(),
            rule_count: 0,
            automatic: 0,
            deferred: None,
            inline_names: vec![HashSet::new()],
        }
    }

    /// Reads to the end.
    pub(crate) fn parse_all(&mut self) {
        loop {
            match self.peek() {
                Token::End => return,
                Token::Newline => {
                    self.next_token();
                }
                _ => self.read_statement(Self::parse_statement),
            }
        }
    }

    /// Reads the lines in the braces of an anchor, up to the closing one.
    pub(crate) fn anchor_lines(&mut self) {
        loop {
            match self.peek() {
                Token::End | Token::Sign("}") => return,
                Token::Newline => {
                    self.next_token();
                }
                _ => self.read_statement(Self::anchor_statement),
            }
        }
    }

    /// Reads a statement and the end of its line; where it has a mistake, goes on behind it.
    fn read_statement(&mut self, read: fn(&mut Self) -> Step<()>) {
        let is_anchor = self.peek() == &Token::Key("anchor");
        let begun =
            Begun { place: self.token_location(), depth: self.depth, anchors: self.anchors.len(), is_anchor };
        if read(self).and_then(|()| self.line_end()).is_err() {
            self.recover_from(&begun);
        }
    }

    fn parse_statement(&mut self) -> Step<()> {
        match self.peek() {
            Token::Key("pass" | "block" | "match") => self.filter_rule(),
            Token::Key("anchor") => self.anchor_rule(),
            Token::Key("load") => self.load_anchor(),
            Token::Key("antispoof") => self.parse_antispoof(),
            Token::Key("table") => self.parse_table(),
            Token::Key("queue") => self.parse_queue(),
            Token::Key("set") => self.set_option(),
            Token::Key("include") => self.parse_include(),
            Token::Text(_) => self.macro_definition(),
            Token::Key(word) => {
                let word = *word;
                Err(self.syntax_error_with(written_now(word)))
            }
            _ => Err(self.syntax_error()),
        }
    }

    /// A statement that can stand in the braces of an anchor.
    fn anchor_statement(&mut self) -> Step<()> {
        match self.peek() {
            Token::Key("anchor") => self.anchor_rule(),
            Token::Key("pass" | "block" | "match") => self.filter_rule(),
            Token::Key("table") => self.parse_table(),
            Token::Key("include") => self.parse_include(),
            _ => Err(self.syntax_error()),
        }
    }

    fn line_end(&mut self) -> Step<()> {
        if self.peek() != &Token::Newline {
            return Err(self.syntax_error());
        }
        self.next_token();
        Ok(())
    }

    /// Goes on behind a statement with a mistake: behind the end of its line that is outside of its braces.
    fn recover_from(&mut self, begun: &Begun) {
        self.anchors.truncate(begun.anchors);
        self.inline_names.truncate(begun.anchors + 1);
        self.deferred = None;
        let last = self.skip_statement(begun);
        self.depth = begun.depth;
        let SourceLocation { file, line: first } = begun.place.clone();
        // Lines in the braces of an anchor are statements of their own. What began in one file
        // may end in another.
        let last = if begun.is_anchor || last.file != file { first } else { last.line };
        self.broken.push(BrokenLines { file, first, last });
    }

    /// Passes over the rest of a statement; says where it ends.
    fn skip_statement(&mut self, begun: &Begun) -> SourceLocation {
        loop {
            let is_within = self.depth > begun.depth;
            match self.peek() {
                Token::End => return self.token_location(),
                Token::Sign("{") => {
                    self.ahead = None;
                    self.depth += 1;
                    self.read_rules_of_broken_anchor(begun);
                }
                Token::Sign("}") if is_within => {
                    self.ahead = None;
                    self.depth -= 1;
                }
                // It closes the anchor that the statement is in.
                Token::Sign("}") if begun.depth > 0 => return self.token_location(),
                Token::Newline => {
                    let end = self.token_location();
                    self.ahead = None;
                    // A line that begins as only a statement can ends braces that were never closed.
                    if !is_within || self.begins_statement() {
                        return end;
                    }
                }
                _ => self.ahead = None,
            }
        }
    }

    /// Reads the lines of an anchor for their own mistakes, where that is what an opening brace was for.
    fn read_rules_of_broken_anchor(&mut self, begun: &Begun) {
        let is_body = begun.is_anchor && self.depth == begun.depth + 1 && self.depth <= MOST_BRACES;
        if is_body && self.peek() == &Token::Newline {
            self.anchors.push(Ruleset::default());
            self.inline_names.push(HashSet::new());
            self.anchor_lines();
            self.inline_names.pop();
            self.anchors.pop();
        }
    }

    fn begins_statement(&mut self) -> bool {
        matches!(
            self.peek(),
            Token::Key(
                "pass"
                    | "block"
                    | "match"
                    | "anchor"
                    | "load"
                    | "antispoof"
                    | "table"
                    | "queue"
                    | "set"
                    | "include"
            )
        )
    }

    fn macro_definition(&mut self) -> Step<()> {
        let name = self.expect_text()?;
        if !self.eat_sign("=") {
            return Err(self.syntax_error_with(written_now(&name)));
        }
        let mut words = vec![self.number_or_text()?];
        while matches!(self.peek(), Token::Text(_) | Token::Number(_)) {
            words.push(self.number_or_text()?);
        }
        let value = words.join(" ");
        self.echo_line(format!("{name} = {}", super::print::quote_name(&value)));
        if name.contains(char::is_whitespace) {
            return Err(self.fail_statement(format!("macro name '{name}' cannot contain whitespace")));
        }
        self.lexer.define_macro(&name, &value, false);
        Ok(())
    }

    /// Reads `include`, behind which the other file is read.
    pub(crate) fn parse_include(&mut self) -> Step<()> {
        self.next_token();
        let name = self.expect_text()?;
        // The end of the line belongs to this file, not to the other.
        if self.peek() != &Token::Newline {
            return Err(self.syntax_error());
        }
        match (self.environment.read_file)(&name) {
            Ok(text) => match self.lexer.include_file(&name, text) {
                true => Ok(()),
                false => Err(self
                    .fail_statement(format!("failed to include file {name}\nfiles are included too deeply"))),
            },
            Err(why) => Err(self.fail_statement(format!("failed to include file {name}\n{why}"))),
        }
    }

    /// The token that comes next, which stays.
    pub(crate) fn peek(&mut self) -> &Token {
        if self.ahead.is_none() {
            let token = self.lexer.next();
            if let Some(complaint) = self.lexer.complaint.take() {
                self.report_error(complaint);
            }
            self.ahead = Some(token);
        }
        self.ahead.as_ref().expect("it was just put there")
    }

    /// Takes the next token.
    pub(crate) fn next_token(&mut self) -> Token {
        self.peek();
        self.ahead.take().unwrap_or(Token::End)
    }

    /// Takes a reserved word if it is the next token.
    pub(crate) fn eat_key(&mut self, word: &'static str) -> bool {
        debug_assert!(
            super::words::reserved_word(word).is_some(),
            "{word} must be reserved, to differ from names"
        );
        let is_next = self.peek() == &Token::Key(word);
        if is_next {
            self.next_token();
        }
        is_next
    }

    /// Takes a sign if it is the next token.
    pub(crate) fn eat_sign(&mut self, sign: &'static str) -> bool {
        let is_next = self.peek() == &Token::Sign(sign);
        if is_next {
            self.next_token();
        }
        is_next
    }

    /// Takes a reserved word that must be next.
    pub(crate) fn expect_key(&mut self, word: &'static str) -> Step<()> {
        if self.eat_key(word) { Ok(()) } else { Err(self.syntax_error()) }
    }

    /// Takes a sign that must be next.
    pub(crate) fn expect_sign(&mut self, sign: &'static str) -> Step<()> {
        if self.eat_sign(sign) { Ok(()) } else { Err(self.syntax_error()) }
    }

    /// Takes a word that is not reserved.
    pub(crate) fn expect_text(&mut self) -> Step<String> {
        match self.peek() {
            Token::Text(_) => match self.next_token() {
                Token::Text(text) => Ok(text),
                _ => unreachable!("a text was seen"),
            },
            _ => Err(self.syntax_error()),
        }
    }

    /// Takes words as long as there are some: a name may consist of several.
    pub(crate) fn expect_texts(&mut self) -> Step<String> {
        let mut all = self.expect_text()?;
        while matches!(self.peek(), Token::Text(_)) {
            all = format!("{all} {}", self.expect_text()?);
        }
        Ok(all)
    }

    pub(crate) fn expect_number(&mut self) -> Step<i64> {
        match *self.peek() {
            Token::Number(number) => {
                self.next_token();
                Ok(number)
            }
            _ => Err(self.syntax_error()),
        }
    }

    /// Takes a number from a range; `what` names it in a complaint.
    pub(crate) fn number_within(&mut self, what: &str, from: i64, to: i64) -> Step<i64> {
        let number = self.expect_number()?;
        if (from..=to).contains(&number) {
            return Ok(number);
        }
        Err(self.fail_statement(format!("{what} {number} is out of range\nit may be {from} to {to}")))
    }

    /// Takes a number, or a word that stands for one.
    pub(crate) fn number_or_text(&mut self) -> Step<String> {
        match *self.peek() {
            Token::Number(number) => {
                self.next_token();
                Ok(number.to_string())
            }
            _ => self.expect_text(),
        }
    }

    /// Takes a comma if there is one.
    pub(crate) fn eat_comma(&mut self) -> bool {
        self.eat_sign(",")
    }

    /// Takes the ends of lines, which mean nothing within braces.
    pub(crate) fn skip_newlines(&mut self) {
        while self.peek() == &Token::Newline {
            self.next_token();
        }
    }

    /// Reads one item, or those of a list in braces.
    pub(crate) fn parse_list<T>(
        &mut self,
        item: &mut dyn FnMut(&mut Self, &mut Vec<T>) -> Step<()>,
    ) -> Step<Vec<T>> {
        let mut all = Vec::new();
        match self.eat_sign("{") {
            true => self.parse_items(&mut |parser| item(parser, &mut all))?,
            false => item(self, &mut all)?,
        }
        Ok(all)
    }

    /// Reads items up to the closing brace. Lines may end behind items, not behind commas.
    pub(crate) fn parse_items(&mut self, item: &mut dyn FnMut(&mut Self) -> Step<()>) -> Step<()> {
        self.skip_newlines();
        self.items_after_brace(item)
    }

    /// The same where the ends of lines behind the opening brace were taken already.
    pub(crate) fn items_after_brace(&mut self, item: &mut dyn FnMut(&mut Self) -> Step<()>) -> Step<()> {
        self.enter_braces()?;
        loop {
            item(self)?;
            self.skip_newlines();
            if !self.eat_comma() && self.eat_sign("}") {
                break;
            }
        }
        self.leave_braces();
        Ok(())
    }

    /// Counts braces that are entered, which are bounded.
    pub(crate) fn enter_braces(&mut self) -> Step<()> {
        self.depth += 1;
        if self.depth > MOST_BRACES {
            return Err(self.fail_statement(format!("braces stand in braces more than {MOST_BRACES} deep")));
        }
        Ok(())
    }

    /// Counts braces that are left.
    pub(crate) fn leave_braces(&mut self) {
        self.depth -= 1;
    }

    /// The place of the last token.
    pub(crate) fn token_location(&self) -> SourceLocation {
        SourceLocation { file: self.lexer.file.clone(), line: self.lexer.line }
    }

    /// Tells of a mistake.
    pub(crate) fn report_error(&mut self, message: impl Into<String>) {
        let place = self.token_location();
        self.faults.push(SyntaxError { place, message: message.into() });
    }

    /// Warns of something unusual that is accepted.
    pub(crate) fn report_warning(&mut self, message: impl Into<String>) {
        let place = self.token_location();
        self.warnings.push(SyntaxError { place, message: message.into() });
    }

    /// Tells of a mistake that ends the statement.
    pub(crate) fn fail_statement(&mut self, message: impl Into<String>) -> Stop {
        self.report_error(message);
        Stop
    }

    /// Keeps a mistake, if it is the first, to be reported when its statement has been read.
    pub(crate) fn defer_error(&mut self, message: impl Into<String>) {
        self.deferred.get_or_insert_with(|| message.into());
    }

    /// Tells of the mistake that was kept.
    pub(crate) fn report_deferred(&mut self) -> Step<()> {
        match self.deferred.take() {
            Some(message) => Err(self.fail_statement(message)),
            None => Ok(()),
        }
    }

    /// Reports a mistake that has no place of its own.
    pub(crate) fn report_unplaced(&mut self, message: impl Into<String>) {
        self.faults.push(SyntaxError { place: SourceLocation::default(), message: message.into() });
    }

    /// Tells that the next token can't stand here.
    pub(crate) fn syntax_error(&mut self) -> Stop {
        self.syntax_error_with(None)
    }

    /// The same, and what helps.
    fn syntax_error_with(&mut self, help: Option<&str>) -> Stop {
        let what = match self.peek() {
            Token::Key(word) => format!("\nat '{word}'"),
            Token::Text(text) => format!("\nat '{text}'"),
            Token::Number(number) => format!("\nat '{number}'"),
            Token::Sign(sign) => format!("\nat '{sign}'"),
            Token::Strange(c) => format!("\nat '{c}'"),
            Token::Newline => "\nthe line ends too soon".to_string(),
            Token::Bad => String::new(),
            Token::End => "\nthe text ends too soon".to_string(),
        };
        let help = help.map_or(String::new(), |help| format!("\n{help}"));
        self.report_error(format!("syntax error{what}{help}"));
        Stop
    }

    /// Remembers a line that is echoed.
    pub(crate) fn echo_line(&mut self, line: String) {
        self.echoed.push(line);
    }

    pub(crate) fn add_option(&mut self, option: crate::options::SetOption) {
        let place = self.token_location();
        self.ruleset.options.push(OptionLine { option, place });
    }

    /// Adds a rule to the rule set that is being read, and says its number there.
    pub(crate) fn add_rule(&mut self, mut rule: Rule) {
        let rules = &mut self.anchors.last_mut().unwrap_or(&mut self.ruleset).rules;
        let number = rules.len().to_string();
        for text in [&mut rule.label, &mut rule.tag] {
            *text = text.replace("$nr", &number);
        }
        if let Some((_, tag)) = &mut rule.tagged {
            *tag = tag.replace("$nr", &number);
        }
        rules.push(rule);
        self.rule_count += 1;
    }

    /// Makes a table for a list of addresses of a rule, and returns its name.
    pub(crate) fn automatic_table(&mut self, addresses: Vec<TableAddress>) -> String {
        let name = format!("__automatic_{}", self.automatic);
        self.automatic += 1;
        let table = TableDefinition {
            name: name.clone(),
            is_const: true,
            is_automatic: true,
            has_list: true,
            addresses,
            place: self.token_location(),
            ..TableDefinition::default()
        };
        self.echo_line(super::print::echoed_table(&table));
        self.ruleset.tables.push(table);
        name
    }
}
