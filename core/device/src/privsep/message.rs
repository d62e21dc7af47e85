//! What a router requests of its helper, and what the helper answers.
use crate::{Attach, BusyPoll, DeviceError, HostPortState, HostRouteChange, TapSettings};
use serde::{Deserialize, Deserializer, Serialize};
use std::collections::HashSet;
use std::io;
use std::net::{Ipv6Addr, SocketAddr};
use std::path::PathBuf;
use std::sync::{Mutex, PoisonError};

/// A request. `name` is an interface's.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) enum Request {
    /// A packet socket that is bound to nothing, and whose buffer may be longer than the system's limit.
    PacketSocket { name: String, buffer: Buffer },
    /// An AF_XDP socket that is bound to nothing.
    XdpSocket { name: String, busy_poll: Option<BusyPoll> },
    /// A raw socket for echo requests of ICMP or ICMPv6, and their answers.
    PingSocket { v6: bool },
    /// A socket whose messages are samples for the kernel's group of PSAMPLE.
    SampleGroup,
    /// A TCP socket that listens, for ports below 1024.
    Listen { address: SocketAddr },
    /// One queue of a TAP or TUN device; the first makes the device.
    TapQueue { name: String, settings: TapSettings },
    /// Sets up a device that the helper made.
    ConfigureTap { name: String, settings: TapSettings },
    /// Sets it up in another way.
    ChangeTap { name: String, before: TapSettings, after: TapSettings },
    /// Sets the link of a port up.
    BringUp { name: String },
    /// Sets the longest packet of a port, in bytes.
    SetMtu { name: String, mtu: u32 },
    /// Changes the router's own routes of the host by a device that the helper made.
    ChangeHostRoutes { index: u32, changes: Vec<HostRouteChange> },
    /// Sets the link-local addresses of a device that the helper made.
    SetLinkLocal { index: u32, addresses: Vec<Ipv6Addr> },
    /// Makes a device that the helper made what its port is like: address, MTU, link state, addresses.
    KeepHostPort { index: u32, state: HostPortState },
    /// Hides an interface's frames from the host until the connection that answers is closed.
    Hide { name: String, index: u32, only_tagged: bool },
    /// Attaches the program that hands frames to AF_XDP sockets until the connection that answers is closed.
    Redirect { name: String, index: u32, queues: u32, attach: Attach },
    /// Opens a file, and gives its descriptor.
    OpenFile { path: PathBuf, mode: FileMode },
    /// Moves a file that is written to its name with `.old` at the end.
    RenameToOld { path: PathBuf },
    /// Removes a file that was named when the helper started.
    RemoveFile { path: PathBuf },
    /// From now on only files are opened that were opened before, or that lie in the
    /// folders that were allowed.
    Lock,
}

/// Which buffer of a packet socket is to be long.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum Buffer {
    Usual,
    Receive(i32),
    Send(i32),
}

/// How a file is opened.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum FileMode {
    Read,
    /// Makes it or empties it.
    Create,
    /// The same, for its owner alone (mode 0600).
    CreatePrivate,
    /// Makes it or writes behind its end.
    Append,
    /// The same, for its owner alone.
    AppendPrivate,
}

impl FileMode {
    pub(crate) fn is_written(self) -> bool {
        self != FileMode::Read
    }
}

/// How a request to open a file is answered.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum FileAnswer {
    /// The descriptor is the file.
    Opened,
    /// The descriptor is a connection by which the answer comes: a named pipe waits for its other end.
    Later,
}

/// Why a file was not opened.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum FileRefusal {
    /// It is not among those that may be.
    Outside,
    /// What the system says, as an error number.
    System(i32),
}

impl From<io::Error> for FileRefusal {
    fn from(error: io::Error) -> FileRefusal {
        FileRefusal::System(error.raw_os_error().unwrap_or(libc::EIO))
    }
}

/// Which change of the host's routes the kernel refused, and why, as an error number.
pub(crate) type RefusedChanges = Vec<(usize, i32)>;

/// How the program that hands frames to sockets runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Attached {
    pub(crate) native: bool,
    pub(crate) refusal: Option<i32>,
}

/// Requests about the program that redirects frames to sockets.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) enum RedirectRequest {
    /// The frames of a queue go to the socket that comes with the request.
    Open { queue: u32 },
    /// They go to the host.
    Close { queue: u32 },
}

/// The result of a request that has no other answer than whether it was done.
pub(crate) type DoneResult = Result<(), DeviceError>;

/// Text of the program itself, as errors hold it. Text that arrives in a message is leaked, each once: it is
/// text of the same program, so there is a limited amount.
pub(crate) type StaticText = &'static str;

/// Reads [`StaticText`] from a message.
pub(crate) fn words<'de, D: Deserializer<'de>>(from: D) -> Result<StaticText, D::Error> {
    String::deserialize(from).map(intern)
}

/// Reads [`StaticText`] that may be missing.
pub(crate) fn optional_words<'de, D: Deserializer<'de>>(from: D) -> Result<Option<StaticText>, D::Error> {
    Option::<String>::deserialize(from).map(|text| text.map(intern))
}

fn intern(text: String) -> StaticText {
    static KNOWN: Mutex<Option<HashSet<StaticText>>> = Mutex::new(None);
    let mut known = KNOWN.lock().unwrap_or_else(PoisonError::into_inner);
    let known = known.get_or_insert_default();
    if let Some(words) = known.get(text.as_str()) {
        return words;
    }
    let words: StaticText = text.leak();
    known.insert(words);
    words
}
