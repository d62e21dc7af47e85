//! Network interfaces of the machine: their names and their state.
use crate::privsep::{self, Request};
use crate::sys::{self, IfreqCommand, IfreqValue};
use crate::{DeviceError, LinkType};
use rustix::fd::{AsFd, OwnedFd};
use rustix::io::Errno;
use rustix::net::{AddressFamily, SocketFlags, SocketType};
use std::io;

/// The state of a network interface at one moment.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Interface {
    /// The name, as `ip link` shows it.
    pub name: String,
    /// The kernel's number for it.
    pub index: u32,
    /// Its Ethernet address, `None` where the link has none.
    pub mac: Option<[u8; 6]>,
    /// The longest packet it carries, without the link header.
    pub mtu: u32,
    /// Whether it was brought up.
    pub up: bool,
    /// Whether it is up and has a carrier.
    pub running: bool,
    /// What its frames begin with; `None` for kinds that are not known here.
    pub link_type: Option<LinkType>,
}

/// The parent interface and the VLAN (1 to 4094) of a name such as `eth1.10`, the usual form
/// of VLAN interfaces' names.
pub fn split_vlan_name(name: &str) -> Option<(&str, u16)> {
    let (parent, vlan) = name.rsplit_once('.').filter(|(parent, _)| !parent.is_empty())?;
    let id = vlan.parse().ok().filter(|id: &u16| (1..=4094).contains(id) && id.to_string() == vlan)?;
    Some((parent, id))
}

impl Interface {
    /// Looks up the interface of this name.
    pub fn find(name: &str) -> Result<Interface, DeviceError> {
        check_name(name)?;
        let socket = control_socket(name)?;
        let ask = |ask| match sys::request(socket.as_fd(), ask, name, &[]) {
            Ok((_, value)) => Ok(value),
            Err(e) if e.raw_os_error() == Some(libc::ENODEV) => Err(no_such(name)),
            Err(e) => Err(DeviceError::from_io(name, "asking for its state", "CAP_NET_ADMIN", &e)),
        };
        let flags = number(ask(IfreqCommand::Flags)?) as libc::c_int;
        let (kind, address) = hardware(ask(IfreqCommand::Hardware)?);
        let (up, running) = (flags & libc::IFF_UP != 0, flags & libc::IFF_RUNNING != 0);
        let link_type = match kind {
            libc::ARPHRD_ETHER | libc::ARPHRD_LOOPBACK => Some(LinkType::ETHER),
            libc::ARPHRD_NONE | ARPHRD_RAWIP => Some(LinkType::IP),
            _ => None,
        };
        Ok(Interface {
            name: name.to_owned(),
            index: number(ask(IfreqCommand::Index)?),
            mac: (link_type == Some(LinkType::ETHER)).then_some(address),
            mtu: number(ask(IfreqCommand::Mtu)?),
            up,
            running: up && running,
            link_type,
        })
    }
    /// The name of the interface with this number; `None` if this network namespace has none.
    ///
    /// # Errors
    /// An error if the kernel can't be asked, as without descriptors: the interface may well be there.
    pub fn name_of(index: u32) -> Result<Option<String>, DeviceError> {
        let name = format!("interface {index}");
        match rustix::net::netdevice::index_to_name(control_socket(&name)?, index) {
            Ok(name) => Ok(Some(name)),
            Err(Errno::NODEV) => Ok(None),
            Err(error) => {
                Err(DeviceError::from_io(&name, "asking for its name", "CAP_NET_ADMIN", &error.into()))
            }
        }
    }
    /// The interface with this number, whatever it is called now; `None` if this network namespace has none.
    ///
    /// # Errors
    /// An error if the kernel can't be asked, as without descriptors: the interface may well be there.
    pub fn with_index(index: u32) -> Result<Option<Interface>, DeviceError> {
        // It may be renamed between both questions.
        for _ in 0..RENAMES {
            let Some(name) = Interface::name_of(index)? else { return Ok(None) };
            match Interface::find(&name) {
                Ok(found) if found.index == index => return Ok(Some(found)),
                Ok(_) | Err(DeviceError::NoSuchInterface { .. }) => {}
                Err(error) => return Err(error),
            }
        }
        Ok(None)
    }
    /// Whether there is no interface with this number; false where the kernel can't be asked.
    pub fn is_gone(index: u32) -> bool {
        matches!(Interface::name_of(index), Ok(None))
    }
    /// The Ethernet address of the interface of this name, if there is one that has any.
    pub fn mac_of(name: &str) -> Option<[u8; 6]> {
        Interface::find(name).ok()?.mac
    }
    /// The names of all interfaces.
    pub fn list() -> Vec<String> {
        sys::interface_names()
    }
    /// The link's speed in Mbit/s now, and whether it is full duplex; `None` where the driver does not know.
    pub fn speed(&self) -> Option<(u32, bool)> {
        let socket = control_socket(&self.name).ok()?;
        let answer: [u8; 44] =
            sys::query_driver(socket.as_fd(), &self.name, sys::EthtoolCommand::Link).ok()?;
        // `speed`, `duplex` and `speed_hi` of `struct ethtool_cmd`.
        let megabits = u32::from(u16::from_ne_bytes([answer[28], answer[29]])) << 16
            | u32::from(u16::from_ne_bytes([answer[12], answer[13]]));
        let is_known =
            megabits != 0 && megabits < u32::from(u16::MAX) << 16 && megabits != u32::from(u16::MAX);
        is_known.then_some((megabits, answer[14] != 0))
    }
    /// Brings the interface up (`ip link set up`).
    pub fn bring_up(&self) -> Result<(), DeviceError> {
        if let Some(helper) = privsep::helper() {
            return helper.request(&self.name, &Request::BringUp { name: self.name.clone() });
        }
        let doing = "bringing it up";
        let [a, b, ..] = self.request(IfreqCommand::Flags, &[], doing)?;
        let flags = u16::from_ne_bytes([a, b]) | libc::IFF_UP as u16;
        self.request(IfreqCommand::SetFlags, &flags.to_ne_bytes(), doing).map(drop)
    }
    /// Sets the length of the longest packet that it carries.
    pub fn set_mtu(&self, mtu: u32) -> Result<(), DeviceError> {
        if let Some(helper) = privsep::helper() {
            return helper.request(&self.name, &Request::SetMtu { name: self.name.clone(), mtu });
        }
        self.request(IfreqCommand::SetMtu, &mtu.to_ne_bytes(), "setting its MTU").map(drop)
    }
    fn request(
        &self,
        ask: IfreqCommand,
        value: &[u8],
        doing: &'static str,
    ) -> Result<IfreqValue, DeviceError> {
        let socket = control_socket(&self.name)?;
        match sys::request(socket.as_fd(), ask, &self.name, value) {
            Ok((_, value)) => Ok(value),
            Err(e) if e.raw_os_error() == Some(libc::ENODEV) => Err(no_such(&self.name)),
            Err(e) => Err(DeviceError::from_io(&self.name, doing, "CAP_NET_ADMIN", &e)),
        }
    }
}

/// How often an interface may be renamed during the lookup.
const RENAMES: u32 = 4;
/// Kind of links that carry IP packets without a header.
const ARPHRD_RAWIP: u16 = 519;

/// Refuses what cannot be a name.
pub(crate) fn check_name(name: &str) -> Result<(), DeviceError> {
    let bad = |c: char| c == '/' || c == ':' || c == '\0' || c.is_whitespace();
    if name.is_empty() || name.len() >= libc::IFNAMSIZ || name == "." || name == ".." || name.contains(bad) {
        return Err(DeviceError::BadName { name: name.to_owned() });
    }
    Ok(())
}

/// A socket to make requests about interfaces on.
pub(crate) fn control_socket(name: &str) -> Result<OwnedFd, DeviceError> {
    rustix::net::socket_with(AddressFamily::INET, SocketType::DGRAM, SocketFlags::CLOEXEC, None)
        .map_err(|e| DeviceError::from_io(name, "opening a socket", "CAP_NET_ADMIN", &io::Error::from(e)))
}

pub(crate) fn no_such(name: &str) -> DeviceError {
    DeviceError::NoSuchInterface { name: name.to_owned(), existing: Interface::list() }
}

/// The number at the front of an answer. Flags are a short one; the kernel leaves zeros behind it.
fn number(value: IfreqValue) -> u32 {
    let [a, b, c, d, ..] = value;
    u32::from_ne_bytes([a, b, c, d])
}

/// Kind of link and address from an answer, which is a socket address.
fn hardware(value: IfreqValue) -> (u16, [u8; 6]) {
    let [k0, k1, a, b, c, d, e, f, ..] = value;
    (u16::from_ne_bytes([k0, k1]), [a, b, c, d, e, f])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_with_the_number_of_a_vlan_stands_for_that_of_its_interface() {
        assert_eq!(split_vlan_name("eth1.10"), Some(("eth1", 10)));
        assert_eq!(split_vlan_name("br.a.4094"), Some(("br.a", 4094)));
        for name in ["eth1", "eth1.", "eth1.0", "eth1.4095", "eth1.010", "eth1.+5", ".5", "eth1.x"] {
            assert_eq!(split_vlan_name(name), None, "{name}");
        }
    }
}
