//! The addresses that the host has at the interfaces of a switch's ports, for rules that speak of them.
use crate::filter::shared::SharedFilter;
use artery_device::HostNews;
use rustix::fd::{AsFd as _, BorrowedFd};
use std::io;
use std::sync::Arc;

/// Hears of addresses, and has rules follow them.
pub(super) struct HostAddresses {
    news: HostNews,
    /// The interfaces of ports by the names that the host has for them.
    devices: Arc<[String]>,
    /// Whether rules have yet to follow.
    is_due: bool,
}

impl HostAddresses {
    /// Of ports that have these interfaces; at first nothing is known.
    pub(super) fn open(devices: &[String]) -> io::Result<HostAddresses> {
        Ok(HostAddresses { news: HostNews::of_addresses()?, devices: devices.into(), is_due: true })
    }

    /// Readable when there is news.
    pub(super) fn file(&self) -> BorrowedFd<'_> {
        self.news.as_fd()
    }

    /// Has rules follow, if anything has changed. What there is no room for now is due the next time.
    pub(super) fn follow(&mut self, rules: &SharedFilter) -> io::Result<()> {
        self.is_due |= self.news.take();
        if self.is_due {
            self.is_due = !rules.follow_addresses(&self.devices)?;
        }
        Ok(())
    }
}
