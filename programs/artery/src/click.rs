//! The personality `click`: its options, its messages, its order of events.
use crate::config_input::ConfigInput;
use crate::control_socket::{ControlSettings, PortRequest, TcpWrites};
use crate::export::ExportSettings;
use crate::load::Reading;
use crate::options::values::check_processor;
use crate::output::{Output, print_stderr, print_stdout};
use crate::run_options::RunJob;
use crate::sandbox::Sandbox;
use crate::signals::EarlySignals;
use artery_engine::{RouterSettings, Time};
use artery_lang::Dialect;
use std::ffi::OsString;
use std::time::Duration;

mod options;

use options::{Given, Options};

/// Runs a configuration as click would; gives the exit status.
pub(crate) fn main(name: &str, args: &[OsString]) -> u8 {
    let args: Vec<String> = args.iter().map(|arg| arg.to_string_lossy().into_owned()).collect();
    let failed = |error: anyhow::Error| {
        print_stderr(&format!("{error:#}\n"));
        1
    };
    match wish(name, &args) {
        Ok(Wish::Print(text)) => print_stdout(&text).map_or_else(failed, |()| 0),
        Ok(Wish::Run(job)) => {
            let ran = EarlySignals::catch().and_then(|early| crate::run::run(*job, early));
            ran.unwrap_or_else(failed)
        }
        Err(error) => {
            let try_help = format!("Try '{name} --help' for more information.");
            // Mistakes in an option's form come with the name of the program, others without.
            let form =
                error.starts_with("unrecognized") || error.starts_with("option ") || error.starts_with('\'');
            let program = if form { format!("{name}: ") } else { String::new() };
            let error = error.replace('\n', &format!("\n{program}"));
            print_stderr(&format!("{program}{error}\nUsage: {name} [OPTION]... [ROUTERFILE]\n{try_help}\n"));
            1
        }
    }
}

/// The action that the options select.
enum Wish {
    Print(String),
    Run(Box<RunJob>),
}

fn wish(name: &str, args: &[String]) -> Result<Wish, String> {
    let mut job = RunJob {
        mode: "run",
        input: ConfigInput::Stdin,
        source: None,
        reading: Reading {
            dialect: Dialect::Click,
            variables: Vec::new(),
            clickpath: std::env::var("CLICKPATH").ok(),
        },
        voice: Output::Click { warnings: true },
        // One packet at a time, so that events come in the order in which Click has them.
        settings: RouterSettings { burst: 1, ..RouterSettings::default() },
        handlers: Vec::new(),
        exit_handler: None,
        output: None,
        quit: false,
        time: false,
        control: ControlSettings { tcp: TcpWrites::Open, ..ControlSettings::default() },
        metrics: Vec::new(),
        exports: ExportSettings::default(),
        allow_replace: false,
        // Scripts written for Click work without a sandbox.
        sandbox: Sandbox::default(),
        stats: None,
        json: false,
        commands: Vec::new(),
    };
    let mut has_input = false;
    let mut options = Options::new(args);
    while let Some(given) = options.next()? {
        match given {
            Given { name: "help", .. } => return Ok(Wish::Print(help(name))),
            Given { name: "version", .. } => {
                return Ok(Wish::Print(format!("click (Artery) {}\n", env!("CARGO_PKG_VERSION"))));
            }
            Given { name: "file" | "expression" | "", .. } => apply_input(&mut job, &mut has_input, given)?,
            given => apply_option(&mut job, given)?,
        }
    }
    if job.settings.simulated.is_some() {
        job.settings.workers = 1;
    }
    Ok(Wish::Run(Box::new(job)))
}

/// A configuration, or the value of a variable.
fn apply_input(job: &mut RunJob, has_input: &mut bool, given: Given) -> Result<(), String> {
    let value = given.value.unwrap_or_default();
    if let Some((name, text)) = crate::options::variable(&value).filter(|_| given.name.is_empty()) {
        let variables = &mut job.reading.variables;
        match variables.iter().any(|(known, _)| known == name) {
            // The program uses the first value, as Click does.
            true => print_stderr(&format!("parameter '{name}' multiply defined\n")),
            false => variables.push((name.to_string(), text.to_string())),
        }
        return Ok(());
    }
    if std::mem::replace(has_input, true) {
        return Err("router configuration specified twice".to_string());
    }
    job.input = match given.name {
        "expression" => ConfigInput::Text(value),
        _ if value.is_empty() => ConfigInput::Stdin,
        _ => ConfigInput::from_word(&value),
    };
    Ok(())
}

/// Applies an option that takes no special treatment.
fn apply_option(job: &mut RunJob, given: Given) -> Result<(), String> {
    let Given { name, negated, value, .. } = given;
    let text = value.clone().unwrap_or_default();
    match name {
        "handler" => job.handlers.push(text),
        "exit-handler" if job.exit_handler.is_some() => {
            return Err("--exit-handler specified twice".to_string());
        }
        "exit-handler" => job.exit_handler = Some(text),
        "output" if job.output.is_some() => return Err("output file specified twice".to_string()),
        "output" => job.output = Some(text),
        "quit" => job.quit = true,
        "time" => job.time = true,
        "warnings" => job.voice = Output::Click { warnings: !negated },
        "no-warnings" => job.voice = Output::Click { warnings: negated },
        "allow-reconfigure" => job.allow_replace = !negated,
        "clickpath" => job.reading.clickpath = value,
        "unix-socket" => job.control.sockets.push(text.into()),
        "port" => {
            let port = text.parse::<PortRequest>();
            job.control.ports.push(
                port.map_err(|_| format!("'{}' expects a TCP port number, not '{text}'", given.spelling))?,
            );
        }
        "threads" => job.settings.workers = integer(&given.spelling, &text)?.clamp(1, 256) as usize,
        "affinity" | "cpu" => {
            let first = if text.is_empty() { 0 } else { integer(&given.spelling, &text)?.max(0) as usize };
            let refuse = |why| format!("'{}': {why}, not {first}", given.spelling);
            let first = check_processor(first).map_err(refuse)?;
            job.settings.affinity = (!negated).then_some(first);
        }
        "simtime" | "simulation-time" => {
            job.settings.simulated = Some(start_of_time(&given.spelling, &text)?)
        }
        "socket" => {
            integer(&given.spelling, &text)?;
            return Err("--socket is not supported; use --unix-socket".to_string());
        }
        other => unreachable!("option {other} is in the table"),
    }
    Ok(())
}

fn integer(spelling: &str, text: &str) -> Result<i64, String> {
    text.parse().map_err(|_| format!("'{spelling}' expects an integer, not '{text}'"))
}

fn start_of_time(spelling: &str, text: &str) -> Result<Time, String> {
    let text = if text.is_empty() { "1000000000" } else { text };
    let since = text.parse().ok().and_then(|seconds| Duration::try_from_secs_f64(seconds).ok());
    since
        .map(|since| Time::ZERO + since)
        .ok_or_else(|| format!("'{spelling}' expects a real number, not '{text}'"))
}

fn help(name: &str) -> String {
    format!(
        "\
Runs a router configuration at user level, as Click does, until it is
interrupted or its driver stops it. Errors are reported to standard error.

Usage: {name} [OPTION]... [ROUTERFILE] [VARIABLE=VALUE]...

Options:
{}",
        options::listing()
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    fn job(args: &[&str]) -> Result<RunJob, String> {
        let args: Vec<String> = args.iter().map(|arg| arg.to_string()).collect();
        match wish("click", &args)? {
            Wish::Run(job) => Ok(*job),
            Wish::Print(text) => panic!("printed {text}"),
        }
    }

    #[test]
    fn short_options_bundle_and_the_last_takes_what_follows() {
        let bundled = job(&["-qo-", "f.click"]).unwrap();
        assert!(bundled.quit && bundled.output.as_deref() == Some("-"));
        assert_eq!(bundled.input, ConfigInput::File("f.click".into()));
        let text = job(&["-qe", "Idle", "-h", "a.b", "-hc.d", "-j", "3"]).unwrap();
        assert_eq!(text.input, ConfigInput::Text("Idle".into()));
        assert_eq!(text.handlers, ["a.b", "c.d"]);
        assert_eq!(text.settings.workers, 3);
        assert_eq!(job(&[]).unwrap().input, ConfigInput::Stdin);
    }

    #[test]
    fn long_options_may_be_shortened_and_negated() {
        let job =
            job(&["--expr", "Idle", "--no-warn", "--simtime=5", "--affinity", "X=1", "--port=7+"]).unwrap();
        assert_eq!(job.voice, Output::Click { warnings: false });
        assert_eq!(job.settings.simulated, Some(Time::new(5, 0)));
        assert_eq!(job.settings.affinity, Some(0));
        assert_eq!(job.reading.variables, [("X".to_string(), "1".to_string())]);
        assert_eq!(job.control.ports, [PortRequest { port: 7, or_next: true }]);
    }

    #[test]
    fn mistakes_are_named_as_click_names_them() {
        let error = |args: &[&str]| job(args).err().unwrap();
        assert_eq!(error(&["-e", "a", "b"]), "router configuration specified twice");
        assert_eq!(error(&["--frob"]), "unrecognized option '--frob'");
        assert_eq!(error(&["-qz"]), "unrecognized option '-z'");
        assert_eq!(error(&["-e"]), "'-e' requires an argument");
        assert_eq!(error(&["--port", "x"]), "'--port' expects a TCP port number, not 'x'");
        assert_eq!(error(&["--quit=3"]), "'--quit' can't take an argument");
        assert_eq!(error(&["-o", "a", "-o", "b"]), "output file specified twice");
        assert_eq!(error(&["-j", "x"]), "'-j' expects an integer, not 'x'");
    }
}
