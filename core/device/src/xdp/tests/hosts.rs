//! Two hosts, and two ports of a router between them.
use super::*;
use crate::testing::{MEGABYTES, bridge, serve, tcp, two_hosts};
use std::io::Write;
use std::net::{TcpListener, TcpStream, UdpSocket};
use std::sync::atomic::{AtomicBool, Ordering};

/// Forwards frames between the two ports until `done`; returns the receive queues' counters and how
/// many packets were copied.
fn forward(attach: Attach, done: &AtomicBool) -> ([RxCounters; 2], u64) {
    let pool = pool();
    let ports = ["art0", "art1"].map(|name| open(name, &settings(attach), pool));
    let mut rx = [0, 1].map(|n: usize| ports[n].rx(0, &RxSettings::default()).unwrap());
    let _modes = [0, 1].map(|n: usize| PromiscuousMode::enter(ports[n].interface()).unwrap());
    let mut tx = [0, 1].map(|n: usize| ports[n].tx(0).unwrap());
    let counters = bridge(&mut rx, &mut tx, pool, done);
    (counters, tx.iter().map(XdpTx::copied).sum())
}

#[test]
fn tcp_with_default_offloads_crosses_two_ports() {
    in_namespace(|| {
        let (all, served, (counters, copied)) = tcp(&two_hosts(), |done| forward(Attach::Native, done));
        assert_eq!((all, served), (true, MEGABYTES << 20), "{counters:?}");
        assert!(counters[0].unfinished > 1000, "hosts leave checksums to cards: {counters:?}");
        assert_eq!((counters.map(|c| (c.truncated, c.malformed)), copied), ([(0, 0); 2], 0));
    });
}

/// Has the client upload through two ports with generic programs; returns what was served, and the client's
/// side's counters; nothing where no namespaces may be made.
fn upload_through_generic_ports(uncut: bool) -> Option<(usize, RxCounters)> {
    let (done, result) = (AtomicBool::new(false), std::sync::Mutex::default());
    in_namespace(|| {
        let (client, server) = two_hosts();
        if !uncut {
            client.run("ethtool -K eth0 tso off gso off");
        }
        std::thread::scope(|scope| {
            let router = scope.spawn(|| forward(Attach::Generic, &done));
            let listener = server.call(|| TcpListener::bind("10.1.0.2:5000").unwrap());
            let served = server.start(|| serve(listener));
            let uploading = client.start(move || {
                let server = "10.1.0.2:5000".parse().expect("an address");
                let mut stream = TcpStream::connect_timeout(&server, Duration::from_secs(8)).unwrap();
                stream
                    .set_write_timeout(Some(Duration::from_millis(if uncut { 300 } else { 10_000 })))
                    .unwrap();
                let _ = (0..4).try_for_each(|_| stream.write_all(&[0x5a; 1 << 20]));
                // Keeps the kernel from retrying unsent data for minutes.
                rustix::net::sockopt::set_socket_linger(&stream, uncut.then_some(Duration::ZERO)).unwrap();
            });
            uploading.recv_timeout(Duration::from_secs(30)).unwrap();
            let served = served.recv_timeout(Duration::from_secs(30)).unwrap();
            done.store(true, Ordering::Relaxed);
            *result.lock().unwrap() = Some((served, router.join().unwrap().0[0]));
        });
    });
    result.into_inner().unwrap()
}

#[test]
fn a_generic_program_gets_no_uncut_frames_and_counts_them() {
    let Some((served, counters)) = upload_through_generic_ports(true) else { return };
    assert!(served < 4 << 20 && counters.truncated > 0, "{served} {counters:?}");
}

#[test]
fn tcp_crosses_two_generic_ports_when_senders_cut_their_frames() {
    let Some((served, counters)) = upload_through_generic_ports(false) else { return };
    assert_eq!((served, counters.truncated), (4 << 20, 0), "{counters:?}");
}

#[test]
fn datagrams_of_both_families_are_accepted_by_the_receiving_host() {
    for attach in [Attach::Native, Attach::Generic] {
        let done = AtomicBool::new(false);
        in_namespace(|| {
            let (client, server) = two_hosts();
            client.run("ip address add fd00::1/64 dev eth0 nodad");
            server.run("ip address add fd00::2/64 dev eth0 nodad");
            std::thread::scope(|scope| {
                let router = scope.spawn(|| forward(attach, &done));
                let answers = ["10.1.0.2", "fd00::2"].map(|address| {
                    let socket = server.call(move || UdpSocket::bind((address, 7000)).unwrap());
                    socket.set_read_timeout(Some(Duration::from_secs(10))).unwrap();
                    client.call(move || {
                        let socket =
                            UdpSocket::bind(if address.contains(':') { "[::]:0" } else { "0.0.0.0:0" });
                        socket.unwrap().send_to(b"checked by the kernel", (address, 7000)).unwrap();
                    });
                    let mut bytes = [0; 64];
                    socket.recv(&mut bytes).map(|len| bytes[..len].to_vec()).ok()
                });
                done.store(true, Ordering::Relaxed);
                let (counters, _) = router.join().unwrap();
                assert_eq!(
                    answers,
                    [0; 2].map(|_| Some(b"checked by the kernel".to_vec())),
                    "{attach:?} {counters:?}"
                );
                assert!(counters[0].unfinished >= 2);
            });
        });
    }
}
