//! A script's handlers that compute: numbers, comparisons, truth, words. Text in, text out.
use super::sprintf::sprintf;
use artery_lang::args;
use std::cmp::Ordering;

/// Calls the computing handler `name`; `None` when there is no such one.
pub(super) fn call_function(name: &str, text: &str) -> Option<Result<String, String>> {
    Some(match name {
        "add" | "sub" | "mul" | "div" | "idiv" | "min" | "max" => fold_numbers(name, text),
        "mod" | "rem" => compute_remainder(name, text),
        "neg" | "abs" => apply_sign(name, text),
        "eq" | "ne" | "lt" | "le" | "gt" | "ge" => compare_words(name, text),
        "not" => parse_bool(text).map(|x| (!x).to_string()),
        "and" | "or" | "nand" | "nor" => evaluate_logic(name, text),
        "if" => evaluate_if(text),
        "in" => Ok(is_in(text).to_string()),
        "first" => Ok(args::shift_word(text).0.to_string()),
        "sprintf" => sprintf(text),
        "length" => Ok(text.len().to_string()),
        "unquote" => Ok(args::unquote(text)),
        "htons" | "ntohs" => parse_integer(text).map(|x| (x as u16).to_be().to_string()),
        "htonl" | "ntohl" => parse_integer(text).map(|x| (x as u32).to_be().to_string()),
        _ => return None,
    })
}

const SYNTAX: &str = "syntax error";
const ONE_NUMBER: &str = "expected one number";
const TWO_NUMBERS: &str = "expected two numbers";

/// A number as scripts compute with them: integers as long as possible.
#[derive(Clone, Copy)]
enum Number {
    Integer(i64),
    Real(f64),
}

impl Number {
    fn parse_number(word: &str) -> Option<Number> {
        let integer = args::parse_signed(word).ok().map(Number::Integer);
        integer.or_else(|| word.parse().ok().map(Number::Real))
    }
    fn to_f64(self) -> f64 {
        match self {
            Number::Integer(n) => n as f64,
            Number::Real(x) => x,
        }
    }
}

impl std::fmt::Display for Number {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Number::Integer(n) => write!(f, "{n}"),
            Number::Real(x) => f.write_str(&real_text(*x)),
        }
    }
}

/// A real number with 12 significant digits, as C's `%.12g` writes it.
fn real_text(x: f64) -> String {
    const DIGITS: i32 = 12;
    if !x.is_finite() {
        return x.to_string().to_ascii_lowercase();
    }
    let scientific = format!("{:.*e}", DIGITS as usize - 1, x);
    let (mantissa, exponent) = scientific.split_once('e').unwrap_or((&scientific, "0"));
    let exponent: i32 = exponent.parse().unwrap_or(0);
    if (-4..DIGITS).contains(&exponent) {
        trim_zeros(&format!("{:.*}", (DIGITS - 1 - exponent) as usize, x)).to_string()
    } else {
        let sign = if exponent < 0 { '-' } else { '+' };
        format!("{}e{sign}{:02}", trim_zeros(mantissa), exponent.abs())
    }
}

fn trim_zeros(digits: &str) -> &str {
    if digits.contains('.') { digits.trim_end_matches('0').trim_end_matches('.') } else { digits }
}

fn fold_numbers(name: &str, text: &str) -> Result<String, String> {
    let divides = matches!(name, "div" | "idiv");
    let mut total = None;
    for word in args::split_words(text) {
        let mut number = Number::parse_number(&word).ok_or("expected list of numbers")?;
        if divides {
            number = Number::Real(number.to_f64());
        }
        total = Some(match total {
            None => number,
            Some(total) => combine_numbers(name, total, number),
        });
    }
    let total = total.unwrap_or(Number::Integer(i64::from(!matches!(name, "add" | "sub"))));
    Ok(match name {
        "idiv" => (total.to_f64() as i64).to_string(),
        _ => total.to_string(),
    })
}

fn combine_numbers(name: &str, a: Number, b: Number) -> Number {
    if let (Number::Integer(a), Number::Integer(b)) = (a, b) {
        return Number::Integer(match name {
            "add" => a.wrapping_add(b),
            "sub" => a.wrapping_sub(b),
            "min" => a.min(b),
            "max" => a.max(b),
            _ => a.wrapping_mul(b),
        });
    }
    let (a, b) = (a.to_f64(), b.to_f64());
    Number::Real(match name {
        "add" => a + b,
        "sub" => a - b,
        "min" => a.min(b),
        "max" => a.max(b),
        "mul" => a * b,
        _ => a / b,
    })
}

/// The two words that `text` must be.
fn two_words(text: &str) -> Option<(&str, &str)> {
    let (a, rest) = args::shift_word(text);
    let (b, more) = args::shift_word(rest);
    (!a.is_empty() && !b.is_empty() && more.is_empty()).then_some((a, b))
}

fn compute_remainder(name: &str, text: &str) -> Result<String, String> {
    let (a, b) = two_words(text).ok_or(TWO_NUMBERS)?;
    match (Number::parse_number(a), Number::parse_number(b)) {
        (Some(Number::Integer(_)), Some(Number::Integer(0))) => Err("division by zero".into()),
        (Some(Number::Integer(a)), Some(Number::Integer(b))) => Ok(a.wrapping_rem(b).to_string()),
        (Some(a), Some(b)) if name == "rem" => Ok(real_text(a.to_f64() % b.to_f64())),
        _ => Err(TWO_NUMBERS.into()),
    }
}

fn apply_sign(name: &str, text: &str) -> Result<String, String> {
    match Number::parse_number(text.trim_ascii()).ok_or(ONE_NUMBER)? {
        Number::Integer(n) if name == "abs" => Ok(n.wrapping_abs().to_string()),
        Number::Integer(n) => Ok(n.wrapping_neg().to_string()),
        Number::Real(x) => Ok(real_text(if name == "abs" { x.abs() } else { -x })),
    }
}

fn compare_words(name: &str, text: &str) -> Result<String, String> {
    let (a, b) = two_words(text).ok_or(TWO_NUMBERS)?;
    let order = match (Number::parse_number(a), Number::parse_number(b)) {
        (Some(Number::Integer(a)), Some(Number::Integer(b))) => a.cmp(&b),
        // What can't be ordered counts as greater.
        (Some(a), Some(b)) => a.to_f64().partial_cmp(&b.to_f64()).unwrap_or(Ordering::Greater),
        _ => args::unquote_bytes(a).cmp(&args::unquote_bytes(b)),
    };
    let holds = match name {
        "eq" => order.is_eq(),
        "ne" => order.is_ne(),
        "lt" => order.is_lt(),
        "le" => order.is_le(),
        "gt" => order.is_gt(),
        _ => order.is_ge(),
    };
    Ok(holds.to_string())
}

fn parse_bool(text: &str) -> Result<bool, String> {
    args::parse_bool(text.trim_ascii()).ok_or_else(|| SYNTAX.into())
}

fn parse_integer(text: &str) -> Result<i64, String> {
    args::parse_signed(text.trim_ascii()).map_err(|_| SYNTAX.into())
}

/// Reads words until one decides; what follows it need not be a truth value.
fn evaluate_logic(name: &str, text: &str) -> Result<String, String> {
    let all = matches!(name, "and" | "nand");
    let mut value = all;
    let mut rest = text;
    while value == all && !rest.is_empty() {
        let (word, after) = args::shift_word(rest);
        value = parse_bool(word)?;
        rest = after;
    }
    Ok((value != matches!(name, "nand" | "nor")).to_string())
}

fn evaluate_if(text: &str) -> Result<String, String> {
    let (condition, rest) = args::shift_word(text);
    let (yes, rest) = args::shift_word(rest);
    Ok(if parse_bool(condition)? { yes } else { args::shift_word(rest).0 }.to_string())
}

fn is_in(text: &str) -> bool {
    let mut words = args::split_words(text).into_iter().map(|word| args::unquote(&word));
    words.next().is_some_and(|first| !first.is_empty() && words.any(|word| word == first))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn gives(call_text: &str, value: &str) {
        let (name, text) = args::shift_word(call_text);
        assert_eq!(call_function(name, text).expect("a handler").as_deref(), Ok(value), "{call_text}");
    }

    #[track_caller]
    fn fails(call_text: &str, message: &str) {
        let (name, text) = args::shift_word(call_text);
        assert_eq!(call_function(name, text).expect("a handler").unwrap_err(), message, "{call_text}");
    }

    #[test]
    fn integers_stay_integers_until_a_real_number_comes() {
        gives("add 10 5 2", "17");
        gives("sub 10 5 2", "3");
        gives("add", "0");
        gives("mul 2 0x10", "32");
        gives("mul", "1");
        gives("add 1 .5", "1.5");
        gives("max 5 10 2", "10");
        gives("min 5 1e1 2", "2");
        gives("div 7 2", "3.5");
        gives("div 6 2", "3");
        gives("idiv 7 2", "3");
        gives("idiv -7 2", "-3");
        gives("div 1 3", "0.333333333333");
        gives("mul 1e10 1e10", "1e+20");
        gives("div 1 0", "inf");
        fails("add 1 x", "expected list of numbers");
    }

    #[test]
    fn remainders_take_two_numbers() {
        gives("mod 7 3", "1");
        gives("rem 7.5 2", "1.5");
        fails("mod 7.5 2", "expected two numbers");
        fails("mod 7", "expected two numbers");
        fails("mod 7 0", "division by zero");
        gives("neg 5", "-5");
        gives("abs -2.5", "2.5");
        fails("abs x", "expected one number");
    }

    #[test]
    fn numbers_are_compared_as_numbers_and_words_as_words() {
        gives("eq 10 0xA", "true");
        gives("le 9 8", "false");
        gives("lt 9 10", "true");
        gives("gt 9x 10x", "true");
        gives("eq 10x 10x", "true");
        gives("eq \"a\" a", "true");
        gives("eq 1.0 1", "true");
        gives("ge 2 2", "true");
        gives("ne a b", "true");
        fails("eq 1 2 3", "expected two numbers");
    }

    #[test]
    fn truth_is_connected_until_it_is_decided() {
        gives("not false", "true");
        gives("and true yes 1", "true");
        gives("and false nonsense", "false");
        gives("or 0 true", "true");
        gives("nand true true", "false");
        gives("nor false false", "true");
        gives("if true a b", "a");
        gives("if false a b", "b");
        gives("in foo bar foo", "true");
        gives("in foo bar", "false");
        fails("not x", "syntax error");
        fails("or false x", "syntax error");
    }

    #[test]
    fn words_and_bytes() {
        gives("first a b", "a");
        gives("length abcdef", "6");
        gives("unquote \"a b\"", "a b");
        gives("htons 1", if cfg!(target_endian = "little") { "256" } else { "1" });
        gives("ntohl 1", if cfg!(target_endian = "little") { "16777216" } else { "1" });
    }

    #[test]
    fn real_numbers_are_written_with_twelve_digits() {
        for (x, text) in [(0.0, "0"), (0.1, "0.1"), (1e15, "1e+15"), (123456.789, "123456.789")] {
            assert_eq!(real_text(x), text);
        }
        assert_eq!(real_text(0.00001), "1e-05");
        assert_eq!(real_text(999999999999.9), "1e+12");
        assert_eq!(real_text(-2.5), "-2.5");
    }

    proptest::proptest! {
        #[test]
        fn no_text_makes_a_handler_panic(text in "[-0-9a-z%.*\"' x]{0,30}") {
            let names = "add sub mul div idiv min max mod rem neg abs eq lt not and if in first sprintf \
                htons unquote";
            for name in names.split(' ') {
                let _ = call_function(name, &text);
            }
        }
    }
}
