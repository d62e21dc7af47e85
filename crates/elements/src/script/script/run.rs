//! The instruction pointer of a script: steps, waits, jumps.
use super::program::{Ending, Instruction, Target};
use super::{Kind, Script};
use artery_engine::{Context, Time};
use artery_lang::args;
use std::time::Duration;

/// A script that jumps so often without waiting is taken for a loop.
const MAX_JUMPS: u32 = 1000;

/// Why a script is made to go on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Cause {
    /// A handler or a packet.
    Call,
    /// Its timer.
    Timer,
    /// Something asked the router to stop, and this is the driver.
    StopRequest,
}

/// What an instruction leaves to be done.
enum Flow {
    Next,
    /// Stay at this instruction until there is a step for it.
    Wait,
    /// The script is over.
    Finish,
}

/// Whether a script may go on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Progress {
    Waits,
    Finished,
}

/// How the last run came to rest.
pub(super) enum Outcome {
    Waits,
    Returned(String),
    Ended(Ending),
}

impl Script {
    /// Gives the script `steps` and runs it until one more is needed, then those it gave itself on the way.
    pub(super) fn advance(&mut self, steps: i64, cause: Cause, cx: &mut Context<'_>) -> Progress {
        let (mut steps, mut jumps) = (steps, 0);
        self.running = true;
        let progress = loop {
            self.pending_steps = -1;
            let progress = self.step(steps, &mut jumps, cause, cx);
            if self.pending_steps < 0 {
                break progress;
            }
            steps = self.pending_steps;
        };
        self.running = false;
        progress
    }

    /// Runs the script from the beginning, as a packet, a signal or a handler call does.
    pub(super) fn restart(&mut self, cx: &mut Context<'_>) -> Outcome {
        self.position = 0;
        self.advance(0, Cause::Call, cx);
        self.outcome()
    }

    fn step(&mut self, mut left: i64, jumps: &mut u32, cause: Cause, cx: &mut Context<'_>) -> Progress {
        while left >= 0 && self.position < self.program.instructions.len() && *jumps < MAX_JUMPS {
            let at = self.position;
            self.position += 1;
            match self.execute(at, &mut left, cause, cx) {
                Flow::Next => {}
                Flow::Wait => {
                    self.position = at;
                    return Progress::Waits;
                }
                Flow::Finish => {
                    self.position = at;
                    return Progress::Finished;
                }
            }
            *jumps += u32::from(self.position != at + 1);
        }
        if *jumps < MAX_JUMPS {
            return Progress::Waits;
        }
        cx.say(&format!("{}: too many jumps, giving up", self.declaration(cx)));
        self.position = self.program.instructions.len();
        self.set_alarm(None, cx);
        Progress::Finished
    }

    fn execute(&mut self, at: usize, left: &mut i64, cause: Cause, cx: &mut Context<'_>) -> Flow {
        match self.program.instructions[at].clone() {
            Instruction::Initial { owed } => {
                *left -= i64::from(owed);
                self.program.instructions[at] = Instruction::Initial { owed: false };
            }
            Instruction::WaitStep { count, done } => return self.wait_steps(at, count, done, left),
            Instruction::WaitTime(text) => return self.wait_time(&text, left, cx),
            Instruction::Print { text, newline, unquote } => self.print(&text, newline, unquote, cx),
            Instruction::Read { call, unquote } => self.say_read(&call, unquote, cx),
            Instruction::Write { call, unquote } => self.write(&call, unquote, cx),
            Instruction::Set { once: true, .. } | Instruction::Label(_) => {}
            Instruction::Set { variable, text, unquote, .. } => self.set(&variable, &text, unquote, cx),
            Instruction::Goto { target, condition } => return self.jump(at, target, &condition, cause, cx),
            Instruction::Return { text, unquote } => {
                self.set("_", &text, unquote, cx);
                if self.position == at + 1 {
                    return Flow::Wait;
                }
            }
            Instruction::Finish(ending) => return self.finish(ending, cause, cx),
            Instruction::Error { text, unquote } => {
                let message = self.expand_text(&text, unquote, cx);
                if !message.is_empty() {
                    self.fail(message, cx);
                }
                return Flow::Finish;
            }
        }
        Flow::Next
    }

    fn wait_steps(&mut self, at: usize, count: u32, done: u32, left: &mut i64) -> Flow {
        let now = i64::from(count.saturating_sub(done)).min(*left);
        *left -= now;
        // At most `count - done`, so it fits.
        let done = done + now as u32;
        self.program.instructions[at] = Instruction::WaitStep { count, done };
        if done < count { Flow::Wait } else { Flow::Next }
    }

    fn wait_time(&mut self, text: &str, left: &mut i64, cx: &mut Context<'_>) -> Flow {
        if *left > 0 {
            *left -= 1;
            self.set_alarm(None, cx);
            return Flow::Next;
        }
        match args::seconds(self.expand(text, cx).trim_ascii()) {
            Ok(nanos) => {
                let time = cx.now() + Duration::from_nanos(nanos);
                self.set_alarm(Some(time), cx);
            }
            Err(_) => self.fail("syntax error at 'wait'".into(), cx),
        }
        Flow::Wait
    }

    pub(super) fn set_alarm(&mut self, time: Option<Time>, cx: &mut Context<'_>) {
        self.alarm = time;
        cx.wake_at(time.unwrap_or(Time::NEVER));
    }

    fn set(&mut self, variable: &str, text: &str, unquote: bool, cx: &mut Context<'_>) {
        let value = self.expand_text(text, unquote, cx);
        self.variables.insert(variable.to_string(), value);
    }

    fn jump(
        &mut self,
        at: usize,
        target: Target,
        condition: &str,
        cause: Cause,
        cx: &mut Context<'_>,
    ) -> Flow {
        if !condition.is_empty() {
            let value = self.expand(condition, cx);
            match args::boolean(&value) {
                Some(true) => {}
                Some(false) => return Flow::Next,
                None => {
                    let shown = if value.is_empty() { condition } else { &value };
                    self.fail(format!("bad condition '{shown}'"), cx);
                    return Flow::Next;
                }
            }
        }
        match target {
            Target::Instruction(to) => {
                self.program.reset_waits(to.min(at)..at);
                self.position = to;
                Flow::Next
            }
            Target::Ending(ending) => self.finish(ending, cause, cx),
        }
    }

    fn finish(&mut self, ending: Ending, cause: Cause, cx: &mut Context<'_>) -> Flow {
        if ending == Ending::Stop && cause != Cause::StopRequest {
            cx.stop();
        }
        Flow::Finish
    }

    /// How the script came to rest where it stands.
    pub(super) fn outcome(&self) -> Outcome {
        match self.program.instructions.get(self.position) {
            Some(Instruction::Return { .. }) => {
                Outcome::Returned(self.variables.get("_").cloned().unwrap_or_default())
            }
            Some(Instruction::Finish(ending)) => Outcome::Ended(*ending),
            Some(Instruction::Goto { target: Target::Ending(ending), .. }) => Outcome::Ended(*ending),
            Some(Instruction::Error { .. }) => Outcome::Ended(Ending::Error),
            _ => Outcome::Waits,
        }
    }

    /// Evaluates the variables that are set once, and lets a script that runs by itself begin.
    pub(super) fn begin(&mut self, cx: &mut Context<'_>) {
        for instruction in self.program.instructions.clone() {
            if let Instruction::Set { variable, text, unquote, once: true } = instruction {
                self.set(&variable, &text, unquote, cx);
            }
        }
        if !matches!(self.kind, Kind::Active | Kind::Driver) {
            return;
        }
        match self.program.instructions[0].clone() {
            Instruction::WaitTime(text) => {
                self.wait_time(&text, &mut 0, cx);
            }
            Instruction::Initial { .. } => {
                self.program.instructions[0] = Instruction::Initial { owed: true };
                self.begins = true;
                cx.schedule();
            }
            _ => {}
        }
    }
}
