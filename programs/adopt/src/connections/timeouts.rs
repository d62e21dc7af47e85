//! How long the kernel keeps connections without traffic, in seconds.
use super::message::{Entry, TCP, UDP};
use crate::blockers::setting;
use crate::kernel::Family;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Timeouts {
    pub(super) tcp: u32,
    /// Of TCP with data that nobody acknowledges.
    pub(super) tcp_unacknowledged: u32,
    /// Of TCP with data that were sent again.
    tcp_retransmitted: u32,
    udp: u32,
    udp_stream: u32,
    icmp: u32,
    icmpv6: u32,
}

/// What connections of TCP are left with when a flow table gives them back, before Linux 5.13.
const TCP_AFTER_FLOW_TABLE: u32 = 120;

impl Timeouts {
    /// What the kernel is set to, or its defaults.
    pub(super) fn read() -> Timeouts {
        let number = |name: &str, default: u32| {
            let value = setting(&format!("netfilter/nf_conntrack_{name}")).ok().flatten();
            value.and_then(|value| u32::try_from(value).ok()).unwrap_or(default)
        };
        Timeouts {
            tcp: number("tcp_timeout_established", 432_000),
            tcp_unacknowledged: number("tcp_timeout_unacknowledged", 300),
            tcp_retransmitted: number("tcp_timeout_max_retrans", 300),
            udp: number("udp_timeout", 30),
            udp_stream: number("udp_timeout_stream", 120),
            icmp: number("icmp_timeout", 30),
            icmpv6: number("icmpv6_timeout", 30),
        }
    }

    /// After how many ticks a packet of a connection is to renew its entry; of TCP only one that comes as
    /// long after the last one. Entries of TCP are renewed otherwise: what the kernel knows of its window is
    /// old, so that it would choose a timeout for data that wait for an acknowledgment. But after a long
    /// silence an entry may have expired, which the kernel's event tells only when it removes it, up to
    /// minutes later.
    pub(super) fn interval(&self, entry: &Entry, ticks_of_a_second: u64) -> u32 {
        let seconds = match (entry.protocol(), entry.family) {
            // In quarters, below: three of them.
            (TCP, _) => {
                let of_table = if entry.is_offloaded() { TCP_AFTER_FLOW_TABLE } else { u32::MAX };
                let shortest = self.tcp.min(self.tcp_unacknowledged).min(self.tcp_retransmitted);
                shortest.min(of_table).saturating_mul(3)
            }
            (UDP, _) if entry.is_assured() => self.udp_stream,
            (UDP, _) => self.udp,
            (_, Family::V4) => self.icmp,
            (_, Family::V6) => self.icmpv6,
        };
        let ticks = u64::from(seconds) * ticks_of_a_second / 4;
        u32::try_from(ticks).unwrap_or(u32::MAX).max(1)
    }
}

/// The traffic of a connection of TCP past the kernel.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Traffic {
    /// What programs noted of each direction when it was looked at last.
    stamps: [u64; 2],
    /// The direction that alone had traffic then, if one had.
    one_sided: Option<usize>,
}

impl Traffic {
    /// The timeout that the kernel's entry is to have now, in seconds; `None` if it keeps what it has. If
    /// one direction alone has traffic twice in a row, its other end has gone.
    pub(super) fn renewal(&mut self, stamps: [u64; 2], timeouts: &Timeouts) -> Option<u32> {
        let [there, back] = [0, 1].map(|at| stamps[at] != self.stamps[at]);
        self.stamps = stamps;
        let before = self.one_sided.take();
        if there == back {
            return there.then_some(timeouts.tcp);
        }
        self.one_sided = Some(usize::from(back));
        // A probe and its answer may lie on both sides of one look.
        (before == self.one_sided).then(|| timeouts.tcp.min(timeouts.tcp_unacknowledged))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::connections::message::tests::{established, offloaded};

    #[test]
    fn a_connection_whose_other_end_is_gone_keeps_no_entry_for_days() {
        let timeouts = Timeouts::read();
        let (full, short) = (timeouts.tcp, timeouts.tcp.min(timeouts.tcp_unacknowledged));
        let mut traffic = Traffic::default();
        for (stamps, expected) in [
            ([1, 1], Some(full)),
            ([1, 1], None),
            ([2, 1], None),
            ([2, 2], None),
            ([3, 3], Some(full)),
            ([3, 4], None),
            ([3, 5], Some(short)),
            ([3, 6], Some(short)),
            ([4, 7], Some(full)),
            ([4, 8], None),
            ([4, 8], None),
            ([4, 9], None),
        ] {
            assert_eq!(traffic.renewal(stamps, &timeouts), expected, "{stamps:?}");
        }
    }

    #[test]
    fn tcp_of_a_flow_table_may_be_silent_for_less() {
        let mut timeouts = Timeouts::read();
        (timeouts.tcp, timeouts.tcp_unacknowledged, timeouts.tcp_retransmitted) = (432_000, 300, 300);
        assert_eq!(timeouts.interval(&established(), 1000), 225_000);
        assert_eq!(timeouts.interval(&offloaded(), 1000), 90_000);
    }
}
