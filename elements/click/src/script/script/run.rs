//! The instruction pointer of a script: steps, waits, jumps.
use super::program::{Ending, Instruction, Target};
use super::{Script, ScriptKind};
use artery_engine::{Context, Time};
use artery_lang::args;
use std::time::Duration;

/// A script with so many jumps without a wait is stopped as a loop.
const MAX_JUMPS: u32 = 1000;

/// Why a script is resumed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ResumeCause {
    /// A handler or a packet.
    Call,
    /// The timer of a wait.
    Timer,
    /// A request to stop the router, for the driver.
    StopRequest,
}

/// What an instruction leaves to be done.
enum StepResult {
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

/// The state in which the last run stopped.
pub(super) enum Outcome {
    Waits,
    Returned(String),
    Ended(Ending),
}

impl Script {
    /// Runs the script for `steps` until it needs one more, and then for those that it gave itself meanwhile.
    pub(super) fn run_steps(&mut self, steps: i64, cause: ResumeCause, cx: &mut Context<'_>) -> Progress {
        let (mut steps, mut jumps) = (steps, 0);
        self.running = true;
        let progress = loop {
            self.pending_steps = -1;
            let progress = self.run_until_wait(steps, &mut jumps, cause, cx);
            if self.pending_steps < 0 {
                break progress;
            }
            steps = self.pending_steps;
        };
        self.running = false;
        progress
    }

    /// Runs the script from the beginning, as a packet, a signal or a handler call does.
    pub(super) fn run_from_start(&mut self, cx: &mut Context<'_>) -> Outcome {
        self.position = 0;
        self.run_steps(0, ResumeCause::Call, cx);
        self.current_outcome()
    }

    fn run_until_wait(
        &mut self,
        mut left: i64,
        jumps: &mut u32,
        cause: ResumeCause,
        cx: &mut Context<'_>,
    ) -> Progress {
        while left >= 0 && self.position < self.program.instructions.len() && *jumps < MAX_JUMPS {
            let at = self.position;
            self.position += 1;
            match self.execute_instruction(at, &mut left, cause, cx) {
                StepResult::Next => {}
                StepResult::Wait => {
                    self.position = at;
                    return Progress::Waits;
                }
                StepResult::Finish => {
                    self.position = at;
                    return Progress::Finished;
                }
            }
            *jumps += u32::from(self.position != at + 1);
        }
        if *jumps < MAX_JUMPS {
            return Progress::Waits;
        }
        cx.print_message(&format!("{}: too many jumps, giving up", self.declaration(cx)));
        self.position = self.program.instructions.len();
        self.set_alarm(None, cx);
        Progress::Finished
    }

    fn execute_instruction(
        &mut self,
        at: usize,
        left: &mut i64,
        cause: ResumeCause,
        cx: &mut Context<'_>,
    ) -> StepResult {
        match self.program.instructions[at].clone() {
            Instruction::Initial { owed } => {
                *left -= i64::from(owed);
                self.program.instructions[at] = Instruction::Initial { owed: false };
            }
            Instruction::WaitStep { count, done } => return self.wait_steps(at, count, done, left),
            Instruction::WaitTime(text) => return self.wait_time(&text, left, cx),
            Instruction::Print { text, newline, unquote } => self.execute_print(&text, newline, unquote, cx),
            Instruction::Read { call, unquote } => self.say_read(&call, unquote, cx),
            Instruction::Write { call, unquote } => self.execute_write(&call, unquote, cx),
            Instruction::Set { once: true, .. } | Instruction::Label(_) => {}
            Instruction::Set { variable, text, unquote, .. } => {
                self.set_variable(&variable, &text, unquote, cx)
            }
            Instruction::Goto { target, condition } => {
                return self.jump_if(at, target, &condition, cause, cx);
            }
            Instruction::Return { text, unquote } => {
                self.set_variable("_", &text, unquote, cx);
                if self.position == at + 1 {
                    return StepResult::Wait;
                }
            }
            Instruction::Finish(ending) => return self.finish_script(ending, cause, cx),
            Instruction::Error { text, unquote } => return self.fail_with(&text, unquote, cx),
        }
        StepResult::Next
    }

    fn fail_with(&mut self, text: &str, unquote: bool, cx: &mut Context<'_>) -> StepResult {
        let message = self.expand_text(text, unquote, cx);
        if !message.is_empty() {
            self.report_error(message, cx);
        }
        StepResult::Finish
    }

    fn wait_steps(&mut self, at: usize, count: u32, done: u32, left: &mut i64) -> StepResult {
        let now = i64::from(count.saturating_sub(done)).min(*left);
        *left -= now;
        // At most `count - done`, so it fits.
        let done = done + now as u32;
        self.program.instructions[at] = Instruction::WaitStep { count, done };
        if done < count { StepResult::Wait } else { StepResult::Next }
    }

    fn wait_time(&mut self, text: &str, left: &mut i64, cx: &mut Context<'_>) -> StepResult {
        if *left > 0 {
            *left -= 1;
            self.set_alarm(None, cx);
            return StepResult::Next;
        }
        match args::parse_seconds(self.expand_variables(text, cx).trim_ascii()) {
            Ok(nanos) => {
                let time = cx.now() + Duration::from_nanos(nanos);
                self.set_alarm(Some(time), cx);
            }
            Err(_) => self.report_error("syntax error at 'wait'".into(), cx),
        }
        StepResult::Wait
    }

    pub(super) fn set_alarm(&mut self, time: Option<Time>, cx: &mut Context<'_>) {
        self.alarm = time;
        cx.wake_at(time.unwrap_or(Time::NEVER));
    }

    fn set_variable(&mut self, variable: &str, text: &str, unquote: bool, cx: &mut Context<'_>) {
        let value = self.expand_text(text, unquote, cx);
        self.variables.insert(variable.to_string(), value);
    }

    fn jump_if(
        &mut self,
        at: usize,
        target: Target,
        condition: &str,
        cause: ResumeCause,
        cx: &mut Context<'_>,
    ) -> StepResult {
        if !condition.is_empty() {
            let value = self.expand_variables(condition, cx);
            match args::parse_bool(&value) {
                Some(true) => {}
                Some(false) => return StepResult::Next,
                None => {
                    let shown = if value.is_empty() { condition } else { &value };
                    self.report_error(format!("bad condition '{shown}'"), cx);
                    return StepResult::Next;
                }
            }
        }
        match target {
            Target::Instruction(to) => {
                self.program.reset_waits(to.min(at)..at);
                self.position = to;
                StepResult::Next
            }
            Target::Ending(ending) => self.finish_script(ending, cause, cx),
        }
    }

    fn finish_script(&mut self, ending: Ending, cause: ResumeCause, cx: &mut Context<'_>) -> StepResult {
        if ending == Ending::Stop && cause != ResumeCause::StopRequest {
            cx.request_stop();
        }
        StepResult::Finish
    }

    /// The state in which the script stopped at its present instruction.
    pub(super) fn current_outcome(&self) -> Outcome {
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

    /// Evaluates the variables that are set once, and starts a script that runs by itself.
    pub(super) fn begin_script(&mut self, cx: &mut Context<'_>) {
        for instruction in self.program.instructions.clone() {
            if let Instruction::Set { variable, text, unquote, once: true } = instruction {
                self.set_variable(&variable, &text, unquote, cx);
            }
        }
        if !matches!(self.kind, ScriptKind::Active | ScriptKind::Driver) {
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
