//! How long the kernel keeps connections without traffic, in seconds.
use super::message::{Entry, TCP, UDP};
use crate::blockers::setting;
use crate::kernel::Family;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Timeouts {
    pub(super) tcp: u32,
    udp: u32,
    udp_stream: u32,
    icmp: u32,
    icmpv6: u32,
}

impl Timeouts {
    /// What the kernel is set to, or its defaults.
    pub(super) fn read() -> Timeouts {
        let number = |name: &str, default: u32| {
            let value = setting(&format!("netfilter/nf_conntrack_{name}")).ok().flatten();
            value.and_then(|value| u32::try_from(value).ok()).unwrap_or(default)
        };
        Timeouts {
            tcp: number("tcp_timeout_established", 432_000),
            udp: number("udp_timeout", 30),
            udp_stream: number("udp_timeout_stream", 120),
            icmp: number("icmp_timeout", 30),
            icmpv6: number("icmpv6_timeout", 30),
        }
    }

    /// After how many ticks a packet of a connection is to renew its entry; 0 for TCP, whose entries are
    /// renewed otherwise: what the kernel knows of its window is old, so that it would choose a timeout for
    /// data that wait for an acknowledgment.
    pub(super) fn interval(&self, entry: &Entry, ticks_of_a_second: u64) -> u32 {
        let seconds = match (entry.protocol(), entry.family) {
            (TCP, _) => return 0,
            (UDP, _) if entry.is_assured() => self.udp_stream,
            (UDP, _) => self.udp,
            (_, Family::V4) => self.icmp,
            (_, Family::V6) => self.icmpv6,
        };
        let ticks = u64::from(seconds) * ticks_of_a_second / 4;
        u32::try_from(ticks).unwrap_or(u32::MAX).max(1)
    }
}
