//! Services of other kinds: of UDP, of IPv6, and of a router with two workers.

use super::load::Load;
use super::net::SERVICE;
use super::plain::{Plain, graph};
use super::server::echo;
use crate::support::{Running, SOON};
use artery_rig::{Host, Result};
use std::collections::BTreeMap;
use std::io::{Read, Write};
use std::net::{Ipv6Addr, SocketAddr, TcpListener, TcpStream, UdpSocket};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU16, Ordering::Relaxed};
use std::thread;
use std::time::Duration;

const MEMBERS: &str =
    "MEMBER web1 10.0.2.11, MEMBER web2 10.0.2.12, MEMBER web3 10.0.2.13, MEMBER web4 10.0.2.14";

/// How many of these each server has.
fn shares(of: &[u8]) -> BTreeMap<u8, usize> {
    let mut shares = BTreeMap::new();
    of.iter().for_each(|server| *shares.entry(*server).or_insert(0) += 1);
    shares
}

/// Answers datagrams by its number until it is dropped.
struct Answers(Arc<AtomicBool>);

impl Answers {
    fn start(host: &Host, number: u8) -> Result<Answers> {
        let socket = host.enter(|| UdpSocket::bind((SERVICE, 53)).unwrap())?;
        socket.set_read_timeout(Some(Duration::from_millis(50))).unwrap();
        let has_ended = Arc::new(AtomicBool::new(false));
        let ends = has_ended.clone();
        thread::spawn(move || {
            while !ends.load(Relaxed) {
                if let Ok((_, from)) = socket.recv_from(&mut [0; 64]) {
                    // A client that has gone is not an error of the server.
                    let _ = socket.send_to(&[number], from);
                }
            }
        });
        Ok(Answers(has_ended))
    }
}

impl Drop for Answers {
    fn drop(&mut self) {
        self.0.store(true, Relaxed);
    }
}

/// Who answers a datagram; the first ones may be lost while neighbors are found out.
fn asked(socket: &UdpSocket) -> u8 {
    let mut answer = [0];
    for _ in 0..50 {
        socket.send(b"who?").unwrap();
        if socket.recv(&mut answer).is_ok() {
            return answer[0];
        }
    }
    panic!("no answer to {socket:?}");
}

#[test]
fn flows_of_udp_stay_with_their_servers_while_others_come_and_one_is_drained() {
    artery_rig::test("balancer-udp", |rig| {
        let net = Plain::new(rig, 5)?;
        let router = net.router(rig, "r")?.host;
        net.have_service()?;
        let servers: Result<Vec<_>> =
            (1..).zip(&net.servers).map(|(number, host)| Answers::start(host, number)).collect();
        let _servers = servers?;
        let running = Running::run(&router, &graph(&format!("SERVICE {SERVICE}:53 udp, {MEMBERS}")), &[])?;
        let open = |port: u16| {
            let socket = UdpSocket::bind(("10.0.1.2", port)).unwrap();
            socket.connect((SERVICE, 53)).unwrap();
            socket.set_read_timeout(Some(Duration::from_millis(200))).unwrap();
            socket
        };
        let sockets: Vec<_> = net.client.enter(|| (30_000..30_120).map(open).collect())?;
        let all = || sockets.iter().map(asked).collect::<Vec<u8>>();
        let before = all();
        assert!(shares(&before).len() == 4 && shares(&before).values().all(|share| *share > 6), "{before:?}");
        assert_eq!(all(), before);
        running.write("add_member", "web5 10.0.2.15")?;
        running.write("weight", "web1 0")?;
        assert_eq!(all(), before);
        let more: Vec<_> = net.client.enter(|| (30_120..30_240).map(open).collect())?;
        let new = shares(&more.iter().map(asked).collect::<Vec<u8>>());
        assert!(!new.contains_key(&1) && new[&5] > 6, "{new:?}");
        running.write("remove_member", "web2")?;
        let moved = all().into_iter().zip(&before).filter(|(now, before)| now != *before);
        let moved: Vec<_> = moved.collect();
        assert!(moved.len() == shares(&before)[&2], "{moved:?}");
        assert!(moved.iter().all(|(_, before)| **before == 2), "{moved:?}");
        running.end()
    });
}

const SERVICE6: Ipv6Addr = Ipv6Addr::new(0x2001, 0xdb8, 0, 0, 0, 0, 0, 1);

/// A router of IPv6 that knows its neighbors by name: the client's interface and those of the servers.
fn graph6(client: &str, servers: &[String]) -> String {
    let members: Vec<_> = (1..=4).map(|n| format!("MEMBER web{n} 2001:db8:2::{n}")).collect();
    let routes: Vec<_> = (0..servers.len()).map(|n| format!("2001:db8:2::{}/128 {n}", n + 1)).collect();
    let mut text = format!(
        "balancer :: FlowBalancer(SERVICE [{SERVICE6}]:80 tcp, {});
        left :: Queue(1024) -> ToDevice(eth0); right :: Queue(1024) -> ToDevice(eth1);
        FromDevice(eth0, SNIFFER false) -> c0 :: Classifier(12/86dd, -) -> Strip(14) -> CheckIP6Header -> \
         balancer;
        FromDevice(eth1, SNIFFER false) -> c1 :: Classifier(12/86dd, -) -> Strip(14) -> CheckIP6Header
            -> EtherEncap(0x86dd, eth0:eth, {client}) -> left;
        c0[1] -> Discard; c1[1] -> Discard; balancer[1] -> Discard;
        balancer -> routes :: LookupIP6Route({});",
        members.join(", "),
        routes.join(", ")
    );
    for (n, server) in servers.iter().enumerate() {
        text += &format!("routes[{n}] -> EtherEncap(0x86dd, eth1:eth, {server}) -> right;");
    }
    text
}

/// Says its number for each byte that it is sent, for as long as the process lives.
fn count_out(host: &Host, number: u8) -> Result<()> {
    let listener = host.enter(|| TcpListener::bind((SERVICE6, 80)).unwrap())?;
    thread::spawn(move || {
        while let Ok((mut stream, _)) = listener.accept() {
            thread::spawn(move || {
                while stream.read_exact(&mut [0]).and_then(|()| stream.write_all(&[number])).is_ok() {}
            });
        }
    });
    Ok(())
}

fn number(stream: &mut TcpStream) -> u8 {
    let mut answer = [0];
    stream.write_all(b"?").and_then(|()| stream.read_exact(&mut answer)).unwrap();
    answer[0]
}

#[test]
fn connections_of_ipv6_stay_with_their_servers_while_another_comes_and_one_is_drained() {
    artery_rig::test("balancer-ipv6", |rig| {
        let net = Plain::new(rig, 5)?;
        let router = net.router(rig, "r")?.host;
        // Static neighbor entries: the router's graph has no element that answers solicitations.
        let neighbor = |host: &Host, address: &str, mac: &str| {
            host.run(["ip", "neigh", "add", address, "lladdr", mac, "dev", "eth0"]).map(drop)
        };
        net.client.address("eth0", "2001:db8:1::2/64")?.route("default", "2001:db8:1::1")?;
        neighbor(&net.client, "2001:db8:1::1", &router.mac("eth0")?)?;
        for (number, host) in (1..).zip(&net.servers) {
            host.address("lo", &format!("{SERVICE6}/128"))?;
            host.address("eth0", &format!("2001:db8:2::{number}/64"))?.route("default", "2001:db8:2::ff")?;
            neighbor(host, "2001:db8:2::ff", &router.mac("eth1")?)?;
            count_out(host, number)?;
        }
        let macs: Vec<_> = net.servers.iter().map(|host| host.mac("eth0")).collect::<Result<_>>()?;
        let running = Running::run(&router, &graph6(&net.client.mac("eth0")?, &macs), &[])?;
        let open = |_| {
            let service = SocketAddr::from((SERVICE6, 80));
            let stream = TcpStream::connect_timeout(&service, SOON).unwrap();
            stream.set_read_timeout(Some(SOON)).unwrap();
            stream
        };
        let mut streams: Vec<_> = net.client.enter(|| (0..100).map(open).collect())?;
        let before: Vec<u8> = streams.iter_mut().map(number).collect();
        assert!(shares(&before).len() == 4 && shares(&before).values().all(|share| *share > 4), "{before:?}");
        running.write("add_member", "web5 2001:db8:2::5")?;
        running.write("weight", "web1 0")?;
        assert_eq!(streams.iter_mut().map(number).collect::<Vec<u8>>(), before);
        let mut more: Vec<_> = net.client.enter(|| (0..100).map(open).collect())?;
        let new = shares(&more.iter_mut().map(number).collect::<Vec<u8>>());
        assert!(!new.contains_key(&1) && new[&5] > 4, "{new:?}");
        running.end()
    });
}

#[test]
fn two_workers_share_a_service_and_no_connection_is_harmed_while_members_change() {
    artery_rig::test("balancer-workers", |rig| {
        let net = Plain::new(rig, 5)?;
        let router = net.router(rig, "r")?.host;
        let _servers = net.serve(echo)?;
        let config = graph(&format!("SERVICE {SERVICE}:80 tcp, {MEMBERS}"));
        let running = Running::run(&router, &config, &["-j", "2"])?;
        let mut load = Load::new(&net.client, SERVICE, Arc::new(AtomicU16::new(20_000)));
        load.fill(160)?;
        assert_eq!(load.settle().harmed(|_| true), 0);
        let workers = running.shares()?;
        println!("{workers:?}");
        assert_eq!(workers.values().sum::<usize>(), 160, "each flow is one worker's: {workers:?}");
        running.write("add_member", "web5 10.0.2.15")?;
        running.write("weight", "web1 0")?;
        assert_eq!(load.settle().harmed(|_| true), 0);
        let before = load.shares();
        load.fill(320)?;
        let after = load.shares();
        assert!(after[&1] == before[&1] && after[&5] > 16, "{after:?}");
        running.write("remove_member", "web2")?;
        let fates = load.settle();
        assert_eq!((fates.harmed(|server| server != 2), fates.harmed(|server| server == 2)), (0, after[&2]));
        drop(load);
        running.end()
    });
}
