//! `artery up` from the files of the benchmark of 2021 and others, between Linux hosts, and
//! `artery ifconfig` while it runs.

use crate::support::switching::{self, SwitchNet, address, folder_with};
use crate::support::{Running, SOON, assert_confined, end, until};
use artery_rig::program::artery;
use artery_rig::{Host, Result};
use std::net::{Ipv4Addr, UdpSocket};
use std::path::{Path, PathBuf};
use std::time::Duration;
use tempfile::TempDir;

/// Three hosts at 10.0.0.1 to 10.0.0.3, each linked by its eth0 to `s`, whose interfaces eth0 to eth3 are
/// down and have no addresses; eth3 has no host.
type Net = SwitchNet<3>;

fn on_the_net(label: &str, body: impl FnOnce(&Net) -> Result<()>) {
    switching::on_the_net(label, 4, body);
}

/// What the files call the ports, and what `s` does.
const MAP: &str = "cnmac0=eth0,cnmac1=eth1,cnmac2=eth2,cnmac3=eth3";

fn veb2021() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../conf/veb2021")
}

fn start(net: &Net, etc: &Path, options: &[&str]) -> Result<Running> {
    Running::switch(&net.s, &net.hosts[0], etc, options)
}

impl Running {
    /// What `artery ifconfig` says when it succeeds.
    fn says(&self, words: &str) -> Result<String> {
        let (status, said) = self.ifconfig(words)?;
        assert_eq!(status, Some(0), "{words}: {said}");
        Ok(said)
    }

    fn refuses(&self, words: &str) -> Result<String> {
        let (status, said) = self.ifconfig(words)?;
        assert_eq!(status, Some(1), "{words}: {said}");
        Ok(said)
    }
}

fn answers(net: &Net, from: usize, to: usize) -> Result<u64> {
    Ok(net.hosts[from].ping(&address(to), 2)?.received)
}

/// Pings until all is answered: a host that had no answer waits a second before it asks for the Ethernet
/// address again.
fn reaches(net: &Net, from: usize, to: usize) -> Result<()> {
    until(SOON, || Ok(answers(net, from, to)? == 2))
}

#[test]
fn the_files_of_the_benchmark_switch_between_hosts_and_ifconfig_shows_their_addresses() {
    on_the_net("up-veb2021", |net| {
        for (switch, workers) in [("veb0", "1"), ("veb0", "2"), ("bridge0", "1")] {
            let options = ["--map", MAP, "--switch", switch, "--workers", workers];
            let running = start(net, &veb2021(), &options)?;
            for (from, to) in [(0, 1), (1, 2), (2, 0)] {
                reaches(net, from, to)?;
            }
            let shown = running.says("")?;
            assert!(shown.starts_with(&format!("{switch}: flags=")), "{shown}");
            assert!(shown.contains("\tAddresses (max cache: 100, timeout: 240):\n"), "{shown}");
            for (n, host) in net.hosts.iter().enumerate() {
                let learned = format!("\t\t{} cnmac{n} ", host.mac("eth0")?);
                assert!(shown.contains(&learned), "{learned}: {shown}");
            }
            assert!(shown.contains("\tcnmac3 flags=3<LEARNING,DISCOVER>\n"), "{shown}");
            // A host that has just said something for the first time may be in only one of two texts.
            until(SOON, || Ok(running.says(switch)?.lines().count() == running.says("")?.lines().count()))?;
            let tcp = net.hosts[0].iperf3(&net.hosts[1], &address(1), &["-t", "1"])?;
            assert!(tcp.bits_per_second > 1e6, "{tcp:?}");
            end(running.process)?;
        }
        Ok(())
    });
}

#[test]
fn a_switch_is_changed_while_frames_pass() {
    on_the_net("up-ifconfig", |net| {
        let running = start(net, &veb2021(), &["--map", MAP])?;
        running.says("veb0 protected cnmac0 1 protected cnmac1 1")?;
        assert_eq!(answers(net, 0, 1)?, 0, "ports of a group don't talk");
        reaches(net, 0, 2)?;
        running.says("veb0 -protected cnmac0")?;
        reaches(net, 0, 1)?;

        running.says("veb0 untagged cnmac0 10")?;
        assert_eq!(answers(net, 0, 1)?, 0, "VLANs don't talk");
        reaches(net, 1, 2)?;
        running.says("veb0 untagged cnmac1 10")?;
        reaches(net, 0, 1)?;
        assert_eq!(answers(net, 1, 2)?, 0);
        let at = format!("{}@10 cnmac0 ", net.hosts[0].mac("eth0")?);
        assert!(running.says("veb0 addr")?.contains(&at), "{at}");
        running.says("veb0 untagged cnmac0 1 untagged cnmac1 1")?;

        running.says("veb0 rule block in on cnmac0 arp")?;
        assert_eq!(running.says("veb0 rules cnmac0")?, "block in on cnmac0 arp\n");
        // The other one, too: what it asks a host that it knows would tell that host its address.
        for host in &net.hosts[..2] {
            host.run(["ip", "neigh", "flush", "all"])?;
        }
        assert_eq!(answers(net, 0, 1)?, 0, "no group is asked for");
        running.says("veb0 flushrule cnmac0")?;
        reaches(net, 0, 1)?;

        let (known, there) = ("02:00:00:00:00:77", "cnmac3");
        running.says(&format!("veb0 static {there} {known} timeout 600"))?;
        assert!(running.says("veb0 addr")?.contains(&format!("{known} {there} 0 flags=1<STATIC>")));
        running.says("veb0 flushall")?;
        assert!(!running.says("veb0 addr")?.contains(known));
        assert!(running.says("veb0")?.contains("timeout: 600):"));

        running.says("veb0 down")?;
        assert_eq!(answers(net, 0, 1)?, 0);
        running.says("veb0 up")?;
        reaches(net, 0, 1)?;

        for (words, expected) in [
            ("veb1", "artery: veb1: no such interface; the switches of this router are veb0\n"),
            ("cnmac0", "artery: cnmac0 is a port of veb0, which 'artery ifconfig veb0' shows"),
            ("veb0 add em9", "artery: veb0: em9 is not connected to the switch"),
            ("veb0 maxaddr 0", "artery: veb0: 'maxaddr 0': not '0', but a number from 1 to 4194304"),
            ("veb0 destroy", "artery: a switch ends with its router"),
        ] {
            let refusal = running.refuses(words)?;
            assert!(refusal.contains(expected), "{words}: {refusal}");
        }
        end(running.process).map(drop)
    });
}

#[test]
fn the_host_talks_by_its_vport_and_commands_run_once_it_is_there() {
    on_the_net("up-vport", |net| {
        let marked = tempfile::tempdir().unwrap();
        let mark = marked.path().join("mark");
        let vport = format!("inet 10.0.0.9 255.255.255.0\n!ip -br address show $if > {}\n", mark.display());
        let etc = folder_with(&[
            ("hostname.veb0", "add em0\nadd em1\nadd vport0\nup"),
            ("hostname.em*", "up mtu 1600"),
            ("hostname.vport0", &vport),
        ]);
        let options = ["--map", "em0=eth0,em1=eth1", "--run-commands"];
        let running = start(net, etc.path(), &options)?;
        assert!(net.s.run(["ip", "link", "show", "eth1"])?.stdout.contains(" mtu 1600 "));
        for host in [0, 1] {
            assert_eq!(net.hosts[host].ping("10.0.0.9", 2)?.received, 2);
            assert_eq!(net.s.ping(&address(host), 2)?.received, 2);
        }
        let tcp = net.hosts[0].iperf3(&net.s, "10.0.0.9", &["-t", "1"])?;
        assert!(tcp.bits_per_second > 1e6, "{tcp:?}");
        running.process.wait_for("hostname.vport0:2: runs ip ", SOON)?;
        assert_confined(&running.process);
        reaches(net, 0, 1)?;
        let said = std::fs::read_to_string(&mark).unwrap_or_default();
        assert!(said.contains("10.0.0.9/24"), "{said}: {}", running.process.stderr_so_far());
        end(running.process)?;
        assert_eq!(net.s.interfaces()?.iter().filter(|name| name.starts_with("vport")).count(), 0);
        Ok(())
    });
}

/// A socket of a host that receives datagrams to port 5000 of a multicast group.
fn joined(host: &Host, own: &str, group: Ipv4Addr) -> Result<UdpSocket> {
    let own = own.parse().unwrap();
    let join = || -> std::io::Result<UdpSocket> {
        let socket = UdpSocket::bind((Ipv4Addr::UNSPECIFIED, 5000))?;
        socket.join_multicast_v4(&group, &own)?;
        socket.set_read_timeout(Some(SOON))?;
        Ok(socket)
    };
    Ok(host.enter(join)?.expect("hosts can join groups"))
}

#[test]
fn frames_for_a_group_reach_the_hosts_that_joined_it() {
    const GROUP: Ipv4Addr = Ipv4Addr::new(239, 1, 1, 1);
    on_the_net("up-groups", |net| {
        let veb0 = "add eth0\nadd eth1\nadd eth2\nsnoop querier 10.0.0.9\nup\n";
        let etc = folder_with(&[("hostname.veb0", veb0), ("hostname.eth*", "up\n")]);
        let running = start(net, etc.path(), &[])?;
        let [a, b, c] = &net.hosts;
        a.run(["ip", "route", "add", "239.0.0.0/8", "dev", "eth0"])?;
        let member = joined(b, &address(1), GROUP)?;
        let filter = ["-Q", "in", "udp and port 5000"];
        let [at_member, at_other] = [b.capture_with("eth0", &filter)?, c.capture_with("eth0", &filter)?];
        let sender = a.enter(|| UdpSocket::bind((Ipv4Addr::UNSPECIFIED, 0)))?.expect("hosts have sockets");
        // Frames that have come to both, and whether this one has, in a tenth of a second.
        let reaches = || -> Result<[bool; 2]> {
            let count = || [&at_member, &at_other].map(|capture| capture.frames().len());
            let before = count();
            sender.send_to(b"data", (GROUP, 5000)).expect("the group has a route");
            std::thread::sleep(Duration::from_millis(100));
            Ok(std::array::from_fn(|n| count()[n] > before[n]))
        };
        assert_eq!(reaches()?, [true; 2], "until hosts have answered");
        until(2 * SOON, || Ok(reaches()? == [true, false]))?;
        let mut bytes = [0; 16];
        assert_eq!(member.recv(&mut bytes).ok(), Some(4));
        let groups = running.says("veb0 groups")?;
        assert!(groups.starts_with("239.1.1.1 eth1 "), "{groups}");
        let late = joined(c, &address(2), GROUP)?;
        until(SOON, || Ok(reaches()? == [true; 2]))?;
        drop(member);
        until(SOON, || Ok(reaches()? == [false, true]))?;
        assert_eq!(late.recv(&mut bytes).ok(), Some(4));
        assert_eq!(running.says("veb0 mcastrouter eth1")?, "");
        assert_eq!(reaches()?, [true; 2]);
        end(running.process).map(drop)
    });
}

#[test]
fn two_switches_of_one_router_are_apart_and_a_port_goes_and_comes() {
    on_the_net("up-two", |net| {
        let etc = folder_with(&[
            ("hostname.veb0", "add em0\nadd em1\nup"),
            ("hostname.veb1", "add em2\nadd em3\nup"),
            ("hostname.em*", "up"),
        ]);
        let running = start(net, etc.path(), &["--map", "em0=eth0,em1=eth1,em2=eth2,em3=eth3"])?;
        reaches(net, 0, 1)?;
        assert_eq!(answers(net, 0, 2)?, 0);
        let shown = running.says("veb")?;
        assert!(shown.starts_with("veb0: flags=") && shown.contains("\nveb1: flags="), "{shown}");
        running.says("veb0 del em1")?;
        assert_eq!(answers(net, 0, 1)?, 0);
        assert!(!running.says("veb0")?.contains("em1"));
        running.says("veb0 add em1")?;
        reaches(net, 0, 1)?;
        end(running.process).map(drop)
    });
}

#[test]
fn interfaces_that_others_have_or_that_are_missing_are_refused() {
    on_the_net("up-refusals", |net| {
        let running = start(net, &veb2021(), &["--map", MAP])?;
        let second = net.s.command([artery()?]).args(["up", "--map", MAP, "--etc"]).arg(veb2021());
        let second = second.env("ARTERY_SOCKET", running.socket.with_extension("second")).output()?;
        assert_eq!(second.code(), Some(1), "{}", second.stderr);
        assert!(second.stderr.contains("another router has eth0 as its port"), "{}", second.stderr);
        let missing = net.s.command([artery()?]).args(["up", "--etc"]).arg(veb2021()).output()?;
        assert_eq!(missing.code(), Some(1), "{}", missing.stderr);
        let expected =
            "cnmac3: no such interface; there are lo, eth0, eth1, eth2, eth3; '--map cnmac3=NAME' says";
        assert!(missing.stderr.contains(expected), "{}", missing.stderr);
        reaches(net, 0, 1)?;
        end(running.process).map(drop)
    });
}

#[test]
fn with_link1_rules_hold_and_states_outlive_them() {
    on_the_net("up-pf", |net| {
        let veb0 = "add cnmac0\nadd cnmac1\nadd cnmac2\nadd cnmac3\nlink1\nup\n";
        let rules = "set skip on lo0\nblock log\npass in on cnmac0\npass out\n";
        let files = folder_with(&[("hostname.veb0", veb0), ("hostname.cnmac*", "up\n"), ("pf.conf", rules)]);
        let log = files.path().join("pflog").display().to_string();
        let running = start(net, files.path(), &["--map", MAP, "--pflog", &log])?;
        let pass = || {
            Ok::<_, artery_rig::RigError>([(0, 1), (1, 0), (2, 1)].map(|(from, to)| answers(net, from, to)))
        };
        let [there, back, other] = pass()?;
        assert_eq!((there?, back?, other?), (2, 0, 0));
        let tcp = net.hosts[0].iperf3(&net.hosts[1], &address(1), &["-t", "1"])?;
        assert!(tcp.bits_per_second > 1e6, "{tcp:?}");
        assert!(running.pfctl("-s states", "")?.1.contains("tcp 10.0.0.2:5201 <- 10.0.0.1:"));

        // What is wrong changes nothing; what is right holds for what has no state yet.
        let (status, why) = running.pfctl("-f -", "block\npass in onn cnmac0\n")?;
        assert!(status == Some(1) && why.contains("stdin:2: "), "{why}");
        let mut ping = net.hosts[0].spawn(["ping", "-n", "-i", "0.2", "-c", "10", &address(1)])?;
        ping.wait_for("icmp_seq=1 ", SOON)?;
        assert_eq!(running.pfctl("-f -", "block\n")?, (Some(0), String::new()));
        let output = ping.wait(SOON)?;
        assert!(output.stdout.contains(" 10 received"), "{}", output.stdout);
        assert_eq!(answers(net, 0, 1)?, 0);
        assert_eq!(running.pfctl("-s rules", "")?, (Some(0), "block drop all\n".into()));

        // Without the filter everything passes.
        assert_eq!(running.pfctl("-d", "")?, (Some(0), "pf disabled\n".into()));
        reaches(net, 2, 1)?;
        end(running.process)?;
        let logged = net.s.command(["tcpdump", "-n", "-e", "-r", &log]).output()?.stdout;
        let expected = "rule 0/0(match): block in on cnmac1: 10.0.0.2 > 10.0.0.1: ICMP echo request";
        assert!(logged.contains(expected), "{logged}");
        Ok(())
    });
}

#[test]
fn fragments_pass_rules_as_a_whole_and_leave_as_fragments() {
    on_the_net("up-fragments", |net| {
        let veb0 = "add cnmac0\nadd cnmac1\nadd cnmac2\nadd cnmac3\nlink1\nup\n";
        // A state of ICMP is found by what only the first fragment holds.
        let rules = "block\npass in on cnmac0 inet proto icmp icmp-type echoreq\n\
            pass in inet6 proto icmp6\npass out\n";
        let files = folder_with(&[("hostname.veb0", veb0), ("hostname.cnmac*", "up\n"), ("pf.conf", rules)]);
        for (n, host) in net.hosts.iter().enumerate() {
            host.run(["ip", "address", "add", &format!("fd00::{}/64", n + 1), "dev", "eth0", "nodad"])?;
        }
        let running = start(net, files.path(), &["--map", MAP])?;
        for size in ["3000", "20000"] {
            for to in ["10.0.0.2", "fd00::2"] {
                let pings = net.hosts[0].ping_with(to, 3, &["-s", size])?;
                assert_eq!((pings.received, pings.duplicates), (3, 0), "{size} bytes to {to}");
            }
        }
        assert_eq!(net.hosts[1].ping_with("10.0.0.1", 1, &["-s", "3000"])?.received, 0);
        end(running.process).map(drop)
    });
}

/// A switch of two hosts whose own host has 10.0.0.9 by a vport, with these rules.
fn start_with_vport(net: &Net, rules: &str) -> Result<(TempDir, Running)> {
    let files = folder_with(&[
        ("hostname.veb0", "add em0\nadd em1\nadd vport0\nup\n"),
        ("hostname.em*", "up\n"),
        ("hostname.vport0", "inet 10.0.0.9 255.255.255.0\n"),
        ("pf.conf", rules),
    ]);
    let switch = start(net, files.path(), &["--map", "em0=eth0,em1=eth1"])?;
    Ok((files, switch))
}

#[test]
fn without_link1_rules_hold_at_the_hosts_vport_alone() {
    on_the_net("up-vport-pf", |net| {
        let rules = "pass\nblock in on vport0 proto icmp from 10.0.0.2\nblock on em0\n";
        let (_files, running) = start_with_vport(net, rules)?;
        let asks = |host: usize| Ok::<_, artery_rig::RigError>(net.hosts[host].ping("10.0.0.9", 2)?.received);
        assert_eq!((asks(0)?, asks(1)?), (2, 0));
        assert_eq!(
            net.s.ping(&address(1), 2)?.received,
            2,
            "answers pass by the state of the host's question"
        );
        // One may wait for its neighbor too long where the machine is busy.
        let is_passed = until(SOON, || Ok(answers(net, 0, 1)? == 2));
        is_passed.expect("the switch's own ports are none of the filter's");
        end(running.process).map(drop)
    });
}

#[test]
fn rules_know_the_addresses_of_the_hosts_vport_and_follow_them() {
    on_the_net("up-vport-addresses", |net| {
        // vport0:network is what it is when rules are loaded, (vport0) what it gets later, too.
        let rules = "block\npass in on vport0 proto icmp from vport0:network to (vport0)\n";
        let (_files, running) = start_with_vport(net, rules)?;
        let asks = |to: &str| Ok::<_, artery_rig::RigError>(net.hosts[0].ping(to, 2)?.received);
        assert_eq!(asks("10.0.0.9")?, 2);
        let address = |verb| ["ip", "address", verb, "10.0.0.77/24", "dev", "vport0"];
        net.s.command(address("add")).run()?;
        until(SOON, || Ok(asks("10.0.0.77")? == 2))?;
        net.s.command(address("delete")).run()?;
        let alias = ["ip", "address", "add", "10.0.0.77/32", "dev", "lo"];
        net.s.command(alias).run()?;
        until(SOON, || Ok(asks("10.0.0.77")? == 0))?;
        assert_eq!(asks("10.0.0.9")?, 2);
        end(running.process).map(drop)
    });
}
