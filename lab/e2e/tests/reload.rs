//! SIGHUP to a running router: it reads its configuration again while packets pass, and loses none; with
//! mistakes the running configuration stays. It reopens log files, and notifies a service manager.

use crate::support::service_manager::ServiceManager;
use crate::support::switching::folder_with;
use crate::support::{FAR, Running, SOON, artery_on, under_traffic, until, wire, with_hosts};
use artery_rig::{Host, Result, Rig, Signal};
use std::path::{Path, PathBuf};
use std::time::Duration;

/// What a router says of a reload that succeeded, and of one that did not.
const REPLACED: &str = "the configuration was replaced";
const STAYS: &str = "the configuration was not replaced; the running one stays";

#[test]
fn a_router_reads_its_file_again_with_or_without_r_and_loses_nothing() {
    with_hosts("reload-run", |hosts| {
        for options in [&[][..], &["-R"]] {
            let folder = folder_with(&[("wire.click", &wire("AUTO"))]);
            let file = folder.path().join("wire.click");
            let words = [&["run", file.to_str().unwrap()][..], options].concat();
            let mut router = Running::spawn_in(folder, &hosts.r, words)?;
            router.until_answered(&hosts.a, FAR)?;
            let texts = [wire("AUTO") + " added :: Idle;", wire("AUTO")];
            let mut times = 0;
            under_traffic((&hosts.a, &hosts.b, FAR), 4000, |_| {
                std::fs::write(&file, &texts[times % 2]).unwrap();
                times += 1;
                router.reload(REPLACED).map(drop)
            })?;
            std::fs::write(&file, &texts[0]).unwrap();
            router.reload(REPLACED)?;
            assert_eq!(router.handler(&["added.class"])?.trim(), "Idle");
            std::fs::write(&file, "left :: FromDevice(eth0) -> Nonsuch;\n").unwrap();
            router.reload(STAYS)?;
            let said = router.stderr_so_far();
            assert!(said.contains("no class is called `Nonsuch`"), "{said}");
            assert!(said.contains("wire.click:1:29"), "{said}");
            std::fs::remove_file(&file).unwrap();
            router.reload(STAYS)?;
            assert!(router.stderr_so_far().contains("wire.click: No such file or directory"));
            assert_eq!(router.handler(&["added.class"])?.trim(), "Idle");
            router.until_answered(&hosts.a, FAR)?;
            router.end()?;
        }
        Ok(())
    });
}

#[test]
fn a_router_reads_its_tables_again() {
    artery_rig::test("reload-router", |rig: &Rig| {
        let (a, r, b) = (rig.host("a")?, rig.host("r")?, rig.host("b")?);
        rig.link(&a, "eth0", &r, "eth0")?;
        rig.link(&b, "eth0", &r, "eth1")?;
        a.address("eth0", "10.0.1.2/24")?.route("default", "10.0.1.1")?;
        b.address("eth0", "10.0.2.2/24")?.route("default", "10.0.2.1")?;
        b.address("lo", "192.0.2.1/32")?.address("lo", "198.51.100.1/32")?;
        let folder = folder_with(&[("routes.txt", "192.0.2.0/24\n")]);
        let table = folder.path().join("routes.txt");
        let by = format!("--table={}=10.0.2.2", table.display());
        let words =
            ["router", "--port", "eth0=10.0.1.1/24", "--port", "eth1=10.0.2.1/24", "--workers", "2", &by];
        let mut router = Running::spawn_in(folder, &r, words)?;
        router.until_answered(&a, "192.0.2.1")?;
        let answers = |address: &str| Ok::<_, artery_rig::RigError>(a.ping(address, 2)?.received);
        let until_both_answer =
            || until(SOON, || Ok(answers("192.0.2.1")? == 2 && answers("198.51.100.1")? == 2));
        assert_eq!(answers("198.51.100.1")?, 0);
        let texts = ["192.0.2.0/24\n", "192.0.2.0/24\n198.51.100.0/24\n"];
        let mut times = 0;
        under_traffic((&a, &b, "192.0.2.1"), 4000, |_| {
            times += 1;
            std::fs::write(&table, texts[times % 2]).unwrap();
            router.reload(REPLACED).map(drop)
        })?;
        std::fs::write(&table, texts[1]).unwrap();
        router.reload(REPLACED)?;
        // By the new route.
        until_both_answer()?;
        // Another MTU of the interface, which the host's interface follows.
        r.mtu("eth0", 1400)?;
        router.reload(REPLACED)?;
        let host_port = r.run(["ip", "link", "show", "artery0"])?.stdout;
        assert!(host_port.contains(" mtu 1400 "), "{host_port}");
        for (wrong, why) in [
            ("192.0.2.0/24\n203.0.113.0/33\n", "routes.txt:2: \"203.0.113.0/33\" is not a prefix"),
            ("", "No such file"),
        ] {
            match wrong {
                "" => std::fs::remove_file(&table).unwrap(),
                text => std::fs::write(&table, text).unwrap(),
            }
            router.reload(STAYS)?;
            let said = router.stderr_so_far();
            assert!(said.contains(why), "{why}: {said}");
            // The routes stay.
            until_both_answer()?;
        }
        router.end()
    });
}

/// Three hosts at 10.0.0.1 to 10.0.0.3 around `s`, by its eth0 to eth2.
struct Switch {
    hosts: [Host; 3],
    s: Host,
    folder: tempfile::TempDir,
}

impl Switch {
    fn new(rig: &Rig) -> Result<Switch> {
        let (hosts, s) = ([rig.host("a")?, rig.host("b")?, rig.host("c")?], rig.host("s")?);
        for (n, host) in hosts.iter().enumerate() {
            rig.link(host, "eth0", &s, &format!("eth{n}"))?;
            host.address("eth0", &format!("10.0.0.{}/24", n + 1))?;
        }
        // The kernel takes up to a second to say so of a link that has just come up, and a
        // switch believes the kernel.
        let is_up = |n| {
            Ok::<_, artery_rig::RigError>(s.run(["ip", "link", "show", n])?.stdout.contains(" state UP "))
        };
        until(SOON, || Ok(is_up("eth0")? && is_up("eth1")? && is_up("eth2")?))?;
        let folder = tempfile::tempdir().unwrap();
        std::fs::create_dir(folder.path().join("etc")).unwrap();
        Ok(Switch { hosts, s, folder })
    }

    fn write(&self, name: &str, text: &str) {
        std::fs::write(self.folder.path().join("etc").join(name), text).unwrap();
    }

    fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    /// Starts `artery up` with these files, and waits until it forwards.
    fn start(&self, options: &[&str]) -> Result<Running> {
        Running::switch(&self.s, &self.hosts[0], &self.path("etc"), options)
    }

    /// Waits until two pings are answered. That no packet is lost is tested with datagrams that are counted.
    fn until_reached(&self, from: usize, address: &str) -> Result<()> {
        until(SOON, || Ok(self.answers(from, address)? == 2))
    }

    /// How many of two pings are answered.
    fn answers(&self, from: usize, address: &str) -> Result<u64> {
        Ok(self.hosts[from].ping(address, 2)?.received)
    }
}

fn pfctl(switch: &Running, words: &str) -> Result<String> {
    Ok(switch.command(&["pfctl"])?.args(words.split_whitespace()).run()?.stdout)
}

#[test]
fn a_switch_reads_its_folder_again_and_keeps_states_and_tables() {
    artery_rig::test("reload-up", |rig: &Rig| {
        let net = Switch::new(rig)?;
        net.write("hostname.veb0", "add eth0\nadd eth1\nadd vport0\nlink1\nup\n");
        net.write("hostname.eth*", "up\n");
        net.write("hostname.vport0", "inet 10.0.0.9 255.255.255.0\n");
        let rules = "table <spam> persist\nblock quick from <spam>\npass\n";
        net.write("pf.conf", rules);
        let mut switch = net.start(&[])?;
        let [a, b, _] = &net.hosts;
        net.until_reached(0, "10.0.0.9")?;
        assert_eq!(net.answers(0, "10.0.0.3")?, 0);
        pfctl(&switch, "-t spam -T add 10.0.0.99")?;
        under_traffic((a, b, "10.0.0.2"), 4000, |_| switch.reload(REPLACED).map(drop))?;

        // Rules that let only pings pass: a connection that is there goes on, a new one does not begin.
        let connection = std::thread::scope(|scope| {
            let running = scope.spawn(|| a.iperf3(b, "10.0.0.2", &["-t", "3"]));
            until(SOON, || Ok(pfctl(&switch, "-s states")?.matches("5201").count() >= 2))?;
            net.write("pf.conf", &(rules.to_string() + "block proto tcp\n"));
            switch.reload(REPLACED)?;
            // A port more, in front of others: states are kept there, too.
            net.write("hostname.veb0", "add eth2\nadd eth0\nadd eth1\nadd vport0\nlink1\nup\n");
            switch.reload(REPLACED)?;
            running.join().unwrap_or_else(|cause| std::panic::resume_unwind(cause))
        })?;
        assert!(connection.bits_per_second > 1e6, "{connection:?}");
        assert!(a.iperf3(b, "10.0.0.2", &["-t", "1", "--connect-timeout", "1000"]).is_err());
        net.until_reached(0, "10.0.0.2")?;
        // By the new port.
        net.until_reached(0, "10.0.0.3")?;
        let spam = pfctl(&switch, "-t spam -T show")?;
        assert_eq!(spam.trim(), "10.0.0.99", "what was put into a table stays");

        // The host's own port gets another address.
        net.write("hostname.vport0", "inet 10.0.0.8 255.255.255.0\n");
        switch.reload(REPLACED)?;
        net.until_reached(0, "10.0.0.8")?;
        assert_eq!(net.answers(0, "10.0.0.9")?, 0);

        // With mistakes all stays, and each is named with its line.
        for (name, wrong, why) in [
            ("pf.conf", "pass\nblock frob\n", "pf.conf:2"),
            ("hostname.veb0", "add eth0\nfrob eth1\n", "hostname.veb0:2"),
            ("hostname.veb0", "add eth0\nadd eth7\nup\n", "eth7"),
        ] {
            let before = std::fs::read_to_string(net.path("etc").join(name)).unwrap();
            net.write(name, wrong);
            switch.reload(STAYS)?;
            let said = switch.stderr_so_far();
            assert!(said.contains(why), "{why}: {said}");
            net.write(name, &before);
            net.until_reached(0, "10.0.0.2")?;
            net.until_reached(0, "10.0.0.3")?;
            assert!(a.iperf3(b, "10.0.0.2", &["-t", "1", "--connect-timeout", "1000"]).is_err(), "{why}");
        }

        // A port that is not the switch's any more can be another's.
        let other = || Running::spawn(&net.s, ["router", "--no-host", "--port", "eth2=10.9.0.1/24"]);
        let mut refused = other()?;
        assert!(refused.wait(SOON)?.stderr.contains("another router has eth2 as its port"));
        net.write("hostname.veb0", "add eth0\nadd eth1\nadd vport0\nlink1\nup\n");
        switch.reload(REPLACED)?;
        // Once the switch has closed it.
        let mut router = other()?;
        until(SOON, || {
            if !router.is_running() {
                router = other()?;
            }
            Ok(router.call(&["show", "ports"])?.succeeded())
        })?;
        router.end()?;
        net.until_reached(0, "10.0.0.2")?;
        switch.end()
    });
}

/// Packets in a file of pcap, which must be whole.
fn packets(path: &Path) -> usize {
    let bytes = std::fs::read(path).unwrap();
    assert_eq!(bytes[..4], 0xa1b2_c3d4_u32.to_le_bytes(), "{}", path.display());
    let (mut at, mut count) = (24, 0);
    while at < bytes.len() {
        let length = u32::from_le_bytes(bytes[at + 8..at + 12].try_into().unwrap());
        at += 16 + length as usize;
        count += 1;
    }
    assert_eq!(at, bytes.len(), "{}: the last record is cut short", path.display());
    count
}

#[test]
fn a_log_of_packets_is_opened_again_also_where_the_rules_are_refused() {
    artery_rig::test("reload-pflog", |rig: &Rig| {
        let net = Switch::new(rig)?;
        net.write("hostname.veb0", "add eth0\nadd eth1\nlink1\nup\n");
        net.write("hostname.eth*", "up\n");
        net.write("pf.conf", "pass log (all)\n");
        let log = net.path("pflog");
        let mut switch = net.start(&["--pflog", log.to_str().unwrap()])?;
        let mut files = Vec::new();
        for (n, (rules, outcome)) in
            [("pass log (all)\n", REPLACED), ("pass frob\n", STAYS)].into_iter().enumerate()
        {
            net.until_reached(0, "10.0.0.2")?;
            until(SOON, || Ok(packets(&log) >= 4))?;
            let renamed = net.path(&format!("pflog.{n}"));
            std::fs::rename(&log, &renamed).unwrap();
            net.write("pf.conf", rules);
            switch.reload(outcome)?;
            // The graph that was replaced writes what it has and closes its file.
            std::thread::sleep(Duration::from_millis(100));
            files.push((renamed.clone(), packets(&renamed)));
            net.until_reached(0, "10.0.0.2")?;
            until(SOON, || Ok(log.exists() && packets(&log) >= 4))?;
        }
        switch.end()?;
        for (path, before) in files {
            assert_eq!(packets(&path), before, "nothing is added to {}", path.display());
        }
        let shown = net.s.command(["tcpdump", "-n", "-e", "-r"]).arg(&log).run()?.stdout;
        assert!(shown.contains("pass in on eth0: 10.0.0.1 > 10.0.0.2: ICMP echo request"), "{shown}");
        Ok(())
    });
}

#[test]
fn a_service_manager_is_told_when_packets_are_forwarded_and_of_reloads() {
    artery_rig::test("reload-notify", |rig: &Rig| {
        let net = Switch::new(rig)?;
        net.write("hostname.veb0", "add eth0\nadd eth1\nup\n");
        net.write("hostname.eth*", "up\n");
        let (file, table) = (net.path("wire.click"), net.path("routes.txt"));
        std::fs::write(&file, wire("AUTO")).unwrap();
        std::fs::write(&table, "192.0.2.0/24\n").unwrap();
        let manager = ServiceManager::new(net.folder.path());
        let up = artery_on(&net.s, ["up", "--etc"])?.arg(net.path("etc"));
        let run = artery_on(&net.s, ["run"])?.arg(&file);
        let router = artery_on(&net.s, ["router", "--port", "eth0=10.0.1.1/24", "--table"])?;
        let router = router.arg(format!("{}=10.0.1.2", table.display()));
        let etc = net.path("etc").join("hostname.veb0");
        for (command, forwards, read) in [(up, true, &etc), (run, true, &file), (router, false, &table)] {
            let text = std::fs::read_to_string(read).unwrap();
            let command = command.env("NOTIFY_SOCKET", &manager.path).env("WATCHDOG_USEC", "200000");
            let mut process = command.arg("-u").arg(net.path("control")).spawn()?;
            assert_eq!(manager.wait_for(&mut process, "READY=1")?, "READY=1\nSTATUS=forwarding");
            if forwards {
                // At once: the first packet after that passes.
                assert_eq!(net.hosts[0].ping_with("10.0.0.2", 1, &["-W", "5"])?.received, 1);
            }
            manager.wait_for(&mut process, "WATCHDOG=1")?;
            process.signal(Signal::HUP);
            assert!(manager.wait_for(&mut process, "RELOADING=1")?.contains("\nMONOTONIC_USEC="));
            assert_eq!(manager.wait_for(&mut process, "READY=1")?, "READY=1\nSTATUS=forwarding");
            std::fs::write(read, "frob 1.2.3\n").unwrap();
            process.signal(Signal::HUP);
            manager.wait_for(&mut process, "RELOADING=1")?;
            assert!(
                manager.wait_for(&mut process, "READY=1")?.contains("the one that was read again is refused")
            );
            std::fs::write(read, text).unwrap();
            manager.wait_for(&mut process, "WATCHDOG=1")?;
            process.signal(Signal::TERM);
            manager.wait_for(&mut process, "STOPPING=1")?;
            assert_eq!(process.wait(SOON)?.code(), Some(0));
        }
        Ok(())
    });
}
