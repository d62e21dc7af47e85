//! `artery run conf/router.click` between two hosts: it forwards, answers, counts, and leaves no trace.

use crate::support::SOON;
use artery_rig::conf::ROUTER;
use artery_rig::program::artery;
use artery_rig::{Line, Process, Result, Rig, Signal};

const FAR: &str = "10.0.2.2";

fn on_the_line(label: &str, body: impl FnOnce(&Line) -> Result<()>) {
    artery_rig::test(label, |rig: &Rig| {
        artery()?;
        body(&rig.line()?)
    });
}

/// Starts the router and waits until it forwards.
fn start(line: &Line, options: &[&str]) -> Result<Process> {
    let mut router = crate::support::spawn(&line.r, ROUTER, options)?;
    crate::support::until_answered(&line.a, FAR, &mut router)?;
    Ok(router)
}

#[test]
fn hosts_ping_trace_and_talk_tcp_through_the_router() {
    on_the_line("router", |line| {
        let _router = start(line, &[])?;
        let report = line.a.ping(FAR, 20)?;
        assert_eq!((report.received, report.duplicates), (20, 0), "{}", report.text);
        assert_eq!(line.b.ping("10.0.1.2", 5)?.received, 5);
        let trace = line.a.run(["traceroute", "-n", "-q", "1", "-w", "1", FAR])?.stdout;
        let hop = |number: &str, address: &str| {
            trace.lines().any(|line| line.trim().starts_with(&format!("{number}  {address}")))
        };
        assert!(hop("1", "10.0.1.1") && hop("2", FAR), "{trace}");
        let tcp = line.a.iperf3(&line.b, FAR, &["-t", "2"])?;
        assert!(tcp.bits_per_second > 1e6, "{tcp:?}");
        Ok(())
    });
}

#[test]
fn the_router_answers_for_itself_and_says_what_it_cannot_reach() {
    on_the_line("router-itself", |line| {
        let _router = start(line, &[])?;
        for address in ["10.0.1.1", "10.0.2.1"] {
            assert_eq!(line.a.ping(address, 3)?.received, 3, "{address}");
        }
        let report = line.a.ping("192.0.2.1", 2)?;
        assert!(report.received == 0 && report.errors > 0, "{}", report.text);
        let text = &report.text;
        assert!(text.contains("From 10.0.1.1") && text.contains("Net Unreachable"), "{text}");
        Ok(())
    });
}

#[test]
fn an_interrupt_prints_counters_and_gives_the_interfaces_back() {
    on_the_line("router-interrupt", |line| {
        let mut router = start(line, &["--handler", "left/neighbors.count", "--stats=60"])?;
        router.signal(Signal::INT);
        let output = router.wait(SOON)?;
        assert_eq!(output.code(), Some(0), "{}", output.stderr);
        assert_eq!(output.stdout.trim(), "1");
        assert!(output.stderr.contains("routes :: LinearIPLookup"), "{}", output.stderr);
        assert_eq!(line.a.ping("10.0.1.1", 2)?.received, 2, "the host answers again");
        line.r.forwarding(true)?;
        assert_eq!(line.a.ping(FAR, 2)?.received, 2, "and can forward itself");
        Ok(())
    });
}

#[test]
fn a_killed_router_leaves_the_interfaces_to_the_host() {
    on_the_line("router-killed", |line| {
        let mut router = start(line, &[])?;
        router.signal(Signal::KILL);
        assert!(!router.wait(SOON)?.succeeded());
        line.r.forwarding(true)?;
        assert_eq!(line.a.ping(FAR, 2)?.received, 2);
        let _again = start(line, &[])?;
        Ok(())
    });
}

#[test]
fn a_device_that_is_not_there_is_named_and_nothing_starts() {
    on_the_line("router-missing", |line| {
        let mut router = crate::support::spawn(&line.r, ROUTER, &["--device", "eth1=nowhere0"])?;
        let output = router.wait(SOON)?;
        assert_eq!(output.code(), Some(1), "{}", output.stderr);
        assert!(output.stderr.contains("nowhere0"), "{}", output.stderr);
        Ok(())
    });
}

#[test]
fn a_device_that_vanishes_is_reported_and_the_router_still_ends_when_told() {
    on_the_line("router-vanish", |line| {
        let mut router = start(line, &[])?;
        line.r.run(["ip", "link", "delete", "eth1"])?;
        router.wait_for("eth1: interface vanished", SOON)?;
        assert!(router.is_running(), "{}", router.stderr_so_far());
        assert_eq!(line.a.ping("10.0.1.1", 3)?.received, 3, "the other side goes on");
        router.signal(Signal::INT);
        let output = router.wait(SOON)?;
        assert!(!output.stderr.contains("panicked"), "{}", output.stderr);
        Ok(())
    });
}
