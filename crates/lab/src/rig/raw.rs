//! Frames of any bytes, sent by an interface of a host past its own stack.

use super::error::{Result, RigError};
use super::host::Host;
use artery_device::{DeviceError, PortSpec, Ports};
use artery_packet::{BATCH, Batch, Pool};
use std::io;
use std::sync::OnceLock;

/// Frames that wait to be sent, of as many threads as send at a time, each of which keeps some back for itself; big ones for what
/// is longer than a common frame.
const FRAMES: (usize, usize) = (32 * BATCH, 16);

impl Host {
    /// Sends frames by an interface, from their link headers on and byte for byte as given.
    pub fn transmit<F: AsRef<[u8]> + Sync>(&self, interface: &str, frames: &[F]) -> Result<()> {
        self.check_interface(interface)?;
        let sent = self.enter(|| transmit(interface, frames))?;
        sent.map_err(RigError::system(format!("{}: cannot send frames by {interface}", self.label())))
    }
}

fn transmit<F: AsRef<[u8]>>(interface: &str, frames: &[F]) -> io::Result<()> {
    let port = Ports::default()
        .open(PortSpec::Interface { name: interface.into(), receive: None, transmit: None }, pool()?)
        .map_err(in_words)?;
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

fn in_words(error: DeviceError) -> io::Error {
    io::Error::other(error.to_string())
}

fn pool() -> io::Result<&'static Pool> {
    static POOL: OnceLock<Option<&'static Pool>> = OnceLock::new();
    let pool = POOL.get_or_init(|| Pool::new(FRAMES.0, FRAMES.1).ok());
    pool.ok_or_else(|| io::ErrorKind::OutOfMemory.into())
}
