//! Bytes to tokens, one at a time, because only the parser knows where a configuration string may stand.

use crate::args;
use crate::diagnostic::Diagnostic;
use crate::source::{FileId, LineMark, Span};

/// Which spelling of the language is read.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Dialect {
    /// Click's language, and `#` comments as Click had until October 1999: after white space, and in
    /// column 0 where no preprocessor line is meant.
    #[default]
    Artery,
    /// Click's language with its failures.
    Click,
}

/// What a token is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum TokenKind {
    End,
    Identifier,
    Variable,
    Arrow,
    DoubleArrow,
    DoubleColon,
    DoubleBar,
    Dots,
    ElementClass,
    Require,
    Provide,
    Define,
    Byte(u8),
}

/// A kind and where its text is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Token {
    pub(crate) kind: TokenKind,
    pub(crate) start: usize,
    pub(crate) end: usize,
}

/// A raw configuration string: its text without preprocessor lines, and where it stands.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct RawConfig {
    pub(crate) text: String,
    pub(crate) span: Span,
}

/// Reads one file; [`Lexer::back_to`] undoes, since tokens do not depend on what was read before them.
pub(crate) struct Lexer<'a> {
    text: &'a str,
    bytes: &'a [u8],
    file: FileId,
    dialect: Dialect,
    at: usize,
    /// Preprocessor lines before this offset are known already.
    seen: usize,
    pub(crate) marks: Vec<LineMark>,
    pub(crate) diagnostics: Vec<Diagnostic>,
    /// Where comments and preprocessor lines stand, for the formatter.
    pub(crate) comments: Vec<Span>,
}

impl<'a> Lexer<'a> {
    pub(crate) fn new(text: &'a str, file: FileId, dialect: Dialect) -> Lexer<'a> {
        Lexer {
            text,
            bytes: text.as_bytes(),
            file,
            dialect,
            at: 0,
            seen: 0,
            marks: Vec::new(),
            diagnostics: Vec::new(),
            comments: Vec::new(),
        }
    }

    pub(crate) fn position(&self) -> usize {
        self.at
    }

    pub(crate) fn back_to(&mut self, token: Token) {
        self.at = token.start;
    }

    pub(crate) fn span(&self, token: Token) -> Span {
        Span::new(self.file, token.start, token.end)
    }

    /// The text of a token; tokens of half a character have none.
    pub(crate) fn text(&self, token: Token) -> &'a str {
        self.text.get(token.start..token.end).unwrap_or("")
    }

    pub(crate) fn next(&mut self) -> Token {
        self.skip_space();
        let start = self.at;
        let (kind, length) = match self.bytes.get(start) {
            None => (TokenKind::End, 0),
            Some(&byte) if is_word(byte) => self.scan_identifier(start),
            Some(b'$') => (TokenKind::Variable, 1 + count_while(&self.bytes[start + 1..], is_variable)),
            Some(&byte) => scan_punctuation(&self.bytes[start..]).unwrap_or((TokenKind::Byte(byte), 1)),
        };
        self.at = start + length;
        Token { kind, start, end: self.at }
    }

    /// Consumes the next token if it is of this kind.
    pub(crate) fn accept_kind(&mut self, kind: TokenKind) -> Option<Token> {
        let token = self.next();
        if token.kind != kind {
            self.back_to(token);
            return None;
        }
        Some(token)
    }

    fn scan_identifier(&self, start: usize) -> (TokenKind, usize) {
        let mut end = start;
        loop {
            end += count_while(&self.bytes[end..], is_word);
            match (self.bytes.get(end), self.bytes.get(end + 1)) {
                (Some(b'/'), Some(&next)) if is_word(next) => end += 1,
                _ => break,
            }
        }
        let kind = match &self.bytes[start..end] {
            b"elementclass" => TokenKind::ElementClass,
            b"require" => TokenKind::Require,
            b"provide" => TokenKind::Provide,
            b"define" => TokenKind::Define,
            _ => TokenKind::Identifier,
        };
        (kind, end - start)
    }

    fn skip_space(&mut self) {
        while let Some(&byte) = self.bytes.get(self.at) {
            if args::is_space(byte) {
                self.at += 1;
            } else if args::starts_comment(self.bytes, self.at) {
                let end = args::skip_comment(self.bytes, self.at);
                self.record_comment(end);
            } else if byte == b'#' && self.line_mark() {
            } else if byte == b'#' && self.is_hash_comment() {
                let end = self.line_end(self.at);
                self.record_comment(end);
            } else {
                break;
            }
        }
    }

    fn record_comment(&mut self, end: usize) {
        if self.at >= self.seen {
            self.comments.push(Span::new(self.file, self.at, end));
            self.seen = end;
        }
        self.at = end;
    }

    fn in_first_column(&self, at: usize) -> bool {
        at == 0 || matches!(self.bytes[at - 1], b'\n' | b'\r')
    }

    fn is_hash_comment(&self) -> bool {
        self.dialect == Dialect::Artery
            && (self.in_first_column(self.at) || args::is_space(self.bytes[self.at - 1]))
    }

    /// Offset of the line end, or of the end of the text.
    fn line_end(&self, from: usize) -> usize {
        from + count_while(&self.bytes[from..], |byte| byte != b'\n' && byte != b'\r')
    }

    /// Consumes a preprocessor line; false if `#` starts none.
    fn line_mark(&mut self) -> bool {
        if !self.in_first_column(self.at) {
            return false;
        }
        let (start, end) = (self.at, self.line_end(self.at));
        let mark = parse_line_mark(&self.text[start..end], self.dialect);
        if mark.is_none() && self.dialect == Dialect::Artery {
            return false;
        }
        self.at = end;
        if start >= self.seen {
            self.seen = end;
            self.record_mark(mark, start, end);
        }
        true
    }

    fn record_mark(&mut self, mark: Option<(u32, Option<String>)>, start: usize, end: usize) {
        match mark {
            Some((line, name)) => {
                let crlf = self.bytes[end..].starts_with(b"\r\n");
                let offset = (end + 1 + usize::from(crlf)) as u32;
                self.marks.push(LineMark { offset, line, name });
                self.comments.push(Span::new(self.file, start, end));
            }
            None => self.diagnostics.push(
                Diagnostic::error("unknown preprocessor directive", Span::new(self.file, start, end))
                    .help("write comments as `// …` or `/* … */`"),
            ),
        }
    }

    /// Reads a configuration string up to its closing parenthesis, which stays to be read.
    pub(crate) fn read_config(&mut self) -> RawConfig {
        let start = self.at;
        let mut text = String::new();
        let mut taken = start;
        let mut depth = 1;
        while let Some(&byte) = self.bytes.get(self.at) {
            match byte {
                b'(' => depth += 1,
                b')' if depth == 1 => break,
                b')' => depth -= 1,
                b'#' if self.in_first_column(self.at) => {
                    text.push_str(&self.text[taken..self.at]);
                    if !self.line_mark() {
                        let end = self.line_end(self.at);
                        self.record_comment(end);
                    }
                    taken = self.at;
                    continue;
                }
                _ => {}
            }
            self.at = self.skip_config_piece(byte);
        }
        text.push_str(&self.text[taken..self.at]);
        RawConfig { text, span: Span::new(self.file, start, self.at) }
    }

    fn skip_config_piece(&self, byte: u8) -> usize {
        let next = self.bytes.get(self.at + 1);
        match (byte, next) {
            (b'/', Some(b'/' | b'*')) => args::skip_comment(self.bytes, self.at),
            (b'\'' | b'"', _) => self.skip_quote(self.at + 1, byte),
            (b'\\', Some(b'<')) => self.skip_hex(self.at + 2),
            _ => self.at + 1,
        }
    }

    fn skip_quote(&self, mut at: usize, quote: u8) -> usize {
        while let Some(&byte) = self.bytes.get(at) {
            match byte {
                b'\\' if quote == b'"' && self.bytes.get(at + 1) == Some(&b'<') => at = self.skip_hex(at + 2),
                b'\\' if quote == b'"' => at += 2,
                _ if byte == quote => return at + 1,
                _ => at += 1,
            }
        }
        self.bytes.len()
    }

    fn skip_hex(&self, mut at: usize) -> usize {
        while let Some(&byte) = self.bytes.get(at) {
            if byte == b'>' {
                return at + 1;
            }
            at = if args::starts_comment(self.bytes, at) {
                args::skip_comment(self.bytes, at)
            } else {
                at + 1
            };
        }
        self.bytes.len()
    }
}

fn is_word(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || byte == b'_' || byte == b'@'
}

pub(crate) fn is_variable(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || byte == b'_'
}

fn count_while(bytes: &[u8], wanted: impl Fn(u8) -> bool) -> usize {
    bytes.iter().take_while(|&&byte| wanted(byte)).count()
}

fn scan_punctuation(bytes: &[u8]) -> Option<(TokenKind, usize)> {
    let kind = match bytes {
        [b'-', b'>', ..] => TokenKind::Arrow,
        [b'=', b'>', ..] => TokenKind::DoubleArrow,
        [b':', b':', ..] => TokenKind::DoubleColon,
        [b'|', b'|', ..] => TokenKind::DoubleBar,
        [b'.', b'.', b'.', ..] => return Some((TokenKind::Dots, 3)),
        _ => return None,
    };
    Some((kind, 2))
}

/// Takes `# 12 "f"` or `#line 12 "f"` apart. Click looks no further than the number; we want nothing
/// else on the line but flags behind the name, so that `# 0. Packets` is a comment.
pub(crate) fn parse_line_mark(line: &str, dialect: Dialect) -> Option<(u32, Option<String>)> {
    let blanks = |c: char| c == ' ' || c == '\t';
    let rest = line[1..].trim_start_matches(blanks);
    let rest = match rest.strip_prefix("line") {
        Some(after) if after.starts_with(blanks) => after.trim_start_matches(blanks),
        _ => rest,
    };
    let digits = count_while(rest.as_bytes(), |byte| byte.is_ascii_digit());
    let (number, rest) = (&rest[..digits], rest[digits..].trim_start_matches(blanks));
    if number.is_empty() {
        return None;
    }
    let line = number.parse().unwrap_or(u32::MAX);
    match rest.strip_prefix('"') {
        Some(quoted) => Some((line, Some(file_name(quoted)))),
        None if rest.is_empty() || dialect == Dialect::Click => Some((line, None)),
        None => None,
    }
}

fn file_name(quoted: &str) -> String {
    let bytes = quoted.as_bytes();
    let mut end = 0;
    while end < bytes.len() && bytes[end] != b'"' {
        end += if bytes[end] == b'\\' { 2 } else { 1 };
    }
    args::unquote(&format!("\"{}\"", quoted.get(..end).unwrap_or(quoted)))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lexer(text: &str, dialect: Dialect) -> Lexer<'_> {
        Lexer::new(text, FileId::default(), dialect)
    }

    fn tokens(text: &str) -> Vec<String> {
        let mut lexer = lexer(text, Dialect::Click);
        let mut tokens = Vec::new();
        loop {
            let token = lexer.next();
            if token.kind == TokenKind::End {
                return tokens;
            }
            tokens.push(text[token.start..token.end].to_string());
        }
    }

    fn config(text: &str) -> String {
        lexer(text, Dialect::Click).read_config().text
    }

    #[test]
    fn identifiers_join_at_single_slashes_and_may_start_with_digits_or_at() {
        assert_eq!(tokens("a/b@2 @1 0x a/ b a//b\n c"), ["a/b@2", "@1", "0x", "a", "/", "b", "a", "c"]);
    }

    #[test]
    fn keywords_are_whole_words() {
        let kinds = ["elementclass", "require", "provide", "define", "defined"];
        let kinds = kinds.map(|word| lexer(word, Dialect::Click).next().kind);
        let wanted = [
            TokenKind::ElementClass,
            TokenKind::Require,
            TokenKind::Provide,
            TokenKind::Define,
            TokenKind::Identifier,
        ];
        assert_eq!(kinds, wanted);
    }

    #[test]
    fn long_tokens_come_before_single_bytes() {
        let found = tokens("->=>::||... - > = : | .. $ab$");
        assert_eq!(found, ["->", "=>", "::", "||", "...", "-", ">", "=", ":", "|", ".", ".", "$ab", "$"]);
    }

    #[test]
    fn white_space_and_comments_are_skipped() {
        assert_eq!(tokens("a//x\rb/* /* */c\x0bd\x0ce // end"), ["a", "b", "c", "d", "e"]);
    }

    #[test]
    fn an_unterminated_comment_runs_silently_to_the_end() {
        let mut lexer = lexer("a /* b", Dialect::Click);
        lexer.next();
        assert_eq!(lexer.next().kind, TokenKind::End);
        assert!(lexer.diagnostics.is_empty());
        assert_eq!(tokens("a /*"), ["a"]);
    }

    #[test]
    fn a_hash_elsewhere_is_an_ordinary_byte_for_click() {
        assert_eq!(tokens("a # b"), ["a", "#", "b"]);
    }

    #[test]
    fn preprocessor_lines_move_the_line_count() {
        let mut lexer = lexer("# 12 \"f\"\na\n#line 3\r\nb", Dialect::Click);
        while lexer.next().kind != TokenKind::End {}
        let mark = |offset, line, name: Option<&str>| LineMark { offset, line, name: name.map(String::from) };
        assert_eq!(lexer.marks, [mark(9, 12, Some("f")), mark(20, 3, None)]);
    }

    #[test]
    fn an_unknown_directive_is_one_error_for_click_and_a_comment_for_us() {
        let text = "#define X\na";
        let mut click = lexer(text, Dialect::Click);
        let token = click.next();
        click.back_to(token);
        click.next();
        assert_eq!(click.diagnostics.len(), 1);
        assert_eq!(click.diagnostics[0].message, "unknown preprocessor directive");
        let mut ours = lexer(text, Dialect::Artery);
        assert_eq!(ours.next().start, 10);
        assert!(ours.diagnostics.is_empty());
    }

    #[test]
    fn hash_comments_are_read_in_column_0_and_after_white_space() {
        let mut lexer = lexer("# 0. Packets (to tsb)\na # b\n  # c\nd", Dialect::Artery);
        assert_eq!((lexer.next().start, lexer.next().start), (22, 34));
        assert!(lexer.marks.is_empty());
        assert_eq!(lexer.comments.len(), 3);
    }

    #[test]
    fn parentheses_nest_in_configuration_strings_and_are_hidden_by_quotes_and_comments() {
        assert_eq!(config("a(b)c)d"), "a(b)c");
        assert_eq!(
            config("'(' \"\\\")\" \\<29 /*>*/ )> /* ) */ // )\n) x"),
            "'(' \"\\\")\" \\<29 /*>*/ )> /* ) */ // )\n"
        );
        assert_eq!(config("'a"), "'a");
        assert_eq!(config("\"\\<"), "\"\\<");
        assert_eq!(config("\"\\"), "\"\\");
    }

    #[test]
    fn preprocessor_lines_vanish_from_configuration_strings() {
        assert_eq!(config("a,\n# 7 \"g\"\nb)"), "a,\n\nb");
        let mut ours = lexer("a,\n# odd ) one\nb #c)", Dialect::Artery);
        assert_eq!(ours.read_config().text, "a,\n\nb #c");
    }

    #[test]
    fn a_byte_that_is_no_ascii_is_a_token_of_its_own() {
        let mut lexer = lexer("é", Dialect::Click);
        assert_eq!(lexer.next().kind, TokenKind::Byte(0xc3));
        assert_eq!(lexer.next().kind, TokenKind::Byte(0xa9));
    }
}
