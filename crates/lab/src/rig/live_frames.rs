//! Frames sent by the kernel itself: a BPF program that is run again and again on frames which are really sent.
//!
//! No socket can load a fast receiver: one core sends 0.7 million frames a second through packet sockets, and four to
//! five million this way. The program restores the headers of each frame, since the kernel uses the frames again,
//! changed as receivers left them, and redirects it to an interface, or drops it while no frame is due. So the sender
//! keeps its processor busy at any rate. A call takes milliseconds to begin and to end: there is one for a whole run,
//! which a signal ends.
//!
//! The frames enter the other end of a veth pair only where that has GRO on or an XDP program, and what the kernel
//! does with them up to the first queue, it does on the processor of the sender.

use rustix::fd::{AsRawFd, FromRawFd, OwnedFd};
use rustix::time::{ClockId, clock_gettime};
use std::io;
use std::time::Duration;

const BPF_MAP_CREATE: libc::c_int = 0;
const BPF_MAP_LOOKUP_ELEM: libc::c_int = 1;
const BPF_MAP_UPDATE_ELEM: libc::c_int = 2;
const BPF_PROG_LOAD: libc::c_int = 5;
const BPF_PROG_TEST_RUN: libc::c_int = 10;
const BPF_MAP_TYPE_ARRAY: u32 = 2;
const BPF_PROG_TYPE_XDP: u32 = 6;
const BPF_F_TEST_XDP_LIVE_FRAMES: u32 = 1 << 1;
const BPF_PSEUDO_MAP_VALUE: u8 = 2;
const BPF_FUNC_KTIME_GET_NS: i32 = 5;
const BPF_FUNC_REDIRECT: i32 = 23;

/// Bytes of headers that are restored: Ethernet, IPv4 and UDP, in whole words.
const RESTORED: usize = 44;
/// Frames that the kernel handles at once.
const BATCH: u32 = 64;
/// Parts of a nanosecond that due times are counted in, as a power of two.
const FRACTION: u32 = 8;
/// What a sender that lost its processor may catch up with: no wire sends the rest in a heap later.
const LATE_NS: i32 = 50_000;
/// XDP_DROP.
const DROP: i32 = 1;

/// An instruction: code, registers, offset, operand.
type Instruction = [u8; 8];

/// A program that sends a frame by an interface, at a rate.
pub struct LiveFrames {
    program: OwnedFd,
    state: OwnedFd,
    frame: Vec<u8>,
}

/// What the program reads and writes, in an array of one element.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
struct State {
    /// When the next frame is due, in fractions of nanoseconds of the monotonic clock.
    due: u64,
    /// Time between frames, in the same; 0 for as fast as can be.
    interval: u64,
    /// When to send no more, in nanoseconds; 0 before the first frame.
    end: u64,
    sent: u64,
    /// How long to send, in nanoseconds from the first frame.
    time: u64,
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

/// The beginning of the argument of `bpf(BPF_PROG_LOAD)`; what follows is zero.
#[repr(C)]
struct Load {
    program_type: u32,
    instruction_count: u32,
    instructions: u64,
    license: u64,
    rest: [u64; 14],
}

/// The argument of `bpf(BPF_PROG_TEST_RUN)`.
#[repr(C)]
#[derive(Default)]
struct TestRun {
    program: u32,
    returned: u32,
    data_size_in: u32,
    data_size_out: u32,
    data_in: u64,
    data_out: u64,
    repeat: u32,
    duration: u32,
    context_size_in: u32,
    context_size_out: u32,
    context_in: u64,
    context_out: u64,
    flags: u32,
    cpu: u32,
    batch_size: u32,
    padding: u32,
}

impl LiveFrames {
    /// Prepares a frame of 60 bytes or more, from its link header on, to be sent by the interface of this number in the
    /// namespace of this thread.
    pub fn new(interface: u32, frame: &[u8]) -> io::Result<LiveFrames> {
        if frame.len() < 60 {
            return Err(io::Error::new(
                io::ErrorKind::InvalidInput,
                "frames of Ethernet have 60 bytes or more",
            ));
        }
        let state = new_array(size_of::<State>() as u32)?;
        let program = load(&program(interface, frame, state.as_raw_fd()))?;
        Ok(LiveFrames { program, state, frame: frame.to_vec() })
    }

    /// Sends the frame so many times a second (none: as fast as can be) for a time, and then waits for a signal.
    /// Gives how many were sent, and in what time: less if the signal came early. Needs the namespace that it was made
    /// in.
    pub fn send(&self, rate: Option<f64>, time: Duration) -> io::Result<(u64, Duration)> {
        let interval = rate.map_or(0, |rate| (1e9 * f64::from(1 << FRACTION) / rate) as u64);
        self.write_state(State { interval, time: time.as_nanos() as u64, ..State::default() })?;
        match self.run() {
            Err(error) if error.kind() != io::ErrorKind::Interrupted => return Err(error),
            _ => {}
        }
        let State { sent, end, time, .. } = self.state()?;
        let unused = end.saturating_sub(now_ns());
        Ok((sent, Duration::from_nanos(time.saturating_sub(unused))))
    }

    fn run(&self) -> io::Result<()> {
        let argument = TestRun {
            program: self.program.as_raw_fd() as u32,
            data_size_in: self.frame.len() as u32,
            data_in: self.frame.as_ptr() as u64,
            repeat: u32::MAX,
            flags: BPF_F_TEST_XDP_LIVE_FRAMES,
            batch_size: BATCH,
            ..TestRun::default()
        };
        // SAFETY: the argument is as long as said; its pointer leads to as many bytes as it says, which the kernel only
        // reads. What it writes into the argument itself is integers, and nobody reads them.
        check(unsafe { bpf(BPF_PROG_TEST_RUN, &mut { argument }) }).map(|_| ())
    }
    fn write_state(&self, mut state: State) -> io::Result<()> {
        self.exchange(BPF_MAP_UPDATE_ELEM, &mut state)
    }
    fn state(&self) -> io::Result<State> {
        let mut state = State::default();
        self.exchange(BPF_MAP_LOOKUP_ELEM, &mut state)?;
        Ok(state)
    }
    fn exchange(&self, command: libc::c_int, state: &mut State) -> io::Result<()> {
        let key = 0u32;
        let mut argument = Element {
            map: self.state.as_raw_fd() as u32,
            padding: 0,
            key: std::ptr::from_ref(&key) as u64,
            value: std::ptr::from_mut(state) as u64,
            flags: 0,
        };
        // SAFETY: the argument is as long as said; its pointers lead to a key of four bytes and a value of the size
        // that the map was made with, which is integers only.
        check(unsafe { bpf(command, &mut argument) }).map(|_| ())
    }
}

const fn instruction(code: u8, to: u8, from: u8, offset: i16, operand: i32) -> Instruction {
    let ([o0, o1], [i0, i1, i2, i3]) = (offset.to_ne_bytes(), operand.to_ne_bytes());
    let registers = if cfg!(target_endian = "little") { from << 4 | to } else { to << 4 | from };
    [code, registers, o0, o1, i0, i1, i2, i3]
}

/// Unless no frame is due: counts it, restores its headers, and redirects it to the interface.
fn program(interface: u32, frame: &[u8], state: i32) -> Vec<Instruction> {
    let words = frame[..RESTORED].chunks_exact(4);
    let words = words.map(|word| i32::from_ne_bytes([word[0], word[1], word[2], word[3]]));
    let stores = words.enumerate().map(|(n, word)| instruction(0x62, 2, 0, 4 * n as i16, word));
    // Jumps to the end are given their offsets below.
    let mut program = vec![
        instruction(0xbf, 6, 1, 0, 0),                     // r6 = the frame's description
        instruction(0x61, 2, 6, 0, 0),                     // r2 = where it begins
        instruction(0x61, 3, 6, 4, 0),                     // r3 = where it ends
        instruction(0xbf, 4, 2, 0, 0),                     // r4 = r2
        instruction(0x07, 4, 0, 0, RESTORED as i32),       // r4 += RESTORED
        instruction(0x2d, 4, 3, 0, 0),                     // if r4 > r3 go to the end
        instruction(0x85, 0, 0, 0, BPF_FUNC_KTIME_GET_NS), // r0 = now
        instruction(0x18, 8, BPF_PSEUDO_MAP_VALUE, 0, state), // r8 = the state
        instruction(0, 0, 0, 0, 0),
        instruction(0x79, 1, 8, 16, 0),                     // r1 = its end
        instruction(0x55, 1, 0, 3, 0),                      // if r1 == 0
        instruction(0x79, 1, 8, 32, 0),                     //   r1 = its time
        instruction(0x0f, 1, 0, 0, 0),                      //   r1 += r0
        instruction(0x7b, 8, 1, 16, 0),                     //   its end = r1
        instruction(0x3d, 0, 1, 0, 0),                      // if r0 >= r1 go to the end
        instruction(0x67, 0, 0, 0, FRACTION as i32),        // r0 <<= FRACTION
        instruction(0x79, 1, 8, 0, 0),                      // r1 = its due
        instruction(0x2d, 1, 0, 0, 0),                      // if r1 > r0 go to the end
        instruction(0x07, 0, 0, 0, -(LATE_NS << FRACTION)), // r0 -= LATE
        instruction(0x3d, 1, 0, 1, 0),                      // if r1 < r0
        instruction(0xbf, 1, 0, 0, 0),                      //   r1 = r0
        instruction(0x79, 2, 8, 8, 0),                      // r2 = its interval
        instruction(0x0f, 1, 2, 0, 0),                      // r1 += r2
        instruction(0x7b, 8, 1, 0, 0),                      // its due = r1
        instruction(0x79, 1, 8, 24, 0),                     // r1 = its sent
        instruction(0x07, 1, 0, 0, 1),                      // r1 += 1
        instruction(0x7b, 8, 1, 24, 0),                     // its sent = r1
        instruction(0x61, 2, 6, 0, 0),                      // r2 = where the frame begins
        instruction(0x61, 3, 6, 4, 0),                      // r3 = where it ends
        instruction(0xbf, 4, 2, 0, 0),                      // r4 = r2
        instruction(0x07, 4, 0, 0, RESTORED as i32),        // r4 += RESTORED
        instruction(0x2d, 4, 3, 0, 0),                      // if r4 > r3 go to the end
    ];
    program.extend(stores);
    program.extend([
        instruction(0xb7, 1, 0, 0, interface as i32),  // r1 = interface
        instruction(0xb7, 2, 0, 0, 0),                 // r2 = no flags
        instruction(0x85, 0, 0, 0, BPF_FUNC_REDIRECT), // r0 = redirect(r1, r2)
        instruction(0x95, 0, 0, 0, 0),                 // return r0
        instruction(0xb7, 0, 0, 0, DROP),              // the end: r0 = drop
        instruction(0x95, 0, 0, 0, 0),                 // return r0
    ]);
    let end = program.len() - 2;
    for (at, one) in program.iter_mut().enumerate() {
        if is_jump_to_the_end(one) {
            *one = instruction(one[0], one[1] & 15, one[1] >> 4, (end - at - 1) as i16, 0);
        }
    }
    program
}

/// Whether an instruction is a comparison whose offset is still open.
fn is_jump_to_the_end(one: &Instruction) -> bool {
    matches!(one[0], 0x2d | 0x3d) && one[2..4] == [0, 0]
}

fn load(instructions: &[Instruction]) -> io::Result<OwnedFd> {
    let mut argument = Load {
        program_type: BPF_PROG_TYPE_XDP,
        instruction_count: instructions.len() as u32,
        instructions: instructions.as_ptr() as u64,
        license: c"Dual MIT/GPL".as_ptr() as u64,
        rest: [0; 14],
    };
    // SAFETY: the argument is as long as said; its pointers lead to as many instructions as it says and a C string,
    // which the kernel only reads.
    descriptor(unsafe { bpf(BPF_PROG_LOAD, &mut argument) })
}

/// Makes an array of one element.
fn new_array(value_size: u32) -> io::Result<OwnedFd> {
    let mut argument =
        NewMap { map_type: BPF_MAP_TYPE_ARRAY, key_size: 4, value_size, entries: 1, rest: [0; 8] };
    // SAFETY: the argument is as long as said and has no pointers.
    descriptor(unsafe { bpf(BPF_MAP_CREATE, &mut argument) })
}

fn descriptor(result: libc::c_long) -> io::Result<OwnedFd> {
    let number = check(result)? as i32;
    // SAFETY: these calls give a descriptor that nobody else knows of.
    Ok(unsafe { OwnedFd::from_raw_fd(number) })
}

fn check(result: libc::c_long) -> io::Result<libc::c_long> {
    if result < 0 { Err(io::Error::last_os_error()) } else { Ok(result) }
}

/// SAFETY: `argument` must be what `command` takes.
unsafe fn bpf<T>(command: libc::c_int, argument: &mut T) -> libc::c_long {
    // SAFETY: the caller's promise; the kernel reads and writes no more bytes than are there.
    unsafe { libc::syscall(libc::SYS_bpf, command, std::ptr::from_mut(argument), size_of::<T>()) }
}

/// The clock that the program reads.
fn now_ns() -> u64 {
    let now = clock_gettime(ClockId::Monotonic);
    now.tv_sec as u64 * 1_000_000_000 + now.tv_nsec as u64
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn headers_are_restored_in_whole_words_and_all_jumps_lead_to_the_drop() {
        let frame: Vec<u8> = (0..60).collect();
        let program = program(7, &frame, 3);
        let stores: Vec<&Instruction> = program.iter().filter(|one| one[0] == 0x62).collect();
        assert_eq!(stores.len(), RESTORED / 4);
        assert_eq!(stores[1][4..], frame[4..8]);
        let offset = |one: &Instruction| usize::from(u16::from_ne_bytes([one[2], one[3]]));
        let jumps = program.iter().enumerate().filter(|(_, one)| matches!(one[0], 0x2d | 0x3d));
        let ends: Vec<usize> = jumps.map(|(at, one)| at + 1 + offset(one)).collect();
        let drop = program.len() - 2;
        assert_eq!(ends, [drop, drop, drop, 21, drop]);
        assert_eq!(program[drop], instruction(0xb7, 0, 0, 0, DROP));
    }

    #[test]
    fn a_frame_shorter_than_ethernets_is_refused() {
        assert!(LiveFrames::new(1, &[0; 59]).is_err());
    }
}
