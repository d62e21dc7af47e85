//! The door for a packet filter: what a switch asks of one where LINK1 is set, and at vports.
use artery_engine::{Batch, Context, Packet};
use artery_table::switch::quick::ODD;
use artery_table::switch::{Direction, View};
use std::any::Any;
use std::collections::HashMap;
use std::sync::{Mutex, PoisonError};

/// Where a filter is asked.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Spot {
    /// At a port, by its number.
    Port(u16),
    /// At the switch itself: on the way out, for a frame that goes to many.
    Switch,
}

/// What a filter is told of a frame besides its bytes, which begin with its Ethernet header and hold IPv4 or IPv6.
#[derive(Clone, Copy, Debug)]
pub struct Passage<'a> {
    /// Where the frame is.
    pub spot: Spot,
    /// Its way, as a host sees it: into the port from the wire, or out of it. A vport's other end is the host, so that both
    /// are reversed there.
    pub direction: Direction,
    /// The port that it came by.
    pub from: u16,
    /// Whether it is leaving, and the filter was asked when it came.
    pub was_asked: bool,
    /// The mark that rules of the port gave it, if this was not said where the filter was asked before.
    pub mark: Option<&'a str>,
}

/// From this number on the way of a frame is none that a filter is asked about.
pub const NO_WAY: u16 = ODD;
/// What is added to the way of a frame that is blocked as it leaves, and as it comes in.
pub const BLOCKED_OUT: u16 = 1 << 14;
/// See [`BLOCKED_OUT`].
pub const BLOCKED_IN: u16 = 1 << 15;

impl Passage<'_> {
    /// Of a frame without tag or mark that comes by a port.
    pub fn entering(view: &View, port: u16) -> Passage<'static> {
        Passage::plain(view, Spot::Port(port), Direction::In, port)
    }

    /// Of one that leaves by a port, and came by another.
    pub fn leaving(view: &View, from: u16, to: u16) -> Passage<'static> {
        let was_asked = view.is_filtered_at(from);
        Passage { was_asked, ..Passage::plain(view, Spot::Port(to), Direction::Out, from) }
    }

    /// Of one that was not asked about before.
    pub fn plain(view: &View, spot: Spot, direction: Direction, from: u16) -> Passage<'static> {
        let is_reversed = matches!(spot, Spot::Port(port) if view.is_vport(port));
        let is_in = (direction == Direction::In) != is_reversed;
        let direction = if is_in { Direction::In } else { Direction::Out };
        Passage { spot, direction, from, was_asked: false, mark: None }
    }
}

/// A packet filter on one worker.
pub trait FrameFilter: Any + Send {
    /// Says whether a frame may pass. It may change what the frame carries, and must leave its link header as it is.
    fn test(&mut self, frame: &mut Packet, passage: &Passage<'_>, cx: &mut Context<'_>) -> bool;

    /// Tests frames without tags that came by a port, where the switch asks: as they come in, and if they may, as they leave by the ports that `ways`
    /// has for them. A way from [`NO_WAY`] on is left alone; [`BLOCKED_IN`] or [`BLOCKED_OUT`] is added to that of a frame
    /// that may not pass.
    fn test_all(
        &mut self,
        batch: &mut Batch,
        view: &View,
        port: u16,
        ways: &mut [u16],
        cx: &mut Context<'_>,
    ) {
        for (frame, way) in batch.iter_mut().zip(ways).filter(|(_, way)| **way < NO_WAY) {
            *way |= self.test_both(frame, view, (port, *way), cx);
        }
    }

    /// The same for a frame that comes in by one port and leaves by another; says what is to be added to its way.
    fn test_both(
        &mut self,
        frame: &mut Packet,
        view: &View,
        (from, to): (u16, u16),
        cx: &mut Context<'_>,
    ) -> u16 {
        let [comes, goes] = [from, to].map(|port| view.is_filtered_at(port));
        if comes && !self.test(frame, &Passage::entering(view, from), cx) {
            return BLOCKED_IN;
        }
        let passes = !goes || self.test(frame, &Passage::leaving(view, from, to), cx);
        if passes { 0 } else { BLOCKED_OUT }
    }

    /// Whether it lets everything pass and does nothing else.
    fn is_idle(&self) -> bool {
        false
    }
    /// Begins a batch.
    fn begin(&mut self, cx: &mut Context<'_>) {
        let _ = cx;
    }
    /// Whether frames that a card was to finish must be finished before they are tested.
    fn wants_finished(&self) -> bool {
        false
    }
    /// Forgets what is over; called now and then.
    fn maintain(&mut self, cx: &mut Context<'_>) {
        let _ = cx;
    }
    /// Takes over what the filter of the switch knows that this one takes the place of.
    fn take_over(&mut self, old: &mut dyn FrameFilter, keeps_rules: bool, cx: &mut Context<'_>) {
        let _ = (old, keeps_rules, cx);
    }
    /// Itself, for who knows what it is.
    fn as_any(&mut self) -> &mut dyn Any;
}

/// Makes a filter for a worker; it is told the name of the switch, and those of its ports in their order.
pub type MakeFilter = Box<dyn Fn(&str, &[String]) -> Box<dyn FrameFilter> + Send + Sync>;

/// The filters of a router's switches, by the names of these.
#[derive(Default)]
pub struct Filters(Mutex<HashMap<String, MakeFilter>>);

impl Filters {
    /// Gives a switch a filter. Workers make theirs when they start.
    pub fn put(&self, switch: &str, make: MakeFilter) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).insert(switch.into(), make);
    }

    /// Makes the filter of a switch, if it has one.
    pub fn make(&self, switch: &str, ports: &[String]) -> Option<Box<dyn FrameFilter>> {
        let makers = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        makers.get(switch).map(|make| make(switch, ports))
    }
}
