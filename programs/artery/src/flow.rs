//! `artery flow`: flows that a running router's FlowBalancer remembers, shown, taken out,
//! taken in, followed, flushed.
mod balancer;
mod chunks;
mod flush;
mod follow;
mod import;
mod json;
mod lines;
mod output;
mod parts;
mod written;

#[cfg(any(test, feature = "fuzz"))]
pub(crate) use import::survive;

use crate::options::Reach;
use balancer::Balancer;
use clap::{Args, Subcommand};
use std::net::IpAddr;
use std::path::PathBuf;

/// The last lines of its help.
pub(crate) const EXAMPLES: &str = "Examples:
  artery flow show --member web1 --limit 20
  artery flow export > flows.json                     a line of JSON for each flow
  artery flow export --binary | artery flow -u /run/other.sock import
  artery flow follow                                  a line of JSON for each event, until SIGINT
  artery flow follow --exceptions                     flows whose member is not what METHOD computes now
  artery flow flush --member web1                     their next packets choose members again

A flow has its member by name and its idle time as seconds until now, so that another machine understands
both. docs/flow.md describes the forms. Without -u and -p the router is the one at $ARTERY_SOCKET, or else at
/run/artery.sock.";

#[derive(Args)]
pub(crate) struct FlowOptions {
    #[command(flatten)]
    reach: FlowReach,
    #[command(subcommand)]
    action: Action,
}

/// Which router, and which FlowBalancer in it.
#[derive(Args)]
struct FlowReach {
    #[command(flatten)]
    reach: Reach,
    /// The FlowBalancer, where there are several
    #[arg(short = 'b', long, value_name = "NAME", global = true)]
    balancer: Option<String>,
}

#[derive(Subcommand)]
enum Action {
    /// List flows
    #[command(after_long_help = "Example:\n  artery flow show --client 198.51.100.7")]
    Show(ShowOptions),
    /// Write all flows as lines of JSON, or in binary form
    #[command(after_long_help = "Example:\n  artery flow export --binary flows.bin")]
    Export(ExportOptions),
    /// Take over the flows of an export, in either form: all that make sense, or none if one makes none
    #[command(after_long_help = "Example:\n  artery flow import flows.bin")]
    Import {
        /// The export; standard input if not given
        #[arg(value_name = "FILE")]
        file: Option<PathBuf>,
    },
    /// Print a line of JSON for each event: flows that come, are proven, change, move and end
    #[command(after_long_help = "Examples:
  artery flow follow | head
  artery flow follow --since 0:1876543219876543        go on after this event of worker 0
  artery flow follow --exceptions                      flows whose member is not what METHOD computes now")]
    Follow(FollowOptions),
    /// Forget flows, all or those of a member
    #[command(after_long_help = "Examples:\n  artery flow flush all\n  artery flow flush --member web1")]
    Flush(FlushOptions),
}

#[derive(Args)]
struct ShowOptions {
    /// Those of this member
    #[arg(long, value_name = "NAME")]
    member: Option<String>,
    /// Those from this address
    #[arg(long, value_name = "ADDRESS", value_parser = crate::options::values::address)]
    client: Option<IpAddr>,
    /// No more than N
    #[arg(long, value_name = "N")]
    limit: Option<u64>,
    /// Print lines of JSON
    #[arg(long)]
    json: bool,
}

#[derive(Args)]
struct ExportOptions {
    /// The binary form: a third as long, and read faster
    #[arg(long)]
    binary: bool,
    /// Only exceptions: flows kept by a member other than the one METHOD (maglev, hash or xor) computes now
    #[arg(long)]
    exceptions: bool,
    /// Where to write; standard output if not given
    #[arg(value_name = "FILE")]
    file: Option<PathBuf>,
}

#[derive(Args)]
struct FollowOptions {
    /// Begin with event SEQ; where there are several workers, W:SEQ,W:SEQ; otherwise with the
    /// next one to happen
    #[arg(long, value_name = "SEQ")]
    since: Option<String>,
    /// Only exceptions: flows kept by a member other than the one METHOD (maglev, hash or xor) computes now
    #[arg(long)]
    exceptions: bool,
    /// Their binary form: an eighth as long
    #[arg(long, requires = "exceptions", conflicts_with = "count")]
    binary: bool,
    /// End after N events
    #[arg(short = 'c', long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..))]
    count: Option<u64>,
}

#[derive(Args)]
#[group(required = true, multiple = false)]
struct FlushOptions {
    /// The flows of this member
    #[arg(long, value_name = "NAME")]
    member: Option<String>,
    /// Flush the flows of all members
    #[arg(value_name = "all", value_parser = ["all"])]
    all: Option<String>,
}

pub(crate) fn command(options: &FlowOptions) -> anyhow::Result<u8> {
    let mut balancer = Balancer::find(&options.reach)?;
    match &options.action {
        Action::Show(options) => parts::show(&mut balancer, options),
        Action::Export(options) => parts::export(&mut balancer, options),
        Action::Import { file } => import::import(&mut balancer, file.as_deref()),
        Action::Follow(options) if options.binary => follow::follow_binary(&mut balancer, options),
        Action::Follow(options) => follow::follow(&mut balancer, options),
        Action::Flush(options) => flush::flush(&mut balancer, options),
    }
}
