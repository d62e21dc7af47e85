//! Notifications to the service manager (sd_notify(3)): datagrams to the socket that it names. The socket is
//! opened once, before rights are given up, and never waits for the manager, as a crate's would.
use artery_engine::Handle;
use rustix::time::{ClockId, clock_gettime};
use std::ffi::{OsStr, OsString};
use std::io;
use std::os::linux::net::SocketAddrExt as _;
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::net::{SocketAddr, UnixDatagram};
use std::time::{Duration, Instant};

/// The service manager, if one started this program and listens.
#[derive(Debug, Default)]
pub(crate) struct Notifier {
    socket: Option<(UnixDatagram, SocketAddr)>,
    /// How often a sign of life is due, and when the last was given.
    watchdog: Option<(Duration, Instant)>,
}

impl Notifier {
    /// The service manager of the environment's variables.
    pub(crate) fn of_environment() -> Notifier {
        let variable = |name| std::env::var_os(name).filter(|value: &OsString| !value.is_empty());
        // Without a connection the program runs all the same: the manager notices by itself.
        let socket = variable("NOTIFY_SOCKET").and_then(|path| connect(&path).ok());
        let number = |name| variable(name)?.to_str()?.parse::<u64>().ok();
        let is_ours = number("WATCHDOG_PID").is_none_or(|pid| pid == u64::from(std::process::id()));
        let every = number("WATCHDOG_USEC").filter(|every| *every > 0 && is_ours);
        let watchdog = every.map(|every| (Duration::from_micros(every / 2), Instant::now()));
        Notifier { watchdog: watchdog.filter(|_| socket.is_some()), socket }
    }

    /// Whether a service manager listens.
    pub(crate) fn is_there(&self) -> bool {
        self.socket.is_some()
    }

    /// The service is ready, for the first time or again.
    pub(crate) fn ready(&self, status: &str) {
        self.send(&format!("READY=1\nSTATUS={}", one_line(status)));
    }

    /// The service reads its configuration again.
    pub(crate) fn reloading(&self) {
        let now = clock_gettime(ClockId::Monotonic);
        self.send(&format!("RELOADING=1\nMONOTONIC_USEC={}", now.tv_sec * 1_000_000 + now.tv_nsec / 1000));
    }

    /// The service is stopping.
    pub(crate) fn stopping(&self) {
        self.send("STOPPING=1");
    }

    /// A line on what the service does.
    pub(crate) fn status(&self, status: &str) {
        self.send(&format!("STATUS={}", one_line(status)));
    }

    /// Gives a sign of life where one is due, and says until when the next may wait.
    pub(crate) fn live(&mut self, now: Instant) -> Duration {
        let Some((every, last)) = self.watchdog else { return Duration::MAX };
        let since = now.saturating_duration_since(last);
        if since < every {
            return every - since;
        }
        self.watchdog = Some((every, now));
        self.send("WATCHDOG=1");
        every
    }

    fn send(&self, text: &str) {
        if let Some((socket, address)) = &self.socket {
            // A manager that does not listen any more needs no message.
            let _ = socket.send_to_addr(text.as_bytes(), address);
        }
    }
}

/// How soon workers that did not answer are queried again.
const ASK_AGAIN: Duration = Duration::from_millis(100);

/// From now on sends watchdog messages for as long as all workers of a router answer, if the
/// service manager requires them.
pub(crate) fn start_watchdog(handle: Handle) -> io::Result<()> {
    let mut manager = Notifier::of_environment();
    let mut wait = manager.live(Instant::now());
    if wait == Duration::MAX {
        return Ok(());
    }
    let body = move || {
        while !handle.has_ended() {
            std::thread::sleep(wait);
            wait = if handle.is_responsive() { manager.live(Instant::now()) } else { ASK_AGAIN };
        }
    };
    std::thread::Builder::new().name("watchdog".to_string()).spawn(body).map(drop)
}

fn one_line(text: &str) -> String {
    text.replace('\n', " ")
}

/// A socket to send by, and where to: a path, or a name of no file where it begins with an at sign.
fn connect(path: &OsStr) -> io::Result<(UnixDatagram, SocketAddr)> {
    let address = match path.as_bytes().strip_prefix(b"@") {
        Some(name) => SocketAddr::from_abstract_name(name)?,
        None => SocketAddr::from_pathname(path)?,
    };
    let socket = UnixDatagram::unbound()?;
    socket.set_nonblocking(true)?;
    Ok((socket, address))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_listens_is_told_and_signs_of_life_come_when_they_are_due() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("notify");
        let manager = UnixDatagram::bind(&path).unwrap();
        let now = Instant::now();
        let mut notifier = Notifier {
            socket: Some(connect(path.as_os_str()).unwrap()),
            watchdog: Some((Duration::from_secs(5), now)),
        };
        let mut told = [0; 256];
        let mut next = || {
            let length = manager.recv(&mut told).unwrap();
            String::from_utf8(told[..length].to_vec()).unwrap()
        };
        notifier.ready("forwards\n2 ports");
        assert_eq!(next(), "READY=1\nSTATUS=forwards 2 ports");
        notifier.reloading();
        assert!(next().starts_with("RELOADING=1\nMONOTONIC_USEC="));
        assert_eq!(notifier.live(now + Duration::from_secs(2)), Duration::from_secs(3));
        assert_eq!(notifier.live(now + Duration::from_secs(6)), Duration::from_secs(5));
        assert_eq!(next(), "WATCHDOG=1");
        drop(manager);
        notifier.stopping();
    }

    #[test]
    fn without_a_manager_nothing_is_due() {
        assert_eq!(Notifier::default().live(Instant::now()), Duration::MAX);
    }
}
