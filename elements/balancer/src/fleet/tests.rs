use crate::flow_balancer::CLASS;
use artery_engine::Bench;
use artery_wire::TcpFlags;
use artery_wire::build::ip4;
use serde_json::Value;
use std::collections::BTreeSet;
use std::time::Duration;

const THREE: &str = "SERVICE 192.0.2.1:80, MEMBER a 10.0.0.1, MEMBER b 10.0.0.2, MEMBER c 10.0.0.3";
const PLAN: &str =
    "60\nMEMBER a 10.0.0.1\nMEMBER b 10.0.0.2 weight 0\nMEMBER c 10.0.0.3\nMEMBER d 10.0.0.4\n";

fn bench(config: &str) -> Bench {
    Bench::setup(&CLASS, config).outputs(2).build().unwrap_or_else(|errors| panic!("{errors:?}"))
}

/// Opens connections; the member of each.
fn open(bench: &mut Bench, clients: std::ops::Range<u16>) -> Vec<String> {
    let mut send = |client, flags| {
        bench.push(0, ip4().src("198.51.100.7").dst("192.0.2.1").tcp(client, 80).flags(flags).bytes());
        bench.next_sent(0).unwrap().dst_ip().to_string()
    };
    clients.map(|client| [TcpFlags::SYN, TcpFlags::ACK].map(|flags| send(client, flags))[0].clone()).collect()
}

/// The member of each client by the members of a plan.
fn planned(clients: std::ops::Range<u16>, members: &str) -> Vec<String> {
    open(&mut bench(&format!("SERVICE 192.0.2.1:80{members}")), clients)
}

const AFTER: &str = ", MEMBER a 10.0.0.1, MEMBER b 10.0.0.2 weight 0, MEMBER c 10.0.0.3, MEMBER d 10.0.0.4";

fn progress(bench: &mut Bench) -> Value {
    serde_json::from_str(&bench.read("plan_json", "").unwrap()).unwrap()
}

/// A client that follows exceptions.
struct Follower {
    next: u64,
    clients: BTreeSet<u64>,
}

impl Follower {
    fn begin(bench: &mut Bench) -> Follower {
        let begin: Value = serde_json::from_str(&bench.read("exception_events", "now").unwrap()).unwrap();
        Follower { next: begin["next"].as_u64().unwrap(), clients: BTreeSet::new() }
    }

    /// Reads all there is, without letting the walk go on.
    fn read(&mut self, bench: &mut Bench) {
        loop {
            let text = bench.read("exception_events", &format!("0:{}", self.next)).unwrap();
            let lately: Value = serde_json::from_str(&text).unwrap();
            assert_eq!(lately["lost"], false);
            self.next = lately["next"].as_u64().unwrap();
            let events = lately["events"].as_array().unwrap();
            for event in events {
                let client = event["sport"].as_u64().unwrap();
                match event["event"].as_str().unwrap() {
                    "end" => drop(self.clients.remove(&client)),
                    _ => drop(self.clients.insert(client)),
                }
            }
            if events.is_empty() {
                return;
            }
        }
    }
}

/// Clients whose member is not that of the plan.
fn differing(first: u16, before: &[String], after: &[String]) -> BTreeSet<u64> {
    let both = before.iter().zip(after).zip(u64::from(first)..);
    both.filter(|((before, after), _)| before != after).map(|(_, client)| client).collect()
}

#[test]
fn flows_that_a_plan_moves_are_exceptions_also_new_ones_until_it_is_forgotten() {
    let mut bench = bench(THREE);
    let before = open(&mut bench, 1..2001);
    let mut follower = Follower::begin(&mut bench);
    bench.run();
    assert_eq!(progress(&mut bench)["is_planned"], false);
    bench.write("plan", PLAN).unwrap();
    assert_eq!(progress(&mut bench)["has_compared_all"], false);
    for _ in 0..10 {
        bench.advance_time(Duration::from_millis(100));
        bench.run();
    }
    let said = progress(&mut bench);
    assert_eq!((&said["has_compared_all"], &said["has_checked_all"]), (&true.into(), &true.into()), "{said}");
    follower.read(&mut bench);
    assert_eq!(said["next_exception"], follower.next, "all of them can be read by then");
    let expected = differing(1, &before, &planned(1..2001, AFTER));
    assert!((600..1400).contains(&expected.len()), "{}", expected.len());
    assert_eq!(follower.clients, expected);

    // New flows go by the present table, and are compared at once.
    let new = open(&mut bench, 3001..3301);
    assert!(new.contains(&"10.0.0.2".to_string()) && !new.contains(&"10.0.0.4".to_string()));
    follower.read(&mut bench);
    let moved = differing(3001, &new, &planned(3001..3301, AFTER));
    assert_eq!(follower.clients, expected.union(&moved).copied().collect());

    bench.write("plan", "0").unwrap();
    for _ in 0..10 {
        bench.advance_time(Duration::from_millis(100));
        bench.run();
    }
    follower.read(&mut bench);
    assert!(follower.clients.is_empty());
    // One that no one forgets ends by itself.
    bench.write("plan", &PLAN.replace("60", "1")).unwrap();
    bench.advance_time(Duration::from_secs(2));
    bench.run();
    assert_eq!(progress(&mut bench)["is_planned"], false);
}

#[test]
fn flows_of_members_that_a_plan_removes_are_no_exceptions_and_another_seed_moves_most() {
    let mut bench = bench(THREE);
    let before = open(&mut bench, 1..1001);
    let mut follower = Follower::begin(&mut bench);
    let walk = |bench: &mut Bench, follower: &mut Follower| {
        for _ in 0..10 {
            bench.advance_time(Duration::from_millis(100));
            bench.run();
        }
        follower.read(bench);
    };
    bench.write("plan", "60\nMETHOD hash\nMEMBER a 10.0.0.1\nMEMBER c 10.0.0.3\n").unwrap();
    walk(&mut bench, &mut follower);
    let after = planned(1..1001, ", MEMBER a 10.0.0.1, MEMBER c 10.0.0.3, METHOD hash");
    let mut expected = differing(1, &before, &after);
    expected.retain(|client| before[*client as usize - 1] != "10.0.0.2");
    assert!(!expected.is_empty());
    assert_eq!(follower.clients, expected);
    bench.write("plan", "60\nSEED 9\nMEMBER a 10.0.0.1\nMEMBER b 10.0.0.2\nMEMBER c 10.0.0.3\n").unwrap();
    walk(&mut bench, &mut follower);
    let after = planned(1..1001, &format!("{}, SEED 9", THREE.strip_prefix("SERVICE 192.0.2.1:80").unwrap()));
    assert_eq!(follower.clients, differing(1, &before, &after));
}

#[test]
fn members_that_are_held_down_get_no_flows_and_are_not_taken_for_failed() {
    let mut bench = bench(THREE);
    bench.write("hold_down", "5 b").unwrap();
    assert!(!open(&mut bench, 1..101).contains(&"10.0.0.2".to_string()));
    let status: Value = serde_json::from_str(&bench.read("status_json", "").unwrap()).unwrap();
    let member = &status["members"][1];
    assert_eq!((&member["up"], &member["checked"]), (&false.into(), &Value::Null), "{status}");
    bench.advance_time(Duration::from_secs(6));
    bench.run();
    assert!(open(&mut bench, 201..301).contains(&"10.0.0.2".to_string()));
}

#[test]
fn what_is_no_plan_and_no_name_is_refused_and_changes_nothing() {
    let mut bench = bench(THREE);
    bench.write("plan", PLAN).unwrap();
    for text in [
        "",
        "x",
        "3601",
        "-1",
        "60\nMEMBER",
        "60\nMEMBER a",
        "60\nMETHOD magic",
        "60\nSEED x",
        "60\nCHECK tcp",
        "60\nMEMBER a 10.0.0.1\nMEMBER a 10.0.0.2",
        "60\nMEMBER a 2001:db8::1",
        "60\nMEMBER a 224.0.0.1",
    ] {
        assert!(bench.write("plan", text).is_err(), "{text}");
        assert_eq!(progress(&mut bench)["is_planned"], true, "{text}");
    }
    for text in ["", "b", "3601 b", "5 \u{fc}", "5 a/b"] {
        assert!(bench.write("hold_down", text).is_err(), "{text}");
    }
    let status = bench.read("status_json", "").unwrap();
    assert!(!status.contains("\"up\":false"), "{status}");
}
