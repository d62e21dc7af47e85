//! Which process owns an interface. Packet sockets can be opened by any number of processes, which would
//! all forward and answer; so a process that takes frames from an interface, or sends by it, listens at a
//! name that the kernel keeps for the network namespace. The kernel removes the name when the process ends,
//! however it ends.
use crate::{DeviceError, Interface};
use rustix::net::sockopt::socket_peercred;
use std::io::ErrorKind;
use std::os::linux::net::SocketAddrExt as _;
use std::os::unix::net::{SocketAddr, UnixListener, UnixStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::thread::JoinHandle;
use std::time::Duration;

/// From one try to the next where something can't be had.
const PAUSE: Duration = Duration::from_millis(100);
/// Most characters of a command line that are shown.
const LONGEST_NAME: usize = 60;

/// An interface that this process owns; dropping it lets another process have the interface.
#[derive(Debug)]
pub struct PortClaim {
    index: u32,
    /// `None` where another claim of this process holds the interface, or nothing could be held.
    held: Option<Held>,
}

#[derive(Debug)]
struct Held {
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
        let unheld = PortClaim { index: interface.index, held: None };
        // By its number, which stays when it is renamed.
        let Ok(name) = SocketAddr::from_abstract_name(format!("artery/port/{}", interface.index)) else {
            return Ok(unheld);
        };
        match UnixListener::bind_addr(&name) {
            Ok(listener) => {
                let held = Held { name, listener: Some(listener), is_over: Arc::default(), thread: None };
                Ok(PortClaim { held: Some(held), ..unheld })
            }
            Err(error) if error.kind() == ErrorKind::AddrInUse => match other_owner(&name) {
                Some(owner) => Err(DeviceError::OwnedByOther { name: interface.name.clone(), owner }),
                None => Ok(unheld),
            },
            Err(_) => Ok(unheld),
        }
    }

    /// The interface's number.
    pub fn index(&self) -> u32 {
        self.index
    }

    /// Has a thread take in those that ask who owns the interface, of whom the kernel keeps a few waiting.
    pub fn serve(mut self) -> PortClaim {
        if let Some(held) = &mut self.held
            && let Some(listener) = held.listener.take()
        {
            let is_over = held.is_over.clone();
            let body = move || accept_until(&listener, &is_over);
            // Where there is no thread to be had, the next process can't tell, and this one has other
            // worries.
            held.thread = std::thread::Builder::new().name("port-owner".to_string()).spawn(body).ok();
        }
        self
    }
}

impl Drop for PortClaim {
    fn drop(&mut self) {
        if let Some(Held { name, is_over, thread: Some(thread), .. }) = self.held.take() {
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

/// Who owns an interface beside this process: the command line and the process. Only root and this user
/// count: others must not be able to keep a router from starting.
fn other_owner(name: &SocketAddr) -> Option<String> {
    let stream = UnixStream::connect_addr(name).ok()?;
    let owner = socket_peercred(&stream).ok()?;
    let is_trusted = owner.uid.is_root() || owner.uid == rustix::process::geteuid();
    if !is_trusted || owner.pid == rustix::process::getpid() {
        return None;
    }
    let pid = owner.pid.as_raw_nonzero();
    let command_line = std::fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
    Some(format!("{} (pid {pid})", process_name(&command_line)))
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
    fn claims_of_one_process_share_an_interface() {
        let interface = Interface::find("lo").unwrap();
        let (one, two) = (PortClaim::new(&interface).unwrap().serve(), PortClaim::new(&interface).unwrap());
        assert_eq!((one.index(), two.index()), (interface.index, interface.index));
        assert!(two.held.is_none());
        drop((one, two));
        assert!(PortClaim::new(&interface).unwrap().held.is_some(), "a claim that was dropped holds nothing");
    }
}
