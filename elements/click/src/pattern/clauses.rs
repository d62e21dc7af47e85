//! The language of Classifier: clauses `offset/value%mask` in hexadecimal.
use super::expr::{Base, Expr, Test};

const OFFSET_RANGE: &str = "offset out of range, at most 65535";

/// Parses one pattern: clauses that must all hold; `-` and the empty pattern match everything.
pub(crate) fn parse(pattern: &str) -> Result<Expr, String> {
    let mut rest = pattern.trim_ascii();
    if rest == "-" {
        return Ok(Expr::Const(true));
    }
    let mut clauses = Vec::new();
    while !rest.is_empty() {
        let (clause, after) = parse_clause(rest)?;
        clauses.push(clause);
        rest = after.trim_ascii_start();
    }
    Ok(Expr::And(clauses))
}

fn parse_clause(text: &str) -> Result<(Expr, &str), String> {
    let positive = text.strip_prefix('!').map(str::trim_ascii_start);
    let (offset, rest) = split_prefix(positive.unwrap_or(text), |c| c.is_ascii_digit());
    if offset.is_empty() {
        return Err(error_at("expected a digit", rest));
    }
    let offset: u16 = offset.parse().map_err(|_| error_at(OFFSET_RANGE, offset))?;
    let rest = rest.strip_prefix('/').ok_or_else(|| error_at("expected '/'", rest))?;
    let (value, rest) = split_prefix(rest, is_digit);
    let (mask, rest) = match rest.strip_prefix('%') {
        Some(rest) => split_prefix(rest, is_digit),
        None => ("", rest),
    };
    check_lengths(value, mask, rest)?;
    let expr = bytes_to_tests(offset, value, mask)?;
    Ok((if positive.is_some() { expr.negated() } else { expr }, rest))
}

fn is_digit(c: char) -> bool {
    c.is_ascii_hexdigit() || c == '?'
}

fn split_prefix(text: &str, part: impl Fn(char) -> bool) -> (&str, &str) {
    text.split_at(text.find(|c| !part(c)).unwrap_or(text.len()))
}

fn check_lengths(value: &str, mask: &str, rest: &str) -> Result<(), String> {
    let masked = !mask.is_empty() && mask.len() != value.len();
    if value.len() < 2 {
        Err(error_at("value has less than 2 hex digits", if value.is_empty() { rest } else { value }))
    } else if !value.len().is_multiple_of(2) {
        Err(error_at("value has odd number of hex digits", value))
    } else if masked && mask.len() > value.len() {
        Err(error_at("mask has too many hex digits", mask))
    } else if masked {
        Err(error_at("mask has too few hex digits", mask))
    } else {
        Ok(())
    }
}

/// The tests of a clause, one for each aligned word it touches.
fn bytes_to_tests(offset: u16, value: &str, mask: &str) -> Result<Expr, String> {
    let nibbles = value.bytes().map(parse_nibble);
    let masks = mask.bytes().map(parse_nibble).chain(std::iter::repeat((15, 15)));
    let mut words: Vec<(u16, u32, u32)> = Vec::new();
    for (i, ((digit, care), (mask, mask_care))) in nibbles.zip(masks).enumerate() {
        let at = usize::from(offset) + i / 2;
        let word = u16::try_from(at & !3).map_err(|_| error_at(OFFSET_RANGE, value))?;
        if words.last().is_none_or(|(last, ..)| *last != word) {
            words.push((word, 0, 0));
        }
        let shift = 8 * (3 - (at & 3)) + if i % 2 == 0 { 4 } else { 0 };
        let bits = care & mask & mask_care;
        if let Some((_, word_value, word_mask)) = words.last_mut() {
            *word_value |= u32::from(digit & bits) << shift;
            *word_mask |= u32::from(bits) << shift;
        }
    }
    Ok(Expr::And(
        words.into_iter().map(|(at, value, mask)| Test::equal(Base::Data, at, value, mask).into()).collect(),
    ))
}

/// A digit's value, and which of its bits count.
fn parse_nibble(digit: u8) -> (u8, u8) {
    char::from(digit).to_digit(16).map_or((0, 0), |value| (value as u8, 15))
}

/// A message that ends with the word where reading stopped.
fn error_at(what: &str, at: &str) -> String {
    match at.split_ascii_whitespace().next() {
        Some(word) => format!("{what} at '{word}'"),
        None => format!("{what} at the end"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn matches(pattern: &str, packet: &[u8]) -> bool {
        parse(pattern).unwrap().matches(&|_| packet)
    }

    #[test]
    fn values_masks_and_question_marks_are_compared_at_their_offset() {
        assert!(matches("1/aBc?", &[0, 0xab, 0xc7]) && !matches("1/abc?", &[0, 0xab, 0xd0]));
        assert!(matches("0/ff%0f", &[0x3f]) && !matches("0/ff%0f", &[0xf0]));
        assert!(matches("3/0102030405", &[9, 9, 9, 1, 2, 3, 4, 5]));
        assert!(!matches("3/0102030405", &[9, 9, 9, 1, 2, 3, 4, 6]));
    }

    #[test]
    fn clauses_must_all_hold_and_may_be_negated() {
        assert!(matches("0/01 1/02", &[1, 2]) && !matches("0/01 1/02", &[1, 3]));
        assert!(matches("0/01 !1/02", &[1, 3]) && !matches("0/01 ! 1/02", &[1, 2]));
    }

    #[test]
    fn a_packet_too_short_for_a_clause_fails_it_unless_nothing_is_asked() {
        assert!(!matches("2/0304", &[1, 2, 3]) && matches("!2/0304", &[1, 2, 3]));
        assert!(matches("2/03??", &[1, 2, 3]) && matches("9/??", &[]));
        assert!(matches("-", &[]) && matches("", &[]));
    }

    #[test]
    fn mistakes_are_told_with_the_word() {
        let wrong = [
            ("x/00", "expected a digit at 'x/00'"),
            ("12 0800", "expected '/' at '0800'"),
            ("12", "expected '/' at the end"),
            ("12/0", "value has less than 2 hex digits at '0'"),
            ("12/", "value has less than 2 hex digits at the end"),
            ("12/080", "value has odd number of hex digits at '080'"),
            ("12/0800%ff", "mask has too few hex digits at 'ff'"),
            ("12/08%ffff", "mask has too many hex digits at 'ffff'"),
            ("12/0800 zz", "expected a digit at 'zz'"),
            ("65536/00", "offset out of range, at most 65535 at '65536'"),
            ("65535/0000", "offset out of range, at most 65535 at '0000'"),
        ];
        for (pattern, message) in wrong {
            assert_eq!(parse(pattern).unwrap_err(), message, "{pattern:?}");
        }
    }
}
