//! `artery adopt` on gateways with the rules that ufw, firewalld, Shorewall and Docker write, and with those
//! of the manuals of OpenWrt and nftables: what connections send goes past the kernel, and what the kernel
//! alone would stop is stopped.
//!
//! `a` is inside, at eth0 (or at the bridge docker0), `b` is outside, at eth1.

use crate::support::adopting::{Net, by_kernel, by_kernel6, on_the_net, send_whole_frames};
use crate::support::connections::{Connection, Datagrams, until_fast};
use crate::support::{Running, SOON, artery_on, until_seen};
use artery_rig::{Process, Result, Skip};
use artery_wire::TcpFlags;
use artery_wire::build::{ether, ip4};
use std::net::{SocketAddr, TcpStream, UdpSocket};
use std::path::Path;
use std::time::Duration;

const LIBERAL: &str = "net.netfilter.nf_conntrack_tcp_be_liberal";
const OUT_OF_WINDOW: &str = "connections of TCP over IPv4 stay with the kernel";
const REMEDY: &str = "taken with: sysctl net.netfilter.nf_conntrack_tcp_be_liberal=1";
/// Messages there and back again.
const ROUNDS: usize = 200;
/// How long it is waited for what must not arrive.
const SHORTLY: Duration = Duration::from_millis(200);

/// A gateway's rules.
struct RuleSet {
    name: &'static str,
    /// Commands that load them, in their folder.
    load: &'static str,
    /// Whether a connection to port 8080 of the gateway is one to port 8000 of `a`.
    publishes: bool,
    /// Whether IPv6 is forwarded from inside.
    has_ipv6: bool,
    /// The interface inside.
    inside: &'static str,
}

const UFW: RuleSet = RuleSet {
    name: "ufw",
    load: "iptables-nft-restore < ufw.v4; ip6tables-nft-restore < ufw.v6",
    publishes: false,
    has_ipv6: true,
    inside: "eth0",
};
const SHOREWALL: RuleSet =
    RuleSet { name: "shorewall", load: "iptables-nft-restore < shorewall.v4", has_ipv6: false, ..UFW };
const DOCKER: RuleSet = RuleSet {
    name: "docker",
    load: "iptables-nft-restore < docker.v4",
    publishes: true,
    has_ipv6: false,
    inside: "docker0",
};
const FIREWALLD: RuleSet =
    RuleSet { name: "firewalld", load: "nft -f firewalld.nft", publishes: true, ..UFW };
const FW4: RuleSet = RuleSet { name: "fw4", load: "nft -f fw4.nft", publishes: true, ..UFW };
const ROUTER: RuleSet = RuleSet { name: "router", load: "nft -f router.nft", ..UFW };

impl RuleSet {
    fn load(&self, net: &Net) -> Result<()> {
        if self.inside != "eth0" {
            net.r.run(["sh", "-e", "-c", DOCKER_BRIDGE])?;
        }
        let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/adopt_rule_sets");
        net.r.run(["sh", "-e", "-c", &format!("cd '{}'; {}", folder.display(), self.load)])?;
        Ok(())
    }

    /// With rules evaluated for each connection.
    fn adopt(&self, net: &Net, path: &str) -> Result<Running> {
        send_whole_frames(net, path)?;
        Running::adopt_ports(&net.r, &["--path", path, self.inside, "eth1"])
    }

    fn dry_run(&self, net: &Net) -> Result<String> {
        let words = ["adopt", "--dry-run", "--for", "0", self.inside, "eth1"];
        Ok(artery_on(&net.r, words)?.run()?.stdout)
    }
}

/// The bridge that Docker makes, in place of eth0, with a container behind it.
const DOCKER_BRIDGE: &str = "ip link add docker0 type bridge stp_state 0 forward_delay 0
    ip address flush dev eth0
    ip link set eth0 master docker0
    ip link set docker0 up
    ip address add 10.0.1.1/24 dev docker0";

fn at(port: u16) -> SocketAddr {
    SocketAddr::new([10, 0, 2, 2].into(), port)
}

/// What comes through that was not asked for, or that belongs to no connection.
fn strays(net: &Net, round: u16) -> Result<[bool; 4]> {
    let datagram = |address: &str| -> Result<bool> {
        let to: SocketAddr = address.parse().expect("an address");
        let any = if to.is_ipv4() { "0.0.0.0" } else { "[::]" };
        let near = net.a.enter(|| UdpSocket::bind(format!("{any}:{}", to.port())))?.expect("a socket");
        near.set_read_timeout(Some(SHORTLY)).expect("a timeout");
        let far = net.b.enter(|| UdpSocket::bind(format!("{any}:0")))?.expect("a socket");
        far.send_to(b"x", to).expect("it is sent");
        Ok(near.recv_from(&mut [0; 9]).is_ok())
    };
    let connects = net.b.enter(|| TcpStream::connect_timeout(&"10.0.1.2:8000".parse().unwrap(), SHORTLY))?;
    // A segment in the middle of a connection that there is not.
    let resets = || net.a.kernel_counter("TcpOutRsts");
    let before = resets()?;
    let (gateway, own) = (net.r.mac("eth1")?, net.b.mac("eth0")?);
    let ports = (20_000 + round, 8000);
    let segment =
        ip4().src("10.0.2.2").dst("10.0.1.2").tcp(ports.0, ports.1).flags(TcpFlags::ACK).payload(b"x");
    net.b.transmit("eth0", &[ether(gateway.as_str(), own.as_str()).ip4(segment).bytes()])?;
    std::thread::sleep(SHORTLY);
    let is_answered = resets()? > before;
    // Not the same port: a process that another test starts may hold the first socket for a moment.
    Ok([datagram("10.0.1.2:9100")?, datagram("[2001:db8:1::2]:9101")?, connects.is_ok(), is_answered])
}

fn packets_go_past(rules: &RuleSet, path: &str, load: impl FnOnce(&Net) -> Result<()>) {
    on_the_net(&format!("adopt-set-{}-{path}", rules.name), |net| {
        load(net)?;
        for far in ["10.0.1.2", "10.0.2.2", "2001:db8:2::2"] {
            net.r.ping(far, 1)?;
        }
        // Docker's bridge has no address of IPv6 here.
        if rules.has_ipv6 {
            net.r.ping("2001:db8:1::2", 1)?;
        }
        net.r.sysctl(LIBERAL, "0")?;
        let said = rules.dry_run(net)?;
        assert!(said.contains(OUT_OF_WINDOW) && said.contains(REMEDY), "{said}");
        net.r.sysctl(LIBERAL, "1")?;
        let said = rules.dry_run(net)?;
        assert!(said.contains("except established connections") && !said.contains(OUT_OF_WINDOW), "{said}");
        assert!(!said.contains("all connections of IPv4 stay"), "{said}");
        let by_kernel_alone = strays(net, 1)?;
        assert!(!by_kernel_alone[0] && !by_kernel_alone[2] && !by_kernel_alone[3], "{by_kernel_alone:?}");

        let router = rules.adopt(net, path)?;
        let tcp = Connection::open(&net.a, &net.b, at(8000), at(8000))?;
        let gateway: SocketAddr = "10.0.2.1:0".parse().unwrap();
        assert_eq!(tcp.far.peer_addr().expect("an address").ip(), gateway.ip(), "it is masqueraded");
        let udp = Datagrams::open(&net.a, &net.b, at(9000))?;
        let published = rules.publishes.then(|| {
            let listen = "10.0.1.2:8000".parse().unwrap();
            Connection::open(&net.b, &net.a, listen, "10.0.2.1:8080".parse().unwrap())
        });
        let published = published.transpose()?;
        let exchange = |rounds: usize| {
            tcp.exchange(rounds);
            udp.exchange(rounds);
            published.iter().for_each(|tcp| tcp.exchange(rounds));
        };
        until_fast(net, &router, &mut |rounds| exchange(rounds))?;
        let before = by_kernel(&net.r)?;
        exchange(ROUNDS);
        let (passed, all) =
            (by_kernel(&net.r)? - before, 2 * ROUNDS as u64 * if rules.publishes { 3 } else { 2 });
        let said = router.stderr_so_far();
        assert!(passed * 20 <= all, "{passed} of more than {all} packets went by the kernel: {said}");
        if rules.has_ipv6 {
            ipv6_goes_past(net, &router)?;
        }
        assert_eq!(strays(net, 2)?, by_kernel_alone, "what passes: {}", router.stderr_so_far());
        // Without liberal windows TCP stays with the kernel.
        net.r.sysctl(LIBERAL, "0")?;
        router.wait_for(OUT_OF_WINDOW, 2 * SOON)?;
        until_seen(&router, "segments that stay with the kernel", || {
            let before = by_kernel(&net.r)?;
            tcp.exchange(10);
            Ok(by_kernel(&net.r)? >= before + 20)
        })?;
        router.end()
    });
}

fn ipv6_goes_past(net: &Net, router: &Process) -> Result<()> {
    let udp = Datagrams::open(&net.a, &net.b, "[2001:db8:2::2]:9001".parse().unwrap())?;
    until_fast(net, router, &mut |rounds| {
        udp.exchange(rounds);
    })?;
    let before = by_kernel6(&net.r)?;
    udp.exchange(ROUNDS);
    let passed = by_kernel6(&net.r)? - before;
    assert!(passed * 20 <= 2 * ROUNDS as u64, "{passed} packets of IPv6 went by the kernel");
    Ok(())
}

fn packets_go_past_rules(rules: &RuleSet, path: &str) {
    packets_go_past(rules, path, |net| rules.load(net));
}

#[test]
fn packets_go_past_rules_of_ufw() {
    packets_go_past_rules(&UFW, "tc");
}

#[test]
fn packets_go_past_rules_of_ufw_by_iptables_legacy() {
    let load = "iptables-legacy-restore < ufw.v4; ip6tables-legacy-restore < ufw.v6";
    packets_go_past_rules(&RuleSet { name: "ufw-legacy", load, ..UFW }, "tc");
}

#[test]
fn packets_go_past_rules_of_shorewall() {
    packets_go_past_rules(&SHOREWALL, "tc");
}

#[test]
fn packets_go_past_rules_of_shorewall_by_iptables_legacy() {
    let load = "iptables-legacy-restore < shorewall.v4";
    packets_go_past_rules(&RuleSet { name: "shorewall-legacy", load, ..SHOREWALL }, "tc");
}

#[test]
fn packets_go_past_rules_of_docker() {
    packets_go_past_rules(&DOCKER, "tc");
}

#[test]
fn packets_go_past_rules_of_firewalld() {
    packets_go_past_rules(&FIREWALLD, "tc");
}

#[test]
fn packets_go_past_rules_of_openwrt() {
    packets_go_past_rules(&FW4, "tc");
}

#[test]
fn packets_go_past_rules_of_openwrt_by_xdp() {
    packets_go_past_rules(&FW4, "xdp");
}

#[test]
fn packets_go_past_rules_of_a_router_by_nftables() {
    packets_go_past_rules(&ROUTER, "tc");
}

/// With `ARTERY_LONG=1`: what the program itself writes, if it is installed.
fn packets_go_past_what_is_written(rules: &RuleSet, program: &str, script: &str) {
    if std::env::var_os("ARTERY_LONG").is_none() {
        return;
    }
    packets_go_past(rules, "tc", |net| {
        if net.r.run(["sh", "-c", &format!("command -v {program}")]).is_err() {
            return Err(Skip::MissingTool(program.into()).into());
        }
        net.r.command(["unshare", "-m", "sh", "-c", script]).limit(12 * SOON).run()?;
        Ok(())
    });
}

#[test]
fn packets_go_past_what_ufw_writes() {
    let rules = RuleSet { name: "ufw-real", ..UFW };
    packets_go_past_what_is_written(&rules, "ufw", include_str!("adopt_rule_sets/ufw.sh"));
}

#[test]
fn packets_go_past_what_shorewall_writes() {
    let rules = RuleSet { name: "shorewall-real", ..SHOREWALL };
    packets_go_past_what_is_written(&rules, "shorewall", include_str!("adopt_rule_sets/shorewall.sh"));
}

#[test]
fn packets_go_past_what_firewalld_writes() {
    let rules = RuleSet { name: "firewalld-real", ..FIREWALLD };
    packets_go_past_what_is_written(&rules, "firewalld", include_str!("adopt_rule_sets/firewalld.sh"));
}
