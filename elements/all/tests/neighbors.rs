//! Several ARPQueriers share what they know through an ARPTable, whatever the order of their declarations.
use artery_elements::CLASSES;
use artery_engine::{Router, RouterSettings, Sink};
use artery_lang::{Ir, Options, Processing, Sources, check, compile};

/// Packets for a neighbor whose replies only the other querier receives: `right` sends them with the header
/// that it learned there.
const SHARED: &str = "
    left :: ARPQuerier(10.0.0.1, 2:0:0:0:0:1, TABLE net/neighbors);
    right :: ARPQuerier(10.0.1.1, 2:0:0:0:0:2, TABLE net/neighbors);
    net :: { neighbors :: ARPTable; Idle -> output };
    net -> Discard;
    reply :: InfiniteSource(DATA \\<02 00 00 00 00 01  02 00 00 00 00 09  08 06  00 01 08 00 06 04 00 02
        02 00 00 00 00 09  0a 00 00 09  02 00 00 00 00 01  0a 00 00 01>, LIMIT 1, ACTIVE false) -> [1] left;
    packets :: InfiniteSource(LIMIT 3, ACTIVE false) -> SetIPAddress(10.0.0.9) -> right;
    Idle -> left -> Discard;
    Idle -> [1] right -> learnt :: Classifier(0/020000000009020000000002, -) -> sent :: Counter -> Discard;
    learnt[1] -> Discard;
    DriverManager(write reply.active true, wait 10ms, write packets.active true, wait 10ms,
        print sent.count, print right.count, print net/neighbors.count, print right.queries, stop)";

fn compiled(text: &str) -> (Ir, Processing) {
    let mut sources = Sources::default();
    let file = sources.add_file("test", text);
    let (ir, diagnostics) = compile(&mut sources, file, &Options::default(), &CLASSES);
    assert!(diagnostics.is_empty(), "{}", diagnostics[0].render(&sources));
    let (processing, diagnostics) = check(&ir, &CLASSES);
    assert!(diagnostics.is_empty(), "{}", diagnostics[0].render(&sources));
    (ir, processing)
}

#[test]
fn what_one_querier_hears_the_other_knows() {
    let (ir, processing) = compiled(SHARED);
    let output = Sink::buffer();
    let settings =
        RouterSettings { chatter: Sink::buffer(), output: output.clone(), ..RouterSettings::default() };
    let router = Router::build(&ir, &processing, CLASSES, settings).map_err(|p| format!("{p:?}")).unwrap();
    router.start().wait().unwrap();
    assert_eq!(output.drain_text(), "3\n1\n1\n0\n");
}

/// Two workers send to neighbors that never answer.
const WAITING: &str = "
    neighbors :: ARPTable(CAPACITY 0);
    a :: RatedSource(RATE 5000) -> SetIPAddress(10.0.0.9) -> left :: ARPQuerier(10.0.0.1, 2:0:0:0:0:1, TABLE \
    neighbors)
        -> Discard;
    b :: RatedSource(RATE 5000) -> SetIPAddress(10.0.0.8) -> right :: ARPQuerier(10.0.0.2, 2:0:0:0:0:2, \
    TABLE neighbors)
        -> Discard;
    Idle -> [1] left; Idle -> [1] right;
    StaticThreadSched(a 0, b 1)";

#[test]
fn replacements_lose_no_packet_that_waits_in_a_table_of_several_workers() {
    let (ir, processing) = compiled(WAITING);
    let settings = RouterSettings {
        workers: 2,
        chatter: Sink::buffer(),
        output: Sink::buffer(),
        ..RouterSettings::default()
    };
    let router = Router::build(&ir, &processing, CLASSES, settings).map_err(|p| format!("{p:?}")).unwrap();
    let running = router.start();
    let handle = running.handle();
    handle.accept_calls();
    handle.write_handler("neighbors.insert", "10.0.0.7 2:0:0:0:0:7").unwrap();
    for _ in 0..20 {
        handle.replace_graph(&ir, &processing).map_err(|p| format!("{p:?}")).unwrap();
    }
    handle.write_handler("a.active", "false").unwrap();
    handle.write_handler("b.active", "false").unwrap();
    let (plan, counts) = (handle.plan(), handle.counts().unwrap());
    let sent = |name: &str| counts[plan.find_node(name, "").unwrap()].packets;
    assert!(sent("left") > 0 && sent("right") > 0);
    let found = handle.read_handler("neighbors.length", "").unwrap();
    assert_eq!(found, (sent("left") + sent("right")).to_string());
    assert_eq!(handle.lost_to_replacement(), 0);
    assert_eq!(handle.read_handler("neighbors.count", "").unwrap(), "3");
    handle.end_run();
    running.wait().unwrap();
}
