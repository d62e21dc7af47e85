//! Classifies IPv4 packets, in the order of RFC 1812 section 5.2.
use super::icmp::is_broadcast;
use super::packet_context::{Checked, Classified, PacketContext, RouteErrors, drop_with, reject_with};
use super::verdict::{FlowOf, IcmpReply, IngressInfo, Origin, RouterVerdict, TablesView, is_forwardable};
use artery_common::gateway_options::{OptionError, OptionProcessor};
use artery_engine::{DropReason, Time};
use artery_l3::path::{Explained, Outcome};
use artery_l3::router::PortView;
use artery_lpm::Prefix;
use artery_wire::{Icmp, IcmpError, IcmpType, IpProtocol, Ipv4, Ipv4Option, Ipv4Options};
use std::net::{IpAddr, Ipv4Addr};

/// Header with as many options as there can be.
const MAX_HEADER: usize = 60;

/// Classifies a packet, from its IP header on. If it is yet to be cut into segments, none of them
/// is longer than `longest`.
pub(crate) fn classify(
    packet: &[u8],
    longest: usize,
    came: IngressInfo,
    view: &TablesView<'_>,
    flow: FlowOf<'_>,
) -> RouterVerdict {
    PacketContext { packet, longest, ingress: came, view, path: view.v4 }
        .classify(flow)
        .unwrap_or_else(|end| end)
}

impl PacketContext<'_, u32> {
    fn classify(&self, flow: FlowOf<'_>) -> Classified {
        let ip = self.check_header()?;
        self.check_source(&ip)?;
        let found = self.lookup_route(self.effective_destination(&ip).to_bits(), flow);
        match found.decision.outcome {
            outcome if is_forwardable(outcome) => self.classify_transit(&ip, &found),
            Outcome::Local => self.classify_local(&ip),
            Outcome::Broadcast => self.classify_broadcast(&ip, &found),
            Outcome::Multicast => self.classify_multicast(&ip),
            outcome => self.refuse_route(outcome, &route_errors()),
        }
    }

    /// The address it is routed by: its redirect target, or else its destination.
    fn effective_destination(&self, ip: &Ipv4<&[u8]>) -> Ipv4Addr {
        if let Some(IpAddr::V4(to)) = self.ingress.redirected_to { to } else { ip.dst() }
    }

    /// Section 5.2.2, and of the frame section 5.3.4.
    fn check_header(&self) -> Checked<Ipv4<&[u8]>> {
        self.check_destination_mac()?;
        Ipv4::validate(self.packet).map_err(DropReason::from)
    }

    /// Section 5.3.7 and RFC 3704.
    fn check_source(&self, ip: &Ipv4<&[u8]>) -> Checked {
        let source = ip.src();
        // A host without an address requests one by DHCP (RFC 2131).
        if source.is_unspecified() && ip.dst().is_broadcast() && self.ingress.from != Origin::Router {
            return Ok(());
        }
        if is_martian(source) {
            return Err(DropReason::BadSource);
        }
        if let Some(port) = self.ingress_port() {
            check_own(port, source)?;
        }
        self.check_reverse_path(source.to_bits())
    }

    /// For the router itself (section 5.2.3).
    fn classify_local(&self, ip: &Ipv4<&[u8]>) -> Classified {
        self.check_frame()?;
        let is_own = |port: &PortView| port.v4.iter().any(|(own, _)| *own == ip.src().to_bits());
        if self.is_from_outside() && self.view.ports.iter().any(is_own) {
            return drop_with(DropReason::OwnSource);
        }
        self.check_route(ip)?;
        self.check_options(ip)?;
        if ip.is_fragment() {
            let is_icmp = ip.protocol() == IpProtocol::ICMP;
            return Ok(if is_icmp { RouterVerdict::Reassemble } else { RouterVerdict::Host });
        }
        Ok(if is_echo(ip) { RouterVerdict::EchoReply } else { RouterVerdict::Host })
    }

    /// For all of a link: never forwarded (section 5.3.5, RFC 2644).
    fn classify_broadcast(&self, ip: &Ipv4<&[u8]>, found: &Explained) -> Classified {
        let is_near = ip.dst().is_broadcast() || self.ingress.from.port() == Some(found.decision.port);
        if is_near && self.is_from_outside() {
            Ok(RouterVerdict::Host)
        } else {
            drop_with(DropReason::Broadcast)
        }
    }

    /// For a group: link-scoped groups are for the host (RFC 5771 section 4), others are discarded.
    fn classify_multicast(&self, ip: &Ipv4<&[u8]>) -> Classified {
        let is_near = ip.dst().octets()[..3] == [224, 0, 0];
        if is_near && self.is_from_outside() {
            Ok(RouterVerdict::Host)
        } else {
            drop_with(DropReason::Multicast)
        }
    }

    /// Classifies a packet in transit.
    fn classify_transit(&self, ip: &Ipv4<&[u8]>, found: &Explained) -> Classified {
        self.check_frame()?;
        if self.is_from_outside() {
            self.check_hop(ip)?;
        }
        let mtu = found.decision.mtu;
        let is_cut = usize::from(ip.total_length()).min(self.longest) > mtu.into();
        if is_cut && (ip.dont_fragment() || usize::from(mtu) < ip.header_len() + 8) {
            return reject_with(IcmpReply::V4(IcmpError::need_fragmentation(mtu)), DropReason::TooBig);
        }
        let next_hop = self.view.next_hop(found, self.effective_destination(ip).into());
        let redirect = self.redirect_target(ip, found, next_hop);
        Ok(self.forward_or_hold(found, next_hop, is_cut, redirect, neighbor_failed))
    }

    /// Refuses packets that may not be forwarded another hop.
    fn check_hop(&self, ip: &Ipv4<&[u8]>) -> Classified<()> {
        // RFC 3927 section 2.7.
        if ip.src().is_link_local() && !self.ingress_port().is_some_and(|port| port.forward_ipv4_link_local) {
            return drop_with(DropReason::LinkLocal);
        }
        self.check_route(ip)?;
        self.check_options(ip)?;
        if ip.ttl() <= 1 {
            return reject_with(IcmpReply::V4(IcmpError::time_exceeded()), DropReason::TtlExpired);
        }
        Ok(())
    }

    /// Refuses source routes (section 5.2.4.1 allows that).
    fn check_route(&self, ip: &Ipv4<&[u8]>) -> Classified<()> {
        let is_route = |option: &Ipv4Option<'_>| {
            matches!(option.kind, Ipv4Option::LOOSE_ROUTE | Ipv4Option::STRICT_ROUTE)
        };
        if Ipv4Options::new(ip.options()).flatten().any(|option| is_route(&option)) {
            let refused = IcmpError::unreachable(IcmpError::SOURCE_ROUTE_FAILED);
            return reject_with(IcmpReply::V4(refused), DropReason::SourceRoute);
        }
        Ok(())
    }

    /// Refuses options that contradict themselves (section 5.2.4).
    fn check_options(&self, ip: &Ipv4<&[u8]>) -> Classified<()> {
        let mut copy = [0; MAX_HEADER];
        let Some(header) = copy.get_mut(..ip.header_len()) else { return drop_with(DropReason::Malformed) };
        header.copy_from_slice(ip.header());
        // Errors in options don't depend on the recorded address and time.
        let gateway = OptionProcessor { address: Ipv4Addr::UNSPECIFIED, is_own: &|_| false, now: Time::ZERO };
        let Err(OptionError(at)) = gateway.process_options(header) else { return Ok(()) };
        let error = IcmpError::parameter_problem(u8::try_from(at).unwrap_or(u8::MAX));
        reject_with(IcmpReply::V4(error), DropReason::BadOption)
    }

    /// The better first hop, if the packet leaves by its ingress port (section 5.2.7.2) and an error may
    /// be sent about it.
    fn redirect_target(&self, ip: &Ipv4<&[u8]>, found: &Explained, next_hop: IpAddr) -> Option<IpAddr> {
        let port = self.redirect_port(found)?;
        let IpAddr::V4(better) = next_hop else { return None };
        let is_near = |(own, len): &(u32, u8)| {
            let link = Prefix::of(*own, *len);
            link.contains(ip.src().to_bits()) && link.contains(better.to_bits())
        };
        let may_be_told = || {
            let redirect = IcmpError::redirect(better);
            redirect.answer_to(self.packet, false, |address| is_broadcast(self.view.ports, address)).is_ok()
        };
        (port.v4.iter().any(is_near) && better != ip.src() && may_be_told()).then_some(next_hop)
    }
}

/// ICMP errors where the tables don't forward a packet (section 5.2.7.1).
fn route_errors() -> RouteErrors {
    let unreachable = |code| IcmpReply::V4(IcmpError::unreachable(code));
    let [no_route, rejected, prohibited] =
        [IcmpError::NET, IcmpError::HOST, IcmpError::PROHIBITED].map(unreachable);
    RouteErrors { no_route, rejected, prohibited }
}

/// The verdict on packets to a neighbor whose resolution failed. A router that is down is reported like a
/// host that is down: other hosts of the network may be reachable (section 5.2.7.1).
pub(crate) fn neighbor_failed() -> RouterVerdict {
    RouterVerdict::Error(IcmpReply::V4(IcmpError::unreachable(IcmpError::HOST)), DropReason::NeighborFailed)
}

/// Whether no host can have this source address.
fn is_martian(source: Ipv4Addr) -> bool {
    matches!(source.octets()[0], 0 | 127 | 224..)
}

/// Refuses the port's own address and its broadcast addresses as sources.
fn check_own(port: &PortView, source: Ipv4Addr) -> Checked {
    if port.v4.iter().any(|(own, _)| *own == source.to_bits()) {
        return Err(DropReason::OwnSource);
    }
    if is_broadcast(std::slice::from_ref(port), source) { Err(DropReason::BadSource) } else { Ok(()) }
}

/// Whether it is an echo request.
fn is_echo(ip: &Ipv4<&[u8]>) -> bool {
    let asks = |icmp: Icmp<&[u8]>| icmp.icmp_type() == IcmpType::ECHO_REQUEST && icmp.checksum_is_valid();
    ip.protocol() == IpProtocol::ICMP && Icmp::new(ip.payload()).is_ok_and(asks)
}

#[cfg(test)]
mod tests {
    use super::super::verdict::testing::{A, B, HOST, Small, small};
    use super::super::verdict::{EgressPlan, LinkDestination};
    use super::*;
    use artery_l3::router::{PortSettings, ReversePath};
    use artery_wire::build::{Ip4, ip4};

    fn base() -> Ip4 {
        ip4().src("10.0.1.9").dst("20.0.0.1").ttl(9).udp(1, 2).payload([7; 100])
    }
    fn verdict(small: &mut Small, packet: &Ip4) -> RouterVerdict {
        small.judge(classify, &packet.bytes(), IngressInfo::by_port(A))
    }
    #[track_caller]
    fn leaves(verdict: RouterVerdict) -> EgressPlan {
        match verdict {
            RouterVerdict::Forward(leave) | RouterVerdict::Hold(leave) => leave,
            other => panic!("{other:?}"),
        }
    }
    #[track_caller]
    fn expect_all(cases: &[(Ip4, RouterVerdict)]) {
        let mut small = small();
        for (packet, expected) in cases {
            assert_eq!(verdict(&mut small, packet), *expected, "{packet:?}");
        }
    }
    fn error_verdict(error: IcmpError, reason: DropReason) -> RouterVerdict {
        RouterVerdict::Error(IcmpReply::V4(error), reason)
    }

    #[test]
    fn a_plain_packet_leaves_by_the_port_of_its_route() {
        let leave = leaves(verdict(&mut small(), &base()));
        assert_eq!((leave.decision.port, leave.next_hop), (B, "10.0.2.254".parse().unwrap()));
        assert!(leave.is_hop && !leave.is_cut && leave.redirect.is_none());
        assert_eq!(leave.decision.outcome, Outcome::Forward);
    }

    #[test]
    fn a_packet_to_an_unknown_neighbor_waits_for_it() {
        let RouterVerdict::Hold(leave) = verdict(&mut small(), &base().dst("10.0.2.5")) else { panic!() };
        assert_eq!(leave.next_hop, "10.0.2.5".parse::<IpAddr>().unwrap());
        let RouterVerdict::Hold(leave) = verdict(&mut small(), &base().dst("26.0.0.1")) else { panic!() };
        assert_eq!(leave.next_hop, "10.0.2.77".parse::<IpAddr>().unwrap());
    }

    #[test]
    fn a_header_that_is_not_sound_ends_the_packet_without_a_word() {
        let mut small = small();
        let good = base().bytes();
        let mut judged = |bytes: &[u8]| small.judge(classify, bytes, IngressInfo::by_port(A));
        assert_eq!(judged(&good[..19]), RouterVerdict::Discard(DropReason::TooShort));
        assert_eq!(judged(&good[..50]), RouterVerdict::Discard(DropReason::Malformed));
        for (at, value, reason) in [
            (0, 0x55, DropReason::Malformed),
            (0, 0x44, DropReason::Malformed),
            (8, 1, DropReason::BadChecksum),
        ] {
            let mut bad = good.clone();
            bad[at] = value;
            assert_eq!(judged(&bad), RouterVerdict::Discard(reason), "{at}");
        }
    }

    #[test]
    fn a_frame_to_another_station_or_to_many_is_not_forwarded() {
        let mut small = small();
        for (to, dst, expected) in [
            (LinkDestination::Other, "20.0.0.1", RouterVerdict::Discard(DropReason::OtherStation)),
            (LinkDestination::All, "20.0.0.1", RouterVerdict::Discard(DropReason::Broadcast)),
            (LinkDestination::Group, "20.0.0.1", RouterVerdict::Discard(DropReason::Broadcast)),
            (LinkDestination::All, "10.0.1.1", RouterVerdict::Discard(DropReason::Broadcast)),
            (LinkDestination::All, "99.0.0.1", RouterVerdict::Discard(DropReason::Broadcast)),
            (LinkDestination::All, "10.0.1.255", RouterVerdict::Host),
            (LinkDestination::All, "255.255.255.255", RouterVerdict::Host),
        ] {
            let came = IngressInfo { to, ..IngressInfo::by_port(A) };
            assert_eq!(small.judge(classify, &base().dst(dst).bytes(), came), expected, "{to:?} {dst}");
        }
    }

    #[test]
    fn sources_that_no_host_has_are_refused() {
        for (src, reason) in [
            ("0.0.0.0", DropReason::BadSource),
            ("0.1.2.3", DropReason::BadSource),
            ("127.0.0.1", DropReason::BadSource),
            ("224.0.0.1", DropReason::BadSource),
            ("240.0.0.1", DropReason::BadSource),
            ("255.255.255.255", DropReason::BadSource),
            ("10.0.1.255", DropReason::BadSource),
            ("10.0.1.0", DropReason::BadSource),
            ("10.0.1.1", DropReason::OwnSource),
            ("169.254.1.1", DropReason::LinkLocal),
        ] {
            assert_eq!(verdict(&mut small(), &base().src(src)), RouterVerdict::Discard(reason), "{src}");
        }
        let asking = base().src("0.0.0.0").dst("255.255.255.255");
        assert_eq!(verdict(&mut small(), &asking), RouterVerdict::Host);
        let to_us = base().src("10.0.2.1").dst("10.0.1.1");
        assert_eq!(verdict(&mut small(), &to_us), RouterVerdict::Discard(DropReason::OwnSource));
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
            let passed = (passes("10.0.1.9"), passes("20.0.0.9"), passes("99.0.0.1"));
            assert_eq!(passed, (true, from_elsewhere, from_nowhere), "{rpf:?}");
        }
    }

    #[test]
    fn destinations_that_lead_nowhere_are_told_of_as_the_route_says() {
        use IcmpError as E;
        expect_all(&[
            (base().dst("99.0.0.1"), error_verdict(E::unreachable(0), DropReason::NoRoute)),
            (base().dst("21.0.0.1"), RouterVerdict::Discard(DropReason::Blackhole)),
            (base().dst("22.0.0.1"), error_verdict(E::unreachable(1), DropReason::Unreachable)),
            (base().dst("23.0.0.1"), error_verdict(E::unreachable(13), DropReason::Prohibited)),
            (base().dst("127.0.0.1"), RouterVerdict::Discard(DropReason::Martian)),
            (base().dst("240.0.0.1"), RouterVerdict::Discard(DropReason::Martian)),
            (base().dst("169.254.3.4"), RouterVerdict::Discard(DropReason::LinkLocal)),
            (base().dst("10.0.2.255"), RouterVerdict::Discard(DropReason::Broadcast)),
            (base().dst("10.0.1.255"), RouterVerdict::Host),
            (base().dst("224.0.0.5"), RouterVerdict::Host),
            (base().dst("239.1.2.3"), RouterVerdict::Discard(DropReason::Multicast)),
        ]);
        let mut small = small();
        small.tables.set_up(B, false, super::super::verdict::testing::NOW).unwrap();
        let expected = error_verdict(E::unreachable(0), DropReason::PortDown);
        assert_eq!(verdict(&mut small, &base()), expected);
    }

    #[test]
    fn packets_to_the_router_are_answered_put_together_or_left_to_the_host() {
        let us = || base().dst("10.0.2.1");
        let mut bad = us().icmp_echo(1, 2).bytes();
        bad[25] ^= 1;
        expect_all(&[
            (us().icmp_echo(1, 2), RouterVerdict::EchoReply),
            (us().icmp_echo(1, 2).fragment(0, true), RouterVerdict::Reassemble),
            (us().icmp_echo_reply(1, 2), RouterVerdict::Host),
            (us(), RouterVerdict::Host),
            (us().fragment(8, false), RouterVerdict::Host),
            (us().ttl(1), RouterVerdict::Host),
        ]);
        let found = small().judge(classify, &bad, IngressInfo::by_port(A));
        assert_eq!(found, RouterVerdict::Host, "a wrong checksum");
    }

    #[test]
    fn the_last_hop_is_told_of_but_not_that_of_packets_from_ourselves() {
        let expected = error_verdict(IcmpError::time_exceeded(), DropReason::TtlExpired);
        expect_all(&[(base().ttl(1), expected), (base().ttl(0), expected)]);
        for from in [Origin::Host, Origin::Router] {
            let came = IngressInfo { from, to: LinkDestination::Ours, redirected_to: None };
            assert!(!leaves(small().judge(classify, &base().ttl(1).bytes(), came)).is_hop);
        }
    }

    #[test]
    fn what_is_too_long_is_cut_or_its_sender_is_told_the_mtu() {
        let long = || base().dst("25.0.0.1").payload([1; 600]);
        assert!(leaves(verdict(&mut small(), &long())).is_cut);
        let error = error_verdict(IcmpError::need_fragmentation(600), DropReason::TooBig);
        expect_all(&[(long().dont_fragment(), error)]);
        assert!(!leaves(verdict(&mut small(), &long().payload([1; 572]).dont_fragment())).is_cut);
        assert!(leaves(verdict(&mut small(), &long().payload([1; 573]))).is_cut);
    }

    #[test]
    fn source_routes_and_options_that_contradict_themselves_are_refused() {
        let refused = error_verdict(IcmpError::unreachable(5), DropReason::SourceRoute);
        let wrong = |at| error_verdict(IcmpError::parameter_problem(at), DropReason::BadOption);
        expect_all(&[
            (base().options([131, 7, 4, 1, 1, 1, 1, 0]), refused),
            (base().options([137, 7, 8, 1, 1, 1, 1, 0]), refused),
            (base().dst("10.0.1.1").options([131, 7, 4, 1, 1, 1, 1, 0]), refused),
            (base().options([7, 9, 4, 0, 0, 0, 0, 0]), wrong(21)),
            (base().options([7, 7, 3, 0, 0, 0, 0, 0]), wrong(22)),
            (base().options([68, 8, 4, 0, 0, 0, 0, 0]), wrong(22)),
        ]);
        for sound in [[148, 4, 0, 0, 0, 0, 0, 0], [7, 7, 4, 0, 0, 0, 0, 0], [68, 8, 5, 0, 0, 0, 0, 0]] {
            leaves(verdict(&mut small(), &base().options(sound)));
        }
    }

    #[test]
    fn who_could_send_to_the_next_hop_itself_is_told_so() {
        let mut small = small();
        let to_neighbor = base().dst("24.0.0.1");
        let leave = leaves(verdict(&mut small, &to_neighbor));
        assert_eq!(leave.redirect, Some("10.0.1.8".parse().unwrap()));
        assert_eq!(leave.decision.link.address(), Some(HOST));
        let from_afar = to_neighbor.clone().src("30.0.0.1");
        assert_eq!(leaves(verdict(&mut small, &from_afar)).redirect, None);
        for forbidden in [
            to_neighbor.clone().fragment(64, false),
            to_neighbor.clone().icmp(IcmpType::UNREACHABLE, 0, [0; 4]),
            to_neighbor.clone().icmp(IcmpType::REDIRECT, 1, [10, 0, 1, 8]),
        ] {
            assert_eq!(leaves(verdict(&mut small, &forbidden)).redirect, None, "{forbidden:?}");
        }
        let settings = PortSettings { redirects: false, ..PortSettings::default() };
        small.tables.set_port_settings(A, settings).unwrap();
        assert_eq!(leaves(verdict(&mut small, &to_neighbor)).redirect, None);
    }
}
