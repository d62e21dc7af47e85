//! The configuration of 1999 with other ends, whole or in part: what runs in memory is made of its own text.

use super::frames::both_ways;
use crate::conf::CLICK_1999;

/// The elements that a forwarded packet meets, in this order, as the configuration spells them.
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

/// The configuration with sources of `packets` packets each way, to be started by their `active` handlers, and an
/// element `sent` that takes what would be sent.
pub(super) fn in_memory(packets: u64) -> String {
    let text = replaced(CLICK_1999, "KernelReader(eth0) -> [0]fi;", &sources(packets, "[0]fi"));
    replaced(&replaced(&text, "KernelWriter(eth0)", "sent :: Discard"), "ToLinux", "Discard")
}

/// The same with route lookup, options and fragmentation.
pub(super) fn completed(packets: u64) -> String {
    replaced(&in_memory(packets), "GetIPAddress(16)", LEFT_OUT)
}

/// The first `length` elements of the chain between the same sources and `sent`.
pub(super) fn prefix(length: usize, packets: u64) -> String {
    let Some(((_, filter), chain)) = CHAIN[..length].split_first() else {
        return sources(packets, "sent").replacen("sent;", "sent :: Discard;", 1);
    };
    let mut chain: Vec<String> = chain.iter().map(|(_, text)| text.to_string()).collect();
    // The elements behind the filter are entered from two of its outputs.
    let entry = if chain.is_empty() { "sent" } else { "xx" };
    chain.iter_mut().take(1).for_each(|first| *first = format!("xx :: {first}"));
    chain.push("sent :: Discard".into());
    let replies = if length > 6 { "[1] arpq" } else { "Discard" };
    format!(
        "fi :: {filter};\n{sources}\nfi[0] -> {chain};\nfi[1] -> {entry};\nfi[2] -> Discard;\n\
         fi[3] -> {replies};\nfi[4] -> Discard;\n",
        sources = sources(packets, "fi"),
        chain = chain.join(" -> "),
    )
}

/// Two sources, one for each direction; the second, which is started last, ends the run.
fn sources(packets: u64, into: &str) -> String {
    let [to_tsb, to_zeus] = both_ways().map(|frame| hex(&frame));
    format!(
        "to_tsb :: InfiniteSource(DATA \\<{to_tsb}>, LIMIT {packets}, ACTIVE false, TIMESTAMP false) -> {into};\n\
         to_zeus :: InfiniteSource(DATA \\<{to_zeus}>, LIMIT {packets}, ACTIVE false, TIMESTAMP false, STOP true)\n    \
         -> {into};"
    )
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
    use crate::program::checked;

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
        let variants = [in_memory(1), completed(1), with_ends("Idle", "Discard", "Discard")];
        let prefixes = (0..=CHAIN.len()).map(|length| prefix(length, 1));
        for text in variants.into_iter().chain(prefixes) {
            let checked = checked("variant", &text, &[]).unwrap_or_else(|error| panic!("{error}\n{text}"));
            checked.configure(Default::default()).unwrap_or_else(|error| panic!("{error}\n{text}"));
        }
    }
}
