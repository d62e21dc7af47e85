//! The command line: commands, options and what `--help` says of them.
mod control;
mod run;
mod usage;
pub(crate) mod values;

pub(crate) use control::{ControlOptions, Reach, TcpOptions, default_socket};
pub(crate) use run::RunOptions;
pub(crate) use usage::usage_error;

use crate::ip_router::RouterReach;
use crate::load::Reading;
use crate::output::LogFormat;
use crate::run_options::ConfigInput;
use crate::{
    adopt, apply, bsd, capture, doctor, explain, flow, neighbor, pfctl, release, route, router, show, top,
    watch,
};
use anyhow::Context as _;
use artery_engine::RouterSettings;
use artery_engine::trace::MOST_PACKETS;
use artery_lang::Dialect;
use clap::{ArgAction, Args, CommandFactory as _, Parser, Subcommand, ValueEnum};
use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::time::Duration;
use values::{device, number, seconds, wait};

/// A software router in user space that speaks the Click language.
#[derive(Parser)]
#[command(
    name = "artery",
    version,
    disable_help_subcommand = true,
    max_term_width = 100,
    after_help = EXAMPLES
)]
pub(crate) struct Cli {
    #[command(subcommand)]
    pub(crate) command: Command,
}

const EXAMPLES: &str = "Examples:
  artery run -e 'InfiniteSource(LIMIT 5) -> c :: Counter -> Discard; DriverManager(wait_stop)' -h c.count
  artery check router.click      show every mistake and where the parts would run
  artery help Queue              the manual page of an element

Exit status: 0 success, 1 error, 2 wrong usage.";

#[derive(Subcommand)]
pub(crate) enum Command {
    /// Run a configuration
    #[command(
        override_usage = "artery run [OPTIONS] <FILE | -e TEXT> [VAR=VALUE]...",
        disable_help_flag = true,
        after_long_help = "Examples:
  artery run router.click --workers 2 --stats
  artery run router.click --device eth0=veth1 LIMIT=1000
  artery run -e 'FromDump(in.pcap, STOP true) -> c :: Counter -> Discard' -h c.count
  artery run router.click -u /run/artery.sock -R     then: artery handler -u /run/artery.sock list

The first SIGINT or SIGTERM asks the router to stop, which its DriverManager may delay; the second ends it.
SIGHUP has the file read again: what it says then replaces the running configuration, and no packet is lost.
With a mistake in it the running one stays. A signal that a Script waits for is left to that."
    )]
    Run(Box<RunOptions>),
    /// Show every mistake of a configuration, and where its parts would run
    #[command(
        override_usage = "artery check [OPTIONS] <FILE | -e TEXT> [VAR=VALUE]...",
        after_long_help = "Examples:
  artery check router.click
  artery check --workers 4 router.click      also says which parts are copied to all workers, and why not
  artery check --device eth0=lo router.click   takes addresses from a device that this machine has"
    )]
    Check(CheckOptions),
    /// Lay out configuration files in the standard way
    #[command(after_long_help = "Examples:
  artery fmt router.click            print it
  artery fmt -i conf/*.click         change the files
  artery fmt --check conf/*.click    status 1 if a file would change")]
    Fmt(FmtOptions),
    /// Print a configuration with compounds and variables expanded
    #[command(
        override_usage = "artery flatten [OPTIONS] <FILE | -e TEXT> [VAR=VALUE]...",
        after_long_help = "Example:\n  artery flatten router.click LIMIT=10"
    )]
    Flatten(DrawOptions),
    /// Draw a configuration
    #[command(
        override_usage = "artery graph [OPTIONS] <FILE | -e TEXT> [VAR=VALUE]...",
        after_long_help = "Example:\n  artery graph router.click | dot -Tsvg > router.svg"
    )]
    Graph(GraphOptions),
    /// List elements, or show the manual page of one
    #[command(after_long_help = "Examples:
  artery elements
  artery elements DecIPTTL
  artery elements --markdown docs/elements            write all pages
  artery elements --markdown docs/elements --check    status 1 if they are out of date")]
    Elements(ElementsOptions),
    /// List the interfaces of this machine, and what a router would get of each
    #[command(after_long_help = "Examples:
  artery devices
  artery devices eth0
  artery devices --json

An interface is used by AF_XDP, whose frames its driver puts into the router's memory, or by packet sockets;
the argument METHOD of FromDevice overrides what is said here.")]
    Devices(DevicesOptions),
    /// Forward between ports beside the kernel, by its routes; or say what could be
    #[command(
        override_usage = "artery adopt [--path PATH] PORT PORT...\
            \n       artery adopt --dry-run [--path PATH] [--for TIME] [--json] [PORT]...",
        after_long_help = adopt::EXAMPLES
    )]
    Adopt(adopt::AdoptOptions),
    /// Say whether this machine can do what Artery offers, and what mends it where it can't
    #[command(
        override_usage = "artery doctor [--json] [-v] [COMMAND] [PORT]...",
        after_long_help = doctor::EXAMPLES
    )]
    Doctor(doctor::DoctorOptions),
    /// Remove what a process of Artery that was killed left at ports
    #[command(after_long_help = release::EXAMPLES)]
    Release(release::ReleaseOptions),
    /// Show the manual page of an element, or the help of a command
    #[command(after_long_help = "Examples:\n  artery help DecIPTTL\n  artery help run")]
    Help {
        /// An element class or a command
        topic: Option<String>,
    },
    /// Read or write a handler of a running router
    #[command(after_long_help = "Examples:
  artery handler -u /run/artery.sock c.count
  artery handler -p 7777 s.active false
  artery handler -u /run/artery.sock hotconfig --write \"$(cat new.click)\"")]
    Handler(HandlerOptions),
    /// Show what goes through the ports of a running router, as BSD's netstat does
    #[command(
        disable_help_flag = true,
        override_usage = "artery netstat [-I PORT] [-b] [-h] [-w WAIT [-c COUNT] | WAIT]\
            \n       artery netstat -i [-b] [-h]\n       artery netstat -r [-n] [-f inet|inet6]",
        after_long_help = "Examples:
  artery netstat -I eth0 1           packets in and out, and of all ports, each second
  artery netstat -I eth0 -b -h 1     bytes, with units
  artery netstat -i                  all ports and their counters
  artery netstat -rn                 routes, as on BSD

The first row counts from the opening of the port; each further row says what came since the row before.
Without -u and -p the router is the one at $ARTERY_SOCKET, or else at /run/artery.sock."
    )]
    Netstat(NetstatOptions),
    /// Show the path of the next packets through a running router, and what changed at each hop
    #[command(after_long_help = "Examples:
  artery trace                         the next packet, whichever source it is from
  artery trace 5 --from eth0           the next five that the element 'eth0' sends or, with inputs, receives
  artery trace 100 --timeout 10s --json > ways.json

Each hop is a line: the output that the packet left by and the input it came to, the element and its class,
and what the packet is; below it stands what that element changed. The last line says how the packet ended:
'-> PORT', 'dropped: REASON', or 'still in ELEMENT' where it waits. Copies, fragments and segments follow with
ways of their own. SIGINT shows what there is so far. While packets are followed, all are handled somewhat
slower.")]
    Trace(TraceOptions),
    /// Run an IP router, or print its configuration: ports, addresses, routes and neighbors in one command
    #[command(disable_help_flag = true, after_long_help = router::options::EXAMPLES)]
    Router(Box<router::options::RouterOptions>),
    /// Run a switch or a router from the files that BSD starts one from: hostname.veb0, hostname.em0, mygate,
    /// pf.conf
    #[command(disable_help_flag = true, after_long_help = bsd::up::EXAMPLES)]
    Up(Box<bsd::up::UpOptions>),
    /// Say what becomes of each line of such files, or print the configuration that they make
    #[command(after_long_help = bsd::import::EXAMPLES)]
    Import(bsd::import::ImportOptions),
    /// Show the switches of a running router, or change one, in the words of BSD's ifconfig
    #[command(
        override_usage = "artery ifconfig [OPTIONS] [IF [WORD]...]",
        after_long_help = bsd::ifconfig::EXAMPLES
    )]
    Ifconfig(bsd::ifconfig::IfconfigOptions),
    /// Show, load and change the packet filters of a running router, as BSD's pfctl does, or check
    /// a file of rules
    #[command(after_long_help = pfctl::EXAMPLES)]
    Pfctl(Box<pfctl::PfctlOptions>),
    /// Have a running router become what a file says, without losing a packet
    #[command(after_long_help = apply::APPLY_EXAMPLES)]
    Apply(apply::ApplyOptions),
    /// Confirm what was applied by 'artery apply --confirm', so that it is not undone
    #[command(after_long_help = apply::CONFIRM_EXAMPLES)]
    Confirm(apply::ConfirmOptions),
    /// Show what 'artery apply' would change: the lines of files that go and come
    #[command(after_long_help = apply::DIFF_EXAMPLES)]
    Diff(apply::DiffOptions),
    /// Show routes, neighbors, next hops, ports, drops, elements or the configuration of a running router
    #[command(after_long_help = show::EXAMPLES)]
    Show(show::ShowOptions),
    /// Show, add, delete, replace or look up routes of a running router
    #[command(after_long_help = route::EXAMPLES)]
    Route(route::RouteOptions),
    /// Add, delete or flush neighbors of a running router
    #[command(after_long_help = neighbor::EXAMPLES)]
    Neighbor(neighbor::NeighborOptions),
    /// Show or change the neighbors of IPv4 of a running router, as BSD's arp does
    #[command(
        override_usage = "artery arp [-n] -a [-i PORT] | ADDRESS\n       artery arp -d ADDRESS | -ad\
            \n       artery arp -s ADDRESS ETHER [temp|permanent] [pub]",
        after_long_help = neighbor::bsd::ARP_EXAMPLES
    )]
    Arp(neighbor::bsd::BsdNeighborOptions),
    /// Show or change the neighbors of IPv6 of a running router, as BSD's ndp does
    #[command(
        override_usage = "artery ndp [-n] -a [-i PORT] | ADDRESS\n       artery ndp -d ADDRESS | -c\
            \n       artery ndp -s ADDRESS ETHER [temp|permanent] [pub]",
        after_long_help = neighbor::bsd::NDP_EXAMPLES
    )]
    Ndp(neighbor::bsd::BsdNeighborOptions),
    /// Show, export, import, follow or flush the flows that a running FlowBalancer remembers
    #[command(after_long_help = flow::EXAMPLES)]
    Flow(flow::FlowOptions),
    /// Say what happens in a running router: a line for each event
    #[command(after_long_help = watch::EXAMPLES)]
    Watch(watch::WatchOptions),
    /// Explain what a running router would do with a packet, step by step
    #[command(after_long_help = explain::EXAMPLES)]
    Explain(explain::ExplainOptions),
    /// Show what a running 'artery adopt' forwards past the kernel, again and again
    #[command(after_long_help = top::EXAMPLES)]
    Top(top::TopOptions),
    /// Show or save frames that a running 'artery adopt' forwards past the kernel
    #[command(after_long_help = capture::EXAMPLES)]
    Capture(capture::CaptureOptions),
    /// Print completions for a shell
    #[command(after_long_help = "Example:\n  artery completions bash > /etc/bash_completion.d/artery")]
    Completions {
        /// The shell that will read them
        shell: clap_complete::Shell,
    },
    /// Write the manual pages of all commands
    #[command(
        after_long_help = "Example:\n  artery man /usr/local/share/man/man1     then: man artery-adopt"
    )]
    Man {
        /// The folder that they are written to
        #[arg(value_name = "DIR")]
        folder: PathBuf,
    },
    /// Run the measurements, a program of its own beside this one
    #[command(disable_help_flag = true, after_long_help = "Example:\n  artery bench --help")]
    Bench {
        /// Arguments passed to artery-bench
        #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
        arguments: Vec<OsString>,
    },
    /// Behave as the program click, with its options and messages
    #[command(disable_help_flag = true, after_long_help = "Example:\n  artery click -qo- router.click")]
    Click {
        /// Options and arguments of click
        #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
        arguments: Vec<OsString>,
    },
}

impl Command {
    /// In what form messages are written.
    pub(crate) fn log_format(&self) -> LogFormat {
        match self {
            Command::Run(options) => options.log,
            Command::Router(options) => options.log,
            Command::Up(options) => options.log,
            Command::Adopt(options) => options.log,
            _ => LogFormat::Text,
        }
    }

    /// Whether the kernel's verifier is to be shown where it refuses a program.
    pub(crate) fn shows_verifier(&self) -> bool {
        match self {
            Command::Run(options) => options.verbose,
            Command::Router(options) => options.verbose,
            Command::Up(options) => options.verbose,
            Command::Adopt(options) => options.verbose,
            _ => false,
        }
    }
}

/// Which configuration is meant.
#[derive(Args, Clone)]
pub(crate) struct ReadingOptions {
    /// The configuration (`-` for standard input), and values for its variables
    #[arg(value_name = "FILE|VAR=VALUE")]
    words: Vec<String>,
    /// Take the configuration from this text
    #[arg(short = 'e', long, value_name = "TEXT", allow_hyphen_values = true)]
    expression: Option<String>,
    /// Where libraries are looked for, besides the configuration's folder; otherwise $CLICKPATH
    #[arg(short = 'C', long, value_name = "PATH")]
    clickpath: Option<String>,
}

impl ReadingOptions {
    /// What to read, and how.
    pub(crate) fn reading(&self) -> anyhow::Result<(ConfigInput, Reading)> {
        let mut variables: Vec<(String, String)> = Vec::new();
        let mut input = self.expression.clone().map(ConfigInput::Text);
        for word in &self.words {
            if let Some((name, value)) = variable(word) {
                if variables.iter().any(|(known, _)| known == name) {
                    usage_error(&format!("parameter '{name}' multiply defined"));
                }
                variables.push((name.to_string(), value.to_string()));
            } else if let Some(other) = input.replace(ConfigInput::from_word(word)) {
                let other = if let ConfigInput::Text(_) = other { "-e".to_string() } else { other.name() };
                usage_error(&format!(
                    "router configuration specified twice: {other} and {word}; a variable is written \
                     VAR=VALUE"
                ));
            }
        }
        let input = input
            .unwrap_or_else(|| usage_error("name a configuration: FILE, '-' for standard input, or -e TEXT"));
        Ok((
            input,
            Reading {
                dialect: Dialect::Artery,
                variables,
                clickpath: self.clickpath.clone().or_else(|| std::env::var("CLICKPATH").ok()),
            },
        ))
    }
}

/// `VAR=value` as its parts.
pub(crate) fn variable(word: &str) -> Option<(&str, &str)> {
    let (name, value) = word.split_once('=')?;
    let is_name = !name.is_empty() && name.chars().all(|c| c.is_ascii_alphanumeric() || c == '_');
    is_name.then_some((name, value))
}

/// Sets which devices of this machine the configuration's names mean.
pub(crate) fn map_devices(devices: &[(String, String)], settings: &mut RouterSettings) {
    for (n, (config, machine)) in devices.iter().enumerate() {
        if let Some((_, other)) =
            devices[..n].iter().find(|(known, other)| known == config && other != machine)
        {
            usage_error(&format!("device '{config}' is given two names: {other} and {machine}"));
        }
        settings.names.map_device(config, machine);
    }
}

#[derive(Args)]
pub(crate) struct CheckOptions {
    #[command(flatten)]
    pub(crate) reading: ReadingOptions,
    /// Number of workers to place the parts on
    #[arg(short = 'j', long, value_name = "N", default_value_t = 1, value_parser = number::<1, 256>)]
    pub(crate) workers: u16,
    /// Call this machine's device MACHINE what the configuration calls CONFIG
    #[arg(long, value_name = "CONFIG=MACHINE", value_parser = device)]
    pub(crate) device: Vec<(String, String)>,
    /// Say nothing of the placement
    #[arg(short = 'q', long)]
    pub(crate) quiet: bool,
}

#[derive(Args)]
pub(crate) struct FmtOptions {
    /// Files to lay out; `-` for standard input
    #[arg(required = true)]
    pub(crate) files: Vec<String>,
    /// Change nothing; name the files that would change
    #[arg(long, conflicts_with = "in_place")]
    pub(crate) check: bool,
    /// Rewrite the files in place
    #[arg(short = 'i', long)]
    pub(crate) in_place: bool,
}

#[derive(Args)]
pub(crate) struct DrawOptions {
    #[command(flatten)]
    pub(crate) reading: ReadingOptions,
}

#[derive(Args)]
pub(crate) struct GraphOptions {
    #[command(flatten)]
    pub(crate) reading: ReadingOptions,
    /// The language to draw in
    #[arg(long, value_enum, default_value_t = GraphFormat::Dot)]
    pub(crate) format: GraphFormat,
}

/// Languages that graphs are drawn in.
#[derive(Clone, Copy, ValueEnum)]
pub(crate) enum GraphFormat {
    /// The language of Graphviz
    Dot,
}

#[derive(Args)]
pub(crate) struct ElementsOptions {
    /// Show the manual page of this class
    pub(crate) name: Option<String>,
    /// Write all pages into this folder
    #[arg(long, value_name = "DIR", conflicts_with = "name")]
    pub(crate) markdown: Option<PathBuf>,
    /// With --markdown: write nothing, fail if a page is out of date
    #[arg(long, requires = "markdown")]
    pub(crate) check: bool,
    /// List as JSON
    #[arg(long, conflicts_with = "markdown")]
    pub(crate) json: bool,
}

#[derive(Args)]
pub(crate) struct DevicesOptions {
    /// Show these interfaces only
    #[arg(value_name = "NAME")]
    pub(crate) names: Vec<String>,
    /// List as JSON
    #[arg(long)]
    pub(crate) json: bool,
}

#[derive(Args)]
pub(crate) struct NetstatOptions {
    #[command(flatten)]
    pub(crate) reach: Reach,
    /// The port to show
    #[arg(short = 'I', value_name = "PORT")]
    pub(crate) interface: Option<String>,
    /// List all ports
    #[arg(short = 'i')]
    pub(crate) list: bool,
    /// Routes instead of ports
    #[arg(
        short = 'r',
        conflicts_with_all = ["interface", "list", "bytes", "human", "interval", "count", "wait"]
    )]
    pub(crate) routes: bool,
    /// Routes of this family only: inet or inet6
    #[arg(short = 'f', value_name = "FAMILY", requires = "routes", value_parser = ["inet", "inet6"])]
    pub(crate) family: Option<String>,
    /// Bytes instead of packets
    #[arg(short = 'b')]
    pub(crate) bytes: bool,
    /// Numbers with units
    #[arg(short = 'h')]
    pub(crate) human: bool,
    /// Accepted: numbers are never given names
    #[arg(short = 'n')]
    numeric: bool,
    /// Seconds from row to row
    #[arg(short = 'w', value_name = "WAIT", value_parser = wait)]
    interval: Option<Duration>,
    /// Rows, and then the end
    #[arg(short = 'c', value_name = "COUNT", value_parser = clap::value_parser!(u64).range(1..))]
    pub(crate) count: Option<u64>,
    /// The same as -w WAIT
    #[arg(value_name = "WAIT", value_parser = wait, conflicts_with = "interval")]
    wait: Option<Duration>,
    /// Print help
    #[arg(long, action = ArgAction::Help)]
    help: Option<bool>,
}

impl NetstatOptions {
    /// The IPRouter whose routes are meant.
    pub(crate) fn router(&self) -> RouterReach {
        RouterReach::of(self.reach.clone())
    }

    /// How long from row to row; none for a list.
    pub(crate) fn wait(&self) -> Option<Duration> {
        self.interval.or(self.wait)
    }
}

#[derive(Args)]
pub(crate) struct TraceOptions {
    /// How many packets, at most 1000
    #[arg(value_name = "N", default_value_t = 1, value_parser = number::<1, { MOST_PACKETS as u16 }>)]
    pub(crate) count: u16,
    #[command(flatten)]
    pub(crate) reach: Reach,
    /// The element where packets begin; otherwise all without inputs
    #[arg(long, value_name = "ELEMENT")]
    pub(crate) from: Option<String>,
    /// Print JSON
    #[arg(long)]
    pub(crate) json: bool,
    /// Wait no longer, such as 5 (seconds) or 200ms; then what there is is shown
    #[arg(long, value_name = "TIME", value_parser = seconds)]
    pub(crate) timeout: Option<Duration>,
}

#[derive(Args)]
pub(crate) struct HandlerOptions {
    #[command(flatten)]
    pub(crate) reach: Reach,
    /// ELEMENT.HANDLER, or a handler of the router
    pub(crate) handler: String,
    /// Value to write; without one the handler is read
    #[arg(conflicts_with = "write")]
    pub(crate) value: Option<String>,
    /// Value to write, which may be empty
    #[arg(long, value_name = "VALUE", num_args = 0..=1, default_missing_value = "")]
    pub(crate) write: Option<String>,
}

/// Reads the command line; wrong ones end the program with status 2.
pub(crate) fn parse(args: Vec<OsString>) -> Cli {
    let file = args.get(1).and_then(|word| word.to_str()).map(str::to_string);
    Cli::try_parse_from(route::hide_modifiers(args)).unwrap_or_else(|error| {
        let file = file.filter(|word| word.ends_with(".click") || std::path::Path::new(word).is_file());
        match file {
            Some(file) if error.kind() == clap::error::ErrorKind::InvalidSubcommand => {
                let why =
                    format!("'{file}' is not a command; to run a configuration, write: artery run {file}");
                usage::exit_with(Cli::command().error(clap::error::ErrorKind::InvalidSubcommand, why))
            }
            _ => usage::exit_with(error),
        }
    })
}

/// The arguments of `artery router`, which this program was called as.
pub(crate) fn router_matches() -> clap::ArgMatches {
    let matches = Cli::command().get_matches();
    matches.subcommand_matches("router").cloned().unwrap_or_default()
}

/// The help of a command, if `name` is one.
pub(crate) fn help_of(name: &str) -> Option<String> {
    let mut cli = Cli::command();
    cli.build();
    cli.find_subcommand_mut(name).map(|command| command.render_long_help().to_string())
}

/// The help of the program.
pub(crate) fn help() -> String {
    Cli::command().render_long_help().to_string()
}

/// Prints completions for a shell.
pub(crate) fn completions(shell: clap_complete::Shell) -> anyhow::Result<u8> {
    let mut script = Vec::new();
    clap_complete::generate(shell, &mut Cli::command(), "artery", &mut script);
    crate::output::print_stdout(&String::from_utf8_lossy(&script)).map(|()| 0)
}

/// Writes manual pages, one for the program and one for each command.
pub(crate) fn manual(folder: &Path) -> anyhow::Result<u8> {
    let failed = || format!("can't write manual pages to {}", folder.display());
    std::fs::create_dir_all(folder).with_context(failed)?;
    clap_mangen::generate_to(Cli::command(), folder).with_context(failed)?;
    Ok(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_command_has_a_manual_page() {
        let folder = tempfile::tempdir().unwrap();
        assert_eq!(manual(folder.path()).unwrap(), 0);
        for command in Cli::command().get_subcommands() {
            let page = folder.path().join(format!("artery-{}.1", command.get_name()));
            let text = std::fs::read_to_string(&page).unwrap();
            assert!(text.contains(".SH SYNOPSIS") && text.contains("Example"), "{}", page.display());
        }
        assert!(folder.path().join("artery.1").is_file());
        assert!(manual("/dev/null/no".as_ref()).is_err());
    }

    #[test]
    fn every_shell_has_completions_of_all_commands() {
        use clap::ValueEnum as _;
        for shell in clap_complete::Shell::value_variants() {
            let mut script = Vec::new();
            clap_complete::generate(*shell, &mut Cli::command(), "artery", &mut script);
            let script = String::from_utf8(script).unwrap();
            for command in Cli::command().get_subcommands() {
                assert!(script.contains(command.get_name()), "{shell} {}", command.get_name());
            }
        }
    }

    #[test]
    fn the_command_line_is_consistent() {
        Cli::command().debug_assert();
    }

    #[test]
    fn every_command_shows_an_example() {
        for command in Cli::command().get_subcommands() {
            let help = help_of(command.get_name()).unwrap();
            assert!(help.contains("Example"), "{}", command.get_name());
        }
    }

    #[test]
    fn variables_have_names_and_files_with_equals_signs_are_files() {
        assert_eq!(variable("A=b=c"), Some(("A", "b=c")));
        assert_eq!(variable("dir/a=b"), None);
        assert_eq!(variable("=b"), None);
    }
}
