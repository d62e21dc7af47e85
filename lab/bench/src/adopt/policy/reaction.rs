//! `artery-bench adopt --reaction`: for how long datagrams of a connection that goes past the kernel still
//! pass after rules have begun to drop them.
//!
//! A datagram is sent every 250 µs. Times are from the start of nft(8) to the last datagram that a program at
//! the far host has read, so that they hold what nft itself takes before the change is in force.

use super::{Forwarder, NEAR, Rules, TARGETS, adopt, filtered, until};
use crate::adopt::bed::Bed;
use crate::results::{Delivery, Findings, Goal, Measurement, Table, number};
use anyhow::Context as _;
use artery_rig::console::progress;
use artery_rig::machine::Machine;
use hdrhistogram::Histogram;
use std::net::{SocketAddr, UdpSocket};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::thread::{JoinHandle, sleep, spawn};
use std::time::{Duration, Instant};

/// What is changed, and what takes that back.
const CHANGES: [(&str, &str, &str); 2] = [
    ("a rule", "add rule inet f block udp dport 9000 drop", "flush chain inet f block"),
    (
        "an element of a set",
        "add element inet f blocked { 198.19.0.2 }",
        "delete element inet f blocked { 198.19.0.2 }",
    ),
];
const PREPARATION: &str = "add chain inet f block; add set inet f blocked { type ipv4_addr; }; \
    insert rule inet f forward ip daddr @blocked drop; insert rule inet f forward jump block";
const PORT: u16 = 9000;
const PACE: Duration = Duration::from_micros(250);
/// How long nothing has to arrive until all that was to come has come.
const QUIET: Duration = Duration::from_millis(300);
/// 99 of 100 times are to be at most that, in milliseconds.
const GOAL: f64 = 50.0;
const ROUNDS: usize = 200;
const ROUNDS_QUICK: usize = 30;

/// Measures, prints, and writes files.
pub(in crate::adopt) fn run(delivery: &Delivery) -> anyhow::Result<()> {
    let rounds = delivery.manner.plan(ROUNDS, ROUNDS_QUICK);
    let mut report = Report { machine: Machine::here(), rows: Vec::new() };
    for by in [Forwarder::Xdp, Forwarder::Tc] {
        let bed = filtered(Rules::Filter)?;
        bed.r.run(["nft", PREPARATION])?;
        // Checksums that are left to a card stay unfinished where XDP forwards.
        [&bed.a, &bed.b]
            .into_iter()
            .try_for_each(|host| host.run(["ethtool", "-K", "eth0", "tx", "off"]).map(drop))?;
        let _adopted = by.path().map(|path| adopt(&bed.r, path)).transpose()?;
        let stream = Stream::start(&bed)?;
        for (change, make, undo) in CHANGES {
            progress(&format!("{}: {change}, {rounds} times", by.name()));
            let mut row = Row::new(change, by.name())?;
            for _ in 0..rounds {
                row.add(stream.reaction(&bed, make)?)?;
                bed.r.run(["nft", undo])?;
            }
            report.rows.push(row);
        }
    }
    delivery.deliver(&report)
}

/// Datagrams from the near host to the far one, and what is known of those that arrived.
struct Stream {
    began: Instant,
    arrived: Arc<Arrived>,
    threads: Vec<JoinHandle<()>>,
}

#[derive(Default)]
struct Arrived {
    count: AtomicU64,
    /// When the last came, in nanoseconds since the beginning.
    last: AtomicU64,
    is_over: AtomicBool,
}

impl Stream {
    fn start(bed: &Bed) -> anyhow::Result<Stream> {
        let far = bed.b.enter(|| UdpSocket::bind((TARGETS[0], PORT)))?.context("a socket at the far host")?;
        let near = bed.a.enter(|| UdpSocket::bind((NEAR, 0)))?.context("a socket at the near host")?;
        let to: SocketAddr = (TARGETS[0].parse::<std::net::IpAddr>()?, PORT).into();
        far.set_read_timeout(Some(QUIET))?;
        let (began, arrived) = (Instant::now(), Arc::<Arrived>::default());
        let of_sender = arrived.clone();
        let send = move || {
            while !of_sender.is_over.load(Relaxed) {
                // What has no room is as good as lost on the way.
                let _ = near.send_to(&[0; 18], to);
                sleep(PACE);
            }
        };
        let of_receiver = arrived.clone();
        let receive = move || {
            let mut buffer = [0; 64];
            while !of_receiver.is_over.load(Relaxed) {
                let Ok((_, from)) = far.recv_from(&mut buffer) else { continue };
                of_receiver.last.store(began.elapsed().as_nanos() as u64, Relaxed);
                // The first answers make it a connection that both ends have taken part in.
                if of_receiver.count.fetch_add(1, Relaxed) % 64 == 0 {
                    let _ = far.send_to(&[0; 18], from);
                }
            }
        };
        Ok(Stream { began, arrived, threads: vec![spawn(send), spawn(receive)] })
    }

    fn count(&self) -> u64 {
        self.arrived.count.load(Relaxed)
    }

    /// When the last datagram arrived.
    fn last(&self) -> Instant {
        self.began + Duration::from_nanos(self.arrived.last.load(Relaxed))
    }

    /// Makes a change once datagrams go past the kernel; for how long they passed after that.
    fn reaction(&self, bed: &Bed, change: &str) -> anyhow::Result<Duration> {
        until("datagrams go past the kernel", || {
            let before = (self.count(), bed.r.kernel_counter("IpForwDatagrams")?);
            sleep(QUIET / 10);
            let by_kernel = bed.r.kernel_counter("IpForwDatagrams")? - before.1;
            Ok(self.count() - before.0 > 20 && by_kernel <= 2)
        })?;
        let began = Instant::now();
        bed.r.run(["nft", change])?;
        until("datagrams are dropped", || Ok(self.last().elapsed() > QUIET))?;
        Ok(self.last().saturating_duration_since(began))
    }
}

impl Drop for Stream {
    fn drop(&mut self) {
        self.arrived.is_over.store(true, Relaxed);
        // One that panicked has said so.
        self.threads.drain(..).for_each(|thread| drop(thread.join()));
    }
}

/// The times of one change, in microseconds.
struct Row {
    change: &'static str,
    by: &'static str,
    times: Histogram<u64>,
    runs: Vec<f64>,
}

impl Row {
    fn new(change: &'static str, by: &'static str) -> anyhow::Result<Row> {
        Ok(Row { change, by, times: Histogram::new(3)?, runs: Vec::new() })
    }

    fn add(&mut self, time: Duration) -> anyhow::Result<()> {
        self.runs.push(time.as_secs_f64() * 1e3);
        Ok(self.times.record(time.as_micros() as u64)?)
    }

    fn quantile(&self, part: f64) -> f64 {
        self.times.value_at_quantile(part) as f64 / 1e3
    }

    fn goal(&self) -> Goal {
        let (claim, figure) = (format!("p99 of {}, {}", self.change, self.by), Some(self.quantile(0.99)));
        Goal { claim, figure, bound: Some(GOAL), is_least: false, unit: "ms" }
    }
}

struct Report {
    machine: Machine,
    rows: Vec<Row>,
}

impl Findings for Report {
    const NAME: &'static str = "adopt-reaction";

    fn text(&self) -> String {
        let mut table = Table::headed("change | by | times: | p50, ms: | p99, ms: | greatest, ms:");
        for row in &self.rows {
            let [p50, p99, most] = [0.5, 0.99, 1.0].map(|part| number(row.quantile(part)));
            table.row([row.change, row.by, &row.runs.len().to_string(), &p50, &p99, &most]);
        }
        let goals = Goal::table(&self.rows.iter().map(Row::goal).collect::<Vec<_>>());
        format!(
            "# How soon rules hold\n\n{}.\n\nFrom the start of nft to the last datagram of a connection past \
             the kernel.\n\n{table}\n{goals}",
            self.machine
        )
    }

    fn measurements(&self) -> Vec<Measurement> {
        let measurement = |row: &Row| {
            let found = Measurement::of(Self::NAME, row.by, "ms", &row.runs).param("change", row.change);
            found.cpu(&self.machine.cpu).notes("the median; veth pairs in namespaces")
        };
        self.rows.iter().map(measurement).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_row_is_judged_by_its_99th_percentile() {
        let report = |late: usize| {
            let mut row = Row::new("a rule", "artery adopt, tc").unwrap();
            (0..200).for_each(|at| row.add(Duration::from_millis(if at < late { 80 } else { 9 })).unwrap());
            Report { machine: Machine::here(), rows: vec![row] }
        };
        assert!(report(1).text().contains("| met "), "{}", report(1).text());
        assert!(report(9).text().contains("| missed "), "{}", report(9).text());
        assert_eq!(report(1).measurements()[0].reps, 200);
    }
}
