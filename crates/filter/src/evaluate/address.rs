//! What a rule asks of an address, in few bytes.
use super::Surroundings;
use crate::facts::Interface;
use crate::tables::Table;
use std::net::IpAddr;
use std::sync::Arc;

/// What a rule asks of one end's address.
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
    /// Addresses and masks.
    pub(super) masks: Vec<(IpAddr, IpAddr)>,
    pub(super) tables: Vec<Arc<Table>>,
    pub(super) labels: Vec<String>,
}

/// Which end of a packet is looked at.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum End {
    Source,
    Destination,
}

/// What is asked of a table: of which table, about which end, and whether the address must be in it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) struct Asked(pub(super) u32);

impl Asked {
    /// How much can be asked of a table.
    pub(super) const PER_TABLE: usize = 4;
}

/// What tables said of the addresses of a packet, so that each is asked once, and how often they said what.
#[derive(Default)]
pub(super) struct Memo {
    slots: Vec<Slot>,
    /// What marks an answer that is about the packet as it is now. Even.
    now: u32,
    worker: usize,
    /// What the last test failed by, if that was a table.
    denied: Option<Asked>,
}

#[derive(Clone, Copy, Default)]
struct Slot {
    /// For each end `now`, plus 1 if the address is in the table.
    answers: [u32; 2],
    matches: u32,
    no_match: u32,
}

/// Lookups of a table that a worker counts for itself before it tells.
const TOLD_AT_ONCE: u32 = 256;

impl Memo {
    pub(super) fn new(tables: usize, worker: usize) -> Memo {
        Memo { slots: vec![Slot::default(); tables], now: 2, worker, denied: None }
    }

    /// Forgets the answers: the packet is another, or has other addresses.
    pub(super) fn forget(&mut self) {
        self.now = self.now.wrapping_add(2);
        if self.now == 0 {
            self.slots.iter_mut().for_each(|slot| slot.answers = [0; 2]);
            self.now = 2;
        }
    }

    /// What the last test failed by, if that was a table.
    #[inline]
    pub(super) fn take_denied(&mut self) -> Option<Asked> {
        self.denied.take()
    }

    /// Adds what was counted to the counters of tables.
    pub(super) fn tell(&mut self, tables: &[Arc<Table>]) {
        for (slot, table) in self.slots.iter_mut().zip(tables) {
            slot.tell(table, self.worker);
        }
    }

    #[inline]
    fn contains(&mut self, table: u32, end: End, ask: impl FnOnce() -> bool, tables: &[Arc<Table>]) -> bool {
        let slot = &mut self.slots[table as usize];
        let known = slot.answers[end as usize];
        if known & !1 == self.now {
            return known & 1 == 1;
        }
        let is_in = ask();
        slot.answers[end as usize] = self.now | u32::from(is_in);
        slot.matches += u32::from(is_in);
        slot.no_match += u32::from(!is_in);
        if slot.matches + slot.no_match >= TOLD_AT_ONCE {
            slot.tell(&tables[table as usize], self.worker);
        }
        is_in
    }
}

impl Slot {
    fn tell(&mut self, table: &Table, worker: usize) {
        if self.matches + self.no_match > 0 {
            table.count_lookups(worker, self.matches, self.no_match);
            (self.matches, self.no_match) = (0, 0);
        }
    }
}

impl EndTest {
    /// What it asks of a table.
    pub(super) fn asks(&self, end: End) -> Option<Asked> {
        match self.address {
            AddressTest::Table(table) => Some(Asked(table * 4 + end as u32 * 2 + u32::from(self.is_negated))),
            _ => None,
        }
    }

    /// Whether an address is as asked.
    #[inline]
    pub(super) fn holds(
        &self,
        address: IpAddr,
        end: End,
        interface: Interface,
        (addresses, surroundings, memo): (&Addresses, &Surroundings<'_, '_>, &mut Memo),
    ) -> bool {
        let holds = match self.address {
            AddressTest::Any => true,
            AddressTest::Range4(first, last) => match address {
                IpAddr::V4(address) => (first..=last).contains(&address.to_bits()),
                IpAddr::V6(_) => false,
            },
            AddressTest::Table(table) => {
                let ask = || addresses.tables[table as usize].contains(surroundings.turn, address);
                let holds = memo.contains(table, end, ask, &addresses.tables) != self.is_negated;
                memo.denied = if holds { None } else { self.asks(end) };
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
            (AddressTest::UrpfFailed, address) => !routes.leads_to(address, interface),
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
