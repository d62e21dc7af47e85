//! Hosts `a` and `b` at eth0 and eth1 of `r`, no host at its eth2, and the programs that run there.

use crate::support::{SOON, until, until_answered};
use artery_rig::program::artery;
use artery_rig::{Command, Host, Process, Result, Rig, RigError};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::path::PathBuf;
use std::thread::JoinHandle;
use std::time::Duration;
use tempfile::TempDir;

/// What may run at `r`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Product {
    Router,
    Switch,
    Adopt,
}

pub const ALL: [Product; 3] = [Product::Router, Product::Switch, Product::Adopt];

pub struct Bed {
    pub a: Host,
    pub b: Host,
    pub r: Host,
    pub product: Product,
    folder: TempDir,
}

/// Runs a test for a product.
pub fn on_the_bed(label: &str, product: Product, body: impl FnOnce(&Bed) -> Result<()>) {
    let label = format!("{label}-{}", format!("{product:?}").to_lowercase());
    artery_rig::test(&label, |rig: &Rig| body(&Bed::make(rig, product)?));
}

impl Bed {
    fn make(rig: &Rig, product: Product) -> Result<Bed> {
        artery()?;
        let (a, b, r) = (rig.host("a")?, rig.host("b")?, rig.host("r")?);
        let folder = tempfile::tempdir().expect("a folder");
        for (number, host) in [(1, &a), (2, &b)] {
            let port = format!("eth{}", number - 1);
            rig.link(host, "eth0", &r, &port)?;
            if product == Product::Switch {
                host.address("eth0", &format!("10.0.0.{number}/24"))?;
            } else {
                host.address("eth0", &format!("10.0.{number}.2/24"))?;
                host.route("default", &format!("10.0.{number}.1"))?;
            }
            if product == Product::Adopt {
                r.address(&port, &format!("10.0.{number}.1/24"))?;
            }
        }
        rig.link(&rig.host("c")?, "eth0", &r, "eth2")?;
        if product == Product::Adopt {
            r.address("eth2", "10.0.3.1/24")?;
        }
        r.forwarding(product == Product::Adopt)?;
        let write = |name: &str, text: &str| std::fs::write(folder.path().join(name), text).expect("a file");
        std::fs::create_dir(folder.path().join("etc")).expect("a folder");
        write("etc/hostname.veb0", "add eth0\nadd eth1\nadd eth2\nlink1\nup\n");
        write("etc/hostname.eth*", "up\n");
        write("etc/pf.conf", "pass\n");
        let ports = "port = [\"eth0=10.0.1.1/24\", \"eth1=10.0.2.1/24\", \"eth2=10.0.3.1/24\"]\n";
        write("r.toml", &format!("{ports}pf = \"{}\"\n", folder.path().join("etc/pf.conf").display()));
        Ok(Bed { a, b, r, product, folder })
    }

    /// A file in the folder of the bed.
    pub fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    /// The address of `b`.
    pub fn far(&self) -> &'static str {
        if self.product == Product::Switch { "10.0.0.2" } else { "10.0.2.2" }
    }

    /// The words that start the product.
    pub fn words(&self) -> Result<Vec<String>> {
        let path = |name: &str| self.path(name).display().to_string();
        let mut words = vec![artery()?.display().to_string()];
        match self.product {
            Product::Router => words.extend(["router".into(), path("r.toml")]),
            Product::Switch => words.extend(["up".into(), "--etc".into(), path("etc")]),
            Product::Adopt => {
                words.extend(["adopt", "--path", "tc", "eth0", "eth1", "eth2"].map(String::from))
            }
        }
        words.extend(["-u".into(), path("control")]);
        Ok(words)
    }

    pub fn command(&self) -> Result<Command> {
        Ok(self.r.command(self.words()?))
    }

    /// Starts it, and waits until it forwards.
    pub fn start(&self) -> Result<Process> {
        let mut process = self.command()?.spawn()?;
        self.until_forwarded(&mut process)?;
        Ok(process)
    }

    /// Waits until it forwards; adopted ports are forwarded between from the beginning, by the kernel.
    pub fn until_forwarded(&self, process: &mut Process) -> Result<()> {
        if self.product == Product::Adopt {
            process.wait_for("forwarding", 6 * SOON)?;
        }
        until_answered(&self.a, self.far(), process)
    }

    /// A command about it.
    pub fn ask(&self, words: &[&str]) -> Result<Command> {
        Ok(self.r.command([artery()?]).args(words).env("ARTERY_SOCKET", self.path("control")))
    }

    /// What the host's kernel has at `r`: interfaces, what is attached to them, addresses, routes, rules.
    /// Kernels without TCX keep filters of tc, which do nothing then.
    pub fn host_state(&self) -> Result<String> {
        let mut state = String::new();
        let has_tcx = has_tcx();
        for words in [
            &["ip", "-o", "-d", "link"][..],
            &["ip", "-o", "address"],
            &["ip", "route", "show", "table", "all"],
            &["ip", "-6", "route", "show", "table", "all"],
            &["ip", "rule"],
            &["tc", "qdisc", "show"],
            &["tc", "filter", "show", "dev", "eth0", "ingress"],
            &["tc", "filter", "show", "dev", "eth1", "ingress"],
        ] {
            if words[0] == "tc" && !has_tcx {
                continue;
            }
            state += &self.r.command(words).output()?.stdout;
        }
        Ok(state)
    }

    /// The same, once addresses are known to be unique and nothing changes any more.
    pub fn settled_state(&self) -> Result<String> {
        let mut state = self.host_state()?;
        until(SOON, || {
            std::thread::sleep(Duration::from_millis(200));
            let earlier = std::mem::replace(&mut state, self.host_state()?);
            Ok(earlier == state && !state.contains("tentative"))
        })?;
        Ok(state)
    }

    /// No answers are missing, however late they come on a busy machine.
    pub fn assert_whole(&self) -> Result<()> {
        let report = self.a.ping_with(self.far(), 20, &["-W", "5"])?;
        assert_eq!((report.received, report.duplicates), (20, 0), "{:?}: {}", self.product, report.text);
        Ok(())
    }

    /// A connection from `a` to `b`.
    pub fn connect(&self) -> Result<Line> {
        let listener = self.b.enter(|| TcpListener::bind(("0.0.0.0", 7007)))?.expect("a port");
        let server = std::thread::spawn(move || {
            let (mut stream, _) = listener.accept().expect("a client");
            let mut writer = stream.try_clone().expect("a socket");
            std::io::copy(&mut stream, &mut writer)
        });
        let to = SocketAddr::new(self.far().parse().expect("an address"), 7007);
        let stream = self.a.enter(|| TcpStream::connect_timeout(&to, SOON))?;
        let stream = stream.map_err(RigError::system("cannot connect"))?;
        stream.set_read_timeout(Some(3 * SOON)).expect("a limit");
        Ok(Line { stream, _server: server })
    }
}

/// Whether the kernel is Linux 6.6 or later.
fn has_tcx() -> bool {
    let release = std::fs::read_to_string("/proc/sys/kernel/osrelease").unwrap_or_default();
    let mut numbers = release.split('.').map_while(|number| number.parse::<u32>().ok());
    (numbers.next(), numbers.next()) >= (Some(6), Some(6))
}

/// A connection on which what is said comes back.
pub struct Line {
    stream: TcpStream,
    _server: JoinHandle<std::io::Result<u64>>,
}

impl Line {
    /// Says something, which must come back.
    pub fn echo(&mut self) {
        use std::io::{Read as _, Write as _};
        let mut answer = [0; 5];
        self.stream.write_all(b"hello").expect("a connection");
        self.stream.read_exact(&mut answer).expect("an answer");
        assert_eq!(&answer, b"hello");
    }
}

pub fn pause(milliseconds: u64) {
    std::thread::sleep(Duration::from_millis(milliseconds));
}
