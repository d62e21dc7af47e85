//! The handlers of a script: functions, controls, and those that the script itself defines.
use super::program::{Ending, Target};
use super::run::{Outcome, ResumeCause};
use super::signal::by_name;
use super::{Script, ScriptKind, arithmetic};
use artery_common::chance;
use artery_device::system_message;
use artery_engine::{Context, Handler, HandlerError, Read, Write};
use artery_lang::args;
use rustix::process::{Pid, Signal, kill_process, test_kill_process};

macro_rules! handlers {
    (reads { $($name:literal: $doc:literal),* $(,)? } private { $($private:literal: $what:literal),* $(,)? }
     writes { $($write:literal: $does:literal),* $(,)? }) => {
        &[
            $(Handler::read($name, $doc, &Read(|s: &mut Script, text, cx| s.serve_read($name, text, cx)))
                .parameters(),)*
            $(Handler::read(
                $private,
                $what,
                &Read(|s: &mut Script, text, cx| s.serve_read($private, text, cx)),
            )
            .parameters()
            .private(),)*
            $(Handler::write(
                $write,
                $does,
                &Write(|s: &mut Script, text, cx| s.serve_write($write, text, cx)),
            ),)*
            Handler::read("now", "the time", &Read(|s: &mut Script, text, cx| s.serve_read("now", text, cx))),
            Handler::read(
                "run",
                "runs the script; what it returns",
                &Read(|s: &mut Script, text, cx| s.serve_read("run", text, cx)),
            )
            .and_write(&Write(|s: &mut Script, text, cx| s.serve_write("run", text, cx)))
            .parameters(),
        ]
    };
}

/// Handlers of Script and DriverManager.
pub(in super::super) static HANDLERS: &[Handler] = handlers! {
    reads {
        "add": "sum of numbers",
        "sub": "first number less the others",
        "mul": "product of numbers",
        "div": "first number divided by the others",
        "idiv": "the same, without fraction",
        "mod": "remainder of two integers",
        "rem": "remainder of two numbers",
        "neg": "the number with its sign turned",
        "abs": "the number without sign",
        "min": "least number",
        "max": "greatest number",
        "eq": "whether two numbers or words are equal",
        "ne": "whether they are not",
        "lt": "whether the first is less",
        "le": "whether it is less or equal",
        "gt": "whether it is greater",
        "ge": "whether it is greater or equal",
        "not": "the opposite of a truth value",
        "and": "whether all are true",
        "or": "whether one is true",
        "nand": "whether not all are true",
        "nor": "whether none is true",
        "if": "the second word if the first is true, else the third",
        "in": "whether the first word is among the others",
        "first": "first word",
        "sprintf": "words in a format such as %05d",
        "length": "number of bytes",
        "unquote": "the text without one layer of quotes",
        "htons": "a 16-bit number in network byte order",
        "htonl": "a 32-bit number in network byte order",
        "ntohs": "a 16-bit number in this machine's byte order",
        "ntohl": "a 32-bit number in this machine's byte order",
        "random": "a random number: any, below N, or from N1 to N2",
        "readable": "whether all these handlers can be read",
        "writable": "whether all these handlers can be written",
        "get": "value of a variable",
        "shift": "takes the first word off a variable, `args` if none is named",
    }
    private {
        "cat": "contents of a file",
        "catq": "contents of a file, quoted",
        "kill": "sends a signal to processes; a confined router only to its own, from Linux 6.12 on",
    }
    writes {
        "step": "gives the script steps, one if no number is given",
        "goto": "continues at a label",
        "set": "sets a variable",
    }
};

/// A handler that a script declares for itself: an exported variable, or any for a proxy.
pub(in super::super) static OWN_HANDLERS: Handler = Handler::read(
    "*",
    "an exported variable; in a proxy, what the script makes of it",
    &Read(|s: &mut Script, text, cx| {
        let (name, parameters) = text.split_once(' ').unwrap_or((text, ""));
        s.serve_read(name, parameters, cx)
    }),
)
.and_write(&Write(|s: &mut Script, text, cx| {
    let (name, value) = text.split_once(' ').unwrap_or((text, ""));
    s.serve_write(name, value, cx)
}));

fn refused(message: &str) -> HandlerError {
    HandlerError::refused(message)
}

impl Script {
    /// Whether [`Script::serve_read`] or [`Script::serve_write`] handles this name.
    pub(super) fn has_handler(&self, name: &str) -> bool {
        HANDLERS.iter().any(|handler| handler.name == name)
            || self.program.exports.iter().any(|export| export == name)
            || self.kind == ScriptKind::Proxy
    }

    /// Whether this is a read handler of the script without parameters.
    pub(super) fn takes_nothing(&self, name: &str) -> bool {
        match HANDLERS.iter().find(|handler| handler.name == name) {
            Some(handler) => handler.read.is_some() && !handler.takes_parameters,
            None => self.program.exports.iter().any(|export| export == name),
        }
    }

    /// Whether a handler without an element's name is this script's own.
    pub(super) fn has_own(&self, name: &str, write: bool, cx: &Context<'_>) -> bool {
        if self.kind != ScriptKind::Proxy {
            return cx.has_handler(&format!("{}.{name}", cx.name()), write) || self.has_handler(name);
        }
        // A proxy accepts every name, so the router's handlers take precedence over the script's own names.
        HANDLERS.iter().any(|handler| handler.name == name) || !cx.has_handler(name, write)
    }

    /// Answers a read handler of this script, called from outside or by itself.
    pub(super) fn serve_read(
        &mut self,
        name: &str,
        text: &str,
        cx: &mut Context<'_>,
    ) -> Result<String, HandlerError> {
        if let Some(result) = arithmetic::call_function(name, text) {
            return result.map_err(HandlerError::Refused);
        }
        match name {
            "run" => self.run_as(name, text, false, cx),
            "get" | "shift" => self.read_variable(name, text),
            "now" => Ok(cx.now().to_string()),
            "random" => self.draw_random(text),
            "readable" | "writable" => {
                let all =
                    args::split_words(text).iter().all(|word| self.can_call(word, name == "writable", cx));
                Ok(all.to_string())
            }
            "cat" => read_file(text),
            "catq" => read_file(text).map(|contents| args::quote(&contents)),
            "kill" => send_signal(text),
            _ if self.program.exports.iter().any(|export| export == name) => {
                Ok(self.variables.get(name).cloned().unwrap_or_default())
            }
            _ if self.kind == ScriptKind::Proxy => self.run_as(name, text, false, cx),
            _ => Err(HandlerError::NoHandler(format!("{}.{name}", cx.name()))),
        }
    }

    /// Answers a write handler of this script, called from outside or by itself.
    pub(super) fn serve_write(
        &mut self,
        name: &str,
        value: &str,
        cx: &mut Context<'_>,
    ) -> Result<(), HandlerError> {
        let text = args::strip_comments(value);
        match name {
            "step" => {
                let steps: u32 = match text.as_str() {
                    "" => 1,
                    text => args::parse_unsigned(text)
                        .ok()
                        .and_then(|n| n.try_into().ok())
                        .ok_or_else(|| refused("syntax error"))?,
                };
                self.add_steps(i64::from(steps), cx)
            }
            "goto" => self.go_to(&text, cx),
            "run" => self.run_as(name, value, true, cx).map(drop),
            "set" => {
                let (variable, value) = args::shift_word(value);
                match variable {
                    "" => return Err(refused("no variable")),
                    "args" => self.caller.args = value.to_string(),
                    variable => drop(self.variables.insert(variable.to_string(), value.to_string())),
                }
                Ok(())
            }
            _ if self.kind == ScriptKind::Proxy => self.run_as(name, value, true, cx).map(drop),
            _ => Err(HandlerError::NotWritable(format!("{}.{name}", cx.name()))),
        }
    }

    fn add_steps(&mut self, steps: i64, cx: &mut Context<'_>) -> Result<(), HandlerError> {
        if self.running {
            self.pending_steps += steps;
            return Ok(());
        }
        self.run_steps(steps, ResumeCause::Call, cx);
        self.call_result("step", self.current_outcome(), cx).map(drop)
    }

    fn go_to(&mut self, label: &str, cx: &mut Context<'_>) -> Result<(), HandlerError> {
        let Some(Target::Instruction(at)) = self.program.find_label(label) else {
            return Err(refused("jump to nonexistent label"));
        };
        self.program.reset_waits(at..self.program.instructions.len());
        self.position = at;
        if self.running {
            return Ok(());
        }
        self.set_alarm(None, cx);
        self.run_steps(0, ResumeCause::Call, cx);
        self.call_result("goto", self.current_outcome(), cx).map(drop)
    }

    /// Runs the script from its beginning for a caller of the handler `name`.
    fn run_as(
        &mut self,
        name: &str,
        text: &str,
        writes: bool,
        cx: &mut Context<'_>,
    ) -> Result<String, HandlerError> {
        self.caller.args = text.to_string();
        if self.running {
            self.position = 0;
            return Ok(String::new());
        }
        self.caller.handler = name.to_string();
        self.caller.writes = writes;
        let outcome = self.run_from_start(cx);
        self.caller.handler.clear();
        self.caller.writes = false;
        self.call_result(name, outcome, cx)
    }

    /// What a caller gets: the value that was returned, or what went wrong.
    fn call_result(
        &mut self,
        name: &str,
        outcome: Outcome,
        cx: &mut Context<'_>,
    ) -> Result<String, HandlerError> {
        if let Outcome::Ended(Ending::Error) = outcome {
            let mut message = std::mem::take(&mut self.errors).join("\n");
            if message.is_empty() {
                message = format!("'{}.{name}' ended with an error", cx.name());
            }
            return Err(HandlerError::Refused(message));
        }
        self.report_errors(cx);
        Ok(match outcome {
            Outcome::Returned(value) => value,
            _ => String::new(),
        })
    }

    fn read_variable(&mut self, name: &str, text: &str) -> Result<String, HandlerError> {
        let (variable, more) = args::shift_word(text);
        let variable = if variable.is_empty() && name == "shift" { "args" } else { variable };
        if variable.is_empty() {
            return Err(refused("no variable"));
        }
        if !more.is_empty() {
            return Err(refused("too many arguments"));
        }
        let value = match variable {
            "args" => Some(&mut self.caller.args),
            _ => self.variables.get_mut(variable),
        };
        let value = value.ok_or_else(|| HandlerError::refused(format!("undefined variable '{variable}'")))?;
        if name == "get" {
            return Ok(value.clone());
        }
        let (first, rest) = args::shift_word(value);
        let (first, rest) = (first.to_string(), rest.to_string());
        *value = rest;
        Ok(first)
    }

    fn draw_random(&self, text: &str) -> Result<String, HandlerError> {
        let words = args::split_words(text);
        let mut wrong = Vec::new();
        let mut numbers = Vec::new();
        for (word, name) in words.iter().zip(["N1", "N2"]) {
            match args::parse_unsigned(word).map(u32::try_from) {
                Ok(Ok(number)) => numbers.push(number),
                Ok(Err(_)) => wrong.push(format!("{name}: out of range, bound {}", u32::MAX)),
                Err(_) => wrong.push(format!("{name}: invalid number")),
            }
        }
        if words.len() > 2 {
            wrong.push("too many arguments".into());
        }
        if !wrong.is_empty() {
            return Err(HandlerError::Refused(wrong.join("\n")));
        }
        let drawn = match numbers[..] {
            [] => self.chance.random_between(0, chance::MAX),
            [n] if n > 0 => self.chance.random_between(0, n - 1),
            [low, high] if low <= high => self.chance.random_between(low, high),
            _ => return Err(refused("bad N")),
        };
        Ok(drawn.to_string())
    }

    fn can_call(&self, name: &str, write: bool, cx: &Context<'_>) -> bool {
        let own = !name.contains('.') && cx.has_handler(&format!("{}.{name}", cx.name()), write);
        own || cx.has_handler(name, write)
    }
}

fn read_file(text: &str) -> Result<String, HandlerError> {
    let path = args::parse_string(text).ok_or_else(|| refused("bad FILE"))?;
    let bytes = artery_device::files::read(&path)
        .map_err(|error| HandlerError::refused(format!("{path}: {}", system_message(&error))))?;
    Ok(String::from_utf8_lossy(&bytes).into_owned())
}

fn send_signal(text: &str) -> Result<String, HandlerError> {
    let (name, processes) = args::shift_word(text);
    // Signal 0 only checks whether the process exists.
    let number = if name == "0" { Some(0) } else { by_name(name) };
    let number = number.ok_or_else(|| refused("bad SIGNO"))?;
    for word in args::split_words(processes) {
        let process = args::parse_signed(&word).ok().and_then(|n| i32::try_from(n).ok()).filter(|n| *n > 0);
        let process = process.and_then(Pid::from_raw).ok_or_else(|| refused("bad PID"))?;
        let sent = match number {
            0 => test_kill_process(process),
            _ => {
                let signal = Signal::from_named_raw(number).ok_or_else(|| refused("bad SIGNO"))?;
                kill_process(process, signal)
            }
        };
        sent.map_err(|error| {
            let error = std::io::Error::from(error);
            HandlerError::refused(format!("kill({word}, {number}): {}", system_message(&error)))
        })?;
    }
    Ok(String::new())
}
