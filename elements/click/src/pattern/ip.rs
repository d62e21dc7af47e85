//! The language of IPClassifier and IPFilter: header fields, addresses, ports and names, much
//! as tcpdump spells them.
//!
//! ```text
//! expr   := or [ '?' expr ':' expr ]
//! or     := term { ('or' | '||') term }
//! term   := factor { ['and' | '&&'] factor }
//! factor := ('not' | '!') factor | '(' expr ')' | test
//! test   := 'true' | 'false' | qualifiers [ '[' POS[:LEN] ']' ] [ '&' MASK ] [ RELATION ] [ VALUE ]
//! ```
//!
//! A test may leave out qualifiers that the one before it had: `src port 80 or 81`.
mod grammar;
mod names;
mod primitive;
mod test;

use super::expr::Expr;
use artery_engine::names::Names;

/// Reads an expression from its words; none, `-`, `any` and `all` match everything.
pub(crate) fn parse(words: &[String], names: &Names) -> Result<Expr, String> {
    match words {
        [] => Ok(Expr::Const(true)),
        [word] if matches!(word.as_str(), "-" | "any" | "all") => Ok(Expr::Const(true)),
        _ => grammar::parse_words(words, names),
    }
}

/// Splits a pattern into words and operators.
pub(crate) fn split_words(text: &str) -> Vec<String> {
    let mut words = Vec::new();
    let mut rest = text.trim_ascii_start();
    while let Some(first) = rest.chars().next() {
        let len = word_len(rest).max(first.len_utf8());
        let (word, after) = rest.split_at(len);
        words.push(word.to_string());
        rest = after.trim_ascii_start();
    }
    words
}

fn word_len(text: &str) -> usize {
    let bytes = text.as_bytes();
    let second = bytes.get(1);
    match bytes[0] {
        b'&' | b'|' if second == Some(&bytes[0]) => 2,
        b'<' | b'>' | b'!' | b'=' if second == Some(&b'=') => 2,
        _ => text.find(|c: char| !c.is_ascii_alphanumeric() && !"-./@_:".contains(c)).unwrap_or(text.len()),
    }
}
