//! Load of our own from one host to another: UDP datagrams with a number and a time in
//! each, counted on arrival.
//!
//! Sender and receiver are threads of this process with sockets in the two hosts, so the datagrams go through
//! both hosts' stacks as a user's would, and one clock times both ends. Latency is from before the send call
//! to after the receive call. `sender.rs` keeps the pace, `receiver.rs` the count.

use std::fmt;
use std::fs;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, UdpSocket};
use std::sync::atomic::{AtomicBool, AtomicU16, Ordering};
use std::thread;
use std::time::Duration;

use rustix::net::sockopt;
use rustix::time::{ClockId, clock_gettime};
use serde::Serialize;

use super::error::{Result, RigError};
use super::histogram::Latency;
use super::host::{Host, parse_address};
use super::receiver::{self, Tally};
use super::sender::{self, Plan, Sent};

/// Bytes of our own header at the start of each datagram.
pub(super) const HEADER: usize = 20;
/// Ethernet, IPv4 or IPv6, and UDP headers.
const OVERHEAD_V4: usize = 14 + 20 + 8;
const OVERHEAD_V6: usize = 14 + 40 + 8;
/// The largest frame size: IP allows no longer datagram.
const LARGEST: usize = 65_535 + 14;
/// Socket buffers large enough for a receiver that loses the processor for a while.
const SOCKET_BUFFER: usize = 32 << 20;

/// A run of datagrams to be sent from one host to another.
#[must_use = "traffic flows when run"]
pub struct Traffic {
    from: Host,
    to: Host,
    address: String,
    port: u16,
    frame_bytes: usize,
    frames: u64,
    rate: Option<u64>,
    duration: Option<Duration>,
    flows: u16,
    quiet: Duration,
    primed: bool,
}

/// What became of a run of datagrams.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct TrafficReport {
    /// Bytes of each frame on an Ethernet, without the check sequence.
    pub frame_bytes: usize,
    /// Flows (source ports) taken in turn.
    pub flows: u16,
    /// Datagrams the sender's kernel took.
    pub sent: u64,
    /// Datagrams the sender's kernel refused, as without a route or with a full queue.
    pub refused: u64,
    /// Distinct datagrams that were received.
    pub received: u64,
    /// Datagrams sent and never received.
    pub lost: u64,
    /// Of the lost ones, those dropped by the receiving host's full socket buffer:
    /// our receiver's fault alone.
    pub overrun: u64,
    /// Datagrams received after a later one of their flow.
    pub reordered: u64,
    /// Datagrams that were received again.
    pub duplicated: u64,
    /// Datagrams received that are not of this run.
    pub strays: u64,
    /// Seconds the sender took.
    pub seconds: f64,
    /// Datagrams sent in a second.
    pub sent_per_second: f64,
    /// Datagrams received in a second, from the first to the last.
    pub received_per_second: f64,
    /// Time from sender to receiver.
    pub latency: Latency,
}

impl Traffic {
    /// Traffic from one host to another: 1000 small frames in one flow, as fast as can be. `address` is where
    /// it is sent to; that need not be an address of the receiver, if a router on the way translates it.
    pub fn between(from: &Host, to: &Host, address: &str) -> Traffic {
        Traffic {
            from: from.clone(),
            to: to.clone(),
            address: address.into(),
            port: 0,
            frame_bytes: if address.contains(':') { 84 } else { 64 },
            frames: 1000,
            rate: None,
            duration: None,
            flows: 1,
            quiet: Duration::from_millis(300),
            primed: true,
        }
    }

    /// Sets the port it is sent to, and received at, instead of any free one.
    pub fn port(mut self, port: u16) -> Traffic {
        self.port = port;
        self
    }

    /// Sets how many frames are sent.
    pub fn frames(mut self, frames: u64) -> Traffic {
        self.frames = frames;
        self
    }

    /// Sends until `duration` has passed instead of a number of frames.
    pub fn lasting(mut self, duration: Duration) -> Traffic {
        self.duration = Some(duration);
        self.frames = u64::MAX;
        self
    }

    /// Sets how many frames are sent in a second.
    pub fn rate(mut self, frames_per_second: u64) -> Traffic {
        self.rate = Some(frames_per_second);
        self
    }

    /// Sets the length of each frame on an Ethernet, without the check sequence.
    pub fn frame_bytes(mut self, bytes: usize) -> Traffic {
        self.frame_bytes = bytes;
        self
    }

    /// Sets how many flows, which differ in source port, are taken in turn.
    pub fn flows(mut self, flows: u16) -> Traffic {
        self.flows = flows;
        self
    }

    /// Sets how long the receiver waits for stragglers after the last arrival, instead of 300 ms.
    pub fn quiet(mut self, quiet: Duration) -> Traffic {
        self.quiet = quiet;
        self
    }

    /// Begins without the one datagram that is otherwise sent ahead, uncounted, to have neighbors resolved.
    pub fn cold(mut self) -> Traffic {
        self.primed = false;
        self
    }

    /// Sends, receives and reports.
    pub fn run(self) -> Result<TrafficReport> {
        let address = parse_address(&self.address)?;
        let payload = self.payload_bytes(address)?;
        let receiver = self.to.enter(|| bind(any_like(address), self.port))??;
        let bound = receiver.local_addr().map_err(RigError::system("cannot name the receiver's socket"))?;
        let senders = self.sender_sockets(SocketAddr::new(address, bound.port()))?;
        let plan = Plan {
            run: next_run(),
            payload,
            frames: self.frames,
            interval_ns: self.rate.map(|rate| 1e9 / rate as f64),
            duration: self.duration,
        };
        if self.primed {
            sender::prime(&plan, &senders[0], &receiver);
        }
        let overrun_before = self.overruns()?;
        let (sent, tally) = exchange(&plan, &senders, &receiver, self.quiet);
        let overrun = self.overruns()?.saturating_sub(overrun_before);
        Ok(self.report(&sent, &tally, overrun))
    }

    fn payload_bytes(&self, address: IpAddr) -> Result<usize> {
        let overhead = if address.is_ipv4() { OVERHEAD_V4 } else { OVERHEAD_V6 };
        if !(overhead + HEADER..=LARGEST).contains(&self.frame_bytes) {
            let least = overhead + HEADER;
            let rule = format!("frames of {} bytes: must be {least} to {LARGEST} bytes", self.frame_bytes);
            return Err(RigError::BadNumber { rule });
        }
        if self.flows == 0 || self.rate == Some(0) {
            return Err(RigError::BadNumber {
                rule: "traffic needs at least one flow and a rate above 0".into(),
            });
        }
        Ok(self.frame_bytes - overhead)
    }

    fn sender_sockets(&self, target: SocketAddr) -> Result<Vec<UdpSocket>> {
        let open = || {
            let socket = bind(any_like(target.ip()), 0)?;
            let doing = format!("{} cannot send to {}", self.from.label(), target.ip());
            socket.connect(target).map_err(RigError::system(doing))?;
            Ok(socket)
        };
        self.from.enter(|| (0..self.flows).map(|_| open()).collect())?
    }

    /// Datagrams the receiving host has dropped at full socket buffers since it was made.
    fn overruns(&self) -> Result<u64> {
        self.to.enter(|| {
            let [v4, v6] =
                ["snmp", "snmp6"].map(|file| fs::read_to_string(format!("/proc/thread-self/net/{file}")));
            receiver_buffer_errors(&v4.unwrap_or_default(), &v6.unwrap_or_default())
        })
    }

    fn report(&self, sent: &Sent, tally: &Tally, overrun: u64) -> TrafficReport {
        let seconds = sent.nanoseconds as f64 / 1e9;
        TrafficReport {
            frame_bytes: self.frame_bytes,
            flows: self.flows,
            sent: sent.frames,
            refused: sent.refused,
            received: tally.received,
            lost: sent.frames.saturating_sub(tally.received),
            overrun,
            reordered: tally.reordered,
            duplicated: tally.duplicated,
            strays: tally.strays,
            seconds,
            sent_per_second: per_second(sent.frames, sent.nanoseconds),
            received_per_second: per_second(tally.received, tally.last_ns.saturating_sub(tally.first_ns)),
            latency: tally.latency.latency(),
        }
    }
}

impl fmt::Display for TrafficReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(
            f,
            "sent {} frames of {} bytes in {} flows in {:.3} s: {:.0} per second, {} refused",
            self.sent, self.frame_bytes, self.flows, self.seconds, self.sent_per_second, self.refused
        )?;
        let percent = 100.0 * self.lost as f64 / self.sent.max(1) as f64;
        writeln!(
            f,
            "received {}: {:.0} per second, lost {} ({percent:.3} %, {} in the receiver), reordered {}, \
             duplicated {}, strays {}",
            self.received,
            self.received_per_second,
            self.lost,
            self.overrun,
            self.reordered,
            self.duplicated,
            self.strays
        )?;
        write!(f, "latency {}", self.latency)
    }
}

/// Runs sender and receiver side by side until the last datagram has come or will not come.
fn exchange(plan: &Plan, senders: &[UdpSocket], receiver: &UdpSocket, quiet: Duration) -> (Sent, Tally) {
    let sending = AtomicBool::new(true);
    thread::scope(|scope| {
        let tally = scope.spawn(|| receiver::receive(plan.run, senders.len(), receiver, &sending, quiet));
        let sent = sender::send(plan, senders);
        sending.store(false, Ordering::Release);
        match tally.join() {
            Ok(tally) => (sent, tally),
            Err(cause) => std::panic::resume_unwind(cause),
        }
    })
}

fn any_like(address: IpAddr) -> IpAddr {
    if address.is_ipv4() { Ipv4Addr::UNSPECIFIED.into() } else { Ipv6Addr::UNSPECIFIED.into() }
}

fn bind(address: IpAddr, port: u16) -> Result<UdpSocket> {
    let socket =
        UdpSocket::bind((address, port)).map_err(RigError::system(format!("cannot bind UDP port {port}")))?;
    let sized = sockopt::set_socket_recv_buffer_size_force(&socket, SOCKET_BUFFER);
    sized.map_err(|errno| RigError::System("cannot size a socket's buffer".into(), errno.into()))?;
    Ok(socket)
}

/// Distinguishes this run's datagrams from those of any other run still under way.
fn next_run() -> u16 {
    static RUNS: AtomicU16 = AtomicU16::new(1);
    RUNS.fetch_add(1, Ordering::Relaxed) ^ (std::process::id() as u16).rotate_left(8)
}

/// The monotonic clock in nanoseconds, the same for all threads.
pub(super) fn now_ns() -> u64 {
    let now = clock_gettime(ClockId::Monotonic);
    now.tv_sec as u64 * 1_000_000_000 + now.tv_nsec as u64
}

fn per_second(count: u64, nanoseconds: u64) -> f64 {
    if nanoseconds == 0 { 0.0 } else { count as f64 * 1e9 / nanoseconds as f64 }
}

/// Reads `RcvbufErrors` of UDP from the two files of proc: a table with names above figures, and a list.
fn receiver_buffer_errors(snmp: &str, snmp6: &str) -> u64 {
    let mut udp = snmp.lines().filter_map(|line| line.strip_prefix("Udp: "));
    let table = udp.next().zip(udp.next());
    let v4 = table.and_then(|(names, figures)| {
        let at = names.split_whitespace().position(|name| name == "RcvbufErrors")?;
        figures.split_whitespace().nth(at)?.parse::<u64>().ok()
    });
    let v6 = snmp6.lines().find_map(|line| line.strip_prefix("Udp6RcvbufErrors")?.trim().parse::<u64>().ok());
    v4.unwrap_or(0) + v6.unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn buffer_errors_of_both_families_are_added() {
        let snmp = "Tcp: A RcvbufErrors\nTcp: 1 2\nUdp: InDatagrams RcvbufErrors X\nUdp: 900 5 7\n";
        let snmp6 = "Udp6InErrors    \t3\nUdp6RcvbufErrors                \t6\n";
        assert_eq!(receiver_buffer_errors(snmp, snmp6), 11);
        assert_eq!(receiver_buffer_errors("", ""), 0);
        assert_eq!(receiver_buffer_errors("Udp: RcvbufErrors\n", "Udp6RcvbufErrors x"), 0);
    }
}
