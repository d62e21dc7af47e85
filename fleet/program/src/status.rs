//! What the process says of itself, by a Unix socket: a request of a line for each connection. `status` is
//! answered by a line of JSON.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::io::{Read as _, Write as _};
use std::os::unix::fs::{FileTypeExt as _, PermissionsExt as _};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use serde::{Deserialize, Serialize};
use tokio::io::{AsyncBufReadExt as _, AsyncReadExt as _, AsyncWriteExt as _, BufReader};
use tokio::net::UnixListener;
use tokio::sync::Semaphore;

use crate::announce::AnnouncementReport;
use crate::etcd::ConfigurationReport;
use crate::leave;
use crate::mesh::Local;
use crate::peers::PeerReport;

/// The request for the status.
const STATUS: &str = "status";
/// How long a reader may take, and the process to answer.
const PATIENCE: Duration = Duration::from_secs(5);
/// Most connections that are answered at a time; others wait.
const CONNECTIONS: u32 = 8;
/// Most bytes of a request.
const LONGEST_REQUEST: u64 = 64;

#[derive(Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct Status {
    fleet: String,
    id: String,
    machine: String,
    is_router_connected: bool,
    sent_records: u64,
    /// Parts of all exceptions that peers have fetched.
    sent_parts: u64,
    /// How often events of the router were missing, its starts included.
    losses: u64,
    received_records: u64,
    dropped_messages: u64,
    refused_imports: u64,
    /// Messages that were refused, by reason.
    refused: BTreeMap<String, u64>,
    peers: Vec<PeerReport>,
    /// None where the configuration announces nothing, unless this machine leaves.
    announcement: Option<AnnouncementReport>,
    /// None without etcd.
    configuration: Option<ConfigurationReport>,
}

impl Status {
    fn new(local: &Local) -> Status {
        let Local { config, own, peers, counts, .. } = local;
        let (peers, refused) = peers.report(Instant::now());
        Status {
            fleet: config.fleet.clone(),
            id: config.id.clone(),
            machine: config.machine.clone(),
            is_router_connected: own.is_router_connected.load(Relaxed),
            sent_records: own.records_sent.load(Relaxed),
            sent_parts: own.parts_sent.load(Relaxed),
            losses: own.losses.load(Relaxed),
            received_records: counts.records.load(Relaxed),
            dropped_messages: counts.dropped.load(Relaxed),
            refused_imports: counts.refused.load(Relaxed),
            refused,
            peers,
            announcement: local.announcement.status(Instant::now()),
            configuration: local.view.as_ref().map(|view| view.report()),
        }
    }

    fn to_text(&self) -> String {
        let router = if self.is_router_connected { "followed" } else { "not reached" };
        let mut text = format!("machine {} of {}/{}, router {router}\n", self.machine, self.fleet, self.id);
        if let Some(announcement) = &self.announcement {
            let _ = writeln!(text, "announcement: {}", announcement.to_text());
        }
        let _ = writeln!(
            text,
            "sent: {} records, {} parts of all exceptions; events were missing {} times",
            self.sent_records, self.sent_parts, self.losses
        );
        let _ = writeln!(
            text,
            "received: {} records; {} messages dropped, {} imports refused by the router",
            self.received_records, self.dropped_messages, self.refused_imports
        );
        let refused: Vec<_> = self.refused.iter().filter(|(_, count)| **count > 0).collect();
        let words: Vec<_> = refused.iter().map(|(reason, count)| format!("{count} {reason}")).collect();
        let words = if words.is_empty() { "none".to_string() } else { words.join(", ") };
        let _ = writeln!(text, "refused messages: {words}");
        let _ = writeln!(
            text,
            "\n{:<16}  {:<8}  {:<8}  {:>9}  {:>10}  {:>8}  {:>7}  {:>12}  {:>15}",
            "PEER",
            "PRESENT",
            "COMPLETE",
            "SILENT ms",
            "RECORDS",
            "MISSED",
            "FETCHES",
            "LAST LAG ms",
            "LONGEST LAG ms"
        );
        for peer in &self.peers {
            let yes = |is: bool| if is { "yes" } else { "no" };
            let _ = writeln!(
                text,
                "{:<16}  {:<8}  {:<8}  {:>9}  {:>10}  {:>8}  {:>7}  {:>12.1}  {:>15.1}",
                peer.machine,
                yes(peer.is_present),
                yes(peer.is_complete),
                peer.silent_ms,
                peer.records,
                peer.missed_batches,
                peer.fetches,
                peer.last_lag_ms,
                peer.longest_lag_ms
            );
        }
        if let Some(configuration) = &self.configuration {
            let _ = write!(text, "\n{}", configuration.to_text());
        }
        text
    }
}

/// Listens on the socket; one that an ended process has left is replaced.
pub(crate) fn listen(path: &Path) -> Result<UnixListener> {
    if UnixStream::connect(path).is_ok() {
        bail!("{} is in use; does artery-fleet run already?", path.display());
    }
    let is_socket = |file: std::fs::Metadata| file.file_type().is_socket();
    if std::fs::symlink_metadata(path).is_ok_and(is_socket) {
        std::fs::remove_file(path).with_context(|| format!("can't replace {}", path.display()))?;
    }
    let listener = UnixListener::bind(path).with_context(|| format!("can't listen on {}", path.display()))?;
    std::fs::set_permissions(path, std::fs::Permissions::from_mode(0o600))?;
    Ok(listener)
}

/// Answers who connects. Dropping it leaves those under way; [`Answers::finish`] waits for them.
pub(crate) struct Answers(Arc<Semaphore>);

impl Answers {
    pub(crate) fn new() -> Answers {
        Answers(Arc::new(Semaphore::new(CONNECTIONS as usize)))
    }

    pub(crate) async fn serve(&self, listener: UnixListener, local: Local) {
        loop {
            // The semaphore is never closed.
            let place = self.0.clone().acquire_owned().await;
            let Ok((mut stream, _)) = listener.accept().await else {
                tokio::time::sleep(Duration::from_millis(100)).await;
                continue;
            };
            let local = local.clone();
            tokio::spawn(async move {
                // Who asks may be gone.
                let _ = answer(&mut stream, &local).await;
                drop(place);
            });
        }
    }

    /// Waits until all are answered, for as long as readers may take.
    pub(crate) async fn finish(&self) {
        let _ = tokio::time::timeout(PATIENCE, self.0.acquire_many(CONNECTIONS)).await;
    }
}

async fn answer(stream: &mut tokio::net::UnixStream, local: &Local) -> std::io::Result<()> {
    let (reader, mut writer) = stream.split();
    let mut request = String::new();
    let mut reader = BufReader::new(reader.take(LONGEST_REQUEST));
    tokio::time::timeout(PATIENCE, reader.read_line(&mut request)).await??;
    match request.trim_end() {
        request @ (leave::LEAVE | leave::LEAVE_ALONE) => {
            tokio::select! {
                answered = leave::answer(local, request == leave::LEAVE_ALONE, &mut writer) => answered,
                // Who asked has said all: it is gone.
                _ = reader.read_u8() => Ok(()),
            }
        }
        STATUS => {
            let status = serde_json::to_string(&Status::new(local)).unwrap_or_default() + "\n";
            tokio::time::timeout(PATIENCE, writer.write_all(status.as_bytes())).await?
        }
        _ => Ok(()),
    }
}

/// The status of the process that listens on this socket.
pub(crate) fn ask(path: &Path, as_json: bool) -> Result<String> {
    let unreachable = || format!("can't reach artery-fleet at {}; does it run?", path.display());
    let mut stream = UnixStream::connect(path).with_context(unreachable)?;
    stream.set_read_timeout(Some(PATIENCE))?;
    writeln!(stream, "{STATUS}")?;
    let mut text = String::new();
    stream.read_to_string(&mut text).with_context(unreachable)?;
    let status: Status =
        serde_json::from_str(&text).context("what answers there is not the artery-fleet of this version")?;
    Ok(if as_json { text } else { status.to_text() })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_socket_of_an_ended_process_is_replaced_and_no_other_file_is() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("status");
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        let _guard = runtime.enter();
        drop(listen(&path).unwrap());
        let listener = listen(&path).unwrap();
        let refusal = listen(&path).unwrap_err().to_string();
        assert!(refusal.contains("does artery-fleet run already?"), "{refusal}");
        drop(listener);
        let file = folder.path().join("file");
        std::fs::write(&file, "kept").unwrap();
        assert!(format!("{:#}", listen(&file).unwrap_err()).contains("can't listen on"));
        assert_eq!(std::fs::read_to_string(&file).unwrap(), "kept");
    }
}
