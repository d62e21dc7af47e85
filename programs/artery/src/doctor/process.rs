//! What this process may do: its capabilities and limits, and the sockets that it can open.
use super::report::{Finding, Purpose};
use artery_device::bpf::{self, Hook};
use artery_device::{FrameSocket, try_frame_socket};
use rustix::process::{Resource, geteuid, getrlimit};
use rustix::thread::{CapabilitySet, capabilities, capability_is_in_bounding_set};
use std::io;

/// What sees what this process could not see.
pub(super) const AS_ROOT: &str = "sudo artery doctor";

pub(super) fn findings() -> Vec<Finding> {
    let mut findings = capability_findings();
    findings.extend([locked_memory(), packet_sockets(), xdp_sockets()]);
    findings
}

/// Capabilities, their names, and the commands that need them.
const NEEDED: [(CapabilitySet, &str, &str, &[Purpose]); 4] = [
    (
        CapabilitySet::NET_ADMIN,
        "capability-net-admin",
        "CAP_NET_ADMIN (attaching programs, hiding frames from the host, TAP devices)",
        &Purpose::ALL,
    ),
    (CapabilitySet::BPF, "capability-bpf", "CAP_BPF (loading programs)", &Purpose::ALL),
    (
        CapabilitySet::PERFMON,
        "capability-perfmon",
        "CAP_PERFMON (programs as the kernel checks them for who is trusted)",
        Purpose::PROGRAMS,
    ),
    (CapabilitySet::NET_RAW, "capability-net-raw", "CAP_NET_RAW (packet sockets, AF_XDP)", Purpose::ENGINES),
];

fn capability_findings() -> Vec<Finding> {
    let effective = capabilities(None).map(|sets| sets.effective);
    let one = |(capability, check, what, purposes): (CapabilitySet, &'static str, &str, _)| {
        let finding = match &effective {
            Ok(effective) if has(*effective, capability) => {
                Finding::ok(check, format!("this process has {what}"))
            }
            Ok(_) => lacks(check, what, may_be_had(capability)),
            Err(error) => {
                Finding::unknown(check, format!("whether this process has {what}: {error}"), AS_ROOT)
            }
        };
        finding.needed_by(purposes)
    };
    NEEDED.into_iter().map(one).collect()
}

/// Whether a set contains a capability, or CAP_SYS_ADMIN in its place: before Linux 5.8 there were
/// no CAP_BPF and CAP_PERFMON.
fn has(effective: CapabilitySet, capability: CapabilitySet) -> bool {
    let is_of_admin = CapabilitySet::BPF.union(CapabilitySet::PERFMON).contains(capability);
    effective.contains(capability) || is_of_admin && effective.contains(CapabilitySet::SYS_ADMIN)
}

/// Whether root could have a capability here, of which a container may have been deprived.
fn may_be_had(capability: CapabilitySet) -> bool {
    // A kernel that does not know the capability answers with an error.
    !geteuid().is_root() && capability_is_in_bounding_set(capability).unwrap_or(true)
}

fn lacks(check: &'static str, what: &str, may_be_had: bool) -> Finding {
    match may_be_had {
        true => Finding::unknown(
            check,
            format!("this process lacks {what}; whether root has it can't be seen"),
            AS_ROOT,
        ),
        false => Finding::broken(
            check,
            format!("this process lacks {what}, and can't get it"),
            "give it to the process: AmbientCapabilities= and CapabilityBoundingSet= in its unit, --cap-add \
             of a container",
        ),
    }
}

fn locked_memory() -> Finding {
    let check = "memory-lock-limit";
    let limit = getrlimit(Resource::Memlock).maximum;
    let said = limit.map_or("unlimited".to_owned(), |bytes| format!("at most {bytes} bytes"));
    let may_raise = limit.is_none()
        || capabilities(None).is_ok_and(|sets| sets.effective.contains(CapabilitySet::SYS_RESOURCE));
    let finding = match bpf::counts_locked_memory() {
        Ok(false) => Finding::ok(check, "programs and their memory do not count against RLIMIT_MEMLOCK"),
        Ok(true) if may_raise => Finding::ok(
            check,
            format!(
                "programs and their memory count against RLIMIT_MEMLOCK ({said}), which Artery raises by \
                 itself"
            ),
        ),
        Ok(true) => Finding::broken(
            check,
            format!(
                "programs and their memory count against RLIMIT_MEMLOCK ({said}), which this process may not \
                 raise"
            ),
            "ulimit -l unlimited (LimitMEMLOCK=infinity in a unit), or CAP_SYS_RESOURCE",
        ),
        Err(error) => Finding::unknown(
            check,
            format!(
                "RLIMIT_MEMLOCK is {said}; whether programs count against it could not be tried: {error}"
            ),
            AS_ROOT,
        ),
    };
    finding.needed_by(&Purpose::ALL)
}

fn packet_sockets() -> Finding {
    let check = "packet-sockets";
    let finding = match try_frame_socket(FrameSocket::Packet) {
        Ok(()) => Finding::ok(check, "packet sockets can be opened"),
        Err(error) if is_for_want_of_rights(&error) => {
            not_tried(check, "packet sockets can be opened", &error)
        }
        Err(error) => Finding::broken(
            check,
            format!("packet sockets can't be opened: {error}"),
            "a kernel with CONFIG_PACKET ('modprobe af_packet' where it is a module)",
        ),
    };
    finding.needed_by(Purpose::ENGINES)
}

fn xdp_sockets() -> Finding {
    let check = "xdp-sockets";
    let tried = try_frame_socket(FrameSocket::Xdp).and_then(|()| bpf::takes_programs(Hook::XDP));
    let finding = match tried {
        Ok(()) => Finding::ok(check, "AF_XDP sockets can be opened"),
        Err(error) if is_for_want_of_rights(&error) => {
            not_tried(check, "AF_XDP sockets can be opened", &error)
        }
        Err(error) => Finding::slow(
            check,
            format!("AF_XDP sockets can't be opened: {error}; packet sockets are used"),
            "a kernel with CONFIG_XDP_SOCKETS",
        ),
    };
    finding.needed_by(Purpose::ENGINES)
}

/// Whether the kernel refused because this process lacks a right.
pub(super) fn is_for_want_of_rights(error: &io::Error) -> bool {
    error.kind() == io::ErrorKind::PermissionDenied
}

/// Something that this process may not try.
pub(super) fn not_tried(check: &'static str, what: &str, error: &io::Error) -> Finding {
    Finding::unknown(check, format!("whether {what} could not be tried: {error}"), AS_ROOT)
}

#[cfg(test)]
mod tests {
    use super::super::report::Level;
    use super::*;

    #[test]
    fn a_capability_that_root_could_have_is_not_seen_and_one_that_nobody_can_have_is_missing() {
        assert_eq!(lacks("capability-bpf", "CAP_BPF", true).level, Level::Unknown);
        let broken = lacks("capability-bpf", "CAP_BPF", false);
        assert_eq!(broken.level, Level::Broken);
        assert!(broken.remedy.unwrap().contains("CapabilityBoundingSet="));
    }

    #[test]
    fn the_capability_for_everything_stands_for_those_that_were_split_from_it() {
        assert!(has(CapabilitySet::SYS_ADMIN, CapabilitySet::BPF));
        assert!(has(CapabilitySet::SYS_ADMIN, CapabilitySet::PERFMON));
        assert!(!has(CapabilitySet::SYS_ADMIN, CapabilitySet::NET_ADMIN));
        assert!(has(CapabilitySet::NET_ADMIN, CapabilitySet::NET_ADMIN));
    }
}
