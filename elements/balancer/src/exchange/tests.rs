use super::*;
use crate::flow_balancer::CLASS;
use artery_engine::Bench;
use artery_flow::stream::write_header;
use artery_wire::TcpFlags;
use artery_wire::build::{ip4, ip6};
use serde_json::Value;
use std::collections::{HashMap, HashSet};
use std::net::Ipv4Addr;

fn bench(more: &str) -> Bench {
    let config = format!("SERVICE 192.0.2.1:80, MEMBER a 10.0.0.1, MEMBER b 10.0.0.2{more}");
    Bench::setup(&CLASS, &config).outputs(2).build().unwrap_or_else(|errors| panic!("{errors:?}"))
}
/// How many flows of new connections each member gets.
fn open(bench: &mut Bench, clients: std::ops::Range<u16>) -> HashMap<u8, usize> {
    let mut shares = HashMap::new();
    for client in clients {
        for flags in [TcpFlags::SYN, TcpFlags::ACK] {
            bench.push(0, ip4().src("198.51.100.7").dst("192.0.2.1").tcp(client, 80).flags(flags).bytes());
        }
        let member: Ipv4Addr = bench.next_sent(0).unwrap().dst_ip();
        assert_eq!(bench.next_sent(0).unwrap().dst_ip(), member);
        *shares.entry(member.octets()[3]).or_insert(0) += 1;
    }
    shares
}
/// Exports all flows of a balancer, as whole streams.
fn parts(bench: &mut Bench) -> Vec<Vec<u8>> {
    let (mut parts, mut asked) = (Vec::new(), String::new());
    loop {
        let text = bench.read("flows_part", &asked).unwrap();
        let words: Vec<_> = text.split_whitespace().collect();
        let items = BASE64_STANDARD.decode(words.get(2).unwrap_or(&"")).unwrap();
        let mut reader = StreamReader::of_items(&items);
        let mut flows = 0;
        while reader.bytes_left() > 0 {
            flows += u64::from(matches!(reader.next_item().unwrap(), Some(StreamItem::Flow(_))));
        }
        let mut stream = Vec::new();
        write_header(&mut stream);
        stream.extend(&items);
        write_item(&StreamItem::End(flows), &mut stream);
        parts.push(stream);
        match words[1] {
            "-" => return parts,
            next => asked = format!("7:0 {}:{next}", words[0]),
        }
    }
}
fn count(bench: &mut Bench, key: &str) -> u64 {
    let progress: Value = serde_json::from_str(&bench.read("exchange", "").unwrap()).unwrap();
    progress[key].as_u64().unwrap_or_else(|| panic!("{key} in {progress}"))
}

#[test]
fn flows_of_both_families_go_out_part_by_part_and_come_in_once() {
    let both = "SERVICE [2001:db8::1]:80, MEMBER a 2001:db8:1::1, MEMBER b 2001:db8:1::2";
    for (config, is_v6) in
        [("SERVICE 192.0.2.1:80, MEMBER a 10.0.0.1, MEMBER b 10.0.0.2", false), (both, true)]
    {
        let bench = || Bench::setup(&CLASS, config).outputs(2).build().unwrap();
        let (mut first, mut second) = (bench(), bench());
        for client in 1..=1200 {
            first.push(
                0,
                match is_v6 {
                    false => ip4().src("198.51.100.7").dst("192.0.2.1").tcp(client, 80).bytes(),
                    true => ip6().src("2001:db8::7").dst("2001:db8::1").tcp(client, 80).bytes(),
                },
            );
            first.next_sent(0).unwrap();
        }
        let parts = parts(&mut first);
        assert_eq!(parts.len(), 4, "three of the family, and one of the other");
        for part in parts.iter().chain(&parts) {
            second.write("import_flows", &BASE64_STANDARD.encode(part)).unwrap();
        }
        assert_eq!((count(&mut second, "new"), count(&mut second, "known")), (1200, 1200));
        assert_eq!(second.read("flows", "").unwrap(), "1200");
    }
}

#[test]
fn a_part_that_makes_no_sense_or_is_too_large_changes_nothing() {
    let (mut first, mut second) = (bench(""), bench(""));
    open(&mut first, 1..401);
    let part = parts(&mut first).swap_remove(0);
    for len in (0..part.len()).step_by(7) {
        assert!(second.write("import_flows", &BASE64_STANDARD.encode(&part[..len])).is_err(), "{len}");
    }
    // The last flow's source port; behind it are its counts, its addresses, and the end.
    let mut damaged = part.clone();
    let at = part.len() - 11 - 24 - 4;
    damaged[at..at + 2].fill(0);
    let refusal = second.write("import_flows", &BASE64_STANDARD.encode(&damaged)).unwrap_err().to_string();
    assert_eq!(refusal, "item 402: port 0");
    assert!(second.write("import_flows", "no base64").is_err());
    assert_eq!(second.read("flows", "").unwrap(), "0");
    let mut many = Vec::new();
    write_header(&mut many);
    for (number, name) in [(0, "a"), (1, "b")] {
        write_item(&StreamItem::Member(number, name), &mut many);
    }
    let flow = part[part.len() - 11 - 44..part.len() - 11].to_vec();
    (0..=MOST_INCOMING).for_each(|_| many.extend(&flow));
    let refusal = second.write("import_flows", &BASE64_STANDARD.encode(&many)).unwrap_err().to_string();
    assert_eq!(refusal, "at most 4096 flows are taken in at a time");
    assert_eq!(second.read("flows", "").unwrap(), "0");
    let mut stateless = bench(", STATE false");
    assert!(stateless.write("import_flows", &BASE64_STANDARD.encode(&part)).is_err());
}

#[test]
fn flows_to_other_services_and_of_other_members_are_counted_and_left_out() {
    let mut first = bench("");
    let shares = open(&mut first, 1..401);
    let part = parts(&mut first).swap_remove(0);
    for (config, key, expected) in [
        ("SERVICE 192.0.2.1:80, MEMBER a 10.0.0.9", "no_member", shares[&2] as u64),
        ("SERVICE 192.0.2.1:81, MEMBER a 10.0.0.1", "no_service", 400),
    ] {
        let mut second = Bench::setup(&CLASS, config).outputs(2).build().unwrap();
        second.write("import_flows", &BASE64_STANDARD.encode(&part)).unwrap();
        assert_eq!(count(&mut second, key), expected, "{config}");
        assert_eq!(second.read("flows", "").unwrap(), (400 - expected).to_string());
    }
}

#[test]
fn in_a_full_table_the_oldest_that_came_in_make_room_and_what_packets_were_seen_of_stays() {
    let mut first = bench("");
    open(&mut first, 1..401);
    let part = BASE64_STANDARD.encode(&parts(&mut first)[0]);
    let mut second = bench(", FLOWS 100");
    open(&mut second, 501..541);
    second.write("import_flows", &part).unwrap();
    assert_eq!((count(&mut second, "new"), count(&mut second, "no_room")), (400, 0));
    assert_eq!(second.read("flows", "").unwrap(), "100");
    assert!(second.read("counts", "").unwrap().contains("flows-displaced 340\n"));
    let mut full = bench(", FLOWS 100");
    open(&mut full, 501..601);
    full.write("import_flows", &part).unwrap();
    assert_eq!((count(&mut full, "new"), count(&mut full, "no_room")), (0, 400));
    assert_eq!(full.read("flows", "").unwrap(), "100");
}

#[test]
fn the_member_with_fewest_flows_gets_the_next_ones_also_after_flows_have_ended_or_come_in() {
    let mut first = bench(", METHOD least-loaded");
    assert_eq!(open(&mut first, 1..101), HashMap::from([(1, 50), (2, 50)]));
    let part = parts(&mut first).swap_remove(0);
    first.write("flush_flows", "a").unwrap();
    first.run();
    assert_eq!((count(&mut first, "flushed"), first.read("flows", "").unwrap()), (50, "50".to_string()));
    assert_eq!(open(&mut first, 201..251), HashMap::from([(1, 50)]));
    // The flows of `a` return: it has twice as many as `b` again.
    first.write("import_flows", &BASE64_STANDARD.encode(&part)).unwrap();
    assert_eq!(open(&mut first, 301..351), HashMap::from([(2, 50)]));
    // Idle flows end, too.
    first.advance_time(Duration::from_secs(100_000));
    first.run();
    assert_eq!(open(&mut first, 401..501), HashMap::from([(1, 50), (2, 50)]));
}

/// Begins to follow; the number of the first event.
fn follow(bench: &mut Bench) -> u64 {
    let begin: Value = serde_json::from_str(&bench.read("flow_events", "now").unwrap()).unwrap();
    begin["next"].as_u64().unwrap()
}
fn events(bench: &mut Bench, since: u64) -> Vec<Value> {
    let text = bench.read("flow_events", &format!("0:{since}")).unwrap();
    let recent: Value = serde_json::from_str(&text).unwrap();
    recent["events"].as_array().unwrap().clone()
}

#[test]
fn a_flow_that_makes_room_and_comes_again_in_one_part_ends_before_it_comes() {
    let mut first = bench("");
    open(&mut first, 1..61);
    let part = parts(&mut first).swap_remove(0);
    let end = 11;
    let mut twice = part[..part.len() - end].to_vec();
    twice.extend(&part[8..part.len() - end]);
    write_item(&StreamItem::End(120), &mut twice);
    let mut second = bench(", FLOWS 50");
    let mut next = follow(&mut second);
    second.write("import_flows", &BASE64_STANDARD.encode(&twice)).unwrap();
    let mut known = HashSet::new();
    loop {
        let events = events(&mut second, next);
        for event in &events {
            let client = event["sport"].as_u64().unwrap();
            match event["event"].as_str().unwrap() {
                "import" => assert!(known.insert(client), "{client} came already"),
                _ => assert!(known.remove(&client), "{client} has not come yet"),
            }
        }
        if events.is_empty() {
            break;
        }
        next += events.len() as u64;
    }
    assert_eq!(second.read("flows", "").unwrap(), known.len().to_string());
    assert!(count(&mut second, "new") > 60);
}

#[test]
fn what_happens_to_flows_is_recorded_while_a_client_follows() {
    let mut bench = bench("");
    open(&mut bench, 1..11);
    let idle = bench.read("flow_events", "").unwrap();
    assert!(idle.contains("\"next\":0"), "no follower yet: {idle}");
    let first = follow(&mut bench);
    open(&mut bench, 21..22);
    bench.push(0, ip4().src("198.51.100.7").dst("192.0.2.1").tcp(21, 80).flags(TcpFlags::FIN).bytes());
    bench.next_sent(0).unwrap();
    let recent = events(&mut bench, first);
    let kinds: Vec<_> = recent
        .iter()
        .map(|event| (event["event"].as_str().unwrap(), event["state"].as_str().unwrap()))
        .collect();
    assert_eq!(kinds, [("insert", "opening"), ("proven", "established"), ("state", "fin")]);
    let old = recent[0]["member"].as_str().unwrap().to_string();
    bench.write("remove_member", &old).unwrap();
    bench.push(0, ip4().src("198.51.100.7").dst("192.0.2.1").tcp(21, 80).flags(TcpFlags::ACK).bytes());
    bench.next_sent(0).unwrap();
    bench.write("flush_flows", "all").unwrap();
    bench.run();
    let recent = events(&mut bench, first + 3);
    assert_eq!((&recent[0]["event"], &recent[0]["from"]), (&"moved".into(), &old.into()));
    assert_eq!(recent[1]["event"], "end");
    assert_eq!(recent[1]["reason"], "removed");
    assert_eq!(recent.len(), 12);
    for wrong in ["x", "0", "0:x", ":", "0:99999999999999999999"] {
        assert!(bench.read("flow_events", wrong).is_err(), "{wrong}");
    }
}
