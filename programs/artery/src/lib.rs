//! The program `artery`: a software router that speaks the Click language. Only [`main`] and [`main_with`]
//! are public; nothing else is a stable interface.
#![forbid(unsafe_code)]

mod adopt;
mod apply;
mod ask;
mod beside;
mod bsd;
mod capture;
mod check;
mod classes;
mod cli;
mod click;
mod config_input;
mod control_socket;
mod devices;
mod doctor;
mod elements;
mod explain;
mod export;
mod flow;
#[cfg(any(test, feature = "fuzz"))]
pub mod forged;
mod format;
mod host_commands;
mod ip_router;
mod ipfix;
mod load;
mod metrics;
mod neighbor;
mod netstat;
mod notify;
mod options;
mod output;
mod pfctl;
mod psample;
mod release;
mod reload;
mod replace;
mod report;
mod route;
mod router;
mod run;
mod run_options;
mod sandbox;
mod show;
mod signals;
mod spelling;
mod timestamp;
mod top;
mod trace;
mod watch;

use artery_engine::Class;
use cli::{Cli, Command};
use output::{LogFormat, Output};
use signals::EarlySignals;
use std::ffi::OsString;
use std::path::Path;
use std::process::ExitCode;

/// Carries out the command that this process was called with.
pub fn main() -> ExitCode {
    main_with(&[])
}

/// The same for a program of one's own, whose configurations may use these classes besides Artery's (see
/// `examples/element`). Panics if Artery has one of their names.
pub fn main_with(classes: &[&'static Class]) -> ExitCode {
    classes::add_classes(classes);
    artery_device::map_large_allocations();
    let args: Vec<OsString> = std::env::args_os().collect();
    if let Some(status) = sandbox::serve_if_helper(&args) {
        return ExitCode::from(status);
    }
    let status = match click_arguments(&args) {
        Some((name, rest)) => click::main(name, rest),
        None => {
            let cli = cli::parse(args);
            let log = cli.command.log_format();
            let voice = Output::from(log);
            if cli.command.shows_verifier() || log == LogFormat::Json {
                artery_device::show_verifier();
            }
            artery(cli).unwrap_or_else(|error| {
                voice.print_error(&format!("{error:#}"));
                1
            })
        }
    };
    ExitCode::from(status)
}

/// The program's name and arguments for the personality `click`, if that was called.
fn click_arguments(args: &[OsString]) -> Option<(&str, &[OsString])> {
    let called = args.first().and_then(|name| Path::new(name).file_name());
    match args.get(1) {
        _ if called.is_some_and(|name| name == "click") => Some(("click", &args[1..])),
        Some(command) if command == "click" => Some(("artery click", &args[2..])),
        _ => None,
    }
}

/// Carries out a command; the number is the exit status.
fn artery(cli: Cli) -> anyhow::Result<u8> {
    match cli.command {
        Command::Run(options) => {
            let job = options.job()?;
            let early = EarlySignals::watch(job.voice)?;
            run::run(job, early)
        }
        Command::Check(options) => check::check(&options),
        Command::Fmt(options) => format::format(&options),
        Command::Flatten(options) => check::flatten(&options),
        Command::Graph(options) => check::graph(&options),
        Command::Elements(options) => elements::command(&options),
        Command::Devices(options) => devices::command(&options),
        Command::Doctor(options) => doctor::command(&options),
        Command::Release(options) => release::command(&options),
        Command::Help { topic } => cli::help(topic.as_deref()),
        Command::Adopt(options) => adopt::command(&options),
        Command::Handler(options) => control_socket::call(&options),
        Command::Netstat(options) => netstat::command(&options),
        Command::Trace(options) => trace::command(&options),
        Command::Router(options) => router::command(*options),
        Command::Up(options) => bsd::up::command(*options),
        Command::Import(options) => bsd::import::command(&options),
        Command::Ifconfig(options) => bsd::ifconfig::command(&options),
        Command::Pfctl(options) => pfctl::command(&options),
        Command::Apply(options) => apply::apply(&options),
        Command::Confirm(options) => apply::confirm(&options),
        Command::Diff(options) => apply::diff(&options),
        Command::Show(options) => show::command(&options),
        Command::Route(options) => route::command(&options),
        Command::Neighbor(options) => neighbor::command(&options),
        Command::Arp(options) => neighbor::bsd::command(&options, false),
        Command::Ndp(options) => neighbor::bsd::command(&options, true),
        Command::Flow(options) => flow::command(&options),
        Command::Watch(options) => watch::command(&options),
        Command::Explain(options) => explain::command(&options),
        Command::Top(options) => top::command(&options),
        Command::Capture(options) => capture::command(&options),
        Command::Completions { shell } => cli::completions(shell),
        Command::Man { folder } => cli::manual(&folder),
        Command::Bench { arguments } => beside::bench(&arguments),
        Command::Fleet { arguments } => beside::fleet(&arguments),
        Command::Click { .. } => unreachable!("the personality was chosen before the arguments were read"),
    }
}
