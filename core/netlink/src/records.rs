//! Sockets for dumps and notifications of the kernel's links, addresses, routes, next-hop objects, neighbors
//! and rules, by rtnetlink. Only records come from here; conclusions are drawn elsewhere.
use crate::socket::{connect, listen};
use crate::{
    Family, HEADER, Message, Messages, NLM_F_DUMP, NLM_F_DUMP_INTR, NLM_F_REQUEST, NLMSG_DONE, NLMSG_ERROR,
    News,
};
use marks::Marks;
use netlink_sys::{Socket, SocketAddr, protocols::NETLINK_ROUTE};
use rustix::fd::{AsFd, BorrowedFd};
use rustix::io::Errno;
use rustix::net::RecvFlags;
use std::io;
use std::time::{Duration, Instant};

mod marks;

/// What says nothing (netlink(7)).
const NLMSG_NOOP: u16 = 1;

/// Bytes read at once. The kernel puts no more than half of that into a datagram of a dump.
const BUFFER: usize = 64 << 10;

/// The multicast groups of changes (RTNLGRP_…): links, neighbors, addresses, routes, rules and settings
/// of both families, next-hop objects.
const ALL_GROUPS: [u32; 11] = [1, 3, 5, 7, 8, 9, 11, 19, 24, 25, 32];
/// Those of links, of routes of both families, and of next-hop objects.
const ROUTE_GROUPS: [u32; 4] = [1, 7, 11, 32];

/// A kind of record that can be dumped.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum RecordKind {
    /// Interfaces, as `ip link` lists them.
    Links,
    /// Settings of interfaces (`ip netconf`).
    Settings(Family),
    /// Addresses of all interfaces.
    Addresses(Family),
    /// Next-hop objects (`ip nexthop`).
    NextHops,
    /// Routing rules (`ip rule`).
    Rules(Family),
    /// Routes, of all tables.
    Routes(Family),
    /// Neighbors of all interfaces.
    Neighbors(Family),
}

impl RecordKind {
    /// All of them, each behind what it refers to.
    pub const ALL: [RecordKind; 12] = [
        RecordKind::Links,
        RecordKind::Settings(Family::V4),
        RecordKind::Settings(Family::V6),
        RecordKind::Addresses(Family::V4),
        RecordKind::Addresses(Family::V6),
        RecordKind::NextHops,
        RecordKind::Rules(Family::V4),
        RecordKind::Rules(Family::V6),
        RecordKind::Routes(Family::V4),
        RecordKind::Routes(Family::V6),
        RecordKind::Neighbors(Family::V4),
        RecordKind::Neighbors(Family::V6),
    ];

    /// The request for it: its number, the length of its header, and the family that the header begins with.
    fn request(self) -> (u16, usize, u8) {
        match self {
            RecordKind::Links => (18, 16, 0),
            RecordKind::Addresses(family) => (22, 8, family.number()),
            RecordKind::Routes(family) => (26, 12, family.number()),
            RecordKind::Neighbors(family) => (30, 12, family.number()),
            RecordKind::Rules(family) => (34, 12, family.number()),
            RecordKind::Settings(family) => (82, 4, family.number()),
            RecordKind::NextHops => (106, 8, 0),
        }
    }
}

/// How far a dump has come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DumpProgress {
    /// The kernel may have written more.
    More,
    /// The kernel has not written more yet.
    Waiting,
    /// The dump is complete.
    Done {
        /// Whether the kernel says that it changed meanwhile, so that something may be missing.
        was_interrupted: bool,
    },
}

/// A socket on which the kernel dumps all records of a kind.
#[derive(Debug)]
pub struct RecordDump {
    socket: Socket,
    buffer: Vec<u8>,
    sequence: u32,
    was_interrupted: bool,
}

impl RecordDump {
    /// Opens the netlink socket; no dump has begun.
    pub fn open() -> io::Result<RecordDump> {
        let socket = connect(NETLINK_ROUTE)?;
        // A kernel that does not check requests strictly sends more than was requested; the rest is ignored.
        let _ = socket.set_netlink_get_strict_chk(true);
        Ok(RecordDump { socket, buffer: vec![0; BUFFER], sequence: 0, was_interrupted: false })
    }

    /// Requests all records of a kind.
    pub fn begin(&mut self, part: RecordKind) -> io::Result<()> {
        self.sequence = self.sequence.wrapping_add(1);
        self.was_interrupted = false;
        let (kind, header, family) = part.request();
        let mut request = vec![0; HEADER + header];
        let len = request.len() as u32;
        request[..4].copy_from_slice(&len.to_ne_bytes());
        request[4..6].copy_from_slice(&kind.to_ne_bytes());
        request[6..8].copy_from_slice(&(NLM_F_REQUEST | NLM_F_DUMP).to_ne_bytes());
        request[8..12].copy_from_slice(&self.sequence.to_ne_bytes());
        request[HEADER] = family;
        self.socket.send(&request, 0).map(drop)
    }

    /// Reads the next records, if the kernel has written some.
    pub fn read(&mut self, mut each: impl FnMut(News)) -> io::Result<DumpProgress> {
        let len = match rustix::net::recv(&self.socket, &mut self.buffer[..], RecvFlags::DONTWAIT) {
            Ok((_, len)) => len,
            Err(Errno::AGAIN | Errno::INTR) => return Ok(DumpProgress::Waiting),
            Err(error) => return Err(error.into()),
        };
        for message in Messages(&self.buffer[..len]).filter(|message| message.sequence == self.sequence) {
            self.was_interrupted |= message.flags & NLM_F_DUMP_INTR != 0;
            match message.kind {
                // The last message carries an error that occurred during the dump.
                NLMSG_DONE if !is_error(&message) => {
                    return Ok(DumpProgress::Done { was_interrupted: self.was_interrupted });
                }
                NLMSG_DONE | NLMSG_ERROR => return refused(&message),
                _ => News::parse_message(&message).into_iter().for_each(&mut each),
            }
        }
        Ok(DumpProgress::More)
    }
}

/// Whether the number that a message begins with is that of an error.
fn is_error(message: &Message<'_>) -> bool {
    message.error_code() < 0
}

/// What an error means: a kernel that does not know a part has none of it.
fn refused(message: &Message<'_>) -> io::Result<DumpProgress> {
    let errno = message.error_code().saturating_neg();
    match [Errno::OPNOTSUPP, Errno::AFNOSUPPORT].map(Errno::raw_os_error).contains(&errno) {
        true => Ok(DumpProgress::Done { was_interrupted: false }),
        false => Err(io::Error::from_raw_os_error(errno)),
    }
}

impl AsFd for RecordDump {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}

/// What came of listening.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ReadOutcome {
    /// There may be more.
    More,
    /// Nothing is left to read.
    Nothing,
    /// The kernel could not keep all that has changed: some of it was lost.
    Overrun,
}

/// A socket on which the kernel announces changes, in the order in which they happened.
#[derive(Debug)]
pub struct ChangeMonitor {
    socket: Socket,
    buffer: Vec<u8>,
    marks: Option<Marks>,
}

impl ChangeMonitor {
    /// Subscribes to changes from now on. About `backlog` bytes of them may wait to be read.
    pub fn open(backlog: usize) -> io::Result<ChangeMonitor> {
        ChangeMonitor::of_groups(backlog, &ALL_GROUPS)
    }

    /// The same, of links, routes and next-hop objects alone.
    pub fn of_routes(backlog: usize) -> io::Result<ChangeMonitor> {
        ChangeMonitor::of_groups(backlog, &ROUTE_GROUPS)
    }

    fn of_groups(backlog: usize, groups: &[u32]) -> io::Result<ChangeMonitor> {
        let socket = listen(NETLINK_ROUTE, groups, Some(backlog))?;
        let mut own = SocketAddr::new(0, 0);
        socket.get_address(&mut own)?;
        Ok(ChangeMonitor { socket, buffer: vec![0; BUFFER], marks: Marks::open(own).ok() })
    }

    /// Begins to measure how long a notification now waits to be read, unless a measurement is running.
    pub fn mark(&mut self) {
        self.marks.iter_mut().for_each(|marks| marks.send(Instant::now()));
    }

    /// How long what was read last had waited, or what is yet to be read has at least; none without the
    /// right to measure it.
    pub fn lag(&self, now: Instant) -> Option<Duration> {
        self.marks.as_ref()?.lag(now)
    }

    /// Reads the next change.
    pub fn read(&mut self, mut each: impl FnMut(News)) -> io::Result<ReadOutcome> {
        let flags = RecvFlags::DONTWAIT | RecvFlags::TRUNC;
        let len = match rustix::net::recv(&self.socket, &mut self.buffer[..], flags) {
            Ok((_, len)) => len,
            Err(Errno::AGAIN) => {
                self.marks.iter_mut().for_each(|marks| marks.all_read(Instant::now()));
                return Ok(ReadOutcome::Nothing);
            }
            Err(Errno::INTR) => return Ok(ReadOutcome::More),
            Err(Errno::NOBUFS) => return Ok(ReadOutcome::Overrun),
            Err(error) => return Err(error.into()),
        };
        // A datagram that was cut is as good as lost.
        let Some(bytes) = self.buffer.get(..len) else { return Ok(ReadOutcome::Overrun) };
        for message in Messages(bytes) {
            match (&mut self.marks, message.kind) {
                (Some(marks), NLMSG_NOOP) => marks.found(message.sequence, Instant::now()),
                _ => News::parse_message(&message).into_iter().for_each(&mut each),
            }
        }
        Ok(ReadOutcome::More)
    }
}

impl AsFd for ChangeMonitor {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}
