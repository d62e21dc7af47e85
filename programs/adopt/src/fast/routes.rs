//! The routes of a family, and the FIB that programs look into.
use super::next_hop_groups::{GroupTable, KERNEL};
use super::shared_arrays::SharedArrays;
use artery_lpm::{
    Address, Art, BuildError, CannotInsert, Fib4Fast, Fib4Options, Fib6, Group, NO_GROUP, NeedsRebuild,
    Prefix, Runs, Strides,
};
use artery_rcu::Domain;
use artery_storage::HugePages;
use std::collections::BTreeMap;
use std::fmt;
use std::io;
use std::sync::Arc;

/// A family's compiled FIB.
pub(super) trait CompiledFib<A: Address>: Sized {
    /// Bytes that are reserved at first for what grows.
    const LEAST: u32;
    /// Prefixes that no packet is forwarded to, whatever the routes say.
    fn unroutable_prefixes() -> Vec<Prefix<A>>;
    fn build(
        domain: &Arc<Domain>,
        art: &Art<A>,
        arrays: &SharedArrays,
        room: u32,
    ) -> Result<Self, BuildError>;
    fn update(&mut self, art: &Art<A>, prefix: Prefix<A>) -> Result<(), NeedsRebuild>;
}

impl CompiledFib<u32> for Fib4Fast {
    const LEAST: u32 = 4 << 20;

    /// This network, loopback, multicast and what is reserved with broadcast (RFC 6890).
    fn unroutable_prefixes() -> Vec<Prefix<u32>> {
        [(0, 8), (127 << 24, 8), (224 << 24, 3)].map(|(address, len)| Prefix::of(address, len)).to_vec()
    }
    fn build(
        domain: &Arc<Domain>,
        art: &Art<u32>,
        arrays: &SharedArrays,
        room: u32,
    ) -> Result<Self, BuildError> {
        let options = Fib4Options { wide: false, list_lines: room as usize / 64, ..Fib4Options::default() };
        Fib4Fast::build(domain, art, arrays, options)
    }
    fn update(&mut self, art: &Art<u32>, prefix: Prefix<u32>) -> Result<(), NeedsRebuild> {
        Fib4Fast::update_prefix(self, art, prefix)
    }
}

impl CompiledFib<u128> for Fib6 {
    const LEAST: u32 = 4 << 20;

    /// What embeds other addresses or means none (::/16), link-local and multicast (RFC 4291).
    fn unroutable_prefixes() -> Vec<Prefix<u128>> {
        [(0, 16), (0xfe80 << 112, 10), (0xff << 120, 8)]
            .map(|(address, len)| Prefix::of(address, len))
            .to_vec()
    }
    fn build(
        domain: &Arc<Domain>,
        art: &Art<u128>,
        arrays: &SharedArrays,
        room: u32,
    ) -> Result<Self, BuildError> {
        Fib6::build(domain, art, arrays, Some(room as usize))
    }
    fn update(&mut self, art: &Art<u128>, prefix: Prefix<u128>) -> Result<(), NeedsRebuild> {
        Fib6::update_prefix(self, art, prefix)
    }
}

/// The reason why a FIB can't be built or changed.
#[derive(Debug)]
pub enum FibError {
    /// The kernel gives no memory to share with programs, or not so much.
    Memory(io::Error),
    /// There are more routes than any FIB holds.
    TooMany,
    /// Memory for a route is lacking.
    Route(CannotInsert),
}

impl fmt::Display for FibError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            FibError::Memory(error) => write!(f, "no memory for the routes that programs look up: {error}"),
            FibError::TooMany => f.write_str("there are more routes than programs can look up"),
            FibError::Route(error) => error.fmt(f),
        }
    }
}

impl std::error::Error for FibError {}

/// Limit on prefixes that had no room in a FIB and are tried once more. With more of them the FIB is rebuilt.
const MOST_UNFIT: usize = 64;
/// Size in bytes up to which a FIB that is rebuilt for want of room gets twice the room, so that it
/// isn't rebuilt again soon.
const MOST_SPARE: u32 = 64 << 20;

/// A FIB and the arrays that it is in.
pub(super) struct Fib<F> {
    pub(super) fib: F,
    pub(super) arrays: SharedArrays,
    /// Bytes reserved for what grows.
    pub(super) room: u32,
}

/// An address with neighbors, on one interface or several.
struct NeighborAddress {
    /// The group of the address's own route, where it has one.
    route_group: Option<Group>,
    /// Interfaces, and the groups of the neighbor there.
    near: Vec<(u32, Group)>,
}

/// The routes of a family.
pub(super) struct Routes<A: Address, F> {
    domain: Arc<Domain>,
    art: Art<A>,
    never: Vec<Prefix<A>>,
    spots: BTreeMap<A, NeighborAddress>,
    pub(super) current: Fib<F>,
    /// Whether the FIB must be rebuilt.
    is_stale: bool,
    /// The prefixes that it had no room for since it is stale for that.
    unfit: Vec<Prefix<A>>,
    /// Whether the FIB has no room although no program uses what was replaced.
    is_full: bool,
    is_loading: bool,
    /// Why there is a route missing, after which nothing is right any more.
    lost: Option<CannotInsert>,
}

impl<A: Address + Ord, F: CompiledFib<A>> Routes<A, F> {
    pub(super) fn new(domain: &Arc<Domain>) -> Result<Routes<A, F>, FibError> {
        // No program reads it, so its memory is reused without a wait for readers.
        let mut art = Art::new(&Domain::new(), Strides::fast(), &HugePages).map_err(FibError::Memory)?;
        let never = F::unroutable_prefixes();
        for prefix in &never {
            art.insert(*prefix, KERNEL).map_err(|_| FibError::TooMany)?;
        }
        let current = build_fib(domain, &art, F::LEAST)?;
        Ok(Routes {
            domain: domain.clone(),
            art,
            never,
            spots: BTreeMap::new(),
            current,
            is_stale: false,
            unfit: Vec::new(),
            is_full: false,
            is_loading: false,
            lost: None,
        })
    }

    /// Whether programs find all routes as the mirror has them.
    pub(super) fn are_right(&self) -> bool {
        self.lost.is_none() && !self.is_stale
    }

    /// Whether the FIB must be rebuilt.
    pub(super) fn is_stale(&self) -> bool {
        self.is_stale && !self.is_loading
    }

    pub(super) fn begin_load(&mut self) {
        self.is_loading = true;
    }

    /// Brings in step what was put off.
    pub(super) fn end_load(&mut self, ways: &GroupTable) {
        self.is_loading = false;
        self.is_stale = true;
        self.unfit.clear();
        self.review_neighbors(Prefix::ALL, ways);
    }

    pub(super) fn set_route(&mut self, prefix: Prefix<A>, group: Option<Group>, ways: &GroupTable) {
        if self.never.iter().any(|never| never.covers(prefix)) {
            return;
        }
        if prefix.len() == A::BITS
            && let Some(spot) = self.spots.get_mut(&prefix.first())
        {
            spot.route_group = group;
        } else {
            self.write_route(prefix, group);
        }
        self.review_neighbors(prefix, ways);
    }

    /// Follows a neighbor, which has this group on this interface from now on, or none. Gives the
    /// group that it had.
    pub(super) fn set_neighbor(
        &mut self,
        address: A,
        link: u32,
        group: Option<Group>,
        ways: &GroupTable,
    ) -> Option<Group> {
        let told = self.art.get(Prefix::host(address));
        let new_spot = || NeighborAddress { route_group: told, near: Vec::new() };
        let spot = self.spots.entry(address).or_insert_with(new_spot);
        let at = spot.near.iter().position(|(on, _)| *on == link);
        let before = at.map(|at| spot.near.swap_remove(at).1);
        spot.near.extend(group.map(|group| (link, group)));
        let is_over = spot.near.is_empty();
        self.review_neighbors(Prefix::host(address), ways);
        if is_over {
            self.spots.remove(&address);
        }
        before
    }

    /// Takes over the neighbors that other routes of the family have, with their groups.
    pub(super) fn copy_neighbors(&mut self, from: &Routes<A, F>) {
        let copied = |spot: &NeighborAddress| NeighborAddress { route_group: None, near: spot.near.clone() };
        self.spots = from.spots.iter().map(|(address, spot)| (*address, copied(spot))).collect();
    }

    /// Looks up again which of the neighbors within a prefix its addresses go to.
    pub(super) fn review_neighbors(&mut self, within: Prefix<A>, ways: &GroupTable) {
        if self.is_loading {
            return;
        }
        let addresses: Vec<A> =
            self.spots.range(within.first()..=within.last()).map(|(address, _)| *address).collect();
        for address in addresses {
            let host = Prefix::host(address);
            let spot = &self.spots[&address];
            let by_route = spot.route_group.unwrap_or_else(|| match self.art.cover(host) {
                NO_GROUP => self.art.default_group(),
                group => group,
            });
            let link = ways.at_hand(by_route);
            let near = spot.near.iter().find(|(on, _)| Some(*on) == link);
            let wanted = near.map(|(_, group)| *group).or(spot.route_group);
            if self.art.get(host) != wanted {
                self.write_route(host, wanted);
            }
        }
    }

    fn write_route(&mut self, prefix: Prefix<A>, group: Option<Group>) {
        match group {
            Some(group) => {
                if let Err(error) = self.art.insert(prefix, group) {
                    self.lost = Some(error);
                }
            }
            None => drop(self.art.remove(prefix)),
        }
        if self.is_loading || self.is_stale && self.unfit.is_empty() {
            return;
        }
        if self.is_stale || self.current.fib.update(&self.art, prefix).is_err() {
            self.is_stale = true;
            if self.unfit.len() <= MOST_UNFIT {
                self.unfit.push(prefix);
            }
        }
    }

    /// Whether a FIB that is stale for want of room may take in all routes once readers have let go
    /// of what was replaced.
    pub(super) fn may_fit(&self) -> bool {
        !self.is_loading && (1..=MOST_UNFIT).contains(&self.unfit.len())
    }

    /// Tries that, as they have.
    pub(super) fn fit(&mut self) {
        let unfit = std::mem::take(&mut self.unfit);
        let mut update = |prefix: &Prefix<A>| self.current.fib.update(&self.art, *prefix).is_err();
        match unfit.iter().any(&mut update) {
            // Nothing was to be had by that.
            true => self.unfit = Vec::new(),
            false => self.is_stale = false,
        }
        self.is_full = self.is_stale;
    }

    /// Rebuilds the FIB if it is stale, and returns the old one, which programs may still read.
    pub(super) fn rebuild_if_stale(&mut self) -> Result<Option<Fib<F>>, FibError> {
        if let Some(error) = self.lost.take() {
            return Err(FibError::Route(error));
        }
        if !self.is_stale() {
            return Ok(None);
        }
        let room = self.current.room;
        let is_too_small = self.is_full && room < MOST_SPARE;
        let new = build_fib(&self.domain, &self.art, if is_too_small { 2 * room } else { room })?;
        (self.is_stale, self.is_full) = (false, false);
        self.unfit.clear();
        Ok(Some(std::mem::replace(&mut self.current, new)))
    }
}

/// Builds a FIB with at least so much room, and as much more as it takes.
fn build_fib<A: Address, F: CompiledFib<A>>(
    domain: &Arc<Domain>,
    art: &Art<A>,
    least: u32,
) -> Result<Fib<F>, FibError> {
    let mut room = least;
    loop {
        let arrays = SharedArrays::default();
        match F::build(domain, art, &arrays, room) {
            Ok(fib) => return Ok(Fib { fib, arrays, room }),
            Err(BuildError::Storage(error)) => return Err(FibError::Memory(error)),
            Err(BuildError::Full(_)) => room = room.checked_mul(2).ok_or(FibError::TooMany)?,
        }
    }
}
