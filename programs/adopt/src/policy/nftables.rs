//! Reads the rules of nftables, also those that iptables-nft makes.
mod elements;
mod sources;

use super::packet::Header;
use super::ruleset::*;
use super::sets::{Set, SetValue};
use super::xtables;
use crate::blockers::nftables::{
    CONNECTION_HELPER, FIXED, FlowTable, GET_CHAIN, GET_FLOW_TABLE, GET_RULE, GET_TABLE, INET, IPV4, IPV6,
    NFTABLES,
};
use crate::kernel::Family;
use artery_netlink::build;
use artery_netlink::request::{self as netlink, Attributes, nonsense};
use elements::{Element, add_elements, part_lengths};
use netlink_sys::protocols::NETLINK_NETFILTER;
use sources::{connection_source, meta_source, route_source};
use std::collections::HashMap;
use std::io;

const GET_SET: u16 = NFTABLES | 10;
const GET_ELEMENTS: u16 = NFTABLES | 13;
const GET_GENERATION: u16 = NFTABLES | 16;
/// `NFT_META_MARK`.
const META_MARK: u32 = 3;
/// How often rules may change while they are read.
const ATTEMPTS: usize = 20;

/// The chain of a rule, a jump or a hook: the family's number, the table, and its name.
type ChainKey = (u8, String, String);

/// All that is dumped of one generation of the rules.
#[derive(Default)]
pub(super) struct Dump {
    pub(super) tables: Vec<Vec<u8>>,
    pub(super) chains: Vec<Vec<u8>>,
    pub(super) rules: Vec<Vec<u8>>,
    pub(super) sets: Vec<Vec<u8>>,
    /// Of each set, in their order.
    pub(super) elements: Vec<Vec<Vec<u8>>>,
    pub(super) flow_tables: Vec<Vec<u8>>,
}

/// Reads the rules of the kernel. A kernel without nftables has none.
pub(super) fn read(ruleset: &mut Ruleset) -> io::Result<()> {
    for _ in 0..ATTEMPTS {
        let before = read_generation()?;
        let dump = dump_rules();
        if read_generation()? == before {
            return parse(&dump?, ruleset);
        }
    }
    Err(io::Error::other("rules change faster than they can be read"))
}

fn read_generation() -> io::Result<Option<u32>> {
    use io::ErrorKind::{InvalidInput, NotFound, Unsupported};
    match netlink::query_one(NETLINK_NETFILTER, GET_GENERATION, &[0; FIXED]) {
        Err(error) if matches!(error.kind(), InvalidInput | NotFound | Unsupported) => Ok(None),
        Err(error) => Err(error),
        Ok(None) => Ok(None),
        Ok(Some(answer)) => Ok(Attributes::after_header(FIXED, &answer.body)?.big_endian(1)),
    }
}

fn dump_rules() -> io::Result<Dump> {
    let all = |kind| netlink::dump_of_netfilter(kind, &[0; FIXED]);
    let sets = all(GET_SET)?;
    let elements = sets.iter().map(|set| dump_elements(set)).collect::<io::Result<_>>()?;
    let (tables, chains, rules) = (all(GET_TABLE)?, all(GET_CHAIN)?, all(GET_RULE)?);
    Ok(Dump { tables, chains, rules, sets, elements, flow_tables: all(GET_FLOW_TABLE)? })
}

fn dump_elements(set: &[u8]) -> io::Result<Vec<Vec<u8>>> {
    let attributes = Attributes::after_header(FIXED, set)?;
    let mut body = vec![*set.first().ok_or_else(nonsense)?, 0, 0, 0];
    for kind in [1, 2] {
        body.extend(build::attribute(kind, attributes.value(kind).ok_or_else(nonsense)?));
    }
    let messages = netlink::dump(NETLINK_NETFILTER, GET_ELEMENTS, &body)?;
    Ok(messages.into_iter().map(|message| message.body).collect())
}

/// Makes rules of what was dumped.
pub(super) fn parse(dump: &Dump, ruleset: &mut Ruleset) -> io::Result<()> {
    let [chains, sets, flow_tables] = Default::default();
    let mut reader = Reader { ruleset, chains, sets, flow_tables };
    let is_meant = |body: &Vec<u8>| body.first().is_some_and(|family| [INET, IPV4, IPV6].contains(family));
    let mut dormant = Vec::new();
    for table in dump.tables.iter().filter(|body| is_meant(body)) {
        let attributes = Attributes::after_header(FIXED, table)?;
        if attributes.big_endian(2).is_some_and(|flags| flags & 1 != 0) {
            dormant.push((table[0], attributes.text(1).unwrap_or_default()));
        }
    }
    for chain in dump.chains.iter().filter(|body| is_meant(body)) {
        reader.add_chain(chain, &dormant)?;
    }
    for (set, elements) in dump.sets.iter().zip(&dump.elements).filter(|(body, _)| is_meant(body)) {
        reader.add_set(set, elements)?;
    }
    for flow_table in dump.flow_tables.iter().filter(|body| is_meant(body)) {
        reader.add_flow_table(FlowTable::read(flow_table)?);
    }
    for rule in dump.rules.iter().filter(|body| is_meant(body)) {
        reader.add_rule(rule)?;
    }
    Ok(())
}

struct Reader<'a> {
    ruleset: &'a mut Ruleset,
    chains: HashMap<ChainKey, usize>,
    sets: HashMap<ChainKey, usize>,
    flow_tables: HashMap<ChainKey, usize>,
}

impl Reader<'_> {
    fn add_chain(&mut self, body: &[u8], dormant: &[(u8, String)]) -> io::Result<()> {
        let attributes = Attributes::after_header(FIXED, body)?;
        let text = |kind| attributes.text(kind).unwrap_or_default();
        let (family, table, name) = (body[0], text(1), text(3));
        let chain = self.ruleset.chains.len();
        let families = family_name(family);
        self.ruleset.chains.push(Chain {
            name: format!("nftables: table {families} {table}, chain {name}"),
            remedy: format!("shown by: nft -a list chain {families} {table} {name}"),
            rules: Vec::new(),
        });
        let is_dormant = dormant.contains(&(family, table.clone()));
        self.chains.insert((family, table, name), chain);
        let Some(hook) = attributes.nested(4)?.filter(|_| !is_dormant) else { return Ok(()) };
        let hook_number = hook.big_endian(1).ok_or_else(nonsense)?;
        let hook_kind = match hook_number {
            0 => Hook::Prerouting,
            2 => Hook::Forward,
            4 => Hook::Postrouting,
            // Of what the machine sends or gets; ingress is of devices, and a blocker there.
            _ => return Ok(()),
        };
        // Chains that translate see first packets only.
        if text(7) == "nat" {
            return Ok(());
        }
        self.ruleset.bases.push(BaseChain {
            chain,
            hook: hook_kind,
            priority: hook.big_endian(2).ok_or_else(nonsense)?.cast_signed(),
            family: match family {
                IPV4 => Some(Family::V4),
                IPV6 => Some(Family::V6),
                _ => None,
            },
            accepts: attributes.big_endian(5).is_none_or(|policy| policy == 1),
        });
        Ok(())
    }

    fn add_rule(&mut self, body: &[u8]) -> io::Result<()> {
        let attributes = Attributes::after_header(FIXED, body)?;
        let text = |kind| attributes.text(kind).unwrap_or_default();
        let (family, table, chain) = (body[0], text(1), text(2));
        let handle = attributes.value(3).and_then(|value| value.first_chunk::<8>());
        let name = handle.map_or_else(String::new, |handle| format!("rule {}", u64::from_be_bytes(*handle)));
        let Some(chain) = self.chains.get(&(family, table.clone(), chain)).copied() else { return Ok(()) };
        let mut steps = Vec::new();
        if let Some(expressions) = attributes.nested(4)? {
            for (_, value) in expressions.iter() {
                let expression = Attributes::parse_all(value)?;
                let of = expression.text(1).unwrap_or_default();
                let data = expression.nested(2)?;
                let step = data.as_ref().and_then(|data| self.read_step(&of, data, family, &table));
                // What can't be read may do anything, and load anything.
                steps.push(step.unwrap_or(Step::Effect(of)));
            }
        }
        self.ruleset.chains[chain].rules.push(Rule { name, steps });
        Ok(())
    }

    /// One expression; `None` if it is not understood.
    fn read_step(&self, name: &str, data: &Attributes<'_>, family: u8, table: &str) -> Option<Step> {
        let number = |kind| data.big_endian(kind);
        let size = |kind| number(kind).and_then(|number| usize::try_from(number).ok());
        let length = |kind| size(kind).filter(|length| (1..=REGISTER_BYTES).contains(length));
        let bytes = |kind| read_data(data.nested(kind).ok()??.value(1)?);
        let set = |name| self.sets.get(&(family, table.to_owned(), name)).copied();
        Some(match name {
            // An anonymous counter counts what the kernel sees.
            "counter" | "last" => Step::Nothing,
            "immediate" => {
                let inner = data.nested(2).ok()??;
                match register_offset(number(1)?) {
                    _ if number(1)? == 0 => Step::Decide(self.read_verdict(&inner, family, table)?),
                    to => Step::Immediate { to: to?, bytes: read_data(inner.value(1)?)? },
                }
            }
            "cmp" => {
                let order = [
                    Order::Equal,
                    Order::NotEqual,
                    Order::Less,
                    Order::LessOrEqual,
                    Order::Greater,
                    Order::GreaterOrEqual,
                ];
                check_registers(Step::Compare {
                    at: register_offset(number(1)?)?,
                    order: *order.get(size(2)?)?,
                    with: bytes(3)?,
                })?
            }
            "range" => check_registers(Step::Range {
                at: register_offset(number(1)?)?,
                is_inverted: number(2)? == 1,
                from: bytes(3)?,
                to: bytes(4)?,
            })?,
            "bitwise" => {
                let (from, to, length) =
                    (register_offset(number(1)?)?, register_offset(number(2)?)?, length(3)?);
                match number(6).unwrap_or(0) {
                    0 => check_registers(Step::MaskXor { from, to, mask: bytes(4)?, xor: bytes(5)? })?,
                    _ => load_step(to, length, Source::Unknown)?,
                }
            }
            "byteorder" => check_registers(Step::Swap {
                from: register_offset(number(1)?)?,
                to: register_offset(number(2)?)?,
                length: length(4)?,
                size: size(5).filter(|size| [2, 4, 8].contains(size))?,
            })?,
            "payload" if number(5).is_none() => {
                let (to, length, at) = (register_offset(number(1)?)?, length(4)?, size(3)?);
                let source = match number(2)? {
                    1 => Source::Header(Header::Network, at),
                    2 => Source::Header(Header::Transport, at),
                    _ => Source::Unknown,
                };
                load_step(to, length, source)?
            }
            "meta" if number(3).is_none() => {
                let (length, source) = meta_source(number(2)?);
                load_step(register_offset(number(1)?)?, length, source)?
            }
            "ct" if number(4).is_none() => {
                let direction = data.value(3).and_then(|value| value.first().copied());
                let (length, source) = connection_source(number(2)?, direction);
                load_step(register_offset(number(1)?)?, length, source)?
            }
            "lookup" => {
                let set = set(data.text(1)?)?;
                let (at, into) = (register_offset(number(2)?)?, number(3));
                let is_inverted = number(5).is_some_and(|flags| flags & 1 != 0);
                let lengths = &self.ruleset.sets[set];
                let is_room = |at: &usize, length: usize| at + length <= REGISTER_BYTES;
                Some(at).filter(|at| is_room(at, lengths.key_length))?;
                match into {
                    Some(0) => Step::VerdictMap { set, at },
                    None => Step::Lookup { set, at, into: None, is_inverted },
                    Some(into) => {
                        let into = register_offset(into).filter(|into| is_room(into, lengths.data_length))?;
                        Step::Lookup { set, at, into: Some(into), is_inverted }
                    }
                }
            }
            "reject" => Step::Decide(Verdict::Drop),
            "match" => {
                let revision = number(2)?;
                xtables::match_step(&data.text(1)?, revision, data.value(3)?)
            }
            "target" => {
                let revision = number(2).unwrap_or(0);
                xtables::target_step(&data.text(1)?, revision, data.value(3).unwrap_or_default())
            }
            // These read what a packet may have or not.
            "exthdr" if number(7).is_none() => load_step(register_offset(number(1)?)?, 1, Source::Unknown)?,
            "fib" => {
                let (length, source) = route_source(number(2)?, number(3)?);
                load_step(register_offset(number(1)?)?, length, source)?
            }
            "rt" | "socket" | "osf" | "xfrm" | "tunnel" => {
                load_step(register_offset(number(1)?)?, 1, Source::Unknown)?
            }
            "flow_offload" => {
                let key = (family, table.to_owned(), data.text(1)?);
                Step::AddFlow { table: self.flow_tables.get(&key).copied() }
            }
            // Helpers are given to connections with their first packets; an entry that has one tells.
            "objref" if number(1) == Some(CONNECTION_HELPER) => Step::Nothing,
            "objref" => Step::Effect("a named object".to_owned()),
            "dynset" => Step::Effect("a statement that adds to a set".to_owned()),
            "meta" if number(2) == Some(META_MARK) => Step::SetMark { at: register_offset(number(3)?)? },
            "meta" | "ct" | "payload" | "exthdr" => Step::Effect(format!("{name} … set")),
            _ => return None,
        })
    }

    fn read_verdict(&self, data: &Attributes<'_>, family: u8, table: &str) -> Option<Verdict> {
        let verdict = data.nested(2).ok()??;
        let chain = || {
            let name = verdict.text(2).unwrap_or_default();
            self.chains.get(&(family, table.to_owned(), name)).copied()
        };
        Some(match verdict.big_endian(1)?.cast_signed() {
            0 => Verdict::Drop,
            1 => Verdict::Accept,
            -1 => Verdict::Continue,
            -3 => chain().map_or(Verdict::Other, Verdict::Jump),
            -4 => chain().map_or(Verdict::Other, Verdict::Goto),
            -5 => Verdict::Return,
            _ => Verdict::Other,
        })
    }

    fn add_set(&mut self, body: &[u8], elements: &[Vec<u8>]) -> io::Result<()> {
        const INTERVAL: u32 = 4;
        const TIMEOUT_OR_DYNAMIC: u32 = 0x10 | 0x20;
        const OBJECTS_OR_EXPRESSIONS: u32 = 0x40 | 0x100;
        let attributes = Attributes::after_header(FIXED, body)?;
        let text = |kind| attributes.text(kind).unwrap_or_default();
        let (family, table, name) = (body[0], text(1), text(2));
        let flags = attributes.big_endian(3).unwrap_or(0);
        let size = |kind| attributes.big_endian(kind).map_or(0, |length| length as usize);
        let mut set = Set::new(
            size(5).min(REGISTER_BYTES),
            size(7).min(REGISTER_BYTES),
            flags & TIMEOUT_OR_DYNAMIC != 0,
            flags & OBJECTS_OR_EXPRESSIONS != 0,
        );
        let mut all = Vec::new();
        for body in elements {
            let list = Attributes::after_header(FIXED, body)?.nested(3)?;
            for (_, value) in list.iter().flat_map(Attributes::iter) {
                all.push(self.read_element(&Attributes::parse_all(value)?, family, &table));
            }
        }
        let parts = part_lengths(&attributes, set.key_length)?;
        match all.into_iter().collect::<Option<Vec<Element>>>() {
            Some(all) if set.key_length > 0 => add_elements(&mut set, all, &parts, flags & INTERVAL != 0),
            _ => set.is_changing = true,
        }
        let number = self.ruleset.sets.len();
        self.ruleset.sets.push(set);
        self.sets.insert((family, table, name), number);
        Ok(())
    }

    fn add_flow_table(&mut self, flow_table: FlowTable) {
        let key = (flow_table.family, flow_table.table.clone(), flow_table.name.clone());
        self.flow_tables.insert(key, self.ruleset.flow_tables.len());
        self.ruleset.flow_tables.push(flow_table);
    }

    fn read_element(&self, attributes: &Attributes<'_>, family: u8, table: &str) -> Option<Element> {
        let key = |kind| match attributes.nested(kind) {
            Ok(Some(data)) => data.value(1).map(<[u8]>::to_vec),
            _ => None,
        };
        let value = match attributes.nested(2).ok()? {
            None => SetValue::default(),
            Some(data) => SetValue {
                data: data.value(1).map(<[u8]>::to_vec),
                verdict: data
                    .value(2)
                    .map(|_| self.read_verdict(&data, family, table).unwrap_or(Verdict::Other)),
            },
        };
        let flags = attributes.big_endian(3).unwrap_or(0);
        let has_more = [7, 9, 11].into_iter().any(|kind| attributes.value(kind).is_some());
        let is_known = flags & !3 == 0 && !has_more;
        is_known.then(|| Element {
            key: key(1),
            end: key(10),
            is_end: flags & 1 != 0,
            is_catch_all: flags & 2 != 0,
            value,
        })
    }
}

/// Where a register begins, in bytes: four of 16 bytes, or sixteen of 4 bytes in the same place.
fn register_offset(number: u32) -> Option<usize> {
    match number {
        1..=4 => Some((number as usize - 1) * 16),
        8..=23 => Some((number as usize - 8) * 4),
        _ => None,
    }
}

/// A step whose registers are within their room.
fn check_registers(step: Step) -> Option<Step> {
    let end = match &step {
        Step::Load { to, length, .. } => to + length,
        Step::MaskXor { from, to, mask, xor } if mask.len() == xor.len() => from.max(to) + mask.len(),
        Step::Swap { from, to, length, .. } => from.max(to) + length,
        Step::Compare { at, with, .. } => at + with.len(),
        Step::Range { at, from, to, .. } if from.len() == to.len() => at + from.len(),
        _ => return None,
    };
    (end <= REGISTER_BYTES).then_some(step)
}

/// A load; what is unknown may fill all registers that follow.
fn load_step(to: usize, length: usize, source: Source) -> Option<Step> {
    let length = if source == Source::Unknown { REGISTER_BYTES - to } else { length };
    check_registers(Step::Load { to, length, source })
}

fn read_data(bytes: &[u8]) -> Option<Vec<u8>> {
    (1..=REGISTER_BYTES).contains(&bytes.len()).then(|| bytes.to_vec())
}

fn family_name(family: u8) -> &'static str {
    match family {
        IPV4 => "ip",
        IPV6 => "ip6",
        _ => "inet",
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use crate::policy::Policy;
    use artery_netlink::request::written::survive;

    fn attribute(kind: u16, value: impl AsRef<[u8]>) -> Vec<u8> {
        build::attribute(kind, value.as_ref())
    }
    fn nested(kind: u16, all: &[Vec<u8>]) -> Vec<u8> {
        attribute(kind | 0x8000, all.concat())
    }
    fn number(kind: u16, value: u32) -> Vec<u8> {
        attribute(kind, value.to_be_bytes())
    }
    fn name(kind: u16, text: &str) -> Vec<u8> {
        attribute(kind, [text.as_bytes(), &[0]].concat())
    }
    fn object(all: &[Vec<u8>]) -> Vec<u8> {
        [&[INET, 0, 0, 0], &all.concat()[..]].concat()
    }
    fn expression(of: &str, data: &[Vec<u8>]) -> Vec<u8> {
        nested(1, &[name(1, of), nested(2, data)])
    }

    /// A chain that drops what comes from the ports 80 to 89.
    fn written() -> Dump {
        let hook = nested(4, &[number(1, 2), number(2, 0)]);
        let chain = object(&[name(1, "t"), name(3, "c"), hook, number(5, 1), name(7, "filter")]);
        let set = object(&[name(1, "t"), name(2, "s"), number(3, 4), number(5, 2), number(7, 0)]);
        let key = |port: u16| nested(1, &[attribute(1, port.to_be_bytes())]);
        let elements = [nested(1, &[key(80)]), nested(1, &[key(90), number(3, 1)])];
        let drop = nested(2, &[nested(2, &[number(1, 0)])]);
        let rule = [
            expression("payload", &[number(1, 1), number(2, 2), number(3, 0), number(4, 2)]),
            expression("lookup", &[name(1, "s"), number(2, 1)]),
            expression("counter", &[]),
            expression("immediate", &[number(1, 0), drop]),
        ];
        Dump {
            tables: vec![object(&[name(1, "t")])],
            chains: vec![chain],
            rules: vec![object(&[
                name(1, "t"),
                name(2, "c"),
                attribute(3, 7_u64.to_be_bytes()),
                nested(4, &rule),
            ])],
            sets: vec![set],
            elements: vec![vec![object(&[nested(3, &elements)])]],
            flow_tables: Vec::new(),
        }
    }

    /// A chain that drops all, behind a rule that gives connections to a flow table.
    fn with_flow_table(devices: &[&str], flags: u32) -> Dump {
        let hook = nested(4, &[number(1, 2), number(2, 0)]);
        let devices: Vec<Vec<u8>> = devices.iter().map(|device| name(1, device)).collect();
        let at = nested(3, &[number(1, 0), number(2, 0), nested(3, &devices)]);
        let rule = [expression("flow_offload", &[name(1, "f")])];
        Dump {
            tables: vec![object(&[name(1, "t")])],
            chains: vec![object(&[name(1, "t"), name(3, "c"), hook, number(5, 0), name(7, "filter")])],
            rules: vec![object(&[name(1, "t"), name(2, "c"), nested(4, &rule)])],
            flow_tables: vec![object(&[name(1, "t"), name(2, "f"), at, number(4, 1), number(7, flags)])],
            ..Dump::default()
        }
    }

    /// The rules of [`with_flow_table`].
    pub(crate) fn flow_table_policy(devices: &[&str], flags: u32) -> Policy {
        let mut ruleset = Ruleset::default();
        parse(&with_flow_table(devices, flags), &mut ruleset).unwrap();
        Policy::of(ruleset)
    }

    fn survey(dump: &Dump) -> Option<String> {
        let mut ruleset = Ruleset::default();
        parse(dump, &mut ruleset).ok()?;
        Policy::of(ruleset).survey(Family::V4).first().map(|one| one.what.clone())
    }

    #[test]
    fn a_rule_is_read_as_the_kernel_writes_it_and_any_bytes_are_rules_or_an_error() {
        let expected = "nftables: table inet t, chain c, rule 7: it drops or rejects";
        assert_eq!(survey(&written()).as_deref(), Some(expected));
        survive(&written().chains[0], |body| survey(&Dump { chains: vec![body.to_vec()], ..written() }));
        survive(&written().rules[0], |body| survey(&Dump { rules: vec![body.to_vec()], ..written() }));
        survive(&written().sets[0], |body| survey(&Dump { sets: vec![body.to_vec()], ..written() }));
        let elements = |body: &[u8]| Dump { elements: vec![vec![body.to_vec()]], ..written() };
        survive(&written().elements[0][0], |body| survey(&elements(body)));
    }

    #[test]
    fn a_statement_names_a_flow_table_of_its_own_table_and_any_bytes_are_one_or_an_error() {
        let policy = flow_table_policy(&["eth1", "eth2"], 0);
        assert!(policy.has_flow_tables(Family::V4) && policy.has_flow_tables(Family::V6));
        assert!(!flow_table_policy(&["eth1"], 1).has_flow_tables(Family::V4), "a card forwards by it");
        let ruleset = |dump: &Dump| {
            let mut ruleset = Ruleset::default();
            parse(dump, &mut ruleset).map(|()| ruleset)
        };
        let step = |dump: &Dump| ruleset(dump).unwrap().chains[0].rules[0].steps[0].clone();
        let dump = with_flow_table(&["eth1"], 0);
        assert_eq!(step(&dump), Step::AddFlow { table: Some(0) });
        let of_ip = [&[IPV4], &dump.flow_tables[0][1..]].concat();
        let other = Dump { flow_tables: vec![of_ip], ..with_flow_table(&[], 0) };
        assert_eq!(step(&other), Step::AddFlow { table: None }, "that is one of another table");
        survive(&dump.flow_tables[0], |body| {
            ruleset(&Dump { flow_tables: vec![body.to_vec()], ..with_flow_table(&[], 0) }).is_ok()
        });
        survive(&dump.rules[0], |body| {
            ruleset(&Dump { rules: vec![body.to_vec()], ..with_flow_table(&[], 0) }).is_ok()
        });
    }

    // `flowtable f` with eth1 and eth2, and `ct state established flow add @f`, as Linux 6.12 tells them.
    const CHAIN: &str = concat!(
        "01000002060001007400000006000300630000000c000200000000000000000114000400080001000000000208000200",
        "0000000008000500000000000b00070066696c746572000008000a00000000010800060000000002",
    );
    const RULE: &str = concat!(
        "01000002060001007400000006000200630000000c0003000000000000000003c0000400200001000700010063740000",
        "14000200080001000000000108000200000000004c0001000c00010062697477697365003c0002000800010000000001",
        "0800020000000001080003000000000408000600000000000c00040008000100020000000c0005000800010000000000",
        "2c00010008000100636d700020000200080001000000000108000200000000010c000300080001000000000024000100",
        "11000100666c6f775f6f66666c6f6164000000000c0002000600010066000000",
    );
    const FLOW_TABLE: &str = concat!(
        "01000002060001007400000006000200660000000c000500000000000000000208000400000000010800070000000000",
        "30000300080001000000000008000200000000001c000300090001006574683200000000090001006574683100000000",
    );

    #[test]
    fn a_flow_table_and_its_statement_are_read_as_the_kernel_writes_them() {
        let bytes = |text: &str| -> Vec<u8> {
            let pairs = text.as_bytes().chunks(2).map(|pair| str::from_utf8(pair).unwrap());
            pairs.map(|pair| u8::from_str_radix(pair, 16).unwrap()).collect()
        };
        let dump = Dump {
            chains: vec![bytes(CHAIN)],
            rules: vec![bytes(RULE)],
            flow_tables: vec![bytes(FLOW_TABLE)],
            ..Dump::default()
        };
        let mut ruleset = Ruleset::default();
        parse(&dump, &mut ruleset).unwrap();
        let steps = &ruleset.chains[0].rules[0].steps;
        assert_eq!(steps.last(), Some(&Step::AddFlow { table: Some(0) }));
        let table = &ruleset.flow_tables[0];
        assert!(["eth1", "eth2"].iter().all(|name| table.has_device(name)) && !table.has_device("eth0"));
        assert!(!table.is_of_hardware);
        assert!(Policy::of(ruleset).has_flow_tables(Family::V6));
    }
}
