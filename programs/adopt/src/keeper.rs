//! Keeps neighbor entries fresh that only the fast path uses.
//!
//! The kernel solicits a neighbor again when it has used an entry that is no longer fresh. It does not see
//! what programs send, so this refresher reports the use to it, as often as the kernel's own sending would
//! have shown in its neighbor states.
use artery_netlink::socket::connect;
use artery_netlink::{Family, NLM_F_REQUEST, build};
use netlink_sys::{Socket, protocols::NETLINK_ROUTE};
use std::io;
use std::net::IpAddr;

const RTM_NEWNEIGH: u16 = 28;
const NDA_DST: u16 = 1;
/// The entry was used.
const NTF_USE: u8 = 1;

/// Reports to the kernel which neighbors are in use.
#[derive(Debug)]
pub(crate) struct NeighborRefresher(Socket);

impl NeighborRefresher {
    /// Opens a netlink socket to the kernel of this network namespace.
    pub(crate) fn open() -> io::Result<NeighborRefresher> {
        let socket = connect(NETLINK_ROUTE)?;
        socket.set_non_blocking(true)?;
        Ok(NeighborRefresher(socket))
    }

    /// Reports that packets were sent to neighbors, by interface and address. The mirror receives what the
    /// kernel changes because of it, such as that a neighbor is gone.
    pub(crate) fn report_used(
        &mut self,
        neighbors: impl IntoIterator<Item = (u32, IpAddr)>,
    ) -> io::Result<()> {
        for (link, address) in neighbors {
            match self.0.send(&message(link, address), 0) {
                // The others are for the next time.
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => break,
                result => result.map(drop)?,
            }
        }
        self.forget_answers();
        Ok(())
    }

    /// Errors come without being asked for.
    fn forget_answers(&mut self) {
        let mut start = [0; 64];
        while self.0.recv(&mut &mut start[..], 0).is_ok() {}
    }
}

/// RTM_NEWNEIGH with struct ndmsg and NDA_DST.
fn message(link: u32, address: IpAddr) -> Vec<u8> {
    let family = if address.is_ipv4() { Family::V4 } else { Family::V6 };
    let [a, b, c, d] = link.to_ne_bytes();
    let header = [family.number(), 0, 0, 0, a, b, c, d, 0, 0, NTF_USE, 0];
    let destination = match address {
        IpAddr::V4(address) => build::attribute(NDA_DST, &address.octets()),
        IpAddr::V6(address) => build::attribute(NDA_DST, &address.octets()),
    };
    build::message(RTM_NEWNEIGH, NLM_F_REQUEST, &header, &[destination])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_message_says_that_a_neighbor_is_used_and_changes_nothing_else() {
        let bytes = message(7, "10.0.0.1".parse().unwrap());
        let kind = u16::from_ne_bytes([bytes[4], bytes[5]]);
        let flags = u16::from_ne_bytes([bytes[6], bytes[7]]);
        assert_eq!((bytes.len(), kind, flags), (36, 28, NLM_F_REQUEST));
        assert_eq!(bytes[16..], [2, 0, 0, 0, 7, 0, 0, 0, 0, 0, NTF_USE, 0, 8, 0, 1, 0, 10, 0, 0, 1]);
    }
}
