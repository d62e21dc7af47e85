//! What the elements share that send and receive by ports: holding a half of one, losing it, handing it on.
use super::monitor;
use artery_device::{
    DeviceError, Port, PortSpec, Ports, QueueHandle, RxCounters, RxQueue, TxCounters, TxQueue,
};
use artery_engine::{BATCH, Batch, Context, DropReason, Interest, Level, Monitor, Packet, StartError, Time};
use std::sync::{Arc, Mutex};
use std::time::Duration;

/// How often, and at what interval, a half is requested that an element of the replaced graph still holds.
const TRIES: u32 = 100;
const PAUSE: Duration = Duration::from_millis(10);
/// When to poll again a device that has not sent all that it took.
const SETTLE_PAUSE: Duration = Duration::from_millis(1);
/// How often an interface is checked for changes.
const LOOK_EVERY: Duration = Duration::from_secs(1);
/// The same while something is wrong with it, such as that it is down.
const LOOK_OFTEN: Duration = Duration::from_millis(200);
/// The interval at which a port without an interface is checked.
const ABSENT_PAUSE: Duration = Duration::from_millis(100);
/// When to poll again a device that was full and has no descriptor to wait on.
const FULL_PAUSE: Duration = Duration::from_micros(100);

/// Opens a port; one in memory that has the name goes before an interface.
pub(super) fn open_port(ports: &Ports, spec: PortSpec, cx: &Context<'_>) -> Result<Arc<Port>, StartError> {
    match ports.find(spec.name()) {
        Some(port) if !port.is_interface() => Ok(port),
        _ => ports.open(spec, cx.pool()).map_err(|error| StartError::new(error.to_string())),
    }
}

/// One half of a port, or the wait for it.
pub(super) struct PortHalf<Q: ?Sized> {
    take: fn(&Arc<Port>, u16) -> Result<QueueHandle<Q>, DeviceError>,
    port: Option<Arc<Port>>,
    queue: u16,
    handle: Option<QueueHandle<Q>>,
    wait: HalfWait,
    /// When the half is requested again.
    again: Time,
    /// Whether it was taken late: what its queue counted before is another's.
    is_new: bool,
    /// Whether an error was reported and nothing has succeeded since.
    complained: bool,
    /// When the interface is checked again.
    next_poll: Time,
}

/// What the half of a port is waited for, while it is not held.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum HalfWait {
    /// Nothing: it is held, or of no use any more.
    Nothing,
    /// For an element of the replaced graph to give it back; so many more attempts are made.
    Predecessor(u32),
    /// That the port has an interface again.
    Interface,
}

impl<Q: ?Sized> PortHalf<Q> {
    fn new(take: fn(&Arc<Port>, u16) -> Result<QueueHandle<Q>, DeviceError>, queue: u16) -> PortHalf<Q> {
        PortHalf {
            take,
            port: None,
            queue,
            handle: None,
            wait: HalfWait::Nothing,
            again: Time::ZERO,
            is_new: false,
            complained: false,
            next_poll: Time::ZERO,
        }
    }

    /// Takes the half of a port; later if the graph being replaced holds it, or the port has no interface.
    fn start_half(&mut self, port: Arc<Port>, cx: &mut Context<'_>) -> Result<(), StartError> {
        match (self.take)(&port, self.queue) {
            Ok(half) => self.handle = Some(half),
            Err(DeviceError::Taken { .. }) if cx.is_replacing() => self.wait = HalfWait::Predecessor(TRIES),
            Err(DeviceError::Gone { .. } | DeviceError::Down { .. }) if cx.is_replacing() => {
                self.wait = HalfWait::Interface;
            }
            Err(DeviceError::NoSuchQueue { name, queues, .. }) => {
                let queues = format!("{queues} queue{}", if queues == 1 { "" } else { "s" });
                let message =
                    format!("{name} has {queues}, too few for a copy of this element on every worker");
                let remedy = format!("add StaticThreadSched({} 0), or run with one worker", cx.name());
                return Err(StartError::new(message).with_help(remedy));
            }
            Err(error) => return Err(StartError::new(error.to_string())),
        }
        self.port = Some(port);
        cx.schedule();
        Ok(())
    }

    /// Takes over what the predecessor holds, if it is of the same queue; returns whether it is.
    fn adopt_held(&mut self, old: &mut PortHalf<Q>) -> bool {
        let same = self.port.as_ref().zip(old.port.as_ref()).is_some_and(|(new, old)| Arc::ptr_eq(new, old));
        let same = same && self.queue == old.queue;
        if same && self.handle.is_none() {
            self.handle = old.handle.take();
        }
        same
    }

    /// Checks the interface at intervals, and reports what has changed; returns whether the check was due.
    fn poll_interface(&mut self, cx: &mut Context<'_>) -> bool {
        let now = cx.now();
        if now < self.next_poll {
            return false;
        }
        // The kernel says nothing to a socket whose interface was down before it was deleted.
        self.next_poll = now + if self.complained { LOOK_OFTEN } else { LOOK_EVERY };
        if self.queue == 0 {
            self.say_changes(cx);
        }
        true
    }

    fn say_changes(&self, cx: &mut Context<'_>) {
        for change in self.port.iter().flat_map(|port| port.follow_interface()) {
            cx.print_message(&format!("{}: {change}", cx.name()));
        }
    }

    /// The half. While another graph holds it, or the port has no interface, it is
    /// requested again at intervals.
    fn get(&mut self, cx: &mut Context<'_>) -> Option<&mut QueueHandle<Q>> {
        if self.handle.as_ref().is_some_and(QueueHandle::is_stale) {
            self.wait_for_interface(cx);
        }
        if self.handle.is_none() && self.wait != HalfWait::Nothing {
            self.retry_open(cx);
        }
        self.handle.as_mut()
    }

    #[cold]
    fn retry_open(&mut self, cx: &mut Context<'_>) {
        if cx.now() < self.again {
            return cx.wake_at(self.again);
        }
        let Some(port) = self.port.clone() else { return };
        if self.wait == HalfWait::Interface {
            self.say_changes(cx);
        }
        match (self.take)(&port, self.queue) {
            Ok(half) => {
                (self.handle, self.is_new) = (Some(half), true);
                (self.wait, self.complained) = (HalfWait::Nothing, false);
            }
            Err(error) => self.wait_on(&error, cx),
        }
    }

    /// Schedules another attempt, or gives up.
    fn wait_on(&mut self, error: &DeviceError, cx: &mut Context<'_>) {
        match self.wait {
            HalfWait::Nothing => return,
            HalfWait::Predecessor(_) if matches!(error, DeviceError::Gone { .. }) => {
                self.wait = HalfWait::Interface
            }
            HalfWait::Predecessor(tries) if tries > 1 => self.wait = HalfWait::Predecessor(tries - 1),
            HalfWait::Predecessor(_) => {
                self.wait = HalfWait::Nothing;
                return self.report_error(error, cx);
            }
            // Its absence was already reported, and an interface that is down is not an error. Other workers
            // may still hold queues of an interface with the same number, which they are about to drop.
            HalfWait::Interface if matches!(error, DeviceError::Gone { .. } | DeviceError::Down { .. }) => {}
            HalfWait::Interface if is_held_here(error) => {}
            HalfWait::Interface => self.say_once(error, cx),
        }
        let pause = if self.wait == HalfWait::Interface { ABSENT_PAUSE } else { PAUSE };
        self.again = cx.now() + pause;
        cx.wake_at(self.again);
    }

    /// Lets go of a queue whose interface is gone, to have one of the interface that comes.
    fn wait_for_interface(&mut self, cx: &mut Context<'_>) {
        if let Some(said) = self.handle.take().and_then(|held| held.lose_interface()) {
            cx.print_message(&format!("{}: {said}", cx.name()));
        }
        (self.wait, self.again, self.complained) = (HalfWait::Interface, Time::ZERO, false);
    }

    fn say_once(&mut self, error: &DeviceError, cx: &mut Context<'_>) {
        if !std::mem::replace(&mut self.complained, true) {
            self.next_poll = self.next_poll.min(cx.now() + LOOK_OFTEN);
            cx.print_message(&format!("{}: {error}", cx.name()));
        }
    }

    /// Says an error once. Drops a queue whose interface is gone, or whose memory is not to be trusted.
    fn report_error(&mut self, error: &DeviceError, cx: &mut Context<'_>) {
        match error {
            DeviceError::Gone { .. } if self.handle.is_some() => return self.wait_for_interface(cx),
            DeviceError::Broken { .. } => self.handle = None,
            _ => {}
        }
        self.say_once(error, cx);
    }

    /// The port, once it is open.
    pub(super) fn port(&self) -> Option<&Arc<Port>> {
        self.port.as_ref()
    }
    /// What the port has counted; nothing before it is open.
    pub(super) fn format_counts(&self) -> String {
        self.port.as_deref().map_or_else(String::new, monitor::format_counts)
    }
    /// The port's number; 0 before it is open.
    pub(super) fn port_number(&self) -> u16 {
        self.port.as_ref().map_or(0, |port| port.id())
    }
}

/// Whether this process itself has the interface by AF_XDP.
fn is_held_here(error: &DeviceError) -> bool {
    matches!(error, DeviceError::InUse { pid, .. } if *pid == std::process::id())
}

/// Receives by a port.
pub(super) struct Receiver {
    pub(super) half: PortHalf<dyn RxQueue>,
    seen: RxCounters,
    /// The last setting of the queue: whether to receive without parsing packets.
    skip_parsing: Option<bool>,
}

impl Receiver {
    pub(super) fn new(queue: u16) -> Receiver {
        Receiver { half: PortHalf::new(Port::rx, queue), seen: RxCounters::default(), skip_parsing: None }
    }

    pub(super) fn start(&mut self, port: Arc<Port>, cx: &mut Context<'_>) -> Result<(), StartError> {
        self.half.start_half(port, cx)?;
        self.seen = self.counters();
        Ok(())
    }

    pub(super) fn adopt_held(&mut self, old: &mut Receiver, cx: &mut Context<'_>) {
        if self.half.adopt_held(&mut old.half) {
            self.seen = old.seen;
        }
        cx.schedule();
    }

    /// The level at which received packets end, if the port is monitored. At level 0 the queue skips parsing.
    #[inline]
    pub(super) fn monitor_level(&mut self, cx: &Context<'_>) -> Option<Level> {
        let Monitor(level) = cx.port_monitor(self.half.port_number());
        let blind = Some(level == Some(Level::L0));
        if blind != self.skip_parsing
            && let Some(rx) = &mut self.half.handle
        {
            rx.set_blind(blind == Some(true));
            self.skip_parsing = blind;
        }
        level
    }

    /// Adds up to `max` packets to `into` and schedules the next poll of the device.
    pub(super) fn receive(&mut self, max: usize, into: &mut Batch, cx: &mut Context<'_>) {
        if self.half.poll_interface(cx) {
            // The kernel's loss counts are read only at intervals.
            if let Some(rx) = &self.half.handle {
                rx.counters();
            }
            self.count_losses(cx);
            if self.half.handle.as_ref().is_some_and(|rx| !rx.is_attached()) {
                self.half.wait_for_interface(cx);
            }
        }
        let pool = cx.pool();
        if self.half.get(cx).is_none() {
            return;
        }
        if std::mem::take(&mut self.half.is_new) {
            self.seen = self.counters();
        }
        let Some(rx) = self.half.handle.as_mut() else { return };
        match rx.receive(pool, max, into) {
            Ok(0) => self.wait_for_packets(cx),
            Ok(_) => {
                self.half.complained = false;
                cx.schedule();
            }
            Err(error) => {
                // The interface may be gone, and its queue with it.
                self.seen.ring_full = rx.counters().ring_full;
                self.half.report_error(&error, cx);
                if self.half.wait == HalfWait::Interface {
                    return cx.schedule();
                }
                self.wait_for_packets(cx);
            }
        }
    }

    /// Counts what the device lost since this was last called.
    pub(super) fn count_losses(&mut self, cx: &mut Context<'_>) {
        let now = self.half.handle.as_ref().map_or(self.seen, |rx| rx.own_counters());
        let was = std::mem::replace(&mut self.seen, now);
        cx.count_discarded(DropReason::PoolEmpty, now.pool_empty.saturating_sub(was.pool_empty));
        cx.count_discarded(DropReason::Malformed, now.malformed.saturating_sub(was.malformed));
        cx.count_discarded(DropReason::TooLong, now.truncated.saturating_sub(was.truncated));
    }

    /// Sleeps until there is something. A worker may come to rest between any two packets.
    fn wait_for_packets(&mut self, cx: &mut Context<'_>) {
        self.count_losses(cx);
        let Some(rx) = &self.half.handle else { return };
        if self.half.port.as_ref().is_some_and(|port| port.is_interface()) {
            cx.wake_at(self.half.next_poll);
        }
        match rx.fd() {
            Some(file) => cx.watch_file(file, Interest::Readable),
            None => cx.schedule(),
        }
    }

    /// What the queue has counted since it was opened.
    pub(super) fn counters(&self) -> RxCounters {
        self.half.handle.as_ref().map(|rx| rx.counters()).unwrap_or(self.seen)
    }
}

/// Sends by a port, and keeps what the device could not take.
pub(super) struct Sender {
    pub(super) half: PortHalf<dyn TxQueue>,
    seen: TxCounters,
    /// Packets that wait for the device, in order.
    pending: Batch,
    /// When to poll again for what the device took and has not sent.
    settles: Time,
    /// Whether the file may be watched; a receiving element may watch the same one.
    watches: bool,
}

impl Sender {
    pub(super) fn new(queue: u16, watches: bool) -> Sender {
        let half = PortHalf::new(Port::tx, queue);
        Sender { half, seen: TxCounters::default(), pending: Batch::default(), settles: Time::ZERO, watches }
    }

    pub(super) fn start(&mut self, port: Arc<Port>, cx: &mut Context<'_>) -> Result<(), StartError> {
        self.half.start_half(port, cx)?;
        self.seen = self.counters();
        Ok(())
    }

    pub(super) fn adopt_held(&mut self, old: &mut Sender, cx: &mut Context<'_>) {
        // What waits for another queue leaves by it when the predecessor is stopped.
        if self.half.adopt_held(&mut old.half) {
            self.seen = old.seen;
            self.pending.append(&mut old.pending);
        }
        cx.schedule();
    }

    /// Whether another graph still holds the device.
    pub(super) fn is_waiting(&self) -> bool {
        self.half.handle.is_none() && matches!(self.half.wait, HalfWait::Predecessor(_))
    }
    /// Whether packets wait for the device.
    pub(super) fn is_stuck(&self) -> bool {
        !self.pending.is_empty()
    }

    /// Whether [`Sender::flush_pending`] has something to do.
    pub(super) fn is_busy(&self) -> bool {
        self.is_stuck() || self.is_waiting() || self.half.handle.as_ref().is_some_and(|tx| tx.unsettled())
    }

    /// Adds packets to those that wait and sends what the device takes. Beyond a batch, what it does not take
    /// is dropped. Returns how many were sent.
    pub(super) fn send(&mut self, batch: &mut Batch, cx: &mut Context<'_>) -> u64 {
        cx.drop_monitored(Level::L4, batch);
        // No device makes fragments, as it does segments.
        if batch.iter().any(Packet::needs_fragments) {
            cx.apply_offloads(batch);
        }
        let sent = if self.is_stuck() { self.flush_pending(cx) } else { 0 };
        let room = BATCH.saturating_sub(self.pending.len());
        if batch.len() <= room || !self.is_stuck() {
            self.pending.append(batch);
        } else {
            self.pending.extend(batch.drain_front(room));
            self.count_unsent(batch.len());
            cx.discard_all(batch, DropReason::QueueFull);
        }
        sent + self.flush_pending(cx)
    }

    /// Counts packets that the port should have sent.
    fn count_unsent(&self, packets: usize) {
        if let Some(port) = &self.half.port {
            port.count_unsent(packets as u64);
        }
    }

    /// Sends what waits; returns how many were sent. What the device can't take waits on.
    pub(super) fn flush_pending(&mut self, cx: &mut Context<'_>) -> u64 {
        self.half.poll_interface(cx);
        if self.half.get(cx).is_none() {
            if !self.is_waiting() {
                self.count_unsent(self.pending.len());
                cx.discard_all(&mut self.pending, DropReason::DeviceDown);
            }
            return 0;
        }
        if std::mem::take(&mut self.half.is_new) {
            self.seen = self.counters();
        }
        let Some(tx) = self.half.handle.as_mut() else { return 0 };
        let marks = cx.followed_marks(&self.pending);
        let result = tx.transmit(&mut self.pending);
        let (now, was) = (tx.counters(), self.seen);
        self.seen = now;
        let too_long = now.too_long.saturating_sub(was.too_long);
        let refused = now.refused.saturating_sub(was.refused);
        cx.count_discarded(DropReason::TooLong, too_long);
        cx.count_discarded(DropReason::DeviceDown, refused);
        if let Some(port) = &self.half.port {
            cx.record_sent(&marks, &self.pending, port.name(), too_long + refused);
        }
        match result {
            Ok(_) => self.half.complained = false,
            Err(error) => {
                self.half.report_error(&error, cx);
                self.count_unsent(self.pending.len());
                cx.discard_all(&mut self.pending, DropReason::DeviceDown);
            }
        }
        if self.is_stuck() {
            self.wait_writable(cx);
        } else if self.is_busy() {
            // One timer, whatever is sent until it goes off.
            let now = cx.now();
            if now >= self.settles {
                self.settles = now + SETTLE_PAUSE;
            }
            cx.wake_at(self.settles);
        }
        now.packets.saturating_sub(was.packets)
    }

    fn wait_writable(&self, cx: &mut Context<'_>) {
        let file = self.half.handle.as_ref().and_then(|tx| tx.fd()).filter(|_| self.watches);
        match file {
            Some(file) => cx.watch_file(file, Interest::Writable),
            None => {
                let again = cx.now() + FULL_PAUSE;
                cx.wake_at(again);
            }
        }
    }

    fn counters(&self) -> TxCounters {
        self.half.handle.as_ref().map(|tx| tx.counters()).unwrap_or_default()
    }

    /// Ends: what still waits has a last chance.
    pub(super) fn stop(&mut self, cx: &mut Context<'_>) {
        if self.half.handle.is_some() && self.is_stuck() {
            self.flush_pending(cx);
        }
        let reason = if cx.is_replacing() { DropReason::Replaced } else { DropReason::DeviceDown };
        self.count_unsent(self.pending.len());
        cx.discard_all(&mut self.pending, reason);
    }
}

/// Interfaces whose frames the host does not see, or not all (`SNIFFER`), with the number of
/// elements that hide them.
#[derive(Default)]
pub(super) struct Hidden(Mutex<Vec<String>>);

impl Hidden {
    fn lock_names(&self) -> std::sync::MutexGuard<'_, Vec<String>> {
        self.0.lock().unwrap_or_else(|e| e.into_inner())
    }
    /// The name of a hidden interface, if there is one.
    pub(super) fn first_hidden(&self) -> Option<String> {
        self.lock_names().first().cloned()
    }
    /// Adds one for as long as the value lives.
    pub(super) fn hide_interface(self: &Arc<Self>, name: &str) -> Hiding {
        self.lock_names().push(name.to_string());
        Hiding { name: name.to_string(), hidden: self.clone() }
    }
}

/// An interface in [`Hidden`].
pub(super) struct Hiding {
    name: String,
    hidden: Arc<Hidden>,
}

impl Drop for Hiding {
    fn drop(&mut self) {
        let mut names = self.hidden.lock_names();
        if let Some(at) = names.iter().position(|name| *name == self.name) {
            names.remove(at);
        }
    }
}
