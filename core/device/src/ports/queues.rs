//! The queues of a port: which are closed, idle, or in use, and the handles of those in use.
use super::Port;
use crate::{DeviceError, PortHalf, RxQueue, TxQueue};
use std::ops::{Deref, DerefMut};
use std::sync::Arc;

/// One half of a port. Settings are `None` until someone chooses them or takes a queue, and then the
/// defaults; they mean nothing to devices other than interfaces.
pub(super) struct PortSide<S, Q: ?Sized> {
    pub(super) settings: Option<S>,
    pub(super) queues: Vec<QueueSlot<Q>>,
}

/// Where a queue is.
pub(super) enum QueueSlot<Q: ?Sized> {
    Closed,
    Here(Box<Q>),
    Taken,
}

impl<S: Clone + Default, Q: ?Sized> PortSide<S, Q> {
    pub(super) fn closed(settings: Option<S>, queues: u16) -> PortSide<S, Q> {
        PortSide { settings, queues: (0..queues.max(1)).map(|_| QueueSlot::Closed).collect() }
    }
    /// Closes all queues if none is taken.
    pub(super) fn close_idle(&mut self) {
        if !self.is_taken() {
            self.queues.iter_mut().for_each(|place| *place = QueueSlot::Closed);
        }
    }
    /// Closes all idle queues, and drops the record of those in use: their interface is gone.
    pub(super) fn close_all(&mut self) {
        self.queues.iter_mut().for_each(|place| *place = QueueSlot::Closed);
    }
    pub(super) fn is_closed(&self) -> bool {
        self.queues.iter().all(|place| matches!(place, QueueSlot::Closed))
    }
    pub(super) fn is_taken(&self) -> bool {
        self.queues.iter().any(|place| matches!(place, QueueSlot::Taken))
    }
    /// Takes a queue out, opening it with `open` if it is not.
    pub(super) fn claim_queue(
        &mut self,
        name: &str,
        half: PortHalf,
        queue: u16,
        open: impl FnOnce(&S) -> Result<Box<Q>, DeviceError>,
    ) -> Result<Box<Q>, DeviceError> {
        let queues = self.queues.len() as u16;
        let name = || name.to_owned();
        let Some(place) = self.queues.get_mut(usize::from(queue)) else {
            return Err(DeviceError::NoSuchQueue { name: name(), half, queue, queues });
        };
        match std::mem::replace(place, QueueSlot::Taken) {
            QueueSlot::Here(taken) => Ok(taken),
            QueueSlot::Taken => Err(DeviceError::Taken { name: name(), half, queue }),
            QueueSlot::Closed => {
                open(self.settings.get_or_insert_default()).inspect_err(|_| *place = QueueSlot::Closed)
            }
        }
    }
    /// Takes a queue back, which is of generation `its` of a port of generation `now`. A queue of an
    /// interface that is gone is closed, unless its slot has another queue already.
    pub(super) fn return_queue(&mut self, queue: u16, returned: Box<Q>, (its, now): (u32, u32)) {
        match self.queues.get_mut(usize::from(queue)) {
            Some(place) if its == now => *place = QueueSlot::Here(returned),
            Some(place) if its.wrapping_add(1) == now => *place = QueueSlot::Closed,
            _ => {}
        }
    }
}

/// Gives a queue of a generation back to its port.
type PutBack<Q> = fn(&Port, u16, u32, Box<Q>);

/// A queue that was taken from a port, and goes back to it when the handle is dropped.
pub struct QueueHandle<Q: ?Sized> {
    port: Arc<Port>,
    queue: u16,
    /// The port's when the queue was taken.
    generation: u32,
    taken: Option<Box<Q>>,
    put_back: PutBack<Q>,
}

/// A receive queue that was taken from a port.
pub type RxHandle = QueueHandle<dyn RxQueue>;
/// A transmit queue that was taken from a port.
pub type TxHandle = QueueHandle<dyn TxQueue>;

impl<Q: ?Sized> QueueHandle<Q> {
    pub(super) fn new(
        port: &Arc<Port>,
        (queue, generation): (u16, u32),
        taken: Box<Q>,
        put_back: PutBack<Q>,
    ) -> QueueHandle<Q> {
        QueueHandle { port: port.clone(), queue, generation, taken: Some(taken), put_back }
    }
    /// The port it came from.
    pub fn port(&self) -> &Arc<Port> {
        &self.port
    }
    /// Whether the interface that the queue is of is gone: the port has another one since, or none.
    #[inline]
    pub fn is_stale(&self) -> bool {
        self.port.generation() != self.generation
    }
    /// Notes that the interface which the queue is of is gone; says so unless it was known.
    pub fn lose_interface(&self) -> Option<String> {
        self.port.lose_interface(self.generation)
    }
}

impl<Q: ?Sized> Deref for QueueHandle<Q> {
    type Target = Q;
    fn deref(&self) -> &Q {
        self.taken.as_deref().expect("only drop() takes the queue out")
    }
}

impl<Q: ?Sized> DerefMut for QueueHandle<Q> {
    fn deref_mut(&mut self) -> &mut Q {
        self.taken.as_deref_mut().expect("only drop() takes the queue out")
    }
}

impl<Q: ?Sized> Drop for QueueHandle<Q> {
    fn drop(&mut self) {
        if let Some(queue) = self.taken.take() {
            (self.put_back)(&self.port, self.queue, self.generation, queue);
        }
    }
}

impl<Q: ?Sized> std::fmt::Debug for QueueHandle<Q> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Handle").field("port", &self.port.name()).field("queue", &self.queue).finish()
    }
}
