//! Receiving.
use super::intake::Intake;
use super::ring::Ring;
use super::{RxSettings, failed, is_bound, is_ethernet, packet_socket};
use crate::bpf::Hidden;
use crate::privsep::Buffer;
use crate::{DeviceError, Hide, Interface, Losses, RxCounters, RxQueue, sys};
use artery_packet::{Batch, Pool, Time};
use rustix::fd::{AsFd, BorrowedFd, OwnedFd};
use std::io;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Mutex, PoisonError, Weak};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// Bytes of a slot beside the frame: headers of the kernel, virtio-net header, alignment.
const SLOT_HEADER: usize = 96;
/// The largest slot; longer frames are queued beside the ring.
const SLOT_LIMIT: usize = 16 << 10;
/// Bytes that the kernel takes from the system at once for slots.
const BLOCK: usize = 64 << 10;
/// Bytes of frames that may wait beside the ring.
const QUEUE_BYTES: libc::c_int = 16 << 20;
/// After how many receives in a row without a packet the socket is checked for an error.
const IDLE: u32 = 64;
/// Keeps what the host sends out of a group of sockets.
const PACKET_FANOUT_FLAG_IGNORE_OUTGOING: libc::c_int = 0x4000;

/// A receive queue on an interface.
#[derive(Debug)]
pub struct AfPacketRx {
    // Unmapped before the socket is closed.
    ring: Ring,
    socket: Arc<OwnedFd>,
    intake: Intake,
    interface: Interface,
    /// Calls since something was received.
    idle: u32,
    /// How long the first frame of the last call had waited.
    waited: Option<Duration>,
    dropped: Arc<Dropped>,
    _hidden: Option<Arc<Hidden>>,
}

impl AfPacketRx {
    /// Opens a receive queue on `interface`, whose packets are marked with `port`. Of several queues, each
    /// gets the flows that the fanout group `group` sends it.
    pub(crate) fn open(
        interface: &Interface,
        settings: &RxSettings,
        port: u16,
        group: &FanoutGroup,
    ) -> Result<AfPacketRx, DeviceError> {
        let socket = packet_socket(&interface.name, Buffer::Receive(QUEUE_BYTES))?;
        let (slots, slot_size) = geometry(interface, settings);
        let wrong = |doing| move |e: io::Error| failed(interface, doing, &e);
        set_up(&socket, settings, slots, slot_size).map_err(wrong("making a receive ring"))?;
        let ring = Ring::map(&socket, slots, slot_size).map_err(wrong("mapping a receive ring"))?;
        // Hidden first: what the router receives, the host does not.
        let hidden = group.hide(interface, settings.hide)?;
        sys::bind_packet(socket.as_fd(), interface.index, libc::ETH_P_ALL as u16)
            .map_err(wrong("binding a packet socket"))?;
        if settings.queues > 1 {
            group.join(&socket, settings).map_err(wrong("sharing its frames among queues"))?;
        }
        let intake = Intake::new(is_ethernet(interface), settings.timestamps, port);
        let (interface, idle, socket) = (interface.clone(), 0, Arc::new(socket));
        let dropped = Arc::new(Dropped { socket: Arc::downgrade(&socket), count: AtomicU64::new(0) });
        Ok(AfPacketRx { ring, socket, intake, interface, idle, waited: None, dropped, _hidden: hidden })
    }

    /// Reads the socket's pending error, which the ring cannot show.
    #[cold]
    fn check(&mut self) -> Result<(), DeviceError> {
        self.idle = 0;
        let error = sys::option(self.socket.as_fd(), libc::SOL_SOCKET, libc::SO_ERROR, 0)
            .map_err(|e| failed(&self.interface, "asking for its state", &e))?;
        match error {
            0 => Ok(()),
            libc::ENETDOWN if !is_bound(&self.socket, &self.interface) => {
                Err(DeviceError::Gone { name: self.interface.name.clone() })
            }
            libc::ENETDOWN => Err(DeviceError::Down { name: self.name_now() }),
            errno => Err(failed(&self.interface, "receiving from it", &io::Error::from_raw_os_error(errno))),
        }
    }
    /// What the interface is called now.
    fn name_now(&self) -> String {
        let name = rustix::net::netdevice::index_to_name(&self.socket, self.interface.index);
        name.unwrap_or_else(|_| self.interface.name.clone())
    }
}

impl Drop for AfPacketRx {
    fn drop(&mut self) {
        // The socket closes with this queue, and its losses can't be read later.
        self.dropped.read_dropped();
    }
}

/// What the kernel dropped because the ring was full.
#[derive(Debug)]
struct Dropped {
    socket: Weak<OwnedFd>,
    /// The kernel's count as it was last read.
    count: AtomicU64,
}

impl Losses for Dropped {
    fn read_dropped(&self) -> u64 {
        let none = libc::tpacket_stats { tp_packets: 0, tp_drops: 0 };
        let ask = |socket: Arc<OwnedFd>| {
            sys::option(socket.as_fd(), libc::SOL_PACKET, libc::PACKET_STATISTICS, none)
        };
        // The kernel resets its count when it is read, so each reader adds what it read.
        let fresh =
            self.socket.upgrade().map_or(0, |socket| ask(socket).map_or(0, |s| u64::from(s.tp_drops)));
        self.count.fetch_add(fresh, Relaxed) + fresh
    }
    fn is_final(&self) -> bool {
        self.socket.strong_count() == 0
    }
}

/// Number and size of slots for frames of the interface's MTU, in as many whole blocks
/// as the settings require.
fn geometry(interface: &Interface, settings: &RxSettings) -> (usize, usize) {
    let frame = interface.mtu as usize + 18 + SLOT_HEADER;
    let slot = frame.next_power_of_two().clamp(2048, SLOT_LIMIT);
    ((settings.ring_bytes / BLOCK).clamp(1, 1 << 14) * (BLOCK / slot), slot)
}

fn set_up(socket: &OwnedFd, settings: &RxSettings, slots: usize, slot_size: usize) -> io::Result<()> {
    let fd = socket.as_fd();
    let set = |name, value: libc::c_int| sys::set_option(fd, libc::SOL_PACKET, name, &value);
    set(libc::PACKET_VERSION, libc::tpacket_versions::TPACKET_V2 as libc::c_int)?;
    set(libc::PACKET_VNET_HDR, 1)?;
    set(libc::PACKET_COPY_THRESH, 1)?;
    set(libc::PACKET_IGNORE_OUTGOING, i32::from(!settings.outbound))?;
    let ring = libc::tpacket_req {
        tp_block_size: BLOCK as u32,
        tp_block_nr: (slots * slot_size / BLOCK) as u32,
        tp_frame_size: slot_size as u32,
        tp_frame_nr: slots as u32,
    };
    sys::set_option(fd, libc::SOL_PACKET, libc::PACKET_RX_RING, &ring)
}

/// The sockets that share an interface's frames, by a hash of addresses and ports that is the same for both
/// directions of a flow.
#[derive(Debug, Default)]
pub(crate) struct FanoutGroup {
    number: Mutex<Option<u16>>,
    /// What hides the interface's frames from the host for all of them: the kernel has room for 63 of that.
    hidden: Mutex<Weak<Hidden>>,
}

impl FanoutGroup {
    /// Hides the interface's frames from the host while one of the sockets is open, if they are to be.
    fn hide(&self, interface: &Interface, what: Hide) -> Result<Option<Arc<Hidden>>, DeviceError> {
        let mut known = self.hidden.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(hidden) = known.upgrade() {
            return Ok(Some(hidden));
        }
        let hidden = Hidden::hide(interface, what)?.map(Arc::new);
        *known = hidden.as_ref().map_or_else(Weak::new, Arc::downgrade);
        Ok(hidden)
    }

    /// Lets a socket join; the kernel chooses a free number for the first.
    fn join(&self, socket: &OwnedFd, settings: &RxSettings) -> io::Result<()> {
        let mut number = self.number.lock().unwrap_or_else(PoisonError::into_inner);
        let ignore = if settings.outbound { 0 } else { PACKET_FANOUT_FLAG_IGNORE_OUTGOING };
        let unique = if number.is_none() { libc::PACKET_FANOUT_FLAG_UNIQUEID as libc::c_int } else { 0 };
        let how = libc::PACKET_FANOUT_HASH as libc::c_int | ignore | unique;
        let value = libc::c_int::from(number.unwrap_or(0)) | (how << 16);
        sys::set_option(socket.as_fd(), libc::SOL_PACKET, libc::PACKET_FANOUT, &value)?;
        let joined = sys::option(socket.as_fd(), libc::SOL_PACKET, libc::PACKET_FANOUT, 0)?;
        *number = Some(joined as u16);
        Ok(())
    }
}

impl RxQueue for AfPacketRx {
    fn receive(&mut self, pool: &'static Pool, max: usize, into: &mut Batch) -> Result<usize, DeviceError> {
        let start = into.len();
        self.waited = None;
        for _ in 0..max {
            let Some(slot) = self.ring.front() else { break };
            self.idle = 0;
            let arrival = slot.arrival();
            // Time is read once a batch: the first frame has waited longest.
            if let (None, Some((arrival, _))) = (self.waited, &arrival) {
                self.waited = Some(now().since(arrival.time));
            }
            match arrival {
                None => self.intake.counters.malformed += 1,
                Some((arrival, _)) if arrival.queued => {
                    self.intake.receive_queued(pool, &self.socket, &arrival, into)
                }
                Some((arrival, _)) if arrival.cut => self.intake.counters.truncated += 1,
                Some((arrival, frame)) => self.intake.receive_frame(pool, &arrival, frame, into),
            }
        }
        if into.len() == start {
            self.idle += 1;
            if self.idle >= IDLE {
                self.check()?;
            }
        }
        Ok(into.len() - start)
    }
    fn fd(&self) -> Option<BorrowedFd<'_>> {
        Some(self.socket.as_fd())
    }
    fn is_attached(&self) -> bool {
        is_bound(&self.socket, &self.interface)
    }
    fn counters(&self) -> RxCounters {
        self.dropped.read_dropped();
        self.own_counters()
    }
    fn own_counters(&self) -> RxCounters {
        RxCounters { ring_full: self.dropped.count.load(Relaxed), ..self.intake.counters }
    }
    fn losses(&self) -> Option<Arc<dyn Losses>> {
        Some(self.dropped.clone())
    }
    fn waited(&self) -> Option<Duration> {
        self.waited
    }
}

/// The time of day, which the kernel writes into slots.
#[inline]
fn now() -> Time {
    Time::ZERO + SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default()
}
