//! Flows of services and samples of packets as collectors of IPFIX get them: nfcapd, which nfdump reads, and
//! nfacctd of pmacct.

use super::net::PORTS;
use super::net::{Net, Running, on_the_net, start_on};
use crate::support::{SOON, end, until};
use artery_rig::{Host, Process, Result};
use serde_json::Value;
use std::io::{Read as _, Write as _};
use std::net::{SocketAddr, TcpListener, TcpStream, UdpSocket};
use std::path::Path;
use tempfile::TempDir;

/// The services, and their clients and members.
const SERVICES: [&str; 2] = ["192.0.2.1:80", "[2001:db8::1]:80"];
const CLIENTS: [&str; 2] = ["10.0.1.2", "fd00:1::2"];
const MEMBERS: [&str; 2] = ["10.0.2.2", "fd00:2::2"];
const METRICS: &str = "127.0.0.1:9470";

/// A server that reads what a client sends, and closes.
fn serve(host: &Host, port: u16) -> Result<()> {
    let listener = host.enter(|| TcpListener::bind(("::", port)).unwrap())?;
    std::thread::spawn(move || {
        while let Ok((mut stream, _)) = listener.accept() {
            let _ = stream.read_to_end(&mut Vec::new());
        }
    });
    Ok(())
}

/// Sends so many bytes to an address.
fn send(client: &Host, to: &str, bytes: usize) -> Result<()> {
    let to: SocketAddr = to.parse().unwrap();
    client.enter(|| {
        let mut stream = TcpStream::connect_timeout(&to, SOON).unwrap();
        stream.write_all(&vec![0; bytes]).unwrap();
    })
}

/// The value of a metric of the router, 0 if it is not there.
fn metric(router: &Host, name: &str) -> Result<u64> {
    let text = router.enter(|| {
        let mut stream = TcpStream::connect(METRICS)?;
        stream.set_read_timeout(Some(SOON))?;
        stream.write_all(b"GET /metrics HTTP/1.1\r\n\r\n")?;
        let mut text = String::new();
        stream.read_to_string(&mut text).map(|_| text)
    })?;
    let text = text.unwrap_or_default();
    let value = text.lines().find_map(|line| line.strip_prefix(name)?.trim().parse().ok());
    Ok(value.unwrap_or(0))
}

/// Has clients of both families use a service each, and waits until that is exported.
fn use_services(net: &Net, options: &[&str]) -> Result<()> {
    let services = ["--nat", "--service", "192.0.2.1:80/tcp=web=10.0.2.2:8080"];
    let services6 = ["--service", "[2001:db8::1]:80/tcp=web=[fd00:2::2]:8080", "--metrics", METRICS];
    let router = Running::start(net, &[&services[..], &services6, options].concat())?;
    for service in SERVICES {
        send(&net.a, service, 50_000)?;
    }
    // The counts of what was lost, and a flow of each family.
    until(2 * SOON, || Ok(metric(&net.r, "artery_ipfix_records_total")? >= 3))?;
    assert_eq!(metric(&net.r, "artery_ipfix_lost_records_total{reason=\"queue\"}")?, 0);
    assert!(!router.process.stderr_so_far().contains("warning"), "{}", router.process.stderr_so_far());
    end(router.process).map(drop)
}

/// Starts a collector, which ends in order when it gets SIGTERM or SIGINT.
fn collector(host: &Host, words: &[&str], is_ready: impl Fn(&Process) -> bool) -> Result<Process> {
    let process = host.spawn(words.iter().copied())?;
    until(SOON, || Ok(is_ready(&process)))?;
    Ok(process)
}

/// Whether a host has a UDP socket at a port (proc_pid_net(5)).
fn listens(host: &Host, port: u16) -> bool {
    let of_port = format!(":{port:04X} ");
    let tables = host.enter(|| {
        ["udp", "udp6"].map(|table| {
            std::fs::read_to_string(format!("/proc/thread-self/net/{table}")).unwrap_or_default()
        })
    });
    tables.is_ok_and(|tables| tables.iter().any(|table| table.contains(&of_port)))
}

/// nfcapd, and what it writes.
pub(crate) struct Collected {
    host: Host,
    nfcapd: Process,
    folder: TempDir,
}

impl Collected {
    /// Starts it on a host, and waits until it listens at a port.
    pub(crate) fn start(host: &Host, port: u16) -> Result<Collected> {
        let folder = TempDir::new().unwrap();
        let words =
            ["nfcapd", "-w", &folder.path().display().to_string(), "-p", &port.to_string(), "-t", "3600"];
        let nfcapd = collector(host, &words, |_| listens(host, port))?;
        Ok(Collected { host: host.clone(), nfcapd, folder })
    }

    /// Ends it, and gives what nfdump reads.
    pub(crate) fn records(mut self) -> Result<Vec<Value>> {
        self.nfcapd.stop(SOON)?;
        let flows = self.folder.path().display().to_string();
        let said = self.host.run(["nfdump", "-q", "-R", &flows, "-o", "json"])?.stdout;
        // With -q the brackets around all records are missing.
        Ok(serde_json::from_str(&format!("[{said}]")).unwrap_or_else(|error| panic!("{error}: {said}")))
    }
}

/// Sends so many datagrams of 100 bytes to port 9 of each address of another host.
pub(crate) fn send_datagrams(from: &Host, host: &Host, addresses: &[&str], count: u64) -> Result<()> {
    let _sink = host.enter(|| UdpSocket::bind("[::]:9").unwrap())?;
    from.enter(|| {
        for to in addresses {
            let any = if to.contains(':') { "[::]:0" } else { "0.0.0.0:0" };
            let socket = UdpSocket::bind(any).unwrap();
            for _ in 0..count {
                socket.send_to(&[0; 100], (*to, 9)).unwrap();
            }
        }
    })
}

fn path(folder: &Path, name: &str) -> String {
    folder.join(name).display().to_string()
}

#[test]
fn nfdump_reads_the_flows_of_services_from_both_families() {
    on_the_net("command-ipfix-nfdump", |net| {
        serve(&net.b, 8080)?;
        let collected = Collected::start(&net.b, 4739)?;
        use_services(net, &["--ipfix", "10.0.2.2,domain=7,active=1"])?;
        let records = collected.records()?;
        for (n, (client, member)) in CLIENTS.iter().zip(MEMBERS).enumerate() {
            let (source, destination) = [("src4_addr", "dst4_addr"), ("src6_addr", "dst6_addr")][n];
            let of_client = |record: &&Value| record[source] == *client;
            let of_client: Vec<&Value> = records.iter().filter(of_client).collect();
            assert!(!of_client.is_empty(), "{client}: {records:?}");
            let first = of_client[0];
            let service = ["192.0.2.1", "2001:db8::1"][n];
            assert_eq!((&first[destination], &first["dst_port"]), (&service.into(), &80.into()), "{first}");
            assert_eq!(first["proto"], 6, "{first}");
            let bytes: u64 = of_client.iter().filter_map(|record| record["in_bytes"].as_u64()).sum();
            assert!((50_000..80_000).contains(&bytes), "{bytes}: {records:?}");
            assert_eq!(first["dst_xlt_port"], "8080", "{first}");
            // Neither this collector nor the other reads translated addresses of IPv6 (elements 281, 282).
            assert!(n == 1 || first["dst4_xlt_ip"] == *member, "{first}");
        }
        Ok(())
    });
}

#[test]
fn nfdump_reads_states_of_rules_with_pflow_in_both_directions() {
    on_the_net("command-ipfix-states", |net| {
        serve(&net.b, 8080)?;
        let folder = TempDir::new().unwrap();
        let rules = path(folder.path(), "pf.conf");
        // Of a connection the state where it comes in is exported, and that where it leaves is not.
        std::fs::write(
            &rules,
            "pass\npass in proto tcp keep state (pflow)\npass in proto tcp to port 8081\n",
        )
        .unwrap();
        serve(&net.b, 8081)?;
        let collected = Collected::start(&net.b, 4739)?;
        let options = ["--pf", &rules, "--metrics", METRICS, "--ipfix", "10.0.2.2,active=1"];
        let router = Running::start(net, &options)?;
        for to in ["10.0.2.2:8080", "[fd00:2::2]:8080", "10.0.2.2:8081"] {
            send(&net.a, to, 50_000)?;
        }
        // The counts of what was lost, and two directions of each family.
        until(2 * SOON, || Ok(metric(&net.r, "artery_ipfix_records_total")? >= 5))?;
        end(router.process)?;
        let records = collected.records()?;
        let sum = |of: &dyn Fn(&Value) -> bool| -> u64 {
            records.iter().filter(|record| of(record)).filter_map(|record| record["in_bytes"].as_u64()).sum()
        };
        for (n, source) in ["src4_addr", "src6_addr"].into_iter().enumerate() {
            let there = sum(&|record| record[source] == CLIENTS[n] && record["dst_port"] == 8080);
            assert!((50_000..80_000).contains(&there), "{there}: {records:?}");
            let back = sum(&|record| record[source] == MEMBERS[n] && record["src_port"] == 8080);
            assert!((100..10_000).contains(&back), "{back}: {records:?}");
        }
        assert_eq!(sum(&|record| record["dst_port"] == 8081), 0, "{records:?}");
        Ok(())
    });
}

#[test]
fn pmacct_reads_the_flows_of_services_from_both_families() {
    on_the_net("command-ipfix-pmacct", |net| {
        serve(&net.b, 8080)?;
        let folder = TempDir::new().unwrap();
        let (config, output) = (path(folder.path(), "conf"), path(folder.path(), "flows"));
        let text = format!(
            "daemonize: false\nnfacctd_port: 2055\nnfacctd_ip: ::\nplugins: print\nprint_output: json\n\
             print_output_file: {output}\nprint_refresh_time: 2\nprint_output_file_append: true\n\
             aggregate: src_host, dst_host, src_port, dst_port, proto, post_nat_dst_host, post_nat_dst_port\n"
        );
        std::fs::write(&config, text).unwrap();
        let nfacctd = collector(&net.b, &["nfacctd", "-f", &config], |_| listens(&net.b, 2055))?;
        use_services(net, &["--ipfix", "[fd00:2::2]:2055,source=fd00:2::1,active=1"])?;
        let written = || std::fs::read_to_string(&output).unwrap_or_default();
        until(2 * SOON, || Ok(CLIENTS.iter().all(|client| written().contains(client))))?;
        // It would write the rest first, when its time comes.
        drop(nfacctd);
        let said = written();
        let records: Vec<Value> = said.lines().filter_map(|line| serde_json::from_str(line).ok()).collect();
        for (n, (client, member)) in CLIENTS.iter().zip(MEMBERS).enumerate() {
            let of_client: Vec<&Value> =
                records.iter().filter(|record| record["ip_src"] == *client).collect();
            let first = of_client.first().unwrap_or_else(|| panic!("{client}: {said}"));
            let service = ["192.0.2.1", "2001:db8::1"][n];
            assert_eq!((&first["ip_dst"], &first["port_dst"]), (&service.into(), &80.into()), "{first}");
            assert_eq!(first["ip_proto"], "tcp", "{first}");
            assert_eq!(first["post_nat_port_dst"], 8080, "{first}");
            assert!(n == 1 || first["post_nat_ip_dst"] == *member, "{first}");
            let bytes: u64 = of_client.iter().filter_map(|record| record["bytes"].as_u64()).sum();
            assert!((50_000..80_000).contains(&bytes), "{bytes}: {said}");
        }
        Ok(())
    });
}

/// Datagrams of each family, and their bytes with IP headers.
const DATAGRAMS: u64 = 1000;
const DATAGRAM_BYTES: [u64; 2] = [128, 148];

/// Sends datagrams of both families through a router that samples, and waits until samples are exported.
fn sample_datagrams(net: &Net, interval: u64, ipfix: &str) -> Result<()> {
    let ipfix = format!("{ipfix},sample={interval}");
    let router = Running::start(net, &["--metrics", METRICS, "--ipfix", &ipfix])?;
    send_datagrams(&net.a, &net.b, &MEMBERS, DATAGRAMS)?;
    let sampled = || metric(&net.r, "artery_ipfix_sampled_packets_total");
    until(2 * SOON, || Ok(sampled()? >= 2 * DATAGRAMS / interval))?;
    // With the counts of what was lost, and the selector.
    until(2 * SOON, || Ok(metric(&net.r, "artery_ipfix_records_total")? >= 2 + 2 * DATAGRAMS / interval))?;
    assert_eq!(metric(&net.r, "artery_ipfix_lost_records_total{reason=\"queue\"}")?, 0);
    end(router.process).map(drop)
}

#[test]
fn nfdump_reads_samples_of_packets_with_their_interfaces() {
    on_the_net("command-ipfix-samples", |net| {
        let collected = Collected::start(&net.b, 4739)?;
        sample_datagrams(net, 10, "10.0.2.2")?;
        let records = collected.records()?;
        let number = |interface: &str| -> Result<u64> {
            let said = net.r.run(["cat", &format!("/sys/class/net/{interface}/ifindex")])?.stdout;
            Ok(said.trim().parse().unwrap())
        };
        let (eth0, eth1) = (number("eth0")?, number("eth1")?);
        for (n, source) in ["src4_addr", "src6_addr"].into_iter().enumerate() {
            let of_client = |record: &&Value| record[source] == CLIENTS[n] && record["dst_port"] == 9;
            let of_client: Vec<&Value> = records.iter().filter(of_client).collect();
            assert!((95..=105).contains(&of_client.len()), "{}: {records:?}", of_client.len());
            for record in of_client {
                assert_eq!((&record["in_packets"], &record["proto"]), (&1.into(), &17.into()), "{record}");
                assert_eq!(record["in_bytes"], DATAGRAM_BYTES[n], "{record}");
                assert_eq!(record["input_snmp"], eth0, "{record}");
                assert_eq!(record["output_snmp"], eth1, "{record}");
            }
        }
        Ok(())
    });
}

#[test]
fn pmacct_multiplies_samples_by_the_interval_of_their_selector() {
    on_the_net("command-ipfix-selector", |net| {
        let folder = TempDir::new().unwrap();
        let (config, output) = (path(folder.path(), "conf"), path(folder.path(), "flows"));
        let text = format!(
            "daemonize: false\nnfacctd_port: 2055\nnfacctd_ip: ::\nnfacctd_renormalize: true\n\
             plugins: print\nprint_output: json\nprint_output_file: {output}\nprint_refresh_time: 2\n\
             print_output_file_append: true\n\
             aggregate: src_host, dst_host, dst_port, proto, in_iface, out_iface\n"
        );
        std::fs::write(&config, text).unwrap();
        let nfacctd = collector(&net.b, &["nfacctd", "-f", &config], |_| listens(&net.b, 2055))?;
        sample_datagrams(net, 20, "10.0.2.2:2055")?;
        let sum = |n: usize, what: &str| -> u64 {
            let said = std::fs::read_to_string(&output).unwrap_or_default();
            let records = said.lines().filter_map(|line| serde_json::from_str::<Value>(line).ok());
            let of_client =
                records.filter(|record| record["ip_src"] == CLIENTS[n] && record["port_dst"] == 9);
            of_client.filter_map(|record| record[what].as_u64()).sum()
        };
        let is_near = |sum: u64, wanted: u64| sum.abs_diff(wanted) <= wanted / 10;
        until(2 * SOON, || Ok((0..2).all(|n| is_near(sum(n, "packets"), DATAGRAMS))))?;
        drop(nfacctd);
        for (n, bytes) in DATAGRAM_BYTES.into_iter().enumerate() {
            assert!(is_near(sum(n, "bytes"), DATAGRAMS * bytes), "{}", sum(n, "bytes"));
        }
        Ok(())
    });
}

#[test]
fn a_collector_that_is_not_there_costs_records_and_wrong_ones_are_refused() {
    on_the_net("command-ipfix-dead", |net| {
        serve(&net.b, 8080)?;
        // Its prefix is a port's, and no host answers for it.
        use_services(net, &["--ipfix", "10.0.2.9:4739,active=1"])?;
        for (wrong, what) in [
            ("collector", "write an address"),
            ("10.0.2.2:99999", "write an address"),
            ("10.0.2.2,idle=5", "unknown 'idle=5'"),
            ("10.0.2.2,sample=0", "sample=0: write of how many packets one is sampled"),
            ("10.0.2.2,source=fd00:2::1", "differ in family"),
        ] {
            let mut router = start_on(&net.r, &[&PORTS[..], &["--ipfix", wrong]].concat())?;
            let output = router.process.wait(SOON)?;
            assert!(!output.succeeded() && output.stderr.contains(what), "{wrong}: {}", output.stderr);
        }
        let router = start_on(&net.r, &[&PORTS[..], &["--ipfix", "10.0.2.2,source=10.99.0.1"]].concat())?;
        until(2 * SOON, || {
            Ok(router.process.stderr_so_far().contains("flows can't be exported to 10.0.2.2:4739"))
        })?;
        Ok(())
    });
}
