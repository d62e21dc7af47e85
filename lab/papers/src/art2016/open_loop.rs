//! Packets at a given pace: a generator on one processor, a ring, and one thread that forwards on another.
use artery_bench::fib::engine::{BURST, Reader};
use artery_bench::fib::timing::pin;
use artery_lpm::Group;
use artery_wire::Ipv4;
use artery_wire::build::{ether, ip4};
use rtrb::{Consumer, Producer, RingBuffer};
use std::net::Ipv4Addr;
use std::sync::atomic::{AtomicBool, Ordering::Acquire, Ordering::Relaxed, Ordering::Release};
use std::time::{Duration, Instant};

/// Bytes of a frame: the shortest of Ethernet without its check sequence.
const FRAME: usize = 60;
/// Bytes of the Ethernet header.
const ETHER: usize = 14;
/// Frames that wait for the forwarding thread, at most; what comes then is lost.
const RING: usize = 4096;
/// Frames that the forwarding thread takes at once, at most.
const TAKEN: usize = 32;
/// Groups of next hops that have a link header.
const NEXT_HOPS: usize = 256;

type Frame = [u8; FRAME];

/// What became of a stream of packets.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Paced {
    /// Packets a second that were sent.
    pub(super) offered: f64,
    /// Percent that found the ring full.
    pub(super) loss: f64,
    /// Percent of the forwarding thread's time that it found nothing to do.
    pub(super) idle: f64,
    /// Packets that the ring took.
    pub(super) taken: u64,
    /// Packets that were made ready to be sent on.
    pub(super) forwarded: u64,
}

/// Sends packets to all addresses in turn at a rate, and forwards them by what `reader` says.
pub(super) fn paced(reader: &mut dyn Reader<u32>, addresses: &[u32], rate: f64, time: Duration) -> Paced {
    let (producer, consumer) = RingBuffer::new(RING);
    let is_over = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let generator = scope.spawn(|| {
            pin(1);
            let sent = generate(producer, addresses, rate, time);
            is_over.store(true, Release);
            sent
        });
        let forwarded = forward(reader, consumer, &is_over);
        let (sent, lost, took) = generator.join().expect("the generator does not panic");
        let offered = (sent + lost) as f64 / took.as_secs_f64();
        let loss = 100.0 * lost as f64 / (sent + lost).max(1) as f64;
        Paced { offered, loss, idle: forwarded.idle, taken: sent, forwarded: forwarded.packets }
    })
}

/// The greatest rate, in packets a second, at which no more than one in a thousand is lost; `None` where
/// other programs use the processors too often for a result.
pub(super) fn knee(
    reader: &mut dyn Reader<u32>,
    addresses: &[u32],
    time: Duration,
    halvings: usize,
) -> Option<f64> {
    let (mut low, mut high) = (0.0, 32e6);
    for _ in 0..halvings {
        let middle = (low + high) / 2.0;
        match (0..TRIES).any(|_| is_carried(&paced(reader, addresses, middle, time), middle)) {
            true => low = middle,
            false => high = middle,
        }
    }
    (low > 0.0).then_some(low)
}

/// How often a rate is tried: when another program has a processor for a moment, packets are
/// lost at any rate.
const TRIES: usize = 4;

/// Whether a rate was offered, and no more than one packet in a thousand was lost.
fn is_carried(outcome: &Paced, rate: f64) -> bool {
    outcome.loss <= 0.1 && outcome.offered >= 0.98 * rate
}

/// How many were sent, how many were lost, and how long it took.
fn generate(mut ring: Producer<Frame>, addresses: &[u32], rate: f64, time: Duration) -> (u64, u64, Duration) {
    let mut frame = first_frame();
    let mut destinations = addresses.iter().cycle();
    let (mut sent, mut lost, mut skipped) = (0, 0, 0);
    let start = Instant::now();
    loop {
        let elapsed = start.elapsed();
        if elapsed >= time {
            return (sent, lost, elapsed);
        }
        let due = (elapsed.as_secs_f64() * rate) as u64 - (sent + lost + skipped);
        // What a generator did not send while others had its processor is not sent in a heap later:
        // no wire does that.
        skipped += due.saturating_sub(RING as u64 / 4);
        for _ in 0..due.min(BURST as u64) {
            if let Some(&destination) = destinations.next() {
                address(&mut frame, destination);
            }
            match ring.push(frame) {
                Ok(()) => sent += 1,
                Err(_) => lost += 1,
            }
        }
    }
}

fn first_frame() -> Frame {
    let ip = ip4().src("10.0.0.1").dst("11.0.0.1").ttl(64).udp(1234, 4321).payload([0; 18]);
    let bytes = ether("00:00:c0:00:00:02", "00:00:c0:00:00:01").ip4(ip).bytes();
    let mut frame = [0; FRAME];
    frame.copy_from_slice(&bytes[..FRAME]);
    frame
}

/// Addresses a frame and makes its header checksum right.
fn address(frame: &mut Frame, destination: u32) {
    if let Ok(mut header) = Ipv4::new(&mut frame[ETHER..]) {
        header.set_dst(Ipv4Addr::from_bits(destination));
        header.fill_checksum();
    }
}

struct Forwarded {
    packets: u64,
    idle: f64,
}

fn forward(reader: &mut dyn Reader<u32>, mut ring: Consumer<Frame>, is_over: &AtomicBool) -> Forwarded {
    let poll = nanos_of_an_empty_poll(&mut ring);
    let headers = link_headers();
    let mut sent = vec![[0; FRAME]; RING];
    let (mut packets, mut empty) = (0u64, 0u64);
    let start = Instant::now();
    loop {
        let count = ring.slots().min(TAKEN);
        if count == 0 {
            empty += 1;
            if is_over.load(Acquire) && ring.is_empty() {
                break;
            }
            std::hint::spin_loop();
            continue;
        }
        // So many are there, since only this thread takes them.
        let Ok(chunk) = ring.read_chunk(count) else { continue };
        for mut frame in chunk {
            if forward_one(reader, &mut frame, &headers) {
                sent[packets as usize % RING] = frame;
                packets += 1;
            }
        }
    }
    std::hint::black_box(&sent);
    reader.rest();
    let idle = 100.0 * (empty as f64 * poll / start.elapsed().as_nanos() as f64).min(1.0);
    Forwarded { packets, idle }
}

/// Parses, looks up once, takes one from the time to live, and puts on the link header.
#[inline]
fn forward_one(reader: &mut dyn Reader<u32>, frame: &mut Frame, headers: &[[u8; ETHER]]) -> bool {
    let Ok(mut header) = Ipv4::new(&mut frame[ETHER..]) else { return false };
    if !header.checksum_is_valid() || header.ttl() <= 1 {
        return false;
    }
    let mut group: [Group; 1] = [0];
    reader.each(&[header.dst().to_bits()], &mut group);
    header.decrement_ttl();
    frame[..ETHER].copy_from_slice(&headers[group[0] as usize % NEXT_HOPS]);
    true
}

fn link_headers() -> Vec<[u8; ETHER]> {
    let header = |group: usize| [2, 0, 0, 0, 1, group as u8, 2, 0, 0, 0, 0, 1, 0x08, 0x00];
    (0..NEXT_HOPS).map(header).collect()
}

/// What it costs to look into an empty ring: idle time is the number of such looks, times this.
fn nanos_of_an_empty_poll(ring: &mut Consumer<Frame>) -> f64 {
    const POLLS: u32 = 20_000;
    let never = AtomicBool::new(false);
    let (start, mut empty) = (Instant::now(), 0u32);
    for _ in 0..POLLS {
        if ring.slots().min(TAKEN) == 0 {
            empty += 1;
            if never.load(Relaxed) && ring.is_empty() {
                break;
            }
            std::hint::spin_loop();
        }
    }
    start.elapsed().as_nanos() as f64 / f64::from(empty.max(1))
}

#[cfg(test)]
mod tests {
    use super::*;
    use artery_bench::fib::Radix;

    fn table() -> Radix<u32> {
        let mut radix = Radix::default();
        radix.insert("11.0.0.0/16".parse().unwrap(), 3);
        radix
    }

    #[test]
    fn a_forwarded_frame_has_a_hop_less_a_right_checksum_and_the_next_hops_header() {
        let mut frame = first_frame();
        address(&mut frame, (11 << 24) | 7);
        assert!(forward_one(&mut table(), &mut frame, &link_headers()));
        let header = Ipv4::new(&frame[ETHER..]).unwrap();
        assert_eq!((header.ttl(), header.checksum_is_valid()), (63, true));
        assert_eq!(header.dst(), Ipv4Addr::new(11, 0, 0, 7));
        assert_eq!(frame[5], 3);
    }

    #[test]
    fn a_broken_or_dying_frame_is_not_forwarded() {
        let mut broken = first_frame();
        broken[ETHER + 10] ^= 1;
        assert!(!forward_one(&mut table(), &mut broken, &link_headers()));
        let mut dying = first_frame();
        if let Ok(mut header) = Ipv4::new(&mut dying[ETHER..]) {
            header.set_ttl(1);
            header.fill_checksum();
        }
        assert!(!forward_one(&mut table(), &mut dying, &link_headers()));
    }

    #[test]
    fn whatever_is_not_lost_is_forwarded() {
        let addresses: Vec<u32> = (0..256).map(|n| (11 << 24) + n).collect();
        let time = Duration::from_millis(50);
        let outcome = paced(&mut table(), &addresses, 100_000.0, time);
        assert_eq!(outcome.forwarded, outcome.taken);
        assert!(outcome.taken > 0);
        assert!((0.0..=100.0).contains(&outcome.idle));
    }
}
