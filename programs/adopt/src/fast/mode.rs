//! Who runs the programs of interfaces.
use super::program::ProgramHook;
use artery_device::bpf::Hook;

/// Has the driver run a program, or the kernel in its place (`XDP_FLAGS_*` of linux/if_link.h).
const GENERIC: u32 = 1 << 1;
const NATIVE: u32 = 1 << 2;

/// Who runs the program of a port.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mode {
    /// The driver, before the kernel has made a frame its own.
    Native,
    /// The kernel in the driver's place, for any interface, with less to gain.
    Generic,
    /// The kernel, when it has taken a frame over with all that its sender left to a card:
    /// checksums, and the cutting into segments.
    Tc,
    /// The same, but what would be forwarded goes to the interface of this index, as it came.
    HostPort(u32),
}

impl Mode {
    pub(super) fn program_hook(self) -> ProgramHook {
        match self {
            Mode::Native | Mode::Generic => ProgramHook::Xdp,
            Mode::Tc | Mode::HostPort(_) => ProgramHook::Tc,
        }
    }

    /// The interface that what would be forwarded goes to as it came.
    pub(super) fn host_port(self) -> Option<u32> {
        match self {
            Mode::HostPort(index) => Some(index),
            Mode::Native | Mode::Generic | Mode::Tc => None,
        }
    }

    /// Whether the program is where the kernel's filters for arriving frames begin.
    pub fn is_tc(self) -> bool {
        self.program_hook() == ProgramHook::Tc
    }

    pub(super) fn hook(self, multi_buffer: bool) -> Hook {
        match self {
            Mode::Native => Hook::Xdp { flags: NATIVE, multi_buffer },
            Mode::Generic => Hook::Xdp { flags: GENERIC, multi_buffer },
            Mode::Tc | Mode::HostPort(_) => Hook::TcIngress,
        }
    }
}
