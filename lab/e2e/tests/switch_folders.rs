//! `artery up` from folders of BSD's files between Linux hosts: what is judged is what is done, and what the
//! packet filter of a switch does with what passes.

use crate::support::switching::{self, SwitchNet, address, folder_with};
use crate::support::{Running, SOON, end, until};
use artery_rig::Result;
use artery_rig::program::artery;
use artery_wire::build::{ether, ip4};
use std::path::Path;

/// Hosts at 10.0.0.1 and 10.0.0.2, each linked by its eth0 to `s`, whose interfaces eth0 and eth1 are down.
type Net = SwitchNet<2>;

fn on_the_net(label: &str, body: impl FnOnce(&Net) -> Result<()>) {
    switching::on_the_net(label, 2, body);
}

const MAP: &str = "em0=eth0,em1=eth1";
const LINK1: &str = "add em0\nadd em1\nlink1\nup\n";

/// A folder with these files, and both ports up.
fn etc(files: &[(&str, &str)]) -> tempfile::TempDir {
    folder_with(&[files, &[("hostname.em*", "up\n")]].concat())
}

/// Starts a switch of both ports.
fn start(net: &Net, etc: &Path, options: &[&str]) -> Result<Running> {
    Running::switch(&net.s, &net.hosts[0], etc, &[&["--map", MAP], options].concat())
}

/// What a command about a folder says: its status and its output.
fn judged(net: &Net, words: &[&str], etc: &Path) -> Result<(Option<i32>, String)> {
    let output = net.s.command([artery()?]).args(words).arg(etc).output()?;
    Ok((output.code(), output.stdout))
}

/// Lines that are refused.
fn refusals(said: &str) -> Vec<&str> {
    said.lines().filter(|line| line.contains(": refused: ")).collect()
}

#[test]
fn a_folder_starts_if_and_only_if_import_and_dry_run_refuse_nothing() {
    on_the_net("folders-judged", |net| {
        for rules in [
            "pass\n",
            "set skip on lo\nblock return\npass\nblock return in on ! lo0 proto tcp to port 6000:6010\n\
             block return out log proto {tcp udp} user _pbuild\n",
            "block in on egress\npass out on egress inet from em0:network nat-to (egress)\n",
            "pass in on { em0 em9 }\n",
            "foo\npass\n",
            "antispoof for em0\n",
            "pass proto tcp to port { smtps spamd dhcpv6-client }\n",
            "set limit table-entries 1\ntable <a> { 10.0.0.1 10.0.0.2 }\n",
            "pass in on em0 proto tcp synproxy state\n",
        ] {
            let folder = etc(&[("hostname.veb0", LINK1), ("pf.conf", rules)]);
            for lenient in [&[][..], &["--lenient"]] {
                let log = folder.path().join("pflog").display().to_string();
                let (explained, said) =
                    judged(net, &[&["import", "--explain"], lenient].concat(), folder.path())?;
                let dry = [&["up", "--dry-run", "--map", MAP], lenient, &["--etc"]].concat();
                let (dry, planned) = judged(net, &dry, folder.path())?;
                assert_eq!((explained, refusals(&said)), (dry, refusals(&planned)), "{rules}{lenient:?}");
                let options = [&["--pflog", &log], lenient].concat();
                if explained == Some(0) {
                    end(start(net, folder.path(), &options)?.process)?;
                    continue;
                }
                let up = net.s.command([artery()?]).args(["up", "--map", MAP, "--etc"]).arg(folder.path());
                let refused = up.args(options).output()?;
                assert_eq!(refused.code(), Some(1), "{rules}{lenient:?}: {}", refused.stderr);
                let errors = refused.stderr.lines().filter(|line| line.starts_with("error: ")).count();
                assert_eq!(errors, refusals(&said).len(), "{}", refused.stderr);
            }
        }
        Ok(())
    });
}

#[test]
fn rules_for_the_internet_side_are_not_taken_for_done() {
    on_the_net("folders-egress", |net| {
        let rules = "block in on egress\npass\n";
        let folder = etc(&[("hostname.bridge0", "add em0\nadd em1\nup\n"), ("pf.conf", rules)]);
        let up =
            net.s.command([artery()?]).args(["up", "--map", MAP, "--etc"]).arg(folder.path()).output()?;
        assert_eq!(up.code(), Some(1), "{}", up.stderr);
        let why = "pf.conf:1: on egress: no interface here has this name or group";
        assert!(up.stderr.contains(why) && up.stderr.contains("--lenient"), "{}", up.stderr);
        let running = start(net, folder.path(), &["--lenient"])?;
        running.process.wait_for("pf.conf:1: on egress", SOON)?;
        assert_eq!(net.hosts[0].ping(&address(1), 2)?.received, 2, "it never applies");
        let (status, said) = running.pfctl("-f -", "pass\nblock in on em9\n")?;
        assert!(status == Some(0) && said.contains("stdin:2: warning: on em9: no interface here"), "{said}");
        end(running.process).map(drop)
    });
}

#[test]
fn openbsds_own_rules_filter_what_passes() {
    on_the_net("folders-openbsd", |net| {
        let rules = "set skip on lo\nblock return\npass\n\
            block return in on ! lo0 proto tcp to port 6000:6010\n\
            block return out log proto {tcp udp} user _pbuild\n";
        let folder = etc(&[("hostname.veb0", LINK1), ("pf.conf", rules)]);
        let log = folder.path().join("pflog").display().to_string();
        let running = start(net, folder.path(), &["--pflog", &log])?;
        let tcp = net.hosts[0].iperf3(&net.hosts[1], &address(1), &["-t", "1"])?;
        assert!(tcp.bits_per_second > 1e6, "{tcp:?}");
        let udp = net.hosts[0].enter(|| {
            let socket = std::net::TcpStream::connect_timeout(&"10.0.0.2:6001".parse().unwrap(), SOON);
            socket.err().map(|error| error.kind())
        })?;
        assert_eq!(udp, Some(std::io::ErrorKind::ConnectionRefused), "block return answers");
        // The same rules as text: what never matches is not blocked either.
        let (status, said) = running.pfctl("-f -", "pass\nblock return out proto {tcp udp} user root\n")?;
        assert!(status == Some(0) && said.contains("stdin:2: warning: user and group"), "{said}");
        let tcp = net.hosts[0].iperf3(&net.hosts[1], &address(1), &["-t", "1"])?;
        assert!(tcp.bits_per_second > 1e6, "{tcp:?}");
        end(running.process).map(drop)
    });
}

#[test]
fn what_no_host_would_take_ends_at_a_filtered_switch() {
    on_the_net("folders-headers", |net| {
        let folder = etc(&[("hostname.veb0", LINK1), ("pf.conf", "pass\n")]);
        let running = start(net, folder.path(), &[])?;
        let [a, b] = &net.hosts;
        let (from, to) = (a.mac("eth0")?, b.mac("eth0")?);
        let frame = |packet: Vec<u8>| {
            let head = ether(to.as_str(), from.as_str()).ip4(ip4().udp(1, 2)).bytes()[..14].to_vec();
            [head, packet].concat()
        };
        let udp = |source: &str| ip4().src(source).dst("10.0.0.2").udp(7, 4242).bytes();
        let good = udp("10.0.0.1");
        let mut wrong = udp("10.0.0.1");
        wrong[8] ^= 0x40;
        let captured = b.capture_with("eth0", &["-Q", "in", "port 4242 or ip[20:2] = 7"])?;
        let packets = [&wrong, &udp("127.0.0.1"), &udp("224.0.0.1"), &good, &wrong, &good];
        a.transmit("eth0", &packets.map(|packet| frame(packet.clone())))?;
        until(SOON, || Ok(captured.frames().len() >= 2))?;
        std::thread::sleep(std::time::Duration::from_millis(200));
        assert_eq!(captured.frames().len(), 2, "the good ones alone");
        let info = running.pfctl("-s info", "")?.1;
        let line =
            |name: &str| info.lines().find(|line| line.trim_start().starts_with(name)).unwrap().to_string();
        assert_eq!(line("proto-cksum").split_whitespace().nth(1), Some("2"), "{info}");
        assert_eq!(line("normalize").split_whitespace().nth(1), Some("2"), "{info}");
        end(running.process).map(drop)
    });
}

#[test]
fn a_log_begins_and_goes_on_and_interfaces_are_counted() {
    on_the_net("folders-log", |net| {
        let folder = etc(&[("hostname.veb0", LINK1), ("pf.conf", "set loginterface em\npass\n")]);
        let log = folder.path().join("pflog");
        let running = start(net, folder.path(), &["--allow-path", &folder.path().display().to_string()])?;
        let rules = "set loginterface em\npass log (all)\n";
        let (status, said) = running.pfctl("-f -", rules)?;
        assert!(status == Some(0), "{said}");
        assert!(said.contains("they log nothing; --pflog FILE begins one now"), "{said}");
        let file = log.display().to_string();
        assert_eq!(running.pfctl(&format!("--pflog {file} -f -"), rules)?, (Some(0), String::new()));
        let written = || std::fs::metadata(&log).map_or(0, |kind| kind.len());
        net.hosts[0].ping(&address(1), 2)?;
        until(SOON, || Ok(written() > 24))?;
        // Who empties it finds a whole log in it afterwards.
        std::fs::File::options().write(true).open(&log).unwrap().set_len(0).unwrap();
        net.hosts[0].ping(&address(1), 2)?;
        until(SOON, || Ok(written() > 24))?;
        let shown = net.s.run(["tcpdump", "-n", "-e", "-r", &file])?.stdout;
        assert!(shown.contains("pass in on em0: 10.0.0.1 > 10.0.0.2: ICMP echo request"), "{shown}");
        let info = running.pfctl("-s info", "")?.1;
        assert!(info.contains("Interface Stats for em "), "{info}");
        let bytes = info.lines().find(|line| line.trim_start().starts_with("Bytes In")).unwrap();
        assert_ne!(bytes.split_whitespace().nth(2), Some("0"), "{info}");
        let interfaces = running.pfctl("-vv -s Interfaces", "")?.1;
        let em0 = interfaces.split("em0\n").nth(1).unwrap_or_default();
        let lines: Vec<&str> = em0.lines().take(10).collect();
        assert!(lines[0].starts_with("\tCleared:     "), "{interfaces}");
        assert!(lines[1].starts_with("\tReferences:  [ States:  "), "{interfaces}");
        assert!(lines[2].starts_with("\tIn4/Pass:    [ Packets: "), "{interfaces}");
        assert!(!lines[2].contains("Packets: 0 "), "{interfaces}");
        end(running.process).map(drop)
    });
}

#[test]
fn a_vport_keeps_its_address_over_a_restart_and_announces_itself() {
    on_the_net("folders-vport", |net| {
        let folder = etc(&[
            ("hostname.veb0", "add em0\nadd em1\nadd vport0\nup\n"),
            ("hostname.vport0", "inet 10.0.0.9 255.255.255.0\ninet6 2001:db8::9 64\n"),
        ]);
        let mut macs = Vec::new();
        for _ in 0..2 {
            let captured = net.hosts[0].capture_with("eth0", &["-Q", "in", "arp or icmp6"])?;
            let mut running = start(net, folder.path(), &[])?;
            running.until_answered(&net.hosts[0], "10.0.0.9")?;
            let mac = net.s.mac("vport0")?;
            // A request of 10.0.0.9 for itself, and an advertisement of 2001:db8::9.
            let announces = |frame: &[u8]| {
                let arp =
                    frame.get(28..32) == Some(&[10, 0, 0, 9]) && frame.get(38..42) == Some(&[10, 0, 0, 9]);
                arp || frame.get(54) == Some(&136) && frame.get(12..14) == Some(&[0x86, 0xdd])
            };
            until(2 * SOON, || {
                let frames = captured.frames();
                let all: Vec<_> = frames.iter().filter(|frame| announces(&frame.bytes)).collect();
                let six = all.iter().filter(|frame| frame.bytes[12..14] == [0x86, 0xdd]).count();
                Ok(six >= 1 && all.len() > six)
            })?;
            macs.push(mac);
            end(running.process)?;
        }
        assert_eq!(macs[0], macs[1]);
        Ok(())
    });
}

#[test]
fn addresses_that_linux_gives_by_itself_are_none_that_rules_mean() {
    on_the_net("folders-link-local", |net| {
        let folder = etc(&[
            ("hostname.veb0", "add em0\nadd em1\nadd vport0\nup\n"),
            ("hostname.vport0", "inet 10.0.0.9 255.255.255.0\n"),
            ("pf.conf", "pass\n"),
        ]);
        let mut running = start(net, folder.path(), &[])?;
        running.until_answered(&net.hosts[0], "10.0.0.9")?;
        until(SOON, || Ok(net.s.run(["ip", "-6", "address", "show", "vport0"])?.stdout.contains("fe80::")))?;
        let rules = "block\npass in on vport0 to vport0\npass out on vport0 from vport0\n";
        let (status, said) = running.pfctl("-vf -", rules)?;
        assert_eq!(status, Some(0), "{said}");
        assert!(said.contains("to 10.0.0.9") && !said.contains("fe80"), "{said}");
        assert_eq!(net.hosts[0].ping("10.0.0.9", 2)?.received, 2);
        end(running.process).map(drop)
    });
}
