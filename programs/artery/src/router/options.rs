//! The options of `artery router`.
use crate::export::ExportSettings;
use crate::options::values::{address_with_port, file_size, seconds};
use crate::options::{ReportOptions, RunningOptions};
use clap::{ArgAction, Args};
use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

/// The last lines of its help.
pub(crate) const EXAMPLES: &str = "Examples:
  artery router --port eth1=10.0.1.1/24,2001:db8:1::1/64 --port eth2=10.0.2.1/24 --route 0.0.0.0/0=10.0.2.254
  artery router --port eth1=10.0.1.1/24 --port eth2=10.0.2.1/24 --workers 2 \\
      --route default=10.0.2.7@3,10.0.2.8
  artery router --port eth1=10.0.1.1/24 --port eth2=10.0.2.1/24 \\
      --route default=10.0.2.7,10.0.2.8 --bfd 10.0.2.7=50ms --bfd 10.0.2.8=50ms
  artery router --port eth1=10.0.1.1/24 --port eth2=10.0.2.1/24 --table routes.txt.gz=10.0.2.7,10.0.2.8
  artery router --port eth1=10.0.1.1/24 --port eth2=10.0.2.1/24 --nat \\
      --service 192.0.2.1:80/tcp=web1=10.0.2.11,web2=10.0.2.12
  artery router --port eth1=10.0.1.1/24 --port eth2=10.0.2.1/24 --fpm            routes from FRR's zebra
  artery router --port eth1=10.0.1.1/24 --port eth2=10.0.2.1/24 --host-ports     OSPF, BGP, BFD by FRR or BIRD
  artery router --port eth1=10.0.1.1/24 --port eth2=10.0.2.1/24 --route default=10.0.2.7 --pf pf.conf
  artery router --port eth1=10.0.1.1/24 --port eth2=10.0.2.1/24 --print > router.click     to go on from there
  artery router /etc/artery/lan.toml         a file with the options as keys

A FILE has the long options as keys (TOML): those that can be given several times have lists of texts, as in
port = [\"eth1=10.0.1.1/24\", \"eth2=10.0.2.1/24\"]; those without a value are true or false. 'artery show
config' prints the file that makes the running router, and 'artery apply FILE' has it become what the file
says without losing a packet.

The router takes its ports from the host, which sees nothing of what arrives there, and gives it an interface
instead, artery0, that bears the router's addresses: so sshd and other programs of the host are reached by
them. The ports keep no address of their own on the host. Meanwhile 'artery show', 'route', 'neighbor',
'watch' and 'explain' look into the router and change it. SIGHUP has FILE and the files of --table and --pf
read again; with a mistake the router stays as it is.

The mtu of a port is that of its interface otherwise; with rpf=loose packets from where no route leads are
dropped, with rpf=strict those from where no route leads by this port, too (RFC 3704); with onlink gateways by
it need not be in its networks; host-if is the name of the port's interface on the host, with --host-ports.

A way is a gateway, perhaps with the port to reach it by as in fe80::1%eth2 and with its weight among several
as in 10.0.2.7@3; or a port, whose link has the destinations themselves; or, alone, blackhole, unreachable or
prohibited.";

#[derive(Args, Clone)]
pub(crate) struct RouterOptions {
    /// A file with these options as keys (TOML), in the place of the options; beside it only --print,
    /// --verbose, --log, --sandbox, --allow-path and --socket may stand
    #[arg(value_name = "FILE")]
    pub(super) file: Option<PathBuf>,
    /// A port: an interface of the machine, or a VLAN of one as eth1.10, and the router's addresses on it;
    /// then perhaps ',mtu=BYTES', ',rpf=loose|strict', ',onlink' and ',host-if=NAME'
    #[arg(long, value_name = "NAME=ADDR/LEN[,ADDR/LEN]...", required_unless_present = "file")]
    pub(super) port: Vec<String>,
    /// A route: where packets for a prefix go
    #[arg(long, value_name = "PREFIX=WAY[,WAY]...")]
    pub(super) route: Vec<String>,
    /// Routes from a file, as text or an MRT dump; to the gateways those of which it does not
    /// say where they lead
    #[arg(long, value_name = "FILE[=GATEWAY,...]")]
    pub(super) table: Vec<String>,
    /// Listen for FRR's zebra, which sends routes by its module dplane_fpm_nl; at 127.0.0.1:2620
    /// if no address is given
    #[arg(
        long,
        value_name = "ADDR[:PORT]",
        num_args = 0..=1,
        default_missing_value = "127.0.0.1:2620",
        value_parser = address_with_port::<2620>
    )]
    pub(super) fpm: Option<SocketAddr>,
    /// How long routes of an FPM connection that has ended stay after the next one began, if it
    /// does not send them again
    #[arg(long, value_name = "TIME", default_value = "60", value_parser = seconds, requires = "fpm")]
    pub(super) fpm_hold: Duration,
    /// A neighbor that need not be asked for its Ethernet address
    #[arg(long, value_name = "PORT=ADDR=ETHER")]
    pub(super) neighbor: Vec<String>,
    /// A gateway whose path is watched by BFD: how often packets are exchanged, 50ms at least and 300ms if
    /// nothing is said, and after how many missing ones the path is down, 3 if nothing is said
    #[arg(long, value_name = "GATEWAY[%PORT][=INTERVAL[*MULTIPLIER]]")]
    pub(super) bfd: Vec<String>,
    /// A service whose connections servers share, which have its address too; with --nat they need not
    #[arg(long, value_name = "ADDR:PORT[/tcp|/udp]=NAME=ADDR[,NAME=ADDR]...")]
    pub(super) service: Vec<String>,
    /// How the server of a new connection is chosen: maglev, resilient, hash, xor,
    /// least-loaded, per-packet or flowlet
    #[arg(long, value_name = "METHOD")]
    pub(super) method: Option<String>,
    /// A number of the hash by which servers are chosen; routers with the same one choose alike. Clients who
    /// know it can choose their server: write it into a file that only root reads
    #[arg(long, value_name = "NUMBER")]
    pub(super) seed: Option<u64>,
    /// What servers are asked: tcp, ping, or http with PATH and perhaps the status, then 'every TIME', 'fall
    /// N', 'rise N' if you like; of one service alone with its ADDR:PORT[/tcp|/udp]= in front
    #[arg(long, value_name = "[SERVICE=]CHECK")]
    pub(super) check: Vec<String>,
    /// Give packets the server's address in the place of the service's, and answers the service's again
    #[arg(long)]
    pub(super) nat: bool,
    /// Filter and translate packets by the rules of this file, a pf.conf
    #[arg(long, value_name = "FILE")]
    pub(super) pf: Option<PathBuf>,
    /// Add the packets of rules with 'log' to this file, which tcpdump reads;
    /// otherwise to /var/log/pflog, if there are such rules
    #[arg(long, value_name = "FILE", requires = "pf")]
    pub(super) pflog: Option<PathBuf>,
    /// Rename that file to FILE.old, and start a new one, before it gets longer than SIZE; 0 for no limit
    #[arg(long, value_name = "SIZE", default_value = "1G", value_parser = file_size, requires = "pf")]
    pub(super) pflog_max: String,
    /// Start though rules never apply, as their interface is not a port; each of them is warned of
    #[arg(long, requires = "pf")]
    pub(super) lenient: bool,
    /// The host's interface to the router
    #[arg(long, value_name = "NAME", default_value = "artery0")]
    pub(super) host: String,
    /// Give the host an interface for each port in the place of artery0, called PREFIX and the port's
    /// name, hp-eth1 if nothing is said: FRR's and BIRD's OSPF, BGP and BFD run on them, and the router
    /// forwards by the routes that they put into the host's main table
    #[arg(
        long,
        value_name = "PREFIX",
        num_args = 0..=1,
        default_missing_value = "hp-",
        conflicts_with_all = ["host", "no_host"]
    )]
    pub(super) host_ports: Option<String>,
    /// Leave the host out: the router answers pings, and nothing else is at its addresses
    #[arg(long, conflicts_with = "host")]
    pub(super) no_host: bool,
    /// Do not give the host the router's routes; it reaches the networks of the ports only
    #[arg(long, conflicts_with = "no_host")]
    pub(super) no_host_routes: bool,
    /// Print the configuration, and do not run it
    #[arg(long)]
    pub(super) print: bool,
    #[command(flatten)]
    pub(super) running: RunningOptions,
    #[command(flatten)]
    pub(super) exports: ExportSettings,
    #[command(flatten)]
    pub(crate) report: ReportOptions,
    /// Print help
    #[arg(long, action = ArgAction::HelpLong)]
    help: Option<bool>,
}

impl RouterOptions {
    /// The host's interface, if it is to have one for all ports.
    pub(super) fn host_name(&self) -> Option<String> {
        (!self.no_host && self.host_ports.is_none()).then(|| self.host.clone())
    }
}

/// What an option says on both sides of its sign of equality.
pub(super) fn split<'a>(option: &str, text: &'a str, wants: &str) -> Result<(&'a str, &'a str), String> {
    let parts = text.split_once('=').filter(|(name, value)| !name.is_empty() && !value.is_empty());
    parts.ok_or_else(|| format!("{option} {text}: write {option} {wants}"))
}
