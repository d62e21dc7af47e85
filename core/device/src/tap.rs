//! TAP and TUN devices: interfaces of the host whose other end is the router.
//!
//! The router receives what the host sends by such an interface, and the host receives what the router
//! transmits, with a system call and a copy for each packet. Every packet has a virtio-net header: the host
//! leaves checksums and segmentation to the router, and takes packets with these left to be done. The device
//! vanishes with the port.
use crate::interface::{check_name, control_socket};
use crate::offload::{VIRTIO_HEADER, VirtioOffload, describe};
use crate::privsep::{self, Request};
use crate::queue::OwnAddress;
use crate::sys::{self, IfreqCommand};
use crate::{DeviceError, Interface, RxCounters, RxQueue, TxCounters, TxQueue};
use artery_netlink::rtnetlink::{GatewayRoute, Rtnetlink};
use artery_packet::{Batch, Packet, PacketType, Pool, Time};
use rustix::fd::{AsFd, BorrowedFd, OwnedFd};
use rustix::fs::{Mode, OFlags};
use rustix::io::{Errno, readv, writev};
use serde::{Deserialize, Serialize};
use std::io::{self, IoSlice, IoSliceMut};
use std::net::IpAddr;
use std::sync::Arc;
use std::time::SystemTime;

const DEVICE: &str = "/dev/net/tun";
const CAPABILITY: &str = "CAP_NET_ADMIN";
/// What the host may leave to be done: checksums, and cutting TCP and UDP of both versions of IP (`TUN_F_*`).
const OFFLOADS: [libc::c_uint; 2] = {
    let (checksum, tcp4, tcp6, ecn, udp4, udp6) = (1, 2, 4, 8, 0x20, 0x40);
    let tcp = checksum | tcp4 | tcp6 | ecn;
    // Kernels before 6.2 do not know the last two.
    [tcp | udp4 | udp6, tcp]
};

/// The longest packet of a device by default, in bytes.
const DEFAULT_MTU: u32 = 1500;

/// What to make and how to set it up.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct TapSettings {
    /// Name of the interface; in a name like `tap%d` the kernel fills in a free number.
    pub name: String,
    /// Whether it carries Ethernet frames (TAP), else IP packets (TUN).
    pub ethernet: bool,
    /// The host's addresses on it, with their prefix lengths.
    pub addresses: Vec<(IpAddr, u8)>,
    /// The host's Ethernet address on it; the kernel chooses one when it is not given.
    pub mac: Option<[u8; 6]>,
    /// The longest packet; the kernel's default is 1500.
    pub mtu: Option<u32>,
    /// Queues among which the host spreads flows.
    pub queues: u16,
    /// Routes of the host that lead to it.
    pub routes: Vec<HostRoute>,
    /// Whether it is the host port of a router's port, which has its addresses from the router: the kernel
    /// makes no IPv6 address for it.
    pub is_host_port: bool,
}

/// A route of the host by a device of the router.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct HostRoute {
    /// Where to, with the length of the prefix.
    pub to: (IpAddr, u8),
    /// Address of the gateway on the device's link; the host resolves it there.
    pub gateway: IpAddr,
    /// Of routes for one prefix the host takes that of the lowest metric.
    pub metric: u32,
}

impl HostRoute {
    fn by_gateway(&self) -> GatewayRoute {
        GatewayRoute { to: self.to, gateway: self.gateway, metric: self.metric }
    }
}

impl TapSettings {
    /// A TAP device without addresses.
    pub fn new(name: &str) -> TapSettings {
        TapSettings { name: name.to_owned(), ethernet: true, queues: 1, ..TapSettings::default() }
    }
}

/// A device with one descriptor for each queue.
#[derive(Debug)]
pub(crate) struct TapDevice {
    pub(crate) interface: Interface,
    queues: Vec<Arc<OwnedFd>>,
    ethernet: bool,
}

impl TapDevice {
    /// Makes the device, or takes over an existing one of the name that no process serves; sets it up
    /// and brings it up.
    pub(crate) fn open(settings: &TapSettings) -> Result<TapDevice, DeviceError> {
        check_name(&settings.name)?;
        let (mut queues, mut name) = (Vec::new(), settings.name.clone());
        for _ in 0..settings.queues.max(1) {
            let (queue, named) = open_queue(&name, settings)?;
            queues.push(Arc::new(queue));
            name = named;
        }
        match privsep::helper() {
            Some(helper) => {
                let request = Request::ConfigureTap { name: name.clone(), settings: settings.clone() };
                helper.request::<()>(&name, &request)?;
            }
            None => configure(&name, settings)?,
        }
        Ok(TapDevice { interface: Interface::find(&name)?, queues, ethernet: settings.ethernet })
    }
    /// Makes the host's side what `after` says, which was set up as `before` says; kind and
    /// queues are the same.
    pub(crate) fn change(&self, before: &TapSettings, after: &TapSettings) -> Result<(), DeviceError> {
        let Some(helper) = privsep::helper() else { return change(&self.interface, before, after) };
        let name = self.interface.name.clone();
        let request = Request::ChangeTap { name, before: before.clone(), after: after.clone() };
        helper.request(&self.interface.name, &request)
    }
    /// The receiving half of a queue, whose packets are marked with `port`.
    pub(crate) fn rx(&self, queue: u16, port: u16) -> Option<TapRx> {
        let fd = self.queues.get(usize::from(queue))?.clone();
        let (name, ethernet, counters) = (self.interface.name.clone(), self.ethernet, RxCounters::default());
        Some(TapRx { fd, name, ethernet, port, spare: None, counters })
    }
    /// The transmitting half of a queue.
    pub(crate) fn tx(&self, queue: u16) -> Option<TapTx> {
        let fd = self.queues.get(usize::from(queue))?.clone();
        Some(TapTx { fd, name: self.interface.name.clone(), counters: TxCounters::default() })
    }
}

/// Makes the host's side of a device what `after` says, by this process.
pub(crate) fn change(
    interface: &Interface,
    before: &TapSettings,
    after: &TapSettings,
) -> Result<(), DeviceError> {
    let (name, index) = (&interface.name, interface.index);
    let failed = |doing| move |e: io::Error| DeviceError::from_io(name, doing, CAPABILITY, &e);
    let socket = control_socket(name)?;
    if before.mac != after.mac {
        set_hardware_address(socket.as_fd(), name, after.mac)?;
    }
    if before.mtu != after.mtu {
        set_mtu(socket.as_fd(), name, Some(after.mtu.unwrap_or(DEFAULT_MTU)))?;
    }
    let mut netlink = Rtnetlink::open().map_err(failed("opening a netlink socket"))?;
    for route in before.routes.iter().filter(|route| !after.routes.contains(route)) {
        // The host may have deleted it.
        let _ = netlink.delete_route(index, &route.by_gateway());
    }
    for (address, len) in before.addresses.iter().filter(|address| !after.addresses.contains(address)) {
        // The same.
        let _ = netlink.delete_address(index, *address, *len);
    }
    // Other addresses and routes may have gone with the address that they depended on.
    for (address, len) in &after.addresses {
        netlink.add_address(index, *address, *len).map_err(failed("adding an address"))?;
    }
    for route in &after.routes {
        match netlink.add_route(index, &route.by_gateway()) {
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
            added => added.map_err(failed("adding a route to it"))?,
        }
    }
    Ok(())
}

/// Opens one queue; returns it and the name that the device got.
fn open_queue(name: &str, settings: &TapSettings) -> Result<(OwnedFd, String), DeviceError> {
    let Some(helper) = privsep::helper() else { return make_queue(name, settings) };
    let request = Request::TapQueue { name: name.to_owned(), settings: settings.clone() };
    helper.descriptor::<String>(name, &request).map(|(name, queue)| (queue, name))
}

/// The same, by this process, which takes CAP_NET_ADMIN.
pub(crate) fn make_queue(name: &str, settings: &TapSettings) -> Result<(OwnedFd, String), DeviceError> {
    check_name(name)?;
    let flags = OFlags::RDWR | OFlags::NONBLOCK | OFlags::CLOEXEC;
    let fd = rustix::fs::open(DEVICE, flags, Mode::empty()).map_err(|e| match e {
        Errno::NOENT | Errno::NODEV | Errno::NXIO => DeviceError::NotSupported {
            name: name.to_owned(),
            doing: "TAP devices: there is no /dev/net/tun",
            instead: "load its module with 'modprobe tun', or give the container the device",
        },
        // By its mode: no capability that a router may have opens it.
        Errno::ACCESS => DeviceError::from_file(DEVICE, "opening it", &Errno::ACCESS.into()),
        e => DeviceError::from_io(name, "opening /dev/net/tun", CAPABILITY, &e.into()),
    })?;
    let kind = if settings.ethernet { libc::IFF_TAP } else { libc::IFF_TUN };
    let many = if settings.queues > 1 { libc::IFF_MULTI_QUEUE } else { 0 };
    let flags = (kind | libc::IFF_NO_PI | libc::IFF_VNET_HDR | many) as u16;
    let failed = |error: std::io::Error| {
        let doing = match error.raw_os_error() {
            Some(libc::EINVAL) => "making a TAP device of the name of another interface",
            _ => "making a TAP device",
        };
        DeviceError::from_io(name, doing, CAPABILITY, &error)
    };
    let (name, _) =
        sys::request(fd.as_fd(), IfreqCommand::Tun, name, &flags.to_ne_bytes()).map_err(failed)?;
    let offered = OFFLOADS.iter().find_map(|offloads| sys::set_tun_offloads(fd.as_fd(), *offloads).ok());
    match offered {
        Some(()) => Ok((fd, name)),
        None => Err(failed(io::Error::last_os_error())),
    }
}

/// Queries the kernel about an interface; returns the answer.
fn ask(
    socket: BorrowedFd<'_>,
    name: &str,
    (ask, doing): (IfreqCommand, &'static str),
    value: &[u8],
) -> Result<sys::IfreqValue, DeviceError> {
    match sys::request(socket, ask, name, value) {
        Ok((_, value)) => Ok(value),
        Err(e) => Err(DeviceError::from_io(name, doing, CAPABILITY, &e)),
    }
}

/// Sets the address if one is given.
fn set_hardware_address(socket: BorrowedFd<'_>, name: &str, mac: Option<[u8; 6]>) -> Result<(), DeviceError> {
    let Some(mac) = mac else { return Ok(()) };
    let mut value = [0; 16];
    value[..2].copy_from_slice(&libc::ARPHRD_ETHER.to_ne_bytes());
    value[2..8].copy_from_slice(&mac);
    ask(socket, name, (IfreqCommand::SetHardware, "setting its Ethernet address"), &value).map(drop)
}

/// Sets the MTU, in bytes, if one is given.
fn set_mtu(socket: BorrowedFd<'_>, name: &str, mtu: Option<u32>) -> Result<(), DeviceError> {
    let Some(mtu) = mtu else { return Ok(()) };
    ask(socket, name, (IfreqCommand::SetMtu, "setting its MTU"), &mtu.to_ne_bytes()).map(drop)
}

/// Keeps the kernel from making IPv6 addresses for an interface, on its own or from router advertisements,
/// and from duplicate address detection for its addresses, which the router does. A kernel without IPv6
/// has no such settings.
fn leave_addresses_to_router(name: &str) -> Result<(), DeviceError> {
    for (setting, value) in
        [("accept_ra", "0"), ("autoconf", "0"), ("accept_dad", "0"), ("addr_gen_mode", "1")]
    {
        match std::fs::write(format!("/proc/sys/net/ipv6/conf/{name}/{setting}"), value) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => {
                return Err(DeviceError::from_io(
                    name,
                    "setting how it gets IPv6 addresses",
                    CAPABILITY,
                    &error,
                ));
            }
            _ => {}
        }
    }
    Ok(())
}

/// Sets a device up and brings it up, by this process.
pub(crate) fn configure(name: &str, settings: &TapSettings) -> Result<(), DeviceError> {
    let socket = control_socket(name)?;
    set_hardware_address(socket.as_fd(), name, settings.mac)?;
    set_mtu(socket.as_fd(), name, settings.mtu)?;
    if settings.is_host_port {
        leave_addresses_to_router(name)?;
    }
    let [a, b, ..] = ask(socket.as_fd(), name, (IfreqCommand::Flags, "asking for its state"), &[])?;
    let flags = u16::from_ne_bytes([a, b]) | libc::IFF_UP as u16;
    let failed = |doing| move |e: io::Error| DeviceError::from_io(name, doing, CAPABILITY, &e);
    let index = Interface::find(name)?.index;
    let mut netlink = Rtnetlink::open().map_err(failed("opening a netlink socket"))?;
    for (address, len) in &settings.addresses {
        netlink.add_address(index, *address, *len).map_err(failed("adding an address"))?;
    }
    ask(socket.as_fd(), name, (IfreqCommand::SetFlags, "bringing it up"), &flags.to_ne_bytes())?;
    // The kernel takes a gateway only where it is up.
    let mut routes = settings.routes.iter();
    routes.try_for_each(|route| {
        netlink.add_route(index, &route.by_gateway()).map_err(failed("adding a route to it"))
    })
}

/// Puts an error of reading or writing into words.
fn failed(name: &str, doing: &'static str, error: Errno) -> DeviceError {
    match error {
        Errno::BADFD => DeviceError::Gone { name: name.to_owned() },
        Errno::IO => DeviceError::Down { name: name.to_owned() },
        error => DeviceError::from_io(name, doing, CAPABILITY, &io::Error::from(error)),
    }
}

/// Receives what the host sends.
#[derive(Debug)]
pub struct TapRx {
    fd: Arc<OwnedFd>,
    name: String,
    ethernet: bool,
    port: u16,
    /// For packets that do not fit in a common frame: their length is not known before they are read.
    spare: Option<Packet>,
    counters: RxCounters,
}

impl TapRx {
    /// Reads one packet into `packet`, or into a big one. `Ok(None)` when it had to be dropped.
    fn read(&mut self, pool: &'static Pool, mut packet: Packet) -> Result<Option<Packet>, Errno> {
        let room = packet.tailroom();
        let Ok(front) = packet.append(room) else { return Ok(None) };
        if self.spare.is_none() {
            self.spare = pool.alloc_big_packet();
        }
        // What would lie in `front` has its place in the spare packet too, to be copied there
        // should it be needed.
        let spill = self.spare.as_mut().and_then(|spare| {
            spare.truncate(0);
            let whole = spare.append(spare.tailroom()).ok()?;
            whole.get_mut(room..)
        });
        let mut header = [0; VIRTIO_HEADER];
        let mut parts =
            [IoSliceMut::new(&mut header), IoSliceMut::new(front), IoSliceMut::new(spill.unwrap_or(&mut []))];
        let Some(len) = readv(&*self.fd, &mut parts)?.checked_sub(VIRTIO_HEADER) else { return Ok(None) };
        // Without a spare packet a longer one would be cut off there.
        let packet = if len < room || len == room && self.spare.is_some() {
            packet.truncate(len);
            Some(packet)
        } else {
            self.spilled(&packet, len)
        };
        let Some(mut packet) = packet else {
            self.counters.pool_empty += 1;
            return Ok(None);
        };
        if VirtioOffload::parse(&header).apply_to(&mut packet, self.ethernet).is_err() {
            self.counters.malformed += 1;
            return Ok(None);
        }
        Ok(Some(packet))
    }
    /// The spare packet with `front` copied to its beginning; `None` without a spare packet.
    fn spilled(&mut self, front: &Packet, len: usize) -> Option<Packet> {
        let mut long = self.spare.take()?;
        long.truncate(len);
        long.data_mut().get_mut(..front.len())?.copy_from_slice(front.data());
        Some(long)
    }
    fn finish(&mut self, mut packet: Packet, time: Time, into: &mut Batch) {
        let to = if self.ethernet { OwnAddress::new(None).sees(packet.data()) } else { PacketType::Host };
        packet.set_packet_type(to);
        packet.set_in_port(self.port);
        packet.set_timestamp(time);
        self.counters.packets += 1;
        self.counters.bytes += packet.len() as u64;
        self.counters.unfinished += u64::from(packet.has_offload());
        into.push(packet);
    }
}

impl RxQueue for TapRx {
    fn receive(&mut self, pool: &'static Pool, max: usize, into: &mut Batch) -> Result<usize, DeviceError> {
        let (start, mut time) = (into.len(), None);
        for _ in 0..max {
            // Without a packet nothing is read: the host's queue holds it, and counts what it drops.
            let Some(packet) = pool.alloc_packet() else { break };
            match self.read(pool, packet) {
                Ok(Some(packet)) => {
                    let time = *time.get_or_insert_with(now);
                    self.finish(packet, time, into);
                }
                Ok(None) | Err(Errno::INTR) => {}
                Err(Errno::AGAIN) => break,
                Err(error) => return Err(failed(&self.name, "reading from it", error)),
            }
        }
        Ok(into.len() - start)
    }
    fn fd(&self) -> Option<BorrowedFd<'_>> {
        Some(self.fd.as_fd())
    }
    fn counters(&self) -> RxCounters {
        self.counters
    }
}

/// The time of day; devices without timestamps of their own have no better one.
fn now() -> Time {
    let since = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
    Time::ZERO + since
}

/// Gives packets to the host.
#[derive(Debug)]
pub struct TapTx {
    fd: Arc<OwnedFd>,
    name: String,
    counters: TxCounters,
}

impl TxQueue for TapTx {
    fn transmit(&mut self, batch: &mut Batch) -> Result<usize, DeviceError> {
        let (mut left, mut result) = (0, Ok(()));
        for packet in &*batch {
            match write(&self.fd, packet) {
                Ok(()) => {
                    self.counters.packets += 1;
                    self.counters.bytes += packet.len() as u64;
                    self.counters.unfinished += u64::from(packet.has_offload());
                }
                // Interrupted or full: the packet stays, and the caller comes back.
                Err(Errno::INTR | Errno::AGAIN | Errno::NOBUFS) => {
                    self.counters.full += 1;
                    break;
                }
                Err(error @ (Errno::BADFD | Errno::IO)) => {
                    result = Err(failed(&self.name, "writing to it", error));
                    break;
                }
                Err(_) => self.counters.refused += 1,
            }
            left += 1;
        }
        batch.drain_front(left).for_each(drop);
        result.map(|()| left)
    }
    fn fd(&self) -> Option<BorrowedFd<'_>> {
        Some(self.fd.as_fd())
    }
    fn counters(&self) -> TxCounters {
        self.counters
    }
}

fn write(fd: &OwnedFd, packet: &Packet) -> Result<(), Errno> {
    let header = describe(packet).map_err(|_| Errno::INVAL)?;
    writev(fd, &[IoSlice::new(&header), IoSlice::new(packet.data())]).map(drop)
}

#[cfg(test)]
mod tests;
