//! Tables and their entries as text: what files hold, and what `pfctl -t` and `pfctl -s Tables` show.
use super::change::Feedback;
use super::networks::EntryCounters;
use super::{TableEntry, TableRecord, Tables};
use crate::names::address_bits;
use crate::syntax::hosts::parse_short_ipv4;
use std::fmt::Write;
use std::net::IpAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

/// How a time is written; times of tables count from where the caller's do.
pub(super) type TimeText<'a> = &'a dyn Fn(std::time::Duration) -> String;

/// Parses addresses as files of tables hold them: separated by blanks, `!` before exceptions, `#` before
/// comments. The error is the first word that isn't an address, and its line.
pub fn parse_entries(text: &str) -> Result<Vec<TableEntry>, (usize, String)> {
    let mut entries = Vec::new();
    for (line, text) in text.lines().enumerate() {
        let mut is_negated = false;
        let words = text.split('#').next().unwrap_or("").split([' ', '\t', '\r', ',']);
        for word in words.filter(|word| !word.is_empty()) {
            let address = word.trim_start_matches('!');
            is_negated ^= (word.len() - address.len()) % 2 == 1;
            if !address.is_empty() {
                let (address, length) = parse_network(address).ok_or_else(|| (line + 1, word.to_string()))?;
                entries.push(TableEntry::new(address, length, std::mem::take(&mut is_negated)));
            }
        }
        if is_negated {
            return Err((line + 1, "!".to_string()));
        }
    }
    Ok(entries)
}

fn parse_network(text: &str) -> Option<(IpAddr, u8)> {
    let (address, length) =
        text.split_once('/').map_or((text, None), |(address, length)| (address, Some(length)));
    // With a length the last numbers of an address of IPv4 may be left out, as in `10/8`.
    let of_first_numbers = || length.and_then(|_| parse_short_ipv4(address)).map(IpAddr::from);
    let address: IpAddr = address.parse().ok().or_else(of_first_numbers)?;
    let length = length.map_or(Some(address_bits(address)), |length| length.parse().ok())?;
    (length <= address_bits(address)).then_some((address, length))
}

impl TableEntry {
    /// The address as tables show it: `!`, the address, and the length if it is a network.
    fn format_entry(&self) -> String {
        let sign = if self.is_negated { '!' } else { ' ' };
        match self.length == address_bits(self.address) {
            true => format!("{sign}{}", self.address),
            false => format!("{sign}{}/{}", self.address, self.length),
        }
    }
}

impl Feedback {
    fn letter(self) -> char {
        match self {
            Feedback::Unchanged | Feedback::Exception => ' ',
            Feedback::Match => 'M',
            Feedback::Added => 'A',
            Feedback::Deleted => 'D',
            Feedback::Changed => 'C',
            Feedback::Cleared => 'Z',
            Feedback::Duplicate => 'X',
            Feedback::Conflict => 'Y',
        }
    }
}

/// A line that shows what an address met.
pub(super) fn entry_line(entry: &TableEntry, met: Feedback) -> String {
    format!("{} {}\n", met.letter(), entry.format_entry())
}

/// A line that shows which entry decided about an address.
pub(super) fn test_line(entry: &TableEntry, met: Feedback, decides: Option<TableEntry>) -> String {
    let decides =
        decides.map_or_else(|| "\t nomatch".to_string(), |entry| format!("\t{}", entry.format_entry()));
    format!("{} {}{decides}\n", met.letter(), entry.format_entry())
}

impl TableRecord {
    /// All entries, a line each, with their counters if these are wanted.
    pub(super) fn format_entries(&self, with_counters: bool, time: TimeText<'_>) -> String {
        let mut text = String::new();
        for entry in self.entries() {
            text.push_str(&entry_line(&entry, Feedback::Unchanged));
            if let Some(known) = self.get(&entry).filter(|_| with_counters) {
                let _ = writeln!(text, "\tCleared:     {}", time(known.since));
                known.counters.as_ref().into_iter().for_each(|counters| entry_counters(&mut text, counters));
            }
        }
        text
    }

    fn format_flags(&self) -> String {
        let flag = |is_set: bool, letter| if is_set { letter } else { '-' };
        [
            flag(self.is_const, 'c'),
            flag(self.is_persistent, 'p'),
            flag(self.is_active, 'a'),
            '-',
            flag(self.references > 0, 'r'),
            '-',
            flag(self.has_counters, 'C'),
        ]
        .iter()
        .collect()
    }

    fn format_totals(&self, time: TimeText<'_>) -> String {
        let table = &self.table;
        let (no_match, matches) = (
            table.sum_counters(|counters| &counters.no_match),
            table.sum_counters(|counters| &counters.matches),
        );
        let mut text = format!(
            "\tAddresses:   {}\n\tCleared:     {}\n\tReferences:  [ Anchors: {:<18} Rules: {:<18} ]\n\
             \tEvaluations: [ NoMatch: {no_match:<18} Match: {matches:<18} ]\n",
            self.len(),
            time(self.since),
            0,
            self.references,
        );
        for (direction, way) in ["In", "Out"].iter().enumerate() {
            let mut line = |name: &str, kind: usize| {
                let total =
                    |what: usize| table.sum_counters(|counters| &counters.packets[direction][kind][what]);
                packets_line(&mut text, &format!("{way}/{name}:"), [total(0), total(1)]);
            };
            ["Block", "Match", "Pass", "XPass"].iter().enumerate().for_each(|(kind, name)| line(name, kind));
        }
        text
    }
}

fn entry_counters(text: &mut String, counters: &Arc<EntryCounters>) {
    for (way, [block, matched, pass]) in ["In", "Out"].iter().zip(&counters.0) {
        let mut line = |name: &str, counters: &[AtomicU64; 2]| {
            packets_line(
                text,
                &format!("{way}/{name}:"),
                counters.each_ref().map(|counter| counter.load(Relaxed)),
            );
        };
        line("Block", block);
        line("Match", matched);
        line("Pass", pass);
    }
}

fn packets_line(text: &mut String, name: &str, [packets, bytes]: [u64; 2]) {
    let _ = writeln!(text, "\t{name:<12} [ Packets: {packets:<18} Bytes: {bytes:<18} ]");
}

impl Tables {
    /// The tables of an anchor, a line each: what `pfctl -s Tables` shows; with their flags (`-v`), and with
    /// what was counted for them (`-vv`).
    pub fn list_tables(&self, anchor: &str, verbosity: u8, time: TimeText<'_>) -> String {
        let records = self.records.iter().filter(|((of, _), record)| of == anchor && record.is_active);
        let mut text = String::new();
        for ((_, name), record) in records {
            if verbosity > 0 {
                let _ = write!(text, "{}\t", record.format_flags());
            }
            text.push_str(name);
            if verbosity > 0 && !anchor.is_empty() {
                let _ = write!(text, "\t{anchor}");
            }
            text.push('\n');
            if verbosity > 1 {
                text.push_str(&record.format_totals(time));
            }
        }
        text
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn entries_are_read_again_as_they_are_shown_and_rubbish_is_no_panic(
            entries in proptest::collection::vec((any::<IpAddr>(), 0u8..=128, any::<bool>()), 0..20),
            rubbish in "[0-9a-f!#/:. ,\\n]{0,60}|\\PC{0,40}",
        ) {
            let entries: Vec<TableEntry> = entries
                .into_iter()
                .map(|(address, length, negated)| TableEntry::new(address, length, negated))
                .collect();
            let text: String = entries.iter().map(|entry| entry_line(entry, Feedback::Unchanged)).collect();
            prop_assert_eq!(parse_entries(&text), Ok(entries));
            let _ = parse_entries(&rubbish);
        }
    }

    #[test]
    fn files_hold_addresses_exceptions_and_comments() {
        let entries =
            parse_entries("10.0.0.1/8 ! 10.1.0.0/16 # 1.1.1.1\n\n!2001:db8::1\t10.2.2.2\n").unwrap();
        let text: Vec<String> = entries.iter().map(TableEntry::format_entry).collect();
        assert_eq!(text, [" 10.0.0.0/8", "!10.1.0.0/16", "!2001:db8::1", " 10.2.2.2"]);
    }

    #[test]
    fn of_networks_the_last_numbers_may_be_left_out() {
        let entries = parse_entries("10/8 !172.16/12 192.168.1/24 0/0\n").unwrap();
        let text: Vec<String> = entries.iter().map(TableEntry::format_entry).collect();
        assert_eq!(text, [" 10.0.0.0/8", "!172.16.0.0/12", " 192.168.1.0/24", " 0.0.0.0/0"]);
        for wrong in ["10", "10.1", "10./8", "/8", "1.2.3.4.5/8", "256/8", "10/33", "10/", "a/8", "+1/8"] {
            assert_eq!(parse_entries(wrong), Err((1, wrong.to_string())));
        }
    }

    #[test]
    fn files_that_break_off_anywhere_or_are_spoilt_are_read_or_refused() {
        let text = "# all\n10/8 !10.1.0.0/16, ! 2001:db8::/32\r\n\t::ffff:1.2.3.4 1.2.3.4/32#x\n";
        assert_eq!(parse_entries(text).unwrap().len(), 5);
        for place in 0..text.len() {
            let _ = parse_entries(&text[..place]);
            for byte in (0..=0x7f_u8).map(char::from) {
                let _ = parse_entries(&format!("{}{byte}{}", &text[..place], &text[place + 1..]));
                let _ = parse_entries(&format!("{}{byte}{}", &text[..place], &text[place..]));
            }
        }
    }

    #[test]
    fn what_is_no_address_is_told_with_its_line() {
        assert_eq!(parse_entries("10.0.0.1\n10.0.0.0/33"), Err((2, "10.0.0.0/33".to_string())));
        assert_eq!(parse_entries("::/x"), Err((1, "::/x".to_string())));
        assert_eq!(parse_entries("1.2.3.4 !"), Err((1, "!".to_string())));
        assert_eq!(parse_entries("\u{0}\u{ff}"), Err((1, "\u{0}\u{ff}".to_string())));
    }
}
