//! A write handler that an argument names, to be called later: `HANDLER [VALUE]`.
use artery_engine::{Class, Context, Element, HandlerError, StartError};

/// A handler's name and what to write to it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct HandlerCall {
    /// The handler's name, with its element's.
    pub(super) handler: String,
    /// The text that is written to the handler.
    pub(super) value: String,
}

impl HandlerCall {
    /// Parses an argument; `None` when it is empty.
    pub(super) fn new(text: &str) -> Option<HandlerCall> {
        let text = text.trim();
        let (handler, value) = text.split_once(char::is_whitespace).unwrap_or((text, ""));
        let is_there = !handler.is_empty();
        is_there.then(|| HandlerCall { handler: handler.to_string(), value: value.trim().to_string() })
    }
    /// Checks that the handler can be written; `arg` is the argument that names it.
    pub(super) fn check_writable(&self, arg: &str, cx: &Context<'_>) -> Result<(), StartError> {
        match cx.has_handler(&self.handler, true) {
            true => Ok(()),
            false => Err(StartError::new(format!("{arg}: no '{}' write handler", self.handler))),
        }
    }
    /// Writes; an error is printed after the name of `class` and `arg`.
    pub(super) fn write_value(&self, class: &str, arg: &str, cx: &mut Context<'_>) {
        print_failure(cx.write_handler(&self.handler, &self.value), class, arg, cx);
    }
    /// Writes for an element at work, perhaps to itself; `arg` of `class` names the handler.
    pub(super) fn run(&self, element: &mut dyn Element, class: &Class, arg: &str, cx: &mut Context<'_>) {
        let own =
            self.handler.rsplit_once('.').filter(|(name, _)| cx.find_element(name) == Some(cx.number()));
        match own.and_then(|(_, handler)| class.handler(handler)?.write) {
            // The element is running, so no other thread can reach it.
            Some(write) => {
                print_failure(write.call_handler(element, &self.value, cx), class.name, arg, cx);
            }
            None => self.write_value(class.name, arg, cx),
        }
    }
}

fn print_failure(result: Result<(), HandlerError>, class: &str, arg: &str, cx: &mut Context<'_>) {
    if let Err(error) = result {
        cx.print_message(&format!("{} :: {class}: {arg}: {error}", cx.name()));
    }
}
