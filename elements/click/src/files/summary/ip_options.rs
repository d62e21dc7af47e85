//! IP options as a summary has them: `rr{10.0.0.1}+5`,
//! `ssrr{1.0.0.1^1.0.0.3}`, `ts.ip{1.0.0.1=5}+2++1`, `98=0:5`.
use super::options::{self, EOL, NOP, format_unknown, read_unknown};
use super::{long, number};
use std::fmt::Write as _;
use std::net::Ipv4Addr;

const RECORD_ROUTE: u8 = 7;
const TIMESTAMP: u8 = 68;
const LOOSE_ROUTE: u8 = 131;
const STRICT_ROUTE: u8 = 137;
const ROUTES: &[(&str, u8)] = &[("rr", RECORD_ROUTE), ("lsrr", LOOSE_ROUTE), ("ssrr", STRICT_ROUTE)];

/// Flags of a timestamp option: times alone, with addresses, at addresses that the sender chose (RFC 791).
const TIMES: u8 = 0;
const WITH_ADDRESSES: u8 = 1;
const AT_ADDRESSES: u8 = 3;
/// Set in times that are not milliseconds since midnight.
const NONSTANDARD: u32 = 0x8000_0000;

/// The options, `.` when there are none, `?` when one of them is malformed. Padding is not printed.
pub(super) fn format_options(options: &[u8]) -> String {
    options::format_all(options, |kind, option, parts| {
        parts.push(format_option(kind, option)?);
        Some(())
    })
}

/// Formats an option; None when it is malformed.
fn format_option(kind: u8, option: &[u8]) -> Option<String> {
    match ROUTES.iter().find(|(_, route)| *route == kind) {
        Some((name, _)) => (option.len() >= 3 && option[2] >= 4).then(|| format_route(name, kind, option)),
        None if kind == TIMESTAMP => (option.len() >= 4 && option[2] >= 5).then(|| format_timestamps(option)),
        None => (option.len() >= 2).then(|| format_unknown(option)),
    }
}

fn read_ipv4(bytes: &[u8]) -> Ipv4Addr {
    long(bytes, 0).into()
}

fn format_route(name: &str, kind: u8, option: &[u8]) -> String {
    let pointer = usize::from(option[2]) - 1;
    let mut text = format!("{name}{{");
    let (mut at, mut separator) = (3, "");
    while at + 4 <= option.len() && !(kind == RECORD_ROUTE && at == pointer) {
        let separator_here = if at == pointer { "^" } else { separator };
        // Writing to a string can't fail.
        let _ = write!(text, "{separator_here}{}", read_ipv4(&option[at..]));
        (at, separator) = (at + 4, ",");
    }
    if at == option.len() && at == pointer && kind != RECORD_ROUTE {
        text.push('^');
    }
    text.push('}');
    if at + 4 <= option.len() && at == pointer {
        let _ = write!(text, "+{}", (option.len() - at) / 4);
    }
    text
}

fn format_timestamps(option: &[u8]) -> String {
    let (pointer, flag) = (usize::from(option[2]) - 1, option[3] & 0xf);
    let size = if (1..=3).contains(&flag) { 8 } else { 4 };
    let mut text = match flag {
        TIMES => "ts{".to_string(),
        WITH_ADDRESSES => "ts.ip{".to_string(),
        AT_ADDRESSES => "ts.preip{".to_string(),
        other => format!("ts.{other}{{"),
    };
    let (mut at, mut separator) = (4, "");
    while at + size <= option.len() && (at != pointer || flag == AT_ADDRESSES) {
        text.push_str(if at == pointer { "^" } else { separator });
        if size == 8 {
            let _ = write!(text, "{}", read_ipv4(&option[at..]));
        }
        if !(flag == AT_ADDRESSES && at >= pointer) {
            let time = long(option, at + size - 4);
            let equals = if size == 8 { "=" } else { "" };
            let mark = if time & NONSTANDARD != 0 { "!" } else { "" };
            let _ = write!(text, "{equals}{mark}{}", time & !NONSTANDARD);
        }
        (at, separator) = (at + size, ",");
    }
    if at == option.len() && at == pointer {
        text.push('^');
    }
    text.push('}');
    if at + size <= option.len() && at == pointer {
        let _ = write!(text, "+{}", (option.len() - at) / size);
    }
    if option[3] >> 4 > 0 {
        let _ = write!(text, "++{}", option[3] >> 4);
    }
    text
}

/// The bytes of options that are written so; none for `.`, and an error for what can't be read.
pub(super) fn parse_options(text: &str) -> Result<Vec<u8>, ()> {
    options::parse_all(text, read_one)
}

/// Parses the option at the start of `text` and appends it; returns the rest.
fn read_one<'a>(text: &'a str, bytes: &mut Vec<u8>) -> Option<&'a str> {
    for (name, kind) in ROUTES {
        if let Some(rest) = text.strip_prefix(name).and_then(|rest| rest.strip_prefix('{')) {
            return read_route(*kind, rest, bytes);
        }
    }
    if let Some(rest) = text.strip_prefix("ts").filter(|rest| rest.starts_with(['{', '.'])) {
        return read_times(rest, bytes);
    }
    for (name, kind) in [("nop", NOP), ("eol", EOL)] {
        if let Some(rest) = text.strip_prefix(name) {
            bytes.push(kind);
            return Some(rest);
        }
    }
    read_unknown(text, bytes)
}

fn read_address(text: &str) -> Option<(Ipv4Addr, &str)> {
    let end = text.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(text.len());
    Some((text[..end].parse().ok()?, &text[end..]))
}

fn read_route<'a>(kind: u8, mut rest: &'a str, bytes: &mut Vec<u8>) -> Option<&'a str> {
    let start = bytes.len();
    bytes.extend([kind, 0, 0]);
    let mut pointer = None;
    loop {
        if let Some(after) = rest.strip_prefix('^').filter(|_| pointer.is_none()) {
            (pointer, rest) = (Some(bytes.len() - start + 1), after);
        }
        let Some((address, after)) = read_address(rest) else { break };
        bytes.extend(address.octets());
        rest = after.strip_prefix(',').unwrap_or(after);
    }
    rest = rest.strip_prefix('}')?;
    bytes[start + 2] = u8::try_from(pointer.unwrap_or(bytes.len() - start + 1)).ok()?;
    if let Some((room, after)) = rest.strip_prefix('+').and_then(number) {
        bytes.resize(bytes.len() + usize::try_from(room).ok().filter(|room| *room < 64)? * 4, 0);
        rest = after;
    }
    bytes[start + 1] = u8::try_from(bytes.len() - start).ok()?;
    Some(rest)
}

fn read_times<'a>(text: &'a str, bytes: &mut Vec<u8>) -> Option<&'a str> {
    let (kind, mut rest) = text.split_once('{')?;
    let mut flag = match kind {
        "" => None,
        ".ip" => Some(WITH_ADDRESSES),
        ".preip" => Some(AT_ADDRESSES),
        other => Some(other.strip_prefix('.')?.parse().ok().filter(|flag| *flag <= 15)?),
    };
    let start = bytes.len();
    bytes.extend([TIMESTAMP, 0, 0, 0]);
    let mut pointer = None;
    loop {
        if let Some(after) = rest.strip_prefix('^').filter(|_| pointer.is_none()) {
            (pointer, rest) = (Some(bytes.len() - start + 1), after);
        }
        if !rest.starts_with(|c: char| c.is_ascii_digit() || c == '!') {
            break;
        }
        let named = read_address(rest);
        // Without a kind, the first entry determines whether there are addresses.
        let flag = *flag.get_or_insert(if named.is_some() { WITH_ADDRESSES } else { TIMES });
        if matches!(flag, 1..=3) {
            let (address, after) = named?;
            bytes.extend(address.octets());
            rest = after;
            match rest.strip_prefix('=') {
                Some(after) => rest = after,
                None if pointer.is_some() => {
                    bytes.extend([0; 4]);
                    rest = rest.strip_prefix(',').unwrap_or(rest);
                    continue;
                }
                None => return None,
            }
        }
        rest = read_time(rest, pointer.is_some(), bytes)?;
        rest = rest.strip_prefix(',').unwrap_or(rest);
    }
    rest = rest.strip_prefix('}')?;
    let flag = flag.unwrap_or(TIMES);
    bytes[start + 2] = u8::try_from(pointer.unwrap_or(bytes.len() - start + 1)).ok()?;
    if let Some((room, after)) = rest.strip_prefix('+').and_then(number) {
        let size = if matches!(flag, WITH_ADDRESSES | AT_ADDRESSES) { 8 } else { 4 };
        bytes.resize(bytes.len() + usize::try_from(room).ok().filter(|room| *room < 64)? * size, 0);
        rest = after;
    }
    let mut overflow = 0;
    if let Some((count, after)) = rest.strip_prefix("++").and_then(number) {
        (overflow, rest) = (u8::try_from(count).ok().filter(|count| *count < 16)?, after);
    }
    bytes[start + 3] = overflow << 4 | flag;
    bytes[start + 1] = u8::try_from(bytes.len() - start).ok()?;
    Some(rest)
}

/// Parses a time; `?` stands for one that is not recorded yet.
fn read_time<'a>(text: &'a str, may_be_unknown: bool, bytes: &mut Vec<u8>) -> Option<&'a str> {
    if let Some(rest) = text.strip_prefix('?').filter(|_| may_be_unknown) {
        bytes.extend([0; 4]);
        return Some(rest);
    }
    let (mark, rest) = match text.strip_prefix('!') {
        Some(rest) => (NONSTANDARD, rest),
        None => (0, text),
    };
    let (time, rest) = number(rest)?;
    bytes.extend((time | mark).to_be_bytes());
    Some(rest)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn options_come_back_as_they_were_written() {
        for written in [
            "rr{10.0.0.1,20.0.0.2}+5",
            "rr{}+3",
            "ssrr{1.0.0.1,1.0.0.2^1.0.0.3}",
            "lsrr{1.0.0.1^}",
            "ts{1,10000,!45}+2++3",
            "ts.ip{1.0.0.1=1,1.0.0.2=2}+1",
            "ts.preip{1.0.0.1=1^1.0.0.2,1.0.0.3}",
            "98=0:5:10;lsrr{1.2.3.4^}",
        ] {
            let found = format_options(&parse_options(written).unwrap_or_else(|()| panic!("{written}")));
            assert_eq!(found, written);
        }
    }

    #[test]
    fn none_padding_and_nonsense() {
        assert_eq!(format_options(&[1, 1, 0]), ".");
        assert_eq!(parse_options("."), Ok(vec![]));
        assert_eq!(parse_options("nop,eol"), Ok(vec![1, 0]));
        for options in [&[7][..], &[7, 3, 0], &[68, 4, 4, 0], &[99, 1], &[7, 11, 4, 0]] {
            assert_eq!(format_options(options), "?", "{options:?}");
        }
        for written in ["rr{1.2.3", "ts{x}", "rr{1.2.3.4}+90", "frob", "ts.ip{5}"] {
            assert!(parse_options(written).is_err(), "{written}");
        }
    }
}
