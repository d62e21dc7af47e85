//! SIGHUP to a running router: it reads its configuration again while packets pass, and loses none; with
//! mistakes the running configuration stays. It reopens log files, and notifies a service manager.

use crate::support::service_manager::ServiceManager;
use crate::support::{FAR, SOON, end, under_traffic, until, until_answered, wire, with_hosts};
use artery_rig::program::artery;
use artery_rig::{Command, Host, Process, Result, Rig, Signal};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

/// What a router says of a reload that succeeded, and of one that did not.
const REPLACED: &str = "the configuration was replaced";
const STAYS: &str = "the configuration was not replaced; the running one stays";

/// Signals a router to reload, and waits until it has reported the outcome once more than before.
fn reload(router: &mut Process, outcome: &str) -> Result<()> {
    let count = |router: &Process| router.stderr_so_far().matches(outcome).count();
    let before = count(router);
    router.signal(Signal::HUP);
    let deadline = Instant::now() + SOON;
    while count(router) == before {
        assert!(router.is_running(), "SIGHUP ended it: {}", router.stderr_so_far());
        assert!(Instant::now() < deadline, "not said: {outcome}: {}", router.stderr_so_far());
        std::thread::sleep(Duration::from_millis(5));
    }
    Ok(())
}

#[test]
fn a_router_reads_its_file_again_with_or_without_r_and_loses_nothing() {
    with_hosts("reload-run", |hosts| {
        for options in [&[][..], &["-R"]] {
            let folder = tempfile::tempdir().unwrap();
            let (file, socket) = (folder.path().join("wire.click"), folder.path().join("control"));
            std::fs::write(&file, wire("AUTO")).unwrap();
            let command = hosts.r.command([artery()?]).arg("run").arg(&file).args(options);
            let mut router = command.arg("-u").arg(&socket).spawn()?;
            until_answered(&hosts.a, FAR, &mut router)?;
            let texts = [wire("AUTO") + " added :: Idle;", wire("AUTO")];
            let mut times = 0;
            under_traffic((&hosts.a, &hosts.b, FAR), 4000, |_| {
                std::fs::write(&file, &texts[times % 2]).unwrap();
                times += 1;
                reload(&mut router, REPLACED)
            })?;
            let ask = |handler: &str| {
                let command = hosts.r.command([artery()?]).arg("handler").arg("-u").arg(&socket);
                command.arg(handler).output()
            };
            std::fs::write(&file, &texts[0]).unwrap();
            reload(&mut router, REPLACED)?;
            assert_eq!(ask("added.class")?.stdout.trim(), "Idle");
            std::fs::write(&file, "left :: FromDevice(eth0) -> Nonsuch;\n").unwrap();
            reload(&mut router, STAYS)?;
            let said = router.stderr_so_far();
            assert!(said.contains("no class is called `Nonsuch`"), "{said}");
            assert!(said.contains("wire.click:1:29"), "{said}");
            std::fs::remove_file(&file).unwrap();
            reload(&mut router, STAYS)?;
            assert!(router.stderr_so_far().contains("wire.click: No such file or directory"));
            assert_eq!(ask("added.class")?.stdout.trim(), "Idle");
            until_answered(&hosts.a, FAR, &mut router)?;
            end(router)?;
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
        let folder = tempfile::tempdir().unwrap();
        let (table, socket) = (folder.path().join("routes.txt"), folder.path().join("control"));
        std::fs::write(&table, "192.0.2.0/24\n").unwrap();
        let command = r.command([artery()?]).arg("router").args(["--port", "eth0=10.0.1.1/24"]);
        let command = command.args(["--port", "eth1=10.0.2.1/24", "--workers", "2", "--table"]);
        let command = command.arg(format!("{}=10.0.2.2", table.display()));
        let mut router = command.arg("-u").arg(&socket).spawn()?;
        until_answered(&a, "192.0.2.1", &mut router)?;
        let answers = |address: &str| Ok::<_, artery_rig::RigError>(a.ping(address, 2)?.received);
        let until_both_answer =
            || until(SOON, || Ok(answers("192.0.2.1")? == 2 && answers("198.51.100.1")? == 2));
        assert_eq!(answers("198.51.100.1")?, 0);
        let texts = ["192.0.2.0/24\n", "192.0.2.0/24\n198.51.100.0/24\n"];
        let mut times = 0;
        under_traffic((&a, &b, "192.0.2.1"), 4000, |_| {
            times += 1;
            std::fs::write(&table, texts[times % 2]).unwrap();
            reload(&mut router, REPLACED)
        })?;
        std::fs::write(&table, texts[1]).unwrap();
        reload(&mut router, REPLACED)?;
        // By the new route.
        until_both_answer()?;
        // Another MTU of the interface, which the host's interface follows.
        r.mtu("eth0", 1400)?;
        reload(&mut router, REPLACED)?;
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
            reload(&mut router, STAYS)?;
            let said = router.stderr_so_far();
            assert!(said.contains(why), "{why}: {said}");
            // The routes stay.
            until_both_answer()?;
        }
        end(router).map(drop)
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

    /// `artery up` with these files, not started yet.
    fn command(&self) -> Result<Command> {
        let command = self.s.command([artery()?]).arg("up").arg("--etc").arg(self.path("etc"));
        Ok(command.arg("-u").arg(self.path("control")))
    }

    fn start(&self, options: &[&str]) -> Result<Process> {
        let mut process = self.command()?.args(options).spawn()?;
        until_answered(&self.hosts[0], "10.0.0.2", &mut process)?;
        Ok(process)
    }

    fn pfctl(&self, words: &str) -> Result<String> {
        let command = self.s.command([artery()?]).arg("pfctl").args(words.split_whitespace());
        Ok(command.env("ARTERY_SOCKET", self.path("control")).run()?.stdout)
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
        net.pfctl("-t spam -T add 10.0.0.99")?;
        under_traffic((a, b, "10.0.0.2"), 4000, |_| reload(&mut switch, REPLACED))?;

        // Rules that let only pings pass: a connection that is there goes on, a new one does not begin.
        let connection = std::thread::scope(|scope| {
            let running = scope.spawn(|| a.iperf3(b, "10.0.0.2", &["-t", "3"]));
            until(SOON, || Ok(net.pfctl("-s states")?.matches("5201").count() >= 2))?;
            net.write("pf.conf", &(rules.to_string() + "block proto tcp\n"));
            reload(&mut switch, REPLACED)?;
            // A port more, in front of others: states are kept there, too.
            net.write("hostname.veb0", "add eth2\nadd eth0\nadd eth1\nadd vport0\nlink1\nup\n");
            reload(&mut switch, REPLACED)?;
            running.join().unwrap_or_else(|cause| std::panic::resume_unwind(cause))
        })?;
        assert!(connection.bits_per_second > 1e6, "{connection:?}");
        assert!(a.iperf3(b, "10.0.0.2", &["-t", "1", "--connect-timeout", "1000"]).is_err());
        net.until_reached(0, "10.0.0.2")?;
        // By the new port.
        net.until_reached(0, "10.0.0.3")?;
        let spam = net.pfctl("-t spam -T show")?;
        assert_eq!(spam.trim(), "10.0.0.99", "what was put into a table stays");

        // The host's own port gets another address.
        net.write("hostname.vport0", "inet 10.0.0.8 255.255.255.0\n");
        reload(&mut switch, REPLACED)?;
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
            reload(&mut switch, STAYS)?;
            let said = switch.stderr_so_far();
            assert!(said.contains(why), "{why}: {said}");
            net.write(name, &before);
            net.until_reached(0, "10.0.0.2")?;
            net.until_reached(0, "10.0.0.3")?;
            assert!(a.iperf3(b, "10.0.0.2", &["-t", "1", "--connect-timeout", "1000"]).is_err(), "{why}");
        }

        // A port that is not the switch's any more can be another's.
        let other = |net: &Switch| {
            let command =
                net.s.command([artery()?]).args(["router", "--no-host", "--port", "eth2=10.9.0.1/24"]);
            command.arg("-u").arg(net.path("other")).spawn()
        };
        let mut refused = other(&net)?;
        assert!(refused.wait(SOON)?.stderr.contains("another router has eth2 as its port"));
        net.write("hostname.veb0", "add eth0\nadd eth1\nadd vport0\nlink1\nup\n");
        reload(&mut switch, REPLACED)?;
        // Once the switch has closed it.
        let mut router = other(&net)?;
        let asked =
            || net.s.command([artery()?]).args(["show", "ports", "-u"]).arg(net.path("other")).output();
        until(SOON, || {
            if !router.is_running() {
                router = other(&net)?;
            }
            Ok(asked()?.succeeded())
        })?;
        end(router)?;
        net.until_reached(0, "10.0.0.2")?;
        end(switch).map(drop)
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
            reload(&mut switch, outcome)?;
            // The graph that was replaced writes what it has and closes its file.
            std::thread::sleep(Duration::from_millis(100));
            files.push((renamed.clone(), packets(&renamed)));
            net.until_reached(0, "10.0.0.2")?;
            until(SOON, || Ok(log.exists() && packets(&log) >= 4))?;
        }
        end(switch)?;
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
        let run = net.s.command([artery()?]).arg("run").arg(&file).arg("-u").arg(net.path("control"));
        let router = net.s.command([artery()?]).args(["router", "--port", "eth0=10.0.1.1/24"]);
        let router = router.arg("--table").arg(format!("{}=10.0.1.2", table.display()));
        let router = router.arg("-u").arg(net.path("control"));
        let etc = net.path("etc").join("hostname.veb0");
        for (command, forwards, read) in
            [(net.command()?, true, &etc), (run, true, &file), (router, false, &table)]
        {
            let text = std::fs::read_to_string(read).unwrap();
            let command = command.env("NOTIFY_SOCKET", &manager.path).env("WATCHDOG_USEC", "200000");
            let mut process = command.spawn()?;
            assert_eq!(manager.told("READY=1"), "READY=1\nSTATUS=forwarding");
            if forwards {
                // At once: the first packet after that passes.
                assert_eq!(net.hosts[0].ping_with("10.0.0.2", 1, &["-W", "5"])?.received, 1);
            }
            manager.told("WATCHDOG=1");
            process.signal(Signal::HUP);
            assert!(manager.told("RELOADING=1").contains("\nMONOTONIC_USEC="));
            assert_eq!(manager.told("READY=1"), "READY=1\nSTATUS=forwarding");
            std::fs::write(read, "frob 1.2.3\n").unwrap();
            process.signal(Signal::HUP);
            manager.told("RELOADING=1");
            assert!(manager.told("READY=1").contains("the one that was read again is refused"));
            std::fs::write(read, text).unwrap();
            manager.told("WATCHDOG=1");
            process.signal(Signal::TERM);
            manager.told("STOPPING=1");
            assert_eq!(process.wait(SOON)?.code(), Some(0));
        }
        Ok(())
    });
}
