//! Reading.
use super::{
    FILE_HEADER, LinkType, MAGIC_LONG, MAGIC_MICRO, MAGIC_NANO, MAGIC_PCAPNG, MAX_RECORD, RECORD_HEADER,
};
use crate::{DeviceError, PcapDamage};
use artery_packet::{Packet, Time};
use std::io::{self, Read};
use std::ops::Range;

/// Bytes read at once: what the kernel has just copied is still in the nearest cache.
const BUFFER: usize = 1 << 15;

/// The record header's data on one packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Record {
    /// When it was captured.
    pub time: Time,
    /// Its length on the wire.
    pub wire_len: u32,
    /// How many of its bytes the file has.
    pub captured: u32,
}

/// Reads a pcap file, or standard input, from the front, or over and over.
#[derive(Debug)]
pub struct PcapReader {
    input: BufferedInput,
    format: Format,
    looping: bool,
    /// Number of the next record, counting from 1.
    number: u64,
    /// The next record, if it was peeked at and is in the buffer whole.
    peeked: PeekedRecord,
    is_peeked: bool,
}

/// How the numbers of a file are to be read.
#[derive(Clone, Copy, Debug)]
struct Format {
    swapped: bool,
    nano: bool,
    record_header: usize,
    snaplen: u32,
    link_type: LinkType,
}

/// A record in two whole words. As a struct of smaller fields it was written in pieces and read at once,
/// which made the processor wait at every packet.
#[derive(Clone, Copy, Debug, Default)]
struct PeekedRecord {
    time: u64,
    lengths: u64,
}

impl PeekedRecord {
    fn of(record: Record) -> PeekedRecord {
        PeekedRecord {
            time: record.time.0,
            lengths: u64::from(record.wire_len) << 32 | u64::from(record.captured),
        }
    }
    fn record(self) -> Record {
        let (wire_len, captured) = ((self.lengths >> 32) as u32, self.lengths as u32);
        Record { time: Time(self.time), wire_len, captured }
    }
}

impl PcapReader {
    /// Opens a file and reads its header; `-` is standard input. Reading a pipe waits for its writer.
    pub fn open(path: &str) -> Result<PcapReader, DeviceError> {
        if path == "-" {
            return PcapReader::new(path, Box::new(io::stdin()));
        }
        let file =
            crate::files::open(path).map_err(|e| DeviceError::from_file(path, "opening it to read", &e))?;
        PcapReader::new(path, Box::new(file))
    }
    /// Reads from anything; `path` names it in messages.
    pub fn new(path: &str, source: Box<dyn Read + Send>) -> Result<PcapReader, DeviceError> {
        let mut input = BufferedInput::new(path, source);
        let have = input.fill_to(FILE_HEADER)?;
        let format = Format::parse(input.bytes(0..have)).map_err(|damage| input.damaged(0, damage))?;
        input.consume(FILE_HEADER);
        Ok(PcapReader {
            input,
            format,
            looping: false,
            number: 1,
            peeked: PeekedRecord::default(),
            is_peeked: false,
        })
    }
    /// Starts over at the end, from memory: what was read is kept. To be called before the
    /// first record is read.
    pub fn looping(mut self) -> PcapReader {
        self.looping = true;
        self.input.keeps_all = true;
        self
    }
    /// What the packets begin with.
    pub fn link_type(&self) -> LinkType {
        self.format.link_type
    }
    /// The most bytes that the file says it has of a packet.
    pub fn snaplen(&self) -> u32 {
        self.format.snaplen
    }
    /// Whether times are in nanoseconds.
    pub fn is_nano(&self) -> bool {
        self.format.nano
    }

    /// Peeks at the next record without consuming it; `None` at the end.
    #[inline]
    pub fn peek(&mut self) -> Result<Option<Record>, DeviceError> {
        if !self.is_peeked && !self.find_at_hand() {
            self.find_next()?;
        }
        Ok(self.is_peeked.then(|| self.peeked.record()))
    }
    /// Peeks at the next record when all of it is in the buffer, which it nearly always is.
    #[inline]
    fn find_at_hand(&mut self) -> bool {
        let Some((record, _)) = self.at_hand() else { return false };
        (self.peeked, self.is_peeked) = (PeekedRecord::of(record), true);
        true
    }
    /// The next record and its bytes, when all of it is in the buffer.
    #[inline(always)]
    fn at_hand(&self) -> Option<(Record, &[u8])> {
        let (header, rest) =
            self.input.buffer[self.input.unread.clone()].split_first_chunk::<RECORD_HEADER>()?;
        let record = self.format.record(header);
        let is_plain = self.format.record_header == RECORD_HEADER && record.captured <= MAX_RECORD;
        rest.get(..record.captured as usize).filter(|_| is_plain).map(|bytes| (record, bytes))
    }
    /// As [`PcapReader::next_into`] for an empty packet, when the next record is in the buffer as a whole and
    /// the packet has room for it. `None` does not mean the end: call [`PcapReader::peek`].
    #[inline]
    pub fn next_at_hand(&mut self, packet: &mut Packet) -> Option<Record> {
        if self.is_peeked {
            return None;
        }
        let (record, bytes) = self.at_hand()?;
        if bytes.len() > packet.tailroom() {
            return None;
        }
        packet.set_data(bytes).ok()?;
        packet.set_timestamp(record.time);
        self.input.unread.start += RECORD_HEADER + record.captured as usize;
        self.number += 1;
        Some(record)
    }
    /// Reads the next record's header, and its bytes into the buffer.
    #[cold]
    fn find_next(&mut self) -> Result<(), DeviceError> {
        if self.looping && self.number > 1 && self.input.fill_to(1)? == 0 {
            self.input.restart(FILE_HEADER);
            self.number = 1;
        }
        let header = self.format.record_header;
        match self.input.fill_to(header)? {
            0 => return Ok(()),
            have if have < header => return Err(self.damaged(PcapDamage::RecordHeaderCut)),
            _ => {}
        }
        let record = self.format.record(self.input.bytes(0..header));
        if record.captured > MAX_RECORD {
            return Err(self.damaged(PcapDamage::RecordTooLong(record.captured)));
        }
        let found = self.input.fill_to(header + record.captured as usize)? - header;
        if found < record.captured as usize {
            let damage = PcapDamage::RecordCut { expected: record.captured, found: found as u32 };
            return Err(self.damaged(damage));
        }
        (self.peeked, self.is_peeked) = (PeekedRecord::of(record), true);
        Ok(())
    }
    /// Takes the next record and its bytes; `None` at the end. Before damage, all that precedes it is given.
    #[inline]
    pub fn next_record(&mut self) -> Result<Option<(Record, &[u8])>, DeviceError> {
        let Some(record) = self.peek()? else { return Ok(None) };
        self.is_peeked = false;
        self.number += 1;
        let len = self.format.record_header + record.captured as usize;
        let bytes = self.input.consume(len);
        Ok(Some((record, &bytes[self.format.record_header..])))
    }
    /// Moves the next record into `packet`, in place of what that held, and sets its timestamp.
    /// Bytes for which neither its frame nor a free big one has room are cut off;
    /// [`PcapReader::peek`] gives the length.
    #[inline]
    pub fn next_into(&mut self, packet: &mut Packet) -> Result<Option<Record>, DeviceError> {
        let Some((record, bytes)) = self.next_record()? else { return Ok(None) };
        if packet.set_data(bytes).is_err() {
            let room = bytes.len().min(packet.len() + packet.tailroom());
            // It cannot fail: so much is free without moving.
            let _ = packet.set_data(&bytes[..room]);
        }
        packet.set_timestamp(record.time);
        Ok(Some(record))
    }

    fn damaged(&self, damage: PcapDamage) -> DeviceError {
        self.input.damaged(self.number, damage)
    }
}

impl Format {
    fn parse(header: &[u8]) -> Result<Format, PcapDamage> {
        let Some(magic) = header.first_chunk::<4>() else { return Err(PcapDamage::HeaderCut) };
        let (magic, swapped) = match u32::from_ne_bytes(*magic) {
            word @ (MAGIC_MICRO | MAGIC_NANO | MAGIC_LONG) => (word, false),
            word => (word.swap_bytes(), true),
        };
        let (nano, record_header) = match magic {
            MAGIC_MICRO => (false, RECORD_HEADER),
            MAGIC_NANO => (true, RECORD_HEADER),
            MAGIC_LONG => (false, RECORD_HEADER + 8),
            MAGIC_PCAPNG => return Err(PcapDamage::PcapNg),
            other if u32::swap_bytes(other) == MAGIC_PCAPNG => return Err(PcapDamage::PcapNg),
            other => return Err(PcapDamage::Magic(other)),
        };
        if header.len() < FILE_HEADER {
            return Err(PcapDamage::HeaderCut);
        }
        let mut format = Format { swapped, nano, record_header, snaplen: 0, link_type: LinkType(0) };
        format.snaplen = format.word(header, 16);
        format.link_type = LinkType::from_header(format.word(header, 20));
        Ok(format)
    }
    #[inline]
    fn record(&self, header: &[u8]) -> Record {
        let header = header.first_chunk::<RECORD_HEADER>().unwrap_or(&[0; RECORD_HEADER]);
        let (seconds, fraction) = (u64::from(self.word(header, 0)), u64::from(self.word(header, 4)));
        let captured = self.word(header, 8);
        Record {
            time: Time(seconds * 1_000_000_000 + fraction * if self.nano { 1 } else { 1000 }),
            wire_len: self.word(header, 12).max(captured),
            captured,
        }
    }
    /// The word at `offset`, 0 beyond the end.
    #[inline]
    fn word(&self, bytes: &[u8], offset: usize) -> u32 {
        let word = bytes.get(offset..).and_then(|tail| tail.first_chunk::<4>()).copied().unwrap_or_default();
        let word = u32::from_ne_bytes(word);
        if self.swapped { word.swap_bytes() } else { word }
    }
}

/// Bytes of a file, as many at once as are wanted.
struct BufferedInput {
    path: String,
    source: Box<dyn Read + Send>,
    buffer: Vec<u8>,
    /// The part of the buffer that was read from the file but not taken.
    unread: Range<usize>,
    /// Place in the file of the buffer's first byte.
    base: u64,
    /// Whether taken bytes stay in the buffer, to be read again.
    keeps_all: bool,
}

impl std::fmt::Debug for BufferedInput {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Input").field("path", &self.path).field("at", &self.offset()).finish()
    }
}

impl BufferedInput {
    fn new(path: &str, source: Box<dyn Read + Send>) -> BufferedInput {
        BufferedInput {
            path: path.to_owned(),
            source,
            buffer: vec![0; BUFFER],
            unread: 0..0,
            base: 0,
            keeps_all: false,
        }
    }
    fn offset(&self) -> u64 {
        self.base + self.unread.start as u64
    }
    fn damaged(&self, record: u64, damage: PcapDamage) -> DeviceError {
        DeviceError::BadFile { path: self.path.clone(), offset: self.offset(), record, damage }
    }
    /// Fills the buffer to `n` bytes, fewer only at the end of the file; returns how many there are.
    #[inline]
    fn fill_to(&mut self, n: usize) -> Result<usize, DeviceError> {
        if self.unread.len() < n {
            self.read_more(n)?;
        }
        Ok(self.unread.len().min(n))
    }
    #[cold]
    fn read_more(&mut self, n: usize) -> Result<(), DeviceError> {
        self.make_room(n);
        while self.unread.len() < n {
            match self.source.read(&mut self.buffer[self.unread.end..]) {
                Ok(0) => return Ok(()),
                Ok(count) => self.unread.end += count,
                Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
                Err(e) => return Err(DeviceError::from_file(&self.path, "reading it", &e)),
            }
        }
        Ok(())
    }
    /// Makes the buffer long enough for `n` unread bytes and some more.
    fn make_room(&mut self, n: usize) {
        if !self.keeps_all {
            self.buffer.copy_within(self.unread.clone(), 0);
            self.base += self.unread.start as u64;
            self.unread = 0..self.unread.len();
        }
        let needed = self.unread.start + n;
        if self.buffer.len() <= needed.max(self.unread.end) {
            self.buffer.resize((needed + 1).max(self.buffer.len() * 2), 0);
        }
    }
    /// The unread bytes in the buffer at `range`.
    #[inline]
    fn bytes(&self, range: Range<usize>) -> &[u8] {
        &self.buffer[self.unread.clone()][range]
    }
    /// Takes `n` bytes that are at hand.
    #[inline]
    fn consume(&mut self, n: usize) -> &[u8] {
        let start = self.unread.start;
        self.unread.start += n;
        &self.buffer[start..start + n]
    }
    /// Makes all bytes from `offset` on unread again. The buffer has them, since `keeps_all` was set
    /// before any was discarded.
    fn restart(&mut self, offset: usize) {
        self.unread.start = offset;
    }
}
