//! Workers that wait awake: everything that wakes a worker from its sleep ends their wait as well, at once.
mod support;
use artery_engine::{Home, Settings};
use std::time::{Duration, Instant};
use support::{build, ir, run, settings};

/// Settings with which workers that packets or timers can reach never sleep in a test.
fn awake(workers: usize) -> Settings {
    Settings { workers, awake: Some(Duration::from_secs(1000)), ..settings() }
}

/// What is waited for by a worker that waits awake comes within this time, or the test fails.
const SOON: Duration = Duration::from_secs(10);
/// A worker that waits awake for its timer.
const FAR: &str = "t :: Tick(500, 2);";

#[test]
fn a_worker_that_waits_awake_stops_when_it_is_told() {
    let on_the_second = format!("{FAR} Place(t, 1)");
    for (text, workers) in [(FAR, 1), (FAR, 2), (on_the_second.as_str(), 2)] {
        let settings = awake(workers);
        let running = build(text, &settings).start();
        let start = Instant::now();
        while settings.chatter.take().is_empty() {
            assert!(start.elapsed() < SOON);
        }
        running.handle().request_stop();
        running.wait().unwrap();
        assert!(start.elapsed() < SOON, "{text}: {:?}", start.elapsed());
    }
}

#[test]
fn the_driver_hears_of_a_stop_while_its_worker_waits_awake() {
    for worker in [0, 1] {
        let settings = awake(2);
        let text = format!("{FAR} d :: Steered; Place(t, {worker}); Place(d, {worker})");
        let running = build(&text, &settings).start();
        let start = Instant::now();
        while settings.chatter.take().is_empty() {
            assert!(start.elapsed() < SOON);
        }
        running.handle().request_stop();
        running.wait().unwrap();
        assert!(start.elapsed() < SOON, "{:?}", start.elapsed());
        assert_eq!(settings.output.take(), "1 requests");
    }
}

#[test]
fn a_worker_that_waits_awake_answers_calls_and_takes_a_replacement() {
    let running = build(&format!("{FAR} w :: Where"), &awake(1)).start();
    let handle = running.handle();
    let start = Instant::now();
    assert_eq!(handle.read("w.class", "").as_deref(), Ok("Where"));
    let (ir, processing) = ir(&format!("{FAR} s :: Where"));
    handle.replace(&ir, &processing).unwrap();
    assert_eq!(handle.read("s.class", "").as_deref(), Ok("Where"));
    handle.end();
    running.wait().unwrap();
    assert!(start.elapsed() < SOON, "{:?}", start.elapsed());
}

#[test]
fn timers_go_off_while_their_worker_waits_awake_and_not_before() {
    let start = Instant::now();
    let (_, said) = run("Tick(1ms, 20)", awake(1));
    assert_eq!(said.lines().count(), 20);
    assert!((Duration::from_millis(19)..SOON).contains(&start.elapsed()), "{:?}", start.elapsed());
}

#[test]
fn packets_of_another_worker_end_the_awake_wait() {
    // Nothing else reaches the second worker, such as a handler call.
    let text = "d :: Drip(1ms, 20) -> q :: Store -> t :: Take -> e :: Enough(20); Place(e, 1); Place(d, 0)";
    let router = build(text, &awake(2));
    assert_eq!(router.plan().home(router.plan().resolve("q", "").unwrap()), Home::Worker(1));
    let start = Instant::now();
    router.start().wait().unwrap();
    assert!((Duration::from_millis(19)..SOON).contains(&start.elapsed()), "{:?}", start.elapsed());
}

#[test]
fn a_worker_that_no_packet_and_no_timer_can_reach_does_not_wait_awake() {
    // The driver goes on because all workers sleep for good.
    let settings = awake(2);
    let start = Instant::now();
    build("d :: Steered; Where", &settings).start().wait().unwrap();
    assert_eq!(settings.output.take(), "1 requests");
    assert!(start.elapsed() < SOON, "{:?}", start.elapsed());
}
