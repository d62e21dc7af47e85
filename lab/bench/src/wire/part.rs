//! What runs in a process of its own, inside a host: the generator, the bare loop, the prober.

use super::processor::{ENDS, FORWARDER};
use crate::fib::timing::pin;
use anyhow::Context as _;
use artery_device::{DeviceError, Hide, Method, PortSpec, Ports, QueueHandle, RxQueue, RxSettings, TxQueue};
use artery_packet::{BATCH, Batch, Pool};
use artery_rig::console::print;
use artery_rig::{Histogram, Latency, LiveFrames};
use artery_wire::build::{ether, icmp_echo, ip4};
use rustix::net::{AddressFamily, RecvFlags, SendFlags, SocketType, ipproto, sockopt};
use serde::{Deserialize, Serialize};
use std::fs;
use std::io;
use std::net::{Ipv4Addr, SocketAddrV4};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

/// The hidden subcommand that carries out a part.
pub const SUBCOMMAND: &str = "wire-part";
/// What the generator says when it begins.
pub(super) const BEGINS: &str = "begins";
/// The port that frames are sent to, and where they end.
pub(crate) const PORT: u16 = 9;
/// Frames of the bare loop, common and big, as many as a router has.
const FRAMES: (usize, usize) = (16384, 1024);
/// Position of the UDP checksum in a frame; a checksum of 0 means none.
const UDP_CHECKSUM: std::ops::Range<usize> = 40..42;
/// How long a reply may take.
const PATIENCE: Duration = Duration::from_millis(200);

/// A part of the experiment.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub enum Part {
    /// Send frames of 60 bytes by eth0 for a time, then wait for SIGTERM and say how many
    Generate {
        /// Address of the sender
        source: String,
        /// Address of the receiver
        target: String,
        /// Link addresses of the frame: sender, next hop
        macs: [String; 2],
        /// Frames a second; as many as can be if not given
        rate: Option<f64>,
        /// How long to send, in milliseconds
        milliseconds: u64,
        /// Let each frame say when it was sent, and have no checksum of UDP
        stamped: bool,
    },
    /// Forward between eth0 and eth1 with nothing in between, until SIGTERM
    Bare,
    /// Ping a host and print how long replies took
    Ping {
        /// The address to ping
        target: String,
        /// Number of echo requests
        count: u16,
        /// Microseconds between echo requests
        microseconds: u64,
    },
}

impl Part {
    /// The words behind the program's name that carry it out.
    pub(super) fn words(&self) -> [String; 2] {
        [SUBCOMMAND.into(), serde_json::json!(self).to_string()]
    }
}

/// The report of a generator.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub(super) struct Sent {
    pub(super) sent: u64,
    pub(super) seconds: f64,
}

/// The report of a prober.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct Replies {
    pub(crate) lost: u64,
    pub(crate) p50_ns: u64,
    pub(crate) p99_ns: u64,
    pub(crate) p999_ns: u64,
}

/// Carries out a part.
pub fn run(part: &Part) -> anyhow::Result<()> {
    match part {
        Part::Generate { source, target, macs, rate, milliseconds, stamped } => {
            let mut frame = frame(source, target, macs);
            let make = if *stamped { LiveFrames::stamped } else { LiveFrames::new };
            if *stamped {
                frame[UDP_CHECKSUM].fill(0);
            }
            generate(&frame, make, *rate, Duration::from_millis(*milliseconds))
        }
        Part::Bare => bare(),
        Part::Ping { target, count, microseconds } => {
            ping(target.parse()?, *count, Duration::from_micros(*microseconds))
        }
    }
}

/// Becomes true at SIGTERM, which interrupts whatever the kernel does for the process.
fn told_to_end() -> anyhow::Result<Arc<AtomicBool>> {
    let end = Arc::new(AtomicBool::new(false));
    signal_hook::flag::register(signal_hook::consts::SIGTERM, end.clone())
        .context("can't wait for SIGTERM")?;
    Ok(end)
}

fn frame(source: &str, target: &str, [from, to]: &[String; 2]) -> Vec<u8> {
    let ip = ip4().src(source).dst(target).ttl(64).udp(1234, PORT).payload([0; 18]);
    ether(to.as_str(), from.as_str()).ip4(ip).bytes()
}

fn generate(
    frame: &[u8],
    make: fn(u32, &[u8]) -> io::Result<LiveFrames>,
    rate: Option<f64>,
    time: Duration,
) -> anyhow::Result<()> {
    pin(ENDS);
    let index = fs::read_to_string("/sys/class/net/eth0/ifindex").context("no interface eth0")?;
    let frames = make(index.trim().parse()?, frame).context("can't have the kernel send frames")?;
    told_to_end()?;
    print(BEGINS)?;
    let (sent, took) = frames.send(rate, time).context("the kernel does not send frames")?;
    Ok(print(&serde_json::to_string(&Sent { sent, seconds: took.as_secs_f64() })?)?)
}

fn bare() -> anyhow::Result<()> {
    pin(FORWARDER);
    let end = told_to_end()?;
    let pool = Pool::new(FRAMES.0, FRAMES.1)?;
    let ports = Ports::default();
    let open = |name: &str| {
        let receive = RxSettings { method: Method::Packet, hide: Hide::All, ..RxSettings::default() };
        let spec = PortSpec::Interface { name: name.into(), receive: Some(receive), transmit: None };
        let port = ports.open(spec, pool)?;
        Ok::<_, DeviceError>((port.rx(0)?, port.tx(0)?))
    };
    let ((mut left_in, mut left_out), (mut right_in, mut right_out)) = (open("eth0")?, open("eth1")?);
    print(BEGINS)?;
    let mut batch = Batch::default();
    while !end.load(Ordering::Relaxed) {
        carry(&mut left_in, &mut right_out, pool, &mut batch)?;
        carry(&mut right_in, &mut left_out, pool, &mut batch)?;
    }
    Ok(())
}

/// Sends what was received; what can't be sent at once is dropped.
fn carry(
    from: &mut QueueHandle<dyn RxQueue>,
    to: &mut QueueHandle<dyn TxQueue>,
    pool: &'static Pool,
    batch: &mut Batch,
) -> Result<(), DeviceError> {
    if from.receive(pool, BATCH, batch)? > 0 {
        to.transmit(batch)?;
        batch.free_packets();
    }
    Ok(())
}

fn ping(target: Ipv4Addr, count: u16, interval: Duration) -> anyhow::Result<()> {
    let socket = rustix::net::socket(AddressFamily::INET, SocketType::RAW, Some(ipproto::ICMP))?;
    sockopt::set_socket_timeout(&socket, sockopt::Timeout::Recv, Some(PATIENCE))?;
    let id = std::process::id() as u16;
    let (mut times, mut lost) = (Histogram::default(), 0);
    let start = Instant::now();
    for number in 0..count {
        let due = start + interval * u32::from(number);
        thread::sleep(due.saturating_duration_since(Instant::now()));
        let request = icmp_echo(Ipv4Addr::UNSPECIFIED, target, id, number).bytes();
        let sent = Instant::now();
        rustix::net::sendto(
            &socket,
            &request[IP_HEADER..],
            SendFlags::empty(),
            &SocketAddrV4::new(target, 0),
        )?;
        match wait_for_reply(&socket, id, number, sent) {
            Some(time) => times.record(time.as_nanos() as u64),
            None => lost += 1,
        }
    }
    let Latency { p50_ns, p99_ns, p999_ns, .. } = times.latency();
    Ok(print(&serde_json::to_string(&Replies { lost, p50_ns, p99_ns, p999_ns })?)?)
}

/// Bytes of an IPv4 header without options.
const IP_HEADER: usize = 20;

/// How long the reply of a number took; none if it does not come.
fn wait_for_reply(socket: &rustix::fd::OwnedFd, id: u16, number: u16, sent: Instant) -> Option<Duration> {
    let mut packet = [0; 256];
    while sent.elapsed() < PATIENCE {
        let (length, _) = rustix::net::recv(socket, &mut packet[..], RecvFlags::empty()).ok()?;
        let time = sent.elapsed();
        if is_reply(&packet[..length], id, number) {
            return Some(time);
        }
    }
    None
}

/// Whether an IPv4 packet is the echo reply of this identifier and number.
fn is_reply(packet: &[u8], id: u16, number: u16) -> bool {
    let header = packet.first().map_or(0, |first| usize::from(first & 15) * 4);
    let Some(icmp) = packet.get(header..header + 8) else { return false };
    icmp[0] == 0 && icmp[4..6] == id.to_be_bytes() && icmp[6..8] == number.to_be_bytes()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_reply_asked_for_is_taken() {
        let reply = ip4().src("10.0.0.2").dst("10.0.0.1").ttl(64).icmp_echo_reply(7, 300).bytes();
        assert!(is_reply(&reply, 7, 300));
        assert!(!is_reply(&reply, 7, 301) && !is_reply(&reply, 8, 300));
        let request = icmp_echo("10.0.0.1", "10.0.0.2", 7, 300).bytes();
        assert!(!is_reply(&request, 7, 300));
        for length in 0..IP_HEADER + 8 {
            assert!(!is_reply(&reply[..length], 7, 300), "{length}");
        }
    }

    #[test]
    fn frames_have_the_least_length_and_two_link_addresses() {
        let macs = ["02:00:00:00:00:01".to_string(), "02:00:00:00:00:02".to_string()];
        let frame = frame("10.0.1.2", "10.0.2.2", &macs);
        assert_eq!((frame.len(), frame[5], frame[11]), (60, 2, 1));
    }
}
