//! The program that hands an interface's frames to the sockets of their queues.
use super::{Attach, retry};
use crate::bpf::{self, Attachment, Hook, Instruction, SocketMap, instruction};
use crate::privsep::{self, RemoteRedirect};
use crate::{DeviceError, Interface};
use rustix::fd::AsFd;
use std::io;

const GENERIC: u32 = 1 << 1;
const NATIVE: u32 = 1 << 2;
const CAPABILITIES: &str = "CAP_BPF and CAP_NET_ADMIN";

/// `return redirect_map(sockets, the frame's queue, XDP_PASS)`: a queue without a socket goes to the host.
fn redirect(sockets: i32) -> [Instruction; 6] {
    const RX_QUEUE_INDEX: i16 = 16; // in struct xdp_md
    const MAP_BY_DESCRIPTOR: u8 = 1;
    const XDP_PASS: i32 = 2;
    const REDIRECT_MAP: i32 = 51;
    [
        instruction(0x61, 2, 1, RX_QUEUE_INDEX, 0), // r2 = *(u32 *)(r1 + offset)
        instruction(0x18, 1, MAP_BY_DESCRIPTOR, 0, sockets), // r1 = map, in two instructions
        instruction(0, 0, 0, 0, 0),
        instruction(0xb7, 3, 0, 0, XDP_PASS),     // r3 = XDP_PASS
        instruction(0x85, 0, 0, 0, REDIRECT_MAP), // r0 = call
        instruction(0x95, 0, 0, 0, 0),            // exit
    ]
}

/// The program at its interface, which it leaves when this is dropped, or its process ends.
#[derive(Debug)]
pub(crate) struct RedirectProgram {
    at: ProgramHolder,
    /// Whether the driver runs it; otherwise the kernel does, on socket buffers made of the frames.
    pub(crate) native: bool,
    /// Why the driver does not, as the error number of its refusal.
    pub(crate) refusal: Option<i32>,
}

/// The router that holds the program, with the lock of its interface.
#[derive(Debug)]
enum ProgramHolder {
    Here { sockets: SocketMap, _link: Attachment },
    ByHelper(RemoteRedirect),
}

const LOADING: &str = "loading an XDP program";

impl RedirectProgram {
    /// Attaches the program to an interface, for `queues` queues. Until a queue is opened its frames
    /// go to the host.
    pub(super) fn attach(
        interface: &Interface,
        queues: u32,
        how: Attach,
    ) -> Result<RedirectProgram, DeviceError> {
        let Some(helper) = privsep::helper() else {
            return RedirectProgram::attach_here(interface, queues, how);
        };
        let (remote, native, refusal) = RemoteRedirect::attach(helper, interface, queues, how)?;
        Ok(RedirectProgram { at: ProgramHolder::ByHelper(remote), native, refusal })
    }
    /// The same, by this process.
    pub(crate) fn attach_here(
        interface: &Interface,
        queues: u32,
        how: Attach,
    ) -> Result<RedirectProgram, DeviceError> {
        let loading = |e: io::Error| refused(interface, LOADING, &e);
        let sockets = SocketMap::new(queues).map_err(loading)?;
        let hook = |flags| Hook::Xdp { flags, multi_buffer: false };
        let program = redirect(sockets.descriptor());
        let program = bpf::load_for(interface, LOADING, hook(0), &program, loading)?;
        let try_as =
            |flags| retry(std::thread::sleep, || bpf::attach(&program, interface.index, hook(flags)));
        let (link, native, refusal) = match how {
            Attach::Native => (try_as(NATIVE), true, None),
            Attach::Generic => (try_as(GENERIC), false, None),
            Attach::Best => match try_as(NATIVE) {
                Err(error) if may_be_generic(&error) => (try_as(GENERIC), false, error.raw_os_error()),
                result => (result, true, None),
            },
        };
        let link = link.map_err(|e| refused(interface, "attaching an XDP program", &e))?;
        Ok(RedirectProgram { at: ProgramHolder::Here { sockets, _link: link }, native, refusal })
    }
    /// Hands the frames of a queue to a socket from now on.
    pub(crate) fn open(&self, queue: u32, socket: impl AsFd) -> io::Result<()> {
        match &self.at {
            ProgramHolder::Here { sockets, .. } => sockets.insert_socket(queue, socket),
            ProgramHolder::ByHelper(remote) => remote.open(queue, socket.as_fd()),
        }
    }
    /// Leaves the frames of a queue to the host again.
    pub(crate) fn close(&self, queue: u32) {
        // It may be gone already, with an interface that vanished.
        let _ = match &self.at {
            ProgramHolder::Here { sockets, .. } => sockets.remove(queue),
            ProgramHolder::ByHelper(remote) => remote.close(queue),
        };
    }
}

/// Whether the refusal of a driver's own hook means that the kernel's may do.
fn may_be_generic(error: &io::Error) -> bool {
    !matches!(
        error.raw_os_error(),
        Some(libc::EBUSY | libc::EEXIST | libc::EPERM | libc::EACCES | libc::ENODEV)
    )
}

fn refused(interface: &Interface, doing: &'static str, error: &io::Error) -> DeviceError {
    let name = interface.name.clone();
    match error.raw_os_error() {
        Some(libc::EBUSY | libc::EEXIST) => DeviceError::Occupied {
            name,
            by: "another XDP program is attached to it",
            remedy: "see whose it is with 'bpftool net' and remove it ('ip link set DEV xdp off'), or use \
                METHOD LINUX",
        },
        Some(libc::EINVAL | libc::ENOSYS | libc::EOPNOTSUPP) => {
            DeviceError::NotSupported { name, doing, instead: "use METHOD LINUX" }
        }
        _ => DeviceError::from_io(&interface.name, doing, CAPABILITIES, error),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_program_is_what_an_assembler_makes_of_it() {
        // Words of the encoding in the kernel's instruction-set document: code, registers, offset, operand.
        let expected: [u64; 6] = [
            0x0000_0000_0010_1261, // r2 = *(u32 *)(r1 + 16)
            0x0000_0009_0000_1118, // r1 = map 9 ll
            0,
            0x0000_0002_0000_03b7, // r3 = 2
            0x0000_0033_0000_0085, // call 51
            0x0000_0000_0000_0095, // exit
        ];
        if cfg!(target_endian = "little") {
            assert_eq!(redirect(9), expected.map(u64::to_le_bytes));
        }
    }
}
