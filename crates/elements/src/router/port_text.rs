//! What happens to a router's ports while it runs, as text.
use super::ip_router::IpRouter;
use super::route_text::port_of;
use artery_engine::{ArgValue as _, Context, HandlerError};
use artery_table::PortId;
use artery_table::router::{RouterError, Tables};
use artery_wire::EtherAddr;
use std::time::Duration;

/// What has become of a port.
#[derive(Clone, Copy, Debug)]
pub(super) enum Change {
    /// Its link came up, or went down.
    Up(bool),
    /// Packets on its link have another greatest length.
    Mtu(u16),
    /// It has another link address.
    Ether(EtherAddr),
}

/// `PORT up|down|mtu BYTES|ether ADDRESS`: lets the router know.
pub(super) fn write(r: &mut IpRouter, text: &str, cx: &mut Context<'_>) -> Result<(), HandlerError> {
    let now = cx.now().since_epoch();
    let done = {
        let mut tables = r.router.tables();
        read(r, &tables, text).and_then(|(port, change)| {
            apply(&mut tables, port, change, now).map_err(|error| error.to_string())
        })
    };
    r.tables_changed(cx);
    done.map_err(HandlerError::refused)
}

fn read(r: &IpRouter, tables: &Tables, text: &str) -> Result<(PortId, Change), String> {
    let words: Vec<&str> = text.split_whitespace().collect();
    let change = match words[..] {
        [_, "up"] => Change::Up(true),
        [_, "down"] => Change::Up(false),
        [_, "mtu", bytes] => {
            let mtu = bytes.parse().ok().filter(|mtu| *mtu >= 68);
            Change::Mtu(mtu.ok_or_else(|| format!("'{bytes}' is no MTU: it is from 68 to 65535"))?)
        }
        [_, "ether", address] => Change::Ether(EtherAddr::parse(address, &r.names)?),
        _ => return Err("expected 'PORT up|down|mtu BYTES|ether ADDRESS'".into()),
    };
    Ok((port_of(tables, words[0])?, change))
}

/// Changes a port.
pub(super) fn apply(
    tables: &mut Tables,
    port: PortId,
    change: Change,
    now: Duration,
) -> Result<(), RouterError> {
    match change {
        Change::Up(is_up) => tables.set_up(port, is_up, now),
        Change::Mtu(mtu) => tables.set_mtu(port, mtu),
        Change::Ether(address) => tables.set_link_address(port, address, now),
    }
}
