//! Frames sent by the kernel itself: a BPF program that is run again and again on frames
//! which are really sent.
//!
//! No socket can load a fast receiver: one core sends 0.7 million frames a second through packet sockets, and
//! four to five million this way. The program restores the headers of each frame, since the kernel uses the
//! frames again, changed as receivers left them, and redirects it to an interface, or drops it while no frame
//! is due. So the sender keeps its processor busy at any rate. A call takes milliseconds to begin and to end:
//! there is one for a whole run, which a signal ends.
//!
//! The frames enter the other end of a veth pair only where that has GRO on or an XDP program, and what the
//! kernel does with them up to the first queue, it does on the processor of the sender.

use artery_device::bpf::{self, Hook, Instruction, WordArray, instruction};
use rustix::fd::OwnedFd;
use rustix::time::{ClockId, clock_gettime};
use std::io;
use std::time::Duration;

const BPF_PSEUDO_MAP_VALUE: u8 = 2;
const BPF_FUNC_KTIME_GET_NS: i32 = 5;
const BPF_FUNC_REDIRECT: i32 = 23;

/// Bytes of headers that are restored: Ethernet, IPv4 and UDP, in whole words.
const RESTORED: usize = 44;
/// Bytes that a frame must have for all that is written into it.
const WRITTEN: i32 = STAMP as i32 + 8;
/// Frames that the kernel handles at once.
const BATCH: u32 = 64;
/// Parts of a nanosecond that due times are counted in, as a power of two.
const FRACTION: u32 = 8;
/// What a sender that lost its processor may catch up with: no wire sends the rest in a heap later.
const LATE_NS: i32 = 50_000;
/// Where a frame that is stamped says when it was sent: 8 bytes, nanoseconds of the monotonic clock as the
/// machine has its bytes.
pub const STAMP: usize = 48;
const DROP: i32 = 1;

/// A program that sends a frame by an interface, at a rate.
pub struct LiveFrames {
    program: OwnedFd,
    state: WordArray<5>,
    frame: Vec<u8>,
}

/// What the program reads and writes.
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

impl State {
    /// The words at the offsets that the program has.
    fn words(self) -> [u64; 5] {
        let State { due, interval, end, sent, time } = self;
        [due, interval, end, sent, time]
    }
    fn of([due, interval, end, sent, time]: [u64; 5]) -> State {
        State { due, interval, end, sent, time }
    }
}

impl LiveFrames {
    /// Prepares a frame of 60 bytes or more, from its link header on, to be sent by the interface of this
    /// number in the namespace of this thread.
    pub fn new(interface: u32, frame: &[u8]) -> io::Result<LiveFrames> {
        LiveFrames::of(interface, frame, false)
    }

    /// The same, and each frame says at [`STAMP`] when it was sent. A checksum over that would be wrong.
    pub fn stamped(interface: u32, frame: &[u8]) -> io::Result<LiveFrames> {
        LiveFrames::of(interface, frame, true)
    }

    fn of(interface: u32, frame: &[u8], is_stamped: bool) -> io::Result<LiveFrames> {
        if frame.len() < 60 {
            return Err(io::Error::new(
                io::ErrorKind::InvalidInput,
                "frames of Ethernet have 60 bytes or more",
            ));
        }
        let state = WordArray::new()?;
        let program = bpf::load(Hook::XDP, &program(interface, frame, is_stamped, state.descriptor()))?;
        Ok(LiveFrames { program, state, frame: frame.to_vec() })
    }

    /// Sends the frame so many times a second (none: as fast as can be) for a time, and then waits for a
    /// signal. Gives how many were sent, and in what time: less if the signal came early. Needs the namespace
    /// that it was made in.
    pub fn send(&self, rate: Option<f64>, time: Duration) -> io::Result<(u64, Duration)> {
        let interval = rate.map_or(0, |rate| (1e9 * f64::from(1 << FRACTION) / rate) as u64);
        self.state.write(State { interval, time: time.as_nanos() as u64, ..State::default() }.words())?;
        match bpf::run_live(&self.program, &self.frame, None, u32::MAX, BATCH) {
            Err(error) if error.kind() != io::ErrorKind::Interrupted => return Err(error),
            _ => {}
        }
        let State { sent, end, time, .. } = State::of(self.state.read()?);
        let unused = end.saturating_sub(now_ns());
        Ok((sent, Duration::from_nanos(time.saturating_sub(unused))))
    }
}

/// Unless no frame is due: counts it, restores its headers, stamps it if wanted, and redirects
/// it to the interface.
fn program(interface: u32, frame: &[u8], is_stamped: bool, state: i32) -> Vec<Instruction> {
    let words = frame[..RESTORED].chunks_exact(4);
    let words = words.map(|word| i32::from_ne_bytes([word[0], word[1], word[2], word[3]]));
    let stores = words.enumerate().map(|(n, word)| instruction(0x62, 2, 0, 4 * n as i16, word));
    // Jumps to the end are given their offsets below.
    let mut program = vec![
        instruction(0xbf, 6, 1, 0, 0),                     // r6 = the frame's description
        instruction(0x61, 2, 6, 0, 0),                     // r2 = where it begins
        instruction(0x61, 3, 6, 4, 0),                     // r3 = where it ends
        instruction(0xbf, 4, 2, 0, 0),                     // r4 = r2
        instruction(0x07, 4, 0, 0, WRITTEN),               // r4 += WRITTEN
        instruction(0x2d, 4, 3, 0, 0),                     // if r4 > r3 go to the end
        instruction(0x85, 0, 0, 0, BPF_FUNC_KTIME_GET_NS), // r0 = now
        instruction(0x18, 8, BPF_PSEUDO_MAP_VALUE, 0, state), // r8 = the state
        instruction(0, 0, 0, 0, 0),
        instruction(0xbf, 9, 0, 0, 0),                      // r9 = r0
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
        instruction(0x07, 4, 0, 0, WRITTEN),                // r4 += WRITTEN
        instruction(0x2d, 4, 3, 0, 0),                      // if r4 > r3 go to the end
    ];
    program.extend(stores);
    // *(r2 + STAMP) = r9
    program.extend(is_stamped.then(|| instruction(0x7b, 2, 9, STAMP as i16, 0)));
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
        let program = program(7, &frame, false, 3);
        let stores: Vec<&Instruction> = program.iter().filter(|one| one[0] == 0x62).collect();
        assert_eq!(stores.len(), RESTORED / 4);
        assert_eq!(stores[1][4..], frame[4..8]);
        let offset = |one: &Instruction| usize::from(u16::from_ne_bytes([one[2], one[3]]));
        let jumps = program.iter().enumerate().filter(|(_, one)| matches!(one[0], 0x2d | 0x3d));
        let ends: Vec<usize> = jumps.map(|(at, one)| at + 1 + offset(one)).collect();
        let drop = program.len() - 2;
        assert_eq!(ends, [drop, drop, drop, 22, drop]);
        assert_eq!(program[drop], instruction(0xb7, 0, 0, 0, DROP));
        assert_eq!(super::program(7, &frame, true, 3).len(), program.len() + 1, "the stamp");
    }

    #[test]
    fn a_frame_shorter_than_ethernets_is_refused() {
        assert!(LiveFrames::new(1, &[0; 59]).is_err());
    }
}
