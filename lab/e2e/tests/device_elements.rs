//! FromDevice, ToDevice, FromHost and ToHost at interfaces of the kernel: frames pass, the host sees what it
//! should, and neither a vanished interface nor a replaced configuration harms.

use crate::support::{FAR, Running, SOON, end_by, start, until, until_seen, wire, with_hosts};
use artery_rig::{Host, Process, Result, Signal};
use std::time::Instant;

/// The router's output, except the lines that name its receive method and the signal that ends it.
fn besides_ways(said: &str) -> Vec<&str> {
    let is_usual = |line: &str| line.contains("packet sockets with") || line.contains("SIGINT was received");
    said.lines().filter(|line| !is_usual(line)).collect()
}

#[test]
fn frames_pass_from_one_interface_to_another() {
    with_hosts("elements-wire", |hosts| {
        let router = start(&hosts.r, &wire("AUTO"), &["-h", "left.count", "-h", "left_out.count"])?;
        let report = hosts.a.ping_with(FAR, 50, &["-i", "0.01", "-s", "1400"])?;
        assert_eq!((report.received, report.duplicates), (50, 0), "{}", report.text);
        let output = end_by(router, Signal::INT)?;
        let counts: Vec<u64> = output.stdout.lines().filter_map(|line| line.parse().ok()).collect();
        assert!(counts.len() == 2 && counts.iter().all(|count| *count >= 50), "{}", output.stdout);
        Ok(())
    });
}

#[test]
fn top_and_ports_tell_how_long_frames_waited() {
    with_hosts("elements-waits", |hosts| {
        let router = Running::run(&hosts.r, &wire("LINUX"), &[])?;
        assert!(router.say(&["top", "--once", "--every", "50ms"])?.starts_with("router of 2 ports: "));
        assert_eq!(hosts.a.ping_with(FAR, 20, &["-i", "0.01"])?.received, 20);
        let ports = router.handler(&["ports"])?;
        let column =
            ports.lines().next().and_then(|titles| titles.split('\t').position(|title| title == "in_delays"));
        let delays = |line: &str| -> u64 {
            let counts = line.split('\t').nth(column.expect("ports tells delays")).expect("each port has it");
            counts.split(',').map(|count| count.parse::<u64>().expect("counts are numbers")).sum()
        };
        for line in ports.lines().skip(1) {
            // Each ping came alone.
            assert!(delays(line) >= 20, "{ports}");
        }
        end_by(router.process, Signal::INT).map(drop)
    });
}

#[test]
fn the_host_sees_what_a_sniffer_receives_and_nothing_without_one() {
    with_hosts("elements-sniffer", |hosts| {
        hosts.r.address("eth0", "10.0.0.9/24")?;
        for (sniffer, answers) in [("true", 3), ("false", 0)] {
            let config = format!("from :: FromDevice(eth0, SNIFFER {sniffer}) -> Discard;");
            let router = start(&hosts.r, &config, &["-h", "from.count"])?;
            assert_eq!(hosts.a.ping("10.0.0.9", 3)?.received, answers, "SNIFFER {sniffer}");
            let output = end_by(router, Signal::INT)?;
            let count = output.stdout.lines().last().and_then(|line| line.parse::<u64>().ok());
            assert!(count >= Some(3), "SNIFFER {sniffer}: {}", output.stdout);
            assert_eq!(hosts.a.ping("10.0.0.9", 1)?.received, 1, "the host answers again");
        }
        Ok(())
    });
}

#[test]
fn that_an_interface_vanished_is_said_once() {
    with_hosts("elements-vanish", |hosts| {
        let mut router = start(&hosts.r, &wire("AUTO"), &[])?;
        assert_eq!(hosts.a.ping(FAR, 1)?.received, 1);
        hosts.r.run(["ip", "link", "delete", "eth1"])?;
        router.wait_for("eth1: interface vanished while in use; the port is absent until", SOON)?;
        // Frames for the interface that is gone.
        for _ in 0..2 {
            assert_eq!(hosts.a.ping_with(FAR, 20, &["-i", "0.01"])?.received, 0);
        }
        assert!(router.is_running());
        let said = end_by(router, Signal::INT)?.stderr;
        let said = besides_ways(&said);
        // Each of the port's two elements may see it go down before it is gone.
        let is_down = |line: &&str| line.contains("eth1: interface is down;");
        let (down, others): (Vec<&str>, Vec<&str>) = said.iter().partition(|line| is_down(line));
        assert!(others.len() == 1 && others[0].contains("interface vanished") && down.len() <= 2, "{said:?}");
        Ok(())
    });
}

#[test]
fn the_host_talks_by_a_device_of_the_router() {
    with_hosts("elements-host", |hosts| {
        let mac = hosts.r.mac("eth0")?;
        let config = format!(
            "FromDevice(eth0, SNIFFER false) -> to :: ToHost(host0);
             from :: FromHost(host0, 10.0.0.9/24, ETHER {mac}) -> Queue -> ToDevice(eth0);"
        );
        let router = start(&hosts.r, &config, &["-h", "to.count", "-h", "from.count"])?;
        let report = hosts.a.ping_with("10.0.0.9", 20, &["-i", "0.01"])?;
        assert_eq!((report.received, report.duplicates), (20, 0), "{}", report.text);
        assert_eq!(hosts.r.ping("10.0.0.1", 3)?.received, 3);
        let output = end_by(router, Signal::INT)?;
        let counts: Vec<u64> = output.stdout.lines().filter_map(|line| line.parse().ok()).collect();
        assert!(counts.len() == 2 && counts.iter().all(|count| *count >= 23), "{}", output.stdout);
        assert!(!hosts.r.interfaces()?.contains(&"host0".to_string()), "the device ends with the router");
        Ok(())
    });
}

/// The packet sockets of a host, by their inode numbers.
fn sockets(host: &Host) -> Result<Vec<String>> {
    let text = host.run(["cat", "/proc/net/packet"])?.stdout;
    let inode = |line: &str| line.split_whitespace().last().map(str::to_string);
    let mut inodes: Vec<String> = text.lines().skip(1).filter_map(inode).collect();
    inodes.sort();
    Ok(inodes)
}

#[test]
fn a_replaced_configuration_goes_on_with_the_same_sockets_and_loses_nothing() {
    with_hosts("elements-replace", |hosts| {
        let mut router = start(&hosts.r, &wire("AUTO"), &["-R", "-h", "left.count"])?;
        assert_eq!(hosts.a.ping(FAR, 1)?.received, 1);
        let before = sockets(&hosts.r)?;
        assert!(before.len() >= 4, "{before:?}");
        let mut ping = hosts.a.spawn(["ping", "-i", "0.005", "-c", "400", "10.0.0.2"])?;
        let deadline = Instant::now() + SOON;
        let mut times = 0;
        while ping.is_running() && Instant::now() < deadline {
            router.signal(Signal::HUP);
            times += 1;
            replaced(&router, times)?;
        }
        let pinged = ping.wait(SOON)?.stdout;
        assert!(times > 1 && pinged.contains("400 packets transmitted, 400 received"), "{times}: {pinged}");
        assert_eq!(sockets(&hosts.r)?, before);
        let output = end_by(router, Signal::INT)?;
        let count = output.stdout.lines().last().and_then(|line| line.parse::<u64>().ok());
        assert!(count >= Some(401), "{}", output.stdout);
        let ways = output.stderr.lines().filter(|line| line.contains("packet sockets with")).count();
        assert_eq!(ways, 2, "each interface's way is said once, not with every graph: {}", output.stderr);
        let mut said = besides_ways(&output.stderr);
        said.retain(|line| !line.contains("was replaced"));
        assert!(said.is_empty(), "{said:?}");
        Ok(())
    });
}

/// Waits until the router has said so many times that its configuration was replaced.
fn replaced(router: &Process, times: usize) -> Result<()> {
    const REPLACED: &str = "the configuration was replaced";
    until_seen(router, REPLACED, || Ok(router.stderr_so_far().matches(REPLACED).count() >= times))
}

#[test]
fn a_port_that_is_closed_leaves_no_level_of_monitoring_to_the_next_of_its_number() {
    with_hosts("elements-monitor", |hosts| {
        let router = Running::run(&hosts.r, "FromDevice(eth0, MONITOR l0) -> Discard;", &["-R"])?;
        let level = || -> Result<Option<String>> {
            let table = router.handler(&["ports"])?;
            let row = table.lines().nth(1);
            Ok(row.and_then(|row| row.split('\t').nth(3)).map(str::to_string))
        };
        until(SOON, || Ok(level()?.as_deref() == Some("l0")))?;
        router.replace("Idle -> Discard;")?;
        until(SOON, || Ok(level()?.is_none()))?;
        router.replace("FromHost(host0, 10.9.0.1/24) -> Discard;")?;
        assert_eq!(level()?.as_deref(), Some("off"));
        router.end()
    });
}
