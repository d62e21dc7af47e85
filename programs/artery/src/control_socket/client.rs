//! Calls to a running router; `artery handler` makes one.
use super::access::token_in;
use super::codec::GREETING;
use crate::options::Reach;
use crate::output::{print_stderr, print_stdout};
use crate::spelling::nearest;
use anyhow::{Context as _, anyhow, bail};
use artery_device::system_message;
use clap::Args;
use std::io::{self, BufRead, BufReader, Read, Write};
use std::net::{Ipv4Addr, TcpStream};
use std::os::unix::fs::FileTypeExt as _;
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::time::{Duration, Instant};

/// Most bytes of a value that are accepted.
const MAX_VALUE: usize = 1 << 30;
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
    stream: BufReader<Box<dyn Stream>>,
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
        let mut stream = connect(reach)?;
        let mut version = String::new();
        stream.read_line(&mut version).context("the router does not answer")?;
        if !version.starts_with(GREETING.trim_end_matches(".3\r\n")) {
            bail!("this is not a control socket: it says {:?}", version.trim_end());
        }
        let is_authenticated = reach.port.is_none();
        Ok(Client { stream, reach: reach.clone(), is_authenticated, used: Instant::now(), left: 0 })
    }
    /// The value of a handler.
    pub(crate) fn read(&mut self, handler: &str) -> anyhow::Result<String> {
        self.value(handler)?.map_err(|refusal| anyhow!("{}", explained(&mut self.stream, handler, refusal)))
    }
    /// Writes a handler, and prints its warnings.
    pub(crate) fn write(&mut self, handler: &str, value: &str) -> anyhow::Result<()> {
        self.begin_write(handler, value)?;
        match self.outcome()? {
            Ok(warnings) => {
                print_stderr(&warnings);
                Ok(())
            }
            Err(refusal) => bail!("{}", explained(&mut self.stream, handler, refusal)),
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
        request(&mut self.stream, handler, value)
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
        outcome(&mut self.stream)
    }
    fn value(&mut self, handler: &str) -> anyhow::Result<Result<String, Refusal>> {
        self.refresh()?;
        value(&mut self.stream, handler)
    }
    fn bare(&mut self, handler: &str, refusal: Refusal) -> anyhow::Error {
        match refusal.text.split_once('\n') {
            Some((heading, said)) if heading.ends_with("error:") => anyhow!("{}", said.trim_end()),
            _ => anyhow!("{}", explained(&mut self.stream, handler, refusal)),
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
        self.stream.get_mut().write_all(format!("AUTH {token}\r\n").as_bytes()).map_err(lost)?;
        match outcome(&mut self.stream)? {
            Ok(_) => Ok(()),
            // Click knows no tokens, and its port is open to all.
            Err(refusal) if refusal.code == UNIMPLEMENTED => Ok(()),
            Err(refusal) => bail!("{}: {}", file.display(), refusal.text),
        }
    }
}

/// A connection, whichever kind.
trait Stream: Read + Write {}
impl<S: Read + Write> Stream for S {}

fn connect(reach: &Reach) -> anyhow::Result<BufReader<Box<dyn Stream>>> {
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
    result.map(BufReader::new).map_err(explained)
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

/// The router's reply to a request that it refused.
struct Refusal {
    code: u16,
    text: String,
}

/// A refusal, with the name that was perhaps meant where one is close.
fn explained(stream: &mut BufReader<Box<dyn Stream>>, handler: &str, refusal: Refusal) -> String {
    let (list, wanted) = match (refusal.code, handler.rsplit_once('.')) {
        (NO_ELEMENT, Some((element, _))) => ("list".to_string(), element),
        (NO_HANDLER, Some((element, name))) => (format!("{element}.handlers"), name),
        (NO_HANDLER, None) => ("list".to_string(), handler),
        _ => return refusal.text,
    };
    let Ok(Ok(names)) = value(stream, &list) else { return refusal.text };
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
fn value(stream: &mut BufReader<Box<dyn Stream>>, handler: &str) -> anyhow::Result<Result<String, Refusal>> {
    stream.get_mut().write_all(format!("READ {handler}\r\n").as_bytes()).map_err(lost)?;
    let (code, lines) = reply(stream)?;
    if code != 200 {
        return Ok(Err(Refusal { code, text: lines.join("\n") }));
    }
    let mut line = String::new();
    stream.read_line(&mut line).map_err(lost)?;
    let length = line.trim_end().strip_prefix("DATA ").and_then(|length| length.parse::<usize>().ok());
    let length = length.filter(|length| *length <= MAX_VALUE).context("the router's reply has no data")?;
    let mut value = Vec::new();
    stream.take(length as u64).read_to_end(&mut value).map_err(lost)?;
    if value.len() < length {
        bail!(GONE);
    }
    Ok(Ok(String::from_utf8_lossy(&value).into_owned()))
}

/// Sends a write request.
fn request(stream: &mut BufReader<Box<dyn Stream>>, handler: &str, value: &str) -> anyhow::Result<()> {
    let request = format!("WRITEDATA {handler} {}\r\n{value}", value.len());
    stream.get_mut().write_all(request.as_bytes()).map_err(lost)
}

/// What a write is answered with.
fn outcome(stream: &mut BufReader<Box<dyn Stream>>) -> anyhow::Result<Result<String, Refusal>> {
    let (code, lines) = reply(stream)?;
    Ok(match code {
        200 => Ok(String::new()),
        220 => Ok(lines.join("\n") + "\n"),
        _ => Err(Refusal { code, text: lines.join("\n") }),
    })
}

const GONE: &str = "the router is gone: it has ended, or closed the connection";

/// What a connection that broke means.
fn lost(error: io::Error) -> anyhow::Error {
    use io::ErrorKind::{BrokenPipe, ConnectionReset, TimedOut, WouldBlock};
    match error.kind() {
        BrokenPipe | ConnectionReset => anyhow!(GONE),
        TimedOut | WouldBlock => anyhow!("the router has not answered for {} s", PATIENCE.as_secs()),
        _ => anyhow!("talking to the router: {}", system_message(&error)),
    }
}

/// The code and the lines of a reply.
fn reply(stream: &mut impl BufRead) -> anyhow::Result<(u16, Vec<String>)> {
    let mut lines = Vec::new();
    loop {
        let mut line = String::new();
        if stream.read_line(&mut line).map_err(lost)? == 0 {
            bail!(GONE);
        }
        let line = line.trim_end();
        let code = line.get(..3).and_then(|code| code.parse().ok());
        let (Some(code), Some(separator)) = (code, line.as_bytes().get(3)) else {
            bail!("the router's reply makes no sense: {line:?}");
        };
        lines.push(line.get(4..).unwrap_or("").to_string());
        if *separator != b'-' {
            return Ok((code, lines));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_reply_goes_on_while_its_code_is_followed_by_a_hyphen() {
        let mut bytes = b"520-a:\r\n520 b\r\n200 c\r\n".as_slice();
        assert_eq!(reply(&mut bytes).unwrap(), (520, vec!["a:".to_string(), "b".to_string()]));
        assert_eq!(reply(&mut bytes).unwrap().0, 200);
        assert!(reply(&mut bytes).is_err());
        assert!(reply(&mut "é".as_bytes()).is_err());
    }
}
