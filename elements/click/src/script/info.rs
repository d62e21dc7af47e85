//! The common part of elements that only provide information to others.
use artery_engine::Element;

/// An element whose work is done at construction.
pub(crate) struct Info;

impl Element for Info {}

/// The two words of `ELEMENT VALUE`.
pub(super) fn parse_pair(text: &str) -> Option<(String, String)> {
    let words: [String; 2] = artery_lang::args::split_words(text).try_into().ok()?;
    let [name, value] = words;
    Some((name, value))
}
