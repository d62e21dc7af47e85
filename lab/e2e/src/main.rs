//! The program `artery-bench`: the benchmarks and the experiments.
#![forbid(unsafe_code)]

use artery_bench::results::{Delivery, Manner};
use artery_bench::{
    adopt, apply, child, engine_bench, fib, flows, forward, fpm, latency, refuse, soak, wire,
};
use artery_papers::{self as papers, Paper, Papers, click1999, freebsd2009, misses2008, veb2021};
use artery_rig::{console, vm};
use clap::{Parser, Subcommand};
use std::process::ExitCode;

/// Measures the router beside the kernel and other routers.
#[derive(Parser)]
#[command(name = "artery-bench", version, max_term_width = 100, after_help = EXAMPLES)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

const EXAMPLES: &str = "Examples:
  artery-bench adopt --quick                   as root: forwarding beside the kernel, and the kernel beside it
  artery-bench adopt --policy --quick          as root: connections past a firewall, beside the kernel with it
  artery-bench apply --quick                   as root: a stream of packets while a router is changed
  FASTCLICK=… artery-bench engine              the engine beside FastClick and DPDK's testpmd
  artery-bench fib --quick                     lookups a second of every routing table, with a synthetic feed
  artery-bench fib --table rib.gz --json       the same with care on a feed of your own, as JSON lines
  artery-bench flows --quick                   the cost of a flow table; which flows move when servers change
  artery-bench forward --quick                 what forwarding costs from port to port, in memory
  artery-bench fpm routes.fpm --record         1,000,000 routes as zebra sends them; without --record, play it
  artery-bench latency --quick                 as root: latency of Artery, the kernel and testpmd
  artery-bench papers --quick                  five published experiments in one report, in 15 minutes
  artery-bench papers art2016 --quick          the experiment of June 2016, in two minutes
  artery-bench papers veb2021 --quick          as root: the experiment of 2021, veb(4) and the bridge before
  artery-bench papers freebsd2009 --quick      the experiment of 2009: routes and neighbors, one table or two
  artery-bench papers click1999 --out results  the experiment of May 1999, with figures and charts in files
  artery-bench papers misses2008 --quick       the experiment of July 2008: cache misses, in a minute
  artery-bench soak --quick                    as root: good and hostile traffic, reloads, flaps; ten minutes
  artery-bench wire --quick                    as root: frames, TCP and pings: Artery, the kernel and testpmd

Exit status: 0 everything worked, 1 something did not, 2 wrong usage.";

#[derive(Subcommand)]
enum Command {
    /// Forward in the kernel's hooks: by our tables, by the kernel's, and the kernel alone; frames
    /// a second and TCP
    Adopt(adopt::Options),
    /// What becomes of a stream through a router while `artery apply` changes a route, a rule, a member or a
    /// port; as root
    Apply(apply::Options),
    /// What a hop costs, and our rate beside rivals on the same configuration text
    Engine(Manner),
    /// How fast routing tables look up and change, and what memory they take: ours, and others' beside them
    Fib(fib::Options),
    /// Carry out one part of veb2021 in a host of its own
    #[command(name = veb2021::SUBCOMMAND, hide = true)]
    Veb2021Part {
        /// The part that runs in this host
        #[command(subcommand)]
        part: veb2021::Part,
    },
    /// Carry out one run of freebsd2009 and print its figures
    #[command(name = freebsd2009::SUBCOMMAND, hide = true)]
    Freebsd2009Run {
        /// What is run, as JSON
        #[arg(value_parser = child::read::<freebsd2009::Case>)]
        case: freebsd2009::Case,
    },
    /// Send by two threads in turn, for who traces what they write
    #[command(name = freebsd2009::WRITES, hide = true)]
    Freebsd2009Writes {
        /// The engine that looks up next hops
        engine: freebsd2009::EngineName,
        /// By the FIB, which takes long to lay out
        #[arg(long)]
        whole: bool,
    },
    /// Redo five published experiments: one of them, or all and write one report
    Papers(Papers),
    /// Earlier names of the experiments
    #[command(flatten)]
    Seeds(Seeds),
    /// What a table of flows costs, as a cache and for its own sake, by number of flows; which
    /// flows move with servers
    Flows(flows::Options),
    /// What forwarding costs from port to port, in memory: full tables, one
    /// destination, changes, neighbors, workers
    Forward(forward::Options),
    /// How long frames take through us, the kernel and testpmd, at parts of what each forwards
    /// without loss; as root
    Latency(latency::Options),
    /// Record a stream of routes as FRR's zebra sends them by FPM, or play it and say
    /// when the last one forwards
    Fpm(fpm::Options),
    /// Run one router for forward, by orders on standard input
    #[command(name = forward::SUBCOMMAND, hide = true)]
    ForwardRun {
        /// What is run, as JSON
        #[arg(value_parser = child::read::<forward::Case>)]
        case: forward::Case,
    },
    /// Run every product for an hour under good and hostile traffic, reloads and links that come
    /// and go, as root
    Soak(soak::Options),
    /// Boot stock kernels in virtual machines, as root: run a command there
    #[command(subcommand)]
    Vm(vm::command::Vm),
    /// Forward between two hosts, beside the kernel and DPDK's testpmd: frames a second, TCP and UDP, latency
    Wire(wire::Options),
    /// Carry out one part of wire in a host of its own
    #[command(name = wire::SUBCOMMAND, hide = true)]
    WirePart {
        /// The part that runs in this host
        #[arg(value_parser = child::read::<wire::Part>)]
        part: wire::Part,
    },
    /// Carry out one run of click1999 and print its figures
    #[command(name = click1999::SUBCOMMAND, hide = true)]
    Click1999Run {
        /// What is run, as JSON
        #[arg(value_parser = child::read::<click1999::Job>)]
        job: click1999::Job,
    },
    /// Run a program whose calls of bpf(2) the kernel refuses
    #[command(name = refuse::SUBCOMMAND, hide = true)]
    RefuseBpf(refuse::Refused),
    /// Carry out one run of misses2008 and print its figures
    #[command(name = misses2008::SUBCOMMAND, hide = true)]
    Misses2008Run {
        /// What is run, as JSON
        #[arg(value_parser = child::read::<misses2008::Case>)]
        case: misses2008::Case,
    },
}

/// What experiments were called before; the names still work.
#[derive(Subcommand)]
enum Seeds {
    #[command(hide = true)]
    Seed0(papers::art2016::Options),
    #[command(hide = true)]
    Seed1(Delivery),
    #[command(hide = true)]
    Seed2(freebsd2009::Options),
    #[command(hide = true)]
    Seed3(Delivery),
    #[command(hide = true)]
    Seed4(Delivery),
    #[command(name = "seeds", hide = true)]
    All(papers::Options),
}

impl Seeds {
    fn run(self) -> anyhow::Result<()> {
        match self {
            Seeds::Seed0(options) => Paper::Art2016(options).run(),
            Seeds::Seed1(delivery) => Paper::Veb2021(delivery).run(),
            Seeds::Seed2(options) => Paper::Freebsd2009(options).run(),
            Seeds::Seed3(delivery) => Paper::Click1999(delivery).run(),
            Seeds::Seed4(delivery) => Paper::Misses2008(delivery).run(),
            Seeds::All(options) => papers::run(&options),
        }
    }
}

/// The status that a shell reports of a filter whose reader went away.
const KILLED_BY_SIGPIPE: u8 = 128 + 13;

fn main() -> ExitCode {
    match run(Cli::parse().command) {
        Ok(status) => status,
        Err(error) if console::is_unread(&error) => ExitCode::from(KILLED_BY_SIGPIPE),
        Err(error) => {
            eprintln!("artery-bench: {error:#}");
            ExitCode::FAILURE
        }
    }
}

fn run(command: Command) -> anyhow::Result<ExitCode> {
    let done = match command {
        Command::Vm(vm) => return vm::command::run(&vm),
        Command::Adopt(options) => adopt::run(&options),
        Command::Apply(options) => apply::run(&options),
        Command::RefuseBpf(refused) => refuse::run(&refused),
        Command::Engine(manner) => engine_bench::run(manner),
        Command::Fib(options) => fib::run(&options),
        Command::Flows(options) => flows::run(&options),
        Command::Forward(options) => forward::run(&options),
        Command::Fpm(options) => fpm::run(&options),
        Command::Latency(options) => latency::run(&options),
        Command::ForwardRun { case } => forward::serve(&case),
        Command::Veb2021Part { part } => veb2021::run_part(&part),
        Command::Freebsd2009Run { case } => freebsd2009::run_one(&case),
        Command::Freebsd2009Writes { engine, whole } => freebsd2009::run_marked(engine, whole),
        Command::Misses2008Run { case } => misses2008::run_one(&case),
        Command::Papers(papers) => papers.run(),
        Command::Seeds(seeds) => seeds.run(),
        Command::Soak(options) => soak::run(&options),
        Command::Wire(options) => wire::run(&options),
        Command::WirePart { part } => wire::run_part(&part),
        Command::Click1999Run { job } => click1999::run_one(&job),
    };
    done.map(|()| ExitCode::SUCCESS)
}
