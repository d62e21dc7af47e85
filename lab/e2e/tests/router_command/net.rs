//! Two hosts with a router between them, and the router's program.

pub(crate) use crate::support::Running;
use artery_rig::program::artery;
use artery_rig::{Host, Result, Rig};

/// Addresses of the hosts, by family.
pub(crate) const NEAR: [&str; 2] = ["10.0.1.2", "fd00:1::2"];
pub(crate) const FAR: [&str; 2] = ["10.0.2.2", "fd00:2::2"];
/// The router's on the side of `a`.
pub(crate) const OWN: [&str; 2] = ["10.0.1.1", "fd00:1::1"];
pub(crate) const PORTS: [&str; 4] =
    ["--port", "eth0=10.0.1.1/24,fd00:1::1/64", "--port", "eth1=10.0.2.1/24,fd00:2::1/64"];

/// Hosts `a` and `b` at either side of `r`, whose interfaces eth0 and eth1 have no addresses.
pub(crate) struct Net {
    pub(crate) a: Host,
    pub(crate) r: Host,
    pub(crate) b: Host,
}

pub(crate) fn on_the_net(label: &str, body: impl FnOnce(&Net) -> Result<()>) {
    artery_rig::test(label, |rig: &Rig| {
        artery()?;
        let (a, r, b) = (rig.host("a")?, rig.host("r")?, rig.host("b")?);
        rig.link(&a, "eth0", &r, "eth0")?;
        rig.link(&b, "eth0", &r, "eth1")?;
        for (host, number) in [(&a, 1), (&b, 2)] {
            host.address("eth0", &format!("10.0.{number}.2/24"))?
                .route("default", &format!("10.0.{number}.1"))?;
            host.address("eth0", &format!("fd00:{number}::2/64"))?
                .route("default", &format!("fd00:{number}::1"))?;
        }
        body(&Net { a, r, b })
    });
}

/// Starts a router on a host, and waits for nothing.
pub(crate) fn start_on(host: &Host, options: &[&str]) -> Result<Running> {
    Running::spawn(host, [&["router"], options].concat())
}

/// The same as a user and group of this number, in a folder of its own, with the capabilities of a unit.
pub(crate) fn start_as(user: u32, host: &Host, options: &[&str]) -> Result<Running> {
    const GRANTED: &str = "-all,+net_admin,+net_raw,+bpf,+perfmon,+setpcap";
    let folder = tempfile::tempdir().unwrap();
    std::os::unix::fs::chown(folder.path(), Some(user), Some(user)).unwrap();
    let socket = folder.path().join("control");
    let sets = ["bounding-set", "inh-caps", "ambient-caps"].map(|set| format!("--{set}={GRANTED}"));
    let process = host
        .command(["setpriv", "--clear-groups"])
        .args([format!("--reuid={user}"), format!("--regid={user}")])
        .args(sets)
        .arg(artery()?)
        .arg("router")
        .args(options)
        .arg("-u")
        .arg(&socket)
        .spawn()?;
    Ok(Running { process, host: host.clone(), socket, folder })
}

impl Running {
    /// Starts a router between the hosts, and waits until it forwards.
    pub(crate) fn start(net: &Net, options: &[&str]) -> Result<Running> {
        start_on(&net.r, &[&PORTS[..], options].concat())?.answering(net)
    }

    /// Waits until `a` reaches `b` by both families.
    pub(crate) fn answering(mut self, net: &Net) -> Result<Running> {
        FAR.iter().try_for_each(|far| self.until_answered(&net.a, far))?;
        Ok(self)
    }
}
