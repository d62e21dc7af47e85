//! Answers to routes: the same message with the resulting state, as zebra reads it from FRR 8.5 on.
use super::frames::{self, BEGIN};
use super::rib::RouteState;
use artery_netlink::HEADER;
use std::io::{self, Write};

/// Where rtm_flags are in a message.
const FLAGS: std::ops::Range<usize> = HEADER + 8..HEADER + 12;
/// RTM_F_OFFLOAD and RTM_F_OFFLOAD_FAILED (linux/rtnetlink.h).
const OFFLOAD: u32 = 0x4000;
const OFFLOAD_FAILED: u32 = 0x2000_0000;
/// Most pending bytes for a peer that does not read. Further answers are lost, and counted.
const MOST_WAITING: usize = 64 << 20;

/// Answers that wait to be written.
#[derive(Default)]
pub(super) struct Answers {
    bytes: Vec<u8>,
    /// Bytes that were written, of those.
    written: usize,
    pub(super) sent: u64,
    pub(super) lost: u64,
}

impl Answers {
    /// Answers a message, which is known to be a route. Each answer is a message of its own, since zebra
    /// parses only one a message.
    pub(super) fn push(&mut self, message: &[u8], state: RouteState) {
        let len = frames::HEADER + message.len();
        let Ok(short) = u16::try_from(len) else { return };
        if self.pending_bytes() + len > MOST_WAITING {
            self.lost += 1;
            return;
        }
        self.bytes.extend(BEGIN);
        self.bytes.extend(short.to_be_bytes());
        let begin = self.bytes.len();
        self.bytes.extend(message);
        let Some(flags) = self.bytes[begin..].get_mut(FLAGS).and_then(|flags| flags.first_chunk_mut()) else {
            return;
        };
        let state = match state {
            RouteState::Installed | RouteState::Shadowed => OFFLOAD,
            RouteState::Refused(_) => OFFLOAD_FAILED,
        };
        *flags = (u32::from_ne_bytes(*flags) & !(OFFLOAD | OFFLOAD_FAILED) | state).to_ne_bytes();
        self.sent += 1;
    }

    pub(super) fn pending_bytes(&self) -> usize {
        self.bytes.len() - self.written
    }

    /// Writes as much as the stream accepts without waiting.
    pub(super) fn write_pending(&mut self, stream: &mut impl Write) -> io::Result<()> {
        while self.pending_bytes() > 0 {
            match stream.write(&self.bytes[self.written..]) {
                Ok(0) => return Err(io::ErrorKind::WriteZero.into()),
                Ok(count) => self.written += count,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => break,
                Err(error) => return Err(error),
            }
        }
        if self.written >= self.bytes.len() / 2 {
            self.bytes.drain(..self.written);
            self.written = 0;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::super::reason::RejectReason;
    use super::*;
    use artery_netlink::build::{NEW_ROUTE, gateway, route};

    #[test]
    fn an_answer_is_the_message_with_what_became_of_it() {
        let message =
            route(NEW_ROUTE, ("10.9.0.0".parse().unwrap(), 16), 186, &[gateway("10.0.1.9".parse().unwrap())]);
        let mut answers = Answers::default();
        answers.push(&message, RouteState::Installed);
        answers.push(&message, RouteState::Refused(RejectReason::OffLink));
        let mut written = Vec::new();
        answers.write_pending(&mut written).unwrap();
        let len = message.len() + 4;
        assert_eq!((written.len(), answers.pending_bytes()), (2 * len, 0));
        for (answer, flags) in written.chunks(len).zip([OFFLOAD, OFFLOAD_FAILED]) {
            assert_eq!(answer[..4], [1, 1, 0, len as u8]);
            let mut expected = message.clone();
            expected[FLAGS].copy_from_slice(&flags.to_ne_bytes());
            assert_eq!(answer[4..], expected);
        }
    }
}
