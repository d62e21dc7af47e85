//! Three balancers behind a router that spreads flows over them by ECMP, with real servers and clients:
//! members change, a balancer is killed, and it comes back. A table says what became of connections, by
//! method and with and without `artery-fleet`. It needs root and iproute2; `docs/fleet.md` describes it.

mod balancers;
mod clients;
mod network;
mod servers;

use std::path::PathBuf;

use anyhow::{Context, Result, ensure};
use artery_rig::Rig;
use clap::Parser;

use balancers::{Balancers, Programs};
use clients::{Clients, ShortConnections};
use network::Network;

/// Shows three balancers whose members change, and one of which dies and comes back.
#[derive(Parser)]
struct Options {
    /// The router program to run
    #[arg(long, default_value = "target/release/artery")]
    artery: PathBuf,
    /// The artery-fleet program to run
    #[arg(long, default_value = "fleet/target/release/artery-fleet")]
    fleet: PathBuf,
    /// Connections that are open all the time
    #[arg(long, default_value_t = 1000)]
    connections: usize,
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

/// What was counted in a run.
struct Outcome {
    /// Exceptions of all balancers after the change of members.
    exceptions: usize,
    after_change: usize,
    after_kill: usize,
    after_return: usize,
    short: u64,
    failed_short: u64,
}

fn main() -> Result<()> {
    let options = Options::parse();
    let find = |path: &PathBuf| path.canonicalize().with_context(|| format!("{} is missing", path.display()));
    let programs = Programs { artery: find(&options.artery)?, fleet: find(&options.fleet)? };
    let mut outcomes = Vec::new();
    for subject in &SUBJECTS {
        let outcome = run(subject, &programs, options.connections)?;
        outcomes.push((subject, outcome));
    }
    print_table(&outcomes, options.connections);
    for (subject, outcome) in &outcomes {
        let resets = outcome.after_change + outcome.after_kill + outcome.after_return;
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
    let _servers = network.servers.iter().zip(1..).map(|(host, number)| servers::start(host, number));
    let _servers = _servers.collect::<artery_rig::Result<Vec<_>>>()?;
    let mut balancers = Balancers::start(&network, programs, subject.method, subject.is_mirrored)?;
    network.spread_over(&[1, 2, 3])?;
    let mut clients = Clients::open(&network.client, connections)?;
    let short = ShortConnections::start(&network.client)?;
    balancers.await_peers()?;

    println!("web1 is drained, and web5 added");
    balancers.write_all("add_member", &format!("web5 {}", network::server(5)))?;
    balancers.write_all("weight", "web1 0")?;
    let exceptions = balancers.await_exceptions()?;
    let after_change = clients.harmed();
    println!("balancer 2 is killed; the router sends its flows to the others");
    balancers.kill(2);
    network.spread_over(&[1, 3])?;
    let after_kill = clients.harmed();
    println!("balancer 2 comes back");
    balancers.start_again(2)?;
    balancers.await_peers()?;
    balancers.await_exceptions()?;
    network.spread_over(&[1, 2, 3])?;
    let after_return = clients.harmed();
    if subject.is_mirrored {
        println!("b1# artery-fleet status\n{}", balancers.status_text(1)?);
    }
    let (short, failed_short) = short.stop();
    Ok(Outcome { exceptions, after_change, after_kill, after_return, short, failed_short })
}

fn print_table(outcomes: &[(&Subject, Outcome)], connections: usize) {
    println!("\n{connections} connections from {} addresses; resets after:", network::CLIENTS);
    println!(
        "{:<18}{:>12}{:>18}{:>10}{:>12}{:>24}",
        "METHOD", "EXCEPTIONS", "members change", "kill -9", "its return", "short ones, of them bad"
    );
    for (subject, outcome) in outcomes {
        let short = format!("{}, {}", outcome.short, outcome.failed_short);
        println!(
            "{:<18}{:>12}{:>18}{:>10}{:>12}{:>24}",
            subject.name,
            outcome.exceptions,
            outcome.after_change,
            outcome.after_kill,
            outcome.after_return,
            short
        );
    }
}
