//! Export of flows and samples by IPFIX over UDP (RFC 7011).
//!
//! The socket is opened before the router gives up its rights. Where the collector is missing or can't be
//! reached, records are lost and nothing else: neither the workers nor the thread ever wait.
mod message;

use crate::metrics::{Exposition, Kind};
use crate::options::values::{address_with_port, sampling_interval, seconds};
use crate::output::Output;
use anyhow::Context as _;
use artery_common::flow_export::FlowExport;
use artery_common::packet_samples::{PacketSamples, SampledPacket};
use artery_device::system_message;
use artery_engine::Resources;
use message::{Head, Message};
use rustix::net::{AddressFamily, SocketFlags, SocketType, sockopt};
use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, UdpSocket};
use std::str::FromStr;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Weak};
use std::time::{Duration, Instant, SystemTime};

/// The port of IPFIX at IANA.
const PORT: u16 = 4739;
/// How often templates are sent again, since a collector may have missed them or been restarted.
const TEMPLATES: Duration = Duration::from_secs(30);
/// After what time a flow that goes on is recorded, and bounds of what may be asked for.
const ACTIVE: Duration = Duration::from_secs(60);
const LEAST_ACTIVE: Duration = Duration::from_secs(1);
const MOST_ACTIVE: Duration = Duration::from_secs(86_400);

/// Where flows are exported to, and how.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct IpfixSettings {
    pub(crate) collector: SocketAddr,
    /// The address that messages come from, and the port, which is 0 for any.
    pub(crate) source: Option<SocketAddr>,
    /// The observation domain ID of every message (RFC 7011, section 3.1).
    pub(crate) domain: u32,
    /// After what time a flow that goes on is recorded.
    pub(crate) active: Duration,
    /// One of so many forwarded packets is sampled, if any.
    pub(crate) sample: Option<u32>,
}

impl IpfixSettings {
    pub(crate) fn to(collector: SocketAddr) -> IpfixSettings {
        IpfixSettings { collector, source: None, domain: 0, active: ACTIVE, sample: None }
    }

    /// Checks that messages can go from the source to the collector.
    pub(crate) fn check(self) -> Result<IpfixSettings, String> {
        let (to, from) = (self.collector, self.source);
        if to.port() == 0 || to.ip().is_unspecified() || to.ip().is_multicast() {
            return Err(format!("'{to}' is not the address of a collector"));
        }
        match from.filter(|from| from.is_ipv4() != to.is_ipv4()) {
            Some(from) => Err(format!("source {} and collector {} differ in family", from.ip(), to.ip())),
            None => Ok(self),
        }
    }
}

impl FromStr for IpfixSettings {
    type Err = String;

    fn from_str(text: &str) -> Result<IpfixSettings, String> {
        let mut parts = text.split(',');
        let collector = parts.next().unwrap_or_default();
        let mut settings = IpfixSettings::to(address_with_port::<PORT>(collector)?);
        for part in parts {
            let (key, value) = part.split_once('=').unwrap_or((part, ""));
            match key {
                "source" => {
                    settings.source = Some(address_with_port::<0>(value).map_err(|_| wrong_source(value))?)
                }
                "domain" => {
                    settings.domain = value
                        .parse()
                        .map_err(|_| format!("domain={value}: write a number below 4294967296"))?;
                }
                "active" => settings.active = active_time(value)?,
                "sample" => settings.sample = Some(sampling_interval("sample=", value)?),
                _ => {
                    return Err(format!(
                        "unknown '{part}'; behind the collector may stand source=, domain=, active=, sample="
                    ));
                }
            }
        }
        settings.check()
    }
}

fn wrong_source(value: &str) -> String {
    format!("source={value}: write an address of this machine, such as 10.0.0.1")
}

fn active_time(value: &str) -> Result<Duration, String> {
    let time = seconds(value).ok().filter(|time| (LEAST_ACTIVE..=MOST_ACTIVE).contains(time));
    time.ok_or_else(|| format!("active={value}: write a time from 1s to 1day, such as 60 (seconds)"))
}

/// An exporter that does not send yet.
pub(crate) struct Exporter {
    socket: UdpSocket,
    settings: IpfixSettings,
    counts: Arc<ExportCounts>,
}

/// What an exporter has done.
#[derive(Debug, Default)]
struct ExportCounts {
    messages: AtomicU64,
    records: AtomicU64,
    /// Records of messages that could not be sent.
    unsent: AtomicU64,
    /// Whether samples are exported, and not for PSAMPLE alone.
    has_samples: bool,
}

impl ExportCounts {
    /// Records that found no room before they could be sent.
    fn lost_in_queues(&self, flows: &FlowExport, samples: &PacketSamples) -> u64 {
        flows.lost_records() + if self.has_samples { samples.lost_samples() } else { 0 }
    }
}

/// The exporter of a router, for its metrics.
#[derive(Default)]
struct Running(std::sync::Mutex<Weak<ExportCounts>>);

impl Exporter {
    pub(crate) fn open(settings: &IpfixSettings) -> anyhow::Result<Exporter> {
        let any: IpAddr = match settings.collector {
            SocketAddr::V4(_) => Ipv4Addr::UNSPECIFIED.into(),
            SocketAddr::V6(_) => Ipv6Addr::UNSPECIFIED.into(),
        };
        let from = settings.source.unwrap_or(SocketAddr::new(any, 0));
        let socket = bind_freely(from).with_context(|| format!("can't export flows from {}", from.ip()))?;
        let counts = ExportCounts { has_samples: settings.sample.is_some(), ..ExportCounts::default() };
        Ok(Exporter { socket, settings: settings.clone(), counts: Arc::new(counts) })
    }

    /// Has the workers record flows from now on.
    pub(crate) fn start(self, resources: &Resources, voice: Output) -> MessageSender {
        let export = resources.get::<FlowExport>();
        export.turn_on(self.settings.active);
        let running = resources.get::<Running>();
        *running.0.lock().unwrap_or_else(|e| e.into_inner()) = Arc::downgrade(&self.counts);
        let samples = resources.get::<PacketSamples>();
        MessageSender {
            exporter: self,
            export,
            samples,
            voice,
            sequence: 0,
            templates_sent: None,
            has_failed: false,
        }
    }
}

/// A socket with an address that the machine may get later: those of the router come with its start.
fn bind_freely(from: SocketAddr) -> io::Result<UdpSocket> {
    let family = if from.is_ipv4() { AddressFamily::INET } else { AddressFamily::INET6 };
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    let socket = rustix::net::socket_with(family, SocketType::DGRAM, flags, None)?;
    match from.is_ipv4() {
        true => sockopt::set_ip_freebind(&socket, true)?,
        false => sockopt::set_ipv6_freebind(&socket, true)?,
    }
    rustix::net::bind(&socket, &from)?;
    Ok(socket.into())
}

/// Sends what workers have recorded.
pub(crate) struct MessageSender {
    exporter: Exporter,
    export: Arc<FlowExport>,
    samples: Arc<PacketSamples>,
    voice: Output,
    /// Records in all messages so far, modulo 2^32.
    sequence: u32,
    /// When templates were sent last.
    templates_sent: Option<Instant>,
    /// Whether the last message could not be sent.
    has_failed: bool,
}

impl MessageSender {
    /// Sends the flows that wait, these samples if they are to be exported, and templates when they are due.
    pub(crate) fn send_records(&mut self, samples: &[SampledPacket]) {
        let mut message = Message::new();
        if self.templates_sent.is_none_or(|sent| sent.elapsed() >= TEMPLATES) {
            message.write_templates(self.lost_records(), self.exporter.settings.sample);
            self.templates_sent = Some(Instant::now());
        }
        for flow in self.export.take_records() {
            self.add_record(&mut message, |message| message.add_flow(&flow));
        }
        let exported = if self.exporter.counts.has_samples { samples } else { &[] };
        for packet in exported {
            self.add_record(&mut message, |message| message.add_sample(packet));
        }
        if !message.is_empty() {
            self.send_message(message);
        }
    }

    /// Adds a record, to the next message if this one has no room.
    fn add_record(&mut self, message: &mut Message, add: impl Fn(&mut Message) -> bool) {
        if !add(message) {
            self.send_message(std::mem::replace(message, Message::new()));
            // There is room for any record in a message of its own.
            add(message);
        }
    }

    fn lost_records(&self) -> u64 {
        let counts = &self.exporter.counts;
        counts.lost_in_queues(&self.export, &self.samples) + counts.unsent.load(Relaxed)
    }

    fn send_message(&mut self, message: Message) {
        let records = message.records;
        let time = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
        let Exporter { socket, settings, counts } = &self.exporter;
        let head = Head { time, domain: settings.domain, sequence: self.sequence };
        let sent = socket.send_to(&message.finish(head), settings.collector);
        // Counted whether or not they were sent: the collector sees by it how many are missing.
        self.sequence = self.sequence.wrapping_add(records);
        match &sent {
            Ok(_) => {
                counts.messages.fetch_add(1, Relaxed);
                counts.records.fetch_add(records.into(), Relaxed);
            }
            Err(_) => {
                counts.unsent.fetch_add(records.into(), Relaxed);
                // The collector needs them before it understands anything.
                self.templates_sent = None;
            }
        }
        self.report_failure(sent.err());
    }

    /// Says when messages begin to fail, and when they are sent again.
    fn report_failure(&mut self, error: Option<io::Error>) {
        let collector = self.exporter.settings.collector;
        match (&error, self.has_failed) {
            (Some(error), false) => self.voice.print_warning(&format!(
                "flows can't be exported to {collector}: {}; records are lost until they can",
                system_message(error)
            )),
            (None, true) => self.voice.print_warning(&format!("flows are exported to {collector} again")),
            _ => {}
        }
        self.has_failed = error.is_some();
    }
}

/// The metrics of a router's export, if it has one.
pub(crate) fn write_metrics(resources: &Resources, text: &mut Exposition) {
    let running = resources.get::<Running>();
    let counts = running.0.lock().unwrap_or_else(|e| e.into_inner()).upgrade();
    let Some(counts) = counts else { return };
    let samples = resources.get::<PacketSamples>();
    let lost = counts.lost_in_queues(&resources.get::<FlowExport>(), &samples);
    text.single(
        "artery_ipfix_messages_total",
        Kind::Counter,
        "Messages of IPFIX that were sent.",
        counts.messages.load(Relaxed),
    );
    text.single(
        "artery_ipfix_records_total",
        Kind::Counter,
        "Data records in these messages.",
        counts.records.load(Relaxed),
    );
    if counts.has_samples {
        text.single(
            "artery_ipfix_sampled_packets_total",
            Kind::Counter,
            "Packets that were sampled.",
            samples.taken_samples(),
        );
    }
    let name = "artery_ipfix_lost_records_total";
    text.family(name, Kind::Counter, "Records that were not exported: too many waited, or sending failed.");
    text.sample(name, &[("reason", "queue")], lost);
    text.sample(name, &[("reason", "send")], counts.unsent.load(Relaxed));
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_collector_has_an_address_and_what_else_is_known() {
        let parsed = |text: &str| text.parse::<IpfixSettings>();
        let plain = IpfixSettings::to("192.0.2.9:4739".parse().unwrap());
        assert_eq!(parsed("192.0.2.9"), Ok(plain.clone()));
        assert_eq!(parsed("[2001:db8::9]:2055").unwrap().collector, "[2001:db8::9]:2055".parse().unwrap());
        let all = parsed("192.0.2.9,source=10.0.0.1,domain=7,active=30,sample=1000").unwrap();
        let source = Some("10.0.0.1:0".parse().unwrap());
        let (active, sample) = (Duration::from_secs(30), Some(1000));
        assert_eq!(all, IpfixSettings { source, domain: 7, active, sample, ..plain });
        for (wrong, what) in [
            ("collector:4739", "write an address"),
            ("192.0.2.9:70000", "write an address"),
            ("192.0.2.9:0", "not the address of a collector"),
            ("0.0.0.0", "not the address of a collector"),
            ("192.0.2.9,source=::1", "differ in family"),
            ("192.0.2.9,source=eth0", "source=eth0: write an address of this machine"),
            ("192.0.2.9,domain=-1", "domain=-1: write a number"),
            ("192.0.2.9,active=0", "active=0: write a time"),
            ("192.0.2.9,sample=0", "sample=0: write of how many packets one is sampled"),
            ("192.0.2.9,sample=16777217", "sample=16777217: write of how many"),
            ("192.0.2.9,sample=1:1000", "sample=1:1000: write of how many"),
            ("192.0.2.9,sample", "sample=: write of how many"),
            ("192.0.2.9,idle=5", "unknown 'idle=5'"),
        ] {
            let error = parsed(wrong).unwrap_err();
            assert!(error.contains(what), "{wrong}: {error}");
        }
    }

    #[test]
    fn templates_come_first_and_records_are_numbered() {
        use artery_common::flow_export::FlowRecords;
        let collector = UdpSocket::bind("127.0.0.1:0").unwrap();
        collector.set_read_timeout(Some(Duration::from_secs(10))).unwrap();
        let settings = IpfixSettings::to(collector.local_addr().unwrap());
        let exporter = Exporter::open(&settings).unwrap();
        let resources = Resources::default();
        let mut sender = exporter.start(&resources, Output::for_terminal());
        let queue = resources.get::<FlowExport>();
        assert_eq!(queue.active_timeout(), Some(ACTIVE));
        let mut records = FlowRecords::default();
        (0..40).for_each(|_| records.push(message::tests::flow(false, false), &queue));
        records.flush(&queue, Duration::ZERO);
        sender.send_records(&[]);
        drop(sender);
        let mut received = Vec::new();
        let mut buffer = [0; 2000];
        collector.set_nonblocking(true).unwrap();
        while let Ok(length) = collector.recv(&mut buffer) {
            received.push(buffer[..length].to_vec());
        }
        let sequence = |bytes: &[u8]| u32::from_be_bytes(bytes[8..12].try_into().unwrap());
        assert_eq!(received[0][16..18], [0, 2], "templates");
        assert_eq!(sequence(&received[0]), 0);
        assert!(received.len() >= 2 && sequence(received.last().unwrap()) > 1);
        let mut text = Exposition::default();
        write_metrics(&resources, &mut text);
        assert_eq!(text.into_text(), "", "none of an export that has ended");
    }
}
