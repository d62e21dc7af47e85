//! Packets of established connections, where a family is forwarded for these alone.
//!
//! Only programs that were built with a table of flows have this stage. It leaves on the stack what the
//! packet leaves with; nothing is replaced where all packets of a family are forwarded. What is on the stack
//! behind it has the same kind of number on all paths of a family, so that the verifier follows the rest
//! once.
use super::super::candidates::{CANDIDATES4, CANDIDATES6, CandidateLayout};
use super::super::flows::*;
use super::super::layout::*;
use super::ipv4::mix_in;
use super::*;
use artery_device::bpf::Operation::*;
use artery_device::bpf::Test::*;

const TICKS: i32 = 118;
const TCP: i32 = 6;
const UDP: i32 = 17;

/// Where of a family's header this stage finds what.
struct Headers {
    layout: FlowLayout,
    candidates: CandidateLayout,
    /// The flag by which all packets are forwarded.
    all: u32,
    length: i32,
    protocol: i16,
    addresses: i16,
    /// The protocol of echoes, and their types.
    echo: (i32, [i32; 2]),
    /// Slots that get any number where nothing is translated: the verifier demands that they are written.
    unused: &'static [Slot],
}

const IPV4: Headers = Headers {
    layout: FLOWS4,
    candidates: CANDIDATES4,
    all: Flags::IPV4,
    length: 20,
    protocol: 9,
    addresses: 12,
    echo: (1, [8, 0]),
    unused: &[Slot::NewSource, Slot::NewDestination, Slot::NewPorts],
};
const IPV6: Headers = Headers {
    layout: FLOWS6,
    candidates: CANDIDATES6,
    all: Flags::IPV6,
    length: 40,
    protocol: 6,
    addresses: 8,
    echo: (58, [128, 129]),
    unused: &[],
};
/// Where halves of IPv6's new addresses are, and its ports with the word behind them. IPv4 leaves numbers in
/// all of these slots, too: to the verifier any packet may come to what reads them.
const NEW_SOURCE6: [Slot; 2] = [Slot::NewSource, Slot::NewDestination];
const NEW_DESTINATION6: [Slot; 2] = [Slot::Destination, Slot::Flags];

/// For IPv4: goes on behind it with the destination that routes are looked up by in [`Slot::Destination`].
pub(super) fn write_ipv4(w: &mut ProgramWriter<'_>) {
    let is_done = w.a.label();
    w.a.load(Size::Word, R1, R9, 16);
    w.store_slot(Slot::Destination, R1);
    begin(w, &IPV4, is_done);
    // A fragment has no ports, or lacks the rest of what they are checked with.
    w.a.load(Size::Half, R1, R9, 6);
    w.a.compute(And, R1, in_network_order(0x3fff));
    w.a.jump_if(NotEqual, R1, 0, w.to_kernel(Reason::NotEstablished));
    find_flow(w, &IPV4);
    for (word, slot) in [
        (FLOWS4.new_source, Slot::NewSource),
        (FLOWS4.new_destination, Slot::NewDestination),
        (FLOWS4.new_ports, Slot::NewPorts),
    ] {
        w.a.load(Size::Word, R1, R6, 4 * word as i16);
        w.store_slot(slot, R1);
    }
    check_flow(w, &IPV4);
    w.load_slot(R1, Slot::Properties);
    w.a.compute(ShiftRight, R1, TRANSLATED.ilog2() as i32);
    w.a.jump_if(Equal, R1, 0, is_done);
    w.load_slot(R1, Slot::NewDestination);
    w.store_slot(Slot::Destination, R1);
    w.a.place(is_done);
}

/// For IPv6: leaves the destination that routes are looked up by in `R2` and `R3`, as it is on the wire.
pub(super) fn write_ipv6(w: &mut ProgramWriter<'_>) {
    let (is_same, is_done) = (w.a.label(), w.a.label());
    begin(w, &IPV6, is_same);
    find_flow(w, &IPV6);
    check_flow(w, &IPV6);
    w.load_slot(R1, Slot::Properties);
    w.a.compute(And, R1, TRANSLATED_V6 as i32);
    w.a.jump_if(Equal, R1, 0, is_same);
    let record = |word: usize| [4 * word as i16, 4 * word as i16 + 8];
    for (at, slot) in record(FLOWS6.new_source).into_iter().zip(NEW_SOURCE6) {
        w.a.load(Size::Double, R2, R6, at);
        w.store_slot(slot, R2);
    }
    w.a.load(Size::Double, R2, R6, 4 * FLOWS6.new_ports as i16);
    w.store_slot(Slot::NewPorts, R2);
    for ((at, slot), half) in record(FLOWS6.new_destination).into_iter().zip(NEW_DESTINATION6).zip([R2, R3]) {
        w.a.load(Size::Double, half, R6, at);
        w.store_slot(slot, half);
    }
    w.a.jump(is_done);
    w.a.place(is_same);
    ipv6::load_destination(w);
    for slot in new_addresses6().chain([Slot::NewPorts]) {
        w.store_slot(slot, R2);
    }
    w.a.place(is_done);
}

/// The slots of what a packet of IPv6 leaves with, in the order of its header: two halves of the source, two
/// of the destination.
pub(super) fn new_addresses6() -> impl Iterator<Item = Slot> {
    NEW_SOURCE6.into_iter().chain(NEW_DESTINATION6)
}

// No flag of a port, of which the number of its FIB is the highest, is a flag of flows.
const _: () = assert!(MOST_FIBS << Flags::FIB <= TRANSLATED_V6);

/// Goes to `is_done` where all packets of the family are forwarded.
fn begin(w: &mut ProgramWriter<'_>, headers: &Headers, is_done: Label) {
    w.load_slot(R1, Slot::Flags);
    for slot in headers.unused {
        w.store_slot(*slot, R1);
    }
    // None of these is a flag of the port: 0, but to the verifier a number like that of a flow.
    w.a.set(R2, R1);
    w.a.compute_32(And, R2, (ESTABLISHED | TRANSLATED | TRANSLATED_V6) as i32);
    w.store_slot(Slot::Properties, R2);
    w.a.compute(And, R1, headers.all as i32);
    w.a.jump_if(NotEqual, R1, 0, is_done);
}

/// `R6` = the record of the packet's flow, or the packet goes to the kernel.
fn find_flow(w: &mut ProgramWriter<'_>, headers: &Headers) {
    let layout = headers.layout;
    if receive::sees_buffers(w) {
        w.load_slot(R1, Slot::Length);
        w.a.jump_if(AtLeast, R1, MULTI_BUFFER as i32, w.to_kernel(Reason::MultiBuffer));
    }
    build_key(w, headers);
    hash_key(w, headers);
    let (hit, miss, addresses) = (w.a.label(), w.a.label(), 2 * layout.address as i16);
    find_tags(w, headers.candidates, miss);
    w.locate_element(&w.memory.arrays, layout.array, R4, R1);
    for way in 0..WAYS {
        let next = w.a.label();
        w.a.set(R1, R5);
        w.a.compute(ShiftRight, R1, 4 * way as i32);
        w.a.compute(And, R1, 0xf);
        w.a.jump_if(NotEqual, R1, 0, next);
        let record = (4 * layout.words * way) as i16;
        for word in (0..addresses).step_by(2) {
            w.a.load(Size::Double, R2, R9, headers.addresses + 4 * word);
            w.a.load(Size::Double, R3, R4, record + 4 * word);
            w.a.jump_if(NotEqual, R2, R3, next);
        }
        w.load_slot(R2, Slot::FlowKey);
        w.a.load(Size::Double, R3, R4, record + 4 * layout.ports as i16);
        w.a.jump_if(NotEqual, R2, R3, next);
        // A number that the verifier doesn't know, so that it follows what comes then once, not for each.
        w.a.load(Size::Word, R0, R4, record + 4 * layout.offset as i16);
        w.a.jump(hit);
        w.a.place(next);
    }
    w.a.place(miss);
    candidate::write(w, headers.candidates, headers.addresses);
    w.a.place(hit);
    w.a.compute(And, R0, (4 * layout.words * (WAYS - 1)) as i32);
    w.a.set(R6, R4);
    w.a.compute(Add, R6, R0);
}

/// `R6` = the record of candidates of the bucket that is at `R4`, in bytes of the table's array; `R5` = four
/// bits for each flow of the bucket, 0 where its tag is that of the packet's flow in `R0`. Goes to `miss`
/// where there is no such flow.
fn find_tags(w: &mut ProgramWriter<'_>, candidates: CandidateLayout, miss: Label) {
    w.a.set(R6, R4);
    let bytes_of_bucket = candidates.flows.bucket_words() / candidates.words;
    w.a.compute(ShiftRight, R6, bytes_of_bucket.ilog2() as i32);
    w.locate_element(&w.memory.arrays, candidates.array, R6, R1);
    w.a.load(Size::Word, R5, R6, 4 * candidates.tags as i16);
    w.a.compute(Xor, R5, R0);
    // Whether one of the eight is 0: a subtraction sets its highest bit, which was not set before.
    w.a.set(R1, R5);
    w.a.compute_32(Subtract, R1, ALL_TAGS as i32);
    w.a.set(R2, R5);
    w.a.compute_32(Xor, R2, -1);
    w.a.compute_32(And, R1, R2);
    w.a.compute_32(And, R1, (TAGGED * ALL_TAGS) as i32);
    w.a.jump_if(Equal, R1, 0, miss);
}

/// Puts ports and protocol together as records have them.
fn build_key(w: &mut ProgramWriter<'_>, headers: &Headers) {
    let unknown = w.to_kernel(Reason::NotEstablished);
    let (has_ports, is_built, is_echo) = (w.a.label(), w.a.label(), w.a.label());
    let transport = headers.length as i16;
    let (echo, types) = headers.echo;
    w.a.load(Size::Byte, R1, R9, headers.protocol);
    w.a.set(R2, R1);
    w.a.compute(Or, R2, IN_USE as i32);
    w.a.store(Size::Word, R10, Slot::FlowKey as i16 + 4, R2);
    w.a.set(R2, R9);
    w.a.compute(Add, R2, headers.length + 8);
    w.a.jump_if(Above, R2, R8, unknown);
    w.a.jump_if(Equal, R1, TCP, has_ports);
    w.a.jump_if(Equal, R1, UDP, has_ports);
    w.a.jump_if(NotEqual, R1, echo, unknown);
    w.a.load(Size::Byte, R1, R9, transport);
    w.a.jump_if(Equal, R1, types[0], is_echo);
    w.a.jump_if(NotEqual, R1, types[1], unknown);
    w.a.place(is_echo);
    w.a.load(Size::Half, R1, R9, transport + 4);
    w.a.store(Size::Half, R10, Slot::FlowKey as i16, R1);
    w.a.load(Size::Half, R1, R9, transport);
    w.a.store(Size::Half, R10, Slot::FlowKey as i16 + 2, R1);
    w.a.jump(is_built);
    w.a.place(has_ports);
    w.a.load(Size::Word, R1, R9, transport);
    w.a.store(Size::Word, R10, Slot::FlowKey as i16, R1);
    w.a.place(is_built);
}

/// `R4` = where the flow's bucket is in the array, in bytes; `R0` = its tag for all records.
fn hash_key(w: &mut ProgramWriter<'_>, headers: &Headers) {
    let layout = headers.layout;
    let seed = w.memory.flows.as_ref().map_or(0, |flows| flows.seed);
    w.a.compute_32(Move, R4, seed as i32);
    for word in 0..2 * layout.address as i16 {
        w.a.load(Size::Word, R1, R9, headers.addresses + 4 * word);
        mix_in(w, R1);
    }
    w.a.load(Size::Word, R1, R10, Slot::FlowKey as i16);
    mix_in(w, R1);
    w.a.compute_32(Multiply, R4, MULTIPLIER as i32);
    w.a.set(R0, R4);
    w.a.compute(ShiftRight, R0, layout.tag_shift() as i32);
    w.a.compute(And, R0, TAGGED as i32 - 1);
    w.a.compute(Or, R0, TAGGED as i32);
    w.a.compute_32(Multiply, R0, ALL_TAGS as i32);
    w.a.compute_32(ShiftRight, R4, 32 - layout.bucket_bits as i32);
    w.a.compute(ShiftLeft, R4, (4 * layout.bucket_words()).ilog2() as i32);
}

/// Leaves to the kernel what arrives at another port than the flow's, what closes the connection of the
/// record in `R6`, what is not as connection tracking demands, and a packet from time to time.
fn check_flow(w: &mut ProgramWriter<'_>, headers: &Headers) {
    let unknown = w.to_kernel(Reason::NotEstablished);
    let layout = headers.layout;
    let (is_right, is_tcp, closing, kept) = (w.a.label(), w.a.label(), w.a.label(), w.a.label());
    let transport = headers.length as i16;
    w.a.load(Size::Word, R1, R6, 4 * layout.properties as i16);
    w.store_slot(Slot::Properties, R1);
    w.a.set(R2, R1);
    w.a.compute(And, R2, (KEPT_BY_RULE | KEPT_BY_WINDOW) as i32);
    w.a.jump_if(NotEqual, R2, 0, kept);
    let is_any = w.a.label();
    w.a.compute(ShiftRight, R1, ENTRY as i32);
    w.a.compute(And, R1, 0xff);
    w.a.jump_if(Equal, R1, 0, is_any);
    w.load_slot(R2, Slot::Port);
    w.a.compute(Add, R2, 1);
    w.a.jump_if(NotEqual, R1, R2, w.to_kernel(Reason::OtherPort));
    w.a.place(is_any);
    w.a.load(Size::Word, R1, R6, 4 * layout.closing as i16);
    w.a.jump_if(NotEqual, R1, 0, w.to_kernel(Reason::Closing));
    // What follows the IP header, in bytes.
    w.load_slot(R3, Slot::Length);
    w.a.compute(Subtract, R3, headers.length);
    w.a.load(Size::Byte, R1, R9, headers.protocol);
    w.a.jump_if(Equal, R1, TCP, is_tcp);
    w.a.jump_if(NotEqual, R1, UDP, is_right);
    w.a.load(Size::Half, R2, R9, transport + 4);
    w.a.swap(R2, 16);
    w.a.jump_if(Below, R2, 8, unknown);
    w.a.jump_if(AtMost, R2, R3, is_right);
    w.a.jump(unknown);

    w.a.place(is_tcp);
    w.a.set(R2, R9);
    w.a.compute(Add, R2, headers.length + 20);
    w.a.jump_if(Above, R2, R8, unknown);
    w.a.load(Size::Byte, R2, R9, transport + 12);
    w.a.compute(ShiftRight, R2, 4);
    w.a.compute(ShiftLeft, R2, 2);
    w.a.jump_if(Below, R2, 20, unknown);
    w.a.jump_if(Above, R2, R3, unknown);
    // ACK alone of SYN, FIN, RST and ACK.
    w.a.load(Size::Byte, R2, R9, transport + 13);
    w.a.compute(And, R2, 0x17);
    w.a.jump_if(NotEqual, R2, 0x10, closing);
    w.a.place(is_right);
    // An echo has eight bytes, too, which padding may have pretended.
    w.a.jump_if(Below, R3, 8, unknown);

    write_renewal(w, headers, (closing, kept));
}

/// Leaves a packet of the record in `R6` to the kernel from time to time, and those that jump to labels.
fn write_renewal(w: &mut ProgramWriter<'_>, headers: &Headers, (closing, kept): (Label, Label)) {
    let layout = headers.layout;
    let (each, is_done) = (w.a.label(), w.a.label());
    w.a.call(TICKS);
    w.a.load(Size::Double, R1, R6, 4 * layout.stamp as i16);
    w.a.load(Size::Word, R2, R6, 4 * layout.interval as i16);
    w.a.set(R3, R0);
    w.a.compute(Subtract, R3, R1);
    w.a.load(Size::Byte, R4, R9, headers.protocol);
    w.a.jump_if(Equal, R4, TCP, each);
    w.a.jump_if(Equal, R2, 0, each);
    w.a.jump_if(Below, R3, R2, is_done);
    w.a.store(Size::Double, R6, 4 * layout.stamp as i16, R0);
    w.a.jump(w.to_kernel(Reason::Renewal));

    w.a.place(closing);
    w.a.store(Size::Word, R6, 4 * layout.closing as i16, 1);
    candidate::write_event(w, headers.candidates);
    w.a.jump(w.to_kernel(Reason::Closing));

    w.a.place(kept);
    w.a.jump_if(Equal, R2, KEPT_BY_RULE as i32, w.to_kernel(Reason::Rule));
    w.a.jump(w.to_kernel(Reason::Window));

    // Each packet of TCP is noted. The kernel's entry may have expired where none came for long.
    w.a.place(each);
    w.a.jump_if(Equal, R3, 0, is_done);
    w.a.store(Size::Double, R6, 4 * layout.stamp as i16, R0);
    w.a.jump_if(Equal, R2, 0, is_done);
    w.a.jump_if(AtLeast, R3, R2, w.to_kernel(Reason::Renewal));
    w.a.place(is_done);
}

/// Leaves to the kernel what would leave by another port than the flow's; `R2` is the port, and stays.
pub(super) fn check_exit(w: &mut ProgramWriter<'_>) {
    let is_any = w.a.label();
    w.load_slot(R3, Slot::Properties);
    w.a.compute(ShiftRight, R3, EXIT as i32);
    w.a.compute(And, R3, 0xff);
    w.a.jump_if(Equal, R3, 0, is_any);
    w.a.set(R4, R2);
    w.a.compute(And, R4, MOST_PORTS as i32 - 1);
    w.a.compute(Add, R4, 1);
    w.a.jump_if(NotEqual, R3, R4, w.to_kernel(Reason::OtherPort));
    w.a.place(is_any);
}
