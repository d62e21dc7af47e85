//! A packet filter on one worker: its states, and the packets of a batch on their way through it.
use super::errands::Errand;
use super::routes::{AskedRoutes, RouterRoutes};
use super::shared::{Ruling, SharedFilter};
use artery_engine::Context;
use artery_filter::dissect::{At, Reason};
use artery_filter::engine::{Answer, Event, Filter, Look, Part, Passed, Random, Rules, Verdict};
use artery_filter::fragments::Joined;
use artery_filter::states::StateId;
use artery_packet::{Misfit, Packet, SegmentKind, Segments, Unfinished};
use artery_wire::{EtherType, Ethernet};
use std::sync::Arc;

/// A filter's half that belongs to a worker.
pub(crate) struct WorkerFilter {
    shared: Arc<SharedFilter>,
    current: Arc<Ruling>,
    pub(super) filter: Filter,
    worker: usize,
    /// What rules ask of routes, if there is a router.
    routes: Option<RouterRoutes>,
    /// The router's changes up to which the rules follow its routes.
    changes: u64,
}

impl WorkerFilter {
    /// The half of a worker, without states.
    pub(crate) fn new(shared: &Arc<SharedFilter>, worker: usize) -> std::io::Result<WorkerFilter> {
        let current = shared.ruling_now();
        let filter = Filter::new(current.settings.clone(), &current.compiled, worker, Random::system())?;
        shared.count_by(worker, filter.counters());
        Ok(WorkerFilter { shared: shared.clone(), current, filter, worker, routes: None, changes: 0 })
    }

    /// The same with a router whose routes rules may ask for.
    pub(super) fn with_routes(self, routes: Option<RouterRoutes>) -> WorkerFilter {
        WorkerFilter { routes, ..self }
    }

    /// The router around which it is, if it knows one.
    pub(super) fn routes(&self) -> Option<&RouterRoutes> {
        self.routes.as_ref()
    }

    /// Makes the rules of all workers follow the router's routes, if these may have changed.
    pub(super) fn follow_routes(&mut self) {
        let Some(routes) = self.routes.as_ref().filter(|_| self.worker == 0) else { return };
        let changes = routes.changes();
        if changes != self.changes {
            self.shared.follow_routes();
            // Looking at the tables is counted as a change.
            self.changes = changes + 1;
        }
    }

    /// Notes that packets will come from now on.
    pub(crate) fn start(&self, cx: &mut Context<'_>) {
        self.shared.begin(cx.now().since_epoch());
    }

    /// Begins a batch: the time, and the rules that hold now.
    #[inline]
    pub(crate) fn begin(&mut self, cx: &mut Context<'_>) {
        let now = cx.now().since_epoch();
        self.filter.begin(now);
        let latest = self.shared.ruling().read(cx.turn());
        if !Arc::ptr_eq(latest, &self.current) {
            let latest = latest.clone();
            self.filter.tell_tables(&self.current.compiled);
            self.adopt(latest, cx);
        }
    }

    /// Goes by other rules. States stay; where there is no memory for a higher limit of them, which control tried before, that
    /// stays, too, until rules are loaded again.
    fn adopt(&mut self, latest: Arc<Ruling>, cx: &mut Context<'_>) {
        let loaded = self.filter.load(latest.settings.clone(), &self.current.compiled, &latest.compiled);
        self.shared.count_by(self.worker, self.filter.counters());
        self.current = latest;
        if let Err(stays) = loaded {
            let name = cx.name().to_string();
            cx.say(&format!(
                "{name}: worker {}: {stays}; load the rules again when there is memory",
                self.worker
            ));
        }
    }

    /// What holds now.
    pub(crate) fn ruling(&self) -> &Ruling {
        &self.current
    }

    /// Its states, and what holds now.
    pub(super) fn filter_and_ruling(&mut self) -> (&mut Filter, &Ruling) {
        (&mut self.filter, &self.current)
    }

    /// Whether everything passes and nothing else is done.
    pub(crate) fn is_idle(&self) -> bool {
        let is_empty = self.current.compiled.rules().is_empty() && !self.filter.has_states();
        is_empty || !self.current.settings.is_enabled
    }

    /// Whether packets may be changed in more than their passing, by rules or for states that outlived theirs.
    #[inline]
    pub(crate) fn may_change(&self) -> bool {
        self.current.may_change || self.filter.changes_packets()
    }

    /// The rules that all copies share.
    pub(crate) fn shared(&self) -> &Arc<SharedFilter> {
        &self.shared
    }

    /// See [`Filter::look`].
    #[inline]
    pub(crate) fn look(&self, packet: &[u8], at: At, came: Option<StateId>) -> Look {
        self.filter.look(packet, at, came)
    }

    /// See [`Filter::approach`].
    #[inline]
    pub(crate) fn approach(&self, look: &mut Look) {
        self.filter.approach(look);
    }

    /// Says what becomes of a packet that begins with its header of IP, and changes it.
    #[inline]
    pub(crate) fn test(&mut self, packet: &mut [u8], look: &Look, cx: &Context<'_>) -> Verdict {
        let routes = AskedRoutes { router: self.routes.as_ref(), turn: cx.turn() };
        let rules = Rules {
            compiled: &self.current.compiled,
            turn: cx.turn(),
            routes: &routes,
            names: &*self.current,
        };
        self.filter.test(packet, look, &rules)
    }

    /// See [`Filter::is_plain_at`].
    #[inline]
    pub(crate) fn is_plain_at(&self, at: At) -> bool {
        self.filter.is_plain_at(at, &self.current.compiled)
    }

    /// The same for a frame with one packet of IP, whose link header is so long; nothing else is tested.
    pub(crate) fn test_frame(
        &mut self,
        frame: &mut Packet,
        header: usize,
        at: At,
        came: Option<StateId>,
        cx: &mut Context<'_>,
    ) -> Result<Passed, Option<Reason>> {
        let Some(packet) = frame.data_mut().get_mut(header..) else { return Err(Some(Reason::Short)) };
        let mut look = self.look(packet, at, came);
        self.approach(&mut look);
        match self.test(packet, &look, cx) {
            Verdict::Pass(passed) => Ok(passed),
            Verdict::Drop(reason) => Err(Some(reason)),
            Verdict::Kept => Err(None),
            Verdict::Assembled => self.test_assembled(frame, header, at, cx),
        }
    }

    /// Tests a packet that fragments made, in the frame of the last of them.
    pub(super) fn test_assembled(
        &mut self,
        frame: &mut Packet,
        header: usize,
        at: At,
        cx: &mut Context<'_>,
    ) -> Result<Passed, Option<Reason>> {
        let Some(joined) = self.filter.take_assembled() else { return Err(None) };
        let mut whole = frame.data().get(..header).unwrap_or_default().to_vec();
        whole.extend(&joined.bytes);
        let Ok(()) = frame.set_data(&whole) else { return Err(Some(Reason::Memory)) };
        leave_fragments(frame, header, &joined).map_err(|Misfit| Some(Reason::Fragment))?;
        self.test_frame(frame, header, at, None, cx)
    }

    /// Whether there is something to be told or sent.
    #[inline]
    pub(crate) fn has_news(&self) -> bool {
        self.filter.has_news()
    }

    /// What the filter sends itself since this was last asked; what others should know is told them, and logged.
    pub(crate) fn news(&mut self, cx: &mut Context<'_>) -> Vec<Answer> {
        if !self.filter.has_news() {
            return Vec::new();
        }
        let now = cx.now().since_epoch();
        for event in self.filter.take_events() {
            match (event, self.shared.log()) {
                (Event::Log(record), Some(log)) => log.log(self.worker, record, now),
                (Event::Log(_), None) => (),
                (Event::Overload { address, anchor, table, .. }, _) => {
                    // A source that finds no room will go too far again.
                    self.shared.send(Errand::Overload { address, anchor, table, now });
                }
            }
        }
        self.filter.take_answers()
    }

    /// Says what this worker has counted up to now.
    pub(super) fn tell_counts(&mut self) {
        self.filter.tell_tables(&self.current.compiled);
        self.shared.note_counted(self.worker, self.filter.counted());
    }

    /// Takes the place of a filter: has its states, and its rules where `keeps_rules`; otherwise its own, as if they had been
    /// loaded there. Where ports are others, states stay that are bound to none of those that are gone.
    pub(crate) fn take_over(&mut self, old: &mut WorkerFilter, keeps_rules: bool, cx: &mut Context<'_>) {
        let now = cx.now().since_epoch();
        if let Err(why) = self.shared.inherit(&old.shared, keeps_rules, now) {
            let name = cx.name().to_string();
            cx.say(&format!(
                "{name}: tables have only what the rules say, and anchors what these load: {why}"
            ));
        }
        let has_same_ports = self.current.names_the_same(&old.current);
        if has_same_ports {
            std::mem::swap(&mut self.filter, &mut old.filter);
            self.current = old.current.clone();
        }
        // States may have overloads of rules that are gone. Without a thread they are lost, and nothing else.
        let _ = self.shared.begin_errands();
        // What the states were made by is not what holds now, or counts in another place.
        let latest = self.shared.ruling_now();
        self.adopt(latest, cx);
        if !has_same_ports {
            old.filter.begin(now);
            self.filter.begin(now);
            self.take_states(old);
        }
    }

    /// Takes copies of the states of a filter that numbers ports in another way.
    fn take_states(&mut self, old: &WorkerFilter) {
        let mut records = Vec::new();
        old.filter.dump(Part::ALL, &*old.current, &old.current.compiled, &mut records);
        let number = |name: &str| self.current.interfaces.number(name);
        // They can be read: they were written here.
        let _ = self.filter.restore(&records, false, number, &self.current.compiled);
    }

    /// Ends states that are over, so many at most.
    pub(crate) fn maintain(&mut self, most: usize) {
        self.filter.maintain(most);
    }
}

/// Notes on a packet that fragments made that it is to be cut again into such where it leaves: what a link carried before
/// may be too long for the next, and neither a switch nor a router of IPv6 may send less than was sent to it.
fn leave_fragments(frame: &mut Packet, header: usize, joined: &Joined) -> Result<(), Misfit> {
    if joined.bytes.len() <= joined.longest.into() {
        return Ok(());
    }
    let place = |offset: usize| isize::try_from(offset).map_err(|_| Misfit);
    let is_v6 = joined.bytes.first().is_some_and(|first| first >> 4 == 6);
    let kind = if is_v6 { SegmentKind::Fragments6 { id: joined.id } } else { SegmentKind::Fragments4 };
    let segments = Some(Segments { network: place(header)?, kind, size: joined.longest });
    let transport = place(header + usize::from(joined.headers))?;
    frame.set_unfinished(Unfinished { transport, checksum: 0, segments })
}

/// Length of the link header of a frame of IPv4 or IPv6, tags among it; None where it holds something else.
#[inline]
pub(crate) fn link_header(frame: &[u8]) -> Option<usize> {
    let ethernet = Ethernet::new(frame).ok()?;
    let is_ip = matches!(ethernet.payload_type(), EtherType::IPV4 | EtherType::IPV6);
    is_ip.then(|| frame.len() - ethernet.payload().len())
}
