//! The packet as it leaves.
use super::super::layout::*;
use super::receive::{buffer, load_frame};
use super::*;
use artery_device::bpf::Operation::*;
use artery_device::bpf::Test::*;

pub(super) const XDP_ADJUST_HEAD: i32 = 44;
const REDIRECT_MAP: i32 = 51;
const REDIRECT: i32 = 23;
const XDP_REDIRECT: i32 = 4;
pub(super) const SKB_VLAN_PUSH: i32 = 18;
pub(super) const SKB_VLAN_POP: i32 = 19;
pub(super) const CSUM_UPDATE: i32 = 40;
const LINK_HEADER: i16 = 12;

/// Sends the packet by the hop in `R6`.
pub(super) fn write(w: &mut ProgramWriter<'_>) {
    check_lease(w);
    if let Some(host_port) = w.host_port {
        return write_to_host_port(w, host_port);
    }
    match w.has_tunnels() {
        true => tunnel::write(w),
        false => copy::write_forwarded(w),
    }
    count::write_forwarded(w);
    w.a.place(w.counted);
    let failed = w.lost;
    if w.has_flows() {
        translate::write_ipv4(w, failed);
    }
    decrement_ttl(w, failed);
    match w.at {
        ProgramHook::Xdp => {
            let redirect = w.a.label();
            write_link_header(w, redirect, failed);
            w.a.place(redirect);
            if w.has_tunnels() {
                tunnel::fill_up(w);
            }
            w.a.map(R1, w.memory.devices.descriptor());
            w.a.load(Size::Word, R2, R6, 4 * HOP_PORTS as i16);
            w.a.compute(And, R2, MOST_PORTS as i32 - 1);
            // What the kernel answers where the device is not there: the frame can't be as it came any more.
            w.a.set(R3, w.at.drop_code());
            w.a.call(REDIRECT_MAP);
            w.a.jump_if(NotEqual, R0, XDP_REDIRECT, failed);
        }
        ProgramHook::Tc => {
            write_addresses(w, 0);
            set_priority(w);
            write_tag(w, failed);
            // The interface that carries the frame: of a bridge a member, of a VLAN what it is on.
            w.a.load(Size::Word, R1, R6, 4 * HOP_PORTS as i16);
            w.a.compute(And, R1, MOST_PORTS as i32 - 1);
            w.a.compute(ShiftLeft, R1, 4);
            w.a.value(R2, w.memory.arrays.descriptor("ports"), 0);
            w.a.compute(Add, R2, R1);
            w.a.load(Size::Word, R1, R2, 4 * PORT_DEVICE as i16);
            w.a.set(R2, 0);
            w.a.call(REDIRECT);
        }
    }
    w.a.exit();
    w.a.place(failed);
    count::write_lost(w);
}

/// Leaves frames to the kernel once the lease has ended.
pub(super) fn check_lease(w: &mut ProgramWriter<'_>) {
    let stale = w.to_kernel(Reason::Stale);
    w.memory.lease.write_check(&mut w.a, stale);
}

/// Sends the frame as it came to an interface of this program's, behind which another program forwards it.
/// That one doesn't handle VLANs.
fn write_to_host_port(w: &mut ProgramWriter<'_>, host_port: u32) {
    w.load_slot(R1, Slot::Tag);
    w.a.jump_if(NotEqual, R1, 0, w.to_kernel(Reason::OtherVlan));
    w.a.load(Size::Word, R1, R6, 4 * HOP_TAG as i16);
    w.a.jump_if(NotEqual, R1, 0, w.to_kernel(Reason::OtherVlan));
    copy::write_forwarded(w);
    count::write_forwarded(w);
    w.a.set(R1, host_port as i32);
    w.a.set(R2, 0);
    w.a.call(REDIRECT);
    w.a.exit();
}

/// Takes the frame's tag away, and puts the hop's on; both are beside the frame. What follows
/// can't reach the frame.
fn write_tag(w: &mut ProgramWriter<'_>, failed: Label) {
    let (untagged, done) = (w.a.label(), w.a.label());
    w.load_slot(R1, Slot::Tag);
    w.a.jump_if(Equal, R1, 0, untagged);
    w.load_slot(R1, Slot::Context);
    w.a.call(SKB_VLAN_POP);
    w.a.jump_if(NotEqual, R0, 0, failed);
    w.a.place(untagged);
    w.a.load(Size::Half, R3, R6, 4 * HOP_TAG as i16 + 2);
    w.a.load(Size::Half, R2, R6, 4 * HOP_TAG as i16);
    w.a.jump_if(Equal, R2, 0, done);
    w.a.swap(R3, 16);
    w.load_slot(R1, Slot::Context);
    w.a.call(SKB_VLAN_PUSH);
    w.a.jump_if(NotEqual, R0, 0, failed);
    w.a.place(done);
}

/// Says what queues go by, as the kernel does when it forwards IPv4.
fn set_priority(w: &mut ProgramWriter<'_>) {
    let done = w.a.label();
    w.load_slot(R1, Slot::Family);
    w.a.jump_if(NotEqual, R1, 4, done);
    w.a.load(Size::Byte, R1, R9, 1);
    // Four bits for each number that two bits of the type of service may be.
    w.a.compute(ShiftRight, R1, 3);
    w.a.compute(And, R1, 3);
    w.a.compute(ShiftLeft, R1, 2);
    w.a.set(R2, PRIORITIES);
    w.a.compute(ShiftRight, R2, R1);
    w.a.compute(And, R2, 15);
    w.load_slot(R1, Slot::Context);
    w.a.store(Size::Word, R1, buffer::PRIORITY, R2);
    w.a.place(done);
}

/// Takes one from the time to live, or the hop limit. What is translated of IPv6 is so on its way here, so
/// that IPv4's is no longer for it.
fn decrement_ttl(w: &mut ProgramWriter<'_>, failed: Label) {
    let (ipv6, done) = (w.a.label(), w.a.label());
    w.load_slot(R1, Slot::Family);
    w.a.jump_if(Equal, R1, 6, ipv6);
    w.a.load(Size::Byte, R1, R9, 8);
    w.a.compute(Subtract, R1, 1);
    w.a.store(Size::Byte, R9, 8, R1);
    // In the network's order one of the upper byte is more by 0x0100; the sum is one's complement's.
    w.a.load(Size::Half, R1, R9, 10);
    w.a.swap(R1, 16);
    w.a.compute(Add, R1, 0x0100);
    let no_carry = w.a.label();
    w.a.jump_if(Below, R1, 0xffff, no_carry);
    w.a.compute(Add, R1, 1);
    w.a.place(no_carry);
    w.a.swap(R1, 16);
    w.a.store(Size::Half, R9, 10, R1);
    w.a.jump(done);
    w.a.place(ipv6);
    if w.has_flows() {
        translate::write_ipv6(w, failed);
    }
    w.a.load(Size::Byte, R1, R9, 7);
    w.a.compute(Subtract, R1, 1);
    w.a.store(Size::Byte, R9, 7, R1);
    if w.at == ProgramHook::Tc {
        // A card may have summed up the packet (CHECKSUM_COMPLETE). With IPv4 the header's own sum makes up
        // for the change. The hop limit is the last byte of a word, of which one is taken. The kernel says if
        // there is no such sum.
        w.load_slot(R1, Slot::Context);
        w.a.set(R2, !u32::from_ne_bytes([0, 0, 0, 1]) as i32);
        w.a.call(CSUM_UPDATE);
    }
    w.a.place(done);
}

/// Puts the hop's link header in the place of the frame's, which may have a tag more or less,
/// and goes to `done`.
fn write_link_header(w: &mut ProgramWriter<'_>, done: Label, failed: Label) {
    let (tagged, untag, same) = (w.a.label(), w.a.label(), w.a.label());
    w.load_slot(R1, Slot::Tag);
    w.a.load(Size::Word, R2, R6, 4 * HOP_TAG as i16);
    w.a.jump_if(NotEqual, R1, 0, tagged);
    w.a.jump_if(Equal, R2, 0, same);

    // A tag comes in between: the frame begins earlier.
    adjust_head(w, -4, failed);
    w.load_slot(R1, Slot::Context);
    load_frame(w, R1);
    w.a.set(R1, R7);
    w.a.compute(Add, R1, 18);
    w.a.jump_if(Above, R1, R8, failed);
    write_vlan_tag(w);
    w.a.jump(same);

    w.a.place(tagged);
    w.a.jump_if(Equal, R2, 0, untag);
    write_vlan_tag(w);
    w.a.place(same);
    write_addresses(w, 0);
    w.a.jump(done);

    // The type that the tag stands before stays where it is.
    w.a.place(untag);
    write_addresses(w, 4);
    adjust_head(w, 4, failed);
    w.a.jump(done);
}

/// Moves the beginning of the frame.
fn adjust_head(w: &mut ProgramWriter<'_>, by: i32, failed: Label) {
    w.load_slot(R1, Slot::Context);
    w.a.set(R2, by);
    w.a.call(XDP_ADJUST_HEAD);
    w.a.jump_if(NotEqual, R0, 0, failed);
}

fn write_vlan_tag(w: &mut ProgramWriter<'_>) {
    w.a.load(Size::Word, R1, R6, 4 * HOP_TAG as i16);
    w.a.store(Size::Word, R7, LINK_HEADER, R1);
}

fn write_addresses(w: &mut ProgramWriter<'_>, at: i16) {
    for word in (0..LINK_HEADER).step_by(4) {
        w.a.load(Size::Word, R1, R6, word);
        w.a.store(Size::Word, R7, at + word, R1);
    }
}
