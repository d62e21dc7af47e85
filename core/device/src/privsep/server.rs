//! The helper's side.
use super::channel::Channel;
use super::message::{Attached, DoneResult, FileAnswer, FileRefusal, RefusedChanges, Request};
use super::policy::{AllowedOpen, FilePolicy, InterfacePolicy};
use super::{HelperLimits, OWNER, attachments};
use crate::af_packet::make_packet_socket;
use crate::host_port::HostPortKeeper;
use crate::psample::serve_samples;
use crate::{DeviceError, HostPortState, HostRouteChange, HostRoutes, Interface, TapSettings, tap, xdp};
use rustix::fd::{AsFd, OwnedFd};
use rustix::process::getppid;
use serde::Serialize;
use std::collections::HashMap;
use std::fs::File;
use std::io;
use std::net::{SocketAddr, TcpListener};
use std::thread::JoinHandle;

/// Serves the router that started this process, until it ends: `socket` is what [`start`](super::start) gave
/// `spawn`. `confine` is called once, before the first request is read.
///
/// # Errors
/// Why the router can't be understood.
pub fn serve(socket: OwnedFd, confine: impl FnOnce() -> io::Result<()>) -> io::Result<()> {
    if let Some(router) = getppid() {
        // Set once a process.
        let _ = OWNER.set(router.as_raw_nonzero().get().unsigned_abs());
    }
    let channel = Channel::new(socket);
    let Some((limits, _life)) = channel.receive::<HelperLimits>()? else { return Ok(()) };
    confine()?;
    channel.send(&(), None)?;
    Server::new(limits).serve(&channel)
}

/// The helper's side of a connection: what it may open, and what it holds.
pub(super) struct Server {
    files: FilePolicy,
    interfaces: InterfacePolicy,
    /// What keeps the host's side of ports, by the number of the interface.
    host_ports: HashMap<u32, HostPortKeeper>,
    /// The thread that sends samples.
    samples: Option<JoinHandle<()>>,
}

impl Server {
    pub(super) fn new(mut limits: HelperLimits) -> Server {
        let interfaces = InterfacePolicy::new(std::mem::take(&mut limits.new_ports));
        Server { files: FilePolicy::new(limits), interfaces, host_ports: HashMap::new(), samples: None }
    }

    /// Answers until the router closes the connection, or sends anything but a request.
    pub(super) fn serve(&mut self, channel: &Channel) -> io::Result<()> {
        while let Some((request, _)) = channel.receive::<Request>()? {
            self.answer(channel, request)?;
        }
        Ok(())
    }

    fn answer(&mut self, channel: &Channel, request: Request) -> io::Result<()> {
        match request {
            Request::PacketSocket { name, buffer } => answer(channel, make_packet_socket(&name, buffer)),
            Request::XdpSocket { name, busy_poll } => answer(channel, xdp::make_socket(&name, busy_poll)),
            Request::PingSocket { v6 } => answer(channel, ping_socket(v6)),
            Request::SampleGroup => answer(channel, self.sample_socket()),
            Request::Listen { address } => answer(channel, self.listen(address)),
            Request::OpenFile { path, mode } => match self.files.allow(&path, mode) {
                Ok(opening) if opening.may_wait() => open_later(channel, opening),
                allowed => answer_opened(channel, allowed.and_then(|opening| opening.open())),
            },
            Request::RenameToOld { path } => channel.send(&self.files.rename_to_old(&path), None),
            Request::RemoveFile { path } => channel.send(&self.files.remove(&path), None),
            Request::Hide { name, index, only_tagged } => {
                let port = self.port_by_index(&name, index);
                answer(channel, port.and_then(|port| attachments::hide(&port, only_tagged)))
            }
            Request::Redirect { name, index, queues, attach } => {
                let port = self.port_by_index(&name, index);
                redirect(channel, port.and_then(|port| attachments::redirect(&port, queues, attach)))
            }
            Request::TapQueue { name, settings } => self.tap_queue(channel, &name, &settings),
            Request::ChangeHostRoutes { index, changes } => {
                channel.send(&self.change_host_routes(index, &changes), None)
            }
            Request::KeepHostPort { index, state } => {
                let kept = self.keep_host_port(index, &state);
                channel.send(&kept.map_err(|error| error.raw_os_error().unwrap_or(libc::EIO)), None)
            }
            Request::Lock => {
                self.files.lock();
                self.interfaces.lock();
                channel.send(&DoneResult::Ok(()), None)
            }
            other => channel.send(&self.change(other), None),
        }
    }

    /// What only changes something.
    fn change(&mut self, request: Request) -> DoneResult {
        match request {
            Request::ConfigureTap { name, settings } => {
                self.made(&name)?;
                tap::configure(&name, &settings)
            }
            Request::ChangeTap { name, before, after } => {
                let interface = self.made(&name)?;
                tap::change(&interface, &before, &after)
            }
            Request::BringUp { name } => self.port(&name)?.bring_up(),
            Request::SetMtu { name, mtu } => self.port(&name)?.set_mtu(mtu),
            Request::SetLinkLocal { index, addresses } => {
                let name = self.made_index(index)?;
                let failed = |e| DeviceError::from_io(&name, "setting its addresses", CAPABILITY, &e);
                HostRoutes::open(index).and_then(|routes| routes.set_link_local(&addresses)).map_err(failed)
            }
            _ => Err(refusal("the helper")),
        }
    }

    /// Listens where the router might have listened at its start, or may at any time.
    fn listen(&self, address: SocketAddr) -> Result<OwnedFd, FileRefusal> {
        match self.interfaces.may_grow() {
            true => Ok(TcpListener::bind(address)?.into()),
            false => Err(FileRefusal::Outside),
        }
    }

    /// A socket whose messages go to the group of PSAMPLE: one at a time, since each takes a thread.
    fn sample_socket(&mut self) -> Result<OwnedFd, DeviceError> {
        let name = "PSAMPLE";
        if self.samples.as_ref().is_some_and(|thread| !thread.is_finished()) {
            return Err(DeviceError::Refused {
                name: name.into(),
                why: "this router sends samples already".into(),
            });
        }
        let failed = |e: io::Error| DeviceError::from_io(name, "opening a socket", CAPABILITY, &e);
        let (own, theirs) = Channel::pair().map_err(failed)?;
        self.samples = Some(serve_samples(own.into_socket())?);
        Ok(theirs)
    }

    fn tap_queue(&mut self, channel: &Channel, name: &str, settings: &TapSettings) -> io::Result<()> {
        let existing = Interface::find(name).ok().map(|interface| interface.index);
        if !self.interfaces.may_open_tap(name, existing) {
            return channel.send(&Err::<String, DeviceError>(refusal(name)), None);
        }
        match tap::make_queue(name, settings) {
            Ok((queue, name)) => {
                if let Ok(interface) = Interface::find(&name) {
                    self.interfaces.record_device(&name, interface.index);
                }
                channel.send(&Ok::<String, DeviceError>(name), Some(queue.as_fd()))
            }
            Err(error) => channel.send(&Err::<String, DeviceError>(error), None),
        }
    }

    fn change_host_routes(
        &self,
        index: u32,
        changes: &[HostRouteChange],
    ) -> Result<RefusedChanges, DeviceError> {
        let name = self.made_index(index)?;
        let failed = |e: io::Error| DeviceError::from_io(&name, "changing the host's routes", CAPABILITY, &e);
        let refused =
            HostRoutes::open(index).and_then(|mut routes| routes.change(changes)).map_err(failed)?;
        Ok(refused.into_iter().map(|(at, error)| (at, error.raw_os_error().unwrap_or(libc::EIO))).collect())
    }

    fn keep_host_port(&mut self, index: u32, state: &HostPortState) -> io::Result<()> {
        let numbered = |error: DeviceError| io::Error::from_raw_os_error(number_of(&error));
        let now = self.made_index(index).and_then(|name| Interface::find(&name)).map_err(numbered)?;
        if !self.host_ports.contains_key(&index) {
            self.host_ports.retain(|index, _| !Interface::is_gone(*index));
            self.host_ports.insert(index, HostPortKeeper::open(index)?);
        }
        self.host_ports.get_mut(&index).map_or(Ok(()), |keeper| keeper.apply(state, &now))
    }

    /// An interface that may be a port.
    fn port(&mut self, name: &str) -> Result<Interface, DeviceError> {
        let interface = Interface::find(name)?;
        let may = self.interfaces.may_be_port(name, interface.index);
        if may { Ok(interface) } else { Err(refusal(name)) }
    }

    /// The same of one that was called `name`, and may have another name now.
    fn port_by_index(&mut self, name: &str, index: u32) -> Result<Interface, DeviceError> {
        if !self.interfaces.may_be_port(name, index) {
            return Err(refusal(name));
        }
        let gone = || DeviceError::Gone { name: name.to_owned() };
        Interface::find(&Interface::name_of(index)?.ok_or_else(gone)?)
    }

    /// A device that the helper made.
    fn made(&self, name: &str) -> Result<Interface, DeviceError> {
        let interface = Interface::find(name)?;
        if self.interfaces.is_made(interface.index) { Ok(interface) } else { Err(refusal(name)) }
    }

    fn made_index(&self, index: u32) -> Result<String, DeviceError> {
        let name = format!("interface {index}");
        if !self.interfaces.is_made(index) {
            return Err(refusal(&name));
        }
        Interface::name_of(index)?.ok_or(DeviceError::Gone { name })
    }
}

const CAPABILITY: &str = "CAP_NET_ADMIN";

fn refusal(name: &str) -> DeviceError {
    DeviceError::BeyondHelper { name: name.to_owned() }
}

/// The system's error number of a request that failed.
fn number_of(error: &DeviceError) -> i32 {
    match error {
        DeviceError::System { errno, .. } => *errno,
        DeviceError::Gone { .. } | DeviceError::NoSuchInterface { .. } => libc::ENODEV,
        _ => libc::EPERM,
    }
}

/// Answers with a descriptor, or with why there is none.
fn answer<E: Serialize>(channel: &Channel, made: Result<OwnedFd, E>) -> io::Result<()> {
    match made {
        Ok(descriptor) => channel.send(&Ok::<(), E>(()), Some(descriptor.as_fd())),
        Err(error) => channel.send(&Err::<(), E>(error), None),
    }
}

fn redirect(channel: &Channel, attached: Result<(Attached, OwnedFd), DeviceError>) -> io::Result<()> {
    match attached {
        Ok((attached, connection)) => {
            channel.send(&Ok::<Attached, DeviceError>(attached), Some(connection.as_fd()))
        }
        Err(error) => channel.send(&Err::<Attached, DeviceError>(error), None),
    }
}

fn answer_opened(channel: &Channel, opened: Result<File, FileRefusal>) -> io::Result<()> {
    match opened {
        Ok(file) => channel.send(&Ok::<_, FileRefusal>(FileAnswer::Opened), Some(file.as_fd())),
        Err(refusal) => channel.send(&Err::<FileAnswer, _>(refusal), None),
    }
}

/// Opens a file on a thread of its own, so that other requests need not wait.
fn open_later(channel: &Channel, opening: AllowedOpen) -> io::Result<()> {
    let (own, theirs) = Channel::pair()?;
    // The requester may have ended meanwhile.
    let open = move || drop(answer_opened(&own, opening.open()));
    std::thread::Builder::new().name("open".to_owned()).spawn(open)?;
    channel.send(&Ok::<_, FileRefusal>(FileAnswer::Later), Some(theirs.as_fd()))
}

fn ping_socket(v6: bool) -> Result<OwnedFd, DeviceError> {
    let failed = |e: io::Error| DeviceError::from_io("probe", "opening a raw socket", "CAP_NET_RAW", &e);
    crate::probe::make_raw_socket(v6).map_err(|error| failed(error.into()))
}
