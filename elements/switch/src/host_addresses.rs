//! The addresses that the host has at the interfaces of a switch's ports, for rules that use them.
use artery_common::frame_filter::FilterCommands;
use artery_device::InterfaceMonitor;
use rustix::fd::{AsFd as _, BorrowedFd};
use std::io;

/// Follows the host's addresses, and updates rules.
pub(super) struct HostAddresses {
    news: InterfaceMonitor,
    /// Whether rules must still be updated.
    is_due: bool,
}

impl HostAddresses {
    /// Starts to listen; the present addresses count as a change.
    pub(super) fn open() -> io::Result<HostAddresses> {
        Ok(HostAddresses { news: InterfaceMonitor::of_addresses()?, is_due: true })
    }

    /// Readable when there is news.
    pub(super) fn news_fd(&self) -> BorrowedFd<'_> {
        self.news.as_fd()
    }

    /// Makes rules follow the addresses, if any has changed. If the task can't be queued, the
    /// next call tries again.
    pub(super) fn sync_rules(&mut self, filter: &mut dyn FilterCommands) -> io::Result<()> {
        self.is_due |= self.news.has_changed();
        if self.is_due {
            self.is_due = !filter.follow_addresses()?;
        }
        Ok(())
    }
}
