//! Usage errors, and the end of the program after one.
use crate::output::{Output, print_stderr};
use artery_lang::printable;
use std::borrow::Cow;
use std::ffi::OsString;
use std::sync::OnceLock;

/// Describes the whole command line. Commands stand above their options, so that they say it here.
static COMMAND_LINE: OnceLock<fn() -> clap::Command> = OnceLock::new();

/// Sets what usage errors show of the command line.
pub(crate) fn set_command_line(describe: fn() -> clap::Command) {
    // Whoever parses arguments again in the same process describes the same command line.
    let _ = COMMAND_LINE.set(describe);
}

/// The whole command line: all commands with their options.
fn command_line() -> clap::Command {
    COMMAND_LINE.get().map_or_else(|| clap::Command::new("artery"), |describe| describe())
}

/// The arguments of a command, which this program was called as.
pub(crate) fn matches_of(command: &str) -> clap::ArgMatches {
    let matches = command_line().get_matches();
    matches.subcommand_matches(command).cloned().unwrap_or_default()
}

/// Ends the program as clap does when the command line makes no sense.
pub(crate) fn usage_error(why: &str) -> ! {
    let mut cli = command_line();
    cli.build();
    // With the usage of the command that was called, such as `route add`.
    let mut called = &mut cli;
    for word in std::env::args_os().skip(1) {
        let Some(word) = word.to_str() else { break };
        if called.find_subcommand(word).is_none() {
            break;
        }
        called = called.find_subcommand_mut(word).expect("it was just there");
    }
    exit_with(called.error(clap::error::ErrorKind::ValueValidation, why))
}

/// Ends the program with a usage error, as a line of JSON if messages have that form.
pub(crate) fn exit_with(error: clap::Error) -> ! {
    if error.use_stderr() && wants_json(std::env::args_os()) {
        let text = error.to_string();
        // What clap says of usage and help is for people.
        let what = text.split("\n\nUsage:").next().unwrap_or_default();
        Output::Json.print_error(what.trim().trim_start_matches("error: "));
        std::process::exit(error.exit_code());
    }
    // With colours, unless an argument holds what a terminal takes for commands.
    let is_printable = |word: OsString| matches!(printable(&word.to_string_lossy()), Cow::Borrowed(_));
    if error.use_stderr() && !std::env::args_os().all(is_printable) {
        print_stderr(&error.to_string());
        std::process::exit(error.exit_code());
    }
    error.exit()
}

/// Whether arguments, which may be wrong in other ways, say `--log json` before what a command passes on.
fn wants_json(args: impl Iterator<Item = OsString>) -> bool {
    let args: Vec<OsString> = args.take_while(|word| word != "--").collect();
    args.iter().any(|word| word == "--log=json") || args.windows(2).any(|pair| pair == ["--log", "json"])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn json_is_asked_for_by_arguments_that_may_be_wrong_otherwise() {
        let wants = |line: &str| wants_json(line.split(' ').map(OsString::from));
        assert!(wants("artery router --nonsense --log json") && wants("artery router --log=json --nonsense"));
        assert!(!wants("artery router --log text json") && !wants("artery bench wire -- --log json"));
    }
}
