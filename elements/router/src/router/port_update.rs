//! Changes of a router's ports while it runs, and how its tables take them.
use artery_l3::PortId;
use artery_l3::router::{RouterError, Tables};
use artery_wire::EtherAddr;
use std::time::Duration;

/// The longest packet that every link of IPv6 must carry (RFC 8200 section 5), in bytes.
const LEAST_IPV6_MTU: u16 = 1280;

/// A change of a port.
#[derive(Clone, Copy, Debug)]
pub(super) enum PortUpdate {
    /// Its link came up, or went down.
    Up(bool),
    /// Packets on its link have another greatest length.
    Mtu(u16),
    /// It has another link address.
    Ether(EtherAddr),
}

pub(super) fn apply_change(
    tables: &mut Tables,
    port: PortId,
    change: PortUpdate,
    now: Duration,
) -> Result<(), RouterError> {
    match change {
        PortUpdate::Up(is_up) => tables.set_up(port, is_up, now),
        PortUpdate::Mtu(mtu) => tables.set_mtu(port, mtu),
        PortUpdate::Ether(address) => tables.set_link_address(port, address, now),
    }
}

/// A warning if the interface behind a port carries less than the port's limit, or than IPv6 needs.
pub(super) fn mtu_warning(tables: &Tables, port: PortId, change: PortUpdate) -> Option<String> {
    let PortUpdate::Mtu(carried) = change else { return None };
    let view = tables.port_views().get(usize::from(port.0))?;
    let name = &view.name;
    if let Some(limit) = tables.mtu_limit(port).filter(|limit| carried < *limit) {
        return Some(format!(
            "{name}: its interface carries packets of {carried} bytes, and the port's MTU is to be {limit}; \
             {carried} counts until the interface carries as much"
        ));
    }
    (carried < LEAST_IPV6_MTU && !view.v6.is_empty()).then(|| {
        format!("{name}: its interface carries packets of {carried} bytes, and IPv6 needs {LEAST_IPV6_MTU}")
    })
}
