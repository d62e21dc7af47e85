//! Names that a configuration gives to addresses (AddressInfo) and devices.
use artery_wire::{EtherAddr, Ipv4Prefix};
use std::collections::HashMap;
use std::net::Ipv4Addr;

/// What one name stands for.
#[derive(Clone, Debug, Default)]
pub struct Entry {
    /// IPv4 address, with the length of its network when that was given.
    pub ip: Option<(Ipv4Addr, Option<u8>)>,
    /// Ethernet address.
    pub ether: Option<EtherAddr>,
}

/// The names of one router.
#[derive(Clone, Debug, Default)]
pub struct Names {
    entries: HashMap<String, Entry>,
    /// Device names of the configuration and what they are called on this machine.
    devices: HashMap<String, String>,
}

impl Names {
    /// Adds to what `name` stands for.
    pub fn define(&mut self, name: &str, entry: Entry) {
        let known = self.entries.entry(name.to_string()).or_default();
        known.ip = entry.ip.or(known.ip);
        known.ether = entry.ether.or(known.ether);
    }
    /// Says that the configuration's device `name` is this machine's `device`.
    pub fn map_device(&mut self, name: &str, device: &str) {
        self.devices.insert(name.to_string(), device.to_string());
    }
    /// This machine's name of a device of the configuration.
    pub fn device<'a>(&'a self, name: &'a str) -> &'a str {
        self.devices.get(name).map_or(name, String::as_str)
    }
    /// The IPv4 address behind `name`, `name:ip` or `name:bcast`.
    pub fn ip(&self, name: &str) -> Option<Ipv4Addr> {
        if let Some(name) = name.strip_suffix(":bcast") {
            let prefix = self.prefix(name)?;
            return Some(Ipv4Addr::from(u32::from(prefix.addr()) | !mask(prefix.len())));
        }
        self.entries.get(name.strip_suffix(":ip").unwrap_or(name))?.ip.map(|(address, _)| address)
    }
    /// The network behind `name` or `name:ipnet`.
    pub fn prefix(&self, name: &str) -> Option<Ipv4Prefix> {
        let (address, len) = self.entries.get(name.strip_suffix(":ipnet").unwrap_or(name))?.ip?;
        Ipv4Prefix::new(address, len?).ok()
    }
    /// The Ethernet address behind `name`, `name:eth`, or of the device `name` of this machine.
    pub fn ether(&self, name: &str) -> Option<EtherAddr> {
        let name = name.strip_suffix(":eth").unwrap_or(name);
        self.entries.get(name).and_then(|entry| entry.ether).or_else(|| device_ether(self.device(name)))
    }
}

fn mask(len: u8) -> u32 {
    u32::MAX.checked_shl(32 - u32::from(len)).unwrap_or(0)
}

/// The Ethernet address of a device of this machine.
fn device_ether(device: &str) -> Option<EtherAddr> {
    let legal = !device.is_empty() && !device.contains(['/', '.', '\0']);
    let text = legal.then(|| std::fs::read_to_string(format!("/sys/class/net/{device}/address")).ok())??;
    text.trim().parse().ok()
}
