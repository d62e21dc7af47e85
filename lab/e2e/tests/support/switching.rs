//! A switch of `artery up` between hosts.
use super::Running;
use artery_rig::program::artery;
use artery_rig::{Host, Result, Rig};
use std::path::Path;
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

/// Commands of the BSDs about the switch of a router.
impl Running {
    /// Starts a switch on `host` from a folder, and waits until it forwards from `first` to the second host.
    pub fn switch(host: &Host, first: &Host, etc: &Path, options: &[&str]) -> Result<Running> {
        let etc = etc.display().to_string();
        let mut switch = Running::spawn(host, [&["up", "--etc", &etc][..], options].concat())?;
        switch.until_answered(first, &address(1))?;
        Ok(switch)
    }

    /// What `artery ifconfig` says: its status, and both its outputs.
    pub fn ifconfig(&self, words: &str) -> Result<(Option<i32>, String)> {
        self.outcome("ifconfig", words, "")
    }

    /// What `artery pfctl` says of rules, or with none of what is asked: its status, and both its outputs.
    pub fn pfctl(&self, words: &str, rules: &str) -> Result<(Option<i32>, String)> {
        self.outcome("pfctl", words, rules)
    }

    fn outcome(&self, command: &str, words: &str, input: &str) -> Result<(Option<i32>, String)> {
        let output = self.command(&[command])?.args(words.split_whitespace()).input(input).output()?;
        Ok((output.code(), output.stdout + &output.stderr))
    }
}
