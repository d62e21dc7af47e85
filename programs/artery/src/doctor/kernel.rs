//! What the kernel of this machine offers. It is found out by trying, not from the version.
use super::process::{AS_ROOT, is_for_want_of_rights, not_tried};
use super::report::{Finding, Purpose};
use crate::adopt::LOOPBACK;
use crate::sandbox;
use artery_adopt::fast::{self, Accelerator, Mode};
use artery_device::bpf::{self, Hook};
use std::fs::File;
use std::io::{self, ErrorKind};
use std::path::Path;

pub(super) fn findings() -> Vec<Finding> {
    let mut findings = vec![kernel(), tc_programs(), tc_hook(), grace_periods()];
    findings.extend(forwarding_programs());
    findings.extend([
        just_in_time(),
        type_information(),
        lockdown(),
        unprivileged(),
        tap_devices(),
        forwarding(),
        landlock(),
        seccomp(),
    ]);
    findings
}

/// What keeps a router from files that its configuration does not name.
fn landlock() -> Finding {
    let check = "landlock";
    let finding = match sandbox::has_landlock() {
        true => Finding::ok(check, "Landlock keeps a router from files that its configuration does not name"),
        false => Finding::slow(
            check,
            "this kernel has no Landlock: a router can reach all files of its user",
            "use Linux 5.13 or later with CONFIG_SECURITY_LANDLOCK, and 'landlock' among lsm= of its command \
             line",
        ),
    };
    finding.needed_by(Purpose::ENGINES)
}

/// What keeps a router from system calls that it does not make.
fn seccomp() -> Finding {
    let check = "seccomp";
    let finding = match Path::new("/proc/sys/kernel/seccomp/actions_avail").exists() {
        true => Finding::ok(check, "seccomp keeps a router from system calls that it does not make"),
        false => Finding::slow(
            check,
            "this kernel has no seccomp filters: a router can make all system calls",
            "use a kernel with CONFIG_SECCOMP_FILTER",
        ),
    };
    finding.needed_by(Purpose::ENGINES)
}

fn kernel() -> Finding {
    let kernel = rustix::system::uname();
    let (release, machine) = (kernel.release().to_string_lossy(), kernel.machine().to_string_lossy());
    Finding::ok("kernel", format!("Linux {release} on {machine}"))
}

/// Programs at tc's hook hide frames from the host; those of `adopt` are checked as they are.
fn tc_programs() -> Finding {
    let check = "hiding-frames";
    let finding = match bpf::takes_programs(Hook::TcIngress) {
        Ok(()) => Finding::ok(check, "programs of tc can be loaded, which hide frames from the host"),
        Err(error) if is_for_want_of_rights(&error) => {
            not_tried(check, "frames can be hidden from the host", &error)
        }
        Err(error) => Finding::broken(
            check,
            format!("frames can't be hidden from the host, as the kernel takes no programs of tc: {error}"),
            "a kernel with CONFIG_BPF_SYSCALL and CONFIG_NET_CLS_BPF; in a sandbox, one that allows bpf(2)",
        ),
    };
    finding.needed_by(Purpose::HIDING)
}

fn tc_hook() -> Finding {
    let check = "tc-hook";
    const FOR: &[Purpose] = &[Purpose::Adopt, Purpose::Router, Purpose::Up];
    let finding = match bpf::has_tcx(LOOPBACK) {
        Ok(true) => Finding::ok(check, "TCX: the kernel removes programs when their process ends"),
        Ok(false) if has_module("cls_bpf") && has_module("sch_ingress") => Finding::ok(
            check,
            "clsact with cls_bpf, as this kernel has no TCX: 'artery release PORT' removes what a killed \
             process left",
        ),
        Ok(false) => Finding::unknown(
            check,
            "this kernel has no TCX; whether it has cls_bpf shows only adding a filter",
            "modprobe -a sch_ingress cls_bpf",
        ),
        Err(error) => not_tried(check, "the kernel has TCX", &error),
    };
    finding.needed_by(FOR)
}

/// Whether the kernel has a module, or has it built in, as its files say.
fn has_module(name: &str) -> bool {
    let kernel = rustix::system::uname();
    let folder = Path::new("/lib/modules").join(kernel.release().to_string_lossy().as_ref());
    let is_listed = |file: &str| {
        let list = std::fs::read_to_string(folder.join(file)).unwrap_or_default();
        list.lines().any(|line| line.contains(&format!("/{name}.ko")))
    };
    Path::new("/sys/module").join(name).exists() || is_listed("modules.builtin") || is_listed("modules.dep")
}

fn grace_periods() -> Finding {
    let check = "grace-periods";
    let finding = match bpf::wait_for_runs() {
        Ok(()) => Finding::ok(check, "membarrier(2) says when programs have ended"),
        Err(error) => Finding::broken(
            check,
            format!("the kernel does not say when programs have ended (membarrier(2): {error})"),
            "start the kernel without nohz_full=; in a sandbox, allow membarrier(2)",
        ),
    };
    finding.needed_by(Purpose::PROGRAMS)
}

/// The programs of `adopt`, those that copy frames for `capture`, and those for frames in several buffers, as
/// the kernel's verifier finds them.
fn forwarding_programs() -> Vec<Finding> {
    const PLAIN: &str = "adopt-programs";
    let mut accelerator = match Accelerator::new() {
        Ok(accelerator) => accelerator,
        Err(error) => return vec![no_tables(PLAIN, &error)],
    };
    let plain = verified(PLAIN, "that forward", &accelerator).needed_by(Purpose::PROGRAMS);
    let mut findings = vec![plain, multi_buffer()];
    findings.push(match accelerator.begin_capture(true) {
        Ok(()) => verified("capture-programs", "that copy frames for 'artery capture'", &accelerator)
            .needed_by(&[Purpose::Capture]),
        Err(error) => no_tables("capture-programs", &error).needed_by(&[Purpose::Capture]),
    });
    findings
}

fn no_tables(check: &'static str, error: &fast::Error) -> Finding {
    let finding = match error.is_for_want_of_rights() {
        true => Finding::unknown(
            check,
            format!("whether the kernel takes programs could not be tried: {error}"),
            AS_ROOT,
        ),
        false => Finding::broken(check, error.to_string(), "a newer kernel; see the findings above"),
    };
    finding.needed_by(Purpose::PROGRAMS)
}

/// Has the verifier check programs for both hooks.
fn verified(check: &'static str, what: &str, accelerator: &Accelerator) -> Finding {
    let [xdp, tc] = [Mode::Native, Mode::Tc].map(|mode| accelerator.verify_program(LOOPBACK, mode).err());
    let (text, error) = match (&xdp, &tc) {
        (None, None) => {
            return Finding::ok(check, format!("the verifier takes the programs {what}, for XDP and tc"));
        }
        (Some(error), _) | (_, Some(error)) if error.is_for_want_of_rights() => {
            let text = format!("whether the verifier takes the programs {what} could not be tried: {error}");
            return Finding::unknown(check, text, AS_ROOT);
        }
        (Some(error), None) => (format!("programs {what} work by tc alone; for XDP {error}"), error),
        (None, Some(error)) => (format!("programs {what} work by XDP alone; for tc {error}"), error),
        (Some(error), Some(_)) => (format!("no programs {what} work: {error}"), error),
    };
    let remedy = "another kernel; please report the lines that 'artery doctor --verbose' shows";
    let finding = match xdp.is_some() && tc.is_some() {
        true => Finding::broken(check, text, remedy),
        false => Finding::slow(check, text, remedy),
    };
    Finding { verifier: error.verifier().to_vec(), ..finding }
}

fn multi_buffer() -> Finding {
    let check = "xdp-multi-buffer";
    let has = Hook::Xdp { flags: 0, multi_buffer: true };
    let finding = match bpf::takes_programs(has) {
        Ok(()) => Finding::ok(check, "XDP takes frames in several buffers, as those of large MTUs are"),
        Err(error) if is_for_want_of_rights(&error) => {
            not_tried(check, "XDP takes frames in several buffers", &error)
        }
        // Ports that it matters to have a finding of their own.
        Err(_) => Finding::ok(check, "XDP takes no frames in several buffers: MTUs up to about 3500 bytes"),
    };
    finding.needed_by(&[Purpose::Adopt])
}

fn just_in_time() -> Finding {
    let check = "bpf-jit";
    let setting = "net/core/bpf_jit_enable";
    let finding = match sysctl(setting).as_deref() {
        Ok("0") => Finding::slow(
            check,
            "programs are interpreted (net.core.bpf_jit_enable = 0)",
            "sysctl -w net.core.bpf_jit_enable=1",
        ),
        Ok(_) => Finding::ok(check, "programs are compiled"),
        Err(error) => unread(check, "net.core.bpf_jit_enable", error),
    };
    finding.needed_by(&Purpose::ALL)
}

fn type_information() -> Finding {
    let check = "btf";
    let file = "/sys/kernel/btf/vmlinux";
    let finding = match std::fs::File::open(file) {
        Ok(_) => Finding::ok(check, "the kernel describes its types (BTF), which tracepoints are read by"),
        Err(error) if error.kind() == ErrorKind::NotFound => Finding::slow(
            check,
            "the kernel does not describe its types (BTF): frames lost after a redirect can't be counted",
            "a kernel with CONFIG_DEBUG_INFO_BTF; mount /sys where it is not",
        ),
        Err(error) => unread(check, file, &error),
    };
    finding.needed_by(&[Purpose::Adopt])
}

fn lockdown() -> Finding {
    let check = "lockdown";
    let file = "/sys/kernel/security/lockdown";
    let finding = match std::fs::read_to_string(file) {
        Ok(modes) => lockdown_of(check, &modes),
        // Modules of the kernel that restrict it list themselves there.
        Err(_) if Path::new("/sys/kernel/security/lsm").exists() => {
            Finding::ok(check, "the kernel has no lockdown")
        }
        Err(error) if error.kind() == ErrorKind::NotFound => Finding::unknown(
            check,
            "whether the kernel is locked down: securityfs is not mounted, or not offered",
            "mount -t securityfs securityfs /sys/kernel/security",
        ),
        Err(error) => unread(check, file, &error),
    };
    finding.needed_by(&[Purpose::Adopt])
}

/// The mode in force stands in brackets.
fn lockdown_of(check: &'static str, modes: &str) -> Finding {
    match modes.split(['[', ']']).nth(1) {
        Some("confidentiality") => Finding::slow(
            check,
            "lockdown=confidentiality: frames lost after a redirect can't be counted",
            "lockdown=integrity on the kernel's command line",
        ),
        Some(mode) => Finding::ok(check, format!("lockdown={mode}, which keeps nothing from Artery")),
        None => Finding::unknown(
            check,
            "the mode of lockdown makes no sense",
            "cat /sys/kernel/security/lockdown",
        ),
    }
}

fn unprivileged() -> Finding {
    let check = "unprivileged-bpf";
    let name = "kernel.unprivileged_bpf_disabled";
    match sysctl("kernel/unprivileged_bpf_disabled").as_deref() {
        Ok("0") => {
            Finding::ok(check, format!("{name} = 0: Artery does not need that others may load programs"))
        }
        Ok(value) => Finding::ok(check, format!("{name} = {value}: programs are for who has CAP_BPF")),
        Err(error) => unread(check, name, error),
    }
}

fn tap_devices() -> Finding {
    let check = "tap-devices";
    let opened = File::options().read(true).write(true).open("/dev/net/tun");
    let finding = match opened.map_err(|error| error.kind()) {
        Ok(_) => Finding::ok(check, "TAP devices can be made, by which the host is reached"),
        Err(ErrorKind::PermissionDenied) => Finding::slow(
            check,
            "this user may not open /dev/net/tun: the host can't be a port",
            "chmod 0666 /dev/net/tun, or run as root",
        ),
        Err(_) => Finding::slow(
            check,
            "there is no /dev/net/tun: the host can't be a port",
            "modprobe tun; in a container, give it the device /dev/net/tun",
        ),
    };
    finding.needed_by(Purpose::ENGINES)
}

/// `adopt` forwards what the kernel would.
fn forwarding() -> Finding {
    let check = "forwarding";
    let is_on = |name| sysctl(name).map(|value| value != "0");
    let finding = match (is_on("net/ipv4/ip_forward"), is_on("net/ipv6/conf/all/forwarding")) {
        (Ok(ipv4), ipv6) => match (ipv4, ipv6.unwrap_or(false)) {
            (true, true) => Finding::ok(check, "the kernel forwards IPv4 and IPv6"),
            (true, false) => Finding::ok(check, "the kernel forwards IPv4, and not IPv6"),
            (false, true) => Finding::ok(check, "the kernel forwards IPv6, and not IPv4"),
            (false, false) => Finding::slow(
                check,
                "the kernel forwards nothing, so 'artery adopt' forwards nothing either",
                "sysctl -w net.ipv4.ip_forward=1 net.ipv6.conf.all.forwarding=1",
            ),
        },
        (Err(error), _) => unread(check, "net.ipv4.ip_forward", &error),
    };
    finding.needed_by(&[Purpose::Adopt])
}

fn sysctl(name: &str) -> io::Result<String> {
    std::fs::read_to_string(Path::new("/proc/sys").join(name)).map(|value| value.trim().to_owned())
}

fn unread(check: &'static str, what: &str, error: &io::Error) -> Finding {
    Finding::unknown(check, format!("{what} can't be read: {error}"), AS_ROOT)
}

#[cfg(test)]
mod tests {
    use super::super::report::Level;
    use super::*;

    #[test]
    fn lockdown_counts_where_it_keeps_tracepoints_away() {
        let level = |modes| lockdown_of("lockdown", modes).level;
        assert_eq!(level("none [integrity] confidentiality\n"), Level::Ok);
        assert_eq!(level("none integrity [confidentiality]\n"), Level::Slow);
        assert_eq!(level("[none] integrity confidentiality\n"), Level::Ok);
        assert_eq!(level("\n"), Level::Unknown);
    }

    #[test]
    fn the_kernel_is_named_and_every_check_has_a_name_of_its_own() {
        let found = findings();
        assert!(found[0].text.starts_with("Linux "), "{found:?}");
        let mut checks: Vec<_> = found.iter().map(|finding| finding.check).collect();
        let count = checks.len();
        checks.sort_unstable();
        checks.dedup();
        assert_eq!(checks.len(), count, "{found:?}");
    }
}
