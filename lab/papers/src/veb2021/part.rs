//! What runs in a process of its own: the old bridge inside a host, and what is measured in memory.

use super::bridge::BRIDGE;
use super::memory::Memory;
use artery_engine::{RouterSettings, Sink};
use artery_lang::args::quote;
use artery_rig::console::print;
use artery_rig::program::checked_with;
use clap::Subcommand;

/// The hidden subcommand that carries out a part.
pub const SUBCOMMAND: &str = "veb2021-part";
/// What the bridge says when it begins.
pub(super) const BEGINS: &str = "begins";

/// A part of the experiment.
#[derive(Subcommand, Clone, Debug)]
pub enum Part {
    /// Be the old bridge(4) between these interfaces, until SIGINT or SIGTERM
    Bridge {
        /// The rules of its packet filter
        #[arg(long, value_name = "FILE")]
        pf: String,
        /// The interfaces that become its ports
        #[arg(required = true)]
        ports: Vec<String>,
    },
    /// Say how many millions of frames of data a second a switch forwards in memory
    Memory(Memory),
}

/// Carries out a part.
pub fn run(part: &Part) -> anyhow::Result<()> {
    match part {
        Part::Bridge { pf, ports } => forward(pf, ports),
        Part::Memory(memory) => Ok(print(&format!("{:.3}", memory.rate()?))?),
    }
}

fn forward(pf: &str, ports: &[String]) -> anyhow::Result<()> {
    let settings = RouterSettings { chatter: Sink::Stderr, ..RouterSettings::default() };
    let router = checked_with(&[&BRIDGE], "bridge", &configuration(pf, ports))?.build(settings)?;
    let running = router.start();
    print(BEGINS)?;
    running.wait().map_err(|worker| anyhow::anyhow!("{worker} panicked"))?;
    Ok(())
}

fn configuration(pf: &str, ports: &[String]) -> String {
    let port = |(n, name): (usize, &String)| {
        format!(
            "FromDevice({name}, PROMISC true, SNIFFER false) -> [{n}] bridge;\n\
             bridge[{n}] -> ToDevice({name});\n"
        )
    };
    format!("bridge :: Bridge(PF {});\n", quote(pf)) + &ports.iter().enumerate().map(port).collect::<String>()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_bridge_is_a_configuration_of_all_its_ports() {
        let text = configuration("pf.conf", &["eth0", "eth1", "eth2"].map(String::from));
        checked_with(&[&BRIDGE], "bridge", &text).unwrap_or_else(|error| panic!("{error}\n{text}"));
        assert_eq!(text.matches("ToDevice").count(), 3);
    }
}
