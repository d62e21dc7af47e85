//! The addresses that the host has at the interfaces of a switch's ports, for rules that speak of them.
use crate::filter::shared::SharedFilter;
use artery_device::HostNews;
use rustix::fd::{AsFd as _, BorrowedFd};
use std::io;

/// Hears of addresses, and has rules follow them.
pub(super) struct HostAddresses {
    news: HostNews,
    /// Whether rules have yet to follow.
    is_due: bool,
}

impl HostAddresses {
    /// Hears from now on; what there was before is news, too.
    pub(super) fn open() -> io::Result<HostAddresses> {
        Ok(HostAddresses { news: HostNews::of_addresses()?, is_due: true })
    }

    /// Readable when there is news.
    pub(super) fn file(&self) -> BorrowedFd<'_> {
        self.news.as_fd()
    }

    /// Has rules follow, if anything has changed. What there is no room for now is due the next time.
    pub(super) fn follow(&mut self, rules: &SharedFilter) -> io::Result<()> {
        self.is_due |= self.news.take();
        if self.is_due {
            self.is_due = !rules.follow_addresses()?;
        }
        Ok(())
    }
}
