//! What a driver can do with XDP, by the kernel's generic netlink family `netdev` (Linux 6.3).
use netlink_packet_core::{
    DecodeError, DefaultNla, Emitable, NLM_F_REQUEST, NetlinkMessage, NetlinkPayload, Nla as _, NlaBuffer,
    NlasIterator, Parseable, ParseableParametrized,
};
use netlink_packet_generic::ctrl::nlas::GenlCtrlAttrs;
use netlink_packet_generic::ctrl::{GenlCtrl, GenlCtrlCmd};
use netlink_packet_generic::{GenlFamily, GenlHeader, GenlMessage};
use netlink_sys::{Socket, SocketAddr, protocols::NETLINK_GENERIC};
use std::io;

const NAME: &str = "netdev";
const DEV_GET: u8 = 1;
const IFINDEX: u16 = 1;
const XDP_FEATURES: u16 = 3;
/// `NETDEV_XDP_ACT_XSK_ZEROCOPY`.
const ZERO_COPY: u64 = 8;

/// A message of the family.
#[derive(Clone, Debug)]
struct Netdev {
    command: u8,
    attributes: Vec<DefaultNla>,
}

impl GenlFamily for Netdev {
    fn family_name() -> &'static str {
        NAME
    }
    fn command(&self) -> u8 {
        self.command
    }
    fn version(&self) -> u8 {
        1
    }
}
impl Emitable for Netdev {
    fn buffer_len(&self) -> usize {
        self.attributes.as_slice().buffer_len()
    }
    fn emit(&self, buffer: &mut [u8]) {
        self.attributes.as_slice().emit(buffer);
    }
}
impl ParseableParametrized<[u8], GenlHeader> for Netdev {
    fn parse_with_param(bytes: &[u8], header: GenlHeader) -> Result<Netdev, DecodeError> {
        let attributes: Result<Vec<_>, DecodeError> = NlasIterator::new(bytes)
            .map(|attribute| attribute.and_then(|found: NlaBuffer<&[u8]>| DefaultNla::parse(&found)))
            .collect();
        Ok(Netdev { command: header.cmd, attributes: attributes? })
    }
}

/// Whether the driver of an interface gives its frames to AF_XDP sockets without copying them. Kernels that do not
/// know the question are an error.
pub(crate) fn has_zero_copy(index: u32) -> io::Result<bool> {
    let mut socket = Socket::new(NETLINK_GENERIC)?;
    socket.bind_auto()?;
    socket.connect(&SocketAddr::new(0, 0))?;
    let question =
        Netdev { command: DEV_GET, attributes: vec![DefaultNla::new(IFINDEX, index.to_ne_bytes().to_vec())] };
    let answer = ask(&socket, question, family(&socket)?)?;
    let features = answer.attributes.iter().find(|attribute| attribute.kind() == XDP_FEATURES);
    Ok(features.is_some_and(|features| number(features) & ZERO_COPY != 0))
}

fn number(attribute: &DefaultNla) -> u64 {
    let mut bytes = [0; 8];
    if attribute.value_len() == bytes.len() {
        attribute.emit_value(&mut bytes);
    }
    u64::from_ne_bytes(bytes)
}

/// The number that the kernel has given the family.
fn family(socket: &Socket) -> io::Result<u16> {
    let nlas = vec![GenlCtrlAttrs::FamilyName(NAME.to_owned())];
    let question = GenlCtrl { cmd: GenlCtrlCmd::GetFamily, nlas };
    let control = question.family_id();
    let answer = ask(socket, question, control)?;
    let id = answer.nlas.iter().find_map(|nla| match nla {
        GenlCtrlAttrs::FamilyId(id) => Some(*id),
        _ => None,
    });
    id.ok_or_else(|| io::ErrorKind::InvalidData.into())
}

fn ask<F>(socket: &Socket, question: F, family: u16) -> io::Result<F>
where
    F: GenlFamily + Emitable + ParseableParametrized<[u8], GenlHeader> + std::fmt::Debug,
{
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
    let invalid = |_| io::Error::from(io::ErrorKind::InvalidData);
    match NetlinkMessage::<GenlMessage<F>>::deserialize(&answer).map_err(invalid)?.payload {
        NetlinkPayload::InnerMessage(message) => Ok(message.payload),
        NetlinkPayload::Error(error) => Err(error.to_io()),
        _ => Err(io::ErrorKind::InvalidData.into()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Interface;
    use crate::namespace::{in_namespace, may_make_namespaces, run};

    #[test]
    fn a_virtual_link_has_no_zero_copy() {
        if !may_make_namespaces() {
            return;
        }
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
    fn attributes_of_any_bytes_are_read_or_refused() {
        let mut bytes = [0u8; 40];
        for seed in 0..2000u32 {
            bytes.iter_mut().enumerate().for_each(|(n, byte)| {
                *byte = (seed.wrapping_mul(2_654_435_761).rotate_left(n as u32) >> 13) as u8 >> (seed % 7);
            });
            for length in 0..bytes.len() {
                let _ = Netdev::parse_with_param(&bytes[..length], GenlHeader { cmd: 1, version: 1 });
            }
        }
    }
}
