//! One IPv4 packet put together of its fragments, in whatever order they come (RFC 791 section 3.2).
//!
//! Which fragments belong together, by addresses, protocol and identification, and for how long to wait for
//! the rest, is decided elsewhere.

use std::error::Error;
use std::fmt;
use std::ops::Range;

use crate::{Ipv4, Malformed};

/// Most parts with gaps between them that are kept: fragments arrive nearly in order,
/// or someone fills memory.
const MAX_PARTS: usize = 64;
const MAX_LEN: usize = 65_535;
const UNIT: usize = 8;

/// Why fragments make no packet: what was collected is of no use any more.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum CannotAssemble {
    /// A header is malformed, or its lengths do not fit together.
    Malformed(Malformed),
    /// A fragment other than the last has not a multiple of 8 bytes.
    Uneven,
    /// The whole would be longer than a packet can be.
    TooLong,
    /// Two fragments disagree about the end.
    Ends,
    /// Two fragments overlap without being the same.
    Overlap,
    /// There are too many gaps.
    Gaps,
}

impl fmt::Display for CannotAssemble {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            CannotAssemble::Malformed(malformed) => return malformed.fmt(f),
            CannotAssemble::Uneven => "fragment of odd length",
            CannotAssemble::TooLong => "fragment beyond the longest packet",
            CannotAssemble::Ends => "fragments disagree about the end",
            CannotAssemble::Overlap => "overlapping fragments",
            CannotAssemble::Gaps => "too many gaps between fragments",
        })
    }
}

impl Error for CannotAssemble {}

/// The parts of a packet that have arrived.
#[derive(Clone, Debug, Default)]
pub struct Ipv4Assembly {
    /// The first fragment's, once it came.
    header: Vec<u8>,
    payload: Vec<u8>,
    /// Which bytes of the payload are there: sorted, with gaps between.
    parts: Vec<Range<usize>>,
    /// Where the payload ends, once the last fragment came.
    end: Option<usize>,
}

impl Ipv4Assembly {
    /// Adds a fragment; returns the packet once it is whole.
    pub fn add_fragment(&mut self, fragment: &[u8]) -> Result<Option<Vec<u8>>, CannotAssemble> {
        let ip = Ipv4::validate_lengths(fragment).map_err(CannotAssemble::Malformed)?;
        let (from, payload) = (ip.fragment_offset(), ip.payload());
        let part = from..from + payload.len();
        self.check_end(&part, ip.more_fragments(), ip.header_len())?;
        self.fill_payload(part, payload)?;
        if from == 0 {
            self.header = ip.header().to_vec();
        }
        Ok(self.whole_packet())
    }

    /// Returns how many bytes of memory the fragments take.
    pub fn memory(&self) -> usize {
        self.header.len() + self.payload.len()
    }

    /// Returns the packet as far as it is there from its beginning, for an error to quote: without the first
    /// fragment none is sent (RFC 792).
    pub fn first_fragment(&self) -> Option<Vec<u8>> {
        let first = self.parts.first().filter(|part| part.start == 0 && !self.header.is_empty())?;
        let end = first.end.min(MAX_LEN - self.header.len());
        Some(self.build_packet(&self.payload[..end]))
    }

    fn check_end(
        &mut self,
        part: &Range<usize>,
        more: bool,
        header_len: usize,
    ) -> Result<(), CannotAssemble> {
        if part.end + header_len > MAX_LEN {
            return Err(CannotAssemble::TooLong);
        }
        if more && (part.is_empty() || !part.len().is_multiple_of(UNIT)) {
            return Err(CannotAssemble::Uneven);
        }
        let known = self.end.unwrap_or(part.end);
        let is_beyond = part.end > known || !more && self.payload.len() > part.end;
        if is_beyond || !more && part.end != known {
            return Err(CannotAssemble::Ends);
        }
        if !more {
            self.end = Some(part.end);
        }
        Ok(())
    }

    /// Puts bytes where they belong; those that were there must be the same.
    fn fill_payload(&mut self, part: Range<usize>, bytes: &[u8]) -> Result<(), CannotAssemble> {
        if self.payload.len() < part.end {
            self.payload.resize(part.end, 0);
        }
        let room = &mut self.payload[part.clone()];
        if self.parts.iter().any(|there| there.start <= part.start && part.end <= there.end) {
            return if room == bytes { Ok(()) } else { Err(CannotAssemble::Overlap) };
        }
        if self.parts.iter().any(|there| there.start < part.end && part.start < there.end) {
            return Err(CannotAssemble::Overlap);
        }
        room.copy_from_slice(bytes);
        self.insert_part(part)
    }

    /// Notes a part that overlaps none, joined with its neighbors.
    fn insert_part(&mut self, part: Range<usize>) -> Result<(), CannotAssemble> {
        let at = self.parts.partition_point(|there| there.start < part.start);
        self.parts.insert(at, part);
        self.parts.dedup_by(|after, before| {
            let meet = before.end == after.start;
            if meet {
                before.end = after.end;
            }
            meet
        });
        if self.parts.len() > MAX_PARTS { Err(CannotAssemble::Gaps) } else { Ok(()) }
    }

    fn whole_packet(&self) -> Option<Vec<u8>> {
        let end = self.end?;
        let is_whole = self.parts == [Range { start: 0, end }] && !self.header.is_empty();
        (is_whole && self.header.len() + end <= MAX_LEN).then(|| self.build_packet(&self.payload))
    }

    /// The first fragment's header, changed to that of a packet which is none, and a payload.
    fn build_packet(&self, payload: &[u8]) -> Vec<u8> {
        const DONT_FRAGMENT: u16 = 0x4000;
        let mut bytes = [&self.header, payload].concat();
        let total = bytes.len() as u16;
        let mut ip = Ipv4::new(&mut bytes).expect("the header is that of a fragment");
        ip.set_total_length(total);
        ip.set_fragment_field(ip.fragment_field() & DONT_FRAGMENT);
        ip.fill_checksum();
        bytes
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Ipv4Fragments;
    use crate::build::ip4;
    use proptest::prelude::*;

    fn fragment(from: usize, bytes: &[u8], more: bool) -> Vec<u8> {
        ip4().fragment(from, more).raw(17, bytes).bytes()
    }

    #[track_caller]
    fn expect_refused(fragments: &[Vec<u8>], why: CannotAssemble) {
        let mut assembly = Ipv4Assembly::default();
        let (last, before) = fragments.split_last().unwrap();
        before.iter().for_each(|fragment| assert_eq!(assembly.add_fragment(fragment), Ok(None)));
        assert_eq!(assembly.add_fragment(last), Err(why));
    }

    #[test]
    fn a_packet_that_is_no_fragment_is_whole_at_once() {
        let packet = ip4().udp(1, 2).payload([7; 30]).bytes();
        assert_eq!(Ipv4Assembly::default().add_fragment(&packet), Ok(Some(packet)));
    }

    #[test]
    fn fragments_that_contradict_one_another_are_refused() {
        use CannotAssemble::*;
        let (first, last) = (fragment(0, &[1; 16], true), fragment(16, &[2; 5], false));
        expect_refused(&[first.clone(), fragment(8, &[1; 16], true)], Overlap);
        expect_refused(&[first.clone(), fragment(8, &[9; 8], true)], Overlap);
        expect_refused(&[last.clone(), fragment(16, &[2; 8], true)], Ends);
        expect_refused(&[last.clone(), fragment(24, &[2; 8], false)], Ends);
        expect_refused(&[first, fragment(8, &[1; 7], false)], Ends);
        expect_refused(&[fragment(0, &[1; 12], true)], Uneven);
        expect_refused(&[fragment(8, &[], true)], Uneven);
        expect_refused(&[fragment(65_528, &[1; 8], false)], TooLong);
        expect_refused(&[last[..24].to_vec()], Malformed(crate::Malformed::Length));
        let gaps: Vec<_> = (0..65).map(|n| fragment(n * 16, &[0; 8], true)).collect();
        expect_refused(&gaps, Gaps);
    }

    #[test]
    fn the_beginning_is_kept_for_an_error() {
        let mut assembly = Ipv4Assembly::default();
        assembly.add_fragment(&fragment(16, &[2; 8], true)).unwrap();
        assert_eq!(assembly.first_fragment(), None);
        assembly.add_fragment(&fragment(0, &[1; 8], true)).unwrap();
        assert_eq!(assembly.first_fragment(), Some(ip4().raw(17, [1; 8]).bytes()));
        assert_eq!(assembly.memory(), 20 + 24);
    }

    proptest! {
        #[test]
        fn fragments_in_any_order_some_twice_make_the_packet(
            payload in prop::collection::vec(any::<u8>(), 0..3000),
            mtu in 68_usize..900,
            order in prop::collection::vec(any::<prop::sample::Index>(), 0..90),
        ) {
            let packet = ip4().id(7).options([131, 3, 4]).raw(17, &payload).bytes();
            let fragments: Vec<_> = Ipv4Fragments::split_packet(&packet, mtu)
                .unwrap()
                .map(|fragment| fragment.to_bytes())
                .collect();
            let mut assembly = Ipv4Assembly::default();
            let mut missing: Vec<_> = (0..fragments.len()).collect();
            let drawn = order.iter().map(|index| index.index(fragments.len())).collect::<Vec<_>>();
            for n in drawn.into_iter().chain(0..fragments.len()) {
                missing.retain(|other| *other != n);
                let made = assembly.add_fragment(&fragments[n]).unwrap();
                prop_assert_eq!(made, missing.is_empty().then(|| packet.clone()));
            }
        }

        #[test]
        fn any_fragments_are_survived(
            fragments in prop::collection::vec((0_usize..8, 0_usize..40, any::<bool>()), 0..20),
        ) {
            let mut assembly = Ipv4Assembly::default();
            for (from, len, more) in fragments {
                if let Ok(Some(packet)) = assembly.add_fragment(&fragment(from * 8, &vec![1; len], more)) {
                    prop_assert!(Ipv4::new(&packet).unwrap().check_total_length().is_ok());
                }
                prop_assert!(assembly.memory() < 20 + 7 * 8 + 40);
            }
        }
    }
}
