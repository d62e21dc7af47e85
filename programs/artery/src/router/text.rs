//! A plan as a configuration with comments, as a user would write it.
use super::{Attachment, Fpm, Plan, Port, RouteTarget, Vlan, bfd, host, pf, service};
use anyhow::anyhow;
use artery_l3::router::ReversePath;
use std::collections::HashSet;
use std::fmt::Write as _;

/// The text; `called` is the command that it stands for.
pub(super) fn configuration(plan: &Plan, called: &str) -> anyhow::Result<String> {
    let text = format!("// {}\n\n", called.replace('\n', " ")) + &elements(plan);
    // What this makes is a configuration by construction; a name that broke it would be a mistake of ours.
    artery_lang::format(&text).map_err(|_| anyhow!("these options make no configuration:\n{text}"))
}

/// The router's elements and their connections.
pub(super) fn elements(plan: &Plan) -> String {
    let (parents, names) = names(&plan.ports);
    let mut text = router(plan);
    text += FORWARDERS;
    text += &pf::filter_text(plan);
    text += &service::text(plan);
    let writer = Writer { plan, names: &names };
    // What VLANs need of their interfaces comes before them.
    parents.iter().for_each(|(device, name)| text += &writer.parent(device, name));
    for (n, port) in plan.ports.iter().enumerate().filter(|(_, port)| port.vlan.is_none()) {
        text += &writer.port(n, port);
    }
    for (n, port) in plan.ports.iter().enumerate() {
        text += &port.vlan.as_ref().map_or(String::new(), |vlan| writer.vlan(n, port, vlan, &parents));
    }
    text += &bfd::text(plan);
    text += &exceptions(plan);
    text += &if plan.has_host_ports() { host_ports_text(plan, &names) } else { host_text(plan) };
    text += &fpm_text(plan);
    text
}

const FORWARDERS: &str = "
// Plain forwarding, each packet in one step. Port I of the router is input and output I of all three.
v4 :: IPForward(ip);
v6 :: IP6Forward(ip);
";

/// An interface that has VLANs as ports but is not a port itself, and its name in the configuration.
type Parent<'a> = (&'a str, String);

/// The names of such interfaces, and of ports, as parts of elements' names, all different.
fn names(ports: &[Port]) -> (Vec<Parent<'_>>, Vec<String>) {
    let mut taken = HashSet::new();
    let mut name = |n: usize, device: &str| {
        let plain: String = device.chars().map(|c| if c.is_ascii_alphanumeric() { c } else { '_' }).collect();
        match taken.insert(plain.clone()) {
            true => plain,
            // No interface's name is as long.
            false => format!("{plain}_port_{n}"),
        }
    };
    let names = ports.iter().enumerate().map(|(n, port)| name(n, &port.name)).collect();
    let mut parents: Vec<Parent<'_>> = Vec::new();
    for (n, port) in ports.iter().enumerate() {
        let device = port.device();
        let is_port = ports.iter().any(|other| other.name == device);
        if !is_port && !parents.iter().any(|(other, _)| *other == device) {
            parents.push((device, name(ports.len() + n, device)));
        }
    }
    (parents, names)
}

fn router(plan: &Plan) -> String {
    let mut arguments = Vec::new();
    for port in &plan.ports {
        let addresses = port.addresses.iter().map(|(address, len)| format!(" {address}/{len}"));
        let mtu = port.effective_mtu().map_or(String::new(), |mtu| format!(" MTU {}", mtu.min(65535)));
        let limit = port.settings.mtu.map_or(String::new(), |limit| format!(" MTU_LIMIT {limit}"));
        let rpf = match port.settings.rpf {
            ReversePath::Off => "",
            ReversePath::Loose => " RPF loose",
            ReversePath::Strict => " RPF strict",
        };
        let onlink = if port.settings.onlink { " ONLINK true" } else { "" };
        let virtual_addresses = port.virtual_addresses.iter().map(|address| format!(" VIP {address}"));
        let all: String = addresses.chain(virtual_addresses).collect();
        let ether = match (&port.vlan, &port.attachment) {
            (Some(vlan), _) => format!(" ETHER {}:eth", vlan.parent),
            (None, Some(attachment)) => format!(" ETHER {}", attachment.link),
            (None, None) => String::new(),
        };
        arguments.push(format!("PORT {}{all}{ether}{mtu}{limit}{rpf}{onlink}", port.name));
    }
    if plan.host.is_some() {
        arguments.push(format!("HOST {}", host::LINK));
    }
    if plan.has_host_ports() {
        arguments.push("HOST_PORTS true".to_string());
    }
    for neighbor in &plan.neighbors {
        arguments.push(format!("NEIGHBOR {} {} {}", neighbor.port, neighbor.address, neighbor.link));
    }
    for table in &plan.tables {
        let gateways = table.gateways.iter().map(|gateway| format!(" {gateway}"));
        arguments.push(format!("TABLE {}{}", table.file, gateways.collect::<String>()));
    }
    for route in &plan.routes {
        let ways = route.targets.iter().map(|way| format!(" {}", way_text(way)));
        arguments.push(format!("ROUTE {}{}", route.prefix, ways.collect::<String>()));
    }
    let comment = "// Ports, routes and neighbors. It does all but plain forwarding: it asks for neighbors \
        and answers\n\
        // them, answers pings, tells senders of packets that can't go on, and puts fragments together.";
    format!("{comment}\nip :: IPRouter(\n    {});\n", arguments.join(",\n    "))
}

fn way_text(way: &RouteTarget) -> String {
    let weighted =
        |way: String, weight: u32| if weight == 1 { way } else { format!("{way} weight {weight}") };
    match way {
        RouteTarget::End(end) => end.to_string(),
        RouteTarget::Port { name, weight } => weighted(name.clone(), *weight),
        RouteTarget::Gateway { address, port: None, weight } => weighted(address.to_string(), *weight),
        RouteTarget::Gateway { address, port: Some(port), weight } => {
            weighted(format!("{address}%{port}"), *weight)
        }
    }
}

/// Writes the elements that frames of ports go through.
struct Writer<'a> {
    plan: &'a Plan,
    /// Names in the configuration, by port number.
    names: &'a [String],
}

impl Writer<'_> {
    /// A port that is an interface. Frames with a tag that says a priority and no VLAN are taken as those
    /// without a tag (IEEE 802.1Q, 6.9).
    fn port(&self, n: usize, port: &Port) -> String {
        let (name, device) = (&self.names[n], &port.name);
        if self.plan.filter.is_some() {
            return self.filtered_port(n, port);
        }
        let (source, sink, about) = (self.source(n, port), self.sink(n, port), about(port));
        let (way, shortcuts) = (service::way(self.plan, n), service::shortcuts(self.plan, n));
        let again = service::entry(self.plan, n).unwrap_or_else(|| format!("in_{name}"));
        let vlans = self.vlans_of(device);
        format!(
            "
// Port {n}, {device}. {about}
{source} -> {way}in_{name} :: Classifier(12/0800, 12/86dd, 12/8100, -);
in_{name}[0] -> [{n}] v4;
in_{name}[1] -> [{n}] v6;
in_{name}[2] -> tags_{name} :: Classifier(14/0000%0fff, {kinds}-);
in_{name}[3] -> [{n}] ip;
tags_{name}[0] -> VLANDecap(false) -> {again};
{entries}tags_{name}[{rest}] -> [{n}] ip;
{errors}v4[{n}], v6[{n}], {own}{shortcuts} -> {sink};
",
            errors = service::errors(self.plan, n, name),
            own = service::own_packets(self.plan, n, name),
            kinds = kinds(&vlans, ""),
            entries = self.entries(name, 1, &vlans),
            rest = vlans.len() + 1,
        )
    }

    /// The same with a packet filter, which gets frames without a tag before all other elements.
    fn filtered_port(&self, n: usize, port: &Port) -> String {
        let (name, device) = (&self.names[n], &port.name);
        let vlans = self.vlans_of(device);
        let (source, sink, about) = (self.source(n, port), self.sink(n, port), about(port));
        format!(
            "
// Port {n}, {device}. {about}
{source} -> tagged_{name} :: Classifier(12/8100, -);
tagged_{name}[0] -> tags_{name} :: Classifier(14/0000%0fff, {kinds}-);
tagged_{name}[1] -> {way}in_{name} :: Classifier(12/0800, 12/86dd, -);
in_{name}[0] -> [{n}] v4;
in_{name}[1] -> [{n}] v6;
in_{name}[2] -> [{n}] ip;
tags_{name}[0] -> VLANDecap(false) -> tagged_{name};
{entries}tags_{name}[{rest}] -> [{n}] ip;
{errors}v4[{n}], v6[{n}], {own}{shortcuts} -> {out}{sink};
",
            errors = service::errors(self.plan, n, name),
            own = service::own_packets(self.plan, n, name),
            kinds = kinds(&vlans, ""),
            way = self.way(n),
            entries = self.entries(name, 1, &vlans),
            rest = vlans.len() + 1,
            shortcuts = service::shortcuts(self.plan, n),
            out = pf::outbound_path(self.plan, n),
        )
    }

    /// Where frames of a port come from.
    fn source(&self, n: usize, port: &Port) -> String {
        let (name, device) = (&self.names[n], &port.name);
        match &port.attachment {
            Some(Attachment { switch, number, .. }) => format!("{switch}[{number}]"),
            None => {
                let promiscuous = self.promiscuous(device);
                format!("from_{name} :: FromDevice({device}, SNIFFER false{promiscuous})")
            }
        }
    }

    /// Where frames go that leave by a port.
    fn sink(&self, n: usize, port: &Port) -> String {
        match &port.attachment {
            Some(Attachment { switch, number, .. }) => format!("[{number}] {switch}"),
            None => format!("to_{} :: ToDevice({})", self.names[n], port.name),
        }
    }

    /// What frames of a port go through before they are forwarded.
    fn way(&self, n: usize) -> String {
        pf::inbound_path(self.plan, n) + &service::way(self.plan, n)
    }

    /// An interface that is not a port itself.
    fn parent(&self, device: &str, name: &str) -> String {
        let vlans = self.vlans_of(device);
        format!(
            "
// {device}, for its VLANs. The host does not see what arrives here.
from_{name} :: FromDevice({device}, SNIFFER false{promiscuous}) -> tags_{name} :: Classifier({kinds}-);
{entries}tags_{name}[{rest}] -> Discard;
to_{name} :: ToDevice({device});
",
            promiscuous = self.promiscuous(device),
            kinds = kinds(&vlans, "12/8100 "),
            entries = self.entries(name, 0, &vlans),
            rest = vlans.len(),
        )
    }

    /// A port that is a VLAN of an interface, which is a port or one of `parents`.
    fn vlan(&self, n: usize, port: &Port, vlan: &Vlan, parents: &[Parent<'_>]) -> String {
        let name = &self.names[n];
        let as_port = self.plan.ports.iter().position(|other| other.name == vlan.parent);
        let as_port = as_port.map(|at| &self.names[at]);
        let as_parent = parents.iter().find(|(device, _)| *device == vlan.parent).map(|(_, name)| name);
        format!(
            "
// Port {n}, {}: VLAN {id} of {}.
in_{name}[0] -> [{n}] v4;
in_{name}[1] -> [{n}] v6;
in_{name}[2] -> [{n}] ip;
{errors}v4[{n}], v6[{n}], {own}{shortcuts} -> {out}VLANEncap(VLAN_ID {id}, NATIVE_VLAN -1) -> to_{parent};
",
            port.name,
            vlan.parent,
            id = vlan.id,
            errors = service::errors(self.plan, n, name),
            own = service::own_packets(self.plan, n, name),
            shortcuts = service::shortcuts(self.plan, n),
            out = pf::outbound_path(self.plan, n),
            parent = as_port.or(as_parent).map_or("", String::as_str),
        )
    }

    /// The VLANs of an interface that are ports: the ports, and their VLANs.
    fn vlans_of(&self, device: &str) -> Vec<(usize, u16)> {
        let of = |(n, port): (usize, &Port)| {
            port.vlan.as_ref().filter(|vlan| vlan.parent == device).map(|vlan| (n, vlan.id))
        };
        self.plan.ports.iter().enumerate().filter_map(of).collect()
    }

    /// Where frames of VLANs go that leave a classifier by its outputs from `first` on.
    fn entries(&self, parent: &str, first: usize, vlans: &[(usize, u16)]) -> String {
        let entry = |(at, (n, _)): (usize, &(usize, u16))| {
            let (way, name) = (self.way(*n), &self.names[*n]);
            format!(
                "tags_{parent}[{}] -> VLANDecap(false) -> {way}in_{name} :: Classifier(12/0800, 12/86dd, \
                 -);\n",
                first + at
            )
        };
        vlans.iter().enumerate().map(entry).collect()
    }

    /// Neighbor Discovery and routing protocols of the host use multicast groups that the interface would
    /// have to join. Drivers filter VLANs that they were not configured for. Promiscuous mode lets both pass.
    fn promiscuous(&self, device: &str) -> &'static str {
        let mut ports = self.plan.ports.iter().filter(|port| port.device() == device);
        let has_groups = |port: &Port| port.has_ipv6() || port.host_interface.is_some();
        if ports.any(|port| has_groups(port) || port.vlan.is_some()) { ", PROMISC true" } else { "" }
    }
}

/// What a comment says of a port.
fn about(port: &Port) -> String {
    let what = match &port.attachment {
        Some(attachment) => format!("Its link is the switch {}.", attachment.switch),
        None => "The host does not see what arrives here.".to_string(),
    };
    let described = port.description.iter().map(|text| format!(" {}", text.replace(char::is_control, " ")));
    what + &described.collect::<String>()
}

/// Classifier patterns that match VLAN IDs, after the pattern that matches a tag.
fn kinds(vlans: &[(usize, u16)], tag: &str) -> String {
    vlans.iter().map(|(_, id)| format!("{tag}14/{id:04x}%0fff, ")).collect()
}

/// The forwarders' exceptions go back to the input of the port that the packet arrived at.
fn exceptions(plan: &Plan) -> String {
    let (ports, entrance) = (plan.ports.len(), bfd::entrance(plan));
    let mut text = format!(
        "
// What is not plain goes to the input of the port that it came by, whose number is its paint.
v4[{ports}], v6[{ports}] -> exceptions :: PaintSwitch;
"
    );
    for n in 0..ports {
        let _ = writeln!(text, "exceptions[{n}] -> [{n}] {entrance};");
    }
    text
}

fn host_text(plan: &Plan) -> String {
    let host_port = plan.ports.len();
    let Some(name) = &plan.host else {
        return format!(
            "\n// There is no path to the host.\nIdle -> [{host_port}] ip;\nip[{host_port}] -> Discard;\n"
        );
    };
    let mut arguments = vec![name.clone(), format!("ETHER {}", host::LINK)];
    arguments.extend(host::mtu(plan).map(|mtu| format!("MTU {mtu}")));
    arguments.extend(host::addresses(plan).map(|(address, len)| format!("ADDRESS {address}/{len}")));
    format!(
        "
// The host, by an interface of its own that bears the router's addresses.
from_host :: FromHost({}) -> [{host_port}] ip;
ip[{host_port}] -> to_host :: ToHost({name});
{routes}",
        arguments.join(",\n    "),
        routes = host_routes(plan, name),
    )
}

/// The host ports of the router's ports, and what keeps them in step.
fn host_ports_text(plan: &Plan, names: &[String]) -> String {
    let ports = plan.ports.len();
    let mut text = format!(
        "
// Each port has an interface of its own on the host.
Idle -> [{ports}] ip;
ip[{ports}] -> Discard;
"
    );
    if plan.bfd.is_empty() {
        let _ = writeln!(text, "Idle -> [{}] ip;", ports + 1);
    }
    for (n, (port, name)) in plan.ports.iter().zip(names).enumerate() {
        let Some(interface) = &port.host_interface else { continue };
        let mtu = port.effective_mtu().map_or(String::new(), |mtu| format!(", MTU {mtu}"));
        let _ = writeln!(
            text,
            "fromhost_{name} :: FromHost({interface}, ETHER {}:eth{mtu}, HOST_PORT true) -> [{}] ip;
ip[{}] -> tohost_{name} :: ToHost({interface});",
            port.device(),
            ports + 2 + n,
            ports + 1 + n,
        );
    }
    let routes = if plan.fpm.is_some() { ", ROUTES false" } else { "" };
    let pairs = host_port_arguments(plan);
    text += "\n// They are kept like the ports, and the router forwards by the host's routes that lead by \
             them.\n";
    let _ = writeln!(text, "host_ports :: HostPorts(ip{pairs}{routes});");
    if plan.has_host_routes {
        let _ = writeln!(
            text,
            "\n// The host has the router's routes, by these.\nhost_routes :: HostRoutes(ip{pairs});"
        );
    }
    text
}

/// `, PORT eth1 hp-eth1` for each port that has an interface on the host.
fn host_port_arguments(plan: &Plan) -> String {
    let pair = |port: &Port| Some(format!(", PORT {} {}", port.name, port.host_interface.as_ref()?));
    plan.ports.iter().filter_map(pair).collect()
}

/// What keeps the host's routes in step with the router's, if it is wanted.
fn host_routes(plan: &Plan, name: &str) -> String {
    match plan.has_host_routes {
        true => format!(
            "\n// The host has the router's routes, by its interface.\n\
             host_routes :: HostRoutes(ip, {name});\n"
        ),
        false => String::new(),
    }
}

fn fpm_text(plan: &Plan) -> String {
    let Some(Fpm { listen, hold }) = &plan.fpm else { return String::new() };
    let host = plan.host.as_ref().map_or(String::new(), |name| format!(", HOST {name}"));
    let (hold, pairs) = (hold.as_secs_f64(), host_port_arguments(plan));
    format!(
        "\n// FRR's zebra sends routes here, by its module dplane_fpm_nl.\n\
         fpm :: FPMServer(ip, LISTEN {listen}, HOLD {hold}s{host}{pairs});\n"
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    fn port(name: &str) -> Port {
        Port { name: name.to_string(), ..Port::default() }
    }

    #[test]
    fn names_of_elements_are_names_and_each_another() {
        assert_eq!(names(&["eth1", "br-a", "br.a"].map(port)).1, ["eth1", "br_a", "br_a_port_2"]);
        let vlan = |parent: &str, id| Port {
            vlan: Some(Vlan { parent: parent.into(), id }),
            ..port(&format!("{parent}.{id}"))
        };
        let ports = [vlan("eth1", 5), port("eth2"), vlan("eth1", 6), vlan("eth2", 7), port("eth1_5")];
        let (parents, names) = names(&ports);
        assert_eq!(names, ["eth1_5", "eth2", "eth1_6", "eth2_7", "eth1_5_port_4"]);
        assert_eq!(parents, [("eth1", "eth1".to_string())]);
    }
}
