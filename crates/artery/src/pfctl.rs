//! `artery pfctl`: the packet filter, by the options of OpenBSD's pfctl.
mod machine;

use crate::voice::{complain, print};
use anyhow::Context as _;
use artery_filter::rule::Ruleset;
use artery_filter::syntax::print::Style;
use artery_filter::syntax::{Environment, Parsed, Settings, parse, read};
use clap::{ArgAction, Args};
use std::io::Read as _;

/// The last lines of its help.
pub(crate) const EXAMPLES: &str = "Examples:
  artery pfctl -nf pf.conf                 check a file: each mistake with its file and line
  artery pfctl -nvf pf.conf                and print what it means, a rule a line
  artery pfctl -nv -D if=eth0 -f -         the same for standard input, with a macro

Rules are printed as OpenBSD's pfctl prints them, and read as what is printed. The optimiser of rules is left out: -o is
accepted, and rules stay as they are. With ARTERY_PF_FIXTURE=1 in the environment interfaces and names are those that
tests assume, instead of this machine's.

Exit status: 0 success, 1 mistakes in the rules.";

/// How deep files of anchors may load further ones.
const MOST_LOADS: usize = 16;

#[derive(Args)]
pub(crate) struct PfctlOptions {
    /// The rules, in the language of pf.conf(5); `-` for standard input
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
    let Some(file) = &options.file else {
        anyhow::bail!("pfctl needs rules to read: write -f FILE, or -f - for standard input");
    };
    let environment = machine::environment(options.output.numeric);
    let Some(_loaded) = load(options, file, &environment)? else { return Ok(1) };
    if options.parse_only {
        return Ok(0);
    }
    anyhow::bail!("the rules are good, but there is no router here to load them into; -n only reads them")
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
    fn print(&self, text: &str) -> anyhow::Result<()> {
        if self.verbose > 0 && !self.quiet { print(text) } else { Ok(()) }
    }

    fn style<'n>(&self, environment: &'n Environment) -> Style<'n> {
        let style = Style::new(&environment.names);
        Style { is_debugging: self.verbose > 1 || self.debug, has_port_names: self.port_names, ..style }
    }
}
