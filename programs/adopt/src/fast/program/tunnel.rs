//! The header of a tunnel, in front of a packet whose hop leads into one; that of one over IPv4 as the
//! kernel's `ip_tunnel_xmit` writes it.
//!
//! Only programs that were made once there was a tunnel have this stage. Nothing of the frame has changed
//! when it can't be done, except that padding is gone, so that the frame can still go to the kernel.
use super::super::layout::*;
use super::receive::{buffer, load_frame, load_rest};
use super::send::{CSUM_UPDATE, XDP_ADJUST_HEAD};
use super::*;
use crate::kernel::TunnelProtocol;
use artery_device::bpf::Operation::*;
use artery_device::bpf::Test::*;

const GET_PRANDOM: i32 = 7;
const SKB_CHANGE_TAIL: i32 = 38;
pub(super) const SKB_ADJUST_ROOM: i32 = 50;
const XDP_ADJUST_TAIL: i32 = 65;
/// Room between the link header and the next (`BPF_ADJ_ROOM_MAC`), for IPv4 and GRE, while segments stay as
/// long as they are.
pub(super) const AT_LINK_HEADER: i32 = 1;
const FIXED_SEGMENTS: i32 = 1;
const OF_IPV4: i32 = 2;
const OF_GRE: i32 = 8;
pub(super) const ETHERNET: i32 = 14;
pub(super) const IPV4: i32 = 20;
/// Bytes of an Ethernet frame without its check sequence (IEEE 802.3 section 3.2.8).
const SHORTEST_FRAME: i32 = 60;
const TCP: i32 = 6;
const LONGEST: i32 = 0xffff;
/// DF, in the word of flags and offset.
const DONT_FRAGMENT: u16 = 0x4000;
const VERSION_AND_LENGTH: i32 = 0x45;

/// Copies frames that are to leave as they came, and goes on with all of them. [`Slot::Tunnel`] says by how
/// many bytes the frame is longer now, and `R9` is where the packet begins that is sent, within a new header
/// or out of an old one.
pub(super) fn write(w: &mut ProgramWriter<'_>) {
    let (plain, gre, pppoe, is_done) = (w.a.label(), w.a.label(), w.a.label(), w.a.label());
    w.store_number(Slot::Tunnel, 0);
    if w.at == ProgramHook::Tc {
        w.load_slot(R1, Slot::Context);
        w.a.load(Size::Word, R1, R1, buffer::SEGMENTS);
        w.store_slot(Slot::Segments, R1);
    }
    load_number(w);
    w.a.jump_if(Equal, R1, 0, plain);
    // From one tunnel into another the kernel sends.
    w.load_slot(R2, Slot::IsWithin);
    w.a.jump_if(NotEqual, R2, 0, w.to_kernel(Reason::Tunnel));
    point_to_record(w);
    check_packet(w);
    copy::write_forwarded(w);
    cut_padding(w);
    w.load_slot(R2, Slot::Record);
    w.a.load(Size::Byte, R1, R2, OPTIONS);
    w.a.jump_if(Equal, R1, i32::from(protocol_number(TunnelProtocol::Gre)), gre);
    w.a.jump_if(Equal, R1, i32::from(PPPOE), pppoe);
    put_header(w, TunnelProtocol::Ipip);
    w.a.jump(is_done);
    w.a.place(pppoe);
    pppoe::push_header(w);
    w.a.jump(is_done);
    w.a.place(gre);
    put_header(w, TunnelProtocol::Gre);
    w.a.jump(is_done);
    w.a.place(plain);
    copy::write_forwarded(w);
    decapsulate::take_off(w);
    w.a.place(is_done);
}

/// Leaves multi-buffer frames for a tunnel to the kernel.
pub(super) fn refuse_multi_buffer(w: &mut ProgramWriter<'_>) {
    load_number(w);
    w.a.jump_if(NotEqual, R1, 0, w.to_kernel(Reason::MultiBuffer));
}

/// Where a record has its options.
const OPTIONS: i16 = 4 * TUNNEL_OPTIONS as i16;

/// `R1` = the number of the hop's tunnel.
fn load_number(w: &mut ProgramWriter<'_>) {
    w.a.load(Size::Word, R1, R6, 4 * HOP_PORTS as i16);
    w.a.compute(ShiftRight, R1, HOP_TUNNEL as i32);
    w.a.compute(And, R1, MOST_TUNNELS as i32 - 1);
}

/// Keeps where the record of the tunnel in `R1` is.
fn point_to_record(w: &mut ProgramWriter<'_>) {
    w.a.compute(ShiftLeft, R1, (4 * TUNNEL_WORDS).ilog2() as i32);
    w.a.value(R2, w.memory.arrays.descriptor("tunnels"), 0);
    w.a.compute(Add, R2, R1);
    w.store_slot(Slot::Record, R2);
}

/// Leaves packets to the kernel that take no further header here: those whose length has no room for it, what
/// was joined of several and is not of TCP, or leaves by a session; and what goes into another packet and is
/// of a connection that goes past rules, which outer packets are not.
fn check_packet(w: &mut ProgramWriter<'_>) {
    let too_big = w.to_kernel(Reason::TooBig);
    let (over_ipv4, is_fit) = (w.a.label(), w.a.label());
    w.load_slot(R1, Slot::Length);
    w.a.jump_if(Above, R1, LONGEST - header_length(TunnelProtocol::Gre) as i32, too_big);
    w.load_slot(R2, Slot::Record);
    w.a.load(Size::Byte, R1, R2, OPTIONS);
    w.a.jump_if(NotEqual, R1, i32::from(PPPOE), over_ipv4);
    if w.at == ProgramHook::Tc {
        // Neither cards nor the kernel cut frames of sessions into segments.
        w.load_slot(R1, Slot::Context);
        w.a.load(Size::Word, R1, R1, buffer::SEGMENT_SIZE);
        w.a.jump_if(NotEqual, R1, 0, w.to_kernel(Reason::Tunnel));
    }
    w.a.jump(is_fit);
    w.a.place(over_ipv4);
    if w.has_flows() {
        w.load_slot(R1, Slot::Properties);
        w.a.jump_if(NotEqual, R1, 0, w.to_kernel(Reason::Policy));
    }
    if w.at == ProgramHook::Tc {
        let (is_whole, ipv6, is_known) = (w.a.label(), w.a.label(), w.a.label());
        w.load_slot(R1, Slot::Context);
        w.a.load(Size::Word, R1, R1, buffer::SEGMENT_SIZE);
        w.a.jump_if(Equal, R1, 0, is_whole);
        w.load_slot(R1, Slot::Family);
        w.a.jump_if(Equal, R1, 6, ipv6);
        w.a.load(Size::Byte, R1, R9, 9);
        w.a.jump(is_known);
        w.a.place(ipv6);
        w.a.load(Size::Byte, R1, R9, 6);
        w.a.place(is_known);
        w.a.jump_if(NotEqual, R1, TCP, too_big);
        w.a.place(is_whole);
    }
    w.a.place(is_fit);
}

/// Takes off what short frames are filled up with.
fn cut_padding(w: &mut ProgramWriter<'_>) {
    let is_done = w.a.label();
    w.load_slot(R1, Slot::Length);
    load_rest(w);
    w.a.jump_if(Equal, R1, R2, is_done);
    match w.at {
        ProgramHook::Xdp => {
            w.a.compute(Subtract, R1, R2);
            w.a.set(R2, R1);
            w.load_slot(R1, Slot::Context);
            w.a.call(XDP_ADJUST_TAIL);
        }
        ProgramHook::Tc => {
            w.a.set(R2, R1);
            w.a.compute(Add, R2, ETHERNET);
            w.load_slot(R1, Slot::Context);
            w.a.set(R3, 0);
            w.a.call(SKB_CHANGE_TAIL);
        }
    }
    w.a.jump_if(NotEqual, R0, 0, w.to_kernel(Reason::TooBig));
    w.a.place(is_done);
}

/// Fills up a frame that is shorter than Ethernet's shortest once a header was put on or taken off. Not every
/// driver does so with what XDP redirects. Before Linux 5.8 no program can, and
/// such a frame is left to the driver.
pub(super) fn fill_up(w: &mut ProgramWriter<'_>) {
    let is_done = w.a.label();
    w.load_slot(R1, Slot::Tunnel);
    w.a.jump_if(Equal, R1, 0, is_done);
    w.load_slot(R1, Slot::Context);
    load_frame(w, R1);
    w.a.compute(Subtract, R8, R7);
    w.a.jump_if(AtLeast, R8, SHORTEST_FRAME, is_done);
    w.a.set(R2, SHORTEST_FRAME);
    w.a.compute(Subtract, R2, R8);
    // The kernel fills it with zeros.
    w.a.call(XDP_ADJUST_TAIL);
    w.a.place(is_done);
}

fn put_header(w: &mut ProgramWriter<'_>, protocol: TunnelProtocol) {
    let length = header_length(protocol) as i32;
    make_room(w, protocol);
    w.a.call(GET_PRANDOM);
    w.load_slot(R1, Slot::Context);
    load_frame(w, R1);
    find_packet(w, length);
    write_options(w, length as i16, protocol);
    write_rest(w, length as i16);
    if protocol == TunnelProtocol::Gre {
        write_gre(w);
    }
    w.store_number(Slot::Tunnel, length);
}

/// Makes room behind the link header, or leaves the frame to the kernel: one that is within a tunnel already
/// and is yet to be cut into segments.
fn make_room(w: &mut ProgramWriter<'_>, protocol: TunnelProtocol) {
    let length = header_length(protocol) as i32;
    w.load_slot(R1, Slot::Context);
    match w.at {
        ProgramHook::Xdp => {
            w.a.set(R2, -length);
            w.a.call(XDP_ADJUST_HEAD);
        }
        ProgramHook::Tc => {
            let of_gre = if protocol == TunnelProtocol::Gre { OF_GRE } else { 0 };
            w.a.set(R2, length);
            w.a.set(R3, AT_LINK_HEADER);
            w.a.set(R4, FIXED_SEGMENTS | OF_IPV4 | of_gre);
            w.a.call(SKB_ADJUST_ROOM);
        }
    }
    w.a.jump_if(NotEqual, R0, 0, w.to_kernel(Reason::TooBig));
}

/// `R9` = where the packet begins, behind the room for its tunnel's header. What can't be is lost.
pub(super) fn find_packet(w: &mut ProgramWriter<'_>, length: i32) {
    // The link header may be written over as far as this, too.
    w.a.set(R2, R7);
    w.a.compute(Add, R2, ETHERNET + length + IPV4);
    w.a.jump_if(Above, R2, R8, w.lost);
    w.a.set(R9, R7);
    if w.at == ProgramHook::Xdp {
        w.load_slot(R2, Slot::Tag);
        w.a.compute(And, R2, 4);
        w.a.compute(Add, R9, R2);
    }
    w.a.compute(Add, R9, ETHERNET + length);
    w.a.set(R2, R9);
    w.a.compute(Add, R2, IPV4);
    w.a.jump_if(Above, R2, R8, w.lost);
}

/// Writes what depends on the packet, in `length` bytes in front of it; `R0` is a random
/// identification; DF is set, so nothing is put together by it.
fn write_options(w: &mut ProgramWriter<'_>, length: i16, protocol: TunnelProtocol) {
    w.a.store(Size::Half, R9, 4 - length, R0);
    w.load_slot(R5, Slot::Record);
    load_packet_fields(w);
    write_tos(w, length);
    let has_ttl = w.a.label();
    w.a.load(Size::Byte, R3, R5, OPTIONS + 1);
    w.a.jump_if(NotEqual, R3, 0, has_ttl);
    w.a.set(R3, R2);
    // What came has its own taken from yet.
    w.a.compute(Subtract, R3, 1);
    w.a.place(has_ttl);
    w.a.store(Size::Byte, R9, 8 - length, R3);
    w.a.store(Size::Byte, R9, 9 - length, i32::from(protocol_number(protocol)));
    w.load_slot(R3, Slot::Length);
    w.a.compute(Add, R3, i32::from(length));
    w.a.swap(R3, 16);
    w.a.store(Size::Half, R9, 2 - length, R3);
}

/// `R1` = the type of service of the packet that came, `R2` = its TTL.
fn load_packet_fields(w: &mut ProgramWriter<'_>) {
    let (ipv6, is_known) = (w.a.label(), w.a.label());
    w.load_slot(R1, Slot::Family);
    w.a.jump_if(Equal, R1, 6, ipv6);
    w.a.load(Size::Byte, R1, R9, 1);
    w.a.load(Size::Byte, R2, R9, 8);
    w.a.jump(is_known);
    w.a.place(ipv6);
    w.a.load(Size::Half, R1, R9, 0);
    w.a.swap(R1, 16);
    w.a.compute(ShiftRight, R1, 4);
    w.a.compute(And, R1, 0xff);
    w.a.load(Size::Byte, R2, R9, 7);
    w.a.place(is_known);
}

/// Writes the DSCP of the tunnel, or that of the packet, whose type of service is in `R1`; and the packet's
/// ECN, in which CE becomes ECT(0) (RFC 3168 section 9.1.1, the option of full functionality).
fn write_tos(w: &mut ProgramWriter<'_>, length: i16) {
    let (is_own, is_known) = (w.a.label(), w.a.label());
    w.a.load(Size::Byte, R3, R5, OPTIONS + 2);
    w.a.set(R4, R3);
    w.a.compute(And, R4, i32::from(INHERITED_TOS));
    w.a.jump_if(Equal, R4, 0, is_own);
    w.a.set(R3, R1);
    w.a.place(is_own);
    w.a.compute(And, R3, 0xfc);
    w.a.compute(And, R1, 3);
    w.a.jump_if(NotEqual, R1, 3, is_known);
    w.a.set(R1, 2);
    w.a.place(is_known);
    w.a.compute(Or, R3, R1);
    w.a.store(Size::Byte, R9, 1 - length, R3);
}

/// Writes all else of the header, with its sum, and the type of what the link carries now.
fn write_rest(w: &mut ProgramWriter<'_>, length: i16) {
    w.a.store(Size::Half, R9, -length - 2, in_network_order(0x0800));
    w.a.store(Size::Byte, R9, -length, VERSION_AND_LENGTH);
    w.a.store(Size::Half, R9, 6 - length, in_network_order(DONT_FRAGMENT));
    w.a.store(Size::Half, R9, 10 - length, 0);
    for (word, at) in [(0, 12), (TUNNEL_DESTINATION as i16, 16)] {
        w.a.load(Size::Word, R1, R5, 4 * word);
        w.a.store(Size::Word, R9, at - length, R1);
    }
    ipv4::sum_header(w, -length);
    w.a.compute(Xor, R1, 0xffff);
    w.a.store(Size::Half, R9, 10 - length, R1);
}

/// The header of GRE, without options.
fn write_gre(w: &mut ProgramWriter<'_>) {
    let (ipv6, is_done) = (w.a.label(), w.a.label());
    w.load_slot(R1, Slot::Family);
    w.a.jump_if(Equal, R1, 6, ipv6);
    write_gre_of(w, 0x0800);
    w.a.jump(is_done);
    w.a.place(ipv6);
    write_gre_of(w, 0x86dd);
    w.a.place(is_done);
}

fn write_gre_of(w: &mut ProgramWriter<'_>, ether_type: u16) {
    let [high, low] = ether_type.to_be_bytes();
    let word = u32::from_ne_bytes([0, 0, high, low]) as i32;
    w.a.store(Size::Word, R9, -4, word);
    if w.at == ProgramHook::Tc {
        // What a card has summed up has these bytes in it now, too. The sum of IPv4's header is none.
        w.load_slot(R1, Slot::Context);
        w.a.set(R2, word);
        w.a.compute_32(Move, R2, R2);
        w.a.call(CSUM_UPDATE);
    }
}
