//! Frames that are lost after a program of XDP has redirected them. The kernel counts them
//! nowhere; its tracepoints report them.
//!
//! `xdp_redirect_err` passes the interface that a frame came by, where the kernel could not redirect it;
//! `xdp_devmap_xmit` the interface that frames were to leave by, and how many its driver did not take. Both
//! are of all network namespaces, so that an interface is known by its namespace and its index.
use super::layout::{DROPPED_COUNTS, LOSS_DEVICES, MOST_PORTS, REDIRECT_ERRORS};
use super::memory::Memory;
use artery_device::bpf::{Assembler, Btf, Instruction, Label, Operation, Register, Size, Test, Tracepoint};
use std::ffi::CStr;
use std::io;
use std::os::unix::fs::MetadataExt as _;

const PROBE_READ_KERNEL: i32 = 113;
const LOCKDOWN: &str = "/sys/kernel/security/lockdown";
const NAMESPACE: &str = "/proc/thread-self/ns/net";
/// Where on the stack what is read from the kernel's memory goes.
const READ: i16 = -8;

/// Programs that count losses of this network namespace's ports until they are dropped.
#[derive(Debug)]
pub(super) struct LossCounter {
    _tracepoints: Vec<Tracepoint>,
}

/// Where the kernel's structures have what is needed of them, in bytes.
struct Offsets {
    /// Offset of the interface index in `struct net_device`.
    index: u32,
    namespace: u32,
    /// The namespace's inode number, of `struct net`.
    inode: u32,
}

impl LossCounter {
    /// Begins to count at the ports that [`Memory::set_device`] names. An error says why this kernel does not
    /// let that be counted; packets are forwarded all the same.
    pub(super) fn start(memory: &Memory) -> io::Result<LossCounter> {
        let btf = Btf::of_kernel()?;
        let offsets = Offsets::from_btf(&btf).ok_or_else(|| lacks_type("struct net_device"))?;
        // The inode number of a namespace has 32 bits.
        let namespace = std::fs::metadata(NAMESPACE)?.ino() as u32;
        let counter = |tracepoint: &CStr,
                       device: TracepointArgument,
                       count: Option<TracepointArgument>,
                       counts: usize| {
            let name = tracepoint.to_str().unwrap_or_default();
            let arguments = btf.argument_names(name).ok_or_else(|| lacks_type(name))?;
            let place = |of: TracepointArgument| of.position_in(&arguments).ok_or_else(|| lacks_type(name));
            let (device, count) = (place(device)?, count.map(place).transpose()?);
            let program = counting_program(memory, &offsets, namespace, device, count, counts);
            Tracepoint::attach(tracepoint, &program).map_err(explain_refusal)
        };
        Ok(LossCounter {
            _tracepoints: vec![
                counter(c"xdp_redirect_err", TracepointArgument("dev", 0), None, REDIRECT_ERRORS)?,
                counter(
                    c"xdp_devmap_xmit",
                    TracepointArgument("to_dev", 1),
                    Some(TracepointArgument("drops", 3)),
                    DROPPED_COUNTS,
                )?,
            ],
        })
    }
}

/// A tracepoint's argument: its name, and its place from Linux 5.6 on, for kernels that don't report names.
#[derive(Clone, Copy)]
struct TracepointArgument(&'static str, u32);

impl TracepointArgument {
    fn position_in(self, arguments: &[String]) -> Option<u32> {
        let TracepointArgument(name, usual) = self;
        let is_nameless = arguments.iter().all(String::is_empty) && arguments.len() > usual as usize;
        let found = arguments.iter().position(|argument| argument == name);
        found.map(|place| place as u32).or(is_nameless.then_some(usual))
    }
}

impl Offsets {
    fn from_btf(btf: &Btf) -> Option<Offsets> {
        Some(Offsets {
            index: btf.member_offset("net_device", "ifindex")?,
            namespace: btf.member_offset("net_device", "nd_net")?,
            inode: btf.member_offset("net", "ns")? + btf.member_offset("ns_common", "inum")?,
        })
    }
}

/// What keeps a program from the kernel's memory.
fn explain_refusal(error: io::Error) -> io::Error {
    let lockdown = std::fs::read_to_string(LOCKDOWN).unwrap_or_default();
    match lockdown.contains("[confidentiality]") {
        true => {
            io::Error::other("the kernel does not let programs read its memory (lockdown=confidentiality)")
        }
        false => error,
    }
}

fn lacks_type(what: &str) -> io::Error {
    io::Error::new(io::ErrorKind::NotFound, format!("the kernel's types (BTF) don't tell of {what}"))
}

/// A program that adds to a port's count as many frames as an argument says, or one. `device` is the argument
/// that leads to the interface.
fn counting_program(
    memory: &Memory,
    offsets: &Offsets,
    namespace: u32,
    device: u32,
    count: Option<u32>,
    counts: usize,
) -> Vec<Instruction> {
    use Register::*;
    let mut a = Assembler::default();
    let (done, add) = (a.label(), a.label());
    let argument = |number: u32| 8 * number as i16;
    a.load(Size::Double, R8, R1, argument(device));
    match count {
        Some(number) => {
            a.load(Size::Double, R7, R1, argument(number));
            a.compute_32(Operation::Move, R7, R7);
            // Most often nothing was lost.
            a.jump_if(Test::Equal, R7, 0, done);
        }
        None => a.set(R7, 1),
    }
    read_kernel_memory(&mut a, R8, offsets.namespace, Size::Double, done);
    a.set(R3, R1);
    read_kernel_memory(&mut a, R3, offsets.inode, Size::Word, done);
    a.set(R2, namespace as i32);
    a.compute_32(Operation::Move, R2, R2);
    a.jump_if(Test::NotEqual, R1, R2, done);
    read_kernel_memory(&mut a, R8, offsets.index, Size::Word, done);
    let losses = memory.arrays.descriptor("losses");
    a.value(R2, losses, 8 * LOSS_DEVICES as i32);
    let ports: Vec<Label> = (0..MOST_PORTS).map(|_| a.label()).collect();
    for (port, label) in ports.iter().enumerate() {
        a.load(Size::Double, R3, R2, 8 * port as i16);
        a.jump_if(Test::Equal, R3, R1, *label);
    }
    a.jump(done);
    for (port, label) in ports.iter().enumerate() {
        a.place(*label);
        a.set(R4, 8 * port as i32);
        a.jump(add);
    }
    a.place(add);
    a.value(R2, losses, 8 * counts as i32);
    a.compute(Operation::Add, R2, R4);
    a.add_atomically(R2, 0, R7);
    a.place(done);
    a.set(R0, 0);
    a.exit();
    a.finish().expect("every label is placed, and the program is short")
}

/// `R1` = what the kernel has `offset` bytes behind `from`; goes to `failed` where it can't be read.
/// Spoils `R2` to `R5`.
fn read_kernel_memory(a: &mut Assembler, from: Register, offset: u32, size: Size, failed: Label) {
    use Register::*;
    a.set(R3, from);
    a.compute(Operation::Add, R3, offset as i32);
    a.set(R1, R10);
    a.compute(Operation::Add, R1, i32::from(READ));
    a.set(R2, if matches!(size, Size::Double) { 8 } else { 4 });
    a.call(PROBE_READ_KERNEL);
    a.jump_if(Test::NotEqual, R0, 0, failed);
    a.load(size, R1, R10, READ);
}
