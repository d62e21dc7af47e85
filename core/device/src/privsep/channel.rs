//! Messages over a SOCK_SEQPACKET socket, each with at most one descriptor.
use rustix::fd::{AsFd, BorrowedFd, OwnedFd};
use rustix::net::{
    AddressFamily, RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, ReturnFlags, SendAncillaryBuffer,
    SendAncillaryMessage, SendFlags, SocketFlags, SocketType, recvmsg, sendmsg, socketpair,
};
use serde::Serialize;
use serde::de::DeserializeOwned;
use std::io::{self, IoSlice, IoSliceMut};
use std::mem::MaybeUninit;

/// The longest message, in bytes: that which says which files were opened before. The kernel's
/// limit is 208 kB.
const LONGEST: usize = 160 << 10;

/// One end of a connection.
#[derive(Debug)]
pub(super) struct Channel(OwnedFd);

impl Channel {
    pub(super) fn new(socket: OwnedFd) -> Channel {
        Channel(socket)
    }

    pub(super) fn into_socket(self) -> OwnedFd {
        self.0
    }

    /// A channel for this process, and the other end's socket.
    pub(super) fn pair() -> io::Result<(Channel, OwnedFd)> {
        let (own, other) =
            socketpair(AddressFamily::UNIX, SocketType::SEQPACKET, SocketFlags::CLOEXEC, None)?;
        Ok((Channel(own), other))
    }

    /// Sends one message, and a descriptor if there is one.
    pub(super) fn send(&self, message: &impl Serialize, with: Option<BorrowedFd<'_>>) -> io::Result<()> {
        let bytes = serde_json::to_vec(message).map_err(io::Error::other)?;
        if bytes.len() > LONGEST {
            return Err(io::Error::from_raw_os_error(libc::EMSGSIZE));
        }
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
        let mut control = SendAncillaryBuffer::new(&mut space);
        let descriptors: Vec<BorrowedFd<'_>> = with.into_iter().collect();
        if !descriptors.is_empty() {
            control.push(SendAncillaryMessage::ScmRights(&descriptors));
        }
        loop {
            match sendmsg(&self.0, &[IoSlice::new(&bytes)], &mut control, SendFlags::NOSIGNAL) {
                Err(rustix::io::Errno::INTR) => {}
                sent => return Ok(sent.map(drop)?),
            }
        }
    }

    /// Receives a message; `None` when the other end is closed.
    pub(super) fn receive<T: DeserializeOwned>(&self) -> io::Result<Option<(T, Option<OwnedFd>)>> {
        let mut bytes = vec![0; LONGEST];
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
        let mut control = RecvAncillaryBuffer::new(&mut space);
        let received = loop {
            let parts = &mut [IoSliceMut::new(&mut bytes)];
            match recvmsg(&self.0, parts, &mut control, RecvFlags::CMSG_CLOEXEC) {
                Err(rustix::io::Errno::INTR) => {}
                received => break received?,
            }
        };
        let descriptors = control.drain().filter_map(|message| match message {
            RecvAncillaryMessage::ScmRights(descriptors) => Some(descriptors),
            _ => None,
        });
        let descriptor = descriptors.flatten().next();
        if received.bytes == 0 {
            return Ok(None);
        }
        if received.flags.contains(ReturnFlags::TRUNC) {
            return Err(io::Error::from_raw_os_error(libc::EMSGSIZE));
        }
        let message = serde_json::from_slice(&bytes[..received.bytes]).map_err(io::Error::other)?;
        Ok(Some((message, descriptor)))
    }

    /// Sends a message and receives the answer.
    pub(super) fn exchange<T: DeserializeOwned>(
        &self,
        message: &impl Serialize,
        with: Option<BorrowedFd<'_>>,
    ) -> io::Result<(T, Option<OwnedFd>)> {
        self.send(message, with)?;
        self.receive()?.ok_or_else(|| io::ErrorKind::UnexpectedEof.into())
    }

    /// Sends nothing any more, so that the other end finds the connection closed.
    pub(super) fn shut_down(&self) {
        // It may be closed already.
        let _ = rustix::net::shutdown(&self.0, rustix::net::Shutdown::Write);
    }
}

impl AsFd for Channel {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}
