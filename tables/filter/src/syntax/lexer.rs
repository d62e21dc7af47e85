//! From text to tokens: comments, continued lines, strings, expansion of macros, included files.
//!
//! A macro is put in as characters, so that `$if:network` is one word; within what a macro stands for no
//! further one is looked for, which is why this ends. The line of a token is the one that it begins in.
use super::words::reserved_word;
use std::collections::HashMap;
use std::sync::Arc;

/// How deep files may include one another.
const MOST_FILES: usize = 16;

/// The longest word or string.
const MOST_TEXT: usize = 8096;

/// A piece of the text.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Token {
    /// A word that is reserved.
    Key(&'static str),
    /// Any other word, or a string in quotes.
    Text(String),
    Number(i64),
    /// A sign, or two that belong together such as `!=`.
    Sign(&'static str),
    /// A character that nothing begins with.
    Strange(char),
    /// The end of a line.
    Newline,
    /// Something that was complained about.
    Bad,
    /// The end of all text.
    End,
}

const SIGNS: [&str; 7] = ["{", "}", "(", ")", "=", "/", ","];

/// Takes a text apart.
pub(crate) struct Lexer {
    frames: Vec<Frame>,
    macros: HashMap<String, Macro>,
    /// The file of the last token.
    pub(crate) file: Arc<str>,
    /// The line that the last token begins in.
    pub(crate) line: u32,
    /// What was wrong with the last token.
    pub(crate) complaint: Option<String>,
}

struct Macro {
    value: String,
    is_fixed: bool,
}

/// Text that is being read: a file, or what a macro stands for.
struct Frame {
    bytes: Vec<u8>,
    next: usize,
    line: u32,
    /// The file's name; None for the text of a macro.
    file: Option<Arc<str>>,
    has_ended: bool,
}

#[derive(Clone, Copy, PartialEq, Eq)]
struct ReadByte {
    byte: u8,
    is_from_macro: bool,
}

impl Lexer {
    /// A lexer of `text`, whose file is called `name`.
    pub(crate) fn new(name: &str, text: &[u8]) -> Lexer {
        let file: Arc<str> = name.into();
        let frames = vec![Frame::from_file(file.clone(), text.to_vec())];
        Lexer { frames, macros: HashMap::new(), file, line: 1, complaint: None }
    }

    /// Reads another file first; false when files include one another too deeply.
    pub(crate) fn include_file(&mut self, name: &str, text: Vec<u8>) -> bool {
        let depth = self.frames.iter().filter(|frame| frame.file.is_some()).count();
        if depth >= MOST_FILES {
            return false;
        }
        self.frames.push(Frame::from_file(name.into(), text));
        true
    }

    /// Defines a macro; one that is fixed is not changed by the text.
    pub(crate) fn define_macro(&mut self, name: &str, value: &str, is_fixed: bool) {
        if is_fixed || self.macros.get(name).is_none_or(|old| !old.is_fixed) {
            self.macros.insert(name.to_string(), Macro { value: value.to_string(), is_fixed });
        }
    }

    pub(crate) fn next(&mut self) -> Token {
        loop {
            let first = self.skip_blanks();
            self.mark_token_start();
            match first {
                None => return Token::End,
                Some(ReadByte { byte: b'$', is_from_macro: false }) => match self.expand_macro() {
                    Ok(()) => continue,
                    Err(complaint) => return self.reject_line(complaint),
                },
                Some(read) => return self.read_token(read.byte),
            }
        }
    }

    /// Remembers where a token begins.
    fn mark_token_start(&mut self) {
        if let Some((line, file)) =
            self.frames.iter().rev().find_map(|frame| frame.file.clone().map(|file| (frame.line, file)))
        {
            (self.line, self.file) = (line, file);
        }
    }

    fn read_token(&mut self, first: u8) -> Token {
        match first {
            b'\n' => {
                self.count_line();
                Token::Newline
            }
            b'"' | b'\'' => self.read_quoted(first),
            b'!' => self.read_sign("!", &[(b'=', "!=")]),
            b'<' => self.read_sign("<", &[(b'=', "<="), (b'>', "<>")]),
            b'>' => self.read_sign(">", &[(b'=', ">="), (b'<', "><")]),
            b'-' | b'0'..=b'9' => self.read_number(first),
            b':' | b'_' | b'a'..=b'z' | b'A'..=b'Z' => self.read_word(vec![first]),
            other => match SIGNS.iter().find(|sign| sign.as_bytes() == [other]) {
                Some(sign) => Token::Sign(sign),
                None => Token::Strange(other as char),
            },
        }
    }

    fn read_sign(&mut self, alone: &'static str, pairs: &[(u8, &'static str)]) -> Token {
        let next = self.next_byte();
        match pairs.iter().find(|(byte, _)| next.is_some_and(|read| read.byte == *byte)) {
            Some((_, pair)) => Token::Sign(pair),
            None => {
                self.unread_byte(next);
                Token::Sign(alone)
            }
        }
    }

    /// Digits are a number only where something ends them that can; otherwise they begin a word, such as an
    /// address, and the sign before them stands for itself, as in a range of addresses.
    fn read_number(&mut self, first: u8) -> Token {
        let mut text = vec![first];
        let mut reads = Vec::new();
        let mut end = self.next_byte();
        while let Some(read) = end.filter(|read| read.byte.is_ascii_digit()) {
            text.push(read.byte);
            reads.push(read);
            end = self.next_byte();
        }
        self.unread_byte(end);
        let is_ended =
            end.is_none_or(|read| read.byte.is_ascii_whitespace() || b"),/}=".contains(&read.byte));
        if first == b'-' && (reads.is_empty() || !is_ended) {
            reads.into_iter().rev().for_each(|read| self.unread_byte(Some(read)));
            return Token::Sign("-");
        }
        if !is_ended {
            return self.read_word(text);
        }
        let digits = String::from_utf8_lossy(&text).into_owned();
        match digits.parse() {
            Ok(number) => Token::Number(number),
            Err(_) => self.reject_line(format!("\"{digits}\" is too large a number")),
        }
    }

    fn read_word(&mut self, mut text: Vec<u8>) -> Token {
        while let Some(read) = self.next_byte() {
            if !belongs_to_word(read.byte) {
                self.unread_byte(Some(read));
                break;
            }
            text.push(read.byte);
            if text.len() > MOST_TEXT {
                return self.reject_line("a word is too long".into());
            }
        }
        let text = String::from_utf8_lossy(&text).into_owned();
        reserved_word(&text).map_or(Token::Text(text), Token::Key)
    }

    fn read_quoted(&mut self, quote: u8) -> Token {
        let mut text = Vec::new();
        let begin = (self.frames.len(), self.frames.last().map_or((0, 0), |frame| (frame.next, frame.line)));
        loop {
            let Some(read) = self.raw_byte() else { return self.report_unterminated(begin) };
            match read.byte {
                b'\n' if read.is_from_macro => (),
                b'\n' => self.count_line(),
                b'\\' => match self.raw_byte() {
                    Some(next) if next.byte == quote || next.byte == b' ' || next.byte == b'\t' => {
                        text.push(next.byte);
                    }
                    Some(ReadByte { byte: b'\n', .. }) => self.count_line(),
                    next => {
                        self.unread_byte(next);
                        text.push(b'\\');
                    }
                },
                0 => return self.reject_line("a string has a byte 0".into()),
                byte if byte == quote => return Token::Text(String::from_utf8_lossy(&text).into_owned()),
                byte => text.push(byte),
            }
            if text.len() > MOST_TEXT {
                return self.reject_line("a string is too long".into());
            }
        }
    }

    /// Complains of a string that has no end, and leaves the lines below its first one to be read.
    fn report_unterminated(&mut self, (frames, (next, line)): (usize, (usize, u32))) -> Token {
        if let Some(frame) = self.frames.last_mut().filter(|_| frames == 1) {
            (frame.next, frame.line) = (next, line);
        }
        self.reject_line("a string has no closing quote".into())
    }

    /// Complains, and leaves the rest of the line unread.
    fn reject_line(&mut self, complaint: String) -> Token {
        self.complaint = Some(complaint);
        while let Some(read) = self.next_byte() {
            if read.byte == b'\n' {
                self.unread_byte(Some(read));
                break;
            }
        }
        Token::Bad
    }

    fn expand_macro(&mut self) -> Result<(), String> {
        let mut name = Vec::new();
        while let Some(read) = self.next_byte() {
            if !(read.byte.is_ascii_alphanumeric() || read.byte == b'_') {
                self.unread_byte(Some(read));
                break;
            }
            name.push(read.byte);
        }
        let name = String::from_utf8_lossy(&name).into_owned();
        let Some(found) = self.macros.get(&name) else {
            return Err(format!("macro '{name}' not defined\nwrite {name} = \"…\" above"));
        };
        let bytes = found.value.clone().into_bytes();
        self.frames.push(Frame { bytes, next: 0, line: 0, file: None, has_ended: true });
        Ok(())
    }

    /// The first byte that is neither blank nor in a comment.
    fn skip_blanks(&mut self) -> Option<ReadByte> {
        let mut read = self.next_byte();
        while read.is_some_and(|read| read.byte == b' ' || read.byte == b'\t') {
            read = self.next_byte();
        }
        if read.is_some_and(|read| read.byte == b'#') {
            while read.is_some_and(|read| read.byte != b'\n') {
                read = self.next_byte();
            }
        }
        read
    }

    /// The next byte of joined lines. A backslash before anything else is left out.
    fn next_byte(&mut self) -> Option<ReadByte> {
        loop {
            let read = self.raw_byte()?;
            if read.byte != b'\\' {
                return Some(read);
            }
            let next = self.raw_byte()?;
            if next.byte != b'\n' {
                return Some(next);
            }
            self.count_line();
        }
    }

    /// The next byte as it stands. Each file ends in a line of its own.
    fn raw_byte(&mut self) -> Option<ReadByte> {
        loop {
            let is_last = self.frames.len() == 1;
            let frame = self.frames.last_mut()?;
            if let Some(byte) = frame.bytes.get(frame.next) {
                frame.next += 1;
                return Some(ReadByte { byte: *byte, is_from_macro: frame.file.is_none() });
            }
            if !frame.has_ended {
                frame.has_ended = true;
                frame.bytes.push(b'\n');
                continue;
            }
            if is_last {
                return None;
            }
            self.frames.pop();
        }
    }

    /// Leaves a byte to be read again; it may stand in another text than the one that is read now.
    fn unread_byte(&mut self, read: Option<ReadByte>) {
        let Some(read) = read else { return };
        let Some(frame) = self.frames.last_mut() else { return };
        if frame.file.is_none() == read.is_from_macro && frame.next > 0 {
            frame.next -= 1;
        } else {
            frame.bytes.insert(frame.next, read.byte);
        }
    }

    fn count_line(&mut self) {
        if let Some(frame) = self.frames.iter_mut().rev().find(|frame| frame.file.is_some()) {
            frame.line += 1;
        }
    }
}

impl Frame {
    fn from_file(name: Arc<str>, bytes: Vec<u8>) -> Frame {
        Frame { bytes, next: 0, line: 1, file: Some(name), has_ended: false }
    }
}

/// What a word may go on with.
fn belongs_to_word(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || (byte.is_ascii_punctuation() && !b"(){}<>!=/#,".contains(&byte))
}

/// Whether a text can be written without quotes.
pub(crate) fn is_plain_word(text: &str) -> bool {
    let first = text.bytes().next();
    let begins = first.is_some_and(|byte| byte.is_ascii_alphanumeric() || byte == b'_');
    begins
        && text.bytes().all(|byte| belongs_to_word(byte) && byte != b'\\')
        && !text.bytes().all(|byte| byte.is_ascii_digit())
        && reserved_word(text).is_none()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn all(text: &str) -> Vec<Token> {
        let mut lexer = Lexer::new("stdin", text.as_bytes());
        lexer.define_macro("if", "em0", false);
        lexer.define_macro("two", "{ a $if }", false);
        std::iter::from_fn(|| Some(lexer.next()).filter(|token| *token != Token::End)).collect()
    }

    fn text(word: &str) -> Token {
        Token::Text(word.into())
    }

    #[test]
    fn numbers_end_where_nothing_but_a_word_could_go_on() {
        assert_eq!(all("10/8"), [Token::Number(10), Token::Sign("/"), Token::Number(8), Token::Newline]);
        assert_eq!(all("10.0.0.1 80:90 -5 20%")[..2], [text("10.0.0.1"), text("80:90")]);
        assert_eq!(all("-5 20%")[..2], [Token::Number(-5), text("20%")]);
    }

    #[test]
    fn a_macro_is_put_in_as_characters_and_once_only() {
        assert_eq!(all("on $if:network")[..2], [Token::Key("on"), text("em0:network")]);
        let tokens = all("$two");
        assert_eq!(tokens[..3], [Token::Sign("{"), text("a"), Token::Strange('$')]);
    }

    #[test]
    fn lines_that_are_joined_are_counted() {
        let mut lexer = Lexer::new("stdin", b"pass \\\n in # so \\\n it is\n\nout");
        let mut seen = Vec::new();
        loop {
            let token = lexer.next();
            seen.push((lexer.line, token.clone()));
            if token == Token::End {
                break;
            }
        }
        let lines: Vec<u32> = seen.iter().map(|(line, _)| *line).collect();
        assert_eq!(lines, [1, 2, 3, 4, 5, 5, 6]);
    }

    #[test]
    fn what_is_quoted_is_no_reserved_word() {
        assert_eq!(all("\"pass\" 'a \\' b' \"$if\"")[..3], [text("pass"), text("a ' b"), text("$if")]);
    }

    #[test]
    fn a_macro_that_is_not_there_ends_its_line() {
        let mut lexer = Lexer::new("stdin", b"pass on $x\nblock");
        assert_eq!((lexer.next(), lexer.next()), (Token::Key("pass"), Token::Key("on")));
        assert_eq!(lexer.next(), Token::Bad);
        assert!(lexer.complaint.as_ref().is_some_and(|why| why.starts_with("macro 'x' not defined")));
        assert_eq!((lexer.next(), lexer.line), (Token::Newline, 1));
        assert_eq!((lexer.next(), lexer.line), (Token::Key("block"), 2));
    }

    #[test]
    fn a_string_without_an_end_ends_its_line() {
        let mut lexer = Lexer::new("stdin", b"pass on \"em0\nblock \\\n in\n");
        assert_eq!((lexer.next(), lexer.next()), (Token::Key("pass"), Token::Key("on")));
        assert_eq!((lexer.next(), lexer.complaint.take().is_some()), (Token::Bad, true));
        assert_eq!((lexer.next(), lexer.line), (Token::Newline, 1));
        assert_eq!((lexer.next(), lexer.line), (Token::Key("block"), 2));
    }
}
