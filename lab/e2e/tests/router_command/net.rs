//! Two hosts with a router between them, and the router's program.

use crate::support;
use artery_rig::program::artery;
use artery_rig::{Command, CommandOutput, Host, Process, Result, Rig, Signal};
use serde_json::Value;
use std::path::PathBuf;

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

/// A router that runs, and where it is reached.
pub(crate) struct Running {
    pub(crate) process: Process,
    pub(crate) host: Host,
    pub(crate) socket: PathBuf,
    /// Holds the control socket; removed on drop.
    _folder: tempfile::TempDir,
}

/// What comes of a reload.
#[derive(Clone, Copy)]
pub(crate) enum Outcome {
    Replaced,
    Stays,
}

impl Outcome {
    fn text(self) -> &'static str {
        match self {
            Outcome::Replaced => "the configuration was replaced",
            Outcome::Stays => "the running one stays",
        }
    }
}

/// Starts a router on a host, and waits for nothing.
pub(crate) fn start_on(host: &Host, options: &[&str]) -> Result<Running> {
    start_command_on(host, &[&["router"], options].concat())
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
    Ok(Running { process, host: host.clone(), socket, _folder: folder })
}

/// The same by any command and its options.
pub(crate) fn start_command_on(host: &Host, words: &[&str]) -> Result<Running> {
    let folder = tempfile::tempdir().unwrap();
    let socket = folder.path().join("control");
    let process = host.command([artery()?]).args(words).arg("-u").arg(&socket).spawn()?;
    Ok(Running { process, host: host.clone(), socket, _folder: folder })
}

impl Running {
    /// Starts one, and waits until it forwards.
    pub(crate) fn start(net: &Net, options: &[&str]) -> Result<Running> {
        let mut router = start_on(&net.r, &[&PORTS[..], options].concat())?;
        for address in FAR {
            support::until_answered(&net.a, address, &mut router.process)?;
        }
        Ok(router)
    }

    /// Signals it to reload, and waits until it has said this and the outcome, in whichever order.
    #[track_caller]
    pub(crate) fn reload(&mut self, expected: &str, outcome: Outcome) -> Result<()> {
        let before = self.process.stderr_so_far().len();
        self.process.signal(Signal::HUP);
        support::until_seen(&self.process, &format!("{expected}, {}", outcome.text()), || {
            let said = &self.process.stderr_so_far()[before..];
            Ok(said.contains(expected) && said.contains(outcome.text()))
        })
    }

    /// A command about it.
    pub(crate) fn command(&self, words: &[&str]) -> Result<Command> {
        Ok(self.host.command([artery()?]).args(words).env("ARTERY_SOCKET", &self.socket))
    }

    /// Calls it, whatever comes of that.
    pub(crate) fn call(&self, words: &[&str]) -> Result<CommandOutput> {
        self.command(words)?.output()
    }

    /// What a command says, which must be a success.
    pub(crate) fn say(&self, words: &[&str]) -> Result<String> {
        let output = self.call(words)?;
        assert!(
            output.succeeded() && output.stderr.is_empty(),
            "{words:?}: {}{}",
            output.stdout,
            output.stderr
        );
        Ok(output.stdout)
    }

    /// The same with `--json`.
    pub(crate) fn json(&self, words: &[&str]) -> Result<Value> {
        let text = self.say(&[words, &["--json"]].concat())?;
        let document: Value =
            serde_json::from_str(&text).unwrap_or_else(|error| panic!("{words:?}: {error}: {text}"));
        assert_eq!(document["schema_version"], 1, "{words:?}");
        Ok(document)
    }

    /// All of a few pings from a host are answered, else what was dropped is shown.
    #[track_caller]
    pub(crate) fn assert_pings(&self, from: &Host, address: &str) -> Result<()> {
        let report = from.ping(address, 3)?;
        if report.received != 3 {
            panic!("{}\n{}{}", report.text, self.say(&["show", "drops"])?, self.say(&["show", "neighbors"])?);
        }
        Ok(())
    }

    /// What a command is refused with.
    pub(crate) fn refused(&self, words: &[&str], status: i32) -> Result<String> {
        let output = self.call(words)?;
        assert_eq!(
            (output.code(), output.stdout.as_str()),
            (Some(status), ""),
            "{words:?}: {}",
            output.stderr
        );
        Ok(output.stderr)
    }
}
