//! Several next hops: how flows are shared out, and what moves when one dies or comes.
use super::rig::*;
use artery_l3::PortId;
use artery_l3::next_hop::Selection;
use artery_l3::path::Outcome;
use artery_l3::router::RouteSpec;
use artery_storage::Comeback;
use artery_wire::Random;
use std::time::Duration;

const METHODS: [Selection; 4] = [Selection::Hash, Selection::RESILIENT, Selection::Xor, Selection::PerPacket];
const TO: &str = "192.0.2.1";
const PREFIX: &str = "192.0.2.0/24";

/// A gateway on each port's link.
fn gateway(port: u16) -> std::net::IpAddr {
    ip(&format!("10.0.{port}.254"))
}

fn several(weights: &[u32], selection: Selection) -> RouteSpec {
    RouteSpec::multipath((0..).map(gateway).zip(weights.iter().copied()), selection)
}

/// A router with a route to as many gateways as there are weights, each known, on ports of their own.
fn rig(weights: &[u32], selection: Selection) -> Rig {
    let mut rig = Rig::new(6);
    rig.add(PREFIX, &several(weights, selection)).unwrap();
    (0..6).for_each(|port| rig.know(port, &gateway(port).to_string(), 9));
    rig
}

/// Numbers of flows as a worker has them: hashes, the exclusive or of addresses and ports, packets counted in
/// steps of the golden section.
fn flows(selection: Selection, count: u32) -> Vec<u32> {
    let mut random = Random::new(11);
    let flow = |n: u32| match selection {
        Selection::Hash | Selection::Resilient { .. } => random.next() as u32,
        Selection::PerPacket => n.wrapping_mul(0x9e37_79b9),
        Selection::Xor => {
            let (source, port) = (0x0a00_0000 | random.below(1 << 16) as u32, random.below(1 << 16) as u32);
            source ^ 0xc000_0201 ^ port << 16 ^ 443
        }
    };
    (0..count).map(flow).collect()
}

/// The port that each flow leaves by.
fn ports(rig: &mut Rig, flows: &[u32]) -> Vec<u16> {
    let (turn, to) = (rig.turns.turn(), 0xc000_0201);
    flows.iter().map(|flow| rig.readers.v4.lookup_path(&turn, to, |_| *flow).port.0).collect()
}

fn counts(ports: &[u16]) -> [usize; 6] {
    ports.iter().fold([0; 6], |mut counts, port| {
        counts[usize::from(*port)] += 1;
        counts
    })
}

/// The part of flows that take another port, in percent.
fn moved(before: &[u16], after: &[u16]) -> f64 {
    let moved = before.iter().zip(after).filter(|(before, after)| before != after).count();
    100.0 * moved as f64 / before.len() as f64
}

#[test]
fn flows_are_shared_out_by_weight() {
    let flow_count = 1_000_000;
    println!("| method | flows of 1,000,000 by weights 1:2:5 | chi-square |\n|---|---|--:|");
    for selection in METHODS {
        let mut rig = rig(&[1, 2, 5], selection);
        let counts = counts(&ports(&mut rig, &flows(selection, flow_count)));
        let expected = [1.0, 2.0, 5.0].map(|weight| weight / 8.0 * f64::from(flow_count));
        let chi_square: f64 = counts
            .iter()
            .zip(expected)
            .map(|(count, expected)| (*count as f64 - expected).powi(2) / expected)
            .sum();
        println!(
            "| {} | {} : {} : {} | {chi_square:.2} |",
            selection.name(),
            counts[0],
            counts[1],
            counts[2]
        );
        // Two degrees of freedom: chance exceeds this once in a thousand times.
        assert!(chi_square < 13.8, "{}: {counts:?} {chi_square}", selection.name());
    }
}

#[test]
fn only_so_many_flows_move_when_a_next_hop_dies_returns_or_comes() {
    println!("| method | one of four dies | it returns | a fifth comes |\n|---|--:|--:|--:|");
    // What must move at least: 25, 25 and 20.
    for (selection, [most_dying, most_returning, most_coming]) in METHODS.into_iter().zip([
        [34.0, 34.0, 51.0],
        [25.5, 25.5, 21.0],
        [76.0, 76.0, 81.0],
        [76.0, 76.0, 81.0],
    ]) {
        let mut rig = rig(&[1; 4], selection);
        let flows = flows(selection, 200_000);
        let all = ports(&mut rig, &flows);
        assert!(rig.tables.withdraw_gateway(PortId(1), gateway(1), true));
        let three = ports(&mut rig, &flows);
        assert_eq!(counts(&three)[1], 0);
        rig.tables.withdraw_gateway(PortId(1), gateway(1), false);
        rig.tables.rebalance_groups();
        let again = ports(&mut rig, &flows);
        rig.replace(PREFIX, &several(&[1; 5], selection));
        rig.tables.rebalance_groups();
        let five = ports(&mut rig, &flows);
        let shares = [moved(&all, &three), moved(&three, &again), moved(&again, &five)];
        println!("| {} | {:.1} % | {:.1} % | {:.1} % |", selection.name(), shares[0], shares[1], shares[2]);
        assert!(shares[0] <= most_dying, "{shares:?}");
        assert!(shares[1] <= most_returning, "{shares:?}");
        assert!(shares[2] <= most_coming, "{shares:?}");
        if let Selection::Resilient { .. } = selection {
            let stayed = all.iter().zip(&three).all(|(before, after)| before == after || *before == 1);
            assert!(stayed, "a flow of a next hop that lives has moved");
        }
    }
}

#[test]
fn who_returns_takes_its_buckets_back_bit_by_bit() {
    let comeback = Comeback::Over(Duration::from_secs(16));
    let mut rig = rig(&[1, 1], Selection::Resilient { buckets: 128, comeback });
    let slots = |rig: &Rig| {
        let group = rig.tables.lookup_route(ip(TO)).unwrap().group;
        rig.tables.group_view(group).unwrap().members.iter().map(|member| member.slots).collect::<Vec<_>>()
    };
    rig.tables.set_up(PortId(1), false, NOW).unwrap();
    assert_eq!(slots(&rig), [1, 0]);
    rig.tables.set_up(PortId(1), true, NOW).unwrap();
    assert_eq!(rig.decide(TO).port, PortId(0));
    let (mut now, mut steps) = (NOW, Vec::new());
    loop {
        let due = rig.tables.poll(now).filter(|due| *due <= NOW + Duration::from_secs(16));
        steps.push(slots(&rig)[1]);
        match due {
            Some(due) if due > now => now = due,
            _ => break,
        }
    }
    assert_eq!((steps.first(), steps.last()), (Some(&0), Some(&64)));
    assert!(steps.windows(2).all(|pair| pair[1] - pair[0] <= 4), "{steps:?}");
}

#[test]
fn a_next_hop_on_a_port_that_is_down_is_taken_out_of_its_groups() {
    for selection in METHODS {
        let mut rig = rig(&[1, 1, 1], selection);
        let flows = flows(selection, 1000);
        rig.tables.set_up(PortId(2), false, NOW).unwrap();
        let after = counts(&ports(&mut rig, &flows));
        assert!(after[2] == 0 && after[0] > 400 && after[1] > 400, "{after:?}");
        rig.tables.set_up(PortId(0), false, NOW).unwrap();
        rig.tables.set_up(PortId(1), false, NOW).unwrap();
        assert_eq!(rig.outcome(TO), Outcome::PortDown);
        rig.tables.set_up(PortId(2), true, NOW).unwrap();
        assert_eq!(rig.decide(TO).port, PortId(2));
    }
}

/// Lets solicitations for a gateway go unanswered until its neighbor has failed.
fn fail(rig: &mut Rig, port: u16, mut now: Duration) -> Duration {
    let bits = 0x0a00_00fe | u32::from(port) << 8;
    rig.tables.resolve_neighbor(PortId(port), bits, now).unwrap();
    for _ in 0..100 {
        if rig.tables.neighbor(PortId(port), bits, now).is_some_and(|neighbor| neighbor.state == "FAILED") {
            return now;
        }
        now = rig.tables.poll(now + Duration::from_millis(1)).expect("a neighbor is being asked");
    }
    panic!("the neighbor has not failed after {:?}", now - NOW)
}

#[test]
fn a_next_hop_whose_neighbor_does_not_answer_is_taken_out_while_others_live() {
    let mut rig = Rig::new(3);
    rig.add(PREFIX, &several(&[1, 1, 1], Selection::Hash)).unwrap();
    (0..2).for_each(|port| rig.know(port, &gateway(port).to_string(), 9));
    let flows = flows(Selection::Hash, 1000);
    assert!(counts(&ports(&mut rig, &flows))[2] > 250);
    let mut now = fail(&mut rig, 2, NOW);
    assert_eq!(counts(&ports(&mut rig, &flows))[2], 0);
    // It gets no packets now, so the router itself asks again, and takes it back when it answers.
    let mut asked = Vec::new();
    rig.tables.drain_actions(&mut asked);
    asked.clear();
    for _ in 0..1000 {
        now = rig.tables.poll(now).unwrap().max(now + Duration::from_millis(1));
    }
    rig.tables.drain_actions(&mut asked);
    assert!(asked.iter().any(|(port, _)| *port == PortId(2)));
    let link = mac(2, 9);
    rig.tables.set_neighbor(PortId(2), gateway(2), link, artery_l3::neighbor::Kind::Temporary, now).unwrap();
    assert!(counts(&ports(&mut rig, &flows))[2] > 250);
}

#[test]
fn if_none_answers_packets_hear_that() {
    let mut rig = Rig::new(2);
    rig.add(PREFIX, &several(&[1, 1], Selection::Hash)).unwrap();
    let now = fail(&mut rig, 0, NOW);
    fail(&mut rig, 1, now);
    assert_eq!(rig.outcome(TO), Outcome::Failed);
    rig.know(0, &gateway(0).to_string(), 9);
    assert_eq!(rig.sent(TO), Some((0, mac(0, 9))));
}

#[test]
fn a_next_hop_whose_path_is_down_is_not_used_even_if_there_is_no_other() {
    for selection in METHODS {
        let mut rig = rig(&[1, 1], selection);
        let flows = flows(selection, 1000);
        assert_eq!(rig.tables.is_gateway_usable(PortId(0), gateway(0)), Some(true));
        rig.tables.set_path_down(PortId(0), gateway(0), true);
        assert_eq!(counts(&ports(&mut rig, &flows))[..2], [0, 1000]);
        assert_eq!(rig.tables.is_gateway_usable(PortId(0), gateway(0)), Some(false));
        rig.tables.set_path_down(PortId(1), gateway(1), true);
        assert_eq!(rig.outcome(TO), Outcome::NextHopDown);
        // The gateway itself is on a link that is up.
        assert_eq!(rig.outcome(&gateway(1).to_string()), Outcome::Forward);
        rig.tables.set_path_down(PortId(1), gateway(1), false);
        assert_eq!(counts(&ports(&mut rig, &flows))[..2], [0, 1000]);
        rig.tables.set_path_down(PortId(0), gateway(0), false);
        rig.tables.rebalance_groups();
        assert!(counts(&ports(&mut rig, &flows))[0] > 400);
    }
}

#[test]
fn among_next_hops_that_fail_one_whose_path_is_down_is_not_tried() {
    let mut rig = Rig::new(2);
    rig.add(PREFIX, &several(&[1, 1], Selection::Hash)).unwrap();
    fail(&mut rig, 0, NOW);
    rig.tables.set_path_down(PortId(1), gateway(1), true);
    for flow in [0, u32::MAX] {
        assert_eq!(rig.explain(TO, flow).decision.outcome, Outcome::Failed);
    }
}

#[test]
fn a_path_that_is_down_is_so_for_routes_that_come_later() {
    let mut rig = Rig::new(1);
    rig.know(0, "10.0.0.254", 9);
    assert_eq!(rig.tables.is_gateway_usable(PortId(0), gateway(0)), None);
    rig.tables.set_path_down(PortId(0), gateway(0), true);
    rig.add(PREFIX, &via("10.0.0.254")).unwrap();
    assert_eq!(rig.outcome(TO), Outcome::NextHopDown);
    rig.tables.set_path_down(PortId(0), gateway(0), false);
    assert_eq!(rig.outcome(TO), Outcome::Forward);
}

#[test]
fn the_member_that_was_chosen_can_be_named() {
    let mut rig = rig(&[1, 2], Selection::Hash);
    for flow in [0, 0x7fff_ffff, u32::MAX] {
        let explained = rig.explain(TO, flow);
        let hop = rig.tables.group_member(explained.group, explained.member.unwrap()).unwrap();
        let port = explained.decision.port;
        assert_eq!(hop.gateway(), Some((port, gateway(port.0))));
    }
}

#[test]
fn groups_are_shared_whatever_the_order_of_their_members() {
    let mut rig = Rig::new(2);
    let both =
        |first: u16| RouteSpec::multipath([(gateway(first), 1), (gateway(1 - first), 1)], Selection::Hash);
    rig.add("192.0.2.0/24", &both(0)).unwrap();
    rig.add("198.51.100.0/24", &both(1)).unwrap();
    let group = |to: &str| rig.tables.lookup_route(ip(to)).unwrap().group;
    assert_eq!(group("192.0.2.1"), group("198.51.100.1"));
    assert_eq!(rig.tables.group_view(group("192.0.2.1")).unwrap().routes, 2);
    rig.tables.withdraw_gateway(PortId(0), gateway(0), true);
    let ports = ["192.0.2.1", "198.51.100.1"].map(|to| rig.decide(to).port);
    assert_eq!(ports, [PortId(1); 2]);
}
