//! What people change while the router runs: routes and neighbors.
use super::route_text::{parse_ip, parse_prefix, parse_route, port_of};
use artery_engine::ArgValue as _;
use artery_engine::names::Names;
use artery_forward::events::{Event, RouteEvent};
use artery_forward::shared::SharedRouter;
use artery_l3::PortId;
use artery_l3::neighbor::Kind;
use artery_l3::router::{RouterError, Tables};
use artery_lpm::load::AnyPrefix;
use artery_wire::EtherAddr;
use std::net::IpAddr;
use std::time::Duration;

/// Why a change is refused, as a message to the user.
pub(super) type ChangeError = String;

/// The tables during a change by a handler.
pub(super) struct TableChange<'a> {
    pub(super) router: &'a SharedRouter,
    pub(super) tables: &'a mut Tables,
    pub(super) names: &'a Names,
    pub(super) now: Duration,
}

impl TableChange<'_> {
    /// Adds a route for a prefix without one, `PREFIX WAY…`.
    pub(super) fn add_route(&mut self, text: &str) -> Result<(), ChangeError> {
        let (prefix, spec) = parse_route(self.tables, text)?;
        self.tables.add_route(prefix, &spec, self.now).map_err(error_text)?;
        self.router.routes_by_hand().insert(prefix, text.to_string());
        self.record_route_event(prefix, RouteEvent::Added);
        Ok(())
    }

    /// Sets the route of a prefix, `PREFIX WAY…`, and replaces an existing one.
    pub(super) fn set_route(&mut self, text: &str) -> Result<(), ChangeError> {
        let (prefix, spec) = parse_route(self.tables, text)?;
        // Only an attempt to add the route shows whether there was one: a preferred route may hide it.
        let what = match self.tables.add_route(prefix, &spec, self.now) {
            Ok(()) => RouteEvent::Added,
            Err(RouterError::Exists(_)) => {
                self.tables.replace_route(prefix, &spec, self.now).map_err(error_text)?;
                RouteEvent::Replaced
            }
            Err(error) => return Err(error_text(error)),
        };
        self.router.routes_by_hand().insert(prefix, text.to_string());
        self.record_route_event(prefix, what);
        Ok(())
    }

    /// Removes the route of a prefix, `PREFIX`.
    pub(super) fn remove_route(&mut self, text: &str) -> Result<(), ChangeError> {
        let prefix = parse_prefix(text.trim())?;
        self.tables.delete_route(prefix, self.now).map_err(error_text)?;
        self.router.routes_by_hand().remove(&prefix);
        self.record_route_event(prefix, RouteEvent::Removed);
        Ok(())
    }

    /// Restores the routes that handlers of the replaced router have set, except those whose prefix the
    /// configuration has. Returns the routes that can't be restored, with the reason.
    pub(super) fn restore_routes(&mut self, old: &SharedRouter) -> Vec<ChangeError> {
        let by_hand = old.routes_by_hand();
        let lost = by_hand.values().filter_map(|text| {
            let taken = parse_route(self.tables, text).and_then(|(prefix, spec)| {
                match self.tables.add_route(prefix, &spec, self.now) {
                    Ok(()) => drop(self.router.routes_by_hand().insert(prefix, text.clone())),
                    Err(RouterError::Exists(_)) => {}
                    Err(error) => return Err(error_text(error)),
                }
                Ok(())
            });
            taken.err().map(|why| format!("{text}: {why}"))
        });
        lost.collect()
    }

    /// Restores the static neighbors that handlers of the replaced router have set, except those that the
    /// configuration has. Returns those that can't be restored, with the reason.
    pub(super) fn restore_neighbors(&mut self, old: &SharedRouter) -> Vec<ChangeError> {
        let by_hand: Vec<String> = old.neighbors_by_hand().values().cloned().collect();
        let lost = by_hand.iter().filter_map(|text| {
            let restored = parse_neighbor(self.tables, self.names, text).and_then(|neighbor| {
                match self.is_static(neighbor.port, neighbor.address) {
                    Some(true) => Ok(()),
                    _ => self.set_neighbor(&neighbor, text),
                }
            });
            restored.err().map(|why| format!("{text}: {why}"))
        });
        lost.collect()
    }

    fn record_route_event(&self, prefix: AnyPrefix, what: RouteEvent) {
        self.router.record_event(self.now, Event::Route { prefix, what });
    }

    /// `PORT ADDRESS ETHER [published|temporary]`.
    pub(super) fn add_neighbor(&mut self, text: &str) -> Result<(), ChangeError> {
        let neighbor = parse_neighbor(self.tables, self.names, text)?;
        self.set_neighbor(&neighbor, text)
    }

    fn set_neighbor(&mut self, neighbor: &ParsedNeighbor, text: &str) -> Result<(), ChangeError> {
        let ParsedNeighbor { port, address, link, kind } = *neighbor;
        let TableChange { router, tables, now, .. } = self;
        let done = router.reorder_guard().make_known(|| tables.set_neighbor(port, address, link, kind, *now));
        done.map_err(|error| match error {
            RouterError::Neighbors(limit) => {
                format!("neighbor {address}: {limit}; flush those that are not needed")
            }
            error => error_text(error),
        })?;
        let mut by_hand = router.neighbors_by_hand();
        match kind {
            Kind::Temporary => by_hand.remove(&(port, address)),
            Kind::Static | Kind::Published => by_hand.insert((port, address), text.trim().to_string()),
        };
        Ok(())
    }

    /// Removes a neighbor, written `PORT ADDRESS`.
    pub(super) fn remove_neighbor(&mut self, text: &str) -> Result<(), ChangeError> {
        let words: Vec<&str> = text.split_whitespace().collect();
        let [port, address] = words[..] else {
            return Err("which neighbor is said by 'PORT ADDRESS', such as 'eth1 192.0.2.1'".into());
        };
        let (at, address) = (port_of(self.tables, port)?, parse_ip(address)?);
        match self.tables.delete_neighbor(at, address, self.now).map_err(error_text)? {
            true => {
                self.router.neighbors_by_hand().remove(&(at, address));
                Ok(())
            }
            false => Err(unknown_neighbor(port, address)),
        }
    }

    /// Removes dynamic neighbors, `[PORT [ADDRESS]]`: of all ports, of one, or a single one.
    pub(super) fn flush_neighbors(&mut self, text: &str) -> Result<(), ChangeError> {
        let words: Vec<&str> = text.split_whitespace().collect();
        match words[..] {
            [] => {
                (0..self.tables.port_views().len() as u16).try_for_each(|port| self.flush_port(PortId(port)))
            }
            [port] => self.flush_port(port_of(self.tables, port)?),
            [port, address] => self.flush_one(port, parse_ip(address)?),
            _ => Err("at most a port and an address: 'PORT ADDRESS', 'PORT', or nothing for all".into()),
        }
    }

    fn flush_port(&mut self, port: PortId) -> Result<(), ChangeError> {
        self.tables.flush_neighbors::<u32>(port, self.now).map_err(error_text)?;
        self.tables.flush_neighbors::<u128>(port, self.now).map_err(error_text)?;
        Ok(())
    }

    fn flush_one(&mut self, name: &str, address: IpAddr) -> Result<(), ChangeError> {
        let port = port_of(self.tables, name)?;
        match self.is_static(port, address) {
            Some(false) => {
                self.tables.delete_neighbor(port, address, self.now).map(|_| ()).map_err(error_text)
            }
            Some(true) => Err(format!("{address}: it was set by hand; remove it with 'remove_neighbor'")),
            None => Err(unknown_neighbor(name, address)),
        }
    }

    /// Whether a neighbor is static; None if there is no such neighbor.
    fn is_static(&self, port: PortId, address: IpAddr) -> Option<bool> {
        match address {
            IpAddr::V4(own) => self.tables.neighbor(port, own.to_bits(), self.now).map(|view| view.is_static),
            IpAddr::V6(own) => self.tables.neighbor(port, own.to_bits(), self.now).map(|view| view.is_static),
        }
    }
}

/// A neighbor as handlers set it.
struct ParsedNeighbor {
    port: PortId,
    address: IpAddr,
    link: EtherAddr,
    kind: Kind,
}

/// Reads `PORT ADDRESS ETHER [published|temporary]`.
fn parse_neighbor(tables: &Tables, names: &Names, text: &str) -> Result<ParsedNeighbor, ChangeError> {
    let words: Vec<&str> = text.split_whitespace().collect();
    let (port, address, ether, kind) = match words[..] {
        [port, address, ether] => (port, address, ether, Kind::Static),
        [port, address, ether, "published"] => (port, address, ether, Kind::Published),
        [port, address, ether, "temporary"] => (port, address, ether, Kind::Temporary),
        [_, _, _, word] => {
            return Err(format!("'{word}': neighbors are published or temporary; or leave it out"));
        }
        _ => return Err("a neighbor is 'PORT ADDRESS ETHER', such as 'eth1 192.0.2.1 2:0:0:0:0:1'".into()),
    };
    let (port, address) = (port_of(tables, port)?, parse_ip(address)?);
    Ok(ParsedNeighbor { port, address, link: EtherAddr::parse(ether, names)?, kind })
}

fn unknown_neighbor(port: &str, address: IpAddr) -> ChangeError {
    format!("{address}: not in table; port {port} has no such neighbor, 'show neighbors' lists those it has")
}

fn error_text(error: RouterError) -> ChangeError {
    error.to_string()
}
