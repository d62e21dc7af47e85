//! What a script's instructions do with text: variables, handler calls, printing.
use super::Script;
use artery_device::files;
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
    /// Name of the handler in messages.
    shown: String,
    value: String,
}

/// A call that failed.
struct Failure {
    message: String,
    /// Whether there is such a handler at all, and it can be called so.
    exists: bool,
}

impl Failure {
    fn not_found(message: impl Into<String>) -> Failure {
        Failure { message: message.into(), exists: false }
    }
    fn from_handler_error(error: HandlerError, callee: &Callee, kind: &str) -> Failure {
        match error {
            HandlerError::NoElement(name) => Failure::not_found(format!("no element named '{name}'")),
            HandlerError::NoHandler(_) | HandlerError::NotReadable(_) | HandlerError::NotWritable(_) => {
                Failure::not_found(format!("no '{}' {kind} handler", callee.shown))
            }
            HandlerError::NoParameters(_) => Failure::not_found(error.to_string()),
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
    pub(super) fn expand_variables(&mut self, text: &str, cx: &mut Context<'_>) -> String {
        self.expand_with(variables::expand, text, cx)
    }

    /// Replaces variables and handler calls, then unquotes the result if requested.
    pub(super) fn expand_text(&mut self, text: &str, unquote: bool, cx: &mut Context<'_>) -> String {
        let expanded = self.expand_variables(text, cx);
        if unquote { args::unquote(&expanded) } else { expanded }
    }

    fn expand_with(
        &mut self,
        expand: fn(&str, &mut variables::Lookup<'_>, Option<&mut variables::Lookup<'_>>) -> String,
        text: &str,
        cx: &mut Context<'_>,
    ) -> String {
        // Both lookups borrow the script, one after the other.
        let shared = RefCell::new((self, cx));
        let mut variable = |name: &str| shared.borrow().0.lookup_variable(name);
        let mut call = |text: &str| {
            let (script, cx) = &mut *shared.borrow_mut();
            script.evaluate_call(text, cx)
        };
        expand(text, &mut variable, Some(&mut call))
    }

    /// The value of a variable: one that was set, or one that always exists.
    pub(super) fn lookup_variable(&self, name: &str) -> Option<String> {
        if let Some(value) = self.variables.get(name) {
            return Some(value.clone());
        }
        Some(match name {
            "?" => self.status.to_string(),
            "$" => std::process::id().to_string(),
            "#" => args::split_words(&self.caller.args).len().to_string(),
            "args" => self.caller.args.clone(),
            "0" => self.caller.handler.clone(),
            "write" => self.caller.writes.to_string(),
            _ => {
                let place: usize = name.parse().ok().filter(|n| *n > 0)?;
                args::split_words(&self.caller.args).into_iter().nth(place - 1).unwrap_or_default()
            }
        })
    }

    /// The value of `$(text)`; `None` leaves it as it is written.
    fn evaluate_call(&mut self, text: &str, cx: &mut Context<'_>) -> Option<String> {
        match self.resolve_callee(text, false, false, cx).and_then(|callee| self.read_callee(&callee, cx)) {
            Ok(value) => Some(value),
            Err(failure) => {
                self.report_error(failure.message, cx);
                failure.exists.then(String::new)
            }
        }
    }

    /// Resolves `HANDLER [VALUE]`: without an element's name it is a handler of this script,
    /// else of the router.
    fn resolve_callee(
        &self,
        text: &str,
        unquote: bool,
        write: bool,
        cx: &mut Context<'_>,
    ) -> Result<Callee, Failure> {
        let (word, value) = args::shift_word(text);
        let name = args::parse_string(word).filter(|name| !name.ends_with('.'));
        let name = name.ok_or_else(|| Failure::not_found("syntax error"))?;
        let value = if unquote { args::unquote(value) } else { value.to_string() };
        let callee = |own, name: &str, shown| Callee { own, name: name.to_string(), shown, value };
        let own_name = |handler: &str, cx: &Context<'_>| format!("{}.{handler}", cx.name());
        match name.rsplit_once('.') {
            Some(("", global)) => Ok(callee(false, global, global.to_string())),
            Some((element, handler)) => match cx.find_element(element) {
                Some(number) if number == cx.number() => Ok(callee(true, handler, own_name(handler, cx))),
                Some(number) => Ok(callee(false, &name, format!("{}.{handler}", cx.name_of(number)))),
                None => Err(Failure::not_found(format!("no element named '{element}'"))),
            },
            None if self.has_own(&name, write, cx) => Ok(callee(true, &name, own_name(&name, cx))),
            None => Ok(callee(false, &name, name.clone())),
        }
    }

    fn read_callee(&mut self, callee: &Callee, cx: &mut Context<'_>) -> Result<String, Failure> {
        let value = if !callee.own {
            cx.read_handler(&callee.name, &callee.value)
        } else if !callee.value.is_empty() && self.takes_nothing(&callee.name) {
            Err(HandlerError::NoParameters(callee.shown.clone()))
        } else if self.has_handler(&callee.name) {
            self.serve_read(&callee.name, &callee.value, cx)
        } else {
            // One that every element has; the engine answers without the element.
            cx.read_handler(&callee.shown, &callee.value)
        };
        value.map_err(|error| Failure::from_handler_error(error, callee, "read"))
    }

    /// Runs the instruction `write`.
    pub(super) fn execute_write(&mut self, text: &str, unquote: bool, cx: &mut Context<'_>) {
        let text = self.expand_variables(text, cx);
        let callee = match self.resolve_callee(&text, unquote, true, cx) {
            Ok(callee) => callee,
            Err(failure) => return self.report_error(failure.message, cx),
        };
        let result = if !callee.own {
            cx.write_handler(&callee.name, &callee.value)
        } else if self.has_handler(&callee.name) {
            self.serve_write(&callee.name, &callee.value, cx)
        } else {
            cx.write_handler(&callee.shown, &callee.value)
        };
        let failure = result.err().map(|error| Failure::from_handler_error(error, &callee, "write"));
        // A call of a handler that doesn't exist leaves the status unchanged.
        match &failure {
            None => self.status = 0,
            Some(failure) if failure.exists => self.status = REFUSED,
            Some(_) => {}
        }
        if let Some(failure) = failure {
            self.report_error(failure.in_call(&callee.call_text()), cx);
        }
    }

    /// Reads a handler for `print` and `read`; reports an error.
    fn read_reporting(
        &mut self,
        text: &str,
        unquote: bool,
        cx: &mut Context<'_>,
    ) -> Option<(String, String)> {
        let text = self.expand_variables(text, cx);
        let callee = match self.resolve_callee(&text, unquote, false, cx) {
            Ok(callee) => callee,
            Err(failure) => {
                self.report_error(failure.message, cx);
                return None;
            }
        };
        match self.read_callee(&callee, cx) {
            Ok(value) => Some((callee.shown, value)),
            Err(failure) => {
                // A handler that fails has an empty value; one that doesn't exist is not called.
                let nothing = failure.exists.then(|| (callee.shown.clone(), String::new()));
                self.report_error(failure.in_call(&callee.call_text()), cx);
                nothing
            }
        }
    }

    /// Runs the instruction `read`.
    pub(super) fn say_read(&mut self, text: &str, unquote: bool, cx: &mut Context<'_>) {
        if let Some((name, value)) = self.read_reporting(text, unquote, cx) {
            cx.print_message(&format!("{name}:\n{value}"));
        }
    }

    /// The instruction `print` and its variants.
    pub(super) fn execute_print(&mut self, text: &str, newline: bool, unquote: bool, cx: &mut Context<'_>) {
        let (file, text) = split_redirection(text);
        let mut file = match file.map(|(path, append)| open_file(&path, append).map_err(|e| (path, e))) {
            None => None,
            Some(Ok(file)) => Some(file),
            Some(Err((path, error))) => {
                return self.report_error(format!("{path}: {}", artery_device::system_message(&error)), cx);
            }
        };
        let errors = self.error_count;
        let mut value = self.printed_text(text, unquote, cx);
        // What failed ends no line.
        if newline && self.error_count == errors && !value.ends_with('\n') {
            value.push('\n');
        }
        match &mut file {
            None => cx.print(&value),
            // A full disk is not an error of the script.
            Some(file) => drop(file.write_all(value.as_bytes())),
        }
    }

    /// The text that `print` prints: a handler's value if it names one.
    fn printed_text(&mut self, text: &str, unquote: bool, cx: &mut Context<'_>) -> String {
        if text.starts_with(|c: char| c.is_ascii_alphabetic() || c == '@' || c == '_') {
            return self.read_reporting(text, unquote, cx).map(|(_, value)| value).unwrap_or_default();
        }
        args::unquote(&self.expand_with(variables::expand_quoting, text, cx))
    }
}

impl Callee {
    /// The call as an instruction writes it.
    fn call_text(&self) -> String {
        if self.value.is_empty() { self.shown.clone() } else { format!("{} {}", self.shown, self.value) }
    }
}

/// The file, and whether to append to it, that `>FILE` or `>>FILE` before a text names; and the text.
fn split_redirection(text: &str) -> (Option<(String, bool)>, &str) {
    let Some(rest) = text.strip_prefix('>') else { return (None, text) };
    let (append, rest) = match rest.strip_prefix('>') {
        Some(rest) => (true, rest),
        None => (false, rest),
    };
    let (word, text) = args::shift_word(rest);
    (Some((word.to_string(), append)).filter(|(path, _)| !path.is_empty() && path != "-"), text)
}

fn open_file(path: &str, append: bool) -> std::io::Result<std::fs::File> {
    if append { files::append(path) } else { files::create(path) }
}
