//! Frames of any bytes, sent by an interface of a host past its own stack.

use super::error::{Result, RigError};
use super::host::Host;
use artery_device::{DeviceError, Port, PortSpec, Ports, TxCounters, TxHandle};
use artery_packet::{BATCH, Batch, Pool};
use std::io;
use std::sync::{Arc, OnceLock};

/// Frames that wait to be sent, of as many threads as send at a time, each of which keeps some back for
/// itself; big ones for what is longer than a common frame.
const FRAMES: (usize, usize) = (32 * BATCH, 16);

impl Host {
    /// Sends frames by an interface, from their link headers on and byte for byte as given.
    pub fn transmit<F: AsRef<[u8]> + Sync>(&self, interface: &str, frames: &[F]) -> Result<()> {
        self.check_interface(interface)?;
        let sent = self.enter(|| transmit(interface, frames))?;
        sent.map_err(RigError::system(format!("{}: cannot send frames by {interface}", self.label())))
    }

    /// Opens an interface to send frames by it for long.
    pub fn injector(&self, interface: &str) -> Result<Injector> {
        self.check_interface(interface)?;
        let opened = self.enter(|| Injector::open(interface))?;
        opened.map_err(RigError::system(format!("{}: cannot send frames by {interface}", self.label())))
    }
}

/// Sends frames of any bytes by an interface, as [`Host::transmit`] does, without opening it each time.
pub struct Injector {
    queue: TxHandle,
}

impl Injector {
    fn open(interface: &str) -> io::Result<Injector> {
        Ok(Injector { queue: open(interface)?.tx(0).map_err(in_words)? })
    }

    /// Sends frames; gives how many were sent. The others were refused, as by a queue that is full.
    pub fn send<F: AsRef<[u8]>>(&mut self, frames: &[F]) -> u64 {
        let mut sent = 0;
        for frames in frames.chunks(BATCH) {
            let mut batch = Batch::default();
            let packets = frames.iter().filter_map(|frame| pool().ok()?.packet_from(frame.as_ref()));
            packets.for_each(|packet| batch.push(packet));
            let offered = batch.len() as u64;
            let refused = |counters: TxCounters| counters.too_long + counters.refused;
            let before = refused(self.queue.counters());
            // What is wrong with the interface shows in what does not arrive.
            let _ = self.queue.transmit(&mut batch);
            sent += offered.saturating_sub(batch.len() as u64 + refused(self.queue.counters()) - before);
        }
        sent
    }
}

fn open(interface: &str) -> io::Result<Arc<Port>> {
    let spec = PortSpec::Interface { name: interface.into(), receive: None, transmit: None };
    Ports::default().open(spec, pool()?).map_err(in_words)
}

fn transmit<F: AsRef<[u8]>>(interface: &str, frames: &[F]) -> io::Result<()> {
    let port = open(interface)?;
    let mut queue = port.tx(0).map_err(in_words)?;
    let mut batch = Batch::default();
    for frames in frames.chunks(BATCH) {
        for frame in frames {
            batch.push(pool()?.packet_from(frame.as_ref()).ok_or(io::ErrorKind::OutOfMemory)?);
        }
        queue.transmit(&mut batch).map_err(in_words)?;
        let counters = queue.counters();
        let unsent = batch.len() as u64 + counters.too_long + counters.refused;
        if unsent > 0 {
            return Err(io::Error::other(format!("the kernel refused {unsent}")));
        }
    }
    Ok(())
}

pub(super) fn in_words(error: DeviceError) -> io::Error {
    io::Error::other(error.to_string())
}

pub(super) fn pool() -> io::Result<&'static Pool> {
    static POOL: OnceLock<Option<&'static Pool>> = OnceLock::new();
    let pool = POOL.get_or_init(|| Pool::new(FRAMES.0, FRAMES.1).ok());
    pool.ok_or_else(|| io::ErrorKind::OutOfMemory.into())
}
