//! A switch of `artery up` between hosts.
use super::until_answered;
use artery_rig::program::artery;
use artery_rig::{Host, Process, Result, Rig};
use std::path::{Path, PathBuf};
use tempfile::TempDir;

/// The address of a host, by its number from 0.
pub fn address(host: usize) -> String {
    format!("10.0.0.{}", host + 1)
}

/// A folder with these files.
pub fn folder_with(files: &[(&str, &str)]) -> TempDir {
    let folder = tempfile::tempdir().unwrap();
    for (name, text) in files {
        std::fs::write(folder.path().join(name), text).unwrap();
    }
    folder
}

/// Hosts at 10.0.0.1 and on, each linked by its eth0 to an interface of `s`, which are down and have no
/// addresses: eth0 and on.
pub struct SwitchNet<const HOSTS: usize> {
    pub hosts: [Host; HOSTS],
    pub s: Host,
}

/// Runs a test on such hosts; `s` has `ports` interfaces, also to hosts that the test does not use.
pub fn on_the_net<const HOSTS: usize>(
    label: &str,
    ports: usize,
    body: impl FnOnce(&SwitchNet<HOSTS>) -> Result<()>,
) {
    artery_rig::test(label, |rig: &Rig| {
        artery()?;
        let s = rig.host("s")?;
        let all: Vec<Host> =
            ["a", "b", "c", "d"][..ports].iter().map(|name| rig.host(name)).collect::<Result<_>>()?;
        for (n, host) in all.iter().enumerate() {
            let port = format!("eth{n}");
            rig.link(host, "eth0", &s, &port)?;
            host.address("eth0", &format!("{}/24", address(n)))?;
            s.down(&port)?;
        }
        body(&SwitchNet { hosts: std::array::from_fn(|n| all[n].clone()), s })
    });
}

/// A switch that runs, and where it is reached.
pub struct Switch {
    pub process: Process,
    pub socket: PathBuf,
    host: Host,
    /// Holds the control socket; removed on drop.
    _folder: TempDir,
}

impl Switch {
    /// Starts one on `host` from a folder, and waits until it forwards from `first` to the second host.
    pub fn start(host: &Host, first: &Host, etc: &Path, options: &[&str]) -> Result<Switch> {
        let folder = tempfile::tempdir().unwrap();
        let socket = folder.path().join("control");
        let command = host.command([artery()?]).arg("up").arg("--etc").arg(etc).args(options);
        let mut process = command.arg("-u").arg(&socket).spawn()?;
        until_answered(first, &address(1), &mut process)?;
        Ok(Switch { process, socket, host: host.clone(), _folder: folder })
    }

    /// What a command says of it: its status, and both its outputs.
    pub fn command(&self, words: &[&str], input: &str) -> Result<(Option<i32>, String)> {
        let command = self.host.command([artery()?]).args(words).env("ARTERY_SOCKET", &self.socket);
        let output = command.input(input).output()?;
        Ok((output.code(), output.stdout + &output.stderr))
    }
}
