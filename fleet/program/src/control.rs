//! A connection to the control socket of the router on this machine.

use std::io::{BufRead, BufReader, Read, Write};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};

/// How long the router may be silent.
const PATIENCE: Duration = Duration::from_secs(30);
/// How long a connection may have been idle to be used again: routers end idle ones.
const REUSED_WITHIN: Duration = Duration::from_secs(30);
/// Most bytes of a value.
const MAX_VALUE: usize = 1 << 26;
/// Most bytes of a line of a reply.
const MAX_LINE: u64 = 1 << 16;

pub(crate) struct Control {
    stream: BufReader<UnixStream>,
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
        let (stream, balancer_name) = (BufReader::new(stream), balancer.to_string());
        let mut control = Control { stream, balancer: balancer_name, used: Instant::now() };
        let greeting = control.read_line()?;
        ensure!(
            greeting.starts_with("Click::ControlSocket/1."),
            "{} is not a control socket",
            socket.display()
        );
        control
            .read("exchange", "")
            .with_context(|| format!("'{balancer}' is not a FlowBalancer of the router"))?;
        Ok(control)
    }

    /// Whether the router has not ended the connection because it was idle.
    pub(crate) fn is_fresh(&self) -> bool {
        self.used.elapsed() < REUSED_WITHIN
    }

    /// The value of a handler of the balancer.
    pub(crate) fn read(&mut self, handler: &str, parameters: &str) -> Result<String> {
        let question = format!("READ {}.{handler} {parameters}", self.balancer);
        self.stream.get_mut().write_all(format!("{}\r\n", question.trim_end()).as_bytes())?;
        self.expect_success(handler)?;
        let line = self.read_line()?;
        let length = line.strip_prefix("DATA ").and_then(|length| length.parse().ok());
        let length =
            length.filter(|length| *length <= MAX_VALUE).context("the router's reply has no data")?;
        let mut value = vec![0; length];
        self.stream.read_exact(&mut value)?;
        String::from_utf8(value).context("the router's reply is not text")
    }

    /// Has a handler of the balancer take a text.
    pub(crate) fn write(&mut self, handler: &str, text: &str) -> Result<()> {
        let request = format!("WRITEDATA {}.{handler} {}\r\n{text}", self.balancer, text.len());
        self.stream.get_mut().write_all(request.as_bytes())?;
        self.expect_success(handler)
    }

    fn expect_success(&mut self, handler: &str) -> Result<()> {
        self.used = Instant::now();
        let mut said = String::new();
        loop {
            let line = self.read_line()?;
            let code = line.get(..3).and_then(|code| code.parse::<u16>().ok());
            let (Some(code), Some(separator)) = (code, line.as_bytes().get(3)) else {
                bail!("the router's reply makes no sense: {line:?}");
            };
            said.push_str(line.get(4..).unwrap_or_default());
            said.push(' ');
            match (*separator, code) {
                (b'-', _) => {}
                (_, 200..300) => return Ok(()),
                _ => return Err(Refused(format!("{handler}: {code} {}", said.trim_end())).into()),
            }
        }
    }

    fn read_line(&mut self) -> Result<String> {
        let mut line = String::new();
        let count =
            (&mut self.stream).take(MAX_LINE).read_line(&mut line).context("the router does not answer")?;
        ensure!(count > 0, "the router has ended, or closed the connection");
        line.truncate(line.trim_end().len());
        Ok(line)
    }
}

/// The router answered, and refused what was asked; the connection can be used further.
#[derive(Debug)]
pub(crate) struct Refused(String);

impl std::fmt::Display for Refused {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "the router refuses {}", self.0)
    }
}

impl std::error::Error for Refused {}
