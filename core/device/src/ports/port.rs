//! One port of the machine: its device, which of its queues are open, and the interface that it follows.
//!
//! The port follows its interface by number, whatever its name. When the interface is gone - deleted, or
//! moved to another network namespace - the port is absent: its queues are of no use any more, and their
//! holders open others. Once an interface has the port's name again and belongs to no other port, the port
//! takes it.
use super::agreement::{TapUse, rx_settings, tx_settings};
use super::queues::{PortSide, QueueSlot, RxHandle, TxHandle};
use super::{PortList, PortSpec, lock};
use crate::link::{Link, describe_changes};
use crate::owner::refuse_owner;
use crate::tap::TapDevice;
use crate::traffic::{PortTotals, TrafficCounts};
use crate::{
    Delays, DeviceError, Interface, LinkType, MemoryPort, PortHalf, RxQueue, RxSettings, TapSettings,
    TxQueue, TxSettings,
};
use artery_packet::Pool;
use artery_wire::EtherAddr;
use std::sync::atomic::AtomicU32;
use std::sync::atomic::Ordering::{AcqRel, Acquire, Relaxed};
use std::sync::{Arc, Mutex, Weak};

/// One port of the machine.
pub struct Port {
    id: u16,
    /// The name it was opened by.
    pub(super) asked: String,
    /// The same, where the kernel has completed it.
    name: String,
    device: PortDevice,
    /// Incremented when the interface goes, and when there is one again: the lowest bit is set
    /// while there is none.
    generation: AtomicU32,
    /// Why the interface of the port's name is not the port's, as last reported.
    refusal: Mutex<Option<DeviceError>>,
    /// All ports of the router.
    siblings: Weak<PortList>,
    rx: Mutex<PortSide<RxSettings, dyn RxQueue>>,
    /// Whether the graph that replaces the running one wants promiscuous mode, while queues are in use.
    wants_promiscuous: Mutex<Option<bool>>,
    tx: Mutex<PortSide<TxSettings, dyn TxQueue>>,
    received: PortTotals,
    sent: PortTotals,
}

enum PortDevice {
    Interface(Mutex<Arc<Link>>),
    Tap { device: Mutex<Arc<TapDevice>>, settings: Mutex<TapUse> },
    Memory,
}

/// What state a port is in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PortState {
    /// Its interface is up and has a carrier. So is a port in memory.
    Up,
    /// Its interface is down, or has no carrier.
    Down,
    /// It has no interface: that was deleted, or moved to another network namespace.
    Absent,
}

impl PortState {
    /// The word for it.
    pub fn name(self) -> &'static str {
        match self {
            PortState::Up => "up",
            PortState::Down => "down",
            PortState::Absent => "absent",
        }
    }
}

/// The link or device of a port now; not locked while it is used.
fn current<T>(device: &Mutex<Arc<T>>) -> Arc<T> {
    lock(device).clone()
}

impl Port {
    pub(super) fn open(
        id: u16,
        spec: PortSpec,
        pool: &'static Pool,
        siblings: &Arc<PortList>,
    ) -> Result<Port, DeviceError> {
        let asked = spec.name().to_owned();
        match spec {
            PortSpec::Interface { name, receive, transmit } => {
                let device = PortDevice::Interface(Mutex::new(Arc::new(Link::find(&name, pool)?)));
                let (ins, outs) =
                    (receive.as_ref().map_or(1, |s| s.queues), transmit.as_ref().map_or(1, |s| s.queues));
                let sides = (PortSide::closed(receive, ins), PortSide::closed(transmit, outs));
                Ok(Port::new(id, asked, name, device, sides, siblings))
            }
            PortSpec::Tap(settings) => {
                let (device, queues) = (TapDevice::open(&settings)?, settings.queues);
                let name = device.interface.name.clone();
                let device = PortDevice::Tap {
                    device: Mutex::new(Arc::new(device)),
                    settings: Mutex::new(TapUse::new(settings)),
                };
                let sides = (PortSide::closed(None, queues), PortSide::closed(None, queues));
                Ok(Port::new(id, asked, name, device, sides, siblings))
            }
            PortSpec::Memory { name } => Err(crate::interface::no_such(&name)),
        }
    }
    pub(super) fn in_memory(id: u16, name: &str, memory: MemoryPort, siblings: &Arc<PortList>) -> Port {
        let MemoryPort { rx, tx } = memory.with_port(id);
        let sides = (PortSide::closed(None, 1), PortSide::closed(None, 1));
        let port = Port::new(id, name.to_owned(), name.to_owned(), PortDevice::Memory, sides, siblings);
        let (rx, tx) = (port.received.count_rx(0, Box::new(rx)), port.sent.count_tx(0, Box::new(tx)));
        lock(&port.rx).queues = vec![QueueSlot::Here(rx)];
        lock(&port.tx).queues = vec![QueueSlot::Here(tx)];
        port
    }
    fn new(
        id: u16,
        asked: String,
        name: String,
        device: PortDevice,
        (rx, tx): (PortSide<RxSettings, dyn RxQueue>, PortSide<TxSettings, dyn TxQueue>),
        siblings: &Arc<PortList>,
    ) -> Port {
        let (generation, refusal, siblings) = (AtomicU32::new(0), Mutex::default(), Arc::downgrade(siblings));
        let (received, sent) = (PortTotals::default(), PortTotals::default());
        let (rx, tx) = (Mutex::new(rx), Mutex::new(tx));
        let wants_promiscuous = Mutex::default();
        Port {
            id,
            asked,
            name,
            device,
            generation,
            refusal,
            siblings,
            rx,
            wants_promiscuous,
            tx,
            received,
            sent,
        }
    }

    /// Its number in the router, which received packets are marked with.
    pub fn id(&self) -> u16 {
        self.id
    }
    /// Its name, which it was opened by and keeps, whatever becomes of the interface behind it.
    pub fn name(&self) -> &str {
        &self.name
    }
    /// The interface's state at the last check, also of one that is gone; `None` in memory.
    pub fn interface(&self) -> Option<Interface> {
        match &self.device {
            PortDevice::Interface(link) => Some(lock(link).last_seen()),
            PortDevice::Tap { device, .. } => {
                let opened = lock(device).interface.clone();
                Some(Interface::with_index(opened.index).ok().flatten().unwrap_or(opened))
            }
            PortDevice::Memory => None,
        }
    }
    /// Whether it is an interface of the machine.
    pub fn is_interface(&self) -> bool {
        !matches!(self.device, PortDevice::Memory)
    }
    /// What its frames begin with; `None` in memory.
    pub fn link_type(&self) -> Option<LinkType> {
        match &self.device {
            PortDevice::Interface(link) => lock(link).interface.link_type,
            PortDevice::Tap { device, .. } => lock(device).interface.link_type,
            PortDevice::Memory => None,
        }
    }
    /// The port's state at the last check.
    pub fn state(&self) -> PortState {
        match self.interface() {
            _ if self.is_absent() => PortState::Absent,
            Some(interface) if !interface.running => PortState::Down,
            _ => PortState::Up,
        }
    }
    /// The same, but absent also if the interface has gone since the last check: a port that only sends is
    /// checked when it sends.
    pub fn present_state(&self) -> PortState {
        let is_gone = self.interface().is_some_and(|last| Interface::is_gone(last.index));
        if is_gone { PortState::Absent } else { self.state() }
    }
    /// How frames of an interface are received, and why so, in a line; `None` before a
    /// receive queue was taken.
    pub fn report(&self) -> Option<String> {
        match &self.device {
            PortDevice::Interface(link) => lock(link).report(),
            _ => None,
        }
    }

    /// A number that is another one when the interface went, and when there is one again.
    #[inline]
    pub fn generation(&self) -> u32 {
        self.generation.load(Acquire)
    }
    /// Whether it has lost its interface.
    pub fn is_absent(&self) -> bool {
        self.generation() % 2 == 1
    }
    /// Checks its interface, and describes what has changed since the last check, a sentence for each change.
    /// A port that is absent takes the interface of its name.
    pub fn follow_interface(&self) -> Vec<String> {
        if self.is_absent() {
            return self.adopt_returned();
        }
        let PortDevice::Interface(link) = &self.device else { return Vec::new() };
        let generation = self.generation();
        if let Some(said) = current(link).find_changes(&self.name) {
            return said;
        }
        let lost = self.lose_interface(generation);
        // Another may have its name already.
        lost.into_iter().chain(self.adopt_returned()).collect()
    }
    /// Notes that the interface which queues of this generation are of is gone; says so unless it was known.
    pub(super) fn lose_interface(&self, generation: u32) -> Option<String> {
        let is_present = generation.is_multiple_of(2);
        let next = generation.wrapping_add(1);
        let is_news =
            is_present && self.generation.compare_exchange(generation, next, AcqRel, Relaxed).is_ok();
        let name = &self.name;
        is_news.then(|| {
            format!(
                "{name}: interface vanished while in use; the port is absent until there is an interface \
                 '{name}' again"
            )
        })
    }
    /// Takes another interface with the port's name, if the port's own is gone and there is one; gives a
    /// sentence for each change.
    fn adopt_returned(&self) -> Vec<String> {
        // Before anything is locked: a thread that opens a port holds the list.
        let held = self.indices_of_others();
        let (mut rx, mut tx) = (lock(&self.rx), lock(&self.tx));
        // Another thread may have been faster.
        if !self.is_absent() {
            return Vec::new();
        }
        let last = self.interface();
        match self.replace_device(&held) {
            Ok(now) => {
                rx.close_all();
                tx.close_all();
                *lock(&self.refusal) = None;
                self.generation.fetch_add(1, AcqRel);
                self.describe_return(last, &now)
            }
            Err(DeviceError::NoSuchInterface { .. }) => Vec::new(),
            Err(error) => self.describe_refusal(error).into_iter().collect(),
        }
    }
    /// The numbers of interfaces that other ports have.
    fn indices_of_others(&self) -> Vec<u32> {
        let Some(siblings) = self.siblings.upgrade() else { return Vec::new() };
        let others: Vec<Arc<Port>> = lock(&siblings).clone();
        let others = others.iter().filter(|port| port.id != self.id && !port.is_absent());
        others.filter_map(|port| Some(port.interface()?.index)).collect()
    }
    fn replace_device(&self, held: &[u32]) -> Result<Interface, DeviceError> {
        match &self.device {
            PortDevice::Interface(link) => {
                let mut link = lock(link);
                let successor = link.find_successor(&self.name, held)?;
                refuse_owner(&successor.interface, false)?;
                *link = Arc::new(successor);
                Ok(link.interface.clone())
            }
            PortDevice::Tap { device, settings } => {
                let settings = TapSettings { name: self.name.clone(), ..lock(settings).now.clone() };
                let made = TapDevice::open(&settings)?;
                let interface = made.interface.clone();
                *lock(device) = Arc::new(made);
                Ok(interface)
            }
            PortDevice::Memory => Err(crate::interface::no_such(&self.name)),
        }
    }
    fn describe_return(&self, last: Option<Interface>, now: &Interface) -> Vec<String> {
        let (name, Interface { index, mtu, .. }) = (&self.name, now);
        let mac = now.mac.map_or(String::new(), |mac| format!(", Ethernet address {}", EtherAddr(mac)));
        let mut said = vec![format!(
            "{name}: there is an interface '{name}' again (number {index}, MTU {mtu}{mac}); the port uses it"
        )];
        // Names and states are not reported.
        let same = |last: &Interface| Interface { name: last.name.clone(), up: last.up, ..now.clone() };
        said.extend(last.iter().flat_map(|last| describe_changes(name, last, &same(last))));
        said
    }
    /// Why an interface can't be the port's, unless that was the last report.
    fn describe_refusal(&self, error: DeviceError) -> Option<String> {
        let mut known = lock(&self.refusal);
        let is_news = known.as_ref() != Some(&error);
        let said = is_news.then(|| format!("{}: the port stays absent: {error}", self.name));
        *known = Some(error);
        said
    }

    /// What it has received since it was opened, by all queues and for all graphs.
    pub fn received(&self) -> TrafficCounts {
        self.received.sum()
    }
    /// What it has sent since it was opened, by all queues and for all graphs.
    pub fn sent(&self) -> TrafficCounts {
        self.sent.sum()
    }
    /// How long what it received had waited, where the kernel says that: by packet sockets.
    pub fn receive_delays(&self) -> Delays {
        self.received.delays()
    }
    /// Counts packets that should have been sent by it and never came to a queue.
    pub fn count_unsent(&self, packets: u64) {
        self.sent.count_unsent(packets);
    }

    /// Takes a receive queue, until the handle is dropped.
    pub fn rx(self: &Arc<Self>, queue: u16) -> Result<RxHandle, DeviceError> {
        let mut side = lock(&self.rx);
        let generation = self.present_generation()?;
        self.open_all(&mut side)?;
        let taken = side.claim_queue(self.name(), PortHalf::Receive, queue, |settings| {
            Ok(self.received.count_rx(queue, self.open_rx(queue, settings)?))
        })?;
        Ok(RxHandle::new(self, (queue, generation), taken, |port, queue, its, taken| {
            let mut side = lock(&port.rx);
            side.return_queue(queue, taken, (its, port.generation()));
        }))
    }
    /// Takes a transmit queue, until the handle is dropped.
    pub fn tx(self: &Arc<Self>, queue: u16) -> Result<TxHandle, DeviceError> {
        let receiving = lock(&self.rx).settings.clone();
        let mut side = lock(&self.tx);
        let generation = self.present_generation()?;
        let taken = side.claim_queue(self.name(), PortHalf::Transmit, queue, |settings| {
            Ok(self.sent.count_tx(queue, self.open_tx(queue, settings, receiving.as_ref())?))
        })?;
        Ok(TxHandle::new(self, (queue, generation), taken, |port, queue, its, taken| {
            let mut side = lock(&port.tx);
            side.return_queue(queue, taken, (its, port.generation()));
        }))
    }
    fn present_generation(&self) -> Result<u32, DeviceError> {
        match self.generation() {
            generation if generation % 2 == 0 => Ok(generation),
            _ => Err(DeviceError::Gone { name: self.name.clone() }),
        }
    }
    /// Closes the halves of an interface of which no queue is in use.
    pub(super) fn close_idle(&self) {
        let PortDevice::Interface(link) = &self.device else { return };
        let is_idle = {
            let mut rx = lock(&self.rx);
            rx.close_idle();
            rx.is_closed()
        };
        if is_idle {
            // Leaving can't fail.
            let _ = current(link).set_promiscuous(false);
        }
        let mut tx = lock(&self.tx);
        tx.close_idle();
        if is_idle && tx.is_closed() {
            current(link).release_claim();
        }
    }
    /// Opens all receive queues, where they can only be opened together.
    fn open_all(&self, side: &mut PortSide<RxSettings, dyn RxQueue>) -> Result<(), DeviceError> {
        let PortDevice::Interface(link) = &self.device else { return Ok(()) };
        if side.is_closed()
            && let Some(queues) = current(link).open_all(side.settings.get_or_insert_default(), self.id)?
        {
            let counted = (0..).zip(queues).map(|(number, queue)| self.received.count_rx(number, queue));
            side.queues = counted.map(QueueSlot::Here).collect();
        }
        Ok(())
    }
    fn open_rx(&self, queue: u16, settings: &RxSettings) -> Result<Box<dyn RxQueue>, DeviceError> {
        match &self.device {
            PortDevice::Interface(link) => current(link).open_rx(settings, self.id),
            PortDevice::Tap { device, .. } => match current(device).rx(queue, self.id) {
                Some(rx) => Ok(Box::new(rx)),
                None => Err(self.no_queue(PortHalf::Receive, queue)),
            },
            PortDevice::Memory => Err(self.no_queue(PortHalf::Receive, queue)),
        }
    }
    fn open_tx(
        &self,
        queue: u16,
        settings: &TxSettings,
        receiving: Option<&RxSettings>,
    ) -> Result<Box<dyn TxQueue>, DeviceError> {
        match &self.device {
            PortDevice::Interface(link) => current(link).open_tx(queue, settings, receiving, self.id),
            PortDevice::Tap { device, .. } => match current(device).tx(queue) {
                Some(tx) => Ok(Box::new(tx)),
                None => Err(self.no_queue(PortHalf::Transmit, queue)),
            },
            PortDevice::Memory => Err(self.no_queue(PortHalf::Transmit, queue)),
        }
    }
    fn no_queue(&self, half: PortHalf, queue: u16) -> DeviceError {
        DeviceError::NoSuchQueue { name: self.name().to_owned(), half, queue, queues: 0 }
    }

    /// Whether the port can no longer be what `spec` asks for: its interface is gone, and another kind
    /// of port is requested.
    pub(super) fn is_succeeded_by(&self, spec: &PortSpec) -> bool {
        self.is_absent() && self.device.kind() != kind_of(spec)
    }
    /// Applies what the running graph requested of a TAP device, or of promiscuous mode.
    pub(super) fn end_change(&self, is_replaced: bool) -> Result<(), DeviceError> {
        match &self.device {
            PortDevice::Tap { device, settings } => lock(settings).end_change(&current(device), is_replaced),
            PortDevice::Interface(link) => {
                let wanted = lock(&self.wants_promiscuous).take().filter(|_| is_replaced);
                match (wanted, &mut lock(&self.rx).settings) {
                    (Some(wanted), Some(settings)) => {
                        settings.promiscuous = wanted;
                        current(link).set_promiscuous(wanted)
                    }
                    _ => Ok(()),
                }
            }
            PortDevice::Memory => Ok(()),
        }
    }

    /// Checks that this port is what `spec` asks for, and lets it set what is not yet chosen or not in use.
    pub(super) fn agree(&self, spec: &PortSpec, is_replacing: bool) -> Result<(), DeviceError> {
        match (&self.device, spec) {
            (PortDevice::Interface(_), PortSpec::Interface { receive, transmit, .. }) => {
                if let Some(asked) = receive {
                    let mut side = lock(&self.rx);
                    let asked = self.defer_promiscuous(&side, asked.clone(), is_replacing)?;
                    self.agree_side(&mut side, &asked, asked.queues, rx_settings)?;
                }
                if let Some(asked) = transmit {
                    self.agree_side(&mut lock(&self.tx), asked, asked.queues, tx_settings)?;
                }
                Ok(())
            }
            (PortDevice::Tap { settings, .. }, PortSpec::Tap(asked)) => {
                lock(settings).agree(asked, is_replacing, |open, asked| self.same(open, asked))
            }
            (PortDevice::Memory, PortSpec::Memory { .. }) => Ok(()),
            (device, _) => Err(DeviceError::Differs {
                name: self.name().to_owned(),
                setting: "kind",
                open: device.kind().to_owned(),
                asked: kind_of(spec).to_owned(),
            }),
        }
    }
    /// Takes promiscuous mode out of what a replacing graph requests of a half in use, for
    /// [`Port::end_change`]. Its elements must request the same.
    fn defer_promiscuous(
        &self,
        side: &PortSide<RxSettings, dyn RxQueue>,
        asked: RxSettings,
        is_replacing: bool,
    ) -> Result<RxSettings, DeviceError> {
        let Some(open) = side.settings.as_ref().filter(|_| is_replacing && side.is_taken()) else {
            return Ok(asked);
        };
        let wanted = *lock(&self.wants_promiscuous).get_or_insert(asked.promiscuous);
        let setting = |is_on: bool| [("PROMISC", is_on.to_string())];
        self.same(&setting(wanted), &setting(asked.promiscuous))?;
        Ok(RxSettings { promiscuous: open.promiscuous, ..asked })
    }
    fn agree_side<S: Clone + Default + PartialEq, Q: ?Sized, const N: usize>(
        &self,
        side: &mut PortSide<S, Q>,
        asked: &S,
        queues: u16,
        list: fn(&S) -> [(&'static str, String); N],
    ) -> Result<(), DeviceError> {
        match &side.settings {
            Some(open) if open == asked => Ok(()),
            Some(open) if side.is_taken() => self.same(&list(open), &list(asked)),
            _ => {
                *side = PortSide::closed(Some(asked.clone()), queues);
                Ok(())
            }
        }
    }
    fn same(
        &self,
        open: &[(&'static str, String)],
        asked: &[(&'static str, String)],
    ) -> Result<(), DeviceError> {
        for ((setting, open), (_, asked)) in open.iter().zip(asked) {
            if open != asked {
                let (open, asked) = (open.clone(), asked.clone());
                return Err(DeviceError::Differs { name: self.name().to_owned(), setting, open, asked });
            }
        }
        Ok(())
    }
}

impl std::fmt::Debug for Port {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Port").field("id", &self.id).field("name", &self.name).finish_non_exhaustive()
    }
}

impl PortDevice {
    fn kind(&self) -> &'static str {
        match self {
            PortDevice::Interface(_) => "interface",
            PortDevice::Tap { .. } => "TAP",
            PortDevice::Memory => "memory",
        }
    }
}

fn kind_of(spec: &PortSpec) -> &'static str {
    match spec {
        PortSpec::Interface { .. } => "interface",
        PortSpec::Tap(_) => "TAP",
        PortSpec::Memory { .. } => "memory",
    }
}
