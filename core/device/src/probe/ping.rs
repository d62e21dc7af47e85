//! Echo requests of ICMP (RFC 792) and ICMPv6 (RFC 4443), and how an answer is known for ours.
use super::tcp::family;
use super::{NoProbe, ProbeFailure, Progress};
use crate::privsep::{self, Request};
use artery_wire::{Icmp, Icmp6, Icmp6Type, IcmpType, Ipv4};
use rustix::event::epoll::EventFlags;
use rustix::fd::OwnedFd;
use rustix::io::Errno;
use rustix::net::{
    Protocol, RecvFlags, SendFlags, SocketFlags, SocketType, connect, getsockname, ipproto, recvfrom, send,
    socket_with,
};
use std::net::{IpAddr, SocketAddr};

/// Length of a request: its header and its mark.
const LEN: usize = Icmp::<[u8; 0]>::LEN + 8;
/// Room for an answer behind the longest IPv4 header, and one byte more: a longer message is not an answer.
const ROOM: usize = 60 + LEN + 1;
/// Messages read at once: a raw socket receives all that its peer sends.
const MESSAGES: usize = 32;

/// An echo request and what its answer must have.
#[derive(Debug)]
pub(super) struct PingProbe {
    to: SocketAddr,
    /// Whether the socket is a raw one, on which IPv4 has its header.
    is_raw: bool,
    is_sent: bool,
    id: u16,
    seq: u16,
    /// Random payload that tells our answer from that to an earlier request with the same numbers.
    mark: [u8; 8],
}

impl PingProbe {
    /// Opens a socket for one request: one for echoes alone if the machine grants these, else a raw one.
    pub(super) fn open(to: SocketAddr, seq: u16, mark: u64) -> Result<(OwnedFd, PingProbe), NoProbe> {
        let (socket, is_raw) = match socket_of(to, SocketType::DGRAM) {
            Ok(socket) => (socket, false),
            Err(Errno::ACCESS | Errno::PERM | Errno::PROTONOSUPPORT) => match raw_socket(to.is_ipv6()) {
                Ok(socket) => (socket, true),
                Err(Errno::ACCESS | Errno::PERM) => return Err(NoProbe::PingNotPermitted),
                Err(error) => return Err(NoProbe::System(error)),
            },
            Err(error) => return Err(NoProbe::System(error)),
        };
        let mark = mark.to_be_bytes();
        // On a socket for echoes the kernel chooses another identifier when it connects.
        let id = u16::from_be_bytes([mark[0], mark[1]]);
        Ok((socket, PingProbe { to, is_raw, is_sent: false, id, seq, mark }))
    }

    /// Passes when the answer to the request has come.
    pub(super) fn advance(&mut self, socket: &OwnedFd) -> Result<Progress, ProbeFailure> {
        if !self.is_sent {
            self.send(socket)?;
            self.is_sent = true;
        }
        for _ in 0..MESSAGES {
            let mut message = [0; ROOM];
            match recvfrom(socket, &mut message[..], RecvFlags::empty()) {
                Ok((len, _, from)) => {
                    let from = from.and_then(|from| SocketAddr::try_from(from).ok());
                    let message = &message[..len.min(ROOM)];
                    if from.is_some_and(|from| self.is_answer(from.ip(), message)) {
                        return Ok(Progress::Passed);
                    }
                }
                Err(Errno::INTR) => {}
                Err(Errno::AGAIN) => break,
                Err(error) => return Err(error.into()),
            }
        }
        Ok(Progress::Awaits(EventFlags::IN))
    }

    fn send(&mut self, socket: &OwnedFd) -> Result<(), ProbeFailure> {
        connect(socket, &self.to)?;
        if !self.is_raw {
            self.id = SocketAddr::try_from(getsockname(socket)?).map_or(0, |ours| ours.port());
        }
        let request = self.request()?;
        loop {
            match send(socket, &request, SendFlags::NOSIGNAL) {
                Ok(_) => return Ok(()),
                Err(Errno::INTR) => {}
                Err(error) => return Err(error.into()),
            }
        }
    }

    /// The request. The checksum of ICMPv6 is left to the kernel, which knows the addresses.
    fn request(&self) -> Result<[u8; LEN], ProbeFailure> {
        let mut bytes = [0; LEN];
        bytes[LEN - 8..].copy_from_slice(&self.mark);
        match self.to {
            SocketAddr::V4(_) => {
                let mut message = Icmp::new(&mut bytes[..]).map_err(|_| Errno::INVAL)?;
                message.set_icmp_type(IcmpType::ECHO_REQUEST);
                message.set_echo_id(self.id);
                message.set_echo_seq(self.seq);
                message.fill_checksum();
            }
            SocketAddr::V6(_) => {
                let mut message = Icmp6::new(&mut bytes[..]).map_err(|_| Errno::INVAL)?;
                message.set_icmp_type(Icmp6Type::ECHO_REQUEST);
                message.set_echo_id(self.id);
                message.set_echo_seq(self.seq);
            }
        }
        Ok(bytes)
    }

    /// Whether this is the answer to our request, from the address it was sent to.
    fn is_answer(&self, from: IpAddr, message: &[u8]) -> bool {
        let answer = match self.to {
            SocketAddr::V4(_) => self.echo(message),
            SocketAddr::V6(_) => self.echo6(message),
        };
        from == self.to.ip() && answer == Some((self.id, self.seq, self.mark))
    }

    /// Numbers and mark of an echo reply. The kernel does not verify the checksum of what
    /// a raw socket receives.
    fn echo(&self, message: &[u8]) -> Option<(u16, u16, [u8; 8])> {
        let header = self.is_raw.then(|| Ipv4::new(message)).transpose().ok()?;
        let message = Icmp::new(header.as_ref().map_or(message, Ipv4::payload)).ok()?;
        let is_reply = message.icmp_type() == IcmpType::ECHO_REPLY && message.checksum_is_valid();
        let mark = message.payload().try_into().ok()?;
        is_reply.then_some((message.echo_id(), message.echo_seq(), mark))
    }

    /// Numbers and mark of an ICMPv6 echo reply, whose checksum the kernel has verified.
    fn echo6(&self, message: &[u8]) -> Option<(u16, u16, [u8; 8])> {
        let message = Icmp6::new(message).ok()?;
        let mark = message.payload().try_into().ok()?;
        let is_reply = message.icmp_type() == Icmp6Type::ECHO_REPLY;
        is_reply.then_some((message.echo_id(), message.echo_seq(), mark))
    }
}

/// A raw socket, which takes CAP_NET_RAW.
fn raw_socket(v6: bool) -> Result<OwnedFd, Errno> {
    let Some(helper) = privsep::helper() else { return make_raw_socket(v6) };
    let answer = helper.descriptor::<()>("probe", &Request::PingSocket { v6 });
    answer.map(|((), socket)| socket).map_err(|_| Errno::PERM)
}

/// The same, by this process.
pub(crate) fn make_raw_socket(v6: bool) -> Result<OwnedFd, Errno> {
    let any: std::net::IpAddr =
        if v6 { std::net::Ipv6Addr::UNSPECIFIED.into() } else { std::net::Ipv4Addr::UNSPECIFIED.into() };
    socket_of(SocketAddr::new(any, 0), SocketType::RAW)
}

fn socket_of(to: SocketAddr, kind: SocketType) -> Result<OwnedFd, Errno> {
    let protocol: Protocol = match to {
        SocketAddr::V4(_) => ipproto::ICMP,
        SocketAddr::V6(_) => ipproto::ICMPV6,
    };
    socket_with(family(to), kind, SocketFlags::CLOEXEC | SocketFlags::NONBLOCK, Some(protocol))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::namespace::in_namespace;
    use proptest::prelude::*;

    const MARK: u64 = 0x1234_5678_9abc_def0;

    fn ping(to: &str, is_raw: bool) -> PingProbe {
        let to = SocketAddr::new(to.parse().unwrap(), 0);
        PingProbe { to, is_raw, is_sent: true, id: 77, seq: 8, mark: MARK.to_be_bytes() }
    }

    /// The answer to a request: the same with another type.
    fn answer(ping: &PingProbe) -> Vec<u8> {
        let mut bytes = ping.request().unwrap().to_vec();
        if ping.to.is_ipv6() {
            Icmp6::new(&mut bytes[..]).unwrap().set_icmp_type(Icmp6Type::ECHO_REPLY);
            return bytes;
        }
        let mut message = Icmp::new(&mut bytes[..]).unwrap();
        message.set_icmp_type(IcmpType::ECHO_REPLY);
        message.fill_checksum();
        if !ping.is_raw {
            return bytes;
        }
        let mut packet = vec![0; 20];
        packet.extend(bytes);
        let len = packet.len() as u16;
        Ipv4::init(&mut packet[..]).unwrap().set_total_length(len);
        packet
    }

    fn kinds() -> [PingProbe; 3] {
        [ping("10.0.0.1", false), ping("10.0.0.1", true), ping("2001:db8::1", false)]
    }

    #[test]
    fn an_answer_has_our_numbers_our_mark_and_comes_from_whom_we_asked() {
        for ping in kinds() {
            let good = answer(&ping);
            assert!(ping.is_answer(ping.to.ip(), &good), "{ping:?}");
            assert!(!ping.is_answer("10.0.0.2".parse().unwrap(), &good), "{ping:?}");
            assert!(!ping.is_answer("2001:db8::2".parse().unwrap(), &good), "{ping:?}");
            assert!(!ping.is_answer(ping.to.ip(), &ping.request().unwrap()), "our own request: {ping:?}");
            for other in [
                PingProbe { id: 78, ..ping },
                PingProbe { seq: 9, ..ping },
                PingProbe { mark: (MARK - 1).to_be_bytes(), ..ping },
            ] {
                assert!(!ping.is_answer(ping.to.ip(), &answer(&other)), "{other:?}");
            }
        }
    }

    #[test]
    fn an_answer_that_is_cut_or_too_long_or_damaged_is_none() {
        for ping in kinds() {
            let good = answer(&ping);
            for len in 0..good.len() {
                assert!(!ping.is_answer(ping.to.ip(), &good[..len]), "{len} bytes: {ping:?}");
            }
            let start = good.len() - LEN;
            for byte in start..good.len() {
                let mut damaged = good.clone();
                damaged[byte] ^= 0x10;
                let is_checked_by_us = ping.to.is_ipv4() || !(start + 1..start + 4).contains(&byte);
                let is_answer = ping.is_answer(ping.to.ip(), &damaged);
                assert_eq!(is_answer, !is_checked_by_us, "byte {byte}: {ping:?}");
            }
        }
        let long = [answer(&ping("10.0.0.1", false)), vec![0; 2]].concat();
        assert!(!ping("10.0.0.1", false).is_answer("10.0.0.1".parse().unwrap(), &long));
    }

    #[test]
    fn a_socket_for_echoes_is_taken_where_it_is_granted_and_else_a_raw_one() {
        in_namespace(|| {
            for to in ["127.0.0.1:0", "[::1]:0"] {
                let kind = || PingProbe::open(to.parse().unwrap(), 1, MARK).map(|(_, ping)| ping.is_raw);
                std::fs::write("/proc/sys/net/ipv4/ping_group_range", "1 0").unwrap();
                assert_eq!(kind(), Ok(true), "{to}");
                std::fs::write("/proc/sys/net/ipv4/ping_group_range", "0 0").unwrap();
                assert_eq!(kind(), Ok(false), "{to}");
            }
        });
    }

    proptest! {
        #[test]
        fn no_bytes_make_it_panic_or_pass(bytes in prop::collection::vec(any::<u8>(), 0..ROOM)) {
            for ping in kinds() {
                prop_assert!(!ping.is_answer(ping.to.ip(), &bytes));
            }
        }
    }
}
