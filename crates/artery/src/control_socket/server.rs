//! Sockets that are listened on, and a thread for each connection.
use super::codec::{self, GREETING, MAX_DATA, MAX_LINE, Parsed, parse};
use super::service::{Answer, Handlers, answer};
use crate::job::PortRequest;
use crate::load::system_message;
use anyhow::{Context as _, bail};
use std::io::{Read, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpListener};
use std::os::unix::fs::FileTypeExt as _;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Condvar, Mutex, MutexGuard};
use std::time::Duration;

/// What fits in a socket's address beside its end.
const LONGEST_PATH: usize = 107;
/// Most connections at a time.
const MAX_CONNECTIONS: usize = 32;
/// Ports that `PORT+` tries.
const PORTS_TRIED: u16 = 100;
/// How long a program that ends waits for replies that are being sent.
const FAREWELL: Duration = Duration::from_secs(1);

/// Counts connections, and requests that are being answered.
#[derive(Default)]
pub(crate) struct Traffic {
    counts: Mutex<Counts>,
    answered: Condvar,
}

#[derive(Default)]
struct Counts {
    connections: usize,
    requests: usize,
}

impl Traffic {
    fn counts(&self) -> MutexGuard<'_, Counts> {
        self.counts.lock().unwrap_or_else(|e| e.into_inner())
    }

    /// Admits a connection, unless there are too many.
    fn enter(&self) -> bool {
        let mut counts = self.counts();
        let admitted = counts.connections < MAX_CONNECTIONS;
        counts.connections += usize::from(admitted);
        admitted
    }

    fn leave(&self) {
        self.counts().connections -= 1;
    }

    /// Answers a request; the end of the program waits for it.
    pub(crate) fn during<R>(&self, answer: impl FnOnce() -> R) -> R {
        self.counts().requests += 1;
        let result = answer();
        self.counts().requests -= 1;
        self.answered.notify_all();
        result
    }

    /// Waits until no request is being answered, but not for ever: the client that asked for the end shall hear
    /// that it comes.
    fn wait(&self) {
        let busy = |counts: &mut Counts| counts.requests > 0;
        drop(self.answered.wait_timeout_while(self.counts(), FAREWELL, busy));
    }
}

/// The sockets a router can be reached by. Those that are files vanish with it.
#[derive(Default)]
pub(crate) struct Listeners {
    tcp: Vec<TcpListener>,
    unix: Vec<UnixListener>,
    files: Vec<PathBuf>,
    traffic: Arc<Traffic>,
}

impl Drop for Listeners {
    fn drop(&mut self) {
        self.traffic.wait();
        for file in &self.files {
            // A file that someone else removed is gone as well.
            let _ = std::fs::remove_file(file);
        }
    }
}

impl Listeners {
    /// Opens sockets on TCP ports of this machine and on paths. Nobody is answered before [`Listeners::serve`].
    pub(crate) fn open(ports: &[PortRequest], paths: &[PathBuf]) -> anyhow::Result<Listeners> {
        let mut listeners = Listeners::default();
        for request in ports {
            listeners.tcp.push(listen_tcp(*request)?);
        }
        for path in paths {
            listeners.add_unix(path)?;
        }
        Ok(listeners)
    }

    /// Opens one on a path besides.
    pub(crate) fn add_unix(&mut self, path: &Path) -> anyhow::Result<()> {
        self.unix.push(listen_unix(path)?);
        self.files.push(path.to_path_buf());
        Ok(())
    }

    /// Opens one on an address of TCP besides.
    pub(crate) fn add_tcp(&mut self, address: SocketAddr) -> anyhow::Result<()> {
        let listener = TcpListener::bind(address);
        let listener = listener.map_err(|error| {
            let help = match error.kind() {
                std::io::ErrorKind::AddrNotAvailable => "; name an address that this machine has",
                std::io::ErrorKind::AddrInUse => "; end who listens there, or name another port",
                _ => "",
            };
            anyhow::anyhow!("can't listen on {address}: {}{help}", system_message(&error))
        });
        self.tcp.push(listener?);
        Ok(())
    }

    /// Whether there are none.
    pub(crate) fn is_empty(&self) -> bool {
        self.tcp.is_empty() && self.unix.is_empty()
    }

    /// Answers connections until the program ends.
    pub(crate) fn serve(&self, talker: &impl Talker) -> std::io::Result<()> {
        for listener in &self.tcp {
            let (listener, patience) = (listener.try_clone()?, talker.patience());
            let accept = move || {
                let (stream, _) = listener.accept()?;
                stream.set_read_timeout(patience)?;
                stream.set_write_timeout(patience)?;
                Ok(stream)
            };
            accept_all(accept, talker, &self.traffic)?;
        }
        for listener in &self.unix {
            let (listener, patience) = (listener.try_clone()?, talker.patience());
            let accept = move || {
                let (stream, _) = listener.accept()?;
                stream.set_read_timeout(patience)?;
                stream.set_write_timeout(patience)?;
                Ok(stream)
            };
            accept_all(accept, talker, &self.traffic)?;
        }
        Ok(())
    }
}

/// What is said on connections.
pub(crate) trait Talker: Clone + Send + 'static {
    /// How long a client may be silent, or not read; `None` for ever.
    fn patience(&self) -> Option<Duration>;
    /// Answers one client until it leaves.
    fn talk(&self, stream: &mut (impl Read + Write), traffic: &Traffic) -> std::io::Result<()>;
    /// What one of too many clients is told.
    fn too_many(&self) -> Vec<u8>;
}

/// The control socket's protocol.
#[derive(Clone)]
pub(crate) struct Control<H>(pub(crate) H);

fn listen_tcp(request: PortRequest) -> anyhow::Result<TcpListener> {
    let last = if request.or_next { request.port.saturating_add(PORTS_TRIED) } else { request.port };
    let mut result = TcpListener::bind((Ipv4Addr::LOCALHOST, request.port));
    for port in request.port + u16::from(request.port < last)..=last {
        if result.is_ok() {
            break;
        }
        result = TcpListener::bind((Ipv4Addr::LOCALHOST, port));
    }
    result.map_err(|error| {
        anyhow::anyhow!("can't listen on TCP port {}: {}", request.port, system_message(&error))
    })
}

/// Listens on a socket that only this user can connect to.
fn listen_unix(path: &Path) -> anyhow::Result<UnixListener> {
    remove_stale(path)?;
    let mask = rustix::process::umask(rustix::fs::Mode::from_raw_mode(0o177));
    let listener = UnixListener::bind(path);
    rustix::process::umask(mask);
    listener.map_err(|error| {
        let why = match error.kind() {
            std::io::ErrorKind::AddrInUse => {
                "there is something else of that name; name another socket".to_string()
            }
            std::io::ErrorKind::InvalidInput => format!("a socket's path has at most {LONGEST_PATH} bytes"),
            _ => refusal(&error),
        };
        anyhow::anyhow!("can't listen on {}: {why}", path.display())
    })
}

/// Removes a socket that nobody listens on any more.
fn remove_stale(path: &Path) -> anyhow::Result<()> {
    let is_socket = std::fs::symlink_metadata(path).is_ok_and(|file| file.file_type().is_socket());
    if !is_socket {
        return Ok(());
    }
    match UnixStream::connect(path) {
        Ok(_) => {
            bail!("{}: a router listens there already; end it, or name another socket", path.display())
        }
        Err(error) if error.kind() == std::io::ErrorKind::ConnectionRefused => {
            std::fs::remove_file(path).with_context(|| format!("can't remove {}", path.display()))
        }
        Err(error) => bail!("can't listen on {}: {}", path.display(), refusal(&error)),
    }
}

/// Why a socket can't be had, and what helps.
fn refusal(error: &std::io::Error) -> String {
    let help = match error.kind() {
        std::io::ErrorKind::PermissionDenied => "; run as root, or name another socket",
        std::io::ErrorKind::NotFound => "; make the folder first, or name another socket",
        _ => "",
    };
    system_message(error) + help
}

fn accept_all<S: Read + Write + Send + 'static>(
    accept: impl Fn() -> std::io::Result<S> + Send + 'static,
    talker: &impl Talker,
    traffic: &Arc<Traffic>,
) -> std::io::Result<()> {
    let (talker, traffic) = (talker.clone(), traffic.clone());
    let body = move || {
        loop {
            match accept() {
                Ok(stream) => connect(stream, &talker, &traffic),
                // Out of descriptors, most likely: others must go first.
                Err(_) => std::thread::sleep(Duration::from_millis(10)),
            }
        }
    };
    std::thread::Builder::new().name("control".to_string()).spawn(body).map(drop)
}

/// Starts a thread for a connection, or turns it away.
fn connect<S: Read + Write + Send + 'static>(mut stream: S, talker: &impl Talker, traffic: &Arc<Traffic>) {
    if !traffic.enter() {
        // Whoever is turned away may be gone already.
        let _ = stream.write_all(&talker.too_many());
        return;
    }
    let (talker, held) = (talker.clone(), traffic.clone());
    let body = move || {
        // A connection that breaks concerns nobody but its client, who sees it.
        let _ = talker.talk(&mut stream, &held);
        held.leave();
    };
    if std::thread::Builder::new().name("connection".to_string()).spawn(body).is_err() {
        traffic.leave();
    }
}

impl<H: Handlers> Talker for Control<H> {
    fn patience(&self) -> Option<Duration> {
        None
    }

    fn too_many(&self) -> Vec<u8> {
        [GREETING.as_bytes(), &codec::reply(590, &["Too many connections"])].concat()
    }

    fn talk(&self, stream: &mut (impl Read + Write), traffic: &Traffic) -> std::io::Result<()> {
        stream.write_all(GREETING.as_bytes())?;
        let mut input = Vec::new();
        let mut chunk = vec![0; 65536];
        let mut closed = false;
        loop {
            while let Parsed::Request(request, used) = parse(&input, closed) {
                input.drain(..used);
                let goes_on = traffic.during(|| match answer(&self.0, request) {
                    Answer::Reply(bytes) => stream.write_all(&bytes).map(|()| true),
                    Answer::Last(bytes) => stream.write_all(&bytes).map(|()| false),
                })?;
                if !goes_on {
                    return Ok(());
                }
            }
            if closed {
                return Ok(());
            }
            let limit = (MAX_DATA + MAX_LINE + 2).saturating_sub(input.len()).clamp(1, chunk.len());
            match stream.read(&mut chunk[..limit]) {
                Ok(0) => closed = true,
                Ok(count) => input.extend_from_slice(&chunk[..count]),
                Err(error) if error.kind() == std::io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
    }
}
