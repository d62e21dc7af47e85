//! Messages of IPFIX (RFC 7011): templates, and sets of flow records. No socket and no clock is here.
//!
//! Each record of a flow has a template by its family, and whether it is translated (RFC 8158); samples have
//! one by their family. Templates are sent at the beginning of a message, with the options templates by which
//! the exporter says how many records it lost, and how packets are selected (RFC 5477).
use artery_common::flow_export::{End, ExportedFlow};
use artery_common::packet_samples::SampledPacket;
use std::net::IpAddr;
use std::time::Duration;

/// Most bytes of a message: with headers of UDP and IPv6 it fits into the MTU of most tunnels.
pub(super) const MOST_BYTES: usize = 1400;

const VERSION: u16 = 10;
const HEADER: usize = 16;
const SET_HEADER: usize = 4;
/// Numbers of sets (RFC 7011 section 3.3.2).
const TEMPLATE_SET: u16 = 2;
const OPTIONS_TEMPLATE_SET: u16 = 3;

/// Information elements, with their numbers at IANA.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Element {
    OctetDeltaCount = 1,
    PacketDeltaCount = 2,
    ProtocolIdentifier = 4,
    IpClassOfService = 5,
    TcpControlBits = 6,
    SourceTransportPort = 7,
    SourceIpv4Address = 8,
    IngressInterface = 10,
    DestinationTransportPort = 11,
    DestinationIpv4Address = 12,
    EgressInterface = 14,
    IpNextHopIpv4Address = 15,
    SourceIpv6Address = 27,
    DestinationIpv6Address = 28,
    IpNextHopIpv6Address = 62,
    FlowEndReason = 136,
    ExportingProcessId = 144,
    FlowStartMilliseconds = 152,
    FlowEndMilliseconds = 153,
    NotSentFlowTotalCount = 165,
    PostNatSourceIpv4Address = 225,
    PostNatDestinationIpv4Address = 226,
    PostNaptSourceTransportPort = 227,
    PostNaptDestinationTransportPort = 228,
    PostNatSourceIpv6Address = 281,
    PostNatDestinationIpv6Address = 282,
    SelectorId = 302,
    SelectorAlgorithm = 304,
    SamplingPacketInterval = 305,
    SamplingPacketSpace = 306,
}

impl Element {
    fn length(self) -> u16 {
        use Element::*;
        match self {
            ProtocolIdentifier | FlowEndReason | IpClassOfService | TcpControlBits => 1,
            SourceTransportPort
            | DestinationTransportPort
            | PostNaptSourceTransportPort
            | PostNaptDestinationTransportPort
            | SelectorAlgorithm => 2,
            IngressInterface
            | EgressInterface
            | ExportingProcessId
            | SourceIpv4Address
            | DestinationIpv4Address
            | IpNextHopIpv4Address
            | PostNatSourceIpv4Address
            | PostNatDestinationIpv4Address
            | SelectorId
            | SamplingPacketInterval
            | SamplingPacketSpace => 4,
            OctetDeltaCount
            | PacketDeltaCount
            | FlowStartMilliseconds
            | FlowEndMilliseconds
            | NotSentFlowTotalCount => 8,
            SourceIpv6Address
            | DestinationIpv6Address
            | IpNextHopIpv6Address
            | PostNatSourceIpv6Address
            | PostNatDestinationIpv6Address => 16,
        }
    }
}

/// The elements of every record of a flow, behind its addresses.
const COMMON: [Element; 10] = [
    Element::SourceTransportPort,
    Element::DestinationTransportPort,
    Element::ProtocolIdentifier,
    Element::FlowEndReason,
    Element::IngressInterface,
    Element::EgressInterface,
    Element::PacketDeltaCount,
    Element::OctetDeltaCount,
    Element::FlowStartMilliseconds,
    Element::FlowEndMilliseconds,
];

/// The elements of a sample, behind its addresses.
const OF_SAMPLE: [Element; 12] = [
    Element::SelectorId,
    Element::SourceTransportPort,
    Element::DestinationTransportPort,
    Element::ProtocolIdentifier,
    Element::IpClassOfService,
    Element::TcpControlBits,
    Element::IngressInterface,
    Element::EgressInterface,
    Element::PacketDeltaCount,
    Element::OctetDeltaCount,
    // Collectors of flows want times of flows; both are the time of the packet.
    Element::FlowStartMilliseconds,
    Element::FlowEndMilliseconds,
];

/// The number of the selector, of which there is one, and its algorithm: systematic count-based sampling.
const SELECTOR: u32 = 1;
const COUNT_BASED: u16 = 1;

/// The template of a record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Template {
    V4 = 256,
    V6 = 257,
    Nat4 = 258,
    Nat6 = 259,
    /// How many records were lost.
    Reliability = 260,
    Sample4 = 261,
    Sample6 = 262,
    /// How a selector samples packets (RFC 5477).
    Selector = 263,
}

impl Template {
    const OF_FLOWS: [Template; 4] = [Template::V4, Template::V6, Template::Nat4, Template::Nat6];
    const OF_SAMPLES: [Template; 2] = [Template::Sample4, Template::Sample6];

    fn of_flow(flow: &ExportedFlow) -> Template {
        match (flow.ends[0].0.is_ipv4(), flow.translated.is_some()) {
            (true, false) => Template::V4,
            (false, false) => Template::V6,
            (true, true) => Template::Nat4,
            (false, true) => Template::Nat6,
        }
    }

    fn elements(self) -> Vec<Element> {
        use Element::*;
        let addresses: &[Element] = match self {
            Template::V4 => &[SourceIpv4Address, DestinationIpv4Address, IpNextHopIpv4Address],
            Template::V6 => &[SourceIpv6Address, DestinationIpv6Address, IpNextHopIpv6Address],
            Template::Nat4 => &[
                SourceIpv4Address,
                DestinationIpv4Address,
                PostNatSourceIpv4Address,
                PostNatDestinationIpv4Address,
                PostNaptSourceTransportPort,
                PostNaptDestinationTransportPort,
            ],
            Template::Nat6 => &[
                SourceIpv6Address,
                DestinationIpv6Address,
                PostNatSourceIpv6Address,
                PostNatDestinationIpv6Address,
                PostNaptSourceTransportPort,
                PostNaptDestinationTransportPort,
            ],
            Template::Sample4 => {
                return [&[SourceIpv4Address, DestinationIpv4Address][..], &OF_SAMPLE].concat();
            }
            Template::Sample6 => {
                return [&[SourceIpv6Address, DestinationIpv6Address][..], &OF_SAMPLE].concat();
            }
            Template::Reliability => return vec![ExportingProcessId, NotSentFlowTotalCount],
            Template::Selector => {
                return vec![SelectorId, SelectorAlgorithm, SamplingPacketInterval, SamplingPacketSpace];
            }
        };
        [addresses, &COMMON].concat()
    }

    fn record_length(self) -> usize {
        self.elements().iter().map(|element| usize::from(element.length())).sum()
    }
}

/// What the head of a message says of its exporter.
#[derive(Clone, Copy, Debug)]
pub(super) struct Head {
    pub(super) time: Duration,
    pub(super) domain: u32,
    /// Records before this message.
    pub(super) sequence: u32,
}

/// A message that is being written.
pub(super) struct Message {
    bytes: Vec<u8>,
    /// The template of the set that records are being added to, and where the set begins.
    set: Option<(Template, usize)>,
    /// Data records so far.
    pub(super) records: u32,
}

impl Message {
    pub(super) fn new() -> Message {
        let mut bytes = Vec::with_capacity(MOST_BYTES);
        bytes.resize(HEADER, 0);
        Message { bytes, set: None, records: 0 }
    }

    pub(super) fn is_empty(&self) -> bool {
        self.bytes.len() == HEADER
    }

    /// Adds all templates, how many records were lost, and of how many packets one is sampled, if any are.
    pub(super) fn write_templates(&mut self, lost: u64, interval: Option<u32>) {
        let begin = self.begin_set(TEMPLATE_SET);
        let of_samples = Template::OF_SAMPLES.into_iter().filter(|_| interval.is_some());
        for template in Template::OF_FLOWS.into_iter().chain(of_samples) {
            let elements = template.elements();
            self.write_u16s([template as u16, elements.len() as u16]);
            self.write_specifiers(&elements);
        }
        self.end_set(begin);
        self.write_options_template(Template::Reliability);
        let begin = self.begin_set(Template::Reliability as u16);
        self.bytes.extend(std::process::id().to_be_bytes());
        self.bytes.extend(lost.to_be_bytes());
        self.end_set(begin);
        self.records += 1;
        if let Some(interval) = interval {
            self.write_selector(interval);
        }
    }

    /// The template of options, with a scope of one element.
    fn write_options_template(&mut self, template: Template) {
        let begin = self.begin_set(OPTIONS_TEMPLATE_SET);
        let elements = template.elements();
        self.write_u16s([template as u16, elements.len() as u16, 1]);
        self.write_specifiers(&elements);
        // Sets end at multiples of four bytes.
        self.write_u16s([0]);
        self.end_set(begin);
    }

    /// Says how packets are selected (RFC 5477 section 8.2): one, and then not the others of the interval.
    fn write_selector(&mut self, interval: u32) {
        self.write_options_template(Template::Selector);
        let begin = self.begin_set(Template::Selector as u16);
        self.bytes.extend(SELECTOR.to_be_bytes());
        self.write_u16s([COUNT_BASED]);
        [1, interval - 1].iter().for_each(|number| self.bytes.extend(number.to_be_bytes()));
        self.end_set(begin);
        self.records += 1;
    }

    fn write_specifiers(&mut self, elements: &[Element]) {
        elements.iter().for_each(|element| self.write_u16s([*element as u16, element.length()]));
    }

    /// Adds a record; says whether there was room for it.
    pub(super) fn add_flow(&mut self, flow: &ExportedFlow) -> bool {
        let has_room = self.begin_record(Template::of_flow(flow));
        if has_room {
            self.write_flow(flow);
        }
        has_room
    }

    /// Adds a sample; says whether there was room for it.
    pub(super) fn add_sample(&mut self, packet: &SampledPacket) -> bool {
        let is_v4 = packet.ends[0].0.is_ipv4();
        let has_room = self.begin_record(if is_v4 { Template::Sample4 } else { Template::Sample6 });
        if has_room {
            self.write_sample(packet);
        }
        has_room
    }

    /// Begins a record, in the set of its template; says whether there is room for it.
    fn begin_record(&mut self, template: Template) -> bool {
        let is_same = self.set.is_some_and(|(other, _)| other == template);
        let needed = template.record_length() + if is_same { 0 } else { SET_HEADER };
        if self.bytes.len() + needed > MOST_BYTES {
            return false;
        }
        if !is_same {
            self.close_set();
            self.set = Some((template, self.begin_set(template as u16)));
        }
        self.records += 1;
        true
    }

    fn write_flow(&mut self, flow: &ExportedFlow) {
        let [(source, source_port), (destination, destination_port)] = flow.ends;
        self.write_address(source);
        self.write_address(destination);
        match (flow.translated, flow.next_hop) {
            (Some(ends), _) => self.write_translated(ends),
            (None, Some(next_hop)) if next_hop.is_ipv4() == source.is_ipv4() => self.write_address(next_hop),
            (None, _) if source.is_ipv4() => self.bytes.extend([0; 4]),
            (None, _) => self.bytes.extend([0; 16]),
        }
        self.write_u16s([source_port, destination_port]);
        self.bytes.extend([flow.protocol.0, flow.reason as u8]);
        [flow.ingress, flow.egress].iter().for_each(|number| self.bytes.extend(number.to_be_bytes()));
        let millis = [flow.start, flow.end].map(|time| time.as_millis() as u64);
        let numbers = [flow.packets, flow.bytes, millis[0], millis[1]];
        numbers.iter().for_each(|number| self.bytes.extend(number.to_be_bytes()));
    }

    fn write_sample(&mut self, packet: &SampledPacket) {
        let [(source, source_port), (destination, destination_port)] = packet.ends;
        self.write_address(source);
        self.write_address(destination);
        self.bytes.extend(SELECTOR.to_be_bytes());
        self.write_u16s([source_port, destination_port]);
        self.bytes.extend([packet.protocol.0, packet.tos, packet.tcp_flags]);
        [packet.ingress, packet.egress].iter().for_each(|number| self.bytes.extend(number.to_be_bytes()));
        let time = packet.time.as_millis() as u64;
        let numbers = [1, packet.bytes.into(), time, time];
        numbers.iter().for_each(|number: &u64| self.bytes.extend(number.to_be_bytes()));
    }

    fn write_translated(&mut self, [source, destination]: [End; 2]) {
        self.write_address(source.0);
        self.write_address(destination.0);
        self.write_u16s([source.1, destination.1]);
    }

    fn write_address(&mut self, address: IpAddr) {
        match address {
            IpAddr::V4(address) => self.bytes.extend(address.octets()),
            IpAddr::V6(address) => self.bytes.extend(address.octets()),
        }
    }

    fn write_u16s<const N: usize>(&mut self, numbers: [u16; N]) {
        numbers.iter().for_each(|number| self.bytes.extend(number.to_be_bytes()));
    }

    /// Begins a set; returns where.
    fn begin_set(&mut self, number: u16) -> usize {
        let begin = self.bytes.len();
        self.write_u16s([number, 0]);
        begin
    }

    fn end_set(&mut self, begin: usize) {
        let length = (self.bytes.len() - begin) as u16;
        self.bytes[begin + 2..begin + 4].copy_from_slice(&length.to_be_bytes());
    }

    fn close_set(&mut self) {
        if let Some((_, begin)) = self.set.take() {
            self.end_set(begin);
        }
    }

    /// The whole message.
    pub(super) fn finish(mut self, head: Head) -> Vec<u8> {
        self.close_set();
        let length = self.bytes.len() as u16;
        self.bytes[..2].copy_from_slice(&VERSION.to_be_bytes());
        self.bytes[2..4].copy_from_slice(&length.to_be_bytes());
        self.bytes[4..8].copy_from_slice(&(head.time.as_secs() as u32).to_be_bytes());
        self.bytes[8..12].copy_from_slice(&head.sequence.to_be_bytes());
        self.bytes[12..HEADER].copy_from_slice(&head.domain.to_be_bytes());
        self.bytes
    }
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;
    use artery_common::flow_export::FlowEndReason;
    use artery_common::packet_samples::FrameStart;
    use artery_wire::IpProtocol;

    pub(crate) fn flow(is_v6: bool, is_nat: bool) -> ExportedFlow {
        let address = |n: u8| -> IpAddr {
            if is_v6 { [0x2001, 0xdb8, 0, 0, 0, 0, 0, n.into()].into() } else { [192, 0, 2, n].into() }
        };
        ExportedFlow {
            ends: [(address(1), 1024), (address(2), 80)],
            translated: is_nat.then(|| [(address(1), 1024), (address(3), 8080)]),
            protocol: IpProtocol::TCP,
            next_hop: (!is_nat).then(|| address(4)),
            ingress: 5,
            egress: 6,
            packets: 7,
            bytes: 800,
            start: Duration::from_millis(1_700_000_000_123),
            end: Duration::from_millis(1_700_000_009_456),
            reason: FlowEndReason::Active,
        }
    }

    fn head() -> Head {
        Head { time: Duration::from_secs(0x0102_0304), domain: 9, sequence: 0x0a0b }
    }

    /// The sets of a message: number and contents.
    fn sets(bytes: &[u8]) -> Vec<(u16, Vec<u8>)> {
        let u16_at = |at: usize| u16::from_be_bytes([bytes[at], bytes[at + 1]]);
        assert_eq!((u16_at(0), usize::from(u16_at(2))), (10, bytes.len()));
        let (mut at, mut sets) = (HEADER, Vec::new());
        while at < bytes.len() {
            let end = at + usize::from(u16_at(at + 2));
            sets.push((u16_at(at), bytes[at + SET_HEADER..end].to_vec()));
            at = end;
        }
        sets
    }

    #[test]
    fn a_message_has_its_head_and_a_record_the_length_of_its_template() {
        for (is_v6, is_nat, number, length) in
            [(false, false, 256, 58), (true, false, 257, 94), (false, true, 258, 66), (true, true, 259, 114)]
        {
            let mut message = Message::new();
            assert!(message.is_empty() && message.add_flow(&flow(is_v6, is_nat)));
            assert!(message.add_flow(&flow(is_v6, is_nat)));
            assert_eq!(message.records, 2);
            let bytes = message.finish(head());
            assert_eq!(bytes[4..HEADER], [1, 2, 3, 4, 0, 0, 0x0a, 0x0b, 0, 0, 0, 9]);
            let sets = sets(&bytes);
            assert_eq!(sets.len(), 1, "records of one template share a set");
            assert_eq!((sets[0].0, sets[0].1.len()), (number, 2 * length));
        }
    }

    #[test]
    fn the_fields_of_a_record_are_where_its_template_says() {
        let mut message = Message::new();
        message.add_flow(&flow(false, true));
        let bytes = message.finish(head());
        let (_, record) = &sets(&bytes)[0];
        let mut at = 0;
        let mut field = |wanted: Element| {
            let position = Template::Nat4.elements().iter().position(|element| *element == wanted).unwrap();
            let before: u16 = Template::Nat4.elements()[..position].iter().map(|one| one.length()).sum();
            at = usize::from(before);
            record[at..at + usize::from(wanted.length())].to_vec()
        };
        assert_eq!(field(Element::SourceIpv4Address), [192, 0, 2, 1]);
        assert_eq!(field(Element::PostNatDestinationIpv4Address), [192, 0, 2, 3]);
        assert_eq!(field(Element::PostNaptDestinationTransportPort), 8080_u16.to_be_bytes());
        assert_eq!(field(Element::DestinationTransportPort), 80_u16.to_be_bytes());
        assert_eq!(field(Element::FlowEndReason), [2]);
        assert_eq!(field(Element::EgressInterface), 6_u32.to_be_bytes());
        assert_eq!(field(Element::OctetDeltaCount), 800_u64.to_be_bytes());
        assert_eq!(field(Element::FlowEndMilliseconds), 1_700_000_009_456_u64.to_be_bytes());
    }

    #[test]
    fn templates_name_their_elements_and_the_options_their_scope() {
        let mut message = Message::new();
        message.write_templates(77, None);
        let sets = sets(&message.finish(head()));
        assert_eq!(sets.iter().map(|(number, _)| *number).collect::<Vec<_>>(), [2, 3, 260]);
        // Number, count, then sourceIPv4Address of four bytes.
        assert_eq!(sets[0].1[..8], [1, 0, 0, 13, 0, 8, 0, 4]);
        assert_eq!(sets[1].1[..6], [1, 4, 0, 2, 0, 1]);
        assert_eq!(sets[2].1[4..], 77_u64.to_be_bytes());
    }

    #[test]
    fn a_message_is_never_longer_than_a_datagram_should_be() {
        let mut message = Message::new();
        message.write_templates(0, None);
        let flows = [flow(false, false), flow(true, true), flow(true, false), flow(false, true)];
        let mut count = 1;
        while message.add_flow(&flows[count % 4]) {
            count += 1;
        }
        assert_eq!(message.records as usize, count);
        let bytes = message.finish(head());
        assert!((MOST_BYTES - 120..=MOST_BYTES).contains(&bytes.len()), "{}", bytes.len());
        assert_eq!(sets(&bytes).len(), 3 + count - 1);
    }

    pub(crate) fn sample(is_v6: bool) -> SampledPacket {
        let flow = flow(is_v6, false);
        SampledPacket {
            ends: flow.ends,
            protocol: flow.protocol,
            tos: 0xb8,
            tcp_flags: 0x12,
            bytes: 1500,
            ingress: 5,
            egress: 6,
            time: Duration::from_millis(1_700_000_009_456),
            frame: FrameStart::new(&[], 1514),
        }
    }

    #[test]
    fn a_sample_has_its_selector_and_the_selector_its_interval() {
        let mut message = Message::new();
        message.write_templates(0, Some(1000));
        assert!(message.add_sample(&sample(false)) && message.add_sample(&sample(true)));
        assert_eq!(message.records, 4);
        let sets = sets(&message.finish(head()));
        assert_eq!(sets.iter().map(|(number, _)| *number).collect::<Vec<_>>(), [2, 3, 260, 3, 263, 261, 262]);
        let (_, selector) = &sets[4];
        assert_eq!(selector[..], [0, 0, 0, 1, 0, 1, 0, 0, 0, 1, 0, 0, 3, 231]);
        let (_, record) = &sets[5];
        assert_eq!((record.len(), sets[6].1.len()), (59, 83));
        assert_eq!(record[..12], [192, 0, 2, 1, 192, 0, 2, 2, 0, 0, 0, 1]);
        assert_eq!(record[12..19], [4, 0, 0, 80, 6, 0xb8, 0x12]);
        assert_eq!(record[27..43], [[0, 0, 0, 0, 0, 0, 0, 1], 1500_u64.to_be_bytes()].concat());
    }
}
