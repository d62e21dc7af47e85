//! Text that a terminal can show: names and files may hold bytes that a terminal takes for commands.
use std::borrow::Cow;
use std::fmt::Write as _;

/// The text with control characters written as escapes, except line ends and tabs.
pub fn printable(text: &str) -> Cow<'_, str> {
    let is_command = |c: char| c.is_control() && c != '\n' && c != '\t';
    if !text.contains(is_command) {
        return Cow::Borrowed(text);
    }
    let mut shown = String::with_capacity(text.len() + 16);
    for c in text.chars() {
        match is_command(c) {
            true => write!(shown, "\\x{:02x}", u32::from(c)).expect("writing to a string can't fail"),
            false => shown.push(c),
        }
    }
    Cow::Owned(shown)
}

/// The text with the control characters from U+0080 to U+009F written as escapes.
pub(crate) fn without_c1(text: String) -> String {
    match text.contains(|c| matches!(c, '\u{80}'..='\u{9f}')) {
        true => text.split_inclusive(|c| matches!(c, '\u{80}'..='\u{9f}')).map(with_escaped_end).collect(),
        false => text,
    }
}

fn with_escaped_end(part: &str) -> String {
    match part.char_indices().next_back() {
        Some((at, end @ '\u{80}'..='\u{9f}')) => format!("{}\\x{:02x}", &part[..at], u32::from(end)),
        _ => part.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn control_characters_of_both_sets_are_escaped_and_text_stays() {
        assert_eq!(printable("a\tb\né"), "a\tb\né");
        assert_eq!(without_c1("\x1b[1ma\u{9b}b\u{9b}".to_string()), "\x1b[1ma\\x9bb\\x9b");
        assert_eq!(printable("\x1b]0;x\x07\r\u{9b}31m\x7f"), r"\x1b]0;x\x07\x0d\x9b31m\x7f");
    }
}
