//! Sockets that are listened on, and a thread for each connection.
use super::access::{ControlSettings, Group, Peer, TcpWrites, Token};
use super::connections::{Connection, Pool, Refused, Stream};
use super::port::PortRequest;
use super::shortage::ConnectionShortage;
use crate::output::Output;
use anyhow::{Context as _, bail};
use artery_device::{PeerCredentials, files, system_message};
use rustix::fd::AsFd as _;
use rustix::fs::{Gid, Mode};
use std::io;
use std::net::{Ipv4Addr, SocketAddr, TcpListener};
use std::os::unix::fs::FileTypeExt as _;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

/// What fits in a socket's address beside its end.
const LONGEST_PATH: usize = 107;
/// Ports that `PORT+` tries.
const PORTS_TRIED: u16 = 100;
/// Time limit for sending a client that there are too many connections.
const REFUSAL: Duration = Duration::from_millis(100);
/// Time until a connection is tried again that could not be accepted, and until one more is accepted while
/// connections end that had no answer yet.
const RETRY: Duration = Duration::from_millis(10);

/// The sockets a router can be reached by. Those that are files vanish with it.
#[derive(Default)]
pub(crate) struct Listeners {
    tcp: Vec<TcpListener>,
    unix: Vec<UnixListener>,
    files: Vec<PathBuf>,
    /// What allows TCP connections to write; none where all may.
    token: Option<Arc<Token>>,
    pools: Pools,
}

/// Connections by their kind of peer, so that one kind can't keep the others out.
#[derive(Clone, Default)]
struct Pools {
    tcp: Arc<Pool>,
    owner: Arc<Pool>,
    reader: Arc<Pool>,
}

impl Pools {
    fn of(&self, peer: Peer) -> &Arc<Pool> {
        match peer {
            Peer::Tcp => &self.tcp,
            Peer::Owner => &self.owner,
            Peer::Reader => &self.reader,
        }
    }
}

impl Drop for Listeners {
    fn drop(&mut self) {
        [&self.pools.owner, &self.pools.tcp, &self.pools.reader].into_iter().for_each(|pool| pool.wait());
        self.token.iter().for_each(|token| token.remove());
        for file in &self.files {
            // If another process has removed the file, that is fine as well.
            let _ = files::remove(file);
        }
    }
}

impl Listeners {
    /// Opens control sockets. No client is answered before [`Listeners::serve`].
    pub(crate) fn open(settings: &ControlSettings) -> anyhow::Result<Listeners> {
        let mut listeners = Listeners::default();
        for request in &settings.ports {
            listeners.tcp.push(listen_tcp(*request)?);
        }
        for path in &settings.sockets {
            listeners.add_unix(path, settings.read_group.as_ref())?;
        }
        let first = listeners.tcp.first().map(TcpListener::local_addr).transpose()?;
        listeners.token = match (first, &settings.tcp) {
            (None, _) | (_, TcpWrites::Open) => None,
            (_, TcpWrites::Token(Some(file))) => Some(Token::named(file)?),
            (Some(first), TcpWrites::Token(None)) => Some(Token::made(first.port())?),
        }
        .map(Arc::new);
        Ok(listeners)
    }

    /// What allows TCP connections to write; none where all may.
    pub(crate) fn token(&self) -> Option<Arc<Token>> {
        self.token.clone()
    }

    /// Reports the write access by TCP.
    pub(crate) fn say_access(&self, voice: Output) {
        for port in self.tcp.iter().filter_map(|listener| listener.local_addr().ok()) {
            let (port, number) = (format!("TCP port {}", port.port()), port.port().to_string());
            match &self.token {
                Some(token) => {
                    let file = token.file().display().to_string();
                    let what = format!("{port}: writing handlers needs the token in {file}");
                    voice.log_event("control", &what, &[("port", &number), ("token_file", &file)]);
                }
                None => voice.open_port(&format!(
                    "{port} is open to all local users: each of them can write every handler"
                )),
            }
        }
    }

    /// Opens another one on a path. Members of `readers` may connect, too.
    pub(crate) fn add_unix(&mut self, path: &Path, readers: Option<&Group>) -> anyhow::Result<()> {
        self.unix.push(listen_unix(path, readers)?);
        self.files.push(path.to_path_buf());
        Ok(())
    }

    /// Opens another one on a TCP address.
    pub(crate) fn add_tcp(&mut self, address: SocketAddr) -> anyhow::Result<()> {
        let listener = TcpListener::bind(address);
        let listener = listener.map_err(|error| {
            let help = match error.kind() {
                io::ErrorKind::AddrNotAvailable => "; name an address that this machine has",
                io::ErrorKind::AddrInUse => "; end who listens there, or name another port",
                _ => "",
            };
            anyhow::anyhow!("can't listen on {address}: {}{help}", system_message(&error))
        });
        self.tcp.push(listener?);
        Ok(())
    }

    /// The files that go with these: sockets, and the token of this run.
    pub(crate) fn files(&self) -> Vec<PathBuf> {
        let token = self.token.iter().map(|token| token.file().to_path_buf());
        self.files.iter().cloned().chain(token).collect()
    }

    /// Whether there are no sockets.
    pub(crate) fn is_empty(&self) -> bool {
        self.tcp.is_empty() && self.unix.is_empty()
    }

    /// Answers connections until the program ends. A shortage of descriptors is reported to `voice`.
    pub(crate) fn serve(&self, talker: &impl Talker, voice: Output) -> io::Result<()> {
        for listener in &self.tcp {
            let listener = listener.try_clone()?;
            let accept = move || Ok((Box::new(listener.accept()?.0) as Box<dyn Stream>, Peer::Tcp));
            accept_all(accept, talker, &self.pools, voice)?;
        }
        for listener in &self.unix {
            let listener = listener.try_clone()?;
            let accept = move || {
                let (stream, _) = listener.accept()?;
                let peer = peer_of(&stream)?;
                Ok((Box::new(stream) as Box<dyn Stream>, peer))
            };
            accept_all(accept, talker, &self.pools, voice)?;
        }
        Ok(())
    }
}

/// The peer of a Unix socket, by the credentials that the kernel recorded (SO_PEERCRED, unix(7)).
fn peer_of(stream: &UnixStream) -> io::Result<Peer> {
    if PeerCredentials::of(stream.as_fd())?.is_trusted() { Ok(Peer::Owner) } else { Ok(Peer::Reader) }
}

/// The protocol that is spoken on connections.
pub(crate) trait Talker: Clone + Send + 'static {
    /// Answers one client until it leaves.
    fn talk(&self, connection: &mut Connection) -> io::Result<()>;
    /// The reply to a client beyond the limit of connections.
    fn too_many(&self) -> Vec<u8>;
}

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

/// Listens on a socket that only this user, root and members of a group can connect to.
fn listen_unix(path: &Path, readers: Option<&Group>) -> anyhow::Result<UnixListener> {
    remove_stale(path)?;
    let mask = rustix::process::umask(Mode::from_raw_mode(0o177));
    let listener = UnixListener::bind(path);
    rustix::process::umask(mask);
    let listener = listener.map_err(|error| {
        let why = match error.kind() {
            io::ErrorKind::AddrInUse => {
                "there is something else of that name; name another socket".to_string()
            }
            io::ErrorKind::InvalidInput => format!("a socket's path has at most {LONGEST_PATH} bytes"),
            _ => refusal(&error),
        };
        anyhow::anyhow!("can't listen on {}: {why}", path.display())
    })?;
    if let Some(group) = readers
        && let Err(error) = admit(path, group)
    {
        let _ = std::fs::remove_file(path);
        let help = "run as root, or as a member of the group";
        bail!("--read-group {}: {}; {help}", group.name, system_message(&error));
    }
    Ok(listener)
}

/// Lets members of a group connect.
fn admit(path: &Path, group: &Group) -> io::Result<()> {
    rustix::fs::chown(path, None, Some(Gid::from_raw(group.id)))?;
    Ok(rustix::fs::chmod(path, Mode::from_raw_mode(0o660))?)
}

/// Removes a socket that no process listens on any more.
fn remove_stale(path: &Path) -> anyhow::Result<()> {
    let is_socket = std::fs::symlink_metadata(path).is_ok_and(|file| file.file_type().is_socket());
    if !is_socket {
        return Ok(());
    }
    match UnixStream::connect(path) {
        Ok(_) => {
            bail!("{}: a router listens there already; end it, or name another socket", path.display())
        }
        Err(error) if error.kind() == io::ErrorKind::ConnectionRefused => {
            std::fs::remove_file(path).with_context(|| format!("can't remove {}", path.display()))
        }
        Err(error) => bail!("can't listen on {}: {}", path.display(), refusal(&error)),
    }
}

/// Why a socket can't be opened, and what helps.
fn refusal(error: &io::Error) -> String {
    let help = match error.kind() {
        io::ErrorKind::PermissionDenied => "; run as root, or name another socket",
        io::ErrorKind::NotFound => "; make the folder first, or name another socket",
        io::ErrorKind::ReadOnlyFilesystem => "; name another socket (-u PATH), where files can be written",
        _ => "",
    };
    system_message(error) + help
}

fn accept_all(
    accept: impl Fn() -> io::Result<(Box<dyn Stream>, Peer)> + Send + 'static,
    talker: &impl Talker,
    pools: &Pools,
    voice: Output,
) -> io::Result<()> {
    let (talker, pools) = (talker.clone(), pools.clone());
    let body = move || {
        let mut shortage = ConnectionShortage::new(voice);
        loop {
            let taken = accept().and_then(|(stream, peer)| connect(stream, peer, &talker, &pools));
            shortage.record(&taken);
            if taken.is_err() {
                // Out of descriptors, most likely: others must go first.
                std::thread::sleep(RETRY);
            }
        }
    };
    std::thread::Builder::new().name("control".to_string()).spawn(body).map(drop)
}

/// Starts a thread for a connection, or turns it away.
///
/// # Errors
/// An error if there can't be another thread; the connection is closed then.
fn connect(stream: Box<dyn Stream>, peer: Peer, talker: &impl Talker, pools: &Pools) -> io::Result<()> {
    let mut connection = match pools.of(peer).enter(stream, peer) {
        Ok(connection) => connection,
        Err(Refused(mut stream)) => {
            // A client that is turned away may be gone already.
            let _ =
                stream.set_timeouts(None, Some(REFUSAL)).and_then(|()| stream.write_all(&talker.too_many()));
            return Ok(());
        }
    };
    let is_crowded = peer == Peer::Tcp && connection.displaced_unserved();
    let talker = talker.clone();
    // An error on a connection concerns only its client, who sees it.
    let body = move || {
        if talker.talk(&mut connection).is_ok() {
            connection.end();
        }
    };
    std::thread::Builder::new().name("connection".to_string()).spawn(body)?;
    if is_crowded {
        // So that each has some time for its first request, however fast others come. Unix sockets have other
        // users than readers, who would wait for that.
        std::thread::sleep(RETRY);
    }
    Ok(())
}
