//! Services: connections that servers share, health checks, and packets that belong to
//! no connection of theirs.

use super::net::{FAR, Net, PORTS, Running, on_the_net};
use crate::support::{SOON, end, until};
use artery_rig::program::artery;
use artery_rig::{Host, Result, Signal};
use rustix::net::sockopt::{Timeout, set_socket_reuseaddr, set_socket_timeout};
use rustix::net::{AddressFamily, SocketType};
use serde_json::Value;
use std::io::{self, ErrorKind, Read as _};
use std::net::{IpAddr, SocketAddr, TcpListener, TcpStream, UdpSocket};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU16, Ordering::Relaxed};
use std::thread::{self, JoinHandle};
use std::time::Duration;

#[test]
fn connections_to_a_service_reach_its_server_translated_or_as_they_are() {
    const SERVICE: &str = "192.0.2.1";
    on_the_net("command-service", |net| {
        let service = |member: &str| format!("{SERVICE}:5201/tcp={member}");
        for (options, member) in
            [(&["--nat"][..], "web=10.0.2.2:5201"), (&["--workers", "2"], "web=10.0.2.2")]
        {
            let router = Running::start(net, &[&["--service", &service(member)], options].concat())?;
            let tcp = net.a.iperf3(&net.b, SERVICE, &["-t", "1"])?;
            assert!(tcp.bits_per_second > 1e6, "{options:?}: {tcp:?}");
            let flows = router.say(&["flow", "show"])?;
            assert!(flows.contains(SERVICE) && flows.contains("web"), "{flows}");
            is_explained(&router, options == ["--nat"])?;
            // Hosts behind the router are reached as ever.
            assert_eq!(net.a.ping("10.0.2.2", 3)?.received, 3);
            end(router.process)?;
            // Without translation the server has the address itself.
            if options == ["--nat"] {
                net.b.address("lo", "192.0.2.1/32")?;
            }
        }
        Ok(())
    });
}

/// Whether `explain` names the member of a new flow, and of a known one, and the packet's next step then.
fn is_explained(router: &Running, is_nat: bool) -> Result<()> {
    let explain =
        |packet: &str, more: &[&str]| router.say(&[&["explain", packet, "--in", "eth0"], more].concat());
    let new = explain("10.0.1.2:7 > 192.0.2.1:5201 tcp", &[])?;
    let step =
        new.lines().find(|line| line.starts_with("  service")).unwrap_or_else(|| panic!("no step: {new}"));
    let member =
        if is_nat { "to web at 10.0.2.2 port 5201, as its destination, " } else { "to web at 10.0.2.2, " };
    let expected = format!("192.0.2.1:5201 tcp, of service1: {member}which a new flow gets by ");
    assert!(step.contains(&expected), "{new}");
    assert!(new.contains("leaves by eth1"), "{new}");
    let flows = router.say(&["flow", "show", "--json"])?;
    let flow =
        flows.lines().find(|line| line.contains("\"src\":\"10.0.1.2\"")).unwrap_or_else(|| panic!("{flows}"));
    let flow: Value = serde_json::from_str(flow).expect("JSON");
    let packet = format!(
        "10.0.1.2:{} > 192.0.2.1:5201 tcp",
        flow["sport"].as_u64().unwrap_or_else(|| panic!("{flow}"))
    );
    let known: Value = serde_json::from_str(&explain(&packet, &["--json"])?).expect("JSON");
    assert_eq!(known["stages"][1]["member"], "web", "{known}");
    assert_eq!(known["stages"][1]["is_known"], true, "{known}");
    // What is for another port is none of the service's.
    assert!(!explain("10.0.1.2:7 > 10.0.2.2:5202 tcp", &[])?.contains("service"));
    Ok(())
}

/// A TCP server at a port, which replies with the address that it was reached by. It ends when it is dropped.
struct Server(Arc<TcpListener>);

impl Server {
    fn start(host: &Host, port: u16) -> Result<Server> {
        let listener = Arc::new(host.enter(|| TcpListener::bind(("::", port)).unwrap())?);
        let server = Server(listener.clone());
        thread::spawn(move || {
            while let Ok((stream, _)) = listener.accept() {
                // A health check is gone already.
                let own = stream.local_addr().map(|own| own.ip().to_canonical().to_string());
                let _ = own.and_then(|own| io::Write::write_all(&mut &stream, own.as_bytes()));
            }
        });
        Ok(server)
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        // This wakes who waits for clients.
        let _ = rustix::net::shutdown(&self.0, rustix::net::Shutdown::Both);
    }
}

/// The address by which a client of this one reaches a server. Each time from another port: a member can't
/// distinguish connections to two services from one port.
fn reached(client: &Host, to: &str) -> Result<io::Result<IpAddr>> {
    static NEXT: AtomicU16 = AtomicU16::new(20_000);
    reached_from(client, NEXT.fetch_add(1, Relaxed), to)
}

/// The same from this port.
fn reached_from(client: &Host, port: u16, to: &str) -> Result<io::Result<IpAddr>> {
    let to: SocketAddr = to.parse().unwrap();
    client.enter(|| {
        let mut stream = connect_from(port, to)?;
        let mut said = String::new();
        stream.read_to_string(&mut said)?;
        said.parse().map_err(io::Error::other)
    })
}

/// Connects within five seconds: what was sent for a connection of the same ports before is repeated once.
fn connect_from(port: u16, to: SocketAddr) -> io::Result<TcpStream> {
    let (family, any) = match to {
        SocketAddr::V4(_) => (AddressFamily::INET, IpAddr::from([0; 4])),
        SocketAddr::V6(_) => (AddressFamily::INET6, IpAddr::from([0; 16])),
    };
    let socket = rustix::net::socket(family, SocketType::STREAM, None)?;
    for direction in [Timeout::Send, Timeout::Recv] {
        set_socket_timeout(&socket, direction, Some(Duration::from_secs(5)))?;
    }
    // The connection before may wait for its last acknowledgement.
    set_socket_reuseaddr(&socket, true)?;
    rustix::net::bind(&socket, &SocketAddr::new(any, port))?;
    rustix::net::connect(&socket, &to)?;
    Ok(socket.into())
}

/// Whether a host has a connection from this port, in any state (proc_pid_net(5)).
fn has_connection(host: &Host, port: u16) -> Result<bool> {
    let of_port = format!(":{port:04X}");
    host.enter(|| {
        ["tcp", "tcp6"].iter().any(|table| {
            let table = std::fs::read_to_string(format!("/proc/thread-self/net/{table}")).unwrap();
            table
                .lines()
                .any(|line| line.split_whitespace().nth(1).is_some_and(|own| own.ends_with(&of_port)))
        })
    })
}

#[test]
fn a_direct_connection_from_the_port_of_one_to_the_service_reaches_the_member() {
    on_the_net("command-nat-same-port", |net| {
        let _server = Server::start(&net.b, 80)?;
        let services =
            ["--service", "192.0.2.1:80=web=10.0.2.2", "--service", "[2001:db8::1]:80/tcp=web=fd00:2::2"];
        let router = Running::start(net, &[&["--nat", "--workers", "2"], &services[..]].concat())?;
        for (port, service, member) in
            [(19_000, "192.0.2.1:80", "10.0.2.2"), (19_001, "[2001:db8::1]:80", "fd00:2::2")]
        {
            let direct = if member.contains(':') { format!("[{member}]:80") } else { format!("{member}:80") };
            for to in [service, &direct, service] {
                let by = reached_from(&net.a, port, to)?.unwrap_or_else(|error| panic!("{to}: {error}"));
                assert_eq!(by.to_string(), member, "{to}");
                // The server has closed it first, so that nothing is left of it at the client in the end.
                until(SOON, || Ok(!has_connection(&net.a, port)?))?;
            }
        }
        end(router.process).map(drop)
    });
}

/// The result of a datagram to an address: an echo, or the error that an ICMP message reports. It is sent up
/// to three times, since kernels limit how many ICMP errors they send, for all namespaces together.
fn echoed(client: &Host, to: &str) -> Result<io::Result<()>> {
    let to: SocketAddr = to.parse().unwrap();
    client.enter(|| {
        let any = if to.is_ipv4() { "0.0.0.0:0" } else { "[::]:0" };
        let socket = UdpSocket::bind(any)?;
        socket.connect(to)?;
        socket.set_read_timeout(Some(Duration::from_secs(2)))?;
        let mut answer = send_and_receive(&socket);
        for _ in 0..2 {
            if !answer.as_ref().is_err_and(|error| error.kind() == ErrorKind::WouldBlock) {
                break;
            }
            answer = send_and_receive(&socket);
        }
        answer
    })
}

fn send_and_receive(socket: &UdpSocket) -> io::Result<()> {
    socket.send(b"hello")?;
    socket.recv(&mut [0; 16]).map(drop)
}

/// Echoes datagrams to an address of a host until the result is dropped.
struct Echo {
    is_over: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl Echo {
    fn start(host: &Host, at: &str) -> Result<Echo> {
        let at: SocketAddr = at.parse().unwrap();
        let socket = host.enter(|| UdpSocket::bind(at).unwrap())?;
        socket.set_read_timeout(Some(Duration::from_millis(20))).unwrap();
        let is_over = Arc::new(AtomicBool::new(false));
        let over = is_over.clone();
        let thread = thread::spawn(move || {
            let mut buffer = [0; 2048];
            while !over.load(Relaxed) {
                if let Ok((length, from)) = socket.recv_from(&mut buffer) {
                    let _ = socket.send_to(&buffer[..length], from);
                }
            }
        });
        Ok(Echo { is_over, thread: Some(thread) })
    }
}

impl Drop for Echo {
    fn drop(&mut self) {
        self.is_over.store(true, Relaxed);
        let _ = self.thread.take().map(JoinHandle::join);
    }
}

/// Waits until the members of the first services are known to be so, each by a health check.
fn until_members_are(router: &Running, services: usize, state: &str) -> Result<()> {
    until(SOON, || {
        let mut are_so = true;
        for service in 1..=services {
            let members = router.say(&["handler", &format!("service{service}.members")])?;
            are_so &= members.lines().all(|line| line.contains(&format!(" {state}, ")));
        }
        Ok(are_so)
    })
}

#[test]
fn with_nat_checks_pass_and_the_servers_own_addresses_stay_reachable() {
    on_the_net("command-nat-checks", |net| {
        net.b.address("eth0", "10.0.2.3/24")?;
        for workers in ["1", "2"] {
            let server = Server::start(&net.b, 80)?;
            let options = ["--nat", "--check", "tcp every 100ms timeout 500ms", "--workers", workers];
            let services = [
                "--service",
                "192.0.2.1:80=web1=10.0.2.2,web2=10.0.2.3",
                "--service",
                "192.0.2.2:8080/tcp=web1=10.0.2.2:80",
                "--service",
                "[2001:db8::1]:80/tcp=web1=fd00:2::2",
            ];
            let router = Running::start(net, &[options.as_slice(), &services].concat())?;
            until_members_are(&router, 3, "up")?;
            serves_and_is_reached_directly(net)?;
            // It is the checks that say so.
            drop(server);
            until_members_are(&router, 3, "down")?;
            let _server = Server::start(&net.b, 80)?;
            until_members_are(&router, 3, "up")?;
            serves_and_is_reached_directly(net)?;
            end(router.process)?;
        }
        Ok(())
    });
}

#[test]
fn another_configuration_knows_which_servers_are_dead_and_which_are_drained() {
    on_the_net("command-apply-members", |net| {
        let _server = Server::start(&net.b, 80)?;
        let options = ["--nat", "--check", "tcp every 100ms timeout 500ms", "--service"];
        let service = "192.0.2.1:80=web1=10.0.2.2,web2=10.0.2.2:81,web3=10.0.2.2:80";
        let router = Running::start(net, &[options.as_slice(), &[service]].concat())?;
        let members = || router.say(&["handler", "service1.members"]);
        until(SOON, || {
            Ok(members()?.lines().zip(["up", "down", "up"]).all(|(line, state)| line.contains(state)))
        })?;
        router.say(&["handler", "service1.weight", "web3 0"])?;
        router.say(&["handler", "service1.add_member", "web4 10.0.2.9:80"])?;
        until(SOON, || Ok(members()?.matches(" down, ").count() == 2))?;
        let (before, file) = (members()?, router.folder.path().join("r.toml"));
        let config = router.say(&["show", "config"])? + "route = [\"10.9.0.0/16=10.0.2.2\"]\n";
        std::fs::write(&file, config).unwrap();
        router.apply(&[&file.display().to_string()])?;
        assert_eq!(members()?, before);
        assert!(router.say(&["show", "routes"])?.contains("10.9.0.0/16"));
        end(router.process).map(drop)
    });
}

/// Connections reach members by the services, and by the members' own addresses; so do datagrams, pings and
/// the errors of ICMP.
fn serves_and_is_reached_directly(net: &Net) -> Result<()> {
    for _ in 0..40 {
        let web = reached(&net.a, "192.0.2.1:80")?.unwrap().to_string();
        assert!(["10.0.2.2", "10.0.2.3"].contains(&web.as_str()), "{web}");
        for (to, address) in [
            ("192.0.2.2:8080", "10.0.2.2"),
            ("[2001:db8::1]:80", "fd00:2::2"),
            ("10.0.2.2:80", "10.0.2.2"),
            ("10.0.2.3:80", "10.0.2.3"),
            ("[fd00:2::2]:80", "fd00:2::2"),
        ] {
            assert_eq!(reached(&net.a, to)?.unwrap().to_string(), address, "{to}");
        }
    }
    // The host of the router is a client of the members, too.
    assert_eq!(reached(&net.r, "10.0.2.3:80")?.unwrap().to_string(), "10.0.2.3");
    for address in FAR.into_iter().chain(["10.0.2.3"]) {
        assert_eq!(net.a.ping(address, 2)?.received, 2, "{address}");
    }
    for to in ["192.0.2.1:80", "10.0.2.2:80", "[fd00:2::2]:80"] {
        let refusal = echoed(&net.a, to)?.unwrap_err();
        assert_eq!(refusal.kind(), ErrorKind::ConnectionRefused, "{to}: {refusal}");
    }
    let servers = ["10.0.2.2:80", "10.0.2.3:80", "[fd00:2::2]:80"];
    let _echoes = servers.into_iter().map(|at| Echo::start(&net.b, at)).collect::<Result<Vec<_>>>()?;
    for to in ["192.0.2.1:80", "10.0.2.2:80", "10.0.2.3:80", "[fd00:2::2]:80"] {
        echoed(&net.a, to)?.unwrap_or_else(|error| panic!("{to}: {error}"));
    }
    Ok(())
}

#[test]
fn checks_without_the_hosts_interface_are_refused_with_the_remedy() {
    on_the_net("command-check-no-host", |net| {
        let options = ["--no-host", "--check", "tcp", "--service", "192.0.2.1:80/tcp=web1=10.0.2.2"];
        let refused = net.r.command([artery()?]).arg("router").args(PORTS).args(options).output()?;
        assert_eq!(refused.code(), Some(2), "{}", refused.stderr);
        let expected = "--check 'tcp': health checks are sent by the host, and --no-host gives it no path to \
            the servers; leave out --no-host or --check";
        assert!(refused.stderr.contains(expected), "{}", refused.stderr);
        Ok(())
    });
}

#[test]
fn services_and_servers_that_would_get_no_connection_are_refused() {
    on_the_net("command-service-never", |net| {
        let file = tempfile::NamedTempFile::new().unwrap();
        let file_name = file.path().display().to_string();
        for (services, expected) in [
            (&["192.0.2.1:80/tcp=a=10.0.2.2", "192.0.2.1:80/tcp=b=10.0.2.3"][..], "takes all of its packets"),
            (&["192.0.2.1=a=10.0.2.2", "192.0.2.1:80/tcp=b=10.0.2.3"], "takes all of its packets"),
            (&["192.0.2.1:80=a=10.0.2.2", "192.0.2.1:80/udp=b=10.0.2.3"], "takes all of its packets"),
            (&["192.0.2.1:80/tcp=a=10.0.2.1"], "the server 10.0.2.1 is an address of this router"),
            (&["192.0.2.1:80/tcp=a=10.0.2.2,b=192.0.2.1"], "the server 192.0.2.1 is the service itself"),
        ] {
            let options = services.iter().flat_map(|service| ["--service", service]);
            let refused = net.r.command([artery()?]).arg("router").args(PORTS).args(options).output()?;
            let last = services.last().unwrap();
            assert_eq!(refused.code(), Some(2), "{}", refused.stderr);
            let line = format!("--service {last}: ");
            let stderr = &refused.stderr;
            assert!(stderr.contains(&line) && stderr.contains(expected), "{stderr}");
            let lines: String = services.iter().map(|service| format!("  \"{service}\",\n")).collect();
            let text =
                format!("port = [\"eth0=10.0.1.1/24\", \"eth1=10.0.2.1/24\"]\nservice = [\n{lines}]\n");
            std::fs::write(file.path(), text).unwrap();
            let refused = net.r.command([artery()?]).arg("router").arg(&file_name).output()?;
            let line = format!("{file_name}:{}: service {last}: ", 2 + services.len());
            assert!(
                refused.stderr.contains(&line) && refused.stderr.contains(expected),
                "{}",
                refused.stderr
            );
        }
        // The smaller one first is what people want.
        let options = ["--service", "192.0.2.1:80/tcp=a=10.0.2.2", "--service", "192.0.2.1=b=10.0.2.2"];
        end(Running::start(net, &options)?.process).map(drop)
    });
}

/// The link address that a host has for a neighbor.
fn station_of(host: &Host, address: &str) -> Result<Option<String>> {
    let neighbors = host.neighbors()?;
    Ok(neighbors.into_iter().find(|neighbor| neighbor.address.to_string() == address).and_then(|n| n.mac))
}

#[test]
fn a_service_in_the_prefix_of_a_port_is_answered_for_on_its_link() {
    const SERVICES: [&str; 2] = ["10.0.1.100", "fd00:1::100"];
    on_the_net("command-service-on-link", |net| {
        for is_nat in [true, false] {
            let _server = Server::start(&net.b, 80)?;
            if !is_nat {
                net.b.sysctl("net.ipv4.conf.all.arp_ignore", "1")?;
                net.b.address("lo", "10.0.1.100/32")?.address("lo", "fd00:1::100/128")?;
            }
            let mut options = vec!["--service", "10.0.1.100:80/tcp=web=10.0.2.2"];
            options.extend(["--service", "[fd00:1::100]:80/tcp=web=fd00:2::2", "--workers", "2"]);
            options.extend(is_nat.then_some("--nat"));
            let router = Running::start(net, &options)?;
            net.a.run(["ip", "neigh", "flush", "all"])?;
            for (service, member) in SERVICES.into_iter().zip(FAR) {
                let to = SocketAddr::new(service.parse().unwrap(), 80).to_string();
                // The address is claimed first, as the router's own are.
                until(SOON, || Ok(reached(&net.a, &to)?.is_ok()))?;
                let expected = if is_nat { member } else { service };
                assert_eq!(reached(&net.a, &to)?.unwrap().to_string(), expected);
                assert_eq!(station_of(&net.a, service)?, Some(net.r.mac("eth0")?), "{service}");
                // What is not the service's is answered by the router.
                assert_eq!(net.a.ping(service, 2)?.received, 2, "{service}");
                let closed = SocketAddr::new(service.parse().unwrap(), 81).to_string();
                assert_eq!(echoed(&net.a, &closed)?.unwrap_err().kind(), ErrorKind::ConnectionRefused);
                // A client that knows the address asks for it again under the link address that it has.
                net.a.run(["ip", "neigh", "change", service, "dev", "eth0", "nud", "probe"])?;
                until(SOON, || {
                    let all = net.a.neighbors()?;
                    let known = all.iter().find(|neighbor| neighbor.address.to_string() == service);
                    Ok(known.is_some_and(|neighbor| neighbor.state == ["REACHABLE"]))
                })?;
            }
            // On the other link no host answers for them, and none for other addresses of the prefix.
            for (host, address) in [(&net.b, "10.0.1.100"), (&net.a, "10.0.1.101")] {
                let asked =
                    host.command(["arping", "-c", "1", "-W", "0.2", "-I", "eth0", address]).output()?;
                assert!(asked.stdout.contains(" 0 packets received"), "{address}: {}", asked.stdout);
            }
            let ports = router.json(&["show", "ports"])?;
            assert_eq!(ports["ports"][0]["virtual_addresses"], serde_json::json!(SERVICES), "{ports:#}");
            end(router.process)?;
        }
        Ok(())
    });
}

#[test]
fn what_a_server_sends_by_itself_is_translated_across_a_reload() {
    /// Single bytes, this far apart.
    const BYTES: usize = 150;
    const PAUSE: Duration = Duration::from_millis(20);
    on_the_net("command-nat-reload", |net| {
        let listener = net.b.enter(|| TcpListener::bind("0.0.0.0:80").unwrap())?;
        let service = ["--nat", "--service", "192.0.2.1:80/tcp=web=10.0.2.2"];
        let mut router = Running::start(net, &service)?;
        let server = thread::spawn(move || {
            let (mut stream, _) = listener.accept()?;
            stream.set_nodelay(true)?;
            (0..BYTES).try_for_each(|_| {
                thread::sleep(PAUSE);
                io::Write::write_all(&mut stream, b".")
            })
        });
        let mut client =
            net.a.enter(|| TcpStream::connect_timeout(&"192.0.2.1:80".parse().unwrap(), SOON).unwrap())?;
        let mut one = [0];
        client.read_exact(&mut one).unwrap();
        router.process.signal(Signal::HUP);
        let mut rest = Vec::new();
        client.read_to_end(&mut rest).unwrap();
        assert_eq!(rest.len(), BYTES - 1);
        server.join().unwrap().unwrap();
        let said = router.process.stderr_so_far();
        assert!(!said.contains("error"), "{said}");
        end(router.process).map(drop)
    });
}
