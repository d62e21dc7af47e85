//! An end of a link that is this process: it sends frames of any bytes and gets all that come, past any
//! stack.

use super::error::{Result, RigError};
use super::host::Host;
use super::raw::{in_words, pool};
use artery_device::{DeviceError, Hide, Method, PortSpec, Ports, RxHandle, RxSettings, TxHandle, TxSettings};
use artery_packet::{BATCH, Batch};
use std::io;
use std::os::fd::BorrowedFd;

/// Bytes of the ring that frames wait in.
const RING: usize = 256 << 10;

/// An interface of a host as a source and a sink of frames.
pub struct Endpoint {
    receive: RxHandle,
    transmit: TxHandle,
    label: String,
}

impl Host {
    /// Opens an interface; frames that come from now on are kept until they are read.
    pub fn endpoint(&self, interface: &str) -> Result<Endpoint> {
        self.check_interface(interface)?;
        let label = format!("{}: {interface}", self.label());
        let opened = self.enter(|| open(interface))?;
        let (receive, transmit) = opened.map_err(RigError::system(format!("{label}: cannot be opened")))?;
        Ok(Endpoint { receive, transmit, label })
    }
}

impl Endpoint {
    /// Sends frames in this order.
    pub fn send<F: AsRef<[u8]>>(&mut self, frames: &[F]) -> Result<()> {
        let failed = |why: io::Error| RigError::System(format!("{}: cannot send", self.label), why);
        let mut batch = Batch::default();
        for frames in frames.chunks(BATCH) {
            for frame in frames {
                let packet = pool().map_err(failed)?.packet_from(frame.as_ref());
                batch.push(packet.ok_or_else(|| failed(io::ErrorKind::OutOfMemory.into()))?);
            }
            let before = self.transmit.counters();
            let sent = self.transmit.transmit(&mut batch).map_err(|error| failed(in_words(error)))?;
            let after = self.transmit.counters();
            let lost = after.too_long + after.refused - before.too_long - before.refused;
            if sent < frames.len() || lost > 0 {
                return Err(failed(io::Error::other("the kernel refused a frame")));
            }
        }
        Ok(())
    }

    /// The frames that have come since the last call, in their order.
    pub fn received(&mut self) -> Result<Vec<Vec<u8>>> {
        let failed = |why: io::Error| RigError::System(format!("{}: cannot receive", self.label), why);
        let pool = pool().map_err(failed)?;
        let mut frames = Vec::new();
        loop {
            let mut batch = Batch::default();
            let received = self.receive.receive(pool, BATCH, &mut batch).map_err(|e| failed(in_words(e)))?;
            batch.apply_offloads();
            frames.extend(batch.iter().map(|packet| packet.data().to_vec()));
            if received < BATCH {
                return Ok(frames);
            }
        }
    }

    /// What becomes readable when frames have come.
    pub fn fd(&self) -> BorrowedFd<'_> {
        self.receive.fd().expect("a packet socket has a descriptor")
    }
}

fn open(interface: &str) -> io::Result<(RxHandle, TxHandle)> {
    let receive = RxSettings {
        method: Method::Packet,
        promiscuous: true,
        hide: Hide::Nothing,
        ring_bytes: RING,
        ..RxSettings::default()
    };
    let transmit = TxSettings { method: Method::Packet, ..TxSettings::default() };
    let spec =
        PortSpec::Interface { name: interface.into(), receive: Some(receive), transmit: Some(transmit) };
    let opened = |error: DeviceError| in_words(error);
    let port = Ports::default().open(spec, pool()?).map_err(opened)?;
    Ok((port.rx(0).map_err(opened)?, port.tx(0).map_err(opened)?))
}
