//! A kernel that forwards between two hosts, whose ports are to be adopted.
use artery_lab::program::artery;
use artery_lab::rig::{self, Host, Result, Rig};

/// Hosts `a` and `b` at either side of `r`, the kernel of which forwards.
pub struct Net {
    pub a: Host,
    pub r: Host,
    pub b: Host,
}

/// Runs a test on such hosts: `a` is 10.0.1.2 and 2001:db8:1::2, `b` 10.0.2.2 and 2001:db8:2::2.
pub fn on_the_net(label: &str, body: impl FnOnce(&Net) -> Result<()>) {
    rig::test(label, |rig: &Rig| {
        artery()?;
        let (a, r, b) = (rig.host("a")?, rig.host("r")?, rig.host("b")?);
        rig.link(&a, "eth0", &r, "eth0")?;
        rig.link(&b, "eth0", &r, "eth1")?;
        r.address("eth0", "10.0.1.1/24")?.address("eth1", "10.0.2.1/24")?.forwarding(true)?;
        r.address("eth0", "2001:db8:1::1/64")?.address("eth1", "2001:db8:2::1/64")?;
        for (host, number) in [(&a, 1), (&b, 2)] {
            host.address("eth0", &format!("10.0.{number}.2/24"))?
                .route("default", &format!("10.0.{number}.1"))?;
            host.address("eth0", &format!("2001:db8:{number}::2/64"))?
                .route("default", &format!("2001:db8:{number}::1"))?;
            // A virtual link sends redirected frames only to an end that joins frames.
            host.run(["ethtool", "-K", "eth0", "gro", "on"])?;
        }
        body(&Net { a, r, b })
    });
}
