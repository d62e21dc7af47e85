//! BPF programs, by bpf(2): loading, attaching, running, maps; and the program that hides frames from the host's own stack.
//!
//! What holds a program at an interface is a BPF link: the kernel removes it when the last descriptor of it is
//! closed, however the process ends.
//!
//! Programs are put together by an [`Assembler`]; maps are in `maps.rs`, runs without an interface in `run.rs`, and what
//! programs of others there are says `query.rs`.
//!
//! A hiding program drops every frame, or every tagged one, at the interface's TCX ingress hook. Packet sockets see frames before that
//! hook, the stack after it.
mod assembler;
mod maps;
mod query;
mod run;

pub use assembler::{Assembler, Label, NotAssembled, Operand, Operation, Register, Size, Test};
pub use maps::{Array, DeviceMap, Words};
pub(crate) use maps::{new_socket_map, put_socket, remove_socket};
pub use query::{Side, tcx_programs};
#[cfg(test)]
pub(crate) use run::send_live;
pub use run::{Outcome, run, run_live};

use crate::{DeviceError, Hide, Interface, sys};
use rustix::fd::{AsRawFd, OwnedFd};
use std::io;

const BPF_PROG_LOAD: libc::c_int = 5;
const BPF_LINK_CREATE: libc::c_int = 28;
const BPF_LINK_UPDATE: libc::c_int = 29;
const BPF_PROG_TYPE_SCHED_CLS: u32 = 3;
const BPF_PROG_TYPE_XDP: u32 = 6;
const BPF_XDP: u32 = 37;
const BPF_TCX_INGRESS: u32 = 46;
/// Most bytes of the verifier's log that are read.
const MOST_LOG: usize = 1 << 24;
/// What hiding programs return: drop the frame.
const TCX_DROP: i32 = 2;
/// Ask the next program, or let it pass.
const TCX_NEXT: i32 = -1;

/// An instruction: code, registers, offset, operand.
pub type Instruction = [u8; 8];

/// Makes an instruction that uses the registers `to` and `from`.
pub const fn instruction(code: u8, to: u8, from: u8, offset: i16, operand: i32) -> Instruction {
    let ([o0, o1], [i0, i1, i2, i3]) = (offset.to_ne_bytes(), operand.to_ne_bytes());
    let registers = if cfg!(target_endian = "little") { from << 4 | to } else { to << 4 | from };
    [code, registers, o0, o1, i0, i1, i2, i3]
}

/// `r0 = TCX_DROP; exit`.
const DROP_ALL: [Instruction; 2] = [instruction(0xb7, 0, 0, 0, TCX_DROP), instruction(0x95, 0, 0, 0, 0)];

/// The same for frames with a tag. All others are the next program's; so are those whose tag says a priority only, as the host
/// takes them for frames without one. The kernel has taken tags off before.
const DROP_TAGGED: [Instruction; 11] = [
    // r2 = whether there is a tag
    instruction(0x61, 2, 1, 20, 0),
    instruction(0x15, 2, 0, 5, 0),
    // r2 = its type: that of a provider's is no question of VLANs
    instruction(0x61, 2, 1, 28, 0),
    instruction(0x55, 2, 0, 5, 0x8100_u16.to_be() as i32),
    // r2 = its VLAN
    instruction(0x61, 2, 1, 24, 0),
    instruction(0x57, 2, 0, 0, 0xfff),
    instruction(0x55, 2, 0, 2, 0),
    instruction(0xb7, 0, 0, 0, TCX_NEXT),
    instruction(0x95, 0, 0, 0, 0),
    instruction(0xb7, 0, 0, 0, TCX_DROP),
    instruction(0x95, 0, 0, 0, 0),
];

/// Where a program is attached, and so what it is.
#[derive(Clone, Copy, Debug)]
pub enum Hook {
    /// Behind packet sockets, before the host's stack.
    TcxIngress,
    /// Before everything, in the driver or where the driver hands frames over, as `flags` say.
    Xdp {
        /// `XDP_FLAGS_*`.
        flags: u32,
    },
}

impl Hook {
    fn program_type(self) -> u32 {
        match self {
            Hook::TcxIngress => BPF_PROG_TYPE_SCHED_CLS,
            Hook::Xdp { .. } => BPF_PROG_TYPE_XDP,
        }
    }
    fn attach_type(self) -> u32 {
        match self {
            Hook::TcxIngress => BPF_TCX_INGRESS,
            Hook::Xdp { .. } => BPF_XDP,
        }
    }
    fn flags(self) -> u32 {
        match self {
            Hook::TcxIngress => 0,
            Hook::Xdp { flags } => flags,
        }
    }
}

/// The beginning of the argument of `bpf(BPF_PROG_LOAD)`; what follows is zero.
#[repr(C)]
struct Load {
    program_type: u32,
    instruction_count: u32,
    instructions: u64,
    license: u64,
    log_level: u32,
    log_bytes: u32,
    log: u64,
    rest: [u64; 12],
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

/// The beginning of the argument of `bpf(BPF_LINK_UPDATE)`; what follows is zero.
#[repr(C)]
struct Replacement {
    link: u32,
    program: u32,
    rest: [u64; 7],
}

/// While it lives, the host's stack does not see what arrives on an interface, or the tagged part of it.
#[derive(Debug)]
pub(crate) struct Hidden {
    _link: OwnedFd,
}

impl Hidden {
    /// Hides what arrives on `interface` from the host, if something of it is to be hidden.
    pub(crate) fn hide(interface: &Interface, what: Hide) -> Result<Option<Hidden>, DeviceError> {
        let instructions = match what {
            Hide::Nothing => return Ok(None),
            Hide::Tagged => &DROP_TAGGED[..],
            Hide::All => &DROP_ALL,
        };
        let program = load(Hook::TcxIngress, instructions).map_err(|e| refused(interface, &e))?;
        let link = attach(&program, interface.index, Hook::TcxIngress).map_err(|e| refused(interface, &e))?;
        Ok(Some(Hidden { _link: link }))
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

/// How often a program is given to the kernel that was disturbed while it looked at it.
const LOADS: usize = 10;

/// Loads a program for a hook. The kernel accepts it only if it can do no harm.
pub fn load(hook: Hook, instructions: &[Instruction]) -> io::Result<OwnedFd> {
    for _ in 1..LOADS {
        match load_with_log(hook, instructions, &mut []) {
            // The verifier gives up where a signal waits for this thread, and wants to be asked again.
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => std::thread::yield_now(),
            other => return other,
        }
    }
    load_with_log(hook, instructions, &mut [])
}

/// What the kernel's verifier says of a program, which ends with why it refuses it if it does.
pub fn verdict(hook: Hook, instructions: &[Instruction]) -> String {
    let mut log = vec![0; MOST_LOG];
    if let Err(error) = load_with_log(hook, instructions, &mut log)
        && log[0] == 0
    {
        return error.to_string();
    }
    log.truncate(log.iter().position(|byte| *byte == 0).unwrap_or(log.len()));
    String::from_utf8_lossy(&log).into_owned()
}

fn load_with_log(hook: Hook, instructions: &[Instruction], log: &mut [u8]) -> io::Result<OwnedFd> {
    let mut argument = Load {
        program_type: hook.program_type(),
        instruction_count: instructions.len() as u32,
        instructions: instructions.as_ptr() as u64,
        license: c"Dual MIT/GPL".as_ptr() as u64,
        log_level: u32::from(!log.is_empty()),
        log_bytes: log.len() as u32,
        log: if log.is_empty() { 0 } else { log.as_mut_ptr() as u64 },
        rest: [0; 12],
    };
    // SAFETY: the argument is as long as said; its pointers lead to as many instructions as it says and a C string,
    // which the kernel only reads, and to room for as much of its log as it says.
    sys::descriptor(unsafe { bpf(BPF_PROG_LOAD, &mut argument) })
}

/// Attaches a program to an interface, until the link is closed.
pub fn attach(program: &OwnedFd, interface: u32, hook: Hook) -> io::Result<OwnedFd> {
    let mut argument = Link {
        program: program.as_raw_fd() as u32,
        interface,
        attach_type: hook.attach_type(),
        flags: hook.flags(),
        rest: [0; 6],
    };
    // SAFETY: the argument is as long as said and has no pointers.
    sys::descriptor(unsafe { bpf(BPF_LINK_CREATE, &mut argument) })
}

/// Puts another program in the place of the one that a link holds at its interface: no frame meets none.
pub fn replace(link: &OwnedFd, program: &OwnedFd) -> io::Result<()> {
    let mut argument =
        Replacement { link: link.as_raw_fd() as u32, program: program.as_raw_fd() as u32, rest: [0; 7] };
    // SAFETY: the argument is as long as said and has no pointers.
    check(unsafe { bpf(BPF_LINK_UPDATE, &mut argument) })
}

/// Waits until every run of a program has ended that had begun before, so that what it may have read can be used anew.
/// An error if the kernel does not offer that (membarrier(2), `MEMBARRIER_CMD_GLOBAL`).
pub fn wait_for_runs() -> io::Result<()> {
    sys::wait_for_grace_period()
}

fn check(result: libc::c_long) -> io::Result<()> {
    if result < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
}

/// SAFETY: `argument` must be what `command` takes.
unsafe fn bpf<T>(command: libc::c_int, argument: &mut T) -> libc::c_long {
    // SAFETY: the caller's promise; the kernel reads and writes no more bytes than are there.
    unsafe { libc::syscall(libc::SYS_bpf, command, std::ptr::from_mut(argument), size_of::<T>()) }
}
