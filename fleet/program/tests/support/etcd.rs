//! Servers of etcd, and machines whose routers have their configuration from there.

use std::cell::{Cell, RefCell};
use std::path::{Path, PathBuf};

use artery_rig::{Host, Process, Result, Rig, Switch};
use serde_json::Value;

use super::support::{Fleet, Router, Settings, wait_for};

/// Servers of one cluster on a host.
pub struct Servers {
    host: Host,
    folder: PathBuf,
    size: usize,
    running: Vec<Option<Process>>,
}

fn endpoint(place: usize, port: u16) -> String {
    format!("http://10.77.2.{}:{port}", 101 + place)
}

impl Servers {
    pub fn start(rig: &Rig, switch: &Switch, folder: &Path, size: usize) -> Result<Servers> {
        let host = rig.host("etcd")?;
        rig.plug(&host, "eth0", switch)?;
        for place in 0..size {
            host.address("eth0", &format!("10.77.2.{}/24", 101 + place))?;
        }
        let running = (0..size).map(|_| None).collect();
        let mut servers = Servers { host, folder: folder.to_path_buf(), size, running };
        for place in 0..size {
            servers.start_one(place)?;
        }
        Ok(servers)
    }

    pub fn endpoints(&self) -> Vec<String> {
        (0..self.size).map(|place| endpoint(place, 2379)).collect()
    }

    /// Starts a server, which has its data of before.
    pub fn start_one(&mut self, place: usize) -> Result<()> {
        let all: Vec<String> =
            (0..self.size).map(|place| format!("s{place}={}", endpoint(place, 2380))).collect();
        let folder = self.folder.join(format!("etcd-{place}")).display().to_string();
        let (own, peer) = (endpoint(place, 2379), endpoint(place, 2380));
        let words = [
            ("--name", format!("s{place}")),
            ("--data-dir", folder),
            ("--logger", "zap".to_string()),
            ("--log-level", "error".to_string()),
            ("--listen-client-urls", own.clone()),
            ("--advertise-client-urls", own),
            ("--listen-peer-urls", peer.clone()),
            ("--initial-advertise-peer-urls", peer),
            ("--initial-cluster", all.join(",")),
        ];
        let words = words.into_iter().flat_map(|(option, value)| [option.to_string(), value]);
        self.running[place] = Some(self.host.spawn(std::iter::once("etcd".to_string()).chain(words))?);
        Ok(())
    }

    pub fn kill(&mut self, place: usize) {
        if let Some(mut process) = self.running[place].take() {
            process.kill();
        }
    }

    /// Puts a key of a fleet's, as something else than this program may.
    pub fn put(&self, key: &str, value: &str) {
        let (key, value) = (format!("/artery/web/1/{key}"), value.to_string());
        self.ask(async move |mut client| drop(client.put(key, value, None).await.unwrap()));
    }

    /// The same of a process that lives for some seconds more.
    pub fn put_for(&self, key: &str, value: &str, seconds: i64) {
        let (key, value) = (format!("/artery/web/1/{key}"), value.to_string());
        self.ask(async move |mut client| {
            let lease = client.lease_grant(seconds, None).await.unwrap().id();
            let options = etcd_client::PutOptions::new().with_lease(lease);
            drop(client.put(key, value, Some(options)).await.unwrap());
        });
    }

    pub fn delete(&self, key: &str) {
        let key = format!("/artery/web/1/{key}");
        self.ask(async move |mut client| drop(client.delete(key, None).await.unwrap()));
    }

    fn ask(&self, ask: impl AsyncFnOnce(etcd_client::Client) + Send) {
        let endpoints = self.endpoints();
        let conversation = move || {
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
            let connecting = etcd_client::Client::connect(endpoints, None);
            runtime.block_on(async { ask(connecting.await.unwrap()).await });
        };
        self.host.enter(conversation).unwrap();
    }
}

/// A machine: its namespace, its router and its `artery-fleet`.
pub struct Machine {
    pub host: Host,
    pub router: Router,
    pub fleet: Fleet,
    prefix: Vec<String>,
}

pub struct Machines {
    pub rig: Rig,
    pub switch: Switch,
    program: PathBuf,
    /// More lines of the configuration of each `artery-fleet` that is started.
    pub more: RefCell<String>,
    /// What a router's file says of a machine before there is a revision.
    pub lines: Cell<fn(usize) -> String>,
    pub folder: tempfile::TempDir,
}

impl Machines {
    pub fn new(rig: &Rig, program: &Path) -> Result<Machines> {
        let (switch, folder) = (rig.switch("middle")?, tempfile::tempdir().unwrap());
        Ok(Machines {
            rig: rig.clone(),
            switch,
            program: program.to_path_buf(),
            more: RefCell::default(),
            lines: Cell::new(port_lines),
            folder,
        })
    }

    /// The file of the router of a machine before there is a revision, and then that of the revision.
    pub fn router_file(&self, number: usize) -> PathBuf {
        self.folder.path().join(format!("files-{number}/router.toml"))
    }

    pub fn router(&self, number: usize) -> Router {
        let socket = self.folder.path().join(format!("m{number}.sock"));
        Router::start_configured(&self.program, &self.prefix(number), &self.router_file(number), &socket)
    }

    fn prefix(&self, number: usize) -> Vec<String> {
        let namespace = format!("{}m{number}", self.rig.prefix());
        ["ip", "netns", "exec", &namespace].map(String::from).to_vec()
    }

    /// A machine whose port has the number's address, of so many machines.
    pub fn machine(&self, number: usize, of: usize, endpoints: &[String]) -> Result<Machine> {
        self.start(("web", &format!("m{number}")), number, of, endpoints)
    }

    /// One that has no peers, and a name of its own choice.
    pub fn machine_named(
        &self,
        fleet: &str,
        name: &str,
        number: usize,
        endpoints: &[String],
    ) -> Result<Machine> {
        self.start((fleet, name), number, 0, endpoints)
    }

    fn start(&self, named: (&str, &str), number: usize, of: usize, endpoints: &[String]) -> Result<Machine> {
        let host = self.rig.host(&format!("m{number}"))?;
        self.rig.plug(&host, "eth0", &self.switch)?;
        self.rig.plug(&host, "eth1", &self.switch)?;
        host.address("eth0", &format!("10.77.2.{number}/24"))?;
        // The router's addresses, which the host may have too, are at eth1 alone.
        host.sysctl("net.ipv4.conf.all.arp_ignore", "1")?;
        let file = self.router_file(number);
        std::fs::create_dir_all(file.parent().unwrap()).unwrap();
        std::fs::write(&file, self.lines.get()(number)).unwrap();
        let router = self.router(number);
        let fleet = self.fleet(named, number, of, endpoints, &router);
        Ok(Machine { host, router, fleet, prefix: self.prefix(number) })
    }

    /// An `artery-fleet` at a machine, by this name.
    pub fn fleet(
        &self,
        (fleet, name): (&str, &str),
        number: usize,
        of: usize,
        endpoints: &[String],
        router: &Router,
    ) -> Fleet {
        let others = (1..=of).filter(|other| *other != number);
        let port = if fleet == "web" { 7447 } else { 7448 };
        let settings = Settings {
            fleet,
            balancer: "service1",
            machine: name,
            files: &format!("{fleet}-{name}-{number}"),
            listen: format!("10.77.2.{number}:{port}"),
            peers: others.map(|other| format!("10.77.2.{other}:{port}")).collect(),
            socket: &router.socket,
            more: format!(
                "insecure = true\n[etcd]\nendpoints = {endpoints:?}\nrouter_file = {:?}\n{}",
                self.router_file(number),
                self.more.borrow()
            ),
            prefix: self.prefix(number),
        };
        Fleet::start(self.folder.path(), &settings)
    }

    pub fn write(&self, name: &str, text: &str) -> String {
        let path = self.folder.path().join(name);
        std::fs::write(&path, text).unwrap();
        path.display().to_string()
    }

    /// Has the switch drop all frames of a machine's `eth0`, or ends that. The servers have port1, and
    /// then each machine has two.
    pub fn cut_off(&self, number: usize, is_cut: bool) -> Result<()> {
        // Disabled, and forwarding: include/uapi/linux/if_bridge.h.
        let state = if is_cut { "0" } else { "3" };
        let port = format!("port{}", 2 * number);
        self.switch.host().run(["bridge", "link", "set", "dev", &port, "state", state]).map(drop)
    }
}

pub fn port_lines(number: usize) -> String {
    format!("port = [\"eth1=10.78.0.{number}/24\"]\nno-host = true\n")
}

impl Machine {
    /// What the router is.
    pub fn configuration(&self) -> String {
        self.router.read("router_config")
    }

    /// A command of `artery-fleet`: whether it was a success, and what it said.
    pub fn say(&self, words: &[&str]) -> (bool, String) {
        let output = self.fleet.call(&self.prefix, words);
        let text = [output.stdout, output.stderr].concat();
        (output.status.success(), String::from_utf8(text).unwrap())
    }

    /// What the status says of the fleet's configuration.
    pub fn seen(&self) -> Value {
        self.fleet.status()["configuration"].clone()
    }

    /// How each machine differs, as this one sees it; none if the status says nothing of it.
    pub fn differences(&self) -> Vec<(String, String)> {
        differences(&self.seen())
    }

    /// Waits until all of these machines live and have this revision.
    pub fn await_revision(&self, number: Option<u64>, machines: usize) -> Value {
        let is_so = |seen: &Value| {
            let agree = differences(seen).iter().filter(|(_, how)| how.is_empty()).count();
            seen["is_connected"] == true && seen["revision"].as_u64() == number && agree == machines
        };
        wait_for("a revision", || self.seen(), is_so)
    }
}

fn differences(seen: &Value) -> Vec<(String, String)> {
    let text = |value: &Value| value.as_str().unwrap_or_default().to_string();
    let machines = seen["machines"].as_array().map_or(&[][..], Vec::as_slice);
    machines.iter().map(|one| (text(&one["machine"]), text(&one["explanation"]))).collect()
}
