//! The router's ports: which are open, with what settings, and who holds which half.
//!
//! A port is opened once and outlives the graphs that use it. Elements hold handles to its queues; when a handle is
//! dropped, its queue goes back to the port for the next graph, with what waits in it.
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

/// The ports that are open, in the order of opening.
type PortList = Mutex<Vec<Arc<Port>>>;

/// All ports of a router.
#[derive(Debug, Default)]
pub struct Ports {
    open: Arc<PortList>,
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
    /// is replaced that has it. An absent port is given, too. By AF_XDP, packets will be of `pool`.
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
        // Not before there is another in its place: who holds it may go on without.
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
        open.iter().filter_map(|port| port.end_change(is_replaced).err()).collect()
    }
    /// Closes the ports that nobody refers to any more, and the halves of interfaces that nobody holds, as some time after
    /// the replacement of a graph: a host has what the router does not receive any more. Tells the numbers of the ports
    /// that it closes before others can get them.
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

/// The least number from 1 that no open port has; 0 stands for no port.
fn free_id(open: &[Arc<Port>]) -> u16 {
    (1..=u16::MAX).find(|id| open.iter().all(|port| port.id() != *id)).unwrap_or(0)
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    // What panics while it holds one of these locks leaves nothing half done.
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests;
