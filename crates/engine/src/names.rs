//! Names that a configuration gives to addresses (AddressInfo) and devices.
use artery_wire::{EtherAddr, Ipv4Prefix};
use std::collections::{BTreeSet, HashMap};
use std::net::{Ipv4Addr, Ipv6Addr};
use std::sync::{Arc, Mutex};

/// What one name stands for.
#[derive(Clone, Debug, Default)]
pub struct Entry {
    /// IPv4 address, with the length of its network when that was given.
    pub ip: Option<(Ipv4Addr, Option<u8>)>,
    /// IPv6 address, with the length of its network when that was given.
    pub ip6: Option<(Ipv6Addr, Option<u8>)>,
    /// Ethernet address.
    pub ether: Option<EtherAddr>,
}

/// Tells the Ethernet address of a device of this machine.
pub type AskDevice = fn(&str) -> Option<[u8; 6]>;

/// The names of one router.
#[derive(Clone, Debug, Default)]
pub struct Names {
    /// By the compound they are known in, with the slash, and name.
    entries: HashMap<String, Entry>,
    /// The compound from which names are looked up.
    scope: String,
    /// Device names of the configuration and what they are called on this machine.
    devices: HashMap<String, String>,
    /// Devices that elements asked for, in whichever graph: all clones note them here.
    asked: Arc<Mutex<BTreeSet<String>>>,
    /// Asks this machine for the Ethernet address of a device.
    ask_device: Option<AskDevice>,
}

/// A device that was to be found under another name and that no element asked for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct UnusedDevice {
    /// What is wrong.
    pub(crate) message: String,
    /// Which devices were asked for.
    pub(crate) help: String,
}

impl Names {
    /// Adds to what `name` stands for in the compound of [`Names::enter`] and those inside it.
    pub fn define(&mut self, name: &str, entry: Entry) {
        let known = self.entries.entry(format!("{}{name}", self.scope)).or_default();
        known.ip = entry.ip.or(known.ip);
        known.ip6 = entry.ip6.or(known.ip6);
        known.ether = entry.ether.or(known.ether);
    }
    /// Lets names be looked up and defined from the compound `scope` on; with its slash, empty for the outermost.
    pub fn enter(&mut self, scope: &str) {
        scope.clone_into(&mut self.scope);
    }
    /// What `name` stands for, in the innermost compound that says something about `part`.
    fn lookup<T>(&self, name: &str, part: impl Fn(&Entry) -> Option<T>) -> Option<T> {
        let mut scope = self.scope.as_str();
        loop {
            if let Some(value) = self.entries.get(&format!("{scope}{name}")).and_then(&part) {
                return Some(value);
            }
            let outer = scope.strip_suffix('/')?;
            scope = outer.rfind('/').map_or("", |at| &scope[..=at]);
        }
    }
    /// Says that the configuration's device `name` is this machine's `device`.
    pub fn map_device(&mut self, name: &str, device: &str) {
        self.devices.insert(name.to_string(), device.to_string());
    }
    /// Lets `ask` tell the Ethernet addresses of this machine's devices; without it none is known.
    pub fn ask_devices(&mut self, ask: AskDevice) {
        self.ask_device = Some(ask);
    }
    /// This machine's name of a device of the configuration.
    pub fn device<'a>(&'a self, name: &'a str) -> &'a str {
        self.asked.lock().unwrap_or_else(|e| e.into_inner()).insert(name.to_string());
        self.here(name)
    }
    fn here<'a>(&'a self, name: &'a str) -> &'a str {
        self.devices.get(name).map_or(name, String::as_str)
    }
    /// The devices that were given another name and that nobody has asked for so far.
    pub(crate) fn unused_devices(&self) -> Vec<UnusedDevice> {
        let asked = self.asked.lock().unwrap_or_else(|e| e.into_inner());
        let names: Vec<&str> = asked.iter().map(String::as_str).collect();
        let help = match &names[..] {
            [] => "the configuration uses no device".to_string(),
            [only] => format!("the configuration uses the device {only}"),
            all => format!("the configuration uses the devices {}", all.join(", ")),
        };
        let mut unused: Vec<_> = self.devices.iter().filter(|(name, _)| !asked.contains(*name)).collect();
        unused.sort();
        let message = |name, here| format!("no element uses a device '{name}', which would be {here} here");
        unused
            .into_iter()
            .map(|(name, here)| UnusedDevice { message: message(name, here), help: help.clone() })
            .collect()
    }
    /// The IPv4 address behind `name` or `name:ip`; of its network's broadcasts behind `name:bcast`; the first of its
    /// network behind `name:gw`.
    pub fn ip(&self, name: &str) -> Option<Ipv4Addr> {
        if let Some(name) = name.strip_suffix(":bcast") {
            let prefix = self.prefix(name)?;
            return Some(Ipv4Addr::from(u32::from(prefix.addr()) | !mask(prefix.len())));
        }
        if let Some(name) = name.strip_suffix(":gw") {
            let prefix = self.prefix(name)?;
            return Some(Ipv4Addr::from(u32::from(prefix.addr()) & mask(prefix.len()) | 1));
        }
        self.lookup(name.strip_suffix(":ip").unwrap_or(name), |entry| entry.ip).map(|(address, _)| address)
    }
    /// The IPv6 address behind `name` or `name:ip6`.
    pub fn ip6(&self, name: &str) -> Option<Ipv6Addr> {
        self.lookup(name.strip_suffix(":ip6").unwrap_or(name), |entry| entry.ip6).map(|(address, _)| address)
    }
    /// The network behind `name` or `name:ipnet`.
    pub fn prefix(&self, name: &str) -> Option<Ipv4Prefix> {
        let network = |entry: &Entry| entry.ip.and_then(|(address, len)| Some((address, len?)));
        let (address, len) = self.lookup(name.strip_suffix(":ipnet").unwrap_or(name), network)?;
        Ipv4Prefix::new(address, len).ok()
    }
    /// The Ethernet address behind `name`, `name:eth`, or of the device `name` of this machine.
    pub fn ether(&self, name: &str) -> Option<EtherAddr> {
        let name = name.strip_suffix(":eth").unwrap_or(name);
        let device = || {
            let address = self.ask_device?(self.here(name));
            // A word that is neither address nor device is not taken for one, unless somebody says that it is.
            if address.is_some() || self.devices.contains_key(name) {
                self.device(name);
            }
            address.map(EtherAddr::from)
        };
        self.lookup(name, |entry| entry.ether).or_else(device)
    }
}

fn mask(len: u8) -> u32 {
    u32::MAX.checked_shl(32 - u32::from(len)).unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn inner_compounds_see_outer_names_and_may_have_their_own() {
        let ip = |last| Entry { ip: Some((Ipv4Addr::new(10, 0, 0, last), Some(24))), ..Entry::default() };
        let mut names = Names::default();
        names.define("a", ip(1));
        names.enter("c/d/");
        names.define("a", ip(2));
        names.define("b", ip(3));
        let seen = |names: &Names, name| names.ip(name).map(|ip| ip.octets()[3]);
        assert_eq!((seen(&names, "a"), seen(&names, "b:ip")), (Some(2), Some(3)));
        names.enter("c/");
        assert_eq!((seen(&names, "a"), seen(&names, "b")), (Some(1), None));
        names.enter("");
        assert_eq!((seen(&names, "a:bcast"), seen(&names, "a:gw")), (Some(255), Some(1)));
    }

    #[test]
    fn devices_that_got_another_name_and_that_nobody_asks_for_are_told() {
        let mut names = Names::default();
        names.ask_devices(|device| (device == "lo").then_some([0; 6]));
        for (name, here) in [("eth0", "lo"), ("eth1", "lo"), ("eth2", "absent")] {
            names.map_device(name, here);
        }
        let elements = names.clone();
        assert_eq!(elements.device("eth0"), "lo");
        assert_eq!((elements.ether("eth2:eth"), elements.ether("no device")), (None, None));
        let unused = names.unused_devices();
        let message = "no element uses a device 'eth1', which would be lo here".to_string();
        let help = "the configuration uses the devices eth0, eth2".to_string();
        assert_eq!(unused, [UnusedDevice { message, help }]);
        assert!(elements.ether("eth1:eth").is_some());
        assert_eq!(names.unused_devices(), []);
    }
}
