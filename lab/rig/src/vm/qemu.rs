//! How QEMU is called.

use super::Machine;
use super::accelerator::Accelerator;
use super::fetch::Unpacked;
use super::wires;
use std::ffi::OsString;
use std::path::Path;

pub(super) const PROGRAM: &str = "qemu-system-x86_64";

/// Mitigations stay on, for they change what the kernel's verifier asks of programs.
///
/// A machine that waits long for the host's processors would take its timer for broken,
/// and stand still (`no_timer_check`).
const KERNEL_WORDS: &str =
    "console=ttyS0 loglevel=4 panic=-1 nokaslr no_timer_check random.trust_cpu=on net.ifnames=0";

/// The words after the program's name.
pub(super) fn words(
    machine: &Machine,
    accelerator: Accelerator,
    kernel: &Unpacked,
    run: &Path,
) -> anyhow::Result<Vec<OsString>> {
    let (accelerator, cpu) = match accelerator {
        Accelerator::Kvm => ("kvm", "host"),
        // Strings of bytes are emulated a byte at a time. Kernel and C library copy by words where the
        // processor does not say that strings are fast: TCP by the kernel alone is then three times as fast.
        Accelerator::Emulation => ("tcg", "max,la57=off,-erms,-fsrm"),
    };
    let mut words: Vec<OsString> = vec![];
    words.extend(
        ["-nodefaults", "-no-reboot", "-nographic", "-monitor", "none", "-nic", "none"].map(OsString::from),
    );
    words.extend(["-machine".into(), format!("q35,accel={accelerator}").into()]);
    words.extend(["-cpu".into(), cpu.into(), "-smp".into(), machine.cpus.to_string().into()]);
    words.extend(["-m".into(), machine.memory.to_string().into()]);
    words.extend(["-kernel".into(), kernel.image()?.into(), "-initrd".into(), run.join(INITRAMFS).into()]);
    words.extend(["-append".into(), KERNEL_WORDS.into()]);
    let mut log = OsString::from("file:");
    log.push(run.join(LOG));
    words.extend(["-serial".into(), log]);
    words.extend(share("root", Path::new("/"), ",readonly=on"));
    words.extend(share("run", &run.join(SHARED), ""));
    words.extend(wires::words(&machine.nic).into_iter().map(OsString::from));
    Ok(words)
}

/// A folder that the machine can mount by the tag `id`.
fn share(id: &str, path: &Path, options: &str) -> [OsString; 4] {
    let mut text = OsString::from(format!("local,id={id},path="));
    text.push(path);
    text.push(format!(",security_model=none,multidevs=remap{options}"));
    ["-fsdev".into(), text, "-device".into(), format!("virtio-9p-pci,fsdev={id},mount_tag={id}").into()]
}

/// Files in the folder of a run.
pub(super) const INITRAMFS: &str = "initramfs";
/// What the machine's kernel says.
pub(super) const LOG: &str = "kernel.log";
/// The folder that the machine sees.
pub(super) const SHARED: &str = "shared";
