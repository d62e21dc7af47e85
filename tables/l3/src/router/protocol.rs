//! The routing protocol that a dynamic route comes from.
use artery_wire::NumberNames;
use std::fmt;

/// A routing protocol, by the number that the kernel and routing
/// daemons give it (RTPROT_…, linux/rtnetlink.h).
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Protocol(pub u8);

impl Protocol {
    /// RTPROT_KERNEL: routes that a kernel made of its addresses.
    pub const KERNEL: Protocol = Protocol(2);

    /// The name that ip(8) and FRR give it; none for numbers without one.
    pub fn name(self) -> Option<&'static str> {
        NAMES.name_of(self.0)
    }
}

/// `zstatic` are FRR's own static routes, which are not those of this router.
const NAMES: NumberNames = NumberNames(
    "
    kernel 2  boot 3  static 4  ra 9  zebra 11  bird 12  dhcp 16  keepalived 18  babel 42  ovn 84
    openr 99  bgp 186  isis 187  ospf 188  rip 189  ripng 190  nhrp 191  eigrp 192  ldp 193  sharp 194
    pbr 195  zstatic 196  openfabric 197  srte 198",
);

impl fmt::Display for Protocol {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.name() {
            Some(name) => f.write_str(name),
            None => write!(f, "proto-{}", self.0),
        }
    }
}
