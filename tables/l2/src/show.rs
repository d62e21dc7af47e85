//! A switch as `ifconfig` prints it.
use super::command::{Command, PortFlag, StormKind, Untagged};
use super::config::{Config, Port, Role, SPAN_BIT, flag_bit, storm_place};
use super::decide::Cause;
use super::groups::Heard;
use super::learn::{Learned, seconds};
use super::mac::{MacEntry, MacEntryKind, MacKey};
use super::{Switch, SwitchError, lock_unpoisoned};
use std::fmt::Write as _;
use std::time::Duration;

/// Bits that every switch has: broadcast, simplex, multicast; and those that it has while it is up.
const ALWAYS: u32 = 0x8802;
const WHEN_UP: u32 = 0x41;
const SWITCH_FLAGS: [(u32, &str); 8] = [
    (0x1, "UP"),
    (0x2, "BROADCAST"),
    (0x40, "RUNNING"),
    (0x800, "SIMPLEX"),
    (0x1000, "LINK0"),
    (0x2000, "LINK1"),
    (0x4000, "LINK2"),
    (0x8000, "MULTICAST"),
];

/// The names of a port's flags, from the lowest bit on: the words that set them, in capitals.
fn port_flag_names() -> Vec<(u32, String)> {
    let shown = |flag: PortFlag| match flag {
        PortFlag::Learn => "LEARNING".to_string(),
        _ => flag.word().to_ascii_uppercase(),
    };
    let mut names: Vec<_> = PortFlag::iter_all().map(|flag| (flag_bit(flag), shown(flag))).collect();
    names.push((SPAN_BIT, "SPAN".to_string()));
    names.sort_unstable();
    names
}

/// A number in hex with the names of its bits.
fn format_flags(number: u32, names: &[(u32, impl AsRef<str>)]) -> String {
    let set = names.iter().filter(|(bit, _)| number & bit != 0).map(|(_, name)| name.as_ref());
    let set: Vec<&str> = set.collect();
    format!("flags={number:x}<{}>", set.join(","))
}

/// An address, with its VLAN where that isn't what is meant without.
pub(super) fn format_address(key: MacKey, default_vlan: u16) -> String {
    match key.vlan() == default_vlan {
        true => key.address().to_string(),
        false => format!("{}@{}", key.address(), key.vlan()),
    }
}

/// What a switch shows of its spanning tree.
#[derive(Clone, Debug, Default)]
pub struct Spanning {
    /// The lines behind the first one.
    pub head: String,
    /// What belongs to its ports, where they take part.
    pub ports: Vec<Option<SpanningPort>>,
}

/// What it shows of a port that takes part.
#[derive(Clone, Debug)]
pub struct SpanningPort {
    /// Properties, one bit each by [`flag_bit`].
    pub flags: u32,
    /// Priority of the port in the spanning tree.
    pub priority: u8,
    /// Path cost of the port.
    pub cost: u32,
    /// What it does, and as what.
    pub state: String,
}

impl Switch {
    /// All of it, as `ifconfig` prints a switch.
    pub fn show(&self, now: Duration) -> String {
        self.show_with(now, &Spanning::default())
    }

    /// The same of one that has a spanning tree.
    pub fn show_with(&self, now: Duration, spanning: &Spanning) -> String {
        let config = self.config().clone();
        let mut text = format_head(&config) + &spanning.head;
        for (at, port) in config.ports.iter().enumerate().filter(|(_, port)| port.role != Role::Detached) {
            port_lines(&mut text, at, port, spanning.ports.get(at).and_then(Option::as_ref));
        }
        let timeout = if config.limits.timeout == u32::MAX { 0 } else { config.limits.timeout };
        let evict = if config.limits.evicts { ", evict" } else { "" };
        let _ =
            writeln!(text, "\tAddresses (max cache: {}, timeout: {timeout}{evict}):", config.limits.entries);
        self.show_addresses(now).lines().for_each(|line| {
            let _ = writeln!(text, "\t\t{line}");
        });
        text
    }

    /// Its addresses, as `ifconfig` prints them: a line each.
    pub fn show_addresses(&self, now: Duration) -> String {
        let config = self.config().clone();
        let known = lock_unpoisoned(&self.learner).list_addresses(now);
        let mut text = String::new();
        for (key, entry) in known {
            let name = config.ports.get(usize::from(entry.port())).map_or("?", |port| &*port.name);
            let (age, flags) = (entry_age(entry, now), entry_flags(entry));
            let _ = writeln!(text, "{} {name} {age} {flags}", format_address(key, config.default_vlan()));
        }
        text
    }

    /// The rules of a port, or of all, a line each.
    pub fn show_rules(&self, port: Option<&str>) -> Result<String, SwitchError> {
        let config = self.config().clone();
        if let Some(name) = port {
            config.clone().member_mut(name)?;
        }
        let meant = config.ports.iter().filter(|of| port.is_none_or(|name| of.name == name));
        Ok(meant.flat_map(|port| &port.rules).map(|rule| format!("{rule}\n")).collect())
    }

    /// Frames that went no further: a line `CAUSE PORT COUNT` for each cause and port that there were any of.
    pub fn show_drops(&self) -> String {
        let (names, counts) = (self.port_names(), self.all_counts());
        let mut text = String::new();
        for cause in Cause::ALL {
            for (at, name) in names.iter().enumerate() {
                let count: u64 = counts.iter().map(|of| of.ports[at].causes[*cause as usize].get()).sum();
                if count > 0 {
                    let _ = writeln!(text, "{} {name} {count}", cause.name());
                }
            }
        }
        text
    }

    /// What was counted: a line for each port, then a line for each counter.
    pub fn show_stats(&self) -> String {
        let (names, counts) = (self.port_names(), self.all_counts());
        let mut text = String::new();
        for (at, name) in names.iter().enumerate() {
            let [mut received, mut sent] = [[0; 2]; 2];
            for port in counts.iter().map(|of| &of.ports[at]) {
                (0..2).for_each(|n| received[n] += port.received[n].get());
                (0..2).for_each(|n| sent[n] += port.sent[n].get());
            }
            let _ = writeln!(text, "{name} in {} {} out {} {}", received[0], received[1], sent[0], sent[1]);
        }
        let sum = |count: &dyn Fn(&super::counts::Counts) -> u64| -> u64 {
            counts.iter().map(|of| count(of)).sum()
        };
        let _ = writeln!(text, "addresses {}", lock_unpoisoned(&self.learner).count());
        for learned in Learned::ALL {
            let _ = writeln!(text, "{} {}", learned.name(), sum(&|of| of.learned[learned as usize].get()));
        }
        for heard in Heard::ALL {
            let _ = writeln!(text, "{} {}", heard.name(), sum(&|of| of.groups[*heard as usize].get()));
        }
        let _ = writeln!(text, "flooded {}", sum(&|of| of.flooded.get()));
        let _ = writeln!(text, "copied {}", sum(&|of| of.copied.get()));
        text
    }

    /// Moves of late, a line each.
    pub fn show_moves(&self, now: Duration) -> String {
        let config = self.config().clone();
        let name = |at: u16| config.ports.get(usize::from(at)).map_or("?", |port| &*port.name);
        let line = |news: &super::Move| {
            let (age, damped) =
                (seconds(now).wrapping_sub(news.at), if news.is_damped { " damped" } else { "" });
            let address = format_address(news.key, config.default_vlan());
            format!("{age} {address} {} {}{damped}\n", name(news.from), name(news.to))
        };
        lock_unpoisoned(&self.learner).moves().map(line).collect()
    }

    /// The names of its ports.
    pub fn port_names(&self) -> Vec<String> {
        self.config().ports.iter().map(|port| port.name.clone()).collect()
    }

    /// The commands that make another switch with the same ports what this one is; addresses that were
    /// learned are not among them.
    pub fn dump_commands(&self, now: Duration) -> Vec<Command> {
        let config = self.config().clone();
        let mut commands = config.dump_commands();
        let fixed = lock_unpoisoned(&self.learner)
            .list_addresses(now)
            .into_iter()
            .filter(|(_, entry)| entry.is_static());
        commands.extend(fixed.filter_map(|(key, entry)| {
            let port = config.ports.get(usize::from(entry.port()))?.name.clone();
            Some(Command::Static {
                port,
                address: key.address(),
                vlan: super::command::VlanId::new(key.vlan()),
            })
        }));
        commands
    }
}

fn format_head(config: &Config) -> String {
    let links = config.links.iter().zip([0x1000, 0x2000, 0x4000]).filter(|(is_set, _)| **is_set);
    let flags = links.fold(ALWAYS | if config.is_up { WHEN_UP } else { 0 }, |flags, (_, bit)| flags | bit);
    let querier = config.querier.map(|address| format!(" querier {address}")).unwrap_or_default();
    let snoop = if config.snoops { format!("\tsnoop{querier}\n") } else { String::new() };
    format!(
        "{}: {}\n{}{snoop}",
        config.name,
        format_flags(flags, &SWITCH_FLAGS),
        format_encapsulation(config)
    )
}

/// How tags are put on and read, where that is not as of any switch.
fn format_encapsulation(config: &Config) -> String {
    let usual = Config::new("");
    let (vlan, tx, rx) = (config.vnetid, config.tx_priority, config.rx_priority);
    if (vlan, tx, rx) == (usual.vnetid, usual.tx_priority, usual.rx_priority) {
        return String::new();
    }
    let vlan = vlan.map_or_else(|| "none".to_string(), |vlan| vlan.to_string());
    format!("\tencap: vnetid {vlan} txprio {tx} rxprio {rx}\n")
}

fn port_lines(text: &mut String, at: usize, port: &Port, spanning: Option<&SpanningPort>) {
    let of_role = if port.role == Role::Span { SPAN_BIT } else { 0 };
    let flags = port.flags | of_role | spanning.map_or(0, |of| of.flags);
    let _ = writeln!(text, "\t{} {}", port.name, format_flags(flags, &port_flag_names()));
    if port.role == Role::Span {
        return;
    }
    let (priority, cost) = spanning.map_or((0, 0), |of| (of.priority, of.cost));
    let _ = write!(text, "\t\tport {} ifpriority {priority} ifcost {cost}", at + 1);
    if !port.domains.is_empty() {
        let _ = write!(text, " protected {}", port.domains);
    }
    match port.untagged {
        Some(Untagged::Vlan(vlan)) => {
            let _ = write!(text, " untagged {vlan}");
        }
        Some(Untagged::Passthrough) => text.push_str(" untagged passthrough"),
        Some(Untagged::Dropped) => text.push_str(" untagged none"),
        None => {}
    }
    if !port.tagged.is_empty() {
        let _ = write!(text, " tagged {}", port.tagged);
    }
    if let Some(limit) = port.limit {
        let _ = write!(text, " ifmaxaddr {limit}");
    }
    if let Some(of) = spanning {
        let _ = write!(text, " {}", of.state);
    }
    text.push('\n');
    for kind in StormKind::ALL {
        if let Some(limit) = port.storm[storm_place(kind)] {
            let _ = writeln!(text, "\t\tstorm {} {limit}", kind.word());
        }
    }
    for rule in &port.rules {
        let _ = writeln!(text, "\t\t{rule}");
    }
}

fn entry_age(entry: MacEntry, now: Duration) -> u32 {
    if entry.is_static() { 0 } else { seconds(now).saturating_sub(entry.last_seen()) }
}

fn entry_flags(entry: MacEntry) -> String {
    match entry.kind() {
        MacEntryKind::Static => "flags=1<STATIC>",
        MacEntryKind::Sticky => "flags=2<STICKY>",
        MacEntryKind::Dynamic => "flags=0<>",
    }
    .into()
}
