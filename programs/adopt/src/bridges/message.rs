//! Bridges, their members and forwarding databases, as rtnetlink has them (linux/if_link.h,
//! linux/neighbour.h).
use artery_netlink::request::{self as netlink, Attributes, u16_at, u32_at};
use artery_wire::EtherAddr;
use netlink_sys::protocols::NETLINK_ROUTE;
use std::io;

const NEW_LINK: u16 = 16;
const GET_LINK: u16 = 18;
pub(super) const NEW_NEIGHBOR: u16 = 28;
pub(super) const GONE_NEIGHBOR: u16 = 29;
const GET_NEIGHBOR: u16 = 30;
const AF_BRIDGE: u8 = 7;
/// Bytes of `struct ifinfomsg` and `struct ndmsg`.
const LINK_HEADER: usize = 16;
const NEIGHBOR_HEADER: usize = 12;

const IFLA_MASTER: u16 = 10;
const IFLA_LINKINFO: u16 = 18;
const INFO_KIND: u16 = 1;
const INFO_DATA: u16 = 2;
const INFO_SLAVE_KIND: u16 = 4;
const INFO_SLAVE_DATA: u16 = 5;
const BR_FORWARD_DELAY: u16 = 1;
const BR_AGEING_TIME: u16 = 4;
const BR_STP_STATE: u16 = 5;
const BR_VLAN_FILTERING: u16 = 7;
const BRPORT_STATE: u16 = 1;
const BRPORT_VLAN_TUNNEL: u16 = 29;
/// BR_STATE_FORWARDING.
const FORWARDING: u8 = 3;
/// USER_HZ: times of bridges are in hundredths of a second.
const HUNDREDTHS: u64 = 100;

const NDA_LLADDR: u16 = 2;
const NDA_VLAN: u16 = 5;
const NDA_MASTER: u16 = 9;
const NDA_FLAGS_EXT: u16 = 15;
/// The entry is the bridge's own; it does not age.
const NUD_PERMANENT: u16 = 0x80;
const NUD_NOARP: u16 = 0x40;
/// The address may not send: it is yet to be authorized (NTF_EXT_LOCKED).
const LOCKED: u32 = 2;

/// A bridge, or a member of one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum BridgeLink {
    Bridge(BridgeSettings),
    Member { bridge: u32, settings: MemberSettings },
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct BridgeSettings {
    pub(crate) filters_vlans: bool,
    pub(crate) has_spanning_tree: bool,
    /// Both in hundredths of a second.
    pub(crate) ageing_time: u32,
    pub(crate) forward_delay: u32,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct MemberSettings {
    /// BR_STATE_*: disabled, listening, learning, forwarding, blocking.
    pub(crate) state: u8,
    pub(crate) has_vlan_tunnel: bool,
}

impl BridgeSettings {
    /// After how many ticks a frame of a source is to go by the kernel. While the tree changes, a bridge
    /// forgets addresses after its forward delay.
    pub(crate) fn renewal_interval(&self, ticks_of_a_second: u64) -> u64 {
        let shortest = match self.has_spanning_tree {
            true => self.ageing_time.min(self.forward_delay),
            false => self.ageing_time,
        };
        u64::from(shortest) * ticks_of_a_second / HUNDREDTHS / 4
    }
}

impl MemberSettings {
    pub(crate) fn forwards(&self) -> bool {
        self.state == FORWARDING
    }

    /// The name of the state, as bridge(8) writes it.
    pub(crate) fn state_name(&self) -> &'static str {
        match self.state {
            0 => "disabled",
            1 => "listening",
            2 => "learning",
            FORWARDING => "forwarding",
            4 => "blocking",
            _ => "unknown",
        }
    }
}

/// All bridges and members of bridges, by interface.
pub(crate) fn dump_links() -> io::Result<Vec<(u32, BridgeLink)>> {
    let messages = netlink::dump(NETLINK_ROUTE, GET_LINK, &[0; LINK_HEADER])?;
    let links = messages.iter().filter(|message| message.kind == NEW_LINK);
    let read = |body: &[u8]| Ok(read_link(body)?.map(|link| (index_of(body), link)));
    links.filter_map(|message| read(&message.body).transpose()).collect()
}

/// The interface of a message that was read as one of a link.
fn index_of(body: &[u8]) -> u32 {
    u32_at(body, 4).unwrap_or_default()
}

/// Reads a message of a link; none for those that are neither a bridge nor a member of one.
pub(crate) fn read_link(body: &[u8]) -> io::Result<Option<BridgeLink>> {
    let attributes = Attributes::after_header(LINK_HEADER, body)?;
    let Some(info) = attributes.nested(IFLA_LINKINFO)? else { return Ok(None) };
    let byte = |data: &Attributes<'_>, kind| data.value(kind).and_then(|value| value.first().copied());
    if info.text(INFO_KIND).as_deref() == Some("bridge") {
        let Some(data) = info.nested(INFO_DATA)? else { return Ok(None) };
        return Ok(Some(BridgeLink::Bridge(BridgeSettings {
            filters_vlans: byte(&data, BR_VLAN_FILTERING).unwrap_or(0) != 0,
            has_spanning_tree: data.number(BR_STP_STATE).unwrap_or(0) != 0,
            ageing_time: data.number(BR_AGEING_TIME).unwrap_or(0),
            forward_delay: data.number(BR_FORWARD_DELAY).unwrap_or(0),
        })));
    }
    let Some(bridge) = attributes.number(IFLA_MASTER) else { return Ok(None) };
    if info.text(INFO_SLAVE_KIND).as_deref() != Some("bridge") {
        return Ok(None);
    }
    let data = info.nested(INFO_SLAVE_DATA)?;
    let byte = |kind| data.as_ref().and_then(|data| byte(data, kind)).unwrap_or(0);
    let settings =
        MemberSettings { state: byte(BRPORT_STATE), has_vlan_tunnel: byte(BRPORT_VLAN_TUNNEL) != 0 };
    Ok(Some(BridgeLink::Member { bridge, settings }))
}

/// An entry of a forwarding database, in the VLAN of untagged frames.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct FdbRecord {
    pub(super) bridge: u32,
    /// The member, or the bridge itself.
    pub(super) link: u32,
    pub(super) mac: EtherAddr,
    /// Whether the bridge takes frames for the address.
    pub(super) is_own: bool,
    pub(super) ages: bool,
    /// Whether frames from the address are not let in.
    pub(super) is_locked: bool,
}

/// All entries of all bridges.
pub(super) fn dump_fdb() -> io::Result<Vec<FdbRecord>> {
    let mut request = [0; NEIGHBOR_HEADER];
    request[0] = AF_BRIDGE;
    let messages = netlink::dump(NETLINK_ROUTE, GET_NEIGHBOR, &request)?;
    let entries = messages.iter().filter(|message| message.kind == NEW_NEIGHBOR);
    entries.filter_map(|message| FdbRecord::read(&message.body).transpose()).collect()
}

impl FdbRecord {
    /// Reads a message of a neighbor; none for what is no such entry.
    pub(super) fn read(body: &[u8]) -> io::Result<Option<FdbRecord>> {
        let attributes = Attributes::after_header(NEIGHBOR_HEADER, body)?;
        let mac = attributes.value(NDA_LLADDR).and_then(|value| <[u8; 6]>::try_from(value).ok());
        let is_of_vlan = attributes.value(NDA_VLAN).is_some_and(|vlan| vlan != [0, 0]);
        let (Some(bridge), Some(mac)) = (attributes.number(NDA_MASTER), mac) else { return Ok(None) };
        if body[0] != AF_BRIDGE || is_of_vlan {
            return Ok(None);
        }
        let state = u16_at(body, 8)?;
        Ok(Some(FdbRecord {
            bridge,
            link: u32_at(body, 4)?,
            mac: EtherAddr(mac),
            is_own: state & NUD_PERMANENT != 0,
            ages: state & (NUD_PERMANENT | NUD_NOARP) == 0,
            is_locked: attributes.number(NDA_FLAGS_EXT).unwrap_or(0) & LOCKED != 0,
        }))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use artery_netlink::request::written::{attribute, name, nested, number, survive};

    fn link(attributes: &[Vec<u8>]) -> Vec<u8> {
        let mut body = vec![0; LINK_HEADER];
        body[4..8].copy_from_slice(&7_u32.to_ne_bytes());
        body.extend(attributes.concat());
        body
    }

    #[test]
    fn a_bridge_and_a_member_say_what_matters_and_others_nothing() {
        let data = [
            number(BR_FORWARD_DELAY, 1500),
            number(BR_AGEING_TIME, 30_000),
            number(BR_STP_STATE, 0),
            attribute(BR_VLAN_FILTERING, &[1]),
        ];
        let body = link(&[nested(IFLA_LINKINFO, &[name(INFO_KIND, "bridge"), nested(INFO_DATA, &data)])]);
        let Ok(Some(BridgeLink::Bridge(bridge))) = read_link(&body) else { panic!("no bridge") };
        assert!(bridge.filters_vlans && !bridge.has_spanning_tree);
        assert_eq!(bridge.renewal_interval(250), 75 * 250);
        let with_tree = BridgeSettings { has_spanning_tree: true, ..bridge };
        assert_eq!(with_tree.renewal_interval(1000), 3750);
        survive(&body, |body| read_link(body).is_ok());

        let data = nested(INFO_SLAVE_DATA, &[attribute(BRPORT_STATE, &[4])]);
        let info = nested(IFLA_LINKINFO, &[name(INFO_SLAVE_KIND, "bridge"), data]);
        let member = link(&[number(IFLA_MASTER, 3), info]);
        let Ok(Some(BridgeLink::Member { bridge: 3, settings })) = read_link(&member) else {
            panic!("no member")
        };
        assert_eq!((settings.forwards(), settings.state_name()), (false, "blocking"));
        let bond = nested(IFLA_LINKINFO, &[name(INFO_SLAVE_KIND, "bond")]);
        assert_eq!(read_link(&link(&[number(IFLA_MASTER, 3), bond])).unwrap(), None);
        assert_eq!(read_link(&link(&[])).unwrap(), None);
        survive(&member, |body| read_link(body).is_ok());
    }

    fn entry(state: u16, attributes: &[Vec<u8>]) -> Vec<u8> {
        let mut body = vec![0; NEIGHBOR_HEADER];
        body[0] = AF_BRIDGE;
        body[4..8].copy_from_slice(&5_u32.to_ne_bytes());
        body[8..10].copy_from_slice(&state.to_ne_bytes());
        body.extend(attribute(NDA_LLADDR, &[2, 0, 0, 0, 0, 9]));
        body.extend(attributes.concat());
        body
    }

    #[test]
    fn an_entry_is_of_its_bridge_and_of_untagged_frames() {
        let read = |state, more: &[Vec<u8>]| {
            let all = [&[number(NDA_MASTER, 3)][..], more].concat();
            FdbRecord::read(&entry(state, &all)).unwrap()
        };
        let learned = read(2, &[]).unwrap();
        assert_eq!((learned.bridge, learned.link, learned.is_own, learned.ages), (3, 5, false, true));
        assert!(!read(NUD_NOARP, &[]).unwrap().ages);
        assert!(read(NUD_PERMANENT, &[]).unwrap().is_own);
        assert!(read(2, &[number(NDA_FLAGS_EXT, LOCKED)]).unwrap().is_locked);
        assert_eq!(read(2, &[attribute(NDA_VLAN, &7_u16.to_ne_bytes())]), None);
        assert_eq!(FdbRecord::read(&entry(2, &[])).unwrap(), None, "an entry of the device's own");
        let mut neighbor = entry(2, &[number(NDA_MASTER, 3)]);
        neighbor[0] = 2;
        assert_eq!(FdbRecord::read(&neighbor).unwrap(), None);
        survive(&entry(2, &[number(NDA_MASTER, 3)]), |body| FdbRecord::read(body).is_ok());
    }
}
