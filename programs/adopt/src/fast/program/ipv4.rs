//! IPv4: is it to be forwarded, and by which group?
use super::super::layout::*;
use super::*;
use artery_device::bpf::Operation::*;
use artery_device::bpf::Test::*;

/// Goes to `found` with the group in `R0`; or to the first of `families`, where this begins, or the second
/// with the packet within one of a tunnel.
pub(super) fn write(w: &mut ProgramWriter<'_>, families: [Label; 2]) {
    check_header(w);
    check_source(w);
    write_hash(w);
    check_reverse_path(w);
    if w.has_tunnels() {
        decapsulate::write(w, families);
    }
    if w.has_flows() {
        flow::write_ipv4(w);
    }
    let destination = if w.has_flows() { AddressPlace::Stack } else { AddressPlace::Header(DESTINATION) };
    write_lookup(w, destination, w.found);
}

/// Where the address is that a route is looked up for.
#[derive(Clone, Copy)]
enum AddressPlace {
    Header(i16),
    /// In [`Slot::Destination`].
    Stack,
}

/// Where the addresses of a header are.
const SOURCE: i16 = 12;
const DESTINATION: i16 = 16;

fn check_header(w: &mut ProgramWriter<'_>) {
    let malformed = w.to_kernel(Reason::Malformed);
    w.store_number(Slot::Family, 4);
    w.a.set(R5, R1);
    receive::keep_flags(w);
    let wanted = if w.has_flows() { Flags::IPV4 | Flags::IPV4_ESTABLISHED } else { Flags::IPV4 };
    w.a.compute(And, R1, wanted as i32);
    w.a.jump_if(Equal, R1, 0, w.to_kernel(Reason::Policy));
    let plain = w.a.label();
    w.a.load(Size::Byte, R1, R9, 0);
    w.a.jump_if(Equal, R1, 0x45, plain);
    w.a.jump_if(Below, R1, 0x46, malformed);
    w.a.jump_if(Above, R1, 0x4f, malformed);
    w.a.jump(w.to_kernel(Reason::Options));
    w.a.place(plain);

    w.a.load(Size::Half, R1, R9, 2);
    w.a.swap(R1, 16);
    w.a.jump_if(Below, R1, 20, malformed);
    receive::check_length(w);
    check_sum(w);
    w.a.load(Size::Byte, R1, R9, 8);
    w.a.jump_if(AtMost, R1, 1, w.to_kernel(Reason::Expired));
}

fn check_sum(w: &mut ProgramWriter<'_>) {
    sum_header(w, 0);
    w.a.jump_if(NotEqual, R1, 0xffff, w.to_kernel(Reason::Malformed));
}

/// `R1` = the sum of the header that begins `start` bytes behind `R9`; spoils `R2`. The sum of all 16-bit
/// words is that of all 32-bit words, of 35 bits, folded to 33, 18, 17 and 16.
pub(super) fn sum_header(w: &mut ProgramWriter<'_>, start: i16) {
    w.a.load(Size::Word, R1, R9, start);
    for at in [4, 8, 12, 16] {
        w.a.load(Size::Word, R2, R9, start + at);
        w.a.compute(Add, R1, R2);
    }
    w.a.set(R2, R1);
    w.a.compute(ShiftRight, R2, 32);
    w.a.compute_32(Move, R1, R1);
    w.a.compute(Add, R1, R2);
    for _ in 0..3 {
        w.a.set(R2, R1);
        w.a.compute(ShiftRight, R2, 16);
        w.a.compute(And, R1, 0xffff);
        w.a.compute(Add, R1, R2);
    }
}

fn check_source(w: &mut ProgramWriter<'_>) {
    let source = w.to_kernel(Reason::Source);
    w.a.load(Size::Byte, R1, R9, SOURCE);
    w.a.jump_if(Equal, R1, 0, source);
    w.a.jump_if(Equal, R1, 127, source);
    w.a.jump_if(AtLeast, R1, 224, source);
    w.a.load(Size::Word, R1, R9, SOURCE);
    check_own(w, R1);
}

/// Leaves to the kernel what may come from an address of its own, by the words of the address together;
/// spoils `R2` and `R3`.
pub(super) fn check_own(w: &mut ProgramWriter<'_>, bit: Register) {
    w.a.compute_32(Multiply, bit, MULTIPLIER as i32);
    w.a.compute_32(ShiftRight, bit, 16);
    w.a.set(R2, bit);
    w.a.compute(ShiftRight, R2, 3);
    w.a.value(R3, w.memory.arrays.descriptor("own"), 0);
    w.a.compute(Add, R3, R2);
    w.a.load(Size::Byte, R2, R3, 0);
    w.a.compute(And, bit, 7);
    w.a.compute(ShiftRight, R2, bit);
    w.a.compute(And, R2, 1);
    w.a.jump_if(NotEqual, R2, 0, w.to_kernel(Reason::Source));
}

/// Mixes addresses, and ports where `R5`, the flags, say so.
fn write_hash(w: &mut ProgramWriter<'_>) {
    w.a.set(R4, 0);
    for at in [SOURCE, DESTINATION] {
        w.a.load(Size::Word, R1, R9, at);
        mix_in(w, R1);
    }
    let (done, has_ports) = (w.a.label(), w.a.label());
    w.a.set(R1, R5);
    w.a.compute(And, R1, Flags::IPV4_PORTS as i32);
    w.a.jump_if(Equal, R1, 0, done);
    w.a.load(Size::Byte, R1, R9, 9);
    w.a.jump_if(Equal, R1, 6, has_ports);
    w.a.jump_if(NotEqual, R1, 17, done);
    w.a.place(has_ports);
    w.a.load(Size::Half, R1, R9, 6);
    w.a.compute(And, R1, in_network_order(0x3fff));
    w.a.jump_if(NotEqual, R1, 0, done);
    mix_ports(w, 20, done);
    w.a.place(done);
    w.store_slot(Slot::Hash, R4);
}

/// Mixes in what follows the IP header, if it is there.
pub(super) fn mix_ports(w: &mut ProgramWriter<'_>, header: i32, if_not: Label) {
    w.a.set(R1, R9);
    w.a.compute(Add, R1, header + 4);
    w.a.jump_if(Above, R1, R8, if_not);
    w.a.load(Size::Word, R1, R9, header as i16);
    mix_in(w, R1);
}

/// `R4` = `mix` of `R4` and a word; spoils `R2`.
pub(super) fn mix_in(w: &mut ProgramWriter<'_>, word: Register) {
    w.a.compute_32(Xor, R4, word);
    w.a.compute_32(Multiply, R4, MULTIPLIER as i32);
    w.a.compute_32(Move, R2, R4);
    w.a.compute_32(ShiftRight, R2, 32 - 15);
    w.a.compute_32(ShiftLeft, R4, 15);
    w.a.compute_32(Or, R4, R2);
}

/// Where the flags, in `R5`, say so: leaves to the kernel what does not come in where its source
/// is routed back to.
fn check_reverse_path(w: &mut ProgramWriter<'_>) {
    let (back, done) = (w.a.label(), w.a.label());
    w.a.set(R1, R5);
    w.a.compute(And, R1, Flags::REVERSE_PATH as i32);
    w.a.jump_if(Equal, R1, 0, done);
    w.a.compute(ShiftRight, R5, Flags::INPUT as i32);
    w.a.compute(And, R5, ROUTED as i32);
    w.store_slot(Slot::Input, R5);
    write_lookup(w, AddressPlace::Header(SOURCE), back);
    w.a.place(back);
    w.a.compute(And, R0, MOST_GROUPS as i32 - 1);
    w.a.compute(ShiftLeft, R0, 3);
    w.a.value(R1, w.memory.arrays.descriptor("inputs"), 0);
    w.a.compute(Add, R1, R0);
    w.a.load(Size::Double, R1, R1, 0);
    w.load_slot(R2, Slot::Input);
    w.a.compute(ShiftRight, R1, R2);
    w.a.compute(And, R1, 1);
    w.a.jump_if(Equal, R1, 0, w.to_kernel(Reason::ReversePath));
    w.a.place(done);
}

/// The lookup that `artery_lpm::layout` describes for the fast, narrow layout.
/// Goes to `found` with the group in `R0`.
fn write_lookup(w: &mut ProgramWriter<'_>, address: AddressPlace, found: Label) {
    let fib = w.fibs.ipv4;
    w.a.value(R2, fib.descriptor("default"), 0);
    w.a.load(Size::Double, R2, R2, 0);
    w.store_slot(Slot::Default, R2);
    match address {
        AddressPlace::Header(at) => w.a.load(Size::Word, R1, R9, at),
        AddressPlace::Stack => w.a.load(Size::Word, R1, R10, Slot::Destination as i16),
    }
    w.a.swap(R1, 32);
    w.a.set(R2, R1);
    w.a.compute(ShiftRight, R2, 8);
    w.locate_element(fib, "cells", R2, R3);
    w.a.load(Size::Byte, R2, R2, 0);
    let (further, complete) = (w.a.label(), w.a.label());
    w.a.jump_if(Equal, R2, 255, further);
    w.a.compute(ShiftLeft, R2, 2);
    w.a.value(R3, fib.descriptor("palette"), 0);
    w.a.compute(Add, R3, R2);
    w.a.load(Size::Word, R0, R3, 0);
    w.a.jump(complete);
    w.a.place(further);
    write_list(w);
    w.a.place(complete);
    write_default(w, fib, found);
}

/// Answers a group of 0 with that of the default route, if that has not changed meanwhile.
pub(super) fn write_default(w: &mut ProgramWriter<'_>, fib: &SharedArrays, found: Label) {
    w.a.jump_if(NotEqual, R0, 0, found);
    w.load_slot(R0, Slot::Default);
    w.a.value(R2, fib.descriptor("default"), 0);
    w.a.load(Size::Double, R2, R2, 0);
    w.a.jump_if(NotEqual, R0, R2, w.to_kernel(Reason::Changing));
    w.a.compute_32(Move, R0, R0);
    w.a.jump(found);
}

/// `R0` = the group of the address in `R1`, from the list of its /16.
fn write_list(w: &mut ProgramWriter<'_>) {
    let fib = w.fibs.ipv4;
    w.a.set(R2, R1);
    w.a.compute(ShiftRight, R2, 16);
    w.a.compute(ShiftLeft, R2, 3);
    w.a.value(R3, fib.descriptor("blocks"), 0);
    w.a.compute(Add, R3, R2);
    w.a.load(Size::Double, R4, R3, 0);
    w.a.set(R2, R4);
    w.a.compute(And, R2, 1);
    w.a.jump_if(Equal, R2, 0, w.to_kernel(Reason::Changing));
    w.a.compute(And, R1, 0xffff);
    w.a.set(R5, R4);
    w.a.compute(ShiftRight, R5, 1);
    w.a.compute(And, R5, 31);
    w.a.compute(ShiftRight, R4, 32);
    let (lines, done) = (w.a.label(), w.a.label());
    w.a.jump_if(NotEqual, R5, 31, lines);

    // A group for each address.
    w.a.compute(ShiftLeft, R4, 6);
    w.a.compute(ShiftLeft, R1, 2);
    w.a.compute(Add, R4, R1);
    to_list(w, R4);
    w.a.load(Size::Word, R0, R4, 0);
    w.a.jump(done);

    w.a.place(lines);
    find_line(w);
    find_run(w);
    w.a.place(done);
}

/// `place` = where so many bytes into the lists is; spoils `R3`.
fn to_list(w: &mut ProgramWriter<'_>, place: Register) {
    w.a.compute(And, place, w.fibs.list_bytes as i32 - 1);
    w.locate_element(w.fibs.ipv4, "lists", place, R3);
}

/// From `R4`, the first line, to the last of 2^`R5` that does not begin behind the address in `R1`, to which
/// it adds 1. It has no jump that depends on an address: each step would otherwise have two branches, for
/// the verifier and for the processor.
fn find_line(w: &mut ProgramWriter<'_>) {
    w.a.compute(Add, R1, 1);
    w.halve(R5, |w, step| {
        w.a.set(R2, R4);
        w.a.compute(Add, R2, 1 << step);
        w.a.compute(ShiftLeft, R2, 6);
        to_list(w, R2);
        w.a.load(Size::Half, R2, R2, 0);
        // The sign is 1 unless the line begins behind the address.
        w.a.compute(Subtract, R2, R1);
        w.a.compute(ShiftRight, R2, 63);
        w.a.compute(ShiftLeft, R2, step);
        w.a.compute(Add, R4, R2);
    });
}

/// `R0` = the group of the last of a line's ten runs that does not begin behind the address, which is one
/// less than `R1`.
fn find_run(w: &mut ProgramWriter<'_>) {
    const RUNS: i16 = 10;
    const GROUPS: i16 = 24;
    w.a.compute(ShiftLeft, R4, 6);
    to_list(w, R4);
    w.a.set(R0, 0);
    for run in 1..RUNS {
        w.a.load(Size::Half, R2, R4, 2 * run);
        w.a.compute(Subtract, R2, R1);
        w.a.compute(ShiftRight, R2, 63);
        w.a.compute(Add, R0, R2);
    }
    w.a.compute(ShiftLeft, R0, 2);
    w.a.compute(Add, R4, R0);
    w.a.load(Size::Word, R0, R4, GROUPS);
}
