//! A packet filter in the path of a switch: what LINK1 of Veb asks.
use super::file_size::FileSize;
use super::packet_filter::MOST_SWEPT;
use super::shared::{Around, SharedFilter};
use super::worker::{WorkerFilter, link_header};
use super::{answers, header_check, ports, runs};
use crate::switch::filter::{BLOCKED_OUT, FrameFilter, NO_WAY, Passage, Spot};
use artery_engine::{ArgError, Args, Batch, Context, DropReason, Packet};
use artery_filter::dissect::At;
use artery_filter::engine::{Answer, Glance, Passed, Through, Towards};
use artery_filter::facts::{Direction, Interface, Tag};
use artery_filter::names::InterfaceRecord;
use artery_filter::states::StateId;
use artery_filter::syntax::Site;
use artery_rcu::Domain;
use artery_table::switch;
use std::any::Any;
use std::sync::Arc;

/// The filter of a switch on one worker. Its first interfaces behind the loopback are the switch and its ports.
pub(crate) struct SwitchFilter {
    pub(crate) half: WorkerFilter,
    /// What the frame that came in last goes on with.
    came: Came,
    /// Of the frames of a batch.
    glances: Vec<Glance>,
}

/// What a frame that came in goes on with.
#[derive(Clone, Copy, Default)]
struct Came {
    /// Its state, if that is what another is found by as it leaves.
    state: Option<StateId>,
    tag: Tag,
}

/// Bytes of a link header without tags.
const HEADER: usize = 14;

/// What a frame without tags carries.
#[inline(always)]
fn packet(frame: &Packet) -> &[u8] {
    frame.data().get(HEADER..).unwrap_or_default()
}

/// The rules of a switch's filter, which name the switch and its ports.
pub(crate) fn shared(
    args: &mut Args<'_>,
    switch: &str,
    ports: Vec<InterfaceRecord>,
    devices: &[String],
) -> Result<SharedFilter, ArgError> {
    let files = ["PF", "PFLOG", "PFETC", "PFLOG_MAX"];
    let place = ports::Place { site: Site::Switch, devices: devices.to_vec(), router: None };
    ports::with_files(args, records(switch, ports), files, place)
}

fn records(switch: &str, ports: impl IntoIterator<Item = InterfaceRecord>) -> Vec<InterfaceRecord> {
    std::iter::once(ports::record(switch, Vec::new())).chain(ports).collect()
}

/// A filter on one worker for a switch of another kind than Veb, with the rules of a file.
pub fn of_file(
    domain: &Arc<Domain>,
    switch: &str,
    names: &[String],
    file: &str,
) -> Result<Box<dyn FrameFilter>, String> {
    let of_ports = names.iter().map(|name| ports::record(name, Vec::new()));
    let ports = ports::with_loopback(records(switch, of_ports));
    let (log, logs, etc, devices) = (None, Arc::default(), None, Vec::new());
    let rules = SharedFilter::new(
        domain,
        ports,
        1,
        Around { log, logs, longest_log: FileSize(0), etc, site: Site::Switch, devices, router: None },
    );
    ports::load_file(&rules, file)?;
    let half = WorkerFilter::new(&Arc::new(rules), 0);
    let half = half.map_err(|error| format!("there is no memory for states: {error}"))?;
    Ok(Box::new(SwitchFilter::new(half)))
}

impl SwitchFilter {
    pub(crate) fn new(half: WorkerFilter) -> SwitchFilter {
        SwitchFilter { half, came: Came::default(), glances: Vec::new() }
    }

    fn at(&self, passage: &Passage<'_>) -> At {
        let number = match passage.spot {
            Spot::Switch => ports::FIRST,
            Spot::Port(port) => ports::FIRST + 1 + port,
        };
        let direction = match passage.direction {
            switch::Direction::In => Direction::In,
            switch::Direction::Out => Direction::Out,
        };
        // What a host sends by its own door goes out there as well, and came by none.
        let is_out = direction == Direction::Out && passage.spot != Spot::Port(passage.from);
        let tag = passage.mark.and_then(|mark| self.half.ruling().compiled.tags().find(mark));
        let received_on = is_out.then_some(Interface(ports::FIRST + 1 + passage.from));
        At { tag: tag.unwrap_or_default(), received_on, ..At::new(Interface(number), direction) }
    }

    /// Looks at frames without tags where they come in, and asks for the memory of their states: those of both ports.
    fn look(&mut self, batch: &Batch) {
        let SwitchFilter { half: WorkerFilter { filter, .. }, glances, .. } = self;
        glances.clear();
        glances.extend(batch.iter().map(|frame| filter.glance(packet(frame), Direction::In)));
        filter.approach_all(glances);
    }

    /// Where frames leave by a port to which they may go the quick way, from an interface where that may be gone.
    fn goes_quickly(&self, view: &switch::View, port: u16, to: u16) -> Option<At> {
        let to = self.at(&Passage::leaving(view, port, to));
        // At a host's own door directions are those of the host: nothing goes through at once.
        (to.direction == Direction::Out && self.half.is_plain_at(to)).then_some(to)
    }

    /// Tests frames, for all of which memory is asked for first.
    #[inline]
    fn test_each(
        &mut self,
        batch: &mut Batch,
        view: &switch::View,
        (port, from, is_open): (u16, At, bool),
        ways: &mut [u16],
        cx: &mut Context<'_>,
    ) {
        self.look(batch);
        let glances = std::mem::take(&mut self.glances);
        let (mut last, mut leaves) = (NO_WAY, None);
        let each = batch.iter_mut().zip(&glances).zip(ways).filter(|(_, way)| **way < NO_WAY);
        for ((frame, glance), way) in each {
            if *way != last {
                last = *way;
                leaves = if is_open { self.goes_quickly(view, port, last) } else { None };
            }
            let through = match leaves.filter(|_| header_check::has_good_checksum(packet(frame))) {
                Some(to) => self.half.filter.pass_through(|| packet(frame), glance, (from, to)),
                None => Through::Unknown,
            };
            *way |= self.judge(through, frame, view, (port, last), cx);
        }
        self.glances = glances;
    }

    /// Tests frames that come in runs of one flow: what is found for the first holds for the others.
    #[inline(never)]
    fn test_runs(
        &mut self,
        batch: &mut Batch,
        view: &switch::View,
        (port, from): (u16, At),
        ways: &mut [u16],
        cx: &mut Context<'_>,
    ) {
        let frames = batch.iter_mut().into_slice();
        let (mut next, mut last, mut leaves) = (0, NO_WAY, None);
        while let (Some(frame), Some(way)) = (frames.get_mut(next), ways.get_mut(next)) {
            next += 1;
            if *way >= NO_WAY {
                continue;
            }
            if *way != last {
                last = *way;
                leaves = self.goes_quickly(view, port, last);
            }
            let filter = &mut self.half.filter;
            let to = leaves.filter(|_| header_check::has_good_checksum(packet(frame)));
            let glance = to.map(|to| (filter.glance_at_once(packet(frame), Direction::In), to));
            let through = match &glance {
                Some((glance, to)) => filter.pass_through(|| packet(frame), glance, (from, *to)),
                None => Through::Unknown,
            };
            if let (Through::Passed, Some((glance, to))) = (through, &glance) {
                let behind = frames[next..].iter().take(runs::length(&ways[next..], last));
                let sound = behind.map(packet).take_while(|packet| header_check::has_good_checksum(packet));
                next += filter.pass_run(sound, glance, (from, *to));
            } else {
                *way |= self.judge(through, frame, view, (port, last), cx);
            }
        }
    }

    /// What is to be said of the way of a frame that was tested quickly, or was not.
    #[inline(always)]
    fn judge(
        &mut self,
        through: Through,
        frame: &mut Packet,
        view: &switch::View,
        (from, to): (u16, u16),
        cx: &mut Context<'_>,
    ) -> u16 {
        match through {
            Through::Passed => 0,
            Through::Unknown => self.test_both(frame, view, (from, to), cx),
            Through::Entered(passed) => self.test_out(frame, passed, view, (from, to), cx),
        }
    }

    /// Tests a frame where it leaves that has passed where it came in.
    #[cold]
    fn test_out(
        &mut self,
        frame: &mut Packet,
        passed: Passed,
        view: &switch::View,
        (from, to): (u16, u16),
        cx: &mut Context<'_>,
    ) -> u16 {
        self.came = Came { state: passed.state, tag: passed.tag };
        let passes = self.test(frame, &Passage::leaving(view, from, to), cx);
        if passes { 0 } else { BLOCKED_OUT }
    }

    /// Sends what the filter says itself. To the receiver of a frame that comes in nothing can be said: where it is, the
    /// switch has yet to find out.
    fn answer(
        &self,
        answer: &Answer,
        frame: &[u8],
        header: usize,
        passage: &Passage<'_>,
        cx: &mut Context<'_>,
    ) {
        let port = match (answer.towards, passage.spot) {
            (Towards::Sender, _) => Some(passage.from),
            (Towards::Receiver, Spot::Port(port)) if port != passage.from => Some(port),
            _ => None,
        };
        let mut made = port.zip(answers::frame(answer, frame, header));
        if let (Some((port, bytes)), true) = (&mut made, header > HEADER)
            && *port != passage.from
        {
            // The filter is asked where a frame leaves without the tags that it came with.
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

    fn begin(&mut self, cx: &mut Context<'_>) {
        self.half.begin(cx);
    }

    fn wants_finished(&self) -> bool {
        self.half.may_change()
    }

    fn test(&mut self, frame: &mut Packet, passage: &Passage<'_>, cx: &mut Context<'_>) -> bool {
        let Some(header) = link_header(frame.data()) else { return true };
        if !passage.was_asked
            && let Some(fault) = header_check::header_fault(frame.data().get(header..).unwrap_or_default())
        {
            self.half.filter.refuse(fault);
            return false;
        }
        let (mut at, is_in) = (self.at(passage), passage.direction == switch::Direction::In);
        let came = if passage.was_asked { self.came } else { Came::default() };
        if at.tag == Tag(0) {
            at.tag = came.tag;
        }
        at.is_unfinished = frame.leaves_checksum();
        let tested = self.half.test_frame(frame, header, at, came.state.filter(|_| !is_in), cx);
        if self.half.has_news() {
            let answers = self.half.news(cx);
            answers.iter().for_each(|answer| self.answer(answer, frame.data(), header, passage, cx));
        }
        if let (true, Ok(passed)) = (passage.spot == Spot::Port(passage.from), &tested) {
            self.came = Came { state: passed.state.filter(|_| is_in), tag: passed.tag };
        }
        tested.is_ok()
    }

    fn test_all(
        &mut self,
        batch: &mut Batch,
        view: &switch::View,
        port: u16,
        ways: &mut [u16],
        cx: &mut Context<'_>,
    ) {
        let from = self.at(&Passage::entering(view, port));
        // Where all ports are asked about.
        let is_open = view.has_filter() && from.direction == Direction::In && self.half.is_plain_at(from);
        match is_open && runs::seem_to_come(batch, packet) {
            true => self.test_runs(batch, view, (port, from), ways, cx),
            false => self.test_each(batch, view, (port, from, is_open), ways, cx),
        }
        self.half.filter.end();
    }

    fn maintain(&mut self, cx: &mut Context<'_>) {
        self.half.begin(cx);
        self.half.maintain(MOST_SWEPT);
    }

    fn take_over(&mut self, old: &mut dyn FrameFilter, keeps_rules: bool, cx: &mut Context<'_>) {
        if let Some(old) = old.as_any().downcast_mut::<SwitchFilter>() {
            self.half.take_over(&mut old.half, keeps_rules, cx);
        }
    }

    fn as_any(&mut self) -> &mut dyn Any {
        self
    }
}
