use super::*;
use artery_common::flow_export::{FlowEndReason, FlowExport};
use artery_engine::{Bench, DropReason, Resources};
use artery_wire::build::{Ip4, ip4, ip6};
use artery_wire::{Ipv4, Ipv6, Tcp, TcpFlags, Udp};
use std::collections::HashMap;
use std::net::{IpAddr, Ipv4Addr};
use std::sync::Arc;
use std::time::Duration;

const THREE: &str = "SERVICE 192.0.2.1:80, MEMBER a 10.0.0.1, MEMBER b 10.0.0.2, MEMBER c 10.0.0.3";

fn bench(config: &str) -> Bench {
    Bench::setup(&CLASS, config).outputs(2).build().unwrap_or_else(|errors| panic!("{errors:?}"))
}
/// The first packet of a client's connection, or a later one.
fn packet(client: u16, flags: TcpFlags) -> Ip4 {
    ip4().src("198.51.100.7").dst("192.0.2.1").tcp(client, 80).flags(flags)
}
/// The members that clients' packets go to.
fn members(bench: &mut Bench, clients: std::ops::Range<u16>, flags: TcpFlags) -> Vec<Ipv4Addr> {
    clients
        .map(|client| {
            let bytes = packet(client, flags).bytes();
            bench.push(0, &bytes);
            bench.expect(0, bytes).dst_ip()
        })
        .collect()
}
/// Opens connections, so that they are proven.
fn open(bench: &mut Bench, clients: std::ops::Range<u16>) -> Vec<Ipv4Addr> {
    let first = members(bench, clients.clone(), TcpFlags::SYN);
    assert_eq!(moved(&first, &members(bench, clients, TcpFlags::ACK)), 0);
    first
}
fn moved(before: &[Ipv4Addr], after: &[Ipv4Addr]) -> usize {
    before.iter().zip(after).filter(|(before, after)| before != after).count()
}
fn count(bench: &mut Bench, name: &str) -> u64 {
    let counts = bench.read("counts", "").unwrap();
    let line = counts.lines().find_map(|line| line.strip_prefix(&format!("{name} ")));
    line.unwrap_or_else(|| panic!("{name} in {counts}")).parse().unwrap()
}

#[test]
fn flows_are_shared_out_and_stay_where_they_are_while_others_come_and_go() {
    let mut bench = bench(THREE);
    let before = open(&mut bench, 1..1001);
    let mut shares = HashMap::new();
    before.iter().for_each(|member| *shares.entry(*member).or_insert(0) += 1);
    assert!(shares.len() == 3 && shares.values().all(|share| (250..420).contains(share)), "{shares:?}");
    bench.write("add_member", "d 10.0.0.4").unwrap();
    assert_eq!(moved(&before, &members(&mut bench, 1..1001, TcpFlags::ACK)), 0);
    bench.write("remove_member", "d").unwrap();
    bench.write("weight", "a 0").unwrap();
    let drained = members(&mut bench, 1..1001, TcpFlags::ACK);
    assert_eq!(moved(&before, &drained), 0, "a member that is drained keeps its flows");
    let new = open(&mut bench, 2001..2301);
    assert!(!new.contains(&Ipv4Addr::new(10, 0, 0, 1)), "and takes no new ones");
    bench.write("remove_member", "b").unwrap();
    let after = members(&mut bench, 1..1001, TcpFlags::ACK);
    assert_eq!(moved(&before, &after), shares[&Ipv4Addr::new(10, 0, 0, 2)]);
    assert!(!after.contains(&Ipv4Addr::new(10, 0, 0, 2)));
    assert_eq!(count(&mut bench, "flows-moved"), shares[&Ipv4Addr::new(10, 0, 0, 2)] as u64);
    assert_eq!(bench.read("flows", "").unwrap(), "1300");
}

#[test]
fn a_connection_by_the_ports_of_one_that_has_ended_is_a_new_one_to_a_member_that_is_drained() {
    let mut bench = bench(THREE);
    let before = open(&mut bench, 1..301);
    bench.write("weight", "a 0").unwrap();
    assert_eq!(moved(&before, &members(&mut bench, 1..301, TcpFlags::SYN)), 0, "none has ended");
    assert_eq!(moved(&before, &members(&mut bench, 1..301, TcpFlags::FIN | TcpFlags::ACK)), 0);
    assert_eq!(moved(&before, &members(&mut bench, 1..301, TcpFlags::ACK)), 0);
    let after = open(&mut bench, 1..301);
    let drained = Ipv4Addr::new(10, 0, 0, 1);
    assert!(before.contains(&drained) && !after.contains(&drained));
    let stays = before.iter().zip(&after).filter(|(before, after)| before == after).count();
    assert_eq!(stays, before.iter().filter(|member| **member != drained).count());
}

#[test]
fn without_state_the_method_alone_decides_and_the_one_of_2008_moves_flows_of_living_members() {
    let share = |method: &str, state: bool| {
        let mut bench = bench(&format!("{THREE}, METHOD {method}, STATE {state}"));
        let before = open(&mut bench, 1..1001);
        bench.write("remove_member", "c").unwrap();
        let after = members(&mut bench, 1..1001, TcpFlags::ACK);
        let living = before.iter().zip(&after).filter(|(member, _)| **member != Ipv4Addr::new(10, 0, 0, 3));
        living.filter(|(before, after)| before != after).count()
    };
    assert!(share("xor", false) > 250);
    assert!(share("maglev", false) < 60);
    for method in ["xor", "maglev", "hash", "resilient", "least-loaded"] {
        assert_eq!(share(method, true), 0, "{method}");
    }
}

#[test]
fn two_machines_with_the_same_members_in_any_order_agree_and_another_seed_does_not() {
    let all = |config: &str| members(&mut bench(config), 1..501, TcpFlags::ACK);
    let one = all(THREE);
    let order = "SERVICE 192.0.2.1:80, MEMBER c 10.0.0.3, MEMBER a 10.0.0.1, MEMBER b 10.0.0.2";
    assert_eq!(all(order), one);
    assert!(moved(&all(&format!("{THREE}, SEED 7")), &one) > 200);
}

#[test]
fn digests_say_whether_two_machines_agree() {
    let status = |bench: &mut Bench| -> serde_json::Value {
        serde_json::from_str(&bench.read("status_json", "").unwrap()).unwrap()
    };
    let mut one = bench(THREE);
    let digest = status(&mut one)["digest"].clone();
    assert_eq!(digest.as_str().map(str::len), Some(16));
    // Another order, other addresses, and a past.
    let order = "SERVICE 192.0.2.9:80, MEMBER c 10.9.0.3, MEMBER x 10.9.0.9, MEMBER a 10.9.0.1";
    let mut other = bench(order);
    other.write("remove_member", "x").unwrap();
    other.write("add_member", "b 10.9.0.2").unwrap();
    assert_eq!(status(&mut other)["digest"], digest);
    for (handler, text) in [("weight", "b 2"), ("method", "xor"), ("method", "hash"), ("remove_member", "b")]
    {
        other.write(handler, text).unwrap();
        assert_ne!(status(&mut other)["digest"], digest, "{text}");
    }
    let of_seed = |method: &str, seed: u32| {
        status(&mut bench(&format!("{THREE}, METHOD {method}, SEED {seed}")))["digest"].clone()
    };
    assert_ne!(of_seed("maglev", 7), digest);
    assert_ne!(of_seed("hash", 7), of_seed("hash", 8));
    assert_eq!(of_seed("xor", 7), of_seed("xor", 8), "it chooses without the seed");
    one.write("weight", "a 0").unwrap();
    let drained = status(&mut one);
    assert_eq!((&drained["method"], &drained["services"][0]), (&"maglev".into(), &"192.0.2.1:80".into()));
    let member = &drained["members"][0];
    assert_eq!((&member["name"], &member["up"], &member["share"]), (&"a".into(), &true.into(), &0.0.into()));
    one.write("method", "least-loaded").unwrap();
    assert!(status(&mut one)["digest"].is_null());
}

#[test]
fn what_is_not_for_the_service_passes_and_what_nobody_takes_is_told_apart() {
    let mut bench = bench(THREE);
    let others = [
        ip4().src("198.51.100.7").dst("192.0.2.1").tcp(5, 81).bytes(),
        ip4().src("198.51.100.7").dst("192.0.2.2").tcp(5, 80).bytes(),
        ip4().src("198.51.100.7").dst("192.0.2.1").fragment(8, false).udp(5, 80).bytes(),
        ip6().src("2001:db8::7").dst("2001:db8::1").tcp(5, 80).bytes(),
        vec![],
        vec![0x45; 7],
    ];
    for bytes in &others {
        bench.push(0, bytes);
        bench.expect(1, bytes);
    }
    ["a", "b", "c"].into_iter().for_each(|name| bench.write("remove_member", name).unwrap());
    let ours = packet(9, TcpFlags::SYN).bytes();
    bench.push(0, &ours);
    bench.expect(1, &ours);
    assert_eq!((count(&mut bench, "packets-of-others"), count(&mut bench, "packets-without-member")), (6, 1));
    let mut alone = Bench::setup(&CLASS, "SERVICE 192.0.2.1:80").outputs(1).build().unwrap();
    alone.push(0, &ours);
    alone.expect_dropped(DropReason::NoMember, 1);
}

#[test]
fn attempts_by_the_thousand_push_out_no_flow_that_lives() {
    let mut bench = bench(&format!("{THREE}, FLOWS 2000, YOUNG 500"));
    let before = [open(&mut bench, 1..401), open(&mut bench, 401..801)].concat();
    members(&mut bench, 2001..32_001, TcpFlags::SYN);
    bench.write("add_member", "d 10.0.0.4").unwrap();
    assert_eq!(moved(&before, &members(&mut bench, 1..801, TcpFlags::ACK)), 0);
    assert!(count(&mut bench, "flows-displaced") >= 29_000);
    let flows: u32 = bench.read("flows", "").unwrap().parse().unwrap();
    assert!(flows <= 1300, "{flows}");
}

#[test]
fn flows_that_are_idle_are_forgotten_while_nothing_comes() {
    let mut bench = bench(&format!("{THREE}, PRESET paper"));
    open(&mut bench, 1..101);
    bench.advance_time(Duration::from_secs(29));
    assert_eq!(bench.read("flows", "").unwrap(), "100");
    bench.advance_time(Duration::from_secs(2));
    assert_eq!(bench.read("flows", "").unwrap(), "0");
}

#[test]
fn a_balancer_that_takes_the_place_of_another_keeps_flows_by_the_names_of_members() {
    let mut old = bench(&format!("{THREE}, METHOD least-loaded"));
    let before = open(&mut old, 1..1001);
    let text =
        "SERVICE 192.0.2.1:80, MEMBER d 10.0.0.4, MEMBER c 10.0.0.3, MEMBER b 10.0.0.2, MEMBER a 10.0.0.1";
    let mut new = Bench::setup(&CLASS, text).outputs(2).sharing_with(&old).as_replacement().build().unwrap();
    new.take_state(&mut old);
    assert_eq!(moved(&before, &members(&mut new, 1..1001, TcpFlags::ACK)), 0);
}

#[test]
fn a_balancer_that_takes_the_place_of_another_keeps_what_handlers_changed() {
    let mut old = bench(THREE);
    for (handler, value) in [("weight", "a 0"), ("remove_member", "b"), ("add_member", "d 10.0.0.4")] {
        old.write(handler, value).unwrap();
    }
    let before = open(&mut old, 1..101);
    let mut new = Bench::setup(&CLASS, THREE).outputs(2).sharing_with(&old).as_replacement().build().unwrap();
    new.take_state(&mut old);
    assert_eq!(new.read("members", "").unwrap(), old.read("members", "").unwrap());
    assert_eq!(moved(&before, &members(&mut new, 1..101, TcpFlags::ACK)), 0);
    let added = open(&mut new, 101..201);
    assert!(added.iter().all(|member| [3, 4].contains(&member.octets()[3])), "{added:?}");
}

#[test]
fn flows_that_go_on_when_a_balancer_ends_are_recorded_unless_another_takes_them_over() {
    let resources = Arc::new(Resources::default());
    let export = resources.get::<FlowExport>();
    export.turn_on(Duration::from_secs(60));
    let mut old = Bench::setup(&CLASS, THREE).outputs(2).resources(resources).build().unwrap();
    old.advance_time(Duration::from_secs(1));
    open(&mut old, 1..101);
    let mut new = Bench::setup(&CLASS, THREE).outputs(2).sharing_with(&old).as_replacement().build().unwrap();
    // Each bench has a clock of its own.
    new.advance_time(Duration::from_secs(1));
    new.take_state(&mut old);
    old.stop_without_successor();
    assert_eq!(export.take_records().len(), 0);
    members(&mut new, 1..51, TcpFlags::ACK);
    new.stop_without_successor();
    let records = export.take_records();
    let packets: u64 = records.iter().map(|record| record.packets).sum();
    assert_eq!((records.len(), packets), (100, 250));
    assert!(records.iter().all(|record| record.reason == FlowEndReason::Forced));
}

#[test]
fn with_nat_packets_reach_the_members_port_and_answers_come_from_the_service() {
    let config = "SERVICE 192.0.2.1:80 tcp, MEMBER a 10.0.0.1:8080, FORWARD nat";
    let mut bench = Bench::setup(&CLASS, config).inputs(2).outputs(3).build().unwrap();
    bench.push(0, packet(5, TcpFlags::SYN).bytes());
    let sent = bench.next_sent(0).unwrap();
    let expected = ip4().src("198.51.100.7").dst("10.0.0.1").tcp(5, 8080).flags(TcpFlags::SYN).bytes();
    assert_eq!((sent.data(), sent.dst_ip()), (&expected[..], Ipv4Addr::new(10, 0, 0, 1)));
    bench.push(1, ip4().src("10.0.0.1").dst("198.51.100.7").tcp(8080, 5).bytes());
    bench.expect(2, ip4().src("192.0.2.1").dst("198.51.100.7").tcp(80, 5).bytes());
    for (member, client) in [("10.0.0.9", 5), ("10.0.0.1", 6)] {
        let other = ip4().src(member).dst("198.51.100.7").tcp(8080, client).bytes();
        bench.push(1, &other);
        bench.expect(1, &other);
    }
}

#[test]
fn nat_keeps_checksums_right_for_both_families_and_leaves_missing_ones_out() {
    let v6 = "SERVICE [2001:db8::1]:53 udp, MEMBER a [2001:db8:2::a]:5353, FORWARD nat";
    let mut bench6 = Bench::setup(&CLASS, v6).inputs(2).outputs(3).build().unwrap();
    bench6.push(0, ip6().src("2001:db8::7").dst("2001:db8::1").udp(5, 53).payload([1; 9]).bytes());
    let expected = ip6().src("2001:db8::7").dst("2001:db8:2::a").udp(5, 5353).payload([1; 9]).bytes();
    assert_eq!(bench6.next_sent(0).unwrap().data(), expected);
    let v4 = "SERVICE 192.0.2.1:53 udp, MEMBER a 10.0.0.1:5353, FORWARD nat";
    let mut bench4 = Bench::setup(&CLASS, v4).inputs(2).outputs(3).build().unwrap();
    let mut bytes = ip4().src("198.51.100.7").dst("192.0.2.1").udp(5, 53).bytes();
    bytes[26..28].fill(0);
    bench4.push(0, &bytes);
    let sent = bench4.next_sent(0).unwrap();
    let ip = Ipv4::new(sent.data()).unwrap();
    assert!(ip.checksum_is_valid());
    assert_eq!((Udp::new(ip.payload()).unwrap().checksum(), Ipv6::new(sent.data()).is_err()), (0, true));
    assert!(Tcp::new(&[][..]).is_err());
}

#[test]
fn what_can_not_be_is_refused_with_the_remedy() {
    for (config, said) in [
        ("MEMBER a 10.0.0.1", "SERVICE is missing"),
        ("SERVICE 192.0.2.1:80, SERVICE 192.0.2.1", "are for 192.0.2.1:80, too"),
        ("SERVICE 192.0.2.1:80, MEMBER a 2001:db8::1", "an IPv6 address takes no packets to 192.0.2.1"),
        ("SERVICE 192.0.2.1:80, MEMBER a 10.0.0.1, MEMBER a 10.0.0.2", "MEMBER a 10.0.0.2"),
        ("SERVICE 192.0.2.1:80, METHOD best", "METHOD best"),
        ("SERVICE 192.0.2.1:80, FORWARD tunnel", "FORWARD is 'direct' or 'nat'"),
        ("SERVICE 192.0.2.1:80, SERVICE 192.0.2.1:81, FORWARD nat", "there is one SERVICE"),
        ("SERVICE 192.0.2.1:80, PRESET long", "PRESET is 'default' or 'paper'"),
    ] {
        let refusal = Bench::config_error(&CLASS, config);
        assert!(refusal.contains(said), "{config}: {refusal}");
    }
    let mut bench = bench(THREE);
    for (handler, text) in [
        ("add_member", "a 10.0.0.9"),
        ("add_member", "e"),
        ("add_member", "e 2001:db8::1"),
        ("remove_member", "e"),
        ("weight", "a"),
        ("weight", "a much"),
        ("method", "best"),
    ] {
        assert!(bench.write(handler, text).is_err(), "{handler} {text}");
    }
    assert_eq!(bench.read("members", "").unwrap().lines().count(), 3);
}

/// Advances the time until the members have this description.
#[track_caller]
fn await_members(bench: &mut Bench, expected: &[&str]) {
    for _ in 0..1000 {
        bench.advance_time(Duration::from_millis(250));
        let members = bench.read("members", "").unwrap();
        if expected.iter().all(|part| members.contains(part)) {
            return;
        }
    }
    panic!("not {expected:?}: {}", bench.read("members", "").unwrap());
}

#[test]
fn a_member_that_does_not_answer_loses_its_flows_until_it_is_back() {
    let [a, b] = ["127.0.0.1:0", "127.0.0.2:0"].map(|at| std::net::TcpListener::bind(at).unwrap());
    let [at, away] = [&a, &b].map(|listener| listener.local_addr().unwrap());
    let mut bench = bench(&format!(
        "SERVICE 192.0.2.1:80 tcp, MEMBER a {at}, MEMBER b {away}, CHECK tcp every 1s fall 2 rise 1"
    ));
    let parts = [format!("a {at} up"), format!("b {away} up")];
    await_members(&mut bench, &[&parts[0], &parts[1]]);
    drop(b);
    await_members(&mut bench, &[&parts[0], &format!("b {away} down")]);
    let said = bench.stderr_text();
    assert!(said.contains(&format!("b at {away} is down: refused")), "{said}");
    let config = format!(
        "SERVICE 192.0.2.1:80 tcp, MEMBER a {at}, MEMBER b {away}, CHECK tcp every 500ms fall 2 rise 1"
    );
    let mut old = bench;
    let setup = Bench::setup(&CLASS, &config).outputs(2);
    let mut bench = setup.sharing_with(&old).as_replacement().build().unwrap();
    bench.take_state(&mut old);
    let a_alone = open(&mut bench, 1..101);
    assert!(
        a_alone.iter().all(|member| IpAddr::V4(*member) == at.ip()),
        "{}",
        bench.read("members", "").unwrap()
    );
    for _ in 0..8 {
        std::thread::sleep(Duration::from_millis(20));
        bench.advance_time(Duration::from_millis(250));
    }
    assert_eq!(bench.stderr_text(), "", "their states are known already");
    let b = std::net::TcpListener::bind(away).unwrap();
    await_members(&mut bench, &[&parts[0], &parts[1]]);
    assert!(bench.stderr_text().contains(&format!("b at {away} is up")), "{}", bench.stderr_text());
    drop((a, b));
}

#[test]
fn checks_that_can_not_be_made_are_refused() {
    for (config, said) in [
        ("SERVICE 192.0.2.1, MEMBER a 10.0.0.1, CHECK tcp", "write 10.0.0.1:PORT"),
        ("SERVICE 192.0.2.1:53 udp, MEMBER a 10.0.0.1, CHECK tcp", "use ping"),
        ("SERVICE 192.0.2.1:80, MEMBER a 10.0.0.1, CHECK telepathy", "CHECK telepathy"),
    ] {
        let refusal = Bench::config_error(&CLASS, config);
        assert!(refusal.contains(said), "{config}: {refusal}");
    }
}
