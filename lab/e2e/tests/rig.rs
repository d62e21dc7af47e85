//! The rig as its users see it: topologies that carry traffic, figures that add up, clear
//! errors, nothing left behind.

use std::fs;
use std::io::{BufRead, BufReader};
use std::net::UdpSocket;
use std::os::unix::process::ExitStatusExt;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use artery_rig::{Host, Result, Rig, RigError, Signal, Skip, Traffic};

const SOON: Duration = Duration::from_secs(5);

/// Two linked hosts with addresses 10.0.0.1 and 10.0.0.2, fd00::1 and fd00::2.
fn pair(rig: &Rig) -> Result<(Host, Host)> {
    let (a, b) = (rig.host("a")?, rig.host("b")?);
    rig.link(&a, "eth0", &b, "eth0")?;
    a.address("eth0", "10.0.0.1/24")?.address("eth0", "fd00::1/64")?;
    b.address("eth0", "10.0.0.2/24")?.address("eth0", "fd00::2/64")?;
    Ok((a, b))
}

#[test]
fn two_hosts_ping_by_both_families_at_once() {
    artery_rig::test("two-hosts", |rig| {
        let (a, _b) = pair(rig)?;
        let v4 = a.ping("10.0.0.2", 3)?;
        assert_eq!((v4.sent, v4.received, v4.errors), (3, 3, 0), "{}", v4.text);
        assert!(v4.round_trip.is_some_and(|times| times.min_ms > 0.0 && times.min_ms <= times.max_ms));
        assert_eq!(a.ping("fd00::2", 2)?.received, 2);
        assert_eq!(a.ping("127.0.0.1", 1)?.received, 1);
        Ok(())
    });
}

#[test]
fn a_ping_without_an_answer_is_loss_and_one_without_a_route_is_an_error() {
    artery_rig::test("no-answer", |rig| {
        let (a, b) = pair(rig)?;
        b.sysctl("net.ipv4.icmp_echo_ignore_all", "1")?;
        let report = a.ping("10.0.0.2", 2)?;
        assert_eq!((report.sent, report.lost()), (2, 2));
        let message = a.ping("10.9.9.9", 1).unwrap_err().to_string();
        assert!(message.contains("no-answer/a: `ping") && message.contains("unreachable"), "{message}");
        Ok(())
    });
}

#[test]
fn three_hosts_reach_one_another_through_a_switch() {
    artery_rig::test("switch", |rig| {
        let lan = rig.switch("lan")?;
        let hosts = ["a", "b", "c"].map(|name| rig.host(name));
        let hosts = hosts.into_iter().collect::<Result<Vec<_>>>()?;
        for (index, host) in hosts.iter().enumerate() {
            rig.plug(host, "eth0", &lan)?;
            host.address("eth0", &format!("10.0.0.{}/24", index + 1))?;
        }
        for host in &hosts {
            for other in 1..=3 {
                assert_eq!(
                    host.ping(&format!("10.0.0.{other}"), 1)?.received,
                    1,
                    "{} to {other}",
                    host.name()
                );
            }
        }
        let learned = lan.host().run(["bridge", "fdb", "show"])?.stdout;
        for host in &hosts {
            assert!(learned.contains(&host.mac("eth0")?), "{learned}");
        }
        Ok(())
    });
}

#[test]
fn linux_forwards_once_told_and_traceroute_shows_the_hop() {
    artery_rig::test("router", |rig| {
        let line = rig.line()?;
        assert_eq!(line.a.ping("10.0.2.2", 1)?.received, 0);
        line.r.forwarding(true)?;
        assert_eq!(line.a.ping("10.0.2.2", 3)?.received, 3);
        assert_eq!(line.a.ping("fd00:2::2", 3)?.received, 3);
        let trace = line.a.run(["traceroute", "-n", "-q", "1", "-w", "1", "10.0.2.2"])?.stdout;
        let hop = |number: &str, address: &str| {
            trace.lines().any(|line| line.trim().starts_with(&format!("{number}  {address}")))
        };
        assert!(hop("1", "10.0.1.1") && hop("2", "10.0.2.2"), "{trace}");
        Ok(())
    });
}

#[test]
fn iperf3_measures_tcp_and_udp() {
    artery_rig::test("iperf3", |rig| {
        let (a, b) = pair(rig)?;
        let tcp = a.iperf3(&b, "10.0.0.2", &["-t", "1"])?;
        assert!(tcp.bits_per_second > 1e6 && tcp.retransmits.is_some(), "{tcp:?}");
        assert!(tcp.client_cpu_percent > 0.0, "{tcp:?}");
        let udp = a.iperf3(&b, "10.0.0.2", &["-t", "1", "-u", "-b", "10M"])?;
        assert!((5e6..=15e6).contains(&udp.bits_per_second) && udp.lost_percent.is_some(), "{udp:?}");
        Ok(())
    });
}

#[test]
fn traffic_without_loss_is_counted_exactly() {
    artery_rig::test("traffic", |rig| {
        let (a, b) = pair(rig)?;
        let before = b.counters("eth0")?;
        let report = Traffic::between(&a, &b, "10.0.0.2").frames(20_000).rate(40_000).flows(4).run()?;
        let after = b.counters("eth0")?;
        assert_eq!((report.sent, report.received, report.lost), (20_000, 20_000, 0), "{report}");
        let odd = [report.reordered, report.duplicated, report.refused, report.strays];
        assert_eq!(odd, [0; 4], "{report}");
        // One more for the datagram sent ahead, and a few for neighbors and routers being asked for.
        let frames = after.rx_packets - before.rx_packets;
        assert!((20_001..20_020).contains(&frames), "{frames} frames at the interface\n{report}");
        assert!((0.45..2.0).contains(&report.seconds), "{report}");
        let latency = report.latency;
        let ordered = [latency.min_ns, latency.p50_ns, latency.p99_ns, latency.p999_ns, latency.max_ns];
        assert!(ordered[0] > 0 && ordered.is_sorted(), "{report}");
        Ok(())
    });
}

#[test]
fn traffic_runs_for_a_time_and_over_ipv6() {
    artery_rig::test("traffic6", |rig| {
        let (a, b) = pair(rig)?;
        let run = Traffic::between(&a, &b, "fd00::2")
            .rate(2000)
            .lasting(Duration::from_millis(500))
            .frame_bytes(1514);
        let report = run.run()?;
        assert_eq!((report.received, report.lost), (report.sent, 0), "{report}");
        assert!((900..=1001).contains(&report.sent), "{report}");
        Ok(())
    });
}

#[test]
fn a_frame_on_the_wire_has_the_size_asked_for() {
    artery_rig::test("frame-size", |rig| {
        let (a, b) = pair(rig)?;
        for (address, size) in [("10.0.0.2", 64), ("10.0.0.2", 1514), ("fd00::2", 82)] {
            let capture = b.capture_with("eth0", &["-Q", "in", "udp"])?;
            Traffic::between(&a, &b, address).frames(3).frame_bytes(size).cold().run()?;
            let sizes: Vec<_> = capture.wait_for(3, SOON)?.iter().map(|frame| frame.bytes.len()).collect();
            assert_eq!(sizes, [size; 3]);
        }
        Ok(())
    });
}

#[test]
fn loss_is_reported_to_the_last_frame() {
    artery_rig::test("loss", |rig| {
        let (a, b) = pair(rig)?;
        b.drop_one_in("eth0", 10, "meta l4proto udp")?;
        let report = Traffic::between(&a, &b, "10.0.0.2").frames(5000).rate(50_000).cold().run()?;
        assert_eq!(report.sent, 5000, "{report}");
        assert_eq!(report.received, 4500, "{report}");
        assert_eq!(report.lost, 500, "{report}");
        assert_eq!(report.overrun, 0, "{report}");
        assert_eq!(report.reordered, 0);
        Ok(())
    });
}

#[test]
fn traffic_to_nobody_is_all_lost() {
    artery_rig::test("nobody", |rig| {
        let (a, b) = pair(rig)?;
        let report = Traffic::between(&a, &b, "10.0.0.9").frames(50).cold().run()?;
        assert_eq!((report.received, report.lost, report.latency.max_ns), (0, report.sent, 0), "{report}");
        assert_eq!(report.sent + report.refused, 50, "{report}");
        Ok(())
    });
}

#[test]
fn traffic_arrives_though_its_address_is_translated_on_the_way() {
    artery_rig::test("translated", |rig| {
        let line = rig.line()?;
        line.r.forwarding(true)?;
        let rules = "table ip t { chain c { type nat hook prerouting priority -100; \
                     ip daddr 10.0.9.9 udp dport 5000 dnat to 10.0.2.2; }; }";
        line.r.command(["nft", "-f", "-"]).input(rules).run()?;
        let report =
            Traffic::between(&line.a, &line.b, "10.0.9.9").port(5000).frames(100).rate(5000).run()?;
        assert_eq!((report.received, report.lost), (100, 0), "{report}");
        Ok(())
    });
}

#[test]
fn duplicates_are_counted_apart() {
    artery_rig::test("duplicates", |rig| {
        let (a, b) = pair(rig)?;
        // What arrives at eth0 goes on, and once more through a link from b to itself.
        rig.link(&b, "out", &b, "in")?;
        b.set_mac("in", &b.mac("eth0")?)?;
        let rules = "table netdev t { chain c { type filter hook ingress device \"eth0\" priority 0; \
                     meta l4proto udp dup to \"out\"; }; }";
        b.command(["nft", "-f", "-"]).input(rules).run()?;
        let report = Traffic::between(&a, &b, "10.0.0.2").frames(100).rate(5000).cold().run()?;
        assert_eq!((report.received, report.lost, report.duplicated), (100, 0, 100), "{report}");
        Ok(())
    });
}

#[test]
fn a_capture_holds_the_frames_and_reads_as_text() {
    artery_rig::test("capture", |rig| {
        let (a, b) = pair(rig)?;
        let mut capture = b.capture_with("eth0", &["icmp"])?;
        a.ping_with("10.0.0.2", 2, &["-s", "100"])?;
        let frames = capture.wait_for(4, SOON)?;
        assert!(frames.iter().all(|frame| frame.bytes.len() == 142 && frame.length == 142));
        let text = capture.text()?;
        assert_eq!(text.matches("ICMP echo request").count(), 2, "{text}");
        assert!(text.contains("02:00:00:00:00:00 > 02:00:00:00:01:00"), "{text}");
        let message = capture.wait_for(5, Duration::from_millis(50)).unwrap_err().to_string();
        assert!(message.contains("5 frames within 50ms, only 4"), "{message}");
        assert!(message.contains("echo reply"), "{message}");
        capture.stop()?;
        assert_eq!(capture.frames(), frames);
        Ok(())
    });
}

#[test]
fn offloads_off_puts_whole_checksums_on_the_wire() {
    artery_rig::test("offloads", |rig| {
        let (a, b) = (rig.host("a")?, rig.host("b")?);
        rig.link(&a, "eth0", &b, "eth0")?.offloads(false)?;
        a.address("eth0", "10.0.0.1/24")?;
        b.address("eth0", "10.0.0.2/24")?;
        let capture = b.capture_with("eth0", &["-Q", "in", "udp"])?;
        Traffic::between(&a, &b, "10.0.0.2").frames(1).cold().run()?;
        let frame = capture.wait_for(1, SOON)?.remove(0).bytes;
        // RFC 768: the sum over pseudo header, header and payload, with the checksum in it, is all ones.
        let words = frame[26..].chunks(2).map(|pair| u32::from(u16::from_be_bytes([pair[0], pair[1]])));
        let sum = words.sum::<u32>() + 17 + (frame.len() as u32 - 34);
        assert_eq!((sum & 0xffff) + (sum >> 16), 0xffff);
        Ok(())
    });
}

#[test]
fn settings_and_questions_meet() {
    artery_rig::test("settings", |rig| {
        let (a, b) = (rig.host("a")?, rig.host("b")?);
        rig.link(&a, "eth0", &b, "eth7")?.mtu(9000)?.mac("02:aa:bb:cc:dd:ee")?;
        assert_eq!(a.mac("eth0")?, "02:aa:bb:cc:dd:ee");
        assert_eq!(b.interfaces()?, ["lo", "eth7"]);
        b.sysctl("net.ipv4.conf.eth7.send_redirects", "0")?;
        assert_eq!(b.sysctl_value("net/ipv4/conf/eth7/send_redirects")?, "0");
        a.address("eth0", "10.0.0.1/24")?;
        b.address("eth7", "10.0.0.2/24")?;
        assert_eq!(a.ping_with("10.0.0.2", 1, &["-s", "8972", "-M", "do"])?.received, 1);
        let neighbors = a.neighbors()?;
        let b_mac = b.mac("eth7")?;
        let known =
            |n: &&artery_rig::Neighbor| n.address.to_string() == "10.0.0.2" && n.mac.as_ref() == Some(&b_mac);
        assert_eq!(neighbors.iter().filter(known).count(), 1, "{neighbors:?}");
        assert_eq!(rig.find("b")?.namespace(), b.namespace());
        Ok(())
    });
}

#[test]
fn a_socket_made_inside_a_host_stays_there() {
    artery_rig::test("enter", |rig| {
        let (a, b) = pair(rig)?;
        let receiver = b.enter(|| UdpSocket::bind("10.0.0.2:7000"))?.expect("the address is b's");
        assert!(a.enter(|| UdpSocket::bind("10.0.0.2:7000"))?.is_err(), "the address is not a's");
        receiver.set_read_timeout(Some(SOON)).expect("timeouts can be set");
        a.enter(|| UdpSocket::bind("0.0.0.0:0")?.send_to(b"hello", "10.0.0.2:7000"))?
            .expect("b is one link away");
        let mut bytes = [0; 16];
        assert_eq!(receiver.recv(&mut bytes).expect("the datagram comes"), 5);
        Ok(())
    });
}

#[test]
fn a_running_program_can_be_watched_and_signalled() {
    artery_rig::test("process", |rig| {
        let a = rig.host("a")?;
        let mut talker =
            a.spawn(["sh", "-c", "trap 'echo bye; exit 3' TERM; echo ready; while :; do sleep 0.1; done"])?;
        talker.wait_for("ready", SOON)?;
        assert!(talker.is_running());
        let output = talker.stop(SOON)?;
        assert_eq!((output.code(), output.stdout.as_str()), (Some(3), "ready\nbye\n"));
        talker.signal(Signal::TERM); // To nobody.
        Ok(())
    });
}

#[test]
fn a_running_program_ends_with_its_handle_and_so_do_its_children() {
    artery_rig::test("family", |rig| {
        let a = rig.host("a")?;
        let family = a.spawn(["sh", "-c", "sleep 1000 & echo child $!; wait"])?;
        family.wait_for("child", SOON)?;
        let child = family.stdout_so_far().trim().rsplit(' ').next().unwrap_or_default().to_owned();
        let parent = family.id().to_string();
        assert!(is_running(&child) && is_running(&parent));
        drop(family);
        assert!(eventually(|| !is_running(&child) && !is_running(&parent)));
        Ok(())
    });
}

#[test]
fn a_program_gets_its_input_environment_and_time() {
    artery_rig::test("command", |rig| {
        let a = rig.host("a")?;
        let cat =
            a.command(["sh", "-c", "cat; echo $WORD >&2"]).input("some input").env("WORD", "a word").run()?;
        assert_eq!((cat.stdout.as_str(), cat.stderr.trim()), ("some input", "a word"));
        let slow = a.command(["sleep", "1000"]).limit(Duration::from_millis(50)).run();
        assert!(matches!(&slow, Err(RigError::TimedOut(..))), "{slow:?}");
        let mute = a.spawn(["sleep", "1000"])?.wait_for("something", Duration::from_millis(50));
        assert!(matches!(&mute, Err(RigError::NotSeen(..))), "{mute:?}");
        let ended = a.spawn(["true"])?.wait_for("something", Duration::from_secs(1000));
        assert!(matches!(&ended, Err(RigError::NotSeen(..))), "{ended:?}");
        Ok(())
    });
}

#[test]
fn a_failed_command_says_who_ran_what_and_what_it_said() {
    artery_rig::test("failing", |rig| {
        let a = rig.host("a")?;
        let error = a.run(["sh", "-c", "echo some output; echo some trouble >&2; exit 4"]).unwrap_err();
        let message = error.to_string();
        let expected = "failing/a: `sh -c 'echo some output; echo some trouble >&2; exit 4'` ended with exit \
            status 4\n\
            --- stdout\nsome output\n--- stderr\nsome trouble";
        assert_eq!(message, expected);
        assert_eq!(a.command(["sh", "-c", "exit 4"]).output()?.code(), Some(4));
        let missing = a.run(["no-such-program"]);
        assert!(matches!(&missing, Err(RigError::Skip(Skip::MissingTool(_)))), "{missing:?}");
        Ok(())
    });
}

#[test]
fn wrong_use_is_told_clearly() {
    artery_rig::test("wrong-use", |rig| {
        let (a, b) = pair(rig)?;
        let says = |outcome: Result<()>, wanted: &str| {
            let message = outcome.expect_err(wanted).to_string();
            assert!(message.contains(wanted), "{message:?} should contain {wanted:?}");
        };
        says(rig.find("z").map(drop), "no host \"z\" in this rig; there are: a, b");
        says(rig.host("a").map(drop), "already has a host \"a\"");
        says(rig.host("a/b").map(drop), "bad name \"a/b\"");
        says(a.address("eth0", "10.0.0.1").map(drop), "bad address \"10.0.0.1\"");
        says(
            a.address("eth9", "10.0.0.1/24").map(drop),
            "wrong-use/a: no interface \"eth9\"; there are: lo, eth0",
        );
        says(a.route("default", "10.0.0").map(drop), "bad address \"10.0.0\"");
        says(a.route("10.0.0.1", "10.0.0.2").map(drop), "bad address \"10.0.0.1\"");
        says(a.route("default", "10.7.7.7").map(drop), "Nexthop has invalid gateway");
        says(a.set_mac("eth0", "02:00").map(drop), "bad address \"02:00\"");
        says(a.sysctl("net.ipv4.no_such", "1").map(drop), "cannot set net.ipv4.no_such to \"1\"");
        says(a.capture("eth9").map(drop), "no interface \"eth9\"");
        says(a.counters("eth9").map(drop), "no interface \"eth9\"");
        says(a.ping("nowhere", 1).map(drop), "bad address \"nowhere\"");
        says(rig.link(&a, "eth0", &b, "eth1").map(drop), "File exists");
        says(rig.link(&a, "much-too-long-a-name", &b, "eth1").map(drop), "bad name");
        let traffic = || Traffic::between(&a, &b, "10.0.0.2");
        says(traffic().frame_bytes(61).run().map(drop), "must be 62 to 65549 bytes");
        says(traffic().flows(0).run().map(drop), "at least one flow");
        let taken = b.enter(|| UdpSocket::bind("0.0.0.0:7000"))?.expect("no one else is here");
        says(traffic().port(7000).run().map(drop), "cannot bind UDP port 7000");
        drop(taken);
        says(Traffic::between(&a, &b, "10.9.9.9").run().map(drop), "wrong-use/a cannot send to 10.9.9.9");
        Ok(())
    });
}

#[test]
fn a_rig_lives_as_long_as_its_hosts_and_then_leaves_nothing() {
    artery_rig::test("drop", |outer| {
        let rig = Rig::new("dropped")?;
        let prefix = rig.prefix().to_owned();
        assert_ne!(prefix, outer.prefix());
        let a = rig.host("a")?;
        // A daemon: in no process group of ours, known only by its namespace.
        a.run(["sh", "-c", "setsid sleep 1000 >/dev/null 2>&1 &"])?;
        let inside = Command::new("ip").args(["netns", "pids", a.namespace()]).output().expect("ip is there");
        let inside = String::from_utf8_lossy(&inside.stdout).into_owned();
        let daemon: Vec<&str> = inside.lines().collect();
        drop(rig);
        assert_eq!(namespaces(&prefix).len(), 1);
        drop(a);
        assert_eq!(namespaces(&prefix), Vec::<String>::new());
        assert!(!daemon.is_empty() && daemon.iter().all(|pid| !is_running(pid)), "{daemon:?}");
        Ok(())
    });
}

#[test]
fn nothing_is_left_behind_when_the_owner_is_killed() {
    owner_or_test("nothing_is_left_behind_when_the_owner_is_killed", Signal::KILL);
}

#[test]
fn nothing_is_left_behind_when_the_owner_is_interrupted() {
    owner_or_test("nothing_is_left_behind_when_the_owner_is_interrupted", Signal::INT);
}

#[test]
fn leftovers_of_a_dead_owner_are_swept_by_the_next_rig() {
    const TEST: &str = "leftovers_of_a_dead_owner_are_swept_by_the_next_rig";
    if std::env::var_os(OWNER).is_some() {
        return hold_a_rig();
    }
    artery_rig::test("sweep", |_| {
        // Above the kernel's limit of 2^22 for process ids: no process has it.
        let leftover = "art-1073741824-1-a";
        let made = Command::new("ip").args(["netns", "add", leftover]).status();
        assert!(made.is_ok_and(|status| status.success()));
        let mut next = Owner::start(TEST);
        assert_eq!(namespaces(leftover), Vec::<String>::new());
        next.end(Signal::KILL);
        Ok(())
    });
}

/// Set in the environment of the processes that these tests start to be killed.
const OWNER: &str = "ARTERY_RIG_OWNER";

/// A process of its own that holds a rig of two hosts, with a program running in each.
struct Owner {
    child: Child,
    prefix: String,
    programs: Vec<String>,
}

/// In the process to be killed: holds a rig. In the test: starts that process, kills it, and
/// looks what is left.
fn owner_or_test(test: &str, signal: Signal) {
    if std::env::var_os(OWNER).is_some() {
        return hold_a_rig();
    }
    artery_rig::test(test, |_| {
        let mut owner = Owner::start(test);
        assert_eq!(namespaces(&owner.prefix).len(), 2);
        assert!(owner.programs.len() == 2 && owner.programs.iter().all(|pid| is_running(pid)));
        owner.end(signal);
        assert!(eventually(|| namespaces(&owner.prefix).is_empty()), "{:?}", namespaces(&owner.prefix));
        assert!(eventually(|| !owner.programs.iter().any(|pid| is_running(pid))), "{:?}", owner.programs);
        Ok(())
    });
}

impl Owner {
    fn start(test: &str) -> Owner {
        let program = std::env::current_exe().expect("a running program has a path");
        // Shells start background jobs with interrupts ignored, which would be handed down.
        let mut command = Command::new("env");
        command.arg("--default-signal=INT").arg(program);
        command
            .args(["--exact", &format!("rig::{test}"), "--nocapture"])
            .env(OWNER, "1")
            .stdout(Stdio::piped())
            .stdin(Stdio::piped());
        let mut child = command.spawn().expect("this program can be run again");
        let lines = BufReader::new(child.stdout.take().expect("it is piped")).lines();
        let ready = lines
            .map_while(|line| line.ok())
            .find_map(|line| Some(line.split_once("holding ")?.1.to_owned()));
        let mut words = ready
            .expect("the owner gets its rig")
            .split(' ')
            .map(str::to_owned)
            .collect::<Vec<_>>()
            .into_iter();
        Owner { child, prefix: words.next().expect("a prefix is printed"), programs: words.collect() }
    }

    fn end(&mut self, signal: Signal) {
        let pid = rustix::process::Pid::from_child(&self.child);
        rustix::process::kill_process(pid, signal).expect("the owner runs");
        let status = self.child.wait().expect("it is our child");
        assert_eq!(status.signal(), Some(signal.as_raw()), "the owner should die, not end");
    }
}

impl Drop for Owner {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn hold_a_rig() {
    let rig = Rig::new("held").expect("the test that started this had one too");
    let (a, b) = pair(&rig).expect("hosts can be made");
    let programs = [&a, &b].map(|host| host.spawn(["sleep", "1000"]).expect("sleep is everywhere"));
    let ids: Vec<String> = programs.iter().map(|program| program.id().to_string()).collect();
    println!("holding {} {}", rig.prefix(), ids.join(" "));
    // The pipe never says anything: it ends with the test that holds its other end.
    let _ = std::io::stdin().read_line(&mut String::new());
}

fn namespaces(prefix: &str) -> Vec<String> {
    let entries = fs::read_dir("/run/netns").into_iter().flatten().flatten();
    entries
        .filter_map(|entry| entry.file_name().into_string().ok())
        .filter(|name| name.starts_with(prefix))
        .collect()
}

/// Whether a process runs; one that has ended and was not reaped yet does not.
fn is_running(pid: &str) -> bool {
    let status = fs::read_to_string(Path::new("/proc").join(pid).join("status")).unwrap_or_default();
    status.lines().any(|line| line.starts_with("State:") && !line.contains('Z') && !line.contains('X'))
}

fn eventually(claim: impl Fn() -> bool) -> bool {
    let deadline = Instant::now() + SOON;
    while Instant::now() < deadline {
        if claim() {
            return true;
        }
        std::thread::sleep(Duration::from_millis(20));
    }
    claim()
}

#[test]
fn frames_arrive_byte_for_byte_as_they_were_sent() {
    artery_rig::test("raw", |rig| {
        let (a, b) = pair(rig)?;
        let capture = b.capture_with("eth0", &["-Q", "in", "ether", "proto", "0x88b5"])?;
        let frame = |fill: u8, length: usize| {
            let mut bytes = vec![fill; length];
            bytes[0..14].copy_from_slice(&[0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 2, 0, 0, 0, 0, 9, 0x88, 0xb5]);
            bytes
        };
        let frames = [frame(1, 60), frame(2, 1514)];
        a.transmit("eth0", &frames)?;
        let seen: Vec<_> = capture.wait_for(2, SOON)?.into_iter().map(|frame| frame.bytes).collect();
        assert_eq!(seen, frames);
        let message = a.transmit("eth0", &[frame(3, 2000)]).unwrap_err().to_string();
        assert!(message.contains("cannot send frames by eth0"), "{message}");
        Ok(())
    });
}
