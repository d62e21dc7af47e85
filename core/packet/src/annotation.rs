//! Names and places of Click's annotations.
//!
//! The language lets a configuration name any byte of the 48-byte annotation area (`Paint(3, ANNO 20)`), so
//! the area is bytes; what the router itself knows of a packet are typed fields of [`Packet`](crate::Packet).

/// Size of the annotation area, in bytes.
pub const ANNOTATION_SIZE: usize = 48;

/// Offsets of the annotations that have names.
pub mod anno {
    /// IPv4 destination, 4 bytes in network order.
    pub const DST_IP: usize = 0;
    /// IPv6 destination, 16 bytes.
    pub const DST_IP6: usize = 0;
    /// Paint colour, 1 byte.
    pub const PAINT: usize = 16;
    /// ICMP parameter-problem pointer, 1 byte.
    pub const ICMP_PARAM_PROB: usize = 17;
    /// Whether FixIPSrc must rewrite the source address, 1 byte.
    pub const FIX_IP_SRC: usize = 19;
    /// Aggregate number, 4 bytes.
    pub const AGGREGATE: usize = 20;
    /// VLAN tag control information, 2 bytes.
    pub const VLAN_TCI: usize = 20;
    /// Second half of the aggregate area, where `SEQUENCE_NUMBER` and IPsec data live.
    pub const SEQUENCE_NUMBER: usize = 24;
    /// Number of packets this one stands for, less one, 4 bytes.
    pub const EXTRA_PACKETS: usize = 24;
    /// Bytes that were on the wire but not captured, 4 bytes.
    pub const EXTRA_LENGTH: usize = 28;
    /// First time-stamp of a run, 8 bytes.
    pub const FIRST_TIMESTAMP: usize = 32;
    /// Cycle count, 8 bytes.
    pub const PERFCTR: usize = 40;
    /// The state that a packet filter found where an IPv4 packet came in, 4 bytes in the order of the
    /// machine: in the line of the descriptor that is at hand. An IPv6 packet has its destination there, so
    /// that this is a guess, and to be looked at.
    pub const FILTER_STATE4: usize = 8;
    /// The same of an IPv6 packet.
    pub const FILTER_STATE6: usize = 32;
    /// The tag that a packet filter gave a packet, 2 bytes in the order of the machine.
    pub const FILTER_TAG: usize = 36;

    /// Looks an annotation up by its name in a configuration; gives its offset and width in bytes.
    pub fn by_name(name: &str) -> Option<(usize, usize)> {
        Some(match name {
            "DST_IP" => (DST_IP, 4),
            "DST_IP6" => (DST_IP6, 16),
            "PAINT" => (PAINT, 1),
            "ICMP_PARAMPROB" => (ICMP_PARAM_PROB, 1),
            "FIX_IP_SRC" => (FIX_IP_SRC, 1),
            "AGGREGATE" => (AGGREGATE, 4),
            "VLAN_TCI" | "VLAN" => (VLAN_TCI, 2),
            "SEQUENCE_NUMBER" => (SEQUENCE_NUMBER, 4),
            "EXTRA_PACKETS" => (EXTRA_PACKETS, 4),
            "EXTRA_LENGTH" => (EXTRA_LENGTH, 4),
            "FIRST_TIMESTAMP" => (FIRST_TIMESTAMP, 8),
            "PERFCTR" => (PERFCTR, 8),
            _ => return None,
        })
    }
}
