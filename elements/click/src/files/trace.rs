//! Packets of a pcap file: read in order, or kept in memory and played repeatedly.
use artery_device::{DeviceError, LinkType, PcapReader, Record};
use artery_engine::{Batch, Packet, Pool, Time, anno};
use std::ops::Range;

/// Bytes of a file's header, and of a record's.
pub(super) const FILE_HEADER: u64 = 24;
pub(super) const RECORD_HEADER: u64 = 16;
/// What is kept in memory of a file that has no end in sight, in bytes.
const MOST_IN_MEMORY: usize = 4 << 30;
/// No packet is longer; what a record has beyond is cut off.
const LONGEST: usize = 65535;

/// The records of one file in their order.
pub(super) struct Trace {
    input: Input,
    link_type: LinkType,
    /// Where the next record is, in bytes.
    position: u64,
}

enum Input {
    File(PcapReader),
    Memory(Memory),
}

/// A file that was read at once.
struct Memory {
    bytes: Vec<u8>,
    records: Vec<(Record, Range<usize>)>,
    next: usize,
    /// How often to start over; none for ever.
    rounds: Option<u64>,
}

impl Trace {
    /// Opens a file to play it once.
    pub(super) fn open_once(path: &str) -> Result<Trace, DeviceError> {
        let reader = open_reader(path)?;
        Ok(Trace { link_type: reader.link_type(), input: Input::File(reader), position: FILE_HEADER })
    }

    /// Reads a file into memory to play it `rounds` times; without a number for ever.
    pub(super) fn open_looping(path: &str, rounds: Option<u64>) -> Result<Trace, String> {
        let mut reader = open_reader(path).map_err(|error| error.to_string())?;
        // Whoever loops a plain file sees how large it is.
        let size = std::fs::metadata(path).map_or(0, |file| file.len());
        let memory = Memory::read(&mut reader, rounds, MOST_IN_MEMORY.max(2 * size as usize))
            .map_err(|why| format!("{path}: {why}"))?;
        Ok(Trace { link_type: reader.link_type(), input: Input::Memory(memory), position: FILE_HEADER })
    }

    /// The link type of the packets.
    pub(super) fn link_type(&self) -> LinkType {
        self.link_type
    }
    /// Where in the file the next record is, in bytes.
    pub(super) fn position(&self) -> u64 {
        self.position
    }

    /// Skips the records before `position` in the file, `most` of them at a time; returns whether the next
    /// record is the one at `position`. An error means that no record begins there.
    pub(super) fn go_towards(&mut self, position: u64, most: usize) -> Result<bool, String> {
        for _ in 0..most {
            if self.position >= position {
                break;
            }
            match self.peek().map_err(|error| error.to_string())? {
                Some((record, false)) => self.skip_record(&record).map_err(|error| error.to_string())?,
                _ => return Err(beyond_end_message(position)),
            }
        }
        match self.position {
            at if at < position => Ok(false),
            at if at == position => Ok(true),
            at => Err(misaligned_message(position, at)),
        }
    }

    /// Seeks to the record at `position` in the file, if that is in memory, to play it `rounds` times from
    /// there; returns whether it is.
    pub(super) fn go_in_memory(&mut self, position: u64, rounds: Option<u64>) -> Result<bool, String> {
        let Input::Memory(memory) = &mut self.input else { return Ok(false) };
        let place = |n: usize| {
            let start = memory.records.get(n).map_or(memory.bytes.len(), |(_, range)| range.start);
            FILE_HEADER + RECORD_HEADER * n as u64 + start as u64
        };
        let (mut before, mut behind) = (0, memory.records.len() + 1);
        while before < behind {
            let middle = before.midpoint(behind);
            if place(middle) < position { before = middle + 1 } else { behind = middle }
        }
        if before > memory.records.len() {
            return Err(beyond_end_message(position));
        }
        if place(before) != position {
            return Err(misaligned_message(position, place(before)));
        }
        (memory.next, memory.rounds, self.position) = (before, rounds, position);
        Ok(true)
    }

    /// The next record, and whether it is the first of another round; `None` at the end.
    pub(super) fn peek(&mut self) -> Result<Option<(Record, bool)>, DeviceError> {
        match &mut self.input {
            Input::File(reader) => Ok(reader.peek()?.map(|record| (record, false))),
            Input::Memory(memory) => {
                let starts_over = memory.next == memory.records.len() && memory.start_over();
                if starts_over {
                    self.position = FILE_HEADER;
                }
                Ok(memory.records.get(memory.next).map(|(record, _)| (*record, starts_over)))
            }
        }
    }

    /// Passes over the record that [`Trace::peek`] showed.
    pub(super) fn skip_record(&mut self, record: &Record) -> Result<(), DeviceError> {
        self.position += RECORD_HEADER + u64::from(record.captured);
        match &mut self.input {
            Input::File(reader) => reader.next_record().map(drop),
            Input::Memory(memory) => {
                memory.next += 1;
                Ok(())
            }
        }
    }

    /// Returns the record that [`Trace::peek`] showed as a packet; `None`, without consuming it, when
    /// the pool is empty.
    pub(super) fn read_packet(
        &mut self,
        record: &Record,
        pool: &'static Pool,
    ) -> Result<Option<Packet>, DeviceError> {
        let Some(mut packet) = pool.alloc_packet_for(LONGEST.min(record.captured as usize)) else {
            return Ok(None);
        };
        self.position += RECORD_HEADER + u64::from(record.captured);
        match &mut self.input {
            Input::File(reader) => drop(reader.next_into(&mut packet)?),
            Input::Memory(memory) => memory.next_into(&mut packet),
        }
        packet.set_mac_header(0);
        let beyond = (record.wire_len as usize).saturating_sub(packet.len()) as u32;
        if beyond > 0 {
            packet.set_annotation(anno::EXTRA_LENGTH, beyond.to_ne_bytes());
        }
        Ok(Some(packet))
    }
}

fn beyond_end_message(position: u64) -> String {
    format!("file position {position} is beyond the end of the file")
}
fn misaligned_message(position: u64, next: u64) -> String {
    format!("no record begins at file position {position}; one begins at {next}")
}

/// Opens a file, packed by gzip or not.
fn open_reader(path: &str) -> Result<PcapReader, DeviceError> {
    match artery_feed::open_packed(path.as_ref(), |path| artery_device::files::open(path)) {
        Ok(Some(unpacked)) if path != "-" => PcapReader::new(path, Box::new(unpacked)),
        _ => PcapReader::open(path),
    }
}

impl Trace {
    /// Reads records into `packets`, which are empty, and adds them to `into`, without inspecting them
    /// before. Stops at the end, and at a record that needs a larger buffer, which the general path reads.
    pub(super) fn read_plain(
        &mut self,
        packets: impl Iterator<Item = Packet>,
        into: &mut Batch,
    ) -> Result<(), DeviceError> {
        let Input::File(reader) = &mut self.input else { return Ok(()) };
        for mut packet in packets {
            let Some(record) = next_plain(reader, &mut packet)? else { break };
            self.position += RECORD_HEADER + u64::from(record.captured);
            packet.set_mac_header(0);
            if record.wire_len > record.captured {
                packet.set_annotation(anno::EXTRA_LENGTH, (record.wire_len - record.captured).to_ne_bytes());
            }
            into.push(packet);
        }
        Ok(())
    }
    /// Whether records are read directly from a file.
    pub(super) fn is_file(&self) -> bool {
        matches!(self.input, Input::File(_))
    }
}

/// Reads the next record into an empty packet; `None` at the end, and when the packet has no room for it.
#[inline]
fn next_plain(reader: &mut PcapReader, packet: &mut Packet) -> Result<Option<Record>, DeviceError> {
    let at_hand = reader.next_at_hand(packet);
    if at_hand.is_some() {
        return Ok(at_hand);
    }
    match reader.peek()? {
        Some(record) if record.captured as usize <= packet.tailroom() => reader.next_into(packet),
        _ => Ok(None),
    }
}

impl Memory {
    /// Reads all records; refuses a file of which more than `most` bytes would be kept.
    fn read(reader: &mut PcapReader, rounds: Option<u64>, most: usize) -> Result<Memory, String> {
        let mut memory = Memory { bytes: Vec::new(), records: Vec::new(), next: 0, rounds };
        while let Some((record, bytes)) = reader.next_record().map_err(|error| error.to_string())? {
            let start = memory.bytes.len();
            memory.bytes.extend_from_slice(bytes);
            memory.records.push((record, start..memory.bytes.len()));
            if memory.bytes.len() + size_of_val(memory.records.as_slice()) > most {
                return Err(format!(
                    "LOOP would keep more than {} MiB of it in memory: unpack it to a file, or cut it",
                    most >> 20
                ));
            }
        }
        Ok(memory)
    }

    fn start_over(&mut self) -> bool {
        let again = !self.records.is_empty() && self.rounds.is_none_or(|rounds| rounds > 1);
        if again {
            self.next = 0;
            self.rounds = self.rounds.map(|rounds| rounds - 1);
        }
        again
    }

    fn next_into(&mut self, packet: &mut Packet) {
        let (record, range) = &self.records[self.next];
        let bytes = &self.bytes[range.clone()];
        // The packet was chosen for so much.
        let _ = packet.set_data(&bytes[..bytes.len().min(LONGEST)]);
        packet.set_timestamp(record.time);
        self.next += 1;
    }
}

/// The part of a trace to play, in record times. Relative bounds become absolute at the first record.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct TraceWindow {
    pub(super) first: Option<Bound>,
    pub(super) last: Option<Bound>,
}

/// One end of a [`TraceWindow`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Bound {
    At(Time),
    /// So long after the first record of the file.
    AfterFirstRecord(std::time::Duration),
    /// So long after the beginning of the window.
    AfterStart(std::time::Duration),
}

impl TraceWindow {
    /// Makes the bounds absolute, given the time of the file's first record.
    pub(super) fn resolve_bounds(&mut self, first_record: Time) {
        let absolute = |bound: Bound, start: Time| match bound {
            Bound::At(time) => time,
            Bound::AfterFirstRecord(after) => first_record + after,
            Bound::AfterStart(after) => start + after,
        };
        let start = self.first.map_or(first_record, |bound| absolute(bound, first_record));
        self.first = self.first.map(|_| Bound::At(start));
        self.last = self.last.map(|bound| Bound::At(absolute(bound, start)));
    }
    /// Whether a record of this time is before the window.
    pub(super) fn is_before(&self, time: Time) -> bool {
        matches!(self.first, Some(Bound::At(first)) if time < first)
    }
    /// Whether a record of this time is after the window.
    pub(super) fn is_after(&self, time: Time) -> bool {
        matches!(self.last, Some(Bound::At(last)) if time >= last)
    }
    /// Moves the end of the window.
    pub(super) fn extend_end(&mut self, by: std::time::Duration) {
        self.last = self.last.map(|bound| match bound {
            Bound::At(time) => Bound::At(time + by),
            Bound::AfterFirstRecord(after) => Bound::AfterFirstRecord(after + by),
            Bound::AfterStart(after) => Bound::AfterStart(after + by),
        });
    }
}

/// Packs a file by gzip, as it is from then on.
#[cfg(test)]
pub(super) fn pack(path: &str) {
    let plain = std::fs::read(path).unwrap();
    let file = std::fs::File::create(path).unwrap();
    let mut encoder = flate2::write::GzEncoder::new(file, flate2::Compression::fast());
    std::io::Write::write_all(&mut encoder, &plain).unwrap();
    encoder.finish().unwrap();
}

#[cfg(test)]
mod tests {
    use super::*;
    use artery_device::{PcapOptions, PcapWriter};

    #[test]
    fn a_file_without_an_end_in_sight_is_not_kept_in_memory() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("zeros.pcap").to_str().unwrap().to_string();
        let mut writer = PcapWriter::create(&path, PcapOptions::default()).unwrap();
        (0..2000).for_each(|_| writer.write(Time::ZERO, 1000, &[0; 1000]).unwrap());
        writer.flush().unwrap();
        pack(&path);
        let read = |most| Memory::read(&mut open_reader(&path).unwrap(), None, most);
        assert_eq!(read(3 << 20).unwrap_or_else(|why| panic!("{why}")).records.len(), 2000);
        let refusal = read(1 << 20).err().unwrap();
        assert!(refusal.starts_with("LOOP would keep more than 1 MiB of it in memory: "), "{refusal}");
    }
}
