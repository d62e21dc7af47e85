//! What a driver can do with XDP, by the kernel's generic netlink family `netdev` (Linux 6.3).
use netlink_packet_core::{
    DecodeError, DefaultNla, Emitable, NLM_F_REQUEST, NetlinkMessage, NetlinkPayload, Nla as _, NlaBuffer,
    NlasIterator, Parseable, ParseableParametrized,
};
use netlink_packet_generic::{GenlFamily, GenlHeader, GenlMessage};
use netlink_sys::{Socket, SocketAddr, protocols::NETLINK_GENERIC};
use std::io;

/// A family, as the kernel's controller knows it.
const NAME: &[u8] = b"netdev\0";
const FAMILY_ID: u16 = 1;
const FAMILY_NAME: u16 = 2;
const GET_FAMILY: u8 = 3;
/// The number of the controller, which is a family itself.
const CONTROLLER: u16 = 16;

/// An interface, as the family knows it.
const DEV_GET: u8 = 1;
const IFINDEX: u16 = 1;
const XDP_FEATURES: u16 = 3;
/// `NETDEV_XDP_ACT_*`.
const BASIC: u64 = 1;
const REDIRECT: u64 = 2;
const SEND: u64 = 4;
const ZERO_COPY: u64 = 8;

/// A message of any family. Attributes are not looked into before they are asked for: there are those in others, whose
/// lengths would have to be checked, too.
#[derive(Clone, Debug)]
struct Message {
    command: u8,
    attributes: Vec<DefaultNla>,
}

impl GenlFamily for Message {
    fn family_name() -> &'static str {
        // Whoever asks gives the number of the family.
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

/// What the driver of an interface can do with XDP.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct XdpFeatures {
    /// It runs programs, and sends on what they redirect: all that forwarding takes where frames arrive.
    pub redirects: bool,
    /// It sends frames that a program elsewhere redirects to it. Some virtual links do so only after their other end has
    /// a program, or joins frames (GRO).
    pub sends_redirected: bool,
    /// It gives frames to AF_XDP sockets without copying them.
    pub zero_copy: bool,
}

/// What the driver of an interface can do with XDP. Kernels that do not know the question are an error.
pub fn xdp_features(index: u32) -> io::Result<XdpFeatures> {
    let mut socket = Socket::new(NETLINK_GENERIC)?;
    socket.bind_auto()?;
    socket.connect(&SocketAddr::new(0, 0))?;
    let question = Message::asking(DEV_GET, IFINDEX, &index.to_ne_bytes());
    Ok(said_features(&ask(&socket, question, family(&socket)?)?))
}

fn said_features(answer: &Message) -> XdpFeatures {
    let features = answer.value(XDP_FEATURES).map_or(0, u64::from_ne_bytes);
    let has = |wanted: u64| features & wanted == wanted;
    XdpFeatures { redirects: has(BASIC | REDIRECT), sends_redirected: has(SEND), zero_copy: has(ZERO_COPY) }
}

/// Whether the driver of an interface gives its frames to AF_XDP sockets without copying them. Kernels that do not
/// know the question are an error.
pub(crate) fn has_zero_copy(index: u32) -> io::Result<bool> {
    xdp_features(index).map(|features| features.zero_copy)
}

/// The number that the kernel has given the family.
fn family(socket: &Socket) -> io::Result<u16> {
    let answer = ask(socket, Message::asking(GET_FAMILY, FAMILY_NAME, NAME), CONTROLLER)?;
    said_family(&answer).ok_or_else(|| io::ErrorKind::InvalidData.into())
}

fn said_family(answer: &Message) -> Option<u16> {
    answer.value(FAMILY_ID).map(u16::from_ne_bytes)
}

impl Message {
    fn asking(command: u8, kind: u16, value: &[u8]) -> Message {
        Message { command, attributes: vec![DefaultNla::new(kind, value.to_vec())] }
    }
    /// The value of an attribute, if it is of that length.
    fn value<const N: usize>(&self, kind: u16) -> Option<[u8; N]> {
        let found = self.attributes.iter().find(|attribute| attribute.kind() == kind)?;
        let mut bytes = [0; N];
        (found.value_len() == N).then(|| found.emit_value(&mut bytes))?;
        Some(bytes)
    }
}

fn ask(socket: &Socket, question: Message, family: u16) -> io::Result<Message> {
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
fn read(answer: &[u8]) -> io::Result<Message> {
    let invalid = |_| io::Error::from(io::ErrorKind::InvalidData);
    match NetlinkMessage::<GenlMessage<Message>>::deserialize(answer).map_err(invalid)?.payload {
        NetlinkPayload::InnerMessage(message) => Ok(message.payload),
        NetlinkPayload::Error(error) => Err(error.to_io()),
        _ => Err(io::ErrorKind::InvalidData.into()),
    }
}

/// Takes bytes for answers to both questions.
#[cfg(any(test, feature = "fuzz"))]
pub(crate) fn survive(bytes: &[u8]) {
    if let Ok(answer) = read(bytes) {
        let _ = (said_features(&answer), said_family(&answer));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Interface;
    use crate::namespace::{in_namespace, run};

    #[test]
    fn a_virtual_link_has_no_zero_copy() {
        in_namespace(|| {
            run("ip link add left type veth peer name right");
            match has_zero_copy(Interface::find("left").unwrap().index) {
                Ok(found) => assert!(!found),
                // Kernels before 6.3 do not know the family.
                Err(error) => assert_eq!(error.raw_os_error(), Some(libc::ENOENT), "{error}"),
            }
            assert!(has_zero_copy(9999).is_err(), "there is no such interface");
        });
    }

    #[test]
    fn an_answer_is_read_for_what_it_says_and_attributes_in_others_are_left_alone() {
        let answer = |attributes: &[&[u8]]| {
            let body = [&[GET_FAMILY, 1, 0, 0], &attributes.concat()[..]].concat();
            let len = (16 + body.len() as u32).to_ne_bytes();
            [&len[..], &CONTROLLER.to_ne_bytes(), &[0; 10], &body].concat()
        };
        let attribute = |kind: u16, value: &[u8]| {
            [&(4 + value.len() as u16).to_ne_bytes()[..], &kind.to_ne_bytes(), value].concat()
        };
        // Groups to subscribe to, as the controller lists them; the first says to be longer than all there is.
        let groups = attribute(7, &[&[0xff, 0xff, 1, 0][..], &attribute(1, &[1, 2, 3, 4])].concat());
        let number = attribute(FAMILY_ID, &[33, 0, 0, 0]);
        let short = attribute(FAMILY_ID, &33_u16.to_ne_bytes());
        assert_eq!(said_family(&read(&answer(&[&groups, &short, &[0, 0]])).unwrap()), Some(33));
        assert_eq!(said_family(&read(&answer(&[&number])).unwrap()), None, "of another length");
        let features = attribute(XDP_FEATURES, &(ZERO_COPY | 1).to_ne_bytes());
        let said = said_features(&read(&answer(&[&features])).unwrap());
        assert_eq!(
            said,
            XdpFeatures { zero_copy: true, ..XdpFeatures::default() },
            "one of two is not enough"
        );
        assert_eq!(said_features(&read(&answer(&[&groups])).unwrap()), XdpFeatures::default());
    }
}
