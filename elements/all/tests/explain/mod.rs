//! The verdicts of `explain` match the data path: random packets through random routers.
//!
//! Each packet is explained first and then sent through IPForward or IP6Forward and, if it is an exception
//! there, through IPRouter. Its output and its drop counters must match the explanation. Failures name the
//! seed of the router; `EXPLAIN_SEED` runs that one alone.
mod frames;
mod path;
mod routers;

use artery_wire::Random;
use path::Path;

/// Routers, changes to each, and packets after each change: 100,000 packets in all.
const ROUTERS: u64 = 20;
const CHANGES: u64 = 25;
const PACKETS: u64 = 200;

/// Everything that must have happened often enough for the comparison to mean something.
const KINDS: [&str; 8] = ["forward", "hold", "answer", "reassemble", "host", "neighbor", "error", "discard"];
const REASONS: [&str; 22] = [
    "too-short",
    "malformed",
    "bad-checksum",
    "bad-source",
    "own-source",
    "reverse-path",
    "other-station",
    "unknown-ether-type",
    "no-route",
    "blackhole",
    "unreachable",
    "prohibited",
    "martian",
    "link-local",
    "port-down",
    "broadcast",
    "multicast",
    "bad-option",
    "source-route",
    "ttl-expired",
    "mtu-exceeded",
    "local",
];

#[test]
fn what_is_explained_is_what_happens_to_a_hundred_thousand_packets() {
    let only = std::env::var("EXPLAIN_SEED").ok().and_then(|seed| seed.parse().ok());
    let seeds: Vec<u64> = only.map_or((1..=ROUTERS).collect(), |seed| vec![seed]);
    let mut seen = path::Seen::default();
    for seed in &seeds {
        println!("seed {seed}");
        let mut random = Random::new(*seed);
        let mut path = Path::new(&routers::config(&mut random), *seed);
        for _ in 0..CHANGES {
            routers::change(&mut path, &mut random);
            for _ in 0..PACKETS {
                let (port, frame) = frames::frame(&mut random, path.next_mark());
                path.compare(port, &frame, &mut seen);
            }
        }
    }
    println!("{seen:?}");
    if only.is_none() {
        assert_eq!(seen.packets, ROUTERS * CHANGES * PACKETS);
        KINDS.iter().for_each(|kind| seen.expect(kind, 200));
        REASONS.iter().for_each(|reason| seen.expect(reason, 50));
        seen.expect("neighbor-failed", 20);
        seen.expect("redirect", 20);
        seen.expect("fragmented", 20);
        seen.expect("several", 1000);
        seen.expect("fast", 5000);
        seen.expect("slow", 500);
    }
}
