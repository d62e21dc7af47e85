//! The router's ports: which are open, with what settings, and who holds which half.
//!
//! A port is opened once and outlives the graphs that use it. Elements hold handles to its queues; when a
//! handle is dropped, its queue goes back to the port for the next graph, with what waits in it.
mod agreement;
mod port;
mod queues;

pub use port::{Port, PortState};
pub use queues::{QueueHandle, RxHandle, TxHandle};

use crate::{DeviceError, MemoryPort, RxSettings, TapSettings, TxSettings};
use artery_packet::Pool;
use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// Which port to open, and how.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum PortSpec {
    /// A Linux interface. A user of one half leaves the settings of the other to others.
    Interface {
        /// Name of the interface.
        name: String,
        /// How to receive; `None` to leave that to others.
        receive: Option<RxSettings>,
        /// How to send; `None` to leave that to others.
        transmit: Option<TxSettings>,
    },
    /// A TAP or TUN device, which is made.
    Tap(TapSettings),
    /// A port that [`Ports::insert`] put there.
    Memory {
        /// Name it was inserted under.
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

/// The ports that are open, in the order of opening.
type PortList = Mutex<Vec<Arc<Port>>>;

/// All ports of a router.
#[derive(Debug, Default)]
pub struct Ports {
    open: Arc<PortList>,
    /// How interfaces will be received from, by elements that are made and not yet started.
    expected: Mutex<HashMap<String, RxSettings>>,
    /// Whether the graph is being replaced: a TAP device may then be opened with other settings.
    is_replacing: AtomicBool,
}

impl Ports {
    /// Announces how an interface will be received from, so that an element that opens it to send can
    /// choose the same method.
    pub fn expect(&self, name: &str, settings: RxSettings) {
        lock(&self.expected).insert(name.to_owned(), settings);
    }
    /// Gives the port that `spec` asks for: the one that is open, or else a new one. Settings that differ
    /// from those in use are an error. Settings of a half without a queue in use are replaced, and those of a
    /// TAP device once the graph that has it is replaced. An absent port is given, too. By AF_XDP, packets
    /// will be of `pool`.
    pub fn open(&self, mut spec: PortSpec, pool: &'static Pool) -> Result<Arc<Port>, DeviceError> {
        if let PortSpec::Interface { name, receive: receive @ None, .. } = &mut spec {
            *receive = lock(&self.expected).get(name).cloned();
        }
        let mut open = lock(&self.open);
        let place = open.iter().position(|port| port.asked == spec.name());
        let id = match place {
            Some(place) if !open[place].is_succeeded_by(&spec) => {
                open[place].agree(&spec, self.is_replacing.load(Relaxed))?;
                return Ok(open[place].clone());
            }
            Some(place) => open[place].id(),
            None => free_id(&open),
        };
        let port = Arc::new(Port::open(id, spec, pool, &self.open)?);
        // Only once the new port is open: an element that holds the old one may go on without it.
        open.retain(|other| other.asked != port.asked);
        open.push(port.clone());
        Ok(port)
    }
    /// Adds one end of a memory pair under a name; another port of the name is closed.
    pub fn insert(&self, name: &str, memory: MemoryPort) -> Arc<Port> {
        let mut open = lock(&self.open);
        open.retain(|port| port.asked != name);
        let port = Arc::new(Port::in_memory(free_id(&open), name, memory, &self.open));
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
    /// Notes that a graph is being made to replace the running one. [`Ports::end_replacement`] must follow.
    pub fn begin_replacement(&self) {
        lock(&self.expected).clear();
        self.is_replacing.store(true, Relaxed);
    }
    /// Notes that the graph was replaced, or that it was not. What the new graph asks of TAP devices that are
    /// there is done now; gives the errors of what failed.
    pub fn end_replacement(&self, is_replaced: bool) -> Vec<DeviceError> {
        self.is_replacing.store(false, Relaxed);
        let open = lock(&self.open);
        open.iter().filter_map(|port| port.end_change(is_replaced).err()).collect()
    }
    /// Closes the ports that nothing refers to any more, and the halves of interfaces without a queue in
    /// use. It is called some time after a graph was replaced: the host then gets the frames that the
    /// router no longer receives. Calls `closes` with the number of each port closed, before another port
    /// can get that number.
    pub fn close_unused(&self, mut closes: impl FnMut(u16)) {
        let mut open = lock(&self.open);
        open.retain(|port| {
            let is_used = Arc::strong_count(port) > 1;
            if !is_used {
                closes(port.id());
            }
            is_used
        });
        open.iter().for_each(|port| port.close_idle());
    }
}

/// The least number from 1 that no open port has; 0 means no port.
fn free_id(open: &[Arc<Port>]) -> u16 {
    (1..=u16::MAX).find(|id| open.iter().all(|port| port.id() != *id)).unwrap_or(0)
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    // What panics while it holds one of these locks leaves nothing half done.
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests;
