//! Packets of flows that are not in the table: once there were enough of one, the process gets an event.
use super::super::candidates::*;
use super::super::flows::{ALL_TAGS, TAGGED};
use super::*;
use artery_device::bpf::EMIT_EVENT;
use artery_device::bpf::Operation::*;
use artery_device::bpf::Test::*;

/// Counts a packet of a flow in the record in `R6`, which is that of its bucket, and whose addresses are
/// `addresses` bytes behind the beginning of its header. It goes to the kernel in any case.
pub(super) fn write(w: &mut ProgramWriter<'_>, layout: CandidateLayout, addresses: i16) {
    let unknown = w.a.label();
    let (other, begin, emit) = (w.a.label(), w.a.label(), w.a.label());
    let key_doubles = (layout.key_words() / 2) as i16;
    // The double word of the packet's key, in `R2`.
    let load_key = |w: &mut ProgramWriter<'_>, double: i16| match double + 1 == key_doubles {
        true => w.load_slot(R2, Slot::FlowKey),
        false => w.a.load(Size::Double, R2, R9, addresses + 8 * double),
    };
    for double in 0..key_doubles {
        load_key(w, double);
        w.a.load(Size::Double, R3, R6, 8 * double);
        w.a.jump_if(NotEqual, R2, R3, other);
    }
    let (count, misses) = (4 * layout.count as i16, 4 * layout.misses as i16);
    w.a.load(Size::Word, R1, R6, count);
    w.a.compute(Add, R1, 1);
    w.a.store(Size::Word, R6, count, R1);
    w.a.jump_if(Below, R1, ENOUGH as i32, unknown);
    w.a.set(R2, R1);
    w.a.compute(And, R2, AGAIN as i32 - 1);
    w.a.jump_if(Equal, R2, 0, emit);
    w.a.set(R2, R1);
    w.a.compute(Subtract, R2, 1);
    w.a.compute(And, R1, R2);
    w.a.jump_if(NotEqual, R1, 0, unknown);
    w.a.place(emit);
    write_event(w, layout);
    w.a.jump(unknown);

    w.a.place(other);
    w.a.load(Size::Word, R1, R6, count);
    w.a.jump_if(Equal, R1, 0, begin);
    w.a.jump_if(AtLeast, R1, ENOUGH as i32, begin);
    w.a.load(Size::Word, R1, R6, misses);
    w.a.compute(Add, R1, 1);
    w.a.store(Size::Word, R6, misses, R1);
    w.a.jump_if(Below, R1, PATIENCE as i32, unknown);
    w.a.place(begin);
    for double in 0..key_doubles {
        load_key(w, double);
        w.a.store(Size::Double, R6, 8 * double, R2);
    }
    w.a.store(Size::Word, R6, count, 1);
    w.a.store(Size::Word, R6, misses, 0);

    w.a.place(unknown);
    w.a.load(Size::Word, R1, R6, 4 * layout.tags as i16);
    w.a.compute_32(Xor, R1, -1);
    w.a.compute_32(And, R1, (TAGGED * ALL_TAGS) as i32);
    w.a.jump_if(Equal, R1, 0, w.to_kernel(Reason::NoRoom));
    w.a.jump(w.to_kernel(Reason::NotEstablished));
}

/// Reports the flow whose key `R6` points to.
pub(super) fn write_event(w: &mut ProgramWriter<'_>, layout: CandidateLayout) {
    let ring = w.memory.flows.as_ref().map_or(0, |flows| flows.candidates.ring.descriptor());
    w.a.map(R1, ring);
    w.a.set(R2, R6);
    w.a.set(R3, 4 * layout.key_words() as i32);
    w.a.set(R4, 0);
    w.a.call(EMIT_EVENT);
}
