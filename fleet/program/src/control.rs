//! A connection to the control socket of the router on this machine.

use std::os::unix::net::UnixStream;
use std::path::Path;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use artery_control::{ControlClient, Refusal};

/// How long the router may be silent.
const PATIENCE: Duration = Duration::from_secs(30);
/// How long a connection may have been idle to be used again: routers end idle ones.
const REUSED_WITHIN: Duration = Duration::from_secs(30);

pub(crate) struct Control {
    client: ControlClient<UnixStream>,
    balancer: String,
    used: Instant,
}

impl Control {
    /// Connects, and finds whether there is such a FlowBalancer.
    pub(crate) fn connect(socket: &Path, balancer: &str) -> Result<Control> {
        let stream = UnixStream::connect(socket);
        let stream = stream.with_context(|| format!("can't reach the router at {}", socket.display()))?;
        stream.set_read_timeout(Some(PATIENCE))?;
        stream.set_write_timeout(Some(PATIENCE))?;
        let client = ControlClient::new(stream).with_context(|| socket.display().to_string())?;
        let mut control = Control { client, balancer: balancer.to_string(), used: Instant::now() };
        let handlers =
            control.read("handlers", "").with_context(|| format!("the router has no '{balancer}'"))?;
        let has = |name: &str| handlers.lines().any(|line| line.split('\t').next() == Some(name));
        ensure!(has("exception_items"), "'{balancer}' is not a FlowBalancer with exceptions");
        // The newest that is used.
        ensure!(has("hold_down"), "the router is of an older version: update artery to that of artery-fleet");
        Ok(control)
    }

    /// Whether the router has not ended the connection because it was idle.
    pub(crate) fn is_fresh(&self) -> bool {
        self.used.elapsed() < REUSED_WITHIN
    }

    /// The value of a handler of the balancer.
    pub(crate) fn read(&mut self, handler: &str, parameters: &str) -> Result<String> {
        self.used = Instant::now();
        let question = format!("{}.{handler} {parameters}", self.balancer);
        let value =
            self.client.read(question.trim_end())?.map_err(|refusal| Refused::new(handler, refusal))?;
        String::from_utf8(value).context("the router's reply is not text")
    }

    /// Has a handler of the balancer take a text.
    pub(crate) fn write(&mut self, handler: &str, text: &str) -> Result<()> {
        self.used = Instant::now();
        let reply = self.client.write(&format!("{}.{handler}", self.balancer), text)?;
        reply.map(drop).map_err(|refusal| Refused::new(handler, refusal).into())
    }
}

/// The router answered, and refused what was asked; the connection can be used further.
#[derive(Debug)]
pub(crate) struct Refused(String);

impl Refused {
    fn new(handler: &str, refusal: Refusal) -> Refused {
        Refused(format!("{handler}: {} {}", refusal.code, refusal.text.replace('\n', " ")))
    }
}

impl std::fmt::Display for Refused {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "the router refuses {}", self.0)
    }
}

impl std::error::Error for Refused {}
