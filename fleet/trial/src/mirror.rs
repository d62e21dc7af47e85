//! How records travel: one engine or another, each with the same three things to do.

mod core_nats;
mod stream;
mod zenoh_peers;

use std::net::Ipv4Addr;
use std::path::PathBuf;
use std::sync::Arc;

use anyhow::Result;
use bytes::Bytes;
use tokio::sync::mpsc::UnboundedSender;

use crate::own::Own;
use crate::replica::Replica;
use core_nats::CoreNats;
use stream::StreamMirror;
use zenoh_peers::ZenohPeers;

/// The fleet's name and its number, with which all keys begin.
const FLEET: [&str; 2] = ["trial", "1"];

/// The engine that carries records.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum Engine {
    /// zenoh: peers, no server; whole states by queries.
    Zenoh,
    /// Core NATS: a server passes messages on and keeps none; whole states by requests.
    Nats,
    /// NATS JetStream: the server keeps batches, and a joiner reads them all.
    Stream,
}

/// What a publisher of zenoh does while the queue to a peer is full.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum Congestion {
    /// It gives up the message for that peer after a millisecond.
    Drop,
    /// It waits until there is room.
    Block,
}

/// What an engine must know to start.
#[derive(Debug, Clone, clap::Args)]
pub(crate) struct MirrorOptions {
    /// The engine that carries records.
    #[arg(long)]
    pub(crate) engine: Engine,
    /// The number of this machine.
    #[arg(long)]
    pub(crate) machine: u32,
    /// The address of this machine.
    #[arg(long)]
    pub(crate) address: Ipv4Addr,
    /// The address of another machine; may be given repeatedly.
    #[arg(long = "peer")]
    pub(crate) peers: Vec<Ipv4Addr>,
    /// The address of the server of NATS.
    #[arg(long, default_value = "127.0.0.1")]
    pub(crate) server: Ipv4Addr,
    /// What a publisher of zenoh does while the queue to a peer is full.
    #[arg(long, default_value = "drop")]
    pub(crate) congestion: Congestion,
    /// A folder with ca.pem, machine.pem and machine.key: zenoh with TLS, client certificates required.
    #[arg(long)]
    pub(crate) certificates: Option<PathBuf>,
    /// After so many milliseconds without a word a peer counts as gone.
    #[arg(long, default_value_t = 1000)]
    pub(crate) lease_ms: u64,
}

/// What an engine needs of the machine.
#[derive(Clone)]
pub(crate) struct Inbox {
    pub(crate) own: Arc<Own>,
    pub(crate) replica: Arc<Replica>,
    /// Takes the machines whose state must be fetched.
    pub(crate) behind: UnboundedSender<u32>,
}

impl Inbox {
    /// Takes a batch that came.
    fn receive(&self, bytes: &[u8]) {
        match self.replica.receive(bytes) {
            // The receiver is gone once the machine ends.
            Ok(Some(machine)) => drop(self.behind.send(machine)),
            Ok(None) => {}
            Err(error) => eprintln!("a batch was refused: {error}"),
        }
    }
}

/// An engine that this machine is connected to.
pub(crate) enum Mirror {
    Zenoh(ZenohPeers),
    CoreNats(CoreNats),
    Stream(StreamMirror),
}

impl Mirror {
    pub(crate) async fn start(options: &MirrorOptions, inbox: Inbox) -> Result<Mirror> {
        Ok(match options.engine {
            Engine::Zenoh => Mirror::Zenoh(ZenohPeers::start(options, inbox).await?),
            Engine::Nats => Mirror::CoreNats(CoreNats::start(options, inbox).await?),
            Engine::Stream => Mirror::Stream(StreamMirror::start(options, inbox).await?),
        })
    }

    /// Sends a batch to all other machines.
    pub(crate) async fn publish(&self, batch: Bytes) -> Result<()> {
        match self {
            Mirror::Zenoh(mirror) => mirror.publish(batch),
            Mirror::CoreNats(mirror) => mirror.publish(batch).await,
            Mirror::Stream(mirror) => mirror.publish(batch).await,
        }
    }

    /// Stores all records of this machine where joiners find them; some engines have nothing to do for that.
    pub(crate) async fn store(&self, own: &Own) -> Result<()> {
        match self {
            Mirror::Zenoh(_) | Mirror::CoreNats(_) => Ok(()),
            Mirror::Stream(mirror) => mirror.store(own).await,
        }
    }

    /// Fetches all records of another machine into the replica.
    pub(crate) async fn fetch(&self, machine: u32) -> Result<()> {
        match self {
            Mirror::Zenoh(mirror) => mirror.fetch(machine).await,
            Mirror::CoreNats(mirror) => mirror.fetch(machine).await,
            Mirror::Stream(mirror) => mirror.fetch(machine).await,
        }
    }
}
