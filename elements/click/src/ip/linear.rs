//! A routing table that compares every route: simple, and fast while it is small.
use super::route::{Route, RouteNextHop};
use super::routes::{NotAdded, Routes};
use artery_wire::Ipv4Prefix;
use std::net::Ipv4Addr;

/// Routes compared at a time.
const LANES: usize = 8;
/// Most routes of a table that is searched route by route, not address by address.
const FEW: usize = 16;
/// Stands for the route of an address that has none.
pub(crate) const NO_ROUTE: u32 = u32::MAX;

/// Routes in the order in which they were added, and the same by falling prefix length, for lookups.
#[derive(Clone, Debug, Default)]
pub(crate) struct LinearTable {
    /// A removed route leaves a gap that the next one added fills, as in Click.
    slots: Vec<Option<Route>>,
    /// Longest prefix first, in blocks that the processor compares at once.
    blocks: Vec<Block>,
    /// The next hops of the routes in `blocks`.
    nexts: Vec<RouteNextHop>,
}

#[derive(Clone, Debug)]
struct Block {
    addresses: [u32; LANES],
    masks: [u32; LANES],
}

/// What no address matches: no bit counts, and one must be set.
const NO_ROUTES: Block = Block { addresses: [1; LANES], masks: [0; LANES] };

impl LinearTable {
    pub(crate) fn clear(&mut self) {
        *self = LinearTable::default();
    }

    /// All routes, in the order of their slots.
    pub(crate) fn routes(&self) -> impl Iterator<Item = &Route> {
        self.slots.iter().flatten()
    }

    /// The number, for [`next_hop`](Self::next_hop), of the longest route that contains an address.
    #[inline]
    fn find_number(&self, address: Ipv4Addr) -> Option<usize> {
        let address = address.to_bits();
        for (number, block) in self.blocks.iter().enumerate() {
            let mut hits = 0_u32;
            for lane in 0..LANES {
                hits |= u32::from(address & block.masks[lane] == block.addresses[lane]) << lane;
            }
            if hits != 0 {
                return Some(number * LANES + hits.trailing_zeros() as usize);
            }
        }
        None
    }

    /// Looks up many addresses: stores the number of each one's route in `found`, [`NO_ROUTE`] where there is
    /// none. If there are few routes, each is compared with several addresses at a time, which costs less
    /// than a nanosecond for each route and address.
    pub(crate) fn lookup_all(&self, addresses: &[u32], found: &mut Vec<u32>) {
        found.clear();
        if self.nexts.len() > FEW {
            let number =
                |&address| self.find_number(Ipv4Addr::from_bits(address)).map_or(NO_ROUTE, |n| n as u32);
            return found.extend(addresses.iter().map(number));
        }
        found.resize(addresses.len(), NO_ROUTE);
        // Shortest first, so that the longest that matches is the last to be chosen.
        for number in (0..self.nexts.len()).rev() {
            let block = &self.blocks[number / LANES];
            let (net, mask) = (block.addresses[number % LANES], block.masks[number % LANES]);
            for (found, address) in found.iter_mut().zip(addresses) {
                *found = if address & mask == net { number as u32 } else { *found };
            }
        }
    }

    /// The next hop of a route that was looked up.
    #[inline]
    pub(crate) fn next_hop(&self, number: usize) -> RouteNextHop {
        self.nexts[number]
    }

    fn find_route(&self, prefix: Ipv4Prefix) -> Option<(usize, Route)> {
        let routes = self.slots.iter().enumerate();
        routes.filter_map(|(slot, route)| Some((slot, (*route)?))).find(|(_, route)| route.prefix == prefix)
    }

    /// Rebuilds what lookups read.
    fn compile_blocks(&mut self) {
        let mut routes: Vec<Route> = self.routes().copied().collect();
        routes.sort_by_key(|route| std::cmp::Reverse(route.prefix.len()));
        self.nexts = routes.iter().map(|route| route.next).collect();
        self.blocks = routes.chunks(LANES).map(Block::from_routes).collect();
    }
}

impl Block {
    fn from_routes(routes: &[Route]) -> Block {
        let mut block = NO_ROUTES;
        for (lane, route) in routes.iter().enumerate() {
            block.addresses[lane] = route.prefix.addr().to_bits();
            block.masks[lane] = route.prefix.mask().to_bits();
        }
        block
    }
}

impl Routes for LinearTable {
    fn add_route(&mut self, route: Route, replace: bool) -> Result<Option<Route>, NotAdded> {
        let old = match self.find_route(route.prefix) {
            Some((_, old)) if !replace => return Err(NotAdded::Exists(old)),
            Some((slot, old)) => {
                self.slots[slot] = Some(route);
                Some(old)
            }
            None => {
                match self.slots.iter_mut().find(|slot| slot.is_none()) {
                    Some(gap) => *gap = Some(route),
                    None => self.slots.push(Some(route)),
                }
                None
            }
        };
        self.compile_blocks();
        Ok(old)
    }

    fn remove_route(&mut self, prefix: Ipv4Prefix, next: Option<RouteNextHop>) -> Option<Route> {
        let (slot, old) =
            self.find_route(prefix).filter(|(_, route)| next.is_none_or(|next| next == route.next))?;
        self.slots[slot] = None;
        self.compile_blocks();
        Some(old)
    }

    fn lookup_route(&self, address: Ipv4Addr) -> Option<RouteNextHop> {
        self.find_number(address).map(|number| self.next_hop(number))
    }

    fn table_text(&self) -> String {
        self.routes().map(Route::table_line).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::Random;

    fn route(random: &mut Random) -> Route {
        let len = [0, 1, 8, 9, 30, 31, 32][random.index(7)];
        let prefix = Ipv4Prefix::new(address(random), len).unwrap();
        Route { prefix, next: RouteNextHop { gateway: None, output: random.index(4) } }
    }

    /// Few different addresses, so that prefixes nest and overlap.
    fn address(random: &mut Random) -> Ipv4Addr {
        let octet = |random: &mut Random| [0, 1, 128, 255][random.index(4)];
        Ipv4Addr::new(octet(random), octet(random), 0, octet(random))
    }

    fn longest(routes: &[Route], address: Ipv4Addr) -> Option<RouteNextHop> {
        let matching = routes.iter().filter(|route| route.prefix.contains(address));
        matching.max_by_key(|route| route.prefix.len()).map(|route| route.next)
    }

    #[test]
    fn looking_many_up_is_looking_each_up() {
        let seed = 0x51ed_270b_9f3c_aa17;
        println!("seed {seed:#x}");
        let mut random = Random::new(seed);
        for routes in [0, 1, 5, FEW, FEW + 1, 40] {
            let mut table = LinearTable::default();
            while table.routes().count() < routes {
                table.add_route(route(&mut random), true).unwrap();
            }
            let addresses: Vec<u32> = (0..100).map(|_| address(&mut random).to_bits()).collect();
            let mut found = Vec::new();
            table.lookup_all(&addresses, &mut found);
            let each = addresses.iter().map(|a| table.find_number(Ipv4Addr::from_bits(*a)));
            let each: Vec<u32> = each.map(|n| n.map_or(NO_ROUTE, |n| n as u32)).collect();
            assert_eq!(found, each, "with {routes} routes");
        }
    }

    #[test]
    fn random_operations_agree_with_a_plain_list() {
        let seed = 0x1234_5678_9abc_def1;
        println!("seed {seed:#x}");
        let mut random = Random::new(seed);
        let (mut table, mut model) = (LinearTable::default(), Vec::<Route>::new());
        for _ in 0..5000 {
            let new = route(&mut random);
            let old = model.iter().position(|route| route.prefix == new.prefix);
            match random.index(3) {
                0 => match (table.add_route(new, false), old) {
                    (Ok(None), None) => model.push(new),
                    (Err(NotAdded::Exists(conflict)), Some(at)) => assert_eq!(conflict, model[at]),
                    other => panic!("{other:?}"),
                },
                1 => match (table.add_route(new, true), old) {
                    (Ok(None), None) => model.push(new),
                    (Ok(Some(replaced)), Some(at)) => {
                        assert_eq!(replaced, std::mem::replace(&mut model[at], new))
                    }
                    other => panic!("{other:?}"),
                },
                _ => {
                    let removed = old.map(|at| model.swap_remove(at));
                    assert_eq!(table.remove_route(new.prefix, None), removed);
                }
            }
            let address = address(&mut random);
            assert_eq!(table.lookup_route(address), longest(&model, address), "{address}");
            assert_eq!(table.routes().count(), model.len());
        }
    }

    #[test]
    fn a_route_that_leads_elsewhere_is_not_removed() {
        let prefix = Ipv4Prefix::ALL;
        let next = |output| RouteNextHop { gateway: None, output };
        let mut table = LinearTable::default();
        table.add_route(Route { prefix, next: next(1) }, false).unwrap();
        assert_eq!(table.remove_route(prefix, Some(next(2))), None);
        assert!(table.remove_route(prefix, Some(next(1))).is_some());
        assert_eq!(table.lookup_route(Ipv4Addr::UNSPECIFIED), None);
    }
}
