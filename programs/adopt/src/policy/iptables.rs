//! Rules of legacy iptables, as `iptables-legacy-save` writes them.
use super::ruleset::*;
use super::xtables;
use crate::kernel::Family;
use std::collections::HashMap;
use std::net::IpAddr;

/// Chains of the kernel's, and the priorities that tables have at their hooks.
const HOOKS: [(&str, Hook); 3] =
    [("PREROUTING", Hook::Prerouting), ("FORWARD", Hook::Forward), ("POSTROUTING", Hook::Postrouting)];
const PRIORITIES: [(&str, i32); 4] = [("raw", -300), ("mangle", -150), ("filter", 0), ("security", 50)];
/// Translates first packets only.
const NAT: &str = "nat";

/// Adds the rules of a family; `list` is the program that shows them.
pub(super) fn parse(text: &str, family: Family, list: &str, ruleset: &mut Ruleset) {
    let mut reader = Reader { ruleset, family, list, table: String::new(), chains: HashMap::new() };
    // Chains are there before the rules that lead to them, in each table.
    for line in text.lines() {
        match line.split_at_checked(1) {
            Some(("*", table)) => reader.begin_table(table.trim()),
            Some((":", chain)) => reader.add_chain(chain),
            Some(("-", _)) => reader.add_rule(line),
            // Comments and ends.
            _ => {}
        }
    }
}

struct Reader<'a> {
    ruleset: &'a mut Ruleset,
    family: Family,
    list: &'a str,
    table: String,
    chains: HashMap<String, usize>,
}

impl Reader<'_> {
    fn begin_table(&mut self, table: &str) {
        table.clone_into(&mut self.table);
        self.chains.clear();
    }

    /// Of a line such as `:FORWARD DROP [0:0]`.
    fn add_chain(&mut self, line: &str) {
        let mut words = line.split_whitespace();
        let (name, policy) = (words.next().unwrap_or_default(), words.next().unwrap_or_default());
        let chain = self.ruleset.chains.len();
        self.ruleset.chains.push(Chain {
            name: format!("iptables: table {}, chain {name}", self.table),
            remedy: format!("shown by: {} -t {} -S {name}", self.list, self.table),
            rules: Vec::new(),
        });
        self.chains.insert(name.to_owned(), chain);
        let hook = HOOKS.iter().find(|(one, _)| *one == name).filter(|_| self.table != NAT);
        let Some((_, hook)) = hook else { return };
        let priority = PRIORITIES.iter().find(|(table, _)| *table == self.table);
        self.ruleset.bases.push(BaseChain {
            chain,
            hook: *hook,
            // An unknown table is taken to come before connection tracking.
            priority: priority.map_or(-300, |(_, priority)| *priority),
            family: Some(self.family),
            accepts: policy == "ACCEPT",
        });
    }

    /// Of a line such as `-A FORWARD -i eth0 -j ACCEPT`.
    fn add_rule(&mut self, line: &str) {
        let words = split_words(line);
        let mut words = words.iter().map(String::as_str);
        let (command, chain) = (words.next(), words.next().unwrap_or_default());
        let Some(chain) = self.chains.get(chain).copied().filter(|_| command == Some("-A")) else { return };
        let steps = self.parse_steps(&mut words.peekable());
        let rules = &mut self.ruleset.chains[chain].rules;
        let name = format!("the rule '{line}'");
        rules.push(Rule { name, steps });
    }

    fn parse_steps<'w>(&self, words: &mut std::iter::Peekable<impl Iterator<Item = &'w str>>) -> Vec<Step> {
        let (mut steps, mut is_inverted, mut module) = (Vec::new(), false, "");
        while let Some(word) = words.next() {
            if word == "!" {
                is_inverted = true;
                continue;
            }
            let inverted = std::mem::take(&mut is_inverted);
            let mut value = || words.next().unwrap_or_default();
            let condition = match word {
                "-s" => parse_address(value()).map(|(address, mask)| Condition::Source(address, mask)),
                "-d" => parse_address(value()).map(|(address, mask)| Condition::Destination(address, mask)),
                "-i" => Some(Condition::Input(value().to_owned())),
                "-o" => Some(Condition::Output(value().to_owned())),
                // Of fragments but the first one, of which there are none here.
                "-f" => Some(Condition::never()),
                "-p" => parse_protocol(value()).map(Condition::Protocol),
                "--sport" | "--sports" => parse_port_ranges(value()).map(Condition::SourcePort),
                "--dport" | "--dports" => parse_port_ranges(value()).map(Condition::DestinationPort),
                "--ports" => parse_port_ranges(value()).map(|ranges| {
                    let destination = Condition::DestinationPort(ranges.clone());
                    Condition::Any(vec![Condition::SourcePort(ranges), destination])
                }),
                "--ctstate" | "--state" => parse_states(value()).map(Condition::State),
                "--mark" if module == "mark" => parse_mark(value()),
                "--src-type" | "--dst-type" => {
                    let is_source = word == "--src-type";
                    parse_types(value()).map(|types| Condition::AddressType { is_source, types })
                }
                "--tcp-flags" => tcp_flags(value(), value()),
                // It names a match whose options follow, which without any may be more than these.
                "-m" => {
                    module = value();
                    let is_known = UNDERSTOOD.contains(&module);
                    steps.extend((!is_known).then(|| xtables::unknown_match(module)));
                    continue;
                }
                "--comment" => {
                    value();
                    continue;
                }
                "-j" | "-g" => {
                    let target = value();
                    let options: Vec<&str> = words.collect();
                    steps.push(self.parse_target(target, word == "-g", &options));
                    return steps;
                }
                _ => None,
            };
            steps.push(Step::Test(condition.unwrap_or(Condition::Unknown).inverted_if(inverted)));
        }
        steps
    }

    fn parse_target(&self, name: &str, is_goto: bool, options: &[&str]) -> Step {
        let chain = self.chains.get(name).copied();
        match (name, chain) {
            ("REJECT" | "DROP", _) => Step::Decide(Verdict::Drop),
            ("ACCEPT", _) => Step::Decide(Verdict::Accept),
            ("RETURN", _) => Step::Decide(Verdict::Return),
            (_, Some(chain)) if is_goto => Step::Decide(Verdict::Goto(chain)),
            (_, Some(chain)) => Step::Decide(Verdict::Jump(chain)),
            ("CT", _) if matches!(options, ["--helper", _]) => Step::Nothing,
            // Of the mark 0, what is set is left.
            ("MARK", _) if matches!(options, ["--set-xmark", mark] if mark.starts_with("0x0/")) => {
                Step::Nothing
            }
            _ => xtables::effect_of_target(name),
        }
    }
}

/// Matches whose options are all understood, or each by itself is not.
const UNDERSTOOD: [&str; 8] =
    ["tcp", "udp", "multiport", "conntrack", "state", "comment", "mark", "addrtype"];

/// `0x1/0xff`, `0x1`.
fn parse_mark(text: &str) -> Option<Condition> {
    let number = |text: &str| u32::from_str_radix(text.strip_prefix("0x")?, 16).ok();
    let (value, mask) = text.split_once('/').map_or((text, None), |(value, mask)| (value, Some(mask)));
    Some(Condition::Mark { value: number(value)?, mask: mask.map_or(Some(u32::MAX), number)? })
}

/// Types of addresses, as bits `1 << RTN_*`.
fn parse_types(text: &str) -> Option<u16> {
    let bit = |name: &str| {
        let names =
            ["UNSPEC", "UNICAST", "LOCAL", "BROADCAST", "ANYCAST", "MULTICAST", "BLACKHOLE", "UNREACHABLE"];
        names.iter().position(|one| *one == name).map(|at| 1_u16 << at)
    };
    text.split(',').try_fold(0, |all, name| Some(all | bit(name)?))
}

/// Words; those in quotes are one.
fn split_words(line: &str) -> Vec<String> {
    let (mut words, mut word, mut is_quoted, mut is_word) = (Vec::new(), String::new(), false, false);
    let mut letters = line.chars();
    while let Some(letter) = letters.next() {
        match letter {
            '"' => (is_quoted, is_word) = (!is_quoted, true),
            '\\' if is_quoted => word.extend(letters.next()),
            letter if letter.is_whitespace() && !is_quoted => {
                if std::mem::take(&mut is_word) {
                    words.push(std::mem::take(&mut word));
                }
            }
            letter => {
                word.push(letter);
                is_word = true;
            }
        }
    }
    if is_word {
        words.push(word);
    }
    words
}

/// An address and a mask: `10.0.0.0/8`, `10.0.0.0/255.0.0.0`, `2001:db8::/32`.
fn parse_address(text: &str) -> Option<(IpAddr, IpAddr)> {
    let (address, mask) = text.split_once('/').map_or((text, None), |(address, mask)| (address, Some(mask)));
    let address: IpAddr = address.parse().ok()?;
    let most = if address.is_ipv4() { 32 } else { 128 };
    let length = match mask {
        None => most,
        Some(mask) => match mask.parse::<u32>() {
            Ok(length) => length,
            Err(_) => {
                let mask: IpAddr = mask.parse().ok()?;
                return (mask.is_ipv4() == address.is_ipv4()).then_some((address, mask));
            }
        },
    };
    let mask = match address {
        _ if length > most => return None,
        IpAddr::V4(_) => IpAddr::V4(u32::MAX.checked_shl(32 - length).unwrap_or(0).into()),
        IpAddr::V6(_) => IpAddr::V6(u128::MAX.checked_shl(128 - length).unwrap_or(0).into()),
    };
    Some((address, mask))
}

fn parse_protocol(name: &str) -> Option<u8> {
    match name {
        "tcp" => Some(6),
        "udp" => Some(17),
        "icmp" => Some(1),
        "ipv6-icmp" | "icmpv6" => Some(58),
        "sctp" => Some(132),
        // 0 stands for all.
        number => number.parse().ok().filter(|number| *number != 0),
    }
}

/// Of `80`, `80:90`, `:90`, `22,80:90`.
fn parse_port_ranges(text: &str) -> Option<Vec<(u16, u16)>> {
    let port = |text: &str, default: u16| if text.is_empty() { Some(default) } else { text.parse().ok() };
    let range = |text: &str| match text.split_once(':') {
        Some((from, to)) => Some((port(from, 0)?, port(to, u16::MAX)?)),
        None => text.parse().ok().map(|port| (port, port)),
    };
    text.split(',').map(range).collect()
}

/// Bits as nftables numbers them.
fn parse_states(text: &str) -> Option<u32> {
    let bit = |state: &str| match state {
        "INVALID" => Some(1),
        "ESTABLISHED" => Some(2),
        "RELATED" => Some(4),
        "NEW" => Some(8),
        "UNTRACKED" => Some(1 << 6),
        // Of translated connections.
        _ => None,
    };
    text.split(',').try_fold(0, |all, state| Some(all | bit(state)?))
}

fn tcp_flags(mask: &str, value: &str) -> Option<Condition> {
    let bit = |flag: &str| match flag {
        "FIN" => Some(1),
        "SYN" => Some(2),
        "RST" => Some(4),
        "PSH" => Some(8),
        "ACK" => Some(16),
        "URG" => Some(32),
        "NONE" => Some(0),
        "ALL" => Some(0x3f),
        _ => None,
    };
    let bits = |text: &str| text.split(',').try_fold(0_u8, |all, flag| Some(all | bit(flag)?));
    Some(Condition::TcpFlags { mask: bits(mask)?, value: bits(value)? })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_in_quotes_are_one_and_masks_are_read_in_both_forms() {
        assert_eq!(split_words(r#"-A a --comment "x \"y\" -j z" -j ACCEPT"#)[3], "x \"y\" -j z");
        let mask = parse_address("10.0.0.0/8").unwrap();
        assert_eq!(parse_address("10.0.0.0/255.0.0.0").unwrap(), mask);
        assert_eq!(parse_address("0.0.0.0/0").unwrap().1.to_string(), "0.0.0.0");
        assert_eq!(parse_address("::/129"), None);
        assert_eq!(parse_port_ranges("22,80:90,:3"), Some(vec![(22, 22), (80, 90), (0, 3)]));
        assert_eq!(parse_states("RELATED,ESTABLISHED"), Some(6));
        assert_eq!(parse_states("SNAT"), None);
        assert_eq!(parse_types("LOCAL,MULTICAST"), Some(1 << 2 | 1 << 5));
        assert_eq!(parse_mark("0x1/0xff"), Some(Condition::Mark { value: 1, mask: 0xff }));
        assert_eq!(parse_mark("0x10").and_then(|_| parse_mark("1/1")), None);
    }
}
