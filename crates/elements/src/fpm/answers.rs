//! Answers to routes: the same message, with what became of it, as zebra reads it from FRR 8.5 on.
use super::frames::{self, BEGIN};
use super::rib::State;
use artery_wire::netlink::HEADER;
use std::io::{self, Write};

/// Where rtm_flags are in a message.
const FLAGS: std::ops::Range<usize> = HEADER + 8..HEADER + 12;
/// RTM_F_OFFLOAD and RTM_F_OFFLOAD_FAILED (linux/rtnetlink.h).
const OFFLOAD: u32 = 0x4000;
const OFFLOAD_FAILED: u32 = 0x2000_0000;
/// Bytes that may wait for a sender that does not read. What comes then is lost, and counted.
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
    /// Answers a message, of which it is known to be a route. A message for each
    /// answer: zebra reads one alone.
    pub(super) fn push(&mut self, message: &[u8], state: State) {
        let len = frames::HEADER + message.len();
        let Ok(short) = u16::try_from(len) else { return };
        if self.waiting() + len > MOST_WAITING {
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
            State::Installed | State::Shadowed => OFFLOAD,
            State::Refused(_) => OFFLOAD_FAILED,
        };
        *flags = (u32::from_ne_bytes(*flags) & !(OFFLOAD | OFFLOAD_FAILED) | state).to_ne_bytes();
        self.sent += 1;
    }

    /// Bytes that wait.
    pub(super) fn waiting(&self) -> usize {
        self.bytes.len() - self.written
    }

    /// Writes what the stream takes at once.
    pub(super) fn write(&mut self, stream: &mut impl Write) -> io::Result<()> {
        while self.waiting() > 0 {
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
    use super::super::reason::Reason;
    use super::*;
    use artery_wire::netlink::build::{NEW_ROUTE, gateway, route};

    #[test]
    fn an_answer_is_the_message_with_what_became_of_it() {
        let message =
            route(NEW_ROUTE, ("10.9.0.0".parse().unwrap(), 16), 186, &[gateway("10.0.1.9".parse().unwrap())]);
        let mut answers = Answers::default();
        answers.push(&message, State::Installed);
        answers.push(&message, State::Refused(Reason::OffLink));
        let mut written = Vec::new();
        answers.write(&mut written).unwrap();
        let len = message.len() + 4;
        assert_eq!((written.len(), answers.waiting()), (2 * len, 0));
        for (answer, flags) in written.chunks(len).zip([OFFLOAD, OFFLOAD_FAILED]) {
            assert_eq!(answer[..4], [1, 1, 0, len as u8]);
            let mut expected = message.clone();
            expected[FLAGS].copy_from_slice(&flags.to_ne_bytes());
            assert_eq!(answer[4..], expected);
        }
    }
}
