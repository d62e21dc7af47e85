//! The door for a packet filter: what a switch asks of one where LINK1 is set.
use artery_engine::{Context, Packet};
use artery_table::switch::Direction;
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
    /// The mark that rules of the port gave it.
    pub mark: Option<&'a str>,
    /// Whether it has a tag, whose type and bits stand between its addresses and its type.
    pub is_tagged: bool,
}

/// A packet filter on one worker.
pub trait FrameFilter: Any + Send {
    /// Says whether a frame may pass. It may change what the frame carries, and must leave its link header as it is.
    fn test(&mut self, frame: &mut Packet, passage: &Passage<'_>, cx: &mut Context<'_>) -> bool;

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
    fn take_over(&mut self, old: &mut dyn FrameFilter, keeps_rules: bool) {
        let _ = (old, keeps_rules);
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
