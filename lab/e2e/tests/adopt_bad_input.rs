//! `artery adopt --established=rules` where connections, their packets or their rules are unusual: what the
//! kernel would do is what happens.

use crate::support::adopting::{Net, by_kernel, on_the_net, prepare};
use crate::support::connections::{Datagrams, flush_connections, until_fast};
use crate::support::{Running, SOON, until, until_seen};
use artery_rig::Result;
use rustix::process::Signal;
use std::io::ErrorKind;
use std::net::{SocketAddr, UdpSocket};
use std::time::Duration;

/// A gateway that masquerades: `a` is inside, `b` is outside.
const GATEWAY: &str = "table inet fw { set closed { type inet_service; }; \
     chain forward { type filter hook forward priority 0; policy drop; udp dport @closed drop; \
     ct state established,related accept; iifname eth0 oifname eth1 accept; }; }; \
     table ip nat { chain out { type nat hook postrouting priority 100; oifname eth1 masquerade; }; }";
/// Changes of rules while there is traffic.
const CHANGES: u32 = 1000;
/// Entries whose ends are more than the socket for them holds.
const ENTRIES: u32 = 50_000;

fn at(port: u16) -> SocketAddr {
    SocketAddr::new([10, 0, 2, 2].into(), port)
}

fn adopt(net: &Net) -> Result<Running> {
    net.r.run(["nft", GATEWAY])?;
    net.r.sysctl("net.netfilter.nf_conntrack_tcp_be_liberal", "1")?;
    prepare(net, "tc")?;
    Running::adopt(net, "tc", &[])
}

fn until_fast_udp(net: &Net, router: &Running, udp: &Datagrams) -> Result<()> {
    until_fast(net, router, &mut |rounds| {
        udp.exchange(rounds);
    })
}

/// Whether a datagram arrives.
fn arrives(udp: &Datagrams, to: SocketAddr) -> bool {
    udp.near.send_to(b"x", to).expect("it is sent");
    udp.far.set_read_timeout(Some(Duration::from_millis(300))).expect("a timeout");
    let is_there = udp.far.recv_from(&mut [0; 2000]).is_ok();
    udp.far.set_read_timeout(Some(SOON)).expect("a timeout");
    is_there
}

#[test]
fn rules_may_change_a_thousand_times_under_traffic() {
    on_the_net("adopt-bad-rules", |net| {
        let router = adopt(net)?;
        let open = Datagrams::open(&net.a, &net.b, at(9000))?;
        let closed = Datagrams::open(&net.a, &net.b, at(9001))?;
        until_fast_udp(net, &router, &open)?;
        until_fast_udp(net, &router, &closed)?;
        for change in 0..CHANGES {
            let word = if change % 2 == 0 { "add" } else { "delete" };
            let text = match change % 50 {
                // All rules are others at once; the kernel never has none.
                48 => format!("flush chain inet fw forward; delete table inet fw; {GATEWAY}"),
                49 => continue,
                _ => format!("{word} element inet fw closed {{ 9001 }}"),
            };
            net.r.run(["nft", &text])?;
            open.exchange(1);
        }
        net.r.run(["nft", "add element inet fw closed { 9001 }"])?;
        until(SOON, || Ok(!arrives(&closed, at(9001))))?;
        for _ in 0..20 {
            assert!(!arrives(&closed, at(9001)), "a datagram passes that a rule drops");
        }
        until_fast_udp(net, &router, &open)?;
        net.r.run(["nft", "delete element inet fw closed { 9001 }"])?;
        until_fast_udp(net, &router, &closed)?;
        router.end()
    });
}

#[test]
fn fragments_and_errors_about_translated_packets_come_as_by_the_kernel() {
    on_the_net("adopt-bad-packets", |net| {
        let router = adopt(net)?;
        let udp = Datagrams::open(&net.a, &net.b, at(9000))?;
        until_fast_udp(net, &router, &udp)?;
        // In three fragments each way, between packets that go past the kernel.
        let long: Vec<u8> = (0..4000_u32).map(|byte| byte as u8).collect();
        let mut buffer = [0; 5000];
        for _ in 0..10 {
            udp.near.send_to(&long, at(9000)).expect("it is sent");
            let (length, from) = udp.far.recv_from(&mut buffer).expect("it arrives");
            assert_eq!(buffer[..length], long);
            assert_eq!(from.ip().to_string(), "10.0.2.1", "it is translated");
            udp.far.send_to(&long, from).expect("it is sent");
            let (length, _) = udp.near.recv_from(&mut buffer).expect("it arrives");
            assert_eq!(buffer[..length], long);
            udp.exchange(1);
        }
        // The port is closed now, as the far kernel tells the translated source.
        let Datagrams { near, far, .. } = udp;
        drop(far);
        near.connect(at(9000)).expect("it gets errors");
        near.set_read_timeout(Some(Duration::from_millis(300))).expect("a timeout");
        // Kernels limit how many such errors they send, for all of a machine's namespaces together.
        until(SOON, || {
            let outcome = near.send(b"x").and_then(|_| near.recv(&mut buffer));
            Ok(outcome.is_err_and(|error| error.kind() == ErrorKind::ConnectionRefused))
        })?;
        router.end()
    });
}

#[test]
fn what_ended_unheard_is_forwarded_no_more() {
    on_the_net("adopt-bad-lost", |net| {
        let mut router = adopt(net)?;
        let udp = Datagrams::open(&net.a, &net.b, at(9000))?;
        until_fast_udp(net, &router, &udp)?;
        router.signal(Signal::STOP);
        net.a.enter(|| {
            let socket = UdpSocket::bind("0.0.0.0:0").expect("a socket");
            for number in 0..ENTRIES {
                let _ = socket.send_to(b"x", at(10_000 + number as u16));
                if number % 64 == 0 {
                    // Queues of virtual links are short.
                    std::thread::sleep(Duration::from_millis(1));
                }
            }
        })?;
        flush_connections(&net.r)?;
        net.r.run(["nft", "insert rule inet fw forward udp dport 9000 ct state new drop"])?;
        // Until then programs have a lease.
        std::thread::sleep(Duration::from_secs(4));
        assert!(!arrives(&udp, at(9000)), "a datagram passes while nothing is heard");
        router.signal(Signal::CONT);
        until_seen(&router, "lost events", || {
            Ok(router.state()?["connections"]["overruns"].as_u64() >= Some(1))
        })?;
        for _ in 0..10 {
            assert!(!arrives(&udp, at(9000)), "a datagram passes whose connection was removed");
        }
        net.r.run(["nft", "flush chain inet fw forward"])?;
        net.r.run(["nft", "add rule inet fw forward accept"])?;
        let before = by_kernel(&net.r)?;
        udp.exchange(10);
        assert!(by_kernel(&net.r)? > before, "the kernel sees a new connection first");
        until_fast_udp(net, &router, &udp)?;
        router.end()
    });
}
