//! A routing table as a router uses it: ART is what is known, and beside it a compiled FIB forwards.
//!
//! The writer changes ART first and brings the FIB in step before it returns. Readers reach the engine that
//! forwards through one published value, so that another layout, or a bigger one, takes its place while
//! packets flow. When a FIB cannot get memory, ART forwards: slower, but correct.
use crate::fib::layout::{Fib, Fib4, Layout};
use crate::fib::{BuildError, FibMemory};
use crate::{
    Address, Art, ArtReader, CannotInsert, Fib6, Group, MemoryReport, Policy, Prefix, Routes, Strides,
};
use artery_rcu::{Domain, Published, Turn};
use artery_storage::Storage;
use std::fmt;
use std::io;
use std::sync::Arc;

/// An address family that tables are made for: `u32` (IPv4) and `u128` (IPv6).
pub trait Family: Address {
    /// The compiled FIB of the family.
    #[doc(hidden)]
    type Fib: Fib<Self>;
}

impl Family for u32 {
    type Fib = Fib4;
}

impl Family for u128 {
    type Fib = Fib6;
}

/// From this many routes on, `auto` takes the fast layout; below this many, the small one again.
const MANY: usize = 1 << 16;
const FEW: usize = 1 << 14;
/// From this many routes on, the FIB is a big table to its storage.
const BIG: usize = 1 << 10;

/// A routing table, for the thread that changes it.
pub struct RouteTable<A: Family> {
    domain: Arc<Domain>,
    storage: Arc<dyn Storage>,
    policy: Policy<A>,
    art: Art<A>,
    fib: Option<A::Fib>,
    /// Whether the FIB has its memory as a big table.
    is_big: bool,
    engine: Arc<Published<Engine<A>>>,
    compromise: Option<Compromise>,
}

/// What the routes were found to fit into, where that is not what the policy asks for.
///
/// It holds until they are half or twice as many: an attempt that fails takes as long as one that succeeds.
#[derive(Clone, Copy)]
struct Compromise {
    routes: usize,
    /// The layout that failed; None stands for ART.
    layout: Option<Layout>,
}

/// The engine that forwards packets.
enum Engine<A: Family> {
    Art(ArtReader<A>),
    Fib(<A::Fib as Fib<A>>::Reader),
}

/// A routing table, for any number of threads that look addresses up.
pub struct RouteReader<A: Family> {
    engine: Arc<Published<Engine<A>>>,
}

impl<A: Family> Clone for RouteReader<A> {
    fn clone(&self) -> RouteReader<A> {
        RouteReader { engine: self.engine.clone() }
    }
}

impl<A: Family> RouteReader<A> {
    /// The group of the longest prefix that contains the address, [`NO_GROUP`](crate::NO_GROUP) if none does.
    ///
    /// # Panics
    /// When the turn is not one of the table's domain.
    #[inline]
    pub fn lookup(&self, turn: &Turn<'_>, address: A) -> Group {
        match self.engine.read(turn) {
            Engine::Art(art) => art.lookup(turn, address),
            Engine::Fib(fib) => A::Fib::lookup(fib, turn, address),
        }
    }

    /// Looks up many addresses, into as many groups: several times faster than one by one. 32 to 64 at
    /// a time are best.
    ///
    /// # Panics
    /// When the turn is not one of the table's domain, or the slices differ in length.
    pub fn lookup_batch(&self, turn: &Turn<'_>, addresses: &[A], groups: &mut [Group]) {
        assert_eq!(addresses.len(), groups.len(), "a group for each address");
        match self.engine.read(turn) {
            Engine::Art(art) => art.lookup_batch(turn, addresses, groups),
            Engine::Fib(fib) => A::Fib::lookup_batch(fib, turn, addresses, groups),
        }
    }
}

impl<A: Family> RouteTable<A> {
    /// An empty table whose readers take turns of `domain`.
    pub fn new(
        domain: &Arc<Domain>,
        policy: Policy<A>,
        storage: Arc<dyn Storage>,
    ) -> Result<RouteTable<A>, TableError> {
        let art = Art::new(domain, policy_strides(&policy), &*storage)?;
        let engine = Arc::new(Published::new(domain, Engine::Art(art.reader())));
        let (domain, fib, compromise) = (domain.clone(), None, None);
        let mut table = RouteTable { domain, storage, policy, art, fib, is_big: false, engine, compromise };
        table.compile_fib()?;
        Ok(table)
    }

    /// A reader, for threads that look addresses up.
    pub fn reader(&self) -> RouteReader<A> {
        RouteReader { engine: self.engine.clone() }
    }

    /// Number of routes in the table.
    pub fn len(&self) -> usize {
        self.art.len()
    }
    /// Whether the table has no routes.
    pub fn is_empty(&self) -> bool {
        self.art.is_empty()
    }
    /// The group that the route of exactly this prefix leads to.
    pub fn get(&self, prefix: Prefix<A>) -> Option<Group> {
        self.art.get(prefix)
    }
    /// The longest prefix that contains an address, and its group.
    pub fn lookup(&self, address: A) -> Option<(Prefix<A>, Group)> {
        self.art.lookup(address)
    }
    /// All routes, by address and then from short to long.
    pub fn iter(&self) -> Routes<'_, A> {
        self.art.iter()
    }
    /// The routes that come after a prefix, whether it has a route or not: so a walk goes on
    /// that was left there.
    pub fn routes_after(&self, prefix: Prefix<A>) -> Routes<'_, A> {
        self.art.routes_after(prefix)
    }
    /// The routes of longer prefixes within this one, in order; its own route is not among them.
    pub fn more_specifics(&self, prefix: Prefix<A>) -> Routes<'_, A> {
        self.art.more_specifics(prefix)
    }

    /// Adds a route, or replaces that of its prefix and returns its group.
    pub fn insert(&mut self, prefix: Prefix<A>, group: Group) -> Result<Option<Group>, TableError> {
        check_group::<A>(group)?;
        let old = self.art.insert(prefix, group)?;
        if old != Some(group) {
            self.sync_fib(prefix, Some(group));
        }
        Ok(old)
    }

    /// Removes the route of a prefix and returns its group.
    pub fn remove(&mut self, prefix: Prefix<A>) -> Option<Group> {
        let old = self.art.remove(prefix)?;
        self.sync_fib(prefix, None);
        Some(old)
    }

    /// Puts these routes in the place of all there are, at once; the last counts where a prefix comes twice.
    /// On an error the old ones stay.
    pub fn load_routes(
        &mut self,
        routes: impl IntoIterator<Item = (Prefix<A>, Group)>,
    ) -> Result<(), TableError> {
        let mut art = Art::new(&self.domain, policy_strides(&self.policy), &*self.storage)?;
        for (prefix, group) in routes {
            check_group::<A>(group)?;
            art.insert(prefix, group)?;
        }
        self.install_art(art)
    }

    /// How the table forwards.
    pub fn policy(&self) -> &Policy<A> {
        &self.policy
    }

    /// Changes the engine while packets flow. On an error nothing has changed.
    pub fn set_policy(&mut self, policy: Policy<A>) -> Result<(), TableError> {
        let before = std::mem::replace(&mut self.policy, policy);
        let wanted = policy_strides(&self.policy);
        let done = if *self.art.strides() == wanted {
            self.compile_from_policy()
        } else {
            Art::build(&self.domain, wanted, &*self.storage, self.art.iter())
                .map_err(TableError::Memory)
                .and_then(|art| self.install_art(art))
        };
        if done.is_err() {
            self.policy = before;
        }
        done
    }

    /// What forwards now: `fast`, `small`, or `art` with its strides.
    pub fn engine_name(&self) -> String {
        match &self.fib {
            Some(fib) => fib.layout().to_string(),
            None => Policy::Art(Some(self.art.strides().clone())).to_string(),
        }
    }

    /// How much memory goes where: that of ART, and that of the compiled FIB where there is one.
    pub fn memory(&self) -> (MemoryReport, Option<FibMemory>) {
        (self.art.memory(), self.fib.as_ref().map(Fib::memory))
    }

    /// Makes `art` what is known, and what forwards accordingly.
    fn install_art(&mut self, art: Art<A>) -> Result<(), TableError> {
        let before = std::mem::replace(&mut self.art, art);
        self.compile_from_policy().inspect_err(|_| self.art = before)
    }

    /// Compiles what the policy asks for, whatever did not fit before.
    fn compile_from_policy(&mut self) -> Result<(), TableError> {
        let before = self.compromise.take();
        self.compile_fib().inspect_err(|_| self.compromise = before)
    }

    /// Brings the FIB in step with a change of ART: the route of `prefix`, which goes to `group`
    /// if it is there.
    fn sync_fib(&mut self, prefix: Prefix<A>, group: Option<Group>) {
        let shown = || group.unwrap_or_else(|| self.art.cover(prefix));
        let replaced = self.fib.as_mut().map(|fib| fib.replace_prefix(&self.art, prefix, shown));
        if let Some(Err(_)) = replaced {
            // It has no room for the change. Without memory for a bigger one ART forwards: right, if slower.
            if self.compile_fib().is_err() {
                self.make_do_with(None);
                self.forward_by(None);
            }
            return;
        }
        let layout = self.fib.as_ref().map(Fib::layout);
        let suits = self.choose_layout() == layout && !self.has_outgrown_storage();
        if !suits && self.compile_fib().is_err() {
            // Another layout would suit better, but it cannot get memory: this one stays.
            self.make_do_with(layout);
        }
    }

    /// Whether the FIB would get other memory if it were compiled now.
    fn has_outgrown_storage(&self) -> bool {
        !self.is_big && self.len() >= BIG && self.storage.for_big_tables().is_some()
    }

    /// Makes the FIB that the policy asks for and lets it forward. `auto` takes the next best if the routes
    /// don't fit, or the FIB not into the budget.
    fn compile_fib(&mut self) -> Result<(), TableError> {
        let mut layout = self.choose_layout();
        self.is_big = self.len() >= BIG;
        loop {
            let storage = self.storage.for_big_tables().filter(|_| self.is_big).unwrap_or(&*self.storage);
            let build = |layout| A::Fib::build(layout, &self.domain, &self.art, storage);
            match layout.map(build).transpose() {
                Err(BuildError::Full(_)) if matches!(self.policy, Policy::Auto { .. }) => {
                    layout = self.make_do_with_less_than(layout);
                }
                Ok(Some(fib)) if self.budget().is_some_and(|most| fib.memory().bytes() as u64 > most) => {
                    layout = self.make_do_with_less_than(layout);
                }
                built => {
                    self.forward_by(built?);
                    return Ok(());
                }
            }
        }
    }

    /// Notes that the next smaller layout, or ART, has to do, and says which.
    fn make_do_with_less_than(&mut self, layout: Option<Layout>) -> Option<Layout> {
        let less = layout.filter(|layout| *layout == Layout::Fast).map(|_| Layout::Small);
        self.make_do_with(less);
        less
    }

    fn make_do_with(&mut self, layout: Option<Layout>) {
        self.compromise = Some(Compromise { routes: self.len(), layout });
    }

    fn forward_by(&mut self, fib: Option<A::Fib>) {
        let reader = fib.as_ref().map(|fib| Engine::Fib(fib.reader()));
        self.engine.publish(reader.unwrap_or_else(|| Engine::Art(self.art.reader())));
        self.fib = fib;
    }

    /// The layout for the routes there are; none for ART alone.
    fn choose_layout(&self) -> Option<Layout> {
        let holds = |made: &Compromise| (made.routes / 2..=made.routes * 2).contains(&self.len());
        match self.compromise.filter(holds) {
            Some(Compromise { layout, .. }) => layout,
            None => self.wanted_layout(),
        }
    }

    /// The layout that the policy wants.
    fn wanted_layout(&self) -> Option<Layout> {
        match &self.policy {
            Policy::Art(_) => None,
            Policy::Fast => Some(A::Fib::nearest_layout(Layout::Fast)),
            Policy::Small => Some(Layout::Small),
            Policy::Auto { .. } => {
                let is_fast = self.fib.as_ref().is_some_and(|fib| fib.layout() == Layout::Fast);
                let many = if is_fast { FEW } else { MANY };
                let layouts =
                    if self.len() >= many { &[Layout::Fast, Layout::Small][..] } else { &[Layout::Small] };
                layouts
                    .iter()
                    .map(|layout| A::Fib::nearest_layout(*layout))
                    .find(|layout| self.is_affordable(*layout))
            }
        }
    }

    /// Whether a layout is likely to stay within the budget, if there is one.
    fn is_affordable(&self, layout: Layout) -> bool {
        let is_here = self.fib.as_ref().is_some_and(|fib| fib.layout() == layout);
        // Room for more, so that a route that comes and goes does not change the layout each time.
        let routes = if is_here { self.len() } else { self.len() + self.len() / 8 };
        self.budget().is_none_or(|budget| A::Fib::estimate_bytes(layout, routes) <= budget)
    }

    fn budget(&self) -> Option<u64> {
        if let Policy::Auto { budget } = self.policy { budget } else { None }
    }
}

/// Refuses a group that no FIB of the family can hold, whichever forwards now.
fn check_group<A: Family>(group: Group) -> Result<(), TableError> {
    if group > A::Fib::MAX_GROUP { Err(CannotInsert::Group(group).into()) } else { Ok(()) }
}

fn policy_strides<A: Address>(policy: &Policy<A>) -> Strides<A> {
    match policy {
        Policy::Art(Some(strides)) => strides.clone(),
        Policy::Art(None) => Strides::fast(),
        _ => Strides::source(),
    }
}

impl<A: Family> fmt::Debug for RouteTable<A> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RouteTable")
            .field("routes", &self.len())
            .field("engine", &self.engine_name())
            .finish()
    }
}

/// Why a table could not be made or changed.
#[derive(Debug)]
pub enum TableError {
    /// The storage gave no memory.
    Memory(io::Error),
    /// ART refuses the route.
    Route(CannotInsert),
    /// The compiled FIB could not be built.
    Fib(BuildError),
}

impl fmt::Display for TableError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            TableError::Memory(error) => write!(f, "no memory for the routing table: {error}"),
            TableError::Route(error) => error.fmt(f),
            TableError::Fib(BuildError::Full(full)) => {
                write!(
                    f,
                    "the routes don't fit this FIB, whose array {} is full: take the policy auto",
                    full.array
                )
            }
            TableError::Fib(error) => error.fmt(f),
        }
    }
}

impl std::error::Error for TableError {}

impl From<io::Error> for TableError {
    fn from(error: io::Error) -> TableError {
        TableError::Memory(error)
    }
}
impl From<CannotInsert> for TableError {
    fn from(error: CannotInsert) -> TableError {
        TableError::Route(error)
    }
}
impl From<BuildError> for TableError {
    fn from(error: BuildError) -> TableError {
        TableError::Fib(error)
    }
}
