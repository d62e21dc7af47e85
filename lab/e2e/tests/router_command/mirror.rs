//! Servers that reply with the client address that they see, and clients that ask for it.

use crate::support::SOON;
use artery_rig::{Host, Result};
use std::io::{self, ErrorKind, Read as _, Write as _};
use std::net::{IpAddr, SocketAddr, TcpListener, TcpStream, UdpSocket};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::thread;
use std::time::Duration;

/// How long an answer may take that does come.
const PATIENCE: Duration = Duration::from_secs(3);

/// The reply that a client receives.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Said {
    /// The address that the server sees.
    You(IpAddr),
    Error(ErrorKind),
}

impl Said {
    fn of(outcome: io::Result<String>) -> Said {
        match outcome.and_then(|text| text.parse().map_err(io::Error::other)) {
            Ok(address) => Said::You(address),
            Err(error) => Said::Error(error.kind()),
        }
    }
}

/// A server of TCP and UDP at a port of a host. It ends when it is dropped.
pub(crate) struct Mirror {
    listener: Arc<TcpListener>,
    is_over: Arc<AtomicBool>,
}

impl Mirror {
    pub(crate) fn start(host: &Host, port: u16) -> Result<Mirror> {
        let (listener, socket) = host
            .enter(|| (TcpListener::bind(("::", port)).unwrap(), UdpSocket::bind(("::", port)).unwrap()))?;
        let mirror = Mirror { listener: Arc::new(listener), is_over: Arc::default() };
        let (listener, is_over) = (mirror.listener.clone(), mirror.is_over.clone());
        thread::spawn(move || {
            while let Ok((stream, from)) = listener.accept() {
                thread::spawn(move || serve(stream, from));
            }
        });
        socket.set_read_timeout(Some(Duration::from_millis(20))).unwrap();
        thread::spawn(move || {
            let mut buffer = [0; 64];
            while !is_over.load(Relaxed) {
                if let Ok((_, from)) = socket.recv_from(&mut buffer) {
                    let _ = socket.send_to(name(from).as_bytes(), from);
                }
            }
        });
        Ok(mirror)
    }
}

impl Drop for Mirror {
    fn drop(&mut self) {
        self.is_over.store(true, Relaxed);
        // This wakes who waits for clients.
        let _ = rustix::net::shutdown(&self.listener, rustix::net::Shutdown::Both);
    }
}

fn name(from: SocketAddr) -> String {
    from.ip().to_canonical().to_string()
}

/// Answers a line with the address, and every byte behind it with itself.
fn serve(mut stream: TcpStream, from: SocketAddr) {
    let _ = stream.write_all(format!("{}\n", name(from)).as_bytes());
    let mut one = [0];
    while stream.read_exact(&mut one).is_ok() && stream.write_all(&one).is_ok() {}
}

/// A connection to a mirror.
pub(crate) struct Line(TcpStream);

impl Line {
    pub(crate) fn open(client: &Host, to: &str, port: u16) -> Result<Line> {
        let mut line = client.enter(|| connect(to, port).unwrap())?;
        read_name(&mut line).unwrap();
        Ok(Line(line))
    }

    /// Sends a byte there and back.
    pub(crate) fn echo(&mut self) -> Result<()> {
        self.0.write_all(b".").unwrap();
        let mut one = [0];
        self.0.read_exact(&mut one).unwrap();
        assert_eq!(&one, b".");
        Ok(())
    }
}

fn connect(to: &str, port: u16) -> io::Result<TcpStream> {
    let stream = TcpStream::connect_timeout(&SocketAddr::new(to.parse().unwrap(), port), PATIENCE)?;
    stream.set_read_timeout(Some(SOON))?;
    Ok(stream)
}

fn read_name(stream: &mut TcpStream) -> io::Result<String> {
    let (mut text, mut one) = (Vec::new(), [0]);
    loop {
        stream.read_exact(&mut one)?;
        match one[0] {
            b'\n' => return String::from_utf8(text).map_err(io::Error::other),
            byte => text.push(byte),
        }
    }
}

/// What a mirror at an address says by TCP.
pub(crate) fn ask_tcp(client: &Host, to: &str, port: u16) -> Result<Said> {
    client.enter(|| Said::of(connect(to, port).and_then(|mut stream| read_name(&mut stream))))
}

/// The same by UDP; an error is one that an ICMP message reports.
pub(crate) fn ask_udp(client: &Host, to: &str, port: u16) -> Result<Said> {
    let to = SocketAddr::new(to.parse().unwrap(), port);
    client.enter(|| {
        let any = if to.is_ipv4() { "0.0.0.0:0" } else { "[::]:0" };
        let ask = || {
            let socket = UdpSocket::bind(any)?;
            socket.connect(to)?;
            socket.set_read_timeout(Some(PATIENCE))?;
            socket.send(b"?")?;
            let mut buffer = [0; 64];
            let length = socket.recv(&mut buffer)?;
            String::from_utf8(buffer[..length].to_vec()).map_err(io::Error::other)
        };
        Said::of(ask())
    })
}
