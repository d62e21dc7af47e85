//! What a script's instructions do with text: variables, handler calls, printing.
use super::Script;
use artery_engine::{Context, HandlerError};
use artery_lang::{args, variables};
use std::cell::RefCell;
use std::io::Write as _;

/// What `$?` is after a write handler refused: Click's -EINVAL.
const REFUSED: i32 = -22;

/// A handler as an instruction names it.
struct Callee {
    /// Whether it is this script's own, and so has to be served here: the script is at work.
    own: bool,
    name: String,
    /// Name for messages.
    shown: String,
    value: String,
}

/// A call that failed.
struct Failure {
    message: String,
    /// Whether there is such a handler at all.
    exists: bool,
}

impl Failure {
    fn unknown(message: impl Into<String>) -> Failure {
        Failure { message: message.into(), exists: false }
    }
    fn of(error: HandlerError, callee: &Callee, kind: &str) -> Failure {
        match error {
            HandlerError::NoElement(name) => Failure::unknown(format!("no element named '{name}'")),
            HandlerError::NoHandler(_) | HandlerError::NotReadable(_) | HandlerError::NotWritable(_) => {
                Failure::unknown(format!("no '{}' {kind} handler", callee.shown))
            }
            error => Failure { message: error.to_string(), exists: true },
        }
    }
    /// The message with the call that it is about.
    fn in_call(self, callee: &str) -> String {
        if self.exists {
            format!("While calling '{callee}':\n  {}", self.message.replace('\n', "\n  "))
        } else {
            self.message
        }
    }
}

impl Script {
    /// Replaces variables and handler calls.
    pub(super) fn expand(&mut self, text: &str, cx: &mut Context<'_>) -> String {
        self.expand_with(variables::expand, text, cx)
    }

    /// Replaces variables and handler calls, then unquotes the result if asked to.
    pub(super) fn expand_text(&mut self, text: &str, unquote: bool, cx: &mut Context<'_>) -> String {
        let expanded = self.expand(text, cx);
        if unquote { args::unquote(&expanded) } else { expanded }
    }

    fn expand_with(
        &mut self,
        expand: fn(&str, &mut variables::Lookup<'_>, Option<&mut variables::Lookup<'_>>) -> String,
        text: &str,
        cx: &mut Context<'_>,
    ) -> String {
        // Both lookups need the script, one after the other.
        let shared = RefCell::new((self, cx));
        let mut variable = |name: &str| shared.borrow().0.variable(name);
        let mut call = |text: &str| {
            let (script, cx) = &mut *shared.borrow_mut();
            script.interpolate(text, cx)
        };
        expand(text, &mut variable, Some(&mut call))
    }

    /// The value of a variable: one that was set, or one that always exists.
    pub(super) fn variable(&self, name: &str) -> Option<String> {
        if let Some(value) = self.variables.get(name) {
            return Some(value.clone());
        }
        Some(match name {
            "?" => self.status.to_string(),
            "$" => std::process::id().to_string(),
            "#" => args::words(&self.caller.args).len().to_string(),
            "args" => self.caller.args.clone(),
            "0" => self.caller.handler.clone(),
            "write" => self.caller.writes.to_string(),
            _ => {
                let place: usize = name.parse().ok().filter(|n| *n > 0)?;
                args::words(&self.caller.args).into_iter().nth(place - 1).unwrap_or_default()
            }
        })
    }

    /// The value of `$(text)`; `None` leaves it as it is written.
    fn interpolate(&mut self, text: &str, cx: &mut Context<'_>) -> Option<String> {
        match self.callee(text, false, false, cx).and_then(|callee| self.read(&callee, cx)) {
            Ok(value) => Some(value),
            Err(failure) => {
                self.errors.push(failure.message);
                failure.exists.then(String::new)
            }
        }
    }

    /// Finds out what `HANDLER [VALUE]` calls: without an element's name a handler of this script, else of the
    /// router.
    fn callee(
        &self,
        text: &str,
        unquote: bool,
        write: bool,
        cx: &mut Context<'_>,
    ) -> Result<Callee, Failure> {
        let (word, value) = args::shift_word(text);
        let name = args::string(word).filter(|name| !name.ends_with('.'));
        let name = name.ok_or_else(|| Failure::unknown("syntax error"))?;
        let value = if unquote { args::unquote(value) } else { value.trim_ascii_end().to_string() };
        let callee = |own, name: &str, shown| Callee { own, name: name.to_string(), shown, value };
        let own_name = |handler: &str, cx: &Context<'_>| format!("{}.{handler}", cx.name());
        match name.rsplit_once('.') {
            Some(("", global)) => Ok(callee(false, global, global.to_string())),
            Some((element, handler)) => match cx.element(element) {
                Some(number) if number == cx.number() => Ok(callee(true, handler, own_name(handler, cx))),
                Some(number) => Ok(callee(false, &name, format!("{}.{handler}", cx.name_of(number)))),
                None => Err(Failure::unknown(format!("no element named '{element}'"))),
            },
            None if self.has_own(&name, write, cx) => Ok(callee(true, &name, own_name(&name, cx))),
            None => Ok(callee(false, &name, name.clone())),
        }
    }

    fn read(&mut self, callee: &Callee, cx: &mut Context<'_>) -> Result<String, Failure> {
        let value = if !callee.own {
            cx.read_handler(&callee.name, &callee.value)
        } else if self.serves(&callee.name) {
            self.serve_read(&callee.name, &callee.value, cx)
        } else {
            // One that every element has; the engine answers without the element.
            cx.read_handler(&callee.shown, &callee.value)
        };
        value.map_err(|error| Failure::of(error, callee, "read"))
    }

    /// The instruction `write`.
    pub(super) fn write(&mut self, text: &str, unquote: bool, cx: &mut Context<'_>) {
        let text = self.expand(text, cx);
        let callee = match self.callee(&text, unquote, true, cx) {
            Ok(callee) => callee,
            Err(failure) => return self.errors.push(failure.message),
        };
        let result = if !callee.own {
            cx.write_handler(&callee.name, &callee.value)
        } else if self.serves(&callee.name) {
            self.serve_write(&callee.name, &callee.value, cx)
        } else {
            cx.write_handler(&callee.shown, &callee.value)
        };
        self.status = 0;
        if let Err(error) = result {
            self.status = REFUSED;
            self.errors.push(Failure::of(error, &callee, "write").in_call(&callee.call()));
        }
    }

    /// Reads a handler for `print` and `read`; reports an error.
    fn read_reporting(
        &mut self,
        text: &str,
        unquote: bool,
        cx: &mut Context<'_>,
    ) -> Option<(String, String)> {
        let text = self.expand(text, cx);
        let callee = match self.callee(&text, unquote, false, cx) {
            Ok(callee) => callee,
            Err(failure) => {
                self.errors.push(failure.message);
                return None;
            }
        };
        match self.read(&callee, cx) {
            Ok(value) => Some((callee.shown, value)),
            Err(failure) => {
                self.errors.push(failure.in_call(&callee.call()));
                None
            }
        }
    }

    /// The instruction `read`.
    pub(super) fn say_read(&mut self, text: &str, unquote: bool, cx: &mut Context<'_>) {
        if let Some((name, value)) = self.read_reporting(text, unquote, cx) {
            cx.say(&format!("{name}:\n{value}"));
        }
    }

    /// The instruction `print` and its variants.
    pub(super) fn print(&mut self, text: &str, newline: bool, unquote: bool, cx: &mut Context<'_>) {
        let (file, text) = redirection(text);
        let names_handler = text.starts_with(|c: char| c.is_ascii_alphabetic() || c == '@' || c == '_');
        let value = if names_handler {
            self.read_reporting(text, unquote, cx).map(|(_, value)| value)
        } else {
            Some(args::unquote(&self.expand_with(variables::expand_quoting, text, cx)))
        };
        // A failed call prints nothing, not even a line's end.
        let Some(mut value) = value else { return };
        if newline && !value.ends_with('\n') {
            value.push('\n');
        }
        match file {
            None => cx.print(&value),
            Some((path, append)) => {
                if let Err(error) = write_file(&path, append, &value) {
                    self.errors.push(format!("{path}: {}", reason(&error)));
                }
            }
        }
    }
}

impl Callee {
    /// The call as an instruction writes it.
    fn call(&self) -> String {
        if self.value.is_empty() { self.shown.clone() } else { format!("{} {}", self.shown, self.value) }
    }
}

/// The file, and whether to append to it, that `>FILE` or `>>FILE` before a text names; and the text.
fn redirection(text: &str) -> (Option<(String, bool)>, &str) {
    let Some(rest) = text.strip_prefix('>') else { return (None, text) };
    let (append, rest) = match rest.strip_prefix('>') {
        Some(rest) => (true, rest),
        None => (false, rest),
    };
    let (word, text) = args::shift_word(rest);
    let path = args::unquote(word);
    (Some((path, append)).filter(|(path, _)| !path.is_empty() && path != "-"), text)
}

fn write_file(path: &str, append: bool, text: &str) -> std::io::Result<()> {
    let mut options = std::fs::OpenOptions::new();
    options.create(true).append(append).write(true).truncate(!append);
    options.open(path)?.write_all(text.as_bytes())
}

/// The system's words for an error.
pub(super) fn reason(error: &std::io::Error) -> String {
    let text = error.to_string();
    text.split(" (os error").next().unwrap_or_default().to_string()
}
