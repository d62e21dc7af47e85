//! Messages of netlink (struct nlmsghdr), one after the other in a datagram.
use super::attributes::{read_u16, read_u32};
use super::{Address, Link, Neighbor, NextHopObject, Route, Rule, Settings};

/// Bytes in front of a message's payload.
pub const HEADER: usize = 16;
/// The kind of an answer that is an error, or says that there was none.
pub const NLMSG_ERROR: u16 = 2;
/// The kind of the last message of a dump.
pub const NLMSG_DONE: u16 = 3;
/// Flags of a request (linux/netlink.h): every one has the first.
pub const NLM_F_REQUEST: u16 = 1;
/// Asks for an answer even if no error occurs.
pub const NLM_F_ACK: u16 = 4;
/// Requests a dump of all records.
pub const NLM_F_DUMP: u16 = 0x300;
/// Refuses a record that exists.
pub const NLM_F_EXCL: u16 = 0x200;
/// Makes a record that does not exist.
pub const NLM_F_CREATE: u16 = 0x400;
/// The flag of a dump that changed while it was being sent.
pub const NLM_F_DUMP_INTR: u16 = 0x10;
const NLM_F_REPLACE: u16 = 0x100;
const NLM_F_APPEND: u16 = 0x800;

/// Message types that report something new; the next number reports that it is gone.
const NEW_LINK: u16 = 16;
const NEW_ADDRESS: u16 = 20;
const NEW_ROUTE: u16 = 24;
const NEW_NEIGHBOR: u16 = 28;
const NEW_RULE: u16 = 32;
const NEW_SETTINGS: u16 = 80;
const NEW_NEXT_HOP: u16 = 104;

/// A message, not yet looked into.
#[derive(Clone, Copy, Debug)]
pub struct Message<'a> {
    /// nlmsg_type, such as RTM_NEWROUTE.
    pub kind: u16,
    /// Flags of the message header: nlmsg_flags.
    pub flags: u16,
    /// nlmsg_seq: that of the request which this answers.
    pub sequence: u32,
    /// The bytes after the header.
    pub payload: &'a [u8],
}

impl Message<'_> {
    /// The error code that the payload begins with: 0 for none, else the negative of an errno.
    pub fn error_code(&self) -> i32 {
        read_u32(self.payload) as i32
    }
}

/// Goes through the messages of a datagram; ends where the bytes are no message any more.
pub struct Messages<'a>(pub &'a [u8]);

impl<'a> Iterator for Messages<'a> {
    type Item = Message<'a>;

    #[inline]
    fn next(&mut self) -> Option<Message<'a>> {
        let header = self.0.first_chunk::<HEADER>()?;
        let len = read_u32(header) as usize;
        let message = Message {
            kind: read_u16(&header[4..]),
            flags: read_u16(&header[6..]),
            sequence: read_u32(&header[8..]),
            payload: self.0.get(HEADER..len)?,
        };
        self.0 = self.0.get(len.next_multiple_of(4)..).unwrap_or_default();
        Some(message)
    }
}

/// Something the kernel has, or had.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Record {
    /// An interface that was added, changed or removed.
    Link(Link),
    /// An address of an interface.
    Address(Address),
    /// A route of the kernel's tables.
    Route(Route),
    /// A next-hop object of the kernel.
    NextHop(NextHopObject),
    /// An entry of the kernel's neighbor table.
    Neighbor(Neighbor),
    /// A rule of policy routing.
    Rule(Rule),
    /// Settings of an interface.
    Settings(Settings),
}

/// How something came among others that are like it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Manner {
    /// In front of them, or beside them.
    Plain,
    /// In the place of one.
    Replace,
    /// Behind the existing ones (NLM_F_APPEND).
    Append,
}

/// That something is there, or gone.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct News {
    /// Whether it is gone.
    pub is_gone: bool,
    /// How it relates to existing entries.
    pub manner: Manner,
    /// What it is about.
    pub record: Record,
}

impl News {
    /// Reads a message; None if it reports nothing that is mirrored.
    #[inline]
    pub fn parse_message(message: &Message<'_>) -> Option<News> {
        // New, gone, get and set have numbers in a row.
        let (base, operation) = (message.kind & !3, message.kind & 3);
        let payload = message.payload;
        let record = match base {
            _ if operation > 1 => return None,
            NEW_ROUTE => Record::Route(Route::parse_message(payload)?),
            NEW_NEIGHBOR => Record::Neighbor(Neighbor::parse_message(payload)?),
            NEW_LINK => Record::Link(Link::parse_message(payload)?),
            NEW_ADDRESS => Record::Address(Address::parse_message(payload)?),
            NEW_NEXT_HOP => Record::NextHop(NextHopObject::parse_message(payload)?),
            NEW_RULE => Record::Rule(Rule::parse_message(payload)?),
            NEW_SETTINGS => Record::Settings(Settings::parse_message(payload)?),
            _ => return None,
        };
        let manner = match message.flags {
            flags if flags & NLM_F_REPLACE != 0 => Manner::Replace,
            flags if flags & NLM_F_APPEND != 0 => Manner::Append,
            _ => Manner::Plain,
        };
        Some(News { is_gone: operation == 1, manner, record })
    }
}
