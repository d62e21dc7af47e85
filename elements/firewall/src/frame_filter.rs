//! The packet filter of a switch, which tests frames where LINK1 of Veb is set.
use super::file_size::FileSize;
use super::packet_filter::MOST_SWEPT;
use super::shared::{FilterParts, SharedFilter};
use super::worker::{WorkerFilter, link_header};
use super::{answers, ask, header_check, interfaces, ports, runs};
use artery_common::frame_filter::{
    FilterCommands, FilterContext, FilterPoint, FilterPort, FrameFilter, RulesMaker, SharedRules,
};
use artery_engine::{ArgError, Args, Batch, Context, DropReason, HandlerError, Packet, StartError};
use artery_filter::dissect::HookContext;
use artery_filter::engine::{PacketView, ParsedKey, Passed, ReplyDirection, ReplyPacket, ThroughVerdict};
use artery_filter::facts::{Direction, Interface, Tag};
use artery_filter::names::InterfaceRecord;
use artery_filter::states::StateId;
use artery_filter::syntax::FilterSite;
use artery_l2 as switch;
use artery_l2::quick::Target;
use artery_rcu::Domain;
use std::any::Any;
use std::io;
use std::sync::Arc;

/// The filter of a switch on one worker. Its first interfaces behind the loopback are the
/// switch and its ports.
pub(crate) struct SwitchFilter {
    pub(crate) half: WorkerFilter,
    /// The ingress result of the current frame, for its egress test.
    ingress: Came,
    /// Of the frames of a batch.
    keys: Vec<ParsedKey>,
    /// What was parsed of those that are exceptions, in their order.
    exceptions: Vec<PacketView>,
}

/// The ingress result of a frame.
#[derive(Clone, Copy, Default)]
struct Came {
    /// Its state, if that is what another is found by as it leaves.
    state: Option<StateId>,
    tag: Tag,
    /// What was parsed of it, unless the filter may have changed it.
    parsed: Option<ParsedFrame>,
}

/// What was parsed of a frame, which no later test parses again.
#[derive(Clone, Copy)]
struct ParsedFrame {
    /// Length of its link header.
    header: usize,
    packet: PacketView,
}

/// The views of the frames of a batch; to be asked for in their order.
struct BatchViews<'a> {
    keys: std::slice::Iter<'a, ParsedKey>,
    exceptions: std::slice::Iter<'a, PacketView>,
}

impl BatchViews<'_> {
    /// The view of the frame with this key. Exceptions that are not asked for are passed over.
    #[cold]
    fn view_of(&mut self, key: &ParsedKey) -> Option<PacketView> {
        if !key.is_exception() {
            return Some(key.view());
        }
        loop {
            let next = self.keys.next()?;
            let view = if next.is_exception() { self.exceptions.next() } else { None };
            if std::ptr::eq(next, key) {
                return view.copied();
            }
        }
    }
}

/// Bytes of a link header without tags.
const HEADER: usize = 14;

/// What a frame without tags carries.
#[inline(always)]
fn frame_payload(frame: &Packet) -> &[u8] {
    frame.data().get(HEADER..).unwrap_or_default()
}

/// Makes the rules of a switch's filter, which name the switch and its ports.
pub struct SwitchRules;

impl RulesMaker for SwitchRules {
    fn shared_rules(
        args: &mut Args<'_>,
        switch: &str,
        ports: &[FilterPort],
        devices: &[String],
    ) -> Result<Arc<dyn SharedRules>, ArgError> {
        if let Some(rules) = args.already_shared::<SharedFilter>() {
            return Ok(rules);
        }
        let rules = new_shared_filter(args, switch, ports, devices)?;
        Ok(args.shared_value(|| rules))
    }
}

impl SharedRules for SharedFilter {
    fn worker_filter(
        self: Arc<Self>,
        worker: usize,
        cx: &mut Context<'_>,
    ) -> Result<Box<dyn FrameFilter>, StartError> {
        let half = WorkerFilter::new(&self, worker).map_err(|error| {
            StartError::new(format!("cannot allocate memory for the packet filter's states: {error}"))
        })?;
        half.start_filter(cx);
        Ok(Box::new(SwitchFilter::new(half)))
    }
}

fn new_shared_filter(
    args: &mut Args<'_>,
    switch: &str,
    ports: &[FilterPort],
    devices: &[String],
) -> Result<SharedFilter, ArgError> {
    let ports = ports.iter().map(interfaces::port_record);
    let files = ["PF", "PFLOG", "PFETC", "PFLOG_MAX"];
    let place =
        ports::FilterEnvironment { site: FilterSite::Switch, devices: devices.to_vec(), router: None };
    ports::with_files(args, interface_records(switch, ports), files, place)
}

fn interface_records(switch: &str, ports: impl IntoIterator<Item = InterfaceRecord>) -> Vec<InterfaceRecord> {
    std::iter::once(interfaces::interface_record(switch, Vec::new())).chain(ports).collect()
}

/// A filter on one worker for a switch of another kind than Veb, with the rules of a file.
pub fn of_file(
    domain: &Arc<Domain>,
    switch: &str,
    names: &[String],
    file: &str,
) -> Result<Box<dyn FrameFilter>, String> {
    let of_ports = names.iter().map(|name| interfaces::interface_record(name, Vec::new()));
    let ports = interfaces::with_loopback(interface_records(switch, of_ports));
    let (log, logs, etc, devices) = (None, Arc::default(), None, Vec::new());
    let rules = SharedFilter::new(
        domain,
        ports,
        1,
        FilterParts {
            log,
            logs,
            longest_log: FileSize(0),
            etc,
            site: FilterSite::Switch,
            devices,
            router: None,
        },
    );
    ports::load_file(&rules, file)?;
    let half = WorkerFilter::new(&Arc::new(rules), 0);
    let half = half.map_err(|error| format!("cannot allocate memory for states: {error}"))?;
    Ok(Box::new(SwitchFilter::new(half)))
}

impl SwitchFilter {
    pub(crate) fn new(half: WorkerFilter) -> SwitchFilter {
        SwitchFilter { half, ingress: Came::default(), keys: Vec::new(), exceptions: Vec::new() }
    }

    fn hook_context(&self, passage: &FilterContext<'_>) -> HookContext {
        let number = match passage.point {
            FilterPoint::Switch => interfaces::FIRST,
            FilterPoint::Port(port) => interfaces::FIRST + 1 + port,
        };
        let direction = match passage.direction {
            switch::Direction::In => Direction::In,
            switch::Direction::Out => Direction::Out,
        };
        // A frame that the host sends by its vport is outbound there, and has no ingress.
        let is_out = direction == Direction::Out && passage.point != FilterPoint::Port(passage.from);
        let tag = passage.mark.and_then(|mark| self.half.active_rules().compiled.tags().find_tag(mark));
        let received_on = is_out.then_some(Interface(interfaces::FIRST + 1 + passage.from));
        HookContext {
            tag: tag.unwrap_or_default(),
            received_on,
            ..HookContext::new(Interface(number), direction)
        }
    }

    /// Parses the keys of untagged frames on ingress, and prefetches the memory of their
    /// states on both ports.
    fn parse_keys(&mut self, batch: &Batch) {
        let SwitchFilter { half: WorkerFilter { filter, .. }, keys, exceptions, .. } = self;
        keys.clear();
        exceptions.clear();
        keys.extend(batch.iter().map(|frame| {
            filter.parse_key_and_view(frame_payload(frame), Direction::In, |view| exceptions.push(view))
        }));
        filter.prefetch_states(keys);
    }

    /// The egress point, if frames from such an ingress may pass both tests on the fast path.
    fn fast_path_egress(&self, view: &switch::View, port: u16, to: u16) -> Option<HookContext> {
        let to = self.hook_context(&FilterContext::on_egress(view, port, to));
        // At a vport directions are those of the host, so frames can't pass both tests at once.
        (to.direction == Direction::Out && self.half.is_fast_path_at(to)).then_some(to)
    }

    /// Tests frames one by one, after prefetching the memory for all of them.
    #[inline]
    fn test_each(
        &mut self,
        batch: &mut Batch,
        view: &switch::View,
        (port, from, is_open): (u16, HookContext, bool),
        targets: &mut [Target],
        cx: &mut Context<'_>,
    ) {
        self.parse_keys(batch);
        let (keys, exceptions) = (std::mem::take(&mut self.keys), std::mem::take(&mut self.exceptions));
        let mut views = BatchViews { keys: keys.iter(), exceptions: exceptions.iter() };
        let (mut last, mut leaves) = (Target::EXCEPTION, None);
        for ((frame, key), target) in batch.iter_mut().zip(&keys).zip(targets) {
            let Some(to) = target.filtered_port() else { continue };
            if *target != last {
                last = *target;
                leaves = if is_open { self.fast_path_egress(view, port, to) } else { None };
            }
            let through = match leaves.filter(|_| header_check::has_good_checksum(frame_payload(frame))) {
                Some(to) => self.half.filter.pass_through(|| frame_payload(frame), key, (from, to)),
                None => ThroughVerdict::Unknown,
            };
            target.merge(self.apply_verdict(through, frame, view, (port, to), || views.view_of(key), cx));
        }
        (self.keys, self.exceptions) = (keys, exceptions);
    }

    /// Tests frames that come in runs of one flow: the result for the first applies to the others.
    #[inline(never)]
    fn test_runs(
        &mut self,
        batch: &mut Batch,
        view: &switch::View,
        (port, from): (u16, HookContext),
        targets: &mut [Target],
        cx: &mut Context<'_>,
    ) {
        let frames = batch.iter_mut().into_slice();
        let (mut next, mut last, mut leaves) = (0, Target::EXCEPTION, None);
        while let (Some(frame), Some(target)) = (frames.get_mut(next), targets.get_mut(next)) {
            next += 1;
            let Some(egress) = target.filtered_port() else { continue };
            if *target != last {
                last = *target;
                leaves = self.fast_path_egress(view, port, egress);
            }
            let filter = &mut self.half.filter;
            let to = leaves.filter(|_| header_check::has_good_checksum(frame_payload(frame)));
            let mut exception = None;
            let mut parse =
                |packet| filter.parse_keys_and_view(packet, Direction::In, |parsed| exception = Some(parsed));
            let key = to.map(|to| (parse(frame_payload(frame)), to));
            let through = match &key {
                Some((key, to)) => filter.pass_through(|| frame_payload(frame), key, (from, *to)),
                None => ThroughVerdict::Unknown,
            };
            if let (ThroughVerdict::Passed, Some((key, to))) = (through, &key) {
                let behind = frames[next..].iter().take(runs::run_length(&targets[next..], last));
                let sound =
                    behind.map(frame_payload).take_while(|packet| header_check::has_good_checksum(packet));
                next += filter.pass_run(sound, key, (from, *to));
            } else {
                let parsed = || exception.or_else(|| key.map(|(key, _)| key.view()));
                target.merge(self.apply_verdict(through, frame, view, (port, egress), parsed, cx));
            }
        }
    }

    /// What to add to the target of a frame, after the fast path passed it or left it to the rules.
    #[inline(always)]
    fn apply_verdict(
        &mut self,
        through: ThroughVerdict,
        frame: &mut Packet,
        view: &switch::View,
        (from, to): (u16, u16),
        parsed: impl FnOnce() -> Option<PacketView>,
        cx: &mut Context<'_>,
    ) -> Target {
        let untagged =
            |packet: Option<PacketView>| packet.map(|packet| ParsedFrame { header: HEADER, packet });
        match through {
            ThroughVerdict::Passed => Target::PASSED,
            ThroughVerdict::Unknown => self.test_both(frame, view, (from, to), untagged(parsed()), cx),
            ThroughVerdict::Entered(Passed { state, tag, .. }) => {
                self.ingress = Came { state, tag, parsed: untagged(parsed()) };
                self.test_out(frame, view, (from, to), cx)
            }
        }
    }

    /// Tests a frame that was parsed on ingress, and if it passes, on egress.
    fn test_both(
        &mut self,
        frame: &mut Packet,
        view: &switch::View,
        (from, to): (u16, u16),
        parsed: Option<ParsedFrame>,
        cx: &mut Context<'_>,
    ) -> Target {
        self.ingress = Came { parsed, ..Came::default() };
        if view.is_filtered_at(from)
            && !self.test_parsed(frame, &FilterContext::on_ingress(view, from), parsed, cx)
        {
            return Target::BLOCKED_IN;
        }
        if view.is_filtered_at(to) { self.test_out(frame, view, (from, to), cx) } else { Target::PASSED }
    }

    /// Tests a frame on egress that has passed on ingress.
    fn test_out(
        &mut self,
        frame: &mut Packet,
        view: &switch::View,
        (from, to): (u16, u16),
        cx: &mut Context<'_>,
    ) -> Target {
        let passage = FilterContext::on_egress(view, from, to);
        let passes = self.test_parsed(frame, &passage, self.ingress.parsed, cx);
        if passes { Target::PASSED } else { Target::BLOCKED_OUT }
    }

    /// Tests a frame, of which this was parsed before.
    fn test_parsed(
        &mut self,
        frame: &mut Packet,
        passage: &FilterContext<'_>,
        parsed: Option<ParsedFrame>,
        cx: &mut Context<'_>,
    ) -> bool {
        let known = parsed.map(|parsed| parsed.header);
        let Some(header) = known.or_else(|| link_header(frame.data())) else {
            self.ingress = Came::default();
            return true;
        };
        if !passage.was_filtered_in
            && let Some(fault) = header_check::header_fault(frame.data().get(header..).unwrap_or_default())
        {
            self.half.filter.count_refused(fault);
            return false;
        }
        let (mut at, is_in) = (self.hook_context(passage), passage.direction == switch::Direction::In);
        let came = if passage.was_filtered_in { self.ingress } else { Came::default() };
        if at.tag == Tag(0) {
            at.tag = came.tag;
        }
        at.has_partial_checksum = frame.needs_checksum();
        let mut packet = parsed.map(|parsed| parsed.packet);
        let state = came.state.filter(|_| !is_in);
        let tested = self.half.test_frame(frame, header, (at, state), &mut packet, cx);
        if self.half.has_news() {
            let answers = self.half.handle_events(cx);
            answers.iter().for_each(|answer| self.send_reply(answer, frame.data(), header, passage, cx));
        }
        if let (true, Ok(passed)) = (passage.point == FilterPoint::Port(passage.from), &tested) {
            let parsed = packet.map(|packet| ParsedFrame { header, packet });
            self.ingress = Came { state: passed.state.filter(|_| is_in), tag: passed.tag, parsed };
        }
        tested.is_ok()
    }

    /// Sends the packets of the filter itself. On ingress there is none for the receiver, whose port the
    /// switch does not know yet.
    fn send_reply(
        &self,
        answer: &ReplyPacket,
        frame: &[u8],
        header: usize,
        passage: &FilterContext<'_>,
        cx: &mut Context<'_>,
    ) {
        let port = match (answer.towards, passage.point) {
            (ReplyDirection::Sender, _) => Some(passage.from),
            (ReplyDirection::Receiver, FilterPoint::Port(port)) if port != passage.from => Some(port),
            _ => None,
        };
        let mut made = port.zip(answers::reply_frame(answer, frame, header));
        if let (Some((port, bytes)), true) = (&mut made, header > HEADER)
            && *port != passage.from
        {
            // The filter tests the frame on egress without the tags of its ingress.
            bytes.drain(HEADER - 2..header - 2);
        }
        let packet = made.and_then(|(port, bytes)| Some((port, cx.pool().packet_from(&bytes)?)));
        match packet {
            Some((port, packet)) => cx.send_or_discard(port.into(), packet, DropReason::NoOutput),
            None => cx.count_discarded(DropReason::NoOutput, 1),
        }
    }
}

impl FrameFilter for SwitchFilter {
    fn is_idle(&self) -> bool {
        self.half.is_idle()
    }

    fn begin_batch(&mut self, cx: &mut Context<'_>) {
        self.half.begin_batch(cx);
    }

    fn needs_offloads_applied(&self) -> bool {
        self.half.may_change()
    }

    fn test_frame(&mut self, frame: &mut Packet, passage: &FilterContext<'_>, cx: &mut Context<'_>) -> bool {
        let parsed = self.ingress.parsed.filter(|_| passage.was_filtered_in);
        self.test_parsed(frame, passage, parsed, cx)
    }

    fn test_batch(
        &mut self,
        batch: &mut Batch,
        view: &switch::View,
        port: u16,
        targets: &mut [Target],
        cx: &mut Context<'_>,
    ) {
        let from = self.hook_context(&FilterContext::on_ingress(view, port));
        // Whether frames are tested on all ports, so that the fast path may apply.
        let is_open = view.has_filter() && from.direction == Direction::In && self.half.is_fast_path_at(from);
        match is_open && runs::seem_to_come(batch, frame_payload) {
            true => self.test_runs(batch, view, (port, from), targets, cx),
            false => self.test_each(batch, view, (port, from, is_open), targets, cx),
        }
        self.half.filter.end_batch();
    }

    fn expire_idle(&mut self, cx: &mut Context<'_>) {
        self.half.begin_batch(cx);
        self.half.purge_expired(MOST_SWEPT);
    }

    fn restore_from(&mut self, old: &mut dyn FrameFilter, keeps_rules: bool, cx: &mut Context<'_>) {
        if let Some(old) = old.as_any().downcast_mut::<SwitchFilter>() {
            self.half.inherit_from(&mut old.half, keeps_rules, cx);
        }
    }

    fn commands(&mut self) -> Option<&mut dyn FilterCommands> {
        Some(self)
    }

    fn as_any(&mut self) -> &mut dyn Any {
        self
    }
}

impl FilterCommands for SwitchFilter {
    fn load_rules(&mut self, text: &str, cx: &mut Context<'_>) -> Result<(), HandlerError> {
        self.half.load_rules(text, cx)
    }
    fn query_worker(&mut self, text: &str, cx: &mut Context<'_>) -> Result<String, HandlerError> {
        self.half.query_worker(text, cx)
    }
    fn query_shared(&mut self, text: &str, cx: &mut Context<'_>) -> Result<String, HandlerError> {
        ask::query_shared(self.half.shared(), text, cx)
    }
    fn follow_addresses(&mut self) -> io::Result<bool> {
        self.half.shared().follow_addresses()
    }
}
