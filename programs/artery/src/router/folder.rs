//! A router that a folder of BSD's files describes, for `artery up`: checked by the tables and written by the
//! text of `artery router`.
use super::pf::{Filter, rule_interfaces};
use super::{Attachment, LEAST_IPV6_MTU, Plan, Port, USUAL_MTU, Vlan};
use super::{check_plan, host, read, text};
use artery_filter::names::InterfaceRecord;
use std::net::IpAddr;

/// What the files of a folder say of a router.
#[derive(Clone, Debug, Default)]
pub(crate) struct FolderRouter {
    pub(crate) ports: Vec<FolderPort>,
    /// As `--route` takes them, `PREFIX=WAY[,WAY]…`.
    routes: Vec<String>,
    /// The name of the host's interface.
    pub(crate) host: String,
    pub(crate) filter: Option<Filter>,
}

/// A port of such a router.
#[derive(Clone, Debug, Default)]
pub(crate) struct FolderPort {
    pub(crate) name: String,
    pub(crate) addresses: Vec<(IpAddr, u8)>,
    /// The longest packet that its interface carries, in bytes, where that is known.
    pub(crate) mtu: Option<u32>,
    pub(crate) description: Option<String>,
    /// The switch that it is a port of, too.
    pub(crate) attachment: Option<Attachment>,
    /// The interface that it is a VLAN of, and its number.
    pub(crate) vlan: Option<Vlan>,
}

impl FolderRouter {
    /// A router without ports, which the host has an interface of this name to.
    pub(crate) fn new(host: String) -> FolderRouter {
        FolderRouter { host, ..FolderRouter::default() }
    }

    pub(crate) fn port(&self, name: &str) -> Option<&FolderPort> {
        self.ports.iter().find(|port| port.name == name)
    }

    /// Changes a port, unless the router can't be so; then says why.
    pub(crate) fn change_port(
        &mut self,
        name: &str,
        change: impl FnOnce(&mut FolderPort),
    ) -> Result<(), String> {
        let mut changed = self.clone();
        if let Some(port) = changed.ports.iter_mut().find(|port| port.name == name) {
            change(port);
        }
        self.accept(changed)
    }

    /// Adds a route, or a next hop to one if `is_multipath`; says why that can't be.
    pub(crate) fn add_route(&mut self, prefix: &str, target: &str, is_multipath: bool) -> Result<(), String> {
        let mut changed = self.clone();
        let is_same = |route: &&mut String| route.split('=').next() == Some(prefix);
        match changed.routes.iter_mut().find(is_same) {
            None => changed.routes.push(format!("{prefix}={target}")),
            Some(route) if is_multipath => *route += &format!(",{target}"),
            Some(_) => {
                return Err(format!(
                    "there is a route for {prefix} already; take one of them away, or write 'route add \
                     -mpath' for a further gateway"
                ));
            }
        }
        self.accept(changed)
    }

    fn accept(&mut self, changed: FolderRouter) -> Result<(), String> {
        match changed.mistakes() {
            mistakes if mistakes.is_empty() => *self = changed,
            mistakes => return Err(mistakes.join("; ")),
        }
        Ok(())
    }

    /// Mistakes of files that are well written, such as a gateway that no port reaches.
    fn mistakes(&self) -> Vec<String> {
        let mut mistakes = Vec::new();
        let plan = self.plan(&mut mistakes);
        check_plan::judge(&plan, &mut mistakes);
        mistakes.extend(plan.ports.iter().filter_map(|port| short_for_ipv6(port.mtu, port)));
        mistakes
    }

    /// The plan as far as it can be read; what can't be is added to `mistakes`.
    fn plan(&self, mistakes: &mut Vec<String>) -> Plan {
        let mut routes = Vec::new();
        for text in &self.routes {
            match read::route(text) {
                Ok(route) => routes.push(super::Route { option: route.prefix.to_string(), ..route }),
                Err(why) => mistakes.push(why.replacen(&format!("--route {text}: "), "", 1)),
            }
        }
        Plan {
            ports: self.ports.iter().map(FolderPort::planned).collect(),
            routes,
            filter: self.filter.clone(),
            host: Some(self.host.clone()),
            has_host_routes: true,
            ..Plan::default()
        }
    }

    /// The plan of a router that nothing is wrong with.
    fn good_plan(&self) -> Plan {
        self.plan(&mut Vec::new())
    }

    /// The interfaces that rules can name.
    pub(crate) fn rule_interfaces(&self) -> Vec<InterfaceRecord> {
        rule_interfaces(&self.good_plan())
    }

    /// Its elements and their connections, for a configuration.
    pub(crate) fn elements(&self) -> String {
        text::elements(&self.good_plan())
    }

    /// What the user should know before it starts, on a machine that calls its interfaces so.
    pub(crate) fn warnings<'n>(&'n self, machine: impl Fn(&'n str) -> &'n str) -> Vec<String> {
        let mut plan = self.good_plan();
        for (planned, port) in plan.ports.iter_mut().zip(&self.ports) {
            planned.name = machine(&port.name).to_string();
        }
        host::warnings(&plan)
    }
}

impl FolderPort {
    /// The interface that its frames arrive at, as the files call it.
    pub(crate) fn device(&self) -> &str {
        self.vlan.as_ref().map_or(&self.name, |vlan| &vlan.parent)
    }

    fn planned(&self) -> Port {
        Port {
            option: self.name.clone(),
            name: self.name.clone(),
            addresses: self.addresses.clone(),
            mtu: self.mtu.filter(|mtu| *mtu != USUAL_MTU),
            vlan: self.vlan.clone(),
            description: self.description.clone(),
            attachment: self.attachment.clone(),
            ..Port::default()
        }
    }

    /// Why an interface that carries packets of this length can't be the port.
    pub(crate) fn short_for_ipv6(&self, mtu: u32) -> Option<String> {
        short_for_ipv6(Some(mtu), &self.planned())
    }
}

fn short_for_ipv6(mtu: Option<u32>, port: &Port) -> Option<String> {
    let mtu = mtu.filter(|mtu| *mtu < LEAST_IPV6_MTU && port.has_ipv6())?;
    let name = &port.name;
    Some(format!(
        "{name} carries {mtu} bytes, and IPv6 needs {LEAST_IPV6_MTU}; write 'mtu {LEAST_IPV6_MTU}' or more \
         to hostname.{name}, or no inet6 address"
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn router(ports: &[(&str, &str)]) -> FolderRouter {
        let port = |(name, address): &(&str, &str)| {
            let (address, length) = address.split_once('/').unwrap();
            let addresses = vec![(address.parse().unwrap(), length.parse().unwrap())];
            FolderPort { name: name.to_string(), addresses, ..FolderPort::default() }
        };
        FolderRouter {
            ports: ports.iter().map(port).collect(),
            host: "artery0".into(),
            ..FolderRouter::default()
        }
    }

    #[test]
    fn what_contradicts_itself_is_refused_and_changes_nothing() {
        let mut router = router(&[("em0", "10.0.0.1/24"), ("em1", "10.0.1.1/24")]);
        let same = router.change_port("em1", |port| port.addresses.push(("10.0.0.2".parse().unwrap(), 24)));
        assert_eq!(
            same.unwrap_err(),
            "em1: 10.0.0.0/24 is the network of port em0, too; give each port a network of its own"
        );
        assert_eq!(router.port("em1").unwrap().addresses.len(), 1);
        let unreached = router.add_route("0.0.0.0/0", "10.9.9.9", false).unwrap_err();
        assert!(unreached.starts_with("0.0.0.0/0: gateway 10.9.9.9: no port has an address"), "{unreached}");
        assert!(router.routes.is_empty());
        let short = router.change_port("em0", |port| {
            port.addresses.push(("fd00::1".parse().unwrap(), 64));
            port.mtu = Some(1000);
        });
        let expected = "em0 carries 1000 bytes, and IPv6 needs 1280; write 'mtu 1280'";
        assert!(short.unwrap_err().starts_with(expected));
    }

    #[test]
    fn a_route_has_further_gateways_if_that_is_said() {
        let mut router = router(&[("em0", "10.0.0.1/24")]);
        router.add_route("10.9.0.0/16", "10.0.0.2", false).unwrap();
        let again = router.add_route("10.9.0.0/16", "10.0.0.3", false).unwrap_err();
        assert!(again.starts_with("there is a route for 10.9.0.0/16 already"), "{again}");
        router.add_route("10.9.0.0/16", "10.0.0.3", true).unwrap();
        assert_eq!(router.routes, ["10.9.0.0/16=10.0.0.2,10.0.0.3"]);
        assert!(router.elements().contains("ROUTE 10.9.0.0/16 10.0.0.2 10.0.0.3"), "{}", router.elements());
    }

    #[test]
    fn the_port_of_a_default_route_is_in_the_group_egress() {
        let mut router = router(&[("em0", "10.0.0.1/24"), ("em1", "10.0.1.1/24")]);
        router.add_route("0.0.0.0/0", "10.0.1.254", false).unwrap();
        let records = router.rule_interfaces();
        let outward: Vec<&str> = records
            .iter()
            .filter(|record| record.groups.iter().any(|group| group == "egress"))
            .map(|record| record.name.as_str())
            .collect();
        assert_eq!(outward, ["em1"]);
    }
}
