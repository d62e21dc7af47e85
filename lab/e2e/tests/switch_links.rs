//! What a switch of `artery up` does about links: in a ring with the kernel's bridge, and where they go down.

use crate::support::switching::folder_with;
use crate::support::{Running, SOON, end};
use artery_rig::program::artery;
use artery_rig::{Host, Result, Rig};
use std::io::{Read as _, Write as _};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::time::{Duration, Instant};

/// How long a spanning tree of the old protocol may take: two forward delays and what the host needs besides.
const TREE: Duration = Duration::from_secs(40);

/// Starts a switch of all interfaces, with this file of its own.
fn start(host: &Host, veb0: &str) -> Result<Running> {
    let folder = folder_with(&[("hostname.veb0", veb0), ("hostname.eth*", "up\n")]);
    let etc = folder.path().display().to_string();
    Running::spawn_in(folder, host, ["up", "--etc", &etc])
}

impl Running {
    /// What becomes of a frame, or why the switch can't say yet.
    fn explain(&self, frame: &str) -> Result<String> {
        let said = read_handler(&self.socket, &format!("veb0.explain {frame}"));
        Ok(said.unwrap_or_else(|error| error.to_string()))
    }

    /// Waits until a question is answered as wanted.
    fn until_says(
        &self,
        ask: impl Fn() -> Result<String>,
        limit: Duration,
        is_wanted: impl Fn(&str) -> bool,
    ) -> Result<String> {
        let start = Instant::now();
        loop {
            let said = ask()?;
            if is_wanted(&said) {
                return Ok(said);
            }
            assert!(start.elapsed() < limit, "{said}\n{}", self.process.stderr_so_far());
            std::thread::sleep(Duration::from_millis(100));
        }
    }
}

/// What a handler says that takes parameters.
fn read_handler(socket: &Path, handler: &str) -> std::io::Result<String> {
    let mut socket = UnixStream::connect(socket)?;
    socket.write_all(format!("READ {handler}\nQUIT\n").as_bytes())?;
    let mut said = String::new();
    socket.read_to_string(&mut said)?;
    Ok(said)
}

/// The switch as `artery ifconfig` shows it.
fn show(switch: &Running) -> Result<String> {
    Ok(switch.ifconfig("veb0")?.1)
}

fn count(text: &str, what: &str) -> usize {
    text.matches(what).count()
}

/// Waits until pings are answered, each once.
fn until_whole(from: &Host, to: &str) -> Result<()> {
    let start = Instant::now();
    while from.ping(to, 1)?.received != 1 {
        assert!(start.elapsed() < TREE, "no answer from {to}");
    }
    Ok(())
}

#[test]
fn in_a_ring_with_the_kernels_bridge_one_port_is_held_back_and_a_cut_is_healed() {
    artery_rig::test("up-ring", |rig: &Rig| {
        artery()?;
        let (a, b, s, k) = (rig.host("a")?, rig.host("b")?, rig.host("s")?, rig.host("k")?);
        rig.link(&a, "eth0", &s, "eth0")?;
        rig.link(&b, "eth0", &k, "host")?;
        rig.link(&k, "left", &s, "eth1")?;
        rig.link(&k, "right", &s, "eth2")?;
        a.address("eth0", "10.0.0.1/24")?;
        b.address("eth0", "10.0.0.2/24")?;
        let bridge =
            "ip link add br0 type bridge stp_state 1 priority 0 forward_delay 400 hello_time 100 max_age 600";
        k.run(bridge.split(' '))?;
        for port in ["host", "left", "right"] {
            k.run(["ip", "link", "set", port, "master", "br0"])?;
        }
        k.up("br0")?;
        let running =
            start(&s, "add eth0\nadd eth1\nadd eth2\nstp eth0\nedge eth0\nstp eth1\nstp eth2\nup\n")?;

        // The kernel's bridge is the root: one of the two paths to it is blocked.
        let is_settled = |said: &str| {
            count(said, " forwarding role root\n") == 1 && count(said, " blocking role alternate\n") == 1
        };
        let shown = running.until_says(|| show(&running), TREE, is_settled)?;
        let expected = "\tpriority 32768 hellotime 2 fwddelay 15 maxage 20 holdcnt 6 proto rstp\n";
        assert!(shown.contains(expected), "{shown}");
        until_whole(&a, "10.0.0.2")?;
        let before = s.counters("eth1")?.rx_packets + s.counters("eth2")?.rx_packets;
        let pings = a.ping_with("10.0.0.2", 10, &["-i", "0.1"])?;
        assert_eq!((pings.received, pings.duplicates), (10, 0));
        let after = s.counters("eth1")?.rx_packets + s.counters("eth2")?.rx_packets;
        assert!(after - before < 200, "{} frames: a storm", after - before);

        // Without the cable that was used, the other is.
        let root = if shown.contains("port 2 ") && line_of(&shown, "port 2 ").contains("role root") {
            "left"
        } else {
            "right"
        };
        k.run(["ip", "link", "set", root, "down"])?;
        running.until_says(
            || show(&running),
            TREE,
            |said| {
                count(said, " forwarding role root\n") == 1 && count(said, " disabled role disabled\n") == 1
            },
        )?;
        until_whole(&a, "10.0.0.2")?;
        end(running.process).map(drop)
    });
}

/// Hosts at 10.0.0.1 and 10.0.0.2, and a switch between them that forwards.
fn between_two_hosts(rig: &Rig) -> Result<([Host; 3], Running)> {
    artery()?;
    let (a, b, s) = (rig.host("a")?, rig.host("b")?, rig.host("s")?);
    rig.link(&a, "eth0", &s, "eth0")?;
    rig.link(&b, "eth0", &s, "eth1")?;
    a.address("eth0", "10.0.0.1/24")?;
    b.address("eth0", "10.0.0.2/24")?;
    let mut running = start(&s, "add eth0\nadd eth1\nup\n")?;
    running.until_answered(&a, "10.0.0.2")?;
    Ok(([a, b, s], running))
}

fn line_of<'a>(text: &'a str, what: &str) -> &'a str {
    text.lines().find(|line| line.contains(what)).unwrap_or("")
}

#[test]
fn frames_do_not_go_to_links_that_are_down_and_return_with_them() {
    artery_rig::test("up-links", |rig: &Rig| {
        let ([a, b, s], mut running) = between_two_hosts(rig)?;
        let frame = format!("eth0 ff:ff:ff:ff:ff:ff {}", a.mac("eth0")?);
        let leaves = |said: &str| said.contains("leaves by eth1");
        running.until_says(|| running.explain(&frame), SOON, leaves)?;
        // At the switch's own end, and at the other's.
        for host in [&s, &b] {
            let port = if host.name() == s.name() { "eth1" } else { "eth0" };
            host.down(port)?;
            let said = running.until_says(|| running.explain(&frame), SOON, |said| !leaves(said))?;
            assert!(said.contains("link"), "{said}");
            host.up(port)?;
            running.until_says(|| running.explain(&frame), SOON, leaves)?;
            running.until_answered(&a, "10.0.0.2")?;
        }
        end(running.process).map(drop)
    });
}

#[test]
fn an_interface_that_is_renamed_or_made_again_stays_a_port_of_the_switch() {
    artery_rig::test("up-again", |rig: &Rig| {
        let ([a, b, s], mut running) = between_two_hosts(rig)?;
        s.run(["ip", "link", "set", "eth1", "name", "wan0"])?;
        running.process.wait_for("eth1: its interface is called wan0 now", SOON)?;
        assert_eq!(a.ping("10.0.0.2", 5)?.received, 5);
        let frame = format!("eth0 ff:ff:ff:ff:ff:ff {}", a.mac("eth0")?);
        let leaves = |said: &str| said.contains("leaves by eth1");
        running.until_says(|| running.explain(&frame), SOON, leaves)?;
        let mac = b.mac("eth0")?;
        s.run(["ip", "link", "delete", "wan0"])?;
        running.process.wait_for("eth1: interface vanished while in use; the port is absent", SOON)?;
        let said = running.until_says(|| running.explain(&frame), SOON, |said| !leaves(said))?;
        assert!(said.contains("link"), "{said}");
        let far = ["type", "veth", "peer", "name", "eth0", "address", &mac, "netns", b.namespace()];
        s.run([&["ip", "link", "add", "eth1"][..], &far].concat())?;
        b.address("eth0", "10.0.0.2/24")?.up("eth0")?;
        s.up("eth1")?;
        running.until_says(|| running.explain(&frame), SOON, leaves)?;
        running.until_answered(&a, "10.0.0.2")?;
        end(running.process).map(drop)
    });
}
