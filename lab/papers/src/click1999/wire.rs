//! The three machines of 1999 on one segment, in network namespaces, and what goes through darkstar there.

use super::frames::{DARKSTAR, FRAME, PAYLOAD, TSB, TestStation, ZEUS};
use artery_rig::conf::CLICK_1999;
use artery_rig::program;
use artery_rig::{
    CommandOutput, Host, Process, Result, Rig, RigError, Signal, Switch, Traffic, TrafficReport,
};
use std::time::{Duration, Instant};

/// Darkstar's interface: the configuration calls it `eth0`.
pub const INTERFACE: &str = "lan0";
/// How long a router may take to begin and to end.
const PATIENCE: Duration = Duration::from_secs(10);

/// zeus, darkstar and tsb on one switch. The other two reach each other by darkstar only.
pub struct Segment {
    /// The host that sends.
    pub zeus: Host,
    /// The host that receives.
    pub tsb: Host,
    /// The host that forwards, by the interface it received on.
    pub darkstar: Host,
    /// The switch that connects the hosts.
    pub switch: Switch,
}

impl Segment {
    /// Builds it; nothing forwards yet.
    pub fn new(rig: &Rig) -> Result<Segment> {
        let switch = rig.switch("switch")?;
        let segment = Segment {
            zeus: join(rig, &switch, &ZEUS, "eth0")?,
            tsb: join(rig, &switch, &TSB, "eth0")?,
            darkstar: join(rig, &switch, &DARKSTAR, INTERFACE)?,
            switch,
        };
        let gateway = DARKSTAR.ip.to_string();
        segment.zeus.route(&format!("{}/32", TSB.ip), &gateway)?;
        segment.tsb.route(&format!("{}/32", ZEUS.ip), &gateway)?;
        segment.darkstar.forwarding(false)?;
        Ok(segment)
    }

    /// Starts the configuration of 1999 on darkstar and waits until it forwards.
    pub fn start_router(&self, options: &[&str]) -> Result<Process> {
        let device = format!("eth0={INTERFACE}");
        let words = ["run", "-e", CLICK_1999, "--device", &device];
        let command = self.darkstar.command([program::artery()?]).args(words).args(options);
        let mut process = command.spawn()?;
        let deadline = Instant::now() + PATIENCE;
        while self.zeus.ping(&TSB.ip.to_string(), 1)?.received == 0 {
            if !process.is_running() || Instant::now() > deadline {
                let wanted = format!("that it forwards within {PATIENCE:?}");
                return Err(RigError::NotSeen(process.failure(), wanted));
            }
        }
        Ok(process)
    }

    /// Ends the router as Control-C does.
    pub fn stop_router(&self, mut router: Process) -> Result<CommandOutput> {
        router.signal(Signal::INT);
        router.wait(PATIENCE)
    }

    /// Sends TCP with packets of 256 bytes in both directions; returns packets forwarded in
    /// a second, including acknowledgments.
    pub fn tcp(&self, seconds: u32) -> Result<f64> {
        let before = self.darkstar.counters(INTERFACE)?.tx_packets;
        let (time, size) = (seconds.to_string(), PAYLOAD.to_string());
        let options = ["-t", &time, "-M", &size, "--bidir"];
        self.zeus.iperf3(&self.tsb, &TSB.ip.to_string(), &options)?;
        let forwarded = self.darkstar.counters(INTERFACE)?.tx_packets - before;
        Ok(forwarded as f64 / f64::from(seconds))
    }

    /// Sends packets of 256 bytes one way, as many as zeus can.
    pub fn flood(&self, time: Duration) -> Result<TrafficReport> {
        Traffic::between(&self.zeus, &self.tsb, &TSB.ip.to_string()).frame_bytes(FRAME).lasting(time).run()
    }

    /// Makes TCP's packets what they were: each as it will be on the wire, and without options.
    pub fn as_in_1999(&self) -> Result<()> {
        for host in [&self.zeus, &self.tsb] {
            host.offloads("eth0", false)?.sysctl("net.ipv4.tcp_timestamps", "0")?;
        }
        self.darkstar.offloads(INTERFACE, false).map(|_| ())
    }
}

fn join(rig: &Rig, switch: &Switch, station: &TestStation, interface: &str) -> Result<Host> {
    let host = rig.host(station.name)?;
    rig.plug(&host, interface, switch)?.mac(&station.mac.to_string())?;
    host.address(interface, &format!("{}/24", station.ip))?;
    // On one segment a forwarding host would send the others ICMP redirects, and they would follow them.
    for scope in ["all", "default", interface] {
        let variable = |name: &str| format!("net.ipv4.conf.{scope}.{name}");
        host.sysctl(&variable("send_redirects"), "0")?.sysctl(&variable("accept_redirects"), "0")?;
        host.sysctl(&variable("rp_filter"), "0")?;
    }
    Ok(host)
}
