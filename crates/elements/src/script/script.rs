use crate::chance::Chance;
use artery_engine::{
    Arg, ArgError, Args, Batch, Class, Context, DropReason, Element, Packet, Phase, StartError, Time,
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
use run::{Cause, Outcome, Progress};
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
| `print [>FILE] TEXT or HANDLER` | prints text, or a handler's value when it begins with a letter, `_` or `@`; `>>FILE` appends |
| `printn …` | prints without a line's end |
| `save HANDLER FILE`, `append HANDLER FILE` | writes a handler's value to a file |
| `read HANDLER [ARGS]` | says name and value on standard error |
| `write HANDLER [VALUE]` | calls a write handler; `$?` is 0, or negative when it refused |
| `pause [COUNT]`, `wait_step`, `wait_stop` | waits for as many steps |
| `wait TIME`, `wait_time`, `wait_for` | waits so long, or for a step; `wait` alone is `pause` |
| `label NAME`, `goto NAME [CONDITION]`, `loop` | jumps; `goto` knows `begin end exit stop error`, too |
| `end`, `exit`, `stop`, `error [TEXT]` | ends the script; `stop` asks the router to stop |
| `return [VALUE]` | ends it with a value |

`setq`, `initq`, `exportq`, `returnq` and `errorq` unquote their text, `printq`, `printnq`, `readq` and `writeq` the
handler's parameters. In all texts `$var`, `${var}`, `${var-default}` and `$(HANDLER ARGS)` are replaced. Handlers
without an element's name are this script's own, such as `add`, or else the router's, such as `stop`. `$?` is the
status of the last write, `$$` the process, `$args`, `$#`, `$1` … what `run` was called with. A script that jumps 1000
times without waiting is given up.

TYPE says when it runs: ACTIVE, at once (the default without ports); PASSIVE, when its `run` handler is called; PROXY,
when any handler is called, whose name is `$0` and which was written to if `$write`; PACKET, for each packet (the
default with ports), which came by `$input` and leaves by the output that is returned, by output 0 at the script's end,
or is dropped by `exit`; DRIVER, at once and as the one that gets a step for each request to stop, and decides;
`SIGNAL NAMES…`, when the process gets one of these signals.

A script can't be called while it is calling another element: that call fails.",
    example: "Script(set x 0, label again, print $x, set x $(add $x 1), goto again $(lt $x 5), stop);",
    ports: "-/-",
    processing: "ah/ah",
    args: ARGS,
    handlers: HANDLERS,
    own_handlers: Some(&OWN_HANDLERS),
    phase: Phase::Acting,
    build: |args| Script::build(args, "Script"),
    ..Class::DEFAULT
};

pub(super) const ARGS: &[Arg] = &[
    Arg::rest("INSTRUCTION", "instruction", "what to do, in order"),
    Arg::keyword("TYPE", "word", "", "when to run: ACTIVE, PASSIVE, PACKET, PROXY, DRIVER or SIGNAL names"),
];

/// When a script runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
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

/// What becomes of a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Voice {
    /// Whoever called gets it.
    Kept,
    /// It is said at once, after a heading with what the script is at unless that was said before.
    Headed { doing: &'static str, said: bool },
    /// It is said at once and alone, as a driver's messages are.
    Bare,
}

/// The voice of a script that runs.
const RUNNING: Voice = Voice::Headed { doing: "executing", said: false };
/// The voice of one that gets ready to.
const STARTING: Voice = Voice::Headed { doing: "initializing", said: false };

/// A script, of this class or DriverManager.
pub(super) struct Script {
    class: &'static str,
    kind: Kind,
    program: Program,
    /// The next instruction.
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
    /// Messages that nobody has got yet.
    errors: Vec<String>,
    /// Number of messages so far.
    error_count: usize,
    voice: Voice,
    signals: Option<SignalPipe>,
    chance: Arc<Chance>,
}

impl Script {
    /// Makes a script of class `class`; a DriverManager is a driver unless TYPE says otherwise.
    pub(super) fn build(args: &mut Args<'_>, class: &'static str) -> Result<Box<dyn Element>, ArgError> {
        let ports = args.inputs() + args.outputs() > 0;
        let (kind, signals) = match args.read::<Option<String>>("TYPE")? {
            Some(text) => read_type(&text)?,
            None if class == "DriverManager" => (Kind::Driver, Vec::new()),
            None if ports => (Kind::Packet, Vec::new()),
            None => (Kind::Active, Vec::new()),
        };
        if kind == Kind::Packet && args.inputs() == 0 {
            return Err(ArgError::wrong("PACKET script must have inputs"));
        }
        if kind != Kind::Packet && ports {
            return Err(ArgError::wrong("ports allowed only on PACKET scripts"));
        }
        let (program, faults) = Program::parse(args.rest("INSTRUCTION"), kind == Kind::Driver);
        faults.into_iter().for_each(|fault| args.note(fault));
        program.exports.iter().for_each(|name| args.declare_handler(name, "r"));
        if kind == Kind::Proxy {
            args.declare_handler("*", "rw+");
        }
        let signals = SignalPipe::open(&signals, &args.resource())?;
        let chance = args.resource();
        Ok(Box::new(Script::new(class, kind, program, signals, chance)))
    }

    fn new(
        class: &'static str,
        kind: Kind,
        program: Program,
        signals: Option<SignalPipe>,
        chance: Arc<Chance>,
    ) -> Script {
        // Variables exist, empty, before they are set.
        let variables = program.variables().map(|name| (name.to_string(), String::new())).collect();
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
            voice: Voice::Kept,
            signals,
            chance,
        }
    }

    /// The element as messages name it.
    fn declaration(&self, cx: &Context<'_>) -> String {
        format!("{} :: {}", cx.name(), self.class)
    }

    /// Reports what went wrong.
    fn fail(&mut self, message: String, cx: &mut Context<'_>) {
        self.error_count += 1;
        match self.voice {
            Voice::Kept => self.errors.push(message),
            Voice::Bare => cx.say(&message),
            Voice::Headed { doing, said } => {
                let heading =
                    if said { String::new() } else { format!("While {doing} '{}':\n", self.declaration(cx)) };
                self.voice = Voice::Headed { doing, said: true };
                cx.say(&format!("{heading}  {}", message.replace('\n', "\n  ")));
            }
        }
    }

    /// Lets messages be said at once while `work` is done.
    fn aloud(
        &mut self,
        voice: Voice,
        cx: &mut Context<'_>,
        work: impl FnOnce(&mut Script, &mut Context<'_>),
    ) {
        let before = std::mem::replace(&mut self.voice, voice);
        work(self, cx);
        self.voice = before;
    }

    /// Says what went wrong since the last time.
    fn report(&mut self, cx: &mut Context<'_>) {
        if !self.errors.is_empty() {
            let messages = std::mem::take(&mut self.errors).join("\n").replace('\n', "\n  ");
            cx.say(&format!("While executing '{}':\n  {messages}", self.declaration(cx)));
        }
    }

    /// Runs the script for a packet and sends the packet where it says.
    fn handle(&mut self, input: usize, packet: Packet, cx: &mut Context<'_>) {
        self.variables.insert("input".into(), input.to_string());
        let output = match self.restart(cx) {
            Outcome::Returned(text) => {
                args::signed(text.trim_ascii()).ok().and_then(|n| usize::try_from(n).ok())
            }
            Outcome::Ended(Ending::End) => Some(0),
            _ => None,
        };
        match output {
            Some(output) => cx.send_or_discard(output, packet, DropReason::NoOutput),
            None => cx.discard(packet, DropReason::Discarded),
        }
    }

    /// Takes the step that a timer gives.
    fn tick(&mut self, cx: &mut Context<'_>) {
        self.advance(1, Cause::Timer, cx);
    }

    /// Takes the steps that stop requests are; ends the run when the script does.
    fn drive(&mut self, cx: &mut Context<'_>) {
        let steps = cx.take_stop_requests() + u32::from(std::mem::take(&mut self.begins));
        for _ in 0..steps {
            if self.advance(1, Cause::StopRequest, cx) == Progress::Finished {
                return cx.end();
            }
        }
    }

    /// Runs the script for the signals that came, if any.
    fn answer_signals(&mut self, cx: &mut Context<'_>) {
        let Some(signals) = &mut self.signals else { return };
        let came = signals.take();
        if came && let Outcome::Ended(Ending::Exit) = self.restart(cx) {
            self.signals = None;
        }
        if let Some(signals) = &self.signals {
            signals.watch(cx);
        }
    }
}

/// The kind of a script, and its signals.
fn read_type(text: &str) -> Result<(Kind, Vec<i32>), ArgError> {
    let (word, rest) = args::shift_word(text);
    let kind = match word {
        "ACTIVE" => Kind::Active,
        "PASSIVE" => Kind::Passive,
        "PACKET" | "PUSH" => Kind::Packet,
        "PROXY" => Kind::Proxy,
        "DRIVER" => Kind::Driver,
        "SIGNAL" => {
            let signals: Option<Vec<i32>> =
                args::words(rest).iter().map(|word| signal::by_name(word)).collect();
            let signals = signals.filter(|signals| !signals.is_empty());
            return signals
                .map(|signals| (Kind::Signal, signals))
                .ok_or_else(|| ArgError::wrong("bad signal number"));
        }
        _ => return Err(ArgError::wrong("bad TYPE")),
    };
    if rest.is_empty() { Ok((kind, Vec::new())) } else { Err(ArgError::wrong("bad TYPE")) }
}

impl Element for Script {
    fn push(&mut self, input: usize, batch: &mut Batch, cx: &mut Context<'_>) {
        for packet in batch.drain() {
            self.aloud(RUNNING, cx, |script, cx| script.handle(input, packet, cx));
        }
    }

    fn run(&mut self, cx: &mut Context<'_>) -> bool {
        match self.kind {
            Kind::Driver => self.aloud(Voice::Bare, cx, Script::drive),
            Kind::Signal => self.aloud(RUNNING, cx, Script::answer_signals),
            _ if std::mem::take(&mut self.begins) => self.aloud(RUNNING, cx, Script::tick),
            _ => {}
        }
        let now = cx.now();
        if self.alarm.is_some_and(|alarm| alarm <= now) {
            self.alarm = None;
            self.aloud(RUNNING, cx, Script::tick);
        }
        true
    }

    fn start(&mut self, cx: &mut Context<'_>) -> Result<(), StartError> {
        if self.kind == Kind::Driver && !cx.become_driver() {
            return Err(StartError::new("router has more than one driver script")
                .help("give all but one of them TYPE ACTIVE"));
        }
        self.aloud(STARTING, cx, Script::begin);
        if let Some(signals) = &self.signals {
            signals.watch(cx);
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests;
