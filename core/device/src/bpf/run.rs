//! Runs of XDP programs on frames that no interface got.
#[cfg(test)]
use super::{Hook, instruction, load};
use super::{bpf, check};
use rustix::fd::{AsRawFd, OwnedFd};
use std::io;

const BPF_PROG_TEST_RUN: libc::c_int = 10;
const BPF_F_TEST_XDP_LIVE_FRAMES: u32 = 1 << 1;

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

/// Runs an XDP program on a frame, `repeat` times, in groups of `batch` (0: as the kernel likes); the kernel
/// really sends what the program redirects. In the program's context the frame came by `interface`, in the
/// namespace of this thread. A signal ends the call with an error of kind [`io::ErrorKind::Interrupted`].
pub fn run_live(
    program: &OwnedFd,
    frame: &[u8],
    interface: Option<u32>,
    repeat: u32,
    batch: u32,
) -> io::Result<()> {
    let context = context(frame, interface);
    let mut argument = Run {
        program: program.as_raw_fd() as u32,
        bytes_in: frame.len() as u32,
        input: frame.as_ptr() as u64,
        repeat,
        context_sizes: [context_bytes(interface, &context), 0],
        contexts: [interface.map_or(0, |_| context.as_ptr() as u64), 0],
        flags: BPF_F_TEST_XDP_LIVE_FRAMES,
        batch,
        ..Run::default()
    };
    // SAFETY: the argument is as long as said; its pointers lead to as many bytes as it says, which the
    // kernel only reads: the argument has no buffer for a context. What it writes into
    // the argument itself is integers.
    check(unsafe { bpf(BPF_PROG_TEST_RUN, &mut argument) })
}

/// `struct xdp_md`: data, data_end, data_meta, ingress_ifindex, rx_queue_index, egress_ifindex.
fn context(frame: &[u8], interface: Option<u32>) -> [u32; 6] {
    [0, frame.len() as u32, 0, interface.unwrap_or(0), 0, 0]
}

/// Bytes of context given to the kernel: 0 where no interface is wanted.
fn context_bytes(interface: Option<u32>, context: &[u32; 6]) -> u32 {
    if interface.is_some() { size_of_val(context) as u32 } else { 0 }
}

/// What became of a frame.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Outcome {
    /// What the program returned: an `XDP_*` action.
    pub action: u32,
    /// The frame as the program left it.
    pub frame: Vec<u8>,
    /// Nanoseconds that a run took, on average.
    pub nanoseconds: u32,
}

/// Most bytes that a program may put in front of a frame.
const HEADROOM: usize = 256;

/// Runs an XDP program on a frame, `repeat` times, and sends nothing.
///
/// Each run begins with what the one before it left: more than one are for programs that leave frames as they
/// are. The program's context says that the frame came by `interface`, in the namespace of this thread.
pub fn run(program: &OwnedFd, frame: &[u8], interface: Option<u32>, repeat: u32) -> io::Result<Outcome> {
    run_in(program, frame, interface.map(|_| context(frame, interface)), repeat)
}

/// The same, once, with `first` bytes of the frame in the first of several buffers (Linux 6.18). Otherwise as
/// many as fit into [`FIRST_BUFFER`] are.
pub fn run_multi_buffer(program: &OwnedFd, frame: &[u8], first: usize) -> io::Result<Outcome> {
    run_in(program, frame, Some(context(&frame[..first], None)), 1)
}

/// Most bytes of a frame that the kernel has in the first buffer when it runs a program on a frame that no
/// interface got: a page, less the room before and behind the frame.
pub const FIRST_BUFFER: usize = 4096 - 256 - 320;

fn run_in(
    program: &OwnedFd,
    frame: &[u8],
    mut context: Option<[u32; 6]>,
    repeat: u32,
) -> io::Result<Outcome> {
    let mut output = vec![0; frame.len() + HEADROOM];
    let context_bytes = context.as_ref().map_or(0, |context| size_of_val(context) as u32);
    let mut argument = Run {
        program: program.as_raw_fd() as u32,
        bytes_in: frame.len() as u32,
        bytes_out: output.len() as u32,
        input: frame.as_ptr() as u64,
        output: output.as_mut_ptr() as u64,
        repeat,
        context_sizes: [context_bytes, context_bytes],
        contexts: match &mut context {
            Some(context) => [context.as_ptr() as u64, context.as_mut_ptr() as u64],
            None => [0; 2],
        },
        ..Run::default()
    };
    // SAFETY: the argument is as long as said; the input, the output and the context are as long as it says,
    // and only the latter two are written.
    check(unsafe { bpf(BPF_PROG_TEST_RUN, &mut argument) })?;
    output.truncate(argument.bytes_out as usize);
    Ok(Outcome { action: argument.result, frame: output, nanoseconds: argument.duration })
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
    run_live(&load(Hook::XDP, &program)?, frame, None, repeat, 0)
}
