//! Flows in lines exactly as `artery flow export` writes them, parsed field by field: several times as fast
//! as general JSON. Lines in any other form, and all mistakes, are left to [`json::read`](super::json::read).
use super::json::LONGEST;
use artery_flow::balance::Member;
use artery_flow::stream::{AnyKey, StreamFlow, is_valid_state, protocol_of, state_of};
use artery_flow::{Answer, FlowRecord};
use std::net::IpAddr;
use std::time::Duration;

/// Ticks of a second: the idle time has four places.
const TICKS: u64 = 10_000;

/// Parses the flow of a text's first line: the flow, its member's name, and the text after the line. None if
/// the line is written otherwise.
pub(super) fn flow(text: &[u8]) -> Option<(StreamFlow, &str, &[u8])> {
    let mut rest = Rest(text);
    let protocol = protocol_of(rest.behind(b"{\"protocol\":\"")?.string()?)?;
    let src = rest.behind(b",\"src\":\"")?.address()?;
    let sport = rest.behind(b",\"sport\":")?.number()?;
    let dst = rest.behind(b",\"dst\":\"")?.address()?;
    let dport = rest.behind(b",\"dport\":")?.number()?;
    let member = rest.behind(b",\"member\":\"")?.string().filter(|name| Member::is_name(name))?;
    let state = rest.behind(b",\"state\":\"")?.string()?;
    let idle = rest.behind(b",\"idle\":")?.idle()?;
    let packets = rest.behind(b",\"packets\":")?.number()?;
    let bytes = rest.behind(b",\"bytes\":")?.number()?;
    let version = rest.behind(b",\"version\":")?.number()?;
    let is_young = rest.behind(b",\"young\":")?.boolean()?;
    let is_pinned = rest.behind(b",\"pinned\":")?.boolean()?;
    let is_imported = rest.behind(b",\"imported\":")?.boolean()?;
    let epoch = rest.behind(b",\"epoch\":")?.number()?;
    rest.behind(b"}\n")?;
    let flow = FlowRecord {
        key: AnyKey::new([(src, sport), (dst, dport)], protocol).ok()?,
        answer: Answer::default(),
        state: state_of(state).filter(|state| is_valid_state(*state, protocol))?,
        idle,
        packets,
        bytes,
        version,
        is_young,
        is_pinned,
        is_imported,
        epoch,
    };
    Some((flow, member, rest.0))
}

/// The rest of a text.
struct Rest<'a>(&'a [u8]);

impl<'a> Rest<'a> {
    /// Passes over what must come first.
    #[inline(always)]
    fn behind(&mut self, first: &[u8]) -> Option<&mut Rest<'a>> {
        self.0 = self.0.strip_prefix(first)?;
        Some(self)
    }

    /// Up to the quotation mark, which is passed over. Where one is written otherwise than it is meant, it is
    /// not what any of the fields can be.
    #[inline(always)]
    fn string(&mut self) -> Option<&'a str> {
        let end = self.0.iter().position(|byte| *byte == b'"')?;
        let text = std::str::from_utf8(&self.0[..end]).ok()?;
        self.0 = &self.0[end + 1..];
        Some(text)
    }

    #[inline(always)]
    fn address(&mut self) -> Option<IpAddr> {
        self.string()?.parse().ok()
    }

    /// An integer that is not negative, as JSON has it: without zeros before it.
    #[inline(always)]
    fn number<T: TryFrom<u64>>(&mut self) -> Option<T> {
        let (digits, number) = self.digits();
        let is_plain = digits == 1 || self.0.first() != Some(&b'0');
        // More digits than 19 may be too many for 64 bits.
        (1..=19).contains(&digits).then_some(())?;
        self.0 = &self.0[digits..];
        T::try_from(number).ok().filter(|_| is_plain)
    }

    /// The number of leading digits, and their value unless they are too many.
    #[inline(always)]
    fn digits(&self) -> (usize, u64) {
        let (mut count, mut number) = (0, 0_u64);
        while let Some(digit) = self.0.get(count).filter(|byte| byte.is_ascii_digit()) {
            number = number.wrapping_mul(10).wrapping_add(u64::from(digit - b'0'));
            count += 1;
        }
        (count, number)
    }

    /// Seconds with four places.
    #[inline(always)]
    fn idle(&mut self) -> Option<Duration> {
        let seconds: u32 = self.number()?;
        let (digits, ticks) = self.behind(b".")?.digits();
        (digits == 4).then_some(())?;
        self.0 = &self.0[digits..];
        let ticks = u64::from(seconds) * TICKS + ticks;
        (ticks <= LONGEST as u64 * TICKS).then(|| Duration::from_micros(ticks * (1_000_000 / TICKS)))
    }

    #[inline(always)]
    fn boolean(&mut self) -> Option<bool> {
        if self.behind(b"true").is_some() {
            return Some(true);
        }
        self.behind(b"false").map(|_| false)
    }
}

#[cfg(test)]
mod tests {
    use super::super::json::{self, Line};
    use super::*;
    use artery_flow::FlowState;
    use artery_wire::IpProtocol;
    use proptest::prelude::*;
    use std::net::{Ipv4Addr, Ipv6Addr};

    /// Checks that a line is read as the general parser reads it. Returns whether it was read at all.
    fn agrees(text: &[u8]) -> bool {
        let line = text.strip_suffix(b"\n").unwrap_or(text);
        match flow(text) {
            None => false,
            Some((flow, name, rest)) => {
                assert_eq!(json::read(line), Ok(Line::Flow(flow, name.into())), "{}", text.escape_ascii());
                assert!(rest.is_empty());
                true
            }
        }
    }

    fn flows() -> impl Strategy<Value = StreamFlow> {
        let states = [
            (IpProtocol::TCP, FlowState::Opening),
            (IpProtocol::TCP, FlowState::Closed),
            (IpProtocol::UDP, FlowState::UdpStream),
            (IpProtocol::SCTP, FlowState::Other),
        ];
        let ends = (1_u32.., 1_u16.., 1_u16.., any::<bool>());
        let rest = (0..=429_496_u64 * TICKS, any::<u64>(), any::<u64>(), any::<u16>(), any::<[bool; 3]>());
        (ends, 0..states.len(), rest).prop_filter_map(
            "some addresses have no flows",
            move |(
                (from, sport, dport, is_v4),
                state,
                (ticks, packets, bytes, version, [is_young, is_pinned, is_imported]),
            )| {
                let to_v6 = |bits: u32| IpAddr::V6(Ipv6Addr::from_bits(u128::from(bits) << 64 | 7));
                let of = |bits: u32| if is_v4 { Ipv4Addr::from_bits(bits).into() } else { to_v6(bits) };
                let (protocol, state) = states[state];
                Some(FlowRecord {
                    key: AnyKey::new([(of(from), sport), (of(!from), dport)], protocol).ok()?,
                    answer: Answer::default(),
                    state,
                    idle: Duration::from_micros(ticks * 100),
                    packets,
                    bytes,
                    version,
                    is_young,
                    is_pinned,
                    is_imported,
                    epoch: version ^ 0x5555,
                })
            },
        )
    }

    proptest! {
        #[test]
        fn what_is_written_here_is_read_as_json_is_and_nothing_else_is_read_in_another_way(
            flow in flows(), at: usize, with: u8
        ) {
            let mut line = Vec::new();
            json::write(&flow, "web-1", None, &mut line);
            let few = flow.packets.max(flow.bytes) < 10_u64.pow(19);
            prop_assert_eq!(agrees(&line), few);
            let at = at % line.len();
            let mut damaged = line.clone();
            damaged[at] = with;
            agrees(&damaged);
            let mut shorter = line.clone();
            shorter.remove(at);
            agrees(&shorter);
            for len in 0..line.len() {
                agrees(&line[..len]);
            }
            line.insert(at, b"0.\"e-"[usize::from(with % 5)]);
            agrees(&line);
        }
    }

    #[test]
    fn another_order_a_missing_field_and_what_is_wrong_are_left_to_others() {
        let line = "{\"protocol\":\"tcp\",\"src\":\"198.51.100.7\",\"sport\":9,\"dst\":\"192.0.2.1\",\
            \"dport\":80,\
            \"member\":\"a\",\"state\":\"fin\",\"idle\":1.5003,\"packets\":7,\"bytes\":700,\"version\":65535,\
            \"young\":false,\"pinned\":true,\"imported\":false,\"epoch\":3}\n";
        assert!(agrees(line.as_bytes()));
        for (from, to) in [
            ("\"sport\":9", "\"sport\":0"),
            ("\"sport\":9", "\"sport\":09"),
            ("\"sport\":9", "\"sport\":65536"),
            ("1.5003", "429496.0001"),
            ("1.5003", "1.50030"),
            ("1.5003", "1.500"),
            ("\"a\"", "\"a b\""),
            ("\"a\"", "\"\""),
            ("tcp", "udp"),
            ("tcp", "icmp"),
            (":7,", ":18446744073709551616,"),
            ("198.51.100.7", "192.0.2.1"),
            ("198.51.100.7", "198.51.100.07"),
            (",\"young\":false", ""),
            ("}\n", "} \n"),
            ("}\n", "}"),
        ] {
            assert!(line.contains(from));
            assert!(!agrees(line.replace(from, to).as_bytes()), "{to}");
        }
    }
}
