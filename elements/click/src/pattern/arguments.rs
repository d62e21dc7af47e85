//! Patterns as arguments of an element: all errors are reported together.
use artery_engine::ArgError;

/// Reads every pattern by its number and text. `miscount` is the error about their number, if it is wrong.
pub(crate) fn read_all<T>(
    patterns: &[String],
    miscount: Option<String>,
    read: impl Fn(usize, &str) -> Result<T, String>,
) -> Result<Vec<T>, ArgError> {
    let mut values = Vec::new();
    let mut faults: Vec<(Option<&str>, String)> = miscount.into_iter().map(|why| (None, why)).collect();
    for (n, pattern) in patterns.iter().enumerate() {
        match read(n, pattern) {
            Ok(value) => values.push(value),
            Err(why) => faults.push((Some(pattern), why)),
        }
    }
    match &faults[..] {
        [] => Ok(values),
        [(Some(pattern), why)] => Err(ArgError::wrong_at(*pattern, why.as_str())),
        _ => Err(ArgError::wrong(faults.into_iter().map(|(_, why)| why).collect::<Vec<_>>().join("; "))),
    }
}

/// The error, with a remedy, when the number of patterns differs from that of connected outputs.
pub(crate) fn pattern_count_error(element: &str, patterns: usize, outputs: usize) -> Option<String> {
    let remedy = if patterns > outputs {
        format!("connect {}", format_ports(outputs, patterns - 1))
    } else if patterns < outputs {
        format!(
            "write a pattern for {} too, such as '-' for all other packets",
            format_ports(patterns, outputs - 1)
        )
    } else {
        return None;
    };
    let s = |n| if n == 1 { "" } else { "s" };
    Some(format!(
        "need {outputs} arguments, one per output port; {element} has {patterns} pattern{} and {outputs} \
         connected output{}: {remedy}",
        s(patterns),
        s(outputs)
    ))
}

/// `[1]`, `[1] and [2]` or `[1] to [3]`.
fn format_ports(first: usize, last: usize) -> String {
    match last - first {
        0 => format!("[{first}]"),
        1 => format!("[{first}] and [{last}]"),
        _ => format!("[{first}] to [{last}]"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_miscount_says_which_outputs_or_patterns_are_missing() {
        let said = |patterns, outputs| {
            let text = pattern_count_error("c", patterns, outputs).unwrap();
            text.split_once("; ").unwrap().1.to_string()
        };
        assert_eq!(said(3, 1), "c has 3 patterns and 1 connected output: connect [1] and [2]");
        assert_eq!(said(1, 0), "c has 1 pattern and 0 connected outputs: connect [0]");
        let dash = "too, such as '-' for all other packets";
        assert_eq!(
            said(1, 4),
            format!("c has 1 pattern and 4 connected outputs: write a pattern for [1] to [3] {dash}")
        );
        assert_eq!(pattern_count_error("c", 2, 2), None);
    }

    #[test]
    fn a_single_fault_has_a_place_and_several_are_all_told() {
        let read = |patterns: [&str; 3], miscount: Option<&str>| {
            let odd = |n, text: &str| text.parse::<u8>().map_err(|_| format!("pattern {n}: no number"));
            read_all(&patterns.map(String::from), miscount.map(String::from), odd)
        };
        assert_eq!(read(["1", "2", "3"], None), Ok(vec![1, 2, 3]));
        assert_eq!(read(["1", "x", "3"], None), Err(ArgError::wrong_at("x", "pattern 1: no number")));
        let several = "pattern 0: no number; pattern 2: no number";
        assert_eq!(read(["y", "2", "x"], None), Err(ArgError::wrong(several)));
        let counted = "too many; pattern 2: no number";
        assert_eq!(read(["1", "2", "x"], Some("too many")), Err(ArgError::wrong(counted)));
    }
}
