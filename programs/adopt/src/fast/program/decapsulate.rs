//! Packets for this machine that arrived by an adopted tunnel: the packet within is looked up as if it had
//! come by the tunnel's interface (the kernel's `gre_rcv`, `ipip_rcv` and `ip_tunnel_rcv`).
//!
//! Only programs that were made once there was a tunnel have this stage. The frame stays as it came until
//! the packet within is sent, so that all that is not plain can still go to the kernel.
use super::super::layout::*;
use super::receive::{buffer, load_frame, load_rest};
use super::send::XDP_ADJUST_HEAD;
use super::tunnel::{AT_LINK_HEADER, ETHERNET, IPV4, SKB_ADJUST_ROOM};
use super::*;
use crate::kernel::TunnelProtocol;
use artery_device::bpf::Operation::*;
use artery_device::bpf::Test::*;

const GRE: i32 = protocol_number(TunnelProtocol::Gre) as i32;
const IPIP: i32 = protocol_number(TunnelProtocol::Ipip) as i32;
/// What is left is IPv6 (`BPF_F_ADJ_ROOM_DECAP_L3_IPV6`, Linux 6.3).
const LEAVES_IPV6: i32 = 1 << 8;
/// The longest header that is taken off fits in so many bits.
const LENGTH_MASK: i32 = 31;

/// Behind all checks of an outer packet: goes to `ipv4` or `ipv6` with the packet within, where `R9` begins
/// then, and with the flags of the tunnel's port in `R1`. Other packets go on here.
pub(super) fn write(w: &mut ProgramWriter<'_>, [ipv4, ipv6]: [Label; 2]) {
    let (is_tunneled, is_found, is_plain) = (w.a.label(), w.a.label(), w.a.label());
    // One header is taken off. To the verifier this number is known, so that it sees an end.
    w.load_slot(R1, Slot::IsWithin);
    w.a.jump_if(NotEqual, R1, 0, is_plain);
    w.a.load(Size::Byte, R3, R9, 9);
    w.a.jump_if(Equal, R3, GRE, is_tunneled);
    w.a.jump_if(NotEqual, R3, IPIP, is_plain);
    w.a.place(is_tunneled);
    find_tunnel(w, [(R9, 12), (R9, 16)], |w, _| w.a.jump(is_found));
    w.a.jump(is_plain);
    w.a.place(is_found);
    check_family(w);
    find_port(w);
    check_outer(w);
    find_protocol(w);
    // The outer type of service, before `R9` leaves it.
    w.a.load(Size::Byte, R3, R9, 1);
    w.a.compute(And, R3, 3);
    find_packet(w);
    check_ecn(w);
    enter_tunnel(w);
    w.a.jump_if(Equal, R5, in_network_order(0x0800), ipv4);
    w.a.jump_if(Equal, R5, in_network_order(0x86dd), ipv6);
    w.a.jump(w.to_kernel(Reason::Tunnel));
    w.a.place(is_plain);
}

/// Finds the bucket of the tunnel that a header is of, whose kind is in `R3`, by words that are at these
/// places. Writes with `found` what is done with the bucket in `R5`, whose state is in `R1`; then comes
/// the next one's turn.
pub(super) fn find_tunnel(
    w: &mut ProgramWriter<'_>,
    keys: [(Register, i16); 2],
    mut found: impl FnMut(&mut ProgramWriter<'_>, Label),
) {
    w.a.set(R4, 0);
    for (base, at) in keys {
        w.a.load(Size::Word, R1, base, at);
        ipv4::mix_in(w, R1);
    }
    w.a.compute_32(Multiply, R4, MULTIPLIER as i32);
    w.a.compute_32(ShiftRight, R4, 32 - TUNNEL_BUCKETS.ilog2() as i32);
    for probe in 0..TUNNEL_PROBES as i32 {
        let next = w.a.label();
        w.a.set(R2, R4);
        w.a.compute(Add, R2, probe);
        w.a.compute(And, R2, TUNNEL_BUCKETS as i32 - 1);
        w.a.compute(ShiftLeft, R2, (4 * TUNNEL_BUCKET_WORDS).ilog2() as i32);
        w.a.value(R5, w.memory.arrays.descriptor("tunnel-inputs"), 0);
        w.a.compute(Add, R5, R2);
        w.a.load(Size::Word, R1, R5, 4 * TUNNEL_STATE as i16);
        w.a.set(R2, R1);
        w.a.compute(And, R2, 0xff);
        w.a.jump_if(NotEqual, R2, R3, next);
        read_behind_state(w);
        for (word, (base, at)) in keys.into_iter().enumerate() {
            w.a.load(Size::Word, R2, R5, 4 * word as i16);
            w.a.load(Size::Word, R0, base, at);
            w.a.jump_if(NotEqual, R2, R0, next);
        }
        found(w, next);
        w.a.place(next);
    }
}

/// Has a processor that reads out of order (ARM) read the other words of the bucket in `R5` behind its state
/// in `R1`: their address depends on it, if by nothing. So it sees no old words with a new state.
fn read_behind_state(w: &mut ProgramWriter<'_>) {
    w.a.set(R2, R1);
    w.a.compute(And, R2, 0);
    w.a.compute(Add, R5, R2);
}

/// All IPv4 that arrives at the outer packet's port must be forwarded. `R1` stays.
fn check_family(w: &mut ProgramWriter<'_>) {
    w.load_slot(R2, Slot::Port);
    point_to_port(w, R5, R2);
    w.a.load(Size::Word, R5, R5, 4 * PORT_FLAGS as i16);
    w.a.compute(And, R5, Flags::IPV4 as i32);
    w.a.jump_if(Equal, R5, 0, w.to_kernel(Reason::Policy));
}

/// By the state in `R1`, which `R2` has then: `R0` = the tunnel's port, `R4` = the record of that. Its
/// packets must be forwarded by the same routes as those of the port that the outer packet arrived at.
pub(super) fn find_port(w: &mut ProgramWriter<'_>) {
    w.a.set(R2, R1);
    w.load_slot(R1, Slot::Port);
    point_to_port(w, R5, R1);
    w.a.load(Size::Word, R5, R5, 4 * PORT_FLAGS as i16);
    w.a.set(R1, R2);
    w.a.compute(ShiftRight, R1, TUNNEL_PORT as i32);
    w.a.compute(And, R1, MOST_PORTS as i32 - 1);
    w.a.set(R0, R1);
    point_to_port(w, R4, R1);
    w.a.load(Size::Word, R1, R4, 4 * PORT_FLAGS as i16);
    w.a.compute(Xor, R1, R5);
    w.a.compute(ShiftRight, R1, Flags::FIB as i32);
    w.a.compute(And, R1, MOST_FIBS as i32 - 1);
    w.a.jump_if(NotEqual, R1, 0, w.to_kernel(Reason::Tunnel));
}

/// `record` = that of the port whose number is in `number`; spoils that.
fn point_to_port(w: &mut ProgramWriter<'_>, record: Register, number: Register) {
    w.a.compute(And, number, MOST_PORTS as i32 - 1);
    w.a.compute(ShiftLeft, number, (4 * PORT_WORDS).ilog2() as i32);
    w.a.value(record, w.memory.arrays.descriptor("ports"), 0);
    w.a.compute(Add, record, number);
}

/// Leaves outer packets to the kernel that are fragments, that do not fill their frame, which it trims, and
/// those that several packets were joined to.
fn check_outer(w: &mut ProgramWriter<'_>) {
    let tunnel = w.to_kernel(Reason::Tunnel);
    w.a.load(Size::Half, R1, R9, 6);
    w.a.compute(And, R1, in_network_order(0x3fff));
    w.a.jump_if(NotEqual, R1, 0, tunnel);
    if w.at == ProgramHook::Tc {
        w.load_slot(R1, Slot::Context);
        w.a.load(Size::Word, R1, R1, buffer::SEGMENT_SIZE);
        w.a.jump_if(NotEqual, R1, 0, tunnel);
    }
    w.store_slot(Slot::Outer, R2);
    load_rest(w);
    w.load_slot(R1, Slot::Length);
    w.a.jump_if(NotEqual, R1, R2, tunnel);
    w.load_slot(R2, Slot::Outer);
}

/// `R5` = the type of the packet within, as it is on the wire. A header of GRE has no option.
fn find_protocol(w: &mut ProgramWriter<'_>) {
    let (ipip, is_known) = (w.a.label(), w.a.label());
    let tunnel = w.to_kernel(Reason::Tunnel);
    w.a.jump_if(Equal, R3, IPIP, ipip);
    w.a.set(R1, R9);
    w.a.compute(Add, R1, header_length(TunnelProtocol::Gre) as i32 + IPV4);
    w.a.jump_if(Above, R1, R8, tunnel);
    w.a.load(Size::Half, R1, R9, IPV4 as i16);
    w.a.jump_if(NotEqual, R1, 0, tunnel);
    w.a.load(Size::Half, R5, R9, IPV4 as i16 + 2);
    w.a.jump(is_known);
    w.a.place(ipip);
    w.a.set(R5, in_network_order(0x0800));
    w.a.place(is_known);
}

/// `R9` = where the packet within begins, by the state in `R2`.
pub(super) fn find_packet(w: &mut ProgramWriter<'_>) {
    w.a.compute(ShiftRight, R2, TUNNEL_LENGTH as i32);
    w.a.compute(And, R2, LENGTH_MASK);
    w.store_slot(Slot::Outer, R2);
    w.a.compute(Add, R9, R2);
    w.a.set(R1, R9);
    w.a.compute(Add, R1, IPV4);
    w.a.jump_if(Above, R1, R8, w.to_kernel(Reason::Tunnel));
}

/// Leaves to the kernel what changes or is dropped by ECN (RFC 6040 section 4.2), whose outer bits are in
/// `R3`, and what the kernel logs; which of that it does depends on its version.
fn check_ecn(w: &mut ProgramWriter<'_>) {
    let (ipv6, is_known, is_same) = (w.a.label(), w.a.label(), w.a.label());
    let tunnel = w.to_kernel(Reason::Tunnel);
    w.a.jump_if(Equal, R3, 0, is_same);
    w.a.jump_if(Equal, R5, in_network_order(0x86dd), ipv6);
    w.a.load(Size::Byte, R1, R9, 1);
    w.a.jump(is_known);
    w.a.place(ipv6);
    w.a.load(Size::Byte, R1, R9, 1);
    w.a.compute(ShiftRight, R1, 4);
    w.a.place(is_known);
    w.a.compute(And, R1, 3);
    w.a.jump_if(Equal, R1, R3, is_same);
    // Outer ECT(0) leaves any ECT as it is.
    w.a.jump_if(NotEqual, R3, 2, tunnel);
    w.a.jump_if(Equal, R1, 0, tunnel);
    w.a.place(is_same);
}

/// From here on it is a packet of the tunnel's port, `R0`, whose record is in `R4`: `R1` = its flags.
pub(super) fn enter_tunnel(w: &mut ProgramWriter<'_>) {
    w.load_slot(R2, Slot::Outer);
    let shortened = [Slot::Length].into_iter().chain((w.at == ProgramHook::Tc).then_some(Slot::Rest));
    for slot in shortened {
        w.load_slot(R1, slot);
        w.a.compute(Subtract, R1, R2);
        w.store_slot(slot, R1);
    }
    // Through a register: older verifiers know no other number on the stack but 0.
    w.a.set(R1, 1);
    w.store_slot(Slot::IsWithin, R1);
    w.store_slot(Slot::Port, R0);
    w.a.load(Size::Word, R1, R4, 4 * PORT_FLAGS as i16);
}

/// Takes the outer header off a packet that is sent, and the tag, where that is in the frame; `R9` is where
/// the packet begins then. Leaves it to the kernel where it can't be taken off.
pub(super) fn take_off(w: &mut ProgramWriter<'_>) {
    let (is_done, is_cut) = (w.a.label(), w.a.label());
    w.load_slot(R1, Slot::IsWithin);
    w.a.jump_if(Equal, R1, 0, is_done);
    if w.at == ProgramHook::Tc {
        let over_ipv4 = w.a.label();
        w.load_slot(R1, Slot::Outer);
        w.a.jump_if(NotEqual, R1, PPPOE_LENGTH as i32, over_ipv4);
        pppoe::remove_header(w);
        w.a.jump(is_cut);
        w.a.place(over_ipv4);
    }
    cut(w);
    w.a.jump_if(NotEqual, R0, 0, w.to_kernel(Reason::Tunnel));
    w.a.place(is_cut);
    w.load_slot(R1, Slot::Context);
    load_frame(w, R1);
    w.a.set(R9, R7);
    w.a.compute(Add, R9, ETHERNET);
    w.a.set(R1, R9);
    w.a.compute(Add, R1, IPV4);
    w.a.jump_if(Above, R1, R8, w.lost);
    write_type(w);
    w.a.place(is_done);
}

/// Cuts the header out, `R0` says if that was done, and notes by how much the frame is shorter.
fn cut(w: &mut ProgramWriter<'_>) {
    w.load_slot(R2, Slot::Outer);
    if w.at == ProgramHook::Xdp {
        w.load_slot(R1, Slot::Tag);
        w.a.compute(Add, R2, R1);
        w.store_number(Slot::Tag, 0);
    }
    w.a.set(R3, 0);
    w.a.compute(Subtract, R3, R2);
    w.store_slot(Slot::Tunnel, R3);
    w.load_slot(R1, Slot::Context);
    match w.at {
        ProgramHook::Xdp => w.a.call(XDP_ADJUST_HEAD),
        ProgramHook::Tc => {
            let is_ipv4 = w.a.label();
            w.a.set(R2, R3);
            w.a.set(R4, 0);
            w.load_slot(R5, Slot::Family);
            w.a.jump_if(Equal, R5, 4, is_ipv4);
            w.a.set(R4, LEAVES_IPV6);
            w.a.place(is_ipv4);
            w.a.set(R3, AT_LINK_HEADER);
            w.a.call(SKB_ADJUST_ROOM);
        }
    }
}

/// Writes what the link carries now where the type is; addresses are written later.
fn write_type(w: &mut ProgramWriter<'_>) {
    let (ipv6, is_done) = (w.a.label(), w.a.label());
    w.load_slot(R1, Slot::Family);
    w.a.jump_if(Equal, R1, 6, ipv6);
    w.a.store(Size::Half, R7, ETHERNET as i16 - 2, in_network_order(0x0800));
    w.a.jump(is_done);
    w.a.place(ipv6);
    w.a.store(Size::Half, R7, ETHERNET as i16 - 2, in_network_order(0x86dd));
    w.a.place(is_done);
}
