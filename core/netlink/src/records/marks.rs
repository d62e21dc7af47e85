//! Measures how long the kernel's notifications wait to be read, by messages that this process sends to its
//! own socket: they queue up behind the notifications that are already there.
use super::{HEADER, NLMSG_NOOP};
use netlink_sys::{Socket, SocketAddr, protocols::NETLINK_ROUTE};
use rustix::io::Errno;
use std::io;
use std::time::{Duration, Instant};

/// How long the last measurement counts.
const VALID: Duration = Duration::from_secs(1);

/// Marks in the queue of a socket, one at a time.
#[derive(Debug)]
pub(super) struct Marks {
    socket: Socket,
    to: SocketAddr,
    sequence: u32,
    /// When the last was sent, if it is yet to be read.
    sent: Option<Instant>,
    /// How long the last had waited, and when it was read.
    last: Option<(Duration, Instant)>,
    /// Whether none can be sent: that takes CAP_NET_ADMIN.
    is_refused: bool,
}

impl Marks {
    pub(super) fn open(to: SocketAddr) -> io::Result<Marks> {
        let mut socket = Socket::new(NETLINK_ROUTE)?;
        socket.set_non_blocking(true)?;
        socket.bind_auto()?;
        Ok(Marks { socket, to, sequence: 0, sent: None, last: None, is_refused: false })
    }

    pub(super) fn send(&mut self, now: Instant) {
        if self.sent.is_some() || self.is_refused {
            return;
        }
        self.sequence = self.sequence.wrapping_add(1);
        let mut message = [0; HEADER];
        message[..4].copy_from_slice(&(HEADER as u32).to_ne_bytes());
        message[4..6].copy_from_slice(&NLMSG_NOOP.to_ne_bytes());
        message[8..12].copy_from_slice(&self.sequence.to_ne_bytes());
        match self.socket.send_to(&message, &self.to, 0) {
            // Where the queue is full nothing can be put behind it: that lasts until all of it is read.
            Ok(_) => self.sent = Some(now),
            Err(error) if Errno::from_io_error(&error) == Some(Errno::AGAIN) => self.sent = Some(now),
            Err(error) => self.is_refused = error.kind() == io::ErrorKind::PermissionDenied,
        }
    }

    /// A mark was read.
    pub(super) fn found(&mut self, sequence: u32, now: Instant) {
        if sequence == self.sequence {
            self.all_read(now);
        }
    }

    /// All was read that was there when the last mark was sent.
    pub(super) fn all_read(&mut self, now: Instant) {
        if let Some(sent) = self.sent.take() {
            self.last = Some((now.saturating_duration_since(sent), now));
        }
    }

    pub(super) fn lag(&self, now: Instant) -> Option<Duration> {
        let pending = self.sent.map(|sent| now.saturating_duration_since(sent));
        let is_valid = |(_, read): &(Duration, Instant)| now.saturating_duration_since(*read) < VALID;
        let last = self.last.filter(is_valid).map(|(lag, _)| lag);
        (!self.is_refused).then(|| pending.max(last).unwrap_or_default())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::records::{ChangeMonitor, ReadOutcome};

    #[test]
    fn what_waits_in_the_queue_is_measured_until_it_is_read() {
        let mut follower = ChangeMonitor::of_routes(1 << 16).unwrap();
        follower.mark();
        if follower.marks.as_ref().is_none_or(|marks| marks.is_refused) {
            return eprintln!("skipped: needs CAP_NET_ADMIN");
        }
        let sent = follower.marks.as_ref().unwrap().sent.unwrap();
        let after = |seconds| sent + Duration::from_secs(seconds);
        assert_eq!(follower.lag(after(7)), Some(Duration::from_secs(7)), "not read yet");
        while follower.read(|_| ()).unwrap() != ReadOutcome::Nothing {}
        let (waited, read) = follower.marks.as_ref().unwrap().last.unwrap();
        assert_eq!(follower.lag(read), Some(waited));
        assert_eq!(follower.lag(read + VALID), Some(Duration::ZERO), "nothing was reported since");
    }
}
