//! Servers: threads of this process with sockets of a host, that send back what comes.

use std::io::{ErrorKind, Read as _, Write as _};
use std::net::{TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::thread::JoinHandle;
use std::time::Duration;

use artery_rig::{Host, Result};

use crate::network::PORT;

/// The pause of a server's only thread between two looks at its connections.
const PAUSE: Duration = Duration::from_millis(2);

/// It ends when this is dropped.
pub(crate) struct Server {
    has_ended: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

pub(crate) fn start(host: &Host, number: u8) -> Result<Server> {
    let listener = host.enter(|| TcpListener::bind(("0.0.0.0", PORT)).expect("a server can't listen"))?;
    let has_ended = Arc::new(AtomicBool::new(false));
    let ends = has_ended.clone();
    let thread = std::thread::spawn(move || serve(&listener, number, &ends));
    Ok(Server { has_ended, thread: Some(thread) })
}

fn serve(listener: &TcpListener, number: u8, has_ended: &AtomicBool) {
    listener.set_nonblocking(true).expect("a socket takes the option");
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

impl Drop for Server {
    fn drop(&mut self) {
        self.has_ended.store(true, Relaxed);
        // A server that panicked has said so.
        let _ = self.thread.take().map(JoinHandle::join);
    }
}
