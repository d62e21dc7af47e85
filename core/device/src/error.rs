//! What can go wrong with a port: what, where, and what to do about it.
use crate::privsep::{StaticText, optional_words, words};
use serde::{Deserialize, Serialize};
use std::fmt;
use std::io;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};

/// Whether errors show what the kernel's verifier says.
static SHOWS_VERIFIER: AtomicBool = AtomicBool::new(false);

/// From now on errors of programs that the kernel's verifier refuses end with its last lines.
pub fn show_verifier() {
    SHOWS_VERIFIER.store(true, Relaxed);
}

/// One half of a port.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum PortHalf {
    /// The half that packets come in by.
    Receive,
    /// The half that packets leave by.
    Transmit,
}

impl fmt::Display for PortHalf {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            PortHalf::Receive => "receive",
            PortHalf::Transmit => "transmit",
        })
    }
}

/// What is wrong with a pcap file.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, thiserror::Error)]
#[allow(missing_docs)] // the texts say what is in their fields
pub enum PcapDamage {
    /// It does not begin with a pcap magic number.
    #[error("is not a pcap file (it begins with {0:#010x})")]
    Magic(u32),
    /// It is a pcapng file, which has another format.
    #[error("is a pcapng file; convert it with 'editcap -F pcap' or 'tcpdump -r … -w …'")]
    PcapNg,
    /// It ends inside the file header.
    #[error("ends inside its header")]
    HeaderCut,
    /// It ends inside a record's header.
    #[error("ends inside a record header")]
    RecordHeaderCut,
    /// It ends inside a record's bytes.
    #[error("ends inside a record: {found} of {expected} bytes are there")]
    RecordCut { expected: u32, found: u32 },
    /// A record says that it is longer than any packet.
    #[error("has a record of {0} bytes, which no packet has")]
    RecordTooLong(u32),
}

/// Why a port or a pcap file cannot be used.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, thiserror::Error)]
#[serde(deny_unknown_fields)]
#[allow(missing_docs)] // the texts say what is in their fields
pub enum DeviceError {
    /// No interface has this name.
    #[error("{name}: no such interface; {}", list_existing(.existing))]
    NoSuchInterface { name: String, existing: Vec<String> },
    /// The name cannot be that of an interface.
    #[error("'{name}' cannot name an interface: 1 to 15 characters, without '/', ':' and spaces")]
    BadName { name: String },
    /// The process may not do this.
    #[error("{name}: {}", explain_permission(.name, .doing, *.capability))]
    NotPermitted {
        /// The interface, device or file.
        name: String,
        /// What was tried, as in "opening a packet socket".
        #[serde(deserialize_with = "words")]
        doing: StaticText,
        /// The capability that it takes, `None` where file permissions decide.
        #[serde(deserialize_with = "optional_words")]
        capability: Option<StaticText>,
    },
    /// Something failed for a reason of our own, as when the helper process refuses a file.
    #[error("{name}: {why}")]
    Refused { name: String, why: String },
    /// The helper process changes only ports that there were at the start, and devices that it made.
    #[error(
        "{name}: the router's helper process changes only ports that there were at the start, and devices \
         that it made; restart the router to use another"
    )]
    BeyondHelper { name: String },
    /// The interface is not up.
    #[error("{name}: interface is down; bring it up with 'ip link set {name} up'")]
    Down { name: String },
    /// The interface vanished while it was in use.
    #[error("{name}: interface vanished while in use")]
    Gone { name: String },
    /// The kernel cannot do this.
    #[error("{name}: this kernel does not support {doing}; {instead}")]
    NotSupported {
        /// Name of the interface.
        name: String,
        /// What was tried, as in "hiding its frames from the host".
        #[serde(deserialize_with = "words")]
        doing: StaticText,
        /// What to do instead.
        #[serde(deserialize_with = "words")]
        instead: StaticText,
    },
    /// The kernel's verifier does not take a program.
    #[error(
        "{name}: {doing} needs a program that this kernel's verifier refuses{}",
        verifier_lines(.verifier)
    )]
    NotVerified {
        /// Name of the interface.
        name: String,
        /// What the program is for, as in "hiding its frames from the host".
        #[serde(deserialize_with = "words")]
        doing: StaticText,
        /// The last lines of what the verifier says.
        verifier: Vec<String>,
    },
    /// A pcap file is damaged; what precedes the damage was delivered.
    #[error("{path}: byte {offset}{}: file {damage}", record_place(*.record))]
    BadFile {
        /// Path of the pcap file.
        path: String,
        /// Byte offset of the damage.
        offset: u64,
        /// Number of the damaged record, counting from 1; 0 for the file's header.
        record: u64,
        /// What is wrong there.
        damage: PcapDamage,
    },
    /// A link carries another kind of packets than was asked for.
    #[error("{name}: carries {found} packets, not {expected}")]
    WrongLinkType { name: String, expected: String, found: String },
    /// Another process takes frames from the interface, or sends by it.
    #[error("another router has {name} as its port: {owner}; end that one, or take another interface")]
    OwnedByOther { name: String, owner: String },
    /// Half of a port is in use already.
    #[error(
        "{name}: {half} queue {queue} is in use already; an interface is read, and written, by one element"
    )]
    Taken { name: String, half: PortHalf, queue: u16 },
    /// A port has fewer queues.
    #[error("{name}: there is no {half} queue {queue}; the port was opened with {queues}")]
    NoSuchQueue { name: String, half: PortHalf, queue: u16, queues: u16 },
    /// A device is open already, with another setting.
    #[error(
        "{name}: {setting} {asked} conflicts with {setting} {open}, already in use there; use the same \
         value, or restart if only the configuration that runs has the other"
    )]
    Differs {
        /// Name of the port.
        name: String,
        /// Name of the setting.
        #[serde(deserialize_with = "words")]
        setting: StaticText,
        /// Its value in the port that is open.
        open: String,
        /// The value asked for.
        asked: String,
    },
    /// Another process has the interface by AF_XDP.
    #[error(
        "{name}: in use by AF_XDP of process {pid} ({holder}); stop it, or open the interface with METHOD \
         LINUX"
    )]
    InUse {
        /// Name of the interface.
        name: String,
        /// The process; 0 when it did not say.
        pid: u32,
        /// What it is called.
        holder: String,
    },
    /// Something other than a router of this kind has the interface.
    #[error("{name}: {by}; {remedy}")]
    Occupied {
        /// Name of the interface.
        name: String,
        /// What has it, as in "another XDP program is attached".
        #[serde(deserialize_with = "words")]
        by: StaticText,
        /// What to do about it.
        #[serde(deserialize_with = "words")]
        remedy: StaticText,
    },
    /// Frames of the link may be longer than what holds them.
    #[error(
        "{name}: MTU {mtu} is too long for AF_XDP, whose frames here hold {most} bytes; 'ip link set {name} \
         mtu {most}', or use METHOD LINUX"
    )]
    FramesTooLong {
        /// Name of the interface.
        name: String,
        /// The longest packet that the link carries, without the link header.
        mtu: u32,
        /// The longest packet that the receiving memory holds.
        most: u32,
    },
    /// Less memory may be locked than is needed.
    #[error(
        "{name}: AF_XDP must lock {bytes} bytes of packet memory, and {limit} are allowed; raise the limit \
         ('ulimit -l', LimitMEMLOCK=), give the program CAP_IPC_LOCK, or use fewer frames"
    )]
    MemoryLimit {
        /// Name of the interface.
        name: String,
        /// Bytes of memory to lock.
        bytes: usize,
        /// Bytes that may be locked (`RLIMIT_MEMLOCK`).
        limit: u64,
    },
    /// The packet pool has too few frames left to receive into.
    #[error(
        "{name}: of the packet pool's {frames} frames {found} are left for a queue, and AF_XDP must have \
         {least}; use METHOD LINUX for some interfaces, fewer queues ('ethtool -L'), or a bigger pool \
         ('--frames')"
    )]
    FewFrames {
        /// Name of the interface.
        name: String,
        /// Frames of the pool that were available for a queue.
        found: u32,
        /// The least that is needed.
        least: u32,
        /// Frames of the whole pool.
        frames: usize,
    },
    /// Memory shared with the kernel was damaged.
    #[error(
        "{name}: {what} was overwritten with nonsense; open the interface again, and see who maps its \
         socket"
    )]
    Broken {
        /// Name of the interface.
        name: String,
        /// What makes no sense, as in "the receive ring".
        #[serde(deserialize_with = "words")]
        what: StaticText,
    },
    /// The system refused something for another reason.
    #[error("{name}: {doing} failed: {}", system_words(*.errno))]
    System {
        /// The interface, device or file.
        name: String,
        /// What was tried, as in "opening a packet socket".
        #[serde(deserialize_with = "words")]
        doing: StaticText,
        /// The system's error number.
        errno: i32,
    },
}

impl DeviceError {
    /// Puts the system's error into words: `doing` with `name` failed, and `capability` would permit it.
    pub(crate) fn from_io(
        name: &str,
        doing: &'static str,
        capability: &'static str,
        error: &io::Error,
    ) -> Self {
        let name = name.to_owned();
        match error.raw_os_error() {
            Some(libc::EPERM | libc::EACCES) => {
                DeviceError::NotPermitted { name, doing, capability: Some(capability) }
            }
            Some(libc::ENODEV | libc::ENXIO) => DeviceError::Gone { name },
            Some(libc::ENETDOWN) => DeviceError::Down { name },
            Some(errno) => DeviceError::System { name, doing, errno },
            None => DeviceError::Refused { name, why: error.to_string() },
        }
    }

    /// The same for a file, where no capability helps.
    pub(crate) fn from_file(name: &str, doing: &'static str, error: &io::Error) -> Self {
        let name = name.to_owned();
        match error.raw_os_error() {
            Some(libc::EPERM | libc::EACCES) => DeviceError::NotPermitted { name, doing, capability: None },
            Some(errno) => DeviceError::System { name, doing, errno },
            None => DeviceError::Refused { name, why: error.to_string() },
        }
    }
}

/// The interfaces that there are.
fn list_existing(existing: &[String]) -> String {
    match existing {
        [] => "there are none here".to_string(),
        _ => format!("there are {}", existing.join(", ")),
    }
}

/// What `doing` takes: a capability, or the permission of a file.
fn explain_permission(name: &str, doing: &str, capability: Option<&str>) -> String {
    match capability {
        Some(capability) => format!(
            "{doing} needs {capability}; run as root, or once 'setcap cap_net_raw,cap_net_admin=ep' on this \
             program"
        ),
        None => format!("{doing} is not permitted; see its owner and mode with 'ls -l {name}'"),
    }
}

/// The last lines of the kernel's verifier, or how they can be seen.
fn verifier_lines(lines: &[String]) -> String {
    match SHOWS_VERIFIER.load(Relaxed) {
        true => lines.iter().map(|line| format!("\n  verifier: {line}")).collect(),
        false => "; -v shows why".to_string(),
    }
}

/// Which record of a file is meant; nothing for the file's header.
fn record_place(record: u64) -> String {
    if record == 0 { String::new() } else { format!(", record {record}") }
}

/// The text of an error (strerror(3)) without its number.
pub fn system_message(error: &io::Error) -> String {
    error.to_string().split(" (os error").next().unwrap_or_default().to_owned()
}

/// The text of an errno.
pub(crate) fn system_words(errno: i32) -> String {
    system_message(&io::Error::from_raw_os_error(errno))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn from_io(errno: i32) -> String {
        let error = io::Error::from_raw_os_error(errno);
        DeviceError::from_io("eth0", "opening a packet socket", "CAP_NET_RAW", &error).to_string()
    }

    #[test]
    fn messages_say_what_where_and_the_remedy() {
        assert_eq!(
            from_io(libc::EPERM),
            "eth0: opening a packet socket needs CAP_NET_RAW; run as root, or once \
             'setcap cap_net_raw,cap_net_admin=ep' on this program"
        );
        let result = from_io(libc::ENETDOWN);
        assert_eq!(result, "eth0: interface is down; bring it up with 'ip link set eth0 up'");
        assert_eq!(from_io(libc::ENODEV), "eth0: interface vanished while in use");
        let no_memory = from_io(libc::ENOMEM);
        assert!(no_memory.starts_with("eth0: opening a packet socket failed: Cannot allocate memory"));
        let damage = PcapDamage::RecordCut { expected: 60, found: 7 };
        let error = DeviceError::BadFile { path: "a.pcap".into(), offset: 24, record: 1, damage };
        let result = error.to_string();
        assert_eq!(result, "a.pcap: byte 24, record 1: file ends inside a record: 7 of 60 bytes are there");
    }
}
