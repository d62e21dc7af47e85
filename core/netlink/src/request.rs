//! Questions to the kernel by netlink, and attributes of its answers, whatever their bytes are.
use crate::attributes::parse_text;
use crate::build::message;
use crate::socket::connect;
use crate::{HEADER, NLM_F_DUMP, NLM_F_DUMP_INTR, NLM_F_REQUEST, NLMSG_DONE, NLMSG_ERROR};
use netlink_packet_core::NlasIterator;
use netlink_sys::Socket;
use netlink_sys::protocols::NETLINK_NETFILTER;
use rustix::net::sockopt::{Timeout, set_socket_timeout};
use std::io;
use std::time::Duration;

/// How often an answer may be interrupted before it is given up.
const ATTEMPTS: usize = 20;
/// The kernel answers within its system call; a bug in it must not stop us for good.
const PATIENCE: Duration = Duration::from_secs(5);

/// One message: its type, and what follows the header.
#[derive(Debug, PartialEq, Eq)]
pub struct Message {
    /// `nlmsg_type`: of rtnetlink such as `RTM_NEWROUTE`, else the family or subsystem.
    pub kind: u16,
    /// What follows the header.
    pub body: Vec<u8>,
}

/// Returns all objects of a kind that the kernel has. Nothing if the kernel lacks the protocol.
pub fn dump(protocol: isize, kind: u16, body: &[u8]) -> io::Result<Vec<Message>> {
    RequestSocket::open(protocol)?.dump(kind, body)
}

/// A socket for several requests; none if the kernel lacks the protocol.
pub struct RequestSocket(Option<Socket>);

impl RequestSocket {
    /// Opens a socket of a protocol (`NETLINK_…`).
    pub fn open(protocol: isize) -> io::Result<RequestSocket> {
        open_socket(protocol).map(RequestSocket)
    }

    /// Returns all objects of a kind that the kernel has.
    pub fn dump(&self, kind: u16, body: &[u8]) -> io::Result<Vec<Message>> {
        let Some(socket) = &self.0 else { return Ok(Vec::new()) };
        for _ in 0..ATTEMPTS {
            socket.send(&message(kind, NLM_F_REQUEST | NLM_F_DUMP, body, &[]), 0)?;
            if let Some(messages) = receive_dump(socket)? {
                return Ok(messages);
            }
        }
        Err(io::Error::other("it changes faster than it can be read"))
    }
}

/// The bodies of all that a subsystem of netfilter has of a kind: none where the kernel does not know it.
pub fn dump_of_netfilter(kind: u16, body: &[u8]) -> io::Result<Vec<Vec<u8>>> {
    match dump(NETLINK_NETFILTER, kind, body) {
        Err(error) if is_unknown(&error) => Ok(Vec::new()),
        messages => Ok(messages?.into_iter().map(|message| message.body).collect()),
    }
}

/// Whether a subsystem of netfilter does not know what was asked for. That there is no such subsystem the
/// kernel says as `EINVAL`.
pub fn is_unknown(error: &io::Error) -> bool {
    use io::ErrorKind::{InvalidInput, NotFound, Unsupported};
    matches!(error.kind(), InvalidInput | NotFound | Unsupported)
}

/// The answer to one question; `None` if the kernel does not have the protocol.
pub fn query_one(protocol: isize, kind: u16, body: &[u8]) -> io::Result<Option<Message>> {
    let Some(socket) = open_socket(protocol)? else { return Ok(None) };
    socket.send(&message(kind, NLM_F_REQUEST, body, &[]), 0)?;
    let (bytes, _) = socket.recv_from_full()?;
    Ok(read(&bytes)?.messages.into_iter().next())
}

fn open_socket(protocol: isize) -> io::Result<Option<Socket>> {
    let socket = match connect(protocol) {
        Err(error) if is_missing(&error) => return Ok(None),
        socket => socket?,
    };
    set_socket_timeout(&socket, Timeout::Recv, Some(PATIENCE))?;
    Ok(Some(socket))
}

/// Whether an error says that the kernel was built without what was
/// asked for: `EPROTONOSUPPORT`, `EAFNOSUPPORT`.
pub fn is_missing(error: &io::Error) -> bool {
    let missing = [rustix::io::Errno::PROTONOSUPPORT, rustix::io::Errno::AFNOSUPPORT];
    missing.iter().any(|one| error.raw_os_error() == Some(one.raw_os_error()))
}

/// All messages of an answer, or `None` if it was interrupted.
fn receive_dump(socket: &Socket) -> io::Result<Option<Vec<Message>>> {
    let (mut all, mut whole) = (Vec::new(), true);
    loop {
        let (bytes, _) = socket.recv_from_full()?;
        let part = read(&bytes)?;
        whole &= !part.is_interrupted;
        all.extend(part.messages);
        if part.is_last {
            return Ok(whole.then_some(all));
        }
    }
}

/// What one datagram holds.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Datagram {
    messages: Vec<Message>,
    is_interrupted: bool,
    is_last: bool,
}

impl Datagram {
    /// Whether no more of the answer comes behind it.
    pub fn is_last(&self) -> bool {
        self.is_last
    }

    /// Its messages, without those that end an answer.
    pub fn into_messages(self) -> Vec<Message> {
        self.messages
    }
}

/// Reads a datagram. An error that the kernel says in it is an error here.
pub fn read(mut bytes: &[u8]) -> io::Result<Datagram> {
    let mut part = Datagram::default();
    while !bytes.is_empty() && !part.is_last {
        let length = usize::try_from(u32_at(bytes, 0)?).map_err(|_| nonsense())?;
        let (kind, flags) = (u16_at(bytes, 4)?, u16_at(bytes, 6)?);
        let body = bytes.get(HEADER..length).ok_or_else(nonsense)?;
        part.is_interrupted |= flags & NLM_F_DUMP_INTR != 0;
        match kind {
            // Both may hold an error as a negative number; zero is an acknowledgement.
            NLMSG_ERROR | NLMSG_DONE => {
                part.is_last = true;
                let code =
                    if body.is_empty() && kind == NLMSG_DONE { 0 } else { u32_at(body, 0)?.cast_signed() };
                if code < 0 {
                    return Err(io::Error::from_raw_os_error(code.saturating_neg()));
                }
            }
            kind => part.messages.push(Message { kind, body: body.to_vec() }),
        }
        bytes = bytes.get(length.next_multiple_of(4)..).unwrap_or_default();
    }
    Ok(part)
}

/// Attributes by their kind.
#[derive(Debug)]
pub struct Attributes<'a>(Vec<(u16, &'a [u8])>);

impl<'a> Attributes<'a> {
    /// Reads those that follow a fixed part of a message.
    pub fn after_header(fixed: usize, body: &'a [u8]) -> io::Result<Attributes<'a>> {
        Attributes::parse_all(body.get(fixed..).ok_or_else(nonsense)?)
    }
    /// Reads those that an attribute consists of.
    pub fn parse_all(bytes: &'a [u8]) -> io::Result<Attributes<'a>> {
        let one = |found: Result<netlink_packet_core::NlaBuffer<&'a [u8]>, _>| {
            let attribute = found.map_err(|_| nonsense())?;
            let (kind, length) = (attribute.kind(), attribute.value_length());
            let value = attribute.into_inner().get(4..4 + length).ok_or_else(nonsense)?;
            Ok((kind, value))
        };
        NlasIterator::new(bytes).map(one).collect::<io::Result<_>>().map(Attributes)
    }
    /// All of them, in order.
    pub fn iter(&self) -> impl Iterator<Item = (u16, &'a [u8])> {
        self.0.iter().copied()
    }
    /// The value of the first of a kind.
    pub fn value(&self, kind: u16) -> Option<&'a [u8]> {
        self.iter().find(|(one, _)| *one == kind).map(|(_, value)| value)
    }
    /// The attributes in one.
    pub fn nested(&self, kind: u16) -> io::Result<Option<Attributes<'a>>> {
        self.value(kind).map(Attributes::parse_all).transpose()
    }
    /// A text, without the zero at its end.
    pub fn text(&self, kind: u16) -> Option<String> {
        self.value(kind).map(parse_text)
    }
    /// A number in the machine's order, as rtnetlink has them.
    pub fn number(&self, kind: u16) -> Option<u32> {
        self.value(kind).and_then(|value| u32_at(value, 0).ok())
    }
    /// A number in network order, as nfnetlink has them.
    pub fn big_endian(&self, kind: u16) -> Option<u32> {
        self.number(kind).map(u32::from_be)
    }
}

/// The number of four bytes at a place, in the machine's order.
pub fn u32_at(bytes: &[u8], at: usize) -> io::Result<u32> {
    bytes
        .get(at..)
        .and_then(|rest| rest.first_chunk())
        .map(|word| u32::from_ne_bytes(*word))
        .ok_or_else(nonsense)
}

/// The number of two bytes at a place, in the machine's order.
pub fn u16_at(bytes: &[u8], at: usize) -> io::Result<u16> {
    bytes
        .get(at..)
        .and_then(|rest| rest.first_chunk())
        .map(|word| u16::from_ne_bytes(*word))
        .ok_or_else(nonsense)
}

/// The error for an answer that can't be right.
pub fn nonsense() -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, "the kernel's answer is not understood")
}

/// Messages as the kernel would write them, for tests.
#[doc(hidden)]
pub mod written {
    pub fn message(kind: u16, flags: u16, body: &[u8]) -> Vec<u8> {
        let mut bytes = crate::build::message(kind, flags, body, &[]);
        bytes.resize(bytes.len().next_multiple_of(4), 0);
        bytes
    }
    pub use crate::build::attribute;
    pub fn name(kind: u16, text: &str) -> Vec<u8> {
        attribute(kind, &[text.as_bytes(), &[0]].concat())
    }
    pub fn number(kind: u16, value: u32) -> Vec<u8> {
        attribute(kind, &value.to_ne_bytes())
    }
    pub fn big_endian(kind: u16, value: u32) -> Vec<u8> {
        attribute(kind, &value.to_be_bytes())
    }
    pub fn nested(kind: u16, attributes: &[Vec<u8>]) -> Vec<u8> {
        attribute(kind | 0x8000, &attributes.concat())
    }

    /// Takes a body cut off at every length, and with every byte changed, which must not panic.
    pub fn survive<T>(body: &[u8], read: impl Fn(&[u8]) -> T) {
        (0..body.len()).for_each(|len| drop(read(&body[..len])));
        for at in 0..body.len() {
            for value in [0, 1, 0x7f, 0xff] {
                let mut forged = body.to_vec();
                forged[at] = value;
                read(&forged);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::written::{attribute, message};
    use super::*;

    #[test]
    fn a_datagram_is_read_to_its_end_or_its_error() {
        let done = message(NLMSG_DONE, 2, &0_i32.to_ne_bytes());
        let bytes = [message(20, 2, &[1, 2, 3]), message(21, 2 | NLM_F_DUMP_INTR, &[]), done].concat();
        let part = read(&bytes).unwrap();
        let message_of = |kind, body: &[u8]| Message { kind, body: body.to_vec() };
        assert_eq!(part.messages, [message_of(20, &[1, 2, 3]), message_of(21, &[])]);
        assert!(part.is_last && part.is_interrupted);
        let refused = message(NLMSG_ERROR, 0, &[&(-1_i32).to_ne_bytes()[..], &[0; 16]].concat());
        assert_eq!(read(&refused).unwrap_err().kind(), io::ErrorKind::PermissionDenied);
        assert!(read(&message(NLMSG_ERROR, 0, &[0; 20])).unwrap().is_last, "an acknowledgement");
        assert!(read(&message(NLMSG_DONE, 0, &(-105_i32).to_ne_bytes())).is_err());
        written::survive(&bytes, |bytes| read(bytes).is_ok());
        written::survive(&refused, |bytes| read(bytes).is_ok());
        assert!(read(&[0; 16]).is_err(), "a length that is shorter than the header");
    }

    #[test]
    fn attributes_are_found_by_kind_and_broken_ones_are_an_error() {
        let bytes = [attribute(3, b"eth0\0"), attribute(0x8000 | 10, &attribute(1, &[7; 4]))].concat();
        let found = Attributes::parse_all(&bytes).unwrap();
        assert_eq!(found.text(3).as_deref(), Some("eth0"));
        assert_eq!(found.nested(10).unwrap().unwrap().number(1), Some(0x0707_0707));
        assert!(found.nested(4).unwrap().is_none() && found.number(99).is_none());
        for len in (0..bytes.len()).filter(|len| ![0, 12].contains(len)) {
            // What is missing may be no more than filling.
            let cut = Attributes::parse_all(&bytes[..len]);
            assert!(cut.is_err() || len > 8 && len < 12, "{len}");
        }
        written::survive(&bytes, |bytes| {
            Attributes::parse_all(bytes)
                .map(|found| (found.text(3), found.number(3), found.nested(10).is_ok()))
                .is_ok()
        });
    }
}
