//! The next hop of a packet whose group is known.
use super::super::flows::TRANSLATED_V6;
use super::super::layout::*;
use super::receive::buffer;
use super::*;
use artery_device::bpf::Operation::*;
use artery_device::bpf::Test::*;

/// From the group in `R0` to the hop, which is in `R6` and fits.
pub(super) fn write(w: &mut ProgramWriter<'_>) {
    select_hop(w);
    check_hop(w);
}

fn select_hop(w: &mut ProgramWriter<'_>) {
    w.a.jump_if(Equal, R0, 0, w.to_kernel(Reason::NoRoute));
    w.a.compute(And, R0, MOST_GROUPS as i32 - 1);
    w.a.compute(ShiftLeft, R0, 3);
    w.a.value(R1, w.memory.arrays.descriptor("groups"), 0);
    w.a.compute(Add, R1, R0);
    w.a.load(Size::Double, R3, R1, 0);
    w.a.set(R4, R3);
    w.a.compute(ShiftRight, R4, 32);
    w.a.compute_32(Move, R3, R3);
    w.a.jump_if(Equal, R4, 0, w.to_kernel(Reason::Kernel));
    let chosen = w.a.label();
    w.a.jump_if(Equal, R4, 1, chosen);

    w.load_slot(R1, Slot::Hash);
    w.a.compute_32(Multiply, R1, MULTIPLIER as i32);
    w.a.compute(Multiply, R1, R4);
    w.a.compute(ShiftRight, R1, 32);
    w.a.compute(Add, R1, R3);
    w.a.compute(And, R1, MOST_MEMBERS as i32 - 1);
    w.a.compute(ShiftLeft, R1, 2);
    w.a.value(R2, w.memory.arrays.descriptor("members"), 0);
    w.a.compute(Add, R2, R1);
    w.a.load(Size::Word, R3, R2, 0);

    w.a.place(chosen);
    w.a.compute(And, R3, MOST_HOPS as i32 - 1);
    w.a.compute(ShiftLeft, R3, 5);
    w.a.value(R6, w.memory.arrays.descriptor("hops"), 0);
    w.a.compute(Add, R6, R3);
}

fn check_hop(w: &mut ProgramWriter<'_>) {
    w.a.load(Size::Word, R1, R6, 4 * HOP_READY as i16);
    let is_ready = w.a.label();
    w.a.jump_if(Equal, R1, READY as i32, is_ready);
    for why in Withheld::ALL {
        w.a.jump_if(Equal, R1, why.to_state() as i32, w.to_kernel(why.reason()));
    }
    w.a.jump(w.to_kernel(Reason::Unresolved));
    w.a.place(is_ready);
    w.load_slot(R1, Slot::Length);
    if w.at == ProgramHook::Tc {
        find_segment(w);
    }
    w.a.load(Size::Word, R2, R6, 4 * HOP_MTU as i16);
    w.a.jump_if(Above, R1, R2, w.too_long);
    check_port(w);
}

/// Leaves to the kernel what would leave where it came in, and marks the hop as used.
fn check_port(w: &mut ProgramWriter<'_>) {
    w.load_slot(R1, Slot::Port);
    w.a.load(Size::Word, R2, R6, 4 * HOP_PORTS as i16);
    w.a.compute(ShiftRight, R2, 16);
    let same_port = w.to_kernel(Reason::SamePort);
    if w.has_flows() {
        let is_fit = w.a.label();
        w.a.jump_if(NotEqual, R1, R2, is_fit);
        // No setting has the kernel send no redirects of IPv6. About what is translated they say nothing that
        // the sender could use.
        w.load_slot(R3, Slot::Properties);
        w.a.compute(And, R3, TRANSLATED_V6 as i32);
        w.a.jump_if(Equal, R3, 0, same_port);
        w.a.place(is_fit);
        flow::check_exit(w);
    } else {
        w.a.jump_if(Equal, R1, R2, same_port);
    }
    // Only the first to use it dirties its line.
    let is_marked = w.a.label();
    w.a.load(Size::Word, R1, R6, 4 * HOP_USED as i16);
    w.a.jump_if(NotEqual, R1, 0, is_marked);
    w.a.store(Size::Word, R6, 4 * HOP_USED as i16, 1);
    w.a.place(is_marked);
}

/// Packets that are longer than the MTU go to the kernel. What remains are multi-buffer frames, which go out
/// if they are not longer, and the driver there transmits them.
pub(super) fn write_too_long(w: &mut ProgramWriter<'_>) {
    w.a.place(w.too_long);
    let too_big = w.to_kernel(Reason::TooBig);
    if !receive::sees_buffers(w) {
        return w.a.jump(too_big);
    }
    w.a.jump_if(Below, R1, MULTI_BUFFER as i32, too_big);
    w.a.compute(Subtract, R1, MULTI_BUFFER as i32);
    w.a.jump_if(Above, R1, R2, too_big);
    w.store_slot(Slot::Length, R1);
    w.a.load(Size::Word, R1, R6, 4 * HOP_PORTS as i16);
    w.a.compute(ShiftRight, R1, 16);
    w.a.compute(And, R1, MOST_PORTS as i32 - 1);
    w.a.compute(ShiftLeft, R1, 4);
    w.a.value(R2, w.memory.arrays.descriptor("ports"), 0);
    w.a.compute(Add, R2, R1);
    w.a.load(Size::Word, R1, R2, 4 * PORT_FLAGS as i16);
    w.a.compute(And, R1, Flags::MULTI_BUFFER as i32);
    w.a.jump_if(Equal, R1, 0, w.to_kernel(Reason::MultiBuffer));
    if w.has_tunnels() {
        tunnel::refuse_multi_buffer(w);
    }
    check_port(w);
    send::check_lease(w);
    copy::write_forwarded(w);
    count::write_forwarded_multi_buffer(w);
    w.a.jump(w.counted);
}

/// Makes `R1` the length of the longest segment, where the packet is to be cut. Only TCP's headers are known
/// here: a packet of another protocol is as long as it is.
fn find_segment(w: &mut ProgramWriter<'_>) {
    let (done, ipv6, tcp) = (w.a.label(), w.a.label(), w.a.label());
    w.load_slot(R2, Slot::Context);
    w.a.load(Size::Word, R2, R2, buffer::SEGMENT_SIZE);
    w.a.jump_if(Equal, R2, 0, done);
    w.a.set(R4, R9);
    w.load_slot(R3, Slot::Family);
    w.a.jump_if(Equal, R3, 6, ipv6);
    w.a.load(Size::Byte, R3, R9, 9);
    w.a.compute(Add, R4, 20);
    w.a.compute(Add, R2, 20);
    w.a.jump(tcp);
    w.a.place(ipv6);
    w.a.load(Size::Byte, R3, R9, 6);
    w.a.compute(Add, R4, 40);
    w.a.compute(Add, R2, 40);
    w.a.place(tcp);
    w.a.jump_if(NotEqual, R3, 6, done);
    w.a.set(R3, R4);
    w.a.compute(Add, R3, 20);
    w.a.jump_if(Above, R3, R8, done);
    // Its header's length in words, in the upper half of a byte.
    w.a.load(Size::Byte, R3, R4, 12);
    w.a.compute(ShiftRight, R3, 4);
    w.a.compute(ShiftLeft, R3, 2);
    w.a.compute(Add, R2, R3);
    w.a.set(R1, R2);
    w.a.place(done);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_hop_has_the_size_that_places_are_computed_with() {
        assert_eq!(4 * HOP_WORDS, 1 << 5);
    }
}
