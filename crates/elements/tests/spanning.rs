//! Switches of one router in a ring: their spanning tree by the router's own clock.
use artery_elements::CLASSES;
use artery_engine::router::{Router, Settings};
use artery_engine::{Sink, Time};
use artery_lang::{Options, Sources, check, compile};

/// Three switches in a ring, each with a host behind its third port: the first sends a frame to all after a time.
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

fn run(text: &str) -> String {
    let mut sources = Sources::default();
    let file = sources.add("test", text);
    let (ir, mut diagnostics) = compile(&mut sources, file, &Options::default(), &CLASSES);
    let (processing, more) = check(&ir, &CLASSES);
    diagnostics.extend(more);
    assert!(diagnostics.is_empty(), "{}", diagnostics.iter().map(|d| d.render(&sources)).collect::<String>());
    let settings = Settings {
        chatter: Sink::buffer(),
        output: Sink::buffer(),
        frames: (1024, 4),
        simulated: Some(Time::new(1_000_000_000, 0)),
        ..Settings::default()
    };
    let router = Router::build(&ir, &processing, CLASSES, settings.clone());
    router.unwrap_or_else(|problems| panic!("{problems:?}")).start().wait().expect("no worker panics");
    assert_eq!(settings.chatter.take(), "");
    settings.output.take()
}

#[test]
fn a_ring_in_one_router_converges_within_a_second_with_one_port_held_back() {
    let script = "Script(wait 0.95, print $(a.show), print $(b.show), print $(c.show), wait 1s, print $(got_b.count), \
                  print $(got_c.count), stop)";
    let said = run(&format!("{RING}{script}"));
    let of = |what: &str| said.lines().filter(|line| line.contains(what)).count();
    assert_eq!(
        (of(" discarding role alternate"), of(" discarding "), of(" forwarding ")),
        (1, 1, 8),
        "{said}"
    );
    let counts: Vec<u64> = said.lines().rev().take(2).map(|line| line.parse().unwrap()).collect();
    // A frame each tenth of a second, each of which arrives once.
    assert!(counts.iter().all(|count| (10..=20).contains(count)), "{said}");
}
