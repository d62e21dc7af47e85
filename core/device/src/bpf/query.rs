//! What programs there are at an interface, and whose.
use super::{BPF_TCX_INGRESS, NAME, NAME_BYTES, bpf, bpf_descriptor, check};
use rustix::fd::{AsRawFd as _, OwnedFd};
use std::io;

const BPF_PROG_GET_FD_BY_ID: libc::c_int = 13;
const BPF_OBJ_GET_INFO_BY_FD: libc::c_int = 15;
/// The most programs that are queried; the kernel allows no more at an interface (BPF_MPROG_MAX).
const MOST_PROGRAMS: usize = 64;

const BPF_PROG_QUERY: libc::c_int = 16;
const BPF_TCX_EGRESS: u32 = 47;

/// A side of an interface: where frames come in, or go out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TcxSide {
    /// Frames that arrive at the interface.
    Ingress,
    /// Frames that leave by the interface.
    Egress,
}

/// The argument of `bpf(BPF_PROG_QUERY)`.
#[repr(C)]
#[derive(Default)]
struct Query {
    interface: u32,
    attach_type: u32,
    flags: [u32; 2],
    programs: u64,
    count: u32,
    rest: [u32; 9],
}

/// Programs at a hook.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct AttachedPrograms {
    /// How many there are.
    pub count: u32,
    /// Those that a process of Artery loaded, as far as this process may query them.
    pub of_artery: u32,
}

/// The programs at an interface's TCX hook. Kernels that have no such hooks have no programs there.
pub fn tcx_programs(interface: u32, side: TcxSide) -> io::Result<AttachedPrograms> {
    let mut ids = [0; MOST_PROGRAMS];
    match query(interface, side, &mut ids) {
        Err(error) if lacks_hook(&error) || error.raw_os_error() == Some(libc::ENOENT) => {
            Ok(AttachedPrograms::default())
        }
        Err(error) => Err(error),
        Ok(count) => {
            let ids = ids.iter().take(count as usize);
            Ok(AttachedPrograms { count, of_artery: ids.filter(|id| is_of_artery(**id)).count() as u32 })
        }
    }
}

/// The argument of `bpf(BPF_PROG_GET_FD_BY_ID)`.
#[repr(C)]
#[derive(Default)]
struct ById {
    id: u32,
    next: u32,
    flags: u32,
}

/// The argument of `bpf(BPF_OBJ_GET_INFO_BY_FD)`.
#[repr(C)]
struct InfoOf {
    descriptor: u32,
    len: u32,
    info: u64,
}

/// `struct bpf_prog_info` up to `verified_insns`, which kernels before 5.16 leave 0.
#[repr(C)]
#[derive(Default)]
struct Info {
    before: [u64; 8],
    name: [u8; NAME_BYTES],
    between: [u64; 17],
    verified_instructions: u32,
    padding: u32,
}

/// Whether a process of Artery loaded the program with this number. False where it can't be
/// queried, which takes CAP_SYS_ADMIN.
pub fn is_of_artery(id: u32) -> bool {
    info(id).is_ok_and(|info| info.name == *NAME)
}

fn info(id: u32) -> io::Result<Info> {
    let mut by_id = ById { id, ..ById::default() };
    // SAFETY: the command makes a descriptor; the argument is as long as said, and holds no pointer.
    info_of(&unsafe { bpf_descriptor(BPF_PROG_GET_FD_BY_ID, &mut by_id) }?)
}

/// How many instructions the verifier followed before it took the program, of a million that it follows at
/// most; none where the kernel does not say (before Linux 5.16).
pub fn verified_instructions(program: &OwnedFd) -> io::Result<Option<u32>> {
    let count = info_of(program)?.verified_instructions;
    Ok((count > 0).then_some(count))
}

fn info_of(program: &OwnedFd) -> io::Result<Info> {
    let mut info = Info::default();
    let mut argument = InfoOf {
        descriptor: program.as_raw_fd() as u32,
        len: size_of::<Info>() as u32,
        info: std::ptr::from_mut(&mut info) as u64,
    };
    // SAFETY: the argument is as long as said; its pointer leads to as many bytes as it says, which may be
    // any integers, and which as they are give the kernel no place for anything else.
    check(unsafe { bpf(BPF_OBJ_GET_INFO_BY_FD, &mut argument) })?;
    Ok(info)
}

/// Whether the kernel has TCX hooks (Linux 6.6), as a query of the interface's programs shows.
pub fn has_tcx(interface: u32) -> io::Result<bool> {
    match query(interface, TcxSide::Ingress, &mut []) {
        Err(error) if lacks_hook(&error) => Ok(false),
        Err(error) if error.raw_os_error() != Some(libc::ENOENT) => Err(error),
        _ => Ok(true),
    }
}

fn lacks_hook(error: &io::Error) -> bool {
    matches!(error.raw_os_error(), Some(libc::EINVAL | libc::ENOSYS))
}

/// Writes the numbers of the programs, as far as there is room, and gives how many there are.
fn query(interface: u32, side: TcxSide, ids: &mut [u32]) -> io::Result<u32> {
    let attach_type = if side == TcxSide::Ingress { BPF_TCX_INGRESS } else { BPF_TCX_EGRESS };
    let programs = if ids.is_empty() { 0 } else { ids.as_mut_ptr() as u64 };
    let mut argument =
        Query { interface, attach_type, programs, count: ids.len() as u32, ..Query::default() };
    // SAFETY: the argument is as long as said; its pointer leads to room for as many integers as it says.
    check(unsafe { bpf(BPF_PROG_QUERY, &mut argument) })?;
    Ok(argument.count)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::bpf::filter::tests::pass;
    use crate::bpf::{Attachment, Hidden, Hook, attach};
    use crate::namespace::{in_namespace, run};
    use crate::{Hide, Interface};

    #[test]
    fn programs_at_an_interface_are_counted_by_side() {
        in_namespace(|| {
            run("ip link add left type veth peer name right");
            let left = Interface::find("left").unwrap();
            let programs = |side| tcx_programs(left.index, side).unwrap();
            let count = || [TcxSide::Ingress, TcxSide::Egress].map(|side| programs(side).count);
            assert_eq!(count(), [0, 0]);
            let hidden = Hidden::hide(&left, Hide::All).unwrap();
            // Kernels without TCX have a filter instead.
            assert!([[1, 0], [0, 0]].contains(&count()), "{:?}", count());
            let at_ingress = programs(TcxSide::Ingress);
            assert_eq!(at_ingress.of_artery, at_ingress.count, "they have its name");
            drop(hidden);
            assert!(!is_of_artery(u32::MAX), "there is no such program");
            assert_eq!(count(), [0, 0]);
            let is_link = matches!(attach(&pass(), left.index, Hook::TcIngress), Ok(Attachment::Link(_)));
            assert_eq!(has_tcx(left.index).unwrap(), is_link);
            assert_eq!(tcx_programs(9999, TcxSide::Ingress).unwrap_err().raw_os_error(), Some(libc::ENODEV));
        });
    }
}
