//! System calls that have no safe wrapper elsewhere: interface requests, socket options, packet addresses.
use artery_packet::{FRAME, Pool};
use rustix::fd::{AsRawFd, BorrowedFd};
use std::io;

/// Answer or argument of an interface request: the part of `struct ifreq` after the name.
pub(crate) type IfreqValue = [u8; 24];

/// `struct ifreq` as bytes; the kernel reads and writes at most 40.
#[repr(C, align(8))]
struct Ifreq {
    name: [u8; libc::IFNAMSIZ],
    value: IfreqValue,
}

/// Requests about an interface by name. Every code takes a pointer to a `struct ifreq`.
#[derive(Clone, Copy, Debug)]
pub(crate) enum IfreqCommand {
    Index,
    Flags,
    SetFlags,
    Mtu,
    SetMtu,
    Hardware,
    SetHardware,
    /// Makes a descriptor of `/dev/net/tun` a queue of a device.
    Tun,
}

impl IfreqCommand {
    fn code(self) -> libc::Ioctl {
        match self {
            IfreqCommand::Index => libc::SIOCGIFINDEX as _,
            IfreqCommand::Flags => libc::SIOCGIFFLAGS as _,
            IfreqCommand::SetFlags => libc::SIOCSIFFLAGS as _,
            IfreqCommand::Mtu => libc::SIOCGIFMTU as _,
            IfreqCommand::SetMtu => libc::SIOCSIFMTU as _,
            IfreqCommand::Hardware => libc::SIOCGIFHWADDR as _,
            IfreqCommand::SetHardware => libc::SIOCSIFHWADDR as _,
            IfreqCommand::Tun => libc::TUNSETIFF as _,
        }
    }
}

/// Makes a request about the interface `name`; returns the name and value that the kernel left.
pub(crate) fn request(
    fd: BorrowedFd<'_>,
    ask: IfreqCommand,
    name: &str,
    value: &[u8],
) -> io::Result<(String, IfreqValue)> {
    let mut request = Ifreq { name: [0; libc::IFNAMSIZ], value: [0; 24] };
    if name.len() >= libc::IFNAMSIZ || value.len() > request.value.len() {
        return Err(io::Error::from_raw_os_error(libc::EINVAL));
    }
    request.name[..name.len()].copy_from_slice(name.as_bytes());
    request.value[..value.len()].copy_from_slice(value);
    // SAFETY: each of these codes takes a pointer to a struct ifreq, which is no longer than a Request; any
    // bytes are a valid one, and no code among them follows a pointer in it.
    let result = unsafe { libc::ioctl(fd.as_raw_fd(), ask.code(), &raw mut request) };
    if result < 0 {
        return Err(io::Error::last_os_error());
    }
    let length = request.name.iter().position(|byte| *byte == 0).unwrap_or(request.name.len());
    Ok((String::from_utf8_lossy(&request.name[..length]).into_owned(), request.value))
}

/// Says what senders may leave to be done with packets that come by a queue of a TAP
/// device: the `TUN_F_*` bits.
pub(crate) fn set_tun_offloads(fd: BorrowedFd<'_>, offloads: libc::c_uint) -> io::Result<()> {
    let value = libc::c_ulong::from(offloads);
    // SAFETY: the code takes its argument by value.
    check(unsafe { libc::ioctl(fd.as_raw_fd(), libc::TUNSETOFFLOAD as _, value) })
}

/// Types that may be a socket option.
///
/// # Safety
/// Any bytes must be a value, there must be no padding, and no option of this type may hold an address that
/// the kernel follows. (`xdp_umem_reg` holds one: see [`register_frames`].)
pub(crate) unsafe trait PlainOption: Copy {}
// SAFETY: a number.
unsafe impl PlainOption for libc::c_int {}
// SAFETY: numbers and bytes without gaps: 4, 2, 2 and 8 bytes.
unsafe impl PlainOption for libc::packet_mreq {}
// SAFETY: four numbers of four bytes.
unsafe impl PlainOption for libc::tpacket_req {}
// SAFETY: two numbers of four bytes.
unsafe impl PlainOption for libc::tpacket_stats {}
// SAFETY: numbers of eight bytes, offsets into what is mapped by its own call.
unsafe impl PlainOption for libc::xdp_mmap_offsets {}
// SAFETY: numbers of eight bytes.
unsafe impl PlainOption for libc::xdp_statistics {}
// SAFETY: a number.
unsafe impl PlainOption for libc::xdp_options {}
// SAFETY: three numbers of four bytes.
unsafe impl PlainOption for libc::ucred {}

/// Sets a socket option.
pub(crate) fn set_option<T: PlainOption>(
    fd: BorrowedFd<'_>,
    level: libc::c_int,
    name: libc::c_int,
    value: &T,
) -> io::Result<()> {
    let len = size_of::<T>() as libc::socklen_t;
    // SAFETY: the kernel reads `len` bytes of the value, and follows nothing in it, since it is Plain.
    check(unsafe { libc::setsockopt(fd.as_raw_fd(), level, name, std::ptr::from_ref(value).cast(), len) })
}

/// Registers the common frames of a pool with an AF_XDP socket, as memory that both sides may use.
pub(crate) fn register_frames(fd: BorrowedFd<'_>, pool: &'static Pool) -> io::Result<()> {
    let region = pool.region();
    let memory = libc::xdp_umem_reg {
        addr: region.cast::<u8>().as_ptr() as u64,
        len: region.len() as u64,
        chunk_size: FRAME as u32,
        headroom: 0,
        flags: 0,
        tx_metadata_len: 0,
    };
    let len = size_of_val(&memory) as libc::socklen_t;
    let value = (&raw const memory).cast();
    // SAFETY: the kernel reads `len` bytes of the value. The region is mapped as long as the process lives.
    // The kernel touches no frame of it before one is put into a ring, which is `xdp/socket.rs`'s to do.
    check(unsafe { libc::setsockopt(fd.as_raw_fd(), libc::SOL_XDP, libc::XDP_UMEM_REG, value, len) })
}

/// Reads a socket option over `value`, which the kernel may fill in part.
pub(crate) fn option<T: PlainOption>(
    fd: BorrowedFd<'_>,
    level: libc::c_int,
    name: libc::c_int,
    mut value: T,
) -> io::Result<T> {
    let mut len = size_of::<T>() as libc::socklen_t;
    // SAFETY: the kernel writes at most `len` bytes over the value, of which any are valid.
    check(unsafe { libc::getsockopt(fd.as_raw_fd(), level, name, (&raw mut value).cast(), &raw mut len) })?;
    Ok(value)
}

/// The process at the other end of a Unix socket, as the kernel recorded it when they were connected
/// (SO_PEERCRED, unix(7)). rustix's type has no room for a process that is 0.
pub(crate) fn peer_credentials(fd: BorrowedFd<'_>) -> io::Result<libc::ucred> {
    option(fd, libc::SOL_SOCKET, libc::SO_PEERCRED, libc::ucred { pid: 0, uid: 0, gid: 0 })
}

/// Binds a packet socket to an interface, for frames of `protocol` (in host order; 0 for none).
pub(crate) fn bind_packet(fd: BorrowedFd<'_>, index: u32, protocol: u16) -> io::Result<()> {
    let address = libc::sockaddr_ll {
        sll_family: libc::AF_PACKET as u16,
        sll_protocol: protocol.to_be(),
        sll_ifindex: index as libc::c_int,
        sll_hatype: 0,
        sll_pkttype: 0,
        sll_halen: 0,
        sll_addr: [0; 8],
    };
    bind(fd, &address)
}

/// The number of the interface that a packet socket is bound to; -1 if that was deleted or has left the
/// network namespace, after which the kernel never binds the socket again.
pub(crate) fn bound_interface(fd: BorrowedFd<'_>) -> io::Result<libc::c_int> {
    let mut address = libc::sockaddr_ll {
        sll_family: 0,
        sll_protocol: 0,
        sll_ifindex: 0,
        sll_hatype: 0,
        sll_pkttype: 0,
        sll_halen: 0,
        sll_addr: [0; 8],
    };
    let mut len = size_of::<libc::sockaddr_ll>() as libc::socklen_t;
    // SAFETY: the kernel writes at most `len` bytes over the address, of which any are valid.
    check(unsafe { libc::getsockname(fd.as_raw_fd(), (&raw mut address).cast(), &raw mut len) })?;
    Ok(address.sll_ifindex)
}

/// Binds an AF_XDP socket to a queue of an interface.
pub(crate) fn bind_xdp(fd: BorrowedFd<'_>, index: u32, queue: u32, flags: u16) -> io::Result<()> {
    let address = libc::sockaddr_xdp {
        sxdp_family: libc::AF_XDP as u16,
        sxdp_flags: flags,
        sxdp_ifindex: index,
        sxdp_queue_id: queue,
        sxdp_shared_umem_fd: 0,
    };
    bind(fd, &address)
}

fn bind<T>(fd: BorrowedFd<'_>, address: &T) -> io::Result<()> {
    let len = size_of::<T>() as libc::socklen_t;
    // SAFETY: the kernel reads `len` bytes of the address.
    check(unsafe { libc::bind(fd.as_raw_fd(), std::ptr::from_ref(address).cast(), len) })
}

/// Queries the driver of the interface `name`. `answer` begins with the command's number and is as long as
/// the kernel's structure for it, which must not depend on anything else.
pub(crate) fn query_driver<const N: usize>(
    fd: BorrowedFd<'_>,
    name: &str,
    command: EthtoolCommand,
) -> io::Result<[u8; N]> {
    assert_eq!(N, command.size(), "the answer is as long as the kernel's");
    let mut answer = EthtoolAnswer([0; N]);
    answer.0[..4].copy_from_slice(&command.code().to_ne_bytes());
    let mut request =
        DriverRequest { name: [0; libc::IFNAMSIZ], answer: (&raw mut answer).cast(), rest: [0; 16] };
    if name.len() >= libc::IFNAMSIZ {
        return Err(io::Error::from_raw_os_error(libc::EINVAL));
    }
    request.name[..name.len()].copy_from_slice(name.as_bytes());
    // SAFETY: the code takes a pointer to a struct ifreq, which is no longer than the request, whose pointer
    // leads to as many bytes as the kernel writes for these commands.
    check(unsafe { libc::ioctl(fd.as_raw_fd(), libc::SIOCETHTOOL as _, &raw mut request) })?;
    Ok(answer.0)
}

/// Questions to drivers whose answer has a fixed size.
#[derive(Clone, Copy, Debug)]
pub(crate) enum EthtoolCommand {
    /// Driver name: `struct ethtool_drvinfo`.
    Name,
    /// Numbers of queues: `struct ethtool_channels`.
    Channels,
    /// Speed and duplex: `struct ethtool_cmd`.
    Link,
    /// `struct ethtool_value`, as all that follow: flags.
    Flags,
    ReceiveChecksum,
    SendChecksum,
    Gather,
    CutTcp,
    CutLate,
    Join,
}

impl EthtoolCommand {
    fn code(self) -> u32 {
        match self {
            EthtoolCommand::Name => 0x03,
            EthtoolCommand::Channels => 0x3c,
            EthtoolCommand::Link => 0x01,
            EthtoolCommand::Flags => 0x25,
            EthtoolCommand::ReceiveChecksum => 0x14,
            EthtoolCommand::SendChecksum => 0x16,
            EthtoolCommand::Gather => 0x18,
            EthtoolCommand::CutTcp => 0x1e,
            EthtoolCommand::CutLate => 0x23,
            EthtoolCommand::Join => 0x2b,
        }
    }
    fn size(self) -> usize {
        match self {
            EthtoolCommand::Name => 196,
            EthtoolCommand::Channels => 36,
            EthtoolCommand::Link => 44,
            _ => 8,
        }
    }
}

#[repr(C, align(8))]
struct EthtoolAnswer<const N: usize>([u8; N]);

/// `struct ifreq` with a pointer in it.
#[repr(C)]
struct DriverRequest {
    name: [u8; libc::IFNAMSIZ],
    answer: *mut libc::c_void,
    rest: [u8; 16],
}

/// Names of all interfaces of this thread's network namespace, in order of index.
pub(crate) fn interface_names() -> Vec<String> {
    // SAFETY: no arguments; the result is freed below.
    let list = unsafe { libc::if_nameindex() };
    let mut names = Vec::new();
    if list.is_null() {
        return names;
    }
    let mut entry = list;
    // SAFETY: the list is an array that ends with an entry whose name is null; names are C strings.
    while let Some(name) = unsafe { (*entry).if_name.as_ref() } {
        // SAFETY: as above.
        names.push(unsafe { std::ffi::CStr::from_ptr(name) }.to_string_lossy().into_owned());
        // SAFETY: an entry follows every entry with a name.
        entry = unsafe { entry.add(1) };
    }
    // SAFETY: the list came from if_nameindex() and is not used after this.
    unsafe { libc::if_freenameindex(list) };
    names
}

fn check(result: libc::c_int) -> io::Result<()> {
    if result < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
}

/// Waits until what the kernel was about to do with things that were meanwhile taken from it is done: one of
/// its grace periods. A kernel that was started with `nohz_full` does not offer that.
pub(crate) fn wait_for_grace_period() -> io::Result<()> {
    const GLOBAL: libc::c_int = 1;
    // SAFETY: it takes numbers only.
    check(unsafe { libc::syscall(libc::SYS_membarrier, GLOBAL, 0, 0) } as libc::c_int)
}

/// Has every large allocation be a mapping of its own, which the system gets back when it is freed.
///
/// glibc raises the size from which it does so with each one that is freed, up to 32 MB. Then the tables of a
/// configuration that gave way stay with the process: one copy in the arena of each thread that ever had one.
pub fn map_large_allocations() {
    #[cfg(target_env = "gnu")]
    {
        /// Bytes: what glibc begins with.
        const THRESHOLD: libc::c_int = 128 << 10;
        // SAFETY: it takes numbers only, and changes where later allocations lie. What it returns is whether
        // it knows the parameter; where it doesn't, memory is as before.
        unsafe { libc::mallopt(libc::M_MMAP_THRESHOLD, THRESHOLD) };
    }
}

/// Gives this thread a network namespace of its own, which ends with it and with what was opened in it.
#[cfg(test)]
pub(crate) fn enter_new_network_namespace() -> io::Result<()> {
    // SAFETY: with this flag no memory or descriptor table changes.
    check(unsafe { libc::unshare(libc::CLONE_NEWNET) })
}
