//! Samples of packets, one of N (RFC 5475 section 5.1), on their way from the workers to whoever exports
//! them: one bounded queue of a router.
//!
//! Workers add samples and never wait: where the queue is full, or in use at that moment for too long,
//! samples are lost and counted. A worker that takes no samples does one load for each batch.
use crate::flow_export::End;
use artery_wire::{Ip6Headers, IpProtocol, Ipv4, Ipv6};
use std::collections::HashMap;
use std::fmt;
use std::net::IpAddr;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::atomic::{AtomicU32, AtomicU64};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, SystemTime};

/// Most samples that wait to be exported.
pub const CAPACITY: usize = 65_536;
/// Most samples that a worker keeps while others use the queue.
const MOST_KEPT: usize = 1024;
/// Where a TCP header has its flags.
const TCP_FLAGS: usize = 13;

/// Bytes of a frame that a sample keeps, at most.
const KEPT: usize = artery_device::SAMPLE_BYTES;

/// The first bytes of a frame, from the link header on, and its length.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct FrameStart {
    /// Bytes of the whole frame.
    pub length: u32,
    kept: u8,
    bytes: [u8; KEPT],
}

impl FrameStart {
    /// `frame` may be the first part of a frame of that length.
    pub fn new(frame: &[u8], length: u32) -> FrameStart {
        let kept = frame.len().min(KEPT);
        let mut bytes = [0; KEPT];
        bytes[..kept].copy_from_slice(&frame[..kept]);
        FrameStart { length, kept: kept as u8, bytes }
    }

    /// The first bytes, at most as many as a sample for PSAMPLE has.
    pub fn bytes(&self) -> &[u8] {
        &self.bytes[..self.kept.into()]
    }
}

impl fmt::Debug for FrameStart {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:02x?} of {}", self.bytes(), self.length)
    }
}

/// A packet that was sampled.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SampledPacket {
    /// Source and destination. Ports are 0 where there are none.
    pub ends: [End; 2],
    pub protocol: IpProtocol,
    /// Type of service, or traffic class.
    pub tos: u8,
    /// Flags of TCP, 0 of others.
    pub tcp_flags: u8,
    /// From the IP header on.
    pub bytes: u32,
    /// Numbers of the interfaces, 0 for those that are not known.
    pub ingress: u32,
    pub egress: u32,
    /// When it was sampled, since 1970.
    pub time: Duration,
    /// The frame that it came in.
    pub frame: FrameStart,
}

impl SampledPacket {
    /// Reads the first bytes of a packet, from the IP header on; None without one. The rest may be missing.
    /// `frame` is what it came in.
    pub fn parse(packet: &[u8], frame: FrameStart, time: Duration) -> Option<SampledPacket> {
        match packet.first()? >> 4 {
            4 => {
                let ip = Ipv4::new(packet).ok()?;
                let upper = if ip.fragment_offset() == 0 { packet.get(ip.header_len()..) } else { None };
                let bytes = ip.total_length().into();
                let addresses = [ip.src().into(), ip.dst().into()];
                let headers = (addresses, ip.protocol(), ip.tos(), bytes);
                Some(Self::new(headers, upper, frame, time))
            }
            6 => {
                let ip = Ipv6::new(packet).ok()?;
                let (protocol, upper) = match Ip6Headers::parse_packet(packet) {
                    Ok(headers) if headers.is_later_fragment() => (headers.protocol, None),
                    Ok(headers) => (headers.protocol, packet.get(headers.offset..)),
                    Err(_) => (ip.next_header(), None),
                };
                let bytes = u32::from(ip.payload_length()) + Ipv6::<&[u8]>::LEN as u32;
                let addresses = [ip.src().into(), ip.dst().into()];
                let headers = (addresses, protocol, ip.traffic_class(), bytes);
                Some(Self::new(headers, upper, frame, time))
            }
            _ => None,
        }
    }

    fn new(
        ([source, destination], protocol, tos, bytes): ([IpAddr; 2], IpProtocol, u8, u32),
        upper: Option<&[u8]>,
        frame: FrameStart,
        time: Duration,
    ) -> SampledPacket {
        let upper = upper.unwrap_or_default();
        let [from, to] = match upper.first_chunk::<4>() {
            Some(&[a, b, c, d]) if protocol.has_ports() => {
                [u16::from_be_bytes([a, b]), u16::from_be_bytes([c, d])]
            }
            _ => [0, 0],
        };
        let flags = upper.get(TCP_FLAGS).filter(|_| protocol == IpProtocol::TCP);
        SampledPacket {
            ends: [(source, from), (destination, to)],
            protocol,
            tos,
            tcp_flags: flags.copied().unwrap_or(0),
            bytes,
            ingress: 0,
            egress: 0,
            time,
            frame,
        }
    }
}

/// The samples of a router. Those that wait take up to 15 MB.
#[derive(Default)]
pub struct PacketSamples {
    /// One of so many packets is sampled; 0 for none.
    interval: AtomicU32,
    taken: AtomicU64,
    lost: AtomicU64,
    queue: Mutex<Vec<SampledPacket>>,
    /// The kernel's numbers of interfaces that samples are taken at, by name.
    interfaces: Mutex<HashMap<String, Arc<AtomicU32>>>,
}

impl PacketSamples {
    /// Has one of so many packets sampled from now on.
    pub fn turn_on(&self, interval: u32) {
        self.interval.store(interval, Relaxed);
    }

    /// One of so many packets is sampled; 0 for none.
    #[inline]
    pub fn interval(&self) -> u32 {
        self.interval.load(Relaxed)
    }

    /// The kernel's number of an interface, for samples: 0 before [`read_interfaces`](Self::read_interfaces),
    /// and while there is none of that name.
    pub fn interface(&self, name: &str) -> Arc<AtomicU32> {
        let mut interfaces = self.interfaces.lock().unwrap_or_else(PoisonError::into_inner);
        interfaces.entry(name.to_owned()).or_default().clone()
    }

    /// Reads the numbers of all interfaces that samples are taken at: one that is made again has another.
    /// Those that no element has any more are forgotten.
    pub fn read_interfaces(&self, number_of: impl Fn(&str) -> u32) {
        let mut interfaces = self.interfaces.lock().unwrap_or_else(PoisonError::into_inner);
        interfaces.retain(|_, number| Arc::strong_count(number) > 1);
        let known: Vec<_> = interfaces.iter().map(|(name, number)| (name.clone(), number.clone())).collect();
        // The kernel may take its time to answer, and new elements shall not wait for that.
        drop(interfaces);
        known.iter().for_each(|(name, number)| number.store(number_of(name), Relaxed));
    }

    /// Samples so far, with those that found no room.
    pub fn taken_samples(&self) -> u64 {
        self.taken.load(Relaxed)
    }

    /// Samples that found no room.
    pub fn lost_samples(&self) -> u64 {
        self.lost.load(Relaxed)
    }

    /// Adds samples that others than workers took.
    pub fn add_samples(&self, samples: impl Iterator<Item = SampledPacket>) {
        let mut queue = self.queue.lock().unwrap_or_else(PoisonError::into_inner);
        for sample in samples {
            self.taken.fetch_add(1, Relaxed);
            if queue.len() < CAPACITY { queue.push(sample) } else { self.count_lost(1) }
        }
    }

    /// Counts samples that found no room elsewhere.
    pub fn count_lost(&self, samples: u64) {
        self.lost.fetch_add(samples, Relaxed);
    }

    /// Takes all samples, in the order in which they came from each worker.
    pub fn drain_samples(&self) -> Vec<SampledPacket> {
        std::mem::take(&mut *self.queue.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

/// Chooses packets by their number (systematic count-based sampling), for one element of a worker.
pub struct Sampler {
    samples: Arc<PacketSamples>,
    /// Packets before the next one that is sampled.
    skipped: u32,
    has_begun: bool,
    /// Samples that are not in the queue yet.
    kept: Vec<SampledPacket>,
}

impl Sampler {
    pub fn new(samples: Arc<PacketSamples>) -> Sampler {
        Sampler { samples, skipped: 0, has_begun: false, kept: Vec::new() }
    }

    /// Counts the packets of a batch; says whether some of them are to be sampled. Then
    /// [`sample_batch`](Self::sample_batch) must follow, which counts them.
    #[inline]
    pub fn is_due(&mut self, packets: usize) -> bool {
        if self.samples.interval() == 0 {
            return false;
        }
        match self.skipped.checked_sub(packets as u32) {
            Some(skipped) => {
                self.skipped = skipped;
                false
            }
            None => true,
        }
    }

    /// Samples a batch of so many packets: `sample` gets the place of each chosen packet, and the time.
    #[cold]
    pub fn sample_batch(
        &mut self,
        packets: usize,
        mut sample: impl FnMut(usize, Duration) -> Option<SampledPacket>,
    ) {
        let interval = self.samples.interval().max(1);
        if !std::mem::replace(&mut self.has_begun, true) {
            self.skipped = interval / 2;
        }
        let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
        let mut place = self.skipped as usize;
        while place < packets {
            if let Some(packet) = sample(place, now) {
                self.push(packet);
            }
            place += interval as usize;
        }
        self.skipped = (place - packets) as u32;
        self.flush();
    }

    fn push(&mut self, packet: SampledPacket) {
        self.samples.taken.fetch_add(1, Relaxed);
        match self.kept.len() < MOST_KEPT {
            true => self.kept.push(packet),
            false => {
                self.samples.lost.fetch_add(1, Relaxed);
            }
        }
    }

    /// Moves the samples into the queue, unless it is in use.
    fn flush(&mut self) {
        let Ok(mut queue) = self.samples.queue.try_lock() else { return };
        let room = CAPACITY.saturating_sub(queue.len());
        self.samples.lost.fetch_add(self.kept.len().saturating_sub(room) as u64, Relaxed);
        queue.extend(self.kept.drain(..).take(room));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use artery_wire::TcpFlags;
    use artery_wire::build::{ip4, ip6};

    fn parsed(bytes: &[u8]) -> Option<SampledPacket> {
        SampledPacket::parse(bytes, FrameStart::new(bytes, 1514), Duration::ZERO)
    }

    #[test]
    fn a_frame_keeps_its_first_bytes() {
        let frame: Vec<u8> = (0..200).collect();
        let start = FrameStart::new(&frame, 1514);
        assert_eq!((start.bytes(), start.length), (&frame[..KEPT], 1514));
        assert_eq!(FrameStart::new(&frame[..20], 20).bytes(), &frame[..20]);
    }

    #[test]
    fn a_sample_says_what_its_headers_say_even_if_the_rest_is_missing() {
        let bytes = ip4().src("10.0.0.1").dst("10.0.0.2").tcp(7, 80).flags(TcpFlags::SYN).payload([1; 500]);
        let bytes = bytes.bytes();
        let packet = parsed(&bytes[..60]).unwrap();
        assert_eq!(packet.ends, [([10, 0, 0, 1].into(), 7), ([10, 0, 0, 2].into(), 80)]);
        assert_eq!((packet.protocol, packet.tcp_flags, packet.bytes), (IpProtocol::TCP, 2, 540));
        let bytes = ip6().src("2001:db8::1").dst("2001:db8::2").extension(60, [0; 6]).udp(7, 53).bytes();
        let packet = parsed(&bytes).unwrap();
        assert_eq!((packet.ends[0].1, packet.ends[1].1, packet.protocol), (7, 53, IpProtocol::UDP));
        assert_eq!(packet.bytes as usize, bytes.len());
        assert_eq!(parsed(&[0x12; 60]), None);
        assert_eq!(parsed(&[]), None);
    }

    #[test]
    fn later_fragments_have_no_ports() {
        let bytes = ip4().src("10.0.0.1").dst("10.0.0.2").fragment(1480, false).udp(7, 1).bytes();
        assert_eq!(parsed(&bytes).unwrap().ends.map(|(_, port)| port), [0, 0]);
        let bytes = ip6().fragment(1448, false, 7).raw(17, [0xff; 30]).bytes();
        assert_eq!(parsed(&bytes).unwrap().ends.map(|(_, port)| port), [0, 0]);
    }

    #[test]
    fn one_of_n_is_sampled_however_packets_come_in_batches() {
        let samples = Arc::new(PacketSamples::default());
        let mut sampler = Sampler::new(samples.clone());
        assert!(!sampler.is_due(1000), "off");
        samples.turn_on(10);
        let (mut seen, mut numbers) = (0, Vec::new());
        for size in (1..=32).cycle().take(1000) {
            if sampler.is_due(size) {
                sampler.sample_batch(size, |place, _| {
                    numbers.push(seen + place);
                    None
                });
            }
            seen += size;
        }
        assert_eq!(numbers, (5..seen).step_by(10).collect::<Vec<_>>());
    }

    #[test]
    fn numbers_of_interfaces_are_read_without_a_lock_and_while_they_are_used() {
        let samples = PacketSamples::default();
        let (first, second) = (samples.interface("eth1"), samples.interface("eth2"));
        let added = Mutex::new(None);
        let read = || {
            let asked = Mutex::new(Vec::new());
            samples.read_interfaces(|name| {
                *added.lock().unwrap() = Some(samples.interface("eth3"));
                asked.lock().unwrap().push(name.to_string());
                name[3..].parse().unwrap()
            });
            let mut asked = asked.into_inner().unwrap();
            asked.sort();
            asked
        };
        assert_eq!(read(), ["eth1", "eth2"]);
        assert_eq!((first.load(Relaxed), second.load(Relaxed)), (1, 2));
        drop(first);
        assert_eq!(read(), ["eth2", "eth3"]);
        assert_eq!(added.lock().unwrap().as_ref().map(|number| number.load(Relaxed)), Some(3));
        assert!(Arc::ptr_eq(&second, &samples.interface("eth2")));
    }

    #[test]
    fn samples_that_find_no_room_are_counted() {
        let samples = Arc::new(PacketSamples::default());
        samples.turn_on(1);
        let mut sampler = Sampler::new(samples.clone());
        let packet = parsed(&ip4().udp(7, 1).bytes()).unwrap();
        let mut take = |packets| {
            assert!(sampler.is_due(packets));
            sampler.sample_batch(packets, |_, _| Some(packet));
        };
        let held = samples.queue.lock().unwrap();
        take(MOST_KEPT + 1);
        drop(held);
        assert_eq!(samples.lost_samples(), 1);
        (0..CAPACITY / MOST_KEPT).for_each(|_| take(MOST_KEPT));
        assert_eq!((samples.drain_samples().len(), samples.taken_samples()), (CAPACITY, 66_561));
        assert_eq!(samples.lost_samples(), 1 + MOST_KEPT as u64);
    }
}
