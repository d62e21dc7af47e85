//! What is to become of an IPv6 packet (RFC 8200, RFC 4291, RFC 4443, RFC 4861).
use super::verdict::{Came, FlowOf, Leave, Message, Origin, Station, Told, Verdict, View, reason};
use artery_engine::DropReason;
use artery_table::Prefix;
use artery_table::path::{Decision, Explained, Outcome};
use artery_table::router::PortView;
use artery_wire::{
    HopByHop, Icmp6, Icmp6Error, Icmp6Type, Ip6Headers, Ip6Options, IpProtocol, Ipv6, OptionFault,
};
use std::net::{IpAddr, Ipv6Addr};

/// Judges a packet, from its IP header on. If it is yet to be cut into segments, none of them is longer than `longest`.
pub(crate) fn judge(packet: &[u8], longest: usize, came: Came, view: &View<'_>, flow: FlowOf<'_>) -> Verdict {
    Case { packet, longest, came, view }.judge(flow).unwrap_or_else(Verdict::Discard)
}

/// A packet and all that it is judged by.
struct Case<'a> {
    packet: &'a [u8],
    /// No link carries more of it at once.
    longest: usize,
    came: Came,
    view: &'a View<'a>,
}

/// A packet that ends is the exception on each step.
type Judged<T = Verdict> = Result<T, DropReason>;

impl Case<'_> {
    fn judge(&self, flow: FlowOf<'_>) -> Judged {
        let ip = self.header()?;
        self.check_source(&ip)?;
        if self.came.from == Origin::Host && self.is_discovery(&ip) {
            return Ok(Verdict::Neighbor(Message::Nd));
        }
        let found = self.view.v6.explain(self.view.turn, ip.dst().to_bits(), flow);
        match found.decision.outcome {
            Outcome::Forward | Outcome::Unresolved | Outcome::Failed => self.leave(&ip, &found),
            Outcome::Local => self.local(&ip, &found),
            Outcome::Multicast => self.multicast(&ip),
            outcome => self.refuse(outcome),
        }
    }

    fn header(&self) -> Judged<Ipv6<&[u8]>> {
        if self.came.to == Station::Other {
            return Err(DropReason::OtherStation);
        }
        let ip = Ipv6::new(self.packet).map_err(reason)?;
        ip.check_payload_length().map_err(|_| DropReason::Malformed)?;
        Ok(ip)
    }

    /// RFC 4291 sections 2.5 and 2.7, RFC 3704.
    fn check_source(&self, ip: &Ipv6<&[u8]>) -> Judged<()> {
        let source = ip.src();
        // Who has no address yet speaks to groups of its link only.
        if source.is_unspecified() && is_of_link(ip.dst()) {
            return Ok(());
        }
        if source.is_multicast() || source.segments()[0] == 0 {
            return Err(DropReason::BadSource);
        }
        let Origin::Port(came_by) = self.came.from else { return Ok(()) };
        if source.is_unicast_link_local() {
            return Ok(());
        }
        self.view.check_reverse_path(self.view.v6, source.to_bits(), came_by)
    }

    /// For the router itself.
    fn local(&self, ip: &Ipv6<&[u8]>, found: &Explained) -> Judged {
        let is_elsewhere = self.came.from.port().is_some_and(|port| port != found.decision.port);
        if ip.dst().is_unicast_link_local() && is_elsewhere && !self.is_ours(ip.dst()) {
            return Err(DropReason::LinkLocal);
        }
        if self.came.to.is_many() {
            return Err(DropReason::Broadcast);
        }
        if self.came.from.port().is_some() && self.is_anyones(ip.src()) {
            return Err(DropReason::OwnSource);
        }
        let headers = match Ip6Headers::read(self.packet) {
            Ok(headers) => headers,
            Err(fault) => return Ok(tell_or_discard(Icmp6Error::for_headers(fault), DropReason::Malformed)),
        };
        if let Some(verdict) = self.hop_by_hop(headers.hop_by_hop.as_ref(), ip) {
            return Ok(verdict);
        }
        // RFC 5095 section 3; others are not known here (RFC 8200 section 4.4).
        if let Some(routing) = headers.routing.filter(|routing| routing.segments_left > 0) {
            let told = Icmp6Error::parameter_problem(Icmp6Error::ERRONEOUS, routing.at as u32 + 2);
            return Ok(Verdict::Error(Told::V6(told), DropReason::SourceRoute));
        }
        if headers.fragment.is_some_and(|fragment| fragment.offset > 0 || fragment.more) {
            let is_icmp = headers.protocol == IpProtocol::ICMPV6;
            return Ok(if is_icmp { Verdict::Reassemble } else { Verdict::Host });
        }
        Ok(self.message(ip, &headers).unwrap_or(Verdict::Host))
    }

    /// A message that the router itself understands.
    fn message(&self, ip: &Ipv6<&[u8]>, headers: &Ip6Headers<'_>) -> Option<Verdict> {
        let end = Ipv6::<&[u8]>::LEN + usize::from(ip.payload_length());
        let bytes =
            self.packet.get(headers.offset..end).filter(|_| headers.protocol == IpProtocol::ICMPV6)?;
        let icmp = Icmp6::new(bytes).ok()?;
        match icmp.icmp_type() {
            Icmp6Type(133..=137) => Some(Verdict::Neighbor(Message::Nd)),
            Icmp6Type::ECHO_REQUEST if ip.dst().is_multicast() => None,
            Icmp6Type::ECHO_REQUEST if icmp.checksum_is_valid(ip.src(), ip.dst()) => Some(Verdict::Answer),
            _ => None,
        }
    }

    /// Whether the host asks or tells something about its own link, where nobody but the router is.
    fn is_discovery(&self, ip: &Ipv6<&[u8]>) -> bool {
        let kind = self.packet.get(Ipv6::<&[u8]>::LEN).filter(|_| ip.next_header() == IpProtocol::ICMPV6);
        kind.is_some_and(|kind| (133..=137).contains(kind))
    }

    /// For a group: those of the link are for the host, or for us; others go nowhere. The host asks groups for its
    /// neighbors; what else it tells them, nobody hears.
    fn multicast(&self, ip: &Ipv6<&[u8]>) -> Judged {
        if !is_of_link(ip.dst()) || self.came.from == Origin::Router {
            return Err(DropReason::Multicast);
        }
        let headers = match Ip6Headers::read(self.packet) {
            Ok(headers) => headers,
            Err(fault) => return Ok(tell_or_discard(Icmp6Error::for_headers(fault), DropReason::Malformed)),
        };
        if let Some(verdict) = self.hop_by_hop(headers.hop_by_hop.as_ref(), ip) {
            return Ok(verdict);
        }
        match self.message(ip, &headers) {
            Some(verdict) => Ok(verdict),
            None if self.came.from == Origin::Host => Err(DropReason::Multicast),
            None => Ok(Verdict::Host),
        }
    }

    /// Where the tables say that it goes no further (RFC 4443 section 3.1).
    fn refuse(&self, outcome: Outcome) -> Judged {
        use Icmp6Error as E;
        let tell = |code, reason| Ok(Verdict::Error(Told::V6(E::unreachable(code)), reason));
        if self.came.to.is_many() {
            return Err(DropReason::Broadcast);
        }
        match outcome {
            Outcome::NoRoute => tell(E::NO_ROUTE, DropReason::NoRoute),
            Outcome::Unreachable => tell(E::REJECT, DropReason::Unreachable),
            Outcome::Prohibited => tell(E::PROHIBITED, DropReason::Prohibited),
            Outcome::PortDown => tell(E::NO_ROUTE, DropReason::PortDown),
            Outcome::LinkLocal => Err(DropReason::LinkLocal),
            Outcome::Blackhole => Err(DropReason::Blackhole),
            _ => Err(DropReason::Martian),
        }
    }

    /// On its way through the router.
    fn leave(&self, ip: &Ipv6<&[u8]>, found: &Explained) -> Judged {
        if self.came.to.is_many() {
            return Err(DropReason::Broadcast);
        }
        let is_hop = self.came.from.port().is_some();
        if is_hop && ip.src().is_unicast_link_local() && self.came.from.port() != Some(found.decision.port) {
            let told = Icmp6Error::unreachable(Icmp6Error::BEYOND_SCOPE);
            return Ok(Verdict::Error(Told::V6(told), DropReason::LinkLocal));
        }
        if let Some(verdict) = self.options_on_way(ip) {
            return Ok(verdict);
        }
        if is_hop && ip.hop_limit() <= 1 {
            return Ok(Verdict::Error(Told::V6(Icmp6Error::time_exceeded()), DropReason::TtlExpired));
        }
        let mtu = found.decision.mtu;
        let length = Ipv6::<&[u8]>::LEN + usize::from(ip.payload_length());
        if length.min(self.longest) > mtu.into() {
            let told = Icmp6Error::packet_too_big(mtu.into());
            return Ok(Verdict::Error(Told::V6(told), DropReason::TooBig));
        }
        let next_hop = self.view.next_hop(found, ip.dst().into());
        let (decision, is_on_link) = (found.decision, found.on_link);
        let redirect = self.redirect(ip, &decision, next_hop);
        let leave = Leave { decision, next_hop, is_on_link, is_hop, is_cut: false, redirect };
        Ok(match decision.outcome {
            Outcome::Forward => Verdict::Forward(leave),
            Outcome::Failed => failed(),
            _ => Verdict::Hold(leave),
        })
    }

    /// What options for every router say against a packet on its way. Other extension headers are not looked at.
    fn options_on_way(&self, ip: &Ipv6<&[u8]>) -> Option<Verdict> {
        if ip.next_header() != IpProtocol::HOP_BY_HOP {
            return None;
        }
        let at = Ipv6::<&[u8]>::LEN;
        let header = self.packet.get(at..).and_then(|rest| {
            let len = (usize::from(*rest.get(1)?) + 1) * 8;
            rest.get(2..len.min(ip.payload_length().into())).filter(|body| body.len() + 2 == len)
        });
        match header {
            Some(options) => self.hop_by_hop(Some(&Ip6Options::new(options, at + 2)), ip),
            None => Some(Verdict::Discard(DropReason::Malformed)),
        }
    }

    /// What options for every router say against a packet (RFC 8200 section 4.3). Alerts are passed over: nothing
    /// here listens (RFC 6398).
    fn hop_by_hop(&self, options: Option<&Ip6Options<'_>>, ip: &Ipv6<&[u8]>) -> Option<Verdict> {
        let judged: Result<HopByHop, OptionFault> = options?.judge(ip.dst().is_multicast());
        let fault = judged.err()?;
        Some(tell_or_discard(Icmp6Error::for_option(fault), DropReason::BadOption))
    }

    /// The better first hop, where the packet leaves as it came (RFC 4861 section 8.2).
    fn redirect(&self, ip: &Ipv6<&[u8]>, decision: &Decision, next_hop: IpAddr) -> Option<IpAddr> {
        let came_by = self.came.from.port().filter(|port| *port == decision.port)?;
        let port = self.view.port(came_by).filter(|port| port.settings.redirects)?;
        let IpAddr::V6(better) = next_hop else { return None };
        let is_neighbor = ip.src().is_unicast_link_local() || is_near(port, ip.src());
        let can_be_told = better.is_unicast_link_local() || better == ip.dst();
        (is_neighbor && can_be_told && better != ip.src()).then_some(next_hop)
    }

    /// Whether the port that received the packet has an address.
    fn is_ours(&self, address: Ipv6Addr) -> bool {
        let port = self.came.from.port().and_then(|port| self.view.port(port));
        port.is_some_and(|port| port.link_local == address.to_bits())
    }

    /// Whether an address is the router's own: that of some port, or of all routers on a link.
    fn is_anyones(&self, address: Ipv6Addr) -> bool {
        if address.is_unicast_link_local() {
            return self.is_ours(address);
        }
        let found = self.view.v6.explain(self.view.turn, address.to_bits(), |_| 0);
        found.decision.outcome == Outcome::Local
    }
}

/// What becomes of packets to a neighbor that was asked for in vain (RFC 4443 section 3.1, RFC 4861 section 7.2.2).
pub(crate) fn failed() -> Verdict {
    let told = Icmp6Error::unreachable(Icmp6Error::ADDRESS);
    Verdict::Error(Told::V6(told), DropReason::NeighborFailed)
}

fn tell_or_discard(error: Option<Icmp6Error>, reason: DropReason) -> Verdict {
    error.map_or(Verdict::Discard(reason), |error| Verdict::Error(Told::V6(error), reason))
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
    use super::*;
    use artery_table::router::{PortSettings, ReversePath};
    use artery_wire::build::{Ip6, ip6};

    fn base() -> Ip6 {
        ip6().src("2001:db8:1::9").dst("2001:db8:20::1").hop_limit(9).udp(1, 2).payload([7; 100])
    }
    fn verdict(small: &mut Small, packet: &Ip6) -> Verdict {
        small.judge(judge, &packet.bytes(), Came::by(A))
    }
    #[track_caller]
    fn expect_all(cases: &[(Ip6, Verdict)]) {
        let mut small = small();
        for (packet, expected) in cases {
            assert_eq!(verdict(&mut small, packet), *expected, "{packet:?}");
        }
    }
    #[track_caller]
    fn leaves(verdict: Verdict) -> Leave {
        match verdict {
            Verdict::Forward(leave) | Verdict::Hold(leave) => leave,
            other => panic!("{other:?}"),
        }
    }
    fn told(error: Icmp6Error, reason: DropReason) -> Verdict {
        Verdict::Error(Told::V6(error), reason)
    }
    /// The router's link-local address on `a`.
    const LINK_LOCAL: &str = "fe80::ff:fe00:1";

    #[test]
    fn a_plain_packet_leaves_and_one_to_an_unknown_neighbor_waits() {
        let leave = leaves(verdict(&mut small(), &base()));
        assert_eq!((leave.decision.port, leave.next_hop), (B, "2001:db8:2::fe".parse().unwrap()));
        let waiting = verdict(&mut small(), &base().dst("2001:db8:2::77"));
        assert!(matches!(waiting, Verdict::Hold(leave) if leave.is_on_link));
    }

    #[test]
    fn sources_that_no_host_has_are_refused() {
        let refused = Verdict::Discard(DropReason::BadSource);
        expect_all(
            &["::", "::1", "ff02::1", "::ffff:1.2.3.4", "0:1::1"].map(|src| (base().src(src), refused)),
        );
        let probe = base().src("::").dst("ff02::1:ff00:1");
        assert_eq!(verdict(&mut small(), &probe), Verdict::Host);
        for own in ["2001:db8:2::1", "2001:db8:2::"] {
            let to_us = base().src(own).dst("2001:db8:1::1");
            assert_eq!(verdict(&mut small(), &to_us), Verdict::Discard(DropReason::OwnSource), "{own}");
        }
    }

    #[test]
    fn a_link_local_source_or_destination_stays_on_its_link() {
        let beyond = told(Icmp6Error::unreachable(2), DropReason::LinkLocal);
        let on_link = base().src("fe80::9").dst("2001:db8:1::8");
        expect_all(&[
            (base().src("fe80::9"), beyond),
            (base().dst("fe80::9"), Verdict::Discard(DropReason::LinkLocal)),
            (base().src("fe80::9").dst(LINK_LOCAL).icmp_echo(1, 2), Verdict::Answer),
        ]);
        assert!(matches!(verdict(&mut small(), &on_link), Verdict::Hold(_)));
        let elsewhere = base().dst(LINK_LOCAL).icmp_echo(1, 2).bytes();
        let verdict = small().judge(judge, &elsewhere, Came::by(B));
        assert_eq!(verdict, Verdict::Discard(DropReason::LinkLocal));
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
            let mut passes =
                |src| verdict(&mut small, &base().src(src)) != Verdict::Discard(DropReason::ReversePath);
            let passed = (passes("2001:db8:1::9"), passes("2001:db8:20::9"), passes("2001:db8:99::1"));
            assert_eq!(passed, (true, from_elsewhere, from_nowhere), "{rpf:?}");
        }
    }

    #[test]
    fn destinations_that_lead_nowhere_are_told_of_as_the_route_says() {
        let unreachable = |code, reason| told(Icmp6Error::unreachable(code), reason);
        expect_all(&[
            (base().dst("2001:db8:99::1"), unreachable(0, DropReason::NoRoute)),
            (base().dst("2001:db8:21::1"), Verdict::Discard(DropReason::Blackhole)),
            (base().dst("2001:db8:22::1"), unreachable(6, DropReason::Unreachable)),
            (base().dst("2001:db8:23::1"), unreachable(1, DropReason::Prohibited)),
            (base().dst("::1"), Verdict::Discard(DropReason::Martian)),
            (base().dst("ff02::5"), Verdict::Host),
            (base().dst("ff05::5"), Verdict::Discard(DropReason::Multicast)),
            (base().dst("ff0e::5"), Verdict::Discard(DropReason::Multicast)),
        ]);
    }

    #[test]
    fn packets_to_the_router_are_answered_put_together_or_left_to_the_host() {
        let us = || base().dst("2001:db8:2::1");
        expect_all(&[
            (us().icmp_echo(1, 2), Verdict::Answer),
            (us().icmp_echo(1, 2).fragment(0, true, 7), Verdict::Reassemble),
            (us().icmp_echo(1, 2).fragment(0, false, 7), Verdict::Answer),
            (us().icmp_echo_reply(1, 2), Verdict::Host),
            (us(), Verdict::Host),
            (us().icmp(Icmp6Type::NEIGHBOR_SOLICITATION, 0, [0; 4]), Verdict::Neighbor(Message::Nd)),
            (
                us().dst("ff02::1").icmp(Icmp6Type::ROUTER_SOLICITATION, 0, [0; 4]),
                Verdict::Neighbor(Message::Nd),
            ),
            (us().dst("ff02::1").icmp_echo(1, 2), Verdict::Host),
        ]);
    }

    #[test]
    fn the_host_finds_neighbors_by_groups_and_nothing_else() {
        let from_host = Came { from: Origin::Host, to: Station::Group };
        let judged = |packet: Ip6| small().judge(judge, &packet.bytes(), from_host);
        let to_group = || base().dst("ff02::1:ff00:2");
        let asks = to_group().icmp(Icmp6Type::NEIGHBOR_SOLICITATION, 0, [0; 4]);
        assert_eq!(judged(asks), Verdict::Neighbor(Message::Nd));
        assert_eq!(judged(to_group()), Verdict::Discard(DropReason::Multicast));
    }

    #[test]
    fn the_last_hop_and_the_mtu_are_told_of() {
        let long = base().payload(vec![0; 1453]);
        expect_all(&[
            (base().hop_limit(1), told(Icmp6Error::time_exceeded(), DropReason::TtlExpired)),
            (base().hop_limit(0), told(Icmp6Error::time_exceeded(), DropReason::TtlExpired)),
            (long, told(Icmp6Error::packet_too_big(1500), DropReason::TooBig)),
        ]);
        leaves(verdict(&mut small(), &base().payload(vec![0; 1452])));
        let ours = Came { from: Origin::Host, to: Station::Ours };
        assert!(!leaves(small().judge(judge, &base().hop_limit(1).bytes(), ours)).is_hop);
    }

    #[test]
    fn options_for_every_router_are_heeded_as_their_first_bits_ask() {
        let unknown = |kind| base().extension(0, [kind, 4, 0, 0, 0, 0]);
        let told_of = told(Icmp6Error::parameter_problem(2, 42), DropReason::BadOption);
        expect_all(&[
            (unknown(0x5e), Verdict::Discard(DropReason::BadOption)),
            (unknown(0x9e), told_of),
            (unknown(0xde), told_of),
            (unknown(0xc2), told_of),
            (unknown(0xde).dst("ff02::5"), Verdict::Discard(DropReason::BadOption)),
            (unknown(0x9e).dst("2001:db8:1::1"), told_of),
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
        let refused = told(Icmp6Error::parameter_problem(0, 42), DropReason::SourceRoute);
        expect_all(&[
            (route(1).dst("2001:db8:1::1"), refused),
            (route(0).dst("2001:db8:1::1").icmp_echo(1, 2), Verdict::Answer),
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
        let mut random = crate::ip::ip_header::testing::Random(seed);
        for _ in 0..20_000 {
            let mut bytes = base().extension(0, [5, 2, 0, 0, 1, 0]).fragment(0, true, 1).bytes();
            for _ in 0..random.below(6) {
                let at = random.below(60);
                bytes[at] = random.next() as u8;
            }
            bytes.truncate(random.below(bytes.len() + 1));
            small.judge(judge, &bytes, Came::by(A));
        }
    }
}
