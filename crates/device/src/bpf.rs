//! Hiding an interface's frames from the host's own stack, by a BPF program that dies with this process.
//!
//! The program drops every frame at the interface's TCX ingress hook. Packet sockets see frames before that hook,
//! the stack after it. What holds it there is a BPF link: the kernel removes it when the last descriptor of it is
//! closed, however the process ends.
use crate::{DeviceError, Interface, sys};
use rustix::fd::{AsRawFd, OwnedFd};
use std::io;

const BPF_PROG_LOAD: libc::c_int = 5;
const BPF_LINK_CREATE: libc::c_int = 28;
const BPF_PROG_TYPE_SCHED_CLS: u32 = 3;
const BPF_TCX_INGRESS: u32 = 46;
/// What the program returns: drop the frame.
const TCX_DROP: i32 = 2;

/// `r0 = TCX_DROP; exit`, as instructions of eight bytes: code, registers, offset, operand.
const DROP_ALL: [[u8; 8]; 2] = {
    let drop = TCX_DROP.to_ne_bytes();
    [[0xb7, 0, 0, 0, drop[0], drop[1], drop[2], drop[3]], [0x95, 0, 0, 0, 0, 0, 0, 0]]
};

/// The beginning of the argument of `bpf(BPF_PROG_LOAD)`; what follows is zero.
#[repr(C)]
struct Load {
    program_type: u32,
    instruction_count: u32,
    instructions: u64,
    license: u64,
    rest: [u64; 14],
}

/// The beginning of the argument of `bpf(BPF_LINK_CREATE)`; what follows is zero.
#[repr(C)]
struct Link {
    program: u32,
    interface: u32,
    attach_type: u32,
    flags: u32,
    rest: [u64; 6],
}

/// While it lives, the host's stack does not see what arrives on an interface.
#[derive(Debug)]
pub(crate) struct Hidden {
    _link: OwnedFd,
}

impl Hidden {
    /// Hides what arrives on `interface` from the host.
    pub(crate) fn hide(interface: &Interface) -> Result<Hidden, DeviceError> {
        let program = load_drop_all().map_err(|e| refused(interface, &e))?;
        let link = attach(&program, interface.index).map_err(|e| refused(interface, &e))?;
        Ok(Hidden { _link: link })
    }
}

fn refused(interface: &Interface, error: &io::Error) -> DeviceError {
    let name = &interface.name;
    match error.raw_os_error() {
        Some(libc::EINVAL | libc::ENOSYS | libc::EOPNOTSUPP) => DeviceError::NotSupported {
            name: name.clone(),
            doing: "hiding frames from the host (SNIFFER false), which needs Linux 6.6 with TCX",
            instead: "remove the host's addresses from the interface ('ip address flush') and give them to a \
                      TAP device that the router serves",
        },
        _ => {
            DeviceError::from_io(name, "hiding its frames from the host", "CAP_BPF and CAP_NET_ADMIN", error)
        }
    }
}

fn load_drop_all() -> io::Result<OwnedFd> {
    let argument = Load {
        program_type: BPF_PROG_TYPE_SCHED_CLS,
        instruction_count: DROP_ALL.len() as u32,
        instructions: DROP_ALL.as_ptr() as u64,
        license: c"Dual MIT/GPL".as_ptr() as u64,
        rest: [0; 14],
    };
    // SAFETY: the argument is as long as said; its pointers lead to the constant instructions and a C string, which
    // the kernel only reads. The instructions touch no memory.
    sys::descriptor(unsafe { bpf(BPF_PROG_LOAD, &argument) })
}

fn attach(program: &OwnedFd, interface: u32) -> io::Result<OwnedFd> {
    let argument = Link {
        program: program.as_raw_fd() as u32,
        interface,
        attach_type: BPF_TCX_INGRESS,
        flags: 0,
        rest: [0; 6],
    };
    // SAFETY: the argument is as long as said and has no pointers.
    sys::descriptor(unsafe { bpf(BPF_LINK_CREATE, &argument) })
}

/// SAFETY: `argument` must be what `command` takes.
unsafe fn bpf<T>(command: libc::c_int, argument: &T) -> libc::c_long {
    // SAFETY: the caller's promise; the kernel reads as many bytes as are there.
    unsafe { libc::syscall(libc::SYS_bpf, command, std::ptr::from_ref(argument), size_of::<T>()) }
}
