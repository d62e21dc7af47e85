//! What programs of others there are at an interface.
use super::{BPF_TCX_INGRESS, bpf, check};
use std::io;

const BPF_PROG_QUERY: libc::c_int = 16;
const BPF_TCX_EGRESS: u32 = 47;

/// A side of an interface: where frames come in, or go out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Side {
    /// Frames that arrive.
    Ingress,
    /// Frames that leave.
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

/// How many programs there are at an interface's TCX hook. Kernels that have no such hooks have no programs there.
pub fn tcx_programs(interface: u32, side: Side) -> io::Result<u32> {
    match query(interface, side) {
        Err(error) if lacks_hook(&error) || error.raw_os_error() == Some(libc::ENOENT) => Ok(0),
        result => result,
    }
}

/// Whether the kernel has TCX hooks (Linux 6.6), as it says when asked what is at the interface.
pub fn has_tcx(interface: u32) -> io::Result<bool> {
    match query(interface, Side::Ingress) {
        Err(error) if lacks_hook(&error) => Ok(false),
        Err(error) if error.raw_os_error() != Some(libc::ENOENT) => Err(error),
        _ => Ok(true),
    }
}

fn lacks_hook(error: &io::Error) -> bool {
    matches!(error.raw_os_error(), Some(libc::EINVAL | libc::ENOSYS))
}

fn query(interface: u32, side: Side) -> io::Result<u32> {
    let attach_type = if side == Side::Ingress { BPF_TCX_INGRESS } else { BPF_TCX_EGRESS };
    let mut argument = Query { interface, attach_type, ..Query::default() };
    // SAFETY: the argument is as long as said; without a place for programs the kernel writes integers into it only.
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
            let count = || [Side::Ingress, Side::Egress].map(|side| tcx_programs(left.index, side).unwrap());
            assert_eq!(count(), [0, 0]);
            let hidden = Hidden::hide(&left, Hide::All).unwrap();
            // Kernels without TCX have a filter instead.
            assert!([[1, 0], [0, 0]].contains(&count()), "{:?}", count());
            drop(hidden);
            assert_eq!(count(), [0, 0]);
            let is_link = matches!(attach(&pass(), left.index, Hook::TcIngress), Ok(Attachment::Link(_)));
            assert_eq!(has_tcx(left.index).unwrap(), is_link);
            assert_eq!(tcx_programs(9999, Side::Ingress).unwrap_err().raw_os_error(), Some(libc::ENODEV));
        });
    }
}
