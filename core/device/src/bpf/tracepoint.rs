//! Programs at the kernel's tracepoints.
use super::{BPF_PROG_TYPE_RAW_TRACEPOINT, Instruction, Kind, bpf_descriptor, load_kind};
use rustix::fd::{AsRawFd, OwnedFd};
use std::ffi::CStr;
use std::io;

const BPF_RAW_TRACEPOINT_OPEN: libc::c_int = 17;

/// The beginning of the argument of `bpf(BPF_RAW_TRACEPOINT_OPEN)`; what follows is zero.
#[repr(C)]
struct Open {
    name: u64,
    program: u32,
    rest: [u32; 3],
}

/// A program at a tracepoint, which leaves it when this is dropped, or its process ends.
#[derive(Debug)]
pub struct Tracepoint {
    _link: OwnedFd,
}

impl Tracepoint {
    /// Has a program run whenever the kernel passes a tracepoint, whatever the network namespace. `R1`
    /// leads to the tracepoint's arguments, 8 bytes each;
    /// [`Btf::argument_names`](super::Btf::argument_names) says which is which.
    ///
    /// An error of kind [`io::ErrorKind::NotFound`] where the kernel has no tracepoint of that name. CAP_BPF
    /// and CAP_PERFMON are needed.
    pub fn attach(name: &CStr, instructions: &[Instruction]) -> io::Result<Tracepoint> {
        let program = load_kind(Kind { program_type: BPF_PROG_TYPE_RAW_TRACEPOINT, flags: 0 }, instructions)?;
        let mut argument =
            Open { name: name.as_ptr() as u64, program: program.as_raw_fd() as u32, rest: [0; 3] };
        // SAFETY: the command makes a descriptor. The argument is as long as said; its pointer leads to a C
        // string, which the kernel only reads.
        let link = unsafe { bpf_descriptor(BPF_RAW_TRACEPOINT_OPEN, &mut argument) }?;
        Ok(Tracepoint { _link: link })
    }
}
