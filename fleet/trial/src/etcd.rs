//! Membership and configuration by etcd: a lease says that a machine lives, a transaction changes the
//! configuration, and a watch tells all machines.

mod commit;
mod leader;
mod lease;

use std::time::Duration;

use anyhow::{Context, Result};
use etcd_client::{Client, ConnectOptions, EventType, WatchOptions, WatchStream};

use crate::fleet::Site;
use crate::network::address;
use crate::process::Process;
use crate::report::Figures;

/// The host of the first server.
const FIRST_HOST: u8 = 111;

/// All keys of a fleet begin so.
const PREFIX: &str = "/artery/trial/1/";

/// How long a request may take.
const REQUEST_LIMIT: Duration = Duration::from_secs(2);

/// Running servers of one cluster, by their place.
struct Cluster {
    servers: Vec<Process>,
}

/// Tries a cluster of one server, then one of three.
pub(crate) async fn run(site: &mut Site) -> Result<Figures> {
    let mut figures = Figures::default();
    for size in [1, 3] {
        let mut cluster = Cluster::start(site, size).await?;
        commit::run(&cluster, &mut figures).await?;
        lease::run(&cluster, &mut figures).await?;
        for (place, server) in cluster.servers.iter().enumerate() {
            let memory = server.usage()?.resident_kib as f64 / 1024.0;
            figures.add(format!("memory, server {} of {size}", place + 1), memory, "MiB");
        }
        if size > 1 {
            leader::run(&mut cluster, &mut figures).await?;
        }
        for server in &mut cluster.servers {
            server.end().await;
        }
    }
    Ok(figures)
}

impl Cluster {
    async fn start(site: &mut Site, size: u8) -> Result<Cluster> {
        let peer = |place| format!("http://{}:2380", host_address(place));
        let members: Vec<String> = (0..size).map(|place| format!("s{place}={}", peer(place))).collect();
        let mut servers = Vec::new();
        // A server of several listens for clients only once there is a majority, so all are started first.
        for place in 0..size {
            let folder = site.folder.path().join(format!("etcd-{place}-of-{size}")).display().to_string();
            let (own, name) = (endpoint(place), format!("s{place}"));
            let words = [
                "etcd",
                "--name",
                &name,
                "--data-dir",
                &folder,
                "--logger",
                "zap",
                "--log-level",
                "warn",
                "--listen-client-urls",
                &own,
                "--advertise-client-urls",
                &own,
                "--listen-peer-urls",
                &peer(place),
                "--initial-advertise-peer-urls",
                &peer(place),
                "--initial-cluster",
                &members.join(","),
                "--initial-cluster-state",
                "new",
                "--initial-cluster-token",
                &members.len().to_string(),
            ];
            servers.push(site.start(FIRST_HOST + place, &format!("etcd-{place}-of-{size}"), &words)?);
        }
        for place in 0..size {
            site.wait_for_port(FIRST_HOST + place, 2379, "etcd").await?;
        }
        let cluster = Cluster { servers };
        // The first answer comes once there is a leader.
        let mut client = cluster.client(&[0]).await?;
        for _ in 0..50 {
            if client.get(PREFIX, None).await.is_ok() {
                break;
            }
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
        Ok(cluster)
    }

    /// A client that knows the servers at these places.
    async fn client(&self, places: &[u8]) -> Result<Client> {
        let endpoints: Vec<String> = places.iter().copied().map(endpoint).collect();
        let options = ConnectOptions::new().with_connect_timeout(REQUEST_LIMIT).with_timeout(REQUEST_LIMIT);
        let connected = Client::connect(&endpoints, Some(options)).await;
        connected.with_context(|| format!("cannot connect to etcd at {}", endpoints.join(", ")))
    }

    /// A client of the last server that lets a watch last, and a watch of all keys of the fleet.
    async fn watch(&self) -> Result<WatchStream> {
        let last = self.servers.len() as u8 - 1;
        let mut client = Client::connect([endpoint(last)], None).await?;
        let mut stream = client.watch(PREFIX, Some(WatchOptions::new().with_prefix())).await?;
        stream.message().await?.context("a watch ended at once")?;
        Ok(stream)
    }
}

/// Waits for a change by a watch: whether a key was deleted, and its value.
async fn next_change(stream: &mut WatchStream) -> Result<(bool, Vec<u8>)> {
    loop {
        let response = stream.message().await?.context("a watch ended")?;
        if let Some(event) = response.events().first() {
            let value = event.kv().map(|pair| pair.value().to_vec()).unwrap_or_default();
            return Ok((event.event_type() == EventType::Delete, value));
        }
    }
}

fn endpoint(place: u8) -> String {
    format!("http://{}:2379", host_address(place))
}

fn host_address(place: u8) -> std::net::Ipv4Addr {
    address(FIRST_HOST + place)
}
