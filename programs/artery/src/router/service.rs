//! Services that the router shares out among servers, as options say them and as elements.
use super::options::{RouterOptions, split};
use super::{Plan, Port};
use artery_flow::balance::{Check, Member, Method};
use artery_lpm::Prefix;
use std::collections::HashSet;
use std::fmt::Write as _;
use std::net::{IpAddr, SocketAddr};

/// A service and its members.
#[derive(Debug)]
pub(super) struct Service {
    /// The option, for messages.
    option: String,
    /// What clients connect to.
    address: IpAddr,
    /// None for all ports.
    port: Option<u16>,
    /// Empty for all protocols.
    protocol: String,
    /// The address, port and protocol, in FlowBalancer's form.
    place: String,
    /// The same as the option says it.
    name: String,
    members: Vec<String>,
    member_addresses: Vec<IpAddr>,
    /// The health check of members, if there is one.
    check: Option<String>,
    /// The name of its element.
    element: String,
}

/// How connections are spread over members, as arguments of FlowBalancer; empty for the default.
#[derive(Debug, Default)]
pub(super) struct Sharing {
    arguments: Vec<String>,
    /// Whether packets are translated: then they take no shortcut past the forwarders.
    is_nat: bool,
}

const WANTS: &str = "ADDRESS:PORT[/tcp|/udp]=NAME=ADDRESS[,NAME=ADDRESS]…, as in \
    192.0.2.1:80/tcp=web1=10.0.2.11,web2=10.0.2.12@3";

/// Parses a service, `ADDRESS[:PORT][/PROTOCOL]=NAME=ADDRESS[:PORT][@WEIGHT],…`.
pub(super) fn read(text: &str) -> Result<Service, String> {
    let (place, members) = split("--service", text, WANTS)?;
    let wrong = |why: String| format!("--service {text}: {why}");
    let (address, protocol) = place.split_once('/').unwrap_or((place, ""));
    if !["", "tcp", "udp"].contains(&protocol) {
        return Err(wrong(format!("'{protocol}' is neither tcp nor udp; write {WANTS}")));
    }
    let (ip, port) = match address.parse::<SocketAddr>() {
        Ok(both) if both.port() > 0 => (both.ip(), Some(both.port())),
        Ok(_) => return Err(wrong(format!("{address}: a port is a number from 1 to 65535"))),
        Err(_) => {
            let invalid = |_| wrong(format!("'{address}' is not a valid address; write {WANTS}"));
            (address.parse().map_err(invalid)?, None)
        }
    };
    let place = format!("{address} {protocol}").trim_end().to_string();
    let name = text.split('=').next().unwrap_or_default().to_string();
    let (members, member_addresses) = all_members(members, ip).map_err(wrong)?;
    Ok(Service {
        option: format!("--service {text}"),
        address: ip,
        port,
        protocol: protocol.to_string(),
        place,
        name,
        members,
        member_addresses,
        check: None,
        element: String::new(),
    })
}

/// Members behind commas, each of another name, and their addresses.
fn all_members(text: &str, service: IpAddr) -> Result<(Vec<String>, Vec<IpAddr>), String> {
    let mut names = HashSet::new();
    let one = |word: &str| {
        let member = member(word, service)?;
        let name = word.split('=').next().unwrap_or_default();
        let repeated = || format!("two servers are called {name}; give each a name of its own");
        names.insert(name.to_string()).then_some(member).ok_or_else(repeated)
    };
    text.split(',').map(one).collect::<Result<Vec<_>, _>>().map(|all| all.into_iter().unzip())
}

/// `NAME=ADDRESS[:PORT][@WEIGHT]`, of the service's family.
fn member(word: &str, service: IpAddr) -> Result<(String, IpAddr), String> {
    let wants = || format!("'{word}' is not a server; write NAME=ADDRESS, as in web1=10.0.2.11");
    let (name, place) = word.split_once('=').ok_or_else(wants)?;
    let (place, weight) = place.split_once('@').unwrap_or((place, "1"));
    let text = format!("{name} {place} weight {weight}");
    let member: Member = text.parse().map_err(|why| format!("{word}: {why}"))?;
    if member.address.is_ipv4() != service.is_ipv4() {
        return Err(format!("{word}: {} takes no packets to {service}, of the other family", member.address));
    }
    Ok((if weight == "1" { format!("{name} {place}") } else { text }, member.address))
}

/// How connections are spread over members; mistakes are added to `mistakes`.
pub(super) fn sharing(options: &RouterOptions, mistakes: &mut Vec<String>) -> Sharing {
    let mut arguments = Vec::new();
    if let Some(text) = &options.method {
        match text.parse::<Method>() {
            Ok(_) => arguments.push(format!("METHOD {text}")),
            Err(why) => mistakes.push(format!("--method '{text}': {why}")),
        }
    }
    if let Some(seed) = options.seed {
        arguments.push(format!("SEED {seed}"));
    }
    if options.nat {
        arguments.push("FORWARD nat".to_string());
    }
    let says_how =
        options.method.is_some() || options.seed.is_some() || !options.check.is_empty() || options.nat;
    if options.service.is_empty() && says_how {
        let what = "--method, --seed, --check and --nat are about services; name one by --service";
        mistakes.push(what.to_string());
    }
    Sharing { arguments, is_nat: options.nat }
}

/// Gives services their own checks, and all others the common one; mistakes are added to `mistakes`.
pub(super) fn set_checks(options: &RouterOptions, services: &mut [Service], mistakes: &mut Vec<String>) {
    let mut for_all = None;
    for text in &options.check {
        let (of, check) = match text.split_once('=') {
            Some((name, check)) if services.iter().any(|service| service.name == name) => (Some(name), check),
            Some((name, _)) if names_place(name) => {
                mistakes.push(format!("--check '{text}': there is no --service {name}; write it as there"));
                continue;
            }
            _ => (None, text.as_str()),
        };
        if let Some(why) = fault_of_check(options, check) {
            mistakes.push(format!("--check '{text}': {why}"));
            continue;
        }
        let mut places: Vec<&mut Option<String>> = match of {
            Some(name) => {
                let named = services.iter_mut().filter(|service| service.name == name);
                named.map(|service| &mut service.check).collect()
            }
            None => vec![&mut for_all],
        };
        if places.iter_mut().any(|place| place.replace(check.to_string()).is_some()) {
            let other = |name| format!("{name} has a check already");
            let other = of.map_or_else(|| "another --check is for all services".to_string(), other);
            mistakes
                .push(format!("--check '{text}': {other}; write SERVICE=CHECK, as in 192.0.2.1:80/tcp=ping"));
        }
    }
    for service in services.iter_mut().filter(|service| service.check.is_none()) {
        service.check.clone_from(&for_all);
    }
}

/// Whether a word is what a service could be called.
fn names_place(word: &str) -> bool {
    let address = word.split('/').next().unwrap_or_default();
    address.parse::<SocketAddr>().is_ok() || address.parse::<IpAddr>().is_ok()
}

/// The mistake in a check, if there is one.
fn fault_of_check(options: &RouterOptions, check: &str) -> Option<String> {
    if let Err(why) = check.parse::<Check>() {
        return Some(why.to_string());
    }
    if let Some(word) = strange(check) {
        return Some(format!("'{word}' can't be written in a configuration; ask for another path"));
    }
    options.no_host.then(|| {
        "health checks are sent by the host, and --no-host gives it no path to the servers; leave out \
         --no-host or --check"
            .to_string()
    })
}

/// What of a text would be something else in a configuration.
fn strange(text: &str) -> Option<String> {
    let is_strange = |c: &char| !(c.is_ascii_alphanumeric() || " -_./:=%~+&?@".contains(*c));
    let comment = ["//", "/*"].into_iter().find(|mark| text.contains(mark)).map(str::to_string);
    comment.or_else(|| text.chars().find(is_strange).map(String::from))
}

/// Adds to `mistakes` services that could never have a connection, and servers that could never get one.
pub(super) fn judge(plan: &Plan, mistakes: &mut Vec<String>) {
    let own: HashSet<IpAddr> =
        plan.ports.iter().flat_map(|port| &port.addresses).map(|(address, _)| *address).collect();
    for (n, service) in plan.services.iter().enumerate() {
        let what = &service.option;
        if let Some(first) = plan.services[..n].iter().find(|first| first.takes_all_of(service)) {
            mistakes.push(format!(
                "{what}: --service {} before it takes all of its packets; name all servers there, or put it \
                 first if it is the smaller one",
                first.name
            ));
        }
        for address in &service.member_addresses {
            if own.contains(address) {
                mistakes.push(format!(
                    "{what}: the server {address} is an address of this router; name other machines"
                ));
            } else if *address == service.address {
                mistakes.push(format!(
                    "{what}: the server {address} is the service itself; name the server's own address"
                ));
            }
        }
    }
}

impl Service {
    /// Whether no packet of another service that stands behind this one gets there.
    fn takes_all_of(&self, other: &Service) -> bool {
        self.address == other.address
            && self.port.is_none_or(|port| other.port == Some(port))
            && (self.protocol.is_empty() || self.protocol == other.protocol)
    }
}

/// Has ports answer for the services whose addresses are in their prefixes: clients on their links resolve
/// these by ARP or Neighbor Discovery. The router answers for its own addresses in any case.
pub(super) fn place_addresses(plan: &mut Plan) {
    let mut placed = HashSet::new();
    for address in plan.services.iter().map(|service| service.address) {
        let is_own = plan.ports.iter().flat_map(|port| &port.addresses).any(|(own, _)| *own == address);
        if is_own || !placed.insert(address) {
            continue;
        }
        let length_at = |port: &Port| {
            let prefixes = port.addresses.iter().filter(|(own, len)| shares_prefix(*own, address, *len));
            prefixes.map(|(_, len)| *len).max()
        };
        if let Some(port) =
            plan.ports.iter_mut().filter(|port| length_at(port).is_some()).max_by_key(|port| length_at(port))
        {
            port.virtual_addresses.push(address);
        }
    }
}

/// Whether an address is in the network of another.
fn shares_prefix(own: IpAddr, other: IpAddr, len: u8) -> bool {
    match (own, other) {
        (IpAddr::V4(own), IpAddr::V4(other)) => Prefix::of(own.to_bits(), len).contains(other.to_bits()),
        (IpAddr::V6(own), IpAddr::V6(other)) => Prefix::of(own.to_bits(), len).contains(other.to_bits()),
        _ => false,
    }
}

/// Services of a router that runs, with the names of their elements.
pub(super) type Names = Vec<(String, String)>;

/// Names the elements of services. A service's flow table goes with its element's name, so a service keeps
/// its name whatever services are added or removed before it.
pub(super) fn name_elements(services: &mut [Service], known: &Names) {
    let mut taken: HashSet<String> = HashSet::new();
    for service in &mut *services {
        service.element.clear();
        let name = known.iter().find(|(name, _)| *name == service.name).map(|(_, element)| element);
        if let Some(element) = name.filter(|element| taken.insert((*element).clone())) {
            service.element.clone_from(element);
        }
    }
    for service in services.iter_mut().filter(|service| service.element.is_empty()) {
        let mut free = (1..).map(|n| format!("service{n}")).filter(|name| !taken.contains(name));
        // There are more numbers than services.
        service.element = free.next().unwrap_or_default();
        taken.insert(service.element.clone());
    }
}

/// What the elements of services are called.
pub(super) fn names(services: &[Service]) -> Names {
    services.iter().map(|service| (service.name.clone(), service.element.clone())).collect()
}

/// The elements of services; empty without services.
pub(super) fn text(plan: &Plan) -> String {
    let mut text = String::new();
    let router = if plan.sharing.is_nat { "" } else { "ROUTER ip, " };
    for service in &plan.services {
        let members: String =
            service.members.iter().map(|member| format!(",\n    MEMBER {member}")).collect();
        let sharing: String =
            plan.sharing.arguments.iter().map(|argument| format!(",\n    {argument}")).collect();
        let check = service.check.iter().map(|check| format!(",\n    CHECK {check}")).collect::<String>();
        let _ = write!(
            text,
            "\n// Of packets to {place} each connection goes to one of the servers, and stays there.\n\
             {name} :: FlowBalancer(FRAMES true, {router}SERVICE {place}{members}{sharing}{check});\n",
            place = service.place,
            name = service.element
        );
    }
    text
}

/// What each element of a service gets to know of a planned change: its name, and lines for the handler
/// `plan` that it has.
pub(super) fn plans(plan: &Plan) -> Vec<(String, String)> {
    let is_about_members =
        |argument: &&String| argument.starts_with("METHOD ") || argument.starts_with("SEED ");
    let sharing = plan.sharing.arguments.iter().filter(is_about_members);
    let sharing: String = sharing.map(|argument| format!("{argument}\n")).collect();
    let lines = |service: &Service| {
        let members = service.members.iter().map(|member| format!("MEMBER {member}\n"));
        sharing.clone() + &members.collect::<String>()
    };
    plan.services.iter().map(|service| (service.element.clone(), lines(service))).collect()
}

/// What frames of port `n` go through before they are forwarded.
pub(super) fn way(plan: &Plan, n: usize) -> String {
    plan.services.iter().map(|service| format!("[{n}] {} [{n}] -> ", service.element)).collect()
}

/// The services whose packets are translated.
fn translated(plan: &Plan) -> &[Service] {
    if plan.sharing.is_nat { &plan.services } else { &[] }
}

/// Takes the router's own ICMP errors for port `n` through services that translate: they quote packets as
/// these are behind a service, and their senders know them as they were before.
pub(super) fn errors(plan: &Plan, n: usize, name: &str) -> String {
    let way: Vec<String> = translated(plan)
        .iter()
        .map(|service| format!("[{at}] {}", service.element, at = plan.ports.len() + n))
        .collect();
    if way.is_empty() {
        return String::new();
    }
    format!(
        "ip[{n}] -> sent_{name} :: Classifier(12/0800 23/01, 12/86dd 20/3a, -);\n\
         sent_{name}[0], sent_{name}[1] -> {};\n",
        way.join(&format!(" [{}] -> ", plan.ports.len() + n))
    )
}

/// The outputs by which packets of the slow path leave by port `n`.
pub(super) fn own_packets(plan: &Plan, n: usize, name: &str) -> String {
    match translated(plan).last() {
        Some(last) => format!("sent_{name}[2], {}[{}]", last.element, plan.ports.len() + n),
        None => format!("ip[{n}]"),
    }
}

/// Where frames of port `n` that come by another way enter it, if there are services.
pub(super) fn entry(plan: &Plan, n: usize) -> Option<String> {
    plan.services.first().map(|service| format!("[{n}] {}", service.element))
}

/// The outputs of services by which plain packets leave at once by port `n`, behind others.
pub(super) fn shortcuts(plan: &Plan, n: usize) -> String {
    let services = if plan.sharing.is_nat { &[] } else { &plan.services[..] };
    services.iter().map(|service| format!(", {}[{}]", service.element, plan.ports.len() + n)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_service_has_servers_with_names_ports_and_weights() {
        let service = read("192.0.2.1:80/tcp=web1=10.0.2.11,web2=10.0.2.12:8080@3").unwrap();
        assert_eq!(service.place, "192.0.2.1:80 tcp");
        assert_eq!(service.members, ["web1 10.0.2.11", "web2 10.0.2.12:8080 weight 3"]);
        assert_eq!(read("[2001:db8::1]:53=a=2001:db8:2::a").unwrap().place, "[2001:db8::1]:53");
        assert_eq!(read("192.0.2.1=a=10.0.2.1").unwrap().place, "192.0.2.1");
    }

    #[test]
    fn what_a_configuration_would_take_for_something_else_is_strange() {
        for text in
            ["http /a,b", "http /a)b", "http /a//b", "http /$a", "http /a\"b", "http /a#b", "http /a\nb"]
        {
            assert!(strange(text).is_some(), "{text}");
        }
        assert_eq!(strange("http /health?full=1&x=%20 200-299 every 5s"), None);
    }

    #[test]
    fn what_is_wrong_with_a_service_is_named_with_the_remedy() {
        for (text, expected) in [
            ("192.0.2.1:80", "write --service ADDRESS:PORT"),
            ("192.0.2.1:80/sctp=a=10.0.2.1", "'sctp' is neither tcp nor udp"),
            ("192.0.2.1:0=a=10.0.2.1", "a port is a number from 1 to 65535"),
            ("host:80=a=10.0.2.1", "'host:80' is not a valid address"),
            ("192.0.2.1:80=10.0.2.1", "'10.0.2.1' is not a server; write NAME=ADDRESS"),
            ("192.0.2.1:80=a=2001:db8::1", "of the other family"),
            ("192.0.2.1:80=a=10.0.2.1@many", "a=10.0.2.1@many: "),
            (
                "192.0.2.1:80=a=10.0.2.1,b=10.0.2.2,a=10.0.2.3",
                "two servers are called a; give each a name of its own",
            ),
        ] {
            let why = read(text).unwrap_err();
            let names_option = why.starts_with(&format!("--service {text}: "));
            assert!(names_option && why.contains(expected), "{text}: {why}");
        }
    }
}
