//! What people change while the router runs: routes and neighbors.
use super::events::{Event, RouteEvent};
use super::route_text::{ip, port_of, prefix, route};
use super::shared::SharedRouter;
use artery_engine::ArgValue as _;
use artery_engine::names::Names;
use artery_table::PortId;
use artery_table::load::AnyPrefix;
use artery_table::neighbor::Kind;
use artery_table::router::{Ip, RouterError, Tables};
use artery_wire::EtherAddr;
use std::net::IpAddr;
use std::time::Duration;

/// Why nothing is changed, for people.
pub(super) type Refused = String;

/// The tables in the hands of who changes them.
pub(super) struct Change<'a> {
    pub(super) router: &'a SharedRouter,
    pub(super) tables: &'a mut Tables,
    /// Names of addresses.
    pub(super) names: &'a Names,
    pub(super) now: Duration,
}

impl Change<'_> {
    /// `PREFIX WAY…`, for a prefix without route.
    pub(super) fn add_route(&mut self, text: &str) -> Result<(), Refused> {
        let (prefix, spec) = route(self.tables, text)?;
        self.tables.add_route(prefix, &spec, self.now).map_err(said)?;
        self.router.routes_by_hand().insert(prefix, text.to_string());
        self.tell_route(prefix, RouteEvent::Added);
        Ok(())
    }

    /// `PREFIX WAY…`, in the place of what route there is.
    pub(super) fn set_route(&mut self, text: &str) -> Result<(), Refused> {
        let (prefix, spec) = route(self.tables, text)?;
        // Whether there was one, only the attempt to add one tells: it may be behind one that goes first.
        let what = match self.tables.add_route(prefix, &spec, self.now) {
            Ok(()) => RouteEvent::Added,
            Err(RouterError::Exists(_)) => {
                self.tables.replace_route(prefix, &spec, self.now).map_err(said)?;
                RouteEvent::Replaced
            }
            Err(error) => return Err(said(error)),
        };
        self.router.routes_by_hand().insert(prefix, text.to_string());
        self.tell_route(prefix, what);
        Ok(())
    }

    /// `PREFIX`.
    pub(super) fn remove_route(&mut self, text: &str) -> Result<(), Refused> {
        let prefix = prefix(text.trim())?;
        self.tables.delete_route(prefix, self.now).map_err(said)?;
        self.router.routes_by_hand().remove(&prefix);
        self.tell_route(prefix, RouteEvent::Removed);
        Ok(())
    }

    /// Sets the routes that handlers of a router that this one replaces have set, but for those of which the
    /// configuration has the prefix. Gives those that can't be here any more, with the reason.
    pub(super) fn take_routes(&mut self, old: &SharedRouter) -> Vec<Refused> {
        let by_hand = old.routes_by_hand();
        let lost = by_hand.values().filter_map(|text| {
            let taken = route(self.tables, text).and_then(|(prefix, spec)| {
                match self.tables.add_route(prefix, &spec, self.now) {
                    Ok(()) => drop(self.router.routes_by_hand().insert(prefix, text.clone())),
                    Err(RouterError::Exists(_)) => {}
                    Err(error) => return Err(said(error)),
                }
                Ok(())
            });
            taken.err().map(|why| format!("{text}: {why}"))
        });
        lost.collect()
    }

    fn tell_route(&self, prefix: AnyPrefix, what: RouteEvent) {
        self.router.tell(self.now, Event::Route { prefix, what });
    }

    /// `PORT ADDRESS ETHER [published|temporary]`.
    pub(super) fn add_neighbor(&mut self, text: &str) -> Result<(), Refused> {
        let words: Vec<&str> = text.split_whitespace().collect();
        let (port, address, ether, kind) = match words[..] {
            [port, address, ether] => (port, address, ether, Kind::Static),
            [port, address, ether, "published"] => (port, address, ether, Kind::Published),
            [port, address, ether, "temporary"] => (port, address, ether, Kind::Temporary),
            [_, _, _, word] => {
                return Err(format!("'{word}': neighbors are published or temporary; or leave it out"));
            }
            _ => {
                return Err("a neighbor is 'PORT ADDRESS ETHER', such as 'eth1 192.0.2.1 2:0:0:0:0:1'".into());
            }
        };
        let (port, address) = (port_of(self.tables, port)?, ip(address)?);
        let link = EtherAddr::parse(ether, self.names)?;
        let Change { router, tables, now, .. } = self;
        let done = router.order().make_known(|| tables.set_neighbor(port, address, link, kind, *now));
        done.map_err(|error| match error {
            RouterError::Neighbors(limit) => {
                format!("neighbor {address}: {limit}; flush those that nobody needs")
            }
            error => said(error),
        })
    }

    /// `PORT ADDRESS`.
    pub(super) fn remove_neighbor(&mut self, text: &str) -> Result<(), Refused> {
        let words: Vec<&str> = text.split_whitespace().collect();
        let [port, address] = words[..] else {
            return Err("which neighbor is said by 'PORT ADDRESS', such as 'eth1 192.0.2.1'".into());
        };
        let (at, address) = (port_of(self.tables, port)?, ip(address)?);
        match self.tables.delete_neighbor(at, address, self.now).map_err(said)? {
            true => Ok(()),
            false => Err(unknown(port, address)),
        }
    }

    /// `[PORT [ADDRESS]]`: all that were not set by hand, of all ports or one, or the one.
    pub(super) fn flush_neighbors(&mut self, text: &str) -> Result<(), Refused> {
        let words: Vec<&str> = text.split_whitespace().collect();
        match words[..] {
            [] => (0..self.tables.port_views().len() as u16).try_for_each(|port| self.flush(PortId(port))),
            [port] => self.flush(port_of(self.tables, port)?),
            [port, address] => self.flush_one(port, ip(address)?),
            _ => Err("at most a port and an address: 'PORT ADDRESS', 'PORT', or nothing for all".into()),
        }
    }

    fn flush(&mut self, port: PortId) -> Result<(), Refused> {
        self.tables.flush_neighbors::<u32>(port, self.now).map_err(said)?;
        self.tables.flush_neighbors::<u128>(port, self.now).map_err(said)?;
        Ok(())
    }

    fn flush_one(&mut self, name: &str, address: IpAddr) -> Result<(), Refused> {
        let port = port_of(self.tables, name)?;
        let is_static = match address {
            IpAddr::V4(own) => self.is_static(port, own.to_bits()),
            IpAddr::V6(own) => self.is_static(port, own.to_bits()),
        };
        match is_static {
            Some(false) => self.tables.delete_neighbor(port, address, self.now).map(|_| ()).map_err(said),
            Some(true) => Err(format!("{address}: it was set by hand; remove it with 'remove_neighbor'")),
            None => Err(unknown(name, address)),
        }
    }

    fn is_static<A: Ip>(&self, port: PortId, address: A) -> Option<bool> {
        self.tables.neighbor(port, address, self.now).map(|view| view.is_static)
    }
}

fn unknown(port: &str, address: IpAddr) -> Refused {
    format!("{address}: not in table; port {port} has no such neighbor, 'show neighbors' lists those it has")
}

fn said(error: RouterError) -> Refused {
    error.to_string()
}
