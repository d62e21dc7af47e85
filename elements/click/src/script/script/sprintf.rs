//! `sprintf` for scripts: C's flags, widths and precisions for integers and strings.
use artery_lang::args;

/// Formats the words after the first, which is the format.
pub(super) fn sprintf(text: &str) -> Result<String, String> {
    let (format, rest) = args::shift_word(text);
    let format: Vec<char> = args::unquote(format).chars().collect();
    let mut words = args::split_words(rest).into_iter();
    let mut out = String::new();
    let mut at = 0;
    while at < format.len() {
        if format[at] != '%' {
            out.push(format[at]);
            at += 1;
            continue;
        }
        let (directive, end) = Directive::parse_directive(&format, at + 1, &mut words).ok_or(SYNTAX)?;
        directive.write_word(&mut words, &mut out).ok_or(SYNTAX)?;
        at = end;
    }
    if words.next().is_some() { Err(SYNTAX.into()) } else { Ok(out) }
}

const SYNTAX: &str = "syntax error";
/// No field is wider than this.
const MAX_WIDTH: u64 = 4096;

/// What stands between `%` and its letter, and the letter.
struct Directive {
    zeros: bool,
    alternate: bool,
    left: bool,
    space: bool,
    plus: bool,
    width: usize,
    precision: Option<usize>,
    short: bool,
    conversion: char,
}

impl Directive {
    fn parse_directive(
        format: &[char],
        mut at: usize,
        words: &mut impl Iterator<Item = String>,
    ) -> Option<(Directive, usize)> {
        let start = at;
        while matches!(format.get(at), Some('0' | '#' | '-' | ' ' | '+')) {
            at += 1;
        }
        let flag = |c| format[start..at].contains(&c);
        let (zeros, alternate, space, plus) = (flag('0'), flag('#'), flag(' '), flag('+'));
        let mut left = flag('-');
        let width = parse_field_number(format, &mut at, words)?.unwrap_or(0);
        left |= width < 0;
        let mut precision = None;
        if format.get(at) == Some(&'.') {
            at += 1;
            precision = Some(usize::try_from(parse_field_number(format, &mut at, words)?.unwrap_or(0)).ok()?);
        }
        let mut short = false;
        while let Some(c @ ('h' | 'l' | 'L' | 'q')) = format.get(at) {
            short = *c == 'h';
            at += 1;
        }
        let (width, conversion) = (width.unsigned_abs() as usize, *format.get(at)?);
        let directive =
            Directive { zeros, alternate, left, space, plus, width, precision, short, conversion };
        Some((directive, at + 1))
    }

    /// Writes the next word, or a percent sign.
    fn write_word(&self, words: &mut impl Iterator<Item = String>, out: &mut String) -> Option<()> {
        match self.conversion {
            '%' => out.push('%'),
            's' => {
                let text = args::parse_string(&words.next()?)?;
                let kept: String = text.chars().take(self.precision.unwrap_or(usize::MAX)).collect();
                self.write_padded("", kept, false, out);
            }
            'd' | 'i' => {
                let value = args::parse_signed(&words.next()?).ok()?;
                let value = if self.short { i64::from(value as i16) } else { value };
                let sign = match value {
                    ..0 => "-",
                    _ if self.plus => "+",
                    _ if self.space => " ",
                    _ => "",
                };
                self.write_padded(sign, self.pad_digits(value.unsigned_abs().to_string()), self.zeros, out);
            }
            'o' | 'x' | 'X' | 'u' => {
                let value = args::parse_unsigned(&words.next()?).ok()?;
                let value = if self.short { u64::from(value as u16) } else { value };
                let (prefix, digits) = match self.conversion {
                    'o' => ("0", format!("{value:o}")),
                    'x' => ("0x", format!("{value:x}")),
                    'X' => ("0X", format!("{value:X}")),
                    _ => ("", value.to_string()),
                };
                let prefix = if self.alternate && value != 0 { prefix } else { "" };
                self.write_padded(prefix, self.pad_digits(digits), self.zeros, out);
            }
            _ => return None,
        }
        Some(())
    }

    /// Pads with zeros up to the precision.
    fn pad_digits(&self, digits: String) -> String {
        format!("{}{digits}", "0".repeat(self.precision.unwrap_or(0).saturating_sub(digits.len())))
    }

    fn write_padded(&self, sign: &str, body: String, zeros: bool, out: &mut String) {
        let fill = self.width.saturating_sub(sign.len() + body.chars().count());
        let zeros = zeros && !self.left && self.precision.is_none();
        if !self.left && !zeros {
            out.push_str(&" ".repeat(fill));
        }
        out.push_str(sign);
        if zeros {
            out.push_str(&"0".repeat(fill));
        }
        out.push_str(&body);
        if self.left {
            out.push_str(&" ".repeat(fill));
        }
    }
}

/// A number in the format, or `*` for the next word; `None` if it is neither, or out of bounds.
fn parse_field_number(
    format: &[char],
    at: &mut usize,
    words: &mut impl Iterator<Item = String>,
) -> Option<Option<i64>> {
    let start = *at;
    let value: i64 = if format.get(start) == Some(&'*') {
        *at += 1;
        args::parse_signed(&words.next()?).ok()?
    } else {
        while format.get(*at).is_some_and(char::is_ascii_digit) {
            *at += 1;
        }
        if *at == start {
            return Some(None);
        }
        format[start..*at].iter().collect::<String>().parse().ok()?
    };
    (value.unsigned_abs() <= MAX_WIDTH).then_some(Some(value))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn formats_as_c_does() {
        for (text, value) in [
            ("\"%05x\" 127", "0007f"),
            ("%d-%i 1 -2", "1--2"),
            ("\"%5d|%-5d|%+d\" 42 42 42", "   42|42   |+42"),
            ("%#x 255", "0xff"),
            ("%.3d 7", "007"),
            ("%*d 4 7", "   7"),
            ("%s%% \"a b\"", "a b%"),
            ("%.2s abc", "ab"),
            ("%hu 65537", "1"),
            ("%lX 255", "FF"),
            ("plain", "plain"),
        ] {
            assert_eq!(sprintf(text).as_deref(), Ok(value), "{text}");
        }
    }

    #[test]
    fn words_must_fit_the_format() {
        for text in ["%d", "%d x", "%d 1 2", "%", "%y 1", "%999999999d 1", "%*d x 1", "%u -5"] {
            assert_eq!(sprintf(text).unwrap_err(), "syntax error", "{text}");
        }
    }
}
