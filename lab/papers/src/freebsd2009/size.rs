//! How much code each design takes, counted in the sources that were built.

/// Lines of the unified design.
pub(super) fn legacy() -> usize {
    lines(include_str!("legacy.rs"))
}

/// Lines of the split one: routes, and neighbors.
pub(super) fn split() -> [usize; 2] {
    [lines(include_str!("split.rs")), lines(include_str!("lltable.rs"))]
}

/// Lines with code that is not for tests: no empty ones, no comments, no imports.
fn lines(source: &str) -> usize {
    let (mut count, mut skipped) = (0, None);
    for line in source.lines() {
        let (text, indent) = (line.trim(), line.len() - line.trim_start().len());
        if text == "#[cfg(test)]" {
            skipped = Some(indent);
        } else if let Some(outer) = skipped {
            // What is for tests ends with its brace.
            if indent == outer && text.ends_with('}') {
                skipped = None;
            }
        } else if !text.is_empty() && !text.starts_with("//") && !text.starts_with("use ") {
            count += 1;
        }
    }
    count
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_lines_of_code_are_counted() {
        let source = "//! What.\n\nuse a::b;\n\n/// It.\nfn f() {\n    // Why.\n    g();\n}\n\
            \n    #[cfg(test)]\n    fn h() {\n        g();\n    }\nconst A: u8 = 1;\n#[cfg(test)]\n\
            mod tests {\n    fn t() {\n    }\n}\n";
        assert_eq!(lines(source), 4);
        assert!(legacy() > 200 && split().iter().all(|part| *part > 80));
    }
}
