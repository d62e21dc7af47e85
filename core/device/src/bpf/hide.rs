//! The program that hides frames from the host's own stack: it drops every frame, or every tagged one, at
//! tc's hook for arriving frames. Packet sockets see frames before that hook, the stack after it.
use super::lease::KeptLease;
use super::{
    Assembler, Attachment, Hook, Instruction, Label, Lease, Operation, Register::*, Size, Test, attach,
    load_for,
};
use crate::privsep::{self, Helper, RemoteHidden};
use crate::{DeviceError, Hide, Interface};
use std::io;
use std::sync::Arc;

/// Fields of `struct __sk_buff` (linux/bpf.h).
const VLAN_PRESENT: i16 = 20;
const VLAN_TCI: i16 = 24;
const VLAN_PROTOCOL: i16 = 28;
/// Return values of tc programs: drop the frame, or run the next program (`TC_ACT_SHOT`, `TC_ACT_UNSPEC`).
const DROP: i32 = 2;
const NEXT: i32 = -1;

/// While it lives, the host's stack does not see what arrives on an interface, or the tagged part of it.
/// Should its process be stopped or killed, the stack sees it again within [`Lease::TERM`].
#[derive(Debug)]
pub(crate) enum Hidden {
    /// This process attached the program.
    Here { _attachment: Attachment, _lease: KeptLease },
    /// The helper process attached the program.
    ByHelper { _lease: KeptLease, _remote: Arc<RemoteHidden> },
}

impl Hidden {
    /// Hides what arrives on `interface` from the host, if something of it is to be hidden.
    pub(crate) fn hide(interface: &Interface, what: Hide) -> Result<Option<Hidden>, DeviceError> {
        let only_tagged = match what {
            Hide::Nothing => return Ok(None),
            Hide::Tagged => true,
            Hide::All => false,
        };
        match privsep::helper() {
            Some(helper) => hide_by_helper(helper, interface, only_tagged),
            None => hide_here(interface, only_tagged),
        }
        .map(Some)
    }

    /// Attaches the program, with a lease that holds from now on and that the caller renews.
    pub(crate) fn attach(
        interface: &Interface,
        only_tagged: bool,
    ) -> Result<(Attachment, Lease), DeviceError> {
        let refused = |error| refused(interface, &error);
        let lease = Lease::new().map_err(refused)?;
        let program = load_for(interface, HIDING, Hook::TcIngress, &program(&lease, only_tagged), refused)?;
        let attachment = attach(&program, interface.index, Hook::TcIngress).map_err(refused)?;
        lease.renew().map_err(refused)?;
        Ok((attachment, lease))
    }
}

const HIDING: &str = "hiding its frames from the host";

fn hide_here(interface: &Interface, only_tagged: bool) -> Result<Hidden, DeviceError> {
    let (attachment, lease) = Hidden::attach(interface, only_tagged)?;
    let lease =
        KeptLease::renew_until_dropped(move || lease.renew()).map_err(|error| refused(interface, &error))?;
    Ok(Hidden::Here { _attachment: attachment, _lease: lease })
}

fn hide_by_helper(helper: &Helper, interface: &Interface, only_tagged: bool) -> Result<Hidden, DeviceError> {
    let remote = Arc::new(RemoteHidden::hide(helper, interface, only_tagged)?);
    let renewed = remote.clone();
    let lease = KeptLease::renew_until_dropped(move || renewed.renew())
        .map_err(|error| refused(interface, &error))?;
    Ok(Hidden::ByHelper { _lease: lease, _remote: remote })
}

/// Drops all frames, or those with a tag, except where a tag of type 0x8100 says a priority and no VLAN: the
/// host takes such frames for untagged ones. The kernel has taken tags out of frames before.
fn program(lease: &Lease, only_tagged: bool) -> Vec<Instruction> {
    let mut a = Assembler::default();
    let (next, drop) = (a.label(), a.label());
    if only_tagged {
        pass_untagged(&mut a, next, drop);
    }
    a.place(drop);
    lease.write_check(&mut a, next);
    a.set(R0, DROP);
    a.exit();
    a.place(next);
    a.set(R0, NEXT);
    a.exit();
    a.finish().expect("every label is placed, and the program is short")
}

fn pass_untagged(a: &mut Assembler, next: Label, drop: Label) {
    a.load(Size::Word, R2, R1, VLAN_PRESENT);
    a.jump_if(Test::Equal, R2, 0, next);
    a.load(Size::Word, R2, R1, VLAN_PROTOCOL);
    a.jump_if(Test::NotEqual, R2, i32::from(0x8100_u16.to_be()), drop);
    a.load(Size::Word, R2, R1, VLAN_TCI);
    a.compute(Operation::And, R2, 0xfff);
    a.jump_if(Test::Equal, R2, 0, next);
}

fn refused(interface: &Interface, error: &io::Error) -> DeviceError {
    let name = &interface.name;
    match error.raw_os_error() {
        Some(libc::EINVAL | libc::ENOSYS | libc::EOPNOTSUPP | libc::ENOENT) => DeviceError::NotSupported {
            name: name.clone(),
            doing: "hiding frames from the host (SNIFFER false), which needs BPF programs at tc's ingress \
                hook (TCX, or clsact with cls_bpf)",
            instead: "remove the host's addresses from the interface ('ip address flush') and give them to a \
                      TAP device that the router serves",
        },
        _ => DeviceError::from_io(name, HIDING, "CAP_BPF and CAP_NET_ADMIN", error),
    }
}
