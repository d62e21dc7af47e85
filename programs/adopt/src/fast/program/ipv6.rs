//! IPv6: is it to be forwarded, and by which group?
use super::super::layout::*;
use super::ipv4::{check_own, mix_in, mix_ports, write_default};
use super::*;
use artery_device::bpf::Operation::*;
use artery_device::bpf::Test::*;
use artery_lpm::Fib6;

/// Goes to `found` with the group in `R0`.
pub(super) fn write(w: &mut ProgramWriter<'_>) {
    check_header(w);
    check_source(w);
    write_hash(w);
    match w.has_flows() {
        true => flow::write_ipv6(w),
        false => load_destination(w),
    }
    write_lookup(w);
}

fn check_header(w: &mut ProgramWriter<'_>) {
    let malformed = w.to_kernel(Reason::Malformed);
    w.store_number(Slot::Family, 6);
    w.a.set(R5, R1);
    receive::keep_flags(w);
    let wanted = if w.has_flows() { Flags::IPV6 | Flags::IPV6_ESTABLISHED } else { Flags::IPV6 };
    w.a.compute(And, R1, wanted as i32);
    w.a.jump_if(Equal, R1, 0, w.to_kernel(Reason::Policy));
    w.a.set(R1, R9);
    w.a.compute(Add, R1, 40);
    w.a.jump_if(Above, R1, R8, w.cut_short);
    w.a.load(Size::Byte, R1, R9, 0);
    w.a.compute(ShiftRight, R1, 4);
    w.a.jump_if(NotEqual, R1, 6, malformed);
    w.a.load(Size::Half, R1, R9, 4);
    w.a.swap(R1, 16);
    w.a.compute(Add, R1, 40);
    receive::check_length(w);
    w.a.load(Size::Byte, R1, R9, 6);
    w.a.jump_if(Equal, R1, 0, w.to_kernel(Reason::Options));
    w.a.load(Size::Byte, R1, R9, 7);
    w.a.jump_if(AtMost, R1, 1, w.to_kernel(Reason::Expired));
}

fn check_source(w: &mut ProgramWriter<'_>) {
    let source = w.to_kernel(Reason::Source);
    w.a.load(Size::Half, R1, R9, 8);
    w.a.swap(R1, 16);
    w.a.jump_if(Equal, R1, 0, source);
    w.a.jump_if(AtLeast, R1, 0xff00, source);
    w.a.compute(And, R1, 0xffc0);
    w.a.jump_if(Equal, R1, 0xfe80, source);
    w.a.load(Size::Word, R1, R9, 8);
    for at in [12, 16, 20] {
        w.a.set(R2, R1);
        w.a.compute_32(ShiftRight, R2, 15);
        w.a.compute_32(Xor, R1, R2);
        w.a.compute_32(Multiply, R1, MULTIPLIER as i32);
        w.a.load(Size::Word, R2, R9, at);
        w.a.compute(Xor, R1, R2);
    }
    check_own(w, R1);
}

fn write_hash(w: &mut ProgramWriter<'_>) {
    w.a.set(R4, 0);
    for word in 2..10 {
        w.a.load(Size::Word, R1, R9, 4 * word);
        mix_in(w, R1);
    }
    let (done, has_ports) = (w.a.label(), w.a.label());
    w.a.compute(And, R5, Flags::IPV6_PORTS as i32);
    w.a.jump_if(Equal, R5, 0, done);
    w.a.load(Size::Byte, R1, R9, 6);
    w.a.jump_if(Equal, R1, 6, has_ports);
    w.a.jump_if(NotEqual, R1, 17, done);
    w.a.place(has_ports);
    mix_ports(w, 40, done);
    w.a.place(done);
    w.store_slot(Slot::Hash, R4);
}

/// `R2` and `R3` = the halves of the destination, as they are on the wire.
pub(super) fn load_destination(w: &mut ProgramWriter<'_>) {
    w.a.load(Size::Double, R2, R9, 24);
    w.a.load(Size::Double, R3, R9, 32);
}

/// The lookup that `artery_lpm::layout` describes for IPv6, by the address in `R2` and `R3`: the word in
/// `R1`, and the rest of the address where it was.
fn write_lookup(w: &mut ProgramWriter<'_>) {
    let fib = w.fibs.ipv6;
    w.a.value(R4, fib.descriptor("default"), 0);
    w.a.load(Size::Double, R4, R4, 0);
    w.store_slot(Slot::Default, R4);
    w.a.swap(R2, 64);
    w.a.swap(R3, 64);
    w.a.set(R4, R2);
    w.a.compute(ShiftRight, R4, 48);
    w.a.compute(ShiftLeft, R4, 2);
    load_word(w);
    skip_16_bits(w);
    let (leaf, complete) = (w.a.label(), w.a.label());
    // The loop is unrolled: with a loop the verifier compares states too seldom, and follows a
    // hundred times as many.
    for _ in 0..Fib6::MAX_LOADS {
        let next = w.a.label();
        w.a.set(R4, R1);
        w.a.compute(ShiftRight, R4, 31);
        w.a.jump_if(Equal, R4, 0, leaf);
        write_step(w, next, complete);
        w.a.place(next);
    }
    w.a.set(R4, R1);
    w.a.compute(ShiftRight, R4, 31);
    w.a.jump_if(NotEqual, R4, 0, w.to_kernel(Reason::Changing));
    w.a.place(leaf);
    w.a.set(R0, R1);
    w.a.place(complete);
    write_default(w, fib, w.found);
}

/// Takes the next word from the node that the word in `R1` leads to and goes on at `next`, or is `complete`
/// with a group in `R0`.
fn write_step(w: &mut ProgramWriter<'_>, next: Label, complete: Label) {
    let list = w.a.label();
    // The place in bytes, and the class.
    w.a.set(R4, R1);
    w.a.compute(And, R4, 0xff_ffff);
    w.a.compute(ShiftLeft, R4, 4);
    w.a.set(R5, R1);
    w.a.compute(ShiftRight, R5, 24);
    w.a.set(R0, R5);
    w.a.compute(And, R5, 15);
    w.a.compute(And, R0, 1 << 6);
    w.a.jump_if(NotEqual, R0, 0, list);

    // An array: the next bits of the address choose a word.
    w.a.set(R0, R2);
    w.a.set(R1, 64);
    w.a.compute(Subtract, R1, R5);
    w.a.compute(ShiftRight, R0, R1);
    w.a.compute(ShiftLeft, R0, 2);
    w.a.compute(Add, R4, R0);
    // In two steps, for no shift is by 64 bits.
    w.a.set(R0, R3);
    w.a.compute(ShiftRight, R0, 1);
    w.a.compute(Subtract, R1, 1);
    w.a.compute(ShiftRight, R0, R1);
    w.a.compute(ShiftLeft, R2, R5);
    w.a.compute(Or, R2, R0);
    w.a.compute(ShiftLeft, R3, R5);
    load_word(w);
    w.a.jump(next);

    w.a.place(list);
    write_step_of_list(w, next, complete);
}

/// A list at the bytes in `R4`, of the class in `R5`: the first key that is not less than the next 16 bits.
fn write_step_of_list(w: &mut ProgramWriter<'_>, next: Label, complete: Label) {
    w.store_slot(Slot::List, R1);
    find_key(w);
    // Behind the keys: 2 bytes for each of 2^class, and the same again where the values are half words.
    w.a.set(R1, 2);
    w.a.compute(ShiftLeft, R1, R5);
    w.a.compute(Add, R4, R1);
    let wide = w.a.label();
    w.load_slot(R1, Slot::List);
    w.a.compute(And, R1, 1 << 29);
    w.a.jump_if(NotEqual, R1, 0, wide);
    w.a.compute(ShiftLeft, R0, 1);
    w.a.compute(Add, R4, R0);
    to_words(w);
    w.a.load(Size::Half, R0, R4, 0);
    w.a.jump(complete);

    w.a.place(wide);
    w.a.compute(ShiftLeft, R0, 2);
    w.a.compute(Add, R4, R0);
    load_word(w);
    skip_16_bits(w);
    w.a.jump(next);
}

/// `R0` = the number of the first key that is not less than the first 16 bits of `R2`. Spoils `R1` and `R6`.
fn find_key(w: &mut ProgramWriter<'_>) {
    w.a.set(R0, 0);
    w.halve(R5, |w, step| {
        // The last key of those that would be skipped.
        w.a.set(R1, R0);
        w.a.compute(Add, R1, (1 << step) - 1);
        w.a.compute(ShiftLeft, R1, 1);
        w.a.compute(Add, R1, R4);
        w.a.compute(And, R1, w.fibs.fib6_bytes as i32 - 1);
        w.locate_element(w.fibs.ipv6, "fib6-words", R1, R6);
        w.a.load(Size::Half, R1, R1, 0);
        // The sign is 1 if it is less than what is looked for.
        w.a.set(R6, R2);
        w.a.compute(ShiftRight, R6, 48);
        w.a.compute(Subtract, R1, R6);
        w.a.compute(ShiftRight, R1, 63);
        w.a.compute(ShiftLeft, R1, step);
        w.a.compute(Add, R0, R1);
    });
}

/// `R4` = where so many bytes into the words is; spoils `R1`.
fn to_words(w: &mut ProgramWriter<'_>) {
    w.a.compute(And, R4, w.fibs.fib6_bytes as i32 - 1);
    w.locate_element(w.fibs.ipv6, "fib6-words", R4, R1);
}

/// `R1` = the word that is `R4` bytes into the words.
fn load_word(w: &mut ProgramWriter<'_>) {
    to_words(w);
    w.a.load(Size::Word, R1, R4, 0);
}

/// The rest of the address, without its first 16 bits.
fn skip_16_bits(w: &mut ProgramWriter<'_>) {
    w.a.set(R0, R3);
    w.a.compute(ShiftRight, R0, 48);
    w.a.compute(ShiftLeft, R2, 16);
    w.a.compute(Or, R2, R0);
    w.a.compute(ShiftLeft, R3, 16);
}
