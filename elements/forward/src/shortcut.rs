//! A shortcut past IPForward and IP6Forward for elements that redirect frames to few addresses: fast-path
//! frames leave at once.
//!
//! The element gives each address a number. The decision about it is cached by that number until the router's
//! tables may have changed, so that a frame costs no lookup. A frame is checked and rewritten as the
//! forwarders do it (`fast_path.rs`). Exceptions don't take the shortcut: they go to the forwarders
//! unchanged, which decide about them again. So the checks here may reject a valid frame, but must never pass
//! an invalid one.
use crate::decision_cache::is_cacheable;
use crate::fast_path::{self, ForwardFamily, FrameCheck};
use crate::shared::{self, SharedRouter};
use artery_engine::{ArgError, Args, Packet};
use artery_l3::PortId;
use artery_l3::path::{ForwardDecision, PathReader};
use artery_l3::router::{PortView, ReversePath};
use artery_rcu::{Published, Turn};
use std::sync::Arc;

/// The shortcut of one worker.
pub struct Shortcut {
    router: Arc<SharedRouter>,
    ports: Arc<Published<Vec<PortView>>>,
    worker: usize,
    v4: AdjacencyCache<u32>,
    v6: AdjacencyCache<u128>,
}

/// The shortcut for one batch.
pub struct OpenShortcut<'t> {
    /// What frames must be like.
    pub gate: FrameCheck<'t>,
    pub v4: FamilyShortcut<'t, u32>,
    pub v6: FamilyShortcut<'t, u128>,
}

/// The shortcut for frames of a family.
pub struct FamilyShortcut<'t, A: ForwardFamily> {
    adjacencies: &'t mut [CachedAdjacency],
    resolved: &'t mut Vec<usize>,
    path: &'t PathReader<A>,
    scene: BatchContext<'t>,
}

/// The inputs of decisions for one batch.
#[derive(Clone, Copy)]
struct BatchContext<'t> {
    gate: FrameCheck<'t>,
    ports: &'t [PortView],
    /// The ingress port. A frame that leaves by it to its own destination needs a redirect, so
    /// it is an exception.
    ingress_port: PortId,
    router: &'t SharedRouter,
    worker: usize,
    turn: &'t Turn<'t>,
}

/// Adjacencies of the addresses of a family.
struct AdjacencyCache<A: ForwardFamily> {
    path: PathReader<A>,
    /// Indexed by the number of the address.
    kept: Vec<CachedAdjacency>,
    /// The numbers of those that were resolved.
    asked: Vec<usize>,
    /// The changes of the router's tables and of the addresses before these adjacencies were resolved.
    as_of: Option<(u64, u32)>,
}

/// The adjacency of an address.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct CachedAdjacency {
    /// The link header, in the two parts that [`fast_path::write_link`] takes.
    head: u64,
    tail: u32,
    port: PortId,
    /// Most bytes of a packet by this adjacency; 0 where fast-path frames have none.
    mtu: u16,
}

/// No port has this number.
const NO_PORT: PortId = PortId(u16::MAX);

impl CachedAdjacency {
    /// The address was not resolved yet.
    const UNKNOWN: CachedAdjacency = CachedAdjacency { head: 0, tail: 0, port: PortId(0), mtu: 0 };
    /// No adjacency for fast-path frames.
    const NONE: CachedAdjacency = CachedAdjacency { port: NO_PORT, ..CachedAdjacency::UNKNOWN };

    fn new(to: &ForwardDecision, ports: &[PortView]) -> Option<CachedAdjacency> {
        let view = ports.get(usize::from(to.port.0)).filter(|_| is_cacheable(to))?;
        let head = to.link.bits() | view.source_head;
        Some(CachedAdjacency { head, tail: view.source_tail, port: to.port, mtu: to.mtu })
    }
}

impl Shortcut {
    /// Past the forwarders of the router that the argument ROUTER names.
    pub fn new(args: &Args<'_>) -> Result<Shortcut, ArgError> {
        let router = shared::find_router(args)?;
        let readers = router.readers();
        let (ports, worker) = (readers.ports.clone(), args.worker().0);
        let (v4, v6) = (AdjacencyCache::new(readers.v4.clone()), AdjacencyCache::new(readers.v6.clone()));
        Ok(Shortcut { ports, worker, v4, v6, router })
    }

    pub fn port_count(&self) -> usize {
        self.router.port_count()
    }

    /// Opens it for a batch that came by a port, with so many numbers for addresses, of this generation. None
    /// if no frame may take it: where reverse paths are checked, and while there are pending packets that
    /// frames may not overtake.
    #[inline]
    pub fn open_batch<'t>(
        &'t mut self,
        came_by: usize,
        (generation, numbers): (u32, usize),
        turn: &'t Turn<'_>,
    ) -> Option<OpenShortcut<'t>> {
        let Shortcut { router, ports, worker, v4, v6 } = self;
        let changes = router.change_count();
        let ports = ports.read(turn);
        let port = ports.get(came_by).filter(|port| port.settings.rpf == ReversePath::Off)?;
        if router.reorder_guard().is_behind(*worker) {
            return None;
        }
        let not_by = if port.settings.redirects { PortId(came_by as u16) } else { NO_PORT };
        let gate = FrameCheck::new(port);
        let scene = BatchContext { gate, ports, ingress_port: not_by, router, worker: *worker, turn };
        let as_of = (changes, generation);
        Some(OpenShortcut {
            gate,
            v4: v4.open_family(as_of, numbers, scene),
            v6: v6.open_family(as_of, numbers, scene),
        })
    }
}

impl<A: ForwardFamily> FamilyShortcut<'_, A> {
    /// Rewrites a frame that passed the check for the address of a number, and returns its egress port. None
    /// if the frame is an exception or its adjacency is not cached: then it is unchanged.
    #[inline(always)]
    pub fn forward_known(&self, frame: &mut Packet, number: usize) -> Option<PortId> {
        let way = self.adjacencies.get(number)?;
        let CachedAdjacency { head, tail, port, mtu } = *way;
        // An unknown adjacency has an MTU of 0, so every frame is too long for it.
        let is_simple = port != self.scene.ingress_port && !frame.has_offload();
        (is_simple && fast_path::rewrite_within::<A>(frame, (head, tail), mtu.into())).then_some(port)
    }

    /// The same, with a lookup if the adjacency is not cached. `is_plain` is whether the
    /// frame passed the check.
    #[inline(never)]
    pub fn forward_or_resolve(
        &mut self,
        frame: &mut Packet,
        is_plain: bool,
        number: usize,
        address: A,
    ) -> Option<PortId> {
        if !is_plain && !A::recheck_header(frame.data(), &self.scene.gate) {
            return None;
        }
        let way = match *self.adjacencies.get(number)? {
            CachedAdjacency::UNKNOWN => self.resolve_adjacency(number, address)?,
            way => way,
        };
        if way.port == self.scene.ingress_port && A::source_and_destination(frame.data()).1 == address {
            return None;
        }
        fast_path::rewrite_frame::<A>(frame, (way.head, way.tail), way.mtu).then_some(way.port)
    }

    /// Decides about an address.
    #[cold]
    fn resolve_adjacency(&mut self, number: usize, address: A) -> Option<CachedAdjacency> {
        let BatchContext { ports, router, worker, turn, .. } = self.scene;
        let mut is_single = true;
        let several = |_| {
            is_single = false;
            0
        };
        let decision = self.path.explain_path(turn, address, several).decision;
        // If the neighbor has just become known, packets may be pending for it.
        if router.reorder_guard().is_behind(worker) {
            return None;
        }
        let way = CachedAdjacency::new(&decision, ports).filter(|_| is_single);
        *self.adjacencies.get_mut(number)? = way.unwrap_or(CachedAdjacency::NONE);
        self.resolved.push(number);
        way
    }
}

impl<A: ForwardFamily> AdjacencyCache<A> {
    fn new(path: PathReader<A>) -> AdjacencyCache<A> {
        AdjacencyCache { path, kept: Vec::new(), asked: Vec::new(), as_of: None }
    }

    /// The shortcut of a family, after so many changes and with so many numbers;
    /// outdated adjacencies are dropped.
    #[inline]
    fn open_family<'t>(
        &'t mut self,
        as_of: (u64, u32),
        numbers: usize,
        scene: BatchContext<'t>,
    ) -> FamilyShortcut<'t, A> {
        if self.as_of != Some(as_of) {
            self.asked.drain(..).for_each(|number| self.kept[number] = CachedAdjacency::UNKNOWN);
            self.kept.resize(numbers, CachedAdjacency::UNKNOWN);
            self.as_of = Some(as_of);
        }
        FamilyShortcut { adjacencies: &mut self.kept, resolved: &mut self.asked, path: &self.path, scene }
    }
}
