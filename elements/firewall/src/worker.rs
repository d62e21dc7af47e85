//! A packet filter on one worker: its states, and tests of the packets in a batch.
use super::control_tasks::ControlTask;
use super::exports::StateExports;
use super::routes::{RouterRoutes, TurnRoutes};
use super::shared::{ActiveRules, SharedFilter};
use artery_engine::Context;
use artery_filter::dissect::{FilterDropReason, HookContext};
use artery_filter::engine::{
    Filter, FilterEvent, FilterExplanation, FilterVerdict, PacketLookup, PacketView, Passed, Random,
    ReplyPacket, Rules, StateRange,
};
use artery_filter::fragments::ReassembledPacket;
use artery_filter::states::StateId;
use artery_packet::{InvalidOffload, Packet, PacketOffload, SegmentKind, Segments};
use artery_wire::{EtherType, Ethernet};
use std::sync::Arc;
use std::time::Duration;

/// A filter's half that belongs to a worker.
pub(crate) struct WorkerFilter {
    shared: Arc<SharedFilter>,
    current: Arc<ActiveRules>,
    pub(super) filter: Filter,
    worker: usize,
    /// Routes for rules, if there is a router.
    routes: Option<RouterRoutes>,
    /// What is exported of its states, if it can be.
    exports: Option<StateExports>,
    /// The router's changes up to which the rules follow its routes.
    changes: u64,
}

impl WorkerFilter {
    /// The half of a worker, without states.
    pub(crate) fn new(shared: &Arc<SharedFilter>, worker: usize) -> std::io::Result<WorkerFilter> {
        let current = shared.active_rules_now();
        let filter =
            Filter::new(current.settings.clone(), &current.compiled, worker, Random::from_entropy())?;
        shared.count_by(worker, filter.counters());
        Ok(WorkerFilter {
            shared: shared.clone(),
            current,
            filter,
            worker,
            routes: None,
            exports: None,
            changes: 0,
        })
    }

    /// The same with a router whose routes rules may use.
    pub(super) fn with_routes(self, routes: Option<RouterRoutes>) -> WorkerFilter {
        WorkerFilter { routes, ..self }
    }

    /// The same with states that are exported.
    pub(super) fn with_exports(self, exports: StateExports) -> WorkerFilter {
        WorkerFilter { exports: Some(exports), ..self }
    }

    /// The router that it is around, if given.
    pub(super) fn routes(&self) -> Option<&RouterRoutes> {
        self.routes.as_ref()
    }

    /// Updates the rules of all workers after a change of the router's routes.
    pub(super) fn follow_routes(&mut self) {
        let Some(routes) = self.routes.as_ref().filter(|_| self.worker == 0) else { return };
        let changes = routes.changes();
        if changes != self.changes {
            self.shared.follow_routes();
            // Looking at the tables is counted as a change.
            self.changes = changes + 1;
        }
    }

    /// Records that packets are filtered from now on.
    pub(crate) fn start_filter(&self, cx: &mut Context<'_>) {
        self.shared.start_counting(cx.now().since_epoch());
    }

    /// Starts a batch: sets the time and the current rules.
    #[inline]
    pub(crate) fn begin_batch(&mut self, cx: &mut Context<'_>) {
        let now = cx.now().since_epoch();
        self.filter.begin_batch(now);
        let latest = self.shared.active_rules().read(cx.turn());
        if !Arc::ptr_eq(latest, &self.current) {
            let latest = latest.clone();
            self.filter.flush_table_counters(&self.current.compiled);
            self.adopt_rules(latest, cx);
        }
    }

    /// Switches to other rules. States stay. Where memory for a higher limit of states is lacking, although
    /// control found some, the old limit stays until rules are loaded again.
    fn adopt_rules(&mut self, latest: Arc<ActiveRules>, cx: &mut Context<'_>) {
        let loaded =
            self.filter.load_rules(latest.settings.clone(), &self.current.compiled, &latest.compiled);
        self.shared.count_by(self.worker, self.filter.counters());
        self.current = latest;
        if let Err(stays) = loaded {
            let name = cx.name().to_string();
            cx.print_message(&format!(
                "{name}: worker {}: {stays}; load the rules again when there is memory",
                self.worker
            ));
        }
    }

    pub(crate) fn active_rules(&self) -> &ActiveRules {
        &self.current
    }

    /// Its states, and the current rules.
    pub(super) fn filter_and_ruling(&mut self) -> (&mut Filter, &ActiveRules) {
        (&mut self.filter, &self.current)
    }

    /// Whether all packets pass and the filter has no other effect.
    pub(crate) fn is_idle(&self) -> bool {
        let is_empty = self.current.compiled.rules().is_empty() && !self.filter.has_states();
        is_empty || !self.current.settings.is_enabled
    }

    /// Whether packets may be changed in more than their passing, by rules or for
    /// states that outlived theirs.
    #[inline]
    pub(crate) fn may_change(&self) -> bool {
        self.current.may_change || self.filter.changes_packets()
    }

    /// The rules that all copies share.
    pub(crate) fn shared(&self) -> &Arc<SharedFilter> {
        &self.shared
    }

    /// The filter, asked with the current rules.
    #[inline(always)]
    fn with_rules<T>(&mut self, cx: &Context<'_>, ask: impl FnOnce(&mut Filter, &Rules<'_, '_>) -> T) -> T {
        let routes = TurnRoutes { router: self.routes.as_ref(), turn: cx.turn() };
        let rules = Rules {
            compiled: &self.current.compiled,
            turn: cx.turn(),
            routes: &routes,
            names: &*self.current,
        };
        ask(&mut self.filter, &rules)
    }

    /// Tests a packet that begins with its IP header, and changes it.
    #[inline]
    fn test_packet(&mut self, packet: &mut [u8], look: &mut PacketLookup, cx: &Context<'_>) -> FilterVerdict {
        self.with_rules(cx, |filter, rules| filter.test_packet(packet, look, rules))
    }

    /// See [`Filter::explain_packet`], which this calls with the current rules.
    pub(super) fn explain_packet(
        &mut self,
        packet: &mut [u8],
        at: HookContext,
        cx: &Context<'_>,
    ) -> FilterExplanation {
        self.with_rules(cx, |filter, rules| filter.explain_packet(packet, at, rules))
    }

    /// See [`Filter::is_fast_path_at`], with the current rules.
    #[inline]
    pub(crate) fn is_fast_path_at(&self, at: HookContext) -> bool {
        self.filter.is_fast_path_at(at, &self.current.compiled)
    }

    /// The same for a frame with one IP packet behind a link header of this length. What was parsed of the
    /// packet before is taken from `view`; what is right for its next test is left there.
    pub(crate) fn test_frame(
        &mut self,
        frame: &mut Packet,
        header: usize,
        (at, came): (HookContext, Option<StateId>),
        view: &mut Option<PacketView>,
        cx: &mut Context<'_>,
    ) -> Result<Passed, Option<FilterDropReason>> {
        let Some(packet) = frame.data_mut().get_mut(header..) else {
            return Err(Some(FilterDropReason::Short));
        };
        let parsed = view.take().unwrap_or_else(|| PacketView::parse(packet));
        let mut look = self.filter.prepare_parsed(parsed, at, came);
        self.filter.prefetch_state(&mut look);
        match self.test_packet(packet, &mut look, cx) {
            FilterVerdict::Pass(passed) => {
                *view = Some(look.view()).filter(|_| !self.may_change());
                Ok(passed)
            }
            FilterVerdict::Drop(reason) => Err(Some(reason)),
            FilterVerdict::Kept => Err(None),
            FilterVerdict::Assembled => self.test_assembled(frame, header, at, cx),
        }
    }

    /// Tests a packet reassembled from fragments, in the frame of the last of them.
    pub(super) fn test_assembled(
        &mut self,
        frame: &mut Packet,
        header: usize,
        at: HookContext,
        cx: &mut Context<'_>,
    ) -> Result<Passed, Option<FilterDropReason>> {
        let Some(joined) = self.filter.pop_assembled() else { return Err(None) };
        let mut whole = frame.data().get(..header).unwrap_or_default().to_vec();
        whole.extend(&joined.bytes);
        let Ok(()) = frame.set_data(&whole) else { return Err(Some(FilterDropReason::Memory)) };
        leave_fragments(frame, header, &joined).map_err(|InvalidOffload| Some(FilterDropReason::Fragment))?;
        self.test_frame(frame, header, (at, None), &mut None, cx)
    }

    /// Whether there are events to log or packets to send.
    #[inline]
    pub(crate) fn has_news(&self) -> bool {
        self.filter.has_news()
    }

    /// Handles the events since the last call: logs packets and queues control tasks. Returns the packets
    /// that the filter sends itself.
    pub(crate) fn handle_events(&mut self, cx: &mut Context<'_>) -> Vec<ReplyPacket> {
        if !self.filter.has_news() {
            return Vec::new();
        }
        let now = cx.now().since_epoch();
        for event in self.filter.drain_events() {
            match (event, self.shared.log_file()) {
                (FilterEvent::Log(record), Some(log)) => log.enqueue_record(self.worker, record, now),
                (FilterEvent::Log(_), None) => (),
                (FilterEvent::Overload { address, anchor, table, .. }, _) => {
                    // A source without room in the queue will exceed its limit again.
                    self.shared.send_task(ControlTask::Overload { address, anchor, table, now });
                }
            }
        }
        self.filter.drain_replies()
    }

    /// Reports what this worker has counted up to now.
    pub(super) fn report_counts(&mut self) {
        self.filter.flush_table_counters(&self.current.compiled);
        self.shared.store_counters(self.worker, self.filter.collect_counters());
    }

    /// Replaces a filter: inherits its states, and its rules where `keeps_rules`; otherwise uses its own, as
    /// if they had been loaded there. If ports differ, states stay unless they are bound to a removed port.
    pub(crate) fn inherit_from(&mut self, old: &mut WorkerFilter, keeps_rules: bool, cx: &mut Context<'_>) {
        let now = cx.now().since_epoch();
        if let Err(why) = self.shared.inherit_rules(&old.shared, keeps_rules, now) {
            let name = cx.name().to_string();
            cx.print_message(&format!(
                "{name}: tables have only what the rules say, and anchors what these load: {why}"
            ));
        }
        let has_same_ports = self.current.names_the_same(&old.current);
        if has_same_ports {
            std::mem::swap(&mut self.filter, &mut old.filter);
            self.current = old.current.clone();
        }
        // States may overload tables for rules that are gone. Without the thread only these entries are lost.
        let _ = self.shared.start_control_tasks();
        // The states' rules may differ from the current ones, or have other counters.
        let latest = self.shared.active_rules_now();
        self.adopt_rules(latest, cx);
        if !has_same_ports {
            old.filter.begin_batch(now);
            self.filter.begin_batch(now);
            self.export_states(now);
            old.export_states(now);
            self.copy_states(old);
        }
    }

    /// Copies the states of a filter that numbers ports differently.
    fn copy_states(&mut self, old: &WorkerFilter) {
        let mut records = Vec::new();
        old.filter.dump_states(StateRange::ALL, &*old.current, &old.current.compiled, &mut records);
        let number = |name: &str| self.current.interfaces.find_interface(name);
        // They can be read: they were written here.
        let _ = self.filter.restore_states(&records, false, number, &self.current.compiled);
    }

    /// Removes expired states, at most so many.
    pub(crate) fn purge_expired(&mut self, most: usize) {
        self.filter.purge_expired(most);
    }

    /// Hands over what is to be exported of states.
    pub(super) fn export_states(&mut self, now: Duration) {
        if let Some(exports) = &mut self.exports {
            exports.export(&mut self.filter, now);
        }
    }
}

/// Marks a reassembled packet to be fragmented again where it leaves: the MTU of the next link may be
/// smaller, and neither a switch nor an IPv6 router may send less than it received.
fn leave_fragments(
    frame: &mut Packet,
    header: usize,
    joined: &ReassembledPacket,
) -> Result<(), InvalidOffload> {
    if joined.bytes.len() <= joined.longest.into() {
        return Ok(());
    }
    let place = |offset: usize| isize::try_from(offset).map_err(|_| InvalidOffload);
    let is_v6 = joined.bytes.first().is_some_and(|first| first >> 4 == 6);
    let kind = if is_v6 { SegmentKind::Fragments6 { id: joined.id } } else { SegmentKind::Fragments4 };
    let segments = Some(Segments { network: place(header)?, kind, size: joined.longest });
    let transport = place(header + usize::from(joined.headers))?;
    frame.set_offload(PacketOffload { transport, checksum: 0, segments })
}

/// Length of the link header of an IPv4 or IPv6 frame, with its tags; None for other frames.
#[inline]
pub(crate) fn link_header(frame: &[u8]) -> Option<usize> {
    let ethernet = Ethernet::new(frame).ok()?;
    let is_ip = matches!(ethernet.payload_type(), EtherType::IPV4 | EtherType::IPV6);
    is_ip.then(|| frame.len() - ethernet.payload().len())
}
