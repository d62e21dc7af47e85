//! What becomes of ports whose interfaces are renamed, deleted, made again, or moved to another network
//! namespace.

use super::net::{FAR, NEAR, Net, OWN, PORTS, Running, on_the_net, start_on};
use crate::support::{SOON, end, start, until, until_answered};
use artery_rig::{Host, Result, Signal};
use serde_json::Value;
use std::io::{Read as _, Write as _};
use std::net::TcpStream;

/// What is said when a port is absent, and when it is not any more.
const ABSENT: &str = "eth1: interface vanished while in use; the port is absent";
const RETURNED: &str = "eth1: there is an interface 'eth1' again";

/// Deletes the interface behind the port eth1.
fn delete(net: &Net) -> Result<()> {
    net.r.run(["ip", "link", "delete", "eth1"]).map(drop)
}

/// Makes the interface of the port eth1 again, down, with `b` at the other end.
fn make_again(net: &Net, mtu: u32) -> Result<()> {
    let (far, mtu) = (net.b.namespace(), mtu.to_string());
    let pair = ["type", "veth", "peer", "name", "eth0", "mtu", &mtu, "netns", far];
    net.r.run([&["ip", "link", "add", "eth1", "mtu", &mtu][..], &pair].concat())?;
    net.b.address("eth0", "10.0.2.2/24")?.up("eth0")?;
    net.b.run(["ip", "address", "add", "fd00:2::2/64", "dev", "eth0", "nodad"])?;
    net.b.route("default", "10.0.2.1")?.route("default", "fd00:2::1").map(drop)
}

/// A port as `artery show ports --json` shows it.
fn port(router: &Running, name: &str) -> Result<Value> {
    let document = router.json(&["show", "ports"])?;
    let ports = document["ports"].as_array().unwrap();
    Ok(ports.iter().find(|port| port["name"] == name).unwrap_or_else(|| panic!("{document:#}")).clone())
}

fn until_state(router: &Running, name: &str, state: &str) -> Result<()> {
    until(SOON, || Ok(port(router, name)?["state"] == state))
}

/// What stands before the row of a port in `artery show ports`.
fn row(router: &Running, name: &str) -> Result<Vec<String>> {
    let table = router.say(&["show", "ports"])?;
    let mut rows = table.lines().map(|line| line.split_whitespace().map(str::to_string).collect::<Vec<_>>());
    Ok(rows.find(|row| row.get(1).is_some_and(|found| found == name)).unwrap_or_else(|| panic!("{table}")))
}

fn until_all_answer(router: &mut Running, net: &Net) -> Result<()> {
    for address in FAR {
        until_answered(&net.a, address, &mut router.process)?;
        let report = net.a.ping(address, 5)?;
        assert_eq!((report.received, report.duplicates), (5, 0), "{}", report.text);
    }
    Ok(())
}

#[test]
fn a_renamed_interface_keeps_its_port_while_packets_flow_and_another_of_its_name_is_left_alone() {
    on_the_net("interface-renamed", |net| {
        let mut router = Running::start(net, &["--route", "10.9.0.0/16=10.0.2.2"])?;
        net.b.address("lo", "10.9.0.1/32")?;
        let mut pings = net.a.spawn(["ping", "-n", "-i", "0.01", "-c", "100", FAR[0]])?;
        net.r.run(["ip", "link", "set", "eth1", "name", "wan0"])?;
        net.r.run("ip link add eth1 type veth peer name eth9".split(' '))?;
        net.r.up("eth1")?.up("eth9")?;
        router.process.wait_for("eth1: its interface is called wan0 now, and was eth1", SOON)?;
        let report = pings.wait(SOON)?.stdout;
        assert!(report.contains("100 packets transmitted, 100 received"), "{report}");
        let shown = port(&router, "eth1")?;
        assert_eq!((&shown["state"], &shown["interface"]), (&"up".into(), &"wan0".into()), "{shown:#}");
        assert_eq!(shown["lladdr"], Value::from(net.r.mac("wan0")?));
        assert_eq!(row(&router, "eth1")?[2..4], ["up", "wan0"]);
        // Commands know the port by its name.
        assert_eq!(net.a.ping("10.9.0.1", 3)?.received, 3);
        router.say(&["neighbor", "add", "10.0.2.9", "lladdr", "02:00:00:00:00:09", "dev", "eth1"])?;
        let refusal = router.refused(&["neighbor", "flush", "dev", "wan0"], 1)?;
        assert!(refusal.contains("no port is called 'wan0'"), "{refusal}");
        // Changes are followed by the new name.
        net.r.mtu("wan0", 1400)?;
        until(SOON, || Ok(port(&router, "eth1")?["mtu"] == 1400))?;
        net.r.down("wan0")?;
        until_state(&router, "eth1", "down")?;
        net.r.up("wan0")?;
        net.r.mtu("wan0", 1500)?;
        until_all_answer(&mut router, net)?;
        end(router.process).map(drop)
    });
}

#[test]
fn a_port_whose_interface_is_made_again_forwards_again_as_what_it_is_now() {
    on_the_net("interface-again", |net| {
        let options = ["--route", "10.9.0.0/16=10.0.2.2,10.0.1.2", "--metrics", "127.0.0.1:9099"];
        net.r.up("lo")?;
        let mut router = Running::start(net, &options)?;
        let (old, sent) =
            (net.r.mac("eth1")?, sample(&net.r, "artery_port_sent_packets_total{port=\"eth1\"} ")?);
        assert_eq!(sample(&net.r, "artery_port_up{port=\"eth1\"} ")?, 1);
        delete(net)?;
        router.process.wait_for(ABSENT, SOON)?;
        until_state(&router, "eth1", "absent")?;
        let shown = port(&router, "eth1")?;
        assert_eq!((&shown["up"], &shown["interface"]), (&false.into(), &Value::Null), "{shown:#}");
        assert_eq!(row(&router, "eth1")?[2..4], ["absent", "-"]);
        assert_eq!(sample(&net.r, "artery_port_up{port=\"eth1\"} ")?, 0);
        assert_eq!(sample(&net.r, "artery_port_absent{port=\"eth1\"} ")?, 1);
        // Its routes lead nowhere, and a gateway there gets no packet of a group.
        let members = router.json(&["show", "nexthops"])?;
        let groups = members["groups"].as_array().unwrap().iter();
        let hops = groups.flat_map(|group| group["next_hops"].as_array().unwrap().iter());
        let of_port = hops.filter(|hop| hop["port"] == "eth1" && hop["gateway"] == "10.0.2.2");
        let states: Vec<_> = of_port.map(|hop| hop["state"].clone()).collect();
        assert!(!states.is_empty() && states.iter().all(|state| state == "down"), "{members:#}");
        let report = net.a.ping(FAR[0], 3)?;
        assert!(report.received == 0 && report.errors > 0, "senders get ICMP errors: {}", report.text);
        assert_eq!(net.a.ping(OWN[0], 2)?.received, 2, "the other port goes on");

        make_again(net, 1400)?;
        // The host would answer for this address without the filter that hides what arrives.
        net.r.address("eth1", "10.0.2.77/24")?;
        let arp = net.b.capture_with("eth0", &["arp"])?;
        net.r.up("eth1")?;
        router.process.wait_for(RETURNED, SOON)?;
        until_all_answer(&mut router, net)?;
        let (new, shown) = (net.r.mac("eth1")?, port(&router, "eth1")?);
        assert_ne!(old, new);
        assert_eq!((&shown["state"], &shown["interface"]), (&"up".into(), &"eth1".into()), "{shown:#}");
        assert_eq!(shown["lladdr"], Value::from(new.as_str()), "{shown:#}");
        assert_eq!(shown["mtu"], 1400, "{shown:#}");
        let told = arp.frames();
        assert!(told.iter().any(|frame| is_announcement(&frame.bytes, &new)), "the new address is announced");
        assert_eq!(net.b.ping("10.0.2.77", 2)?.received, 0, "the host does not see what arrives");
        assert_eq!(sample(&net.r, "artery_port_up{port=\"eth1\"} ")?, 1);
        let later = sample(&net.r, "artery_port_sent_packets_total{port=\"eth1\"} ")?;
        assert!(later > sent, "counters go on: {sent}, {later}");
        assert_eq!(port(&router, "eth1")?["addresses"], serde_json::json!(["10.0.2.1/24", "fd00:2::1/64"]));
        end(router.process).map(drop)
    });
}

/// Whether a frame announces to all that 10.0.2.1 is at an Ethernet address.
fn is_announcement(frame: &[u8], address: &str) -> bool {
    let sender = frame
        .get(22..28)
        .map(|bytes| bytes.iter().map(|byte| format!("{byte:02x}")).collect::<Vec<_>>().join(":"));
    sender.as_deref() == Some(address) && frame.get(28..32) == Some(&[10, 0, 2, 1]) && frame[..6] == [0xff; 6]
}

/// A number among the metrics of a router that serves them at port 9099.
fn sample(host: &Host, name: &str) -> Result<u64> {
    let text = host.enter(|| {
        let mut stream = TcpStream::connect("127.0.0.1:9099").unwrap();
        stream.write_all(b"GET /metrics HTTP/1.0\r\nHost: r\r\n\r\n").unwrap();
        let mut text = String::new();
        stream.read_to_string(&mut text).unwrap();
        text
    })?;
    let value = text.lines().find_map(|line| line.strip_prefix(name));
    Ok(value.and_then(|value| value.parse().ok()).unwrap_or_else(|| panic!("{name}: {text}")))
}

#[test]
fn an_interface_that_was_in_another_namespace_is_taken_back_and_workers_agree() {
    on_the_net("interface-moved", |net| {
        let mut router = Running::start(net, &["--workers", "2"])?;
        net.r.run(["ip", "link", "set", "eth1", "netns", net.a.namespace()])?;
        router.process.wait_for(ABSENT, SOON)?;
        until_state(&router, "eth1", "absent")?;
        net.a.run(["ip", "link", "set", "eth1", "netns", net.r.namespace()])?;
        net.r.up("eth1")?;
        router.process.wait_for(RETURNED, SOON)?;
        until_all_answer(&mut router, net)?;
        let tcp = net.a.iperf3(&net.b, FAR[0], &["-n", "2M", "-P", "4"])?;
        assert!(tcp.bits_per_second > 1e5, "{tcp:?}");
        // The other end, and with it this one.
        net.b.run(["ip", "link", "delete", "eth0"])?;
        until_state(&router, "eth1", "absent")?;
        make_again(net, 1500)?;
        net.r.up("eth1")?;
        until_all_answer(&mut router, net)?;
        end(router.process).map(drop)
    });
}

#[test]
fn an_interface_that_carries_less_than_the_ports_mtu_is_warned_of() {
    on_the_net("interface-changes", |net| {
        let ports = ["--port", "eth0=10.0.1.1/24", "--port", "eth1=10.0.2.1/24,fd00:2::1/64,mtu=1400"];
        let mut router = start_on(&net.r, &ports)?;
        until_answered(&net.a, FAR[0], &mut router.process)?;
        net.r.mtu("eth1", 1300)?;
        let warning = "eth1: its interface carries packets of 1300 bytes, and the port's MTU is to be 1400";
        router.process.wait_for(warning, SOON)?;
        net.r.mtu("eth1", 1500)?;
        until(SOON, || Ok(port(&router, "eth1")?["mtu"] == 1400))?;
        net.r.set_mac("eth1", "02:00:00:00:00:42")?;
        until(SOON, || Ok(port(&router, "eth1")?["lladdr"] == "02:00:00:00:00:42"))?;
        for _ in 0..3 {
            net.r.down("eth1")?;
            until_state(&router, "eth1", "down")?;
            net.r.up("eth1")?;
            until_state(&router, "eth1", "up")?;
        }
        until_answered(&net.a, FAR[0], &mut router.process)?;
        let stderr = end(router.process)?.stderr;
        assert_eq!(stderr.matches(warning).count(), 1, "{stderr}");
        Ok(())
    });
}

#[test]
fn fifty_interfaces_after_one_another_cost_neither_memory_nor_descriptors() {
    on_the_net("interface-fifty", |net| {
        let mut router = Running::start(net, &["--workers", "2"])?;
        let pid = router.process.id();
        let resident = || -> u64 {
            let pages = std::fs::read_to_string(format!("/proc/{pid}/statm")).unwrap();
            pages.split_whitespace().nth(1).unwrap().parse::<u64>().unwrap() * 4096
        };
        let count = |of: &str| std::fs::read_dir(format!("/proc/{pid}/{of}")).unwrap().count();
        let _load = net.a.spawn(["ping", "-n", "-q", "-i", "0.002", FAR[0]])?;
        let (mut after_ten, mut after_thirty) = ((0, 0), 0);
        for round in 0..50 {
            delete(net)?;
            make_again(net, 1500)?;
            net.r.up("eth1")?;
            // Some are gone again before they are found.
            if round % 5 == 4 {
                until_answered(&net.a, FAR[0], &mut router.process)?;
            }
            if round == 9 {
                after_ten = (resident(), count("fd"));
            }
            if round == 29 {
                after_thirty = resident();
            }
        }
        // Each worker takes its queue of the last one by itself.
        until(SOON, || Ok(net.a.ping(FAR[0], 5)?.received == 5))?;
        let (memory, files) = (resident(), count("fd"));
        // A page of a table is resident from its first write on, which comes at some time and once: what is
        // lost with each interface is lost all the time.
        let grown = [after_thirty.saturating_sub(after_ten.0), memory.saturating_sub(after_thirty)];
        let said =
            format!("{} bytes after ten, {after_thirty} after thirty, {memory} after fifty", after_ten.0);
        assert!(grown.into_iter().min() < Some(1 << 20) && memory < after_ten.0 + (8 << 20), "{said}");
        assert!(files <= after_ten.1 + 2, "{} descriptors, then {files}", after_ten.1);
        end(router.process).map(drop)
    });
}

#[test]
fn vlans_and_devices_of_other_programs_come_back_too() {
    on_the_net("interface-kinds", |net| {
        let tap =
            "from :: FromHost(tap9, ETHER 02:00:00:00:09:01, MTU 1500) -> c :: Classifier(12/0806, 12/0800);
            c[0] -> ARPResponder(10.0.3.2 02:00:00:00:09:02) -> to :: ToHost(tap9);
            c[1] -> CheckIPHeader(14) -> ICMPPingResponder -> EtherMirror -> to;";
        let guest = start(&net.r, tap, &[])?;
        let ports =
            ["--port", "eth0=10.0.1.1/24", "--port", "tap9=10.0.3.1/24", "--port", "eth1.20=10.20.0.1/24"];
        let mut router = start_on(&net.r, &ports)?;
        until_answered(&net.a, "10.0.3.2", &mut router.process)?;
        assert_eq!(port(&router, "eth1.20")?["interface"], "eth1");
        end(guest)?;
        delete(net)?;
        for name in ["tap9", "eth1.20"] {
            until_state(&router, name, "absent")?;
        }
        make_again(net, 1500)?;
        net.r.up("eth1")?;
        let guest = start(&net.r, tap, &[])?;
        for name in ["tap9", "eth1.20"] {
            until_state(&router, name, "up")?;
        }
        until_answered(&net.a, "10.0.3.2", &mut router.process)?;
        end(guest)?;
        end(router.process).map(drop)
    });
}

#[test]
fn the_hosts_interface_is_made_again_when_somebody_deletes_it() {
    on_the_net("interface-host", |net| {
        let mut router = Running::start(net, &[])?;
        assert_eq!(net.r.ping(NEAR[0], 1)?.received, 1);
        net.r.run(["ip", "link", "delete", "artery0"])?;
        router.process.wait_for("artery0: there is an interface 'artery0' again", SOON)?;
        until_answered(&net.r, NEAR[0], &mut router.process)?;
        until_answered(&net.r, FAR[1], &mut router.process)?;
        end(router.process).map(drop)
    });
}

#[test]
fn a_configuration_is_read_again_while_a_port_is_absent_or_has_another_name() {
    on_the_net("interface-reload", |net| {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("router.toml");
        let write = |more: &str| {
            let ports: Vec<String> =
                PORTS.iter().skip(1).step_by(2).map(|port| format!("{port:?}")).collect();
            std::fs::write(&file, format!("port = [{}]\n{more}", ports.join(", "))).unwrap();
        };
        write("");
        let mut router = start_on(&net.r, &[&file.display().to_string()])?;
        until_all_answer(&mut router, net)?;
        net.r.run(["ip", "link", "set", "eth1", "name", "wan0"])?;
        write("route = [\"10.9.0.0/16=10.0.2.2\"]\n");
        net.b.address("lo", "10.9.0.1/32")?;
        router.process.signal(Signal::HUP);
        until_answered(&net.a, "10.9.0.1", &mut router.process)?;
        assert_eq!(port(&router, "eth1")?["lladdr"], Value::from(net.r.mac("wan0")?));
        net.r.run(["ip", "link", "delete", "wan0"])?;
        until_state(&router, "eth1", "absent")?;
        write("route = [\"10.8.0.0/16=10.0.2.2\"]\n");
        router.process.signal(Signal::HUP);
        until(SOON, || Ok(router.say(&["show", "routes"])?.contains("10.8.0.0/16")))?;
        assert_eq!(port(&router, "eth1")?["state"], "absent");
        make_again(net, 1500)?;
        net.r.up("eth1")?;
        until_all_answer(&mut router, net)?;
        end(router.process).map(drop)
    });
}
