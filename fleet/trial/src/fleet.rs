//! A fleet on the trial's network: machines of one engine, and the server if the engine has one.

use std::fs;
use std::path::PathBuf;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use clap::ValueEnum;
use tempfile::TempDir;
use tokio::net::TcpStream;
use tokio::time::{Instant, sleep};

use crate::certificates::Authority;
use crate::mirror::{Congestion, Engine};
use crate::network::{Network, address};
use crate::process::{Machine, Process};

/// The host of a server of NATS.
const SERVER: u8 = 101;

/// Connections between machines need a while: zenoh's retries come twice a second.
const SETTLING: Duration = Duration::from_millis(1500);

/// zenoh takes this from the environment alone.
const MORE_THREADS: &str =
    "ZENOH_RUNTIME=(tx: (worker_threads: 4), net: (worker_threads: 4), rx: (worker_threads: 4))";

/// How long a server may take to start.
const SERVER_START: Duration = Duration::from_secs(10);

/// Where a trial takes place.
pub(crate) struct Site {
    pub(crate) network: Network,
    pub(crate) folder: TempDir,
}

/// What a fleet is made of.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Plan {
    pub(crate) engine: Engine,
    pub(crate) machines: u8,
    pub(crate) congestion: Congestion,
    pub(crate) has_tls: bool,
    pub(crate) has_more_threads: bool,
}

impl Plan {
    /// Three machines, of which none waits for another.
    pub(crate) fn new(engine: Engine) -> Plan {
        Plan { engine, machines: 3, congestion: Congestion::Drop, has_tls: false, has_more_threads: false }
    }
}

/// Machines that run, and their network.
pub(crate) struct Fleet {
    plan: Plan,
    authority: Option<Authority>,
    pub(crate) machines: Vec<Machine>,
    pub(crate) server: Option<Process>,
}

impl Site {
    pub(crate) fn new() -> Result<Site> {
        let folder = tempfile::tempdir().context("cannot make a temporary folder")?;
        Ok(Site { network: Network::create()?, folder })
    }

    /// Starts a server program on a host.
    pub(crate) fn start(&mut self, host: u8, name: &str, words: &[&str]) -> Result<Process> {
        let mut all = self.network.host(host)?;
        all.extend(words.iter().map(|word| word.to_string()));
        Process::start(&all, name, self.folder.path(), false)
    }

    /// Waits until a server listens on a port.
    pub(crate) async fn wait_for_port(&self, host: u8, port: u16, name: &str) -> Result<()> {
        let start = Instant::now();
        while TcpStream::connect((address(host), port)).await.is_err() {
            let waited = start.elapsed();
            ensure!(waited < SERVER_START, "{name} does not listen; see its log, or run scripts/setup fleet");
            sleep(Duration::from_millis(20)).await;
        }
        Ok(())
    }

    /// Starts the server of NATS, with what an earlier one has left or with nothing.
    pub(crate) async fn serve_nats(&mut self, is_new: bool) -> Result<Process> {
        let store = self.folder.path().join("nats");
        if is_new && store.exists() {
            fs::remove_dir_all(&store).context("cannot remove the store of an earlier server")?;
        }
        let (own, store) = (address(SERVER).to_string(), store.display().to_string());
        let words = ["nats-server", "-a", &own, "-p", "4222", "-js", "-sd", &store];
        let server = self.start(SERVER, "nats-server", &words)?;
        self.wait_for_port(SERVER, 4222, "nats-server").await?;
        Ok(server)
    }
}

impl Fleet {
    /// Starts all machines of a plan, and waits until they know one another.
    pub(crate) async fn start(site: &mut Site, plan: Plan) -> Result<Fleet> {
        let server = if plan.engine == Engine::Zenoh { None } else { Some(site.serve_nats(true).await?) };
        let authority = if plan.has_tls { Some(Authority::new("fleet")?) } else { None };
        let mut fleet = Fleet { plan, authority, machines: Vec::new(), server };
        for number in 1..=plan.machines {
            let machine = fleet.machine(site, number).await?;
            fleet.machines.push(machine);
        }
        fleet.settle().await;
        Ok(fleet)
    }

    /// Ends all programs, and waits for that: the next fleet needs their ports.
    pub(crate) async fn stop(mut self) {
        for process in self.machines.iter_mut().map(|machine| &mut machine.process).chain(&mut self.server) {
            process.end().await;
        }
    }

    /// Gives machines time to find one another.
    pub(crate) async fn settle(&self) {
        sleep(SETTLING).await;
    }

    /// Starts the machine of a number.
    pub(crate) async fn machine(&self, site: &mut Site, number: u8) -> Result<Machine> {
        let certificates = match &self.authority {
            Some(authority) => Some(authority.issue(address(number), authority, site.folder.path())?),
            None => None,
        };
        let words = self.words(site, number, certificates)?;
        Machine::start(&words, &format!("machine-{number}"), site.folder.path()).await
    }

    /// Starts a machine that the others don't know, with the certificate of another authority or with none.
    pub(crate) async fn stranger(
        &self,
        site: &mut Site,
        number: u8,
        has_certificate: bool,
    ) -> Result<Machine> {
        let certificates = match (&self.authority, has_certificate) {
            (Some(trusted), true) => {
                Some(Authority::new("fleet")?.issue(address(number), trusted, site.folder.path())?)
            }
            _ => None,
        };
        let words = self.words(site, number, certificates)?;
        Machine::start(&words, &format!("stranger-{number}"), site.folder.path()).await
    }

    fn words(&self, site: &mut Site, number: u8, certificates: Option<PathBuf>) -> Result<Vec<String>> {
        let mut words = site.network.host(number)?;
        let program = std::env::current_exe().context("cannot find this program's file")?;
        if self.plan.has_more_threads {
            words.extend(["env", MORE_THREADS].map(String::from));
        }
        words.extend([program.display().to_string(), "machine".into()]);
        let mut option = |name: &str, value: String| words.extend([format!("--{name}"), value]);
        option("machine", number.to_string());
        option("address", address(number).to_string());
        option("engine", value_name(self.plan.engine));
        option("congestion", value_name(self.plan.congestion));
        option("server", address(SERVER).to_string());
        for peer in (1..=self.plan.machines).filter(|peer| *peer != number) {
            option("peer", address(peer).to_string());
        }
        if let Some(folder) = certificates {
            option("certificates", folder.display().to_string());
        }
        Ok(words)
    }
}

/// The word that stands for a value on the command line.
pub(crate) fn value_name(value: impl ValueEnum) -> String {
    value.to_possible_value().map(|value| value.get_name().to_owned()).unwrap_or_default()
}
