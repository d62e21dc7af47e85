//! The decision as a program of the kernel's BPF machine, one for each port.
//!
//! Through all of it `R7` is where the frame begins, `R8` where it ends, and `R9` where its IP header begins;
//! once the next hop is known `R6` is that. What else must outlive a stage is on the stack. Places in arrays
//! are cut to the arrays' sizes, which are powers of two, so that the verifier sees that they stay inside.
mod bridge;
mod candidate;
mod copy;
mod count;
mod decapsulate;
mod flow;
mod hop;
mod ipv4;
mod ipv6;
mod pppoe;
mod receive;
mod send;
mod translate;
mod tunnel;

use super::capture::CaptureRings;
use super::layout::Reason;
use super::memory::Memory;
use super::shared_arrays::{PIECE, SharedArrays};
use Register::*;
use artery_device::bpf::Operation::{Add, And};
use artery_device::bpf::Test::{AtLeast, AtMost};
use artery_device::bpf::{Assembler, Instruction, Label, ProgramArray, Register, Size};

/// What a frame's ethertype is in memory, read as a number.
const fn in_network_order(number: u16) -> i32 {
    number.to_be() as i32
}

/// The hook that a program is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ProgramHook {
    /// Before the kernel has made a frame its own (`struct xdp_md`). Frames must be whole: what their sender
    /// left to a card, checksums and the cutting into segments, is lost.
    Xdp,
    /// After the kernel has made a frame its own (`struct __sk_buff`), before any other code sees it: work
    /// that was left to a card still is.
    Tc,
}

impl ProgramHook {
    /// What a program answers for frames that are the kernel's.
    fn pass_code(self) -> i32 {
        match self {
            ProgramHook::Xdp => 2,
            ProgramHook::Tc => -1,
        }
    }
    /// The same for frames that it could not send any more.
    fn drop_code(self) -> i32 {
        match self {
            ProgramHook::Xdp => 0,
            ProgramHook::Tc => 2,
        }
    }
}

/// The FIBs that a program looks into, as their storages name their arrays.
pub(super) struct Fibs<'a> {
    /// Of IPv4, in the narrow form of the fast layout.
    pub(super) ipv4: &'a SharedArrays,
    /// Bytes that its run lists have room for: a power of two.
    pub(super) list_bytes: u32,
    pub(super) ipv6: &'a SharedArrays,
    /// Bytes that its words have room for: a power of two.
    pub(super) fib6_bytes: u32,
}

/// The port that a program is for, and what it does with frames.
#[derive(Clone, Copy, Default)]
pub(super) struct ProgramPort<'a> {
    pub(super) number: u32,
    /// Room for copies of frames, if they are copied.
    pub(super) capture: Option<&'a CaptureRings>,
    /// Room for samples, if frames are sampled.
    pub(super) samples: Option<&'a CaptureRings>,
    /// The index of the interface that frames go to unchanged that would be forwarded.
    pub(super) host_port: Option<u32>,
    /// The number of the bridge that the port is a member of: what arrives is the bridge's.
    pub(super) bridge: Option<u32>,
    /// Where not all that arrives is looked up in the same FIB: VLANs may belong to several VRFs.
    pub(super) others: Option<OtherFibs<'a>>,
}

/// The programs of a port that look into other FIBs.
#[derive(Clone, Copy)]
pub(super) struct OtherFibs<'a> {
    /// The number of the program's own FIB.
    pub(super) own: u32,
    /// By the numbers of their FIBs.
    pub(super) programs: &'a ProgramArray,
}

/// What is kept on the stack, from its end.
#[derive(Clone, Copy)]
#[repr(i16)]
enum Slot {
    /// The port, or that of the VLAN.
    Port = -8,
    /// The bytes of the tag that the frame came with: 0 or 4.
    Tag = -16,
    /// What chooses among hops.
    Hash = -24,
    /// Bytes of the packet, headers included.
    Length = -32,
    /// The word of the default route, as it was before the lookup.
    Default = -40,
    /// 4 for IPv4, 6 for IPv6.
    Family = -48,
    /// The word that leads to a list.
    List = -64,
    /// What the kernel says of the frame.
    Context = -72,
    /// By tc, bytes from where the IP header begins to the end of the frame.
    Rest = -80,
    /// The flags of the port, across a call, until flows are looked up; of IPv6 then the last half of the new
    /// destination.
    Flags = -96,
    /// Where this processor counts its copies, and the copy that is being made.
    Head = -112,
    Copy = -120,
    /// The number of the input that the route back to the source must have.
    Input = -88,
    /// Ports, and the protocol, as records of flows have them.
    FlowKey = -128,
    /// What the record of the flow says, see `flows`; these are there where flows are looked up.
    Properties = -136,
    NewSource = -144,
    NewDestination = -152,
    NewPorts = -160,
    /// Of IPv4 the address that routes are looked up by; of IPv6 the first half of the new destination.
    Destination = -168,
    AddressDifference = -176,
    PortDifference = -184,
    /// By how many bytes the frame is longer than it came, by the header of the tunnel that it leaves by, or
    /// shorter; the record of that tunnel; by tc the segments of the packet as it came. These, and those
    /// below, are there where there are tunnels.
    Tunnel = -192,
    Record = -200,
    Segments = -208,
    /// Whether the packet is within one that arrived by a tunnel, and the bytes of that one's header; until
    /// these are known, what a session is looked up by.
    IsWithin = -216,
    Outer = -224,
}

/// A program in the making.
struct ProgramWriter<'a> {
    a: Assembler,
    memory: &'a Memory,
    fibs: &'a Fibs<'a>,
    at: ProgramHook,
    port: u32,
    capture: Option<&'a CaptureRings>,
    samples: Option<&'a CaptureRings>,
    host_port: Option<u32>,
    bridge: Option<u32>,
    others: Option<OtherFibs<'a>>,
    /// Where frames go to the kernel, by reason.
    to_kernel: Vec<Label>,
    /// Where a packet's group, in `R0`, is known.
    found: Label,
    /// Where frames go whose headers are not all there.
    cut_short: Label,
    /// Where packets go that are longer than the MTU of the hop, or in a multi-buffer frame: `R1` is the
    /// length, `R2` the MTU.
    too_long: Label,
    /// Where a frame that is forwarded has been counted.
    counted: Label,
    /// Where frames go that could not be sent, and are no more what they were.
    lost: Label,
}

impl ProgramWriter<'_> {
    fn to_kernel(&self, reason: Reason) -> Label {
        self.to_kernel[reason as usize]
    }
    fn store_slot(&mut self, slot: Slot, register: Register) {
        self.a.store(Size::Double, R10, slot as i16, register);
    }
    fn store_number(&mut self, slot: Slot, number: i32) {
        self.a.store(Size::Double, R10, slot as i16, number);
    }
    /// Makes of a place in an array, in bytes below the array's size, its address. Spoils `spare`.
    fn locate_element(&mut self, arrays: &SharedArrays, name: &str, place: Register, spare: Register) {
        let pieces = arrays.pieces(name);
        let found = self.a.label();
        for (number, piece) in pieces.iter().enumerate() {
            let next = self.a.label();
            let is_last = number + 1 == pieces.len();
            if !is_last {
                self.a.jump_if(AtLeast, place, ((number + 1) * PIECE) as i32, next);
            }
            self.a.value(spare, *piece, 0);
            if !is_last {
                self.a.jump(found);
            }
            self.a.place(next);
        }
        self.a.place(found);
        if pieces.len() > 1 {
            self.a.compute(And, place, PIECE as i32 - 1);
        }
        self.a.compute(Add, place, spare);
    }
    /// The steps of a binary search in a list of 2^`class` entries, of 32 at most: `write` writes the one
    /// that chooses between halves of 2^step entries. What is compared gives 1 by a shift of its sign, no
    /// mask of ones: for `and` with such a mask the verifier follows both cases (Linux 6.18), 32 of each
    /// list. It is asked once where to begin, and not at each step whether to skip it: the verifier would
    /// keep apart what was skipped. Long lists come first for it: what it finds there holds for the others.
    fn halve(&mut self, class: Register, mut write: impl FnMut(&mut Self, i32)) {
        let steps = [4, 3, 2, 1, 0].map(|step| (step, self.a.label()));
        let done = self.a.label();
        self.a.jump_if(AtMost, class, 0, done);
        for (step, label) in steps[1..].iter().rev() {
            self.a.jump_if(AtMost, class, step + 1, *label);
        }
        for (step, label) in steps {
            self.a.place(label);
            write(self, step);
        }
        self.a.place(done);
    }
    /// Whether packets of established connections are forwarded past the user's policy.
    fn has_flows(&self) -> bool {
        self.memory.looks_up_flows && self.host_port.is_none()
    }
    /// Whether packets may leave and arrive by tunnels. A graph knows none.
    fn has_tunnels(&self) -> bool {
        self.memory.has_tunnels && self.host_port.is_none()
    }
    fn load_slot(&mut self, register: Register, slot: Slot) {
        self.a.load(Size::Double, register, R10, slot as i16);
    }
}

/// The program for a hook of a port.
pub(super) fn build_program(
    memory: &Memory,
    fibs: &Fibs<'_>,
    at: ProgramHook,
    port: &ProgramPort<'_>,
) -> Vec<Instruction> {
    let mut a = Assembler::default();
    let to_kernel = Reason::ALL.iter().map(|_| a.label()).collect();
    let found = a.label();
    let [cut_short, too_long, counted, lost] = [a.label(), a.label(), a.label(), a.label()];
    let mut w = ProgramWriter {
        a,
        memory,
        fibs,
        at,
        port: port.number,
        capture: port.capture,
        samples: port.samples,
        host_port: port.host_port,
        bridge: port.bridge,
        others: port.others,
        to_kernel,
        found,
        cut_short,
        too_long,
        counted,
        lost,
    };
    let (ipv4, ipv6) = (w.a.label(), w.a.label());
    receive::write(&mut w, ipv4, ipv6);
    w.a.place(ipv4);
    ipv4::write(&mut w, [ipv4, ipv6]);
    w.a.place(ipv6);
    ipv6::write(&mut w);
    w.a.place(found);
    hop::write(&mut w);
    send::write(&mut w);
    hop::write_too_long(&mut w);
    receive::write_cut_short(&mut w);
    count::write_kernel(&mut w);
    w.a.finish().expect("every label is placed, and the program is short")
}
