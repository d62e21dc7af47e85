//! `artery router`: the configuration of an IP router from a few options, printed or run.
mod bfd;
mod check_plan;
pub(crate) mod configuration;
pub(crate) mod folder;
mod host;
pub(crate) mod live;
pub(crate) mod machine;
pub(crate) mod options;
pub(crate) mod pf;
mod read;
mod service;
mod text;
mod vlans;

use crate::bsd::rules::PFLOG;
use crate::options::{running_job, usage_error};
use crate::output::{Output, print_stdout};
use crate::run::run;
use crate::run_options::RunJob;
use crate::signals::EarlySignals;
use artery_l3::router::ReversePath;
use artery_lpm::load::AnyPrefix;
use artery_wire::EtherAddr;
use options::RouterOptions;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

/// Prints the configuration, or runs it.
pub(crate) fn command(options: RouterOptions) -> anyhow::Result<u8> {
    let voice = Output::from(options.report.log);
    let early = EarlySignals::watch(voice)?;
    let candidate = match live::candidate_of_call(options) {
        Ok(candidate) => candidate,
        Err(mistakes) => return Ok(nothing_started(&mistakes, voice)),
    };
    let (options, voice) = (candidate.options.clone(), Output::from(candidate.options.report.log));
    if options.report.verbose {
        artery_device::show_verifier();
    }
    let mut mistakes = Vec::new();
    let plan = live::judge(&candidate, &mut mistakes);
    if candidate.origin.file.is_none() {
        refuse(&mistakes, voice);
    }
    let prepared = if options.print {
        live::print_only(candidate, plan, mistakes)
    } else {
        live::prepare_start(candidate, plan, mistakes)
    };
    let prepared = match prepared {
        Ok(prepared) => prepared,
        Err(mistakes) => return Ok(nothing_started(&mistakes, voice)),
    };
    if options.print {
        return print_stdout(&prepared.text).map(|()| 0);
    }
    let warnings = prepared.warnings.iter().cloned().chain(options.report.unit_hint());
    warnings.for_each(|warning| voice.print_warning(&warning));
    let text = prepared.text.clone();
    let live = Arc::new(live::Live::new(prepared));
    // The ports are others' to have when this is dropped.
    run(job(&options, text, live.clone()), early)
}

/// Reports all mistakes; gives the exit status.
fn nothing_started(mistakes: &[String], voice: Output) -> u8 {
    voice.complain_of(&voice.format_mistakes(mistakes));
    voice.print_error(&format!("{}; nothing was started", counted(mistakes.len())));
    1
}

/// Ends the program, as it ends for other wrong usage, if the options themselves are wrong.
fn refuse(mistakes: &[String], voice: Output) {
    match mistakes {
        [] => {}
        _ if voice == Output::Json => {
            voice.complain_of(&voice.format_mistakes(mistakes));
            usage_error(&counted(mistakes.len()));
        }
        [one] => usage_error(one),
        several => usage_error(&format!("{}\n{}", counted(several.len()), listed(several).trim_end())),
    }
}

fn counted(mistakes: usize) -> String {
    format!("{mistakes} mistake{}", if mistakes == 1 { "" } else { "s" })
}

fn listed(mistakes: &[String]) -> String {
    mistakes.iter().map(|mistake| format!("error: {mistake}\n")).collect()
}

/// The arguments that the program was called with, as a shell takes them.
pub(crate) fn called() -> String {
    let is_plain = |c: char| c.is_ascii_alphanumeric() || "-_=.,:/@%+".contains(c);
    let quoted = |word: String| match !word.is_empty() && word.chars().all(is_plain) {
        true => word,
        false => format!("'{}'", word.replace('\'', "'\\''")),
    };
    let words = std::env::args().skip(1).filter(|word| word != "--print").map(quoted);
    words.fold("artery".to_string(), |line, word| line + " " + &word)
}

fn job(options: &RouterOptions, text: String, live: Arc<live::Live>) -> RunJob {
    let pflog = options.pflog.clone().unwrap_or_else(|| PFLOG.into());
    let job = running_job(text, live, &options.running, &options.report, pflog);
    RunJob { mode: "router", exports: options.exports.clone(), ..job }
}

/// A router as the options describe it.
#[derive(Debug, Default)]
struct Plan {
    ports: Vec<Port>,
    routes: Vec<Route>,
    tables: Vec<Table>,
    fpm: Option<Fpm>,
    neighbors: Vec<Neighbor>,
    bfd: Vec<bfd::Watched>,
    services: Vec<service::Service>,
    sharing: service::Sharing,
    /// The packet filter around it, if there is one.
    filter: Option<pf::Filter>,
    /// The name of the host's interface, if it is to have one for all ports.
    host: Option<String>,
    /// Whether the host gets the router's routes.
    has_host_routes: bool,
    /// The text of the filter's rules as they were judged.
    rules: Option<String>,
}

/// The default MTU of a port, in bytes.
const USUAL_MTU: u32 = 1500;
/// The longest packet that every link of IPv6 must carry (RFC 8200 section 5), in bytes.
const LEAST_IPV6_MTU: u32 = 1280;

#[derive(Debug, Default)]
struct Port {
    /// The option, for messages.
    option: String,
    name: String,
    addresses: Vec<(IpAddr, u8)>,
    /// The addresses of services in its prefixes, for which it answers ARP and Neighbor Discovery.
    virtual_addresses: Vec<IpAddr>,
    /// The longest packet that the interface carries, where that is not 1500 bytes.
    mtu: Option<u32>,
    settings: PortSettings,
    /// Whose tags the router itself puts in and takes off, if it is a VLAN.
    vlan: Option<Vlan>,
    /// The name of the port's own interface on the host, if it has one.
    host_interface: Option<String>,
    description: Option<String>,
    /// The switch that its frames go through, if it is not an interface of the machine.
    attachment: Option<Attachment>,
}

/// The port of a switch in the same configuration that a port of the router is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Attachment {
    /// The switch and the number of its port.
    pub(crate) switch: String,
    pub(crate) number: usize,
    /// The router's Ethernet address there, perhaps as `em0:eth`.
    pub(crate) link: String,
}

/// The settings of a port besides its addresses.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct PortSettings {
    /// The longest packet that leaves by it, in bytes.
    mtu: Option<u16>,
    /// The reverse path check of arriving packets (RFC 3704).
    rpf: ReversePath,
    /// Whether gateways are believed to be on its link whatever its addresses are.
    onlink: bool,
}

/// A VLAN of an interface.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Vlan {
    pub(crate) parent: String,
    pub(crate) id: u16,
}

impl Fpm {
    /// What the user should know before the router starts.
    fn warning(&self) -> Option<String> {
        let ip = self.listen.ip();
        (!ip.is_loopback()).then(|| {
            format!(
                "--fpm {}: whoever reaches {ip} can set the router's routes; FPM has no passwords",
                self.listen
            )
        })
    }
}

impl Plan {
    /// The names of the host's interfaces to the router.
    fn host_interfaces(&self) -> impl Iterator<Item = &str> {
        let of_ports = self.ports.iter().filter_map(|port| port.host_interface.as_deref());
        self.host.as_deref().into_iter().chain(of_ports)
    }

    /// Whether each port has an interface of its own on the host.
    fn has_host_ports(&self) -> bool {
        self.ports.iter().any(|port| port.host_interface.is_some())
    }
}

impl Port {
    /// The interface that its frames arrive at.
    fn device(&self) -> &str {
        self.vlan.as_ref().map_or(&self.name, |vlan| &vlan.parent)
    }

    /// The longest packet that leaves by it, in bytes, where that is not 1500.
    fn effective_mtu(&self) -> Option<u32> {
        // The interface may carry less since the router has started.
        let carried = self.mtu.unwrap_or(USUAL_MTU);
        self.settings.mtu.map(|mtu| u32::from(mtu).min(carried)).or(self.mtu)
    }

    fn has_ipv6(&self) -> bool {
        self.addresses.iter().any(|(address, _)| address.is_ipv6())
    }
}

#[derive(Debug)]
struct Route {
    option: String,
    prefix: AnyPrefix,
    targets: Vec<RouteTarget>,
}

/// Where a route leads, and with what weight.
#[derive(Clone, Debug, PartialEq, Eq)]
enum RouteTarget {
    /// A router on the link of a port, which the address tells where none is named.
    Gateway { address: IpAddr, port: Option<String>, weight: u32 },
    /// Hosts on the link of a port.
    Port { name: String, weight: u32 },
    /// One of `blackhole`, `unreachable`, `prohibited`.
    End(&'static str),
}

/// Where a routing daemon sends routes.
#[derive(Debug)]
struct Fpm {
    listen: SocketAddr,
    /// How long stale routes stay after a connection began.
    hold: Duration,
}

/// A file of routes.
#[derive(Debug)]
struct Table {
    option: String,
    file: String,
    gateways: Vec<IpAddr>,
}

#[derive(Debug)]
struct Neighbor {
    option: String,
    port: String,
    address: IpAddr,
    link: EtherAddr,
}
