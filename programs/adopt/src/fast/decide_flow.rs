//! What becomes of packets of established connections, in plain code: what `program::flow` and
//! `program::translate` do.
use super::flows::*;
use super::layout::Reason;
use super::memory::Memory;

const TCP: u8 = 6;
const UDP: u8 = 17;

/// Where of a family's header what is.
pub(super) struct FlowHeaders {
    is_v6: bool,
    length: usize,
    protocol: usize,
    addresses: std::ops::Range<usize>,
    echo: (u8, [u8; 2]),
}

impl FlowHeaders {
    pub(super) const IPV4: FlowHeaders =
        FlowHeaders { is_v6: false, length: 20, protocol: 9, addresses: 12..20, echo: (1, [8, 0]) };
    pub(super) const IPV6: FlowHeaders =
        FlowHeaders { is_v6: true, length: 40, protocol: 6, addresses: 8..40, echo: (58, [128, 129]) };
}

/// What the record of a packet's flow says.
pub(super) struct FlowMatch {
    pub(super) translation: Option<NewTuple>,
    /// The port that it must leave by.
    pub(super) exit: Option<u32>,
}

/// What a packet leaves with.
pub(super) struct NewTuple {
    is_v6: bool,
    source: Vec<u8>,
    pub(super) destination: Vec<u8>,
    ports: [u8; 4],
}

/// Finds the flow of a packet that came by a port, of which programs see `seen`, and checks that the packet
/// does not close its connection. Notes nothing in the record, as programs do.
pub(super) fn match_flow(
    memory: &Memory,
    port: u32,
    headers: &FlowHeaders,
    seen: &[u8],
    length: usize,
    is_multi_buffer: bool,
) -> Result<FlowMatch, Reason> {
    let unknown = Reason::NotEstablished;
    if is_multi_buffer {
        return Err(Reason::MultiBuffer);
    }
    let flows = memory.flows.as_ref().ok_or(unknown)?;
    let transport = seen.get(headers.length..).filter(|rest| rest.len() >= 8).ok_or(unknown)?;
    let protocol = seen[headers.protocol];
    let (echo, types) = headers.echo;
    let ports = match protocol {
        TCP | UDP => [transport[0], transport[1], transport[2], transport[3]],
        _ if protocol == echo && types.contains(&transport[0]) => {
            [transport[4], transport[5], transport[0], transport[1]]
        }
        _ => return Err(unknown),
    };
    let word = |bytes: &[u8]| u32::from_ne_bytes([bytes[0], bytes[1], bytes[2], bytes[3]]);
    let mut key: Vec<u32> = seen[headers.addresses.clone()].chunks(4).map(word).collect();
    key.extend([word(&ports), u32::from(protocol) | IN_USE]);
    let missing = || if flows.is_full(headers.is_v6, &key) { Reason::NoRoom } else { unknown };
    let record = flows.find(headers.is_v6, &key).ok_or_else(missing)?;
    let properties = record.properties();
    if properties & (KEPT_BY_RULE | KEPT_BY_WINDOW) != 0 {
        return Err(if properties & KEPT_BY_RULE != 0 { Reason::Rule } else { Reason::Window });
    }
    let entry = properties >> ENTRY & 0xff;
    if entry != 0 && entry != port + 1 {
        return Err(Reason::OtherPort);
    }
    if record.is_closing() {
        return Err(Reason::Closing);
    }
    let length = length - headers.length;
    let is_right = match protocol {
        TCP => {
            let has_header = transport.len() >= 20;
            let header = usize::from(transport.get(12).map_or(0, |byte| byte >> 4)) * 4;
            let is_whole = has_header && (20..=length).contains(&header);
            if is_whole && transport[13] & 0x17 != 0x10 {
                return Err(Reason::Closing);
            }
            is_whole
        }
        UDP => (8..=length).contains(&usize::from(u16::from_be_bytes([transport[4], transport[5]]))),
        _ => true,
    };
    if !is_right || length < 8 {
        return Err(unknown);
    }
    let interval = u64::from(record.interval());
    let now = memory.lease.tick().unwrap_or(u64::MAX);
    if interval != 0 && now.wrapping_sub(record.stamp()) >= interval {
        return Err(Reason::Renewal);
    }
    let layout = if headers.is_v6 { FLOWS6 } else { FLOWS4 };
    let bytes = |at: usize| record.word(at).to_ne_bytes();
    let address = |at: usize| (at..at + layout.address).flat_map(bytes).collect();
    let translation = (properties & layout.translated != 0).then(|| NewTuple {
        is_v6: headers.is_v6,
        source: address(layout.new_source),
        destination: address(layout.new_destination),
        ports: bytes(layout.new_ports),
    });
    Ok(FlowMatch { translation, exit: (properties >> EXIT & 0xff).checked_sub(1) })
}

impl NewTuple {
    /// Whether the packet may leave by the port where it came: the kernel's redirects of IPv6, which no
    /// setting ends, would say nothing that its sender could use.
    pub(super) fn may_return(&self) -> bool {
        self.is_v6
    }

    /// Puts addresses and ports into a packet, with its sums.
    pub(super) fn write(&self, packet: &mut [u8]) {
        let headers = if self.is_v6 { FlowHeaders::IPV6 } else { FlowHeaders::IPV4 };
        let addresses = [&self.source[..], &self.destination].concat();
        let of_addresses = difference(&packet[headers.addresses.clone()], &addresses);
        packet[headers.addresses].copy_from_slice(&addresses);
        if !self.is_v6 {
            replace_sum(packet, 10, of_addresses);
        }
        let protocol = packet[headers.protocol];
        let transport = &mut packet[headers.length..];
        let (place, new) = match protocol {
            TCP | UDP => (0..4, &self.ports[..]),
            _ => (4..6, &self.ports[..2]),
        };
        let of_ports = difference(&transport[place.clone()], new);
        transport[place].copy_from_slice(new);
        match protocol {
            TCP => replace_sum(transport, 16, of_addresses + of_ports),
            UDP if transport[6..8] == [0, 0] => {}
            UDP => {
                replace_sum(transport, 6, of_addresses + of_ports);
                if transport[6..8] == [0, 0] {
                    transport[6..8].copy_from_slice(&[0xff, 0xff]);
                }
            }
            _ if self.is_v6 => replace_sum(transport, 2, of_addresses + of_ports),
            _ => replace_sum(transport, 2, of_ports),
        }
    }
}

fn words(bytes: &[u8]) -> impl Iterator<Item = u16> {
    bytes.chunks(2).map(|word| u16::from_be_bytes([word[0], word[1]]))
}

/// What must be added to a sum of ones' complement (RFC 1624).
fn difference(old: &[u8], new: &[u8]) -> u32 {
    words(old).map(|word| u32::from(!word)).sum::<u32>() + words(new).map(u32::from).sum::<u32>()
}

fn replace_sum(packet: &mut [u8], at: usize, difference: u32) {
    let mut sum = u32::from(!u16::from_be_bytes([packet[at], packet[at + 1]])) + difference;
    while sum > 0xffff {
        sum = (sum & 0xffff) + (sum >> 16);
    }
    packet[at..at + 2].copy_from_slice(&(!(sum as u16)).to_be_bytes());
}
