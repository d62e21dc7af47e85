use crate::flow_balancer::CLASS;
use artery_engine::Bench;
use artery_flow::stream::{EventItem, EventReader};
use artery_flow::stream::{StreamFlow, StreamItem, StreamReader, write_header, write_item};
use artery_wire::TcpFlags;
use artery_wire::build::{ip4, ip6};
use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use proptest::prelude::*;
use serde_json::Value;
use std::collections::{BTreeMap, BTreeSet};
use std::net::{IpAddr, Ipv4Addr};
use std::time::Duration;

const FOUR: &str =
    "SERVICE 192.0.2.1:80, MEMBER a 10.0.0.1, MEMBER b 10.0.0.2, MEMBER c 10.0.0.3, MEMBER d 10.0.0.4";

/// The member of each client's flow, by the client's port.
type Flows = BTreeMap<u16, String>;

fn bench(config: &str) -> Bench {
    Bench::setup(&CLASS, config).outputs(2).build().unwrap_or_else(|errors| panic!("{errors:?}"))
}
/// The address that a packet of a client's flow is sent to.
fn send(bench: &mut Bench, client: u16, flags: TcpFlags) -> Option<String> {
    bench.push(0, ip4().src("198.51.100.7").dst("192.0.2.1").tcp(client, 80).flags(flags).bytes());
    let sent = bench.next_sent(0);
    bench.drain_sent(1);
    sent.map(|packet| packet.dst_ip().to_string())
}
fn open(bench: &mut Bench, clients: impl Iterator<Item = u16>) {
    for client in clients {
        send(bench, client, TcpFlags::SYN);
        send(bench, client, TcpFlags::ACK);
    }
}

/// What a handler exports.
fn export(bench: &mut Bench, handler: &str) -> Flows {
    let mut flows = Flows::new();
    export_each(bench, handler, |flow, member| {
        let old = flows.insert(flow.key.endpoints()[0].1, member.to_string());
        assert_eq!(old, None, "a flow is exported once");
    });
    flows
}
/// Calls a function with the flows that a handler exports, and the names of their members.
fn export_each(bench: &mut Bench, handler: &str, mut each: impl FnMut(&StreamFlow, &str)) {
    let mut asked = String::new();
    loop {
        let text = bench.read(handler, &asked).unwrap();
        let words: Vec<&str> = text.trim_end_matches('\n').split(' ').collect();
        let items = BASE64_STANDARD.decode(words[2]).unwrap();
        let (mut reader, mut names) = (StreamReader::of_items(&items), BTreeMap::new());
        while reader.bytes_left() > 0 {
            match reader.next_item().unwrap().unwrap() {
                StreamItem::Member(number, name) => drop(names.insert(u32::from(number), name.to_string())),
                StreamItem::Flow(flow) => each(&flow, &names[&flow.answer.action]),
                item => unreachable!("parts have no {item:?}"),
            }
        }
        match words[1] {
            "-" => return,
            next => asked = format!("{}:{next}", words[0]),
        }
    }
}

/// A client that follows exceptions.
struct Follower {
    next: u64,
    exceptions: Flows,
    lost: usize,
}

/// Begins to follow; the number of the next event.
fn read_begin(bench: &mut Bench) -> u64 {
    let begin: Value = serde_json::from_str(&bench.read("exception_events", "now").unwrap()).unwrap();
    begin["next"].as_u64().unwrap()
}

impl Follower {
    fn begin(bench: &mut Bench) -> Follower {
        let next = read_begin(bench);
        Follower { next, exceptions: export(bench, "exceptions_part"), lost: 0 }
    }

    /// Reads some events, and exports the exceptions again if some are lost; returns whether there were any.
    fn read(&mut self, bench: &mut Bench) -> bool {
        let text = bench.read("exception_events", &format!("0:{}", self.next)).unwrap();
        let lately: Value = serde_json::from_str(&text).unwrap();
        if lately["lost"] == true {
            self.lost += 1;
            *self = Follower { lost: self.lost, ..Follower::begin(bench) };
            return true;
        }
        let events = lately["events"].as_array().unwrap();
        for event in events {
            assert_eq!(event["seq"], self.next);
            self.next += 1;
            let client = event["sport"].as_u64().unwrap() as u16;
            match event["event"].as_str().unwrap() {
                "end" => drop(self.exceptions.remove(&client)),
                _ => drop(self.exceptions.insert(client, event["member"].as_str().unwrap().to_string())),
            }
        }
        !events.is_empty()
    }

    /// Reads until nothing comes any more: reading has the walk go on.
    fn read_all(&mut self, bench: &mut Bench) {
        let mut quiet = 0;
        while quiet < 2 {
            quiet = if self.read(bench) { 0 } else { quiet + 1 };
            bench.run();
        }
    }
}

/// The exceptions by definition: a balancer that remembers nothing has the same members, and gives each flow
/// another one than it has.
fn brute_force(bench: &mut Bench, method: &str) -> Flows {
    let members = bench.read("members", "").unwrap();
    let member = |line: &str| {
        let words: Vec<&str> = line.split(' ').collect();
        let weight = if words[2] == "weight" { words[3] } else { "1" };
        format!(", MEMBER {} {} weight {weight}", words[0], words[1])
    };
    let list: String = members.lines().map(member).collect();
    let mut twin = self::bench(&format!("SERVICE 192.0.2.1:80, METHOD {method}, STATE false{list}"));
    let addresses: BTreeMap<&str, &str> = members.lines().filter_map(|line| line.split_once(' ')).collect();
    let mut flows = export(bench, "flows_part");
    flows.retain(|client, member| {
        let own = addresses[member.as_str()].split(' ').next().map(str::to_string);
        send(&mut twin, *client, TcpFlags::ACK) != own
    });
    flows
}

/// Imports flows of a member.
fn import(bench: &mut Bench, clients: std::ops::Range<u16>, member: &str) {
    let mut other = self::bench("SERVICE 192.0.2.1:80, MEMBER x 10.9.0.1");
    open(&mut other, clients);
    let text = other.read("flows_part", "").unwrap();
    let items = BASE64_STANDARD.decode(text.trim_end().split(' ').nth(2).unwrap()).unwrap();
    let (mut reader, mut stream, mut count) = (StreamReader::of_items(&items), Vec::new(), 0);
    write_header(&mut stream);
    while reader.bytes_left() > 0 {
        match reader.next_item().unwrap().unwrap() {
            StreamItem::Member(number, _) => write_item(&StreamItem::Member(number, member), &mut stream),
            item => {
                count += 1;
                write_item(&item, &mut stream);
            }
        }
    }
    write_item(&StreamItem::End(count), &mut stream);
    bench.write("import_flows", &BASE64_STANDARD.encode(&stream)).unwrap();
}

#[derive(Clone, Debug)]
enum Change {
    Open(u16, u16),
    Packets(u16, u16),
    Close(u16, u16),
    Import(u16, usize),
    Add(usize, u32),
    Remove(usize),
    Weight(usize, u32),
    Method(usize),
    Flush(usize),
    Wait(u64),
    Read,
    Run,
}

const NAMES: [&str; 6] = ["a", "b", "c", "d", "e", "f"];
const METHODS: [&str; 3] = ["maglev", "hash", "xor"];

fn change() -> impl Strategy<Value = Change> {
    let (first, count) = (1..2000u16, 1..120u16);
    prop_oneof![
        4 => (first.clone(), count.clone()).prop_map(|(first, count)| Change::Open(first, count)),
        2 => (first.clone(), count.clone()).prop_map(|(first, count)| Change::Packets(first, count)),
        1 => (first.clone(), count.clone()).prop_map(|(first, count)| Change::Close(first, count)),
        1 => (first, 0..NAMES.len()).prop_map(|(first, name)| Change::Import(first, name)),
        2 => (0..NAMES.len(), 0..4u32).prop_map(|(name, weight)| Change::Add(name, weight)),
        2 => (0..NAMES.len()).prop_map(Change::Remove),
        2 => (0..NAMES.len(), 0..4u32).prop_map(|(name, weight)| Change::Weight(name, weight)),
        1 => (0..METHODS.len()).prop_map(Change::Method),
        1 => (0..NAMES.len()).prop_map(Change::Flush),
        1 => (0..40u64).prop_map(Change::Wait),
        2 => Just(Change::Read),
        2 => Just(Change::Run),
    ]
}

/// Makes a change; those that can't be are refused.
fn apply(bench: &mut Bench, method: &mut &str, follower: &mut Follower, change: Change) {
    match change {
        Change::Open(first, count) => open(bench, first..first + count),
        Change::Packets(first, count) => {
            (first..first + count).for_each(|client| drop(send(bench, client, TcpFlags::ACK)));
        }
        Change::Close(first, count) => {
            (first..first + count).for_each(|client| drop(send(bench, client, TcpFlags::RST)));
        }
        Change::Import(first, name) => {
            // Of members that are not there nothing is imported.
            import(bench, first..first + 40, NAMES[name]);
        }
        Change::Add(name, weight) => {
            let text = format!("{} 10.0.0.{} weight {weight}", NAMES[name], name + 1);
            drop(bench.write("add_member", &text));
        }
        Change::Remove(name) => drop(bench.write("remove_member", NAMES[name])),
        Change::Weight(name, weight) => drop(bench.write("weight", &format!("{} {weight}", NAMES[name]))),
        Change::Method(which) => {
            *method = METHODS[which];
            bench.write("method", method).unwrap();
        }
        Change::Flush(name) => drop(bench.write("flush_flows", NAMES[name])),
        Change::Wait(seconds) => bench.advance_time(Duration::from_secs(seconds)),
        Change::Read => drop(follower.read(bench)),
        Change::Run => drop(bench.run_once()),
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 64, ..ProptestConfig::default() })]

    #[test]
    fn what_a_follower_knows_is_what_looking_at_every_flow_finds(
        changes in prop::collection::vec(change(), 1..60),
        flows in prop::sample::select(vec![400u32, 100_000]),
        begins in 0..30usize,
    ) {
        let mut bench = bench(&format!("{FOUR}, FLOWS {flows}, YOUNG 300"));
        let mut method = "maglev";
        let mut follower = Follower { next: 0, exceptions: Flows::new(), lost: 0 };
        for (step, change) in changes.into_iter().enumerate() {
            if step == begins {
                follower = Follower::begin(&mut bench);
            }
            apply(&mut bench, &mut method, &mut follower, change);
        }
        follower.read_all(&mut bench);
        // Flows may end of age meanwhile; what is compared is of a time in which none does.
        let (expected, part) = loop {
            bench.advance_time(Duration::from_millis(200));
            follower.read_all(&mut bench);
            let flows = export(&mut bench, "flows_part");
            let both = (brute_force(&mut bench, method), export(&mut bench, "exceptions_part"));
            follower.read_all(&mut bench);
            if export(&mut bench, "flows_part") == flows {
                break both;
            }
        };
        prop_assert_eq!(&part, &expected);
        prop_assert_eq!(&follower.exceptions, &expected);
    }
}

#[test]
fn a_change_of_members_makes_exceptions_and_its_reversal_ends_them() {
    let mut bench = bench(FOUR);
    open(&mut bench, 1..2001);
    let mut follower = Follower::begin(&mut bench);
    assert_eq!(follower.exceptions, Flows::new());
    for (undo, text, undone) in
        [("weight", "a 0", "a 1"), ("weight", "b 3", "b 1"), ("add_member", "e 10.0.0.5", "e")]
    {
        bench.write(undo, text).unwrap();
        bench.advance_time(Duration::from_millis(200));
        follower.read_all(&mut bench);
        let expected = brute_force(&mut bench, "maglev");
        assert!(expected.len() > 300, "{text}");
        assert_eq!(follower.exceptions, expected, "{text}");
        bench.write(if undo == "weight" { "weight" } else { "remove_member" }, undone).unwrap();
        bench.advance_time(Duration::from_millis(200));
        follower.read_all(&mut bench);
        assert_eq!(follower.exceptions, Flows::new(), "{undone}");
    }
    assert_eq!(follower.lost, 0);
}

#[test]
fn of_a_member_that_goes_flows_are_none_but_those_of_others_that_would_move() {
    let mut bench = bench(&format!("{FOUR}, METHOD hash"));
    open(&mut bench, 1..2001);
    let mut follower = Follower::begin(&mut bench);
    bench.write("remove_member", "b").unwrap();
    bench.advance_time(Duration::from_millis(200));
    follower.read_all(&mut bench);
    // Those of `c` in the last third of its quarter: one flow of twelve.
    assert!((100..250).contains(&follower.exceptions.len()), "{}", follower.exceptions.len());
    assert!(follower.exceptions.values().all(|member| member == "c"));
    assert_eq!(follower.exceptions, brute_force(&mut bench, "hash"));
}

/// What a client reads from event `next` on, as the router goes on.
fn read_since(bench: &mut Bench, next: u64) -> Value {
    bench.run();
    serde_json::from_str(&bench.read("exception_events", &format!("0:{next}")).unwrap()).unwrap()
}
/// Reads all events from `next` on, of which none is lost: of each, what it is, and the client.
fn read_all_since(bench: &mut Bench, next: &mut u64) -> Vec<(String, (IpAddr, u16))> {
    let mut all = Vec::new();
    loop {
        let recent = read_since(bench, *next);
        assert_eq!(recent["lost"], false);
        *next = recent["next"].as_u64().unwrap();
        let events = recent["events"].as_array().unwrap();
        if events.is_empty() {
            return all;
        }
        all.extend(events.iter().map(|event| {
            let client = event["src"].as_str().unwrap().parse().unwrap();
            let port = event["sport"].as_u64().unwrap() as u16;
            (event["event"].as_str().unwrap().to_string(), (client, port))
        }));
    }
}

#[test]
fn more_exceptions_than_the_queue_holds_lose_no_events_for_who_reads_whether_exported_or_settled() {
    let mut bench = bench(&format!("{FOUR}, METHOD xor, FLOWS 200000"));
    for (port, host) in (1..=60_000).flat_map(|port| [(port, 1), (port, 2)]) {
        let packet =
            |flags| ip4().src(Ipv4Addr::new(198, 51, 100, host)).dst("192.0.2.1").tcp(port, 80).flags(flags);
        bench.push(0, packet(TcpFlags::SYN).bytes());
        bench.push(0, packet(TcpFlags::ACK).bytes());
        bench.drain_sent(0);
    }
    // A client that comes after the change exports before it reads the first event.
    bench.write("add_member", "e 10.0.0.5").unwrap();
    bench.advance_time(Duration::from_millis(200));
    let mut next = read_begin(&mut bench);
    let mut exported = BTreeSet::new();
    export_each(&mut bench, "exceptions_part", |flow, _| {
        assert!(exported.insert(flow.key.endpoints()[0]), "a flow is exported once");
    });
    assert!((80_000..=120_000).contains(&exported.len()), "{}", exported.len());
    let events = read_all_since(&mut bench, &mut next);
    assert!(events.iter().all(|(event, _)| event == "insert"));
    assert_eq!(events.into_iter().map(|(_, client)| client).collect::<BTreeSet<_>>(), exported);
    let slow = next;
    bench.write("remove_member", "e").unwrap();
    bench.advance_time(Duration::from_millis(200));
    let events = read_all_since(&mut bench, &mut next);
    assert!(events.len() == exported.len() && events.iter().all(|(event, _)| event == "end"));
    assert_eq!(events.into_iter().map(|(_, client)| client).collect::<BTreeSet<_>>(), exported);
    assert_eq!(read_since(&mut bench, slow)["lost"], true);
}

#[test]
fn an_export_that_is_ahead_of_the_walk_misses_nothing_that_is_undone_before_it() {
    let mut bench = bench(FOUR);
    open(&mut bench, 1..601);
    bench.write("weight", "a 0").unwrap();
    let mut follower = Follower::begin(&mut bench);
    follower.read_all(&mut bench);
    let exceptions = follower.exceptions.clone();
    assert!(!exceptions.is_empty());
    // For a moment there are none.
    bench.write("weight", "a 1").unwrap();
    let mut other = Follower::begin(&mut bench);
    assert!(other.exceptions.is_empty());
    bench.write("weight", "a 0").unwrap();
    bench.advance_time(Duration::from_millis(200));
    for follower in [&mut follower, &mut other] {
        follower.read_all(&mut bench);
        assert_eq!((&follower.exceptions, follower.lost), (&exceptions, 0));
    }
}

#[test]
fn what_packets_change_of_exceptions_is_reported_and_nothing_of_other_flows() {
    let mut bench = bench(FOUR);
    open(&mut bench, 1..301);
    send(&mut bench, 301, TcpFlags::SYN);
    let mut follower = Follower::begin(&mut bench);
    bench.write("weight", "a 0").unwrap();
    bench.advance_time(Duration::from_millis(200));
    follower.read_all(&mut bench);
    let exceptions = follower.exceptions.clone();
    (1..301).for_each(|client| drop(send(&mut bench, client, TcpFlags::FIN | TcpFlags::ACK)));
    let text = bench.read("exception_events", &format!("0:{}", follower.next)).unwrap();
    let lately: Value = serde_json::from_str(&text).unwrap();
    let events = lately["events"].as_array().unwrap();
    assert_eq!(events.len(), exceptions.keys().filter(|client| **client < 301).count());
    assert!(events.iter().all(|event| event["event"] == "state" && event["state"] == "fin"));
    // A record is what an export has, so that it can be imported.
    let keys = ["bytes", "idle", "member", "packets", "pinned", "version", "young"];
    assert!(keys.iter().all(|key| events[0].get(key).is_some()), "{}", events[0]);
    follower.read_all(&mut bench);
    // Idle flows end.
    let mut reasons = Vec::new();
    for _ in 0..3 {
        bench.advance_time(Duration::from_secs(50));
        reasons.extend(end_reasons(&mut bench, &mut follower));
    }
    assert_eq!(reasons, vec!["idle"; exceptions.len()]);
    assert!(follower.exceptions.is_empty());
    // If no client has read for longer than a minute, events are lost.
    bench.advance_time(Duration::from_secs(80));
    assert_eq!(read_since(&mut bench, follower.next)["lost"], true);
}

/// Reads the next events of ends, and their reasons.
fn end_reasons(bench: &mut Bench, follower: &mut Follower) -> Vec<String> {
    let recent = read_since(bench, follower.next);
    follower.read_all(bench);
    let ends = recent["events"].as_array().unwrap().iter().filter(|event| event["event"] == "end");
    ends.map(|event| event["reason"].as_str().unwrap().to_string()).collect()
}

#[test]
fn exceptions_that_make_room_or_are_flushed_end_with_that_reason() {
    let mut bench = bench("SERVICE 192.0.2.1:80, FLOWS 100, MEMBER a 10.0.0.1, MEMBER b 10.0.0.2 weight 0");
    let mut follower = Follower::begin(&mut bench);
    // All of `b` are exceptions, since it is drained.
    import(&mut bench, 1..81, "b");
    follower.read_all(&mut bench);
    assert_eq!(follower.exceptions.len(), 80);
    import(&mut bench, 201..251, "a");
    assert_eq!(end_reasons(&mut bench, &mut follower), vec!["displaced"; 30]);
    bench.write("flush_flows", "b").unwrap();
    bench.run();
    assert_eq!(end_reasons(&mut bench, &mut follower), vec!["removed"; 50]);
    assert!(follower.exceptions.is_empty());
}

#[test]
fn imported_flows_are_reported_as_such_until_a_packet_of_them_comes() {
    let mut bench = bench("SERVICE 192.0.2.1:80, MEMBER a 10.0.0.1, MEMBER b 10.0.0.2");
    let mut follower = Follower::begin(&mut bench);
    import(&mut bench, 1..201, "a");
    let events = |bench: &mut Bench, since: u64| -> Vec<Value> {
        let text = bench.read("exception_events", &format!("0:{since}")).unwrap();
        let lately: Value = serde_json::from_str(&text).unwrap();
        lately["events"].as_array().unwrap().clone()
    };
    let recent = events(&mut bench, follower.next);
    assert!((60..140).contains(&recent.len()) && recent.iter().all(|event| event["event"] == "import"));
    follower.read_all(&mut bench);
    assert_eq!(follower.exceptions, brute_force(&mut bench, "maglev"));
    let client = *follower.exceptions.keys().next().unwrap();
    send(&mut bench, client, TcpFlags::ACK);
    let recent = events(&mut bench, follower.next);
    let only = (&recent[0]["event"], &recent[0]["sport"]);
    assert_eq!((recent.len(), only), (1, (&"insert".into(), &client.into())));
}

#[test]
fn exceptions_of_both_families_are_found() {
    let mut bench = bench("SERVICE [2001:db8::1]:80, MEMBER a 2001:db8:1::1, MEMBER b 2001:db8:1::2");
    for client in 1..=600 {
        bench.push(0, ip6().src("2001:db8::7").dst("2001:db8::1").tcp(client, 80).bytes());
        bench.drain_sent(0);
    }
    let mut follower = Follower::begin(&mut bench);
    bench.write("weight", "a 0").unwrap();
    bench.advance_time(Duration::from_millis(200));
    follower.read_all(&mut bench);
    let all = export(&mut bench, "flows_part");
    let of_a: Flows = all.into_iter().filter(|(_, member)| member == "a").collect();
    assert!(of_a.len() > 200);
    assert_eq!(follower.exceptions, of_a);
    assert_eq!(export(&mut bench, "exceptions_part"), of_a);
}

#[test]
fn methods_that_depend_on_earlier_packets_have_no_exceptions_and_are_named() {
    for method in ["resilient", "per-packet", "flowlet", "least-loaded"] {
        let mut bench = bench(&format!("{FOUR}, METHOD {method}"));
        let questions = [("exceptions_part", ""), ("exception_events", "now"), ("exception_events", "")];
        for (handler, asked) in questions {
            let refusal = bench.read(handler, asked).unwrap_err().to_string();
            assert!(refusal.contains(&format!("METHOD {method}")) && refusal.contains("maglev"), "{refusal}");
        }
    }
    // Who follows learns that events are lost if the method was another one meanwhile.
    let mut bench = bench(FOUR);
    open(&mut bench, 1..301);
    let mut follower = Follower::begin(&mut bench);
    bench.write("method", "least-loaded").unwrap();
    bench.advance_time(Duration::from_millis(200));
    open(&mut bench, 301..401);
    bench.write("method", "hash").unwrap();
    follower.read_all(&mut bench);
    assert_eq!(follower.lost, 1);
    assert_eq!(follower.exceptions, brute_force(&mut bench, "hash"));
}

#[test]
fn after_a_replacement_followers_export_again() {
    let mut old = bench(FOUR);
    open(&mut old, 1..1001);
    let mut follower = Follower::begin(&mut old);
    old.write("weight", "a 0").unwrap();
    old.advance_time(Duration::from_millis(200));
    follower.read_all(&mut old);
    let mut new = Bench::setup(&CLASS, FOUR).outputs(2).sharing_with(&old).as_replacement().build().unwrap();
    new.take_state(&mut old);
    new.write("weight", "b 0").unwrap();
    new.advance_time(Duration::from_millis(200));
    follower.read_all(&mut new);
    assert_eq!(follower.lost, 1);
    assert_eq!(follower.exceptions, brute_force(&mut new, "maglev"));
    assert!(follower.exceptions.len() > 150);
}

#[test]
fn the_binary_form_says_what_json_says() {
    let mut bench = bench(FOUR);
    open(&mut bench, 1..701);
    let mut follower = Follower::begin(&mut bench);
    let start = follower.next;
    bench.write("weight", "a 0").unwrap();
    bench.advance_time(Duration::from_millis(200));
    bench.write("flush_flows", "a").unwrap();
    import(&mut bench, 801..901, "b");
    bench.run();
    follower.read_all(&mut bench);
    let (mut next, mut exceptions, mut seen) = (start, Flows::new(), start);
    loop {
        let text = bench.read("exception_items", &format!("0:{next}")).unwrap();
        let words: Vec<&str> = text.trim_end_matches('\n').split(' ').collect();
        let items = BASE64_STANDARD.decode(words[2]).unwrap();
        let (mut reader, mut names) = (EventReader::of_items(&items), BTreeMap::new());
        while let Some(item) = reader.next_event().unwrap() {
            match item {
                EventItem::Position { worker, seq, has_lost } => {
                    assert_eq!((worker, seq, has_lost), (0, seen, false));
                    continue;
                }
                EventItem::Member(number, name) => {
                    names.insert(u32::from(number), name.to_string());
                    continue;
                }
                EventItem::Exists(_, flow) => {
                    exceptions.insert(flow.key.endpoints()[0].1, names[&flow.answer.action].clone());
                }
                EventItem::Ended(end) => drop(exceptions.remove(&end.key.endpoints()[0].1)),
            }
            seen += 1;
        }
        next = words[1].parse().unwrap();
        assert_eq!(next, seen);
        if items.is_empty() {
            break;
        }
    }
    assert_eq!((next, &exceptions), (follower.next, &follower.exceptions));
    assert!(!exceptions.is_empty());
    let text = bench.read("exception_items", "0:1").unwrap();
    let items = BASE64_STANDARD.decode(text.trim_end().split(' ').nth(2).unwrap()).unwrap();
    let position = EventReader::of_items(&items).next_event().unwrap();
    assert!(matches!(position, Some(EventItem::Position { has_lost: true, .. })), "{position:?}");
}
