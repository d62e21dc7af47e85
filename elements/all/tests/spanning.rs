//! Switches of one router in a ring: their spanning tree by the router's own clock.

/// Three switches in a ring, each with a host behind its third port: the first sends a frame to
/// all after a time.
const RING: &str = "
a :: Veb(PORT l, PORT r, PORT h, IFCONFIG \"stp l stp r stp h edge h\");
b :: Veb(PORT l, PORT r, PORT h, IFCONFIG \"stp l stp r stp h edge h\");
c :: Veb(PORT l, PORT r, PORT h, IFCONFIG \"stp l stp r stp h edge h\");
a[1] -> ab :: Counter -> [0] b; b[0] -> [1] a;
b[1] -> bc :: Counter -> [0] c; c[0] -> [1] b;
c[1] -> ca :: Counter -> [0] a; a[0] -> [1] c;

host :: TimedSource(0.1, \\<ffffffffffff020000000099080045000014>) -> [2] a;
no :: Idle -> [2] b; Idle -> [2] c;
a[2] -> Discard;
b[2] -> at_b :: Classifier(12/0800, -) -> got_b :: Counter -> Discard; at_b[1] -> Discard;
c[2] -> at_c :: Classifier(12/0800, -) -> got_c :: Counter -> Discard; at_c[1] -> Discard;
";

/// What a router prints that says nothing besides.
fn printed(text: &str) -> String {
    let (printed, said) = crate::whole::simulate(text);
    assert_eq!(said, "");
    printed
}

#[test]
fn a_ring_in_one_router_converges_within_a_second_with_one_port_held_back() {
    let script = "Script(wait 0.95, print $(a.show), print $(b.show), print $(c.show), wait 1s, print \
        $(got_b.count), print $(got_c.count), stop)";
    let said = printed(&format!("{RING}{script}"));
    let of = |what: &str| said.lines().filter(|line| line.contains(what)).count();
    assert_eq!(of(" discarding role alternate"), 1, "{said}");
    assert_eq!(of(" discarding "), 1, "{said}");
    assert_eq!(of(" forwarding "), 8, "{said}");
    let counts: Vec<u64> = said.lines().rev().take(2).map(|line| line.parse().unwrap()).collect();
    // A frame each tenth of a second, each of which arrives once.
    assert!(counts.iter().all(|count| (10..=20).contains(count)), "{said}");
}
