//! Chains and flow tables of nftables that forwarded packets would pass through.
use super::tracking::Tracks;
use super::{Blocker, BlockerKind, Direction, Family, Port, STAYS_TRANSLATED, count_things};
use artery_netlink::request::{self as netlink, Attributes};
use std::io;

/// The subsystem of nftables in the types of nfnetlink's messages.
pub(crate) const NFTABLES: u16 = 10 << 8;
pub(crate) const GET_TABLE: u16 = NFTABLES | 1;
pub(crate) const GET_CHAIN: u16 = NFTABLES | 4;
pub(crate) const GET_RULE: u16 = NFTABLES | 7;
pub(crate) const GET_FLOW_TABLE: u16 = NFTABLES | 23;
/// `struct nfgenmsg`, of which zeros ask for all families.
pub(crate) const FIXED: usize = 4;

const TABLE_NAME: u16 = 1;
const TABLE_FLAGS: u16 = 2;
/// The chains of the table are not in force.
const DORMANT: u32 = 1;

const CHAIN_TABLE: u16 = 1;
const CHAIN_NAME: u16 = 3;
const CHAIN_HOOK: u16 = 4;
const CHAIN_POLICY: u16 = 5;
const CHAIN_RULES: u16 = 6;
const CHAIN_TYPE: u16 = 7;
const HOOK_NUMBER: u16 = 1;
const HOOK_DEVICE: u16 = 3;
const HOOK_DEVICES: u16 = 4;
/// Within the devices of a hook: the beginning of names.
const DEVICE_PREFIX: u16 = 2;
const ACCEPT: u32 = 1;

const RULE_TABLE: u16 = 1;
const RULE_CHAIN: u16 = 2;
const RULE_EXPRESSIONS: u16 = 4;
const EXPRESSION_NAME: u16 = 1;
const EXPRESSION_DATA: u16 = 2;
const CT_KEY: u16 = 2;
const CT_SOURCE: u16 = 4;
const CT_MARK: u32 = 3;
const PAYLOAD_SOURCE: u16 = 5;
const OBJECT_TYPE: u16 = 1;
/// Helpers (`NFT_OBJECT_CT_HELPER`): connections get one with their first packet, and their entries tell.
pub(crate) const CONNECTION_HELPER: u32 = 3;
/// Timeouts, expectations, SYN proxies.
const TRACKING_OBJECTS: [u32; 3] = [7, 9, 10];
const TARGET_NAME: u16 = 1;
const TARGET_SETTINGS: u16 = 3;
/// Targets of iptables, in rules of nftables.
const UNPASSED_TARGETS: [&str; 16] = super::iptables::UNPASSED;

/// Families of nftables' tables (`NFPROTO_*`).
pub(crate) const INET: u8 = 1;
pub(crate) const IPV4: u8 = 2;
const ARP: u8 = 3;
const NETDEV: u8 = 5;
const BRIDGE: u8 = 7;
pub(crate) const IPV6: u8 = 10;

const FLOW_TABLE_TABLE: u16 = 1;
const FLOW_TABLE_NAME: u16 = 2;
const FLOW_TABLE_HOOK: u16 = 3;
const FLOW_TABLE_FLAGS: u16 = 7;
const FLOW_TABLE_DEVICES: u16 = 3;
/// `NFT_FLOWTABLE_HW_OFFLOAD`: cards forward, too.
const HARDWARE: u32 = 1;

/// What keeps traffic of these ports. A kernel without nftables has none.
pub(super) fn guards(ports: &[Port]) -> io::Result<Vec<Blocker>> {
    let dormant = names_of_dormant_tables(&dump_objects(GET_TABLE)?)?;
    let mut guards = Vec::new();
    for body in dump_objects(GET_CHAIN)? {
        if let Some(chain) = Chain::read(&body)?.filter(|chain| !dormant.contains(&chain.table())) {
            guards.extend(chain.find_blockers(ports));
        }
    }
    for body in dump_objects(GET_FLOW_TABLE)? {
        guards.extend(FlowTable::read(&body)?.find_blockers(ports));
    }
    Ok(guards)
}

/// Chains that packets of IPv4 from and to the machine pass through.
pub(super) fn of_machine() -> io::Result<Vec<Blocker>> {
    let dormant = names_of_dormant_tables(&dump_objects(GET_TABLE)?)?;
    let mut guards = Vec::new();
    for body in dump_objects(GET_CHAIN)? {
        if let Some(chain) = Chain::read(&body)?.filter(|chain| !dormant.contains(&chain.table())) {
            guards.extend(chain.find_machine_blocker());
        }
    }
    Ok(guards)
}

/// Chains for bridged frames that those for a bridge pass through, too.
pub(super) fn of_bridges() -> io::Result<Vec<Blocker>> {
    let dormant = names_of_dormant_tables(&dump_objects(GET_TABLE)?)?;
    let mut guards = Vec::new();
    for body in dump_objects(GET_CHAIN)? {
        if let Some(chain) = Chain::read(&body)?.filter(|chain| !dormant.contains(&chain.table())) {
            guards.extend(chain.find_bridge_blocker());
        }
    }
    Ok(guards)
}

/// Rules that established connections do not go past: they change how connections are
/// tracked, or give packets to others.
pub(super) fn find_unpassed() -> io::Result<Vec<Blocker>> {
    let rules = dump_objects(GET_RULE)?;
    rules.iter().filter_map(|body| unpassed_rule(body).transpose()).collect()
}

/// What rules and chains in force have the kernel do with connections of a family.
pub(super) fn tracks(family: Family) -> io::Result<Tracks> {
    let dormant = names_of_dormant_tables(&dump_objects(GET_TABLE)?)?;
    let number = if family == Family::V4 { IPV4 } else { IPV6 };
    let is_meant = |table: &TableKey| [INET, number].contains(&table.0) && !dormant.contains(table);
    let mut tracks = Tracks::default();
    for body in dump_objects(GET_CHAIN)? {
        tracks.translates |=
            Chain::read(&body)?.is_some_and(|chain| chain.kind == "nat" && is_meant(&chain.table()));
    }
    for body in dump_objects(GET_RULE)? {
        let attributes = Attributes::after_header(FIXED, &body)?;
        let table = (body[0], attributes.text(RULE_TABLE).unwrap_or_default());
        let expressions = attributes.nested(RULE_EXPRESSIONS)?.filter(|_| is_meant(&table));
        for (_, value) in expressions.iter().flat_map(Attributes::iter) {
            tracks.connections |= asks_for_connections(&Attributes::parse_all(value)?)?;
        }
    }
    Ok(tracks)
}

fn asks_for_connections(expression: &Attributes<'_>) -> io::Result<bool> {
    let data = expression.nested(EXPRESSION_DATA)?;
    let name = || data.as_ref().and_then(|data| data.text(TARGET_NAME)).unwrap_or_default();
    Ok(match expression.text(EXPRESSION_NAME).unwrap_or_default().as_str() {
        "ct" | "masq" | "nat" | "redir" => true,
        "match" => ["conntrack", "state"].contains(&name().as_str()),
        "target" => ["MASQUERADE", "SNAT", "DNAT", "REDIRECT", "NETMAP"].contains(&name().as_str()),
        _ => false,
    })
}

fn unpassed_rule(body: &[u8]) -> io::Result<Option<Blocker>> {
    let family = *body.first().ok_or_else(netlink::nonsense)?;
    if [ARP, BRIDGE, NETDEV].contains(&family) {
        return Ok(None);
    }
    let attributes = Attributes::after_header(FIXED, body)?;
    let Some(expressions) = attributes.nested(RULE_EXPRESSIONS)? else { return Ok(None) };
    for (_, value) in expressions.iter() {
        let expression = Attributes::parse_all(value)?;
        let name = expression.text(EXPRESSION_NAME).unwrap_or_default();
        let Some(what) = unpassed_expression(&name, expression.nested(EXPRESSION_DATA)?.as_ref()) else {
            continue;
        };
        let text = |kind| attributes.text(kind).unwrap_or_default();
        let (family, table, chain) = (family_name(family), text(RULE_TABLE), text(RULE_CHAIN));
        let what = format!("nftables: table {family} {table}, chain {chain}, a rule with {what}");
        let remedy = format!("shown by: nft list chain {family} {table} {chain}");
        return Ok(Some(Blocker::new(BlockerKind::Tracking, what, remedy)));
    }
    Ok(None)
}

/// What an expression does that established connections must not go past.
fn unpassed_expression(name: &str, data: Option<&Attributes<'_>>) -> Option<String> {
    let number = |kind| data.and_then(|data| data.big_endian(kind));
    let is_unpassed = match name {
        "notrack" | "synproxy" | "tproxy" | "queue" | "dup" | "fwd" => true,
        // Writes into packets.
        "payload" => number(PAYLOAD_SOURCE).is_some(),
        "ct" => number(CT_SOURCE).is_some() && number(CT_KEY) != Some(CT_MARK),
        "objref" => number(OBJECT_TYPE).is_none_or(|kind| TRACKING_OBJECTS.contains(&kind)),
        "target" => {
            let target = data.and_then(|data| data.text(TARGET_NAME)).unwrap_or_default();
            let settings = data.and_then(|data| data.value(TARGET_SETTINGS)).unwrap_or_default();
            let is_harmless = target == "CT" && super::iptables::gives_only_a_helper(settings);
            return (UNPASSED_TARGETS.contains(&target.as_str()) && !is_harmless).then_some(target);
        }
        _ => false,
    };
    is_unpassed.then(|| match name {
        "ct" | "payload" => format!("{name} … set"),
        _ => name.to_owned(),
    })
}

/// All objects of a kind.
fn dump_objects(kind: u16) -> io::Result<Vec<Vec<u8>>> {
    netlink::dump_of_netfilter(kind, &[0; FIXED])
}

/// A table by the number of its family and its name.
type TableKey = (u8, String);

fn names_of_dormant_tables(tables: &[Vec<u8>]) -> io::Result<Vec<TableKey>> {
    let mut dormant = Vec::new();
    for body in tables {
        let attributes = Attributes::after_header(FIXED, body)?;
        if attributes.big_endian(TABLE_FLAGS).is_some_and(|flags| flags & DORMANT != 0) {
            dormant.push((body[0], attributes.text(TABLE_NAME).unwrap_or_default()));
        }
    }
    Ok(dormant)
}

/// A chain that packets come to by a hook.
struct Chain {
    family: u8,
    table: String,
    name: String,
    kind: String,
    hook: u32,
    devices: Vec<HookDevice>,
    accepts: bool,
    rules: u32,
}

impl Chain {
    /// Reads one; `None` if other chains lead to it only.
    fn read(body: &[u8]) -> io::Result<Option<Chain>> {
        let attributes = Attributes::after_header(FIXED, body)?;
        let Some(hook) = attributes.nested(CHAIN_HOOK)? else { return Ok(None) };
        let mut devices: Vec<_> = hook.text(HOOK_DEVICE).map(HookDevice::Name).into_iter().collect();
        devices.extend(hook.nested(HOOK_DEVICES)?.iter().flat_map(Attributes::iter).map(HookDevice::read));
        Ok(Some(Chain {
            family: body[0],
            table: attributes.text(CHAIN_TABLE).unwrap_or_default(),
            name: attributes.text(CHAIN_NAME).unwrap_or_default(),
            kind: attributes.text(CHAIN_TYPE).unwrap_or_default(),
            hook: hook.big_endian(HOOK_NUMBER).ok_or_else(netlink::nonsense)?,
            devices,
            accepts: attributes.big_endian(CHAIN_POLICY).is_none_or(|policy| policy == ACCEPT),
            // A chain without that attribute may have some.
            rules: attributes.big_endian(CHAIN_RULES).unwrap_or(1),
        }))
    }
    fn table(&self) -> TableKey {
        (self.family, self.table.clone())
    }
    fn find_blockers(&self, ports: &[Port]) -> Vec<Blocker> {
        let Some(place) = place(self.family, self.hook) else { return Vec::new() };
        // Without rules connections keep the translation that they have.
        if self.accepts && self.rules == 0 && self.kind != "nat" {
            return Vec::new();
        }
        let guard = Blocker::new(BlockerKind::Nftables, self.in_words(place.name), self.remedy())
            .for_family(place.family);
        match place.direction {
            None => vec![guard],
            Some(direction) => {
                named(&self.devices, ports).map(|index| guard.clone().at_port(index, direction)).collect()
            }
        }
    }
    /// What it keeps of tunnels, if it is for IPv4 from or to the machine.
    fn find_machine_blocker(&self) -> Option<Blocker> {
        let hook = match (self.family, self.hook) {
            (INET | IPV4, 1) => "input",
            (INET | IPV4, 3) => "output",
            _ => return None,
        };
        let is_open = self.accepts && self.rules == 0 && self.kind != "nat";
        (!is_open).then(|| Blocker::new(BlockerKind::Nftables, self.in_words(hook), self.remedy()))
    }
    /// What it keeps of bridges, if it is for bridged frames.
    fn find_bridge_blocker(&self) -> Option<Blocker> {
        let hook = match (self.family, self.hook) {
            (BRIDGE, 0) => "prerouting",
            (BRIDGE, 1) => "input",
            // Those are bridged.
            (BRIDGE, 2) => return None,
            (BRIDGE, 3) => "output",
            (BRIDGE, 4) => "postrouting",
            (BRIDGE, _) => "of an unknown number",
            _ => return None,
        };
        let is_open = self.accepts && self.rules == 0 && self.kind != "nat";
        (!is_open).then(|| Blocker::new(BlockerKind::Nftables, self.in_words(hook), self.remedy()))
    }
    fn in_words(&self, hook: &str) -> String {
        let (family, table, name) = (family_name(self.family), &self.table, &self.name);
        let kind = if self.kind == "filter" { String::new() } else { format!("type {}, ", self.kind) };
        let policy = if self.accepts { "accept" } else { "drop" };
        let rules = match self.rules {
            0 if self.kind == "nat" && self.accepts => STAYS_TRANSLATED.to_owned(),
            0 => String::new(),
            rules => format!(", {}", count_things(rules, "rule")),
        };
        format!("nftables: table {family} {table}, chain {name} ({kind}hook {hook}, policy {policy}{rules})")
    }
    fn remedy(&self) -> String {
        format!("shown by: nft list chain {} {} {}", family_name(self.family), self.table, self.name)
    }
}

/// A device of a hook.
#[derive(Debug, PartialEq, Eq)]
enum HookDevice {
    Name(String),
    Prefix(String),
}

impl HookDevice {
    fn read((kind, value): (u16, &[u8])) -> HookDevice {
        let text = artery_netlink::parse_text(value);
        if kind == DEVICE_PREFIX { HookDevice::Prefix(text) } else { HookDevice::Name(text) }
    }
    fn matches_name(&self, name: &str) -> bool {
        match self {
            HookDevice::Name(one) => one == name,
            HookDevice::Prefix(start) => name.starts_with(start),
        }
    }
}

/// The ports among the devices of a hook.
fn named<'a>(devices: &'a [HookDevice], ports: &'a [Port]) -> impl Iterator<Item = u32> + 'a {
    ports
        .iter()
        .filter(|port| devices.iter().any(|device| device.matches_name(&port.name)))
        .map(|port| port.index)
}

/// Which forwarded packets come to a hook.
struct HookPlace {
    name: &'static str,
    family: Option<Family>,
    /// For hooks of devices.
    direction: Option<Direction>,
}

/// Where a hook of a family of chains is; `None` where forwarded packets never come. Bridged and
/// ARP frames are none.
fn place(family: u8, hook: u32) -> Option<HookPlace> {
    let at_device = |name, direction| Some(HookPlace { name, family: None, direction: Some(direction) });
    let inner = match family {
        INET => None,
        IPV4 => Some(Family::V4),
        IPV6 => Some(Family::V6),
        ARP | BRIDGE => return None,
        NETDEV if hook == 0 => return at_device("ingress", Direction::In),
        NETDEV if hook == 1 => return at_device("egress", Direction::Out),
        _ => None,
    };
    let name = match hook {
        0 => "prerouting",
        2 => "forward",
        4 => "postrouting",
        // Packets to the host, and of the host.
        1 | 3 => return None,
        5 => return at_device("ingress", Direction::In),
        _ => "of an unknown number",
    };
    Some(HookPlace { name, family: inner, direction: None })
}

fn family_name(family: u8) -> &'static str {
    match family {
        INET => "inet",
        IPV4 => "ip",
        NETDEV => "netdev",
        BRIDGE => "bridge",
        IPV6 => "ip6",
        _ => "of another family",
    }
}

/// A flow table: it forwards connections that rules gave it (`flow add`), and translates their addresses,
/// where they arrive at its devices.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct FlowTable {
    pub(crate) family: u8,
    pub(crate) table: String,
    pub(crate) name: String,
    devices: Vec<HookDevice>,
    pub(crate) is_of_hardware: bool,
}

impl FlowTable {
    pub(crate) fn read(body: &[u8]) -> io::Result<FlowTable> {
        let attributes = Attributes::after_header(FIXED, body)?;
        let text = |kind| attributes.text(kind).unwrap_or_default();
        let hook = attributes.nested(FLOW_TABLE_HOOK)?;
        let devices = hook.map(|hook| hook.nested(FLOW_TABLE_DEVICES)).transpose()?.flatten();
        Ok(FlowTable {
            family: body[0],
            table: text(FLOW_TABLE_TABLE),
            name: text(FLOW_TABLE_NAME),
            devices: devices.iter().flat_map(Attributes::iter).map(HookDevice::read).collect(),
            is_of_hardware: attributes.big_endian(FLOW_TABLE_FLAGS).unwrap_or(0) & HARDWARE != 0,
        })
    }
    #[cfg(test)]
    pub(crate) fn new(name: &str, devices: &[&str]) -> FlowTable {
        let devices = devices.iter().map(|name| HookDevice::Name((*name).to_owned())).collect();
        FlowTable { family: INET, table: "t".into(), name: name.into(), devices, is_of_hardware: false }
    }
    /// Whether it forwards what arrives at an interface.
    pub(crate) fn has_device(&self, name: &str) -> bool {
        self.devices.iter().any(|device| device.matches_name(name))
    }
    fn find_blockers(&self, ports: &[Port]) -> Vec<Blocker> {
        let (family, table, name) = (family_name(self.family), &self.table, &self.name);
        let (kind, flags) = match self.is_of_hardware {
            true => (BlockerKind::Nftables, " (flags offload)"),
            false => (BlockerKind::FlowTable, ""),
        };
        let what = format!("nftables: table {family} {table}, flowtable {name}{flags}");
        let remedy = format!("shown by: nft list flowtable {family} {table} {name}");
        let family = match self.family {
            IPV4 => Some(Family::V4),
            IPV6 => Some(Family::V6),
            _ => None,
        };
        let guard = Blocker::new(kind, what, remedy).for_family(family);
        named(&self.devices, ports).map(|index| guard.clone().at_port(index, Direction::In)).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use artery_netlink::request::written::{self, big_endian, name, nested};

    fn ports() -> Vec<Port> {
        let port = |(index, name): (u32, &str)| Port { index, name: name.into(), ..Port::default() };
        [(2, "eth0"), (3, "eth1"), (4, "wan")].map(port).to_vec()
    }

    fn chain(family: u8, hook: u32, devices: &[Vec<u8>], policy: u32, rules: u32) -> Vec<u8> {
        chain_of("filter", family, hook, devices, policy, rules)
    }

    fn chain_of(kind: &str, family: u8, hook: u32, devices: &[Vec<u8>], policy: u32, rules: u32) -> Vec<u8> {
        let mut at = vec![big_endian(HOOK_NUMBER, hook), big_endian(2, 0)];
        at.extend((!devices.is_empty()).then(|| nested(HOOK_DEVICES, devices)));
        let attributes = [
            name(CHAIN_TABLE, "t"),
            name(CHAIN_NAME, "c"),
            nested(CHAIN_HOOK, &at),
            big_endian(CHAIN_POLICY, policy),
            big_endian(CHAIN_RULES, rules),
            name(CHAIN_TYPE, kind),
        ];
        [&[family, 0, 0, 0], &attributes.concat()[..]].concat()
    }

    fn found(body: &[u8]) -> Vec<Blocker> {
        Chain::read(body).unwrap().unwrap().find_blockers(&ports())
    }

    #[test]
    fn a_chain_on_the_way_of_forwarded_packets_keeps_its_family() {
        for (family, hook, kept) in [
            (1, 2, Some(None)),
            (2, 0, Some(Some(Family::V4))),
            (10, 4, Some(Some(Family::V6))),
            (2, 1, None),
            (2, 3, None),
            (3, 0, None),
            (7, 2, None),
            (99, 2, Some(None)),
            (1, 77, Some(None)),
        ] {
            let guards = found(&chain(family, hook, &[], ACCEPT, 1));
            assert_eq!(guards.first().map(|guard| guard.family), kept, "{family} {hook}");
            assert!(guards.iter().all(|guard| guard.port.is_none()));
        }
    }

    #[test]
    fn an_empty_chain_that_accepts_keeps_nothing_and_one_that_drops_does() {
        assert_eq!(found(&chain(1, 2, &[], ACCEPT, 0)), []);
        let guards = found(&chain(1, 2, &[], 0, 0));
        assert_eq!(guards[0].what, "nftables: table inet t, chain c (hook forward, policy drop)");
        assert_eq!(guards[0].remedy, "shown by: nft list chain inet t c");
    }

    #[test]
    fn an_empty_chain_that_translates_keeps_what_it_has_translated() {
        let what = found(&chain_of("nat", 2, 4, &[], ACCEPT, 0)).remove(0).what;
        let expected = "nftables: table ip t, chain c (type nat, hook postrouting, policy accept, no rules: \
            connections stay translated)";
        assert_eq!(what, expected);
        assert_eq!(found(&chain_of("nat", 2, 3, &[], ACCEPT, 0)), [], "what the host sends is not forwarded");
    }

    #[test]
    fn a_chain_at_devices_keeps_what_arrives_or_leaves_there() {
        let devices = [name(1, "eth1"), name(DEVICE_PREFIX, "wa")];
        let sides = |family, hook| {
            let guards = found(&chain(family, hook, &devices, ACCEPT, 2));
            guards.iter().map(|guard| (guard.port, guard.direction)).collect::<Vec<_>>()
        };
        assert_eq!(sides(5, 0), [(Some(3), Direction::In), (Some(4), Direction::In)]);
        assert_eq!(sides(5, 1), [(Some(3), Direction::Out), (Some(4), Direction::Out)]);
        assert_eq!(sides(1, 5), [(Some(3), Direction::In), (Some(4), Direction::In)]);
    }

    #[test]
    fn chains_of_dormant_tables_are_known_by_family_and_name() {
        let table = |family: u8, flags| {
            [&[family, 0, 0, 0], &[name(TABLE_NAME, "t"), big_endian(TABLE_FLAGS, flags)].concat()[..]]
                .concat()
        };
        let dormant = names_of_dormant_tables(&[table(1, 0), table(2, DORMANT)]).unwrap();
        assert_eq!(dormant, [(2, "t".to_owned())]);
    }

    fn flow_table(family: u8, flags: u32) -> Vec<u8> {
        let devices = nested(FLOW_TABLE_DEVICES, &[name(1, "eth0"), name(DEVICE_PREFIX, "wa")]);
        let attributes = [
            name(FLOW_TABLE_TABLE, "t"),
            name(FLOW_TABLE_NAME, "f"),
            nested(FLOW_TABLE_HOOK, &[big_endian(HOOK_NUMBER, 0), big_endian(2, 0), devices]),
            big_endian(FLOW_TABLE_FLAGS, flags),
        ];
        [&[family, 0, 0, 0], &attributes.concat()[..]].concat()
    }

    #[test]
    fn a_flow_table_keeps_what_arrives_at_its_devices_and_established_connections_if_cards_forward_by_it() {
        let table = FlowTable::read(&flow_table(INET, 0)).unwrap();
        assert!(table.has_device("eth0") && table.has_device("wan") && !table.has_device("eth1"));
        let guards = table.find_blockers(&ports());
        assert_eq!(guards[0].what, "nftables: table inet t, flowtable f");
        assert_eq!(guards.iter().map(|one| one.port).collect::<Vec<_>>(), [Some(2), Some(4)]);
        assert!(guards.iter().all(|one| one.kind == BlockerKind::FlowTable && one.family.is_none()));
        let of_v4 = FlowTable::read(&flow_table(IPV4, 2)).unwrap().find_blockers(&ports());
        assert!(of_v4.iter().all(|one| one.kind == BlockerKind::FlowTable && one.family == Some(Family::V4)));
        let by_cards = FlowTable::read(&flow_table(INET, HARDWARE)).unwrap().find_blockers(&ports());
        assert_eq!(by_cards[0].what, "nftables: table inet t, flowtable f (flags offload)");
        assert!(by_cards.iter().all(|one| one.kind == BlockerKind::Nftables));
        written::survive(&flow_table(INET, 0), |body| {
            FlowTable::read(body).map(|table| table.find_blockers(&ports()).len()).ok()
        });
    }

    #[test]
    fn rules_that_change_how_connections_are_tracked_are_named() {
        let rule = |expression: &str, data: &[Vec<u8>]| {
            let data = nested(EXPRESSION_DATA, data);
            let one = nested(1, &[name(EXPRESSION_NAME, expression), data]);
            let all = [name(RULE_TABLE, "t"), name(RULE_CHAIN, "c"), nested(RULE_EXPRESSIONS, &[one])];
            [&[1, 0, 0, 0], &all.concat()[..]].concat()
        };
        let what = |expression, data: &[Vec<u8>]| {
            unpassed_rule(&rule(expression, data)).unwrap().map(|guard| guard.what)
        };
        let expected = |what: &str| Some(format!("nftables: table inet t, chain c, a rule with {what}"));
        assert_eq!(what("notrack", &[]), expected("notrack"));
        let set = |key| [big_endian(CT_KEY, key), big_endian(CT_SOURCE, 1)];
        assert_eq!((what("ct", &set(9)), what("ct", &set(CT_MARK))), (expected("ct … set"), None));
        assert_eq!(what("ct", &[big_endian(CT_KEY, 0), big_endian(1, 1)]), None, "it only reads");
        assert_eq!(what("payload", &[big_endian(PAYLOAD_SOURCE, 1)]), expected("payload … set"));
        assert_eq!(what("payload", &[big_endian(1, 1)]), None, "it only reads");
        assert_eq!(what("objref", &[big_endian(OBJECT_TYPE, 7)]), expected("objref"));
        assert_eq!(what("objref", &[big_endian(OBJECT_TYPE, CONNECTION_HELPER)]), None, "entries tell");
        assert_eq!(what("objref", &[big_endian(OBJECT_TYPE, 1)]), None, "a counter");
        assert_eq!(what("target", &[name(TARGET_NAME, "CT")]), expected("CT"));
        assert_eq!(what("target", &[name(TARGET_NAME, "MASQUERADE")]), None);
        written::survive(&rule("target", &[name(TARGET_NAME, "CT")]), |body| unpassed_rule(body).is_ok());
    }

    #[test]
    fn any_bytes_are_a_chain_none_or_an_error() {
        let body = chain(5, 0, &[name(1, "eth1")], 0, 3);
        written::survive(&body, |body| {
            Chain::read(body).map(|chain| chain.map(|chain| chain.find_blockers(&ports()).len())).ok()
        });
        written::survive(&body, |body| names_of_dormant_tables(&[body.to_vec()]).is_ok());
    }
}
