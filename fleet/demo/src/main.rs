//! Three balancers behind a router that spreads flows over them by ECMP, with real servers and clients:
//! members change, a balancer's router is killed and comes back, and another balancer leaves. A table says
//! what became of connections, by method and with and without `artery-fleet`. It needs root, iproute2, FRR
//! and BIRD; `docs/fleet.md` describes it.

mod balancers;
mod clients;
mod long;
mod network;
mod routing;
mod speed;

use std::path::PathBuf;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use artery_rig::{EchoServer, Rig};
use clap::{Parser, Subcommand};

use balancers::{Balancers, Programs, Setup};
use clients::{Clients, ShortConnections, ShortReport};
use network::{Network, PORT};
use routing::Routing;

/// Shows three balancers whose members change, one of which dies and comes back, and another one leaves.
#[derive(Parser)]
struct Options {
    /// The router program to run
    #[arg(long, global = true, default_value = "target/release/artery")]
    artery: PathBuf,
    /// The artery-fleet program to run
    #[arg(long, global = true, default_value = "fleet/target/release/artery-fleet")]
    fleet: PathBuf,
    /// Connections that are open all the time
    #[arg(long, default_value_t = 1000)]
    connections: usize,
    #[command(subcommand)]
    command: Option<Command>,
}

#[derive(Subcommand)]
enum Command {
    /// Measure what the goals of docs/fleet.md name, and print goals and figures
    Speed(speed::Options),
    /// Be a server of this number, in this namespace
    #[command(hide = true)]
    Serve { number: u8 },
}

/// How the balancers of a run choose members, and whether they know one another's exceptions.
struct Subject {
    name: &'static str,
    method: &'static str,
    is_mirrored: bool,
}

const SUBJECTS: [Subject; 4] = [
    Subject { name: "xor", method: "xor", is_mirrored: false },
    Subject { name: "xor, mirrored", method: "xor", is_mirrored: true },
    Subject { name: "maglev", method: "maglev", is_mirrored: false },
    Subject { name: "maglev, mirrored", method: "maglev", is_mirrored: true },
];

impl Subject {
    fn setup(&self) -> Setup {
        Setup {
            method: self.method,
            is_mirrored: self.is_mirrored,
            is_checked: false,
            members: (1..=4).map(|member| (member, 1)).collect(),
        }
    }
}

/// What was counted in a run.
struct Outcome {
    /// Exceptions of all balancers after the change of members.
    exceptions: usize,
    after_change: usize,
    after_kill: usize,
    after_return: usize,
    after_leaving: usize,
    short: u64,
    failed_short: u64,
}

fn main() -> Result<()> {
    let options = Options::parse();
    if let Some(Command::Serve { number }) = options.command {
        return Ok(EchoServer::run(PORT, number)?);
    }
    let find = |path: &PathBuf| path.canonicalize().with_context(|| format!("{} is missing", path.display()));
    let programs = Programs { artery: find(&options.artery)?, fleet: find(&options.fleet)? };
    if let Some(Command::Speed(options)) = &options.command {
        return speed::measure(options, &programs);
    }
    let mut outcomes = Vec::new();
    for subject in &SUBJECTS {
        let outcome = run(subject, &programs, options.connections)?;
        outcomes.push((subject, outcome));
    }
    print_table(&outcomes, options.connections);
    for (subject, outcome) in &outcomes {
        let resets = outcome.after_change + outcome.after_kill + outcome.after_return + outcome.after_leaving;
        let (name, failed) = (subject.name, outcome.failed_short);
        ensure!(outcome.exceptions > 0, "{name}: the change of members made no exceptions");
        if subject.is_mirrored {
            ensure!(resets == 0, "{name}: {resets} connections were reset");
            ensure!(failed == 0, "{name}: {failed} short connections failed");
        } else {
            ensure!(outcome.after_kill > 0, "{name}: no connection went by the machine that was killed");
        }
    }
    Ok(())
}

fn run(subject: &Subject, programs: &Programs, connections: usize) -> Result<Outcome> {
    println!("\n== {}", subject.name);
    let rig = Rig::new("fleet-demo")?;
    let network = Network::create(&rig)?;
    let servers = network.servers.iter().zip(1..).map(|(host, number)| EchoServer::start(host, PORT, number));
    let _servers = servers.collect::<artery_rig::Result<Vec<_>>>()?;
    let mut balancers = Balancers::start(&network, programs, subject.setup())?;
    // Without artery-fleet this program changes the route, as no routing protocol could sooner.
    let routing = subject.is_mirrored.then(|| Routing::start(&network)).transpose()?;
    let spread = |what: &str, numbers: &[u8]| -> Result<()> {
        match &routing {
            None => network.spread_over(numbers)?,
            Some(routing) => {
                let took = routing.wait_for_spread(numbers)?;
                println!("{what}: flows go to {numbers:?} after {} ms", took.as_millis());
            }
        }
        Ok(())
    };
    spread("start", &[1, 2, 3])?;
    let mut clients = Clients::open(&network.client, connections)?;
    let short = ShortConnections::start(&network.client, 1, Duration::from_millis(50));
    balancers.wait_for_peers()?;

    println!("web1 is drained, and web5 added");
    balancers.add_member(5)?;
    balancers.drain_member(1)?;
    let exceptions = balancers.wait_for_exceptions()?.iter().sum();
    let after_change = clients.harmed();
    println!("the router of balancer 2 is killed");
    balancers.kill(2);
    spread("kill -9", &[1, 3])?;
    let after_kill = clients.harmed();
    println!("the router of balancer 2 comes back");
    balancers.start_router(2)?;
    spread("its return", &[1, 2, 3])?;
    let after_return = clients.harmed();
    println!("balancer 3 leaves");
    if subject.is_mirrored {
        balancers.leave(3)?;
    }
    spread("leaving", &[1, 2])?;
    let after_leaving = clients.harmed();
    if subject.is_mirrored {
        println!("b1# artery-fleet status\n{}", balancers.status_text(1)?);
    }
    let ShortReport { all: short, failed: failed_short, .. } = short.stop();
    Ok(Outcome { exceptions, after_change, after_kill, after_return, after_leaving, short, failed_short })
}

fn print_table(outcomes: &[(&Subject, Outcome)], connections: usize) {
    println!("\n{connections} connections from {} addresses; resets after:", network::CLIENTS);
    println!(
        "{:<18}{:>12}{:>18}{:>10}{:>12}{:>11}{:>24}",
        "METHOD",
        "EXCEPTIONS",
        "members change",
        "kill -9",
        "its return",
        "3 leaves",
        "short ones, of them bad"
    );
    for (subject, outcome) in outcomes {
        let short = format!("{}, {}", outcome.short, outcome.failed_short);
        println!(
            "{:<18}{:>12}{:>18}{:>10}{:>12}{:>11}{:>24}",
            subject.name,
            outcome.exceptions,
            outcome.after_change,
            outcome.after_kill,
            outcome.after_return,
            outcome.after_leaving,
            short
        );
    }
}
