//! Programs of the kernel's BPF machine: one makes frames, one forwards them by the kernel's own lookup, and
//! one counts what arrives.

use artery_device::bpf::{
    self, Array, Assembler, Attachment, DeviceMap, Hook, Instruction, Label, Operation::*, Register::*, Size,
    Test::*, WordArray,
};
use artery_storage::{Region, Storage};
use artery_wire::EtherAddr;
use artery_wire::build::{ether, ip4, ip6};
use rustix::fd::OwnedFd;
use std::io;
use std::net::{IpAddr, Ipv6Addr};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};

/// Bytes of a frame: the least of Ethernet without its check sequence.
const FRAME: usize = 60;
/// Frames that the kernel handles at once.
const BATCH: u32 = 64;
/// Ports of frames, and of those that answer.
const FORTH: [u16; 2] = [1024, 53];
const BACK: [u16; 2] = [53, 1024];
/// The type of frames of IPv6, and where the checksum of UDP is in frames of IPv4.
const IPV6: [u8; 2] = [0x86, 0xdd];
const UDP_CHECKSUM: usize = 40;
/// Where the links' headers end.
const IP: i16 = 14;
/// What XDP programs return (`enum xdp_action`).
const DROP: i32 = 1;
const PASS: i32 = 2;
const TCX_DROP: i32 = 2;
/// Functions of the kernel's.
const REDIRECT: i32 = 23;
const REDIRECT_MAP: i32 = 51;
const FIB_LOOKUP: i32 = 69;
/// Interfaces that a forwarder may send by have lower numbers.
const INTERFACES: u32 = 1 << 16;

const fn in_network_order(number: u16) -> i32 {
    number.to_be() as i32
}

/// Memory that a program and this process share.
#[derive(Default)]
struct Shared(Mutex<Option<Array>>);

impl Storage for Shared {
    fn map_region(&self, _: &'static str, bytes: usize) -> io::Result<Region> {
        let array = Array::new(u32::try_from(bytes).map_err(|_| io::ErrorKind::OutOfMemory)?)?;
        let region = Region::map_file(&array, bytes)?;
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = Some(array);
        Ok(region)
    }
}

/// So many words, zero at first, and the array by which a program has them.
pub(crate) fn shared_words(
    name: &'static str,
    count: usize,
) -> io::Result<(artery_storage::Words<AtomicU64>, Array)> {
    let storage = Shared::default();
    let words = artery_storage::Words::new(&storage, name, count)?;
    let array = storage.0.into_inner().unwrap_or_else(PoisonError::into_inner);
    Ok((words, array.expect("the words are in it")))
}

/// Frames of one flow each, to many destinations, one after the other, again and again.
pub(super) struct Frames {
    frame: Vec<u8>,
    is_ipv6: bool,
    entries: Array,
    /// Where in the IP header of IPv4 the address is that differs.
    address: i16,
    /// The number of the next one.
    next: WordArray<1>,
    count: usize,
}

/// Words of a destination: its address, and for IPv4 the checksum of the header behind it.
const ENTRY: usize = 2;
/// Where in the IP header of IPv4 the addresses are.
const SOURCE: i16 = 12;
const DESTINATION: i16 = 16;

impl Frames {
    /// Frames to destinations of one family, a power of two of them.
    pub(super) fn new(to: EtherAddr, source: IpAddr, destinations: &[IpAddr]) -> io::Result<Frames> {
        let frame = |destination: &IpAddr| frame(to, source, *destination, FORTH);
        Frames::of(&destinations.iter().map(frame).collect::<Vec<_>>(), DESTINATION)
    }

    /// Frames of IPv4 that answer those, from many sources, a power of two of them, to one destination.
    pub(super) fn answers(to: EtherAddr, sources: &[IpAddr], destination: IpAddr) -> io::Result<Frames> {
        let frame = |source: &IpAddr| frame(to, *source, destination, BACK);
        Frames::of(&sources.iter().map(frame).collect::<Vec<_>>(), SOURCE)
    }

    fn of(frames: &[Vec<u8>], address: i16) -> io::Result<Frames> {
        let count = frames.len();
        assert!(count.is_power_of_two(), "a program counts them with a mask");
        let (words, entries) = shared_words("destinations", count * ENTRY)?;
        for (number, frame) in frames.iter().enumerate() {
            let entry = entry(frame, address);
            entry.iter().zip(&words[number * ENTRY..]).for_each(|(new, word)| {
                word.store(*new, Ordering::Relaxed);
            });
        }
        Ok(Frames {
            frame: frames[0].clone(),
            is_ipv6: frames[0][12..14] == IPV6,
            entries,
            address,
            next: WordArray::new()?,
            count,
        })
    }

    /// Sends so many by an interface of this thread's namespace, as fast as what follows takes them.
    pub(super) fn send(&self, interface: u32, count: u32) -> io::Result<()> {
        let mut a = self.begin();
        a.set(R1, interface as i32);
        a.set(R2, 0);
        a.call(REDIRECT);
        a.exit();
        let program = load(&a.finish().expect("all labels are placed"))?;
        bpf::run_live(&program, &self.frame, None, count, BATCH)
    }

    /// Nanoseconds that a program takes for one of them, when nothing is sent.
    pub(super) fn cost(&self, forwarder: &[Instruction], repeat: u32) -> io::Result<f64> {
        let with = self.run(forwarder, repeat)?;
        let mut nothing = Assembler::default();
        nothing.set(R0, PASS);
        nothing.exit();
        let without = self.run(&nothing.finish().expect("it has no labels"), repeat)?;
        Ok(f64::from(with) - f64::from(without))
    }

    fn run(&self, forwarder: &[Instruction], repeat: u32) -> io::Result<u32> {
        let mut program = self.begin().finish().expect("all labels are placed");
        program.extend(forwarder);
        Ok(bpf::run(&load(&program)?, &self.frame, None, repeat)?.nanoseconds)
    }

    /// Makes the frame the next one, with what the kernel says of it in `R1` before and after.
    fn begin(&self) -> Assembler {
        let mut a = Assembler::default();
        let (short, done) = (a.label(), a.label());
        a.set(R6, R1);
        load_frame(&mut a, FRAME as i32, short);
        a.value(R2, self.next.descriptor(), 0);
        a.load(Size::Double, R3, R2, 0);
        a.set(R4, R3);
        a.compute(Add, R4, 1);
        a.store(Size::Double, R2, 0, R4);
        a.compute(And, R3, self.count as i32 - 1);
        a.compute(ShiftLeft, R3, (8 * ENTRY).ilog2() as i32);
        a.value(R9, self.entries.descriptor(), 0);
        a.compute(Add, R9, R3);
        for (at, word) in self.frame.chunks_exact(4).enumerate().take(10) {
            let word = i32::from_ne_bytes([word[0], word[1], word[2], word[3]]);
            a.store(Size::Word, R7, 4 * at as i16, word);
        }
        let copies: &[(Size, i16, i16)] = match self.is_ipv6 {
            true => &[(Size::Double, 0, IP + 24), (Size::Double, 8, IP + 32)],
            false => &[(Size::Word, 0, IP + self.address), (Size::Half, 8, IP + 10)],
        };
        for (size, from, to) in copies {
            a.load(*size, R3, R9, *from);
            a.store(*size, R7, *to, R3);
        }
        a.set(R1, R6);
        a.jump(done);
        a.place(short);
        a.set(R0, DROP);
        a.exit();
        a.place(done);
        a
    }
}

/// What of a frame is its own.
fn entry(frame: &[u8], address: i16) -> [u64; ENTRY] {
    let word = |at: usize, bytes: usize| {
        let mut word = [0; 8];
        word[..bytes].copy_from_slice(&frame[at..at + bytes]);
        u64::from_ne_bytes(word)
    };
    match [frame[12], frame[13]] {
        IPV6 => [word(38, 8), word(46, 8)],
        _ => [word((IP + address) as usize, 4), word(24, 2)],
    }
}

fn frame(to: EtherAddr, source: IpAddr, destination: IpAddr, [near, far]: [u16; 2]) -> Vec<u8> {
    let link = ether(to, EtherAddr([2, 0, 0, 0, 1, 2]));
    let mut bytes = match (source, destination) {
        (IpAddr::V4(from), IpAddr::V4(to)) => {
            link.ip4(ip4().src(from).dst(to).ttl(64).udp(near, far).payload([0; 18])).bytes()
        }
        (from, to) => {
            let [from, to] = [from, to].map(in_ipv6);
            link.ip6(ip6().src(from).dst(to).hop_limit(64).raw(59, [0; 6])).bytes()
        }
    };
    bytes.resize(FRAME, 0);
    if source.is_ipv4() && destination.is_ipv4() {
        // A checksum would differ with the addresses, and connection tracking looks at it.
        bytes[UDP_CHECKSUM..UDP_CHECKSUM + 2].fill(0);
    }
    bytes
}

fn in_ipv6(address: IpAddr) -> Ipv6Addr {
    match address {
        IpAddr::V4(address) => address.to_ipv6_mapped(),
        IpAddr::V6(address) => address,
    }
}

fn load(program: &[Instruction]) -> io::Result<OwnedFd> {
    bpf::load(Hook::XDP, program)
}

/// `R7` and `R8` = where the frame of `R6` begins and ends; it has so many bytes at least.
fn load_frame(a: &mut Assembler, bytes: i32, if_not: Label) {
    a.load(Size::Word, R7, R6, 0);
    a.load(Size::Word, R8, R6, 4);
    a.set(R2, R7);
    a.compute(Add, R2, bytes);
    a.jump_if(Above, R2, R8, if_not);
}

/// Drops and counts what arrives at an interface, as long as it lives.
pub(super) struct Sink {
    count: WordArray<1>,
    _link: Attachment,
}

impl Sink {
    /// Where frames have no descriptions of the kernel's yet, or where they have, for an interface
    /// of this thread's namespace.
    pub(super) fn new(interface: u32, is_by_xdp: bool) -> io::Result<Sink> {
        let count = WordArray::new()?;
        let mut a = Assembler::default();
        a.value(R1, count.descriptor(), 0);
        a.load(Size::Double, R2, R1, 0);
        a.compute(Add, R2, 1);
        a.store(Size::Double, R1, 0, R2);
        a.set(R0, if is_by_xdp { DROP } else { TCX_DROP });
        a.exit();
        let hook = if is_by_xdp { Hook::XDP } else { Hook::TcIngress };
        let program = bpf::load(hook, &a.finish().expect("it has no labels"))?;
        Ok(Sink { count, _link: bpf::attach(&program, interface, hook)? })
    }

    pub(super) fn count(&self) -> io::Result<u64> {
        Ok(self.count.read()?[0])
    }
}

/// A program that forwards by the kernel's own lookup, as the kernel's samples show it (xdp_fwd).
pub(super) struct KernelLookup {
    devices: DeviceMap,
}

/// Offsets of `struct bpf_fib_lookup` (linux/bpf.h), which is kept at the end of the stack.
mod question {
    pub(super) const BYTES: i16 = 64;
    const fn at(offset: i16) -> i16 {
        offset - BYTES
    }
    pub(super) const FAMILY: i16 = at(0);
    pub(super) const PROTOCOL: i16 = at(1);
    pub(super) const LENGTH: i16 = at(6);
    pub(super) const INTERFACE: i16 = at(8);
    pub(super) const FLOW: i16 = at(12);
    pub(super) const SOURCE: i16 = at(16);
    pub(super) const DESTINATION: i16 = at(32);
    pub(super) const OWN_MAC: i16 = at(52);
    pub(super) const MAC: i16 = at(58);
}

impl KernelLookup {
    /// For frames that leave by an interface.
    pub(super) fn new(to: u32) -> io::Result<KernelLookup> {
        let devices = DeviceMap::new(INTERFACES)?;
        devices.insert_interface(to, to)?;
        Ok(KernelLookup { devices })
    }

    /// Puts it at an interface of this thread's namespace.
    pub(super) fn attach(&self, interface: u32) -> io::Result<Attachment> {
        bpf::attach(&load(&self.program(interface))?, interface, Hook::XDP)
    }

    /// What it does with frames from an interface.
    pub(super) fn program(&self, interface: u32) -> Vec<Instruction> {
        let mut a = Assembler::default();
        let (pass, ipv6, ask) = (a.label(), a.label(), a.label());
        a.set(R6, R1);
        load_frame(&mut a, i32::from(IP) + 40, pass);
        for at in (0..question::BYTES).step_by(8) {
            a.store(Size::Double, R10, at - question::BYTES, 0);
        }
        a.store(Size::Word, R10, question::INTERFACE, interface as i32);
        a.load(Size::Half, R1, R7, 12);
        a.jump_if(Equal, R1, in_network_order(0x86dd), ipv6);
        a.jump_if(NotEqual, R1, in_network_order(0x0800), pass);
        write_ipv4_lookup(&mut a, pass);
        a.jump(ask);
        a.place(ipv6);
        write_ipv6_lookup(&mut a, pass);
        a.place(ask);
        a.set(R1, R6);
        a.set(R2, R10);
        a.compute(Add, R2, -i32::from(question::BYTES));
        a.set(R3, i32::from(question::BYTES));
        a.set(R4, 0);
        a.call(FIB_LOOKUP);
        a.jump_if(NotEqual, R0, 0, pass);
        age(&mut a);
        for (size, from, to) in [
            (Size::Half, question::MAC, 0),
            (Size::Word, question::MAC + 2, 2),
            (Size::Word, question::OWN_MAC, 6),
            (Size::Half, question::OWN_MAC + 4, 10),
        ] {
            a.load(size, R1, R10, from);
            a.store(size, R7, to, R1);
        }
        a.map(R1, self.devices.descriptor());
        a.load(Size::Word, R2, R10, question::INTERFACE);
        a.set(R3, 0);
        a.call(REDIRECT_MAP);
        a.exit();
        a.place(pass);
        a.set(R0, PASS);
        a.exit();
        a.finish().expect("all labels are placed")
    }
}

/// Copies from the header to the question.
fn copy(a: &mut Assembler, parts: &[(Size, i16, i16)]) {
    for (size, from, to) in parts {
        a.load(*size, R1, R7, IP + from);
        a.store(*size, R10, *to, R1);
    }
}

fn write_ipv4_lookup(a: &mut Assembler, pass: Label) {
    a.store(Size::Byte, R10, question::FAMILY, libc::AF_INET);
    a.load(Size::Byte, R1, R7, IP + 8);
    a.jump_if(AtMost, R1, 1, pass);
    let addresses = [(Size::Word, 12, question::SOURCE), (Size::Word, 16, question::DESTINATION)];
    copy(a, &[(Size::Byte, 1, question::FLOW), (Size::Byte, 9, question::PROTOCOL)]);
    copy(a, &addresses);
    write_length(a, 2);
}

fn write_ipv6_lookup(a: &mut Assembler, pass: Label) {
    a.store(Size::Byte, R10, question::FAMILY, libc::AF_INET6);
    a.load(Size::Byte, R1, R7, IP + 7);
    a.jump_if(AtMost, R1, 1, pass);
    copy(a, &[(Size::Byte, 6, question::PROTOCOL)]);
    for half in [0, 8] {
        copy(a, &[(Size::Double, 8 + half, question::SOURCE + half)]);
        copy(a, &[(Size::Double, 24 + half, question::DESTINATION + half)]);
    }
    write_length(a, 4);
}

fn write_length(a: &mut Assembler, at: i16) {
    a.load(Size::Half, R1, R7, IP + at);
    a.swap(R1, 16);
    a.store(Size::Half, R10, question::LENGTH, R1);
}

/// Takes one from the time to live, or the hop limit.
fn age(a: &mut Assembler) {
    let (ipv6, done, no_carry) = (a.label(), a.label(), a.label());
    a.load(Size::Half, R1, R7, 12);
    a.jump_if(Equal, R1, in_network_order(0x86dd), ipv6);
    a.load(Size::Byte, R1, R7, IP + 8);
    a.compute(Subtract, R1, 1);
    a.store(Size::Byte, R7, IP + 8, R1);
    a.load(Size::Half, R1, R7, IP + 10);
    a.swap(R1, 16);
    a.compute(Add, R1, 0x0100);
    a.jump_if(Below, R1, 0xffff, no_carry);
    a.compute(Add, R1, 1);
    a.place(no_carry);
    a.swap(R1, 16);
    a.store(Size::Half, R7, IP + 10, R1);
    a.jump(done);
    a.place(ipv6);
    a.load(Size::Byte, R1, R7, IP + 7);
    a.compute(Subtract, R1, 1);
    a.store(Size::Byte, R7, IP + 7, R1);
    a.place(done);
}

#[cfg(test)]
mod tests {
    use super::*;
    use artery_wire::checksum;
    use std::net::Ipv4Addr;

    #[test]
    fn what_is_a_frames_own_are_an_address_and_the_checksum_that_goes_with_it() {
        let mac = EtherAddr([2, 0, 0, 0, 0, 1]);
        let from: Ipv4Addr = "198.18.0.2".parse().unwrap();
        let of = |to: &str| frame(mac, from.into(), to.parse().unwrap(), FORTH);
        let (mut one, other) = (of("192.0.2.1"), of("203.0.113.77"));
        let [address, sum] = entry(&other, DESTINATION);
        one[30..34].copy_from_slice(&address.to_ne_bytes()[..4]);
        one[24..26].copy_from_slice(&sum.to_ne_bytes()[..2]);
        assert_eq!((one[14..34].to_vec(), one.len()), (other[14..34].to_vec(), FRAME));
        assert_eq!(checksum::sum(&one[14..34]), 0xffff);
        let answer = |from: &str| frame(mac, from.parse().unwrap(), "192.0.2.1".parse().unwrap(), BACK);
        let (mut one, other) = (answer("198.51.100.7"), answer("203.0.113.9"));
        let [address, sum] = entry(&other, SOURCE);
        one[26..30].copy_from_slice(&address.to_ne_bytes()[..4]);
        one[24..26].copy_from_slice(&sum.to_ne_bytes()[..2]);
        assert_eq!(one, other, "without a checksum of UDP");
    }

    #[test]
    fn what_is_a_frames_own_in_ipv6_is_an_address() {
        let mac = EtherAddr([2, 0, 0, 0, 0, 1]);
        let [one, other] = ["2001:db8::1", "2001:db8:1:2:3:4:5:6"]
            .map(|to| frame(mac, "2001:2::2".parse().unwrap(), to.parse().unwrap(), FORTH));
        let own = entry(&other, DESTINATION).map(u64::to_ne_bytes).concat();
        assert_eq!((own.as_slice(), &one[..38]), (&other[38..54], &other[..38]));
    }
}
