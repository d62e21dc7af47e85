//! VLANs that the router tags itself, and frames whose tag says a priority alone.

use super::net::{Net, Running, on_the_net, start_on};
use crate::support::switching::folder_with;
use crate::support::{SOON, end, until};
use artery_rig::{Host, Process, Result, RigError};
use artery_wire::build::{ether, ip4};
use std::net::UdpSocket;
use std::time::Duration;

/// Gives a host VLANs of its eth0, each an interface `v` with the number, and addresses in 10.`vlan`.0.0/24
/// and fd00:`vlan`::/64. Where the kernel has no VLANs a program does it, which is to be kept.
fn add_vlans(host: &Host, vlans: &[u16]) -> Result<Option<Process>> {
    for vlan in vlans {
        let (name, id) = (format!("v{vlan}"), vlan.to_string());
        match host.run(["ip", "link", "add", "link", "eth0", "name", &name, "type", "vlan", "id", &id]) {
            Ok(_) => {}
            Err(RigError::Failed(failure)) if failure.output.stderr.contains("Unknown device type") => {
                return tagger(host, vlans).map(Some);
            }
            Err(error) => return Err(error),
        }
        host.address(&name, &format!("10.{vlan}.0.2/24"))?.address(&name, &format!("fd00:{vlan}::2/64"))?;
        host.up(&name)?;
    }
    Ok(None)
}

/// A program that does the same.
fn tagger(host: &Host, vlans: &[u16]) -> Result<Process> {
    let kinds: Vec<String> = vlans.iter().map(|vlan| format!("12/8100 14/{vlan:04x}%0fff")).collect();
    let mut config = format!(
        "FromDevice(eth0, PROMISC true) -> tags :: Classifier({}); out :: Queue(1000) -> ToDevice(eth0);",
        kinds.join(", ")
    );
    for (output, vlan) in vlans.iter().enumerate() {
        config += &format!(
            "tags[{output}] -> VLANDecap -> ToHost(v{vlan});
            FromHost(v{vlan}, ETHER 02:00:00:00:{output:02x}:{:02x}, ADDRESS 10.{vlan}.0.2/24, ADDRESS \
             fd00:{vlan}::2/64)
                -> VLANEncap(VLAN_ID {vlan}, NATIVE_VLAN -1) -> out;",
            vlan % 256
        );
    }
    crate::support::start(host, &config, &[])
}

/// The routes of `a` and `b` to each other's VLANs.
fn route(host: &Host, own: u16, others: &[u16]) -> Result<()> {
    for other in others {
        host.route(&format!("10.{other}.0.0/24"), &format!("10.{own}.0.1"))?;
        host.route(&format!("fd00:{other}::/64"), &format!("fd00:{own}::1"))?;
    }
    Ok(())
}

fn answered(from: &Host, address: &str) -> Result<()> {
    until(SOON, || Ok(from.ping(address, 1)?.received == 1))?;
    assert_eq!(from.ping(address, 5)?.received, 5, "{address}");
    Ok(())
}

/// Whether a datagram that `a` sends in a frame with a tag, to 10.0.2.2 by the untagged port, reaches `b`.
fn reaches(net: &Net, listener: &UdpSocket, tag: u16) -> Result<bool> {
    let packet = ip4().src("10.0.1.2").dst("10.0.2.2").udp(5000, 7777).payload([1; 64]);
    let frame = ether(net.r.mac("eth0")?.as_str(), net.a.mac("eth0")?.as_str()).vlan(tag).ip4(packet);
    net.a.transmit("eth0", &[frame.bytes()])?;
    Ok(listener.recv_from(&mut [0; 128]).is_ok())
}

#[test]
fn vlans_are_ports_with_or_without_the_interface_that_they_are_of() {
    on_the_net("command-vlans", |net| {
        let _programs = [add_vlans(&net.a, &[10, 11])?, add_vlans(&net.b, &[20])?];
        route(&net.a, 10, &[20])?;
        route(&net.b, 20, &[10, 11])?;
        let options = [
            ["--port", "eth0=10.0.1.1/24,fd00:1::1/64"],
            ["--port", "eth0.10=10.10.0.1/24,fd00:10::1/64"],
            ["--port", "eth0.11=10.11.0.1/24,fd00:11::1/64"],
            ["--port", "eth1.20=10.20.0.1/24,fd00:20::1/64"],
            ["--workers", "2"],
        ];
        let router = start_on(&net.r, &options.concat())?;
        for (from, to) in [(&net.a, 20), (&net.b, 10), (&net.b, 11)] {
            answered(from, &format!("10.{to}.0.2"))?;
            answered(from, &format!("fd00:{to}::2"))?;
        }
        // From a VLAN to the untagged port of the same interface, and to the router itself.
        net.b.route("10.0.1.0/24", "10.20.0.1")?;
        answered(&net.b, "10.0.1.2")?;
        answered(&net.b, "10.20.0.1")?;
        answered(&net.a, "fd00:11::1")?;
        // Packets of the greatest length, and those that their senders leave to be cut and checked.
        assert_eq!(net.a.ping_with("10.20.0.2", 3, &["-s", "1472", "-M", "do"])?.received, 3);
        for to in ["10.20.0.2", "fd00:20::2"] {
            let tcp = net.a.iperf3(&net.b, to, &["-n", "8M"])?;
            assert!(tcp.bits_per_second > 1e6, "{to}: {tcp:?}");
        }
        // The host of the router speaks by its VLANs, too.
        answered(&net.r, "10.20.0.2")?;
        let ports = router.json(&["show", "ports"])?;
        let all = ports["ports"].as_array().unwrap();
        let names: Vec<&str> = all.iter().map(|port| port["name"].as_str().unwrap()).collect();
        assert_eq!(names, ["eth0", "eth0.10", "eth0.11", "eth1.20"]);
        assert_eq!(all[1]["lladdr"], net.r.mac("eth0")?);
        // VLANs follow their interface.
        let is_up = |at: usize| -> Result<bool> {
            Ok(router.json(&["show", "ports"])?["ports"][at]["up"].as_bool().unwrap())
        };
        net.b.down("eth0")?;
        until(SOON, || Ok(!is_up(3)?))?;
        assert!(is_up(1)?);
        net.b.up("eth0")?;
        until(SOON, || is_up(3))?;
        end(router.process).map(drop)
    });
}

#[test]
fn rules_name_a_vlan_as_the_port_that_it_is() {
    on_the_net("command-vlans-filtered", |net| {
        let _programs = [add_vlans(&net.a, &[10, 11])?, add_vlans(&net.b, &[20])?];
        route(&net.a, 10, &[20])?;
        route(&net.b, 20, &[10, 11])?;
        let folder = tempfile::tempdir().unwrap();
        let rules = folder.path().join("pf.conf");
        let text = "block\npass in on eth0.10 from eth0.10:network\npass out on eth1.20\n\
                    pass in on eth1.20 to eth0.10:network\n\
                    pass out on eth0.10\n";
        std::fs::write(&rules, text).unwrap();
        let options = [
            ["--port", "eth0.10=10.10.0.1/24,fd00:10::1/64"],
            ["--port", "eth0.11=10.11.0.1/24,fd00:11::1/64"],
            ["--port", "eth1.20=10.20.0.1/24,fd00:20::1/64"],
            ["--pf", rules.to_str().unwrap()],
        ];
        let router = start_on(&net.r, &options.concat())?;
        for (from, to) in [(&net.a, 20), (&net.b, 10)] {
            answered(from, &format!("10.{to}.0.2"))?;
            answered(from, &format!("fd00:{to}::2"))?;
        }
        for to in ["10.11.0.2", "fd00:11::2"] {
            assert_eq!(net.b.ping(to, 2)?.received, 0, "{to}");
        }
        for to in ["10.20.0.2", "fd00:20::2"] {
            let tcp = net.a.iperf3(&net.b, to, &["-n", "8M"])?;
            assert!(tcp.bits_per_second > 1e6, "{to}: {tcp:?}");
        }
        let states = router.say(&["pfctl", "-s", "states"])?;
        assert!(states.contains("10.10.0.2") && !states.contains("10.11.0.2"), "{states}");
        end(router.process).map(drop)
    });
}

#[test]
fn files_of_vlan_interfaces_make_such_ports() {
    on_the_net("folder-vlans", |net| {
        let _programs = [add_vlans(&net.a, &[10, 11])?, add_vlans(&net.b, &[20])?];
        route(&net.a, 10, &[20])?;
        route(&net.b, 20, &[10, 11])?;
        let rules = "block\npass in on vlan10 from vlan10:network\npass out on vlan20\n\
                     pass in on vlan20 to vlan10:network\npass out on vlan10\n";
        let folder = folder_with(&[
            ("hostname.em0", "up\n"),
            ("hostname.em1", "inet 10.0.2.1/24\n"),
            ("hostname.vlan10", "vnetid 10 parent em0\ninet 10.10.0.1 255.255.255.0\ninet6 fd00:10::1 64\n"),
            ("hostname.vlan11", "inet 10.11.0.1/24 vlan 11 vlandev em0\ninet6 fd00:11::1/64\n"),
            ("hostname.vlan20", "inet 10.20.0.1/24\ninet6 fd00:20::1/64\nparent em1\nvnetid 20\nup\n"),
            ("pf.conf", rules),
        ]);
        for port in ["eth0", "eth1"] {
            net.r.down(port)?;
        }
        let (etc, log) = (folder.path().display().to_string(), folder.path().join("pflog"));
        let words = ["up", "--etc", &etc, "--pflog", log.to_str().unwrap(), "--map", "em0=eth0,em1=eth1"];
        let router = Running::spawn(&net.r, words)?;
        for (from, to) in [(&net.a, 20), (&net.b, 10)] {
            answered(from, &format!("10.{to}.0.2"))?;
            answered(from, &format!("fd00:{to}::2"))?;
        }
        for to in ["10.11.0.2", "fd00:11::2"] {
            assert_eq!(net.b.ping(to, 2)?.received, 0, "{to}");
        }
        let said = router.process.stderr_so_far();
        assert!(!said.contains("warning"), "{said}");
        let ports = router.json(&["show", "ports"])?;
        let names: Vec<_> =
            ports["ports"].as_array().unwrap().iter().map(|port| port["name"].clone()).collect();
        assert_eq!(names, ["em1", "vlan10", "vlan11", "vlan20"]);
        end(router.process).map(drop)
    });
}

#[test]
fn frames_with_a_priority_and_no_vlan_are_forwarded_as_those_without_a_tag() {
    on_the_net("command-priority-tags", |net| {
        let folder = tempfile::tempdir().unwrap();
        let rules = folder.path().join("pf.conf");
        std::fs::write(&rules, "block\npass on { eth0 eth1 } proto { udp icmp icmp6 }\n").unwrap();
        let filter = ["--pf", rules.to_str().unwrap()];
        for options in [&[][..], &["--service", "192.0.2.1:80/tcp=web=10.0.2.2"], &filter] {
            let router = Running::start(net, options)?;
            let listener = net.b.enter(|| UdpSocket::bind("0.0.0.0:7777").unwrap())?;
            listener.set_read_timeout(Some(Duration::from_secs(1))).unwrap();
            // The upper three bits are the priority.
            assert!(reaches(net, &listener, 0x0000)? && reaches(net, &listener, 0xa000)?);
            for vlan in [1, 0x6000 | 99, 0xfff] {
                assert!(!reaches(net, &listener, vlan)?, "VLAN {vlan:#x} is none of the router's");
            }
            end(router.process)?;
        }
        Ok(())
    });
}
