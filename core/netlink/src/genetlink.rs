//! Questions to families of generic netlink, and messages to their groups.
use crate::attributes::Attributes;
use crate::build;
use crate::refusal::refusal;
use crate::socket::connect;
use netlink_packet_core::{
    DecodeError, DefaultNla, Emitable, NLM_F_REQUEST, NetlinkMessage, NetlinkPayload, Nla as _, NlaBuffer,
    NlasIterator, Parseable, ParseableParametrized,
};
use netlink_packet_generic::{GenlFamily, GenlHeader, GenlMessage};
use netlink_sys::{Socket, SocketAddr, protocols::NETLINK_GENERIC};
use std::io;

/// The controller of families, which is a family itself (linux/genetlink.h).
const CONTROLLER: u16 = 16;
const GET_FAMILY: u8 = 3;
const FAMILY_ID: u16 = 1;
const FAMILY_NAME: u16 = 2;
const GROUPS: u16 = 7;
/// Of an entry of these.
const GROUP_NAME: u16 = 1;
const GROUP_ID: u16 = 2;
/// Groups that a message can be sent to: they are bits of `nl_groups` (netlink(7)).
const MOST_GROUPS: u32 = 32;
/// Without the flags that an attribute's kind may have (linux/netlink.h).
const NLA_TYPE_MASK: u16 = 0x3fff;

/// Queries a family by its name, with one attribute. A kernel that lacks the family answers
/// [`io::ErrorKind::NotFound`].
pub fn query_family(name: &str, command: u8, kind: u16, value: &[u8]) -> io::Result<Message> {
    let socket = connect(NETLINK_GENERIC)?;
    let family = family(&socket, name)?;
    query(&socket, Message::asking(command, kind, value), family)
}

/// A group of a family, by the numbers that the kernel has given both.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Group {
    family: u16,
    number: u32,
}

impl Group {
    /// Asks the kernel. [`io::ErrorKind::NotFound`] if it lacks the family or the group,
    /// [`io::ErrorKind::Unsupported`] if its number is beyond 32, to which no process can send.
    pub fn find(family: &str, group: &str) -> io::Result<Group> {
        let answer = describe(&connect(NETLINK_GENERIC)?, family)?;
        let family = said_family(&answer).ok_or(io::ErrorKind::InvalidData)?;
        let number = said_group(&answer, group).ok_or(io::ErrorKind::NotFound)?;
        match number {
            1..=MOST_GROUPS => Ok(Group { family, number }),
            _ => Err(io::ErrorKind::Unsupported.into()),
        }
    }
}

/// Sends messages of a family to the listeners of a group, as the kernel does, with CAP_NET_ADMIN.
pub struct GroupSender {
    socket: Socket,
    group: Group,
}

impl GroupSender {
    /// Opens a socket, which never blocks.
    pub fn open(group: Group) -> io::Result<GroupSender> {
        let mut socket = Socket::new(NETLINK_GENERIC)?;
        socket.set_non_blocking(true)?;
        socket.bind_auto()?;
        Ok(GroupSender { socket, group })
    }

    /// Sends a message; listeners without room lose it, and there may be none.
    pub fn send(&self, command: u8, attributes: &[Vec<u8>]) -> io::Result<()> {
        // Without NLM_F_REQUEST the kernel, which gets it too, doesn't answer.
        let bytes = build::message(self.group.family, 0, &[command, 1, 0, 0], attributes);
        let to = SocketAddr::new(0, 1 << (self.group.number - 1));
        self.socket.send_to(&bytes, &to, 0).map(drop)
    }
}

/// A message of any family. Attributes are parsed only on access: they can be nested, and all nested lengths
/// would have to be checked, too.
#[derive(Clone, Debug)]
pub struct Message {
    command: u8,
    attributes: Vec<DefaultNla>,
}

impl GenlFamily for Message {
    fn family_name() -> &'static str {
        // The caller sets the family's number.
        ""
    }
    fn command(&self) -> u8 {
        self.command
    }
    fn version(&self) -> u8 {
        1
    }
}
impl Emitable for Message {
    fn buffer_len(&self) -> usize {
        self.attributes.as_slice().buffer_len()
    }
    fn emit(&self, buffer: &mut [u8]) {
        self.attributes.as_slice().emit(buffer);
    }
}
impl ParseableParametrized<[u8], GenlHeader> for Message {
    fn parse_with_param(bytes: &[u8], header: GenlHeader) -> Result<Message, DecodeError> {
        let attributes: Result<Vec<_>, DecodeError> = NlasIterator::new(bytes)
            .map(|attribute| attribute.and_then(|found: NlaBuffer<&[u8]>| DefaultNla::parse(&found)))
            .collect();
        Ok(Message { command: header.cmd, attributes: attributes? })
    }
}

/// The number that the kernel has given the family.
fn family(socket: &Socket, name: &str) -> io::Result<u16> {
    said_family(&describe(socket, name)?).ok_or_else(|| io::ErrorKind::InvalidData.into())
}

/// What the controller says of a family.
fn describe(socket: &Socket, name: &str) -> io::Result<Message> {
    let name = [name.as_bytes(), &[0]].concat();
    query(socket, Message::asking(GET_FAMILY, FAMILY_NAME, &name), CONTROLLER)
}

fn said_family(answer: &Message) -> Option<u16> {
    answer.value(FAMILY_ID).map(u16::from_ne_bytes)
}

/// The number of a group, by its name.
fn said_group(answer: &Message, name: &str) -> Option<u32> {
    let groups = answer.bytes(GROUPS)?;
    let is_named = |entry: &Attributes<'_>| {
        let found = entry.clone().find_value(GROUP_NAME);
        found.and_then(|found| found.strip_suffix(&[0])).is_some_and(|found| found == name.as_bytes())
    };
    let mut entries = Attributes::new(&groups).map(|(_, entry)| Attributes::new(entry));
    let number = entries.find(is_named)?.find_value(GROUP_ID)?;
    Some(u32::from_ne_bytes(number.try_into().ok()?))
}

impl Message {
    fn asking(command: u8, kind: u16, value: &[u8]) -> Message {
        Message { command, attributes: vec![DefaultNla::new(kind, value.to_vec())] }
    }
    /// The value of an attribute, if it is of that length.
    pub fn value<const N: usize>(&self, kind: u16) -> Option<[u8; N]> {
        let found = self.find(kind)?;
        let mut bytes = [0; N];
        (found.value_len() == N).then(|| found.emit_value(&mut bytes))?;
        Some(bytes)
    }
    /// An attribute by its kind; whether it says to hold others does not matter.
    fn find(&self, kind: u16) -> Option<&DefaultNla> {
        self.attributes.iter().find(|attribute| attribute.kind() & NLA_TYPE_MASK == kind)
    }
    /// The value of an attribute, however long it is.
    pub fn bytes(&self, kind: u16) -> Option<Vec<u8>> {
        let found = self.find(kind)?;
        let mut bytes = vec![0; found.value_len()];
        found.emit_value(&mut bytes);
        Some(bytes)
    }
}

fn query(socket: &Socket, question: Message, family: u16) -> io::Result<Message> {
    let mut message = GenlMessage::from_payload(question);
    message.set_resolved_family_id(family);
    message.finalize();
    let mut message = NetlinkMessage::from(message);
    message.header.flags = NLM_F_REQUEST;
    message.finalize();
    let mut bytes = vec![0; message.buffer_len()];
    message.serialize(&mut bytes);
    socket.send(&bytes, 0)?;
    let (answer, _) = socket.recv_from_full()?;
    read(&answer)
}

/// Reads an answer, whatever its bytes are.
pub fn read(answer: &[u8]) -> io::Result<Message> {
    let invalid = |_| io::Error::from(io::ErrorKind::InvalidData);
    match NetlinkMessage::<GenlMessage<Message>>::deserialize(answer).map_err(invalid)?.payload {
        NetlinkPayload::InnerMessage(message) => Ok(message.payload),
        NetlinkPayload::Error(error) => Err(refusal(&error)),
        _ => Err(io::ErrorKind::InvalidData.into()),
    }
}

/// Takes bytes for an answer of the controller, as fuzz targets do.
#[doc(hidden)]
pub fn survive(bytes: &[u8]) {
    if let Ok(answer) = read(bytes) {
        let _ = (said_family(&answer), said_group(&answer, "packets"));
    }
}

/// Answers as the kernel would write them.
#[doc(hidden)]
pub mod written {
    use super::{CONTROLLER, GET_FAMILY};
    pub use crate::build::attribute;

    /// An answer of the controller.
    pub fn answer(attributes: &[&[u8]]) -> Vec<u8> {
        let body = [&[GET_FAMILY, 1, 0, 0], &attributes.concat()[..]].concat();
        let len = (16 + body.len() as u32).to_ne_bytes();
        [&len[..], &CONTROLLER.to_ne_bytes(), &[0; 10], &body].concat()
    }
}

#[cfg(test)]
mod tests {
    use super::written::{answer, attribute};
    use super::*;

    #[test]
    fn the_number_of_a_family_is_found_and_attributes_in_others_are_left_alone() {
        // Groups to subscribe to, as the controller lists them; the first says to be longer
        // than all there is.
        let groups = attribute(7, &[&[0xff, 0xff, 1, 0][..], &attribute(1, &[1, 2, 3, 4])].concat());
        let number = attribute(FAMILY_ID, &[33, 0]);
        let long = attribute(FAMILY_ID, &[33, 0, 0, 0]);
        assert_eq!(said_family(&read(&answer(&[&groups, &number])).unwrap()), Some(33));
        assert_eq!(said_family(&read(&answer(&[&long])).unwrap()), None, "of another length");
        assert_eq!(said_family(&read(&answer(&[&groups])).unwrap()), None);
        let group = |number: u16, name: &str, id: &[u8]| {
            let name = attribute(GROUP_NAME, &[name.as_bytes(), &[0]].concat());
            attribute(number, &[name, attribute(GROUP_ID, id)].concat())
        };
        let groups = [group(1, "config", &[5, 0, 0, 0]), group(2, "packets", &[6, 0, 0, 0])].concat();
        let groups = attribute(GROUPS, &groups);
        let found = read(&answer(&[&number, &groups])).unwrap();
        assert_eq!((said_group(&found, "packets"), said_group(&found, "packet")), (Some(6), None));
        let short = attribute(GROUPS, &group(1, "packets", &[6, 0]));
        assert_eq!(said_group(&read(&answer(&[&short])).unwrap(), "packets"), None);
        let whole = answer(&[&groups, &number]);
        (0..whole.len()).for_each(|len| survive(&whole[..len]));
    }
}
