//! What the elements share that only tell others something.
use artery_engine::{Batch, Context, Element, StartError};

/// An element that has done its work when it is made. It may have something to say when the router starts.
#[derive(Default)]
pub(super) struct Info {
    pub(super) warnings: Vec<String>,
}

impl Element for Info {
    fn push(&mut self, _input: usize, _batch: &mut Batch, _cx: &mut Context<'_>) {}

    fn start(&mut self, cx: &mut Context<'_>) -> Result<(), StartError> {
        let name = cx.name().to_string();
        for warning in &self.warnings {
            cx.say(&format!("{name}: warning: {warning}"));
        }
        Ok(())
    }
}

/// The two words of `ELEMENT VALUE`.
pub(super) fn pair(text: &str) -> Option<(String, String)> {
    let words: [String; 2] = artery_lang::args::words(text).try_into().ok()?;
    let [name, value] = words;
    Some((name, value))
}
