//! The words that mean something by themselves, and can't name anything unless they are quoted.

/// All of them, sorted.
#[rustfmt::skip]
const RESERVED: [&str; 122] = [
    "af-to", "all", "allow-opts", "anchor", "antispoof", "any", "bandwidth", "binat-to", "bitmask", "block",
    "block-policy", "burst", "code", "debug", "default", "delay", "divert-packet", "divert-reply",
    "divert-to", "drop", "dup-to", "file", "fingerprints", "flags", "floating", "flows", "flush", "for",
    "fragment", "from", "global", "group", "hostid", "icmp-type", "icmp6-type", "if-bound", "in", "include",
    "inet", "inet6", "keep", "label", "least-states", "limit", "load", "log", "loginterface", "match",
    "matches", "max", "max-mss", "max-pkt-rate", "max-src-conn", "max-src-conn-rate", "max-src-nodes",
    "max-src-states", "min", "min-ttl", "modulate", "nat-to", "no", "no-df", "no-route", "no-sync", "on",
    "once", "optimization", "os", "out", "overload", "parent", "pass", "pflow", "port", "prio",
    "probability", "proto", "qlimit", "quantum", "queue", "quick", "random", "random-id", "rdomain",
    "rdr-to", "reassemble", "received-on", "reply-to", "return", "return-icmp", "return-icmp6",
    "return-rst", "round-robin", "route", "route-to", "rtable", "rule", "ruleset-optimization", "scrub",
    "set", "set-tos", "skip", "sloppy", "source-hash", "source-track", "state", "state-defaults",
    "state-policy", "static-port", "sticky-address", "syncookies", "synproxy", "table", "tag", "tagged",
    "timeout", "to", "tos", "ttl", "urpf-failed", "user", "weight",
];

/// The reserved word of this spelling.
pub(crate) fn reserved_word(word: &str) -> Option<&'static str> {
    RESERVED.binary_search(&word).ok().map(|place| RESERVED[place])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_list_is_sorted_so_that_all_of_it_is_found() {
        assert!(RESERVED.is_sorted());
        assert!(RESERVED.iter().all(|word| reserved_word(word) == Some(word)));
        assert_eq!(reserved_word("em0"), None);
    }
}
