//! The command line: commands, options and what `--help` says of them.

use crate::output::{LogFormat, print_stdout};
use crate::{
    adopt, apply, bsd, capture, check, control_socket, devices, doctor, elements, explain, flow, format,
    neighbor, netstat, options, pfctl, release, route, router, run, show, top, trace, watch,
};
use anyhow::Context as _;
use clap::{CommandFactory as _, Parser, Subcommand};
use std::ffi::OsString;
use std::path::{Path, PathBuf};

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
    Run(Box<run::RunOptions>),
    /// Show every mistake of a configuration, and where its parts would run
    #[command(
        override_usage = "artery check [OPTIONS] <FILE | -e TEXT> [VAR=VALUE]...",
        after_long_help = "Examples:
  artery check router.click
  artery check --workers 4 router.click      also says which parts are copied to all workers, and why not
  artery check --device eth0=lo router.click   takes addresses from a device that this machine has"
    )]
    Check(check::CheckOptions),
    /// Lay out configuration files in the standard way
    #[command(after_long_help = "Examples:
  artery fmt router.click            print it
  artery fmt -i conf/*.click         change the files
  artery fmt --check conf/*.click    status 1 if a file would change")]
    Fmt(format::FmtOptions),
    /// Print a configuration with compounds and variables expanded
    #[command(
        override_usage = "artery flatten [OPTIONS] <FILE | -e TEXT> [VAR=VALUE]...",
        after_long_help = "Example:\n  artery flatten router.click LIMIT=10"
    )]
    Flatten(check::DrawOptions),
    /// Draw a configuration
    #[command(
        override_usage = "artery graph [OPTIONS] <FILE | -e TEXT> [VAR=VALUE]...",
        after_long_help = "Example:\n  artery graph router.click | dot -Tsvg > router.svg"
    )]
    Graph(check::GraphOptions),
    /// List elements, or show the manual page of one
    #[command(after_long_help = "Examples:
  artery elements
  artery elements DecIPTTL
  artery elements --markdown docs/elements            write all pages
  artery elements --markdown docs/elements --check    status 1 if they are out of date")]
    Elements(elements::ElementsOptions),
    /// List the interfaces of this machine, and what a router would get of each
    #[command(after_long_help = "Examples:
  artery devices
  artery devices eth0
  artery devices --json

An interface is used by AF_XDP, whose frames its driver puts into the router's memory, or by packet sockets;
the argument METHOD of FromDevice overrides what is said here.")]
    Devices(devices::DevicesOptions),
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
    Handler(control_socket::HandlerOptions),
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
    Netstat(netstat::NetstatOptions),
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
    Trace(trace::TraceOptions),
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
    /// Run artery-fleet, a program of its own beside this one: several machines as one balancer
    #[command(
        disable_help_flag = true,
        after_long_help = "Example:\n  artery fleet status --config /etc/artery/fleet.toml"
    )]
    Fleet {
        /// Arguments passed to artery-fleet
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
            Command::Run(options) => options.report.log,
            Command::Router(options) => options.report.log,
            Command::Up(options) => options.report.log,
            Command::Adopt(options) => options.log,
            _ => LogFormat::Text,
        }
    }

    /// Whether the kernel's verifier is to be shown where it refuses a program.
    pub(crate) fn shows_verifier(&self) -> bool {
        match self {
            Command::Run(options) => options.report.verbose,
            Command::Router(options) => options.report.verbose,
            Command::Up(options) => options.report.verbose,
            Command::Adopt(options) => options.verbose,
            _ => false,
        }
    }
}

/// Reads the command line; wrong ones end the program with status 2.
pub(crate) fn parse(args: Vec<OsString>) -> Cli {
    options::set_command_line(Cli::command);
    let file = args.get(1).and_then(|word| word.to_str()).map(str::to_string);
    Cli::try_parse_from(route::hide_modifiers(args)).unwrap_or_else(|error| {
        let file = file.filter(|word| word.ends_with(".click") || std::path::Path::new(word).is_file());
        match file {
            Some(file) if error.kind() == clap::error::ErrorKind::InvalidSubcommand => {
                let why =
                    format!("'{file}' is not a command; to run a configuration, write: artery run {file}");
                options::exit_with(Cli::command().error(clap::error::ErrorKind::InvalidSubcommand, why))
            }
            _ => options::exit_with(error),
        }
    })
}

/// The help of a command, if `name` is one.
fn help_of(name: &str) -> Option<String> {
    let mut cli = Cli::command();
    cli.build();
    cli.find_subcommand_mut(name).map(|command| command.render_long_help().to_string())
}

/// Shows the help of the program, that of a command, or the page of an element.
pub(crate) fn help(topic: Option<&str>) -> anyhow::Result<u8> {
    let help = match topic {
        None => Cli::command().render_long_help().to_string(),
        Some(topic) => match help_of(topic) {
            Some(help) => help,
            None => return elements::show(topic, false),
        },
    };
    print_stdout(&help).map(|()| 0)
}

/// Prints completions for a shell.
pub(crate) fn completions(shell: clap_complete::Shell) -> anyhow::Result<u8> {
    let mut script = Vec::new();
    clap_complete::generate(shell, &mut Cli::command(), "artery", &mut script);
    print_stdout(&String::from_utf8_lossy(&script)).map(|()| 0)
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
}
