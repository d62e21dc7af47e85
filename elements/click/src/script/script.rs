use artery_common::chance::Chance;
use artery_engine::{
    Arg, ArgError, Args, Batch, Class, Context, DropReason, Element, Packet, Phase, ReadEffect, StartError,
    Time,
};
use artery_lang::args;
use std::collections::HashMap;
use std::sync::Arc;

mod arithmetic;
mod call;
mod handlers;
mod program;
mod run;
mod signal;
mod sprintf;

pub(super) use handlers::{HANDLERS, OWN_HANDLERS};
use program::{Ending, Program};
use run::{Outcome, Progress, ResumeCause};
pub use signal::ClaimedSignals;
use signal::SignalPipe;

pub static CLASS: Class = Class {
    name: "Script",
    group: "script",
    summary: "runs instructions: sets variables, calls handlers, waits, stops the router",
    manual: "
Each argument is an instruction. They run one after the other.

| instruction | what it does |
|---|---|
| `set VAR TEXT` | sets a variable |
| `init VAR TEXT` | sets it once, when the script starts |
| `export VAR [TEXT]` | the same, and the variable can be read as a handler |
| `print [>FILE] TEXT or HANDLER` | prints text, or a handler's value if it begins with a letter, `_` or `@` |
| `print >>FILE …` | the same, at the end of the file |
| `printn …` | prints without a line's end |
| `save HANDLER FILE`, `append HANDLER FILE` | writes a handler's value to a file |
| `read HANDLER [ARGS]` | says name and value on standard error |
| `write HANDLER [VALUE]` | calls a write handler; `$?` is 0, or negative when it refused |
| `pause [COUNT]`, `wait_step`, `wait_stop` | waits for as many steps |
| `wait TIME`, `wait_time`, `wait_for` | waits so long, or for a step; `wait` alone is `pause` |
| `label NAME`, `goto NAME [CONDITION]`, `loop` | jumps; `goto` knows `begin end exit stop error`, too |
| `end`, `exit`, `stop`, `error [TEXT]` | ends the script; `stop` asks the router to stop |
| `return [VALUE]` | ends it with a value |

`setq`, `initq`, `exportq`, `returnq` and `errorq` unquote their text, `printq`, `printnq`, `readq` and
`writeq` the handler's parameters. In all texts `$var`, `${var}`, `${var-default}` and `$(HANDLER ARGS)` are
replaced. Handlers without an element's name are this script's own, such as `add`, or else the router's, such
as `stop`. `$?` is the status of the last write, `$$` the process, `$args`, `$#`, `$1` … what `run` was called
with. A script that jumps 1000 times without waiting is given up.

TYPE says when it runs: ACTIVE, at once (the default without ports); PASSIVE, when its `run` handler is
called; PROXY, when any handler is called, whose name is `$0` and which was written to if `$write`; PACKET,
for each packet (the default with ports), which came by `$input` and leaves by the output that is returned, by
output 0 at the script's end, or is dropped by `exit`; DRIVER, at once and as the one that gets a step for
each request to stop, and decides; `SIGNAL NAMES…`, when the process gets one of these signals.

A script can't be called while it is calling another element: that call fails.",
    example: "Script(set x 0, label again, print $x, set x $(add $x 1), goto again $(lt $x 5), stop);",
    ports: "-/-",
    processing: "ah/ah",
    args: ARGS,
    handlers: HANDLERS,
    own_handlers: Some(&OWN_HANDLERS),
    phase: Phase::Acting,
    build: |args| Script::build_script(args, "Script"),
    ..Class::DEFAULT
};

pub(super) const ARGS: &[Arg] = &[
    Arg::rest("INSTRUCTION", "instruction", "what to do, in order"),
    Arg::keyword("TYPE", "word", "", "when to run: ACTIVE, PASSIVE, PACKET, PROXY, DRIVER or SIGNAL names"),
];

/// When a script runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum ScriptKind {
    Active,
    Passive,
    Packet,
    Proxy,
    Driver,
    Signal,
}

/// How a script was called.
#[derive(Default)]
struct Caller {
    handler: String,
    args: String,
    writes: bool,
}

/// How messages are delivered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum MessageMode {
    /// They are kept for the caller.
    Kept,
    /// They are printed at once, after a heading with the script's activity unless that was printed before.
    Headed { doing: &'static str, said: bool },
    /// They are printed at once without a heading, as those of a driver.
    Bare,
}

/// The voice of a script that runs.
const RUNNING: MessageMode = MessageMode::Headed { doing: "executing", said: false };
/// The voice of one that gets ready to.
const STARTING: MessageMode = MessageMode::Headed { doing: "initializing", said: false };

/// A script, of this class or DriverManager.
pub(super) struct Script {
    class: &'static str,
    kind: ScriptKind,
    program: Program,
    /// Index of the next instruction.
    position: usize,
    variables: HashMap<String, String>,
    caller: Caller,
    /// What `$?` stands for.
    status: i32,
    /// When a wait ends.
    alarm: Option<Time>,
    /// Whether the task's next run is the first step.
    begins: bool,
    /// Whether instructions are running now.
    running: bool,
    /// Steps that the running script gave itself, less one.
    pending_steps: i64,
    /// Messages that have not been read yet.
    errors: Vec<String>,
    /// Number of messages so far.
    error_count: usize,
    voice: MessageMode,
    signals: Option<SignalPipe>,
    chance: Arc<Chance>,
}

impl Script {
    /// Creates a script of class `class`; a DriverManager is a driver unless TYPE sets otherwise.
    pub(super) fn build_script(
        args: &mut Args<'_>,
        class: &'static str,
    ) -> Result<Box<dyn Element>, ArgError> {
        let ports = args.inputs() + args.outputs() > 0;
        let (kind, signals) = match args.read::<Option<String>>("TYPE")? {
            Some(text) => read_type(&text)?,
            None if class == "DriverManager" => (ScriptKind::Driver, Vec::new()),
            None if ports => (ScriptKind::Packet, Vec::new()),
            None => (ScriptKind::Active, Vec::new()),
        };
        if kind == ScriptKind::Packet && args.inputs() == 0 {
            return Err(ArgError::wrong("PACKET script must have inputs"));
        }
        if kind != ScriptKind::Packet && ports {
            return Err(ArgError::wrong("ports allowed only on PACKET scripts"));
        }
        let (program, faults) = Program::parse_program(args.rest("INSTRUCTION"), kind == ScriptKind::Driver);
        faults.into_iter().for_each(|fault| args.record_error(fault));
        program.exports.iter().for_each(|name| args.declare_handler(name, "r"));
        if kind == ScriptKind::Proxy {
            args.declare_handler("*", "rw+");
        }
        args.declare_read_effect("run", program.read_effect());
        args.declare_read_effect("shift", ReadEffect::Acts);
        if kind == ScriptKind::Proxy {
            args.declare_read_effect("*", program.read_effect());
        }
        let signals = SignalPipe::open_pipe(&signals, &args.resource())?;
        let chance = args.resource();
        Ok(Box::new(Script::new(class, kind, program, signals, chance)))
    }

    fn new(
        class: &'static str,
        kind: ScriptKind,
        program: Program,
        signals: Option<SignalPipe>,
        chance: Arc<Chance>,
    ) -> Script {
        // Variables exist, empty, before they are set.
        let variables = program.set_variables().map(|name| (name.to_string(), String::new())).collect();
        Script {
            class,
            kind,
            program,
            position: 0,
            variables,
            caller: Caller::default(),
            status: 0,
            alarm: None,
            begins: false,
            running: false,
            pending_steps: -1,
            errors: Vec::new(),
            error_count: 0,
            voice: MessageMode::Kept,
            signals,
            chance,
        }
    }

    /// The element as messages name it.
    fn declaration(&self, cx: &Context<'_>) -> String {
        format!("{} :: {}", cx.name(), self.class)
    }

    /// Reports what went wrong.
    fn report_error(&mut self, message: String, cx: &mut Context<'_>) {
        self.error_count += 1;
        match self.voice {
            MessageMode::Kept => self.errors.push(message),
            MessageMode::Bare => cx.print_message(&message),
            MessageMode::Headed { doing, said } => {
                let heading =
                    if said { String::new() } else { format!("While {doing} '{}':\n", self.declaration(cx)) };
                self.voice = MessageMode::Headed { doing, said: true };
                cx.print_message(&format!("{heading}  {}", message.replace('\n', "\n  ")));
            }
        }
    }

    /// Prints messages at once while `work` runs.
    fn with_messages(
        &mut self,
        voice: MessageMode,
        cx: &mut Context<'_>,
        work: impl FnOnce(&mut Script, &mut Context<'_>),
    ) {
        let before = std::mem::replace(&mut self.voice, voice);
        work(self, cx);
        self.voice = before;
    }

    /// Prints the errors since the last time.
    fn report_errors(&mut self, cx: &mut Context<'_>) {
        if !self.errors.is_empty() {
            let messages = std::mem::take(&mut self.errors).join("\n").replace('\n', "\n  ");
            cx.print_message(&format!("While executing '{}':\n  {messages}", self.declaration(cx)));
        }
    }

    /// Runs the script for a packet, and sends the packet by the output that it returns.
    fn handle_packet(&mut self, input: usize, packet: Packet, cx: &mut Context<'_>) {
        self.variables.insert("input".into(), input.to_string());
        let output = match self.run_from_start(cx) {
            Outcome::Returned(text) => {
                args::parse_signed(text.trim_ascii()).ok().and_then(|n| usize::try_from(n).ok())
            }
            Outcome::Ended(Ending::End) => Some(0),
            _ => None,
        };
        match output {
            Some(output) => cx.send_or_discard(output, packet, DropReason::NoOutput),
            None => cx.discard(packet, DropReason::Discarded),
        }
    }

    /// Runs the step of a timer.
    fn handle_timer(&mut self, cx: &mut Context<'_>) {
        self.run_steps(1, ResumeCause::Timer, cx);
    }

    /// Runs the steps of stop requests; ends the run when the script requests that.
    fn handle_stop_requests(&mut self, cx: &mut Context<'_>) {
        let steps = cx.drain_stop_requests() + u32::from(std::mem::take(&mut self.begins));
        for _ in 0..steps {
            if self.run_steps(1, ResumeCause::StopRequest, cx) == Progress::Finished {
                return cx.end_run();
            }
        }
    }

    /// Runs the script for the signals received, if any.
    fn answer_signals(&mut self, cx: &mut Context<'_>) {
        let Some(signals) = &mut self.signals else { return };
        let came = signals.drain_signals();
        if came && let Outcome::Ended(Ending::Exit) = self.run_from_start(cx) {
            self.signals = None;
        }
        if let Some(signals) = &self.signals {
            signals.watch_signals(cx);
        }
    }
}

/// The kind of a script, and its signals.
fn read_type(text: &str) -> Result<(ScriptKind, Vec<i32>), ArgError> {
    let (word, rest) = args::shift_word(text);
    let kind = match word {
        "ACTIVE" => ScriptKind::Active,
        "PASSIVE" => ScriptKind::Passive,
        "PACKET" | "PUSH" => ScriptKind::Packet,
        "PROXY" => ScriptKind::Proxy,
        "DRIVER" => ScriptKind::Driver,
        "SIGNAL" => {
            let signals: Option<Vec<i32>> =
                args::split_words(rest).iter().map(|word| signal::by_name(word)).collect();
            let signals = signals.filter(|signals| !signals.is_empty());
            return signals
                .map(|signals| (ScriptKind::Signal, signals))
                .ok_or_else(|| ArgError::wrong("bad signal number"));
        }
        _ => return Err(ArgError::wrong("bad TYPE")),
    };
    if rest.is_empty() { Ok((kind, Vec::new())) } else { Err(ArgError::wrong("bad TYPE")) }
}

impl Element for Script {
    fn push(&mut self, input: usize, batch: &mut Batch, cx: &mut Context<'_>) {
        for packet in batch.drain() {
            self.with_messages(RUNNING, cx, |script, cx| script.handle_packet(input, packet, cx));
        }
    }

    fn run_task(&mut self, cx: &mut Context<'_>) -> bool {
        match self.kind {
            ScriptKind::Driver => self.with_messages(MessageMode::Bare, cx, Script::handle_stop_requests),
            ScriptKind::Signal => self.with_messages(RUNNING, cx, Script::answer_signals),
            _ if std::mem::take(&mut self.begins) => self.with_messages(RUNNING, cx, Script::handle_timer),
            _ => {}
        }
        let now = cx.now();
        if self.alarm.is_some_and(|alarm| alarm <= now) {
            self.alarm = None;
            self.with_messages(RUNNING, cx, Script::handle_timer);
        }
        true
    }

    fn start(&mut self, cx: &mut Context<'_>) -> Result<(), StartError> {
        if self.kind == ScriptKind::Driver && !cx.become_driver() {
            return Err(StartError::new("router has more than one driver script")
                .with_help("give all but one of them TYPE ACTIVE"));
        }
        self.with_messages(STARTING, cx, Script::begin_script);
        if let Some(signals) = &self.signals {
            signals.watch_signals(cx);
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests;
