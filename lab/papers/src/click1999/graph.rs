//! The configuration of 1999 with other ends, whole or in part: what runs in memory is made of its own text.

use super::frames::{TSB, ZEUS, segment};
use artery_rig::conf::CLICK_1999;

/// The elements that a forwarded packet passes through, in this order, as the configuration spells them.
pub(super) const CHAIN: [(&str, &str); 8] = [
    ("Filter", "Filter(12/0800 30/121a04C8, 12/0800 30/121a0461, 12/0806 20/0001, 12/0806 20/0002, -)"),
    ("Strip", "Strip(14)"),
    ("CheckIPChecksum", "CheckIPChecksum"),
    ("DecTTL", "DecTTL"),
    ("SetIPChecksum", "SetIPChecksum"),
    ("GetIPAddress", "GetIPAddress(16)"),
    ("ArpQuerier", "[0] arpq :: ArpQuerier(18.26.4.60, 00:80:C8:4B:25:00)"),
    ("Queue", "Queue(20)"),
];

/// What the author had left out of his configuration.
const LEFT_OUT: &str = "GetIPAddress(16)
      -> LinearIPLookup(18.26.4.200/32 0, 18.26.4.97/32 0, 18.26.4.0/24 0)
      -> IPGWOptions(18.26.4.60)
      -> IPFragmenter(1500)";

/// The configuration as printed, with other text for its three ends.
pub fn with_ends(read: &str, write: &str, host: &str) -> String {
    let text = replaced(CLICK_1999, "KernelReader(eth0)", read);
    replaced(&replaced(&text, "KernelWriter(eth0)", write), "ToLinux", host)
}

/// Has the queue emptied before it is filled again.
const SINK_AT_ONCE: &str = "ScheduleInfo(sent 2);\n";

/// Ends in memory: how many packets there are, and how they move.
#[derive(Clone, Copy, Debug)]
pub(super) struct Ends {
    /// Packets that the source makes.
    pub(super) packets: u64,
    /// Whether packets move one by one, instead of in batches. Even then the ends handle several in a row, as
    /// a driver does: otherwise the scheduler, which no packet met in 1999, is what would be measured.
    pub(super) one_by_one: bool,
}

/// The configuration with a source to be started by its `active` handler, and an element `sent` that takes
/// what would be sent.
pub(super) fn in_memory(ends: Ends) -> String {
    let text = replaced(CLICK_1999, "KernelReader(eth0) -> [0]fi;", &ends.source("[0]fi"));
    let text = replaced(&replaced(&text, "KernelWriter(eth0)", ends.sink()), "ToLinux", "Discard");
    text + SINK_AT_ONCE
}

/// The same with a queue of 200.
pub(super) fn roomy(ends: Ends) -> String {
    replaced(&in_memory(ends), "Queue(20)", "Queue(200)")
}

/// The same with route lookup, options and fragmentation.
pub(super) fn completed(ends: Ends) -> String {
    replaced(&in_memory(ends), "GetIPAddress(16)", LEFT_OUT)
}

/// The first `length` elements of the chain between the same source and `sent`.
pub(super) fn prefix(length: usize, ends: Ends) -> String {
    let Some(((_, filter), chain)) = CHAIN[..length].split_first() else {
        return format!("sent :: Discard;\n{}", ends.source("sent"));
    };
    let mut chain: Vec<String> = chain.iter().map(|(_, text)| text.to_string()).collect();
    // The elements behind the filter are entered from two of its outputs.
    let entry = if chain.is_empty() { "sent" } else { "xx" };
    chain.iter_mut().take(1).for_each(|first| *first = format!("xx :: {first}"));
    chain.push(if length == CHAIN.len() { ends.sink() } else { "sent :: Discard" }.into());
    let schedule = if length == CHAIN.len() { SINK_AT_ONCE } else { "" };
    let replies = if length > 6 { "[1] arpq" } else { "Discard" };
    format!(
        "fi :: {filter};\n{source}\nfi[0] -> {chain};\nfi[1] -> {entry};\nfi[2] -> Discard;\n\
         fi[3] -> {replies};\nfi[4] -> Discard;\n{schedule}",
        source = ends.source("fi"),
        chain = chain.join(" -> "),
    )
}

impl Ends {
    /// A source of what zeus sends to tsb, which ends the run.
    fn source(self, into: &str) -> String {
        let (frame, packets) = (hex(&segment(&ZEUS, &TSB, 64)), self.packets);
        let burst = if self.one_by_one { ", BURST 16" } else { "" };
        format!(
            "zeus :: InfiniteSource(DATA \\<{frame}>, LIMIT {packets}, ACTIVE false, TIMESTAMP false, STOP \
             true{burst})\n    -> {into};"
        )
    }
    /// The element behind the queue.
    fn sink(self) -> &'static str {
        if self.one_by_one { "sent :: Discard(BURST 20)" } else { "sent :: Discard" }
    }
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// `text` with its only `old` replaced.
fn replaced(text: &str, old: &str, new: &str) -> String {
    let places = text.matches(old).count();
    assert_eq!(places, 1, "the configuration of 1999 is public and does not change: {old:?}");
    text.replacen(old, new, 1)
}

#[cfg(test)]
mod tests {
    use super::*;
    use artery_rig::program::checked;

    #[test]
    fn the_chain_is_that_of_the_printed_configuration() {
        let words = |text: &str| text.split_whitespace().collect::<Vec<_>>().join("");
        let printed = words(CLICK_1999);
        for (name, text) in CHAIN {
            assert!(printed.contains(&words(text.trim_start_matches("[0] "))), "{name}");
        }
    }

    #[test]
    fn every_variant_is_a_sound_configuration() {
        let ends = [true, false].map(|one_by_one| Ends { packets: 1, one_by_one });
        let prefixes = (0..=CHAIN.len()).flat_map(|length| ends.map(|ends| prefix(length, ends)));
        let whole = ends.into_iter().flat_map(|ends| [in_memory(ends), roomy(ends), completed(ends)]);
        for text in whole.chain(prefixes).chain([with_ends("Idle", "Discard", "Discard")]) {
            let checked = checked("variant", &text).unwrap_or_else(|error| panic!("{error}\n{text}"));
            checked.configure(Default::default()).unwrap_or_else(|error| panic!("{error}\n{text}"));
        }
    }
}
