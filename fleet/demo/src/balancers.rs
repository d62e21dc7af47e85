//! The balancers: `artery run` on each, and `artery-fleet` beside it, which announces it.

use std::collections::{BTreeMap, BTreeSet};
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
    setup: Setup,
    folder: TempDir,
}

/// How balancers choose, and what they know of one another.
pub(crate) struct Setup {
    pub(crate) method: &'static str,
    pub(crate) is_mirrored: bool,
    /// Whether they check members.
    pub(crate) is_checked: bool,
    /// Numbers of the servers that are members, and their weights: also what a router that starts again must
    /// know from its start.
    pub(crate) members: BTreeMap<u8, u32>,
}

/// A client's address and port.
pub(crate) type Client = (String, u64);

/// Clients whose flows are exceptions: with packets, and known from peers.
#[derive(Default)]
struct Exceptions {
    own: BTreeSet<Client>,
    copies: BTreeSet<Client>,
}

struct Balancer {
    host: Host,
    router: Option<Process>,
    fleet: Option<Process>,
}

impl Balancers {
    pub(crate) fn start(network: &Network, programs: &Programs, setup: Setup) -> Result<Balancers> {
        let folder = tempfile::tempdir()?;
        let all = network.balancers.iter();
        let all = all.map(|host| Balancer { host: host.clone(), router: None, fleet: None }).collect();
        let programs = Programs { artery: programs.artery.clone(), fleet: programs.fleet.clone() };
        let is_mirrored = setup.is_mirrored;
        let mut balancers = Balancers { all, programs, setup, folder };
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
        let graph = graph(number, &self.setup);
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

    pub(crate) fn start_fleet(&mut self, number: u8) -> Result<()> {
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

    pub(crate) fn add_member(&mut self, member: u8) -> Result<()> {
        self.setup.members.insert(member, 1);
        self.write_all("add_member", &format!("web{member} {}", server(member)))
    }

    pub(crate) fn remove_member(&mut self, member: u8) -> Result<()> {
        self.setup.members.remove(&member);
        self.write_all("remove_member", &format!("web{member}"))
    }

    pub(crate) fn drain_member(&mut self, member: u8) -> Result<()> {
        self.setup.members.insert(member, 0);
        self.write_all("weight", &format!("web{member} 0"))
    }

    fn write_all(&self, handler: &str, value: &str) -> Result<()> {
        (1..=3).try_for_each(|number| self.write(number, handler, value))
    }

    /// Waits until the checks of all find a member down.
    pub(crate) fn wait_until_down(&self, member: u8) -> Result<()> {
        let name = format!("web{member} ");
        let is_down = |line: &str| line.starts_with(&name) && line.contains("down");
        for number in 1..=3 {
            wait_for("the end of a member", || Ok(self.read(number, "members")?.lines().any(is_down)))?;
        }
        Ok(())
    }

    /// Waits until each has fetched the exceptions of all others.
    pub(crate) fn wait_for_peers(&self) -> Result<()> {
        let has_all = |status: &Value| {
            let peers = status["peers"].as_array().map_or(&[][..], Vec::as_slice);
            let is_known = |peer: &&Value| peer["is_present"] == true && peer["is_complete"] == true;
            peers.iter().filter(is_known).count() == 2
        };
        for number in (1..=3).filter(|_| self.setup.is_mirrored) {
            wait_for("peers of a balancer", || {
                Ok(self.status(number).is_some_and(|status| has_all(&status)))
            })?;
        }
        Ok(())
    }

    /// How many flows with packets are exceptions at each balancer; with artery-fleet, once each balancer
    /// knows those of all others.
    pub(crate) fn wait_for_exceptions(&self) -> Result<[usize; 3]> {
        let mut counts = [0; 3];
        wait_for("exceptions", || {
            let all = (1..=3).map(|number| self.exceptions(number)).collect::<Result<Vec<_>>>()?;
            counts = std::array::from_fn(|at| all[at].own.len());
            let count = counts.iter().sum::<usize>();
            let has_all = |known: &Exceptions| known.own.len() + known.copies.len() == count;
            Ok(!self.setup.is_mirrored || all.iter().all(has_all))
        })?;
        Ok(counts)
    }

    /// Clients of a balancer's own exceptions that another one does not know.
    pub(crate) fn unmirrored(&self, number: u8) -> Result<BTreeSet<Client>> {
        let mut own = self.exceptions(number)?.own;
        for other in (1..=3).filter(|other| *other != number) {
            let known = self.exceptions(other)?.copies;
            own.retain(|client| !known.contains(client));
        }
        Ok(own)
    }

    /// Long flows that are exceptions at a balancer.
    fn exceptions(&self, number: u8) -> Result<Exceptions> {
        let text = self.call(number, &["flow", "export", "--exceptions"], &[])?;
        let mut exceptions = Exceptions::default();
        for line in text.lines().filter_map(|line| serde_json::from_str::<Value>(line).ok()) {
            let client = line["src"].as_str().zip(line["sport"].as_u64());
            let Some((address, port)) = client.filter(|_| line["state"] == "established") else { continue };
            let kind = if line["imported"] == true { &mut exceptions.copies } else { &mut exceptions.own };
            kind.insert((address.to_string(), port));
        }
        Ok(exceptions)
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
fn graph(number: u8, setup: &Setup) -> String {
    let member =
        |(member, weight): (&u8, &u32)| format!("MEMBER web{member} {} weight {weight}", server(*member));
    let members: Vec<String> = setup.members.iter().map(member).collect();
    let check = if setup.is_checked { ", CHECK tcp every 500ms timeout 500ms fall 2" } else { "" };
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
         left -> b :: FlowBalancer(SERVICE {SERVICE}:80 tcp, {}, METHOD {}{check});
         b[0] -> right; b[1] -> Discard; right -> left;",
        balancer(number, 1),
        balancer(number, 2),
        members.join(", "),
        setup.method,
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
