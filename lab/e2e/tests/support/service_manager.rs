//! The other end of sd_notify(3).
use super::SOON;
use artery_rig::{Process, Result, RigError};
use std::os::unix::net::UnixDatagram;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

/// A service manager, as systemd is one.
pub struct ServiceManager {
    socket: UnixDatagram,
    /// Path of the socket, for NOTIFY_SOCKET.
    pub path: PathBuf,
}

impl ServiceManager {
    pub fn new(folder: &Path) -> ServiceManager {
        let path = folder.join("notify");
        let socket = UnixDatagram::bind(&path).unwrap();
        socket.set_read_timeout(Some(Duration::from_millis(100))).unwrap();
        ServiceManager { socket, path }
    }

    /// The next message of a program that begins so; others that come before it are signs of life, or say how
    /// it goes. A program that ends, or takes too long, is an error that shows what it has said.
    pub fn wait_for(&self, program: &mut Process, wanted: &str) -> Result<String> {
        let deadline = Instant::now() + 6 * SOON;
        loop {
            let mut text = [0; 1024];
            let Ok(length) = self.socket.recv(&mut text) else {
                match program.is_running() && Instant::now() < deadline {
                    true => continue,
                    false => return Err(RigError::NotSeen(program.failure(), wanted.to_owned())),
                }
            };
            let text = String::from_utf8_lossy(&text[..length]).into_owned();
            if text.starts_with(wanted) {
                return Ok(text);
            }
            assert!(text == "WATCHDOG=1" || text.starts_with("STATUS="), "{text} came, not {wanted}");
        }
    }
}
