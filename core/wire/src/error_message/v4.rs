//! ICMP errors about IPv4 packets.

use std::net::Ipv4Addr;
use std::ops::Range;

use super::Forbidden;
use crate::bytes::{clamped_slice, write_array};
use crate::{
    EtherAddr, EtherType, Icmp, IcmpType, IpProtocol, Ipv4, Ipv4Options, LinkEndpoint, Malformed,
    SourceRoute, build_ethernet_frame,
};

/// Longest error (RFC 1812 section 4.3.2.3).
const MAX_LEN: usize = 576;
const TTL: u8 = 64;

/// Internetwork control, the precedence of errors (RFC 1812 section 4.3.2.5).
const PRECEDENCE: u8 = 0xc0;
/// Type of service without precedence, and without the bits that are ECN's by now.
const SERVICE: u8 = 0x1c;

const MIN_HEADER: usize = Ipv4::<&[u8]>::MIN_LEN;
const ICMP_HEADER: usize = Icmp::<&[u8]>::LEN;

/// An error to report: type, code and second word of the header.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct IcmpError {
    /// What it is about.
    pub icmp_type: IcmpType,
    /// ICMP code, which narrows the type down.
    pub code: u8,
    /// Gateway, next-hop MTU or pointer, or zero.
    pub rest: [u8; 4],
}

impl IcmpError {
    /// The code of an unreachable network.
    pub const NET: u8 = 0;
    /// The code of an unreachable host.
    pub const HOST: u8 = 1;
    /// The code of a protocol that the destination does not speak.
    pub const PROTOCOL: u8 = 2;
    /// The code of a port at which no one listens.
    pub const PORT: u8 = 3;
    /// The code of a packet that must be split and must not.
    pub const NEED_FRAGMENTATION: u8 = 4;
    /// The code of a source route that cannot be followed.
    pub const SOURCE_ROUTE_FAILED: u8 = 5;
    /// The code of what an administrator forbids.
    pub const PROHIBITED: u8 = 13;
    /// The code of a parameter problem with a pointer.
    pub const AT_POINTER: u8 = 0;
    /// The code of a redirect for one host.
    pub const REDIRECT_HOST: u8 = 1;

    /// The destination is unreachable, for the reason that the code gives.
    pub fn unreachable(code: u8) -> IcmpError {
        IcmpError { icmp_type: IcmpType::UNREACHABLE, code, rest: [0; 4] }
    }

    /// The packet must be split to fit `mtu` and must not be (RFC 1191 section 4).
    pub fn need_fragmentation(mtu: u16) -> IcmpError {
        let [high, low] = mtu.to_be_bytes();
        IcmpError { rest: [0, 0, high, low], ..IcmpError::unreachable(Self::NEED_FRAGMENTATION) }
    }

    /// The time to live ran out on the way.
    pub fn time_exceeded() -> IcmpError {
        IcmpError { icmp_type: IcmpType::TIME_EXCEEDED, code: 0, rest: [0; 4] }
    }

    /// The byte of the header at `pointer` is wrong.
    pub fn parameter_problem(pointer: u8) -> IcmpError {
        let rest = [pointer, 0, 0, 0];
        IcmpError { icmp_type: IcmpType::PARAMETER_PROBLEM, code: Self::AT_POINTER, rest }
    }

    /// The packet's destination is better reached by `gateway`.
    pub fn redirect(gateway: Ipv4Addr) -> IcmpError {
        IcmpError { icmp_type: IcmpType::REDIRECT, code: Self::REDIRECT_HOST, rest: gateway.octets() }
    }

    /// Returns the answer to a packet, unless there must be none. `is_group_frame` says that it came in a
    /// broadcast or multicast frame, `is_broadcast` recognises a network's broadcast address.
    pub fn answer_to(
        self,
        packet: &[u8],
        is_group_frame: bool,
        is_broadcast: impl Fn(Ipv4Addr) -> bool,
    ) -> Result<IcmpAnswer, Forbidden> {
        let ip = Ipv4::new(packet).map_err(|_| Forbidden::Malformed)?;
        if is_group_frame {
            return Err(Forbidden::Frame);
        }
        let is_one =
            |address: Ipv4Addr| !address.is_broadcast() && !address.is_multicast() && !is_broadcast(address);
        if !is_one(ip.dst()) {
            return Err(Forbidden::Destination);
        }
        if !is_host(ip.src()) || !is_one(ip.src()) {
            return Err(Forbidden::Source);
        }
        check_content(&ip, packet)?;
        let route = self.route_back(&ip)?;
        Ok(IcmpAnswer { error: self, to: ip.src(), tos: ip.tos(), whole: ip.total_length().into(), route })
    }

    /// The source route of a packet, reversed, unless the error is about it: then it
    /// leads nowhere (section 4.3.2.6).
    fn route_back(&self, ip: &Ipv4<&[u8]>) -> Result<Route, Forbidden> {
        let Some(route) = Ipv4Options::new(ip.options()).source_route() else { return Ok(Route::NONE) };
        if self.icmp_type == IcmpType::REDIRECT {
            return Err(Forbidden::SourceRoute); // section 5.2.7.2
        }
        let option = route.option();
        let is_about = self.points_into(option.at..option.at + option.bytes.len());
        Ok(if is_about { Route::NONE } else { Route::reverse_route(&route) })
    }

    fn points_into(&self, range: Range<usize>) -> bool {
        self.icmp_type == IcmpType::PARAMETER_PROBLEM
            && self.code == Self::AT_POINTER
            && range.contains(&self.rest[0].into())
    }
}

/// Whether an address can be a host's (RFC 1812 section 5.3.7).
fn is_host(address: Ipv4Addr) -> bool {
    !matches!(address.octets()[0], 0 | 127 | 240..)
}

fn check_content(ip: &Ipv4<&[u8]>, packet: &[u8]) -> Result<(), Forbidden> {
    if ip.fragment_offset() > 0 {
        return Err(Forbidden::Fragment);
    }
    if ip.protocol() != IpProtocol::ICMP {
        return Ok(());
    }
    match packet[ip.header_len()..].first_chunk::<4>() {
        None => Err(Forbidden::Malformed),
        Some(message) if IcmpType(message[0]).is_error() => Err(Forbidden::Error),
        Some(_) => Ok(()),
    }
}

/// A source route option, with its length rounded up to words; empty when there is none.
#[derive(Clone, Copy, Debug)]
struct Route {
    bytes: [u8; 40],
    len: usize,
}

impl Route {
    const NONE: Route = Route { bytes: [0; 40], len: 0 };

    /// The option that leads back through the routers that a source route has recorded.
    fn reverse_route(route: &SourceRoute<'_>) -> Route {
        let mut back = Route { len: 3, ..Route::NONE };
        for (address, room) in route.reverse_addresses().zip(back.bytes[3..].chunks_exact_mut(4)) {
            room.copy_from_slice(&address.octets());
            back.len += 4;
        }
        back.bytes[..3].copy_from_slice(&[route.option().kind, back.len as u8, 4]);
        back.len = back.len.next_multiple_of(4);
        back
    }
}

/// An error that may be sent about a packet.
#[derive(Clone, Copy, Debug)]
pub struct IcmpAnswer {
    error: IcmpError,
    to: Ipv4Addr,
    tos: u8,
    /// How long the packet says it is: beyond that is padding of the link.
    whole: usize,
    route: Route,
}

/// What the header of an error says beside what follows from the packet that it is about.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AnswerHeader {
    /// Source address of the error.
    pub src: Ipv4Addr,
    /// Identification field of the error's own header.
    pub id: u16,
    /// The time to live.
    pub ttl: u8,
    /// The type of service.
    pub tos: u8,
}

impl IcmpAnswer {
    /// Returns the destination of the error.
    pub fn destination(&self) -> Ipv4Addr {
        self.to
    }

    /// Returns the length of the IP header.
    pub fn ip_header_len(&self) -> usize {
        MIN_HEADER + self.route.len
    }

    /// Returns the length of both headers, after which the packet is quoted.
    pub fn headers_len(&self) -> usize {
        self.ip_header_len() + ICMP_HEADER
    }

    /// Returns a router's type of service for the error: that of the packet, with a precedence of its own.
    pub fn tos(&self) -> u8 {
        match self.error.icmp_type {
            IcmpType::SOURCE_QUENCH => self.tos & !3, // section 4.3.2.5: its precedence is the packet's
            _ => PRECEDENCE | self.tos & SERVICE,
        }
    }

    /// Returns the error about `packet`, which is the one that was asked about: as much is quoted
    /// as makes 576 bytes.
    pub fn build_packet(&self, packet: &[u8], src: Ipv4Addr, id: u16) -> Vec<u8> {
        let most = self.whole.min(MAX_LEN - self.headers_len());
        let mut bytes = vec![0; self.headers_len()];
        bytes.extend(clamped_slice(packet, 0, most));
        let header = AnswerHeader { src, id, ttl: TTL, tos: self.tos() };
        self.write_headers(&mut bytes, header).expect("room was made for both headers");
        bytes
    }

    /// Returns a frame with the error, from a router to a neighbor, as a redirect is sent.
    pub fn build_frame(
        &self,
        packet: &[u8],
        from: LinkEndpoint<Ipv4Addr>,
        to: EtherAddr,
        id: u16,
    ) -> Vec<u8> {
        build_ethernet_frame(to, from.ether, EtherType::IPV4, &self.build_packet(packet, from.ip, id))
    }

    /// Writes both headers to the first of `bytes`, the rest of which is the quoted packet.
    pub fn write_headers(&self, bytes: &mut [u8], header: AnswerHeader) -> Result<(), Malformed> {
        let total = u16::try_from(bytes.len()).map_err(|_| Malformed::Length)?;
        let (ip, message) = bytes.split_at_mut_checked(self.ip_header_len()).ok_or(Malformed::Truncated)?;
        self.write_icmp(message)?;
        self.write_ip(ip, total, header)
    }

    fn write_icmp(&self, message: &mut [u8]) -> Result<(), Malformed> {
        let mut icmp = Icmp::new(message)?;
        icmp.set_icmp_type(self.error.icmp_type);
        icmp.set_code(self.error.code);
        icmp.set_rest(self.error.rest);
        icmp.fill_checksum();
        Ok(())
    }

    fn write_ip(&self, bytes: &mut [u8], total: u16, header: AnswerHeader) -> Result<(), Malformed> {
        bytes.fill(0);
        write_array(bytes, 0, [0x40 | (bytes.len() / 4) as u8]);
        bytes[MIN_HEADER..].copy_from_slice(&self.route.bytes[..self.route.len]);
        let mut ip = Ipv4::new(bytes)?;
        ip.set_tos(header.tos);
        ip.set_total_length(total);
        ip.set_id(header.id);
        ip.set_ttl(header.ttl);
        ip.set_protocol(IpProtocol::ICMP);
        ip.set_src(header.src);
        ip.set_dst(self.to);
        ip.fill_checksum();
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::build::{Ip4, ip4};
    use proptest::prelude::*;

    const ROUTER: Ipv4Addr = Ipv4Addr::new(3, 0, 0, 3);

    fn cause() -> Ip4 {
        ip4().src("1.0.0.1").dst("2.0.0.2").udp(1, 2).payload([7; 20])
    }

    fn ask(error: IcmpError, packet: &[u8]) -> Result<IcmpAnswer, Forbidden> {
        error.answer_to(packet, false, |address| address == Ipv4Addr::new(2, 0, 0, 255))
    }

    #[track_caller]
    fn expect(error: IcmpError, cause: &[u8], answer: Ip4) {
        let made = ask(error, cause).unwrap().build_packet(cause, ROUTER, 5);
        assert_eq!(made, answer.src(ROUTER).dst("1.0.0.1").id(5).bytes());
    }

    #[track_caller]
    fn expect_none(packet: Ip4, why: Forbidden) {
        assert_eq!(ask(IcmpError::time_exceeded(), &packet.bytes()).unwrap_err(), why);
    }

    #[test]
    fn each_error_carries_what_it_has_to_tell() {
        use IcmpType as T;
        let bytes = cause().bytes();
        for (error, icmp_type, code, rest) in [
            (IcmpError::unreachable(IcmpError::HOST), T::UNREACHABLE, 1, [0; 4]),
            (IcmpError::need_fragmentation(1280), T::UNREACHABLE, 4, [0, 0, 5, 0]),
            (IcmpError::time_exceeded(), T::TIME_EXCEEDED, 0, [0; 4]),
            (IcmpError::parameter_problem(21), T::PARAMETER_PROBLEM, 0, [21, 0, 0, 0]),
            (IcmpError::redirect(Ipv4Addr::new(9, 8, 7, 6)), T::REDIRECT, 1, [9, 8, 7, 6]),
        ] {
            expect(error, &bytes, ip4().tos(0xc0).icmp(icmp_type, code, rest).payload(&bytes));
        }
    }

    #[test]
    fn an_error_has_the_packets_service_and_a_precedence_of_its_own() {
        for (theirs, ours) in [(0, 0xc0), (0xff, 0xdc), (0x10, 0xd0), (0x03, 0xc0)] {
            let answer = ask(IcmpError::time_exceeded(), &cause().tos(theirs).bytes()).unwrap();
            assert_eq!(answer.tos(), ours, "{theirs:#x}");
        }
        let quench = IcmpError { icmp_type: IcmpType::SOURCE_QUENCH, ..IcmpError::time_exceeded() };
        assert_eq!(ask(quench, &cause().tos(0xb9).bytes()).unwrap().tos(), 0xb8);
    }

    #[test]
    fn as_much_is_quoted_as_makes_576_bytes_and_no_padding() {
        for len in [0, 519, 520, 521, 1400] {
            let whole = cause().payload(vec![1; len]).bytes();
            let padded = [&whole[..], &[0xee; 30]].concat();
            let answer = ask(IcmpError::time_exceeded(), &padded).unwrap().build_packet(&padded, ROUTER, 5);
            assert_eq!(answer[28..], whole[..whole.len().min(548)], "{len}");
        }
    }

    #[test]
    fn no_error_is_made_where_the_rules_forbid_it() {
        expect_none(cause().icmp(IcmpType::UNREACHABLE, 0, [0; 4]), Forbidden::Error);
        expect_none(cause().raw(1, [8, 0, 0]), Forbidden::Malformed);
        expect_none(cause().fragment(8, false), Forbidden::Fragment);
        for dst in ["255.255.255.255", "224.0.0.5", "2.0.0.255"] {
            expect_none(cause().dst(dst), Forbidden::Destination);
        }
        for src in ["0.1.2.3", "127.0.0.1", "224.0.0.1", "240.0.0.1", "255.255.255.255", "2.0.0.255"] {
            expect_none(cause().src(src), Forbidden::Source);
        }
        let in_group = IcmpError::time_exceeded().answer_to(&cause().bytes(), true, |_| false);
        assert_eq!(in_group.unwrap_err(), Forbidden::Frame);
        let cut = ask(IcmpError::time_exceeded(), &cause().bytes()[..19]);
        assert_eq!(cut.unwrap_err(), Forbidden::Malformed);
        assert!(ask(IcmpError::time_exceeded(), &cause().icmp_echo(1, 2).bytes()).is_ok());
        assert!(ask(IcmpError::time_exceeded(), &cause().fragment(0, true).bytes()).is_ok());
    }

    #[test]
    fn a_source_route_is_reversed_unless_the_error_is_about_it() {
        let routed = cause().options([131, 15, 12, 1, 1, 1, 1, 2, 2, 2, 2, 9, 9, 9, 9, 0]).bytes();
        let back = [131, 11, 4, 2, 2, 2, 2, 1, 1, 1, 1, 0];
        for (pointer, options) in [(19, &back[..]), (20, &[]), (34, &[]), (35, &back[..])] {
            let answer = ip4().tos(0xc0).icmp(IcmpType::PARAMETER_PROBLEM, 0, [pointer, 0, 0, 0]);
            expect(IcmpError::parameter_problem(pointer), &routed, answer.options(options).payload(&routed));
        }
        let redirect = ask(IcmpError::redirect(ROUTER), &routed);
        assert_eq!(redirect.unwrap_err(), Forbidden::SourceRoute);
    }

    #[test]
    fn headers_are_written_where_there_is_room_for_them() {
        let answer = ask(IcmpError::time_exceeded(), &cause().bytes()).unwrap();
        let header = AnswerHeader { src: ROUTER, id: 1, ttl: 2, tos: 3 };
        for len in 0..28 {
            assert_eq!(answer.write_headers(&mut vec![0; len], header), Err(Malformed::Truncated), "{len}");
        }
        assert_eq!(answer.write_headers(&mut [0; 28], header), Ok(()));
        assert_eq!(answer.write_headers(&mut vec![0; 65536], header), Err(Malformed::Length));
    }

    proptest! {
        #[test]
        fn any_bytes_have_a_sound_answer_or_none(
            mut bytes in prop::collection::vec(
                prop::sample::select(&[0_u8, 1, 3, 4, 8, 11, 131, 137][..]),
                0..90,
            ),
            words in 4_u8..16,
            kind: u8,
            word: [u8; 4],
        ) {
            if let Some(first) = bytes.first_mut() {
                *first = 0x40 | words;
            }
            let error = IcmpError { icmp_type: IcmpType(kind % 13), code: 0, rest: word };
            if let Ok(answer) = ask(error, &bytes) {
                let made = answer.build_packet(&bytes, ROUTER, 1);
                let ip = Ipv4::new(&made).unwrap();
                prop_assert!(ip.checksum_is_valid() && ip.check_total_length().is_ok() && made.len() <= 576);
                prop_assert!(Icmp::new(ip.payload()).unwrap().checksum_is_valid());
                prop_assert!(Ipv4Options::new(ip.options()).all(|option| option.is_ok()));
                prop_assert!(bytes.starts_with(&made[answer.headers_len()..]));
            }
        }
    }
}
