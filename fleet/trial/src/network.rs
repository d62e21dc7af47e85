//! Machines as network namespaces on one bridge. The controller runs in a namespace of its own that has the
//! bridge.

use std::net::Ipv4Addr;
use std::os::unix::process::CommandExt;
use std::process::Command;

use anyhow::{Context, Result, bail};

/// Says to a process that it runs in the controller's namespace already.
const INSIDE: &str = "ARTERY_FLEET_TRIAL_INSIDE";

/// The namespaces of a trial, which go when this is dropped.
pub(crate) struct Network {
    names: Vec<String>,
}

/// Starts this program again in a network namespace of its own, unless it is in one already.
pub(crate) fn enter() -> Result<()> {
    if std::env::var_os(INSIDE).is_some() {
        return Ok(());
    }
    let program = std::env::current_exe().context("cannot find this program's file")?;
    let error = Command::new("unshare")
        .arg("--net")
        .arg(program)
        .args(std::env::args_os().skip(1))
        .env(INSIDE, "1")
        .exec();
    Err(error).context("cannot make a network namespace; is util-linux there, and are you root?")
}

/// The address of a host: machines have 1 to 99, servers 101 and up, the controller 254.
pub(crate) fn address(host: u8) -> Ipv4Addr {
    Ipv4Addr::new(10, 77, 0, host)
}

impl Network {
    /// Makes the bridge, and removes namespaces that an earlier trial has left.
    pub(crate) fn create() -> Result<Network> {
        sweep()?;
        ip("link set lo up")?;
        ip("link add fleet type bridge stp_state 0 forward_delay 0")?;
        ip(&format!("address add {}/24 dev fleet", address(254)))?;
        ip("link set fleet up")?;
        Ok(Network { names: Vec::new() })
    }

    /// Adds a host, unless it is there; returns the words that run a program on it.
    pub(crate) fn host(&mut self, host: u8) -> Result<Vec<String>> {
        let name = format!("fleet-trial-{}-{host}", std::process::id());
        if !self.names.contains(&name) {
            self.names.push(name.clone());
            ip(&format!("netns add {name}"))?;
            ip(&format!("link add port{host} type veth peer name eth0 netns {name}"))?;
            ip(&format!("link set port{host} master fleet up"))?;
            ip(&format!("-n {name} address add {}/24 dev eth0", address(host)))?;
            ip(&format!("-n {name} link set eth0 up"))?;
            ip(&format!("-n {name} link set lo up"))?;
        }
        Ok(["ip", "netns", "exec", &name].map(String::from).to_vec())
    }

    /// Has the bridge drop all frames from and to a host, without the host's link going down; or ends that.
    pub(crate) fn cut(&self, host: u8, is_cut: bool) -> Result<()> {
        // Disabled, and forwarding: include/uapi/linux/if_bridge.h.
        let state = if is_cut { "0" } else { "3" };
        run("bridge", &["link", "set", "dev", &format!("port{host}"), "state", state])
    }
}

impl Drop for Network {
    fn drop(&mut self) {
        for name in &self.names {
            if let Err(error) = ip(&format!("netns del {name}")) {
                eprintln!("{error:#}");
            }
        }
    }
}

/// Removes the namespaces of trials whose process is gone.
fn sweep() -> Result<()> {
    let listed = Command::new("ip").args(["netns", "list"]).output().context("cannot run ip")?;
    for line in String::from_utf8_lossy(&listed.stdout).lines() {
        let name = line.split_whitespace().next().unwrap_or_default();
        let Some(owner) = name.strip_prefix("fleet-trial-").and_then(|rest| rest.split('-').next()) else {
            continue;
        };
        if !std::path::Path::new("/proc").join(owner).exists() {
            ip(&format!("netns del {name}"))?;
        }
    }
    Ok(())
}

fn ip(words: &str) -> Result<()> {
    run("ip", &words.split(' ').collect::<Vec<_>>())
}

fn run(program: &str, words: &[&str]) -> Result<()> {
    let output = Command::new(program).args(words).output();
    let output = output.with_context(|| format!("cannot run {program}; install iproute2"))?;
    if !output.status.success() {
        let told = String::from_utf8_lossy(&output.stderr);
        bail!("{program} {}: {}; the trial needs root", words.join(" "), told.trim());
    }
    Ok(())
}
