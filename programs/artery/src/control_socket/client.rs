//! Calls to a running router; `artery handler` makes one.
use super::access::token_in;
use crate::options::Reach;
use crate::output::{print_stderr, print_stdout};
use crate::spelling::nearest;
use anyhow::{anyhow, bail};
use artery_control::{ControlClient, ControlError, Refusal};
use artery_device::system_message;
use clap::Args;
use std::io::{self, Read, Write};
use std::net::{Ipv4Addr, TcpStream};
use std::os::unix::fs::FileTypeExt as _;
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::time::{Duration, Instant};

/// Codes of a router that has no such element, or no such handler.
const NO_ELEMENT: u16 = 510;
const NO_HANDLER: u16 = 511;
/// Code of a command that the router does not know.
const UNIMPLEMENTED: u16 = 501;
/// How long the router may be silent; a large configuration takes a while to replace.
const PATIENCE: Duration = Duration::from_secs(30);

/// How long a connection may have been idle to be used again: routers end idle ones.
const REUSED_AFTER: Duration = Duration::from_secs(30);

#[derive(Args)]
pub(crate) struct HandlerOptions {
    #[command(flatten)]
    pub(crate) reach: Reach,
    /// ELEMENT.HANDLER, or a handler of the router
    pub(crate) handler: String,
    /// Value to write; without one the handler is read
    #[arg(conflicts_with = "write")]
    pub(crate) value: Option<String>,
    /// Value to write, which may be empty
    #[arg(long, value_name = "VALUE", num_args = 0..=1, default_missing_value = "")]
    pub(crate) write: Option<String>,
}

/// Reads or writes a handler of a running router.
pub(crate) fn call(options: &HandlerOptions) -> anyhow::Result<u8> {
    let mut client = Client::connect(&options.reach)?;
    let value = options.write.as_ref().or(options.value.as_ref());
    if options.handler.is_empty() || options.handler.contains(char::is_whitespace) {
        bail!("'{}' is not a handler; write ELEMENT.HANDLER", options.handler);
    }
    match value {
        Some(value) => client.write(&options.handler, value).map(|()| 0),
        None => {
            let value = client.read(&options.handler)?;
            let end = if value.is_empty() || value.ends_with('\n') { "" } else { "\n" };
            print_stdout(&format!("{value}{end}")).map(|()| 0)
        }
    }
}

/// A connection to a router.
pub(crate) struct Client {
    control: ControlClient<Box<dyn Stream>>,
    reach: Reach,
    /// Whether the router was given its token, or has none.
    is_authenticated: bool,
    used: Instant,
    /// Replies that were left.
    left: usize,
}

impl Client {
    /// Connects to the router that is reached so.
    pub(crate) fn connect(reach: &Reach) -> anyhow::Result<Client> {
        let control = answered(ControlClient::new(connect(reach)?))?;
        let is_authenticated = reach.port.is_none();
        Ok(Client { control, reach: reach.clone(), is_authenticated, used: Instant::now(), left: 0 })
    }
    /// The value of a handler.
    pub(crate) fn read(&mut self, handler: &str) -> anyhow::Result<String> {
        self.value(handler)?.map_err(|refusal| anyhow!("{}", explained(&mut self.control, handler, refusal)))
    }
    /// Writes a handler, and prints its warnings.
    pub(crate) fn write(&mut self, handler: &str, value: &str) -> anyhow::Result<()> {
        self.begin_write(handler, value)?;
        match self.outcome()? {
            Ok(warnings) => {
                print_stderr(&warnings);
                Ok(())
            }
            Err(refusal) => bail!("{}", explained(&mut self.control, handler, refusal)),
        }
    }
    /// The value of a handler with parameters. An error has only the element's own text.
    pub(crate) fn query(&mut self, handler: &str, parameters: &str) -> anyhow::Result<String> {
        if parameters.contains(['\r', '\n']) {
            bail!("a line alone can be asked, and there are several: {parameters:?}");
        }
        let question = format!("{handler} {parameters}");
        self.value(question.trim_end())?.map_err(|refusal| self.bare(handler, refusal))
    }
    /// Writes a handler. An error has only the element's own text.
    pub(crate) fn write_plain(&mut self, handler: &str, value: &str) -> anyhow::Result<()> {
        self.begin_write(handler, value)?;
        self.finish_write(handler)
    }
    /// The same; gives the warnings that it was answered with, a line each.
    pub(crate) fn write_with_warnings(&mut self, handler: &str, value: &str) -> anyhow::Result<String> {
        self.begin_write(handler, value)?;
        match self.outcome()? {
            Ok(warnings) => Ok(warnings.split_once('\n').map_or("", |(_, warnings)| warnings).to_string()),
            Err(refusal) => Err(self.bare(handler, refusal)),
        }
    }
    /// Begins to write a handler; [`finish_write`](Self::finish_write) reads the reply. A few replies can be
    /// pending, no more than fit in a socket's buffer.
    pub(crate) fn begin_write(&mut self, handler: &str, value: &str) -> anyhow::Result<()> {
        self.refresh()?;
        if !std::mem::replace(&mut self.is_authenticated, true) {
            self.authenticate()?;
        }
        self.left += 1;
        answered(self.control.begin_write(handler, value))
    }
    /// Reads the next pending reply.
    pub(crate) fn finish_write(&mut self, handler: &str) -> anyhow::Result<()> {
        match self.outcome()? {
            Ok(_) => Ok(()),
            Err(refusal) => Err(self.bare(handler, refusal)),
        }
    }
    fn outcome(&mut self) -> anyhow::Result<Result<String, Refusal>> {
        self.left = self.left.saturating_sub(1);
        answered(self.control.finish_write())
    }
    fn value(&mut self, handler: &str) -> anyhow::Result<Result<String, Refusal>> {
        self.refresh()?;
        value(&mut self.control, handler)
    }
    fn bare(&mut self, handler: &str, refusal: Refusal) -> anyhow::Error {
        match refusal.text.split_once('\n') {
            Some((heading, said)) if heading.ends_with("error:") => anyhow!("{}", said.trim_end()),
            _ => anyhow!("{}", explained(&mut self.control, handler, refusal)),
        }
    }
    /// Connects again where the router may have ended the connection because it was idle.
    fn refresh(&mut self) -> anyhow::Result<()> {
        if self.left == 0 && self.used.elapsed() > REUSED_AFTER {
            *self = Client::connect(&self.reach)?;
        }
        self.used = Instant::now();
        Ok(())
    }
    /// Gives the router its token, if one is known. A connection that only reads does not send it.
    fn authenticate(&mut self) -> anyhow::Result<()> {
        let Some((file, is_named)) = self.reach.token_file() else { return Ok(()) };
        let opened = std::fs::File::open(&file).map_err(|error| system_message(&error));
        let token = match opened.and_then(token_in) {
            Ok(token) => token,
            Err(why) if is_named => bail!("{}: {why}", file.display()),
            // The router's reply says what it needs.
            Err(_) => return Ok(()),
        };
        match answered(self.control.authenticate(&token))? {
            Ok(()) => Ok(()),
            // Click knows no tokens, and its port is open to all.
            Err(refusal) if refusal.code == UNIMPLEMENTED => Ok(()),
            Err(refusal) => bail!("{}: {}", file.display(), refusal.text),
        }
    }
}

/// A connection, whichever kind.
trait Stream: Read + Write {}
impl<S: Read + Write> Stream for S {}

fn connect(reach: &Reach) -> anyhow::Result<Box<dyn Stream>> {
    let (name, result): (String, io::Result<Box<dyn Stream>>) = match (reach.socket(), reach.port) {
        (Some(path), _) => {
            let stream = UnixStream::connect(&path);
            let patient = |s: UnixStream| s.set_read_timeout(Some(PATIENCE)).map(|()| Box::new(s) as _);
            (path.display().to_string(), stream.and_then(patient))
        }
        (None, Some(port)) => {
            let stream = TcpStream::connect((Ipv4Addr::LOCALHOST, port));
            let patient = |s: TcpStream| s.set_read_timeout(Some(PATIENCE)).map(|()| Box::new(s) as _);
            (format!("TCP port {port}"), stream.and_then(patient))
        }
        (None, None) => bail!("say where the router is: -u PATH or -p PORT"),
    };
    let explained = |error: io::Error| {
        anyhow!("can't reach {name}: {} ({})", system_message(&error), hint(reach, &error))
    };
    result.map_err(explained)
}

/// What may help against such an error.
fn hint(reach: &Reach, error: &io::Error) -> &'static str {
    let is_other = |path: &Path| path.metadata().is_ok_and(|file| !file.file_type().is_socket());
    match error.kind() {
        io::ErrorKind::PermissionDenied => "ask as root, or as the user that the router runs as",
        _ if reach.socket().is_some_and(|path| is_other(&path)) => {
            "this is not a socket; name a router's by -u"
        }
        _ => "is a router running with -u or -p?",
    }
}

/// A refusal, with the name that was perhaps meant where one is close.
fn explained(control: &mut ControlClient<Box<dyn Stream>>, handler: &str, refusal: Refusal) -> String {
    let (list, wanted) = match (refusal.code, handler.rsplit_once('.')) {
        (NO_ELEMENT, Some((element, _))) => ("list".to_string(), element),
        (NO_HANDLER, Some((element, name))) => (format!("{element}.handlers"), name),
        (NO_HANDLER, None) => ("list".to_string(), handler),
        _ => return refusal.text,
    };
    let Ok(Ok(names)) = value(control, &list) else { return refusal.text };
    let mut names = names.lines().filter_map(|line| line.split('\t').next());
    if refusal.code == NO_HANDLER && !handler.contains('.') {
        let is_element = names.any(|name| name == handler);
        let what =
            if is_element { format!("; its handlers are in '{handler}.handlers'") } else { String::new() };
        return refusal.text + &what;
    }
    match nearest(wanted, names) {
        Some(name) => format!("{}; did you mean '{name}'?", refusal.text),
        None => format!("{}; '{list}' tells which there are", refusal.text),
    }
}

/// The value of a handler, or the refusal.
fn value(
    control: &mut ControlClient<Box<dyn Stream>>,
    handler: &str,
) -> anyhow::Result<Result<String, Refusal>> {
    let reply = answered(control.read(handler))?;
    Ok(reply.map(|value| String::from_utf8_lossy(&value).into_owned()))
}

/// What a broken conversation means.
fn answered<T>(result: Result<T, ControlError>) -> anyhow::Result<T> {
    use io::ErrorKind::{TimedOut, WouldBlock};
    result.map_err(|error| match error {
        ControlError::Stream(error) if matches!(error.kind(), TimedOut | WouldBlock) => {
            anyhow!("the router has not answered for {} s", PATIENCE.as_secs())
        }
        ControlError::Stream(error) => anyhow!("talking to the router: {}", system_message(&error)),
        error => anyhow!(error),
    })
}
