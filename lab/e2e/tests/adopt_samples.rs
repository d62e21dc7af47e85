//! Samples of packets that `artery adopt` forwards, as a collector of IPFIX gets them.

use crate::router_command::ipfix::{Collected, send_datagrams};
use crate::support::adopting::{Net, on_the_net};
use crate::support::{Running, artery_on, until};
use artery_rig::Result;
use std::time::Duration;

const SOON: Duration = Duration::from_secs(60);
const INTERVAL: u64 = 10;
/// Datagrams of each family that are sent.
const DATAGRAMS: u64 = 1000;
const SOURCES: [(&str, &str); 2] = [("src4_addr", "10.0.1.2"), ("src6_addr", "2001:db8:1::2")];

fn sample_by(net: &Net, path: &str) -> Result<()> {
    // What XDP sends on must be whole.
    net.a.run(["ethtool", "-K", "eth0", "tx", "off"])?;
    let collected = Collected::start(&net.b, 4739)?;
    let mut adopted = Running::adopt(net, path, &["--ipfix", &format!("10.0.2.2,sample={INTERVAL}")])?;
    for to in ["10.0.2.2", "2001:db8:2::2"] {
        net.a.ping_with(to, 5, &["-i", "0.01"])?;
    }
    send_datagrams(&net.a, &net.b, &["10.0.2.2", "2001:db8:2::2"], DATAGRAMS)?;
    let value = |metrics: &str, name: &str| -> u64 {
        metrics.lines().find_map(|line| line.strip_prefix(name)?.trim().parse().ok()).unwrap_or(0)
    };
    // Each processor counts by itself.
    let expected = 2 * DATAGRAMS / INTERVAL - 10;
    until(SOON, || Ok(value(&adopted.handler(&["metrics"])?, "artery_ipfix_records_total") >= expected))?;
    let said = adopted.handler(&["metrics"])?;
    assert!(value(&said, "artery_ipfix_sampled_packets_total") >= expected, "{said}");
    assert_eq!(value(&said, "artery_ipfix_lost_records_total{reason=\"queue\"}"), 0, "{said}");
    adopted.stop(SOON)?;
    let index = |port: &str| -> Result<u64> {
        let said = net.r.run(["cat", &format!("/sys/class/net/{port}/ifindex")])?.stdout;
        Ok(said.trim().parse().unwrap())
    };
    let (eth0, eth1) = (index("eth0")?, index("eth1")?);
    let records = collected.records()?;
    for (key, source) in SOURCES {
        let of_source = records.iter().filter(|record| record[key] == source && record["dst_port"] == 9);
        let of_source: Vec<_> = of_source.collect();
        assert!((85..=115).contains(&of_source.len()), "{}: {records:?}", of_source.len());
        for record in of_source {
            assert_eq!((&record["in_packets"], &record["proto"]), (&1.into(), &17.into()), "{record}");
            assert_eq!((&record["input_snmp"], &record["output_snmp"]), (&eth0.into(), &eth1.into()));
        }
    }
    Ok(())
}

#[test]
fn packets_forwarded_by_tc_are_sampled() {
    on_the_net("adopt-samples-tc", |net| sample_by(net, "tc"));
}

#[test]
fn packets_forwarded_by_xdp_are_sampled() {
    on_the_net("adopt-samples-xdp", |net| sample_by(net, "xdp"));
}

#[test]
fn an_export_without_samples_is_refused() {
    on_the_net("adopt-samples-none", |net| {
        let output = artery_on(&net.r, ["adopt", "eth0", "eth1", "--ipfix", "10.0.2.2"])?.output()?;
        assert!(!output.succeeded() && output.stderr.contains("such as sample=1000"), "{}", output.stderr);
        Ok(())
    });
}
