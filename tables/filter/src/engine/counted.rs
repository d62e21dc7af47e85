//! What the filter counts, and how `pfctl -s info` prints it.
use super::{Filter, FilterVerdict, PacketLookup};
use crate::dissect::{Dissected, FilterDropReason, read_u32};
use crate::facts::{Direction, Family, Interface};
use crate::options::Syncookies;
use crate::scrub;
use crate::sources::Exceeded;
use crate::states::Extra;
use crate::track::at_or_after;
use artery_wire::IpProtocol;
use std::fmt::{self, Write};
use std::time::Duration;

/// Limits that were met, in the order of `pfctl -v -s info`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(missing_docs)] // their names are those of pf
pub enum LimitCounter {
    MaxStates,
    MaxSourceStates,
    MaxSourceNodes,
    MaxSourceConnections,
    MaxSourceRate,
    OverloadTable,
    OverloadFlush,
    Synfloods,
    SyncookiesSent,
    SyncookiesValidated,
}

const LIMIT_NAMES: [&str; 10] = [
    "max states per rule",
    "max-src-states",
    "max-src-nodes",
    "max-src-conn",
    "max-src-conn-rate",
    "overload table insertion",
    "overload flush states",
    "synfloods detected",
    "syncookies sent",
    "syncookies validated",
];

/// What a worker counts; those of several are added up.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct FilterCounters {
    /// States that there are, and those among them whose handshake is not over.
    pub states: [u64; 2],
    /// Searches, inserts and removals of states.
    pub state_table: [u64; 3],
    /// Sources that there are.
    pub sources: u64,
    /// Searches, inserts and removals of sources.
    pub source_table: [u64; 3],
    /// Number of fragments that wait for others.
    pub fragments: u64,
    /// Searches, inserts and removals of packets in fragments.
    pub fragment_table: [u64; 3],
    /// Drops, indexed by [`FilterDropReason`].
    pub reasons: [u64; 17],
    /// Refusals, indexed by [`LimitCounter`].
    pub limits: [u64; 10],
    /// What came and left by each interface.
    pub interfaces: Vec<InterfaceCounts>,
    /// Replies and events that were lost as they were not drained in time.
    pub lost_answers: u64,
    /// The same for events: see `lost_answers`.
    pub lost_events: u64,
}

/// What came and left by an interface.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct InterfaceCounts {
    /// Packets by family and direction, and whether they were blocked.
    pub packets: [[[u64; 2]; 2]; 2],
    /// Bytes of them, indexed alike.
    pub bytes: [[[u64; 2]; 2]; 2],
    /// States that hold at this interface only.
    pub states: u64,
}

impl InterfaceCounts {
    /// Adds what another worker, or another interface, counted.
    pub fn add_counts(&mut self, other: &InterfaceCounts) {
        let flat = |counts: &[[[u64; 2]; 2]; 2]| counts.as_flattened().as_flattened().to_vec();
        let add = |to: &mut [[[u64; 2]; 2]; 2], from: &[[[u64; 2]; 2]; 2]| {
            let to = to.as_flattened_mut().as_flattened_mut();
            to.iter_mut().zip(flat(from)).for_each(|(to, from)| *to += from);
        };
        add(&mut self.packets, &other.packets);
        add(&mut self.bytes, &other.bytes);
        self.states += other.states;
    }

    /// Prints it as `pfctl -vv -s Interfaces` does, below the interface's name.
    pub fn print_counts(&self, cleared: &str, rules: usize, out: &mut impl Write) -> fmt::Result {
        writeln!(out, "\tCleared:     {cleared}")?;
        writeln!(out, "\tReferences:  [ States:  {:<18} Rules: {rules:<18} ]", self.states)?;
        for (family, digit) in [(Family::Inet, '4'), (Family::Inet6, '6')] {
            for (direction, way) in [(Direction::In, "In"), (Direction::Out, "Out")] {
                for (blocked, action) in ["Pass", "Block"].into_iter().enumerate() {
                    let at =
                        |counts: &[[[u64; 2]; 2]; 2]| counts[family as usize][direction as usize][blocked];
                    let (packets, bytes) = (at(&self.packets), at(&self.bytes));
                    let name = format!("{way}{digit}/{action}:");
                    writeln!(out, "\t{name:<12} [ Packets: {packets:<18} Bytes: {bytes:<18} ]")?;
                }
            }
        }
        Ok(())
    }
}

/// What is printed beside what is counted.
#[derive(Clone, Debug, PartialEq)]
pub struct FilterStatus<'a> {
    /// Whether the filter is on.
    pub is_enabled: bool,
    /// For how long it has been on or off.
    pub since: Option<Duration>,
    /// The level of `set debug`.
    pub debug: &'a str,
    /// The number of `set hostid`.
    pub host_id: u32,
    /// The checksum of the rules.
    pub checksum: [u8; 16],
    /// `set loginterface`, and the interfaces that it means: one, or those of a group.
    pub log_interface: Option<(&'a str, Vec<Interface>)>,
    /// `set syncookies`, and the limit of states that it has marks of.
    pub syncookies: Syncookies,
    /// The limit of states.
    pub state_limit: u32,
}

impl FilterCounters {
    /// Adds what another worker counted.
    pub fn add_counts(&mut self, other: &FilterCounters) {
        let add = |to: &mut [u64], from: &[u64]| to.iter_mut().zip(from).for_each(|(to, from)| *to += from);
        add(&mut self.states, &other.states);
        add(&mut self.state_table, &other.state_table);
        add(&mut self.source_table, &other.source_table);
        add(&mut self.fragment_table, &other.fragment_table);
        add(&mut self.reasons, &other.reasons);
        add(&mut self.limits, &other.limits);
        let longest = self.interfaces.len().max(other.interfaces.len());
        self.interfaces.resize(longest, InterfaceCounts::default());
        self.interfaces.iter_mut().zip(&other.interfaces).for_each(|(to, from)| to.add_counts(from));
        self.sources += other.sources;
        self.fragments += other.fragments;
        self.lost_answers += other.lost_answers;
        self.lost_events += other.lost_events;
    }

    pub(super) fn count_exceeded(&mut self, exceeded: Exceeded) {
        let counter = match exceeded {
            Exceeded::MaxStatesPerRule => LimitCounter::MaxStates,
            Exceeded::MaxSourceStates => LimitCounter::MaxSourceStates,
            Exceeded::MaxSourceNodes => LimitCounter::MaxSourceNodes,
            Exceeded::MaxSourceConnections => LimitCounter::MaxSourceConnections,
            Exceeded::MaxSourceRate => LimitCounter::MaxSourceRate,
        };
        self.limits[counter as usize] += 1;
    }

    /// Prints it as `pfctl -s info` does, with `is_verbose` as with `-v`.
    pub fn print_info(
        &self,
        status: &FilterStatus<'_>,
        is_verbose: bool,
        out: &mut impl Write,
    ) -> fmt::Result {
        let seconds = status.since.map_or(0, |since| since.as_secs());
        status.print_head(is_verbose, out)?;
        if let Some((name, interfaces)) = &status.log_interface {
            self.print_interface(name, interfaces, out)?;
        }
        writeln!(out, "{:<27} {:>14} {:>16}", "State Table", "Total", "Rate")?;
        print_counter(out, "current entries", self.states[0])?;
        print_counter(out, "half-open tcp", self.states[1])?;
        print_table(out, &self.state_table, seconds)?;
        if is_verbose {
            writeln!(out, "Source Tracking Table")?;
            print_counter(out, "current entries", self.sources)?;
            print_table(out, &self.source_table, seconds)?;
            writeln!(out, "Fragments")?;
            print_counter(out, "current entries", self.fragments)?;
            print_table(out, &self.fragment_table, seconds)?;
        }
        writeln!(out, "Counters")?;
        for (reason, name) in FilterDropReason::NAMES {
            print_rate(out, name, self.reasons[reason as usize], seconds)?;
        }
        if is_verbose {
            writeln!(out, "Limit Counters")?;
            LIMIT_NAMES
                .iter()
                .zip(self.limits)
                .try_for_each(|(name, n)| print_rate(out, name, n, seconds))?;
            status.print_marks(out)?;
        }
        Ok(())
    }

    fn print_interface(&self, name: &str, interfaces: &[Interface], out: &mut impl Write) -> fmt::Result {
        const IN: usize = Direction::In as usize;
        const OUT: usize = Direction::Out as usize;
        let mut sum = InterfaceCounts::default();
        let counted = interfaces.iter().filter_map(|interface| self.interfaces.get(usize::from(interface.0)));
        counted.for_each(|counts| sum.add_counts(counts));
        let [four, six] = sum.bytes.map(|family| family.map(|[passed, blocked]| passed + blocked));
        writeln!(out, "Interface Stats for {name:<16} {:>5} {:>16}", "IPv4", "IPv6")?;
        writeln!(out, "  {:<25} {:>14} {:>16}", "Bytes In", four[IN], six[IN])?;
        writeln!(out, "  {:<25} {:>14} {:>16}", "Bytes Out", four[OUT], six[OUT])?;
        for (title, way) in [("Packets In", IN), ("Packets Out", OUT)] {
            writeln!(out, "  {title}")?;
            for (name, n) in [("Passed", 0), ("Blocked", 1)] {
                let [four, six] = sum.packets.map(|family| family[way][n]);
                writeln!(out, "    {name:<23} {four:>14} {six:>16}")?;
            }
        }
        writeln!(out)
    }
}

impl FilterStatus<'_> {
    fn print_head(&self, is_verbose: bool, out: &mut impl Write) -> fmt::Result {
        let state = if self.is_enabled { "Enabled" } else { "Disabled" };
        let line = match self.since.map(|since| since.as_secs()) {
            None => format!("Status: {state}"),
            Some(s) => {
                let (days, hours) = (s / 86_400, s / 3600 % 24);
                format!("Status: {state} for {days} days {hours:02}:{:02}:{:02}", s / 60 % 60, s % 60)
            }
        };
        writeln!(out, "{line:<44}{:>15}\n", format!("Debug: {}", self.debug))?;
        if is_verbose {
            writeln!(out, "Hostid:   0x{:08x}", self.host_id)?;
            write!(out, "Checksum: 0x")?;
            self.checksum.iter().try_for_each(|byte| write!(out, "{byte:02x}"))?;
            writeln!(out, "\n")?;
        }
        Ok(())
    }

    fn print_marks(&self, out: &mut impl Write) -> fmt::Result {
        let (start, end) = match self.syncookies {
            Syncookies::Adaptive(start, end) => (start, end),
            Syncookies::Never | Syncookies::Always => (25, 12),
        };
        writeln!(out, "Adaptive Syncookies Watermarks")?;
        for (name, percent) in [("start", start), ("end", end)] {
            let states = u64::from(self.state_limit) * u64::from(percent) / 100;
            writeln!(out, "  {name:<25} {states:>14} states")?;
        }
        Ok(())
    }
}

fn print_counter(out: &mut impl Write, name: &str, n: u64) -> fmt::Result {
    writeln!(out, "  {name:<25} {n:>14} {:>14}", "")
}

fn print_table(out: &mut impl Write, counts: &[u64; 3], seconds: u64) -> fmt::Result {
    ["searches", "inserts", "removals"]
        .iter()
        .zip(counts)
        .try_for_each(|(name, n)| print_rate(out, name, *n, seconds))
}

fn print_rate(out: &mut impl Write, name: &str, n: u64, seconds: u64) -> fmt::Result {
    match seconds {
        0 => print_counter(out, name, n),
        seconds => writeln!(out, "  {name:<25} {n:>14} {:>14.1}/s", n as f64 / seconds as f64),
    }
}

impl Filter {
    /// What was counted so far.
    pub fn collect_counters(&self) -> FilterCounters {
        let [searches, inserts, removals] = self.states.counters;
        let mut interfaces = self.counted.interfaces.clone();
        for direction in [Direction::In, Direction::Out] {
            self.tallies[direction as usize].add_to(&mut interfaces, direction);
        }
        for (interface, states) in &self.states.bound {
            if let Some(counts) = interfaces.get_mut(usize::from(interface.0)) {
                counts.states = u64::from(*states);
            }
        }
        let untold: u64 = self.tallies.iter().map(|tally| u64::from(tally.packets)).sum();
        FilterCounters {
            states: [self.states.len().into(), self.states.half_open.into()],
            state_table: [searches + untold, inserts, removals],
            sources: self.sources.len().into(),
            source_table: self.sources.counters,
            fragments: self.fragments.len().into(),
            fragment_table: self.fragments.counters,
            interfaces,
            ..self.counted.clone()
        }
    }

    /// Counts a packet that is dropped before the filter looks at it.
    pub fn count_refused(&mut self, reason: FilterDropReason) {
        self.counted.reasons[reason as usize] += 1;
    }

    /// Counts the verdict for a packet. Packets that pass by a state do not count as matches of a rule.
    pub(super) fn count_verdict(&mut self, look: &PacketLookup, bytes: &[u8], verdict: &FilterVerdict) {
        if let FilterVerdict::Drop(reason) = verdict {
            self.counted.reasons[*reason as usize] += 1;
        }
        self.count_at_interface(look, bytes, matches!(verdict, FilterVerdict::Drop(_)));
    }

    fn count_at_interface(&mut self, look: &PacketLookup, bytes: &[u8], is_blocked: bool) {
        let is_six = bytes.first().is_some_and(|first| first >> 4 == 6);
        let family = if is_six { Family::Inet6 } else { Family::Inet } as usize;
        let way = look.at.direction as usize;
        if let Some(counts) = self.counted.interfaces.get_mut(usize::from(look.at.interface.0)) {
            counts.bytes[family][way][usize::from(is_blocked)] += bytes.len() as u64;
            counts.packets[family][way][usize::from(is_blocked)] += 1;
        }
    }

    /// Has room for what is counted at so many interfaces, and forgets what was.
    pub(super) fn count_at(&mut self, interfaces: usize) {
        self.counted.interfaces = vec![InterfaceCounts::default(); interfaces];
    }
}

/// What `scrub (reassemble tcp)` asks of segments: their time to live never falls below the greatest that
/// their sender had, and timestamps (RFC 7323) don't go back.
pub(super) fn check_tcp(
    extra: &mut Extra,
    bytes: &mut [u8],
    seen: &Dissected,
    from: usize,
    now_ms: u32,
    patience: Duration,
) -> Result<(), FilterDropReason> {
    const TIMESTAMP: u8 = 8;
    if seen.protocol != IpProtocol::TCP {
        return Ok(());
    }
    extra.ttl[from] = extra.ttl[from].max(seen.ttl);
    let scrubbed = crate::rule::Scrub { min_ttl: Some(extra.ttl[from]), ..Default::default() };
    scrub::apply(bytes, seen, &scrubbed, 0);
    let Some(at) = scrub::find_tcp_option(bytes, seen, TIMESTAMP, 10) else { return Ok(()) };
    let stamp = read_u32(bytes, at + 2);
    let is_old = extra.stamps[from].is_some_and(|(last, seen_ms)| {
        let is_recent = u128::from(now_ms.wrapping_sub(seen_ms)) < patience.as_millis();
        is_recent && !at_or_after(stamp, last)
    });
    if is_old && seen.payload > 0 {
        return Err(FilterDropReason::BadTimestamp);
    }
    if !is_old {
        extra.stamps[from] = Some((stamp, now_ms));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_interface_is_printed_as_pfctl_does() {
        let mut counts = InterfaceCounts { states: 3, ..InterfaceCounts::default() };
        (counts.packets[0][1][1], counts.bytes[0][1][1]) = (7, 700);
        let mut text = String::new();
        counts.print_counts("Thu Jan  1 00:00:00 1970", 2, &mut text).unwrap();
        let lines: Vec<&str> = text.lines().collect();
        assert_eq!(lines.len(), 10);
        assert_eq!(lines[0], "\tCleared:     Thu Jan  1 00:00:00 1970");
        assert_eq!(lines[1], "\tReferences:  [ States:  3                  Rules: 2                  ]");
        assert_eq!(lines[2], "\tIn4/Pass:    [ Packets: 0                  Bytes: 0                  ]");
        assert_eq!(lines[5], "\tOut4/Block:  [ Packets: 7                  Bytes: 700                ]");
        assert!(lines[9].starts_with("\tOut6/Block: "));
    }

    #[test]
    fn the_status_is_printed_as_the_manual_shows() {
        let counts = InterfaceCounts { packets: [[[5, 6], [7, 8]], [[0; 2]; 2]], ..Default::default() };
        let counted = FilterCounters {
            states: [3, 1],
            state_table: [1000, 7, 4],
            interfaces: vec![counts, counts],
            ..FilterCounters::default()
        };
        let status = FilterStatus {
            is_enabled: true,
            since: Some(Duration::from_secs(86_400 + 3661)),
            debug: "err",
            host_id: 0xabcd,
            checksum: [1; 16],
            log_interface: Some(("em", vec![Interface(0), Interface(1)])),
            syncookies: Syncookies::Never,
            state_limit: 100_000,
        };
        let mut text = String::new();
        counted.print_info(&status, true, &mut text).unwrap();
        let lines: Vec<_> = text.lines().collect();
        assert_eq!(lines[0], "Status: Enabled for 1 days 01:01:01              Debug: err");
        assert_eq!(lines[2], "Hostid:   0x0000abcd");
        assert_eq!(lines[5], "Interface Stats for em                IPv4             IPv6");
        assert_eq!(lines[9], "    Passed                              10                0");
        let at = lines.iter().position(|line| line.starts_with("State Table")).unwrap();
        assert_eq!(lines[at], "State Table                          Total             Rate");
        assert_eq!(lines[at + 1], "  current entries                        3               ");
        assert_eq!(lines[at + 3], "  searches                            1000            0.0/s");
        let counters = lines.iter().position(|line| *line == "Counters").unwrap();
        assert!(lines[counters + 1].starts_with("  match "));
        assert!(lines[counters + 17].starts_with("  no-route "));
        assert_eq!(lines.last(), Some(&"  end                                12000 states"));
    }
}
