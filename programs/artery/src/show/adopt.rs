//! `artery show adopt`: which packets and connections go past the kernel, and why the others do not.
use super::table::Table;
use crate::adopt::{Connections, PortStatus, Status};
use crate::control_socket::Client;
use crate::options::Reach;
use crate::output::print_stdout;
use anyhow::Context as _;
use artery_adopt::fast::Reason;
use clap::Args;
use serde_json::Value;
use std::collections::BTreeMap;

#[derive(Args)]
pub(super) struct AdoptedOptions {
    #[command(flatten)]
    reach: Reach,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

/// Shows what a running `artery adopt` has counted since its start.
pub(super) fn show(options: &AdoptedOptions) -> anyhow::Result<u8> {
    let answer = Client::connect(&options.reach)?.read("state").context("this is no 'artery adopt'")?;
    let document: Value = serde_json::from_str(&answer)?;
    let status: Status = serde_json::from_str(&answer)
        .context("what it tells of itself makes no sense: is it of another version?")?;
    let shown = if options.json { format!("{document:#}\n") } else { text(&status) };
    print_stdout(&shown).map(|()| 0)
}

fn text(status: &Status) -> String {
    let of_connections = status.connections.as_ref().map_or_else(String::new, connections);
    let parts = [ports(status), tables(status), reasons(status), of_connections, guards(status)];
    let parts: Vec<String> = parts.into_iter().filter(|part| !part.is_empty()).collect();
    parts.join("\n")
}

/// Packets by where they went: past the kernel, past rules, to the kernel.
fn ports(status: &Status) -> String {
    let mut table = Table::headed("PORT | IPV4 | IPV6 | FAST: | PAST RULES: | KERNEL:");
    for port in &status.ports {
        let kernel = if port.vlan_on.is_none() { port.to_kernel().to_string() } else { String::new() };
        table.row([
            port.name.clone(),
            port.ipv4.clone(),
            port.ipv6.clone(),
            port.fast().to_string(),
            port.established.to_string(),
            kernel,
        ]);
    }
    table.drain_text()
}

/// The tables of ports that belong to VRFs.
fn tables(status: &Status) -> String {
    let mut table = Table::headed("PORT | VRF | ROUTED BY TABLE:");
    let in_vrf = |port: &PortStatus| port.vrf.clone().map(|vrf| (port.name.clone(), vrf));
    let ports: Vec<_> = status.ports.iter().filter_map(in_vrf).collect();
    for (port, vrf) in &ports {
        table.row([port.clone(), vrf.name.clone(), vrf.table.to_string()]);
    }
    if ports.is_empty() { String::new() } else { table.drain_text() }
}

/// Frames that were left to the kernel, the most frequent reason first.
fn reasons(status: &Status) -> String {
    let mut counts = BTreeMap::<&str, u64>::new();
    for (reason, count) in status.ports.iter().flat_map(|port: &PortStatus| &port.kernel) {
        *counts.entry(reason).or_default() += count;
    }
    let mut counts: Vec<_> = counts.into_iter().filter(|(_, count)| *count > 0).collect();
    counts.sort_by_key(|(_, count)| std::cmp::Reverse(*count));
    let mut table = Table::headed("LEFT TO THE KERNEL | FRAMES: | WHY");
    for (name, count) in &counts {
        let reason = Reason::ALL.into_iter().find(|reason| reason.name() == *name);
        table.row([(*name).to_string(), count.to_string(), reason.map_or("", Reason::meaning).to_string()]);
    }
    if counts.is_empty() { String::new() } else { table.drain_text() }
}

/// Connections that go past rules, and those that don't, by what keeps them.
pub(crate) fn connections(now: &Connections) -> String {
    let mut table = Table::headed("CONNECTIONS | NOW: | WHY");
    table.row(["past rules".to_string(), now.forwarded.to_string(), String::new()]);
    for (by, count) in now.kept.iter().filter(|(_, count)| **count > 0) {
        table.more([format!("kept: {by}"), count.to_string(), Connections::meaning(by).to_string()]);
    }
    table.drain_text()
}

fn guards(status: &Status) -> String {
    let lines = status.guards.iter().map(|guard| format!("  {}\n", guard.text));
    match status.guards.is_empty() {
        true => String::new(),
        false => std::iter::once("Kept with the kernel:\n".to_string()).chain(lines).collect(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::adopt::{VrfStatus, example};

    #[test]
    fn packets_are_split_by_where_they_went_and_reasons_have_words() {
        let mut status = example();
        (status.ports[0].established, status.ports[0].received) = (400, 1000);
        let expected = "\
PORT    IPV4  IPV6    FAST  PAST RULES  KERNEL
eth0    fast  kernel   600         400       3
eth0.7  fast  kernel     0           0       -
eth1    fast  kernel   500           0       3

LEFT TO THE KERNEL  FRAMES  WHY
other-protocol           9  neither IPv4 nor IPv6

Kept with the kernel:
  nftables: table ip6 f: IPv6 stays with the kernel (shown by: nft)
";
        assert_eq!(text(&status), expected);
        status.ports[0].vrf = Some(VrfStatus { name: "red".to_string(), table: 100 });
        let routed = "\nPORT  VRF  ROUTED BY TABLE\neth0  red              100\n";
        assert!(text(&status).contains(routed), "{}", text(&status));
    }
}
