//! What a driver can do with XDP, by the kernel's generic netlink family `netdev` (Linux 6.3).
use artery_netlink::genetlink::{Message, query_family};
use std::io;

/// An interface, as the family knows it.
const DEV_GET: u8 = 1;
const IFINDEX: u16 = 1;
const XDP_FEATURES: u16 = 3;
/// Bits of `NETDEV_XDP_ACT_*` (linux/netdev.h).
const BASIC: u64 = 1;
const REDIRECT: u64 = 2;
const SEND: u64 = 4;
const ZERO_COPY: u64 = 8;
const RECEIVE_FRAGMENTS: u64 = 32;
const SEND_FRAGMENTS: u64 = 64;

/// What the driver of an interface can do with XDP.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct XdpFeatures {
    /// It runs programs, and sends frames that they redirect: all that forwarding needs
    /// on the receiving side.
    pub redirects: bool,
    /// It sends frames that a program elsewhere redirects to it. Some virtual links do so only after their
    /// other end has a program, or joins frames (GRO).
    pub sends_redirected: bool,
    /// It gives frames to AF_XDP sockets without copying them.
    pub zero_copy: bool,
    /// It gives frames that lie in several buffers, as those of a large MTU do, to programs.
    pub receives_multi_buffer: bool,
    /// It sends such frames that a program elsewhere redirects to it.
    pub sends_multi_buffer: bool,
}

/// What the driver of an interface can do with XDP. Kernels that do not know the question are an error.
pub fn xdp_features(index: u32) -> io::Result<XdpFeatures> {
    query_family("netdev", DEV_GET, IFINDEX, &index.to_ne_bytes()).map(|answer| said_features(&answer))
}

fn said_features(answer: &Message) -> XdpFeatures {
    let features = answer.value(XDP_FEATURES).map_or(0, u64::from_ne_bytes);
    let has = |wanted: u64| features & wanted == wanted;
    XdpFeatures {
        redirects: has(BASIC | REDIRECT),
        sends_redirected: has(SEND),
        zero_copy: has(ZERO_COPY),
        receives_multi_buffer: has(RECEIVE_FRAGMENTS),
        sends_multi_buffer: has(SEND | SEND_FRAGMENTS),
    }
}

/// Whether the driver of an interface gives its frames to AF_XDP sockets without copying them. Kernels that
/// do not know the question are an error.
pub(crate) fn has_zero_copy(index: u32) -> io::Result<bool> {
    xdp_features(index).map(|features| features.zero_copy)
}

/// Takes bytes for an answer.
#[cfg(any(test, feature = "fuzz"))]
pub(crate) fn survive(bytes: &[u8]) {
    if let Ok(answer) = artery_netlink::genetlink::read(bytes) {
        let _ = said_features(&answer);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Interface;
    use crate::namespace::{in_namespace, run};
    use artery_netlink::genetlink::read;
    use artery_netlink::genetlink::written::{answer, attribute};

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
    fn an_answer_has_the_features_whose_bits_are_all_set() {
        let said = |bits: u64| {
            let features = attribute(XDP_FEATURES, &bits.to_ne_bytes());
            said_features(&read(&answer(&[&features])).unwrap())
        };
        let expected = XdpFeatures { zero_copy: true, ..XdpFeatures::default() };
        assert_eq!(said(ZERO_COPY | 1 | SEND_FRAGMENTS), expected, "one of two is not enough");
        let expected = XdpFeatures { sends_redirected: true, sends_multi_buffer: true, ..expected };
        assert_eq!(said(ZERO_COPY | SEND | SEND_FRAGMENTS), expected);
        assert_eq!(said_features(&read(&answer(&[])).unwrap()), XdpFeatures::default());
    }
}
