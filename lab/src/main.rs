//! The program `artery-bench`: the benchmarks and the experiments.
#![forbid(unsafe_code)]

use artery_lab::results::{Delivery, Manner};
use artery_lab::{
    adopt, engine_bench, fib, flows, forward, fpm, latency, refuse, seed0, seed1, seed2, seed3, seed4, seeds,
    soak, vm, voice, wire,
};
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
  FASTCLICK=… artery-bench engine              the engine beside FastClick and DPDK's testpmd
  artery-bench fib --quick                     lookups a second of every routing table, on a synthetic full table
  artery-bench fib --table rib.gz --json       the same with care on a feed of your own, as JSON lines
  artery-bench flows --quick                   what a table of flows costs, and which flows move when servers change
  artery-bench forward --quick                 what forwarding costs from port to port, in memory
  artery-bench fpm routes.fpm --record         a stream of 1,000,000 routes as zebra sends them; without --record, play it
  artery-bench latency --quick                 as root: how long frames take through us, the kernel and testpmd
  artery-bench seed0 --quick                   the experiment of June 2016, in two minutes
  artery-bench seed1 --quick                   as root: the experiment of 2021, a switch and the bridge before it
  artery-bench seed2 --quick                   the experiment of 2009: routes and neighbors in one table or two
  artery-bench seed3 --quick                   the experiment of May 1999, in a minute
  artery-bench seed3 --out results             the same with care, and figures and charts in files
  artery-bench seed4 --quick                   the experiment of July 2008: cache misses, in a minute
  artery-bench seeds --quick                   all five, and one report of them, in a quarter of an hour
  artery-bench soak --quick                    as root: ten minutes of good and hostile traffic, reloads and flaps
  artery-bench wire --quick                    as root: frames, TCP and pings through us, the kernel and testpmd

Exit status: 0 everything worked, 1 something did not, 2 wrong usage.";

#[derive(Subcommand)]
enum Command {
    /// Forward in the kernel's hooks: by our tables, by the kernel's, and the kernel alone; frames
    /// a second and TCP
    Adopt(adopt::Options),
    /// What a hop costs, and our rate beside rivals on the same configuration text
    Engine(Manner),
    /// How fast routing tables look up and change, and what memory they take: ours, and others' beside them
    Fib(fib::Options),
    /// Look up and forward as in June 2016: ART against the radix tree of BSD, and each claim of then judged
    Seed0(seed0::Options),
    /// Switch as in May 2021: veb, with pf and without, and the old bridge, by iperf3 between two hosts
    Seed1(Delivery),
    /// Carry out one part of seed1 in a host of its own
    #[command(name = seed1::SUBCOMMAND, hide = true)]
    Seed1Part {
        /// Which part
        #[command(subcommand)]
        part: seed1::Part,
    },
    /// Send as in 2009, by one table for routes and neighbors, by two, with flows and without
    /// locks: each claim judged
    Seed2(seed2::Options),
    /// Carry out one run of seed2 and print its figures
    #[command(name = seed2::SUBCOMMAND, hide = true)]
    Seed2Run(seed2::Case),
    /// Send by two threads in turn, for who traces what they write
    #[command(name = seed2::WRITES, hide = true)]
    Seed2Writes {
        /// Who looks up
        engine: seed2::EngineName,
        /// By the FIB, which takes long to lay out
        #[arg(long)]
        whole: bool,
    },
    /// Carry out seed0 to seed4 and write one report: every claim judged, and what is missing
    Seeds(seeds::Options),
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
    ForwardRun(forward::Case),
    /// Forward as in May 1999, 24,000 packets a second then: the same configuration, other engines beside it
    Seed3(Delivery),
    /// Count cache misses as in July 2008: what a packet costs up to each level of monitor mode
    Seed4(Delivery),
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
        /// Which part
        #[command(subcommand)]
        part: wire::Part,
    },
    /// Carry out one run of seed3 and print its figures
    #[command(name = seed3::SUBCOMMAND, hide = true)]
    Seed3Run {
        /// What to run
        case: seed3::Case,
        /// How many packets to forward
        #[arg(long)]
        packets: u64,
        /// How many packets to forward at once
        #[arg(long)]
        burst: usize,
    },
    /// Run a program whose calls of bpf(2) the kernel refuses
    #[command(name = refuse::SUBCOMMAND, hide = true)]
    RefuseBpf(refuse::Refused),
    /// Carry out one run of seed4 and print its figures
    #[command(name = seed4::SUBCOMMAND, hide = true)]
    Seed4Run(seed4::Case),
}

/// The status that a shell reports of a filter whose reader went away.
const KILLED_BY_SIGPIPE: u8 = 128 + 13;

fn main() -> ExitCode {
    match run(Cli::parse().command) {
        Ok(status) => status,
        Err(error) if voice::is_unread(&error) => ExitCode::from(KILLED_BY_SIGPIPE),
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
        Command::RefuseBpf(refused) => refuse::run(&refused),
        Command::Engine(manner) => engine_bench::run(manner),
        Command::Fib(options) => fib::run(&options),
        Command::Flows(options) => flows::run(&options),
        Command::Forward(options) => forward::run(&options),
        Command::Fpm(options) => fpm::run(&options),
        Command::Latency(options) => latency::run(&options),
        Command::ForwardRun(case) => forward::serve(&case),
        Command::Seed0(options) => seed0::run(&options),
        Command::Seed1(delivery) => seed1::run(&delivery),
        Command::Seed1Part { part } => seed1::run_part(&part),
        Command::Seed2(options) => seed2::run(&options),
        Command::Seed2Run(case) => seed2::run_one(&case),
        Command::Seed2Writes { engine, whole } => seed2::run_marked(engine, whole),
        Command::Seed3(delivery) => seed3::run(&delivery),
        Command::Seed4(delivery) => seed4::run(&delivery),
        Command::Seed4Run(case) => seed4::run_one(&case),
        Command::Seeds(options) => seeds::run(&options),
        Command::Soak(options) => soak::run(&options),
        Command::Wire(options) => wire::run(&options),
        Command::WirePart { part } => wire::run_part(&part),
        Command::Seed3Run { case, packets, burst } => seed3::run_one(case, packets, burst),
    };
    done.map(|()| ExitCode::SUCCESS)
}
