//! Clients behind a link of a small MTU: what its router says of answers that are too long must reach the
//! server that sent them, or that waits for ever (RFC 1191, RFC 7690).

use super::net::{Forward, SERVICE, with_far_client};
use super::server::{HELLO, PORT};
use artery_rig::{Host, Result};
use std::collections::{BTreeMap, BTreeSet};
use std::io::{self, Read, Write};
use std::net::TcpStream;
use std::time::Duration;

/// The most that the hop before the client lets pass.
const MTU: u32 = 1300;
const SERVERS: usize = 4;
/// The fewest and the most connections. One in 2^40 runs leaves a server without any of the most.
const CONNECTIONS: usize = 24;
const MOST_CONNECTIONS: usize = 100;
/// What is downloaded by each: many packets.
const LENGTH: usize = 256 * 1024;
/// Nothing takes so long but what has stopped.
const PATIENCE: Duration = Duration::from_secs(20);

/// Says who it is, and sends much when it is asked.
fn download(stream: &mut TcpStream, number: u8) -> io::Result<()> {
    stream.write_all(&[number; HELLO])?;
    stream.read_exact(&mut [0])?;
    stream.write_all(&vec![number; LENGTH])
}

/// Opens connections, drains a server, and downloads: the flows of that one are found by no hash.
fn downloads(label: &str, forward: Forward, variables: &[&str]) {
    with_far_client(label, MTU, |net, far| {
        let _servers = net.serve(forward, download)?;
        let balancer = net.balance(variables)?;
        let mut open = connect(far)?;
        let mut shares = BTreeMap::new();
        open.iter().for_each(|(server, _)| *shares.entry(*server).or_insert(0) += 1);
        assert_eq!(shares.len(), SERVERS, "{shares:?}");
        balancer.write("weight", "web1 0")?;
        for (_, stream) in &mut open {
            stream.write_all(&[0]).unwrap();
        }
        for (server, stream) in &mut open {
            let mut all = vec![0; LENGTH];
            let read = stream.read_exact(&mut all);
            read.unwrap_or_else(|error| panic!("web{server} of {shares:?} does not get through: {error}"));
            assert!(all.iter().all(|byte| byte == server));
        }
        assert!(errors_sent(&net.client)? >= 4, "each server needs an ICMP error");
        assert!(balancer.count("errors-balanced")? >= 4);
        balancer.end()
    });
}

/// Connections, and the numbers of their servers: as many as it takes until each server has some.
fn connect(client: &Host) -> Result<Vec<(u8, TcpStream)>> {
    client.enter(|| {
        let (mut open, mut servers) = (Vec::new(), BTreeSet::new());
        while open.len() < CONNECTIONS || (servers.len() < SERVERS && open.len() < MOST_CONNECTIONS) {
            let mut stream = TcpStream::connect((SERVICE, PORT)).unwrap();
            stream.set_read_timeout(Some(PATIENCE)).unwrap();
            let mut hello = [0; HELLO];
            stream.read_exact(&mut hello).unwrap();
            servers.insert(hello[0]);
            open.push((hello[0], stream));
        }
        open
    })
}

/// How often a host has said that a packet can't be delivered.
fn errors_sent(host: &Host) -> Result<u64> {
    let counts = host.enter(|| std::fs::read_to_string("/proc/thread-self/net/snmp").unwrap())?;
    let mut lines = counts.lines().filter_map(|line| line.strip_prefix("Icmp: "));
    let (names, numbers) = (lines.next().unwrap(), lines.next().unwrap());
    let mut both = names.split(' ').zip(numbers.split(' '));
    let (_, number) = both.find(|(name, _)| *name == "OutDestUnreachs").unwrap();
    Ok(number.parse().unwrap())
}

#[test]
fn a_download_gets_through_a_small_mtu_from_servers_with_the_services_address() {
    downloads("balancer-pmtu-direct", Forward::Direct, &[]);
}

#[test]
fn a_download_gets_through_a_small_mtu_from_servers_behind_nat() {
    downloads("balancer-pmtu-nat", Forward::Nat, &["FORWARD=nat"]);
}
