//! The routing protocol that a dynamic route comes from.
use std::fmt;

/// A routing protocol, by the number that the kernel and routing
/// daemons give it (RTPROT_…, linux/rtnetlink.h).
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Protocol(pub u8);

impl Protocol {
    /// RTPROT_KERNEL: routes that a kernel made of its addresses.
    pub const KERNEL: Protocol = Protocol(2);

    /// The name that ip(8) and FRR give it; none for numbers without one.
    pub const fn name(self) -> Option<&'static str> {
        Some(match self.0 {
            2 => "kernel",
            3 => "boot",
            4 => "static",
            9 => "ra",
            11 => "zebra",
            12 => "bird",
            16 => "dhcp",
            18 => "keepalived",
            42 => "babel",
            84 => "ovn",
            99 => "openr",
            186 => "bgp",
            187 => "isis",
            188 => "ospf",
            189 => "rip",
            190 => "ripng",
            191 => "nhrp",
            192 => "eigrp",
            193 => "ldp",
            194 => "sharp",
            195 => "pbr",
            // FRR's own static routes, which are not those of this router.
            196 => "zstatic",
            197 => "openfabric",
            198 => "srte",
            _ => return None,
        })
    }
}

impl fmt::Display for Protocol {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.name() {
            Some(name) => f.write_str(name),
            None => write!(f, "proto-{}", self.0),
        }
    }
}
