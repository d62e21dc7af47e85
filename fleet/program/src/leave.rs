//! Has the process that listens on the status socket leave, and tells how far it is: a line each time, as
//! `progress TEXT`, and at last `left TEXT` or `refused TEXT`.

use std::io::{BufRead as _, BufReader, ErrorKind, Write as _};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::sync::atomic::Ordering::Relaxed;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, anyhow, bail};
use tokio::io::{AsyncWrite, AsyncWriteExt as _};

use crate::mesh::Local;

/// The request, and the one that does not need peers.
pub(crate) const LEAVE: &str = "leave";
pub(crate) const LEAVE_ALONE: &str = "leave-alone";

const PROGRESS: &str = "progress ";
const REFUSED: &str = "refused ";
const LEFT: &str = "left ";

/// Answers the request, until this machine has left or the client is gone.
pub(crate) async fn answer<W: AsyncWrite + Unpin>(
    local: &Local,
    is_alone: bool,
    stream: &mut W,
) -> std::io::Result<()> {
    let (configured, stays) = (local.config.peers.len(), local.peers.staying(Instant::now()).len());
    if configured > 0 && stays == 0 && !is_alone && !local.announcement.is_leaving() {
        let why = "no peer is present that stays and could take over; with --without-peers this machine \
                   leaves all the same";
        return stream.write_all(format!("{REFUSED}{why}\n").as_bytes()).await;
    }
    let mut reports = local.announcement.reports();
    local.announcement.leave(is_alone);
    local.own.leaves.store(true, Relaxed);
    let mut told = String::new();
    loop {
        let report = reports.borrow_and_update().clone();
        if let Some(taken_over) = report.left {
            return stream.write_all(format!("{LEFT}{taken_over}\n").as_bytes()).await;
        }
        if let Some((_, explanation)) = report.state.filter(|(state, _)| *state == "draining") {
            let failure = report.failure.map(|failure| format!("; {failure}")).unwrap_or_default();
            let text = format!("{PROGRESS}{explanation}{failure}\n");
            if text != told {
                stream.write_all(text.as_bytes()).await?;
                told = text;
            }
        }
        // The sender lives as long as this process.
        let _ = reports.changed().await;
    }
}

/// Has the process leave, and waits until it has.
pub(crate) fn request(path: &Path, is_alone: bool, limit: Duration) -> Result<()> {
    let deadline = Instant::now() + limit;
    let stream = UnixStream::connect(path);
    let mut stream =
        stream.with_context(|| format!("can't reach artery-fleet at {}; does it run?", path.display()))?;
    writeln!(stream, "{}", if is_alone { LEAVE_ALONE } else { LEAVE })?;
    let mut lines = BufReader::new(stream);
    loop {
        let left = deadline.saturating_duration_since(Instant::now()).max(Duration::from_millis(1));
        lines.get_ref().set_read_timeout(Some(left))?;
        let mut line = String::new();
        let read = lines.read_line(&mut line).map_err(|error| match error.kind() {
            ErrorKind::WouldBlock | ErrorKind::TimedOut => {
                anyhow!("it has not left after {} s, and goes on; ask again to wait longer", limit.as_secs())
            }
            _ => anyhow!(error).context("can't read from artery-fleet"),
        });
        let line = if read? > 0 { line.trim_end() } else { bail!("artery-fleet ended before it had left") };
        if let Some(taken_over) = line.strip_prefix(LEFT) {
            println!("left; {taken_over}");
            return Ok(());
        } else if let Some(why) = line.strip_prefix(REFUSED) {
            bail!("{why}");
        } else if let Some(text) = line.strip_prefix(PROGRESS) {
            println!("{text}");
        } else {
            bail!("what answers there is not the artery-fleet of this version");
        }
    }
}
