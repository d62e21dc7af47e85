//! Packets of a service that show no flow of their own: errors about answers, and fragments.
use super::about::{KeyFromParts, QuotedHeader};
use super::chooser::{AssignmentSink, BatchPacket, MemberChooser};
use super::fragments::{DatagramKey, FragmentPart, FragmentTracker};
use super::tally::BalancerCounters;
use artery_flow::balance::MemberId;
use artery_flow::{FlowTable, KeyedPacket, Pattern};
use std::time::Duration;

/// Those of a batch, and what one worker remembers of fragments.
#[derive(Debug)]
pub(super) struct OtherPackets<K> {
    recorded: Vec<(BatchPacket, OtherPacket<K>)>,
    datagrams: FragmentTracker<MemberId>,
}

/// What a packet is that has no flow by itself.
#[derive(Clone, Copy, Debug)]
enum OtherPacket<K> {
    /// An error about an answer of a flow.
    Error(K),
    /// The first part of a datagram.
    First(DatagramKey, KeyedPacket<K>),
    /// Another part of one.
    Later(DatagramKey),
}

impl<K> Default for OtherPackets<K> {
    fn default() -> OtherPackets<K> {
        OtherPackets { recorded: Vec::new(), datagrams: FragmentTracker::default() }
    }
}

impl<K: KeyFromParts> OtherPackets<K> {
    /// Clears the last batch.
    #[inline]
    pub(super) fn clear(&mut self) {
        self.recorded.clear();
    }

    #[inline]
    pub(super) fn expire_old(&mut self, now: Duration) {
        self.datagrams.expire_old(now);
    }

    /// How many packets were noted.
    #[inline]
    pub(super) fn count(&self) -> usize {
        self.recorded.len()
    }

    /// Records a packet of the batch, from its IP header on, if it is for a service after all.
    /// Returns whether it is.
    #[cold]
    pub(super) fn record_packet(
        &mut self,
        noted: BatchPacket,
        packet: &[u8],
        services: &[Pattern<K>],
    ) -> bool {
        let is_served = |key: &K| services.iter().any(|service| service.matches_key(key));
        let other = match QuotedHeader::parse_packet(packet).and_then(|about| about.reply_key()) {
            Some(key) if is_served(&key) => OtherPacket::Error(key),
            Some(_) => return false,
            None => match FragmentPart::parse_fragment(packet) {
                Some((datagram, FragmentPart::First(seen))) if is_served(&seen.key) => {
                    OtherPacket::First(datagram, seen)
                }
                Some((datagram, FragmentPart::Later)) if self.is_known(&datagram) => {
                    OtherPacket::Later(datagram)
                }
                _ => return false,
            },
        };
        self.recorded.push((noted, other));
        true
    }

    /// Whether the first fragment of a datagram has gone to a member, or is earlier in the batch.
    fn is_known(&self, datagram: &DatagramKey) -> bool {
        let is_first =
            |other: &OtherPacket<K>| matches!(other, OtherPacket::First(first, _) if first == datagram);
        self.datagrams.lookup_datagram(datagram).is_some()
            || self.recorded.iter().any(|(_, other)| is_first(other))
    }

    /// Assigns the recorded packets and reports their members. All others of the batch come before, since one
    /// of them may have begun the flow.
    #[cold]
    pub(super) fn assign_members(
        &mut self,
        flows: &mut Option<FlowTable<K>>,
        by: &mut MemberChooser<'_>,
        tally: &mut BalancerCounters,
        to: &mut impl AssignmentSink,
    ) {
        for (noted, other) in &self.recorded {
            let member = match other {
                OtherPacket::Error(key) => by.likely_member(flows, key),
                OtherPacket::First(_, seen) => by.assign_single(flows, seen, tally),
                OtherPacket::Later(datagram) => self.datagrams.lookup_datagram(datagram),
            };
            match (other, member) {
                (OtherPacket::Error(_), Some(_)) => tally.errors += 1,
                (OtherPacket::First(datagram, _), Some(member)) => {
                    self.datagrams.insert_datagram(*datagram, member, by.now)
                }
                (OtherPacket::Later(_), Some(_)) => tally.followed += 1,
                (_, None) => {}
            }
            to.on_assigned(*noted, member);
        }
    }
}

#[cfg(test)]
mod tests {
    use crate::about::tests::{answer, answer6, too_long, too_long6};
    use crate::flow_balancer::CLASS;
    use artery_engine::{Bench, anno};
    use artery_wire::TcpFlags;
    use artery_wire::build::{Ip4, ip4, ip6};
    use std::net::Ipv4Addr;
    use std::time::Duration;

    const THREE: &str = "SERVICE 192.0.2.1:80, MEMBER a 10.0.0.1, MEMBER b 10.0.0.2, MEMBER c 10.0.0.3";
    const CLIENTS: std::ops::Range<u16> = 1..201;

    fn bench(more: &str) -> Bench {
        Bench::setup(&CLASS, &format!("{THREE}{more}")).outputs(2).build().unwrap()
    }
    fn packet(client: u16, flags: TcpFlags) -> Ip4 {
        ip4().src("198.51.100.7").dst("192.0.2.1").tcp(client, 80).flags(flags)
    }
    /// The member that a packet is sent to, unchanged.
    #[track_caller]
    fn member(bench: &mut Bench, packet: Ip4) -> Ipv4Addr {
        bench.push(0, packet.bytes());
        bench.expect(0, packet.bytes()).dst_ip()
    }
    fn members(bench: &mut Bench, packet: impl Fn(u16) -> Ip4) -> Vec<Ipv4Addr> {
        CLIENTS.map(|client| member(bench, packet(client))).collect()
    }
    fn count(bench: &mut Bench, name: &str) -> u64 {
        let counts = bench.read("counts", "").unwrap();
        let line = counts.lines().find_map(|line| line.strip_prefix(&format!("{name} ")));
        line.unwrap_or_else(|| panic!("{name} in {counts}")).parse().unwrap()
    }
    fn about(client: u16) -> Ip4 {
        too_long(&answer(client).bytes()[..28])
    }

    #[test]
    fn an_error_about_an_answer_goes_to_who_has_the_flow_also_where_a_hash_would_not_find_it() {
        let mut bench = bench("");
        let before = members(&mut bench, |client| packet(client, TcpFlags::SYN));
        members(&mut bench, |client| packet(client, TcpFlags::ACK));
        bench.write("weight", "a 0").unwrap();
        bench.write("add_member", "d 10.0.0.4").unwrap();
        bench.write("method", "xor").unwrap();
        assert_eq!(members(&mut bench, about), before);
        assert_eq!(bench.read("flows", "").unwrap(), "200");
        assert_eq!(count(&mut bench, "errors-balanced"), 200);
        bench.write("remove_member", "b").unwrap();
        let after = members(&mut bench, about);
        assert!(!after.contains(&Ipv4Addr::new(10, 0, 0, 2)), "who is gone gets nothing");
    }

    #[test]
    fn without_a_flow_an_error_goes_where_the_hash_says_and_leaves_no_trace() {
        for method in ["maglev", "hash", "xor", "resilient"] {
            for state in [true, false] {
                let mut bench = bench(&format!(", METHOD {method}, STATE {state}"));
                let errors = members(&mut bench, about);
                assert_eq!(bench.read("flows", "").unwrap(), "0");
                assert_eq!(members(&mut bench, |client| packet(client, TcpFlags::SYN)), errors, "{method}");
            }
        }
        for method in ["per-packet", "flowlet", "least-loaded"] {
            let [mut one, mut other] = [0, 1].map(|_| bench(&format!(", METHOD {method}")));
            members(&mut one, about);
            let [one, other] =
                [&mut one, &mut other].map(|bench| members(bench, |client| packet(client, TcpFlags::SYN)));
            assert_eq!(one, other, "{method}");
        }
    }

    #[test]
    fn an_error_proves_no_flow_and_keeps_none_from_being_idle() {
        let mut bench = bench(", PRESET paper");
        members(&mut bench, |client| packet(client, TcpFlags::SYN));
        bench.advance_time(Duration::from_secs(20));
        members(&mut bench, about);
        assert_eq!(count(&mut bench, "flows-unproven"), 200);
        bench.advance_time(Duration::from_secs(11));
        assert_eq!(bench.read("flows", "").unwrap(), "0");
    }

    #[test]
    fn an_error_in_the_batch_of_the_first_packet_follows_it() {
        let mut bench = bench(", METHOD least-loaded");
        for client in CLIENTS {
            let both = [about(client).bytes(), packet(client, TcpFlags::SYN).bytes()];
            let packets: Vec<_> = both.iter().map(|bytes| bench.packet(bytes)).collect();
            bench.push_packets(0, packets);
            let sent = bench.drain_sent(0);
            assert_eq!((sent.len(), sent[0].dst_ip()), (2, sent[1].dst_ip()));
        }
    }

    #[test]
    fn errors_about_what_is_not_the_services_pass() {
        let mut bench = bench("");
        let others = [
            too_long(answer(5).tcp(81, 5).bytes()),
            too_long(answer(5).src("192.0.2.2").bytes()),
            too_long(answer(5).bytes()).dst("192.0.2.2"),
            too_long(ip4().src("192.0.2.1").dst("198.51.100.7").icmp_echo(1, 2).bytes()),
            ip4().src("198.51.100.7").dst("192.0.2.1").icmp_echo(1, 2),
        ];
        for packet in others {
            bench.push(0, packet.bytes());
            bench.expect(1, packet.bytes());
        }
        let whole = about(5).bytes();
        for length in 0..whole.len() {
            bench.push(0, &whole[..length]);
            let left = bench.drain_sent(0).len() + bench.drain_sent(1).len();
            assert_eq!(left, 1, "{length}");
        }
    }

    #[test]
    fn with_nat_an_error_is_about_the_members_packet() {
        let config = "SERVICE 192.0.2.1:80 tcp, MEMBER a 10.0.0.1:8080, FORWARD nat";
        let mut bench = Bench::setup(&CLASS, config).inputs(2).outputs(3).build().unwrap();
        bench.push(0, about(5).bytes());
        let quoted = &answer(5).src("10.0.0.1").tcp(8080, 5).bytes()[..28];
        bench.expect(0, too_long(quoted).dst("10.0.0.1").bytes());
        let config = "SERVICE [2001:db8::1]:80 tcp, MEMBER a [2001:db8:2::a]:8080, FORWARD nat";
        let mut bench = Bench::setup(&CLASS, config).inputs(2).outputs(3).build().unwrap();
        bench.push(0, too_long6(answer6(5).bytes()).bytes());
        let quoted = answer6(5).src("2001:db8:2::a").tcp(8080, 5).bytes();
        let sent = bench.expect(0, too_long6(quoted).dst("2001:db8:2::a").bytes());
        assert_eq!(sent.annotation::<16>(anno::DST_IP6)[15], 0x0a);
    }

    /// Parts of a datagram of a client: the first, and the last.
    fn parts(client: u16) -> [Ip4; 2] {
        let part = || ip4().src("198.51.100.7").dst("192.0.2.1").id(client);
        [
            part().fragment(0, true).udp(client, 80).payload([1; 24]),
            part().fragment(32, false).raw(17, [1; 24]),
        ]
    }

    #[test]
    fn fragments_go_where_the_first_of_their_datagram_went_and_that_where_its_flow_goes() {
        let mut bench = bench("");
        let first = members(&mut bench, |client| parts(client)[0].clone());
        assert_eq!(members(&mut bench, |client| parts(client)[1].clone()), first);
        let whole = |client| ip4().src("198.51.100.7").dst("192.0.2.1").udp(client, 80);
        assert_eq!(members(&mut bench, whole), first);
        assert_eq!(count(&mut bench, "fragments-followed"), 200);
        bench.advance_time(Duration::from_secs(2));
        let [_, last] = parts(5);
        bench.push(0, last.bytes());
        bench.expect(1, last.bytes());
    }

    #[test]
    fn fragments_of_a_batch_follow_the_first_and_those_before_it_pass() {
        let mut bench = bench("");
        let [first, last] = parts(5).map(|part| part.bytes());
        let packets: Vec<_> = [&last, &first, &last].map(|bytes| bench.packet(bytes)).into();
        bench.push_packets(0, packets);
        let sent = bench.drain_sent(0);
        assert_eq!((sent.len(), sent[0].dst_ip()), (2, sent[1].dst_ip()));
        bench.expect(1, &last);
        assert_eq!(count(&mut bench, "packets-of-others"), 1);
    }

    #[test]
    fn with_nat_fragments_of_both_families_get_the_members_address() {
        let config = "SERVICE 192.0.2.1:80, MEMBER a 10.0.0.1, FORWARD nat";
        let mut bench = Bench::setup(&CLASS, config).inputs(2).outputs(3).build().unwrap();
        for part in parts(5) {
            bench.push(0, part.bytes());
            bench.expect(0, part.dst("10.0.0.1").bytes());
        }
        let config = "SERVICE 2001:db8::1, MEMBER a 2001:db8:2::a, FORWARD nat";
        let mut bench = Bench::setup(&CLASS, config).inputs(2).outputs(3).build().unwrap();
        let part = |to: &str, at| {
            let part = ip6().src("2001:db8:7::7").dst(to).fragment(at, at == 0, 9);
            if at == 0 { part.udp(5, 80).payload([1; 24]) } else { part.raw(17, [1; 24]) }
        };
        for at in [0, 32] {
            bench.push(0, part("2001:db8::1", at).bytes());
            bench.expect(0, part("2001:db8:2::a", at).bytes());
        }
    }
}
