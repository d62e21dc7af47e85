//! What iperf3 measured.

use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::error::{Result, RigError};
use super::host::{Host, parse_address};

/// The summary of a run of iperf3, as the receiver saw it where both ends know.
#[derive(Debug, Clone, Default, PartialEq, Serialize)]
pub struct Throughput {
    /// Rate of payload that arrived, in bits per second.
    pub bits_per_second: f64,
    /// Payload that was sent in each second.
    pub seconds: Vec<f64>,
    /// Segments TCP sent again; `None` with UDP.
    pub retransmits: Option<u64>,
    /// Datagrams lost, in percent; `None` with TCP.
    pub lost_percent: Option<f64>,
    /// Jitter of datagrams in milliseconds; `None` with TCP.
    pub jitter_ms: Option<f64>,
    /// Processor time of the client, in percent of one processor.
    pub client_cpu_percent: f64,
    /// Processor time of the server, in percent of one processor.
    pub server_cpu_percent: f64,
}

#[derive(Deserialize)]
struct Report {
    #[serde(default)]
    intervals: Vec<Interval>,
    end: End,
}

#[derive(Deserialize)]
struct Interval {
    sum: Sum,
}

#[derive(Deserialize)]
struct End {
    sum: Option<Sum>,
    sum_sent: Option<Sum>,
    sum_received: Option<Sum>,
    cpu_utilization_percent: Cpu,
}

#[derive(Deserialize)]
struct Sum {
    bits_per_second: f64,
    retransmits: Option<u64>,
    lost_percent: Option<f64>,
    jitter_ms: Option<f64>,
}

#[derive(Deserialize)]
struct Cpu {
    host_total: f64,
    remote_total: f64,
}

impl Host {
    /// Measures throughput from here to `server`, reached by `address`. `options` are those of the client,
    /// such as `["-t", "2"]`, `["-u", "-b", "1G"]` or `["-R"]`.
    pub fn iperf3(&self, server: &Host, address: &str, options: &[&str]) -> Result<Throughput> {
        // The interface of a link-local address is iperf3's to find.
        parse_address(address.split('%').next().unwrap_or(address))?;
        let listener = server.spawn(["iperf3", "-s", "-1", "--forceflush"])?;
        listener.wait_for("Server listening", Duration::from_secs(5))?;
        let client =
            self.command(["iperf3", "-J", "-c", address]).args(options).limit(Duration::from_secs(120));
        let (output, process) = client.finish()?;
        if !output.succeeded() {
            return Err(RigError::Failed(process.failure()));
        }
        parse(&output.stdout)
            .ok_or_else(|| RigError::Unreadable(process.failure(), "a report of iperf3 in JSON"))
    }
}

fn parse(json: &str) -> Option<Throughput> {
    let Report { intervals, end } = serde_json::from_str(json).ok()?;
    let datagrams = end.sum.as_ref();
    let arrived = end.sum_received.as_ref().or(datagrams)?;
    Some(Throughput {
        bits_per_second: arrived.bits_per_second,
        seconds: intervals.iter().map(|interval| interval.sum.bits_per_second).collect(),
        retransmits: end.sum_sent.as_ref().and_then(|sent| sent.retransmits),
        lost_percent: datagrams.and_then(|sum| sum.lost_percent),
        jitter_ms: datagrams.and_then(|sum| sum.jitter_ms),
        client_cpu_percent: end.cpu_utilization_percent.host_total,
        server_cpu_percent: end.cpu_utilization_percent.remote_total,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tcp_has_retransmits_and_udp_has_loss() {
        let cpu = r#""cpu_utilization_percent":{"host_total":44.0,"remote_total":21.5}"#;
        let tcp = format!(
            r#"{{"intervals":[{{"sum":{{"bits_per_second":18.0}}}}],
               "end":{{"sum_sent":{{"bits_per_second":20.0,"retransmits":7}},
               "sum_received":{{"bits_per_second":19.0}},{cpu}}}}}"#
        );
        let tcp = parse(&tcp).unwrap();
        assert_eq!((tcp.bits_per_second, tcp.retransmits, tcp.lost_percent), (19.0, Some(7), None));
        assert_eq!((tcp.server_cpu_percent, tcp.seconds), (21.5, vec![18.0]));
        let udp = format!(
            r#"{{"end":{{"sum":{{"bits_per_second":5.0,"lost_percent":1.5,"jitter_ms":0.25}},{cpu}}}}}"#
        );
        let udp = parse(&udp).unwrap();
        assert_eq!((udp.bits_per_second, udp.retransmits, udp.lost_percent), (5.0, None, Some(1.5)));
        assert_eq!(parse(r#"{"error":"unable to connect"}"#), None);
    }
}
