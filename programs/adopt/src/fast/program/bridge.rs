//! Frames that arrive at a member of a bridge: is their source known at this very member?
//!
//! Only programs of members have this stage. What the bridge would learn, move or drop is not known there.
use super::super::fdb::*;
use super::super::layout::*;
use super::ipv4::mix_in;
use super::*;
use artery_device::bpf::Operation::*;
use artery_device::bpf::Test::*;

const TICKS: i32 = 118;
/// Where in a frame the source address is.
const SOURCE: i16 = 6;

/// Leaves frames to the kernel whose source is not known at the member, and one of each source from time to
/// time, by which the bridge renews its entry. Spoils `R0` to `R6`.
pub(super) fn check_source(w: &mut ProgramWriter<'_>) {
    let (hit, is_done) = (w.a.label(), w.a.label());
    build_key(w);
    find_bucket(w);
    for way in 0..WAYS as i16 {
        let next = w.a.label();
        w.a.load(Size::Double, R3, R4, 8 * way);
        w.a.jump_if(NotEqual, R3, R1, next);
        w.a.set(R0, 8 * (WAYS as i32 + i32::from(way)));
        w.a.jump(hit);
        w.a.place(next);
    }
    w.a.jump(w.to_kernel(Reason::NotLearned));
    w.a.place(hit);
    // The stamp.
    w.a.set(R6, R4);
    w.a.compute(Add, R6, R0);
    w.a.load(Size::Double, R1, R6, 0);
    w.a.jump_if(Equal, R1, NEVER_AGES as i32, is_done);
    w.a.call(TICKS);
    w.a.load(Size::Double, R1, R6, 0);
    w.a.value(R2, w.memory.arrays.descriptor("fdb-intervals"), 8 * w.port as i32);
    w.a.load(Size::Double, R2, R2, 0);
    w.a.set(R3, R0);
    w.a.compute(Subtract, R3, R1);
    w.a.jump_if(Below, R3, R2, is_done);
    w.a.store(Size::Double, R6, 0, R0);
    w.a.jump(w.to_kernel(Reason::Renewal));
    w.a.place(is_done);
}

/// `R1` = the key of the source at this member.
fn build_key(w: &mut ProgramWriter<'_>) {
    w.a.load(Size::Half, R1, R7, SOURCE);
    w.a.load(Size::Word, R2, R7, SOURCE + 2);
    w.a.compute(ShiftLeft, R2, 16);
    w.a.compute(Or, R1, R2);
    w.a.set(R2, (w.port | IN_USE) as i32);
    w.a.compute(ShiftLeft, R2, MEMBER as i32);
    w.a.compute(Or, R1, R2);
}

/// `R4` = the bucket of the key in `R1`, which stays.
fn find_bucket(w: &mut ProgramWriter<'_>) {
    let seed = w.memory.fdb.as_ref().map_or(0, |fdb| fdb.seed);
    w.a.compute_32(Move, R4, seed as i32);
    mix_in(w, R1);
    w.a.set(R3, R1);
    w.a.compute(ShiftRight, R3, 32);
    mix_in(w, R3);
    w.a.compute_32(Multiply, R4, MULTIPLIER as i32);
    w.a.compute_32(ShiftRight, R4, 32 - BUCKET_BITS as i32);
    w.a.compute(ShiftLeft, R4, (8 * BUCKET_WORDS).ilog2() as i32);
    w.locate_element(&w.memory.arrays, "fdb", R4, R5);
}
