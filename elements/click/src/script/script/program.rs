//! Instructions of a script, read from its arguments.
use artery_engine::{ArgError, ReadEffect};
use artery_lang::args;

/// One instruction. Texts are kept as written; variables are replaced when it runs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Instruction {
    /// Stands before the first instruction of a script that does not begin by waiting; `owed` is the
    /// step that starts it.
    Initial { owed: bool },
    /// Waits until the script was written to, or a packet or signal came, `count` times.
    WaitStep { count: u32, done: u32 },
    /// Waits for a time, then goes on.
    WaitTime(String),
    /// Prints a text, or the value of a handler, perhaps into a file.
    Print { text: String, newline: bool, unquote: bool },
    /// Reads a handler, and prints what it says.
    Read { call: String, unquote: bool },
    /// Writes a value to a handler.
    Write { call: String, unquote: bool },
    /// Sets a variable when it runs, or with `once` when the script starts.
    Set { variable: String, text: String, unquote: bool, once: bool },
    /// A place that a `goto` leads to.
    Label(String),
    /// Goes on elsewhere if the condition holds or there is none.
    Goto { target: Target, condition: String },
    /// Ends with a value.
    Return { text: String, unquote: bool },
    /// Ends without a value.
    Finish(Ending),
    /// Ends with a message.
    Error { text: String, unquote: bool },
}

/// How a script can end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Ending {
    /// Its end was reached; the packet passes, or the script waits for the signal again.
    End,
    /// It gave up: the packet is dropped, the signal no longer waited for.
    Exit,
    /// It requests that the router stops.
    Stop,
    Error,
}

/// The target of a `goto`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Target {
    Instruction(usize),
    Ending(Ending),
}

/// The instructions of one script.
#[derive(Debug, Default)]
pub(super) struct Program {
    pub(super) instructions: Vec<Instruction>,
    /// Variables that are read as handlers, too.
    pub(super) exports: Vec<String>,
}

impl Program {
    /// Parses instructions, one an argument, and returns the errors of invalid ones. A driver's script stops
    /// the router at its end.
    pub(super) fn parse_program(texts: &[String], is_driver: bool) -> (Program, Vec<ArgError>) {
        let mut program = Program::default();
        let mut faults = Vec::new();
        for text in texts {
            let (word, rest) = args::shift_word(text);
            if !word.is_empty() && program.add_instruction(word, rest.trim_ascii_end()).is_none() {
                faults.push(ArgError::wrong_at(text, format!("syntax error at '{word}'")));
            }
        }
        if program.instructions.is_empty() && is_driver {
            program.push(Instruction::WaitStep { count: 1, done: 0 });
        }
        program.push(Instruction::Finish(if is_driver { Ending::Stop } else { Ending::End }));
        faults.extend(texts.iter().filter_map(|text| program.without_label(text)));
        program.resolve_labels();
        (program, faults)
    }

    /// The error of a `goto` without its label.
    fn without_label(&self, text: &str) -> Option<ArgError> {
        let (word, rest) = args::shift_word(text);
        let (label, _) = args::shift_word(rest.trim_ascii_end());
        let is_lost = word == "goto" && !label.is_empty() && self.find_label(label).is_none();
        is_lost.then(|| ArgError::wrong_at(text, format!("no such label '{label}'")))
    }

    /// Appends an instruction, after [`Instruction::Initial`] if the script does not begin with a wait.
    fn push(&mut self, instruction: Instruction) {
        let waits = matches!(instruction, Instruction::WaitStep { .. } | Instruction::WaitTime(_));
        if self.instructions.is_empty() && !waits {
            self.instructions.push(Instruction::Initial { owed: false });
        }
        self.instructions.push(instruction);
    }

    /// Appends the instruction `word` with its text; `None` when there is no such one.
    fn add_instruction(&mut self, word: &str, rest: &str) -> Option<()> {
        let text = rest.to_string();
        let unquote = word.ends_with('q');
        let finish = |ending| rest.is_empty().then_some(Instruction::Finish(ending));
        let instruction = match word {
            "pause" | "wait_step" | "wait_stop" => wait_steps(rest)?,
            "wait" if rest.is_empty() => wait_steps(rest)?,
            "wait" | "wait_for" | "wait_time" => Instruction::WaitTime(text),
            "print" | "printq" => Instruction::Print { text, newline: true, unquote },
            "printn" | "printnq" => Instruction::Print { text, newline: false, unquote },
            "save" => Instruction::Print { text: rewrite_save(">", rest), newline: true, unquote },
            "append" => Instruction::Print { text: rewrite_save(">>", rest), newline: true, unquote },
            "read" | "readq" => Instruction::Read { call: text, unquote },
            "write" | "writeq" => Instruction::Write { call: text, unquote },
            "set" | "setq" | "init" | "initq" | "export" | "exportq" => self.parse_set(word, rest)?,
            "label" => parse_label(rest)?,
            "goto" => Instruction::Goto { target: Target::Instruction(0), condition: text },
            "loop" if rest.is_empty() => {
                Instruction::Goto { target: Target::Instruction(0), condition: String::new() }
            }
            "return" | "returnq" => Instruction::Return { text, unquote },
            "end" => finish(Ending::End)?,
            "exit" => finish(Ending::Exit)?,
            "stop" => finish(Ending::Stop)?,
            "error" | "errorq" => Instruction::Error { text, unquote },
            _ => return None,
        };
        self.push(instruction);
        Some(())
    }

    fn parse_set(&mut self, word: &str, rest: &str) -> Option<Instruction> {
        let (variable, text) = args::shift_word(rest);
        let once = !word.starts_with("set");
        if variable.is_empty() || !once && text.is_empty() {
            return None;
        }
        if word.starts_with("export") {
            self.exports.push(variable.to_string());
        }
        let (variable, text) = (variable.to_string(), text.to_string());
        Some(Instruction::Set { variable, text, unquote: word.ends_with('q'), once })
    }

    /// Resolves the target of each `goto`, after all labels are known.
    fn resolve_labels(&mut self) {
        for at in 0..self.instructions.len() {
            let Instruction::Goto { condition, .. } = &self.instructions[at] else { continue };
            let (word, rest) = args::shift_word(condition);
            if let Some(target) = self.find_label(word) {
                self.instructions[at] = Instruction::Goto { target, condition: rest.to_string() };
            }
        }
    }

    /// What running it does besides finding a value: it acts if it writes, prints or stops the router, if it
    /// calls a handler whose name is only known then, and by what the handlers do that it calls.
    pub(super) fn read_effect(&self) -> ReadEffect {
        let mut calls = Vec::new();
        let acts = self.instructions.iter().any(|instruction| match instruction {
            Instruction::Write { .. } | Instruction::Print { .. } | Instruction::Read { .. } => true,
            Instruction::Finish(ending) => *ending == Ending::Stop,
            Instruction::Goto { target, condition } => {
                *target == Target::Ending(Ending::Stop) || !add_calls(condition, &mut calls)
            }
            Instruction::WaitTime(text)
            | Instruction::Set { text, .. }
            | Instruction::Return { text, .. }
            | Instruction::Error { text, .. } => !add_calls(text, &mut calls),
            Instruction::Initial { .. } | Instruction::WaitStep { .. } | Instruction::Label(_) => false,
        });
        if acts { ReadEffect::Acts } else { ReadEffect::Calls(calls) }
    }

    /// The variables that instructions set.
    pub(super) fn set_variables(&self) -> impl Iterator<Item = &str> {
        self.instructions.iter().filter_map(|instruction| match instruction {
            Instruction::Set { variable, .. } => Some(variable.as_str()),
            _ => None,
        })
    }

    /// The target of a label: an instruction, an ending, or the beginning.
    pub(super) fn find_label(&self, label: &str) -> Option<Target> {
        let has_label =
            |instruction: &Instruction| matches!(instruction, Instruction::Label(l) if l == label);
        if let Some(at) = self.instructions.iter().position(has_label) {
            return Some(Target::Instruction(at));
        }
        Some(match label {
            "end" => Target::Ending(Ending::End),
            "exit" => Target::Ending(Ending::Exit),
            "stop" => Target::Ending(Ending::Stop),
            "error" | "errorq" => Target::Ending(Ending::Error),
            "begin" | "loop" => Target::Instruction(0),
            _ => return None,
        })
    }

    /// Resets the counters of the waits in a range.
    pub(super) fn reset_waits(&mut self, range: std::ops::Range<usize>) {
        for instruction in &mut self.instructions[range] {
            if let Instruction::WaitStep { done, .. } = instruction {
                *done = 0;
            }
        }
    }
}

/// Adds the handlers of elements that a text calls, `$(HANDLER …)`. False if it may call one that acts: one
/// of the script's own that does, or one whose name is put together.
fn add_calls(text: &str, calls: &mut Vec<String>) -> bool {
    text.split("$(").skip(1).all(|call| {
        let end = call.find(|c: char| c.is_whitespace() || c == ')').unwrap_or(call.len());
        let name = &call[..end];
        let is_plain = |c: char| c.is_ascii_alphanumeric() || "_./@-:".contains(c);
        if name.contains('.') {
            calls.push(name.to_string());
        }
        !name.is_empty() && name.chars().all(is_plain) && !matches!(name, "run" | "kill" | "shift")
    })
}

fn wait_steps(rest: &str) -> Option<Instruction> {
    let count = if rest.is_empty() { 1 } else { args::parse_unsigned(rest).ok()?.try_into().ok()? };
    Some(Instruction::WaitStep { count, done: 0 })
}

fn parse_label(rest: &str) -> Option<Instruction> {
    let (word, more) = args::shift_word(rest);
    (!word.is_empty() && more.is_empty()).then(|| Instruction::Label(word.to_string()))
}

/// `save HANDLER FILE` as the `print` it stands for.
fn rewrite_save(arrow: &str, rest: &str) -> String {
    let (handler, file) = args::shift_word(rest);
    format!("{arrow}{} {handler}", if file.is_empty() { "-" } else { file })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(texts: &[&str]) -> (Program, Vec<ArgError>) {
        Program::parse_program(&texts.iter().map(|text| text.to_string()).collect::<Vec<_>>(), false)
    }
    fn parse(texts: &[&str]) -> Program {
        let (program, faults) = read(texts);
        assert_eq!(faults, []);
        program
    }

    #[test]
    fn a_script_that_does_not_wait_first_is_started_by_a_step() {
        let first = |text| parse(&[text]).instructions.remove(0);
        assert_eq!(first("print x"), Instruction::Initial { owed: false });
        assert_eq!(first("pause 3"), Instruction::WaitStep { count: 3, done: 0 });
        assert_eq!(first("wait"), Instruction::WaitStep { count: 1, done: 0 });
        assert_eq!(first("wait 2s"), Instruction::WaitTime("2s".to_string()));
    }

    #[test]
    fn labels_come_before_words_of_the_language() {
        let program = parse(&["label end", "goto end", "goto exit $x", "loop"]);
        let gotos: Vec<_> = program
            .instructions
            .iter()
            .filter_map(|i| match i {
                Instruction::Goto { target, condition } => Some((*target, condition.as_str())),
                _ => None,
            })
            .collect();
        let exit = Target::Ending(Ending::Exit);
        assert_eq!(gotos, [(Target::Instruction(1), ""), (exit, "$x"), (Target::Instruction(0), "")]);
    }

    #[test]
    fn what_finds_a_value_does_not_act_and_all_else_does() {
        let effect = |text| parse(&["set x 1", text]).read_effect();
        let calls = |names: &[&str]| ReadEffect::Calls(names.iter().map(|name| name.to_string()).collect());
        for (text, names) in [
            ("return $(add $(c.count) 1)", &["c.count"][..]),
            ("set x $(c.count)", &["c.count"]),
            ("return $(other.run)", &["other.run"]),
            ("goto end $x", &[]),
            ("wait 1s", &[]),
            ("error no", &[]),
        ] {
            assert_eq!(effect(text), calls(names), "{text}");
        }
        for text in ["write c.reset", "print >f x", "print x", "save c.count f", "read c.count", "stop"] {
            assert_eq!(effect(text), ReadEffect::Acts, "{text}");
        }
        for text in ["goto stop $x", "set x $($1)", "return $(c.$x)", "return $(\"c.run\")"] {
            assert_eq!(effect(text), ReadEffect::Acts, "{text}");
        }
        for text in ["return $(kill TERM 1)", "return $(add 1 $(shift x))", "return $(run)"] {
            assert_eq!(effect(text), ReadEffect::Acts, "{text}");
        }
        let driver = Program::parse_program(&["pause".to_string()], true).0;
        assert_eq!(driver.read_effect(), ReadEffect::Acts, "it stops the router at its end");
    }

    #[test]
    fn what_can_not_be_read_is_named() {
        for text in ["nonsense", "set x", "label", "label a b", "pause x", "stop now", "loop 3", "init"] {
            let word = text.split(' ').next().unwrap();
            let fault = ArgError::wrong_at(text, format!("syntax error at '{word}'"));
            assert_eq!(read(&[text]).1, [fault]);
        }
        let fault = ArgError::wrong_at("goto nowhere $x", "no such label 'nowhere'");
        assert_eq!(read(&["goto nowhere $x"]).1, [fault]);
    }

    #[test]
    fn all_that_can_not_be_read_is_told_at_once() {
        let (_, faults) = read(&["frob 1", "print x", "goto nowhere", "frob 1", "goto exit"]);
        let said: Vec<String> = faults.iter().map(ArgError::to_string).collect();
        assert_eq!(said, ["syntax error at 'frob'", "syntax error at 'frob'", "no such label 'nowhere'"]);
    }

    #[test]
    fn saving_is_printing_to_a_file() {
        let program = parse(&["append c.count out"]);
        let text = ">>out c.count".to_string();
        assert_eq!(program.instructions[1], Instruction::Print { text, newline: true, unquote: false });
    }
}
