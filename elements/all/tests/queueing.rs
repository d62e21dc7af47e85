//! Sources, queues and what pulls from them, working together in a router.

use crate::whole::finish;
use artery_engine::router::{Finished, RouterSettings};
use artery_engine::{Sink, Time};

/// Runs a configuration to its end; returns the router and its messages.
#[track_caller]
fn run(text: &str, settings: RouterSettings) -> (Finished, String) {
    let settings = RouterSettings { chatter: Sink::buffer(), frames: (4096, 4), ..settings };
    let finished = finish(text, &settings);
    (finished, settings.chatter.drain_text())
}
fn simulated() -> RouterSettings {
    RouterSettings { simulated: Some(Time::new(1000, 0)), ..RouterSettings::default() }
}
#[track_caller]
fn read(router: &mut Finished, name: &str) -> String {
    router.read_handler(name, "").unwrap()
}

#[test]
fn a_source_fills_a_queue_without_overflowing_it() {
    for burst in [1, 16, 64] {
        for capacity in [1, 10, 1000] {
            let text = format!(
                "InfiniteSource(LIMIT 5000, STOP true) -> q :: Queue({capacity}) -> Unqueue -> c :: Counter \
                 -> Discard;"
            );
            let (mut router, said) = run(&text, RouterSettings { burst, ..RouterSettings::default() });
            assert_eq!(read(&mut router, "q.drops").as_str(), "0", "{burst} {capacity}");
            assert_eq!(said.as_str(), "", "{burst} {capacity}");
            let held: u64 = read(&mut router, "q.length").parse().unwrap();
            let passed: u64 = read(&mut router, "c.count").parse().unwrap();
            assert_eq!(held + passed, 5000);
        }
    }
}

#[test]
fn a_source_with_a_burst_of_its_own_overflows_a_small_queue() {
    let text = "InfiniteSource(LIMIT 100, BURST 100, STOP true) -> q :: Queue(10) -> Unqueue -> Discard;";
    let (mut router, said) = run(text, RouterSettings::default());
    assert_eq!((read(&mut router, "q.drops").as_str(), said.as_str()), ("90", "q :: Queue: overflow\n"));
}

#[test]
fn at_burst_1_packets_pass_one_by_one() {
    let text =
        "InfiniteSource(a, LIMIT 3, BURST 3, STOP true) -> Print(1) -> t :: Tee -> Print(2) -> Discard;
                t[1] -> Print(3) -> Discard;";
    let (_, said) = run(text, RouterSettings { burst: 1, ..RouterSettings::default() });
    let order: String = said.lines().map(|line| &line[..1]).collect();
    assert_eq!(order, "123123123");
}

#[test]
fn a_shaper_lets_time_pass_and_its_puller_sleep() {
    let text = "InfiniteSource(LIMIT 1000) -> Queue -> Shaper(50) -> u :: Unqueue -> c :: Counter -> Discard;
                TimedSource(INTERVAL 4, LIMIT 1, STOP true) -> Discard;";
    let (mut router, _) = run(text, simulated());
    let passed: u64 = read(&mut router, "c.count").parse().unwrap();
    assert!((398..=402).contains(&passed), "{passed} in 8 s");
}

#[test]
fn delays_and_rates_hold_in_simulated_time() {
    let text =
        "TimedSource(INTERVAL 0.1, LIMIT 50) -> Queue -> DelayShaper(2) -> Unqueue -> a :: Counter -> \
         Discard;
                InfiniteSource(LIMIT 1000) -> Queue -> RatedUnqueue(100) -> b :: Counter -> Discard;
                TimedSource(INTERVAL 2, LIMIT 1, STOP true) -> Discard;";
    let (mut router, _) = run(text, simulated());
    let delayed: u64 = read(&mut router, "a.count").parse().unwrap();
    assert!((19..=20).contains(&delayed), "{delayed}");
    let rated: u64 = read(&mut router, "b.count").parse().unwrap();
    assert!((401..=403).contains(&rated), "{rated}");
}

#[test]
fn copies_on_several_workers_share_one_limit() {
    let text =
        "s :: InfiniteSource(LIMIT 100000, STOP true) -> Queue -> Unqueue -> c :: Counter -> d :: Discard;";
    let (mut router, _) = run(text, RouterSettings { workers: 2, ..RouterSettings::default() });
    assert_eq!(read(&mut router, "s.count"), "100000");
}

#[test]
fn packets_pulled_from_a_source_keep_a_scheduler_fair() {
    let text = "InfiniteSource(LIMIT 300) -> a :: Counter -> [0] s :: StrideSched(3, 1);
                InfiniteSource -> b :: Counter -> [1] s -> Unqueue(LIMIT 400, BURST 1) -> Discard;
                TimedSource(INTERVAL 1, LIMIT 1, STOP true) -> Discard;";
    let (mut router, _) = run(text, RouterSettings { burst: 1, ..simulated() });
    assert_eq!(read(&mut router, "a.count").as_str(), "300");
    assert_eq!(read(&mut router, "b.count").as_str(), "100");
}
