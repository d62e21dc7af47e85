//! A packet filter in the path of a switch: what LINK1 of Veb asks.
use super::packet_filter::MOST_SWEPT;
use super::shared::SharedFilter;
use super::worker::{WorkerFilter, link_header, since_the_epoch};
use super::{answers, ports};
use crate::switch::filter::{FrameFilter, Passage, Spot};
use artery_engine::{ArgError, Args, Context, DropReason, Packet};
use artery_filter::dissect::At;
use artery_filter::engine::{Answer, Towards};
use artery_filter::facts::{Direction, Interface, Tag};
use artery_filter::names::InterfaceRecord;
use artery_filter::states::StateId;
use artery_rcu::Domain;
use artery_table::switch;
use std::any::Any;
use std::sync::Arc;

/// The filter of a switch on one worker. Its first interfaces behind the loopback are the switch and its ports.
pub(crate) struct SwitchFilter {
    pub(crate) half: WorkerFilter,
    /// What the frame that came in last goes on with, and the port that it came by: the next to leave is the same one.
    came: Option<(u16, Option<StateId>, Tag)>,
}

/// The rules of a switch's filter, which name the switch and its ports.
pub(crate) fn shared(args: &Args<'_>, switch: &str, names: &[String]) -> Result<SharedFilter, ArgError> {
    ports::with_file(args, records(switch, names), args.read("PF")?, args.read("PFLOG")?)
}

fn records(switch: &str, names: &[String]) -> Vec<InterfaceRecord> {
    let names = [switch].into_iter().chain(names.iter().map(String::as_str));
    names.map(|name| ports::record(name, Vec::new())).collect()
}

/// A filter on one worker for a switch of another kind than Veb, with the rules of a file.
pub fn of_file(
    domain: &Arc<Domain>,
    switch: &str,
    names: &[String],
    file: &str,
) -> Result<Box<dyn FrameFilter>, String> {
    let rules = SharedFilter::new(domain, ports::with_loopback(records(switch, names)), 1);
    ports::load_file(&rules, file)?;
    let half = WorkerFilter::new(&Arc::new(rules), 0);
    let half = half.map_err(|error| format!("there is no memory for states: {error}"))?;
    Ok(Box::new(SwitchFilter::new(half)))
}

impl SwitchFilter {
    pub(crate) fn new(half: WorkerFilter) -> SwitchFilter {
        SwitchFilter { half, came: None }
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
        let tag = passage.mark.and_then(|mark| self.half.ruling().compiled.tags().find(mark));
        At { tag: tag.unwrap_or_default(), ..At::new(Interface(number), direction) }
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
        let port = match (passage.direction, answer.towards, passage.spot) {
            (switch::Direction::In, Towards::Sender, Spot::Port(port)) => Some(port),
            (switch::Direction::Out, Towards::Receiver, Spot::Port(port)) => Some(port),
            (switch::Direction::Out, Towards::Sender, _) => self.came.map(|(port, ..)| port),
            _ => None,
        };
        let made = port.zip(answers::frame(answer, frame, header));
        let packet = made.and_then(|(port, bytes)| Some((port, cx.pool().packet_from(&bytes)?)));
        match packet {
            Some((port, packet)) => cx.send_or_discard(port.into(), packet, DropReason::NoOutput),
            None => cx.count_discarded(DropReason::NoOutput, 1),
        }
    }
}

impl FrameFilter for SwitchFilter {
    fn begin(&mut self, cx: &mut Context<'_>) {
        self.half.begin(cx);
    }

    fn wants_finished(&self) -> bool {
        self.half.ruling().may_change
    }

    fn test(&mut self, frame: &mut Packet, passage: &Passage<'_>, cx: &mut Context<'_>) -> bool {
        let Some(header) = link_header(frame.data()) else { return true };
        let (mut at, is_in) = (self.at(passage), passage.direction == switch::Direction::In);
        let came = if is_in { None } else { self.came };
        if at.tag == Tag(0) {
            at.tag = came.map_or(Tag(0), |(_, _, tag)| tag);
        }
        let tested = self.half.test_frame(frame, header, at, came.and_then(|(_, state, _)| state), cx);
        if self.half.has_news() {
            let (answers, logged) = self.half.news(cx);
            answers.iter().for_each(|answer| self.answer(answer, frame.data(), header, passage, cx));
            self.half.shared().log(&logged, since_the_epoch(cx.now()));
        }
        if let (true, Spot::Port(port)) = (is_in, passage.spot) {
            self.came = tested.as_ref().ok().map(|passed| (port, passed.state, passed.tag));
        }
        tested.is_ok()
    }

    fn maintain(&mut self, cx: &mut Context<'_>) {
        self.half.begin(cx);
        self.half.maintain(MOST_SWEPT);
    }

    fn take_over(&mut self, old: &mut dyn FrameFilter, keeps_rules: bool) {
        if let Some(old) = old.as_any().downcast_mut::<SwitchFilter>() {
            self.half.take_over(&mut old.half, keeps_rules);
        }
    }

    fn as_any(&mut self) -> &mut dyn Any {
        self
    }
}
