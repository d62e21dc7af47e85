//! New addresses and ports of a packet, as the kernel's translation (NAT) would write them.
use super::super::flows::*;
use super::super::layout::PPPOE_LENGTH;
use super::receive::load_frame;
use super::send::CSUM_UPDATE;
use super::*;
use artery_device::bpf::Operation::*;
use artery_device::bpf::Test::*;

const L3_CSUM_REPLACE: i32 = 10;
const L4_CSUM_REPLACE: i32 = 11;
/// The difference is of the pseudo header, too (`BPF_F_PSEUDO_HDR`).
const PSEUDO_HEADER: i32 = 0x10;
/// A sum of 0 says that there is none, and none becomes 0 (`BPF_F_MARK_MANGLED_0`).
const ZERO_IS_NONE: i32 = 0x20;
const ETHERNET: i32 = 14;
const TCP: i32 = 6;
const UDP: i32 = 17;

/// Where checksums are: of IPv4's header from its start, others from the start of theirs.
const SUM: i16 = 10;
const TCP_SUM: i16 = 16;
const UDP_SUM: i16 = 6;
const ECHO_SUM: i16 = 2;

/// A family's header.
#[derive(Clone, Copy)]
struct Header {
    length: i16,
    protocol: i16,
    /// IPv6 has no sum of its header. Instead addresses are summed with its echoes.
    is_v6: bool,
}

const IPV4: Header = Header { length: 20, protocol: 9, is_v6: false };
const IPV6: Header = Header { length: 40, protocol: 6, is_v6: true };

/// Replaces what the flow says in a packet of IPv4. Goes to `failed` with one that is no more what it was.
pub(super) fn write_ipv4(w: &mut ProgramWriter<'_>, failed: Label) {
    let is_done = w.a.label();
    w.load_slot(R1, Slot::Properties);
    w.a.compute(ShiftRight, R1, TRANSLATED.ilog2() as i32);
    w.a.jump_if(Equal, R1, 0, is_done);
    check_end(w, IPV4.length + 8, failed);
    replace_addresses(w);
    w.load_slot(R2, Slot::NewPorts);
    replace_ports(w, IPV4);
    replace_sums(w, IPV4, failed);
    w.a.place(is_done);
}

/// The same for IPv6, whose record knows the difference of the sums of both addresses.
pub(super) fn write_ipv6(w: &mut ProgramWriter<'_>, failed: Label) {
    let is_done = w.a.label();
    w.load_slot(R1, Slot::Properties);
    w.a.compute(And, R1, TRANSLATED_V6 as i32);
    w.a.jump_if(Equal, R1, 0, is_done);
    check_end(w, IPV6.length + 8, failed);
    for (at, slot) in (8..).step_by(8).zip(flow::new_addresses6()) {
        w.load_slot(R1, slot);
        w.a.store(Size::Double, R9, at, R1);
    }
    w.a.load(Size::Word, R1, R10, Slot::NewPorts as i16 + 4);
    w.store_slot(Slot::AddressDifference, R1);
    w.a.load(Size::Word, R2, R10, Slot::NewPorts as i16);
    replace_ports(w, IPV6);
    replace_sums(w, IPV6, failed);
    w.a.place(is_done);
}

/// Shows the verifier that the packet has so many bytes.
fn check_end(w: &mut ProgramWriter<'_>, bytes: i16, failed: Label) {
    w.a.set(R1, R9);
    w.a.compute(Add, R1, i32::from(bytes));
    w.a.jump_if(Above, R1, R8, failed);
}

/// Puts new addresses in, and keeps the difference of the sums of both.
fn replace_addresses(w: &mut ProgramWriter<'_>) {
    w.a.set(R5, 0);
    for (at, slot) in [(12, Slot::NewSource), (16, Slot::NewDestination)] {
        w.load_slot(R2, slot);
        w.a.load(Size::Word, R1, R9, at);
        add_difference(w);
        w.a.store(Size::Word, R9, at, R2);
    }
    fold_to_32(w, R5);
    w.store_slot(Slot::AddressDifference, R5);
}

/// Puts the ports in `R2` in, and keeps their difference.
fn replace_ports(w: &mut ProgramWriter<'_>, header: Header) {
    let (has_ports, is_done) = (w.a.label(), w.a.label());
    let (ports, identifier) = (header.length, header.length + 4);
    w.a.set(R5, 0);
    w.a.load(Size::Byte, R1, R9, header.protocol);
    w.a.jump_if(Equal, R1, TCP, has_ports);
    w.a.jump_if(Equal, R1, UDP, has_ports);
    // The identifier of an echo; its type stays.
    w.a.store(Size::Word, R10, Slot::NewPorts as i16, R2);
    w.a.load(Size::Half, R2, R10, Slot::NewPorts as i16);
    w.a.load(Size::Half, R1, R9, identifier);
    add_difference(w);
    w.a.store(Size::Half, R9, identifier, R2);
    w.a.jump(is_done);
    w.a.place(has_ports);
    w.a.load(Size::Word, R1, R9, ports);
    add_difference(w);
    w.a.store(Size::Word, R9, ports, R2);
    w.a.place(is_done);
    fold_to_32(w, R5);
    w.store_slot(Slot::PortDifference, R5);
}

/// `R5` += what `R2` is more than `R1`, as sums of ones' complement go; `R1` is spoiled.
fn add_difference(w: &mut ProgramWriter<'_>) {
    w.a.compute_32(Xor, R1, -1);
    w.a.compute(Add, R5, R1);
    w.a.compute(Add, R5, R2);
}

/// Spoils `R1`.
pub(super) fn fold_to_32(w: &mut ProgramWriter<'_>, sum: Register) {
    for _ in 0..2 {
        w.a.set(R1, sum);
        w.a.compute(ShiftRight, R1, 32);
        w.a.compute_32(Move, sum, sum);
        w.a.compute(Add, sum, R1);
    }
    w.a.compute_32(Move, sum, sum);
}

fn replace_sums(w: &mut ProgramWriter<'_>, header: Header, failed: Label) {
    match w.at {
        ProgramHook::Xdp => write_sums(w, header, failed),
        ProgramHook::Tc => call_for_sums(w, header, failed),
    }
}

/// Of a whole frame: the sums as they must be.
fn write_sums(w: &mut ProgramWriter<'_>, header: Header, failed: Label) {
    let (tcp, udp, is_done) = (w.a.label(), w.a.label(), w.a.label());
    let [tcp_sum, udp_sum, echo_sum] = [TCP_SUM, UDP_SUM, ECHO_SUM].map(|at| header.length + at);
    w.load_slot(R4, Slot::AddressDifference);
    w.load_slot(R5, Slot::PortDifference);
    if !header.is_v6 {
        replace_sum(w, SUM, R4);
    }
    w.a.compute(Add, R4, R5);
    w.a.load(Size::Byte, R1, R9, header.protocol);
    w.a.jump_if(Equal, R1, TCP, tcp);
    w.a.jump_if(Equal, R1, UDP, udp);
    replace_sum(w, echo_sum, if header.is_v6 { R4 } else { R5 });
    w.a.jump(is_done);
    w.a.place(tcp);
    check_end(w, header.length + 20, failed);
    replace_sum(w, tcp_sum, R4);
    w.a.jump(is_done);
    w.a.place(udp);
    w.a.load(Size::Half, R1, R9, udp_sum);
    w.a.jump_if(Equal, R1, 0, is_done);
    replace_sum(w, udp_sum, R4);
    w.a.load(Size::Half, R1, R9, udp_sum);
    w.a.jump_if(NotEqual, R1, 0, is_done);
    w.a.store(Size::Half, R9, udp_sum, 0xffff);
    w.a.place(is_done);
}

/// Adds a difference to a sum (RFC 1624); spoils `R1` and `R2`.
fn replace_sum(w: &mut ProgramWriter<'_>, at: i16, difference: Register) {
    w.a.load(Size::Half, R1, R9, at);
    w.a.compute(Xor, R1, 0xffff);
    w.a.compute(Add, R1, difference);
    for _ in 0..4 {
        w.a.set(R2, R1);
        w.a.compute(ShiftRight, R2, 16);
        w.a.compute(And, R1, 0xffff);
        w.a.compute(Add, R1, R2);
    }
    w.a.compute(Xor, R1, 0xffff);
    w.a.store(Size::Half, R9, at, R1);
}

/// Of a frame whose sums a card may still have to make, or has checked: the kernel knows which.
fn call_for_sums(w: &mut ProgramWriter<'_>, header: Header, failed: Label) {
    let (tcp, udp, is_done) = (w.a.label(), w.a.label(), w.a.label());
    let [tcp_sum, udp_sum, echo_sum] = [TCP_SUM, UDP_SUM, ECHO_SUM].map(|at| header.length + at);
    let (addresses, ports) = (Slot::AddressDifference, Slot::PortDifference);
    w.a.load(Size::Byte, R1, R9, header.protocol);
    w.store_slot(Slot::FlowKey, R1);
    if w.has_tunnels() {
        w.a.set(R1, R9);
        w.a.compute(Subtract, R1, R7);
        w.store_slot(Slot::Record, R1);
    }
    if !header.is_v6 {
        call(w, L3_CSUM_REPLACE, SUM, addresses, 0, failed);
    }
    w.load_slot(R1, Slot::FlowKey);
    w.a.jump_if(Equal, R1, TCP, tcp);
    w.a.jump_if(Equal, R1, UDP, udp);
    if header.is_v6 {
        call(w, L4_CSUM_REPLACE, echo_sum, addresses, PSEUDO_HEADER, failed);
    }
    call(w, L4_CSUM_REPLACE, echo_sum, ports, 0, failed);
    w.a.jump(is_done);
    for (label, at, flags) in [(tcp, tcp_sum, 0), (udp, udp_sum, ZERO_IS_NONE)] {
        w.a.place(label);
        call(w, L4_CSUM_REPLACE, at, addresses, flags | PSEUDO_HEADER, failed);
        call(w, L4_CSUM_REPLACE, at, ports, flags, failed);
        w.a.jump(is_done);
    }
    w.a.place(is_done);
    if header.is_v6 {
        // Where a card has summed up the packet (CHECKSUM_COMPLETE), the kernel's function has taken the
        // difference from that sum, as is right for IPv4, whose own sum changes, too. Here addresses and sum
        // make up for each other. The flag that says so (BPF_F_IPV6) is known since Linux 6.16 alone.
        w.load_slot(R1, Slot::Context);
        w.load_slot(R2, addresses);
        w.a.call(CSUM_UPDATE);
    }
    // The frame may lie elsewhere now.
    w.load_slot(R1, Slot::Context);
    load_frame(w, R1);
    w.a.set(R9, R7);
    w.a.compute(Add, R9, ETHERNET);
    if w.has_tunnels() {
        let is_plain = w.a.label();
        w.load_slot(R1, Slot::Record);
        w.a.jump_if(Equal, R1, ETHERNET, is_plain);
        w.a.compute(Add, R9, PPPOE_LENGTH as i32);
        w.a.place(is_plain);
    }
    w.a.set(R1, R9);
    w.a.compute(Add, R1, i32::from(header.length));
    w.a.jump_if(Above, R1, R8, failed);
}

fn call(w: &mut ProgramWriter<'_>, function: i32, at: i16, difference: Slot, flags: i32, failed: Label) {
    w.load_slot(R1, Slot::Context);
    match w.has_tunnels() {
        // The packet may be in a frame of a session.
        true => {
            w.load_slot(R2, Slot::Record);
            w.a.compute(Add, R2, i32::from(at));
        }
        false => w.a.set(R2, ETHERNET + i32::from(at)),
    }
    w.a.set(R3, 0);
    w.load_slot(R4, difference);
    w.a.set(R5, flags);
    w.a.call(function);
    w.a.jump_if(NotEqual, R0, 0, failed);
}
