//! The condition of a rule on an address, in few bytes.
use super::Surroundings;
use super::index::Sets;
use super::memo::Memo;
use super::query::{End, TableQuery};
use crate::facts::Interface;
use crate::tables::Table;
use std::net::IpAddr;
use std::sync::Arc;

/// The condition of a rule on one end's address.
#[derive(Clone, Copy, Debug)]
pub(super) struct EndTest {
    pub(super) address: AddressTest,
    pub(super) is_negated: bool,
}

/// What an address must be; numbers are places in [`Addresses`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum AddressTest {
    Any,
    /// From the first to the last, both included.
    Range4(u32, u32),
    Range6(u32),
    Masked(u32),
    Table(u32),
    NoRoute,
    UrpfFailed,
    Label(u32),
}

/// What doesn't fit into an [`AddressTest`].
#[derive(Default)]
pub(super) struct Addresses {
    pub(super) ranges: Vec<(u128, u128)>,
    pub(super) masks: Vec<(IpAddr, IpAddr)>,
    pub(super) tables: Vec<Arc<Table>>,
    pub(super) labels: Vec<String>,
}

/// What tells whether an address is as asked: what rules refer to, what is around them, the index of small
/// tables if it holds, and what is known already.
pub(super) type MatchContext<'a, 's, 'r> =
    (&'a Addresses, &'a Surroundings<'s, 'r>, Option<&'a Sets>, &'a mut Memo);

impl EndTest {
    /// The query, if the condition is a table.
    pub(super) fn table_query(&self, end: End) -> Option<TableQuery> {
        match self.address {
            AddressTest::Table(table) => Some(TableQuery::new(table, end, self.is_negated)),
            _ => None,
        }
    }

    /// Whether an address meets the condition.
    #[inline]
    pub(super) fn matches_address(
        &self,
        address: IpAddr,
        end: End,
        interface: Interface,
        (addresses, surroundings, sets, memo): MatchContext<'_, '_, '_>,
    ) -> bool {
        let holds = match self.address {
            AddressTest::Any => true,
            AddressTest::Range4(first, last) => match address {
                IpAddr::V4(address) => (first..=last).contains(&address.to_bits()),
                IpAddr::V6(_) => false,
            },
            AddressTest::Table(table) => {
                let is_in = match sets.filter(|sets| sets.contains_table(table)) {
                    Some(sets) => sets.contains(memo.class(end, address, sets), table),
                    None => {
                        let ask = || addresses.tables[table as usize].contains(surroundings.turn, address);
                        memo.contains(table, end, ask, &addresses.tables)
                    }
                };
                let holds = is_in != self.is_negated;
                memo.set_denied(if holds { None } else { self.table_query(end) });
                return holds;
            }
            rare => rare.holds_rarely(address, interface, addresses, surroundings),
        };
        holds != self.is_negated
    }
}

impl AddressTest {
    fn holds_rarely(
        self,
        address: IpAddr,
        interface: Interface,
        addresses: &Addresses,
        surroundings: &Surroundings<'_, '_>,
    ) -> bool {
        let routes = surroundings.routes;
        match (self, address) {
            (AddressTest::Range6(place), IpAddr::V6(address)) => {
                let (first, last) = addresses.ranges[place as usize];
                (first..=last).contains(&address.to_bits())
            }
            (AddressTest::Masked(place), address) => is_under_mask(address, addresses.masks[place as usize]),
            (AddressTest::NoRoute, address) => !routes.has_route(address),
            (AddressTest::UrpfFailed, address) => !routes.has_route_via(address, interface),
            (AddressTest::Label(place), address) => {
                routes.has_label(address, &addresses.labels[place as usize])
            }
            _ => false,
        }
    }
}

fn is_under_mask(address: IpAddr, pattern: (IpAddr, IpAddr)) -> bool {
    match (address, pattern) {
        (IpAddr::V4(address), (IpAddr::V4(wanted), IpAddr::V4(mask))) => {
            (address.to_bits() ^ wanted.to_bits()) & mask.to_bits() == 0
        }
        (IpAddr::V6(address), (IpAddr::V6(wanted), IpAddr::V6(mask))) => {
            (address.to_bits() ^ wanted.to_bits()) & mask.to_bits() == 0
        }
        _ => false,
    }
}
