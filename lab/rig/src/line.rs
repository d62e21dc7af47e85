//! The topology most tests want: a host, a router, a host.

use super::error::Result;
use super::host::Host;
use super::{Link, Rig};

/// Three hosts in a row, with IPv4 and IPv6 addresses and default routes; the router does not forward yet.
///
/// ```text
/// a eth0 ────────────────── eth0 r eth1 ────────────────── eth0 b
///   10.0.1.2      10.0.1.1               10.0.2.1      10.0.2.2     /24
///   fd00:1::2     fd00:1::1              fd00:2::1     fd00:2::2    /64
/// ```
pub struct Line {
    /// The host on the left.
    pub a: Host,
    /// The router between the two.
    pub r: Host,
    /// The host on the right.
    pub b: Host,
    /// The link between `a` and `r`.
    pub left: Link,
    /// The link between `r` and `b`.
    pub right: Link,
}

impl Line {
    pub(super) fn create(rig: &Rig) -> Result<Line> {
        let (a, r, b) = (rig.host("a")?, rig.host("r")?, rig.host("b")?);
        let left = rig.link(&a, "eth0", &r, "eth0")?;
        let right = rig.link(&b, "eth0", &r, "eth1")?;
        for (host, interface, net) in [(&a, "eth0", 1), (&b, "eth0", 2)] {
            host.address(interface, &format!("10.0.{net}.2/24"))?
                .route("default", &format!("10.0.{net}.1"))?;
            host.address(interface, &format!("fd00:{net}::2/64"))?
                .route("default", &format!("fd00:{net}::1"))?;
        }
        r.address("eth0", "10.0.1.1/24")?.address("eth0", "fd00:1::1/64")?;
        r.address("eth1", "10.0.2.1/24")?.address("eth1", "fd00:2::1/64")?;
        Ok(Line { a, r, b, left, right })
    }
}
