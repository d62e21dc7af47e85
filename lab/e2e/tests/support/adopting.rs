//! A kernel that forwards between two hosts, whose ports are to be adopted.
use super::{Running, SOON, until};
use artery_rig::program::artery;
use artery_rig::{Host, Result, Rig};
use std::net::{IpAddr, UdpSocket};
use std::time::Duration;

/// Hosts `a` and `b` at either side of `r`, the kernel of which forwards.
pub struct Net {
    pub a: Host,
    pub r: Host,
    pub b: Host,
}

/// Runs a test on such hosts: `a` is 10.0.1.2 and 2001:db8:1::2, `b` 10.0.2.2 and 2001:db8:2::2.
pub fn on_the_net(label: &str, body: impl FnOnce(&Net) -> Result<()>) {
    artery_rig::test(label, |rig: &Rig| body(&Net::make(rig)?));
}

impl Net {
    /// Makes the hosts and what joins them.
    pub fn make(rig: &Rig) -> Result<Net> {
        Net::named(rig, "")
    }

    /// The same, where names of hosts begin with something.
    pub fn named(rig: &Rig, prefix: &str) -> Result<Net> {
        artery()?;
        let host = |name: &str| rig.host(&format!("{prefix}{name}"));
        let net = Net { a: host("a")?, r: host("r")?, b: host("b")? };
        net.r.forwarding(true)?;
        net.connect(rig, 1)?;
        net.connect(rig, 2)?;
        Ok(net)
    }

    /// Joins `a` to eth0 of `r` (1), or `b` to eth1 (2).
    pub fn connect(&self, rig: &Rig, number: u8) -> Result<()> {
        let (host, port) = if number == 1 { (&self.a, "eth0") } else { (&self.b, "eth1") };
        rig.link(host, "eth0", &self.r, port)?;
        let (network4, network6) = (format!("10.0.{number}"), format!("2001:db8:{number}:"));
        self.r.address(port, &format!("{network4}.1/24"))?.address(port, &format!("{network6}:1/64"))?;
        host.address("eth0", &format!("{network4}.2/24"))?.route("default", &format!("{network4}.1"))?;
        host.address("eth0", &format!("{network6}:2/64"))?.route("default", &format!("{network6}:1"))?;
        // A virtual link sends redirected frames only to an end that joins frames.
        host.run(["ethtool", "-K", "eth0", "gro", "on"])?;
        Ok(())
    }
}

/// A kernel that forwards from `a` to gateways, each of which takes all of 198.18.0.0/16 and
/// 2001:db8:ff::/64 as its own.
///
/// `a` is 10.0.0.2 and 2001:db8::2 at eth0 of `r`, the first gateway 10.0.1.2 and 2001:db8:1::2 at
/// eth1, and so on.
pub struct Fan {
    pub a: Host,
    pub r: Host,
    pub gateways: Vec<Host>,
}

/// Runs a test with so many gateways.
pub fn with_gateways(label: &str, count: usize, body: impl FnOnce(&Fan) -> Result<()>) {
    artery_rig::test(label, |rig: &Rig| {
        artery()?;
        let (a, r) = (rig.host("a")?, rig.host("r")?);
        let gateways =
            (1..=count).map(|number| rig.host(&format!("g{number}"))).collect::<Result<Vec<_>>>()?;
        r.forwarding(true)?;
        for (number, host) in std::iter::once(&a).chain(&gateways).enumerate() {
            let port = format!("eth{number}");
            // What XDP sends on must be whole.
            rig.link(host, "eth0", &r, &port)?.offloads(false)?;
            host.run(["ethtool", "-K", "eth0", "gro", "on"])?;
            r.address(&port, &format!("10.0.{number}.1/24"))?
                .address(&port, &format!("2001:db8:{number}::1/64"))?;
            host.address("eth0", &format!("10.0.{number}.2/24"))?
                .address("eth0", &format!("2001:db8:{number}::2/64"))?;
            host.route("default", &format!("10.0.{number}.1"))?
                .route("default", &format!("2001:db8:{number}::1"))?;
        }
        for gateway in &gateways {
            gateway.run(["ip", "route", "add", "local", "198.18.0.0/16", "dev", "lo"])?;
            gateway.run(["ip", "route", "add", "local", "2001:db8:ff::/64", "dev", "lo"])?;
        }
        body(&Fan { a, r, gateways })
    });
}

impl Fan {
    /// Has the router's kernel know all neighbors, and adopts its ports.
    pub fn adopt(&self, path: &str) -> Result<Running> {
        for number in 1..=self.gateways.len() {
            self.r.ping(&format!("10.0.{number}.2"), 1)?;
            self.r.ping(&format!("2001:db8:{number}::2"), 1)?;
        }
        self.r.ping("10.0.0.2", 1)?;
        self.r.ping("2001:db8::2", 1)?;
        let ports: Vec<String> = (0..=self.gateways.len()).map(|number| format!("eth{number}")).collect();
        let ports: Vec<&str> = ports.iter().map(String::as_str).collect();
        Running::adopt_ports(&self.r, &[&["--path", path][..], &ports].concat())
    }

    /// Sends a datagram to each of these, waits until all have arrived, and gives how many
    /// came to each gateway.
    pub fn send(&self, flows: &[(IpAddr, u16)]) -> Result<Vec<u64>> {
        let before = self.received()?;
        self.a.enter(|| {
            let sockets = ["0.0.0.0:7004", "[::]:7006"].map(|local| UdpSocket::bind(local).unwrap());
            for some in flows.chunks(50) {
                for flow in some {
                    // The socket may report a gateway's answer to an earlier datagram instead.
                    let _ = sockets[usize::from(flow.0.is_ipv6())].send_to(b"x", flow);
                }
                // Queues of virtual links are short.
                std::thread::sleep(Duration::from_millis(1));
            }
        })?;
        let mut each = Vec::new();
        until(SOON, || {
            let now = self.received()?;
            each = now.iter().zip(&before).map(|(now, before)| now - before).collect();
            Ok(each.iter().sum::<u64>() >= flows.len() as u64)
        })?;
        Ok(each)
    }

    /// Datagrams that each gateway has received for a port without listener.
    pub fn received(&self) -> Result<Vec<u64>> {
        let of = |host: &Host| Ok(host.kernel_counter("UdpNoPorts")? + host.kernel_counter("Udp6NoPorts")?);
        self.gateways.iter().map(of).collect()
    }
}

impl Running {
    /// Adopts both ports of `r` by a path, with more options, and waits until it forwards.
    pub fn adopt(net: &Net, path: &str, options: &[&str]) -> Result<Running> {
        Running::adopt_ports(&net.r, &[&["--path", path, "eth0", "eth1"][..], options].concat())
    }

    /// The same for ports of any host.
    pub fn adopt_ports(host: &Host, words: &[&str]) -> Result<Running> {
        let adopted = Running::spawn(host, [&["adopt"][..], words].concat())?;
        // Work on tables and programs, which others may hold up.
        adopted.wait_for("forwarding\n", 6 * SOON)?;
        Ok(adopted)
    }

    /// What it tells of itself.
    pub fn state(&self) -> Result<serde_json::Value> {
        self.json_of("state")
    }
}

/// Has both hosts send whole frames if XDP is to send them on.
pub fn send_whole_frames(net: &Net, path: &str) -> Result<()> {
    [&net.a, &net.b].into_iter().filter(|_| path != "tc").try_for_each(|host| {
        host.run(["ethtool", "-K", "eth0", "tx", "off", "tso", "off", "gso", "off"]).map(drop)
    })
}

/// The same, and has the router know both hosts.
pub fn prepare(net: &Net, path: &str) -> Result<()> {
    send_whole_frames(net, path)?;
    let hosts = ["10.0.1.2", "10.0.2.2", "2001:db8:1::2", "2001:db8:2::2"];
    hosts.iter().try_for_each(|address| net.r.ping(address, 1).map(drop))
}

/// Packets that were forwarded from a port, by the report at the end.
pub fn forwarded(report: &str, port: &str) -> u64 {
    let line = report.lines().find_map(|line| line.strip_prefix(&format!("{port}: ")));
    let number = line.and_then(|line| line.split(' ').next()).and_then(|number| number.parse().ok());
    number.unwrap_or_else(|| panic!("no line of {port}: {report}"))
}

/// Datagrams of IPv4 that the kernel itself has forwarded.
pub fn by_kernel(host: &Host) -> Result<u64> {
    host.kernel_counter("IpForwDatagrams")
}

/// The same of IPv6.
pub fn by_kernel6(host: &Host) -> Result<u64> {
    host.kernel_counter("Ip6OutForwDatagrams")
}

/// Requests for echoes that a host has seen, of both families.
pub fn echoes(host: &Host) -> Result<[u64; 2]> {
    Ok([host.kernel_counter("IcmpInEchos")?, host.kernel_counter("Icmp6InEchos")?])
}
