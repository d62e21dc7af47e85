//! The sockets of ctnetlink: one for events, one for requests and what the kernel answers.
use super::message::{Event, encode_question, read};
use crate::fast::FlowKey;
use artery_netlink::socket::{connect, listen};
use netlink_sys::Socket;
use netlink_sys::protocols::NETLINK_NETFILTER;
use rustix::fd::{AsFd, BorrowedFd};
use std::io;

/// The group of events about entries that are gone (`NFNLGRP_CONNTRACK_DESTROY`). Events about new and
/// changed ones cost the kernel as much as all else that it does for a connection of a few packets.
const GONE: u32 = 3;
/// Bytes of events that may wait, as far as the kernel allows.
const BACKLOG: usize = 16 << 20;
/// Most bytes of a datagram.
const DATAGRAM: usize = 1 << 13;

/// Both sockets. None of the calls waits.
#[derive(Debug)]
pub(super) struct EntrySockets {
    events: Socket,
    requests: Socket,
}

/// What waited among the events.
pub(super) enum EventsRead {
    Some(Vec<Event>),
    Nothing,
    /// Some were lost (`ENOBUFS`), or are not understood.
    Lost,
}

impl EntrySockets {
    /// Hears of entries that end from now on.
    pub(super) fn open() -> io::Result<EntrySockets> {
        let events = listen(NETLINK_NETFILTER, &[], Some(BACKLOG))?;
        // A kernel without connection tracking has no such group.
        events.add_membership(GONE)?;
        let requests = connect(NETLINK_NETFILTER)?;
        requests.set_non_blocking(true)?;
        Ok(EntrySockets { events, requests })
    }

    /// Asks about the entries of flows; says whether that was sent.
    pub(super) fn ask(&self, keys: &[FlowKey]) -> bool {
        self.request(&keys.iter().flat_map(encode_question).collect::<Vec<u8>>())
    }

    /// Sends a request; says whether it was sent. The kernel has answered it then.
    pub(super) fn request(&self, request: &[u8]) -> bool {
        self.requests.send(request, 0).is_ok()
    }

    /// The next answer. That an entry is gone is an error that comes without being asked for, and is none.
    ///
    /// Events are to be read behind the answers: among those is the end of an entry that an answer shows.
    pub(super) fn next_answer(&self) -> Option<Vec<Event>> {
        let mut buffer = [0; DATAGRAM];
        let length = self.requests.recv(&mut &mut buffer[..], 0).ok()?;
        Some(read(&buffer[..length]).unwrap_or_default())
    }

    /// The next events, without waiting.
    pub(super) fn next_events(&self) -> EventsRead {
        let mut buffer = [0; DATAGRAM];
        match self.events.recv(&mut &mut buffer[..], 0) {
            Ok(length) => read(&buffer[..length]).map_or(EventsRead::Lost, EventsRead::Some),
            Err(error) => match error.kind() {
                io::ErrorKind::WouldBlock => EventsRead::Nothing,
                io::ErrorKind::Interrupted => EventsRead::Some(Vec::new()),
                _ => EventsRead::Lost,
            },
        }
    }
}

impl AsFd for EntrySockets {
    /// What can be read when there are events.
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.events.as_fd()
    }
}
