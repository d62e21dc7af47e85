//! Following packets: every hop and every end, through queues, copies and workers.
use crate::support::{GATES, build, run, settings};
use artery_engine::{DropReason, Finished, RouterSettings};
use std::collections::BTreeMap;
use std::sync::atomic::Ordering::Relaxed;

/// One record by the names of its columns.
type Record = BTreeMap<String, String>;

fn records(finished: &mut Finished) -> (String, Vec<Record>) {
    let text = finished.read_handler("trace", "").unwrap();
    let mut lines = text.lines();
    let (state, columns) = (lines.next().unwrap(), lines.next().unwrap());
    let record = |line: &str| -> Record {
        let values: Vec<&str> = line.split('\t').collect();
        assert_eq!(values.len(), columns.split('\t').count(), "{line}");
        columns.split('\t').zip(values).map(|(name, value)| (name.into(), value.into())).collect()
    };
    (state.split_once(' ').unwrap().1.to_string(), lines.map(record).collect())
}

/// The path of each packet: `PACKET.COPY EVENT ELEMENT:PORT DETAIL` for each record.
fn ways(text: &str, settings: RouterSettings) -> (String, Vec<String>) {
    let (mut finished, _) = run(text, settings);
    let (state, records) = records(&mut finished);
    let way = |r: &Record| {
        let port = if r["port"].is_empty() { String::new() } else { format!(":{}", r["port"]) };
        let detail = if r["detail"].is_empty() { String::new() } else { format!(" {}", r["detail"]) };
        format!("{}.{} {} {}{port}{detail}", r["packet"], r["copy"], r["event"], r["element"])
    };
    (state, records.iter().map(way).collect())
}

#[test]
fn packets_in_the_midst_of_batches_are_followed_to_their_end() {
    for burst in [1, 64] {
        let text = "Arm(2); n :: Numbers(100, STOP true) -> p :: Pass -> s :: Sink";
        let (state, mut ways) = ways(text, RouterSettings { burst, ..settings() });
        assert_eq!(state, "wanted=2 seen=2 under_way=0");
        ways.sort_by_key(|way| way.starts_with('2'));
        let way = |n| {
            [
                format!("{n}.0 begin n:0"),
                format!("{n}.0 enter p:0 0"),
                format!("{n}.0 enter s:0 0"),
                format!("{n}.0 drop s discarded"),
            ]
        };
        assert_eq!(ways, [way(1), way(2)].concat(), "burst {burst}");
    }
}

#[test]
fn a_record_tells_who_when_and_what_the_packet_looked_like() {
    let simulated = Some(artery_engine::Time::new(100, 0));
    let text = "Arm(2); Drip(1s, 3) -> s :: Enough(3)";
    let (mut finished, _) = run(text, RouterSettings { simulated, ..settings() });
    let (_, records) = records(&mut finished);
    let last = records.iter().rfind(|record| record["event"] == "enter").unwrap();
    let shown = ["packet", "time", "worker", "class", "length", "in_port", "network", "paint", "data"];
    let shown = shown.map(|name| last[name].as_str());
    assert_eq!(shown, ["2", "101.000000000", "0", "Enough", "4", "0", "", "0", "00000002"]);
}

#[test]
fn a_packet_is_followed_through_a_queue_that_it_waits_in() {
    let text = "Arm(1); n :: Numbers(1, STOP true) -> q :: Store -> t :: Take -> s :: Sink; Tick(1ms, 1)";
    let (state, queued) = ways(text, settings());
    assert_eq!(state, "wanted=1 seen=1 under_way=0");
    assert_eq!(
        queued,
        ["1.0 begin n:0", "1.0 enter q:0 0", "1.0 enter t:0 0", "1.0 enter s:0 0", "1.0 drop s discarded"]
    );
    let text = text.replace("Take", "Take(false)");
    let (state, waiting) = ways(&text, settings());
    assert_eq!(state, "wanted=1 seen=1 under_way=1");
    assert_eq!(waiting, ["1.0 begin n:0", "1.0 enter q:0 0"]);
}

#[test]
fn copies_are_followed_on_their_own_and_name_whom_they_were_made_from() {
    let text =
        "Arm(1); n :: Numbers(1, STOP true) -> b :: Both; b[0] -> x :: Pass -> v :: Sink; b[1] -> c :: Both;
        c[0] -> y :: Sink; c[1] -> z :: Sink; c[2] -> w :: Sink";
    let (state, ways) = ways(text, settings());
    assert_eq!(state, "wanted=1 seen=1 under_way=0");
    let of = |copy: u8| -> Vec<&str> {
        let prefix = format!("1.{copy} ");
        ways.iter().filter_map(|way| way.strip_prefix(&prefix)).collect()
    };
    assert_eq!(of(0), ["begin n:0", "enter b:0 0", "enter c:0 1", "enter w:0 2", "drop w discarded"]);
    assert_eq!(of(1), ["copy b:0 0", "enter x:0 0", "enter v:0 0", "drop v discarded"]);
    assert_eq!(of(2), ["copy c:0 0", "enter y:0 0", "drop y discarded"]);
    assert_eq!(of(3), ["copy c:1 0", "enter z:0 1", "drop z discarded"]);
}

#[test]
fn segments_are_followed_as_copies_of_the_packet_that_was_cut() {
    let (state, ways) = ways("Arm(1); l :: Long -> p :: Plain -> s :: Sink", settings());
    assert_eq!(state, "wanted=1 seen=1 under_way=0");
    assert_eq!(ways[..2], ["1.0 begin l:0", "1.0 cut p"]);
    for copy in 1..=3 {
        let own = ways.iter().filter_map(|way| way.strip_prefix(&format!("1.{copy} ")));
        assert_eq!(own.collect::<Vec<_>>(), ["copy l:0 0", "enter p:0 0", "enter s:0 0", "drop s discarded"]);
    }
}

#[test]
fn every_way_to_end_says_its_reason() {
    for (rest, end) in [
        ("Greedy", DropReason::LeftBehind),
        ("Store(0) -> Take(false) -> Sink", DropReason::QueueFull),
        ("[0] p :: Pass -> q :: Pass -> [1] p", DropReason::Loop),
    ] {
        let (state, ways) = ways(&format!("Arm(1); Numbers(3, STOP true) -> {rest}"), settings());
        assert_eq!(state, "wanted=1 seen=1 under_way=0", "{rest}");
        let ends: Vec<&String> = ways.iter().filter(|way| way.starts_with("1.0 drop ")).collect();
        assert_eq!(ends.len(), 1, "{rest}");
        assert!(ends[0].ends_with(&format!(" {}", end.name())), "{ends:?}");
    }
}

#[test]
fn records_of_a_packet_that_never_ends_are_bounded() {
    let (mut finished, _) =
        run("Arm(1); Numbers(1, STOP true) -> [0] p :: Pass -> q :: Pass -> [1] p", settings());
    let (_, records) = records(&mut finished);
    // Those there is room for, its end, and how many there were beyond.
    assert_eq!(records.len(), artery_engine::trace::MOST_RECORDS + 2);
    let lost = records.last().unwrap();
    assert_eq!((lost["event"].as_str(), lost["packet"].as_str()), ("lost", "1"));
    assert!(lost["detail"].parse::<u64>().unwrap() > 1_000_000);
}

#[test]
fn packets_begin_at_an_element_that_is_named() {
    let text =
        "Arm(\"1 c\"); n :: Numbers(5, STOP true) -> b :: Both; b[0] -> Sink; b[1] -> c :: Pass -> s :: Sink;
        m :: Numbers(1) -> Sink";
    assert_eq!(ways(text, settings()).1, ["1.0 enter c:0", "1.0 enter s:0 0", "1.0 drop s discarded"]);
    let text = text.replace("1 c", "9 m");
    let (state, ways) = ways(&text, settings());
    assert_eq!(state, "wanted=9 seen=1 under_way=0");
    assert!(ways[0].starts_with("1.0 begin m:0"), "{ways:?}");
}

#[test]
fn a_packet_is_followed_from_worker_to_worker() {
    let text =
        "Place(n, 1); Arm(3); n :: Numbers(50) -> p :: Pass -> q :: Store -> t :: Take -> s :: Enough(50)";
    let (mut finished, _) = run(text, RouterSettings { workers: 2, ..settings() });
    let (state, records) = records(&mut finished);
    assert_eq!(state, "wanted=3 seen=3 under_way=0");
    for packet in ["1", "2", "3"] {
        let own = records.iter().filter(|record| record["packet"] == packet);
        let way: Vec<String> =
            own.map(|r| format!("{} {} {}", r["worker"], r["event"], r["element"])).collect();
        assert_eq!(
            way,
            ["1 begin n", "1 enter p", "0 enter q", "0 enter t", "0 enter s", "0 drop s"],
            "packet {packet}"
        );
    }
}

#[test]
fn packets_that_a_ring_to_another_worker_has_no_room_for_end_where_they_were_sent() {
    // Worker 0 takes nothing in until worker 1 has sent twice what the ring holds.
    let text = "Place(p, 1); Arm(\"1000 n\"); Stuck(0); p :: Pass; m :: Numbers(1024) -> [0] p; \
        n :: Numbers(1000) -> [1] p;
        p -> q :: Store(10) -> Take(false) -> Sink; Tick(1ms, 1)";
    let router = build(text, &RouterSettings { workers: 2, ..settings() }).start();
    let handle = router.handle();
    let lost = |trace: &str| trace.lines().filter(|line| line.contains("\tdrop\tp\t")).count();
    while lost(&handle.read_handler("trace", "").unwrap()) < 400
        || !handle.read_handler("trace", "").unwrap().contains(" seen=1000 ")
    {
        std::thread::yield_now();
    }
    GATES[0].is_open.store(true, Relaxed);
    let (state, records) = records(&mut router.wait().unwrap());
    let drops: Vec<&Record> = records.iter().filter(|record| record["event"] == "drop").collect();
    assert_eq!(state, format!("wanted=1000 seen=1000 under_way={}", 1000 - drops.len()));
    let mut lost = drops.iter().filter(|record| record["element"] == "p");
    assert!(lost.all(|record| record["detail"] == "queue-full" && record["worker"] == "1"));
    // What waited for worker 0 came to the queue, or ended with the run.
    let mut others = drops.iter().filter(|record| record["element"] != "p");
    assert!(others.all(|record| record["element"] == "q" && record["worker"] == "0"));
}

#[test]
fn a_new_trace_forgets_the_one_before_and_off_ends_it() {
    let text = "Arm(5); Arm(off); Numbers(3, STOP true) -> Sink";
    assert_eq!(ways(text, settings()), ("wanted=0 seen=0 under_way=0".to_string(), vec![]));
    let text = "Arm(5); Arm(1); Numbers(3, STOP true) -> Sink";
    let (state, ways) = ways(text, settings());
    assert_eq!((state.as_str(), ways.len()), ("wanted=1 seen=1 under_way=0", 3));
}
