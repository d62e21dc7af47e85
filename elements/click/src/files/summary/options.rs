//! What the options of IP and TCP have in common in a summary: where one ends, padding, and options that
//! have no name, which are written as their numbers.
use super::number;
use std::fmt::Write as _;

pub(super) const EOL: u8 = 0;
pub(super) const NOP: u8 = 1;
/// The most bytes of options in a header.
const MOST: usize = 40;

/// The options as `format_one` adds their parts, `.` when there are none, `?` when one of them is malformed,
/// which it says by `None`. Padding is not printed.
pub(super) fn format_all(
    options: &[u8],
    mut format_one: impl FnMut(u8, &[u8], &mut Vec<String>) -> Option<()>,
) -> String {
    let mut parts = Vec::new();
    let mut rest = options;
    while let Some(&kind) = rest.first() {
        if kind == EOL {
            break;
        }
        if kind == NOP {
            rest = &rest[1..];
            continue;
        }
        let option = rest.get(1).and_then(|len| rest.get(..usize::from(*len)));
        let Some(option) = option.filter(|option| format_one(kind, option, &mut parts).is_some()) else {
            return "?".into();
        };
        rest = &rest[option.len()..];
    }
    if parts.is_empty() { ".".into() } else { parts.join(";") }
}

/// An option as its numbers.
pub(super) fn format_unknown(option: &[u8]) -> String {
    let mut text = option[0].to_string();
    for (i, byte) in option[2..].iter().enumerate() {
        // Writing to a string can't fail.
        let _ = write!(text, "{}{byte}", if i == 0 { '=' } else { ':' });
    }
    text
}

/// The bytes of options that are written so; none for `.`, and an error for what can't be read. `read_one`
/// appends the option at the start of a text, and returns the rest.
pub(super) fn parse_all(
    text: &str,
    read_one: impl for<'a> Fn(&'a str, &mut Vec<u8>) -> Option<&'a str>,
) -> Result<Vec<u8>, ()> {
    let mut bytes = Vec::new();
    if text.is_empty() || text == "." {
        return Ok(bytes);
    }
    let mut rest = text;
    loop {
        rest = read_one(rest, &mut bytes).ok_or(())?;
        match rest.as_bytes().first() {
            None => break,
            Some(b',' | b';') => rest = &rest[1..],
            Some(_) => return Err(()),
        }
    }
    // Padding in front was for alignment.
    while bytes.len() > MOST && bytes[0] == NOP {
        bytes.remove(0);
    }
    if bytes.len() > MOST { Err(()) } else { Ok(bytes) }
}

/// Reads an option that is written as its numbers.
pub(super) fn read_unknown<'a>(text: &'a str, bytes: &mut Vec<u8>) -> Option<&'a str> {
    let (kind, mut rest) = number(text)?;
    let start = bytes.len();
    bytes.push(u8::try_from(kind).ok()?);
    let mut separator = '=';
    while let Some((value, after)) = rest.strip_prefix(separator).and_then(number) {
        if separator == '=' {
            bytes.push(0);
        }
        bytes.push(u8::try_from(value).ok()?);
        (separator, rest) = (':', after);
    }
    if separator == ':' {
        bytes[start + 1] = u8::try_from(bytes.len() - start).ok()?;
    }
    Some(rest)
}
