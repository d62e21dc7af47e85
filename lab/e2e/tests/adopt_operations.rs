//! How a running `artery adopt` is operated: its control socket, metrics, log, captures, messages to a
//! service manager, and rights.

use crate::support::adopting::{Net, on_the_net};
use crate::support::service_manager::ServiceManager;
use crate::support::{Running, artery_on, until};
use artery_rig::program::artery;
use artery_rig::{Process, Result};
use std::net::TcpStream;
use std::os::unix::net::UnixStream;
use std::time::Duration;

/// Loading programs takes seconds of its own where all else on the machine is busy, too.
const SOON: Duration = Duration::from_secs(60);
/// A chain that keeps all IPv4 packets with the kernel.
const DROP: &str = "add table ip f; add chain ip f c { type filter hook forward priority 0; policy drop; }";

/// Adopts both ports of `r` by tc, with more options, and has the neighbors known.
fn adopt(net: &Net, options: &[&str]) -> Result<Running> {
    adopt_by("tc", net, options)
}

fn adopt_by(path: &str, net: &Net, options: &[&str]) -> Result<Running> {
    let adopted = Running::adopt(net, path, options)?;
    net.a.ping_with("10.0.2.2", 5, &["-i", "0.01"])?;
    Ok(adopted)
}

/// The answer to a request for metrics.
fn get(mut stream: impl std::io::Read + std::io::Write) -> String {
    stream.write_all(b"GET /metrics HTTP/1.1\r\nHost: r\r\n\r\n").expect("the server listens");
    let mut text = String::new();
    stream.read_to_string(&mut text).expect("an answer");
    text
}

fn value(metrics: &str, sample: &str) -> f64 {
    let line = metrics.lines().find_map(|line| line.strip_prefix(sample));
    let value = line.and_then(|value| value.trim().parse().ok());
    value.unwrap_or_else(|| panic!("no sample {sample}: {metrics}"))
}

#[test]
fn metrics_tell_what_goes_past_the_kernel_and_what_does_not() {
    on_the_net("adopt-metrics", |net| {
        let folder = tempfile::tempdir().expect("a folder");
        let metrics = folder.path().join("metrics");
        let at = format!("unix:{}", metrics.display());
        let mut adopted = adopt(net, &["--metrics", &at, "--metrics", "127.0.0.1:9470"])?;
        net.r.up("lo")?;
        let now = || get(UnixStream::connect(&metrics).expect("a socket"));
        let received = "artery_adopt_received_packets_total{port=\"eth0\",path=\"tc\"}";
        let before = now();
        assert!(before.starts_with("HTTP/1.1 200 OK\r\n"), "{before}");
        assert_eq!(net.a.ping_with("10.0.2.2", 20, &["-i", "0.01"])?.received, 20);
        let after = now();
        assert_eq!(value(&after, received) - value(&before, received), 20.0);
        let local = "artery_adopt_kernel_packets_total{port=\"eth0\",reason=\"kernel-route\"}";
        net.a.ping("10.0.1.1", 1)?;
        assert!(value(&now(), local) >= value(&after, local) + 1.0);
        assert!(value(&after, "artery_adopt_prefixes{family=\"ipv4\"}") >= 4.0);
        let version = env!("CARGO_PKG_VERSION");
        let program = format!("artery_build_info{{version=\"{version}\",mode=\"adopt\"}}");
        assert_eq!(value(&after, &program), 1.0);

        // The page shows a filter, and that nothing is forwarded by then.
        let open = "artery_adopt_accelerated{port=\"eth0\",family=\"ipv4\",direction=\"in\"}";
        assert_eq!(value(&now(), open), 1.0);
        net.r.run(["nft", DROP])?;
        until(SOON, || Ok(value(&now(), open) == 0.0))?;
        let guards = "artery_adopt_guards{kind=\"nftables\",port=\"all\",family=\"ipv4\",direction=\"both\"}";
        assert_eq!(value(&now(), guards), 1.0);

        let by_tcp = net.r.enter(|| get(TcpStream::connect("127.0.0.1:9470").expect("a port")))?;
        assert!(by_tcp.contains(received), "{by_tcp}");
        adopted.stop(SOON)?;
        assert!(!metrics.exists() && !adopted.socket.exists(), "sockets go with the program");
        Ok(())
    });
}

#[test]
fn the_control_socket_tells_its_state_and_reads_everything_again() {
    on_the_net("adopt-control", |net| {
        let mut adopted = adopt(net, &[])?;
        let state = adopted.state()?;
        assert_eq!(state["schema_version"], 1);
        assert_eq!(state["ports"][0]["name"], "eth0");
        assert_eq!(state["ports"][1]["name"], "eth1");
        assert!(state["ports"][0]["received"].as_u64() >= Some(4), "{state}");
        assert!(adopted.handler(&["handlers"])?.contains("metrics\tr"));
        assert!(adopted.handler(&["report"])?.starts_with("eth0: "));
        let looks = || -> Result<Option<u64>> { Ok(adopted.state()?["tables"]["looks"].as_u64()) };
        let before = looks()?;
        net.r.run(["kill", "-HUP", &adopted.id().to_string()])?;
        until(SOON, || Ok(looks()? > before))?;
        adopted.stop(SOON).map(drop)
    });
}

/// Following the kernel for long is progress: the programs' lease is renewed meanwhile.
#[test]
fn programs_forward_while_a_large_table_is_read_again() {
    on_the_net("adopt-reread", |net| {
        let route = |n: u32| format!("route add 100.{}.{}.0/24 via 10.0.2.2\n", n >> 8, n & 255);
        net.r.command(["ip", "-batch", "-"]).input((0..60_000).map(route).collect::<String>()).run()?;
        let mut adopted = adopt(net, &[])?;
        assert!(adopted.state()?["tables"]["ipv4_prefixes"].as_u64() >= Some(60_000));
        let looks = || -> Result<Option<u64>> { Ok(adopted.state()?["tables"]["looks"].as_u64()) };
        let mut pings = net.a.spawn(["ping", "-q", "-i", "0.002", "10.0.2.2"])?;
        for _ in 0..3 {
            let before = looks()?;
            net.r.run(["kill", "-HUP", &adopted.id().to_string()])?;
            until(3 * SOON, || Ok(looks()? > before))?;
        }
        pings.stop(SOON)?;
        let after = adopted.state()?;
        assert_eq!([0, 1].map(|port| &after["ports"][port]["kernel"]["stale"]), [0, 0], "{after}");
        assert!(after["ports"][0]["received"].as_u64() >= Some(100), "{after}");
        adopted.stop(SOON).map(drop)
    });
}

#[test]
fn top_shows_rates_and_what_is_left_to_the_kernel() {
    on_the_net("adopt-top", |net| {
        let mut adopted = adopt(net, &[])?;
        let mut pings = net.a.spawn(["ping", "-i", "0.01", "10.0.2.2"])?;
        let top = adopted.say(&["top", "--once"])?;
        pings.stop(SOON)?;
        assert!(top.contains("forwarded past the kernel, 0/s by it: 100.0 % accelerated"), "{top}");
        let port = top.lines().find(|line| line.starts_with("eth0 ")).expect("a line of eth0");
        let words: Vec<&str> = port.split_whitespace().collect();
        assert_eq!(words[1..4], ["tc", "fast", "fast"], "{top}");
        assert!(words[4].parse::<u32>().is_ok_and(|rate| rate > 5), "{top}");
        assert!(top.contains("Nothing keeps traffic between these ports"), "{top}");
        adopted.stop(SOON)?;
        let gone = adopted.call(&["top", "--once"])?;
        assert!(gone.stderr.contains("can't reach"), "{}", gone.stderr);
        Ok(())
    });
}

/// By tc both sides are counted by the kernel as if it had forwarded itself: the driver receives and sends.
#[test]
fn the_counters_of_interfaces_hold_what_goes_past_the_kernel_by_tc() {
    on_the_net("adopt-interface-counters", |net| {
        let mut adopted = adopt(net, &[])?;
        let before = [net.r.counters("eth0")?, net.r.counters("eth1")?];
        assert_eq!(net.a.ping_with("10.0.2.2", 100, &["-i", "0.005"])?.received, 100);
        let after = [net.r.counters("eth0")?, net.r.counters("eth1")?];
        for (before, after) in before.iter().zip(&after) {
            let [received, sent] =
                [after.rx_packets - before.rx_packets, after.tx_packets - before.tx_packets];
            assert!(received >= 100 && sent >= 100, "{received} {sent}");
        }
        adopted.stop(SOON).map(drop)
    });
}

#[test]
fn tcpdump_reads_what_was_captured_and_plain_programs_forward_again() {
    on_the_net("adopt-capture", |net| {
        let mut adopted = adopt(net, &[])?;
        let file = adopted.folder.path().join("frames.pcapng");
        let name = file.to_str().expect("a name");
        let words = ["capture", "--count", "20", "--timeout", "30", "-w", name];
        let mut capture = adopted.command(&words)?.spawn()?;
        capture.wait_for("capturing", SOON)?;
        assert_eq!(net.a.ping_with("10.0.2.2", 30, &["-i", "0.01"])?.received, 30);
        let captured = capture.wait(SOON)?;
        assert!(captured.succeeded() && captured.stderr.contains(" frames captured, 0 lost"), "{captured:?}");
        let read = net.r.run(["tcpdump", "-nr", name])?.stdout;
        let [to, from] = ["10.0.1.2 > 10.0.2.2: ICMP echo request", "10.0.2.2 > 10.0.1.2: ICMP echo reply"]
            .map(|wanted| read.lines().filter(|line| line.contains(wanted)).count());
        assert!(to >= 5 && from >= 5, "{read}");
        let bytes = std::fs::read(&file).expect("a file");
        let has = |text: &[u8]| bytes.windows(text.len()).any(|window| window == text);
        assert!(has(b"forwarded to eth1") && has(b"forwarded to eth0") && has(b"eth0"));

        // Those that stay with the kernel are shown with the reason, if wanted.
        let words = ["capture", "--all", "--ports", "eth0", "--timeout", "30"];
        let mut capture = adopted.command(&words)?.spawn()?;
        let mut pings = net.a.spawn(["ping", "-i", "0.1", "10.0.1.1"])?;
        capture.wait_for("left to the kernel: kernel-route", SOON)?;
        pings.stop(SOON)?;
        capture.stop(SOON)?;
        assert_eq!(net.a.ping_with("10.0.2.2", 20, &["-i", "0.01"])?.received, 20);
        let report = adopted.stop(SOON)?.stdout;
        assert!(report.starts_with("eth0: "), "{report}");
        Ok(())
    });
}

/// Where less memory may be locked than maps take, which kernels before 5.11 count.
#[test]
fn no_locked_memory_is_needed() {
    on_the_net("adopt-memlock", |net| {
        let folder = tempfile::tempdir().expect("a folder");
        let command =
            net.r.command(["prlimit", "--memlock=0:0"]).arg(artery()?).args(["adopt", "eth0", "eth1"]);
        let mut adopted = command.arg("-u").arg(folder.path().join("control")).spawn()?;
        adopted.wait_for("forwarding", SOON)?;
        assert_eq!(net.a.ping_with("10.0.2.2", 20, &["-i", "0.01"])?.received, 20);
        adopted.stop(SOON).map(drop)
    });
}

/// One line that names what is missing, and status 1, before anything is said to forward.
#[test]
fn who_may_not_use_programs_is_refused_in_a_line() {
    on_the_net("adopt-no-bpf", |net| {
        let folder = tempfile::tempdir().expect("a folder");
        let socket = folder.path().join("control");
        let without = |sets: &'static str| vec!["setpriv".to_owned(), format!("--bounding-set={sets}")];
        let refused = |error: &str| {
            [env!("CARGO_BIN_EXE_artery-bench"), "refuse-bpf", error].map(str::to_owned).to_vec()
        };
        for (words, reason) in [
            // CAP_SYS_ADMIN includes both.
            (without("-bpf,-perfmon,-sys_admin"), "CAP_BPF"),
            (without("-net_admin"), "CAP_NET_ADMIN"),
            (refused("EPERM"), "CAP_BPF"),
            (refused("ENOSYS"), "bpf(2)"),
        ] {
            let command = net.r.command(&words).arg(artery()?).args(["adopt", "eth0", "eth1", "-u"]);
            let output = command.arg(&socket).output()?;
            assert_eq!(output.code(), Some(1), "{words:?}: {}", output.stderr);
            assert_eq!(output.stderr.lines().count(), 1, "{words:?}: {}", output.stderr);
            assert!(output.stderr.contains(reason), "{words:?}: {}", output.stderr);
            assert!(!output.stderr.contains("forwarding"), "{words:?}: {}", output.stderr);
        }
        // Nothing is left behind that would keep it from starting.
        let adopted = Running::spawn_in(folder, &net.r, ["adopt", "eth0", "eth1"])?;
        adopted.wait_for("forwarding\n", SOON)?;
        adopted.end()
    });
}

#[test]
fn the_units_for_systemd_are_sound() {
    let Some(analyze) = artery_rig::program::tool("systemd-analyze") else {
        println!("skipped: no systemd-analyze: the check of the units in packaging/");
        return;
    };
    let folder = tempfile::tempdir().expect("a folder");
    for unit in ["artery-adopt@.service", "artery-up.service"] {
        let file = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../../packaging").join(unit);
        let text = std::fs::read_to_string(file).expect("the unit");
        // It is to be there for the check, wherever it is installed.
        let text = text.replace("/usr/local/bin/artery", "/bin/true");
        std::fs::write(folder.path().join(unit), text).expect("a copy");
    }
    let mut check = std::process::Command::new(analyze);
    check.args(["verify", "--man=no", "artery-adopt@edge.service", "artery-up.service"]);
    let found =
        check.env("SYSTEMD_UNIT_PATH", format!("{}:", folder.path().display())).output().expect("a check");
    let said = String::from_utf8_lossy(&found.stderr);
    assert!(found.status.success() && !said.contains("artery"), "{said}");
}

#[test]
fn a_service_manager_is_told_and_the_log_is_lines_of_json() {
    on_the_net("adopt-service", |net| {
        let folder = tempfile::tempdir().expect("a folder");
        let (socket, manager) = (folder.path().join("control"), ServiceManager::new(folder.path()));
        let command = artery_on(&net.r, ["adopt", "--log", "json", "eth0", "eth1", "-u"])?.arg(&socket);
        let command = command.env("NOTIFY_SOCKET", &manager.path).env("WATCHDOG_USEC", "500000");
        let mut adopted = command.spawn()?;
        let ready = manager.wait_for(&mut adopted, "READY=1")?;
        assert!(ready.contains("STATUS=forwarding between eth0, eth1"), "{ready}");
        manager.wait_for(&mut adopted, "WATCHDOG=1")?;
        net.r.run(["kill", "-HUP", &adopted.id().to_string()])?;
        assert!(manager.wait_for(&mut adopted, "RELOADING=1")?.contains("MONOTONIC_USEC="));
        manager.wait_for(&mut adopted, "READY=1")?;
        net.r.run(["nft", DROP])?;
        manager
            .wait_for(&mut adopted, "STATUS=forwarding between eth0, eth1; guards that keep traffic: 1")?;
        net.r.run(["kill", "-TERM", &adopted.id().to_string()])?;
        manager.wait_for(&mut adopted, "STOPPING=1")?;
        let log = adopted.wait(SOON)?.stderr;
        let lines: Vec<serde_json::Value> = log
            .lines()
            .map(|line| serde_json::from_str(line).unwrap_or_else(|e| panic!("{e}: {line}")))
            .collect();
        for event in ["port", "forwarding", "reread", "guard", "stopping"] {
            let line = lines.iter().find(|line| line["event"] == event);
            let line = line.unwrap_or_else(|| panic!("no {event}: {log}"));
            assert!(line["level"] == "info", "{line}");
            assert!(line["time"].is_string(), "{line}");
            assert!(line["message"].is_string(), "{line}");
        }
        Ok(())
    });
}

/// CAP_NET_ADMIN, CAP_PERFMON and CAP_BPF.
const KEPT: u64 = 1 << 12 | 1 << 38 | 1 << 39;
/// CAP_NET_RAW besides, for programs that are called.
const LENT: u64 = KEPT | 1 << 13;

/// Checks which rights each thread has.
fn assert_restricted(adopted: &Process, effective: u64) {
    let mut threads = 0;
    for thread in std::fs::read_dir(format!("/proc/{}/task", adopted.id())).expect("threads") {
        let status =
            std::fs::read_to_string(thread.expect("a thread").path().join("status")).expect("a status");
        let set = |name: &str| {
            let line = status.lines().find_map(|line| line.strip_prefix(name)).expect("a line");
            u64::from_str_radix(line.trim(), 16).expect("a set")
        };
        for name in ["CapEff:", "CapPrm:", "CapBnd:", "CapInh:"] {
            let may = if name == "CapEff:" { effective } else { LENT };
            assert_eq!(set(name) & !may, 0, "{name} {status}");
        }
        // The thread that keeps a port's name is as old as that, needs no capabilities, and is not
        // restricted else.
        let is_owner = status.starts_with("Name:\tport-owner\n");
        for (name, value) in [("NoNewPrivs:", "1"), ("Seccomp:", "2")].into_iter().filter(|_| !is_owner) {
            let line = status.lines().find_map(|line| line.strip_prefix(name)).expect("a line");
            assert_eq!(line.trim(), value, "{name} {status}");
        }
        let kept = if is_owner { 0 } else { effective };
        assert_eq!((set("CapEff:"), set("CapInh:")), (kept, 0), "{status}");
        threads += 1;
    }
    assert!(threads >= 3, "sockets have threads");
}

/// A graph's threads have CAP_NET_RAW besides.
#[test]
fn with_a_graph_all_else_is_given_up_and_packets_pass() {
    on_the_net("adopt-capabilities-graph", |net| {
        let mut adopted = adopt_by("graph", net, &[])?;
        assert_restricted(&adopted, LENT);
        until(SOON, || Ok(net.a.ping_with("10.0.2.2", 5, &["-i", "0.01"])?.received == 5))?;
        adopted.stop(SOON).map(drop)
    });
}

#[test]
fn what_forwarding_does_not_take_is_given_up_and_changes_are_still_followed() {
    on_the_net("adopt-capabilities", |net| {
        let folder = tempfile::tempdir().expect("a folder");
        let metrics = format!("unix:{}", folder.path().join("m").display());
        let mut adopted = adopt(net, &["--metrics", &metrics])?;
        assert_restricted(&adopted, KEPT);

        // A route change, bigger tables, and other programs: all that needs rights.
        net.b.address("lo", "192.0.2.1/32")?;
        net.r.run(["sh", "-c", "ip route add 192.0.2.0/24 via 10.0.2.2"])?;
        until(SOON, || Ok(net.a.ping_with("192.0.2.1", 1, &["-W", "1"])?.received == 1))?;
        let routes: String = (0..20_000)
            .map(|n| format!("route add 20.{}.{}.0/24 via 10.0.2.2\n", n >> 8 & 255, n & 255))
            .collect();
        net.r.command(["ip", "-batch", "-"]).input(routes).run()?;
        until(SOON, || Ok(adopted.state()?["tables"]["ipv4_prefixes"].as_u64() > Some(20_000)))?;
        adopted.handler(&["capture", "all"])?;
        adopted.handler(&["capture", "end"])?;
        let before = received(&adopted)?;
        assert_eq!(net.a.ping_with("192.0.2.1", 10, &["-i", "0.01"])?.received, 10);
        assert!(received(&adopted)? >= before + 10, "past the kernel");
        adopted.stop(SOON).map(drop)
    });
}

/// Where no file can be opened, what needs one waits, and the kernel forwards.
#[test]
fn without_descriptors_packets_go_on_and_all_is_as_before_when_there_are_some_again() {
    let first_free = |id: &str| {
        let open = std::fs::read_dir(format!("/proc/{id}/fd")).expect("descriptors");
        let open: Vec<String> =
            open.flatten().map(|fd| fd.file_name().to_string_lossy().into_owned()).collect();
        // Those that are open stay so, and there is none left.
        let most = (0..).find(|fd| !open.contains(&fd.to_string())).expect("a number");
        format!("--nofile={most}:4096")
    };
    on_the_net("adopt-descriptors", |net| shorted(net, first_free, "--nofile=1024:4096"));
}

/// Where the larger tables have no room in memory, they wait, and the kernel forwards.
#[test]
fn without_memory_packets_go_on_and_all_is_as_before_when_there_is_some_again() {
    let most = |id: &str| {
        let status = std::fs::read_to_string(format!("/proc/{id}/status")).expect("a status");
        let size = status.lines().find_map(|line| line.strip_prefix("VmSize:")).expect("a line");
        let size: u64 = size.trim().trim_end_matches(" kB").parse().expect("a number");
        // The next tables have room for 8 MiB, and are beside the old ones at first.
        format!("--as={}:unlimited", (size << 10) + (8 << 20))
    };
    on_the_net("adopt-memory", |net| shorted(net, most, "--as=unlimited:unlimited"));
}

/// Packets from eth0 that went past the kernel.
fn received(adopted: &Running) -> Result<u64> {
    Ok(adopted.state()?["ports"][0]["received"].as_u64().unwrap_or(0))
}

/// Has tables grow that can't while a process has a limit, and can when that is `enough`.
fn shorted(net: &Net, limit: impl Fn(&str) -> String, enough: &str) -> Result<()> {
    let mut adopted = adopt(net, &[])?;
    let id = adopted.id().to_string();
    net.r.run(["prlimit", "--pid", &id, &limit(&id)])?;
    // More than the first tables hold: twenty networks of many hosts each, which take 256 kB apiece.
    let host =
        |n: u32| format!("route add 20.{}.{}.{}/32 via 10.0.2.2\n", n / 400, n % 400 / 100, n % 100 * 2);
    net.r.command(["ip", "-batch", "-"]).input((0..20 * 400).map(host).collect::<String>()).run()?;
    net.r.run(["nft", "add table ip f; add chain ip f c { type filter hook forward priority 0; }"])?;
    adopted.wait_for("this is tried again", SOON)?;
    assert_eq!(net.a.ping_with("10.0.2.2", 20, &["-i", "0.01"])?.received, 20);

    net.r.run(["nft", "delete table ip f"])?;
    net.r.run(["prlimit", "--pid", &id, enough])?;
    adopted.wait_for("suffice again", SOON)?;
    until(SOON, || {
        let before = received(&adopted)?;
        net.a.ping_with("10.0.2.2", 5, &["-i", "0.01"])?;
        Ok(received(&adopted)? >= before + 5)
    })?;
    let said = adopted.stop(SOON)?.stderr;
    assert_eq!(said.matches("this is tried again").count(), 1, "{said}");
    Ok(())
}
