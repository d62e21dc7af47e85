//! `artery pfctl`: the packet filter, by the options of OpenBSD's pfctl.
mod live;
mod machine;

use crate::cli::Reach;
use crate::voice::{complain, print};
use anyhow::Context as _;
use artery_filter::rule::Ruleset;
use artery_filter::syntax::print::Style;
use artery_filter::syntax::{Environment, Parsed, Settings, parse, read};
use clap::{ArgAction, Args};
use live::Filters;
use std::io::Read as _;

/// The last lines of its help.
pub(crate) const EXAMPLES: &str = "Examples:
  artery pfctl -nf pf.conf                 check a file: each mistake with its file and line
  artery pfctl -nvf pf.conf                and print what it means, a rule a line
  artery pfctl -nv -D if=eth0 -f -         the same for standard input, with a macro
  artery pfctl -f pf.conf                  load it into the running router; with mistakes the old rules stay
  artery pfctl -v -s rules                 the rules, and what each of them counted
  artery pfctl -s states                   what is remembered of connections
  artery pfctl -t friends -T add 192.0.2.7 change a table
  artery pfctl -k 192.0.2.7                end the states of a host

Rules are printed as OpenBSD's pfctl prints them, and read as what is printed. The optimiser of rules is left out: -o is
accepted, and rules stay as they are. With ARTERY_PF_FIXTURE=1 in the environment interfaces and names are those that
tests assume, instead of this machine's.

Without -u and -p the router is the one at $ARTERY_SOCKET, or else at /run/artery.sock.

Exit status: 0 success, 1 mistakes in the rules, or what was asked for is not so.";

/// How deep files of anchors may load further ones.
const MOST_LOADS: usize = 16;

#[derive(Args)]
pub(crate) struct PfctlOptions {
    #[command(flatten)]
    reach: Reach,
    /// The packet filter, where there are several; otherwise all of them
    #[arg(long, value_name = "NAME")]
    element: Option<String>,
    /// Show rules, states, info, Anchors, Sources, Tables, labels, timeouts, memory, Interfaces or all; any beginning will do
    #[arg(short = 's', value_name = "WHAT")]
    show: Option<String>,
    /// Forget rules, states, info, Sources, Tables or all
    #[arg(short = 'F', value_name = "WHAT")]
    flush: Option<String>,
    /// End states from a host or network, and given twice, to another; or `label L`, `id ID`, `key KEY`
    #[arg(short = 'k', value_name = "HOST", action = ArgAction::Append)]
    kill: Vec<String>,
    /// Forget what is tracked of a source
    #[arg(short = 'K', value_name = "HOST", action = ArgAction::Append)]
    kill_sources: Vec<String>,
    /// The table that -T is for
    #[arg(short = 't', value_name = "TABLE", requires = "table_command")]
    table: Option<String>,
    /// Do with the table: add, delete, replace, show, test, zero, flush, kill, or expire SECONDS
    #[arg(short = 'T', value_name = "COMMAND", requires = "table")]
    table_command: Option<String>,
    /// Turn the filter on
    #[arg(short = 'e', conflicts_with = "disable")]
    enable: bool,
    /// Turn the filter off: all packets pass
    #[arg(short = 'd')]
    disable: bool,
    /// Addresses for -T
    #[arg(value_name = "ADDRESS", requires = "table")]
    addresses: Vec<String>,
    /// The rules, in the language of pf.conf(5); `-` for standard input. With -T: the addresses
    #[arg(short = 'f', value_name = "FILE")]
    file: Option<String>,
    /// Only read the rules, load nothing
    #[arg(short = 'n')]
    parse_only: bool,
    /// The anchor that the rules are for
    #[arg(short = 'a', value_name = "ANCHOR")]
    anchor: Option<String>,
    /// A macro, which the file can't change then
    #[arg(short = 'D', value_name = "MACRO=VALUE", value_parser = definition)]
    macros: Vec<(String, String)>,
    /// How much rules are optimised: none, basic or profile; accepted, and nothing is changed
    #[arg(short = 'o', value_name = "LEVEL", value_parser = ["none", "basic", "profile"])]
    level: Option<String>,
    #[command(flatten)]
    output: Output,
}

/// How much is printed, and how.
#[derive(Args)]
struct Output {
    /// Print what is read; twice: with the numbers of rules
    #[arg(short = 'v', action = ArgAction::Count)]
    verbose: u8,
    /// Print as for finding mistakes of the filter itself
    #[arg(short = 'g')]
    debug: bool,
    /// Print errors and warnings only
    #[arg(short = 'q')]
    quiet: bool,
    /// Ask for no names of hosts
    #[arg(short = 'N')]
    numeric: bool,
    /// Look up names of addresses in states
    #[arg(short = 'r')]
    reverse: bool,
    /// Print ports by their names
    #[arg(short = 'P')]
    port_names: bool,
}

fn definition(text: &str) -> Result<(String, String), String> {
    let (name, value) = text.split_once('=').ok_or("a macro is NAME=VALUE")?;
    if name.is_empty() || name.contains(char::is_whitespace) {
        return Err("the name of a macro has no blanks and is not empty".to_string());
    }
    Ok((name.to_string(), value.to_string()))
}

/// Rules that were read, with those that go into anchors.
pub(crate) struct Loaded {
    /// The rules of the file, for the main rule set or for the anchor of `-a`.
    pub(crate) main: Parsed,
    /// Anchors by their full names, with what was loaded for them.
    pub(crate) anchors: Vec<(String, Ruleset)>,
}

/// Does what the options say.
pub(crate) fn command(options: &PfctlOptions) -> anyhow::Result<u8> {
    let acts = options.show.is_some() || options.flush.is_some() || options.enable || options.disable;
    let acts =
        acts || options.table.is_some() || !options.kill.is_empty() || !options.kill_sources.is_empty();
    if options.file.is_none() && !acts {
        anyhow::bail!(
            "what is to be done? -f FILE loads rules, -s rules shows them; 'artery help pfctl' lists the rest"
        );
    }
    let environment = machine::environment(options.output.numeric);
    let rules = match options.file.as_ref().filter(|_| options.table.is_none()) {
        Some(file) => match load(options, file, &environment)? {
            Some(loaded) => Some(loaded),
            None => return Ok(1),
        },
        None => None,
    };
    if options.parse_only && !acts {
        return Ok(0);
    }
    let mut filters = Filters::find(&options.reach, options.element.as_deref())?;
    act(options, rules.as_ref(), &environment, &mut filters)
}

/// Does what the options say with the filters of a router, in the order in which pfctl does it.
fn act(
    options: &PfctlOptions,
    rules: Option<&Loaded>,
    environment: &Environment,
    filters: &mut Filters,
) -> anyhow::Result<u8> {
    let anchor = options.anchor.as_deref().unwrap_or_default();
    let (is_quiet, verbosity) = (options.output.quiet, options.output.verbose);
    let mut status = 0;
    if options.disable {
        status = filters.enable(false, is_quiet)?;
    }
    if let Some(what) = &options.show {
        filters.show(what, anchor, verbosity)?;
    }
    if let Some(what) = &options.flush {
        filters.flush(what, anchor, is_quiet)?;
    }
    if !options.kill.is_empty() {
        filters.kill(&options.kill, is_quiet)?;
    }
    if !options.kill_sources.is_empty() {
        filters.kill_sources(&options.kill_sources, is_quiet)?;
    }
    if let (Some(name), Some(command)) = (&options.table, &options.table_command) {
        let mut words = vec![command.clone()];
        words.extend(options.addresses.iter().cloned());
        if let Some(file) = &options.file {
            let (name, text) = rules_text(file)?;
            words.extend(listed(&name, &text)?);
        }
        status =
            status.max(filters.table(anchor, name, &options.output.flags(options.parse_only), &words)?);
    }
    if let Some(rules) = rules.filter(|_| !options.parse_only) {
        filters.load(anchor, rules, &options.output.style(environment))?;
    }
    if options.enable {
        status = status.max(filters.enable(true, is_quiet)?);
    }
    Ok(status)
}

/// The addresses of a table's file, which may have comments.
fn listed(name: &str, text: &[u8]) -> anyhow::Result<Vec<String>> {
    let text = std::str::from_utf8(text).map_err(|_| anyhow::anyhow!("{name} is no text"))?;
    let lines = text.lines().map(|line| line.split('#').next().unwrap_or_default());
    Ok(lines.flat_map(str::split_whitespace).map(str::to_string).collect())
}

/// Words of a table's command as one line.
pub(crate) fn address_words(words: &[String]) -> String {
    words.join(" ").split_whitespace().collect::<Vec<_>>().join(" ")
}

/// Reads rules and prints what is asked for; None if there are mistakes, which were told.
fn load(options: &PfctlOptions, file: &str, environment: &Environment) -> anyhow::Result<Option<Loaded>> {
    let settings = Settings { macros: options.macros.clone() };
    let (name, text) = rules_text(file)?;
    let (main, faults) = read(&name, &text, environment, &settings);
    if !faults.is_empty() {
        faults.iter().for_each(|fault| complain(&format!("{fault}\n")));
        let echoed: String = main.echoed.iter().map(|line| format!("{line}\n")).collect();
        options.output.print(&echoed)?;
        complain("pfctl: Syntax error in config file: pf rules not loaded\n");
        return Ok(None);
    }
    options.output.print(&main.text(&options.output.style(environment)))?;
    let mut loaded = Loaded { main, anchors: Vec::new() };
    let waiting = named(options.anchor.as_deref(), &loaded.main.ruleset, 0);
    let is_good = load_anchors(options, environment, &settings, waiting, &mut loaded)?;
    Ok(is_good.then_some(loaded))
}

/// The anchors that rules load, by their full names, with their files.
fn named(within: Option<&str>, ruleset: &Ruleset, depth: usize) -> Vec<(String, String, usize)> {
    let path = |name: &str| match within.filter(|within| !within.is_empty()) {
        Some(within) if !name.starts_with('/') => format!("{within}/{name}"),
        _ => name.trim_start_matches('/').to_string(),
    };
    ruleset.loads.iter().map(|(name, file)| (path(name), file.clone(), depth)).collect()
}

/// Reads the files of anchors, and of anchors that these load.
fn load_anchors(
    options: &PfctlOptions,
    environment: &Environment,
    settings: &Settings,
    mut waiting: Vec<(String, String, usize)>,
    loaded: &mut Loaded,
) -> anyhow::Result<bool> {
    waiting.reverse();
    while let Some((anchor, file, depth)) = waiting.pop() {
        if depth >= MOST_LOADS {
            anyhow::bail!("anchors load one another more than {MOST_LOADS} deep, the last from {file}");
        }
        if options.output.verbose > 0 {
            complain(&format!("\nLoading anchor {anchor} from {file}\n"));
        }
        let (name, text) = rules_text(&file)?;
        let parsed = match parse(&name, &text, environment, settings) {
            Ok(parsed) => parsed,
            Err(faults) => {
                faults.iter().for_each(|fault| complain(&format!("{fault}\n")));
                complain("pfctl: load anchors\n");
                return Ok(false);
            }
        };
        options.output.print(&parsed.text(&options.output.style(environment)))?;
        let mut further = named(Some(&anchor), &parsed.ruleset, depth + 1);
        further.reverse();
        waiting.extend(further);
        loaded.anchors.push((anchor, parsed.ruleset));
    }
    Ok(true)
}

/// The name that mistakes of a file are told by, and its text.
fn rules_text(file: &str) -> anyhow::Result<(String, Vec<u8>)> {
    if file == "-" {
        let mut text = Vec::new();
        std::io::stdin().read_to_end(&mut text).context("can't read standard input")?;
        return Ok(("stdin".to_string(), text));
    }
    let text = std::fs::read(file)
        .map_err(|error| anyhow::anyhow!("{file}: {}", crate::load::system_message(&error)));
    Ok((file.to_string(), text?))
}

impl Output {
    /// What of this a table's command must know, as letters.
    fn flags(&self, is_dummy: bool) -> String {
        let letter = |is: bool, letter: &str| if is { letter.to_string() } else { String::new() };
        "v".repeat(self.verbose.into()) + &letter(self.quiet, "q") + &letter(is_dummy, "n")
    }

    fn print(&self, text: &str) -> anyhow::Result<()> {
        if self.verbose > 0 && !self.quiet { print(text) } else { Ok(()) }
    }

    fn style<'n>(&self, environment: &'n Environment) -> Style<'n> {
        let style = Style::new(&environment.names);
        Style { is_debugging: self.verbose > 1 || self.debug, has_port_names: self.port_names, ..style }
    }
}
