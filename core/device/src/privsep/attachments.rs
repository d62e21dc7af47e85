//! Programs that a helper attaches for its router, each with a connection that ends with it: what hides an
//! interface's frames from the host, and what hands them to AF_XDP sockets.
use super::Helper;
use super::channel::Channel;
use super::message::{Attached, RedirectRequest, Request};
use crate::bpf::{Hidden, Lease};
use crate::xdp::{InterfaceLock, RedirectProgram};
use crate::{Attach, DeviceError, Interface};
use rustix::fd::{AsFd, BorrowedFd, OwnedFd};
use std::io;
use std::sync::Mutex;
use std::sync::PoisonError;
use std::thread;

/// Frames that a helper hides from the host, for as long as this lives and is renewed.
#[derive(Debug)]
pub(crate) struct RemoteHidden(Channel);

impl RemoteHidden {
    pub(crate) fn hide(
        helper: &Helper,
        interface: &Interface,
        only_tagged: bool,
    ) -> Result<RemoteHidden, DeviceError> {
        let request = Request::Hide { name: interface.name.clone(), index: interface.index, only_tagged };
        let ((), connection) = helper.descriptor(&interface.name, &request)?;
        Ok(RemoteHidden(Channel::new(connection)))
    }

    /// Lets the program act for [`Lease::TERM`] from now on.
    pub(crate) fn renew(&self) -> io::Result<()> {
        self.0.send(&(), None)
    }
}

impl Drop for RemoteHidden {
    fn drop(&mut self) {
        close(&self.0);
    }
}

/// Hides what arrives on an interface, on a thread that serves a connection; gives the router's end.
pub(super) fn hide(interface: &Interface, only_tagged: bool) -> Result<OwnedFd, DeviceError> {
    let (hidden, lease) = Hidden::attach(interface, only_tagged)?;
    let failed = |e: io::Error| DeviceError::from_io(&interface.name, "serving its port", "CAP_BPF", &e);
    let (own, theirs) = Channel::pair().map_err(failed)?;
    let serve = move || {
        renew_until_closed(&own, &lease);
        drop(hidden);
    };
    thread::Builder::new().name("hide".to_owned()).spawn(serve).map_err(failed)?;
    Ok(theirs)
}

/// Renews a lease each time that its router asks: a stopped router does not, and the host
/// sees the frames again.
fn renew_until_closed(channel: &Channel, lease: &Lease) {
    while let Ok(Some(((), _))) = channel.receive::<()>() {
        // A lease that can't be renewed ends, and programs leave everything to the kernel.
        let _ = lease.renew();
    }
}

/// The program that hands frames to sockets, attached by a helper for as long as this lives.
#[derive(Debug)]
pub(crate) struct RemoteRedirect {
    channel: Mutex<Channel>,
}

impl RemoteRedirect {
    /// Attaches it; says whether the driver runs it, and why not.
    pub(crate) fn attach(
        helper: &Helper,
        interface: &Interface,
        queues: u32,
        attach: Attach,
    ) -> Result<(RemoteRedirect, bool, Option<i32>), DeviceError> {
        let (name, index) = (interface.name.clone(), interface.index);
        let request = Request::Redirect { name, index, queues, attach };
        let (Attached { native, refusal }, connection) = helper.descriptor(&interface.name, &request)?;
        let channel = Mutex::new(Channel::new(connection));
        Ok((RemoteRedirect { channel }, native, refusal))
    }

    /// Hands the frames of a queue to a socket from now on.
    pub(crate) fn open(&self, queue: u32, socket: BorrowedFd<'_>) -> io::Result<()> {
        self.request(RedirectRequest::Open { queue }, Some(socket))
    }

    /// Leaves the frames of a queue to the host again.
    pub(crate) fn close(&self, queue: u32) -> io::Result<()> {
        self.request(RedirectRequest::Close { queue }, None)
    }

    fn request(&self, request: RedirectRequest, socket: Option<BorrowedFd<'_>>) -> io::Result<()> {
        let channel = self.channel.lock().unwrap_or_else(PoisonError::into_inner);
        let (answer, _) = channel.exchange::<Result<(), i32>>(&request, socket)?;
        answer.map_err(io::Error::from_raw_os_error)
    }
}

impl Drop for RemoteRedirect {
    fn drop(&mut self) {
        close(self.channel.get_mut().unwrap_or_else(PoisonError::into_inner));
    }
}

/// Attaches the program to an interface, which no other router takes meanwhile, on a thread
/// that serves a connection.
pub(super) fn redirect(
    interface: &Interface,
    queues: u32,
    attach: Attach,
) -> Result<(Attached, OwnedFd), DeviceError> {
    let lock = InterfaceLock::acquire(interface)?;
    let redirect = RedirectProgram::attach_here(interface, queues, attach)?;
    let attached = Attached { native: redirect.native, refusal: redirect.refusal };
    let failed = |e: io::Error| DeviceError::from_io(&interface.name, "serving its port", "CAP_BPF", &e);
    let (own, theirs) = Channel::pair().map_err(failed)?;
    let serve = move || {
        serve_redirect(&own, &redirect);
        drop(redirect);
        drop(lock);
    };
    thread::Builder::new().name("redirect".to_owned()).spawn(serve).map_err(failed)?;
    Ok((attached, theirs))
}

fn serve_redirect(channel: &Channel, redirect: &RedirectProgram) {
    while let Ok(Some((request, socket))) = channel.receive::<RedirectRequest>() {
        let done = match (request, socket) {
            (RedirectRequest::Open { queue }, Some(socket)) => redirect.open(queue, socket.as_fd()),
            (RedirectRequest::Open { .. }, None) => Err(io::Error::from_raw_os_error(libc::EBADF)),
            (RedirectRequest::Close { queue }, _) => {
                redirect.close(queue);
                Ok(())
            }
        };
        let answer = done.map_err(|error| error.raw_os_error().unwrap_or(libc::EIO));
        if channel.send(&answer, None).is_err() {
            break;
        }
    }
}

/// Closes a connection, and waits until the other end has done what it does then.
fn close(channel: &Channel) {
    channel.shut_down();
    while let Ok(Some(((), _))) = channel.receive::<()>() {}
}
