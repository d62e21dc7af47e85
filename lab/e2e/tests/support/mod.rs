//! A router between two hosts of one network: started from the program, waited for, and ended cleanly.
#![allow(unreachable_pub, reason = "of a test program")]

pub mod adopting;
pub mod connections;
pub mod running;
pub mod service_manager;
pub mod switching;

use artery_rig::program::artery;
use artery_rig::{CommandOutput, Host, Process, Result, Rig, RigError, Signal, Traffic, TrafficReport};
pub use running::{Running, artery_on};
use service_manager::ServiceManager;
use std::time::{Duration, Instant};

/// How long whatever is waited for may take.
pub const SOON: Duration = Duration::from_secs(10);
/// The address of [`Hosts::b`].
pub const FAR: &str = "10.0.0.2";
/// The methods to reach an interface, as METHOD names them.
pub const METHODS: [&str; 3] = ["LINUX", "XDP", "XDP_GENERIC"];

/// Hosts at 10.0.0.1 and 10.0.0.2, each linked to `r` by its eth0; `r` has eth0 and eth1, and no addresses.
pub struct Hosts {
    pub a: Host,
    pub b: Host,
    pub r: Host,
}

/// CAP_IPC_LOCK alone, as the kernel writes sets.
const IPC_LOCK: &str = "0000000000004000";

/// Checks that no thread of a router has a right that it does not need. Where the limit of locked memory
/// can't be raised it may need to lock more.
pub fn assert_confined(router: &Process) {
    let limits = std::fs::read_to_string(format!("/proc/{}/limits", router.id())).expect("limits");
    let locked = limits.lines().find_map(|line| line.strip_prefix("Max locked memory")).expect("a limit");
    let may_lock = !locked.trim_start().starts_with("unlimited");
    let mut threads = 0;
    for thread in std::fs::read_dir(format!("/proc/{}/task", router.id())).expect("threads") {
        let status =
            std::fs::read_to_string(thread.expect("a thread").path().join("status")).expect("a status");
        let line = |name: &str| {
            let found = status.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':'));
            found.unwrap_or_else(|| panic!("{name}: {status}")).trim().to_owned()
        };
        for name in ["CapEff", "CapPrm", "CapInh", "CapBnd", "CapAmb"] {
            let is_none = line(name) == "0000000000000000" || may_lock && line(name) == IPC_LOCK;
            assert!(is_none, "{name}: {status}");
        }
        assert_eq!((line("NoNewPrivs"), line("Seccomp")), ("1".to_owned(), "2".to_owned()), "{status}");
        threads += 1;
    }
    assert!(threads >= 3, "a worker, signals, and the control socket have threads");
}

/// Runs a test on such hosts.
pub fn with_hosts(label: &str, body: impl FnOnce(&Hosts) -> Result<()>) {
    artery_rig::test(label, |rig: &Rig| {
        artery()?;
        let (a, r, b) = (rig.host("a")?, rig.host("r")?, rig.host("b")?);
        rig.link(&a, "eth0", &r, "eth0")?;
        rig.link(&b, "eth0", &r, "eth1")?;
        a.address("eth0", "10.0.0.1/24")?;
        b.address("eth0", "10.0.0.2/24")?;
        body(&Hosts { a, b, r })
    });
}

/// A configuration by which all that arrives on one side leaves by the other.
pub fn wire(method: &str) -> String {
    format!(
        "left :: FromDevice(eth0, PROMISC true, SNIFFER false, METHOD {method}) -> Queue -> right_out :: \
         ToDevice(eth1);
        right :: FromDevice(eth1, PROMISC true, SNIFFER false, METHOD {method}) -> Queue -> left_out :: \
         ToDevice(eth0);"
    )
}

/// Starts the program with a configuration.
pub fn spawn(host: &Host, config: &str, options: &[&str]) -> Result<Process> {
    host.command([artery()?]).args(["run", "-e", config]).args(options).spawn()
}

/// The same, and waits until its workers forward.
pub fn start(host: &Host, config: &str, options: &[&str]) -> Result<Process> {
    let folder = tempfile::tempdir().expect("a folder");
    let manager = ServiceManager::new(folder.path());
    let command = host.command([artery()?]).args(["run", "-e", config, "-o", "-"]).args(options);
    let mut router = command.env("NOTIFY_SOCKET", &manager.path).spawn()?;
    // The configuration is written once everything is built: one that is refused is seen at once.
    router.wait_for(";\n", SOON)?;
    manager.wait_for(&mut router, "READY=1")?;
    Ok(router)
}

/// Waits until something is so.
#[track_caller]
pub fn until(limit: Duration, is_so: impl FnMut() -> Result<bool>) -> Result<()> {
    assert!(becomes_so(limit, is_so)?, "not within {limit:?}");
    Ok(())
}

fn becomes_so(limit: Duration, mut is_so: impl FnMut() -> Result<bool>) -> Result<bool> {
    let deadline = Instant::now() + limit;
    while !is_so()? {
        if Instant::now() >= deadline {
            return Ok(false);
        }
        std::thread::sleep(Duration::from_millis(20));
    }
    Ok(true)
}

/// The same; an error shows what a process has said so far.
pub fn until_seen(process: &Process, what: &str, is_so: impl FnMut() -> Result<bool>) -> Result<()> {
    match becomes_so(2 * SOON, is_so)? {
        true => Ok(()),
        false => Err(RigError::NotSeen(process.failure(), what.to_string())),
    }
}

/// Waits until a ping is answered, which takes a router to forward it.
pub fn until_answered(from: &Host, address: &str, router: &mut Process) -> Result<()> {
    let deadline = Instant::now() + SOON;
    while from.ping(address, 1)?.received == 0 {
        if !router.is_running() || Instant::now() > deadline {
            return Err(RigError::NotSeen(router.failure(), format!("that {address} answers")));
        }
    }
    Ok(())
}

/// Runs traffic, and at the same time does something that gets to know whether it is still being sent.
pub fn meanwhile<T>(
    traffic: Traffic,
    what: impl FnOnce(&dyn Fn() -> bool) -> Result<T>,
) -> Result<(TrafficReport, T)> {
    std::thread::scope(|scope| {
        let running = scope.spawn(move || traffic.run());
        let done = what(&|| !running.is_finished());
        let report = running.join().unwrap_or_else(|cause| std::panic::resume_unwind(cause))?;
        Ok((report, done?))
    })
}

/// Sends `frames` numbered datagrams in four flows, of which nothing but the router can lose any, and does
/// something again and again meanwhile, with the number of times that it was done before.
pub fn under_traffic(
    (from, to, address): (&Host, &Host, &str),
    frames: u64,
    mut what: impl FnMut(usize) -> Result<()>,
) -> Result<TrafficReport> {
    let traffic = Traffic::between(from, to, address).frames(frames).rate(4000).flows(4);
    let (report, times) = meanwhile(traffic, |is_running| {
        let mut times = 0;
        while is_running() {
            what(times)?;
            times += 1;
        }
        Ok(times)
    })?;
    assert!(times >= 2, "{times} times");
    assert_eq!((report.sent, report.refused, report.overrun), (frames, 0, 0), "{report}");
    assert_eq!(report.received, report.sent, "{times} times: {report}");
    Ok(report)
}

/// Signals a router to end, which it does with a clean exit.
pub fn end(router: Process) -> Result<CommandOutput> {
    end_by(router, Signal::TERM)
}

/// The same by a signal of the caller's choice.
pub fn end_by(mut router: Process, signal: Signal) -> Result<CommandOutput> {
    router.signal(signal);
    let output = router.wait(SOON)?;
    assert_eq!(output.code(), Some(0), "{}", output.stderr);
    assert!(!output.stderr.contains("panicked"), "{}", output.stderr);
    Ok(output)
}
