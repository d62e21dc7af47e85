//! Minutes without etcd, without zenoh, and with one machine cut off: packets go on, memory is bounded, and
//! machines agree soon after the end.

use std::time::{Duration, Instant};

use anyhow::{Context, Result, anyhow, ensure};
use artery_rig::{Host, Injector, Process, Rig};
use artery_wire::build::ether;
use artery_wire::{EtherType, TcpFlags};

use super::machines::{Machine, Machines, packet, wait_until};
use super::usage::memory_mib;
use super::{Figure, figure, most};
use crate::balancers::Programs;

const MEMBERS: &str = "MEMBER a 10.0.0.1, MEMBER b 10.0.0.2, MEMBER c 10.0.0.3, MEMBER d 10.0.0.4";
const FLOWS: u32 = 100_000;
/// Servers of etcd, each with an address of its own on one host.
const SERVERS: u8 = 3;
/// Packets of known flows at a time, and the time between them: 1,000 a second.
const AT_ONCE: u32 = 20;
const STEP: Duration = Duration::from_millis(20);
/// How often member d is drained, or takes flows again: a fourth of all flows are exceptions, or none.
const CHANGED_EVERY: Duration = Duration::from_secs(5);
/// How often memory is looked at.
const LOOKED_EVERY: Duration = Duration::from_secs(10);

struct Scene {
    machines: Machines,
    all: [Machine; 3],
    etcd: Host,
    servers: Vec<Process>,
    source: Injector,
    mac: String,
    sent: u64,
}

pub(super) fn measure(programs: &Programs, minutes: f64) -> Result<Vec<Vec<Figure>>> {
    let rig = Rig::new("fleet-outage")?;
    let mut scene = Scene::open(&rig, programs)?;
    scene.begin_outage()?;
    let [settled, largest] = scene.outlast(Duration::from_secs_f64(60.0 * minutes))?;
    let [states, etcd] = scene.end_outage()?;
    let forwarded = scene.forwarded()?;
    let lost = scene.sent - (forwarded - 2 * u64::from(FLOWS));
    Ok(vec![vec![
        figure("minutes", minutes),
        figure("packets forwarded meanwhile and after", scene.sent as f64),
        most("of them lost", lost as f64, 0.0),
        most(
            "growth of the largest memory after the first sixth, %",
            100.0 * (largest / settled - 1.0),
            10.0,
        ),
        figure("largest memory of an artery-fleet, MiB", largest),
        most("from the end of the cuts until states agree, s", states.as_secs_f64(), 2.0),
        most("from etcd's start until machines see one another there, s", etcd.as_secs_f64(), 2.0),
    ]])
}

impl Scene {
    fn open(rig: &Rig, programs: &Programs) -> Result<Scene> {
        let mut machines = Machines::new(rig, programs, 3, FLOWS)?;
        let etcd = rig.host("etcd")?;
        rig.plug(&etcd, "eth0", &machines.switch)?;
        (1..=SERVERS)
            .try_for_each(|number| etcd.address("eth0", &format!("{}/24", server(number))).map(drop))?;
        let mut all = [machines.machine(1)?, machines.machine(2)?, machines.machine(3)?];
        let source = rig.host("source")?;
        rig.link(&source, "eth0", &all[0].host, "eth1")?;
        let endpoints: Vec<String> = (1..=SERVERS).map(|n| format!("http://{}:2379", server(n))).collect();
        let file = machines.folder.path().join("router.toml");
        machines.more = format!("[etcd]\nendpoints = {endpoints:?}\nrouter_file = {file:?}\n");
        for machine in &mut all {
            let device = if machine.number() == 1 { Some("eth1") } else { None };
            machines.start_router(machine, MEMBERS, device)?;
            machines.start_fleet(machine)?;
        }
        all[0].play(FLOWS)?;
        let (mac, source) = (all[0].host.mac("eth1")?, source.injector("eth0")?);
        let mut scene = Scene { machines, all, etcd, servers: Vec::new(), source, mac, sent: 0 };
        scene.start_servers()?;
        scene.all.iter().try_for_each(|machine| scene.machines.wait_for_peers(machine, 2))?;
        wait_until("machines in etcd", || scene.see_one_another())?;
        Ok(scene)
    }

    fn start_servers(&mut self) -> Result<()> {
        let name = |number| format!("s{number}");
        let peer = |number| format!("http://{}:2380", server(number));
        let cluster: Vec<String> = (1..=SERVERS).map(|n| format!("{}={}", name(n), peer(n))).collect();
        for number in 1..=SERVERS {
            let client = format!("http://{}:2379", server(number));
            let folder = self.machines.folder.path().join(name(number)).display().to_string();
            let words = [
                ("--name", name(number)),
                ("--data-dir", folder),
                ("--logger", "zap".to_string()),
                ("--log-level", "error".to_string()),
                ("--listen-client-urls", client.clone()),
                ("--advertise-client-urls", client),
                ("--listen-peer-urls", peer(number)),
                ("--initial-advertise-peer-urls", peer(number)),
                ("--initial-cluster", cluster.join(",")),
            ];
            let words = words.into_iter().flat_map(|(option, value)| [option.to_string(), value]);
            self.servers.push(self.etcd.spawn(std::iter::once("etcd".to_string()).chain(words))?);
        }
        Ok(())
    }

    /// Whether all machines see all of them in etcd, with the same table.
    fn see_one_another(&self) -> Result<bool> {
        for machine in &self.all {
            let seen = &self.machines.status(machine)?["configuration"];
            let all = seen["machines"].as_array().map_or(&[][..], Vec::as_slice);
            let agree = all.iter().filter(|one| one["differs"] == false).count();
            if seen["is_connected"] != true || agree != 3 {
                return Ok(false);
            }
        }
        Ok(true)
    }

    fn begin_outage(&mut self) -> Result<()> {
        // Dropped processes are killed.
        self.servers.clear();
        self.cut_zenoh("add")?;
        self.cut_off(true)
    }

    /// Has machine 1 send nothing of zenoh's, or ends that.
    fn cut_zenoh(&self, verb: &str) -> Result<()> {
        for (pref, end) in [("10", "dport"), ("11", "sport")] {
            let words = ["ip", "rule", verb, "pref", pref, "ipproto", "tcp", end, "7447", "blackhole"];
            self.all[0].host.run(words)?;
        }
        Ok(())
    }

    /// Has the switch drop all frames of machine 3, whose link stays up, or ends that.
    fn cut_off(&self, is_cut: bool) -> Result<()> {
        // Disabled, and forwarding: include/uapi/linux/if_bridge.h. The servers have port1.
        let state = if is_cut { "0" } else { "3" };
        self.machines.switch.host().run(["bridge", "link", "set", "dev", "port4", "state", state])?;
        Ok(())
    }

    /// Packets and changes for so long; the largest memory of an `artery-fleet` in its first sixth and later.
    fn outlast(&mut self, time: Duration) -> Result<[f64; 2]> {
        let begun = Instant::now();
        let (mut changed, mut looked, mut is_drained) = (begun, begun, false);
        let (mut settled, mut largest) = (0_f64, 0_f64);
        while begun.elapsed() < time {
            self.send()?;
            if changed.elapsed() >= CHANGED_EVERY {
                (changed, is_drained) = (Instant::now(), !is_drained);
                self.set_weight(u32::from(!is_drained))?;
            }
            if looked.elapsed() >= LOOKED_EVERY {
                looked = Instant::now();
                let memory = self.memory()?;
                let which = if begun.elapsed() < time / 6 { &mut settled } else { &mut largest };
                *which = which.max(memory);
            }
            std::thread::sleep(STEP);
        }
        self.set_weight(0)?;
        Ok([settled, largest])
    }

    /// Sends packets of the next flows.
    fn send(&mut self) -> Result<()> {
        let frame = |client: u32| {
            let packet = packet(client % FLOWS, TcpFlags::ACK);
            ether(self.mac.as_str(), "02:00:00:00:00:01").raw(EtherType(0x0800), packet).bytes()
        };
        let first = (self.sent % u64::from(FLOWS)) as u32;
        let frames: Vec<_> = (first..first + AT_ONCE).map(frame).collect();
        let sent = self.source.send(&frames);
        ensure!(sent == u64::from(AT_ONCE), "frames could not be sent");
        self.sent += sent;
        Ok(())
    }

    fn set_weight(&mut self, weight: u32) -> Result<()> {
        self.all.iter_mut().try_for_each(|machine| machine.write("b.weight", &format!("d {weight}")))
    }

    fn memory(&self) -> Result<f64> {
        let of = |machine: &Machine| memory_mib(machine.fleet.as_ref().context("not running")?.id());
        self.all.iter().map(of).try_fold(0_f64, |largest, one| Ok(largest.max(one?)))
    }

    /// How long it takes until all have the exceptions of machine 1, and then until etcd is followed.
    fn end_outage(&mut self) -> Result<[Duration; 2]> {
        let exceptions = self.all[0].exceptions()?;
        ensure!(exceptions > 0, "there are no exceptions");
        self.cut_zenoh("del")?;
        self.cut_off(false)?;
        let healed = Instant::now();
        let [_, second, third] = &mut self.all;
        wait_until("copies", || Ok(second.flows()? == exceptions && third.flows()? == exceptions))?;
        let states = healed.elapsed();
        let started = Instant::now();
        self.start_servers()?;
        wait_until("machines in etcd", || self.see_one_another())?;
        Ok([states, started.elapsed()])
    }

    /// Packets that passed the balancer of machine 1.
    fn forwarded(&mut self) -> Result<u64> {
        // The last ones may be on their way.
        std::thread::sleep(Duration::from_millis(200));
        self.all[0].count().map_err(|error| anyhow!("packets can't be counted: {error:#}"))
    }
}

fn server(number: u8) -> String {
    format!("10.77.2.{}", 100 + number)
}
