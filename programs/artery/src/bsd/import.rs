//! `artery import`: what becomes of each line of BSD's files, or the configuration that they make.
use super::folder::judge;
use super::plan::Wishes;
use super::verdict::{Judged, json, text};
use crate::output::{print_stderr, print_stdout};
use crate::router::called;
use clap::Args;
use std::path::PathBuf;

/// The last lines of its help.
pub(crate) const EXAMPLES: &str = "Examples:
  artery import --explain conf/veb2021
  artery import --explain --json /mnt/openbsd/etc
  artery import --explain conf/firewall
  artery import /mnt/openbsd/etc > switch.click

Each line of hostname.veb0, of the files of its ports, of those of a router's ports, of mygate and of pf.conf
is honoured: it does what it says; approximated: something else is done, which is said; or refused, with the
reason and what helps. The status is 1 if one is refused.";

#[derive(Args)]
pub(crate) struct ImportOptions {
    /// The folder with the files
    #[arg(value_name = "DIR")]
    etc: PathBuf,
    /// Say of each line what becomes of it
    #[arg(long)]
    explain: bool,
    /// Say it as JSON
    #[arg(long, requires = "explain")]
    json: bool,
    /// Take this switch and those named so as well, no others, and no router
    #[arg(long, value_name = "NAME", value_delimiter = ',')]
    switch: Vec<String>,
    /// Take rules that never apply, as their interface is not a port
    #[arg(long)]
    lenient: bool,
}

/// Explains the files, or prints the configuration that they make.
pub(crate) fn command(options: &ImportOptions) -> anyhow::Result<u8> {
    let wishes =
        Wishes { switches: options.switch.clone(), is_lenient: options.lenient, ..Wishes::default() };
    let plan = judge(&options.etc, &wishes)?;
    let refusals: Vec<String> = plan.judged.iter().filter_map(Judged::refusal).collect();
    match (options.explain, options.json) {
        (true, true) => print_stdout(&format!("{:#}\n", json(&plan.judged, &plan.notes)))?,
        (true, false) => print_stdout(&text(&plan.judged, &plan.notes))?,
        (false, _) if refusals.is_empty() => print_stdout(&super::text::configuration(&plan, &called())?)?,
        (false, _) => print_stderr(&refusals.iter().map(|why| format!("error: {why}\n")).collect::<String>()),
    }
    Ok(u8::from(!refusals.is_empty()))
}
