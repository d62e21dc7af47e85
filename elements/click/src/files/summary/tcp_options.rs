//! TCP options as a summary has them: `mss1400;wscale10;sackok;sack95-98;ts66:38;98=0:5`.
use super::options::{self, EOL, NOP, format_unknown, read_unknown};
use super::{long, number, word};

const MSS: u8 = 2;
const WINDOW_SCALE: u8 = 3;
const SACK_PERMITTED: u8 = 4;
const SACK: u8 = 5;
const TIMESTAMP: u8 = 8;

/// Which options a field is about.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum OptionSet {
    All,
    ButTime,
    Sack,
}

impl OptionSet {
    fn includes(self, kind: u8) -> bool {
        match self {
            OptionSet::All => true,
            OptionSet::ButTime => kind != TIMESTAMP,
            OptionSet::Sack => matches!(kind, SACK_PERMITTED | SACK),
        }
    }
}

/// The options, `.` when there are none, `?` when one of them is malformed. Padding is not printed.
pub(super) fn format_options(options: &[u8], which: OptionSet) -> String {
    options::format_all(options, |kind, option, parts| format_option(kind, option, which, parts))
}

/// Formats an option; `None` when it is malformed.
fn format_option(kind: u8, option: &[u8], which: OptionSet, parts: &mut Vec<String>) -> Option<()> {
    let is_sound = match kind {
        MSS => option.len() == 4,
        WINDOW_SCALE => option.len() == 3,
        SACK_PERMITTED => option.len() == 2,
        SACK => option.len() % 8 == 2,
        TIMESTAMP => option.len() == 10,
        _ => option.len() >= 2,
    };
    if !is_sound || !which.includes(kind) {
        return is_sound.then_some(());
    }
    match kind {
        MSS => parts.push(format!("mss{}", word(option, 2))),
        WINDOW_SCALE => parts.push(format!("wscale{}", option[2])),
        SACK_PERMITTED => parts.push("sackok".into()),
        SACK => {
            parts.extend(
                option[2..].chunks(8).map(|block| format!("sack{}-{}", long(block, 0), long(block, 4))),
            );
        }
        TIMESTAMP => parts.push(format!("ts{}:{}", long(option, 2), long(option, 6))),
        _ => parts.push(format_unknown(option)),
    }
    Some(())
}

/// The bytes of options that are written so; none for `.`, and an error for what can't be read.
pub(super) fn parse_options(text: &str, which: OptionSet) -> Result<Vec<u8>, ()> {
    options::parse_all(text, |text, bytes| read_one(text, which, bytes))
}

/// Parses the option at the start of `text` and appends it; returns the rest.
fn read_one<'a>(text: &'a str, which: OptionSet, bytes: &mut Vec<u8>) -> Option<&'a str> {
    let after = |name: &str, kind: u8| text.strip_prefix(name).filter(|_| which.includes(kind));
    if let Some(rest) = after("mss", MSS) {
        let (size, rest) = number(rest)?;
        let [high, low] = u16::try_from(size).ok()?.to_be_bytes();
        bytes.extend([MSS, 4, high, low]);
        return Some(rest);
    }
    if let Some(rest) = after("wscale", WINDOW_SCALE) {
        let (shift, rest) = number(rest)?;
        bytes.extend([WINDOW_SCALE, 3, u8::try_from(shift).ok()?]);
        return Some(rest);
    }
    if let Some(rest) = after("sackok", SACK_PERMITTED) {
        bytes.extend([SACK_PERMITTED, 2]);
        return Some(rest);
    }
    if let Some(rest) = after("sack", SACK) {
        return read_sack(rest, bytes);
    }
    if let Some(rest) = after("ts", TIMESTAMP) {
        return read_timestamps(rest, bytes);
    }
    if text.starts_with(|c: char| c.is_ascii_digit()) && which != OptionSet::Sack {
        return read_unknown(text, bytes);
    }
    for (name, kind) in [("nop", NOP), ("eol", EOL)] {
        if let Some(rest) = text.strip_prefix(name).filter(|_| which == OptionSet::All) {
            bytes.push(kind);
            return Some(rest);
        }
    }
    None
}

/// The time and the echoed one, with a colon between.
fn read_timestamps<'a>(rest: &'a str, bytes: &mut Vec<u8>) -> Option<&'a str> {
    let (value, rest) = number(rest)?;
    let (echo, rest) = number(rest.strip_prefix(':')?)?;
    if bytes.is_empty() {
        bytes.extend([NOP, NOP]);
    }
    bytes.extend([TIMESTAMP, 10]);
    bytes.extend(value.to_be_bytes());
    bytes.extend(echo.to_be_bytes());
    Some(rest)
}

/// Blocks separated by commas become one option.
fn read_sack<'a>(mut rest: &'a str, bytes: &mut Vec<u8>) -> Option<&'a str> {
    let start = bytes.len();
    bytes.extend([SACK, 0]);
    loop {
        let (left, after) = number(rest)?;
        let (right, after) = number(after.strip_prefix(['-', ':'])?)?;
        bytes.extend(left.to_be_bytes());
        bytes.extend(right.to_be_bytes());
        let next = after.strip_prefix(",sack");
        match next.filter(|next| next.starts_with(|c: char| c.is_ascii_digit())) {
            Some(next) => rest = next,
            None => {
                bytes[start + 1] = u8::try_from(bytes.len() - start).ok()?;
                return Some(after);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn options_come_back_as_they_were_written() {
        for written in ["mss1400;wscale10;sackok", "sack1-2;sack3-4", "98=0:5:10;mss2", "ts66:38"] {
            let found = format_options(&parse_options(written, OptionSet::All).unwrap(), OptionSet::All);
            assert_eq!(found, written);
        }
        assert_eq!(parse_options("ts1:2", OptionSet::All).unwrap(), [1, 1, 8, 10, 0, 0, 0, 1, 0, 0, 0, 2]);
        assert_eq!(parse_options("sack1:2,sack3:4", OptionSet::Sack).unwrap().len(), 18);
        assert_eq!(parse_options("nop,nop", OptionSet::All), Ok(vec![1, 1]));
    }

    #[test]
    fn a_field_tells_of_its_own_options_only() {
        let options = parse_options("mss1400;sackok;ts1:2", OptionSet::All).unwrap();
        assert_eq!(format_options(&options, OptionSet::ButTime), "mss1400;sackok");
        assert_eq!(format_options(&options, OptionSet::Sack), "sackok");
        assert_eq!(format_options(&[1, 1, 0], OptionSet::All), ".");
        assert!(parse_options("mss1400", OptionSet::Sack).is_err());
    }

    #[test]
    fn what_is_malformed_is_a_question_mark_and_can_not_be_read() {
        for options in [&[2, 3, 1][..], &[2], &[8, 10, 0], &[99, 1]] {
            assert_eq!(format_options(options, OptionSet::All), "?", "{options:?}");
        }
        for written in ["mss", "mss70000", "x", "ts1", "sack1", "mss1 2", "mss1;"] {
            assert!(parse_options(written, OptionSet::All).is_err(), "{written}");
        }
    }
}
