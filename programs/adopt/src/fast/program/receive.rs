//! The link header: whose frame is it, and what is in it?
use super::super::layout::*;
use super::*;
use crate::kernel::TunnelProtocol;
use artery_device::bpf::Operation::*;
use artery_device::bpf::Test::*;

/// Link header and the shortest IP header.
const SHORTEST: i32 = 14 + 20;
/// What of a frame programs look at.
const HEADERS: i32 = 14 + TAG + 40 + 20;
const TAG: i32 = 4;
/// The longest header of a tunnel in front of those.
const OUTER: i32 = header_length(TunnelProtocol::Gre) as i32;

/// Fields of `struct __sk_buff` (linux/bpf.h).
pub(super) mod buffer {
    pub(in super::super) const LENGTH: i16 = 0;
    pub(in super::super) const VLAN_PRESENT: i16 = 20;
    pub(in super::super) const VLAN_TCI: i16 = 24;
    pub(in super::super) const VLAN_PROTOCOL: i16 = 28;
    pub(in super::super) const PRIORITY: i16 = 32;
    pub(in super::super) const SEGMENTS: i16 = 164;
    pub(in super::super) const SEGMENT_SIZE: i16 = 176;
}

const TAIL_CALL: i32 = 12;
const SKB_PULL_DATA: i32 = 39;
pub(super) const XDP_GET_BUFF_LEN: i32 = 188;

/// Goes to `ipv4` or `ipv6`, with `R1` the flags of the port.
pub(super) fn write(w: &mut ProgramWriter<'_>, ipv4: Label, ipv6: Label) {
    w.store_slot(Slot::Context, R1);
    if w.has_tunnels() {
        w.store_number(Slot::IsWithin, 0);
    }
    if w.at == ProgramHook::Tc {
        pull_headers(w);
    }
    load_frame(w, R1);
    w.a.set(R1, R7);
    w.a.compute(Add, R1, SHORTEST);
    w.a.jump_if(Above, R1, R8, w.cut_short);
    let (tagged, meet) = (w.a.label(), w.a.label());
    match w.at {
        ProgramHook::Xdp => {
            w.a.load(Size::Half, R5, R7, 12);
            w.a.jump_if(Equal, R5, in_network_order(0x8100), tagged);
        }
        ProgramHook::Tc => {
            w.load_slot(R1, Slot::Context);
            w.a.load(Size::Word, R5, R1, buffer::VLAN_PRESENT);
            w.a.jump_if(NotEqual, R5, 0, tagged);
            w.a.load(Size::Half, R5, R7, 12);
        }
    }

    w.store_number(Slot::Port, w.bridge.unwrap_or(w.port) as i32);
    w.store_number(Slot::Tag, 0);
    point_to_record(w);
    w.a.set(R9, R7);
    w.a.compute(Add, R9, 14);
    w.a.jump(meet);

    w.a.place(tagged);
    match w.bridge {
        // VLANs on a bridge, or on a member, are the kernel's.
        Some(_) => w.a.jump(w.to_kernel(Reason::OtherVlan)),
        None => write_tagged(w),
    }

    w.a.place(meet);
    check_address(w);
    if w.bridge.is_some() {
        bridge::check_source(w);
        point_to_record(w);
        w.a.load(Size::Half, R5, R7, 12);
    }
    if w.at == ProgramHook::Tc {
        store_rest(w);
    }
    w.a.load(Size::Word, R1, R2, 4 * PORT_FLAGS as i16);
    leave_to_other_program(w);
    w.a.jump_if(Equal, R5, in_network_order(0x0800), ipv4);
    w.a.jump_if(Equal, R5, in_network_order(0x86dd), ipv6);
    let session = w.a.label();
    if w.has_tunnels() {
        w.a.jump_if(Equal, R5, in_network_order(PPPOE_SESSION), session);
    }
    w.a.jump(w.to_kernel(Reason::OtherProtocol));
    if w.has_tunnels() {
        w.a.place(session);
        pppoe::write_received(w, [ipv4, ipv6]);
    }
}

/// Hands the frame to the program that looks into the FIB of its port, or of its VLAN, by the flags in `R1`,
/// if that is not this one. `R1` and `R5` stay otherwise.
fn leave_to_other_program(w: &mut ProgramWriter<'_>) {
    let Some(others) = w.others else { return };
    let own = w.a.label();
    w.a.set(R3, R1);
    w.a.compute(ShiftRight, R3, Flags::FIB as i32);
    w.a.compute(And, R3, MOST_FIBS as i32 - 1);
    w.a.jump_if(Equal, R3, others.own as i32, own);
    w.load_slot(R1, Slot::Context);
    w.a.map(R2, others.programs.descriptor());
    w.a.call(TAIL_CALL);
    // There is no such program.
    w.a.jump(w.to_kernel(Reason::Changing));
    w.a.place(own);
}

/// `R2` = the record of the port that untagged frames are of.
fn point_to_record(w: &mut ProgramWriter<'_>) {
    let port = w.bridge.unwrap_or(w.port);
    w.a.value(R2, w.memory.arrays.descriptor("ports"), port as i32 * 4 * PORT_WORDS as i32);
}

/// Where the frame begins and ends, from what the kernel says of it.
pub(super) fn load_frame(w: &mut ProgramWriter<'_>, context: Register) {
    let (data, end) = match w.at {
        ProgramHook::Xdp => (0, 4),
        ProgramHook::Tc => (76, 80),
    };
    w.a.load(Size::Word, R7, context, data);
    w.a.load(Size::Word, R8, context, end);
}

/// Has the kernel put all headers into one piece, if they are not; `R1` is what it says of the
/// frame, before and after.
fn pull_headers(w: &mut ProgramWriter<'_>) {
    let (is_whole, pull) = (w.a.label(), w.a.label());
    let headers = if w.has_tunnels() { HEADERS + OUTER } else { HEADERS };
    load_frame(w, R1);
    w.a.set(R2, R7);
    w.a.compute(Add, R2, headers);
    w.a.jump_if(AtMost, R2, R8, is_whole);
    w.a.load(Size::Word, R2, R1, buffer::LENGTH);
    w.a.jump_if(AtMost, R2, headers, pull);
    w.a.set(R2, headers);
    w.a.place(pull);
    // If the kernel has no memory for it, the check of the headers' length fails later.
    w.a.call(SKB_PULL_DATA);
    w.a.place(is_whole);
    w.load_slot(R1, Slot::Context);
}

/// Keeps how many bytes there are from the IP header to the end of the frame.
fn store_rest(w: &mut ProgramWriter<'_>) {
    w.load_slot(R1, Slot::Context);
    w.a.load(Size::Word, R1, R1, buffer::LENGTH);
    w.a.compute(Subtract, R1, 14);
    w.store_slot(Slot::Rest, R1);
}

/// `R2` = bytes from the IP header to the end of the frame, or of its first buffer.
pub(super) fn load_rest(w: &mut ProgramWriter<'_>) {
    match w.at {
        ProgramHook::Xdp => {
            w.a.set(R2, R8);
            w.a.compute(Subtract, R2, R9);
        }
        ProgramHook::Tc => w.load_slot(R2, Slot::Rest),
    }
}

/// Checks that the length of a packet, in `R1`, is all that the frame carries, except for the padding of
/// short frames, or all that the packet of a tunnel carries, and keeps it. `R5` stays.
pub(super) fn check_length(w: &mut ProgramWriter<'_>) {
    let malformed = w.to_kernel(Reason::Malformed);
    let [whole, short, long, done] = [w.a.label(), w.a.label(), w.a.label(), w.a.label()];
    if w.has_tunnels() {
        let is_outer = w.a.label();
        w.load_slot(R2, Slot::IsWithin);
        w.a.jump_if(Equal, R2, 0, is_outer);
        w.load_slot(R2, Slot::Length);
        w.a.jump_if(NotEqual, R1, R2, malformed);
        w.a.jump(done);
        w.a.place(is_outer);
    }
    load_rest(w);
    w.a.jump_if(Equal, R1, R2, whole);
    w.a.jump_if(AtMost, R1, R2, short);
    w.a.place(long);
    match sees_buffers(w) {
        true => check_buffers(w, done),
        false => w.a.jump(malformed),
    }
    w.a.place(short);
    w.a.jump_if(Above, R2, FILLED as i32, malformed);
    w.a.place(whole);
    if sees_buffers(w) {
        w.a.jump_if(Above, R1, SURELY_IN_ONE_BUFFER as i32, long);
    }
    w.store_slot(Slot::Length, R1);
    w.a.place(done);
}

/// Keeps the flags of the port, in `R5`, where flows are looked up.
pub(super) fn keep_flags(w: &mut ProgramWriter<'_>) {
    if w.has_flows() {
        w.store_slot(Slot::Flags, R5);
    }
}

/// Whether the program may be given frames that lie in several buffers.
pub(super) fn sees_buffers(w: &ProgramWriter<'_>) -> bool {
    w.at == ProgramHook::Xdp && w.memory.takes_buffers
}

/// The same for a packet that may lie in several buffers: its length is compared with all of them. Goes to
/// `done`, where it is kept with [`MULTI_BUFFER`] added to it if it does.
fn check_buffers(w: &mut ProgramWriter<'_>, done: Label) {
    w.store_slot(Slot::Length, R1);
    w.store_slot(Slot::Flags, R5);
    w.load_slot(R1, Slot::Context);
    w.a.call(XDP_GET_BUFF_LEN);
    w.load_slot(R5, Slot::Flags);
    w.load_slot(R1, Slot::Length);
    w.a.set(R3, R9);
    w.a.compute(Subtract, R3, R7);
    w.a.compute(Subtract, R0, R3);
    w.a.jump_if(NotEqual, R0, R1, w.to_kernel(Reason::Malformed));
    load_rest(w);
    w.a.jump_if(Equal, R1, R2, done);
    w.a.jump_if(Below, R2, FIRST_BUFFER as i32, w.to_kernel(Reason::MultiBuffer));
    w.a.compute(Add, R1, MULTI_BUFFER as i32);
    w.store_slot(Slot::Length, R1);
    w.a.jump(done);
}

/// Frames whose headers are not all there go to the kernel, which has those in other buffers, too.
pub(super) fn write_cut_short(w: &mut ProgramWriter<'_>) {
    w.a.place(w.cut_short);
    if sees_buffers(w) {
        w.load_slot(R1, Slot::Context);
        w.a.call(XDP_GET_BUFF_LEN);
        w.a.set(R1, R8);
        w.a.compute(Subtract, R1, R7);
        w.a.jump_if(Above, R0, R1, w.to_kernel(Reason::MultiBuffer));
    }
    w.a.jump(w.to_kernel(Reason::Malformed));
}

/// Finds the port of the VLAN: `R2` its record, `R5` what the tag stands before.
fn write_tagged(w: &mut ProgramWriter<'_>) {
    w.store_number(Slot::Tag, TAG);
    w.a.set(R9, R7);
    match w.at {
        ProgramHook::Xdp => {
            w.a.compute(Add, R9, 14 + TAG);
            w.a.set(R1, R7);
            w.a.compute(Add, R1, SHORTEST + TAG);
            w.a.jump_if(Above, R1, R8, w.cut_short);
            w.a.load(Size::Half, R3, R7, 14);
            w.a.swap(R3, 16);
            w.a.load(Size::Half, R5, R7, 16);
        }
        // The kernel has taken the tag out of the frame.
        ProgramHook::Tc => {
            w.a.compute(Add, R9, 14);
            // A provider's tag of the same number is another VLAN.
            w.a.load(Size::Word, R3, R1, buffer::VLAN_PROTOCOL);
            w.a.jump_if(NotEqual, R3, in_network_order(0x8100), w.to_kernel(Reason::OtherVlan));
            w.a.load(Size::Word, R3, R1, buffer::VLAN_TCI);
            w.a.load(Size::Half, R5, R7, 12);
        }
    }
    w.a.compute(And, R3, 0xfff);
    w.a.compute(ShiftLeft, R3, 1);
    w.a.value(R1, w.memory.arrays.descriptor("vlans"), (w.port << 13) as i32);
    w.a.compute(Add, R1, R3);
    w.a.load(Size::Half, R3, R1, 0);
    w.a.jump_if(Equal, R3, 0, w.to_kernel(Reason::OtherVlan));
    w.a.compute(Subtract, R3, 1);
    w.a.compute(And, R3, MOST_PORTS as i32 - 1);
    w.store_slot(Slot::Port, R3);
    w.a.compute(ShiftLeft, R3, 4);
    w.a.value(R2, w.memory.arrays.descriptor("ports"), 0);
    w.a.compute(Add, R2, R3);
}

/// Leaves frames to other addresses than the port's to the kernel.
fn check_address(w: &mut ProgramWriter<'_>) {
    let other = w.to_kernel(Reason::OtherAddress);
    for (size, at) in [(Size::Word, 0), (Size::Half, 4)] {
        w.a.load(size, R3, R7, at);
        w.a.load(size, R4, R2, at);
        w.a.jump_if(NotEqual, R3, R4, other);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_record_of_a_port_has_the_size_that_places_are_computed_with() {
        assert_eq!(4 * PORT_WORDS, 1 << 4);
    }
}
