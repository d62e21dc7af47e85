//! Probe frames: before anything is forwarded, a program of XDP sends one from each port to each other port.
//!
//! That takes a kernel that runs programs on frames which no
//! interface received (`BPF_F_TEST_XDP_LIVE_FRAMES`, Linux 5.18).
use super::memory::Memory;
use artery_device::bpf::{self, Assembler, Hook, Register};
use artery_wire::EtherAddr;
use rustix::fd::OwnedFd;

/// Nearest-bridge group address: no bridge passes it on (IEEE 802.1Q-2018, table 8-1).
const NEAREST_BRIDGE: [u8; 6] = [0x01, 0x80, 0xc2, 0x00, 0x00, 0x0e];
/// Local experimental EtherType 1 (IEEE 802-2014, 9.2.4).
const ETHER_TYPE: [u8; 2] = [0x88, 0xb5];
const TEXT: &[u8] = b"artery adopt: probe";
/// Bytes of the shortest frame, without its checksum.
const FRAME_BYTES: usize = 60;
/// A ring may be full just now; one that takes none of these does not send.
const ATTEMPTS: u32 = 3;
const REDIRECT_MAP: i32 = 51;
const XDP_DROP: i32 = 1;

/// A port that is up.
pub(super) struct ProbePort {
    /// Its number among the ports.
    pub(super) port: u32,
    pub(super) link: u32,
    pub(super) mac: EtherAddr,
}

/// Sends probes from each port to each other; returns the interface that one came by and that which it was to
/// leave by, of the first pair where none of several was taken. A pair that can't be tried
/// counts as one that works.
///
/// Losses must be counted in `memory`. They are zero afterwards.
pub(super) fn find_broken_pair(memory: &Memory, ports: &[ProbePort]) -> Option<(u32, u32)> {
    // Programs that share a map of devices agree about frames in several buffers.
    let hook = Hook::Xdp { flags: 0, multi_buffer: memory.takes_buffers };
    let loses = |to: &ProbePort| {
        let program = bpf::load(hook, &redirecting_program(memory, to.port)).ok()?;
        let frame = probe_frame(to.mac);
        let is_broken = |from: &&ProbePort| {
            from.link != to.link && (0..ATTEMPTS).all(|_| is_lost(memory, &program, &frame, from, to))
        };
        ports.iter().find(is_broken).map(|from| (from.link, to.link))
    };
    let found = ports.iter().find_map(loses);
    memory.reset_losses();
    found
}

/// Sends one probe; returns whether its loss was counted.
fn is_lost(memory: &Memory, program: &OwnedFd, frame: &[u8], from: &ProbePort, to: &ProbePort) -> bool {
    let losses = || memory.unredirected_frames(from.port) + memory.dropped_frames(to.port);
    let before = losses();
    bpf::run_live(program, frame, Some(from.link), 1, 1).is_ok() && losses() != before
}

fn redirecting_program(memory: &Memory, port: u32) -> Vec<bpf::Instruction> {
    let mut a = Assembler::default();
    a.map(Register::R1, memory.devices.descriptor());
    a.set(Register::R2, port as i32);
    a.set(Register::R3, XDP_DROP);
    a.call(REDIRECT_MAP);
    a.exit();
    a.finish().expect("it has no labels, and is short")
}

/// From the interface that it leaves by, to whatever is at the other end of its link.
fn probe_frame(source: EtherAddr) -> Vec<u8> {
    let mut frame = [&NEAREST_BRIDGE[..], &source.octets(), &ETHER_TYPE, TEXT].concat();
    frame.resize(FRAME_BYTES, 0);
    frame
}
