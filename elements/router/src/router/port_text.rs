//! The handler by which a router is told of its ports, as text.
use super::port_update::{PortUpdate, apply_change};
use super::route_text::port_of;
use super::router_worker::IpRouter;
use artery_engine::{ArgValue as _, Context, HandlerError};
use artery_l3::PortId;
use artery_l3::router::Tables;
use artery_wire::EtherAddr;

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
