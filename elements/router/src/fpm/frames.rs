//! FPM messages in a stream of bytes (fpm/fpm.h of FRR): version 1, type 1 for netlink, the length in network
//! order with the header, and then netlink messages.
use super::broken::FpmProtocolError;
use std::io::{self, Read};

/// Bytes of a header.
pub(super) const HEADER: usize = 4;
/// The version, and the type of netlink.
pub(super) const BEGIN: [u8; 2] = [1, 1];
/// Bytes read at once.
pub(super) const READ: usize = 128 << 10;

/// Bytes that were read from a stream and not parsed yet.
#[derive(Default)]
pub(super) struct Frames {
    bytes: Vec<u8>,
    /// Bytes that were read, of those.
    end: usize,
    /// Where the next message begins in the buffer.
    begin: usize,
}

impl Frames {
    /// Reads once; returns the number of bytes, 0 at the end of the stream. Fewer than [`READ`] were
    /// all that were available.
    pub(super) fn read_stream(&mut self, stream: &mut impl Read) -> io::Result<usize> {
        self.bytes.copy_within(self.begin..self.end, 0);
        (self.begin, self.end) = (0, self.end - self.begin);
        if self.bytes.len() < self.end + READ {
            self.bytes.resize(self.end + READ, 0);
        }
        let count = stream.read(&mut self.bytes[self.end..][..READ])?;
        self.end += count;
        Ok(count)
    }

    /// The payload of the next message, once all of it was read.
    pub(super) fn next_payload(&mut self) -> Result<Option<&[u8]>, FpmProtocolError> {
        let rest = &self.bytes[self.begin..self.end];
        let Some((header, _)) = rest.split_first_chunk::<HEADER>() else {
            // An invalid start is reported at once.
            return rest.first().map_or(Ok(None), |version| check_header(*version, BEGIN[1]).map(|()| None));
        };
        let [version, kind, high, low] = *header;
        check_header(version, kind)?;
        let len = u16::from_be_bytes([high, low]);
        if usize::from(len) < HEADER {
            return Err(FpmProtocolError::Length(len));
        }
        let Some(payload) = rest.get(HEADER..len.into()) else { return Ok(None) };
        self.begin += usize::from(len);
        Ok(Some(payload))
    }
}

fn check_header(version: u8, kind: u8) -> Result<(), FpmProtocolError> {
    match [version, kind] {
        BEGIN => Ok(()),
        [1, kind] => Err(FpmProtocolError::Type(kind)),
        [version, _] => Err(FpmProtocolError::Version(version)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn all(frames: &mut Frames) -> Vec<Vec<u8>> {
        std::iter::from_fn(|| frames.next_payload().unwrap().map(<[u8]>::to_vec)).collect()
    }

    #[test]
    fn messages_come_out_whole_however_they_are_cut() {
        let stream = [&[1, 1, 0, 7, 1, 2, 3][..], &[1, 1, 0, 4], &[1, 1, 1, 4], &[9; 256]].concat();
        let whole: [&[u8]; 3] = [&[1, 2, 3], &[], &[9; 256]];
        let read = |parts: Vec<&[u8]>| {
            let (mut frames, mut taken) = (Frames::default(), Vec::new());
            for mut part in parts {
                frames.read_stream(&mut part).unwrap();
                taken.extend(all(&mut frames));
            }
            taken
        };
        for cut in 0..=stream.len() {
            assert_eq!(read(vec![&stream[..cut], &stream[cut..]]), whole, "cut at {cut}");
        }
        assert_eq!(read(stream.chunks(1).collect()), whole, "byte by byte");
    }

    #[test]
    fn the_longest_message_is_taken_and_the_buffer_stays_bounded() {
        let mut frames = Frames::default();
        let stream = [&[1, 1, 0xff, 0xff][..], &[7; 65531]].concat();
        for _ in 0..50 {
            let mut part = &stream[..];
            while !part.is_empty() {
                frames.read_stream(&mut part).unwrap();
            }
            assert_eq!(all(&mut frames), [vec![7; 65531]]);
        }
        assert!(frames.bytes.len() <= 2 * READ + 65535, "{}", frames.bytes.len());
    }

    #[test]
    fn what_is_no_fpm_message_is_said() {
        for (bytes, why) in [
            (&[0x16, 3, 1, 2][..], FpmProtocolError::Version(0x16)),
            (b"G", FpmProtocolError::Version(b'G')),
            (&[1, 2, 0, 9], FpmProtocolError::Type(2)),
            (&[1, 1, 0, 3], FpmProtocolError::Length(3)),
        ] {
            let mut frames = Frames::default();
            frames.read_stream(&mut &*bytes).unwrap();
            assert_eq!(frames.next_payload(), Err(why));
        }
    }
}
