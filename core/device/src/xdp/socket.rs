//! One AF_XDP socket: its memory, its four rings, the queue it is bound to, and how it is closed.
//!
//! A frame's address goes into a ring only when its packet is in the ledger of the same half, and a packet
//! leaves the ledger only by an address that came back by the ring for it, or when the socket is closed.
//! Nothing else calls the unsafe functions for that in `rings.rs` and `umem.rs`.
use super::rings::{Consumer, Producer, RingLayout};
use super::umem::FrameLedger;
use super::{BusyPoll, CAPABILITY, retry};
use crate::privsep::{self, Request};
use crate::shared_memory::SharedMemory;
use crate::{DeviceError, Interface, sys};
use artery_packet::{FRAME, Packet, Pool};
use rustix::fd::{AsFd, BorrowedFd, OwnedFd};
use rustix::net::{AddressFamily, SocketFlags, SocketType};
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use std::io;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

const SO_PREFER_BUSY_POLL: libc::c_int = 69;
const SO_BUSY_POLL_BUDGET: libc::c_int = 70;
/// How many frames one system call sends where the kernel copies them; kernels that do not know it send 32.
const XDP_MAX_TX_SKB_BUDGET: libc::c_int = 9;

/// The rings that receiving takes: frames for the kernel to fill, and frames it has filled.
#[derive(Debug)]
pub(super) struct RxRings {
    pub(super) fill: Producer<1>,
    pub(super) rx: Consumer<2>,
}

/// The rings that sending takes: frames for the kernel to send, and frames it has sent.
#[derive(Debug)]
pub(super) struct TxRings {
    pub(super) tx: Producer<2>,
    pub(super) done: Consumer<1>,
}

/// What one half of the socket needs: its rings and what the kernel holds of its frames.
#[derive(Debug)]
pub(super) struct SocketHalf<R> {
    pub(super) rings: R,
    pub(super) lent: FrameLedger,
}

/// What the kernel says of a frame that it has filled.
#[derive(Debug)]
pub(super) struct Filled {
    /// None if it was not lent, or its data would leave the frame.
    pub(super) packet: Option<Packet>,
    /// The descriptor's `XDP_PKT_*` bits.
    pub(super) options: u32,
}

impl SocketHalf<RxRings> {
    /// Lends the kernel a frame to fill; false when it is not of the pool.
    /// [`Producer::publish`] shows it to the kernel.
    #[inline]
    pub(super) fn lend(&mut self, packet: Packet) -> bool {
        let Ok(address) = self.lent.lend(packet) else { return false };
        // SAFETY: it is the address of a frame that is now in the ledger of this half, which gives it out
        // only when it has come back. As many as are lent fit into the ring; what didn't would stay lent.
        unsafe { self.rings.fill.write([address - address % FRAME as u64]) }
    }
    /// Takes the next of the frames that are available.
    #[inline]
    pub(super) fn receive(&mut self) -> Option<Filled> {
        let [address, description] = self.rings.rx.read()?;
        let (len, options) = halves(description);
        // SAFETY: the kernel is done with a frame whose address it puts into this ring.
        let packet = unsafe { self.lent.reclaim_filled(address, len) };
        Some(Filled { packet, options })
    }
}

impl SocketHalf<TxRings> {
    /// Lends the kernel a frame to send; false when it is not of the pool.
    /// [`Producer::publish`] shows it to the kernel.
    #[inline]
    pub(super) fn send(&mut self, packet: Packet) -> bool {
        let len = packet.len() as u32;
        let Ok(address) = self.lent.lend(packet) else { return false };
        // SAFETY: as in lend().
        unsafe { self.rings.tx.write([address, word(len)]) }
    }
    /// Takes back the next available frame that was sent; the inner `None` is one that was not lent.
    #[inline]
    pub(super) fn reclaim_sent(&mut self) -> Option<Option<Packet>> {
        let [address] = self.rings.done.read()?;
        // SAFETY: the kernel is done with a frame whose address it puts into this ring.
        Some(unsafe { self.lent.reclaim(address) })
    }
}

/// Length and options of a descriptor's second word.
#[inline]
pub(super) fn halves(word: u64) -> (u32, u32) {
    let [a, b, c, d, e, f, g, h] = word.to_ne_bytes();
    (u32::from_ne_bytes([a, b, c, d]), u32::from_ne_bytes([e, f, g, h]))
}

/// The second word of a descriptor without options.
#[inline]
fn word(len: u32) -> u64 {
    let [a, b, c, d] = len.to_ne_bytes();
    u64::from_ne_bytes([a, b, c, d, 0, 0, 0, 0])
}

/// A ledger while its half is not taken. It is dropped when the socket is closed.
#[derive(Debug)]
struct ParkedLedger(Option<FrameLedger>);

impl Drop for ParkedLedger {
    fn drop(&mut self) {
        if let Some(ledger) = self.0.take() {
            // SAFETY: only a socket has this, as its last field but numbers, and drops it when the
            // descriptors are closed and the rings unmapped. Then the kernel has unbound the socket and
            // waited for whoever was at its frames (xsk_release()). Without copying a driver that takes its
            // queue down later may still write to a frame that it had to fill: the kernel does not say when
            // it is done with that.
            unsafe { ledger.release() };
        }
    }
}

/// How to make a socket.
#[derive(Clone, Copy, Debug)]
pub(super) struct SocketPlan {
    pub(super) ring: u32,
    pub(super) zero_copy: bool,
    pub(super) busy_poll: Option<BusyPoll>,
}

/// A socket that is bound to a queue. Halves that are not in use are parked here.
///
/// The order of the fields is that of closing: no ring may be mapped when the descriptors are closed, or the
/// socket would live on; and only when it is closed do the frames that the kernel held go back to the pool.
#[derive(Debug)]
pub(super) struct Socket {
    rings: Mutex<(Option<RxRings>, Option<TxRings>)>,
    fd: OwnedFd,
    /// A duplicate of the socket's descriptor: a worker waits for each half by a descriptor of its own.
    tx_fd: OwnedFd,
    lent: Mutex<(ParkedLedger, ParkedLedger)>,
    /// Whether the driver reads and writes the frames themselves.
    pub(super) zero_copy: bool,
    /// Why it does not, as the error number of its refusal.
    pub(super) refusal: Option<i32>,
}

impl Socket {
    /// Opens a socket on a queue of an interface.
    pub(super) fn open(
        interface: &Interface,
        queue: u32,
        pool: &'static Pool,
        plan: SocketPlan,
    ) -> Result<Socket, DeviceError> {
        let failed = |doing| move |e: io::Error| refused(&interface.name, doing, &e);
        let fd = open(&interface.name, plan.busy_poll)?;
        register(interface, &fd, pool)?;
        let rings = map_rings(&fd, plan.ring).map_err(failed("making its AF_XDP rings"))?;
        limit_budget(&fd, plan);
        let refusal = bind(interface, &fd, queue, plan.zero_copy)?;
        let tx_fd = fd.try_clone().map_err(failed("opening an AF_XDP socket"))?;
        let lent = Mutex::new([(); 2].map(|()| ParkedLedger(Some(FrameLedger::new(pool)))).into());
        let options = libc::xdp_options { flags: 0 };
        let options = sys::option(fd.as_fd(), libc::SOL_XDP, libc::XDP_OPTIONS, options);
        let zero_copy = options.is_ok_and(|options| options.flags & libc::XDP_OPTIONS_ZEROCOPY != 0);
        Ok(Socket { rings: Mutex::new(rings), fd, tx_fd, lent, zero_copy, refusal })
    }

    /// Takes the receiving half; `None` when it is in use.
    pub(super) fn claim_rx(&self) -> Option<SocketHalf<RxRings>> {
        let rings = lock(&self.rings).0.take()?;
        Some(SocketHalf { rings, lent: lock(&self.lent).0.0.take()? })
    }
    /// Takes the sending half; `None` when it is in use.
    pub(super) fn claim_tx(&self) -> Option<SocketHalf<TxRings>> {
        let rings = lock(&self.rings).1.take()?;
        Some(SocketHalf { rings, lent: lock(&self.lent).1.0.take()? })
    }
    /// Parks the receiving half until it is taken again or the socket closed.
    pub(super) fn park_rx(&self, half: SocketHalf<RxRings>) {
        lock(&self.lent).0.0 = Some(half.lent);
        lock(&self.rings).0 = Some(half.rings);
    }
    /// Parks the sending half.
    pub(super) fn park_tx(&self, half: SocketHalf<TxRings>) {
        lock(&self.lent).1.0 = Some(half.lent);
        lock(&self.rings).1 = Some(half.rings);
    }
    pub(super) fn fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
    pub(super) fn tx_fd(&self) -> BorrowedFd<'_> {
        self.tx_fd.as_fd()
    }
    /// What the kernel has counted; zeros when it does not say.
    pub(super) fn statistics(&self) -> libc::xdp_statistics {
        let none = libc::xdp_statistics {
            rx_dropped: 0,
            rx_invalid_descs: 0,
            tx_invalid_descs: 0,
            rx_ring_full: 0,
            rx_fill_ring_empty_descs: 0,
            tx_ring_empty_descs: 0,
        };
        sys::option(self.fd(), libc::SOL_XDP, libc::XDP_STATISTICS, none).unwrap_or(none)
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    // The halves are moved whole, so no panic leaves them half done.
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Registers the pool's common frames with a socket, raising the limit of locked memory if that
/// is what is wrong.
fn register(interface: &Interface, fd: &OwnedFd, pool: &'static Pool) -> Result<(), DeviceError> {
    let try_it = || sys::register_frames(fd.as_fd(), pool);
    let limited = |e: &io::Error| matches!(e.raw_os_error(), Some(libc::ENOBUFS | libc::EPERM));
    let mut result = try_it();
    if result.as_ref().is_err_and(limited) && raise_memory_limit() {
        result = try_it();
    }
    result.map_err(|e| {
        let limit = getrlimit(Resource::Memlock).current;
        match limit {
            Some(limit) if limited(&e) => {
                DeviceError::MemoryLimit { name: interface.name.clone(), bytes: pool.region().len(), limit }
            }
            _ => refused(&interface.name, "registering the packet pool with an AF_XDP socket", &e),
        }
    })
}

/// Raises the limit of locked memory as far as this process may; says whether it did.
fn raise_memory_limit() -> bool {
    let now = getrlimit(Resource::Memlock);
    let all = Rlimit { current: None, maximum: None };
    let some = Rlimit { current: now.maximum, maximum: now.maximum };
    setrlimit(Resource::Memlock, all).is_ok() || (some != now && setrlimit(Resource::Memlock, some).is_ok())
}

/// Makes and maps the four rings of a socket.
fn map_rings(fd: &OwnedFd, entries: u32) -> io::Result<(Option<RxRings>, Option<TxRings>)> {
    let size = entries as libc::c_int;
    let rings =
        [libc::XDP_UMEM_FILL_RING, libc::XDP_UMEM_COMPLETION_RING, libc::XDP_RX_RING, libc::XDP_TX_RING];
    rings.into_iter().try_for_each(|ring| sys::set_option(fd.as_fd(), libc::SOL_XDP, ring, &size))?;
    let none = libc::xdp_ring_offset { producer: 0, consumer: 0, desc: 0, flags: 0 };
    let none = libc::xdp_mmap_offsets { rx: none, tx: none, fr: none, cr: none };
    let offsets = sys::option(fd.as_fd(), libc::SOL_XDP, libc::XDP_MMAP_OFFSETS, none)?;
    let map = |offset: libc::xdp_ring_offset, place: u64, words: usize| {
        let layout = RingLayout {
            producer: offset.producer,
            consumer: offset.consumer,
            flags: offset.flags,
            entries: offset.desc,
        };
        let bytes = layout.bytes(entries, words).ok_or(io::ErrorKind::InvalidData)?;
        Ok::<_, io::Error>((Arc::new(SharedMemory::map(fd, place, bytes)?), layout))
    };
    let (memory, layout) = map(offsets.fr, libc::XDP_UMEM_PGOFF_FILL_RING, 1)?;
    let fill = Producer::new(memory, layout, entries)?;
    let (memory, layout) = map(offsets.rx, libc::XDP_PGOFF_RX_RING as u64, 2)?;
    let rx = Consumer::new(memory, layout, entries)?;
    let (memory, layout) = map(offsets.tx, libc::XDP_PGOFF_TX_RING as u64, 2)?;
    let tx = Producer::new(memory, layout, entries)?;
    let (memory, layout) = map(offsets.cr, libc::XDP_UMEM_PGOFF_COMPLETION_RING, 1)?;
    let done = Consumer::new(memory, layout, entries)?;
    Ok((Some(RxRings { fill, rx }), Some(TxRings { tx, done })))
}

/// Opens a socket, which takes CAP_NET_RAW, and CAP_NET_ADMIN for busy polling.
fn open(name: &str, busy_poll: Option<BusyPoll>) -> Result<OwnedFd, DeviceError> {
    match privsep::helper() {
        Some(helper) => {
            let request = Request::XdpSocket { name: name.to_owned(), busy_poll };
            helper.descriptor::<()>(name, &request).map(|((), socket)| socket)
        }
        None => make_socket(name, busy_poll),
    }
}

/// The same, by this process.
pub(crate) fn make_socket(name: &str, busy_poll: Option<BusyPoll>) -> Result<OwnedFd, DeviceError> {
    let failed = |doing| move |e: io::Error| refused(name, doing, &e);
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    let fd = rustix::net::socket_with(AddressFamily::XDP, SocketType::RAW, flags, None)
        .map_err(|e| failed("opening an AF_XDP socket")(e.into()))?;
    set_busy_poll(&fd, busy_poll).map_err(failed("setting busy polling"))?;
    Ok(fd)
}

/// Sets what may be set beside the rings.
fn limit_budget(fd: &OwnedFd, plan: SocketPlan) {
    let most = plan.ring.min(super::TX_BUDGET) as libc::c_int;
    // Kernels before 6.17 have no such option.
    let _ = sys::set_option(fd.as_fd(), libc::SOL_XDP, XDP_MAX_TX_SKB_BUDGET, &most);
}

fn set_busy_poll(fd: &OwnedFd, busy_poll: Option<BusyPoll>) -> io::Result<()> {
    let Some(BusyPoll { microseconds, budget }) = busy_poll else { return Ok(()) };
    let set = |name, value| sys::set_option(fd.as_fd(), libc::SOL_SOCKET, name, &value);
    set(SO_PREFER_BUSY_POLL, 1)?;
    set(libc::SO_BUSY_POLL, libc::c_int::from(microseconds))?;
    set(SO_BUSY_POLL_BUDGET, libc::c_int::from(budget))
}

/// Binds a socket to a queue; returns why without copying it could not be, if it was to be.
fn bind(
    interface: &Interface,
    fd: &OwnedFd,
    queue: u32,
    zero_copy: bool,
) -> Result<Option<i32>, DeviceError> {
    let try_as = |mode: u16| {
        let flags = mode | libc::XDP_USE_NEED_WAKEUP;
        // A socket that was just closed holds its queue for a moment longer.
        retry(std::thread::sleep, || sys::bind_xdp(fd.as_fd(), interface.index, queue, flags))
    };
    let mut refusal = None;
    if zero_copy {
        match try_as(libc::XDP_ZEROCOPY) {
            Ok(()) => return Ok(None),
            Err(e) if e.raw_os_error() == Some(libc::EBUSY) => return Err(busy(interface)),
            Err(e) => refusal = Some(e.raw_os_error().unwrap_or(0)),
        }
    }
    match try_as(libc::XDP_COPY) {
        Ok(()) => Ok(refusal),
        Err(e) if e.raw_os_error() == Some(libc::EBUSY) => Err(busy(interface)),
        Err(e) => Err(refused(&interface.name, "binding an AF_XDP socket to a queue", &e)),
    }
}

fn busy(interface: &Interface) -> DeviceError {
    DeviceError::Occupied {
        name: interface.name.clone(),
        by: "an AF_XDP socket of another program has one of its queues",
        remedy: "stop that program, or use METHOD LINUX",
    }
}

fn refused(name: &str, doing: &'static str, error: &io::Error) -> DeviceError {
    match error.raw_os_error() {
        Some(libc::EAFNOSUPPORT | libc::EOPNOTSUPP) => DeviceError::NotSupported {
            name: name.to_owned(),
            doing: "AF_XDP sockets (CONFIG_XDP_SOCKETS)",
            instead: "use METHOD LINUX",
        },
        _ => DeviceError::from_io(name, doing, CAPABILITY, error),
    }
}
