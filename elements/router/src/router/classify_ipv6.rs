//! Classifies IPv6 packets (RFC 8200, RFC 4291, RFC 4443, RFC 4861).
use super::packet_context::{Checked, Classified, PacketContext, RouteErrors, drop_with, reject_with};
use super::verdict::{
    FlowOf, IcmpReply, IngressInfo, NeighborMessage, Origin, RouterVerdict, TablesView, is_forwardable,
};
use artery_engine::DropReason;
use artery_l3::path::{Explained, Outcome};
use artery_l3::router::PortView;
use artery_lpm::Prefix;
use artery_wire::{Icmp6, Icmp6Error, Icmp6Type, Ip6Headers, Ip6Options, IpProtocol, Ipv6};
use std::net::{IpAddr, Ipv6Addr};

/// Classifies a packet, from its IP header on. If it is yet to be cut into segments, none of them
/// is longer than `longest`.
pub(crate) fn classify(
    packet: &[u8],
    longest: usize,
    came: IngressInfo,
    view: &TablesView<'_>,
    flow: FlowOf<'_>,
) -> RouterVerdict {
    PacketContext { packet, longest, ingress: came, view, path: view.v6 }
        .classify(flow)
        .unwrap_or_else(|end| end)
}

impl PacketContext<'_, u128> {
    fn classify(&self, flow: FlowOf<'_>) -> Classified {
        let ip = self.check_header()?;
        self.check_source(&ip)?;
        if self.ingress.from == Origin::Host && self.is_discovery(&ip) {
            return Ok(RouterVerdict::Neighbor(NeighborMessage::Nd));
        }
        let found = self.lookup_route(self.effective_destination(&ip).to_bits(), flow);
        match found.decision.outcome {
            outcome if is_forwardable(outcome) => self.classify_transit(&ip, &found),
            Outcome::Local => self.classify_local(&ip, &found),
            Outcome::Multicast => self.classify_multicast(&ip),
            outcome => self.refuse_route(outcome, &route_errors()),
        }
    }

    /// The address it is routed by: its redirect target, or else its destination.
    fn effective_destination(&self, ip: &Ipv6<&[u8]>) -> Ipv6Addr {
        if let Some(IpAddr::V6(to)) = self.ingress.redirected_to { to } else { ip.dst() }
    }

    fn check_header(&self) -> Checked<Ipv6<&[u8]>> {
        self.check_destination_mac()?;
        Ipv6::validate(self.packet).map_err(DropReason::from)
    }

    /// RFC 4291 sections 2.5 and 2.7, RFC 3704.
    fn check_source(&self, ip: &Ipv6<&[u8]>) -> Checked {
        let source = ip.src();
        // A host without an address sends only to groups of its link.
        if source.is_unspecified() && is_of_link(ip.dst()) {
            return Ok(());
        }
        if source.is_multicast() || source.segments()[0] == 0 {
            return Err(DropReason::BadSource);
        }
        if source.is_unicast_link_local() {
            return Ok(());
        }
        self.check_reverse_path(source.to_bits())
    }

    /// For the router itself.
    fn classify_local(&self, ip: &Ipv6<&[u8]>, found: &Explained) -> Classified {
        let is_elsewhere = self.ingress.from.port().is_some_and(|port| port != found.decision.port);
        if ip.dst().is_unicast_link_local() && is_elsewhere && !self.is_ours(ip.dst()) {
            return drop_with(DropReason::LinkLocal);
        }
        self.check_frame()?;
        if self.is_from_outside() && self.is_anyones(ip.src()) {
            return drop_with(DropReason::OwnSource);
        }
        let headers = self.check_headers(ip)?;
        // RFC 5095 section 3; other routing headers are unknown here (RFC 8200 section 4.4).
        if let Some(routing) = headers.routing.filter(|routing| routing.segments_left > 0) {
            let error = Icmp6Error::parameter_problem(Icmp6Error::ERRONEOUS, routing.at as u32 + 2);
            return reject_with(IcmpReply::V6(error), DropReason::SourceRoute);
        }
        if headers.fragment.is_some_and(|fragment| fragment.offset > 0 || fragment.more) {
            let is_icmp = headers.protocol == IpProtocol::ICMPV6;
            return Ok(if is_icmp { RouterVerdict::Reassemble } else { RouterVerdict::Host });
        }
        Ok(self.classify_message(ip, &headers).unwrap_or(RouterVerdict::Host))
    }

    /// The headers of a packet that is not forwarded, or the verdict that its options require.
    fn check_headers(&self, ip: &Ipv6<&[u8]>) -> Classified<Ip6Headers<'_>> {
        let headers = Ip6Headers::parse_packet(self.packet);
        let headers =
            headers.or_else(|fault| reject_or_drop(Icmp6Error::for_headers(fault), DropReason::Malformed))?;
        for options in headers.hop_by_hop.iter().chain(headers.destination.iter().flatten()) {
            check_options(options, ip)?;
        }
        Ok(headers)
    }

    /// A message that the router itself understands.
    fn classify_message(&self, ip: &Ipv6<&[u8]>, headers: &Ip6Headers<'_>) -> Option<RouterVerdict> {
        let end = Ipv6::<&[u8]>::LEN + usize::from(ip.payload_length());
        let bytes =
            self.packet.get(headers.offset..end).filter(|_| headers.protocol == IpProtocol::ICMPV6)?;
        let icmp = Icmp6::new(bytes).ok()?;
        match icmp.icmp_type() {
            Icmp6Type(133..=137) => Some(RouterVerdict::Neighbor(NeighborMessage::Nd)),
            Icmp6Type::ECHO_REQUEST if ip.dst().is_multicast() => None,
            Icmp6Type::ECHO_REQUEST if icmp.checksum_is_valid(ip.src(), ip.dst()) => {
                Some(RouterVerdict::EchoReply)
            }
            _ => None,
        }
    }

    /// Whether it is Neighbor Discovery of the host on its own link, where only the router is.
    fn is_discovery(&self, ip: &Ipv6<&[u8]>) -> bool {
        let kind = self.packet.get(Ipv6::<&[u8]>::LEN).filter(|_| ip.next_header() == IpProtocol::ICMPV6);
        kind.is_some_and(|kind| (133..=137).contains(kind))
    }

    /// For a group: link-scoped groups are for the host or the router; others are discarded. The host
    /// solicits its neighbors by groups; its other messages to groups are discarded.
    fn classify_multicast(&self, ip: &Ipv6<&[u8]>) -> Classified {
        if !is_of_link(ip.dst()) || self.ingress.from == Origin::Router {
            return drop_with(DropReason::Multicast);
        }
        let headers = self.check_headers(ip)?;
        match self.classify_message(ip, &headers) {
            Some(verdict) => Ok(verdict),
            None if self.ingress.from == Origin::Host => drop_with(DropReason::Multicast),
            None => Ok(RouterVerdict::Host),
        }
    }

    /// Classifies a packet in transit.
    fn classify_transit(&self, ip: &Ipv6<&[u8]>, found: &Explained) -> Classified {
        self.check_frame()?;
        let is_hop = self.is_from_outside();
        if is_hop && ip.src().is_unicast_link_local() && self.ingress.from.port() != Some(found.decision.port)
        {
            let error = Icmp6Error::unreachable(Icmp6Error::BEYOND_SCOPE);
            return reject_with(IcmpReply::V6(error), DropReason::LinkLocal);
        }
        self.check_options_on_way(ip)?;
        if is_hop && ip.hop_limit() <= 1 {
            return reject_with(IcmpReply::V6(Icmp6Error::time_exceeded()), DropReason::TtlExpired);
        }
        let mtu = found.decision.mtu;
        let length = Ipv6::<&[u8]>::LEN + usize::from(ip.payload_length());
        if length.min(self.longest) > mtu.into() {
            return reject_with(IcmpReply::V6(Icmp6Error::packet_too_big(mtu.into())), DropReason::TooBig);
        }
        let next_hop = self.view.next_hop(found, self.effective_destination(ip).into());
        let redirect = self.redirect_target(ip, found, next_hop);
        Ok(self.forward_or_hold(found, next_hop, false, redirect, neighbor_failed))
    }

    /// Checks hop-by-hop options of a packet in transit. Other extension headers are not parsed.
    fn check_options_on_way(&self, ip: &Ipv6<&[u8]>) -> Classified<()> {
        if ip.next_header() != IpProtocol::HOP_BY_HOP {
            return Ok(());
        }
        let at = Ipv6::<&[u8]>::LEN;
        let header = self.packet.get(at..).and_then(|rest| {
            let len = (usize::from(*rest.get(1)?) + 1) * 8;
            rest.get(2..len.min(ip.payload_length().into())).filter(|body| body.len() + 2 == len)
        });
        match header {
            Some(options) => check_options(&Ip6Options::new(options, at + 2), ip),
            None => drop_with(DropReason::Malformed),
        }
    }

    /// The better first hop, if the packet leaves by its ingress port (RFC 4861 section 8.2).
    fn redirect_target(&self, ip: &Ipv6<&[u8]>, found: &Explained, next_hop: IpAddr) -> Option<IpAddr> {
        let port = self.redirect_port(found)?;
        let IpAddr::V6(better) = next_hop else { return None };
        let is_neighbor = ip.src().is_unicast_link_local() || is_near(port, ip.src());
        let can_be_told = better.is_unicast_link_local() || better == ip.dst();
        (is_neighbor && can_be_told && better != ip.src()).then_some(next_hop)
    }

    /// Whether the port that received the packet has an address.
    fn is_ours(&self, address: Ipv6Addr) -> bool {
        self.ingress_port().is_some_and(|port| port.link_local == address.to_bits())
    }

    /// Whether an address is the router's own: that of some port, or of all routers on a link.
    fn is_anyones(&self, address: Ipv6Addr) -> bool {
        if address.is_unicast_link_local() {
            return self.is_ours(address);
        }
        self.lookup_route(address.to_bits(), &mut |_| 0).decision.outcome == Outcome::Local
    }
}

/// ICMPv6 errors where the tables don't forward a packet (RFC 4443 section 3.1).
fn route_errors() -> RouteErrors {
    let unreachable = |code| IcmpReply::V6(Icmp6Error::unreachable(code));
    let [no_route, rejected, prohibited] =
        [Icmp6Error::NO_ROUTE, Icmp6Error::REJECT, Icmp6Error::PROHIBITED].map(unreachable);
    RouteErrors { no_route, rejected, prohibited }
}

/// The verdict on packets to a neighbor whose resolution failed (RFC 4443 section 3.1,
/// RFC 4861 section 7.2.2).
pub(crate) fn neighbor_failed() -> RouterVerdict {
    let error = Icmp6Error::unreachable(Icmp6Error::ADDRESS);
    RouterVerdict::Error(IcmpReply::V6(error), DropReason::NeighborFailed)
}

/// Refuses a packet if its options require that (RFC 8200 sections 4.2, 4.3 and 4.6). Router alerts
/// are ignored (RFC 6398).
fn check_options(options: &Ip6Options<'_>, ip: &Ipv6<&[u8]>) -> Classified<()> {
    match options.check_options(ip.dst().is_multicast()) {
        Ok(_) => Ok(()),
        Err(fault) => reject_or_drop(Icmp6Error::for_option(fault), DropReason::BadOption),
    }
}

fn reject_or_drop<T>(error: Option<Icmp6Error>, reason: DropReason) -> Classified<T> {
    error.map_or_else(|| drop_with(reason), |error| reject_with(IcmpReply::V6(error), reason))
}

/// Whether an address is that of a group of one link, or of less (RFC 4291 section 2.7).
fn is_of_link(address: Ipv6Addr) -> bool {
    address.is_multicast() && address.octets()[1] & 0xf == 2
}

/// Whether an address is on the link of a port.
fn is_near(port: &PortView, address: Ipv6Addr) -> bool {
    port.v6.iter().any(|(own, len)| Prefix::of(*own, *len).contains(address.to_bits()))
}

#[cfg(test)]
mod tests {
    use super::super::verdict::testing::{A, B, Small, small};
    use super::super::verdict::{EgressPlan, LinkDestination};
    use super::*;
    use artery_l3::router::{PortSettings, ReversePath};
    use artery_wire::build::{Ip6, ip6};

    fn base() -> Ip6 {
        ip6().src("2001:db8:1::9").dst("2001:db8:20::1").hop_limit(9).udp(1, 2).payload([7; 100])
    }
    fn verdict(small: &mut Small, packet: &Ip6) -> RouterVerdict {
        small.judge(classify, &packet.bytes(), IngressInfo::by_port(A))
    }
    #[track_caller]
    fn expect_all(cases: &[(Ip6, RouterVerdict)]) {
        let mut small = small();
        for (packet, expected) in cases {
            assert_eq!(verdict(&mut small, packet), *expected, "{packet:?}");
        }
    }
    #[track_caller]
    fn leaves(verdict: RouterVerdict) -> EgressPlan {
        match verdict {
            RouterVerdict::Forward(leave) | RouterVerdict::Hold(leave) => leave,
            other => panic!("{other:?}"),
        }
    }
    fn error_verdict(error: Icmp6Error, reason: DropReason) -> RouterVerdict {
        RouterVerdict::Error(IcmpReply::V6(error), reason)
    }
    /// The router's link-local address on `a`.
    const LINK_LOCAL: &str = "fe80::ff:fe00:1";

    #[test]
    fn a_plain_packet_leaves_and_one_to_an_unknown_neighbor_waits() {
        let leave = leaves(verdict(&mut small(), &base()));
        assert_eq!((leave.decision.port, leave.next_hop), (B, "2001:db8:2::fe".parse().unwrap()));
        let waiting = verdict(&mut small(), &base().dst("2001:db8:2::77"));
        let unknown: IpAddr = "2001:db8:2::77".parse().unwrap();
        assert!(matches!(waiting, RouterVerdict::Hold(leave) if leave.next_hop == unknown));
    }

    #[test]
    fn sources_that_no_host_has_are_refused() {
        let refused = RouterVerdict::Discard(DropReason::BadSource);
        expect_all(
            &["::", "::1", "ff02::1", "::ffff:1.2.3.4", "0:1::1"].map(|src| (base().src(src), refused)),
        );
        let probe = base().src("::").dst("ff02::1:ff00:1");
        assert_eq!(verdict(&mut small(), &probe), RouterVerdict::Host);
        for own in ["2001:db8:2::1", "2001:db8:2::"] {
            let to_us = base().src(own).dst("2001:db8:1::1");
            assert_eq!(verdict(&mut small(), &to_us), RouterVerdict::Discard(DropReason::OwnSource), "{own}");
        }
    }

    #[test]
    fn a_link_local_source_or_destination_stays_on_its_link() {
        let beyond = error_verdict(Icmp6Error::unreachable(2), DropReason::LinkLocal);
        let on_link = base().src("fe80::9").dst("2001:db8:1::8");
        expect_all(&[
            (base().src("fe80::9"), beyond),
            (base().dst("fe80::9"), RouterVerdict::Discard(DropReason::LinkLocal)),
            (base().src("fe80::9").dst(LINK_LOCAL).icmp_echo(1, 2), RouterVerdict::EchoReply),
        ]);
        assert!(matches!(verdict(&mut small(), &on_link), RouterVerdict::Hold(_)));
        let elsewhere = base().dst(LINK_LOCAL).icmp_echo(1, 2).bytes();
        let verdict = small().judge(classify, &elsewhere, IngressInfo::by_port(B));
        assert_eq!(verdict, RouterVerdict::Discard(DropReason::LinkLocal));
    }

    #[test]
    fn the_way_back_to_the_source_is_checked_as_the_port_says() {
        let mut small = small();
        for (rpf, from_elsewhere, from_nowhere) in [
            (ReversePath::Off, true, true),
            (ReversePath::Loose, true, false),
            (ReversePath::Strict, false, false),
        ] {
            small.tables.set_port_settings(A, PortSettings { rpf, ..PortSettings::default() }).unwrap();
            let mut passes = |src| {
                verdict(&mut small, &base().src(src)) != RouterVerdict::Discard(DropReason::ReversePath)
            };
            let passed = (passes("2001:db8:1::9"), passes("2001:db8:20::9"), passes("2001:db8:99::1"));
            assert_eq!(passed, (true, from_elsewhere, from_nowhere), "{rpf:?}");
        }
    }

    #[test]
    fn destinations_that_lead_nowhere_are_told_of_as_the_route_says() {
        let unreachable = |code, reason| error_verdict(Icmp6Error::unreachable(code), reason);
        expect_all(&[
            (base().dst("2001:db8:99::1"), unreachable(0, DropReason::NoRoute)),
            (base().dst("2001:db8:21::1"), RouterVerdict::Discard(DropReason::Blackhole)),
            (base().dst("2001:db8:22::1"), unreachable(6, DropReason::Unreachable)),
            (base().dst("2001:db8:23::1"), unreachable(1, DropReason::Prohibited)),
            (base().dst("::1"), RouterVerdict::Discard(DropReason::Martian)),
            (base().dst("ff02::5"), RouterVerdict::Host),
            (base().dst("ff05::5"), RouterVerdict::Discard(DropReason::Multicast)),
            (base().dst("ff0e::5"), RouterVerdict::Discard(DropReason::Multicast)),
        ]);
    }

    #[test]
    fn packets_to_the_router_are_answered_put_together_or_left_to_the_host() {
        let us = || base().dst("2001:db8:2::1");
        expect_all(&[
            (us().icmp_echo(1, 2), RouterVerdict::EchoReply),
            (us().icmp_echo(1, 2).fragment(0, true, 7), RouterVerdict::Reassemble),
            (us().icmp_echo(1, 2).fragment(0, false, 7), RouterVerdict::EchoReply),
            (us().icmp_echo_reply(1, 2), RouterVerdict::Host),
            (us(), RouterVerdict::Host),
            (
                us().icmp(Icmp6Type::NEIGHBOR_SOLICITATION, 0, [0; 4]),
                RouterVerdict::Neighbor(NeighborMessage::Nd),
            ),
            (
                us().dst("ff02::1").icmp(Icmp6Type::ROUTER_SOLICITATION, 0, [0; 4]),
                RouterVerdict::Neighbor(NeighborMessage::Nd),
            ),
            (us().dst("ff02::1").icmp_echo(1, 2), RouterVerdict::Host),
        ]);
    }

    #[test]
    fn the_host_finds_neighbors_by_groups_and_nothing_else() {
        let from_host = IngressInfo { from: Origin::Host, to: LinkDestination::Group, redirected_to: None };
        let judged = |packet: Ip6| small().judge(classify, &packet.bytes(), from_host);
        let to_group = || base().dst("ff02::1:ff00:2");
        let asks = to_group().icmp(Icmp6Type::NEIGHBOR_SOLICITATION, 0, [0; 4]);
        assert_eq!(judged(asks), RouterVerdict::Neighbor(NeighborMessage::Nd));
        assert_eq!(judged(to_group()), RouterVerdict::Discard(DropReason::Multicast));
    }

    #[test]
    fn the_last_hop_and_the_mtu_are_told_of() {
        let long = base().payload(vec![0; 1453]);
        expect_all(&[
            (base().hop_limit(1), error_verdict(Icmp6Error::time_exceeded(), DropReason::TtlExpired)),
            (base().hop_limit(0), error_verdict(Icmp6Error::time_exceeded(), DropReason::TtlExpired)),
            (long, error_verdict(Icmp6Error::packet_too_big(1500), DropReason::TooBig)),
        ]);
        leaves(verdict(&mut small(), &base().payload(vec![0; 1452])));
        let ours = IngressInfo { from: Origin::Host, to: LinkDestination::Ours, redirected_to: None };
        assert!(!leaves(small().judge(classify, &base().hop_limit(1).bytes(), ours)).is_hop);
    }

    #[test]
    fn options_for_every_router_are_heeded_as_their_first_bits_ask() {
        let unknown = |kind| base().extension(0, [kind, 4, 0, 0, 0, 0]);
        let error = error_verdict(Icmp6Error::parameter_problem(2, 42), DropReason::BadOption);
        expect_all(&[
            (unknown(0x5e), RouterVerdict::Discard(DropReason::BadOption)),
            (unknown(0x9e), error),
            (unknown(0xde), error),
            (unknown(0xc2), error),
            (unknown(0xde).dst("ff02::5"), RouterVerdict::Discard(DropReason::BadOption)),
            (unknown(0x9e).dst("2001:db8:1::1"), error),
        ]);
        for kind in [0x1e, 1] {
            leaves(verdict(&mut small(), &unknown(kind)));
        }
        leaves(verdict(&mut small(), &base().extension(0, [5, 2, 0, 0, 0, 0])));
    }

    #[test]
    fn routing_headers_end_at_the_router_and_are_nothing_to_it_on_the_way() {
        let route = |left| {
            let body = [&[0, left, 0, 0, 0, 0][..], &[0x20; 16]].concat();
            base().extension(43, body)
        };
        leaves(verdict(&mut small(), &route(1)));
        let refused = error_verdict(Icmp6Error::parameter_problem(0, 42), DropReason::SourceRoute);
        expect_all(&[
            (route(1).dst("2001:db8:1::1"), refused),
            (route(0).dst("2001:db8:1::1").icmp_echo(1, 2), RouterVerdict::EchoReply),
        ]);
    }

    #[test]
    fn who_could_send_to_the_destination_itself_is_told_so() {
        let near = base().dst("2001:db8:1::8");
        let leave = leaves(verdict(&mut small(), &near));
        assert_eq!(leave.redirect, Some("2001:db8:1::8".parse().unwrap()));
        assert_eq!(leaves(verdict(&mut small(), &near.src("2001:db8:7::7"))).redirect, None);
    }

    #[test]
    fn any_bytes_have_a_verdict() {
        let (mut small, seed) = (small(), 0x6666);
        println!("seed {seed:#x}");
        let mut random = artery_wire::Random::new(seed);
        for _ in 0..20_000 {
            let mut bytes = base().extension(0, [5, 2, 0, 0, 1, 0]).fragment(0, true, 1).bytes();
            for _ in 0..random.index(6) {
                let at = random.index(60);
                bytes[at] = random.next() as u8;
            }
            bytes.truncate(random.index(bytes.len() + 1));
            small.judge(classify, &bytes, IngressInfo::by_port(A));
        }
    }
}
