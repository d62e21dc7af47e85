//! What a worker sleeps on: the files its elements watch, its mailbox, and time.
use rustix::event::epoll::{self, CreateFlags, Event, EventData, EventFlags};
use rustix::event::{EventfdFlags, Timespec, eventfd};
use rustix::io::Errno;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::time::Duration;

/// What a file must be ready for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Interest {
    /// There is something to read.
    Readable,
    /// There is room to write.
    Writable,
}

/// Wakes a worker from its sleep, from any thread.
#[derive(Debug)]
pub(crate) struct Waker(OwnedFd);

impl Waker {
    pub(crate) fn new() -> Result<Waker, Errno> {
        Ok(Waker(eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?))
    }
    pub(crate) fn wake(&self) {
        // The only error is a counter at its limit, which wakes just as well.
        let _ = rustix::io::write(&self.0, &1u64.to_ne_bytes());
    }
    fn clear_wakeups(&self) {
        let _ = rustix::io::read(&self.0, &mut [0u8; 8]);
    }
}

/// The event number of the waker; elements have their node numbers.
const WAKER: u64 = u64::MAX;

/// One worker's epoll set.
#[derive(Debug)]
pub(crate) struct Events {
    epoll: OwnedFd,
}

impl Events {
    pub(crate) fn new(waker: &Waker) -> Result<Events, Errno> {
        let epoll = epoll::create(CreateFlags::CLOEXEC)?;
        epoll::add(&epoll, waker.0.as_fd(), EventData::new_u64(WAKER), EventFlags::IN)?;
        Ok(Events { epoll })
    }

    /// Tells of `node` once when the file is ready.
    pub(crate) fn watch_file(
        &self,
        file: BorrowedFd<'_>,
        node: usize,
        interest: Interest,
    ) -> Result<(), Errno> {
        let flags = EventFlags::ONESHOT
            | match interest {
                Interest::Readable => EventFlags::IN,
                Interest::Writable => EventFlags::OUT,
            };
        let data = EventData::new_u64(node as u64);
        match epoll::modify(&self.epoll, file, data, flags) {
            Err(Errno::NOENT) => epoll::add(&self.epoll, file, data, flags),
            done => done,
        }
    }

    /// Waits up to `limit` (for ever without one) and calls `ready` with each node whose file is ready.
    /// Clears the waker and returns whether it had been signalled: the caller checks afterwards what for.
    pub(crate) fn wait_ready(
        &self,
        waker: &Waker,
        limit: Option<Duration>,
        ready: impl FnMut(usize),
    ) -> bool {
        let is_signalled = self.collect_ready(limit, ready);
        if is_signalled {
            waker.clear_wakeups();
        }
        is_signalled
    }
    /// Calls `ready` with each node whose file is ready now. Leaves the waker signalled: a worker that goes
    /// to sleep after this poll must still wake up by it.
    pub(crate) fn poll_ready(&self, ready: impl FnMut(usize)) {
        self.collect_ready(Some(Duration::ZERO), ready);
    }

    /// Returns whether the waker was signalled.
    fn collect_ready(&self, limit: Option<Duration>, mut ready: impl FnMut(usize)) -> bool {
        let mut events = [Event { flags: EventFlags::empty(), data: EventData::new_u64(0) }; 64];
        let limit = limit.map(|limit| Timespec {
            tv_sec: limit.as_secs().min(i64::MAX as u64) as i64,
            tv_nsec: limit.subsec_nanos().into(),
        });
        // An interrupted wait is one that was short.
        let count = epoll::wait(&self.epoll, &mut events[..], limit.as_ref()).unwrap_or(0);
        let mut is_signalled = false;
        for event in &events[..count] {
            match event.data.u64() {
                WAKER => is_signalled = true,
                node => ready(node as usize),
            }
        }
        is_signalled
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_poll_of_the_files_leaves_the_waker_signalled_and_a_wait_clears_it() {
        let waker = Waker::new().unwrap();
        let events = Events::new(&waker).unwrap();
        waker.wake();
        events.poll_ready(|_| unreachable!("no file is watched"));
        assert!(events.collect_ready(Some(Duration::ZERO), |_| ()), "the poll cleared the waker");
        assert!(events.wait_ready(&waker, None, |_| unreachable!("no file is watched")));
        assert!(!events.collect_ready(Some(Duration::ZERO), |_| ()));
    }
}
