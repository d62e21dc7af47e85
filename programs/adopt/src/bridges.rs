//! Follows the forwarding databases of adopted bridges and the states of their members, for the accelerator.
//!
//! What of a bridge keeps it in the kernel altogether is found by `blockers`.
mod message;

#[cfg(test)]
pub(crate) use message::BridgeSettings;
pub(crate) use message::{BridgeLink, MemberSettings, dump_links};

use crate::fast::{Accelerator, FdbEntry};
use artery_netlink::request as netlink;
use artery_netlink::socket::listen;
use artery_wire::EtherAddr;
use message::{FdbRecord, GONE_NEIGHBOR, NEW_NEIGHBOR, dump_fdb};
use netlink_sys::Socket;
use netlink_sys::protocols::NETLINK_ROUTE;
use rustix::fd::{AsFd, BorrowedFd};
use std::collections::HashSet;
use std::io;
use std::time::{Duration, Instant};

/// The multicast groups of links and neighbors.
const GROUPS: [u32; 2] = [1, 3];
/// Bytes of events that may wait, as far as the kernel allows.
const BACKLOG: usize = 16 << 20;
/// Events that are read at once.
const AT_ONCE: usize = 4096;
/// How often all is read again without a reason.
const INTERVAL: Duration = Duration::from_secs(60);

/// Follows bridges by the kernel's events.
#[derive(Debug)]
pub(crate) struct BridgeFollower {
    events: Socket,
    /// Whether states of members, and forwarding databases, are to be read again.
    needs_links: bool,
    needs_fdb: bool,
    last: Option<Instant>,
}

impl BridgeFollower {
    /// Listens from now on.
    pub(crate) fn open() -> io::Result<BridgeFollower> {
        let events = listen(NETLINK_ROUTE, &GROUPS, Some(BACKLOG))?;
        Ok(BridgeFollower { events, needs_links: true, needs_fdb: true, last: None })
    }

    /// Reads states and databases again at the next turn: there are other members.
    pub(crate) fn request_resync(&mut self) {
        (self.needs_links, self.needs_fdb) = (true, true);
    }

    /// Applies what has changed. Says whether there may be more.
    pub(crate) fn poll(&mut self, now: Instant, accelerator: &mut Accelerator) -> io::Result<bool> {
        let has_more = self.apply_events(accelerator);
        if self.last.is_none_or(|last| now.saturating_duration_since(last) >= INTERVAL) {
            self.last = Some(now);
            self.request_resync();
        }
        if std::mem::take(&mut self.needs_links) {
            let read = read_states(accelerator);
            self.needs_links |= read.is_err();
            read?;
        }
        if std::mem::take(&mut self.needs_fdb) {
            let read = read_fdb(accelerator);
            self.needs_fdb |= read.is_err();
            read?;
        }
        Ok(has_more)
    }

    fn apply_events(&mut self, accelerator: &mut Accelerator) -> bool {
        for _ in 0..AT_ONCE {
            match self.events.recv_from_full() {
                Ok((bytes, _)) => self.apply_datagram(&bytes, accelerator),
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return false,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                // Events were lost: until all is read again nothing is known.
                Err(_) => {
                    forget_all(accelerator);
                    self.request_resync();
                }
            }
        }
        true
    }

    fn apply_datagram(&mut self, bytes: &[u8], accelerator: &mut Accelerator) {
        let Ok(datagram) = netlink::read(bytes) else { return self.request_resync() };
        for message in datagram.into_messages() {
            match message.kind {
                NEW_NEIGHBOR | GONE_NEIGHBOR => {
                    if let Ok(Some(record)) = FdbRecord::read(&message.body) {
                        apply_record(&record, message.kind == GONE_NEIGHBOR, accelerator);
                    }
                }
                _ => self.needs_links = true,
            }
        }
    }
}

impl AsFd for BridgeFollower {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.events.as_fd()
    }
}

/// Applies an entry, or that it is gone.
fn apply_record(record: &FdbRecord, is_gone: bool, accelerator: &mut Accelerator) {
    let FdbRecord { bridge, link, mac, .. } = *record;
    if !accelerator.is_bridge(bridge) {
        return;
    }
    let is_known = !is_gone && !record.is_own && !record.is_locked;
    let entry = is_known.then_some(FdbEntry { member: link, ages: record.ages });
    accelerator.set_fdb_entry(bridge, mac, entry);
    accelerator.set_fdb_own(bridge, mac, record.is_own && !is_gone);
}

fn forget_all(accelerator: &mut Accelerator) {
    let bridges: Vec<u32> = accelerator.bridges().collect();
    bridges.into_iter().for_each(|bridge| forget_except(bridge, &HashSet::new(), accelerator));
}

/// Forgets what is known of a bridge, except for some addresses.
fn forget_except(bridge: u32, found: &HashSet<(u32, EtherAddr)>, accelerator: &mut Accelerator) {
    let (entries, own) = accelerator.fdb_addresses(bridge);
    let is_lost = |mac: &EtherAddr| !found.contains(&(bridge, *mac));
    entries.into_iter().filter(is_lost).for_each(|mac| accelerator.set_fdb_entry(bridge, mac, None));
    own.into_iter().filter(is_lost).for_each(|mac| accelerator.set_fdb_own(bridge, mac, false));
}

/// Compares all databases with what is known.
fn read_fdb(accelerator: &mut Accelerator) -> io::Result<()> {
    let records = dump_fdb()?;
    let found: HashSet<_> = records.iter().map(|record| (record.bridge, record.mac)).collect();
    let bridges: Vec<u32> = accelerator.bridges().collect();
    bridges.into_iter().for_each(|bridge| forget_except(bridge, &found, accelerator));
    records.iter().for_each(|record| apply_record(record, false, accelerator));
    Ok(())
}

/// Sets which members forward, and how often entries are renewed.
fn read_states(accelerator: &mut Accelerator) -> io::Result<()> {
    let ticks = accelerator.lease().ticks_of_a_second()?.max(1);
    let links = dump_links()?;
    let settings_of = |bridge: u32| {
        links.iter().find_map(|(link, what)| match what {
            BridgeLink::Bridge(settings) if *link == bridge => Some(*settings),
            _ => None,
        })
    };
    let state_of = |member: u32, of: u32| {
        links.iter().find_map(|(link, what)| match what {
            BridgeLink::Member { bridge, settings } if *link == member && *bridge == of => Some(*settings),
            _ => None,
        })
    };
    let bridges: Vec<u32> = accelerator.bridges().collect();
    for bridge in bridges {
        // Nothing is known of one without settings: all its frames go to the kernel.
        let interval = settings_of(bridge).map_or(0, |settings| settings.renewal_interval(ticks));
        let members: Vec<u32> = accelerator.bridge_members(bridge).collect();
        for member in members {
            let forwards = state_of(member, bridge).is_some_and(|state| state.forwards());
            accelerator.set_member_state(member, forwards, interval);
        }
    }
    Ok(())
}
