//! `artery pfctl`: the packet filter, by the options of OpenBSD's pfctl.
mod input;
mod kill;
mod known;
mod live;
mod machine;
mod rules_file;
mod states_file;

use crate::options::{Reach, default_socket};
use crate::output::print_stdout;
use anyhow::{anyhow, bail};
use artery_filter::syntax::print::{Style, table_address};
use artery_filter::syntax::{Environment, addresses_of};
use clap::{ArgAction, Args};
use live::{Filters, Scope};
use rules_file::RulesFile;
pub(crate) use rules_file::logs;
use std::path::PathBuf;

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
  artery pfctl -S states.pf                save all states in a file; -L loads it into another router

Rules are printed as OpenBSD's pfctl prints them, and read as what is printed. The optimiser of rules is left
out: -o is accepted, and rules stay as they are. With ARTERY_PF_FIXTURE=1 in the environment interfaces and
names are those that tests assume, instead of this machine's.

Rules name the interfaces of the running router, with their addresses there. If none runs, -n takes this
machine's. Without -u and -p the router is the one at $ARTERY_SOCKET, or else at /run/artery.sock.

Exit status: 0 success, 1 mistakes in the rules, or what was asked for is not so.";

#[derive(Args)]
pub(crate) struct PfctlOptions {
    #[command(flatten)]
    reach: Reach,
    /// The packet filter, where there are several; otherwise all of them
    #[arg(long, value_name = "NAME")]
    element: Option<String>,
    /// Show rules, states, info, Anchors, Sources, Tables, labels, timeouts, memory, Interfaces or all; any
    /// beginning will do, here and of the words of -F, -T and -x
    #[arg(short = 's', value_name = "WHAT")]
    show: Option<String>,
    /// Forget rules, states, info, Sources, Tables or all, or Reset options to what they are if none is set
    #[arg(short = 'F', value_name = "WHAT")]
    flush: Option<String>,
    /// End states from a host or network, and given twice, to another; or `label L`, `id ID`, `key KEY`
    #[arg(short = 'k', value_name = "HOST", action = ArgAction::Append)]
    kill: Vec<String>,
    /// Only the states at this interface, as they are listed, or only this interface: with -s,
    /// -F states and -k
    #[arg(short = 'i', value_name = "INTERFACE", value_parser = word)]
    interface: Option<String>,
    /// Count from nothing for each rule
    #[arg(short = 'z')]
    clear_rules: bool,
    /// Set how much is logged of the filter's own work: emerg, alert, crit, err, warning,
    /// notice, info or debug
    #[arg(short = 'x', value_name = "LEVEL")]
    debug_level: Option<String>,
    /// Keep all states in a file; `-` for standard output
    #[arg(short = 'S', value_name = "FILE")]
    store: Option<String>,
    /// Take the states of such a file; `-` for standard input
    #[arg(short = 'L', value_name = "FILE")]
    take: Option<String>,
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
    /// Addresses for the command of -T
    #[arg(value_name = "ADDRESS", requires = "table")]
    addresses: Vec<String>,
    /// The rules, in the language of pf.conf(5); `-` for standard input. With -T: the addresses
    #[arg(short = 'f', value_name = "FILE")]
    file: Option<String>,
    /// The folder that rules mean by /etc; otherwise what a running filter means by it, if it was set
    #[arg(long, value_name = "DIR")]
    etc: Option<PathBuf>,
    /// Have a filter that has no log yet add the packets of rules with `log` to this file: with -f
    #[arg(long, value_name = "FILE", requires = "file")]
    pflog: Option<PathBuf>,
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
    output: PfctlVerbosity,
}

/// How much is printed, and how.
#[derive(Args)]
struct PfctlVerbosity {
    /// Print what is read; twice: with the numbers of rules
    #[arg(short = 'v', action = ArgAction::Count)]
    verbose: u8,
    /// Print rules as for finding mistakes of the filter itself: with how they could be skipped
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

fn word(text: &str) -> Result<String, String> {
    match text.is_empty() || text.contains(char::is_whitespace) {
        true => Err("the name of an interface has no blanks and is not empty".to_string()),
        false => Ok(text.to_string()),
    }
}

fn definition(text: &str) -> Result<(String, String), String> {
    let (name, value) = text.split_once('=').ok_or("a macro is NAME=VALUE")?;
    if name.is_empty() || name.contains(char::is_whitespace) {
        return Err("the name of a macro has no blanks and is not empty".to_string());
    }
    Ok((name.to_string(), value.to_string()))
}

impl PfctlOptions {
    /// Whether the options read or change a running router apart from loading rules.
    fn acts(&self) -> bool {
        let words = [&self.show, &self.flush, &self.table, &self.debug_level, &self.store, &self.take];
        let flags = [self.enable, self.disable, self.clear_rules];
        let ends = !self.kill.is_empty() || !self.kill_sources.is_empty();
        ends || flags.contains(&true) || words.iter().any(|word| word.is_some())
    }
}

/// Does what the options say.
pub(crate) fn command(options: &PfctlOptions) -> anyhow::Result<u8> {
    let acts = options.acts();
    if options.file.is_none() && !acts {
        bail!("nothing to do: -f FILE loads rules, -s rules shows them; 'artery help pfctl' lists the rest");
    }
    live::refuse_words(options)?;
    let filters = Filters::find(&options.reach, options.element.as_deref());
    let is_named = options.reach.socket() != Some(default_socket());
    let mut filters = match options.parse_only && !acts && !is_named {
        // Without a router the file is checked for this machine.
        true => filters.ok(),
        false => Some(filters?),
    };
    let rules = options.file.as_ref().filter(|_| options.table.is_none());
    let etc = match (&options.etc, &mut filters) {
        (Some(etc), _) => Some(etc.clone()),
        (None, Some(filters)) if rules.is_some() => filters.etc()?,
        _ => None,
    };
    let names_interfaces = options.file.is_some() || options.table.is_some();
    let known = filters.as_mut().filter(|_| names_interfaces).map(Filters::known_interfaces).transpose()?;
    let knows_filters = known.is_some();
    let environment = machine::environment(options.output.numeric, etc, known);
    let rules = match rules {
        Some(file) => match rules_file::load(options, file, &environment, knows_filters)? {
            Some(loaded) => Some(loaded),
            None => return Ok(1),
        },
        None => None,
    };
    filters.map_or(Ok(0), |mut filters| act(options, rules.as_ref(), &environment, &mut filters))
}

/// Does what the options say with the filters of a router, in the order in which pfctl does it.
fn act(
    options: &PfctlOptions,
    rules: Option<&RulesFile>,
    environment: &Environment,
    filters: &mut Filters,
) -> anyhow::Result<u8> {
    let anchor = options.anchor.as_deref().unwrap_or_default();
    let scope = Scope { anchor, interface: options.interface.as_deref() };
    let is_quiet = options.output.quiet;
    let mut status = 0;
    if options.disable {
        status = filters.enable(false, is_quiet)?;
    }
    if let Some(what) = &options.show {
        filters.show(what, scope, &options.output.more())?;
    }
    if let Some(file) = &options.store {
        filters.store_states(file)?;
    }
    forget(options, scope, filters)?;
    if let Some(command) = &options.table_command {
        status = status.max(change_table(options, command, environment, filters)?);
    }
    if let Some(rules) = rules.filter(|_| !options.parse_only) {
        let log = options.pflog.as_deref();
        filters.load(anchor, rules, &options.output.style(environment), log)?;
    }
    if let Some(file) = &options.take {
        filters.load_states(file, is_quiet)?;
    }
    if options.enable {
        status = status.max(filters.enable(true, is_quiet)?);
    }
    if let Some(level) = &options.debug_level {
        filters.debug(level, is_quiet)?;
    }
    Ok(status)
}

/// Clears, flushes and kills what the options name.
fn forget(options: &PfctlOptions, scope: Scope<'_>, filters: &mut Filters) -> anyhow::Result<()> {
    let is_quiet = options.output.quiet;
    if options.clear_rules {
        filters.clear_rules(is_quiet)?;
    }
    if let Some(what) = &options.flush {
        filters.flush(what, scope, is_quiet)?;
    }
    if !options.kill.is_empty() {
        filters.kill(&options.kill, scope, is_quiet)?;
    }
    if !options.kill_sources.is_empty() {
        filters.kill_sources(&options.kill_sources, is_quiet)?;
    }
    Ok(())
}

/// Does `-T` with the table of `-t`; gives its exit status.
fn change_table(
    options: &PfctlOptions,
    command: &str,
    environment: &Environment,
    filters: &mut Filters,
) -> anyhow::Result<u8> {
    let (Some(name), anchor) = (&options.table, options.anchor.as_deref().unwrap_or_default()) else {
        return Ok(0);
    };
    let command = live::table_command(command)?;
    let mut words = options.addresses.clone();
    if command != "expire" {
        let plain = |text: &[u8]| -> Result<Vec<String>, String> {
            let addresses = addresses_of(text, environment).map_err(|why| why.replace('\n', ": "))?;
            Ok(addresses.iter().map(table_address).collect())
        };
        let given = plain(words.join(" ").as_bytes()).map_err(|why| why.replacen("line 1: ", "", 1));
        words = given.map_err(|why| anyhow!("{why}; the table is as it was"))?;
        if let Some(file) = &options.file {
            let (name, text) = input::read(file)?;
            words.extend(plain(&text).map_err(|why| anyhow!("{name}: {why}; the table is as it was"))?);
        }
    }
    if command == "test"
        && let Some(word) = words.iter().find(|word| word.contains(['!', '/']))
    {
        bail!("cannot decode {word}: Invalid argument; -T test asks for single addresses");
    }
    filters.table(anchor, name, &options.output.flags(options.parse_only), (command, &words))
}

/// Words of a table's command as one line.
fn address_words(words: &[String]) -> String {
    words.join(" ").split_whitespace().collect::<Vec<_>>().join(" ")
}

impl PfctlVerbosity {
    /// What of this a table's command must know, as letters.
    fn flags(&self, is_dummy: bool) -> String {
        let letter = |is: bool, letter: &str| if is { letter.to_string() } else { String::new() };
        "v".repeat(self.verbose.into()) + &letter(self.quiet, "q") + &letter(is_dummy, "n")
    }

    /// How much is to be shown, as words for a filter.
    fn more(&self) -> String {
        let flag = |is: bool, flag| if is { flag } else { "" };
        let flags = [flag(self.debug, live::DEBUGGING), flag(self.port_names, live::PORT_NAMES)];
        " v".repeat(self.verbose.into()) + &flags.concat()
    }

    fn print(&self, text: &str) -> anyhow::Result<()> {
        if self.verbose > 0 && !self.quiet { print_stdout(text) } else { Ok(()) }
    }

    fn style<'n>(&self, environment: &'n Environment) -> Style<'n> {
        let style = Style::new(&environment.names);
        Style { is_debugging: self.verbose > 1 || self.debug, has_port_names: self.port_names, ..style }
    }
}
