//! All queues of one interface.
use super::lock::InterfaceLock;
use super::program::RedirectProgram;
use super::rings::LONGEST;
use super::socket::{Socket, SocketPlan};
use super::{CAPABILITY, ETHERNET_HEADER, MOST_MTU, XdpRx, XdpSettings, XdpTx};
use crate::driver::DriverFacts;
use crate::error::system_words;
use crate::privsep;
use crate::{DeviceError, Interface, LinkType, PortHalf, RxSettings, interface, sys};
use artery_packet::Pool;
use rustix::fd::{AsFd, OwnedFd};
use std::fmt;
use std::io;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::atomic::{AtomicU32, AtomicU64};

/// The least entries of a ring.
const SHORTEST: u32 = 64;
/// The least frames that the kernel must be lent for a queue: a batch.
pub(super) const LEAST_LENT: u32 = 64;

/// An interface that is used by AF_XDP. Its frames are the router's, queue by queue, while the queue's
/// receiving half is open; it is given back to the host when this and all halves are dropped.
#[derive(Clone, Debug)]
pub struct XdpPort {
    opened: Arc<SharedPort>,
}

/// What all halves of a port's queues share. The order of the fields is that of closing.
#[derive(Debug)]
pub(super) struct SharedPort {
    pub(super) sockets: Vec<Socket>,
    pub(super) redirect: RedirectProgram,
    _lock: Option<InterfaceLock>,
    /// A socket for ioctls on the interface, in its network namespace.
    control: OwnedFd,
    pub(super) interface: Interface,
    /// Its MTU and Ethernet address as they are now.
    mtu: AtomicU32,
    mac: AtomicU64,
    pub(super) number: u16,
    pub(super) busy_poll: bool,
    pub(super) facts: DriverFacts,
    /// Frames that each queue may lend to the kernel for filling.
    pub(super) quota: u32,
    pub(super) ring: u32,
    /// Frames of the whole pool.
    frames: usize,
}

impl XdpPort {
    /// Takes an interface for a router; packets are marked with `port`, and their frames come from `pool`.
    pub fn open(
        interface: &Interface,
        settings: &XdpSettings,
        port: u16,
        pool: &'static Pool,
    ) -> Result<XdpPort, DeviceError> {
        check(interface)?;
        // A helper that attaches the program takes the lock, too.
        let lock = if privsep::helper().is_none() { Some(InterfaceLock::acquire(interface)?) } else { None };
        let facts = DriverFacts::query(interface)?;
        let control = interface::control_socket(&interface.name)?;
        let queues = u32::from(facts.queues);
        // Before the sockets: a driver that does not run the program cannot fill frames either.
        let redirect = RedirectProgram::attach(interface, queues, settings.attach)?;
        let ring = settings.ring.clamp(SHORTEST, LONGEST / 2).next_power_of_two();
        let mut plan = SocketPlan {
            ring,
            zero_copy: settings.zero_copy && redirect.native,
            busy_poll: settings.busy_poll,
        };
        let mut sockets = Vec::new();
        for queue in 0..queues {
            let socket = Socket::open(interface, queue, pool, plan)?;
            plan.zero_copy = socket.zero_copy;
            sockets.push(socket);
        }
        let quota = ring.min((pool.frames() as u32 / 8 / queues).max(LEAST_LENT));
        let opened = SharedPort {
            sockets,
            redirect,
            _lock: lock,
            control,
            interface: interface.clone(),
            mtu: AtomicU32::new(interface.mtu),
            mac: AtomicU64::new(number_of(interface.mac)),
            number: port,
            busy_poll: settings.busy_poll.is_some(),
            facts,
            quota,
            ring,
            frames: pool.frames(),
        };
        Ok(XdpPort { opened: Arc::new(opened) })
    }
    /// Number of its queues, each with both halves.
    pub fn queues(&self) -> u16 {
        self.opened.facts.queues
    }
    /// Says that the interface's MTU and Ethernet address are these now.
    pub(crate) fn follow(&self, now: &Interface) {
        self.opened.mtu.store(now.mtu, Relaxed);
        self.opened.mac.store(number_of(now.mac), Relaxed);
    }
    /// Whether anything besides the caller holds the port or a half of a queue.
    pub(crate) fn is_held(&self) -> bool {
        Arc::strong_count(&self.opened) > 1
    }
    /// The interface, as it was when the port was opened.
    pub fn interface(&self) -> &Interface {
        &self.opened.interface
    }
    /// Takes the receiving half of a queue, until it is dropped. From now on the frames of the
    /// queue are the router's.
    pub fn rx(&self, queue: u16, settings: &RxSettings) -> Result<XdpRx, DeviceError> {
        let half = self.socket(queue, PortHalf::Receive)?.claim_rx();
        let half = half.ok_or_else(|| self.taken(queue, PortHalf::Receive))?;
        XdpRx::new(self.opened.clone(), queue, half, settings.timestamps)
    }
    /// Takes the sending half of a queue, until it is dropped.
    pub fn tx(&self, queue: u16) -> Result<XdpTx, DeviceError> {
        let half = self.socket(queue, PortHalf::Transmit)?.claim_tx();
        let half = half.ok_or_else(|| self.taken(queue, PortHalf::Transmit))?;
        Ok(XdpTx::new(self.opened.clone(), queue, half))
    }
    /// The settings that are in use, for one line of the log.
    pub fn report(&self) -> XdpReport {
        let opened = &*self.opened;
        XdpReport {
            interface: opened.interface.name.clone(),
            driver: opened.facts.driver.clone(),
            queues: opened.facts.queues,
            zero_copy: opened.sockets.iter().all(|socket| socket.zero_copy),
            zero_copy_refusal: opened.sockets.iter().find_map(|socket| socket.refusal),
            native: opened.redirect.native,
            native_refusal: opened.redirect.refusal,
            finishes_checksums: opened.facts.leaves_offloads,
            strips_vlan: opened.facts.strips_vlan,
        }
    }
    fn socket(&self, queue: u16, half: PortHalf) -> Result<&Socket, DeviceError> {
        self.opened.sockets.get(usize::from(queue)).ok_or_else(|| DeviceError::NoSuchQueue {
            name: self.opened.interface.name.clone(),
            half,
            queue,
            queues: self.queues(),
        })
    }
    fn taken(&self, queue: u16, half: PortHalf) -> DeviceError {
        DeviceError::Taken { name: self.opened.interface.name.clone(), half, queue }
    }
}

impl SharedPort {
    /// The interface's error, if it has one.
    pub(super) fn trouble(&self) -> Option<DeviceError> {
        let Ok(name) = rustix::net::netdevice::index_to_name(&self.control, self.interface.index) else {
            return Some(self.gone());
        };
        let (_, flags) = sys::request(self.control.as_fd(), sys::IfreqCommand::Flags, &name, &[]).ok()?;
        let up = libc::c_int::from(u16::from_ne_bytes([flags[0], flags[1]])) & libc::IFF_UP != 0;
        (!up).then_some(DeviceError::Down { name })
    }
    pub(super) fn gone(&self) -> DeviceError {
        DeviceError::Gone { name: self.interface.name.clone() }
    }
    pub(super) fn failed(&self, doing: &'static str, error: &io::Error) -> DeviceError {
        DeviceError::from_io(&self.interface.name, doing, CAPABILITY, error)
    }
    pub(super) fn broken(&self, what: &'static str) -> DeviceError {
        DeviceError::Broken { name: self.interface.name.clone(), what }
    }
    pub(super) fn few_frames(&self, found: u32) -> DeviceError {
        let (name, frames) = (self.interface.name.clone(), self.frames);
        DeviceError::FewFrames { name, found, least: LEAST_LENT, frames }
    }
    /// Frames for filling that the kernel keeps when the pool is empty: what comes in them is dropped.
    #[inline]
    pub(super) fn reserve(&self) -> u32 {
        self.quota.div_ceil(4)
    }
    /// The longest frame that may leave, without a VLAN tag.
    pub(super) fn longest(&self) -> usize {
        (self.mtu.load(Relaxed) as usize).saturating_add(ETHERNET_HEADER - 4)
    }
    /// The interface's Ethernet address.
    pub(super) fn mac(&self) -> Option<[u8; 6]> {
        let [_, _, mac @ ..] = self.mac.load(Relaxed).to_be_bytes();
        self.interface.mac.map(|_| mac)
    }
}

impl Drop for SharedPort {
    fn drop(&mut self) {
        // Every receiving half has left the map. A process that was just forked may hold the sockets a moment
        // longer than this one, so their closing is not what tells that no frame is being copied any more.
        // Where the kernel does not offer that, nothing else does.
        let _ = sys::wait_for_grace_period();
    }
}

/// An Ethernet address as a number; 0 where there is none.
fn number_of(mac: Option<[u8; 6]>) -> u64 {
    mac.map_or(0, |[a, b, c, d, e, f]| u64::from_be_bytes([0, 0, a, b, c, d, e, f]))
}

/// Refuses an interface that AF_XDP is not for.
fn check(interface: &Interface) -> Result<(), DeviceError> {
    let name = || interface.name.clone();
    if interface.link_type != Some(LinkType::ETHER) {
        let (expected, found) = ("ETHER".to_owned(), "other".to_owned());
        return Err(DeviceError::WrongLinkType { name: name(), expected, found });
    }
    if !interface.up {
        return Err(DeviceError::Down { name: name() });
    }
    if interface.mtu > MOST_MTU {
        return Err(DeviceError::FramesTooLong { name: name(), mtu: interface.mtu, most: MOST_MTU });
    }
    Ok(())
}

/// How an interface is used, which may differ from the requested settings.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct XdpReport {
    /// Name of the interface.
    pub interface: String,
    /// Its driver; empty when it does not say.
    pub driver: String,
    /// Number of its queues.
    pub queues: u16,
    /// Whether the driver reads and writes frames without copying.
    pub zero_copy: bool,
    /// The system's error number for why it does not, if zero copy was requested.
    pub zero_copy_refusal: Option<i32>,
    /// Whether the driver runs the program.
    pub native: bool,
    /// The system's error number for why it does not, if the driver's mode was requested.
    pub native_refusal: Option<i32>,
    /// Whether received frames may have unfinished checksums, which are finished.
    pub finishes_checksums: bool,
    /// Whether the driver takes VLAN tags off, which AF_XDP cannot see then.
    pub strips_vlan: bool,
}

impl XdpReport {
    /// Whether the other end of the link may send frames that are too long, since it leaves cutting them to a
    /// card. A driver that runs the program keeps the other end from that.
    pub fn loses_uncut(&self) -> bool {
        self.finishes_checksums && !self.native
    }
}

impl fmt::Display for XdpReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let plural = if self.queues == 1 { "queue" } else { "queues" };
        let driver = if self.driver.is_empty() { "an unnamed driver" } else { &self.driver };
        write!(f, "{}: AF_XDP on {} {plural} of {driver}", self.interface, self.queues)?;
        f.write_str(if self.zero_copy { ", without copying" } else { ", copying" })?;
        because(f, self.zero_copy_refusal)?;
        f.write_str(if self.native { ", in the driver" } else { ", in the kernel (generic XDP)" })?;
        because(f, self.native_refusal)?;
        if self.finishes_checksums {
            f.write_str("; finishes checksums")?;
        }
        if self.loses_uncut() {
            f.write_str(
                "; loses what senders leave uncut until 'ethtool -K DEV tso off gso off' at their ends",
            )?;
        }
        if self.strips_vlan {
            write!(f, "; VLAN tags are lost until 'ethtool -K {} rxvlan off'", self.interface)?;
        }
        Ok(())
    }
}

fn because(f: &mut fmt::Formatter<'_>, refusal: Option<i32>) -> fmt::Result {
    match refusal {
        Some(errno) => write!(f, " ({})", system_words(errno)),
        None => Ok(()),
    }
}
