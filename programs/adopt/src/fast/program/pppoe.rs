//! Packets in frames of PPPoE sessions (RFC 2516), as the kernel's `pppoe_rcv` and `pppoe_xmit` take the
//! header off and put it on.
//!
//! By tc the kernel must know, too, what a frame carries now, and it has no function for that. It reads it
//! from the frame where it takes a tag of a VLAN out: so tags are put in and taken out, and the header itself
//! is taken off as two tags.
use super::super::layout::*;
use super::receive::{XDP_GET_BUFF_LEN, buffer, load_frame, load_rest};
use super::send::{CSUM_UPDATE, SKB_VLAN_POP, SKB_VLAN_PUSH, XDP_ADJUST_HEAD};
use super::tunnel::{AT_LINK_HEADER, ETHERNET, IPV4, SKB_ADJUST_ROOM};
use super::*;
use artery_device::bpf::Operation::*;
use artery_device::bpf::Test::*;

const LENGTH: i32 = PPPOE_LENGTH as i32;
/// Of that the bytes that the header's own length does not count.
const UNCOUNTED: i32 = 6;
/// A tag of VLAN 1 as it is in the frame, where its type and what it stands before are two bytes each.
const VLAN: u16 = 0x8100;
const TAG_BEFORE_TAG: [u8; 4] = [0, 1, 0x81, 0];

/// A frame of a session, at whose header `R9` is: goes to `ipv4` or `ipv6` with the packet within, where `R9`
/// begins then, and with the flags of the session's port in `R1`.
pub(super) fn write_received(w: &mut ProgramWriter<'_>, [ipv4, ipv6]: [Label; 2]) {
    let other = w.to_kernel(Reason::OtherProtocol);
    w.a.set(R1, R9);
    w.a.compute(Add, R1, LENGTH + IPV4);
    w.a.jump_if(Above, R1, R8, w.cut_short);
    w.a.load(Size::Half, R1, R9, 0);
    w.a.jump_if(NotEqual, R1, in_network_order(PPPOE_DATA), other);
    check_buffers(w);
    let is_found = w.a.label();
    find_session(w, is_found);
    w.a.jump(other);
    w.a.place(is_found);
    decapsulate::find_port(w);
    check_length(w);
    find_protocol(w);
    decapsulate::find_packet(w);
    decapsulate::enter_tunnel(w);
    w.a.jump_if(Equal, R5, in_network_order(0x0800), ipv4);
    w.a.jump(ipv6);
}

/// Leaves to the kernel what lies in several buffers, or was joined from several frames.
fn check_buffers(w: &mut ProgramWriter<'_>) {
    if w.at == ProgramHook::Tc {
        w.load_slot(R1, Slot::Context);
        w.a.load(Size::Word, R1, R1, buffer::SEGMENT_SIZE);
        w.a.jump_if(NotEqual, R1, 0, w.to_kernel(Reason::Tunnel));
    }
    if receive::sees_buffers(w) {
        w.load_slot(R1, Slot::Context);
        w.a.call(XDP_GET_BUFF_LEN);
        w.a.set(R1, R8);
        w.a.compute(Subtract, R1, R7);
        w.a.jump_if(NotEqual, R0, R1, w.to_kernel(Reason::MultiBuffer));
    }
}

/// Goes to `is_found` with the state of the session's bucket in `R1`, if the frame is of an adopted one.
fn find_session(w: &mut ProgramWriter<'_>, is_found: Label) {
    const KEY: i16 = Slot::Outer as i16;
    w.a.load(Size::Word, R1, R7, 6);
    w.a.store(Size::Word, R10, KEY, R1);
    w.a.load(Size::Half, R1, R7, 10);
    w.a.store(Size::Half, R10, KEY + 4, R1);
    w.a.load(Size::Half, R1, R9, 2);
    w.a.store(Size::Half, R10, KEY + 6, R1);
    w.a.set(R3, i32::from(PPPOE));
    let keys = [(R10, KEY), (R10, KEY + 4)];
    decapsulate::find_tunnel(w, keys, |w, next| {
        w.a.load(Size::Word, R2, R5, 4 * TUNNEL_CARRIER as i16);
        w.load_slot(R0, Slot::Port);
        w.a.jump_if(NotEqual, R2, R0, next);
        w.a.jump(is_found);
    });
}

/// Leaves frames to the kernel that don't carry all that their header says, or more than short frames are
/// filled up with. Keeps what an outer packet's length would be, by which that of the one within is checked.
fn check_length(w: &mut ProgramWriter<'_>) {
    let malformed = w.to_kernel(Reason::Malformed);
    let is_right = w.a.label();
    w.a.load(Size::Half, R1, R9, 4);
    w.a.swap(R1, 16);
    w.a.compute(Add, R1, UNCOUNTED);
    w.store_slot(Slot::Length, R1);
    w.a.set(R3, R2);
    load_rest(w);
    w.a.jump_if(Equal, R1, R2, is_right);
    w.a.jump_if(Above, R1, R2, malformed);
    w.a.jump_if(Above, R2, FILLED as i32, malformed);
    w.a.place(is_right);
    w.a.set(R2, R3);
}

/// `R5` = the type of the packet within, as it would be on the wire. Other protocols are for the kernel
/// alone, LCP among them.
fn find_protocol(w: &mut ProgramWriter<'_>) {
    let is_known = w.a.label();
    w.a.load(Size::Half, R1, R9, UNCOUNTED as i16);
    for (protocol, ether_type) in PPP_PROTOCOLS {
        w.a.set(R5, in_network_order(ether_type));
        w.a.jump_if(Equal, R1, in_network_order(protocol), is_known);
    }
    w.a.jump(w.to_kernel(Reason::OtherProtocol));
    w.a.place(is_known);
}

/// Puts the header in front of a packet, with the record of the session in [`Slot::Record`].
pub(super) fn push_header(w: &mut ProgramWriter<'_>) {
    w.load_slot(R1, Slot::Context);
    match w.at {
        ProgramHook::Xdp => {
            w.a.set(R2, -LENGTH);
            w.a.call(XDP_ADJUST_HEAD);
        }
        ProgramHook::Tc => {
            w.a.set(R2, LENGTH);
            w.a.set(R3, AT_LINK_HEADER);
            w.a.set(R4, 0);
            w.a.call(SKB_ADJUST_ROOM);
        }
    }
    w.a.jump_if(NotEqual, R0, 0, w.to_kernel(Reason::TooBig));
    find_packet(w);
    write_header(w);
    if w.at == ProgramHook::Tc {
        for at in [0, 4] {
            // What a card has summed up has these bytes in it now, too.
            w.load_slot(R1, Slot::Context);
            w.a.load(Size::Word, R2, R9, at - LENGTH as i16);
            w.a.call(CSUM_UPDATE);
        }
        pop_own_tag(w);
        push_tag(w);
        push_tag(w);
        pop_tag(w);
        pop_tag(w);
        find_packet(w);
    }
    w.store_number(Slot::Tunnel, LENGTH);
}

fn find_packet(w: &mut ProgramWriter<'_>) {
    w.load_slot(R1, Slot::Context);
    load_frame(w, R1);
    tunnel::find_packet(w, LENGTH);
}

/// Writes it in front of the packet, and the type of frames that have one.
fn write_header(w: &mut ProgramWriter<'_>) {
    const START: i16 = -(LENGTH as i16);
    w.a.store(Size::Half, R9, START - 2, in_network_order(PPPOE_SESSION));
    w.a.store(Size::Half, R9, START, in_network_order(PPPOE_DATA));
    w.load_slot(R1, Slot::Record);
    w.a.load(Size::Half, R1, R1, 0);
    w.a.store(Size::Half, R9, START + 2, R1);
    w.load_slot(R1, Slot::Length);
    w.a.compute(Add, R1, LENGTH - UNCOUNTED);
    w.a.swap(R1, 16);
    w.a.store(Size::Half, R9, START + 4, R1);
    let (ipv6, is_done) = (w.a.label(), w.a.label());
    let [(ip, _), (ipv6_protocol, _)] = PPP_PROTOCOLS;
    w.load_slot(R1, Slot::Family);
    w.a.jump_if(Equal, R1, 6, ipv6);
    w.a.store(Size::Half, R9, START + UNCOUNTED as i16, in_network_order(ip));
    w.a.jump(is_done);
    w.a.place(ipv6);
    w.a.store(Size::Half, R9, START + UNCOUNTED as i16, in_network_order(ipv6_protocol));
    w.a.place(is_done);
}

/// By tc: takes the header off a frame whose packet is sent. What can't be done to the end is lost.
pub(super) fn remove_header(w: &mut ProgramWriter<'_>) {
    pop_own_tag(w);
    w.load_slot(R1, Slot::Context);
    load_frame(w, R1);
    w.a.set(R1, R7);
    w.a.compute(Add, R1, ETHERNET + LENGTH);
    w.a.jump_if(Above, R1, R8, w.lost);
    write_tags(w);
    push_tag(w);
    push_tag(w);
    // Those two, and the two that the header is now.
    (0..4).for_each(|_| pop_tag(w));
    w.store_number(Slot::Tunnel, -LENGTH);
}

/// Makes two tags of the header, in front of the type of the packet. What a card has summed up is less by the
/// old bytes, and more by the new ones.
fn write_tags(w: &mut ProgramWriter<'_>) {
    const START: i16 = ETHERNET as i16;
    let (ipv6, is_known) = (w.a.label(), w.a.label());
    w.a.store(Size::Half, R7, START - 2, in_network_order(VLAN));
    let last = |ether_type: u16| {
        let [high, low] = ether_type.to_be_bytes();
        u32::from_ne_bytes([0, 1, high, low]) as i32
    };
    w.load_slot(R1, Slot::Family);
    w.a.jump_if(Equal, R1, 6, ipv6);
    w.a.set(R3, last(0x0800));
    w.a.jump(is_known);
    w.a.place(ipv6);
    w.a.set(R3, last(0x86dd));
    w.a.place(is_known);
    w.a.compute_32(Move, R3, R3);
    w.a.set(R4, u32::from_ne_bytes(TAG_BEFORE_TAG) as i32);
    w.a.compute_32(Move, R4, R4);
    w.a.set(R2, R3);
    w.a.compute(Add, R2, R4);
    for (at, new) in [(START, R4), (START + 4, R3)] {
        w.a.load(Size::Word, R1, R7, at);
        w.a.compute_32(Xor, R1, -1);
        w.a.compute(Add, R2, R1);
        w.a.store(Size::Word, R7, at, new);
    }
    translate::fold_to_32(w, R2);
    w.load_slot(R1, Slot::Context);
    w.a.call(CSUM_UPDATE);
}

/// Takes away the tag that the frame came with, which is beside it.
fn pop_own_tag(w: &mut ProgramWriter<'_>) {
    let is_untagged = w.a.label();
    w.load_slot(R1, Slot::Tag);
    w.a.jump_if(Equal, R1, 0, is_untagged);
    pop_tag(w);
    w.store_number(Slot::Tag, 0);
    w.a.place(is_untagged);
}

/// A tag that is beside the frame goes into it, and the new one is beside it.
fn push_tag(w: &mut ProgramWriter<'_>) {
    w.load_slot(R1, Slot::Context);
    w.a.set(R2, in_network_order(VLAN));
    w.a.set(R3, 1);
    w.a.call(SKB_VLAN_PUSH);
    w.a.jump_if(NotEqual, R0, 0, w.lost);
}

/// The tag beside the frame is gone, and where a tag is the first in the frame, it is the one beside it now.
fn pop_tag(w: &mut ProgramWriter<'_>) {
    w.load_slot(R1, Slot::Context);
    w.a.call(SKB_VLAN_POP);
    w.a.jump_if(NotEqual, R0, 0, w.lost);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_header_is_as_long_as_two_tags() {
        assert_eq!(2 * TAG_BEFORE_TAG.len(), PPPOE_LENGTH);
    }
}
