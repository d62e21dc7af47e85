//! A server of a service: threads of this process with sockets of a host.

use artery_rig::{Host, Result};
use std::io::{self, Read, Write};
use std::net::Shutdown::Both;
use std::net::{IpAddr, Ipv4Addr, TcpListener, TcpStream};
use std::sync::{Arc, Mutex};
use std::thread;

/// The port of the service.
pub(crate) const PORT: u16 = 80;
/// What a server says of itself before it answers anything: its number, and the address that
/// it was reached by.
pub(crate) const HELLO: usize = 5;

/// What a server does with a connection of a client; its number identifies it.
pub(crate) type Talk = fn(&mut TcpStream, u8) -> io::Result<()>;

/// A server that listens; it ends all its connections when it is dropped, as a process does that is killed.
pub(crate) struct Server {
    listener: Arc<TcpListener>,
    clients: Arc<Mutex<Vec<TcpStream>>>,
}

impl Server {
    pub(crate) fn start(host: &Host, number: u8, talk: Talk) -> Result<Server> {
        let listener = host.enter(|| TcpListener::bind((Ipv4Addr::UNSPECIFIED, PORT)).unwrap())?;
        let server = Server { listener: Arc::new(listener), clients: Arc::default() };
        let (listener, clients) = (server.listener.clone(), server.clients.clone());
        thread::spawn(move || {
            while let Ok((mut stream, _)) = listener.accept() {
                clients.lock().unwrap().push(stream.try_clone().unwrap());
                // A client that ends is not an error of the server.
                thread::spawn(move || talk(&mut stream, number).and_then(|()| stream.shutdown(Both)));
            }
        });
        Ok(server)
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        // This wakes who waits for clients.
        let _ = rustix::net::shutdown(&self.listener, rustix::net::Shutdown::Both);
        for client in self.clients.lock().unwrap().drain(..) {
            let _ = client.shutdown(Both);
        }
    }
}

/// Sends the server's number, then echoes whatever it receives.
pub(crate) fn echo(stream: &mut TcpStream, number: u8) -> io::Result<()> {
    let IpAddr::V4(own) = stream.local_addr()?.ip() else { return Ok(()) };
    let mut hello = [number; HELLO];
    hello[1..].copy_from_slice(&own.octets());
    stream.write_all(&hello)?;
    let mut buffer = [0; 4096];
    loop {
        match stream.read(&mut buffer)? {
            0 => return Ok(()),
            length => stream.write_all(&buffer[..length])?,
        }
    }
}

/// Answers one request of HTTP by its number.
pub(crate) fn http(stream: &mut TcpStream, number: u8) -> io::Result<()> {
    let (mut request, mut buffer) = (Vec::new(), [0; 1024]);
    while !request.ends_with(b"\r\n\r\n") {
        match stream.read(&mut buffer)? {
            0 => return Ok(()),
            length => request.extend_from_slice(&buffer[..length]),
        }
    }
    write!(stream, "HTTP/1.1 200 OK\r\nContent-Length: 5\r\nConnection: close\r\n\r\nweb{number}\n")
}
