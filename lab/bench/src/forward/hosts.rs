//! A switch under test as text, and the frames that circulate in it.
//!
//! Half of the hosts are sources, whose MAC addresses the switch learns from their frames; the other half are
//! destinations, whose MAC table entries are added before. Each frame has one source and one destination,
//! both drawn at random; or it belongs to one of so many flows, each of which is between two hosts.

use super::case::{Case, Meets};
use super::network::{FRAME, Frame, filled, in_random_order, name, placed};
use artery_wire::EtherAddr;
use artery_wire::Random;
use artery_wire::build::{ether, ip4, ip6};
use artery_wire::{EtherType, IpProtocol};
use std::net::{Ipv4Addr, Ipv6Addr};

/// The rules of May 2021: a state for each connection.
const RULES: &str = include_str!("../../../../conf/veb2021/pf.conf");
/// From so many flows on more states are wanted than pf allows if nothing is said.
const MANY: u32 = 20_000;
const SEED: u64 = 7;
/// MAC table entries that one write adds.
const TOGETHER: u32 = 500;

/// The MAC address of a host: the first two bytes say on which side it is.
pub(super) fn host_mac(side: u8, number: u32) -> EtherAddr {
    let [a, b, c, d] = number.to_be_bytes();
    EtherAddr([2, side, a, b, c, d])
}
const HERE: u8 = 1;
const THERE: u8 = 2;

/// Number of hosts on each side.
fn of_side(hosts: u32) -> u32 {
    (hosts / 2).max(1)
}

pub(super) fn text(case: &Case, hosts: u32) -> String {
    let limit = case.limit.map(|limit| format!(", {limit}")).unwrap_or_default();
    let link1 = if case.meets == Meets::Filter { ", LINK1 true" } else { "" };
    let switch = |n: usize| {
        format!(
            "receive{n} :: FromDevice(in{n}, SNIFFER false, ACTIVE false) -> play{n} :: Play({n}{limit})
    -> forward{n} :: Veb(PORT in{n}, PORT out{n}, MAXADDR {}{link1}); Idle -> [1] forward{n};
forward{n} -> odd{n} :: Counter -> Discard;
forward{n}[1] -> send{n} :: ToDevice(out{n});\n",
            2 * of_side(hosts)
        )
    };
    (0..case.workers).map(switch).collect::<String>() + &placed(case)
}

/// Handlers to write in the run, with the values that add MAC table entries.
pub(super) fn known(case: &Case, hosts: u32) -> Vec<(String, String)> {
    let numbers: Vec<u32> = (0..of_side(hosts)).collect();
    let words = |worker: usize, numbers: &[u32]| {
        let word = |number: &u32| format!("static {} {} ", name("out", worker), host_mac(THERE, *number));
        (format!("{}.ifconfig", name("forward", worker)), numbers.iter().map(word).collect::<String>())
    };
    let of = |worker| {
        let hosts = numbers.chunks(TOGETHER as usize).map(move |numbers| words(worker, numbers));
        hosts.chain(rules(case, worker)).collect::<Vec<_>>()
    };
    (0..case.workers).flat_map(of).collect()
}

/// What loads the rules of a filter.
fn rules(case: &Case, worker: usize) -> Option<(String, String)> {
    let limit = match case.flows {
        // Each flow has a state at either port.
        Some(flows) if flows >= MANY => format!("set limit states {}\n", 4 * flows),
        _ => String::new(),
    };
    let load = (format!("{}.pf_load", name("forward", worker)), format!("\n{limit}{RULES}"));
    (case.meets == Meets::Filter).then_some(load)
}

/// The frames of a worker, of so many flows: UDP over IPv4, or ESP over IPv6, which a filter's fast path does
/// not take.
pub(super) fn frames_of(case: &Case, hosts: u32, flows: u32, worker: usize) -> Vec<Frame> {
    let half = of_side(hosts);
    let host = |net: u8, number: u32| Ipv4Addr::from_bits(u32::from(net) << 16 | 10 << 24 | number);
    let frame = |flow: u32| {
        // Each host has flows to others, which are at other ports, or of IPv6 have other addresses.
        let (from, round) = (flow % half, flow / half);
        let to = (from * 7 + round) % half;
        let frame = ether(host_mac(THERE, to), host_mac(HERE, from));
        let frame = if case.family == 6 {
            let host = |net: u16, number: u32| {
                Ipv6Addr::from([0x2001, 0xdb8, 0, 0, round as u16, 0, net, number as u16])
            };
            frame.ip6(ip6().src(host(1, from)).dst(host(2, to)).raw(IpProtocol::ESP.0, [0; 6]))
        } else {
            let udp = ip4().src(host(1, from)).dst(host(2, to)).udp(1024 + round as u16, 53);
            frame.ip4(udp.payload([0; 18]))
        };
        filled(&frame.bytes())
    };
    in_random_order(flows, case.packets, worker).into_iter().map(frame).collect()
}

/// The frames of a worker.
pub(super) fn frames(hosts: u32, count: usize, worker: usize) -> Vec<Frame> {
    let mut random = Random::new(SEED + worker as u64);
    let mut any = |side| host_mac(side, random.below(of_side(hosts).into()) as u32);
    let frame = |_| {
        let bytes = ether(any(THERE), any(HERE)).ip4(ip4().udp(1, 2).payload([0; 18])).bytes();
        Frame(std::array::from_fn(|at| bytes.get(at).copied().unwrap_or(0)))
    };
    (0..count).map(frame).collect()
}

/// Whether a frame is as it was sent.
pub(super) fn was_switched(frame: &[u8; FRAME]) -> bool {
    let is_ip = [EtherType::IPV4, EtherType::IPV6].map(|kind| kind.0.to_be_bytes());
    frame[..2] == [2, THERE] && frame[6..8] == [2, HERE] && is_ip.contains(&[frame[12], frame[13]])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn frames_go_from_one_side_to_the_other() {
        let frames = frames(10, 300, 0);
        assert!(frames.len() == 300 && frames.iter().all(|frame| was_switched(&frame.0)));
        let sources: std::collections::HashSet<_> =
            frames.iter().map(|frame| frame.0[6..12].to_vec()).collect();
        assert_eq!(sources.len(), 5);
        let mut back = frames[0].0;
        back[1] = HERE;
        assert!(!was_switched(&back));
    }

    #[test]
    fn flows_are_between_hosts_and_as_many_as_wanted() {
        for (family, ends) in [(4, 26..38), (6, 22..54)] {
            let case = Case { family, packets: 1000, ..Case::of_hosts(10) };
            let frames = frames_of(&case, 10, 300, 0);
            assert!(frames.iter().all(|frame| was_switched(&frame.0)));
            let distinct = |range: std::ops::Range<usize>| {
                let parts = frames.iter().map(|frame| frame.0[range.clone()].to_vec());
                parts.collect::<std::collections::HashSet<_>>().len()
            };
            assert_eq!((distinct(0..12), distinct(ends)), (25, 300));
        }
    }
}
