//! A server of TCP for balancers: it says its number to each client, and then sends back what comes.

use crate::{Host, Result, RigError};
use std::io::{ErrorKind, Read as _, Write as _};
use std::net::{TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::thread::JoinHandle;
use std::time::Duration;

/// The pause of its only thread between two looks at its connections.
const PAUSE: Duration = Duration::from_millis(2);

/// A thread of this process with sockets of a host. It ends when this is dropped, and the host's kernel
/// refuses connections from then on.
pub struct EchoServer {
    has_ended: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl EchoServer {
    /// Listens at all IPv4 addresses of a host.
    pub fn start(host: &Host, port: u16, number: u8) -> Result<EchoServer> {
        let failed = |error| RigError::System(format!("a server can't listen at port {port}"), error);
        let listener = host.enter(|| TcpListener::bind(("0.0.0.0", port)))?.map_err(failed)?;
        listener.set_nonblocking(true).map_err(failed)?;
        let has_ended = Arc::new(AtomicBool::new(false));
        let ends = has_ended.clone();
        let thread = std::thread::spawn(move || serve(&listener, number, &ends));
        Ok(EchoServer { has_ended, thread: Some(thread) })
    }
}

impl Drop for EchoServer {
    fn drop(&mut self) {
        self.has_ended.store(true, Relaxed);
        // A server that panicked has said so.
        let _ = self.thread.take().map(JoinHandle::join);
    }
}

fn serve(listener: &TcpListener, number: u8, has_ended: &AtomicBool) {
    let mut clients: Vec<TcpStream> = Vec::new();
    while !has_ended.load(Relaxed) {
        while let Ok((mut client, _)) = listener.accept() {
            if client.write_all(&[number]).and_then(|()| client.set_nonblocking(true)).is_ok() {
                clients.push(client);
            }
        }
        clients.retain_mut(send_back);
        std::thread::sleep(PAUSE);
    }
}

/// Whether the connection goes on.
fn send_back(client: &mut TcpStream) -> bool {
    let mut buffer = [0; 512];
    match client.read(&mut buffer) {
        Ok(0) => false,
        Ok(length) => client.write_all(&buffer[..length]).is_ok(),
        Err(error) => error.kind() == ErrorKind::WouldBlock,
    }
}
