//! Copies frames for a capture, and samples of them.
use super::super::capture::*;
use super::super::layout::*;
use super::receive::{XDP_GET_BUFF_LEN, buffer};
use super::*;
use artery_device::bpf::Operation::*;
use artery_device::bpf::Test::*;

const KTIME_GET_NS: i32 = 5;
const GET_SMP_PROCESSOR_ID: i32 = 8;
const SKB_LOAD_BYTES: i32 = 26;
const XDP_LOAD_BYTES: i32 = 189;

/// Copies a frame that is going out by the hop in `R6`.
pub(super) fn write_forwarded(w: &mut ProgramWriter<'_>) {
    for capture in [w.capture, w.samples].into_iter().flatten() {
        let skip = w.a.label();
        find_head(w, capture);
        if let Copied::Sampled(interval) = capture.copied {
            write_countdown(w, interval, skip);
        }
        find_slot(w, capture);
        w.a.load(Size::Word, R3, R6, 4 * HOP_PORTS as i16);
        w.a.compute(ShiftRight, R3, 16);
        w.a.compute(Or, R3, FORWARDED as i32);
        w.a.store(Size::Word, R2, VERDICT, R3);
        fill_slot(w, capture, skip);
        w.a.place(skip);
    }
}

/// Goes to `skip` with all but one of so many frames, which this processor counts where `R1` points to.
fn write_countdown(w: &mut ProgramWriter<'_>, interval: u32, skip: Label) {
    let is_due = w.a.label();
    w.a.load(Size::Double, R3, R1, SKIPPED);
    w.a.jump_if(Equal, R3, 0, is_due);
    w.a.compute(Subtract, R3, 1);
    w.a.store(Size::Double, R1, SKIPPED, R3);
    w.a.jump(skip);
    w.a.place(is_due);
    w.a.set(R3, interval as i32 - 1);
    w.a.store(Size::Double, R1, SKIPPED, R3);
}

/// Copies a frame that is going to the kernel for the reason in `R6`, by the place of its count.
pub(super) fn write_kernel(w: &mut ProgramWriter<'_>) {
    let Some(capture) = w.capture.filter(|capture| capture.copied == Copied::All) else { return };
    let skip = w.a.label();
    find_head(w, capture);
    find_slot(w, capture);
    w.a.set(R3, R6);
    w.a.compute(ShiftRight, R3, 3);
    w.a.compute(Subtract, R3, REASON_COUNTS as i32);
    w.a.store(Size::Word, R2, VERDICT, R3);
    fill_slot(w, capture, skip);
    w.a.place(skip);
}

/// `R1` = where this processor's count is, `R0` = the number of its ring.
fn find_head(w: &mut ProgramWriter<'_>, capture: &CaptureRings) {
    w.a.call(GET_SMP_PROCESSOR_ID);
    w.a.compute(And, R0, capture.rings as i32 - 1);
    w.a.value(R1, capture.arrays.descriptor("heads"), 0);
    w.a.set(R3, R0);
    w.a.compute(ShiftLeft, R3, HEAD.ilog2() as i32);
    w.a.compute(Add, R1, R3);
}

/// `R2` = the next slot of this processor's, which is kept with where the processor's count is.
fn find_slot(w: &mut ProgramWriter<'_>, capture: &CaptureRings) {
    w.store_slot(Slot::Head, R1);
    w.a.load(Size::Double, R3, R1, 0);
    w.a.compute(And, R3, capture.slots as i32 - 1);
    w.a.compute(ShiftLeft, R3, capture.slot.ilog2() as i32);
    w.a.compute(ShiftLeft, R0, (capture.slots * capture.slot).ilog2() as i32);
    w.a.value(R2, capture.arrays.descriptor("frames"), 0);
    w.a.compute(Add, R2, R0);
    w.a.compute(Add, R2, R3);
    w.store_slot(Slot::Copy, R2);
}

/// Fills the slot and counts it; or goes to `skip` with it uncounted, where the frame can't be read.
fn fill_slot(w: &mut ProgramWriter<'_>, capture: &CaptureRings, skip: Label) {
    w.a.store(Size::Word, R2, PORT, w.port as i32);
    w.a.call(KTIME_GET_NS);
    w.load_slot(R5, Slot::Copy);
    w.a.store(Size::Double, R5, TIME, R0);
    w.load_slot(R1, Slot::Context);
    write_vlan(w);
    match w.at {
        ProgramHook::Xdp if receive::sees_buffers(w) => {
            w.a.call(XDP_GET_BUFF_LEN);
            w.a.set(R4, R0);
            w.load_slot(R5, Slot::Copy);
            w.load_slot(R1, Slot::Context);
        }
        ProgramHook::Xdp => {
            w.a.load(Size::Word, R4, R1, 4);
            w.a.load(Size::Word, R3, R1, 0);
            w.a.compute(Subtract, R4, R3);
        }
        ProgramHook::Tc => w.a.load(Size::Word, R4, R1, buffer::LENGTH),
    }
    w.a.store(Size::Word, R5, LENGTH, R4);
    let fits = w.a.label();
    w.a.jump_if(Below, R4, 1, skip);
    w.a.jump_if(AtMost, R4, capture.snap() as i32, fits);
    w.a.set(R4, capture.snap() as i32);
    w.a.place(fits);
    w.a.store(Size::Word, R5, KEPT, R4);
    w.a.set(R3, R5);
    w.a.compute(Add, R3, HEADER as i32);
    w.a.set(R2, 0);
    w.a.call(if w.at == ProgramHook::Xdp { XDP_LOAD_BYTES } else { SKB_LOAD_BYTES });
    w.a.jump_if(NotEqual, R0, 0, skip);
    w.load_slot(R1, Slot::Head);
    w.a.load(Size::Double, R3, R1, 0);
    w.a.compute(Add, R3, 1);
    w.a.store(Size::Double, R1, 0, R3);
}

/// Notes the tag that the kernel has taken out of the frame; `R1` is what it says of the
/// frame, `R5` the slot.
fn write_vlan(w: &mut ProgramWriter<'_>) {
    w.a.set(R3, 0);
    if w.at == ProgramHook::Tc {
        let untagged = w.a.label();
        w.a.load(Size::Word, R4, R1, buffer::VLAN_PRESENT);
        w.a.jump_if(Equal, R4, 0, untagged);
        w.a.load(Size::Word, R3, R1, buffer::VLAN_TCI);
        w.a.compute(And, R3, 0xffff);
        w.a.compute(Or, R3, TAGGED as i32);
        w.a.place(untagged);
    }
    w.a.store(Size::Word, R5, VLAN, R3);
}
