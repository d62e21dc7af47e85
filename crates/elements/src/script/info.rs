//! What the elements share that only tell others something.
use artery_engine::{Batch, Context, Element};

/// An element that has done its work when it is made.
pub(crate) struct Info;

impl Element for Info {
    fn push(&mut self, _input: usize, _batch: &mut Batch, _cx: &mut Context<'_>) {}
}

/// The two words of `ELEMENT VALUE`.
pub(super) fn pair(text: &str) -> Option<(String, String)> {
    let words: [String; 2] = artery_lang::args::words(text).try_into().ok()?;
    let [name, value] = words;
    Some((name, value))
}
