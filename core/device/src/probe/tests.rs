//! Probes against listeners of the test's own, on loopback.
use super::*;
use crate::namespace::{Host, in_namespace, run};
use rustix::event::{PollFd, PollFlags};
use std::io::{Read as _, Write as _};
use std::net::{TcpListener, TcpStream};
use std::thread::{JoinHandle, spawn};

const SECOND: Duration = Duration::from_secs(1);
const START: Duration = Duration::from_secs(1000);

type Ended = Vec<(u64, Result<(), ProbeFailure>)>;

fn http() -> ProbeKind {
    ProbeKind::Http { path: "/up".to_owned(), host: None, status: (200, 399) }
}

fn listen(address: &str) -> (TcpListener, SocketAddr) {
    let listener = TcpListener::bind(address).unwrap();
    let address = listener.local_addr().unwrap();
    (listener, address)
}

/// A socket that is bound, and its address: nothing listens there as long as the socket is open.
fn bound(address: &str) -> (OwnedFd, SocketAddr) {
    let address = address.parse().unwrap();
    let socket = tcp::open(address).unwrap();
    rustix::net::bind(&socket, &address).unwrap();
    let address = rustix::net::getsockname(&socket).unwrap().try_into().unwrap();
    (socket, address)
}

/// Takes one request, answers it and closes; returns the request.
fn serve(listener: &TcpListener, answer: &[u8]) -> String {
    let mut stream = listener.accept().unwrap().0;
    let mut request = Vec::new();
    while !request.ends_with(b"\r\n\r\n") {
        let mut byte = [0];
        stream.read_exact(&mut byte).unwrap();
        request.extend(byte);
    }
    stream.write_all(answer).unwrap();
    String::from_utf8(request).unwrap()
}

/// A server that answers one request.
fn answering(answer: &'static [u8]) -> (SocketAddr, JoinHandle<String>) {
    let (listener, address) = listen("127.0.0.1:0");
    (address, spawn(move || serve(&listener, answer)))
}

fn is_readable(prober: &Prober, limit: Duration) -> bool {
    let mut files = [PollFd::new(prober, PollFlags::IN)];
    let limit = Timespec { tv_sec: limit.as_secs() as i64, tv_nsec: 0 };
    rustix::event::poll(&mut files, Some(&limit)).unwrap() > 0
}

fn poll(prober: &mut Prober, now: Duration) -> Ended {
    prober.poll(now).map(|(token, result)| (token, result.map_err(|error| error.why))).collect()
}

/// What has ended when `count` probes have; the time stands still meanwhile.
fn hear(prober: &mut Prober, count: usize) -> Ended {
    let mut ended = Vec::new();
    while ended.len() < count {
        let is_told = prober.due() == Some(Duration::ZERO) || is_readable(prober, 20 * SECOND);
        assert!(is_told, "nothing to hear of {} probes", prober.under_way());
        ended.extend(poll(prober, START));
    }
    ended
}

/// How one probe ends that has all the time it needs.
fn probe(kind: &ProbeKind, to: SocketAddr) -> Result<(), ProbeError> {
    let mut prober = Prober::new().unwrap();
    prober.start(kind, to, 7, START, SECOND).unwrap();
    let (token, result) = hear(&mut prober, 1).remove(0);
    assert_eq!((token, prober.under_way(), prober.due()), (7, 0, None));
    result.map_err(|why| ProbeError { to, why })
}

/// Asks a server that answers so.
fn ask(kind: &ProbeKind, answer: &'static [u8]) -> Result<(), ProbeFailure> {
    let (address, server) = answering(answer);
    let result = probe(kind, address).map_err(|error| error.why);
    server.join().unwrap();
    result
}

#[test]
fn a_listener_passes_and_reads_an_orderly_end() {
    for address in ["127.0.0.1:0", "[::1]:0"] {
        let (listener, address) = listen(address);
        let server = spawn(move || listener.accept().unwrap().0.read(&mut [0]));
        assert_eq!(probe(&ProbeKind::Tcp, address), Ok(()));
        assert_eq!(server.join().unwrap().unwrap(), 0, "{address}");
    }
}

#[test]
fn a_closed_port_has_refused() {
    for address in ["127.0.0.1:0", "[::1]:0"] {
        let (_held, address) = bound(address);
        for kind in [ProbeKind::Tcp, http()] {
            let error = probe(&kind, address).unwrap_err();
            assert_eq!(error.to_string(), format!("{address}: refused"));
        }
    }
}

#[test]
fn an_ipv4_address_in_ipv6_clothes_is_one() {
    let (_held, to) = bound("127.0.0.1:0");
    let mapped = SocketAddr::new("::ffff:127.0.0.1".parse().unwrap(), to.port());
    let mut prober = Prober::new().unwrap();
    prober.start(&ProbeKind::Tcp, mapped, 1, START, SECOND).unwrap();
    assert!(prober.due() == Some(Duration::ZERO) || is_readable(&prober, 20 * SECOND));
    let errors: Vec<String> = prober.poll(START).map(|(_, result)| result.unwrap_err().to_string()).collect();
    assert_eq!(errors, [format!("{to}: refused")]);
}

#[test]
fn a_connection_that_no_one_takes_ends_at_the_deadline_and_not_before() {
    let (listener, address) = bound("127.0.0.1:0");
    // With one connection in the queue the backlog is full: the kernel drops requests for another one.
    rustix::net::listen(&listener, 0).unwrap();
    let _first = TcpStream::connect(address).unwrap();

    let mut prober = Prober::new().unwrap();
    prober.start(&ProbeKind::Tcp, address, 1, START, SECOND / 2).unwrap();
    assert_eq!(prober.due(), Some(START + SECOND / 2));
    assert!(!is_readable(&prober, Duration::ZERO));
    assert_eq!(prober.poll(START + SECOND / 2 - Duration::from_nanos(1)).count(), 0);
    let ended: Vec<_> = prober.poll(START + SECOND / 2).collect();
    let error = ended[0].1.as_ref().unwrap_err();
    assert_eq!((ended.len(), error.to_string()), (1, format!("{address}: no answer within 0.5 s")));
    assert_eq!(prober.poll(START + SECOND).count(), 0, "each is reported once");
}

#[test]
fn a_good_status_passes_and_another_is_told() {
    let only_204 = ProbeKind::Http { path: "/".to_owned(), host: None, status: (204, 204) };
    assert_eq!(ask(&http(), b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok"), Ok(()));
    assert_eq!(ask(&http(), b"HTTP/1.0 302 Found\r\n\r\n"), Ok(()));
    assert_eq!(ask(&only_204, b"HTTP/1.1 204 No Content\r\n\r\n"), Ok(()));
    assert_eq!(ask(&only_204, b"HTTP/1.1 200 OK\r\n\r\n"), Err(ProbeFailure::Status(200)));
    let unavailable = ask(&http(), b"HTTP/1.1 503 Service Unavailable\r\n\r\n").unwrap_err();
    assert_eq!(unavailable.to_string(), "status 503");
}

#[test]
fn a_server_sees_the_request_that_it_was_sent() {
    let (address, server) = answering(b"HTTP/1.1 200 OK\r\n\r\n");
    let host = Some("www.example.org".to_owned());
    let found = probe(&ProbeKind::Http { path: "/up?q".to_owned(), host, status: (200, 200) }, address);
    assert_eq!(found, Ok(()));
    let request = server.join().unwrap();
    assert!(request.starts_with("GET /up?q HTTP/1.1\r\nHost: www.example.org\r\n"), "{request}");
}

#[test]
fn an_answer_that_is_not_http_has_failed() {
    assert_eq!(ask(&http(), b"220 mail.example.org ready\r\n"), Err(ProbeFailure::NotHttp));
    assert_eq!(ask(&http(), &[0x15, 3, 3, 0, 2, 2, 70]), Err(ProbeFailure::NotHttp), "an alert of TLS");
    let endless: &[u8] = Box::leak(b"HTTP/1.1 100 Continue\r\n".repeat(60).into_boxed_slice());
    assert_eq!(ask(&http(), endless), Err(ProbeFailure::NotHttp), "no status in the first 1024 bytes");
}

#[test]
fn a_server_that_closes_before_the_status_has_failed() {
    assert_eq!(ask(&http(), b""), Err(ProbeFailure::Closed));
    assert_eq!(ask(&http(), b"HTTP/1.1 20"), Err(ProbeFailure::Closed));
}

#[test]
fn a_server_that_says_nothing_keeps_nobody_awake_and_ends_at_the_deadline() {
    let (listener, address) = listen("127.0.0.1:0");
    let mut prober = Prober::new().unwrap();
    prober.start(&http(), address, 1, START, SECOND).unwrap();
    let mut server = listener.accept().unwrap().0;
    assert_eq!(poll(&mut prober, START), [], "the request is sent at the latest now");
    assert!(!is_readable(&prober, Duration::ZERO), "room to write is not an event");
    for part in ["H", "TTP/1.1", " 2"] {
        server.write_all(part.as_bytes()).unwrap();
        assert!(is_readable(&prober, 20 * SECOND));
        assert_eq!(poll(&mut prober, START), []);
        assert!(!is_readable(&prober, Duration::ZERO), "all was heard");
    }
    assert_eq!(poll(&mut prober, START + SECOND), [(1, Err(ProbeFailure::NoAnswer { within: SECOND }))]);
}

#[test]
fn an_answer_that_lies_there_counts_though_the_deadline_is_over() {
    let (address, server) = answering(b"HTTP/1.1 200 OK\r\n\r\n");
    let mut prober = Prober::new().unwrap();
    prober.start(&http(), address, 1, START, SECOND).unwrap();
    if !server.is_finished() {
        // Should the connection not have stood at once, the request is still to be sent.
        assert!(is_readable(&prober, 20 * SECOND));
        prober.hear();
    }
    server.join().unwrap();
    if prober.due() != Some(Duration::ZERO) {
        assert!(is_readable(&prober, 20 * SECOND));
    }
    assert_eq!(poll(&mut prober, START + 5 * SECOND), [(1, Ok(()))]);
}

#[test]
fn a_late_answer_is_not_taken_for_that_of_a_later_probe_of_the_same_token() {
    let (first, to_first) = listen("127.0.0.1:0");
    let (second, to_second) = listen("127.0.0.1:0");
    let mut prober = Prober::new().unwrap();
    prober.start(&http(), to_first, 7, START, SECOND).unwrap();
    let mut late = first.accept().unwrap().0;
    assert_eq!(poll(&mut prober, START + SECOND), [(7, Err(ProbeFailure::NoAnswer { within: SECOND }))]);

    prober.start(&http(), to_second, 7, START + SECOND, SECOND).unwrap();
    let server = second.accept().unwrap().0;
    late.write_all(b"HTTP/1.1 200 OK\r\n\r\n").unwrap();
    assert_eq!(poll(&mut prober, START + SECOND), []);
    (&server).write_all(b"HTTP/1.1 500 No\r\n\r\n").unwrap();
    assert_eq!(hear(&mut prober, 1), [(7, Err(ProbeFailure::Status(500)))]);
}

#[test]
fn nothing_is_told_of_a_cancelled_probe() {
    let (listener, address) = listen("127.0.0.1:0");
    let (_held, closed) = bound("127.0.0.1:0");
    let mut prober = Prober::new().unwrap();
    prober.start(&http(), address, 1, START, SECOND).unwrap();
    prober.start(&http(), address, 2, START, 2 * SECOND).unwrap();
    prober.start(&ProbeKind::Tcp, closed, 1, START, SECOND).unwrap();
    prober.cancel(1);
    assert_eq!((prober.under_way(), prober.due()), (1, Some(START + 2 * SECOND)));
    let found = poll(&mut prober, START + 2 * SECOND);
    assert_eq!(found, [(2, Err(ProbeFailure::NoAnswer { within: 2 * SECOND }))]);
    drop(listener);
}

#[test]
fn there_are_as_many_probes_as_may_be_and_a_place_is_free_when_a_result_is_taken() {
    let (_listener, silent) = listen("127.0.0.1:0");
    let (_held, closed) = bound("127.0.0.1:0");
    let mut prober = Prober::with_limit(2).unwrap();
    prober.start(&http(), silent, 1, START, SECOND).unwrap();
    prober.start(&ProbeKind::Tcp, closed, 2, START, SECOND).unwrap();
    let refused = prober.start(&http(), silent, 3, START, SECOND);
    assert_eq!(refused, Err(NoProbe::TooMany { limit: 2 }));
    assert_eq!(hear(&mut prober, 1), [(2, Err(ProbeFailure::Refused))]);
    prober.start(&http(), silent, 4, START, SECOND).unwrap();
    let tokens: Vec<u64> = prober.poll(START + SECOND).map(|(token, _)| token).collect();
    assert_eq!(tokens, [1, 4], "unsent ones are never reported");
}

#[test]
fn results_that_nobody_took_are_told_at_the_next_call() {
    let (_listener, silent) = listen("127.0.0.1:0");
    let mut prober = Prober::new().unwrap();
    for token in 1..=3 {
        prober.start(&http(), silent, token, START, SECOND).unwrap();
    }
    let first = prober.poll(START + SECOND).next().map(|(token, _)| token);
    assert_eq!((first, prober.due()), (Some(1), Some(Duration::ZERO)));
    let rest: Vec<u64> = prober.poll(START + SECOND).map(|(token, _)| token).collect();
    assert_eq!(rest, [2, 3]);
}

#[test]
fn a_clock_that_is_put_back_makes_no_one_wait_longer_than_the_timeout() {
    let (_listener, silent) = listen("127.0.0.1:0");
    let mut prober = Prober::new().unwrap();
    prober.start(&http(), silent, 1, START, SECOND).unwrap();
    assert_eq!(poll(&mut prober, Duration::ZERO), []);
    assert_eq!(prober.due(), Some(SECOND));
    assert_eq!(poll(&mut prober, SECOND), [(1, Err(ProbeFailure::NoAnswer { within: SECOND }))]);
}

#[test]
fn a_hundred_probes_at_once_each_have_their_own_answer() {
    let (listener, address) = listen("127.0.0.1:0");
    let server = spawn(move || {
        for _ in 0..100 {
            serve(&listener, b"HTTP/1.1 200 OK\r\n\r\n");
        }
    });
    let mut prober = Prober::new().unwrap();
    for token in 0..100 {
        prober.start(&http(), address, token, START, SECOND).unwrap();
    }
    let mut ended = hear(&mut prober, 100);
    ended.sort_unstable_by_key(|(token, _)| *token);
    assert!(
        ended.iter().map(|(token, result)| (*token, result.is_ok())).eq((0..100).map(|token| (token, true)))
    );
    server.join().unwrap();
}

#[test]
fn a_request_that_cannot_be_said_is_not_sent() {
    let kind = ProbeKind::Http { path: "/a b".to_owned(), host: None, status: (200, 399) };
    let mut prober = Prober::new().unwrap();
    let error = prober.start(&kind, "127.0.0.1:80".parse().unwrap(), 1, START, SECOND);
    assert_eq!((error, prober.under_way()), (Err(NoProbe::BadRequest), 0));
}

#[test]
fn loopback_answers_a_ping() {
    let mut prober = Prober::new().unwrap();
    for (token, address) in ["127.0.0.1:9", "[::1]:9"].into_iter().enumerate() {
        match prober.start(&ProbeKind::Ping, address.parse().unwrap(), token as u64, START, SECOND) {
            Err(NoProbe::PingNotPermitted) => {
                let _ = std::io::stderr().write_all(b"loopback_answers_a_ping: skipped: may not ping\n");
            }
            started => {
                started.unwrap();
                assert_eq!(hear(&mut prober, 1), [(token as u64, Ok(()))], "{address}");
            }
        }
    }
}

/// The groups that may open sockets for echoes: none, and that of this process.
const RIGHTS: [&str; 2] = ["1 0", "0 0"];

#[test]
fn each_ping_of_many_hears_its_own_answer_on_both_kinds_of_socket() {
    in_namespace(|| {
        for rights in RIGHTS {
            std::fs::write("/proc/sys/net/ipv4/ping_group_range", rights).unwrap();
            let mut prober = Prober::new().unwrap();
            for token in 0..70 {
                let to = if token % 2 == 0 { "127.0.0.1:0" } else { "[::1]:0" };
                prober.start(&ProbeKind::Ping, to.parse().unwrap(), token, START, SECOND).unwrap();
            }
            let ended = hear(&mut prober, 70);
            assert!(ended.iter().all(|(_, result)| result.is_ok()), "{ended:?}");
        }
    });
}

#[test]
fn who_does_not_answer_a_ping_ends_at_the_deadline() {
    in_namespace(|| {
        std::fs::write("/proc/sys/net/ipv4/icmp_echo_ignore_all", "1").unwrap();
        for rights in RIGHTS {
            std::fs::write("/proc/sys/net/ipv4/ping_group_range", rights).unwrap();
            let mut prober = Prober::new().unwrap();
            let to = "127.0.0.1:80".parse().unwrap();
            prober.start(&ProbeKind::Ping, to, 1, START, SECOND).unwrap();
            // A raw socket on loopback hears the request itself.
            assert_eq!(poll(&mut prober, START), []);
            assert!(!is_readable(&prober, Duration::ZERO));
            let errors: Vec<String> =
                prober.poll(START + SECOND).map(|(_, result)| result.unwrap_err().to_string()).collect();
            assert_eq!(errors, ["127.0.0.1: no answer within 1 s"]);
        }
    });
}

#[test]
fn where_no_route_leads_is_unreachable_for_every_kind() {
    in_namespace(|| {
        run("ip route add unreachable 10.1.0.0/16");
        let mut prober = Prober::new().unwrap();
        for to in ["10.1.0.1:80", "10.2.0.1:80", "[2001:db8::1]:80"] {
            for kind in [ProbeKind::Tcp, http(), ProbeKind::Ping] {
                prober.start(&kind, to.parse().unwrap(), 1, START, SECOND).unwrap();
                assert_eq!(hear(&mut prober, 1), [(1, Err(ProbeFailure::Unreachable))], "{to} {kind:?}");
            }
        }
    });
}

#[test]
fn a_neighbor_that_does_not_exist_ends_at_the_deadline() {
    in_namespace(|| {
        run("ip link add quiet type veth peer name end");
        run("ip link set quiet up");
        run("ip link set end up");
        run("ip address add 10.3.0.1/24 dev quiet");
        let mut prober = Prober::new().unwrap();
        for (token, kind) in [(1, ProbeKind::Tcp), (2, http()), (3, ProbeKind::Ping)] {
            prober.start(&kind, "10.3.0.2:80".parse().unwrap(), token, START, SECOND).unwrap();
        }
        let silent = Err(ProbeFailure::NoAnswer { within: SECOND });
        assert_eq!(poll(&mut prober, START), []);
        assert_eq!(poll(&mut prober, START + SECOND), [(1, silent), (2, silent), (3, silent)]);
    });
}

#[test]
fn probes_whose_packets_wait_for_a_neighbor_go_on_when_it_is_found() {
    in_namespace(|| {
        let host = Host::new();
        host.cable("here", "there");
        run("ip link set here address 02:00:00:00:00:01");
        run("ip address add 10.3.0.1/24 dev here");
        host.run("ip link set there address 02:00:00:00:00:02 arp off");
        host.run("ip address add 10.3.0.2/24 dev there");
        host.run("ip neighbor replace 10.3.0.1 lladdr 02:00:00:00:00:01 dev there");
        let (web, _other) = host.call(|| (listen("10.3.0.2:80").0, listen("10.3.0.2:81").0));
        let server = spawn(move || serve(&web, b"HTTP/1.1 200 OK\r\n\r\n"));

        let mut prober = Prober::new().unwrap();
        let probes = [(http(), 80), (ProbeKind::Tcp, 81), (ProbeKind::Tcp, 82), (ProbeKind::Ping, 0)];
        for (token, (kind, port)) in (1..).zip(probes) {
            let to = SocketAddr::from(([10, 3, 0, 2], port));
            prober.start(&kind, to, token, START, SECOND).unwrap();
        }
        assert_eq!(poll(&mut prober, START), []);
        assert!(!is_readable(&prober, Duration::ZERO));
        run("ip neighbor replace 10.3.0.2 lladdr 02:00:00:00:00:02 dev here");
        let mut ended = hear(&mut prober, 4);
        ended.sort_unstable_by_key(|(token, _)| *token);
        assert_eq!(ended, [(1, Ok(())), (2, Ok(())), (3, Err(ProbeFailure::Refused)), (4, Ok(()))]);
        server.join().unwrap();
    });
}
