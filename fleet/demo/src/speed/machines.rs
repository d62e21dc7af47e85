//! Machines of a fleet without clients and servers: routers that play packets, with `artery-fleet`.

use std::fs::File;
use std::io::{BufWriter, Write as _};
use std::net::Ipv4Addr;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, anyhow, bail};
use artery_control::ControlClient;
use artery_rig::{Host, Process, Rig, Switch};
use artery_wire::TcpFlags;
use artery_wire::build::ip4;
use serde_json::Value;
use tempfile::TempDir;

use crate::balancers::Programs;

/// How long anything may take to be as it should.
const LIMIT: Duration = Duration::from_secs(120);

pub(super) struct Machines {
    rig: Rig,
    pub(super) switch: Switch,
    programs: Programs,
    flows: u32,
    count: u8,
    /// More lines of each `artery-fleet`'s file.
    pub(super) more: String,
    pub(super) folder: TempDir,
}

pub(super) struct Machine {
    pub(super) host: Host,
    number: u8,
    pub(super) router: Option<Process>,
    pub(super) fleet: Option<Process>,
    control: Option<ControlClient<UnixStream>>,
    socket: PathBuf,
    config: PathBuf,
    program: PathBuf,
}

/// The packet of a client by its number: each has an address of its own.
pub(super) fn packet(client: u32, flags: TcpFlags) -> Vec<u8> {
    ip4().src(address(client)).dst("192.0.2.1").tcp(40_000, 80).flags(flags).bytes()
}

pub(super) fn address(client: u32) -> Ipv4Addr {
    Ipv4Addr::from(u32::from(Ipv4Addr::new(11, 0, 0, 1)) + client)
}

impl Machines {
    pub(super) fn new(rig: &Rig, programs: &Programs, count: u8, flows: u32) -> Result<Machines> {
        let programs = Programs { artery: programs.artery.clone(), fleet: programs.fleet.clone() };
        let (rig, switch, folder) = (rig.clone(), rig.switch("middle")?, tempfile::tempdir()?);
        let machines = Machines { rig, switch, programs, flows, count, more: String::new(), folder };
        write_capture(&machines.capture(), flows)?;
        Ok(machines)
    }

    fn capture(&self) -> PathBuf {
        self.folder.path().join("flows.pcap")
    }

    /// A machine on the switch, without its programs.
    pub(super) fn machine(&self, number: u8) -> Result<Machine> {
        let host = self.rig.host(&format!("m{number}"))?;
        self.rig.plug(&host, "eth0", &self.switch)?;
        host.address("eth0", &format!("10.77.2.{number}/24"))?;
        let folder = self.folder.path();
        Ok(Machine {
            host,
            number,
            router: None,
            fleet: None,
            control: None,
            socket: folder.join(format!("m{number}.sock")),
            config: folder.join(format!("m{number}.toml")),
            program: self.programs.artery.clone(),
        })
    }

    /// Starts a machine's router. It plays the capture on request, and takes frames that come by `device`.
    pub(super) fn start_router(
        &self,
        machine: &mut Machine,
        members: &str,
        device: Option<&str>,
    ) -> Result<()> {
        machine.stop_router();
        let receive = device.map_or(String::new(), |device| {
            format!("FromDevice({device}, SNIFFER false) -> Strip(14) -> MarkIPHeader(0) -> b;")
        });
        let graph = format!(
            "f :: FromDump({}, ACTIVE false) -> MarkIPHeader(0) -> b :: FlowBalancer(
             SERVICE 192.0.2.1:80 tcp, {members}, FLOWS {}); {receive}
             b -> c :: Counter -> Discard; b[1] -> Discard;",
            self.capture().display(),
            (2 * self.flows).max(1 << 20),
        );
        let words = [self.programs.artery.as_os_str(), "run".as_ref(), "-u".as_ref()];
        let command = machine.host.command(words).arg(&machine.socket).arg("-e").arg(graph);
        machine.router = Some(command.spawn()?);
        wait_until("the router's socket", || Ok(machine.read("exchange").is_ok()))
    }

    pub(super) fn start_fleet(&self, machine: &mut Machine) -> Result<()> {
        let own = machine.number;
        let peers: Vec<String> =
            (1..=self.count).filter(|n| *n != own).map(|n| format!("10.77.2.{n}:7447")).collect();
        let text = format!(
            "fleet = \"speed\"\nid = \"1\"\nmachine = \"m{own}\"\nlisten = [\"10.77.2.{own}:7447\"]\n\
             peers = {peers:?}\ncontrol = {:?}\nbalancer = \"b\"\nstatus = {:?}\ninsecure = true\n{}",
            machine.socket,
            machine.config.with_extension("status"),
            self.more,
        );
        std::fs::write(&machine.config, text)?;
        let words = [self.programs.fleet.as_os_str(), "run".as_ref(), "--config".as_ref()];
        machine.fleet = Some(machine.host.command(words).arg(&machine.config).spawn()?);
        Ok(())
    }

    /// What `artery-fleet status --json` says; null while it does not answer.
    pub(super) fn status(&self, machine: &Machine) -> Result<Value> {
        let words = [self.programs.fleet.as_os_str(), "status".as_ref(), "--json".as_ref()];
        let command = machine.host.command(words).arg("--config").arg(&machine.config);
        Ok(serde_json::from_str(&command.output()?.stdout).unwrap_or_default())
    }

    /// Waits until a machine has all exceptions of so many peers.
    pub(super) fn wait_for_peers(&self, machine: &Machine, count: usize) -> Result<()> {
        wait_until("peers", || {
            let status = self.status(machine)?;
            let peers = status["peers"].as_array().map_or(&[][..], Vec::as_slice);
            let is_known = |peer: &&Value| peer["is_present"] == true && peer["is_complete"] == true;
            Ok(peers.iter().filter(is_known).count() == count)
        })
    }
}

impl Machine {
    pub(super) fn stop_router(&mut self) {
        (self.control, self.router) = (None, None);
        // A router that was killed leaves its socket.
        let _ = std::fs::remove_file(&self.socket);
    }

    fn control(&mut self) -> Result<&mut ControlClient<UnixStream>> {
        if self.control.is_none() {
            self.control = Some(ControlClient::new(UnixStream::connect(&self.socket)?)?);
        }
        self.control.as_mut().ok_or_else(|| anyhow!("a connection was just made"))
    }

    /// A handler of the balancer `b`, with parameters behind its name.
    pub(super) fn read(&mut self, handler: &str) -> Result<String> {
        let answer = self.control()?.read(&format!("b.{handler}"));
        // A connection that failed is of no use any more.
        let value = answer.inspect_err(|_| self.control = None)?;
        let value = value.map_err(|refusal| anyhow!("{handler}: {} {}", refusal.code, refusal.text))?;
        Ok(String::from_utf8(value)?)
    }

    /// A handler by its whole name.
    pub(super) fn write(&mut self, handler: &str, value: &str) -> Result<()> {
        let answer = self.control()?.write(handler, value);
        let reply = answer.inspect_err(|_| self.control = None)?;
        reply.map(drop).map_err(|refusal| anyhow!("{handler}: {} {}", refusal.code, refusal.text))
    }

    pub(super) fn flows(&mut self) -> Result<u64> {
        Ok(self.read("flows")?.trim().parse()?)
    }

    /// Plays the whole capture: two packets of each of so many flows.
    pub(super) fn play(&mut self, flows: u32) -> Result<()> {
        self.write("f.active", "true")?;
        wait_until("packets of the capture", || Ok(self.count()? >= 2 * u64::from(flows)))
    }

    /// Packets that the balancer has sent to members.
    pub(super) fn count(&mut self) -> Result<u64> {
        let count = self.control()?.read("c.count")?.map_err(|refusal| anyhow!(refusal.text))?;
        Ok(String::from_utf8_lossy(&count).trim().parse()?)
    }

    pub(super) fn number(&self) -> u8 {
        self.number
    }

    /// `artery flow WORDS FILE`.
    pub(super) fn flow(&self, words: &[&str], file: &Path) -> Result<()> {
        let command = self.host.command([self.program.as_os_str(), "flow".as_ref()]).args(words);
        command.arg("-u").arg(&self.socket).arg(file).limit(LIMIT).run()?;
        Ok(())
    }

    /// How many exceptions the router has.
    pub(super) fn exceptions(&self) -> Result<u64> {
        let file = self.config.with_extension("exceptions");
        self.flow(&["export", "--binary", "--exceptions"], &file)?;
        let bytes = std::fs::read(&file)?;
        let end = bytes.last_chunk::<8>().context("an export has an end")?;
        Ok(u64::from_be_bytes(*end))
    }
}

pub(super) fn wait_until(what: &str, mut is_so: impl FnMut() -> Result<bool>) -> Result<()> {
    let deadline = Instant::now() + LIMIT;
    while !is_so()? {
        if Instant::now() > deadline {
            bail!("{what}: not as they should be after {} s", LIMIT.as_secs());
        }
        std::thread::sleep(Duration::from_millis(20));
    }
    Ok(())
}

/// A SYN of each flow, and the packet that proves it behind it, so that few are unproven at a time.
fn write_capture(path: &Path, flows: u32) -> Result<()> {
    let mut file = BufWriter::new(File::create(path)?);

    for word in [0xa1b2_c3d4_u32, 0x0004_0002, 0, 0, 65535, 101] {
        file.write_all(&word.to_le_bytes())?;
    }
    for client in 0..flows {
        for flags in [TcpFlags::SYN, TcpFlags::ACK] {
            let bytes = packet(client, flags);
            let length = bytes.len() as u32;
            for word in [0, 0, length, length] {
                file.write_all(&u32::to_le_bytes(word))?;
            }
            file.write_all(&bytes)?;
        }
    }
    Ok(file.flush()?)
}
