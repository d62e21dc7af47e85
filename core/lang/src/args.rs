//! Configuration strings: splitting into arguments and words, quoting, and values that need no wire types.
//!
//! A configuration string is bytes. Everything that matters to it is ASCII, so functions take `&str`;
//! what unquotes to bytes that are no UTF-8 comes whole from [`unquote_bytes`] and with replacement
//! characters from [`unquote`].

mod number;
mod quote;

pub use number::{
    ArgError, parse_bandwidth, parse_bool, parse_fixed, parse_seconds, parse_signed, parse_unsigned,
    scaled_unsigned, unsigned_in_base,
};
pub use quote::{quote, quote_bytes, unquote, unquote_bytes};

/// Splits a configuration string at its top-level commas.
///
/// Comments become single spaces and blanks at the ends go; a trailing empty argument is dropped,
/// an inner one kept.
pub fn split(config: &str) -> Vec<String> {
    let bytes = config.as_bytes();
    let mut arguments = Vec::new();
    let mut at = 0;
    while at < bytes.len() {
        let (argument, end) = uncomment_until(&bytes[at..], true);
        at += end;
        if !argument.is_empty() || at < bytes.len() {
            arguments.push(into_text(argument));
        }
        at += 1;
    }
    arguments
}

/// Joins arguments the way [`split`] takes them apart.
pub fn join<S: AsRef<str>>(arguments: &[S]) -> String {
    arguments.iter().map(AsRef::as_ref).collect::<Vec<&str>>().join(", ")
}

/// Splits an argument at unquoted white space and comments.
pub fn split_words(argument: &str) -> Vec<String> {
    let mut rest = argument;
    let mut words = Vec::new();
    loop {
        let (word, after) = shift_word(rest);
        if word.is_empty() {
            return words;
        }
        words.push(word.to_string());
        rest = after;
    }
}

/// The first word of an argument, and what follows it and its white space.
pub fn shift_word(argument: &str) -> (&str, &str) {
    let bytes = argument.as_bytes();
    let start = skip_space(bytes, 0);
    let end = skip_word(bytes, start);
    (&argument[start..end], &argument[skip_space(bytes, end)..])
}

/// Replaces comments by single spaces and removes blanks at both ends.
pub fn strip_comments(argument: &str) -> String {
    into_text(uncomment_until(argument.as_bytes(), false).0)
}

/// An argument that is one string: quoted parts may hold blanks, the rest may not.
pub fn parse_string(argument: &str) -> Option<String> {
    string_bytes(argument).map(into_text)
}

/// Like [`parse_string`], for data that need not be text.
pub fn string_bytes(argument: &str) -> Option<Vec<u8>> {
    let bytes = argument.as_bytes();
    let mut at = 0;
    while at < bytes.len() && !is_space(bytes[at]) {
        at = skip_piece(bytes, at);
    }
    (at > 0 && at == bytes.len()).then(|| unquote_bytes(argument))
}

/// An argument that is one word: a string without blanks, quotes, backslashes and commas.
pub fn parse_word(argument: &str) -> Option<String> {
    parse_string(argument).filter(|word| is_word(word))
}

/// True for one or more visible ASCII characters other than quotes, backslash and comma.
pub fn is_word(text: &str) -> bool {
    !text.is_empty()
        && text.bytes().all(|c| c.is_ascii_graphic() && !matches!(c, b'"' | b'\'' | b'\\' | b','))
}

/// True for what may name an element or class.
pub fn is_identifier(text: &str) -> bool {
    !text.is_empty()
        && text.split('/').all(|part| {
            !part.is_empty() && part.bytes().all(|c| c.is_ascii_alphanumeric() || matches!(c, b'_' | b'@'))
        })
}

/// Splits `KEYWORD value`; an argument that starts with no keyword gives `None`.
pub fn split_keyword(argument: &str) -> Option<(&str, &str)> {
    let end = argument.bytes().position(is_space).unwrap_or(argument.len());
    let legal = |c: u8| c.is_ascii_alphanumeric() || matches!(c, b'_' | b'.' | b':' | b'?' | b'!');
    let (keyword, rest) = argument.split_at_checked(end)?;
    let rest = &rest[rest.bytes().take_while(|&c| is_space(c)).count()..];
    (!keyword.is_empty() && keyword.bytes().all(legal)).then_some((keyword, rest))
}

pub(crate) fn is_space(byte: u8) -> bool {
    matches!(byte, b' ' | b'\t' | b'\n' | b'\r' | 0x0b | 0x0c)
}

fn into_text(bytes: Vec<u8>) -> String {
    String::from_utf8(bytes).unwrap_or_else(|error| String::from_utf8_lossy(error.as_bytes()).into_owned())
}

/// The text up to its end, or up to a comma when `stop_at_comma`, and the offset where it stopped.
fn uncomment_until(bytes: &[u8], stop_at_comma: bool) -> (Vec<u8>, usize) {
    let mut at = skip_space(bytes, 0);
    let mut out = Vec::new();
    let (mut left, mut right) = (at, at);
    let mut after_comment = false;
    while at < bytes.len() && !(stop_at_comma && bytes[at] == b',') {
        if is_space(bytes[at]) {
            at += 1;
        } else if starts_comment(bytes, at) {
            at = skip_comment(bytes, at);
            after_comment = true;
        } else {
            if after_comment {
                out.extend_from_slice(&bytes[left..right]);
                out.push(b' ');
                left = at;
                after_comment = false;
            }
            at = skip_piece(bytes, at);
            right = at;
        }
    }
    out.extend_from_slice(&bytes[left..right]);
    (out, at)
}

/// Past a quoted string, a `\<…>` or else one byte.
fn skip_piece(bytes: &[u8], at: usize) -> usize {
    match bytes[at] {
        b'\'' => skip_single_quote(bytes, at),
        b'"' => skip_double_quote(bytes, at),
        b'\\' if bytes.get(at + 1) == Some(&b'<') => skip_backslash(bytes, at),
        _ => at + 1,
    }
}

fn skip_word(bytes: &[u8], mut at: usize) -> usize {
    while at < bytes.len() && !is_space(bytes[at]) && !starts_comment(bytes, at) {
        at = skip_piece(bytes, at);
    }
    at
}

pub(crate) fn starts_comment(bytes: &[u8], at: usize) -> bool {
    bytes[at] == b'/' && matches!(bytes.get(at + 1), Some(b'/' | b'*'))
}

/// Past white space and comments.
pub(crate) fn skip_space(bytes: &[u8], mut at: usize) -> usize {
    while at < bytes.len() {
        if is_space(bytes[at]) {
            at += 1;
        } else if starts_comment(bytes, at) {
            at = skip_comment(bytes, at);
        } else {
            break;
        }
    }
    at
}

/// Past the comment that starts here, including the line end of a `//` comment.
pub(crate) fn skip_comment(bytes: &[u8], start: usize) -> usize {
    let rest = &bytes[start + 2..];
    let length = if bytes[start + 1] == b'*' {
        rest.windows(2).position(|pair| pair == b"*/").map(|at| at + 2)
    } else {
        rest.iter().position(|&c| c == b'\n' || c == b'\r').map(|at| {
            let crlf = rest[at] == b'\r' && rest.get(at + 1) == Some(&b'\n');
            at + if crlf { 2 } else { 1 }
        })
    };
    length.map_or(bytes.len(), |length| start + 2 + length)
}

fn skip_single_quote(bytes: &[u8], start: usize) -> usize {
    bytes[start + 1..].iter().position(|&c| c == b'\'').map_or(bytes.len(), |at| start + at + 2)
}

fn skip_double_quote(bytes: &[u8], start: usize) -> usize {
    let mut at = start + 1;
    while at < bytes.len() {
        match bytes[at] {
            b'\\' => at = skip_backslash(bytes, at),
            b'"' => return at + 1,
            _ => at += 1,
        }
    }
    bytes.len()
}

fn skip_backslash(bytes: &[u8], start: usize) -> usize {
    match bytes.get(start + 1) {
        Some(b'<') => skip_hex(bytes, start + 2),
        Some(b'\r') if bytes.get(start + 2) == Some(&b'\n') => start + 3,
        _ => (start + 2).min(bytes.len()),
    }
}

/// Past the `>` that ends a `\<…>`, which may hold comments.
fn skip_hex(bytes: &[u8], mut at: usize) -> usize {
    while at < bytes.len() {
        if bytes[at] == b'>' {
            return at + 1;
        }
        at = if starts_comment(bytes, at) { skip_comment(bytes, at) } else { at + 1 };
    }
    bytes.len()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn arguments_are_split_at_top_level_commas() {
        assert_eq!(split("a, b, c"), ["a", "b", "c"]);
        assert_eq!(split(r#""x, y", 'p, q', \<2c /* , */>"#), [r#""x, y""#, "'p, q'", r"\<2c /* , */>"]);
        assert_eq!(split(r#""\",", z"#), [r#""\",""#, "z"]);
    }

    #[test]
    fn comments_become_spaces_and_blanks_at_the_ends_go() {
        assert_eq!(split("  a /*?*/ b,  c // d\n , "), ["a b", "c"]);
        assert_eq!(strip_comments("  a   b  "), "a   b");
        assert_eq!(strip_comments("  a /* Comment */       b  "), "a b");
        assert_eq!(strip_comments("  \" /*???  */ \"  "), "\" /*???  */ \"");
        assert_eq!(strip_comments("a // b\rc"), "a c");
    }

    #[test]
    fn a_trailing_empty_argument_is_dropped_and_an_inner_one_kept() {
        assert_eq!(split("a, , b,"), ["a", "", "b"]);
        assert_eq!(split(","), [""]);
        assert!(split("  ").is_empty());
        assert!(split("").is_empty());
        assert_eq!(join(&split("a,,b")), "a, , b");
    }

    #[test]
    fn words_end_at_unquoted_white_space_and_comments() {
        assert_eq!(split_words("a  b, 'c d'e"), ["a", "b,", "'c d'e"]);
        assert_eq!(split_words("  'a /*?*/ b'c/*x*/d"), ["'a /*?*/ b'c", "d"]);
        assert_eq!(shift_word("  x /* y */ z w"), ("x", "z w"));
        assert_eq!(shift_word("   "), ("", ""));
    }

    #[test]
    fn a_string_is_one_word_after_unquoting() {
        assert_eq!(parse_string("abc").as_deref(), Some("abc"));
        assert_eq!(parse_string("\"a b\"'c d'").as_deref(), Some("a bc d"));
        assert_eq!(parse_string("a b"), None);
        assert_eq!(parse_string(""), None);
        assert_eq!(parse_string("\"\"").as_deref(), Some(""));
        assert_eq!(string_bytes("\\<ff 00>"), Some(vec![0xff, 0]));
        assert_eq!(parse_word("a,b"), None);
        assert_eq!(parse_word("eth0.1").as_deref(), Some("eth0.1"));
    }

    #[test]
    fn a_keyword_is_followed_by_its_value() {
        assert_eq!(split_keyword("LIMIT  10"), Some(("LIMIT", "10")));
        assert_eq!(split_keyword("STOP"), Some(("STOP", "")));
        assert_eq!(split_keyword("1.2.3.4/8 x"), None);
        assert_eq!(split_keyword(""), None);
    }

    #[test]
    fn identifiers_hold_single_slashes_inside() {
        assert!(is_identifier("a/b@2") && is_identifier("@1"));
        assert!(!is_identifier("a//b") && !is_identifier("/a") && !is_identifier("a/") && !is_identifier(""));
    }

    proptest::proptest! {
        #[test]
        fn no_text_makes_splitting_panic(text in "[-a\\\\\"'</>* ,\n\ré]{0,40}") {
            for argument in split(&text) {
                split_words(&argument);
                unquote_bytes(&argument);
                parse_string(&argument);
                split_keyword(&argument);
            }
            shift_word(&text);
        }

        #[test]
        fn quoting_is_undone_by_unquoting(data: Vec<u8>) {
            let quoted = quote_bytes(&data);
            proptest::prop_assert_eq!(unquote_bytes(&quoted), data);
            proptest::prop_assert_eq!(split(&quoted), vec![quoted.clone()]);
        }
    }
}
