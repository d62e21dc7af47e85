//! `artery adopt`: what of the kernel's forwarding could be taken over, and what can't and why.
mod capture;
mod choice;
mod explain;
mod facts;
mod graph;
mod kept;
mod live;
mod news;
mod report;
mod rights;
mod routes;
mod samples;
mod sessions;
mod share;
mod status;

pub(crate) use capture::{Captured, Frame};
pub(crate) use choice::Choice;
pub(crate) use facts::{Facts, MultiBuffer};
#[cfg(test)]
pub(crate) use status::VrfStatus;
#[cfg(test)]
pub(crate) use status::example;
pub(crate) use status::{Connections, PortStatus, Status, Tables};

use crate::ipfix::IpfixSettings;
use crate::metrics::MetricsAddress;
use crate::options::ControlOptions;
use crate::options::values::seconds;
use crate::output::{LogFormat, print_stdout};
use crate::psample::PsampleSettings;
use crate::signals::EarlyHangup;
use anyhow::Context as _;
use artery_adopt::Established;
use artery_adopt::blockers::{self, Blocker, BlockerKind, Bridging, Port};
use artery_adopt::fast::{self, Accelerator, Mode};
use artery_adopt::kernel::Family;
use artery_device::Interface;
use clap::Args;
use sessions::{NamedSession, name_sessions};
use share::{Measured, Sample};
use std::path::PathBuf;
use std::time::Duration;

/// The number of the loopback in each network namespace (LOOPBACK_IFINDEX, include/net/flow.h).
pub(crate) const LOOPBACK: u32 = 1;

/// The last lines of its help.
pub(crate) const EXAMPLES: &str = "Examples:
  artery adopt eth0 eth1               forward between these beside the kernel, until SIGINT
  artery adopt eth0 eth1 gre1          packets that leave or arrive by the tunnel gre1, too
  artery adopt eth0 eth1 ppp0 --pppoe ppp0=eth1
  artery adopt eth0 eth1 --metrics 127.0.0.1:9470
  artery adopt --dry-run               all Ethernet interfaces that are up
  artery adopt --dry-run eth0 eth1     these
  artery adopt --dry-run --path tc     what would be if all were adopted by tc
  artery adopt --dry-run --for 10s --json

Packets of IPv4 and IPv6 that the kernel would only forward are forwarded before it sees them, by its own
routes, neighbors and addresses, which are followed as they change. All else goes to the kernel as before:
what is for the machine, what it must answer or ask for, and all that its filters and policies are about. When
the program ends, however that may be, the kernel forwards alone again.

With --dry-run nothing is changed. For each port it says by which path its packets would go, and for each
family whether they would; then, line by line, what keeps the others in the kernel: forwarding switched off,
chains of nftables and iptables, filters and queueing of tc, BPF programs, IPsec policies, bridges and VRFs.
The share of the current traffic is estimated from the kernel's counters. Users other than root see what could
not be read.";

#[derive(Args)]
pub(crate) struct AdoptOptions {
    /// Ports to look at; otherwise all Ethernet interfaces that are up, but the loopback
    #[arg(value_name = "PORT")]
    ports: Vec<String>,
    /// Only look, and change nothing
    #[arg(long)]
    dry_run: bool,
    /// Count packets for this long; 0 for not at all
    #[arg(
        long = "for",
        value_name = "TIME",
        default_value = "2s",
        value_parser = seconds,
        requires = "dry_run"
    )]
    time: Duration,
    /// Print JSON
    #[arg(long, requires = "dry_run")]
    json: bool,
    /// Which packets of connections that the kernel has established go past rules of nftables and iptables
    ///
    /// By default those that rules let through, which is found out for each connection ("rules"; "none" with
    /// --path graph). Alone ("all") it is you who says that these rules need not see them. First packets,
    /// closing ones and all others stay with the kernel, and so does what changes how connections are
    /// tracked.
    /// Where rules let them pass anyway, and with "all", segments of TCP that are out of window pass.
    #[arg(
        long,
        value_enum,
        value_name = "WHICH",
        num_args = 0..=1,
        require_equals = true,
        default_missing_value = "all"
    )]
    established: Option<WhichEstablished>,
    /// Also connections go past rules that began before, which the kernel does not tell the end of
    ///
    /// All its entries are read each second, while there are such connections: one that is gone is
    /// forwarded for up to a second longer. Should that take more than a second, they stay with the kernel.
    #[arg(long)]
    established_existing: bool,
    /// Packets of PPP, which is the only session of PPPoE at PORT, leave and arrive past the kernel; name
    /// both among the ports
    ///
    /// The kernel does not say which session an interface of PPP is, nor what its daemon has set there. You
    /// say that it neither filters packets (pass-filter) nor compresses nor encrypts them (CCP, MPPE), and
    /// that no limit of its daemon goes by what the kernel counts (idle, maxoctets).
    #[arg(long, value_name = "PPP=PORT")]
    pppoe: Vec<NamedSession>,
    /// The path that packets go; otherwise the best for each port
    #[arg(long, value_name = "PATH")]
    path: Option<Path>,
    /// Listen for control connections on this Unix socket; otherwise on $ARTERY_SOCKET, or /run/artery.sock
    /// if that is free
    #[arg(short = 'u', long, value_name = "PATH", conflicts_with = "dry_run")]
    socket: Option<PathBuf>,
    #[command(flatten)]
    control: ControlOptions,
    /// Answer there with metrics for Prometheus: ADDRESS:PORT, or unix:PATH
    #[arg(long, value_name = "WHERE", conflicts_with = "dry_run")]
    metrics: Vec<MetricsAddress>,
    /// Export one of N forwarded packets as IPFIX (RFC 7011) to a collector, port 4739 by default; keys are
    /// sample=N, which has to be given, source=ADDR and domain=N (0)
    #[arg(long, value_name = "ADDR[:PORT],sample=N[,KEY=VALUE]...", conflicts_with = "dry_run")]
    ipfix: Option<IpfixSettings>,
    /// Send one of N forwarded packets to the kernel's PSAMPLE group, where sFlow agents such as hsflowd
    /// read; group=G numbers it (1)
    #[arg(long, value_name = "N[,group=G]", conflicts_with = "dry_run")]
    psample: Option<PsampleSettings>,
    /// In what form messages are written
    #[arg(long, value_enum, value_name = "FORMAT", default_value_t, conflicts_with = "dry_run")]
    pub(crate) log: LogFormat,
    /// Show the last lines of the kernel's verifier where it refuses a program
    #[arg(short, long)]
    pub(crate) verbose: bool,
}

impl AdoptOptions {
    /// A port whose name is a value of `--established`, which was written without its sign.
    fn misplaced_value(&self) -> Option<&str> {
        let is_value = |word: &&String| <WhichEstablished as clap::ValueEnum>::from_str(word, false).is_ok();
        let word = self.ports.iter().find(is_value).filter(|word| Interface::find(word).is_err())?;
        (self.established == Some(WhichEstablished::All)).then_some(word)
    }

    /// What is done with established connections. A graph translates no addresses.
    fn established(&self) -> WhichEstablished {
        let is_graph = self.path == Some(Path::Graph);
        let default = if is_graph { WhichEstablished::None } else { WhichEstablished::Rules };
        self.established.unwrap_or(default)
    }
}

/// Which packets of established connections go past rules.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum WhichEstablished {
    /// None: where rules are, the kernel forwards
    None,
    /// Those that no rule can do anything to but accept them, which is found out for each connection
    Rules,
    /// All: the operator takes responsibility for the rules
    All,
}

impl From<WhichEstablished> for Established {
    fn from(which: WhichEstablished) -> Established {
        match which {
            WhichEstablished::None => Established::InKernel,
            WhichEstablished::Rules => Established::AsRulesAllow,
            WhichEstablished::All => Established::Forwarded,
        }
    }
}

/// The path that packets go.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum Path {
    /// Programs of XDP, run by the drivers: the fastest, for whole frames only
    Xdp,
    /// The same, run by the kernel in the place of the drivers
    XdpGeneric,
    /// Programs of tc: frames may be unfinished, as from this machine's own virtual links
    Tc,
    /// The engine's graph, to which programs of tc give what it is to forward
    Graph,
}

impl Path {
    /// As it is named in options and reports.
    fn name(self) -> &'static str {
        match self {
            Path::Xdp => "xdp",
            Path::XdpGeneric => "xdp-generic",
            Path::Tc => "tc",
            Path::Graph => "graph",
        }
    }
}

impl Path {
    /// What runs the programs. Those of the path "graph" run at tc, and redirect to the graph.
    pub(crate) fn mode(self) -> Mode {
        match self {
            Path::Xdp => Mode::Native,
            Path::XdpGeneric => Mode::Generic,
            Path::Tc | Path::Graph => Mode::Tc,
        }
    }

    pub(crate) fn in_words(self) -> &'static str {
        match self {
            Path::Xdp => "by XDP, in its driver",
            Path::XdpGeneric => "by XDP, in the kernel in its driver's place",
            Path::Tc => "by tc",
            Path::Graph => "by the graph, which a program of tc gives its packets to",
        }
    }
}

impl From<Mode> for Path {
    fn from(mode: Mode) -> Path {
        match mode {
            Mode::Native => Path::Xdp,
            Mode::Generic => Path::XdpGeneric,
            Mode::Tc => Path::Tc,
            Mode::HostPort(_) => Path::Graph,
        }
    }
}

/// All that a dry run finds.
struct Findings {
    ports: Vec<Facts>,
    blockers: Vec<Blocker>,
    notes: Vec<String>,
    measured: Option<Measured>,
    choice: Choice,
    /// How many prefixes stay because of what their routes depend on; notes name them.
    kept_prefixes: usize,
}

/// Checks the machine and reports what it found.
pub(crate) fn command(options: &AdoptOptions) -> anyhow::Result<u8> {
    let early = EarlyHangup::catch()?;
    if let Some(word) = options.misplaced_value() {
        anyhow::bail!("{word}: no such interface; did you mean --established={word}?");
    }
    let mut ports = ports(&options.ports)?;
    name_sessions(&mut ports, &options.pppoe)?;
    anyhow::ensure!(
        options.established() == WhichEstablished::None || options.path != Some(Path::Graph),
        "--established and --path graph: a graph translates no addresses; use --path xdp or tc"
    );
    anyhow::ensure!(
        options.ipfix.as_ref().is_none_or(|ipfix| ipfix.sample.is_some()),
        "--ipfix exports samples of packets here; say of how many packets one, such as sample=1000"
    );
    anyhow::ensure!(
        options.established() != WhichEstablished::None || !options.established_existing,
        "--established-existing: none go past rules; use it without --established=none and --path graph"
    );
    let has_bridge = ports.iter().any(|port| port.bridging == Bridging::Bridge);
    anyhow::ensure!(
        options.path != Some(Path::Graph) || !has_bridge,
        "--path graph: a graph has no bridge's members; use --path xdp or tc"
    );
    anyhow::ensure!(
        options.path != Some(Path::Graph) || ports.iter().all(|port| !port.is_tunnel()),
        "--path graph: a graph puts no headers of tunnels on; use --path xdp or tc"
    );
    anyhow::ensure!(
        ports.iter().any(Port::has_program) || ports.is_empty(),
        "packets that leave by tunnels arrive at other ports; name those, too"
    );
    anyhow::ensure!(
        ports.iter().all(|port| port.index != LOOPBACK),
        "lo: the loopback forwards nothing; name ports that packets come by, which --dry-run shows"
    );
    if !options.dry_run {
        anyhow::ensure!(
            !options.ports.is_empty(),
            "which ports? Name two or more, or see what there is with --dry-run"
        );
        return live::run(facts(&ports)?, options, &early);
    }
    let mut guards = blockers::survey(&ports);
    let established = match options.established() {
        WhichEstablished::None => Default::default(),
        WhichEstablished::Rules => blockers::pass_by_rules(&mut guards).1,
        WhichEstablished::All => blockers::pass_established(&mut guards),
    };
    for (family, path) in [Family::V4, Family::V6].into_iter().zip(established) {
        if path.is_open && path.has_rules {
            guards.extend(blockers::of_vrfs(&ports, Some(family), blockers::UNTRACKED));
        }
    }
    if options.path == Some(Path::Graph) {
        guards.extend(blockers::of_vrfs(&ports, None, blockers::NO_VRFS));
    }
    let measured = measure(options.time)?;
    let routes = routes::find(&ports).context("can't read rules and routes")?;
    guards.extend(routes.blockers);
    let kept_prefixes = routes.excluded.count();
    let mut facts = facts(&ports)?;
    facts.iter_mut().for_each(|facts| facts.vrf = routes.vrfs.get(&facts.port.index).cloned());
    let mut choice = Choice::of(&facts, options.path);
    let has_rules = established.iter().any(|path| path.has_rules);
    let (mut notes, takes_connections) = verify(&ports, &mut choice, has_rules, options)?;
    if !takes_connections {
        guards.retain(|guard| guard.kind != BlockerKind::ConnectionRule);
        guards.iter_mut().for_each(|guard| guard.is_passed = false);
    }
    match choice.best().is_xdp() {
        true => guards.extend(blockers::find_blockers_of_xdp(&ports)),
        false => guards.retain(|guard| !guard.is_met_by_tc(&ports)),
    }
    notes.extend(notes_on_xdp(&facts, choice.best()));
    let sentences = routes.excluded.to_lines().into_iter().map(|line| line + ".");
    notes.extend(
        blockers::notes(&ports, choice.best().is_xdp()).into_iter().chain(routes.notes).chain(sentences),
    );
    let findings = Findings { notes, ports: facts, choice, blockers: guards, measured, kept_prefixes };
    match options.json {
        true => print_stdout(&format!("{:#}\n", report::json(&findings)))?,
        false => print_stdout(&report::text(&findings))?,
    }
    Ok(0)
}

fn facts(ports: &[Port]) -> anyhow::Result<Vec<Facts>> {
    ports.iter().map(|port| Facts::find(port.clone(), ports)).collect()
}

/// Notes for the user on ports that go by XDP.
fn notes_on_xdp(ports: &[Facts], path: Path) -> Vec<String> {
    if path != Path::Xdp {
        return Vec::new();
    }
    let processors = std::thread::available_parallelism().map_or(1, |number| number.get() as u32);
    let notes = |facts: &Facts| [facts.xdp_note(processors), facts.multi_buffer_note()];
    ports.iter().flat_map(notes).flatten().collect()
}

/// Has the kernel's verifier check the programs of each path that could be taken, and attaches none. A path
/// whose program the verifier refuses is ruled out; it is an error if the user asked for that path, or no
/// other is left. Without the right to load programs the result is a note. With `has_rules` the programs are
/// such as look connections up, unless the kernel takes those by no path, which the answer says.
fn verify(
    ports: &[Port],
    choice: &mut Choice,
    has_rules: bool,
    options: &AdoptOptions,
) -> anyhow::Result<(Vec<String>, bool)> {
    let Some(port) = ports.iter().find(|port| port.has_program()) else { return Ok((Vec::new(), true)) };
    let unseen = |error: &dyn std::fmt::Display| {
        (vec![format!("whether the kernel takes the programs could not be seen: {error}")], true)
    };
    let made = Accelerator::new().and_then(|mut accelerator| {
        has_rules.then(|| accelerator.enable_flows()).transpose()?;
        Ok(accelerator)
    });
    let accelerator = match made {
        Ok(accelerator) => accelerator,
        Err(error) => return Ok(unseen(&error)),
    };
    let (mut notes, mut refused) = (Vec::new(), Vec::new());
    while let Some(error) =
        choice.paths.first().and_then(|path| accelerator.verify_program(port.index, path.mode()).err())
    {
        if error.is_for_want_of_rights() {
            return Ok(unseen(&error));
        }
        notes.push(format!("{}: {}", choice.best().in_words(), refusal(&error, options.verbose)));
        refused.push(choice.paths.remove(0));
    }
    if !choice.paths.is_empty() {
        return Ok((notes, true));
    }
    choice.paths = refused;
    anyhow::ensure!(has_rules, "{}", notes.join("\n"));
    let (without, _) = verify(ports, choice, false, options)?;
    Ok((notes.into_iter().chain(without).collect(), false))
}

/// Why the kernel does not take a program, with the last lines of the verifier's log if `is_verbose`.
fn refusal(error: &fast::Error, is_verbose: bool) -> String {
    let lines = error.verifier().iter().filter(|_| is_verbose);
    lines.fold(error.to_string(), |text, line| text + "\n  verifier: " + line)
}

fn ports(names: &[String]) -> anyhow::Result<Vec<Port>> {
    let unread = "can't read which interfaces there are";
    if names.is_empty() {
        return blockers::with_members(&blockers::ethernet_ports().context(unread)?).context(unread);
    }
    let mut ports = Vec::<Port>::new();
    for name in names {
        // Says what there is instead of one that there is not.
        Interface::find(name)?;
        let port = blockers::port(name).with_context(|| format!("{name}: can't read what it is"))?;
        let is_new = |port: &Port| ports.iter().all(|other| other.index != port.index);
        ports.extend(port.filter(is_new));
    }
    blockers::with_members(&ports).context(unread)
}

fn measure(time: Duration) -> anyhow::Result<Option<Measured>> {
    if time.is_zero() {
        return Ok(None);
    }
    let before = Sample::read()?;
    std::thread::sleep(time);
    Ok(Some(Sample::read()?.since(&before)))
}
