//! Names that a configuration gives to addresses (AddressInfo) and devices.
use artery_wire::{EtherAddr, Ipv4Prefix};
use std::collections::{BTreeSet, HashMap};
use std::net::{Ipv4Addr, Ipv6Addr};
use std::sync::{Arc, Mutex};

/// What one name stands for.
#[derive(Clone, Debug, Default)]
pub struct NameEntry {
    /// IPv4 address, with the length of its network when that was given.
    pub ip: Option<(Ipv4Addr, Option<u8>)>,
    /// IPv6 address, with the length of its network when that was given.
    pub ip6: Option<(Ipv6Addr, Option<u8>)>,
    /// Ethernet address, from the configuration or the device.
    pub ether: Option<EtherAddr>,
}

/// Tells the Ethernet address of a device of this machine.
pub type DeviceLookup = fn(&str) -> Option<[u8; 6]>;

/// The names of one router.
#[derive(Clone, Debug, Default)]
pub struct Names {
    /// By the compound they are known in, with the slash, and name.
    entries: HashMap<String, NameEntry>,
    /// The compound from which names are looked up.
    scope: String,
    /// Device names of the configuration and what they are called on this machine.
    devices: HashMap<String, String>,
    /// Devices that elements of any graph asked for: all clones record them here.
    asked: Arc<Mutex<BTreeSet<String>>>,
    /// Asks this machine for the Ethernet address of a device.
    ask_device: Option<DeviceLookup>,
}

/// A renamed device that no element asked for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct UnusedDevice {
    pub(crate) message: String,
    /// Which devices were asked for.
    pub(crate) help: String,
}

impl Names {
    /// Adds to what `name` stands for in the compound of [`Names::enter_scope`] and those inside it.
    pub fn define_name(&mut self, name: &str, entry: NameEntry) {
        let known = self.entries.entry(format!("{}{name}", self.scope)).or_default();
        known.ip = entry.ip.or(known.ip);
        known.ip6 = entry.ip6.or(known.ip6);
        known.ether = entry.ether.or(known.ether);
    }
    /// Lets names be looked up and defined from the compound `scope` on; with its slash,
    /// empty for the outermost.
    pub fn enter_scope(&mut self, scope: &str) {
        scope.clone_into(&mut self.scope);
    }
    /// What `name` stands for, in the innermost compound that says something about `part`.
    fn lookup_part<T>(&self, name: &str, part: impl Fn(&NameEntry) -> Option<T>) -> Option<T> {
        let mut scope = self.scope.as_str();
        loop {
            if let Some(value) = self.entries.get(&format!("{scope}{name}")).and_then(&part) {
                return Some(value);
            }
            let outer = scope.strip_suffix('/')?;
            scope = outer.rfind('/').map_or("", |at| &scope[..=at]);
        }
    }
    /// Maps the configuration's device `name` to this machine's `device`.
    pub fn map_device(&mut self, name: &str, device: &str) {
        self.devices.insert(name.to_string(), device.to_string());
    }
    /// Sets the lookup of Ethernet addresses of this machine's devices; without it none is known.
    pub fn set_device_lookup(&mut self, ask: DeviceLookup) {
        self.ask_device = Some(ask);
    }
    /// This machine's name of a device of the configuration.
    pub fn device_name<'a>(&'a self, name: &'a str) -> &'a str {
        self.asked.lock().unwrap_or_else(|e| e.into_inner()).insert(name.to_string());
        self.local_name(name)
    }
    fn local_name<'a>(&'a self, name: &'a str) -> &'a str {
        self.devices.get(name).map_or(name, String::as_str)
    }
    /// The renamed devices that no element has asked for so far.
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
    /// The IPv4 address behind `name` or `name:ip`; of its network's broadcasts behind `name:bcast`; the
    /// first of its network behind `name:gw`.
    pub fn lookup_ipv4(&self, name: &str) -> Option<Ipv4Addr> {
        if let Some(name) = name.strip_suffix(":bcast") {
            let prefix = self.lookup_prefix(name)?;
            return Some(Ipv4Addr::from(u32::from(prefix.addr()) | !prefix_mask(prefix.len())));
        }
        if let Some(name) = name.strip_suffix(":gw") {
            let prefix = self.lookup_prefix(name)?;
            return Some(Ipv4Addr::from(u32::from(prefix.addr()) & prefix_mask(prefix.len()) | 1));
        }
        self.lookup_part(name.strip_suffix(":ip").unwrap_or(name), |entry| entry.ip)
            .map(|(address, _)| address)
    }
    /// The IPv6 address behind `name` or `name:ip6`.
    pub fn lookup_ipv6(&self, name: &str) -> Option<Ipv6Addr> {
        self.lookup_part(name.strip_suffix(":ip6").unwrap_or(name), |entry| entry.ip6)
            .map(|(address, _)| address)
    }
    /// The network behind `name` or `name:ipnet`.
    pub fn lookup_prefix(&self, name: &str) -> Option<Ipv4Prefix> {
        let network = |entry: &NameEntry| entry.ip.and_then(|(address, len)| Some((address, len?)));
        let (address, len) = self.lookup_part(name.strip_suffix(":ipnet").unwrap_or(name), network)?;
        Ipv4Prefix::new(address, len).ok()
    }
    /// The Ethernet address behind `name`, `name:eth`, or of the device `name` of this machine.
    pub fn lookup_ether(&self, name: &str) -> Option<EtherAddr> {
        let name = name.strip_suffix(":eth").unwrap_or(name);
        let device = || {
            let address = self.ask_device?(self.local_name(name));
            // A word that is neither address nor device is taken for a device only where the caller says so.
            if address.is_some() || self.devices.contains_key(name) {
                self.device_name(name);
            }
            address.map(EtherAddr::from)
        };
        self.lookup_part(name, |entry| entry.ether).or_else(device)
    }
}

fn prefix_mask(len: u8) -> u32 {
    u32::MAX.checked_shl(32 - u32::from(len)).unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn inner_compounds_see_outer_names_and_may_have_their_own() {
        let ip =
            |last| NameEntry { ip: Some((Ipv4Addr::new(10, 0, 0, last), Some(24))), ..NameEntry::default() };
        let mut names = Names::default();
        names.define_name("a", ip(1));
        names.enter_scope("c/d/");
        names.define_name("a", ip(2));
        names.define_name("b", ip(3));
        let seen = |names: &Names, name| names.lookup_ipv4(name).map(|ip| ip.octets()[3]);
        assert_eq!((seen(&names, "a"), seen(&names, "b:ip")), (Some(2), Some(3)));
        names.enter_scope("c/");
        assert_eq!((seen(&names, "a"), seen(&names, "b")), (Some(1), None));
        names.enter_scope("");
        assert_eq!((seen(&names, "a:bcast"), seen(&names, "a:gw")), (Some(255), Some(1)));
    }

    #[test]
    fn devices_that_got_another_name_and_that_nobody_asks_for_are_told() {
        let mut names = Names::default();
        names.set_device_lookup(|device| (device == "lo").then_some([0; 6]));
        for (name, here) in [("eth0", "lo"), ("eth1", "lo"), ("eth2", "absent")] {
            names.map_device(name, here);
        }
        let elements = names.clone();
        assert_eq!(elements.device_name("eth0"), "lo");
        assert_eq!((elements.lookup_ether("eth2:eth"), elements.lookup_ether("no device")), (None, None));
        let unused = names.unused_devices();
        let message = "no element uses a device 'eth1', which would be lo here".to_string();
        let help = "the configuration uses the devices eth0, eth2".to_string();
        assert_eq!(unused, [UnusedDevice { message, help }]);
        assert!(elements.lookup_ether("eth1:eth").is_some());
        assert_eq!(names.unused_devices(), []);
    }
}
