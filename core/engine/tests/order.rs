//! The order of events, and the end of every packet.
use crate::support::{run, settings};
use artery_engine::{DropReason, RouterSettings};

fn burst(burst: usize) -> RouterSettings {
    RouterSettings { burst, ..settings() }
}

const FORK: &str =
    "Numbers(3, STOP true) -> b :: Both; b[0] -> x :: Log -> y :: Log -> Sink; b[1] -> z :: Log -> Sink;";

#[test]
fn at_burst_1_each_send_is_carried_to_its_end_before_the_next() {
    let (_, said) = run(FORK, burst(1));
    assert_eq!(said, "x 1\ny 1\nz 1\nx 2\ny 2\nz 2\nx 3\ny 3\nz 3\n");
}

#[test]
fn at_larger_bursts_order_is_kept_on_each_way() {
    let (_, said) = run(FORK, burst(64));
    assert_eq!(said, "x 1\nx 2\nx 3\ny 1\ny 2\ny 3\nz 1\nz 2\nz 3\n");
}

#[test]
fn packets_sent_in_a_pull_come_after_it_in_order() {
    let text = "Numbers(3, STOP true) -> q :: Store -> p :: Pass -> t :: Take -> x :: Log -> Sink;";
    let (finished, said) = run(text, burst(1));
    assert!("x 1\nx 2\nx 3\n".starts_with(&said), "{said}");
    assert!(finished.counts()[finished.plan().find_node("q", "").unwrap()].packets >= 3);
}

#[test]
fn every_packet_is_accounted_for() {
    let text = "n :: Numbers(1000, STOP true) -> b :: Both; b[0] -> q :: Store(10) -> Take(false) -> Sink; \
        b[1] -> g :: Greedy";
    let (finished, _) = run(text, burst(64));
    let (plan, counts) = (finished.plan(), finished.counts());
    let of = |name| &counts[plan.find_node(name, "").unwrap()];
    assert_eq!((of("b").packets, of("q").packets, of("g").packets), (1000, 1000, 1000));
    assert_eq!(of("q").drops.count(DropReason::QueueFull), 990);
    assert_eq!(of("g").drops.count(DropReason::LeftBehind), 1000);
}

#[test]
fn a_circle_without_a_queue_ends_and_is_counted() {
    let (finished, _) = run("Numbers(5, STOP true) -> [0] p :: Pass -> q :: Pass -> [1] p;", burst(64));
    let dropped: u64 = finished.counts().iter().map(|c| c.drops.count(DropReason::Loop)).sum();
    assert_eq!(dropped, 5);
}

#[test]
fn a_puller_sleeps_while_its_queue_is_empty() {
    let text = "Numbers(640) -> Store -> t :: Take -> c :: Sink; Tick(100ms, 3)";
    let (mut finished, _) =
        run(text, RouterSettings { simulated: Some(artery_engine::Time::new(5, 0)), ..settings() });
    assert_eq!(finished.read_handler("c.count", "").unwrap(), "640");
    let runs: u64 = finished.read_handler("t.runs", "").unwrap().parse().unwrap();
    assert!(runs <= 30, "{runs} runs for ten batches");
}

#[test]
fn simulated_time_jumps_to_the_next_timer() {
    let (finished, said) = run(
        "Tick(1h, 3)",
        RouterSettings { simulated: Some(artery_engine::Time::new(100, 0)), ..settings() },
    );
    assert_eq!(said, "100.000000\n3700.000000\n7300.000000\n");
    assert!(finished.ran < std::time::Duration::from_secs(60));
}
