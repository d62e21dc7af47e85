//! ICMPv6 errors about IPv6 packets.

use std::net::Ipv6Addr;

use super::Forbidden;
use crate::bytes::clamped_slice;
use crate::{
    EtherAddr, EtherType, Icmp6, Icmp6Type, Ip6Fault, Ip6Headers, IpProtocol, Ipv6, LinkEndpoint,
    OptionFault, UnknownAction, build_ethernet_frame,
};

/// Longest error: no link has a smaller MTU (RFC 4443 section 2.4 c).
const MAX_LEN: usize = 1280;
const HOP_LIMIT: u8 = 64;
const HEADERS: usize = Ipv6::<&[u8]>::LEN + Icmp6::<&[u8]>::LEN;

/// An error to report: type, code and second word of the header.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Icmp6Error {
    /// What it is about.
    pub icmp_type: Icmp6Type,
    /// ICMPv6 code, which narrows the type down.
    pub code: u8,
    /// MTU or pointer, or zero.
    pub rest: u32,
}

impl Icmp6Error {
    /// The code of a destination to which no route leads.
    pub const NO_ROUTE: u8 = 0;
    /// The code of what an administrator forbids.
    pub const PROHIBITED: u8 = 1;
    /// The code of a destination beyond the scope of the source address.
    pub const BEYOND_SCOPE: u8 = 2;
    /// The code of an address that could not be reached, as when its link address is not to be had.
    pub const ADDRESS: u8 = 3;
    /// The code of a port at which no one listens.
    pub const PORT: u8 = 4;
    /// The code of a route that rejects.
    pub const REJECT: u8 = 6;
    /// The code of a parameter problem: a field is wrong.
    pub const ERRONEOUS: u8 = 0;
    /// The code of a parameter problem: an option is not known.
    pub const UNKNOWN_OPTION: u8 = 2;
    /// The code of a next header that is not known.
    pub const UNKNOWN_NEXT_HEADER: u8 = 1;

    /// The destination is unreachable, for the reason that the code gives.
    pub fn unreachable(code: u8) -> Icmp6Error {
        Icmp6Error { icmp_type: Icmp6Type::UNREACHABLE, code, rest: 0 }
    }

    /// The packet is longer than `mtu`.
    pub fn packet_too_big(mtu: u32) -> Icmp6Error {
        Icmp6Error { icmp_type: Icmp6Type::PACKET_TOO_BIG, code: 0, rest: mtu }
    }

    /// The hop limit ran out on the way.
    pub fn time_exceeded() -> Icmp6Error {
        Icmp6Error { icmp_type: Icmp6Type::TIME_EXCEEDED, code: 0, rest: 0 }
    }

    /// The byte of the packet at `pointer` is wrong, or unknown, as the code tells.
    pub fn parameter_problem(code: u8, pointer: u32) -> Icmp6Error {
        Icmp6Error { icmp_type: Icmp6Type::PARAMETER_PROBLEM, code, rest: pointer }
    }

    /// Returns the error that a fault of the headers calls for, if any.
    pub fn for_headers(fault: Ip6Fault) -> Option<Icmp6Error> {
        fault.parameter_problem().map(|(code, pointer)| Icmp6Error::parameter_problem(code, pointer))
    }

    /// Returns the error that a fault of an option calls for, if any.
    pub fn for_option(fault: OptionFault) -> Option<Icmp6Error> {
        fault.report.map(|code| Icmp6Error::parameter_problem(code, fault.pointer as u32))
    }

    /// Returns the answer to a packet, unless there must be none (RFC 4443 section 2.4 e). `is_group_frame`
    /// says that it came in a broadcast or multicast frame.
    pub fn answer_to(self, packet: &[u8], is_group_frame: bool) -> Result<Icmp6Answer, Forbidden> {
        let ip = Ipv6::new(packet).map_err(|_| Forbidden::Malformed)?;
        if !self.answers_groups(packet) {
            if ip.dst().is_multicast() {
                return Err(Forbidden::Destination);
            }
            if is_group_frame {
                return Err(Forbidden::Frame);
            }
        }
        if ip.src().is_unspecified() || ip.src().is_multicast() || ip.src().is_loopback() {
            return Err(Forbidden::Source);
        }
        check_content(packet)?;
        let whole = Ipv6::<&[u8]>::LEN + usize::from(ip.payload_length());
        Ok(Icmp6Answer { error: self, to: ip.src(), whole })
    }

    /// Whether the error is one of two that a packet for many may bring about: it is too long, or has an
    /// unknown option that wants to be reported whatever the destination.
    fn answers_groups(&self, packet: &[u8]) -> bool {
        match (self.icmp_type, self.code) {
            (Icmp6Type::PACKET_TOO_BIG, _) => true,
            (Icmp6Type::PARAMETER_PROBLEM, Icmp6Error::UNKNOWN_OPTION) => {
                let kind = usize::try_from(self.rest).ok().and_then(|at| packet.get(at));
                kind.is_some_and(|kind| UnknownAction::from_kind(*kind) == UnknownAction::Report)
            }
            _ => false,
        }
    }
}

/// Refuses errors and redirects. Of a fragment other than the first no one can tell.
fn check_content(packet: &[u8]) -> Result<(), Forbidden> {
    let Ok(headers) = Ip6Headers::parse_packet(packet) else { return Ok(()) };
    if headers.protocol != IpProtocol::ICMPV6 || headers.is_later_fragment() {
        return Ok(());
    }
    match packet.get(headers.offset).map(|kind| Icmp6Type(*kind)) {
        None => Err(Forbidden::Malformed),
        Some(icmp_type) if icmp_type.is_error() || icmp_type == Icmp6Type::REDIRECT => Err(Forbidden::Error),
        Some(_) => Ok(()),
    }
}

/// An error that may be sent about a packet.
#[derive(Clone, Copy, Debug)]
pub struct Icmp6Answer {
    error: Icmp6Error,
    to: Ipv6Addr,
    /// How long the packet says it is: beyond that is padding of the link.
    whole: usize,
}

impl Icmp6Answer {
    /// Returns the destination of the error.
    pub fn destination(&self) -> Ipv6Addr {
        self.to
    }

    /// Returns the error about `packet`, which is the one that was asked about: as much is quoted
    /// as makes 1280 bytes.
    pub fn build_packet(&self, packet: &[u8], src: Ipv6Addr) -> Vec<u8> {
        let mut bytes = vec![0; HEADERS];
        bytes.extend(clamped_slice(packet, 0, self.whole.min(MAX_LEN - HEADERS)));
        let (header, message) = bytes.split_at_mut(Ipv6::<&[u8]>::LEN);
        let mut ip = Ipv6::init(header).expect("room was made for the header");
        ip.set_payload_length(message.len() as u16);
        ip.set_next_header(IpProtocol::ICMPV6);
        ip.set_hop_limit(HOP_LIMIT);
        ip.set_src(src);
        ip.set_dst(self.to);
        let mut icmp = Icmp6::new(message).expect("room was made for the header");
        icmp.set_icmp_type(self.error.icmp_type);
        icmp.set_code(self.error.code);
        icmp.set_rest(self.error.rest.to_be_bytes());
        icmp.fill_checksum(src, self.to);
        bytes
    }

    /// Returns a frame with the error, from a router to a neighbor.
    pub fn build_frame(&self, packet: &[u8], from: LinkEndpoint<Ipv6Addr>, to: EtherAddr) -> Vec<u8> {
        build_ethernet_frame(to, from.ether, EtherType::IPV6, &self.build_packet(packet, from.ip))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::build::{Ip6, ip6};
    use proptest::prelude::*;

    const ROUTER: Ipv6Addr = Ipv6Addr::new(0x2001, 0xdb8, 0, 0, 0, 0, 0, 0xff);

    fn cause() -> Ip6 {
        ip6().udp(1, 2).payload([7; 20])
    }

    #[track_caller]
    fn expect_none(packet: Ip6, why: Forbidden) {
        assert_eq!(Icmp6Error::time_exceeded().answer_to(&packet.bytes(), false).unwrap_err(), why);
    }

    #[test]
    fn each_error_carries_what_it_has_to_tell() {
        use Icmp6Type as T;
        let bytes = cause().bytes();
        for (error, icmp_type, code, rest) in [
            (Icmp6Error::unreachable(Icmp6Error::ADDRESS), T::UNREACHABLE, 3, [0; 4]),
            (Icmp6Error::packet_too_big(1400), T::PACKET_TOO_BIG, 0, [0, 0, 5, 0x78]),
            (Icmp6Error::time_exceeded(), T::TIME_EXCEEDED, 0, [0; 4]),
            (Icmp6Error::parameter_problem(1, 6), T::PARAMETER_PROBLEM, 1, [0, 0, 0, 6]),
        ] {
            let made = error.answer_to(&bytes, false).unwrap().build_packet(&bytes, ROUTER);
            let expected = ip6().src(ROUTER).dst("2001:db8::1").icmp(icmp_type, code, rest).payload(&bytes);
            assert_eq!(made, expected.bytes());
        }
    }

    #[test]
    fn as_much_is_quoted_as_makes_1280_bytes_and_no_padding() {
        for len in [0, 1183, 1184, 1185, 1400] {
            let whole = cause().payload(vec![1; len]).bytes();
            let padded = [&whole[..], &[0xee; 30]].concat();
            let answer = Icmp6Error::time_exceeded().answer_to(&padded, false).unwrap();
            let made = answer.build_packet(&padded, ROUTER);
            assert_eq!(&made[48..], &whole[..whole.len().min(1232)]);
            assert_eq!(answer.destination().to_string(), "2001:db8::1");
        }
    }

    #[test]
    fn no_error_is_made_about_errors_and_redirects_even_behind_other_headers() {
        for icmp_type in [Icmp6Type::UNREACHABLE, Icmp6Type(100), Icmp6Type::REDIRECT] {
            let packet = cause().icmp(icmp_type, 0, [0; 4]);
            expect_none(packet.clone(), Forbidden::Error);
            expect_none(packet.clone().extension(60, [0; 6]), Forbidden::Error);
            expect_none(packet.fragment(0, true, 1), Forbidden::Error);
        }
        expect_none(cause().raw(58, []), Forbidden::Malformed);
        for packet in [cause().icmp_echo(1, 2), cause().fragment(8, true, 1).raw(58, [1; 8])] {
            assert!(Icmp6Error::time_exceeded().answer_to(&packet.bytes(), false).is_ok());
        }
    }

    #[test]
    fn an_address_of_nobody_gets_no_error() {
        ["::", "::1", "ff02::1"].into_iter().for_each(|src| expect_none(cause().src(src), Forbidden::Source));
        assert!(Icmp6Error::time_exceeded().answer_to(&cause().src("fe80::1").bytes(), false).is_ok());
    }

    #[test]
    fn of_packets_for_many_only_the_length_and_some_options_are_reported() {
        let option = |kind| cause().extension(0, [kind, 4, 0, 0, 0, 0]);
        let unknown = Icmp6Error::parameter_problem(Icmp6Error::UNKNOWN_OPTION, 42);
        let too_big = Icmp6Error::packet_too_big(1280);
        let (destination, frame) = (Some(Forbidden::Destination), Some(Forbidden::Frame));
        for (error, packet, by_address, by_frame) in [
            (too_big, cause(), None, None),
            (unknown, option(0x9e), None, None),
            (unknown, option(0xde), destination, frame),
            (unknown, option(0x5e), destination, frame),
            (Icmp6Error::parameter_problem(0, 42), option(0x9e), destination, frame),
            (Icmp6Error::time_exceeded(), cause(), destination, frame),
        ] {
            let to_group = packet.clone().dst("ff0e::1").bytes();
            assert_eq!(error.answer_to(&to_group, true).err(), by_address);
            assert_eq!(error.answer_to(&packet.bytes(), true).err(), by_frame);
            assert_eq!(error.answer_to(&packet.bytes(), false).err(), None);
        }
    }

    #[test]
    fn faults_of_headers_and_options_call_for_parameter_problems() {
        let misplaced = Ip6Fault::Misplaced { named_at: 40 };
        assert_eq!(Icmp6Error::for_headers(misplaced), Some(Icmp6Error::parameter_problem(1, 40)));
        assert_eq!(Icmp6Error::for_headers(Ip6Fault::TooMany), None);
        let silent = OptionFault { pointer: 42, report: None };
        assert_eq!(Icmp6Error::for_option(silent), None);
        let told = OptionFault { report: Some(2), ..silent };
        assert_eq!(Icmp6Error::for_option(told), Some(Icmp6Error::parameter_problem(2, 42)));
    }

    proptest! {
        #[test]
        fn any_bytes_have_a_sound_answer_or_none(
            next in prop::sample::select(&[0_u8, 43, 44, 51, 58, 60][..]),
            body in prop::collection::vec(0_u8..64, 0..1300),
            cut in 0_usize..60,
            kind in 1_u8..5,
            rest in 0_u32..100,
        ) {
            let mut bytes = ip6().raw(next, &body).bytes();
            bytes.truncate(bytes.len() - cut.min(bytes.len()));
            let error = Icmp6Error { icmp_type: Icmp6Type(kind), code: (rest % 3) as u8, rest };
            if let Ok(answer) = error.answer_to(&bytes, rest % 2 == 0) {
                let made = answer.build_packet(&bytes, ROUTER);
                let ip = Ipv6::new(&made).unwrap();
                prop_assert!(ip.check_payload_length().is_ok() && made.len() <= 1280);
                prop_assert!(Icmp6::new(ip.payload()).unwrap().checksum_is_valid(ip.src(), ip.dst()));
                prop_assert!(bytes.starts_with(&made[48..]));
            }
        }
    }
}
