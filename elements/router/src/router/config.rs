//! A router's configuration: ports, routes, neighbors and tables in files, from arguments and handlers.
use super::route_text::{self, parse_ip, port_of};
use artery_device::{Interface, Ports};
use artery_engine::names::Names;
use artery_engine::{ArgError, ArgValue, Args};
use artery_l3::neighbor::Kind;
use artery_l3::router::{
    Engines, ExternalEngines, OwnEngines, PortSettings, PortSpec, ReversePath, RouteSpec, Settings, Tables,
};
use artery_lpm::load::Routes;
use artery_lpm::{Group, NO_GROUP, Prefix};
use artery_wire::EtherAddr;
use std::net::IpAddr;
use std::time::Duration;

/// The error about an invalid text.
type ParseError = String;

/// What texts are read with.
pub(super) struct ParseContext<'a> {
    pub(super) names: &'a Names,
    /// The ports of the machine that are already open: their interfaces may have been renamed.
    pub(super) devices: &'a Ports,
    pub(super) now: Duration,
}

impl ParseContext<'_> {
    /// The interface that a device of the configuration is, by the port that has it or else by its name.
    fn find_interface(&self, device: &str) -> Option<Interface> {
        let here = self.names.device_name(device);
        let open = self.devices.find(here).and_then(|port| port.interface());
        open.or_else(|| Interface::find(here).ok())
    }
    /// An Ethernet address, also one that is written as `DEVICE:eth`.
    fn parse_ether(&self, text: &str) -> Result<EtherAddr, ParseError> {
        let device = text
            .strip_suffix(":eth")
            .filter(|device| self.devices.find(self.names.device_name(device)).is_some());
        let of_port = device.and_then(|device| self.find_interface(device)?.mac);
        of_port.map_or_else(|| EtherAddr::parse(text, self.names), |mac| Ok(EtherAddr(mac)))
    }
}

/// The tables that the arguments describe: ports first, then what needs them.
pub(super) fn build_tables(args: &Args<'_>) -> Result<Tables, ArgError> {
    let is_told = match args.read::<String>("NEIGHBORS")?.as_str() {
        "own" => false,
        "external" | "told" => true,
        other => return Err(ArgError::wrong(format!("NEIGHBORS is own or external, not '{other}'"))),
    };
    // A control plane that supplies neighbors has applied its own forwarding rules before, as Linux
    // does with link-local addresses.
    let settings = Settings { forward_ipv4_link_local: is_told, ..Settings::default() };
    let tables = Tables::new(args.domain(), settings, |places, seed| -> Box<dyn Engines> {
        if is_told { Box::new(ExternalEngines::new(places)) } else { Box::new(OwnEngines::new(places, seed)) }
    });
    let mut tables = tables.map_err(|error| ArgError::wrong(error.to_string()))?;
    type Step = fn(&mut Tables, &str, &ParseContext<'_>) -> Result<(), ParseError>;
    const STEPS: [(&str, Step); 4] =
        [("PORT", add_port), ("NEIGHBOR", add_neighbor), ("TABLE", load_table), ("ROUTE", set_route)];
    let devices = args.resource::<Ports>();
    let with = ParseContext { names: args.names(), devices: &devices, now: Duration::ZERO };
    for (argument, step) in STEPS {
        for text in args.rest(argument) {
            step(&mut tables, text, &with)
                .map_err(|wrong| ArgError::wrong_at(text, format!("{argument} {text}: {wrong}")))?;
        }
    }
    Ok(tables)
}

/// `NAME ADDRESS/LENGTH… [ETHER ADDRESS] [MTU BYTES] [MTU_LIMIT BYTES] [RPF off|loose|strict] [PROXY_ARP
/// BOOL] [STATIC_ARP BOOL] [REDIRECTS BOOL] [ONLINK BOOL] [VIP ADDRESS]…`.
fn add_port(tables: &mut Tables, text: &str, with: &ParseContext<'_>) -> Result<(), ParseError> {
    let mut words = text.split_whitespace();
    let name = words.next().ok_or("a port has a name")?;
    let (mut ether, mut mtu, mut limit, mut settings) = (None, None, None, PortSettings::default());
    let (mut addresses, mut virtual_addresses) = (Vec::new(), Vec::new());
    let switch = |word: &str| match word {
        "true" | "yes" | "1" => Ok(true),
        "false" | "no" | "0" => Ok(false),
        _ => Err(format!("'{word}' is neither true nor false")),
    };
    while let Some(word) = words.next() {
        let mut value = || words.next().ok_or(format!("{word} needs a value"));
        match word {
            "ETHER" => ether = Some(with.parse_ether(value()?)?),
            "MTU" => mtu = Some(value()?.parse().map_err(|_| "MTU is a number of bytes, 68 to 65535")?),
            "MTU_LIMIT" => limit = Some(mtu_limit(value()?)?),
            "RPF" => settings.rpf = reverse_path(value()?)?,
            "PROXY_ARP" => settings.proxy_arp = switch(value()?)?,
            "STATIC_ARP" => settings.static_arp = switch(value()?)?,
            "REDIRECTS" => settings.redirects = switch(value()?)?,
            "VIP" => virtual_addresses.push(parse_ip(value()?)?),
            "ONLINK" => settings.onlink = switch(value()?)?,
            _ => addresses.push(address_with_length(word)?),
        }
    }
    let device = || with.parse_ether(&format!("{name}:eth"));
    let ether = ether.map_or_else(device, Ok)?;
    if tables.find_port(name).is_some() {
        return Err("there is a port of this name".into());
    }
    let mut spec = PortSpec::new(name, ether);
    // The MTU is that of the interface behind a port, unless the port sets one.
    let of_interface = || with.find_interface(name).map(|interface| interface.mtu);
    let found = mtu.or_else(|| of_interface().map(|mtu| mtu.min(u16::MAX.into()) as u16));
    spec.mtu_limit = limit;
    spec.mtu = spec.limited_mtu(found.unwrap_or(spec.mtu));
    spec.settings = settings;
    let port = tables.add_port(spec).map_err(error_text)?;
    addresses
        .into_iter()
        .try_for_each(|(address, len)| tables.add_address(port, address, len).map_err(error_text))?;
    virtual_addresses
        .into_iter()
        .try_for_each(|address| tables.add_virtual_address(port, address).map_err(error_text))
}

fn mtu_limit(word: &str) -> Result<u16, ParseError> {
    let limit = word.parse().ok().filter(|limit| *limit >= 68);
    limit.ok_or_else(|| format!("MTU_LIMIT is a number of bytes, 68 to 65535, not '{word}'"))
}

fn reverse_path(word: &str) -> Result<ReversePath, ParseError> {
    match word {
        "off" => Ok(ReversePath::Off),
        "loose" => Ok(ReversePath::Loose),
        "strict" => Ok(ReversePath::Strict),
        _ => Err(format!("RPF is off, loose or strict, not '{word}'")),
    }
}

fn address_with_length(word: &str) -> Result<(IpAddr, u8), ParseError> {
    let wrong =
        || format!("'{word}' is not a valid address with the length of its prefix, such as 10.0.1.1/24");
    let (address, len) = word.split_once('/').ok_or_else(wrong)?;
    Ok((address.parse().map_err(|_| wrong())?, len.parse().map_err(|_| wrong())?))
}

/// Adds a neighbor, written `PORT ADDRESS ETHER`.
fn add_neighbor(tables: &mut Tables, text: &str, with: &ParseContext<'_>) -> Result<(), ParseError> {
    let words: Vec<&str> = text.split_whitespace().collect();
    let [port, address, ether] = words[..] else {
        return Err("a neighbor is 'PORT ADDRESS ETHER'".into());
    };
    let (port, address) = (port_of(tables, port)?, parse_ip(address)?);
    let ether = EtherAddr::parse(ether, with.names)?;
    tables.set_neighbor(port, address, ether, Kind::Static, with.now).map_err(error_text)
}

/// Adds a route and its next hops; see [`route_text`].
fn set_route(tables: &mut Tables, text: &str, with: &ParseContext<'_>) -> Result<(), ParseError> {
    let (prefix, spec) = route_text::parse_route(tables, text)?;
    tables.replace_route(prefix, &spec, with.now).map_err(error_text)
}

/// Loads `FILE [GATEWAY…]`: the routes of a file replace all static ones of its families. Routes without a
/// next hop in the file are distributed over the gateways.
fn load_table(tables: &mut Tables, text: &str, with: &ParseContext<'_>) -> Result<(), ParseError> {
    let mut words = text.split_whitespace();
    let file = words.next().ok_or("TABLE begins with the name of a file")?;
    let gateways = words.map(parse_ip).collect::<Result<Vec<IpAddr>, ParseError>>()?;
    let Routes { v4, v6, next_hops } =
        artery_feed::read_opened(file.as_ref(), artery_device::files::open(file)).map_err(error_text)?;
    let feed = Feed { gateways, next_hops };
    feed.load_routes(tables, v4, IpAddr::is_ipv4, with.now)?;
    feed.load_routes(tables, v6, IpAddr::is_ipv6, with.now)
}

/// The next hops of a file's routes.
struct Feed {
    /// Next hops of routes whose next hop is not in the file.
    gateways: Vec<IpAddr>,
    /// By group, which counts from 1.
    next_hops: Vec<IpAddr>,
}

impl Feed {
    fn load_routes<A: artery_l3::router::Ip>(
        &self,
        tables: &mut Tables,
        routes: Vec<(Prefix<A>, Group)>,
        is_fit: impl Fn(&IpAddr) -> bool,
        now: Duration,
    ) -> Result<(), ParseError> {
        if routes.is_empty() {
            return Ok(());
        }
        let fit: Vec<IpAddr> = self.gateways.iter().copied().filter(is_fit).collect();
        let mut used = Vec::new();
        let mut number = |gateway: IpAddr| {
            used.iter().position(|other| *other == gateway).unwrap_or_else(|| {
                used.push(gateway);
                used.len() - 1
            })
        };
        let mut turns = fit.iter().cycle();
        let way = |(prefix, group): (Prefix<A>, Group)| {
            let said = group.checked_sub(1).and_then(|at| self.next_hops.get(at as usize));
            let gateway = if group == NO_GROUP { turns.next() } else { said };
            let gateway = gateway.ok_or_else(|| {
                format!("{prefix} has no next hop; name a gateway of its family behind the file")
            })?;
            Ok::<_, ParseError>((prefix, number(*gateway)))
        };
        let routes = routes.into_iter().map(way).collect::<Result<Vec<_>, ParseError>>()?;
        let specs: Vec<RouteSpec> = used.into_iter().map(RouteSpec::via).collect();
        tables.load_routes(&specs, routes, now).map_err(error_text)
    }
}

fn error_text(error: impl ToString) -> ParseError {
    error.to_string()
}
