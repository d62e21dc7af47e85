//! The router's side.
use super::channel::Channel;
use super::message::{FileAnswer, FileMode, FileRefusal, Request};
use super::{HELPER, HelperLimits, OPENED};
use crate::DeviceError;
use rustix::fd::{AsFd, OwnedFd};
use rustix::net::{RecvFlags, recv};
use serde::de::DeserializeOwned;
use std::fs::File;
use std::io;
use std::net::{SocketAddr, TcpListener};
use std::path::Path;
use std::sync::{Mutex, PoisonError};

const ASKING: &str = "asking the helper process that has the rights for it";

/// The connection to this process's helper.
#[derive(Debug)]
pub struct Helper {
    channel: Mutex<Channel>,
    id: u32,
}

/// A socket whose other end closes when the helper ends.
#[derive(Debug)]
pub struct HelperLife(OwnedFd);

impl HelperLife {
    /// Waits until the helper has ended.
    pub fn wait(self) {
        // Nothing is ever sent on this socket.
        while matches!(recv(&self.0, &mut [0_u8; 1][..], RecvFlags::empty()), Err(rustix::io::Errno::INTR)) {}
    }
}

/// Starts the helper of this process: `spawn` starts this program so that it calls [`serve`](super::serve)
/// with the socket, and gives the number of its process. From then on the functions of this crate ask it.
///
/// # Errors
/// What `spawn` says, or why the helper does not answer.
pub fn start(
    mut limits: HelperLimits,
    spawn: impl FnOnce(OwnedFd) -> io::Result<u32>,
) -> io::Result<HelperLife> {
    let (channel, theirs) = Channel::pair()?;
    let (life, their_life) = Channel::pair()?;
    let id = spawn(theirs)?;
    let mut opened = std::mem::take(&mut *OPENED.lock().unwrap_or_else(PoisonError::into_inner));
    opened.append(&mut limits.files);
    limits.files = opened;
    limits.shorten();
    channel.exchange::<()>(&limits, Some(their_life.as_fd()))?;
    drop(their_life);
    let helper = Helper { channel: Mutex::new(channel), id };
    HELPER.set(helper).map_err(|_| io::Error::other("this process has a helper already"))?;
    Ok(HelperLife(life.into_socket()))
}

impl Helper {
    /// The number of its process.
    pub fn id(&self) -> u32 {
        self.id
    }

    /// Lets it open no more files than those it has opened so far, and those in the
    /// folders that were allowed.
    pub fn lock(&self) -> Result<(), DeviceError> {
        self.request("the helper", &Request::Lock)
    }

    /// Makes a request about `name`.
    pub(crate) fn request<T: DeserializeOwned>(
        &self,
        name: &str,
        request: &Request,
    ) -> Result<T, DeviceError> {
        let answer = self.exchange::<Result<T, DeviceError>>(request);
        answer.map_err(|error| failed(name, &error))?.0
    }

    /// Makes a request about `name` that a descriptor answers, too.
    pub(crate) fn descriptor<T: DeserializeOwned>(
        &self,
        name: &str,
        request: &Request,
    ) -> Result<(T, OwnedFd), DeviceError> {
        let answer = self.exchange::<Result<T, DeviceError>>(request);
        let (answer, descriptor) = answer.map_err(|error| failed(name, &error))?;
        let none = || failed(name, &io::ErrorKind::InvalidData.into());
        Ok((answer?, descriptor.ok_or_else(none)?))
    }

    /// Makes a request that only changes something, and whose refusal is an error number.
    pub(crate) fn change(&self, request: &Request) -> io::Result<()> {
        let (answer, _) = self.exchange::<Result<(), i32>>(request)?;
        answer.map_err(io::Error::from_raw_os_error)
    }

    /// Has the helper end, as it does when its router has ended.
    pub fn release(&self) {
        self.channel.lock().unwrap_or_else(PoisonError::into_inner).shut_down();
    }

    /// Has the helper open a file.
    pub(crate) fn open(&self, path: &Path, mode: FileMode) -> io::Result<File> {
        let request = Request::OpenFile { path: std::path::absolute(path)?, mode };
        let (mut answer, mut given) = self.exchange::<Result<FileAnswer, FileRefusal>>(&request)?;
        if answer == Ok(FileAnswer::Later) {
            let connection = Channel::new(given.ok_or(io::ErrorKind::InvalidData)?);
            (answer, given) = connection.receive()?.ok_or(io::ErrorKind::UnexpectedEof)?;
        }
        answer.map_err(|refusal| refused(path, refusal))?;
        Ok(File::from(given.ok_or(io::ErrorKind::InvalidData)?))
    }

    /// Moves or removes a file, as `request` says of its full path.
    pub(crate) fn change_file(
        &self,
        path: &Path,
        request: impl FnOnce(std::path::PathBuf) -> Request,
    ) -> io::Result<()> {
        let (answer, _) = self.exchange::<Result<(), FileRefusal>>(&request(std::path::absolute(path)?))?;
        answer.map_err(|refusal| refused(path, refusal))
    }

    fn exchange<T: DeserializeOwned>(&self, request: &Request) -> io::Result<(T, Option<OwnedFd>)> {
        self.channel.lock().unwrap_or_else(PoisonError::into_inner).exchange(request, None)
    }
}

/// Listens on an address, by the helper where this process may not.
pub fn listen(address: SocketAddr) -> io::Result<TcpListener> {
    let denied = match (TcpListener::bind(address), HELPER.get()) {
        (Err(error), Some(helper)) if error.kind() == io::ErrorKind::PermissionDenied => helper,
        (bound, _) => return bound,
    };
    let (answer, socket) = denied.exchange::<Result<(), FileRefusal>>(&Request::Listen { address })?;
    let errno = match answer {
        Ok(()) => return Ok(socket.ok_or(io::ErrorKind::InvalidData)?.into()),
        Err(FileRefusal::System(errno)) => errno,
        Err(FileRefusal::Outside) => libc::EACCES,
    };
    Err(io::Error::from_raw_os_error(errno))
}

fn failed(name: &str, error: &io::Error) -> DeviceError {
    let errno = error.raw_os_error().unwrap_or(libc::EPIPE);
    DeviceError::System { name: name.to_owned(), doing: ASKING, errno }
}

fn refused(path: &Path, refusal: FileRefusal) -> io::Error {
    match refusal {
        FileRefusal::System(errno) => io::Error::from_raw_os_error(errno),
        FileRefusal::Outside => io::Error::new(
            io::ErrorKind::PermissionDenied,
            format!(
                "the router may only use files that its configuration named when it started; to allow \
                 others, start it with --allow-path {}",
                path.parent()
                    .filter(|folder| !folder.as_os_str().is_empty())
                    .unwrap_or(Path::new("."))
                    .display()
            ),
        ),
    }
}
