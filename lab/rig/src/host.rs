//! A host: one network namespace with its interfaces, addresses, routes, and the programs that run there.

use std::ffi::OsStr;
use std::net::IpAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU8, Ordering};

use serde::{Deserialize, Serialize};

use super::Shared;
use super::command::Command;
use super::error::{Result, RigError, Skip};
use super::namespace::{self, INITIAL};
use super::output::CommandOutput;
use super::process::Process;

/// A host of a rig. Clones are the same host; the rig stays while any is left.
#[derive(Clone)]
pub struct Host {
    shared: Arc<Shared>,
    place: Arc<Place>,
}

/// What is known of a host without asking the kernel.
pub(super) struct Place {
    name: String,
    namespace: String,
    index: u16,
    interfaces: AtomicU8,
}

/// An entry of a host's neighbor table (ARP or neighbor discovery).
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
pub struct Neighbor {
    /// The neighbor's IP address.
    #[serde(rename = "dst")]
    pub address: IpAddr,
    /// The interface it is reached by.
    #[serde(rename = "dev")]
    pub interface: String,
    /// Its link address, when known.
    #[serde(rename = "lladdr")]
    pub mac: Option<String>,
    /// The kernel's words for the entry's state, such as `REACHABLE`.
    #[serde(default)]
    pub state: Vec<String>,
}

/// An interface's counters as the kernel keeps them.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize)]
pub struct Counters {
    /// Frames received since the interface was created.
    pub rx_packets: u64,
    /// Bytes received since the interface was created.
    pub rx_bytes: u64,
    /// Frames discarded on receipt.
    pub rx_dropped: u64,
    /// Frames received with an error.
    pub rx_errors: u64,
    /// Frames sent since the interface was created.
    pub tx_packets: u64,
    /// Bytes sent since the interface was created.
    pub tx_bytes: u64,
    /// Frames discarded instead of sent.
    pub tx_dropped: u64,
    /// Frames that could not be sent.
    pub tx_errors: u64,
}

#[derive(Deserialize)]
struct LinkJson {
    ifname: String,
    address: Option<String>,
    stats64: Option<Stats>,
}

#[derive(Deserialize)]
struct Stats {
    rx: Direction,
    tx: Direction,
}

#[derive(Deserialize)]
struct Direction {
    packets: u64,
    bytes: u64,
    dropped: u64,
    errors: u64,
}

impl Place {
    pub(super) fn new(name: &str, prefix: &str, index: usize) -> Place {
        let namespace = format!("{prefix}{name}");
        Place { name: name.into(), namespace, index: index as u16, interfaces: AtomicU8::new(0) }
    }
}

/// Runs programs in the host's namespace.
impl Host {
    /// A program to be run here, with more to be said before it starts.
    pub fn command<W: AsRef<OsStr>>(&self, words: impl IntoIterator<Item = W>) -> Command {
        Command::new(self, words, true)
    }

    /// Runs a program to its end, which must be a success within 30 seconds.
    pub fn run<W: AsRef<OsStr>>(&self, words: impl IntoIterator<Item = W>) -> Result<CommandOutput> {
        self.command(words).run()
    }

    /// Starts a program and leaves it running; it is killed when the result is dropped.
    pub fn spawn<W: AsRef<OsStr>>(&self, words: impl IntoIterator<Item = W>) -> Result<Process> {
        self.command(words).spawn()
    }

    /// Runs `work` on a thread of this process inside the host: sockets made there belong to
    /// the host for good.
    pub fn enter<T: Send>(&self, work: impl FnOnce() -> T + Send) -> Result<T> {
        namespace::enter(self.namespace(), work)
    }
}

/// Addresses, routes and settings. Each returns the host, so that they can be said in a row.
impl Host {
    /// Gives an interface an address, written with its prefix length: `10.0.1.2/24`.
    pub fn address(&self, interface: &str, address: &str) -> Result<&Host> {
        check_prefix(address, "an address with its prefix length, such as 10.0.1.2/24 or fd00::2/64")?;
        // Without duplicate address detection one can be bound to at once.
        match address.contains(':') {
            true => self.ip_on(interface, ["address", "add", address, "dev", interface, "nodad"]),
            false => self.ip_on(interface, ["address", "add", address, "dev", interface]),
        }
    }

    /// Adds a route to `prefix` (or `default`) by a gateway.
    pub fn route(&self, prefix: &str, gateway: &str) -> Result<&Host> {
        if prefix != "default" {
            check_prefix(prefix, "\"default\" or a prefix, such as 10.0.0.0/8 or fd00::/48")?;
        }
        parse_address(gateway)?;
        self.ip(["route", "add", prefix, "via", gateway])?;
        Ok(self)
    }

    /// Sets a kernel variable, as sysctl does.
    pub fn sysctl(&self, name: &str, value: &str) -> Result<&Host> {
        self.enter(|| namespace::write_variable(name, value))??;
        Ok(self)
    }

    /// Reads a kernel variable.
    pub fn sysctl_value(&self, name: &str) -> Result<String> {
        self.enter(|| namespace::read_variable(name))?
    }

    /// Turns the kernel's forwarding of IPv4 and IPv6 on or off: Linux as a router to compare with.
    pub fn forwarding(&self, on: bool) -> Result<&Host> {
        let value = if on { "1" } else { "0" };
        self.sysctl("net.ipv4.ip_forward", value)?.sysctl("net.ipv6.conf.all.forwarding", value)
    }

    /// Brings an interface up.
    pub fn up(&self, interface: &str) -> Result<&Host> {
        self.ip_on(interface, ["link", "set", interface, "up"])
    }

    /// Takes an interface down.
    pub fn down(&self, interface: &str) -> Result<&Host> {
        self.ip_on(interface, ["link", "set", interface, "down"])
    }

    /// Sets the largest packet an interface takes.
    pub fn mtu(&self, interface: &str, mtu: u32) -> Result<&Host> {
        self.ip_on(interface, ["link", "set", interface, "mtu", &mtu.to_string()])
    }

    /// Sets an interface's link address.
    pub fn set_mac(&self, interface: &str, mac: &str) -> Result<&Host> {
        check_mac(mac)?;
        self.ip_on(interface, ["link", "set", interface, "address", mac])
    }

    /// Lets the interface's checksums and segmentation be done late, or never (`false`): what a user-space
    /// router reads is then what would be on a wire.
    pub fn offloads(&self, interface: &str, on: bool) -> Result<&Host> {
        self.check_interface(interface)?;
        let state = if on { "on" } else { "off" };
        let kinds = ["tx", "rx", "tso", "gso", "gro"];
        self.command(["ethtool", "-K", interface])
            .args(kinds.iter().flat_map(|kind| [*kind, state]))
            .run()?;
        Ok(self)
    }

    /// Makes an interface lose every `n`th arriving frame, starting with the first. `matching` narrows the
    /// choice in nft's words, such as `meta l4proto udp`; empty means all frames.
    pub fn drop_one_in(&self, interface: &str, n: u32, matching: &str) -> Result<&Host> {
        if n == 0 {
            return Err(RigError::BadNumber { rule: "cannot drop one frame in 0".into() });
        }
        self.check_interface(interface)?;
        let rules = format!(
            "table netdev rig-{interface} {{ chain in {{ type filter hook ingress device \"{interface}\" \
             priority 0; {matching} numgen inc mod {n} 0 drop; }}; }}"
        );
        self.command(["nft", "-f", "-"]).input(rules).run()?;
        Ok(self)
    }
}

/// Reads the state of the host's kernel.
impl Host {
    /// The name within the rig.
    pub fn name(&self) -> &str {
        &self.place.name
    }

    /// The name of the network namespace, for use with `ip netns`.
    pub fn namespace(&self) -> &str {
        &self.place.namespace
    }

    /// The names of the interfaces.
    pub fn interfaces(&self) -> Result<Vec<String>> {
        Ok(self.links()?.into_iter().map(|link| link.ifname).collect())
    }

    /// An interface's link address.
    pub fn mac(&self, interface: &str) -> Result<String> {
        Ok(self.link_of(interface)?.address.unwrap_or_default())
    }

    /// Reads the counters of an interface.
    pub fn counters(&self, interface: &str) -> Result<Counters> {
        Ok(self.link_of(interface)?.stats64.map(Counters::from).unwrap_or_default())
    }

    /// Reads the kernel's neighbor table.
    pub fn neighbors(&self) -> Result<Vec<Neighbor>> {
        self.json("a neighbor table in JSON", ["-j", "neigh", "show"])
    }

    fn link_of(&self, interface: &str) -> Result<LinkJson> {
        let links = self.links()?;
        let known = links.iter().map(|link| link.ifname.clone()).collect();
        let unknown = RigError::UnknownInterface { host: self.label(), interface: interface.into(), known };
        links.into_iter().find(|link| link.ifname == interface).ok_or(unknown)
    }

    pub(super) fn check_interface(&self, interface: &str) -> Result<()> {
        self.link_of(interface).map(|_| ())
    }

    fn links(&self) -> Result<Vec<LinkJson>> {
        self.json("a list of links in JSON", ["-j", "-s", "link", "show"])
    }

    fn json<T: for<'a> Deserialize<'a>, const N: usize>(
        &self,
        what: &'static str,
        words: [&str; N],
    ) -> Result<T> {
        let (output, process) = self.outside(["ip", "-n", self.namespace()]).args(words).finish()?;
        if !output.succeeded() {
            return Err(RigError::Failed(process.failure()));
        }
        serde_json::from_str(&output.stdout).map_err(|_| RigError::Unreadable(process.failure(), what))
    }
}

impl Host {
    pub(super) fn new(shared: Arc<Shared>, place: Arc<Place>) -> Host {
        Host { shared, place }
    }

    /// Makes the host's namespace, with loopback up.
    pub(super) fn create_namespace(&self) -> Result<()> {
        let made = self.outside(["ip", "netns", "add", self.namespace()]).run();
        if let Err(RigError::Failed(failure)) = &made
            && failure.output.stderr.contains("not permitted")
        {
            return Err(Skip::NeedsRoot.into());
        }
        made?;
        self.enter(|| INITIAL.iter().try_for_each(|(name, value)| namespace::write_variable(name, value)))??;
        self.ip(["link", "set", "lo", "up"])?;
        Ok(())
    }

    /// The rig and the host, for messages.
    pub(super) fn label(&self) -> String {
        format!("{}/{}", self.shared.label, self.place.name)
    }

    /// A link address that identifies host and interface in a capture, and is the same in every run.
    pub(super) fn next_mac(&self) -> String {
        let number = self.place.interfaces.fetch_add(1, Ordering::Relaxed);
        let [high, low] = self.place.index.to_be_bytes();
        format!("02:00:00:{high:02x}:{low:02x}:{number:02x}")
    }

    /// A program run for this host from outside its namespace.
    pub(super) fn outside<W: AsRef<OsStr>>(&self, words: impl IntoIterator<Item = W>) -> Command {
        Command::new(self, words, false)
    }

    pub(super) fn ip<const N: usize>(&self, words: [&str; N]) -> Result<CommandOutput> {
        self.outside(["ip", "-n", self.namespace()]).args(words).run()
    }

    /// Runs `ip` about one interface; says which there are if there is no such one.
    fn ip_on<const N: usize>(&self, interface: &str, words: [&str; N]) -> Result<&Host> {
        namespace::check_interface_name(interface)?;
        if let Err(error) = self.ip(words) {
            self.check_interface(interface)?;
            return Err(error);
        }
        Ok(self)
    }
}

impl From<Stats> for Counters {
    fn from(Stats { rx, tx }: Stats) -> Counters {
        Counters {
            rx_packets: rx.packets,
            rx_bytes: rx.bytes,
            rx_dropped: rx.dropped,
            rx_errors: rx.errors,
            tx_packets: tx.packets,
            tx_bytes: tx.bytes,
            tx_dropped: tx.dropped,
            tx_errors: tx.errors,
        }
    }
}

/// Reads an IP address.
pub(super) fn parse_address(text: &str) -> Result<IpAddr> {
    let wanted = "an IP address, such as 10.0.1.1 or fd00::1";
    text.parse().map_err(|_| RigError::BadAddress { text: text.into(), wanted })
}

fn check_prefix(text: &str, wanted: &'static str) -> Result<()> {
    let valid = text.split_once('/').is_some_and(|(address, length)| {
        let longest = match address.parse() {
            Ok(IpAddr::V4(_)) => 32,
            Ok(IpAddr::V6(_)) => 128,
            Err(_) => return false,
        };
        length.bytes().all(|byte| byte.is_ascii_digit())
            && length.parse().is_ok_and(|length: u8| length <= longest)
    });
    if valid { Ok(()) } else { Err(RigError::BadAddress { text: text.into(), wanted }) }
}

fn check_mac(text: &str) -> Result<()> {
    let octet = |part: &str| part.len() == 2 && part.bytes().all(|byte| byte.is_ascii_hexdigit());
    let wanted = "a link address, such as 02:00:00:00:00:01";
    let valid = text.split(':').count() == 6 && text.split(':').all(octet);
    if valid { Ok(()) } else { Err(RigError::BadAddress { text: text.into(), wanted }) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_are_checked_before_any_program_runs() {
        let wanted = "";
        for good in ["10.0.0.1/0", "10.0.0.1/32", "fd00::1/128"] {
            assert!(check_prefix(good, wanted).is_ok(), "{good}");
        }
        for bad in ["10.0.0.1", "10.0.0.1/33", "10.0.0/24", "fd00::1/129", "/24", "10.0.0.1/", "10.0.0.1/+8"]
        {
            assert!(check_prefix(bad, wanted).is_err(), "{bad}");
        }
        assert!(check_mac("02:00:00:00:00:01").is_ok());
        for bad in ["02:00:00:00:00", "2:0:0:0:0:1", "02:00:00:00:00:0g", ""] {
            assert!(check_mac(bad).is_err(), "{bad}");
        }
    }
}
