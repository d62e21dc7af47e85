//! Which process owns an interface. Packet sockets can be opened by any number of processes, which would
//! all forward and answer; so a process that takes frames from an interface, or sends by it, listens at a
//! name that the kernel keeps for the network namespace. The kernel removes the name when the process ends,
//! however it ends.
use crate::privsep::drop_capabilities;
use crate::{DeviceError, Interface, sys};
use rustix::fd::{AsFd as _, BorrowedFd, OwnedFd};
use rustix::io::Errno;
use rustix::net::{AddressFamily, SocketAddrUnix, SocketFlags, SocketType, connect, socket_with};
use rustix::process::{Pid, Uid};
use std::io::ErrorKind;
use std::os::linux::net::SocketAddrExt as _;
use std::os::unix::net::{SocketAddr, UnixListener, UnixStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::thread::JoinHandle;
use std::time::Duration;

/// Time between two tries.
const PAUSE: Duration = Duration::from_millis(100);
/// How often a name is connected to whose listener has too many connections waiting.
const TRIES: u32 = 10;
/// Most characters of a command line that are shown.
const LONGEST_NAME: usize = 60;

/// An interface that this process owns; dropping it lets another process have the interface.
#[derive(Debug)]
pub struct PortClaim {
    index: u32,
    is_shared: bool,
    /// `None` where another claim holds the interface, or nothing could be held.
    held: Option<HeldClaim>,
}

#[derive(Debug)]
struct HeldClaim {
    name: SocketAddr,
    /// Until a thread answers on it.
    listener: Option<UnixListener>,
    is_over: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl PortClaim {
    /// Claims an interface, unless another process owns it. Several claims of one process share it, until
    /// the first of them is dropped.
    pub fn new(interface: &Interface) -> Result<PortClaim, DeviceError> {
        let claim = PortClaim::bind(interface, false)?;
        refuse_owner(interface, true)?;
        Ok(claim)
    }

    /// Claims an interface beside other claims of this kind: of processes that can take over from each
    /// other while frames pass. See [`renew`](Self::renew).
    pub fn shared(interface: &Interface) -> Result<PortClaim, DeviceError> {
        let claim = PortClaim::bind(interface, true)?;
        refuse_owner(interface, false)?;
        Ok(claim)
    }

    /// Takes over a shared claim once its previous holder has ended.
    pub fn renew(&mut self) {
        if self.is_shared
            && self.held.is_none()
            && let Some(name) = name_of(self.index, true)
            && let Ok(listener) = UnixListener::bind_addr(&name)
        {
            self.held = Some(HeldClaim::new(name, listener));
            self.start_thread();
        }
    }

    fn bind(interface: &Interface, is_shared: bool) -> Result<PortClaim, DeviceError> {
        let unheld = PortClaim { index: interface.index, is_shared, held: None };
        let Some(name) = name_of(interface.index, is_shared) else { return Ok(unheld) };
        match UnixListener::bind_addr(&name) {
            Ok(listener) => Ok(PortClaim { held: Some(HeldClaim::new(name, listener)), ..unheld }),
            Err(error) if error.kind() == ErrorKind::AddrInUse && !is_shared => {
                refuse_owner(interface, false).map(|()| unheld)
            }
            Err(_) => Ok(unheld),
        }
    }

    /// The kernel's index of the interface.
    pub fn index(&self) -> u32 {
        self.index
    }

    /// Has a thread accept the connections of processes that query the interface's owner. The kernel keeps
    /// some of them pending until then.
    pub fn serve(mut self) -> PortClaim {
        self.start_thread();
        self
    }

    fn start_thread(&mut self) {
        if let Some(held) = &mut self.held
            && let Some(listener) = held.listener.take()
        {
            let is_over = held.is_over.clone();
            let body = move || {
                // It may be there before the process gives its rights up, and needs none. Without it the
                // threads that parse packets have none all the same.
                let _ = drop_capabilities();
                accept_until(&listener, &is_over);
            };
            // Without a thread other processes can't query the owner; this one goes on.
            held.thread = std::thread::Builder::new().name("port-owner".to_string()).spawn(body).ok();
        }
    }
}

impl HeldClaim {
    fn new(name: SocketAddr, listener: UnixListener) -> HeldClaim {
        HeldClaim { name, listener: Some(listener), is_over: Arc::default(), thread: None }
    }
}

impl Drop for PortClaim {
    fn drop(&mut self) {
        if let Some(HeldClaim { name, is_over, thread: Some(thread), .. }) = self.held.take() {
            is_over.store(true, Relaxed);
            // Wakes the thread. When it has ended the interface is free, also for another claim of this
            // process.
            if UnixStream::connect_addr(&name).is_ok() {
                let _ = thread.join();
            }
        }
    }
}

fn accept_until(listener: &UnixListener, is_over: &AtomicBool) {
    while !is_over.load(Relaxed) {
        if listener.accept().is_err() {
            // Out of descriptors, most likely.
            std::thread::sleep(PAUSE);
        }
    }
}

/// The name that the interface's owner listens at. It has the interface's number, which stays
/// when that is renamed.
fn name_of(index: u32, is_shared: bool) -> Option<SocketAddr> {
    let kind = if is_shared { "adopted" } else { "port" };
    SocketAddr::from_abstract_name(format!("artery/{kind}/{index}")).ok()
}

/// An error if another process has a claim of a kind.
pub(crate) fn refuse_owner(interface: &Interface, is_shared: bool) -> Result<(), DeviceError> {
    let owner = name_of(interface.index, is_shared).and_then(|name| other_owner(&name));
    let name = || interface.name.clone();
    owner.map_or(Ok(()), |owner| Err(DeviceError::OwnedByOther { name: name(), owner }))
}

/// The owner of an interface besides this process: its command line and process number. Only owners that are
/// root or this user count: others must not be able to keep a router from starting.
fn other_owner(name: &SocketAddr) -> Option<String> {
    let socket = connect_to_owner(name)?;
    let owner = PeerCredentials::of(socket.as_fd()).ok()?;
    if !owner.is_trusted() || owner.process == Some(rustix::process::getpid()) {
        return None;
    }
    let Some(pid) = owner.process else { return Some("a process in another PID namespace".to_string()) };
    let pid = pid.as_raw_nonzero();
    let command_line = std::fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
    Some(format!("{} (pid {pid})", process_name(&command_line)))
}

/// Who is at the other end of a Unix socket.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PeerCredentials {
    /// None if it is in a PID namespace that is not seen from here, as that of a container is not.
    pub process: Option<Pid>,
    user: Uid,
}

impl PeerCredentials {
    /// Asks the kernel; an error unless the descriptor is a connected Unix socket.
    pub fn of(socket: BorrowedFd<'_>) -> std::io::Result<PeerCredentials> {
        let found = sys::peer_credentials(socket)?;
        Ok(PeerCredentials { process: Pid::from_raw(found.pid), user: Uid::from_raw(found.uid) })
    }

    /// Whether it is root or this process's user.
    pub fn is_trusted(&self) -> bool {
        self.user.is_root() || self.user == rustix::process::geteuid()
    }
}

/// Connects to the process that listens at a name. One that never accepts could keep the caller waiting for
/// ever, and any user may listen; so this gives up after a second.
fn connect_to_owner(name: &SocketAddr) -> Option<OwnedFd> {
    let address = SocketAddrUnix::new_abstract_name(name.as_abstract_name()?).ok()?;
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    let socket = socket_with(AddressFamily::UNIX, SocketType::STREAM, flags, None).ok()?;
    for _ in 0..TRIES {
        match connect(&socket, &address) {
            Err(Errno::AGAIN) => std::thread::sleep(PAUSE),
            result => return result.ok().map(|()| socket),
        }
    }
    None
}

/// A command line as it is shown: words with blanks between them, the program without its folder.
fn process_name(command_line: &[u8]) -> String {
    let text = String::from_utf8_lossy(command_line);
    let mut words = text.trim_end_matches('\0').split('\0');
    let program = words.next().unwrap_or_default().rsplit('/').next().unwrap_or_default();
    if program.is_empty() {
        return "a process".to_string();
    }
    let line = words.fold(program.to_string(), |line, word| line + " " + word);
    let shown: String = line.escape_debug().take(LONGEST_NAME).collect();
    let rest = if line.escape_debug().count() > LONGEST_NAME { "…" } else { "" };
    format!("'{shown}{rest}'")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_process_is_named_by_its_command_line() {
        assert_eq!(process_name(b"/usr/bin/artery\0run\0fw.click\0"), "'artery run fw.click'");
        assert_eq!(process_name(b"artery\0run\0-e\0a\x1b[31m\n\0"), r"'artery run -e a\u{1b}[31m\n'");
        assert_eq!(process_name(b""), "a process");
        assert!(process_name(&[b'x'; 1000]).chars().count() < 70);
    }

    #[test]
    fn a_listener_that_never_accepts_is_not_waited_for_longer_than_a_second() {
        let name = SocketAddr::from_abstract_name(format!("artery/test/{}", std::process::id())).unwrap();
        let _listener = UnixListener::bind_addr(&name).unwrap();
        let mut waiting = Vec::new();
        while let Some(socket) = connect_to_owner(&name) {
            waiting.push(socket);
            assert!(waiting.len() < 100_000, "the kernel's limit is net.core.somaxconn");
        }
        assert!(!waiting.is_empty());
        assert!(other_owner(&name).is_none());
    }

    #[test]
    fn claims_of_one_process_share_an_interface() {
        let interface = Interface::find("lo").unwrap();
        let (one, two) = (PortClaim::new(&interface).unwrap().serve(), PortClaim::new(&interface).unwrap());
        assert_eq!((one.index(), two.index()), (interface.index, interface.index));
        assert!(two.held.is_none());
        drop((one, two));
        assert!(PortClaim::new(&interface).unwrap().held.is_some(), "a claim that was dropped holds nothing");
    }
}
