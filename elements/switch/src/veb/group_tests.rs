//! Multicast frames, and the messages of hosts and routers about groups.
use super::tests::{CLASS, bench, count, goes, of};
use super::*;
use artery_engine::{Bench, Packet};
use artery_wire::build::{Ip4, ether, ip4, ip6};
use artery_wire::membership::{Membership, igmp_query, mld_query};
use artery_wire::{EtherAddr, Icmp6Type, IpProtocol, checksum};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

const A: &str = "02:00:00:00:00:0a";
const B: &str = "02:00:00:00:00:0b";
const R: &str = "02:00:00:00:00:01";
const GROUP: Ipv4Addr = Ipv4Addr::new(239, 1, 1, 1);

fn to_group(group: Ipv4Addr, from: &str, packet: Ip4) -> Vec<u8> {
    ether(EtherAddr::multicast_v4(group), from).ip4(packet.dst(group)).bytes()
}

/// Data for a group.
fn data(group: Ipv4Addr) -> Vec<u8> {
    to_group(group, A, ip4().udp(1, 2))
}

/// A message of IGMPv2 about a group.
fn igmp(kind: u8, group: Ipv4Addr, from: &str) -> Vec<u8> {
    let mut message = [&[kind, 0, 0, 0][..], &group.octets()].concat();
    let sum = checksum::checksum(&message).to_be_bytes();
    message[2..4].copy_from_slice(&sum);
    to_group(group, from, ip4().ttl(1).raw(IpProtocol::IGMP.0, message))
}

fn joins(group: Ipv4Addr) -> Vec<u8> {
    igmp(0x16, group, B)
}

/// A general query of a router.
fn query(source: &str) -> Vec<u8> {
    let (packet, to) = igmp_query(source.parse().unwrap(), None);
    ether(EtherAddr::multicast_v4(to), R).raw(EtherType::IPV4, packet).bytes()
}

/// A switch of four ports after a router at em3 has sent a query long enough ago.
fn asked(more: &str) -> Bench {
    let ifconfig = format!("IFCONFIG \"snoop {more}\"");
    let mut bench = of("PORT em0, PORT em1, PORT em2, PORT em3", 4, 4, &ifconfig);
    goes(&mut bench, 3, &query("10.0.0.1"), &[0, 1, 2]);
    goes(&mut bench, 0, &data(GROUP), &[1, 2, 3]);
    bench.advance_time(Duration::from_secs(11));
    bench
}

#[test]
fn a_port_without_groups_gets_those_that_it_is_a_member_of() {
    let mut bench = asked("");
    bench.write("ifconfig", "nomulticast em1 nomulticast em2").unwrap();
    goes(&mut bench, 1, &joins(GROUP), &[3]);
    goes(&mut bench, 0, &data(GROUP), &[1, 3]);
    goes(&mut bench, 0, &data(Ipv4Addr::new(224, 0, 0, 251)), &[3]);
}

#[test]
fn frames_for_a_group_go_to_its_members_and_to_routers() {
    let mut bench = asked("");
    goes(&mut bench, 0, &data(GROUP), &[3]);
    goes(&mut bench, 1, &joins(GROUP), &[3]);
    assert_eq!(bench.read("groups", "").unwrap(), "239.1.1.1 em1 260\nrouter ipv4 em3 244\n");
    goes(&mut bench, 0, &data(GROUP), &[1, 3]);
    goes(&mut bench, 1, &data(GROUP), &[3]);
    goes(&mut bench, 0, &data(Ipv4Addr::new(239, 1, 1, 2)), &[3]);
    goes(&mut bench, 0, &data(Ipv4Addr::new(224, 0, 0, 251)), &[1, 2, 3]);
    // Members of IPv6 groups are unknown: no router has queried for them.
    let v6 = ether("33:33:00:00:00:07", A).ip6(ip6().dst("ff05::7").udp(1, 2)).bytes();
    goes(&mut bench, 0, &v6, &[1, 2, 3]);
    // A group address that is not one of IP floods as Ethernet multicast.
    let other = ether("01:00:5e:01:01:01", A).raw(EtherType(0x88b5), [0; 50]).bytes();
    goes(&mut bench, 0, &other, &[1, 2, 3]);
    goes(&mut bench, 1, &igmp(0x17, GROUP, B), &[3]);
    bench.advance_time(Duration::from_secs(3));
    goes(&mut bench, 0, &data(GROUP), &[3]);
    assert_eq!((count(&mut bench, "group-reports"), count(&mut bench, "group-queries")), (2, 1));
    bench.write("ifconfig", "-snoop").unwrap();
    goes(&mut bench, 0, &data(GROUP), &[1, 2, 3]);
}

#[test]
fn a_port_gets_all_groups_or_is_left_at_once_where_that_is_said() {
    let mut bench = asked("mcastrouter em2 fastleave em1");
    goes(&mut bench, 1, &joins(GROUP), &[2, 3]);
    goes(&mut bench, 0, &data(GROUP), &[1, 2, 3]);
    goes(&mut bench, 1, &igmp(0x17, GROUP, B), &[2, 3]);
    bench.advance_time(Duration::from_millis(20));
    goes(&mut bench, 0, &data(GROUP), &[2, 3]);
    let shown = bench.read("show", "").unwrap();
    assert!(shown.contains("\tsnoop\n"), "{shown}");
    assert!(shown.contains("flags=1003<LEARNING,DISCOVER,MCASTROUTER>"), "{shown}");
    let config = bench.read("config", "").unwrap();
    for command in ["snoop", "-querier", "mcastrouter em2", "fastleave em1"] {
        assert!(config.lines().any(|line| line == command), "{command} in {config}");
    }
}

#[test]
fn listeners_of_ipv6_are_heard_as_well() {
    let mut bench = asked("");
    let (packet, to) = mld_query("fe80::1".parse().unwrap(), None);
    let query = ether(EtherAddr::multicast_v6(to), R).raw(EtherType::IPV6, packet).bytes();
    goes(&mut bench, 3, &query, &[0, 1, 2]);
    bench.advance_time(Duration::from_secs(11));
    let group: Ipv6Addr = "ff05::7".parse().unwrap();
    let record = [&[4, 0, 0, 0][..], &group.octets()].concat();
    let report = ip6().src("fe80::b").dst("ff02::16").hop_limit(1).extension(0, [5, 2, 0, 0, 1, 0]);
    let report = report.icmp(Icmp6Type::LISTENER_REPORT_V2, 0, [0, 0, 0, 1]).payload(record);
    goes(&mut bench, 2, &ether("33:33:00:00:00:16", B).ip6(report).bytes(), &[3]);
    let data = ether("33:33:00:00:00:07", A).ip6(ip6().dst(group).udp(1, 2)).bytes();
    goes(&mut bench, 0, &data, &[2, 3]);
    assert!(bench.read("groups", "").unwrap().starts_with("ff05::7 em2 260\n"));
    let solicitation = ether("33:33:ff:00:00:07", A).ip6(ip6().dst("ff02::1:ff00:7").udp(1, 2)).bytes();
    goes(&mut bench, 0, &solicitation, &[1, 2, 3]);
}

/// All that has left, with where.
fn all(bench: &mut Bench) -> Vec<(usize, Packet)> {
    (0..3).flat_map(|output| bench.drain_sent(output).into_iter().map(move |frame| (output, frame))).collect()
}

/// The group message of a frame, behind its tag if it has one.
fn asks(frame: &Packet) -> Option<(u16, IpAddr, Option<IpAddr>)> {
    let bytes = frame.data();
    let is_tagged = bytes[12..14] == EtherType::VLAN.0.to_be_bytes();
    let (vlan, at) = if is_tagged { (u16::from_be_bytes([bytes[14], bytes[15]]), 16) } else { (0, 12) };
    let ether_type = EtherType(u16::from_be_bytes([bytes[at], bytes[at + 1]]));
    match Membership::parse_packet(ether_type, &bytes[at + 2..]) {
        Ok(Some(Membership::Query { source, group })) => Some((vlan, source, group)),
        _ => None,
    }
}

#[test]
fn a_switch_that_asks_itself_needs_no_router() {
    let words = "snoop querier 10.0.0.5 untagged em1 7 tagged em2 7";
    let mut bench = bench(&format!("ETHER 02:00:00:00:00:05, IFCONFIG \"{words}\""));
    bench.advance_time(Duration::from_secs(1));
    let asked = all(&mut bench);
    let words: Vec<_> = asked.iter().map(|(output, frame)| (*output, asks(frame).unwrap())).collect();
    let (v4, v6): (IpAddr, IpAddr) = ("10.0.0.5".parse().unwrap(), "fe80::ff:fe00:5".parse().unwrap());
    let both = |output: usize, vlan: u16| [(output, (vlan, v4, None)), (output, (vlan, v6, None))];
    let expected = [&both(0, 0)[..], &both(1, 0), &both(2, 0), &both(2, 7)].concat();
    assert_eq!(words.len(), expected.len());
    assert!(expected.iter().all(|one| words.contains(one)), "{words:?}");
    bench.advance_time(Duration::from_secs(11));
    all(&mut bench);
    // Only the switch uses the report.
    goes(&mut bench, 2, &joins(GROUP), &[]);
    goes(&mut bench, 0, &data(GROUP), &[2]);
    goes(&mut bench, 1, &data(GROUP), &[]);
    assert_eq!(bench.read("groups", "").unwrap(), "239.1.1.1 em2 260\n");
    assert!(bench.read("show", "").unwrap().contains("\tsnoop querier 10.0.0.5\n"));
    // The last one leaves: the switch queries for further members.
    bench.push(2, igmp(0x17, GROUP, B));
    bench.advance_time(Duration::from_millis(1500));
    let asked: Vec<_> =
        all(&mut bench).iter().map(|(output, frame)| (*output, asks(frame).unwrap())).collect();
    assert_eq!(asked.iter().filter(|one| **one == (2, (0, v4, Some(GROUP.into())))).count(), 2, "{asked:?}");
}

#[test]
fn what_is_malformed_is_counted_and_a_replacement_knows_all_groups() {
    let mut bench = asked("");
    let mut broken = joins(GROUP);
    *broken.last_mut().unwrap() ^= 1;
    goes(&mut bench, 1, &broken, &[3]);
    assert_eq!(count(&mut bench, "group-malformed"), 1);
    goes(&mut bench, 1, &joins(GROUP), &[3]);
    let ports = "PORT em0, PORT em1, PORT em2, PORT em3, IFCONFIG \"snoop\"";
    let setup = Bench::setup(&CLASS, ports).inputs(4).outputs(4).sharing_with(&bench);
    let mut next = setup.as_replacement().build().unwrap();
    next.take_state(&mut bench);
    // Its clock starts at zero, unlike a router's.
    next.advance_time(Duration::from_secs(12));
    goes(&mut next, 0, &data(GROUP), &[1, 3]);
}
