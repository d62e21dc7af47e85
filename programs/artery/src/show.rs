//! `artery show`: the state of a running router, as tables or as JSON.
mod adopt;
mod bfd;
mod fpm;
mod host_ports;
mod routes;
mod security;
mod services;
pub(crate) mod table;
mod tables;

pub(crate) use adopt::connections;
pub(crate) use routes::{RoutesOptions, show as show_routes};
pub(crate) use tables::lasting;

use crate::apply::running_configuration;
use crate::control_socket::Client;
use crate::ip_router::{IpRouter, RouterReach, elements};
use crate::options::Reach;
use crate::output::print_stdout;
use clap::{Args, Subcommand};
use serde_json::{Value, json};

/// The last lines of its help.
pub(crate) const EXAMPLES: &str = "Examples:
  artery show routes                     all but those that every router has
  artery show routes 10/8 --dev eth2     those within 10.0.0.0/8 that lead out of eth2
  artery show routes -6 --json
  artery show neighbors --dev eth1
  artery show bfd                        sessions with the gateways of --bfd
  artery show services                   services, their members, and who takes new connections
  artery show drops                      why packets ended, the most frequent reason first
  artery show adopt                      what a running 'artery adopt' forwards, and what not and why

JSON has a 'schema_version'; as long as it is the same, keys stay what they are, and others may come. Without
-u and -p the router is the one at $ARTERY_SOCKET, or else at /run/artery.sock.";

#[derive(Args)]
pub(crate) struct ShowOptions {
    #[command(subcommand)]
    what: What,
}

#[derive(Subcommand)]
enum What {
    /// Where packets go, by prefix
    #[command(visible_alias = "route", after_long_help = "Example:\n  artery show routes 10/8 --dev eth2")]
    Routes(routes::RoutesOptions),
    /// Who is on the links of the ports, and how it is known
    #[command(visible_aliases = ["neighbor", "arp"], after_long_help = "Example:\n  artery show neighbors \
        --dev eth1")]
    Neighbors(NeighborsOptions),
    /// Groups of next hops, what leads there, and how they share packets
    #[command(after_long_help = "Example:\n  artery show nexthops --json")]
    Nexthops(NexthopsOptions),
    /// Routes from a routing daemon by FPM: who sends them, how many are in which state,
    /// and why some are refused
    #[command(after_long_help = "Example:\n  artery show fpm --json")]
    Fpm(Plain),
    /// The host's interfaces that stand for ports, and the host's routes that the router forwards by
    #[command(after_long_help = "Example:\n  artery show host-ports --json")]
    HostPorts(Plain),
    /// Ports, with their addresses
    #[command(after_long_help = "Example:\n  artery show ports")]
    Ports(Plain),
    /// Sessions of BFD with gateways: whether the paths to them are up
    #[command(after_long_help = "Example:\n  artery show bfd --json")]
    Bfd(bfd::BfdOptions),
    /// Services, their members, and digests to compare with those of other routers
    #[command(visible_alias = "service", after_long_help = "Example:\n  artery show services --json")]
    Services(ElementsOptions),
    /// Why packets ended, and in which elements
    #[command(after_long_help = "Example:\n  artery show drops")]
    Drops(Plain),
    /// The file that makes the running router: the configuration that 'artery router' runs
    #[command(after_long_help = "Example:\n  artery show config > /etc/artery/lan.toml")]
    Config(ConfigOptions),
    /// What the router's processes may do: capabilities, system calls, files
    #[command(after_long_help = "Example:\n  artery show security")]
    Security(ElementsOptions),
    /// Which packets and connections 'artery adopt' forwards past the kernel, and why it leaves others to it
    #[command(after_long_help = "Example:\n  artery show adopt --json")]
    Adopt(adopt::AdoptedOptions),
    /// The elements of the configuration
    #[command(after_long_help = "Example:\n  artery show elements")]
    Elements(ElementsOptions),
}

#[derive(Args)]
struct Plain {
    #[command(flatten)]
    router: RouterReach,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

#[derive(Args)]
struct ConfigOptions {
    #[command(flatten)]
    reach: Reach,
}

/// Any router has elements, whether or not one of them is an IPRouter.
#[derive(Args)]
struct ElementsOptions {
    #[command(flatten)]
    reach: Reach,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

#[derive(Args)]
struct NexthopsOptions {
    #[command(flatten)]
    plain: Plain,
    /// Those of the router's own addresses, of broadcasts, and those that every router has, too
    #[arg(short = 'a', long)]
    all: bool,
}

#[derive(Args)]
struct NeighborsOptions {
    #[command(flatten)]
    plain: Plain,
    /// Those of this port only
    #[arg(long, value_name = "PORT")]
    dev: Option<String>,
    /// IPv4 only
    #[arg(short = '4', conflicts_with = "ipv6")]
    ipv4: bool,
    /// IPv6 only
    #[arg(short = '6')]
    ipv6: bool,
}

pub(crate) fn command(options: &ShowOptions) -> anyhow::Result<u8> {
    match &options.what {
        What::Routes(options) => routes::show(options),
        What::Neighbors(options) => show_neighbors(options),
        What::Nexthops(options) => show_next_hops(options),
        What::Fpm(plain) => show_document(plain, "FPMServer", fpm::lines),
        What::HostPorts(plain) => show_document(plain, "HostPorts", host_ports::lines),
        What::Ports(plain) => show(plain, "ports_json", tables::ports),
        What::Bfd(options) => bfd::show(options),
        What::Services(options) => show_services(options),
        What::Drops(plain) => show(plain, "drops_json", tables::drops),
        What::Config(options) => print_stdout(&running_configuration(&options.reach)?).map(|()| 0),
        What::Adopt(options) => adopt::show(options),
        What::Elements(options) => show_elements(options),
        What::Security(options) => show_security(options),
    }
}

fn show(plain: &Plain, handler: &str, table: fn(&Value) -> String) -> anyhow::Result<u8> {
    let document = IpRouter::find(&plain.router)?.query(handler, "")?;
    either(plain.json, &document, table)
}

/// Shows what an element of a class says of itself.
fn show_document(plain: &Plain, class: &str, table: fn(&Value) -> String) -> anyhow::Result<u8> {
    let document = IpRouter::find_class(&plain.router, class)?.query("status_json", "")?;
    either(plain.json, &document, table)
}

/// Prints a document as it is or as a table.
fn either(as_json: bool, document: &Value, table: fn(&Value) -> String) -> anyhow::Result<u8> {
    let text = if as_json { format!("{document:#}\n") } else { table(document) };
    print_stdout(&text).map(|()| 0)
}

fn show_next_hops(options: &NexthopsOptions) -> anyhow::Result<u8> {
    let mut document = IpRouter::find(&options.plain.router)?.query("nexthops_json", "")?;
    if let Some(groups) = document["groups"].as_array_mut().filter(|_| !options.all) {
        let is_routed = |group: &Value| ROUTED.iter().any(|kind| group["type"] == *kind);
        groups.retain(is_routed);
    }
    either(options.plain.json, &document, tables::next_hops)
}

/// Types of routes that were configured, or that connect a link.
const ROUTED: [&str; 4] = ["unicast", "blackhole", "unreachable", "prohibit"];

fn show_neighbors(options: &NeighborsOptions) -> anyhow::Result<u8> {
    let mut router = IpRouter::find(&options.plain.router)?;
    let mut document = router.query("neighbors_json", options.dev.as_deref().unwrap_or(""))?;
    if let Some(neighbors) = document["neighbors"].as_array_mut().filter(|_| options.ipv4 || options.ipv6) {
        let is_ipv6 = |neighbor: &Value| neighbor["dst"].as_str().is_some_and(|dst| dst.contains(':'));
        neighbors.retain(|neighbor| is_ipv6(neighbor) == options.ipv6);
    }
    either(options.plain.json, &document, tables::neighbors)
}

fn show_security(options: &ElementsOptions) -> anyhow::Result<u8> {
    let answer = Client::connect(&options.reach)?.query("security", "")?;
    either(options.json, &serde_json::from_str(&answer)?, security::lines)
}

fn show_services(options: &ElementsOptions) -> anyhow::Result<u8> {
    let document = services::document(&mut Client::connect(&options.reach)?)?;
    either(options.json, &document, services::table)
}

fn show_elements(options: &ElementsOptions) -> anyhow::Result<u8> {
    let elements = elements(&mut Client::connect(&options.reach)?)?;
    let element = |one: &crate::ip_router::Element| {
        json!({ "name": one.name, "class": one.class,
            "configuration": one.config })
    };
    let elements: Vec<Value> = elements.iter().map(element).collect();
    either(
        options.json,
        &json!({ "schema_version": 1, "version": crate::report::VERSION, "elements": elements }),
        tables::elements,
    )
}
