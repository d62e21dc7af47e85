//! What happens to a router's ports while it runs, as text.
use super::ip_router::IpRouter;
use super::route_text::port_of;
use artery_engine::{ArgValue as _, Context, HandlerError};
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

/// Applies `PORT up|down|mtu BYTES|ether ADDRESS`.
pub(super) fn handle_port_command(
    r: &mut IpRouter,
    text: &str,
    cx: &mut Context<'_>,
) -> Result<(), HandlerError> {
    let now = cx.now().since_epoch();
    let done = {
        let mut tables = r.router.lock_tables();
        parse_change(r, &tables, text).and_then(|(port, change)| {
            apply_change(&mut tables, port, change, now).map_err(|error| error.to_string())
        })
    };
    r.tables_changed(cx);
    done.map_err(HandlerError::refused)
}

fn parse_change(r: &IpRouter, tables: &Tables, text: &str) -> Result<(PortId, PortUpdate), String> {
    let words: Vec<&str> = text.split_whitespace().collect();
    let change = match words[..] {
        [_, "up"] => PortUpdate::Up(true),
        [_, "down"] => PortUpdate::Up(false),
        [_, "mtu", bytes] => {
            let mtu = bytes.parse().ok().filter(|mtu| *mtu >= 68);
            PortUpdate::Mtu(
                mtu.ok_or_else(|| format!("'{bytes}' is not a valid MTU: it is from 68 to 65535"))?,
            )
        }
        [_, "ether", address] => PortUpdate::Ether(EtherAddr::parse(address, &r.names)?),
        _ => return Err("expected 'PORT up|down|mtu BYTES|ether ADDRESS'".into()),
    };
    Ok((port_of(tables, words[0])?, change))
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
