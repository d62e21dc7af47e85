//! Several workers, handler calls between them and from outside, and replacement of the graph.
use crate::support::{CLASSES, GATES, build, ir, run, settings};
use artery_engine::{DropReason, HandlerError, Home, Router, RouterSettings};
use std::collections::HashSet;
use std::sync::atomic::Ordering::Relaxed;
use std::time::{Duration, Instant};

fn workers(workers: usize) -> RouterSettings {
    RouterSettings { workers, frames: (16384, 4), ..settings() }
}

#[test]
fn a_limit_is_global_and_counts_are_added_up() {
    let (mut finished, _) = run("Numbers(100000, STOP true) -> l :: Sink;", workers(3));
    assert_eq!(finished.plan().home(0), Home::Every);
    let count: u64 = finished.read_handler("l.count", "").unwrap().parse().unwrap();
    assert!((100_000 - 2 * 64..=100_000).contains(&count), "{count}");
}

#[test]
fn a_part_with_a_class_that_is_not_per_worker_runs_once_on_the_first() {
    let router = build("Numbers(1) -> Pass -> Sink", &workers(2));
    assert_eq!(router.plan().home(0), Home::Worker(0));
}

#[test]
fn a_read_that_joins_asks_the_copies_on_all_workers_in_their_order() {
    for (text, said) in [
        ("Numbers(0) -> s :: Sink", "worker-0\nworker-1\n"),
        ("Place(s, 1); Numbers(0) -> s :: Sink", "worker-1\n"),
    ] {
        let running = build(text, &workers(2)).start();
        assert_eq!(running.handle().read_handler("s.thread", "").as_deref(), Ok(said), "{text}");
        running.handle().end_run();
        running.wait().unwrap();
    }
}

#[test]
fn packets_cross_from_worker_to_worker_at_a_queue() {
    let text =
        "n :: Numbers(20000) -> q :: Store(100000) -> t :: Take -> s :: Sink; Place(s, 1); Place(n, 0)";
    let running = build(text, &workers(2)).start();
    let handle = running.handle();
    let of = |name: &str| handle.plan().find_node(name, "").unwrap();
    assert_eq!(handle.plan().home(of("n")), Home::Worker(0));
    assert_eq!(handle.plan().home(of("q")), Home::Worker(1));
    let deadline = Instant::now() + Duration::from_secs(10);
    loop {
        // What the ring had no room for is counted where it was sent.
        let lost = handle.counts().unwrap()[of("n")].drops.total();
        let arrived: u64 = handle.read_handler("s.count", "").unwrap().parse().unwrap();
        if arrived + lost == 20000 {
            assert!(arrived >= 1000, "{arrived} arrived");
            break;
        }
        assert!(Instant::now() < deadline, "{arrived} arrived, {lost} lost");
    }
    let (ir, processing) = ir(&text.replace("Numbers(20000)", "Numbers(10)"));
    handle.replace_graph(&ir, &processing).unwrap();
    handle.end_run();
    running.wait().unwrap();
}

#[test]
fn packets_between_workers_when_the_run_ends_are_counted() {
    let text = "n :: Numbers(3000, STOP true) -> q :: Store(100000) -> t :: Take -> s :: Sink; Place(s, 1); \
        Place(n, 0)";
    for _ in 0..50 {
        let (finished, _) = run(text, workers(2));
        let counts = finished.counts();
        let of = |name: &str| &counts[finished.plan().find_node(name, "").unwrap()];
        let (refused, arrived) = (of("n").drops.count(DropReason::QueueFull), of("q").packets);
        let under_way = of("q").drops.count(DropReason::Ended);
        assert_eq!(
            refused + arrived + under_way,
            3000,
            "{refused} refused, {arrived} arrived, {under_way} under way"
        );
    }
}

#[test]
fn a_part_before_a_queue_is_copied_to_every_worker() {
    let text = "n :: Numbers(900) -> l :: Log -> q :: Store -> Take -> s :: Sink";
    let running = build(text, &workers(2)).start();
    let handle = running.handle();
    let deadline = Instant::now() + Duration::from_secs(10);
    assert_eq!(handle.plan().home(0), Home::Every);
    while handle.read_handler("s.count", "").unwrap() != "900" {
        assert!(Instant::now() < deadline, "{} arrived", handle.read_handler("s.count", "").unwrap());
    }
    assert_eq!(handle.read_handler("l.count", "").unwrap(), "900");
    handle.end_run();
    running.wait().unwrap();
}

#[test]
fn placed_parts_run_where_they_were_placed_and_contradictions_are_said() {
    let router = build("a :: Numbers(1) -> s :: Sink; Place(s, 1)", &workers(2));
    assert_eq!(router.plan().home(0), Home::Worker(1));
    let router = build("a :: Numbers(1) -> s :: Sink; Place(s, 1); Place(a, 0)", &workers(2));
    assert!(router.warnings[0].message.contains("both run on worker"), "{:?}", router.warnings);
}

#[test]
fn what_is_made_before_it_is_settled_where_elements_run_stays_on_the_first_worker() {
    for (text, warnings) in [
        ("e :: Early", 0),
        ("Place(e, 1); e :: Early", 0),
        ("n :: Numbers(0) -> e :: Early -> s :: Sink", 0),
        ("Place(n, 1); n :: Numbers(0) -> e :: Early -> s :: Sink", 1),
    ] {
        let router = build(text, &workers(2));
        assert_eq!(router.warnings.len(), warnings, "{text}: {:?}", router.warnings);
        let running = router.start();
        let found = running.handle().read_handler("e.here", "").unwrap();
        assert_eq!(found, "worker-0 true true", "{text}");
        running.handle().end_run();
        running.wait().unwrap();
    }
}

#[test]
fn handlers_reach_elements_of_other_workers() {
    let text =
        "a :: Numbers(10) -> s :: Sink; p :: Pass -> Sink; n :: Numbers(0) -> p; Place(s, 1); Place(p, 0)";
    let running = build(text, &workers(2)).start();
    let handle = running.handle();
    let deadline = Instant::now() + Duration::from_secs(5);
    while handle.read_handler("p.read", "s.count").unwrap() != "10" {
        assert!(Instant::now() < deadline);
    }
    assert_eq!(handle.read_handler("s.count", ""), Ok("10".into()));
    assert_eq!(handle.read_handler("p.read", "p.read"), Err(HandlerError::Busy("p.read".into())));
    assert_eq!(handle.read_handler("nobody.count", ""), Err(HandlerError::NoElement("nobody".into())));
    assert_eq!(handle.write_handler("s.count", "1"), Err(HandlerError::NotWritable("s.count".into())));
    assert_eq!(handle.read_handler("s.colour", ""), Err(HandlerError::NoHandler("colour".into())));
    handle.write_handler("p.write", "stop").unwrap();
    running.wait().unwrap();
}

#[test]
fn a_replaced_graph_hands_over_its_queues_and_loses_nothing() {
    let text = "n :: Numbers(200000) -> q :: Store(1000000) -> t :: Take(ACTIVE) -> s :: Sink;";
    let (idle, busy) = (text.replace("ACTIVE", "false"), text.replace("ACTIVE", "true"));
    let running = build(&idle, &RouterSettings { frames: (1 << 18, 4), ..settings() }).start();
    let handle = running.handle();
    let deadline = Instant::now() + Duration::from_secs(10);
    let counted = |name: &str| {
        let node = handle.plan().find_node(name, "").unwrap();
        handle.counts().unwrap()[node].packets
    };
    while counted("q") < 1000 {
        assert!(Instant::now() < deadline);
    }
    for text in [&idle, &idle, &busy] {
        let (ir, processing) = ir(&text.replace("Numbers(200000)", "Numbers(0)"));
        handle.replace_graph(&ir, &processing).unwrap();
    }
    let queued = counted("q");
    while handle.read_handler("s.count", "").unwrap() != queued.to_string() {
        assert!(
            Instant::now() < deadline,
            "{queued} queued, {} arrived",
            handle.read_handler("s.count", "").unwrap()
        );
    }
    assert_eq!(handle.lost_to_replacement(), 0);
    handle.end_run();
    running.wait().unwrap();
}

#[test]
fn a_replacement_that_drops_a_queue_counts_what_was_in_it() {
    let running = build("Numbers(50) -> q :: Store -> Take(false) -> Sink", &settings()).start();
    let handle = running.handle();
    let deadline = Instant::now() + Duration::from_secs(5);
    while handle.counts().unwrap()[handle.plan().find_node("q", "").unwrap()].packets < 50 {
        assert!(Instant::now() < deadline);
    }
    let (ir, processing) = ir("Numbers(0) -> Sink");
    handle.replace_graph(&ir, &processing).unwrap();
    assert_eq!(handle.lost_to_replacement(), 50);
    handle.end_run();
    running.wait().unwrap();
}

#[test]
fn what_one_replacement_cost_is_not_counted_again_by_the_next() {
    let running = build("Numbers(50) -> q :: Store -> Take(false) -> Sink", &settings()).start();
    let handle = running.handle();
    let deadline = Instant::now() + Duration::from_secs(5);
    while handle.counts().unwrap()[handle.plan().find_node("q", "").unwrap()].packets < 50 {
        assert!(Instant::now() < deadline);
    }
    for (text, lost) in [
        ("Numbers(0) -> q :: Store(30) -> Take(false) -> Sink", 20),
        ("Numbers(0) -> q :: Store(30) -> Take(false) -> Sink", 20),
        ("Numbers(0) -> Sink", 50),
    ] {
        let (ir, processing) = ir(text);
        handle.replace_graph(&ir, &processing).unwrap();
        assert_eq!(handle.lost_to_replacement(), lost, "{text}");
    }
    handle.end_run();
    running.wait().unwrap();
}

#[test]
fn a_replacement_that_is_wrong_leaves_the_old_graph_running() {
    let running = build("Numbers(5) -> s :: Sink", &settings()).start();
    let handle = running.handle();
    let (ir, processing) = ir("Numbers(x) -> s :: Sink; Store(many) -> Take -> Sink; \
        Numbers(1) -> Store(2, 3) -> Take -> Sink; Numbers(0) -> Pass -> t :: Sink; Numbers() -> Sink"
        .replace("Store(many) -> Take -> Sink;", "")
        .as_str());
    let problems = handle.replace_graph(&ir, &processing).unwrap_err();
    let messages: Vec<_> = problems.iter().map(|p| p.message.as_str()).collect();
    assert_eq!(messages, ["LIMIT: invalid number", "too many arguments", "LIMIT: required argument missing"]);
    assert!(handle.read_handler("s.count", "").is_ok());
    handle.end_run();
    running.wait().unwrap();
}

#[test]
fn an_idle_router_sleeps_until_it_is_told_to_end() {
    let running = build("Numbers(5) -> s :: Sink", &workers(2)).start();
    let handle = running.handle();
    assert!(!handle.has_ended());
    handle.request_stop();
    let start = Instant::now();
    running.wait().unwrap();
    assert!(start.elapsed() < Duration::from_secs(5));
}

#[test]
fn a_worker_that_panics_ends_the_run_and_is_named() {
    let running = build("f :: Fail; Numbers(1) -> Sink; Place(f, 1)", &workers(2)).start();
    assert_eq!(running.wait().err().as_deref(), Some("worker-1"));
}

#[test]
fn a_stop_asked_for_during_a_replacement_is_for_the_new_driver() {
    let settings = workers(1);
    let running = build("Spin", &settings).start();
    let (ir, processing) = ir("Numbers(0) -> Sink; Numbers(0) -> Sink; Driver");
    running.handle().replace_graph(&ir, &processing).unwrap();
    running.wait().unwrap();
    assert_eq!(settings.output.drain_text(), "1 requests");
}

#[test]
fn a_worker_makes_starts_and_runs_its_elements_on_one_thread() {
    let running = build("a :: Where; b :: Where; Place(b, 1)", &workers(2)).start();
    let handle = running.handle();
    assert_eq!(handle.read_handler("a.here", "").as_deref(), Ok("worker-0 true true"));
    assert_eq!(handle.read_handler("b.here", "").as_deref(), Ok("worker-1 true true"));
    handle.end_run();
    running.wait().unwrap();
}

/// How far apart two things must lie: processors fetch cache lines in pairs.
const LINES: usize = 128;

#[test]
fn elements_of_different_workers_share_no_cache_line() {
    let text: String = (0..200).map(|n| format!("e{n} :: Where; Place(e{n}, {});\n", n % 2)).collect();
    let mut finished = build(&text, &workers(2)).finish();
    let mut lines = |worker: usize| -> HashSet<usize> {
        let of_worker = (0..200).filter(|n| n % 2 == worker);
        let mut address =
            |n| finished.read_handler(&format!("e{n}.address"), "").unwrap().parse::<usize>().unwrap();
        of_worker.map(|n| address(n) / LINES).collect()
    };
    let (one, other) = (lines(0), lines(1));
    assert!(one.len() >= 10 && one.is_disjoint(&other), "{one:?} {other:?}");
}

#[test]
#[should_panic(expected = "made on purpose")]
fn a_panic_of_an_element_that_is_made_reaches_whoever_builds_the_router() {
    build("Where; b :: Burst; Place(b, 1)", &workers(2));
}

#[test]
fn when_an_element_cannot_start_those_that_were_started_are_stopped_the_last_first() {
    let (ir, processing) = ir("a :: Noted; b :: Noted; c :: Noted(false); d :: Noted; Place(c, 1)");
    let settings = workers(2);
    let problems = Router::build(&ir, &processing, CLASSES, settings.clone()).err().expect("a refusal");
    assert_eq!((problems[0].node, problems[0].message.as_str()), (Some(2), "no"));
    let text = settings.chatter.drain_text();
    let expected = ["a starts", "b starts", "d starts", "c starts", "d stops", "b stops", "a stops"];
    assert!(text.lines().eq(expected), "{text}");
}

#[test]
fn a_router_that_was_never_run_stops_its_elements_and_can_be_read() {
    let settings = workers(2);
    let mut finished = build("a :: Noted; b :: Where; Place(b, 1)", &settings).finish();
    assert_eq!(settings.chatter.drain_text(), "a starts\na stops\n");
    assert_eq!(finished.read_handler("b.class", "").as_deref(), Ok("Where"));
}

#[test]
fn a_replacement_is_refused_when_the_router_has_ended() {
    let running = build("Numbers(0) -> Sink", &workers(2)).start();
    let handle = running.handle();
    handle.end_run();
    running.wait().unwrap();
    let (ir, processing) = ir("Numbers(0) -> Sink");
    let problems = handle.replace_graph(&ir, &processing).unwrap_err();
    let messages: Vec<_> = problems.iter().map(|p| p.message.as_str()).collect();
    assert_eq!(
        messages,
        ["worker 0 does not answer; nothing was replaced", "worker 1 does not answer; nothing was replaced"]
    );
}

#[test]
fn a_replacement_waits_for_a_worker_no_longer_than_a_call_and_leaves_the_old_graph() {
    let running = build("s :: Stuck(1); a :: Where; Place(s, 1)", &workers(2)).start();
    let handle = running.handle();
    let (ir, processing) = ir("Numbers(0) -> Sink");
    while !GATES[1].is_reached.load(Relaxed) {
        std::thread::yield_now();
    }
    let problems = handle.replace_graph(&ir, &processing).unwrap_err();
    assert_eq!(problems.len(), 1);
    assert_eq!(problems[0].message, "worker 1 does not answer; nothing was replaced");
    assert_eq!(handle.read_handler("a.class", "").as_deref(), Ok("Where"));
    GATES[1].is_open.store(true, Relaxed);
    handle.replace_graph(&ir, &processing).expect("every worker answers");
    handle.end_run();
    running.wait().unwrap();
}
