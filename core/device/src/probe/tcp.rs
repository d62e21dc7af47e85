//! Connecting without waiting, and closing without a reset.
use super::{NoProbe, ProbeFailure, Progress};
use rustix::event::epoll::EventFlags;
use rustix::fd::OwnedFd;
use rustix::io::Errno;
use rustix::net::{
    AddressFamily, RecvFlags, Shutdown, SocketFlags, SocketType, connect, getpeername, getsockname, ipproto,
    recv, shutdown, socket_with, sockopt,
};
use std::net::SocketAddr;

/// Bytes read at once.
const SOME: usize = 1024;
/// Reads before a connection is closed with the rest unread.
const READS: usize = 16;

/// A connection that is opened.
#[derive(Debug)]
pub(super) struct TcpProbe {
    to: SocketAddr,
    is_asked: bool,
}

/// Returns a socket that never waits.
pub(super) fn open(to: SocketAddr) -> Result<OwnedFd, NoProbe> {
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    socket_with(family(to), SocketType::STREAM, flags, Some(ipproto::TCP)).map_err(NoProbe::System)
}

/// The family of sockets that this address is for.
pub(super) fn family(to: SocketAddr) -> AddressFamily {
    match to {
        SocketAddr::V4(_) => AddressFamily::INET,
        SocketAddr::V6(_) => AddressFamily::INET6,
    }
}

impl TcpProbe {
    pub(super) fn to(to: SocketAddr) -> TcpProbe {
        TcpProbe { to, is_asked: false }
    }

    /// Passes when the connection stands, and closes it.
    pub(super) fn advance(&mut self, socket: &OwnedFd) -> Result<Progress, ProbeFailure> {
        let progress = self.connect(socket)?;
        if progress == Progress::Passed {
            hang_up(socket);
        }
        Ok(progress)
    }

    /// Passes when the connection stands.
    pub(super) fn connect(&mut self, socket: &OwnedFd) -> Result<Progress, ProbeFailure> {
        if !self.is_asked {
            self.is_asked = true;
            match connect(socket, &self.to) {
                // An interrupted connect(2) goes on like one in progress, and its result is read the same
                // way.
                Ok(()) | Err(Errno::INPROGRESS | Errno::INTR) => {}
                Err(error) => return Err(error.into()),
            }
        }
        sockopt::socket_error(socket)??;
        match getpeername(socket) {
            // A socket that connects to a port of this machine may be given that very port, and then it
            // connects to itself.
            Ok(peer) if peer == Some(getsockname(socket)?) => Err(ProbeFailure::Refused),
            Ok(_) => Ok(Progress::Passed),
            Err(Errno::NOTCONN) => Ok(Progress::Awaits(EventFlags::OUT)),
            Err(error) => Err(error.into()),
        }
    }
}

/// Ends a connection so that its other end reads an orderly end: the kernel sends a reset instead where what
/// has come is unread when the socket is closed.
pub(super) fn hang_up(socket: &OwnedFd) {
    let _ = shutdown(socket, Shutdown::Write);
    for _ in 0..READS {
        if !matches!(recv(socket, &mut [0; SOME][..], RecvFlags::empty()), Ok((1.., _))) {
            return;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::{ErrorKind, Read as _, Write as _};
    use std::net::{TcpListener, TcpStream};

    /// Both ends of a connection; there is something to read at the first.
    fn pair() -> (OwnedFd, TcpStream) {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let ours = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let mut theirs = listener.accept().unwrap().0;
        theirs.write_all(b"220 mail.example.org ready").unwrap();
        assert_eq!(ours.peek(&mut [0]).unwrap(), 1);
        ours.set_nonblocking(true).unwrap();
        (ours.into(), theirs)
    }

    #[test]
    fn who_greets_first_reads_an_orderly_end() {
        let (ours, mut theirs) = pair();
        hang_up(&ours);
        drop(ours);
        assert_eq!(theirs.read(&mut [0; 9]).unwrap(), 0);

        let (ours, mut theirs) = pair();
        drop(ours);
        assert_eq!(theirs.read(&mut [0; 9]).unwrap_err().kind(), ErrorKind::ConnectionReset, "not hung up");
    }

    #[test]
    fn a_socket_that_finds_itself_has_found_nobody() {
        let any = SocketAddr::from(([127, 0, 0, 1], 0));
        let socket = open(any).unwrap();
        rustix::net::bind(&socket, &any).unwrap();
        let itself = SocketAddr::try_from(getsockname(&socket).unwrap()).unwrap();
        assert_eq!(TcpProbe::to(itself).advance(&socket), Err(ProbeFailure::Refused));
    }
}
