//! Port codes of classes: how many ports, push or pull, and where packets go inside.

use std::ops::RangeInclusive;

/// How many inputs and outputs an element has, by its port count code, when this many are used.
///
/// `None` if the code is not a port count code.
pub fn port_counts(code: &str, used: [usize; 2]) -> Option<[usize; 2]> {
    let (inputs, outputs) = code.split_once('/').unwrap_or((code, code));
    let count = clamp_ports(used[0], &parse_range(inputs)?);
    if let Some(plus) = outputs.strip_prefix('=').filter(|rest| rest.bytes().all(|byte| byte == b'+')) {
        return Some([count, count + plus.len()]);
    }
    Some([count, clamp_ports(used[1], &parse_range(outputs)?)])
}

fn clamp_ports(used: usize, range: &RangeInclusive<usize>) -> usize {
    used.clamp(*range.start(), *range.end())
}

/// `1`, `1-2`, `1-`, `-2`, `-` or nothing.
fn parse_range(code: &str) -> Option<RangeInclusive<usize>> {
    let number = |text: &str, missing| if text.is_empty() { Some(missing) } else { text.parse().ok() };
    let range = match code.split_once('-') {
        Some((low, high)) => number(low, 0)?..=number(high, usize::MAX)?,
        None => number(code, 0).map(|count| count..=count)?,
    };
    (range.start() <= range.end()).then_some(range)
}

/// The letter of a port in a processing code such as `a/ah`; the last letter repeats.
pub(crate) fn processing_letter(code: &str, is_output: bool, port: usize) -> u8 {
    let (inputs, outputs) = code.split_once('/').unwrap_or((code, code));
    let letters = if is_output { outputs } else { inputs }.as_bytes();
    letters.get(port).or(letters.last()).map_or(b'a', u8::to_ascii_lowercase)
}

/// True if packets can go from an input to an output of an element with this flow code.
///
/// A code is a list of port codes for inputs, a slash, and one for outputs; the last of a list repeats.
/// Packets go between ports whose codes share something: `x`, `[xyz]`, `[^x]` (all but x) and `#` (the
/// number of the port itself).
pub fn flows_between(code: &str, input: usize, output: usize) -> bool {
    let (inputs, outputs) = code.split_once('/').unwrap_or((code, code));
    match (PortCode::of_port(inputs, input), PortCode::of_port(outputs, output)) {
        (Some(input_code), Some(output_code)) => input_code.matches_port(input, &output_code, output),
        _ => false,
    }
}

#[derive(Clone, Debug, Default)]
struct PortCode {
    letters: u128,
    number: bool,
    all_but: bool,
}

impl PortCode {
    fn of_port(list: &str, port: usize) -> Option<PortCode> {
        let mut code = None;
        let mut rest = list;
        for _ in 0..=port {
            if rest.is_empty() {
                break;
            }
            let length = if rest.starts_with('[') { rest.find(']')? + 1 } else { 1 };
            code = Some(PortCode::parse(rest.get(..length)?));
            rest = &rest[length..];
        }
        code
    }

    fn parse(text: &str) -> PortCode {
        let inner = text.trim_start_matches('[').trim_end_matches(']');
        let mut code = PortCode { all_but: inner.starts_with('^'), ..PortCode::default() };
        for byte in inner.bytes() {
            match byte {
                b'#' => code.number = true,
                byte if byte.is_ascii_alphabetic() => code.letters |= 1 << byte,
                _ => {}
            }
        }
        code
    }

    fn matches_port(&self, port: usize, other: &PortCode, other_port: usize) -> bool {
        let same_port = port == other_port;
        match (self.all_but, other.all_but) {
            (false, false) => self.letters & other.letters != 0 || (self.number && other.number && same_port),
            (true, false) => other.escapes(self, same_port),
            (false, true) => self.escapes(other, same_port),
            (true, true) => true,
        }
    }

    /// True if something of `self` is none of what `other` excludes.
    fn escapes(&self, other: &PortCode, same_port: bool) -> bool {
        self.letters & !other.letters != 0 || (self.number && !(other.number && same_port))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn port_counts_follow_use_within_their_range() {
        assert_eq!(port_counts("1/1", [0, 3]), Some([1, 1]));
        assert_eq!(port_counts("1-2/0", [2, 0]), Some([2, 0]));
        assert_eq!(port_counts("1/-", [1, 5]), Some([1, 5]));
        assert_eq!(port_counts("-/=", [3, 1]), Some([3, 3]));
        assert_eq!(port_counts("1-/=+", [0, 0]), Some([1, 2]));
        assert_eq!(port_counts("1-/=++", [2, 0]), Some([2, 4]));
        assert_eq!(port_counts("-2", [5, 0]), Some([2, 0]));
        assert_eq!(port_counts("", [1, 1]), Some([0, 0]));
        assert_eq!(port_counts("x/1", [0, 0]), None);
        assert_eq!(port_counts("1/=x", [0, 0]), None);
    }

    #[test]
    fn the_last_processing_letter_repeats() {
        let letters =
            |is_output| (0..4).map(|port| processing_letter("hl/ahl", is_output, port) as char).collect();
        let (inputs, outputs): (String, String) = (letters(false), letters(true));
        assert_eq!((inputs.as_str(), outputs.as_str()), ("hlll", "ahll"));
        assert_eq!(processing_letter("h", true, 7), b'h');
    }

    #[test]
    fn packets_travel_between_ports_that_share_a_code() {
        let flows = |code: &str, inputs: usize, outputs: usize| -> Vec<String> {
            let row = |input| {
                (0..outputs).map(move |output| if flows_between(code, input, output) { '1' } else { '0' })
            };
            (0..inputs).map(|input| row(input).collect()).collect()
        };
        assert_eq!(flows("x/x", 2, 2), ["11", "11"]);
        assert_eq!(flows("x/y", 1, 1), ["0"]);
        assert_eq!(flows("xy/x", 2, 1), ["1", "0"]);
        assert_eq!(flows("xy/xxyx", 2, 4), ["1101", "0010"]);
        assert_eq!(flows("#/#", 2, 2), ["10", "01"]);
        assert_eq!(flows("#/[^#]", 2, 2), ["01", "10"]);
        assert_eq!(flows("xy/[xy]x", 2, 3), ["111", "100"]);
        assert_eq!(flows("[^x]/xy", 1, 2), ["01"]);
        assert_eq!(flows("x", 1, 1), ["1"]);
        assert_eq!(flows("[x/", 1, 1), ["0"]);
    }
}
