//! Who carries out a machine's instructions: the processor where kernels boot that way, QEMU otherwise.
//!
//! That `/dev/kvm` is there says little: inside some virtual machines it is, and stock kernels do not boot by
//! it. So a try decides, and what it found is kept until the host boots again.

use super::cache;
use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// Who carries out the instructions.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Accelerator {
    /// The processor, by KVM.
    Kvm,
    /// QEMU itself, without hardware support.
    Emulation,
}

/// How long a machine may take to boot by KVM before it is emulated.
pub(super) const PATIENCE: Duration = Duration::from_secs(20);

/// Whether KVM is worth a try.
pub(super) fn may_be_kvm() -> bool {
    Path::new("/dev/kvm").exists()
        && fs::read_to_string(failure_marker()).ok().as_deref() != Some(&this_boot())
}

/// Keeps in mind that nothing boots by KVM here.
pub(super) fn remember_failure() {
    // Where it can't be written, the next machine tries again.
    let _ = fs::write(failure_marker(), this_boot());
}

fn failure_marker() -> PathBuf {
    cache::folder().unwrap_or_default().join("kvm-boots-nothing")
}

fn this_boot() -> String {
    fs::read_to_string("/proc/sys/kernel/random/boot_id").unwrap_or_default()
}
