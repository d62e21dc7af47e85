//! `artery apply`, `confirm`, `diff` and `show config`: files of `artery router` and the router that runs.
use crate::config_input::ConfigInput;
use crate::control_socket::Client;
use crate::options::Reach;
use crate::options::values::seconds;
use crate::output::{print_stderr, print_stdout};
use crate::router::configuration::{Candidate, Change, parse};
use crate::router::live::{APPLY, CONFIGURATION, CONFIRM};
use anyhow::{Context as _, anyhow, bail};
use clap::Args;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// The last lines of the help of `apply`.
pub(crate) const APPLY_EXAMPLES: &str = "Examples:
  artery apply /etc/artery/lan.toml
  artery apply /etc/artery/lan.toml --confirm 60s     undone after a minute, unless 'artery confirm' is run

The file is that of 'artery router FILE'; a router that was started by options takes one, too. All of it is
checked before anything changes; with a mistake the router stays as it is. Ports, addresses, routes, services,
rules and the host's interface change without losing a packet. Routes that 'artery route add' added stay,
unless the file has their prefix. What a router looks at when it starts stays as it is, and is told: workers,
awake, affinity, socket, metrics, read-group, control-timeout, log, allow-replace, sandbox, allow-path, stats,
json.

SIGHUP has the router read again the file that was applied last, where its sandbox lets it (--allow-path). A
restart takes the file or the options that it is started by.";
pub(crate) const CONFIRM_EXAMPLES: &str = "Example:
  artery apply /etc/artery/lan.toml --confirm 60s && ping -c 3 192.0.2.1 && artery confirm";
pub(crate) const DIFF_EXAMPLES: &str = "Example:
  artery diff /etc/artery/lan.toml

Status 0: the router is what the file says; 1: it differs, or something is wrong.";

#[derive(Args)]
pub(crate) struct ApplyOptions {
    /// The file with the options of the router (TOML)
    #[arg(value_name = "FILE")]
    file: PathBuf,
    /// Undo it after TIME, such as 60s, unless 'artery confirm' is run before
    #[arg(long, value_name = "TIME", value_parser = confirmation)]
    confirm: Option<Duration>,
    #[command(flatten)]
    reach: Reach,
}

#[derive(Args)]
pub(crate) struct ConfirmOptions {
    #[command(flatten)]
    reach: Reach,
}

#[derive(Args)]
pub(crate) struct DiffOptions {
    /// The file with the options of the router (TOML)
    #[arg(value_name = "FILE")]
    file: PathBuf,
    #[command(flatten)]
    reach: Reach,
}

/// The time after which the change is undone unless it is confirmed.
fn confirmation(text: &str) -> Result<Duration, String> {
    let time = seconds(text)
        .ok()
        .filter(|time| (Duration::from_secs(1)..=Duration::from_secs(86_400)).contains(time));
    time.ok_or_else(|| "write a time from 1s to 1day, such as 60s".to_string())
}

/// Has the router become what a file says.
pub(crate) fn apply(options: &ApplyOptions) -> anyhow::Result<u8> {
    let Some((text, candidate)) = read(&options.file)? else { return Ok(1) };
    let changes = changes(&options.reach, &candidate)?;
    let file = std::path::absolute(&options.file).context("the name of the file")?;
    let seconds = options.confirm.unwrap_or_default().as_secs_f64();
    let value = format!("{seconds} {}\n{text}", file.display());
    let mut client = Client::connect(&options.reach)?;
    match client.write_with_warnings(APPLY, &value) {
        Ok(warnings) => print_stderr(&warnings),
        Err(error) => {
            print_stderr(&format!("{error}\n"));
            bail!("{}: nothing was changed", options.file.display());
        }
    }
    let until = options.confirm.map_or(String::new(), |time| {
        format!("; undone in {} s, unless 'artery confirm' is run", time.as_secs_f64())
    });
    let now = changes.iter().filter(|change| !change.is_at_start()).count();
    let count = format!("{now} change{}", if now == 1 { "" } else { "s" });
    let list: String = changes.iter().map(Change::text).collect();
    print_stdout(&format!("{list}{}: applied, {count}{until}\n", options.file.display())).map(|()| 0)
}

/// Confirms the change that was applied.
pub(crate) fn confirm(options: &ConfirmOptions) -> anyhow::Result<u8> {
    Client::connect(&options.reach)?.write_plain(CONFIRM, "")?;
    print_stdout("confirmed\n").map(|()| 0)
}

/// Shows what a file would change.
pub(crate) fn diff(options: &DiffOptions) -> anyhow::Result<u8> {
    let Some((_, candidate)) = read(&options.file)? else { return Ok(1) };
    let changes = changes(&options.reach, &candidate)?;
    let list: String = changes.iter().map(Change::text).collect();
    print_stdout(&list).map(|()| u8::from(!changes.is_empty()))
}

/// A file and its configuration; none where it has mistakes, which are printed.
fn read(file: &Path) -> anyhow::Result<Option<(String, Candidate)>> {
    let text = ConfigInput::File(file.to_path_buf()).read().map_err(|why| anyhow!("{why}"))?;
    match parse(&file.display().to_string(), &text) {
        Ok(candidate) => Ok(Some((text, candidate))),
        Err(mistakes) => {
            mistakes.iter().for_each(|mistake| print_stderr(&format!("error: {mistake}\n")));
            Ok(None)
        }
    }
}

/// What a candidate would change.
fn changes(reach: &Reach, candidate: &Candidate) -> anyhow::Result<Vec<Change>> {
    let running = running_configuration(reach)?;
    let running = parse("the router's configuration", &running)
        .map_err(|mistakes| anyhow!("{}; is the router of another version?", mistakes.join("; ")))?;
    Ok(running.configuration.changes(&candidate.configuration))
}

/// The file that makes the running router.
pub(crate) fn running_configuration(reach: &Reach) -> anyhow::Result<String> {
    let mut client = Client::connect(reach)?;
    client.query(CONFIGURATION, "").map_err(|error| {
        let text = error.to_string();
        match text.contains("No handler named") {
            true => anyhow!(
                "this router was not started by 'artery router', and has no such file; 'artery \
                 handler config' reads its configuration"
            ),
            false => error,
        }
    })
}
