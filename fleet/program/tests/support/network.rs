//! Machines as network namespaces on one bridge, which is in a namespace of its own.

use std::process::Command;

/// The namespaces of a test, which go when this is dropped.
pub struct Network {
    names: Vec<String>,
}

impl Network {
    /// Makes the machines 1 to `machines`; None where that is not possible, as without root.
    pub fn create(machines: u8) -> Option<Network> {
        let mut network = Network { names: Vec::new() };
        let bridge = network.add(0)?;
        run(
            "ip",
            &[
                "-n",
                &bridge,
                "link",
                "add",
                "fleet",
                "type",
                "bridge",
                "stp_state",
                "0",
                "forward_delay",
                "0",
            ],
        )?;
        run("ip", &["-n", &bridge, "link", "set", "fleet", "up"])?;
        for machine in 1..=machines {
            let (name, port) = (network.add(machine)?, format!("port{machine}"));
            run(
                "ip",
                &[
                    "-n", &bridge, "link", "add", &port, "type", "veth", "peer", "name", "eth0", "netns",
                    &name,
                ],
            )?;
            run("ip", &["-n", &bridge, "link", "set", &port, "master", "fleet", "up"])?;
            run("ip", &["-n", &name, "address", "add", &format!("{}/24", address(machine)), "dev", "eth0"])?;
            run("ip", &["-n", &name, "link", "set", "eth0", "up"])?;
            run("ip", &["-n", &name, "link", "set", "lo", "up"])?;
        }
        Some(network)
    }

    fn add(&mut self, number: u8) -> Option<String> {
        let name = format!("artery-fleet-{}-{number}", std::process::id());
        run("ip", &["netns", "add", &name])?;
        self.names.push(name.clone());
        Some(name)
    }

    /// The words that run a program on a machine.
    pub fn prefix(&self, machine: u8) -> Vec<String> {
        ["ip", "netns", "exec", &self.names[usize::from(machine)]].map(String::from).to_vec()
    }

    /// Has the bridge drop all frames from and to a machine, without its link going down; or ends that.
    pub fn cut(&self, machine: u8, is_cut: bool) {
        // Disabled, and forwarding: include/uapi/linux/if_bridge.h.
        let state = if is_cut { "0" } else { "3" };
        let port = format!("port{machine}");
        run("bridge", &["-n", &self.names[0], "link", "set", "dev", &port, "state", state]).unwrap();
    }
}

impl Drop for Network {
    fn drop(&mut self) {
        for name in &self.names {
            run("ip", &["netns", "del", name]);
        }
    }
}

pub fn address(machine: u8) -> String {
    format!("10.77.1.{machine}")
}

fn run(program: &str, words: &[&str]) -> Option<()> {
    let output = Command::new(program).args(words).output().ok()?;
    if !output.status.success() {
        println!("{program} {}: {}", words.join(" "), String::from_utf8_lossy(&output.stderr));
    }
    output.status.success().then_some(())
}
