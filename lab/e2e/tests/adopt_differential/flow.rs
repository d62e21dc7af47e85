//! Flows between hosts: datagrams, echoes, and connections of TCP.
use super::rules::Random;
use super::{FLOWS, HOSTS, address};
use crate::support::SOON;
use crate::support::adopting::Net;
use artery_rig::Result;
use rustix::net::{AddressFamily, Protocol, SocketFlags, SocketType, ipproto, socket_with, sockopt};
use std::io::{ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream, UdpSocket};
use std::os::fd::OwnedFd;
use std::time::Instant;

/// Flow, round, number, and whether it is an answer.
pub(super) type Message = (u16, u8, u8, bool);

/// A message that has arrived.
pub(super) struct Taken {
    pub(super) message: Message,
    pub(super) from: SocketAddr,
    /// Whether it came to the far end.
    pub(super) is_far: bool,
}

/// A flow, and the ends that it may come to.
pub(super) struct Flow {
    pub(super) source: SocketAddr,
    pub(super) to: SocketAddr,
    ends: Ends,
}

enum Ends {
    Datagrams {
        near: UdpSocket,
        far: Vec<UdpSocket>,
        /// The socket that datagrams came to, and from where.
        came: Option<(usize, SocketAddr)>,
    },
    /// The far host's kernel answers.
    Echoes(UdpSocket),
    Connection(Box<TcpEnds>),
    /// A connection that something was lost of: when it is sent again depends on clocks.
    Over,
}

struct TcpEnds {
    near: End,
    far: Option<(End, SocketAddr)>,
    listeners: Vec<TcpListener>,
    has_begun: bool,
    /// Messages that were sent and that have arrived, both ways.
    sent: usize,
    taken: usize,
    has_come: bool,
}

/// An end of a connection: what is yet to be sent, and what has arrived of a message.
struct End {
    stream: TcpStream,
    unsent: Vec<u8>,
    begun: Vec<u8>,
}

impl Flow {
    pub(super) fn open(net: &Net, number: u64, random: &mut Random) -> Result<Flow> {
        let is_v6 = random.one_in(3);
        let port = 1024 + (number % 60_000) as u16;
        let source = SocketAddr::new(address(1, random.of(&HOSTS), is_v6), port);
        let far_port = 1024 + (number % FLOWS as u64 * 3) as u16;
        let to = SocketAddr::new(address(2, random.of(&HOSTS), is_v6), far_port);
        let ends = match random.below(10) {
            0 => Ends::Echoes(net.a.enter(|| ping_socket(source))?),
            1..4 => {
                let near = net.a.enter(|| bound_stream(source))?;
                let listen = |host| retry(|| TcpListener::bind((address(2, host, is_v6), far_port)));
                let listeners: Vec<TcpListener> = net.b.enter(|| HOSTS.map(listen))?.into();
                let is_set = |one: &TcpListener| one.set_nonblocking(true).expect("it does not block");
                listeners.iter().for_each(is_set);
                let near = End::new(near);
                Ends::Connection(Box::new(TcpEnds {
                    near,
                    far: None,
                    listeners,
                    has_begun: false,
                    sent: 0,
                    taken: 0,
                    has_come: false,
                }))
            }
            _ => {
                let near = net.a.enter(|| bind(source))?;
                let far = |host| bind(SocketAddr::new(address(2, host, is_v6), far_port));
                Ends::Datagrams { near, far: net.b.enter(|| HOSTS.map(far))?.into(), came: None }
            }
        };
        Ok(Flow { source, to, ends })
    }

    /// The protocol's number.
    pub(super) fn protocol(&self) -> u8 {
        match self.ends {
            Ends::Datagrams { .. } => 17,
            Ends::Echoes(_) if self.to.is_ipv4() => 1,
            Ends::Echoes(_) => 58,
            Ends::Connection(_) | Ends::Over => 6,
        }
    }

    pub(super) fn ask(&mut self, message: Message) {
        let bytes = payload(message);
        match &mut self.ends {
            Ends::Datagrams { near, .. } => drop(near.send_to(&bytes, self.to)),
            Ends::Echoes(near) => {
                let kind = if self.to.is_ipv4() { 8 } else { 128 };
                let header = [kind, 0, 0, 0, 0, 0, message.1, message.2];
                drop(near.send_to(&[&header[..], &bytes].concat(), self.to));
            }
            Ends::Connection(ends) => {
                if !std::mem::replace(&mut ends.has_begun, true) {
                    // It goes on while it is waited for what arrives.
                    let _ = rustix::net::connect(&ends.near.stream, &self.to);
                }
                ends.near.send(&bytes);
                ends.sent += 1;
            }
            Ends::Over => {}
        }
    }

    /// Answers, if anything has arrived at the far end.
    pub(super) fn answer(&mut self, message: Message) {
        let bytes = payload(message);
        match &mut self.ends {
            Ends::Datagrams { far, came: Some((socket, from)), .. } => {
                drop(far[*socket].send_to(&bytes, *from));
            }
            Ends::Connection(ends) if ends.has_come => {
                if let Some((far, _)) = &mut ends.far {
                    far.send(&bytes);
                    ends.sent += 1;
                }
            }
            _ => {}
        }
    }

    /// Takes what has arrived.
    pub(super) fn take(&mut self, taken: &mut Vec<Taken>) {
        let mut bytes = [0; 2000];
        match &mut self.ends {
            Ends::Datagrams { near, far, came } => {
                while let Ok((length, from)) = near.recv_from(&mut bytes) {
                    taken.push(Taken { message: read(&bytes[..length]), from, is_far: false });
                }
                for (socket, far) in far.iter().enumerate() {
                    while let Ok((length, from)) = far.recv_from(&mut bytes) {
                        taken.push(Taken { message: read(&bytes[..length]), from, is_far: true });
                        *came = Some((socket, from));
                    }
                }
            }
            Ends::Echoes(near) => {
                while let Ok((length, from)) = near.recv_from(&mut bytes) {
                    taken.push(Taken { message: read(&bytes[8..length]), from, is_far: false });
                }
            }
            Ends::Connection(ends) => ends.take(self.to, taken),
            Ends::Over => {}
        }
    }

    /// Whether a connection has lost something.
    pub(super) fn lacks_something(&self) -> bool {
        matches!(&self.ends, Ends::Connection(ends) if ends.sent != ends.taken)
    }

    pub(super) fn is_connection(&self) -> bool {
        matches!(self.ends, Ends::Connection(_))
    }

    /// Ends a connection.
    pub(super) fn end(&mut self) {
        self.ends = Ends::Over;
    }
}

impl TcpEnds {
    fn take(&mut self, to: SocketAddr, taken: &mut Vec<Taken>) {
        for listener in &self.listeners {
            if let Ok((stream, from)) = listener.accept() {
                stream.set_nonblocking(true).expect("it does not block");
                self.far.get_or_insert((End::new(stream), from));
            }
        }
        for message in self.near.take() {
            taken.push(Taken { message, from: to, is_far: false });
            self.taken += 1;
        }
        let Some((far, from)) = &mut self.far else { return };
        for message in far.take() {
            taken.push(Taken { message, from: *from, is_far: true });
            self.taken += 1;
            self.has_come = true;
        }
    }
}

impl End {
    fn new(stream: TcpStream) -> End {
        stream.set_nodelay(true).expect("no delay");
        End { stream, unsent: Vec::new(), begun: Vec::new() }
    }

    fn send(&mut self, bytes: &[u8]) {
        self.unsent.extend(bytes);
        self.flush();
    }

    fn flush(&mut self) {
        while !self.unsent.is_empty() {
            // What can't be sent yet, or any more, stays.
            let Ok(length) = self.stream.write(&self.unsent) else { return };
            self.unsent.drain(..length);
        }
    }

    fn take(&mut self) -> Vec<Message> {
        self.flush();
        let mut bytes = [0; 4096];
        while let Ok(length @ 1..) = self.stream.read(&mut bytes) {
            self.begun.extend(&bytes[..length]);
        }
        let mut messages = Vec::new();
        while let Some(length) =
            self.begun.get(..5).map(message_length).filter(|all| *all <= self.begun.len())
        {
            messages.push(read(&self.begun[..length]));
            self.begun.drain(..length);
        }
        messages
    }
}

/// A socket at an address. One of an earlier scenario may be there a little longer: a program that another
/// test starts has it, too, until it is executed.
fn retry<T>(make: impl Fn() -> std::io::Result<T>) -> T {
    let begin = Instant::now();
    loop {
        match make() {
            Ok(socket) => return socket,
            Err(error) if error.kind() == ErrorKind::AddrInUse && begin.elapsed() < SOON => {
                std::thread::sleep(std::time::Duration::from_millis(5));
            }
            Err(error) => panic!("a socket: {error}"),
        }
    }
}

fn bind(at: SocketAddr) -> UdpSocket {
    let socket = retry(|| UdpSocket::bind(at));
    socket.set_nonblocking(true).expect("a socket that does not block");
    socket
}

/// A socket for echoes, whose identifier is the port.
fn ping_socket(at: SocketAddr) -> UdpSocket {
    let protocol = if at.is_ipv4() { ipproto::ICMP } else { ipproto::ICMPV6 };
    retry(|| Ok(UdpSocket::from(bound(at, SocketType::DGRAM, protocol)?)))
}

fn bound_stream(at: SocketAddr) -> TcpStream {
    retry(|| Ok(TcpStream::from(bound(at, SocketType::STREAM, ipproto::TCP)?)))
}

fn bound(at: SocketAddr, kind: SocketType, protocol: Protocol) -> std::io::Result<OwnedFd> {
    let family = if at.is_ipv4() { AddressFamily::INET } else { AddressFamily::INET6 };
    let socket = socket_with(family, kind, SocketFlags::NONBLOCK | SocketFlags::CLOEXEC, Some(protocol))?;
    sockopt::set_socket_reuseaddr(&socket, true)?;
    rustix::net::bind(&socket, &at)?;
    Ok(socket)
}

fn payload((flow, round, number, is_answer): Message) -> Vec<u8> {
    let [high, low] = flow.to_be_bytes();
    let mut bytes = vec![high, low, round, number, u8::from(is_answer)];
    bytes.resize(message_length(&bytes), low);
    bytes
}

/// Bytes of a message, by its first five.
fn message_length(bytes: &[u8]) -> usize {
    let flow = u16::from_be_bytes([bytes[0], bytes[1]]);
    5 + usize::from(flow % 7) * usize::from(bytes[3] % 2 + 1) * 90
}

fn read(bytes: &[u8]) -> Message {
    let message = (u16::from_be_bytes([bytes[0], bytes[1]]), bytes[2], bytes[3], bytes[4] != 0);
    assert_eq!(bytes, payload(message), "a message was changed");
    message
}
