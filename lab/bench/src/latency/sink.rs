//! Where stamped frames end: a program at the receiver's interface, which counts how long each one took.
//!
//! It runs where the kernel hands the frame to the receiver's stack, in the context of the sending program,
//! and wakes no process: every frame is counted, and no wakeup time is included.

use crate::adopt::programs::shared_words;
use crate::wire::part::PORT;
use artery_device::bpf::{
    self, Array, Assembler, Attachment, Hook, Operation::*, Register::*, Size, Test::*,
};
use artery_rig::STAMP;
use artery_wire::IpProtocol;
use hdrhistogram::Histogram;
use std::io;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

/// Counts, one for each microsecond or so (1,024 ns); the last one has all that took longer.
const BUCKETS: usize = 1 << 16;
const BUCKET_BITS: i32 = 10;
/// Two words after the counts: when the last frame came, and the longest time between two.
const LAST: usize = BUCKETS;
const LONGEST: usize = BUCKETS + 1;
/// Where `struct __sk_buff` says where a frame begins and ends.
const DATA: i16 = 76;
const DATA_END: i16 = 80;
/// Answers to the kernel: TCX_NEXT or TC_ACT_UNSPEC, and drop.
const PASS: i32 = -1;
const DROP: i32 = 2;
const BPF_FUNC_KTIME_GET_NS: i32 = 5;
const BPF_FUNC_SKB_PULL_DATA: i32 = 39;

/// Ends stamped frames at an interface and counts their times, as long as it lives.
pub(crate) struct StampSink {
    counts: artery_storage::Words<AtomicU64>,
    _array: Array,
    _attachment: Attachment,
}

impl StampSink {
    /// For an interface of this thread's namespace.
    pub(crate) fn new(interface: u32) -> io::Result<StampSink> {
        let (counts, array) = shared_words("latencies", BUCKETS + 2)?;
        let program = program(array.descriptor());
        let attachment = bpf::attach(&bpf::load(Hook::TcIngress, &program)?, interface, Hook::TcIngress)?;
        Ok(StampSink { counts, _array: array, _attachment: attachment })
    }

    /// The times of the frames since this was last asked, in nanoseconds.
    pub(crate) fn drain_times(&self) -> Histogram<u64> {
        let mut times = Histogram::new(3).expect("three digits are few enough");
        for (bucket, count) in self.counts[..BUCKETS].iter().enumerate() {
            let middle = ((bucket as u64) << BUCKET_BITS) + (1 << (BUCKET_BITS - 1));
            times.record_n(middle, count.swap(0, Relaxed)).expect("the histogram grows with its values");
        }
        times
    }

    /// The longest time between two frames since this was last asked, in nanoseconds; 0 without two frames.
    pub(crate) fn drain_longest_gap(&self) -> u64 {
        self.counts[LAST].store(0, Relaxed);
        self.counts[LONGEST].swap(0, Relaxed)
    }
}

fn program(counts: i32) -> Vec<bpf::Instruction> {
    let mut a = Assembler::default();
    let (pass, in_range, ended) = (a.label(), a.label(), a.label());
    // Frames sent by a ring, as testpmd's, lie beside their description until a helper reads them.
    a.set(R9, R1);
    a.set(R2, STAMP as i32 + 8);
    a.call(BPF_FUNC_SKB_PULL_DATA);
    a.load(Size::Word, R7, R9, DATA);
    a.load(Size::Word, R8, R9, DATA_END);
    a.set(R2, R7);
    a.compute(Add, R2, STAMP as i32 + 8);
    a.jump_if(Above, R2, R8, pass);
    for (size, at, value) in [
        (Size::Half, 12, i32::from(0x0800u16.to_be())),
        (Size::Byte, 23, i32::from(IpProtocol::UDP.0)),
        (Size::Half, 36, i32::from(PORT.to_be())),
    ] {
        a.load(size, R2, R7, at);
        a.jump_if(NotEqual, R2, value, pass);
    }
    a.load(Size::Double, R6, R7, STAMP as i16);
    a.call(BPF_FUNC_KTIME_GET_NS);
    a.set(R8, R0);
    a.compute(Subtract, R0, R6);
    a.compute(ShiftRight, R0, BUCKET_BITS);
    a.jump_if(Below, R0, BUCKETS as i32, in_range);
    a.set(R0, BUCKETS as i32 - 1);
    a.place(in_range);
    a.compute(ShiftLeft, R0, 3);
    a.value(R1, counts, 0);
    a.compute(Add, R1, R0);
    a.set(R2, 1);
    a.add_atomically(R1, 0, R2);
    // Frames of a stream come one after the other.
    a.value(R1, counts, 8 * LAST as i32);
    a.load(Size::Double, R2, R1, 0);
    a.store(Size::Double, R1, 0, R8);
    a.jump_if(Equal, R2, 0, ended);
    a.compute(Subtract, R8, R2);
    a.load(Size::Double, R3, R1, 8);
    a.jump_if(AtMost, R8, R3, ended);
    a.store(Size::Double, R1, 8, R8);
    a.place(ended);
    a.set(R0, DROP);
    a.exit();
    a.place(pass);
    a.set(R0, PASS);
    a.exit();
    a.finish().expect("all labels are placed")
}
