//! The interface between a switch and a packet filter, which tests frames where LINK1 is set, and at vports.
//! A switch names no filter: whoever lists the classes says by a [`RulesMaker`] which one a switch has of its
//! own, and [`FilterFactories`] have those that a program sets instead.
use artery_engine::{ArgError, Args, Batch, Context, HandlerError, Packet, StartError};
use artery_l2::quick::Target;
use artery_l2::{Direction, View};
use std::any::Any;
use std::collections::HashMap;
use std::io;
use std::net::IpAddr;
use std::sync::{Arc, Mutex, PoisonError};

/// What the handler `pf_load` is for, of whatever has a packet filter.
pub const PF_LOAD: &str = "an anchor in a line of its own, empty for the main rule set, and rules: loads \
    them, or says what is wrong; other anchors with theirs follow behind a line with a form feed, and all \
    are loaded or none";
/// What the handler `pf_worker` is for.
pub const PF_WORKER: &str = "what `artery pfctl` asks of the packet filter on each worker: `count`, \
    `sources`, `restore …`, and of states in parts, whose answers begin with where the next part begins, 0 \
    for none, and their lines: `states FROM IF [v…]`, `kill FROM IF …`, `flush-states FROM IF`, `dump \
    FROM`; IF is `-` for states of any interface";
/// What the handler `pf` is for.
pub const PF: &str = "what `artery pfctl` asks of the packet filter: `info`, `rules`, `labels`, \
    `anchors`, `tables`, `timeouts`, `memory`, `interfaces`, each with `v` for more, `rules` with `-g` and \
    `-P` as well, and `table …`, `enable`, `disable`, `flush …`, `debug LEVEL`, `checksum`, `etc`, `known`, \
    a line for each interface that rules can name, with `loopback` or `-`, its groups and its addresses, \
    `warnings` of the latest load, `log`, `log FILE`, which begins one where there is none";

/// Where a filter tests frames.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum FilterPoint {
    /// At a port, by its number.
    Port(u16),
    /// At the switch itself: on egress, for a flooded frame.
    Switch,
}

/// What a filter knows of a frame besides its bytes, which begin with its Ethernet header and
/// hold IPv4 or IPv6.
#[derive(Clone, Copy, Debug)]
pub struct FilterContext<'a> {
    /// Where the frame is.
    pub point: FilterPoint,
    /// The direction as a host sees it: into the port from the wire, or out of it. The other end of a vport
    /// is the host, so its directions are swapped.
    pub direction: Direction,
    /// The port that received the frame.
    pub from: u16,
    /// Whether the frame is leaving, and the filter tested it on ingress.
    pub was_filtered_in: bool,
    /// The mark that rules of the port gave it, if no earlier test had it.
    pub mark: Option<&'a str>,
}

impl FilterContext<'_> {
    /// For a frame without tag or mark that is received on `port`.
    #[inline]
    pub fn on_ingress(view: &View, port: u16) -> FilterContext<'static> {
        FilterContext::new(view, FilterPoint::Port(port), Direction::In, port)
    }

    /// For a frame that leaves by port `to`, and was received on `from`.
    #[inline]
    pub fn on_egress(view: &View, from: u16, to: u16) -> FilterContext<'static> {
        let was_asked = view.is_filtered_at(from);
        FilterContext {
            was_filtered_in: was_asked,
            ..FilterContext::new(view, FilterPoint::Port(to), Direction::Out, from)
        }
    }

    /// For a frame that was not tested before.
    #[inline]
    pub fn new(view: &View, spot: FilterPoint, direction: Direction, from: u16) -> FilterContext<'static> {
        let is_reversed = matches!(spot, FilterPoint::Port(port) if view.is_vport(port));
        let is_in = (direction == Direction::In) != is_reversed;
        let direction = if is_in { Direction::In } else { Direction::Out };
        FilterContext { point: spot, direction, from, was_filtered_in: false, mark: None }
    }
}

/// A packet filter on one worker.
pub trait FrameFilter: Any + Send {
    /// Whether a frame may pass. The filter may change what the frame carries, and must leave
    /// its link header unchanged.
    fn test_frame(&mut self, frame: &mut Packet, passage: &FilterContext<'_>, cx: &mut Context<'_>) -> bool;

    /// Tests frames without tags that came by a port, where the switch has a filter: on ingress, and if they
    /// pass, on egress by the ports of their targets. Frames without a [filtered port](Target::filtered_port)
    /// are not tested. To the target of a blocked frame it adds that it is.
    fn test_batch(
        &mut self,
        batch: &mut Batch,
        view: &View,
        port: u16,
        targets: &mut [Target],
        cx: &mut Context<'_>,
    ) {
        for (frame, target) in batch.iter_mut().zip(targets) {
            if let Some(to) = target.filtered_port() {
                target.merge(self.test_pair(frame, view, (port, to), cx));
            }
        }
    }

    /// The same for a frame from one port to another. Returns what to add to its target.
    fn test_pair(
        &mut self,
        frame: &mut Packet,
        view: &View,
        (from, to): (u16, u16),
        cx: &mut Context<'_>,
    ) -> Target {
        let [comes, goes] = [from, to].map(|port| view.is_filtered_at(port));
        if comes && !self.test_frame(frame, &FilterContext::on_ingress(view, from), cx) {
            return Target::BLOCKED_IN;
        }
        let passes = !goes || self.test_frame(frame, &FilterContext::on_egress(view, from, to), cx);
        if passes { Target::PASSED } else { Target::BLOCKED_OUT }
    }

    /// Whether it passes everything and has no other effect.
    fn is_idle(&self) -> bool {
        false
    }
    /// Prepares for a batch; called before the tests of its frames.
    fn begin_batch(&mut self, cx: &mut Context<'_>) {
        let _ = cx;
    }
    /// Whether offloads of frames must be applied before they are tested.
    fn needs_offloads_applied(&self) -> bool {
        false
    }
    /// Removes expired state; called periodically.
    fn expire_idle(&mut self, cx: &mut Context<'_>) {
        let _ = cx;
    }
    /// Restores the state of the filter of the switch that this one replaces.
    fn restore_from(&mut self, old: &mut dyn FrameFilter, keeps_rules: bool, cx: &mut Context<'_>) {
        let _ = (old, keeps_rules, cx);
    }
    /// What people and the switch can ask of it while it runs; None for a filter without rules of pf.
    fn commands(&mut self) -> Option<&mut dyn FilterCommands> {
        None
    }
    /// Itself, for a downcast to the type of the filter.
    fn as_any(&mut self) -> &mut dyn Any;
}

/// What can be asked of a filter while it runs. Texts are those of the handlers `pf_load`, `pf_worker` and
/// `pf`.
pub trait FilterCommands {
    /// Loads rules; see [`PF_LOAD`].
    fn load_rules(&mut self, text: &str, cx: &mut Context<'_>) -> Result<(), HandlerError>;
    /// Answers a query about what this worker's filter has; see [`PF_WORKER`].
    fn query_worker(&mut self, text: &str, cx: &mut Context<'_>) -> Result<String, HandlerError>;
    /// Answers a query about what the filters of all workers share; see [`PF`].
    fn query_shared(&mut self, text: &str, cx: &mut Context<'_>) -> Result<String, HandlerError>;
    /// Has rules follow the addresses that the host has at ports. Call it whenever these may have changed;
    /// false if it must be called again.
    fn follow_addresses(&mut self) -> io::Result<bool>;
}

/// A port of a switch, as rules know it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FilterPort {
    pub name: String,
    /// Its addresses, each with the length of its network's prefix.
    pub addresses: Vec<(IpAddr, u8)>,
}

/// A port's own address, from `ADDRESS/LENGTH`.
pub fn parse_port_address(word: &str) -> Option<(IpAddr, u8)> {
    let (ip, length) = word.split_once('/')?;
    let (ip, length): (IpAddr, u8) = (ip.parse().ok()?, length.parse().ok()?);
    let longest = if ip.is_ipv4() { 32 } else { 128 };
    (length <= longest).then_some((ip, length))
}

/// The rules of a switch's own filter, which its copies on several workers share.
pub trait SharedRules: Send + Sync {
    /// The filter of a worker, without states.
    fn worker_filter(
        self: Arc<Self>,
        worker: usize,
        cx: &mut Context<'_>,
    ) -> Result<Box<dyn FrameFilter>, StartError>;
}

/// Makes the rules of a switch's own filter.
pub trait RulesMaker {
    /// The rules that all copies of a switch share: those of the argument PF, if it is given. `devices` are
    /// the host's names of the interfaces of ports, in their order.
    fn shared_rules(
        args: &mut Args<'_>,
        switch: &str,
        ports: &[FilterPort],
        devices: &[String],
    ) -> Result<Arc<dyn SharedRules>, ArgError>;
}

/// Makes a filter for a worker, from the name of the switch and those of its ports in their order.
pub type MakeFilter = Box<dyn Fn(&str, &[String]) -> Box<dyn FrameFilter> + Send + Sync>;

/// The filters of a router's switches, by the names of these.
#[derive(Default)]
pub struct FilterFactories(Mutex<HashMap<String, MakeFilter>>);

impl FilterFactories {
    /// Sets the filter of a switch. Each worker makes its own when it starts.
    pub fn insert(&self, switch: &str, make: MakeFilter) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).insert(switch.into(), make);
    }

    /// Makes the filter of a switch, if it has one.
    pub fn make_filter(&self, switch: &str, ports: &[String]) -> Option<Box<dyn FrameFilter>> {
        let makers = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        makers.get(switch).map(|make| make(switch, ports))
    }
}
