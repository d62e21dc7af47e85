//! Programs at interfaces.
use super::filter::Filter;
use super::{Hook, bpf, bpf_descriptor, check};
use rustix::fd::{AsRawFd, OwnedFd};
use std::io;

const BPF_LINK_CREATE: libc::c_int = 28;
const BPF_LINK_UPDATE: libc::c_int = 29;

/// The beginning of the argument of `bpf(BPF_LINK_CREATE)`; what follows is zero.
#[repr(C)]
struct NewLink {
    program: u32,
    interface: u32,
    attach_type: u32,
    flags: u32,
    rest: [u64; 6],
}

/// The beginning of the argument of `bpf(BPF_LINK_UPDATE)`; what follows is zero.
#[repr(C)]
struct LinkUpdate {
    link: u32,
    program: u32,
    rest: [u64; 7],
}

/// A program at an interface, which leaves it when this is dropped.
#[derive(Debug)]
pub enum Attachment {
    /// The kernel removes it when the process ends, however it ends.
    Link(OwnedFd),
    /// It stays when the process is killed: see [`remove_dead_filters`](super::remove_dead_filters).
    Filter(Filter),
}

impl Attachment {
    /// Replaces the attached program by another one: every frame passes one or the other.
    pub fn replace(&self, program: &OwnedFd) -> io::Result<()> {
        match self {
            Attachment::Link(link) => update_link(link, program),
            Attachment::Filter(filter) => filter.replace(program),
        }
    }

    /// Whether the program stays when the process is killed.
    pub fn outlives_process(&self) -> bool {
        matches!(self, Attachment::Filter(_))
    }
}

/// Attaches a program to an interface of this thread's network namespace. Where the kernel has no link for
/// tc's hook, a filter takes its place.
pub fn attach(program: &OwnedFd, interface: u32, hook: Hook) -> io::Result<Attachment> {
    match (create_link(program, interface, hook), hook) {
        (Ok(link), _) => Ok(Attachment::Link(link)),
        (Err(error), Hook::TcIngress) if error.raw_os_error() == Some(libc::EINVAL) => {
            attach_filter(program, interface)
        }
        (Err(error), _) => Err(error),
    }
}

/// Attaches a program to tc's hook as a filter, whether or not the kernel has links for it.
pub fn attach_filter(program: &OwnedFd, interface: u32) -> io::Result<Attachment> {
    Filter::add(program, interface).map(Attachment::Filter)
}

fn create_link(program: &OwnedFd, interface: u32, hook: Hook) -> io::Result<OwnedFd> {
    let mut argument = NewLink {
        program: program.as_raw_fd() as u32,
        interface,
        attach_type: hook.attach_type(),
        flags: hook.flags(),
        rest: [0; 6],
    };
    // SAFETY: the command makes a descriptor; the argument is as long as said and has no pointers.
    unsafe { bpf_descriptor(BPF_LINK_CREATE, &mut argument) }
}

fn update_link(link: &OwnedFd, program: &OwnedFd) -> io::Result<()> {
    let mut argument =
        LinkUpdate { link: link.as_raw_fd() as u32, program: program.as_raw_fd() as u32, rest: [0; 7] };
    // SAFETY: the argument is as long as said and has no pointers.
    check(unsafe { bpf(BPF_LINK_UPDATE, &mut argument) })
}
