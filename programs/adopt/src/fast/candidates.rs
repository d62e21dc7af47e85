//! Flows that programs don't find in the table, and that several packets came of: the process asks the
//! kernel about their connections.
//!
//! That spares the process, and the kernel, all work for connections of a few packets, of which most are.
//! Each bucket of the table has one record of a flow that is counted. Another flow of the same bucket takes
//! its place after [`PATIENCE`] packets, or once it was reported. Programs on several processors may write a
//! record at once: what comes of that is a flow that the kernel does not know, or one that is reported later.
use super::flows::{FLOWS4, FLOWS6, FlowKey, FlowLayout, IN_USE};
use super::shared_arrays::SharedArrays;
use artery_device::bpf::EventRing;
use artery_storage::Words;
use std::io;
use std::net::IpAddr;
use std::sync::atomic::AtomicU32;

/// The packet of a flow that has it reported, counted from its first one. It is reported again
/// whenever their number is a power of two or a multiple of [`AGAIN`]: its connection may be established by
/// then, or rules may be others.
pub(crate) const ENOUGH: u32 = 4;
/// A power of two.
pub(super) const AGAIN: u32 = 1024;
/// Packets of other flows that a flow keeps its place for, while it was not reported.
pub(super) const PATIENCE: u32 = 16;
/// Bytes of the ring by which flows are reported: room for 20,000.
const RING: u32 = 1 << 19;

/// Where the words of a record are: first those of the flow's key, as the table's records have them.
#[derive(Clone, Copy, Debug)]
pub(super) struct CandidateLayout {
    /// The name of the array.
    pub(super) array: &'static str,
    /// Words of a record: a power of two.
    pub(super) words: usize,
    /// Packets of the flow.
    pub(super) count: usize,
    /// Packets of others since it is there.
    pub(super) misses: usize,
    /// Four bits for each flow of the bucket in the table: 0, or its tag. For most flows that are not there
    /// nothing else needs to be looked at.
    pub(super) tags: usize,
    /// The layout of the flows.
    pub(super) flows: FlowLayout,
}

pub(super) const CANDIDATES4: CandidateLayout =
    CandidateLayout { array: "candidates4", words: 8, count: 4, misses: 5, tags: 6, flows: FLOWS4 };
pub(super) const CANDIDATES6: CandidateLayout =
    CandidateLayout { array: "candidates6", words: 16, count: 10, misses: 11, tags: 12, flows: FLOWS6 };

impl CandidateLayout {
    /// Words of a key.
    pub(super) fn key_words(self) -> usize {
        self.flows.ports + 2
    }
}

/// The flows that are counted, and the ring.
pub(super) struct Candidates {
    /// Programs alone write them, except for the tags.
    records: [Words<AtomicU32>; 2],
    pub(super) ring: EventRing,
}

impl Candidates {
    pub(super) fn new(arrays: &SharedArrays) -> io::Result<Candidates> {
        let records = |layout: CandidateLayout| {
            Words::new(arrays, layout.array, layout.words << layout.flows.bucket_bits)
        };
        Ok(Candidates {
            records: [records(CANDIDATES4)?, records(CANDIDATES6)?],
            ring: EventRing::new(RING)?,
        })
    }

    /// The word of tags of a bucket of flows, by its number.
    pub(super) fn tags(&self, is_v6: bool, bucket: usize) -> &AtomicU32 {
        let layout = if is_v6 { CANDIDATES6 } else { CANDIDATES4 };
        &self.records[usize::from(is_v6)][bucket * layout.words + layout.tags]
    }

    /// The next flows of which enough packets came, `most` at most.
    pub(super) fn drain(&mut self, most: usize) -> Vec<FlowKey> {
        let mut keys = Vec::new();
        self.ring.drain(most, |words| keys.extend(read_key(words)));
        keys
    }
}

/// A key from the words of a record.
fn read_key(words: &[u32]) -> Option<FlowKey> {
    let [addresses @ .., ports, protocol] = words else { return None };
    let address = |words: &[u32]| -> Option<IpAddr> {
        let octets: Vec<u8> = words.iter().flat_map(|word| word.to_ne_bytes()).collect();
        match octets.len() {
            4 => <[u8; 4]>::try_from(octets).ok().map(IpAddr::from),
            16 => <[u8; 16]>::try_from(octets).ok().map(IpAddr::from),
            _ => None,
        }
    };
    let (source, destination) = addresses.split_at(addresses.len() / 2);
    Some(FlowKey {
        source: address(source)?,
        destination: address(destination)?,
        ports: ports.to_ne_bytes(),
        protocol: u8::try_from(protocol & !IN_USE).ok()?,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_record_has_room_for_a_key_and_its_counts_and_keys_are_read_as_they_are_written() {
        for layout in [CANDIDATES4, CANDIDATES6] {
            assert_eq!(layout.count, layout.key_words());
            assert!(layout.words.is_power_of_two() && layout.tags < layout.words);
            assert!(layout.count < layout.misses && layout.misses < layout.tags);
        }
        for [source, destination] in [["192.0.2.1", "198.51.100.7"], ["2001:db8::1", "2001:db8:5::9"]] {
            let [source, destination] = [source, destination].map(|text| text.parse().unwrap());
            let key = FlowKey { source, destination, ports: [1, 2, 3, 4], protocol: 17 };
            assert_eq!(read_key(&key.to_words()), Some(key));
        }
        for words in [0, 1, 2, 3, 5, 9, 11] {
            assert_eq!(read_key(&vec![0; words]), None, "{words}");
        }
    }
}
