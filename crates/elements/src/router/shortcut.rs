//! A shortcut past IPForward and IP6Forward, for who leads frames to few addresses: plain frames leave at once.
//!
//! Who leads gives each address a number. What is decided about it is kept by that number until the router's tables may have
//! changed, so that a frame costs no lookup. A frame is checked and rewritten as the forwarders do it (`plain.rs`). All that
//! is more than plain does not take the shortcut, and goes to the forwarders unchanged, which decide about it anew: so what
//! is tested here need only never let pass what should not.
use super::led::lasts;
use super::plain::{self, Forwarded, Gate};
use super::shared::{self, SharedRouter};
use artery_engine::{ArgError, Args, Packet};
use artery_rcu::{Published, Turn};
use artery_table::PortId;
use artery_table::path::{Decision, PathReader};
use artery_table::router::{PortView, ReversePath};
use std::sync::Arc;

/// The shortcut of one worker.
pub(crate) struct Shortcut {
    router: Arc<SharedRouter>,
    ports: Arc<Published<Vec<PortView>>>,
    worker: usize,
    v4: Ways<u32>,
    v6: Ways<u128>,
}

/// The shortcut for one batch.
pub(crate) struct Open<'t> {
    /// What frames must be like.
    pub(crate) gate: Gate<'t>,
    pub(crate) v4: Lane<'t, u32>,
    pub(crate) v6: Lane<'t, u128>,
}

/// The shortcut for frames of a family.
pub(crate) struct Lane<'t, A: Forwarded> {
    kept: &'t mut [Way],
    asked: &'t mut Vec<usize>,
    path: &'t PathReader<A>,
    scene: Scene<'t>,
}

/// What holds for a batch.
#[derive(Clone, Copy)]
struct Scene<'t> {
    gate: Gate<'t>,
    ports: &'t [PortView],
    /// By this port no frame leaves that goes where its sender wanted: it gets a redirect.
    not_by: PortId,
    router: &'t SharedRouter,
    worker: usize,
    turn: &'t Turn<'t>,
}

/// Ways to the addresses of a family.
struct Ways<A: Forwarded> {
    path: PathReader<A>,
    /// By number.
    kept: Vec<Way>,
    /// The numbers of those that were asked for.
    asked: Vec<usize>,
    /// The changes of the router's tables and of the addresses before these ways were asked for.
    as_of: Option<(u64, u32)>,
}

/// How frames get to an address.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Way {
    /// The link header, in the two parts that [`plain::write_link`] wants.
    head: u64,
    tail: u32,
    port: PortId,
    /// The longest packet that goes this way; 0 where there is no way for plain frames.
    mtu: u16,
}

/// No port has this number.
const NO_PORT: PortId = PortId(u16::MAX);

impl Way {
    /// Nobody has asked yet.
    const UNKNOWN: Way = Way { head: 0, tail: 0, port: PortId(0), mtu: 0 };
    /// Not for plain frames.
    const NONE: Way = Way { port: NO_PORT, ..Way::UNKNOWN };

    fn new(to: &Decision, ports: &[PortView]) -> Option<Way> {
        let view = ports.get(usize::from(to.port.0)).filter(|_| lasts(to))?;
        let head = to.link.bits() | view.source_head;
        Some(Way { head, tail: view.source_tail, port: to.port, mtu: to.mtu })
    }
}

impl Shortcut {
    /// Past the forwarders of the router that the argument ROUTER names.
    pub(crate) fn new(args: &Args<'_>) -> Result<Shortcut, ArgError> {
        let router = shared::router(args)?;
        let readers = router.readers();
        let (ports, worker) = (readers.ports.clone(), args.worker().0);
        let (v4, v6) = (Ways::new(readers.v4.clone()), Ways::new(readers.v6.clone()));
        Ok(Shortcut { ports, worker, v4, v6, router })
    }

    /// Number of ports.
    pub(crate) fn ports(&self) -> usize {
        self.router.ports()
    }

    /// Opens it for a batch that came by a port, while there are so many numbers for addresses, of this generation. None if
    /// no frame may take it: where sources are checked, and as long as packets wait that none may pass by.
    #[inline]
    pub(crate) fn open<'t>(
        &'t mut self,
        came_by: usize,
        (generation, numbers): (u32, usize),
        turn: &'t Turn<'_>,
    ) -> Option<Open<'t>> {
        let Shortcut { router, ports, worker, v4, v6 } = self;
        let changes = router.changes();
        let ports = ports.read(turn);
        let port = ports.get(came_by).filter(|port| port.settings.rpf == ReversePath::Off)?;
        if router.order().is_behind(*worker) {
            return None;
        }
        let not_by = if port.settings.redirects { PortId(came_by as u16) } else { NO_PORT };
        let gate = Gate::new(port);
        let scene = Scene { gate, ports, not_by, router, worker: *worker, turn };
        let as_of = (changes, generation);
        Some(Open { gate, v4: v4.lane(as_of, numbers, scene), v6: v6.lane(as_of, numbers, scene) })
    }
}

impl<A: Forwarded> Lane<'_, A> {
    /// Makes a frame that passed the check ready to leave for the address of a number, and says by which port. None if it
    /// does not take the shortcut, or there is more to look at: then it is as it was.
    #[inline(always)]
    pub(crate) fn take(&self, frame: &mut Packet, number: usize) -> Option<PortId> {
        let way = self.kept.get(number)?;
        let Way { head, tail, port, mtu } = *way;
        // By a way that is not known no frame is short enough.
        let is_simple = port != self.scene.not_by && !frame.is_unfinished();
        (is_simple && plain::rewrite::<A>(frame, (head, tail), mtu.into())).then_some(port)
    }

    /// The same of all frames, with more looks. `is_plain` is whether it passed the check.
    #[inline(never)]
    pub(crate) fn take_closer(
        &mut self,
        frame: &mut Packet,
        is_plain: bool,
        number: usize,
        address: A,
    ) -> Option<PortId> {
        if !is_plain && !A::check_again(frame.data(), &self.scene.gate) {
            return None;
        }
        let way = match *self.kept.get(number)? {
            Way::UNKNOWN => self.ask(number, address)?,
            way => way,
        };
        if way.port == self.scene.not_by && A::ends(frame.data()).1 == address {
            return None;
        }
        plain::forward::<A>(frame, (way.head, way.tail), way.mtu).then_some(way.port)
    }

    /// Decides about an address.
    #[cold]
    fn ask(&mut self, number: usize, address: A) -> Option<Way> {
        let Scene { ports, router, worker, turn, .. } = self.scene;
        let mut is_single = true;
        let several = |_| {
            is_single = false;
            0
        };
        let decision = self.path.explain(turn, address, several).decision;
        // If the neighbor has just become known, packets may wait for it.
        if router.order().is_behind(worker) {
            return None;
        }
        let way = Way::new(&decision, ports).filter(|_| is_single);
        *self.kept.get_mut(number)? = way.unwrap_or(Way::NONE);
        self.asked.push(number);
        way
    }
}

impl<A: Forwarded> Ways<A> {
    fn new(path: PathReader<A>) -> Ways<A> {
        Ways { path, kept: Vec::new(), asked: Vec::new(), as_of: None }
    }

    /// The shortcut while so much has changed and there are so many numbers: what may hold no more is forgotten.
    #[inline]
    fn lane<'t>(&'t mut self, as_of: (u64, u32), numbers: usize, scene: Scene<'t>) -> Lane<'t, A> {
        if self.as_of != Some(as_of) {
            self.asked.drain(..).for_each(|number| self.kept[number] = Way::UNKNOWN);
            self.kept.resize(numbers, Way::UNKNOWN);
            self.as_of = Some(as_of);
        }
        Lane { kept: &mut self.kept, asked: &mut self.asked, path: &self.path, scene }
    }
}
