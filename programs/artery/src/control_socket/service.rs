//! Requests answered by a running router.
use super::access::Access;
use super::codec::{Request, data_reply, reply};
use crate::replace::Replacer;
use crate::sandbox;
use artery_engine::{Handle, HandlerError};
use std::sync::Arc;

/// The reply to HELP.
const HELP: &[&str] = &[
    "Commands supported:",
    "READ handler [arg...]   call read handler, return DATA",
    "READDATA handler len    call read handler with len data bytes, return DATA",
    "READUNTIL handler term  call read handler, take data until term, return DATA",
    "WRITE handler [arg...]  call write handler",
    "WRITEDATA handler len   call write handler, pass len data bytes",
    "WRITEUNTIL handler term call write handler, take data until term",
    "CHECKREAD handler       check if read handler is valid",
    "CHECKWRITE handler      check if write handler is valid",
    "LLRPC elt#number [len]  call LLRPC, pass len data bytes, return DATA",
    "AUTH token              allow write handlers on a TCP port",
    "QUIT                    close connection",
];

/// The handler that says what the router's processes may do.
const SECURITY: &str = "security";
/// The handler that replaces the configuration.
const HOTCONFIG: &str = "hotconfig";

/// Bytes to send, and whether the connection goes on.
pub(super) enum Answer {
    Reply(Vec<u8>),
    Last(Vec<u8>),
}

/// Whose handlers are called. Each method gives the reply.
pub(crate) trait Handlers: Clone + Send + 'static {
    /// Reads a handler; `parameters` may be empty.
    fn read(&self, handler: &str, parameters: &str) -> Vec<u8>;
    /// Writes a handler of an element or the program.
    fn write(&self, handler: &str, value: &str) -> Vec<u8>;
    /// Says whether there is one.
    fn check(&self, handler: &str, write: bool) -> Vec<u8>;
    /// Whether a read of it changes something, as a script's `run` can.
    fn is_acting_read(&self, _handler: &str) -> bool {
        false
    }
    /// Calls LLRPC (Click's binary call, not a handler).
    fn llrpc(&self, name: &str) -> Vec<u8>;
}

/// Answers a request of a connection that may do so much.
pub(super) fn answer(handlers: &impl Handlers, request: Request, access: &mut Access) -> Answer {
    Answer::Reply(match request {
        Request::Nothing => Vec::new(),
        Request::Read { handler, .. } if !access.may_write() && handlers.is_acting_read(&handler) => {
            access.refusal(&handler)
        }
        Request::Read { handler, parameters } => handlers.read(&handler, &parameters),
        Request::Write { handler, .. } if !access.may_write() => access.refusal(&handler),
        Request::Write { handler, value } => handlers.write(&handler, &value),
        Request::Check { handler, write } => handlers.check(&handler, write),
        Request::Llrpc { name } => handlers.llrpc(&name),
        Request::Auth { token } => match access.authenticate(&token) {
            (reply, true) => reply,
            (reply, false) => return Answer::Last(reply),
        },
        Request::Help => reply(200, HELP),
        Request::Wrong(code, text) => reply(code, &[text]),
        Request::Http => return Answer::Last(reply(501, &["This is a control socket; it speaks no HTTP"])),
        Request::LineTooLong => return Answer::Last(reply(521, &["Line too long"])),
        Request::DataTooLong { handler, write } if write && !access.may_write() => {
            return Answer::Last(access.refusal(&handler));
        }
        Request::DataTooLong { handler, write } => {
            let verb = if write { "write" } else { "read" };
            return Answer::Last(reply(521, &[format!("Data too large for {verb} handler '{handler}'")]));
        }
        Request::Quit { superfluous } => {
            let mut bytes = Vec::new();
            if superfluous {
                bytes = reply(500, &["Bad command syntax"]);
            }
            bytes.extend(reply(200, &["Goodbye!"]));
            return Answer::Last(bytes);
        }
    })
}

/// Handlers of the program itself. A name that is not one of them gives None.
pub(crate) trait OwnHandlers: Send + Sync {
    /// The value of a handler, or why it has none.
    fn read(&self, handler: &str) -> Option<Result<String, String>>;
    /// Writes a handler; gives the text of the reply, or why the write was refused.
    fn write(&self, handler: &str, value: &str) -> Option<Result<String, String>>;
}

/// The handlers of one router.
#[derive(Clone)]
pub(crate) struct Service {
    handle: Handle,
    replacer: Option<Replacer>,
    own: Option<Arc<dyn OwnHandlers>>,
}

impl Service {
    /// With a replacer, `hotconfig` can be written.
    pub(crate) fn new(
        handle: Handle,
        replacer: Option<Replacer>,
        own: Option<Arc<dyn OwnHandlers>>,
    ) -> Service {
        Service { handle, replacer, own }
    }
}

impl Handlers for Service {
    fn read(&self, handler: &str, parameters: &str) -> Vec<u8> {
        if self.is_hotconfig(handler) {
            return reply(530, &[format!("Handler '{handler}' write-only")]);
        }
        if canonical(handler) == SECURITY {
            return data_reply(handler, &sandbox::document("router").to_string());
        }
        if let Some(read) = self.own.as_ref().and_then(|own| own.read(canonical(handler))) {
            return match read {
                Ok(value) => data_reply(handler, &value),
                Err(why) => with_messages(590, format!("Read handler '{handler}' error:"), &why),
            };
        }
        if self.is_private(handler) {
            return permission_denied(handler);
        }
        match self.handle.read_handler(canonical(handler), parameters) {
            Ok(value) => data_reply(handler, &value),
            Err(error) => read_refusal(handler, error),
        }
    }

    fn write(&self, handler: &str, value: &str) -> Vec<u8> {
        if let Some(replacer) = self.replacer.as_ref().filter(|_| self.is_hotconfig(handler)) {
            return written(handler, replacer.hotconfig(value));
        }
        if let Some(outcome) = self.own.as_ref().and_then(|own| own.write(canonical(handler), value)) {
            return written(handler, outcome);
        }
        if self.replacer.is_none() && canonical(handler) == HOTCONFIG {
            return reply(511, &[format!("No handler named '{handler}': the router was started without -R")]);
        }
        if self.is_private(handler) {
            return permission_denied(handler);
        }
        match self.handle.write_handler(canonical(handler), value) {
            Ok(()) => write_ok(handler),
            Err(error) => write_refusal(handler, error),
        }
    }

    fn check(&self, handler: &str, write: bool) -> Vec<u8> {
        if self.is_private(handler) {
            return permission_denied(handler);
        }
        let plan = self.handle.plan();
        let name = canonical(handler);
        let has = |write| if self.is_hotconfig(handler) { write } else { plan.has_handler(name, "", write) };
        let (verb, able) = if write { ("Write", "writable") } else { ("Read", "readable") };
        if has(write) {
            return reply(200, &[format!("{verb} handler '{handler}' OK")]);
        }
        if let Some(error) = self.missing_element(name) {
            return reply(510, &[error]);
        }
        match has(!write) {
            true => reply(511, &[format!("Handler '{handler}' not {able}")]),
            false => reply(511, &[format!("No handler named '{handler}'")]),
        }
    }

    fn is_acting_read(&self, handler: &str) -> bool {
        self.handle.plan().is_acting_read(canonical(handler))
    }

    /// Elements of this program have no such calls.
    fn llrpc(&self, name: &str) -> Vec<u8> {
        let (element, number) = name.split_once('#').unwrap_or((name, ""));
        if u32::from_str_radix(number.trim_start_matches("0x"), 16).is_err() {
            return reply(500, &[format!("Syntax error in LLRPC name '{name}'")]);
        }
        match self.missing_element(&format!("{element}.name")) {
            Some(error) => reply(510, &[error]),
            None => reply(501, &[format!("Cannot call LLRPC '{name}' remotely")]),
        }
    }
}

impl Service {
    fn missing_element(&self, name: &str) -> Option<String> {
        let (element, _) = name.rsplit_once('.')?;
        let is_missing = !element.is_empty() && self.handle.plan().find_node(element, "").is_none();
        is_missing.then(|| format!("No element named '{element}'"))
    }

    /// Whether a handler is for the configuration's own use.
    fn is_private(&self, handler: &str) -> bool {
        self.handle.plan().is_private(canonical(handler))
    }

    fn is_hotconfig(&self, handler: &str) -> bool {
        self.replacer.is_some() && canonical(handler) == HOTCONFIG
    }
}

/// `.handler` and `0.handler` are the router's, as `handler` is.
pub(super) fn canonical(name: &str) -> &str {
    name.strip_prefix("0.").or_else(|| name.strip_prefix('.')).unwrap_or(name)
}

fn permission_denied(handler: &str) -> Vec<u8> {
    reply(530, &[format!("Permission denied for '{handler}'")])
}

pub(super) fn write_ok(handler: &str) -> Vec<u8> {
    reply(200, &[format!("Write handler '{handler}' OK")])
}

/// A heading and a line for each line of `text`.
pub(super) fn with_messages(code: u16, heading: String, text: &str) -> Vec<u8> {
    let lines = text.lines().filter(|line| !line.trim().is_empty()).map(str::to_string);
    reply(code, &std::iter::once(heading).chain(lines).collect::<Vec<_>>())
}

/// The reply to a write that may have been done with warnings.
fn written(handler: &str, outcome: Result<String, String>) -> Vec<u8> {
    match outcome {
        Ok(warnings) if warnings.is_empty() => write_ok(handler),
        Ok(warnings) => with_messages(220, format!("Write handler '{handler}' OK with warnings:"), &warnings),
        Err(errors) => with_messages(520, format!("Write handler '{handler}' error:"), &errors),
    }
}

/// The reply to a read that failed.
pub(super) fn read_refusal(handler: &str, error: HandlerError) -> Vec<u8> {
    refusal(handler, error, |messages| {
        let heading = format!("Read handler '{handler}' error:");
        reply(590, &[&[heading], messages].concat())
    })
}

/// The reply to a write that failed.
pub(super) fn write_refusal(handler: &str, error: HandlerError) -> Vec<u8> {
    refusal(handler, error, |messages| {
        with_messages(520, format!("Write handler '{handler}' error:"), &messages.join("\n"))
    })
}

/// The reply to a failed call; `failed` words the handler's own error.
fn refusal(handler: &str, error: HandlerError, failed: impl Fn(&[String]) -> Vec<u8>) -> Vec<u8> {
    match error {
        HandlerError::NoElement(name) => reply(510, &[format!("No element named '{name}'")]),
        HandlerError::NoHandler(_) => reply(511, &[format!("No handler named '{handler}'")]),
        HandlerError::NotReadable(_) => reply(530, &[format!("Handler '{handler}' write-only")]),
        HandlerError::NotWritable(_) => reply(530, &[format!("Handler '{handler}' read-only")]),
        error => failed(&error.to_string().lines().map(str::to_string).collect::<Vec<_>>()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_routers_handlers_have_three_spellings() {
        assert_eq!([canonical("list"), canonical(".list"), canonical("0.list")], ["list"; 3]);
        assert_eq!(canonical("q.length"), "q.length");
    }

    #[test]
    fn messages_follow_their_heading_line_by_line() {
        let text = with_messages(520, "Write handler 'h' error:".into(), "one\n\ntwo\n");
        assert_eq!(text, b"520-Write handler 'h' error:\r\n520-one\r\n520 two\r\n");
    }
}
