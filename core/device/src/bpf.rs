//! BPF programs, by bpf(2): loading, attaching, running, maps; and the program that hides frames from
//! the host's own stack.
//!
//! What holds a program at an interface is an [`Attachment`]: a BPF link where the kernel has them for
//! the hook, which it removes when the last descriptor of it is closed, however the process ends; else a
//! filter of tc (`filter.rs`), which outlives its process. Programs of filters therefore act only while
//! a [`Lease`] is renewed.
//!
//! Programs are put together by an [`Assembler`]; maps are in `maps.rs`, runs without an interface in
//! `run.rs`, programs of others in `query.rs`, questions about what the kernel offers in `features.rs`, the
//! programs that hide frames from the host in `hide.rs`, programs at the kernel's tracepoints in
//! `tracepoint.rs`, events of programs in `event_ring.rs`, and where the kernel's structures have
//! their members in `btf.rs`.
#[forbid(unsafe_code)]
mod assembler;
#[allow(unsafe_code)]
mod attach;
#[forbid(unsafe_code)]
mod btf;
#[forbid(unsafe_code)]
mod event_ring;
#[forbid(unsafe_code)]
mod features;
#[forbid(unsafe_code)]
mod filter;
#[forbid(unsafe_code)]
mod hide;
#[forbid(unsafe_code)]
mod lease;
#[allow(unsafe_code)]
mod maps;
#[allow(unsafe_code)]
mod query;
#[allow(unsafe_code)]
mod run;
#[allow(unsafe_code)]
mod tracepoint;

pub use assembler::{Assembler, Label, NotAssembled, Operand, Operation, Register, Size, Test};
pub use attach::{Attachment, attach, attach_filter};
pub use btf::Btf;
pub use event_ring::{EMIT_EVENT, EventRing};
pub use features::{counts_locked_memory, shares_arrays, takes_programs};
pub use filter::{FILTER_NAME, living_filter_owners, remove_dead_filters};
pub(crate) use hide::Hidden;
pub use lease::Lease;
pub(crate) use maps::SocketMap;
pub use maps::{Array, DeviceMap, ProgramArray, WordArray};
pub use query::{AttachedPrograms, TcxSide, has_tcx, is_of_artery, tcx_programs, verified_instructions};
#[cfg(test)]
pub(crate) use run::send_live;
pub use run::{FIRST_BUFFER, Outcome, run, run_live, run_multi_buffer};
pub use tracepoint::Tracepoint;

use crate::{DeviceError, Interface, sys};
use rustix::fd::{FromRawFd, OwnedFd};
use rustix::process::{Resource, Rlimit, setrlimit};
use std::io;
use std::time::{Duration, Instant};

const BPF_PROG_LOAD: libc::c_int = 5;
const BPF_PROG_TYPE_SCHED_CLS: u32 = 3;
const BPF_PROG_TYPE_XDP: u32 = 6;
const BPF_PROG_TYPE_RAW_TRACEPOINT: u32 = 17;
const BPF_F_XDP_HAS_FRAGS: u32 = 1 << 5;
const BPF_XDP: u32 = 37;
const BPF_TCX_INGRESS: u32 = 46;
/// Most bytes of the verifier's log that are read.
const MOST_LOG: usize = 1 << 24;

/// An instruction: code, registers, offset, operand.
pub type Instruction = [u8; 8];

/// An instruction that uses the registers `to` and `from`.
pub const fn instruction(code: u8, to: u8, from: u8, offset: i16, operand: i32) -> Instruction {
    let ([o0, o1], [i0, i1, i2, i3]) = (offset.to_ne_bytes(), operand.to_ne_bytes());
    let registers = if cfg!(target_endian = "little") { from << 4 | to } else { to << 4 | from };
    [code, registers, o0, o1, i0, i1, i2, i3]
}

/// Where a program is attached, and so what it is.
#[derive(Clone, Copy, Debug)]
pub enum Hook {
    /// Where tc's filters for arriving frames are: behind packet sockets, before the host's stack. TCX where
    /// the kernel has it (Linux 6.6), else cls_bpf.
    TcIngress,
    /// Before everything, in the driver or where the driver hands frames over, as `flags` say.
    Xdp {
        /// The `XDP_FLAGS_*` bits of the attachment.
        flags: u32,
        /// Whether the program takes frames that lie in several buffers, of which it sees
        /// the first (Linux 5.18).
        multi_buffer: bool,
    },
}

impl Hook {
    /// XDP where the driver or the kernel runs programs, for frames in one buffer.
    pub const XDP: Hook = Hook::Xdp { flags: 0, multi_buffer: false };

    fn kind(self) -> Kind {
        match self {
            Hook::TcIngress => Kind { program_type: BPF_PROG_TYPE_SCHED_CLS, flags: 0 },
            Hook::Xdp { multi_buffer, .. } => Kind {
                program_type: BPF_PROG_TYPE_XDP,
                flags: if multi_buffer { BPF_F_XDP_HAS_FRAGS } else { 0 },
            },
        }
    }
    fn attach_type(self) -> u32 {
        match self {
            Hook::TcIngress => BPF_TCX_INGRESS,
            Hook::Xdp { .. } => BPF_XDP,
        }
    }
    fn flags(self) -> u32 {
        match self {
            Hook::TcIngress => 0,
            Hook::Xdp { flags, .. } => flags,
        }
    }
}

/// What the kernel checks a program as.
#[derive(Clone, Copy)]
struct Kind {
    program_type: u32,
    /// The `BPF_F_*` flags that the program is loaded with.
    flags: u32,
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
    kernel_version: u32,
    flags: u32,
    name: [u8; NAME_BYTES],
    rest: [u64; 9],
}

/// Bytes of a program's name (`BPF_OBJ_NAME_LEN`).
const NAME_BYTES: usize = 16;
/// The name of every program of Artery in the kernel: bpftool-prog(8) lists it.
const NAME: &[u8; NAME_BYTES] = b"artery\0\0\0\0\0\0\0\0\0\0";

/// How long loading is retried where the verifier was interrupted, and the pause between attempts.
const LOAD_PATIENCE: Duration = Duration::from_secs(5);
const LOAD_PAUSE: Duration = Duration::from_millis(5);

/// Loads a program for a hook. The kernel accepts it only if it can do no harm.
pub fn load(hook: Hook, instructions: &[Instruction]) -> io::Result<OwnedFd> {
    load_kind(hook.kind(), instructions)
}

fn load_kind(kind: Kind, instructions: &[Instruction]) -> io::Result<OwnedFd> {
    with_locked_memory(|| load_patiently(kind, instructions))
}

/// Before Linux 5.11 programs and maps count as locked memory, which has a limit. Where that may be why the
/// kernel refuses one, it is made again without the limit.
fn with_locked_memory<T>(make: impl Fn() -> io::Result<T>) -> io::Result<T> {
    match make() {
        Err(error) if error.raw_os_error() == Some(libc::EPERM) => {
            let unlimited = Rlimit { current: None, maximum: None };
            match setrlimit(Resource::Memlock, unlimited) {
                Ok(()) => make(),
                Err(_) => Err(error),
            }
        }
        result => result,
    }
}

fn load_patiently(kind: Kind, instructions: &[Instruction]) -> io::Result<OwnedFd> {
    let start = Instant::now();
    loop {
        match load_with_log(kind, instructions, &mut []) {
            // The verifier gives up when a signal is pending for this thread; loading has to be tried again.
            Err(error) if error.kind() == io::ErrorKind::WouldBlock && start.elapsed() < LOAD_PATIENCE => {
                std::thread::sleep(LOAD_PAUSE);
            }
            other => return other,
        }
    }
}

/// Whether the kernel knows programs for frames that lie in several buffers.
pub fn takes_multi_buffer() -> bool {
    let pass = [instruction(0xb7, 0, 0, 0, 2), instruction(0x95, 0, 0, 0, 0)];
    load(Hook::Xdp { flags: 0, multi_buffer: true }, &pass).is_ok()
}

/// Loads a program for an interface. A refusal by the verifier is returned with the last lines of its log;
/// `refused` words every other error.
pub(crate) fn load_for(
    interface: &Interface,
    doing: &'static str,
    hook: Hook,
    instructions: &[Instruction],
    refused: impl FnOnce(io::Error) -> DeviceError,
) -> Result<OwnedFd, DeviceError> {
    load(hook, instructions).map_err(|error| match error.raw_os_error() {
        // Of rights the kernel says EPERM.
        Some(libc::EACCES) => {
            let (name, verifier) = (interface.name.clone(), last_lines(&verdict(hook, instructions)));
            DeviceError::NotVerified { name, doing, verifier }
        }
        _ => refused(error),
    })
}

/// How many lines of the verifier are kept, which say why it refuses, and at which instruction.
const VERIFIER_LINES: usize = 12;

/// The last lines of the verifier's log; the lines before them trace the program from its start.
pub fn last_lines(verdict: &str) -> Vec<String> {
    let lines: Vec<&str> = verdict.lines().collect();
    lines[lines.len().saturating_sub(VERIFIER_LINES)..].iter().map(|line| line.to_string()).collect()
}

/// What the kernel's verifier says of a program, which ends with why it refuses it if it does.
pub fn verdict(hook: Hook, instructions: &[Instruction]) -> String {
    let mut log = vec![0; MOST_LOG];
    if let Err(error) = load_with_log(hook.kind(), instructions, &mut log)
        && log[0] == 0
    {
        return error.to_string();
    }
    log.truncate(log.iter().position(|byte| *byte == 0).unwrap_or(log.len()));
    String::from_utf8_lossy(&log).into_owned()
}

fn load_with_log(kind: Kind, instructions: &[Instruction], log: &mut [u8]) -> io::Result<OwnedFd> {
    let mut argument = Load {
        program_type: kind.program_type,
        instruction_count: instructions.len() as u32,
        instructions: instructions.as_ptr() as u64,
        license: c"Dual MIT/GPL".as_ptr() as u64,
        log_level: u32::from(!log.is_empty()),
        log_bytes: log.len() as u32,
        log: if log.is_empty() { 0 } else { log.as_mut_ptr() as u64 },
        kernel_version: 0,
        flags: kind.flags,
        name: *NAME,
        rest: [0; 9],
    };
    // SAFETY: the command makes a descriptor. The argument is as long as said; its pointers lead to as many
    // instructions as it says and a C string, which the kernel only reads, and to room for as much of its log
    // as it says.
    unsafe { bpf_descriptor(BPF_PROG_LOAD, &mut argument) }
}

/// Waits until every program run that had begun before has ended, so that what it may have read
/// can be used again.
/// An error if the kernel does not offer that (membarrier(2), `MEMBARRIER_CMD_GLOBAL`).
pub fn wait_for_runs() -> io::Result<()> {
    sys::wait_for_grace_period()
}

fn check(result: libc::c_long) -> io::Result<()> {
    if result < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
}

/// The descriptor that a command makes.
///
/// # Safety
/// `argument` must be what `command` takes, and `command` one that returns a new descriptor.
unsafe fn bpf_descriptor<T>(command: libc::c_int, argument: &mut T) -> io::Result<OwnedFd> {
    // SAFETY: the caller's promise.
    let result = unsafe { bpf(command, argument) };
    check(result)?;
    // SAFETY: the kernel has just made it for this call, so it has no other owner;
    // descriptors are below 2^31.
    Ok(unsafe { OwnedFd::from_raw_fd(result as libc::c_int) })
}

/// # Safety
/// `argument` must be what `command` takes.
unsafe fn bpf<T>(command: libc::c_int, argument: &mut T) -> libc::c_long {
    // SAFETY: the caller's promise; the kernel reads and writes no more bytes than are there.
    unsafe { libc::syscall(libc::SYS_bpf, command, std::ptr::from_mut(argument), size_of::<T>()) }
}
