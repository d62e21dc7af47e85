//! The router's ports: which are open, with what settings, and who holds which half.
//!
//! A port is opened once and outlives the graphs that use it. Elements hold handles to its queues; when a handle is
//! dropped, its queue goes back to the port for the next graph, with what waits in it.
use crate::link::Link;
use crate::tap::TapDevice;
use crate::traffic::{Totals, Traffic};
use crate::{
    Delays, DeviceError, Half, Interface, MemoryPort, RxQueue, RxSettings, TapSettings, TxQueue, TxSettings,
};
use artery_packet::Pool;
use std::collections::HashMap;
use std::ops::{Deref, DerefMut};
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// Which port to open, and how.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum PortSpec {
    /// A Linux interface. Who wants one half only leaves the settings of the other to others.
    Interface {
        /// Its name.
        name: String,
        /// How to receive.
        receive: Option<RxSettings>,
        /// How to send.
        transmit: Option<TxSettings>,
    },
    /// A TAP or TUN device, which is made.
    Tap(TapSettings),
    /// A port that [`Ports::insert`] put there.
    Memory {
        /// Its name.
        name: String,
    },
}

impl PortSpec {
    /// The name of the device.
    pub fn name(&self) -> &str {
        match self {
            PortSpec::Interface { name, .. } | PortSpec::Memory { name } => name,
            PortSpec::Tap(settings) => &settings.name,
        }
    }
}

/// All ports of a router.
#[derive(Debug, Default)]
pub struct Ports {
    open: Mutex<Vec<Arc<Port>>>,
    /// How interfaces will be received from, by elements that are made and not yet started.
    expected: Mutex<HashMap<String, RxSettings>>,
    /// Whether the graph is being replaced: a TAP device may then be asked for with other settings.
    is_replacing: AtomicBool,
}

impl Ports {
    /// Tells how an interface will be received from, so that whoever opens it to send can send likewise.
    pub fn expect(&self, name: &str, settings: RxSettings) {
        lock(&self.expected).insert(name.to_owned(), settings);
    }
    /// Gives the port that `spec` asks for: the one that is open, or else a new one. Settings that differ from those
    /// in use are an error; settings of a half that nobody holds are replaced, and so are those of a TAP device once the graph
    /// is replaced that has it. By AF_XDP, packets will be of `pool`.
    pub fn open(&self, mut spec: PortSpec, pool: &'static Pool) -> Result<Arc<Port>, DeviceError> {
        if let PortSpec::Interface { name, receive: receive @ None, .. } = &mut spec {
            *receive = lock(&self.expected).get(name).cloned();
        }
        let mut open = lock(&self.open);
        let place = open.iter().position(|port| port.asked == spec.name());
        let id = match place {
            Some(place) if open[place].exists() => {
                open[place].agree(&spec, self.is_replacing.load(Relaxed))?;
                return Ok(open[place].clone());
            }
            // The interface vanished; another of the name takes its number.
            Some(place) => open[place].id,
            None => free_id(&open),
        };
        let port = Arc::new(Port::open(id, spec, pool)?);
        // Not before there is another in its place: who holds it may go on without.
        open.retain(|other| other.asked != port.asked);
        open.push(port.clone());
        Ok(port)
    }
    /// Adds one end of a memory pair under a name; another port of the name is closed.
    pub fn insert(&self, name: &str, memory: MemoryPort) -> Arc<Port> {
        let mut open = lock(&self.open);
        open.retain(|port| port.asked != name);
        let port = Arc::new(Port::in_memory(free_id(&open), name, memory));
        open.push(port.clone());
        port
    }
    /// The open port of this name.
    pub fn find(&self, name: &str) -> Option<Arc<Port>> {
        lock(&self.open).iter().find(|port| port.name() == name || port.asked == name).cloned()
    }
    /// All open ports, in the order of opening.
    pub fn list(&self) -> Vec<Arc<Port>> {
        lock(&self.open).clone()
    }
    /// Notes that a graph is made to replace the one that runs. [`Ports::end_replacement`] is to follow.
    pub fn begin_replacement(&self) {
        lock(&self.expected).clear();
        self.is_replacing.store(true, Relaxed);
    }
    /// Notes that the graph was replaced, or that it was not. What the new one asks of TAP devices that are there is done now;
    /// gives what could not be.
    pub fn end_replacement(&self, is_replaced: bool) -> Vec<DeviceError> {
        self.is_replacing.store(false, Relaxed);
        let open = lock(&self.open);
        let changed = open.iter().filter_map(|port| match &port.device {
            Device::Tap { device, settings } => lock(settings).end_change(device, is_replaced).err(),
            _ => None,
        });
        changed.collect()
    }
    /// Closes the ports that nobody refers to any more, and the halves of interfaces that nobody holds, as some time after
    /// the replacement of a graph: a host has what the router does not receive any more. Tells the numbers of the ports
    /// that it closes before others can get them.
    pub fn close_unused(&self, mut closes: impl FnMut(u16)) {
        let mut open = lock(&self.open);
        open.retain(|port| {
            let is_used = Arc::strong_count(port) > 1;
            if !is_used {
                closes(port.id);
            }
            is_used
        });
        open.iter().for_each(|port| port.close_idle());
    }
}

/// The least number from 1 that no open port has; 0 stands for no port.
fn free_id(open: &[Arc<Port>]) -> u16 {
    (1..=u16::MAX).find(|id| open.iter().all(|port| port.id != *id)).unwrap_or(0)
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    // What panics while it holds one of these locks leaves nothing half done.
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// One port of the machine.
pub struct Port {
    id: u16,
    /// The name it was asked for by, which the kernel may have completed.
    asked: String,
    device: Device,
    rx: Mutex<Side<RxSettings, dyn RxQueue>>,
    tx: Mutex<Side<TxSettings, dyn TxQueue>>,
    received: Totals,
    sent: Totals,
}

#[derive(Debug)]
enum Device {
    Interface(Link),
    Tap { device: TapDevice, settings: Mutex<TapUse> },
    Memory,
}

/// How a TAP device is set up, and how the graph that is to replace the running one wants it.
#[derive(Debug)]
struct TapUse {
    now: TapSettings,
    wanted: Option<TapSettings>,
}

impl TapUse {
    /// Checks that the device is, or can become, what is asked for.
    fn agree(
        &mut self,
        asked: &TapSettings,
        may_change: bool,
        same: impl Fn(&[(&'static str, String)], &[(&'static str, String)]) -> Result<(), DeviceError>,
    ) -> Result<(), DeviceError> {
        match &self.wanted {
            None if may_change => {
                same(&tap_kind(&self.now), &tap_kind(asked))?;
                self.wanted = Some(asked.clone());
                Ok(())
            }
            wanted => {
                let known = wanted.as_ref().unwrap_or(&self.now);
                same(&tap_kind(known), &tap_kind(asked))?;
                same(&tap_settings(known), &tap_settings(asked))
            }
        }
    }

    /// Does what was wanted, or forgets it.
    fn end_change(&mut self, device: &TapDevice, is_replaced: bool) -> Result<(), DeviceError> {
        let Some(wanted) = self.wanted.take().filter(|wanted| is_replaced && *wanted != self.now) else {
            return Ok(());
        };
        let before = std::mem::replace(&mut self.now, wanted);
        device.change(&before, &self.now)
    }
}

/// One half of a port. Settings are `None` until someone chooses them or takes a queue, and then the defaults; they
/// mean nothing to devices other than interfaces.
struct Side<S, Q: ?Sized> {
    settings: Option<S>,
    queues: Vec<Place<Q>>,
}

/// Where a queue is.
enum Place<Q: ?Sized> {
    Closed,
    Here(Box<Q>),
    Taken,
}

impl<S: Clone + Default, Q: ?Sized> Side<S, Q> {
    fn closed(settings: Option<S>, queues: u16) -> Side<S, Q> {
        Side { settings, queues: (0..queues.max(1)).map(|_| Place::Closed).collect() }
    }
    /// Closes all queues if none is taken.
    fn close_idle(&mut self) {
        if !self.is_taken() {
            self.queues.iter_mut().for_each(|place| *place = Place::Closed);
        }
    }
    fn is_closed(&self) -> bool {
        self.queues.iter().all(|place| matches!(place, Place::Closed))
    }
    fn is_taken(&self) -> bool {
        self.queues.iter().any(|place| matches!(place, Place::Taken))
    }
    /// Takes a queue out, opening it with `open` if it is not.
    fn take(
        &mut self,
        name: &str,
        half: Half,
        queue: u16,
        open: impl FnOnce(&S) -> Result<Box<Q>, DeviceError>,
    ) -> Result<Box<Q>, DeviceError> {
        let queues = self.queues.len() as u16;
        let name = || name.to_owned();
        let Some(place) = self.queues.get_mut(usize::from(queue)) else {
            return Err(DeviceError::NoSuchQueue { name: name(), half, queue, queues });
        };
        match std::mem::replace(place, Place::Taken) {
            Place::Here(taken) => Ok(taken),
            Place::Taken => Err(DeviceError::Taken { name: name(), half, queue }),
            Place::Closed => {
                open(self.settings.get_or_insert_default()).inspect_err(|_| *place = Place::Closed)
            }
        }
    }
    fn put_back(&mut self, queue: u16, returned: Box<Q>) {
        if let Some(place) = self.queues.get_mut(usize::from(queue)) {
            *place = Place::Here(returned);
        }
    }
}

impl Port {
    fn open(id: u16, spec: PortSpec, pool: &'static Pool) -> Result<Port, DeviceError> {
        let asked = spec.name().to_owned();
        let (device, rx, tx) = match spec {
            PortSpec::Interface { name, receive, transmit } => {
                let device = Device::Interface(Link::find(&name, pool)?);
                let (ins, outs) =
                    (receive.as_ref().map_or(1, |s| s.queues), transmit.as_ref().map_or(1, |s| s.queues));
                (device, Side::closed(receive, ins), Side::closed(transmit, outs))
            }
            PortSpec::Tap(settings) => {
                let (device, queues) = (TapDevice::open(&settings)?, settings.queues);
                let settings = Mutex::new(TapUse { now: settings, wanted: None });
                (Device::Tap { device, settings }, Side::closed(None, queues), Side::closed(None, queues))
            }
            PortSpec::Memory { name } => return Err(crate::interface::no_such(&name)),
        };
        let (rx, tx) = (Mutex::new(rx), Mutex::new(tx));
        Ok(Port { id, asked, device, rx, tx, received: Totals::default(), sent: Totals::default() })
    }
    fn in_memory(id: u16, name: &str, memory: MemoryPort) -> Port {
        let MemoryPort { rx, tx } = memory.with_port(id);
        let (received, sent) = (Totals::default(), Totals::default());
        let (rx, tx) = (received.count_rx(0, Box::new(rx)), sent.count_tx(0, Box::new(tx)));
        let rx = Mutex::new(Side { settings: None, queues: vec![Place::Here(rx)] });
        let tx = Mutex::new(Side { settings: None, queues: vec![Place::Here(tx)] });
        Port { id, asked: name.to_owned(), device: Device::Memory, rx, tx, received, sent }
    }

    /// Its number in the router, which received packets are marked with.
    pub fn id(&self) -> u16 {
        self.id
    }
    /// The name of its device.
    pub fn name(&self) -> &str {
        self.interface().map_or(&self.asked, |interface| &interface.name)
    }
    /// The interface behind it as it was when last looked at.
    pub fn interface_now(&self) -> Option<Interface> {
        match &self.device {
            Device::Interface(link) => Some(link.now()),
            _ => self.interface().cloned(),
        }
    }
    /// The interface behind it, as it was when the port was opened; `None` in memory.
    pub fn interface(&self) -> Option<&Interface> {
        match &self.device {
            Device::Interface(link) => Some(&link.interface),
            Device::Tap { device, .. } => Some(&device.interface),
            Device::Memory => None,
        }
    }
    /// How frames of an interface are received, and why so, in a line; `None` before a receive queue was taken.
    pub fn report(&self) -> Option<String> {
        match &self.device {
            Device::Interface(link) => link.report(),
            _ => None,
        }
    }
    /// Looks at its interface, and says what has changed since the last look, a sentence for each.
    pub fn look(&self) -> Vec<String> {
        match &self.device {
            Device::Interface(link) => link.look(),
            _ => Vec::new(),
        }
    }
    /// Whether its device is still there.
    pub fn exists(&self) -> bool {
        self.interface().is_none_or(Interface::exists)
    }

    /// What it has received since it was opened, by all queues and for all graphs.
    pub fn received(&self) -> Traffic {
        self.received.sum()
    }
    /// What it has sent since it was opened, by all queues and for all graphs.
    pub fn sent(&self) -> Traffic {
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
        let taken = {
            let mut side = lock(&self.rx);
            self.open_all(&mut side)?;
            side.take(self.name(), Half::Receive, queue, |settings| {
                Ok(self.received.count_rx(queue, self.open_rx(queue, settings)?))
            })?
        };
        Ok(Handle {
            port: self.clone(),
            queue,
            taken: Some(taken),
            put_back: |p, n, q| lock(&p.rx).put_back(n, q),
        })
    }
    /// Takes a transmit queue, until the handle is dropped.
    pub fn tx(self: &Arc<Self>, queue: u16) -> Result<TxHandle, DeviceError> {
        let receiving = lock(&self.rx).settings.clone();
        let open = |settings: &TxSettings| {
            Ok(self.sent.count_tx(queue, self.open_tx(queue, settings, receiving.as_ref())?))
        };
        let taken = lock(&self.tx).take(self.name(), Half::Transmit, queue, open)?;
        Ok(Handle {
            port: self.clone(),
            queue,
            taken: Some(taken),
            put_back: |p, n, q| lock(&p.tx).put_back(n, q),
        })
    }
    /// Closes the halves of an interface of which nobody holds a queue.
    fn close_idle(&self) {
        let Device::Interface(link) = &self.device else { return };
        let is_idle = {
            let mut rx = lock(&self.rx);
            rx.close_idle();
            rx.is_closed()
        };
        let mut tx = lock(&self.tx);
        tx.close_idle();
        if is_idle && tx.is_closed() {
            link.give_up();
        }
    }
    /// Opens all receive queues, where they can only be opened together.
    fn open_all(&self, side: &mut Side<RxSettings, dyn RxQueue>) -> Result<(), DeviceError> {
        let Device::Interface(link) = &self.device else { return Ok(()) };
        if side.is_closed()
            && let Some(queues) = link.open_all(side.settings.get_or_insert_default(), self.id)?
        {
            let counted = (0..).zip(queues).map(|(number, queue)| self.received.count_rx(number, queue));
            side.queues = counted.map(Place::Here).collect();
        }
        Ok(())
    }
    fn open_rx(&self, queue: u16, settings: &RxSettings) -> Result<Box<dyn RxQueue>, DeviceError> {
        match &self.device {
            Device::Interface(link) => link.open_rx(settings, self.id),
            Device::Tap { device, .. } => match device.rx(queue, self.id) {
                Some(rx) => Ok(Box::new(rx)),
                None => Err(self.no_queue(Half::Receive, queue)),
            },
            Device::Memory => Err(self.no_queue(Half::Receive, queue)),
        }
    }
    fn open_tx(
        &self,
        queue: u16,
        settings: &TxSettings,
        receiving: Option<&RxSettings>,
    ) -> Result<Box<dyn TxQueue>, DeviceError> {
        match &self.device {
            Device::Interface(link) => link.open_tx(queue, settings, receiving, self.id),
            Device::Tap { device, .. } => match device.tx(queue) {
                Some(tx) => Ok(Box::new(tx)),
                None => Err(self.no_queue(Half::Transmit, queue)),
            },
            Device::Memory => Err(self.no_queue(Half::Transmit, queue)),
        }
    }
    fn no_queue(&self, half: Half, queue: u16) -> DeviceError {
        DeviceError::NoSuchQueue { name: self.name().to_owned(), half, queue, queues: 0 }
    }

    /// Checks that this port is what `spec` asks for, and lets it choose what nobody has chosen or holds.
    fn agree(&self, spec: &PortSpec, is_replacing: bool) -> Result<(), DeviceError> {
        match (&self.device, spec) {
            (Device::Interface(_), PortSpec::Interface { receive, transmit, .. }) => {
                if let Some(asked) = receive {
                    self.agree_side(&mut lock(&self.rx), asked, asked.queues, rx_settings)?;
                }
                if let Some(asked) = transmit {
                    self.agree_side(&mut lock(&self.tx), asked, asked.queues, tx_settings)?;
                }
                Ok(())
            }
            (Device::Tap { settings, .. }, PortSpec::Tap(asked)) => {
                lock(settings).agree(asked, is_replacing, |open, asked| self.same(open, asked))
            }
            (Device::Memory, PortSpec::Memory { .. }) => Ok(()),
            (device, _) => Err(DeviceError::Differs {
                name: self.name().to_owned(),
                setting: "kind",
                open: device.kind().to_owned(),
                asked: kind_of(spec).to_owned(),
            }),
        }
    }
    fn agree_side<S: Clone + Default + PartialEq, Q: ?Sized, const N: usize>(
        &self,
        side: &mut Side<S, Q>,
        asked: &S,
        queues: u16,
        list: fn(&S) -> [(&'static str, String); N],
    ) -> Result<(), DeviceError> {
        match &side.settings {
            Some(open) if open == asked => Ok(()),
            Some(open) if side.is_taken() => self.same(&list(open), &list(asked)),
            _ => {
                *side = Side::closed(Some(asked.clone()), queues);
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
        f.debug_struct("Port").field("id", &self.id).field("device", &self.device).finish_non_exhaustive()
    }
}

impl Device {
    fn kind(&self) -> &'static str {
        match self {
            Device::Interface(_) => "interface",
            Device::Tap { .. } => "TAP",
            Device::Memory => "memory",
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

/// The settings with the names that messages give them.
fn rx_settings(s: &RxSettings) -> [(&'static str, String); 8] {
    [
        ("METHOD", s.method.name().to_owned()),
        ("BUSY_POLL", s.busy_poll.map_or("off".to_owned(), |poll| poll.microseconds.to_string())),
        ("PROMISC", s.promiscuous.to_string()),
        ("SNIFFER", s.hide.name().to_owned()),
        ("OUTBOUND", s.outbound.to_string()),
        ("TIMESTAMP", s.timestamps.to_string()),
        ("queues", s.queues.to_string()),
        ("ring size", s.ring_bytes.to_string()),
    ]
}

fn tx_settings(s: &TxSettings) -> [(&'static str, String); 3] {
    [
        ("METHOD", s.method.name().to_owned()),
        ("qdisc bypass", s.qdisc_bypass.to_string()),
        ("queues", s.queues.to_string()),
    ]
}

/// What a TAP device keeps as long as it lives.
fn tap_kind(s: &TapSettings) -> [(&'static str, String); 2] {
    [("kind", if s.ethernet { "TAP" } else { "TUN" }.to_owned()), ("queues", s.queues.to_string())]
}

fn tap_settings(s: &TapSettings) -> [(&'static str, String); 4] {
    [
        ("addresses", format!("{:?}", s.addresses)),
        ("Ethernet address", format!("{:02x?}", s.mac)),
        ("MTU", s.mtu.map_or("default".to_owned(), |mtu| mtu.to_string())),
        ("routes", format!("{:?}", s.routes)),
    ]
}

/// A queue that was taken from a port, and goes back to it when the handle is dropped.
pub struct Handle<Q: ?Sized> {
    port: Arc<Port>,
    queue: u16,
    taken: Option<Box<Q>>,
    put_back: fn(&Port, u16, Box<Q>),
}

/// A receive queue that was taken from a port.
pub type RxHandle = Handle<dyn RxQueue>;
/// A transmit queue that was taken from a port.
pub type TxHandle = Handle<dyn TxQueue>;

impl<Q: ?Sized> Handle<Q> {
    /// The port it came from.
    pub fn port(&self) -> &Arc<Port> {
        &self.port
    }
}

impl<Q: ?Sized> Deref for Handle<Q> {
    type Target = Q;
    fn deref(&self) -> &Q {
        self.taken.as_deref().expect("only drop() takes the queue out")
    }
}

impl<Q: ?Sized> DerefMut for Handle<Q> {
    fn deref_mut(&mut self) -> &mut Q {
        self.taken.as_deref_mut().expect("only drop() takes the queue out")
    }
}

impl<Q: ?Sized> Drop for Handle<Q> {
    fn drop(&mut self) {
        if let Some(queue) = self.taken.take() {
            (self.put_back)(&self.port, self.queue, queue);
        }
    }
}

impl<Q: ?Sized> std::fmt::Debug for Handle<Q> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Handle").field("port", &self.port.name()).field("queue", &self.queue).finish()
    }
}

#[cfg(test)]
mod tests;
