//! The balancers: `artery run` on each, and `artery-fleet` beside it, which announces it.

use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use artery_rig::{Host, Process};
use serde_json::Value;
use tempfile::TempDir;

use crate::network::{Network, SERVICE, balancer, server};

/// The programs that run on a balancer.
pub(crate) struct Programs {
    pub(crate) artery: PathBuf,
    pub(crate) fleet: PathBuf,
}

/// How long anything may take to be as it should.
const LIMIT: Duration = Duration::from_secs(60);

pub(crate) struct Balancers {
    all: Vec<Balancer>,
    programs: Programs,
    method: &'static str,
    is_mirrored: bool,
    /// Whether web1 is drained and web5 added, which a router that starts again must know from its start.
    has_changed: bool,
    folder: TempDir,
}

struct Balancer {
    host: Host,
    router: Option<Process>,
    fleet: Option<Process>,
}

impl Balancers {
    pub(crate) fn start(
        network: &Network,
        programs: &Programs,
        method: &'static str,
        is_mirrored: bool,
    ) -> Result<Balancers> {
        let folder = tempfile::tempdir()?;
        let all = network.balancers.iter();
        let all = all.map(|host| Balancer { host: host.clone(), router: None, fleet: None }).collect();
        let programs = Programs { artery: programs.artery.clone(), fleet: programs.fleet.clone() };
        let mut balancers = Balancers { all, programs, method, is_mirrored, has_changed: false, folder };
        (1..=3).try_for_each(|number| balancers.start_router(number))?;
        if is_mirrored {
            (1..=3).try_for_each(|number| balancers.start_fleet(number))?;
        }
        Ok(balancers)
    }

    pub(crate) fn start_router(&mut self, number: u8) -> Result<()> {
        let socket = self.socket(number);
        // A router that was killed leaves its socket.
        let _ = std::fs::remove_file(&socket);
        let graph = graph(number, self.method, self.has_changed);
        let words = [
            self.programs.artery.as_os_str(),
            "run".as_ref(),
            "-u".as_ref(),
            socket.as_os_str(),
            "-e".as_ref(),
            graph.as_ref(),
        ];
        let router = self.all[usize::from(number) - 1].host.spawn(words)?;
        self.all[usize::from(number) - 1].router = Some(router);
        wait_for("the router's socket", || Ok(self.read(number, "exchange").is_ok()))
    }

    fn start_fleet(&mut self, number: u8) -> Result<()> {
        let config = self.write_fleet_config(number)?;
        let words =
            [self.programs.fleet.as_os_str(), "run".as_ref(), "--config".as_ref(), config.as_os_str()];
        let fleet = self.all[usize::from(number) - 1].host.spawn(words)?;
        self.all[usize::from(number) - 1].fleet = Some(fleet);
        Ok(())
    }

    /// `kill -9` of the router.
    pub(crate) fn kill(&mut self, number: u8) {
        self.all[usize::from(number) - 1].router = None;
    }

    /// Has a balancer leave the fleet (`artery-fleet leave`).
    pub(crate) fn leave(&self, number: u8) -> Result<()> {
        let words = [self.programs.fleet.as_os_str(), "leave".as_ref(), "--config".as_ref()];
        let config = self.folder.path().join(format!("b{number}.toml"));
        let command = self.all[usize::from(number) - 1].host.command(words).arg(config);
        Ok(command.limit(LIMIT).run().map(drop)?)
    }

    /// Drains web1 and adds web5 at all.
    pub(crate) fn change_members(&mut self) -> Result<()> {
        for number in 1..=3 {
            self.write(number, "add_member", &format!("web5 {}", server(5)))?;
            self.write(number, "weight", "web1 0")?;
        }
        self.has_changed = true;
        Ok(())
    }

    /// Waits until each has fetched the exceptions of all others.
    pub(crate) fn await_peers(&self) -> Result<()> {
        let has_all = |status: &Value| {
            let peers = status["peers"].as_array().map_or(&[][..], Vec::as_slice);
            let is_known = |peer: &&Value| peer["is_present"] == true && peer["is_complete"] == true;
            peers.iter().filter(is_known).count() == 2
        };
        for number in (1..=3).filter(|_| self.is_mirrored) {
            wait_for("peers of a balancer", || {
                Ok(self.status(number).is_some_and(|status| has_all(&status)))
            })?;
        }
        Ok(())
    }

    /// How many flows with packets are exceptions; waits until all balancers know all of them, if
    /// they tell one another.
    pub(crate) fn await_exceptions(&self) -> Result<usize> {
        let mut count = 0;
        wait_for("exceptions", || {
            let all = (1..=3).map(|number| self.exceptions(number)).collect::<Result<Vec<_>>>()?;
            count = all.iter().map(|[own, _]| own).sum();
            Ok(!self.is_mirrored || all.iter().all(|[own, copies]| own + copies == count))
        })?;
        Ok(count)
    }

    /// Long flows that are exceptions at a balancer: with packets, and known from peers.
    fn exceptions(&self, number: u8) -> Result<[usize; 2]> {
        let text = self.call(number, &["flow", "export", "--exceptions"], &[])?;
        let lines = text.lines().filter_map(|line| serde_json::from_str::<Value>(line).ok());
        let imported: Vec<bool> = lines
            .filter(|line| line["state"] == "established")
            .filter_map(|line| line["imported"].as_bool())
            .collect();
        let copies = imported.iter().filter(|is_copy| **is_copy).count();
        Ok([imported.len() - copies, copies])
    }

    pub(crate) fn status_text(&self, number: u8) -> Result<String> {
        let words = [self.programs.fleet.as_os_str(), "status".as_ref(), "--config".as_ref()];
        let config = self.folder.path().join(format!("b{number}.toml"));
        let command = self.all[usize::from(number) - 1].host.command(words).arg(config);
        Ok(command.run()?.stdout)
    }

    fn status(&self, number: u8) -> Option<Value> {
        let words =
            [self.programs.fleet.as_os_str(), "status".as_ref(), "--json".as_ref(), "--config".as_ref()];
        let config = self.folder.path().join(format!("b{number}.toml"));
        let command = self.all[usize::from(number) - 1].host.command(words).arg(config);
        serde_json::from_str(&command.output().ok()?.stdout).ok()
    }

    fn read(&self, number: u8, handler: &str) -> Result<String> {
        self.call(number, &["handler"], &[&format!("b.{handler}")])
    }

    fn write(&self, number: u8, handler: &str, value: &str) -> Result<()> {
        self.call(number, &["handler"], &[&format!("b.{handler}"), value]).map(drop)
    }

    fn call(&self, number: u8, command: &[&str], more: &[&str]) -> Result<String> {
        let socket = self.socket(number);
        let command = self.all[usize::from(number) - 1]
            .host
            .command([self.programs.artery.as_os_str()])
            .args(command)
            .arg("-u")
            .arg(socket)
            .args(more);
        Ok(command.run()?.stdout)
    }

    fn socket(&self, number: u8) -> PathBuf {
        self.folder.path().join(format!("b{number}.sock"))
    }

    fn write_fleet_config(&self, number: u8) -> Result<PathBuf> {
        let peers: Vec<String> = (1..=3)
            .filter(|peer| *peer != number)
            .map(|peer| format!("{}:7447", balancer(peer, 3)))
            .collect();
        let status = self.folder.path().join(format!("b{number}.status"));
        let text = format!(
            "fleet = \"demo\"\nid = \"1\"\nmachine = \"b{number}\"\nlisten = [\"{}:7447\"]\n\
             peers = {peers:?}\n\
             control = {:?}\nbalancer = \"b\"\nstatus = {status:?}\ninsecure = true\n\
             [announce]\naddresses = [\"{SERVICE}/32\"]\n",
            balancer(number, 3),
            self.socket(number),
        );
        let config = self.folder.path().join(format!("b{number}.toml"));
        write(&config, &text)?;
        Ok(config)
    }
}

fn write(path: &Path, text: &str) -> Result<()> {
    std::fs::write(path, text).with_context(|| path.display().to_string())
}

/// What a balancer runs: two sides, and FlowBalancer between them.
fn graph(number: u8, method: &str, has_changed: bool) -> String {
    let last = if has_changed { 5 } else { 4 };
    let weight = |member| if has_changed && member == 1 { " weight 0" } else { "" };
    let member = |member| format!("MEMBER web{member} {}{}", server(member), weight(member));
    let members: Vec<String> = (1..=last).map(member).collect();
    format!(
        "elementclass Side {{ $device, $ip |
             FromDevice($device, SNIFFER false)
                 -> kind :: Classifier(12/0806 20/0001, 12/0806 20/0002, 12/0800, -);
             leaving :: Queue(1024) -> ToDevice($device);
             kind[0] -> ARPResponder($ip $device:eth) -> leaving;
             kind[1] -> [1] neighbors :: ARPQuerier($ip, $device:eth) -> leaving;
             kind[2] -> Strip(14) -> CheckIPHeader -> output;
             kind[3] -> Discard;
             input -> neighbors;
         }}
         left :: Side(eth0, {}); right :: Side(eth1, {});
         left -> b :: FlowBalancer(SERVICE {SERVICE}:80 tcp, {}, METHOD {method});
         b[0] -> right; b[1] -> Discard; right -> left;",
        balancer(number, 1),
        balancer(number, 2),
        members.join(", "),
    )
}

fn wait_for(what: &str, mut is_there: impl FnMut() -> Result<bool>) -> Result<()> {
    let deadline = Instant::now() + LIMIT;
    while !is_there()? {
        if Instant::now() > deadline {
            bail!("{what}: not as they should be after {} s", LIMIT.as_secs());
        }
        std::thread::sleep(Duration::from_millis(50));
    }
    Ok(())
}
