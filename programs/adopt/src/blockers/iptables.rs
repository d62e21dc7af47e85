//! Chains of legacy iptables that forwarded packets would pass through.
//!
//! The kernel names its tables in a file; `iptables-legacy-save` prints their contents, and changes nothing.
//! Without that program a table that exists keeps its family's traffic.
use super::tracking::Tracks;
use super::{Blocker, BlockerKind, Family, Port, STAYS_TRANSLATED, at_tunnels, count_things, sysctl};
use std::io;
use std::path::PathBuf;
use std::process::{Command, Stdio};

/// What a family's tables and programs are called.
struct FamilyNames {
    family: Family,
    names: &'static str,
    program: &'static str,
    list: &'static str,
}

const PLACES: [FamilyNames; 2] = [
    FamilyNames {
        family: Family::V4,
        names: "/proc/thread-self/net/ip_tables_names",
        program: "iptables-legacy-save",
        list: "iptables-legacy",
    },
    FamilyNames {
        family: Family::V6,
        names: "/proc/thread-self/net/ip6_tables_names",
        program: "ip6tables-legacy-save",
        list: "ip6tables-legacy",
    },
];

/// Chains of the kernel's that forwarded packets come to.
const CHAINS: [&str; 3] = ["PREROUTING", "FORWARD", "POSTROUTING"];

/// Chains that packets of the machine come to.
const CHAINS_OF_MACHINE: [&str; 2] = ["INPUT", "OUTPUT"];

/// What keeps all traffic of a family, and of the tunnels among these ports.
pub(super) fn guards(ports: &[Port]) -> Vec<Blocker> {
    PLACES.iter().flat_map(|place| of_family(place, ports)).collect()
}

fn of_family(place: &FamilyNames, ports: &[Port]) -> Vec<Blocker> {
    let tables = match std::fs::read_to_string(place.names) {
        // Kernels without them, and those whose module is not loaded.
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Vec::new(),
        Err(error) => {
            return vec![Blocker::unreadable("the tables of iptables", &error).for_family(place.family)];
        }
        Ok(names) => names.split_whitespace().map(str::to_owned).collect::<Vec<_>>(),
    };
    if tables.is_empty() {
        return Vec::new();
    }
    let has_connections = !matches!(sysctl::number("netfilter/nf_conntrack_count"), Ok(None | Some(0)));
    let (guards, of_machine) = match run_save(place.program) {
        Ok(text) => {
            let of = |chains| of_rules(place, chains, &text, has_connections);
            (of(&CHAINS), if place.family == Family::V4 { of(&CHAINS_OF_MACHINE) } else { Vec::new() })
        }
        Err(why) => (unreadable_tables(place, &tables, &why), Vec::new()),
    };
    let guards = guards.into_iter().map(|guard| guard.for_family(place.family));
    guards.chain(at_tunnels(&of_machine, ports)).collect()
}

/// Targets that established connections do not go past: what they do is not in the kernel's entry of a
/// connection, or not for each packet alike.
pub(super) const UNPASSED: [&str; 16] = [
    "CT",
    "NOTRACK",
    "TPROXY",
    "SYNPROXY",
    "NFQUEUE",
    "TEE",
    "RAWSNAT",
    "RAWDNAT",
    "SNPT",
    "DNPT",
    "TTL",
    "HL",
    "DSCP",
    "TOS",
    "ECN",
    "TCPOPTSTRIP",
];

/// Matches and targets that have the kernel track connections.
const TRACKING: [&str; 8] =
    ["conntrack", "state", "MASQUERADE", "SNAT", "DNAT", "REDIRECT", "NETMAP", "CONNMARK"];

/// Whether settings of the target `CT` (`struct xt_ct_target_info`) do nothing but give new connections a
/// helper, which their entries tell: no zone, no events, no timeouts, and tracking goes on.
pub(crate) fn gives_only_a_helper(settings: &[u8]) -> bool {
    const ZONE_AND_EVENTS: usize = 12;
    const TIMEOUT_POLICY: usize = 28;
    let is_empty = |bytes: &[u8]| bytes.iter().all(|byte| *byte == 0);
    settings.get(..ZONE_AND_EVENTS).is_some_and(is_empty) && settings.get(TIMEOUT_POLICY) == Some(&0)
}

/// What keeps established connections from being forwarded past rules, which [`guards`] has found.
pub(super) fn find_unpassed() -> Vec<Blocker> {
    PLACES
        .iter()
        .flat_map(|place| unpassed_of_family(place).map(|guard| guard.for_family(place.family)))
        .collect()
}

fn unpassed_of_family(place: &FamilyNames) -> Option<Blocker> {
    let tables = std::fs::read_to_string(place.names).unwrap_or_default();
    if tables.trim().is_empty() {
        return None;
    }
    let what = match run_save(place.program) {
        Ok(text) => format!("iptables: the rule '{}'", unpassed_rule(&text)?),
        Err(why) => format!("iptables: rules can't be read ({why})"),
    };
    Some(Blocker::new(BlockerKind::Tracking, what, format!("shown by: {} -S", place.list)))
}

/// The rules of both families as their programs write them, with the programs that list them.
pub(crate) fn legacy_rules() -> io::Result<Vec<(Family, String, &'static str)>> {
    let mut all = Vec::new();
    for place in &PLACES {
        let has_tables = match std::fs::read_to_string(place.names) {
            Ok(names) => !names.trim().is_empty(),
            Err(error) if error.kind() == io::ErrorKind::NotFound => false,
            Err(error) => return Err(error),
        };
        if has_tables {
            let text = run_save(place.program).map_err(io::Error::other)?;
            all.push((place.family, without_counters(&text), place.list));
        }
    }
    Ok(all)
}

/// Without comments, and without what chains have counted.
fn without_counters(text: &str) -> String {
    let lines = text.lines().filter(|line| !line.starts_with('#'));
    let of_chain = |line: &'_ str| line.split(" [").next().unwrap_or_default().to_owned();
    let lines = lines.map(|line| if line.starts_with(':') { of_chain(line) } else { line.to_owned() });
    lines.map(|line| line + "\n").collect()
}

/// What rules have the kernel do with connections.
pub(super) fn tracks(family: Family) -> Tracks {
    let Some(place) = PLACES.iter().find(|place| place.family == family) else { return Tracks::default() };
    let names = std::fs::read_to_string(place.names).unwrap_or_default();
    if names.trim().is_empty() {
        return Tracks::default();
    }
    let text = run_save(place.program).unwrap_or_default();
    let translates = names.split_whitespace().any(|name| name == "nat");
    Tracks { connections: text.lines().any(asks_for_connections), translates }
}

fn asks_for_connections(rule: &str) -> bool {
    let mut words = rule.split_whitespace();
    words.any(|word| TRACKING.contains(&word)) && rule.starts_with("-A")
}

fn unpassed_rule(text: &str) -> Option<&str> {
    let target = |line: &&str| {
        let words: Vec<&str> = line.split_whitespace().collect();
        // A comment may have words of the same look: one too many is found rather than one too few.
        let is_unpassed = |pair: &[&str]| ["-j", "-g"].contains(&pair[0]) && UNPASSED.contains(&pair[1]);
        let is_harmless = |words: &[&str]| matches!(words, [.., "-j", "CT", "--helper", _]);
        words.windows(2).any(is_unpassed) && !is_harmless(&words)
    };
    text.lines().find(target)
}

/// The rules, as the program writes them, or why it did not.
fn run_save(program: &str) -> Result<String, String> {
    // Those who are not root often don't look where such programs are.
    let folders = std::env::var_os("PATH").unwrap_or_default();
    let usual = ["/usr/sbin", "/sbin"].map(PathBuf::from);
    let path = std::env::split_paths(&folders)
        .chain(usual)
        .map(|folder| folder.join(program))
        .find(|path| path.exists());
    let path = path.ok_or_else(|| format!("{program} is missing"))?;
    let output =
        Command::new(path).stdin(Stdio::null()).output().map_err(|error| format!("{program}: {error}"))?;
    match output.status.success() {
        true => Ok(String::from_utf8_lossy(&output.stdout).into_owned()),
        false => {
            Err(format!("{program}: {}", String::from_utf8_lossy(&output.stderr).trim().replace('\n', " ")))
        }
    }
}

/// Returns one blocker for the tables that can't be read.
fn unreadable_tables(place: &FamilyNames, tables: &[String], why: &str) -> Vec<Blocker> {
    let what =
        format!("iptables: tables {} exist, and what is in them can't be read ({why})", tables.join(" "));
    vec![Blocker::new(BlockerKind::Iptables, what, format!("shown by: {} -S", place.list))]
}

/// A chain of the kernel's, as read.
struct Chain {
    table: String,
    name: String,
    policy: String,
    rules: u32,
}

/// The blockers for rules. Known connections keep the translation that they have, whatever rules are left.
fn of_rules(place: &FamilyNames, chains: &[&str], text: &str, has_connections: bool) -> Vec<Blocker> {
    let translates = |chain: &Chain| has_connections && chain.table == "nat";
    let in_force = |chain: &Chain| chain.policy != "ACCEPT" || chain.rules > 0 || translates(chain);
    let guard = |chain: Chain| {
        let stays = if translates(&chain) { STAYS_TRANSLATED } else { "" };
        let Chain { table, name, policy, rules } = chain;
        let rules = if rules == 0 { stays.to_owned() } else { format!(", {}", count_things(rules, "rule")) };
        let what = format!("iptables: table {table}, chain {name} (policy {policy}{rules})");
        Blocker::new(BlockerKind::Iptables, what, format!("shown by: {} -t {table} -S {name}", place.list))
    };
    parse_chains(text, chains).into_iter().filter(in_force).map(guard).collect()
}

/// Those of these chains that there are, of lines such as `*filter`, `:FORWARD DROP [0:0]`,
/// `-A FORWARD -j ACCEPT`.
fn parse_chains(text: &str, chains: &[&str]) -> Vec<Chain> {
    let (mut all, mut table) = (Vec::<Chain>::new(), String::new());
    for line in text.lines() {
        let mut words = line.split_whitespace();
        let (first, second) = (words.next().unwrap_or_default(), words.next().unwrap_or_default());
        if let Some(name) = first.strip_prefix('*') {
            table = name.to_owned();
        } else if let Some(name) = first.strip_prefix(':').filter(|name| chains.contains(name)) {
            let (table, name, policy) = (table.clone(), name.to_owned(), second.to_owned());
            all.push(Chain { table, name, policy, rules: 0 });
        } else if first == "-A" {
            let chain = all.iter_mut().find(|chain| chain.table == table && chain.name == second);
            chain.into_iter().for_each(|chain| chain.rules += 1);
        }
    }
    all
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn chains_with_rules_or_another_policy_keep_traffic() {
        let text = "# Generated\n*filter\n:INPUT DROP [0:0]\n:FORWARD ACCEPT [0:0]\n:OUTPUT ACCEPT [0:0]\n\
            :mine - [0:0]\n\
            -A INPUT -j mine\n-A mine -j DROP\nCOMMIT\n*nat\n:PREROUTING ACCEPT [0:0]\n\
            :POSTROUTING ACCEPT [0:0]\n-A POSTROUTING -o eth0 -j MASQUERADE\nCOMMIT\n";
        let what: Vec<_> = of_rules(&PLACES[0], &CHAINS, text, false)
            .into_iter()
            .map(|guard| (guard.what, guard.remedy))
            .collect();
        let expected = (
            "iptables: table nat, chain POSTROUTING (policy ACCEPT, 1 rule)".to_owned(),
            "shown by: iptables-legacy -t nat -S POSTROUTING".to_owned(),
        );
        assert_eq!(what, [expected]);
        let dropping = text.replace(":FORWARD ACCEPT", ":FORWARD DROP");
        assert_eq!(
            of_rules(&PLACES[1], &CHAINS, &dropping, false)[0].what,
            "iptables: table filter, chain FORWARD (policy DROP)"
        );
    }

    #[test]
    fn connections_stay_translated_without_rules() {
        let text = "*nat\n:POSTROUTING ACCEPT [0:0]\nCOMMIT\n*filter\n:FORWARD ACCEPT [0:0]\nCOMMIT\n";
        assert!(of_rules(&PLACES[0], &CHAINS, text, false).is_empty());
        let guards = of_rules(&PLACES[0], &CHAINS, text, true);
        let expected =
            "iptables: table nat, chain POSTROUTING (policy ACCEPT, no rules: connections stay translated)";
        assert_eq!((guards.len(), guards[0].what.as_str()), (1, expected));
    }

    #[test]
    fn rules_that_change_how_connections_are_tracked_are_found() {
        let text = "*raw\n:PREROUTING ACCEPT [0:0]\n-A PREROUTING -p udp -j CT --zone 5\n";
        assert_eq!(unpassed_rule(text), Some("-A PREROUTING -p udp -j CT --zone 5"));
        assert_eq!(unpassed_rule("-A PREROUTING -p tcp -m tcp --dport 21 -j CT --helper ftp"), None);
        let settings = |at: usize, byte: u8| {
            let mut settings = [0; 72];
            settings[12..15].copy_from_slice(b"ftp");
            settings[at] = byte;
            settings
        };
        assert!(gives_only_a_helper(&settings(12, b'f')));
        assert!(![0, 2, 4, 8, 28].into_iter().any(|at| gives_only_a_helper(&settings(at, 1))));
        assert!(!gives_only_a_helper(&[0; 28]));
        assert_eq!(unpassed_rule("-A FORWARD -m comment --comment CT -j ACCEPT"), None);
        let hidden = "-A PREROUTING -m comment --comment \"was -j ACCEPT\" -j NOTRACK";
        assert_eq!(unpassed_rule(hidden), Some(hidden));
        let prefixes = "-A POSTROUTING -o eth1 -j SNPT --src-pfx fd00::/64 --dst-pfx 2001:db8:2::/64";
        assert_eq!(unpassed_rule(prefixes), Some(prefixes));
    }

    #[test]
    fn a_table_that_nobody_can_look_into_keeps_traffic() {
        let why = run_save("no-such-program").unwrap_err();
        let guards = unreadable_tables(&PLACES[0], &["filter".to_owned()], &why);
        assert!(guards[0].what.contains("tables filter exist"), "{guards:?}");
        assert!(guards[0].what.contains("missing"), "{guards:?}");
    }
}
