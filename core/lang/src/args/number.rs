//! Values written as text: booleans, integers, fixed-point numbers, times and bandwidths.

/// Why an argument is not a value of the wanted type.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ArgError {
    /// The text is not of that form.
    Syntax,
    /// The text is of that form, but the value is too large or too small.
    Range,
}

/// `true false yes no 1 0` and the initials of the words.
pub fn parse_bool(text: &str) -> Option<bool> {
    match text {
        "1" | "y" | "t" | "yes" | "true" => Some(true),
        "0" | "n" | "f" | "no" | "false" => Some(false),
        _ => None,
    }
}

/// An integer: decimal, `0x` hexadecimal, `0b` binary or `0` octal, `_` allowed between digits.
pub fn parse_unsigned(text: &str) -> Result<u64, ArgError> {
    unsigned_in_base(text, 0)
}

/// Like [`parse_unsigned`]; a base other than 0 is the only one, 16 allowing a `0x`.
pub fn unsigned_in_base(text: &str, base: u32) -> Result<u64, ArgError> {
    let magnitude = parse_magnitude(text.strip_prefix('+').unwrap_or(text), base)?;
    u64::try_from(magnitude).map_err(|_| ArgError::Range)
}

/// An integer that may have a sign.
pub fn parse_signed(text: &str) -> Result<i64, ArgError> {
    let (negative, digits) = match text.strip_prefix('-') {
        Some(digits) => (true, digits),
        None => (false, text.strip_prefix('+').unwrap_or(text)),
    };
    let magnitude = i128::try_from(parse_magnitude(digits, 0)?).map_err(|_| ArgError::Range)?;
    i64::try_from(if negative { -magnitude } else { magnitude }).map_err(|_| ArgError::Range)
}

/// An integer or decimal fraction with an optional `k`, `K`, `M` or `G`, which count in thousands.
pub fn scaled_unsigned(text: &str) -> Result<u64, ArgError> {
    let power = match text.as_bytes().last() {
        Some(b'k' | b'K') => 3,
        Some(b'M') => 6,
        Some(b'G') => 9,
        _ => return parse_unsigned(text),
    };
    let number = text[..text.len() - 1].trim_ascii_end();
    round_scaled(Decimal::parse(number)?, power, 1, 1)
}

/// A decimal fraction as a fixed-point number with `bits` bits behind the point, rounded.
pub fn parse_fixed(text: &str, bits: u32) -> Result<u64, ArgError> {
    round_scaled(Decimal::parse(text)?, 0, 1u128.checked_shl(bits).ok_or(ArgError::Range)?, 1)
}

/// A time in seconds, or with `s ms us ns m min h hr d day` behind it, in nanoseconds.
pub fn parse_seconds(text: &str) -> Result<u64, ArgError> {
    const UNITS: &[(&str, u128)] = &[
        ("sec", 1),
        ("min", 60),
        ("day", 86_400),
        ("hr", 3600),
        ("s", 1),
        ("m", 60),
        ("h", 3600),
        ("d", 86_400),
    ];
    const PREFIXES: &[(char, i32)] = &[('m', -3), ('u', -6), ('n', -9)];
    let (number, power, factor) = split_unit(text, UNITS, PREFIXES);
    round_scaled(Decimal::parse(number)?, power + 9, factor.unwrap_or(1), 1)
}

/// A bandwidth in bytes per second, from `kbps Mb/s GBps kB/s baud …` or a bare number of bytes per second.
pub fn parse_bandwidth(text: &str) -> Result<u64, ArgError> {
    const UNITS: &[(&str, u128)] = &[("baud", 1), ("bps", 1), ("b/s", 1), ("Bps", 8), ("B/s", 8)];
    const PREFIXES: &[(char, i32)] = &[('k', 3), ('K', 3), ('M', 6), ('G', 9)];
    let (number, power, bits) = split_unit(text, UNITS, PREFIXES);
    round_scaled(Decimal::parse(number)?, power, bits.unwrap_or(8), 8)
}

/// Strips the unit, its prefix and blanks from the end; without a unit, no prefix is read.
fn split_unit<'a>(
    text: &'a str,
    units: &[(&str, u128)],
    prefixes: &[(char, i32)],
) -> (&'a str, i32, Option<u128>) {
    let unit = units.iter().find_map(|(unit, factor)| Some((text.strip_suffix(unit)?, *factor)));
    let Some((rest, factor)) = unit else { return (text, 0, None) };
    let prefix = prefixes.iter().find_map(|(prefix, power)| Some((rest.strip_suffix(*prefix)?, *power)));
    let (rest, power) = prefix.unwrap_or((rest, 0));
    (rest.trim_ascii_end(), power, Some(factor))
}

fn parse_magnitude(text: &str, base: u32) -> Result<u128, ArgError> {
    let bytes = text.as_bytes();
    let prefix = |letter: u8| bytes.len() > 2 && bytes[0] == b'0' && bytes[1].to_ascii_lowercase() == letter;
    let (digits, base) = match base {
        0 | 16 if prefix(b'x') => (&text[2..], 16),
        0 if prefix(b'b') => (&text[2..], 2),
        0 if text.starts_with('0') => (text, 8),
        0 => (text, 10),
        base => (text, base),
    };
    if digits.starts_with('_') || digits.ends_with('_') || digits.contains("__") || digits.is_empty() {
        return Err(ArgError::Syntax);
    }
    let mut value = 0u128;
    for digit in digits.chars().filter(|&c| c != '_') {
        let digit = digit.to_digit(base).ok_or(ArgError::Syntax)?;
        value = value.saturating_mul(u128::from(base)).saturating_add(u128::from(digit));
    }
    Ok(value)
}

/// `digits` × 10 to the power of `exponent`.
#[derive(Clone, Copy)]
struct Decimal {
    digits: u128,
    exponent: i32,
}

/// Digits kept of a decimal fraction; further ones cannot matter to 64 bits.
const MAX_DIGITS: u32 = 25;

impl Decimal {
    fn parse(text: &str) -> Result<Decimal, ArgError> {
        let text = text.strip_prefix('+').unwrap_or(text);
        let (mantissa, exponent) = match text.find(['e', 'E']) {
            Some(at) => (&text[..at], text[at + 1..].parse::<i32>().map_err(|_| ArgError::Syntax)?),
            None => (text, 0),
        };
        let (integer, fraction) = mantissa.split_once('.').unwrap_or((mantissa, ""));
        let all_digits = |part: &str| part.bytes().all(|c| c.is_ascii_digit());
        if integer.len() + fraction.len() == 0 || !all_digits(integer) || !all_digits(fraction) {
            return Err(ArgError::Syntax);
        }
        let mut decimal = Decimal { digits: 0, exponent: exponent.clamp(-1000, 1000) };
        integer.bytes().for_each(|digit| decimal.push(digit, 0));
        fraction.bytes().for_each(|digit| decimal.push(digit, -1));
        Ok(decimal)
    }

    fn push(&mut self, digit: u8, shift: i32) {
        if self.digits < 10u128.pow(MAX_DIGITS) {
            self.digits = self.digits * 10 + u128::from(digit - b'0');
            self.exponent += shift;
        } else {
            self.exponent = (self.exponent + 1 + shift).min(1 << 20);
        }
    }
}

/// The number × 10 to the power of `power` × `factor` / `divisor`, rounded half up.
fn round_scaled(number: Decimal, power: i32, factor: u128, divisor: u128) -> Result<u64, ArgError> {
    let exponent = number.exponent + power;
    let ten_to = |n: i32| 10u128.checked_pow(n.unsigned_abs());
    let product = number.digits.checked_mul(factor).ok_or(ArgError::Range)?;
    if product == 0 {
        return Ok(0);
    }
    let value = if exponent >= 0 {
        let product = ten_to(exponent).and_then(|scale| product.checked_mul(scale)).ok_or(ArgError::Range)?;
        round_half_up(product, divisor)
    } else {
        match ten_to(exponent).and_then(|scale| scale.checked_mul(divisor)) {
            Some(divisor) => round_half_up(product, divisor),
            None => 0,
        }
    };
    u64::try_from(value).map_err(|_| ArgError::Range)
}

fn round_half_up(value: u128, divisor: u128) -> u128 {
    value / divisor + u128::from(value % divisor >= divisor.div_ceil(2))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn booleans_have_words_initials_and_digits() {
        for (text, value) in [("true", true), ("y", true), ("1", true), ("no", false), ("f", false)] {
            assert_eq!(parse_bool(text), Some(value));
        }
        assert_eq!(parse_bool("True"), None);
        assert_eq!(parse_bool(""), None);
    }

    #[test]
    fn integers_have_prefixes_for_their_base() {
        assert_eq!(parse_unsigned("0x1F"), Ok(31));
        assert_eq!(parse_unsigned("017"), Ok(15));
        assert_eq!(parse_unsigned("0b101"), Ok(5));
        assert_eq!(parse_unsigned("+1_000"), Ok(1000));
        assert_eq!(parse_unsigned("0"), Ok(0));
        assert_eq!(parse_signed("-0x10"), Ok(-16));
        assert_eq!(parse_signed("-9223372036854775808"), Ok(i64::MIN));
        assert_eq!(unsigned_in_base("0xff", 16), Ok(255));
        assert_eq!(unsigned_in_base("ff", 16), Ok(255));
        assert_eq!(parse_unsigned("18446744073709551615"), Ok(u64::MAX));
    }

    #[test]
    fn what_is_no_integer_is_refused() {
        for text in ["", "08", "1.", "0x", "-1", "1k", "_1", "1__0", "+", "++1"] {
            assert_eq!(parse_unsigned(text), Err(ArgError::Syntax), "{text}");
        }
        assert_eq!(parse_unsigned("18446744073709551616"), Err(ArgError::Range));
        assert_eq!(parse_signed("9223372036854775808"), Err(ArgError::Range));
        assert_eq!(parse_unsigned(&"9".repeat(99)), Err(ArgError::Range));
    }

    #[test]
    fn scale_letters_count_in_thousands() {
        assert_eq!(scaled_unsigned("10k"), Ok(10_000));
        assert_eq!(scaled_unsigned("1.5 M"), Ok(1_500_000));
        assert_eq!(scaled_unsigned("2G"), Ok(2_000_000_000));
        assert_eq!(scaled_unsigned("7"), Ok(7));
        assert_eq!(scaled_unsigned("k"), Err(ArgError::Syntax));
    }

    #[test]
    fn times_are_seconds_unless_they_say_otherwise() {
        assert_eq!(parse_seconds("1.5"), Ok(1_500_000_000));
        assert_eq!(parse_seconds("10ms"), Ok(10_000_000));
        assert_eq!(parse_seconds("3 us"), Ok(3000));
        assert_eq!(parse_seconds("7ns"), Ok(7));
        assert_eq!(parse_seconds(".5m"), Ok(30_000_000_000));
        assert_eq!(parse_seconds("2h"), Ok(7_200_000_000_000));
        assert_eq!(parse_seconds("1 day"), Ok(86_400_000_000_000));
        assert_eq!(parse_seconds("1e-3"), Ok(1_000_000));
        assert_eq!(parse_seconds("0.0000000005"), Ok(1));
        assert_eq!(parse_seconds("1e12"), Err(ArgError::Range));
        for text in ["", "s", "1x", "-1", "1..2", "."] {
            assert_eq!(parse_seconds(text), Err(ArgError::Syntax), "{text}");
        }
    }

    #[test]
    fn bandwidths_are_bytes_per_second_unless_they_say_bits() {
        assert_eq!(parse_bandwidth("384 kbps"), Ok(48_000));
        assert_eq!(parse_bandwidth("1Mb/s"), Ok(125_000));
        assert_eq!(parse_bandwidth("1 GBps"), Ok(1_000_000_000));
        assert_eq!(parse_bandwidth("1.5kB/s"), Ok(1500));
        assert_eq!(parse_bandwidth("9600baud"), Ok(1200));
        assert_eq!(parse_bandwidth("1000"), Ok(1000));
        assert_eq!(parse_bandwidth("1k"), Err(ArgError::Syntax));
    }

    #[test]
    fn fixed_point_numbers_are_rounded() {
        assert_eq!(parse_fixed("0.5", 16), Ok(0x8000));
        assert_eq!(parse_fixed("1", 16), Ok(0x10000));
        assert_eq!(parse_fixed("0.00001", 16), Ok(1));
        assert_eq!(parse_fixed("1e30", 16), Err(ArgError::Range));
    }

    proptest::proptest! {
        #[test]
        fn no_text_makes_a_number_panic(text in "[-+0-9a-fx_.eEkMsbé]{0,50}") {
            let _ = (parse_unsigned(&text), parse_signed(&text), scaled_unsigned(&text));
            let _ = (parse_seconds(&text), parse_bandwidth(&text), parse_fixed(&text, 16));
        }
    }
}
