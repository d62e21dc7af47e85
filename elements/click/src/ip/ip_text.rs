//! A line about an IP packet as IPPrint writes it. Its spelling is
//! Click's; `artery_wire::describe` has tcpdump's.
use super::name;
use artery_wire::{IpProtocol, TcpFlags};
use std::fmt::Write;
use std::net::Ipv4Addr;

const MIN_LEN: usize = 20;
const ECHO_REPLY: u8 = 0;
const UNREACHABLE: u8 = 3;
const ECHO: u8 = 8;
const ICMP_HEADER: usize = 8;

/// A packet from its IP header on, without any checks.
pub(crate) struct Header<'a> {
    bytes: &'a [u8],
    fixed: &'a [u8; MIN_LEN],
}

/// The line ends here, with a word that names the truncated part.
struct Truncated;

/// Adds to a text; a shorthand, since writing to a string can't fail.
macro_rules! add {
    ($text:expr, $($what:tt)*) => { write!($text, $($what)*).expect("writing to a string can't fail") };
}

impl<'a> Header<'a> {
    /// None if there are too few bytes for a header.
    pub(crate) fn new(bytes: &'a [u8]) -> Option<Header<'a>> {
        Some(Header { bytes, fixed: bytes.first_chunk()? })
    }

    fn read_word(&self, at: usize) -> u16 {
        u16::from_be_bytes([self.fixed[at], self.fixed[at + 1]])
    }
    fn header_len(&self) -> usize {
        usize::from(self.fixed[0] & 0xf) * 4
    }
    pub(crate) fn id(&self) -> u16 {
        self.read_word(4)
    }
    pub(crate) fn ttl(&self) -> u8 {
        self.fixed[8]
    }
    pub(crate) fn tos(&self) -> u8 {
        self.fixed[1]
    }
    /// The total length field.
    pub(crate) fn length(&self) -> u16 {
        self.read_word(2)
    }
    fn protocol(&self) -> IpProtocol {
        IpProtocol(self.fixed[9])
    }
    fn fragment_offset(&self) -> usize {
        usize::from(self.read_word(6) & 0x1fff) * 8
    }
    fn more_fragments(&self) -> bool {
        self.read_word(6) & 0x2000 != 0
    }
    fn src(&self) -> Ipv4Addr {
        Ipv4Addr::new(self.fixed[12], self.fixed[13], self.fixed[14], self.fixed[15])
    }
    fn dst(&self) -> Ipv4Addr {
        Ipv4Addr::new(self.fixed[16], self.fixed[17], self.fixed[18], self.fixed[19])
    }

    /// All that follows the header.
    fn after_header(&self) -> &'a [u8] {
        self.bytes.get(self.header_len()..).unwrap_or(&[])
    }

    /// The bytes after the header, up to the total length.
    fn transport_bytes(&self) -> &'a [u8] {
        let after = self.after_header();
        let length = usize::from(self.length()).saturating_sub(self.header_len());
        &after[..after.len().min(length)]
    }

    /// What follows the headers of TCP and UDP, or the IP header, to the end of the packet.
    pub(crate) fn payload(&self) -> &'a [u8] {
        let after = self.after_header();
        let header = match self.protocol() {
            _ if self.fragment_offset() > 0 => 0,
            IpProtocol::TCP => after.get(12).map_or(0, |offset| usize::from(offset >> 4) * 4),
            IpProtocol::UDP => 8,
            _ => 0,
        };
        after.get(header..).unwrap_or(&[])
    }

    /// Writes the addresses and the payload's fields. `swap` is whether echo numbers are in network order.
    pub(crate) fn write_line(&self, text: &mut String, packet_len: usize, swap: bool) {
        let (written, name) = match self.protocol() {
            IpProtocol::TCP => (self.write_tcp(text, packet_len), "tcp"),
            IpProtocol::UDP => (self.write_udp(text), "udp"),
            IpProtocol::ICMP => (self.write_icmp(text, swap), "icmp"),
            IpProtocol(other) => {
                add!(text, "{} > {}: ip-proto-{other}", self.src(), self.dst());
                (Ok(()), "")
            }
        };
        if let Err(Truncated) = written {
            add!(text, "truncated-{name}");
        }
        self.write_fragment(text);
    }

    fn write_fragment(&self, text: &mut String) {
        if self.more_fragments() || self.fragment_offset() > 0 {
            let length = i32::from(self.length()) - self.header_len() as i32;
            let more = if self.more_fragments() { "+" } else { "" };
            add!(text, " (frag {}:{length}@{}{more})", self.id(), self.fragment_offset());
        }
    }

    /// Writes both ends with their ports, if there are any; returns the transport bytes of a first fragment.
    fn write_ends(&self, text: &mut String, name: &str) -> Result<Option<&'a [u8]>, Truncated> {
        let transport = self.transport_bytes();
        let ports = transport.first_chunk::<4>().filter(|_| self.fragment_offset() == 0);
        let Some([s0, s1, d0, d1]) = ports else {
            add!(text, "{} > {}: ", self.src(), self.dst());
            if self.fragment_offset() == 0 {
                return Err(Truncated);
            }
            text.push_str(name);
            return Ok(None);
        };
        let (src_port, dst_port) = (u16::from_be_bytes([*s0, *s1]), u16::from_be_bytes([*d0, *d1]));
        add!(text, "{}.{src_port} > {}.{dst_port}: ", self.src(), self.dst());
        Ok(Some(transport))
    }

    fn write_tcp(&self, text: &mut String, packet_len: usize) -> Result<(), Truncated> {
        let Some(tcp) = self.write_ends(text, "tcp")? else { return Ok(()) };
        let fixed = tcp.first_chunk::<14>().ok_or(Truncated)?;
        let number = |at: usize| u32::from_be_bytes([fixed[at], fixed[at + 1], fixed[at + 2], fixed[at + 3]]);
        let flags = TcpFlags(fixed[13]);
        let headers = self.header_len() as i32 + i32::from(fixed[12] >> 4) * 4;
        let mut length = i32::from(self.length()) - headers;
        let letters = [
            (TcpFlags::SYN, 'S', 1),
            (TcpFlags::FIN, 'F', 1),
            (TcpFlags::RST, 'R', 0),
            (TcpFlags::PSH, 'P', 0),
        ];
        for (_, letter, counts) in letters.into_iter().filter(|(flag, ..)| flags.contains(*flag)) {
            text.push(letter);
            length += counts;
        }
        if letters.iter().all(|(flag, ..)| !flags.contains(*flag)) {
            text.push('.');
        }
        let (seq, end) = (number(4), number(4).wrapping_add_signed(length));
        add!(text, " {seq}:{end}({length},{packet_len},{})", self.length());
        if flags.contains(TcpFlags::ACK) {
            add!(text, " ack {}", number(8));
        }
        let [.., high, low] = tcp.first_chunk::<16>().ok_or(Truncated)?;
        add!(text, " win {}", u16::from_be_bytes([*high, *low]));
        Ok(())
    }

    fn write_udp(&self, text: &mut String) -> Result<(), Truncated> {
        let Some(udp) = self.write_ends(text, "udp")? else { return Ok(()) };
        let [_, _, _, _, high, low, _, _] = udp.first_chunk::<8>().ok_or(Truncated)?;
        add!(text, "udp {}", u16::from_be_bytes([*high, *low]));
        Ok(())
    }

    fn write_icmp(&self, text: &mut String, swap: bool) -> Result<(), Truncated> {
        add!(text, "{} > {}: ", self.src(), self.dst());
        if self.fragment_offset() > 0 {
            text.push_str("icmp");
            return Ok(());
        }
        let message = self.transport_bytes();
        let [icmp_type, code] = *message.first_chunk::<2>().ok_or(Truncated)?;
        match icmp_type {
            ECHO | ECHO_REPLY => {
                add!(text, "icmp {} ", if icmp_type == ECHO { "echo" } else { "echo-reply" });
                let [.., i0, i1, s0, s1] = *message.first_chunk::<8>().ok_or(Truncated)?;
                let read = if swap { u16::from_be_bytes } else { u16::from_le_bytes };
                add!(text, "({}, {})", read([i0, i1]), read([s0, s1]));
                Ok(())
            }
            UNREACHABLE => write_unreachable(text, code, message),
            _ => {
                write_other_icmp(text, icmp_type, code);
                Ok(())
            }
        }
    }
}

fn write_unreachable(text: &mut String, code: u8, message: &[u8]) -> Result<(), Truncated> {
    let why = name::icmp_code(UNREACHABLE, code).map_or_else(|| format!("code {code}"), str::to_string);
    let Some(quoted) = message.get(ICMP_HEADER..).and_then(Header::new) else {
        add!(text, "icmp unreachable {why} ");
        return Err(Truncated);
    };
    add!(text, "icmp {} unreachable {why}", quoted.dst());
    let protocol = quoted.protocol().0;
    match code {
        2 => match name::protocol_name(protocol) {
            Some(name) => add!(text, " {name}"),
            None => add!(text, " {protocol}"),
        },
        3 => {
            match name::protocol_name(protocol) {
                Some(name) => add!(text, " {name}"),
                None => add!(text, " protocol {protocol}"),
            }
            let [_, _, high, low] = quoted.after_header().first_chunk::<4>().ok_or(Truncated)?;
            add!(text, "/{}", u16::from_be_bytes([*high, *low]));
        }
        4 if message[6..8] != [0, 0] => add!(text, " (mtu {})", u16::from_be_bytes([message[6], message[7]])),
        _ => {}
    }
    Ok(())
}

fn write_other_icmp(text: &mut String, icmp_type: u8, code: u8) {
    match name::icmp_type(icmp_type) {
        Some(name) => add!(text, "icmp {name}"),
        None => add!(text, "icmp type {icmp_type}"),
    }
    match name::icmp_code(icmp_type, code) {
        Some(name) => add!(text, " {name}"),
        None if code != 0 => add!(text, " code {code}"),
        None => {}
    }
}
