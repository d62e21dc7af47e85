//! Writing.
use super::{LinkType, MAGIC_MICRO, MAGIC_NANO, WHOLE};
use crate::{DeviceError, check_writable, create_private};
use artery_packet::Time;
use std::io::{self, BufWriter, Write};

/// What is being done when a file can't be opened.
const OPENING: &str = "opening it to write";

/// How a file is to be written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PcapOptions {
    /// The most bytes to write of each packet; 0 for all.
    pub snaplen: u32,
    /// Whether times are written in nanoseconds, else in microseconds.
    pub nano: bool,
    /// What the packets begin with.
    pub link_type: LinkType,
}

impl Default for PcapOptions {
    /// Whole Ethernet frames with times in nanoseconds.
    fn default() -> PcapOptions {
        PcapOptions { snaplen: 0, nano: true, link_type: LinkType::ETHER }
    }
}

/// Writes a pcap file in this machine's byte order.
pub struct PcapWriter {
    path: String,
    sink: BufWriter<Box<dyn Write + Send>>,
    options: PcapOptions,
}

impl PcapWriter {
    /// Creates a file, or empties it, and writes its header; `-` is standard output.
    pub fn create(path: &str, options: PcapOptions) -> Result<PcapWriter, DeviceError> {
        if path == "-" {
            return PcapWriter::new(path, Box::new(io::stdout()), options);
        }
        let file = create_private(path).map_err(|e| DeviceError::from_file(path, OPENING, &e))?;
        PcapWriter::new(path, Box::new(file), options)
    }
    /// Whether [`PcapWriter::create`] could open the file, without changing what it holds.
    pub fn check(path: &str) -> Result<(), DeviceError> {
        if path == "-" {
            return Ok(());
        }
        check_writable(path).map_err(|e| DeviceError::from_file(path, OPENING, &e))
    }
    /// Writes to anything; `path` names it in messages.
    pub fn new(
        path: &str,
        sink: Box<dyn Write + Send>,
        options: PcapOptions,
    ) -> Result<PcapWriter, DeviceError> {
        let sink = BufWriter::with_capacity(1 << 16, sink);
        let mut writer = PcapWriter { path: path.to_owned(), sink, options };
        let header = writer.header();
        writer.write_bytes(&header)?;
        Ok(writer)
    }
    fn header(&self) -> [u8; 24] {
        let mut header = [0; 24];
        let magic = if self.options.nano { MAGIC_NANO } else { MAGIC_MICRO };
        header[0..4].copy_from_slice(&magic.to_ne_bytes());
        header[4..6].copy_from_slice(&2u16.to_ne_bytes());
        header[6..8].copy_from_slice(&4u16.to_ne_bytes());
        let snaplen = if self.options.snaplen == 0 { WHOLE } else { self.options.snaplen };
        header[16..20].copy_from_slice(&snaplen.to_ne_bytes());
        header[20..24].copy_from_slice(&self.options.link_type.0.to_ne_bytes());
        header
    }
    /// Writes a packet that had `wire_len` bytes on the wire, of which `bytes` are known.
    pub fn write(&mut self, time: Time, wire_len: u32, bytes: &[u8]) -> Result<(), DeviceError> {
        let limit = if self.options.snaplen == 0 { usize::MAX } else { self.options.snaplen as usize };
        let kept = &bytes[..bytes.len().min(limit)];
        let fraction = time.subsec_nanos() / if self.options.nano { 1 } else { 1000 };
        let wire_len = wire_len.max(bytes.len() as u32);
        let mut header = [0; 16];
        // Seconds wrap in 2106, as the format does.
        for (field, value) in header.as_chunks_mut::<4>().0.iter_mut().zip([
            time.seconds() as u32,
            fraction,
            kept.len() as u32,
            wire_len,
        ]) {
            *field = value.to_ne_bytes();
        }
        self.write_bytes(&header)?;
        self.write_bytes(kept)
    }
    /// Hands all that was written to the system.
    pub fn flush(&mut self) -> Result<(), DeviceError> {
        self.sink.flush().map_err(|e| DeviceError::from_file(&self.path, "writing it", &e))
    }
    /// What the packets begin with.
    pub fn link_type(&self) -> LinkType {
        self.options.link_type
    }
    fn write_bytes(&mut self, bytes: &[u8]) -> Result<(), DeviceError> {
        self.sink.write_all(bytes).map_err(|e| DeviceError::from_file(&self.path, "writing it", &e))
    }
}

impl std::fmt::Debug for PcapWriter {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("PcapWriter").field("path", &self.path).field("options", &self.options).finish()
    }
}
