//! What an interface's driver says of itself.
use crate::sys::{self, EthtoolCommand};
use crate::{DeviceError, Interface, interface};
use rustix::fd::AsFd;
use std::path::Path;

/// Drivers of devices that are not the host's own, but whose frames come from other hosts
/// on the same machine.
const GUEST_DRIVERS: [&str; 6] = ["virtio_net", "vmxnet3", "hv_netvsc", "xen_netfront", "vif", "gve"];
/// Drivers of links without any device.
const VIRTUAL_DRIVERS: [&str; 12] = [
    "veth", "tun", "netkit", "bridge", "dummy", "ifb", "macvlan", "macvtap", "ipvlan", "vxlan", "team",
    "bonding",
];
const ETH_FLAG_RXVLAN: u32 = 1 << 8;

/// What the router needs to know about a driver before it uses its queues.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct DriverFacts {
    /// Its name; empty when it does not say.
    pub(crate) driver: String,
    /// Number of its queues.
    pub(crate) queues: u16,
    /// Whether its frames may come with unfinished checksums.
    pub(crate) leaves_offloads: bool,
    /// Whether it takes VLAN tags off. On a link without a device it is the other end that
    /// never puts them in.
    pub(crate) strips_vlan: bool,
    /// What it or the kernel does with frames in their senders' and receivers' stead, by ethtool's names.
    pub(crate) offloads: Vec<&'static str>,
}

/// Offloads that matter to a router, by ethtool's short names, with the questions for them.
const OFFLOADS: [(&str, EthtoolCommand); 6] = [
    ("rx", EthtoolCommand::ReceiveChecksum),
    ("tx", EthtoolCommand::SendChecksum),
    ("sg", EthtoolCommand::Gather),
    ("tso", EthtoolCommand::CutTcp),
    ("gso", EthtoolCommand::CutLate),
    ("gro", EthtoolCommand::Join),
];

impl DriverFacts {
    pub(crate) fn query(interface: &Interface) -> Result<DriverFacts, DeviceError> {
        let socket = interface::control_socket(&interface.name)?;
        let (fd, name) = (socket.as_fd(), interface.name.as_str());
        let answer = sys::query_driver::<196>(fd, name, EthtoolCommand::Name).ok();
        let driver = answer.map_or(String::new(), |answer| text(&answer[4..36]));
        let channels = sys::query_driver::<36>(fd, name, EthtoolCommand::Channels).ok();
        let queues = channels.and_then(|answer| queues_of(&answer)).or_else(|| queues_by_sysfs(interface));
        let value =
            |question| sys::query_driver::<8>(fd, name, question).map_or(0, |answer| number(&answer, 1));
        let flags = value(EthtoolCommand::Flags);
        let is_on = |question: &EthtoolCommand| value(*question) != 0;
        let offloads = OFFLOADS.into_iter().filter(|(_, question)| is_on(question)).map(|(name, _)| name);
        let known = |list: &[&str]| list.contains(&driver.as_str());
        Ok(DriverFacts {
            queues: queues.unwrap_or(1),
            leaves_offloads: driver.is_empty() || known(&VIRTUAL_DRIVERS) || known(&GUEST_DRIVERS),
            strips_vlan: flags & ETH_FLAG_RXVLAN != 0 && !known(&VIRTUAL_DRIVERS),
            offloads: offloads.collect(),
            driver,
        })
    }
}

/// Whether an interface's driver takes VLAN tags off frames and puts them beside, where XDP
/// does not see them.
///
/// # Errors
/// When no socket for the query can be opened.
pub fn strips_tags(interface: &Interface) -> Result<bool, DeviceError> {
    DriverFacts::query(interface).map(|facts| facts.strips_vlan)
}

/// Pairs of queues that receive and send (`ethtool -l`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Channels {
    /// Number of pairs in use.
    pub combined: u32,
    /// The most pairs that the driver can have.
    pub most_combined: u32,
}

/// The queues of an interface.
///
/// # Errors
/// When no socket for the query can be opened, or the driver does not answer.
pub fn channels(interface: &Interface) -> Result<Channels, DeviceError> {
    let socket = interface::control_socket(&interface.name)?;
    let answer = sys::query_driver::<36>(socket.as_fd(), &interface.name, EthtoolCommand::Channels);
    let answer = answer.map_err(|error| {
        DeviceError::from_io(&interface.name, "asking for its queues", "no right", &error)
    })?;
    Ok(Channels { combined: number(&answer, 8), most_combined: number(&answer, 4) })
}

/// A word of an answer, counting from the command's number.
fn number(answer: &[u8], word: usize) -> u32 {
    let bytes = answer.get(word * 4..).and_then(|rest| rest.first_chunk::<4>());
    bytes.map_or(0, |bytes| u32::from_ne_bytes(*bytes))
}

fn text(bytes: &[u8]) -> String {
    let end = bytes.iter().position(|byte| *byte == 0).unwrap_or(bytes.len());
    String::from_utf8_lossy(&bytes[..end]).into_owned()
}

/// Queues that frames come in by: those that only receive, and those that also send.
fn queues_of(channels: &[u8]) -> Option<u16> {
    let (receive, combined) = (number(channels, 5), number(channels, 8));
    u16::try_from(receive.saturating_add(combined)).ok().filter(|queues| *queues > 0)
}

/// Queues that the file system of devices shows, if it is that of this network namespace.
fn queues_by_sysfs(interface: &Interface) -> Option<u16> {
    let folder = Path::new("/sys/class/net").join(&interface.name);
    let index = std::fs::read_to_string(folder.join("ifindex")).ok()?;
    if index.trim() != interface.index.to_string() {
        return None;
    }
    let entries = std::fs::read_dir(folder.join("queues")).ok()?;
    let names = entries.filter_map(|entry| entry.ok()?.file_name().into_string().ok());
    u16::try_from(names.filter(|name| name.starts_with("rx-")).count()).ok().filter(|queues| *queues > 0)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::namespace::{in_namespace, run};

    #[test]
    fn a_driver_tells_its_name_and_queues() {
        in_namespace(|| {
            run("ip link add left numrxqueues 3 numtxqueues 3 type veth peer name right");
            let facts = DriverFacts::query(&Interface::find("left").unwrap()).unwrap();
            assert_eq!((facts.driver.as_str(), facts.leaves_offloads), ("veth", true));
            assert!(facts.offloads.contains(&"tso"), "{facts:?}");
            run("ethtool -K left tso off");
            let facts = DriverFacts::query(&Interface::find("left").unwrap()).unwrap();
            assert!(!facts.offloads.contains(&"tso"), "{facts:?}");
            // By default the kernel makes at most one queue per processor.
            assert!((1..=3).contains(&facts.queues), "{facts:?}");
            run("ip link add five numrxqueues 5 numtxqueues 5 type veth peer name other");
            run("ethtool -L five rx 5 tx 5");
            assert_eq!(DriverFacts::query(&Interface::find("five").unwrap()).unwrap().queues, 5);
            let bridge = DriverFacts::query(&Interface::find("lo").unwrap()).unwrap();
            assert_eq!(bridge.queues, 1);
        });
    }

    #[test]
    fn an_answer_of_any_bytes_is_some_number_of_queues_or_none() {
        assert_eq!(queues_of(&[0; 36]), None);
        assert_eq!(queues_of(&[0xff; 36]), None);
        let mut channels = [0; 36];
        channels[20..24].copy_from_slice(&2_u32.to_ne_bytes());
        channels[32..36].copy_from_slice(&4_u32.to_ne_bytes());
        assert_eq!(queues_of(&channels), Some(6));
        assert_eq!(queues_of(&channels[..7]), None);
    }
}
