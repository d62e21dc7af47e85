//! BPF programs, by bpf(2): loading, attaching, running, maps; and the program that hides frames from the host's own stack.
//!
//! What holds a program at an interface is a BPF link: the kernel removes it when the last descriptor of it is
//! closed, however the process ends.
//!
//! The hiding program drops every frame at the interface's TCX ingress hook. Packet sockets see frames before that
//! hook, the stack after it.
use crate::{DeviceError, Interface, sys};
use rustix::fd::{AsFd, AsRawFd, OwnedFd};
use std::io;

const BPF_MAP_CREATE: libc::c_int = 0;
const BPF_MAP_LOOKUP_ELEM: libc::c_int = 1;
const BPF_MAP_UPDATE_ELEM: libc::c_int = 2;
const BPF_MAP_DELETE_ELEM: libc::c_int = 3;
const BPF_PROG_LOAD: libc::c_int = 5;
const BPF_PROG_TEST_RUN: libc::c_int = 10;
const BPF_LINK_CREATE: libc::c_int = 28;
const BPF_MAP_TYPE_ARRAY: u32 = 2;
const BPF_MAP_TYPE_XSKMAP: u32 = 17;
const BPF_PROG_TYPE_SCHED_CLS: u32 = 3;
const BPF_PROG_TYPE_XDP: u32 = 6;
const BPF_XDP: u32 = 37;
const BPF_TCX_INGRESS: u32 = 46;
const BPF_F_TEST_XDP_LIVE_FRAMES: u32 = 1 << 1;
/// What the hiding program returns: drop the frame.
const TCX_DROP: i32 = 2;

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

/// The beginning of the argument of `bpf(BPF_MAP_CREATE)`; what follows is zero.
#[repr(C)]
struct NewMap {
    map_type: u32,
    key_size: u32,
    value_size: u32,
    entries: u32,
    rest: [u64; 8],
}

/// The argument of `bpf(BPF_MAP_UPDATE_ELEM)` and of its like.
#[repr(C)]
struct Element {
    map: u32,
    padding: u32,
    key: u64,
    value: u64,
    flags: u64,
}

/// While it lives, the host's stack does not see what arrives on an interface.
#[derive(Debug)]
pub(crate) struct Hidden {
    _link: OwnedFd,
}

impl Hidden {
    /// Hides what arrives on `interface` from the host.
    pub(crate) fn hide(interface: &Interface) -> Result<Hidden, DeviceError> {
        let program = load(Hook::TcxIngress, &DROP_ALL).map_err(|e| refused(interface, &e))?;
        let link = attach(&program, interface.index, Hook::TcxIngress).map_err(|e| refused(interface, &e))?;
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

/// Loads a program for a hook. The kernel accepts it only if it can do no harm.
pub fn load(hook: Hook, instructions: &[Instruction]) -> io::Result<OwnedFd> {
    let mut argument = Load {
        program_type: hook.program_type(),
        instruction_count: instructions.len() as u32,
        instructions: instructions.as_ptr() as u64,
        license: c"Dual MIT/GPL".as_ptr() as u64,
        rest: [0; 14],
    };
    // SAFETY: the argument is as long as said; its pointers lead to as many instructions as it says and a C string,
    // which the kernel only reads.
    sys::descriptor(unsafe { bpf(BPF_PROG_LOAD, &mut argument) })
}

/// Attaches a program to an interface, until the link is closed.
pub(crate) fn attach(program: &OwnedFd, interface: u32, hook: Hook) -> io::Result<OwnedFd> {
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

/// Makes a map from queue numbers below `entries` to AF_XDP sockets.
pub(crate) fn new_socket_map(entries: u32) -> io::Result<OwnedFd> {
    new_map(BPF_MAP_TYPE_XSKMAP, 4, entries)
}

/// Makes a map whose keys are numbers.
fn new_map(map_type: u32, value_size: u32, entries: u32) -> io::Result<OwnedFd> {
    let mut argument = NewMap { map_type, key_size: 4, value_size, entries, rest: [0; 8] };
    // SAFETY: the argument is as long as said and has no pointers.
    sys::descriptor(unsafe { bpf(BPF_MAP_CREATE, &mut argument) })
}

/// Puts a socket under a number.
pub(crate) fn put_socket(map: &OwnedFd, number: u32, socket: impl AsFd) -> io::Result<()> {
    let value = socket.as_fd().as_raw_fd() as u32;
    change(BPF_MAP_UPDATE_ELEM, map, &number, &value)
}

/// Removes the socket under a number.
pub(crate) fn remove_socket(map: &OwnedFd, number: u32) -> io::Result<()> {
    change(BPF_MAP_DELETE_ELEM, map, &number, &0)
}

fn change(command: libc::c_int, map: &OwnedFd, key: &u32, value: &u32) -> io::Result<()> {
    let mut argument = Element {
        map: map.as_raw_fd() as u32,
        padding: 0,
        key: std::ptr::from_ref(key) as u64,
        // Unknown fields must be zero, and deleting knows no value.
        value: if command == BPF_MAP_DELETE_ELEM { 0 } else { std::ptr::from_ref(value) as u64 },
        flags: 0,
    };
    // SAFETY: the argument is as long as said; its pointers lead to a key and a value of four bytes each, which is
    // what new_socket_map() told the kernel and the callers pass, and which it only reads.
    check(unsafe { bpf(command, &mut argument) })
}

/// The argument of `bpf(BPF_PROG_TEST_RUN)`.
#[repr(C)]
#[derive(Default)]
struct Run {
    program: u32,
    result: u32,
    bytes_in: u32,
    bytes_out: u32,
    input: u64,
    output: u64,
    repeat: u32,
    duration: u32,
    context_sizes: [u32; 2],
    contexts: [u64; 2],
    flags: u32,
    processor: u32,
    batch: u32,
    padding: u32,
}

/// Runs an XDP program on a frame, `repeat` times, in groups of `batch` (0: as the kernel likes); what it redirects is
/// really sent. A signal ends it with an error of kind [`io::ErrorKind::Interrupted`].
pub fn run_live(program: &OwnedFd, frame: &[u8], repeat: u32, batch: u32) -> io::Result<()> {
    let mut argument = Run {
        program: program.as_raw_fd() as u32,
        bytes_in: frame.len() as u32,
        input: frame.as_ptr() as u64,
        repeat,
        flags: BPF_F_TEST_XDP_LIVE_FRAMES,
        batch,
        ..Run::default()
    };
    // SAFETY: the argument is as long as said; its pointer leads to as many bytes as it says, which the kernel only
    // reads. What it writes into the argument itself is integers.
    check(unsafe { bpf(BPF_PROG_TEST_RUN, &mut argument) })
}

/// An array of one element of `N` words, which programs and this process read and write.
#[derive(Debug)]
pub struct Words<const N: usize>(OwnedFd);

impl<const N: usize> Words<N> {
    /// Makes an array of zeros.
    pub fn new() -> io::Result<Words<N>> {
        new_map(BPF_MAP_TYPE_ARRAY, (N * size_of::<u64>()) as u32, 1).map(Words)
    }
    /// The number that a program names the array by.
    pub fn descriptor(&self) -> i32 {
        self.0.as_raw_fd()
    }
    /// What the words are now.
    pub fn read(&self) -> io::Result<[u64; N]> {
        let mut words = [0; N];
        self.exchange(BPF_MAP_LOOKUP_ELEM, &mut words)?;
        Ok(words)
    }
    /// Sets all words.
    pub fn write(&self, mut words: [u64; N]) -> io::Result<()> {
        self.exchange(BPF_MAP_UPDATE_ELEM, &mut words)
    }
    fn exchange(&self, command: libc::c_int, words: &mut [u64; N]) -> io::Result<()> {
        let key = 0u32;
        let (key, value) = (std::ptr::from_ref(&key) as u64, std::ptr::from_mut(words) as u64);
        let mut argument = Element { map: self.0.as_raw_fd() as u32, padding: 0, key, value, flags: 0 };
        // SAFETY: the argument is as long as said; its pointers lead to a key of four bytes and to as many words as
        // the array was made with.
        check(unsafe { bpf(command, &mut argument) })
    }
}

/// Sends a frame into the interface `repeat` times, as an XDP program that redirects does.
#[cfg(test)]
pub(crate) fn send_live(interface: u32, frame: &[u8], repeat: u32) -> io::Result<()> {
    const REDIRECT: i32 = 23;
    let program = [
        instruction(0xb7, 1, 0, 0, interface as i32),
        instruction(0xb7, 2, 0, 0, 0),
        instruction(0x85, 0, 0, 0, REDIRECT),
        instruction(0x95, 0, 0, 0, 0),
    ];
    run_live(&load(Hook::Xdp { flags: 0 }, &program)?, frame, repeat, 0)
}

fn check(result: libc::c_long) -> io::Result<()> {
    if result < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
}

/// SAFETY: `argument` must be what `command` takes.
unsafe fn bpf<T>(command: libc::c_int, argument: &mut T) -> libc::c_long {
    // SAFETY: the caller's promise; the kernel reads and writes no more bytes than are there.
    unsafe { libc::syscall(libc::SYS_bpf, command, std::ptr::from_mut(argument), size_of::<T>()) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::namespace::may_make_namespaces;

    #[test]
    fn words_of_an_array_are_what_was_written() {
        if !may_make_namespaces() {
            return;
        }
        let words = Words::<5>::new().unwrap();
        assert_eq!(words.read().unwrap(), [0; 5]);
        words.write([1, 2, 3, u64::MAX, 5]).unwrap();
        assert_eq!(words.read().unwrap(), [1, 2, 3, u64::MAX, 5]);
    }
}
