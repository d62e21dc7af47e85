//! Quoting: `"…"` with escapes, `'…'` raw, `\<48 65>` bytes; adjacent pieces concatenate.

use super::{into_text, skip_comment, starts_comment, uncomment_until};

/// Removes one level of quoting and all comments outside quotes.
pub fn unquote(argument: &str) -> String {
    into_text(unquote_bytes(argument))
}

/// Like [`unquote`], for data that need not be text.
pub fn unquote_bytes(argument: &str) -> Vec<u8> {
    let (bytes, _) = uncomment_until(argument.as_bytes(), false);
    let mut out = Vec::with_capacity(bytes.len());
    let mut quote = None;
    let mut at = 0;
    while at < bytes.len() {
        let byte = bytes[at];
        let escape = match quote {
            Some(b'"') => byte == b'\\' && at + 1 < bytes.len(),
            None => byte == b'\\' && bytes.get(at + 1) == Some(&b'<'),
            Some(_) => false,
        };
        if escape {
            at = decode_escape(&bytes, at, &mut out);
            continue;
        }
        match (byte, quote) {
            (b'"' | b'\'', None) => quote = Some(byte),
            (_, Some(open)) if open == byte => quote = None,
            _ => out.push(byte),
        }
        at += 1;
    }
    out
}

/// Puts text into double quotes so that [`unquote`] gives it back.
pub fn quote(text: &str) -> String {
    quote_bytes(text.as_bytes())
}

/// Like [`quote`], for data that need not be text.
pub fn quote_bytes(data: &[u8]) -> String {
    let mut out = String::with_capacity(data.len() + 2);
    out.push('"');
    for &byte in data {
        match byte {
            b'\\' | b'"' | b'$' => out.extend(['\\', byte as char]),
            b'\t' => out.push_str("\\t"),
            b'\r' => out.push_str("\\r"),
            b'\n' => out.push_str("\\n"),
            32..127 => out.push(byte as char),
            _ => out.push_str(&format!("\\{byte:03o}")),
        }
    }
    out.push('"');
    out
}

/// Decodes the escape at `start`, which is a backslash with something behind it; gives the offset past it.
fn decode_escape(bytes: &[u8], start: usize, out: &mut Vec<u8>) -> usize {
    let next = start + 2;
    let plain = match bytes[start + 1] {
        b'\r' => return if bytes.get(next) == Some(&b'\n') { next + 1 } else { next },
        b'\n' => return next,
        b'0'..=b'7' => return unescape_octal(bytes, start + 1, out),
        b'x' => return unescape_hex(bytes, next, out),
        b'<' => return unescape_bytes(bytes, next, out),
        b'a' => 7,
        b'b' => 8,
        b't' => b'\t',
        b'n' => b'\n',
        b'v' => 11,
        b'f' => 12,
        b'r' => b'\r',
        other => other,
    };
    out.push(plain);
    next
}

fn unescape_octal(bytes: &[u8], start: usize, out: &mut Vec<u8>) -> usize {
    let digits = bytes[start..].iter().take(3).take_while(|c| matches!(c, b'0'..=b'7'));
    let (length, value) = digits.fold((0, 0u32), |(n, value), c| (n + 1, value * 8 + u32::from(c - b'0')));
    out.push(value as u8);
    start + length
}

fn unescape_hex(bytes: &[u8], start: usize, out: &mut Vec<u8>) -> usize {
    let digits = bytes[start..].iter().map_while(|&c| (c as char).to_digit(16));
    let (length, value) = digits.fold((0, 0u8), |(n, value), d| (n + 1, (value << 4) | d as u8));
    out.push(value);
    start + length
}

/// Decodes up to the `>`; skips whatever is neither a hex digit nor a comment, and an unpaired last digit.
fn unescape_bytes(bytes: &[u8], mut at: usize, out: &mut Vec<u8>) -> usize {
    let mut high = None;
    while at < bytes.len() && bytes[at] != b'>' {
        if starts_comment(bytes, at) {
            at = skip_comment(bytes, at);
            continue;
        }
        if let Some(digit) = (bytes[at] as char).to_digit(16) {
            high = match high {
                None => Some(digit),
                Some(high) => {
                    out.push((high << 4 | digit) as u8);
                    None
                }
            };
        }
        at += 1;
    }
    (at + 1).min(bytes.len())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn single_quotes_are_raw_and_double_quotes_know_escapes() {
        assert_eq!(unquote(r"'a\n$b'"), r"a\n$b");
        assert_eq!(unquote(r#""\\ \" \$ \n\t\r\a\b\f\v""#), "\\ \" $ \n\t\r\u{7}\u{8}\u{c}\u{b}");
        assert_eq!(unquote_bytes(r#""\1012\xfF\x141""#), [0o101, b'2', 0xff, 0x41]);
        assert_eq!(unquote("\"a\\\nb\\\r\nc\""), "abc");
        assert_eq!(unquote(r#"\n"#), r"\n");
    }

    #[test]
    fn hex_bytes_work_bare_and_in_double_quotes_with_blanks_and_comments() {
        assert_eq!(unquote("\\<48656c6C 6f 2 /* finally */ 1>"), "Hello!");
        assert_eq!(unquote("\"\\<48 65>\"'y'"), "Hey");
        assert_eq!(unquote_bytes("\\<4"), b"");
    }

    #[test]
    fn adjacent_pieces_concatenate_and_comments_go() {
        assert_eq!(unquote("\"\\n\" abc /* 123 */ '/* def */'"), "\n abc /* def */");
        assert_eq!(unquote("a\"b\"'c'"), "abc");
    }

    #[test]
    fn quoting_escapes_what_would_mean_something() {
        assert_eq!(quote("a$b\"c\\\t\n\r\u{1}"), "\"a\\$b\\\"c\\\\\\t\\n\\r\\001\"");
        assert_eq!(quote(""), "\"\"");
        assert_eq!(quote_bytes(&[0xff]), "\"\\377\"");
    }
}
