//! What is said of states, and of how packets are cleaned and set.
use crate::options::Timeout;
use crate::rule::{Binding, Flush, Scrub, Set, SourceTrack, StateOptions};

/// The options of states, in their parentheses; empty if there are none.
pub(super) fn options(options: &StateOptions) -> String {
    let mut said: Vec<String> = Vec::new();
    let mut number = |name: &str, n: Option<u32>| said.extend(n.map(|n| format!("{name} {n}")));
    number("max", options.max);
    if options.is_not_synchronised {
        said.push("no-sync".into());
    }
    said.extend(options.source_track.map(|track| match track {
        SourceTrack::Rule => "source-track rule".to_string(),
        SourceTrack::Global => "source-track global".to_string(),
    }));
    let mut number = |name: &str, n: Option<u32>| said.extend(n.map(|n| format!("{name} {n}")));
    number("max-src-states", options.max_source_states);
    number("max-src-conn", options.max_source_connections);
    said.extend(options.max_source_rate.map(|(n, seconds)| format!("max-src-conn-rate {n}/{seconds}")));
    said.extend(options.max_source_nodes.map(|n| format!("max-src-nodes {n}")));
    said.extend(options.overload.as_ref().map(|(table, flush)| {
        let flush = match flush {
            Flush::No => "",
            Flush::Rule => " flush",
            Flush::Global => " flush global",
        };
        format!("overload <{}>{flush}", super::table_name(table))
    }));
    let bound = options.binding == Some(Binding::Bound);
    let words = [(bound, "if-bound"), (options.is_sloppy, "sloppy"), (options.is_pflow, "pflow")];
    said.extend(words.iter().filter(|(is_said, _)| *is_said).map(|(_, word)| word.to_string()));
    said.extend(format_timeouts(options));
    if said.is_empty() { String::new() } else { format!(" ({})", said.join(", ")) }
}

/// Timeouts in their own order, in which that of time stamps is last.
fn format_timeouts(options: &StateOptions) -> impl Iterator<Item = String> {
    let mut timeouts = options.timeouts.clone();
    timeouts.sort_by_key(|(timeout, _)| (*timeout == Timeout::TcpTsdiff, *timeout as usize));
    timeouts.into_iter().map(|(timeout, seconds)| format!("{} {seconds}", timeout.name()))
}

pub(super) fn scrub(scrub: &Scrub) -> String {
    let mut said: Vec<String> = Vec::new();
    let words = [(scrub.clears_df, "no-df"), (scrub.randomises_id, "random-id")];
    said.extend(words.iter().filter(|(is_said, _)| *is_said).map(|(_, word)| word.to_string()));
    said.extend(scrub.min_ttl.map(|ttl| format!("min-ttl {ttl}")));
    said.extend(scrub.tos.map(|tos| format!("set-tos 0x{tos:02x}")));
    said.extend(scrub.reassembles_tcp.then(|| "reassemble tcp".to_string()));
    said.extend(scrub.max_mss.map(|mss| format!("max-mss {mss}")));
    if said.is_empty() { String::new() } else { format!(" scrub ({})", said.join(" ")) }
}

pub(super) fn set(set: &Set) -> String {
    let mut said: Vec<String> = Vec::new();
    said.extend(set.priority.map(|(all, urgent)| match all == urgent {
        true => format!("prio {all}"),
        false => format!("prio({all}, {urgent})"),
    }));
    said.extend(set.queue.as_ref().map(|(all, urgent)| match urgent.is_empty() {
        true => format!("queue {}", super::quote_if_needed(all)),
        false => format!("queue({}, {})", super::quote_if_needed(all), super::quote_if_needed(urgent)),
    }));
    said.extend(set.tos.map(|tos| format!("tos 0x{tos:02x}")));
    said.extend(set.delay.map(|delay| format!("delay {delay}")));
    if said.is_empty() { String::new() } else { format!(" set ({})", said.join(", ")) }
}
